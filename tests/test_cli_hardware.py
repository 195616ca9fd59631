"""The commands about hardware, from the command line's end: what they print, write, refuse and exit with."""

from __future__ import annotations

import subprocess
from pathlib import Path

import fake_vendor
import numpy as np
import pandas as pd
import pytest
import report_texts
from typer.testing import CliRunner

from hawq_flow import cli
from hawq_flow.config import RtlStage
from hawq_flow.network import Dense, InputSpec, IntegerNetwork, OutputSpec, Requantize
from hawq_flow.numeric import IntType
from hawq_flow.to_hls import HlsConfig, write_project
from hawq_flow.to_rtl import RtlConfig
from hawq_flow.to_rtl.synthesize import RtlSynthesisConfig
from hawq_flow.to_rtl.yosys import MissingTool, find_yosys

runner = CliRunner()


@pytest.fixture(scope="module")
def network() -> IntegerNetwork:
    rng = np.random.default_rng(0)
    one, zero = np.asarray(1), np.asarray(0)
    ops = (
        Dense("fc", "x", rng.integers(-7, 8, (3, 4)), rng.integers(-20, 20, 3), layer="fc"),
        Requantize("fc_requant", "fc", one, np.asarray(2), zero, IntType(5, False), layer="fc"),
        Dense("head", "fc_requant", rng.integers(-3, 4, (2, 3)), rng.integers(-20, 20, 2), layer="head"),
        Requantize("head_requant", "head", one, one, zero, IntType(8, True), layer="head"),
    )
    return IntegerNetwork((InputSpec("x", (4,), IntType(6, True)),), ops, (OutputSpec("head_requant"),))


@pytest.fixture
def saved(network: IntegerNetwork, tmp_path: Path) -> Path:
    network.save(tmp_path / "network" / "own")
    return tmp_path / "network" / "own"


@pytest.fixture
def project(network: IntegerNetwork, tmp_path: Path) -> Path:
    return write_project(network, tmp_path / "hls" / "own" / "vitis" / "project", HlsConfig(part=fake_vendor.PART))


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Vitis HLS that is a shell script, on PATH."""
    fake_vendor.tool(folder, "vitis_hls")
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def failed(*arguments: str | Path, code: int = 1) -> str:
    result = runner.invoke(cli.app, [str(part) for part in arguments], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


def done(*arguments: str | Path) -> str:
    result = runner.invoke(cli.app, [str(part) for part in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


# --- estimate --------------------------------------------------------------------------------------------------------


def test_estimates_come_with_error_bars_by_stage(saved: Path) -> None:
    text = done("estimate", saved)
    for stage in ("csynth", "synthesis", "open"):
        assert stage in text
    assert "68 %" in text
    assert "fc" in text
    only = done("estimate", saved, "--stage", "open")
    assert "csynth" not in only


def test_a_folder_without_a_network_lists_those_below(saved: Path, tmp_path: Path) -> None:
    assert "no saved network itself; there are" in failed("estimate", tmp_path)
    assert "no saved network there or below; give run/network/PLAN" in failed(
        "rtl", tmp_path / "nothing", "-o", tmp_path / "v"
    )


# --- rtl -------------------------------------------------------------------------------------------------------------


def test_verilog_is_written_whole_or_refused(saved: Path, tmp_path: Path) -> None:
    assert "latency 2 cycles" in done("rtl", saved, "-o", tmp_path / "verilog")
    assert list((tmp_path / "verilog").glob("*.v"))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "verilog").iterdir()}
    assert "latency 2 cycles" in done("rtl", saved, "-o", tmp_path / "verilog"), "the same command goes on"
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "verilog").iterdir()} == before
    exists = "exists, and is not this design alone; Verilog is written whole. Remove it or choose another"
    assert exists in failed("rtl", saved, "-o", tmp_path / "verilog", "--pipeline", "1")
    (tmp_path / "verilog" / "notes.txt").write_text("")
    assert exists in failed("rtl", saved, "-o", tmp_path / "verilog")
    (tmp_path / "other").mkdir()
    assert exists in failed("rtl", saved, "-o", tmp_path / "other")


def test_what_is_not_synthesized_is_a_failure(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "bin" / "yosys"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n[ $1 = -V ] && echo 'Yosys 0.50'\nexit 0\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    find_yosys.cache_clear()
    try:
        said = failed("rtl", saved, "-o", tmp_path / "verilog", "--synth")
    finally:
        find_yosys.cache_clear()
    assert "error: not synthesized whole, and so no netlist was compared: fc_stage: not synthesized: Yosys" in said
    assert "(exit code 0) and left no netlist" in said


def test_an_interruption_is_told(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hawq_flow.to_rtl.synthesize.synthesize", interrupted)
    said = failed("rtl", saved, "-o", tmp_path / "verilog", "--synth", code=130)
    assert "error: interrupted; what was finished is kept, and the same command can be given again" in said
    done("rtl", saved, "-o", tmp_path / "verilog")
    monkeypatch.setattr("hawq_flow.synthesis.build_all", interrupted)
    monkeypatch.setattr("hawq_flow.cli.hardware._projects", list)
    assert "interrupted; what was finished is kept" in failed("hls", "build", tmp_path, code=130)


def test_dsps_without_a_threshold_are_refused_early() -> None:
    with pytest.raises(ValueError, match=r"\[rtl.synthesis\] dsp = true, but \[rtl.design\] has no dsp_threshold: "):
        RtlStage(synthesis=RtlSynthesisConfig(dsp=True))
    RtlStage(design=RtlConfig(dsp_threshold=11), synthesis=RtlSynthesisConfig(dsp=True))
    RtlStage(design=RtlConfig(dsp_threshold=11))


def test_verilog_is_synthesized_and_its_netlist_compared(saved: Path, tmp_path: Path) -> None:
    try:
        find_yosys()
    except MissingTool as error:
        pytest.skip(str(error))
    text = done("rtl", saved, "-o", tmp_path / "verilog", "--synth", "--rows", "200")
    assert "Yosys, not Vivado" in text
    assert "| netlist | 0 |" in text
    assert "Equal to the interpreter" in text


# --- reports ---------------------------------------------------------------------------------------------------------


def test_no_reports_is_a_failure_and_so_is_no_folder(tmp_path: Path) -> None:
    assert "no such file or folder" in failed("reports", tmp_path / "none")
    assert "0 reports could" in failed("reports", tmp_path)
    assert "Parquet is no text" in failed("reports", tmp_path, "--as", "parquet", code=2)


def test_a_tree_of_reports_is_one_table(tmp_path: Path) -> None:
    (tmp_path / "a" / "syn" / "report").mkdir(parents=True)
    (tmp_path / "a" / "syn" / "report" / "csynth.xml").write_text(report_texts.csynth_xml())
    text = done("reports", tmp_path)
    assert "## HLS estimates (csynth)" in text
    done("reports", tmp_path, "--as", "parquet", "-o", tmp_path / "t.parquet")
    frame = pd.read_parquet(tmp_path / "t.parquet")
    assert list(frame["stage"]) == ["csynth"]
    (tmp_path / "a" / "syn" / "report" / "csynth.xml").write_text(report_texts.csynth_xml()[:300])
    assert "csynth.xml" in failed("reports", tmp_path)


# --- vendor tools ----------------------------------------------------------------------------------------------------


def test_without_the_tool_a_build_says_which(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    said = failed("hls", "build", project.parents[2])
    assert "missing tool" in said
    assert "no HLS project there or below" in failed("hls", "build", project.parents[3] / "network")


def test_projects_are_built_packed_and_collected(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "bin", monkeypatch)
    text = done("hls", "build", project)
    assert "csynth (Vitis HLS 2022.2): ok" in text
    assert "csynth: lut" in text
    pack = tmp_path / "pack"
    assert "hls collect" in done("hls", "pack", project, "-o", pack)
    assert (
        done("hls", "build", tmp_path).count("csynth (Vitis HLS 2022.2): ok") == 2
    )  # told, and summed up: one project
    assert "no HLS project there or below (packs and results do not count)" in failed("hls", "build", pack)
    assert (pack / "build.sh").is_file()
    assert "csynth: not run" in failed("hls", "collect", pack, tmp_path / "hls")
    subprocess.run(["./build.sh"], cwd=pack, check=True, timeout=60)
    assert "csynth: lut 400" in done("hls", "collect", pack, tmp_path / "hls")


def test_a_simulation_has_a_latency_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "bin", monkeypatch)
    small = fake_vendor.project(tmp_path / "my.synthesis.d" / "project")
    text = done("hls", "build", small, "--step", "csynth", "--step", "cosim")
    assert "    cosim: latency 9 cycles\n" in text
    assert "    csynth: lut 400, ff 220, dsp 3, bram18 0, uram 0, latency 9 cycles\n" in text


def test_a_project_that_cannot_be_built_leaves_the_others_their_summary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "bin", monkeypatch)
    for name in ("a", "b"):
        fake_vendor.project(tmp_path / name / "project")
    (tmp_path / "a" / "project.synthesis" / "csynth").mkdir(parents=True)
    (tmp_path / "a" / "project.synthesis" / "csynth" / "mine").touch()  # nothing of ours to write over
    said = failed("hls", "build", tmp_path)
    assert f"{tmp_path}/b/project: csynth (Vitis HLS 2022.2): ok csynth: lut 400" in said
    assert f"error: 1 steps or projects did not end well. First: {tmp_path}/a/project: not built: " in said


def test_estimates_are_calibrated_on_collected_reports(
    project: Path, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "no csynth report of any project" in failed(
        "calibrate", project, "-o", tmp_path / "own.json", "--networks", saved
    )
    install(tmp_path / "bin", monkeypatch)
    done("hls", "build", project)
    assert "is not below" in failed("calibrate", project, "-o", tmp_path / "own.json", "--networks", tmp_path / "bin")
    text = done(
        "calibrate", project, "-o", tmp_path / "own.json", "--networks", tmp_path, "--figure", tmp_path / "f.png"
    )
    assert "| predicted | measured |" in text
    assert (tmp_path / "f.png").stat().st_size > 1000
    assert "own" in done("estimate", saved, "--stage", "csynth", "--coefficients", tmp_path / "own.json")


def test_folders_are_made_for_files_and_are_no_files(saved: Path, tmp_path: Path) -> None:
    done("rtl", saved, "-o", tmp_path / "new" / "v")
    (tmp_path / "csynth.xml").write_text(report_texts.csynth_xml())
    done("reports", tmp_path / "csynth.xml", "--as", "csv", "-o", tmp_path / "other" / "t.csv")
    assert (tmp_path / "other" / "t.csv").read_text().startswith("project,")
    assert "is a folder; name the file to write" in failed("reports", tmp_path, "-o", tmp_path)
    assert "is a folder; name the file to write" in failed("calibrate", tmp_path, "-o", tmp_path)
