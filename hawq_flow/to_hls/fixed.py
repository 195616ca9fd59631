"""ap_fixed and ap_ufixed: the types of firmware."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from hawq_flow.numeric import IntType


@dataclass(frozen=True)
class FixedType:
    """An ap_fixed or ap_ufixed: ``bits`` in all, ``integer`` of them left of the point (below 0: all are far right)."""

    bits: int
    integer: int
    signed: bool
    rounding: str = "AP_TRN"
    overflow: str = "AP_WRAP"

    def __str__(self) -> str:
        modes = "" if (self.rounding, self.overflow) == ("AP_TRN", "AP_WRAP") else f",{self.rounding},{self.overflow},0"
        return f"ap_{'' if self.signed else 'u'}fixed<{self.bits},{self.integer}{modes}>"

    def cpp(self, backend: str) -> str:
        """The type as hls4ml writes it for a back end: Catapult has ac_fixed, of two bits at least."""
        if backend != "Catapult":
            return str(self)
        modes = "" if (self.rounding, self.overflow) == ("AP_TRN", "AP_WRAP") else f",{self.rounding},{self.overflow}"
        signed = "true" if self.signed else "false"
        return f"ac_fixed<{max(self.bits, 2)},{self.integer},{signed}{modes.replace('AP_', 'AC_')}>"

    @property
    def plain(self) -> FixedType:
        """The same numbers, without the modes that only matter where a wider number is assigned."""
        return dataclasses.replace(self, rounding="AP_TRN", overflow="AP_WRAP")

    @classmethod
    def of(cls, type: IntType, rounding: str = "AP_TRN", overflow: str = "AP_WRAP") -> FixedType:
        """Integers of ``type``."""
        return cls(type.max_bits, type.max_bits, type.signed, rounding, overflow)

    @classmethod
    def holding(cls, values: ArrayLike) -> FixedType:
        """The narrowest type holding every given dyadic number exactly (whole numbers: no fractional bits)."""
        array = np.asarray(values, dtype=np.float64).ravel()
        fraction = 0
        while not (np.ldexp(array, fraction) == np.rint(np.ldexp(array, fraction))).all():
            fraction += 1
        scaled = [int(v) for v in np.ldexp(array, fraction)]
        type = IntType.holding(min(scaled), max(scaled))
        return cls(type.max_bits, type.max_bits - fraction, type.signed)


ONE, ZERO = FixedType(1, 1, False), FixedType(1, 1, False)
