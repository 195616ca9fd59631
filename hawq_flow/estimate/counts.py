"""What a constant integer matrix asks of hardware: counts that stand before any synthesis, from the weights themselves.

Vivado and Vitis HLS, and every shift-and-add generator, tell constants apart by their digits in canonical signed-digit
form (CSD, the fewest non-zero digits +1/-1; Avizienis 1961). The number of them is ``popcount(c xor 3 c)``:

- one digit: a shift, no logic of its own;
- two digits: one adder (*simple* products);
- three or more: Vivado HLS keeps a multiplication (*hard* products), a DSP block where the operands are wide enough.

Equal products of one input by one constant are made once, so simple and hard products are counted as distinct pairs
(input, signed constant). On the 27 latency-strategy designs of wa-hls4ml-search (Vivado HLS 2020.1, 16-bit inputs) the
count of hard pairs *is* the reported number of DSP blocks to a few percent.

Where only widths are known, :func:`expected` draws a matrix with weights as a trained layer has them and counts that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hawq_flow.numeric import IntArray, significant_bits
from hawq_flow.to_rtl.csd import HARD_DIGITS, csd_count


@dataclass(frozen=True)
class Counts:
    """Of a constant matrix (n_out, n_in): see the module's docstring.

    Attributes
    ----------
    nonzeros, zeros:
        Weights that are not and that are zero.
    rows:
        Outputs with at least one non-zero weight.
    digits:
        Non-zero CSD digits of all weights.
    simple, hard:
        Distinct pairs (input, constant) whose constant has two, and three or more CSD digits.
    effective_bits:
        Bits of all weights' magnitudes from the highest to the lowest non-zero one: HGQ's measure.
    exact:
        Whether they were counted in the actual weights, not in a matrix drawn in their stead.
    """

    nonzeros: int = 0
    zeros: int = 0
    rows: int = 0
    digits: int = 0
    simple: int = 0
    hard: int = 0
    effective_bits: int = 0
    exact: bool = True


def _distinct(matrix: IntArray, mask: np.ndarray) -> int:
    """Distinct pairs (column, value) among the masked entries."""
    rows, columns = np.nonzero(mask)
    if not rows.size:
        return 0
    pairs = np.stack([columns, matrix[rows, columns]], axis=1)
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    return int((np.diff(pairs[order], axis=0) != 0).any(axis=1).sum()) + 1


def count(matrix: IntArray, *, groups: int = 1, exact: bool = True) -> Counts:
    """Counts of a matrix of int64 (outputs, inputs of one output).

    ``groups``: outputs are in so many groups that read different inputs (a grouped convolution), so that only products
    within a group can be equal.
    """
    matrix = np.asarray(matrix, np.int64)
    if matrix.ndim != 2 or matrix.shape[0] % groups:
        raise ValueError(
            f"counts: a matrix of shape {matrix.shape} in {groups} groups; expected (outputs, inputs) with outputs a "
            "multiple of the groups"
        )
    digits = csd_count(matrix)
    blocks = [(part, number) for part, number in zip(np.split(matrix, groups), np.split(digits, groups), strict=True)]
    return Counts(
        nonzeros=int(np.count_nonzero(matrix)),
        zeros=int(matrix.size - np.count_nonzero(matrix)),
        rows=int((matrix != 0).any(axis=1).sum()),
        digits=int(digits.sum()),
        simple=sum(_distinct(part, number == HARD_DIGITS - 1) for part, number in blocks),
        hard=sum(_distinct(part, number >= HARD_DIGITS) for part, number in blocks),
        effective_bits=int(significant_bits(matrix).sum()),
        exact=exact,
    )


def drawn(
    n_in: int,
    n_out: int,
    bits: int,
    *,
    nonzeros: int | None = None,
    deviation: float | None = None,
    uniform: float | None = None,
    seed: int = 0,
) -> IntArray:
    """A matrix (n_out, n_in) of ``bits``-bit weights to count in when the actual weights are not known.

    Parameters
    ----------
    nonzeros:
        How many weights are not zero: the largest of those drawn, as quantization and magnitude pruning leave them.
        None: as many as rounding leaves.
    deviation:
        Standard deviation of the normal distribution that the weights are rounded from, in steps of their grid; None:
        a quarter of the largest weight.
    uniform:
        Instead of a normal distribution, a uniform one from ``-uniform`` to ``uniform`` steps.

    The seed makes it the same matrix every time. Weights are symmetric: magnitudes up to ``2^(bits-1) - 1``.
    """
    most = max(2 ** (bits - 1) - 1, 1)
    generator = np.random.default_rng([seed, n_in, n_out, bits])
    if uniform is not None:
        values = generator.uniform(-uniform, uniform, n_in * n_out)
    else:
        values = generator.normal(0.0, most / 4 if deviation is None else deviation, n_in * n_out)
    weights = np.clip(np.rint(values), -most, most).astype(np.int64)
    if nonzeros is not None:
        if not 0 <= nonzeros <= weights.size:
            raise ValueError(f"counts: {nonzeros} non-zero weights of {n_in} x {n_out}; expected 0 to {weights.size}")
        order = np.argsort(-np.abs(values), kind="stable")
        kept = order[:nonzeros]
        weights[kept] = np.where(weights[kept] == 0, np.where(values[kept] < 0, -1, 1), weights[kept])
        weights[order[nonzeros:]] = 0
    return weights.reshape(n_out, n_in)


def expected(n_in: int, n_out: int, bits: int, *, nonzeros: int | None = None, fraction: int | None = None) -> Counts:
    """Counts to expect of a layer of which only sizes, widths and zeros are known.

    ``fraction`` is the number of fraction bits of the weights' type, where known: the weights are then drawn with the
    standard deviation ``sqrt(2 / (n_in + n_out))`` of Glorot and Bengio's initialization (AISTATS 2010), which trained
    layers keep roughly; without it, with a quarter of their range.
    """
    deviation = None if fraction is None else math.sqrt(2 / (n_in + n_out)) * 2.0**fraction
    return count(drawn(n_in, n_out, bits, nonzeros=nonzeros, deviation=deviation), exact=False)
