"""Layers: weights on a grid times integers. MatMul, Gemm and Conv, and their integer forms.

With weights ``s_w[o] q`` and an input ``s_x a + z`` the layer's sum is ``s_w[o] s_x (q . a) + s_w[o] z (sum of q)``: an
integer accumulator with an exact scale for each output, and an exact offset. Input scales that differ are brought to
their largest common measure, the ratios going into the weights, where they are whole.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from hawq_flow.from_onnx.affine import Rationals, aligned, common, compress, exact, full, only
from hawq_flow.from_onnx.clamping import materialized
from hawq_flow.from_onnx.nodes import Node
from hawq_flow.from_onnx.refusals import Refuse
from hawq_flow.from_onnx.tensors import Const, Grid, Tensor, fresh
from hawq_flow.network import Conv, Dense, Pad
from hawq_flow.numeric import IntArray, IntType

MOST_BITS = 17
"""Bits of weights found on a grid without a quantizer that says so; more is float32, not quantized."""
WIDEST = 32
"""Bits of a quantized weight."""


def grid_of(const: Const, what: str = "weights") -> Grid:
    """The integers and scale of a constant; found by its greatest common measure when no quantizer gives them."""
    if const.grid is not None:
        return const.grid
    array = const.array
    if not array.size or not array.ndim:
        raise Refuse(f"{what} of shape {array.shape}; expected an axis at least, and elements")
    if array.dtype.kind not in "iubf":
        raise Refuse(f"{what} of {array.dtype}; expected numbers")
    if array.dtype.kind in "iub":
        return Grid(array.astype(np.int64), exact(np.ones((1,) * array.ndim, np.int64)))
    if not np.isfinite(array).all():
        raise Refuse(f"{what} hold NaN or infinity")
    axes = [tuple(range(array.ndim))]  # one measure for all, or one for each last axis (MatMul), or each first (Conv)
    if array.ndim > 1:
        axes += [tuple(range(array.ndim - 1)), tuple(range(1, array.ndim))]
    for joined in axes:
        found = _measured(array.astype(np.float64), joined)
        if found is not None:
            return found
    raise Refuse(
        f"{what} are {array.dtype}, not quantized: no grid of {MOST_BITS} bits holds them. Export the model with its "
        "quantizers (Quant, or QuantizeLinear and DequantizeLinear)"
    )


def _measured(array: np.ndarray, joined: tuple[int, ...]) -> Grid | None:
    """The array on one grid along the ``joined`` axes, if few bits hold it."""
    mantissa, exponent = np.frexp(array)
    whole = (mantissa * (1 << 53)).astype(np.int64)
    exponent = np.where(whole == 0, 10**6, exponent)
    least = exponent.min(axis=joined, keepdims=True)
    low_bit = whole & -whole
    # Drop the zeros that all mantissas end in, so that the differences of exponents fit.
    zeros = np.where(whole == 0, 63, np.log2(np.maximum(low_bit, 1)).astype(np.int64))
    place = np.where(whole == 0, 10**6, exponent + zeros)
    least = place.min(axis=joined, keepdims=True)
    up = np.where(whole == 0, 0, place - least)
    if up.max() > 40:
        return None
    integers = (whole >> np.where(whole == 0, 0, zeros)).astype(object) * (1 << up.astype(object))
    measure = np.gcd.reduce(integers, axis=joined, keepdims=True) if integers.size else integers
    measure = np.where(measure == 0, 1, measure)
    q = integers // measure
    if max(abs(int(q.min())), abs(int(q.max()))) >= 1 << (MOST_BITS - 1):
        return None
    power = np.where(least > 10**5, 0, least - 53)
    scale = np.array(
        [Fraction(int(m)) * Fraction(2) ** int(p) for m, p in zip(measure.ravel(), power.ravel(), strict=True)]
        + [None],
        dtype=object,
    )[:-1].reshape(measure.shape)
    return Grid(q.astype(np.int64), compress(scale))


def _out_scale(grid: Grid, axis: int, what: str) -> Rationals:
    """The weights' scale for each output (axis), (outputs or 1,); refused when it varies along another axis."""
    scale = aligned(grid.scale, grid.integers.ndim)
    if any(n > 1 for i, n in enumerate(scale.shape) if i != axis):
        raise Refuse(
            f"the weights have a scale of shape {scale.shape}: one for each input channel, which a sum cannot take "
            "out. Use one scale, or one for each output channel"
        )
    if int(np.abs(grid.integers).max(initial=0)) >= 1 << (WIDEST - 1):
        raise Refuse(f"{what} need more than {WIDEST} bits")
    return scale.reshape(-1)


def _input_grid(tensor: Tensor, scale: Rationals) -> tuple[Fraction, IntArray]:
    """(common scale, whole ratio of every entry): ``scale`` is the input's, along what the layer sums over."""
    single = only(scale)
    measure = single if single is not None else common(scale.ravel())
    if measure == 0:
        return Fraction(1), np.zeros(scale.shape, np.int64)
    ratio = scale / measure
    if max(abs(v) for v in ratio.ravel()) >= 1 << 16:
        raise Refuse(
            f"its input has scales from {float(min(scale.ravel())):g} to {float(max(scale.ravel())):g} along the "
            "channels it sums over, with no common measure near them. Quantize the whole input with one scale"
        )
    return measure, np.array([int(v) for v in ratio.ravel()], dtype=np.int64).reshape(scale.shape)


def dense(node: Node, tensor: Tensor, weights: Const, what: str = "weights") -> Tensor:
    """``tensor @ weights``: tensor (1, features) or (positions..., features), weights (features, outputs)."""
    grid = grid_of(weights, what)
    if weights.array.ndim != 2 or tensor.shape[-1] != weights.shape[0]:
        raise Refuse(f"multiplies {tensor.shape} with weights of {weights.shape}; expected (features, outputs)")
    out = _out_scale(grid, 1, what)
    builder = node.builder
    tensor = materialized(builder, tensor, node.name, "a layer")
    if int(np.prod(tensor.shape[:-1])) != 1:
        return _pointwise(node, tensor, grid, out)
    scale, offset = (part.reshape(-1) for part in (tensor.scale, tensor.offset))
    measure, ratio = _input_grid(tensor, scale)
    q = grid.integers * ratio.reshape(-1, 1)
    places = builder.positions(tensor).reshape(-1)
    size = int(np.prod(builder.values[tensor.name].shape))
    weight = np.zeros((q.shape[1], size), np.int64)
    np.add.at(weight.T, places, q)
    source = builder.reshaped(tensor.name, (size,))
    name = builder.name(node.name)
    made = builder.add(Dense(name, source, weight, np.zeros(q.shape[1], np.int64), layer=name))
    outputs = q.shape[1]
    index = np.arange(outputs).reshape((1,) * (len(tensor.shape) - 1) + (outputs,))
    if offset.size == 1:
        sums = exact(grid.integers.sum(0)) * offset[0] if offset[0] else exact(np.zeros(1, np.int64))
    else:
        sums = (grid.integers.astype(object) * offset.reshape(-1, 1)).sum(0)
    return fresh(made, index, out * measure, compress(np.asarray(out * sums, dtype=object)))


def _pointwise(node: Node, tensor: Tensor, grid: Grid, out: Rationals) -> Tensor:
    """A matrix product along the last axis of (positions..., features): a convolution with a kernel of ones.

    The first axis is a position like the others: a Reshape to (-1, features) puts several into it for one row.
    """
    builder = node.builder
    features, outputs = grid.integers.shape
    positions = tensor.shape[:-1]
    flat = tensor.map(lambda a: np.moveaxis(a, -1, 0).reshape(1, features, -1))
    scale, offset = flat.scale, flat.offset
    if any(part.shape[2] > 1 for part in (scale, offset)):
        raise Refuse("its input has a scale or offset for each position; expected one for each feature")
    measure, ratio = _input_grid(flat, scale.reshape(-1))
    source = builder.laid_out(flat, "a matrix product over positions")
    weight = (grid.integers * ratio.reshape(-1, 1)).T[:, :, None]
    name = builder.name(node.name)
    made = builder.add(Conv(name, source, weight, np.zeros(outputs, np.int64), (1,), (0, 0), layer=name))
    index = np.moveaxis(np.arange(outputs * math.prod(positions)).reshape(outputs, *positions), 0, -1)
    whole = full(offset.reshape(-1, 1), (features, 1)) * grid.integers.astype(object)
    return fresh(
        made, np.ascontiguousarray(index), out * measure, compress(np.asarray(out * whole.sum(0), dtype=object))
    )


def convolution(node: Node, tensor: Tensor, weights: Const, what: str = "weights") -> Tensor:
    """Conv of (1, channels, *space) with weights (outputs, channels / groups, *kernel); real zero is the padding."""
    grid = grid_of(weights, what)
    rank = weights.array.ndim - 2
    if rank not in (1, 2):
        raise Refuse(f"convolves in {rank} dimensions; expected 1 or 2")
    out = _out_scale(grid, 0, what)
    builder = node.builder
    groups = int(node.attributes.get("group", 1))
    stride = node.ints("strides", [1] * rank)
    q = grid.integers
    for axis, step in enumerate(node.ints("dilations", [1] * rank), start=2):
        if step > 1:  # zeros between the weights
            wide = np.zeros((*q.shape[:axis], (q.shape[axis] - 1) * step + 1, *q.shape[axis + 1 :]), np.int64)
            wide[(slice(None),) * axis + (slice(None, None, step),)] = q
            q = wide
    tensor = materialized(builder, tensor, node.name, "a layer")
    if any(n > 1 for part in (tensor.scale, tensor.offset) for n in part.shape[2:]):
        tensor = builder.one_grid(tensor, node.name)
    if tensor.shape[1:2] != (q.shape[1] * groups,) or len(tensor.shape) != rank + 2:
        raise Refuse(f"convolves {tensor.shape} with weights of {weights.shape} in {groups} groups")
    padding = pads(node, tensor.shape[2:], q.shape[2:], stride)
    if any(padding):
        tensor = centred(node, tensor)
    measure, q, out, offset = _channel_scales(tensor, q, out, groups)
    source = builder.laid_out(tensor, "a convolution")
    source, padding = _padded(node, tensor, source, padding, q.shape[2:])
    name = builder.name(node.name)
    made = builder.add(
        Conv(name, source, q, np.zeros(q.shape[0], np.int64), tuple(stride), tuple(padding), groups, layer=name)
    )
    shape = builder.values[made].shape
    column = (1, -1) + (1,) * rank
    index = np.arange(int(np.prod(shape))).reshape(1, *shape)
    return fresh(made, index, (out * measure).reshape(column), offset.reshape(column))


def _channel_scales(
    tensor: Tensor, q: IntArray, out: Rationals, groups: int
) -> tuple[Fraction | int, IntArray, Rationals, Rationals]:
    """(input scale, weights, scale for each output, offset for each output) from the input's scales by channel."""
    for part in (tensor.scale, tensor.offset):
        if any(n > 1 for n in part.shape[2:]):
            raise Refuse("its input has a scale or offset for each position; expected one for each channel")
    channels = tensor.shape[1]
    scale, offset = (full(part.reshape(-1), (channels,)) for part in (tensor.scale, tensor.offset))
    per, outputs = q.shape[1], q.shape[0] // groups
    axes = tuple(range(2, q.ndim))
    sums = q.sum(axis=axes) if axes else q
    offsets = np.empty(q.shape[0], dtype=object)
    measures = np.empty(q.shape[0], dtype=object)
    q = q.copy()
    for group in range(groups):
        rows, seen = slice(group * outputs, (group + 1) * outputs), slice(group * per, (group + 1) * per)
        measure, ratio = _input_grid(tensor, scale[seen])
        offsets[rows] = (sums[rows].astype(object) * offset[seen]).sum(1) if any(offset[seen]) else Fraction(0)
        q[rows] = q[rows] * ratio.reshape((1, -1) + (1,) * len(axes))
        measures[rows] = measure
    return 1, q, compress(np.asarray(out * measures, dtype=object)), compress(np.asarray(out * offsets, dtype=object))


def pads(node: Node, space: tuple[int, ...], kernel: tuple[int, ...], stride: list[int]) -> list[int]:
    """All beginnings, then all ends, of a window's padding; ``auto_pad`` worked out."""
    rank = len(kernel)
    auto = node.text("auto_pad", "NOTSET")
    if auto in ("NOTSET", ""):
        return node.ints("pads", [0] * (2 * rank))
    if auto == "VALID":
        return [0] * (2 * rank)
    missing = [max(0, (-(-n // s) - 1) * s + k - n) for n, k, s in zip(space, kernel, stride, strict=True)]
    small, large = [n // 2 for n in missing], [n - n // 2 for n in missing]
    return small + large if auto == "SAME_UPPER" else large + small


def _padded(
    node: Node, tensor: Tensor, source: str, padding: list[int], kernel: tuple[int, ...]
) -> tuple[str, list[int]]:
    """The source with an explicit Pad where real zero is another integer, or where the padding exceeds the kernel."""
    rank = len(kernel)
    value = zero_of(tensor) if any(padding) else 0
    if value == 0 and all(pad < kernel[i % rank] for i, pad in enumerate(padding)):
        return source, padding
    return pad(node, source, padding, value), [0] * len(padding)


def pad(node: Node, source: str, padding: list[int], value: int) -> str:
    """A Pad with an integer of the value's type (widened where it holds none such)."""
    builder = node.builder
    type = builder.values[source].type
    if not type.range[0] <= value <= type.range[1]:
        from hawq_flow.network import Requantize

        low, high = min(type.range[0], value), max(type.range[1], value)
        one, zero = np.ones((), np.int64), np.zeros((), np.int64)
        wide = Requantize(builder.name(f"{node.name}_wide"), source, one, zero, zero, IntType.holding(low, high))
        source = builder.add(wide)
    return builder.add(Pad(builder.name(f"{node.name}_pad"), source, tuple(padding), value))


def centred(node: Node, tensor: Tensor) -> Tensor:
    """A tensor whose real zero lies half way between two integers (a bipolar one) on twice finer integers."""
    scale, offset = only(tensor.scale), only(tensor.offset)
    if not scale or offset is None or (offset / scale).denominator != 2:
        return tensor
    places = node.builder.positions(tensor)
    name = node.builder.step(f"{node.name}_centred", tensor.name, 2, int(2 * offset / scale))
    return fresh(name, places, tensor.scale / 2, tensor.offset * 0)


def zero_of(tensor: Tensor) -> int:
    """The integer that means real zero."""
    values = {
        -o / s if s else None
        for s, o in zip(*(part.ravel() for part in np.broadcast_arrays(tensor.scale, tensor.offset)), strict=True)
    }
    found = values.pop() if len(values) == 1 else None
    if found is None or found.denominator != 1:
        raise Refuse(
            "pads with real zero, which is no integer of its input's grid (a zero point that is not whole, or another "
            "for each channel). Quantize the input with one whole zero point"
        )
    return int(found)
