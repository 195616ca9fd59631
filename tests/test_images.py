"""Integers as text and back: every form, every width, and what is no image."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hawq_flow import images
from hawq_flow.images import ImageError


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_every_form_gives_back_what_it_was_given(data: st.DataObject) -> None:
    bits, signed = data.draw(st.integers(1, 62)), data.draw(st.booleans())
    elements, rows = data.draw(st.integers(1, 9)), data.draw(st.integers(0, 5))
    low, high = images.limits(bits, signed)
    flat = data.draw(st.lists(st.integers(low, high), min_size=elements * rows, max_size=elements * rows))
    array = np.array(flat, dtype=np.int64).reshape(rows, elements)
    assert np.array_equal(images.read_decimal(images.decimal(array), elements, "t"), array)
    for form, radix in images.RADIX.items():
        text = images.words(array, bits, signed, form)
        assert np.array_equal(images.read_words(text, elements, bits, signed, form, "t"), array)
        for line, row in zip(text.splitlines(), flat and array.tolist(), strict=True):
            assert int(line, radix) == sum((v % (1 << bits)) << (i * bits) for i, v in enumerate(row))
            assert len(line) == -(-elements * bits // (radix.bit_length() - 1))


def test_all_integers_of_a_width() -> None:
    for bits in range(1, 9):
        for signed in (False, True):
            low, high = images.limits(bits, signed)
            array = np.arange(low, high + 1)[:, None]
            text = images.words(array, bits, signed, "bin").split()
            assert text == [f"{v % (1 << bits):0{bits}b}" for v in range(low, high + 1)]


def test_what_verilog_reads_and_writes_is_read() -> None:
    text = "// header\n@0 0_f\n/* two\nlines */ 10 // last\n@2\n01\n"
    assert images.read_words(text, 2, 4, False, "hex", "t").tolist() == [[15, 0], [0, 1], [1, 0]]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("00\nxx\n", "t, line 2: 'xx' has digits without a value; expected hex digits"),
        ("0g\n", "t, line 1: '0g' is not a word of hex digits"),
        ("/* a\nb */ 1ff\n", "t, line 2: '1ff' has 9 bits; expected at most 8, 2 elements of 4 bits"),
        ("00\n@2 01\n", "t, line 2: '@2' is not the address of the next word, 1; give every word, in order"),
        ("-1\n", "t, line 1: '-1' is not a word of hex digits"),
    ],
)
def test_no_words(text: str, said: str) -> None:
    with pytest.raises(ImageError, match=re.escape(said)):
        images.read_words(text, 2, 4, False, "hex", "t")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 2\n3\n", "t, line 2: 1 integers; expected 2, one row a line"),
        ("1 2.5\n", "t, line 1: '1 2.5' is not integers of 64 bits"),
        ("1 99999999999999999999\n", "t, line 1: '1 99999999999999999999' is not integers of 64 bits"),
    ],
)
def test_no_decimals(text: str, said: str) -> None:
    with pytest.raises(ImageError, match=re.escape(said)):
        images.read_decimal(text, 2, "t")


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(ImageError, match="fc1: row 1, element 0: 8; signed words of 4 bits hold -8 to 7"):
        images.words([[1, 2], [8, 0]], 4, True, "hex", "fc1")
    with pytest.raises(ImageError, match=re.escape("image: float64 array of shape (1, 1); expected integers")):
        images.words([[1.0]], 4, True, "hex")
