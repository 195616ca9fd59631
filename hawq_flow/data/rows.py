"""Labels become class indices, and rows are dealt out to the three parts: stratified, seeded, the same everywhere.

Of the ``n_c`` rows of class ``c``, ``round(f n_c)`` go to the test and validation part of fraction ``f``, at least one
where ``f > 0``, and the rest to training. Which rows is decided by sorting random 64-bit words, PCG64's raw stream: a
stream that numpy promises never to change, so that a split is the same on every machine and version.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hawq_flow.data.errors import DataError, count, some


def class_indices(
    source: str, labels: NDArray[Any], name: str, *, least: int = 2
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Turn labels (n,), strings or integers, into indices int64 (n,) and the sorted class names, at least ``least``."""
    if labels.dtype.kind == "f":
        bad = np.flatnonzero(~np.isfinite(labels) | (labels != np.round(labels)))
        if bad.size:
            raise DataError(
                f"{source}: label column {name!r} holds {labels[bad[0]]} in row {bad[0]} (counted from 0), and "
                f"{bad.size} such values; expected strings or integers, none missing"
            )
        labels = labels.astype(np.int64)
    if labels.dtype.kind not in "biuUSO":
        raise DataError(f"{source}: label column {name!r} is of type {labels.dtype}; expected strings or integers")
    text = np.char.strip(labels.astype(str))
    empty = np.flatnonzero(text == "")
    if empty.size:
        raise DataError(
            f"{source}: label column {name!r} is empty in {empty.size} of {len(text)} rows, the first is row "
            f"{empty[0]} (counted from 0); expected a class in every row; drop those rows"
        )
    found, index = np.unique(text, return_inverse=True)
    names = [str(value) for value in found]
    if all(re.fullmatch(r"[+-]?\d+", value) for value in names):
        # "10" stands after "9", not before "2".
        order = np.array(sorted(range(len(names)), key=lambda i: (int(names[i]), names[i])))
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        index, names = rank[index], [names[i] for i in order]
    if len(names) < least:
        raise DataError(
            f"{source}: label column {name!r} holds only {some(map(repr, names))}; expected at least two classes"
        )
    return index.astype(np.int64).reshape(-1), tuple(names)


def check_fractions(source: str, val_fraction: float, test_fraction: float) -> None:
    """Refuse fractions outside [0, 1), no test rows, and sums that leave no training rows."""
    for name, value in (("val_fraction", val_fraction), ("test_fraction", test_fraction)):
        if not 0 <= value < 1:
            raise DataError(f"{source}: {name} is {value}; expected 0 <= {name} < 1")
    if test_fraction == 0:
        raise DataError(f"{source}: test_fraction is 0; expected more than 0: without test rows nothing is measured")
    if val_fraction + test_fraction >= 1:
        raise DataError(
            f"{source}: val_fraction {val_fraction} and test_fraction {test_fraction} leave no training rows; expected "
            "a sum below 1"
        )


def split_rows(
    y: NDArray[np.int64],
    classes: Sequence[str],
    val_fraction: float,
    test_fraction: float,
    seed: int,
    source: str = "data",
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows of the training, validation and test part, stratified by class and shuffled.

    Parameters
    ----------
    y:
        Classes, int64 of shape (n,), indices into ``classes``.
    classes:
        Class names, for errors.
    val_fraction, test_fraction:
        Fractions of all rows.
    seed:
        Non-negative integer.
    source:
        For errors.

    Returns
    -------
    tuple of numpy.ndarray
        Row numbers, int64: disjoint, together all rows.

    Raises
    ------
    DataError
        If a fraction is out of range, or a class has fewer rows than there are parts to fill.
    """
    check_fractions(source, val_fraction, test_fraction)
    if seed < 0:
        raise DataError(f"{source}: seed is {seed}; expected a non-negative integer")
    needed = 2 + (val_fraction > 0)
    counts = np.bincount(y, minlength=len(classes))
    small = [f"{classes[c]!r} ({n})" for c, n in enumerate(counts) if n < needed]
    if small:
        raise DataError(
            f"{source}: {count(small, 'class', 'classes')} with too few rows to be in every part: {some(small)}; "
            f"expected at least {needed} rows a class; add rows, or leave the class out"
        )
    # Two words for each row: by the first, the rows of a class are dealt out; by the second, each part is shuffled.
    deal, shuffle = np.random.PCG64(seed).random_raw(2 * len(y)).reshape(2, -1)
    order = np.argsort(deal, kind="stable")
    parts: tuple[list[NDArray[np.intp]], ...] = ([], [], [])
    for c, size in enumerate(counts.tolist()):
        rows = order[y[order] == c]
        # At least one row each, and one left for training.
        test = min(max(1, math.floor(test_fraction * size + 0.5)), size - needed + 1)
        val = min(max(1, math.floor(val_fraction * size + 0.5)), size - test - 1) if val_fraction > 0 else 0
        parts[0].append(rows[test + val :])
        parts[1].append(rows[test : test + val])
        parts[2].append(rows[:test])
    train, val_rows, test_rows = (
        rows[np.argsort(shuffle[rows], kind="stable")].astype(np.int64) for rows in map(np.concatenate, parts)
    )
    return train, val_rows, test_rows
