"""Models fitted to measured rows, and their errors on projects left out of the fit, one at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hawq_flow.estimate import open_terms, terms
from hawq_flow.estimate.coefficients import FIGURES, Coefficients, Figure, Model, Spread, Stage
from hawq_flow.estimate.data import Measured, finite
from hawq_flow.estimate.estimating import domain_of, own_cycles, predicted
from hawq_flow.estimate.features import PRODUCT, HardwareConfig, LayerFeatures
from hawq_flow.estimate.open_terms import DEFAULTS
from hawq_flow.estimate.solving import project_weights, solve
from hawq_flow.estimate.terms import Terms
from hawq_flow.numeric import FloatArray

FLOORS: Mapping[str, float] = {"lut": 100.0, "ff": 300.0, "dsp": 20.0, "bram18": 4.0, "latency_cycles": 10.0}
"""Below these an error is not counted as relative: 10 LUTs more than 5 are no error of 200 %."""
ROUNDED = 6
"""Significant digits that coefficients are kept with, so that a refit gives the same bytes."""
COUNTED: Mapping[str, Mapping[str, float]] = {"dsp": {"block": 1.0}, "bram18": {"block": 1.0, "softmax": 1.0}}
"""Coefficients of the HLS stages that are counts, not fits."""
QUANTILES = (0.16, 0.84, 0.05, 0.95)


def add(*parts: Terms) -> dict[str, float]:
    """The sum of terms."""
    total: dict[str, float] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0.0) + amount
    return total


def matrix(rows: Sequence[Terms]) -> tuple[list[str], FloatArray]:
    """Names of all terms, and the amounts (rows, terms)."""
    names = sorted({name for row in rows for name in row})
    return names, np.array([[row.get(name, 0.0) for name in names] for row in rows]).reshape(len(rows), len(names))


def rounded(value: float) -> float:
    """To ``ROUNDED`` significant digits."""
    return float(f"{value:.{ROUNDED}g}")


def fitted(rows: Sequence[Measured], figure: Figure, amounts: Callable[[Measured], Terms]) -> dict[str, float]:
    """Coefficients of one figure on the rows that have it; terms of which no row has any are left out."""
    kept = [row for row in rows if finite(getattr(row, figure))]
    if not kept:
        return {}
    names, table = matrix([amounts(row) for row in kept])
    measured = np.array([float(getattr(row, figure)) for row in kept])
    if figure == "latency_cycles":
        measured = np.maximum(measured - [sum(terms.waits(x, row.hardware) for x in row.layers) for row in kept], 0.0)
    values = solve(table, measured, [row.project for row in kept], FLOORS[figure])
    return _coefficients(names, values, table)


def _coefficients(names: Sequence[str], values: FloatArray, table: FloatArray) -> dict[str, float]:
    """A coefficient a term: 0 for what costs nothing, none for what was not there to be measured."""
    there = (table != 0).any(axis=0).tolist()
    return {
        name: rounded(value) if value > 1e-9 else 0.0
        for name, value, seen in zip(names, values, there, strict=True)
        if seen
    }


def in_turns(layer: LayerFeatures, hardware: HardwareConfig) -> bool:
    """Whether the layer's latency depends on how many hard products share a multiplier."""
    return hardware.strategy == "latency" and hardware.reuse(layer.name) > 2


def joined(rows: Sequence[Measured], figure: Figure) -> dict[str, float]:
    """What a design adds to its layers: fitted to designs less their layers' own reports."""
    kept = [row for row in rows if row.parts is not None and len(row.layers) > 1]
    if not kept:
        return {}
    names, table = matrix([terms.design_terms(figure, row.layers, row.hardware) for row in kept])
    left = np.array([max(float(getattr(row, figure)) - float((row.parts or {})[figure]), 0.0) for row in kept])
    values = solve(table, left, [row.project for row in kept], FLOORS[figure])
    return _coefficients(names, values, table)


def fit_hls(rows: Sequence[Measured]) -> Model:
    """The model of one strategy at csynth: cycles first, since flip-flops follow from them."""
    single = [row for row in rows if len(row.layers) == 1]
    # where reuse makes multipliers take turns, their number decides, which the tables do not have
    few = [row for row in single if all(not in_turns(x, row.hardware) for x in row.layers)]
    cycles = fitted(few, "latency_cycles", lambda row: add(*(terms.cycle_terms(x, row.hardware) for x in row.layers)))
    timed = Model({"latency_cycles": cycles})
    lut = fitted(rows, "lut", lambda row: add(*(terms.lut_terms(x, row.hardware) for x in row.layers)))
    ff = fitted(
        single,
        "ff",
        lambda row: add(
            *(terms.ff_terms(x, row.hardware, own_cycles(timed, x, row.hardware)) for x in row.layers),
            terms.design_terms("ff", row.layers, row.hardware) if row.whole else {},
        ),
    )
    return Model(
        {
            "lut": lut,
            "ff": {**ff, **joined(rows, "ff")},
            "latency_cycles": {**cycles, **joined(rows, "latency_cycles")},
            **COUNTED,
        },
        kinds=kinds(rows),
    )


def fit_open(rows: Sequence[Measured]) -> Model:
    """The model of the open road: only LUTs are fitted, the rest is counted."""
    lut = fitted(rows, "lut", lambda row: add(*(open_terms.lut_terms(x) for x in row.layers)))
    return Model({"lut": lut, "ff": dict(DEFAULTS["ff"]), "latency_cycles": {"stage": 1.0}}, kinds=kinds(rows))


def kinds(rows: Sequence[Measured]) -> tuple[str, ...]:
    """Kinds of the layers of all rows, in order of their names; what takes nothing (wires) left out."""
    return tuple(sorted({layer.kind for row in rows for layer in row.layers if layer.operations}))


@dataclass(frozen=True)
class Held:
    """One row and what was predicted for it by a model that had not seen its project."""

    row: Measured
    predicted: Mapping[str, float]


def held_out(rows: Sequence[Measured], stage: Stage, fit: Callable[[Sequence[Measured]], Model]) -> list[Held]:
    """Every row, predicted from the rows of all other projects."""
    found = []
    for project in sorted({row.project for row in rows}):
        others = [row for row in rows if row.project != project]
        if not others:
            raise ValueError(f"held out: every row is of project {project!r}; expected at least two projects")
        coefficients = Coefficients("held out", {stage: fit(others)})
        found += [Held(row, predict(coefficients, stage, row)) for row in rows if row.project == project]
    return found


def predict(coefficients: Coefficients, stage: Stage, row: Measured) -> dict[str, float]:
    """Figures of one row: of its design, or of its layers alone."""
    each, total = predicted(coefficients, stage, row.layers, row.hardware)
    return total if row.whole else {figure: sum(layer[figure] for layer in each) for figure in FIGURES}


def weighted_quantile(values: FloatArray, weights: FloatArray, level: float) -> float:
    """The smallest value at which the weights below and at it reach ``level`` of all."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][min(int(np.searchsorted(reached, level - 1e-12)), len(values) - 1)])


def error(figure: str, measured: float, value: float) -> float:
    """Absolute error: relative to what was measured (or the floor, where that is more), or in cycles."""
    difference = abs(value - measured)
    return difference if figure == "latency_cycles" else difference / max(measured, FLOORS[figure])


def spread(held: Sequence[Held], figure: Figure) -> Spread | None:
    """Errors of one figure over rows, every project weighing the same; None where none has it."""
    kept = [each for each in held if finite(getattr(each.row, figure))]
    if not kept:
        return None
    measured = np.array([float(getattr(each.row, figure)) for each in kept])
    values = np.array([each.predicted[figure] for each in kept])
    projects = [each.row.project for each in kept]
    weights = project_weights(projects)
    errors = np.array([error(figure, m, v) for m, v in zip(measured, values, strict=True)])
    if figure == "latency_cycles":
        off = measured - values
    else:
        floor = FLOORS[figure]
        off = (measured + floor) / (values + floor)  # so that 0 of 0 blocks is no error, and 1 of 0 a small one
    low68, high68, low90, high90 = (rounded(weighted_quantile(off, weights, level)) for level in QUANTILES)
    median = rounded(weighted_quantile(errors, weights, 0.5))
    return Spread(median, low68, high68, low90, high90, len(kept), len(set(projects)))


def spreads(held: Sequence[Held]) -> dict[str, Spread]:
    """Errors of every figure that was measured."""
    return {figure: found for figure in FIGURES if (found := spread(held, figure)) is not None}


def domain(rows: Sequence[Measured]) -> dict[str, tuple[float, float]]:
    """Smallest and largest of each feature over the product layers of the rows."""
    ranges: dict[str, tuple[float, float]] = {}

    def widen(layer: LayerFeatures, hardware: HardwareConfig) -> None:
        for name, value in ((name, float(value)) for name, value in domain_of(layer, hardware).items()):
            low, high = ranges.get(name, (value, value))
            ranges[name] = (min(low, value), max(high, value))

    for row in rows:
        for layer in row.layers:
            if layer.kind == PRODUCT:
                widen(layer, row.hardware)
    return ranges
