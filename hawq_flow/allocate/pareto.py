"""The exact Pareto front of objective against one budget, for all budget values at once, by dynamic programming.

The maths. Slots are fixed one after another, in plan order. What is known of the slots fixed so far are points
(cost, objective); a point that another one beats in both can never be part of a best plan, *provided* the two
agree on every slot that still shares a pair cost with a slot to come. Those open slots are the state: on a chain the
width of the previous activation, or of the previous weights when activations are tied to them; none when the
next layer's weights have been fixed. So: one front for each state; each step shifts fronts by the cost and
objective of each width, unites those that arrive in the same state, and prunes.

Costs are integers (BOPs and bits are, their constants apart) and stay so. Objectives are put on an integer grid of
2^-62 of the power of two above the largest sum, so that sums do not depend on their order and ties mean equality; of
tied points the lexicographically smallest plan stays. The objectives reported are computed in floating point from the
plans.

Two points about speed. A step that closes no slot only records shifts: the front it starts from is shared by all its
states, and the shifts of one front are pruned among themselves before they are applied to its points. And sorting by
(cost, lexicographic position) sorts one int64 made of both, which is several times faster than an argsort.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hawq_flow.allocate.problem import Budget, Problem

IntArray = NDArray[np.int64]

MAX_STATES = 1024
MAX_CANDIDATES = 50_000_000
_GRID_BITS = 62


class NoChainError(ValueError):
    """The layers' couplings leave too many states for the dynamic programme; the ILP has no such limit."""


@dataclass(frozen=True)
class _Piece:
    """Points start..stop of the last level's arrays, shifted; ``code`` numbers the widths fixed since then."""

    start: int
    stop: int
    cost: float
    objective: int
    code: int


@dataclass(frozen=True)
class _Level:
    """Points after a pruning: each one's parent in the level before, and the widths fixed since (mixed radix)."""

    parent: IntArray
    code: IntArray
    slots: tuple[int, ...]


def solve(problem: Problem, budget: Budget) -> IntArray:
    """All Pareto-optimal choices, by increasing cost in ``budget`` and decreasing objective.

    Parameters
    ----------
    problem:
        The normal form; its budgets' limits are not read.
    budget:
        The one budget (its limit is not read either).

    Returns
    -------
    int64 array of shape (points, slots): the index of each slot's width.

    Raises
    ------
    NoChainError
        If more than ``MAX_STATES`` joint widths would have to be carried, or the front grows beyond memory.
    """
    objective = _on_grid(problem)
    count = len(problem.widths)
    closes = list(range(count))  # the step after which a slot's width no longer matters
    for s, t in budget.pairs:
        closes[s] = max(closes[s], t)
    cost_type = np.int64 if budget.integral else np.float64
    costs = np.zeros(1, dtype=cost_type)
    objectives = np.zeros(1, dtype=np.int64)
    ranks = np.zeros(1, dtype=np.int64)  # lexicographic position of each point's plan so far
    states: dict[tuple[int, ...], list[_Piece]] = {(): [_Piece(0, 1, 0, 0, 0)]}
    open_slots: tuple[int, ...] = ()
    levels: list[_Level] = []
    pending: tuple[int, ...] = ()
    for t in range(count):
        size = len(problem.widths[t])
        if size == 1:
            continue  # one width: a constant for every plan
        joint = (*open_slots, t)
        kept = [i for i, slot in enumerate(joint) if closes[slot] > t]
        arrived: dict[tuple[int, ...], list[_Piece]] = {}
        for state, pieces in states.items():
            step = budget.unary[t].copy()
            for slot, index in zip(open_slots, state, strict=True):
                if (slot, t) in budget.pairs:
                    step += budget.pairs[slot, t][index]
            for d in range(size):
                full = (*state, d)
                target = arrived.setdefault(tuple(full[i] for i in kept), [])
                for piece in pieces:
                    target.append(
                        _Piece(
                            piece.start,
                            piece.stop,
                            piece.cost + float(step[d]),
                            piece.objective + int(objective[t][d]),
                            piece.code * size + d,
                        )
                    )
        if len(arrived) > MAX_STATES:
            carried = ", ".join(problem.labels[joint[i]] for i in kept)
            raise NoChainError(
                f"pareto: {len(arrived)} joint widths of {carried} would have to be carried, more than "
                f"{MAX_STATES}: the layers are not a chain, or ties span it. Use method='ilp'"
            )
        states, open_slots, pending = arrived, tuple(joint[i] for i in kept), (*pending, t)
        if len(kept) == len(joint):
            continue
        radix = int(np.prod([len(problem.widths[slot]) for slot in pending]))
        parts = [_unite(pieces, costs, objectives, ranks, radix) for _, pieces in sorted(states.items())]
        starts = np.cumsum([0, *(len(part[0]) for part in parts)])
        states = {
            state: [_Piece(int(starts[i]), int(starts[i + 1]), 0, 0, 0)] for i, state in enumerate(sorted(states))
        }
        costs, objectives, keys, parents, codes = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        ranks = np.arange(len(keys)) if len(parts) == 1 else np.argsort(np.argsort(keys))
        levels.append(_Level(parents, codes, pending))
        pending = ()
    return _choices(problem, levels, np.argsort(costs, kind="stable"))


def _on_grid(problem: Problem) -> list[IntArray]:
    """Objectives as int64 multiples of 2^-62 of the power of two above the largest possible sum."""
    largest = sum(float(values.max()) for values in problem.objective)
    exponent = math.frexp(largest)[1]  # a power of two, so that scaling is exact and equal sums stay equal
    return [np.rint(np.ldexp(values, _GRID_BITS - exponent)).astype(np.int64) for values in problem.objective]


def _unite(
    pieces: list[_Piece], costs: NDArray[np.generic], objectives: IntArray, ranks: IntArray, radix: int
) -> tuple[NDArray[np.generic], IntArray, IntArray, IntArray, IntArray]:
    """The pruned union of shifted fronts, in lexicographic order: costs, objectives, keys, parents, codes."""
    shifts: dict[tuple[int, int], list[_Piece]] = {}
    for piece in pieces:
        shifts.setdefault((piece.start, piece.stop), []).append(piece)
    parts = []
    for (start, stop), group in shifts.items():
        shift_cost = np.array([piece.cost for piece in group]).astype(costs.dtype)
        shift_objective = np.array([piece.objective for piece in group], dtype=np.int64)
        codes = np.array([piece.code for piece in group], dtype=np.int64)
        best = np.argsort(codes)
        if len(best) > 1:
            best = best[_prune(shift_cost[best], shift_objective[best])]
        parts.append(
            (
                np.add.outer(costs[start:stop], shift_cost[best]).ravel(),
                np.add.outer(objectives[start:stop], shift_objective[best]).ravel(),
                codes[best],
                start,
            )
        )
    total = sum(len(part[0]) for part in parts)
    if total > MAX_CANDIDATES:
        raise NoChainError(
            f"pareto: {total} candidate points in one step, more than {MAX_CANDIDATES}: the budget "
            "takes too many values. Use method='ilp', or round the cost table"
        )
    sizes = np.array([len(part[2]) for part in parts])
    bases = np.array([part[3] for part in parts])
    ends = np.cumsum([len(part[0]) for part in parts])
    begins = np.concatenate([[0], ends[:-1]])
    code_begins = np.cumsum(sizes) - sizes
    all_codes = np.concatenate([part[2] for part in parts])

    def origin(candidates: IntArray) -> tuple[IntArray, IntArray]:
        """The parent point and the code of each candidate."""
        part = np.searchsorted(ends, candidates, side="right")
        point, option = np.divmod(candidates - begins[part], sizes[part])
        return point + bases[part], all_codes[code_begins[part] + option]

    def key(candidates: IntArray) -> IntArray:
        parent, code = origin(candidates)
        return ranks[parent] * radix + code

    cost, objective = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    # Points of a state are in lexicographic order, so the candidates of a single part are too.
    found = _prune(cost, objective, None if len(parts) == 1 else key)
    keys = key(found)
    if len(parts) > 1:
        order = np.argsort(keys)
        found, keys = found[order], keys[order]
    parent, code = origin(found)
    return cost[found], objective[found], keys, parent, code


def _prune(
    costs: NDArray[np.generic], objectives: IntArray, key: Callable[[IntArray], IntArray] | None = None
) -> IntArray:
    """Indices, ascending, of the points that no other beats; of equal points the one of least ``key``, or the first."""
    if not len(costs):
        return np.zeros(0, dtype=np.int64)
    bits = int(len(costs) - 1).bit_length()
    if costs.dtype == np.int64 and int(costs.max()) < 1 << (62 - bits):
        packed = np.sort((costs.astype(np.int64) << bits) | np.arange(len(costs)))
        order = packed & ((1 << bits) - 1)
        ordered: NDArray[np.generic] = packed >> bits
    else:
        order = np.argsort(costs, kind="stable")
        ordered = costs[order]
    values = objectives[order]
    lowest = np.minimum.accumulate(values)
    improves = np.concatenate([[True], values[1:] < lowest[:-1]])
    if key is not None:
        order = _settle_ties(order, ordered, values, improves, key)
    order, ordered = order[improves], ordered[improves]
    last = np.concatenate([ordered[1:] != ordered[:-1], [True]])  # among equal costs the improvements end in the best
    return np.sort(order[last])


def _settle_ties(
    order: IntArray,
    costs: NDArray[np.generic],
    values: IntArray,
    improves: NDArray[np.bool_],
    key: Callable[[IntArray], IntArray],
) -> IntArray:
    """``order`` with the point of the least key in the place of each improving point that has equals."""
    leader = np.maximum.accumulate(np.where(improves, np.arange(len(order)), 0))
    tied = (costs == costs[leader]) & (values == values[leader]) & ~improves
    if not tied.any():
        return order
    tied[leader[tied]] = True
    members = np.flatnonzero(tied)
    by_key = members[np.lexsort((key(order[members]), leader[members]))]
    first = np.concatenate([[True], leader[by_key][1:] != leader[by_key][:-1]])
    settled = order.copy()
    settled[leader[by_key[first]]] = order[by_key[first]]
    return settled


def _choices(problem: Problem, levels: list[_Level], points: IntArray) -> IntArray:
    """Walk back from points of the last level to the width index of every slot."""
    choices = np.zeros((len(points), len(problem.widths)), dtype=np.int64)
    for level in reversed(levels):
        code = level.code[points]
        for slot in reversed(level.slots):
            code, choices[:, slot] = np.divmod(code, len(problem.widths[slot]))
        points = level.parent[points]
    return choices
