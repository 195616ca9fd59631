"""QONNX: the graph equals the interpreter on every value, says what it is, and refuses what it cannot say."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import core_strategies
import numpy as np
import onnx
import pytest
import torch
from hypothesis import given, settings
from onnx import numpy_helper
from strategies import jets_like, jets_rows, nasty_network, rows_for

from hawq_flow import __version__, interpret, to_qonnx
from hawq_flow.network import Dense, InputSpec, IntegerNetwork, NetworkError, OutputSpec, Requantize, Reshape
from hawq_flow.numeric import IntType, Overflow, Rounding
from hawq_flow.to_qonnx import NotExact, execution

U8, S8 = IntType(8, False), IntType(8, True)


@pytest.fixture(scope="module")
def jets() -> IntegerNetwork:
    return jets_like()


@pytest.fixture(scope="module")
def model(jets: IntegerNetwork) -> onnx.ModelProto:
    return to_qonnx.export(jets)


def small(
    *,
    inputs: IntType = S8,
    multiplier: Any = 3,
    shift: Any = 4,
    offset: Any = 0,
    out: IntType = S8,
    rounding: Rounding = Rounding.HALF_EVEN,
    overflow: Overflow = Overflow.SATURATE,
    **dense: Any,
) -> IntegerNetwork:
    weight = np.array([[1, -2, 3], [4, 5, -6]])
    return IntegerNetwork(
        (InputSpec("x", (3,), inputs),),
        (
            Dense("fc", "x", weight, np.array([7, -8]), layer="block", **dense),
            Requantize(
                "act", "fc", *(np.array(v) for v in (multiplier, shift, offset)), out, rounding, overflow, layer="block"
            ),
        ),
        (OutputSpec("act"),),
    )


def assert_equal(network: IntegerNetwork, x: np.ndarray, model: onnx.ModelProto | None = None) -> str:
    execution = to_qonnx.execute(model or to_qonnx.export(network), network, x)
    for name, expected in interpret.reference(network, x).items():
        np.testing.assert_array_equal(execution.values[name], expected, err_msg=name)
    return execution.method


# --- the file --------------------------------------------------------------------------------------------------------


def test_tensors_nodes_and_metadata_are_named(jets: IntegerNetwork, model: onnx.ModelProto) -> None:
    tensors = {name for node in model.graph.node for name in node.output} | {info.name for info in model.graph.input}
    assert {"x", *(op.name for op in jets.ops)} <= tensors
    assert [node.name for node in model.graph.node][:6] == [
        "x/quant",
        "fc1/weight_quant",
        "fc1/matmul",
        "fc1/add",
        "fc1/act1/scaled",
        "fc1/act1/quant",
    ]
    assert len({node.name for node in model.graph.node}) == len(model.graph.node)
    assert (model.producer_name, model.producer_version) == ("hawq_flow", __version__)
    properties = {entry.key: entry.value for entry in model.metadata_props}
    assert properties["hawq_flow.digest"] == jets.digest
    assert properties["network.classes"] == "g,q,W,Z,t"
    assert json.loads(properties["hawq_flow.inputs"])["x"]["scale"] == 2.0**-12
    assert json.loads(properties["hawq_flow.inputs"])["x"]["std"] == 1.0
    assert json.loads(properties["hawq_flow.outputs"])["act4"] == {
        "shape": [5],
        "type": "int8n",
        "range": [-127, 127],
        "scale": 0.125,
        "zero_point": 0,
    }


def test_shapes_are_known_and_the_batch_is_symbolic(model: onnx.ModelProto) -> None:
    infos = {info.name: info for info in (*model.graph.value_info, *model.graph.output)}
    for node in model.graph.node:
        assert node.output[0] in infos
    dims = infos["act4"].type.tensor_type.shape.dim
    assert (dims[0].dim_param, dims[1].dim_value) == ("batch", 5)


def test_weights_have_the_narrowest_width(model: onnx.ModelProto) -> None:
    bits = {t.name: float(numpy_helper.to_array(t)) for t in model.graph.initializer if t.name.endswith("quant/bits")}
    assert [bits[f"fc{i}/weight_quant/bits"] for i in (1, 2, 3, 4)] == [4, 4, 5, 4]
    assert [bits[f"act{i}/quant/bits"] for i in (1, 2, 3, 4)] == [6, 6, 6, 8]
    assert bits["x/quant/bits"] == 16


def test_no_machine_and_no_torch_in_the_file_and_the_same_bytes_again(
    jets: IntegerNetwork, model: onnx.ModelProto, tmp_path: Path
) -> None:
    to_qonnx.save(model, tmp_path / "a.onnx")
    to_qonnx.save(to_qonnx.export(jets_like()), tmp_path / "b.onnx")
    first = (tmp_path / "a.onnx").read_bytes()
    assert first == (tmp_path / "b.onnx").read_bytes()
    for text in (b"torch", str(Path(to_qonnx.__file__).parents[2]).encode(), b"site-packages"):
        assert text not in first


def test_a_saved_model_runs_equal(jets: IntegerNetwork, model: onnx.ModelProto, tmp_path: Path) -> None:
    to_qonnx.save(model, tmp_path / "m.onnx")
    assert_equal(jets, jets_rows(jets, 50), onnx.load(tmp_path / "m.onnx"))


# --- equality --------------------------------------------------------------------------------------------------------


def test_jets_need_more_than_float32_and_say_so(jets: IntegerNetwork, model: onnx.ModelProto) -> None:
    assert to_qonnx.float32_exact(jets) == ["act1", "act2", "act3", "act4"]
    method = assert_equal(jets, jets_rows(jets, 3000), model)
    assert "53 bits of mantissa" in method
    assert "float32 is not provably exact, act1 needs 38 bits" in method


def test_float32_is_really_wrong_where_it_is_not_proven_exact() -> None:
    """The structural check is not idle: 24-bit multipliers on 16-bit sums round wrongly in float32."""
    network = small(inputs=IntType(16, True), multiplier=12345677, shift=27, out=IntType(16, True))
    x = np.random.default_rng(0).integers(-32768, 32768, (200_000, 3))
    model = to_qonnx.export(network)
    wrong = to_qonnx.evaluate(model, {"x": x}, np.float32)["act"] != interpret.run(network, x)
    assert wrong.any()
    assert to_qonnx.float32_exact(network) == ["act"]
    assert_equal(network, x[wrong.any(axis=1)], model)


def test_a_small_network_runs_in_qonnx_itself_a_whole_batch_at_once() -> None:
    network = small()
    assert to_qonnx.float32_exact(network) == []
    assert assert_equal(network, rows_for(network, rows=500)).startswith("qonnx executor, float32, proven exact")


def test_beyond_double_the_platforms_extended_precision_is_used() -> None:
    network = nasty_network()
    assert max(to_qonnx.precision_bits(network).values()) == 56
    if np.finfo(np.longdouble).nmant + 1 >= 56:
        assert "64 bits of mantissa" in assert_equal(network, rows_for(network, rows=100))
    else:
        with pytest.raises(NotExact, match="wide_act: needs 56 bits of mantissa"):
            assert_equal(network, rows_for(network, rows=100))


@pytest.mark.parametrize("rounding", Rounding)
@pytest.mark.parametrize("offset", [0, 1, 2, [3, -4]])
def test_ties_with_zero_points(rounding: Rounding, offset: Any) -> None:
    network = small(multiplier=1, shift=1, offset=offset, rounding=rounding)
    assert_equal(network, np.random.default_rng(1).integers(-20, 20, (300, 3)))


def test_every_value_runs_in_torch_too(jets: IntegerNetwork) -> None:
    x = jets_rows(jets, 500)
    trace = interpret.trace(jets, x)
    for op, value in zip(jets.ops, to_qonnx.QonnxModule(jets)(torch.from_numpy(x).double()), strict=True):
        np.testing.assert_array_equal(value.numpy(), trace[op.name])


def test_widths_of_each_channel_become_max_and_min() -> None:
    network = small(out=IntType((3, 8), True, True), offset=1)
    model = to_qonnx.export(network)
    assert [node.op_type for node in model.graph.node][-5:] == ["Quant", "Add", "Max", "Min", "Quant"]
    assert_equal(network, rows_for(network, rows=200), model)


def test_a_factor_of_one_leaves_no_product() -> None:
    network = small(multiplier=1, shift=0)
    model = to_qonnx.export(network)
    assert "Mul" not in {node.op_type for node in model.graph.node}
    assert_equal(network, rows_for(network), model)


def test_a_declared_accumulator_saturates_only_where_it_can() -> None:
    tight = small(accumulator=IntType(9, True), overflow=Overflow.SATURATE)
    assert "fc/sum" in {name for node in to_qonnx.export(tight).graph.node for name in node.output}
    assert_equal(tight, rows_for(tight, rows=200))
    loose = small(accumulator=IntType(20, True))
    assert "fc/sum" not in {name for node in to_qonnx.export(loose).graph.node for name in node.output}


def test_two_inputs_reshape_and_fan_out() -> None:
    network = IntegerNetwork(
        (InputSpec("a", (2, 3), S8), InputSpec("b", (2,), U8)),
        (
            Reshape("flat", "a", (6,)),
            Dense("fa", "flat", np.arange(-6, 6).reshape(2, 6), np.array([1, 2])),
            Requantize("qa", "a", np.array([[1], [3]]), np.array([[1], [2]]), np.array([[1], [0]]), S8),
            Requantize("qb", "b", np.int64(1), np.int64(1), np.int64(0), IntType(6, False)),  # type: ignore[arg-type]
        ),
        (OutputSpec("fa"), OutputSpec("qb")),
    )
    rng = np.random.default_rng(0)
    x = {"a": rng.integers(-128, 128, (40, 2, 3)), "b": rng.integers(0, 256, (40, 2))}
    execution = to_qonnx.execute(to_qonnx.export(network), network, x)
    for name, expected in interpret.reference(network, x).items():
        np.testing.assert_array_equal(execution.values[name], expected)


@settings(max_examples=10)
@given(core_strategies.networks())
def test_any_network_is_equal_or_refused_by_name(network: IntegerNetwork) -> None:
    try:
        model = to_qonnx.export(network)
    except NotExact as error:
        refusal = str(error)
    else:
        assert_equal(network, core_strategies.extreme_inputs(network), model)
        return
    assert refusal.split(":")[0].split()[-1].strip("'") in network.values


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("network", "text"),
    [
        (
            small(multiplier=1, shift=0, overflow=Overflow.WRAP),
            r"act: wraps modulo 2\^bits, and values from -1922 to 1903 leave int8; QONNX's Quant only saturates",
        ),
        (
            dataclasses.replace(small(), outputs=(OutputSpec("x"),)),
            "output 'x' is an input of the network; ONNX needs an op",
        ),
        (dataclasses.replace(small(), outputs=(OutputSpec("act"),) * 2), "output 'act' is listed twice"),
        (small(out=IntType(1, True)), "act: type int1 holds -1 and 0; QONNX reads a signed Quant of 1 bit as -1 and"),
        (small(inputs=IntType(1, True)), "input 'x': type int1 holds -1 and 0"),
        (
            small(accumulator=IntType((9, 8), True)),
            r"fc: the declared accumulator int\[9,8\] has a width for each channel; .* Declare one width",
        ),
    ],
)
def test_refused(network: IntegerNetwork, text: str) -> None:
    with pytest.raises(NotExact, match=text):
        to_qonnx.export(network)


def test_a_wrapping_accumulator_is_refused_only_if_it_wraps() -> None:
    network = small()
    dense = network.op("fc")
    assert isinstance(dense, Dense)

    def declared(bits: int) -> IntegerNetwork:
        return network.replace_op(dataclasses.replace(dense, accumulator=IntType(bits, True), overflow=Overflow.WRAP))

    with pytest.raises(NotExact, match="fc: sums from -1922 to 1903 wrap in the declared accumulator int8"):
        to_qonnx.export(declared(8))
    assert_equal(declared(12), rows_for(network))


def test_constants_beyond_float32_are_refused() -> None:
    with pytest.raises(NetworkError, match=r"act: multiplier\[\] = 33554433 has 26 significant bits"):
        to_qonnx.export(small(multiplier=(1 << 25) + 1, shift=20))


def test_a_graph_of_other_nodes_is_not_evaluated() -> None:
    model = to_qonnx.export(small())
    model.graph.node[-1].op_type = "IntQuant"
    with pytest.raises(NotExact, match="node type IntQuant; this evaluator knows the types export"):
        to_qonnx.evaluate(model, {"x": np.zeros((1, 3))})


@pytest.mark.parametrize(("bits", "executor"), [(24, True), (25, False)])
def test_float32_is_trusted_up_to_24_bits_and_no_further(bits: int, executor: bool) -> None:
    """A sum of exactly 2^bits - 1 is the last that a mantissa of that many bits is needed for."""
    top = (1 << 8) - 1
    network = IntegerNetwork(
        (InputSpec("x", (1,), IntType(8, signed=False)),),
        (Dense("fc", "x", np.array([[(1 << (bits - 8))]]), np.array([(1 << (bits - 8)) - 1])),),
        (OutputSpec("fc"),),
    )
    assert network.values["fc"].bound == (1 << bits) - 1
    assert to_qonnx.precision_bits(network)["fc"] == bits
    done = to_qonnx.execute(to_qonnx.export(network), network, np.array([[top]]))
    assert done.method.startswith("qonnx executor, float32") == executor
    assert done.values["fc"].tolist() == [[(1 << bits) - 1]]


def test_half_up_needs_room_for_its_half() -> None:
    """x m alone fits 24 bits; with 2^(c-1) added to the numerator it does not, so float32 is not trusted."""

    def network(rounding: Rounding, multiplier: Any, shift: Any, bits: int) -> IntegerNetwork:
        out = IntType(bits, signed=False)
        requantize = Requantize("q", "x", np.array(multiplier), np.array(shift), np.array(0), out, rounding)
        return IntegerNetwork((InputSpec("x", (2,), IntType(bits, signed=False)),), (requantize,), (OutputSpec("q"),))

    for multiplier, shift, bits in ((1, 26, 24), (3, 0, 22), ([3, 1], [0, 1], 22)):
        assert to_qonnx.float32_exact(network(Rounding.HALF_EVEN, multiplier, shift, bits)) == []
        half_up = network(Rounding.HALF_UP, multiplier, shift, bits)
        assert to_qonnx.float32_exact(half_up) == ["q"]
        assert_equal(half_up, np.arange((1 << bits) - 101, (1 << bits) - 1).reshape(-1, 2))


def test_a_factor_of_one_adds_no_half() -> None:
    op = Requantize("q", "x", np.array([1, 4]), np.array([0, 2]), np.array(0), IntType(22, False), Rounding.HALF_UP)
    network = IntegerNetwork((InputSpec("x", (2,), IntType(22, False)),), (op,), (OutputSpec("q"),))
    assert to_qonnx.float32_exact(network) == []


def test_a_half_where_there_is_no_shift_is_really_wrong_in_float32() -> None:
    op = Requantize("q", "x", np.array([3, 1]), np.array([0, 1]), np.array(0), IntType(24, False), Rounding.HALF_UP)
    network = IntegerNetwork((InputSpec("x", (2,), IntType(22, False)),), (op,), (OutputSpec("q"),))
    x = np.arange((1 << 22) - 101, (1 << 22) - 1).reshape(-1, 2)
    model = to_qonnx.export(network)
    assert (to_qonnx.evaluate(model, {"x": x}, np.float32)["q"] != interpret.run(network, x)).any()


# --- rows in blocks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [8, 16])
def test_rows_run_in_blocks_with_the_same_results(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    network = small(inputs=IntType(bits, True), multiplier=12345, shift=18)
    model, x = to_qonnx.export(network), rows_for(small(inputs=IntType(bits, True)), rows=33)
    whole = to_qonnx.execute(model, network, x)
    # x, its quant, and of two elements each: matmul, fc, scaled, act
    monkeypatch.setattr(execution, "BLOCK_ELEMENTS", 10 * (3 + 3 + 4 * 2) + 13)
    sizes: list[int] = []
    original = execution._integers
    monkeypatch.setattr(execution, "_integers", lambda a, name: [sizes.append(len(a)), original(a, name)][1])
    blocks = to_qonnx.execute(model, network, x)
    assert (set(sizes), len(x)) == ({10, 1}, 101)
    assert blocks.method == whole.method
    for name, value in whole.values.items():
        np.testing.assert_array_equal(blocks.values[name], value)


def test_no_rows_give_no_values() -> None:
    network = small()
    done = to_qonnx.execute(to_qonnx.export(network), network, np.zeros((0, 3), dtype=np.int64))
    assert done.values["act"].shape == (0, 2)


def test_evaluate_keeps_what_it_is_asked_for() -> None:
    network = small()
    model, x = to_qonnx.export(network), rows_for(network)
    kept = to_qonnx.evaluate(model, {"x": x}, keep=["act", "x"])
    assert set(kept) == {"act", "x"}
    np.testing.assert_array_equal(kept["act"], interpret.run(network, x))
