"""A rescale, ``overflow(round(x * m / 2^s) + z)``, as a circuit of few gates; exact by construction.

The maths, for a saturating rescale ``f`` with m > 0 (f falls where m < 0: the ends change places):

*Window.* f is monotone, so what lies far outside the range of the result needs no product. Let all x >= 2^k give the
largest result, and all x < 0 the smallest (or all x < -2^k, where negative x matter): then only the low k bits of x are
multiplied, and the bits above say by themselves whether the result is one of the ends.

*Rounding.* With ``p = x * m``: floor is ``p >> s``; half up adds bit s-1 of p; half to even adds it if bit s is set too
or any bit below s-1 is. A tie needs ``x m = 2^(s-1)`` modulo 2^s, and with m odd (after common factors of two are
removed) x has to be an odd multiple of 2^(s-1): the bits below s-1 of x itself tell, there are few such x in the
window, and where there is none, or all of them round up, half to even is half up.

*Thresholds.* A result of few values counts how many of its thresholds x has reached. They are compared with the bare
sum, before its bias: neither product nor bias is computed. Whichever is estimated to take fewer LUTs is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from hawq_flow.numeric import Overflow, Rounding
from hawq_flow.to_rtl.circuit import Circuit, Signal, Sum, constant, literal, width, zeros
from hawq_flow.to_rtl.config import RtlConfig
from hawq_flow.to_rtl.products import multiple, scaled

MOST_THRESHOLDS = 15


@dataclass(frozen=True)
class Rescale:
    """One element's rescale: ``multiplier / 2^shift``, the offset, and the type's ends."""

    multiplier: int
    shift: int
    offset: int
    rounding: Rounding
    overflow: Overflow
    least: int
    most: int

    def rounded(self, x: int) -> int:
        """``round(x * m / 2^s) + z``, unbounded."""
        p, s = x * self.multiplier, self.shift
        if s == 0 or self.rounding is Rounding.FLOOR:
            return (p >> s) + self.offset
        half = 1 << (s - 1)
        if self.rounding is Rounding.HALF_UP:
            return ((p + half) >> s) + self.offset
        return ((p + half - 1 + ((p >> s) & 1)) >> s) + self.offset

    def __call__(self, x: int) -> int:
        """The result for one integer."""
        y = self.rounded(x)
        if self.overflow is Overflow.SATURATE:
            return min(max(y, self.least), self.most)
        return self.least + (y - self.least) % (self.most - self.least + 1)

    def lowest_terms(self) -> Rescale:
        """The same map with an odd multiplier, or without a shift."""
        m, s = self.multiplier, self.shift
        common = min(s, zeros(m)) if m else s
        return Rescale(m >> common, s - common, self.offset, self.rounding, self.overflow, self.least, self.most)


def rescale(circuit: Circuit, x: Signal | Sum, f: Rescale, config: RtlConfig) -> Signal:
    """``f(x)``."""
    f = f.lowest_terms()
    if isinstance(x, Sum) and x.negative and x.add == 0:  # the sign goes to the multiplier
        x, f = x.signal, replace(f, multiplier=-f.multiplier)
    if x.low == x.high or f.multiplier == 0:
        return constant(f(x.low))
    if f.overflow is Overflow.WRAP:
        ends = sorted((f.rounded(x.low), f.rounded(x.high)))
        if not (f.least <= ends[0] and ends[1] <= f.most):
            return _wrapped(circuit, circuit.signal(x), f, config)
    ends = sorted((f(x.low), f(x.high)))
    if ends[0] == ends[1]:
        return constant(ends[0])
    if ends[1] - ends[0] <= MOST_THRESHOLDS and _cheaper_by_thresholds(x, f, ends[1] - ends[0], config):
        return _counted(circuit, x, f, ends[0], ends[1])
    return _saturated(circuit, circuit.signal(x), f, ends[0], ends[1], config)


def first(condition: Callable[[int], bool], low: int, high: int) -> int:
    """The smallest integer of ``low`` to ``high`` from which on a condition holds; high + 1 if there is none."""
    while low <= high:
        middle = (low + high) // 2
        if condition(middle):
            high = middle - 1
        else:
            low = middle + 1
    return low


# ---------------------------------------------------------------------------------------------------------- thresholds


def _cheaper_by_thresholds(x: Signal | Sum, f: Rescale, steps: int, config: RtlConfig) -> bool:
    """Estimated LUTs: a compare with a constant takes one for three bits, an adder one a bit, a flag's gates 1/2."""
    bare = x.signal if isinstance(x, Sum) else x
    bits = width(x.low, x.high)
    counted = steps * (-(-(bare.top - bare.shift) // 3) + 1.5)
    result = steps.bit_length()
    window = min(bits, f.shift - abs(f.multiplier).bit_length() + result + 1)
    nodes = multiple(abs(f.multiplier), config.optimizer).nodes
    rounding = result + 3 if f.rounding is not Rounding.FLOOR else 0
    bias = bits if isinstance(x, Sum) and x.add else 0
    return counted < bias + nodes * (window + 2) + rounding + result + 2


def _counted(circuit: Circuit, x: Signal | Sum, f: Rescale, low: int, high: int) -> Signal:
    """How many thresholds x has reached, on top of ``low``: one compare each, and a few gates.

    The flags are 1 up to the count and 0 beyond, so bit j of the count is set where the last one reached lies in an odd
    run of 2^j: where flag ``i 2^j`` is set and flag ``(i + 1) 2^j`` is not, for an odd i.
    """
    rising = f.multiplier > 0
    levels = range(low + 1, high + 1)
    reached = [
        _reaches(circuit, x, first(partial(_passes, f, level, rising), x.low, x.high), rising) for level in levels
    ]
    reached, cycle, depth = circuit.meet(reached, 0)
    flags = ["", *(flag.bits(0, 1) for flag in reached)]
    bits = []
    for j in range(len(reached).bit_length()):
        runs = range(1 << j, len(flags), 2 << j)
        ends = [i + (1 << j) for i in runs]
        texts = [
            f"({flags[i]} & ~{flags[end]})" if end < len(flags) else flags[i] for i, end in zip(runs, ends, strict=True)
        ]
        bits.append(texts[0] if len(texts) == 1 else f"({' | '.join(texts)})")
    text = bits[0] if len(bits) == 1 else "{" + ", ".join(reversed(bits)) + "}"
    count = reached[0] if len(reached) == 1 else circuit.wire(text, 0, len(reached), cycle, depth)
    return circuit.add(count, constant(low), low=low, high=high)


def _passes(f: Rescale, level: int, rising: bool, x: int) -> bool:
    return (f(x) >= level) == rising


def _reaches(circuit: Circuit, x: Signal | Sum, at: int, up: bool) -> Signal:
    """A flag: whether x >= at (``up``), or x < at."""
    if isinstance(x, Sum):
        # -v + c >= t is v <= c - t, so v < c - t + 1.
        if x.negative:
            at, up = x.add - at + 1, not up
        else:
            at -= x.add
        x = x.signal
    # Bits below the signal's shift are 0: only multiples of 2^shift are reached.
    raw = -(-at >> x.shift)
    if not x.low >> x.shift < raw <= x.high >> x.shift:  # decided already: never, or always
        return constant(int((raw <= x.low >> x.shift) == up))
    (x,), cycle, depth = circuit.meet([x])
    if raw == 0:
        text = x.bits(x.top - 1, x.top)
        return circuit.flag(f"~{text}" if up else text, cycle, depth - 1)
    bits = x.top - x.shift
    sides = (x.bits(x.shift, x.top), literal(raw, bits))
    if x.signed:
        sides = (f"$signed({sides[0]})", f"$signed({sides[1]})")
    return circuit.flag(f"{sides[0]} {'>=' if up else '<'} {sides[1]}", cycle, depth)


# ------------------------------------------------------------------------------------------------------------- products


def _wrapped(circuit: Circuit, x: Signal, f: Rescale, config: RtlConfig) -> Signal:
    """Modulo 2^bits, on as many low bits of x as have a say: bits of the result and the shift."""
    bits = (f.most - f.least).bit_length()
    if x.top > f.shift + bits:
        x = circuit.part(x, 0, 0, (1 << (f.shift + bits)) - 1)
    y = _rounded(circuit, x, f, config)
    if width(y.low, y.high) < bits or y.shift:
        y = circuit.wire(y.bits(0, bits), f.least, f.most, y.cycle, y.depth)
    return circuit.part(y, 0, f.least, f.most)


def _saturated(circuit: Circuit, x: Signal, f: Rescale, low: int, high: int, config: RtlConfig) -> Signal:
    """The product within the window, and the ends ``low`` and ``high`` of the result outside it."""
    rising = f.multiplier > 0
    bottom, top = (low, high) if rising else (high, low)  # results below and above the window
    # The last x from below that still gives the bottom, and the first that gives the top.
    last = first(lambda v: f(v) != bottom, x.low, x.high) - 1
    start = first(lambda v: f(v) == top, x.low, x.high)
    conditions: dict[int, list[str]] = {low: [], high: []}
    inner = x
    if x.signed and last >= -1:
        k = max((start - 1).bit_length(), x.shift + 1) if start > 0 else x.shift + 1
        sign = x.bits(x.top - 1, x.top)
        conditions[bottom].append(sign)
        if k < x.top - 1:
            conditions[top].append(f"(~{sign} & (|{x.bits(k, x.top - 1)}))")
        else:
            k = x.top - 1
        inner = circuit.part(x, 0, 0, min((1 << k) - 1, x.high))
    elif not x.signed:
        k = max((start - 1).bit_length(), x.shift + 1)
        if k < x.top:
            conditions[top].append(f"(|{x.bits(k, x.top)})")
            inner = circuit.part(x, 0, min(x.low, 0), (1 << k) - 1)
    else:
        k = max((start - 1).bit_length() if start > 0 else 0, (-last - 2).bit_length() if last < -1 else 0, x.shift + 1)
        if k < x.top - 1:
            sign, upper = x.bits(x.top - 1, x.top), x.bits(k, x.top - 1)
            conditions[bottom].append(f"({sign} & ~(&{upper}))")
            conditions[top].append(f"(~{sign} & (|{upper}))")
            inner = circuit.part(x, 0, max(x.low, -(1 << k)), min(x.high, (1 << k) - 1))
    return _clipped(circuit, x, conditions, _rounded(circuit, inner, f, config), low, high)


def _clipped(circuit: Circuit, x: Signal, conditions: dict[int, list[str]], y: Signal, low: int, high: int) -> Signal:
    """``low`` or ``high`` where a condition (on bits of x) says so or y lies beyond, else y."""
    flags = []
    for end, texts in conditions.items():
        if texts:
            flags.append((end, circuit.flag(" | ".join(texts), x.cycle, x.depth)))
    (y, *found), cycle, depth = circuit.meet([y, *(flag for _, flag in flags)])
    named = {end: flag.bits(0, 1) for (end, _), flag in zip(flags, found, strict=True)}
    tests: dict[int, str] = {}
    for end in (low, high):  # beyond the window y means nothing; the test of the lowest result comes first
        texts = [named[end]] if end in named else []
        beyond = _below(y, low) if end == low else _above(y, low, high)
        if beyond and end == low and high in named:
            beyond = f"(~{named[high]} & {beyond})"
        tests[end] = " | ".join(texts + ([beyond] if beyond else []))
    top = width(low, high)
    text = y.bits(0, top)
    first_end, second_end = low, high
    for end in (second_end, first_end):
        if tests[end]:
            text = f"({tests[end]}) ? {literal(end, top)} : {text}"
    if text == y.bits(0, top):
        return circuit.part(y, 0, low, high)
    return circuit.wire(text, low, high, cycle, depth)


def _below(y: Signal, low: int) -> str:
    """Whether y lies below the lowest result; empty if it never does."""
    if y.low >= low:
        return ""
    sign = y.bits(y.top - 1, y.top)
    if low == 0:
        return sign
    bits = (-low).bit_length() - 1
    if low == -(1 << bits):  # a sign, and not only ones above the result's bits
        return f"({sign} & ~(&{y.bits(bits, y.top - 1)}))"
    return _compare(y, "<", low)


def _above(y: Signal, low: int, high: int) -> str:
    """Whether y, which is not below ``low``, lies above the highest result; empty if it never does."""
    if y.high <= high:
        return ""
    if high & (high + 1) == 0:  # 2^bits - 1: any bit above
        upper = f"(|{y.bits(high.bit_length(), y.top - y.signed)})"
        return f"(~{y.bits(y.top - 1, y.top)} & {upper})" if y.signed and low < 0 else upper
    return _compare(y, ">", high)


def _compare(y: Signal, sign: str, bound: int) -> str:
    top = max(y.top, width(bound, bound))
    sides = (y.bits(0, top), literal(bound, top))
    if y.signed or bound < 0:
        top = max(y.top, width(min(bound, 0), max(bound, 0)) + (not y.signed))
        sides = (f"$signed({y.bits(0, top)})", f"$signed({literal(bound, top)})")
    return f"({sides[0]} {sign} {sides[1]})"


def _rounded(circuit: Circuit, x: Signal, f: Rescale, config: RtlConfig) -> Signal:
    """``round(x * m / 2^s) + z``, unbounded, for x in its range."""
    m, s, z = f.multiplier, f.shift, f.offset
    ends = sorted((f.rounded(x.low), f.rounded(x.high)))
    if ends[0] == ends[1]:
        return constant(ends[0])
    u = scaled(circuit, x, abs(m), config)
    if s == 0:
        return circuit.add(constant(z), u, minus=m < 0, low=ends[0], high=ends[1])
    floor = _shifted(circuit, u, s)
    if m < 0:
        return _subtracted(circuit, x, u, floor, f, ends[0], ends[1])
    step = _increment(circuit, x, u, f)
    if step is None:
        return circuit.add(floor, constant(z), low=ends[0], high=ends[1])
    if z == 0:
        return circuit.add(floor, step, low=ends[0], high=ends[1])
    if floor.constant:
        return circuit.add(step, constant(z + floor.low), low=ends[0], high=ends[1])
    # One carry chain for both: the step enters below, as the carry of a lowest bit that is dropped.
    (floor, step), cycle, depth = circuit.meet([floor, step])
    top = max(width(*ends), 1)
    a, b, low_bit = floor.bits(0, top), literal(z, top), step.bits(0, 1)
    both = circuit.wire(f"{{{a}, 1'b1}} + {{{b}, {low_bit}}}", 2 * ends[0], 2 * ends[1] + 1, cycle, depth)
    return circuit.part(both, 1, ends[0], ends[1])


def _subtracted(circuit: Circuit, x: Signal, u: Signal, floor: Signal, f: Rescale, low: int, high: int) -> Signal:
    """``z - r`` for ``u = x * |m|``, with r so rounded that -r is rounded as the network says.

    The floor of -u is minus the ceiling of u; half up of -u is minus u with ties down; half to even is symmetric. So
    the floor of u grows by 1 for any bit below s, for bit s-1 and any below it, or as it does for a positive m.
    """
    s = f.shift

    def below(bits: int) -> list[str]:
        bits = min(bits, x.top)
        return [f"(|{x.bits(0, bits)})"] if bits > x.shift else []

    (x, u), cycle, depth = circuit.meet([x, u])
    if f.rounding is Rounding.FLOOR:
        tests = below(s)
    elif f.rounding is Rounding.HALF_UP:
        tests = below(s - 1) and [u.bits(s - 1, s), *below(s - 1)]
    else:
        tests = [u.bits(s - 1, s), f"({' | '.join([u.bits(s, s + 1), *below(s - 1)])})"]
    if u.zeros >= s or not tests:
        return circuit.add(constant(f.offset), floor, minus=True, low=low, high=high)
    step = circuit.flag(" & ".join(tests), cycle, depth)
    if floor.constant:
        return circuit.add(constant(f.offset - floor.low), step, minus=True, low=low, high=high)
    # z - floor - step is z + ~floor + 1 - step: one carry chain, its carry in from a lowest bit that is dropped.
    (floor, step), cycle, depth = circuit.meet([floor, step])
    top = width(low, high)
    operands = f"{{~{floor.bits(0, top)}, 1'b1}} + {{{literal(f.offset, top)}, ~{step.bits(0, 1)}}}"
    return circuit.part(circuit.wire(operands, 2 * low, 2 * high + 1, cycle, depth), 1, low, high)


def _shifted(circuit: Circuit, u: Signal, s: int) -> Signal:
    """``u >> s``: wires."""
    if u.low >> s == u.high >> s:
        return constant(u.low >> s)
    return circuit.part(u, s, u.low >> s, u.high >> s)


def _increment(circuit: Circuit, x: Signal, u: Signal, f: Rescale) -> Signal | None:
    """What rounding adds to the floor of ``u / 2^s``: a flag, or None for nothing."""
    s = f.shift
    if f.rounding is Rounding.FLOOR or u.zeros >= s:
        return None
    if u.top < s and not u.signed:  # below a half
        return None
    half_up = replace(f, rounding=Rounding.HALF_UP)
    if all(f.rounded(t) == half_up.rounded(t) for t in _ties(x, f)):
        return circuit.flag(u.bits(s - 1, s), u.cycle, u.depth)
    (x, u), cycle, depth = circuit.meet([x, u])
    below = min(s - 1, x.top)
    tied = " | ".join([u.bits(s, s + 1)] + ([f"(|{x.bits(0, below)})"] if below > x.shift else []))
    return circuit.flag(f"{u.bits(s - 1, s)} & ({tied})", cycle, depth)


def _ties(x: Signal, f: Rescale) -> list[int]:
    """Two ties of neighbouring parity within the range of x, or as many as there are."""
    half = 1 << (f.shift - 1)
    start = -(-(x.low - half) >> f.shift)  # odd multiples of the half: (2 i + 1) * half, i from here
    found = [(2 * i + 1) * half for i in range(start, start + 2)]
    return [t for t in found if x.low <= t <= x.high]
