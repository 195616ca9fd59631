"""Running external programs: a fresh folder, limits of time and memory, nothing left behind, and a typed outcome.

A compiler or a vendor tool can hang, fork, ignore SIGTERM, run out of memory, miss its licence, or leave behind the
report of an earlier run. So every run here

* starts in a folder that did not exist before (:func:`fresh_folder`) or that the caller names;
* is the leader of its own session, and carries a mark in its environment that its children inherit. The session and
  every process with the mark, a daemon of a session of its own too, are killed, first gently and then not, when the
  time is up or the memory is, and also when the leader has ended and left children behind. (One that makes a session
  of its own *and* empties its environment is not found.);
* ends with this process, however that ends: a guard, a shell of its own session, waits for the end of a pipe that this
  process holds open, and then kills the run's group and every process with the mark. SIGTERM, SIGHUP and SIGKILL so
  need no handlers;
* writes stdout and stderr to one log file, whose lines are told as they come; the outcome carries its tail. A log that
  the tool removed is written again;
* ends as exactly one :class:`Outcome`. Nothing is raised for a tool that fails; :meth:`Run.require` is there for it.

The memory limit is on what all of a run's processes hold together: the sum of their resident sets, and where that is
above the limit, the sum of their proportional sets, in which a page that n processes share counts 1/n in each.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

GRACE_S = 2.0
"""Seconds between SIGTERM and SIGKILL."""
TAIL_LINES = 40
POLL_S, MAX_POLL_S = 0.05, 1.0
"""Seconds between two looks at a run's memory and log: at its start, and after a while."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers of a disk, a quota or a file size that is used up."""
_MARK = "HAWQ_FLOW_RUN"
_PROC = os.path.isdir("/proc/self")
"""Without it (macOS) the group alone is ended, and there is no memory limit."""
_KILLED = re.compile(r"^(?:\S+: (?:line )?\d+:\s+(?:\d+\s+)?)?Killed(?:\s*$|\s{2,}\S)", re.MULTILINE)
_MEMORY = re.compile(
    r"out of memory|cannot allocate memory|std::bad_alloc|virtual memory exhausted|memory exhausted|MemoryError",
    re.IGNORECASE,
)
_LICENCE = re.compile(
    r"licen[cs]e (?:checkout|check-out|file|server|key|feature|error|expired|not found|could not|was not)"
    r"|(?:no|not|valid|checkout|invalid|missing|expired|without a) licen[cs]e|FLEXnet|LM_LICENSE_FILE",
    re.IGNORECASE,
)
_DISK = re.compile(r"no space left on device|disk quota exceeded|file too large|\bENOSPC\b|disk (?:is )?full", re.I)


# $1 is the run's mark. The first line read is its group, and none where the process that holds the pipe's other end has
# ended before it could tell; whatever ends that process ends the second read.
# marked: a signal for the processes that carry the mark. The first grep is quick over all of /proc (nothing without
# one), the second exact: a variable that is the mark, not one that has it in its value. A zombie has no environment.
_GUARD = f"""trap '' HUP INT TERM
read -r group
read -r _
mark=$1
marked() {{
    found=1
    for file in $(grep -lsF -e "$mark" /proc/[0-9]*/environ); do
        pid=${{file#/proc/}}
        tr '\\n\\000' '\\001\\n' <"$file" | grep -qxF -e "$mark" && kill -s "$1" "${{pid%/environ}}" && found=0
    done
    return $found
}}
[ -z "$group" ] || kill -s TERM -- "-$group" || group=
marked TERM
sleep {GRACE_S:g}
[ -z "$group" ] || kill -s KILL -- "-$group"
for round in 1 2 3 4 5 6 7 8 9 10; do marked KILL || exit; done  # one may have made another before it was seen
"""


class Outcome(enum.Enum):
    """How an external program ended."""

    OK = "ok"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    OUT_OF_MEMORY = "out_of_memory"
    DISK_FULL = "disk_full"
    LICENCE = "licence"
    MISSING = "missing"


class ToolError(RuntimeError):
    """An external program that had to succeed did not; the text has the command, the outcome and the log's tail."""


@dataclass(frozen=True)
class Run:
    """What happened.

    Attributes
    ----------
    command:
        The program and its arguments.
    outcome, exit_code:
        The exit code is None when the program never ran or was killed for time or memory.
    seconds:
        Wall clock.
    log:
        File with stdout and stderr together; ``tail`` are its last lines.
    cause:
        What is known beyond the outcome, in words ("held 9.1 GiB, the limit is 8 GiB"), or ''.
    """

    command: tuple[str, ...]
    outcome: Outcome
    exit_code: int | None
    seconds: float
    log: Path
    tail: str
    cause: str = ""

    @property
    def ok(self) -> bool:
        """Whether the program ended with exit code 0."""
        return self.outcome is Outcome.OK

    def require(self, purpose: str) -> Run:
        """This run if it is ok, else ``ToolError`` saying what it was for, how it ended and what it said."""
        if self.ok:
            return self
        name = self.command[0]
        hint = {
            Outcome.MISSING: f"{name!r} was not found on PATH: install it",
            Outcome.TIMED_OUT: "raise the time limit",
            Outcome.OUT_OF_MEMORY: "it ran out of memory: give it more, or make the design smaller",
            Outcome.DISK_FULL: "it could not write: make room on the disk, or raise the quota",
            Outcome.LICENCE: "it found no licence: check the licence server and its environment variables",
        }.get(self.outcome, "" if self.exit_code is None else f"exit code {self.exit_code}")
        hint = "; ".join(text for text in (self.cause, hint) if text)
        said = f"; its last lines:\n{self.tail}" if self.tail else ""
        raise ToolError(
            f"{purpose}: {' '.join(self.command)}: {self.outcome.value} ({hint}); log {self.log.name}{said}"
        )


def fresh_folder(parent: Path | str, prefix: str) -> Path:
    """A new, empty folder ``parent/prefix-XXXXXXXX``; ``parent`` is created."""
    parent = Path(parent)
    parent.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=f"{prefix}-", dir=parent))


@contextlib.contextmanager
def whole_folder(target: Path | str, what: str) -> Iterator[Path]:
    """An empty folder to fill, which becomes ``target`` in one step at the end: it is there complete, or not at all.

    It lies in a hidden folder beside ``target``, which is removed with all that a program wrote beside its output.

    Raises
    ------
    FileExistsError
        If ``target`` exists; ``what`` names what it would be: "a project".
    """
    target = Path(target)
    if target.exists():
        raise FileExistsError(
            f"{target}: exists; {what} is written whole, into a new folder. Remove it or choose another"
        )
    beside = fresh_folder(target.parent, f".{target.name}")
    try:
        work = beside / target.name
        work.mkdir()
        yield work
        os.rename(work, target)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def run(
    command: Sequence[str | Path],
    *,
    folder: Path | str,
    timeout_s: float,
    log: Path | str | None = None,
    stdin: Path | str | None = None,
    stdout: Path | str | None = None,
    environment: Mapping[str, str] | None = None,
    memory_bytes: int | None = None,
    progress: Callable[[str], None] | None = None,
    stop: threading.Event | None = None,
    hold: Sequence[int] = (),
) -> Run:
    """Run a program to its end, or to the end of its time or memory.

    Parameters
    ----------
    command:
        Program and arguments; no shell. The program is looked up on PATH unless it contains a slash.
    folder:
        Working directory; it must exist (see :func:`fresh_folder`).
    timeout_s:
        Wall-clock limit in seconds, above 0.
    log:
        Where stdout and stderr go; default ``folder/NAME.log``.
    stdin, stdout:
        Files to read from (default: nothing) and to write standard output to (default: the log).
    environment:
        Variables added to the caller's environment.
    memory_bytes:
        Limit of what the program and all its children hold together, in bytes; looked at every second at least.
    progress:
        Called with each line of the log (no line end) soon after it was written, from the calling thread. What it
        raises ends the run and passes on.
    stop:
        Set by another thread, it ends the run.
    hold:
        File descriptors (of locks) that stay open until the run has ended, even if this process is killed before.

    Raises
    ------
    KeyboardInterrupt
        If ``stop`` was set.
    ValueError
        If the command is empty or a limit is not positive.
    NotADirectoryError
        If ``folder`` does not exist.
    """
    arguments = tuple(str(part) for part in command)
    if not arguments or timeout_s <= 0 or (memory_bytes is not None and memory_bytes <= 0):
        memory = "" if memory_bytes is None else f" and {memory_bytes} bytes"
        raise ValueError(
            f"tools.run: command {arguments} with a limit of {timeout_s} s{memory}; give a program and a limit above 0"
        )
    if memory_bytes is not None and not _PROC:
        raise ValueError("tools.run: a memory limit needs /proc (Linux); leave it out here")
    where = Path(folder)
    if not where.is_dir():
        raise NotADirectoryError(f"tools.run: folder {where} does not exist; create it first (tools.fresh_folder)")
    log_path = Path(log) if log is not None else where / f"{Path(arguments[0]).name}.log"
    started = time.monotonic()
    # A program given by a relative path is relative to the folder it runs in.
    program = str(where / arguments[0]) if "/" in arguments[0] else arguments[0]
    if shutil.which(program, path=(environment or {}).get("PATH")) is None:
        log_path.write_text("")
        return Run(arguments, Outcome.MISSING, None, 0.0, log_path, "")
    with contextlib.ExitStack() as stack:
        log_file = stack.enter_context(log_path.open("wb"))
        said = stack.enter_context(log_path.open("rb"))
        source = stack.enter_context(Path(stdin).open("rb")) if stdin is not None else subprocess.DEVNULL
        sink = stack.enter_context(Path(stdout).open("wb")) if stdout is not None else log_file
        mark = uuid.uuid4().hex
        guard = stack.enter_context(_guard(mark, hold))  # before the program, and until it has been ended here
        try:
            process = subprocess.Popen(
                arguments,
                cwd=where,
                stdin=source,
                stdout=sink,
                stderr=log_file,
                env={**os.environ, **(environment or {}), _MARK: mark},
                start_new_session=True,
            )
        except OSError as error:  # found, but not something the system can start
            return Run(arguments, Outcome.FAILED, None, 0.0, log_path, "", f"cannot be started: {error}")
        try:
            os.write(guard, f"{process.pid}\n".encode())
            code, ended, cause = _watch(process, mark, timeout_s, memory_bytes, said, progress, stop)
        finally:
            # Also on success and on KeyboardInterrupt: no child of the tool outlives the call.
            _end_group(process, mark, gently=process.poll() is None)
            _restore(log_path, said)
        seconds = time.monotonic() - started
        tail = "\n".join(_all_of(said).decode(errors="replace").splitlines()[-TAIL_LINES:])
    return Run(arguments, ended or outcome(code, tail), code, seconds, log_path, tail, cause)


@contextlib.contextmanager
def _guard(mark: str, hold: Sequence[int]) -> Iterator[int]:
    """End a process group, and all that carry the mark, if this process ends inside the context, however it does.

    The group is to be written, a line, to the file descriptor that is given.
    """
    reader, writer = os.pipe()  # no child inherits them but the guard, as its standard input
    try:
        guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "guard", f"{_MARK}={mark}"],
            stdin=reader,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={"PATH": os.defpath},
            start_new_session=True,
            pass_fds=hold,
        )
        try:
            yield writer
        finally:
            guard.kill()
            guard.wait()
    finally:
        os.close(reader)
        os.close(writer)


def _watch(
    process: subprocess.Popen[bytes],
    mark: str,
    timeout_s: float,
    memory_bytes: int | None,
    log: BinaryIO,
    progress: Callable[[str], None] | None,
    stop: threading.Event | None,
) -> tuple[int | None, Outcome | None, str]:
    """Wait for the end: the exit code, the outcome where the code does not tell it, and the cause."""
    started = time.monotonic()
    lines = _Lines(log)
    watched = memory_bytes is not None or progress is not None or stop is not None
    while True:
        passed = time.monotonic() - started
        left = timeout_s - passed
        look = min(POLL_S + passed / 60, MAX_POLL_S) if watched else left
        try:
            code: int | None = process.wait(timeout=max(0.0, min(left, look)))
        except subprocess.TimeoutExpired:
            code = None
        if progress is not None:
            for line in lines.read(finished=code is not None):
                progress(line)
        if code is not None:
            return code, None, ""
        if stop is not None and stop.is_set():
            raise KeyboardInterrupt
        if memory_bytes is not None:
            held = _held(process.pid, mark, memory_bytes)
            if held > memory_bytes:
                cause = f"held {held / 2**30:.3g} GiB, the limit is {memory_bytes / 2**30:.3g} GiB"
                return None, Outcome.OUT_OF_MEMORY, cause
        if left <= 0:
            return None, Outcome.TIMED_OUT, f"it ran longer than its limit of {timeout_s:g} s"


class _Lines:
    """The lines of a file that is still being written, each once."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._rest = file, b""

    def read(self, *, finished: bool) -> list[str]:
        """Lines that are new since the last call; with ``finished`` also one without a line end."""
        new = self._file.read()
        *whole, self._rest = (self._rest + new).split(b"\n")
        if finished and self._rest:
            whole.append(self._rest)
            self._rest = b""
        return [line.decode(errors="replace").rstrip("\r") for line in whole]


def _all_of(file: BinaryIO) -> bytes:
    file.seek(0)
    return file.read()


def _restore(path: Path, said: BinaryIO) -> None:
    """Write a log again where the program removed it, or put something else in its place."""
    log = os.fstat(said.fileno())
    with contextlib.suppress(OSError):
        there = path.lstat()
        if (there.st_dev, there.st_ino) == (log.st_dev, log.st_ino):
            return
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_all_of(said))


def _members(group: int, mark: str) -> Iterator[int]:
    """The processes of a run: those of its session, and those that inherited its mark, whatever session they made."""
    wanted = f"{_MARK}={mark}".encode()
    for entry in os.listdir("/proc") if _PROC else ():
        if entry.isdigit() and int(entry) != os.getpid():
            with contextlib.suppress(OSError):  # it has ended, or is another user's
                # After the command's name, which may hold anything in parentheses: state, ppid, pgrp, session.
                fields = Path(f"/proc/{entry}/stat").read_text(errors="replace").rpartition(")")[2].split()
                if fields[0] == "Z":
                    continue
                if int(fields[3]) == group or wanted in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                    yield int(entry)


def _held(group: int, mark: str, limit: int) -> int:
    """Bytes that a run's processes hold together; exact about shared pages only where it matters, above the limit."""
    members = list(_members(group, mark))
    resident = sum(_kib(f"/proc/{pid}/status", "VmRSS:") for pid in members)
    if resident * 1024 > limit:
        resident = sum(_kib(f"/proc/{pid}/smaps_rollup", "Pss:") for pid in members)
    return resident * 1024


def _kib(path: str, key: str) -> int:
    with contextlib.suppress(OSError):  # it has ended
        for line in Path(path).read_text().splitlines():
            if line.startswith(key):
                return int(line.split()[1])
    return 0


def _end_group(process: subprocess.Popen[bytes], mark: str, gently: bool) -> None:
    """End every process of a run: SIGTERM and a grace period when the leader still runs, then SIGKILL."""
    try:
        if gently:
            _signal_group(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):  # SIGKILL follows either way
                process.wait(timeout=GRACE_S)
    finally:
        _kill(process, mark)  # also where another Ctrl-C ends the waiting


def _kill(process: subprocess.Popen[bytes], mark: str) -> None:
    _signal_group(process.pid, signal.SIGKILL)
    process.wait()
    for _ in range(100):  # one that left the group may have made another before it was seen
        left = list(_members(process.pid, mark))
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not left:
            return
        time.sleep(0.01)


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # the group has ended by itself, which is what is wanted
        os.killpg(group, number)


def outcome(code: int | None, tail: str) -> Outcome:
    """How a program ended that gave this exit code (None: it was stopped for time) and these last lines."""
    if code is None:
        return Outcome.TIMED_OUT
    if code == 0:
        return Outcome.OK
    if killed(code, tail) or _MEMORY.search(tail):
        return Outcome.OUT_OF_MEMORY
    if file_too_large(code) or _DISK.search(tail):
        return Outcome.DISK_FULL
    if _LICENCE.search(tail):
        return Outcome.LICENCE
    return Outcome.FAILED


def killed(code: int | None, text: str) -> bool:
    """Whether the system's memory killer ended a program that gave this exit code, or one of its children.

    Nobody else sends SIGKILL before the time is up. Of a child, a shell says "Killed" in its log, in a form of its own.
    """
    return code in (-signal.SIGKILL, 128 + signal.SIGKILL) or _KILLED.search(text) is not None


def file_too_large(code: int | None) -> bool:
    """Whether a program, or one that a shell waited for, was ended by the limit of file size."""
    return code in (-signal.SIGXFSZ, 128 + signal.SIGXFSZ)


def disk_full(folder: Path) -> bool:
    """Whether nothing more can be written into a folder: a log that could not be is no witness of the reason."""
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            # A short write is no error: the next one is.
            return sum(file.write(bytes(1 << 16)) for _ in range(2)) < 1 << 17
    except OSError as error:
        return error.errno in FULL
