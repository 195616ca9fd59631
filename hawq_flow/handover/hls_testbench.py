"""The self-checking testbench of an hls4ml project: C++ for g++ alone, and for the vendor's C and RTL simulation.

hls4ml's own testbench prints results and accepts any. This one holds three things against what the network says, in
this order, and names what differs: the types of the ports (and every other type of the project), the constants that are
compiled in, and the results of every row. It calls the top function itself, with its own types, as the vendors' tools
want it.

What is golden comes from the network and from the contract; what is in the project is only read where it says how
things are arranged (which array belongs to which layer, and in which order), and a project that differs from its
network already is refused here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hawq_flow import images, interpret
from hawq_flow.handover import hls_testbench_text as texts
from hawq_flow.handover.checksum import checksum
from hawq_flow.handover.hls_constants import Constants, canonical, constants, layer_includes, members, typedefs
from hawq_flow.network import IntegerNetwork
from hawq_flow.to_hls import FixedType, Layout, ProjectError, header_folders, read_manifest

COSIM_ROWS = 16
"""Rows that the vendor's simulation of the RTL runs unless told otherwise."""
DATA = "tb_data"
_TOOLS = {"Vitis": "vitis-run --mode hls --tcl testbench.tcl", "Vivado": "vivado_hls -f testbench.tcl"}


def flags(backend: str, top: str) -> str:
    """g++'s arguments in the testbench's folder, sources included, output not."""
    folders = ["", *(f"/{name}" for name in header_folders(backend))]
    include = " ".join(f"-Iproject/firmware{folder}" for folder in folders)
    return f"-std=c++17 -O1 -w {include} testbench.cpp project/firmware/{top}.cpp"


def write(project: Path, network: IntegerNetwork, folder: Path, x: ArrayLike) -> str:
    """Write the testbench of a project beside it.

    Into ``folder``: ``testbench.cpp``, ``tb_data`` (``inputs.txt``, ``outputs.txt`` in the ports' order,
    ``constants.txt``), ``README.md``, and for Vitis and Vivado ``testbench.tcl``. The same project, network and rows
    give the same bytes.

    Parameters
    ----------
    project:
        The hls4ml project of the network; it must be ``folder / "project"``.
    x:
        Integers (n, *input shape) in the network's order, n >= 1.

    Returns
    -------
    g++'s arguments in ``folder``, sources included, output not.

    Raises
    ------
    ProjectError
        If the project is another network's, lies elsewhere, or was changed since it was written.
    ValueError
        If there are no rows.
    NetworkError
        If the rows do not fit the input.
    """
    manifest = read_manifest(project)
    if Path(project).resolve() != (Path(folder) / "project").resolve():
        raise ProjectError(f"{project}: the testbench includes it as {folder}/project; put it there")
    if manifest["digest"] != network.digest:
        raise ProjectError(
            f"{project}: a project of network {manifest['digest'][:12]}, given network {network.digest[:12]}"
        )
    rows = np.asarray(x)
    if not len(rows):
        raise ValueError("hls_testbench: no rows; a testbench without rows proves nothing")
    found = constants(Path(project), network, manifest)
    types = typedefs(Path(project))
    ports = [_checked(entry, network, types, manifest) for entry in (*manifest["inputs"], *manifest["outputs"])]
    results = interpret.outputs(network, rows)
    golden = [Layout.read(entry["layout"]).to_firmware(results[entry["value"]]) for entry in manifest["outputs"]]
    data = Path(folder) / DATA
    data.mkdir(parents=True, exist_ok=True)
    inputs = images.decimal(Layout.read(manifest["inputs"][0]["layout"]).to_firmware(rows))
    outputs = images.decimal(np.concatenate(golden, axis=1))
    (data / "inputs.txt").write_text(inputs)
    (data / "outputs.txt").write_text(outputs)
    (data / "constants.txt").write_text("".join(f"{line}\n" for array in found for line in array.lines))
    fields = _fields(manifest, types | members(Path(project)), ports, found, len(rows))
    includes = layer_includes(Path(project))
    fields["LAYER_INCLUDES"] = "\n".join(f'#include "project/firmware/{header}"' for header in includes)
    fields |= {"INPUTS_CHECK": str(checksum(inputs)), "OUTPUTS_CHECK": str(checksum(outputs))}
    (Path(folder) / "testbench.cpp").write_text(_filled(texts.CPP, fields))
    (Path(folder) / "README.md").write_text(_filled(texts.README, fields))
    if manifest["config"]["backend"] in _TOOLS:
        (Path(folder) / "testbench.tcl").write_text(_filled(texts.TCL, fields))
    return fields["FLAGS"]


def _filled(text: str, fields: Mapping[str, str]) -> str:
    for _ in range(2):  # a text may hold another
        for name, value in fields.items():
            text = text.replace(f"@{name}@", value)
    return text


def _checked(
    entry: Mapping[str, Any], network: IntegerNetwork, types: Mapping[str, str], manifest: Mapping[str, Any]
) -> str:
    """The type that a port must have, written out; an error if the contract, the network and the project disagree."""
    backend, stream = manifest["config"]["backend"], manifest["config"]["io_type"] == "io_stream"
    type = network.values[entry["value"]].type
    numbers = FixedType.of(type)
    expected = canonical(entry["type"])
    begin = canonical(numbers.cpp(backend)).removesuffix(">")
    if not (expected == f"{begin}>" or expected.startswith(f"{begin},")):
        raise ProjectError(f"port {entry['port']}: {expected} in the manifest; the network's values are {numbers}")
    if stream:
        expected = f"nnet::array<{expected},{_channels(entry)}>"
    if expected not in types.values():
        raise ProjectError(
            f"port {entry['port']}: no type of firmware/defines.h is {expected}, the contract's: the project was "
            "changed after it was written; make it again"
        )
    return expected


def _channels(entry: Mapping[str, Any]) -> int:
    """Elements that a stream's word holds: the last axis in the firmware's order."""
    piece = entry["layout"][-1]
    if len(entry["layout"]) > 1:
        return int(entry["elements"])
    return int(piece["shape"][piece["axes"][-1]])


def _fields(
    manifest: Mapping[str, Any],
    types: Mapping[str, str],
    ports: Sequence[str],
    found: Sequence[Constants],
    rows: int,
) -> dict[str, str]:
    """What fills the places of the texts."""
    config, top = manifest["config"], manifest["top"]
    backend, stream = config["backend"], config["io_type"] == "io_stream"
    catapult = backend == "Catapult"
    entries = [*manifest["inputs"], *manifest["outputs"]]
    named = [(entry["port"], f"Type<Port{i}>", ports[i]) for i, entry in enumerate(entries)]
    named += [(name, f"Type<{'layers' if '::' in name else ' '}::{name}>", kind) for name, kind in types.items()]
    port_types = (
        f"typedef Port<std::tuple_element<{i}, Ports>::type>::type Port{i}; // {entry['port']}"
        for i, entry in enumerate(entries)
    )
    low, high = manifest["inputs"][0]["range"]
    tool = _TOOLS.get(backend, "")
    return {
        "VENDOR": texts.CATAPULT_VENDOR if catapult else texts.VENDOR,
        "TYPE_TEXTS": texts.CATAPULT_TYPES if catapult else texts.XILINX_TYPES,
        "MAIN": texts.CATAPULT_MAIN if catapult else texts.XILINX_MAIN,
        "INCLUDES": "#include <mc_scverify.h>\n" if catapult else "",
        "STREAM": "ac_channel" if catapult else "hls::stream",
        "TOP": top,
        "BACKEND": backend,
        "DIGEST": manifest["digest"][:16],
        "FLAGS": flags(backend, top),
        "TOOL": tool,
        "FLOW": " -flow_target vivado" if backend == "Vitis" else "",
        "COSIM_ROWS": str(min(COSIM_ROWS, rows)),
        "ROWS": str(rows),
        "PORTS": str(len(entries)),
        "COUNT": str(sum(array.values.size for array in found)),
        "PORT_TYPES": "\n".join(port_types),
        "TYPES": "\n".join(f'        {{"{name}", {kind}::text(), "{text}"}},' for name, kind, text in named),
        "CONSTANT_TYPES": "\n".join(f"typedef double {kind};" for kind in dict.fromkeys(a.type for a in found)),
        "CONSTANT_INCLUDES": "\n".join(f'#include "project/firmware/{array.header}"' for array in found),
        "CONSTANTS": "\n".join(f"    CONSTANTS({a.name}, {a.values.size})," for a in found),
        "INPUTS": str(entries[0]["elements"]),
        "OUTPUTS": str(sum(entry["elements"] for entry in manifest["outputs"])),
        "LOW": str(low),
        "HIGH": str(high),
        "OUTPUT_PORTS": "\n".join(_output(entry) for entry in manifest["outputs"]),
        "RUN": _run_stream(manifest) if stream else _run_parallel(manifest),
    }


def _output(entry: Mapping[str, Any]) -> str:
    layout = Layout.read(entry["layout"])
    order = "" if layout.same else ", ".join(map(str, layout.indices.tolist()))
    shape = ", ".join(map(str, entry["shape"]))
    text = f'{{"{entry["port"]}", "{entry["value"]}", {entry["elements"]}, {{{shape}}}, {{{order}}}}}'
    return f"    all.push_back(Output{text});"


def _run_parallel(manifest: Mapping[str, Any]) -> str:
    """Arrays in, arrays out."""
    source, sinks = manifest["inputs"][0], manifest["outputs"]
    lines = [
        "(void)_row;",
        f"Port0 _x0[{source['elements']}];",
        *(f"Port{i} _x{i}[{sink['elements']}];" for i, sink in enumerate(sinks, 1)),
        "for (std::size_t _i = 0; _i < INPUTS; _i++)",
        "    _x0[_i] = _in[_i];",
        f"{manifest['top']}({', '.join(f'_x{i}' for i in range(len(sinks) + 1))});",
    ]
    start = 0
    for k, sink in enumerate(sinks, 1):
        lines += [
            f"for (std::size_t _i = 0; _i < {sink['elements']}; _i++)",
            f"    _out[{start} + _i] = _x{k}[_i].to_int64();",
        ]
        start += sink["elements"]
    return "\n".join(f"    {line}" for line in lines)


def _run_stream(manifest: Mapping[str, Any]) -> str:
    """Streams of words in, streams of words out; each must carry as many words as designed, and no more."""
    stream, empty = "hls::stream", "{}.empty()"
    if manifest["config"]["backend"] == "Catapult":
        stream, empty = "ac_channel", "!{}.available(1)"
    source, sinks = manifest["inputs"][0], manifest["outputs"]
    names = [f"_x{i}" for i in range(len(sinks) + 1)]
    lines = [f"static {stream}<Port{i}> {name};" for i, name in enumerate(names)]
    lines += [
        "for (std::size_t _i = 0; _i < INPUTS;) {",
        "    Port0 _word;",
        "    for (std::size_t _j = 0; _j < Port0::size; _j++)",
        "        _word[_j] = _in[_i++];",
        "    _x0.write(_word);",
        "}",
        f"{manifest['top']}({', '.join(names)});",
        f"if (!({empty.format('_x0')}))",
        f'    return failed("row " + written(_row) + ": input {source["value"]} was not read to its end");',
    ]
    start = 0
    for k, sink in enumerate(sinks, 1):
        where = f'"row " + written(_row) + ", output {sink["value"]} (port {sink["port"]}): '
        lines += [
            f"for (std::size_t _i = 0; _i < {sink['elements']};) {{",
            f"    if ({empty.format(f'_x{k}')})",
            f'        return failed({where}ends after " + written(_i) + " of {sink["elements"]} elements");',
            f"    Port{k} _word = _x{k}.read();",
            f"    for (std::size_t _j = 0; _j < Port{k}::size; _j++)",
            f"        _out[{start} + _i++] = _word[_j].to_int64();",
            "}",
            f"if (!({empty.format(f'_x{k}')}))",
            f'    return failed({where}has more than {sink["elements"]} elements");',
        ]
        start += sink["elements"]
    return "\n".join(f"    {line}" for line in lines)
