"""The RTL as Yosys' Verilog front end reads it, before any optimization: sums as words, and every cell as nodes.

Yosys turns the text into cells of whole words (``$add``, ``$sub``, ``$mux``...). Two views of them are made. For the
prover's algebra every sum is kept as what it is modulo ``2^width``: ``Y = sum k * A``. For evaluation and for
comparison with the netlist every cell becomes nodes of at most three inputs, sums as ripple-carry adders, in the same
:class:`Netlist` as a synthesized module's. Nothing is optimized in between: what is read is what is written.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hawq_flow.to_rtl.cells import ONE, ZERO, Cell, Kind, Node
from hawq_flow.to_rtl.netlist import Netlist, Reader, parsed

Fresh = Callable[[], int]

WORD_LEVEL_STEPS = (
    "proc -norom",
    "opt_clean",
    "memory -nomap",
    "memory_map",
    "pmuxtree",
    "techmap t:$shl t:$shr t:$sshl t:$sshr t:$shift t:$shiftx t:$div t:$mod t:$pow t:$bmux t:$demux",
    "opt_clean",
)
"""Yosys' steps from the text to the cells that are known here."""


@dataclass(frozen=True)
class Sum:
    """``value(y) = sum k * value(bits)`` modulo ``2 ** len(y)``; ``bits`` are as many as ``y``, lowest first."""

    y: tuple[int, ...]
    terms: tuple[tuple[int, tuple[int, ...]], ...]


@dataclass(frozen=True, eq=False)
class Design:
    """Both views of one module, and its wires: nets by name, lowest bit first."""

    netlist: Netlist
    sums: tuple[Sum, ...]
    wires: Mapping[str, tuple[int, ...]]


def read_design(source: bytes | str | Mapping[str, Any], name: str) -> Design:
    """Module ``name`` of the JSON that Yosys writes after :data:`WORD_LEVEL_STEPS`.

    Raises
    ------
    NetlistError
        For JSON that is none of that module, or a cell that is not known.
    """
    module = parsed(source, name)
    sums: list[Sum] = []

    def nodes(cell: Cell, fresh: Fresh) -> list[Node]:
        found = _sum(cell)
        if found is not None:
            sums.append(found)
        return word_nodes(cell, fresh)

    read = Reader(name, module, nodes)
    netlist = read.netlist()
    wires = {
        wire: tuple(read.nets(described["bits"]))
        for wire, described in module.get("netnames", {}).items()
        if all(bit in read.number for bit in described["bits"])
    }
    return Design(netlist, tuple(sums), wires)


def _operand(cell: Cell, pin: str, width: int) -> tuple[int, ...]:
    """A pin's bits, extended to ``width`` by its sign (as Verilog does where both operands are signed), or cut."""
    bits = list(cell.pins[pin])[:width]
    fill = bits[-1] if cell.number(f"{pin}_SIGNED") and bits else ZERO
    return tuple(bits + [fill] * (width - len(bits)))


def _constant(bits: Sequence[int]) -> int | None:
    """The signed number of constant bits; None where a bit is a signal."""
    if any(bit not in (ZERO, ONE) for bit in bits):
        return None
    value = sum(bit << i for i, bit in enumerate(bits))
    return value - (1 << len(bits)) if bits and bits[-1] == ONE else value


def _sum(cell: Cell) -> Sum | None:
    """What an arithmetic cell says as a linear form; None for other cells, and for products of two signals."""
    if cell.type not in {"$add", "$sub", "$neg", "$mul"}:
        return None
    y = tuple(cell.pins["Y"])
    a = _operand(cell, "A", len(y))
    if cell.type == "$neg":
        return Sum(y, ((-1, a),))
    b = _operand(cell, "B", len(y))
    if cell.type == "$mul":
        factors = [(_constant(b), a), (_constant(a), b)]
        known = [(k, bits) for k, bits in factors if k is not None]
        return Sum(y, (known[0],)) if known else None
    return Sum(y, ((1, a), (1 if cell.type == "$add" else -1, b)))


def _table(function: Callable[..., int], arity: int) -> int:
    """Truth table of a function of bits, the first argument as bit 0."""
    return sum((function(*bits[::-1]) & 1) << i for i, bits in enumerate(itertools.product((0, 1), repeat=arity)))


_NOT = _table(lambda a: 1 - a, 1)
_MUX = _table(lambda a, b, s: b if s else a, 3)
_XOR3 = _table(lambda a, b, c: a ^ b ^ c, 3)
_MAJORITY = _table(lambda a, b, c: int(a + b + c > 1), 3)
_XOR3_NOT_B = _table(lambda a, b, c: a ^ (1 - b) ^ c, 3)
_MAJORITY_NOT_B = _table(lambda a, b, c: int(a + (1 - b) + c > 1), 3)
_TWO = {
    "and": _table(lambda a, b: a & b, 2),
    "or": _table(lambda a, b: a | b, 2),
    "xor": _table(lambda a, b: a ^ b, 2),
    "xnor": _table(lambda a, b: 1 - (a ^ b), 2),
    "nand": _table(lambda a, b: 1 - (a & b), 2),
    "nor": _table(lambda a, b: 1 - (a | b), 2),
    "andnot": _table(lambda a, b: a & (1 - b), 2),
    "ornot": _table(lambda a, b: a | (1 - b), 2),
}


class _Builder:
    """Nodes of one cell under construction."""

    def __init__(self, fresh: Fresh) -> None:
        self.fresh = fresh
        self.nodes: list[Node] = []

    def node(self, inputs: Sequence[int], table: int, output: int | None = None, kind: Kind = Kind.LUT) -> int:
        output = self.fresh() if output is None else output
        self.nodes.append(Node(kind, tuple(inputs), table, output))
        return output

    def chain(self, a: Sequence[int], b: Sequence[int], y: Sequence[int | None], subtract: bool) -> int:
        """``y = a + b`` or ``a - b``, ripple-carry; returns the carry (of a difference: 1 where it does not borrow)."""
        carry = ONE if subtract else ZERO
        for p, q, out in zip(a, b, y, strict=True):
            self.node((p, q, carry), _XOR3_NOT_B if subtract else _XOR3, out)
            carry = self.node((p, q, carry), _MAJORITY_NOT_B if subtract else _MAJORITY)
        return carry

    def reduce(self, bits: Sequence[int], name: str) -> int:
        """One bit from many."""
        total = bits[0]
        for bit in bits[1:]:
            total = self.node((total, bit), _TWO[name])
        return total

    def copy(self, net: int, output: int) -> None:
        self.node((net,), 0b10, output, Kind.BUFFER)


def word_nodes(cell: Cell, fresh: Fresh) -> list[Node]:
    """The nodes of a word-level cell (or of a gate that ``techmap`` made); ``NetlistError`` for one not known."""
    build = _Builder(fresh)
    kind = cell.type
    name = kind.strip("$_").lower()
    y = list(cell.pins.get("Y", ()))
    if kind in {"$add", "$sub", "$neg"}:
        a = _operand(cell, "A", len(y))
        if kind == "$neg":
            build.chain([ZERO] * len(y), a, y, subtract=True)
        else:
            build.chain(a, _operand(cell, "B", len(y)), y, subtract=kind == "$sub")
    elif kind == "$mul":
        _multiply(cell, build, y)
    elif kind in {"$and", "$or", "$xor", "$xnor"}:
        for p, q, out in zip(_operand(cell, "A", len(y)), _operand(cell, "B", len(y)), y, strict=True):
            build.node((p, q), _TWO[name], out)
    elif kind in {"$not", "$pos"}:
        for p, out in zip(_operand(cell, "A", len(y)), y, strict=True):
            build.node((p,), _NOT if kind == "$not" else 0b10, out)
    elif kind in {"$mux", "$_MUX_"}:
        for p, q, out in zip(cell.pins["A"], cell.pins["B"], y, strict=True):
            build.node((p, q, cell.pin("S")), _MUX, out)
    elif kind in {"$dff", "$_DFF_P_"}:
        if kind == "$dff" and cell.number("CLK_POLARITY", 1) != 1:
            raise cell.wrong("clocked by the falling edge; expected the rising edge of one clock")
        for d, q in zip(cell.pins["D"], cell.pins["Q"], strict=True):
            build.node((d,), 0b10, q, Kind.FLIP_FLOP)
    elif kind.startswith("$_") and name in _TWO:
        build.node((cell.pin("A"), cell.pin("B")), _TWO[name], y[0])
    elif kind in {"$_NOT_", "$_BUF_"}:
        build.node((cell.pin("A"),), _NOT if kind == "$_NOT_" else 0b10, y[0])
    else:
        _one_bit(cell, build, y)
    return build.nodes


def _one_bit(cell: Cell, build: _Builder, y: list[int]) -> None:
    """Reductions, comparisons and logical operators: one bit, and zeros above it."""
    kind = cell.type
    a = list(cell.pins.get("A", ()))
    b = list(cell.pins.get("B", ()))
    if kind in {"$reduce_and", "$reduce_or", "$reduce_xor", "$reduce_bool"}:
        result = build.reduce(a, {"$reduce_bool": "or"}.get(kind, kind.removeprefix("$reduce_")))
    elif kind == "$logic_not":
        result = build.node((build.reduce(a, "or"),), _NOT)
    elif kind in {"$logic_and", "$logic_or"}:
        result = build.node((build.reduce(a, "or"), build.reduce(b, "or")), _TWO[kind.removeprefix("$logic_")])
    elif kind in {"$eq", "$ne", "$lt", "$le", "$gt", "$ge"}:
        signed = bool(cell.number("A_SIGNED") and cell.number("B_SIGNED"))
        width = max(len(a), len(b)) + 1  # one bit more: the sign of the difference
        p, q = (_extended(bits, width, signed) for bits in (a, b))
        if kind in {"$eq", "$ne"}:
            same = build.reduce([build.node(pair, _TWO["xnor"]) for pair in zip(p, q, strict=True)], "and")
            result = same if kind == "$eq" else build.node((same,), _NOT)
        else:
            if kind in {"$gt", "$le"}:
                p, q = q, p
            difference: list[int | None] = [build.fresh() for _ in range(width)]
            build.chain(p, q, difference, subtract=True)
            less = difference[-1]
            assert less is not None
            result = less if kind in {"$lt", "$gt"} else build.node((less,), _NOT)
    else:
        raise cell.wrong("a cell that the reader of RTL does not know")
    build.copy(result, y[0])
    for net in y[1:]:
        build.copy(ZERO, net)


def _extended(bits: Sequence[int], width: int, signed: bool) -> list[int]:
    fill = bits[-1] if signed and bits else ZERO
    return [*bits, *[fill] * (width - len(bits))]


def _multiply(cell: Cell, build: _Builder, y: list[int]) -> None:
    """Rows of A, one a bit of B, added modulo ``2^len(y)``: right for both signs, as both are so extended."""
    width = len(y)
    a, b = _operand(cell, "A", width), _operand(cell, "B", width)
    total: Sequence[int] = [ZERO] * width
    for i, bit in enumerate(b):
        if bit == ZERO:
            continue
        row = [ZERO] * i + [build.node((p, bit), _TWO["and"]) for p in a[: width - i]]
        following: list[int | None] = [build.fresh() for _ in range(width)]
        build.chain(total, row, following, subtract=False)
        total = [net for net in following if net is not None]
    for net, out in zip(total, y, strict=True):
        build.copy(net, out)
