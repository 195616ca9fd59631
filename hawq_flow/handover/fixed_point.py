"""Standardization in fixed point: raw data to the network's integers with one product, one sum and one shift.

The host computes ``q = clip(rint((raw - mean) / std / scale) + zero_point)`` in float64. Firmware that is given raw
data as integers ``r = raw * 2^fraction`` can compute, element by element, ::

    q = clip((r * multiplier + offset) >> shift, low, high)

with the constants derived here. With ``step = std * scale`` (one unit of q in raw units)::

    multiplier = rint(2^(shift - fraction) / step)
    offset     = rint(2^shift * (zero_point - mean / step)) + 2^(shift - 1)

Three errors remain, in units of q, before the rounding: of the raw data's own grid, at most ``2^(-fraction-1) / step``;
of the multiplier, at most ``|r| * 2^(-shift-1)``; of the offset, at most ``2^(-shift-1)``. ``fraction`` and ``shift``
are chosen so that their sum stays below ``ERROR``: the result then differs from the host's by at most one unit, and
only where the exact quotient lies that close to the middle between two integers (a tie itself goes up, the host's to
the even one). How many elements of given data differ is counted, not guessed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hawq_flow.network import InputSpec
from hawq_flow.numeric import FloatArray, IntArray

ERROR = 2.0**-6
"""Bound of the error before rounding, in units of the network's integers."""


@dataclass(frozen=True)
class FixedPoint:
    """The constants, one for each element of an input in its flattened order: int64 (elements,).

    Attributes
    ----------
    fraction, bits:
        The raw integer is ``rint(raw * 2^fraction)``, clipped to ``bits`` in two's complement. A negative fraction
        drops low bits.
    multiplier, offset, shift:
        As in the module's docstring.
    product_bits:
        Width of ``r * multiplier + offset`` in two's complement, the largest.
    """

    spec: InputSpec
    fraction: IntArray
    bits: IntArray
    multiplier: IntArray
    offset: IntArray
    shift: IntArray
    product_bits: int

    def raw_integers(self, raw: FloatArray) -> IntArray:
        """Raw data (n, *shape) on its grids: int64 (n, elements), clipped to ``bits``."""
        flat = np.asarray(raw, dtype=np.float64).reshape(len(raw), -1)
        high = (np.int64(1) << (self.bits - 1)) - 1
        return np.clip(np.rint(np.ldexp(flat, self.fraction)), -high - 1, high).astype(np.int64)

    def integers(self, raw: FloatArray) -> IntArray:
        """What firmware with these constants gives for raw data (n, *shape): int64 (n, *shape)."""
        shape, rank = self.spec.shape, len(self.spec.shape)
        summed = ((self.raw_integers(raw) * self.multiplier + self.offset) >> self.shift).reshape(len(raw), *shape)
        return np.asarray(np.clip(summed, self.spec.type.low(rank), self.spec.type.high(rank)))


def fixed_point(spec: InputSpec) -> FixedPoint | None:
    """The constants for one input; None where 62 bits do not hold the product (a very wide input)."""
    rank = len(spec.shape)
    step, mean, zero, low, high = (
        np.broadcast_to(array, spec.shape).astype(np.float64).ravel()
        for array in (spec.std * spec.scale, spec.mean, spec.zero_point, spec.type.low(rank), spec.type.high(rank))
    )
    found: dict[str, list[int]] = {name: [] for name in ("fraction", "bits", "multiplier", "offset", "shift")}
    widest = 0
    for s, m, z, least, most in zip(step, mean, zero, low, high, strict=True):
        fraction = math.ceil(math.log2(2.0 / (ERROR * s)))  # the grid's error is at most ERROR / 4
        # Beyond these raw values the result is clipped whatever they are: one unit of room on either side.
        reach = max(abs(m + s * (least - z - 1)), abs(m + s * (most - z + 1)))
        bits = math.ceil(math.log2(math.ldexp(reach, fraction) + 1)) + 1
        shift = max(fraction, bits + math.ceil(math.log2(2.0 / ERROR)) - 1)  # |r| * 2^-(shift+1) <= ERROR / 4
        multiplier = round(math.ldexp(1.0, shift - fraction) / s)
        offset = round(math.ldexp(z - m / s, shift)) + (1 << (shift - 1))
        product = ((1 << (bits - 1)) * multiplier + abs(offset)).bit_length() + 1
        widest = max(widest, product)
        for name, value in zip(found, (fraction, bits, multiplier, offset, shift), strict=True):
            found[name].append(value)
    if widest > 62:
        return None
    arrays = {name: np.array(values, dtype=np.int64) for name, values in found.items()}
    return FixedPoint(spec, product_bits=widest, **arrays)
