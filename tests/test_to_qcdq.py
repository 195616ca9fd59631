"""QCDQ: equal to the interpreter in onnxruntime with and without optimizations, canonical, refusing the rest."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from graph_strategies import expressible_graphs, graph_rows
from hypothesis import given, settings
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator
from strategies import expressible_networks, jets_like, jets_rows, nasty_network, rows_for

from hawq_flow import interpret, to_qcdq
from hawq_flow.network import Conv, Dense, InputSpec, IntegerNetwork, MaxPool, OutputSpec, Requantize, Reshape
from hawq_flow.numeric import IntType, Rounding
from hawq_flow.prove import drawn
from hawq_flow.to_qcdq.plan import saturating
from hawq_flow.to_qonnx import NotExact, save

U8, S8 = IntType(8, False), IntType(8, True)


def chain(
    *,
    inputs: IntType = S8,
    weight: Any = ((1, -2, 3), (4, 5, -6)),
    multiplier: Any = 3,
    shift: Any = 4,
    offset: Any = 0,
    out: IntType = S8,
    rounding: Rounding = Rounding.HALF_EVEN,
    accumulator: IntType | None = None,
) -> IntegerNetwork:
    weight = np.array(weight)
    return IntegerNetwork(
        (InputSpec("x", (weight.shape[1],), inputs),),
        (
            Dense("fc", "x", weight, np.arange(7, 7 - 15 * len(weight), -15), accumulator),
            Requantize("act", "fc", *(np.array(v) for v in (multiplier, shift, offset)), out, rounding),
        ),
        (OutputSpec("act"),),
    )


def image(reach: int, out: IntType, *, inputs: IntType = U8) -> IntegerNetwork:
    """Conv, rescale, pool, dense, rescale: weights up to ``reach`` in magnitude."""
    rng = np.random.default_rng(0)
    weight = rng.integers(-reach, reach + 1, (4, 3, 3, 3))
    weight[0, 0, 0, 0] = reach
    each = np.array([3, 5, 7, 5]).reshape(4, 1, 1)
    dense = rng.integers(-reach, reach + 1, (5, 36))
    return IntegerNetwork(
        (InputSpec("x", (3, 6, 6), inputs),),
        (
            Conv("conv", "x", weight, rng.integers(-50, 50, 4), (1, 1), (1, 1, 1, 1)),
            Requantize("act", "conv", each, np.array(6), np.array(0), out),
            MaxPool("most", "act", (2, 2), (2, 2), (0, 0, 0, 0)),
            Reshape("flat", "most", (36,)),
            Dense("fc", "flat", dense, rng.integers(-9, 9, 5)),
            Requantize("out", "fc", np.array(5), np.array(8), np.array(0), S8),
        ),
        (OutputSpec("out"),),
    )


def assert_equal(network: IntegerNetwork, x: np.ndarray, **options: Any) -> onnx.ModelProto:
    """At both levels: every value that the graph forms without optimizations, the outputs with them."""
    model = to_qcdq.export(network, **options)
    expected = interpret.reference(network, x)
    folded = to_qcdq.plan_network(network, **options).folded
    for optimized in (False, True):
        done = to_qcdq.execute(model, network, x, optimized=optimized)
        outputs = {output.name for output in network.outputs}
        assert set(done.values) == (outputs if optimized else {op.name for op in network.ops} - folded)
        for name, value in done.values.items():
            np.testing.assert_array_equal(value, expected[name], err_msg=f"{name}, optimized={optimized}")
    return model


def types(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def optimized_types(model: onnx.ModelProto, folder: Path) -> Counter[str]:
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath, options.log_severity_level = str(folder / "optimized.onnx"), 3
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return Counter(types(onnx.load(folder / "optimized.onnx")))


# --- form ------------------------------------------------------------------------------------------------------------


def test_the_canonical_form_has_no_mul_and_only_standard_operators() -> None:
    model = assert_equal(chain(out=IntType(6, True, True)), rows_for(chain(), rows=200))
    assert types(model) == [
        *("QuantizeLinear", "DequantizeLinear"),  # x
        *("DequantizeLinear", "DequantizeLinear", "MatMul", "Add"),
        *("QuantizeLinear", "Clip", "DequantizeLinear"),
    ]
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 20)]
    arrays = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    assert arrays["fc/weight/integers"].dtype == np.int8
    assert arrays["fc/weight/integers"].tolist() == [[1, 4], [-2, 5], [3, -6]]
    assert arrays["fc/bias/integers"].dtype == np.int32
    assert arrays["fc/weight/scale"] == arrays["fc/bias/scale"] == 3 / 16
    assert (arrays["act/low"], arrays["act/high"]) == (-31, 31)
    assert (arrays["act/scale"], arrays["act/zero_point"]) == (1, 0)
    properties = {entry.key: entry.value for entry in model.metadata_props}
    assert "biases of fc carry their rescale" in properties["hawq_flow.qcdq"]
    assert properties["hawq_flow.digest"] == chain(out=IntType(6, True, True)).digest


def test_scales_of_each_channel_lie_on_the_axis_of_the_outputs() -> None:
    model = assert_equal(image(7, IntType(6, False)), graph_rows(image(7, IntType(6, False))))
    axes = {node.output[0]: {a.name: a.i for a in node.attribute} for node in model.graph.node}
    assert axes["conv/weight"]["axis"] == axes["conv/bias"]["axis"] == 0
    arrays = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    assert arrays["conv/weight/scale"].tolist() == [3 / 64, 5 / 64, 7 / 64, 5 / 64]
    dense = chain(multiplier=[3, 5], shift=[4, 6])
    model = assert_equal(dense, rows_for(dense))
    axes = {node.output[0]: {a.name: a.i for a in node.attribute} for node in model.graph.node}
    assert (axes["fc/weight"]["axis"], axes["fc/bias"]["axis"]) == (1, 0)


def test_a_layer_that_is_read_twice_keeps_its_integers() -> None:
    network = chain()
    twice = IntegerNetwork(network.inputs, network.ops, (OutputSpec("act"), OutputSpec("fc")))
    assert "Mul" in types(assert_equal(twice, rows_for(network)))


def test_the_same_network_gives_the_same_bytes_and_a_saved_model_runs(tmp_path: Path) -> None:
    network, rows = chain(), rows_for(chain())
    save(to_qcdq.export(network), tmp_path / "a.onnx")
    save(to_qcdq.export(chain()), tmp_path / "b.onnx")
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    done = to_qcdq.execute(onnx.load(tmp_path / "a.onnx"), network, rows, optimized=True)
    np.testing.assert_array_equal(done.values["act"], interpret.run(network, rows))


# --- equality --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("out", [IntType(6, False), S8])
def test_integer_kernels_are_in_use_and_exact(out: IntType, tmp_path: Path) -> None:
    """The default level is not equal for want of fusing: dyadic scales are what it survives by."""
    network = image(7, out)
    model = assert_equal(network, graph_rows(network, rows=200))
    fused = optimized_types(model, tmp_path)
    assert fused["QLinearConv"] == 1
    assert fused["Conv"] == 0


def test_weights_that_could_saturate_pairs_stay_in_float(tmp_path: Path) -> None:
    network = image(120, IntType(6, False))
    model = assert_equal(network, graph_rows(network))
    assert "conv/weight/clip" in {node.output[0] for node in model.graph.node}
    fused = optimized_types(model, tmp_path)
    assert fused["QLinearConv"] == 0
    assert fused["Conv"] == 1


@pytest.mark.parametrize(
    ("type", "reach", "could"),
    [(U8, 64, False), (U8, 65, True), (S8, 64, False), (S8, 65, True), (IntType(7, False), 127, False)],
)
def test_the_rule_of_pairs(type: IntType, reach: int, could: bool) -> None:
    """2 * 255 * 64 = 32640 < 2^15 <= 2 * 255 * 65; signed ones are shifted by 128 first."""
    network = IntegerNetwork((InputSpec("x", (1,), type),), (), (OutputSpec("x"),))
    assert saturating(np.array([[-reach]]), network.values["x"]) == could


def test_products_beyond_float32_are_rescaled_in_double(tmp_path: Path) -> None:
    network = chain(weight=np.full((2, 40), 100), multiplier=[12345677, 8388609], shift=[32, 31])
    x = rows_for(network, rows=400)
    model = assert_equal(network, x)
    assert types(model)[-6:] == ["Cast", "Mul", "Round", "Cast", "QuantizeLinear", "DequantizeLinear"]
    assert "in float64 for act" in {p.key: p.value for p in model.metadata_props}["hawq_flow.qcdq"]
    with pytest.raises(NotExact, match=r"act: needs \d+ bits, float32 has 24\. .* double=True lets the rescales"):
        to_qcdq.export(network, double=False)


def test_jets_of_eight_bits_are_equal_in_the_reference_evaluator_too() -> None:
    network = jets_like(inputs=IntType(8, True), multiplier_bits=8)
    x = jets_rows(network, 1000)
    model = assert_equal(network, x)
    result = ReferenceEvaluator(model).run(None, {"x": x[:50].astype(np.float32)})[0]
    np.testing.assert_array_equal(result, interpret.run(network, x[:50]))


def test_ties_zero_points_and_both_floats() -> None:
    parts = []
    for rounding in Rounding:
        for i, offset in enumerate((np.array(0), np.array([3, -4]), np.array(1 << 26))):
            for multiplier, shift in ((1, 1), ((1 << 23) + 1, 24)):
                name = f"{rounding.value}{i}_{shift}"
                scale = (np.array(multiplier), np.array(shift), offset)
                parts += [
                    Dense(f"fc_{name}", "x", np.array([[1, -2, 3], [4, 5, -6]]), np.array([7, -8])),
                    Requantize(f"act_{name}", f"fc_{name}", *scale, S8, rounding),
                ]
    outputs = tuple(OutputSpec(op.name) for op in parts if isinstance(op, Requantize))
    network = IntegerNetwork(chain().inputs, tuple(parts), outputs)
    assert_equal(network, np.random.default_rng(1).integers(-20, 20, (300, 3)))


def test_partial_sums_count_where_scales_carry_the_factor() -> None:
    """255 * 128 - 2^14 is within 2^14, its partial sums only within 49024: the factor comes after them from 342 on."""
    layer = Dense("fc", "x", np.array([[128]]), np.array([-(1 << 14)]))
    for multiplier, folded in ((341, {"fc"}), (343, set()), (1023, set())):
        op = Requantize("act", "fc", np.array(multiplier), np.array(15), np.array(0), IntType(9, True))
        network = IntegerNetwork((InputSpec("x", (1,), U8),), (layer, op), (OutputSpec("act"),))
        assert to_qcdq.plan_network(network).folded == folded
    assert "Mul" in types(assert_equal(network, np.arange(256)[:, None]))


def test_signed_bytes_beside_sixteen_bits_travel_in_sixteen() -> None:
    """onnxruntime cannot move an int8 QuantizeLinear of opset 21 through the Reshape."""
    network = IntegerNetwork(
        (InputSpec("x", (1, 4), IntType(10, False)),),
        (
            Requantize("act", "x", np.array(1), np.array(4), np.array(0), IntType(4, True)),
            Reshape("flat", "act", (4,)),
            Dense("fc", "flat", np.array([[1, -2, 3, 0]]), np.array([3])),
        ),
        (OutputSpec("fc"),),
    )
    model = assert_equal(network, rows_for(network))
    containers = {t.name: numpy_helper.to_array(t).dtype for t in model.graph.initializer if "zero_point" in t.name}
    assert containers == {"x/zero_point": np.uint16, "act/zero_point": np.int16}


def test_sixteen_bits_need_opset_21() -> None:
    network = chain(inputs=IntType(10, True), out=IntType(12, False), multiplier=1, shift=1)
    model = assert_equal(network, rows_for(network, rows=300))
    assert [entry.version for entry in model.opset_import] == [21]
    clip = next(node for node in model.graph.node if node.name == "act/clip")
    quantize = next(node for node in model.graph.node if node.name == "act/quantize")
    assert quantize.input[0] == clip.output[0]


def test_widths_of_each_channel_and_a_saturating_accumulator() -> None:
    network = chain(out=IntType((3, 8), True, True), accumulator=IntType(9, True), multiplier=[1, -1], shift=1)
    model = assert_equal(network, rows_for(network, rows=300))
    assert types(model)[-4:] == ["QuantizeLinear", "Max", "Min", "DequantizeLinear"]
    assert "fc/sum" in {name for node in model.graph.node for name in node.output}


def refusals(network: IntegerNetwork, x: np.ndarray) -> bool:
    try:
        assert_equal(network, x)
    except NotExact as error:
        assert str(error).partition(":")[0] in network.values  # noqa: PT017
        return True
    return False


@settings(max_examples=2)
@given(expressible_graphs())
def test_any_graph_is_equal_or_refused_by_name(network: IntegerNetwork) -> None:
    refusals(network, graph_rows(network))


@settings(max_examples=2)
@given(expressible_networks())
def test_any_dense_network_is_equal_or_refused_by_name(network: IntegerNetwork) -> None:
    refusals(network, rows_for(network))


@pytest.mark.slow
@settings(max_examples=150)
@given(expressible_graphs())
def test_many_graphs(network: IntegerNetwork) -> None:
    refusals(network, graph_rows(network))


# --- refusals --------------------------------------------------------------------------------------------------------


def test_everything_that_does_not_fit_is_named_at_once() -> None:
    with pytest.raises(NotExact) as caught:
        to_qcdq.export(nasty_network())
    text = str(caught.value)
    for name in ("wide_fc", "bias24_fc", "sums"):
        assert f"{name}: needs " in text
    assert "float32 has 24" in text
    assert "integer ONNX export" in text


@pytest.mark.parametrize(
    ("multiplier", "shift", "offset", "bits", "rounding"),
    [
        (1024, 0, 77, 17, Rounding.HALF_EVEN),
        (3, 1, -5, 20, Rounding.HALF_EVEN),
        (4095, 2, 0, 17, Rounding.HALF_UP),
        (9, 3, 9, 30, Rounding.FLOOR),
    ],
)
def test_types_beyond_sixteen_bits_are_clipped_in_float(
    multiplier: int, shift: int, offset: int, bits: int, rounding: Rounding
) -> None:
    """What an import writes for a bias finer than the sums: a wide rescale that rounds nothing, or little."""
    made = chain(multiplier=multiplier, shift=shift, offset=offset, out=IntType(bits, True, True), rounding=rounding)
    model = assert_equal(made, drawn(made, 200)["x"])
    names = [node.name for node in model.graph.node if node.op_type == "QuantizeLinear"]
    assert not any("act" in name for name in names)


def test_integers_that_float32_does_not_hold_are_refused_with_the_others() -> None:
    """Float64 multiplies them exactly, and float32 cannot carry the result."""

    def network(multiplier: int, inputs: IntType = S8) -> IntegerNetwork:
        ops = (
            Requantize("q", "x", np.array(multiplier), np.array(0), np.array(0), IntType(32, True)),
            Requantize("r", "x", np.array(multiplier), np.array(3), np.array(1), IntType(31, False)),
        )
        return IntegerNetwork((InputSpec("x", (1,), inputs),), ops, (OutputSpec("q"), OutputSpec("r")))

    with pytest.raises(NotExact) as caught:
        to_qcdq.export(network(7135696))
    text = "q: holds integers up to 913369088, float32 holds all up to 16777216; r: holds integers up to 113279175, "
    assert text in str(caught.value)
    with pytest.raises(NotExact, match=r"q: holds integers up to 33554432, .* x: needs 26 bits, float32 has 24"):
        to_qcdq.export(network(1, IntType(26, True)))
    every = np.arange(-128, 128)[:, None]
    assert_equal(network(1 << 17), every)  # -2^24 is the last
    with pytest.raises(NotExact, match="q: holds integers up to 16777344"):
        to_qcdq.export(network((1 << 17) + 1))
