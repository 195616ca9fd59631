"""The smallest models that hls4ml imports, and what they are built of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import helper
from stock_hls4ml import QONNX, Small

WIDE = "fixed<64,32>"
SMALL = np.full((4, 3), 7 / 8192)
VECTOR, PLANE, LINE = (1, 4), (1, 2, 7, 5), (1, 2, 7)
HALVES = [0.5, 0.25, 1.0]
POINT = np.random.default_rng(1).integers(-7, 8, (3, 3, 1, 1)).astype(float)


def small(shape: tuple[Any, ...], build: Callable[[Small], Any], opset: int = 13) -> onnx.ModelProto:
    graph = Small(*shape)
    outputs = build(graph)
    return graph.model(*([outputs] if isinstance(outputs, str) else outputs), opset=opset)


def _variable(graph: Small, name: str = "s") -> str:
    graph.inputs.append(helper.make_tensor_value_info(name, 1, [1]))
    return name


def _twice(graph: Small, tensor: str, use: Callable[[str], Any]) -> Any:
    return use(tensor)


def d(g: Small, **quant: Any) -> str:
    """A dense layer on the quantized input."""
    return g.dense(g.quant("x"), **quant)


def c(g: Small, *args: Any, **given: Any) -> str:
    """A convolution on the quantized input."""
    return g.conv(g.quant("x"), *args, **given)


def flat(g: Small, x: str) -> str:
    return g.quant(g.op("MatMul", g.op("Flatten", x), g.quant(g.constant(g.integers(45, 4)), 4)))


def bipolar(g: Small, x: str, scale: Any = 1.0) -> str:
    return g.op("BipolarQuant", x, g.constant(scale), domain=QONNX)


def signs(g: Small, scale: Any = 1.0, shape: tuple[int, int] = (4, 3)) -> str:
    return bipolar(g, g.constant(np.where(g.integers(*shape) >= 0, 1, -1)), scale)


Case = tuple[str, tuple[Any, ...], Callable[[Small], Any], str, str, str, str]


def _bad(name: str, shape: Any, build: Any, kind: str, raised: str, says: str, op: str = "") -> Case:
    return (name, shape, build, kind, raised, says, op)


FINE: list[tuple[str, tuple[Any, ...], Callable[[Small], Any]]] = [
    ("ROUND", VECTOR, lambda g: g.quant(d(g))),
    ("FLOOR", VECTOR, lambda g: g.quant(d(g), mode="FLOOR")),
    ("signed and narrow", VECTOR, lambda g: g.quant(d(g), narrow=1)),
    ("bits (1,)", VECTOR, lambda g: g.quant(d(g), [4.0])),
    ("bits (1,) in front", PLANE, lambda g: g.quant(g.conv(g.quant("x", [8.0])))),
    ("bits (1,) between", PLANE, lambda g: g.quant(g.conv(g.quant(c(g), [8.0]), POINT))),
    ("bits (1,) of weights", PLANE, lambda g: g.quant(c(g, bits=[4.0]))),
    ("zero (1,) behind", PLANE, lambda g: g.quant(c(g), zero=[0.0])),
    ("one behind, (1,1,1,1)", PLANE, lambda g: g.quant(c(g), scale=[[[[1.0]]]])),
    *((f"scale {s}", VECTOR, lambda g, s=s: g.quant(d(g), scale=s)) for s in (0.5, [0.5], 0.3, [0.3], HALVES, 2.0)),
    *((f"scale {s} in front", PLANE, lambda g, s=s: g.quant(g.conv(g.quant("x", scale=s)))) for s in (0.5, [0.5], 0.3)),
    ("half behind", PLANE, lambda g: g.quant(c(g), scale=0.5)),
    ("half (1,) between", PLANE, lambda g: g.quant(g.conv(g.quant(g.op("Relu", c(g)), scale=[0.5]), POINT))),
    *((f"weights {s}", VECTOR, lambda g, s=s: g.quant(d(g, scale=s))) for s in (0.5, [0.5], [[0.5]], 0.3, [[0.3]])),
    *((f"kernel {s}", PLANE, lambda g, s=s: g.quant(c(g, scale=s))) for s in (0.5, [[[[0.5]]]], 0.3, [[[[0.3]]]])),
    ("kernel by channel", PLANE, lambda g: g.quant(c(g, scale=np.reshape(HALVES, (3, 1, 1, 1))))),
    ("kernel of thirds, bias", PLANE, lambda g: g.quant(c(g, None, g.constant([1.0, 2, 3]), scale=0.3))),
    *(
        (
            f"bias {b} on {s}",
            VECTOR,
            lambda g, s=s, b=b: g.quant(g.op("Add", d(g, scale=s), g.quant(g.constant([1.0, 2, 3]), scale=b))),
        )
        for s, b in ((1.0, 0.5), (0.5, 0.25), (0.3, 0.3), (0.3, 0.5))
    ),
    (
        "bias on the scale of the input",
        VECTOR,
        lambda g: g.quant(g.op("Add", g.dense(g.quant("x", scale=0.3)), g.quant(g.constant([1.0, 2, 3]), scale=0.3))),
    ),
    (
        "bias of a convolution",
        PLANE,
        lambda g: g.quant(c(g, None, g.quant(g.constant([1.0, 2, 3]), scale=0.5), scale=0.3)),
    ),
    *(
        (f"{op} by {np.shape(v)}", VECTOR, lambda g, op=op, v=v: g.quant(g.op(op, d(g), g.constant(v))))
        for op in ("Mul", "Add", "Sub", "Div")
        for v in (0.25, [0.25], HALVES, [HALVES])
    ),
    ("Mul, Relu, MatMul", VECTOR, lambda g: g.quant(g.dense(g.op("Relu", g.op("Mul", g.quant("x"), g.constant(0.5)))))),
    (
        "Mul by element, MatMul",
        VECTOR,
        lambda g: g.quant(g.dense(g.op("Mul", g.quant("x"), g.constant([0.5, 1, 2, 3])))),
    ),
    ("Add, MatMul", VECTOR, lambda g: g.quant(g.dense(g.op("Add", g.quant("x"), g.constant(0.5))))),
    ("Add, Conv", PLANE, lambda g: g.quant(g.conv(g.op("Add", g.quant("x"), g.constant(0.5))))),
    *(
        (f"{op} a scalar behind", PLANE, lambda g, op=op: g.quant(g.op(op, c(g), g.constant(0.25))))
        for op in ("Mul", "Div")
    ),
    ("Quant, Add a scalar", PLANE, lambda g: g.quant(g.op("Add", g.quant(c(g)), g.constant(0.5)))),
    (
        "Mul, then Add a scalar",
        PLANE,
        lambda g: g.quant(g.op("Add", g.op("Mul", c(g), g.constant(0.25)), g.constant(0.5))),
    ),
    (
        "normalized",
        PLANE,
        lambda g: g.quant(g.op("Relu", g.norm(c(g, None, g.constant([1.0, 2, 3])), HALVES)), signed=0),
    ),
    ("normalized floats", PLANE, lambda g: g.quant(g.norm(c(g, kind=None), HALVES))),
    ("one dimension", LINE, lambda g: g.quant(g.norm(c(g, g.integers(3, 2, 3)), HALVES))),
    ("depthwise", PLANE, lambda g: g.quant(g.norm(c(g, g.integers(2, 1, 3, 3), group=2), 0.5, channels=2))),
    ("NOTSET", PLANE, lambda g: g.quant(c(g, auto_pad="NOTSET", pads=[1, 1, 1, 1]))),
    ("pool", PLANE, lambda g: g.pool(g.quant("x"))),
    ("padded pool", PLANE, lambda g: g.pool(g.quant("x"), pads=[1, 1, 1, 1])),
    ("pool in ceil_mode that divides", (1, 2, 6, 4), lambda g: g.pool(g.quant("x"), ceil_mode=1)),
    ("pad alone", PLANE, lambda g: g.op("Pad", g.quant("x"), g.constant([0, 0, 1, 1, 0, 0, 1, 1], np.int64))),
    ("flattened", PLANE, lambda g: flat(g, g.quant(c(g)))),
    ("reshaped", PLANE, lambda g: g.op("Reshape", g.quant(c(g)), g.constant([1, -1], np.int64))),
    ("residual", PLANE, lambda g: g.op("Add", g.quant(c(g)), g.quant(c(g)))),
    ("concatenated", PLANE, lambda g: g.op("Concat", g.quant(c(g)), g.quant(c(g)), axis=1)),
    (
        "the same through Identity",
        VECTOR,
        lambda g: _twice(g, g.quant(d(g)), lambda t: g.op("Add", t, g.op("Identity", t))),
    ),
    ("two outputs", VECTOR, lambda g: [g.quant(d(g)), g.quant(d(g))]),
    (
        "an output and a layer behind",
        VECTOR,
        lambda g: _twice(g, g.quant(d(g)), lambda t: [t, g.quant(g.dense(t, np.ones((3, 2))))]),
    ),
    ("an output before Relu", PLANE, lambda g: _twice(g, g.quant(c(g)), lambda t: [t, g.quant(g.op("Relu", t))])),
    ("any batch", ("n", 4), lambda g: g.quant(d(g))),
    ("any batch of planes", ("n", 2, 7, 5), lambda g: flat(g, g.quant(c(g)))),
    *(
        (f"domain {name}", VECTOR, lambda g, name=name: g.quant(g.quant("x", domain=name), domain=name))
        for name in ("onnx.brevitas", "finn.custom_op.general", "hawq2qonnx")
    ),
    ("IntQuant", VECTOR, lambda g: g.quant(d(g, kind="IntQuant"), kind="IntQuant")),
    ("IntQuant by channel", VECTOR, lambda g: g.quant(d(g, kind="IntQuant", scale=HALVES))),
    *(
        (f"bipolar weights {s}", VECTOR, lambda g, s=s: g.quant(g.op("MatMul", g.quant("x"), signs(g, s))))
        for s in (1.0, 2.0, 0.3)
    ),
    ("bipolar values", VECTOR, lambda g: g.quant(g.dense(bipolar(g, d(g)), np.ones((3, 2))))),
    *(
        (
            f"Gemm {given}",
            VECTOR,
            lambda g, given=given: g.quant(
                g.op(
                    "Gemm",
                    g.quant("x"),
                    g.quant(g.constant(g.integers(*((3, 4) if given.get("transB") else (4, 3)))), 4),
                    g.constant([1.0, 2, 3]),
                    **given,
                )
            ),
        )
        for given in ({}, {"transB": 1}, {"alpha": 0.5})
    ),
    (
        "transposed weights",
        VECTOR,
        lambda g: g.quant(
            g.op("MatMul", g.quant("x"), g.op("Transpose", g.quant(g.constant(g.integers(3, 4)), 4), perm=[1, 0]))
        ),
    ),
    (
        "weights computed from constants",
        VECTOR,
        lambda g: g.quant(g.op("MatMul", g.quant("x"), g.op("Round", g.constant(g.integers(4, 3))))),
    ),
    (
        "weights through Cast",
        VECTOR,
        lambda g: g.quant(g.op("MatMul", g.quant("x"), g.op("Cast", g.constant(g.integers(4, 3), np.int8), to=1))),
    ),
    *(
        (op, VECTOR, lambda g, op=op: g.quant(g.op(op, g.quant(d(g)))))
        for op in (
            "Tanh",
            "Sigmoid",
            "LeakyRelu",
            "Elu",
            "Selu",
            "Softplus",
            "Softsign",
            "ThresholdedRelu",
            "Relu",
            "Identity",
            "Dropout",
        )
    ),
    *(
        (f"{op} of two", VECTOR, lambda g, op=op: g.quant(g.op(op, g.quant(d(g)), g.quant(d(g)))))
        for op in ("Add", "Sub", "Mul", "Max", "Min", "Sum")
    ),
]
