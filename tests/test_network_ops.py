"""The ops beyond dense layers: worked by hand, held to torch, bounded by enumeration, stored, and refused by name."""

from __future__ import annotations

import dataclasses
import itertools
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from core_strategies import extreme_inputs, graphs
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from hawq_flow import interpret
from hawq_flow.interpret import reference
from hawq_flow.network import (
    LIMIT,
    MAX_TABLE,
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
    NetworkError,
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
    Value,
    forward,
    verify,
)
from hawq_flow.numeric import IntType, Overflow, Rounding

U4, S4 = IntType(4, signed=False), IntType(4, signed=True)
Shape = tuple[int, ...]


def conv(
    weight: object,
    bias: object = 0,
    stride: Shape = (1,),
    padding: Shape = (0, 0),
    groups: int = 1,
    name: str = "c",
    **options: object,
) -> Conv:
    array = np.array(weight)
    return Conv(name, "x", array, np.broadcast_to(bias, array.shape[:1]), stride, padding, groups, **options)  # type: ignore[arg-type]


def network(
    *ops: Op, shape: Shape = (1, 4), type: IntType = S4, other: Shape | None = None, other_type: IntType | None = None
) -> IntegerNetwork:
    """A network of ``ops`` on input x, and a second input y when ``other`` gives its shape."""
    specs = [InputSpec("x", shape, type)]
    if other is not None:
        specs.append(InputSpec("y", other, other_type or type))
    return IntegerNetwork(tuple(specs), ops, (OutputSpec(ops[-1].name if ops else "x"),))


# ------------------------------------------------------------------------------------------------------ worked by hand

ROW = [[1, -2, 3, 4]]
IMAGE = [[[1, 2, 3], [4, 5, 6]]]

EXAMPLES: list[tuple[str, Op, list[object], object]] = [
    ("dense", Dense("o", "x", np.array([[1, 2, 0], [0, -1, 3]]), np.array([10, 0])), [[1, 2, 3]], [15, 7]),
    ("conv1d", conv([[[1, 10]]]), [ROW], [[-19, 28, 43]]),
    ("conv1d, stride and bias", conv([[[1, 10]]], 5, (2,)), [ROW], [[-14, 48]]),
    ("conv1d, padding at the end only", conv([[[1, 10]]], padding=(0, 1)), [ROW], [[-19, 28, 43, 4]]),
    ("conv1d, padding at the beginning only", conv([[[1, 10]]], padding=(1, 0)), [ROW], [[10, -19, 28, 43]]),
    ("conv1d, two channels", conv([[[1, 2], [0, 1]], [[0, 0], [3, 0]]]), [[[1, 2], [3, 4]]], [[9], [9]]),
    ("conv1d, depthwise", conv([[[1, 2]], [[3, 4]]], groups=2), [[[1, 2], [3, 4]]], [[5], [25]]),
    (
        "conv1d, depthwise with two outputs a channel",
        conv([[[1]], [[2]], [[3]], [[4]]], [0, 0, 0, 9], groups=2),
        [[[1, 2], [3, 4]]],
        [[1, 2], [2, 4], [9, 12], [21, 25]],
    ),
    (
        "conv1d, two groups of two channels",
        conv([[[1], [2]], [[3], [4]]], groups=2),
        [[[1], [2], [3], [4]]],
        [[5], [25]],
    ),
    ("conv2d", conv([[[[1, 0], [0, 100]]]], 0, (1, 1), (0,) * 4), [IMAGE], [[[501, 602]]]),
    (
        "conv2d, padding top 1, left 0, bottom 0, right 1, stride 2 across",
        conv([[[[1, 10], [100, 1000]]]], 0, (1, 2), (1, 0, 0, 1)),
        [IMAGE],
        [[[2100, 300], [5421, 603]]],
    ),
    (
        "conv2d, accumulator saturates",
        conv([[[[1]]]], 0, (1, 1), (0,) * 4, accumulator=IntType(3, True)),
        [IMAGE],
        [[[1, 2, 3], [3, 3, 3]]],
    ),
    (
        "conv2d, accumulator wraps",
        conv([[[[1]]]], 0, (1, 1), (0,) * 4, accumulator=IntType(3, True), overflow=Overflow.WRAP),
        [IMAGE],
        [[[1, 2, 3], [-4, -3, -2]]],
    ),
    (
        "conv1d, an accumulator for each channel",
        conv([[[1]], [[1]]], accumulator=IntType((2, 3), True)),
        [ROW],
        [[1, -2, 1, 1], [1, -2, 3, 3]],
    ),
    (
        "requantize, a multiplier for each channel",
        Requantize("o", "x", np.array([[1], [3]]), np.array([[1], [0]]), np.array([[0], [-1]]), S4),
        [[[1, 3, 5], [1, 2, 3]]],
        [[0, 2, 2], [2, 5, 7]],
    ),
    ("reshape", Reshape("o", "x", (3, 2)), [[[1, 2, 3], [4, 5, 6]]], [[1, 2], [3, 4], [5, 6]]),
    ("pad 1d", Pad("o", "x", (1, 2), -7), [ROW], [[-7, 1, -2, 3, 4, -7, -7]]),
    ("pad 2d", Pad("o", "x", (1, 0, 0, 2), 3), [[[[1]], [[2]]]], [[[3, 3, 3], [1, 3, 3]], [[3, 3, 3], [2, 3, 3]]]),
    ("max pool", MaxPool("o", "x", (2,), (1,), (0, 0)), [ROW], [[1, 3, 4]]),
    ("max pool, padding never wins", MaxPool("o", "x", (2,), (1,), (1, 1)), [[[-3, -5]]], [[-3, -3, -5]]),
    ("max pool 2d", MaxPool("o", "x", (2, 1), (1, 2), (0,) * 4), [IMAGE], [[[4, 6]]]),
    ("max pool, the rest left out", MaxPool("o", "x", (2,), (2,), (0, 0)), [[[1, 2, 7]]], [[2]]),
    ("sum pool", SumPool("o", "x", (2,), (1,), (0, 0)), [ROW], [[-1, 1, 7]]),
    ("sum pool, zeros around", SumPool("o", "x", (2,), (1,), (1, 1)), [[[-3, -5]]], [[-3, -8, -5]]),
    ("sum pool, global", SumPool("o", "x", (2, 3), (2, 3), (0,) * 4), [IMAGE], [[[21]]]),
    ("upsample 1d", Upsample("o", "x", (3,)), [[[1, 2]]], [[1, 1, 1, 2, 2, 2]]),
    ("upsample 2d", Upsample("o", "x", (1, 2)), [[[[1, 2], [3, 4]]]], [[[1, 1, 2, 2], [3, 3, 4, 4]]]),
    ("concat", Concat("o", ("x", "y")), [[[1, 2]], [[3, 4], [5, 6]]], [[1, 2], [3, 4], [5, 6]]),
    (
        "concat along space",
        Concat("o", ("x", "y", "x"), 1),
        [[[1], [2]], [[3, 4], [5, 6]]],
        [[1, 3, 4, 1], [2, 5, 6, 2]],
    ),
    ("add", Add("o", ("x", "y")), [[[1, 2]], [[3, -4]]], [[4, -2]]),
    ("add three", Add("o", ("x", "y", "x")), [[[1, 2]], [[3, -4]]], [[5, 0]]),
    ("add, broadcast both ways", Add("o", ("x", "y")), [[[1, 2]], [[3], [-4]]], [[4, 5], [-3, -2]]),
    ("subtract", Subtract("o", "x", "y"), [[[1, 2]], [[3, -4]]], [[-2, 6]]),
    ("multiply", Multiply("o", "x", "y"), [[[1, 2]], [[3, -4]]], [[3, -8]]),
    ("reduce max", ReduceMax("o", "x"), [[[1, -2], [3, -4]]], [[3, -2]]),
    ("reduce max along space", ReduceMax("o", "x", 1), [[[1, -2], [3, -4]]], [[1], [3]]),
    ("reduce sum", ReduceSum("o", "x"), [[[1, -2], [3, -4]]], [[4, -6]]),
    ("lookup", Lookup("o", "x", np.array([50, -60, 70, 80]), -1), [[[2, -1], [0, 1]]], [[80, 50], [-60, 70]]),
]


def test_every_op_is_worked_by_hand() -> None:
    assert {op.kind for _, op, _, _ in EXAMPLES} == set(OPS)


@pytest.mark.parametrize(("op", "operands", "expected"), [case[1:] for case in EXAMPLES], ids=[c[0] for c in EXAMPLES])
def test_worked_by_hand(op: Op, operands: list[object], expected: object) -> None:
    """The definition, the shape, the interval and the interpreter, on few rows and on many."""
    arrays = {name: np.array([operand]) for name, operand in zip("xy", operands, strict=False)}
    found = forward(op, [arrays[name] for name in op.inputs])
    assert found.dtype == np.int64
    assert found[0].tolist() == expected
    assert op.shape([arrays[name].shape[1:] for name in op.inputs]) == found.shape[1:]
    low, high = int(min(a.min() for a in arrays.values())), int(max(a.max() for a in arrays.values()))
    specs = tuple(InputSpec(name, array.shape[1:], IntType.holding(low, high)) for name, array in arrays.items())
    if isinstance(op, Lookup):
        specs = (InputSpec("r", specs[0].shape, specs[0].type), *specs[1:])
        clip = Requantize("x", "r", np.array(1), np.array(0), np.array(0), IntType(2, False))
        net = IntegerNetwork(specs, (clip, dataclasses.replace(op, start=0)), (OutputSpec("o"),))
        assert net.values["o"].low.tolist() == [[-60, -60], [-60, -60]]
        arrays = {"r": arrays["x"] + 1}
    else:
        net = IntegerNetwork(specs, (op,), (OutputSpec(op.name),))
    value = verify(net)[op.name]
    assert (value.low <= found).all()
    assert (found <= value.high).all()
    for rows in (1, 9):
        given_ = {name: np.repeat(array, rows, axis=0) for name, array in arrays.items()}
        assert interpret.run(net, given_).tolist() == [expected] * rows


# --------------------------------------------------------------------------------------------------- against torch


@st.composite
def windows(draw: Callable) -> tuple[Shape, Shape, Shape, Shape, int, int]:
    """Space, kernel, stride, padding, channels, and a seed: one or two axes, odd and unequal sizes."""
    rank = draw(st.integers(1, 2))
    space = tuple(draw(st.integers(1, 8)) for _ in range(rank))
    kernel = tuple(draw(st.integers(1, 4)) for _ in range(rank))
    padding = [draw(st.integers(0, kernel[i % rank] - 1)) for i in range(2 * rank)]
    space = tuple(
        max(n, k - padding[i] - padding[rank + i]) for i, (n, k) in enumerate(zip(space, kernel, strict=True))
    )
    stride = tuple(draw(st.integers(1, 3)) for _ in range(rank))
    return space, kernel, stride, tuple(padding), draw(st.integers(1, 4)), draw(st.integers(0, 2**32 - 1))


def padded(x: np.ndarray, padding: Shape, fill: float) -> torch.Tensor:
    """Torch's own padding: the last axis first, each axis with both its ends."""
    rank = len(padding) // 2
    widths = [padding[i + end * rank] for i in reversed(range(rank)) for end in (0, 1)]
    return F.pad(torch.tensor(x, dtype=torch.float64), widths, value=fill)


@given(windows(), st.integers(1, 3), st.booleans())
@settings(max_examples=150, deadline=None, derandomize=True)
def test_convolutions_are_torchs(window: tuple, share: int, grouped: bool) -> None:
    space, kernel, stride, padding, channels, seed = window
    rng = np.random.default_rng(seed)
    groups = channels if grouped else 1
    weight = rng.integers(-9, 10, (groups * share, channels // groups, *kernel))
    op = Conv("o", "x", weight, rng.integers(-9, 10, groups * share), stride, padding, groups)
    x = rng.integers(-9, 10, (5, channels, *space))
    function = F.conv1d if len(space) == 1 else F.conv2d
    parts = (torch.tensor(a, dtype=torch.float64) for a in (op.weight, op.bias))
    expected = function(padded(x, padding, 0), *parts, stride=stride, groups=groups)
    np.testing.assert_array_equal(forward(op, [x]), expected.numpy())
    assert op.shape([(channels, *space)]) == tuple(expected.shape[1:])


@given(windows())
@settings(max_examples=150, deadline=None, derandomize=True)
def test_pools_are_torchs(window: tuple) -> None:
    space, kernel, stride, padding, channels, seed = window
    x = np.random.default_rng(seed).integers(-99, 100, (5, channels, *space))
    largest, average = (F.max_pool1d, F.avg_pool1d) if len(space) == 1 else (F.max_pool2d, F.avg_pool2d)
    expected = largest(padded(x, padding, -np.inf), kernel, stride)
    np.testing.assert_array_equal(forward(MaxPool("o", "x", kernel, stride, padding), [x]), expected.numpy())
    # An average of k integers below 100 is within 1e-13 of the sum's k-th part, so rounding gives the sum back.
    sums = np.rint(average(padded(x, padding, 0), kernel, stride).numpy() * np.prod(kernel))
    np.testing.assert_array_equal(forward(SumPool("o", "x", kernel, stride, padding), [x]), sums)


@given(windows())
@settings(max_examples=60, deadline=None, derandomize=True)
def test_upsample_and_pad_are_torchs(window: tuple) -> None:
    space, kernel, _, padding, channels, seed = window
    x = np.random.default_rng(seed).integers(-99, 100, (3, channels, *space))
    floats = torch.tensor(x, dtype=torch.float64)
    expected = F.interpolate(floats, scale_factor=tuple(float(k) for k in kernel), mode="nearest")
    np.testing.assert_array_equal(forward(Upsample("o", "x", kernel), [x]), expected.numpy())
    np.testing.assert_array_equal(forward(Pad("o", "x", padding, 7), [x]), padded(x, padding, 7).numpy())


# ------------------------------------------------------------------------------------------------------------ intervals


@given(graphs(), st.integers(0, 99))
@settings(max_examples=150, deadline=None, derandomize=True)
def test_every_value_of_a_graph_lies_in_its_interval_and_type(net: IntegerNetwork, seed: int) -> None:
    values = verify(net, float32_constants=False)
    found = reference(net, extreme_inputs(net, seed, rows=6))
    assert list(found) == list(values)
    for name, array in found.items():
        value = values[name]
        assert array.shape[1:] == value.shape == value.low.shape == value.high.shape
        assert (value.low <= array).all(), name
        assert (array <= value.high).all(), name
        assert value.type.contains(array, len(value.shape)), name
        assert value.type.contains(np.stack([value.low, value.high]), len(value.shape)), name
        assert value.magnitude <= value.bound


def terms(op: Op, operands: list[np.ndarray], rng: np.random.Generator) -> np.ndarray | None:
    """The terms that ``op`` adds for each of its results, in random order along the last axis; None if it adds none."""
    x = operands[0]
    if isinstance(op, Conv):
        bias = dataclasses.replace(op, weight=0 * op.weight, accumulator=None)
        every = [forward(bias, [x])]
        for index in np.ndindex(*op.weight.shape[1:]):
            weight = np.zeros_like(op.weight)
            weight[(slice(None), *index)] = op.weight[(slice(None), *index)]
            every.append(forward(dataclasses.replace(bias, weight=weight, bias=0 * op.bias), [x]))
        result = np.stack(every, axis=-1)
    elif isinstance(op, SumPool):
        every = []
        for index in np.ndindex(*op.kernel):
            weight = np.zeros((x.shape[1], 1, *op.kernel), dtype=np.int64)
            weight[(slice(None), 0, *index)] = 1
            pick = Conv("p", "x", weight, np.zeros(x.shape[1], int), op.stride, op.padding, x.shape[1])
            every.append(forward(pick, [x]))
        result = np.stack(every, axis=-1)
    elif isinstance(op, ReduceSum):
        result = np.moveaxis(x, op.axis + 1, -1)
    elif isinstance(op, Add):
        result = np.stack(np.broadcast_arrays(*operands), axis=-1)
    elif isinstance(op, Subtract):
        result = np.stack(np.broadcast_arrays(x, -operands[1]), axis=-1)
    else:
        return None
    return result[..., rng.permutation(result.shape[-1])]


@given(graphs(), st.integers(0, 99))
@settings(max_examples=120, deadline=None, derandomize=True)
def test_bounds_cover_every_intermediate_of_a_graph(net: IntegerNetwork, seed: int) -> None:
    rng = np.random.default_rng(seed)
    found = reference(net, extreme_inputs(net, seed, rows=3))
    for op in net.ops:
        bound, operands = net.values[op.name].bound, [found[name] for name in op.inputs]
        parts = terms(op, operands, rng)
        if parts is not None:
            assert int(np.abs(parts.cumsum(axis=-1)).max()) <= bound, op.name
            assert int(np.maximum(parts, 0).sum(axis=-1).max()) <= bound, op.name
            assert int(np.maximum(-parts, 0).sum(axis=-1).max()) <= bound, op.name
        if isinstance(op, Requantize):
            product = np.abs(operands[0] * op.multiplier) + (np.int64(1) << op.shift)
            assert int(product.max()) <= bound, op.name
        if not isinstance(op, Conv | Dense | SumPool | Requantize):  # these may leave elements out, or clip
            assert max(int(np.abs(x).max()) for x in operands) <= bound, op.name


@given(windows(), st.booleans())
@settings(max_examples=80, deadline=None, derandomize=True)
def test_the_ends_of_a_convolutions_interval_are_attained(window: tuple, grouped: bool) -> None:
    """On inputs that are free, whatever the border cuts off."""
    space, kernel, stride, padding, channels, seed = window
    rng = np.random.default_rng(seed)
    groups = channels if grouped else 1
    weight = rng.integers(-9, 10, (2 * groups, channels // groups, *kernel))
    op = Conv("c", "x", weight, rng.integers(-9, 10, 2 * groups), stride, padding, groups)
    type = IntType(tuple(int(n) for n in rng.integers(2, 5, channels)), signed=bool(rng.integers(2)))
    value = network(op, shape=(channels, *space), type=type).values["c"]
    size = channels * int(np.prod(space))
    impulses = np.eye(size, dtype=np.int64).reshape(size, channels, *space)
    gain = forward(dataclasses.replace(op, bias=0 * op.bias), [impulses]).reshape(size, -1)
    low, high = (np.broadcast_to(end(1 + len(space)), (channels, *space)).reshape(-1) for end in (type.low, type.high))
    for ends, expected in (
        (np.where(gain.T > 0, high, low), value.high),
        (np.where(gain.T > 0, low, high), value.low),
    ):
        found = forward(op, [ends.reshape(-1, channels, *space)]).reshape(len(ends), -1)
        assert np.diag(found).tolist() == expected.reshape(-1).tolist()
    assert value.type == IntType.holding(int(value.low.min()), int(value.high.max()))


def test_long_images_are_derived_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    op = Conv("c", "x", rng.integers(-9, 10, (4, 2, 3, 2)), np.arange(4), (2, 1), (1, 0, 2, 1), 2)
    whole = network(op, shape=(4, 7, 5), type=IntType((3, 4, 5, 6), True)).values["c"]
    monkeypatch.setattr("hawq_flow.network.layers._DERIVE_TERMS", 1)
    parts = network(op, shape=(4, 7, 5), type=IntType((3, 4, 5, 6), True)).values["c"]
    np.testing.assert_array_equal(whole.low, parts.low)
    np.testing.assert_array_equal(whole.high, parts.high)
    assert (whole.bound, whole.type) == (parts.bound, parts.type)


@pytest.mark.parametrize(
    "op",
    [
        conv([[[3, -2]], [[-1, 0]]], [1, -4], padding=(1, 0), name="o"),
        MaxPool("o", "x", (2,), (1,), (1, 0)),
        SumPool("o", "x", (2,), (1,), (0, 1)),
        Pad("o", "x", (1, 0), 1),
        Upsample("o", "x", (2,)),
        ReduceMax("o", "x", 1),
        ReduceSum("o", "x", 1),
        Lookup("o", "x", np.array([5, -3, 9, 0, 2]), -2),
        Concat("o", ("x", "y"), 1),
        Add("o", ("x", "y")),
        Add("o", ("y", "x", "y")),
        Subtract("o", "x", "y"),
        Multiply("o", "x", "y"),
    ],
    ids=lambda op: op.kind,
)
def test_the_ends_of_every_interval_are_attained(op: Op) -> None:
    """Every input there is, of two elements and a third: the interval ends where the results end."""
    net = network(op, shape=(1, 2), type=IntType(2, True), other=(1, 1), other_type=IntType(3, True))
    rows = np.array(list(itertools.product(range(-2, 2), range(-2, 2), range(-4, 4))))
    found = reference(net, {"x": rows[:, None, :2], "y": rows[:, None, 2:]})["o"]
    value = net.values["o"]
    np.testing.assert_array_equal(value.low, found.min(axis=0))
    np.testing.assert_array_equal(value.high, found.max(axis=0))
    assert value.bound >= value.magnitude


def test_types_of_what_is_put_together() -> None:
    def joined(x: IntType, y: IntType, axis: int = 0) -> IntType:
        return network(Concat("o", ("x", "y"), axis), shape=(2, 3), type=x, other=(2, 3), other_type=y).values["o"].type

    assert joined(S4, S4) == S4
    assert joined(S4, U4) == IntType(5, True)
    assert joined(IntType((2, 6), True), IntType(6, True)) == IntType(6, True)
    assert joined(IntType(4, True, True), S4) == S4
    assert joined(IntType((2, 3), False), U4, 1) == U4


def test_ops_that_keep_channels_keep_a_width_for_each() -> None:
    type = IntType((3, 5), signed=True)
    for op in (
        MaxPool("o", "x", (2,), (2,), (1, 0)),
        Pad("o", "x", (1, 1), -3),
        Upsample("o", "x", (2,)),
    ):
        assert network(op, shape=(2, 4), type=type).values["o"].type == type


# --------------------------------------------------------------------------------------------------- where words end


@pytest.mark.parametrize("exponent", [24, 53, 60])
def test_bounds_of_convolutions_are_exact(exponent: int) -> None:
    for delta in (-1, 0, 1):
        target = (1 << exponent) + delta
        weight = np.array([[[1 << (exponent - 8), -(1 << (exponent - 9))]]])
        bias = target - 128 * int(np.abs(weight).sum())
        value = network(conv(weight, bias), type=IntType(8, True), shape=(1, 2)).values["c"]
        assert value.bound == target
        assert int(value.high[0, 0]) == target - int(weight[0, 0, 0])  # the other end of int8 is one less


def test_no_sum_or_product_may_reach_2_to_the_62() -> None:
    """Exactly at the limit refused, one below it proved: convolution, pool, sums, products, tables."""
    u31, u40, s61 = IntType(31, False), IntType(40, False), IntType(61, True)
    top = (1 << 31) - 1
    ok = LIMIT - 1 - top * (1 << 30)
    assert network(conv([[[1 << 30]]], ok), type=u31).values["c"].bound == LIMIT - 1
    cases: list[tuple[IntegerNetwork, str]] = [
        (network(conv([[[1 << 30]]], ok + 1), type=u31), f"c: a partial sum may reach {LIMIT} (2^62 or more)"),
        # The sum itself is small: its terms are not.
        (network(conv([[[1 << 61, -(1 << 61)]]]), type=U4), "c: a partial sum may reach"),
        (network(SumPool("o", "x", (4,), (4,), (0, 0)), type=s61), "o: the sum of a window may reach"),
        (network(ReduceSum("o", "x", 1), type=s61), f"o: the sum may reach {LIMIT}"),
        (network(Add("o", ("x",) * 4), type=s61), f"o: the sum may reach {LIMIT}"),
        (network(Subtract("o", "x", "y"), type=IntType(62, True), other=(1, 4)), "o: the difference may reach"),
        (network(Multiply("o", "x", "y"), type=u40, other=(1, 4), other_type=u31), "o: the product may reach"),
    ]
    for net, text in cases:
        with pytest.raises(NetworkError, match=re.escape(text) + ".*beyond the 2\\^62 that int64 carries safely"):
            verify(net, float32_constants=False)
    with pytest.raises(NetworkError, match=r"o: an entry of the table may reach .*scale it down"):
        Lookup("o", "x", np.array([LIMIT]), 0)
    assert network(ReduceSum("o", "x", 1), type=IntType(60, True), shape=(1, 3)).values["o"].bound == 3 << 59
    assert network(Multiply("o", "x", "x"), type=u31).values["o"].bound == top * top


def test_sums_that_no_type_holds_are_refused() -> None:
    """Signed values end at 62 bits, sums below 2^62 or not."""
    wide = IntType(61, True)
    for op in (SumPool("o", "x", (3,), (1,), (0, 0)), Add("o", ("x",) * 3), conv([[[3]]], name="o")):
        with pytest.raises(NetworkError, match=r"o: sums from -\d+ to \d+ need a signed type of 63 bits"):
            verify(network(op, type=wide))
    net = network(Concat("o", ("x", "y")), type=wide, other=(1, 4), other_type=IntType(62, False))
    with pytest.raises(
        NetworkError, match=r"o: operands of types int61, uint62 need a signed type of 63 bits.*Requantize the unsigned"
    ):
        verify(net)


# ----------------------------------------------------------------------------------------------------- storing, digest


def everything() -> IntegerNetwork:
    """One of every op beyond Dense, Requantize and Reshape, every field away from its default."""
    wide = IntType(9, signed=True)
    return IntegerNetwork(
        (InputSpec("x", (2, 5, 7), S4), InputSpec("y", (2, 5, 7), U4)),
        (
            Conv("c", "x", np.ones((2, 1, 3, 2), int), np.arange(2), (1, 2), (2, 1, 0, 1), 2, wide, Overflow.WRAP, "l"),
            Pad("p", "x", (1, 0, 2, 1), -3, "l"),
            MaxPool("m", "x", (2, 3), (1, 2), (0, 1, 1, 2), "l"),
            SumPool("s", "x", (2, 3), (1, 2), (0, 1, 1, 2), "l"),
            Upsample("u", "x", (2, 3), "l"),
            Concat("k", ("x", "y"), 1, "l"),
            Add("a", ("x", "y"), "l"),
            Subtract("b", "x", "y", "l"),
            Multiply("t", "x", "y", "l"),
            ReduceMax("rm", "x", 1, "l"),
            ReduceSum("rs", "x", 2, "l"),
            Lookup("o", "x", np.arange(20), -9, "tanh", "l", (0.5, 0, 0.25, -3)),
        ),
        (OutputSpec("o"),),
    )


OTHER = {
    "name": "other",
    "input": "y",
    "left": "c",
    "right": "x",
    "operands": ("y", "x"),
    "layer": "other",
    "function": "sigmoid",
    "accumulator": IntType(10, signed=True),
    "overflow": Overflow.SATURATE,
    "axis": 0,
    "start": -10,
    "value": 2,
    "groups": 1,
    "stride": (2, 2),
    "padding": (0, 0, 0, 0),
    "kernel": (3, 3),
    "factors": (2, 2),
    "scales": (1.0, 0, 1.0, 0),
}
"""A different value for every field that is not an array."""


@pytest.mark.parametrize(
    ("index", "field"),
    [(i, field.name) for i, op in enumerate(everything().ops) for field in dataclasses.fields(op)],
)
def test_the_digest_sees_every_field_of_every_op(index: int, field: str) -> None:
    net = everything()
    old = getattr(net.ops[index], field)
    op = dataclasses.replace(net.ops[index], **{field: old + 1 if isinstance(old, np.ndarray) else OTHER[field]})
    assert dataclasses.replace(net, ops=(*net.ops[:index], op, *net.ops[index + 1 :])) != net


def test_every_op_comes_back_equal_field_by_field(tmp_path: Path) -> None:
    net = everything()
    assert {op.kind for op in net.ops} == set(OPS) - {"Dense", "Requantize", "Reshape"}
    verify(net)
    net.save(tmp_path)
    again = IntegerNetwork.load(tmp_path)
    assert again == net
    for mine, theirs in zip(net.ops, again.ops, strict=True):
        assert type(mine) is type(theirs)
        for field in dataclasses.fields(mine):
            one, other = getattr(mine, field.name), getattr(theirs, field.name)
            assert type(one) is type(other), (mine.name, field.name)
            assert (one == other).all() if isinstance(one, np.ndarray) else one == other


@given(graphs(), st.integers(0, 99))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_graphs_come_back_equal(net: IntegerNetwork, seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        net.save(folder)
        again = IntegerNetwork.load(folder)
    assert again == net
    assert hash(again) == hash(net)
    x = extreme_inputs(net, seed, rows=2)
    for name, array in reference(net, x).items():
        np.testing.assert_array_equal(reference(again, x)[name], array)
    for name, value in net.values.items():
        other: Value = again.values[name]
        assert (value.type, value.bound, value.shape) == (other.type, other.bound, other.shape)


def test_numpys_integers_are_stored_as_integers(tmp_path: Path) -> None:
    one = np.int64(1)
    net = IntegerNetwork(
        (InputSpec("x", (1, 4), S4),),
        (
            Conv("c", "x", np.ones((1, 1, 2), int), np.zeros(1, int), (one,), (one, one), one),  # type: ignore[arg-type]
            Pad("p", "x", (one, one), one),  # type: ignore[arg-type]
            Concat("k", ("x", "x"), one),  # type: ignore[arg-type]
            ReduceMax("m", "x", one),  # type: ignore[arg-type]
            ReduceSum("s", "x", one),  # type: ignore[arg-type]
            Upsample("u", "x", (one,)),
            Lookup("o", "x", np.arange(20), -9 * one),  # type: ignore[arg-type]
        ),
        (OutputSpec("o"),),
    )
    net.save(tmp_path)
    assert IntegerNetwork.load(tmp_path) == net


# ------------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: conv([[1, 2]]), "c: weight of shape (1, 2) with bias of shape (1,); expected (outputs, channels"),
        (lambda: conv(np.ones((1, 1, 1, 1, 1), int)), "c: weight of shape (1, 1, 1, 1, 1) with bias of shape (1,)"),
        (lambda: conv(np.ones((1, 1, 0), int)), "c: weight of shape (1, 1, 0)"),
        (
            lambda: Conv("c", "x", np.ones((2, 1, 1), int), np.zeros(1, int), (1,), (0, 0)),
            "c: weight of shape (2, 1, 1) with bias of shape (1,); expected (outputs, channels / groups, kernel) or "
            "(outputs, channels / groups, height, width) and (outputs,)",
        ),
        (lambda: conv(np.ones((3, 1, 1), int), groups=2), "c: 3 outputs in 2 groups; expected a divisor of them"),
        (lambda: conv(np.ones((3, 1, 1), int), groups=0), "c: 3 outputs in 0 groups"),
        (
            lambda: conv([[[1]]], accumulator=IntType(4, True, True), overflow=Overflow.WRAP),
            "c: wraps into int4n; a narrow type has no modulus. Saturate, or use the full type",
        ),
        (lambda: conv([[[1.5]]]), "integers expected, found an array of float64"),
        (lambda: conv([[[1, 2]]], stride=(1, 1)), "c: stride (1, 1) for a kernel (2); expected 1 numbers"),
        (
            lambda: conv([[[1, 2]]], padding=(1, 1, 1)),
            "c: padding (1, 1, 1) for a kernel (2); expected 2 numbers: all beginnings, then all ends",
        ),
        (lambda: conv([[[1, 2]]], stride=(0,)), "c: kernel (2) with stride (0,); expected 1 or more"),
        (lambda: MaxPool("o", "x", (0,), (1,), (0, 0)), "o: kernel (0) with stride (1,); expected 1 or more"),
        (
            lambda: conv([[[1, 2]]], padding=(0, 2)),
            "c: padding (0, 2) with kernel (2); expected 0 to one less than the kernel. Put a Pad before it for more",
        ),
        (lambda: SumPool("o", "x", (2, 3), (1, 1), (0, 0, 2, 0)), "o: padding (0, 0, 2, 0) with kernel (2, 3)"),
        (lambda: MaxPool("o", "x", (2,), (1,), (-1, 0)), "o: padding (-1, 0) with kernel (2)"),
        (
            lambda: Pad("o", "x", (1, 2, 3)),
            "o: padding (1, 2, 3); expected 2 or 4 numbers of 0 or more: all beginnings, then all ends",
        ),
        (lambda: Pad("o", "x", (1, -1)), "o: padding (1, -1); expected 2 or 4 numbers of 0 or more"),
        (lambda: Upsample("o", "x", (1, 1, 1)), "o: factors (1, 1, 1); expected one or two numbers of 1 or more"),
        (lambda: Upsample("o", "x", (0,)), "o: factors (0,); expected one or two numbers of 1 or more"),
        (
            lambda: Concat("o", ("x",)),
            "o: 1 operands along axis 0; expected two or more, and an axis of 0 or more (batch excluded)",
        ),
        (lambda: Concat("o", ("x", "y"), -1), "o: 2 operands along axis -1; expected two or more, and an axis of 0"),
        (lambda: Add("o", ("x",)), "o: 1 operands; expected two or more"),
        (
            lambda: Lookup("o", "x", np.zeros((2, 2), int), 0),
            f"o: table of shape (2, 2); expected one axis of 1 to {MAX_TABLE} entries. Requantize its input to fewer",
        ),
        (lambda: Lookup("o", "x", np.zeros(0, int), 0), "o: table of shape (0,)"),
        (lambda: Lookup("o", "x", np.zeros(MAX_TABLE + 1, int), 0), f"o: table of shape ({MAX_TABLE + 1},)"),
        (lambda: Lookup("o", "x", np.zeros(2), 0), "integers expected, found an array of float64"),
    ],
)
def test_ops_that_cannot_be_are_refused(make: Callable[[], Op], text: str) -> None:
    with pytest.raises(NetworkError, match=re.escape(text)):
        make()


@pytest.mark.parametrize(
    ("op", "shape", "text"),
    [
        (
            conv(np.ones((2, 3, 1, 1), int), stride=(1, 1), padding=(0,) * 4, groups=2),
            (5, 4, 4),
            "c: input 'x' has shape (5, 4, 4), expected (6, n, n) for a weight of shape (2, 3, 1, 1) in 2 groups: "
            "channels first, batch excluded",
        ),
        (conv([[[1]]]), (1,), "c: input 'x' has shape (1), expected (1, n) for a weight of shape (1, 1, 1)"),
        (
            conv([[[1] * 5]], padding=(1, 1)),
            (1, 2),
            "c: a kernel of 5 on 2 elements with padding 1 and 1 (axis 0 of space); the window does not fit once",
        ),
        (
            MaxPool("o", "x", (1, 4), (1, 1), (0, 0, 0, 0)),
            (1, 3, 3),
            "o: a kernel of 4 on 3 elements with padding 0 and 0 (axis 1 of space)",
        ),
        (
            conv([[[1]]], accumulator=IntType((3, 4), True)),
            (1, 4),
            "c: type int[3,4] has 2 channel widths for a value of shape (1, 4)",
        ),
        (
            MaxPool("o", "x", (2, 2), (1, 1), (0,) * 4),
            (3, 4),
            "o: a pool in 2 dimensions on a value of shape (3, 4); expected (channels, n, n)",
        ),
        (SumPool("o", "x", (2,), (1,), (0, 0)), (4,), "o: a pool in 1 dimensions on a value of shape (4)"),
        (Pad("o", "x", (1, 1)), (4,), "o: padding in 1 dimensions on a value of shape (4); expected (channels, n)"),
        (Upsample("o", "x", (2,)), (1, 2, 2), "o: upsampling in 1 dimensions on a value of shape (1, 2, 2)"),
        (
            Pad("o", "x", (1, 1), 8),
            (1, 4),
            "o: pads with 8, which 'x' of type int4 cannot hold; pad with its zero point, or widen the type",
        ),
        (Pad("o", "x", (1, 1), -9), (1, 4), "o: pads with -9, which 'x' of type int4 cannot hold"),
        (ReduceMax("o", "x", 2), (1, 4), "o: axis 2 of a value of shape (1, 4); expected 0 to 1"),
        (ReduceSum("o", "x", -1), (1, 4), "o: axis -1 of a value of shape (1, 4); expected 0 to 1"),
        (
            Lookup("o", "x", np.zeros(15, int), -8),
            (1, 4),
            "o: 'x' ranges from -8 to 7, the table from -8 to 6; give every integer an entry, or saturate its input",
        ),
        (Lookup("o", "x", np.zeros(40, int), -7), (1, 4), "o: 'x' ranges from -8 to 7, the table from -7 to 32"),
        (Lookup("o", "x", np.zeros(40, int), 1 << 70), (1, 4), "o: 'x' ranges from -8 to 7, the table from"),
        (Lookup("o", "x", np.zeros(40, int), -(1 << 70)), (1, 4), "o: 'x' ranges from -8 to 7, the table from"),
    ],
)
def test_values_that_do_not_fit_are_refused(op: Op, shape: Shape, text: str) -> None:
    with pytest.raises(NetworkError, match=re.escape(text)):
        verify(network(op, shape=shape))


def test_a_pad_must_fit_every_channel() -> None:
    net = network(Pad("o", "x", (1, 1), 7), shape=(2, 4), type=IntType((4, 3), True))
    with pytest.raises(NetworkError, match=r"o: pads with 7, which 'x' of type int\[4,3\] cannot hold"):
        verify(net)


@pytest.mark.parametrize(
    ("op", "text"),
    [
        (
            Add("o", ("x", "y")),
            "o: operands of shapes (2, 3), (2, 4); expected equal shapes, or ones where they differ",
        ),
        (Subtract("o", "x", "y"), "o: operands of shapes (2, 3), (2, 4); expected equal shapes"),
        (Multiply("o", "y", "x"), "o: operands of shapes (2, 4), (2, 3); expected equal shapes"),
        (Add("o", ("x", "f")), "o: operands of shapes (2, 3), (6); expected equal shapes"),
        (Concat("o", ("x", "y")), "o: operands of shapes (2, 3), (2, 4); expected the same but for axis 0"),
        (Concat("o", ("x", "f"), 1), "o: operands of shapes (2, 3), (6); expected the same but for axis 1"),
        (Concat("o", ("x", "x"), 2), "o: operands of shapes (2, 3), (2, 3); expected the same but for axis 2"),
    ],
)
def test_operands_that_do_not_match_are_refused(op: Op, text: str) -> None:
    net = network(Reshape("f", "x", (6,)), op, shape=(2, 3), other=(2, 4))
    with pytest.raises(NetworkError, match=re.escape(text)):
        verify(net)


def test_constants_of_the_new_ops_must_fit_float32_unless_asked_otherwise() -> None:
    good, bad = (1 << 24) - 1, (1 << 24) + 1
    wide = IntType(30, True)
    table = np.zeros(16, dtype=np.int64)
    table[3] = bad
    clip = Requantize("q", "x", np.array(1), np.array(0), np.array(bad + 31), IntType(25, False), Rounding.FLOOR)
    verify(network(Lookup("o", "x", table - 1, -8), Pad("p", "x", (1, 1), 7), conv([[[good]]], bad - 1)))
    for ops, text in (
        ([Lookup("o", "x", table, -8)], rf"o: table\[3\] = {bad} has 25 significant bits"),
        ([Pad("o", "x", (1, 1), -bad)], rf"o: value\[\] = -{bad} has 25 significant bits"),
        ([conv([[[0, 1, bad]]])], rf"c: weight\[0, 0, 2\] = {bad} has 25 significant bits"),
        ([conv([[[1]]], bad)], rf"c: bias\[0\] = {bad} has 25 significant bits"),
        ([clip, Lookup("o", "q", np.zeros(64, int), bad + 2)], rf"o: start\[\] = {bad + 2} has 25 significant bits"),
    ):
        type = S4 if isinstance(ops[-1], Lookup) else wide
        net = network(*ops, type=type)
        with pytest.raises(NetworkError, match=text + "; a float32 initializer holds 24"):
            verify(net)
        assert verify(net, float32_constants=False) is net.values


def test_scales_of_a_table_are_an_annotation_that_older_networks_lack(tmp_path: Path) -> None:
    def with_scales(scales: tuple[float, int, float, int] | None) -> IntegerNetwork:
        table = Lookup("o", "x", np.arange(16), -8, "tanh", scales=scales)
        return IntegerNetwork((InputSpec("x", (2,), IntType(4, True)),), (table,), (OutputSpec("o"),))

    plain, known = with_scales(None), with_scales((0.5, 0, 0.25, -3))
    assert plain.digest != known.digest
    for network in (plain, known):
        network.save(tmp_path / network.digest)
        assert IntegerNetwork.load(tmp_path / network.digest).ops[0].scales == network.ops[0].scales  # type: ignore[union-attr]
    assert "scales" not in (tmp_path / plain.digest / "network.json").read_text()
    for bad in ((0.0, 0, 1.0, 0), (1.0, 0, float("nan"), 0)):
        with pytest.raises(NetworkError, match=r"o: scales .*; expected positive finite numbers, or none"):
            with_scales(bad)
