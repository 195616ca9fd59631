"""The C simulation of a written project, on arrays of integers.

Everything comes from the project's folder: its sources are compiled by g++ and the program is run as a process of its
own, so that a crash, a hang or an exit() in generated code is an outcome, not the end of the caller. Any number of
simulations coexist.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hawq_flow import tools
from hawq_flow.numeric import IntArray
from hawq_flow.to_hls.layout import Layout
from hawq_flow.to_hls.project import ProjectError, write_rows
from hawq_flow.to_hls.texts import MANIFEST, VERSION, cflags


@dataclass(frozen=True)
class Csim:
    """A compiled C simulation.

    Attributes
    ----------
    program:
        The executable; it lives in a build folder of its own, outside the project.
    manifest:
        The project's ``hawq_flow.json``.
    printed:
        What the program prints for a row, in order: (layer or output value, elements).
    compile_seconds:
        Wall clock of g++.
    """

    program: Path
    manifest: dict[str, Any]
    printed: tuple[tuple[str, int], ...]
    compile_seconds: float

    def run(self, x: ArrayLike, *, timeout_s: float = 600.0) -> dict[str, IntArray]:
        """Simulate integers (n, *input shape); return every output by name, int64 (n, *output shape).

        Both are in the network's order, channels first; the port's order is the manifest's affair.

        Raises
        ------
        ValueError
            If the array does not match the input port.
        ToolError
            If the program fails or exceeds ``timeout_s`` seconds.
        """
        return self._outputs(self._printed(x, timeout_s))

    def trace(self, x: ArrayLike, *, timeout_s: float = 600.0) -> dict[str, IntArray]:
        """Every layer's result by the network's value it carries, int64 (n, *shape), and the outputs.

        For simulations compiled with ``traced=True``; others give the outputs only.
        """
        printed = self._printed(x, timeout_s)
        values = {
            value: _in_network_order(printed[entry["layer"]], entry)
            for value, entry in self.manifest["values"].items()
            if entry["layer"] in printed
        }
        return values | self._outputs(printed)

    def _outputs(self, printed: dict[str, IntArray]) -> dict[str, IntArray]:
        entries = self.manifest["outputs"]
        return {e["value"]: _in_network_order(printed[f"output {e['value']}"], e) for e in entries}

    def _printed(self, x: ArrayLike, timeout_s: float) -> dict[str, IntArray]:
        port = self.manifest["inputs"][0]
        rows = np.asarray(x)
        if rows.dtype.kind not in "iu" or rows.shape[1:] != tuple(port["shape"]):
            raise ValueError(
                f"csim: {rows.dtype} array of shape {rows.shape}; expected integers of shape "
                f"(n, {', '.join(map(str, port['shape']))})"
            )
        low, high = port["range"]
        if rows.size and (rows.min() < low or rows.max() > high):
            raise ValueError(f"csim: values from {rows.min()} to {rows.max()}; the port holds {low} to {high}")
        work = tools.fresh_folder(self.program.parent, "run")
        source, sink = work / "input.txt", work / "output.txt"
        write_rows(source, Layout.read(port["layout"]).to_firmware(rows))
        done = tools.run(
            [self.program, source.name], folder=work, timeout_s=timeout_s, stdout=sink, log=work / "log.txt"
        )
        done.require("csim")
        try:
            flat = np.array(sink.read_bytes().split(), dtype=np.int64)
        except (ValueError, OverflowError) as error:
            odd = next((line for line in sink.read_bytes().splitlines() if re.search(rb"[^-+0-9\s]", line)), b"")
            raise ProjectError(
                f"csim: the program printed something else than integers: {odd.decode(errors='replace')!r}. A stream "
                "read while empty, or left with data, means a layer that gives another number of elements than designed"
            ) from error
        columns = sum(elements for _, elements in self.printed)
        if flat.size != len(rows) * columns:
            raise ProjectError(f"csim: {flat.size} integers came back, expected {columns} for each of {len(rows)} rows")
        shutil.rmtree(work)
        flat = flat.reshape(len(rows), columns)
        result, start = {}, 0
        for name, elements in self.printed:
            result[name] = flat[:, start : start + elements]
            start += elements
        return result


def _in_network_order(rows: IntArray, entry: dict[str, Any]) -> IntArray:
    """What the firmware gives (n, elements), for a value with that entry of the manifest: (n, *shape)."""
    return np.asarray(Layout.read(entry["layout"]).to_network(rows).reshape(-1, *entry["shape"]), dtype=np.int64)


def read_manifest(project: Path | str) -> dict[str, Any]:
    """A project's ``hawq_flow.json``, or ``ProjectError`` when the folder holds none of this version."""
    path = Path(project) / MANIFEST
    if not path.is_file():
        raise ProjectError(f"{project}: no {MANIFEST}; expected a project written by to_hls.write_project")
    try:
        manifest = json.loads(path.read_bytes())
    except ValueError as error:
        raise ProjectError(f"{path}: not JSON ({error}); write the project again") from error
    if not isinstance(manifest, dict):
        raise ProjectError(f"{path}: a {type(manifest).__name__}; expected the table that to_hls.write_project wrote")
    missing = {"config", "inputs", "layers", "outputs", "top", "values"} - set(manifest)
    if missing and manifest.get("version") == VERSION:
        raise ProjectError(f"{path}: no {', '.join(sorted(missing))}; edited or cut short: write the project again")
    if manifest.get("format") != "hawq_flow.hls" or manifest.get("version") != VERSION:
        found = f"{manifest.get('format')!r} version {manifest.get('version')!r}"
        raise ProjectError(f"{path}: {found}; expected 'hawq_flow.hls' version {VERSION}; write the project again")
    return manifest


def compile_csim(project: Path | str, build: Path | str, *, traced: bool = False, timeout_s: float = 600.0) -> Csim:
    """Compile the C simulation of a written project into a fresh folder under ``build``; the project is only read.

    Parameters
    ----------
    traced:
        Also print every layer's result: the top function is copied and a print follows each layer's call.
    timeout_s:
        Limit for g++, in seconds.

    Raises
    ------
    ProjectError
        If the folder is not such a project.
    ToolError
        If g++ is missing, fails or exceeds its time; the text has its last lines.
    """
    source = Path(project).resolve()
    manifest = read_manifest(source)
    top = manifest["top"]
    folder = tools.fresh_folder(build, f"{top}-csim").resolve()
    body = Path("firmware") / f"{top}.cpp"
    printed = [(f"output {entry['value']}", int(entry["elements"])) for entry in manifest["outputs"]]
    if traced:
        text, layers = _traced(manifest, (source / body).read_text())
        body = folder / f"{top}_traced.cpp"
        body.write_text(text)
        printed = layers + printed
    sources = [str(body), f"{top}_bridge.cpp", "csim.cpp"]
    command = ["g++", *cflags(manifest["config"]["backend"]), "-Ifirmware", *sources, "-o", str(folder / "csim")]
    done = tools.run(command, folder=source, timeout_s=timeout_s, log=folder / "g++.log")
    done.require("compile the C simulation")
    if not (folder / "csim").is_file():
        raise ProjectError(
            f"{done.command[0]} ended well but made no program; is it a working compiler? See {folder}/g++.log"
        )
    return Csim(folder / "csim", manifest, tuple(printed), done.seconds)


_PRINT = """#include <cstdio>
#include "HEADER"
template <class T> static void hawq_flow_print(T *data, unsigned n) {
    for (unsigned i = 0; i < n; i++)
        std::printf("%.0f ", data[i].to_double());
    std::printf("\\n");
}
template <class T> static void hawq_flow_print(STREAM<T> &stream, unsigned n) {
    for (unsigned i = 0; i < n / T::size; i++) {
        T word = stream.read();
        for (unsigned j = 0; j < T::size; j++)
            std::printf("%.0f ", word[j].to_double());
        stream.write(word);
    }
    std::printf("\\n");
}
"""
_STREAMS = {"Catapult": ("ac_channel.h", "ac_channel")}


def _traced(manifest: dict[str, Any], text: str) -> tuple[str, list[tuple[str, int]]]:
    """The top function with a print after the call of every layer; and the layers, in that order."""
    lines, printed = [], []
    for line in text.splitlines():
        lines.append(line)
        call, _, comment = line.rpartition("; // ")
        layer = manifest["layers"].get(comment.strip())
        if call.strip().startswith("nnet::") and layer:
            lines.append(f"    hawq_flow_print({layer['variable']}, {layer['elements']});")
            printed.append((comment.strip(), int(layer["elements"])))
    header, stream = _STREAMS.get(manifest["config"]["backend"], ("hls_stream.h", "hls::stream"))
    return _PRINT.replace("HEADER", header).replace("STREAM", stream) + "\n".join(lines) + "\n", printed
