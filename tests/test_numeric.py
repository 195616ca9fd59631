"""Integer arithmetic against a slow model in Python fractions: exhaustively at small widths, by sampling at large."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hawq_flow.numeric import (
    MAX_SHIFT,
    Dyadic,
    IntType,
    Overflow,
    Rounding,
    dequantize,
    lossless_float,
    nearest_dyadic,
    overflow_to,
    quantize,
    requantize,
    shift_round,
    significant_bits,
)


def round_model(value: Fraction, rounding: Rounding) -> int:
    """The three roundings by their definitions on exact fractions."""
    if rounding is Rounding.FLOOR:
        return math.floor(value)
    if rounding is Rounding.HALF_UP:
        return math.floor(value + Fraction(1, 2))
    return round(value)  # Python rounds fractions half to even


def overflow_model(value: int, low: int, high: int, overflow: Overflow) -> int:
    if overflow is Overflow.SATURATE:
        return min(max(value, low), high)
    while value > high:
        value -= high - low + 1
    while value < low:
        value += high - low + 1
    return value


def range_model(bits: int, signed: bool, narrow: bool) -> tuple[int, int]:
    if not signed:
        return 0, 2**bits - 1
    return -(2 ** (bits - 1)) + narrow, 2 ** (bits - 1) - 1


# ------------------------------------------------------------------------------------------------------------ IntType


@pytest.mark.parametrize("bits", range(1, 63))
def test_ranges_follow_from_width_sign_and_narrowness(bits: int) -> None:
    for signed, narrow in ((False, False), (True, False), (True, True)):
        if narrow and bits == 1:
            continue
        low, high = range_model(bits, signed, narrow)
        type = IntType(bits, signed, narrow)
        assert type.range == (low, high)
        assert type.contains([low, high])
        assert not type.contains([low - 1])
        assert not type.contains([high + 1])


def test_holding_is_the_narrowest_type() -> None:
    for low in range(-70, 71):
        for high in range(low, 71):
            type = IntType.holding(low, high)
            assert type.contains([low, high])
            assert type.signed == (low < 0)
            if type.bits > 1:
                assert not IntType(type.bits - 1, type.signed).contains([low, high])


def test_per_channel_bounds_stand_on_axis_zero() -> None:
    type = IntType((2, 4, 3), signed=True)
    assert type.low(3).shape == (3, 1, 1)
    assert type.high(1).tolist() == [1, 7, 3]
    assert (type.uniform, type.max_bits, type.widths) == (False, 4, (2, 4, 3))
    assert type.contains([[1, 7, 3], [-2, -8, -4]])
    assert not type.contains([[2, 0, 0]])
    assert not type.contains([[0, 0, -5]])
    assert IntType([2, 3], signed=False).bits == (2, 3)  # type: ignore[arg-type]
    assert hash(IntType([2, 3], signed=False)) == hash(IntType((2, 3), signed=False))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((0, True), "IntType: width 0; expected an integer from 1 to 62"),
        ((63, True), "IntType: width 63; expected an integer from 1 to 62"),
        ((1, True, True), "IntType: width 1; expected an integer from 2 to 62"),
        ((True, True), "IntType: width True; expected an integer"),
        ((4.0, True), "IntType: width 4.0; expected an integer"),
        (((), True), "IntType: no widths; expected one, or one for each channel"),
        (((4, 0), True), "IntType: width 0"),
        ((4, False, True), "narrow holds for signed types only"),
    ],
)
def test_bad_types_are_refused(arguments: tuple, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        IntType(*arguments)


def test_holding_refuses_an_empty_interval() -> None:
    with pytest.raises(ValueError, match=r"holding: low 3 is above high 2; give the smaller bound first"):
        IntType.holding(3, 2)


@pytest.mark.parametrize(
    ("type", "text"),
    [
        (IntType(4, True), "int4"),
        (IntType(4, True, True), "int4n"),
        (IntType(6, False), "uint6"),
        (IntType((2, 3), False), "uint[2,3]"),
    ],
)
def test_types_print_and_travel_as_json(type: IntType, text: str) -> None:
    assert str(type) == text
    assert IntType.from_dict(type.to_dict()) == type


# ------------------------------------------------------------------------------------------------------------- Dyadic


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 5])
def test_nearest_equals_brute_force_over_all_multipliers_and_shifts(bits: int) -> None:
    """Every candidate, every midpoint of two neighbours (a tie, to the even one), and points on both sides of each."""
    shifts = range(8 + bits + 1)
    candidates = sorted({Fraction(m, 2**s) for m in range(1, 2**bits) for s in shifts})
    inner = [c for c in candidates if c >= Fraction(1, 2**8)]  # those below would need more shifts
    values: dict[Fraction, Fraction] = {c: c for c in inner}
    for a, b in itertools.pairwise(inner):
        gap = b - a
        values[(a + b) / 2] = a if (a / gap) % 2 == 0 else b
        values[a + gap * Fraction(7, 16)] = a
        values[a + gap * Fraction(9, 16)] = b
    for value, expected in values.items():
        number = Dyadic.nearest(float(value), bits)
        assert Fraction(number.multiplier, 2**number.shift) == expected, (value, bits)
        assert 0 < number.multiplier < 2**bits
        assert abs(expected - value) == min(abs(c - value) for c in candidates)


@given(
    value=st.floats(2.0**-36, 2.0**24, exclude_max=True),
    bits=st.integers(1, 31),
)
@settings(max_examples=300, deadline=None, derandomize=True)
def test_nearest_is_in_lowest_terms_and_within_its_error(value: float, bits: int) -> None:
    if value >= 2**bits - 0.5:
        with pytest.raises(ValueError, match="needs a multiplier of more than"):
            Dyadic.nearest(value, bits)
        return
    number = Dyadic.nearest(value, bits)
    exact, found = Fraction(value), Fraction(number.multiplier, 2**number.shift)
    assert number.multiplier < 2**bits
    assert number.multiplier % 2 == 1 or number.shift == 0
    assert abs(found - exact) <= exact / 2**bits
    assert Fraction(number.value) == found
    # No neighbour on the same grid is nearer.
    step = Fraction(1, 2 ** max(0, bits - math.frexp(value)[1]))
    assert all(abs(found - exact) <= abs(found + k * step - exact) for k in (-1, 1))


@pytest.mark.parametrize("bits", range(1, 32))
def test_the_largest_value_of_each_width(bits: int) -> None:
    below = np.nextafter(2.0**bits - 0.5, 0)
    assert Dyadic.nearest(below, bits) == Dyadic(2**bits - 1, 0)
    with pytest.raises(ValueError, match=rf"more than {bits} bits; the largest representable is {2**bits - 1}"):
        Dyadic.nearest(2.0**bits - 0.5, bits)


def test_the_smallest_values() -> None:
    assert Dyadic.nearest(2.0**-MAX_SHIFT, 8) == Dyadic(1, MAX_SHIFT)
    with pytest.raises(ValueError, match="shift 62 in lowest terms; expected at most 61"):
        Dyadic.nearest(2.0**-62, 8)
    with pytest.raises(ValueError, match="in lowest terms; expected at most 61"):
        Dyadic.nearest(5e-324, 8)


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_nearest_refuses_what_is_not_a_ratio_of_scales(value: float) -> None:
    with pytest.raises(ValueError, match="expected a positive finite ratio of scales"):
        Dyadic.nearest(value, 8)


@pytest.mark.parametrize("bits", [0, 32, -1])
def test_nearest_refuses_widths(bits: int) -> None:
    with pytest.raises(ValueError, match=f"multiplier of {bits} bits; expected 1 to 31"):
        Dyadic.nearest(1.0, bits)


def test_dyadic_is_in_lowest_terms() -> None:
    assert (Dyadic(12, 4).multiplier, Dyadic(12, 4).shift) == (3, 2)
    assert (Dyadic(0, 5).multiplier, Dyadic(0, 5).shift) == (0, 0)
    assert Dyadic(-6, 1) == Dyadic(-3, 0)
    assert Dyadic(4 << 60, 62).shift == 0
    with pytest.raises(ValueError, match="shift -1; expected 0 or more"):
        Dyadic(1, -1)


def test_nearest_dyadic_keeps_the_shape() -> None:
    values = np.array([[0.3, 1.0], [2.5, 7.0]])
    multiplier, shift = nearest_dyadic(values, 3)
    assert multiplier.shape == shift.shape == (2, 2)
    for value, m, s in zip(values.flat, multiplier.flat, shift.flat, strict=True):
        assert Dyadic.nearest(value, 3) == Dyadic(int(m), int(s))
    assert nearest_dyadic(0.5, 4)[0].shape == ()


# ---------------------------------------------------------------------------------------------- rounding and overflow


@pytest.mark.parametrize("rounding", Rounding)
def test_every_product_and_shift_rounds_as_the_fraction_does(rounding: Rounding) -> None:
    """All accumulators and multipliers of up to 6 bits (signed, 0 included) at every shift that matters to them."""
    acc, multiplier = np.arange(-32, 64), np.arange(-32, 64)
    for shift in range(14):
        table = {p: round_model(Fraction(p, 2**shift), rounding) for p in range(-64 * 64, 64 * 64 + 1)}
        product = acc[:, None] * multiplier[None, :]
        expected = np.array([[table[int(p)] for p in row] for row in product])
        np.testing.assert_array_equal(shift_round(product, shift, rounding), expected)


@pytest.mark.parametrize("overflow", Overflow)
def test_every_small_type_saturates_and_wraps(overflow: Overflow) -> None:
    values = np.arange(-150, 151)
    for bits in range(1, 7):
        for signed, narrow in ((False, False), (True, False), (True, True)):
            if narrow and (bits == 1 or overflow is Overflow.WRAP):
                continue
            low, high = range_model(bits, signed, narrow)
            expected = [overflow_model(int(v), low, high, overflow) for v in values]
            found = overflow_to(values, IntType(bits, signed, narrow), overflow)
            assert found.tolist() == expected, (bits, signed, narrow)


def test_requantize_exhaustively_at_small_widths() -> None:
    """Accumulators of 2 to 6 bits x multipliers x shifts x offsets x roundings x types x overflow, all of them."""
    acc = np.arange(-32, 64)[:, None, None, None]
    multiplier = np.array([-3, -1, 0, *range(1, 64)])[:, None, None]
    shift = np.arange(9)[:, None]
    offset = np.array([-64, -9, -1, 0, 1, 2, 7, 64])
    cases = 0
    for rounding in Rounding:
        rounded = np.empty((96, 66, 9, 1), dtype=np.int64)
        for k in range(9):
            table = {p: round_model(Fraction(p, 2**k), rounding) for p in range(-4096, 4097)}
            products = acc[:, :, 0, 0] * multiplier[None, :, 0, 0]
            rounded[:, :, k, 0] = np.vectorize(table.__getitem__)(products)
        before = rounded + offset
        reach = int(np.abs(before).max())
        for bits in range(2, 7):
            for signed, narrow in ((False, False), (True, False), (True, True)):
                low, high = range_model(bits, signed, narrow)
                for overflow in Overflow:
                    if narrow and overflow is Overflow.WRAP:
                        continue
                    lookup = np.array([overflow_model(v, low, high, overflow) for v in range(-reach, reach + 1)])
                    found = requantize(
                        acc, multiplier, shift, offset, rounding, IntType(bits, signed, narrow), overflow, rank=0
                    )
                    np.testing.assert_array_equal(found, lookup[before + reach])
                    cases += found.size
    assert cases == 3 * 25 * 96 * 66 * 9 * 8


@given(
    acc=st.integers(-(2**40), 2**40),
    multiplier=st.integers(-(2**22), 2**22),
    shift=st.integers(0, 61),
    offset=st.integers(-(2**40), 2**40),
    rounding=st.sampled_from(Rounding),
    overflow=st.sampled_from(Overflow),
    bits=st.integers(2, 62),
    signed=st.booleans(),
    tie=st.booleans(),
)
@settings(max_examples=500, deadline=None, derandomize=True)
def test_requantize_equals_the_fraction_model_at_any_width(
    acc: int,
    multiplier: int,
    shift: int,
    offset: int,
    rounding: Rounding,
    overflow: Overflow,
    bits: int,
    signed: bool,
    tie: bool,
) -> None:
    if tie and 0 < shift < 40:  # an odd multiple of a half: exactly between two integers
        acc, multiplier = ((acc >> shift) * 2 + 1) << (shift - 1), 1 - 2 * (multiplier % 2)
    low, high = range_model(bits, signed, False)
    value = round_model(Fraction(acc * multiplier, 2**shift), rounding) + offset
    if overflow is Overflow.WRAP:
        expected = (value - low) % 2**bits + low
    else:
        expected = min(max(value, low), high)
    found = requantize(np.array([acc]), multiplier, shift, offset, rounding, IntType(bits, signed), overflow)
    assert found.tolist() == [expected]
    assert found.dtype == np.int64


@given(
    product=st.integers(-(2**62) + 1, 2**62 - 1),
    shift=st.integers(0, MAX_SHIFT),
    rounding=st.sampled_from(Rounding),
)
@settings(max_examples=300, deadline=None, derandomize=True)
def test_shift_round_is_exact_up_to_2_to_the_62(product: int, shift: int, rounding: Rounding) -> None:
    assert int(shift_round(product, shift, rounding)) == round_model(Fraction(product, 2**shift), rounding)


def test_requantize_per_channel_on_a_batch() -> None:
    acc = np.arange(-12, 12).reshape(4, 3, 2)  # (batch, channels, positions)
    type = IntType((2, 3, 4), signed=True)
    m, s, z = np.array([[1], [3], [5]]), np.array([[1], [2], [0]]), np.array([[0], [1], [-1]])
    found = requantize(acc, m, s, z, Rounding.HALF_EVEN, type, rank=2)
    for b, c, p in np.ndindex(acc.shape):
        low, high = range_model(type.widths[c], True, False)
        value = round_model(Fraction(int(acc[b, c, p] * m[c, 0]), 2 ** int(s[c, 0])), Rounding.HALF_EVEN) + int(z[c, 0])
        assert found[b, c, p] == min(max(value, low), high)


def test_requantize_refuses_products_beyond_int64() -> None:
    type = IntType(8, signed=True)
    with pytest.raises(OverflowError, match=r"may reach \d+, beyond int64; use a multiplier of fewer bits"):
        requantize([1 << 40], 1 << 23, 0, 0, Rounding.FLOOR, type)
    with pytest.raises(OverflowError, match="beyond int64"):
        requantize([-(1 << 40), 3], [1, 1 << 23], 0, 0, Rounding.FLOOR, type)
    assert requantize([1 << 40], (1 << 22) - 1, 61, 0, Rounding.FLOOR, type).tolist() == [1]


def test_requantize_refuses_an_offset_that_leaves_int64() -> None:
    with pytest.raises(OverflowError, match="beyond int64"):
        requantize([1 << 61], 2, 0, 1 << 62, Rounding.FLOOR, IntType(62, signed=True))


def test_wrapping_into_a_narrow_type_is_refused() -> None:
    with pytest.raises(ValueError, match="wrap into int4n: a narrow type has no modulus; wrap into the full type"):
        overflow_to([9], IntType(4, signed=True, narrow=True), Overflow.WRAP)


# ---------------------------------------------------------------------------------------------- real numbers, helpers


@given(
    value=st.floats(-1e6, 1e6),
    scale=st.floats(1e-3, 1e3),
    bits=st.integers(1, 24),
    signed=st.booleans(),
    zero=st.integers(-100, 100),
)
@settings(max_examples=300, deadline=None, derandomize=True)
def test_quantize_is_round_half_to_even_of_the_quotient(
    value: float, scale: float, bits: int, signed: bool, zero: int
) -> None:
    low, high = range_model(bits, signed, False)
    expected = min(max(round(value / scale) + zero, low), high)
    assert quantize([value], scale, zero, IntType(bits, signed)).tolist() == [expected]


def test_quantize_saturates_infinities_and_stays_in_wide_types() -> None:
    assert quantize([-math.inf, math.inf], 0.5, 3, IntType(4, True)).tolist() == [-8, 7]
    for bits in (53, 54, 60, 62):
        for signed in (True, False):
            type = IntType(bits, signed)
            assert quantize([-1e300, 1e300], 1.0, 0, type).tolist() == list(type.range)
    assert quantize([1e308], 1e-10, 0, IntType(4, True)).tolist() == [7]  # the quotient itself is infinite


def test_quantize_takes_float32_data_in_float64() -> None:
    value = np.float32(0.1)
    assert quantize([value], 0.1 / 3, 0, IntType(16, True)).tolist() == [3]
    # In float32 the quotient of the first would tie; in float64 it does not.
    edge = np.nextafter(np.float32(2.5), np.float32(3))
    assert quantize([edge, np.float32(2.5)], 1.0, 0, IntType(8, True)).tolist() == [3, 2]


def test_quantize_per_channel() -> None:
    type = IntType((2, 4), signed=False)
    assert quantize([[10.0, 10.0]], [1.0, 2.0], [0, 1], type).tolist() == [[3, 6]]


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf])
def test_quantize_refuses_scales(scale: float) -> None:
    with pytest.raises(ValueError, match="expected positive and finite"):
        quantize([1.0], scale, 0, IntType(4, True))


def test_quantize_refuses_nan_and_counts_it() -> None:
    with pytest.raises(ValueError, match="1 of 3 values are NaN; NaN has no integer"):
        quantize([1.0, math.nan, 2.0], 1.0, 0, IntType(4, True))


def test_dequantize_is_the_inverse_on_the_grid() -> None:
    integers = np.arange(-8, 8)
    values = dequantize(integers, 0.3, 2)
    assert values.tolist() == [0.3 * (q - 2) for q in integers.tolist()]
    assert (quantize(values, 0.3, 2, IntType(4, True)) == integers).all()


@given(st.integers(-(2**62), 2**62))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_significant_bits_are_what_a_mantissa_needs(value: int) -> None:
    expected = 0
    if value:
        odd = abs(value)
        while odd % 2 == 0:
            odd //= 2
        expected = odd.bit_length()
    assert int(significant_bits(value)) == expected
    assert (int(np.float32(value)) == value) == (expected <= 24)


def test_lossless_float_changes_at_the_exact_bound() -> None:
    assert lossless_float((1 << 24) - 1) == np.float32
    assert lossless_float(1 << 24) == np.float64
    assert lossless_float((1 << 53) - 1) == np.float64
    assert lossless_float(1 << 53) is None
