"""The drift as a figure: a line for each value, its ranges, and the three measures with their thresholds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hawq_flow.trace.drifting import Drift, Entry

BLUE, ORANGE, GREY, RED = "#33658a", "#f26419", "#8d99ae", "#b23a48"
STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "svg.hashsalt": "hawq_flow",
}


def drift_figure(found: Drift) -> Figure:
    """A line a value: type, proven and used ranges (old, new), and saturation, outside and KS over their thresholds."""
    with mpl.rc_context(STYLE):
        entries = found.entries
        figure = Figure(figsize=(13.0, 1.9 + 0.34 * len(entries)), layout="constrained")
        ranges, *measures = figure.subplots(1, 4, sharey=True, width_ratios=[2.4, 1, 1, 1])
        _ranges(ranges, entries)
        thresholds = found.thresholds
        cut = [entry.cut for entry in entries]
        _pair(
            measures[0],
            [None if pair is None else 100 * pair[0] for pair in cut],
            [None if pair is None else 100 * pair[1] for pair in cut],
            [any("->" in flag for flag in entry.flags) for entry in entries],
        )
        rise = 100 * thresholds.saturated
        measures[0].set_xlabel(
            f"saturated (inputs: at ends) (%)\n–: nothing is cut\nflagged: up by {rise:g} % points or more"
        )
        _bars(
            measures[1],
            [100 * entry.outside for entry in entries],
            100 * (thresholds.outside + entries[0].outside_expected),
            "outside the element's\nold range (%)",
        )
        _bars(
            measures[2],
            [entry.ks for entry in entries],
            entries[0].ks_limit,
            "Kolmogorov-Smirnov distance,\nworst channel",
        )
        ranges.set_yticks(
            np.arange(len(entries)), [f"{entry.name}  {entry.type}" for entry in entries], parse_math=False
        )
        for label, entry in zip(ranges.get_yticklabels(), entries, strict=True):
            label.set_color(RED if entry.flags else "black")
        ranges.set_ylim(len(entries) - 0.4, -0.6)
        figure.suptitle(
            f"New data ({found.rows[1]:,} rows) against old ({found.rows[0]:,} rows): "
            f"{len(found.flagged)} of {len(entries)} values flagged (red)",
            fontsize=10,
        )
        figure.legend(*ranges.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    return figure


def _ranges(axes: Axes, entries: tuple[Entry, ...]) -> None:
    place = np.arange(len(entries))
    for label, colour, height, shift, alpha, ends in (
        ("type", GREY, 0.86, 0.0, 0.25, [entry.type_range for entry in entries]),
        ("proven range", GREY, 0.56, 0.0, 0.6, [entry.proven for entry in entries]),
        ("used by old data", BLUE, 0.2, -0.14, 1.0, [entry.used[0] for entry in entries]),
        ("used by new data", ORANGE, 0.2, 0.14, 1.0, [entry.used[1] for entry in entries]),
    ):
        low, high = np.array(ends, dtype=np.float64).T
        axes.barh(place + shift, high - low, left=low, height=height, color=colour, alpha=alpha, label=label, lw=0)
        if alpha == 1.0:  # a value that never varies has a range without width: a mark where it stands
            still = low == high
            axes.plot(low[still], (place + shift)[still], "|", color=colour, ms=5)
    axes.set_xscale("symlog", base=2, linthresh=1)
    powers = max(int(max(abs(end) for end in entry.type_range)).bit_length() for entry in entries)
    step = max(1, -(-powers // 5))
    ticks = [2.0**power for power in range(step, powers + step, step)]
    negative = any(entry.type_range[0] < 0 for entry in entries)
    axes.set_xticks([*(-tick for tick in reversed(ticks) if negative), 0, *ticks])
    axes.set_xlabel("integers (symmetric logarithmic axis, linear between -1 and 1)")
    axes.grid(axis="y", visible=False)


def _pair(axes: Axes, old: list[float | None], new: list[float | None], flagged: list[bool]) -> None:
    """Old and new beside each other; nothing where a value cannot be cut."""
    for shift, colour, values in ((-0.16, BLUE, old), (0.16, ORANGE, new)):
        place = [i + shift for i, value in enumerate(values) if value is not None]
        heights = [value for value in values if value is not None]
        axes.barh(place, heights, height=0.3, color=colour, lw=0)
    for i, (value, flag) in enumerate(zip(new, flagged, strict=True)):
        if value is None:
            axes.annotate("–", (0, i), xytext=(3, 0), textcoords="offset points", color=GREY, va="center")
        elif flag:
            axes.plot(value, i + 0.16, marker="D", ms=4, color=RED, clip_on=False)
    _positive(axes, [value for value in (*old, *new) if value is not None])


def _bars(axes: Axes, values: list[float], limit: float, label: str) -> None:
    """Bars, red beyond the dashed limit."""
    colours = [RED if value > limit else ORANGE for value in values]
    axes.barh(np.arange(len(values)), values, height=0.5, color=colours, lw=0)
    axes.axvline(limit, color="black", ls="--", lw=0.9)
    axes.set_xlabel(f"{label}\ndashed: flagged beyond {limit:.3g}")
    _positive(axes, [*values, limit])


def _positive(axes: Axes, values: list[float]) -> None:
    axes.set_xlim(0, 1.12 * max([*values, 1e-9]) if any(values) else 1)
    axes.grid(axis="y", visible=False)


def save(figure: Figure, path: Path) -> None:
    """Write a PNG without dates or versions: the same figure, the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130, metadata={"Software": None})
