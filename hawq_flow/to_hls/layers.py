"""Layers with constants in the graph for hls4ml: products and sums, the rescale behind them, tables."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hawq_flow import to_qonnx
from hawq_flow.network import Add, Conv, Dense, Lookup, Requantize, Shape, SumPool
from hawq_flow.numeric import IntArray, Rounding
from hawq_flow.to_hls.fixed import ONE, ZERO, FixedType
from hawq_flow.to_hls.graph import CHANNELS_LAST, OWN, Graph, Layer, Placed
from hawq_flow.to_hls.layout import Layout
from hawq_flow.to_hls.shaping import channels_last, zero_padded
from hawq_flow.to_qonnx import NotExact, RequantizePlan, plan_requantize, weight_type

MAX_INDEX_BITS = 16
"""Bits of the widest input of a table: hls4ml's table has an entry for each pattern of them."""


def dense(graph: Graph, op: Dense) -> Placed:
    """Dense with its bias inside; or, where a merge would go too far, Dense and a separate bias layer.

    hls4ml merges what follows into a Dense whose result is open: the bias, wanted; but also a Quant or an offset
    right behind, without looking who else reads the sum. So the result is left open only when that cannot happen.
    A bias before another Dense or an Add it may move behind them, and fail: a Quant of the sum's own type, which
    becomes part of the Dense, stands between.
    """
    values, x = graph.values, graph.placed[op.input]
    layout = graph.wanted.get(op.name, Layout.of(values[op.name].shape))
    columns, rows = x.layout.indices, layout.indices
    weight, bias = op.weight[rows][:, columns].T.astype(np.float64), op.bias[rows].astype(np.float64)
    shape = (len(rows),)
    free = dataclasses.replace(op, accumulator=None).derive([values[op.input]])
    bias_type = FixedType.holding(op.bias)
    common = {"weight": FixedType.of(weight_type(op))}
    identity = any(isinstance(o, Requantize) and plan_requantize(o, values).identity for o in graph.reading(op.name))
    cut = op.accumulator if to_qonnx.declared_accumulator(op, values) else None
    kept = _moved(graph, op.name, FixedType.of(free.type))

    w = graph.weights(f"{op.name}/weight", weight, weight_type(op))
    flat, full = graph.shaped(x, (len(columns),)), FixedType.of(free.type)
    open_ended = bool(cut) or kept or (graph.readers(op.name) == 1 and not identity)
    if not open_ended and not bias.any():
        # hls4ml would keep an Add of zeros in some places and not in others.
        tensor = graph.node("MatMul", [flat, w], op.name, shape)
        graph.told(tensor, full)
        types = common | {"bias": ZERO, "accum": full, "result": full}
        layer = Layer(f"Dense_{tensor}", types, {"weight": weight, "bias": bias})
        graph.layers.append(layer)
        return Placed(tensor, shape, layout, full, layer.name)
    product = graph.node("MatMul", [flat, w], f"{op.name}/matmul", shape)
    name = f"{op.name}/sum" if cut or kept else op.name
    total = graph.node("Add", [product, graph.constant(f"{op.name}/bias", bias)], name, shape)
    if open_ended:
        result = full
        tensor = total
        if cut:
            result = FixedType.of(cut, "AP_TRN", "AP_SAT_SYM" if cut.narrow else "AP_SAT")
        if cut or kept:
            tensor = graph.quant(total, op.name, shape, cut or free.type)
        layer = Layer(
            f"Dense_{product}",
            common | {"bias": bias_type, "accum": full, "result": result},
            {"weight": weight, "bias": bias},
        )
        graph.told(total, full)
        graph.layers.append(layer)
        return Placed(tensor, shape, layout, result, layer.name)
    bare = FixedType.of(
        dataclasses.replace(op, accumulator=None, bias=np.zeros_like(op.bias)).derive([values[op.input]]).type
    )
    graph.told(product, bare)
    graph.told(total, full)
    zeros = np.zeros_like(bias)
    types = common | {"bias": ZERO, "accum": bare, "result": bare}
    graph.layers.append(Layer(f"Dense_{product}", types, {"weight": weight, "bias": zeros}))
    types = {"scale": ONE, "bias": bias_type, "result": full}
    layer = Layer(f"bn_{total}", types, {"scale": np.ones_like(bias), "bias": bias})
    graph.layers.append(layer)
    return Placed(total, shape, layout, full, layer.name)


def _moved(graph: Graph, name: str, type: FixedType) -> bool:
    """Whether a Dense or an Add reads a value, as itself or through casts that change nothing."""
    return any(
        isinstance(o, Add | Dense)
        or (isinstance(o, Requantize) and _same(graph, o, type) and _moved(graph, o.name, type))
        for o in graph.reading(name)
    )


def _same(graph: Graph, op: Requantize, type: FixedType) -> bool:
    """Whether a Requantize of a value of this type gives the same integers in the same type."""
    plan = plan_requantize(op, graph.values)
    unchanged = plan.identity and not plan.offset and _overflow(op, plan) == "AP_WRAP"
    return unchanged and FixedType.of(op.type).plain == type.plain


def conv(graph: Graph, op: Conv) -> Placed:
    """A convolution with its bias inside. Its result is told, so that nothing is merged into it."""
    if op.groups > 1 and (not op.depthwise or op.weight.shape[0] != op.groups):
        raise NotExact(
            f"{op.name}: {op.weight.shape[0]} outputs in {op.groups} groups of {op.weight.shape[1]} input channels; "
            "hls4ml convolves all channels together (groups = 1) or each by itself with one output (groups = channels "
            "= outputs). Use one of these, or leave this network to QONNX"
        )
    free = dataclasses.replace(op, accumulator=None).derive([graph.values[op.input]])
    full = FixedType.of(free.type)
    cut = op.accumulator if to_qonnx.declared_accumulator(op, graph.values) else None
    name = f"{op.name}/sum" if cut else op.name
    tensor, layer = _convolution(graph, op, name, op.weight, op.bias, op.groups, full)
    result = full
    if cut:
        result = FixedType.of(cut, "AP_TRN", "AP_SAT_SYM" if cut.narrow else "AP_SAT")
        layer = dataclasses.replace(layer, types={**layer.types, "result": result})
        shape = channels_last(op.name, graph.values[op.name].shape)
        tensor = graph.quant(tensor, op.name, shape, cut)  # merged into the convolution, whose result is open
    else:
        graph.told(tensor, full)
    graph.layers.append(layer)
    return _placed(graph, op.name, tensor, result, layer.name)


def sum_pool(graph: Graph, op: SumPool) -> Placed:
    """A depthwise convolution with ones: hls4ml's own average pools divide, and read a global one in a wrong order."""
    channels = graph.values[op.input].shape[0]
    full = FixedType.of(graph.values[op.name].type)
    weight = np.ones((channels, 1, *op.kernel), np.int64)
    tensor, layer = _convolution(graph, op, op.name, weight, np.zeros(channels, np.int64), channels, full)
    graph.told(tensor, full)
    graph.layers.append(layer)
    return _placed(graph, op.name, tensor, full, layer.name)


def _convolution(
    graph: Graph, op: Conv | SumPool, name: str, weight: IntArray, bias: IntArray, groups: int, full: FixedType
) -> tuple[str, Layer]:
    x = graph.placed[op.input]
    source = channels_last(op.name, graph.values[op.input].shape)
    tensor, padding, kernel = graph.shaped(x, source), op.padding, op.kernel
    if graph.stream and kernel[0] == 1 and op.stride[0] > 1 and len(kernel) == 2 and (groups > 1 or kernel[1] > 1):
        # On streams hls4ml forgets the vertical stride of a kernel of one row: give it a second one, of zeros.
        weight = np.pad(weight, [(0, 0), (0, 0), (0, 1), (0, 0)])
        padding, kernel = (padding[0], padding[1], padding[2] + 1, padding[3]), (2, kernel[1])
    if graph.stream and any(padding):
        # hls4ml would put this layer there itself, later, when its type can no longer be set.
        tensor, _ = zero_padded(graph, tensor, source, padding, f"{op.name}/padded", x.type)
        padding = (0,) * len(padding)
    type = FixedType.of(weight_type(op)) if isinstance(op, Conv) else ONE
    declared = weight_type(op) if isinstance(op, Conv) else to_qonnx.quant_type(0, 1)
    moved = np.moveaxis(weight, 1, -1)
    w = graph.weights(f"{op.name}/weight", moved, declared)
    rank = len(op.kernel)
    made = graph.node(
        "Conv",
        [tensor, w, graph.constant(f"{op.name}/bias", bias)],
        name,
        channels_last(op.name, graph.values[op.name].shape),
        CHANNELS_LAST,
        kernel_shape=kernel,
        strides=op.stride,
        pads=padding,
        dilations=(1,) * rank,
        group=groups,
    )
    if graph.config.strategy == "Resource":
        products = int(np.prod(kernel)) * graph.values[op.input].shape[0]
        graph.settings[made] = _resource(graph.config.reuse_factor, products, depthwise=groups > 1)
    layer = Layer(
        f"{'DepthwiseConv' if groups > 1 else 'Conv'}{rank}D_{made}",
        {"weight": type, "bias": FixedType.holding(bias), "accum": full, "result": full},
        {"weight": weight.transpose(*range(2, 2 + rank), 1, 0).astype(np.float64), "bias": bias.astype(np.float64)},
    )
    return made, layer


def _resource(asked: int, products: int, *, depthwise: bool) -> dict[str, Any]:
    """What hls4ml is told of a convolution with the Resource strategy, where its own choice is not right.

    Its loops want a reuse factor that divides the products of one output (and it forgets its own choice for a pointwise
    convolution). A depthwise one keeps the Latency strategy: with Resource, io_parallel has no code for it, and
    io_stream reads its weights in another order than they are written.
    """
    if depthwise:
        return {"Strategy": "Latency"}
    factors = [n for n in range(1, products + 1) if products % n == 0]
    return {"ReuseFactor": min(factors, key=lambda n: abs(n - asked))}


def _placed(graph: Graph, name: str, tensor: str, type: FixedType, carrier: str) -> Placed:
    """A value that lies channels last."""
    shape = graph.values[name].shape
    return Placed(tensor, channels_last(name, shape), Layout.of(shape), type, carrier)


def affine(
    graph: Graph,
    x: Placed,
    shape: Shape,
    scale: NDArray[np.float64] | None,
    bias: NDArray[np.float64] | None,
    names: tuple[str, str],
) -> tuple[str, str, dict[str, NDArray[np.float64]]]:
    """``x * scale + bias``: (tensor, the hls4ml layer's name, its constants).

    ``scale`` and ``bias`` broadcast over the value's ``shape`` in the network; None: 1 and 0. ``names`` are the
    tensors' for the product, and for the sum where there is one. Constants that are one a channel become a
    BatchNormalization with one constant a channel; others become products and sums with one constant an element.
    """

    def ordered(constant: NDArray[np.float64] | None, default: float) -> NDArray[np.float64]:
        array = np.full(shape, default) if constant is None else np.broadcast_to(constant, shape)
        return array.astype(np.float64).ravel()[x.layout.indices]

    scales, biases = ordered(scale, 1.0), ordered(bias, 0.0)
    channels = x.shape[-1]
    by_channel = [array.reshape(-1, channels) for array in (scales, biases)]
    if len(x.shape) > 1 and all((array == array[:1]).all() for array in by_channel):
        gamma, beta = (array[0] for array in by_channel)
        name = names[0] if bias is None else names[1]
        zeros = np.zeros(channels)
        constants = {"scale": gamma, "bias": beta, "mean": zeros, "variance": zeros + 1}
        tensor = graph.node(
            "BatchNormalization",
            [x.tensor, *(graph.constant(f"{name}/{what}", array) for what, array in constants.items())],
            name,
            x.shape,
            CHANNELS_LAST,
            epsilon=0.0,
        )
        return tensor, tensor, {"scale": gamma, "bias": beta}
    tensor = x.tensor
    if scale is not None:
        constant = graph.constant(f"{names[0]}/scale", scales.reshape(x.shape))
        tensor = graph.node("Mul", [tensor, constant], names[0], x.shape)
    if bias is not None:
        constant = graph.constant(f"{names[1]}/bias", biases.reshape(x.shape))
        tensor = graph.node("Add", [tensor, constant], names[1], x.shape)
    return tensor, f"bn_{tensor}", {"scale": scales, "bias": biases}


def requantize(graph: Graph, op: Requantize) -> Placed:
    """A scale, rounding into its result; with a zero point a second layer that adds it and saturates."""
    plan, x = plan_requantize(op, graph.values), graph.placed[op.input]
    shape = graph.values[op.name].shape
    rounding = "AP_RND_CONV" if op.rounding is Rounding.HALF_EVEN else "AP_TRN"
    mode = "ROUND" if op.rounding is Rounding.HALF_EVEN else "FLOOR"
    last = "AP_TRN" if plan.identity or plan.two_steps else rounding
    result = FixedType.of(op.type, last, _overflow(op, plan))
    if _same(graph, op, x.type):
        return x
    layer = None
    if not plan.identity:
        half = np.array(0.5) if op.rounding is Rounding.HALF_UP else None
        names = (f"{op.name}/scaled", f"{op.name}/plus_half")
        tensor, made, constants = affine(graph, x, shape, plan.factor, half, names)
        scaled = FixedType.of(plan.rounded, rounding) if plan.two_steps else result
        types = {
            "scale": FixedType.holding(constants["scale"]),
            "bias": FixedType.holding(constants["bias"]),
            "result": scaled,
        }
        layer = Layer(made, types, constants)
        graph.layers.append(layer)
        if plan.two_steps:
            tensor = graph.quant(tensor, f"{op.name}/rounded", x.shape, plan.rounded, mode)
        else:
            tensor = graph.quant(tensor, op.name, x.shape, op.type, mode)
        x = dataclasses.replace(x, tensor=tensor)
    if plan.offset:
        offset = np.asarray(op.offset, dtype=np.float64)
        name = f"{op.name}/shifted"
        tensor, made, constants = affine(graph, x, shape, None, offset, (name, name))
        types = {"scale": ONE, "bias": FixedType.holding(constants["bias"]), "result": result}
        layer = Layer(made, types, constants)
        graph.layers.append(layer)
        x = dataclasses.replace(x, tensor=graph.quant(tensor, op.name, x.shape, op.type))
    elif layer is None:
        x = dataclasses.replace(x, tensor=graph.quant(x.tensor, op.name, x.shape, op.type))
        layer = Layer(f"{x.tensor}_act", {"result": result})
        graph.layers.append(layer)
    return dataclasses.replace(x, type=result, carrier=layer.name)


def _overflow(op: Requantize, plan: RequantizePlan) -> str:
    """Saturation only where some value can leave the type: it costs comparators."""
    rank = plan.low.ndim
    low, high = plan.low + op.offset, plan.high + op.offset
    if (low >= op.type.low(rank)).all() and (high <= op.type.high(rank)).all():
        return "AP_WRAP"
    return "AP_SAT_SYM" if op.type.narrow else "AP_SAT"


def lookup(graph: Graph, op: Lookup) -> Placed:
    """A table with an entry for each pattern of the input's bits, in the order of the patterns as unsigned numbers."""
    x, source, value = graph.placed[op.input], graph.values[op.input], graph.values[op.name]
    if x.type.bits > MAX_INDEX_BITS:
        raise NotExact(
            f"{op.name}: looks up a value of {x.type.bits} bits ({x.type}); hls4ml's tables have an entry for each "
            f"pattern, at most {MAX_INDEX_BITS} bits here. Requantize its input to fewer bits"
        )
    table = np.zeros(1 << x.type.bits, dtype=np.int64)
    low, high = int(source.low.min()), int(source.high.max())
    reached = np.arange(low, high + 1)
    table[reached & (table.size - 1)] = op.table[reached - op.start]  # two's complement: -1 has the last entry
    tensor = graph.node("Lookup", [x.tensor], op.name, x.shape, OWN, table=table.tolist())
    result = FixedType.of(value.type)
    graph.told(tensor, result)
    constants = {"table": table.astype(np.float64)}
    graph.layers.append(Layer(tensor, {"table": FixedType.holding(table), "result": result}, constants))
    return dataclasses.replace(x, tensor=tensor, type=result, carrier=tensor)
