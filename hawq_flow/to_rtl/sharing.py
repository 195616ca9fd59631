"""A constant matrix times a vector with few adders: :func:`shared` finds the ``AdderGraph``.

The maths. ``y = x @ M`` with constant integers is a sum of ``+-(x_i << s)`` for each output, one term a signed digit of
its column, and the least cost of such sums with shared parts is NP-hard. Four steps, each in its own module, bring it
down; whatever they do, the graph's coefficients are compared with ``M`` in the end (``adders.proved``).

1. Columns that are equal up to sign and powers of two are one; columns close to others become differences
   (``families.py``).
2. Each entry's shortest signed-digit form is chosen so that digits agree (``csd.py``).
3. Pairs of digits that occur often become values of their own (``patterns.py``).
4. What is left of each column is added narrow sums first (``trees.py``).

Steps 1 to 3 have choices with no best answer in general, so several are tried, then the best of them again with a
little noise in the order in which patterns are taken, and the cheapest graph by ``AdderGraph.adder_bits`` is kept. The
number of tries depends on the size and the effort, the seeds are fixed: the same arguments give the same graph.

The method follows da4ml (Sun et al., "da4ml: Distributed Arithmetic for Real-time Neural Networks on FPGAs",
arXiv:2507.04535), which joins 1 and 3; the choice of forms and the order of trees are this project's. Multiplication of
one value by constants (Voronenko and Püschel, "Multiplierless Multiple Constant Multiplication", 2007) is the case of
one row; a factor for each channel is the case of a diagonal matrix, solved block by block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from hawq_flow.numeric import IntArray
from hawq_flow.to_rtl.adders import (
    AdderError,
    AdderGraph,
    Node,
    Term,
    checked_bounds,
    checked_matrix,
    graph_of,
    proved,
    trailing_zeros,
)
from hawq_flow.to_rtl.csd import Digits, agreeing, can_agree, csd, csd_count, positive
from hawq_flow.to_rtl.families import Family, family, limits_of, orphans, rounds
from hawq_flow.to_rtl.forms import Forms
from hawq_flow.to_rtl.patterns import Patterns, Weights
from hawq_flow.to_rtl.trees import add_tree

Effort = Literal["low", "normal", "high"]

_TRIES: dict[Effort, tuple[int, int]] = {"low": (3, 600), "normal": (8, 16_000), "high": (80, 300_000)}
"""Most graphs tried for a block, and the signed digits that all tries together may have (at least one is made)."""

_NOISE = 0.05

_FEW = 400
"""Signed digits up to which the plain form is tried as well."""

MAX_DEPTH = 60
"""A larger depth limit limits nothing in int64, and counts as this one."""


def shared(
    matrix: ArrayLike,
    low: ArrayLike,
    high: ArrayLike,
    *,
    depth_limit: int | None = None,
    effort: Effort = "normal",
    free_signs: bool = False,
) -> AdderGraph:
    """The cheapest graph found for ``x @ matrix``, ``low <= x <= high``; proved exact, and the same every time.

    Never dearer than :func:`plain` on small matrices, where it is one of the tries.

    Parameters
    ----------
    matrix:
        (inputs, outputs) integers, of any memory layout.
    low, high:
        Bounds of the inputs, (inputs,) integers or scalars; they weigh the choice and never change what is computed.
    depth_limit:
        Most adders on any path from an input to an output; None: no limit. At least :func:`least_depth`.
    effort:
        "low": one try, more for small blocks; "normal": up to 8 (some 2 s for 64x32 of 6 bits); "high": up to 80.

    free_signs:
        Whether the reader takes a negated output for nothing (it subtracts where it would add); else negations count.

    Raises
    ------
    AdderError
        A matrix or bounds of another form, values that could reach 2^56, a depth that no graph has, an unknown effort.

    Examples
    --------
    >>> graph = shared([[3, 6], [5, -10]], 0, 15)
    >>> graph.nodes, graph.evaluate([[1, 1]]).tolist()
    (4, [[8, -4]])
    """
    matrix = checked_matrix(matrix)
    low, high = checked_bounds(low, high, len(matrix))
    if effort not in get_args(Effort):
        raise AdderError(f"effort {effort!r}; expected one of {', '.join(get_args(Effort))}")
    _check_depth(matrix, depth_limit)
    Forms(low, high).check_reach(matrix)
    task = _Task(depth_limit and min(depth_limit, MAX_DEPTH), effort, free_signs)
    nodes: list[Node] = []
    ends: list[Term] = [(-1, 0, 1)] * matrix.shape[1]
    for rows, columns in blocks(matrix):
        block = _solved(matrix[np.ix_(rows, columns)], low[rows], high[rows], task)
        place = [*rows.tolist(), *range(len(matrix) + len(nodes), len(matrix) + len(nodes) + block.nodes)]
        nodes += [(place[a], place[b], s, t, minus) for a, b, s, t, minus in block.steps()]
        for j, (v, s, g) in zip(columns.tolist(), block.ends(), strict=True):
            ends[j] = place[v], s, g
    return proved(graph_of(len(matrix), nodes, ends), matrix)


def plain(matrix: ArrayLike) -> AdderGraph:
    """Canonical signed digits in a balanced tree for each output, nothing shared: the yardstick, and of least depth.

    ``matrix`` (inputs, outputs) integers; proved exact; ``AdderError`` as :func:`shared`.
    """
    matrix = checked_matrix(matrix)
    nodes: list[Node] = []
    ends: list[Term] = []
    for column in csd(matrix).transpose(1, 0, 2):
        terms: list[Term] = [(int(i), int(s), int(column[i, s])) for i, s in np.argwhere(column)]
        while len(terms) > 1:
            sums: list[Term] = []
            for (a, s, g), (b, t, h) in zip(terms[::2], terms[1::2], strict=False):
                first, second = ((b, t), (a, s)) if g < h else ((a, s), (b, t))
                shift = min(s, t)
                sums.append((len(matrix) + len(nodes), shift, max(g, h)))
                nodes.append((first[0], second[0], first[1] - shift, second[1] - shift, g != h))
            terms = sums + terms[2 * len(sums) :]
        ends.append(terms[0] if terms else (-1, 0, 1))
    return proved(graph_of(len(matrix), nodes, ends), matrix)


def least_depth(matrix: ArrayLike) -> int:
    """The fewest adders on the longest path that any graph for ``matrix`` can have.

    An adder has at most the digits of both its operands: ``k`` signed digits in a column need ``ceil(log2 k)`` adders.
    """
    return int(rounds(csd_count(checked_matrix(matrix)).sum(axis=0)).max())


def _check_depth(matrix: IntArray, limit: int | None) -> None:
    if limit is None:
        return
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
        raise AdderError(f"depth_limit {limit!r}; expected an integer of 0 or more, or None for no limit")
    least = least_depth(matrix)
    if least > limit:
        digits = csd_count(matrix).sum(axis=0)
        j = int(digits.argmax())
        raise AdderError(
            f"depth_limit {limit}: output {j} is a sum of {digits[j]} signed digits, which takes {least} adders in a "
            f"row; expected {least} or more"
        )


def blocks(matrix: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
    """Rows and columns of the parts of a matrix that share no input and no output; zero columns are in none."""
    row_of, column_of = np.arange(matrix.shape[0]), np.full(matrix.shape[1], -1)
    used = matrix != 0
    # The smallest row that a row is connected to spreads through the columns until nothing changes.
    while True:
        column_of = np.where(used, row_of[:, None], matrix.shape[0]).min(axis=0)
        spread = np.where(used, column_of, row_of[:, None]).min(axis=1)
        if np.array_equal(spread, row_of):
            break
        row_of = spread
    for label in np.unique(column_of[column_of < matrix.shape[0]]):
        yield np.flatnonzero(row_of == label), np.flatnonzero(column_of == label)


@dataclass(frozen=True)
class _Try:
    """One way through the steps: the columns' family, the digits of its differences, the noise's seed (None: none)."""

    kin: Family
    digits: Digits
    seed: int | None = None


@dataclass(frozen=True)
class _Task:
    """What is asked for: see :func:`shared`."""

    limit: int | None
    effort: Effort
    free_signs: bool


def _solved(matrix: IntArray, low: IntArray, high: IntArray, task: _Task) -> AdderGraph:
    """The cheapest graph found for a matrix without zero columns."""
    normal, column, shift, sign = _normal(matrix)
    most, budget = _TRIES[task.effort]
    digits = int(csd_count(normal).sum())
    count = max(1, min(most, budget // digits, digits))  # few digits have few orders
    found: list[tuple[int, int, _Try, AdderGraph]] = []

    def cost(graph: AdderGraph) -> int:
        return int(graph.node_bits(low, high).sum()) + (0 if task.free_signs else graph.negation_bits(low, high))

    def attempt(trial: _Try) -> None:
        nodes, roots = _built(normal, low, high, trial, task)
        ends = [
            (roots[c][0], roots[c][1] + s, roots[c][2] * g)
            for c, s, g in zip(column.tolist(), shift.tolist(), sign.tolist(), strict=True)
        ]
        graph = graph_of(len(matrix), nodes, ends).without_dead()
        found.append((cost(graph), graph.latency, trial, graph))
        found.sort(key=lambda entry: entry[:2])

    first = list(_first_tries(normal, task.limit, max(min(count, 6), (count + 1) // 2)))
    for trial in first:
        attempt(trial)
    leaders = [entry[2] for entry in found[:2]]
    for seed in range(count - len(first)):
        leader = leaders[seed % len(leaders)]
        attempt(_Try(leader.kin, leader.digits, seed))
    best = found[0][3]
    if digits <= _FEW:  # where hardly anything is shared, the order of the trees may cost more than sharing saves
        best = min(best, plain(matrix), key=cost)
    return best


def _first_tries(matrix: IntArray, limit: int | None, count: int) -> Iterator[_Try]:
    """Up to ``count`` different tries without noise."""
    made: set[bytes] = set()
    for penalty in (2.0, 1.0, None, 3.0) if matrix.shape[1] > 1 else (None,):
        kin = orphans(matrix) if penalty is None else family(matrix, penalty, limit)
        start = positive(kin.difference)
        for form in ("agreeing", "positive", "canonical"):
            if form == "agreeing" and not can_agree(start):
                continue
            if len(made) == count:
                return
            digits = agreeing(start) if form == "agreeing" else start if form == "positive" else csd(kin.difference)
            key = kin.parent.tobytes() + kin.shift.tobytes() + kin.sign.tobytes() + digits.tobytes()
            if key not in made:
                made.add(key)
                yield _Try(kin, digits)


def _normal(matrix: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Distinct columns up to sign and powers of two; for each column of ``matrix`` which one, its shift and sign."""
    shift = trailing_zeros(np.bitwise_or.reduce(abs(matrix), axis=0))
    odd = matrix >> shift
    seen: dict[bytes, tuple[int, int]] = {}
    column: list[int] = []
    sign: list[int] = []
    kept: list[int] = []
    for j in range(matrix.shape[1]):
        key = odd[:, j].tobytes()
        if key not in seen:
            seen[key], seen[(-odd[:, j]).tobytes()] = (len(kept), 1), (len(kept), -1)
            kept.append(j)
        column.append(seen[key][0])
        sign.append(seen[key][1])
    return np.ascontiguousarray(odd[:, kept]), np.array(column), shift, np.array(sign)


def _built(matrix: IntArray, low: IntArray, high: IntArray, trial: _Try, task: _Task) -> tuple[list[Node], list[Term]]:
    """The nodes of one try and, for each column, where it is."""
    kin = trial.kin
    forms = Forms(low, high)
    limits = used = None
    if task.limit is not None:
        limits = limits_of(kin, task.limit)
        used = [1 << limits[p] if p >= 0 else 0 for p in kin.parent.tolist()]
    patterns = Patterns(forms, trial.digits, limits, used)
    if trial.seed is None:
        patterns.take_all(Weights())
    else:
        patterns.take_all(Weights(noise=_NOISE), np.random.default_rng(trial.seed))
    roots: list[Term] = [(-1, 0, 1)] * matrix.shape[1]
    for j in kin.order:
        terms = patterns.terms(j)
        if kin.parent[j] >= 0:
            value, shift, sign = roots[kin.parent[j]]
            terms.append((value, shift + int(kin.shift[j]), sign * int(kin.sign[j])))
        roots[j] = add_tree(forms, terms, limits[j] if limits else None, task.free_signs)
    return forms.nodes, roots
