"""Standard ONNX: every op, container and rounding equals the interpreter, in every dialect and every runtime.

Networks are put side by side into one before they are exported: an export costs about a second whatever its size.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import core_strategies
import graph_strategies
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hawq_flow import interpret, to_onnx, to_qonnx
from hawq_flow.network import (
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
)
from hawq_flow.numeric import IntType, Rounding
from hawq_flow.to_onnx import Dialect

Inputs = Mapping[str, NDArray[np.int64]]


def array(value: Any) -> NDArray[np.int64]:
    return np.asarray(value, dtype=np.int64)


def signed(bits: int, narrow: bool = False) -> IntType:
    return IntType(bits, True, narrow)


def unsigned(bits: int) -> IntType:
    return IntType(bits, False)


def side_by_side(networks: Sequence[IntegerNetwork]) -> IntegerNetwork:
    """One network of several, its names ``n<i>_<name>``; outputs that are inputs are left out."""
    inputs: list[InputSpec] = []
    ops: list[Op] = []
    outputs: list[OutputSpec] = []
    for i, network in enumerate(networks):
        prefix = f"n{i}_"
        inputs += [dataclasses.replace(spec, name=prefix + spec.name) for spec in network.inputs]
        for op in network.ops:
            names: dict[str, Any] = {
                field: prefix + getattr(op, field) for field in ("name", "input", "left", "right") if hasattr(op, field)
            }
            if isinstance(op, Add | Concat):
                names["operands"] = tuple(prefix + name for name in op.operands)
            ops.append(dataclasses.replace(op, **names))
        outputs += [OutputSpec(prefix + output.name) for output in network.outputs]
    return IntegerNetwork(tuple(inputs), tuple(ops), tuple(outputs))


def holds(network: IntegerNetwork, dialect: Dialect) -> bool:
    limit = {Dialect.FLOAT32: 24, Dialect.FLOAT64: 53, Dialect.INTEGER: 64}[dialect]
    return max(to_onnx.rescale_bits(network).values(), default=0) <= limit


def assert_equal(network: IntegerNetwork, x: Any, dialects: Sequence[Dialect] = tuple(Dialect)) -> None:
    """Every value in every dialect, at both optimisation levels (with and without inner values kept), and in onnx."""
    expected = interpret.reference(network, x)
    for dialect in dialects:
        model = to_onnx.export(network, dialect)
        assert to_onnx.saturating(model) == []
        whole = to_onnx.traced(model, network)
        executions = [to_onnx.evaluate_reference(whole, network, x)]
        for optimized, graph in itertools.product((False, True), (model, whole)):
            executions.append(to_onnx.execute(graph, network, x, optimized=optimized))
        for execution in executions:
            for name, values in execution.values.items():
                np.testing.assert_array_equal(values, expected[name], err_msg=f"{name}: {execution.method}")
        assert set(executions[0].values) == {op.name for op in network.ops}


def rows(network: IntegerNetwork, n: int = 12) -> Inputs:
    """Drawn over the whole type and mixed from its ends, for every input."""
    rng = np.random.default_rng(5)
    result = {}
    for spec in network.inputs:
        low, high = spec.type.range
        drawn = rng.integers(low, high, (n, *spec.shape), endpoint=True)
        ends = rng.choice([low, high], (n, *spec.shape))
        result[spec.name] = np.concatenate([drawn, ends, np.zeros((1, *spec.shape), np.int64) + max(low, 0)])
    return result


# --- rescales --------------------------------------------------------------------------------------------------------


def every_rescale() -> IntegerNetwork:
    """All roundings, with ties, both signs, saturation, zero points, widths of every container; rows are all inputs."""
    ops: list[Op] = []

    def add(source: str, *arguments: Any) -> None:
        ops.append(Requantize(f"q{len(ops)}", source, *(array(a) for a in arguments[:3]), *arguments[3:]))

    types = [signed(8), signed(5), signed(6, True), unsigned(8), unsigned(3), signed(12), unsigned(16), signed(16)]
    for rounding in Rounding:
        for (m, c), type in zip(itertools.cycle([(1, 1), (3, 2), (-1, 3), (5, 0), (7, 4), (1, 9)]), types):
            add("x", m, c, 0, type, rounding)
        for offset, type in ((-3, signed(8)), (7, unsigned(5)), (-128, signed(8)), (300, signed(11)), (9, signed(20))):
            add("x", 3, 2, offset, type, rounding)
        add("x", 1, 2, -200, unsigned(8), rounding)  # a zero point that the container does not hold
        add("x", 0, 3, 4, signed(8), rounding)
        add("x", 7, 1, 300, signed(11), rounding)  # saturates in a container of 16 bits, about a zero point
        m = array([1, 3, -5]).reshape(3, 1)
        add("rows", m, array([1, 0, 3]).reshape(3, 1), 0, signed(8), rounding)
        add("rows", m, 2, array([1, -1, 4]).reshape(3, 1), IntType((4, 7, 9), True), rounding)
        add("rows", 1, array([0, 1, 2]).reshape(3, 1), 0, unsigned(4), rounding)
    add("x", 1, 0, 0, signed(8), Rounding.HALF_EVEN)
    add("x", 1, 0, 30, unsigned(9), Rounding.FLOOR)
    add("rows", 1, 0, 0, IntType((4, 7, 9), True), Rounding.HALF_UP)
    add("x", 1, 0, -4, signed(40), Rounding.HALF_UP)
    inputs = (InputSpec("x", (1,), signed(10)), InputSpec("rows", (3, 1), signed(10)))
    return IntegerNetwork(inputs, tuple(ops), (OutputSpec("q0"), OutputSpec(ops[-1].name)))


def test_every_rounding_on_every_integer() -> None:
    network = every_rescale()
    every = np.arange(-512, 512)
    x = {"x": every[:, None], "rows": np.repeat(every[:, None, None], 3, 1)}
    traced = interpret.trace(network, x)
    assert sum(isinstance(op, Requantize) and len(np.unique(traced[op.name])) > 3 for op in network.ops) > 45
    assert_equal(network, x)


def test_numerators_that_saturate_need_no_bits() -> None:
    """Products of up to 2^38 in float32: only those up to 255 * 2^14 decide a result."""
    op = Requantize("q", "x", array(201), array(14), array(0), unsigned(8))
    up = dataclasses.replace(op, name="up", rounding=Rounding.HALF_UP)
    wide = dataclasses.replace(op, name="wide", type=signed(12), offset=array(-1000), rounding=Rounding.FLOOR)
    steep = dataclasses.replace(op, name="steep", multiplier=array(5), shift=array(0))  # beyond int32 once rounded
    plain = IntegerNetwork((InputSpec("x", (4,), signed(31)),), (op, up, steep), (OutputSpec("q"), OutputSpec("up")))
    assert to_qonnx.precision_bits(plain)["q"] == 38
    assert to_onnx.rescale_bits(plain) == {"q": 22, "up": 22, "steep": 9}
    assert to_onnx.choose(plain) is Dialect.FLOAT32
    assert to_onnx.rescale_bits(dataclasses.replace(plain, ops=(*plain.ops, wide)))["wide"] == 26
    edges = array([n * (1 << 14) // 201 for n in range(260)])
    values = np.concatenate(
        [edges + d for d in (-1, 0, 1)] + [-edges, np.random.default_rng(1).integers(-(1 << 30), 1 << 30, 4000)]
    )
    values = np.concatenate([values, 1 << np.arange(30), -(1 << np.arange(31)), [(1 << 30) - 1]])
    assert_equal(plain, np.resize(values, (len(values) // 4 * 4,)).reshape(-1, 4))


def test_powers_of_two_in_a_multiplier_need_no_bits() -> None:
    op = Requantize("q", "x", array(3 << 18), array(20), array(0), signed(16))
    network = IntegerNetwork((InputSpec("x", (1,), signed(16)),), (op,), (OutputSpec("q"),))
    assert to_onnx.rescale_bits(network) == {"q": 17}
    assert_equal(network, np.arange(-(1 << 15), 1 << 15)[:, None], [Dialect.FLOAT32])


def test_what_saturates_far_beyond_int32_is_clipped_once() -> None:
    """Before QuantizeLinear; not again behind it, in a byte that is not full."""
    steep = [
        Requantize(f"q{bits}", "x", array(1 << 20), array(0), array(offset), signed(bits))
        for bits, offset in ((7, 0), (5, -3))
    ]
    network = IntegerNetwork((InputSpec("x", (1,), signed(12)),), tuple(steep), (OutputSpec("q7"), OutputSpec("q5")))
    kinds = [node.op_type for node in to_onnx.export(network, Dialect.FLOAT32).graph.node]
    assert (kinds.count("Clip"), kinds.count("QuantizeLinear")) == (2 + 1, 2)  # and one of the input
    assert_equal(network, np.arange(-(1 << 11), 1 << 11)[:, None], [Dialect.FLOAT32])


def test_a_half_that_decides_nothing_needs_no_bits() -> None:
    """A multiplier of 0, or products below a quarter: the sum with a half is between 0 and 1 in any float."""
    ops = (
        Requantize("zero", "x", array([1, 0, 3]), array([1, 61, 1]), array(0), signed(8), Rounding.HALF_UP),
        Requantize("small", "x", array([1, 5, -5]), array(40), array(-7), signed(8), Rounding.HALF_UP),
        Requantize("quarter", "x", array(1), array([9, 10, 8]), array(0), signed(8), Rounding.HALF_UP),
    )
    network = IntegerNetwork((InputSpec("x", (3,), signed(8)),), ops, tuple(OutputSpec(op.name) for op in ops))
    assert to_onnx.rescale_bits(network) == {"zero": 9, "small": 10, "quarter": 9}
    assert to_onnx.choose(network) is Dialect.FLOAT32
    assert_equal(network, np.repeat(np.arange(-128, 128)[:, None], 3, 1), [Dialect.FLOAT32])


@pytest.mark.parametrize("rounding", Rounding)
def test_bits_are_enough_by_brute_force(rounding: Rounding) -> None:
    """A float of the bits that the proof asks for (rounded to by hand) gives the exact result for every x."""
    rng = np.random.default_rng(3)

    def to_float(values: NDArray[np.float64], bits: int) -> NDArray[np.float64]:
        mantissa, exponent = np.frexp(values)
        return np.ldexp(np.rint(np.ldexp(mantissa, bits)), exponent - bits)

    for _ in range(300):
        m, c = int(rng.integers(-300, 300)), int(rng.integers(0, 12))
        offset, type = int(rng.integers(-20, 20)), signed(int(rng.integers(2, 9)))
        op = Requantize("q", "x", array(m), array(c), array(offset), type, rounding)
        network = IntegerNetwork((InputSpec("x", (1,), signed(11)),), (op,), (OutputSpec("q"),))
        bits = to_onnx.rescale_bits(network).get("q")
        if bits is None:
            continue
        x = np.arange(-1024, 1024)
        y = to_float(to_float(x.astype(float), bits) * m, bits) * 2.0**-c
        if rounding is Rounding.HALF_UP:
            y = to_float(y + 0.5, bits)
        y = np.rint(y) if rounding is Rounding.HALF_EVEN else np.floor(y)
        y = np.clip(to_float(y + offset, bits), *type.range)
        np.testing.assert_array_equal(y, interpret.run(network, x[:, None])[:, 0], err_msg=str((m, c, offset, type)))


# --- layers ----------------------------------------------------------------------------------------------------------


def every_layer() -> IntegerNetwork:
    """Dense, Conv and SumPool on operands of 8 to 24 bits, weights of 3 to 20, with the extremes that saturate."""
    rng = np.random.default_rng(2)
    types = {"u8": unsigned(8), "s8": signed(8), "u5": unsigned(5), "s12": signed(12), "u16": unsigned(16)}
    types |= {"s16": signed(16), "s24": signed(24), "u30": unsigned(30)}
    ops: list[Op] = []
    inputs: list[InputSpec] = []
    for name, type in types.items():
        inputs += [InputSpec(f"v{name}", (6,), type), InputSpec(f"i{name}", (4, 5, 4), type)]
        for reach in (3, 64, 65, 127, 128, 1 << 15):
            tag = f"{name}_{reach}"
            ends = [-reach, min(reach, 127) if reach < 200 else reach]
            ops.append(Dense(f"d{tag}", f"v{name}", rng.choice(ends, (3, 6)), rng.integers(-99, 99, 3)))
            groups = int(rng.choice([1, 2, 4]))
            weight = rng.choice(ends, (4, 4 // groups, 3, 2))
            ops.append(Conv(f"c{tag}", f"i{name}", weight, rng.integers(-99, 99, 4), (1, 2), (1, 0, 0, 1), groups))
        ops.append(SumPool(f"p{name}", f"i{name}", (3, 3), (2, 1), (1, 0, 0, 1)))
        flat = Reshape(f"f{name}", f"i{name}", (4, 20))
        line = Conv(f"l{name}", flat.name, rng.integers(-128, 128, (2, 4, 3)), array([1, 2]), (2,), (1, 1))
        ops += [flat, line]
    bounded = Dense("cut", "vs8", rng.integers(-9, 9, (2, 6)), array([0, 3]), IntType(9, True, True))
    ops.append(bounded)
    return IntegerNetwork(tuple(inputs), tuple(ops), tuple(OutputSpec(op.name) for op in ops[-3:]))


def test_every_layer() -> None:
    network = every_layer()
    assert_equal(network, rows(network), [Dialect.FLOAT32, Dialect.INTEGER])


# --- everything else -------------------------------------------------------------------------------------------------


def every_op() -> IntegerNetwork:
    """What has no weights, on values of every container."""
    rng = np.random.default_rng(4)
    types = {"s8": signed(8), "u8": unsigned(8), "s6": signed(6, True), "s13": signed(13), "u16": unsigned(16)}
    types |= {"s30": signed(30), "s40": signed(40)}
    inputs, ops = [], []
    for name, type in types.items():
        inputs.append(InputSpec(name, (3, 4, 5), type))
        low = type.range[0]
        ops += [
            MaxPool(f"{name}_pool", name, (2, 3), (2, 1), (1, 0, 0, 2)),
            MaxPool(f"{name}_slide", name, (2, 2), (1, 1), (0, 1, 1, 0)),
            Pad(f"{name}_pad", name, (1, 0, 2, 1), low),
            Upsample(f"{name}_up", name, (3, 2)),
            Concat(f"{name}_twice", (name, f"{name}_up2", name), 2),
            Add(f"{name}_add", (name, name, f"{name}_max")),
            Subtract(f"{name}_sub", name, f"{name}_max"),
            Multiply(f"{name}_mul", f"{name}_few", name),
            ReduceSum(f"{name}_sum", name, 2),
        ]
        before: list[Op] = [
            ReduceMax(f"{name}_max", name, 0),
            Requantize(f"{name}_few", name, array(1), array(max(0, type.max_bits - 7)), array(0), signed(7)),
            Upsample(f"{name}_up2", name, (1, 2)),
            Lookup(f"{name}_table", f"{name}_few", rng.integers(-5, 1 << type.max_bits // 2, 130), -66),
        ]
        ops[-9:-9] = before
    mixed = Concat("mixed", ("s8", "u8_table", "s13_few"), 1)
    line = InputSpec("line", (2, 9), signed(8))
    ops += [
        mixed,
        MaxPool("line_pool", "line", (3,), (2,), (1, 1)),
        Upsample("line_up", "line", (2,)),
        Reshape("flat", "line_up", (36,)),
        Lookup("spare", "s6", np.where(np.abs(np.arange(-40, 41)) > 31, 1 << 20, np.arange(-40, 41)), -40),
    ]
    return IntegerNetwork((*inputs, line), tuple(ops), tuple(OutputSpec(op.name) for op in ops[-21:]))


def test_every_other_op() -> None:
    network = every_op()
    assert_equal(network, rows(network), [Dialect.FLOAT64, Dialect.INTEGER])


def test_what_only_moves_integers_keeps_their_container() -> None:
    network = every_op()
    made = to_onnx.plan_network(network, Dialect.FLOAT64)
    kept = {name: str(made.container(name)) for name in ("s6", "s13", "u16", "s30", "s40", "s40_pool", "u16_pad")}
    assert kept == {
        "s6": "int8",
        "s13": "int16",
        "u16": "uint16",
        "s30": "int32",
        "s40": "int64",
        "s40_pool": "int64",
        "u16_pad": "uint16",
    }
    assert [str(made.container(f"{name}_sum")) for name in ("s8", "u16", "s30", "s40")] == [
        "int32",
        "int32",
        "int64",
        "int64",
    ]


# --- random networks -------------------------------------------------------------------------------------------------


def exportable(network: IntegerNetwork) -> bool:
    try:
        to_qonnx.check(network)
    except NetworkError:
        return False
    return True


def assert_all_equal(networks: Sequence[IntegerNetwork], n: int) -> None:
    """The drawn networks that a dialect holds, side by side, in each dialect."""
    for dialect in Dialect:
        chosen = [network for network in networks if exportable(network) and holds(network, dialect)]
        if chosen:
            x = {f"n{i}_x": core_strategies.extreme_inputs(network, i, n) for i, network in enumerate(chosen)}
            assert_equal(side_by_side(chosen), x, [dialect])


@settings(max_examples=2)
@given(st.lists(core_strategies.graphs(), min_size=16, max_size=16))
def test_random_graphs_of_all_ops(networks: list[IntegerNetwork]) -> None:
    assert_all_equal(networks, 5)


@settings(max_examples=2)
@given(st.lists(graph_strategies.expressible_graphs(), min_size=7, max_size=7))
def test_random_networks_as_training_makes_them(networks: list[IntegerNetwork]) -> None:
    assert_all_equal(networks, 5)


@pytest.mark.slow
@settings(max_examples=3)
@given(
    st.lists(core_strategies.graphs(max_steps=10), min_size=16, max_size=16),
    st.lists(core_strategies.networks(), min_size=16, max_size=16),
    st.lists(graph_strategies.expressible_graphs(), min_size=8, max_size=8),
)
def test_many_random_networks(
    deep: list[IntegerNetwork], dense: list[IntegerNetwork], expressible: list[IntegerNetwork]
) -> None:
    for networks in (deep, dense, expressible):
        assert_all_equal(networks, 20)
