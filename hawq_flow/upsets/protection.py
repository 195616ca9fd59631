"""What triplication would repay: bits ranked by the risk that triplicating them removes, for what it costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hawq_flow.upsets.result import StratumResult, Upsets, standard_errors
from hawq_flow.upsets.sites import UpsetError

By = Literal["layer", "bit"]


@dataclass(frozen=True)
class Candidate:
    """Something to triplicate: a whole layer (``bit`` and ``kind`` None), or one bit of one kind of words of an op.

    ``cost`` is in bits triplicated, or in the caller's unit; ``loss`` the mean loss of an upset in it, with a standard
    error; ``removed`` its part of all risk, ``cost_part`` of all cost; ``removed_so_far`` and ``cost_so_far`` the same
    of everything up to here.
    """

    layer: str
    op: str | None
    kind: str | None
    bit: int | None
    cost: float
    loss: float
    error: float
    removed: float
    cost_part: float
    removed_so_far: float
    cost_so_far: float


Protection = tuple[Candidate, ...]


def protection(upsets: Upsets, memory: bool, by: By, costs: Mapping[str, float] | None = None) -> Protection:
    """What to triplicate first, in order of risk removed for its cost.

    A triplicated bit's single upset is outvoted, so its risk is gone; every bit is as likely to be hit.

    Parameters
    ----------
    memory:
        Memory, or registers: their upsets last differently, so they are never ranked together.
    by:
        Whole layers, or single bits of the words of an op.
    costs:
        By layer, what triplicating all of it costs (LUTs, flip-flops, area), shared among its bits evenly; None: bits.

    Raises
    ------
    UpsetError
        If a layer has no cost, or one that is not positive.
    """
    groups: dict[tuple[str, str | None, str | None, int | None], list[StratumResult]] = {}
    bits: dict[str, int] = {}
    for result in upsets.part(memory):
        s = result.stratum
        single = by == "bit"
        key = (s.layer, s.op if single else None, s.kind if single else None, s.bit if single else None)
        groups.setdefault(key, []).append(result)
        bits[s.layer] = bits.get(s.layer, 0) + s.sites
    for layer in bits if costs is not None else ():
        if not (costs is None or costs.get(layer, 0) > 0):
            raise UpsetError(
                f"layer {layer!r} costs {costs.get(layer)!r}; expected a positive cost of each of {', '.join(bits)}"
            )
    unit = {layer: 1.0 if costs is None else costs[layer] / bits[layer] for layer in bits}
    entries = []
    for key, results in groups.items():
        size = sum(result.stratum.sites for result in results)
        risk = sum(result.stratum.sites * result.mean for result in results)
        flips, rows = standard_errors([(result, result.stratum.sites / size) for result in results])
        entries.append((key, size * unit[key[0]], risk, risk / size, (flips**2 + rows**2) ** 0.5))
    whole_cost, whole_risk = sum(entry[1] for entry in entries), sum(entry[2] for entry in entries)
    ranked = sorted(entries, key=lambda entry: -entry[2] / entry[1])  # stable: equal ones in the network's order
    found: list[Candidate] = []
    cost_so_far = risk_so_far = 0.0
    for (layer, op, kind, bit), cost, risk, loss, error in ranked:
        cost_so_far += cost
        risk_so_far += risk
        removed, removed_so_far = (part / whole_risk if whole_risk else 0.0 for part in (risk, risk_so_far))
        found.append(
            Candidate(
                layer=layer,
                op=op,
                kind=kind,
                bit=bit,
                cost=cost,
                loss=loss,
                error=error,
                removed=removed,
                cost_part=cost / whole_cost,
                removed_so_far=removed_so_far,
                cost_so_far=cost_so_far / whole_cost,
            )
        )
    return tuple(found)


def single_bits(upsets: Upsets, memory: bool) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """What triplicating chosen single bits would remove: fractions of bits, and of all risk, float64 (bits + 1,) each.

    Bits are ranked by what they lost in half of the rows, and counted by what they lose in the other half; both ways
    round, and the mean. (Ranked and counted on the same rows, the best bits would look better than they are.) None
    where not every flip was tried, or one half loses nothing.
    """
    results = upsets.part(memory)
    if not results or upsets.rows < 2 or not all(result.exhaustive for result in results):
        return None
    loss = np.concatenate([result.loss for result in results])
    means = np.concatenate([np.full(result.flips, result.mean) for result in results])
    totals = loss.sum(axis=0)
    if (totals <= 0).any():
        return None
    curves = []
    for rank, count in ((0, 1), (1, 0)):
        order = np.lexsort((-means, -loss[:, rank]))  # among equal ones, bits of the worse stratum first
        curves.append(np.cumsum(loss[order, count]) / totals[count])
    removed = np.concatenate([[0.0], np.mean(curves, axis=0)])
    return np.arange(len(loss) + 1) / len(loss), removed
