"""Xilinx primitives that Yosys leaves in a netlist, as tables of at most six inputs.

Nearly every primitive is a Boolean function of few bits, so one representation holds them all: a *node* with up to six
input nets, a truth table of 64 bits (bit ``i`` is the output where the inputs, the first as bit 0, spell ``i``) and one
output net. A ``CARRY4`` is four sums ``O[i] = S[i] ^ C[i]`` and four multiplexers ``C[i+1] = S[i] ? C[i] : DI[i]``; a
flip-flop is its D behind a synchronous reset or set; what it delays is counted apart (see ``netlist``). Multiplier
blocks are the exception: see ``dsp48``.

Meaning after AMD's UG953 and UG974 (7 Series and UltraScale libraries guides). Every pin that would make a cell
something else than this, and every primitive not listed, is an error that names it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ZERO, ONE, UNKNOWN = 0, 1, 2
"""Nets of the constants 0, 1 and x; others follow."""


class NetlistError(ValueError):
    """A netlist that cannot be read, is not what its module promised, or holds what the simulator does not know."""


class Kind(enum.IntEnum):
    """What a node is, for counting and for delays."""

    LUT = 0
    INVERTER = 1
    MUXF = 2
    BUFFER = 3
    CARRY_SUM = 4
    CARRY_OUT = 5
    CARRY_IN = 6
    FLIP_FLOP = 7


@dataclass(frozen=True)
class Node:
    """One Boolean function: ``output`` net, ``inputs`` nets (at most six), ``table`` of ``2 ** len(inputs)`` bits."""

    kind: Kind
    inputs: tuple[int, ...]
    table: int
    output: int


@dataclass(frozen=True)
class Cell:
    """A cell of the netlist: its pins as nets, lowest bit first, and its parameters as Yosys wrote them."""

    name: str
    type: str
    pins: Mapping[str, Sequence[int]]
    parameters: Mapping[str, Any]

    def pin(self, name: str, index: int = 0, default: int = ZERO) -> int:
        """Net of one pin bit; ``default`` where nothing is connected."""
        nets = self.pins.get(name, ())
        return nets[index] if index < len(nets) else default

    def number(self, name: str, default: int = 0) -> int:
        """A parameter as an integer; Yosys writes them as strings of bits."""
        value = self.parameters.get(name, default)
        if isinstance(value, int):
            return value
        try:
            return int(value, 2)
        except ValueError:
            raise self.wrong(f"parameter {name} is {value!r}; expected a string of the bits 0 and 1") from None

    def wrong(self, what: str) -> NetlistError:
        """An error about this cell."""
        return NetlistError(f"cell {self.name} ({self.type}): {what}")

    def require(self, pins: Mapping[str, int], why: str) -> None:
        """``NetlistError`` unless every bit of these pins is tied to the given constant (or not connected)."""
        for name, constant in pins.items():
            for net in self.pins.get(name, ()):
                if net != constant:
                    found = {ZERO: "0", ONE: "1", UNKNOWN: "x"}.get(net, "a signal")
                    raise self.wrong(f"pin {name} is {found}, expected constant {constant}: {why}")


_BUFFERS = {"BUF", "IBUF", "OBUF", "BUFG", "IBUFG"}
_FLIP_FLOPS = {"FDRE": ("R", 0), "FDSE": ("S", 1), "FDCE": ("CLR", 0), "FDPE": ("PRE", 1)}
SEQUENTIAL = {**dict.fromkeys(_FLIP_FLOPS, "C"), "$dff": "CLK", "$_DFF_P_": "C"}
"""Cells with a clock, and its pin."""
IGNORED = frozenset({"$scopeinfo"})


def nodes_of(cell: Cell, fresh: Any) -> list[Node]:
    """The nodes of a cell; ``fresh()`` gives a new net. ``NetlistError`` for a primitive or a pin not known here."""
    kind = cell.type
    if kind.startswith("LUT") and kind[3:] in {"1", "2", "3", "4", "5", "6"}:
        inputs = tuple(cell.pin(f"I{i}", default=UNKNOWN) for i in range(int(kind[3:])))
        return [Node(Kind.LUT, inputs, cell.number("INIT"), cell.pin("O", default=UNKNOWN))]
    if kind == "INV":
        return [Node(Kind.INVERTER, (cell.pin("I", default=UNKNOWN),), 0b01, cell.pin("O", default=UNKNOWN))]
    if kind in _BUFFERS:
        return [Node(Kind.BUFFER, (cell.pin("I", default=UNKNOWN),), 0b10, cell.pin("O", default=UNKNOWN))]
    if kind in {"MUXF7", "MUXF8", "MUXF9"}:
        pins = tuple(cell.pin(name, default=UNKNOWN) for name in ("I0", "I1", "S"))
        return [Node(Kind.MUXF, pins, 0b11001010, cell.pin("O", default=UNKNOWN))]
    if kind == "CARRY4":
        return _carry(cell, fresh)
    if kind in _FLIP_FLOPS:
        return [_flip_flop(cell)]
    raise cell.wrong(
        "a primitive that the netlist's reader does not know; it knows LUT1 to LUT6, INV, BUF, IBUF, OBUF, BUFG, "
        "MUXF7 to MUXF9, CARRY4, FDRE, FDSE, FDCE, FDPE, DSP48E1 and DSP48E2"
    )


def _carry(cell: Cell, fresh: Any) -> list[Node]:
    """``C[0] = CI | CYINIT`` (at most one of them is in use), then a sum and a multiplexer a bit."""
    nodes: list[Node] = []
    ci, cyinit = cell.pin("CI"), cell.pin("CYINIT")
    if cyinit == ZERO:
        carry = ci
    elif ci == ZERO:
        carry = cyinit
    else:
        carry = fresh()
        nodes.append(Node(Kind.CARRY_IN, (ci, cyinit), 0b1110, carry))
    for i in range(4):
        select, data = cell.pin("S", i), cell.pin("DI", i)
        total, out = (cell.pin(name, i, default=-1) for name in ("O", "CO"))
        out = fresh() if out < 0 else out
        if total >= 0:
            nodes.append(Node(Kind.CARRY_SUM, (select, carry), 0b0110, total))
        nodes.append(Node(Kind.CARRY_OUT, (data, carry, select), 0b11001010, out))
        carry = out
    return nodes


def _flip_flop(cell: Cell) -> Node:
    """D, or 0 or 1 where the synchronous reset or set is on. Enabled always; inversions of pins are in the table."""
    reset, value = _FLIP_FLOPS[cell.type]
    cell.require({"CE": ONE}, "a register that waits has no fixed latency")
    if cell.number("IS_C_INVERTED"):
        raise cell.wrong("clocked by the falling edge; expected the rising edge of one clock")
    invert_d = cell.number("IS_D_INVERTED")
    invert_r = cell.number(f"IS_{reset}_INVERTED")
    pins = (cell.pin("D", default=UNKNOWN), cell.pin(reset))
    if cell.type in {"FDCE", "FDPE"}:
        cell.require({reset: ONE if invert_r else ZERO}, "an asynchronous reset is no function of one clock cycle")
    table = 0
    for i in range(4):
        d, r = i & 1, i >> 1
        table |= (value if r ^ invert_r else d ^ invert_d) << i
    return Node(Kind.FLIP_FLOP, pins, table, cell.pin("Q", default=UNKNOWN))
