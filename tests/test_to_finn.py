"""FINN-legal QONNX: equal to the interpreter before and after FINN's own conversion, or refused by name."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import onnx
import pytest
from graph_strategies import graph_rows
from onnx import helper, numpy_helper
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
    (rescale("p", "x", -1, 0, S8), "p: a multiplier below zero; FINN's thresholds rise"),
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
        said = json.loads(properties["hawq_flow.finn.host"])["out"]
        assert (said["input"], said["scale"]) == ("head", 0.25)
        assert said["zero_point"] == network.op("out").offset  # type: ignore[union-attr]
        assert json.loads(properties["hawq_flow.outputs"])["head"].keys() == {"shape", "type", "range", "host_rescales"}
        assert "Outputs with host_rescales are integers for the host to rescale" in properties["hawq_flow.note"]
        assert properties["hawq_flow.digest"] == network.digest


def test_every_rescale_left_to_the_host_says_its_own_scale() -> None:
    """Two of one sum, which is an output itself; a falling one; a chain: the host does them in the order told."""
    wide = IntType(12, True)
    ops = (
        Dense("fc", "x", np.array([[3, -5], [7, 100]]), np.array([1, -1])),
        rescale("first", "fc", 3, 4, wide, offset=5),
        rescale("second", "fc", 5, 4, wide, offset=5),
        Dense("head", "x", np.array([[3, -5], [7, 9]]), np.array([1, -1])),
        rescale("fine", "head", 1 << 12, 0, IntType(30, True), offset=-777),
        rescale("falling", "fine", -3, 11, wide),
        Dense("last", "x", np.array([[3, -5], [7, 9]]), np.array([1, -1])),
        rescale("down", "last", -3, 1, wide),
    )
    specs = (
        OutputSpec("first", np.float64(0.5), np.int64(2)),  # type: ignore[arg-type]
        OutputSpec("second", np.float64(0.25), np.int64(5)),  # type: ignore[arg-type]
        OutputSpec("falling", np.float64(3.0)),  # type: ignore[arg-type]
        OutputSpec("down", np.float64(7.0)),  # type: ignore[arg-type]
        OutputSpec("fc", np.float64(0.125)),  # type: ignore[arg-type]
    )
    network = IntegerNetwork((InputSpec("x", (2,), S8),), ops, specs)
    model = assert_legal_and_equal(network, np.random.default_rng(0).integers(-128, 128, (100, 2)))
    assert [info.name for info in model.graph.output] == ["fc", "head", "last"]
    properties = {entry.key: entry.value for entry in model.metadata_props}
    host = json.loads(properties["hawq_flow.finn.host"])
    meanings = {name: (said["input"], said.get("scale"), said.get("zero_point")) for name, said in host.items()}
    assert meanings == {
        "fine": ("head", None, None),
        "first": ("fc", 0.5, 2),
        "second": ("fc", 0.25, 5),
        "falling": ("fine", 3.0, 0),
        "down": ("last", 7.0, 0),
    }
    assert host["first"]["type"] == wide.to_dict()
    outputs = json.loads(properties["hawq_flow.outputs"])
    assert (outputs["fc"]["scale"], outputs["fc"]["host_rescales"]) == (0.125, ["first", "second"])
    assert [outputs[name].get("host_rescales") for name in ("head", "last")] == [["fine"], ["down"]]
    assert "scale" not in outputs["head"]


def test_a_wide_rescale_of_an_input_is_a_node_or_refused() -> None:
    def of_input(op: Requantize, *, bits: int = 16, signed: bool = True) -> IntegerNetwork:
        return IntegerNetwork((InputSpec("x", (2,), IntType(bits, signed)),), (op,), (OutputSpec("q"),))

    x = np.random.default_rng(0).integers(-(1 << 15), 1 << 15, (100, 2))
    assert_legal_and_equal(of_input(rescale("q", "x", 3, 2, IntType(16, True))), x)
    wide = of_input(rescale("q", "x", 1721, 0, IntType(31, False), Rounding.HALF_UP))  # 8339 comes out one too high
    for network, text in (
        (wide, "q: needs 27 bits; FINN carries integers in float32 until it is hardware, 24 bits; FINN's host"),
        (of_input(rescale("q", "x", 3, 1, IntType(12, True), offset=5)), "q: type int12 with a zero point or"),
        (of_input(rescale("q", "x", 1, 1, IntType((9, 10), True))), r"q: type int\[9,10\] with a zero point or"),
        (of_input(rescale("q", "x", -1, 1, IntType(12, True))), "q: a multiplier of zero or less; FINN's host"),
        (
            of_input(Requantize("q", "x", np.array([[1, 3], [5, 7]]), np.array(3), np.array(0), IntType(12, True))),
            "q: a factor of more than one number a channel; FINN's host rescales sums, and this reads an input",
        ),
        (
            of_input(rescale("q", "x", 1, 29, S8), bits=31, signed=False),
            "x: integers of 31 bits; FINN carries integers",
        ),
    ):
        if network.op("q").multiplier.ndim == 2:  # type: ignore[union-attr]
            square = dataclasses.replace(network.inputs[0], shape=(2, 2))
            network = dataclasses.replace(network, inputs=(square,))
        with pytest.raises(NotExact, match=text):
            to_finn.export(network)


def test_no_file_is_made_that_breaks_a_rule() -> None:
    """A pool of sums: its graph is exact, and FINN pools integers alone."""
    ops = (
        Conv("c", "x", np.ones((2, 2, 1, 1), int), np.zeros(2, int), (1, 1), (0, 0, 0, 0)),
        MaxPool("m", "c", (2, 2), (2, 2), (0, 0, 0, 0)),
    )
    network = IntegerNetwork((InputSpec("x", (2, 6, 6), S8),), ops, (OutputSpec("m"),))
    with pytest.raises(
        NotExact, match=r"m/maxpool: FINN cannot take this network\. m/maxpool: a pool of floats \(pools"
    ):
        to_finn.export(network)


def test_a_wide_rescale_that_nobody_asks_for_is_dropped() -> None:
    steps = (
        rescale("a", "fc", 1 << 18, 0, IntType(30, True), offset=-77),
        rescale("dead", "a", 3, 17, IntType(12, True)),
        rescale("act", "a", 3, 21, U4),
    )
    network = IntegerNetwork(
        line(1, 1, Rounding.FLOOR).inputs, (line(1, 1, Rounding.FLOOR).ops[0], *steps), (OutputSpec("act"),)
    )
    model = assert_legal_and_equal(network, np.random.default_rng(0).integers(-128, 128, (100, 2)))
    assert "dead" not in to_finn.execute(model, network, np.zeros((1, 2), int)).values


def test_values_without_axes_are_refused() -> None:
    network = IntegerNetwork((InputSpec("x", (), S8),), (rescale("q", "x", 3, 2, S4),), (OutputSpec("q"),))
    with pytest.raises(NotExact, match="q: a value without axes; FINN's streams have channels"):
        to_finn.export(network)


@pytest.mark.parametrize("rounding", Rounding)
def test_a_channel_that_is_constant_has_thresholds_that_all_or_no_integers_reach(rounding: Rounding) -> None:
    """What an import writes for a channel whose ReLU is never above zero."""
    network = line(1, 1, rounding)
    act = Requantize("act", "fc", np.array([0, 3]), np.array(4), np.array([5, -3]), U4, rounding)
    network = network.replace_op(act)
    x = np.random.default_rng(0).integers(-128, 128, (100, 2))
    model = assert_legal_and_equal(network, x)
    low, high = (int(end[0]) for end in (network.values["fc"].low, network.values["fc"].high))
    rows = next(numpy_helper.to_array(t) for t in model.graph.initializer if t.name == "act/thresholds")
    assert rows[0].tolist() == [low] * 5 + [high + 1] * 10
    plain = network.replace_op(dataclasses.replace(act, offset=np.array(0)))
    with pytest.raises(NotExact, match="act: a multiplier of zero; FINN absorbs factors that are positive"):
        to_finn.export(plain, activations="quant")


def test_equal_widths_of_channels_are_one_width() -> None:
    network = line(3, 4, Rounding.FLOOR, IntType((4, 4), True), offset=1)
    assert_legal_and_equal(network, np.random.default_rng(0).integers(-128, 128, (100, 2)))


@pytest.mark.parametrize("rounding", Rounding)
def test_channels_that_shift_nothing_are_moved_off_no_tie(rounding: Rounding) -> None:
    fc = Dense("fc", "x", np.array([[1, 2], [-1, 3]]), np.zeros(2, int))
    act = Requantize("act", "fc", np.array([3, 33]), np.array([0, 1]), np.array(0), S8, rounding)
    ops = (fc, act, rescale("b", "fc", 3, 0, S8, rounding))
    network = IntegerNetwork((InputSpec("x", (2,), S8),), ops, (OutputSpec("act"), OutputSpec("b")))
    x = np.stack(np.meshgrid(np.arange(-12, 13), np.arange(-12, 13)), -1).reshape(-1, 2)
    assert to_finn.plan_network(network).activations["b"].form == "quant"
    assert_legal_and_equal(network, x)


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
