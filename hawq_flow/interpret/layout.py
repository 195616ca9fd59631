"""How values lie in memory. Every array is indexed (n, channels, *space); the order in memory is free.

Many rows (``TOGETHER`` or more) lie with the row innermost, (channels, *space, n), so that the inner loops of small
images run over rows; few rows lie as they are indexed, and convolutions take them one by one. numpy's element-wise
functions keep whatever order they are given, so only ops that make an array of another shape have to choose.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

TOGETHER = 4
"""Rows from which on a block of values lies with the row innermost."""


def empty(shape: Sequence[int], dtype: Any) -> NDArray[Any]:
    """An uninitialized array (n, channels, *space) in the order of this module."""
    n, *rest = shape
    if n < TOGETHER:
        return np.empty((n, *rest), dtype)
    return np.moveaxis(np.empty((*rest, n), dtype), -1, 0)


def parts(n: int) -> list[slice]:
    """Rows that lie together: all, or each on its own."""
    return [slice(0, n)] if n >= TOGETHER else [slice(i, i + 1) for i in range(n)]


def pad(x: NDArray[Any], padding: Sequence[int], fill: float, dtype: Any) -> NDArray[Any]:
    """``x`` (channels, *space, n) as ``dtype`` with ``fill`` around its space; C-ordered when there is padding."""
    if not any(padding):
        return x.astype(dtype, copy=False)
    rank = len(padding) // 2
    inside = tuple(slice(padding[i], padding[i] + x.shape[1 + i]) for i in range(rank))
    space = (x.shape[1 + i] + padding[i] + padding[rank + i] for i in range(rank))
    result = np.full((x.shape[0], *space, x.shape[-1]), fill, dtype)
    result[(slice(None), *inside)] = x
    return result
