"""Drift on data that were shifted, and on data that were not; the command."""

from __future__ import annotations

import json
import math
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_networks import inputs, mixed
from typer.testing import CliRunner

from hawq_flow import cli, images, store, trace
from hawq_flow.network import Dense, InputSpec, IntegerNetwork, Op, OutputSpec, Requantize
from hawq_flow.numeric import IntType
from hawq_flow.trace import drifting

runner = CliRunner()


def tagger() -> IntegerNetwork:
    """Four observables of 10 bits, standardized; three hidden values; two classes."""
    rng = np.random.default_rng(5)
    ops = (
        Dense("fc", "x", rng.integers(-7, 8, (3, 4)), rng.integers(-20, 20, 3), layer="fc"),
        Requantize("fc_requant", "fc", np.asarray(3), np.asarray(5), np.asarray(0), IntType(6, False), layer="fc"),
        Dense("head", "fc_requant", rng.integers(-7, 8, (2, 3)), rng.integers(-20, 20, 2), layer="head"),
    )
    spec = InputSpec(
        "x",
        (4,),
        IntType(10, True, True),
        np.asarray(4 / 511),
        np.asarray(0),
        np.array([100.0, 0.0, 3.0, -2.0]),
        np.array([30.0, 1.0, 0.5, 2.0]),
    )
    return IntegerNetwork((spec,), ops, (OutputSpec("head"),))


def raw(rows: int, seed: int) -> Any:
    """Raw data of the tagger: as its standardization expects them."""
    spec = tagger().inputs[0]
    return np.random.default_rng(seed).normal(size=(rows, 4)) * spec.std * 0.8 + spec.mean


def drifted(old: Any, new: Any) -> drifting.Drift:
    network = tagger()
    spec = network.inputs[0]
    before = trace.observe(network, spec.integers(old))
    return trace.drift(network, before, trace.observe(network, spec.integers(new), before))


def test_the_same_kind_of_data_is_not_flagged() -> None:
    found = drifted(raw(2000, 0), raw(1500, 1))
    assert [entry.name for entry in found.entries] == ["x", "fc", "fc_requant", "head"]
    assert found.flagged == ()
    assert found.rows == (2000, 1500)
    assert all(0 < entry.ks < 0.08 for entry in found.entries)
    assert all(entry.outside < 0.005 for entry in found.entries)
    assert "0 of 4 values are flagged." in found.markdown()


def test_a_shifted_observable_is_named() -> None:
    new = raw(1500, 1)
    new[:, 2] += 1.0  # two standard deviations
    found = drifted(raw(2000, 0), new)
    entry = found.entries[0]
    assert entry.ks_channel == 2
    assert 0.6 < entry.ks < 0.85  # 2 / 0.8 deviations apart: erf(2.5 / 2 / sqrt(2)) = 0.789
    assert entry.outside > 0.01
    assert re.fullmatch(r"KS 0\.[678]\d in channel 2", entry.flags[-1])
    assert re.fullmatch(r"\d\.\d\d% outside the old range", entry.flags[0])
    assert entry in found.flagged
    text = found.markdown()
    assert text.startswith(f"{len(found.flagged)} of 4 values are flagged: x")
    assert "outside the old range of the same element more than 1.0% above the 0.10% expected of equal data" in text


def test_larger_data_saturate() -> None:
    old = raw(2000, 0)
    new = raw(1500, 1)
    spec = tagger().inputs[0]
    new = (new - spec.mean) * 3 + spec.mean
    found = {entry.name: entry for entry in drifted(old, new).entries}
    x, requant = found["x"], found["fc_requant"]
    assert x.saturated is None
    integers = spec.integers(new)
    assert x.at_ends[1] == ((integers == 511) | (integers == -511)).mean() > 0.05
    assert x.at_ends[0] == 0
    assert x.flags[0] == f"at the type's ends 0.00% -> {x.at_ends[1]:.2%}"
    sums = trace.compute(tagger(), integers)["fc_requant.rounded"]
    assert requant.saturated is not None
    assert requant.saturated[1] == (sums > 63).mean() > 0.05
    before = trace.compute(tagger(), spec.integers(old))["fc_requant.rounded"]
    assert requant.saturated[0] == (before > 63).mean()
    assert requant.flags[0] == f"saturated {requant.saturated[0]:.2%} -> {requant.saturated[1]:.2%}"
    assert found["fc"].used[1][1] > found["fc"].used[0][1]
    assert found["fc"].proven[1] >= found["fc"].used[1][1]


def test_jets_whose_mass_is_measured_otherwise() -> None:
    """Halves of the jets are alike; a mass that reads 15 % too large is found, by its channel, in the first value."""
    table = pd.read_parquet(Path(__file__).parent.parent / "experiments" / "jets" / "jets.parquet").iloc[:8000]
    names = [name for name in table.columns if name != "class"]
    array = table[names].to_numpy(np.float64)
    old, new = array[:4000], array[4000:]
    rng = np.random.default_rng(1)
    ops: list[Op] = []
    value, features = "x", 16
    for i, outputs in enumerate((64, 32, 5)):
        ops.append(Dense(f"fc{i}", value, rng.integers(-7, 8, (outputs, features)), rng.integers(-50, 51, outputs)))
        shift = np.asarray(7 if i == 0 else 5)
        ops.append(Requantize(f"q{i}", f"fc{i}", np.asarray(1), shift, np.asarray(0), IntType(6, False)))
        value, features = f"q{i}", outputs
    mean, std = old.mean(axis=0), old.std(axis=0)
    spec = InputSpec("x", (16,), IntType(10, True, True), np.asarray(6 / 511), np.asarray(0), mean, std)
    network = IntegerNetwork((spec,), tuple(ops), (OutputSpec("q2"),))
    before = trace.observe(network, spec.integers(old))
    same = trace.drift(network, before, trace.observe(network, spec.integers(new), before))
    assert same.flagged == ()
    shifted = new.copy()
    shifted[:, names.index("mass_mmdt")] *= 1.15
    found = trace.drift(network, before, trace.observe(network, spec.integers(shifted), before))
    assert names[found.entries[0].ks_channel] == "mass_mmdt"
    assert found.entries[0] in found.flagged
    assert found.entries[0].ks > 3 * same.entries[0].ks


def test_few_rows_are_not_held_against_data() -> None:
    """Twelve rows differ from two thousand by chance: the limit allows for it."""
    found = drifted(raw(2000, 0), raw(12, 1))
    assert found.entries[0].ks > 0.1
    assert found.entries[0].ks_limit == pytest.approx(1.95 * math.sqrt(1 / 2000 + 1 / 12))
    assert not any("KS" in flag for entry in found.entries for flag in entry.flags)


@given(seed=st.integers(0, 999), rows=st.integers(1, 30), others=st.integers(1, 30))
@settings(max_examples=25)
def test_the_measures_by_counting(seed: int, rows: int, others: int) -> None:
    network = mixed()
    old, new = inputs(network, rows, seed), np.clip(inputs(network, others, seed + 1) + seed % 4, -16, 15)
    before = trace.observe(network, old)
    found = trace.drift(network, before, trace.observe(network, new, before))
    one, two = trace.compute(network, old), trace.compute(network, new)
    for entry in found.entries:
        a, b = one[entry.name], two[entry.name]
        assert entry.outside == ((b < a.min(axis=0)) | (b > a.max(axis=0))).mean()
        assert entry.used == ((a.min(), a.max()), (b.min(), b.max()))
        assert entry.resolution == 1
        distances = []
        for channel in range(a.shape[1]):
            points = np.union1d(a[:, channel], b[:, channel])
            distances.append(max(abs((a[:, channel] <= p).mean() - (b[:, channel] <= p).mean()) for p in points))
        assert entry.ks == pytest.approx(max(distances))
        assert distances[entry.ks_channel] == pytest.approx(max(distances))


def test_wide_values_are_counted_in_bins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drifting, "BINS", 256)
    network = tagger()
    spec = network.inputs[0]
    x = spec.integers(raw(300, 0))
    assert drifting.resolution_bits(network, "x") == 4  # 1023 integers, 64 bins for each of 4 channels
    before = trace.observe(network, x)
    assert before.counts["x"].shape == (4, 64)
    for channel in range(4):
        assert (before.counts["x"][channel] == np.bincount((x[:, channel] + 511) >> 4, minlength=64)).all()
    found = trace.drift(network, before, trace.observe(network, x, before))
    assert [entry.ks for entry in found.entries] == [0.0] * 4
    assert found.entries[0].resolution == 16
    assert " (bins of 16) |" in found.markdown()


def test_the_folder_holds_the_drift(tmp_path: Path) -> None:
    network = tagger()
    spec = network.inputs[0]
    new = raw(150, 1) * 1.5
    options = trace.Options(())
    made = [
        trace.write(network, spec.integers(new), tmp_path / name, options, against=spec.integers(raw(200, 0)))
        for name in ("one", "two")
    ]
    for name in ("drift.csv", "drift.md", "drift.parquet", "drift.png"):
        assert made[0].file(name).read_bytes() == made[1].file(name).read_bytes()
    png = made[0].file("drift.png").read_bytes()
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    assert min(struct.unpack(">II", png[16:24])) > 300
    found = drifted(raw(200, 0), new)
    assert made[0].file("drift.md").read_text() == found.markdown()
    for table in (pd.read_csv(made[0].file("drift.csv")), pd.read_parquet(made[0].file("drift.parquet"))):
        assert table["value"].tolist() == ["x", "fc", "fc_requant", "head"]
        assert table["ks"].tolist() == [entry.ks for entry in found.entries]
        assert table["most_new"].tolist() == [entry.used[1][1] for entry in found.entries]
        assert table["saturated_new"].isna().tolist() == [True, True, False, True]
    assert not (tmp_path / "one" / "trace.npz").exists()


def test_the_figure_shows_every_value_and_threshold() -> None:
    new = raw(150, 1) * 3
    found = drifted(raw(200, 0), new)
    figure = trace.drift_figure(found)
    ranges, *measures = figure.axes
    labels = [label.get_text() for label in ranges.get_yticklabels()]
    assert labels == ["x  int10n", "fc  int15", "fc_requant  uint6", "head  int12"]
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["type", "proven range", "used by old data", "used by new data"]
    assert "integers" in ranges.get_xlabel()
    assert [axes.get_xlabel().split("\n")[0] for axes in measures] == [
        "saturated (inputs: at ends) (%)",
        "outside the element's",
        "Kolmogorov-Smirnov distance,",
    ]
    limits = [axes.lines[-1].get_xdata()[0] for axes in measures[1:]]
    assert limits == [100 * (0.01 + 2 / 201), found.entries[0].ks_limit]
    widths = [patch.get_width() for patch in measures[2].patches]
    assert widths == [entry.ks for entry in found.entries]


# --------------------------------------------------------------------------------------------------------- the command


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    tagger().save(tmp_path / "network" / "own")
    return tmp_path / "network" / "own"


def run(*arguments: str | Path, code: int = 0) -> str:
    result = runner.invoke(cli.app, ["trace", *(str(part) for part in arguments)], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.output


def test_trace_writes_a_folder(saved: Path, tmp_path: Path) -> None:
    network = tagger()
    np.save(tmp_path / "raw.npy", raw(100, 3))
    np.save(tmp_path / "integers.npy", network.inputs[0].integers(raw(100, 3)))
    text = run(saved, "--data", tmp_path / "raw.npy", "--raw", "-o", tmp_path / "t", "--tile", "2x3", "--word", "2")
    assert "| fc_requant.product | int" in text
    assert f"{tmp_path / 't'}: 100 rows counted, 64 dumped," in text
    index = json.loads((tmp_path / "t" / "trace.json").read_text())
    assert (index["rows"], index["rows_dumped"], index["forms"]) == (100, 64, ["npz", "hex"])
    assert (tmp_path / "t/constants/fc.weight.tiles.hex").is_file()
    few = ("--rows", "5", "--as", "csv")
    again = run(saved, "--data", tmp_path / "integers.npy", "-o", tmp_path / "u", "--quiet", *few)
    assert again == f"{tmp_path / 'u'}: 100 rows counted, 5 dumped, {_files(tmp_path / 'u')} files\n"
    assert (tmp_path / "t/values.csv").read_bytes() == (tmp_path / "u/values.csv").read_bytes()
    (tmp_path / "rows.txt").write_text(images.decimal(np.load(tmp_path / "integers.npy")))
    run(saved, "--data", tmp_path / "rows.txt", "-o", tmp_path / "v", *few)
    assert (tmp_path / "v/elements.csv").read_bytes() == (tmp_path / "u/elements.csv").read_bytes()


def _files(folder: Path) -> int:
    return sum(1 for path in folder.rglob("*") if path.is_file() and path.name != "manifest.json")


def test_trace_compares(saved: Path, tmp_path: Path) -> None:
    network = tagger()
    x = network.inputs[0].integers(raw(10, 3))
    np.save(tmp_path / "x.npy", x)
    run(saved, "--data", tmp_path / "x.npy", "-o", tmp_path / "t", "--as", "hex")
    text = run(saved, "--compare", tmp_path / "t")
    assert text.startswith("Equal: 256 elements of 8 signals and 7 constants.")
    arrays = trace.compute(network, x)
    arrays["fc"][4, 1] += 1
    arrays["head"][0, 0] += 1
    store.save_arrays(tmp_path / "d.npz", {"fc": arrays["fc"], "head": arrays["head"]})
    text = " ".join(run("--compare", tmp_path / "d.npz", saved, "--data", tmp_path / "x.npy", code=1).split())
    right = int(arrays["fc"][4, 1])
    place = f"fc (output, Dense), row 4, element [1]: got {right}, expected {right - 1}"
    assert f"**2 of 50 elements differ. First: {place}.**" in text
    assert f"error: {tmp_path / 'd.npz'}: first difference: {place}" in text
    (tmp_path / "fc.hex").write_text(images.words(arrays["fc"], 15, True, "hex").replace("\n", "\nx", 1))
    arguments = [str(saved), "--data", str(tmp_path / "x.npy"), "--compare", str(tmp_path / "fc.hex")]
    result = runner.invoke(cli.app, ["trace", *arguments])
    assert result.exit_code != 0
    assert "fc.hex, line 2: 'x" in str(result.exception)


def test_trace_reports_drift(saved: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "old.npy", raw(400, 0))
    new = raw(300, 1)
    new[:, 0] *= 2
    np.save(tmp_path / "new.npy", new)
    text = run(saved, "--data", tmp_path / "new.npy", "--raw", "--against", tmp_path / "old.npy", "-o", tmp_path / "t")
    assert "values are flagged: x" in text
    assert (tmp_path / "t" / "drift.png").is_file()
    assert text.startswith((tmp_path / "t" / "drift.md").read_text())


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--data", "x.npy"], 2, "no folder to write: give --out FOLDER"),
        (["-o", "t"], 2, "no inputs: give --data FILE (or --compare DUMP, where the dump holds the inputs)"),
        (["--compare", "d", "-o", "t"], 2, "--compare prints a table: give neither --out nor --against with it"),
        (["--compare", "d", "--raw"], 2, "--raw without --data; it says what the data are"),
        (["--data", "x.npy", "-o", "t", "--tile", "16"], 2, "--tile '16': expected ROWSxCOLUMNS of a MAC array"),
        (["--data", "x.npy", "-o", "t", "--tile", "0x4"], 2, "--tile '0x4': expected ROWSxCOLUMNS"),
    ],
)
def test_trace_refuses(saved: Path, tmp_path: Path, arguments: list[str], code: int, said: str) -> None:
    np.save(tmp_path / "x.npy", tagger().inputs[0].integers(raw(2, 0)))
    paths = [str(tmp_path / part) if part in ("x.npy", "d", "t") else part for part in arguments]
    assert said in " ".join(run(saved, *paths, code=code).split())
    assert not (tmp_path / "t").exists()
