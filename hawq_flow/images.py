"""Integers as text that hardware tools and other languages read, and back: decimal rows, hexadecimal and binary words.

A *word* holds the elements of one row side by side, element 0 in the lowest bits, each ``bits`` wide in two's
complement (plain binary when unsigned)::

    word = sum over i of (element_i mod 2^bits) * 2^(i * bits)

Words stand one a line, with as many digits as ``elements * bits`` needs and nothing else, so that ``$readmemh`` and
``$readmemb`` (IEEE 1364-2005, 17.2.9) read a file as it is. What they also take is read back too: comments,
underscores, addresses. Decimal files hold one row a line, elements separated by blanks.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hawq_flow.numeric import IntArray

Bits = NDArray[np.uint8]

RADIX = {"hex": 16, "bin": 2}
"""The two forms of words, by the ending of their files."""
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


class ImageError(ValueError):
    """Integers that do not fit their width, or a text that is no image; says where, what was found and expected."""


def limits(bits: int, signed: bool) -> tuple[int, int]:
    """Smallest and largest integer of ``bits`` bits."""
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)


def to_bits(rows: ArrayLike, bits: int, signed: bool, where: str = "image") -> Bits:
    """Integers (n, elements) -> 0 and 1 (n, elements * bits), uint8, element 0 and its lowest bit first.

    Raises
    ------
    ImageError
        If an integer does not fit ``bits`` (1 to 63).
    """
    array = _rows(rows, where)
    low, high = limits(bits, signed)
    if array.size and (int(array.min()) < low or int(array.max()) > high):
        row, element = (int(i) for i in np.argwhere((array < low) | (array > high))[0])
        raise ImageError(
            f"{where}: row {row}, element {element}: {array[row, element]}; "
            f"{'signed' if signed else 'unsigned'} words of {bits} bits hold {low} to {high}"
        )
    return ((array[:, :, None] >> np.arange(bits)) & 1).astype(np.uint8).reshape(len(array), array.shape[1] * bits)


def from_bits(words: Bits, bits: int, signed: bool) -> IntArray:
    """What :func:`to_bits` made: 0 and 1 (n, elements * bits) -> int64 (n, elements)."""
    weight = np.int64(1) << np.arange(bits, dtype=np.int64)
    if signed:
        weight[-1] = -weight[-1]
    return np.asarray(words.reshape(len(words), words.shape[1] // bits, bits) @ weight)


def decimal(rows: ArrayLike) -> str:
    """Integers (n, elements) as text, a row a line."""
    return "".join(" ".join(map(str, row)) + "\n" for row in _rows(rows, "decimal").tolist())


def words(rows: ArrayLike, bits: int, signed: bool, form: str, where: str = "image") -> str:
    """Integers (n, elements) as words, a row a line; ``form`` is 'hex' or 'bin'.

    >>> words([[1, -1]], 4, True, "hex"), words([[1, -1]], 3, True, "bin")
    ('f1\\n', '111001\\n')
    """
    array = to_bits(rows, bits, signed, where)
    digit = RADIX[form].bit_length() - 1  # bits in a digit
    digits = -(-array.shape[1] // digit)
    padded = np.zeros((len(array), digits * digit), dtype=np.uint8)
    padded[:, : array.shape[1]] = array
    values = padded.reshape(len(array), digits, digit) @ (np.uint8(1) << np.arange(digit, dtype=np.uint8))
    lines = np.full((len(array), digits + 1), ord("\n"), dtype=np.uint8)
    lines[:, :digits] = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)[values[:, ::-1]]
    return lines.tobytes().decode("ascii")


def read_decimal(text: str, elements: int, where: str) -> IntArray:
    """Rows of ``elements`` integers, as :func:`decimal` writes them: int64 (n, elements).

    Raises
    ------
    ImageError
        Naming the line, if it holds another number of integers, or something else than integers of 64 bits.
    """
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.split()
        if not fields:
            continue
        if len(fields) != elements:
            raise ImageError(f"{where}, line {number}: {len(fields)} integers; expected {elements}, one row a line")
        try:
            rows.append(np.array(fields, dtype=np.int64))
        except (ValueError, OverflowError) as error:
            raise ImageError(f"{where}, line {number}: {line.strip()[:60]!r} is not integers of 64 bits") from error
    return np.stack(rows) if rows else np.zeros((0, elements), dtype=np.int64)


def read_words(text: str, elements: int, bits: int, signed: bool, form: str, where: str) -> IntArray:
    """Rows of ``elements`` integers from words, as :func:`words` and what Verilog's tools write: int64 (n, elements).

    Comments and underscores are passed over; an address (``@`` and hexadecimal digits) must be the place of the word
    that follows, for a gap would be a word that nobody gave.

    Raises
    ------
    ImageError
        Naming the line, for digits that are none (``x`` and ``z`` are values without one), words wider than the rows,
        or an address out of order.
    """
    width = elements * bits
    radix = RADIX[form]
    plain = _plain(text, width, radix)
    if plain is not None:
        return from_bits(plain, bits, signed)
    found: list[int] = []
    text = _COMMENT.sub(lambda comment: "\n" * comment.group().count("\n"), text)
    for number, line in enumerate(text.splitlines(), 1):
        for word in line.split():
            at = f"{where}, line {number}: {word[:60]!r}"
            digits = word.replace("_", "")
            if word.startswith("@"):
                if not re.fullmatch(r"@[0-9a-fA-F]+", word) or int(word[1:], 16) != len(found):
                    raise ImageError(
                        f"{at} is not the address of the next word, {len(found)}; give every word, in order"
                    )
                continue
            if re.search(r"[xXzZ?]", digits):
                raise ImageError(f"{at} has digits without a value; expected {form} digits: was it written too early?")
            if not re.fullmatch("[01]+" if radix == 2 else "[0-9a-fA-F]+", digits):
                raise ImageError(f"{at} is not a word of {form} digits")
            value = int(digits, radix)
            if value >> width:
                raise ImageError(
                    f"{at} has {value.bit_length()} bits; expected at most {width}, {elements} elements of {bits} bits"
                )
            found.append(value)
    size = -(-width // 8)
    raw = np.frombuffer(b"".join(value.to_bytes(size, "little") for value in found), dtype=np.uint8)
    unpacked = np.unpackbits(raw.reshape(len(found), size), axis=1, bitorder="little")[:, :width]
    return from_bits(unpacked, bits, signed)


_DIGITS = np.full(256, 255, dtype=np.uint8)
_DIGITS[np.frombuffer(b"0123456789abcdefABCDEF", dtype=np.uint8)] = [*range(16), *range(10, 16)]


def _plain(text: str, width: int, radix: int) -> Bits | None:
    """The bits (n, width) of a text that is words of ``width`` bits and nothing else, as we write them; None of others.

    Tens of times as fast as reading word by word; what is wrong with a text is for the slow way to say.
    """
    digit = radix.bit_length() - 1
    digits = -(-width // digit)
    raw = np.frombuffer(text.encode("ascii", "replace"), dtype=np.uint8)
    if raw.size % (digits + 1):
        return None
    lines = raw.reshape(-1, digits + 1)
    values = _DIGITS[lines[:, :digits]][:, ::-1]
    if (lines[:, digits] != ord("\n")).any() or (values >= radix).any():
        return None
    unpacked = ((values[:, :, None] >> np.arange(digit)) & 1).astype(np.uint8).reshape(len(lines), digits * digit)
    return None if unpacked[:, width:].any() else unpacked[:, :width]


def _rows(rows: ArrayLike, where: str) -> IntArray:
    array = np.asarray(rows)
    if array.ndim != 2 or array.dtype.kind not in "iu":
        raise ImageError(f"{where}: {array.dtype} array of shape {array.shape}; expected integers (rows, elements)")
    return array.astype(np.int64)
