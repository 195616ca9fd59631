"""Estimates: counts that can be checked by hand, the physics of the terms, error bars, tables that add up to plans."""

from __future__ import annotations

import dataclasses
import itertools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hawq_flow.estimate import (
    STAGE_FIGURES,
    Bar,
    Coefficients,
    EstimateError,
    HardwareConfig,
    LayerFeatures,
    cost_tables,
    dense_features,
    estimate,
    estimate_layers,
    estimate_plan,
    features,
    open_terms,
    shipped,
    terms,
)
from hawq_flow.estimate.baselines import bops as feature_bops
from hawq_flow.estimate.baselines import ebops
from hawq_flow.estimate.counts import Counts, count, drawn, expected
from hawq_flow.estimate.estimating import predicted
from hawq_flow.estimate.tables import plan_features
from hawq_flow.network import (
    Add,
    Conv,
    Dense,
    InputSpec,
    IntegerNetwork,
    Lookup,
    MaxPool,
    Multiply,
    Op,
    OutputSpec,
    ReduceMax,
    Requantize,
    Reshape,
)
from hawq_flow.numeric import IntType, significant_bits
from hawq_flow.plan import BitPlan, LayerBits, LayerShape, bops
from hawq_flow.to_rtl.config import NotSynthesizable, RtlConfig
from hawq_flow.to_rtl.generate import generate
from tests.core_strategies import graphs

# ----------------------------------------------------------------------------------------------------- counts


def brute_counts(matrix: np.ndarray) -> tuple[int, int, int]:
    """Digits, simple and hard products by definition: digit strings, and sets of pairs."""

    def digits(value: int) -> int:
        number, value = 0, abs(value)
        while value:
            if value % 2:
                number += 1
                value -= 2 - value % 4
            value //= 2
        return number

    pairs = {(column, int(value)) for row in matrix for column, value in enumerate(row)}
    sizes = [digits(value) for _, value in pairs]
    return (
        sum(digits(int(value)) for value in matrix.ravel()),
        sum(size == 2 for size in sizes),
        sum(size >= 3 for size in sizes),
    )


@given(st.integers(1, 6), st.integers(1, 6), st.integers(2, 9), st.integers(0, 99))
def test_counts_are_those_of_the_definition(n_in: int, n_out: int, bits: int, seed: int) -> None:
    matrix = np.random.default_rng(seed).integers(-(2 ** (bits - 1)), 2 ** (bits - 1), (n_out, n_in))
    found = count(matrix)
    assert (found.digits, found.simple, found.hard) == brute_counts(matrix)
    assert found.nonzeros + found.zeros == matrix.size
    assert found.rows == sum(bool(row.any()) for row in matrix)


def test_counts_by_hand() -> None:
    # 11 = 8 + 4 - 1 twice on one input is one hard product; -11 is another; 3 = 4 - 1 is simple; 8 is free
    found = count(np.array([[11, 3, 8], [11, 3, 0], [-11, 0, 0]]))
    assert found == Counts(6, 3, 3, 14, 1, 2, 4 * 3 + 2 * 2 + 1, True)


def test_groups_do_not_share_inputs() -> None:
    matrix = np.array([[11], [11]])
    assert count(matrix).hard == 1
    assert count(matrix, groups=2).hard == 2
    with pytest.raises(ValueError, match=r"shape \(2, 1\) in 3 groups; expected \(outputs, inputs\)"):
        count(matrix, groups=3)


def test_effective_bits_lie_between_the_outer_ones() -> None:
    assert significant_bits(np.array([0, 1, -2, 5, 12, -96])).tolist() == [0, 1, 1, 3, 2, 2]
    assert count(np.array([[0, 1, -2, 5, 12, -96]])).effective_bits == 9


def test_drawn_weights_are_the_same_every_time_and_have_the_zeros_asked_for() -> None:
    one = drawn(16, 8, 6, nonzeros=50, deviation=3.0)
    assert np.array_equal(one, drawn(16, 8, 6, nonzeros=50, deviation=3.0))
    assert np.count_nonzero(one) == 50
    assert np.abs(one).max() <= 31
    # a grid far coarser than the weights still has as many non-zero weights as were asked for
    assert np.count_nonzero(drawn(16, 8, 6, nonzeros=50, deviation=1e-3)) == 50
    assert np.abs(drawn(64, 64, 4, uniform=5.0)).max() <= 5
    with pytest.raises(ValueError, match="200 non-zero weights of 16 x 8; expected 0 to 128"):
        drawn(16, 8, 6, nonzeros=200)


def test_the_largest_weights_survive_pruning() -> None:
    full, pruned = drawn(32, 32, 8, deviation=20.0), drawn(32, 32, 8, nonzeros=100, deviation=20.0)
    assert np.abs(pruned[pruned != 0]).min() >= np.sort(np.abs(full), axis=None)[-100]
    assert not expected(32, 32, 8, nonzeros=100, fraction=7).exact


# --------------------------------------------------------------------------------------------------- features


def network() -> IntegerNetwork:
    """A convolution, a pool, a table, a dense layer, a sum of two branches."""
    rng = np.random.default_rng(0)
    return IntegerNetwork(
        (InputSpec("x", (2, 6), IntType(5, True)),),
        (
            Conv("c", "x", rng.integers(-7, 8, (4, 2, 3)), np.zeros(4, np.int64), (1,), (0, 0)),
            Requantize("a", "c", np.full((4, 1), 171), np.full((4, 1), 10), np.int64(0), IntType(4, False)),
            MaxPool("p", "a", (2,), (2,), (0, 0)),
            Reshape("f", "p", (8,)),
            Lookup("t", "f", np.arange(16), 0),
            Dense("d", "f", rng.integers(-7, 8, (8, 8)), np.zeros(8, np.int64)),
            Requantize("b", "d", np.int64(1), np.int64(3), np.int64(0), IntType(5, False)),
            Add("s", ("b", "t")),
        ),
        (OutputSpec("s"),),
    )


def test_features_of_every_kind_of_op() -> None:
    found = {layer.name: layer for layer in features(network())}
    assert list(found) == ["c", "a", "p", "f", "t", "d", "b", "s"]
    conv, rescale = found["c"], found["a"]
    assert (conv.kind, conv.n_in, conv.n_out, conv.positions, conv.elements) == ("product", 6, 4, 4, 16)
    assert conv.sum_bits == network().values["c"].type.max_bits
    assert (rescale.kind, rescale.elements, rescale.output_bits, rescale.counts.hard) == ("rescale", 16, 4, 16)
    # sums of up to 16 * 2^10 / 171 = 95.8 do not saturate: 7 bits, if the sum has as many
    assert rescale.sum_bits == min(7, conv.sum_bits)
    assert (found["p"].kind, found["p"].operations, found["s"].kind) == ("compare", 1, "adder")
    assert (found["t"].kind, found["t"].weight_bits) == ("table", 4)
    # wires that two read are a stage of their own on the open road
    assert (found["f"].operations, found["f"].reads) == (0, ("p",))
    assert found["d"].reads == found["t"].reads == ("f",)
    assert set(found["s"].reads) == {"b", "t"}


@settings(max_examples=25)
@given(graphs())
def test_every_network_has_estimates_at_every_stage(built: IntegerNetwork) -> None:
    layers = features(built)
    if not layers:
        with pytest.raises(EstimateError, match="no layer costs anything"):
            estimate(built)
        return
    for stage, strategy in itertools.product(("csynth", "synthesis", "open"), ("latency", "resource")):
        found = estimate(built, HardwareConfig(4, strategy), stage)
        known = open_terms.DEFAULTS if stage == "open" else terms.DEFAULTS
        amounts = open_terms.lut_terms if stage == "open" else lambda x: terms.lut_terms(x, HardwareConfig())
        assert all(set(amounts(layer)) <= set(known["lut"]) for layer in layers)
        for figure in ("lut", "ff", "dsp", "bram18", "latency_cycles"):
            bar = getattr(found.total, figure)
            assert np.isfinite(bar.value)
            assert bar.value >= 0
        assert [name for name, _ in found.layers] == [layer.name for layer in layers]


# ------------------------------------------------------------------------------------------------- the physics


def dense(n_in: int = 16, n_out: int = 32, bits: int = 6, input_bits: int = 8, seed: int = 0) -> LayerFeatures:
    matrix = np.random.default_rng(seed).integers(-(2 ** (bits - 1)) + 1, 2 ** (bits - 1), (n_out, n_in))
    return dense_features("d", matrix, input_bits)


def test_multiplier_limit_is_hls4mls() -> None:
    layer = dataclasses.replace(dense(), n_in=274, n_out=8, counts=Counts(nonzeros=1268, zeros=924, rows=8, hard=119))
    # a published report of this layer: 13 DSP blocks at reuse factor 100, 119 at 1 and 2
    assert terms.multiplier_limit(layer, 100) == 22 - 9
    assert terms.turns(layer, HardwareConfig(100)) == (13, 10)
    assert terms.turns(layer, HardwareConfig(2)) == (119, 1)
    assert terms.turns(layer, HardwareConfig()) == (119, 1)


@pytest.mark.parametrize(
    ("reuse", "bits", "n_in", "n_out", "blocks"),
    # block RAMs of wa-hls4ml-search's reports
    [
        (512, 10, 32, 32, 2),
        (512, 4, 128, 128, 5),
        (960, 14, 160, 192, 26),
        (640, 2, 160, 224, 8),
        (512, 12, 256, 32, 6),
    ],
)
def test_memories_of_the_resource_strategy(reuse: int, bits: int, n_in: int, n_out: int, blocks: int) -> None:
    layer = dataclasses.replace(dense(), n_in=n_in, n_out=n_out, weight_bits=bits)
    found = terms.bram_terms(layer, HardwareConfig(reuse, "resource"))
    assert found == {"block": blocks}


def test_products_become_dsps_above_the_threshold_only() -> None:
    narrow, wide = dense(input_bits=8), dense(input_bits=16)
    hardware = HardwareConfig()
    assert estimate_layers([narrow], hardware).total.dsp.value == 0
    assert estimate_layers([wide], hardware).total.dsp.value == wide.counts.hard > 0
    assert estimate_layers([wide], HardwareConfig(multipliers="fabric")).total.dsp.value == 0
    assert estimate_layers([narrow], HardwareConfig(multipliers="dsp")).total.dsp.value == narrow.counts.hard
    shared = estimate_layers([wide], HardwareConfig(64)).total
    assert shared.dsp.value == terms.multiplier_limit(wide, 64) < wide.counts.hard
    assert shared.latency_cycles.value > 10


def test_more_costs_more() -> None:
    for stage in ("csynth", "synthesis", "open"):
        small = estimate_layers([dense(n_out=16, bits=3)], HardwareConfig(), stage).total
        large = estimate_layers([dense(n_out=32, bits=7)], HardwareConfig(), stage).total
        assert large.lut.value > small.lut.value
    slow = estimate_layers([dense()], HardwareConfig(part="xc7z020clg400-1", clock_ns=3.3)).total
    assert slow.latency_cycles.value > estimate_layers([dense()], HardwareConfig()).total.latency_cycles.value
    assert slow.ff.value > estimate_layers([dense()], HardwareConfig()).total.ff.value


def test_sums_in_a_chain_take_cycles_by_their_weights_not_their_inputs() -> None:
    rng = np.random.default_rng(0)
    full = rng.integers(1, 8, (16, 512))
    half = np.where(np.arange(512) % 2, full, 0)
    one, two = (dense_features("d", matrix, 8) for matrix in (full, half))
    assert terms.chained(one)
    assert terms.cycle_terms(one, HardwareConfig()) == {"chain": 512.0}
    assert terms.cycle_terms(two, HardwareConfig()) == {"chain": 256.0}
    cycles = [estimate_layers([layer], HardwareConfig()).total.latency_cycles.value for layer in (one, two)]
    assert cycles[0] == pytest.approx(2 * cycles[1])


def test_registers_between_layers_are_those_of_the_family() -> None:
    layers = [dense(8, 4), dataclasses.replace(dense(4, 4), name="e")]
    passed = layers[0].counts.rows * layers[0].output_bits
    assert passed > 0
    for part, family in (("xc7z020clg400-1", "7series"), ("xcvu13p", "ultrascale")):
        found = terms.design_terms("ff", layers, HardwareConfig(part=part))
        assert found == {f"{family}.boundary": passed}
    kept = shipped().models["csynth.latency"].coefficients["ff"]
    assert kept["7series.boundary"] == pytest.approx(1.0, abs=0.05), "each layer ends in registers, once"
    assert kept["ultrascale.boundary"] < kept["7series.boundary"], "layers share cycles"


def test_estimating_loads_neither_tables_nor_solvers() -> None:
    code = "import sys, hawq_flow.estimate, hawq_flow.report; print({'pandas', 'scipy', 'torch'} & set(sys.modules))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "set()", "half a second each, which only fitting and tables of reports need"


def test_interval_and_latency_of_reuse() -> None:
    layer = dense(32, 32, 8)
    found = estimate_layers([layer], HardwareConfig(128, "resource")).total
    assert found.interval_cycles == 128
    assert 128 <= found.latency_cycles.value <= 132
    assert estimate_layers([layer], HardwareConfig()).total.interval_cycles == 1
    assert estimate_layers([layer], HardwareConfig({"d": 9}, "resource")).total.interval_cycles == 9


def test_streams_have_one_position_at_a_time_in_hardware() -> None:
    layers = features(network())
    rescale = next(layer for layer in layers if layer.name == "a")
    wide = dataclasses.replace(rescale, input_bits=16)
    parallel, stream = HardwareConfig(), HardwareConfig(io_type="io_stream")
    assert (rescale.positions, rescale.elements) == (4, 16)
    for figures in (terms.lut_terms, terms.dsp_terms):
        whole, one = figures(wide, parallel), figures(wide, stream)
        assert {name: amount / 4 for name, amount in whole.items()} == one
    assert terms.interval(rescale, stream, 0.0) == 4
    assert terms.interval(rescale, parallel, 0.0) == 1


def test_the_longest_path_decides_the_latency() -> None:
    found = estimate(network(), HardwareConfig(), "open")
    cycles = {name: figures.latency_cycles.value for name, figures in found.layers}
    assert found.total.latency_cycles.value == 5  # c + a, p, f, d + b beside t, s
    assert sum(cycles.values()) == 6


def test_stages_of_the_open_road_are_the_generators() -> None:
    built = network()
    rtl = generate(built, RtlConfig(optimizer="csd"))
    found = estimate(built, HardwareConfig(), "open")
    assert found.total.latency_cycles.value == rtl.latency
    assert sum(layer.registered for layer in features(built)) == len(rtl.modules)


def test_a_table_of_few_values_is_compared_with_thresholds() -> None:
    layer = LayerFeatures("r", "rescale", 8, 16, 1, weight_bits=8, sum_bits=12, counts=Counts(8, 0, 0, 40, 0, 8))
    assert open_terms.lut_terms(layer) == {"threshold": 8 * 16}
    wide = dataclasses.replace(layer, output_bits=8)
    assert open_terms.lut_terms(wide) == {"scale": 32 * 12, "clip": 64, "bias": 8 * 16}
    assert open_terms.lut_terms(dataclasses.replace(wide, biased=False))["bias"] == 0


@pytest.mark.parametrize("bits", [8, 12, 16])
def test_rescales_to_fewer_values_never_cost_more_and_never_nothing(bits: int) -> None:
    costs = [
        estimate_layers(
            [
                LayerFeatures(
                    "r", "rescale", 8, bits, to, weight_bits=8, sum_bits=bits, counts=Counts(8, 0, 0, 31, 0, 8)
                )
            ],
            HardwareConfig(),
            "open",
        ).total.lut.value
        for to in range(1, 9)
    ]
    assert costs == sorted(costs)
    # Yosys takes 14 to 39 LUTs for eight rescales of 8 to 16 bits to one bit
    assert 10 < costs[0] < 50


def chain(*ops: Op, inputs: tuple[InputSpec, ...] = (InputSpec("x", (8,), IntType(6, True)),)) -> IntegerNetwork:
    """Ops after inputs; the last one leaves."""
    return IntegerNetwork(inputs, ops, (OutputSpec(ops[-1].name),))


def product(name: str, source: str, seed: int = 0) -> Dense:
    rng = np.random.default_rng(seed)
    return Dense(name, source, rng.integers(-7, 8, (8, 8)), rng.integers(-20, 20, 8))


def rescale(name: str, source: str, bits: int | tuple[int, ...] = 6) -> Requantize:
    return Requantize(name, source, np.array(3), np.array(4), np.array(0), IntType(bits, True))


MIXED = (2, 2, 2, 2, 2, 2, 2, 8)
TAIL = (product("d", "x"), rescale("q", "d"), product("e", "q", 1), rescale("r", "e"))


@pytest.mark.parametrize(
    ("built", "ff"),
    [
        # what Yosys finds in each: a skip over two stages, an early output, a branch that nothing reads, mixed widths
        (chain(*TAIL, Add("s", ("r", "x")), rescale("t", "s")), 3 * 48 + 8 + 2 * 48 - 16 + 3),
        (
            IntegerNetwork((InputSpec("x", (8,), IntType(6, True)),), TAIL, (OutputSpec("q"), OutputSpec("r"))),
            3 * 48 + 2,
        ),
        (chain(product("d", "x"), rescale("q", "d"), product("e", "x", 1), rescale("r", "e")), 48 + 1),
        (chain(product("d", "x"), rescale("q", "d", MIXED)), 7 * 2 + 8 + 1),
        (chain(Dense("d", "x", np.zeros((8, 8), np.int64), np.arange(8)), rescale("q", "d"), product("e", "q")), 2),
    ],
    ids=["skip", "early output", "dead", "per channel", "constants"],
)
def test_flip_flops_of_the_open_road_are_counted(built: IntegerNetwork, ff: int) -> None:
    assert estimate(built, None, "open").total.ff.value == ff


def test_what_is_constant_or_dead_takes_nothing() -> None:
    constants = chain(Dense("d", "x", np.zeros((8, 8), np.int64), np.arange(8)), rescale("q", "d"), product("e", "q"))
    assert estimate(constants, None, "open").total.lut.value == pytest.approx(0, abs=10)
    dead = chain(product("d", "x"), rescale("q", "d"), product("e", "x", 1), rescale("r", "e"))
    assert [name for name, _ in estimate(dead).layers] == ["e", "r"]


def test_channels_of_few_bits_cost_less_than_their_widest() -> None:
    mixed, wide = (
        estimate(chain(product("d", "x"), rescale("q", "d", bits), product("e", "q", 1)), None, "open").total.lut.value
        for bits in (MIXED, 8)
    )
    assert mixed < 0.8 * wide


# ------------------------------------------------------------------------------------------------- error bars


@pytest.mark.parametrize(
    ("op", "luts"),
    # packed LUTs that Yosys took
    [
        (Add("r", ("x", "y")), 360),
        (MaxPool("r", "x", (2, 2), (2, 2), (0, 0, 0, 0)), 1312),
        (Multiply("r", "x", "y"), 469),
        (ReduceMax("r", "x"), 41),
        (Lookup("r", "x", np.random.default_rng(1).integers(-128, 128, 256), -128), 180),
    ],
    ids=["add", "max pool", "multiply", "reduce max", "table"],
)
def test_ops_between_layers_cost_and_what_was_never_fitted_is_said(op: Op, luts: int) -> None:
    shapes = {"Add": (40,), "MaxPool": (2, 8, 8)}
    shape = shapes.get(type(op).__name__, (4,))
    built = chain(op, inputs=tuple(InputSpec(name, shape, IntType(8, True)) for name in dict.fromkeys(op.inputs)))
    found = estimate(built, None, "open")
    assert found.total.lut.value == pytest.approx(luts, rel=0.2)
    assert not found.warnings
    for stage in ("csynth", "synthesis"):
        (warning,) = estimate(built, None, stage).warnings  # type: ignore[arg-type]
        kind = features(built)[0].kind
        assert warning == (
            f"r: of kind {kind!r}, estimated from first principles; fitted at this stage: product, rescale, softmax"
        )


def test_a_rescale_of_the_resource_strategy_costs_what_it_does_in_the_other() -> None:
    layer = LayerFeatures("r", "rescale", 8, 8, 4)
    for stage in ("csynth", "synthesis"):
        one = estimate_layers([layer], HardwareConfig(1, "resource"), stage)  # type: ignore[arg-type]
        assert one.total.lut.value > 0
        assert "r: of kind 'rescale', estimated from first principles; fitted at this stage: product" in one.warnings


@pytest.mark.parametrize("part", ["", "nonsense", "5CGXFC7", "xc6slx45", "xc2v1000"])
def test_parts_of_other_families_are_said(part: str) -> None:
    found = estimate_layers([dense(input_bits=16)], HardwareConfig(part=part))
    assert f"part {part!r} is of no family that was fitted (Xilinx 7 series, UltraScale, UltraScale+): esti" in "".join(
        found.warnings
    )
    assert not estimate_layers([dense(input_bits=16)], HardwareConfig(part=part), "open").warnings


@pytest.mark.parametrize("part", ["xc7z020clg400-1", "XC7K325T", "xa7s50", "xcku115", "xczu7ev", "xcau15p", "xck26"])
def test_parts_of_families_that_are_known(part: str) -> None:
    hardware = HardwareConfig(part=part)
    assert hardware.known_part
    assert hardware.family == ("7series" if "7" in part[:3] else "ultrascale")


def test_reuse_factors_of_layers_that_are_not_there() -> None:
    text = "a reuse factor is given for layer 'dd', which the design does not have; did you mean 'd'"
    with pytest.raises(EstimateError, match=text):
        estimate_layers([dense()], HardwareConfig({"dd": 9}))
    with pytest.raises(EstimateError, match="layer 'other', which the design does not have; it has a, b, c"):
        cost_tables(SHAPES, WIDTHS, INPUTS, HardwareConfig({"other": 9}), weights=WEIGHTS)


def test_a_factor_of_csynth_reaches_synthesis() -> None:
    models = dict(shipped().models)
    models["csynth.latency"] = dataclasses.replace(models["csynth.latency"], scale={"lut": 2.0})
    doubled = Coefficients("doubled", models)
    for stage in ("csynth", "synthesis"):
        one, two = (
            estimate_layers([dense()], HardwareConfig(), stage, coefficients=each).total.lut.value  # type: ignore[arg-type]
            for each in (shipped(), doubled)
        )
        assert two == pytest.approx(2 * one)


def test_every_estimate_has_its_bars_its_stage_and_its_version() -> None:
    found = estimate_layers([dense(16, 64, 6, 16), dense(64, 32, 6, 16, 1)], HardwareConfig())
    bar = found.total.lut
    assert bar.low68 is not None
    assert bar.high68 is not None
    assert bar.low90 is not None
    assert bar.high90 is not None
    assert bar.low90 <= bar.low68 <= bar.value <= bar.high68 <= bar.high90
    assert bar.uncertain(bar.value)
    assert not bar.uncertain(2 * bar.high68)
    assert not Bar(3.0, 3.0, 3.0).uncertain(3.0), "every design keeps a limit that the range ends at"
    assert (found.stage, found.warnings) == ("csynth", ())
    assert found.coefficients == shipped().version
    assert found.coefficients.startswith("shipped ")


def test_what_was_never_fitted_is_said() -> None:
    wide = dense(1000, 4, 6, 24)
    found = estimate_layers([wide], HardwareConfig(clock_ns=2.5))
    assert found.warnings[:2] == (
        "d: terms of a dot product 1000; fitted from 3 to 561",
        "d: input bits 24; fitted from 6 to 16",
    )
    assert "d: clock period in ns on ultrascale 2.5; fitted from 5 to 5" in found.warnings
    conv = estimate(network(), HardwareConfig())
    assert "c: positions 4; fitted from 1 to 1" in conv.warnings
    reused = estimate_layers([dense()], HardwareConfig(4), "open")
    assert "the open road is wholly unrolled: the reuse factor is left out" in reused.warnings


def test_what_the_generator_does_not_unroll_is_said() -> None:
    large = dataclasses.replace(dense(), positions=10_000)
    found = estimate_layers([large], HardwareConfig(), "open")
    assert (
        "d: estimated with all its 10000 positions; the generator writes one beyond 20,000 products" in found.warnings
    )
    assert not any("generator" in warning for warning in estimate_layers([dense()], HardwareConfig(), "open").warnings)


def test_stages_are_different_figures() -> None:
    layers = [dense(16, 64, 6, 16)]
    csynth, synthesis, opened = (
        estimate_layers(layers, HardwareConfig(), stage).total.lut.value for stage in ("csynth", "synthesis", "open")
    )
    assert synthesis == pytest.approx(csynth * shipped().models["synthesis.latency"].scale["lut"])
    assert opened not in (csynth, synthesis)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"reuse_factor": 0}, "reuse factor 0; expected an integer of at least 1"),
        ({"reuse_factor": {"a": True}}, "reuse factor True; expected an integer"),
        ({"strategy": "Latency"}, "strategy 'Latency'; expected 'latency' or 'resource'"),
        ({"io_type": "parallel"}, "io_type 'parallel'; expected 'io_parallel' or 'io_stream'"),
        ({"multipliers": "lut"}, "multipliers 'lut'; expected 'auto' or 'dsp' or 'fabric'"),
        ({"clock_ns": 0.0}, "clock_ns 0.0; expected a period in ns above 0"),
    ],
)
def test_hardware_that_cannot_be(options: dict[str, object], text: str) -> None:
    with pytest.raises(EstimateError, match=text):
        HardwareConfig(**options)  # type: ignore[arg-type]


def test_coefficients_that_are_missing_or_foreign() -> None:
    only = Coefficients("mine", {"csynth.latency": shipped().models["csynth.latency"]})
    with pytest.raises(EstimateError, match="no coefficients for stage 'open' with strategy 'latency'; there are csyn"):
        estimate_layers([dense()], HardwareConfig(), "open", coefficients=only)
    with pytest.raises(EstimateError, match="mine: not coefficients of hawq_flow"):
        Coefficients.from_json("{}", "mine")
    with pytest.raises(EstimateError, match="not coefficients of hawq_flow"):
        Coefficients.from_json(json.dumps({"version": 9, "name": "x", "models": {}}))


def edited(*path: str, value: object) -> str:
    """What ships, as JSON, with one entry of the model csynth.latency another."""
    data = json.loads(shipped().to_json())
    entry = data["models"]["csynth.latency"]
    for name in path[:-1]:
        entry = entry[name]
    if value is None:
        del entry[path[-1]]
    else:
        entry[path[-1]] = value
    return json.dumps(data)


SUM = ("coefficients", "lut", "sum")
SPREAD = ("design", "lut", "low68")


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        (SUM, float("nan"), r"coefficients.lut.sum: found nan; expected a finite number of at least 0"),
        (SUM, float("inf"), r"coefficients.lut.sum: found inf; expected a finite number"),
        (SUM, -5, r"coefficients.lut.sum: found -5; expected a finite number of at least 0"),
        (SUM, "1.5", r"coefficients.lut.sum: found '1.5'; expected a finite number"),
        (SUM, True, r"coefficients.lut.sum: found True; expected a finite number"),
        (("coefficients", "lut", "sums"), 1.0, r"coefficients.lut: unknown name 'sums'; expected some of accumulate, "),
        (("coefficients", "lut"), None, r"coefficients: unknown keys none, missing keys lut"),
        (("coefficients", "luts"), {}, r"coefficients: unknown keys luts"),
        (("scale",), {"lut": 0}, r"scale.lut: found 0; expected a factor above 0"),
        (("scale",), {"lut": -1}, r"scale.lut: found -1; expected a finite number of at least 0"),
        (("scale",), {"LUT": 1}, r"scale: unknown name 'LUT'; expected some of bram18, dsp"),
        (SPREAD, "x", r"design.lut.low68: found 'x'; expected a finite number"),
        (SPREAD, 3.0, r"design.lut, low90 to high90: found 0.131461, 3, .*; expected them in rising order"),
        (("design", "lut", "rows"), 1.5, r"design.lut.rows: found 1.5; expected an integer"),
        (("domain", "outputs"), [9, 1], r"domain.outputs: found 9, 1; expected them in rising order"),
        (("domain", "outputs"), 9, r"domain.outputs: found 9; expected the smallest and the largest"),
        (("domain", "output"), [1, 9], r"domain: unknown name 'output'"),
        (("base",), "csynth", r"base: found 'csynth'; expected '', or at stage synthesis 'csynth'"),
        (("sources",), "abc", r"sources: found 'abc'; expected a list of texts"),
        (("kinds",), ["products"], r"kinds: unknown name 'products'; expected some of adder, compare"),
    ],
)
def test_coefficient_files_are_checked(path: tuple[str, ...], value: object, text: str) -> None:
    with pytest.raises(EstimateError, match=rf"^mine.json: .*mine.json, models.csynth.latency.*{text}"):
        Coefficients.from_json(edited(*path, value=value), "mine.json")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"name": 5}, "mine.json, name: found 5; expected a text"),
        ({"models": []}, r"mine.json, models: found \[\]; expected a table of names"),
        ({"models": {}}, "mine.json, models: found none; expected some of csynth, "),
        ({"models": {"cosim": {}}}, "mine.json, models: unknown name 'cosim'; expected some of csynth, "),
    ],
)
def test_coefficient_files_are_checked_above_their_models(change: dict[str, object], text: str) -> None:
    with pytest.raises(EstimateError, match=text):
        Coefficients.from_json(json.dumps({**json.loads(shipped().to_json()), **change}), "mine.json")


def test_coefficients_are_stored_whole(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    shipped().save(path)
    assert Coefficients.load(path) == shipped()
    assert Coefficients.load(path).version == shipped().version
    with pytest.raises(EstimateError, match="cannot be read"):
        Coefficients.load(tmp_path / "none.json")


# ----------------------------------------------------------------------------------------------- plans and tables

SHAPES = (
    LayerShape("a", 16, 24, "x"),
    LayerShape("b", 24, 12, "a"),
    LayerShape("c", 12, 5, "b"),
)
WIDTHS = (2, 4, 6)
RNG = np.random.default_rng(3)
WEIGHTS = {
    shape.name: {
        bits: RNG.integers(-(2 ** (bits - 1)) + 1, 2 ** (bits - 1), (shape.outputs, shape.fan_in)) for bits in WIDTHS
    }
    for shape in SHAPES
}
INPUTS = {"a": (12,), "b": (3, 6), "c": (3, 6)}


def plan_of(weights: tuple[int, ...], activations: tuple[int, int]) -> BitPlan:
    given_bits = (*activations, 16)
    layers = {
        shape.name: LayerBits(weight, activation)
        for shape, weight, activation in zip(SHAPES, weights, given_bits, strict=True)
    }
    return BitPlan.of({"x": 12}, layers)


@pytest.mark.parametrize("stage", ["csynth", "synthesis", "open"])
def test_tables_add_up_to_plans(stage: str) -> None:
    tables = cost_tables(SHAPES, WIDTHS, INPUTS, HardwareConfig(), stage, weights=WEIGHTS)  # type: ignore[arg-type]
    for weights in itertools.product(WIDTHS, repeat=3):
        for activations in itertools.product((3, 6), repeat=2):
            plan = plan_of(weights, activations)
            whole = estimate_plan(SHAPES, plan, HardwareConfig(), stage, weights=WEIGHTS).total  # type: ignore[arg-type]
            inputs = (12, *activations)
            for figure, slack in (("lut", 0.12), ("dsp", 0.12), ("latency_cycles", 0.12), ("ff", 0.25)):
                if figure not in STAGE_FIGURES[stage]:  # type: ignore[index]
                    continue
                total = sum(
                    tables[figure][shape.name][weight, width]
                    for shape, weight, width in zip(SHAPES, weights, inputs, strict=True)
                )
                value = getattr(whole, figure).value
                assert total == pytest.approx(value, rel=slack, abs=4), (figure, weights, activations)


def test_tables_rank_plans_as_estimates_do() -> None:
    tables = cost_tables(SHAPES, WIDTHS, INPUTS, HardwareConfig(), "open", weights=WEIGHTS)
    pairs = []
    for weights in itertools.product(WIDTHS, repeat=3):
        for activations in itertools.product((3, 6), repeat=2):
            inputs = (12, *activations)
            total = sum(tables["lut"][s.name][w, a] for s, w, a in zip(SHAPES, weights, inputs, strict=True))
            whole = estimate_plan(SHAPES, plan_of(weights, activations), None, "open", weights=WEIGHTS).total
            pairs.append((total, whole.lut.value))
    ranks = [np.argsort(np.argsort([pair[i] for pair in pairs])) for i in (0, 1)]
    assert np.corrcoef(ranks[0], ranks[1])[0, 1] > 0.99


def test_a_table_of_a_figure_that_a_stage_does_not_have() -> None:
    tables = cost_tables(SHAPES, WIDTHS, INPUTS, HardwareConfig(), "open", weights=WEIGHTS)
    assert list(tables) == ["lut", "ff", "latency_cycles"]
    with pytest.raises(
        EstimateError,
        match=r"stage 'open' has no figure 'dsp' \(it has lut, ff, latency_cycles\), so that a budget of it would "
        "limit nothing; stages that have it: csynth, synthesis",
    ):
        tables["dsp"]


def test_a_plan_without_weights_draws_them() -> None:
    drawn_once = estimate_plan(SHAPES, plan_of((4, 4, 4), (6, 6)))
    assert drawn_once == estimate_plan(SHAPES, plan_of((4, 4, 4), (6, 6)))
    assert not any(layer.counts.exact for layer in plan_features(SHAPES, plan_of((4, 4, 4), (6, 6)))[::2])


def test_tables_name_what_is_missing() -> None:
    with pytest.raises(
        EstimateError, match=r"no weights of layer 'a' at 8 bits; give weights\['a'\]\[8\], int64 \(24, 16\)"
    ):
        cost_tables(SHAPES, (8,), INPUTS, weights=WEIGHTS)
    with pytest.raises(EstimateError, match=r"no input widths for layer 'b'; give input_bits\['b'\]"):
        cost_tables(SHAPES, WIDTHS, {"a": (12,), "c": (3,)}, weights=WEIGHTS)
    wrong = {**WEIGHTS, "b": {bits: np.zeros((2, 2), np.int64) for bits in WIDTHS}}
    with pytest.raises(EstimateError, match=r"layer 'b' at 2 bits have shape \(2, 2\); expected \(12, 24\)"):
        cost_tables(SHAPES, WIDTHS, INPUTS, weights=wrong)


def test_a_network_and_its_plan_cost_about_the_same() -> None:
    """The road from widths alone and the one from a network meet: same matrices, same terms."""
    built = plan_features(SHAPES, plan_of((4, 4, 4), (6, 6)), WEIGHTS)
    each, total = predicted(shipped(), "open", built, HardwareConfig())
    assert total["latency_cycles"] == 3
    assert total["lut"] == pytest.approx(sum(layer["lut"] for layer in each))


# ------------------------------------------------------------------------------------------------------- baselines


def test_baselines_are_their_papers() -> None:
    matrix = np.array([[3, 0, -4], [5, 1, 0]])
    layer = dense_features("d", matrix, 8, weight_bits=4)
    assert ebops([layer]) == 8 * (2 + 1 + 3 + 1)
    shape = LayerShape("d", 3, 2, "x")
    plan = BitPlan.of({"x": 8}, {"d": LayerBits(4, 8)})
    assert feature_bops([layer]) == pytest.approx(bops(plan, [shape], {"d": 2 / 6}))


@settings(max_examples=12)
@given(graphs())
def test_latency_and_registers_of_the_open_road_are_the_generators(built: IntegerNetwork) -> None:
    try:
        rtl = generate(built, RtlConfig(optimizer="csd"))
    except NotSynthesizable:
        return
    layers = features(built)
    assert sum(layer.registered for layer in layers) == len(rtl.modules)
    if layers and rtl.text is not None:
        assert estimate(built, HardwareConfig(), "open").total.latency_cycles.value == rtl.latency
        assert sum(layer.delay_bits for layer in layers) == rtl.delay_bits - rtl.latency
