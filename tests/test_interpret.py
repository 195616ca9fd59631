"""The interpreter against the plain definition of each op: equal on every value of every network, or it refuses."""

from __future__ import annotations

import dataclasses
import re
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import pytest
from core_strategies import extreme_inputs, graphs, networks
from hypothesis import given, settings
from hypothesis import strategies as st

from hawq_flow import interpret
from hawq_flow.interpret import layout, products
from hawq_flow.network import (
    Add,
    Concat,
    Conv,
    Dense,
    InputSpec,
    IntegerNetwork,
    MaxPool,
    Multiply,
    NetworkError,
    Op,
    OutputSpec,
    Pad,
    Requantize,
    Reshape,
    Subtract,
    SumPool,
    Upsample,
)
from hawq_flow.numeric import IntType, Overflow, Rounding

WIDE = IntType(60, signed=True)


def same(net: IntegerNetwork, x: np.ndarray) -> dict[str, np.ndarray]:
    """Assert that trace and run equal the reference on every value; return the reference."""
    expected, found = interpret.reference(net, x), interpret.trace(net, x)
    assert list(found) == list(net.values)
    for name, array in expected.items():
        assert found[name].dtype == np.int64
        np.testing.assert_array_equal(found[name], array, err_msg=name)
    np.testing.assert_array_equal(interpret.run(net, x), expected[net.outputs[0].name])
    return expected


@given(networks(), st.integers(0, 99))
@settings(max_examples=500, deadline=None, derandomize=True)
def test_trace_equals_the_definition(net: IntegerNetwork, seed: int) -> None:
    same(net, extreme_inputs(net, seed))


def few_and_many(net: IntegerNetwork, x: np.ndarray) -> None:
    """Rows that lie row innermost, rows that lie one by one, and none."""
    same(net, x)
    same(net, x[: layout.TOGETHER - 1])
    assert len(same(net, x[:0])["x"]) == 0


@given(graphs(), st.integers(0, 99))
@settings(max_examples=150, deadline=None, derandomize=True)
def test_graphs_equal_the_definition(net: IntegerNetwork, seed: int) -> None:
    few_and_many(net, extreme_inputs(net, seed, rows=4))


@pytest.mark.slow
@given(graphs(max_steps=14), st.integers(0, 99))
@settings(max_examples=4000, deadline=None)
def test_many_larger_graphs_equal_the_definition(net: IntegerNetwork, seed: int) -> None:
    few_and_many(net, extreme_inputs(net, seed, rows=4))


@contextmanager
def small_blocks() -> Iterator[None]:
    """Blocks of a few elements and pieces of a few terms, so that small networks have several of each."""
    interpret._compile.cache_clear()
    sizes = {"MATRIX_BYTES": 64, "TAP_BYTES": 32, "LEAST_PIECE": 1}
    with patch.multiple(products, **sizes), patch.multiple(interpret, BLOCK_BYTES=1 << 10, FEW_BYTES=1):
        yield
    interpret._compile.cache_clear()


@given(graphs(), st.integers(0, 99))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_blocks_of_any_size_give_the_same(net: IntegerNetwork, seed: int) -> None:
    with small_blocks():
        same(net, extreme_inputs(net, seed, rows=4))


def single(op: Op, type: IntType, *shape: int) -> IntegerNetwork:
    return IntegerNetwork((InputSpec("x", shape, type),), (op,), (OutputSpec(op.name),))


@pytest.mark.parametrize("kind", ["dense", "pointwise", "conv1d", "grouped", "depthwise"])
@pytest.mark.parametrize("exponent", [24, 25, 53, 54, 60])
@pytest.mark.parametrize("delta", [-2, -1, 0, 1, 2])
def test_sums_on_both_sides_of_every_word_size(exponent: int, delta: int, kind: str) -> None:
    """Sums that reach exactly 2^exponent + delta, odd ones among them: the next narrower float would round."""
    bits = min(exponent - 2, 30)
    type = IntType(bits, signed=True)
    reach = 1 << (bits - 1)
    target = (1 << exponent) + delta
    big = (target - 1) // reach
    rest = target - big * reach
    weight = np.array([[big, 0], [-big, 0], [big - 1, 1], [1, 0], [big, 0], [-big, 0]])
    bias = np.array([rest, -rest, 0, 1, -rest, rest])
    ends = np.array([-reach, -reach + 1, -1, 0, 1, reach - 2, reach - 1])
    x = np.stack(np.meshgrid(ends, ends), axis=-1).reshape(-1, 2)
    exact = [
        [
            sum(int(w) * int(v) for w, v in zip(row, xs, strict=True)) + int(b)
            for row, b in zip(weight, bias, strict=True)
        ]
        for xs in x
    ]
    pair = (slice(None), slice(None), None)
    ones = (1, 1), (0, 0, 0, 0)
    op: Op
    if kind == "dense":
        net = single(Dense("d", "x", weight, bias), type, 2)
    elif kind == "pointwise":
        net = single(Conv("d", "x", weight[:, :, None, None], bias, *ones), type, 2, 1, 1)
    elif kind == "conv1d":  # the two terms along space
        net = single(Conv("d", "x", weight[:, None], bias, (1,), (0, 0)), type, 1, 2)
    elif kind == "grouped":
        op = Conv("d", "x", np.tile(weight, (2, 1))[pair], np.tile(bias, 2), (1,), (0, 0), 2)
        net, x, exact = single(op, type, 4, 1), np.tile(x, 2), [row * 2 for row in exact]
    else:
        op = Conv("d", "x", np.tile(weight, (2, 1))[:, None], np.tile(bias, 2), (1,), (0, 0), 2)
        net, x, exact = single(op, type, 2, 2), np.tile(x, 2), [row * 2 for row in exact]
    assert net.values["d"].bound == target
    found = same(net, x.reshape(-1, *net.inputs[0].shape))["d"].reshape(len(x), -1)
    assert found.tolist() == exact
    same(net, x[:2].reshape(-1, *net.inputs[0].shape))


def layer(weight: np.ndarray, low: int, high: int, bias: int = 0) -> products.Products:
    """The plan of one output with these weights, every input between low and high."""
    fan_in = np.ones((1, len(weight)), dtype=np.int64)
    return products.plan(weight[None, None], np.array([[bias]]), low * fan_in, high * fan_in, 1 << 61)


def test_the_narrowest_float_that_is_proved() -> None:
    """Partial sums go up by the positive terms and down by the negative ones; each way counts alone."""
    half = np.array([1 << 23, -(1 << 23)])
    single, double, integer = np.float32, np.float64, np.int64
    for weight, high, bias, operand, total, terms in (
        (half, 1, 0, single, single, [2]),
        (half, 1, (1 << 23) - 1, single, single, [2]),
        (half, 1, 1 << 23, double, double, [2]),
        (half, 1, -(1 << 23), double, double, [2]),
        (half, 2, 0, double, double, [2]),
        (half << 29, 1, (1 << 52) - 1, double, double, [2]),
        (half << 29, 1, 1 << 52, double, integer, [2]),
        (half << 29, 2, 0, integer, integer, [2]),  # a single term is too large for float64
        (np.full(3, 1 << 52), 1, 0, double, integer, [1, 1, 1]),
        (np.full(128, 1 << 18), 1, 0, single, double, [63, 63, 2]),
    ):
        least = products.LEAST_PIECE if len(terms) < 3 or len(weight) < 100 else 32
        with patch.object(products, "LEAST_PIECE", least):
            found = layer(weight, 0, high, bias)
        assert (found.operand, found.total) == (operand, total), (weight, high, bias)
        assert [piece.shape[2] for _, piece in found.pieces] == terms
        assert [slice.stop - slice.start for slice, _ in found.pieces] == terms
    assert len(layer(np.full(128, 1 << 18), 0, 1).pieces) == 1  # three pieces of 128 terms are too short


@given(st.integers(0, 2**32 - 1), st.integers(4, 30), st.integers(2, 40), st.booleans())
@settings(max_examples=200, deadline=None, derandomize=True)
def test_no_partial_sum_of_a_piece_leaves_its_float(seed: int, bits: int, terms: int, signed: bool) -> None:
    rng = np.random.default_rng(seed)
    weight = rng.integers(-(1 << bits), 1 << bits, (2, 3, terms))
    bias = rng.integers(-(1 << bits), 1 << bits, (2, 3))
    low = -rng.integers(0, 1 << min(bits, 26), (2, terms)) * signed
    high = rng.integers(0, 1 << min(bits, 26), (2, terms))
    with patch.object(products, "LEAST_PIECE", 1):
        found = products.plan(weight, bias, low, high, 1 << 61)
    assert [t for piece, _ in found.pieces for t in range(terms)[piece]] == list(range(terms))
    limit = {"f": 1 << (24 if found.operand.itemsize == 4 else 53), "i": 1 << 62}[found.operand.kind]
    total = {"f": 1 << (24 if found.total.itemsize == 4 else 53), "i": 1 << 62}[found.total.kind]
    for _ in range(5):
        x = np.where(rng.integers(0, 2, (2, 1, terms)) == 1, low[:, None], high[:, None])
        products_ = weight * x
        order = rng.permutation(terms)
        for piece, _ in found.pieces:
            mine = products_[:, :, [t for t in order if t in range(terms)[piece]]]
            assert np.abs(mine.cumsum(axis=2)).max() < limit
            # As hard as the data can push: only the terms of one sign.
            for sign in (1, -1):
                assert np.maximum(sign * mine, 0).sum(axis=2).max() < limit
        assert np.abs(products_[:, :, order].cumsum(axis=2) + bias[:, :, None]).max() < total


@pytest.mark.parametrize(("weight_bits", "input_bits"), [(12, 14), (20, 30), (28, 27)])
@pytest.mark.parametrize("groups", [0, 1, 3])
def test_long_fan_ins_in_pieces(weight_bits: int, input_bits: int, groups: int) -> None:
    """Sums far beyond each float, through Dense (no groups) and Conv: float32 or float64 pieces, or int64."""
    rng = np.random.default_rng(groups)
    reach = 1 << (weight_bits - 1)
    type = IntType(input_bits, signed=True)
    if groups == 0:
        net = single(Dense("d", "x", rng.integers(-reach, reach, (4, 300)), np.array([1, -1, 5, 0])), type, 300)
    else:
        weight = rng.integers(-reach, reach, (2 * groups, 11, 3, 3))
        op = Conv("d", "x", weight, rng.integers(-9, 9, 2 * groups), (1, 2), (1, 0, 0, 2), groups)
        net = single(op, type, 11 * groups, 4, 5)
    with patch.object(products, "LEAST_PIECE", 1):
        interpret._compile.cache_clear()
        few_and_many(net, extreme_inputs(net, rows=5))
    interpret._compile.cache_clear()
    few_and_many(net, extreme_inputs(net, rows=5))


@pytest.mark.parametrize("overflow", Overflow)
@pytest.mark.parametrize("bits", [20, 26, 55, 60])
def test_declared_accumulators_wider_than_the_float_that_carries_the_sum(bits: int, overflow: Overflow) -> None:
    """An end that float32 rounds is beyond every sum that travels in float32."""
    weight = np.array([[[(1 << 16) - 1]], [[-(1 << 16) + 1]]])
    accumulator = IntType((bits, bits - 1), signed=True)
    op = Conv("d", "x", weight, np.array([1, -1]), (1,), (0, 0), 1, accumulator, overflow)
    few_and_many(single(op, IntType(8, False), 1, 1), np.arange(256).reshape(-1, 1, 1))


@pytest.mark.parametrize("rounding", Rounding)
@pytest.mark.parametrize("shift", [0, 1, 2, 13])
@pytest.mark.parametrize("exponent", [24, 53, 60])
@pytest.mark.parametrize("multiplier", [1, 3, -1])
def test_requantize_on_both_sides_of_every_word_size(
    exponent: int, shift: int, multiplier: int, rounding: Rounding
) -> None:
    """Products just below and just above what a float holds, all residues of the shift, ties included."""
    for delta in (-3, -2, -1, 0, 1, 2):
        top = ((1 << exponent) + delta - (1 << shift)) // abs(multiplier)
        # A dense layer of one constant row makes the accumulators' interval end exactly at ``top``.
        count = 1 << min(shift + 1, 6)
        dense = Dense("d", "x", np.array([[1], [-1]]), np.array([top - count, count - top]))
        for offset in (0, 5):
            op = Requantize(
                "q", "d", np.array(multiplier), np.array(shift), np.array(offset), WIDE, rounding, Overflow.SATURATE
            )
            spec = InputSpec("x", (1,), IntType((count).bit_length(), signed=False))
            net = IntegerNetwork((spec,), (dense, op), (OutputSpec("q"),))
            same(net, np.arange(count + 1)[:, None])


def test_half_up_without_a_shift_is_exact_for_large_odd_sums() -> None:
    """Adding a half to 2^23 + 1 is not exact in float32: with shift 0 there is nothing to round."""
    for exponent in (23, 52):
        top = (1 << exponent) + 1
        dense = Dense("d", "x", np.array([[1]]), np.array([top - 3]))
        op = Requantize("q", "d", np.array(1), np.array([0]), np.array(0), WIDE, Rounding.HALF_UP)
        net = IntegerNetwork((InputSpec("x", (1,), IntType(2, False)),), (dense, op), (OutputSpec("q"),))
        assert same(net, np.arange(4)[:, None])["q"][:, 0].tolist() == [top - 3, top - 2, top - 1, top]


def test_mixed_shifts_share_one_layer() -> None:
    rng = np.random.default_rng(0)
    shifts = np.array([0, 0, 1, 5, 20])
    for rounding in Rounding:
        op = Requantize("q", "x", np.array([1, 7, 1, 33, 99]), shifts, np.array(0), IntType(24, True), rounding)
        net = single(op, IntType(17, signed=True), 5)
        same(net, rng.integers(-(1 << 16), 1 << 16, (4000, 5)))


def test_ties_go_where_each_rounding_says() -> None:
    x = np.array([-5, -3, -1, 1, 3, 5])[:, None]
    for rounding, expected in (
        (Rounding.HALF_EVEN, [-2, -2, 0, 0, 2, 2]),
        (Rounding.FLOOR, [-3, -2, -1, 0, 1, 2]),
        (Rounding.HALF_UP, [-2, -1, 0, 1, 2, 3]),
    ):
        op = Requantize("q", "x", np.array(1), np.array(1), np.array(0), IntType(8, True), rounding)
        assert interpret.run(single(op, IntType(4, True), 1), x)[:, 0].tolist() == expected


def test_blocks_do_not_show() -> None:
    """Row counts on both sides of the block size, and none at all."""
    rng = np.random.default_rng(1)
    weight = rng.integers(-8, 8, (700, 3))
    net = IntegerNetwork(
        (InputSpec("x", (3,), IntType(4, True)),),
        (
            Dense("d", "x", weight, np.zeros(700, int)),
            Requantize("q", "d", np.array(3), np.array(3), np.array(0), IntType(6, False)),
        ),
        (OutputSpec("q"),),
    )
    block = interpret.block_rows(net)
    assert block == interpret.BLOCK_BYTES // (8 * 700)
    for rows in (0, 1, block - 1, block, block + 1, 3 * block + 5):
        x = rng.integers(-8, 8, (rows, 3))
        assert same(net, x)["q"].shape == (rows, 700)


def test_rows_in_a_block() -> None:
    def rows(*shape: int) -> int:
        return interpret.block_rows(single(Reshape("r", "x", shape), IntType(8, False), *shape))

    assert rows(16) == 4096
    assert rows(4096) == rows(32, 32, 32) == 16  # matrix products want a few rows together
    assert rows(64, 56, 56) == 2
    assert rows(64, 112, 112) == rows(64, 1000, 1000) == 1


def test_memory_is_bounded_by_a_few_values() -> None:
    """Eighty values of 2 MB (as float64) and a convolution whose windows are nine times its image: 16 MB will do."""
    size = 1 << 9
    ops: list[Op] = [Conv("c", "x", np.ones((1, 1, 3, 3), int), np.zeros(1, int), (1, 1), (1, 1, 1, 1))]
    for i in range(40):
        ops.append(Add(f"a{i}", (ops[-1].name, "c" if i == 20 else ops[-1].name)))
        ops.append(Requantize(f"q{i}", f"a{i}", np.array(1), np.array(1), np.array(0), IntType(20, False)))
    ops.append(SumPool("s", ops[-1].name, (size, size), (1, 1), (0, 0, 0, 0)))
    net = IntegerNetwork((InputSpec("x", (1, size, size), IntType(4, False)),), tuple(ops), (OutputSpec("s"),))
    x = np.ones((1, 1, size, size), dtype=np.int8)
    interpret.run(net, x)
    tracemalloc.start()
    try:
        interpret.run(net, x)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16 << 20


def test_any_order_in_memory_will_do() -> None:
    """Inputs that are views: transposed, strided, broadcast, reversed."""
    rng = np.random.default_rng(0)
    ops = (
        Conv("c", "x", rng.integers(-3, 4, (4, 2, 3, 2)), np.zeros(4, int), (1, 1), (1, 0, 1, 1)),
        Pad("p", "x", (0, 0, 0, 0)),
        Upsample("u", "p", (1, 1)),
        Conv("e", "u", rng.integers(-3, 4, (4, 1, 3, 2)), np.ones(4, int), (1, 1), (1, 0, 1, 1), 2),
        MaxPool("m", "e", (2, 3), (2, 2), (1, 2, 0, 2)),
        MaxPool("n", "c", (1, 1), (1, 1), (0,) * 4),
        Concat("j", ("n", "e"), 1),
        Reshape("r", "j", (np.prod((4, 10, 7)),)),
        Dense("d", "r", rng.integers(-3, 4, (3, 280)), np.zeros(3, int)),
    )
    net = IntegerNetwork((InputSpec("x", (2, 5, 7), IntType(4, True)),), ops, (OutputSpec("d"),))
    base = rng.integers(-8, 8, (2, 14, 5, 20))
    for x in (
        base[:, ::2].transpose(3, 0, 2, 1),
        base[:, 6::-1].transpose(3, 0, 2, 1)[::3],
        np.broadcast_to(base[:, :7, :, 0].transpose(0, 2, 1), (9, 2, 5, 7)),
        np.asfortranarray(rng.integers(-8, 8, (6, 2, 5, 7))),
    ):
        few_and_many(net, x)


def test_join_of_two_inputs_that_broadcast() -> None:
    net = IntegerNetwork(
        (InputSpec("x", (2, 1, 3), IntType(26, True)), InputSpec("y", (1, 4, 1), IntType(3, False))),
        (Multiply("m", "x", "y"), Subtract("s", "y", "x"), Add("a", ("x", "y", "m", "s"))),
        (OutputSpec("a"),),
    )
    rng = np.random.default_rng(0)
    x = {"x": rng.integers(-(1 << 25), 1 << 25, (9, 2, 1, 3)), "y": rng.integers(0, 8, (9, 1, 4, 1))}
    expected, found = interpret.reference(net, x), interpret.trace(net, x)
    assert all((expected[name] == found[name]).all() for name in net.values)
    assert found["a"].shape == (9, 2, 4, 3)


def test_values_that_several_ops_read_or_nobody_reads() -> None:
    net = IntegerNetwork(
        (InputSpec("x", (2,), IntType(4, True)),),
        (
            Dense("a", "x", np.array([[1, 2]]), np.array([0])),
            Dense("b", "x", np.array([[3, -1]]), np.array([1])),
            Dense("c", "a", np.array([[2]]), np.array([0])),
            Dense("d", "a", np.array([[5]]), np.array([0])),
        ),
        (OutputSpec("d"), OutputSpec("x"), OutputSpec("a")),
    )
    x = np.array([[1, 2], [-3, 4]])
    expected, found = interpret.reference(net, x), interpret.trace(net, x)
    assert all((expected[name] == found[name]).all() for name in net.values)
    with pytest.raises(NetworkError, match=r"run: the network has 3 outputs; use outputs\(\)"):
        interpret.run(net, x)
    one = dataclasses.replace(net, outputs=(OutputSpec("x"),))
    assert (interpret.run(one, x) == x).all()


def test_several_inputs_are_given_by_name() -> None:
    net = IntegerNetwork(
        (InputSpec("x", (1,), IntType(4, True)), InputSpec("y", (2,), IntType(3, False))),
        (Dense("d", "y", np.array([[1, 2]]), np.array([0])),),
        (OutputSpec("d"),),
    )
    assert interpret.run(net, {"x": [[1], [2]], "y": [[1, 2], [3, 4]]}).tolist() == [[5], [11]]
    with pytest.raises(NetworkError, match="inputs given: x; the network's are x, y"):
        interpret.run(net, [[1]])
    with pytest.raises(NetworkError, match="inputs given: x, z; the network's are x, y"):
        interpret.run(net, {"x": [[1]], "z": [[1, 2]]})
    with pytest.raises(NetworkError, match=r"inputs of different lengths: \[1, 2\]; give the same number of rows"):
        interpret.run(net, {"x": [[1], [2]], "y": [[1, 2]]})


IDENTITY = IntegerNetwork(
    (InputSpec("x", (2,), IntType((3, 4), signed=True)),),
    (Reshape("r", "x", (2, 1)),),
    (OutputSpec("r"),),
)


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int64, np.float16, np.float32, np.float64])
def test_any_dtype_of_whole_numbers_will_do(dtype: type) -> None:
    found = interpret.run(IDENTITY, np.array([[3, -8], [-4, 7]], dtype=dtype))
    assert found.dtype == np.int64
    assert found.tolist() == [[[3], [-8]], [[-4], [7]]]


@pytest.mark.parametrize(
    ("x", "text"),
    [
        ([[4, 0]], "input 'x': values from 0 to 4 leave its type int[3,4] (-8 to 7)"),
        ([[0, -9]], "leave its type"),
        ([[0.5, 0]], "input 'x': not whole numbers; quantize real data with its InputSpec.integers first"),
        ([[np.nan, 0]], "not whole numbers"),
        ([[np.inf, 0]], "not whole numbers"),
        ([[1e300, 0]], "leave its type"),
        (np.array([[1 << 63, 0]], dtype=np.uint64), "leave its type"),
        ([[True, False]], "input 'x': dtype bool; expected integers"),
        ([["a", "b"]], "input 'x': dtype <U1; expected integers"),
        ([1, 2], "input 'x': array of shape (2,); expected (n, 2)"),
        ([[1, 2, 3]], "input 'x': array of shape (1, 3); expected (n, 2)"),
        ([[[1], [2]]], "input 'x': array of shape (1, 2, 1); expected (n, 2)"),
    ],
)
def test_inputs_off_the_grid_are_refused(x: object, text: str) -> None:
    for function in (interpret.run, interpret.trace, interpret.reference):
        with pytest.raises(NetworkError, match=re.escape(text)):
            function(IDENTITY, x)  # type: ignore[arg-type,operator]


def test_the_callers_array_is_left_alone() -> None:
    x = np.array([[3.0, -8.0]])
    before = x.copy()
    interpret.trace(IDENTITY, x)[("x")][:] = 9
    assert (x == before).all()
