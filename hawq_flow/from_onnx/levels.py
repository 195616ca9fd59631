"""What a quantizer *is* over the integers that reach it: the first integer of every level, in exact arithmetic.

A quantizer of an accumulator ``a`` in a proven interval computes ``clip(R(M a + beta) + outer, low, high)`` with real
``M`` > 0 and ``beta``. It is a staircase, and a staircase over integers is its thresholds: for every level q the
smallest a that reaches q. ``R(y) >= q`` holds for ``y`` above (or at) a point tau(q) that depends on the rounding:

    mode                      tau(q)                          at y = tau(q) itself
    ROUND (half to even)      q - 1/2                         reached when q is even
    FLOOR                     q                               reached
    CEIL                      q - 1                           not reached
    HALF_UP (half from 0)     q - 1/2                         reached when q > 0
    HALF_DOWN (half to 0)     q - 1/2                         reached when q <= 0
    UP (from 0)               q - 1 (q > 0), q (q <= 0)       reached when q <= 0
    DOWN (to 0)               q (q > 0), q - 1 (q <= 0)       reached when q > 0

These are the definitions of QONNX's executor (its HALF_UP is half away from zero).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hawq_flow.from_onnx.refusals import Refuse
from hawq_flow.numeric import IntArray

MOST_LEVELS = 1 << 20
"""Levels, or integers, that are written down one by one; beyond, only a scale that is dyadic already is carried."""


class Mode(enum.Enum):
    """A rounding of QONNX, by the name its files carry."""

    ROUND = "ROUND"
    FLOOR = "FLOOR"
    CEIL = "CEIL"
    HALF_UP = "HALF_UP"
    HALF_DOWN = "HALF_DOWN"
    UP = "UP"
    DOWN = "DOWN"


def threshold_points(levels: IntArray, mode: Mode) -> tuple[IntArray, NDArray[np.bool_]]:
    """(2 tau(q), whether tau itself reaches q) for every level q: int64 and bool of the shape of ``levels``."""
    q = levels
    match mode:
        case Mode.ROUND:
            return 2 * q - 1, q % 2 == 0
        case Mode.FLOOR:
            return 2 * q, np.ones(q.shape, bool)
        case Mode.CEIL:
            return 2 * q - 2, np.zeros(q.shape, bool)
        case Mode.HALF_UP:
            return 2 * q - 1, q > 0
        case Mode.HALF_DOWN:
            return 2 * q - 1, q <= 0
        case Mode.UP:
            return np.where(q > 0, 2 * q - 2, 2 * q), q <= 0
        case Mode.DOWN:
            return np.where(q > 0, 2 * q, 2 * q - 2), q > 0


def round_exactly(y: Fraction, mode: Mode) -> int:
    """``R(y)`` for one rational."""
    floor = y.numerator // y.denominator
    rest = y - floor
    match mode:
        case Mode.ROUND:
            return round(y)
        case Mode.FLOOR:
            return floor
        case Mode.CEIL:
            return floor + (rest > 0)
        case Mode.HALF_UP:
            return floor + (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and y > 0))
        case Mode.HALF_DOWN:
            return floor + (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and y < 0))
        case Mode.UP:
            return floor + (rest > 0 and y > 0)
        case Mode.DOWN:
            return floor + (rest > 0 and y < 0)


@dataclass(frozen=True)
class Target:
    """A quantizer over the integers ``first``..``last``: ``clip(R(slope * a + intercept) + outer, low, high)``.

    ``slope`` >= 0 and ``intercept`` are exact; ``low`` or ``high`` is None where nothing clips.
    """

    slope: Fraction
    intercept: Fraction
    mode: Mode
    outer: int
    low: int | None
    high: int | None
    first: int
    last: int

    def level(self, a: int) -> int:
        """The level of one integer."""
        q = round_exactly(self.slope * a + self.intercept, self.mode) + self.outer
        if self.high is not None:
            q = min(q, self.high)
        return q if self.low is None else max(q, self.low)

    @cached_property
    def span(self) -> int:
        """Highest level less lowest."""
        return self.level(self.last) - self.level(self.first)

    @cached_property
    def size(self) -> int:
        """Integers of the interval."""
        return self.last - self.first + 1

    @cached_property
    def table(self) -> IntArray:
        """The level of every integer; for few of them, whatever the levels."""
        return np.array([self.level(a) for a in range(self.first, self.last + 1)], dtype=np.int64)

    @cached_property
    def steps(self) -> tuple[IntArray, IntArray]:
        """(levels, thresholds): every level above the first integer's that is reached, and the first integer there.

        int64, ascending. A level that is jumped over has the threshold of the level jumped to.
        """
        if self.span > MOST_LEVELS:
            raise Refuse(
                f"it has {self.span + 1} levels, more than the {MOST_LEVELS} that are compared; use fewer bits"
            )
        levels = np.arange(self.level(self.first) + 1, self.level(self.last) + 1, dtype=np.int64)
        if levels.size == 0:
            return levels, levels
        twice_tau, reached = threshold_points(levels - self.outer, self.mode)
        # a >= (tau - intercept) / slope, as a quotient of whole numbers: slope = P / Q, intercept = R / S.
        p, q = self.slope.numerator, self.slope.denominator
        r, s = self.intercept.numerator, self.intercept.denominator
        numerator = (twice_tau.astype(object) * s - 2 * r) * q
        denominator = 2 * s * p
        at_or_above = -((-numerator) // denominator)
        above = numerator // denominator + 1
        return levels, np.where(reached, at_or_above, above).astype(np.int64)
