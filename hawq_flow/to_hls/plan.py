"""QONNX + every precision read from the IR -> a normal hls4ml project, and its C simulation on integers.

hls4ml reads the graph from the QONNX file of :mod:`hawq_flow.to_qonnx`; the precisions it would choose itself are not
exact for integer networks, so each one is set here from what the IR derives, and checked again after hls4ml is done:

* the input port, weights and biases have the narrowest type that holds them (the input: its declared type);
* an accumulator has the type of the finished sum. Partial sums may leave it and come back: ap_fixed wraps modulo
  2^w, and a sum that fits is the same modulo 2^w in any order;
* the scale ``m / 2^c`` keeps every fractional bit, ``ap_ufixed<bits(m), bits(m) - c>``; per channel, one type that
  holds all of them. The product is then exact, and its one rounding and one saturation are those of the result type
  (AP_RND_CONV half to even, AP_TRN floor; half up adds 1/2 first; AP_SAT only where the interval leaves the type);
* a zero point is added by a second ApplyAlpha, after the rounding.

hls4ml merges neighbouring nodes by rules of its own. The rules are steered by which results are left open ('auto'), the
outcome is compared layer by layer, type by type and constant by constant with what is expected here, and any
difference is an error: nothing inexact is written.

The project is complete by itself: sources, ap_types, scripts for the vendor tool, the QONNX model, a self-checking C
simulation with its own Makefile, test vectors, and ``hawq_flow.json`` with ports, types, scales and zero points. It
holds no path of this machine; the same network and configuration give the same bytes; the folder is absent or complete.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
from numpy.typing import ArrayLike, NDArray

from hawq_flow import to_qonnx
from hawq_flow.network import Dense, IntegerNetwork, Requantize, Reshape, Value
from hawq_flow.numeric import IntType, Rounding
from hawq_flow.to_qonnx import NotExact, RequantizePlan, plan_requantize, weight_type

BACKENDS = ("Vitis", "Vivado")
IO_TYPES = ("io_parallel", "io_stream")
STRATEGIES = ("Latency", "Resource")
MAX_STREAM_READERS = 7
_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*\Z")
_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")


@dataclass(frozen=True)
class HlsConfig:
    """Everything about a project that is not the network.

    Attributes
    ----------
    backend:
        'Vitis' (Vitis HLS 2020.2 and later) or 'Vivado' (Vivado HLS up to 2020.1).
    part:
        The FPGA, as the vendor tool names it.
    clock_period_ns:
        Target clock period in nanoseconds.
    io_type:
        'io_parallel' (all elements at once) or 'io_stream' (AXI streams).
    strategy, reuse_factor:
        hls4ml's 'Latency' or 'Resource', and how often a multiplier is used for one inference. hls4ml takes the nearest
        factor each layer allows; the manifest records what it took.
    project:
        Name of the project and of its top function.
    """

    backend: str = "Vitis"
    part: str = "xcu250-figd2104-2L-e"
    clock_period_ns: float = 5.0
    io_type: str = "io_parallel"
    strategy: str = "Latency"
    reuse_factor: int = 1
    project: str = "network"

    def __post_init__(self) -> None:
        for name, allowed in (("backend", BACKENDS), ("io_type", IO_TYPES), ("strategy", STRATEGIES)):
            if getattr(self, name) not in allowed:
                raise ValueError(f"HlsConfig: {name} {getattr(self, name)!r}; expected one of {', '.join(allowed)}")
        if self.reuse_factor < 1 or self.clock_period_ns <= 0:
            raise ValueError(
                f"HlsConfig: reuse_factor {self.reuse_factor}, clock_period_ns {self.clock_period_ns}; "
                "expected a factor of 1 or more and a period above 0"
            )
        if not _PART.match(self.part):
            raise ValueError(
                f"HlsConfig: part {self.part!r}; expected a vendor's part name: letters, digits, hyphens, underscores"
            )
        if not math.isfinite(self.clock_period_ns):
            raise ValueError(f"HlsConfig: clock_period_ns {self.clock_period_ns}; expected a finite period")
        if self.project.lower() in _RESERVED | {"main", "nnet"}:
            raise ValueError(f"HlsConfig: project {self.project!r} is a word of C++ or of hls4ml; choose another name")
        if not _IDENTIFIER.match(self.project):
            raise ValueError(f"HlsConfig: project {self.project!r}; expected letters, digits, underscores (a C++ name)")


@dataclass(frozen=True)
class FixedType:
    """An ap_fixed or ap_ufixed: ``bits`` in all, ``integer`` of them left of the point (below 0: all are far right)."""

    bits: int
    integer: int
    signed: bool
    rounding: str = "AP_TRN"
    overflow: str = "AP_WRAP"

    def __str__(self) -> str:
        modes = "" if (self.rounding, self.overflow) == ("AP_TRN", "AP_WRAP") else f",{self.rounding},{self.overflow},0"
        return f"ap_{'' if self.signed else 'u'}fixed<{self.bits},{self.integer}{modes}>"

    @classmethod
    def of(cls, type: IntType, rounding: str = "AP_TRN", overflow: str = "AP_WRAP") -> FixedType:
        """Integers of ``type``."""
        return cls(type.max_bits, type.max_bits, type.signed, rounding, overflow)

    @classmethod
    def holding(cls, values: ArrayLike) -> FixedType:
        """The narrowest type holding every given dyadic number exactly (whole numbers: no fractional bits)."""
        array = np.asarray(values, dtype=np.float64).ravel()
        fraction = 0
        while not (np.ldexp(array, fraction) == np.rint(np.ldexp(array, fraction))).all():
            fraction += 1
        scaled = [int(v) for v in np.ldexp(array, fraction)]
        type = IntType.holding(min(scaled), max(scaled))
        return cls(type.max_bits, type.max_bits - fraction, type.signed)


ONE, ZERO = FixedType(1, 1, False), FixedType(1, 1, False)


@dataclass(frozen=True)
class Layer:
    """One hls4ml layer as it has to come out: its types by role and its constants, in the source network's terms."""

    name: str
    types: Mapping[str, FixedType]
    constants: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    optional: bool = False


@dataclass(frozen=True)
class Design:
    """The graph given to hls4ml, which results it is told, and the layers it has to make of it.

    Attributes
    ----------
    values:
        For every value of the network, the layers that may carry it: the last one that hls4ml keeps does.
    """

    model: onnx.ModelProto
    results: Mapping[str, FixedType]
    layers: tuple[Layer, ...]
    values: Mapping[str, tuple[str, ...]]


def design(network: IntegerNetwork, model: onnx.ModelProto, io_type: str = "io_parallel") -> Design:
    """Derive every layer and every precision of the hls4ml project.

    Raises
    ------
    NotExact
        Naming the op, for what hls4ml cannot do exactly: per-channel output widths, a value beyond 53 bits at a port,
        several inputs, a stream with more readers than hls4ml copies, what QONNX cannot express.
    """
    values = to_qonnx.check(network)
    _refuse(network, values, io_type)
    names = _Names(model)
    layers = [Layer(names[spec.name], {"result": FixedType.of(spec.type)}) for spec in network.inputs]
    types = {spec.name: FixedType.of(spec.type) for spec in network.inputs}
    results: dict[str, FixedType] = {}
    carriers = {spec.name: (names[spec.name],) for spec in network.inputs}
    for op in network.ops:
        match op:
            case Dense():
                made, told = _dense_layers(op, network, values, names)
                results |= told
            case Requantize():
                made = _requantize_layers(op, values, names)
            case Reshape():
                made = [Layer(names[op.name], {"result": types[op.input]}, optional=True)]
        layers += made
        types[op.name] = made[-1].types["result"]
        before = carriers[op.inputs[0]] if made[-1].optional else ()
        carriers[op.name] = (*before, made[-1].name)
    return Design(_hls_graph(model, names), results, tuple(layers), carriers)


def _refuse(network: IntegerNetwork, values: Mapping[str, Value], io_type: str) -> None:
    if len(network.inputs) != 1:
        raise NotExact(
            f"to_hls: {len(network.inputs)} inputs ({', '.join(spec.name for spec in network.inputs)}); the C "
            "simulation's driver feeds one. Concatenate them before the network"
        )
    for op in network.ops:
        if isinstance(op, Requantize) and not op.type.uniform:
            raise NotExact(
                f"{op.name}: type {op.type} has a width for each channel; hls4ml has one type for a layer's result. "
                "Use the widest width, or leave this network to QONNX"
            )
    for name in values:
        readers = sum(name in op.inputs for op in network.ops) + sum(name == o.name for o in network.outputs)
        if io_type == "io_stream" and readers > MAX_STREAM_READERS:
            raise NotExact(
                f"{name}: {readers} ops and outputs read it; hls4ml copies a stream at most {MAX_STREAM_READERS} "
                "times. Use io_parallel"
            )
    for name in [spec.name for spec in network.inputs] + [output.name for output in network.outputs]:
        if values[name].magnitude >= 1 << 53:
            raise NotExact(
                f"{name}: values up to {values[name].magnitude}; the C simulation's ports carry doubles, 2^53"
            )


class _Names:
    """QONNX tensor names as C++ identifiers that stay distinct when lower-cased, as hls4ml's configuration keys are."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._names: dict[str, str] = {}
        taken: set[str] = set()
        graph = model.graph
        tensors = [i.name for i in graph.input] + [t.name for t in graph.initializer]
        for tensor in tensors + [name for node in graph.node for name in node.output]:
            name = plain = tensor.replace("/", "_")
            number = 2
            while name.lower() in taken or name.lower() in _RESERVED:
                name, number = f"{plain}_{number}", number + 1
            taken.add(name.lower())
            self._names[tensor] = name

    def __getitem__(self, tensor: str) -> str:
        return self._names[tensor]


_RESERVED = frozenset(
    """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl concept const
    constexpr continue decltype default delete do double else enum explicit export extern false final float for
    friend goto if import inline int long main module mutable namespace new noexcept not not_eq nullptr operator
    or or_eq override private protected public register requires return short signed sizeof static struct switch
    template this throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t while
    xor xor_eq std nnet hls input result size weights bias
    """.split()  # noqa: SIM905 - a table of words
)
"""Names an input port must not have: C++ keywords, and what hls4ml's own types and macros are made of."""


def _dense_layers(
    op: Dense, network: IntegerNetwork, values: Mapping[str, Value], names: _Names
) -> tuple[list[Layer], dict[str, FixedType]]:
    """Dense with its bias inside; or, where a merge would go too far, Dense and a separate bias layer.

    hls4ml merges what follows into a Dense whose result is open: the bias, wanted; but also a Quant or an offset
    right behind, without looking who else reads the sum. So the result is left open only when that cannot happen.
    """
    weights = {"weight": op.weight.T.astype(np.float64)}
    free = dataclasses.replace(op, accumulator=None).derive([values[op.input]])
    bias, bias_type = op.bias.astype(np.float64), FixedType.holding(op.bias)
    common = {"weight": FixedType.of(weight_type(op))}
    readers = [other for other in network.ops if op.name in other.inputs]
    outputs = sum(output.name == op.name for output in network.outputs)
    cut = to_qonnx.declared_accumulator(op, values)
    identity = any(isinstance(o, Requantize) and plan_requantize(o, values).identity for o in readers)
    matmul = names[f"{op.name}/matmul"]
    total = names[f"{op.name}/sum" if cut else op.name]
    if cut or (len(readers) + outputs == 1 and not identity):
        accumulated = FixedType.of(free.type)
        result = FixedType.of(op.accumulator, "AP_TRN", "AP_SAT") if cut and op.accumulator else accumulated
        if cut and op.accumulator and op.accumulator.narrow:
            result = dataclasses.replace(result, overflow="AP_SAT_SYM")
        dense = Layer(
            f"Dense_{matmul}",
            common | {"bias": bias_type, "accum": accumulated, "result": result},
            weights | {"bias": bias},
        )
        return [dense], {total: accumulated}
    bare = FixedType.of(
        dataclasses.replace(op, accumulator=None, bias=np.zeros_like(op.bias)).derive([values[op.input]]).type
    )
    dense = Layer(
        f"Dense_{matmul}",
        common | {"bias": ZERO, "accum": bare, "result": bare},
        weights | {"bias": np.zeros_like(bias)},
    )
    full = FixedType.of(free.type)
    added = Layer(
        f"bn_{total}",
        {"scale": ONE, "bias": bias_type, "result": full},
        {"scale": np.ones_like(bias), "bias": bias},
    )
    # A bias of zeros is a layer that does nothing; hls4ml removes it, and the sum without bias has the same type.
    return [dense, added] if bias.any() else [dense], {matmul: bare, total: full}


def _requantize_layers(op: Requantize, values: Mapping[str, Value], names: _Names) -> list[Layer]:
    """ApplyAlpha with the scale, rounding into its result; with a zero point a second that adds it and saturates."""
    plan = plan_requantize(op, values)
    shape = values[op.name].shape
    rounding = "AP_RND_CONV" if op.rounding is Rounding.HALF_EVEN else "AP_TRN"
    offset = np.broadcast_to(op.offset, shape).astype(np.float64)
    result = FixedType.of(op.type, "AP_TRN" if plan.identity or plan.two_steps else rounding, _overflow(op, plan))
    ones = np.ones(shape)
    layers = []
    if not plan.identity:
        half = np.full(shape, 0.5) if op.rounding is Rounding.HALF_UP else np.zeros(shape)
        scaled = FixedType.of(plan.rounded, rounding) if plan.two_steps else result
        layers.append(
            Layer(
                "bn_" + names[f"{op.name}/{'plus_half' if half.any() else 'scaled'}"],
                {"scale": FixedType.holding(plan.factor), "bias": FixedType.holding(half), "result": scaled},
                {"scale": np.broadcast_to(plan.factor, shape), "bias": half},
            )
        )
    if plan.offset:
        layers.append(
            Layer(
                "bn_" + names[f"{op.name}/shifted"],
                {"scale": ONE, "bias": FixedType.holding(offset), "result": result},
                {"scale": ones, "bias": offset},
            )
        )
    elif plan.identity:
        # A cast; hls4ml drops it when it changes no type.
        layers.append(Layer(f"{names[op.name]}_act", {"result": result}, optional=values[op.input].type == op.type))
    return layers


def _overflow(op: Requantize, plan: RequantizePlan) -> str:
    """Saturation only where some value can leave the type: it costs comparators."""
    rank = plan.low.ndim
    low, high = plan.low + op.offset, plan.high + op.offset
    if (low >= op.type.low(rank)).all() and (high <= op.type.high(rank)).all():
        return "AP_WRAP"
    return "AP_SAT_SYM" if op.type.narrow else "AP_SAT"


def _hls_graph(model: onnx.ModelProto, names: _Names) -> onnx.ModelProto:
    """The QONNX graph as hls4ml takes it: one row, identifiers for names, no Quant on the input (ports have types)."""
    copy = to_qonnx.with_batch(model, 1)
    graph = copy.graph
    inputs = {info.name for info in graph.input}
    declared = {n.output[0]: n.input[0] for n in graph.node if n.op_type == "Quant" and n.input[0] in inputs}
    declared = {out: into for out, into in declared.items() if out == f"{into}/quant"}
    nodes = [node for node in graph.node if node.output[0] not in declared]
    del graph.node[:]
    graph.node.extend(nodes)
    used = {name for node in graph.node for name in node.input}
    constants = [tensor for tensor in graph.initializer if tensor.name in used]
    del graph.initializer[:]
    graph.initializer.extend(constants)
    infos = [info for info in graph.value_info if info.name not in declared]
    del graph.value_info[:]
    graph.value_info.extend(infos)
    for node in graph.node:
        node.name = names[node.output[0]]
        for i, name in enumerate(node.input):
            node.input[i] = names[declared.get(name, name)]
        node.output[0] = names[node.output[0]]
    for entry in (*graph.initializer, *graph.value_info, *graph.input, *graph.output):
        entry.name = names[entry.name]
    return copy
