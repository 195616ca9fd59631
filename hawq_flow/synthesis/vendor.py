"""Which vendor tool there is, which version, and how it is called."""

from __future__ import annotations

import re
import shutil
import threading
from dataclasses import dataclass
from pathlib import Path

from hawq_flow import tools
from hawq_flow.synthesis.config import VIVADO_STEPS, SynthesisConfig

NAMES = {
    "vivado_hls": "Vivado HLS",
    "vitis_hls": "Vitis HLS",
    "vitis_run": "Vitis HLS",
    "vivado": "Vivado",
}
PROGRAM = {"vitis_run": "vitis-run"}
HLS = {"Vivado": ("vivado_hls",), "Vitis": ("vitis_hls", "vitis_run")}
"""What synthesizes the projects of each back end, the first found. ``vitis-run`` is there from 2023.1 on, ``vitis_hls``
is not any more in 2025."""
PROBE_S = 60.0
_BANNER = re.compile(r"\b(?:Vivado|Vitis|HLS|vitis-run)\b[^\n]*?\bv(\d{4}\.\d+(?:\.\d+)?)\b", re.IGNORECASE)
_LONG = {"vitis_run": "--version"}


@dataclass(frozen=True)
class Tool:
    """One vendor tool.

    Attributes
    ----------
    kind:
        'vivado_hls', 'vitis_hls', 'vitis_run' or 'vivado'.
    path:
        The program.
    version:
        As its own banner says ('2020.1'), None when it does not.
    """

    kind: str
    path: str
    version: str | None = None

    @property
    def name(self) -> str:
        """The vendor's name of the tool."""
        return NAMES[self.kind]

    def command(self, script: str) -> list[str]:
        """The command that runs a tcl file, found in the folder where it runs."""
        return [self.path, *arguments(self.kind, script)]


def arguments(kind: str, script: str) -> list[str]:
    """What follows the program to run a tcl file."""
    match kind:
        case "vivado":
            return ["-mode", "batch", "-notrace", "-nojournal", "-nolog", "-source", script]
        case "vitis_run":
            return ["--mode", "hls", "--tcl", script]
        case _:
            return ["-f", script]


def kinds(step: str, backend: str) -> tuple[str, ...]:
    """The tools that can do a step, in order of preference."""
    return ("vivado",) if step in VIVADO_STEPS else HLS[backend]


def find(step: str, backend: str, config: SynthesisConfig) -> Tool | None:
    """The tool for a step, without its version; None when there is none."""
    for kind in kinds(step, backend):
        path = shutil.which(getattr(config, kind) or PROGRAM.get(kind, kind))
        if path is not None:
            return Tool(kind, path)
    return None


def missing(step: str, backend: str, config: SynthesisConfig) -> str:
    """In words: what was looked for, and what is there instead."""
    wanted = [getattr(config, kind) or PROGRAM.get(kind, kind) for kind in kinds(step, backend)]
    text = f"{' or '.join(wanted)} not found: put it on PATH (the vendor's settings64.sh) or name it in [synthesis]"
    other = {"Vivado": "Vitis", "Vitis": "Vivado"}[backend]
    if step in ("csynth", "cosim", "export") and (there := find(step, other, config)) is not None:
        text += f". {Path(there.path).name} is there: it builds projects of the back end {other!r}"
    return text


def probe(tool: Tool, folder: Path, stop: threading.Event | None = None) -> Tool:
    """The tool with the version its own banner tells; what it prints goes into ``folder``, and ``stop`` ends it."""
    flag = _LONG.get(tool.kind, "-version")
    log = folder / f"{tool.kind}.version.log"
    tools.run([tool.path, flag], folder=folder, timeout_s=PROBE_S, log=log, stop=stop)
    return Tool(tool.kind, tool.path, version(log.read_text(errors="replace")))


def version(text: str) -> str | None:
    """The version in a vendor's banner, None where there is no banner."""
    found = _BANNER.search(text)
    return found[1] if found else None
