"""Every op of the IR in QONNX: its nodes, their shapes, its equality, and what qonnx itself makes of the file."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper
from qonnx.core.modelwrapper import ModelWrapper
from qonnx.core.onnx_exec import execute_onnx
from qonnx.transformation.infer_shapes import InferShapes
from qonnx.util.cleanup import cleanup_model
from strategies import rows_for

from hawq_flow import interpret, to_qonnx
from hawq_flow.network import (
    OPS,
    Add,
    Concat,
    Conv,
    Dense,
    InputSpec,
    IntegerNetwork,
    Lookup,
    MaxPool,
    Multiply,
    Op,
    OutputSpec,
    Pad,
    ReduceMax,
    ReduceSum,
    Requantize,
    Reshape,
    Subtract,
    SumPool,
    Upsample,
)
from hawq_flow.numeric import IntType, Overflow, Rounding
from hawq_flow.to_qonnx import NotExact
from hawq_flow.to_qonnx.plan import truncation

U8, S8 = IntType(8, False), IntType(8, True)


def assert_equal(network: IntegerNetwork, x: Any, model: onnx.ModelProto | None = None) -> str:
    execution = to_qonnx.execute(model or to_qonnx.export(network), network, x)
    for name, expected in interpret.reference(network, x).items():
        np.testing.assert_array_equal(execution.values[name], expected, err_msg=name)
    return execution.method


_RNG = np.random.default_rng(5)
_WEIGHT = _RNG.integers(-7, 8, (4, 3, 3, 2))
_ACT = Requantize("act", "conv", *(np.array(v) for v in (1, 3, 0)), S8)


def _one(op: Op, shape: tuple[int, ...] = (3, 5, 4), type: IntType = S8, before: tuple[Op, ...] = ()) -> IntegerNetwork:
    return IntegerNetwork((InputSpec("x", shape, type),), (*before, op), (OutputSpec(op.name),))


def _each(rank: int, values: Any) -> np.ndarray:
    return np.array(values).reshape((-1,) + (1,) * (rank - 1))


_CONV = Conv("conv", "x", _WEIGHT, np.arange(4), (2, 1), (1, 0, 2, 1))
_LOW = Requantize("half", "x", np.array(1), np.array(1), np.array(0), IntType(7, True))

EVERY_OP: dict[str, tuple[IntegerNetwork, list[str]]] = {
    "conv": (_one(_CONV), ["Quant", "Conv"]),
    "conv1d": (_one(Conv("c", "x", _WEIGHT[..., 0], np.arange(4), (2,), (2, 0)), (3, 7)), ["Quant", "Conv"]),
    "depthwise": (_one(Conv("c", "x", _WEIGHT[:3, :1], np.arange(3), (1, 3), (0,) * 4, 3)), ["Quant", "Conv"]),
    "groups": (_one(Conv("c", "x", _WEIGHT, np.arange(4), (1, 1), (0,) * 4, 2), (6, 5, 4)), ["Quant", "Conv"]),
    "accumulator": (_one(dataclasses.replace(_CONV, accumulator=IntType(9, True))), ["Quant", "Conv", "Quant"]),
    "max_pool": (_one(MaxPool("p", "x", (3, 2), (2, 1), (2, 0, 1, 1))), ["MaxPool"]),
    "max_pool1d": (_one(MaxPool("p", "x", (3,), (2,), (0, 2)), (2, 7)), ["MaxPool"]),
    "sum_pool": (_one(SumPool("p", "x", (3, 2), (2, 1), (2, 0, 1, 1))), ["Quant", "Conv"]),
    "sum_pool1d": (_one(SumPool("p", "x", (7,), (7,), (0, 0)), (2, 7)), ["Quant", "Conv"]),
    "pad": (_one(Pad("p", "x", (1, 0, 2, 3), -5)), ["Pad"]),
    "pad1d": (_one(Pad("p", "x", (1, 2), 7), (2, 3), U8), ["Pad"]),
    "upsample": (_one(Upsample("u", "x", (2, 3))), ["Resize"]),
    "upsample1d": (_one(Upsample("u", "x", (3,)), (2, 5)), ["Resize"]),
    "concat": (_one(Concat("c", ("x", "half"), 1), before=(_LOW,)), ["Mul", "Quant", "Concat"]),
    "concat_twice": (_one(Concat("c", ("x", "x", "x"))), ["Identity", "Identity", "Concat"]),
    "add": (_one(Add("a", ("x", "half")), before=(_LOW,)), ["Mul", "Quant", "Add"]),
    "add_three": (_one(Add("a", ("x", "half", "x")), before=(_LOW,)), ["Mul", "Quant", "Identity", "Add", "Add"]),
    "subtract": (_one(Subtract("s", "half", "x"), before=(_LOW,)), ["Mul", "Quant", "Sub"]),
    "square": (_one(Multiply("m", "x", "x")), ["Identity", "Mul"]),
    "multiply": (_one(Multiply("m", "half", "x"), before=(_LOW,)), ["Mul", "Quant", "Mul"]),
    "broadcast": (
        _one(Add("a", ("top", "top", "x")), before=(ReduceMax("top", "x", 2),)),
        ["ReduceMax", "Identity", "Add", "Add"],
    ),
    "reduce_max": (_one(ReduceMax("r", "x", 1)), ["ReduceMax"]),
    "reduce_sum": (_one(ReduceSum("r", "x", 0)), ["ReduceSum"]),
    "lookup": (_one(Lookup("t", "x", _RNG.integers(-99, 99, 260), -130)), ["Sub", "Cast", "Gather"]),
    "lookup_from_0": (_one(Lookup("t", "x", _RNG.integers(-99, 99, 256), 0), type=U8), ["Cast", "Gather"]),
    "requantize": (_one(_LOW), ["Mul", "Quant"]),
    "reshape": (_one(Reshape("r", "x", (20, 3))), ["Reshape"]),
}


def _prefixed(op: Op, prefix: str) -> Op:
    """The op with another name, and its operands' names likewise."""
    changes: dict[str, Any] = {
        field: prefix + getattr(op, field) for field in ("name", "input", "left", "right") if hasattr(op, field)
    }
    if isinstance(op, Add | Concat):
        changes["operands"] = tuple(prefix + name for name in op.operands)
    return dataclasses.replace(op, **changes)


class Every:
    """All of ``EVERY_OP`` side by side in one file, and its tensors by every way there is to compute them."""

    def __init__(self) -> None:
        inputs, ops, outputs = [], [], []
        self.x: dict[str, np.ndarray] = {}
        for key, (network, _) in EVERY_OP.items():
            inputs.append(dataclasses.replace(network.inputs[0], name=f"{key}__x"))
            ops += [_prefixed(op, f"{key}__") for op in network.ops]
            outputs.append(OutputSpec(f"{key}__{network.outputs[0].name}"))
            self.x[f"{key}__x"] = rows_for(network)
        self.network = IntegerNetwork(tuple(inputs), tuple(ops), tuple(outputs))
        self.model = to_qonnx.export(self.network)
        self.execution = to_qonnx.execute(self.model, self.network, self.x)
        self.wide = to_qonnx.evaluate(self.model, self.x, np.float64)
        module = to_qonnx.QonnxModule(self.network)
        eager = module(*(torch.from_numpy(x).double() for x in self.x.values()))
        self.eager = {op.name: value.numpy() for op, value in zip(ops, eager, strict=True)}
        self.reference = interpret.reference(self.network, self.x)


@pytest.fixture(scope="module")
def every() -> Every:
    return Every()


@pytest.mark.parametrize("key", EVERY_OP)
def test_every_op_has_its_nodes_and_is_equal(key: str, every: Every) -> None:
    network, nodes = EVERY_OP[key]
    own = [node for node in every.model.graph.node if node.output[0].startswith(f"{key}__")]
    assert [node.op_type for node in own] == ["Quant", *nodes]
    assert own[-1].output[0] == f"{key}__{network.ops[-1].name}"
    for op in network.ops:
        name = f"{key}__{op.name}"
        for values in (every.execution.values, every.wide, every.eager):
            np.testing.assert_array_equal(values[name], every.reference[name], err_msg=name)


def test_qonnx_itself_ran_them_and_their_nodes_have_names_of_their_own(every: Every) -> None:
    assert every.execution.method.startswith("qonnx executor, float32, proven exact")
    assert len({node.name for node in every.model.graph.node}) == len(every.model.graph.node)
    assert {op.kind for op in every.network.ops} == set(OPS) - {"Dense"}


def test_every_shape_and_type_in_the_file_is_true(every: Every) -> None:
    """Against the tensors themselves, and against qonnx's inference over a file without any of them."""
    rows = len(next(iter(every.x.values())))
    infos = {info.name: info for info in (*every.model.graph.value_info, *every.model.graph.output)}
    assert set(infos) == {name for node in every.model.graph.node for name in node.output}
    bare = to_qonnx.with_batch(every.model, rows)
    del bare.graph.value_info[:]
    inferred = ModelWrapper(bare).transform(InferShapes())
    for name, info in infos.items():
        shape = [dim.dim_value or rows for dim in info.type.tensor_type.shape.dim]
        assert shape == list(every.wide[name].shape) == inferred.get_tensor_shape(name), name
        kind = np.dtype(helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)).kind
        assert kind == every.wide[name].dtype.kind, name


def test_qonnxs_cleanup_changes_no_result(every: Every) -> None:
    rows = len(next(iter(every.x.values())))
    cleaned = cleanup_model(ModelWrapper(to_qonnx.with_batch(every.model, rows)))
    kinds = [Counter(node.op_type for node in graph.node) for graph in (cleaned.graph, every.model.graph)]
    assert kinds[0] == kinds[1]  # it sorts the nodes, folds none of them
    names = [info.name for info in cleaned.graph.input]
    feed = {name: x.astype(np.float32) for name, x in zip(names, every.x.values(), strict=True)}
    results = execute_onnx(cleaned, feed)
    for output, info in zip(every.network.outputs, cleaned.graph.output, strict=True):
        np.testing.assert_array_equal(results[info.name], every.reference[output.name], err_msg=output.name)


def test_the_form_of_a_convolution() -> None:
    network = IntegerNetwork((InputSpec("x", (3, 5, 4), S8),), (_CONV, _ACT), (OutputSpec("act"),))
    model = to_qonnx.export(network)
    (conv,) = [node for node in model.graph.node if node.op_type == "Conv"]
    assert (list(conv.input), list(conv.output)) == (["x/quant", "conv/weight_quant", "conv/bias"], ["conv"])
    attributes = {a.name: helper.get_attribute_value(a) for a in conv.attribute}
    expected = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 2, 1], "dilations": [1, 1], "group": 1}
    assert attributes == expected | {"auto_pad": b"NOTSET"}
    weight = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    np.testing.assert_array_equal(weight["conv/weight"], _WEIGHT)
    assert (weight["conv/weight_quant/bits"], to_qonnx.weight_type(_CONV)) == (4, IntType(4, True, True))


def test_constants_of_each_channel_follow_the_rank() -> None:
    shapes = {f"x{rank}": (3, 4, 2)[:rank] for rank in (1, 2, 3)}
    ops = [
        Requantize(
            f"{x}_{rounding.value}",
            x,
            *(_each(len(shape), values) for values in ([1, 3, -5], [1, 2, 3], [0, 1, -2])),
            IntType((3, 5, 7), True, True),
            rounding,
        )
        for x, shape in shapes.items()
        for rounding in Rounding
    ]
    inputs = tuple(InputSpec(x, shape, S8) for x, shape in shapes.items())
    network = IntegerNetwork(inputs, tuple(ops), tuple(OutputSpec(op.name) for op in ops))
    model = to_qonnx.export(network)
    constants = {t.name: list(t.dims) for t in model.graph.initializer}
    for op in ops:
        for what in ("factor", "offset", "low", "high"):
            assert constants[f"{op.name}/{what}"] == [3] + [1] * (len(shapes[op.input]) - 1)
    rng = np.random.default_rng(0)
    assert_equal(network, {x: rng.integers(-128, 128, (200, *shape)) for x, shape in shapes.items()}, model)


def test_the_largest_of_negatives_is_never_the_padding() -> None:
    network = _one(MaxPool("p", "x", (3, 3), (1, 1), (2, 2, 2, 2)))
    x = np.full((1, 3, 5, 4), -128)
    model = to_qonnx.export(network)
    assert (to_qonnx.execute(model, network, x).values["p"] == -128).all()
    assert (to_qonnx.evaluate(model, {"x": x})["p"] == -128).all()


def test_onnxruntimes_convolutions_are_exact_up_to_24_bits() -> None:
    """64 channels and kernels of 3x3, where faster algorithms that are not sums of products would be tempting."""
    rng = np.random.default_rng(0)
    weight = rng.integers(-110, 111, (64, 64, 3, 3))
    network = _one(Conv("c", "x", weight, rng.integers(-999, 999, 64), (1, 1), (1,) * 4), (64, 12, 11), U8)
    assert to_qonnx.precision_bits(network)["c"] == 24
    assert_equal(network, rng.integers(0, 256, (3, 64, 12, 11)))


def test_a_residual_graph_gives_the_same_bytes_again_and_all_metadata() -> None:
    def build() -> IntegerNetwork:
        skip = Requantize("skip", "x", _each(3, [1, 2, 3, 5]), np.array(2), np.array(0), S8, layer="down")
        conv = Conv("conv", "x", np.tile(_WEIGHT, (1, 2, 1, 1))[:, :4, :, :1], np.arange(4), (1, 1), (1, 0, 1, 0))
        ops = (conv, dataclasses.replace(_ACT), skip, Add("sum", ("act", "skip"), layer="block.add"))
        spec = InputSpec("x", (4, 5, 3), S8, scale=np.float64(0.5))  # type: ignore[arg-type]
        return IntegerNetwork((spec,), ops, (OutputSpec("sum", np.float64(0.25)),))  # type: ignore[arg-type]

    model = to_qonnx.export(build())
    assert model.SerializeToString(deterministic=True) == to_qonnx.export(build()).SerializeToString(deterministic=True)
    properties = {entry.key: entry.value for entry in model.metadata_props}
    assert properties["hawq_flow.digest"] == build().digest
    assert json.loads(properties["hawq_flow.inputs"])["x"]["shape"] == [4, 5, 3]
    assert json.loads(properties["hawq_flow.outputs"])["sum"] == {
        "shape": [4, 5, 3],
        "type": "int9",
        "range": [-256, 255],
        "scale": 0.25,
        "zero_point": 0,
    }
    assert [node.name for node in model.graph.node][-3:] == ["down/skip/scaled", "down/skip/quant", "block.add/sum/add"]
    assert_equal(build(), rows_for(build()), model)


def test_two_inputs_meet_in_a_sum() -> None:
    network = IntegerNetwork(
        (InputSpec("a", (2, 3), S8), InputSpec("b", (2, 1), U8)), (Add("s", ("a", "b")),), (OutputSpec("s"),)
    )
    rng = np.random.default_rng(0)
    x = {"a": rng.integers(-128, 128, (40, 2, 3)), "b": rng.integers(0, 256, (40, 2, 1))}
    got = to_qonnx.execute(to_qonnx.export(network), network, x).values["s"]
    np.testing.assert_array_equal(got, x["a"] + x["b"])


# --- refusals --------------------------------------------------------------------------------------------------------

_NARROW = IntType((9, 8, 8, 7), True)


@pytest.mark.parametrize(
    ("network", "text"),
    [
        (
            _one(dataclasses.replace(_CONV, accumulator=_NARROW)),
            r"conv: the declared accumulator int\[9,8,8,7\] has a width for each channel; .* Declare one width",
        ),
        (
            _one(dataclasses.replace(_CONV, accumulator=IntType(6, True), overflow=Overflow.WRAP)),
            "conv: sums from -[0-9]+ to [0-9]+ wrap in the declared accumulator int6; QONNX's Quant only saturates",
        ),
        (
            _one(dataclasses.replace(_CONV, accumulator=IntType(1, True))),
            "conv: accumulator: type int1 holds -1 and 0; QONNX reads a signed Quant of 1 bit",
        ),
        (
            _one(Requantize("q", "x", np.array(3), np.array(1), np.array(0), IntType((8, 26, 8), True))),
            r"q: bound 33554431 of a channel of type int\[8,26,8\] has 25 significant bits; .* Use channels of at",
        ),
    ],
)
def test_refused(network: IntegerNetwork, text: str) -> None:
    with pytest.raises(NotExact, match=text):
        to_qonnx.export(network)


def test_a_wrapping_accumulator_is_said_only_where_nothing_wraps() -> None:
    network = _one(dataclasses.replace(_CONV, accumulator=IntType(16, True), overflow=Overflow.WRAP))
    assert_equal(network, rows_for(network))


def test_dilated_convolutions_are_not_evaluated() -> None:
    model = to_qonnx.export(_one(_CONV))
    (conv,) = [node for node in model.graph.node if node.op_type == "Conv"]
    (dilations,) = [a for a in conv.attribute if a.name == "dilations"]
    dilations.ints[:] = [2, 1]
    with pytest.raises(NotExact, match=r"conv/conv: dilations \[2, 1\]; export\(\) writes ones"):
        to_qonnx.evaluate(model, {"x": np.zeros((1, 3, 5, 4))})


# --- weights of one and two bits, and dropped bits -------------------------------------------------------------------


def signs(*, ternary: bool = False) -> IntegerNetwork:
    """A convolution, a depthwise one and a dense layer whose weights are -1 and +1 (or 0)."""
    rng = np.random.default_rng(0)

    def weight(*shape: int) -> Any:
        return rng.choice([-1, 0, 1] if ternary else [-1, 1], shape)

    scale = (np.array(3), np.array(6), np.array(0))
    ops: tuple[Op, ...] = (
        Conv("conv", "x", weight(4, 3, 3, 3), rng.integers(-5, 5, 4), (1, 1), (1, 1, 1, 1)),
        Requantize("act", "conv", *scale, IntType(4, False)),
        Conv("depth", "act", weight(4, 1, 3, 3), rng.integers(-5, 5, 4), (2, 2), (0, 0, 0, 0), groups=4),
        Requantize("deep", "depth", *(np.array(v) for v in (1, 2, 0)), S8, Rounding.FLOOR),
        Reshape("flat", "deep", (16,)),
        Dense("fc", "flat", weight(3, 16), rng.integers(-5, 5, 3)),
    )
    return IntegerNetwork((InputSpec("x", (3, 6, 6), IntType(5, False)),), ops, (OutputSpec("fc"),))


def test_bipolar_weights_are_two_narrow_bits_or_bipolar_quant_by_choice() -> None:
    network, x = signs(), np.random.default_rng(1).integers(0, 32, (50, 3, 6, 6))
    plain, bipolar = to_qonnx.export(network), to_qonnx.export(network, bipolar=True)
    assert {node.op_type for node in plain.graph.node if "weight_quant" in node.name} == {"Quant"}
    quantized = [node for node in bipolar.graph.node if "weight_quant" in node.name]
    assert [node.op_type for node in quantized] == ["BipolarQuant"] * 3
    scales = {t.name: numpy_helper.to_array(t) for t in bipolar.graph.initializer}
    assert all(scales[node.input[1]] == 1 for node in quantized)
    for model in (plain, bipolar):
        assert assert_equal(network, x, model).startswith("qonnx executor")
        values = to_qonnx.evaluate(model, {"x": x})
        for name, expected in interpret.reference(network, x).items():
            np.testing.assert_array_equal(values[name], expected)


def test_ternary_weights_are_two_narrow_bits() -> None:
    network = signs(ternary=True)
    model = to_qonnx.export(network, bipolar=True)  # zeros are not bipolar
    arrays = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    quantized = [node for node in model.graph.node if "weight_quant" in node.name]
    assert [node.op_type for node in quantized] == ["Quant"] * 3
    for node in quantized:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        assert (arrays[node.input[3]], attributes["signed"], attributes["narrow"]) == (2, 1, 1)
    assert_equal(network, np.random.default_rng(1).integers(0, 32, (50, 3, 6, 6)), model)


@pytest.mark.parametrize("signed", [False, True])
def test_dropped_bits_are_trunc_by_choice_for_every_integer(signed: bool) -> None:
    """Shifts of 1 to 6 bits of all integers of 6: by qonnx's executor, by the evaluator, against the interpreter."""
    source = IntType(6, signed)
    ops = tuple(
        Requantize(f"q{c}_{extra}", "x", np.array(1 << extra), np.array(c + extra), np.array(0), S8, Rounding.FLOOR)
        for c in range(1, 7)
        for extra in (0, 2)
    )
    network = IntegerNetwork((InputSpec("x", (1,), source),), ops, tuple(OutputSpec(op.name) for op in ops))
    model = to_qonnx.export(network, trunc=True)
    assert Counter(node.op_type for node in model.graph.node) == {"Quant": 1, "Trunc": 12}
    bits = {t.name: float(numpy_helper.to_array(t)) for t in model.graph.initializer}
    assert (bits["q2_0/trunc/bits_before"], bits["q2_0/trunc/bits_after"]) == (6, 4)
    x = np.arange(source.range[0], source.range[1] + 1).reshape(-1, 1)
    assert assert_equal(network, x, model).startswith("qonnx executor")
    values = to_qonnx.evaluate(model, {"x": x})
    for op in ops:
        np.testing.assert_array_equal(values[op.name], x >> (op.shift - int(op.multiplier).bit_length() + 1))


@pytest.mark.parametrize(
    "changes",
    [
        {"rounding": Rounding.HALF_EVEN},
        {"rounding": Rounding.HALF_UP},
        {"multiplier": np.array(3)},
        {"shift": np.array([[2], [3]])},
        {"shift": np.array(0)},
        {"offset": np.array(1)},
        {"type": IntType(3, True)},
    ],
    ids=str,
)
def test_whatever_does_more_than_drop_bits_is_no_trunc(changes: dict[str, Any]) -> None:
    fields = {"multiplier": np.array(1), "shift": np.array(2), "offset": np.array(0), "type": S8}
    op = Requantize("q", "x", **(fields | {"rounding": Rounding.FLOOR} | changes))
    network = IntegerNetwork((InputSpec("x", (2, 3), S8),), (op,), (OutputSpec("q"),))
    assert truncation(op, network.values) is None
    plain = dataclasses.replace(op, **fields, rounding=Rounding.FLOOR)
    assert truncation(plain, network.values) == (8, 6)
