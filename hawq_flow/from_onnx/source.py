"""The file before it is understood: read, checked for what no reader could make sense of, its nodes in order."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from hawq_flow.from_onnx.refusals import ImportRefused, Refusal, Refuse
from hawq_flow.numeric import IntType

_OWN_TYPE = re.compile(r"(u?)int(\d+)(n?)\Z")


@dataclass(frozen=True)
class Source:
    """A model with its constants read and its nodes in an order of evaluation.

    Attributes
    ----------
    inputs:
        Shapes by name, batch excluded.
    names:
        For each node a name: its own where that is given and unique, else made from its type and its output.
    uses:
        How often each tensor is read, outputs of the graph included.
    """

    model: onnx.ModelProto
    label: str
    sha256: str
    constants: dict[str, NDArray[Any]]
    inputs: dict[str, tuple[int, ...]]
    outputs: tuple[str, ...]
    nodes: tuple[onnx.NodeProto, ...]
    names: tuple[str, ...]
    uses: dict[str, int]
    opsets: dict[str, int]


def load(model: onnx.ModelProto | Path | str) -> Source:
    """Read and check a file (or a model in memory).

    Raises
    ------
    ImportRefused
        For everything at once that makes the file unreadable: not ONNX, no nodes, control flow, missing data, a name
        defined twice, a tensor nobody makes, a shape that is not fixed.
    """
    if isinstance(model, onnx.ModelProto):
        proto, label, data = model, model.graph.name or "model", model.SerializeToString(deterministic=True)
    else:
        path = Path(model)
        label, data = path.name, _bytes(path)
        proto = onnx.ModelProto()
        try:
            proto.ParseFromString(data)
        except Exception as error:  # protobuf raises types of its own
            raise _unreadable(label, f"not an ONNX file ({error}); export the model again") from error
        _external(proto, path, label)
    if not proto.graph.node:
        raise _unreadable(label, "no nodes: not an ONNX model, or an empty one")
    return _checked(proto, label, hashlib.sha256(data).hexdigest())


def _unreadable(label: str, reason: str) -> ImportRefused:
    return ImportRefused(label, [Refusal(label, "file", reason)])


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(path.name, f"cannot be read: {error.strerror or error}") from error


def _external(proto: onnx.ModelProto, path: Path, label: str) -> None:
    """Load tensors kept beside the file."""
    try:
        onnx.load_external_data_for_model(proto, str(path.parent))
    except Exception as error:  # missing files, and paths that leave the folder
        raise _unreadable(label, f"keeps tensors in other files, which cannot be read ({error})") from error


def _checked(proto: onnx.ModelProto, label: str, sha256: str) -> Source:
    graph = proto.graph
    refusals: list[Refusal] = []
    constants: dict[str, NDArray[Any]] = {}
    for tensor in graph.initializer:
        try:
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                raise ValueError("its data are in another file; give the path of the model, not the model in memory")
            constants[tensor.name] = np.asarray(numpy_helper.to_array(tensor))
        except Exception as error:  # wrong sizes, unknown types
            refusals.append(Refusal(tensor.name, "initializer", f"cannot be read ({error})"))
    if graph.sparse_initializer:
        refusals.append(Refusal(graph.sparse_initializer[0].values.name, "initializer", "is sparse; store it densely"))
    if proto.functions:
        refusals.append(Refusal(proto.functions[0].name, "function", "the file defines functions; inline them first"))
    inputs: dict[str, tuple[int, ...]] = {}
    for info in graph.input:
        if info.name not in constants:
            try:
                inputs[info.name] = _shape(info)
            except ValueError as error:
                refusals.append(Refusal(info.name, "input", str(error)))
    names = _names(graph.node)
    defined = set(constants) | {info.name for info in graph.input}
    makers: dict[str, str] = {}
    for node, name in zip(graph.node, names, strict=True):
        if any(a.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) for a in node.attribute):
            refusals.append(Refusal(name, node.op_type, "holds a graph of its own (control flow); unroll it"))
        for output in node.output:
            if output and (output in makers or output in defined):
                other = makers.get(output, "an input or initializer")
                refusals.append(Refusal(name, node.op_type, f"makes {output!r}, which {other} makes too"))
            makers[output] = name
    if refusals:
        raise ImportRefused(label, refusals)
    order = _sorted(graph.node, names, defined, label)
    uses: dict[str, int] = {}
    for node in graph.node:
        for name in node.input:
            uses[name] = uses.get(name, 0) + 1
    outputs = tuple(info.name for info in graph.output)
    for name in outputs:
        uses[name] = uses.get(name, 0) + 1
        if name not in makers and name not in defined:
            raise _unreadable(label, f"its output {name!r} is made by no node")
    if not outputs:
        raise _unreadable(label, "the graph has no output")
    if not inputs:
        raise _unreadable(label, "the graph has no input: everything in it is constant")
    opsets = {entry.domain if entry.domain != "ai.onnx" else "": entry.version for entry in proto.opset_import}
    return Source(
        proto,
        label,
        sha256,
        constants,
        inputs,
        outputs,
        tuple(graph.node[i] for i in order),
        tuple(names[i] for i in order),
        uses,
        opsets,
    )


def _shape(info: onnx.ValueInfoProto) -> tuple[int, ...]:
    """The shape of an input without its batch."""
    kind = info.type.tensor_type
    if not info.type.HasField("tensor_type") or not kind.HasField("shape"):
        raise ValueError("has no shape; export the model with one")
    dims = [d.dim_value if d.HasField("dim_value") else 0 for d in kind.shape.dim]
    if len(dims) < 2:
        raise ValueError(f"has shape {dims}; expected a batch axis and at least one more")
    if any(n < 1 for n in dims[1:]):
        shown = [d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in kind.shape.dim]
        raise ValueError(f"has shape {shown}; every axis but the batch's must be a number. Fix it when exporting")
    return tuple(dims[1:])


def integer_type(model: onnx.ModelProto, name: str) -> IntType | None:
    """The type of an input that the file itself types as integers; our own files say the true width beside.

    ``Refuse`` for metadata that cannot be read, or that contradict the file.
    """
    info = next(info for info in model.graph.input if info.name == name)
    widths = {
        onnx.TensorProto.INT8: (8, True),
        onnx.TensorProto.UINT8: (8, False),
        onnx.TensorProto.INT16: (16, True),
        onnx.TensorProto.UINT16: (16, False),
        onnx.TensorProto.INT32: (32, True),
    }
    element = info.type.tensor_type.elem_type
    held = IntType(*widths[element]) if element in widths else None
    for entry in model.metadata_props:
        if entry.key == "hawq_flow.inputs" and element not in (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE):
            return _own_type(name, entry.value, held) or held
    return held


def _own_type(name: str, text: str, held: IntType | None) -> IntType | None:
    """The type that our own files say for an input, in their metadata; None where they say nothing of it."""
    where = f"the file's metadata hawq_flow.inputs {text[:40]!r}"
    try:
        found = json.loads(text)
        kind = found.get(name, {}).get("type", "")
        match = _OWN_TYPE.match(str(kind))
        type = IntType(int(match[2]), signed=not match[1], narrow=bool(match[3])) if match else None
    except (ValueError, AttributeError) as error:
        raise Refuse(f"{where} cannot be read ({error}); remove it, or export the model again") from error
    if type and held and not (held.range[0] <= type.range[0] and type.range[1] <= held.range[1]):
        raise Refuse(f"{where} says {type}, which the file's own {held} does not hold; remove it, or correct it")
    return type


def _names(nodes: Sequence[onnx.NodeProto]) -> list[str]:
    given = [node.name for node in nodes]
    result: list[str] = []
    for node in nodes:
        if node.name and given.count(node.name) == 1:
            result.append(node.name)
        else:
            result.append(f"{node.name or node.op_type}_{node.output[0] if node.output else len(result)}")
    return result


def _sorted(nodes: Sequence[onnx.NodeProto], names: Sequence[str], defined: set[str], label: str) -> list[int]:
    """An order in which every node follows what it reads, stable; files may list nodes in any."""
    known = set(defined) | {""}
    for node in nodes:
        if not all(name in known for name in node.input):
            break
        known |= set(node.output)
    else:
        return list(range(len(nodes)))
    known = set(defined) | {""}
    waiting, order = list(range(len(nodes))), []
    while waiting:
        ready = [i for i in waiting if all(name in known for name in nodes[i].input)]
        if not ready:
            made = {name for node in nodes for name in node.output}
            lost = [
                Refusal(names[i], nodes[i].op_type, f"reads {name!r}, which nothing makes")
                for i in waiting
                for name in nodes[i].input
                if name not in known and name not in made
            ]
            cycle = [Refusal(names[waiting[0]], nodes[waiting[0]].op_type, "is part of a cycle")]
            raise ImportRefused(label, lost or cycle)
        for i in ready:
            known |= set(nodes[i].output)
        order += ready
        chosen = set(ready)
        waiting = [i for i in waiting if i not in chosen]
    return order
