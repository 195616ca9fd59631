"""The values of an adder graph while it is being built: linear forms of the inputs with exact ranges, and their nodes.

The maths. For inputs in a box ``low <= x <= high`` the form ``c`` ranges over ``(c.S - |c|.D) / 2`` to
``(c.S + |c|.D) / 2`` with ``S = low + high`` and ``D = high - low``: two products for both ends, exact in int64 (each
difference is even). ``2^s`` times a form has ``2^s`` times the range, so values are kept without their common shifts.
"""

from __future__ import annotations

import numpy as np

from hawq_flow.numeric import IntArray
from hawq_flow.to_rtl.adders import AdderError, Node
from hawq_flow.to_rtl.circuit import width

REACH = 1 << 56
"""Outputs stay below this magnitude. On the way to one there may be the digits of its difference from four times
another (up to 14 times as much), and ranges are computed doubled: below 2^62 in all."""


class Forms:
    """Values by number: the inputs first, then nodes as they are added.

    Attributes
    ----------
    low, high, width, depth:
        Lists of Python integers, one entry a value: exact range, two's-complement width, adders on the longest path.
    nodes:
        The nodes so far.
    """

    def __init__(self, low: IntArray, high: IntArray) -> None:
        self.inputs = len(low)
        self.nodes: list[Node] = []
        self.low: list[int] = low.tolist()
        self.high: list[int] = high.tolist()
        self.width = [width(a, b) for a, b in zip(self.low, self.high, strict=True)]
        self.depth = [0] * self.inputs
        self.sums, self.spans = low + high, high - low
        self._most = np.maximum(abs(low), abs(high)).astype(np.float64)
        self._rows = np.zeros((2 * self.inputs + 64, self.inputs), dtype=np.int64)
        self._rows[: self.inputs] = np.eye(self.inputs, dtype=np.int64)

    @property
    def rows(self) -> IntArray:
        """(values, inputs) int64: coefficients."""
        return self._rows[: len(self.low)]

    def range_of(self, rows: IntArray) -> tuple[IntArray, IntArray]:
        """Exact ranges of linear forms (..., inputs)."""
        middle, half = rows @ self.sums, abs(rows) @ self.spans
        return (middle - half) >> 1, (middle + half) >> 1

    def add(self, node: Node) -> int:
        """Append ``node``; its value's number."""
        left, right, left_shift, right_shift, negative = node
        number = len(self.low)
        if number == len(self._rows):
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
        first, second = self._rows[left] << left_shift, self._rows[right] << right_shift
        row = first - second if negative else first + second
        self._rows[number] = row
        low, high = self.range_of(row)
        self.nodes.append(node)
        self.low.append(int(low))
        self.high.append(int(high))
        self.width.append(width(int(low), int(high)))
        self.depth.append(1 + max(self.depth[left], self.depth[right]))
        return number

    def check_reach(self, matrix: IntArray) -> None:
        """``AdderError`` where an output of ``matrix`` could reach 2^56."""
        reach = abs(matrix.astype(np.float64)).T @ self._most
        for j in np.flatnonzero(reach >= REACH)[:1]:
            raise AdderError(
                f"matrix: output {j} can reach a magnitude of {reach[j]:.3g}; expected below 2^56: take narrower "
                "inputs or smaller entries"
            )
