"""Pictures: the mean loss of every bit of every layer, and what triplication removes for its cost."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator
from numpy.typing import NDArray

from hawq_flow.upsets.protection import Protection, protection, single_bits
from hawq_flow.upsets.result import Upsets, standard_errors
from hawq_flow.upsets.sites import MEMORY, REGISTERS

STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.dpi": 120,
    "savefig.dpi": 150,
}
BLUE, ORANGE, GREY = "#33658a", "#f26419", "#8d99ae"
UNITS = {"accuracy": "accuracy", "agreement": "agreement", "exact": "exact rows"}
MOST_TICKS = 40
"""Layers beyond which not every one is named."""


def grid(upsets: Upsets, kind: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean loss by layer and bit and its standard error, float64 (layers, bits): NaN where a layer has no such bit."""
    mine = [result for result in upsets.strata if result.stratum.kind == kind]
    shape = (len(upsets.layers), 1 + max(result.stratum.bit for result in mine))
    loss, error = np.full(shape, np.nan), np.full(shape, np.nan)
    for row, layer in enumerate(upsets.layers):
        for bit in range(shape[1]):
            found = [r for r in mine if r.stratum.layer == layer and r.stratum.bit == bit]
            sites = sum(r.stratum.sites for r in found)
            if found:
                loss[row, bit] = sum(r.stratum.sites * r.mean for r in found) / sites
                error[row, bit] = math.hypot(*standard_errors([(r, r.stratum.sites / sites) for r in found]))
    return loss, error


def heat_map(upsets: Upsets, title: str = "") -> Figure:
    """One panel for each kind of words, memory above registers: layers down, bits across (0 the lowest).

    The colour is the mean loss in points, on the scale of a square root, so that small losses show. White: no loss, or
    less than one standard error; grey: no such bit.
    """
    grids = {}
    for kind in upsets.kinds:
        loss, error = grid(upsets, kind)
        grids[kind] = np.where(np.isnan(loss), np.nan, np.where((loss > 0) & (loss >= error), 100 * loss, -1.0))
    most = max(float(np.nanmax(each)) for each in grids.values())
    norm = PowerNorm(0.5, 0, most if most > 0 else 1.0)
    colours = mpl.colormaps["YlOrRd"].with_extremes(bad="#dfe3e8", under="white")
    parts = [kinds for kinds in ([k for k in grids if k in MEMORY], [k for k in grids if k in REGISTERS]) if kinds]
    layers, names = len(upsets.layers), max(len(name) for name in upsets.layers)
    # In inches: every cell as large as any other, whatever the panels hold.
    left, right, top, bottom, gap = 0.35 + 0.08 * names, 1.0, 0.85, 0.5, 0.3
    high = max(0.14, 0.3 - 0.01 * layers) * layers
    line = high + 0.75
    lengths = [sum(_inches(grids[kind]) for kind in kinds) + gap * (len(kinds) - 1) for kinds in parts]
    width = max(left + max(lengths) + right, 6.0)
    height = top + line * len(parts) - 0.75 + bottom
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width, height))
        for i, kinds in enumerate(parts):
            x, y = left, height - top - line * i - high
            for j, kind in enumerate(kinds):
                wide = _inches(grids[kind])
                axes = figure.add_axes((x / width, y / height, wide / width, high / height))
                image = axes.imshow(grids[kind], aspect="auto", cmap=colours, norm=norm, interpolation="nearest")
                _dress(axes, kind, *grids[kind].shape)
                step = -(-layers // MOST_TICKS)
                axes.set_yticks(range(0, layers, step), [] if j else upsets.layers[::step], parse_math=False)
                x += wide + gap
        place = (left + max(lengths) + 0.2, bottom, 0.14, height - top - bottom)
        bar = figure.colorbar(
            image, cax=figure.add_axes((place[0] / width, place[1] / height, place[2] / width, place[3] / height))
        )
        bar.set_label(f"{UNITS[upsets.measure]} lost (points)")
        what = f"{title}: mean loss of one flipped bit" if title else "Mean loss of one flipped bit"
        figure.suptitle(
            f"{what}\n(white: below its standard error; grey: no such bit)", y=1 - 0.08 / height, fontsize=9
        )
    return figure


def _inches(grid: NDArray[np.float64]) -> float:
    """Width of a panel: at least what its title needs."""
    return 0.15 * max(int(grid.shape[1]), 6)


def _dress(axes: Any, kind: str, layers: int, bits: int) -> None:
    axes.set_title(kind, fontsize=9)
    axes.set_xlabel("bit", labelpad=1)
    axes.xaxis.set_major_locator(MultipleLocator(2 if bits < 10 else 4))
    axes.set_xticks(np.arange(bits + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(layers + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="#c8ced6", lw=0.4)
    axes.tick_params(which="minor", length=0)
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(-0.5, bits - 0.5)
    axes.set_ylim(layers - 0.5, -0.5)
    axes.spines[:].set_visible(False)


def _steps(ranked: Protection) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    cost = np.array([0.0, *(c.cost_so_far for c in ranked)])
    return 100 * cost, 100 * np.array([0.0, *(c.removed_so_far for c in ranked)])


def protection_figure(upsets: Upsets, memory: bool, title: str = "") -> Figure:
    """Part of the risk removed against part of the bits triplicated: whole layers, bits of layers, and single bits."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 4.2), layout="constrained")
        axes = figure.subplots()
        layers = protection(upsets, memory, "layer")
        x, y = _steps(layers)
        axes.plot(x, y, "o-", color=BLUE, ms=5, label="whole layers, best first", clip_on=False)
        for c, a, b in zip(layers, x[1:], y[1:], strict=True) if len(layers) <= 12 else ():
            axes.annotate(
                c.layer, (a, b), xytext=(5, -11), textcoords="offset points", color=BLUE, fontsize=8, parse_math=False
            )
        bits = protection(upsets, memory, "bit")
        axes.plot(*_steps(bits), "-", color=ORANGE, lw=1.8, label="one bit of one kind of words of an op, best first")
        if (alone := single_bits(upsets, memory)) is not None:
            axes.plot(
                100 * alone[0],
                100 * alone[1],
                "--",
                color=GREY,
                lw=1.4,
                label="single bits, ranked on half the rows,\ncounted on the other half",
            )
        axes.axhline(100, color=GREY, lw=0.6)
        axes.set_xlabel(f"bits of {'memory' if memory else 'registers'} triplicated (%)")
        axes.set_ylabel(f"risk removed (% of all {UNITS[upsets.measure]} lost)")
        axes.set_xlim(0, 100)
        most = axes.get_ylim()[1]
        axes.set_ylim(0, most)
        if most > 106:
            axes.set_ylim(0, 1.1 * most)
            axes.annotate(
                "above 100: the bits left alone win more rows than they lose",
                (0.99, 0.985),
                xycoords="axes fraction",
                ha="right",
                va="top",
                fontsize=8,
                color="#5c6470",
            )
        axes.grid(alpha=0.3)
        axes.legend(frameon=False, loc="lower right")
        what = f"what triplicating {'memory' if memory else 'registers'} removes"
        axes.set_title(f"{title}: {what}" if title else what.capitalize(), parse_math=False)
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write a PNG without dates or versions: the same figure, the same bytes."""
    figure.savefig(path, metadata={"Software": None})
