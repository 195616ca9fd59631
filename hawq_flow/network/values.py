"""What is derived of a value of the network, and the checks and proofs that every op shares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hawq_flow.numeric import IntArray, IntType, Overflow

Shape = tuple[int, ...]
LIMIT = 1 << 62
"""No intermediate may reach this magnitude: int64 with one bit to spare."""


class NetworkError(ValueError):
    """A network that is malformed, or whose integers could overflow; the text says where, what and how to fix it."""


def frozen(values: Any, dtype: type) -> NDArray[Any]:
    """A read-only C-ordered copy of ``values``; integers must be given as integers (floats are refused, not cut)."""
    array = np.asarray(values)
    if dtype is np.int64 and array.dtype.kind not in "iub":
        raise NetworkError(
            f"integers expected, found an array of {array.dtype}; round explicitly before building the op"
        )
    result: NDArray[Any] = np.array(array, dtype=dtype, order="C")
    result.flags.writeable = False
    return result


@dataclass(frozen=True)
class Value:
    """What is derived of one value: shape, element-wise interval (int64), type, and the bound on intermediates."""

    shape: Shape
    low: IntArray
    high: IntArray
    type: IntType
    bound: int

    @property
    def magnitude(self) -> int:
        """Largest absolute value an element can take."""
        return max(abs(int(self.low.min())), abs(int(self.high.max())))


def dims(shape: Shape) -> str:
    """A shape in an error's words."""
    return ", ".join(map(str, shape))


def broadcast(array: NDArray[Any], shape: Shape, where: str) -> None:
    """``NetworkError`` unless ``array`` broadcasts over a value of ``shape``."""
    try:
        fits = np.broadcast_shapes(array.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits or array.size == 0:
        raise NetworkError(
            f"{where} of shape {array.shape} does not broadcast over a value of shape ({dims(shape)}); "
            "give a scalar, or one entry per channel shaped (channels, 1, ...)"
        )


def channels(type: IntType, shape: Shape, where: str) -> None:
    """``NetworkError`` unless a type per channel has as many widths as the value has channels."""
    if not isinstance(type.bits, int) and (not shape or len(type.bits) != shape[0]):
        raise NetworkError(
            f"{where}: type {type} has {len(type.widths)} channel widths for a value of shape ({dims(shape)}); "
            "give one width, or one for each channel of axis 0"
        )


def modulus(type: IntType, overflow: Overflow, where: str) -> None:
    """``NetworkError`` for wrapping into a narrow type."""
    if overflow is Overflow.WRAP and type.narrow:
        raise NetworkError(f"{where}: wraps into {type}; a narrow type has no modulus. Saturate, or use the full type")


def limit(name: str, bound: int, what: str, fix: str) -> None:
    """``NetworkError`` when ``bound`` reaches ``LIMIT``."""
    if bound >= LIMIT:
        raise NetworkError(
            f"{name}: {what} may reach {bound} (2^{bound.bit_length() - 1} or more), beyond the 2^62 that int64 "
            f"carries safely; {fix}"
        )


def declared(
    name: str, shape: Shape, low: IntArray, high: IntArray, bound: int, type: IntType | None, overflow: Overflow
) -> Value:
    """A value whose interval is cut to a declared type, or typed by its interval when there is none."""
    low, high = np.broadcast_to(low, shape), np.broadcast_to(high, shape)
    if type is None:
        least, most = int(low.min()), int(high.max())
        if least < -(LIMIT >> 1) or (least < 0 and most >= LIMIT >> 1):
            raise NetworkError(
                f"{name}: sums from {least} to {most} need a signed type of 63 bits; the widest has 62. Narrow the "
                "weights, the input or the bias"
            )
        return Value(shape, low, high, IntType.holding(least, most), bound)
    channels(type, shape, name)
    rank = len(shape)
    floor, ceiling = np.broadcast_to(type.low(rank), shape), np.broadcast_to(type.high(rank), shape)
    if overflow is Overflow.SATURATE:
        return Value(shape, np.clip(low, floor, ceiling), np.clip(high, floor, ceiling), type, bound)
    # An interval that stays inside keeps its ends; one that leaves may come out anywhere in the type.
    inside = (low >= floor) & (high <= ceiling)
    low, high = np.where(inside, low, floor), np.where(inside, high, ceiling)
    # A wrapped value can be larger than what was wrapped: -1 becomes 2^bits - 1.
    return Value(shape, low, high, type, max(bound, -int(low.min()), int(high.max())))


def dot_interval(
    weight: IntArray, bias: IntArray, low: IntArray, high: IntArray, name: str
) -> tuple[IntArray, IntArray, int]:
    """Interval of ``weight @ x + bias`` for x between ``low`` and ``high``, and the bound on partial sums in any order.

    Parameters
    ----------
    weight, bias:
        int64 (outputs, n) and (outputs,).
    low, high:
        int64 (n, positions).

    Returns
    -------
    low and high (outputs, positions), int64, and the largest ``|weight| @ max(|low|, |high|) + |bias|``.

    Raises
    ------
    NetworkError
        If a partial sum may reach ``LIMIT``.
    """
    dtype: Any = np.float64
    low_, high_, bound = _dot_interval(weight, bias, low, high, dtype)
    if bound.max() < 1 << 52:  # float64 held every partial sum exactly, so the sums are what they seem
        return low_.astype(np.int64), high_.astype(np.int64), int(bound.max())
    # Near the limit only Python's unbounded integers are safe; far from it int64 cannot wrap.
    dtype = np.int64 if bound.max() < LIMIT / 2 else object
    low_, high_, bound = _dot_interval(weight, bias, low, high, dtype)
    largest = int(bound.max())
    limit(name, largest, "a partial sum", "narrow the weights, the input or the bias")
    return low_.astype(np.int64), high_.astype(np.int64), largest


def _dot_interval(
    weight: IntArray, bias: IntArray, low: IntArray, high: IntArray, dtype: Any
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    positive, negative = np.maximum(weight, 0).astype(dtype), np.minimum(weight, 0).astype(dtype)
    b = bias.astype(dtype)[:, None]
    x_high = high.astype(dtype)
    up, down = positive @ x_high, negative @ x_high
    if not low.any():  # behind a ReLU, most often: half the work
        return down + b, up + b, up - down + abs(b)
    x_low = low.astype(dtype)
    reach = np.maximum(abs(x_low), abs(x_high))
    magnitude = (positive - negative) @ reach + abs(b)
    return positive @ x_low + down + b, up + negative @ x_low + b, magnitude


def same_width(x: Value) -> IntType:
    """The type of ``x`` with one width, its widest, when its channels have several: for ops that move channels."""
    bits = x.type.bits
    return x.type if isinstance(bits, int) else IntType(max(bits), x.type.signed, x.type.narrow)


def joint_type(name: str, values: Sequence[Value]) -> IntType:
    """The type of values put together: theirs when they agree, else the narrowest that holds all their types."""
    types = [same_width(value) for value in values]
    if all(type == types[0] for type in types):
        return types[0]
    low, high = min(type.range[0] for type in types), max(type.range[1] for type in types)
    if low < 0 and high >= LIMIT >> 1:
        raise NetworkError(
            f"{name}: operands of types {', '.join(map(str, types))} need a signed type of 63 bits together; the "
            "widest has 62. Requantize the unsigned ones to fewer bits"
        )
    return IntType.holding(low, high)


class Unary:
    """An op of one operand, its field ``input``."""

    input: str

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the operands."""
        return (self.input,)


class Binary:
    """An op of two operands, its fields ``left`` and ``right``."""

    left: str
    right: str

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the operands."""
        return (self.left, self.right)


class Nary:
    """An op of any number of operands, its field ``operands``."""

    operands: tuple[str, ...]

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the operands."""
        return self.operands
