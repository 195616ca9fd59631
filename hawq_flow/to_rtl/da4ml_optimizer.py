"""da4ml as another optimizer of constant matrices: its solution read into an :class:`AdderGraph` and proved.

da4ml (Sun et al., arXiv:2507.04535) is not a dependency of this project (LGPL-3.0); ``pip install da4ml`` brings it. A
solution is a chain of stages, each a list of operations on a buffer: ``buf[k] = buf[a] +- 2^s buf[b]``, with input and
output shifts and signs that are powers of two. Values of ``buf`` may be fractions and negated; here each is kept as
``sign * 2^e * value`` with an integer value of the graph, so that shifts of the graph are 0 or more. Whatever da4ml
did, :func:`proved` then compares the coefficients with the matrix: a result is exact, or an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hawq_flow.to_rtl.adders import AdderError, AdderGraph, Node, Term, checked_bounds, checked_matrix, graph_of, proved

COPY, ADD, SUBTRACT = -1, 0, 1
"""The operations of da4ml's buffer machine that a matrix needs."""

MAX_MAGNITUDE = 1 << 24
"""Entries reach da4ml as float32, which holds integers up to 2^24 exactly."""


class MissingOptimizer(RuntimeError):
    """The package of an optional optimizer is not installed; the text says how to get it."""


def da4ml_adders(matrix: ArrayLike, low: ArrayLike, high: ArrayLike, **options: Any) -> AdderGraph:
    """The graph that da4ml's solver finds for ``x @ matrix``, ``low <= x <= high``; exact, by :func:`proved`.

    ``matrix`` (inputs, outputs) integers up to 2^24; bounds (inputs,) integers or scalars; ``options``: arguments of
    ``da4ml.cmvm.solve`` (default: its own, and the cost counted in adder bits). Raises :class:`MissingOptimizer` where
    da4ml is not installed, ``AdderError`` where its solution has other operations than shifts and adders or is wrong.
    """
    try:
        from da4ml.cmvm import solve
    except ModuleNotFoundError as error:
        raise MissingOptimizer(
            "the optimizer 'da4ml' needs the package da4ml, which is not installed: pip install da4ml, "
            "or use the built-in optimizer (hawq_flow.to_rtl.sharing.shared)"
        ) from error
    matrix = checked_matrix(matrix)
    low, high = checked_bounds(low, high, len(matrix))
    if (abs(matrix) > MAX_MAGNITUDE).any():
        raise AdderError(
            f"da4ml takes entries as float32: {abs(matrix).max()} is above 2^24; use the built-in optimizer"
        )
    ranges = [(float(a), float(b), 1.0) for a, b in zip(low, high, strict=True)]
    # da4ml reads the memory as row after row, whatever the strides.
    kernel = np.ascontiguousarray(matrix, dtype=np.float32)
    solution = solve(kernel, qintervals=ranges, **{"adder_size": 1, "carry_size": -1, **options})
    stages: list[dict[str, Sequence[Any]]] = [
        {
            "inp_shifts": list(stage.inp_shifts),
            "ops": [(op.id0, op.id1, op.opcode, op.data) for op in stage.ops],
            "out_idxs": list(stage.out_idxs),
            "out_shifts": list(stage.out_shifts),
            "out_negs": list(stage.out_negs),
        }
        for stage in solution.solutions
    ]
    return read_stages(stages, matrix)


def read_stages(stages: Sequence[dict[str, Sequence[Any]]], matrix: ArrayLike) -> AdderGraph:
    """The graph of da4ml's stages, proved to compute ``x @ matrix``.

    Each stage: ``inp_shifts``, ``ops`` as (id0, id1, opcode, data), ``out_idxs``, ``out_shifts``, ``out_negs``.
    """
    matrix = checked_matrix(matrix)
    rows: list[Node] = []
    # What a stage reads: (value of the graph, exponent of two, sign), or None for 0.
    feed: list[Term | None] = [(i, 0, 1) for i in range(len(matrix))]
    for number, stage in enumerate(stages):
        buffer: list[Term | None] = []
        for k, (a, b, opcode, data) in enumerate(stage["ops"]):
            if opcode == COPY:
                given = feed[a]
                buffer.append(given and (given[0], given[1] + int(stage["inp_shifts"][a]), given[2]))
            elif opcode in (ADD, SUBTRACT):
                first, second = buffer[a], buffer[b]
                if second is not None:
                    sign = -second[2] if opcode == SUBTRACT else second[2]
                    second = (second[0], second[1] + int(data), sign)
                buffer.append(_sum(first, second, rows, len(matrix)))
            else:
                raise AdderError(
                    f"da4ml: operation {k} of stage {number} has code {opcode}; expected {COPY} (copy), {ADD} (add) "
                    f"or {SUBTRACT} (subtract), all that a constant matrix needs"
                )
        ends = zip(stage["out_idxs"], stage["out_shifts"], stage["out_negs"], strict=True)
        feed = [_scaled(buffer[index] if index >= 0 else None, int(s), bool(minus)) for index, s, minus in ends]
    outputs = []
    for j, end in enumerate(feed):
        if end is not None and end[1] < 0:
            raise AdderError(f"da4ml: output {j} is a value shifted right by {-end[1]}; expected an integer")
        outputs.append(end or (-1, 0, 1))
    return proved(graph_of(len(matrix), rows, outputs).without_dead(), matrix)


def _scaled(end: Term | None, shift: int, minus: bool) -> Term | None:
    return end and (end[0], end[1] + shift, -end[2] if minus else end[2])


def _sum(first: Term | None, second: Term | None, rows: list[Node], inputs: int) -> Term | None:
    """The sum of two scaled values as a new node appended to ``rows``; the other where one is 0."""
    if first is None or second is None:
        return first or second
    if first[2] < 0 < second[2]:
        first, second = second, first
    exponent = min(first[1], second[1])
    rows.append((first[0], second[0], first[1] - exponent, second[1] - exponent, first[2] != second[2]))
    return inputs + len(rows) - 1, exponent, first[2] if first[2] == second[2] else 1
