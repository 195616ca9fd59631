"""The text files that stand beside hls4ml's: the C simulation's driver, its Makefile, the README."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

MANIFEST = "hawq_flow.json"
VERSION = 2
"""Of the manifest's format."""
_CFLAGS = ("-std=c++17", "-O1", "-fno-gnu-unique", "-w")
_HEADERS = {"Catapult": ("ac_types/include", "ac_math/include", "ac_simutils/include", "nnet_utils")}


def cflags(backend: str) -> tuple[str, ...]:
    """For the C simulation, in the project's folder.

    -O1 compiles fastest and runs as fast as -O3; -w: the warnings of generated code and of the vendors' headers are not
    ours to fix.
    """
    return (*_CFLAGS, *(f"-Ifirmware/{folder}" for folder in header_folders(backend)))


def header_folders(backend: str) -> tuple[str, ...]:
    """Folders below a project's ``firmware`` that its sources take headers from."""
    return _HEADERS.get(backend, ("ap_types",))


def driver(manifest: Mapping[str, Any]) -> str:
    """C++ of ``csim``: integers in, integers out, and an exit code that means what it says."""
    top = manifest["top"]
    columns, (low, high) = manifest["inputs"][0]["elements"], manifest["inputs"][0]["range"]
    sizes = [entry["elements"] for entry in manifest["outputs"]]
    declared = ", ".join(["double *x"] + [f"double *y{i}" for i in range(len(sizes))])
    passed = ", ".join(["x.data()"] + [f"y.data() + {sum(sizes[:i])}" for i in range(len(sizes))])
    return f"""// C simulation on integers. Written by hawq_flow for network {manifest["digest"][:16]}.
//
//   csim INPUT            reads rows of {columns} integers from {low} to {high}, prints rows of {sum(sizes)}
//   csim INPUT GOLDEN     compares with GOLDEN instead; exit code 1 and the first difference if there is one
//
// Exit code 2: INPUT cannot be read, or holds what the port does not.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

extern "C" void {top}_double({declared});

static bool read_row(std::FILE *file, std::vector<double> &row, const char *name) {{
    for (std::size_t i = 0; i < row.size(); i++) {{
        long long value;
        if (std::fscanf(file, "%lld", &value) != 1) {{
            if (i == 0 && std::feof(file))
                return false;
            std::fprintf(stderr, "%s: expected an integer, element %zu of a row of %zu\\n", name, i, row.size());
            std::exit(2);
        }}
        row[i] = (double)value;
    }}
    return true;
}}

int main(int argc, char **argv) {{
    if (argc < 2 || argc > 3) {{
        std::fprintf(stderr, "usage: %s INPUT [GOLDEN]\\n", argv[0]);
        return 2;
    }}
    std::FILE *input = std::fopen(argv[1], "r");
    std::FILE *golden = argc == 3 ? std::fopen(argv[2], "r") : nullptr;
    if (!input || (argc == 3 && !golden)) {{
        std::fprintf(stderr, "cannot open %s\\n", input ? argv[2] : argv[1]);
        return 2;
    }}
    std::vector<double> x({columns}), y({sum(sizes)}), expected(y.size());
    long row = 0;
    for (; read_row(input, x, argv[1]); row++) {{
        for (std::size_t i = 0; i < x.size(); i++) {{
            if (x[i] < {low}.0 || x[i] > {high}.0) {{
                std::fprintf(stderr, "%s: row %ld, element %zu: %.0f; the port holds {low} to {high}: clip to them\\n",
                             argv[1], row, i, x[i]);
                return 2;
            }}
        }}
        {top}_double({passed});
        if (golden && !read_row(golden, expected, argv[2])) {{
            std::fprintf(stderr, "%s ends after %ld rows\\n", argv[2], row);
            return 1;
        }}
        for (std::size_t i = 0; i < y.size(); i++) {{
            if (y[i] != std::floor(y[i])) {{
                std::fprintf(stderr, "row %ld, element %zu: %.17g is not an integer\\n", row, i, y[i]);
                return 1;
            }}
            if (golden && y[i] != expected[i]) {{
                std::fprintf(stderr, "row %ld, element %zu: got %.0f, expected %.0f\\n", row, i, y[i], expected[i]);
                return 1;
            }}
            if (!golden)
                std::printf("%.0f%c", y[i] + 0.0, i + 1 < y.size() ? ' ' : '\\n');
        }}
    }}
    if (golden && read_row(golden, expected, argv[2])) {{
        std::fprintf(stderr, "%s has more than the %ld rows of %s\\n", argv[2], row, argv[1]);
        return 1;
    }}
    if (golden)
        std::printf("%ld rows equal\\n", row);
    return 0;
}}
"""


def makefile(project: str, backend: str) -> str:
    """Compiling and checking the C simulation without us."""
    return f"""# C simulation without a vendor tool: needs g++ and make only.
CXX ?= g++
SOURCES = firmware/{project}.cpp {project}_bridge.cpp csim.cpp

csim: $(SOURCES) $(wildcard firmware/*.h firmware/weights/*.h)
\t$(CXX) {" ".join(cflags(backend))} $(SOURCES) -o $@

.PHONY: check
check: csim
\t./csim tb_data/tb_input_features.dat tb_data/tb_output_predictions.dat
"""


def reuse(manifest: Mapping[str, Any]) -> str:
    """The reuse factor in words: the one asked for, and those that hls4ml took where it does not divide."""
    asked = manifest["config"]["reuse_factor"]
    taken = {name: e["reuse_factor"] for name, e in manifest["layers"].items() if "weight" in e["types"]}
    if set(taken.values()) <= {asked}:
        return f"reuse factor {asked}"
    return f"reuse factors {', '.join(f'{name} {factor}' for name, factor in taken.items())} ({asked} asked for)"


def _origin(manifest: Mapping[str, Any]) -> str:
    """Where an imported network came from, and what its integers need beside scales; nothing for others."""
    metadata = manifest["metadata"]
    if "origin" not in metadata:
        return ""
    origin = json.loads(metadata["origin"])

    def moved(order: Mapping[str, Any] | None) -> str:
        if order is None:
            return "in its order"
        return f"transposed by {order['transpose']}" if "transpose" in order else "in an order of its own"

    lines = [
        f"* input `{e['name']}` is the file's `{e['source']}` of shape {e['shape']}, {moved(e['order'])}"
        for e in origin["inputs"]
    ]
    for e in origin["outputs"]:
        offsets = [f"{v:.6g}" for v in _flat(e["offset"])]
        shown = ", ".join(dict.fromkeys(offsets)) if len(set(offsets)) == 1 else ", ".join(offsets[:16])
        lines.append(
            f"* output `{e['name']}` is the file's `{e['source']}` of shape {e['shape']}, {moved(e['order'])}; real = "
            f"scale * (integer - zero_point) + offset, offset {shown}{', ...' if len(offsets) > 16 else ''}"
            + (f"; the file applies {e['left']} to it, which is not in the firmware" if e["left"] else "")
        )
    return f"""
## Where it came from

Imported from `{metadata["source"]}` ({metadata["source_producer"] or "of an unnamed tool"}), sha256
`{metadata["source_sha256"]}`. `origin` in the metadata of `{MANIFEST}` has what follows in full:

{chr(10).join(lines)}
"""


def _flat(values: Any) -> list[float]:
    return [v for part in values for v in _flat(part)] if isinstance(values, list) else [float(values)]


def readme(manifest: Mapping[str, Any]) -> str:
    """What an FPGA team needs to know."""
    config = manifest["config"]
    tool = {
        "Vitis": "vitis-run --tcl build_prj.tcl --mode hls",
        "Vivado": "vivado_hls -f build_prj.tcl",
        "Catapult": "catapult -product ultra -shell -f build_prj.tcl",
    }[config["backend"]]
    where = "build_prj.tcl" if config["backend"] == "Catapult" else "project.tcl"
    rows = "\n".join(
        f"| {kind} `{e['port']}` | {e['value']} | {e['elements']} | {e['order']} | {e['integers']}, `{e['type']}` | "
        f"{e['range'][0]} to {e['range'][1]} |"
        for kind in ("input", "output")
        for e in manifest[f"{kind}s"]
    )
    return f"""# {manifest["top"]}: an integer network as an hls4ml project

Written by hawq_flow {manifest["hawq_flow"]} with hls4ml {manifest["hls4ml"]} from the network with digest
`{manifest["digest"]}`.
Target: {config["backend"]}, part {config["part"]}, clock {config["clock_period_ns"]} ns, {config["io_type"]},
{config["strategy"]} strategy, {reuse(manifest)}.

## Ports: integers

| port | value | elements | order | integers | range |
|---|---|---|---|---|---|
{rows}

The network counts channels first, the firmware channels last: where the two differ the order says how, and
`{MANIFEST}` as `layout`, in pieces: that many of the network's elements (C order) reshaped to `shape`, transposed by
`axes`. In numpy, of one sample `x` (no batch axis) and each piece: `port = x.reshape(shape).transpose(axes).ravel()`;
back, for outputs: `y = port.reshape([shape[a] for a in axes]).transpose(numpy.argsort(axes))`. The vectors in
`tb_data` are in the ports' order.

An input integer is `clip(rint((raw - mean) / std / scale) + zero_point, low, high)`, `low` to `high` being the range;
an output means `scale * (integer - zero_point)`. Scales, zero points, mean and standard deviation are in `{MANIFEST}`
and broadcast over one sample in the network's order; they are annotations, the firmware computes on integers only.
**The host clips**: the firmware does not check its input, and a value outside the range may wrap.
{_origin(manifest)}
## Rebuild and check

* `make check` compiles the C simulation with g++ and compares it with `tb_data`: exit code 1 on the first difference.
  (hls4ml's own testbench, `{manifest["top"]}_test.cpp`, prints results but accepts any.)
* `make csim`, then `./csim INPUT`, runs rows of your own: a text file of integers separated by blanks, a sample a line,
  its elements in the port's order. It prints the outputs' integers likewise, and refuses what is out of range (exit
  code 2). `./csim INPUT GOLDEN` compares.
* `{tool}` synthesizes with the vendor tool; `{where}` holds part and clock.
* `model.onnx` is the QONNX model this came from, `hls4ml_model.onnx` the same network as hls4ml was given it (one row,
  plain names, channels last; nodes of the domain `hawq_flow` are those that stock hls4ml cannot read). The type of
  every layer is in `{MANIFEST}`; `hls4ml_config.yml` alone, with its 'auto', does not reproduce them.
* Constants are compiled in (`firmware/weights/*.h`): the C simulation runs the arrays that are synthesized.
"""
