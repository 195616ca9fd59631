"""Rows of integers that a module is tried on: within the ranges its inputs have, their ends included."""

from __future__ import annotations

import numpy as np

from hawq_flow.numeric import IntArray


def drawn(low: IntArray, high: IntArray, count: int) -> IntArray:
    """Rows (count, elements) from ``low`` to ``high`` (elements,), always the same; ``count`` is 8 or more.

    The two ends; a quarter of corners; a quarter in which few elements are not 0 (or next to it), for sums at their
    extremes; the rest uniform.
    """
    random = np.random.default_rng(0)
    rows = random.integers(low, high, (count, len(low)), endpoint=True)
    rows[0], rows[1] = low, high
    quarter = count // 4
    rows[2:quarter] = np.where(random.random((quarter - 2, len(low))) < 0.5, low, high)
    still = np.clip(0, low, high)
    some = random.random((quarter, len(low))) < random.random((quarter, 1))
    rows[quarter : 2 * quarter] = np.where(some, rows[quarter : 2 * quarter], still)
    return rows
