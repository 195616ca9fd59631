"""The integer types that values travel in: those of ONNX which every runtime's kernels take somewhere."""

from __future__ import annotations

from typing import Any

import numpy as np

Dtype = np.dtype[Any]
INT8, UINT8, INT16, UINT16, INT32, INT64 = (
    np.dtype(name) for name in ("int8", "uint8", "int16", "uint16", "int32", "int64")
)
FLOAT, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)
CONTAINERS = (UINT8, INT8, UINT16, INT16, INT32, INT64)
"""From narrow to wide; an unsigned type of more than 16 bits travels in a signed container."""


def container(low: int, high: int) -> Dtype:
    """The narrowest container of the integers from ``low`` to ``high``."""
    return next(c for c in CONTAINERS if np.iinfo(c).min <= low and high <= np.iinfo(c).max)


def accumulator(bound: int) -> Dtype:
    """int32 where no intermediate reaches 2^31, else int64 (``network.verify`` keeps all below 2^62)."""
    return INT32 if bound < 1 << 31 else INT64


def worked(dtype: Dtype) -> Dtype:
    """``dtype``, or int32 for the 16-bit ones, which hardly any operator of a runtime takes."""
    return INT32 if dtype in (INT16, UINT16) else dtype
