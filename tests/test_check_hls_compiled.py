"""The preflight against hls4ml's C simulation: what is called wrong differs, what is called exact does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from check_hls_models import HALVES, LINE, PLANE, VECTOR, WIDE, bipolar, c, d, flat, signs, small
from stock_hls4ml import Small, executed, simulated
from test_check_hls import blocking

from hawq_flow.check_hls import check, precision, table


def rows(shape: tuple[int, ...], low: int = -128, high: int = 127, n: int = 60) -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).integers(low, high + 1, (n, *shape[1:])).astype(np.float32)


def outcome(model: Any, x: Any, folder: Path, wide: str = WIDE, **given: Any) -> float | str:
    """The share of output elements that hls4ml and qonnx's executor agree on; a text where there is nothing to
    compare."""
    expected, got = executed(model, x), simulated(model, x, folder / "p", precision=wide, **given)
    if isinstance(got, str):
        return got
    if [a.shape for a in got] != [a.shape for a in expected]:
        return f"shapes {[a.shape for a in got]} for {[a.shape for a in expected]}"
    return float(np.mean([np.mean(a == b) for a, b in zip(got, expected, strict=True)]))


def tiny(g: Small) -> str:
    """Weights of a scale that the default precision does not hold, through IntQuant."""
    return d(g, weight=g.integers(4, 3) / 8192, kind="IntQuant", scale=1 / 8192)


def twice(tensor: str, use: Any) -> Any:
    return use(tensor)


WRONG: list[tuple[str, tuple[Any, ...], Callable[[Small], Any], str]] = [
    ("zero point", VECTOR, lambda g: g.quant(d(g), signed=0, zero=100.0), "zero point 100 with a power-of-two scale"),
    (
        "zero point between",
        VECTOR,
        lambda g: g.quant(g.dense(g.quant(d(g), zero=3.0), np.ones((3, 2)))),
        "zero point 3",
    ),
    (
        "zero point of an input",
        VECTOR,
        lambda g: g.quant(g.dense(g.quant("x", signed=0, zero=128.0)), 16),
        "clips to 0..255",
    ),
    ("zero point of weights", VECTOR, lambda g: g.quant(d(g, bits=3, zero=3.0), 16), "weights with zero point 3"),
    ("half a bit", VECTOR, lambda g: g.quant(d(g), 3.5), "3.5 bits: hls4ml rounds them up to 4"),
    ("one signed bit", VECTOR, lambda g: g.quant(d(g), 1), "1 signed bit"),
    ("one signed bit of weights", VECTOR, lambda g: g.quant(d(g, bits=1), 16), "1 signed bit"),
    (
        "signs at the end",
        VECTOR,
        lambda g: bipolar(g, g.op("Add", d(g), g.constant(0.5))),
        "read by an output of the graph",
    ),
    (
        "signs added",
        VECTOR,
        lambda g: g.quant(g.op("Add", bipolar(g, g.op("Add", d(g), g.constant(0.5))), g.quant(d(g))), 16),
        "hls4ml stores -1 and 1 as the bits 0 and 1",
    ),
    (
        "sum read by a Quant and another",
        VECTOR,
        lambda g: twice(d(g), lambda t: g.op("Add", g.quant(t, 4), g.quant(g.op("Relu", t), 12, signed=0))),
        "hls4ml merges the Quant quant3 into this layer",
    ),
    (
        "sum read by two Quants, the narrow first",
        VECTOR,
        lambda g: twice(d(g), lambda t: g.op("Add", g.quant(t, 4), g.quant(t, 12))),
        "read by quant3 and by quant4",
    ),
    (
        "Relu read by two Quants",
        VECTOR,
        lambda g: twice(g.op("Relu", d(g)), lambda t: g.op("Add", g.quant(t, 4, signed=0), g.quant(t, 12, signed=0))),
        "hls4ml merges the Quant",
    ),
    (
        "convolution read by a Quant and another",
        PLANE,
        lambda g: twice(c(g), lambda t: g.op("Add", g.quant(t, 4), g.quant(g.norm(t, 0.5), 12))),
        "hls4ml merges the Quant",
    ),
    (
        "normalization read by a Quant and another",
        PLANE,
        lambda g: twice(
            g.norm(c(g), 0.5), lambda t: g.op("Add", g.quant(t, 4), g.quant(g.op("Relu", t), 12, signed=0))
        ),
        "hls4ml merges the Quant",
    ),
    (
        "input scales before a square MatMul",
        VECTOR,
        lambda g: g.quant(g.dense(g.quant("x", scale=[0.5, 0.25, 1.0, 2.0]), g.integers(4, 4)), 16, scale=0.25),
        "where they meet the outputs instead",
    ),
    (
        "GlobalAveragePool",
        PLANE,
        lambda g: g.op("GlobalAveragePool", g.quant("x")),
        "pools (1, 2, 7, 5) channels first",
    ),
    ("GlobalMaxPool", PLANE, lambda g: g.op("GlobalMaxPool", g.quant("x")), "pools (1, 2, 7, 5) channels first"),
    (
        "dilated pool",
        PLANE,
        lambda g: g.pool(g.quant("x"), dilations=[2, 2], strides=[1, 1]),
        "hls4ml pools neighbours",
    ),
    (
        "pool in ceil_mode",
        PLANE,
        lambda g: g.pool(g.quant("x"), ceil_mode=1),
        "leaves out the last, incomplete windows",
    ),
    ("softmax", VECTOR, lambda g: g.op("Softmax", g.quant(d(g), scale=1 / 16), axis=-1), "tables of fixed<18,8>"),
    (
        "two values multiplied",
        (1, 5, 4),
        lambda g: g.op("MatMul", g.quant("x"), g.op("Transpose", g.quant("x"), perm=[0, 2, 1])),
        "multiplies two values",
    ),
    (
        "one value twice",
        PLANE,
        lambda g: twice(g.quant(c(g)), lambda t: g.op("Add", t, g.op("Identity", t))),
        "twice in a convolutional part",
    ),
    (
        "a lost output",
        PLANE,
        lambda g: twice(c(g), lambda t: [t, g.quant(g.conv(t, g.integers(3, 3, 1, 1)), 16)]),
        "the conversion to channels last loses the output",
    ),
]
QUICK = ("zero point", "softmax")


@pytest.mark.parametrize(
    ("shape", "build", "says"),
    [pytest.param(*case, id=name, marks=() if name in QUICK else pytest.mark.slow) for name, *case in WRONG],
)
def test_what_is_called_wrong_differs(shape: Any, build: Any, says: str, tmp_path: Path) -> None:
    model = small(shape, build)
    found = blocking(model)
    assert [f.kind for f in found] == ["wrong"] * len(found), table(found)
    assert any(says in f.reason for f in found), table(found)
    result = outcome(model, rows(shape), tmp_path)
    assert result != 1.0, "hls4ml agrees: the rule is not true of it"
    if isinstance(result, str):
        assert result.startswith("shapes"), result


STOPS: list[tuple[str, tuple[Any, ...], Callable[[Small], Any], str, str]] = [
    (
        "depthwise of two outputs each",
        PLANE,
        lambda g: g.quant(c(g, g.integers(4, 1, 3, 3), group=2), 16),
        "",
        "depthwise",
    ),
    (
        "quotient",
        VECTOR,
        lambda g: g.quant(g.op("Div", g.quant(d(g)), g.op("Add", g.quant(d(g), signed=0), g.constant(1.0)))),
        "Failed to compile",
        "does not compile",
    ),
    (
        "Identity at the end",
        VECTOR,
        lambda g: g.op("Identity", g.quant(d(g))),
        "Failed to compile",
        "Identity gives an output",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "build", "error", "says"), [pytest.param(*case, id=name) for name, *case in STOPS])
def test_what_imports_but_stops(shape: Any, build: Any, error: str, says: str, tmp_path: Path) -> None:
    model = small(shape, build)
    assert [(f.kind, says in f.reason) for f in blocking(model)] == [("crash", True)], table(blocking(model))
    result = outcome(model, rows(shape, n=2), tmp_path)
    assert isinstance(result, str), result
    assert (error or "stopped the process") in result


@pytest.mark.slow
def test_a_product_of_vectors_in_a_row(tmp_path: Path) -> None:
    model = small((1, 5, 4), lambda g: d(g))
    (found,) = blocking(model)
    assert "multiplies a value of 2 dimensions" in found.reason
    assert "shapes" in str(outcome(model, rows((1, 5, 4)), tmp_path))


EXACT: list[tuple[str, tuple[Any, ...], Callable[[Small], Any]]] = [
    ("multiplied", VECTOR, lambda g: g.quant(g.op("Mul", d(g), g.constant(0.125)))),
    ("floor", VECTOR, lambda g: g.quant(g.op("Mul", d(g), g.constant(0.125)), mode="FLOOR")),
    ("narrow", VECTOR, lambda g: g.quant(g.dense(g.quant("x", narrow=1)), narrow=1)),
    (
        "halves",
        VECTOR,
        lambda g: g.quant(g.op("Add", d(g, scale=0.5), g.quant(g.constant([1.0, 2, 3]), scale=0.5)), scale=0.5),
    ),
    ("IntQuant", VECTOR, lambda g: g.quant(tiny(g), 16, scale=1 / 8192)),
    (
        "float weights",
        VECTOR,
        lambda g: g.quant(g.op("MatMul", g.quant("x"), g.constant(g.integers(4, 3) / 4096)), 16, scale=1 / 4096),
    ),
    ("signs as weights", VECTOR, lambda g: g.quant(g.op("MatMul", g.quant("x"), signs(g, 2.0)), 16)),
    (
        "normalized",
        PLANE,
        lambda g: g.quant(g.op("Relu", g.norm(c(g, None, g.constant([1.0, 2, 3])), HALVES)), signed=0),
    ),
    ("Relu, pool, Quant", PLANE, lambda g: g.quant(g.pool(g.op("Relu", g.norm(c(g), 0.25))), signed=0)),
    ("by channel", PLANE, lambda g: g.quant(c(g, scale=np.reshape(HALVES, (3, 1, 1, 1))), 16)),
    ("depthwise", PLANE, lambda g: g.quant(g.norm(c(g, g.integers(2, 1, 3, 3), group=2), 0.25, channels=2), 16)),
    ("line", LINE, lambda g: g.quant(g.norm(c(g, g.integers(3, 2, 3)), HALVES), 16)),
    ("residual", PLANE, lambda g: g.op("Add", g.quant(c(g)), g.quant(c(g)))),
    ("concatenated", PLANE, lambda g: g.op("Concat", g.quant(c(g)), g.quant(c(g)), axis=1)),
    ("flattened", PLANE, lambda g: flat(g, g.quant(c(g)))),
    (
        "padded pool of negative numbers",
        PLANE,
        lambda g: g.pool(g.quant(g.op("Sub", g.quant("x"), g.constant(128.0))), pads=[1] * 4),
    ),
    ("overlapping pool", PLANE, lambda g: g.pool(g.quant("x"), kernel_shape=[3, 3])),
    ("one channel pooled", (1, 1, 4, 4), lambda g: g.quant(g.op("GlobalMaxPool", g.quant("x")))),
    ("two Quants, the wide first", VECTOR, lambda g: twice(d(g), lambda t: g.op("Add", g.quant(t, 12), g.quant(t, 4)))),
    (
        "a Quant that changes nothing",
        VECTOR,
        lambda g: twice(d(g), lambda t: g.op("Add", g.quant(t, 20), g.quant(g.op("Relu", t), 12, signed=0))),
    ),
    ("Quant read by two", VECTOR, lambda g: twice(g.quant(d(g)), lambda t: g.op("Add", g.quant(t, 4), g.quant(t, 12)))),
]
LOST = ("IntQuant", "float weights", "Relu, pool, Quant")
"""Of these the default precision loses so much that it shows."""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "shape", "build"), EXACT, ids=[name for name, *_ in EXACT])
def test_the_stated_precision_is_exact(name: str, shape: Any, build: Any, tmp_path: Path) -> None:
    model = small(shape, build)
    found = check(model)
    assert not blocking(model), table(found)
    wanted = precision(found)
    assert wanted, table(found)  # the inputs of 8 bits need more than 6 integer bits
    assert outcome(model, rows(shape), tmp_path, wanted) == 1.0
    if name in LOST:
        narrow = outcome(model, rows(shape, -8, 7), tmp_path / "narrow", "fixed<16,6>")
        assert isinstance(narrow, float)
        assert narrow < 1.0


@pytest.mark.slow
def test_overlapping_windows_stop_on_streams(tmp_path: Path) -> None:
    model = small(PLANE, lambda g: g.pool(g.quant("x"), kernel_shape=[3, 3]))
    assert any("overlapping or padded" in f.reason and f.kind == "note" for f in check(model))
    assert outcome(model, rows(PLANE, n=2), tmp_path, io_type="io_stream") == "the C++ stopped the process"
    plain = small(PLANE, lambda g: g.pool(g.quant("x")))
    assert not any("overlapping" in f.reason for f in check(plain))
    assert outcome(plain, rows(PLANE), tmp_path / "plain", io_type="io_stream") == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("op", ["Sigmoid", "Tanh"])
def test_tables_are_exact_at_no_precision(op: str, tmp_path: Path) -> None:
    model = small(VECTOR, lambda g: g.quant(g.op(op, g.quant(d(g), scale=1 / 16)), 12, scale=1 / 1024))
    assert precision(check(model)) is None
    result = outcome(model, rows(VECTOR, -4, 3), tmp_path)
    assert isinstance(result, float)
    assert 0 < result < 1.0
