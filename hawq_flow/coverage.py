"""What the inputs of an equality check exercised: a proof on data that never reaches a tie or an end proves little.

For every value of a network, over the rows compared: how many distinct integers occurred, how many elements stood at
the ends of the value's type, and for a requantization how many products lay exactly between two integers (ties, where
roundings differ) and how many results saturation cut. A ReLU's zeros are counted apart: they are its work, not a loss.

Counts of several blocks of rows add up (:func:`merge`), so that a large test set need not be in memory at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hawq_flow.network import IntegerNetwork, Requantize
from hawq_flow.numeric import IntArray, shift_round

DISTINCT = 1 << 16
"""Distinct integers of a value are counted up to this many."""
SATURATED = 0.9
"""An output with a larger fraction of saturated elements is refused."""


@dataclass(frozen=True, eq=False)
class Coverage:
    """Counts of one value.

    Attributes
    ----------
    elements:
        Elements seen: rows times elements a row.
    seen:
        The distinct integers, sorted int64; with ``DISTINCT`` of them, only so many are kept.
    least, most:
        Smallest and largest integer of every element over the rows; int64, the value's shape.
    ends:
        Elements at the smallest or largest integer of the value's type.
    ties, saturated, rectified:
        Of a requantization: products exactly half-way between two integers; results beyond the type that were brought
        back into it; and, of those, not counted as saturated, negative ones that an unsigned type with zero point 0
        made 0 (ReLU). What a ReLU6 cuts at 6 counts as saturated: the type's end is all that there is of it.
    """

    elements: int
    seen: IntArray
    least: IntArray
    most: IntArray
    ends: int
    ties: int = 0
    saturated: int = 0
    rectified: int = 0

    @property
    def distinct(self) -> int:
        """Distinct integers that occurred, at most ``DISTINCT``."""
        return len(self.seen)

    @property
    def varying(self) -> int:
        """Elements of a row that took more than one value over the rows."""
        return int((self.most > self.least).sum())

    def to_dict(self) -> dict[str, int]:
        """The counts, for JSON."""
        return {
            "elements": self.elements,
            "distinct": self.distinct,
            "least": int(self.least.min()),
            "most": int(self.most.max()),
            "width": int(self.least.size),
            "varying": self.varying,
            "ends": self.ends,
            "ties": self.ties,
            "saturated": self.saturated,
            "rectified": self.rectified,
        }


def count(network: IntegerNetwork, values: Mapping[str, IntArray]) -> dict[str, Coverage]:
    """Counts of every value of a network.

    Parameters
    ----------
    values:
        ``interpret.trace`` of the rows: every value by name, int64 (n, *shape), n >= 1.

    Returns
    -------
    Coverage by the value's name, in the network's order.
    """
    requantizations = {op.name: op for op in network.ops if isinstance(op, Requantize)}
    result = {}
    for name, value in network.values.items():
        array = values[name]
        rank = len(value.shape)
        low, high = value.type.low(rank), value.type.high(rank)
        op = requantizations.get(name)
        ties, saturated, rectified = (0, 0, 0) if op is None else _requantized(op, values[op.input], rank)
        result[name] = Coverage(
            array.size,
            _distinct(array),
            array.min(axis=0),
            array.max(axis=0),
            int(((array == low) | (array == high)).sum()),
            ties,
            saturated,
            rectified,
        )
    return result


def _requantized(op: Requantize, x: IntArray, rank: int) -> tuple[int, int, int]:
    """(ties, saturated, rectified) of one requantization of its operand (n, *shape)."""
    product = x * op.multiplier
    half = np.where(op.shift > 0, np.int64(1) << np.maximum(op.shift - 1, 0), 0)
    ties = int((((product & (2 * half - (half > 0))) == half) & (half > 0)).sum())
    result = shift_round(product, op.shift, op.rounding) + op.offset
    below, above = result < op.type.low(rank), result > op.type.high(rank)
    if not op.type.signed and not op.offset.any():
        return ties, int(above.sum()), int(below.sum())
    return ties, int((below | above).sum()), 0


def _distinct(array: IntArray) -> IntArray:
    """The distinct integers of an array, sorted, at most ``DISTINCT`` of them."""
    low, high = int(array.min()), int(array.max())
    if high - low < 16 * DISTINCT:  # a bitmap: far faster than sorting
        marks = np.zeros(high - low + 1, dtype=bool)
        marks[(array - low).ravel()] = True
        found = np.flatnonzero(marks) + low
    else:
        found = np.unique(array)
    return found[:DISTINCT].astype(np.int64)


def merge(parts: Sequence[Mapping[str, Coverage]]) -> dict[str, Coverage]:
    """Counts of several blocks of rows of the same network as those of all rows; at least one block."""
    first, *rest = parts
    result = dict(first)
    for part in rest:
        for name, more in part.items():
            known = result[name]
            result[name] = Coverage(
                known.elements + more.elements,
                known.seen if known.distinct == DISTINCT else np.union1d(known.seen, more.seen)[:DISTINCT],
                np.minimum(known.least, more.least),
                np.maximum(known.most, more.most),
                known.ends + more.ends,
                known.ties + more.ties,
                known.saturated + more.saturated,
                known.rectified + more.rectified,
            )
    return result


def problems(outputs: Sequence[str], covered: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Why equality on these rows would prove nothing: outputs that are constant or mostly saturated, in words.

    Parameters
    ----------
    outputs:
        Names of the network's outputs.
    covered:
        :meth:`Coverage.to_dict` by value.
    """
    found = []
    for name in outputs:
        entry = covered[name]
        rows = entry["elements"] // entry["width"]
        if entry["varying"] == 0:
            found.append(
                f"output {name!r}: none of its {entry['width']} elements varies over {rows:,} rows; expected outputs "
                "that depend on the input. Train the network, or calibrate it on data that resemble the input"
            )
        elif entry["saturated"] > SATURATED * entry["elements"]:
            found.append(
                f"output {name!r}: {entry['saturated'] / entry['elements']:.0%} of {entry['elements']:,} elements are "
                f"saturated; expected at most {SATURATED:.0%}. Widen `output_bits`, or calibrate on data that resemble "
                "the input"
            )
    return found


def markdown(covered: Mapping[str, Mapping[str, Any]]) -> str:
    """The counts as a Markdown table, one row a value."""
    lines = [
        "| value | elements | distinct | from | to | varying | at ends | ties | saturated | rectified |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, entry in covered.items():
        more = "+" if entry["distinct"] >= DISTINCT else ""
        lines.append(
            f"| {name} | {entry['elements']:,} | {entry['distinct']:,}{more} | {entry['least']:,} | "
            f"{entry['most']:,} | {entry['varying']:,} of {entry['width']:,} | {entry['ends']:,} | {entry['ties']:,} | "
            f"{entry['saturated']:,} | {entry['rectified']:,} |"
        )
    return "\n".join(lines)
