"""The self-checking testbench of a Verilog design: plain Verilog-2001 for any simulator, with scripts for two.

The design's constants are dissolved in shifts and adders, so what is wrong can only be seen in what is computed. The
testbench therefore looks at what leaves every stage, too, by hierarchical reference into the very top that is handed
over: a value that is there ``d`` cycles after its row entered is compared ``d`` cycles after its row entered. The first
difference in time is one of the first wrong stage, since every stage after it is later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from hawq_flow import images, interpret, to_rtl
from hawq_flow.handover import rtl_testbench_text as texts
from hawq_flow.handover.checksum import checksum
from hawq_flow.network import IntegerNetwork, Shape
from hawq_flow.numeric import IntArray
from hawq_flow.to_rtl import Port, Rtl, SimulationError
from hawq_flow.to_rtl.writing import sources

FOLDER = "testbench"
STAGE_ROWS = 1000
"""Rows of which every stage's values are carried along."""
ICARUS_ROW_LINES = 4_000_000
"""Rows times lines of Verilog that Icarus simulates in about 20 s: 50 rows a second of the jet tagger's 4400 lines."""


@dataclass(frozen=True)
class _Bus:
    """Something to compare: where it is in the testbench, when it is there, whose it is."""

    signal: str
    port: Port
    memory: str
    cycle: int
    stage: str
    shape: Shape


def write(
    rtl: Rtl,
    network: IntegerNetwork,
    folder: Path,
    x: ArrayLike | Mapping[str, ArrayLike],
    *,
    stage_rows: int = STAGE_ROWS,
) -> None:
    """Write a design (:func:`to_rtl.write`) and its testbench into ``folder``, which must not exist.

    In ``folder / "testbench"``: ``testbench.v``, ``clock.v``, ``verilator_main.cpp``, ``run.sh``, the vectors
    ``inputs.hex`` and ``outputs.hex`` (``inputs.PORT.hex`` where there are several) and ``stage.SIGNAL.hex`` for every
    stage. The same arguments give the same bytes.

    Parameters
    ----------
    x:
        Integers (n, *input shape), n >= 1; with several inputs a mapping by name.
    stage_rows:
        Of how many rows (at most n) every stage is compared.

    Raises
    ------
    SimulationError
        If the design has no top, since not all of it is unrolled.
    ValueError
        If the design is another network's, or there are no rows.
    NetworkError
        If the rows do not fit the inputs.
    """
    if rtl.network != network.digest:
        raise ValueError(f"rtl_testbench: a design of network {rtl.network[:12]}, given network {network.digest[:12]}")
    if rtl.text is None:
        parts = [f"{module.name}: {module.unrolled}" for module in rtl.modules if module.unrolled]
        raise SimulationError(
            f"rtl_testbench: the design has no top to test, since not all of it is unrolled ({'; '.join(parts)}); "
            "raise RtlConfig.max_products, or hand it over without Verilog"
        )
    rows = interpret.check_inputs(network, x)
    count = len(next(iter(rows.values())))
    if not count or stage_rows < 1:
        raise ValueError(
            f"rtl_testbench: {count} rows, of {stage_rows} every stage; without rows a testbench proves nothing"
        )
    few = min(count, stage_rows)
    stages, outputs = _stages(rtl, network), _outputs(rtl, network)
    contents: dict[str, tuple[Port, IntArray]] = {}
    for port in rtl.inputs:
        contents[_name("inputs", port, rtl.inputs)] = (port, rows[port.value])
    results = interpret.outputs(network, rows)
    for port in rtl.outputs:
        contents[_name("outputs", port, rtl.outputs)] = (port, results[port.value])
    trace = interpret.trace(network, {name: array[:few] for name, array in rows.items()})
    for bus in stages:
        contents[f"stage.{bus.port.name}.hex"] = (bus.port, trace[bus.port.value])
    to_rtl.write(rtl, folder)
    target = Path(folder) / FOLDER
    target.mkdir()
    checks: dict[str, int] = {}
    for name, (port, values) in contents.items():
        flat = values.reshape(len(values), port.elements)
        text = images.words(flat, port.bits, port.signed, "hex", name)
        (target / name).write_text(text)
        checks[name] = checksum(text)
    names = [f"../{name}" for name in sources(rtl)]
    lines = sum(module.text.count("\n") for module in rtl.modules)
    fields = {
        "SOURCES": " ".join(names),
        "ICARUS_ROWS": str(min(count, max(1, ICARUS_ROW_LINES // max(1, lines)))),
        "DIGEST": rtl.network[:16],
        "TOP": rtl.top,
        "ROWS": str(count),
        "STAGE_ROWS": str(few),
        "STAGE_COUNT": str(len(stages)),
        "LATENCY": str(rtl.latency),
        "DEPTH": str(max([rtl.latency, *(bus.cycle for bus in stages)])),
        **_parts(rtl, stages, outputs, checks),
    }
    written = {"testbench.v": texts.TESTBENCH, "clock.v": texts.CLOCK, "verilator_main.cpp": texts.MAIN}
    for name, text in (written | {"run.sh": texts.RUN}).items():
        for field, value in fields.items():
            text = text.replace(f"@{field}@", value)
        (target / name).write_text(text)
    (target / "run.sh").chmod(0o755)


def _name(kind: str, port: Port, ports: Sequence[Port]) -> str:
    return f"{kind}.hex" if len(ports) == 1 else f"{kind}.{port.name}.hex"


def _stages(rtl: Rtl, network: IntegerNetwork) -> list[_Bus]:
    """What leaves every stage, and how many cycles after its row has entered."""
    there = {port.value: 0 for port in rtl.inputs}
    result = []
    for k, module in enumerate(rtl.modules):
        begin = max((there[port.value] for port in module.inputs), default=0)
        port = module.outputs[0]
        there[port.value] = begin + module.latency
        shape = network.values[port.value].shape
        result.append(_Bus(f"dut.{port.name}", port, f"stage_{k}", there[port.value], module.name, shape))
    return result


def _outputs(rtl: Rtl, network: IntegerNetwork) -> list[_Bus]:
    return [
        _Bus(f"out_{k}", port, f"outputs_{k}", rtl.latency, "", network.values[port.value].shape)
        for k, port in enumerate(rtl.outputs)
    ]


def _parts(rtl: Rtl, stages: Sequence[_Bus], outputs: Sequence[_Bus], checks: Mapping[str, int]) -> dict[str, str]:
    """The parts of testbench.v that are written out for each bus."""
    inputs = list(enumerate(rtl.inputs))
    memories = [f"reg [{port.width - 1}:0] inputs_{k} [0:ROWS-1];" for k, port in inputs]
    memories += [f"reg [{bus.port.width - 1}:0] {bus.memory} [0:ROWS-1];" for bus in outputs]
    memories += [f"reg [{bus.port.width - 1}:0] {bus.memory} [0:STAGE_ROWS-1];" for bus in stages]
    files = [(_name("inputs", port, rtl.inputs), f"inputs_{k}", port, "ROWS") for k, port in inputs]
    files += [(_name("outputs", bus.port, rtl.outputs), bus.memory, bus.port, "ROWS") for bus in outputs]
    files += [(f"stage.{bus.port.name}.hex", bus.memory, bus.port, "STAGE_ROWS") for bus in stages]
    buses = [f"reg [{port.width - 1}:0] in_{k};" for k, port in inputs]
    buses += [f"wire [{bus.port.width - 1}:0] {bus.signal};" for bus in outputs]
    connections = [f".{port.name}(in_{k})" for k, port in inputs]
    connections += [f".{bus.port.name}({bus.signal})" for bus in outputs]
    wanted = [f"reg [{bus.port.width - 1}:0] want_{bus.memory};" for bus in (*stages, *outputs)]
    counters = [f"integer seen_{bus.memory};" for bus in stages]
    return {
        "NAME": str(max(len(name) for name, *_ in files)),
        "MEMORIES": _lines(memories, 1),
        "BUSES": _lines(buses, 1),
        "CONNECTIONS": ", ".join(connections),
        "COUNTERS": _lines([*wanted, *counters], 1),
        "RESETS": _lines([f"seen_{bus.memory} = 0;" for bus in stages], 2),
        "CHECKS": _lines(
            [f'if (!done) check_file("{n}", {-(-p.width // 4)}, {rows}, 32\'d{checks[n]});' for n, _, p, rows in files],
            2,
        ),
        "READS": _lines([f'$readmemh("{name}", {memory});' for name, memory, _, _ in files], 3),
        "STAGES": "\n".join(_stage(bus) for bus in stages),
        "OUTPUTS": "\n".join(_compared(bus, "received", "output", 3) for bus in outputs),
        "ENTERS": _lines([f"in_{k} <= inputs_{k}[sent];" for k, _ in inputs], 3),
        "OTHERS": _lines([f"in_{k} <= ~in_{k};" for k, _ in inputs], 3),
        "UNKNOWNS": _lines([f"in_{k} <= {{{port.width}{{1'bx}}}};" for k, port in inputs], 3),
    }


def _lines(lines: Sequence[str], depth: int) -> str:
    return "\n".join("    " * depth + line for line in lines)


def _stage(bus: _Bus) -> str:
    """The comparison of a stage: as long as there are vectors for it."""
    seen = f"seen_{bus.memory}"
    return "\n".join(
        [
            f"        if (!done && live[{bus.cycle}] && {seen} < STAGE_ROWS) begin",
            _compared(bus, seen, f"stage {bus.stage}", 3),
            f"            {seen} = {seen} + 1;",
            "        end",
        ]
    )


def _compared(bus: _Bus, row: str, what: str, depth: int) -> str:
    """The comparison of one bus with its row; what differs by element, the network's index with it."""
    bits, want = bus.port.bits, f"want_{bus.memory}"
    got, expected = (f"{name}[e*{bits} +: {bits}]" for name in (bus.signal, want))
    shown = [f"$signed({text})" if bus.port.signed else text for text in (got, expected)]
    index, place = [], ""
    if len(bus.shape) > 1:
        after = [int(np.prod(bus.shape[axis + 1 :])) for axis in range(len(bus.shape))]
        index = [f"(e / {step}) % {size}" for step, size in zip(after, bus.shape, strict=True)]
        place = f" ({', '.join(['%0d'] * len(index))})"
    arguments = ", ".join(["nonce", row, "e", *index, *shown])
    text = f"%0s: FAIL: {what}: value {bus.port.value}, row %0d, element %0d{place}: got %0d, expected %0d"
    return _lines(
        [
            f"{want} = {bus.memory}[{row}];",
            f"if (!done && {bus.signal} !== {want})",
            f"    for (e = 0; e < {bus.port.elements}; e = e + 1)",
            f"        if (!done && {got} !== {expected}) begin",
            "            done = 1'b1;",
            f'            $display("{text}",',
            f"                {arguments});",
            "        end",
        ],
        depth,
    )
