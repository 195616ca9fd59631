"""The I/O contract: what a designer must know of the ports, as JSON for programs and as Markdown for people.

``contract.json`` (version 1)::

    {"format": "hawq_flow.contract", "version": 1, "network": digest,
     "inputs": [{"value", "shape", "elements", "integers", "bits", "signed", "range": [low, high], "scale",
                 "zero_point", "mean", "std", "features": [str, ...], "ports": {who: {...}},
                 "fixed_point": null or {...}}],
     "outputs": [{... without mean, std, features, fixed_point; "classes": [str, ...]}],
     "timing": {...} or null, "part", "clock_period_ns",
     "example": {...}}

Elements are counted in the network's order: channels first, C order, batch excluded. ``scale``, ``zero_point``,
``mean`` and ``std`` broadcast over ``shape``. A port of an HLS project has its ``order`` (the firmware counts channels
last).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hawq_flow import images, to_hls
from hawq_flow.handover.contents import Contents
from hawq_flow.handover.fixed_point import ERROR, FixedPoint, fixed_point
from hawq_flow.network import InputSpec, OutputSpec
from hawq_flow.store import write_json
from hawq_flow.to_rtl import Port

FORMAT, VERSION = "hawq_flow.contract", 1
LONGEST_WORD = 200
"""Hex digits of a word that the page shows."""
SHOWN = 8
"""Elements that the page shows of a longer list; ``contract.json`` has all."""


def contract(contents: Contents) -> dict[str, Any]:
    """The contract as plain JSON."""
    manifests = {name: to_hls.read_manifest(project) for name, project in contents.projects.items()}
    rtl = contents.rtl
    return {
        "format": FORMAT,
        "version": VERSION,
        "network": contents.network.digest,
        "part": contents.part,
        "clock_period_ns": contents.clock_period_ns,
        "inputs": [_input(contents, spec, manifests) for spec in contents.network.inputs],
        "outputs": [_output(contents, spec, manifests) for spec in contents.network.outputs],
        "timing": None
        if rtl is None
        else {"latency_cycles": rtl.latency, "interval_cycles": 1, "what": "the Verilog, from valid_in to valid_out"},
        "example": _example(contents),
    }


def _value(contents: Contents, name: str) -> dict[str, Any]:
    value = contents.network.values[name]
    return {
        "value": name,
        "shape": list(value.shape),
        "elements": int(np.prod(value.shape)),
        "integers": str(value.type),
        "bits": value.type.max_bits,
        "signed": value.type.signed,
        "range": list(value.type.range),
    }


def _ports(
    kind: str, name: str, manifests: Mapping[str, Mapping[str, Any]], ports: Sequence[Port]
) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for backend, manifest in manifests.items():
        entry = next(entry for entry in manifest[kind] if entry["value"] == name)
        found[f"hls/{backend.lower()}"] = {key: entry[key] for key in ("port", "type", "order", "layout")}
    for port in ports:
        if port.value == name:
            found["verilog"] = {
                "port": port.name,
                "width": port.width,
                "bits": port.bits,
                "signed": port.signed,
                "order": f"element i in bits {port.bits}*i to {port.bits}*i+{port.bits - 1}, the network's order",
            }
    return found


def _input(contents: Contents, spec: InputSpec, manifests: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    constants = fixed_point(spec)
    return {
        **_value(contents, spec.name),
        "scale": spec.scale.tolist(),
        "zero_point": spec.zero_point.tolist(),
        "mean": spec.mean.tolist(),
        "std": spec.std.tolist(),
        "features": contents.features,
        "ports": _ports("inputs", spec.name, manifests, contents.rtl.inputs if contents.rtl else ()),
        "fixed_point": None if constants is None else _fixed(contents, spec, constants),
    }


def _fixed(contents: Contents, spec: InputSpec, constants: FixedPoint) -> dict[str, Any]:
    measured = None
    if contents.raw is not None:
        host, firmware = contents.rows[spec.name], constants.integers(contents.raw)
        measured = {
            "elements": int(host.size),
            "differ": int(np.count_nonzero(host != firmware)),
            "largest": int(np.abs(host - firmware).max()),
        }
    return {
        "formula": "q = clip((r * multiplier + offset) >> shift, low, high), r = rint(raw * 2^fraction)",
        "error": ERROR,
        "product_bits": constants.product_bits,
        **{name: getattr(constants, name).tolist() for name in ("fraction", "bits", "multiplier", "offset", "shift")},
        "measured": measured,
    }


def _output(contents: Contents, spec: OutputSpec, manifests: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {
        **_value(contents, spec.name),
        "scale": spec.scale.tolist(),
        "zero_point": spec.zero_point.tolist(),
        "classes": contents.classes,
        "ports": _ports("outputs", spec.name, manifests, contents.rtl.outputs if contents.rtl else ()),
    }


def _example(contents: Contents) -> dict[str, Any]:
    """Row 0 of the vectors, each step of it."""
    network = contents.network
    found: dict[str, Any] = {"row": 0, "inputs": {}, "outputs": {}}
    for spec in network.inputs:
        row = contents.rows[spec.name][0].reshape(1, -1)
        entry: dict[str, Any] = {"integers": row[0].tolist(), "word": _hex(contents, spec.name, row)}
        if contents.raw is not None:
            raw = np.asarray(contents.raw[:1], dtype=np.float64)
            entry["raw"] = raw.ravel().tolist()
            entry["standardized"] = spec.standardize(raw).ravel().tolist()
        found["inputs"][spec.name] = entry
    for output in network.outputs:
        row = contents.outputs[output.name][:1]
        value = row.reshape(network.values[output.name].shape)
        real = output.scale * (value - output.zero_point)
        found["outputs"][output.name] = {
            "integers": row[0].tolist(),
            "word": _hex(contents, output.name, row),
            "real": np.asarray(real, dtype=np.float64).ravel().tolist(),
            **({"class": contents.classes[int(row[0].argmax())]} if contents.classes else {}),
        }
    return found


def _hex(contents: Contents, name: str, row: Any) -> str:
    type_ = contents.network.values[name].type
    return images.words(row, type_.max_bits, type_.signed, "hex", name).strip()


# ------------------------------------------------------------------------------------------------------------- the page


def page(contents: Contents, document: Mapping[str, Any]) -> str:
    """``contract.md``: the same for people, with one row worked by hand."""
    lines = [
        f"# Ports of {contents.name}",
        "",
        "All ports carry integers. Elements are counted in the network's order (channels first, C order) unless a port "
        "says otherwise. Real numbers are shortened here: compute with those of `contract.json`, which are whole.",
        "",
        "`int8` is two's complement of 8 bits, `uint7` plain binary of 7; `n` at the end (`int8n`): without the most "
        "negative integer, -127 to 127. A type's range is what the network declares; a port of the Verilog is as wide "
        "as the values that can occur, which are proved and may need less.",
    ]
    for entry in document["inputs"]:
        lines += ["", f"## Input `{entry['value']}`", "", *_described(entry), *_standardization(entry)]
    for entry in document["outputs"]:
        lines += [
            "",
            f"## Output `{entry['value']}`",
            "",
            *_described(entry),
            "",
            f"An integer q means `scale * (q - zero_point)`: scale {_some(entry['scale'])}, zero point "
            f"{_some(entry['zero_point'])}.",
        ]
        if entry["classes"]:
            lines += [
                f"Elements are the scores of {', '.join(entry['classes'])}; the largest (of equal ones the first) "
                "is the predicted class, with no conversion to real numbers needed."
                if np.size(entry["scale"]) == 1 and np.size(entry["zero_point"]) == 1
                else f"Elements are the scores of {', '.join(entry['classes'])}; compare them as real numbers."
            ]
    timing = document["timing"]
    lines += ["", "## Clock and time", ""]
    lines += [f"Part {document['part']}, clock period {document['clock_period_ns']:g} ns."]
    if timing is not None:
        lines += [
            f"The Verilog takes a row every clock cycle (initiation interval 1); its result is there "
            f"{timing['latency_cycles']} cycles later, marked by `valid_out`. Between rows `valid_in` is low and the "
            "data port may carry anything. There is no reset and no back pressure: every row that enters comes out "
            f"{timing['latency_cycles']} cycles later, so a consumer that may stall needs a FIFO in front of the "
            f"network, or one of {timing['latency_cycles']} rows and more behind it. The valid bits start at 0 by "
            "`initial`, which FPGAs honour when they are configured; where yours, or an ASIC, does not, hold "
            f"`valid_in` low and ignore `valid_out` for {timing['latency_cycles']} cycles. Data registers "
            f"hold anything until a "
            "row has come.",
        ]
    if contents.projects:
        lines += [
            "",
            "HLS: how ports look in RTL follows from the pragmas of `firmware/TOP.cpp`, not from this contract. With "
            "io_parallel hls4ml asks for the whole input as one port (`ARRAY_RESHAPE complete`: element 0 in the "
            "lowest bits), an output port an element (`ARRAY_PARTITION complete`), `ap_vld` on each, and block control "
            "signals (`ap_start`, `ap_done`, `ap_ready`, `ap_idle`); with io_stream for AXI4-Stream. The "
            "vendor's interface "
            "report has the last word; so it has on latency: `reports/` holds what is known.",
        ]
    lines += ["", *_worked(contents, document)]
    return "\n".join(lines) + "\n"


def _described(entry: Mapping[str, Any]) -> list[str]:
    low, high = entry["range"]
    form = "two's complement" if entry["signed"] else "unsigned"
    lines = [
        f"{entry['elements']} elements, shape {tuple(entry['shape'])}, {entry['integers']}: {form}, "
        f"{entry['bits']} bits, {low} to {high}.",
        "",
        "| where | port | type | order |",
        "|---|---|---|---|",
    ]
    for where, port in entry["ports"].items():
        kind = port.get("type") or f"{'signed' if port['signed'] else 'unsigned'}, {port['bits']} bits an element"
        name = port["port"] if "width" not in port else f"{port['port']}[{port['width'] - 1}:0]"
        lines.append(f"| {where} | `{name}` | `{kind}` | {port['order']} |")
    return lines if entry["ports"] else lines[:1]


def _standardization(entry: Mapping[str, Any]) -> list[str]:
    lines = [
        "",
        "On the host, in float64:",
        "",
        "    q = clip(rint((raw - mean) / std / scale) + zero_point, low, high)      rint: half to even",
        "",
        f"mean {_some(entry['mean'])}; std {_some(entry['std'])}; scale {_some(entry['scale'])}; zero_point "
        f"{_some(entry['zero_point'])}. **Clip**: the firmware does not check its input.",
    ]
    fixed = entry["fixed_point"]
    if fixed is None:
        return [*lines, "", "In fixed point: products would need more than 62 bits; standardize on the host."]
    lines += [
        "",
        "Or in fixed point, next to the network, from raw data as integers:",
        "",
        "    r = rint(raw * 2^fraction), clipped to `bits` bits, signed: your raw data in that fixed-point format",
        "    q = clip((r * multiplier + offset) >> shift, low, high)                 >>: arithmetic, rounds down",
        "",
        "with `fraction`, `bits`, `multiplier`, `offset`, `shift` of each element in `contract.json`; `offset` "
        f"contains the half that rounds. Products and sums need {fixed['product_bits']} bits, signed. q "
        f"then differs from the "
        f"host's by at most 1, where the exact value lies within {fixed['error']:g} of the middle between two "
        "integers.",
    ]
    if (measured := fixed["measured"]) is not None:
        share = measured["differ"] / measured["elements"]
        lines.append(
            f"On the vectors of this bundle {measured['differ']:,} of {measured['elements']:,} elements differ "
            f"({share:.2%}), by {measured['largest']} at most. The vectors are the host's."
        )
    return lines


def _worked(contents: Contents, document: Mapping[str, Any]) -> list[str]:
    example = document["example"]
    lines = ["## One row by hand", "", "Row 0 of `vectors/`."]
    for entry in document["inputs"]:
        found = example["inputs"][entry["value"]]
        lines += ["", f"Input `{entry['value']}`, the first of {entry['elements']} elements:", ""]
        head = ["element", *(["raw", "(raw - mean) / std", "/ scale + zero point"] if "raw" in found else [])]
        head += ["integer", f"{entry['bits']} bits, hex"]
        lines += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
        scale, zero = (
            np.broadcast_to(np.asarray(entry[name], dtype=np.float64), entry["shape"]).ravel()
            for name in ("scale", "zero_point")
        )
        names = entry["features"] or [str(i) for i in range(entry["elements"])]
        for i in range(min(SHOWN, entry["elements"])):
            q = found["integers"][i]
            cells = [f"{i} ({names[i]})" if entry["features"] else names[i]]
            if "raw" in found:
                middle = found["standardized"][i]
                cells += [f"{found['raw'][i]:.9g}", f"{middle:.9g}", f"{middle / scale[i] + zero[i]:.6f}"]
            cells += [str(q), images.words([[q]], entry["bits"], entry["signed"], "hex").strip()]
            lines.append("| " + " | ".join(cells) + " |")
        lines += _packed(entry, found)
    for entry in document["outputs"]:
        found = example["outputs"][entry["value"]]
        lines += ["", f"Output `{entry['value']}`:", "", "| element | integer | real |", "|---|---:|---:|"]
        names = entry["classes"] or [str(i) for i in range(entry["elements"])]
        for i in range(min(4 * SHOWN, entry["elements"])):
            lines.append(f"| {names[i]} | {found['integers'][i]} | {found['real'][i]:.9g} |")
        if "class" in found:
            lines += ["", f"The largest is that of **{found['class']}**."]
        lines += _packed(entry, found)
    return lines


def _packed(entry: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """The row as one word: of the vectors' width, and of the Verilog's port where that is another."""
    lines = [
        "",
        f"Packed, element 0 lowest, {entry['bits']} bits each (line 1 of the `.hex` file): {_word(found['word'])}",
    ]
    port = entry["ports"].get("verilog")
    if port and (port["bits"], port["signed"]) != (entry["bits"], entry["signed"]):
        word = images.words([found["integers"]], port["bits"], port["signed"], "hex", entry["value"]).strip()
        lines += [
            "",
            f"On the Verilog's port, {port['bits']} bits each, as wide as proven necessary: {_word(word)}",
        ]
    return lines


def _word(word: str) -> str:
    return f"`{word}`" if len(word) <= LONGEST_WORD else f"{len(word)} hex digits, too many for this page"


def _some(values: Any) -> str:
    flat = np.ravel(np.asarray(values)).tolist()
    shown = ", ".join(f"{value:.9g}" for value in flat[:SHOWN])
    return shown if len(flat) == 1 else f"[{shown}{', ...' if len(flat) > SHOWN else ''}]"


def write(contents: Contents, folder: Path) -> dict[str, Any]:
    """Write ``contract.json`` and ``contract.md``; the contract."""
    document = contract(contents)
    write_json(folder / "contract.json", document)
    (folder / "contract.md").write_text(page(contents, document))
    return document
