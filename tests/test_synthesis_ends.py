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
