"""Files that once came out wrong, crashed or hung: numbers against exact rationals, refusals by node and text."""

from __future__ import annotations

import resource
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx_sources import Source, assert_exact

from hawq_flow.from_onnx import Imported, ImportRefused, compare, fixed_type, read
from hawq_flow.from_onnx.fitting import _biases, _Staircase, change, slopes, snapped
from hawq_flow.from_onnx.levels import MOST_LEVELS, Mode, Target
from hawq_flow.numeric import IntType, Rounding

INT = np.int64
Build = Callable[[Source, str], Any]


def one(build: Build, shape: list[int], *, opset: int = 13, **kwargs: Any) -> onnx.ModelProto:
    """A model of one input ``x`` of a shape: what ``build`` makes of its Quant of 5 bits."""
    s = Source(opset=opset)
    output = build(s, s.quant("x", 0.5, 5))
    return s.model({"x": shape}, output if isinstance(output, list) else [output], **kwargs)


def text_of(model: onnx.ModelProto) -> str:
    with pytest.raises(ImportRefused) as caught:
        read(model)
    assert len(caught.value.refusals) == 1, str(caught.value)
    return str(caught.value.refusals[0])


def weights(s: Source, shape: tuple[int, ...], seed: int = 1) -> str:
    return str(s.weights(np.random.default_rng(seed).integers(-7, 8, shape), 0.5, 4))


# --- one number for each channel is not one for each column ----------------------------------------------------------


def conv_4_by_4(s: Source, x: str) -> str:
    """(1, 4, 3, 4): as many columns as channels."""
    return str(s.node("Conv", [x, weights(s, (4, 2, 1, 1))]))


COLUMN = (1, 1, 1, 4)
EXACT: dict[str, tuple[Build, list[int]]] = {
    "a bias by column": (
        lambda s, x: s.node("Add", [conv_4_by_4(s, x), s.const(8.0 * np.arange(4).reshape(COLUMN))]),
        [2, 3, 4],
    ),
    "a sign by column": (
        lambda s, x: s.quant(s.node("Mul", [conv_4_by_4(s, x), s.const(np.reshape([1, -1, 1, -1], COLUMN))]), 8.0, 6),
        [2, 3, 4],
    ),
    "a clip by column": (
        lambda s, x: s.node(
            "Conv",
            [
                s.node("Relu", [s.node("Add", [conv_4_by_4(s, x), s.const(np.reshape([1, -1, 3, -2], COLUMN))])]),
                weights(s, (2, 4, 1, 1), 2),
            ],
        ),
        [2, 3, 4],
    ),
    "a bias by position of a one-dimensional convolution": (
        lambda s, x: s.quant(
            s.node("Add", [s.node("Conv", [x, weights(s, (4, 2, 1))]), s.const(4.0 * np.arange(4))]), 2.0, 6
        ),
        [2, 4],
    ),
    "a bias by row of a matrix product": (
        lambda s, x: s.node("Add", [s.node("MatMul", [x, weights(s, (3, 4))]), s.const(2.0 * np.arange(4)[:, None])]),
        [4, 3],
    ),
    "a product of a negated value with an offset": (
        lambda s, x: s.node("Mul", [s.node("Sub", [s.const(5.0), x]), x]),
        [4],
    ),
    "a clip above the interval": (
        lambda s, x: s.node("MatMul", [s.node("Clip", [x, s.const(10.0), s.const(20.0)]), weights(s, (4, 2))]),
        [4],
    ),
    "a clip below the interval": (
        lambda s, x: s.node("MatMul", [s.node("Clip", [x, s.const(-20.0), s.const(-10.0)]), weights(s, (4, 2))]),
        [4],
    ),
    "a clip that lies outside of some channels' intervals": (
        lambda s, x: s.node(
            "MatMul",
            [
                s.node("Clip", [s.node("Add", [x, s.const([14.0, 5.0, 0.0, -9.5])]), s.const(-6.5), s.const(-6.0)]),
                weights(s, (4, 2)),
            ],
        ),
        [4],
    ),
    "positions in the batch's axis": (
        lambda s, x: s.node(
            "Reshape",
            [
                s.node("MatMul", [s.node("Reshape", [x, s.const([-1, 3], INT)]), weights(s, (3, 5))]),
                s.const([-1, 20], INT),
            ],
        ),
        [12],
    ),
    "a constant channel before a clip": (
        lambda s, x: s.node(
            "Conv",
            [
                s.node(
                    "Relu",
                    [
                        s.node(
                            "BatchNormalization",
                            [x, *(s.const(v) for v in ([1.0, 0.0], [0.0, 1.5], [0.0, 0.0], [1.0, 1.0]))],
                            epsilon=0.0,
                        )
                    ],
                ),
                weights(s, (2, 2, 1, 1)),
            ],
        ),
        [2, 3, 3],
    ),
    "bipolar values averaged with padding": (
        lambda s, x: s.node(
            "AveragePool",
            [s.node("BipolarQuant", [x, s.const(0.75)], s.domain)],
            kernel_shape=[3, 3],
            pads=[1, 1, 1, 1],
        ),
        [2, 4, 4],
    ),
    "a sum of three": (lambda s, x: s.node("Sum", [x, x, s.const([1.0, 2.0])]), [2]),
    "a maximum with two constants": (lambda s, x: s.node("Max", [s.const(-1.0), x, s.const([0.5, -2.0])]), [2]),
    "a maximum of one": (lambda s, x: s.node("Max", [x]), [2]),
}


@pytest.mark.parametrize("name", EXACT)
def test_exact(name: str) -> None:
    build, shape = EXACT[name]
    model = one(build, shape)
    assert_exact(model, read(model), 12)


# --- what onnxruntime computes ---------------------------------------------------------------------------------------


def qdq(s: Source, x: str) -> str:
    parameters = [s.const(0.25), s.const(0, np.int8)]
    return str(s.node("DequantizeLinear", [s.node("QuantizeLinear", [x, *parameters]), *parameters]))


def times_6(s: Source, x: str) -> str:
    return str(s.node("Mul", [s.node("Cast", [s.node("Round", [x])], to=TensorProto.INT32), s.const(6, np.int32)]))


RUNS: dict[str, tuple[Build, list[int], int]] = {
    "a ReduceSum of no axes": (lambda s, x: s.node("ReduceSum", [x], noop_with_empty_axes=1), [4], 18),
    "a part of the shape": (
        lambda s, x: s.node("Mul", [x, s.node("Cast", [s.node("Shape", [x], start=1, end=2)], to=1)]),
        [3, 2],
        15,
    ),
    "a Resize of some axes": (
        lambda s, x: s.node(
            "Resize",
            [x, "", s.const([2.0, 3.0])],
            axes=[3, 2],
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        ),
        [2, 2, 3],
        19,
    ),
    "weights that a Cast changes": (
        lambda s, x: s.node(
            "MatMul",
            [
                x,
                s.node(
                    "Cast",
                    [
                        s.node(
                            "Cast",
                            [
                                s.node(
                                    "DequantizeLinear",
                                    [s.const([[1], [2], [3], [5]], np.int8), s.const(0.5), s.const(0, np.int8)],
                                )
                            ],
                            to=6,
                        )
                    ],
                    to=1,
                ),
            ],
        ),
        [4],
        13,
    ),
    "integers that int32 holds": (
        lambda s, x: s.node("Cast", [s.node("Div", [times_6(s, x), s.const(-3, np.int32)])], to=1),
        [4],
        14,
    ),
    "an infinite table clipped": (
        lambda s, x: s.node(
            "Cast",
            [
                s.node(
                    "QuantizeLinear",
                    [s.node("Exp", [s.node("Mul", [x, s.const(32.0)])]), s.const(1.0), s.const(0, np.uint8)],
                )
            ],
            to=1,
        ),
        [4],
        13,
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_as_onnxruntime_computes(name: str) -> None:
    build, shape, opset = RUNS[name]
    s = Source(opset=opset)
    model = s.model({"x": shape}, [s.node("Identity", [build(s, qdq(s, "x"))])])
    found = read(model)
    raw = np.concatenate([np.random.default_rng(0).normal(0, 12, (30, *shape)), np.full((1, *shape), -40.0)])
    (outcome,) = compare(found, raw)["outputs"].values()
    assert outcome["elements"] > 0
    assert (outcome["differ"], outcome["off_grid"]) == (0, 0)


def test_both_outputs_of_a_topk_are_left_in_float() -> None:
    model = one(lambda s, x: s.node("TopK", [x, s.const([2], INT)], outputs=2), [4])
    assert [entry.left for entry in read(model).outputs] == ["TopK", "TopK"]


# --- refusals --------------------------------------------------------------------------------------------------------


def to_int8(s: Source, x: str) -> str:
    return str(s.node("QuantizeLinear", [x, s.const(0.5), s.const(0, np.int8)]))


def to_uint8(s: Source, x: str) -> str:
    return str(s.node("QuantizeLinear", [x, s.const(0.5), s.const(0, np.uint8)]))


BATCH_NORM = ([1.0, 1.0], [0.0, 0.0], [0.0, 0.0], [1.0, 1.0])


def batch_norm(s: Source, x: str, **changed: list[float]) -> str:
    names = ("scale", "bias", "mean", "variance")
    parts = [changed.get(name, given) for name, given in zip(names, BATCH_NORM, strict=True)]
    return str(s.node("BatchNormalization", [x, *(s.const(part) for part in parts)]))


REFUSED: dict[str, tuple[Build, str]] = {
    "rows of an output": (
        lambda s, x: s.node("Reshape", [x, s.const([2, 1], INT)]),
        "output): the output has shape (2, 1) for one row; expected the batch as its first axis",
    ),
    "a bound by channel behind a table": (
        lambda s, x: s.quant(s.node("Max", [s.node("Abs", [x]), s.const([0.0, 3.0])]), 0.25),
        "(Max): a bound for each channel behind a Abs",
    ),
    "a product with a constant channel": (
        lambda s, x: s.node(
            "Mul", [s.node("Add", [s.node("Mul", [x, s.const([1.0, 0.0])]), s.const(3.0)]), s.quant("x", 0.25)]
        ),
        "(Mul): multiplies a value that has constant channels (scale 0) of an offset",
    ),
    "a raw cast": (
        lambda s, x: s.node("Cast", ["x"], to=TensorProto.INT32),
        "(Cast): casts the input 'x' to int32, which truncates real numbers",
    ),
    "integer division": (
        lambda s, x: s.node("Div", [to_int8(s, x), s.const(3, np.int8)]),
        "(Div): makes numbers that are not whole in int8, which truncates",
    ),
    "a subtraction that wraps": (
        lambda s, x: s.node("Sub", [to_uint8(s, x), s.const(10, np.uint8)]),
        "(Sub): makes integers from -10 to 5 in uint8, which would wrap",
    ),
    "a shift that wraps": (
        lambda s, x: s.node("BitShift", [to_uint8(s, x), s.const(6, np.uint8)], direction="LEFT"),
        "in uint8, which would wrap",
    ),
    "an absolute value that wraps": (
        lambda s, x: s.node("Abs", [to_int8(s, s.node("Mul", [x, s.const(99.0)]))]),
        "(Abs): makes numbers that int8 does not hold",
    ),
    "float16": (
        lambda s, x: s.node("Cast", [s.node("Mul", [x, s.const(1001.0)])], to=TensorProto.FLOAT16),
        "(Cast): makes numbers in float16 that its 11 bits would round",
    ),
    "dropout in training": (
        lambda s, x: s.node("Dropout", [x, s.const(0.5), s.const(True, bool)]),
        "(Dropout): drops elements at random (training mode)",
    ),
    "all axes": (lambda s, x: s.node("ReduceSum", [x], keepdims=0), "(ReduceSum): names no axes, which means all"),
    "an output without a rule": (
        lambda s, x: s.node("MaxPool", [s.node("Unsqueeze", [x, s.const([1], INT)])], outputs=2, kernel_shape=[2]),
        "(output): is output 1 of MaxPool_2, a MaxPool, which this reader does not compute",
    ),
    "a reader of an output without a rule": (
        lambda s, x: s.node(
            "Cast",
            [s.node("MaxPool", [s.node("Unsqueeze", [x, s.const([1], INT)])], outputs=2, kernel_shape=[2])[1]],
            to=1,
        ),
        "Cast_3 (Cast): reads output 1 of MaxPool_2, a MaxPool",
    ),
    "a lower bound of infinity": (lambda s, x: s.node("Clip", [x, s.const(np.inf)]), "(Clip): clips to infinity"),
    "an upper bound of minus infinity": (
        lambda s, x: s.node("Clip", [x, "", s.const(-np.inf)]),
        "(Clip): clips to infinity",
    ),
    "a bound that is NaN": (lambda s, x: s.node("Clip", [x, s.const(np.nan)]), "a bound that is NaN"),
    "weights with scale 0": (
        lambda s, x: s.node("Mul", [x, s.node("QuantizeLinear", [s.const([1.0, 2.0]), s.const(0.0)])]),
        "(QuantizeLinear): scale 0; expected positive",
    ),
    "a mean that is NaN": (
        lambda s, x: batch_norm(s, x, mean=[0.0, np.nan]),
        "(BatchNormalization): its mean holds NaN or infinity; expected numbers",
    ),
    "a negative variance": (
        lambda s, x: batch_norm(s, x, variance=[1.0, -1.0]),
        "a variance of -1 with epsilon 1e-05; expected a positive sum",
    ),
    "a scale that is NaN": (
        lambda s, x: s.node("DequantizeLinear", [to_int8(s, x), s.const(np.nan), s.const(0, np.int8)]),
        "(DequantizeLinear): its scale holds NaN or infinity",
    ),
    "a bias that is infinite": (
        lambda s, x: s.node("Gemm", [x, weights(s, (2, 2)), s.const([1.0, np.inf])]),
        "(Gemm): its bias holds NaN or infinity",
    ),
    "a huge offset": (
        lambda s, x: s.node("Add", [x, s.const(1e30)]),
        "(output): the output has an offset of 2e+30 of its units, more than integers hold",
    ),
    "a huge scale": (
        lambda s, x: s.node("Mul", [s.node("Mul", [x, s.const(1e200, np.float64)]), s.const(1e200, np.float64)]),
        "(output): its scale or offset is no number of float64",
    ),
    "a clip between two integers": (
        lambda s, x: s.node("Clip", [x, s.const(-1.1)]),
        "the clip's bound is not on the grid of the integers it clips",
    ),
    "a bias between two integers": (
        lambda s, x: s.node("Relu", [s.node("Add", [x, s.const(0.3)])]),
        "the bias is not on the grid of its sums",
    ),
    "an infinite table": (
        lambda s, x: s.node("Round", [s.node("Exp", [s.node("Mul", [x, s.const(200.0)])])]),
        "(Round): rounds a Exp that is infinite for some integers",
    ),
    "two values": (lambda s, x: s.node("Max", [x, s.quant("x", 0.25), s.const(1.0)]), "(Max): Max of 2 values"),
    "an axis that is not there": (
        lambda s, x: s.node("Concat", [x, x], axis=7),
        "(Concat): names axis 7 of a tensor of 2 axes; expected -2 to 1",
    ),
    "an attribute of another type": (
        lambda s, x: s.node("Concat", [x, x], axis="1"),
        "(Concat): has the attribute axis as STRING; expected INT",
    ),
    "inputs that are missing": (lambda s, x: s.node("Add", [x]), "(Add): has 1 inputs; a Add has 2 at least"),
    "pads that are missing": (
        lambda s, x: s.node("Pad", [x, s.const([1, 1], INT)]),
        "(Pad): has 2 pads for 2 axes; expected 4",
    ),
    "scales that are missing": (
        lambda s, x: s.node("Resize", [x, "", s.const([1.0])]),
        "(Resize): has 1 scales or sizes for 2 axes",
    ),
    "weights without elements": (
        lambda s, x: s.node("MatMul", [x, s.const(np.zeros((2, 0)))]),
        "weights of shape (2, 0); expected an axis at least, and elements",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    build, text = REFUSED[name]
    assert text in text_of(one(build, [2], opset=14))


def test_weights_without_elements_behind_a_refused_node_are_refused_too() -> None:
    model = one(lambda s, x: s.node("MatMul", [s.node("Pow", [x, s.const(2.0)]), s.const(np.zeros((0, 3)))]), [2])
    with pytest.raises(ImportRefused, match=r"weights of shape \(0, 3\)"):
        read(model)


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        ("not json", "hawq_flow.inputs 'not json' cannot be read (Expecting value"),
        ("[1]", "hawq_flow.inputs '[1]' cannot be read"),
        ('{"x": {"type": "uint99"}}', "cannot be read (IntType: width 99"),
        ('{"x": {"type": "int9"}}', "which the file's own"),
    ],
)
def test_metadata_of_inputs_that_make_no_sense(metadata: str, text: str) -> None:
    s = Source()
    model = s.model({"x": [2]}, [s.node("Identity", ["x"])], elem=TensorProto.INT8)
    entry = model.metadata_props.add()
    entry.key, entry.value = "hawq_flow.inputs", metadata
    assert text in text_of(model)


# --- too many levels -------------------------------------------------------------------------------------------------


def wide(channels: int, bits: int, out_bits: int, scale: float = 0.0731) -> onnx.ModelProto:
    rng = np.random.default_rng(5)
    s = Source()
    x = s.quant("x", 0.1, bits)
    x = s.node("Mul", [x, s.const(rng.uniform(0.3, 1, (channels, 1)))])
    x = s.node("Add", [x, s.const(rng.uniform(-1, 1, (channels, 1)))])
    return s.model({"x": [channels, 1]}, [s.quant(x, scale, out_bits)])


@pytest.mark.parametrize(
    ("channels", "bits", "out_bits", "scale", "text"),
    [
        (64, 16, 16, 0.0731, "1 or more of its 64 channels have a scale that no integer multiplier"),
        (1, 32, 32, 0.073, "levels of 4294967296 integers, too many to count"),
        (8, 24, 24, 0.0731, "levels of 16777216 integers, too many to count"),
        (1, 8, 32, 1e-7, "no integer multiplier of 24 bits"),
    ],
)
def test_too_many_levels_are_refused_at_once(channels: int, bits: int, out_bits: int, scale: float, text: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert text in text_of(wide(channels, bits, out_bits, scale))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400_000  # kB; was up to 235 GB


def test_few_integers_with_many_levels_are_a_table() -> None:
    model = wide(1, 6, 24, 1e-6)
    found = read(model)
    assert [op.kind for op in found.network.ops] == ["Lookup"]
    assert_exact(model, found, 40)


def target(last: int, slope: Fraction, high: int | None) -> Target:
    return Target(slope, Fraction(1, 3), Mode.ROUND, 0, 0, high, 0, last)


def test_a_change_is_the_same_counted_by_levels_and_by_integers() -> None:
    """The slope 2^20 / 3 has few integers and many levels; halved integers have few of both: counted both ways."""
    few = target(60, Fraction(1, 3), 255)
    fit = snapped(few, Rounding.HALF_EVEN, 0, Fraction(1, 100))
    assert fit is not None
    found = change(fit, few)
    apart = np.abs(np.clip(fit(np.arange(61)), 0, 255) - few.table)
    assert (found.integers, found.levels) == (int((apart > 0).sum()), int(apart.max()))
    many = target(60, Fraction(1 << 20, 3), None)
    assert many.span > MOST_LEVELS
    fit = snapped(many, Rounding.HALF_EVEN, 0, Fraction(1, 100))
    assert fit is not None
    found = change(fit, many)
    apart = np.abs(fit(np.arange(61)) - many.table)
    assert (found.integers, found.levels) == (int((apart > 0).sum()), int(apart.max()))
    assert found.integers > 0


def test_the_hull_of_a_staircase_allows_the_same_slopes() -> None:
    rng = np.random.default_rng(0)
    feasible = 0
    for mode in [*Mode, *Mode]:
        first = int(rng.integers(-200, 1))
        low, high = (-40, None) if rng.integers(2) else (None, 60)
        slope, intercept = Fraction(int(rng.integers(1, 4000)), 1009), Fraction(int(rng.integers(-500, 500)), 97)
        goal = Target(slope, intercept, mode, int(rng.integers(-3, 4)), low, high, first, first + 250)
        steps = _Staircase.of(goal)
        for rounding in Rounding:
            for bias, offset in _biases(goal, 0, rounding):
                for extra in range(round(bias * 64) - 2, round(bias * 64) + 3):
                    wanted = slopes(steps, 64, extra, offset, rounding)
                    assert slopes(steps.binding, 64, extra, offset, rounding) == wanted
                    feasible += wanted is not None
    assert feasible > 40


def test_the_hull_of_a_long_staircase_is_small() -> None:
    steps = _Staircase.of(Target(Fraction(7919, 10007), Fraction(1, 3), Mode.ROUND, 0, None, None, -30000, 30000))
    assert steps.levels.size > 40000
    assert steps.binding.levels.size < 200


# --- the certificate -------------------------------------------------------------------------------------------------


def test_a_quant_that_leaves_its_attributes_out_is_compared() -> None:
    s = Source()
    y = s.node("Quant", ["x", s.const(0.5), s.const(0.0), s.const(4.0)], s.domain)
    found = read(s.model({"x": [3]}, [y]))
    outcome = compare(found, np.random.default_rng(0).normal(0, 3, (20, 3)))["outputs"][y]
    assert (outcome["differ"], outcome["off_grid"]) == (0, 0)


def fixed_rows() -> Imported:
    """A file of standard operators whose Reshape holds one row."""
    s = Source()
    x = s.node("Reshape", [qdq(s, "x"), s.const([1, 4], INT)])
    return read(s.model({"x": [2, 2]}, [s.node("Mul", [x, s.const(2.0)])]))


def test_a_file_of_one_row_is_compared_row_by_row_without_a_word(capfd: pytest.CaptureFixture[str]) -> None:
    outcome = compare(fixed_rows(), np.random.default_rng(0).normal(0, 9, (5, 2, 2)))
    assert outcome["executor"] == "onnxruntime, float32, optimization off, row by row"
    assert all(entry["differ"] == 0 for entry in outcome["outputs"].values())
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")


@pytest.mark.parametrize("quantizer", [False, True])
def test_the_note_says_what_float32_did(quantizer: bool) -> None:
    s = Source()
    x = s.node("Mul", [s.quant("x", 1.0, 24), s.const(float((1 << 23) - 1))])
    y = s.node("MatMul", [x, s.weights(np.array([[3], [1]]), 1.0, 3)])
    if quantizer:
        y = s.quant(y, float(1 << 26), 24)
    found = read(s.model({"x": [2]}, [y]))
    raw = np.random.default_rng(0).integers(-(1 << 22), 1 << 22, (300, 2)) | 1
    note = compare(found, raw)["outputs"][y]["note"]
    assert "runs in float32, which rounds sums and products of more than 24 bits" in note
    assert ("other side of a quantizer's threshold" in note) is quantizer


@pytest.mark.parametrize(
    ("text", "type", "fraction"),
    [("int8", IntType(8, True), 0), ("uint12", IntType(12, False), 0), ("ap_fixed<16,6>", IntType(16, True), 10)],
)
def test_types_of_declared_inputs(text: str, type: IntType, fraction: int) -> None:
    assert fixed_type(text) == (type, fraction)
