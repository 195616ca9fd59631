"""Predicted against measured: figures and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import scipy.stats
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from hawq_flow.estimate.coefficients import Figure, Spread
from hawq_flow.estimate.data import finite
from hawq_flow.estimate.fitting import Held

BLUE, ORANGE, GREY = "#2463a8", "#d9722b", "#8a8a8a"
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "hawq_flow",
}
NAMES: Mapping[str, str] = {
    "lut": "LUT",
    "ff": "FF",
    "dsp": "DSP",
    "bram18": "BRAM 18K",
    "latency_cycles": "latency [cycles]",
}


def _panel(axes: Axes, measured: Sequence[float], values: Sequence[float], spread: Spread | None, name: str) -> None:
    low = max(min([*measured, *values]), 1.0) * 0.8
    high = max([*measured, *values]) * 1.25
    line = np.array([low, high])
    if spread is not None:
        cycles = name == NAMES["latency_cycles"]
        for one, two, shade in ((spread.low90, spread.high90, 0.12), (spread.low68, spread.high68, 0.22)):
            lower, upper = (line + one, line + two) if cycles else (line * one, line * two)
            lower, upper = np.maximum(lower, low), np.maximum(upper, low)
            axes.fill_between(line, lower, upper, color=BLUE, alpha=shade, linewidth=0)
    axes.plot(line, line, color=GREY, linewidth=0.8)
    axes.plot(np.maximum(values, low), np.maximum(measured, low), "o", color=BLUE, markersize=3.5, alpha=0.7)
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), xlabel=f"predicted {name}")
    axes.set_ylabel(f"measured {name}")
    axes.set_aspect("equal")


def predicted_against_measured(
    held: Sequence[Held],
    spreads: Mapping[str, Spread],
    figures: Sequence[Figure] = ("lut", "ff", "dsp"),
    title: str = "",
) -> Canvas:
    """One panel a figure: each design's measured figure over what was predicted for it, and the error bars as bands.

    Predictions that were held out (:func:`hawq_flow.estimate.fitting.held_out`) show what a new design may expect.
    """
    with mpl.rc_context(STYLE):
        canvas = Canvas(figsize=(3.1 * len(figures), 3.3), layout="constrained")
        for i, figure in enumerate(figures):
            kept = [each for each in held if finite(getattr(each.row, figure))]
            axes = canvas.add_subplot(1, len(figures), i + 1)
            measured = [float(getattr(each.row, figure)) for each in kept]
            values = [each.predicted[figure] for each in kept]
            _panel(axes, measured, values, spreads.get(figure), NAMES[figure])
        if title:
            canvas.suptitle(title)
    return canvas


def open_frame(lines: Sequence[Mapping[str, Any]], rows: Sequence[Held]) -> pd.DataFrame:
    """The lines of experiments/calibrate.py beside what was predicted, a row a plan in order of their numbers."""
    predicted = {each.row.project: each.predicted for each in rows if each.row.name == each.row.project}
    table = []
    for line in sorted(lines, key=lambda entry: int(entry["seed"])):
        plan = line["plan"]
        table.append(
            {
                "plan": line["seed"],
                "weight_bits": "-".join(str(bits["weight"]) for bits in plan["layers"].values()),
                "activation_bits": "-".join(str(bits["activation"]) for bits in plan["layers"].values()),
                "bops": round(line["bops"]),
                "ebops": line["ebops"],
                "lut": line["lut"],
                "lut_estimated": round(predicted[f"plan {line['seed']}"]["lut"]),
                "ff": line["ff"],
                "ff_estimated": round(predicted[f"plan {line['seed']}"]["ff"]),
                "latency_cycles": line["latency_cycles"],
                "seconds": line["seconds"],
                "network": line["network"][:16],
            }
        )
    return pd.DataFrame(table)


def correlations(table: pd.DataFrame) -> dict[str, float]:
    """Spearman's rank correlation of LUTs with the estimate, EBOPs and BOPs, over the plans."""
    return {
        name: float(scipy.stats.spearmanr(table["lut"], table[name]).statistic)
        for name in ("lut_estimated", "ebops", "bops")
    }


def open_comparison(table: pd.DataFrame) -> Canvas:
    """LUTs of the open road over the estimate, EBOPs and BOPs: a panel each, with the rank correlation."""
    labels = {"lut_estimated": "estimate [LUT]", "ebops": "EBOPs", "bops": "BOPs"}
    ranks = correlations(table)
    with mpl.rc_context(STYLE):
        canvas = Canvas(figsize=(9.3, 3.2), layout="constrained")
        for i, (name, label) in enumerate(labels.items()):
            axes = canvas.add_subplot(1, 3, i + 1)
            axes.plot(table[name], table["lut"], "o", color=BLUE if i == 0 else ORANGE, markersize=3.5, alpha=0.75)
            if i == 0:
                ends = np.array([table[name].min(), table[name].max()])
                axes.plot(ends, ends, color=GREY, linewidth=0.8)
            axes.set(xlabel=label, title=f"rank correlation {ranks[name]:.3f}", xlim=(0, None), ylim=(0, None))
            axes.ticklabel_format(style="sci", axis="both", scilimits=(3, 3) if i == 0 else (-3, 4))
            axes.set_ylabel("LUT, packed (Yosys, not Vivado)" if i == 0 else "")
    return canvas


def save(canvas: Canvas, path: Path) -> None:
    """Write a PNG (or SVG) without dates, so that the same data give the same file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
    canvas.savefig(path, dpi=140, metadata=metadata)
