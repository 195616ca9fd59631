"""Requantize: the integer multiplier, the right shift, rounding, zero point and clipping, in each of three dialects.

A factor of exactly 1 (multiplier 1, shift 0 throughout) has nothing to round: it is an addition and a clip of integers.

* ``FLOAT32``: ``Mul(m)``, ``Mul(2^-c)``, rounding and saturation by QuantizeLinear of scale 1, whose zero point is
  the offset. Floor and half up round before it. Where QuantizeLinear cannot say it (a container of more than 16
  bits, an offset that its container does not hold or that channels have of their own), the next form in float32.
* ``FLOAT64``: ``Mul(m)``, ``Mul(2^-c)``, Round or Floor, Add(offset), Clip, Cast, in double.
* ``INTEGER``: on int64, ``p = x * m``; with ``h = 2^(c-1)`` the result is ``(p + h - 1 + ((p >> c) & 1)) >> c`` to
  nearest even, ``p >> c`` to floor, ``(p + h) >> c`` half up (where c = 0, p itself), by arithmetic shifts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hawq_flow.network import Requantize
from hawq_flow.numeric import IntArray, Rounding
from hawq_flow.to_onnx.containers import DOUBLE, FLOAT, INT8, INT64, UINT8, Dtype, accumulator
from hawq_flow.to_onnx.nodes import Nodes
from hawq_flow.to_onnx.plan import Dialect, OpPlan


def requantize(nodes: Nodes, plan: OpPlan, x: Any) -> Any:
    """The nodes of a Requantize."""
    op = plan.op
    assert isinstance(op, Requantize)
    assert plan.requantize is not None
    if plan.requantize.identity:
        return _shifted(nodes, plan, op, x)
    if plan.dialect is Dialect.INTEGER:
        return _whole(nodes, plan, op, x)
    real = FLOAT if plan.dialect is Dialect.FLOAT32 else DOUBLE
    y = nodes.cast(x, plan.sources[0], real, "real")
    y = nodes("Mul", y, nodes.constant(op.multiplier, real, "multiplier"), what="product")
    y = nodes("Mul", y, nodes.constant(np.ldexp(1.0, -op.shift), real, "right_shift"), what="scaled")
    rounded = op.rounding is not Rounding.HALF_EVEN
    if op.rounding is Rounding.HALF_UP:
        y = nodes("Add", y, nodes.constant(0.5, real, "half"), what="plus_half")
    if rounded:
        y = nodes("Floor", y, what="rounded")
    if real == FLOAT and _quantizes(op, plan.target):
        return _quantized(nodes, plan, op, y)
    if not rounded:
        y = nodes("Round", y, what="rounded")
    return _clipped(nodes, plan, op, y, real)


def _quantizes(op: Requantize, target: Dtype) -> bool:
    """Whether QuantizeLinear can say the offset and the type."""
    if not op.type.uniform or np.unique(op.offset).size != 1 or target.itemsize > 2:
        return False
    return bool(np.iinfo(target).min <= op.offset.min() and op.offset.max() <= np.iinfo(target).max)


def _quantized(nodes: Nodes, plan: OpPlan, op: Requantize, y: Any) -> Any:
    offset = int(op.offset.flat[0])
    low, high = op.type.range
    full = (low, high) == (np.iinfo(plan.target).min, np.iinfo(plan.target).max)
    if not op.type.signed and offset == 0:
        y = nodes("Relu", y, what="relu")
    assert plan.requantize is not None
    reach = max(int(np.abs(plan.requantize.low).max()), int(np.abs(plan.requantize.high).max()))
    byte = plan.target in (INT8, UINT8)
    # Runtimes have no Clip of 16 bits; and beyond int32 an implementation may round into that before it saturates.
    early = (not byte and not full) or reach >= 1 << 30
    if early:
        y = nodes.clip(y, FLOAT, np.float32(low - offset), np.float32(high - offset))
    scale = nodes.constant(np.float32(1), FLOAT, "scale")
    zero_point = nodes.constant(offset, plan.target, "zero_point")
    q = nodes("QuantizeLinear", y, scale, zero_point, what="quantized")
    if byte and not full and not early:
        q = nodes.clip(q, plan.target, low, high)
    return q


def _clipped(nodes: Nodes, plan: OpPlan, op: Requantize, y: Any, dtype: Dtype) -> Any:
    """``y``, whole numbers carried in ``dtype``, with the offset, cut to the type, in its container."""
    rank = len(plan.value.shape)
    if op.offset.any():
        y = nodes("Add", y, nodes.constant(op.offset, dtype, "offset"), what="shifted")
    # What the dtype carries exactly; a bound beyond cuts nothing, for no value here is larger.
    reach = (1 << np.finfo(dtype).nmant + 1) if dtype.kind == "f" else int(np.iinfo(dtype).max)
    low, high = (np.clip(bound, -reach, reach) for bound in _bounds(op, rank))
    return nodes.finish(nodes.clip(y, dtype, low, high), dtype, plan.target)


def _bounds(op: Requantize, rank: int) -> tuple[IntArray, IntArray]:
    if op.type.uniform:
        return np.asarray(op.type.range[0]), np.asarray(op.type.range[1])
    return op.type.low(rank), op.type.high(rank)


def _shifted(nodes: Nodes, plan: OpPlan, op: Requantize, x: Any) -> Any:
    """A factor of 1: integers plus the offset, cut to the type."""
    work = accumulator(plan.operands[0].magnitude + int(np.abs(op.offset).max()))
    return _clipped(nodes, plan, op, nodes.cast(x, plan.sources[0], work, "wide"), work)


def _whole(nodes: Nodes, plan: OpPlan, op: Requantize, x: Any) -> Any:
    shifts = op.shift > 0
    half = np.where(shifts, np.int64(1) << np.maximum(op.shift - 1, 0), 0)
    y = nodes.cast(x, plan.sources[0], INT64, "wide")
    y = nodes("Mul", y, nodes.constant(op.multiplier, INT64, "multiplier"), what="product")
    if shifts.any():
        shift = nodes.constant(op.shift, INT64, "right_shift")
        if op.rounding is Rounding.HALF_UP:
            y = nodes("Add", y, nodes.constant(half, INT64, "half"), what="plus_half")
        elif op.rounding is Rounding.HALF_EVEN:
            floor = nodes("BitShift", y, shift, direction="RIGHT", what="floor")
            odd = nodes("BitwiseAnd", floor, nodes.constant(shifts.astype(np.int64), INT64, "one"), what="odd")
            y = nodes("Add", y, nodes.constant(np.where(shifts, half - 1, 0), INT64, "below_half"), what="plus_half")
            y = nodes("Add", y, odd, what="ties_to_even")
        y = nodes("BitShift", y, shift, direction="RIGHT", what="rounded")
    return _clipped(nodes, plan, op, y, INT64)
