"""Signed digits: an integer as a sum of ``+-2^s``, and the choice among the shortest such sums.

The maths. Of all ways to write ``n = sum_s d_s 2^s`` with ``d_s`` in {-1, 0, 1}, the one in which of any two neighbours
one is 0 (the canonical form) is unique and has the fewest non-zero digits: (b + 1) / 3 on average for b bits
(Reitwiesner, "Binary Arithmetic", 1960). With ``t = 3n`` in two's complement, digit ``s`` is bit ``s + 1`` of ``t``
minus bit ``s + 1`` of ``n``, since ``n = (3n - n) / 2``.

It is not the only form with so few digits: ``2^(s+2) - 2^s = 2^(s+1) + 2^s``. Forms differ in what they share with the
digits of other entries, and in how wide their partial sums are: :func:`positive` avoids opposite signs, which keeps
sums of unsigned inputs unsigned, and :func:`agreeing` picks for each entry of a matrix the form whose digits make the
most frequent pairs with the other digits of its column.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hawq_flow.numeric import IntArray
from hawq_flow.to_rtl.adders import AdderError

Digits = NDArray[np.int8]
MAX_BITS = 60
"""Magnitudes stay below 2^60, so that three times them stays inside int64."""


def csd(values: ArrayLike) -> Digits:
    """Canonical signed digits, lowest first along a new last axis: integers below 2^60 -> (..., places) int8.

    As many places as the longest needs, at least 1.

    >>> csd([7, -3]).tolist()
    [[-1, 0, 0, 1], [1, 0, -1, 0]]
    """
    plus, minus = _masks(values)
    places = np.arange(max(1, int((plus | minus).max(initial=0)).bit_length()))
    return (((plus[..., None] >> places) & 1) - ((minus[..., None] >> places) & 1)).astype(np.int8)


HARD_DIGITS = 3
"""Non-zero digits from which a product by a constant stays a multiplication in Vivado and Vitis HLS."""


def csd_count(values: ArrayLike) -> IntArray:
    """How many non-zero canonical signed digits each integer (below 2^60 in magnitude) has, int64."""
    plus, minus = _masks(values)
    count: IntArray = np.bitwise_count(plus | minus).astype(np.int64)
    return count


def _masks(values: ArrayLike) -> tuple[IntArray, IntArray]:
    """Bit masks of the digits 1 and -1."""
    n = np.asarray(values, dtype=np.int64)
    if n.size and max(int(n.max()), -int(n.min())) >= 1 << MAX_BITS:
        raise AdderError(f"csd: {n.flat[int(abs(n).argmax())]} is too large; expected magnitudes below 2^{MAX_BITS}")
    triple = 3 * n
    return (triple & ~n) >> 1, (~triple & n) >> 1


def positive(values: ArrayLike) -> Digits:
    """As few digits as :func:`csd`, but 2 + 1 for 4 - 1 (and -2 - 1 for -4 + 1) wherever that is possible.

    >>> positive([3, 7, 11]).tolist()
    [[1, 1, 0, 0, 0], [-1, 0, 0, 1, 0], [1, 1, 0, 1, 0]]
    """
    digits = csd(values)
    for s in range(digits.shape[-1] - 3, -1, -1):
        low, middle, high = digits[..., s], digits[..., s + 1], digits[..., s + 2]
        fits = (middle == 0) & (low * high == -1)
        low[fits] = middle[fits] = high[fits]
        high[fits] = 0
    return digits


@lru_cache(maxsize=1 << 16)
def minimal_forms(value: int, count: int, places: int) -> tuple[tuple[int, ...], ...]:
    """All digit tuples of ``places`` digits, ``count`` of them non-zero, that sum to ``value``."""
    if value == 0:
        return ((0,) * places,) if count == 0 else ()
    if places == 0 or count == 0:
        return ()
    if value % 2 == 0:
        return tuple((0, *form) for form in minimal_forms(value // 2, count, places - 1))
    return tuple((d, *form) for d in (1, -1) for form in minimal_forms((value - d) // 2, count - 1, places - 1))


MAX_PAIRS = 1 << 23
"""Pairs of a place and a digit in all columns up to which :func:`agreeing` is tried (a second)."""


def can_agree(start: Digits) -> bool:
    """Whether :func:`agreeing` has a choice and is not too slow."""
    inputs, outputs, places = start.shape
    return bool(outputs > 1 and 2 * inputs * places * np.count_nonzero(start) <= MAX_PAIRS)


def agreeing(start: Digits, rounds: int = 4) -> Digits:
    """Of each entry's shortest forms, the one whose digits make the most frequent pairs in its column.

    ``start`` (inputs, outputs, places): digits to begin from. Column by column, ``rounds`` times or until nothing
    changes, every entry of the column takes the form with the largest sum, over its digits and the other digits of the
    column, of ``N^1.5``, ``N`` how often such a pair (two inputs, relative shift, relative sign) occurs in the other
    columns. The values do not change, nor the number of digits.
    """
    inputs, outputs, places = start.shape
    digits = start.copy()
    values = (digits.astype(np.int64) << np.arange(places)).sum(axis=2)
    forms, form_of = _forms(values, places)
    table = np.zeros((2, inputs, inputs, 2 * places - 1))
    for j in range(outputs):
        _count_pairs(digits[:, j], table, 1)
    offsets = np.arange(places)[:, None] - np.arange(places)[None, :] + places - 1
    rows = np.arange(inputs)
    for _ in range(rounds):
        before = digits.copy()
        for j in range(outputs):
            column = digits[:, j]
            _count_pairs(column, table, -1)
            worth = table * np.sqrt(table)
            i, s = np.nonzero(column)
            up = column[i, s] > 0
            # (2, inputs, places, digits): worth of a digit at (input, place) of the same and of the opposite sign.
            pairs = worth[:, rows[:, None, None], i, (offsets.T[s].T)[None]]
            pairs *= (rows[:, None] != i)[None, :, None, :]
            plus = np.where(up, pairs[0], pairs[1]).sum(axis=-1)
            minus = np.where(up, pairs[1], pairs[0]).sum(axis=-1)
            choice = forms[form_of[:, j]]  # (inputs, forms, places)
            score = np.einsum("ifp,ip->if", choice == 1, plus) + np.einsum("ifp,ip->if", choice == -1, minus)
            within = worth[:, rows, rows][:, :, offsets] * np.tri(places, k=-1)
            together = choice[:, :, :, None] * choice[:, :, None, :]
            score += np.einsum("ifpq,ipq->if", together == 1, within[0])
            score += np.einsum("ifpq,ipq->if", together == -1, within[1])
            score[(choice == 2).any(axis=2)] = -1
            held = (choice == column[:, None, :]).all(axis=2)
            score += held * (1e-9 * (1 + score))
            digits[:, j] = choice[rows, score.argmax(axis=1)]
            _count_pairs(digits[:, j], table, 1)
        if np.array_equal(before, digits):
            break
    return digits


def _forms(values: IntArray, places: int) -> tuple[Digits, IntArray]:
    """(distinct values, forms, places), filled up with twos where a value has fewer forms; which row an entry has."""
    distinct, index = np.unique(values, return_inverse=True)
    found = [minimal_forms(int(v), int(n), places) for v, n in zip(distinct, csd_count(distinct), strict=True)]
    most = max(len(forms) for forms in found)
    table = np.full((len(distinct), most, places), 2, dtype=np.int8)
    for row, forms in zip(table, found, strict=True):
        row[: len(forms)] = forms
    return table, index.reshape(values.shape)


def _count_pairs(column: Digits, table: NDArray[np.float64], by: int) -> None:
    """Add ``by`` to the table for every ordered pair of digits of a column (inputs, places)."""
    i, s = np.nonzero(column)
    up = column[i, s] > 0
    inputs, places = column.shape
    span = 2 * places - 1
    index = ((up[:, None] != up) * inputs + i[:, None]) * inputs * span + (i * span - s + places - 1) + s[:, None]
    flat = table.reshape(-1)
    entries, counts = np.unique(index, return_counts=True)
    flat[entries] += by * counts
