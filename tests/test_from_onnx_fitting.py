"""The search for integer rescales: thresholds against rational rounding, fits against every integer of an interval."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hawq_flow.from_onnx.affine import common, compress, exact
from hawq_flow.from_onnx.fitting import Fit, change, fit, fit_all, simplest_near, snapped
from hawq_flow.from_onnx.levels import Mode, Target, round_exactly
from hawq_flow.numeric import Rounding, significant_bits

F = Fraction
slopes = st.tuples(st.integers(1, 1 << 24), st.integers(8, 34)).map(lambda p: F(p[0], 1 << p[1]))
intercepts = st.one_of(
    st.just(F(0)), st.tuples(st.integers(-(1 << 20), 1 << 20), st.integers(10, 22)).map(lambda p: F(p[0], 1 << p[1]))
)


@st.composite
def targets(draw: Any, modes: Any = tuple(Mode)) -> Target:
    slope = draw(slopes) / draw(st.sampled_from([1, 3, 5, 7, 77]))
    bits = draw(st.integers(1, 8))
    low = draw(st.sampled_from([0, -(1 << (bits - 1))]))
    bounds = draw(st.sampled_from([(low, low + (1 << bits) - 1), (low, None), (None, low + 5), (None, None)]))
    first = draw(st.integers(-600, 100))
    return Target(
        slope,
        draw(intercepts),
        draw(st.sampled_from(modes)),
        draw(st.integers(-3, 3)),
        *bounds,
        first,
        first + draw(st.integers(0, 600)),
    )


def levels(target: Target, a: np.ndarray) -> np.ndarray:
    return np.array([target.level(int(v)) for v in a])


def clipped(found: Fit, target: Target, a: np.ndarray) -> np.ndarray:
    q = found(a)
    q = q if target.low is None else np.maximum(q, target.low)
    return q if target.high is None else np.minimum(q, target.high)


@given(st.fractions(-5, 5, max_denominator=8))
def test_roundings_are_those_of_the_executor(y: Fraction) -> None:
    intquant = pytest.importorskip("qonnx.custom_op.general.intquant")
    for mode in Mode:
        assert round_exactly(y, mode) == intquant.resolve_rounding_mode(mode.value)(np.float64(y)), mode


@given(targets())
def test_thresholds_are_the_first_integers_of_their_levels(target: Target) -> None:
    if target.level(target.last) - target.level(target.first) > 5000:
        return
    q, t = target.steps
    a = np.arange(target.first, target.last + 1)
    np.testing.assert_array_equal(np.searchsorted(t, a, side="right") + target.level(target.first), levels(target, a))
    assert len(q) == len(t)


@settings(max_examples=80)
@given(targets((Mode.ROUND, Mode.FLOOR, Mode.CEIL)))
def test_whatever_is_found_is_exact_on_every_integer(target: Target) -> None:
    outcome = fit_all([target], [0], None)
    if isinstance(outcome, list):
        return
    (found,), changed = outcome
    assert not changed
    a = np.arange(target.first, target.last + 1)
    np.testing.assert_array_equal(clipped(found, target, a), levels(target, a))
    for constant in (found.bias, found.extra, found.factor, found.multiplier, found.offset):
        assert significant_bits(constant) <= 24


@settings(max_examples=60)
@given(st.integers(1, 10**6), intercepts, st.sampled_from([Mode.ROUND, Mode.FLOOR, Mode.CEIL]), st.integers(1, 8))
def test_float32_scales_are_always_carried(seed: int, intercept: Fraction, mode: Mode, bits: int) -> None:
    """Scales as tools write them: float32 numbers without simple ratios."""
    rng = np.random.default_rng(seed)
    scales = [F(float(np.float32(v))) for v in rng.uniform(1e-3, 0.5, 3)]
    target = Target(scales[0] * scales[1] / scales[2], intercept, mode, 0, 0, (1 << bits) - 1, -5000, 5000)
    outcome = fit_all([target], [0], None)
    assert not isinstance(outcome, list)
    a = np.arange(-5000, 5001, 7)
    np.testing.assert_array_equal(clipped(outcome[0][0], target, a), levels(target, a))


def test_a_scale_that_is_dyadic_stays_what_it_is() -> None:
    target = Target(F(5, 64), F(5, 64) * 3, Mode.ROUND, 0, None, None, -(1 << 40), 1 << 40)
    assert fit(target, Rounding.HALF_EVEN) == Fit(3, 0, 0, 1, 5, 6, 0, Rounding.HALF_EVEN)


def test_half_up_is_recognized() -> None:
    target = Target(F(3, 64), F(1, 2), Mode.FLOOR, 2, -8, 7, -1000, 1000)
    (found,), _ = fit_all([target], [0], None)  # type: ignore[misc]
    assert found == Fit(0, 0, 0, 1, 3, 6, 2, Rounding.HALF_UP)


def test_long_multipliers_are_split() -> None:
    """8 bits out of 20: more than 24 bits of multiplier are needed, and two factors have them."""
    slope = F(float(np.float32(0.00024425989))) * F(float(np.float32(1.0231927))) / 3
    target = Target(slope, F(0), Mode.ROUND, 0, 0, 255, 0, 1 << 22)
    assert fit(target, Rounding.HALF_EVEN, plain=True) is None
    found = fit(target, Rounding.HALF_EVEN)
    assert found is not None
    assert found.factor > 1
    a = np.unique(np.concatenate([target.steps[1] + d for d in (-1, 0)]))
    np.testing.assert_array_equal(clipped(found, target, a), levels(target, a))


def test_ties_that_pin_a_slope_that_is_not_dyadic_are_not_carried() -> None:
    """a / 6 ties at 3 (down to 0) and at 9 (up to 2): no other slope does both."""
    target = Target(F(1, 6), F(0), Mode.ROUND, 0, None, None, 0, 30)
    assert fit_all([target], [0], None) == [0]
    near = snapped(target, Rounding.HALF_EVEN, 0, F(1, 1000))
    assert near is not None
    moved = change(near, target)
    a = np.arange(0, 31)
    differ = np.abs(near(a) - levels(target, a))
    assert (moved.integers, moved.of, moved.levels) == (int((differ > 0).sum()), 31, 1)
    assert 0 < moved.scale_error <= 1e-3
    found = fit_all([target], [0], F(1, 1000))
    assert found == ([near], [0])


def test_a_change_over_a_wide_interval_is_counted_exactly() -> None:
    target = Target(F(1, 3000), F(0), Mode.ROUND, 0, 0, 255, 0, 1 << 20)
    near = Fit(0, 0, 0, 1, 699, 21, 0, Rounding.HALF_EVEN)
    counted = change(near, target)
    a = np.arange(0, (1 << 20) + 1)
    _, t = target.steps
    old = np.searchsorted(t, a, side="right")
    differ = np.abs(clipped(near, target, a) - old)
    assert (counted.levels, counted.integers) == (differ.max(), (differ > 0).sum())


def test_dead_and_constant_channels() -> None:
    dead = Target(F(0), F(7, 2), Mode.ROUND, 1, 0, 15, -100, 100)
    found = fit(dead, Rounding.HALF_EVEN)
    assert found is not None
    assert (found(np.arange(-100, 101)) == 5).all()


@given(st.lists(st.fractions(0, 9, max_denominator=60), min_size=1, max_size=6))
def test_the_common_measure_divides_all(values: list[Fraction]) -> None:
    measure = common(values)
    assert all(v == 0 if measure == 0 else (v / measure).denominator == 1 for v in values)


def test_exact_numbers_and_their_shapes() -> None:
    assert exact(np.float32(0.1)).tolist() == [F(13421773, 1 << 27)]
    assert compress(np.array([[F(1), F(1)], [F(2), F(2)]], dtype=object)).shape == (2, 1)
    assert simplest_near(F(1, 3), F(1, 100)) == F(43, 128)
