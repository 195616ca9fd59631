"""Running external programs: a fresh folder, a process group of its own, a time limit, and a typed outcome.

A compiler or a vendor tool can hang, fork, ignore SIGTERM, run out of memory, miss its licence, or leave behind the
report of an earlier run. So every run here

* starts in a folder that did not exist before (:func:`fresh_folder`) or that the caller names;
* is the leader of its own process group, and the whole group is killed, first gently and then not, when the time is
  up and also when the leader has ended and left children behind;
* writes stdout and stderr to one log file; the outcome carries its tail;
* ends as exactly one :class:`Outcome`. Nothing is raised for a tool that fails; :meth:`Run.require` is there for it.
"""

from __future__ import annotations

import contextlib
import enum
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

GRACE_S = 2.0
"""Seconds between SIGTERM and SIGKILL."""
TAIL_LINES = 40
_MEMORY = re.compile(
    r"out of memory|cannot allocate memory|std::bad_alloc|virtual memory exhausted|memory exhausted|MemoryError",
    re.IGNORECASE,
)
_LICENCE = re.compile(
    r"licen[cs]e (?:checkout|check-out|file|server|key|feature|error|expired|not found|could not|was not)"
    r"|(?:no|not|valid|checkout|invalid|missing|expired|without a) licen[cs]e|FLEXnet|LM_LICENSE_FILE",
    re.IGNORECASE,
)


class Outcome(enum.Enum):
    """How an external program ended."""

    OK = "ok"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    OUT_OF_MEMORY = "out_of_memory"
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
        The exit code is None when the program never ran or was killed for time.
    seconds:
        Wall clock.
    log:
        File with stdout and stderr together; ``tail`` are its last lines.
    """

    command: tuple[str, ...]
    outcome: Outcome
    exit_code: int | None
    seconds: float
    log: Path
    tail: str

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
            Outcome.TIMED_OUT: f"it was stopped after {self.seconds:.0f} s: raise the time limit",
            Outcome.OUT_OF_MEMORY: "it ran out of memory: give it more, or make the design smaller",
            Outcome.LICENCE: "it found no licence: check the licence server and its environment variables",
        }.get(self.outcome, f"exit code {self.exit_code}")
        said = f"; its last lines:\n{self.tail}" if self.tail else ""
        raise ToolError(
            f"{purpose}: {' '.join(self.command)}: {self.outcome.value} ({hint}); log {self.log.name}{said}"
        )


def fresh_folder(parent: Path | str, prefix: str) -> Path:
    """A new, empty folder ``parent/prefix-XXXXXXXX``; ``parent`` is created."""
    parent = Path(parent)
    parent.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=f"{prefix}-", dir=parent))


def run(
    command: Sequence[str | Path],
    *,
    folder: Path | str,
    timeout_s: float,
    log: Path | str | None = None,
    stdin: Path | str | None = None,
    stdout: Path | str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Run:
    """Run a program to its end, or to the end of its time.

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

    Raises
    ------
    ValueError
        If the command is empty or the limit is not positive.
    NotADirectoryError
        If ``folder`` does not exist.
    """
    arguments = tuple(str(part) for part in command)
    if not arguments or timeout_s <= 0:
        raise ValueError(
            f"tools.run: command {arguments} with a limit of {timeout_s} s; give a program and a limit above 0"
        )
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
        source = stack.enter_context(Path(stdin).open("rb")) if stdin is not None else subprocess.DEVNULL
        sink = stack.enter_context(Path(stdout).open("wb")) if stdout is not None else log_file
        try:
            process = subprocess.Popen(
                arguments,
                cwd=where,
                stdin=source,
                stdout=sink,
                stderr=log_file,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
        except OSError as error:  # found, but not something the system can start
            return Run(arguments, Outcome.FAILED, None, 0.0, log_path, f"cannot be started: {error}")
        try:
            code: int | None = process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            # Also on success and on KeyboardInterrupt: no child of the tool outlives the call.
            _end_group(process, gently=process.poll() is None)
    seconds = time.monotonic() - started
    tail = "\n".join(log_path.read_text(errors="replace").splitlines()[-TAIL_LINES:])
    return Run(arguments, _outcome(code, tail), code, seconds, log_path, tail)


def _end_group(process: subprocess.Popen[bytes], gently: bool) -> None:
    """End every process of the group: SIGTERM and a grace period when the leader still runs, then SIGKILL."""
    if gently:
        _signal_group(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):  # SIGKILL follows either way
            process.wait(timeout=GRACE_S)
    _signal_group(process.pid, signal.SIGKILL)
    process.wait()


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # the group has ended by itself, which is what is wanted
        os.killpg(group, number)


def _outcome(code: int | None, tail: str) -> Outcome:
    if code is None:
        return Outcome.TIMED_OUT
    if code == 0:
        return Outcome.OK
    if code in (-signal.SIGKILL, 128 + signal.SIGKILL) or _MEMORY.search(tail):
        return Outcome.OUT_OF_MEMORY  # nobody else sends SIGKILL before the time is up but the kernel's memory killer
    if _LICENCE.search(tail):
        return Outcome.LICENCE
    return Outcome.FAILED
