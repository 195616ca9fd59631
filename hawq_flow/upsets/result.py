"""What a campaign found: losses of every flip tried, their means and standard errors, by stratum, layer and network."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hawq_flow.numeric import IntArray
from hawq_flow.upsets.sites import KINDS, Stratum

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class StratumResult:
    """The flips tried of one stratum.

    Attributes
    ----------
    elements:
        Flat indices of the words that were flipped, (flips,).
    loss:
        Rows lost less rows won by each flip, int64 (flips, 2): in the even and in the odd rows.
    changed:
        Rows in which any output differs, (flips,).
    most:
        Largest change of an element of the deciding output, in its integers, (flips,).
    by_row:
        Flips that lose a row less those that win it, int64 (rows,).
    """

    stratum: Stratum
    elements: IntArray
    loss: IntArray
    changed: IntArray
    most: IntArray
    by_row: IntArray

    @property
    def flips(self) -> int:
        """Flips tried."""
        return len(self.elements)

    @property
    def exhaustive(self) -> bool:
        """Whether every flip was tried."""
        return self.flips == self.stratum.sites

    @cached_property
    def losses(self) -> Floats:
        """Measure lost by each flip, a fraction of the rows."""
        return np.asarray(self.loss.sum(axis=1) / len(self.by_row))

    @cached_property
    def mean(self) -> float:
        """Mean loss of a flip."""
        return float(self.losses.mean())

    @cached_property
    def flip_variance(self) -> float:
        """Variance of the mean that comes from flips not tried: ``s^2 / n (1 - n / N)``."""
        if self.exhaustive:
            return 0.0
        n = self.flips
        return float(self.losses.var(ddof=1)) / n * (1 - n / self.stratum.sites)

    @cached_property
    def row_means(self) -> Floats:
        """What each row loses, mean over the flips tried, (rows,)."""
        return np.asarray(self.by_row / self.flips)


def standard_errors(results: Iterable[tuple[StratumResult, float]]) -> tuple[float, float]:
    """Standard errors of ``sum of weight * mean`` over strata: from flips not tried, and from rows not seen.

    Strata are drawn independently, so their variances add; rows are shared, so weighted sums are taken row by row.
    The rows' error is 0, and says nothing, for a single row.
    """
    variance, rows = 0.0, np.zeros(0)
    for result, weight in results:
        variance += weight**2 * result.flip_variance
        weighted = weight * result.row_means
        rows = weighted if len(rows) == 0 else rows + weighted
    spread = float(rows.std(ddof=1)) / math.sqrt(len(rows)) if len(rows) > 1 else 0.0
    return math.sqrt(variance), spread


@dataclass(frozen=True)
class LayerRisk:
    """One layer (or a kind of words of it): what an upset in it costs.

    Attributes
    ----------
    name, kinds:
        The layer, and the kinds of words counted.
    bits:
        Its bits.
    risk:
        Sum of the mean losses of its bits: the loss expected if each flipped once, one at a time.
    share:
        Its part of all the risk of the same words, memory or registers, in the network.
    loss, error:
        Expected loss of one upset somewhere in it, ``risk / bits``, and its standard error.
    flips, exhaustive:
        Flips tried, and whether these were all.
    """

    name: str
    kinds: tuple[str, ...]
    bits: int
    risk: float
    share: float
    loss: float
    error: float
    flips: int
    exhaustive: bool


@dataclass(frozen=True, eq=False)
class Upsets:
    """A campaign's results.

    Attributes
    ----------
    network:
        The network's digest.
    measure, healthy:
        What a row is worth (see :func:`hawq_flow.upsets.run`), and the healthy network's mean.
    rows, seed:
        Rows used, and the seed of the draws.
    strata:
        One result for each stratum.
    """

    network: str
    measure: str
    healthy: float
    rows: int
    seed: int
    strata: tuple[StratumResult, ...]

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers, in the network's order."""
        return tuple(dict.fromkeys(result.stratum.layer for result in self.strata))

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of words flipped."""
        found = {result.stratum.kind for result in self.strata}
        return tuple(kind for kind in KINDS if kind in found)

    @property
    def flips(self) -> int:
        """Flips tried."""
        return sum(result.flips for result in self.strata)

    @property
    def sites(self) -> int:
        """Bits that could have been flipped."""
        return sum(result.stratum.sites for result in self.strata)

    def part(self, memory: bool) -> tuple[StratumResult, ...]:
        """The strata of memory, or of registers."""
        return tuple(result for result in self.strata if result.stratum.memory == memory)

    def risks(self, memory: bool) -> tuple[LayerRisk, ...]:
        """Each layer's risk, in the network's order: of its memory, or of its registers."""
        return self._risks(memory, [(name, None) for name in self.layers])

    def risks_by_kind(self, memory: bool) -> tuple[LayerRisk, ...]:
        """The same, for each kind of words of each layer."""
        return self._risks(memory, [(name, kind) for name in self.layers for kind in self.kinds])

    def total(self, memory: bool) -> LayerRisk | None:
        """All of memory, or all registers; None where nothing of it was flipped."""
        results = self.part(memory)
        return _risk("all", results, sum(_weight(result) for result in results)) if results else None

    def _risks(self, memory: bool, groups: Sequence[tuple[str, str | None]]) -> tuple[LayerRisk, ...]:
        results = self.part(memory)
        whole = sum(_weight(result) for result in results)
        found = []
        for name, kind in groups:
            mine = [r for r in results if r.stratum.layer == name and kind in (None, r.stratum.kind)]
            if mine:
                found.append(_risk(name, mine, whole))
        return tuple(found)


def _weight(result: StratumResult) -> float:
    return result.stratum.sites * result.mean


def _risk(name: str, results: Sequence[StratumResult], whole: float) -> LayerRisk:
    bits = sum(result.stratum.sites for result in results)
    risk = sum(_weight(result) for result in results)
    error = math.hypot(*standard_errors([(result, result.stratum.sites / bits) for result in results]))
    found = {result.stratum.kind for result in results}
    return LayerRisk(
        name,
        tuple(kind for kind in KINDS if kind in found),
        bits,
        risk,
        risk / whole if whole else 0.0,
        risk / bits,
        error,
        sum(result.flips for result in results),
        all(result.exhaustive for result in results),
    )
