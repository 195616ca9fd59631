"""Imports of models written by hand: every rule exact against rational arithmetic, every refusal by node and reason."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx_sources import Source, assert_exact, edge_integers

from hawq_flow import interpret, to_qonnx
from hawq_flow.from_onnx import Imported, ImportRefused, compare, fixed_type, read
from hawq_flow.network import Conv, Dense, Lookup, Requantize
from hawq_flow.numeric import IntType, Rounding

ANY_SCALE = st.integers(1000, 300_000).map(lambda n: n / 1_000_003)


def imported(model: onnx.ModelProto, rows: int = 12, *, push: bool = False, **kwargs: Any) -> Imported:
    """The import, compared exactly with the file's meaning; with ``push`` also through our own QONNX export."""
    result = read(model, **kwargs)
    if not result.snaps:
        assert_exact(model, result, rows)
    if not push:
        return result
    x = edge_integers(result, 6)
    expected = interpret.trace(result.network, x)
    run = to_qonnx.execute(to_qonnx.export(result.network), result.network, x)
    for name, values in run.values.items():
        np.testing.assert_array_equal(values, expected[name], err_msg=name)
    return result


def kinds(result: Imported) -> list[str]:
    return [op.kind for op in result.network.ops]


def mlp(
    seed: int = 0,
    *,
    s: Source | None = None,
    scales: tuple[float, float, float] = (0.037, 0.021, 0.043),
    sizes: tuple[int, int, int] = (6, 5, 3),
    bits: int = 6,
    per_channel: bool = False,
    bias: str = "float",
    zero: float = 0.0,
) -> onnx.ModelProto:
    """Input quantizer, dense, (bias), ReLU, quantizer, dense; arbitrary float32 scales."""
    rng = np.random.default_rng(seed)
    s = s or Source()
    sx, sw, sa = (np.float32(v) for v in scales)
    x = s.quant("x", sx, 8, zero=zero)
    w = rng.integers(-7, 8, (sizes[0], sizes[1]))
    scale = (sw * np.float32(1) * rng.uniform(0.5, 2, (1, sizes[1])).astype(np.float32)) if per_channel else sw
    y = s.node("MatMul", [x, s.weights(w, scale, 4)])
    if bias == "float":
        y = s.node("Add", [y, s.const(rng.normal(0, 0.1, sizes[1]))])
    elif bias == "grid":
        y = s.node("Add", [y, s.const(sx * sw * rng.integers(-40, 40, sizes[1]).astype(np.float32))])
    y = s.node("Relu", [y])
    y = s.quant(y, sa, bits, signed=0)
    y = s.node("MatMul", [y, s.weights(rng.integers(-7, 8, (sizes[1], sizes[2])), 0.125, 4)])
    return s.model({"x": [sizes[0]]}, [y])


# --- scales that are not dyadic are carried exactly ----------------------------------------------------------------


@settings(max_examples=12)
@given(
    st.integers(0, 10**6),
    st.tuples(ANY_SCALE, ANY_SCALE, ANY_SCALE),
    st.booleans(),
    st.sampled_from(["none", "float", "grid"]),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([0.0, 3.0, -4.0]),
)
def test_any_mlp_is_exact(
    seed: int, scales: tuple[float, float, float], per_channel: bool, bias: str, bits: int, zero: float
) -> None:
    model = mlp(seed, scales=scales, per_channel=per_channel, bias=bias, bits=bits, zero=zero)
    result = read(model)
    assert_exact(model, result, 40, seed)
    assert result.snaps == ()


@settings(max_examples=10)
@given(
    st.integers(0, 10**6), ANY_SCALE, st.booleans(), st.sampled_from([1, 2]), st.sampled_from(["", "max", "average"])
)
def test_any_cnn_is_exact(seed: int, scale: float, depthwise: bool, stride: int, pool: str) -> None:
    rng = np.random.default_rng(seed)
    s = Source()
    x = s.quant("x", np.float32(scale), 5)
    groups = 2 if depthwise else 1
    w = s.weights(
        rng.integers(-3, 4, (4, 2 // groups, 3, 2)), rng.uniform(0.01, 0.2, (4, 1, 1, 1)).astype(np.float32), 3
    )
    conv = {"strides": [stride, 1], "pads": [1, 0, 2, 1], "group": groups, "kernel_shape": [3, 2]}
    y = s.node("Conv", [x, w, s.const(rng.normal(0, 0.1, 4))], **conv)
    statistics = [rng.normal(0, 1, 4), rng.normal(0, 0.3, 4), rng.normal(0, 0.2, 4), rng.uniform(0.5, 2, 4)]
    y = s.node("BatchNormalization", [y, *(s.const(v) for v in statistics)], epsilon=1e-4)  # negative factors too
    y = s.quant(s.node("Relu", [y]), 0.0413, 4, signed=0)
    if pool == "max":
        y = s.node("MaxPool", [y], kernel_shape=[2, 2], strides=[2, 2])
    elif pool == "average":
        y = s.node("AveragePool", [y], kernel_shape=[2, 3], pads=[1, 1, 0, 1], strides=[2, 1])
        y = s.quant(y, 0.0371, 4, signed=0)
    y = s.node("Flatten", [y])
    features = {
        "": 4 * (6 // stride) * 4,
        "max": 4 * (6 // stride // 2) * 2,
        "average": 4 * ((6 // stride - 1) // 2 + 1) * 4,
    }
    y = s.node("MatMul", [y, s.weights(rng.integers(-2, 3, (features[pool], 2)), 0.25, 3)])
    model = s.model({"x": [2, 5, 4]}, [y])
    result = read(model)
    assert_exact(model, result, 6, seed)


def test_the_plain_form_is_used_where_it_is_exact() -> None:
    result = imported(mlp(bias="grid"), push=True)
    assert kinds(result) == ["Dense", "Requantize", "Dense"]
    assert result.network.values["Quant_5"].type == IntType(6, signed=False)
    assert dict(result.network.metadata)["source_producer"] == "hand 1"


def test_a_float_bias_is_carried_in_finer_units() -> None:
    result = imported(mlp(bias="float", bits=8), push=True)
    assert kinds(result) == ["Dense", "Requantize", "Requantize", "Dense"]
    finer = result.network.ops[1]
    assert isinstance(finer, Requantize)
    assert (np.log2(finer.multiplier) % 1 == 0).all()


def test_snap_makes_it_plain_and_says_what_it_changed() -> None:
    model = mlp(bias="float", bits=8)
    result = read(model, snap=1e-4)
    assert kinds(result) == ["Dense", "Requantize", "Dense"]
    (snap,) = result.snaps
    assert snap.node == "Quant_5"
    assert 0 < snap.bias_error <= 0.5
    assert snap.scale_error <= 1e-4
    assert snap.levels == 1
    assert 0 < snap.integers < snap.of
    assert "integers map to another level, by 1 at most" in str(snap)
    # What the record says is what happens, integer by integer.
    exact = read(model)
    x = edge_integers(result, 200)
    ours, theirs = (interpret.trace(r.network, x)["Quant_5"] for r in (result, exact))
    assert np.abs(ours - theirs).max() <= 1


@pytest.mark.parametrize("value", [0, -1e-3, 0.5, float("nan")])
def test_snap_out_of_range(value: float) -> None:
    with pytest.raises(ValueError, match=r"expected a relative change above 0 and at most 0\.01"):
        read(mlp(), snap=value)


# --- quantizers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["ROUND", "FLOOR", "CEIL", "HALF_UP", "HALF_DOWN", "UP", "DOWN"])
def test_every_rounding_of_qonnx(mode: str) -> None:
    """Ties and signs: an input of all integers divided by 8, at steps of 1/2."""
    s = Source()
    y = s.quant(s.quant("x", 0.125, 7), 0.5, 5, mode=mode)
    result = imported(s.model({"x": [4]}, [y]), 200)
    # A rounding with a wider zero is no rescale: it becomes a table.
    assert (kinds(result) == ["Lookup"]) == (mode in ("UP", "DOWN"))


@pytest.mark.parametrize(("signed", "narrow", "bits"), [(1, 0, 4), (1, 1, 4), (0, 0, 3), (0, 1, 3), (0, 0, 1)])
@pytest.mark.parametrize("zero", [0.0, 1.0, 2.0])
def test_ranges_and_zero_points(signed: int, narrow: int, bits: int, zero: float) -> None:
    s = Source()
    y = s.quant(s.quant("x", 0.25, 6), 0.7, bits, zero=zero, signed=signed, narrow=narrow)
    y = s.node("MatMul", [y, s.weights([[1, -2], [3, 1]], 0.5)])
    imported(s.model({"x": [2]}, [y]), 100)


def test_widths_and_scales_for_each_channel() -> None:
    s = Source()
    y = s.quant("x", 0.25, 6)
    y = s.quant(y, np.float32([[[0.3]], [[0.7]]]), [[[2]], [[3]]])
    model = s.model({"x": [2, 3, 1]}, [y])
    result = read(model)
    assert result.network.values["Quant_1"].type.bits == (2, 3)


def test_domains_of_the_wild_and_types_of_parameters() -> None:
    for domain in ("finn.custom_op.general", "onnx.brevitas", "hawq2qonnx"):
        imported(mlp(s=Source(domain)))
    s = Source()
    parameters = [s.const(0.25, np.float64), s.const(0, np.int64), s.const(6, np.int64)]
    y = s.node("IntQuant", ["x", *parameters], s.domain, signed=1, narrow=0, rounding_mode="ROUND")
    imported(s.model({"x": [3]}, [s.quant(y, 0.5, 4)]))


def test_bipolar_weights_and_activations() -> None:
    s = Source()
    y = s.quant("x", 0.25, 6)
    w = s.node("BipolarQuant", [s.const([[1, -1], [-0.5, 2], [0, -3]]), s.const(0.3)], s.domain)
    y = s.node("Add", [s.node("MatMul", [y, w]), s.const([0.11, -0.07])])
    y = s.node("BipolarQuant", [y, s.const(0.7)], s.domain)
    y = s.node("MatMul", [y, s.weights([[1, 2], [-1, 1]], 0.5)])
    result = imported(s.model({"x": [3]}, [y]), 60)
    assert result.network.values["BipolarQuant_4"].type == IntType(1, signed=False)


def test_a_padded_convolution_of_bipolar_values_reads_minus_one_and_one() -> None:
    s = Source()
    y = s.node("BipolarQuant", [s.quant("x", 0.25, 4), s.const(0.7)], s.domain)
    y = s.node("Conv", [y, s.weights(np.ones((1, 1, 3)), 0.5)], pads=[1, 1])
    result = imported(s.model({"x": [1, 5]}, [y]), push=True)
    assert result.network.values["Conv_3_centred"].low.min() == -1


def test_trunc_drops_bits() -> None:
    s = Source()
    y = s.quant("x", 0.25, 8)
    parameters = [s.const(v) for v in (0.25, 0.0, 8.0, 5.0)]
    y = s.node("Trunc", [y, *parameters], s.domain, rounding_mode="FLOOR")
    result = imported(s.model({"x": [3]}, [y]), 60)
    (op,) = result.network.ops
    assert isinstance(op, Requantize)
    assert (int(op.multiplier), int(op.shift), op.rounding) == (1, 3, Rounding.FLOOR)


def test_qcdq_with_clips_of_narrow_widths() -> None:
    """QuantizeLinear - Clip - DequantizeLinear: the clip becomes the quantizer's own type."""
    s = Source()

    def qcdq(x: str, scale: float, low: int, high: int, dtype: Any, zero: int = 0) -> str:
        z = s.const(zero, dtype)
        q = s.node("QuantizeLinear", [x, s.const(scale), z])
        q = s.node("Clip", [q, s.const(low, dtype), s.const(high, dtype)])
        return str(s.node("DequantizeLinear", [q, s.const(scale), z]))

    y = qcdq("x", 0.037, -128, 127, np.int8, 3)
    w = s.node(
        "DequantizeLinear",
        [s.const([[1, -7, 3], [5, 2, -4]], np.int8), s.const([0.1, 0.2, 0.3]), s.const([0, 1, 0], np.int8)],
        axis=1,
    )
    y = s.node("Gemm", [y, w, s.const([0.1, -0.2, 0.05])])
    y = qcdq(s.node("Relu", [y]), 0.041, 0, 15, np.uint8)
    y = s.node(
        "MatMul",
        [y, s.node("DequantizeLinear", [s.const([[1], [2], [3]], np.int8), s.const(0.5), s.const(0, np.int8)])],
    )
    result = imported(s.model({"x": [2]}, [y]), 60)
    assert str(result.network.values["QuantizeLinear_6"].type) == "uint4"
    assert result.network.inputs[0].type == IntType(8, signed=True)


def test_a_clip_that_is_no_type_takes_two_steps() -> None:
    s = Source()
    y = s.quant("x", 1.0, 6)
    y = s.node("Clip", [y, s.const(-5.0), s.const(11.0)])
    y = s.node("MatMul", [y, s.weights([[1], [2]], 1.0)])
    result = imported(s.model({"x": [2]}, [y]), 60)
    assert kinds(result) == ["Requantize", "Requantize", "Dense"]


def test_integer_operators() -> None:
    s = Source()
    q = s.node("QuantizeLinear", ["x", s.const(0.1), s.const(5, np.uint8)])
    y = s.node("MatMulInteger", [q, s.const([[1, 2], [-3, 4]], np.int8), s.const(5, np.uint8), s.const(1, np.int8)])
    y = s.node("Add", [y, s.const([7, -9], np.int32)])
    y = s.node("Mul", [s.node("Cast", [y], to=TensorProto.FLOAT), s.const(3 / 1024)])
    y = s.node("QuantizeLinear", [y, s.const(1.0), s.const(0, np.int8)])
    model = s.model({"x": [2]}, [s.node("Cast", [y], to=TensorProto.FLOAT)])
    y = model.graph.output[0].name
    result = read(model)
    assert kinds(result) == ["Dense", "Requantize"]
    certificate = compare(result, np.random.default_rng(0).normal(0, 9, (200, 2)))
    assert certificate["executor"].startswith("onnxruntime")
    assert certificate["outputs"][y]["differ"] == 0


def test_integer_inputs_need_no_declaration_and_shifts_are_floors() -> None:
    s = Source(opset=18)
    y = s.node("MatMulInteger", ["x", s.const([[1, 2], [-3, 4]], np.int8)])
    y = s.node("BitShift", [y, s.const([3, 2], np.int32)], direction="RIGHT")
    result = read(s.model({"x": [2]}, [y], elem=TensorProto.UINT8))
    assert result.network.inputs[0].type == IntType(8, signed=False)
    x = np.array([[255, 3], [7, 200]])
    expected = (x @ [[1, 2], [-3, 4]]) >> np.array([3, 2])
    np.testing.assert_array_equal(result.real(interpret.run(result.network, x))[y], expected)


# --- structure --------------------------------------------------------------------------------------------------------


def test_channels_last_inputs_become_channels_first() -> None:
    rng = np.random.default_rng(3)
    s = Source()
    y = s.node("Transpose", [s.quant("x", 0.25, 5)], perm=[0, 3, 1, 2])
    y = s.node("Conv", [y, s.weights(rng.integers(-3, 4, (3, 2, 2, 2)), 0.5, 4)])
    y = s.node("Transpose", [y], perm=[0, 2, 3, 1])
    model = s.model({"x": [4, 5, 2]}, [y])
    result = imported(model)
    assert result.network.inputs[0].shape == (2, 4, 5)
    assert [note for note in result.notes if "channels first" in note]
    assert [note for note in result.notes if "another order than the file" in note]
    raw = rng.normal(0, 3, (20, 4, 5, 2))
    assert compare(result, raw)["outputs"][y]["differ"] == 0
    real = result.real(interpret.trace(result.network, result.integers(raw)))
    assert real[y].shape == (20, 3, 4, 3)


def test_a_declared_channels_last_input_with_a_quantizer_before_the_transpose() -> None:
    s = Source()
    y = s.node("Transpose", [s.quant("x", 0.5, 4)], perm=[0, 3, 1, 2])
    y = s.node("Conv", [y, s.weights(np.arange(8).reshape(1, 2, 2, 2) - 4, 0.5, 4)])
    result = imported(s.model({"x": [3, 3, 2]}, [y]), inputs={"x": "fixed<8,4>"})
    assert result.network.inputs[0].shape == (2, 3, 3)
    assert result.network.inputs[0].type == IntType(8, signed=True)


def test_a_dense_layer_behind_any_permutation() -> None:
    rng = np.random.default_rng(4)
    s = Source()
    y = s.node("Conv", [s.quant("x", 0.25, 5), s.weights(rng.integers(-3, 4, (3, 2, 2, 2)), 0.5, 4)])
    y = s.quant(y, np.float32([[[0.3]], [[0.5]], [[0.3]]]), 5)
    y = s.node("Transpose", [y], perm=[0, 2, 3, 1])
    y = s.node("Flatten", [y])
    y = s.node("MatMul", [y, s.weights(rng.integers(-3, 4, (27, 2)), 0.5, 4)])
    with pytest.raises(ImportRefused, match="no common measure near them"):
        read(s.model({"x": [2, 4, 4]}, [y]))
    for tensor in s.initializers:
        if onnx.numpy_helper.to_array(tensor).shape == (3, 1, 1):
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.float32([[[0.25]], [[0.5]], [[1.0]]]), tensor.name))
    imported(s.model({"x": [2, 4, 4]}, [y]))


def test_residuals_concats_and_products() -> None:
    rng = np.random.default_rng(5)
    s = Source()
    x = s.quant("x", 0.25, 4)
    y = s.node("Conv", [x, s.weights(rng.integers(-3, 4, (2, 2, 3, 3)), 0.5, 3)], pads=[1, 1, 1, 1])
    y = s.quant(y, 0.5, 4)
    z = s.node("Relu", [s.node("Add", [x, y])])  # scales 1/4 and 1/2
    z = s.quant(z, 0.37, 5, signed=0)
    z = s.node("Concat", [z, s.node("Mul", [x, y]), s.node("Sub", [x, y])], axis=1)
    z = s.quant(z, 0.81, 6)
    z = s.node("GlobalAveragePool", [z])
    z = s.quant(s.node("Flatten", [z]), 0.11, 5)
    result = imported(s.model({"x": [2, 3, 3]}, [z]), push=True)
    assert {"Add", "Multiply", "Subtract", "Concat", "SumPool"} <= set(kinds(result))


def test_a_zero_point_pads_with_itself() -> None:
    s = Source()
    x = s.quant("x", 0.25, 5, signed=0, zero=7.0)
    y = s.node("Conv", [x, s.weights(np.arange(18).reshape(2, 1, 3, 3) - 9, 0.5, 5)], pads=[1, 1, 1, 1])
    result = imported(s.model({"x": [1, 4, 4]}, [y]), push=True)
    pad = result.network.ops[0]
    assert pad.kind == "Pad"
    assert pad.value == 7


def test_functions_between_quantizers_are_tables() -> None:
    s = Source()
    y = s.quant("x", 0.125, 6)
    y = s.node("Mul", [s.node("Sigmoid", [y]), s.const(2.0)])
    y = s.quant(y, 1 / 16, 5, signed=0)
    model = s.model({"x": [3]}, [y])
    result = read(model)
    (op,) = result.network.ops
    assert isinstance(op, Lookup)
    a = np.arange(-32, 32)
    expected = np.clip(np.rint(2 / (1 + np.exp(-a / 8)) * 16), 0, 31)
    np.testing.assert_array_equal(op.table[a - op.start], expected)
    assert compare(result, np.random.default_rng(0).normal(0, 4, (100, 3)))["outputs"][y]["differ"] == 0


def test_a_swish_is_one_table() -> None:
    s = Source()
    x = s.quant("x", 0.125, 6)
    y = s.quant(s.node("Mul", [x, s.node("Sigmoid", [x])]), 0.1, 5)
    result = read(s.model({"x": [3]}, [y]))
    assert kinds(result) == ["Lookup"]
    assert compare(result, np.random.default_rng(0).normal(0, 4, (100, 3)))["outputs"][y]["differ"] == 0


def test_standardization_before_the_input_quantizer() -> None:
    s = Source()
    y = s.node("Sub", [s.node("Mul", ["x", s.const(2.0)]), s.const(1.0)])
    y = s.quant(y, 0.25, 4)
    y = s.node("MatMul", [y, s.weights([[1], [2]], 1.0)])
    result = imported(s.model({"x": [2]}, [y]))
    spec = result.network.inputs[0]
    assert (float(spec.mean), float(spec.std), float(spec.scale)) == (0.5, 0.5, 0.25)


def test_a_softmax_at_the_end_is_left_in_float_and_said() -> None:
    s = Source()
    y = s.node("MatMul", [s.quant("x", 0.25, 4), s.weights([[1, 2], [2, -3]], 1.0)])
    end = s.node("Softmax", [y], axis=1)
    result = imported(s.model({"x": [2]}, [end]))
    assert result.outputs[0].left == "Softmax"
    assert result.outputs[0].tensor == y
    assert any("left in float" in note for note in result.notes)
    assert compare(result, np.ones((3, 2)))["outputs"][end]["note"].startswith("compared before Softmax")


def test_an_offset_that_is_no_whole_unit_stays_with_the_output() -> None:
    s = Source()
    y = s.node("MatMul", [s.quant("x", 0.25, 4), s.weights([[1, 2], [2, -3]], 1.0)])
    y = s.node("Add", [y, s.const([0.3125, -1.0])])
    result = imported(s.model({"x": [2]}, [y]))
    assert [Fraction(v) for v in result.outputs[0].offset.ravel()] == [Fraction(1, 16), 0]
    dense = result.network.ops[0]
    assert isinstance(dense, Dense)
    assert dense.bias.tolist() == [1, -4]


def test_shapes_computed_from_the_batch_fold_away() -> None:
    s = Source()
    x = s.quant("x", 0.5, 4)
    batch = s.node("Gather", [s.node("Shape", [x]), s.const(0, np.int64)], axis=0)
    shape = s.node("Concat", [s.node("Unsqueeze", [batch, s.const([0], np.int64)]), s.const([-1], np.int64)], axis=0)
    y = s.node("Reshape", [x, shape])
    y = s.node("MatMul", [y, s.weights(np.ones((6, 2)), 1.0)])
    for batch_size in (1, "N", 789):
        result = read(s.model({"x": [2, 3]}, [y], batch_size))
        assert kinds(result) == ["Reshape", "Dense"]
    assert compare(result, np.random.default_rng(0).normal(0, 2, (5, 2, 3)))["outputs"][y]["differ"] == 0


def test_several_inputs_and_outputs() -> None:
    s = Source()
    a, b = s.quant("a", 0.5, 4), s.quant("b", 0.25, 4)
    total, product = s.node("Add", [a, b]), s.node("Mul", [a, b])
    result = imported(s.model({"a": [3], "b": [3]}, [total, product, a]), push=True)
    assert [spec.name for spec in result.network.inputs] == ["a", "b"]
    assert len(result.network.outputs) == 3
    with pytest.raises(ValueError, match="input 'b' is missing; given: a"):
        result.integers({"a": np.zeros((1, 3))})
    with pytest.raises(ValueError, match=r"rows of shape \(2,\); expected \(3,\)"):
        result.integers({"a": np.zeros((1, 2)), "b": np.zeros((1, 3))})


def test_the_parts_of_a_split_keep_their_own_biases() -> None:
    s = Source()
    y = s.node("MatMul", [s.quant("x", 0.5, 4), s.weights([[1, 2, -1, 1], [2, -3, 1, 2]], 0.5)])
    a, b = s.node("Split", [y], outputs=2, axis=1)
    a = s.quant(s.node("Add", [a, s.const([0.25, -1.5])]), 0.5, 6)
    b = s.quant(s.node("Add", [b, s.const([2.0, 0.5])]), 0.5, 6)
    result = read(s.model({"x": [2]}, [a, b]))
    x = np.random.default_rng(0).normal(0, 2, (50, 2))
    outputs = compare(result, x)["outputs"]
    assert [outputs[name]["differ"] for name in (a, b)] == [0, 0]


def test_names_are_identifiers_and_unique() -> None:
    s = Source()
    y = s.quant("x", 0.5, 4)
    for name in ("/layer 1/MatMul", "layer_1_MatMul", "while"):
        y = s.node("MatMul", [y, s.weights(np.eye(2), 1.0)])
        s.nodes[-1].name = name
    model = s.model({"x": [2]}, [y])
    names = [op.name for op in read(model).network.ops]
    assert names == ["layer_1_MatMul", "layer_1_MatMul_2", "while_"]


def test_nodes_in_any_order() -> None:
    model = mlp(bias="grid")
    nodes = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend(reversed(nodes))
    assert kinds(read(model)) == ["Dense", "Requantize", "Dense"]


def test_weights_found_on_a_grid_without_a_quantizer() -> None:
    """What cleaning tools leave: integers times a power of two, or one number a channel."""
    s = Source()
    x = s.quant("x", 0.5, 4)
    y = s.node("Conv", [x, s.const(np.float32(0.1) * np.float32([[[1, -1]], [[0, 1]]]))])
    y = s.node("Add", [y, s.const(np.float32(0.25))])
    result = imported(s.model({"x": [1, 4]}, [y]))
    conv = result.network.ops[0]
    assert isinstance(conv, Conv)
    assert np.abs(conv.weight).max() == 1


# --- inputs -----------------------------------------------------------------------------------------------------------


def unquantized() -> onnx.ModelProto:
    s = Source()
    y = s.node("MatMul", ["x", s.weights([[1], [2]], 0.5)])
    return s.model({"x": [2]}, [y])


def test_an_unquantized_input_must_be_declared() -> None:
    with pytest.raises(
        ImportRefused, match=re.escape("Declare its type, for example --input 'x=ap_fixed<16,6>', or inputs={'x': ")
    ):
        read(unquantized())
    result = imported(unquantized(), inputs={"x": "ap_fixed<16,6>"})
    assert result.network.inputs[0].type == IntType(16, signed=True)
    assert float(result.network.inputs[0].scale) == 2.0**-10


@pytest.mark.parametrize(
    ("text", "type", "fraction"),
    [
        ("ap_fixed<16,6>", IntType(16, True), 10),
        ("fixed<8, 8>", IntType(8, True), 0),
        ("ufixed<8,0>", IntType(8, False), 8),
        ("ap_ufixed<1,1>", IntType(1, False), 0),
        ("ap_fixed<6,-2,AP_RND,AP_SAT>", IntType(6, True), 8),
    ],
)
def test_fixed_types(text: str, type: IntType, fraction: int) -> None:
    assert fixed_type(text) == (type, fraction)


@pytest.mark.parametrize(
    ("text", "error"), [("float8", "expected fixed<width"), ("fixed<40,6>", "width 40; expected 2 to 32")]
)
def test_wrong_fixed_types(text: str, error: str) -> None:
    with pytest.raises(ValueError, match=re.escape(error)):
        read(unquantized(), inputs={"x": text})
    with pytest.raises(ValueError, match="no input 'y'; the file's are x"):
        read(unquantized(), inputs={"y": "fixed<8,4>"})


# --- refusals ---------------------------------------------------------------------------------------------------------


def refused(build: Any, **kwargs: Any) -> ImportRefused:
    s = Source()
    output, shape = build(s)
    with pytest.raises(ImportRefused) as caught:
        read(s.model({"x": shape}, [output]), **kwargs)
    return caught.value


def test_all_refusals_come_at_once_by_node() -> None:
    rng = np.random.default_rng(0)

    def build(s: Source) -> tuple[str, list[int]]:
        x = s.quant("x", 0.5, 4)
        y = s.node("MatMul", [x, s.const(rng.normal(0, 1, (3, 4)))])  # float weights
        y = s.quant(s.node("Relu", [y]), 0.5, 4)
        y = s.node("MatMul", [y, s.const(rng.normal(0, 1, (4, 2)))])  # behind: its weights are judged all the same
        z = s.quant(x, 0.5, 1)  # one signed bit
        return s.node("Concat", [y, z, s.node("Det", [x])], axis=1), [3]

    found = refused(build).refusals
    assert [(r.node, r.op_type) for r in found] == [
        ("MatMul_1", "MatMul"),
        ("MatMul_4", "MatMul"),
        ("Quant_5", "Quant"),
        ("Det_6", "Det"),
    ]
    text = str(refused(build))
    assert "refused for 4 things" in text
    assert "weights are float32, not quantized" in text
    assert "Use BipolarQuant, or 2 bits with narrow=1" in text
    assert "no rule for Det" in text


CASES: dict[str, Any] = {
    "attention": (lambda s, x: s.node("MatMul", [x, s.node("Transpose", [x], perm=[0, 2, 1])]), [2, 2], "two values"),
    "per input channel": (
        lambda s, x: s.node("MatMul", [x, s.weights(np.ones((2, 3)), np.float32([[0.1], [0.2]]))]),
        [2],
        "one for each input channel",
    ),
    "fractional width": (lambda s, x: s.quant(x, 0.5, 7.5), [2], "a bit width of 7.5"),
    "wide": (lambda s, x: s.quant(x, 0.5, 33), [2], "a bit width of 33; expected 1 to 32"),
    "negative scale": (lambda s, x: s.quant(x, -0.5, 8), [2], "expected positive"),
    "computed scale": (
        lambda s, x: s.node("Quant", [x, x, s.const(0.0), s.const(8.0)], s.domain, signed=1, narrow=0),
        [2],
        "its scale is computed from the input",
    ),
    "rounding": (lambda s, x: s.quant(x, 0.5, 8, mode="SOMEHOW"), [2], "rounding_mode SOMEHOW; known are ROUND"),
    "wrapping cast": (lambda s, x: s.node("Cast", [x], to=TensorProto.INT8), [2], "truncates; round them first"),
    "softmax inside": (
        lambda s, x: s.quant(s.node("Softmax", [x], axis=1), 0.1, 8),
        [2],
        "which integers do not compute inside a network",
    ),
    "relu between integers": (
        lambda s, x: s.node(
            "MatMul", [s.node("Relu", [s.node("Add", [x, s.const(0.1)])]), s.weights(np.ones((2, 1)), 1.0)]
        ),
        [2],
        "the bias is not on the grid of its sums",
    ),
    "incommensurable sum": (
        lambda s, x: s.node("Add", [x, s.quant(s.node("Mul", [x, s.const(0.3)]), 0.1234567, 8)]),
        [2],
        "",
    ),
    "batch": (lambda s, x: s.node("Reshape", [x, s.const([7, 2], np.int64)]), [2], "fixes a batch, or mixes its rows"),
    "unknown domain": (
        lambda s, x: s.node("FloatQuant", [x], "brevitas.float"),
        [2],
        "which this reader does not know",
    ),
    "linear resize": (
        lambda s, x: s.node("Resize", [x, "", s.const([1, 1, 2])], mode="linear"),
        [1, 4],
        "expected nearest",
    ),
    "selected channels": (
        lambda s, x: s.node(
            "Conv", [s.node("Gather", [x, s.const([1, 0], np.int64)], axis=1), s.weights(np.ones((1, 2, 1)), 1.0)]
        ),
        [2, 4],
        "picked or in another order",
    ),
    "malformed": (
        lambda s, x: s.node("Concat", [x, x]),
        [2],
        "has no attribute axis, which a Concat needs",
    ),
}


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case[2]])
def test_refused(name: str) -> None:
    build, shape, text = CASES[name]
    error = refused(
        lambda s: (
            build(s, s.quant("x", 0.25, 5) if name != "selected channels" else s.quant(s.quant("x", 0.25, 5), 0.5, 4)),
            shape,
        )
    )
    assert text in str(error)


def test_snap_accepts_a_bias_between_integers_and_says_so() -> None:
    build, shape, _ = CASES["relu between integers"]
    s = Source()
    y = build(s, s.quant("x", 0.25, 5))
    result = imported(s.model({"x": shape}, [y]), snap=1e-3)
    assert len(result.snaps) == 1
    assert result.snaps[0].bias_error == pytest.approx(0.4)


# --- files ------------------------------------------------------------------------------------------------------------


def corrupted(change: Any) -> onnx.ModelProto:
    model = mlp(bias="grid")
    change(model)
    return model


def _control_flow(model: onnx.ModelProto) -> None:
    body = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "body", [], [])
    model.graph.node.append(helper.make_node("If", ["x"], ["z"], name="branch", then_branch=body, else_branch=body))


def _external(model: onnx.ModelProto) -> None:
    tensor = model.graph.initializer[0]
    tensor.data_location = TensorProto.EXTERNAL
    tensor.ClearField("raw_data")


def _dynamic(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "width"


def _twice(model: onnx.ModelProto) -> None:
    model.graph.node[-1].output[0] = model.graph.node[-2].output[0]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda m: m.graph.ClearField("node"), "no nodes: not an ONNX model, or an empty one"),
        (_control_flow, "branch (If): holds a graph of its own"),
        (_external, "cannot be read (its data are in another file"),
        (_dynamic, "has shape [1, 'width']; every axis but the batch's must be a number"),
        (_twice, "makes too"),
        (lambda m: m.graph.node.pop(0), "which nothing makes"),
        (lambda m: m.graph.ClearField("output"), "the graph has no output"),
        (lambda m: m.graph.input[0].type.tensor_type.shape.dim.pop(), "expected a batch axis and at least one more"),
    ],
)
def test_broken_models(change: Any, text: str) -> None:
    with pytest.raises(ImportRefused, match=re.escape(text)):
        read(corrupted(change))


def test_broken_files(tmp_path: Path) -> None:
    path = tmp_path / "text.onnx"
    path.write_text("this is no model " * 9)
    with pytest.raises(ImportRefused, match=r"text.onnx \(file\): (not an ONNX file|no nodes)"):
        read(path)
    with pytest.raises(ImportRefused, match=r"cannot be read: No such file"):
        read(tmp_path / "absent.onnx")
    model = mlp(bias="grid")
    good = tmp_path / "good.onnx"
    good.write_bytes(model.SerializeToString())
    network = read(good).network
    assert dict(network.metadata)["source"] == "good.onnx"
    assert len(dict(network.metadata)["source_sha256"]) == 64
    assert network == read(str(good)).network


# --- certificates -----------------------------------------------------------------------------------------------------


def test_what_float32_rounds_differently_is_counted_and_explained() -> None:
    """Ties that float32 sees where there are none: sums of 0.1, quantized at 0.05."""
    s = Source()
    y = s.node("MatMul", [s.quant("x", 0.1, 8), s.weights(np.ones((4, 1)), 0.1)])
    y = s.quant(y, 0.02, 8)
    result = imported(s.model({"x": [4]}, [y]), 40)
    outcome = compare(result, np.random.default_rng(0).normal(0, 4, (400, 4)), rows_at_once=100)
    assert outcome["rows"] == 400
    found = outcome["outputs"][y]
    assert found["elements"] == 400
    assert found["largest"] <= 1
    if found["differ"]:
        assert "one can fall on the other side of a quantizer's threshold" in found["note"]
        assert found["rows_differ"] == found["differ"]
    assert found["argmax_differ"] is None
