"""One function for each op: its constants converted once, its dtype the narrowest that the proof allows.

Values travel as float32, float64 or int64, always whole numbers that the dtype holds exactly. A step converts its
operands to the dtype that its own ``Value.bound`` allows; operands beyond that bound are none of its concern (they meet
a weight of zero, or no window).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hawq_flow.interpret.layout import empty, pad
from hawq_flow.interpret.products import Step, conv, dense
from hawq_flow.network import (
    Add,
    Concat,
    Conv,
    Dense,
    Lookup,
    MaxPool,
    Multiply,
    Op,
    Pad,
    ReduceMax,
    ReduceSum,
    Requantize,
    Reshape,
    Subtract,
    SumPool,
    Upsample,
    Value,
    forward,
)
from hawq_flow.numeric import Overflow, Rounding, lossless_float


def step(op: Op, values: Mapping[str, Value]) -> Step:
    """The function that computes ``op``: arrays (n, *shape), one an operand -> (n, *shape)."""
    value = values[op.name]
    dtype = lossless_float(value.bound) or np.dtype(np.int64)
    match op:
        case Dense():
            return dense(op, values[op.input], value)
        case Conv():
            return conv(op, values[op.input], value)
        case Requantize():
            return _requantize(op, value)
        case Reshape():
            return lambda x: x.reshape((len(x), *op.to))
        case Pad():
            return lambda x: _back(pad(np.moveaxis(x, 0, -1), op.padding, op.value, dtype))
        case MaxPool():
            return lambda x: _pool(op, x, np.maximum, dtype)
        case SumPool():
            return lambda x: _pool(op, x, np.add, dtype)
        case Upsample():
            return lambda x: _upsample(op, x)
        case Concat():
            return lambda *xs: np.concatenate([x.astype(dtype, copy=False) for x in xs], axis=op.axis + 1)
        case Add():
            return lambda *xs: _chain(np.add, xs, dtype)
        case Subtract():
            return lambda *xs: _chain(np.subtract, xs, dtype)
        case Multiply():
            return lambda *xs: _chain(np.multiply, xs, dtype)
        case ReduceMax():
            return lambda x: np.asarray(x.max(axis=op.axis + 1, keepdims=True))
        case ReduceSum():
            return lambda x: np.asarray(x.astype(dtype, copy=False).sum(axis=op.axis + 1, keepdims=True))
        case Lookup():
            return _lookup(op)


def _back(x: NDArray[Any]) -> NDArray[Any]:
    """(channels, *space, n) -> (n, channels, *space), a view."""
    return np.moveaxis(x, -1, 0)


def _chain(function: np.ufunc, operands: tuple[NDArray[Any], ...], dtype: Any) -> NDArray[Any]:
    """``function`` over two or more operands from the left, in ``dtype``."""
    first, *rest = (x.astype(dtype, copy=False) for x in operands)
    result = function(first, rest[0])
    for other in rest[1:]:
        result = function(result, other)
    return np.asarray(result)


def _requantize(op: Requantize, value: Value) -> Step:
    dtype = lossless_float(value.bound)
    if dtype is None or op.overflow is Overflow.WRAP:
        return lambda x: forward(op, [np.asarray(x).astype(np.int64)])
    rank = len(value.shape)
    # ldexp of an integer below 2^31 by at most 61 is exact in float64, and in float32 when the multiplier fits 24 bits.
    factor = np.ldexp(op.multiplier.astype(np.float64), -op.shift).astype(dtype)
    offset, low, high = op.offset.astype(dtype), op.type.low(rank).astype(dtype), op.type.high(rank).astype(dtype)
    shifted = bool(op.offset.any())
    # Without a shift there is nothing to round, and a half would not fit beside an odd sum near the float's limit.
    half = np.where(op.shift > 0, 0.5, 0.0).astype(dtype)
    # A clipped result needs no more than the type's width, so the next matrix product gets float32 when that is exact.
    out = lossless_float(max(abs(value.type.range[0]), abs(value.type.range[1]))) or dtype

    def step(x: NDArray[Any]) -> NDArray[Any]:
        y = np.multiply(x, factor, dtype=dtype)
        if op.rounding is Rounding.HALF_EVEN:
            np.rint(y, out=y)
        else:
            if op.rounding is Rounding.HALF_UP:
                y += half
            np.floor(y, out=y)
        if shifted:
            y += offset
        np.maximum(y, low, out=y)
        np.minimum(y, high, out=y)
        return np.asarray(y.astype(out, copy=False))

    return step


def _pool(op: MaxPool | SumPool, x: NDArray[Any], function: np.ufunc, dtype: Any) -> NDArray[Any]:
    """Shifted views combined axis by axis: x (n, channels, *space) -> (n, channels, *positions)."""
    fill: float = 0
    if function is np.maximum:  # a window always meets an element, so whatever is no larger than any integer will do
        fill = -np.inf if np.dtype(dtype).kind == "f" else int(np.iinfo(np.int64).min)
    x = _back(pad(np.moveaxis(x, 0, -1), op.padding, fill, dtype))
    for axis, (size, step) in enumerate(zip(op.kernel, op.stride, strict=True), start=2):
        last = (x.shape[axis] - size) // step * step  # where the last window starts
        if last == 0 and size > 1:
            x = function.reduce(x[(slice(None),) * axis + (slice(0, size),)], axis=axis, keepdims=True)
            continue
        shifted = [x[(slice(None),) * axis + (slice(i, i + last + 1, step),)] for i in range(size)]
        x = shifted[0]
        for i, other in enumerate(shifted[1:]):
            x = function(x, other, out=x if i else None)
    return x


def _upsample(op: Upsample, x: NDArray[Any]) -> NDArray[Any]:
    out = empty((*x.shape[:2], *(n * factor for n, factor in zip(x.shape[2:], op.factors, strict=True))), x.dtype)
    for offset in np.ndindex(*op.factors):
        every = (slice(i, None, factor) for i, factor in zip(offset, op.factors, strict=True))
        out[(slice(None), slice(None), *every)] = x
    return out


def _lookup(op: Lookup) -> Callable[[NDArray[Any]], NDArray[Any]]:
    table = op.table.astype(lossless_float(int(np.abs(op.table).max())) or np.int64)
    return lambda x: np.asarray(table[x.astype(np.int64) - op.start])
