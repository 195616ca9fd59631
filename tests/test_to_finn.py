"""FINN-legal QONNX: equal to the interpreter before and after FINN's own conversion; the rules, each broken once."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from graph_strategies import graph_rows
from onnx import TensorProto, helper, numpy_helper
from strategies import jets_like, jets_rows

from hawq_flow import interpret, to_finn, to_qonnx
from hawq_flow.network import (
    Add,
    Concat,
    Conv,
    Dense,
    InputSpec,
    IntegerNetwork,
    Lookup,
    MaxPool,
    Op,
    OutputSpec,
    Pad,
    Requantize,
    Reshape,
    SumPool,
    Upsample,
)
from hawq_flow.numeric import IntType, Rounding
from hawq_flow.to_finn.plan import _pool_bits, pool_accumulator_bits, pool_input_bits, thresholds
from hawq_flow.to_qonnx import NotExact

U4, U6, S4, S8 = IntType(4, False), IntType(6, False), IntType(4, True, True), IntType(8, True)
ZOO = Path(__file__).parents[2] / "shared" / "data" / "onnx" / "model_zoo"


def rescale(
    name: str, operand: str, m: Any, c: Any, out: IntType, rounding: Rounding = Rounding.HALF_EVEN, offset: int = 0
) -> Requantize:
    m, c = (np.asarray(v).reshape((-1, 1, 1) if np.ndim(v) else ()) for v in (m, c))
    return Requantize(name, operand, m, c, np.asarray(offset), out, rounding)


def images(rounding: Rounding = Rounding.HALF_EVEN, average: int = 2) -> IntegerNetwork:
    """Every op that FINN takes: bipolar, ternary, grouped and depthwise convolutions, sums, pools, a flattened end."""
    rng = np.random.default_rng(1)

    def signs(*shape: int) -> Any:
        return rng.choice([-1, 1], shape)

    ops: list[Op] = [
        Conv("first", "x", signs(4, 2, 3, 3), np.array([3, 0, -7, 1]), (1, 1), (1, 1, 1, 1)),
        rescale("first_act", "first", [3, 5, 7, 5], [5, 6, 6, 6], U4, rounding),
        Conv("depth", "first_act", rng.integers(-1, 2, (4, 1, 3, 3)), rng.integers(-5, 5, 4), (1, 1), (1, 1, 1, 1), 4),
        rescale("depth_act", "depth", 1, 2, S4, rounding),
        Conv("grouped", "first_act", rng.integers(-7, 8, (4, 2, 1, 1)), np.zeros(4, int), (1, 1), (0, 0, 0, 0), 2),
        rescale("grouped_act", "grouped", 1, 4, S4, rounding, offset=1),
        Add("sum", ("depth_act", "grouped_act")),
        rescale("sum_act", "sum", 1, 0, U4),
        Concat("both", ("sum_act", "first_act"), 0),
        MaxPool("most", "both", (2, 2), (1, 1), (0, 1, 0, 1)),
        Upsample("larger", "most", (1, 2)),
        SumPool("pool", "larger", (average, average), (average, average), (0, 0, 0, 0)),
        rescale("pool_act", "pool", 1, 2, U6, Rounding.FLOOR),
        SumPool("rest", "pool_act", (1, 2), (1, 1), (0, 0, 0, 0)),
        rescale("rest_act", "rest", 5, 4, U4, rounding),
    ]
    network = IntegerNetwork((InputSpec("x", (2, 6, 6), S8),), tuple(ops), (OutputSpec("rest_act"),))
    size = int(np.prod(network.values["rest_act"].shape))
    ops += [Reshape("flat", "rest_act", (size,)), Dense("fc", "flat", signs(3, size), np.array([1, -2, 3]))]
    return IntegerNetwork(network.inputs, tuple(ops), (OutputSpec("fc"),))


def unformed(network: IntegerNetwork, model: onnx.ModelProto) -> set[str]:
    return {op.name for op in network.ops} - {name for node in model.graph.node for name in node.output}


def assert_legal_and_equal(network: IntegerNetwork, x: np.ndarray, **options: Any) -> onnx.ModelProto:
    model = to_finn.export(network, **options)
    assert to_finn.check(model) == []
    expected = interpret.reference(network, x)
    done = to_finn.execute(model, network, x)
    left = set(json.loads({p.key: p.value for p in model.metadata_props}["hawq_flow.finn.host"]))
    assert set(done.values) == {op.name for op in network.ops} - unformed(network, model) | left
    converted = as_finn_converts(model, {"x": x})
    for name, values in done.values.items():
        np.testing.assert_array_equal(values, expected[name], err_msg=name)
        if name not in left:
            np.testing.assert_array_equal(converted[name], expected[name], err_msg=f"{name}, converted")
    return model


def as_finn_converts(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The graph evaluated with every activation's Quant as the thresholds that FINN makes of it, reached with >=."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    arrays = {t.name: numpy_helper.to_array(t) for t in copy.graph.initializer}
    for node in copy.graph.node:
        if node.op_type != "Quant" or node.input[0] in arrays:
            continue
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        bits = int(arrays[node.input[3]])
        if bits > 8:
            continue  # FINN leaves it
        low = -(1 << (bits - 1)) + attributes["narrow"] if attributes["signed"] else 0
        steps = (1 << bits) - 1 - attributes["narrow"]
        rows = (low + 0.5 + np.arange(steps, dtype=np.float32))[None]
        copy.graph.initializer.append(numpy_helper.from_array(rows.astype(np.float32), f"{node.name}/rows"))
        new = helper.make_node(
            "MultiThreshold", [node.input[0], f"{node.name}/rows"], node.output, node.name, domain=node.domain,
            out_dtype="INT8", out_scale=1.0, out_bias=float(low), data_layout="NCHW",
        )  # fmt: skip
        node.CopyFrom(new)
    return to_qonnx.evaluate(copy, inputs, np.float32)


# --- the variant -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rounding", "activations", "average"),
    [
        (Rounding.HALF_EVEN, "auto", 2),
        (Rounding.HALF_UP, "auto", 3),
        (Rounding.FLOOR, "thresholds", 2),
    ],
)
def test_every_op_is_legal_and_equal_before_and_after_conversion(
    rounding: Rounding, activations: str, average: int
) -> None:
    network = images(rounding, average)
    model = assert_legal_and_equal(network, graph_rows(network, rows=30), activations=activations)
    types = [node.op_type for node in model.graph.node]
    assert {"AveragePool", "Trunc", "MaxPool", "Resize", "Concat", "MultiThreshold", "BipolarQuant"} <= set(types)
    assert types.count("BipolarQuant") == 2
    assert unformed(network, model) == {"pool"}
    if activations == "auto":
        assert "Relu" in types
    weights = next(t for t in model.graph.initializer if t.name == "grouped/weight")
    assert list(weights.dims) == [4, 4, 1, 1]
    annotation = model.graph.quantization_annotation[0]
    assert (annotation.tensor_name, annotation.quant_parameter_tensor_names[0].value) == ("x", "INT8")


def test_a_jet_tagger_keeps_quant_where_no_tie_can_be_met_and_writes_thresholds_elsewhere() -> None:
    network = jets_like(inputs=S8, multiplier_bits=6)
    x = jets_rows(network, 300)
    model = assert_legal_and_equal(network, x)
    forms = dict(pair.split("=") for pair in {p.key: p.value for p in model.metadata_props}["hawq_flow.finn"].split())
    assert set(forms) == {"act1", "act2", "act3", "act4"}
    assert "thresholds" in forms.values()
    assert [node.op_type for node in model.graph.node][:3] == ["Quant", "MatMul", "Add"]
    assert {e.key: e.value for e in model.metadata_props}["hawq_flow.digest"] == network.digest


def line(m: int, c: int, rounding: Rounding, out: IntType = U4, **others: Any) -> IntegerNetwork:
    op = rescale("act", "fc", m, c, out, rounding, **others)
    fc = Dense("fc", "x", np.array([[1, 2], [-1, 3]]), np.zeros(2, int))
    return IntegerNetwork((InputSpec("x", (2,), S8),), (fc, op), (OutputSpec("act"),))


def test_half_even_is_quant_only_where_ties_cannot_be_met() -> None:
    """At 33/2 every tie is beyond the type and saturates; at 1/2 every odd sum is one."""
    free = line(33, 1, Rounding.HALF_EVEN)
    assert to_finn.plan_network(free).activations["act"].form == "quant"
    tied = line(1, 1, Rounding.HALF_EVEN)
    assert to_finn.plan_network(tied).activations["act"].form == "thresholds"
    with pytest.raises(
        NotExact, match=r"act: 16 of its thresholds are ties that go down to even; FINN's go up .*'auto' writes"
    ):
        to_finn.export(tied, activations="quant")
    x = np.stack(np.meshgrid(np.arange(-12, 13), np.arange(-12, 13)), -1).reshape(-1, 2)
    assert_legal_and_equal(free, x)
    assert_legal_and_equal(tied, x)
    # And the refusal is not idle: what FINN would make of that Quant differs.
    plain = to_qonnx.export(tied)
    converted = as_finn_converts(plain, {"x": x})["act"]
    assert (converted != interpret.run(tied, x)).any()


@pytest.mark.parametrize("rounding", [Rounding.HALF_UP, Rounding.FLOOR])
def test_other_roundings_are_moved_off_their_ties(rounding: Rounding) -> None:
    network = line(3, 2, rounding, S4)
    x = np.stack(np.meshgrid(np.arange(-12, 13), np.arange(-12, 13)), -1).reshape(-1, 2)
    model = assert_legal_and_equal(network, x, activations="quant")
    assert [node.op_type for node in model.graph.node][-3:] == ["Mul", "Add", "Quant"]


def test_the_nudge_needs_bits_of_its_own() -> None:
    """1275 * (2^13 - 1) has 24 bits, enough for half even; half a step of 2^-c more is too much for the others."""
    forms = {}
    for rounding in Rounding:
        network = line((1 << 13) - 1, 30, rounding)
        wider = network.replace_op(Dense("fc", "x", np.array([[5, 5], [-5, 5]]), np.zeros(2, int)))
        forms[rounding] = to_finn.plan_network(wider).activations["act"].form
    assert forms == {
        Rounding.HALF_EVEN: "quant",
        Rounding.HALF_UP: "thresholds",
        Rounding.FLOOR: "thresholds",
    }


@pytest.mark.parametrize("rounding", Rounding)
def test_thresholds_are_the_least_integers_that_reach_each_step(rounding: Rounding) -> None:
    network = line(5, 4, rounding, S4, offset=2)
    op, x = network.op("act"), network.values["fc"]
    assert isinstance(op, Requantize)
    integers = np.arange(int(x.low.min()), int(x.high.max()) + 1)
    expected = [interpret_rescale(op, n) for n in integers]
    rows = thresholds(op, x, rounding)
    counted = op.type.range[0] + (integers[:, None, None] >= rows).sum(-1)
    np.testing.assert_array_equal(counted[:, 0], expected)


def interpret_rescale(op: Requantize, n: int) -> int:
    one = IntegerNetwork(
        (InputSpec("fc", (1,), IntType(20, True)),), (dataclasses.replace(op, name="a"),), (OutputSpec("a"),)
    )
    return int(interpret.run(one, np.array([[n]]))[0, 0])


@pytest.mark.parametrize("kernel", range(2, 8))
def test_finns_shift_of_an_average_is_the_one_meant(kernel: int) -> None:
    """QuantAvgPool2d shifts by its accumulator's bits less the bits after: the bits before must be that accumulator."""
    for least in range(1, 9):
        for dropped in range(1, 5):
            before = _pool_bits(kernel, least, pool_accumulator_bits(least, kernel), dropped)
            assert before is not None
            inputs = pool_input_bits(before, kernel)
            assert inputs >= least
            assert pool_accumulator_bits(inputs, kernel) - (before - dropped) == dropped


REFUSED: list[tuple[Op, str]] = [
    (Pad("p", "x", (1, 1, 1, 1), 0), "p: Pad has no layer in FINN"),
    (Lookup("p", "x", np.arange(256), -128), "p: Lookup has no layer"),
    (MaxPool("p", "x", (1, 1), (2, 2), (0, 0, 0, 0)), r"p: kernel \(1, 1\) below stride \(2, 2\)"),
    (MaxPool("p", "x", (2, 2), (1, 1), (1, 0, 0, 0)), "p: a padded pool of signed integers"),
    (Reshape("p", "x", (4, 3, 6)), r"p: a reshape to \(4, 3, 6\); FINN takes flattening alone"),
    (Concat("p", ("x", "x"), 1), "p: a concatenation along axis 1"),
    (Concat("p", ("x", "x"), 0), "p: one operand taken twice"),
    (Add("p", ("x", "x")), "p: one operand taken twice"),
    (rescale("p", "x", 1, 0, IntType((3, 4), True)), r"p: type int\[3,4\]; FINN has one width"),
    (rescale("p", "x", -1, 0, S8), "p: a multiplier of zero or less; FINN's thresholds rise"),
    (
        Conv("p", "x", np.ones((1, 2, 1, 1), int), np.array([0]), (1, 1), (0, 0, 0, 0), 1, IntType(5, True)),
        "p: a sum that saturates in its declared accumulator int5",
    ),
    (
        Requantize("p", "x", np.arange(1, 7), np.array(3), np.array(0), S8),
        "p: a scale or zero point that differs within a channel",
    ),
    (
        Conv("p", "x", np.full((1, 2, 1, 1), 1 << 16), np.array([0]), (1, 1), (0, 0, 0, 0)),
        "p: needs 25 bits; FINN carries integers in float32",
    ),
]


@pytest.mark.parametrize(("op", "text"), REFUSED, ids=[text[:24] for _, text in REFUSED])
def test_refused_by_name(op: Op, text: str) -> None:
    network = IntegerNetwork((InputSpec("x", (2, 6, 6), S8),), (op,), (OutputSpec("p"),))
    with pytest.raises(NotExact, match=text):
        to_finn.export(network)


def test_windows_in_one_dimension_and_all_refusals_at_once() -> None:
    ops = (
        Conv("c", "x", np.ones((2, 2, 3), int), np.zeros(2, int), (1,), (0, 0)),
        MaxPool("m", "c", (2,), (2,), (0, 0)),
    )
    network = IntegerNetwork((InputSpec("x", (2, 8), S8),), ops, (OutputSpec("m"),))
    with pytest.raises(
        NotExact, match=r"c: FINN cannot take this network\. c: a convolution in one .*; m: a window in"
    ):
        to_finn.export(network)


def wide_end(m: int, c: int, offset: int = 0) -> IntegerNetwork:
    """A network that ends on 16 bits."""
    network = line(1, 1, Rounding.FLOOR, U4)
    ops = (
        *network.ops,
        Dense("head", "act", np.array([[3, -5], [7, 100]]), np.array([1, -1])),
        rescale("out", "head", m, c, IntType(16, True, True), offset=offset),
    )
    output = OutputSpec("out", np.float64(0.25), np.int64(offset))  # type: ignore[arg-type]
    return IntegerNetwork(network.inputs, ops, (output,))


def test_a_wide_end_is_left_to_the_host() -> None:
    x = np.random.default_rng(0).integers(-128, 128, (100, 2))
    inside = assert_legal_and_equal(wide_end(5, 3), x)
    assert [node.op_type for node in inside.graph.node][-2:] == ["Mul", "Quant"]
    assert [info.name for info in inside.graph.output] == ["out"]
    for network in (wide_end((1 << 20) + 1, 18), wide_end(5, 3, offset=7)):
        model = assert_legal_and_equal(network, x)
        assert [info.name for info in model.graph.output] == ["head"]
        properties = {entry.key: entry.value for entry in model.metadata_props}
        assert json.loads(properties["hawq_flow.finn.host"])["out"]["input"] == "head"
        factor = float(network.op("out").multiplier) / 2.0 ** float(network.op("out").shift)  # type: ignore[union-attr]
        assert json.loads(properties["hawq_flow.outputs"])["head"]["scale"] == 0.25 * factor
        assert properties["hawq_flow.digest"] == network.digest


def test_wide_types_inside_are_refused() -> None:
    first = line(1, 1, Rounding.FLOOR, IntType(9, True))
    head = Dense("head", "act", np.array([[3, -5]]), np.array([0]))
    network = IntegerNetwork(first.inputs, (*first.ops, head), (OutputSpec("head"),))
    with pytest.raises(NotExact, match="act: type int9; FINN's thresholds have at most 8 bits"):
        to_finn.export(network)


def test_a_zero_point_or_a_wide_product_cannot_be_a_quant() -> None:
    with pytest.raises(NotExact, match="act: a zero point; FINN takes Quant with zero point 0"):
        to_finn.export(line(1, 1, Rounding.FLOOR, offset=1), activations="quant")
    with pytest.raises(NotExact, match=r"act: products of \d+ bits; float32, where FINN divides"):
        to_finn.export(line((1 << 20) + 1, 22, Rounding.FLOOR), activations="quant")


# --- the rules -------------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("multiplier", [1, 64, [3, 5]])
def test_a_rescale_that_only_multiplies_and_adds_is_two_nodes(multiplier: Any) -> None:
    """What an import writes for a bias finer than the sums: FINN absorbs it in the thresholds behind it."""
    factor = np.array(multiplier)
    wide, narrow = IntType(17, True), IntType(2, True)
    network = IntegerNetwork(
        (InputSpec("x", (2,), IntType(4, True)),),
        (
            Dense("fc", "x", np.array([[1, -2], [3, 1]]), np.zeros(2, np.int64)),
            Requantize("bias", "fc", factor, np.array(0), np.array([7, -5]), wide),
            Requantize("act", "bias", np.array(1), np.array(5), np.array(0), narrow),
        ),
        (OutputSpec("act"),),
    )
    model = to_finn.export(network)
    kinds = [node.op_type for node in model.graph.node]
    assert kinds[-2:] == ["Add", "MultiThreshold"]
    assert ("Mul" in kinds) == (multiplier != 1)
    assert to_finn.check(model) == []
    x = np.stack(np.meshgrid(np.arange(-8, 8), np.arange(-8, 8)), -1).reshape(-1, 2)
    values = to_finn.execute(model, network, x).values
    assert np.array_equal(values["act"], interpret.run(network, x))
    ending = dataclasses.replace(network, outputs=(OutputSpec("act"), OutputSpec("bias")))
    with pytest.raises(NotExact, match="bias: type int17; FINN's thresholds have at most 8 bits"):
        to_finn.export(ending)
