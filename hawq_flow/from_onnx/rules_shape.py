"""Rules that move, pick, pool or gather: bookkeeping of indices, and ops of the IR where integers change."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hawq_flow.from_onnx.affine import Rationals, compress, exact, full, only
from hawq_flow.from_onnx.clamping import materialized
from hawq_flow.from_onnx.layers import centred, grid_of, pad, pads, zero_of
from hawq_flow.from_onnx.nodes import Node
from hawq_flow.from_onnx.refusals import Refuse
from hawq_flow.from_onnx.rules_quant import as_integers
from hawq_flow.from_onnx.tensors import Const, Grid, Known, Left, Tabulated, Tensor, fresh, scalar
from hawq_flow.network import MAX_TABLE, Concat, Lookup, MaxPool, ReduceMax, ReduceSum, SumPool, Upsample, patches

Rearranges = Callable[[NDArray[Any]], NDArray[Any]]


def rearranged(node: Node, function: Rearranges) -> Known:
    """Input 0 with its elements moved or picked by a function of arrays of its shape."""
    found = node.inputs[0]
    match found:
        case Const():
            grid = found.grid.map(function) if found.grid else None
            return Const(np.array(function(found.array)), grid)
        case Tensor():
            return found.map(function)
        case Tabulated():
            return dataclasses.replace(found, before=found.before.map(function), tensor="")
        case Left():
            return found
        case _:
            raise Refuse("no input")


def _axes(node: Node, i: int = 1) -> list[int] | None:
    if node.given(i):
        return [int(v) for v in as_integers(node.constant(i, "axes")).reshape(-1)]
    return node.ints("axes", []) if "axes" in node.attributes else None


def identity(node: Node) -> Known:
    """Identity and Dropout in inference."""
    old = node.op_type == "Dropout" and node.opset < 7 and not int(node.attributes.get("is_test", 0))
    if old or (node.op_type == "Dropout" and node.given(2) and node.constant(2, "training_mode").array.any()):
        raise Refuse("drops elements at random (training mode); export the model in eval mode")
    return rearranged(node, lambda a: a)


def transpose(node: Node) -> Known:
    """Transpose."""
    rank = len(_rank_of(node))
    perm = node.ints("perm", list(reversed(range(rank))))
    return rearranged(node, lambda a: np.transpose(a, perm))


def _rank_of(node: Node) -> tuple[int, ...]:
    found = node.inputs[0]
    if found is None:
        raise Refuse("no input")
    return found.shape


def reshape(node: Node) -> Known:
    """Reshape; the batch is one row, so the element count of a row must not change."""
    shape = _rank_of(node)
    wanted = as_integers(node.constant(1, "shape")).reshape(-1).tolist() if node.given(1) else node.ints("shape", [])
    if not int(node.attributes.get("allowzero", 0)):
        wanted = [shape[i] if n == 0 else n for i, n in enumerate(wanted)]
    size = math.prod(shape)
    known = math.prod(n for n in wanted if n != -1)
    if (-1 not in wanted and known != size) or (-1 in wanted and (known == 0 or size % known)):
        raise Refuse(f"reshapes {shape} (one row) to {wanted}; the shape fixes a batch, or mixes its rows")
    return rearranged(node, lambda a: a.reshape(wanted))


def flatten(node: Node) -> Known:
    """Flatten."""
    shape = _rank_of(node)
    axis = int(node.attributes.get("axis", 1))
    axis = axis if axis == len(shape) else node.axis(axis, len(shape))
    return rearranged(node, lambda a: a.reshape(math.prod(shape[:axis]), -1))


def squeeze(node: Node) -> Known:
    """Squeeze; without axes every axis of one but the batch's."""
    shape = _rank_of(node)
    axes = _axes(node)
    if axes is None:
        axes = [i for i, n in enumerate(shape) if n == 1 and (i or isinstance(node.inputs[0], Const))]
    axes = [node.axis(axis, len(shape)) for axis in axes]
    return rearranged(node, lambda a: np.squeeze(a, tuple(axes)))


def unsqueeze(node: Node) -> Known:
    """Unsqueeze."""
    axes = _axes(node)
    if axes is None:
        raise Refuse("has no axes")
    rank = len(_rank_of(node)) + len(axes)
    places = tuple(node.axis(n, rank) for n in axes)
    return rearranged(node, lambda a: np.expand_dims(a, places))


def gather(node: Node) -> Known:
    """Gather with constant indices: elements picked; or of a constant by a value's integers: a table."""
    if isinstance(node.inputs[0], Const) and not isinstance(node.inputs[1], Const):
        return _table_of(node, node.inputs[0])
    indices = as_integers(node.constant(1, "indices"))
    shape = _rank_of(node)
    axis = node.axis(int(node.attributes.get("axis", 0)), len(shape))
    if indices.min() < -shape[axis] or indices.max() >= shape[axis]:
        raise Refuse(f"picks entries {indices.min()} to {indices.max()} of {shape[axis]} along axis {axis}")
    return rearranged(node, lambda a: np.take(a, indices, axis=axis))


def _table_of(node: Node, data: Const) -> Known:
    """``data[x]`` for whole numbers x: a Lookup where the data lie on a grid, else a table for a quantizer."""
    builder = node.builder
    tensor = materialized(builder, node.tensor(1), f"{node.name}_in", "a table")
    scale, offset = only(tensor.scale), only(tensor.offset)
    if data.array.ndim != 1 or scale is None or offset is None or scale.denominator != 1 or offset.denominator != 1:
        raise Refuse("picks from a table of several axes, or by numbers that are not whole")
    value = builder.value(tensor)
    first, last = int(value.low.min()), int(value.high.max())
    if last - first >= MAX_TABLE:
        raise Refuse(f"picks by {last - first + 1} integers; a table has {MAX_TABLE} entries")
    places = np.array([int(scale * a + offset) for a in range(first, last + 1)])
    size = data.array.size
    if places.min() < -size or places.max() >= size:
        raise Refuse(f"picks entries {places.min()} to {places.max()} of a table of {size}")
    try:
        whole = data.grid is None and bool((data.array == np.rint(data.array)).all())
        grid = Grid(as_integers(data), scalar(1)) if whole else grid_of(data, "entries")
    except Refuse:
        return Tabulated(tensor, node.names[1], data.array[places].astype(np.float64), first, "table")
    if grid.scale.size > 1:
        return Tabulated(tensor, node.names[1], data.array[places].astype(np.float64), first, "table")
    made = builder.add(
        Lookup(builder.name(node.name), tensor.name, grid.integers[places], first, "a table of the source")
    )
    return fresh(made, builder.positions(tensor), grid.scale, scalar(0))


def slice_(node: Node) -> Known:
    """Slice with constant bounds."""
    shape = _rank_of(node)
    if node.given(1):
        starts, ends = (as_integers(node.constant(i, "bounds")).reshape(-1).tolist() for i in (1, 2))
        axes = as_integers(node.constant(3, "axes")).reshape(-1).tolist() if node.given(3) else list(range(len(starts)))
        steps = as_integers(node.constant(4, "steps")).reshape(-1).tolist() if node.given(4) else [1] * len(starts)
    else:
        starts, ends = node.ints("starts", []), node.ints("ends", [])
        axes, steps = node.ints("axes", list(range(len(starts)))), [1] * len(starts)
    picks = [slice(None)] * len(shape)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        axis = node.axis(axis, len(shape))
        if step == 0:
            raise Refuse("slices with step 0")
        stop = None if step < 0 and end < -shape[axis] else end
        picks[axis] = slice(start, stop, step)
    return rearranged(node, lambda a: a[tuple(picks)])


def concat(node: Node) -> Known:
    """Concat: integers side by side; scales and offsets side by side too, for the reader to deal with."""
    axis = node.axis(int(node.attributes["axis"]), len(_rank_of(node)))
    if all(isinstance(v, Const) for v in node.inputs):
        return Const(np.concatenate([node.constant(i, "operand").array for i in range(len(node.inputs))], axis))
    builder = node.builder
    tensors: list[Tensor]
    tensors = [materialized(builder, node.tensor(i), f"{node.name}_{i}", "a Concat") for i in range(len(node.inputs))]
    rest = {(*t.shape[:axis], *t.shape[axis + 1 :]) for t in tensors}
    if len(rest) > 1:
        raise Refuse(
            f"joins {', '.join(str(t.shape) for t in tensors)} along axis {axis}; expected them alike elsewhere"
        )
    places = [builder.positions(t) for t in tensors]
    names = [t.name for t in tensors]
    if axis and all(builder.is_laid_out(t) for t in tensors):
        made = builder.add(Concat(builder.name(node.name), tuple(names), axis - 1))
        shape = builder.values[made].shape
        index = np.arange(math.prod(shape)).reshape(1, *shape)
        return fresh(made, index, _joined(tensors, "scale", axis), _joined(tensors, "offset", axis))
    shapes = [builder.values[name].shape for name in names]
    if len({shape[1:] for shape in shapes}) > 1:
        names = [builder.reshaped(name, (math.prod(shape),)) for name, shape in zip(names, shapes, strict=True)]
    made = builder.add(Concat(builder.name(node.name), tuple(names), 0))
    starts = np.cumsum([0, *(math.prod(shape) for shape in shapes)])
    index = np.concatenate([p + int(start) for p, start in zip(places, starts, strict=False)], axis)

    return fresh(made, index, _joined(tensors, "scale", axis), _joined(tensors, "offset", axis))


def _joined(tensors: list[Tensor], field: str, axis: int) -> Rationals:
    return compress(np.concatenate([full(getattr(t, field), t.shape) for t in tensors], axis))


# --- windows ---------------------------------------------------------------------------------------------------------


def _even(node: Node, tensor: Tensor) -> Tensor:
    """The tensor with one scale and offset along space, by a step where they differ."""
    varies = any(n > 1 for part in (tensor.scale, tensor.offset) for n in part.shape[2:])
    return node.builder.one_grid(tensor, node.name) if varies else tensor


def _by_channel(tensor: Tensor, what: str) -> None:
    for part in (tensor.scale, tensor.offset, tensor.low, tensor.high):
        if any(n > 1 for n in part.shape[2:]):
            raise Refuse(f"{what} over positions with scales or offsets of their own; expected one for each channel")


def _window(node: Node, tensor: Tensor) -> tuple[list[int], list[int], list[int]]:
    """(kernel, stride, pads) of a pool; ``ceil_mode`` must change nothing."""
    space = tensor.shape[2:]
    kernel = node.ints("kernel_shape", list(space))
    stride = node.ints("strides", [1] * len(kernel))
    if any(step != 1 for step in node.ints("dilations", [1] * len(kernel))):
        raise Refuse("pools with dilation; the IR's pools have none")
    padding = pads(node, space, tuple(kernel), stride)
    if int(node.attributes.get("ceil_mode", 0)):
        rooms = [n + padding[i] + padding[len(kernel) + i] - kernel[i] for i, n in enumerate(space)]
        if any(room % step for room, step in zip(rooms, stride, strict=True)):
            raise Refuse("pools with ceil_mode=1 where it adds a window; pad explicitly")
    return kernel, stride, padding


def max_pool(node: Node) -> Known:
    """MaxPool of integers: the largest integer is the largest number, for positive scales."""
    if isinstance(node.inputs[0], Tabulated):
        raise Refuse("pools a table that no quantizer follows; quantize it first")
    builder = node.builder
    tensor = builder.positive(node.tensor(0), node.name) if not node.tensor(0).raw else node.tensor(0)
    if tensor.raw:
        tensor = materialized(builder, tensor, node.name, "a pool")
    tensor = _even(node, tensor)
    _by_channel(tensor, "takes the maximum")
    kernel, stride, padding = _window(node, tensor)
    source = builder.laid_out(tensor, "a pool")
    made = builder.add(MaxPool(builder.name(node.name), source, tuple(kernel), tuple(stride), tuple(padding)))
    shape = builder.values[made].shape
    index = np.arange(math.prod(shape)).reshape(1, *shape)
    return dataclasses.replace(tensor, name=made, index=index, shared=False)


def _sums(node: Node, tensor: Tensor, kernel: list[int], stride: list[int], padding: list[int]) -> tuple[str, Tensor]:
    """(value of the windows' sums, the tensor summed)."""
    builder = node.builder
    tensor = _even(node, materialized(builder, tensor, node.name, "a pool"))
    _by_channel(tensor, "sums")
    if any(padding):
        tensor = centred(node, tensor)
    source = builder.laid_out(tensor, "a pool")
    if any(padding):
        zero = zero_of(tensor)
        if zero:
            source, padding = pad(node, source, padding, zero), [0] * len(padding)
    made = builder.add(SumPool(builder.name(node.name), source, tuple(kernel), tuple(stride), tuple(padding)))
    return made, tensor


def average_pool(node: Node) -> Known:
    """AveragePool and GlobalAveragePool: a sum, and one over the count in the scale."""
    tensor = node.tensor(0)
    if node.op_type == "GlobalAveragePool":
        kernel, stride = list(tensor.shape[2:]), [1] * (len(tensor.shape) - 2)
        padding = [0] * (2 * len(kernel))
    else:
        kernel, stride, padding = _window(node, tensor)
    made, tensor = _sums(node, tensor, kernel, stride, padding)
    shape = node.builder.values[made].shape
    area = math.prod(kernel)
    count: Rationals = np.array([Fraction(area)], dtype=object).reshape((1,) * len(tensor.shape))
    if any(padding) and not int(node.attributes.get("count_include_pad", 0)):
        ones = np.ones((1, 1, *tensor.shape[2:]), np.int64)
        axes = tuple(range(2, 2 + len(kernel)))
        count = compress(exact(patches(ones, kernel, stride, padding).sum(axis=axes)))
    index = np.arange(math.prod(shape)).reshape(1, *shape)
    # Padded integers mean real zero, so a sum means s * (sum of integers) + area * o, whatever the count.
    scale, offset = tensor.scale / count, tensor.offset * area / count
    return fresh(made, index, np.asarray(scale, dtype=object), np.asarray(offset, dtype=object))


def max_over(node: Node) -> Known:
    """GlobalMaxPool."""
    tensor = node.tensor(0)
    whole = {"kernel_shape": list(tensor.shape[2:]), "pads": [0] * (2 * (len(tensor.shape) - 2))}
    return max_pool(dataclasses.replace(node, attributes=whole))


def reduce(node: Node) -> Known:
    """ReduceMean, ReduceSum and ReduceMax over constant axes (batch excluded)."""
    tensor = node.tensor(0)
    rank = len(tensor.shape)
    given = _axes(node)
    if not given and int(node.attributes.get("noop_with_empty_axes", 0)):
        return tensor
    if not given:
        raise Refuse("names no axes, which means all, the batch's too; name the axes it reduces over")
    axes = sorted({node.axis(n, rank) for n in given})
    keep = int(node.attributes.get("keepdims", 1))
    if 0 in axes:
        raise Refuse("reduces over the batch")
    builder = node.builder
    tensor = materialized(builder, tensor, node.name, node.op_type)
    if node.op_type == "ReduceMax":
        tensor = builder.positive(tensor, node.name)
    if any(part.shape[axis] > 1 for part in (tensor.scale, tensor.offset) for axis in axes):
        tensor = builder.one_grid(tensor, node.name)
    if any(part.shape[axis] > 1 for part in (tensor.scale, tensor.offset) for axis in axes):
        raise Refuse("reduces over elements with scales or offsets of their own; expected one for all")
    name = builder.laid_out(tensor, f"a {node.op_type}")
    kind = ReduceMax if node.op_type == "ReduceMax" else ReduceSum
    count = math.prod(tensor.shape[axis] for axis in axes)
    spatial = list(range(2, rank))
    if kind is ReduceSum and axes == spatial and 1 <= len(axes) <= 2:
        space = tensor.shape[2:]
        name = builder.add(SumPool(builder.name(node.name), name, space, (1,) * len(space), (0,) * (2 * len(space))))
    else:
        for axis in axes:
            name = builder.add(kind(builder.name(node.name), name, axis - 1))
    shape = builder.values[name].shape
    index = np.arange(math.prod(shape)).reshape(1, *shape)
    total = 1 if kind is ReduceMax else count
    part = Fraction(1, count if node.op_type == "ReduceMean" else 1)
    result = fresh(name, index, tensor.scale * part, tensor.offset * total * part)
    return result if keep else result.map(lambda a: np.squeeze(a, tuple(axes)))


def padded(node: Node) -> Known:
    """Pad of space with a constant."""
    tensor = node.tensor(0)
    if node.text("mode", "constant") != "constant":
        raise Refuse(f"pads with mode {node.text('mode', '')}; expected constant")
    rank = len(tensor.shape)
    widths = as_integers(node.constant(1, "pads")).tolist() if node.given(1) else node.ints("pads", [])
    axes = list(range(rank))
    if node.given(3):
        axes = [node.axis(n, rank) for n in as_integers(node.constant(3, "axes")).tolist()]
    if len(widths) != 2 * len(axes):
        raise Refuse(f"has {len(widths)} pads for {len(axes)} axes; expected {2 * len(axes)}")
    if node.given(3):
        placed = [0] * (2 * rank)
        for i, axis in enumerate(axes):
            placed[axis], placed[rank + axis] = widths[i], widths[len(axes) + i]
        widths = placed
    value = (
        node.constant(2, "value").real().reshape(-1)[0]
        if node.given(2)
        else exact(np.float32(node.attributes.get("value", 0.0))).reshape(-1)[0]
    )
    if min(widths) < 0:
        raise Refuse(f"pads {widths}; expected 0 or more")
    if not any(widths):
        return tensor
    if any(widths[i] or widths[rank + i] for i in (0, 1)) or rank not in (3, 4):
        raise Refuse(f"pads {widths} of {tensor.shape}; expected padding of one or two axes of space alone")
    builder = node.builder
    tensor = _even(node, materialized(builder, tensor, node.name, "a Pad"))
    _by_channel(tensor, "pads")
    integer = zero_of(tensor.affine(scalar(1), scalar(-value)))
    source = builder.laid_out(tensor, "a Pad")
    made = pad(node, source, [*widths[2:rank], *widths[rank + 2 :]], integer)
    shape = builder.values[made].shape
    return fresh(made, np.arange(math.prod(shape)).reshape(1, *shape), tensor.scale, tensor.offset)


def resize(node: Node) -> Known:
    """Resize and Upsample by whole factors, nearest neighbour."""
    tensor = node.tensor(0)
    if node.text("mode", "nearest") != "nearest":
        raise Refuse(f"resizes by {node.text('mode', '')} interpolation; expected nearest")
    rank = len(tensor.shape)
    at = 1 if node.op_type == "Upsample" or node.opset < 11 else 2
    axes = [node.axis(n, rank) for n in node.ints("axes", list(range(rank)))]
    if "scales" in node.attributes:
        given = [float(v) for v in node.attributes["scales"]]
    elif node.given(at) and node.constant(at, "scales").array.size:
        given = [float(v) for v in node.constant(at, "scales").array.reshape(-1)]
    else:
        if node.text("keep_aspect_ratio_policy", "stretch") != "stretch":
            raise Refuse("resizes to sizes that keep the aspect ratio; give the scales")
        sizes = as_integers(node.constant(3, "sizes")).reshape(-1).tolist()
        # The size of the batch's axis is that of the export.
        given = [n / tensor.shape[axis] if axis else 1.0 for n, axis in zip(sizes, axes, strict=False)]
    if len(given) != len(axes):
        raise Refuse(f"has {len(given)} scales or sizes for {len(axes)} axes")
    factors = [1.0] * rank
    for axis, factor in zip(axes, given, strict=True):
        factors[axis] = factor
    if any(f != int(f) or f < 1 for f in factors) or factors[:2] != [1.0, 1.0] or rank not in (3, 4):
        raise Refuse(f"resizes by {factors}; expected whole factors of one or two axes of space")
    nearest = node.text("nearest_mode", "round_prefer_floor")
    where = node.text("coordinate_transformation_mode", "asymmetric" if node.opset < 11 else "half_pixel")
    repeats = (where == "asymmetric" and (nearest == "floor" or node.opset < 11)) or (
        where in ("half_pixel", "pytorch_half_pixel") and nearest in ("round_prefer_floor", "round_prefer_ceil")
    )
    if not repeats and any(f > 1 for f in factors):
        raise Refuse(f"resizes with {where} and {nearest}, which is not plain repetition; use asymmetric and floor")
    _by_channel(tensor, "repeats")
    builder = node.builder
    if tensor.raw:
        tensor = materialized(builder, tensor, node.name, "an upsampling")
    source = builder.laid_out(tensor, "an upsampling")
    made = builder.add(Upsample(builder.name(node.name), source, tuple(int(f) for f in factors[2:])))
    shape = builder.values[made].shape
    index = np.arange(math.prod(shape)).reshape(1, *shape)
    return dataclasses.replace(tensor, name=made, index=index, shared=False)


def shape_of(node: Node) -> Known:
    """Shape, or the part from ``start`` to ``end`` of it: a constant, with a batch of one row."""
    shape, end = _rank_of(node), node.attributes.get("end")
    part = shape[int(node.attributes.get("start", 0)) : None if end is None else int(end)]
    return Const(np.array(part, dtype=np.int64))


def split(node: Node) -> list[Known]:
    """Split along a constant axis."""
    shape = _rank_of(node)
    axis = node.axis(int(node.attributes.get("axis", 0)), len(shape))
    if node.given(1):
        sizes = as_integers(node.constant(1, "sizes")).tolist()
    elif "split" in node.attributes:
        sizes = node.ints("split", [])
    else:
        count = len(node.outputs)
        size = -(-shape[axis] // count)
        sizes = [size] * (count - 1) + [shape[axis] - size * (count - 1)]
    ends = np.cumsum([0, *sizes])
    if ends[-1] != shape[axis] or len(sizes) != len(node.outputs) or min(sizes) < 1:
        raise Refuse(f"splits {shape[axis]} elements along axis {axis} into {sizes} for {len(node.outputs)} outputs")

    def part(start: int, stop: int) -> Rearranges:
        return lambda a: np.take(a, np.arange(start, stop), axis)

    return [rearranged(node, part(int(a), int(b))) for a, b in itertools.pairwise(ends)]
