"""How many bits numbers need: the narrowest ``fixed<W,I>`` that holds them, and what a given one holds.

``fixed<W,I>`` holds the multiples of ``2^-(W-I)`` from ``-2^(I-1)`` to ``2^(I-1) - 2^-(W-I)``. It is signed; hls4ml
takes one such type as the precision of everything that a file does not type through a Quant.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

MOST_BITS = 1024
"""The widest type that the C++ takes (AP_INT_MAX_W)."""


@dataclass(frozen=True)
class Need:
    """Bits left of the point, sign included, and bits right of it; either may be negative, not their sum."""

    integer: int
    fraction: int

    def __str__(self) -> str:
        return f"fixed<{max(self.integer + self.fraction, 1)},{self.integer}>"

    def within(self, other: Need) -> bool:
        """Whether ``other`` holds all that this one holds."""
        return self.integer <= other.integer and self.fraction <= other.fraction

    @classmethod
    def read(cls, text: str) -> Need:
        """The type that ``fixed<W,I>`` or ``ap_fixed<W,I>`` names; else ``ValueError``."""
        match = re.fullmatch(r"(?:ap_)?fixed<\s*(\d+)\s*,\s*(-?\d+)\s*>", text)
        if match is None or int(match[1]) < 1:
            raise ValueError(f"precision {text!r}; expected fixed<W,I>, a signed type such as hls4ml's fixed<16,6>")
        return cls(int(match[2]), int(match[1]) - int(match[2]))

    @classmethod
    def of(cls, values: ArrayLike) -> Need | None:
        """What holds every given number exactly; None where one is not finite."""
        array = np.asarray(values, dtype=np.float64).ravel()
        if not np.isfinite(array).all():
            return None
        nonzero = array[array != 0]
        low, high = (float(array.min()), float(array.max())) if array.size else (0.0, 0.0)
        return cls(integer_bits(low, high), int(fraction_bits(nonzero).max(initial=-1074)) if nonzero.size else 0)

    @classmethod
    def together(cls, needs: Iterable[Need]) -> Need:
        """What holds all that each of them holds."""
        every = list(needs)
        return cls(max(need.integer for need in every), max(need.fraction for need in every))


def fraction_bits(values: ArrayLike) -> NDArray[np.int64]:
    """The place of the lowest set bit of each number: the least f such that ``v * 2^f`` is whole. Zeros give -1074."""
    array = np.asarray(values, dtype=np.float64)
    mantissa, exponent = np.frexp(array)
    whole = np.abs(np.ldexp(mantissa, 53)).astype(np.int64)
    lowest = np.log2(np.maximum(whole & -whole, 1)).astype(np.int64)
    return np.where(whole == 0, -1074, 53 - exponent.astype(np.int64) - lowest)


def integer_bits(low: float, high: float) -> int:
    """The least I such that every number from ``low`` to ``high`` lies in ``[-2^(I-1), 2^(I-1))``."""
    bits = -1074
    for bound, open_end in ((low, False), (high, True)):
        if bound < 0:
            mantissa, exponent = math.frexp(-bound)
            bits = max(bits, exponent + (0 if mantissa == 0.5 else 1))
        elif bound > 0 and open_end:
            bits = max(bits, math.frexp(bound)[1] + 1)
    return bits if bits > -1074 else 1


def is_power_of_two(value: float) -> bool:
    """Whether a number is 2^e for a whole e of any sign; negative numbers are not."""
    return math.isfinite(value) and math.frexp(value)[0] == 0.5
