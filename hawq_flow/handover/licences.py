"""Whose the files of a bundle are: every component, its licence, and the licence's text where it came with one.

Nothing is assumed of a file that says nothing: its component's licence is named as the component's, and files whose own
header reserves rights are listed by name, for the receiver's lawyers to see.
"""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

FOLDER = "LICENSES"
_APACHE = re.compile(r"apache license|apache-2\.0|http://www\.apache\.org/licenses", re.IGNORECASE)
_RESERVED = re.compile(r"confidential|proprietary|all rights reserved", re.IGNORECASE)
_HEADER = 8192
_COMPONENTS = {
    "nnet_utils": "hls4ml's C++ templates",
    "ap_types": "arbitrary precision types of Xilinx, Inc., as hls4ml ships them",
    "ac_types": "Algorithmic C types of Siemens (Mentor Graphics), as hls4ml ships them",
    "ac_math": "Algorithmic C math library of Siemens (Mentor Graphics), as hls4ml ships it",
    "ac_simutils": "Algorithmic C simulation utilities of Siemens (Mentor Graphics), as hls4ml ships them",
}


def write(folder: Path) -> None:
    """Write ``LICENSES/`` for a bundle's folder, from what is in it."""
    found = {name: sorted(folder.glob(f"hls/*/project/firmware/{name}")) for name in _COMPONENTS}
    rows = [
        "| the network itself: weights, plan, vectors, reports, `network/`, `onnx/`, `images/` | whoever trained it; "
        "this bundle grants nothing |",
        "| text written by hawq_flow: `reference/`, `verilog/`, testbenches, scripts, pages | Apache-2.0, "
        "[Apache-2.0.txt](Apache-2.0.txt); what it says of the network is the network's owner's |",
    ]
    if any(found.values()):
        rows.append(
            f"| C++ written by hls4ml {importlib.metadata.version('hls4ml')} from its templates: `hls/*/project` | "
            "Apache-2.0, [hls4ml.txt](hls4ml.txt) |"
        )
    reserved: list[str] = []
    silent: list[str] = []
    for name, places in found.items():
        if places:
            what = _COMPONENTS[name]
            rows.append(f"| `hls/*/project/firmware/{name}`: {what} | Apache-2.0 where a file says so, see below |")
            for place in places:
                headers = {
                    p: p.read_bytes()[:_HEADER].decode(errors="replace") for p in place.rglob("*") if p.is_file()
                }
                for path, text in sorted(headers.items()):
                    where = path.relative_to(folder).as_posix()
                    if _APACHE.search(text):
                        continue
                    (reserved if _RESERVED.search(text) else silent).append(where)
    lines = [
        "# Licences of what is in this bundle",
        "",
        "| what | licence |",
        "|---|---|",
        *rows,
        "",
    ]
    if reserved:
        lines += [
            "These files carry a header of their owner that reserves rights or names another agreement. They are those "
            "that hls4ml distributes; ask whoever advises you before passing them on:",
            "",
            *(f"* `{where}`" for where in reserved),
            "",
        ]
    if silent:
        lines += [
            f"{len(silent)} files of these folders state no licence themselves; they are parts of hls4ml's "
            "distribution, which is under Apache-2.0 as a whole.",
            "",
        ]
    target = folder / FOLDER
    target.mkdir()
    (target / "README.md").write_text("\n".join(lines))
    (target / "Apache-2.0.txt").write_text(_text("hawq-flow", "LICENSE"))
    if any(found.values()):
        (target / "hls4ml.txt").write_text(_text("hls4ml", "LICENSE"))


def _text(package: str, name: str) -> str:
    """A licence's text as the installed package carries it."""
    distribution = importlib.metadata.distribution(package)
    for file in distribution.files or ():
        if file.name == name and ("dist-info" in file.parts[0] or len(file.parts) == 1):
            return Path(str(distribution.locate_file(file))).read_text()
    raise FileNotFoundError(f"{package}: its installation has no {name}; install it again")
