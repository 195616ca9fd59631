"""Which words of an RTL design are linear forms of its inputs, proved for all inputs by integer algebra.

A *word* is a list of bits, lowest first, that is the two's complement of an integer. Every element of an input port is
one, with a known range. Every sum ``Y = sum k * A`` of the RTL, with the bits that its wire has below Y, gives another
if the following can be shown, where ``w`` is the width of the whole:

1. Modulo ``2^w`` the word is ``2^p * sum k * A`` plus its lower bits: a sum of bits with integer factors. From the
   latest word to the earliest, the factors on a word's own bits must be ``k * (1, 2, 4, ...)``, the last one negative
   if it is the sign of a word that can be negative; these bits are then replaced by ``k`` times the word's form, less
   what its other bits contribute. Bits beyond a word's range are equal to its sign (or 0), and their factors are moved
   there. If every bit is accounted for, the word is a form ``L = sum c * x + d`` modulo ``2^w``.
2. The exact range of L over the inputs' ranges lies within the ``2^w`` integers that w bits hold (with or without a
   sign). So nothing wraps, and the word *is* L.

A word for which this fails is simply not known to be linear. Registers count as wires here; that all paths have equally
many is shown apart (``levels``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hawq_flow.numeric import IntArray
from hawq_flow.to_rtl.cells import ONE, UNKNOWN, ZERO, Kind
from hawq_flow.to_rtl.design import Module
from hawq_flow.to_rtl.word_level import Design, Sum

Form = dict[int, int]
"""Factors by input element (elements of all ports numbered one after the other) that is not always the same integer;
:data:`CONSTANT` holds the rest."""
CONSTANT = -1


@dataclass(frozen=True)
class Word:
    """``bits`` (nets, lowest first; the first ``shared`` of them belong to earlier words) that are exactly ``form``."""

    bits: tuple[int, ...]
    shared: int
    form: Form
    low: int
    high: int


class Words:
    """The linear words of a design: ``words``, inputs' elements first.

    Parameters
    ----------
    low, high:
        Ranges of the input elements, all ports one after the other.
    """

    def __init__(self, module: Module, design: Design, low: IntArray, high: IntArray) -> None:
        self.low, self.high = [int(v) for v in low], [int(v) for v in high]
        self.words: list[Word] = []
        self.owner: dict[int, tuple[int, int]] = {}
        self.alias = _aliases(design)
        for port in module.inputs:
            nets = design.netlist.inputs[port.name].tolist()
            for i in range(port.elements):
                element = len(self.words)
                bits = tuple(nets[i * port.bits : (i + 1) * port.bits])
                least, most = self.low[element], self.high[element]
                form = {CONSTANT: least} if least == most else {element: 1}
                self._add(Word(bits, 0, form, least, most))
        above: dict[int, list[tuple[int, ...]]] = {}
        for bits in design.wires.values():
            seen = self._plain(bits)
            for net in seen:
                above.setdefault(net, []).append(seen)
        for total in self._ordered(design.sums):
            word = self._word(total, above.get(total.y[0], []))
            if word is not None:
                self._add(word)

    def _plain(self, bits: Iterable[int]) -> tuple[int, ...]:
        return tuple(self.alias.get(net, net) for net in bits)

    def _add(self, word: Word) -> None:
        for i in range(word.shared, len(word.bits)):
            self.owner.setdefault(word.bits[i], (len(self.words), i))
        self.words.append(word)

    def _ordered(self, sums: Sequence[Sum]) -> list[Sum]:
        """Sums after those whose bits they read; bits through registers and buffers."""
        plain = [Sum(self._plain(s.y), tuple((k, self._plain(bits)) for k, bits in s.terms)) for s in sums]
        maker = {net: i for i, s in enumerate(plain) for net in s.y}
        needs = [{maker[net] for _, bits in s.terms for net in bits if net in maker} for s in plain]
        order: list[Sum] = []
        state = [0] * len(plain)  # 1: entered, 2: placed
        for root in range(len(plain)):
            stack = [root]
            while stack:
                i = stack[-1]
                if state[i] == 0:
                    state[i] = 1
                    stack += [j for j in needs[i] if state[j] == 0]
                else:
                    stack.pop()
                    if state[i] == 1:
                        state[i] = 2
                        order.append(plain[i])
        return order

    def _word(self, total: Sum, wires: Iterable[tuple[int, ...]]) -> Word | None:
        """The sum, with the lower bits of the longest wire that holds it, as a word; None where that is not shown."""
        below: tuple[int, ...] = ()
        for wire in wires:
            at = wire.index(total.y[0])
            if wire[at : at + len(total.y)] == total.y and at > len(below):
                below = wire[:at]
        for lower in (below, ()) if below else ((),):
            bits = lower + total.y
            modulus = 1 << len(bits)
            factors: dict[int, int] = {}
            for i, net in enumerate(lower):
                factors[net] = factors.get(net, 0) + (1 << i)
            for k, term in total.terms:
                for i, net in enumerate(term):
                    factors[net] = factors.get(net, 0) + (k << (i + len(lower)))
            form = self._form(factors, modulus)
            if form is None:
                continue
            least, most = self.range(form)
            if (least >= 0 and most < modulus) or (-modulus <= 2 * least and 2 * most < modulus):
                return Word(bits, len(lower), form, least, most)
        return None

    def range(self, form: Form) -> tuple[int, int]:
        """Least and most of a form over the inputs' ranges."""
        least = most = form.get(CONSTANT, 0)
        for element, factor in form.items():
            if element != CONSTANT:
                ends = factor * self.low[element], factor * self.high[element]
                least, most = least + min(ends), most + max(ends)
        return least, most

    def _form(self, factors: dict[int, int], modulus: int) -> Form | None:
        """Factors on bits as a form modulo ``modulus`` with the smallest factors; None where that is not shown."""
        form: Form = {CONSTANT: factors.pop(ONE, 0)}
        factors.pop(ZERO, None)
        by_word: dict[int, dict[int, int]] = {}

        def give(net: int, factor: int) -> bool:
            if net == ONE:
                form[CONSTANT] += factor
            elif net != ZERO and factor % modulus:
                if net == UNKNOWN or net not in self.owner:
                    return False
                index, place = self.owner[net]
                places = by_word.setdefault(index, {})
                places[place] = places.get(place, 0) + factor
            return True

        if not all(give(net, factor) for net, factor in factors.items()):
            return None
        while by_word:
            index = max(by_word)
            places = by_word.pop(index)
            word = self.words[index]
            scale = _scale(word, places, modulus)
            if scale is None:
                return None
            for element, factor in word.form.items():
                form[element] = form.get(element, 0) + scale * factor
            for i in range(word.shared):
                if not give(word.bits[i], -(scale << i)):
                    return None
        smallest = {}
        for element, factor in form.items():
            rest = factor % modulus
            smallest[element] = rest - modulus if 2 * rest > modulus else rest
        return {element: factor for element, factor in smallest.items() if factor or element == CONSTANT}


def _scale(word: Word, places: Mapping[int, int], modulus: int) -> int | None:
    """``k`` such that the factors on the word's own bits are k times what the bits count for; None if there is none."""
    signed = word.low < 0
    top = max((-word.low - 1).bit_length() if signed else 0, max(word.high, 0).bit_length()) + signed - 1
    if top < word.shared:
        # All own bits are 0, or all are copies of a sign that lies below.
        return None if signed else 0
    factors = [0] * (top + 1)
    for place, factor in places.items():
        if place <= top:
            factors[place] += factor
        elif signed:
            factors[top] += factor
    weights = [1 << i for i in range(top)] + [-(1 << top) if signed else 1 << top]
    first = (factors[word.shared] * (1 if weights[word.shared] > 0 else -1)) % modulus
    if first % (1 << word.shared):
        return None
    scale = first >> word.shared
    span = max(modulus >> word.shared, 1)
    scale = scale - span if 2 * scale > span else scale
    own = range(word.shared, top + 1)
    return scale if all((factors[i] - scale * weights[i]) % modulus == 0 for i in own) else None


def _aliases(design: Design) -> dict[int, int]:
    """Outputs of registers and buffers -> what they carry."""
    netlist = design.netlist
    through = np.flatnonzero((netlist.kind == Kind.FLIP_FLOP) | (netlist.kind == Kind.BUFFER))
    direct = dict(zip(netlist.output[through].tolist(), netlist.pins[through, 0].tolist(), strict=True))
    alias: dict[int, int] = {}
    for net in direct:
        end, seen = net, 0
        while end in direct and seen <= len(direct):  # a loop of registers is an error elsewhere
            end, seen = direct[end], seen + 1
        alias[net] = end
    return alias
