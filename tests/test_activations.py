"""tanh and sigmoid in ONNX: the published forms and the table, what runtimes make of them, and their errors."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto

from hawq_flow import interpret, to_onnx, to_qonnx
from hawq_flow.lower import lower
from hawq_flow.network import InputSpec, IntegerNetwork, Lookup, OutputSpec
from hawq_flow.numeric import IntType
from hawq_flow.plan import BitPlan
from hawq_flow.prove import drawn
from hawq_flow.quant import quantize
from hawq_flow.to_onnx import activations
from hawq_flow.to_onnx.activations import INT8, UINT8, Form, Function, Grid
from hawq_flow.to_qonnx import NotExact
from hawq_flow.to_qonnx.exporting import canonical, exported
from hawq_flow.topology import read
from hawq_flow.train import TrainConfig, fit

FUNCTIONS: list[Function] = ["tanh", "sigmoid"]
FORMS: list[Form] = ["int8", "fp16", "table"]


def types(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


# --- the models ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("function", "output"), [("tanh", TensorProto.INT8), ("sigmoid", TensorProto.UINT8)])
def test_the_published_forms(function: Function, output: int) -> None:
    kind = function.capitalize()
    made = activations.model(function, "int8", input_scale=1 / 16)
    assert types(made) == ["DequantizeLinear", kind, "QuantizeLinear"]
    assert made.graph.input[0].type.tensor_type.elem_type == TensorProto.INT8
    assert made.graph.output[0].type.tensor_type.elem_type == output
    scales = {t.name: onnx.numpy_helper.to_array(t) for t in made.graph.initializer}
    assert scales["input/scale"] == 1 / 16
    assert scales["output/scale"] == np.float32(1 / 127 if function == "tanh" else 1 / 255)
    half = activations.model(function, "fp16")
    assert types(half) == ["Clip", "DequantizeLinear", "Cast", kind, "Cast", "QuantizeLinear"]
    assert [node.attribute[0].i for node in half.graph.node if node.op_type == "Cast"] == [
        TensorProto.FLOAT16,
        TensorProto.FLOAT,
    ]
    assert types(activations.model(function, "table")) == ["Cast", "Sub", "Gather"]


def test_the_narrowed_range_ends_where_results_reach_the_limit() -> None:
    assert (activations.reach("tanh"), activations.reach("sigmoid")) == (4.0, 8.0)
    for function in FUNCTIONS:
        end = activations.real(function, np.array([activations.reach(function) / 2, activations.reach(function)]))
        top = activations.output_grid(function)
        assert np.rint(end / top.scale).tolist()[0] < np.rint(end / top.scale).tolist()[1] == top.type.range[1]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_fp16_form_is_symmetric(function: Function) -> None:
    for found in activations.results(function, "fp16").values():
        assert found[0] == found[1]  # -128 is -127
        if function == "tanh":
            np.testing.assert_array_equal(found[1:], -found[1:][::-1])


# --- what they compute -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("scale", [None, 0.05])
def test_the_table_is_exact_in_every_runtime(function: Function, scale: float | None) -> None:
    entries = activations.table(function, "table", input_scale=scale)
    source, result = activations.input_grid(function, scale), activations.output_grid(function)
    np.testing.assert_array_equal(entries, activations.exact(function, source, result))
    for q, found in zip(source.integers.tolist(), entries.tolist(), strict=True):
        x = source.scale * q
        value = math.tanh(x) if function == "tanh" else 1 / (1 + math.exp(-x))
        assert abs(value / result.scale - found) <= 0.5 + 1e-12


def test_exact_agrees_with_torch_in_double() -> None:
    for function, double in (("tanh", torch.tanh), ("sigmoid", torch.sigmoid)):
        x, y = activations.input_grid(function), activations.output_grid(function)  # type: ignore[arg-type]
        values = double(torch.tensor(x.integers * x.scale, dtype=torch.float64)).numpy()
        np.testing.assert_array_equal(activations.exact(function, x, y), np.rint(values / y.scale))  # type: ignore[arg-type]


def test_the_errors_of_every_form() -> None:
    """In steps of the output: rounding alone costs half a step, float16 a little more (0.52 for tanh, 0.60 sigmoid)."""
    found = {(f, form): activations.error(f, form) for f in FUNCTIONS for form in FORMS}
    for function in FUNCTIONS:
        for form in FORMS:
            error = found[function, form]
            step = activations.output_grid(function).scale
            assert 0 < error.mean_abs < error.max_abs == pytest.approx(error.max_levels * step)
        assert found[function, "table"].max_levels <= 0.5
        assert found[function, "int8"].max_levels < 0.5 + 1e-6
        assert 0.5 < found[function, "fp16"].max_levels < 1.0


def test_the_full_range_costs_more_than_the_narrowed_one_on_average() -> None:
    """tanh over [-16, 16): half of the integers mean +-1; the error of a network's input grid is in ``error`` too."""
    coarse = activations.error("tanh", "int8", input_scale=1 / 8)
    assert coarse.max_levels <= 0.5 + 1e-6
    shifted = activations.error("tanh", "table", y=Grid(IntType(4, True, True), 1 / 7))
    assert coarse.max_abs < shifted.max_abs <= 0.5 / 7 + 1e-12


def test_runtimes_that_differ_are_named() -> None:
    with pytest.raises(
        NotExact,
        match=r"tanh in form 'fp16': \d+ of 256 results differ between the reference evaluator and onnxruntime",
    ):
        activations.table("tanh", "fp16")


def test_other_grids() -> None:
    x, y = Grid(IntType(6, False), 0.1, 20), Grid(IntType(5, False), 1 / 15, 16)
    entries = activations.table("tanh", "int8", x=x, y=y)
    assert entries.size == 64
    assert (entries.min(), entries.max()) == (2, 31)
    np.testing.assert_array_equal(entries, activations.table("tanh", "table", x=x, y=y))


# --- in place of a Lookup --------------------------------------------------------------------------------------------


def lookup(known: Function, x: Grid, y: Grid, **changes: Any) -> IntegerNetwork:
    entries = activations.exact(known, x, y)
    fields: dict[str, Any] = {"table": entries, "start": x.type.range[0], "function": known} | changes
    op = Lookup("t", "x", **fields)
    return IntegerNetwork((InputSpec("x", (5,), x.type),), (op,), (OutputSpec("t"),))


def prove(network: IntegerNetwork, form: Form, x: Grid, y: Grid) -> Function:
    op = network.op("t")
    assert isinstance(op, Lookup)
    return activations.prove_published(op, network.values["x"], form, x, y)


def test_a_published_form_stands_for_a_lookup_with_equal_entries() -> None:
    x, y = activations.input_grid("tanh"), activations.output_grid("tanh")
    network = lookup("tanh", x, y)
    assert prove(network, "int8", x, y) == "tanh"

    def nodes(value: Any, table: Any, name: str, start: int) -> Any:
        return activations.published_nodes(value, name, "int8", "tanh", x, y, TensorProto.FLOAT)

    table = to_qonnx.TRANSLATION | {torch.ops.hawq_flow.lookup.default: nodes}
    graph = canonical(network, exported(network, table), {})
    kinds = [node.op_type for node in graph.node]
    assert kinds == ["Quant", "Cast", "DequantizeLinear", "Tanh", "QuantizeLinear", "Cast"]
    assert [node.name for node in graph.node][1:4] == ["t/integer", "t/real", "t/tanh"]
    # The same steps as the model's, which `table` proved; here they run on the network's values.
    del graph.node[0]
    graph.node[0].input[0] = "x"
    model = onnx.helper.make_model(graph, ir_version=10, opset_imports=[onnx.helper.make_opsetid("", 20)])
    rows = np.arange(-128, 127).reshape(-1, 5)
    found = onnx.reference.ReferenceEvaluator(model).run(None, {"x": rows.astype(np.float32)})[0]
    np.testing.assert_array_equal(found, interpret.run(network, rows))


def test_only_integers_that_can_be_met_count() -> None:
    x, y = activations.input_grid("sigmoid"), activations.output_grid("sigmoid")
    with pytest.raises(NotExact, match="t: 1 of 256 entries of sigmoid differ in form 'int8'; form 'table' is exact"):
        prove(lookup("sigmoid", x, y), "int8", x, y)  # sigmoid(0) = 127.5 steps: float32's 1/255 is above 1/255
    one = activations.exact("sigmoid", x, y)
    one[-1] += 1
    wrong_at_127 = lookup("sigmoid", x, y, table=one)
    with pytest.raises(NotExact, match="t: 2 of 256 entries"):
        prove(wrong_at_127, "int8", x, y)
    small = IntegerNetwork((InputSpec("x", (5,), IntType(6, True)),), wrong_at_127.ops, wrong_at_127.outputs)
    with pytest.raises(NotExact, match="t: 1 of 64 entries"):
        prove(small, "int8", x, y)


@pytest.mark.parametrize(
    ("changes", "form", "x", "text"),
    [
        ({"function": "gelu"}, "int8", None, "t: a table of 'gelu'; published forms are of tanh and sigmoid"),
        ({"function": ""}, "int8", None, "t: a table of 'something unnamed'"),
        (
            {},
            "int8",
            Grid(IntType(6, True), 1 / 16),
            "t: its input ranges from -128 to 127, the grid's int6 from -32 to",
        ),
        ({}, "fp16", None, r"t: tanh in form 'fp16': \d+ of 256 results differ"),
    ],
)
def test_refused(changes: dict[str, Any], form: Form, x: Grid | None, text: str) -> None:
    source, y = activations.input_grid("tanh"), activations.output_grid("tanh")
    with pytest.raises(NotExact, match=text):
        prove(lookup("tanh", source, y, **changes), form, x or source, y)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: Grid(IntType(9, True), 1.0), "Grid: type int9; expected one width of at most 8 bits"),
        (lambda: Grid(INT8, 0.0), "Grid: scale 0.0; expected a positive finite number"),
        (lambda: Grid(UINT8, 1.0, -1), "Grid: zero point -1; expected one of uint8, 0 to 255"),
        (lambda: activations.model("gelu", "int8"), "activation 'gelu'; expected one of tanh, sigmoid"),  # type: ignore[arg-type]
        (lambda: activations.model("tanh", "int4"), "form 'int4'; expected one of int8, fp16, table"),  # type: ignore[arg-type]
        (lambda: activations.model("tanh", "fp16", x=Grid(UINT8, 1.0)), "fp16: an input of uint8 with zero point 0"),
        (lambda: activations.model("tanh", "int8", input_scale=1e-60), "input scale 1e-60 is 0.0 in float32"),
        (lambda: activations.model("tanh", "int8", input_scale=1.0, x=Grid(INT8, 1.0)), "give one"),
    ],
)
def test_wrong_arguments(call: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        call()


# --- in a whole network ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def squashed() -> IntegerNetwork:
    """A trained network with a tanh and a sigmoid between layers, each a table."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 8), torch.nn.Sigmoid(), torch.nn.Linear(8, 3)
    )
    plan = BitPlan.homogeneous(read(model, (4,)).shapes, weight=6, activation=8)
    trained = quantize(model, plan, input_shape=(4,))
    rng = np.random.default_rng(0)
    fit(trained, rng.normal(size=(200, 4)), rng.integers(0, 3, 200), TrainConfig(epochs=1))
    return lower(trained)


def test_trained_tables_know_their_scales(squashed: IntegerNetwork) -> None:
    tables = [op for op in squashed.ops if isinstance(op, Lookup)]
    assert [op.function for op in tables] == FUNCTIONS
    for op in tables:
        assert op.scales is not None
        scale, zero, result_scale, result_zero = op.scales
        integers = op.start + np.arange(op.table.size)
        function = np.tanh if op.function == "tanh" else lambda x: 1 / (1 + np.exp(-x))
        rounded = np.rint(function(scale * (integers - zero)) / result_scale) + result_zero
        assert np.array_equal(np.clip(rounded, op.table.min(), op.table.max()), op.table)


def test_a_network_with_its_functions_in_published_form(squashed: IntegerNetwork) -> None:
    made = to_onnx.export(squashed, functions="int8")
    assert {"Tanh", "Sigmoid"} < set(types(made))
    x = drawn(squashed, 300)
    expected = interpret.run(squashed, x)
    name = squashed.outputs[0].name
    for optimized in (False, True):
        assert np.array_equal(to_onnx.execute(made, squashed, x, optimized=optimized).values[name], expected)
    assert np.array_equal(to_onnx.evaluate_reference(made, squashed, x).values[name], expected)
    assert not {"Tanh", "Sigmoid"} & set(types(to_onnx.export(squashed)))


def test_functions_that_a_form_does_not_give_are_refused_together(squashed: IntegerNetwork) -> None:
    with pytest.raises(NotExact, match=r"(?s)in form 'fp16'.*; _3: .*"):
        to_onnx.export(squashed, functions="fp16")
    unknown = [dataclasses.replace(op, scales=None) for op in squashed.ops if isinstance(op, Lookup)]
    without = squashed.replace_op(unknown[0]).replace_op(unknown[1])
    with pytest.raises(NotExact, match=r"_1: the scales of its table are not known; .*_3: the scales"):
        to_onnx.export(without, functions="int8")
    with pytest.raises(ValueError, match="form 'int4'; expected one of int8, fp16, table"):
        to_onnx.export(squashed, functions="int4")  # type: ignore[arg-type]
