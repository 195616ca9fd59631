"""The streaming design on arrays of integers, clock cycle by clock cycle, with what it declares held against it.

Rows go in back to back and with gaps (a fixed pseudo-random pattern), and in the gaps the inputs carry random bits.
What comes out must be valid exactly ``latency`` cycles after each row, and at no other time: an initiation interval of
1 and the latency are thus tested in every run.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hawq_flow import tools
from hawq_flow.images import Bits
from hawq_flow.network import IntegerNetwork, Shape
from hawq_flow.numeric import IntArray
from hawq_flow.to_rtl import reader
from hawq_flow.to_rtl.design import Rtl
from hawq_flow.to_rtl.generate import assemble
from hawq_flow.to_rtl.packing import pack, unpack
from hawq_flow.to_rtl.simulators import (
    SimulationError,
    Verilator,
    build_icarus,
    build_verilator,
    choose,
    words,
)

GAPS = 4
"""One cycle in so many carries no row, on average, after a first part without gaps."""
CHUNK_BITS = 1 << 24
"""Bits of inputs and outputs that are held at once, each at times in 8 bytes."""
READER_VALUES = 1 << 26
"""Integers of 8 bytes that the reader holds at once: every wire of a module in every cycle."""


@dataclass(frozen=True)
class Simulation:
    """A compiled simulation of a design.

    Attributes
    ----------
    kind, program:
        Which of ``TOOLS`` it is; Verilator's executable (Icarus compiles anew for each run).
    folder:
        Where it was built and where runs take place, each in a fresh folder of its own.
    tool:
        The simulator and its version.
    """

    rtl: Rtl
    shapes: Mapping[str, Shape]
    kind: str
    program: Path | None
    folder: Path
    tool: str

    @property
    def method(self) -> str:
        """How outputs come about, in words: for certificates."""
        stages = len(self.rtl.modules)
        return f"streaming Verilog in {self.tool}: {stages} stages, latency {self.rtl.latency}, one row a clock cycle"

    def run(self, x: ArrayLike | Mapping[str, ArrayLike], *, timeout_s: float = 600.0) -> dict[str, IntArray]:
        """Simulate integers (n, *input shape), a mapping with several inputs; every output by name, (n, *shape).

        Raises
        ------
        ValueError
            If arrays do not match the input ports.
        SimulationError
            If results come at other times than the declared latency says.
        ToolError
            If the program fails or exceeds ``timeout_s`` seconds.
        """
        rows = self._rows(x)
        count = len(next(iter(rows.values())))
        width = sum(port.width for port in (*self.rtl.inputs, *self.rtl.outputs))
        step = max(1, CHUNK_BITS // width)
        if self.kind == "reader":
            wires = max((module.text.count("\n") for module in self.rtl.modules), default=1)
            step = max(1, min(step, READER_VALUES // wires))
        parts = [
            self._chunk({name: array[start : start + step] for name, array in rows.items()}, start, timeout_s)
            for start in range(0, max(count, 1), step)
        ]
        flat = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return {name: array.reshape(-1, *self.shapes[name]) for name, array in flat.items()}

    def _rows(self, x: ArrayLike | Mapping[str, ArrayLike]) -> dict[str, IntArray]:
        ports = self.rtl.inputs
        given = x if isinstance(x, Mapping) else {ports[0].value: x}
        if set(given) != {port.value for port in ports}:
            raise ValueError(
                f"simulate: inputs {', '.join(given)}; the design has {', '.join(port.value for port in ports)}"
            )
        rows = {}
        for port in ports:
            array, shape = np.asarray(given[port.value]), self.shapes[port.value]
            if array.dtype.kind not in "iu" or array.shape[1:] != shape:
                raise ValueError(
                    f"simulate: {port.value}: {array.dtype} array of shape {array.shape}; expected integers of shape "
                    f"(n, {', '.join(map(str, shape))})"
                )
            rows[port.value] = array.reshape(len(array), port.elements).astype(np.int64)
        counts = {name: len(array) for name, array in rows.items()}
        if len(set(counts.values())) > 1:
            raise ValueError(f"simulate: inputs of {counts} rows; expected as many of each")
        return rows

    def _chunk(self, rows: Mapping[str, IntArray], first: int, timeout_s: float) -> dict[str, IntArray]:
        bits = pack(self.rtl.inputs, rows)
        valid = schedule(len(bits), self.rtl.latency)
        cycles = np.random.default_rng(first + 1).integers(0, 2, (len(valid), bits.shape[1]), dtype=np.uint8)
        cycles[valid] = bits
        folder = tools.fresh_folder(self.folder, "run")
        run = {"verilator": _run_verilator, "icarus": _run_icarus, "reader": _run_reader}[self.kind]
        valid_out, out = run(self, folder, valid, cycles, timeout_s)
        expected = np.zeros_like(valid)
        expected[self.rtl.latency :] = valid[: len(valid) - self.rtl.latency]
        wrong = np.flatnonzero(valid_out != expected)
        if wrong.size:
            cycle = int(wrong[0])
            raise SimulationError(
                f"simulate: valid_out is {int(valid_out[cycle])} in cycle {cycle}, expected {int(expected[cycle])}: "
                f"the design declares a latency of {self.rtl.latency} cycles (see {folder})"
            )
        shutil.rmtree(folder)
        return unpack(self.rtl.outputs, out[expected])


def schedule(rows: int, latency: int) -> NDArray[np.bool_]:
    """In which cycles rows enter: half of them back to back, half with gaps, then as many empty cycles as it takes."""
    rng = np.random.default_rng(0)
    gaps = rng.integers(0, GAPS, rows) == 0
    gaps[: rows // 2] = False
    at = np.arange(rows) + np.cumsum(gaps * rng.integers(1, 4, rows))
    valid = np.zeros((int(at[-1]) + 1 if rows else 0) + latency + 1, dtype=bool)
    valid[at] = True
    return valid


def _run_verilator(
    simulation: Simulation, folder: Path, valid: NDArray[np.bool_], cycles: Bits, timeout_s: float
) -> tuple[NDArray[np.bool_], Bits]:
    rtl = simulation.rtl
    after = sum(port.width for port in rtl.outputs)
    lines = np.zeros((len(valid), 32 * (1 + words(cycles.shape[1]))), dtype=np.uint8)
    lines[:, 0] = valid
    lines[:, 32 : 32 + cycles.shape[1]] = cycles
    np.packbits(lines, axis=1, bitorder="little").tofile(folder / "cycles.bin")
    assert simulation.program is not None
    command = [str(simulation.program.resolve()), "cycles.bin", "results.bin"]
    tools.run(command, folder=folder, timeout_s=timeout_s).require("simulate")
    read = np.fromfile(folder / "results.bin", dtype=np.uint8)
    size = 4 * (1 + words(after))
    if read.size != len(valid) * size:
        raise SimulationError(f"simulate: {read.size} bytes came back, expected {size} for each of {len(valid)} cycles")
    result = np.unpackbits(read.reshape(len(valid), size), axis=1, bitorder="little")
    return result[:, 0] == 1, result[:, 32 : 32 + after]


def _run_icarus(
    simulation: Simulation, folder: Path, valid: NDArray[np.bool_], cycles: Bits, timeout_s: float
) -> tuple[NDArray[np.bool_], Bits]:
    rtl = simulation.rtl
    before, after = (sum(port.width for port in ports) for ports in (rtl.inputs, rtl.outputs))
    program = build_icarus(rtl, folder, len(valid), timeout_s)
    lines = np.zeros((len(valid), 8 + 32 * words(before)), dtype=np.uint8)  # a digit of its own for the valid bit
    lines[:, 7] = valid
    lines[:, lines.shape[1] - before :] = cycles[:, ::-1]
    packed = np.packbits(lines, axis=1)
    (folder / "cycles.hex").write_text("".join(f"{row.tobytes().hex()[1:]}\n" for row in packed))
    tools.run(["vvp", "-n", program.name], folder=folder, timeout_s=timeout_s).require("simulate")
    said = (folder / "results.hex").read_text().split()
    if len(said) != len(valid):
        raise SimulationError(f"simulate: {len(said)} cycles came back, expected {len(valid)}")
    flags = np.array([line[0] == "1" for line in said])
    digits = 8 * words(after)
    # Before the first results there are registers without a value ("x"); what is valid must have one.
    undefined = [i for i, line in enumerate(said) if (flags[i] and set(line) & set("xXzZ")) or line[0] not in "01"]
    undefined = [i for i in undefined if flags[i] or i >= rtl.latency]
    if undefined:
        raise SimulationError(f"simulate: undefined bits in a valid result, cycle {undefined[0]}: {said[undefined[0]]}")
    known = [line[1:] if flag else "0" * digits for line, flag in zip(said, flags, strict=True)]
    raw = np.frombuffer(bytes.fromhex("".join(known)), dtype=np.uint8).reshape(len(valid), digits // 2)
    return flags, np.unpackbits(raw, axis=1)[:, ::-1][:, :after]


def _run_reader(
    simulation: Simulation, folder: Path, valid: NDArray[np.bool_], cycles: Bits, timeout_s: float
) -> tuple[NDArray[np.bool_], Bits]:
    """The text, run by :mod:`reader`: cycle t holds what a simulator sees before the clock's edge."""
    rtl = simulation.rtl
    assert rtl.text is not None
    texts = {text.name: text for text in map(reader.read, [*(module.text for module in rtl.modules), rtl.text])}
    inputs, start = {"valid_in": reader.Column(1, valid.astype(np.int64))}, 0
    for port in rtl.inputs:
        inputs[port.name] = reader.Column(port.width, rows=cycles[:, start : start + port.width])
        start += port.width
    found = reader.run(texts, rtl.top, inputs)
    return found["valid_out"].matrix()[:, 0] == 1, np.concatenate(
        [found[port.name].matrix() for port in rtl.outputs], axis=1
    )


def compile_simulation(
    rtl: Rtl,
    network: IntegerNetwork,
    folder: Path | str,
    *,
    tool: str = "auto",
    timeout_s: float = 600.0,
    jobs: int | None = None,
) -> Simulation:
    """Compile a design's simulation into a fresh folder under ``folder``.

    Parameters
    ----------
    network:
        What the design was generated from: it knows the shapes.
    tool:
        'verilator', 'icarus', or 'auto': the first of them that is there. 'reader': :mod:`reader`, which needs nothing.
    jobs:
        Compilers at once; default: one a processor, at most 4.

    Raises
    ------
    SimulationError
        If no simulator is there, or the design has no top.
    ValueError
        If the design is another network's.
    ToolError
        If a tool fails or exceeds its time; the text has its last lines.
    """
    if rtl.network != network.digest:
        raise ValueError(f"simulate: a design of network {rtl.network[:12]}, given network {network.digest[:12]}")
    if rtl.text is None:
        parts = [f"{module.name}: {module.unrolled}" for module in rtl.modules if module.unrolled]
        raise SimulationError(
            f"simulate: the design has no top, since not all of it is unrolled ({'; '.join(parts)}); raise "
            "RtlConfig.max_products, or simulate its modules"
        )
    work = tools.fresh_folder(folder, "rtl").resolve()
    shapes = {name: value.shape for name, value in network.values.items()}
    if tool == "reader":
        return Simulation(rtl, shapes, "reader", None, work, "hawq_flow's own reader")
    found = choose(tool, work)
    if not isinstance(found, Verilator):
        return Simulation(rtl, shapes, "icarus", None, work, found)
    program = build_verilator(found, rtl, work, timeout_s, jobs or min(4, os.cpu_count() or 1))
    return Simulation(rtl, shapes, "verilator", program, work, found.version)


def simulate(
    rtl: Rtl,
    network: IntegerNetwork,
    x: ArrayLike | Mapping[str, ArrayLike],
    folder: Path | str,
    *,
    tool: str = "auto",
    timeout_s: float = 600.0,
) -> dict[str, IntArray]:
    """Compile and run: see :func:`compile_simulation` and :meth:`Simulation.run`."""
    return compile_simulation(rtl, network, folder, tool=tool, timeout_s=timeout_s).run(x, timeout_s=timeout_s)


def traced(rtl: Rtl) -> Rtl:
    """The same modules under a top whose outputs are the values that leave every stage: to find where one differs."""
    leaving = [module.outputs[0].value for module in rtl.modules]
    wanted = dict.fromkeys([*leaving, *(port.value for port in rtl.outputs)])
    return assemble(rtl.network, rtl.inputs, rtl.modules, list(wanted))
