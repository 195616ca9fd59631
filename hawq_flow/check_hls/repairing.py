"""A file that hls4ml does not carry over -> an equal one that it does: import, then export in hls4ml's dialect.

The import (:mod:`hawq_flow.from_onnx`) proves the file equal to an integer network. Its QONNX (:mod:`to_qonnx`) has
every quantizer at scale 1, each multiplier ``m / 2^c`` and zero point an operation of its own. What stock hls4ml
needs beyond that, on values with axes (behind convolutions), is written here; nothing is computed anew:

* ``Mul(f)``, ``Mul(f) -> Add(b)`` and ``Add(b)`` with a constant for each channel become one BatchNormalization with
  mean 0, variance 1, epsilon 0: the only form in which hls4ml reads them there. ``x * f / sqrt(1 + 0) + b`` is the
  same;
* a sum that several read and one quantizes passes a Quant of its own type first. It changes nothing, and hls4ml, which
  merges the first Quant behind a layer into that layer, then merges this one;
* the batch is 1: qonnx wants numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from hawq_flow import from_onnx, to_qonnx
from hawq_flow.check_hls.findings import Finding, precision, ready, table
from hawq_flow.from_onnx import Imported
from hawq_flow.network import Conv, Dense, IntegerNetwork
from hawq_flow.numeric import IntType
from hawq_flow.to_qonnx import quant_type

QONNX = "qonnx.custom_op.general"


class RepairRefused(ValueError):
    """The network is exact, but has operations that stock hls4ml cannot read in any form; ``findings`` lists them."""

    findings: tuple[Finding, ...]

    def __init__(self, findings: tuple[Finding, ...]) -> None:
        self.findings = findings
        super().__init__(
            "repair: the file was imported exactly, but stock hls4ml has no form for part of it:\n"
            + table([finding for finding in findings if finding.kind in ("refused", "crash", "wrong")])
            + "hawq_flow's own hls4ml projects (hawq-flow import, then to_hls) carry tables, resizing, padding and "
            "overlapping "
            "windows; change the rest in the source tool"
        )


def repair(
    model: onnx.ModelProto | Path | str, *, snap: float | None = None, inputs: Mapping[str, str] | None = None
) -> tuple[onnx.ModelProto, Imported]:
    """An equal QONNX model that stock hls4ml imports, and the import it was made from.

    The repaired model computes on integers: its inputs and outputs have scale 1. ``metadata_props`` say how real
    numbers become its inputs and its outputs real numbers (``hawq_flow.note``, ``.inputs``, ``.outputs``), where the
    file's elements went (``network.origin``), and hls4ml's default precision that is enough
    (``hawq_flow.default_precision``); ``Imported.integers`` and ``Imported.real`` do the mapping.

    Parameters
    ----------
    model, snap, inputs:
        As for :func:`hawq_flow.from_onnx.read`; the model is not changed.

    Raises
    ------
    ImportRefused
        Listing every node that integers cannot carry.
    RepairRefused
        When the network is exact, but parts of it have no form that stock hls4ml reads.
    NotExact
        When QONNX cannot express the network.
    """
    from hawq_flow.check_hls import check  # the check of the outcome; the package imports this module

    imported = from_onnx.read(model, snap=snap, inputs=inputs)
    repaired = for_hls4ml(imported.network)
    findings = check(repaired)
    if not ready(findings):
        raise RepairRefused(findings)
    told = {entry.key: entry.value for entry in repaired.metadata_props}
    helper.set_model_props(repaired, told | {"hawq_flow.default_precision": precision(findings) or "fixed<16,6>"})
    return repaired, imported


def for_hls4ml(network: IntegerNetwork) -> onnx.ModelProto:
    """The QONNX of a network in the form that stock hls4ml reads, for one row; every tensor holds the same integers."""
    model = to_qonnx.with_batch(to_qonnx.export(network), 1)
    graph = model.graph
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    shapes = {
        info.name: tuple(dim.dim_value for dim in info.type.tensor_type.shape.dim)
        for info in (*graph.input, *graph.value_info, *graph.output)
    }
    nodes = _normalized(list(graph.node), constants, shapes)
    nodes = _guarded(network, nodes, constants, {output.name for output in graph.output})
    used = {name for node in nodes for name in node.input}
    made = {name for node in nodes for name in node.output}
    infos = [info for info in graph.value_info if info.name in made]
    known = {info.name for info in (*graph.input, *infos, *graph.output)}
    infos += [helper.make_tensor_value_info(name, TensorProto.FLOAT, shapes[name]) for name in sorted(made - known)]
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    result = helper.make_model(
        helper.make_graph(
            nodes,
            graph.name,
            graph.input,
            graph.output,
            [numpy_helper.from_array(np.asarray(constants[name]), name) for name in sorted(used & constants.keys())],
            value_info=infos,
        ),
        ir_version=model.ir_version,
        producer_name=model.producer_name,
        producer_version=model.producer_version,
        opset_imports=[helper.make_opsetid(domain, version) for domain, version in opsets.items()],
    )
    helper.set_model_props(result, {entry.key: entry.value for entry in model.metadata_props})
    onnx.checker.check_model(result)
    return result


def _normalized(
    nodes: list[onnx.NodeProto], constants: dict[str, NDArray[np.float32]], shapes: Mapping[str, tuple[int, ...]]
) -> list[onnx.NodeProto]:
    """Products and sums with a constant for each channel of a value with axes, as BatchNormalization."""
    result: list[onnx.NodeProto] = []
    readers: dict[str, int] = {}
    for node in nodes:
        for name in node.input:
            readers[name] = readers.get(name, 0) + 1
    taken: set[str] = set()
    by_input = {(node.op_type, node.input[0]): node for node in nodes if node.input}
    for node in nodes:
        if node.output[0] in taken:
            continue
        shape = shapes.get(node.output[0], ())
        if len(shape) < 3 or node.op_type not in ("Mul", "Add") or node.input[1] not in constants:
            result.append(node)
            continue
        channels = shape[1]
        last = node
        factor, offset = _by_channel(constants[node.input[1]], channels), np.zeros(channels, dtype=np.float32)
        if node.op_type == "Add":
            factor, offset = np.ones(channels, dtype=np.float32), factor
        elif factor is not None and readers.get(node.output[0]) == 1:
            after = by_input.get(("Add", node.output[0]))
            added = (
                _by_channel(constants[after.input[1]], channels)
                if after is not None and after.input[1] in constants
                else None
            )
            if after is not None and added is not None:
                last, offset = after, added
        if factor is None or offset is None:
            result.append(node)  # one constant an element: the check says what hls4ml makes of it
            continue
        taken.add(last.output[0])
        parts = {"scale": factor, "bias": offset, "mean": np.zeros_like(factor), "variance": np.ones_like(factor)}
        names = [f"{last.output[0]}/{what}" for what in parts]
        constants |= dict(zip(names, parts.values(), strict=True))
        result.append(
            helper.make_node(
                "BatchNormalization", [node.input[0], *names], [last.output[0]], name=last.name, epsilon=0.0
            )
        )
    return result


def _by_channel(constant: NDArray[np.float32], channels: int) -> NDArray[np.float32] | None:
    """The constant of each channel of a tensor (batch, channels, *axes), or None if it differs within a channel."""
    array = np.asarray(constant, dtype=np.float32)
    if array.size == 1:
        return np.full(channels, array.ravel()[0], dtype=np.float32)
    axes = (1,) * max(array.ndim - 1, 0)
    return array.ravel() if array.shape == (channels, *axes) and array.ndim > 1 else None


def _guarded(
    network: IntegerNetwork,
    nodes: list[onnx.NodeProto],
    constants: dict[str, NDArray[np.float32]],
    outputs: set[str],
) -> list[onnx.NodeProto]:
    """A Quant of the sum's own type behind a Dense or Conv that several read and one quantizes."""
    result: list[onnx.NodeProto] = []
    types = {op.name: _exact(network, op) for op in network.ops if isinstance(op, Dense | Conv)}
    for node in nodes:
        result.append(node)
        name = node.output[0]
        readers = [reader for reader in nodes if name in reader.input]
        several = len(readers) + (name in outputs) > 1
        if name not in types or node.op_type == "Quant" or not several:
            continue
        if not any(reader.op_type == "Quant" for reader in readers):
            continue
        inner, type = f"{name}/sum", types[name]
        node.output[0] = inner
        for what, value in (("scale", 1.0), ("zero_point", 0.0), ("bits", float(type.max_bits))):
            constants[f"{name}/own/{what}"] = np.array(value, dtype=np.float32)
        result.append(
            helper.make_node(
                "Quant",
                [inner, f"{name}/own/scale", f"{name}/own/zero_point", f"{name}/own/bits"],
                [name],
                name=f"{node.name}/own",
                domain=QONNX,
                signed=int(type.signed),
                narrow=0,
                rounding_mode="ROUND",
            )
        )
    return result


def _exact(network: IntegerNetwork, op: Dense | Conv) -> IntType:
    """The type of a sum, which a Quant of it does not change."""
    value = network.values[op.name]
    return dataclasses.replace(quant_type(int(value.low.min()), int(value.high.max())), narrow=False)
