"""The simplest integer rescale with the same thresholds as a real one: how any scale is carried exactly.

The IR rounds ``(a + B) * m / 2^c``; a file's quantizer rounds ``M a + beta`` with arbitrary real M and beta. Over the
integers of a proven interval only the thresholds matter (``levels``): a level's first integer t and its predecessor
t - 1 must come out on its two sides. For a fixed B each threshold is two linear inequalities in the slope,

    (t + B) * s >= y(q)        (t - 1 + B) * s < y(q)        y(q) = q - offset - 1/2, or q - offset for FLOOR

(at equality by the rounding's rule). All of them together say that s lies in one interval, whose ends are found
exactly, and the simplest dyadic number in it is found by raising the shift until a multiplier fits. M itself is in the
interval for the true bias, so what limits the search is only what a file can hold: multipliers and biases of 24
significant bits (float32 initializers), products below 2^61.

Three forms are tried, the plainest first:

1. one Requantize, with an integer bias in units of the accumulator;
2. the accumulator times 2^k plus a bias (a bias finer than the accumulator), then the Requantize;
3. as either, with the multiplier split in two factors of at most 24 bits each: ``* m1`` exactly, then ``* m2 / 2^c``.

What comes out is checked against the thresholds in int64 before it is believed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from hawq_flow.from_onnx.levels import MOST_LEVELS, Mode, Target
from hawq_flow.from_onnx.refusals import Refuse
from hawq_flow.network import MAX_TABLE
from hawq_flow.numeric import MAX_SHIFT, IntArray, Rounding, shift_round, significant_bits

CONSTANT_BITS = 24
"""Significant bits of a constant: a float32 initializer's."""
LARGEST = 1 << 61
"""No product of a search may reach this: below the IR's 2^62, with room for the rounding's half."""
FINEST = 24
"""Largest k of a bias in units of 2^-k accumulators."""
_SAME = {
    (Mode.ROUND, Rounding.HALF_EVEN),
    (Mode.FLOOR, Rounding.FLOOR),
    (Mode.FLOOR, Rounding.HALF_UP),
}
"""A file's rounding that an IR's is for every real number, but for an addend (floor(y) is half up of y - 1/2)."""
_FACTORS = 1 << 16
"""First factors tried when a multiplier is split."""


@dataclass(frozen=True)
class Fit:
    """``round(((a + bias) * 2^fine + extra) * factor * multiplier / 2^shift) + offset``, all integers.

    ``fine`` = ``extra`` = 0 and ``factor`` = 1 in the plain form.
    """

    bias: int
    fine: int
    extra: int
    factor: int
    multiplier: int
    shift: int
    offset: int
    rounding: Rounding

    def __call__(self, a: IntArray) -> IntArray:
        """The levels before clipping, int64."""
        inner = ((a + self.bias) * (1 << self.fine) + self.extra) * self.factor
        return np.asarray(shift_round(inner * self.multiplier, self.shift, self.rounding) + self.offset)


@dataclass(frozen=True)
class _End:
    """One end of the interval of slopes: a bound, and whether the bound itself is allowed."""

    value: Fraction
    allowed: bool


def _tightest(numerator: IntArray, denominator: IntArray, allowed: IntArray, lower: bool) -> _End | None:
    """The largest (or smallest) of quotients of positive integers, exactly; a strict one wins among equals."""
    if numerator.size == 0:
        return None
    ratio = numerator / denominator
    near = ratio >= ratio.max() * (1 - 1e-12) if lower else ratio <= ratio.min() * (1 + 1e-12)
    triples = {
        (int(n), int(d), bool(k)) for n, d, k in zip(numerator[near], denominator[near], allowed[near], strict=True)
    }
    ends = [(Fraction(n, d), k) for n, d, k in triples]
    best = max(v for v, _ in ends) if lower else min(v for v, _ in ends)
    return _End(best, all(k for v, k in ends if v == best))


def _hull(x: IntArray, y: IntArray, among: NDArray[np.bool_], sign: int) -> IntArray:
    """Places of the points on the upper (``sign`` 1) or lower (-1) hull of ascending points, with few others."""
    places = np.flatnonzero(among)
    if not places.size or int(np.ptp(x[places])).bit_length() + int(np.ptp(y[places])).bit_length() > 60:
        return places
    while True:
        u, v = x[places], y[places]
        # A point strictly on the inner side of its neighbours' chord is none of the hull.
        turn = (u[1:-1] - u[:-2]) * (v[2:] - v[:-2]) - (v[1:-1] - v[:-2]) * (u[2:] - u[:-2])
        inner = sign * turn > 0
        if not inner.any():
            return places
        places = places[np.concatenate([[True], ~inner, [True]])]


@dataclass(frozen=True)
class _Staircase:
    """Levels with the first integer of each, int64, and which side of each step is a condition.

    The level below the first integer's and the one above the last integer's bound the ends that no clip hides.
    """

    levels: IntArray
    thresholds: IntArray
    reach: NDArray[np.bool_]
    stay: NDArray[np.bool_]

    @classmethod
    @lru_cache(maxsize=4096)
    def of(cls, target: Target) -> _Staircase:
        levels, thresholds = target.steps
        low, high = target.level(target.first), target.level(target.last)
        below = [(low, target.first)] if target.low != low else []
        above = [(high + 1, target.last + 1)] if target.high != high else []
        ends = [np.array(end, dtype=np.int64).reshape(-1, 2) for end in (below, above)]
        every = np.concatenate([ends[0], np.stack([levels, thresholds], axis=1), ends[1]])
        place = np.arange(len(every))
        return cls(every[:, 0], every[:, 1], place < len(every) - len(above), place >= len(below))

    @cached_property
    def binding(self) -> _Staircase:
        """The steps that can bind: those on the convex hull of the points (integer, level), for each side.

        A line passes above all first integers when it passes above their upper hull, and below all predecessors when it
        passes below their lower hull; points inside are implied. Points on the hull's edges stay: their ties differ.
        """
        at, before = (
            _hull(self.thresholds, self.levels, self.reach, 1),
            _hull(self.thresholds, self.levels, self.stay, -1),
        )
        both = np.concatenate([at, before])
        side = np.arange(len(both)) < len(at)
        return _Staircase(self.levels[both], self.thresholds[both], side, ~side)


def slopes(
    steps: _Staircase, scale: int, extra: int, offset: int, rounding: Rounding
) -> tuple[_End, _End | None] | None:
    """The interval of slopes s with which ``round((scale * a + extra) * s) + offset`` has these thresholds.

    Returns
    -------
    (lower end, upper end or None when unbounded), or None when no slope does. The lower end is 0 or more.
    """
    q = steps.levels - offset
    twice = 2 * q if rounding is Rounding.FLOOR else 2 * q - 1  # 2 y(q)
    reached = q % 2 == 0 if rounding is Rounding.HALF_EVEN else np.ones(q.shape, bool)  # whether y(q) itself rounds up
    at, before = scale * steps.thresholds + extra, scale * (steps.thresholds - 1) + extra
    reach, stay = steps.reach, steps.stay
    up, down, zero = twice > 0, twice < 0, twice == 0
    # At y = 0 the integer's sign alone decides; a positive y needs a positive integer, a negative y a negative one.
    if (at[reach & zero] < 0).any() or (before[stay & zero] >= 0).any():
        return None
    if (at[reach & up] <= 0).any() or (before[stay & down] >= 0).any():
        return None
    # at:      s >= y / at (y > 0);          s <= |y| / |at| where at < 0 (y < 0)
    # before:  s < y / before where before > 0 (y > 0);   s > |y| / |before| (y < 0)
    low_at, low_before = reach & up, stay & down
    high_before, high_at = stay & up & (before > 0), reach & down & (at < 0)
    lower = _tightest(
        np.concatenate([twice[low_at], -twice[low_before]]),
        np.concatenate([2 * at[low_at], -2 * before[low_before]]),
        np.concatenate([reached[low_at], ~reached[low_before]]),
        lower=True,
    )
    upper = _tightest(
        np.concatenate([twice[high_before], -twice[high_at]]),
        np.concatenate([2 * before[high_before], -2 * at[high_at]]),
        np.concatenate([~reached[high_before], reached[high_at]]),
        lower=False,
    )
    lower = lower or _End(Fraction(0), False)
    if upper and (lower.value > upper.value or (lower.value == upper.value and not (lower.allowed and upper.allowed))):
        return None
    return lower, upper


def _multipliers(lower: _End, upper: _End | None, shift: int) -> tuple[int, int | None]:
    """Smallest and largest whole m with m / 2^shift in the interval (they may cross: then there is none)."""
    p, q = lower.value.numerator << shift, lower.value.denominator
    least = -(-p // q) if lower.allowed else p // q + 1
    if upper is None:
        return least, None
    p, q = upper.value.numerator << shift, upper.value.denominator
    return least, p // q if upper.allowed else -(-p // q) - 1


def _bits(value: int) -> int:
    return int(significant_bits(np.int64(value))) if abs(value) < 1 << 62 else value.bit_length()


def simplest(
    lower: _End, upper: _End | None, wanted: Fraction, magnitude: int, split: bool = False
) -> tuple[int, int, int] | None:
    """The simplest dyadic slope of an interval, (factor, multiplier, shift) with factor 1 unless ``split``.

    The smallest shift that has a multiplier; among several (shift 0 only) the one nearest to ``wanted``.

    Parameters
    ----------
    magnitude:
        Largest integer it multiplies: the product must stay below ``LARGEST``.
    split:
        Allow multipliers of up to 48 bits that are a product of two of 24 bits.
    """
    for shift in range(MAX_SHIFT + 1):
        least, most = _multipliers(lower, upper, shift)
        if least * magnitude >= LARGEST or (1 << shift) >= LARGEST:
            return None
        if most is not None and least > most:
            continue
        near = max(least, round(wanted * (1 << shift)))
        m = near if most is None else min(near, most)
        if _bits(m) <= CONSTANT_BITS and m * magnitude < LARGEST:
            return 1, m, shift
        if split and most is not None:
            most = min(most, LARGEST // max(magnitude, 1))
            factor = np.arange(3, _FACTORS, 2, dtype=np.int64)
            second = most // factor
            good = (second * factor >= least) & (significant_bits(second) <= CONSTANT_BITS)
            if good.any():
                first = int(np.argmax(good))
                return int(factor[first]), int(second[first]), shift
    return None


def _lead(mode: Mode, rounding: Rounding) -> Fraction:
    """What is added to y so that the IR's rounding steps where the file's does, up to what happens at ties."""
    later = {Mode.FLOOR: Fraction(1), Mode.DOWN: Fraction(1), Mode.CEIL: Fraction(0), Mode.UP: Fraction(0)}
    file = later.get(mode, Fraction(1, 2))
    return (Fraction(1) if rounding is Rounding.FLOOR else Fraction(1, 2)) - file


def _biases(target: Target, inner: int, rounding: Rounding) -> Iterator[tuple[Fraction, int]]:
    """(true bias in accumulators, offset after rounding): the zero point outside of the rounding, then inside."""
    lead = _lead(target.mode, rounding)
    for moved in dict.fromkeys((inner, 0)):
        yield (target.intercept + lead - moved) / target.slope, target.outer + moved


def fit(target: Target, rounding: Rounding, inner: int = 0, *, plain: bool = False) -> Fit | None:
    """The plainest integer rescale with exactly the thresholds of ``target``, or None.

    Parameters
    ----------
    rounding:
        The IR's rounding; any of them can carry most modes of the file.
    inner:
        A zero point inside ``target.intercept``, which may be added after the rounding instead.
    plain:
        Only the first form of the module's docstring.
    """
    if target.slope == 0 or target.level(target.first) == target.level(target.last):
        return Fit(0, 0, 0, 1, 0, 0, target.level(target.first), rounding)
    same = (target.mode, rounding) in _SAME
    direct = _direct(target, rounding, inner, plain) if same else None
    if direct is not None:
        return direct
    if target.span > MOST_LEVELS:
        return None
    steps = _Staircase.of(target)
    for split in (False,) if plain else (False, True):
        for fine in (0,) if plain else range(FINEST + 1):
            for bias, offset in _biases(target, inner, rounding):
                exact = bias * (1 << fine)
                if fine and same and exact.denominator == 1 and exact.numerator % 2 == 0:
                    continue  # a coarser bias was exact already
                nearest = round(exact)
                tries = (nearest,) if same and exact.denominator == 1 else (nearest, nearest - 1, nearest + 1)
                for extra in tries:
                    found = _try(target, steps, fine, extra, offset, rounding, split)
                    if found:
                        return found
    return None


def _direct(target: Target, rounding: Rounding, inner: int, plain: bool) -> Fit | None:
    """The target itself, when its slope is dyadic and its bias a dyadic fraction of an accumulator."""
    if _odd(target.slope.denominator) != 1:
        return None
    shift = target.slope.denominator.bit_length() - 1
    for bias, offset in _biases(target, inner, rounding):
        if (offset - target.outer) % 2 and rounding is Rounding.HALF_EVEN:
            continue  # moving an odd number out of the rounding changes its ties
        fine = bias.denominator.bit_length() - 1
        extra, multiplier = bias.numerator, target.slope.numerator
        magnitude = (max(abs(target.first), abs(target.last)) << fine) + abs(extra)
        fits = max(_bits(extra), _bits(multiplier), _bits(offset)) <= CONSTANT_BITS and shift + fine <= MAX_SHIFT
        if _odd(bias.denominator) == 1 and fits and magnitude * multiplier < LARGEST and not (plain and fine):
            whole = extra if fine == 0 else 0
            return Fit(whole, fine, extra - whole, 1, multiplier, shift + fine, offset, rounding)
    return None


def _odd(value: int) -> int:
    return value // (value & -value)


def _try(
    target: Target, steps: _Staircase, fine: int, extra: int, offset: int, rounding: Rounding, split: bool
) -> Fit | None:
    magnitude = (max(abs(target.first), abs(target.last)) << fine) + abs(extra)
    if _bits(extra) > CONSTANT_BITS or _bits(offset) > CONSTANT_BITS or magnitude >= 1 << 60:
        return None
    interval = slopes(steps.binding, 1 << fine, extra, offset, rounding)
    if interval is None:
        return None
    found = simplest(*interval, target.slope / (1 << fine), magnitude, split)
    if found is None:
        return None
    bias, rest = (extra, 0) if fine == 0 else (0, extra)
    result = Fit(bias, fine, rest, *found, offset, rounding)
    return result if agrees(result, target, steps) else None


def agrees(found: Fit, target: Target, steps: _Staircase) -> bool:
    """Whether a fit, clipped, equals the target on its whole interval: seen at every threshold and before it."""
    at, before = found(steps.thresholds), found(steps.thresholds - 1)
    reach = (at >= steps.levels) | ~steps.reach
    return bool((reach & ((before < steps.levels) | ~steps.stay)).all())


def simplest_near(wanted: Fraction, bound: Fraction) -> Fraction | None:
    """The simplest dyadic number within a relative ``bound`` of ``wanted`` > 0."""
    lower, upper = (_End(wanted * (1 + sign * bound), True) for sign in (-1, 1))
    found = simplest(lower, upper, wanted, 1)
    return Fraction(found[1], 1 << found[2]) if found else None


@dataclass(frozen=True)
class Change:
    """How a snapped rescale differs: relative error of the slope, of the bias, integers and levels that change."""

    scale_error: float
    bias_error: float
    integers: int
    of: int
    levels: int


def snapped(target: Target, rounding: Rounding, inner: int, bound: Fraction) -> Fit | None:
    """The simplest plain rescale whose slope is within a relative ``bound`` and whose bias within half a unit."""
    if target.slope == 0:
        return fit(target, rounding, inner)
    lower, upper = (_End(target.slope * (1 + sign * bound), True) for sign in (-1, 1))
    for bias, offset in _biases(target, inner, rounding):
        nearest = round(bias)
        if _bits(nearest) > CONSTANT_BITS or _bits(offset) > CONSTANT_BITS:
            continue
        magnitude = max(abs(target.first), abs(target.last)) + abs(nearest)
        found = simplest(lower, upper, target.slope, magnitude)
        if found:
            return Fit(nearest, 0, 0, *found, offset, rounding)
    return None


def _thresholds(found: Fit, target: Target, levels: IntArray) -> IntArray:
    """The first integer of the interval at which the clipped fit reaches each level (one past the last: never)."""
    low = np.full(levels.shape, target.first, dtype=np.int64)
    high = np.full(levels.shape, target.last + 1, dtype=np.int64)
    while (low < high).any():
        middle = (low + high) >> 1
        reached = _clipped(found, target, np.minimum(middle, target.last)) >= levels
        reached &= middle <= target.last
        low, high = np.where(reached | (low >= high), low, middle + 1), np.where(reached, middle, high)
    return low


def _clipped(found: Fit, target: Target, a: IntArray) -> IntArray:
    q = found(a)
    q = q if target.low is None else np.maximum(q, target.low)
    return q if target.high is None else np.minimum(q, target.high)


def change(found: Fit, target: Target) -> Change:
    """What a fit changes of its target over the whole interval, counted exactly: from both sides' thresholds, or
    integer by integer where these are fewer. ``Refuse`` where both are too many to count.
    """
    ends = np.array([target.first, target.last], dtype=np.int64)
    new = _clipped(found, target, ends)
    if max(target.span, int(new[1] - new[0])) > MOST_LEVELS:
        if target.size > MAX_TABLE:
            raise Refuse(
                f"its scale would have to change, over {target.span + 1} levels of {target.size} integers, too many to "
                "count what that does; use fewer bits"
            )
        apart = np.abs(_clipped(found, target, np.arange(target.first, target.last + 1)) - target.table)
        return _change(found, target, int((apart > 0).sum()), int(apart.max()))
    low = min(int(new[0]), target.level(target.first))
    levels, thresholds = target.steps
    wanted = np.arange(low + 1, max(int(new[1]), target.level(target.last)) + 1, dtype=np.int64)
    ours = _thresholds(found, target, wanted)
    before = np.full(target.level(target.first) - low, target.first, dtype=np.int64)
    after = np.full(len(wanted) - len(before) - len(levels), target.last + 1, dtype=np.int64)
    theirs = np.concatenate([before, thresholds, after])
    breaks = np.unique(np.concatenate([ours, theirs, ends[:1], ends[1:] + 1]))
    starts, lengths = breaks[:-1], np.diff(breaks)
    apart = np.abs(np.searchsorted(ours, starts, side="right") - np.searchsorted(theirs, starts, side="right"))
    return _change(found, target, int(lengths[apart > 0].sum()), int(apart.max(initial=0)))


def _change(found: Fit, target: Target, integers: int, levels: int) -> Change:
    """A fit's errors of slope and bias, beside what was counted."""
    slope = Fraction(found.factor * found.multiplier << found.fine, 1 << found.shift)
    lead = _lead(target.mode, found.rounding)
    bias = (target.intercept + lead - (found.offset - target.outer)) / target.slope if target.slope else Fraction(0)
    given = found.bias + Fraction(found.extra, 1 << found.fine)
    return Change(
        float(abs(slope / target.slope - 1)) if target.slope else 0.0,
        float(abs(given - bias)) if target.slope else 0.0,
        integers,
        target.size,
        levels,
    )


def many(targets: Sequence[Target]) -> bool:
    """Whether the levels of all targets are too many to search each of them for what cannot be."""
    return sum(min(target.span, target.size) for target in targets) > MOST_LEVELS


def fit_all(
    targets: Sequence[Target], inner: Sequence[int], snap: Fraction | None
) -> tuple[list[Fit], list[int]] | list[int]:
    """One fit for each target, of one rounding: (fits, places snapped), or the places that have no plain fit.

    Plain and exact first; then, when the user accepts a bound, plain and snapped; then exact in more steps. Where the
    levels of all targets are many, the first place without a fit ends the search: then only that one is returned.
    """
    mode = targets[0].mode
    order = [rounding for rounding in Rounding if (mode, rounding) in _SAME] or [Rounding.FLOOR]
    order += [rounding for rounding in Rounding if rounding not in order]
    own = order[0]
    pairs = list(zip(targets, inner, strict=True))

    every = snap is not None or not many(targets)

    def fits(rounding: Rounding) -> list[Fit | None]:
        result: list[Fit | None] = []
        for target, z in pairs:
            result.append(fit(target, rounding, z, plain=True))
            if not (result[-1] or every):
                break
        return result

    plain: list[Fit | None] = []
    for rounding in order:
        found_all = fits(rounding)
        if all(found_all):
            return [found for found in found_all if found], []
        plain = plain or found_all
    if snap is not None:
        near = [found or snapped(t, own, z, snap) for found, (t, z) in zip(plain, pairs, strict=True)]
        if all(near):
            return [found for found in near if found], [i for i, found in enumerate(plain) if found is None]
    for rounding in order:
        exact: list[Fit] = []
        for target, z in pairs:
            found = fit(target, rounding, z)
            if found is None:
                break  # one channel without a rescale is enough
            exact.append(found)
        if len(exact) == len(pairs):
            return exact, []
    return [i for i, found in enumerate(plain) if found is None]
