"""The export of the torch module, and the canonical form of the exported graph."""

from __future__ import annotations

import contextlib
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from hawq_flow import __version__
from hawq_flow.network import Add, Conv, Dense, IntegerNetwork, Requantize, SumPool, Value
from hawq_flow.to_qonnx.module import QonnxModule
from hawq_flow.to_qonnx.plan import check, is_bipolar, truncation
from hawq_flow.to_qonnx.symbolic import DOMAIN, OPSET, translation

BATCH = "batch"
"""Name of the symbolic batch dimension."""


@contextlib.contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Silence two known messages of the exporter, and no others.

    It logs that torchvision is not installed (not needed here), and torch.export pickles a pytree class whose
    isinstance check is deprecated by torch itself.
    """
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")

    def relevant(record: logging.LogRecord) -> bool:
        return "torchvision" not in record.getMessage()

    logger.addFilter(relevant)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=r".*isinstance\(treespec, LeafSpec\).*", category=FutureWarning)
            yield
    finally:
        logger.removeFilter(relevant)


def exported(network: IntegerNetwork, table: Mapping[Callable[..., Any], Callable[..., Any]]) -> onnx.ModelProto:
    """What torch.onnx.export makes of the module with a table of symbolic functions: right in meaning, raw in form."""
    module = QonnxModule(network).eval()
    # Two rows: torch.export specializes a dimension of size one.
    examples = tuple(torch.zeros((2, *spec.shape), dtype=torch.float32) for spec in network.inputs)
    with _quiet_exporter(), torch.no_grad():
        program = torch.onnx.export(
            module,
            examples,
            dynamo=True,
            optimize=False,
            verbose=False,
            opset_version=OPSET,
            custom_translation_table=dict(table),
            input_names=[f"{spec.name}/input" for spec in network.inputs],
            output_names=[f"{op.name}/output" for op in network.ops],
            dynamic_shapes=(tuple({0: torch.export.Dim.DYNAMIC} for _ in examples),),
        )
    if program is None:
        raise RuntimeError("torch.onnx.export returned no program; it does so only when it writes a file itself")
    return program.model_proto


# --- the canonical form ----------------------------------------------------------------------------------------------


def export(network: IntegerNetwork, *, bipolar: bool = False, trunc: bool = False) -> onnx.ModelProto:
    """The QONNX model of a network: IR names, one node group a layer, metadata; the same network, the same bytes.

    Every IR value is a tensor of its own name (inputs and outputs of the graph among them), float32, with shape
    (batch, *shape) and a symbolic batch. Nodes are called ``layer/op/what``. ``metadata_props`` hold the digest, and as
    JSON the scales, zero points, standardization, types and shapes of inputs and outputs, and the network's metadata.

    Parameters
    ----------
    bipolar:
        Write weights that are all -1 or +1 as BipolarQuant of scale 1 (one bit) instead of a narrow Quant of two bits.
    trunc:
        Write rescales that only drop low bits (:func:`truncation`) as Trunc instead of Mul and Quant.

    Raises
    ------
    NotExact, NetworkError
        See :func:`check`.
    """
    values = check(network)
    ones = {op.name for op in network.ops if bipolar and isinstance(op, Dense | Conv) and is_bipolar(op)}
    dropped = {op.name: truncation(op, values) for op in network.ops if trunc and isinstance(op, Requantize)}
    table = translation(ones, {name: bits for name, bits in dropped.items() if bits})
    graph = canonical(network, exported(network, table), {})
    graph.value_info.extend(value_infos(network, values, graph.node))
    return modelled(network, graph, {"": OPSET, DOMAIN: 1}, "float32")


def canonical(network: IntegerNetwork, raw: onnx.ModelProto, types: Mapping[str, int]) -> onnx.GraphProto:
    """The exported graph with the IR's names, constants as initializers, and no trace of the machine.

    Parameters
    ----------
    types:
        Element types (``TensorProto``) of inputs and outputs of the network that are not float32.

    Returns
    -------
    A graph without value_info: nodes in the exporter's order, initializers sorted, unused ones left out.
    """
    values = network.values
    names = {entry.name: spec.name for entry, spec in zip(raw.graph.input, network.inputs, strict=True)}
    names |= {entry.name: op.name for entry, op in zip(raw.graph.output, network.ops, strict=True)}
    layers = {op.name: op.layer or op.name for op in network.ops}
    nodes, initializers = [], [numpy_helper.from_array(_array(tensor), tensor.name) for tensor in raw.graph.initializer]
    for node in raw.graph.node:
        if node.op_type == "Constant":
            initializers.append(_initializer(node))
            continue
        if "/" not in node.output[0] and node.output[0] not in names:  # an input's declaration, of one node or more
            owner = names.get(node.input[0], node.input[0]).partition("/")[0]
            names[node.output[0]] = f"{owner}/quant"
        output = names.get(node.output[0], node.output[0])
        owner, _, what = output.partition("/")
        layer = layers.get(owner, owner)
        prefix = owner if layer == owner else f"{layer}/{owner}"
        nodes.append(
            helper.make_node(
                node.op_type,
                [names.get(name, name) for name in node.input],
                [output],
                name=f"{prefix}/{what or node.op_type.lower()}",
                domain=node.domain,
                **{a.name: helper.get_attribute_value(a) for a in sorted(node.attribute, key=lambda a: a.name)},
            )
        )
    used = {name for node in nodes for name in node.input}
    float32 = TensorProto.FLOAT
    return helper.make_graph(
        nodes,
        "hawq_flow",
        [_info(spec.name, spec.shape, types.get(spec.name, float32)) for spec in network.inputs],
        [_info(entry.name, values[entry.name].shape, types.get(entry.name, float32)) for entry in network.outputs],
        sorted((tensor for tensor in initializers if tensor.name in used), key=lambda tensor: tensor.name),
    )


def modelled(
    network: IntegerNetwork,
    graph: onnx.GraphProto,
    opsets: Mapping[str, int],
    carried: str,
    extra: Mapping[str, str] | None = None,
) -> onnx.ModelProto:
    """The model around a canonical graph: versions and metadata, checked by onnx.

    Parameters
    ----------
    opsets:
        Version by domain.
    carried:
        What holds the integers of inputs and outputs, in words ("float32").
    extra:
        More metadata.
    """
    model = helper.make_model(
        graph,
        ir_version=10,
        producer_name="hawq_flow",
        producer_version=__version__,
        opset_imports=[helper.make_opsetid(domain, version) for domain, version in opsets.items()],
    )
    helper.set_model_props(model, _metadata(network, carried) | dict(extra or {}))
    onnx.checker.check_model(model)
    return model


def _array(tensor: TensorProto) -> NDArray[Any]:
    return np.ascontiguousarray(numpy_helper.to_array(tensor)).reshape(tuple(tensor.dims))


def _initializer(node: onnx.NodeProto) -> TensorProto:
    """A Constant node as an initializer: hls4ml reads only those."""
    value = helper.get_attribute_value(node.attribute[0])
    kind = node.attribute[0].name
    if kind == "value":
        return numpy_helper.from_array(_array(value), node.output[0])
    dtypes = {"value_float": np.float32, "value_floats": np.float32, "value_ints": np.int64}
    if kind not in dtypes:
        raise RuntimeError(f"{node.name}: Constant with {kind}; the symbolic functions write {', '.join(dtypes)}")
    return numpy_helper.from_array(np.array(value, dtype=dtypes[kind]), node.output[0])


def _info(name: str, shape: Sequence[int], type: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, type, [BATCH, *shape])


def value_infos(
    network: IntegerNetwork, values: Mapping[str, Value], nodes: Sequence[onnx.NodeProto]
) -> list[onnx.ValueInfoProto]:
    """Shapes of every tensor that is neither input nor output.

    An op's intermediates have the op's own shape, but for quantized weights, for operands taken twice, and for the
    partial sums of an Add whose operands broadcast.
    """
    ends = {spec.name for spec in network.inputs} | {output.name for output in network.outputs}
    weights: dict[str, Sequence[int]] = {}
    own: dict[str, Sequence[int]] = {}
    for op in network.ops:
        own |= {f"{op.name}/again{i}": values[name].shape for i, name in enumerate(op.inputs)}
        match op:
            case Dense():
                weights[f"{op.name}/weight_quant"] = op.weight.T.shape
            case Conv():
                weights[f"{op.name}/weight_quant"] = op.weight.shape
            case SumPool():
                weights[f"{op.name}/weight_quant"] = (values[op.name].shape[0], 1, *op.kernel)
            case Add():
                for i in range(1, len(op.operands) - 1):
                    shapes = (values[name].shape for name in op.operands[: i + 1])
                    own[f"{op.name}/sum{i}"] = np.broadcast_shapes(*shapes)
    infos = []
    for node in nodes:
        name = node.output[0]
        if name in weights:
            infos.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, weights[name]))
        elif name not in ends:
            kind = TensorProto.INT64 if node.op_type == "Cast" else TensorProto.FLOAT
            infos.append(_info(name, own.get(name, values[name.partition("/")[0]].shape), kind))
    return infos


def _metadata(network: IntegerNetwork, carried: str) -> dict[str, str]:
    """Strings for ``metadata_props``: what a reader of the file needs to feed it and to read its answer."""
    values, imported = network.values, "origin" in dict(network.metadata)

    def annotation(spec: Any, fields: Sequence[str]) -> dict[str, Any]:
        value = values[spec.name]
        entry: dict[str, Any] = {"shape": list(value.shape), "type": str(value.type), "range": list(value.type.range)}
        return entry | {field: getattr(spec, field).tolist() for field in fields}

    inputs = {s.name: annotation(s, ("scale", "zero_point", "mean", "std")) for s in network.inputs}
    outputs = {s.name: annotation(s, ("scale", "zero_point")) for s in network.outputs}
    return {
        "hawq_flow.digest": network.digest,
        "hawq_flow.inputs": json.dumps(inputs),
        "hawq_flow.outputs": json.dumps(outputs),
        "hawq_flow.note": (
            f"Inputs and outputs are integers carried in {carried}. "
            "Input: rint((raw - mean) / std / scale) + zero_point, clipped to range. "
            "Output: real = scale * (integer - zero_point)."
            + (" This network was imported: network.origin has offsets to add, and orders." if imported else "")
        ),
        **{f"network.{key}": text for key, text in network.metadata},
    }


def save(model: onnx.ModelProto, path: Path | str) -> None:
    """Write the model; the same model gives the same bytes."""
    Path(path).write_bytes(model.SerializeToString(deterministic=True))


def with_batch(model: onnx.ModelProto, rows: int) -> onnx.ModelProto:
    """A copy whose symbolic batch is ``rows``: qonnx and hls4ml want every shape to be a number."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for info in (*copy.graph.input, *copy.graph.output, *copy.graph.value_info):
        for dim in info.type.tensor_type.shape.dim:
            if dim.dim_param == BATCH:
                dim.dim_value = rows
    return copy
