"""Files that hold what no tool should write: named ones, and random damage to the smallest models."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from check_hls_models import FINE, PLANE, VECTOR, bipolar, c, d, signs, small
from onnx import helper, numpy_helper
from stock_hls4ml import QONNX, Small, copied

BROKEN = b"abc"
OPERATORS = [
    "Quant",
    "Conv",
    "MatMul",
    "Gemm",
    "Resize",
    "Pad",
    "Softmax",
    "BatchNormalization",
    "Concat",
    "MaxPool",
    "BipolarQuant",
    "Transpose",
    "Reshape",
    "Div",
    "PRelu",
    "Trunc",
    "Upsample",
    "IntQuant",
    "QuantizeLinear",
    "Identity",
    "Dropout",
    "Shape",
    "Constant",
    "GlobalAveragePool",
]


def mutant(seed: int) -> onnx.ModelProto:
    """One of the smallest models with one to three random faults."""
    rng = random.Random(seed)
    _, shape, build = rng.choice(FINE)
    model = small(shape, build)
    for _ in range(rng.randint(1, 3)):
        _damage(rng, model.graph)
    return model


def _damage(rng: random.Random, graph: onnx.GraphProto) -> None:
    node, kind = rng.choice(graph.node), rng.randint(0, 9)
    if kind == 0 and node.input:
        del node.input[rng.randrange(len(node.input)) :]
    elif kind == 1 and node.attribute:
        del node.attribute[rng.randrange(len(node.attribute))]
    elif kind == 2 and node.input:
        node.input[rng.randrange(len(node.input))] = ""
    elif kind == 3 and node.input:
        node.input[rng.randrange(len(node.input))] = rng.choice([*rng.choice(graph.node).output, "nothing", "x"])
    elif kind == 4:
        node.op_type = rng.choice(OPERATORS)
    elif kind == 5 and graph.initializer:
        tensor = rng.choice(graph.initializer)
        if tensor.raw_data != BROKEN:
            array = np.asarray(_spoiled(rng, numpy_helper.to_array(tensor)))
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    elif kind == 6 and node.attribute:
        entry = rng.choice(node.attribute)
        value = rng.choice([1, -1, [1], [0, 0], "x", 2.5, float("nan"), [1, 1, 1, 1], [-1, -1]])
        entry.CopyFrom(helper.make_attribute(entry.name, value))
    elif kind == 7 and node.output:
        node.output[0] = rng.choice(["", "x", rng.choice(graph.node).output[0] if graph.node[0].output else ""])
    elif kind == 8 and graph.initializer:
        rng.choice(graph.initializer).raw_data = BROKEN
    elif kind == 9:
        shuffled = list(graph.node)
        rng.shuffle(shuffled)
        del graph.node[:]
        graph.node.extend(shuffled)


def _spoiled(rng: random.Random, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Another array in the place of a constant."""
    if array.dtype.kind not in "fiu":
        return array
    with np.errstate(all="ignore"):
        given = array.astype(np.float32)
        return rng.choice(
            [
                *(given * np.float32(factor) for factor in (np.nan, np.inf, 0, -1)),
                *(np.zeros(shape, np.float32) for shape in ((0,), (2, 0))),
                given[None],
                given.astype(np.float64),
                given.astype(np.float16),
                np.array(["a"], dtype=object),
                np.array([True]),
            ]
        )


def _changed(change: Callable[[onnx.ModelProto], Any]) -> Callable[[], onnx.ModelProto]:
    """Two layers, and a fault that no builder makes."""

    def build() -> onnx.ModelProto:
        model = copied(small(VECTOR, lambda g: g.quant(g.dense(g.quant(d(g)), np.ones((3, 2))))))
        change(model)
        return model

    return build


def _built(shape: Any, build: Callable[[Small], Any]) -> Callable[[], onnx.ModelProto]:
    return lambda: small(shape, build)


def _set(target: Any, place: int, value: Any) -> None:
    target[place] = value


def _info(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, 1, [1, 4])


NAN = float("nan")
Fault = tuple[str, Callable[[], onnx.ModelProto], str, str, str]
"""Name, model, kind of finding, what hls4ml raises ('' where it imports), and what the finding says."""

FAULTS: list[Fault] = [
    # bits and scales
    ("bits NaN", _built(VECTOR, lambda g: g.quant(d(g), NAN)), "crash", "NaN", "nan bits"),
    ("bits infinite", _built(VECTOR, lambda g: g.quant(d(g), np.inf)), "crash", "OverflowError", "inf bits"),
    ("bits empty", _built(VECTOR, lambda g: g.quant(d(g), [])), "refused", "Only scalar", "bit width is an empty"),
    ("bits 0", _built(VECTOR, lambda g: g.quant(d(g), 0)), "crash", "", "0 bits hold no number; its C++"),
    ("bits -3", _built(VECTOR, lambda g: g.quant(d(g), -3)), "crash", "", "-3 bits hold no number"),
    ("bits of weights 0", _built(VECTOR, lambda g: g.quant(d(g, bits=0))), "wrong", "", "0 bits hold no number"),
    (
        "bits 2000",
        _built(VECTOR, lambda g: g.quant(d(g), 2000)),
        "crash",
        "",
        "2000 bits; the C++ stops at more than 1024",
    ),
    ("scale 0", _built(VECTOR, lambda g: g.quant(d(g), scale=0)), "wrong", "", "scale 0: QONNX divides"),
    ("scale of weights 0", _built(VECTOR, lambda g: g.quant(d(g, scale=0))), "wrong", "", "scale 0: QONNX divides"),
    ("scale NaN", _built(VECTOR, lambda g: g.quant(d(g), scale=NAN)), "wrong", "", "its scale is nan, no number"),
    ("scale infinite", _built(VECTOR, lambda g: g.quant(d(g), scale=np.inf)), "wrong", "", "its scale is inf"),
    ("scale empty", _built(VECTOR, lambda g: g.quant(d(g), scale=[])), "wrong", "", "its scale is an empty array"),
    ("zero point NaN", _built(VECTOR, lambda g: g.quant(d(g), zero=NAN)), "wrong", "", "its zero point is nan"),
    ("zero point empty", _built(VECTOR, lambda g: g.quant(d(g), zero=[])), "wrong", "", "zero point is an empty"),
    (
        "scale of signs NaN",
        _built(VECTOR, lambda g: g.quant(g.dense(bipolar(g, d(g), NAN), np.ones((3, 2))))),
        "wrong",
        "",
        "its scale is nan",
    ),
    (
        "scale of signs empty",
        _built(VECTOR, lambda g: g.quant(g.op("MatMul", g.quant("x"), signs(g, [])))),
        "wrong",
        "",
        "its scale is an empty array",
    ),
    (
        "five scales on four",
        _built(VECTOR, lambda g: g.quant(d(g, scale=[1, 2, 1, 1, 1.0]))),
        "crash",
        "could not be broadcast",
        "parameters of shapes (5), (), () do not broadcast to its constant (4, 3)",
    ),
    # constants
    (
        "weights of no size",
        _built(VECTOR, lambda g: g.op("MatMul", g.quant("x"), g.constant(np.zeros((4, 0))))),
        "crash",
        "zero-size array to reduction",
        "of shape (4, 0) holds no number",
    ),
    (
        "divided by 0",
        _built(VECTOR, lambda g: g.quant(g.op("Div", d(g), g.constant([0.0, 1, 2])))),
        "wrong",
        "",
        "which holds 0",
    ),
    (
        "NaN added",
        _built(VECTOR, lambda g: g.quant(g.op("Add", d(g), g.constant([NAN, 1, 2])))),
        "wrong",
        "",
        "holds nan, no number",
    ),
    (
        "NaN weights",
        _built(VECTOR, lambda g: g.quant(g.dense(g.quant("x"), np.full((4, 3), NAN)))),
        "wrong",
        "",
        "holds nan, no number",
    ),
    ("NaN factor", _built(PLANE, lambda g: g.quant(g.norm(c(g), NAN))), "wrong", "", "holds nan, no number"),
    (
        "texts added",
        _built(VECTOR, lambda g: g.quant(g.op("Add", d(g), g.constant(["a", "b", "c"], object)))),
        "crash",
        "TypeError",
        "a constant of texts",
    ),
    (
        "negative variance",
        _built(
            PLANE,
            lambda g: g.quant(
                g.op("BatchNormalization", c(g), *(g.constant(np.full(3, n)) for n in (1.0, 1.0, 1.0, -1.0)))
            ),
        ),
        "wrong",
        "",
        "a variance of -1, which has no square root",
    ),
    (
        "normalization of no channels",
        _built(VECTOR, lambda g: g.quant(g.op("BatchNormalization", d(g), *[g.constant([])] * 4))),
        "crash",
        "zero-size array",
        "holds no number",
    ),
    (
        "normalization of four channels",
        _built(VECTOR, lambda g: g.quant(g.op("BatchNormalization", d(g), *[g.constant(np.ones(4))] * 4))),
        "wrong",
        "",
        "normalizes 3 channels with [4, 4, 4, 4] numbers",
    ),
    (
        "slope NaN",
        _built(VECTOR, lambda g: g.quant(g.op("LeakyRelu", d(g), alpha=NAN))),
        "wrong",
        "",
        "its attribute 'alpha' is nan, no number",
    ),
    (
        "constants alone",
        _built(VECTOR, lambda g: g.quant(g.constant(g.integers(1, 3)))),
        "crash",
        "IndexError",
        "an output of constants alone",
    ),
    (
        "an output of constants",
        _built(VECTOR, lambda g: [g.quant(d(g)), g.quant(g.constant(g.integers(1, 3)))]),
        "crash",
        "IndexError",
        "an output of constants alone",
    ),
    # shapes
    (
        "product of other sizes",
        _built(VECTOR, lambda g: g.quant(g.dense(g.quant("x"), np.ones((5, 3))))),
        "crash",
        "Could not find the shape",
        "shape inference says 'Incompatible dimensions for matrix multiplication'",
    ),
    (
        "convolution of other channels",
        _built(PLANE, lambda g: g.quant(g.conv(g.quant("x"), np.ones((3, 5, 3, 3))))),
        "wrong",
        "",
        "weights of shape (3, 5, 3, 3) in 1 groups do not fit a value of 2 channels",
    ),
    (
        "one stride of two",
        _built(PLANE, lambda g: g.quant(c(g, strides=[1]))),
        "crash",
        "All tensor shapes must be specified",
        "'Attribute strides has incorrect size'",
    ),
    (
        "an axis too many",
        _built(VECTOR, lambda g: g.op("Transpose", g.quant("x"), perm=[0, 0])),
        "wrong",
        "",
        "shape inference says 'Attribute perm",
    ),
    # operands and attributes
    ("MatMul of one", _built(VECTOR, lambda g: g.op("MatMul", g.quant("x"))), "crash", "Assertion", "1 operands and"),
    ("Relu of two", _built(VECTOR, lambda g: g.op("Relu", d(g), d(g))), "wrong", "", "2 operands, and Relu takes 1"),
    (
        "Quant of three",
        _built(
            VECTOR,
            lambda g: g.op(
                "Quant", d(g), *map(g.constant, (1.0, 0.0)), domain=QONNX, signed=1, narrow=0, rounding_mode="ROUND"
            ),
        ),
        "crash",
        "IndexError",
        "it has 3 operands and needs 4",
    ),
    (
        "Concat without axis",
        _built(VECTOR, lambda g: g.quant(g.op("Concat", d(g), d(g)))),
        "crash",
        "Could not find the shape",
        "no attribute 'axis', which Concat must have",
    ),
    *(
        (
            f"Quant without {name}",
            _built(
                VECTOR,
                lambda g, name=name: g.op(
                    "Quant",
                    d(g),
                    *map(g.constant, (1.0, 0.0, 8.0)),
                    domain=QONNX,
                    **{key: value for key, value in _SPOKEN.items() if key != name},
                ),
            ),
            kind,
            raised,
            f"no attribute '{name}'",
        )
        for name, kind, raised in (
            ("rounding_mode", "refused", "Unexpected value of attribute"),
            ("signed", "wrong", ""),
        )
    ),
    (
        "signed is a text",
        _built(
            VECTOR,
            lambda g: g.op(
                "Quant",
                d(g),
                *map(g.constant, (1.0, 0.0, 8.0)),
                domain=QONNX,
                signed="a",
                narrow=0,
                rounding_mode="ROUND",
            ),
        ),
        "wrong",
        "",
        "its attribute 'signed' is STRING; expected INT",
    ),
    (
        "an attribute of no type",
        _changed(lambda m: setattr(m.graph.node[0].attribute[0], "type", 0)),
        "wrong",
        "",
        "its attribute",
    ),
    (
        "Max of one and none",
        _built(VECTOR, lambda g: g.quant(g.op("Max", d(g), ""))),
        "crash",
        "Could not find the shape",
        "it has 1 operands and needs 2",
    ),
    (
        "Trunc of four",
        _built(VECTOR, lambda g: g.op("MatMul", g.quant("x"), g.op("Trunc", *[g.constant(4.0)] * 4, domain=QONNX))),
        "crash",
        "Error",
        "it has 4 operands and needs 5",
    ),
    (
        "Relu of QONNX",
        _built(VECTOR, lambda g: g.quant(g.op("Relu", d(g), domain=QONNX))),
        "refused",
        "Custom op_type Relu is currently not supported",
        "'Custom op_type Relu is currently not supported'",
    ),
    (
        "a bias that is a value",
        _built(PLANE, lambda g: g.quant(c(g, None, "x"))),
        "crash",
        "IndexError",
        "its bias is not constant",
    ),
    (
        "a mean that is a value",
        _built(
            VECTOR,
            lambda g: g.quant(
                g.op("BatchNormalization", d(g), *[g.constant(np.ones(3))] * 2, g.quant("x"), g.constant(np.ones(3)))
            ),
        ),
        "crash",
        "Only constant moving_means supported",
        "is not constant; hls4ml fails with 'TypeError: Only constant",
    ),
    (
        "Transpose without perm",
        _built(VECTOR, lambda g: g.quant(g.op("Transpose", d(g)))),
        "crash",
        "IndexError",
        "no attribute 'perm'",
    ),
    (
        "Transpose of the batch",
        _built(VECTOR, lambda g: g.op("Transpose", g.quant("x"), perm=[1, 0])),
        "wrong",
        "",
        "perm [1, 0] moves the batch",
    ),
    (
        "Gemm of other sizes",
        _built(VECTOR, lambda g: g.quant(g.op("Gemm", g.quant("x"), g.constant(np.ones((3, 4))), g.constant([1.0])))),
        "crash",
        "AssertionError",
        "shape inference says",
    ),
    (
        "reshaped by a value",
        _built(VECTOR, lambda g: g.op("Reshape", g.quant("x"), "x")),
        "refused",
        "requires the target shape",
        "its target shape is computed",
    ),
    (
        "a zero point of booleans",
        _built(VECTOR, lambda g: g.quant(d(g), zero=g.constant([True], bool), scale=0.3)),
        "crash",
        "TypeError",
        "its zero point is of booleans",
    ),
    (
        "IntQuant without signed",
        _built(
            VECTOR,
            lambda g: g.op(
                "MatMul",
                g.quant("x"),
                g.op("IntQuant", g.constant(g.integers(4, 3)), *map(g.constant, (1.0, 0.0, 4.0)), domain=QONNX),
            ),
        ),
        "refused",
        "Required attribute signed unspecified",
        "no attribute 'signed'; qonnx's cleanup",
    ),
    # the graph
    (
        "a circle",
        _changed(lambda m: _set(m.graph.node[2].input, 0, m.graph.node[-1].output[0])),
        "crash",
        "CircularDependencyError",
        "it waits for its own result",
    ),
    (
        "a tensor from nowhere",
        _changed(lambda m: _set(m.graph.node[0].input, 0, "nothing")),
        "crash",
        "Could not find the shape",
        "it reads 'nothing', which nothing gives",
    ),
    (
        "a tensor given twice",
        _changed(lambda m: _set(m.graph.node[3].output, 0, m.graph.node[2].output[0])),
        "crash",
        "Could not find the shape",
        "gives already",
    ),
    ("a node that gives nothing", _changed(lambda m: _set(m.graph.node[-1].output, 0, "")), "wrong", "", "no tensor"),
    (
        "an output from nowhere",
        _changed(lambda m: setattr(m.graph.output[0], "name", "nothing")),
        "wrong",
        "",
        "an output that no node gives",
    ),
    (
        "an output that is an input",
        _changed(lambda m: m.graph.output.append(_info("x"))),
        "crash",
        "Multiple ValueInfoProto",
        "an output that is an input as well",
    ),
    (
        "an output twice",
        _changed(lambda m: m.graph.output.append(m.graph.output[0])),
        "crash",
        "Multiple ValueInfoProto",
        "an output that is listed twice",
    ),
    ("no outputs", _changed(lambda m: m.graph.ClearField("output")), "wrong", "", "it has no outputs"),
    (
        "no opset",
        _changed(lambda m: m.ClearField("opset_import")),
        "crash",
        "No opset import for domain",
        "it imports no opset",
    ),
    (
        "a constant twice",
        _changed(lambda m: m.graph.initializer.append(m.graph.initializer[0])),
        "crash",
        "Found multiple get_by_name",
        "two constants of this name",
    ),
    (
        "bytes that are no numbers",
        _changed(lambda m: setattr(m.graph.initializer[0], "raw_data", b"ab")),
        "crash",
        "ValueError",
        "whose data cannot be read",
    ),
    (
        "a sparse constant",
        lambda: _sparse(),
        "crash",
        "Could not find the shape",
        "a sparse constant, which qonnx does not read",
    ),
]
_SPOKEN = {"signed": 1, "narrow": 0, "rounding_mode": "ROUND"}


def _sparse() -> onnx.ModelProto:
    model = small(VECTOR, lambda g: g.quant(g.op("Add", d(g), "sparse")))
    values, places = helper.make_tensor("sparse", 1, [1], [2.0]), helper.make_tensor("places", 7, [1], [1])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [3]))
    return model
