"""A firmware project as the vendor tools see it: what is built, from which files, for which network.

Read from ``hawq_flow.json`` and ``project.tcl``. The project is never written to: every run has a copy of its own.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hawq_flow import store
from hawq_flow.report.project import MANIFEST as MANIFEST

PACK, SUMS = "pack.json", "SHA256SUMS"
"""Files of a pack: what it holds, and the checksums of all of it."""
VECTORS = ("tb_data/tb_input_features.dat", "tb_data/tb_output_predictions.dat")
_SOURCES = {".cpp", ".h", ".hpp", ".dat", ".txt"}
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")
_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*\Z")
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?\Z")
_UNCERTAINTY = re.compile(r"[0-9]+(\.[0-9]+)?%?\Z")


class SynthesisError(RuntimeError):
    """A project, a pack or a set of results that cannot be used; the text says which, what was found, and the fix."""


@dataclass(frozen=True)
class Project:
    """What is built.

    Attributes
    ----------
    folder:
        Where the project is.
    digest:
        Of the integer network it was made from.
    top, part, clock_ns, backend:
        Top function, FPGA, clock period in ns, 'Vitis' or 'Vivado'.
    uncertainty, maximum_size:
        hls4ml's clock uncertainty ('27%') and largest partitioned array, from ``project.tcl``.
    files:
        SHA-256 of every file that is copied for the tools, by its path with slashes.
    """

    folder: Path
    digest: str
    top: str
    part: str
    clock_ns: float
    backend: str
    uncertainty: str
    maximum_size: int
    files: Mapping[str, str]

    @property
    def name(self) -> str:
        """The end of its path, to tell it from others in messages: mixed/vitis/project."""
        return "/".join(self.folder.resolve().parts[-3:])

    @property
    def sources(self) -> str:
        """SHA-256 over the files: what a result depends on."""
        return store.canonical_digest(self.files)

    @property
    def results(self) -> Path:
        """Where results are kept: beside the project, or beside the artifact that holds it and may be made again."""
        folder = self.folder.resolve()
        if (folder.parent / store.MANIFEST).is_file():
            folder = folder.parent
        return folder.parent / f"{folder.name}.synthesis"

    def copy(self, target: Path) -> None:
        """Copy the files into an empty or absent folder, the test bench with its numbers whole (:func:`testbench`)."""
        for name in self.files:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.folder / name, target / name)
        bench = f"{self.top}_test.cpp"
        (target / bench).write_text(testbench(text_of(self.folder / bench), bench))


_EXACT = (
    ("std::vector<float> in;", "std::vector<double> in;"),
    ("nnet::copy_data<float,", "nnet::copy_data<double,"),
    ("std::ofstream fout(RESULTS_LOG);", "std::ofstream fout(RESULTS_LOG);\n    fout.precision(17);"),
)


def testbench(text: str, name: str) -> str:
    """hls4ml's test bench with doubles for its inputs and every digit of its results.

    As hls4ml writes it, inputs pass through ``float`` and results come with six digits: integers of 2^24 and 10^6 and
    more would be others.
    """
    for old, new in _EXACT:
        if old not in text:
            raise SynthesisError(f"{name}: has no {old!r}; not the test bench of hls4ml 1.3.0. Write the project again")
        text = text.replace(old, new)
    return text


def read(folder: Path | str) -> Project:
    """Read a project's manifest and script.

    Raises
    ------
    SynthesisError
        If the folder is no project, its back end is Catapult, a file is missing, or part and clock in ``project.tcl``
        are not the manifest's.
    """
    folder = Path(folder)
    path = folder / MANIFEST
    if not path.is_file():
        raise SynthesisError(f"{folder}: no {MANIFEST}; expected a project that hawq_flow wrote (run/hls/.../project)")
    manifest = table(path)
    try:
        config = manifest["config"]
        found = manifest["format"], manifest["digest"], manifest["top"], config["part"], config["backend"]
        clock = float(config["clock_period_ns"])
    except (ValueError, KeyError, TypeError) as error:
        raise SynthesisError(f"{path}: unreadable ({error!r}); write the project again") from error
    format, digest, top, part, backend = map(str, found)
    if (
        format != "hawq_flow.hls"
        or not _NAME.match(top)
        or not _PART.match(part)
        or not re.match(r"[0-9a-f]{64}\Z", digest)
    ):
        raise SynthesisError(
            f"{path}: format {format!r}, top {top!r}, part {part!r}, digest {digest[:16]!r}; expected 'hawq_flow.hls', "
            "names and a SHA-256: write the project again"
        )
    if backend not in ("Vitis", "Vivado"):
        raise SynthesisError(
            f"{folder}: back end {backend!r}; Vivado HLS and Vitis HLS are run and their reports read. Run "
            "build_prj.tcl in the project yourself"
        )
    script = _script(folder / "project.tcl")
    if script["part"] != part or float(script["clock_period"]) != clock:
        raise SynthesisError(
            f"{folder}/project.tcl: part {script['part']}, clock {script['clock_period']} ns; {MANIFEST} has {part}, "
            f"{clock} ns. Set them in the experiment and write the project again, or run build_prj.tcl yourself"
        )
    names = [MANIFEST, "project.tcl", f"{top}_test.cpp", *VECTORS]
    # Sources alone: the project may have been compiled by its own scripts since.
    sources = [p for p in (folder / "firmware").rglob("*") if p.is_file() and p.suffix in _SOURCES]
    names += sorted(path.relative_to(folder).as_posix() for path in sources)
    missing = [name for name in [*names, f"firmware/{top}.cpp"] if not (folder / name).is_file()]
    if missing:
        raise SynthesisError(f"{folder}: no {', '.join(missing)}; write the project again")
    files = {name: store.file_digest(folder / name) for name in sorted(names)}
    return Project(
        folder, digest, top, part, clock, backend, script["clock_uncertainty"], int(script["maximum_size"]), files
    )


def find(folder: Path | str) -> list[Path]:
    """The projects in a folder: itself, or those at any depth below it, in order.

    Left out are hidden folders (work of builds), packs (their sources are copies, and what is added to them spoils the
    pack) and kept results, which carry their project's manifest. Nothing is told by the names of folders above.
    """
    found = []
    for where, names, files in os.walk(folder):
        if MANIFEST in files and store.MANIFEST not in files:
            found.append(Path(where))
        if MANIFEST in files or {PACK, SUMS} <= set(files):
            names.clear()
        names[:] = [name for name in names if not name.startswith(".")]
    return sorted(found)


def _script(path: Path) -> dict[str, str]:
    """The variables of hls4ml's ``project.tcl``."""
    if not path.is_file():
        raise SynthesisError(f"{path}: missing; write the project again")
    values = dict(re.findall(r'^set (\w+) "?([^"\n]*?)"?\s*$', text_of(path), re.MULTILINE))
    for name, form in (
        ("part", _PART),
        ("clock_period", _NUMBER),
        ("clock_uncertainty", _UNCERTAINTY),
        ("maximum_size", re.compile(r"[0-9]+\Z")),
    ):
        if not form.match(values.get(name, "")):
            raise SynthesisError(f"{path}: {name} is {values.get(name)!r}; write the project again")
    return values


def text_of(path: Path) -> str:
    """A file's text, or ``SynthesisError`` where it is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SynthesisError(f"{path}: is not UTF-8 text ({error}); copy or write it again") from error


def table(path: Path) -> dict[str, Any]:
    """A JSON file that holds a table, or ``SynthesisError``."""
    try:
        data = json.loads(text_of(path))
    except (OSError, ValueError) as error:
        raise SynthesisError(f"{path}: unreadable ({error}); copy or write it again") from error
    if not isinstance(data, dict):
        raise SynthesisError(f"{path}: holds a {type(data).__name__}; expected a table: copy or write it again")
    return data
