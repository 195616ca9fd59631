"""A campaign's results to read and to compute with: ``upsets.json``, ``upsets.csv``, every flip, and the page."""

from __future__ import annotations

import csv as tables
import io
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hawq_flow.upsets.protection import By, Candidate, Protection, protection
from hawq_flow.upsets.result import LayerRisk, StratumResult, Upsets, standard_errors

if TYPE_CHECKING:
    import pandas as pd

FORMAT, VERSION = "hawq_flow.upsets", 1
NAMES = {True: "memory", False: "registers"}
"""The two parts of a network, by whether they are memory."""
SHOWN = 12
"""Rows of a ranking on the page."""
LOSSES = {
    "accuracy": "accuracy",
    "agreement": "agreement with the healthy network's class",
    "exact": "rows whose outputs are the healthy ones",
}


def row(result: StratumResult) -> dict[str, Any]:
    """What is known of a stratum, as a row of ``upsets.csv``; losses and errors are fractions of the rows."""
    stratum = result.stratum
    flips, rows = standard_errors([(result, 1.0)])
    worst = int(result.losses.argmax())
    return {
        "op": stratum.op,
        "layer": stratum.layer,
        "kind": stratum.kind,
        "bit": stratum.bit,
        "width": stratum.bits,
        "sites": stratum.sites,
        "flips": result.flips,
        "exhaustive": result.exhaustive,
        "mean_loss": result.mean,
        "error": math.hypot(flips, rows),
        "error_flips": flips,
        "error_rows": rows,
        "worst_loss": float(result.losses[worst]),
        "worst_element": int(result.elements[worst]),
        "harmful": float((result.losses > 0).mean()),
        "changed": float(result.changed.mean() / len(result.by_row)),
        "max_change": int(result.most.max()),
    }


def csv(upsets: Upsets) -> str:
    """``upsets.csv``: a row a stratum."""
    rows = [row(result) for result in upsets.strata]
    text = io.StringIO()
    writer = tables.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def flips_frame(upsets: Upsets) -> pd.DataFrame:
    """Every flip tried, a row each: ``op, layer, kind, bit, element, loss, changed, max_change``.

    ``element`` is the flat index of the word (C order) in its array, or in its value; ``loss`` and ``changed`` are
    fractions of the rows, ``max_change`` is in integers of the deciding output.
    """
    import pandas as pd  # half a second that a campaign should not take

    named = ("op", "layer", "kind", "bit")
    columns: dict[str, Any] = {
        name: np.repeat([getattr(r.stratum, name) for r in upsets.strata], [r.flips for r in upsets.strata])
        for name in named
    }
    columns["element"] = np.concatenate([r.elements for r in upsets.strata])
    columns["loss"] = np.concatenate([r.losses for r in upsets.strata])
    columns["changed"] = np.concatenate([r.changed / upsets.rows for r in upsets.strata])
    columns["max_change"] = np.concatenate([r.most for r in upsets.strata])
    return pd.DataFrame(columns)


def document(upsets: Upsets, costs: Mapping[str, float] | None = None) -> dict[str, Any]:
    """``upsets.json``, version 1; docs/upsets.md describes every key."""
    parts = {NAMES[memory]: memory for memory in (True, False) if upsets.part(memory)}
    ways: tuple[By, By] = ("layer", "bit")
    return {
        "format": FORMAT,
        "version": VERSION,
        "network": upsets.network,
        "measure": upsets.measure,
        "healthy": upsets.healthy,
        "rows": upsets.rows,
        "seed": upsets.seed,
        "sites": upsets.sites,
        "flips": upsets.flips,
        "cost_unit": "bits" if costs is None else "given",
        "strata": [row(result) for result in upsets.strata],
        **{
            name: {
                "total": upsets.total(memory),
                "layers": upsets.risks(memory),
                "kinds": upsets.risks_by_kind(memory),
                "protection": {by: protection(upsets, memory, by, costs) for by in ways},
            }
            for name, memory in parts.items()
        },
    }


def markdown(upsets: Upsets, title: str, figures: bool = True, costs: Mapping[str, float] | None = None) -> str:
    """The page; ``figures``: with those that stand beside it."""
    tried = (
        f"all {upsets.sites:,} bits"
        if all(result.exhaustive for result in upsets.strata)
        else f"{upsets.flips:,} of {upsets.sites:,} bits, drawn bit by bit of each kind of words of each op"
    )
    lines = [
        f"# Upsets: {title}",
        "",
        f"One bit flipped at a time, {tried}, on {upsets.rows:,} rows (seed {upsets.seed}); network "
        f"`{upsets.network[:16]}`. Loss is in {LOSSES[upsets.measure]}, "
        + ("all of which are at first." if upsets.measure != "accuracy" else f"{upsets.healthy:.2%} without a flip."),
        "",
        "± is one standard error: of the flips that were not tried, if any, and of the rows that were not seen.",
        *_unseen(upsets),
    ]
    if figures:
        lines += ["", "![Mean loss by layer and bit](upsets.png)"]
    for memory in (True, False):
        if upsets.part(memory):
            lines += _part(upsets, memory, costs)
            if figures:
                lines += ["", f"![What triplication removes]({NAMES[memory]}.png)"]
    lines += [
        "",
        "## Every bit",
        "",
        "Mean loss over the words that have the bit, in points; the worst flip tried and its word; the part of flips "
        "that lose anything; the part of rows in which any output changes.",
        "",
        "| op | kind | bit | words | tried | mean loss | worst | at | harmful | changed | largest change |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for result in upsets.strata:
        r = row(result)
        top = " (top)" if r["bit"] == r["width"] - 1 else ""
        lines.append(
            f"| {r['op']} | {r['kind']} | {r['bit']}{top} | {r['sites']:,} | "
            f"{'all' if r['exhaustive'] else format(r['flips'], ',')} | {_points(r['mean_loss'], r['error'])} | "
            f"{100 * r['worst_loss']:.2f} | {r['worst_element']} | {r['harmful']:.1%} | {r['changed']:.1%} | "
            f"{r['max_change']:,} |"
        )
    return "\n".join([*lines, ""])


def _points(loss: float, error: float) -> str:
    return f"{100 * loss:.3f} ± {100 * error:.3f}"


def _unseen(upsets: Upsets) -> list[str]:
    """How many bits belong to strata that were not tried whole, and of which no flip tried lost anything."""
    blind = sum(
        result.stratum.sites
        for result in upsets.strata
        if not result.exhaustive and not result.loss.any() and not result.by_row.any()
    )
    if not blind:
        return []
    return [
        "",
        f"{blind / upsets.sites:.1%} of the bits are of kinds, ops and bits of which no flip tried lost or won a row. "
        "They count as 0 ± 0, but all that is known is that fewer than 3 in as many as were tried do (95 %, rule of "
        "three): try more of them with `--samples`.",
    ]


def _part(upsets: Upsets, memory: bool, costs: Mapping[str, float] | None) -> list[str]:
    total = upsets.total(memory)
    assert total is not None
    what = (
        "Constants in memory. A flip stays until the memory is written again (scrubbed): every row meets it."
        if memory
        else "Sums and results in registers. A flip lasts one inference: the loss is the chance, in points, that it "
        "costs that inference its right answer, less the chance that it wins it."
    )
    lines = ["", f"## {NAMES[memory].capitalize()}", "", what, ""]
    lines += ["| layer | words | bits | loss of one upset | share of all risk |", "|---|---|---:|---:|---:|"]
    lines += [_risk(risk) for risk in (*upsets.risks_by_kind(memory), *upsets.risks(memory))]
    lines.append(_risk(total, "**all**"))
    lines += ["", "Triplicate these layers first:", "", *_ranking(protection(upsets, memory, "layer", costs), costs)]
    by_bit = protection(upsets, memory, "bit", costs)
    lines += ["", "Or only these bits of them:", "", *_ranking(by_bit[:SHOWN], costs)]
    if len(by_bit) > SHOWN:
        lines += ["", f"The other {len(by_bit) - SHOWN:,} stand in `upsets.json`. {_least(by_bit)}"]
    return lines


def _risk(risk: LayerRisk, name: str = "") -> str:
    kinds = risk.kinds[0] if len(risk.kinds) == 1 else "all of them"
    return f"| {name or risk.name} | {kinds} | {risk.bits:,} | {_points(risk.loss, risk.error)} | {risk.share:.1%} |"


def _ranking(candidates: Sequence[Candidate], costs: Mapping[str, float] | None) -> list[str]:
    unit = "bits" if costs is None else "cost"
    lines = [
        f"| | {unit} | loss of one upset | removes | for | so far | for |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for c in candidates:
        name = c.layer if c.bit is None else f"{c.op} {c.kind} bit {c.bit}"
        lines.append(
            f"| {name} | {c.cost:,.0f} | {_points(c.loss, c.error)} | {c.removed:.1%} | {c.cost_part:.1%} | "
            f"{c.removed_so_far:.1%} | {c.cost_so_far:.1%} |"
        )
    return lines


def _least(ranked: Protection) -> str:
    """How little removes half, and nine tenths, of the risk."""
    found = []
    for goal in (0.5, 0.9):
        reached = [c.cost_so_far for c in ranked if c.removed_so_far >= goal]
        if reached:
            found.append(f"{reached[0]:.1%} of the cost removes {goal:.0%} of the risk")
    return "; ".join(found).capitalize() + "." if found else ""
