"""Ops between values, and tables: sums, differences, products, reductions, lookups.

Operands of a binary op have the same rank and broadcast as in numpy. A softmax is made of these: subtract the
maximum, look up the exponential, sum, look up the reciprocal, multiply, requantize.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hawq_flow.network.values import Binary, Nary, NetworkError, Shape, Unary, Value, declared, dims, frozen, limit
from hawq_flow.numeric import IntArray, Overflow

MAX_TABLE = 1 << 16
"""Entries a table may have: 16 bits of input."""


def _joint_shape(name: str, shapes: Sequence[Shape]) -> Shape:
    try:
        if len({len(shape) for shape in shapes}) == 1:
            return tuple(int(n) for n in np.broadcast_shapes(*shapes))
    except ValueError:
        pass
    raise NetworkError(
        f"{name}: operands of shapes {', '.join(f'({dims(shape)})' for shape in shapes)}; expected equal shapes, or "
        "ones where they differ"
    )


def _from_ends(name: str, shape: Shape, low: IntArray, high: IntArray, bound: int) -> Value:
    return declared(name, shape, low, high, bound, None, Overflow.SATURATE)


@dataclass(frozen=True, eq=False)
class Add(Nary):
    """Sum of two or more values whose scales agree: a residual connection, each branch requantized before."""

    name: str
    operands: tuple[str, ...]
    layer: str = ""
    kind: ClassVar[str] = "Add"

    def __post_init__(self) -> None:
        object.__setattr__(self, "operands", tuple(self.operands))
        if len(self.operands) < 2:
            raise NetworkError(f"{self.name}: {len(self.operands)} operands; expected two or more")

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """Shape of the result, or ``NetworkError``."""
        return _joint_shape(self.name, shapes)

    def derive(self, values: Sequence[Value]) -> Value:
        """Sums of the ends; the bound is the sum of the magnitudes."""
        shape = self.shape([x.shape for x in values])
        bound = sum(x.magnitude for x in values)
        limit(self.name, bound, "the sum", "narrow the operands")
        low, high = sum(x.low for x in values), sum(x.high for x in values)
        return _from_ends(self.name, shape, np.asarray(low), np.asarray(high), bound)


@dataclass(frozen=True, eq=False)
class _Pair(Binary):
    name: str
    left: str
    right: str
    layer: str = ""

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """Shape of the result, or ``NetworkError``."""
        return _joint_shape(self.name, shapes)


@dataclass(frozen=True, eq=False)
class Subtract(_Pair):
    """``left - right``."""

    kind: ClassVar[str] = "Subtract"

    def derive(self, values: Sequence[Value]) -> Value:
        """Differences of opposite ends; the bound is the sum of the magnitudes."""
        a, b = values
        shape = self.shape([a.shape, b.shape])
        bound = a.magnitude + b.magnitude
        limit(self.name, bound, "the difference", "narrow the operands")
        return _from_ends(self.name, shape, a.low - b.high, a.high - b.low, bound)


@dataclass(frozen=True, eq=False)
class Multiply(_Pair):
    """``left * right``, element by element."""

    kind: ClassVar[str] = "Multiply"

    def derive(self, values: Sequence[Value]) -> Value:
        """The extremes among the products of the ends; the bound is the product of the magnitudes."""
        a, b = values
        shape = self.shape([a.shape, b.shape])
        bound = max(a.magnitude * b.magnitude, a.magnitude, b.magnitude)
        limit(self.name, bound, "the product", "narrow the operands")
        products = np.stack([p * q for p in (a.low, a.high) for q in (b.low, b.high)])
        return _from_ends(self.name, shape, products.min(0), products.max(0), bound)


@dataclass(frozen=True, eq=False)
class _Reduction(Unary):
    name: str
    input: str
    axis: int = 0
    layer: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "axis", int(self.axis))

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """Shape of the result, or ``NetworkError``."""
        shape = shapes[0]
        if not 0 <= self.axis < len(shape):
            raise NetworkError(
                f"{self.name}: axis {self.axis} of a value of shape ({dims(shape)}); expected 0 to {len(shape) - 1}"
            )
        return (*shape[: self.axis], 1, *shape[self.axis + 1 :])


@dataclass(frozen=True, eq=False)
class ReduceMax(_Reduction):
    """Largest element along ``axis`` (batch excluded), which stays with length 1."""

    kind: ClassVar[str] = "ReduceMax"

    def derive(self, values: Sequence[Value]) -> Value:
        """The largest low, and the largest high."""
        x = values[0]
        shape = self.shape([x.shape])
        low, high = (end.max(axis=self.axis, keepdims=True) for end in (x.low, x.high))
        return _from_ends(self.name, shape, low, high, x.magnitude)


@dataclass(frozen=True, eq=False)
class ReduceSum(_Reduction):
    """Sum along ``axis`` (batch excluded), which stays with length 1."""

    kind: ClassVar[str] = "ReduceSum"

    def derive(self, values: Sequence[Value]) -> Value:
        """Sums of the ends; the bound is the sum of the magnitudes."""
        x = values[0]
        shape = self.shape([x.shape])
        limit(self.name, x.magnitude * x.shape[self.axis], "the sum", "narrow its input")
        reach = np.maximum(np.abs(x.low), np.abs(x.high))
        low, high, bound = (end.sum(axis=self.axis, keepdims=True) for end in (x.low, x.high, reach))
        return _from_ends(self.name, shape, low, high, int(bound.max()))


@dataclass(frozen=True, eq=False)
class Lookup(Unary):
    """``table[x - start]``: any function of one integer, exact by being written down.

    ``table`` (entries,) is int64, at most ``MAX_TABLE`` entries; every integer that x can be has one.
    ``function`` says in words what it tabulates, and ``scales``, where known, what the integers mean: scale and zero
    point of what it reads, then of what it gives (annotations).
    """

    name: str
    input: str
    table: IntArray
    start: int
    function: str = ""
    layer: str = ""
    scales: tuple[float, int, float, int] | None = None
    kind: ClassVar[str] = "Lookup"

    def __post_init__(self) -> None:
        object.__setattr__(self, "table", frozen(self.table, np.int64))
        object.__setattr__(self, "start", int(self.start))
        if self.scales is not None:
            object.__setattr__(self, "scales", tuple(self.scales))
            read, _, given, _ = self.scales
            if not all(math.isfinite(scale) and scale > 0 for scale in (read, given)):
                raise NetworkError(f"{self.name}: scales {read} and {given}; expected positive finite numbers, or none")
        if self.table.ndim != 1 or not 1 <= self.table.size <= MAX_TABLE:
            raise NetworkError(
                f"{self.name}: table of shape {self.table.shape}; expected one axis of 1 to {MAX_TABLE} entries. "
                "Requantize its input to fewer bits"
            )
        limit(self.name, int(np.abs(self.table.astype(object)).max()), "an entry of the table", "scale it down")

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """Shape of the result."""
        return shapes[0]

    def derive(self, values: Sequence[Value]) -> Value:
        """The extremes of the table over each element's interval; ``NetworkError`` where it has no entry."""
        x = values[0]
        end = self.start + self.table.size - 1
        if int(x.low.min()) < self.start or int(x.high.max()) > end:
            raise NetworkError(
                f"{self.name}: {self.input!r} ranges from {int(x.low.min())} to {int(x.high.max())}, the table from "
                f"{self.start} to {end}; give every integer an entry, or saturate its input first"
            )
        size = self.table.size
        pairs, where = np.unique((x.low - self.start) * size + (x.high - self.start), return_inverse=True)
        parts = [self.table[int(pair) // size : int(pair) % size + 1] for pair in pairs]
        low, high = (np.array([end(part) for part in parts])[where].reshape(x.shape) for end in (np.min, np.max))
        bound = max(x.magnitude, int(np.abs(self.table).max()))
        return _from_ends(self.name, x.shape, low, high, bound)
