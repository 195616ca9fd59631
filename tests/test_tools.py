"""External programs: every way to end, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from fake_vendor import hearing

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
    with pytest.raises(
        tools.ToolError, match=r"timed_out \(it ran longer than its limit of 0\.5 s; raise the time limit\)"
    ):
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


def test_a_folder_is_whole_or_absent_with_all_that_was_written_beside_it(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "out"
    with tools.whole_folder(target, "a thing") as work:
        assert not target.exists()
        (work / "file").write_text("in it")
        Path(f"{work}.tar.gz").write_text("a program's own idea")
    assert [path.name for path in target.parent.iterdir()] == ["out"]
    assert (target / "file").read_text() == "in it"
    usual = tmp_path / "usual"
    usual.mkdir()
    assert target.stat().st_mode == usual.stat().st_mode
    with pytest.raises(FileExistsError, match=r"out: exists; a thing is written whole, .* Remove it or choose another"):
        tools.whole_folder(target, "a thing").__enter__()

    def interrupted() -> None:
        with tools.whole_folder(tmp_path / "other", "a thing") as work:
            Path(f"{work}.tar.gz").write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep", "usual"]


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
    with pytest.raises(
        tools.ToolError, match=r"tool: failed \(cannot be started: .*Exec format error.*'\); log tool\.log$"
    ):
        done.require("try it")


# --- memory, lines, what leaves the group -----------------------------------------------------------------------------


def test_a_tool_above_its_memory_is_ended_with_the_limit_said(tmp_path: Path) -> None:
    body = "x=0123456789abcdef; while :; do x=$x$x; done"
    done = tools.run([script(tmp_path, body)], folder=tmp_path, timeout_s=20, memory_bytes=100 << 20)
    assert (done.outcome, done.exit_code) == (Outcome.OUT_OF_MEMORY, None)
    assert done.seconds < 10
    with pytest.raises(tools.ToolError, match=r"out_of_memory \(held 0\.\d+ GiB, the limit is 0\.0977 GiB; it ran out"):
        done.require("synthesize")


def test_the_memory_of_children_counts_together(tmp_path: Path) -> None:
    """Three processes of some 40 MB each, none above the limit by itself."""
    child = "x=$(head -c 40000000 /dev/zero | tr '\\0' x); sleep 20"
    body = f'for i in 1 2 3; do sh -c "{child}" & done; wait'.replace("$(", "\\$(")
    done = tools.run([script(tmp_path, body)], folder=tmp_path, timeout_s=20, memory_bytes=100 << 20)
    assert done.outcome is Outcome.OUT_OF_MEMORY
    one = f'sh -c "{child.replace("sleep 20", "true")}"'.replace("$(", "\\$(")
    assert tools.run([script(tmp_path, one)], folder=tmp_path, timeout_s=20, memory_bytes=100 << 20).ok


def test_pages_that_forks_share_count_once(tmp_path: Path) -> None:
    """Eight forks of one process of some 60 MB: 60 MB, though each one's resident set has them."""
    body = "x=$(head -c 60000000 /dev/zero | tr '\\0' x)\nfor i in 1 2 3 4 5 6 7 8; do (sleep 0.5; true) & done\nwait"
    assert tools.run([script(tmp_path, body)], folder=tmp_path, timeout_s=20, memory_bytes=300 << 20).ok


def test_lines_are_told_while_it_runs(tmp_path: Path) -> None:
    told: list[tuple[str, float]] = []
    body = "echo first; sleep 0.5; echo second; printf 'no end\\r'"
    started = time.monotonic()
    done = tools.run(
        [script(tmp_path, body)],
        folder=tmp_path,
        timeout_s=10,
        progress=lambda line: told.append((line, time.monotonic() - started)),
    )
    assert done.ok
    assert [line for line, _ in told] == ["first", "second", "no end"]
    assert told[0][1] < told[1][1] - 0.2


def test_a_broken_observer_ends_the_run(tmp_path: Path) -> None:
    def broken(line: str) -> None:
        raise RuntimeError(line)

    with pytest.raises(RuntimeError, match="now"):
        tools.run(
            [script(tmp_path, "echo $$ > pid; echo now; sleep 60")], folder=tmp_path, timeout_s=30, progress=broken
        )
    assert gone(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize("ending", ["sleep 60", "exit 0"])
def test_a_daemon_in_a_session_of_its_own_is_killed(tmp_path: Path, ending: str) -> None:
    body = f"setsid sh -c 'trap \"\" TERM HUP; echo $$ > daemon; sleep 60' &\nsleep 0.3\n{ending}"
    tools.run([script(tmp_path, body)], folder=tmp_path, timeout_s=1)
    assert gone(int((tmp_path / "daemon").read_text()))


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        ("echo '/opt/loader: line 312:  4242 Killed     \"$PROG\"'; exit 1", Outcome.OUT_OF_MEMORY),
        ("echo Killed; exit 2", Outcome.OUT_OF_MEMORY),
        ("echo 'Killed time: 3 s, no: this is a report'; echo 'the job was Killed'; exit 0", Outcome.OK),
        ("echo 'the dragon was not Killed'; exit 1", Outcome.FAILED),
        ("echo 'cp: error writing: No space left on device'; exit 1", Outcome.DISK_FULL),
        ("ulimit -f 1; exec yes > big", Outcome.DISK_FULL),
    ],
)
def test_more_reasons(tmp_path: Path, body: str, outcome: Outcome) -> None:
    done = tools.run([script(tmp_path, body)], folder=tmp_path, timeout_s=10)
    assert done.outcome is outcome
    if outcome is Outcome.DISK_FULL:
        with pytest.raises(tools.ToolError, match="make room on the disk"):
            done.require("write")


def test_another_thread_ends_a_run(tmp_path: Path) -> None:
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()
    with pytest.raises(KeyboardInterrupt):
        tools.run([script(tmp_path, "echo $$ > pid; sleep 60")], folder=tmp_path, timeout_s=30, stop=stop)
    assert gone(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_killed_caller_takes_its_run_with_it(tmp_path: Path, number: signal.Signals) -> None:
    """Its children and a daemon that made a session of its own; and nothing that merely tells of the run's mark."""
    body = """sleep 60 & echo $! > child
setsid sh -c 'trap "" TERM HUP; sleep 60 & echo $! > second; echo $$ > daemon; wait' &
while [ ! -s daemon ]; do sleep 0.05; done
echo "HAWQ_FLOW_RUN=$HAWQ_FLOW_RUN" > new; mv new mark; wait"""
    path = script(tmp_path, body)
    code = f"""from hawq_flow import tools
tools.run([{str(path)!r}], folder={str(tmp_path)!r}, timeout_s=60)"""
    caller = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[1], preexec_fn=hearing)
    end = time.monotonic() + 20
    while not (tmp_path / "mark").exists() and time.monotonic() < end:
        time.sleep(0.02)
    mark = (tmp_path / "mark").read_text().strip()
    bystanders = [
        subprocess.Popen(["sleep", "60"], env={"OTHER": mark}),  # as a variable's value
        subprocess.Popen(["sleep", "60"], env={"HAWQ_FLOW_RUN": mark.partition("=")[2] + "0"}),  # a longer mark
        subprocess.Popen(["sleep", "60"], env={"OTHER": f"a\n{mark}\nb"}),  # on a line of its own
    ]
    try:
        caller.send_signal(number)
        assert caller.wait(5) == -number
        for name in ("child", "daemon", "second"):
            assert gone(int((tmp_path / name).read_text())), name
        assert [bystander.poll() for bystander in bystanders] == [None] * 3
    finally:
        for bystander in bystanders:
            bystander.kill()
            bystander.wait()


def test_a_caller_that_is_killed_as_its_run_begins_takes_it_with_it(tmp_path: Path) -> None:
    path = script(tmp_path, "echo $$ > new; mv new pid; sleep 60")
    code = f"""import os, signal, subprocess, time
from hawq_flow import tools
popen = subprocess.Popen
def killed(arguments, **options):
    process = popen(arguments, **options)
    if arguments[0] == {str(path)!r}:
        while not os.path.exists({str(tmp_path / "pid")!r}):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    return process
subprocess.Popen = killed
tools.run([{str(path)!r}], folder={str(tmp_path)!r}, timeout_s=60)"""
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[1], check=False, timeout=30)
    assert done.returncode == -signal.SIGKILL
    assert gone(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize(
    "trouble",
    [
        'rm "$0.log"',
        'rm "$0.log"; mkdir "$0.log"; touch "$0.log/file"',
        'rm "$0.log"; mkfifo "$0.log"',
        'rm "$0.log"; ln -s /nowhere "$0.log"',
        'mv "$0.log" "$0.log.1"',
        'rm -rf "$PWD"',
    ],
)
def test_a_log_that_the_tool_removes_is_written_again(tmp_path: Path, trouble: str) -> None:
    told: list[str] = []
    folder = tmp_path / "work"
    folder.mkdir()
    path = script(folder, f"echo before; {trouble}; echo after; exit 3")
    done = tools.run([path], folder=folder, timeout_s=10, log=Path(f"{path}.log"), progress=told.append)
    assert (done.outcome, done.exit_code, done.tail) == (Outcome.FAILED, 3, "before\nafter")
    assert told == ["before", "after"]
    assert done.log.read_text() == "before\nafter\n"


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    assert not tools.disk_full(tmp_path)
    code = "import resource, sys; from pathlib import Path; from hawq_flow import tools; "
    code += "resource.setrlimit(resource.RLIMIT_FSIZE, (70000, 70000)); print(tools.disk_full(Path(sys.argv[1])))"
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "True\n"


def test_a_memory_limit_is_above_0(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a limit of 1 s and 0 bytes; give a program and a limit above 0"):
        tools.run(["true"], folder=tmp_path, timeout_s=1, memory_bytes=0)
