"""Upsets: every flip against a slow oracle, the statistics of samples, refusals, and what is written down."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from core_strategies import extreme_inputs, graphs
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from typer.testing import CliRunner

from hawq_flow import cli, interpret, quality, store, upsets
from hawq_flow.network import (
    Add,
    Concat,
    Conv,
    Dense,
    InputSpec,
    IntegerNetwork,
    Lookup,
    MaxPool,
    OutputSpec,
    Pad,
    ReduceMax,
    Requantize,
    Reshape,
    Upsample,
    forward,
)
from hawq_flow.numeric import IntType, Overflow, Rounding

MOVES = (Concat, MaxPool, Pad, ReduceMax, Reshape, Upsample)
"""Ops without words: what they give stands in registers of their operands' kind, or nowhere."""
Ints = NDArray[np.int64]


# The oracle: the network with the flipped constant, op by op, in the plainest arithmetic there is.


def pattern_flipped(value: int, bit: int, type: IntType, width: int) -> int:
    """A word with one bit inverted, through its text in binary."""
    digits = list(format(value % (1 << width), f"0{width}b"))
    digits[width - 1 - bit] = "1" if digits[width - 1 - bit] == "0" else "0"
    found = int("".join(digits), 2)
    return found - (1 << width) if type.signed and digits[0] == "1" else found


def channelwise(of: Any, shape: tuple[int, ...]) -> list[int]:
    """What a type has for each element of a value, in C order."""
    array = np.array(of).reshape((-1,) + (1,) * (len(shape) - 1)) if isinstance(of, tuple) else np.array(of)
    return [int(each) for each in np.broadcast_to(array, shape).reshape(-1)]


def into(values: NDArray[Any], type: IntType) -> Ints:
    """Values modulo 2^bits into the registers of a type, one by one."""

    def held(value: int, width: int) -> int:
        word = value % (1 << width)
        return word - (1 << width) if type.signed and word >> (width - 1) else word

    widths = channelwise(type.bits, values.shape[1:])
    rows = [[held(int(v), w) for v, w in zip(row, widths, strict=True)] for row in values.reshape(len(values), -1)]
    return np.array(rows, dtype=np.int64).reshape(values.shape)


def rounded(product: int, shift: int, rounding: Rounding) -> int:
    """``product / 2^shift`` by division with remainder."""
    whole, rest = divmod(product, 1 << shift)
    if rounding is Rounding.FLOOR or 2 * rest < 1 << shift:
        return whole
    if 2 * rest > 1 << shift or rounding is Rounding.HALF_UP:
        return whole + 1
    return whole + whole % 2


def requantized(x: Ints, m: Ints, s: Ints, z: Ints, op: Requantize) -> Ints:
    """A Requantize in Python's integers."""
    shape = x.shape[1:]
    constants = [[int(c) for c in np.broadcast_to(array, shape).reshape(-1)] for array in (m, s, z)]
    low, high = (
        np.broadcast_to(end, shape).reshape(-1).tolist() for end in (op.type.low(x.ndim - 1), op.type.high(x.ndim - 1))
    )
    rows = []
    for row in x.reshape(len(x), -1).tolist():
        y = [rounded(v * a, b, op.rounding) + c for v, a, b, c in zip(row, *constants, strict=True)]
        if op.overflow is Overflow.SATURATE:
            y = [min(max(v, lo), hi) for v, lo, hi in zip(y, low, high, strict=True)]
        rows.append(y)
    return into(np.array(rows, dtype=object).reshape(x.shape), op.type)


def oracle(network: IntegerNetwork, stratum: upsets.Stratum, element: int, healthy: dict[str, Ints]) -> dict[str, Ints]:
    """Every value with one flip; what comes before it is healthy."""
    env = dict(healthy)
    place = [op.name for op in network.ops].index(stratum.op)
    for op in network.ops[place:]:
        operands = [env[name] for name in op.inputs]
        type = network.values[op.name].type
        struck = op.name == stratum.op
        constants: dict[str, Ints] = {}
        if struck and stratum.memory:
            words = getattr(op, stratum.kind).copy()
            width = IntType.holding(int(words.min()), int(words.max()))
            words.flat[element] = pattern_flipped(int(words.flat[element]), stratum.bit, width, width.max_bits)
            constants[stratum.kind] = words
        if isinstance(op, Requantize):
            kept = {name: constants.get(name, getattr(op, name)) for name in ("multiplier", "shift", "offset")}
            y = requantized(operands[0], kept["multiplier"], kept["shift"], kept["offset"], op)
        elif isinstance(op, Lookup):
            table = constants.get("table", op.table)
            y = into(table[np.clip(operands[0] - op.start, 0, table.size - 1)], type)
        elif isinstance(op, (Dense, Conv)) and op.accumulator is not None and op.overflow is Overflow.SATURATE:
            free = dataclasses.replace(op, accumulator=None)
            held = free.derive([network.values[name] for name in op.inputs]).type
            summed = dataclasses.replace(free, accumulator=held, overflow=Overflow.WRAP, **constants)
            rank = len(network.values[op.name].shape)
            y = np.clip(forward(summed, operands), op.accumulator.low(rank), op.accumulator.high(rank))
        elif isinstance(op, (Dense, Conv)):
            y = forward(dataclasses.replace(op, accumulator=type, overflow=Overflow.WRAP, **constants), operands)
        else:
            y = into(forward(op, operands), type)
        if struck and not stratum.memory:
            y = y.copy()
            at = np.unravel_index(element, y.shape[1:])
            width = type.widths[int(at[0])] if isinstance(type.bits, tuple) else type.bits
            for row in range(len(y)):
                y[row][at] = pattern_flipped(int(y[row][at]), stratum.bit, type, int(width))
        env[op.name] = y
    return env


def check(network: IntegerNetwork, x: Any, most: int | None) -> int:
    """Every stratum, ``most`` flips of each (None: all): outputs equal the oracle's. How many flips were checked."""
    checked, healthy = 0, interpret.reference(network, x)
    for stratum in upsets.strata(network):
        elements = stratum.draw(network, most, 0)
        found = upsets.outputs(network, x, stratum, elements)
        for i, element in enumerate(elements):
            expected = oracle(network, stratum, int(element), healthy)
            for output in network.outputs:
                assert (found[output.name][i] == expected[output.name]).all(), (stratum, element, output.name)
        checked += len(elements)
    return checked


def mlp() -> IntegerNetwork:
    """Two layers and a Requantize each, small enough for every flip, with bits that matter."""
    rng = np.random.default_rng(3)
    multiplier, shift, none = np.array([3, 5, 7, 6]), np.array([3, 2, 4, 3]), np.int64(0)
    ops = (
        Dense("d0", "x", rng.integers(-4, 4, (4, 3)), rng.integers(-9, 9, 4), layer="first"),
        Requantize("q0", "d0", multiplier, shift, none, IntType(3, False), layer="first"),
        Dense("d1", "q0", rng.integers(-7, 8, (3, 4)), rng.integers(-5, 5, 3), layer="second"),
        Requantize("q1", "d1", np.int64(5), np.int64(2), np.int64(-1), IntType(5, True, True), layer="second"),
    )
    return IntegerNetwork((InputSpec("x", (3,), IntType(4, True)),), ops, (OutputSpec("q1"),))


def residual() -> IntegerNetwork:
    """Convolutions, a residual sum, a table, two outputs; accumulators that saturate and wrap."""
    rng = np.random.default_rng(4)
    three, none = np.int64(3), np.int64(0)
    first, offset = np.array([3, 5, 2, 7]).reshape(4, 1), np.array([1, 0, -1, 2]).reshape(4, 1)
    clipped, wrapped = (IntType((4, 5, 6, 7), True), Overflow.SATURATE), (IntType(6, True), Overflow.WRAP)
    ops = (
        Conv("c0", "x", rng.integers(-3, 4, (4, 1, 3)), rng.integers(-5, 5, 4), (1,), (1, 1), 2),
        Requantize("q0", "c0", first, three, none, IntType(3, False)),
        Conv("c1", "q0", rng.integers(-3, 4, (4, 4, 1)), np.zeros(4, np.int64), (1,), (0, 0), 1, *clipped),
        Add("sum", ("c1", "q0")),
        Requantize("q1", "sum", np.int64(5), three, offset, IntType(4, True), Rounding.HALF_UP),
        Lookup("table", "q1", rng.integers(-9, 9, 16), -8),
        Concat("both", ("table", "q1")),
        Conv("head", "both", rng.integers(-7, 8, (3, 8, 4)), rng.integers(-5, 5, 3), (1,), (0, 0), 1, *wrapped),
    )
    return IntegerNetwork((InputSpec("x", (2, 4), IntType(4, True)),), ops, (OutputSpec("head"), OutputSpec("q1")))


@pytest.mark.parametrize("network", [mlp(), residual()], ids=["mlp", "residual"])
def test_every_flip_of_a_small_network_is_the_oracles(network: IntegerNetwork) -> None:
    x = extreme_inputs(network, rows=4)
    assert check(network, x, None) == sum(stratum.sites for stratum in upsets.strata(network)) > 200


@settings(max_examples=20)
@given(graphs(max_steps=5), st.integers(0, 99))
def test_flips_of_random_graphs_are_the_oracles(network: IntegerNetwork, seed: int) -> None:
    if all(isinstance(op, MOVES) for op in upsets.sites.needed(network)):
        with pytest.raises(upsets.UpsetError, match="nothing can flip"):
            upsets.strata(network)
        return
    check(network, extreme_inputs(network, seed, rows=2), 1)


def counted(network: IntegerNetwork, stratum: upsets.Stratum, element: int, x: Ints, labels: Ints) -> tuple[Any, ...]:
    """Rows lost less rows won, rows changed, and the largest change, of one flip, by the oracle."""
    healthy = interpret.reference(network, x)
    faulty = oracle(network, stratum, element, healthy)
    first = network.outputs[0].name
    right, then = (env[first].reshape(len(x), -1).argmax(axis=1) == labels for env in (healthy, faulty))
    same = [(faulty[o.name] == healthy[o.name]).reshape(len(x), -1).all(axis=1) for o in network.outputs]
    return right.sum() - then.sum(), (~np.all(same, axis=0)).sum(), np.abs(faulty[first] - healthy[first]).max()


@pytest.mark.parametrize("network", [mlp(), residual()], ids=["mlp", "residual"])
def test_losses_are_counted_as_the_oracle_counts_them(network: IntegerNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hawq_flow.upsets.campaign.HEALTHY_BYTES", 1 << 11)  # several blocks of rows
    monkeypatch.setattr("hawq_flow.upsets.campaign.PART_ELEMENTS", 40)
    monkeypatch.setattr("hawq_flow.upsets.campaign.BATCH_BYTES", 1 << 9)
    x = extreme_inputs(network, rows=5)
    labels = np.random.default_rng(0).integers(0, 3, len(x))
    done: list[tuple[int, int]] = []
    found = upsets.run(network, x, labels, samples=3, progress=lambda *at: done.append(at))
    assert done[-1][0] == done[-1][1] == found.flips * len(x)
    out = interpret.trace(network, x)[network.outputs[0].name].reshape(len(x), -1)
    assert found.healthy == quality.accuracy(out, labels)
    for result in found.strata:
        for i, element in enumerate(result.elements):
            expected = counted(network, result.stratum, int(element), x, labels)
            assert (result.loss[i].sum(), result.changed[i], result.most[i]) == expected
        assert result.by_row.sum() == result.loss.sum()


def test_the_measures_without_labels() -> None:
    network = residual()
    x = extreme_inputs(network, rows=5)
    healthy = interpret.reference(network, x)["head"].reshape(len(x), -1).argmax(axis=1)
    agreement, exact = upsets.run(network, x, samples=5), upsets.run(network, x, samples=5, measure="exact")
    labelled = upsets.run(network, x, healthy, samples=5)
    assert (agreement.measure, exact.measure, labelled.measure) == ("agreement", "exact", "accuracy")
    assert agreement.healthy == exact.healthy == labelled.healthy == 1
    for a, e, b in zip(agreement.strata, exact.strata, labelled.strata, strict=True):
        assert (a.loss == b.loss).all()
        assert (e.loss.sum(axis=1) == e.changed).all()
    other = upsets.run(network, x, samples=5, output="q1")
    assert any((a.loss != b.loss).any() for a, b in zip(agreement.strata, other.strata, strict=True))


def test_one_output_decides_by_its_zero_point() -> None:
    ops = (Dense("d", "x", np.array([[1]]), np.array([0])),)
    spec = InputSpec("x", (1,), IntType(4, True))
    network = IntegerNetwork((spec,), ops, (OutputSpec("d", zero_point=np.int64(2)),))
    x = np.arange(-8, 8).reshape(-1, 1)
    found = upsets.run(network, x, (x[:, 0] > 2).astype(np.int64), kinds=["accumulator"])
    # Bit 3 is the sign: 3 to 7 become -5 to -1, and of -8 to -1, -5 to -1 become 3 to 7.
    assert found.healthy == 1
    assert found.strata[3].loss.sum() == 10


def test_a_sum_beyond_the_healthy_width_wraps() -> None:
    """2 x + 3 y of two bits each is 15 at most, 4 bits: 3 x + 3 y is 18 at most, and 18 is 2 in 4 bits."""
    op = Dense("d", "x", np.array([[2, 3]]), np.array([0]))
    network = IntegerNetwork((InputSpec("x", (2,), IntType(2, False)),), (op,), (OutputSpec("d"),))
    assert str(network.values["d"].type) == "uint4"
    low = next(s for s in upsets.strata(network, ["weight"]) if s.bit == 0)
    x = np.array([[3, 3], [3, 2], [0, 1]])
    assert upsets.outputs(network, x, low, [0, 1])["d"][..., 0].tolist() == [[2, 15, 3], [12, 10, 2]]


def test_samples_are_unbiased_and_their_bars_cover() -> None:
    """Over many seeds: the mean of sampled losses is the exhaustive one, and two bars hold it as often as is due."""
    network = mlp()
    x = extreme_inputs(network, 7, rows=20)
    whole = upsets.run(network, x, measure="agreement")
    risk = whole.total(True)
    assert risk is not None
    estimates, held = [], []
    for seed in range(150):
        sample = upsets.run(network, x, measure="agreement", samples=3, seed=seed, kinds=upsets.MEMORY)
        flips, _ = upsets.result.standard_errors(
            [(result, result.stratum.sites / risk.bits) for result in sample.strata]
        )
        found = sample.total(True)
        assert found is not None
        estimates.append(found.loss)
        held.append(abs(found.loss - risk.loss) <= 2 * flips)
    spread = np.std(estimates, ddof=1)
    assert abs(np.mean(estimates) - risk.loss) < 3 * spread / np.sqrt(len(estimates))
    assert 0.88 <= np.mean(held) <= 0.99  # strata of 3 flips: the bars' own spread costs a little of 95 %
    assert spread > 0


def test_the_bars_of_rows_cover() -> None:
    """Rows drawn from many: the exhaustive mean over few rows is within two bars of that over all, 95 times of 100."""
    network = mlp()
    rng = np.random.default_rng(0)
    x = rng.integers(-8, 8, (4000, 3))
    everything = upsets.run(network, x, kinds=["weight"])
    held = []
    for seed in range(60):
        some = upsets.run(network, x, kinds=["weight"], rows=60, seed=seed)
        error = some.total(True)
        truth = everything.total(True)
        assert error is not None
        assert truth is not None
        held.append(abs(error.loss - truth.loss) <= 2 * error.error)
    assert 0.88 <= np.mean(held) <= 1


def test_draws_depend_on_nothing_else_that_is_asked_for() -> None:
    network = residual()
    x = extreme_inputs(network)
    one, other = upsets.run(network, x, samples=4), upsets.run(network, x, samples=4, kinds=["weight"], layers=["c1"])
    drawn = {(r.stratum.op, r.stratum.kind, r.stratum.bit): r.elements.tolist() for r in one.strata}
    for result in other.strata:
        assert drawn[result.stratum.op, "weight", result.stratum.bit] == result.elements.tolist()
    again = upsets.run(network, x, samples=4, seed=1)
    assert any((a.elements != b.elements).any() for a, b in zip(one.strata, again.strata, strict=True))


def test_risks_add_up_and_protection_ends_at_the_whole() -> None:
    network = mlp()
    found = upsets.run(network, extreme_inputs(network, rows=30))
    for memory in (True, False):
        total = found.total(memory)
        assert total is not None
        layers = found.risks(memory)
        assert [risk.name for risk in layers] == ["first", "second"]
        assert sum(risk.bits for risk in layers) == total.bits == sum(r.stratum.sites for r in found.part(memory))
        assert sum(risk.risk for risk in layers) == pytest.approx(total.risk)
        losses = np.concatenate([result.losses for result in found.part(memory)])
        assert total.loss == pytest.approx(losses.mean())
        assert total.risk == pytest.approx(losses.sum())
        by: Any
        for by in ("layer", "bit"):
            ranked = upsets.protection(found, memory, by)
            assert ranked[-1].cost_so_far == pytest.approx(1)
            assert ranked[-1].removed_so_far == pytest.approx(1)
            worth = [c.removed / c.cost for c in ranked]
            assert worth == sorted(worth, reverse=True)
        cheap = upsets.protection(found, memory, "layer", {"first": 1e6, "second": 1e-6})
        assert [c.layer for c in cheap] == ["second", "first"]
        assert cheap[0].cost == pytest.approx(1e-6)
        alone = upsets.single_bits(found, memory)
        assert alone is not None
        assert alone[1][-1] == pytest.approx(1)
        assert alone[1].max() > max(c.removed_so_far for c in upsets.protection(found, memory, "layer")) - 0.2
    sampled = upsets.run(network, extreme_inputs(network), samples=2)
    assert upsets.single_bits(sampled, True) is None


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"layers": ["nowhere"]}, "no layer 'nowhere'; the network has first, d0, q0, second, d1, q1"),
        ({"kinds": ["wires"]}, "kind 'wires': no such words; expected some of weight, bias"),
        ({"kinds": ["table"]}, "no words of kind table in the network; nothing can flip"),
        ({"measure": "accuracy"}, "measure 'accuracy' without labels; give labels, or measure 'agreement'"),
        ({"rows": 0}, "rows: 0; expected 1 or more"),
        ({"samples": 1}, "samples: 1; expected 2 or more: the spread of one flip is not known"),
        ({"output": "d0"}, "no output 'd0'; the network has q1"),
        ({"labels": np.zeros(3, np.int64)}, r"labels of int64 and shape \(3,\) for 26 rows; expected a class number"),
        ({"labels": np.zeros(26)}, "labels of float64"),
    ],
)
def test_refusals(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(upsets.UpsetError, match=text):
        upsets.run(mlp(), extreme_inputs(mlp(), rows=8), **wrong)


def test_refusals_of_no_rows_of_elements_and_of_costs() -> None:
    network = mlp()
    with pytest.raises(upsets.UpsetError, match="no rows; expected at least one input"):
        upsets.run(network, np.zeros((0, 3), np.int64))
    weight = upsets.strata(network)[0]
    with pytest.raises(upsets.UpsetError, match=r"d0: elements \[12\] of its weight; expected some of its 12 words"):
        upsets.outputs(network, np.zeros((1, 3), np.int64), weight, [12])
    found = upsets.run(network, extreme_inputs(network), samples=2)
    with pytest.raises(upsets.UpsetError, match="layer 'second' costs None; expected a positive cost of each of first"):
        upsets.protection(found, True, "layer", {"first": 3.0})


def test_narrow_and_unequal_channels_have_the_bits_they_have() -> None:
    network = residual()
    found = {(s.op, s.kind, s.bit): s for s in upsets.strata(network)}
    assert [found["c1", "accumulator", bit].sites for bit in (3, 4, 5, 6)] == [16, 12, 8, 4]
    assert found["c1", "accumulator", 6].elements(network).tolist() == [12, 13, 14, 15]
    assert ("c1", "bias", 0) not in found  # all zero: no memory
    assert ("q0", "offset", 0) not in found


def test_the_page_says_what_samples_cannot_know() -> None:
    network = mlp()
    x = extreme_inputs(network, rows=1)[:1]
    whole = upsets.markdown(upsets.run(network, x), "mlp")
    sampled = upsets.markdown(upsets.run(network, x, samples=2), "mlp")
    assert "all 222 bits" in whole
    assert "rule of three" not in whole
    assert "of the bits are of kinds, ops and bits of which no flip tried lost or won a row" in sampled
    assert "of 222 bits, drawn bit by bit" in sampled


runner = CliRunner()


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    network = mlp()
    network.save(tmp_path / "net")
    x = extreme_inputs(network, rows=30)
    np.savez(tmp_path / "x.npz", x=x, y=np.arange(len(x)) % 3)
    np.save(tmp_path / "x.npy", x)
    return tmp_path


def ran(*arguments: str | Path, code: int = 0) -> str:
    result = runner.invoke(cli.app, ["upsets", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


def test_the_command_writes_the_same_bytes_twice(saved: Path) -> None:
    said = ran(saved / "net", "--data", saved / "x.npz", "-o", saved / "one", "--rows", "40")
    assert "222 of 222 bits flipped on 40 rows, accuracy without" in said
    assert "registers: an upset costs" in said
    ran(saved / "net", "--data", saved / "x.npz", "-o", saved / "two", "--rows", "40", "--quiet")
    one, two = store.open_artifact(saved / "one"), store.open_artifact(saved / "two")
    assert one.digest == two.digest
    assert sorted(one.manifest["files"]) == [
        "flips.parquet", "memory.png", "registers.png", "upsets.csv", "upsets.json", "upsets.md", "upsets.png",
    ]  # fmt: skip
    assert "there already" in ran(saved / "net", "--data", saved / "x.npz", "-o", saved / "one", "--rows", "40")
    written = one.json("upsets.json")
    assert (written["format"], written["version"], written["rows"]) == ("hawq_flow.upsets", 1, 40)
    table, flips = pd.read_csv(one.file("upsets.csv")), pd.read_parquet(one.file("flips.parquet"))
    assert len(table) == len(written["strata"])
    assert len(flips) == 222 == table["flips"].sum()
    means = flips.groupby(["op", "kind", "bit"])["loss"].mean()
    for line in written["strata"]:
        assert line["mean_loss"] == pytest.approx(means[line["op"], line["kind"], line["bit"]])
    page = one.file("upsets.md").read_text()
    assert "| first | weight | 36 |" in page
    assert "Triplicate these layers first" in page


def test_the_commands_options_and_refusals(saved: Path) -> None:
    (saved / "costs.json").write_text(json.dumps({"first": 10, "second": 1}))
    said = ran(
        saved / "net", "--data", saved / "x.npy", "-o", saved / "out", "--kinds", "weight,bias", "--samples", "2",
        "--layer", "second", "--layer", "first", "--costs", saved / "costs.json", "--seed", "3",
    )  # fmt: skip
    assert "agreement without 100.00%" in said
    assert "of the cost" in said
    assert "registers" not in said
    with pytest.raises(upsets.UpsetError, match="no layer 'third'"):
        ran(saved / "net", "--data", saved / "x.npy", "-o", saved / "no", "--layer", "third")
    assert not (saved / "no").exists()
    assert "expected a number, or 'all'" in ran(saved / "net", "--data", saved / "x.npy", "--samples", "few", code=2)
    (saved / "costs.json").write_text("[1]")
    args = (saved / "net", "--data", saved / "x.npy", "-o", saved / "no", "--costs", saved / "costs.json")
    assert "expected {layer: cost}" in ran(*args, code=1)
