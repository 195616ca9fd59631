"""IntegerNetwork -> Verilog-2001: a module a stage, and a streaming top with one result each clock cycle."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence

import numpy as np

from hawq_flow.network import Conv, Dense, IntegerNetwork, Lookup, Op, Requantize, Value
from hawq_flow.to_rtl.circuit import Circuit, Signal, constant, literal, width
from hawq_flow.to_rtl.config import RtlConfig
from hawq_flow.to_rtl.design import Module, Port, Ranges, Rtl
from hawq_flow.to_rtl.names import Names
from hawq_flow.to_rtl.operations import Signals, build
from hawq_flow.to_rtl.plan import WIRES, Stage, one_position, positions, stages, unrolled

RESERVED = ("clk", "valid_in", "valid_out", "valid", "top", "harness", "bench", "dut")


def generate(network: IntegerNetwork, config: RtlConfig | None = None) -> Rtl:
    """The design of a network: deterministic, exact for every input within its declared types.

    Raises
    ------
    NotSynthesizable
        Naming the op, the reason and the fix.
    """
    config = config or RtlConfig()
    names = Names(RESERVED)
    ports = {name: names.claim(name) for name in network.values}
    planned = stages(network)
    whole = {stage.output: unrolled(network, stage, config) for stage in planned}
    modules = []
    values: Mapping[str, Value]
    for stage in planned:
        named = names.claim(f"{_called(stage)}_stage")
        if not whole[stage.output]:
            ops, values = one_position(network, stage)
            copies = positions(network, stage)
        elif all(whole.values()) or not all(isinstance(op, WIRES) for op in stage.ops):
            ops, values, copies = stage.ops, network.values, 1
        else:  # wires of a design without a top
            continue
        modules.append(_module(stage, ops, values, named, ports, config, copies))
    inputs = [port(ports[spec.name], spec.name, network.values[spec.name]) for spec in network.inputs]
    wanted = list(dict.fromkeys(output.name for output in network.outputs))
    if all(whole.values()):
        return assemble(network.digest, inputs, modules, wanted)
    outputs = [port(ports[value], value, network.values[value]) for value in wanted]
    return Rtl(network.digest, "top", None, tuple(modules), tuple(inputs), tuple(outputs), 0, 0)


def _called(stage: Stage) -> str:
    """The op that a stage is called by: its layer, else its first that is not wires, else its last."""
    layer = (op for op in stage.ops if isinstance(op, Dense | Conv))
    computing = (op for op in stage.ops if not isinstance(op, WIRES))
    return next(layer, next(computing, stage.ops[-1])).name


def port(name: str, value: str, derived: Value) -> Port:
    """The bus of a value: elements as wide as the widest of them needs to be."""
    low, high = int(derived.low.min()), int(derived.high.max())
    return Port(name, value, max(1, width(low, high)), low < 0, int(np.prod(derived.shape)))


def entering(bus: Port, derived: Value) -> Signals:
    """The elements of a value that enters a module, each with its own range."""
    result = np.empty(derived.shape, dtype=object)
    for i, index in enumerate(np.ndindex(derived.shape)):
        low, high = int(derived.low[index]), int(derived.high[index])
        result[index] = constant(low) if low == high else Signal(low, high, bus.name, i * bus.bits, bus.width)
    return result


def _module(
    stage: Stage,
    ops: Sequence[Op],
    values: Mapping[str, Value],
    name: str,
    ports: Mapping[str, str],
    config: RtlConfig,
    copies: int,
) -> Module:
    """The module of a stage, or of its ops cut down to one of ``copies`` positions."""
    inside = {op.name for op in ops}
    entered = list(dict.fromkeys(operand for op in ops for operand in op.inputs if operand not in inside))
    inputs = tuple(port(ports[value], value, values[value]) for value in entered)
    output = port(ports[stage.output], stage.output, values[stage.output])
    names = Names((*RESERVED, name, output.name, *(bus.name for bus in inputs)))
    circuit = Circuit(names, None if isinstance(config.pipeline, str) else config.pipeline)
    known: dict[str, Signals] = {bus.value: entering(bus, values[bus.value]) for bus in inputs}
    for op in ops:
        circuit.comment(describe(op, values))
        known[op.name] = build(circuit, op, [known[operand] for operand in op.inputs], values[op.name], config)
    results = [circuit.signal(x) for x in known[stage.output].ravel()]
    named = tuple(op.name for op in stage.ops)
    part = None if copies == 1 else f"1 of {copies} positions"
    made = finish(circuit, name, inputs, output, results, named, config, part, copies)
    return dataclasses.replace(made, ranges=tuple(_ranges(values[bus.value]) for bus in inputs))


def _ranges(value: Value) -> Ranges:
    return tuple(zip(value.low.ravel().tolist(), value.high.ravel().tolist(), strict=True))


def describe(op: Op, values: Mapping[str, Value]) -> str:
    """One op in words: kind, name, shape, range, and how it rounds."""
    value = values[op.name]
    text = f"{op.kind} {op.name} ({', '.join(map(str, value.shape))}): {int(value.low.min())}..{int(value.high.max())}"
    if isinstance(op, Requantize):
        text += f", {op.type}, {op.rounding.value}, {op.overflow.value}"
    if isinstance(op, Lookup) and op.function:
        text += f", {op.function}"
    return " ".join(text.split())


def finish(
    circuit: Circuit,
    name: str,
    inputs: Sequence[Port],
    output: Port,
    results: Sequence[Signal],
    ops: tuple[str, ...],
    config: RtlConfig,
    part: str | None,
    copies: int,
) -> Module:
    """The module of a finished circuit: results brought to one cycle, and into the output's register."""
    last = max((x.cycle for x in results if not x.constant), default=0)
    latency = 0 if config.pipeline == "none" else last + 1
    # Multipliers: a register a result, the sign extended behind it. Yosys puts the register of a product into its
    # DSP48E1, and where one register holds a bit of P more than once it leaves the copies undriven.
    apart = latency > 0 and circuit.multiplies
    results = [circuit.delayed(x, last + apart) for x in results]
    texts = [x.bits(0, output.bits) for x in results]
    packed = texts[0] if len(texts) == 1 else "{\n        " + ",\n        ".join(reversed(texts)) + "}"
    head = [f"    input wire [{bus.width - 1}:0] {bus.name}" for bus in inputs]
    if latency:
        head.insert(0, "    input wire clk")
    at_output = latency > 0 and not apart
    head.append(f"    output {'reg' if at_output else 'wire'} [{output.width - 1}:0] {output.name}")
    lines = ["// verilator lint_off UNUSEDSIGNAL", f"// Elements of {_words(output)}; latency {latency}."]
    lines += [f"// {_words(bus)}" for bus in inputs]
    lines += [f"module {name} (", ",\n".join(head), ");"]
    body = [*circuit.functions, *circuit.lines]
    clocked = [*circuit.clocked, *([f"{output.name} <= {packed};"] if at_output else [])]
    if clocked:
        body += ["always @(posedge clk) begin", *(f"  {text}" for text in clocked), "end"]
    if not at_output:
        body.append(f"assign {output.name} = {packed};")
    lines += [f"    {line}" for text in body for line in text.split("\n")]
    lines += ["endmodule", "// verilator lint_on UNUSEDSIGNAL", ""]
    text = "\n".join(lines)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Module(name, text, tuple(inputs), (output,), latency, ops, digest, part, copies)


def _words(bus: Port) -> str:
    return f"{bus.name}: {bus.elements} x {'int' if bus.signed else 'uint'}{bus.bits}"


def assemble(digest: str, inputs: Sequence[Port], modules: Sequence[Module], wanted: Sequence[str]) -> Rtl:
    """The streaming top over modules in order: the values ``wanted`` leave it, all in one cycle, at least one later."""
    names = Names(RESERVED)
    for bus in (*inputs, *(bus for module in modules for bus in module.outputs)):
        names.claim(bus.name)
    for module in modules:
        names.claim(module.name)
    there = {bus.value: 0 for bus in inputs}
    buses = {bus.value: bus for bus in inputs}
    begin: dict[str, int] = {}
    for module in modules:
        begin[module.name] = max((there[bus.value] for bus in module.inputs), default=0)
        for bus in module.outputs:
            there[bus.value] = begin[module.name] + module.latency
            buses[bus.value] = bus
    latency = max(1, *(there[name] for name in wanted))
    lines: list[str] = []
    clocked: list[str] = []
    chains: dict[str, list[str]] = {}

    def at(value: str, cycle: int) -> str:
        chain, bus = chains.setdefault(value, [buses[value].name]), buses[value]
        while len(chain) <= cycle - there[value]:
            name = names.claim(f"{bus.name}_delayed_{len(chain)}")
            lines.append(f"    reg [{bus.width - 1}:0] {name};")
            clocked.append(f"        {name} <= {chain[-1]};")
            chain.append(name)
        return chain[cycle - there[value]]

    for module in modules:
        connections = [(bus.name, at(bus.value, begin[module.name])) for bus in module.inputs]
        bus = module.outputs[0]
        lines.append(f"    wire [{bus.width - 1}:0] {bus.name};")
        connections.append((bus.name, bus.name))
        if module.latency:
            connections.insert(0, ("clk", "clk"))
        inside = ", ".join(f".{inner}({outer})" for inner, outer in connections)
        lines.append(f"    {module.name} {names.claim(f'u_{module.name}')} ({inside});")
    outputs, assigns = [], []
    for value in wanted:
        bus = buses[value]
        outputs.append(Port(names.claim(f"{bus.name}_out"), value, bus.bits, bus.signed, bus.elements))
        assigns.append(f"    assign {outputs[-1].name} = {at(value, latency)};")
    head = ["    input wire clk", "    input wire valid_in"]
    head += [f"    input wire [{bus.width - 1}:0] {bus.name}" for bus in inputs]
    head += ["    output wire valid_out", *(f"    output wire [{bus.width - 1}:0] {bus.name}" for bus in outputs)]
    shifted = "valid_in" if latency == 1 else f"{{valid[{latency - 2}:0], valid_in}}"
    text = [
        f"// Network {digest[:16]}: a result every cycle, {latency} cycles after its input.",
        "module top (",
        ",\n".join(head),
        ");",
        f"    reg [{latency - 1}:0] valid;",
        f"    initial valid = {literal(0, latency)};",
        f"    assign valid_out = valid[{latency - 1}];",
        *lines,
        *assigns,
        "    always @(posedge clk) begin",
        f"        valid <= {shifted};",
        *clocked,
        "    end",
        "endmodule",
        "",
    ]
    delay_bits = latency + sum(buses[value].width * (len(chain) - 1) for value, chain in chains.items())
    return Rtl(digest, "top", "\n".join(text), tuple(modules), tuple(inputs), tuple(outputs), latency, delay_bits)
