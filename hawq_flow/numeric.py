"""Integer arithmetic: types, dyadic scales, rounding and requantization. Nothing else, and numpy only.

The maths. A quantized value is an integer ``q`` with a real meaning ``S * (q - z)``. Passing from one scale to
another multiplies by a ratio of scales, and in integer-only inference (HAWQ-v3, arXiv:2011.10680) that ratio is
*dyadic*, ``M = m / 2^c`` with integers ``m`` and ``c``, so that it costs one integer product and one shift::

    requantize(a) = clip(round(a * m / 2^c) + z, min, max)

``round`` is one of

* ``HALF_EVEN``: to nearest, ties to the even neighbour (IEEE 754, numpy.rint, AP_RND_CONV, QONNX ROUND);
* ``FLOOR``: toward minus infinity, the plain arithmetic right shift (AP_TRN);
* ``HALF_UP``: add a half, then floor: ties toward plus infinity (AP_RND), the cheapest rounding in hardware.

``clip`` saturates; with ``Overflow.WRAP`` the value is taken modulo 2^bits instead, as a register would.

Everything here is exact in int64 provided ``|a * m| + 2^c < 2^63``, which callers prove by intervals
(``network.verify``) and :func:`requantize` checks on the data it is given.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

MAX_SHIFT = 61
"""Largest right shift: 2^61 plus any product below 2^62 stays inside int64."""


class Rounding(enum.Enum):
    """How ``a * m / 2^c`` becomes an integer; see the module's docstring."""

    HALF_EVEN = "half_even"
    FLOOR = "floor"
    HALF_UP = "half_up"


class Overflow(enum.Enum):
    """What happens to a value outside its type: clip to the nearest bound, or wrap modulo 2^bits."""

    SATURATE = "saturate"
    WRAP = "wrap"


@dataclass(frozen=True)
class IntType:
    """A range of integers held in two's complement (or plain binary, unsigned).

    Attributes
    ----------
    bits:
        Width, 1 to 62: one int, or a tuple with one width for each channel (axis 0 of the value it types).
    signed:
        Whether negative values are held; a signed type needs at least 2 bits when narrow.
    narrow:
        Signed only: leave out the most negative value, so that the range is symmetric about zero.

    Examples
    --------
    >>> IntType(4, signed=True, narrow=True).range
    (-7, 7)
    >>> str(IntType(6, signed=False))
    'uint6'
    """

    bits: int | tuple[int, ...]
    signed: bool
    narrow: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.bits, list):
            object.__setattr__(self, "bits", tuple(self.bits))
        widths = self.widths
        least = 2 if self.signed and self.narrow else 1
        for width in widths:
            if isinstance(width, bool) or not isinstance(width, int) or not least <= width <= 62:
                raise ValueError(f"IntType: width {width!r}; expected an integer from {least} to 62")
        if not widths:
            raise ValueError("IntType: no widths; expected one, or one for each channel")
        if self.narrow and not self.signed:
            raise ValueError(
                "IntType: narrow holds for signed types only; an unsigned range has no spare value to drop"
            )

    @property
    def widths(self) -> tuple[int, ...]:
        """The width of every channel; one entry when the type is uniform."""
        return self.bits if isinstance(self.bits, tuple) else (self.bits,)

    @property
    def uniform(self) -> bool:
        """Whether one width serves all channels."""
        return len(set(self.widths)) == 1

    @property
    def max_bits(self) -> int:
        """The widest channel's width."""
        return max(self.widths)

    def _bound(self, rank: int, low: bool) -> IntArray:
        if low:
            values = [-(1 << (w - 1)) + int(self.narrow) if self.signed else 0 for w in self.widths]
        else:
            values = [(1 << (w - int(self.signed))) - 1 for w in self.widths]
        bound = np.array(values, dtype=np.int64)
        return bound.reshape(()) if isinstance(self.bits, int) else bound.reshape((-1,) + (1,) * (rank - 1))

    def low(self, rank: int = 1) -> IntArray:
        """Smallest value(s), int64, broadcastable over a value of ``rank`` axes (channels first, batch excluded)."""
        return self._bound(rank, True)

    def high(self, rank: int = 1) -> IntArray:
        """Largest value(s), int64, broadcastable over a value of ``rank`` axes (channels first, batch excluded)."""
        return self._bound(rank, False)

    @property
    def range(self) -> tuple[int, int]:
        """(min, max) over all channels."""
        return int(self.low().min()), int(self.high().max())

    def contains(self, values: ArrayLike, rank: int = 1) -> bool:
        """Whether every value (an integer array whose last ``rank`` axes are the typed value's) lies in the range."""
        array = np.asarray(values)
        return bool(((array >= self.low(rank)) & (array <= self.high(rank))).all())

    @classmethod
    def holding(cls, low: int, high: int) -> IntType:
        """The narrowest type holding every integer from ``low`` to ``high``; unsigned when ``low`` >= 0.

        >>> IntType.holding(-8, 7), IntType.holding(0, 255)
        (IntType(bits=4, signed=True, narrow=False), IntType(bits=8, signed=False, narrow=False))
        """
        low, high = int(low), int(high)
        if low > high:
            raise ValueError(f"IntType.holding: low {low} is above high {high}; give the smaller bound first")
        if low >= 0:
            return cls(max(1, high.bit_length()), signed=False)
        return cls(max((-low - 1).bit_length(), high.bit_length() if high > 0 else 0) + 1, signed=True)

    def __str__(self) -> str:
        width = str(self.bits) if isinstance(self.bits, int) else f"[{','.join(map(str, self.widths))}]"
        return f"{'int' if self.signed else 'uint'}{width}{'n' if self.narrow else ''}"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON form."""
        return {
            "bits": self.bits if isinstance(self.bits, int) else list(self.bits),
            "signed": self.signed,
            "narrow": self.narrow,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> IntType:
        """Read :meth:`to_dict`'s form back."""
        bits = data["bits"]
        return cls(tuple(bits) if isinstance(bits, list) else bits, data["signed"], data["narrow"])


@dataclass(frozen=True)
class Dyadic:
    """The number ``multiplier / 2^shift`` in lowest terms (an odd multiplier, or shift 0): the only form of a scale.

    >>> Dyadic(12, 4)
    Dyadic(multiplier=3, shift=2)
    """

    multiplier: int
    shift: int

    def __post_init__(self) -> None:
        multiplier, shift = int(self.multiplier), int(self.shift)
        if shift < 0:
            raise ValueError(f"Dyadic: shift {shift}; expected 0 or more (a left shift is part of the multiplier)")
        while shift and multiplier % 2 == 0:
            multiplier, shift = multiplier // 2, shift - 1
        if shift > MAX_SHIFT:
            raise ValueError(
                f"Dyadic: shift {shift} in lowest terms; expected at most {MAX_SHIFT}. The ratio of scales is "
                "too small to be carried in 64 bits: check the scales it comes from"
            )
        object.__setattr__(self, "multiplier", multiplier)
        object.__setattr__(self, "shift", shift)

    @property
    def value(self) -> float:
        """The number as a float, exact while the multiplier has at most 53 bits."""
        return math.ldexp(self.multiplier, -self.shift)

    @classmethod
    def nearest(cls, value: float, bits: int) -> Dyadic:
        """The dyadic number nearest to ``value`` > 0 whose multiplier has at most ``bits`` bits (ties to even).

        The relative error is at most 2^-bits. ``ValueError`` when ``value`` is not positive and finite, is
        too large for the multiplier (>= 2^bits - 1/2) or needs a shift above ``MAX_SHIFT``.
        """
        if not 1 <= bits <= 31:
            raise ValueError(f"Dyadic.nearest: multiplier of {bits} bits; expected 1 to 31")
        if not (math.isfinite(value) and value > 0):
            raise ValueError(
                f"Dyadic.nearest: value {value!r}; expected a positive finite ratio of scales (a dead layer or a "
                "constant activation has scale 0: check the observer)"
            )
        _mantissa, exponent = math.frexp(value)  # value = mantissa * 2^exponent, 1/2 <= mantissa < 1
        shift = max(0, bits - exponent)
        multiplier = round(math.ldexp(value, shift))  # ldexp is exact; round is half to even
        if multiplier >= 1 << bits and shift > 0:  # rounded up to 2^bits: the same number with one bit less of shift
            multiplier, shift = multiplier // 2, shift - 1
        if multiplier >= 1 << bits:
            raise ValueError(
                f"Dyadic.nearest: value {value:g} needs a multiplier of more than {bits} bits; "
                f"the largest representable is {(1 << bits) - 1}. Raise the multiplier's bits"
            )
        return cls(multiplier, shift)


def nearest_dyadic(values: ArrayLike, bits: int) -> tuple[IntArray, IntArray]:
    """:meth:`Dyadic.nearest` over an array: (multipliers, shifts), int64, of the shape of ``values``."""
    array = np.asarray(values, dtype=np.float64)
    pairs = [Dyadic.nearest(float(value), bits) for value in array.ravel()]
    return (
        np.array([pair.multiplier for pair in pairs], dtype=np.int64).reshape(array.shape),
        np.array([pair.shift for pair in pairs], dtype=np.int64).reshape(array.shape),
    )


def shift_round(product: ArrayLike, shift: ArrayLike, rounding: Rounding) -> IntArray:
    """``product / 2^shift`` rounded, exactly, in int64. ``shift`` (0..61) broadcasts against ``product``."""
    p = np.asarray(product, dtype=np.int64)
    s = np.asarray(shift, dtype=np.int64)
    if rounding is Rounding.FLOOR:
        return np.asarray(p >> s)
    half = np.where(s > 0, np.int64(1) << np.maximum(s - 1, 0), 0)
    if rounding is Rounding.HALF_UP:
        return np.asarray((p + half) >> s)
    # Half to even: add one less than a half, plus the bit that would become the lowest one. s = 0 adds nothing.
    odd = (p >> s) & 1
    return np.asarray((p + np.where(s > 0, half - 1 + odd, 0)) >> s)


def overflow_to(values: ArrayLike, type: IntType, overflow: Overflow, rank: int = 1) -> IntArray:
    """``values`` brought into ``type`` by saturation or by wrapping modulo 2^bits."""
    array = np.asarray(values, dtype=np.int64)
    low, high = type.low(rank), type.high(rank)
    if overflow is Overflow.SATURATE:
        return np.asarray(np.clip(array, low, high))
    if type.narrow:
        raise ValueError(f"wrap into {type}: a narrow type has no modulus; wrap into the full type, or saturate")
    return np.asarray(low + np.mod(array - low, high - low + 1))


def requantize(
    acc: ArrayLike,
    multiplier: ArrayLike,
    shift: ArrayLike,
    offset: ArrayLike,
    rounding: Rounding,
    type: IntType,
    overflow: Overflow = Overflow.SATURATE,
    *,
    rank: int = 1,
) -> IntArray:
    """``overflow(round(acc * multiplier / 2^shift) + offset)`` in exact int64: the meaning of the IR's Requantize.

    Parameters
    ----------
    acc:
        Integers whose last ``rank`` axes are the value's (channels first), any leading batch axes.
    multiplier, shift, offset:
        Integers, broadcastable against the value.
    rank:
        Axes of the value, batch excluded; places a per-channel ``type``.

    Raises
    ------
    OverflowError
        If a product plus its rounding half, or a result plus its offset, does not fit int64 on this data.
    """
    a = np.asarray(acc, dtype=np.int64)
    m = np.asarray(multiplier, dtype=np.int64)
    s = np.asarray(shift, dtype=np.int64)
    z = np.asarray(offset, dtype=np.int64)
    if a.size and m.size and s.size and z.size:
        product = max(abs(int(a.min())), abs(int(a.max()))) * int(np.abs(m).max())
        largest = max(product + (1 << int(s.max())), (product >> int(s.min())) + 1 + int(np.abs(z).max()))
        if largest >= 1 << 63:
            raise OverflowError(
                f"requantize: |acc * multiplier| + 2^shift, or the result plus the offset, may reach {largest}, "
                "beyond int64; use a multiplier of fewer bits"
            )
    return overflow_to(shift_round(a * m, s, rounding) + z, type, overflow, rank)


def quantize(values: ArrayLike, scale: ArrayLike, zero_point: ArrayLike, type: IntType, *, rank: int = 1) -> IntArray:
    """``clip(rint(values / scale) + zero_point)``: the one float64 function by which real numbers become integers.

    Parameters
    ----------
    values:
        Real numbers, shape (..., *value) with ``rank`` value axes; converted to float64 first.
    scale, zero_point:
        Positive float64 and integer, broadcastable against the value.

    Raises
    ------
    ValueError
        If a value is NaN (infinities saturate), or a scale is not positive and finite.
    """
    x = np.asarray(values, dtype=np.float64)
    s = np.asarray(scale, dtype=np.float64)
    if not (np.isfinite(s).all() and (s > 0).all()):
        raise ValueError(f"quantize: scale {s.tolist()}; expected positive and finite")
    if np.isnan(x).any():
        raise ValueError(
            f"quantize: {int(np.isnan(x).sum())} of {x.size} values are NaN; NaN has no integer. Clean the data first"
        )
    low, high = type.low(rank), type.high(rank)
    with np.errstate(over="ignore"):  # a quotient beyond float64 is infinite, and saturates
        q = np.rint(x / s) + np.asarray(zero_point, dtype=np.float64)
    # float64 rounds bounds beyond 2^53 (the upper one up), so they are met once more as integers.
    integers = np.clip(q, low.astype(np.float64), high.astype(np.float64)).astype(np.int64)
    return np.asarray(np.clip(integers, low, high))


def dequantize(values: ArrayLike, scale: ArrayLike, zero_point: ArrayLike = 0) -> FloatArray:
    """``scale * (values - zero_point)`` in float64."""
    return np.asarray(
        np.asarray(scale, np.float64) * (np.asarray(values, np.float64) - np.asarray(zero_point, np.float64))
    )


def significant_bits(values: ArrayLike) -> IntArray:
    """Bits from the highest set bit to the lowest set bit of each |value| (0 for 0): what a float mantissa must hold.

    >>> significant_bits([0, 1, 6, 5 << 40]).tolist()
    [0, 1, 2, 3]
    """
    v = np.asarray(values, dtype=np.int64)
    odd = np.abs(v) // np.maximum(v & -v, 1)  # v & -v is the lowest set bit
    return np.asarray(np.searchsorted(np.int64(1) << np.arange(63), odd, side="right"), dtype=np.int64)


def lossless_float(bound: int) -> np.dtype[Any] | None:
    """The narrowest float holding all integers up to ``bound``: float32 (below 2^24), float64 (below 2^53), or None."""
    if bound < 1 << 24:
        return np.dtype(np.float32)
    if bound < 1 << 53:
        return np.dtype(np.float64)
    return None
