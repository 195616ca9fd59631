"""A design as files: one a module, the top, and a manifest; the folder is absent or complete."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hawq_flow import tools
from hawq_flow.to_rtl.design import Module, Port, Rtl

MANIFEST = "hawq_flow_rtl.json"
FORMAT, VERSION = "hawq_flow.rtl", 1


def write(rtl: Rtl, folder: Path | str) -> Path:
    """Write every module as ``NAME.v``, the top if there is one, and ``hawq_flow_rtl.json``: see :func:`manifest`.

    The same design gives the same bytes. Returns the folder; ``FileExistsError`` if it is there already.
    """
    with tools.whole_folder(folder, "a design") as work:
        for name, text in _files(rtl).items():
            (work / name).write_text(text)
    return Path(folder)


def written(rtl: Rtl, folder: Path | str) -> bool:
    """Whether a folder is what :func:`write` makes of this design: its files with its bytes, and nothing else."""
    place, files = Path(folder), {name: text.encode() for name, text in _files(rtl).items()}
    if not place.is_dir() or {path.name for path in place.iterdir()} != set(files):
        return False
    return all((place / name).is_file() and (place / name).read_bytes() == held for name, held in files.items())


def _files(rtl: Rtl) -> dict[str, str]:
    return {**sources(rtl), MANIFEST: json.dumps(manifest(rtl), indent=1) + "\n"}


def sources(rtl: Rtl) -> dict[str, str]:
    """The Verilog files by name: modules in order, then the top."""
    files = {f"{module.name}.v": module.text for module in rtl.modules}
    if rtl.text is not None:
        files[f"{rtl.top}.v"] = rtl.text
    return files


def manifest(rtl: Rtl) -> dict[str, Any]:
    """What a reader of the files has to know: ports, latencies in clock cycles, digests, what is not unrolled.

    ``top`` is null for a design that is not wholly unrolled; then ``latency_cycles`` is null, too.
    """
    whole = rtl.text is not None
    return {
        "format": FORMAT,
        "version": VERSION,
        "network": rtl.network,
        "top": rtl.top if whole else None,
        "latency_cycles": rtl.latency if whole else None,
        "interval_cycles": 1 if whole else None,
        "delay_bits": rtl.delay_bits if whole else None,
        "inputs": _ports(rtl.inputs),
        "outputs": _ports(rtl.outputs),
        "modules": [_module(module) for module in rtl.modules],
    }


def _module(module: Module) -> dict[str, Any]:
    return {
        "name": module.name,
        "file": f"{module.name}.v",
        "sha256": module.digest,
        "ops": list(module.ops),
        "latency_cycles": module.latency,
        "unrolled": module.unrolled,
        "copies": module.copies,
        "inputs": _ports(module.inputs),
        "outputs": _ports(module.outputs),
    }


def _ports(ports: Sequence[Port]) -> list[dict[str, Any]]:
    return [dataclasses.asdict(port) for port in ports]
