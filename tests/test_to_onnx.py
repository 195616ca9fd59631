"""Standard ONNX: the file says all there is to say, keeps its rules by structure, and refuses what it cannot hold."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnxscript.values import Opset
from strategies import jets_like, jets_rows

from hawq_flow import interpret, prove, to_onnx
from hawq_flow.network import (
    Add,
    Conv,
    Dense,
    InputSpec,
    IntegerNetwork,
    Lookup,
    MaxPool,
    NetworkError,
    OutputSpec,
    Requantize,
    Reshape,
    SumPool,
    Upsample,
)
from hawq_flow.numeric import IntType, Rounding
from hawq_flow.to_onnx import Dialect, NotExact, activations, execution
from hawq_flow.to_qonnx.execution import row_elements

FLOATS = {TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16}


def array(value: Any) -> NDArray[np.int64]:
    return np.asarray(value, dtype=np.int64)


def rescale(name: str, source: str, type: IntType, m: int = 3, c: int = 6, **options: Any) -> Requantize:
    return Requantize(name, source, array(m), array(c), array(0), type, **options)


def image_network() -> IntegerNetwork:
    """A convolution, a pool, a residual sum, an average, a layer and a table, all of 8 bits or fewer."""
    rng = np.random.default_rng(7)
    u8, u4, s8 = IntType(8, False), IntType(4, False), IntType(8, True)
    ops = (
        Conv("conv", "x", rng.integers(-7, 8, (4, 2, 3, 3)), array([1, -2, 3, 4]), (1, 1), (1, 1, 1, 1), layer="stem"),
        rescale("act", "conv", u8, 5, 6, layer="stem"),
        Conv("deep", "act", rng.integers(-128, 128, (4, 1, 3, 3)), array([0, 5, 0, -9]), (1, 1), (1, 1, 1, 1), 4),
        rescale("branch", "deep", u8, 1, 7, rounding=Rounding.FLOOR),
        Add("joined", ("branch", "act")),
        rescale("act2", "joined", u4, 1, 5),
        MaxPool("pool", "act2", (2, 2), (2, 2), (0, 0, 0, 0)),
        Upsample("up", "pool", (2, 2)),
        SumPool("mean", "up", (6, 6), (6, 6), (0, 0, 0, 0)),
        rescale("average", "mean", IntType(7, True, True), 7, 6, rounding=Rounding.HALF_UP),
        Lookup("table", "average", rng.integers(-128, 128, 127), -63, "drawn"),
        Reshape("flat", "table", (4,)),
        Dense("fc", "flat", rng.integers(-100, 101, (3, 4)), array([10, 20, -30]), layer="head"),
        rescale("out", "fc", s8, 3, 9, layer="head"),
    )
    spec = InputSpec("x", (2, 6, 6), IntType(8, True), np.float64(0.5), array(3), np.float64(1.5), np.float64(2.0))
    return IntegerNetwork((spec,), ops, (OutputSpec("out", np.float64(0.25)),), (("classes", "a,b,c"),))


@pytest.fixture(scope="module")
def network() -> IntegerNetwork:
    return image_network()


@pytest.fixture(scope="module")
def models(network: IntegerNetwork) -> dict[Dialect, onnx.ModelProto]:
    return {dialect: to_onnx.export(network, dialect, eight_bit=True) for dialect in Dialect}


@pytest.fixture(scope="module")
def jets() -> tuple[IntegerNetwork, onnx.ModelProto]:
    network = jets_like()
    return network, to_onnx.export(network)


def element_types(model: onnx.ModelProto) -> dict[str, int]:
    infos = (*model.graph.input, *model.graph.value_info, *model.graph.output)
    types = {info.name: info.type.tensor_type.elem_type for info in infos}
    return types | {tensor.name: tensor.data_type for tensor in model.graph.initializer}


def properties(model: onnx.ModelProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in model.metadata_props}


# --- the file --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", Dialect)
def test_standard_operators_alone_and_every_tensor_known(
    network: IntegerNetwork, models: dict[Dialect, onnx.ModelProto], dialect: Dialect
) -> None:
    model = models[dialect]
    assert {node.domain for node in model.graph.node} == {""}
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [
        ("", 28 if dialect is Dialect.INTEGER else 21)
    ]
    assert not model.functions
    assert all(tensor.data_location == TensorProto.DEFAULT for tensor in model.graph.initializer)  # no side files
    types = element_types(model)
    made = {name for node in model.graph.node for name in node.output}
    assert made <= set(types)
    assert {op.name for op in network.ops} <= made
    assert {name for node in model.graph.node for name in node.input if name} <= set(types)
    assert len({node.name for node in model.graph.node}) == len(model.graph.node)
    infos = {info.name: info for info in model.graph.value_info}
    for op in network.ops[:-1]:
        dims = infos[op.name].type.tensor_type.shape.dim
        assert (dims[0].dim_param, *(dim.dim_value for dim in dims[1:])) == ("batch", *network.values[op.name].shape)
    made_of = to_onnx.plan_network(network, dialect)
    for name in network.values:
        assert helper.tensor_dtype_to_np_dtype(types[name]) == made_of.container(name)


def test_the_published_form_of_a_layer(models: dict[Dialect, onnx.ModelProto]) -> None:
    def kinds(dialect: Dialect, prefix: str) -> list[tuple[str, str]]:
        nodes = models[dialect].graph.node
        return [(node.op_type, node.name.removeprefix(prefix)) for node in nodes if node.name.startswith(prefix)]

    assert kinds(Dialect.FLOAT32, "stem/") == [
        ("ConvInteger", "conv/product"),
        ("Add", "conv/add"),
        ("Cast", "act/real"),
        ("Mul", "act/product"),
        ("Mul", "act/scaled"),
        ("Relu", "act/relu"),
        ("QuantizeLinear", "act/quantizelinear"),
    ]
    assert kinds(Dialect.FLOAT64, "head/out/") == [
        ("Cast", "real"),
        ("Mul", "product"),
        ("Mul", "scaled"),
        ("Round", "rounded"),
        ("Clip", "clipped"),
        ("Cast", "cast"),
    ]
    assert kinds(Dialect.INTEGER, "stem/act/") == [
        ("Cast", "wide"),
        ("Mul", "product"),
        ("BitShift", "floor"),
        ("BitwiseAnd", "odd"),
        ("Add", "plus_half"),
        ("Add", "ties_to_even"),
        ("BitShift", "rounded"),
        ("Clip", "clipped"),
        ("Cast", "cast"),
    ]
    constants = {t.name: numpy_helper.to_array(t) for t in models[Dialect.FLOAT32].graph.initializer}
    assert (constants["act/multiplier"], constants["act/right_shift"], constants["act/scale"]) == (5, 2.0**-6, 1)
    assert constants["conv/weight"].dtype == np.int8
    assert constants["conv/bias"].dtype == np.int32


def test_narrow_types_have_a_clip(models: dict[Dialect, onnx.ModelProto]) -> None:
    """Four bits in uint8, a narrow seven in int8; uint8 itself needs none where QuantizeLinear saturates."""
    constants = {
        t.name: numpy_helper.to_array(t).item() for t in models[Dialect.FLOAT32].graph.initializer if not t.dims
    }
    bounds = {name: constants[name] for name in constants if "/clipped/" in name}
    assert bounds == {
        "act2/clipped/low": 0,
        "act2/clipped/high": 15,
        "average/clipped/low": -63,
        "average/clipped/high": 63,
    }


def test_inputs_and_outputs_have_the_narrowest_container(
    models: dict[Dialect, onnx.ModelProto], jets: tuple[IntegerNetwork, onnx.ModelProto]
) -> None:
    for model, expected in ((models[Dialect.INTEGER], ("int8", "int8")), (jets[1], ("int16", "int8"))):
        types = element_types(model)
        ends = (model.graph.input[0].name, model.graph.output[0].name)
        assert tuple(helper.tensor_dtype_to_np_dtype(types[name]).name for name in ends) == expected
    sums = IntegerNetwork(
        (InputSpec("x", (2,), IntType(6, True)),),
        (Dense("fc", "x", array([[9, -9]]), array([0])),),
        (OutputSpec("fc"),),
    )
    assert to_onnx.export(sums).graph.output[0].type.tensor_type.elem_type == TensorProto.INT16


def test_no_float_at_all_in_the_integer_dialect(models: dict[Dialect, onnx.ModelProto]) -> None:
    model = models[Dialect.INTEGER]
    assert not FLOATS & set(element_types(model).values())
    for node in model.graph.node:
        assert not any(a.type in (onnx.AttributeProto.FLOAT, onnx.AttributeProto.FLOATS) for a in node.attribute)
    assert FLOATS & set(element_types(models[Dialect.FLOAT32]).values())  # the walk does see floats


def test_metadata_holds_all_that_a_reader_needs(
    network: IntegerNetwork, models: dict[Dialect, onnx.ModelProto]
) -> None:
    said = properties(models[Dialect.FLOAT32])
    assert said["hawq_flow.digest"] == network.digest
    assert said["hawq_flow.dialect"] == "float32"
    assert said["hawq_flow.proof"] == "the largest numerator that decides a result, of out, needs 17 bits"
    types = json.loads(said["hawq_flow.types"])
    assert types == {name: str(value.type) for name, value in network.values.items()}
    assert (types["act2"], types["average"]) == ("uint4", "int7n")
    entry = json.loads(said["hawq_flow.inputs"])["x"]
    assert (entry["scale"], entry["zero_point"], entry["mean"], entry["std"]) == (0.5, 3, 1.5, 2.0)
    assert json.loads(said["hawq_flow.outputs"])["out"]["scale"] == 0.25
    assert said["network.classes"] == "a,b,c"
    assert "carried in the integer types of the graph" in said["hawq_flow.note"]


def test_the_same_network_gives_the_same_bytes(
    network: IntegerNetwork, models: dict[Dialect, onnx.ModelProto], tmp_path: Path
) -> None:
    to_onnx.save(models[Dialect.FLOAT32], tmp_path / "a.onnx")
    to_onnx.save(to_onnx.export(image_network(), "float32"), tmp_path / "b.onnx")
    first = (tmp_path / "a.onnx").read_bytes()
    assert first == (tmp_path / "b.onnx").read_bytes()
    for text in (b"torch", str(Path(to_onnx.__file__).parents[2]).encode(), b"site-packages"):
        assert text not in first
    x = prove.drawn(network, 4)
    loaded = to_onnx.execute(onnx.load(tmp_path / "b.onnx"), network, x, optimized=True)
    np.testing.assert_array_equal(loaded.values["out"], interpret.run(network, x))


# --- dialects --------------------------------------------------------------------------------------------------------


def test_the_dialect_is_chosen_by_proof(network: IntegerNetwork, jets: tuple[IntegerNetwork, onnx.ModelProto]) -> None:
    assert to_onnx.choose(network) is Dialect.FLOAT32
    assert to_onnx.choose(jets[0]) is Dialect.FLOAT64
    assert properties(jets[1])["hawq_flow.dialect"] == "float64"
    op = Requantize("q", "x", array((1 << 23) + 1), array(30), array(0), IntType(30, True))
    wide = IntegerNetwork((InputSpec("x", (2,), IntType(36, True)),), (op,), (OutputSpec("q"),))
    assert to_onnx.choose(wide) is Dialect.INTEGER
    plain = IntegerNetwork(wide.inputs, (dataclasses.replace(op, multiplier=array(1), shift=array(0)),), wide.outputs)
    assert to_onnx.choose(plain) is Dialect.FLOAT32
    assert properties(to_onnx.export(plain))["hawq_flow.proof"] == "no value is rescaled"


def test_a_forced_dialect_that_is_not_exact_is_refused(jets: tuple[IntegerNetwork, onnx.ModelProto]) -> None:
    bits = to_onnx.rescale_bits(jets[0])
    beyond = ", ".join(f"{name} needs {needed} bits" for name, needed in bits.items() if needed > 24)
    with pytest.raises(NotExact) as error:
        to_onnx.export(jets[0], Dialect.FLOAT32)
    assert beyond.count("needs") >= 2
    assert str(error.value) == (
        f"dialect 'float32' holds numerators of 24 bits, and {beyond}. Use dialect 'float64', or multipliers or sums "
        "of fewer bits"
    )


def test_an_opset_that_onnx_does_not_know_is_refused(network: IntegerNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx.defs, "onnx_opset_version", lambda: 25)
    monkeypatch.setattr(onnx, "__version__", "1.20.0")
    with pytest.raises(
        NotExact, match=r"dialect 'integer' is written in opset 28, and onnx 1.20.0 knows opsets to 25;"
    ):
        to_onnx.export(network, Dialect.INTEGER)


def test_sums_beyond_int32_are_refused() -> None:
    fan_in = 33100
    weight = np.full((1, fan_in, 1), -100)
    network = IntegerNetwork(
        (InputSpec("x", (fan_in, 1), IntType(8, False)),),
        (Conv("wide", "x", weight, array([0]), (1,), (0, 0)),),
        (OutputSpec("wide"),),
    )
    with pytest.raises(
        NotExact, match=r"wide: sums of 33100 products of 8 bits may reach 2152327500, beyond the int32"
    ):
        to_onnx.export(network)


# --- eight bits ------------------------------------------------------------------------------------------------------


def test_eight_bits_all_through(network: IntegerNetwork, models: dict[Dialect, onnx.ModelProto]) -> None:
    """Between layers nothing is wider than a byte; every product has 8-bit operands."""
    types = element_types(models[Dialect.FLOAT32])
    bytes_ = {TensorProto.INT8, TensorProto.UINT8}
    sums = {op.name for op in network.ops if isinstance(op, Conv | Dense | SumPool | Add)}
    assert {types[name] for name in network.values if name not in sums} <= bytes_
    assert {types[name] for name in sums} == {TensorProto.INT32}
    for node in models[Dialect.FLOAT32].graph.node:
        if node.op_type in ("MatMulInteger", "ConvInteger"):
            assert {types[name] for name in node.input} <= bytes_
        assert node.op_type not in ("MatMul", "Conv")


def test_what_is_not_eight_bits_is_refused_all_at_once() -> None:
    ops = (
        Dense("fc", "x", array([[300, 1], [2, 3]]), array([0, 0])),
        rescale("act", "fc", IntType(12, True)),
        Dense("head", "act", array([[1, 2]]), array([0])),
        Dense("again", "head", array([[1]]), array([1 << 40])),
    )
    network = IntegerNetwork((InputSpec("x", (2,), IntType(16, True)),), ops, (OutputSpec("again"),))
    with pytest.raises(NotExact) as error:
        to_onnx.export(network, eight_bit=True)
    assert str(error.value) == (
        "not an INT8/UINT8 network: input 'x' is of type int16; fc: weights from 1 to 300; act: rescales to type "
        "int12; head: reads 'act' of type int12; again: reads 'head' of type int14; again: sums up to 1099511633920 "
        "leave int32. Give layers and what joins them 8 bits or fewer, rescale sums before anything else reads them, "
        "or export without eight_bit"
    )


# --- running ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", Dialect)
def test_drawn_extremes_are_equal(
    network: IntegerNetwork, models: dict[Dialect, onnx.ModelProto], dialect: Dialect
) -> None:
    x = prove.drawn(network, 40)
    expected = interpret.trace(network, x)
    assert len(np.unique(expected["out"])) > 20
    whole = to_onnx.traced(models[dialect], network)
    for optimized in (False, True):
        done = to_onnx.execute(models[dialect], network, x, optimized=optimized)
        np.testing.assert_array_equal(done.values["out"], expected["out"])
        assert list(done.values) == ["out"]
        assert done.values["out"].dtype == np.int64
        inner = to_onnx.execute(whole, network, x, optimized=optimized)
        assert list(inner.values) == [op.name for op in network.ops]
        for name, values in inner.values.items():
            np.testing.assert_array_equal(values, expected[name], err_msg=name)
    np.testing.assert_array_equal(
        to_onnx.evaluate_reference(models[dialect], network, x).values["out"], expected["out"]
    )


def test_a_model_that_forgot_its_types_and_metadata_still_runs(
    network: IntegerNetwork, models: dict[Dialect, onnx.ModelProto]
) -> None:
    """A file that another tool saved: inner values are traced as far as they are known."""
    bare = onnx.ModelProto()
    bare.CopyFrom(models[Dialect.FLOAT32])
    del bare.metadata_props[:]
    for node in bare.graph.node:
        for names in (node.input, node.output):
            names[:] = ["other" if name == "conv" else name for name in names]
    names = [info.name for info in to_onnx.traced(bare, network).graph.output]
    assert names == [op.name for op in network.ops if op.name != "conv"]
    del bare.graph.value_info[:]
    whole = to_onnx.traced(bare, network)
    assert [info.name for info in whole.graph.output] == ["out"]
    x = prove.drawn(network, 5)
    for done in (to_onnx.execute(whole, network, x, optimized=True), to_onnx.evaluate_reference(whole, network, x)):
        assert "dialect unknown, opset 21" in done.method
        np.testing.assert_array_equal(done.values["out"], interpret.run(network, x))
    bare.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    assert row_elements(bare) == 3  # the output alone says what a row brings
    bare.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "n"
    assert row_elements(bare) == 1


def test_the_jet_tagger_is_equal(jets: tuple[IntegerNetwork, onnx.ModelProto]) -> None:
    network, model = jets
    x = np.concatenate([jets_rows(network, 3000), prove.drawn(network, 2000)["x"]])
    expected = interpret.run(network, x)
    for execution_ in (
        to_onnx.execute(model, network, x, optimized=False),
        to_onnx.execute(model, network, x, optimized=True),
        to_onnx.evaluate_reference(model, network, x),
    ):
        np.testing.assert_array_equal(execution_.values["act4"], expected)


def test_methods_say_how(jets: tuple[IntegerNetwork, onnx.ModelProto], monkeypatch: pytest.MonkeyPatch) -> None:
    network, model = jets
    x = jets_rows(network, 2)
    monkeypatch.setattr(execution, "cpu_flags", lambda: ("avx2", "avx_vnni"))
    monkeypatch.setattr(execution.onnxruntime, "__version__", "9.8")
    monkeypatch.setattr(execution.onnx, "__version__", "7.6")
    assert to_onnx.execute(model, network, x, optimized=False).method == (
        "onnxruntime 9.8, no optimisation, dialect float64, opset 21; processor flags: avx2 avx_vnni"
    )
    assert "default optimisation" in to_onnx.execute(model, network, x, optimized=True).method
    monkeypatch.setattr(execution, "cpu_flags", lambda: ())
    assert to_onnx.execute(model, network, x, optimized=True).method.endswith("processor flags: none that matter")
    assert to_onnx.evaluate_reference(model, network, x).method == (
        "onnx 7.6 reference evaluator, dialect float64, opset 21"
    )


@pytest.mark.parametrize("optimized", [False, True])
def test_sessions_are_of_one_thread_and_the_level_asked_for(
    jets: tuple[IntegerNetwork, onnx.ModelProto], monkeypatch: pytest.MonkeyPatch, optimized: bool
) -> None:
    seen = []
    session = execution.onnxruntime.InferenceSession

    def watched(model: bytes, options: Any, **others: Any) -> Any:
        seen.append((options.graph_optimization_level, options.intra_op_num_threads, others))
        return session(model, options, **others)

    monkeypatch.setattr(execution.onnxruntime, "InferenceSession", watched)
    to_onnx.execute(jets[1], jets[0], jets_rows(jets[0], 2), optimized=optimized)
    levels = execution.onnxruntime.GraphOptimizationLevel
    level = levels.ORT_ENABLE_ALL if optimized else levels.ORT_DISABLE_ALL
    assert seen == [(level, 1, {"providers": ["CPUExecutionProvider"]})]


def test_flags_of_the_processor(tmp_path: Path) -> None:
    told = tmp_path / "cpuinfo"
    told.write_text("model name : x\nflags\t\t: fpu avx2 avx512_vnni avx512f\n")
    assert execution._flags(told) == ("avx2", "avx512f", "avx512_vnni")
    other = tmp_path / "arm"
    other.write_text("Features\t: fp asimddp i8mm\n")
    assert execution._flags(other) == ("asimddp", "i8mm")
    empty = tmp_path / "empty"
    empty.write_text("processor : 0\n")
    assert execution._flags(empty) == ("unknown",)
    assert execution._flags(tmp_path / "absent") == ("unknown",)
    assert to_onnx.cpu_flags() == execution._flags(Path("/proc/cpuinfo"))


def test_rows_run_in_blocks(jets: tuple[IntegerNetwork, onnx.ModelProto], monkeypatch: pytest.MonkeyPatch) -> None:
    network, model = jets
    x = jets_rows(network, 7)
    elements = row_elements(model)
    assert elements > sum(np.prod(value.shape) for value in network.values.values())
    monkeypatch.setattr(execution, "BLOCK_ELEMENTS", 3 * elements)
    done = to_onnx.execute(model, network, x, optimized=True).values["act4"]
    np.testing.assert_array_equal(done, interpret.run(network, x))
    assert to_onnx.execute(model, network, x[:0], optimized=True).values["act4"].shape == (0, 5)


def test_inputs_out_of_range_are_refused(jets: tuple[IntegerNetwork, onnx.ModelProto]) -> None:
    network, model = jets
    x = np.full((1, *network.inputs[0].shape), 1 << 20)
    with pytest.raises(NetworkError, match="leave its type"):
        to_onnx.execute(model, network, x, optimized=True)
    with pytest.raises(NetworkError, match="leave its type"):
        to_onnx.evaluate_reference(model, network, x)


def test_constants_that_do_not_fit_their_dtype_are_an_error() -> None:
    nodes = to_onnx.Nodes(Opset("", 20), "op")
    with pytest.raises(
        ValueError, match=r"op/weight: constants do not fit int8; the plan chose a container too narrow"
    ):
        nodes.constant([1, 128], np.dtype(np.int8), "weight")


# --- other forms of a table ------------------------------------------------------------------------------------------


def test_a_lookup_may_have_another_form(network: IntegerNetwork) -> None:
    """A function of one's own in place of the Gather: it gets the writer, the plan and x."""
    seen: list[to_onnx.OpPlan] = []

    def double(nodes: to_onnx.Nodes, plan: to_onnx.OpPlan, x: Any) -> Any:
        seen.append(plan)
        return nodes("Add", x, x, what="doubled")

    table = Lookup("table", "x", 2 * np.arange(-4, 4), -4)
    small = IntegerNetwork((InputSpec("x", (3,), IntType(3, True)),), (table,), (OutputSpec("table"),))
    model = to_onnx.export(small, forms={"table": double})
    assert [node.op_type for node in model.graph.node] == ["Clip", "Add"]
    assert [(plan.op.name, str(plan.target)) for plan in seen] == [("table", "int8")]
    with pytest.raises(NotExact, match=r"other forms of table in dialect 'integer', which promises integers alone"):
        to_onnx.export(small, Dialect.INTEGER, forms={"table": double})
    with pytest.raises(ValueError, match=r"forms of x; the network's lookups are table"):
        to_onnx.export(small, forms={"x": double})
    x = np.random.default_rng(0).integers(-4, 4, (9, 3))
    done = to_onnx.execute(model, small, x, optimized=True)
    np.testing.assert_array_equal(done.values["table"], interpret.run(small, x))


def test_a_published_form_stands_for_an_equal_table() -> None:
    """tanh between DequantizeLinear and QuantizeLinear, where it is proven to give every entry."""
    x, y = activations.input_grid("tanh"), activations.output_grid("tanh")
    table = Lookup("squash", "x", activations.table("tanh", "int8", x=x, y=y), x.type.range[0], "tanh")
    network = IntegerNetwork((InputSpec("x", (3,), x.type),), (table,), (OutputSpec("squash"),))
    function = activations.prove_published(table, network.values["x"], "int8", x, y)

    def published(nodes: to_onnx.Nodes, plan: to_onnx.OpPlan, value: Any) -> Any:
        carried = helper.np_dtype_to_tensor_dtype(plan.target)
        return activations.published_nodes(value, nodes.name, "int8", function, x, y, carried)

    model = to_onnx.export(network, forms={"squash": published})
    assert "Tanh" in [node.op_type for node in model.graph.node]
    values = np.resize(np.arange(x.type.range[0], x.type.range[1] + 1), (100, 3))
    expected = interpret.run(network, values)
    for optimized in (False, True):
        done = to_onnx.execute(model, network, values, optimized=optimized)
        np.testing.assert_array_equal(done.values["squash"], expected)
    np.testing.assert_array_equal(to_onnx.evaluate_reference(model, network, values).values["squash"], expected)
