"""Ops that move or combine values in the graph for hls4ml: pads, pools, repeats, sums and concatenations."""

from __future__ import annotations

import dataclasses

import numpy as np

from hawq_flow.network import Add, Concat, MaxPool, Pad, Reshape, Shape, Upsample
from hawq_flow.numeric import IntType
from hawq_flow.to_hls.fixed import ONE, FixedType
from hawq_flow.to_hls.graph import CHANNELS_LAST, OWN, Graph, Layer, Placed
from hawq_flow.to_hls.layout import Layout
from hawq_flow.to_qonnx import NotExact


def channels_last(name: str, shape: Shape) -> Shape:
    """The shape of a value as hls4ml computes with it; at most three axes."""
    if len(shape) > 3:
        raise NotExact(
            f"{name}: a value of shape {shape}; hls4ml computes with at most three axes. Reshape it before and after"
        )
    return (*shape[1:], shape[0]) if shape else ()


def zero_padded(
    graph: Graph, tensor: str, shape: Shape, padding: Shape, name: str, type: FixedType
) -> tuple[str, Shape]:
    """Zeros around the space of a tensor that lies channels last; the tensor made, and its shape."""
    rank = len(shape) - 1
    pads = [0, *padding[:rank], 0, 0, *padding[rank:], 0]
    space = tuple(n + padding[i] + padding[rank + i] for i, n in enumerate(shape[:-1]))
    result = (*space, shape[-1])
    made = graph.node("Pad", [tensor, graph.constant(f"{name}/pads", pads, np.int64)], name, result, mode="constant")
    graph.told(made, type)
    graph.layers.append(Layer(made, {"result": type}))
    return made, result


def shifted(graph: Graph, tensor: str, shape: Shape, by: int, name: str, type: FixedType) -> str:
    """``tensor + by``, channels last, into ``type``, which holds it."""
    channels = shape[-1]
    constants = {
        "scale": np.ones(channels),
        "bias": np.full(channels, float(by)),
        "mean": np.zeros(channels),
        "variance": np.ones(channels),
    }
    made = graph.node(
        "BatchNormalization",
        [tensor, *(graph.constant(f"{name}/{what}", array) for what, array in constants.items())],
        name,
        shape,
        CHANNELS_LAST,
        epsilon=0.0,
    )
    graph.told(made, type)
    types = {"scale": ONE, "bias": FixedType.holding(by), "result": type}
    graph.layers.append(Layer(made, types, {role: constants[role] for role in ("scale", "bias")}))
    return made


def pad(graph: Graph, op: Pad) -> Placed:
    """Zeros around; another value v is ``pad(x - v) + v``."""
    x, value = graph.placed[op.input], graph.values[op.input]
    shape = channels_last(op.name, value.shape)
    tensor, type = graph.shaped(x, shape), x.type
    if op.value:
        moved = IntType.holding(int(value.low.min()) - op.value, int(value.high.max()) - op.value)
        type = FixedType.of(moved)
        tensor = shifted(graph, tensor, shape, -op.value, f"{op.name}/from_zero", type)
    name = f"{op.name}/padded" if op.value else op.name
    tensor, shape = zero_padded(graph, tensor, shape, op.padding, name, type)
    if op.value:
        type = x.type.plain
        tensor = shifted(graph, tensor, shape, op.value, op.name, type)
    return Placed(tensor, shape, Layout.of(graph.values[op.name].shape), type, tensor)


def max_pool(graph: Graph, op: MaxPool) -> Placed:
    """A maximum over windows. Padding is done with zeros on numbers that are never negative, shifted where needed.

    hls4ml's own value around a maximum is the top bit alone: the least number of a signed type, half of the range of
    an unsigned one. With io_stream it has none.
    """
    x, value = graph.placed[op.input], graph.values[op.input]
    if graph.stream and op.stride != op.kernel:
        raise NotExact(
            f"{op.name}: windows of {op.kernel} with stride {op.stride}; hls4ml's pools on streams take windows side "
            "by side only (stride = kernel). Use io_parallel, or such a pool"
        )
    shape = channels_last(op.name, value.shape)
    tensor, type, padding, least = graph.shaped(x, shape), x.type, op.padding, int(value.low.min())
    lifted = False
    if any(padding) and (graph.stream or not x.type.signed):
        lifted = least < 0
        if lifted:
            type = FixedType.of(IntType.holding(0, int(value.high.max()) - least))
            tensor = shifted(graph, tensor, shape, -least, f"{op.name}/from_zero", type)
        tensor, shape = zero_padded(graph, tensor, shape, padding, f"{op.name}/padded", type)
        padding = (0,) * len(padding)
    result = channels_last(op.name, graph.values[op.name].shape)
    tensor = graph.node(
        "MaxPool" if len(op.kernel) == 2 else "MaxPool1d",
        [tensor],
        f"{op.name}/lifted" if lifted else op.name,
        result,
        CHANNELS_LAST if len(op.kernel) == 2 else OWN,
        kernel_shape=op.kernel,
        strides=op.stride,
        pads=padding,
    )
    graph.told(tensor, type)
    graph.layers.append(Layer(tensor, {"accum": type, "result": type}))
    if lifted:
        type = x.type.plain
        tensor = shifted(graph, tensor, result, least, op.name, type)
    return Placed(tensor, result, Layout.of(graph.values[op.name].shape), type, tensor)


def upsample(graph: Graph, op: Upsample) -> Placed:
    """Every element of space repeated."""
    x = graph.placed[op.input]
    source = channels_last(op.name, graph.values[op.input].shape)
    shape = channels_last(op.name, graph.values[op.name].shape)
    tensor = graph.node("Upsample", [graph.shaped(x, source)], op.name, shape, OWN, factors=op.factors)
    graph.told(tensor, x.type)  # the C++ has one type for both sides
    graph.layers.append(Layer(tensor, {"result": x.type}))
    return Placed(tensor, shape, Layout.of(graph.values[op.name].shape), x.type, tensor)


def reshape(graph: Graph, op: Reshape) -> Placed:
    """Nothing moves: the value lies as before. A value of space must come to lie channels last by that."""
    x = graph.placed[op.input]
    if len(op.to) < 2:
        return x
    layout = Layout.of(op.to)
    if not x.layout.equals(layout):
        raise NotExact(
            f"{op.name}: {graph.values[op.input].shape} to {op.to}; hls4ml computes channels last, where this would "
            "move elements. Flatten before dense layers, and reshape what a dense layer or an input gives"
        )
    return dataclasses.replace(x, layout=layout)


def concat(graph: Graph, op: Concat) -> Placed:
    """Operands side by side, two at a time, in a type that holds them all."""
    parts = [graph.placed[name] for name in op.operands]
    shapes = [graph.values[name].shape for name in op.operands]
    rank = len(shapes[0])
    type = FixedType.of(graph.values[op.name].type)
    where = rank if op.axis == 0 else op.axis  # batch first, channels last
    tensors = [graph.shaped(part, channels_last(op.name, shape)) for part, shape in zip(parts, shapes, strict=True)]
    tensor, shape = tensors[0], channels_last(op.name, shapes[0])
    for i, (other, more) in enumerate(zip(tensors[1:], shapes[1:], strict=True), start=1):
        grown = channels_last(op.name, more)[where - 1] + shape[where - 1]
        shape = (*shape[: where - 1], grown, *shape[where:])
        name = op.name if i == len(tensors) - 1 else f"{op.name}/of_{i + 1}"
        tensor = graph.node("Concat", [tensor, other], name, shape, axis=where)
        graph.told(tensor, type)
        graph.layers.append(Layer(tensor, {"result": type}))
    layout = Layout.joined(part.layout for part in parts) if rank == 1 else Layout.of(graph.values[op.name].shape)
    return Placed(tensor, shape, layout, type, tensor)


def add(graph: Graph, op: Add) -> Placed:
    """A sum, two operands at a time, each partial sum in the type of its interval."""
    values = [graph.values[name] for name in op.operands]
    parts = [graph.placed[name] for name in op.operands]
    if any(value.shape != values[0].shape for value in values):
        raise NotExact(
            f"{op.name}: operands of shapes {', '.join(str(value.shape) for value in values)}; hls4ml adds equal "
            "shapes. Upsample the smaller one first"
        )
    if any(not part.layout.equals(parts[0].layout) for part in parts):
        raise NotExact(
            f"{op.name}: its operands lie in different orders in the firmware (one was flattened, channels last). "
            "Flatten both, or put a dense layer behind each"
        )
    shape = max((part.shape for part in parts), key=len)
    tensors = [graph.shaped(part, shape) for part in parts]
    tensor, low, high = tensors[0], values[0].low, values[0].high
    for i, (other, value) in enumerate(zip(tensors[1:], values[1:], strict=True), start=1):
        low, high = low + value.low, high + value.high
        type = FixedType.of(IntType.holding(int(low.min()), int(high.max())))
        name = op.name if i == len(tensors) - 1 else f"{op.name}/of_{i + 1}"
        tensor = graph.node("Add", [tensor, other], name, shape)
        graph.told(tensor, type)
        graph.layers.append(Layer(tensor, {"result": type}))
    return Placed(tensor, shape, parts[0].layout, type, tensor)
