"""Common sub-expressions of two terms, taken greedily: the sharing between outputs.

The maths. Every output is a sum of digits ``g * (value << s)``. A *pattern* is a pair of digits up to a common shift
and sign: ``(a << d) + r * b`` with values a, b, a relative shift d and a relative sign r. An occurrence is a pair of
digits of one output in this relation; if a pattern occurs n times (digits used once), computing it once as a new value
and putting one digit of it for each occurrence saves n - 1 adders. Finding the best set is NP-hard; taking the best
pattern again and again, new values included, is the usual way (Hosangadi, Fallah and Kastner, "Common Subexpression
Elimination Involving Multiple Variables for Linear DSP Synthesis", 2004; da4ml: Sun et al., arXiv:2507.04535).

The score of a pattern is ``(n - 1) * weight``. Replacing two digits whose bits overlap in ``o`` places by one shortens
every tree by an adder and ``o`` bits of operands, while patterns of digits that hardly overlap make long values for few
bits saved, hence ``weight = o + a * (chain of its adder) + b``.

The method. Digits of value v live in two bit masks (signs + and -) over all outputs, ``stride`` bits an output, so that
the occurrences of a pattern are two ANDs of shifted masks and their number a population count. Digits only vanish while
a pattern waits, so that counts of waiting patterns only fall: the queue holds upper bounds, and a pattern is counted
anew when it comes up. Only pairs with the newest value are counted from the outputs' digits.

Depth. With a limit, an output's digits must keep ``sum 2^depth <= 2^limit`` (see ``trees.py``); occurrences that would
break it are left out.
"""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hawq_flow.numeric import IntArray
from hawq_flow.to_rtl.adders import Term
from hawq_flow.to_rtl.forms import Forms

_LOCAL = 40
"""Bits of the part of a pattern's key below the newer value's number."""


@dataclass(frozen=True)
class Weights:
    """How patterns are scored: ``(n - discount) * (overlap + chain * adder bits + flat) * (1 + noise * random)``."""

    chain: float = 0.5
    flat: float = 0.0
    discount: float = 1.0
    noise: float = 0.0


class Patterns:
    """The outputs as sums of digits, and the taking of patterns out of them.

    ``digits`` (inputs, outputs, places) of -1, 0, 1 over the inputs of ``forms``; ``limits`` and ``used`` (outputs):
    depth limit of each output and what of ``2^limit`` other terms of it take already; ``limits`` None: unlimited.
    """

    def __init__(
        self, forms: Forms, digits: NDArray[np.int8], limits: list[int] | None = None, used: list[int] | None = None
    ) -> None:
        inputs, outputs, places = digits.shape
        self.places = int(places)
        self.forms = forms
        self.stride = 2 * self.places + 1  # a relative shift never reaches another output's digits
        self.bits = (2 * self.stride).bit_length()
        self.masks: list[list[int]] = [[0] * inputs, [0] * inputs]  # of sign +, of sign -
        self.outputs: list[set[int]] = [set() for _ in range(outputs)]
        for i, j, s in np.argwhere(digits).tolist():
            minus = int(digits[i, j, s] < 0)
            self.masks[minus][i] |= 1 << (j * self.stride + s)
            self.outputs[j].add(self._digit(i, s, minus))
        self.spare: list[int] | None = None
        if limits is not None:
            taken = used or [0] * outputs
            self.spare = [
                (1 << limit) - t - sum(1 << forms.depth[d >> self.bits] for d in column)
                for limit, t, column in zip(limits, taken, self.outputs, strict=True)
            ]

    def _digit(self, value: int, shift: int, minus: int) -> int:
        """A digit as one integer, such that adding to it shifts and XOR 1 negates."""
        return (value << self.bits) | (shift << 1) | minus

    def terms(self, output: int) -> list[Term]:
        """The digits of an output, sorted."""
        field = (1 << self.bits) - 1
        return [(d >> self.bits, (d & field) >> 1, -1 if d & 1 else 1) for d in sorted(self.outputs[output])]

    def take_all(self, weights: Weights, rng: np.random.Generator | None = None) -> None:
        """Take patterns until none occurs twice."""
        queue = _Queue()
        self._push(queue, *self._count_all(), weights, rng)
        while (entry := queue.pop()) is not None:
            key, count, weight = entry
            a, b, d, opposite = self._pattern(key)
            plus, minus = self._occurrences(a, b, d, opposite)
            now = plus.bit_count() + minus.bit_count()
            if now < 2:
                continue
            if now < count:
                queue.push(key, now, weight, weight * (now - weights.discount))
                continue
            self._push(queue, *self._take(a, b, d, opposite, plus, minus), weights, rng)

    def _pattern(self, key: int) -> tuple[int, int, int, int]:
        """Values a and b >= a, shift of a relative to b, 1 for opposite signs."""
        b, local = key >> _LOCAL, key & ((1 << _LOCAL) - 1)
        return local >> self.bits, b, ((local & ((1 << self.bits) - 1)) >> 1) - self.places, local & 1

    def _count_all(self) -> tuple[IntArray, IntArray]:
        """The patterns of all pairs of digits of each output: keys, and how often each occurs."""
        found = [np.empty(0, dtype=np.int64)]
        field = (1 << self.bits) - 1
        for column in self.outputs:
            digits = np.array(sorted(column), dtype=np.int64)
            value, low = digits >> self.bits, digits & field
            i, j = np.triu_indices(len(digits), 1)
            shift = (low[i] >> 1) - (low[j] >> 1) + self.places
            found.append((value[j] << _LOCAL) | (value[i] << self.bits) | (shift << 1) | ((low[i] ^ low[j]) & 1))
        return np.unique(np.concatenate(found), return_counts=True)

    def _push(
        self, queue: _Queue, keys: IntArray, counts: IntArray, weights: Weights, rng: np.random.Generator | None
    ) -> None:
        """Put the patterns that occur twice or more in the queue."""
        keys, counts = keys[counts > 1], counts[counts > 1]
        width = np.array(self.forms.width)
        local = keys & ((1 << _LOCAL) - 1)
        d = ((local & ((1 << self.bits) - 1)) >> 1) - self.places
        top_a, top_b = width[local >> self.bits] + np.maximum(d, 0), width[keys >> _LOCAL] + np.maximum(-d, 0)
        overlap = np.maximum(np.minimum(top_a, top_b) - abs(d), 0)
        chain = np.maximum(np.maximum(top_a, top_b) - abs(d) + 1, 0.1)
        weight = overlap + weights.chain * chain + weights.flat
        if rng is not None:
            weight *= 1 + weights.noise * rng.random(len(weight))
        score = weight * (counts - weights.discount)
        for entry in zip(keys.tolist(), counts.tolist(), weight.tolist(), score.tolist(), strict=True):
            queue.push(*entry)

    def _occurrences(self, a: int, b: int, d: int, opposite: int) -> tuple[int, int]:
        """Masks, at the places of a's digits of sign + and -, of occurrences that share no digit and may be taken."""
        plus, minus = self.masks
        with_plus, with_minus = (minus[b], plus[b]) if opposite else (plus[b], minus[b])
        if d >= 0:
            first, second = plus[a] & (with_plus << d), minus[a] & (with_minus << d)
        else:
            first, second = plus[a] & (with_plus >> -d), minus[a] & (with_minus >> -d)
        both = first | second
        if a == b and both & (both << -d):
            both = _disjoint(both, -d)
        if self.spare is not None:
            rise = abs((1 << self.forms.depth[a]) - (1 << self.forms.depth[b]))
            if rise:
                both = self._allowed(both, rise)
        return first & both, second & both

    def _allowed(self, mask: int, rise: int) -> int:
        """The occurrences, lowest first, whose outputs can still grow by ``rise``."""
        assert self.spare is not None
        kept, grown = 0, Counter[int]()
        for place in _ones(mask):
            output = place // self.stride
            if grown[output] + rise <= self.spare[output]:
                grown[output] += rise
                kept |= 1 << place
        return kept

    def _take(self, a: int, b: int, d: int, opposite: int, plus: int, minus: int) -> tuple[IntArray, IntArray]:
        """Make the pattern a value and put its digits in place; the patterns of pairs with the new value."""
        forms, stride = self.forms, self.stride
        # The operand with the lower last bit is not subtracted; between equals, the sign that more occurrences have.
        lower_is_b = d > 0 or (d == 0 and bool(opposite) and minus.bit_count() > plus.bit_count())
        number = forms.add((b, a, 0, d, bool(opposite)) if lower_is_b else (a, b, 0, -d, bool(opposite)))
        self.masks[0].append(0)
        self.masks[1].append(0)
        rise = abs((1 << forms.depth[a]) - (1 << forms.depth[b]))
        placed = []
        for sign, mask in ((0, plus), (1, minus)):
            back = mask >> d if d >= 0 else mask << -d
            self.masks[sign][a] ^= mask
            self.masks[sign ^ opposite][b] ^= back
            new_sign = sign ^ opposite if lower_is_b else sign
            self.masks[new_sign][number] |= back if lower_is_b else mask
            for place in _ones(mask):
                output, shift = divmod(place, stride)
                digits = self.outputs[output]
                digits.remove(self._digit(a, shift, sign))
                digits.remove(self._digit(b, shift - d, sign ^ opposite))
                placed.append((output, shift - d if lower_is_b else shift, new_sign))
                if self.spare is not None:
                    self.spare[output] -= rise
        return self._count_new(number, placed)

    def _count_new(self, number: int, placed: list[tuple[int, int, int]]) -> tuple[IntArray, IntArray]:
        """Put the new value's digits (output, shift, sign); the patterns that they make, and how often."""
        found: list[int] = []
        for output, shift, minus in placed:
            digits = self.outputs[output]
            offset = (self.places - shift) << 1
            if minus:
                found += [(digit ^ 1) + offset for digit in digits]
            else:
                found += [digit + offset for digit in digits]
            digits.add(self._digit(number, shift, minus))
        local = np.array(found, dtype=np.int64)
        own, field = number << self.bits, (1 << self.bits) - 1
        # The new value with itself: the lower digit counts as the first.
        shift_field = (local & field) >> 1
        mirror = own | ((2 * self.places - shift_field) << 1) | (local & 1)
        local = np.where((local >= own) & (shift_field > self.places), mirror, local)
        keys, counts = np.unique(local, return_counts=True)
        return keys | (number << _LOCAL), counts


class _Queue:
    """Patterns by score, in steps of ``STEP``; of those in the top step, the last one put in comes first."""

    STEP = 0.25

    def __init__(self) -> None:
        self._steps: dict[int, list[tuple[int, int, float]]] = {}
        self._order: list[int] = []  # a heap of minus the steps in use

    def push(self, key: int, count: int, weight: float, score: float) -> None:
        """Put a pattern in: its key, how often it occurs at most, its weight."""
        step = int(score / self.STEP)
        entries = self._steps.get(step)
        if entries is None:
            self._steps[step] = [(key, count, weight)]
            heapq.heappush(self._order, -step)
        else:
            entries.append((key, count, weight))

    def pop(self) -> tuple[int, int, float] | None:
        """The best pattern; None when there is none."""
        while self._order:
            entries = self._steps[-self._order[0]]
            if entries:
                return entries.pop()
            del self._steps[-heapq.heappop(self._order)]
        return None


def _ones(mask: int) -> list[int]:
    """Places of the ones of a mask, lowest first."""
    places = []
    while mask:
        bit = mask & -mask
        mask ^= bit
        places.append(bit.bit_length() - 1)
    return places


def _disjoint(mask: int, distance: int) -> int:
    """Of the places p of ``mask`` (each a pair p, p + distance), lowest first, those that share none taken before."""
    taken, kept = 0, 0
    for place in _ones(mask):
        pair = (1 << place) | (1 << (place + distance))
        if not taken & pair:
            taken |= pair
            kept |= 1 << place
    return kept
