"""What the generator makes and the synthesizer, the simulators and the prover read: Verilog modules and their ports."""

from __future__ import annotations

from dataclasses import dataclass

from hawq_flow import images

SYNTHESIS_NOTE = "Yosys, not Vivado"
Ranges = tuple[tuple[int, int], ...]
"""The least and greatest integer of each element."""


@dataclass(frozen=True)
class Port:
    """A packed bus of ``elements`` integers of ``bits`` each; element 0 in the lowest bits, channels-first order.

    ``value`` names the network's value that travels on it.
    """

    name: str
    value: str
    bits: int
    signed: bool
    elements: int

    @property
    def width(self) -> int:
        """Bits of the whole bus."""
        return self.bits * self.elements

    @property
    def range(self) -> tuple[int, int]:
        """Smallest and largest integer that an element's bits hold."""
        return images.limits(self.bits, self.signed)


@dataclass(frozen=True)
class Module:
    """One Verilog-2001 module: a stage of the network.

    Attributes
    ----------
    name, text:
        The module's name and its whole text (self-contained: it instantiates nothing).
    inputs, outputs:
        Data ports; a clocked module has the port ``clk`` as well.
    latency:
        Clock cycles from inputs to outputs; 0: combinational, and no ``clk``.
    ops:
        Names of the network's ops that it computes, in order.
    digest:
        SHA-256 of the text: the key under which its synthesis is cached.
    unrolled:
        None: the module computes its ops wholly. Else what it is instead, for the report: "1 of 64 positions".
    copies:
        How many of it a fully unrolled network would have (1 unless ``unrolled``).
    ranges:
        By input port, the least and greatest integer that each element has in the network: outside, the text's wires
        may overflow. None: whatever the ports hold.
    """

    name: str
    text: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    latency: int
    ops: tuple[str, ...]
    digest: str
    unrolled: str | None = None
    copies: int = 1
    ranges: tuple[Ranges, ...] | None = None

    @property
    def input_ranges(self) -> tuple[Ranges, ...]:
        """``ranges``, or those of the ports' bits."""
        return self.ranges or tuple((port.range,) * port.elements for port in self.inputs)


@dataclass(frozen=True)
class Rtl:
    """The design of one network.

    Attributes
    ----------
    network:
        The network's digest.
    top, text:
        Name and text of the streaming top: ``clk``, ``valid_in``, one data port an input of the network, ``valid_out``,
        one an output; it instantiates every module once and delays what skips stages. None where the design is not
        wholly unrolled: then there are modules, for figures, and no top.
    modules:
        Stages in order.
    inputs, outputs:
        Data ports of the top.
    latency:
        Clock cycles from ``valid_in`` to ``valid_out``; the initiation interval is 1.
    delay_bits:
        Flip-flops of the top itself (valid bits and delay lines).
    """

    network: str
    top: str
    text: str | None
    modules: tuple[Module, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    latency: int
    delay_bits: int
