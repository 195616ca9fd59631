"""Fit the coefficients that ship, from the published tables: ``python -m hawq_flow.estimate.fit FOLDER``.

``FOLDER`` holds hls4ml_layers.csv, hls4ml_projects.csv, wa_hls4ml_search/ and hls4ml_rf_scans/. ``--open`` names the
lines that experiments/calibrate.py wrote of bit plans, ``--operations`` those of single ops. The same data give the
same bytes. What is printed are the errors on projects held out, as they stand in docs/estimates.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hawq_flow.estimate import data, pairs
from hawq_flow.estimate.baselines import compare
from hawq_flow.estimate.coefficients import SHIPPED, Coefficients, Figure, Model, Spread
from hawq_flow.estimate.counts import Counts
from hawq_flow.estimate.data import Measured
from hawq_flow.estimate.features import HardwareConfig, LayerFeatures
from hawq_flow.estimate.figures import predicted_against_measured, save
from hawq_flow.estimate.fitting import (
    QUANTILES,
    Held,
    domain,
    fit_hls,
    fit_open,
    held_out,
    rounded,
    spreads,
    weighted_quantile,
)
from hawq_flow.estimate.solving import project_weights

OPEN = Path(__file__).parents[2] / "experiments" / "calibrate.jsonl"
OPERATIONS = OPEN.with_name("operations.jsonl")


def with_errors(model: Model, held: Sequence[Held], rows: Sequence[Measured], sources: Sequence[str]) -> Model:
    """The model with its errors on held-out rows, the ranges fitted and where the rows came from."""
    return dataclasses.replace(
        model,
        layer=spreads([each for each in held if len(each.row.layers) == 1 and each.row.layers[0].kind == "product"]),
        design=spreads(designs(held) or held),
        domain=domain(rows),
        sources=tuple(sources),
    )


def described(rows: Sequence[Measured], name: str) -> str:
    """Where rows came from, in a line."""
    versions = ", ".join(sorted({row.version for row in rows}))
    return f"{name}: {len(rows)} rows of {len({row.project for row in rows})} projects, tool versions {versions}"


def hls_models(rows: Sequence[Measured]) -> tuple[dict[str, Model], dict[str, list[Held]]]:
    """The csynth models of both strategies, and their held-out rows."""
    models, held = {}, {}
    for strategy in ("latency", "resource"):
        own = [row for row in rows if row.hardware.strategy == strategy]
        search = [row for row in own if row.weights_known]
        projects = [row for row in own if not row.weights_known]
        key = f"csynth.{strategy}"
        held[key] = held_out(own, "csynth", fit_hls)
        sources = [described(part, name) for part, name in ((search, "wa-hls4ml-search"), (projects, "hls4ml")) if part]
        models[key] = with_errors(fit_hls(own), held[key], own, sources)
    # what no row of the resource strategy has (a rescale, a softmax) is the same hardware in both
    resource, latency = models["csynth.resource"], models["csynth.latency"].coefficients
    coefficients = {figure: {**latency[figure], **own} for figure, own in resource.coefficients.items()}
    models["csynth.resource"] = dataclasses.replace(resource, coefficients=coefficients)
    return models, held


def _combined(base: Mapping[str, Spread], logs: np.ndarray, weights: np.ndarray, figure: str) -> Spread | None:
    """The error of csynth's estimate and of the ratio to csynth together, as independent in the logarithm."""
    if figure not in base or not len(logs):
        return None
    one, middle = base[figure], weighted_quantile(logs, weights, 0.5)
    ends = []
    for level, end in zip(QUANTILES, (one.low68, one.high68, one.low90, one.high90), strict=True):
        size = math.hypot(math.log(max(end, 1e-3)), weighted_quantile(logs, weights, level) - middle)
        ends.append(rounded(math.exp(size if level > 0.5 else -size)))
    off = weighted_quantile(np.abs(np.expm1(logs - middle)), weights, 0.5)
    low68, high68, low90, high90 = ends
    return Spread(rounded(math.hypot(one.median, off)), low68, high68, low90, high90, one.rows, one.projects)


def synthesis_models(found_pairs: Sequence[pairs.Pair], models: Mapping[str, Model]) -> dict[str, Model]:
    """Logic synthesis as csynth's estimate times a ratio: the median over designs with both reports, by strategy."""
    found = {}
    for strategy in ("latency", "resource"):
        base = models[f"csynth.{strategy}"]
        own = [pair for pair in found_pairs if pair.strategy == strategy]
        scale: dict[str, float] = {}
        design: dict[str, Spread] = {}
        layer: dict[str, Spread] = {}
        for figure in ("lut", "ff", "dsp"):
            logs = np.array([math.log(getattr(pair, figure)) for pair in own])
            weights = project_weights([pair.project for pair in own])
            scale[figure] = rounded(math.exp(weighted_quantile(logs, weights, 0.5)))
            for kept, from_base in ((design, base.design), (layer, base.layer)):
                if (both := _combined(from_base, logs, weights, figure)) is not None:
                    kept[figure] = both
        for figure in ("latency_cycles", "bram18"):
            for kept, from_base in ((design, base.design), (layer, base.layer)):
                if figure in from_base:
                    kept[figure] = from_base[figure]
        note = f"{len(own)} designs of {len({pair.project for pair in own})} projects with csynth and Vivado reports"
        found[f"synthesis.{strategy}"] = Model(
            {}, scale, layer, design, base.domain, "csynth", (*base.sources, note), base.kinds
        )
    return found


def layer_of(entry: Mapping[str, Any]) -> LayerFeatures:
    """Features as :func:`dataclasses.asdict` and JSON left them."""
    return LayerFeatures(**{**entry, "counts": Counts(**entry["counts"]), "reads": tuple(entry["reads"])})


def open_rows(path: Path) -> list[Measured]:
    """Modules and designs of experiments/calibrate.py's lines; each plan is a project."""
    rows = []
    for text in path.read_text().splitlines():
        entry = json.loads(text)
        project, version, hardware = f"plan {entry['seed']}", str(entry["tool"]), HardwareConfig()
        whole = tuple(layer_of(layer) for module in entry["modules"] for layer in module["layers"])
        for module in entry["modules"]:
            layers = tuple(layer_of(layer) for layer in module["layers"])
            name = f"{project} {layers[0].name}"
            rows.append(
                Measured(project, name, "open", version, layers, hardware, False, module["lut"], module["ff"], 0.0, 0.0)
            )
        rows.append(
            Measured(
                project,
                project,
                "open",
                version,
                whole,
                hardware,
                True,
                entry["lut"],
                entry["ff"],
                entry["dsp"],
                0.0,
                entry["latency_cycles"],
            )
        )
    return rows


def operation_rows(path: Path) -> list[Measured]:
    """Designs of one op each, of experiments/calibrate.py's lines; each is a project."""
    rows = []
    for text in path.read_text().splitlines():
        entry = json.loads(text)
        layers = tuple(layer_of(layer) for layer in entry["layers"])
        name, hardware = f"op {entry['name']}", HardwareConfig()
        rows.append(
            Measured(name, name, "open", entry["tool"], layers, hardware, True, entry["lut"], entry["ff"], 0.0, 0.0)
        )
    return rows


def open_model(rows: Sequence[Measured], operations: Sequence[Measured] = ()) -> tuple[Model, list[Held]]:
    """The open road's model: of rows of the same jet network under many plans, and of single ops.

    The errors of designs are the plans', those of layers the modules' of plans and the ops'; what is held out of the
    plans is returned.
    """
    every = held_out([*rows, *operations], "open", fit_open)
    projects = {row.project for row in rows}
    held = [each for each in every if each.row.project in projects]
    designs = [each for each in held if each.row.whole]
    layers = [each for each in every if not (each.row.whole and each.row.project in projects)]
    sources = [described(rows, "random plans of the jet MLP, experiments/calibrate.py")]
    sources += [described(operations, "single ops, experiments/calibrate.py --operations")] if operations else []
    model = dataclasses.replace(
        fit_open([*rows, *operations]),
        layer=spreads(layers),
        design=spreads(designs),
        domain=domain(rows),
        sources=tuple(sources),
    )
    return model, held


def fit(folder: Path, lines: Path, operations: Path = OPERATIONS) -> tuple[Coefficients, dict[str, list[Held]]]:
    """Everything: all models, and all held-out rows by model."""
    models, held = hls_models(data.rows(folder))
    models.update(synthesis_models(pairs.pairs(folder), models))
    models["open"], held["open"] = open_model(open_rows(lines), operation_rows(operations))
    return Coefficients("shipped", models), held


def designs(held: Sequence[Held]) -> list[Held]:
    """Rows of whole networks, not of single layers."""
    return [each for each in held if len(each.row.layers) > 1]


def comparison(held: Sequence[Held]) -> str:
    """Ours, BOPs and EBOPs on the same held-out designs and layers, as a Markdown table."""
    lines = [
        "| figure | of | by | median error of rows | of projects | rank correlation |",
        "|---|---|---|---:|---:|---:|",
    ]
    layers = [each for each in held if len(each.row.layers) == 1 and each.row.layers[0].kind == "product"]
    for of, rows in (("layers", layers), ("designs", designs(held))):
        for figure, ways in compare(rows).items():
            for way, one in ways.items():
                lines.append(f"| {figure} | {of} | {way} | {one.rows:.1%} | {one.projects:.1%} | {one.rank:.3f} |")
    return "\n".join(lines)


def report(coefficients: Coefficients) -> str:
    """The errors on projects held out, as a Markdown table."""
    lines = [
        "| model | of | figure | median error | 68 % range | rows | projects |",
        "|---|---|---|---:|---|---:|---:|",
    ]
    for key, model in sorted(coefficients.models.items()):
        for of, found in (("layer", model.layer), ("design", model.design)):
            for figure, one in sorted(found.items()):
                cycles = figure == "latency_cycles"
                median = f"{one.median:.1f}" if cycles else f"{one.median:.1%}"
                ends = f"{one.low68:+.1f} to {one.high68:+.1f}" if cycles else f"x {one.low68:.2f} to {one.high68:.2f}"
                lines.append(f"| {key} | {of} | {figure} | {median} | {ends} | {one.rows} | {one.projects} |")
    return "\n".join(lines)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m hawq_flow.estimate.fit", description=__doc__)
    parser.add_argument("folder", type=Path, help="the folder of published tables")
    parser.add_argument("--open", type=Path, default=OPEN, help="lines of experiments/calibrate.py")
    parser.add_argument("--operations", type=Path, default=OPERATIONS, help="its lines of single ops")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / SHIPPED)
    parser.add_argument("--figure", type=Path, help="where to draw the held-out designs")
    arguments = parser.parse_args()
    coefficients, held = fit(arguments.folder, arguments.open, arguments.operations)
    coefficients.save(arguments.out)
    print(report(coefficients), "", comparison(held["csynth.latency"]), sep="\n")
    if arguments.figure is not None:
        model = coefficients.models["csynth.latency"]
        shown: tuple[Figure, ...] = ("lut", "ff", "dsp", "latency_cycles")
        save(predicted_against_measured(designs(held["csynth.latency"]), model.design, shown), arguments.figure)


if __name__ == "__main__":
    main()
