"""hls4ml's Catapult projects: what they need otherwise, and what of them is put right.

hls4ml's writer lets the C simulation read weights from text files whose folder is written into the C++, copies manuals
and tests of the ac_* headers along, packs an archive beside the project (``tools.whole_folder`` removes it), and its
script takes another FPGA, without stopping, when the tool lacks the part's library. Here the constants are compiled in
(the simulation then runs the very arrays that are synthesized), the rest is left out, and a missing part stops.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

from hawq_flow.to_hls.config import HlsConfig

_LEFT_OUT = ("ac_types/pdfdocs", "ac_types/gdb", "ac_math/pdfdocs", "ac_math/tests", "ac_math/lutgen")


class WriterError(RuntimeError):
    """hls4ml's writer wrote something else than 1.3.0 does."""


def settings(config: HlsConfig) -> dict[str, Any]:
    """What ``create_config`` of a back end takes beside clock, io_type and names."""
    if config.backend != "Catapult":
        # Without text files the C simulation compiles the very arrays that are synthesized.
        return {"part": config.part, "write_weights_txt": False}
    return {"tech": "asic", "asiclibs": config.part} if config.asic else {"tech": "fpga", "part": config.part}


def finish(work: Path, config: HlsConfig) -> None:
    """Put a written project right.

    Raises
    ------
    WriterError
        If a file has not the form that hls4ml 1.3.0 writes.
    """
    firmware, top = work / "firmware", config.project
    for name in _LEFT_OUT:
        shutil.rmtree(firmware / name, ignore_errors=True)
    for path in sorted((firmware / "weights").glob("*.txt")):
        path.unlink()
    for path in sorted((firmware / "weights").glob("*.h")):
        _edit(path, r"#ifndef __SYNTHESIS__\n.*?#else\n(.*?)#endif\n(?=\n#endif)", r"\1", flags=re.S)
    loads = r"^[^\n]*nnet::load_\w+_from_txt<[^\n]*\n"
    _edit(firmware / f"{top}.cpp", loads, "", some=False)
    for name in (f"{top}_bridge.cpp", f"{top}_test.cpp"):
        _edit(work / name, loads, "", some=False)
        # The arrays are defined in the headers that the top function includes.
        _edit(work / name, r"(// hls-fpga-machine-learning insert declare weights\n)(?:\w+ \w+\[\d+\];\n)*", r"\1")
    _edit(work / f"{top}_bridge.cpp", r'(static std::string s_weights_dir = ")[^"]*"', r'\1firmware/weights"')
    _edit(
        work / "build_prj.tcl",
        r'    logfile message "Could not find specific Xilinx base library[^\n]*\n[^\n]*-part xcku115-flvb2104-2-i\n',
        "    error \"no base library for the part '$part' in this Catapult: install it\"\n",
    )


def _edit(path: Path, pattern: str, replacement: str, *, some: bool = True, flags: int = 0) -> None:
    text, count = re.subn(pattern, replacement, path.read_text(), flags=flags | re.M)
    if some and count != 1:
        raise WriterError(f"{path.name}: {count} places match {pattern!r}; hls4ml 1.3.0 writes one")
    path.write_text(text)
