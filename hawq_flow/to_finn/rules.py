"""FINN's documented rules on QONNX graphs, checked on the structure of any model; knows nothing of the exporter.

Constants are what initializers and nodes of constants make (a Transpose of quantized weights among them): FINN's flow
folds them before it looks. Sources are files of FINN's repository (``finn/...``, dev branch) and of qonnx, by class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

QUANTIZERS = ("Quant", "BipolarQuant")
LAYERS = ("MatMul", "Gemm", "Conv")
MOVERS = ("Reshape", "Flatten", "Transpose", "MaxPool", "Concat", "Resize", "Upsample", "Identity", "Squeeze")
"""What hands integers on as they are."""
LINEAR = ("Add", "Sub", "Mul", "Div", "BatchNormalization")
"""What FINN's streamlining moves and absorbs."""
KNOWN = (*QUANTIZERS, *LAYERS, *MOVERS, *LINEAR, "Relu", "Selu", "Trunc", "MultiThreshold", "AveragePool", "Unsqueeze")
SCALED_INTO = ("Mul", "Div", "Conv", "MatMul", "Gather", "ConvTranspose", "Add", "Sub")
MOST_BITS = 8
LEAST_POOL_BITS, MOST_POOL_BITS = 2, 32


@dataclass(frozen=True)
class Violation:
    """A rule that a node breaks: the node's name, the rule and its source, and what was found."""

    node: str
    rule: str
    found: str

    def __str__(self) -> str:
        return f"{self.node}: {self.found} ({self.rule})"


def check(model: onnx.ModelProto) -> list[Violation]:
    """Every rule of FINN that a QONNX model breaks, in the order of its nodes; empty when FINN takes it.

    The rules, each with its source:

    * every node is one FINN's flow knows (``ConvertQONNXtoFINN``, ``streamline``, ``convert_to_hw_layers``);
    * a graph input is an integer by annotation, or a quantizer reads it (``infer_data_types``);
    * a quantizer's scale, zero point and width are constants, its zero point is 0, its width one number
      (``QuantActBaseHandler``, ``FoldQuantWeights``);
    * an activation's Quant has at most 8 bits (``default_filter_function_generator``; a wider one is left where it is,
      so none may stand before a hardware layer), rounds to nearest (its thresholds are half steps), and a scale for
      all or for each channel (``_calculate_thresholds``);
    * behind Relu it is unsigned and not narrow (``QuantReluHandler``), elsewhere signed (``QuantIdentityHandler``);
    * a BipolarQuant activation has the one scale 1 (``QuantIdentityHandler``);
    * quantized weights have one reader, and a scale other than 1 only before what it can be moved behind; before a Conv
      one scale an output at most (``FoldQuantWeights``);
    * a layer's weights are constant and quantized; Conv has four axes, groups of 1 or depthwise
      (``LowerConvsToMatMul``), and a constant bias (``ExtractBiasFromConv``);
    * a Mul before an activation is positive, a scalar or one number a channel (``AbsorbMulIntoMultiThreshold``);
    * MaxPool has four axes, its kernel no smaller than its stride, and reads integers or is read by a quantizer alone,
      past which FINN moves it; a padded one reads unsigned integers (``InferPool``, ``InferConvInpGen``,
      ``MoveMaxPoolPastMultiThreshold``);
    * AveragePool has a square kernel, equal strides, no padding, and is followed by Mul(k^2) and Trunc, rounding down,
      zero point 0, whose bits give FINN's shift (``AvgPoolAndTruncToQuantAvgPool``, ``QuantAvgPool2d``);
    * MultiThreshold has constant thresholds, ascending, scale 1, a whole bias, below 0 where the output is signed
      (``InferThresholdingLayer``);
    * Add of two streams has equal shapes (``InferAddStreamsLayer``); Concat joins streams along channels
      (``InferConcatLayer``); Resize repeats nearest neighbours of four axes in space (``InferUpsample``).
    """
    graph = _Graph(_with_shapes(model))
    return [violation for node in graph.nodes for violation in _violations(graph, node)] + list(_inputs(graph))


def _with_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy with the shapes that can be inferred; files that forget to import a domain are read all the same."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    imported = {entry.domain for entry in copy.opset_import}
    missing = sorted({node.domain for node in copy.graph.node} - imported - {"ai.onnx"})
    copy.opset_import.extend(helper.make_opsetid(domain, 1) for domain in missing)
    return onnx.shape_inference.infer_shapes(copy)


class _Graph:
    """What rules ask of a graph: constants, producers, readers, shapes, names."""

    def __init__(self, model: onnx.ModelProto) -> None:
        graph = model.graph
        self.inputs = [info.name for info in graph.input]
        self.outputs = {info.name for info in graph.output}
        self.arrays: dict[str, NDArray[Any]] = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
        self.constant = set(self.arrays) | {""}
        self.producer: dict[str, onnx.NodeProto] = {}
        self.readers: dict[str, list[onnx.NodeProto]] = {}
        self.names: dict[int, str] = {}
        for i, node in enumerate(graph.node):
            self.names[id(node)] = node.name or f"{node.op_type} {i}"
            if node.op_type == "Constant":
                value = helper.get_attribute_value(node.attribute[0])
                is_tensor = isinstance(value, onnx.TensorProto)
                self.arrays[node.output[0]] = numpy_helper.to_array(value) if is_tensor else np.asarray(value)
                self.constant.add(node.output[0])
            elif node.op_type == "Shape" or all(name in self.constant for name in node.input):
                self.constant.update(node.output)
            for name in node.output:
                self.producer[name] = node
            for name in node.input:
                self.readers.setdefault(name, []).append(node)
        self.nodes = [node for node in graph.node if node.op_type not in ("Constant", "Shape")]
        infos = (*graph.input, *graph.value_info, *graph.output)
        self.rank = {info.name: len(info.type.tensor_type.shape.dim) for info in infos if _shaped(info)}
        self.shape = {
            info.name: tuple(dim.dim_value or dim.dim_param for dim in info.type.tensor_type.shape.dim)
            for info in infos
            if _shaped(info)
        }
        self.datatypes = {
            entry.tensor_name: pair.value
            for entry in graph.quantization_annotation
            for pair in entry.quant_parameter_tensor_names
            if pair.key == "finn_datatype"
        }

    def dynamic(self, node: onnx.NodeProto) -> list[str]:
        return [name for name in node.input if name not in self.constant]

    def scalar(self, name: str) -> float | None:
        array = self.arrays.get(name)
        return float(array.flat[0]) if array is not None and array.size == 1 else None

    def integer(self, name: str) -> bool:
        """Whether a tensor holds a quantizer's values: through whatever only moves them."""
        while True:
            node = self.producer.get(name)
            if node is None:
                return bool(self.datatypes.get(name, "FLOAT32") != "FLOAT32")
            if node.op_type in (*QUANTIZERS, "MultiThreshold", "Trunc"):
                return True
            if node.op_type in ("Concat", "Add"):
                return all(self.integer(operand) for operand in self.dynamic(node))
            if node.op_type not in MOVERS or not self.dynamic(node):
                return False
            name = self.dynamic(node)[0]

    def signed(self, name: str) -> bool:
        """Whether integers are signed, by what quantizes them."""
        node = self.producer.get(name)
        if node is None:
            return not str(self.datatypes.get(name, "INT")).startswith("U")
        if node.op_type == "Quant":
            return bool(_attributes(node).get("signed", 1))
        if node.op_type == "MultiThreshold":
            return not _attributes(node)["out_dtype"].startswith(b"U")
        if node.op_type == "BipolarQuant" or not self.dynamic(node):
            return True
        return any(self.signed(operand) for operand in self.dynamic(node))

    def quantized_constant(self, name: str) -> bool:
        """Whether constant weights come from a quantizer, by way of a Transpose or the like."""
        while (node := self.producer.get(name)) is not None:
            if node.op_type in QUANTIZERS:
                return True
            if node.op_type not in MOVERS:
                return False
            name = node.input[0]
        return bool(self.datatypes.get(name, "FLOAT32") != "FLOAT32")


def _shaped(info: onnx.ValueInfoProto) -> bool:
    return bool(info.type.tensor_type.HasField("shape"))


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def _inputs(graph: _Graph) -> Iterator[Violation]:
    for name in graph.inputs:
        if name in graph.constant or graph.datatypes.get(name, "FLOAT32") != "FLOAT32":
            continue
        waiting, seen = list(graph.readers.get(name, [])), False
        while waiting:
            node = waiting.pop()
            seen = seen or node.op_type in LAYERS
            if node.op_type in (*MOVERS, *LINEAR, "Relu") and node.output[0] not in graph.constant:
                waiting += graph.readers.get(node.output[0], [])
        if seen:
            rule = "graph inputs hold integers: annotation finn_datatype, or a quantizer; FINN infer_data_types"
            yield Violation(name, rule, "a float input that a layer reads unquantized")


def _violations(graph: _Graph, node: onnx.NodeProto) -> Iterator[Violation]:
    name = graph.names[id(node)]
    found: Iterable[tuple[str, str]]
    if node.op_type in QUANTIZERS:
        found = _quantizer(graph, node)
    elif all(output in graph.constant for output in node.output):
        return
    elif node.op_type not in KNOWN:
        yield Violation(name, "node types of FINN's flow: ConvertQONNXtoFINN", f"node type {node.op_type}")
        return
    else:
        found = _RULES[node.op_type](graph, node) if node.op_type in _RULES else ()
    for rule, text in found:
        yield Violation(name, rule, text)


Found = Iterator[tuple[str, str]]


def _quantizer(graph: _Graph, node: onnx.NodeProto) -> Found:
    if any(operand not in graph.constant for operand in node.input[1:]):
        yield "parameters are constant: FoldQuantWeights, QuantActBaseHandler", "a parameter computed in the graph"
        return
    scale = graph.arrays.get(node.input[1])
    if node.op_type == "Quant":
        zero = graph.arrays.get(node.input[2])
        if zero is None or (zero != 0).any():
            yield "zero point 0: FoldQuantWeights, QuantActBaseHandler", "a zero point other than 0"
        if graph.scalar(node.input[3]) is None:
            yield "one width: ConvertQuantActToMultiThreshold", "a width for each channel"
    yield from (_weights if node.input[0] in graph.constant else _activation)(graph, node, scale)


def _weights(graph: _Graph, node: onnx.NodeProto, scale: NDArray[Any] | None) -> Found:
    readers = graph.readers.get(node.output[0], [])
    if len(readers) != 1:
        yield "weights have one reader: FoldQuantWeights", f"{len(readers)} readers"
        return
    reader = readers[0]
    while reader.op_type == "Transpose" and len(graph.readers.get(reader.output[0], [])) == 1:
        reader = graph.readers[reader.output[0]][0]  # FoldTransposeIntoQuantInit
    if scale is None or (scale == 1).all():
        return
    if reader.op_type not in SCALED_INTO:
        yield "a weight scale moves behind its reader: FoldQuantWeights", f"a scale before {reader.op_type}"
    if reader.op_type == "Conv" and scale.ndim > 1 and scale.size != scale.shape[0]:
        yield "one weight scale an output of a Conv: FoldQuantWeights", f"a scale of shape {scale.shape}"


def _activation(graph: _Graph, node: onnx.NodeProto, scale: NDArray[Any] | None) -> Found:
    before = graph.producer.get(node.input[0])
    if node.op_type == "BipolarQuant":
        if (before is None or before.op_type != "Relu") and (scale is None or scale.size != 1 or scale.flat[0] != 1):
            yield "a bipolar activation has scale 1: QuantIdentityHandler", "another scale"
        return
    attributes, bits = _attributes(node), graph.scalar(node.input[3])
    signed, narrow = int(attributes.get("signed", 1)), int(attributes.get("narrow", 0))
    if bits is not None and bits > MOST_BITS:
        if not _before_hardware(graph, node):
            return
        yield "activations of at most 8 bits: ConvertQuantActToMultiThreshold", f"{bits:g} bits"
    if attributes.get("rounding_mode", b"ROUND").upper() != b"ROUND":
        yield "thresholds are half steps: QuantActBaseHandler", f"rounding {attributes['rounding_mode'].decode()}"
    if scale is None or (scale.size != 1 and scale.size != (scale.shape[1] if scale.ndim > 1 else scale.shape[0])):
        yield "a scale for all or a channel: QuantActBaseHandler", "a scale of another shape"
    if before is not None and before.op_type == "Relu":
        if signed or narrow:
            yield "unsigned and not narrow behind Relu: QuantReluHandler", "a signed or narrow Quant"
    elif (before is None or before.op_type != "Selu") and not signed:
        yield "signed where no Relu comes before: QuantIdentityHandler", "an unsigned Quant"


def _before_hardware(graph: _Graph, node: onnx.NodeProto) -> bool:
    """Whether anything but scaling and moving comes behind: what FINN would make hardware of."""
    waiting = list(graph.readers.get(node.output[0], []))
    while waiting:
        reader = waiting.pop()
        if reader.op_type not in ("Mul", "Div", "Sub", "Reshape", "Flatten", "Transpose", "Identity"):
            return True
        waiting += graph.readers.get(reader.output[0], [])
    return False


def _matmul(graph: _Graph, node: onnx.NodeProto) -> Found:
    dynamic = graph.dynamic(node)
    if len(dynamic) != 1 or node.input[1] in dynamic:
        yield "weights are constant: InferQuantizedMatrixVectorActivation", "a product of two streams"
    elif not graph.quantized_constant(node.input[1]):
        yield "weights are quantized: FoldQuantWeights", "float weights"


def _conv(graph: _Graph, node: onnx.NodeProto) -> Found:
    attributes, weight = _attributes(node), node.input[1]
    if graph.rank.get(node.input[0], 4) != 4:
        yield "convolutions have four axes: LowerConvsToMatMul", f"{graph.rank[node.input[0]]} axes"
    if weight not in graph.constant:
        yield "weights are constant: LowerConvsToMatMul", "weights computed in the graph"
    elif not graph.quantized_constant(weight):
        yield "weights are quantized: FoldQuantWeights", "float weights"
    if len(node.input) > 2 and node.input[2] not in graph.constant:
        yield "a bias is constant: ExtractBiasFromConv", "a bias computed in the graph"
    groups, shape = attributes.get("group", 1), _shape_of(graph, weight)
    if groups != 1 and shape and (shape[0] != groups or shape[1] != 1):
        yield "groups of 1 or depthwise: LowerConvsToMatMul", f"{groups} groups for weights of shape {shape}"


def _shape_of(graph: _Graph, name: str) -> Sequence[Any]:
    while name not in graph.arrays and name not in graph.shape and name in graph.producer:
        name = graph.producer[name].input[0]
    return graph.arrays[name].shape if name in graph.arrays else graph.shape.get(name, ())


def _mul(graph: _Graph, node: onnx.NodeProto) -> Found:
    dynamic = graph.dynamic(node)
    if len(dynamic) != 1:
        yield "no layer multiplies streams: convert_to_hw_layers", "a product of two streams"
        return
    factor = next((graph.arrays[name] for name in node.input if name in graph.arrays), None)
    if factor is None or not _before_activation(graph, node):
        return
    if (factor <= 0).any():
        yield "factors before thresholds are positive: AbsorbMulIntoMultiThreshold", "a factor of 0 or less"
    if sum(n > 1 for n in factor.shape) > 1:
        yield "one factor or one a channel: AbsorbMulIntoMultiThreshold", f"factors of shape {factor.shape}"


def _before_activation(graph: _Graph, node: onnx.NodeProto) -> bool:
    readers = graph.readers.get(node.output[0], [])
    while len(readers) == 1 and readers[0].op_type in ("Add", "Sub", "Mul", "Div", "Relu"):
        readers = graph.readers.get(readers[0].output[0], [])
    return any(reader.op_type in (*QUANTIZERS, "MultiThreshold") for reader in readers)


def _add(graph: _Graph, node: onnx.NodeProto) -> Found:
    dynamic = graph.dynamic(node)
    shapes = {graph.shape[name] for name in dynamic if name in graph.shape}
    if len(dynamic) == 2 and len(shapes) > 1:
        yield "streams of equal shapes: InferAddStreamsLayer", f"shapes {sorted(map(str, shapes))}"
    if len(dynamic) == 2 and dynamic[0] == dynamic[1]:
        yield "two streams: InferAddStreamsLayer", "one tensor taken twice"


def _sub(graph: _Graph, node: onnx.NodeProto) -> Found:
    if len(graph.dynamic(node)) != 1:
        yield f"no layer joins streams by {node.op_type}: convert_to_hw_layers", "two streams"


def _max_pool(graph: _Graph, node: onnx.NodeProto) -> Found:
    attributes = _attributes(node)
    kernel = attributes["kernel_shape"]
    strides = attributes.get("strides", [1] * len(kernel))
    if len(kernel) != 2:
        yield "pools have four axes: InferPool", f"a kernel of {len(kernel)} axes"
    if any(k < s for k, s in zip(kernel, strides, strict=True)):
        yield "kernels no smaller than strides: InferPool", f"kernel {list(kernel)}, strides {list(strides)}"
    readers = graph.readers.get(node.output[0], [])
    while len(readers) == 1 and readers[0].op_type == "Relu":
        readers = graph.readers.get(readers[0].output[0], [])
    moved = len(readers) == 1 and readers[0].op_type in (*QUANTIZERS, "MultiThreshold")
    integers = graph.integer(node.input[0])
    if not (integers or moved):
        yield "pools read integers: InferPool, MoveMaxPoolPastMultiThreshold", "a pool of floats"
    signed = graph.signed(node.input[0] if integers else readers[0].output[0]) if integers or moved else False
    if any(attributes.get("pads", [])) and signed:
        yield "padded pools read unsigned integers: InferPool, InferConvInpGen", "a padded pool of signed integers"


def _average_pool(graph: _Graph, node: onnx.NodeProto) -> Found:
    attributes = _attributes(node)
    kernel, strides = attributes["kernel_shape"], attributes.get("strides", [])
    source = "AvgPoolAndTruncToQuantAvgPool"
    if len(kernel) != 2 or len(set(kernel)) != 1:
        yield f"square kernels: {source}", f"kernel {list(kernel)}"
        return
    if any(attributes.get("pads", [1])):
        yield f"no padding, said so: {source}", f"pads {list(attributes.get('pads', []))}"
    if len(strides) != 2 or len(set(strides)) != 1:
        yield f"equal strides: {source}", f"strides {list(strides)}"
    chain = [node]
    for wanted in ("Mul", "Trunc"):
        readers = graph.readers.get(chain[-1].output[0], [])
        if len(readers) != 1 or readers[0].op_type != wanted:
            yield f"AveragePool, Mul, Trunc: {source}", f"no {wanted} alone behind it"
            return
        chain.append(readers[0])
    places = graph.arrays.get(chain[1].input[1])
    if places is None or places.ndim or float(places) != kernel[0] ** 2:
        yield f"Mul by a scalar k^2: {source}", "another factor"
    before, after = (graph.scalar(name) for name in chain[2].input[3:5])
    if before is None or after is None:
        return  # _trunc says so
    # QuantAvgPool2d shifts by the bits of (2^b - 1) k^2 minus those after, with 2^b k^2 <= 2^before.
    inputs = int(np.floor(np.log2(2.0**before / kernel[0] ** 2)))
    accumulator = ((2 ** max(inputs, 0) - 1) * kernel[0] ** 2).bit_length()
    if accumulator != before:
        text = f"{before:g} bits before Trunc, {accumulator} in its accumulator"
        yield "Trunc's bits are the accumulator's: QuantAvgPool2d", text
    if not LEAST_POOL_BITS <= after <= MOST_POOL_BITS:
        yield "2 to 32 bits after: QuantAvgPool2d", f"{after:g} bits"


def _trunc(graph: _Graph, node: onnx.NodeProto) -> Found:
    source = "AvgPoolAndTruncToQuantAvgPool"
    before = graph.producer.get(node.input[0])
    if before is None or before.op_type != "Mul":
        yield f"Trunc stands behind AveragePool and Mul: {source}", "a Trunc elsewhere"
    if _attributes(node).get("rounding_mode", b"FLOOR") != b"FLOOR":
        yield f"Trunc rounds down: {source}", f"rounding {_attributes(node)['rounding_mode'].decode()}"
    if any(name not in graph.arrays for name in node.input[1:]):
        yield f"parameters are constant: {source}", "a parameter computed in the graph"
    elif graph.scalar(node.input[2]) != 0 or graph.arrays[node.input[2]].ndim:
        yield f"a scalar zero point 0: {source}", "another zero point"


def _multi_threshold(graph: _Graph, node: onnx.NodeProto) -> Found:
    attributes, rows = _attributes(node), graph.arrays.get(node.input[1])
    source = "InferThresholdingLayer"
    if rows is None or rows.ndim != 2:
        yield f"thresholds are a constant matrix: {source}", "other thresholds"
    elif (np.diff(rows, axis=1) < 0).any():
        yield "thresholds ascend: qonnx MultiThreshold", "a row that falls"
    scale, bias = float(attributes.get("out_scale", 1.0)), float(attributes.get("out_bias", 0.0))
    kind = attributes["out_dtype"].decode()
    if scale != 1:
        yield f"output scale 1: {source}", f"out_scale {scale:g}"
    if not bias.is_integer():
        yield f"a whole bias: {source}", f"out_bias {bias:g}"
    if kind.startswith("INT") and bias >= 0:
        yield f"a negative bias where the output is signed: {source}", f"{kind} with out_bias {bias:g}"


def _concat(graph: _Graph, node: onnx.NodeProto) -> Found:
    if len(graph.dynamic(node)) != len(node.input):
        yield "streams alone: InferConcatLayer", "a constant joined"
    if _attributes(node)["axis"] != 1:
        yield "channels are joined: InferConcatLayer", f"axis {_attributes(node)['axis']}"


def _resize(graph: _Graph, node: onnx.NodeProto) -> Found:
    mode = _attributes(node).get("mode", b"nearest").decode()
    scales = graph.arrays.get(node.input[2 if len(node.input) > 2 else 1])
    if mode != "nearest":
        yield "nearest neighbours: InferUpsample", f"mode {mode}"
    if scales is None or scales.shape != (4,) or scales[0] != 1 or scales[1] != 1 or (scales < 1).any():
        yield "four scales, 1 for batch and channels: InferUpsample", "other scales"


_RULES: dict[str, Callable[[_Graph, onnx.NodeProto], Found]] = {
    "MatMul": _matmul,
    "Gemm": _matmul,
    "Conv": _conv,
    "Mul": _mul,
    "Add": _add,
    "Sub": _sub,
    "Div": _sub,
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "Trunc": _trunc,
    "MultiThreshold": _multi_threshold,
    "Concat": _concat,
    "Resize": _resize,
    "Upsample": _resize,
}
