"""The generated Verilog read back and run, cycle by cycle, in numpy: a check of the text that needs no other tool.

It reads what ``generate`` writes and no more, strictly: operands of unequal widths, an assignment of another width than
the wire's, a name that is not yet known, are errors. A column of values is the history of a wire, one entry a clock
cycle; a register is its source's column one cycle later, so the design streams as in hardware, a row every cycle.

Columns of up to 62 bits are int64, wider ones Python integers; buses are matrices of bits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hawq_flow.images import Bits

WORD = 62
_TOKEN = re.compile(
    r"\s*(?:(\d+)'([dhb])([0-9a-f]+)|(\d+)|(\$?[A-Za-z_][A-Za-z0-9_]*)|(<=|>=|==|[{}()\[\]:,?~|&+\-*<>]))"
)
_WIRE = re.compile(r"wire \[(\d+):0\] (\w+) = (.*);\Z")
_REG = re.compile(r"reg \[(\d+):0\] (\w+);\Z")
_NEXT = re.compile(r"(\w+) <= (.*);\Z", re.DOTALL)
_PORT = re.compile(r"(input wire|output wire|output reg) (?:\[(\d+):0\] )?(\w+)")
_INSTANCE = re.compile(r"(\w+) (\w+) \((\..*)\);\Z")


class ReadError(ValueError):
    """Verilog that is not what the generator writes; the text quotes it."""


@dataclass(frozen=True)
class Column:
    """A wire's history: ``ints`` (cycles,) below 2^bits, or ``rows`` (cycles, bits) of 0 and 1, bit 0 first."""

    bits: int
    ints: NDArray[Any] | None = None
    rows: Bits | None = None
    signed: bool = False

    def integers(self) -> NDArray[Any]:
        """As non-negative integers."""
        if self.ints is not None:
            return self.ints
        assert self.rows is not None
        return _joined(self.rows)

    def matrix(self) -> Bits:
        """As bits."""
        if self.rows is not None:
            return self.rows
        assert self.ints is not None
        return np.stack([((self.ints >> i) & 1).astype(np.uint8) for i in range(self.bits)], axis=1)

    def values(self) -> NDArray[Any]:
        """As the integers that they mean: below 0 where signed and the top bit is set."""
        ints = self.integers()
        if not self.signed:
            return ints
        return np.where((ints >> (self.bits - 1)) & 1, ints - (1 << self.bits), ints)


def _joined(rows: Bits) -> NDArray[Any]:
    bits = rows.shape[1]
    dtype: Any = np.int64 if bits <= WORD else object
    total = np.zeros(len(rows), dtype=dtype)
    for i in range(bits):
        total |= rows[:, i].astype(dtype) << i
    return total


def _column(bits: int, ints: NDArray[Any]) -> Column:
    mask = (1 << bits) - 1
    if bits <= WORD and ints.dtype != np.int64:
        ints = (ints & mask).astype(np.int64)
    return Column(bits, ints & mask)


@dataclass
class Text:
    """One module's text, taken apart."""

    name: str
    inputs: dict[str, int] = field(default_factory=dict)
    outputs: dict[str, int] = field(default_factory=dict)
    statements: list[tuple[str, ...]] = field(default_factory=list)
    nexts: dict[str, str] = field(default_factory=dict)
    tables: dict[str, tuple[int, int, dict[int, int], int]] = field(default_factory=dict)


def read(text: str) -> Text:
    """Take one module's text apart; ``ReadError`` quotes what is not understood."""
    text = re.sub(r"//[^\n]*", "", text)
    match = re.fullmatch(r"\s*module (\w+) \((.*?)\);(.*)endmodule\s*", text, re.DOTALL)
    if match is None:
        raise ReadError(f"no module in {text[:80]!r}")
    module = Text(match.group(1))
    for kind, top, name in _PORT.findall(match.group(2)):
        (module.inputs if kind == "input wire" else module.outputs)[name] = int(top or 0) + 1
    body = match.group(3)
    for function in re.findall(r"function.*?endfunction", body, re.DOTALL):
        _read_table(function, module)
    body = re.sub(r"function.*?endfunction", "", body, flags=re.DOTALL)
    clocked = re.findall(r"always @\(posedge clk\) begin(.*?)\bend\b", body, re.DOTALL)
    body = re.sub(r"always @\(posedge clk\) begin.*?\bend\b", "", body, flags=re.DOTALL)
    for block in clocked:
        for statement in _statements(block):
            found = _NEXT.match(statement)
            if found is None:
                raise ReadError(f"{module.name}: not a register's next value: {statement!r}")
            if found.group(1) in module.nexts:
                raise ReadError(f"{module.name}: {found.group(1)} is given a next value twice")
            module.nexts[found.group(1)] = found.group(2)
    for statement in _statements(body):
        module.statements.append(_read_statement(module.name, statement))
    return module


def _statements(block: str) -> list[str]:
    return [" ".join(part.split()) + ";" for part in block.split(";") if part.strip()]


def _read_statement(where: str, statement: str) -> tuple[str, ...]:
    if found := _WIRE.match(statement):
        return ("wire", *found.groups())
    if found := _REG.match(statement):
        return ("reg", *found.groups())
    if found := re.match(r"wire \[(\d+):0\] (\w+);\Z", statement):
        return ("declared", *found.groups())
    if found := re.match(r"assign (\w+) = (.*);\Z", statement):
        return ("assign", *found.groups())
    if found := re.match(r"initial (\w+) = (.*);\Z", statement):
        return ("initial", *found.groups())
    if found := _INSTANCE.match(statement):
        return ("instance", *found.groups())
    raise ReadError(f"{where}: not what the generator writes: {statement!r}")


def _read_table(function: str, module: Text) -> None:
    head = re.match(r"function \[(\d+):0\] (\w+);\s*input \[(\d+):0\] i;\s*case \(i\)(.*)endcase", function, re.DOTALL)
    if head is None:
        raise ReadError(f"{module.name}: not a table: {function[:80]!r}")
    cases = {}
    for line in head.group(4).strip().splitlines():
        label, _, value = line.strip().partition(": ")
        number = _number(value.split(" = ")[1].rstrip(";"))
        case = -1 if label == "default" else _number(label)
        if case in cases:
            raise ReadError(f"{module.name}: {head.group(2)} has the case {label} twice")
        cases[case] = number
    default = cases.pop(-1)
    module.tables[head.group(2)] = (int(head.group(1)) + 1, int(head.group(3)) + 1, cases, default)


def _number(text: str) -> int:
    _, base, digits = re.match(r"(\d+)'([dhb])([0-9a-f]+)", text).groups()  # type: ignore[union-attr]
    return int(digits, {"d": 10, "h": 16, "b": 2}[base])


class _Expression:
    """A recursive-descent parser that computes as it reads; Verilog's precedence, widths checked everywhere."""

    def __init__(self, text: str, names: Mapping[str, Column], module: Text, cycles: int) -> None:
        self.text, self.names, self.module, self.cycles = text, names, module, cycles
        self.tokens = list(_TOKEN.finditer(text))
        if sum(len(match.group()) for match in self.tokens) != len(text.rstrip()):
            raise ReadError(f"{module.name}: not an expression: {text!r}")
        self.at = 0

    def error(self, what: str) -> ReadError:
        return ReadError(f"{self.module.name}: {what} in {self.text!r}")

    def peek(self) -> str:
        return self.tokens[self.at].group().strip() if self.at < len(self.tokens) else ""

    def take(self, expected: str = "") -> re.Match[str]:
        if self.at >= len(self.tokens) or (expected and self.peek() != expected):
            raise self.error(f"{self.peek()!r} where {expected or 'more'!r} was expected")
        self.at += 1
        return self.tokens[self.at - 1]

    def whole(self) -> Column:
        result = self.choice()
        if self.peek():
            raise self.error(f"{self.peek()!r} left over")
        return result

    def choice(self) -> Column:
        condition = self.binary(0)
        if self.peek() != "?":
            return condition
        self.take("?")
        yes = self.choice()
        self.take(":")
        no = self.choice()
        if condition.bits != 1 or yes.bits != no.bits:
            raise self.error(f"a choice of {condition.bits} bits between {yes.bits} and {no.bits}")
        return _column(yes.bits, np.where(condition.integers() == 1, yes.integers(), no.integers()))

    LEVELS: Sequence[Sequence[str]] = (("|",), ("&",), ("<", ">", ">=", "=="), ("+", "-"), ("*",))

    def binary(self, level: int) -> Column:
        if level == len(self.LEVELS):
            return self.unary()
        left = self.binary(level + 1)
        while self.peek() in self.LEVELS[level]:
            sign = self.take().group().strip()
            right = self.binary(level + 1)
            if left.bits != right.bits:
                raise self.error(f"{sign!r} of {left.bits} and {right.bits} bits")
            if sign in ("<", ">", ">=", "=="):
                both = left.signed and right.signed
                a, b = (x.values() if both else x.integers() for x in (left, right))
                compare: dict[str, Callable[[Any, Any], Any]] = {
                    "<": np.less,
                    ">": np.greater,
                    ">=": np.greater_equal,
                    "==": np.equal,
                }
                left = Column(1, np.asarray(compare[sign](a, b)).astype(np.int64))
                continue
            a, b = left.integers(), right.integers()
            result = {"|": a | b, "&": a & b, "+": a + b, "-": a - b}.get(sign)
            with np.errstate(over="ignore"):  # modulo 2^64 is modulo 2^bits, too
                left = _column(left.bits, a * b if result is None else result)
        return left

    def unary(self) -> Column:
        sign = self.peek()
        if sign == "~":
            self.take()
            x = self.unary()
            return _column(x.bits, x.integers() ^ ((1 << x.bits) - 1))
        if sign in ("|", "&"):
            self.take()
            x = self.unary()
            ints = x.integers()
            found = ints != 0 if sign == "|" else ints == (1 << x.bits) - 1
            return Column(1, np.asarray(found).astype(np.int64))
        return self.primary()

    def primary(self) -> Column:
        token = self.take()
        width, _, _, index, name, sign = token.groups()
        if width is not None:
            value = _number(token.group().strip())
            if value >> int(width):
                raise self.error(f"{token.group().strip()} does not fit its bits")
            dtype: Any = np.int64 if int(width) <= WORD else object
            return Column(int(width), np.full(self.cycles, value, dtype=dtype))
        if sign == "(":
            result = self.choice()
            self.take(")")
            return result
        if sign == "{":
            return self.braces()
        if index is not None or name is None:
            raise self.error(f"{token.group()!r}")
        if name == "$signed":
            self.take("(")
            x = self.choice()
            self.take(")")
            return Column(x.bits, x.integers(), signed=True)
        if name in self.module.tables:
            return self.call(name)
        if name not in self.names:
            raise self.error(f"{name!r} is not known")
        x = self.names[name]
        return self.slice(x) if self.peek() == "[" else x

    def slice(self, x: Column) -> Column:
        self.take("[")
        high = low = int(self.take().group())
        if self.peek() == ":":
            self.take(":")
            low = int(self.take().group())
        self.take("]")
        if not 0 <= low <= high < x.bits:
            raise self.error(f"bits {high} to {low} of {x.bits}")
        if x.rows is not None:
            return Column(high - low + 1, _joined(x.rows[:, low : high + 1]))
        return _column(high - low + 1, x.integers() >> low)

    def braces(self) -> Column:
        first = self.tokens[self.at]
        if first.group(4) is not None:  # {n{x}}
            self.take()
            self.take("{")
            x = self.choice()
            self.take("}")
            self.take("}")
            return self.joined([x] * int(first.group(4)))
        parts = [self.choice()]
        while self.peek() == ",":
            self.take()
            parts.append(self.choice())
        self.take("}")
        return self.joined(parts)

    def joined(self, parts: list[Column]) -> Column:
        bits = sum(part.bits for part in parts)
        if bits > WORD:
            return Column(bits, rows=np.concatenate([part.matrix() for part in reversed(parts)], axis=1))
        total = np.zeros(self.cycles, dtype=np.int64)
        for part in parts:
            total = (total << part.bits) | part.integers()
        return Column(bits, total)

    def call(self, name: str) -> Column:
        bits, inputs, cases, default = self.module.tables[name]
        self.take("(")
        x = self.choice()
        self.take(")")
        if x.bits != inputs:
            raise self.error(f"{name} of {x.bits} bits, expected {inputs}")
        found = [cases.get(int(i), default) for i in x.integers()]
        return _column(bits, np.array(found, dtype=object))


def run(texts: Mapping[str, Text], name: str, inputs: Mapping[str, Column], seed: int = 0) -> dict[str, Column]:
    """The outputs of a module, given the histories of its inputs; registers begin with random bits."""
    module = texts[name]
    cycles = len(next(iter(inputs.values())).matrix())
    rng = np.random.default_rng(seed)
    names = dict(inputs)
    if {key: column.bits for key, column in inputs.items()} != {k: b for k, b in module.inputs.items() if k != "clk"}:
        raise ReadError(f"{name}: inputs {', '.join(inputs)}; its ports are {module.inputs}")

    def value(text: str) -> Column:
        return _Expression(text, names, module, cycles).whole()

    def fits(column: Column, bits: int, what: str) -> Column:
        if column.bits != bits:
            raise ReadError(f"{name}: {what} has {bits} bits and is given {column.bits}")
        return Column(column.bits, column.ints, column.rows)

    def late(what: str, bits: int, start: Bits | None = None) -> Column:
        source = fits(value(module.nexts[what]), bits, what).matrix()
        first = rng.integers(0, 2, (1, bits), dtype=np.uint8) if start is None else start
        rows = np.concatenate([first, source[:-1]])
        return Column(bits, _joined(rows)) if bits <= WORD else Column(bits, rows=rows)

    shift = {statement[1] for statement in module.statements if statement[0] == "initial"}
    for kind, *parts in module.statements:
        if kind == "wire":
            names[parts[1]] = fits(value(parts[2]), int(parts[0]) + 1, parts[1])
        elif kind == "reg" and parts[1] not in shift:
            names[parts[1]] = late(parts[1], int(parts[0]) + 1)
        elif kind == "reg":  # the chain of valid bits feeds itself: bit i is the input i + 1 cycles ago
            bits = int(parts[0]) + 1
            expected = "valid_in" if bits == 1 else f"{{{parts[1]}[{bits - 2}:0], valid_in}}"
            if module.nexts[parts[1]] != expected:
                raise ReadError(f"{name}: {parts[1]} <= {module.nexts[parts[1]]}; expected {expected}")
            source = names["valid_in"].matrix()[:, 0]
            rows = [np.concatenate([np.zeros(i + 1, np.uint8), source])[:cycles] for i in range(bits)]
            names[parts[1]] = Column(bits, rows=np.stack(rows, axis=1))
        elif kind == "assign":
            names[parts[0]] = fits(value(parts[1]), module.outputs[parts[0]], parts[0])
        elif kind == "instance":
            wires = dict(re.findall(r"\.(\w+)\((\w+)\)", parts[2]))
            inner = texts[parts[0]]
            given = {port: names[wires[port]] for port in inner.inputs if port != "clk"}
            for port, column in run(texts, parts[0], given, seed + 1).items():
                names[wires[port]] = column
    for what, bits in module.outputs.items():
        if what not in names:
            names[what] = late(what, bits)
    return {what: names[what] for what in module.outputs}
