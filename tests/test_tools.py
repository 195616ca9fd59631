"""External programs: every way to end, and nothing left behind."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from hawq_flow import tools
from hawq_flow.tools import Outcome


def script(folder: Path, body: str) -> Path:
    path = folder / "tool.sh"
    path.write_text("#!/bin/sh\n" + body)
    path.chmod(0o755)
    return path


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def gone(pid: int) -> bool:
    end = time.monotonic() + 5
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.02)
    return not alive(pid)


def test_a_tool_that_succeeds(tmp_path: Path) -> None:
    done = tools.run([script(tmp_path, "echo out; echo err >&2; pwd")], folder=tmp_path, timeout_s=10)
    assert done.ok
    assert (done.outcome, done.exit_code) == (Outcome.OK, 0)
    assert done.tail.splitlines() == ["out", "err", str(tmp_path)]
    assert done.require("test") is done


def test_stdin_stdout_and_environment(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("hello")
    done = tools.run(
        [script(tmp_path, "cat; echo $EXTRA; echo noise >&2")],
        folder=tmp_path,
        timeout_s=10,
        stdin=tmp_path / "in",
        stdout=tmp_path / "out",
        environment={"EXTRA": "value"},
    )
    assert (tmp_path / "out").read_text() == "hellovalue\n"
    assert done.tail == "noise"


def test_without_stdin_a_tool_reads_nothing(tmp_path: Path) -> None:
    assert tools.run(["cat"], folder=tmp_path, timeout_s=10).ok


def test_exit_1_is_failed_and_says_so(tmp_path: Path) -> None:
    done = tools.run([script(tmp_path, "echo the reason; exit 1")], folder=tmp_path, timeout_s=10)
    assert (done.outcome, done.exit_code) == (Outcome.FAILED, 1)
    with pytest.raises(tools.ToolError, match=r"compile it: .*tool\.sh: failed \(exit code 1\).*\n?the reason"):
        done.require("compile it")


@pytest.mark.parametrize("name", ["no-such-program-here", "./not-here"])
def test_a_missing_program(tmp_path: Path, name: str) -> None:
    done = tools.run([name], folder=tmp_path, timeout_s=10)
    assert (done.outcome, done.exit_code) == (Outcome.MISSING, None)
    with pytest.raises(tools.ToolError, match=r"missing .*was not found on PATH: install it"):
        done.require("synthesize")


def test_a_hang_that_ignores_sigterm_is_killed_with_its_children(tmp_path: Path) -> None:
    body = "trap '' TERM\n(trap '' TERM; echo $$ >/dev/null; sleep 60) &\necho $! > child\necho started\nsleep 60\n"
    started = time.monotonic()
    done = tools.run([script(tmp_path, body)], folder=tmp_path, timeout_s=0.5)
    assert done.outcome is Outcome.TIMED_OUT
    assert done.exit_code is None
    assert time.monotonic() - started < 20
    assert "started" in done.tail
    assert gone(int((tmp_path / "child").read_text()))
    with pytest.raises(tools.ToolError, match=r"timed_out .*raise the time limit"):
        done.require("synthesize")


def test_a_child_left_behind_by_a_tool_that_succeeded_is_killed(tmp_path: Path) -> None:
    done = tools.run([script(tmp_path, "sleep 60 &\necho $! > child\nexit 0\n")], folder=tmp_path, timeout_s=10)
    assert done.ok
    assert gone(int((tmp_path / "child").read_text()))


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        ("echo 'cc1plus: out of memory allocating 65536 bytes'; exit 1", Outcome.OUT_OF_MEMORY),
        ("echo 'terminate called after throwing std::bad_alloc'; exit 134", Outcome.OUT_OF_MEMORY),
        ("kill -KILL $$", Outcome.OUT_OF_MEMORY),
        ("echo 'ERROR: [Common 17-345] A valid license was not found for feature HLS'; exit 1", Outcome.LICENCE),
        ("echo 'FLEXnet Licensing error:-96,491'; exit 1", Outcome.LICENCE),
        ("echo 'licensed under the Apache License'; echo 'syntax error'; exit 1", Outcome.FAILED),
        ("echo out of memory; exit 0", Outcome.OK),
    ],
)
def test_the_reason_is_read_from_the_log(tmp_path: Path, body: str, outcome: Outcome) -> None:
    assert tools.run([script(tmp_path, body)], folder=tmp_path, timeout_s=10).outcome is outcome


def test_the_tail_is_short_and_the_log_is_whole(tmp_path: Path) -> None:
    done = tools.run(["seq", "1000"], folder=tmp_path, timeout_s=10)
    assert len(done.tail.splitlines()) == tools.TAIL_LINES
    assert len(done.log.read_text().splitlines()) == 1000


def test_a_fresh_folder_is_new_every_time(tmp_path: Path) -> None:
    first, second = (tools.fresh_folder(tmp_path / "deep" / "er", "run") for _ in range(2))
    assert first != second
    assert first.is_dir()
    assert not os.listdir(second)


def test_wrong_calls(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="give a program and a limit above 0"):
        tools.run(["true"], folder=tmp_path, timeout_s=0)
    with pytest.raises(NotADirectoryError, match="create it first"):
        tools.run(["true"], folder=tmp_path / "absent", timeout_s=1)


def test_a_file_the_system_cannot_start_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "tool").write_bytes(b"\x7fELF nonsense")
    (tmp_path / "tool").chmod(0o755)
    done = tools.run([tmp_path / "tool"], folder=tmp_path, timeout_s=10)
    assert done.outcome is Outcome.FAILED
    with pytest.raises(tools.ToolError, match=r"cannot be started: .*Exec format error"):
        done.require("try it")
