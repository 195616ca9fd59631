"""The graph that hls4ml is given, built op by op: QONNX nodes, channels last, beside the layers they have to become."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import ArrayLike, NDArray
from onnx import TensorProto, helper, numpy_helper

from hawq_flow import __version__
from hawq_flow.network import IntegerNetwork, Op, Reshape, Shape, Value
from hawq_flow.numeric import IntType
from hawq_flow.to_hls.config import HIDDEN, RESERVED, VARIABLE, HlsConfig
from hawq_flow.to_hls.fixed import FixedType
from hawq_flow.to_hls.layout import Layout

QONNX = "qonnx.custom_op.general"
CHANNELS_LAST = "qonnx.custom_op.channels_last"
OWN = "hawq_flow"
"""Domain of the nodes that :mod:`extension` teaches hls4ml to read."""
OPSET = 18


@dataclass(frozen=True)
class Layer:
    """One hls4ml layer as it has to come out: its types by role and its constants, in the source network's terms."""

    name: str
    types: Mapping[str, FixedType]
    constants: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    optional: bool = False


@dataclass(frozen=True)
class Placed:
    """A value of the network in the graph.

    Attributes
    ----------
    tensor, shape:
        The tensor that holds it and that tensor's shape, batch excluded. A flattened value may still lie in the shape
        it had before: only its ``layout`` counts, until somebody needs it :meth:`Graph.shaped`.
    layout:
        The order of its elements.
    type:
        Of the tensor.
    carrier:
        The hls4ml layer whose result it is.
    """

    tensor: str
    shape: Shape
    layout: Layout
    type: FixedType
    carrier: str


_LAYERS = {
    "Quant": ("{}_act",),
    "Mul": ("bn_{}",),
    "Add": ("bn_{}",),
    "MatMul": ("Dense_{}",),
    "Conv": ("Conv1D_{}", "Conv2D_{}", "DepthwiseConv1D_{}", "DepthwiseConv2D_{}"),
}
"""How hls4ml calls the layer that a node becomes, where not like the node."""


def _with_layers(name: str, kind: str) -> set[str]:
    """The lower-cased names that a node's output and its layer occupy."""
    return {form.format(name).lower() for form in ("{}", *_LAYERS.get(kind, ()))}


class Graph:
    """A growing graph. Tensors are named ``op/what``; identifiers that hls4ml takes are made of that."""

    def __init__(self, network: IntegerNetwork, values: Mapping[str, Value], config: HlsConfig) -> None:
        self.network = network
        self.values = values
        self.config = config
        self.layers: list[Layer] = []
        self.results: dict[str, FixedType] = {}
        self.placed: dict[str, Placed] = {}
        self.wanted: dict[str, Layout] = {}
        self.settings: dict[str, dict[str, Any]] = {}
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[TensorProto] = []
        self._infos: dict[str, onnx.ValueInfoProto] = {}
        self._inputs: list[str] = []
        self._names: dict[str, str] = {}
        self._taken: set[str] = set(RESERVED)
        self._shaped: dict[tuple[str, Shape], str] = {}

    # --- tensors and nodes -----------------------------------------------------------------------------------------

    def name(self, tensor: str, kind: str = "") -> str:
        """The identifier of a tensor: a C++ name, distinct from all others when lower-cased (as configuration keys).

        For the output of a node of that ``kind``, the name of the layer that hls4ml makes of it is free as well.
        """
        if tensor not in self._names:
            name = plain = tensor.replace("/", "_")
            number = 2
            while self._taken & _with_layers(name, kind):
                name, number = f"{plain}_{number}", number + 1
            self._taken |= _with_layers(name, kind)
            self._names[tensor] = name
        return self._names[tensor]

    def input(self, name: str, shape: Shape) -> str:
        """A port. In C++ it is a parameter: it gets a name that hides nothing which hls4ml declares outside."""
        if VARIABLE.match(name.lower()) or HIDDEN.match(name.lower()):
            self._taken.add(name.lower())
        tensor = self._tensor(name, shape)
        self._inputs.append(tensor)
        return tensor

    def constant(self, name: str, array: ArrayLike, dtype: Any = np.float32) -> str:
        """An initializer; its numbers are exact in ``dtype`` (``network.verify`` has seen to it)."""
        tensor = self.name(name)
        exact = np.asarray(array)
        stored = np.ascontiguousarray(exact, dtype=dtype).reshape(exact.shape)
        if not np.array_equal(stored.astype(np.float64), exact.astype(np.float64)):
            raise AssertionError(f"{name}: constants that {np.dtype(dtype)} does not hold")
        self._constants.append(numpy_helper.from_array(stored, tensor))
        return tensor

    def node(
        self,
        kind: str,
        inputs: Sequence[str],
        name: str,
        shape: Shape,
        domain: str = "",
        batch: bool = True,
        **attributes: Any,
    ) -> str:
        """A node with one output, called like it."""
        tensor = self._tensor(name, shape, batch, kind)
        self._nodes.append(helper.make_node(kind, list(inputs), [tensor], name=tensor, domain=domain, **attributes))
        return tensor

    def weights(self, name: str, array: NDArray[Any], type: IntType) -> str:
        """A constant through a Quant of ``type``."""
        return self.quant(self.constant(name, array), f"{name}_quant", array.shape, type, batch=False)

    def quant(self, x: str, name: str, shape: Shape, type: IntType, rounding: str = "ROUND", batch: bool = True) -> str:
        """A Quant node of scale 1 and zero point 0; without ``batch``, of a constant."""
        bits = type.max_bits
        constants = [self.constant(f"{name}/{what}", v) for what, v in (("one", 1.0), ("zero", 0.0), ("bits", bits))]
        return self.node(
            "Quant",
            [x, *constants],
            name,
            shape,
            QONNX,
            batch,
            narrow=int(type.narrow),
            rounding_mode=rounding,
            signed=int(type.signed),
        )

    def _tensor(self, name: str, shape: Shape, batch: bool = True, kind: str = "") -> str:
        tensor = self.name(name, kind)
        dims = [1, *shape] if batch else list(shape)
        self._infos[tensor] = helper.make_tensor_value_info(tensor, TensorProto.FLOAT, dims)
        return tensor

    # --- values ----------------------------------------------------------------------------------------------------

    def readers(self, name: str) -> int:
        """How many ops and outputs read a value, as itself or reshaped: a Reshape is no node, its readers count."""
        same = self._reshaped(name)
        return len(self.reading(name)) + sum(output.name in same for output in self.network.outputs)

    def reading(self, name: str) -> list[Op]:
        """The ops that read a value, as itself or reshaped; one that reads it twice comes twice."""
        same = self._reshaped(name)
        ops = [op for op in self.network.ops if not isinstance(op, Reshape)]
        return [op for op in ops for operand in op.inputs if operand in same]

    def _reshaped(self, name: str) -> set[str]:
        """A value and all values that are it in another shape."""
        same = {name}
        for op in self.network.ops:
            if isinstance(op, Reshape) and op.input in same:
                same.add(op.name)
        return same

    def shaped(self, x: Placed, shape: Shape) -> str:
        """The tensor of a value in another shape: the same elements in the same order, so nothing moves."""
        if x.shape == shape:
            return x.tensor
        # hls4ml gives a stream in another shape that is read twice its default type: each reader has its own.
        if self.stream or (x.tensor, shape) not in self._shaped:
            base = next(name for name, tensor in self._names.items() if tensor == x.tensor)
            name = f"{base}/as_{'x'.join(map(str, shape))}"
            if name in self._names:
                name += f"_{len(self.layers)}"
            target = self.constant(f"{name}/shape", [1, *shape], np.int64)
            tensor = self.node("Reshape", [x.tensor, target], name, shape)
            self.told(tensor, x.type)
            self.layers.append(Layer(tensor, {"result": x.type}, optional=True))
            self._shaped[x.tensor, shape] = tensor
        return self._shaped[x.tensor, shape]

    @property
    def stream(self) -> bool:
        """Whether values come element by element."""
        return self.config.io_type == "io_stream"

    def told(self, node: str, type: FixedType) -> None:
        """Fix the result of a node before hls4ml's merging rules run: a told result is not merged into."""
        self.results[node] = type

    def copies(self, outputs: Sequence[str]) -> dict[str, int]:
        """How many nodes and outputs read each tensor."""
        read = [tensor for node in self._nodes for tensor in node.input] + list(outputs)
        return {tensor: read.count(tensor) for tensor in self._infos}

    def source(self, tensor: str) -> str:
        """The value of the network that a tensor belongs to."""
        return next(name for name, known in self._names.items() if known == tensor).partition("/")[0]

    def model(self, outputs: Sequence[str]) -> onnx.ModelProto:
        """The finished graph with these tensors as outputs."""
        ends = set(outputs) | set(self._inputs)
        graph = helper.make_graph(
            self._nodes,
            "hawq_flow",
            [self._infos[name] for name in self._inputs],
            [self._infos[name] for name in outputs],
            self._constants,
            value_info=[info for name, info in self._infos.items() if name not in ends],
        )
        domains = (("", OPSET), (QONNX, 1), (CHANNELS_LAST, 1), (OWN, 1))
        return helper.make_model(
            graph,
            ir_version=10,
            producer_name="hawq_flow",
            producer_version=__version__,
            opset_imports=[helper.make_opsetid(domain, version) for domain, version in domains],
        )
