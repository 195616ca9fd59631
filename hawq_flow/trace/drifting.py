"""Saturation and range drift: what unseen data do to every value, held against data the network was made with.

For each value, from the *old* rows (n of them) and the *new* ones (m):

* the fraction of elements that saturation cut (ReLU's zeros apart), old and new; of an input, whose raw data were
  clipped before, the fraction at the ends of its type;
* the range used, old and new, beside the proven one and the type's;
* ``outside``: the fraction of new integers outside the range that *their own element* took over the old rows. Were
  both drawn alike, ``2 / (n + 1)`` of them would be expected there at most, since each of n + 1 rows is as likely to
  hold the smallest;
* ``ks``: the Kolmogorov-Smirnov distance ``max |F_old - F_new|`` of the integers of a channel, the largest over the
  channels (axis 0), with that channel. Integers are taken in bins of ``resolution`` consecutive ones where a value's
  proven range has too many to be counted singly (then it is a lower bound). Equal distributions stay below ``1.95
  sqrt(1 / n + 1 / m)`` with 99.9 % (Smirnov's limit, rows taken as the independent units).

A value is flagged when one of them passes :class:`Thresholds`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hawq_flow.network import IntegerNetwork
from hawq_flow.numeric import IntArray
from hawq_flow.trace.statistics import Statistics, Tally
from hawq_flow.trace.tracing import blocks

BINS = 1 << 18
"""Bins of a value, of all its channels together: 2 MiB of counts."""
MOST_BINS = 1 << 16
"""Bins of one channel."""
SMIRNOV = 1.95
"""``sqrt(-ln(0.001 / 2) / 2)``: the two-sample limit at 99.9 %."""


@dataclass(frozen=True)
class Thresholds:
    """Beyond what a value is flagged.

    Attributes
    ----------
    saturated:
        Rise of the saturated fraction.
    outside:
        Fraction outside the old range, above the expected ``2 / (n + 1)``.
    ks:
        Distance; never below Smirnov's limit.
    """

    saturated: float = 0.01
    outside: float = 0.01
    ks: float = 0.1


@dataclass(frozen=True, eq=False)
class Observed:
    """What was seen of the values over ``rows`` rows.

    ``counts`` are (channels, bins) by value; ``outside`` how many elements lay outside the range of a reference.
    """

    rows: int
    statistics: Mapping[str, Statistics]
    counts: Mapping[str, IntArray]
    outside: Mapping[str, int]


class Observer:
    """Counts of blocks of rows, on their own or against a reference."""

    def __init__(self, network: IntegerNetwork, reference: Observed | None = None) -> None:
        self.network, self.reference = network, reference
        self.rows = 0
        self.counts: dict[str, IntArray] = {}
        self.outside = dict.fromkeys(network.values, 0)
        for name, value in network.values.items():
            span = (int(value.high.max()) - int(value.low.min())) >> resolution_bits(network, name)
            self.counts[name] = np.zeros((_channels(value.shape), span + 1), dtype=np.int64)

    def add(self, block: Mapping[str, IntArray]) -> None:
        """Count a block: every value by name, int64 (n, *shape)."""
        for name, value in self.network.values.items():
            array, counts = block[name], self.counts[name]
            channels, bins = counts.shape
            place = (array - int(value.low.min())) >> resolution_bits(self.network, name)
            place = place.reshape(len(array), channels, -1) + bins * np.arange(channels)[:, None]
            counts += np.bincount(place.ravel(), minlength=counts.size).reshape(counts.shape)
            if self.reference is not None:
                known = self.reference.statistics[name]
                self.outside[name] += int(((array < known.least) | (array > known.most)).sum())
        self.rows += len(array)

    def result(self, statistics: Mapping[str, Statistics]) -> Observed:
        """What was counted, beside the statistics of the same rows."""
        return Observed(self.rows, statistics, self.counts, self.outside)


def _channels(shape: tuple[int, ...]) -> int:
    return shape[0] if shape else 1


def resolution_bits(network: IntegerNetwork, name: str) -> int:
    """Low bits of a value that its distribution leaves out, so that it has at most ``BINS`` bins; 0 where it can."""
    value = network.values[name]
    most = min(MOST_BINS, max(2, BINS // _channels(value.shape)))
    span = int(value.high.max()) - int(value.low.min())
    bits = 0
    while (span >> bits) + 1 > most:
        bits += 1
    return bits


def observe(
    network: IntegerNetwork, x: ArrayLike | Mapping[str, ArrayLike], reference: Observed | None = None
) -> Observed:
    """Statistics and distributions of every value over all rows of ``x``, integers (n, *input shape), or by name."""
    tally, observer = Tally(network), Observer(network, reference)
    for _, block in blocks(network, x):
        tally.add(block)
        observer.add(block)
    return observer.result(tally.result())


@dataclass(frozen=True)
class Entry:
    """One value, old against new; see the module's docstring.

    ``cut`` is what saturation does to it: of an input, ``at_ends``; None where nothing is cut. ``ks_channel`` is the
    channel of the largest distance; ``flags`` say in words what passed its threshold.
    """

    name: str
    kind: str
    layer: str
    type: str
    type_range: tuple[int, int]
    proven: tuple[int, int]
    used: tuple[tuple[int, int], tuple[int, int]]
    saturated: tuple[float, float] | None
    at_ends: tuple[float, float]
    outside: float
    outside_expected: float
    ks: float
    ks_limit: float
    ks_channel: int
    resolution: int
    flags: tuple[str, ...] = field(default=())

    @property
    def cut(self) -> tuple[float, float] | None:
        """Old and new fraction that was cut, as far as can be seen."""
        return self.at_ends if self.kind == "Input" else self.saturated


@dataclass(frozen=True)
class Drift:
    """All values, in the network's order, from ``rows`` (old, new)."""

    rows: tuple[int, int]
    thresholds: Thresholds
    entries: tuple[Entry, ...]

    @property
    def flagged(self) -> tuple[Entry, ...]:
        """Values that passed a threshold."""
        return tuple(entry for entry in self.entries if entry.flags)

    def table(self) -> list[dict[str, Any]]:
        """A flat row a value, for CSV and Parquet; fractions, not percents."""
        return [
            {
                "value": entry.name,
                "kind": entry.kind,
                "layer": entry.layer,
                "type": entry.type,
                "type_low": entry.type_range[0],
                "type_high": entry.type_range[1],
                "proven_low": entry.proven[0],
                "proven_high": entry.proven[1],
                **{
                    f"{what}_{when}": entry.used[i][j]
                    for i, when in enumerate(("old", "new"))
                    for j, what in enumerate(("least", "most"))
                },
                "saturated_old": None if entry.saturated is None else entry.saturated[0],
                "saturated_new": None if entry.saturated is None else entry.saturated[1],
                "at_ends_old": entry.at_ends[0],
                "at_ends_new": entry.at_ends[1],
                "outside": entry.outside,
                "outside_expected": entry.outside_expected,
                "ks": entry.ks,
                "ks_limit": entry.ks_limit,
                "ks_channel": entry.ks_channel,
                "resolution": entry.resolution,
                "flags": "; ".join(entry.flags),
            }
            for entry in self.entries
        ]

    def markdown(self) -> str:
        """The verdict, the table, and what its columns and thresholds mean."""
        names = ", ".join(entry.name for entry in self.flagged)
        limit = max(self.thresholds.ks, smirnov(*self.rows))
        lines = [
            f"{len(self.flagged)} of {len(self.entries)} values are flagged{': ' + names if names else ''}.",
            "",
            f"Old: {self.rows[0]:,} rows; new: {self.rows[1]:,} rows.",
            "",
            "| value | type | proven | used, old | used, new | saturated, old | new | at ends, old | new | outside | "
            "KS | in channel | flags |",
            "|---|---|---|---|---|---:|---:|---:|---:|---:|---:|---:|---|",
        ]
        for entry in self.entries:
            cut = ["", ""] if entry.saturated is None else [f"{part:.2%}" for part in entry.saturated]
            ranges = [f"{low:,} to {high:,}" for low, high in (entry.proven, *entry.used)]
            coarse = "" if entry.resolution == 1 else f" (bins of {entry.resolution})"
            flags = "; ".join(entry.flags)
            lines.append(
                f"| {entry.name} | {entry.type} | {' | '.join([*ranges, *cut])} | {entry.at_ends[0]:.2%} | "
                f"{entry.at_ends[1]:.2%} | {entry.outside:.2%} | {entry.ks:.3f}{coarse} | {entry.ks_channel} | "
                f"{flags} |"
            )
        return "\n".join(
            [
                *lines,
                "",
                f"Flagged: saturated part (of an input: the part at the ends of its type) risen by more than "
                f"{self.thresholds.saturated:.1%} of elements; outside the "
                f"old range of the same element more than {self.thresholds.outside:.1%} above the "
                f"{2 / (self.rows[0] + 1):.2%} expected of equal data; KS, the largest distance between the "
                f"distributions of a channel's integers, above {limit:.3f}.",
                "",
            ]
        )


def smirnov(old: int, new: int) -> float:
    """What the distance of equal distributions exceeds once in a thousand, for so many rows."""
    return SMIRNOV * math.sqrt(1 / old + 1 / new)


def drift(network: IntegerNetwork, old: Observed, new: Observed, thresholds: Thresholds = Thresholds()) -> Drift:
    """New data held against old; ``new`` was observed with ``old`` as its reference."""
    limit = max(thresholds.ks, smirnov(old.rows, new.rows))
    expected = 2 / (old.rows + 1)
    entries = []
    for name, value in network.values.items():
        before, after = old.statistics[name], new.statistics[name]
        ks, channel = distance(old.counts[name], new.counts[name])
        outside = new.outside[name] / after.elements
        saturated = None
        if before.saturated is not None and after.saturated is not None:
            saturated = (before.saturated / before.elements, after.saturated / after.elements)
        assert before.covered is not None
        assert after.covered is not None
        at_ends = (before.covered.ends / before.elements, after.covered.ends / after.elements)
        flags = []
        if saturated is not None and saturated[1] - saturated[0] > thresholds.saturated:
            flags.append(f"saturated {saturated[0]:.2%} -> {saturated[1]:.2%}")
        if after.signal.role == "input" and at_ends[1] - at_ends[0] > thresholds.saturated:
            flags.append(f"at the type's ends {at_ends[0]:.2%} -> {at_ends[1]:.2%}")
        if outside > expected + thresholds.outside:
            flags.append(f"{outside:.2%} outside the old range")
        if ks > limit:
            flags.append(f"KS {ks:.2f} in channel {channel}")
        entries.append(
            Entry(
                name,
                after.signal.kind,
                after.signal.layer,
                after.signal.type,
                value.type.range,
                (int(value.low.min()), int(value.high.max())),
                tuple((int(found.least.min()), int(found.most.max())) for found in (before, after)),  # type: ignore[arg-type]
                saturated,
                at_ends,
                outside,
                expected,
                ks,
                limit,
                channel,
                1 << resolution_bits(network, name),
                tuple(flags),
            )
        )
    return Drift((old.rows, new.rows), thresholds, tuple(entries))


def distance(old: IntArray, new: IntArray) -> tuple[float, int]:
    """Largest Kolmogorov-Smirnov distance over the channels, and its channel: counts (channels, bins), both."""
    one, other = (np.cumsum(counts, axis=1) / counts.sum(axis=1, keepdims=True) for counts in (old, new))
    found = np.abs(one - other).max(axis=1)
    channel = int(found.argmax())
    return float(found[channel]), channel
