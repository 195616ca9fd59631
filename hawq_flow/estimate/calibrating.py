"""Coefficients fitted anew to a user's own reports, and what that buys on the user's own designs.

Few reports cannot carry many coefficients. With fewer than ``ENOUGH`` of them only a factor for each figure is fitted,
and drawn towards 1: with ``n`` designs whose measured figures are on (geometric) average ``r`` times the estimate, the
factor is ``r^(n / (n + SHRINKAGE))``. Several reports of one design count as one. With more, the coefficients
themselves are, with the factors on top. Either way the errors *after* are of designs left out, one network at a time,
so a calibration that does not help shows it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hawq_flow.estimate.coefficients import FIGURES, Coefficients, Figure, Model, Stage, shipped
from hawq_flow.estimate.data import Measured, finite
from hawq_flow.estimate.features import EstimateError, HardwareConfig, LayerFeatures, features
from hawq_flow.estimate.fitting import FLOORS, Held, domain, error, fit_hls, fit_open, predict, rounded, spreads
from hawq_flow.network import IntegerNetwork
from hawq_flow.report import HlsReport

SHRINKAGE = 2.0
ENOUGH = 40
"""Designs, of at least ``ENOUGH_NETWORKS`` networks, from which coefficients are fitted and not only factors."""
ENOUGH_NETWORKS = 8
STAGES: Mapping[str, Stage] = {
    "csynth": "csynth",
    "synthesis": "synthesis",
    "implementation": "synthesis",
    "open": "open",
}

Sample = tuple[IntegerNetwork | Sequence[LayerFeatures], HardwareConfig, HlsReport]
"""What was built, how, and what a tool reported of it."""


@dataclass(frozen=True)
class Calibration:
    """The outcome of :func:`calibrate`.

    Attributes
    ----------
    coefficients:
        To be saved (``Coefficients.save``) and given to :func:`hawq_flow.estimate.estimate`.
    stage, strategy:
        Which model was fitted.
    before, after:
        Median absolute errors by figure, of the shipped coefficients and, on designs left out, of the new ones:
        relative, and in cycles for ``latency_cycles``.
    held:
        Each design and what was predicted for it without it.
    notes:
        What was fitted, and what could not be.
    """

    coefficients: Coefficients
    stage: Stage
    strategy: str
    before: Mapping[str, float]
    after: Mapping[str, float]
    held: tuple[Held, ...]
    notes: tuple[str, ...]


def measured_of(sample: Sample) -> Measured:
    """A sample as a row of a fit; ``EstimateError`` if its report has no figure of a stage that is estimated."""
    built, hardware, report = sample
    if report.stage not in STAGES:
        raise EstimateError(
            f"calibrate: a report of stage {report.stage!r} has no resources; give reports of {', '.join(STAGES)}"
        )
    lut, ff, dsp, bram18, cycles = (_figure(report, name) for name in FIGURES)
    if all(value is None for value in (lut, ff, dsp, bram18, cycles)):
        raise EstimateError(
            f"calibrate: {_named(report)} has none of the figures {', '.join(FIGURES)}; leave it out, or collect it "
            "anew"
        )
    layers = features(built) if isinstance(built, IntegerNetwork) else tuple(built)
    name = built.digest if isinstance(built, IntegerNetwork) else report.digest or ", ".join(report.sources)
    if isinstance(built, IntegerNetwork) and report.digest is not None and report.digest != built.digest:
        raise EstimateError(
            f"calibrate: the report is of network {report.digest[:12]}, not of {built.digest[:12]}; give each network "
            "its own report"
        )
    if isinstance(built, IntegerNetwork):
        hardware.check_layers(op.name for op in built.ops)
    return Measured(
        project=name,
        name=f"{name[:12]} {report.tool} {report.version or ''}".strip(),
        stage=STAGES[report.stage],
        version=report.version or "unknown",
        layers=layers,
        hardware=hardware,
        whole=True,
        lut=lut,
        ff=ff,
        dsp=dsp,
        bram18=bram18,
        latency_cycles=cycles,
        weights_known=True,
    )


def _named(report: HlsReport) -> str:
    """A report in an error's words."""
    where = ", ".join(report.sources) or (report.digest or "without a digest")[:12]
    return f"the {report.stage} report of {report.tool} ({where})"


def _figure(report: HlsReport, name: Figure) -> float | None:
    """One figure of a report; None where it is not reported, ``EstimateError`` where it is no amount."""
    value = report.timing.latency_cycles_max if name == "latency_cycles" else getattr(report.used, name)
    if value is None:
        return None
    if not (math.isfinite(value) and value >= 0):
        raise EstimateError(f"calibrate: {_named(report)} says {name} is {value!r}; expected a number of at least 0")
    return float(value)


def _design(row: Measured) -> str:
    """What tells designs apart: the network, and how it was built."""
    return repr((row.project, row.layers, row.hardware))


def _factors(model: Model, stage: Stage, name: str, rows: Sequence[Measured], start: Coefficients) -> Model:
    """The model with a factor for each figure, drawn towards what it had."""
    scale = dict(model.scale)
    coefficients = Coefficients(start.name, {**start.models, name: model})
    for figure in FIGURES:
        floor = FLOORS[figure]
        logs: dict[str, list[float]] = {}
        for row in rows:
            if finite(value := getattr(row, figure)):
                ratio = (float(value) + floor) / (predict(coefficients, stage, row)[figure] + floor)
                logs.setdefault(_design(row), []).append(math.log(ratio))
        if logs:
            pull = len(logs) / (len(logs) + SHRINKAGE)
            mean = float(np.mean([np.mean(each) for each in logs.values()]))
            scale[figure] = rounded(model.factor(figure) * math.exp(pull * mean))
    return dataclasses.replace(model, scale=scale)


def _enough(rows: Sequence[Measured]) -> bool:
    """Whether there are designs and networks enough to fit coefficients to."""
    designs, networks = ({key(row) for row in rows} for key in (_design, lambda row: row.project))
    return len(designs) >= ENOUGH and len(networks) >= ENOUGH_NETWORKS


def _fit(model: Model, stage: Stage, name: str, rows: Sequence[Measured], start: Coefficients) -> Model:
    if _enough(rows) and not model.base:
        refit = (fit_open if stage == "open" else fit_hls)(rows)
        kept = {
            figure: {**model.coefficients.get(figure, {}), **refit.coefficients.get(figure, {})}
            for figure in {*model.coefficients, *refit.coefficients}
        }
        kinds = tuple(sorted({*model.kinds, *refit.kinds}))
        model = dataclasses.replace(model, coefficients=kept, scale={}, kinds=kinds)
    return _factors(model, stage, name, rows, start)


def _errors(held: Sequence[Held]) -> dict[str, float]:
    found: dict[str, float] = {}
    for figure in FIGURES:
        values = [
            error(figure, float(getattr(each.row, figure)), each.predicted[figure])
            for each in held
            if finite(getattr(each.row, figure))
        ]
        if values:
            found[figure] = float(np.median(values))
    return found


def calibrate(samples: Sequence[Sample], name: str, *, start: Coefficients | None = None) -> Calibration:
    """Fit the estimates to a user's own reports.

    Parameters
    ----------
    samples:
        Networks (or features), how they were built, and reports, all of one stage (logic synthesis and implementation
        are two), strategy and device family.
    name:
        What the new coefficients are called; estimates say it.
    start:
        What to begin from; None: the shipped coefficients.

    Raises
    ------
    EstimateError
        If there is no sample, they are of several stages, strategies or families, a report is of another network, has
        no figure, or one that is no amount.
    """
    start = start or shipped()
    rows = [measured_of(sample) for sample in samples]
    groups = sorted(
        {
            (report.stage,) if report.stage == "open" else (report.stage, hardware.strategy, hardware.family)
            for _, hardware, report in samples
        }
    )
    if len(groups) != 1:
        listed = ", ".join(" ".join(group) for group in groups) or "none"
        raise EstimateError(
            f"calibrate: reports of one stage, strategy and device family are fitted together; found {listed}"
        )
    stage: Stage = next(each for each in STAGES.values() if each == rows[0].stage)
    strategy = rows[0].hardware.strategy
    old = start.model(stage, rows[0].hardware)
    key = next(each for each, model in start.models.items() if model is old)
    before = [Held(row, predict(start, stage, row)) for row in rows]
    networks = sorted({row.project for row in rows})
    notes = []
    after: list[Held] = []
    for network in networks:
        others = [row for row in rows if row.project != network]
        if others:
            part = Coefficients(name, {**start.models, key: _fit(old, stage, key, others, start)})
            after += [Held(row, predict(part, stage, row)) for row in rows if row.project == network]
    new = _fit(old, stage, key, rows, start)
    if not _enough(rows) or new.base:
        notes.append(
            f"{len(rows)} reports of {len(networks)} networks: a factor for each figure is fitted, drawn towards 1; "
            f"coefficients are fitted from {ENOUGH} reports of {ENOUGH_NETWORKS} networks on"
        )
    else:
        notes.append(f"{len(rows)} reports of {len(networks)} networks: coefficients and factors are fitted")
    if len(networks) < 2:
        notes.append("reports of one network only: there is no error of designs left out; error bars are as before")
    elif len(networks) < ENOUGH_NETWORKS:
        notes.append(f"error bars are as before: {len(networks)} networks are too few to say how far they spread")
    else:
        new = dataclasses.replace(new, design=spreads(after))
    ranges = {
        each: (min(low, new.domain.get(each, (low, high))[0]), max(high, new.domain.get(each, (low, high))[1]))
        for each, (low, high) in domain(rows).items()
    }
    sources = (*new.sources, f"{name}: {len(rows)} reports of {len(networks)} networks")
    new = dataclasses.replace(new, domain={**new.domain, **ranges}, sources=sources)
    return Calibration(
        Coefficients(name, {**start.models, key: new}),
        stage,
        strategy,
        _errors(before),
        _errors(after),
        tuple(after or before),
        tuple(notes),
    )


def markdown(calibration: Calibration, figures: Sequence[Figure] = FIGURES) -> str:
    """Errors before and after, and each design's predicted and measured figures, as Markdown."""
    lines = [*calibration.notes, "", "| figure | median error before | after, on designs left out |", "|---|---:|---:|"]
    for figure in figures:
        if figure in calibration.before:
            lines.append(
                f"| {figure} | {_shown(figure, calibration.before[figure])} | "
                f"{_shown(figure, calibration.after.get(figure))} |"
            )
    lines += ["", "| design | figure | predicted | measured | error |", "|---|---|---:|---:|---:|"]
    for each in calibration.held:
        for figure in figures:
            value = getattr(each.row, figure)
            if finite(value):
                off = error(figure, float(value), each.predicted[figure])
                lines.append(
                    f"| {each.row.name} | {figure} | {each.predicted[figure]:,.0f} | {float(value):,.0f} | "
                    f"{_shown(figure, off)} |"
                )
    return "\n".join(lines) + "\n"


def _shown(figure: str, value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.1f} cycles" if figure == "latency_cycles" else f"{value:.1%}"
