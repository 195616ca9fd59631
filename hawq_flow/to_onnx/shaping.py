"""Everything without weights: what moves integers, adds or multiplies values, reduces them, looks them up."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from hawq_flow.network import (
    Add,
    Concat,
    Lookup,
    MaxPool,
    Multiply,
    Pad,
    ReduceMax,
    ReduceSum,
    Reshape,
    Subtract,
    Upsample,
    window_shape,
)
from hawq_flow.to_onnx.containers import FLOAT, INT8, INT64, UINT8, Dtype, accumulator, container, worked
from hawq_flow.to_onnx.nodes import Nodes, integers
from hawq_flow.to_onnx.plan import Dialect, OpPlan


def reshape(nodes: Nodes, plan: OpPlan, x: Any) -> Any:
    """The same integers in another shape."""
    op = plan.op
    assert isinstance(op, Reshape)
    y = nodes("Reshape", x, integers(nodes, [-1, *op.to], "shape"), what="reshaped")
    return nodes.finish(y, plan.sources[0], plan.target)


def pad(nodes: Nodes, plan: OpPlan, x: Any) -> Any:
    """One integer around the space of a value."""
    op = plan.op
    assert isinstance(op, Pad)
    work = worked(plan.sources[0])
    y = _padded(nodes, nodes.cast(x, plan.sources[0], work, "wide"), work, op.padding, op.value)
    return nodes.finish(y, work, plan.target)


def _padded(nodes: Nodes, x: Any, dtype: Dtype, padding: Sequence[int], value: int) -> Any:
    rank = len(padding) // 2
    pads = integers(nodes, [0, 0, *padding[:rank], 0, 0, *padding[rank:]], "pads")  # not batch, not channels
    return nodes("Pad", x, pads, nodes.constant(value, dtype, "pad_value"), mode="constant", what="padded")


def max_pool(nodes: Nodes, plan: OpPlan, x: Any) -> Any:
    """MaxPool on bytes, or on float32 that holds the integers; else the maximum of the window's places.

    A stride of ones takes the second form, too: onnx's reference evaluator has a path of its own for it, which fills
    the padding with NaN and so raises on integers, and reads the four paddings in another order than ONNX's.
    """
    op = plan.op
    assert isinstance(op, MaxPool)
    source = plan.sources[0]
    byte = source in (INT8, UINT8)
    real = plan.dialect is not Dialect.INTEGER and plan.operands[0].magnitude < 1 << 24
    if max(op.stride) > 1 and (byte or real):
        work = source if byte else FLOAT
        window = {"kernel_shape": list(op.kernel), "strides": list(op.stride), "pads": list(op.padding)}
        y = nodes("MaxPool", nodes.cast(x, source, work, "wide"), what="largest", **window)
        return nodes.finish(y, work, plan.target)
    work = worked(source)
    y = nodes.cast(x, source, work, "wide")
    least = int(plan.operands[0].low.min())  # no larger than any element, so padding never wins
    if any(op.padding):
        y = _padded(nodes, y, work, op.padding, least)
    rank = len(op.kernel)
    positions = window_shape(op.name, plan.operands[0].shape, op.kernel, op.stride, op.padding)
    axes, steps = integers(nodes, range(2, 2 + rank), "axes"), integers(nodes, op.stride, "steps")
    taps = []
    for i, place in enumerate(product(*map(range, op.kernel))):
        ends = [p + (n - 1) * s + 1 for p, n, s in zip(place, positions, op.stride, strict=True)]
        starts = integers(nodes, place, f"place{i}/starts")
        taps.append(nodes("Slice", y, starts, integers(nodes, ends, f"place{i}/ends"), axes, steps, what=f"place{i}"))
    return nodes.finish(nodes("Max", *taps, what="largest"), work, plan.target)


def upsample(nodes: Nodes, plan: OpPlan, x: Any) -> Any:
    """Resize to nearest neighbours, by sizes; or a Gather for each axis.

    Resize has no kernel for int64; it finds its places in floats and has attributes that are, so INTEGER has none.
    """
    op = plan.op
    assert isinstance(op, Upsample)
    source = plan.sources[0]
    if source == INT64 or plan.dialect is Dialect.INTEGER:
        y = x
        for axis, (size, factor) in enumerate(zip(plan.operands[0].shape[1:], op.factors, strict=True), start=2):
            places = integers(nodes, np.repeat(np.arange(size), factor).tolist(), f"axis{axis}/places")
            y = nodes("Gather", y, places, axis=axis, what=f"axis{axis}")
        return nodes.finish(y, source, plan.target)
    work = worked(source)
    sizes = integers(nodes, plan.value.shape[1:], "sizes")
    y = nodes(
        "Resize",
        nodes.cast(x, source, work, "wide"),
        None,
        None,
        sizes,
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
        axes=list(range(2, 1 + len(plan.value.shape))),
        what="repeated",
    )
    return nodes.finish(y, work, plan.target)


def concat(nodes: Nodes, plan: OpPlan, operands: Sequence[Any]) -> Any:
    """Side by side, all in the result's container."""
    op = plan.op
    assert isinstance(op, Concat)
    return nodes("Concat", *_cast(nodes, plan, operands, plan.target), axis=op.axis + 1, what="joined")


def add(nodes: Nodes, plan: OpPlan, operands: Sequence[Any]) -> Any:
    """A chain of sums in int32 or int64, by the bound."""
    assert isinstance(plan.op, Add)
    work = accumulator(plan.value.bound)
    total, *others = _cast(nodes, plan, operands, work)
    for i, other in enumerate(others, start=1):
        total = nodes("Add", total, other, what=f"sum{i}")
    return nodes.finish(total, work, plan.target)


def binary(nodes: Nodes, plan: OpPlan, operands: Sequence[Any]) -> Any:
    """A difference or a product in int32 or int64, by the bound."""
    assert isinstance(plan.op, Subtract | Multiply)
    work = accumulator(plan.value.bound)
    kind = "Sub" if isinstance(plan.op, Subtract) else "Mul"
    return nodes.finish(nodes(kind, *_cast(nodes, plan, operands, work), what="result"), work, plan.target)


def _cast(nodes: Nodes, plan: OpPlan, operands: Sequence[Any], want: Dtype) -> list[Any]:
    return [
        nodes.cast(x, have, want, f"wide{i}") for i, (x, have) in enumerate(zip(operands, plan.sources, strict=True))
    ]


def reduce(nodes: Nodes, plan: OpPlan, x: Any) -> Any:
    """The largest element or the sum along an axis, which stays with length 1."""
    op = plan.op
    assert isinstance(op, ReduceMax | ReduceSum)
    work = worked(plan.sources[0]) if isinstance(op, ReduceMax) else accumulator(plan.value.bound)
    y = nodes.cast(x, plan.sources[0], work, "wide")
    y = nodes(op.kind, y, integers(nodes, [op.axis + 1], "axes"), keepdims=1, what="reduced")
    return nodes.finish(y, work, plan.target)


def lookup(nodes: Nodes, plan: OpPlan, x: Any) -> Any:
    """A Gather of the table, or what the plan's ``form`` writes in its place."""
    op = plan.op
    assert isinstance(op, Lookup)
    if plan.form is not None:
        return plan.form(nodes, plan, x)
    index = nodes.cast(x, plan.sources[0], INT64, "wide")
    if op.start:
        index = nodes("Sub", index, nodes.constant(op.start, INT64, "start"), what="index")
    entries = container(int(op.table.min()), int(op.table.max()))  # wider than the result's if it is not all in use
    y = nodes("Gather", nodes.constant(op.table, entries, "table"), index, axis=0, what="entry")
    return nodes.finish(y, entries, plan.target)
