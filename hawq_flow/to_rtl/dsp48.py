"""Multiplier blocks DSP48E1 (7 Series) and DSP48E2 (UltraScale) as Yosys configures them: ``P = Z +- A' * B + carry``.

``A'`` is A, or the pre-adder's ``D +- A``; Z is 0, C, the neighbour's PCIN, or that shifted right by 17. A and B come
from the pins or from the neighbour's ACOUT and BCOUT: a product too wide for one block is cut into several so.
Registers (A, B, C, D, AD, M, P) delay and change nothing else, M and P may be reset to 0. After AMD's UG479 and UG579;
any other setting is an error that names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hawq_flow.numeric import IntArray
from hawq_flow.to_rtl.cells import ONE, ZERO, Cell, Kind, Node

DSP_TYPES = {"DSP48E1": 25, "DSP48E2": 27}
"""Types, and how many bits of A the multiplier takes (of B: 18)."""
_CASCADE_SHIFT = 17
_ENABLES = {"AREG": "CEA2", "BREG": "CEB2", "CREG": "CEC", "DREG": "CED", "ADREG": "CEAD", "MREG": "CEM", "PREG": "CEP"}


@dataclass(frozen=True)
class Dsp:
    """One block.

    Attributes
    ----------
    name, cell:
        Its cell's name and index.
    a, b, c, d:
        Operand nets, lowest bit first (a and d already as wide as the multiplier); empty where not in use. ``c`` is
        what Z selects: C, PCIN or the shifted PCIN.
    reset_m, reset_p:
        Nets that force the product or the result to 0.
    negate_a, subtract:
        Whether the pre-adder takes D - A, and whether the product is subtracted from Z.
    outputs:
        48 nets of P; ``cascade`` those of PCOUT (the same values), or empty.
    registers_a, registers_b, registers_c, registers_d, registers_m, registers_p:
        Registers on each way in, after the product and after the sum.
    """

    name: str
    cell: int
    a: tuple[int, ...]
    b: tuple[int, ...]
    c: tuple[int, ...]
    d: tuple[int, ...]
    reset_m: int
    reset_p: int
    negate_a: bool
    subtract: bool
    outputs: tuple[int, ...]
    cascade: tuple[int, ...]
    registers_a: int
    registers_b: int
    registers_c: int
    registers_d: int
    registers_m: int
    registers_p: int

    @property
    def ways(self) -> list[tuple[tuple[int, ...], int]]:
        """Input nets and the registers between them and P."""
        late = self.registers_m + self.registers_p
        return [
            (self.a, self.registers_a + late),
            (self.b, self.registers_b + late),
            (self.d, self.registers_d + late),
            (self.c, self.registers_c + self.registers_p),
            ((self.reset_m,), late),
            ((self.reset_p,), self.registers_p),
        ]

    @property
    def reads(self) -> list[int]:
        """All its input nets."""
        return [net for nets, _ in self.ways for net in nets]

    def evaluate(self, a: IntArray, b: IntArray, c: IntArray, d: IntArray) -> IntArray:
        """P in int64 modulo 2^48, from signed operands (n,) int64 (0 where not in use); resets left out."""
        width = len(self.a)
        if self.d:
            a = wrapped(d - a if self.negate_a else d + a, width)
        product = a * b
        return wrapped(c - product if self.subtract else c + product, 48)


def wrapped(values: IntArray, bits: int) -> IntArray:
    """Two's complement of ``bits`` bits."""
    half = np.int64(1) << (bits - 1)
    return np.asarray(((values + half) & ((half << 1) - 1)) - half, dtype=np.int64)


def dsp_of(cell: Cell, index: int, fresh: Any) -> Dsp:
    """The block of a cell; ``NetlistError`` where it is set to something else than the module's formula."""
    width = DSP_TYPES[cell.type]
    registers = {name: cell.number(name) for name in _ENABLES}
    for name, enable in _ENABLES.items():
        if registers[name]:
            cell.require({enable: ONE}, "a register that waits has no fixed latency")
            if name not in {"MREG", "PREG"}:
                reset = "RSTD" if name == "ADREG" else f"RST{name[0]}"
                cell.require({reset: ZERO}, "an operand's register that is reset is not modelled")
    if cell.parameters.get("USE_MULT", "MULTIPLY") != "MULTIPLY" or cell.parameters.get("USE_SIMD", "ONE48") != "ONE48":
        raise cell.wrong("USE_MULT or USE_SIMD is set otherwise than MULTIPLY and ONE48")
    cell.require({"CARRYIN": ZERO, "CARRYINSEL": ZERO}, "no carry enters the sums that Yosys packs")
    opmode = _constant(cell, "OPMODE")
    if opmode & 0b1111 != 0b0101 or opmode >> 7:
        raise cell.wrong(f"OPMODE is {opmode:#b}; expected X and Y to be the product and W to be 0")
    z = (opmode >> 4) & 7
    before = tuple(cell.pins.get("PCIN", ()))
    shifted = before[_CASCADE_SHIFT:] + before[-1:] * _CASCADE_SHIFT
    sources: dict[int, Sequence[int]] = {0: (), 1: before, 3: cell.pins.get("C", ()), 5: shifted}
    if z not in sources:
        raise cell.wrong(f"OPMODE selects Z = {z:#05b}; expected 0, PCIN (001), C (011) or PCIN >> 17 (101)")
    alumode = _constant(cell, "ALUMODE")
    if alumode not in (0b0000, 0b0011):
        raise cell.wrong(f"ALUMODE is {alumode:#06b}; expected 0000 (add) or 0011 (subtract)")
    inmode = _constant(cell, "INMODE")
    if inmode & 0b10010:
        raise cell.wrong(f"INMODE is {inmode:#07b}; expected A and B as they come, or the pre-adder")
    uses_adder = cell.parameters.get("AMULTSEL") == "AD" or cell.parameters.get("USE_DPORT") == "TRUE"
    pre = uses_adder and bool(inmode & 0b100)
    if uses_adder and not pre:
        raise cell.wrong(f"the pre-adder is on and INMODE {inmode:#07b} leaves D out; expected D + A or D - A")
    if cell.parameters.get("BMULTSEL", "B") != "B":
        raise cell.wrong("BMULTSEL is not B; expected B at the multiplier")
    outputs = tuple(cell.pin("P", i, default=-1) for i in range(48))
    ad = registers["ADREG"] if pre else 0
    return Dsp(
        name=cell.name,
        cell=index,
        a=tuple(cell.pin(_entry(cell, "A"), i) for i in range(width)),
        b=tuple(cell.pin(_entry(cell, "B"), i) for i in range(18)),
        c=tuple(sources[z]),
        d=tuple(cell.pin("D", i) for i in range(width)) if pre else (),
        reset_m=cell.pin("RSTM") if registers["MREG"] else ZERO,
        reset_p=cell.pin("RSTP") if registers["PREG"] else ZERO,
        negate_a=pre and bool(inmode & 0b1000),
        subtract=alumode == 0b0011,
        outputs=tuple(net if net >= 0 else fresh() for net in outputs),
        cascade=tuple(cell.pins.get("PCOUT", ())),
        registers_a=registers["AREG"] + ad,
        registers_b=registers["BREG"],
        registers_c=registers["CREG"] if z == 3 else 0,
        registers_d=registers["DREG"] + ad,
        registers_m=registers["MREG"],
        registers_p=registers["PREG"],
    )


def cascaded(cell: Cell, fresh: Any) -> list[Node]:
    """ACOUT and BCOUT as nodes: what enters at A and B, behind the registers on the way to the neighbour."""
    nodes = []
    for operand in "AB":
        for i, output in enumerate(cell.pins.get(f"{operand}COUT", ())):
            net = cell.pin(_entry(cell, operand), i)
            for _ in range(cell.number(f"{operand}CASCREG")):
                nodes.append(Node(Kind.FLIP_FLOP, (net,), 0b10, fresh()))
                net = nodes[-1].output
            nodes.append(Node(Kind.BUFFER, (net,), 0b10, output))
    return nodes


def _entry(cell: Cell, operand: str) -> str:
    """The pin at which A or B enters."""
    name = f"{operand}_INPUT"
    found = cell.parameters.get(name, "DIRECT")
    if found not in ("DIRECT", "CASCADE"):
        raise cell.wrong(f"{name} is {found!r}; expected DIRECT or CASCADE")
    return operand if found == "DIRECT" else f"{operand}CIN"


def _constant(cell: Cell, pin: str) -> int:
    """A control pin that must be a constant, as an integer."""
    value = 0
    for i, net in enumerate(cell.pins.get(pin, ())):
        if net not in (ZERO, ONE):
            raise cell.wrong(f"pin {pin}[{i}] is a signal; expected a constant")
        value |= net << i
    return value ^ cell.number(f"IS_{pin}_INVERTED")
