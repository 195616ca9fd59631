"""Sums of many terms as trees of two-input adders, narrow sums first.

The maths. A column is ``y = sum_t g_t * (value_t << s_t)`` with signs ``g_t``. Any tree over ``k`` terms has ``k - 1``
adders; their bits depend on the order. An adder's chain ends at the top bit of its sum, so wide sums should be few
and late: of all pairs the one whose sum is narrowest is added next, as Huffman's algorithm joins light subtrees first.
Among equal widths the widest range is taken, which wastes least of its top bit (best fit), then the fewest bits of the
adder. Ranges are exact, since they come from the linear form of each sum.

Signs. A sum of the tree may be kept as itself or negated, and an adder may add or subtract; a difference costs the bits
from its subtrahend's last bit up, a sum from the higher of the two last bits. Once the tree's shape is known, dynamic
programming finds the signs of all its sums that cost least, a negated root with what the negation costs: for either
sign of a sum, the best of the three ways to make it (add two of that sign; subtract either way).

Depth. Terms of depths ``d_t`` have a tree of depth ``L`` if and only if ``sum_t 2^(d_t) <= 2^L`` (Kraft's inequality
counted from the root; Golumbic, "Combinatorial Merging", 1976). Adding two of depths ``d < e`` raises the sum by
``2^e - 2^d``, and a pair is only taken while the sum allows it; joining the two least deep always is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hawq_flow.numeric import IntArray
from hawq_flow.to_rtl.adders import Term, widths
from hawq_flow.to_rtl.circuit import width
from hawq_flow.to_rtl.forms import Forms

NEVER = np.iinfo(np.int64).max


def add_tree(forms: Forms, terms: list[Term], limit: int | None, free_signs: bool) -> Term:
    """Add the nodes of a tree over ``terms`` to ``forms``; its root, or (-1, 0, 1) for no terms.

    ``limit``: the largest depth of the root, which the terms' depths must allow. ``free_signs``: whether a negated root
    costs nothing more.
    """
    if not terms:
        return -1, 0, 1
    sums = [_leaf(forms, term) for term in terms]
    for i, j, low, high in _shape(forms, terms, limit):
        sums.append(_Sum(low, high, min(sums[i].shift, sums[j].shift), i, j))
    for item in sums[len(terms) :]:
        _price(item, sums)
    negation = 0 if free_signs or sums[-1].low == sums[-1].high else sums[-1].width(1)
    minus = int(sums[-1].cost[1] + negation < sums[-1].cost[0])
    return _emit(forms, sums, terms, minus)


@dataclass
class _Sum:
    """A term or a sum of two: range, last bit; for sign + (0) and - (1) the least cost and the operands' signs."""

    low: int
    high: int
    shift: int
    left: int = -1
    right: int = -1
    cost: tuple[float, float] = (math.inf, math.inf)
    way: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (0, 0))

    def width(self, minus: int) -> int:
        """Of the sum itself, or of its negative."""
        return width(-self.high, -self.low) if minus else width(self.low, self.high)


def _leaf(forms: Forms, term: Term) -> _Sum:
    value, shift, sign = term
    low, high = forms.low[value] << shift, forms.high[value] << shift
    return _Sum(low, high, shift, cost=(0, math.inf)) if sign > 0 else _Sum(-high, -low, shift, cost=(math.inf, 0))


def _price(item: _Sum, sums: list[_Sum]) -> None:
    """Fill in the least cost of either sign of a sum."""
    left, right = sums[item.left], sums[item.right]
    costs, ways = [], []
    for minus in (0, 1):
        top = 0 if item.low == item.high else item.width(minus)
        options = []
        for p, q in ((minus, minus), (0, 1), (1, 0)):
            if p == q:
                begin = top if _side_by_side(left, right, p) else max(left.shift, right.shift)
            else:  # the operand of the sum's own sign is the minuend
                begin = right.shift if p == minus else left.shift
            options.append((left.cost[p] + right.cost[q] + max(top - begin, 0), (p, q)))
        cost, way = min(options)
        costs.append(cost)
        ways.append(way)
    item.cost, item.way = (costs[0], costs[1]), (ways[0], ways[1])


def _side_by_side(left: _Sum, right: _Sum, minus: int) -> bool:
    """Whether one operand, never negative, ends below the other's last bit."""
    low, high = (left, right) if left.shift <= right.shift else (right, left)
    return (low.low >= 0 if not minus else low.high <= 0) and low.width(minus) <= high.shift


def _emit(forms: Forms, sums: list[_Sum], terms: list[Term], negated: int) -> Term:
    """Fix the signs from the root down, then add the nodes from the terms up."""
    root = len(sums) - 1
    minus = [0] * len(sums)
    minus[root] = negated
    for k in range(root, len(terms) - 1, -1):
        item = sums[k]
        minus[item.left], minus[item.right] = item.way[minus[k]]
    placed: list[Term] = [(value, shift, 0 if sign > 0 else 1) for value, shift, sign in terms]
    for k in range(len(terms), len(sums)):
        first, second = placed[sums[k].left], placed[sums[k].right]
        if first[2] != second[2] and first[2] != minus[k]:
            first, second = second, first
        shift = min(first[1], second[1])
        number = forms.add((first[0], second[0], first[1] - shift, second[1] - shift, first[2] != second[2]))
        placed.append((number, shift, minus[k]))
    value, shift, sign = placed[root]
    return value, shift, -1 if sign else 1


def _shape(forms: Forms, terms: list[Term], limit: int | None) -> list[tuple[int, int, int, int]]:
    """The tree: pairs (i, j) of terms and earlier pairs, numbered on from the terms, with the range of their sum."""
    value, shift, sign = (np.array(column, dtype=np.int64) for column in zip(*terms, strict=True))
    rows = (forms.rows[value] << shift[:, None]) * sign[:, None]
    live = _Live(forms, rows, shift, np.array([forms.depth[v] for v in value.tolist()], dtype=np.int64))
    return [live.join(limit) for _ in terms[1:]]


class _Live:
    """The terms not yet added, and for each pair of them what its sum would be, as one number, least first."""

    def __init__(self, forms: Forms, rows: IntArray, shift: IntArray, depth: IntArray) -> None:
        self.forms, self.rows, self.shift, self.depth = forms, rows, shift, depth
        self.number = np.arange(len(rows))
        self.next = len(rows)
        self.key = np.full((len(rows), len(rows)), NEVER)
        for i in range(1, len(rows)):
            self.key[i, :i] = self._keys(i, slice(0, i))

    def _keys(self, i: int, others: slice) -> IntArray:
        """Of term ``i`` with others: (width, range within the width, adder bits), of the narrower sign of the sum."""
        low, high = self.forms.range_of(self.rows[i] + self.rows[others])
        low, high = np.where(low + high < 0, -high, low), np.where(low + high < 0, -low, high)
        bits = widths(low, high)
        # The range as a fraction of its width, in 2^20ths: at most one.
        filled = ((high - low).astype(np.float64) * 2.0 ** (20 - bits)).astype(np.int64)
        chain = np.maximum(bits - np.maximum(self.shift[i], self.shift[others]), 0)
        keys: IntArray = (bits << 40) - (filled << 8) + chain
        return keys

    def join(self, limit: int | None) -> tuple[int, int, int, int]:
        """Join the best pair: the numbers of the two and the range of their sum, which is numbered next."""
        key = self.key
        if limit is not None:
            weight = 1 << self.depth
            spare = (1 << limit) - int(weight.sum())
            key = np.where(abs(weight[:, None] - weight) <= spare, key, NEVER)
        i, j = divmod(int(key.argmin()), len(key))
        pair = int(self.number[i]), int(self.number[j])
        self.rows[j] += self.rows[i]
        self.shift[j] = min(self.shift[i], self.shift[j])
        self.depth[j] = max(self.depth[i], self.depth[j]) + 1
        self.number[j] = self.next
        self.next += 1
        low, high = self.forms.range_of(self.rows[j])
        self._remove(i)
        if len(self.rows) > 1:
            keys = self._keys(j, slice(None))
            self.key[j, :j], self.key[j + 1 :, j] = keys[:j], keys[j + 1 :]
        return *pair, int(low), int(high)

    def _remove(self, i: int) -> None:
        """Put the last term in the place of term ``i`` (which is above the other of its pair)."""
        end = len(self.rows) - 1
        if i != end:
            for array in (self.rows, self.shift, self.depth, self.number):
                array[i] = array[end]
            self.key[i, :i], self.key[i + 1 : end, i] = self.key[end, :i], self.key[end, i + 1 : end]
        self.rows, self.shift, self.depth = self.rows[:end], self.shift[:end], self.depth[:end]
        self.number, self.key = self.number[:end], self.key[:end, :end]
