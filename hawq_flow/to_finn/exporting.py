"""The FINN-legal file, and running it in qonnx's executor."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import onnx
from numpy.typing import ArrayLike

from hawq_flow.interpret import check_inputs
from hawq_flow.network import IntegerNetwork, Requantize, forward
from hawq_flow.numeric import IntType
from hawq_flow.to_finn.plan import plan_network
from hawq_flow.to_finn.rules import check
from hawq_flow.to_finn.symbolic import table
from hawq_flow.to_qonnx import Execution, NotExact
from hawq_flow.to_qonnx.execution import BLOCK_ELEMENTS, in_blocks, qonnx_executor
from hawq_flow.to_qonnx.exporting import canonical, exported, modelled, value_infos
from hawq_flow.to_qonnx.symbolic import DOMAIN, OPSET

LEFT = "hawq_flow.finn.host"
SUMMED = "summed"
"""``pool/summed`` is an average times its places: the sum, but for what float32 lost, which Trunc rounds away."""


def export(network: IntegerNetwork, *, activations: Literal["auto", "quant", "thresholds"] = "auto") -> onnx.ModelProto:
    """The network as QONNX that FINN converts without changing a value; rules and patterns: the package's docstring.

    Parameters
    ----------
    activations:
        ``quant``: QONNX's Quant alone. ``thresholds``: MultiThreshold for all rescales, into which FINN turns Quant
        itself. ``auto``: Quant wherever FINN's thresholds for it are exact, MultiThreshold elsewhere.

    A rescale at the end whose type is too wide for thresholds is left to the host: as Mul and Quant behind the last
    hardware layer where float32 does them exactly, else out of the graph, which then ends on the sums that it reads;
    ``metadata_props`` describe it in ``hawq_flow.finn.host``.

    Raises
    ------
    NotExact
        Naming every op that FINN cannot take, with the reason; else every node that breaks one of FINN's rules
        (:func:`check`).
    """
    planned = plan_network(network, activations=activations)
    graph = canonical(planned.network, exported(planned.network, table(planned)), {})
    renamed = {name: f"{name}/{SUMMED}" for name in planned.averages}
    declared = {node.output[0]: node.input[0] for node in graph.node if node.op_type == "Identity"}

    def resolved(name: str) -> str:
        while name in declared:
            name = declared[name]
        return renamed.get(name, name)

    kept = [node for node in graph.node if node.op_type != "Identity"]
    for node in kept:
        for names in (node.input, node.output):
            names[:] = [resolved(name) for name in names]
    del graph.node[:]
    graph.node.extend(kept)
    graph.value_info.extend(value_infos(planned.network, planned.network.values, graph.node))
    for spec in network.inputs:
        graph.quantization_annotation.append(_annotation(spec.name, spec.type))
    forms = {name: chosen.form for name, chosen in planned.activations.items()}
    extra = {
        "hawq_flow.digest": network.digest,
        "hawq_flow.finn": " ".join(f"{name}={form}" for name, form in forms.items()),
        LEFT: json.dumps({op.name: _described(op, network) for op in planned.left}),
    }
    model = modelled(planned.network, graph, {"": OPSET, DOMAIN: 1}, "float32", extra)
    if planned.left:
        _tell_of_sums(model, network, planned.left)
    if violations := check(model):
        raise NotExact(
            f"{violations[0].node}: FINN cannot take this network. {'; '.join(map(str, violations))}. Change these, or "
            "use the plain QONNX export"
        )
    return model


def _described(op: Requantize, network: IntegerNetwork) -> dict[str, Any]:
    """A rescale left to the host; with what its integers mean, where it is an output of the network."""
    arrays = {what: getattr(op, what).tolist() for what in ("multiplier", "shift", "offset")}
    result = {"input": op.input, **arrays, "rounding": op.rounding.value, "type": op.type.to_dict()}
    for spec in network.outputs:
        if spec.name == op.name:
            result |= {"scale": spec.scale.tolist(), "zero_point": spec.zero_point.tolist()}
    return result


def _tell_of_sums(model: onnx.ModelProto, network: IntegerNetwork, left: Sequence[Requantize]) -> None:
    """Outputs of the graph that are none of the network have no scale, but the names of what rescales them."""
    own = {spec.name for spec in network.outputs}
    for entry in model.metadata_props:
        if entry.key == "hawq_flow.note":
            entry.value += (
                f" Outputs with host_rescales are integers for the host to rescale, as {LEFT} says of each in order: "
                "clip(round(input * multiplier / 2^shift) + offset) to type, of that scale and zero point."
            )
        elif entry.key == "hawq_flow.outputs":
            outputs = json.loads(entry.value)
            for name, said in outputs.items():
                if name not in own:
                    del said["scale"], said["zero_point"]
                if rescales := [op.name for op in left if op.input == name]:
                    said["host_rescales"] = rescales
            entry.value = json.dumps(outputs)


def _annotation(name: str, type: IntType) -> onnx.TensorAnnotation:
    """FINN's datatype of a tensor, as qonnx's ModelWrapper stores it."""
    entry = onnx.StringStringEntryProto(key="finn_datatype", value=f"{'' if type.signed else 'U'}INT{type.max_bits}")
    return onnx.TensorAnnotation(tensor_name=name, quant_parameter_tensor_names=[entry])


def execute(model: onnx.ModelProto, network: IntegerNetwork, x: ArrayLike | Mapping[str, ArrayLike]) -> Execution:
    """Run a FINN-legal model on integers in qonnx's executor (float32, in which :func:`export` proved it exact).

    Returns
    -------
    int64 of shape (n, *shape) for every value of the network that the graph forms, and what it leaves to the host.

    Raises
    ------
    NotExact
        If a value is not a whole number.
    """
    inputs = check_inputs(network, x)
    run = qonnx_executor(model)
    formed = {name for node in model.graph.node for name in node.output}
    shapes = {name: value.shape for name, value in network.values.items() if name in formed}
    step = BLOCK_ELEMENTS // (4 * sum(math.prod(value.shape) for value in network.values.values()))
    result = in_blocks(run, inputs, shapes, step)
    for name in json.loads(next((entry.value for entry in model.metadata_props if entry.key == LEFT), "{}")):
        op = network.op(name)
        result[name] = forward(op, [result[operand] for operand in op.inputs])
    return Execution(result, "qonnx executor, float32, proven exact")
