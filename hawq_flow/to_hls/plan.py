"""QONNX + every precision read from the IR -> a normal hls4ml project, and its C simulation on integers.

hls4ml reads a QONNX graph; the precisions it would choose itself are not exact for integer networks, so each one is set
here from what the IR derives, and checked again after hls4ml is done:

* the input port, weights and biases have the narrowest type that holds them (the input: its declared type);
* an accumulator has the type of the finished sum. Partial sums may leave it and come back: ap_fixed wraps modulo
  2^w, and a sum that fits is the same modulo 2^w in any order;
* the scale ``m / 2^c`` keeps every fractional bit, ``ap_ufixed<bits(m), bits(m) - c>``; per channel, one type that
  holds all of them. The product is then exact, and its one rounding and one saturation are those of the result type
  (AP_RND_CONV half to even, AP_TRN floor; half up adds 1/2 first; AP_SAT only where the interval leaves the type);
* a zero point is added by a second layer, after the rounding.

The graph is that of :mod:`hawq_flow.to_qonnx`, with what hls4ml needs otherwise: identifiers for names, one row, and
channels last throughout (:mod:`layout`). It is built here from the IR, so that weights, pads and shapes are permuted
once, and no Transpose is left: the ports are channels last, and a dense layer behind a flattened value has its weights'
columns in the order in which the elements come.

hls4ml merges neighbouring nodes by rules of its own. The rules are steered by which results are left open ('auto'), the
outcome is compared layer by layer, type by type and constant by constant with what is expected here, and any
difference is an error: nothing inexact is written.

The project is complete by itself: sources, ap_types, scripts for the vendor tool, the QONNX model, a self-checking C
simulation with its own Makefile, test vectors, and ``hawq_flow.json`` with ports, types, scales and zero points. It
holds no path of this machine; the same network and configuration give the same bytes; the folder is absent or complete.

Modules: ``config``, ``fixed`` (types), ``layout`` (orders), ``graph`` (the graph under construction), ``layers`` and
``shaping`` (one function an op), ``extension`` (nodes that hls4ml cannot read), ``plan`` (this), ``project``,
``catapult`` (what its projects need otherwise), ``texts``, ``csim``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx

from hawq_flow import to_qonnx
from hawq_flow.network import (
    Add,
    Concat,
    Conv,
    Dense,
    IntegerNetwork,
    Lookup,
    MaxPool,
    Pad,
    Requantize,
    Reshape,
    SumPool,
    Upsample,
    Value,
)
from hawq_flow.to_hls import layers, shaping
from hawq_flow.to_hls.config import HlsConfig
from hawq_flow.to_hls.fixed import FixedType
from hawq_flow.to_hls.graph import Graph, Layer, Placed
from hawq_flow.to_hls.layout import Layout
from hawq_flow.to_qonnx import NotExact

MAX_STREAM_READERS = 7


@dataclass(frozen=True)
class Design:
    """The graph given to hls4ml, which results it is told, and the layers it has to make of it.

    Attributes
    ----------
    results:
        Nodes whose result type hls4ml is told before its merging rules run.
    settings:
        What else hls4ml is told of some nodes: ReuseFactor, Strategy.
    values:
        For every value of the network, where it is: its layer and the order of its elements.
    """

    model: onnx.ModelProto
    results: Mapping[str, FixedType]
    settings: Mapping[str, Mapping[str, Any]]
    layers: tuple[Layer, ...]
    values: Mapping[str, Placed]


def design(network: IntegerNetwork, config: HlsConfig | None = None) -> Design:
    """Derive every layer and every precision of the hls4ml project.

    Raises
    ------
    NotExact
        Naming the op, for what hls4ml cannot do exactly: per-channel output widths, a value beyond 53 bits at a port,
        several inputs or one without axes, a stream with no reader or with more than hls4ml copies, ops without a
        bit-exact form there (for Catapult also tables, results of one bit, and depthwise sums in io_parallel), what
        QONNX cannot express; and for an input called like the project.
    """
    config = config or HlsConfig()
    values = to_qonnx.check(network)
    _refuse(network, values)
    if config.backend == "Catapult":
        _refuse_catapult(network, values, config)
    graph = Graph(network, values, config)
    graph.wanted = _wanted(network)
    for spec in network.inputs:
        layout = graph.wanted.get(spec.name, Layout.of(spec.shape))
        shape = shaping.channels_last(spec.name, spec.shape) if len(spec.shape) < 4 else (layout.indices.size,)
        tensor, type = graph.input(spec.name, shape), FixedType.of(spec.type)
        if tensor == config.project:
            raise NotExact(
                f"{spec.name}: the input's port is called {tensor!r}, and so is the project's top function; the C++ "
                "needs two names. Rename the project (HlsConfig.project) or the input"
            )
        graph.layers.append(Layer(tensor, {"result": type}))
        graph.placed[spec.name] = Placed(tensor, shape, layout, type, tensor)
    for op in network.ops:
        match op:
            case Dense():
                placed = layers.dense(graph, op)
            case Conv():
                placed = layers.conv(graph, op)
            case SumPool():
                placed = layers.sum_pool(graph, op)
            case Requantize():
                placed = layers.requantize(graph, op)
            case Lookup():
                placed = layers.lookup(graph, op)
            case Reshape():
                placed = shaping.reshape(graph, op)
            case Pad():
                placed = shaping.pad(graph, op)
            case MaxPool():
                placed = shaping.max_pool(graph, op)
            case Upsample():
                placed = shaping.upsample(graph, op)
            case Concat():
                placed = shaping.concat(graph, op)
            case Add():
                placed = shaping.add(graph, op)
            case _:
                raise AssertionError(f"{op.name}: {op.kind} was not refused")
        graph.placed[op.name] = placed
    outputs = _outputs(network, graph)
    if graph.stream:
        _refuse_copies(graph, outputs)
    model = graph.model(outputs)
    return Design(model, graph.results, graph.settings, tuple(graph.layers), graph.placed)


def _outputs(network: IntegerNetwork, graph: Graph) -> list[str]:
    """The tensors of the outputs, in the network's order; no two may be one."""
    seen: dict[str, str] = {graph.placed[spec.name].tensor: spec.name for spec in network.inputs}
    for output in network.outputs:
        tensor = graph.placed[output.name].tensor
        if tensor in seen:
            raise NotExact(
                f"output {output.name!r} has the integers of {seen[tensor]!r}, at most in another shape; in the "
                "firmware both are one port. List one of them"
            )
        seen[tensor] = output.name
    return [graph.placed[output.name].tensor for output in network.outputs]


def _wanted(network: IntegerNetwork) -> dict[str, Layout]:
    """The order in which one-dimensional values should come, where a later op reshapes them into space.

    A dense layer can give its outputs in any order, and an input port can have any; what lies between keeps it.
    """
    wanted: dict[str, Layout] = {}
    shapes = {name: value.shape for name, value in network.values.items()}
    for op in reversed(network.ops):
        layout = None
        if isinstance(op, Reshape) and len(op.to) > 1:
            layout = Layout.of(op.to)
        elif isinstance(op, Reshape | Requantize | Lookup | Add):
            layout = wanted.get(op.name)
        if layout is not None:
            for operand in op.inputs:
                if len(shapes[operand]) == 1:
                    wanted.setdefault(operand, layout)
    return wanted


_WITHOUT_FORM = {
    "Subtract": "Subtract has no bit-exact form here",
    "Multiply": "Multiply has no bit-exact form here",
    "ReduceMax": "ReduceMax has no form in hls4ml",
    "ReduceSum": "ReduceSum has no form in hls4ml",
}


def _refuse_copies(graph: Graph, outputs: Sequence[str]) -> None:
    for tensor, readers in graph.copies(outputs).items():
        if readers == 0:
            raise NotExact(
                f"{graph.source(tensor)}: nobody reads it, so its stream would fill up and the hardware stop; drop "
                "the op or list it as an output"
            )
        if readers > MAX_STREAM_READERS:
            raise NotExact(
                f"{graph.source(tensor)}: {readers} ops and outputs read it; hls4ml copies a stream at most "
                f"{MAX_STREAM_READERS} times. Use io_parallel"
            )


def _refuse_catapult(network: IntegerNetwork, values: Mapping[str, Value], config: HlsConfig) -> None:
    """What hls4ml's Catapult back end cannot do, or does wrongly (1.3.0: seen in its C simulation)."""
    for op in network.ops:
        if isinstance(op, Lookup):
            raise NotExact(
                f"{op.name}: a table; hls4ml's Catapult back end has none. Use Vitis or Vivado, or a ReLU in its place"
            )
        grouped = (isinstance(op, Conv) and op.depthwise) or (isinstance(op, SumPool) and values[op.name].shape[0] > 1)
        if grouped and config.io_type == "io_parallel":
            raise NotExact(
                f"{op.name}: a depthwise convolution, or a sum pool made of one; hls4ml's C++ of it for Catapult in "
                "io_parallel gives wrong sums. Use io_stream"
            )
        if isinstance(op, Requantize) and op.type.max_bits == 1:
            raise NotExact(
                f"{op.name}: a result of one bit; hls4ml gives ac_fixed two bits at least, the second one a half, so "
                "it would not be rounded to an integer. Use two bits"
            )


def _refuse(network: IntegerNetwork, values: Mapping[str, Value]) -> None:
    if len(network.inputs) != 1:
        raise NotExact(
            f"to_hls: {len(network.inputs)} inputs ({', '.join(spec.name for spec in network.inputs)}); the C "
            "simulation's driver feeds one. Concatenate them before the network"
        )
    for spec in network.inputs:
        if not spec.shape:
            raise NotExact(f"{spec.name}: an input of shape (); an hls4ml port is an array. Give it the shape (1,)")
    for op in network.ops:
        if op.kind in _WITHOUT_FORM:
            raise NotExact(
                f"{op.name}: {_WITHOUT_FORM[op.kind]}. It is mostly part of a softmax: end the network on the values "
                "before it (the largest logit is the predicted class), or leave this network to QONNX"
            )
        if isinstance(op, Requantize) and not op.type.uniform:
            raise NotExact(
                f"{op.name}: type {op.type} has a width for each channel; hls4ml has one type for a layer's result. "
                "Use the widest width, or leave this network to QONNX"
            )
    by_rank = {
        len(op.kernel): op.name
        for op in network.ops
        if (isinstance(op, Conv) and op.depthwise) or (isinstance(op, SumPool) and values[op.name].shape[0] > 1)
    }
    if len(by_rank) > 1:
        raise NotExact(
            f"{by_rank[1]}: a depthwise convolution or sum pool in one dimension, beside {by_rank[2]} in two; hls4ml's "
            "C++ for both does not compile in one project. Reshape to (channels, 1, n) and convolve in two dimensions"
        )
    for name in [spec.name for spec in network.inputs] + [output.name for output in network.outputs]:
        if values[name].magnitude >= 1 << 53:
            raise NotExact(
                f"{name}: values up to {values[name].magnitude}; the C simulation's ports carry doubles, 2^53"
            )
