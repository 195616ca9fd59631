"""A bundle, written: every file from the contents, its own proof run on it, then one archive, absent or complete.

Format version 1; docs/handover.md has the layout. Files hold no date and no path of this machine, so the same contents
give the same bytes.
"""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hawq_flow import __version__, equality, images, to_cpp, trace
from hawq_flow.handover import archive, contract, hls_testbench, licences, rtl_testbench, scripts
from hawq_flow.handover.contents import Contents, HandoverError
from hawq_flow.handover.verifying import verify
from hawq_flow.numeric import IntArray
from hawq_flow.report import markdown, table
from hawq_flow.store import file_digest, write_json
from hawq_flow.to_rtl.writing import sources

FORMAT, VERSION = "hawq_flow.handover", 1
BUNDLE = "bundle.json"


def write(
    contents: Contents,
    target: Path | str,
    *,
    tell: Callable[[str], None] = lambda text: None,
    timeout_s: float = 1800.0,
) -> str:
    """Write a bundle's archive.

    Parameters
    ----------
    target:
        The archive's file; an older one is replaced, when the new one is proved.
    tell:
        Told what is being done.
    timeout_s:
        Limit for the bundle's own ``verify.sh``, in seconds.

    Returns
    -------
    The checksum of the bundle's manifest: what says by another way which bundle was sent.

    Raises
    ------
    HandoverError
        If a part does not fit the others, or the bundle's own proof fails.
    """
    target = Path(target)
    equality.require(contents.certificate)
    with tempfile.TemporaryDirectory(prefix="hawq_flow-handover-") as work:
        folder = Path(work) / contents.name
        folder.mkdir()
        fill(contents, folder, tell)
        tell("running its own verify.sh")
        verify(folder, timeout_s=timeout_s)
        _free_of_paths(folder, work)
        tell("packing")
        archive.pack(folder, target)
        return file_digest(folder / archive.SUMS)


def fill(contents: Contents, folder: Path, tell: Callable[[str], None] = lambda text: None) -> None:
    """Write every file of a bundle into an empty folder."""
    network = contents.network
    tell("reference, vectors and images")
    to_cpp.write(network, folder / "reference", rows=contents.count, layer_rows=contents.layers)
    _vectors(contents, folder / "vectors")
    trace.write_images(network, folder / "images")
    network.save(folder / "network")
    (folder / "onnx").mkdir()
    (folder / "onnx" / "qonnx.onnx").write_bytes(contents.qonnx)
    (folder / "onnx" / "integer.onnx").write_bytes(contents.onnx)
    flags: dict[str, str] = {}
    for backend, project in contents.projects.items():
        tell(f"HLS project for {backend}")
        place = folder / "hls" / backend.lower()
        shutil.copytree(project, place / "project")
        flags[backend.lower()] = hls_testbench.write(place / "project", network, place, _first(contents))
    if contents.rtl is not None:
        tell("Verilog")
        rtl_testbench.write(contents.rtl, network, folder / "verilog", contents.vectors)
    _certificate(contents, folder / "certificate")
    _constraints(contents, folder / "constraints")
    _reports(contents, folder / "reports")
    for name, found in (("plan.json", contents.plan), ("result.json", contents.result)):
        if found is not None:
            write_json(folder / name, found)
    document = contract.write(contents, folder)
    (folder / "README.md").write_text(scripts.readme(contents, document, VERSION))
    script = folder / scripts.VERIFY
    write_json(folder / BUNDLE, _index(contents))
    licences.write(folder)
    script.write_text(scripts.verify(contents, " ".join(to_cpp.FLAGS), flags, files=len(archive.files(folder)) + 1))
    script.chmod(0o755)
    archive.write_sums(folder)


def _first(contents: Contents) -> IntArray:
    return contents.vectors[contents.network.inputs[0].name]


def _index(contents: Contents) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "name": contents.name,
        "network": contents.network.digest,
        "hawq_flow": __version__,
        "rows": contents.count,
        "data_rows": contents.data_rows,
        "layer_rows": contents.layers,
        "hls": [backend.lower() for backend in contents.projects],
        "verilog": contents.rtl is not None,
        "without_verilog": None if contents.rtl is not None else contents.without_rtl,
        "metadata": dict(contents.network.metadata),
    }


def _vectors(contents: Contents, folder: Path) -> None:
    """``vectors/``: decimal text, hex words, and the index of both."""
    network, values = contents.network, contents.network.values
    (folder / "layers").mkdir(parents=True)
    entries: list[dict[str, Any]] = []

    def index(file: str, form: str, names: list[str], rows: int, bits: int | None = None) -> None:
        entries.append(
            {
                "file": file,
                "form": form,
                "rows": rows,
                "values": [
                    {
                        "value": name,
                        "shape": list(values[name].shape),
                        "elements": int(np.prod(values[name].shape)),
                        "bits": values[name].type.max_bits,
                        "signed": values[name].type.signed,
                    }
                    for name in names
                ],
            }
        )

    def put(file: str, name: str, rows: IntArray) -> None:
        type_ = values[name].type
        (folder / file).write_text(images.words(rows, type_.max_bits, type_.signed, "hex", name))
        index(file, "hex", [name], len(rows))

    flat = {name: rows.reshape(len(rows), -1) for name, rows in contents.vectors.items()}
    for kind, found in (("inputs", flat), ("outputs", contents.outputs)):
        (folder / f"{kind}.txt").write_text(images.decimal(np.concatenate(list(found.values()), axis=1)))
        index(f"{kind}.txt", "decimal", list(found), contents.count)
        for name, rows in found.items():
            put(f"{kind}.hex" if len(found) == 1 else f"{kind}.{name}.hex", name, rows)
    for op in network.ops:
        rows = contents.traced[op.name]
        (folder / "layers" / f"{op.name}.txt").write_text(images.decimal(rows))
        index(f"layers/{op.name}.txt", "decimal", [op.name], len(rows))
        put(f"layers/{op.name}.hex", op.name, rows)
    write_json(
        folder / "index.json",
        {
            "format": "hawq_flow.vectors",
            "version": 1,
            "network": network.digest,
            "order": "a row a line; the elements of each value flattened in C order, channels first; in hex words "
            "element 0 in the lowest bits, two's complement",
            "parts": contents.parts,
            "files": entries,
        },
    )
    write_json(folder / "coverage.json", contents.covered)


def _certificate(contents: Contents, folder: Path) -> None:
    folder.mkdir()
    write_json(folder / "equality.json", contents.certificate)
    write_json(folder / "coverage.json", contents.coverage)
    (folder / "equality.md").write_text(equality.markdown(contents.certificate, f"Equality of {contents.name}"))


def _constraints(contents: Contents, folder: Path) -> None:
    """Part and clock for whoever synthesizes: xdc for both kinds of design, a script for the Verilog."""
    folder.mkdir()
    period, half = contents.clock_period_ns, contents.clock_period_ns / 2
    for name, port, present in (
        ("hls", "ap_clk", bool(contents.projects)),
        ("verilog", "clk", contents.rtl is not None),
    ):
        if present:
            (folder / f"{name}.xdc").write_text(
                f"# The clock of the {name} top, {1000 / period:g} MHz.\n"
                f"create_clock -period {period:g} -name clk -waveform {{0 {half:g}}} [get_ports {port}]\n"
            )
    if contents.rtl is not None:
        (folder / "verilog.tcl").write_text(
            f"""# Synthesizes the Verilog out of context: vivado -mode batch -source constraints/verilog.tcl
set_part {contents.part}
read_verilog {{{" ".join(f"verilog/{name}" for name in sources(contents.rtl))}}}
read_xdc constraints/verilog.xdc
synth_design -top {contents.rtl.top} -part {contents.part} -mode out_of_context
report_utilization -file utilization.rpt
report_timing_summary -file timing.rpt
"""
        )
    write_json(folder / "constraints.json", {"part": contents.part, "clock_period_ns": period})


def _reports(contents: Contents, folder: Path) -> None:
    folder.mkdir()
    if not contents.reports:
        (folder / "README.md").write_text(
            "Nothing was synthesized before this bundle was made: there is no figure to pass on.\n"
        )
        return
    write_json(folder / "reports.json", [dataclasses.asdict(report) for report in contents.reports])
    (folder / "reports.md").write_text(markdown(table(contents.reports)))


def _free_of_paths(folder: Path, work: str) -> None:
    for path in archive.files(folder):
        content = path.read_bytes()
        for place in (work, str(Path.home())):
            if place != "/" and place.encode() in content:
                raise HandoverError(
                    f"handover: {path.relative_to(folder)} holds {place}, a path of this machine; report what wrote it"
                )
