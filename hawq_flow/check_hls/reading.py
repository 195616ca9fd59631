"""A file as hls4ml gets to see it: after the cleaning that stands before it on the documented road.

That road is qonnx's cleanup, its channels-last conversion for convolutional files, and the conversion of Gemm to
MatMul. What decides whether hls4ml can read a file is what is left after it, so the same is done here, on a plain
list of nodes, without qonnx: constants are folded (but not Quant, BipolarQuant, QuantizeLinear and DequantizeLinear,
which cleanup keeps on constants), Identity and Dropout disappear, Gemm becomes MatMul and Add. Every node keeps the
name that it has in the file. Shapes come from onnx's own inference, with the quantizers taken for Identity.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from hawq_flow.check_hls.malformed import inconsistent

QUANTIZERS = ("Quant", "BipolarQuant", "IntQuant", "Trunc")
"""Operators of QONNX: known by these names whatever their domain says."""

KEPT = ("Quant", "BipolarQuant", "QuantizeLinear", "DequantizeLinear")
"""What qonnx's cleanup leaves on constants; every other node of constants is computed by it."""

LAYOUT = ("Conv", "MaxPool")
"""Operators for which the file is converted to channels last, with BatchNormalization of three or more dimensions."""

ELEMENTWISE = ("Quant", "IntQuant", "BipolarQuant", "Relu", "Sigmoid", "Tanh", "LeakyRelu", "Selu", "Add", "Sub", "Mul")
"""Operators past which the conversion moves a Transpose; Div as well."""


class Unreadable(ValueError):
    """Not an ONNX model, or one whose graph is broken; the text names the file and the reason."""


@dataclass(frozen=True)
class Node:
    """One node: its name for people, operator, tensors and attributes.

    ``given`` are its inputs as the file names them; ``inputs`` are the same without the Identity nodes between.
    """

    name: str
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    domain: str = ""
    given: tuple[str, ...] = ()

    @property
    def output(self) -> str:
        """Its first output."""
        return self.outputs[0]


@dataclass(frozen=True)
class Reading:
    """The cleaned graph.

    Attributes
    ----------
    nodes:
        In the file's order.
    constants:
        Every tensor with fixed values, by name.
    shapes:
        What is known of each tensor's shape, batch included; a dimension without a number is None.
    inputs, outputs:
        The graph's, constants left out.
    folded:
        Nodes on constants that cleanup computes away although they quantize (IntQuant, Trunc).
    skipped:
        Identity and Dropout nodes that give an output of the graph.
    layout:
        Whether the road converts the file to channels last.
    stored:
        The constants that the file holds as numbers, not computed from others.
    integers:
        Whether hawq_flow wrote the file: all its numbers are integers already.
    unfit:
        By operator and name of a node: what hls4ml does, and what shape inference says, where its operands' shapes or
        its attributes do not go together.
    """

    nodes: tuple[Node, ...]
    constants: Mapping[str, NDArray[Any]]
    shapes: Mapping[str, tuple[int | None, ...]]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    folded: tuple[Node, ...]
    skipped: tuple[Node, ...]
    layout: bool
    stored: frozenset[str]
    integers: bool
    unfit: Mapping[tuple[str, str], tuple[str, str]]

    @cached_property
    def _made(self) -> Mapping[str, Node]:
        return {name: node for node in self.nodes for name in node.outputs}

    @cached_property
    def _read(self) -> Mapping[str, list[Node]]:
        found: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(node.inputs):
                found.setdefault(name, []).append(node)
        return found

    def producer(self, tensor: str) -> Node | None:
        """The node that gives a tensor, None for inputs and constants."""
        return self._made.get(tensor)

    def readers(self, tensor: str) -> list[Node]:
        """The nodes that read a tensor, in order; one that reads it twice comes once."""
        return list(self._read.get(tensor, ()))

    def uses(self, tensor: str) -> int:
        """How many nodes and graph outputs read a tensor."""
        return len(self.readers(tensor)) + self.outputs.count(tensor)

    def constant(self, tensor: str) -> NDArray[np.float64] | None:
        """The values of a constant tensor in float64, quantizers on it applied; None if it is not constant."""
        return self.constant_of_file(tensor) if tensor in self.constants else self._computed.get(tensor)

    @cached_property
    def _computed(self) -> Mapping[str, NDArray[np.float64]]:
        """What quantizers and Transposes make of constants. In the order of computation, since files can be deep."""
        found: dict[str, NDArray[np.float64]] = {}
        for node in self.nodes:
            if node.op_type not in ("Transpose", "Quant", "BipolarQuant"):
                continue
            parts = [found[name] if name in found else self.constant_of_file(name) for name in node.inputs]
            values = [part for part in parts if part is not None]
            if len(values) != len(parts):
                continue
            try:
                array = _on_constants(node, values)
            except (ArithmeticError, IndexError, TypeError, ValueError):
                continue  # its parameters do not fit: the rules say so
            if array is not None:
                found[node.output] = array
        return found

    def constant_of_file(self, tensor: str) -> NDArray[np.float64] | None:
        """The values of a tensor that the file holds, in float64; None for any other, and for what is no number."""
        array = self.constants.get(tensor)
        return array.astype(np.float64) if array is not None and array.dtype.kind in "fiub" else None

    def fixed(self, tensor: str) -> bool:
        """Whether a tensor comes from constants alone, even if its values are not known here."""
        return not tensor or tensor in self.constants or tensor in self._fixed

    @cached_property
    def _fixed(self) -> frozenset[str]:
        found: set[str] = set()
        for node in self.nodes:
            within = any(isinstance(value, onnx.GraphProto) for value in node.attributes.values())  # may read anything
            if not within and all(not name or name in self.constants or name in found for name in node.inputs):
                found |= set(node.outputs)
        return frozenset(found)

    def quantizer(self, tensor: str) -> Node | None:
        """The Quant or BipolarQuant, if any, that a constant comes through (past Transposes)."""
        node = self.producer(tensor)
        while node is not None and node.op_type == "Transpose":
            node = self.producer(node.inputs[0])
        return node if node is not None and node.op_type in ("Quant", "BipolarQuant") else None

    def rank(self, tensor: str) -> int | None:
        """The number of a tensor's dimensions, batch included; None if unknown."""
        return len(self.shapes[tensor]) if tensor in self.shapes else None

    def downstream(self, node: Node) -> bool:
        """Whether the conversion moves a Transpose from a convolution above past this node.

        Then the node's constants of one dimension or more get as many dimensions as the tensor. It is otherwise where a
        Transpose from a convolution below comes up to here first: through one-input nodes that nobody else reads.
        """
        rank = self.rank(node.inputs[0]) or 0
        below = any(tensor in self._below for tensor in node.inputs)
        return self.layout and rank > 2 and below and not self.pulled_up(node)

    @cached_property
    def _below(self) -> frozenset[str]:
        """The tensors to which a Transpose from a convolution above comes."""
        found: set[str] = set()
        for node in self.nodes:
            moved = node.op_type in (*ELEMENTWISE, "Div") and any(tensor in found for tensor in node.inputs)
            if moved or self.is_layout(node):
                found |= set(node.outputs)
        return frozenset(found)

    def pulled_up(self, node: Node) -> bool:
        """Whether a Transpose from a convolution below comes up past this node."""
        while True:
            readers = self.readers(node.output)
            if len(readers) != 1 or node.output in self.outputs:
                return False
            (reader,) = readers
            scalar = node.op_type in ("Mul", "Div", "Sub", "Add") and self._scalar(node.inputs[1])
            if node.op_type not in ("Quant", "Relu", "Selu", "LeakyRelu", "Sigmoid", "Tanh") and not scalar:
                return False
            if self.is_layout(reader):
                return True
            node = reader

    def _scalar(self, tensor: str) -> bool:
        return tensor in self.constants and self.constants[tensor].shape in ((), (1,))

    def is_layout(self, node: Node) -> bool:
        """Whether the conversion turns this node to channels last."""
        if node.op_type in LAYOUT:
            return True
        return node.op_type == "BatchNormalization" and (self.rank(node.inputs[0]) or 0) > 2


def _on_constants(node: Node, values: list[NDArray[np.float64]]) -> NDArray[np.float64] | None:
    """What a Transpose, Quant or BipolarQuant makes of constants; None where it has other operands than it should."""
    if node.op_type == "Transpose":
        return np.asarray(values[0].transpose(node.attributes.get("perm")), dtype=np.float64)
    if node.op_type == "BipolarQuant" and len(values) == 2:
        return np.asarray(np.where(values[0] >= 0, 1.0, -1.0) * values[1], dtype=np.float64)
    return quantized(node, *values) if len(values) == 4 else None


def quantized(node: Node, x: Any, scale: Any, zero_point: Any, bits: Any) -> NDArray[np.float64]:
    """What a Quant makes of constants: ROUND and FLOOR as QONNX defines them, other roundings like ROUND."""
    low, high = levels(node, float(np.max(bits)))
    level = np.asarray(x) / scale + zero_point
    level = np.floor(level) if node.attributes.get("rounding_mode", "ROUND") == "FLOOR" else np.rint(level)
    return np.asarray((np.clip(level, low, high) - zero_point) * scale, dtype=np.float64)


def levels(node: Node, bits: float) -> tuple[float, float]:
    """The integers from least to greatest that a Quant of so many bits clips to."""
    signed, narrow = bool(node.attributes.get("signed", 1)), bool(node.attributes.get("narrow", 0))
    if signed and bits == 1:
        return -1.0, 1.0
    if signed:
        return -float(np.exp2(bits - 1)) + narrow, float(np.exp2(bits - 1)) - 1
    return 0.0, float(np.exp2(bits)) - 1 - narrow


def load(model: onnx.ModelProto | Path | str) -> onnx.ModelProto:
    """A model, read if it is a path; ``Unreadable`` for what is no ONNX file."""
    if isinstance(model, onnx.ModelProto):
        return _with_nodes(model, model.graph.name or "model")
    path = Path(model)
    if not path.is_file():
        raise Unreadable(f"{path}: no such file; expected an ONNX model")
    try:
        loaded = onnx.load(path)
    except Exception as error:  # protobuf raises errors of its own, which onnx does not document
        raise Unreadable(f"{path}: not an ONNX model ({type(error).__name__}); expected a .onnx file") from error
    return _with_nodes(loaded, str(path))


def _with_nodes(model: onnx.ModelProto, name: str) -> onnx.ModelProto:
    if not model.graph.node:
        raise Unreadable(f"{name}: a graph without nodes; expected an ONNX model of a network")
    return model


def read(model: onnx.ModelProto) -> Reading:
    """Clean a model as the road to hls4ml does. It has to be one that :func:`malformed.sift` gives."""
    unfit: dict[tuple[str, str], tuple[str, str]] = {}
    shapes = _shapes(model, unfit)
    constants: dict[str, NDArray[Any]] = {
        tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer
    }
    inputs = tuple(value.name for value in model.graph.input if value.name not in constants)
    opset = max([entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")], default=13)
    nodes: list[Node] = []
    folded: list[Node] = []
    skipped: list[Node] = []
    same: dict[str, str] = {}
    stored = set(constants)
    integers = any(entry.key == "hawq_flow.digest" for entry in model.metadata_props)
    ends = {value.name for value in model.graph.output}
    for number, proto in enumerate(model.graph.node):
        attributes = {entry.name: _attribute(entry) for entry in proto.attribute}
        node = Node(
            proto.name or f"{proto.op_type}_{number}",
            proto.op_type,
            tuple(same.get(name, name) for name in proto.input),
            tuple(proto.output),
            attributes,
            proto.domain,
            tuple(proto.input),
        )
        if node.op_type in ("Identity", "Dropout") and node.inputs[0] not in constants:
            same[node.output] = node.inputs[0]
            if node.output in ends:
                skipped.append(node)
            continue
        values = _folded(node, proto, constants, shapes, opset)
        if values is not None:
            constants.update(zip(node.outputs, values, strict=False))
            stored |= set(node.outputs) if node.op_type == "Constant" else set()
            if node.op_type in ("IntQuant", "Trunc"):
                folded.append(node)
            continue
        nodes += _split(node, constants, shapes, stored) if node.op_type == "Gemm" else [node]
    outputs = tuple(same.get(value.name, value.name) for value in model.graph.output)
    for name, array in constants.items():
        shapes[name] = array.shape
    layout = any(
        node.op_type in LAYOUT or (node.op_type == "BatchNormalization" and len(shapes.get(node.inputs[0], ())) > 2)
        for node in nodes
    )
    return Reading(
        tuple(nodes),
        constants,
        shapes,
        inputs,
        outputs,
        tuple(folded),
        tuple(skipped),
        layout,
        frozenset(stored),
        integers,
        unfit,
    )


def _attribute(entry: onnx.AttributeProto) -> Any:
    value = helper.get_attribute_value(entry)
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _shapes(model: onnx.ModelProto, unfit: dict[tuple[str, str], tuple[str, str]]) -> dict[str, tuple[int | None, ...]]:
    """Every shape that onnx can infer when quantizers are taken for Identity; ``unfit`` gets what it objects to."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    domains = {entry.domain for entry in copy.opset_import}
    for node in copy.graph.node:
        if node.op_type in QUANTIZERS:
            del node.input[1:], node.attribute[:]
            node.op_type, node.domain = "Identity", ""
        elif node.domain == "qonnx.custom_op.channels_last":
            node.domain = "hawq_flow.unknown"
        if node.domain not in domains:
            domains.add(node.domain)
            copy.opset_import.append(helper.make_opsetid(node.domain, 1))
    try:
        onnx.shape_inference.infer_shapes(copy, strict_mode=True, data_prop=True)
    except Exception as error:  # onnx documents no class of its own for it
        unfit |= inconsistent(error)
    try:
        copy = onnx.shape_inference.infer_shapes(copy, data_prop=True)
    except Exception:  # a graph that onnx cannot infer is judged by what is declared
        copy = model
    found: dict[str, tuple[int | None, ...]] = {}
    for info in (*copy.graph.input, *copy.graph.value_info, *copy.graph.output):
        kind = info.type.tensor_type
        if kind.HasField("shape"):
            found[info.name] = tuple(d.dim_value if d.HasField("dim_value") else None for d in kind.shape.dim)
    return found


def _folded(
    node: Node,
    proto: onnx.NodeProto,
    constants: Mapping[str, NDArray[Any]],
    shapes: Mapping[str, tuple[int | None, ...]],
    opset: int,
) -> list[NDArray[Any]] | None:
    """What cleanup makes of a node of constants; None for a node that stays."""
    if node.op_type == "Shape" and node.inputs[0] in shapes and node.inputs[0] not in constants:
        shape = shapes[node.inputs[0]]
        return None if None in shape else [np.array(shape, dtype=np.int64)]
    if node.op_type in KEPT or not all(name in constants for name in node.inputs if name):
        return None
    arrays = [constants[name] for name in node.inputs if name]
    if node.op_type == "Trunc" and arrays:
        return [np.asarray(arrays[0])]
    if node.op_type == "IntQuant":
        try:
            return [quantized(node, *(array.astype(np.float64) for array in arrays)).astype(np.float32)]
        except ValueError:
            return None  # its parameters do not fit: the rules say so
    if proto.domain not in ("", "ai.onnx"):
        return None
    graph = helper.make_graph(
        [proto],
        "constant",
        [],
        [helper.make_empty_tensor_value_info(name) for name in node.outputs],
        [numpy_helper.from_array(np.asarray(constants[name]), name) for name in node.inputs if name],
    )
    try:
        results = ReferenceEvaluator(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
        ).run(None, {})
    except Exception:  # whatever onnx's evaluator cannot compute stays a node
        return None
    return [np.asarray(result) for result in results]


def _split(
    node: Node, constants: dict[str, NDArray[Any]], shapes: dict[str, tuple[int | None, ...]], stored: set[str]
) -> Iterator[Node]:
    """MatMul, and Mul and Add where they do something, of a Gemm; unchanged where qonnx fails on it (see the rules)."""
    given = node.attributes
    if len(node.inputs) < 3 or not node.inputs[2] or given.get("transA") or given.get("beta", 1.0) != 1.0:
        yield node
        return
    x, weight, bias = node.inputs[:3]
    if given.get("transB"):
        moved = f"{weight}/transposed/{node.name}"
        if weight in constants:
            constants[moved] = constants[weight].T
            stored |= {moved} if weight in stored else set()
        else:
            yield Node(node.name, "Transpose", (weight,), (moved,), {"perm": [1, 0]})
        shapes[moved] = tuple(reversed(shapes.get(weight, (None, None))))
        weight = moved
    alpha, shape = given.get("alpha", 1.0), shapes.get(node.output, (None, None))
    product, scaled = f"{node.output}/product", f"{node.output}/scaled"
    shapes[product] = shapes[scaled] = shape
    yield Node(node.name, "MatMul", (x, weight), (product,), {})
    if alpha != 1.0:
        constants[f"{product}/alpha"] = np.array(alpha, dtype=np.float32)
        yield Node(node.name, "Mul", (product, f"{product}/alpha"), (scaled,), {})
    yield Node(node.name, "Add", (scaled if alpha != 1.0 else product, bias), node.outputs, {})
