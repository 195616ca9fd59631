"""Columns as others plus a remainder: the preliminary decomposition of a constant matrix.

The maths. If column ``j`` of M differs little from a multiple ``f`` of column ``p``, then ``y_j = f y_p + x . d_j``
with ``d_j = M_j - f M_p`` takes one adder and the few digits of ``d_j`` instead of all digits of ``M_j``. In all,
``M = D P`` with the differences ``D`` and a unit triangular ``P`` of the factors along paths. The parents that minimize
the number of digits, with the zero column as the root, are a minimum spanning tree, grown by Prim's algorithm (da4ml
begins so too: Sun et al., arXiv:2507.04535; for filters: Muhammad and Roy, "Reduced Computational Redundancy
Implementation of DSP Algorithms Using Computation Sharing Vector Scaling", 2002). Differences hold what signed digits
hide: 7 - 6 is 1, though 8 - 1 and 8 - 2 share one digit only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hawq_flow.numeric import IntArray
from hawq_flow.to_rtl.adders import bit_length
from hawq_flow.to_rtl.csd import csd_count

MAX_FACTOR_SHIFT = 2
"""Parents are tried times 1, 2 and 4, and negated."""


@dataclass(frozen=True)
class Family:
    """Column ``j`` is ``sign[j] * 2^shift[j] * column parent[j]`` plus column ``j`` of ``difference``; parent -1: 0.

    ``order``: the columns, parents before children. Arrays (columns,), ``difference`` (inputs, columns).
    """

    parent: IntArray
    shift: IntArray
    sign: IntArray
    difference: IntArray
    order: tuple[int, ...]


def orphans(matrix: IntArray) -> Family:
    """The family in which every column stands for itself."""
    columns = matrix.shape[1]
    zeros = np.zeros(columns, dtype=np.int64)
    return Family(zeros - 1, zeros, zeros + 1, matrix, tuple(range(columns)))


def family(matrix: IntArray, penalty: float, limit: int | None = None) -> Family:
    """The minimum spanning tree of the columns (non-zero, distinct up to sign and powers of two).

    ``penalty``: what a parent costs, in digits (the term that it is, and more for its width). ``limit``: the largest
    depth of adders; a parent is only taken where the child then still meets it.
    """
    columns = matrix.shape[1]
    digits = csd_count(matrix).sum(axis=0)
    best = digits.astype(np.float64)
    parent, shift, sign = (np.full(columns, value, dtype=np.int64) for value in (-1, 0, 1))
    depth = rounds(digits)  # of columns with their parents, where it is limited
    left, order = np.ones(columns, dtype=bool), []
    for _ in range(columns):
        j = int(np.where(left, best, np.inf).argmin())
        left[j] = False
        order.append(j)
        if not left.any():
            break
        for s in range(MAX_FACTOR_SHIFT + 1):
            for g in (1, -1):
                rest = csd_count(matrix[:, left] - g * (matrix[:, [j]] << s)).sum(axis=0)
                better = rest + penalty < best[left]
                if limit is not None:
                    reached = rounds(rest + (1 << int(depth[j])))
                    better &= reached <= limit
                    depth[np.flatnonzero(left)[better]] = reached[better]
                chosen = np.flatnonzero(left)[better]
                best[chosen] = rest[better] + penalty
                parent[chosen], shift[chosen], sign[chosen] = j, s, g
    factors = np.where(parent >= 0, sign << shift, 0)
    return Family(parent, shift, sign, matrix - matrix[:, parent] * factors, tuple(order))


def rounds(terms: IntArray) -> IntArray:
    """Depth of a tree over so many terms: the logarithm to base 2, rounded up."""
    return bit_length(np.maximum(terms, 1) - 1)


def limits_of(kin: Family, limit: int) -> list[int]:
    """The depth that each column may have so that all its descendants can meet ``limit``."""
    counts = csd_count(kin.difference).sum(axis=0).tolist()
    limits = [limit] * len(counts)
    for j in reversed(kin.order):
        parent = int(kin.parent[j])
        if parent >= 0:
            limits[parent] = min(limits[parent], ((1 << limits[j]) - counts[j]).bit_length() - 1)
    return limits
