"""Builds that end otherwise than by their tool: disks that are full, errors of one project, signals."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import threading
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from fake_vendor import config, hearing, only, project, run, tool
from typer.testing import CliRunner

from hawq_flow import cli, store, tools
from hawq_flow.synthesis import Outcome, Step, SynthesisError, build, build_all, licences, pack, reports, results

building = import_module("hawq_flow.synthesis.build")  # the package's attribute of this name is the function


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
    first, second = build_all(folders, config(tmp_path), told.append)
    assert isinstance(first.error, PermissionError)
    assert (first.ok, first.steps, second.ok) == (False, (), True)
    with pytest.raises(SynthesisError, match=f"{folders[0]}: not yours"):
        first.require()
    assert reports(folders[1])
    assert f"{folders[0]}: not yours" in told
    assert list((tmp_path / "a").glob(".project.synthesis-*/csynth-*/network_prj"))  # what it had made is there


def test_what_nobody_foresaw_is_raised_when_all_are_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool(tmp_path / "bin", "vitis_hls")
    folders = [project(tmp_path / name / "project") for name in ("a", "b")]
    finish = building.finish

    def broken(step: Step, of: Any) -> Step:
        if of.folder == folders[0]:
            raise TypeError("a mistake of ours")
        return finish(step, of)

    monkeypatch.setattr(building, "finish", broken)
    with pytest.raises(TypeError, match="a mistake of ours"):
        build_all(folders, config(tmp_path))
    assert reports(folders[1])


REPORTS = "network_prj/solution1/syn/report"


@pytest.mark.parametrize(
    ("body", "outcome", "cause"),
    [
        (f"mkdir {REPORTS}/zz_csynth.rpt", Outcome.WRONG_REPORT, "zz_csynth.rpt: is no file that can be read"),
        (f"ln -s /nowhere {REPORTS}/zz_csynth.rpt", Outcome.WRONG_REPORT, "zz_csynth.rpt: is no file that can be read"),
        (f"mkfifo {REPORTS}/zz_csynth.rpt", Outcome.WRONG_REPORT, "zz_csynth.rpt: is no file that can be read"),
        (f"rm {REPORTS}/*; mkdir {REPORTS}/csynth.xml", Outcome.WRONG_REPORT, "csynth.xml: is no file that can be"),
        ("rm -r network_prj; touch network_prj", Outcome.NO_REPORT, "left no report"),
        ('rm -rf "$PWD"', Outcome.NO_REPORT, "left no report"),
        ('rm -rf "$PWD"; exit 1', Outcome.TOOL_ERROR, "exit code 1"),
        ("rm -r csynth.log .start hawq_flow.json tb_data", Outcome.OK, ""),
        ("rm csynth.log; mkdir csynth.log", Outcome.OK, ""),
    ],
)
def test_whatever_a_tool_leaves_is_an_outcome(tmp_path: Path, body: str, outcome: Outcome, cause: str) -> None:
    told: list[str] = []
    step = only(run(tmp_path, f"work\n{body}\nfinish", told=told))
    assert (step.outcome, cause in step.cause) == (outcome, True), step
    assert str(step) in "\n".join(told)  # and is told
    said = (step.folder / "csynth.log").read_text()  # as is the log, if the tool removed it too
    assert "Vitis HLS" in said
    if outcome is Outcome.OK:
        assert "hawq_flow: csynth done" in said
        assert (step.folder / "hawq_flow.json").read_bytes() == (tmp_path / "project/hawq_flow.json").read_bytes()


def test_a_simulation_may_leave_folders_and_broken_links(tmp_path: Path) -> None:
    body = "work; mkdir -p a b; ln -s /nowhere a/rtl_cosim_results.log; mkdir b/rtl_cosim_results.log; finish"
    assert run(tmp_path, body, steps=("csynth", "cosim")).ok


@pytest.mark.parametrize("body", ["lut=-5", "part=xcu250-figd2104-2L-e", 'work; touch -d "2001-01-01" $REPORT; finish'])
def test_a_wrong_report_is_there_to_be_looked_at(tmp_path: Path, body: str) -> None:
    step = only(run(tmp_path, body.replace("$REPORT", f"{REPORTS}/network_csynth.xml")))
    assert step.outcome is Outcome.WRONG_REPORT
    named = re.search(r"[^ ,]*network_csynth\.xml", step.cause)
    assert named is not None
    assert Path(named[0]).is_absolute(), step.cause
    assert Path(named[0]).is_file()
    assert Path(named[0]).is_relative_to(next(tmp_path.glob(".project.synthesis-*")))


def test_a_path_with_blanks_is_refused_before_anything_is_run(tmp_path: Path) -> None:
    tool(tmp_path / "bin", "vitis_hls", f"touch {tmp_path}/ran")
    good, bad = project(tmp_path / "good"), project(tmp_path / "my runs" / "project")
    text = f"{bad}: the vendor's tools cannot work in '{bad.parent}': move it to a path without blanks, or pack"
    with pytest.raises(SynthesisError, match=re.escape(text)):
        build_all([good, bad], config(tmp_path))
    with pytest.raises(SynthesisError, match=re.escape(text)):
        build(bad, config(tmp_path))
    assert not (tmp_path / "ran").exists()
    assert reports(bad) == ()
    pack([bad], tmp_path / "pack")


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


def test_a_tool_that_cannot_be_started_says_why(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/vitis_hls").write_bytes(b"\x7fELF nonsense")
    (tmp_path / "bin/vitis_hls").chmod(0o755)
    step = only(build(project(tmp_path / "project"), config(tmp_path)))
    assert step.outcome is Outcome.TOOL_ERROR
    assert re.fullmatch(r"cannot be started: .*Exec format error.*; name another program in \[synthesis\]", step.cause)


def test_a_build_that_is_ended_waits_for_no_version(tmp_path: Path) -> None:
    """A tool that hangs when asked for its version."""
    path = tool(tmp_path / "bin", "vitis_hls")
    path.write_text(f"#!/bin/sh\necho asked >{tmp_path}/asked\nsleep 60\n")
    stop = threading.Event()

    def ask() -> None:
        while not (tmp_path / "asked").exists():
            time.sleep(0.02)
        stop.set()

    threading.Thread(target=ask, daemon=True).start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        build(project(tmp_path / "project"), config(tmp_path), stop=stop)
    assert time.monotonic() - started < 30


def test_another_users_lock_is_read_and_not_touched(tmp_path: Path) -> None:
    lock = tmp_path / "place-0.lock"
    lock.touch()
    os.utime(lock, (0, 0))
    lock.chmod(0o444)
    with licences.place(1, tmp_path, lambda: None, threading.Event()):
        assert lock.stat().st_mtime == 0
    lock.unlink()
    with licences.place(1, tmp_path, lambda: None, threading.Event()):
        assert lock.exists()


def test_the_help_names_the_section() -> None:
    assert "[synthesis]" in CliRunner().invoke(cli.app, ["hls", "build", "--help"]).output
