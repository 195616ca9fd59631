"""A constant matrix times a vector, as a graph of shifts and adders: the structure; how it is found is ``sharing.py``.

Value ``i`` is input ``i`` for ``i < inputs``; value ``inputs + k`` is node ``k``:

    node[k] = (value[left[k]] << left_shift[k])  +  (value[right[k]] << right_shift[k])      or  -  where negative[k]

with ``left[k], right[k] < inputs + k``. Output ``j`` is ``sign[j] * (value[source[j]] << shift[j])``, or 0 where
``source[j]`` is -1. Shifts are 0 or more, so every value is an integer and nothing is ever rounded.

The maths. Shifts, sums and differences are linear, so value ``v`` is ``sum_i c[v, i] * x[i]`` with an integer row
``c[v]``, found by carrying rows through the graph. Two things follow. The graph computes ``x @ M`` for all ``x`` if
and only if its outputs' rows are the columns of ``M`` (:func:`proved`: equality of integers, no sampling). And for
inputs in a box ``low <= x <= high`` the exact range of a value is ``sum_i c+ * low + c- * high`` to
``sum_i c+ * high + c- * low`` (``c+``, ``c-`` its positive and negative coefficients): interval arithmetic over the
linear form, which is never wider than over the nodes, and both ends are reached. Widths follow from the ranges.

The cost. The adder of a node needs a carry chain from the lowest bit in which both operands have one to the highest
bit of the sum. Below, the sum is the one operand's bits: wires, unless that operand is subtracted. Nothing is paid for
an operand that is always 0, for a sum that is always the same, and for a sum whose upper operand begins where the
lower, never negative, ends. The sum over nodes is the figure that da4ml minimizes (Sun et al., "da4ml: Distributed
Arithmetic for Real-time Neural Networks on FPGAs", arXiv:2507.04535), and an estimate of the LUTs that synthesis finds,
one a bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hawq_flow.numeric import IntArray

Node = tuple[int, int, int, int, bool]
"""A node as Python numbers: left, right, left shift, right shift, whether the right operand is subtracted."""

Term = tuple[int, int, int]
"""A value, its shift and its sign (1 or -1): an output, or a part of a sum."""

MAX_SHIFT = 62
"""Largest left shift: 1 << 62 is the largest power of two in int64."""

LIMIT = 1 << 62
"""Coefficients and values stay below this magnitude, so that their sums stay inside int64."""


class AdderError(ValueError):
    """An adder graph, or a matrix for one, that is not what it should be; the text says where and what was expected."""


def widths(low: ArrayLike, high: ArrayLike) -> IntArray:
    """Two's-complement widths of ranges: bits of ``high`` where ``low`` >= 0 (unsigned), else one more for the sign.

    ``low``, ``high``: equal shapes, int64, below 2^62 in magnitude. Only the range 0..0 has width 0.

    >>> widths([0, 0, -8, -1, 5], [0, 255, 7, 0, 5])
    array([0, 8, 4, 1, 3])
    """
    first, last = np.asarray(low, dtype=np.int64), np.asarray(high, dtype=np.int64)
    magnitude = np.maximum(np.where(first < 0, -first - 1, 0), np.maximum(last, 0))
    return bit_length(magnitude) + (first < 0)


def bit_length(values: IntArray) -> IntArray:
    """Bits of non-negative integers below 2^62; in two halves, since float64 holds 53 bits exactly."""
    upper = values >> 31
    bits: IntArray = np.where(upper > 0, np.frexp(upper)[1] + 31, np.frexp(values & (2**31 - 1))[1]).astype(np.int64)
    return bits


def trailing_zeros(values: IntArray) -> IntArray:
    """The exponent of the largest power of two that divides each value; 0 for 0."""
    return np.where(values == 0, 0, bit_length((values & -values) >> 1)).astype(np.int64)


@dataclass(frozen=True, eq=False)
class AdderGraph:
    """See the module's docstring. Arrays are int64 (``negative`` is bool), read-only: nodes (k,), outputs (m,).

    Checked when made: lengths, indices, shifts of 0 to 62, signs of 1 or -1; ``AdderError`` otherwise.
    """

    inputs: int
    left: IntArray
    right: IntArray
    left_shift: IntArray
    right_shift: IntArray
    negative: NDArray[np.bool_]
    source: IntArray
    shift: IntArray
    sign: IntArray

    def __post_init__(self) -> None:
        if isinstance(self.inputs, bool) or not isinstance(self.inputs, int) or self.inputs < 1:
            raise AdderError(f"AdderGraph: inputs {self.inputs!r}; expected an integer of 1 or more")
        for name in ("left", "right", "left_shift", "right_shift", "negative", "source", "shift", "sign"):
            kind = np.bool_ if name == "negative" else np.int64
            array = np.array(getattr(self, name))
            if array.ndim != 1 or (array.size and not np.can_cast(array.dtype, kind, "same_kind")):
                raise AdderError(
                    f"AdderGraph: {name} has shape {array.shape} and type {array.dtype}; "
                    f"expected one axis of {np.dtype(kind).name}"
                )
            array = array.astype(kind)
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        nodes, outputs = len(self.left), len(self.source)
        for name in ("right", "left_shift", "right_shift", "negative"):
            _same_length(name, len(getattr(self, name)), nodes, "left")
        for name in ("shift", "sign"):
            _same_length(name, len(getattr(self, name)), outputs, "source")
        for name in ("left", "right"):
            _within(name, getattr(self, name), 0, self.inputs + np.arange(nodes) - 1, "a value before the node")
        _within("source", self.source, -1, self.values - 1, "a value of the graph, or -1 for the output 0")
        for name in ("left_shift", "right_shift", "shift"):
            _within(name, getattr(self, name), 0, MAX_SHIFT, "a left shift in int64")
        wrong = np.flatnonzero(abs(self.sign) != 1)
        if wrong.size:
            raise AdderError(f"AdderGraph: sign[{wrong[0]}] is {self.sign[wrong[0]]}; expected 1 or -1")

    @property
    def nodes(self) -> int:
        """How many adders there are."""
        return len(self.left)

    @property
    def values(self) -> int:
        """How many values there are: inputs and nodes."""
        return self.inputs + self.nodes

    @property
    def outputs(self) -> int:
        """How many outputs there are."""
        return len(self.source)

    @cached_property
    def coefficients(self) -> IntArray:
        """(values, inputs) int64: row ``v`` holds the coefficients of value ``v``; ``AdderError`` from 2^62 on."""
        rows = np.zeros((self.values, self.inputs), dtype=np.int64)
        rows[: self.inputs] = np.eye(self.inputs, dtype=np.int64)
        magnitude = [1] * self.inputs
        for k, (a, b, s, t, minus) in enumerate(self.steps()):
            reach = (magnitude[a] << s) + (magnitude[b] << t)
            if reach >= LIMIT:
                raise AdderError(f"AdderGraph: coefficients of node {k} can reach {reach}; expected below 2^62")
            left, right = rows[a] << s, rows[b] << t
            row = left - right if minus else left + right
            rows[self.inputs + k] = row
            magnitude.append(int(abs(row).max()))
        rows.flags.writeable = False
        return rows

    @cached_property
    def matrix(self) -> IntArray:
        """(inputs, outputs) int64: what the graph multiplies its inputs by; ``AdderError`` from 2^62 on."""
        rows = self.coefficients[self.source] * (self.source >= 0)[:, None]
        reach = abs(rows).max(axis=1).astype(object) * 2 ** self.shift.astype(object)
        for j in np.flatnonzero(reach >= LIMIT)[:1]:
            raise AdderError(f"AdderGraph: coefficients of output {j} reach {reach[j]}; expected below 2^62")
        matrix = ((rows << self.shift[:, None]) * self.sign[:, None]).T.copy()
        matrix.flags.writeable = False
        return matrix

    @cached_property
    def depth(self) -> IntArray:
        """(values,) int64: adders on the longest path from an input to each value; 0 for inputs."""
        depth = [0] * self.inputs
        for a, b, _, _, _ in self.steps():
            depth.append(1 + max(depth[a], depth[b]))
        return np.array(depth, dtype=np.int64)

    @property
    def latency(self) -> int:
        """Adders on the longest path from an input to an output."""
        used = self.source[self.source >= 0]
        return int(self.depth[used].max()) if used.size else 0

    def evaluate(self, x: ArrayLike) -> IntArray:
        """The outputs, node by node: ``x`` (n, inputs) integers -> (n, outputs) int64.

        ``AdderError`` where the data given could carry a value of the graph to 2^62 or beyond.
        """
        x = np.asarray(x)
        if x.ndim != 2 or x.shape[1] != self.inputs or not np.issubdtype(x.dtype, np.integer):
            raise AdderError(
                f"AdderGraph.evaluate: x has shape {x.shape} and type {x.dtype}; expected (n, {self.inputs}) integers"
            )
        if not len(x):
            return np.zeros((0, self.outputs), dtype=np.int64)
        self.intervals(x.min(axis=0), x.max(axis=0))
        self.output_intervals(x.min(axis=0), x.max(axis=0))
        values = list(np.ascontiguousarray(x.T, dtype=np.int64))
        for a, b, s, t, minus in self.steps():
            left, right = values[a] << s, values[b] << t
            values.append(left - right if minus else left + right)
        outputs = np.zeros((self.outputs, len(x)), dtype=np.int64)
        for j in np.flatnonzero(self.source >= 0):
            outputs[j] = (values[self.source[j]] << self.shift[j]) * self.sign[j]
        return outputs.T.copy()

    def intervals(self, low: ArrayLike, high: ArrayLike) -> tuple[IntArray, IntArray]:
        """Exact (low, high), (values,) int64 each, for inputs between ``low`` and ``high`` (inputs,) or scalar.

        Raises ``AdderError`` where bounds do not fit the inputs, cross, or carry a value to 2^62 or beyond.
        """
        return _ranges(self.coefficients, *self._bounds(low, high), "value")

    def output_intervals(self, low: ArrayLike, high: ArrayLike) -> tuple[IntArray, IntArray]:
        """Exact (low, high), (outputs,) int64 each; arguments and errors as :meth:`intervals`."""
        return _ranges(self.matrix.T, *self._bounds(low, high), "output")

    def bits(self, low: ArrayLike, high: ArrayLike) -> IntArray:
        """(values,) int64: width of each value, see :func:`widths`; arguments and errors as :meth:`intervals`."""
        return widths(*self.intervals(low, high))

    def node_bits(self, low: ArrayLike, high: ArrayLike) -> IntArray:
        """(nodes,) int64: carry bits of each node's adder, see the module; arguments as :meth:`intervals`."""
        lows, highs = self.intervals(low, high)
        bits = widths(lows, highs)
        zeros = trailing_zeros(np.gcd.reduce(self.coefficients, axis=1))
        left_low, right_low = zeros[self.left] + self.left_shift, zeros[self.right] + self.right_shift
        node = bits[self.inputs :]
        # A subtracted operand's bits are inverted and carry a one in: its lowest bit begins the chain.
        begin = np.where(self.negative, right_low, np.maximum(left_low, right_low))
        apart = ~self.negative & (
            _apart(lows[self.left], bits[self.left] + self.left_shift, right_low)
            | _apart(lows[self.right], bits[self.right] + self.right_shift, left_low)
        )
        # 0 +- x: wires, unless x is subtracted from 0; nothing varies in a constant.
        idle = (bits[self.right] == 0) | (~self.negative & (bits[self.left] == 0))
        idle |= (lows == highs)[self.inputs :]
        return np.where(apart | idle, 0, np.maximum(node - begin, 0))

    def negation_bits(self, low: ArrayLike, high: ArrayLike) -> int:
        """Carry bits of the negations that outputs of sign -1 take, once a value; arguments as :meth:`intervals`."""
        negated = np.unique(self.source[(self.sign < 0) & (self.source >= 0)])
        lows, highs = self.intervals(low, high)
        return int((widths(lows, highs) * (lows < highs))[negated].sum())

    def adder_bits(self, low: ArrayLike, high: ArrayLike) -> int:
        """The cost: :meth:`node_bits` and :meth:`negation_bits` in all; arguments and errors as :meth:`intervals`."""
        return int(self.node_bits(low, high).sum()) + self.negation_bits(low, high)

    def without_dead(self) -> AdderGraph:
        """The same outputs without the nodes that none of them needs; the rest keep their order."""
        alive = np.zeros(self.values, dtype=bool)
        alive[: self.inputs] = True
        alive[self.source[self.source >= 0]] = True
        for k in range(self.nodes - 1, -1, -1):
            if alive[self.inputs + k]:
                alive[[self.left[k], self.right[k]]] = True
        number = np.cumsum(alive) - 1
        kept = alive[self.inputs :]
        return AdderGraph(
            self.inputs,
            number[self.left[kept]],
            number[self.right[kept]],
            self.left_shift[kept],
            self.right_shift[kept],
            self.negative[kept],
            np.where(self.source >= 0, number[self.source], -1),
            self.shift,
            self.sign,
        )

    def steps(self) -> list[Node]:
        """The nodes as Python numbers: left, right, left shift, right shift, negative."""
        columns = (self.left, self.right, self.left_shift, self.right_shift, self.negative)
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def ends(self) -> list[Term]:
        """The outputs as Python numbers: source, shift, sign."""
        return list(zip(self.source.tolist(), self.shift.tolist(), self.sign.tolist(), strict=True))

    def _bounds(self, low: ArrayLike, high: ArrayLike) -> tuple[IntArray, IntArray]:
        return checked_bounds(low, high, self.inputs)


def checked_bounds(low: ArrayLike, high: ArrayLike, inputs: int) -> tuple[IntArray, IntArray]:
    """Bounds of ``inputs`` inputs as two int64 arrays (inputs,), from arrays or scalars.

    ``AdderError`` where they are no integers, of another shape, or cross.
    """
    bounds = []
    for name, given in (("low", low), ("high", high)):
        array = np.asarray(given)
        if not np.issubdtype(array.dtype, np.integer) or array.shape not in {(), (inputs,)}:
            raise AdderError(
                f"bounds of inputs: {name} has shape {array.shape} and type {array.dtype}; "
                f"expected ({inputs},) integers, or one for all inputs"
            )
        bounds.append(np.broadcast_to(array.astype(np.int64), (inputs,)))
    for i in np.flatnonzero(bounds[0] > bounds[1])[:1]:
        raise AdderError(f"bounds of inputs: input {i} has low {bounds[0][i]} above high {bounds[1][i]}; exchange them")
    return bounds[0], bounds[1]


def checked_matrix(matrix: ArrayLike) -> IntArray:
    """A constant matrix (inputs, outputs), at least one each, as int64; ``AdderError`` unless integers below 2^56."""
    array = np.asarray(matrix)
    if array.ndim != 2 or 0 in array.shape or not np.issubdtype(array.dtype, np.integer):
        raise AdderError(
            f"matrix of shape {array.shape} and type {array.dtype}; expected integers of shape (inputs, outputs), "
            "at least one each"
        )
    most = max(int(array.max()), -int(array.min()))
    if most >= 1 << 56:
        raise AdderError(f"matrix: an entry has the magnitude {most}; expected below 2^56")
    return array.astype(np.int64)


def proved(graph: AdderGraph, matrix: ArrayLike) -> AdderGraph:
    """``graph`` itself, if it computes ``x @ matrix`` for every ``x``; else ``AdderError`` names the first difference.

    The proof is equality of integers: the outputs' coefficients against ``matrix`` (inputs, outputs).
    """
    matrix = np.asarray(matrix)
    if matrix.shape != (graph.inputs, graph.outputs):
        raise AdderError(
            f"adder graph of {graph.inputs} inputs and {graph.outputs} outputs for a matrix of shape {matrix.shape}; "
            f"expected shape ({graph.inputs}, {graph.outputs})"
        )
    for i, j in np.argwhere(graph.matrix != matrix)[:1]:
        raise AdderError(
            f"adder graph: output {j} has {graph.matrix[i, j]} times input {i}; the matrix has {matrix[i, j]}: "
            "the optimizer that made the graph is wrong"
        )
    return graph


def graph_of(inputs: int, nodes: Sequence[Node], ends: Sequence[Term]) -> AdderGraph:
    """The graph of nodes (left, right, left shift, right shift, negative) and outputs (source, shift, sign)."""
    outputs = np.array(ends, dtype=np.int64).reshape(-1, 3).T
    table = np.array(nodes, dtype=np.int64).reshape(-1, 5).T
    return AdderGraph(
        inputs, table[0], table[1], table[2], table[3], table[4].astype(bool), outputs[0], outputs[1], outputs[2]
    )


def _ranges(rows: IntArray, low: IntArray, high: IntArray, what: str) -> tuple[IntArray, IntArray]:
    """Exact ranges of linear forms ``rows`` (values, inputs) over a box; ``AdderError`` where one could reach 2^62."""
    most = np.maximum(abs(low.astype(np.float64)), abs(high.astype(np.float64)))
    reach = abs(rows.astype(np.float64)) @ most
    for v in np.flatnonzero(reach >= LIMIT)[:1]:
        raise AdderError(f"AdderGraph: {what} {v} can reach a magnitude of {reach[v]:.3g}; expected below 2^62")
    plus: IntArray = np.maximum(rows, 0)
    minus: IntArray = np.minimum(rows, 0)
    return plus @ low + minus @ high, plus @ high + minus @ low


def _apart(low: IntArray, top: IntArray, begin: IntArray) -> NDArray[np.bool_]:
    """Where an operand that is never negative ends (``top``) before the other begins: the sum is both, side by side."""
    return (low >= 0) & (top <= begin)


def _same_length(name: str, found: int, expected: int, like: str) -> None:
    if found != expected:
        raise AdderError(f"AdderGraph: {name} has {found} entries; expected {expected}, as {like} has")


def _within(name: str, array: IntArray, low: int, high: IntArray | int, what: str) -> None:
    highs = np.broadcast_to(high, array.shape)
    for k in np.flatnonzero((array < low) | (array > highs))[:1]:
        raise AdderError(f"AdderGraph: {name}[{k}] is {array[k]}; expected {low} to {highs[k]}, {what}")
