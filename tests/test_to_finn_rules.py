"""FINN's rules on any QONNX model: what keeps them, and each broken once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from test_to_finn import images

from hawq_flow import to_finn, to_qonnx

ZOO = Path(__file__).parents[2] / "shared" / "data" / "onnx" / "model_zoo"


def graph(*nodes: onnx.NodeProto, shape: tuple[int, ...] = (1, 2, 6, 6), **constants: Any) -> onnx.ModelProto:
    """A model from "x" (an 8-bit integer by annotation) to the last node's output."""
    arrays = {"one": 1.0, "zero": 0.0, "eight": 8.0, "w": np.ones((2, 2, 1, 1)), "dense": np.ones((6, 6))} | constants
    initializers = [numpy_helper.from_array(np.asarray(a, dtype=np.float32), name) for name, a in arrays.items()]
    output = helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)
    source = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    made = helper.make_graph(nodes, "g", [source], [output], initializers)
    entry = onnx.StringStringEntryProto(key="finn_datatype", value="INT8")
    made.quantization_annotation.append(onnx.TensorAnnotation(tensor_name="x", quant_parameter_tensor_names=[entry]))
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)])


def node(kind: str, inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:
    domain = "qonnx.custom_op.general" if kind in ("Quant", "BipolarQuant", "Trunc", "MultiThreshold") else ""
    return helper.make_node(kind, inputs.split(), [output], name=f"{kind}_{output}", domain=domain, **attributes)


def quant(inputs: str, output: str, signed: int = 1, narrow: int = 0, rounding: str = "ROUND") -> onnx.NodeProto:
    if len(inputs.split()) == 1:
        inputs += " one zero eight"
    return node("Quant", inputs, output, signed=signed, narrow=narrow, rounding_mode=rounding)


W = quant("w", "q")
CONV = node("Conv", "x q", "c", kernel_shape=[1, 1])


def average(**changes: Any) -> list[onnx.NodeProto]:
    options = {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [0, 0, 0, 0]} | changes
    return [
        node("AveragePool", "x", "a", **options),
        node("Mul", "a four", "s"),
        node("Trunc", "s one zero ten eight", "t", rounding_mode="FLOOR"),
    ]


POOL = {"four": 4.0, "ten": 10.0}

LEGAL: dict[str, onnx.ModelProto] = {
    "layer and signed activation": graph(W, CONV, node("Mul", "c one", "m"), quant("m", "y")),
    "relu and unsigned": graph(W, CONV, node("Relu", "c", "r"), quant("r", "y", signed=0)),
    "pool before its quantizer": graph(
        W, CONV, node("MaxPool", "c", "m", kernel_shape=[2, 2], strides=[2, 2]), quant("m", "y")
    ),
    "wide at the end": graph(W, CONV, quant("c one zero nine", "y", signed=0), nine=9.0),
    "transposed weights": graph(
        quant("dense", "q"), node("Transpose", "q", "t", perm=[1, 0]), node("MatMul", "x t", "y")
    ),
    "average": graph(*average(), **POOL),
}

BROKEN: list[tuple[onnx.ModelProto, str]] = [
    (graph(node("Softmax", "x", "y")), "node type Softmax"),
    (graph(W, CONV, quant("c c zero eight", "y")), "parameter computed in the graph"),
    (graph(quant("w one one eight", "q"), CONV), "zero point other than 0"),
    (graph(W, CONV, quant("c one zero wide", "y"), wide=np.array([3.0, 4.0])), "a width for each channel"),
    (graph(W, node("Conv", "x q", "c"), node("Conv", "c q", "y")), "2 readers"),
    (graph(quant("w half zero eight", "q"), node("Concat", "q x", "y", axis=1), half=0.5), "a scale before Concat"),
    (graph(quant("w half zero eight", "q"), CONV, half=np.ones((1, 2, 1, 1)) / 2), "a scale of shape (1, 2, 1, 1)"),
    (graph(W, CONV, quant("c one zero nine", "z"), quant("z", "y"), nine=9.0), "9 bits"),
    (graph(W, CONV, quant("c", "y", rounding="FLOOR")), "rounding FLOOR"),
    (graph(W, CONV, quant("c rows zero eight", "y"), rows=np.ones((1, 1, 6, 1))), "a scale of another shape"),
    (graph(W, CONV, node("Relu", "c", "r"), quant("r", "y")), "a signed or narrow Quant"),
    (graph(W, CONV, quant("c", "y", signed=0)), "an unsigned Quant"),
    (graph(W, CONV, node("BipolarQuant", "c half", "y"), half=0.5), "another scale"),
    (graph(node("MatMul", "x x", "y")), "a product of two streams"),
    (graph(node("MatMul", "x dense", "y")), "float weights"),
    (graph(node("Conv", "x w", "y")), "float weights"),
    (graph(node("Conv", "x x", "y")), "weights computed in the graph"),
    (graph(W, node("Conv", "x q x", "y")), "a bias computed in the graph"),
    (graph(quant("w", "q"), node("Conv", "x q", "y"), shape=(1, 2, 6), w=np.ones((2, 2, 1))), "3 axes"),
    (
        graph(quant("w", "q"), node("Conv", "x q", "y", group=2), shape=(1, 4, 6, 6), w=np.ones((4, 2, 1, 1))),
        "2 groups for weights of shape (4, 2, 1, 1)",
    ),
    (graph(node("Mul", "x x", "y")), "a product of two streams"),
    (graph(node("Mul", "x minus", "m"), quant("m", "y"), minus=-1.0), "a factor of 0 or less"),
    (graph(node("Mul", "x plane", "m"), quant("m", "y"), plane=np.ones((1, 2, 6, 1))), "factors of shape (1, 2, 6, 1)"),
    (graph(node("MaxPool", "x", "m", kernel_shape=[6, 6]), node("Add", "x m", "y")), "shapes "),
    (graph(node("Add", "x x", "y")), "one tensor taken twice"),
    (graph(node("Sub", "x x", "y")), "two streams"),
    (graph(W, CONV, node("MaxPool", "c", "y", kernel_shape=[2, 2])), "a pool of floats"),
    (graph(node("MaxPool", "x", "y", kernel_shape=[1, 1], strides=[2, 2])), "kernel [1, 1], strides [2, 2]"),
    (graph(node("MaxPool", "x", "y", kernel_shape=[2], strides=[2]), shape=(1, 2, 6)), "a kernel of 1 axes"),
    (graph(node("MaxPool", "x", "y", kernel_shape=[2, 2], pads=[1, 0, 0, 0])), "a padded pool of signed integers"),
    (graph(*average(kernel_shape=[2, 1]), **POOL), "kernel [2, 1]"),
    (graph(*average(pads=[1, 1, 1, 1]), **POOL), "pads [1, 1, 1, 1]"),
    (graph(*average(strides=[2, 1]), **POOL), "strides [2, 1]"),
    (graph(average()[0]), "no Mul alone behind it"),
    (graph(*average(), **POOL | {"four": 2.0}), "another factor"),
    (graph(*average(kernel_shape=[3, 3]), **POOL | {"four": 9.0, "ten": 5.0}), "5 bits before Trunc, 4 in its"),
    (graph(*average(), **POOL | {"eight": 1.0}), "1 bits"),
    (graph(node("Trunc", "x one zero ten eight", "y"), **POOL), "a Trunc elsewhere"),
    (graph(*average()[:2], node("Trunc", "s one zero ten eight", "t", rounding_mode="CEIL"), **POOL), "rounding CEIL"),
    (graph(*average()[:2], node("Trunc", "s one one ten eight", "t"), **POOL), "another zero point"),
    (graph(*average()[:2], node("Trunc", "s x zero ten eight", "t"), **POOL), "parameter computed"),
    (graph(node("MultiThreshold", "x x", "y", out_dtype="INT4", out_bias=-8.0)), "other thresholds"),
    (graph(node("MultiThreshold", "x t", "y", out_dtype="UINT4"), t=[[1.0, 0.0]]), "a row that falls"),
    (graph(node("MultiThreshold", "x t", "y", out_dtype="UINT4", out_scale=2.0), t=[[1.0]]), "out_scale 2"),
    (graph(node("MultiThreshold", "x t", "y", out_dtype="UINT4", out_bias=0.5), t=[[1.0]]), "out_bias 0.5"),
    (graph(node("MultiThreshold", "x t", "y", out_dtype="INT4"), t=[[1.0]]), "INT4 with out_bias 0"),
    (graph(node("Concat", "x plane", "y", axis=1), plane=np.ones((1, 2, 6, 6))), "a constant joined"),
    (graph(node("Concat", "x x", "y", axis=2)), "axis 2"),
    (graph(node("Resize", "x  s", "y", mode="linear"), s=[1.0, 1.0, 2.0, 2.0]), "mode linear"),
    (graph(node("Upsample", "x s", "y"), s=[1.0, 2.0, 2.0, 2.0]), "other scales"),
]


@pytest.mark.parametrize("name", LEGAL)
def test_what_finn_takes_breaks_no_rule(name: str) -> None:
    assert to_finn.check(LEGAL[name]) == []


@pytest.mark.parametrize(("model", "found"), BROKEN, ids=[found for _, found in BROKEN])
def test_each_rule_is_found_broken(model: onnx.ModelProto, found: str) -> None:
    violations = to_finn.check(model)
    assert any(found in violation.found for violation in violations), [str(v) for v in violations]
    names = {n.name for n in model.graph.node}
    assert all(violation.node in names for violation in violations)
    assert all(":" in violation.rule for violation in violations)


def test_a_float_input_is_named() -> None:
    model = LEGAL["layer and signed activation"]
    plain = onnx.ModelProto()
    plain.CopyFrom(model)
    del plain.graph.quantization_annotation[:]
    assert [v.node for v in to_finn.check(plain)] == ["x"]


@pytest.mark.parametrize("name", ["TFC_1W2A", "TFC_2W2A"])
def test_networks_that_finn_builds_break_no_rule(name: str) -> None:
    path = ZOO / f"{name}.onnx"
    if not path.is_file():
        pytest.skip(f"{path} is not here: the shared model zoo")
    assert to_finn.check(onnx.load(path)) == []


def test_our_own_plain_qonnx_breaks_rules_that_the_variant_keeps() -> None:
    network = images()
    broken = {violation.found for violation in to_finn.check(to_qonnx.export(network))}
    assert {"an unsigned Quant", "2 groups for weights of shape (4, 2, 1, 1)"} <= broken
