"""The generator: every op's circuit against the interpreter, by the package's own strict reader of the text."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from core_strategies import extreme_inputs, graphs, networks
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rtl_help import equal, run_module, small_network

from hawq_flow import interpret
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
    forward,
    patches,
)
from hawq_flow.numeric import IntType, Overflow, Rounding
from hawq_flow.to_rtl import NotSynthesizable, RtlConfig, generate, manifest, reader, write
from hawq_flow.to_rtl.circuit import Circuit, Signal, constant, joined, literal, width
from hawq_flow.to_rtl.names import KEYWORDS, Names
from hawq_flow.to_rtl.plan import WIRES, one_position, stages
from hawq_flow.to_rtl.rescale import Rescale

FAST = RtlConfig(effort="low")
PIPELINES: list[str | int] = ["layer", "none", 1, 2, 5]


def scalar(value: int) -> Any:
    return np.array(value)


# ------------------------------------------------------------------------------------------------------ random networks


def check_random(network: IntegerNetwork, pipeline: str | int, dsp: int | None, optimizer: str, folder: Path) -> None:
    config = RtlConfig(pipeline=pipeline, dsp_threshold=dsp, optimizer=optimizer, effort="low")
    rtl = equal(network, extreme_inputs(network), folder, config)
    assert rtl.text is not None
    if isinstance(pipeline, str):
        assert {module.latency for module in rtl.modules} <= {int(pipeline == "layer")}


RANDOM = {
    "network": st.one_of(graphs(), graphs(), networks()),
    "pipeline": st.sampled_from(PIPELINES),
    "dsp": st.sampled_from([None, None, 2, 5]),
    "optimizer": st.sampled_from(["shared", "csd"]),
}


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(**RANDOM)
def test_random_networks_equal_the_interpreter(
    network: IntegerNetwork, pipeline: str | int, dsp: int | None, optimizer: str, tmp_path_factory: Any
) -> None:
    check_random(network, pipeline, dsp, optimizer, tmp_path_factory.mktemp("random"))


@pytest.mark.slow
@settings(max_examples=800, deadline=None, suppress_health_check=list(HealthCheck))
@given(**RANDOM)
def test_many_random_networks_equal_the_interpreter(
    network: IntegerNetwork, pipeline: str | int, dsp: int | None, optimizer: str, tmp_path_factory: Any
) -> None:
    check_random(network, pipeline, dsp, optimizer, tmp_path_factory.mktemp("random"))


# ------------------------------------------------------------------------------------------------------------- rescales


TYPES = [IntType(1, False), IntType(2, True, True), IntType(3, False), IntType(3, True), IntType(4, True, True)]
TYPES += [IntType(6, False), IntType(7, True)]


def rescales(bits: int, signed: bool, direct: bool) -> IntegerNetwork:
    """All integers of a type through every rounding, overflow and result type, by many multipliers in one value.

    ``direct``: each element is the input itself; else a sum with a sign, a factor and a bias that the rescale meets.
    """
    rng = np.random.default_rng(bits + 10 * signed + 100 * direct)
    multipliers = [1, -1, 2, 3, 5, 6, 7, 11, 16, -13, 0, 23]
    shifts = range(7)
    m, s = (np.array(list(axis)) for axis in zip(*itertools.product(multipliers, shifts), strict=True))
    z = rng.integers(-5, 6, len(m))
    z[rng.integers(0, 2, len(m)) == 0] = 0
    ops: list[Op] = []
    source = "x"
    if not direct:
        factors = rng.choice([1, -1, 2, -2, 3, 4], len(m))
        ops.append(Dense("sum", "x", factors[:, None], rng.integers(-9, 10, len(m))))
        source = "sum"
    for i, (rounding, overflow) in enumerate(itertools.product(Rounding, Overflow)):
        for j, type in enumerate(TYPES):
            if type.narrow and overflow is Overflow.WRAP:
                continue
            if direct:
                picked = rng.choice(len(m), 6, replace=False)
                for k in picked:
                    at = (np.array(a[k]) for a in (m, s, z))
                    ops.append(Requantize(f"q{i}_{j}_{k}", source, *at, type, rounding, overflow))
            else:
                ops.append(Requantize(f"q{i}_{j}", source, m, s, z, type, rounding, overflow))
    outputs = tuple(OutputSpec(op.name) for op in ops if isinstance(op, Requantize))
    return IntegerNetwork((InputSpec("x", (1,), IntType(bits, signed)),), tuple(ops), outputs)


@pytest.mark.parametrize(("bits", "signed", "direct"), [(6, True, False), (5, False, False), (7, True, True)])
def test_every_integer_through_every_rescale(bits: int, signed: bool, direct: bool, tmp_path: Path) -> None:
    network = rescales(bits, signed, direct)
    low, high = network.inputs[0].type.range
    equal(network, np.arange(low, high + 1)[:, None], tmp_path, FAST)


@pytest.mark.slow
@pytest.mark.parametrize("bits", [8, 9])
def test_every_integer_of_more_bits_through_every_rescale(bits: int, tmp_path: Path) -> None:
    network = rescales(bits, True, False)
    low, high = network.inputs[0].type.range
    for pipeline in (1, 3):
        equal(network, np.arange(low, high + 1)[:, None], tmp_path, dataclasses.replace(FAST, pipeline=pipeline))


@pytest.mark.parametrize("overflow", Overflow)
@pytest.mark.parametrize("rounding", Rounding)
def test_a_rescale_is_the_interpreters_function(rounding: Rounding, overflow: Overflow) -> None:
    x = np.arange(-300, 300)
    for m, s, z in itertools.product([1, -3, 6, 12, 0], range(6), [0, 7]):
        type = IntType(4, True)
        op = Requantize("q", "x", scalar(m), scalar(s), scalar(z), type, rounding, overflow)
        f = Rescale(m, s, z, rounding, overflow, *type.range)
        expected = forward(op, [x[:, None]])[:, 0].tolist()
        assert [f(v) for v in x.tolist()] == expected
        assert [f.lowest_terms()(v) for v in x.tolist()] == expected


def test_a_result_of_few_levels_is_counted_by_thresholds_and_needs_neither_product_nor_bias(tmp_path: Path) -> None:
    def network(bits: int) -> IntegerNetwork:
        weight = np.array([[3, -5, 7, 2]])
        ops = (
            Dense("d", "x", weight, np.array([17])),
            Requantize("q", "d", np.array(43), np.array(11), np.array(0), IntType(bits, False)),
        )
        return IntegerNetwork((InputSpec("x", (4,), IntType(8, True)),), ops, (OutputSpec("q"),))

    texts = {}
    for bits in (2, 8):
        rtl = equal(network(bits), extreme_inputs(network(bits)), tmp_path, FAST)
        texts[bits] = rtl.modules[0].text.split("// Requantize")[1]
    assert texts[2].count(">=") == 3
    assert " + " not in texts[2]
    assert ">=" not in texts[8]
    assert " + " in texts[8]


def test_half_to_even_tests_for_ties_only_where_one_rounds_down() -> None:
    def rounding(bits: int, multiplier: int) -> str:
        op = Requantize("q", "x", scalar(multiplier), scalar(6), scalar(0), IntType(16, False))
        network = IntegerNetwork((InputSpec("x", (1,), IntType(bits, False)),), (op,), (OutputSpec("q"),))
        return generate(network, FAST).modules[0].text.split("// Requantize")[1]

    # Ties are at odd multiples of 32. 255 * 32 / 64 = 127.5 rounds up to 128, as half up does; 255 * 96 / 64 = 382.5
    # down to 382, and so does 253 * 32 / 64 = 126.5.
    assert "|" not in rounding(6, 255)
    assert "|" in rounding(7, 255)
    assert "|" in rounding(6, 253)
    assert "|" not in rounding(5, 253)


def test_the_window_multiplies_no_more_bits_than_the_result_can_tell_apart() -> None:
    ops = (
        Dense("d", "x", np.array([[1000, 999]]), np.array([0])),
        Requantize("q", "d", scalar(11), scalar(8), scalar(0), IntType(6, False)),
    )
    network = IntegerNetwork((InputSpec("x", (2,), IntType(12, True)),), ops, (OutputSpec("q"),))
    text = generate(network, RtlConfig(optimizer="csd")).modules[0].text.split("// Requantize")[1]
    # The result saturates from 63 * 256 / 11 = 1466 on: 11 bits of 23 are multiplied, by an 11 of 4 bits.
    widths = [
        int(line.split("[")[1].split(":")[0]) + 1 for line in text.splitlines() if line.strip().startswith("wire")
    ]
    assert max(widths) == 15


# ---------------------------------------------------------------------------------------------------------- single ops


def one_op(op: Op, *shapes: tuple[int, ...], bits: int = 5, extra: tuple[Op, ...] = ()) -> IntegerNetwork:
    specs = tuple(InputSpec(name, shape, IntType(bits, True)) for name, shape in zip("xy", shapes, strict=False))
    return IntegerNetwork(specs, (*extra, op), (OutputSpec(op.name),))


OPS: dict[str, IntegerNetwork] = {
    "dense into a wrapping accumulator": one_op(
        Dense("d", "x", np.array([[7, -6], [5, 4]]), np.array([3, 0]), IntType(5, True), Overflow.WRAP), (2,)
    ),
    "dense into a saturating accumulator a channel": one_op(
        Dense("d", "x", np.array([[7, -6], [5, 4]]), np.array([3, 0]), IntType((5, 7), True, True)), (2,)
    ),
    "a row of zeros": one_op(Dense("d", "x", np.array([[0, 0], [0, 1]]), np.array([3, 0])), (2,)),
    "conv": one_op(
        Conv("c", "x", np.arange(36).reshape(2, 2, 3, 3) - 17, np.array([5, -5]), (2, 1), (1, 0, 1, 2)), (2, 4, 3)
    ),
    "grouped conv": one_op(Conv("c", "x", np.array([[[3, 1]], [[-2, 5]]]), np.array([0, 1]), (1,), (0, 1), 2), (2, 4)),
    "pad": one_op(Pad("p", "x", (1, 2), -3), (2, 3)),
    "upsample": one_op(Upsample("u", "x", (2, 3)), (1, 2, 2)),
    "max pool": one_op(MaxPool("m", "x", (2, 2), (2, 1), (1, 0, 0, 1)), (2, 3, 3)),
    "sum pool": one_op(SumPool("s", "x", (3,), (2,), (1, 1)), (2, 5)),
    "concat": one_op(Concat("c", ("x", "y", "x"), 1), (2, 3), (2, 1)),
    "add of three": one_op(Add("a", ("x", "y", "x")), (3,), (3,)),
    "subtract, broadcast": one_op(Subtract("s", "x", "y"), (3, 2), (1, 2)),
    "multiply": one_op(Multiply("m", "x", "y"), (3,), (3,)),
    "maximum": one_op(ReduceMax("m", "x", 0), (5,)),
    "sum": one_op(ReduceSum("s", "x", 1), (2, 3)),
    "table": one_op(Lookup("t", "x", np.arange(40)[::-1] ** 2 - 7, -18), (2,)),
    "constant table": one_op(Lookup("t", "x", np.full(40, 9), -18), (2,)),
    "reshape alone": one_op(Reshape("r", "x", (3, 2)), (2, 3)),
    "nothing but the input": IntegerNetwork((InputSpec("x", (2,), IntType(3, True)),), (), (OutputSpec("x"),)),
}


@pytest.mark.parametrize("pipeline", ["layer", 1])
@pytest.mark.parametrize("name", OPS)
def test_every_op_alone(name: str, pipeline: str | int, tmp_path: Path) -> None:
    network = OPS[name]
    rng = np.random.default_rng(1)
    x = {}
    for spec in network.inputs:
        low, high = spec.type.range
        rows = rng.integers(low, high, (40, *spec.shape), endpoint=True)
        x[spec.name] = np.concatenate([rows, np.full((1, *spec.shape), low), np.full((1, *spec.shape), high)])
    equal(network, x, tmp_path, dataclasses.replace(FAST, pipeline=pipeline))


def test_a_softmax_of_tables_with_two_inputs_and_three_outputs(tmp_path: Path) -> None:
    exp = np.maximum(1, np.rint(255 * np.exp(-np.arange(65)[::-1] / 8))).astype(int)
    reciprocal = np.rint(2**16 / np.arange(3, 3 * 255 + 1)).astype(int)
    ops = (
        Add("logits", ("x", "y")),
        ReduceMax("most", "logits", 0),
        Subtract("below", "logits", "most"),
        Requantize("cut", "below", scalar(1), scalar(0), scalar(0), IntType(7, True)),
        Lookup("exp", "cut", np.concatenate([exp, np.full(65, 255)])[:128], -64, function="exp"),
        ReduceSum("total", "exp", 0),
        Lookup("inverse", "total", reciprocal, 3),
        Multiply("share", "exp", "inverse"),
        Requantize("softmax", "share", scalar(1), scalar(8), scalar(0), IntType(8, False)),
    )
    specs = (InputSpec("x", (3,), IntType(5, True)), InputSpec("y", (3,), IntType(5, True)))
    network = IntegerNetwork(specs, ops, tuple(OutputSpec(name) for name in ("softmax", "logits", "x")))
    rng = np.random.default_rng(0)
    x = {name: rng.integers(-16, 16, (200, 3)) for name in "xy"}
    rtl = equal(network, x, tmp_path, FAST)
    assert [module.ops for module in rtl.modules] == [
        ("logits",), ("most",), ("below", "cut", "exp"), ("total", "inverse"), ("share", "softmax"),
    ]  # fmt: skip
    # What skips stages is delayed: the logits by one for the subtraction, the exponentials by one for the product,
    # the logits and the input to the end.
    assert rtl.latency == 5
    bits = {port.value: port.width for port in (*rtl.inputs, *(m.outputs[0] for m in rtl.modules))}
    assert rtl.delay_bits == 5 + 4 * bits["logits"] + bits["exp"] + 5 * bits["x"]


# ---------------------------------------------------------------------------------------------------- stages and names


def test_stages_join_wires_with_their_reader_and_rescales_with_what_they_rescale() -> None:
    ops: tuple[Op, ...] = (
        Pad("pad", "x", (1, 1), 0),
        Conv("conv", "pad", np.ones((1, 1, 3), int), np.zeros(1, int), (1,), (0, 0)),
        Requantize("rescale", "conv", scalar(3), scalar(3), scalar(0), IntType(4, False)),
        Reshape("flat", "rescale", (4,)),
        Dense("head", "flat", np.ones((2, 4), int), np.zeros(2, int)),
        Requantize("out", "head", scalar(3), scalar(3), scalar(0), IntType(4, False)),
        Requantize("twice", "head", scalar(1), scalar(1), scalar(0), IntType(4, False)),
        Lookup("dead", "out", np.arange(16), 0),
    )
    network = IntegerNetwork(
        (InputSpec("x", (1, 4), IntType(4, False)),), ops, (OutputSpec("out"), OutputSpec("twice"))
    )
    found = [(tuple(op.name for op in stage.ops), stage.inputs) for stage in stages(network)]
    assert found == [
        (("pad", "conv", "rescale"), ("x",)),
        (("flat", "head"), ("rescale",)),
        (("out",), ("head",)),
        (("twice",), ("head",)),
    ]


@pytest.mark.parametrize(
    "word", ["reg", "output", "clk", "valid_in", "top", "n0", "r0", "wire", "logic", "x_out", "bit"]
)
def test_layers_may_be_called_anything(word: str, tmp_path: Path) -> None:
    weight, bias = np.array([[3, -2]]), np.array([1])
    ops = (
        Dense(word, "X", weight, bias),
        Requantize("x", word, scalar(3), scalar(4), scalar(0), IntType(5, True)),
        Dense("N0", "x", np.array([[5]]), np.array([0])),
    )
    network = IntegerNetwork((InputSpec("X", (2,), IntType(5, True)),), ops, (OutputSpec("N0"), OutputSpec(word)))
    for pipeline in ("layer", 1):
        rtl = equal(network, extreme_inputs(network), tmp_path, dataclasses.replace(FAST, pipeline=pipeline))
        files = [module.name.lower() for module in rtl.modules] + [rtl.top]
        assert len(set(files)) == len(files)
        assert not set(files) & KEYWORDS


def test_names_are_identifiers_and_differ_also_without_case() -> None:
    names = Names(["clk"])
    assert [names.claim(n) for n in ("Clk", "clk", "größe", "3d", "", "wire", "a", "A", "a")] == [
        "Clk_2", "clk_3", "gr__e", "_3d", "_", "wire_2", "a", "A_2", "a_3",
    ]  # fmt: skip
    names.claim("n1")
    assert [names.fresh("n") for _ in range(3)] == ["n0", "n2", "n3"]


def test_the_same_network_gives_the_same_bytes_and_another_other_digests() -> None:
    one, same, other = (generate(small_network(seed=seed), FAST) for seed in (0, 0, 1))
    assert one == same
    assert one.modules[0].digest != other.modules[0].digest
    assert one.modules[0].digest == generate(small_network(), FAST).modules[0].digest


def test_widths_come_from_the_intervals() -> None:
    network = small_network()
    rtl = generate(network, FAST)
    value = network.values["d"]
    text = rtl.modules[0].text
    assert f"Dense d (2): {value.low.min()}..{value.high.max()}" in text
    assert [(p.bits, p.signed, p.elements, p.width) for p in (*rtl.inputs, *rtl.outputs)] == [
        (4, True, 3, 12), (4, False, 2, 8),
    ]  # fmt: skip


def test_a_pipeline_of_n_has_at_most_n_adders_between_registers(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    ops = (
        Dense("d", "x", rng.integers(-31, 32, (4, 16)), rng.integers(-31, 32, 4)),
        Requantize("q", "d", scalar(53), scalar(9), scalar(0), IntType(6, False)),
    )
    network = IntegerNetwork((InputSpec("x", (16,), IntType(6, True)),), ops, (OutputSpec("q"),))
    x = extreme_inputs(network)
    latencies = {}
    for pipeline in ("layer", 4, 2, 1):
        rtl = equal(network, x, tmp_path, dataclasses.replace(FAST, pipeline=pipeline))
        latencies[pipeline] = rtl.latency
        if isinstance(pipeline, int):
            assert longest(rtl.modules[0].text) <= pipeline
    assert latencies["layer"] == 1 < latencies[4] < latencies[2] < latencies[1]


def longest(text: str) -> int:
    """Adders, products and comparisons on the longest path between registers of a module's text."""
    depth: dict[str, int] = {}
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("wire") and " = " in line:
            name, expression = line.split(";")[0].split(" = ", 1)
            before = [depth.get(word, 0) for word in reader._TOKEN.findall(expression) for word in [word[4]]]
            own = any(sign in expression for sign in (" + ", " - ", " * ", " < ", " >= ", " > "))
            depth[name.split()[-1]] = max(before, default=0) + own
    return max(depth.values(), default=0)


def test_products_of_wide_values_by_hard_constants_become_multipliers(tmp_path: Path) -> None:
    weight = np.array([[3, 90, 64, -2000, 1025]])
    network = IntegerNetwork(
        (InputSpec("x", (5,), IntType(11, True)),), (Dense("d", "x", weight, np.array([7])),), (OutputSpec("d"),)
    )
    for threshold, products in ((None, 0), (8, 2), (10, 2), (11, 0)):  # 90 and -2000 have three digits or more
        config = dataclasses.replace(FAST, dsp_threshold=threshold)
        rtl = equal(network, extreme_inputs(network), tmp_path, config)
        assert rtl.modules[0].text.count(" * ") == products, threshold


# ---------------------------------------------------------------------------------------------- parts of large networks


def large() -> IntegerNetwork:
    rng = np.random.default_rng(3)
    per_channel = (rng.integers(1, 20, (4, 1, 1)), rng.integers(4, 7, (4, 1, 1)), rng.integers(-3, 4, (4, 1, 1)))
    ops: tuple[Op, ...] = (
        Pad("pad", "x", (1, 1, 1, 1), 2),
        Conv("conv", "pad", rng.integers(-7, 8, (4, 2, 3, 3)), rng.integers(-50, 50, 4), (1, 1), (0, 1, 1, 0)),
        Requantize("act", "conv", *per_channel, IntType(5, False)),
        MaxPool("pool", "act", (2, 2), (2, 2), (0, 0, 1, 1)),
        Conv("depthwise", "pool", rng.integers(-7, 8, (4, 1, 2, 2)), rng.integers(-9, 9, 4), (1, 1), (0,) * 4, 4),
        Lookup("table", "act", np.arange(32)[::-1], 0),
        Add("sum", ("act", "table")),
        ReduceMax("most", "sum", 0),
        Concat("both", ("sum", "most"), 0),
        SumPool("mean", "both", (2, 2), (2, 2), (0,) * 4),
        Reshape("flat", "depthwise", (int(np.prod(shape_after(6))),)),
        Dense("head", "flat", rng.integers(-3, 4, (2, int(np.prod(shape_after(6))))), rng.integers(-3, 4, 2)),
    )
    outputs = (OutputSpec("head"), OutputSpec("mean"))
    return IntegerNetwork((InputSpec("x", (2, 6, 6), IntType(4, True)),), ops, outputs)


def shape_after(size: int) -> tuple[int, int, int]:
    side = (size + 2 + 1 - 3) + 1
    pooled = (side + 1 - 2) // 2 + 1
    return 4, pooled - 1, pooled - 1


def test_a_large_network_gives_one_position_of_each_stage_and_no_top() -> None:
    network = large()
    rtl = generate(network, dataclasses.replace(FAST, max_products=70))
    assert rtl.text is None
    parts = {module.name: (module.unrolled, module.copies, module.ops) for module in rtl.modules}
    assert parts["conv_stage"] == ("1 of 49 positions", 49, ("pad", "conv", "act"))
    assert parts["head_stage"] == (None, 1, ("flat", "head"))
    assert {name for name, part in parts.items() if part[0] is None} == {"head_stage"}
    for module in rtl.modules:
        assert module.unrolled is None or module.copies == np.prod(network.values[module.ops[-1]].shape[1:])


def test_one_position_computes_what_every_position_computes() -> None:
    network = large()
    rtl = generate(network, dataclasses.replace(FAST, max_products=70))
    rng = np.random.default_rng(0)
    checked = 0
    for stage, module in zip(stages(network), rtl.modules, strict=True):
        if module.unrolled is None:
            continue
        ops, values = one_position(network, stage)
        data = {}
        for port in module.inputs:
            low, high = values[port.value].low, values[port.value].high
            data[port.value] = rng.integers(low, high, (60, *low.shape), endpoint=True)
            data[port.value][0], data[port.value][1] = low, high
        got = run_module(module, {name: array.reshape(60, -1) for name, array in data.items()})
        for op in ops:
            data[op.name] = forward(op, [data[operand] for operand in op.inputs])
        np.testing.assert_array_equal(got[ops[-1].name], data[ops[-1].name].reshape(60, -1))
        checked += 1
    assert checked == len(rtl.modules) - 1


def check_every_position(network: IntegerNetwork, config: RtlConfig) -> int:
    """The modules of one position on what the network carries in each; how many positions that were."""
    trace: dict[str, Any] = dict(interpret.trace(network, extreme_inputs(network, rows=4)))
    count = 0
    for module in generate(network, config).modules:
        if module.unrolled is None:
            continue
        wanted = trace[module.ops[-1]]
        op = next(op for op in map(network.op, module.ops) if not isinstance(op, WIRES))
        seen = {port.value: trace[port.value] for port in module.inputs}
        if isinstance(op, Conv | MaxPool | SumPool):
            low = network.values[op.input].low
            space = tuple(range(1, low.ndim))
            fill = low.min(axis=space, keepdims=True) if isinstance(op, MaxPool) else np.zeros((1,) * low.ndim, int)
            found = patches(seen[op.input] - fill, op.kernel, op.stride, op.padding)
            seen = {op.input: found + fill.reshape(-1, *(1,) * (found.ndim - 2))}
        for position in np.ndindex(*wanted.shape[2:]):
            at = (..., *position)
            rows = {name: array[at].reshape(len(wanted), -1) for name, array in seen.items()}
            np.testing.assert_array_equal(run_module(module, rows)[module.ops[-1]], wanted[at])
            count += 1
    return count


def test_one_position_is_exact_in_every_position_of_the_network() -> None:
    """Also where padding alone is seen: in a channel of negative integers it is the least, where another has none."""
    bias = np.array([20, -20])
    ops = (
        Conv("conv", "x", np.array([[[[3]]], [[[1]]]]), bias, (1, 1), (0,) * 4),
        MaxPool("pool", "conv", (3, 2), (2, 1), (2, 0, 0, 1)),
    )
    padded = IntegerNetwork((InputSpec("x", (1, 1, 5), IntType(3, True)),), ops, (OutputSpec("pool"),))
    assert padded.values["conv"].low.max() > padded.values["conv"].high.min()
    assert check_every_position(padded, dataclasses.replace(FAST, max_products=1)) == 5 + 5
    assert check_every_position(large(), dataclasses.replace(FAST, max_products=70)) > 100


def test_a_table_that_the_union_of_positions_leaves_has_no_single_circuit() -> None:
    """In each position the difference fits the table; the least of one less the largest of the other does not."""
    ops = (
        Conv("late", "x", np.array([[[1]]]), np.array([10]), (1,), (0, 0)),
        Concat("both", ("x", "late"), 1),
        Subtract("difference", "both", "both"),
        Lookup("table", "difference", np.arange(7), -3),
    )
    network = IntegerNetwork((InputSpec("x", (1, 1), IntType(2, False)),), ops, (OutputSpec("table"),))
    assert generate(network, FAST).text is not None
    text = r"one circuit for all positions of table: table: 'difference' ranges from -13 to 13.*or raise max_products"
    with pytest.raises(NotSynthesizable, match=text):
        generate(network, dataclasses.replace(FAST, max_products=1))


def test_the_same_network_unrolled_equals_the_interpreter(tmp_path: Path) -> None:
    rtl = equal(large(), extreme_inputs(large(), rows=4), tmp_path, FAST)
    assert rtl.text is not None
    assert all(module.unrolled is None for module in rtl.modules)


def test_a_rescale_that_differs_between_positions_has_no_single_circuit() -> None:
    shift = np.arange(8).reshape(1, 8)
    op = Requantize("odd", "x", scalar(3), shift, scalar(0), IntType(4, True))
    network = IntegerNetwork((InputSpec("x", (1, 8), IntType(8, True)),), (op,), (OutputSpec("odd"),))
    assert generate(network, FAST).text is not None
    with pytest.raises(NotSynthesizable, match=r"odd: its shift differs between positions.*raise max_products"):
        generate(network, dataclasses.replace(FAST, max_products=4))


def test_what_is_too_large_for_one_module_or_for_its_integers_is_refused_by_name() -> None:
    dense = small_network().op("d")
    assert isinstance(dense, Dense)
    count = int(np.count_nonzero(dense.weight))
    assert generate(small_network(), dataclasses.replace(FAST, max_adders=count)).text is not None
    text = rf"d: {count} non-zero products with constants; one module may have {count - 1}\. Prune the layer"
    with pytest.raises(NotSynthesizable, match=text):
        generate(small_network(), dataclasses.replace(FAST, max_adders=count - 1))
    weight = np.array([[(1 << 40) - 3, 1 << 40]])
    wide = IntegerNetwork(
        (InputSpec("x", (2,), IntType(20, True)),), (Dense("wide", "x", weight, np.array([0])),), (OutputSpec("wide"),)
    )
    with pytest.raises(NotSynthesizable, match=r"wide: its products leave .* bits of an adder graph"):
        generate(wide, FAST)


@pytest.mark.parametrize("dsp", [None, 2])
def test_a_multiplier_of_many_bits_is_computed_or_refused_by_name(dsp: int | None, tmp_path: Path) -> None:
    def network(multiplier: int, bits: int) -> IntegerNetwork:
        op = Requantize("q", "x", scalar(multiplier), scalar(50), scalar(0), IntType(9, True))
        return IntegerNetwork((InputSpec("x", (1,), IntType(bits, True)),), (op,), (OutputSpec("q"),))

    config = dataclasses.replace(FAST, dsp_threshold=dsp)
    for multiplier in ((1 << 45) - 3, (1 << 54) + 5):
        equal(network(multiplier, 4), np.arange(-8, 8)[:, None], tmp_path, config)
    for multiplier in ((1 << 57) + 11, (1 << 60) + 11):
        with pytest.raises(NotSynthesizable, match=r"q: its products leave the 62 bits.*; narrow its constants or its"):
            generate(network(multiplier, 2), config)


# ------------------------------------------------------------------------------------------------- configuration, files


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"pipeline": "stage"}, r"pipeline 'stage'; expected 'layer' or 'none', or how many adders"),
        ({"pipeline": 0}, r"pipeline 0; expected an integer of 1 or more"),
        ({"pipeline": True}, r"pipeline True; expected an integer"),
        ({"optimizer": "best"}, r"optimizer 'best'; expected one of shared, csd, da4ml"),
        ({"effort": "max"}, r"effort 'max'; expected one of low, normal, high"),
        ({"dsp_threshold": 1}, r"dsp_threshold 1; expected an integer of 2 or more"),
        ({"max_products": None}, r"max_products None; expected an integer of 1 or more"),
        ({"max_adders": 2.5}, r"max_adders 2\.5; expected an integer"),
    ],
)
def test_the_configuration_is_strict(change: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        RtlConfig(**change)


def test_a_written_design_is_complete_and_says_what_it_is(tmp_path: Path) -> None:
    rtl = generate(small_network(), FAST)
    folder = write(rtl, tmp_path / "rtl")
    names = {path.name for path in folder.iterdir()}
    assert names == {"d_stage.v", "top.v", "hawq_flow_rtl.json"}
    assert (folder / "top.v").read_text() == rtl.text
    assert (folder / "d_stage.v").read_text() == rtl.modules[0].text
    found = json.loads((folder / "hawq_flow_rtl.json").read_text())
    assert found == manifest(rtl)
    assert found["network"] == small_network().digest
    assert (found["top"], found["latency_cycles"], found["interval_cycles"]) == ("top", 1, 1)
    assert found["modules"][0]["sha256"] == rtl.modules[0].digest
    assert found["outputs"] == [{"name": "q_out", "value": "q", "bits": 4, "signed": False, "elements": 2}]
    with pytest.raises(FileExistsError, match="a design is written whole, into a new folder"):
        write(rtl, folder)
    assert {path.name for path in tmp_path.iterdir()} == {"rtl"}


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.rename", full)
    with pytest.raises(OSError, match="disk full"):
        write(generate(small_network(), FAST), tmp_path / "rtl")
    assert not list(tmp_path.iterdir())


def test_a_design_without_a_top_says_so_in_its_manifest(tmp_path: Path) -> None:
    rtl = generate(large(), dataclasses.replace(FAST, max_products=70))
    found = manifest(rtl)
    assert (found["top"], found["latency_cycles"], found["interval_cycles"]) == (None, None, None)
    assert found["modules"][0]["unrolled"] == "1 of 49 positions"
    assert "top.v" not in {path.name for path in write(rtl, tmp_path / "rtl").iterdir()}


# ------------------------------------------------------------------------------------------------- wires and the reader


def test_literals_and_widths() -> None:
    assert [width(*ends) for ends in ((0, 0), (0, 255), (-8, 7), (-1, 5), (-9, -9))] == [0, 8, 4, 4, 5]
    assert literal(-1, 4) == "4'd15"
    assert literal(-1, 40) == "40'hffffffffff"
    x = Signal(-8, 6, "a", 0, 4) << 1
    assert x.bits(0, 8) == "{{3{a[3]}}, a, 1'd0}"
    assert x.bits(2, 4) == "a[2:1]"
    assert constant(5).bits(1, 3) == "2'd2"


def test_sums_take_carries_only_where_both_operands_have_bits() -> None:
    circuit = Circuit(Names())
    a, b = Signal(0, 255, "a", 0, 8), Signal(0, 15, "b", 0, 4)
    circuit.add(a, b << 4)
    circuit.add(a, b << 8)
    circuit.add(a, b, minus=True)
    circuit.add(a << 2, b, minus=True)
    circuit.add(a, constant(-256))
    assert [line.split(" = ")[1] for line in circuit.lines] == [
        "{{1'd0, a[7:4]} + {1'd0, b}, a[3:0]};",
        "{b, a};",
        "{1'd0, a} - {5'd0, b};",
        "{1'd0, a, 2'd0} - {7'd0, b};",
        "{1'd0 - 1'd1, a};",
    ]


def test_long_sums_join_the_two_that_are_there_first_and_look_at_each_but_once() -> None:
    rng = np.random.default_rng(0)
    terms = [Signal(0, 1, f"a{i}", cycle=int(c), depth=int(d)) for i, (c, d) in enumerate(rng.integers(0, 3, (60, 2)))]
    asked = 0

    def key(x: Signal) -> tuple[int, int]:
        nonlocal asked
        asked += 1
        return x.cycle, x.depth

    def join(a: Signal, b: Signal) -> Signal:
        return Signal(0, 1, f"({a.wire} {b.wire})", cycle=max(a.cycle, b.cycle), depth=max(a.depth, b.depth) + 1)

    found = [x.wire for x in joined(terms, join, key, 2)]
    assert asked <= 2 * len(terms)
    while len(terms) > 2:
        terms.sort(key=key)
        terms = [join(terms[0], terms[1]), *terms[2:]]
    assert found == [x.wire for x in terms]


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("wire [8:0] n0", "wire [9:0] n0", "n0 has 10 bits and is given 9"),
        ("{{1'd0, x", "{{2'd0, x", r"'\+' of 10 and 9 bits"),
        ("n0 =", "n0 = n7 +", "'n7' is not known"),
        ("wire [8:0] n0", "wire [8:0] signed n0", "not what the generator writes"),
    ],
)
def test_the_reader_is_strict(old: str, new: str, text: str) -> None:
    module = """
        module m (input wire [15:0] x, output wire [8:0] y);
        wire [8:0] n0 = {{1'd0, x[7:0]} + {1'd0, x[15:8]}};
        assign y = n0;
        endmodule"""
    x = {"x": reader.Column(16, rows=np.ones((3, 16), np.uint8))}
    fine = reader.read(module)
    assert reader.run({"m": fine}, "m", x)["y"].integers().tolist() == [510] * 3
    assert old in module

    def read_and_run(changed: str) -> None:
        reader.run({"m": reader.read(changed)}, "m", x)

    with pytest.raises(reader.ReadError, match=text):
        read_and_run(module.replace(old, new))


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("2'd1: f0 = 3'd5;", "m: f0 has the case 2'd1 twice"),
        ("default: f0 = 3'd5;", "m: f0 has the case default twice"),
    ],
)
def test_a_case_that_is_there_twice_is_refused(line: str, text: str) -> None:
    """Verilog takes the first of them."""
    module = f"""
        module m (input wire [1:0] x, output wire [2:0] y);
        function [2:0] f0;
          input [1:0] i;
            case (i)
              2'd1: f0 = 3'd4;
              default: f0 = 3'd0;
              {line}
            endcase
        endfunction
        assign y = f0(x);
        endmodule"""
    with pytest.raises(reader.ReadError, match=text):
        reader.read(module)


def test_the_reader_takes_one_module_and_one_next_value_a_register() -> None:
    module = """module m (input wire clk, input wire [0:0] x, output reg [0:0] y);
        always @(posedge clk) begin y <= x; end endmodule"""
    assert reader.read(module).nexts == {"y": "x"}
    for changed in ("`define x 1\n" + module, module + " wire [0:0] n0;"):
        with pytest.raises(reader.ReadError, match="no module in"):
            reader.read(changed)
    with pytest.raises(reader.ReadError, match="m: y is given a next value twice"):
        reader.read(module.replace("y <= x;", "y <= x; y <= x;"))


def test_behind_a_multiplier_sums_are_whole_and_results_have_registers_of_their_own() -> None:
    """What Yosys' packing of multiplier blocks needs: see Circuit.add and generate.finish."""
    circuit = Circuit(Names())
    a, b = Signal(0, 255, "a", 0, 8), Signal(0, 15, "b", 0, 4)
    circuit.product(a, constant(11))
    circuit.add(a, b << 4)
    assert circuit.lines[-1].split(" = ")[1] == "{1'd0, a} + {1'd0, b, 4'd0};"
    weight = np.array([[91, 0], [0, 93 * 64]])
    network = IntegerNetwork(
        (InputSpec("x", (2,), IntType(8, True)),),
        (Dense("d", "x", weight, np.array([0, 0])),),
        (OutputSpec("d"),),
    )
    text = generate(network, RtlConfig(dsp_threshold=4)).modules[0].text
    assert "output wire [41:0] d" in text
    assert "assign d = {" in text
