"""Builds that end otherwise than by their tool: disks that are full, errors of one project, signals."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from fake_vendor import config, hearing, only, project, run, tool
from typer.testing import CliRunner

from hawq_flow import cli, store, tools
from hawq_flow.synthesis import Outcome, build, build_all, licences, reports, results


def test_results_that_no_disk_holds_are_disk_full_and_stay_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(results, "gather", full)
    step = only(run(tmp_path))
    assert step.outcome is Outcome.DISK_FULL
    assert step.cause.startswith("the disk is full: make room where the project lies")
    assert (step.folder / "network_prj/solution1/syn/report/network_csynth.xml").is_file()
    monkeypatch.undo()
    monkeypatch.setattr(store, "make", full)
    step = only(run(tmp_path))
    assert (step.outcome, step.folder.is_dir()) == (Outcome.DISK_FULL, True)


@pytest.mark.parametrize("body", ["exit 1", "finish", "echo no end; exit 0"])
def test_a_log_that_could_not_be_written_is_disk_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    monkeypatch.setattr(tools, "disk_full", lambda folder: True)
    assert only(run(tmp_path, body)).outcome is Outcome.DISK_FULL


def test_one_project_that_raises_stops_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool(tmp_path / "bin", "vitis_hls")
    folders = [project(tmp_path / name / "project") for name in ("a", "b")]
    gather, told = results.gather, []

    def broken(step: str, of: Any, *rest: Any) -> None:
        if of.folder == folders[0]:
            raise PermissionError("not yours")
        gather(step, of, *rest)

    monkeypatch.setattr(results, "gather", broken)
    with pytest.raises(PermissionError, match="not yours"):
        build_all(folders, config(tmp_path), told.append)
    assert reports(folders[1])
    assert f"{folders[0]}: not yours" in told
    assert list((tmp_path / "a").glob(".project.synthesis-*/csynth-*/network_prj"))  # what it had made is there


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_build_that_is_ended_ends_its_tool(tmp_path: Path, number: signal.Signals) -> None:
    tool(
        tmp_path / "bin",
        "vitis_hls",
        f"sleep 60 & echo $! >{tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid; wait",
    )
    where = project(tmp_path / "project")
    there = f"from hawq_flow.synthesis import *; build_all([{str(where)!r}], {config(tmp_path)!r})"
    process = subprocess.Popen(
        [sys.executable, "-c", there],
        cwd=Path(__file__).parents[1],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hearing,
    )
    end = time.monotonic() + 20
    while not (tmp_path / "pid").exists() and time.monotonic() < end:
        time.sleep(0.05)
    process.send_signal(number)
    _, said = process.communicate(timeout=15)
    assert process.returncode == -number
    assert ("KeyboardInterrupt" in said) == (number is signal.SIGINT)
    child = Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}/stat")
    while child.exists() and " Z " not in child.read_text() and time.monotonic() < end:
        time.sleep(0.05)
    assert not child.exists() or " Z " in child.read_text()
    with licences.place(1, tmp_path / "locks", lambda: None, threading.Event()):
        pass  # given back once the tool has ended
    tool(tmp_path / "bin", "vitis_hls")
    assert build(where, config(tmp_path)).ok


def test_the_help_names_the_section() -> None:
    assert "[synthesis]" in CliRunner().invoke(cli.app, ["hls", "build", "--help"]).output
