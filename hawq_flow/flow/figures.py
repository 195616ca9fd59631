"""What a run's report holds: figures collected from the artifacts, and the pages and pictures made of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hawq_flow import equality, estimate, quality, store, summary
from hawq_flow.flow.making import write
from hawq_flow.flow.variants import Variants
from hawq_flow.network import Lookup
from hawq_flow.plan import bops, mean_weight_bits, weight_bits
from hawq_flow.train import predict

CLASSES_SHOWN = 40
"""A confusion matrix of more classes is no figure."""


def firmware_figures(flow: Variants) -> list[dict[str, Any]]:
    """One entry for each HLS project."""
    config, section = flow.experiment.hls, flow.experiment.firmware
    if section is None:
        return []
    return [
        {
            "plan": name,
            "backend": backend,
            "project": f"{section.folder or '../hls'}/{name}/{backend.lower()}/project",
            "network": flow.network(name).digest,
            "part": config.part,
            "clock_period_ns": config.clock_period_ns,
            "io_type": config.io_type,
            "strategy": config.strategy,
            "reuse_factors": flow.reuse_factors(name, backend),
        }
        for name in flow.hls_plans
        for backend in section.backends
    ]


def hardware_figures(flow: Variants) -> dict[str, Mapping[str, Any]]:
    """What the report says of every synthesized network, by name, in order."""
    if flow.experiment.rtl is None or flow.without_yosys:
        return {}
    names = [*flow.variant_names, *flow.experiment.rtl_plans]
    return {name: _hardware(flow, name) for name in names}


def _hardware(flow: Variants, name: str) -> dict[str, Any]:
    found = flow.synthesis(name).json("synthesis.json")
    report = found["report"]
    if name in flow.variant_names:
        certificate = flow.variant(name).json("equality.json")
        accuracy = flow.variant(name).json("result.json")["accuracy"]
    else:
        certificate = flow.equality(name).json("equality.json")
        accuracy = flow.qat(name).json("result.json").get(f"test_{flow.measure}")
    return {
        flow.measure: accuracy,
        "total": found["total"],
        "unrolled": found["unrolled"],
        "latency_cycles": report["timing"]["latency_cycles_max"],
        "interval_cycles": report["timing"]["interval_cycles_max"],
        "tool": report["tool"],
        "version": report["version"],
        "family": report["part"],
        "notes": report["notes"],
        "proved": {key: entry for key, entry in certificate["backends"].items() if key in ("netlist", "rtl")},
        "samples": certificate["samples"],
    }


def _tested(flow: Variants, result: dict[str, Any]) -> dict[str, Any]:
    """A result's figures on the test set, by name: accuracy, or explained_variance with its error, and auc if any."""
    names = (flow.measure, f"{flow.measure}_error", "auc", "auc_error")
    return {name: result[f"test_{name}"] for name in names if f"test_{name}" in result}


def plan_figures(flow: Variants, name: str) -> dict[str, Any]:
    """Everything the report says of one plan."""
    plan, shapes = flow.plan(name), flow.topology.shapes
    result = flow.qat(name).json("result.json")
    certificate = flow.equality(name).json("equality.json")
    return {
        **_tested(flow, result),
        f"val_{flow.measure}": result[f"val_{flow.measure}"],
        "bops": bops(plan, shapes),
        "sparse_bops": bops(plan, shapes, result["zero_fraction"]),
        "weight_bits": weight_bits(plan, shapes),
        "mean_weight_bits": mean_weight_bits(plan, shapes),
        "zero_fraction": result["zero_fraction"],
        "equal": equality.equal(certificate),
        "certificate": certificate,
        "coverage": flow.equality(name).json("coverage.json"),
        "tables": {
            op.name: {"function": op.function, "entries": int(op.table.size)}
            for op in flow.network(name).ops
            if isinstance(op, Lookup)
        },
        "digest": flow.network(name).digest,
        "plan": plan.to_dict(),
        "budgets": kept_budgets(flow, name),
        "estimates": {stage: _estimated(flow.estimated(name, stage)) for stage in estimate.STAGES},
    }


def kept_budgets(flow: Variants, name: str) -> list[dict[str, Any]]:
    """Budgets in hardware units of a mixed plan, once it is trained: what was asked, estimated, and measured if it was.

    Measured figures are Yosys', and so are only set beside budgets of the stage "open".
    """
    section = flow.experiment.allocate
    if name not in flow.mixed_names or not section.hardware_budgets:
        return []
    allocated = flow.plan_artifact(name).json("allocation.json")["budgets"]
    total = flow.estimated(name, section.stage).total
    measured: dict[str, float] = {}
    if section.stage == "open" and name in flow.experiment.rtl_plans and not flow.without_yosys:
        report = flow.synthesis(name).json("synthesis.json")["report"]
        measured = {
            "lut": report["used"]["lut"],
            "ff": report["used"]["ff"],
            "latency_cycles": report["timing"]["latency_cycles_max"],
        }
    return [
        {
            "budget": budget,
            "stage": section.stage,
            "limit": allocated[budget]["limit"],
            "before_training": allocated[budget]["used"],
            "trained": getattr(total, budget).value,
            "measured": measured.get(budget),
        }
        for budget in section.hardware_budgets
    ]


def _estimated(found: estimate.Estimate) -> dict[str, Any]:
    """An estimate's totals: of every figure its value and the ends of its 68 % range; and what it warns of."""
    told: dict[str, Any] = {"warnings": list(found.warnings), "coefficients": found.coefficients}
    for name in estimate.FIGURES:
        bar: estimate.Bar = getattr(found.total, name)
        told[name] = [bar.value, bar.low68, bar.high68]
    return told


def write_report(flow: Variants, folder: Path) -> None:
    """Write ``report.md``, ``report.json`` and the figures into ``folder``."""
    hardware = hardware_figures(flow)
    found = flow.float_artifact().json("result.json")
    plans = {name: plan_figures(flow, name) for name in flow.plan_names}
    report: dict[str, Any] = {
        "version": 1,
        "experiment": flow.experiment.name,
        "seed": flow.experiment.seed,
        "data": flow.data().json("data.json"),
        "samples": found["test_samples"],
        "measure": flow.measure,
        "trained": flow.experiment.train.epochs > 0,
        "float": _tested(flow, found),
        "reference": flow.plan_names[0],
        "mixed": flow.mixed_names,
        "firmware": firmware_figures(flow),
        "hardware": hardware,
        "plans": plans,
        "figures": {flow.measure: f"{flow.measure}.png"},
    }
    pictures = {flow.measure: summary.quality_figure(report)}
    if any(entry["total"] for entry in hardware.values()):
        pictures["hardware"] = summary.hardware_figure(report)
    if flow.mixed_names:
        report["sensitivity"] = flow.sensitivity().json("sensitivity.json")
        report["allocation"] = {n: flow.plan_artifact(n).file("allocation.txt").read_text() for n in flow.mixed_names}
        pictures["sensitivity"] = summary.sensitivity_figure(report)
    shown = (flow.mixed_names or flow.plan_names)[0]
    out = predict(flow.quantized(shown), flow.standardized["test"])
    classes = flow.split.classes
    if flow.loss == "mse":
        errors = quality.reconstruction_errors(out, flow.standardized["test"])
        report["errors"] = {"plan": shown}
        pictures["errors"] = summary.errors_figure(errors, flow.split.anomalous(flow.split.test), f"{shown} plan")
    elif report["trained"] and len(classes) <= CLASSES_SHOWN:
        matrix = summary.confusion(out.argmax(axis=1), flow.split.test.y, len(classes))
        report["confusion"] = {"plan": shown, "classes": classes, "counts": matrix.tolist()}
        title = f"{shown} plan: {plans[shown]['accuracy']:.1%} of {found['test_samples']:,}"
        pictures["confusion"] = summary.confusion_figure(matrix, classes, title)
    report["figures"] = {name: f"{name}.png" for name in pictures}
    for name, picture in pictures.items():
        summary.save(picture, folder / f"{name}.png")
    store.write_json(folder / "report.json", report)
    write(folder / "report.md", summary.markdown(report))
