"""The interpreter against the plain definition of each op: equal on every value of every network, or it refuses."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
from core_strategies import extreme_inputs, networks
from hypothesis import given, settings
from hypothesis import strategies as st

from hawq_flow import interpret
from hawq_flow.network import Dense, InputSpec, IntegerNetwork, NetworkError, OutputSpec, Requantize, Reshape
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


def single(op: Dense | Requantize, type: IntType, features: int) -> IntegerNetwork:
    return IntegerNetwork((InputSpec("x", (features,), type),), (op,), (OutputSpec(op.name),))


@pytest.mark.parametrize("exponent", [24, 25, 53, 54, 61])
@pytest.mark.parametrize("delta", [-2, -1, 0, 1, 2])
def test_dense_on_both_sides_of_every_word_size(exponent: int, delta: int) -> None:
    """Sums whose bound is exactly 2^exponent + delta, odd ones among them: the next narrower float would round."""
    bits = min(exponent - 2, 30)
    type = IntType(bits, signed=True)
    reach = 1 << (bits - 1)
    target = (1 << exponent) + delta
    big = (target - 1) // reach
    rest = target - big * reach
    weight = np.array([[big, 0], [-big, 0], [big - 1, 1], [1, 0]])
    op = Dense("d", "x", weight, np.array([rest, -rest, 0, 1]))
    net = single(op, type, 2)
    assert net.values["d"].bound == target
    ends = np.array([-reach, -reach + 1, -1, 0, 1, reach - 2, reach - 1])
    x = np.stack(np.meshgrid(ends, ends), axis=-1).reshape(-1, 2)
    expected = same(net, x)["d"]
    exact = [
        [
            sum(int(w) * int(v) for w, v in zip(row, xs, strict=True)) + int(b)
            for row, b in zip(weight, op.bias, strict=True)
        ]
        for xs in x
    ]
    assert expected.tolist() == exact


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
    block = max(16, interpret.BLOCK_BYTES // (8 * 700))
    for rows in (0, 1, block - 1, block, block + 1, 3 * block + 5):
        x = rng.integers(-8, 8, (rows, 3))
        assert same(net, x)["q"].shape == (rows, 700)


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
    with pytest.raises(NetworkError, match=r"run: the network has 3 outputs; use trace\(\) and pick"):
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
