"""Wires with proven ranges: how integers become Verilog, and nothing is wider than it has to be.

A :class:`Signal` is an integer that lies on some bits of a wire, in two's complement when it can be negative, times a
power of two; or a constant, which needs no wire. Its range is known, so is its width, and so are the bits of every sum.
A :class:`Circuit` is the body of one module under construction. Its methods append wires and give signals; each text is
explicit about extension and truncation (every operand has exactly the width of its result), so that any tool reads it
alike and no linter has a word to say.

Sums. ``a + b`` needs carries only from where both operands have bits; below, the sum is the one operand's bits. For
``a - b`` they begin with the lowest bit of b. Widths come from the ranges: a sum that is known to fit is cut there.

Time. A signal exists in a clock cycle (0: the module's inputs) at some depth of adders behind the last register.
Operands of one operation are brought to one cycle by delaying the earlier; where the depth would pass the limit, to the
next.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hawq_flow.to_rtl.names import Names


def width(low: int, high: int) -> int:
    """Bits of the integers from ``low`` to ``high``, in two's complement if ``low`` is negative; 0 for 0 alone.

    >>> width(0, 255), width(-8, 7), width(0, 0)
    (8, 4, 0)
    """
    if low >= 0:
        return high.bit_length()
    return max((-low - 1).bit_length(), max(high, 0).bit_length()) + 1


def zeros(value: int) -> int:
    """The exponent of the largest power of two that divides ``value``, which is not 0."""
    return (value & -value).bit_length() - 1


@dataclass(frozen=True)
class Signal:
    """An integer from ``low`` to ``high``: bits of ``wire`` from ``offset`` on, times ``2^shift``; or a constant.

    ``low`` and ``high`` count the shift in; where they are equal the value is a constant, and ``wire`` is not read.
    ``size`` is the declared width of the wire. ``cycle`` and ``depth`` say when the value is there.
    """

    low: int
    high: int
    wire: str = ""
    offset: int = 0
    size: int = 0
    shift: int = 0
    cycle: int = 0
    depth: int = 0

    @property
    def constant(self) -> bool:
        """Whether the value is known."""
        return self.low == self.high

    @property
    def signed(self) -> bool:
        """Whether the value can be negative."""
        return self.low < 0

    @property
    def top(self) -> int:
        """Bits of the value, the zeros below its shift counted in."""
        return width(self.low, self.high)

    @property
    def zeros(self) -> int:
        """Lowest bits that are always 0 (of the constant 0: all there can be)."""
        if not self.constant:
            return self.shift
        return zeros(self.low) if self.low else 1 << 16

    def __lshift__(self, bits: int) -> Signal:
        return replace(self, low=self.low << bits, high=self.high << bits, shift=self.shift + bits)

    def bits(self, begin: int, end: int) -> str:
        """Verilog of bits ``begin`` to ``end`` (exclusive) of the value, extended by its sign: exactly that many."""
        if self.constant:
            return literal(self.low >> begin, end - begin)
        parts = []
        top = self.top
        if begin < self.shift:
            parts.append(literal(0, min(self.shift, end) - begin))
        first, last = max(begin, self.shift), min(end, top)
        if first < last:
            parts.append(self._slice(first, last))
        if end > max(top, begin):
            extra = end - max(top, begin)
            sign = self._slice(top - 1, top)
            parts.append(literal(0, extra) if not self.signed else sign if extra == 1 else f"{{{extra}{{{sign}}}}}")
        return parts[0] if len(parts) == 1 else "{" + ", ".join(reversed(parts)) + "}"

    def _slice(self, begin: int, end: int) -> str:
        low, high = self.offset + begin - self.shift, self.offset + end - self.shift - 1
        if low == 0 and high == self.size - 1:
            return self.wire
        return f"{self.wire}[{high}]" if low == high else f"{self.wire}[{high}:{low}]"


def literal(value: int, bits: int) -> str:
    """A Verilog constant of ``bits`` bits: ``value`` modulo 2^bits."""
    value &= (1 << bits) - 1
    return f"{bits}'d{value}" if bits <= 31 else f"{bits}'h{value:x}"


def constant(value: int) -> Signal:
    """A known integer."""
    return Signal(int(value), int(value))


@dataclass(frozen=True)
class Sum:
    """``signal + add``, or ``add - signal`` where ``negative``: an adder's worth of work that may yet be saved.

    ``low`` and ``high`` bound the result.
    """

    signal: Signal
    add: int
    negative: bool
    low: int
    high: int


def joined(
    terms: Iterable[Signal], join: Callable[[Signal, Signal], Signal], key: Callable[[Signal], Any], left: int
) -> list[Signal]:
    """Always the two least terms by ``key`` joined until ``left`` remain; of equals, the newest and then the first."""
    heap = [(key(x), i, x) for i, x in enumerate(terms)]
    heapq.heapify(heap)
    for made in range(1, len(heap) - left + 1):
        least, next_ = heapq.heappop(heap)[2], heapq.heappop(heap)[2]
        heapq.heappush(heap, (key(x := join(least, next_)), -made, x))
    return [x for _, _, x in sorted(heap, key=lambda entry: entry[1])]


class Circuit:
    """The body of one module: wires, registers and functions in the order in which they were made."""

    def __init__(self, names: Names, limit: int | None = None) -> None:
        self.names, self.limit = names, limit
        self.lines: list[str] = []
        self.clocked: list[str] = []
        self.functions: list[str] = []
        self._delayed: dict[tuple[str, int, int], list[str]] = {}
        self.multiplies = False
        self._sums: dict[Sum, Signal] = {}
        self._tables: dict[tuple[int, ...], str] = {}

    def comment(self, text: str) -> None:
        """A line for the reader."""
        self.lines.append(f"// {text}")

    def wire(self, expression: str, low: int, high: int, cycle: int, depth: int, *, shift: int = 0) -> Signal:
        """A new wire; ``low`` and ``high`` count ``shift`` in, ``expression`` does not."""
        size = width(low, high) - shift
        name = self.names.fresh("n")
        self.lines.append(f"wire [{size - 1}:0] {name} = {expression};")
        return Signal(low, high, name, 0, size, shift, cycle, depth)

    def flag(self, expression: str, cycle: int, depth: int) -> Signal:
        """A new wire of one bit."""
        return self.wire(expression, 0, 1, cycle, depth)

    def part(self, x: Signal, begin: int, low: int, high: int) -> Signal:
        """The bits of ``x`` from ``begin`` on, read as an integer from ``low`` to ``high``: wires alone.

        They must lie within the bits of x (or be copies of its sign); the range is the caller's proof.
        """
        if low == high:
            return constant(low)
        if x.constant:
            bits = width(low, high)
            value = (x.low >> begin) & ((1 << bits) - 1)
            return constant(value - (1 << bits) if low < 0 and value >> (bits - 1) else value)
        if x.signed:
            begin = min(begin, x.top - 1)  # beyond, there are only copies of the sign
        begin_raw = max(begin - x.shift, 0)
        return replace(x, low=low, high=high, offset=x.offset + begin_raw, shift=max(x.shift - begin, 0))

    def delayed(self, x: Signal, cycle: int) -> Signal:
        """``x`` in a later cycle: registers, shared by all who ask."""
        if x.constant or x.cycle >= cycle:
            return x
        bits = x.top - x.shift
        chain = self._delayed.setdefault((x.wire, x.offset, bits), [])
        source = x.bits(x.shift, x.top) if not chain else chain[-1]
        while len(chain) < cycle - x.cycle:
            name = self.names.fresh("r")
            self.lines.append(f"reg [{bits - 1}:0] {name};")
            self.clocked.append(f"{name} <= {source};")
            chain.append(name)
            source = name
        return replace(x, wire=chain[cycle - x.cycle - 1], offset=0, size=bits, cycle=cycle, depth=0)

    def meet(self, operands: Sequence[Signal], cost: int = 1) -> tuple[list[Signal], int, int]:
        """Operands in one cycle, and the cycle and the depth of a result ``cost`` adders behind them."""
        moving = [x for x in operands if not x.constant]
        cycle = max((x.cycle for x in moving), default=0)
        depth = max((x.depth for x in moving if x.cycle == cycle), default=0)
        if self.limit is not None and depth and depth + cost > self.limit:
            cycle, depth = cycle + 1, 0
        return [self.delayed(x, cycle) for x in operands], cycle, depth + cost

    def add(
        self, a: Signal, b: Signal, *, minus: bool = False, low: int | None = None, high: int | None = None
    ) -> Signal:
        """``a + b`` or ``a - b``, between ``low`` and ``high`` where the caller knows better than the operands."""
        least, most = (a.low - b.high, a.high - b.low) if minus else (a.low + b.low, a.high + b.high)
        shift = min(a.zeros, b.zeros)
        low, high = least if low is None else max(low, least), most if high is None else min(high, most)
        low, high = -(-low >> shift) << shift, (high >> shift) << shift  # multiples of 2^shift alone come out
        if low == high:
            return constant(low)
        if b.constant and b.low == 0:
            return replace(a, low=low, high=high)
        if a.constant and a.low == 0 and not minus:
            return self.add(b, a, low=low, high=high)
        if b.constant and b.low < 0:  # a smaller constant, in the same adder
            return self.add(a, constant(-b.low), minus=not minus, low=low, high=high)
        (a, b), cycle, depth = self.meet([a, b])
        top = width(low, high)
        # Behind a multiplier every bit goes through the adder: Yosys takes an addend that begins with the lowest bit of
        # a DSP48E1's result for that result, and would lose what was added to the bits above.
        begin = shift if self.multiplies else b.zeros if minus else max(a.zeros, b.zeros)
        operands = (a, b) if minus or b.zeros >= a.zeros else (b, a)
        below = operands[0]
        if begin >= top:  # all bits of the result are the one operand's
            return self.wire(below.bits(shift, top), low, high, cycle, depth - 1, shift=shift)
        # What lies wholly below the other operand is put beside it.
        if not minus and not below.signed and below.top <= begin:
            expression = f"{{{operands[1].bits(begin, top)}, {below.bits(shift, begin)}}}"
            return self.wire(expression, low, high, cycle, depth - 1, shift=shift)
        upper = f"{a.bits(begin, top)} {'-' if minus else '+'} {b.bits(begin, top)}"
        if begin > shift:
            upper = f"{{{upper}, {below.bits(shift, begin)}}}"
        return self.wire(upper, low, high, cycle, depth, shift=shift)

    def total(self, terms: Iterable[Signal], low: int | None = None, high: int | None = None) -> Signal:
        """The sum of any number of signals: constants together, then always the two that are there first."""
        terms = list(terms)
        known = sum(x.low for x in terms if x.constant)
        waiting = [x for x in terms if not x.constant] + ([constant(known)] if known else [])
        if not waiting:
            return constant(0)
        waiting = joined(waiting, self.add, lambda x: (x.cycle, x.depth, x.top), 2)
        return self.add(waiting[0], waiting[1] if len(waiting) == 2 else constant(0), low=low, high=high)

    def signal(self, x: Signal | Sum) -> Signal:
        """A sum that was put off, done (once); a signal as it is."""
        if isinstance(x, Signal):
            return x
        if x not in self._sums:
            add = constant(x.add)
            a, b = (add, x.signal) if x.negative else (x.signal, add)
            self._sums[x] = self.add(a, b, minus=x.negative, low=x.low, high=x.high)
        return self._sums[x]

    def table(self, entries: tuple[int, ...], start: int, x: Signal) -> Signal:
        """``entries[x - start]`` as a function with a case for every entry but those that equal the commonest."""
        low, high = min(entries), max(entries)
        if low == high:
            return constant(low)
        (x,), cycle, depth = self.meet([x])
        bits, inputs = width(low, high), x.top - x.shift
        key = (start, x.shift, inputs, *entries)
        if key not in self._tables:
            name = self._tables[key] = self.names.fresh("f")
            used = range(x.low, x.high + 1, 1 << x.shift)
            found = [entries[i - start] for i in used]
            counts = Counter(found)
            common = min(counts, key=lambda entry: (-counts[entry], entry))
            cases = [
                f"      {literal(i >> x.shift, inputs)}: {name} = {literal(entry, bits)};"
                for i, entry in zip(used, found, strict=True)
                if entry != common
            ]
            cases.append(f"      default: {name} = {literal(common, bits)};")
            head = [f"function [{bits - 1}:0] {name};", f"  input [{inputs - 1}:0] i;", "    case (i)"]
            self.functions.append("\n".join([*head, *cases, "    endcase", "endfunction"]))
        return self.wire(f"{self._tables[key]}({x.bits(x.shift, x.top)})", low, high, cycle, depth)

    def larger(self, a: Signal, b: Signal) -> Signal:
        """The larger of two."""
        if a.low >= b.high:
            return a
        if b.low >= a.high:
            return b
        low, high = max(a.low, b.low), max(a.high, b.high)
        (a, b), cycle, depth = self.meet([a, b])
        top = width(min(a.low, b.low), high)
        left, right = a.bits(0, top), b.bits(0, top)
        less = f"$signed({left}) < $signed({right})" if min(a.low, b.low) < 0 else f"{left} < {right}"
        smaller = self.flag(less, cycle, depth)
        top = width(low, high)
        return self.wire(f"{smaller.wire} ? {b.bits(0, top)} : {a.bits(0, top)}", low, high, cycle, depth)

    def product(self, a: Signal, b: Signal, low: int | None = None, high: int | None = None) -> Signal:
        """``a * b`` with a multiplier."""
        ends = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
        low = min(ends) if low is None else max(low, min(ends))
        high = max(ends) if high is None else min(high, max(ends))
        if low == high:
            return constant(low)
        self.multiplies = True
        shift = min(a.zeros, 64) + min(b.zeros, 64)
        (a, b), cycle, depth = self.meet([a, b])
        top = width(low, high) - shift
        texts = [x.bits(x.zeros, x.zeros + top) for x in (a, b)]
        if a.signed or b.signed:
            texts = [f"$signed({text})" for text in texts]
        return self.wire(" * ".join(texts), low, high, cycle, depth, shift=shift)
