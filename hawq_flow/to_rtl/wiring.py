"""The streaming top read back: every bus traced to the network's value on it, and to the cycle in which it is there.

A bus of the top is an input (cycle 0), a register of another bus (a cycle later), or the output of a module (its
latency after its inputs). :func:`check_top` reads the text and nothing of how it was made: every module must be there
once, all its inputs of one cycle and each the value that its port names; every output of the network must leave in the
cycle that the design says, and the valid bit with it. If moreover every module computes the values that its ports name,
the top computes the network: by induction over the modules in their order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from hawq_flow.network import IntegerNetwork
from hawq_flow.to_rtl.circuit import literal
from hawq_flow.to_rtl.design import Port, Rtl
from hawq_flow.to_rtl.reader import ReadError, Text, read

VALID = "valid"


class WiringError(ValueError):
    """The top is not shown to pass the network's values to its modules and outputs; the text says where."""


def check_top(network: IntegerNetwork, rtl: Rtl) -> None:
    """``WiringError`` unless the top connects the design's modules into the network."""
    if rtl.text is None:
        raise WiringError("the design has no top")
    try:
        text = read(rtl.text)
    except ReadError as error:
        raise WiringError(str(error)) from error
    wanted = list(dict.fromkeys(output.name for output in network.outputs))
    for what, ports, values in (
        ("inputs", rtl.inputs, [spec.name for spec in network.inputs]),
        ("outputs", rtl.outputs, wanted),
    ):
        found = [port.value for port in ports]
        if found != values:
            raise WiringError(f"its {what} are {', '.join(found) or 'none'}; the network's are {', '.join(values)}")
        for port in ports:
            _holds(network, port)
    if text.name != rtl.top:
        raise WiringError(f"its text is of the module {text.name}; expected {rtl.top}")
    for found_ports, expected in (
        (text.inputs, {"clk": 1, "valid_in": 1, **{port.name: port.width for port in rtl.inputs}}),
        (text.outputs, {"valid_out": 1, **{port.name: port.width for port in rtl.outputs}}),
    ):
        if found_ports != expected:
            raise WiringError(f"its text has the ports {found_ports}; expected {expected} (bits by name)")
    _Trace(rtl, text).run()


def _holds(network: IntegerNetwork, port: Port) -> None:
    """The port has the value's elements, and bits for its range."""
    value = network.values[port.value]
    low, high = port.range
    if port.elements != np.prod(value.shape) or value.low.min() < low or value.high.max() > high:
        raise WiringError(
            f"port {port.name} has {port.elements} elements from {low} to {high}; {port.value} has "
            f"{int(np.prod(value.shape))} from {value.low.min()} to {value.high.max()}"
        )


class _Trace:
    """What is on each bus (as the port that it comes from) and in which cycle."""

    def __init__(self, rtl: Rtl, text: Text) -> None:
        self.rtl, self.text = rtl, text
        self.buses = {port.name: (port, 0) for port in rtl.inputs}
        self.left = {module.name: module for module in rtl.modules}
        if len(self.left) != len(rtl.modules):
            raise WiringError("two modules have one name")
        self.declared: dict[str, int] = {}
        self.nexts = dict(text.nexts)
        self.seen: list[tuple[str, ...]] = []

    def run(self) -> None:
        """Every statement in order, and then nothing may be missing."""
        latency = self.rtl.latency
        fixed = [
            ("reg", str(latency - 1), VALID),
            ("initial", VALID, literal(0, latency)),
            ("assign", "valid_out", f"{VALID}[{latency - 1}]"),
        ]
        shifted = "valid_in" if latency == 1 else f"{{{VALID}[{latency - 2}:0], valid_in}}"
        if (found := self.nexts.pop(VALID, None)) != shifted:
            raise WiringError(f"{VALID} <= {found}; expected {shifted}")
        outputs = {port.name: port for port in self.rtl.outputs}
        for statement in self.text.statements:
            kind, *parts = statement
            if statement in fixed:
                fixed.remove(statement)
            elif kind == "declared":
                self.new(parts[1])
                self.declared[parts[1]] = int(parts[0]) + 1
            elif kind == "reg":
                self.register(parts[1], int(parts[0]) + 1)
            elif kind == "instance":
                self.instance(*parts)
            elif kind == "assign" and parts[0] in outputs:
                port = outputs.pop(parts[0])
                self.connect(f"the output {port.name}", port, parts[1], latency)
            else:
                raise WiringError(f"not expected: {' '.join(statement)}")
        missing = [*(" ".join(statement) for statement in fixed), *self.left, *outputs, *self.declared, *self.nexts]
        if missing:
            raise WiringError(f"missing in its text, or without a source: {', '.join(missing)}")

    def new(self, name: str) -> None:
        """A name that stands for nothing yet."""
        if name in self.buses or name in self.declared or name in (*self.text.inputs, *self.text.outputs, VALID):
            raise WiringError(f"{name} is declared twice")

    def bus(self, where: str, name: str) -> tuple[Port, int]:
        """What is on a bus."""
        if name not in self.buses:
            raise WiringError(f"{where} gets {name}, which is no bus with a source")
        return self.buses[name]

    def register(self, name: str, bits: int) -> None:
        """A register of another bus."""
        self.new(name)
        port, cycle = self.bus(name, self.nexts.pop(name, "nothing"))
        if port.width != bits:
            raise WiringError(f"{name} has {bits} bits, and {port.value} {port.width}")
        self.buses[name] = (port, cycle + 1)

    def connect(self, where: str, port: Port, name: str, cycle: int | None = None) -> int:
        """A port gets its value (in ``cycle``, if that is given); the cycle in which it does."""
        source, found = self.bus(where, name)
        if _form(source) != _form(port):
            raise WiringError(f"{where} gets {_said(source)}; expected {_said(port)}")
        if cycle is not None and found != cycle:
            raise WiringError(f"{where} gets {port.value} in cycle {found}; expected cycle {cycle}")
        return found

    def instance(self, name: str, label: str, connections: str) -> None:
        """A module and what it puts out."""
        module = self.left.pop(name, None)
        if module is None:
            raise WiringError(f"{label} is an instance of {name}, which is no module of the design that is left")
        pairs = [re.fullmatch(r"\.(\w+)\((\w+)\)", part) for part in connections.split(", ")]
        wires = {pair.group(1): pair.group(2) for pair in pairs if pair is not None}
        expected = [*(["clk"] if module.latency else []), *(port.name for port in (*module.inputs, *module.outputs))]
        if sorted(wires) != sorted(expected) or len(pairs) != len(wires) or wires.get("clk", "clk") != "clk":
            raise WiringError(f"{label} is connected as {connections}; expected clk and the ports {_names(expected)}")
        begin: int | None = None
        for port in module.inputs:
            begin = self.connect(f"{label}.{port.name}", port, wires[port.name], begin)
        for port in module.outputs:
            wire = wires[port.name]
            if self.declared.pop(wire, None) != port.width:
                raise WiringError(f"{label} puts {port.name} on {wire}, which is no free wire of {port.width} bits")
            self.buses[wire] = (port, (begin or 0) + module.latency)


def _form(port: Port) -> tuple[str, int, bool, int]:
    return port.value, port.bits, port.signed, port.elements


def _said(port: Port) -> str:
    return f"{port.value} as {port.elements} x {'int' if port.signed else 'uint'}{port.bits}"


def _names(names: Sequence[str]) -> str:
    return ", ".join(names)
