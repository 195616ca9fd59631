"""A run as a page to read: Markdown, figures and ``report.json``, from figures that earlier stages computed.

Nothing is measured here. ``report.json`` (version 1) holds every number of the page by name::

    {"version": 1, "experiment": str, "samples": int, "measure": "accuracy" or "explained_variance",
     "trained": bool, "float": {measure: float},
     "plans": {name: {measure: float, "bops", "sparse_bops", "weight_bits", "mean_weight_bits", "zero_fraction": {layer:
                      ...}, "equal": bool, "certificate": as in equality.json, "coverage": {value: counts},
                      "tables": {value: {"function", "entries"}}, "digest": str, "plan": {...},
                      "budgets": [{"budget", "stage", "limit", "before_training", "trained", "measured"}],
                      "estimates": {stage: {figure: [value, low, high], "warnings", "coefficients"}}}},
     "reference": name of the plan budgets refer to, "mixed": [names of the plans that were allocated],
     "firmware": [{"plan", "backend", "project", "network", ...}],
     "hardware": {name of a synthesized network: {measure, "total": counts of the netlist or null, "latency_cycles",
                  "interval_cycles", "tool", "version", "family", "notes", "proved": entries of its certificate}},
     "sensitivity": {...}, "allocation": {name: text}, "figures": {name: file}}

Accuracies are fractions of the test set. An autoencoder's float network and plans have "explained_variance" and its
"explained_variance_error" (one standard error) instead, of the normal test samples, and where there are anomalies "auc"
and "auc_error". ``bops`` counts every weight (p = 0), ``sparse_bops`` the non-zero ones. Without mixed plans there are
no "sensitivity" and "allocation".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from hawq_flow.coverage import markdown as coverage_table
from hawq_flow.plan import BitPlan, mean_bits
from hawq_flow.quality import accuracy_error

STYLE: Any = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "figure.dpi": 120,
    "savefig.dpi": 150,
    "svg.hashsalt": "hawq_flow",
}
BLUE, ORANGE, GREY, RED = "#33658a", "#f26419", "#8d99ae", "#b23a48"


def widths(plan: BitPlan) -> str:
    """A plan in a line: ``W 4-4-5-4, A 6-6-6, in 16``; per-channel widths by their mean."""

    def show(bits: Any) -> str:
        return f"{mean_bits(bits):.3g}"

    layers = [bits for _, bits in plan.layers]
    inner = [show(bits.activation) for bits in layers[:-1]]
    inputs = ", ".join(show(bits) for _, bits in plan.inputs)
    return (
        f"W {'-'.join(show(bits.weight) for bits in layers)}"
        + (f", A {'-'.join(inner)}" if inner else "")
        + f", in {inputs}, out {show(layers[-1].activation)}"
    )


def show(measure: str, value: float) -> str:
    """A measure in words: ``78.00%``, or ``explained variance 0.9412``."""
    return f"{value:.2%}" if measure == "accuracy" else f"{measure.replace('_', ' ')} {value:.4f}"


def standard_error(report: Mapping[str, Any]) -> float:
    """One standard error of the float network's measure."""
    if report["measure"] == "accuracy":
        return accuracy_error(report["float"]["accuracy"], report["samples"])
    return float(report["float"][f"{report['measure']}_error"])


def quality_figure(report: Mapping[str, Any]) -> Figure:
    """The measure against BOPs: homogeneous plans joined, mixed plans marked, float as a line with its error."""
    measure = report["measure"]
    factor, unit = (100, " (%)") if measure == "accuracy" else (1, "")
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 4.2), layout="constrained")
        axes = figure.subplots()
        plans = report["plans"]
        samples = report["samples"]
        even = sorted((p["bops"], p[measure], name) for name, p in plans.items() if name not in report["mixed"])
        centre = factor * report["float"][measure]
        axes.axhline(centre, color=GREY, lw=1.2, ls="--", label="float", zorder=1)
        if error := factor * standard_error(report):
            axes.axhspan(centre - error, centre + error, color=GREY, alpha=0.15, lw=0, label="± 1 standard error")
        if even:
            x, y, names = zip(*even, strict=True)
            axes.plot(x, factor * np.array(y), "o-", color=BLUE, label="homogeneous", clip_on=False)
            for cost, value, name in zip(x, y, names, strict=True):
                axes.annotate(
                    name.upper(), (cost, factor * value), xytext=(6, -13), textcoords="offset points", color=BLUE
                )
        for i, name in enumerate(report["mixed"]):
            mixed = plans[name]
            label = "mixed (Hessian)" if i == 0 else None
            place = (mixed["bops"], factor * mixed[measure])
            axes.plot(*place, "D", color=ORANGE, ms=8, label=label, zorder=3, clip_on=False)
            axes.annotate(name, place, xytext=(-6, 8), textcoords="offset points", color=ORANGE, ha="right")
        axes.set_xlabel("bit operations an inference (BOPs, no sparsity)")
        axes.set_ylabel(f"test {measure.replace('_', ' ')}{unit}, {samples:,} samples")
        axes.xaxis.set_major_formatter(_thousands)
        axes.set_title("What the bits buy", pad=18)  # above the name of a plan at the top
        axes.legend(frameon=False, loc="lower right")
        axes.margins(x=0.12, y=0.2)
        axes.set_ylim(top=min(axes.get_ylim()[1], factor))  # neither measure exceeds 1
    return figure


def sensitivity_figure(report: Mapping[str, Any]) -> Figure:
    """Mean Hessian eigenvalue of each layer's weights and output, with both standard errors, and the chosen widths."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 4.2), layout="constrained")
        axes = figure.subplots()
        layers = report["sensitivity"]["layers"]
        activations = {entry["name"]: entry for entry in report["sensitivity"]["activations"]}
        position = np.arange(len(layers))
        for shift, colour, mark, label, entries, size in (
            (-0.1, BLUE, "s", "weights", layers, "parameters"),
            (0.1, ORANGE, "o", "output activation", [activations.get(entry["name"]) for entry in layers], "size"),
        ):
            kept = [(i, e) for i, e in enumerate(entries) if e is not None]
            height = [max(e["trace"], 0.0) / e[size] for _, e in kept]
            error = [math.hypot(e["estimator_error"], e["sampling_error"]) / e[size] for _, e in kept]
            # Points, not bars: a logarithmic axis has no zero for a bar to stand on.
            place = [i + shift for i, _ in kept]
            axes.errorbar(place, height, error, fmt=mark, ms=9, color=colour, label=label, capsize=3)
        mixed = report["mixed"][0]
        plan = BitPlan.from_dict(report["plans"][mixed]["plan"])
        labels = []
        for entry in layers:
            bits = plan[entry["name"]]
            labels.append(f"{entry['name']}\nW{mean_bits(bits.weight):.3g} A{mean_bits(bits.activation):.3g}")
        axes.set_xticks(position, labels)
        axes.set_yscale("log")
        axes.set_ylabel("Hessian trace / number of elements")
        axes.set_title(f"Where the loss bends ({report['sensitivity']['method']}), and the bits of plan {mixed}")
        axes.set_xlim(-0.5, len(layers) - 0.5)
        axes.margins(y=0.15)
        axes.grid(axis="x", visible=False)
        axes.legend(frameon=False)
    return figure


def confusion(predicted: NDArray[np.int64], labels: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
    """Counts (true class, predicted class)."""
    matrix = np.zeros((classes, classes), dtype=np.int64)
    np.add.at(matrix, (labels, predicted), 1)
    return matrix


def confusion_figure(matrix: NDArray[np.int64], classes: Sequence[str], title: str) -> Figure:
    """Confusion matrix, each true class normalized to 100 %."""
    with mpl.rc_context({**STYLE, "axes.grid": False}):
        size = max(4.4, 0.55 * len(classes) + 2)
        figure = Figure(figsize=(size + 0.6, size), layout="constrained")
        axes = figure.subplots()
        share = 100 * matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
        image = axes.imshow(share, cmap="Blues", vmin=0, vmax=100)
        for i in range(len(classes)):
            for j in range(len(classes)):
                colour = "white" if share[i, j] > 55 else "black"
                axes.text(j, i, f"{share[i, j]:.0f}", ha="center", va="center", color=colour)
        axes.set_xticks(range(len(classes)), classes, parse_math=False)  # a class may be called "$x$"
        axes.set_yticks(range(len(classes)), classes, parse_math=False)
        axes.set_xlabel("predicted")
        axes.set_ylabel("true")
        axes.set_title(title)
        figure.colorbar(image, ax=axes, label="% of the true class", shrink=0.8)
    return figure


def errors_figure(errors: NDArray[np.float64], anomalous: NDArray[np.bool_], title: str) -> Figure:
    """Histogram of the samples' reconstruction errors (n,), anomalies apart from the others where there are any."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 4.2), layout="constrained")
        axes = figure.subplots()
        positive = errors[errors > 0]
        ends = (positive.min(), positive.max()) if len(positive) else (1.0, 1.0)
        bins = np.geomspace(ends[0] * 0.999, ends[1] * 1.001, 41)
        kinds = [("normal", BLUE, ~anomalous), ("anomalous", ORANGE, anomalous)]
        for label, colour, rows in kinds if anomalous.any() else [("all samples", BLUE, ~anomalous)]:
            axes.hist(np.clip(errors[rows], *ends), bins=bins.tolist(), color=colour, alpha=0.6, label=label)
        axes.set_xscale("log")
        axes.set_xlabel("mean squared reconstruction error of a sample")
        axes.set_ylabel("test samples")
        axes.set_title(title)
        axes.legend(frameon=False)
    return figure


def _thousands(value: float, _: object = None) -> str:
    """A tick of an axis of counts: 500, 1k, 1.5k."""
    return f"{value / 1000:,g}k" if value >= 1000 else f"{value:g}"


def hardware_figure(report: Mapping[str, Any]) -> Figure:
    """LUTs, flip-flops and DSPs of every synthesized network."""
    with mpl.rc_context(STYLE):
        entries = {name: entry for name, entry in report["hardware"].items() if entry["total"]}
        figure = Figure(figsize=(8.6, 1.3 + 0.42 * len(entries)), layout="constrained")
        panels = figure.subplots(1, 3, sharey=True)
        place = np.arange(len(entries))
        kinds = (("LUTs (packed)", "lut_packed", BLUE), ("flip-flops", "ff", ORANGE), ("DSPs", "dsp", GREY))
        for axes, (label, key, colour) in zip(panels, kinds, strict=True):
            counts = [entry["total"][key] for entry in entries.values()]
            bars = axes.barh(place, counts, color=colour, height=0.62)
            axes.bar_label(bars, [f"{count:,}" for count in counts], padding=3, fontsize=8)
            axes.set_xlabel(label)
            axes.margins(x=0.3)
            axes.grid(axis="y", visible=False)
            axes.xaxis.set_major_formatter(_thousands)
            axes.set_xlim(left=0, right=None if any(counts) else 1)
        panels[0].set_yticks(place, list(entries))
        panels[0].invert_yaxis()
        first = next(iter(entries.values()))
        what = f"What each network takes, family {first['family']} ({first['tool']}; version {first['version']})"
        figure.suptitle(what, fontsize=10)
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write a PNG without dates or versions: the same figure, the same bytes."""
    figure.savefig(path, metadata={"Software": None})


def markdown(report: Mapping[str, Any]) -> str:
    """The page."""
    samples, measure = report["samples"], report["measure"]
    percent = measure == "accuracy"
    what = measure.replace("_", " ")
    data = report["data"]
    names = data["features"]
    size = f"{len(names)} features" if names and len(data.get("shape", [0])) == 1 else f"shape {_dims(data['shape'])}"
    lines = [
        f"# {report['experiment']}",
        "",
        f"{data['source']}: {data['samples']['train']:,} training, {samples:,} test samples, {size}, "
        f"classes {', '.join(data['classes'])}.",
        _uncertainty(report, what),
    ]
    if not report["trained"]:
        lines += ["", f"**Not trained**: weights are random and only calibrated; its {what} says nothing."]
    if not percent:
        lines += [
            "",
            "The network reconstructs its input; explained variance, 1 - error / variance, is 1 for a perfect "
            "reconstruction and 0 for that by the mean."
            + (
                f" It is that of the normal samples ({', '.join(data['normal'])}), the only ones trained on; the area "
                "under the ROC curve (AUC) tells how well the error of all test samples finds the others."
                if data["normal"]
                else ""
            ),
        ]
    with_auc = "auc" in report["float"]
    lines += [
        "",
        f"![{what.capitalize()} against BOPs]({report['figures'][measure]})",
        "",
        f"| plan | widths | {what} | to float |{' AUC |' if with_auc else ''} BOPs | "
        f"of {report['reference'].upper()} | sparse BOPs | weight bits |",
        "|---|---|---:|---:|" + ("---:|" if with_auc else "") + "---:|---:|---:|---:|",
        f"| float | float32 | {_value(measure, report['float'][measure])} | |{_auc(report['float'], with_auc)} | | | |",
    ]
    reference = report["plans"][report["reference"]]["bops"]
    layers = BitPlan.from_dict(report["plans"][report["reference"]]["plan"]).layers
    for name, plan in report["plans"].items():
        difference = plan[measure] - report["float"][measure]
        lines.append(
            f"| {name} | {widths(BitPlan.from_dict(plan['plan']))} | {_value(measure, plan[measure])} | "
            f"{f'{100 * difference:+.2f}' if percent else f'{difference:+.4f}'} |{_auc(plan, with_auc)} "
            f"{plan['bops']:,.0f} | {plan['bops'] / reference:.1%} | {plan['sparse_bops']:,.0f} | "
            f"{plan['weight_bits']:,} |"
        )
    lines += [
        "",
        "W and A are the widths in bits of each layer's weights and output, in the order "
        f"{', '.join(name for name, _ in layers)}. BOPs, the bit operations of one inference, count every weight; "
        "sparse BOPs leave out those that are zero. All plans share the input's width.",
    ]
    if report["mixed"]:
        lines += _sensitivity(report)
    lines += _equality(report)
    if report["hardware"]:
        lines += _hardware(report)
    lines += _estimates(report)
    if report["firmware"]:
        lines += _firmware(report)
    if "confusion" in report:
        lines += ["", "## Confusion", "", f"![Confusion matrix of {report['confusion']['plan']}](confusion.png)"]
    if "errors" in report:
        lines += [
            "",
            "## Reconstruction errors",
            "",
            f"![Histogram of errors of {report['errors']['plan']}](errors.png)",
        ]
    return "\n".join([*lines, ""])


def _uncertainty(report: Mapping[str, Any], what: str) -> str:
    """How far the measure may be off; samples tell no standard error of an accuracy of exactly 0 or 1."""
    error, value = standard_error(report), report["float"][report["measure"]]
    if report["measure"] != "accuracy":
        return f"One standard error of an {what} here is {error:.4f}."
    if value in (0, 1):
        seen = "No error" if value else "No right answer"
        return f"{seen} of the float network seen in {report['samples']:,} samples, which say no more than that."
    return f"One standard error of an {what} here is {100 * error:.2f} points."


def _dims(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape))


def _value(measure: str, value: float) -> str:
    return f"{value:.2%}" if measure == "accuracy" else f"{value:.4f}"


def _auc(figures: Mapping[str, Any], wanted: bool) -> str:
    if not wanted:
        return ""
    if figures["auc"] == 1:  # its formula gives an error of 0, which is a claim too much
        return " 1 (no error seen) |"
    return f" {figures['auc']:.4f} ± {figures['auc_error']:.4f} |"


def _sensitivity(report: Mapping[str, Any]) -> list[str]:
    """The section of sensitivities and of what the allocation made of them."""
    lines = [
        "",
        "## Sensitivity",
        "",
        "How much the loss bends along each layer's weights: the trace of its Hessian block, with the error of the "
        "estimator (0: exact) and that of the finite training sample, and the largest eigenvalue. Layers with a high "
        "mean curvature need finer grids.",
        "",
        "![Sensitivity per layer](sensitivity.png)",
        "",
        "| layer | weights | trace | estimator's error | sampling error | top eigenvalue | method |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for entry in report["sensitivity"]["layers"]:
        top = entry["top_eigenvalue"]
        lines.append(
            f"| {entry['name']} | {entry['parameters']:,} | {entry['trace']:.4g} | {entry['estimator_error']:.2g} | "
            f"{entry['sampling_error']:.2g} | {'' if top is None else f'{top:.4g}'} | {entry['method']} |"
        )
    for name in report["allocation"]:
        for kept in report["plans"][name].get("budgets", []):
            lines += ["", f"Plan {name}: {budget(kept)}."]
    for name, text in report["allocation"].items():
        lines += ["", f"Plan {name} and why:", "", "```", text.rstrip(), "```"]
    lines += [
        "",
        "Each row is a tensor that was given a width: `err 4b` is the squared error of quantizing it to 4 bits, "
        "`contribution` is trace / size times the error at the chosen width, and `objective` their sum, which the plan "
        "minimizes under the budgets below it. Inputs and outputs have given widths (a dash).",
    ]
    return lines


def _equality(report: Mapping[str, Any]) -> list[str]:
    """The section of the certificates, and of what the compared inputs exercised."""
    lines = [
        "",
        "## Equality",
        "",
        "Every representation was compared with the integer interpreter by `==`, on every value it shows.",
        "",
        "| plan | representation | samples | mismatches | of elements | method |",
        "|---|---|---:|---:|---:|---|",
    ]
    for name, plan in report["plans"].items():
        for backend, entry in plan["certificate"]["backends"].items():
            wrong = f"**{entry['mismatches']:,}**" if entry["mismatches"] else "0"
            lines.append(
                f"| {name} | {backend} | {plan['certificate']['samples']:,} | {wrong} | {entry['elements']:,} | "
                f"{entry['method']} |"
            )
    shown = (report["mixed"] or list(report["plans"]))[0]
    return [
        *lines,
        "",
        f"What the inputs exercised in plan {shown}: distinct integers of every value, elements at the ends of its "
        "type, ties before rounding, elements that saturation cut, and negative ones that a ReLU made 0.",
        "",
        coverage_table(report["plans"][shown]["coverage"]),
        *_tables(report["plans"][shown]["tables"]),
    ]


def _tables(tables: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Functions of one element that are lookup tables, with their sizes; nothing when there are none."""
    if not tables:
        return []
    shown = ", ".join(f"{name}: {entry['function']}, {entry['entries']:,} entries" for name, entry in tables.items())
    return ["", f"Lookup tables: {shown}."]


def budget(kept: Mapping[str, Any]) -> str:
    """What became of a budget in hardware units: asked, estimated before and after training, and measured if it was."""
    last = kept["trained"] if kept["measured"] is None else kept["measured"]
    measured = "" if kept["measured"] is None else f", measured {kept['measured']:,.0f}"
    verdict = "kept" if last <= kept["limit"] else "**missed**"
    return (
        f"budget {kept['budget']} ({kept['stage']}) {kept['limit']:,.0f}, estimated {kept['before_training']:,.0f} "
        f"before training and {kept['trained']:,.0f} after{measured}: {verdict}"
    )


def _hardware(report: Mapping[str, Any]) -> list[str]:
    """The section of what was synthesized by the open road."""
    entries, measure = report["hardware"], report["measure"]
    first = next(iter(entries.values()))
    reference = first["total"]
    lines = [
        "",
        "## Hardware, by the open road",
        "",
        f"Verilog from the integers, synthesized by {first['tool']} ({first['version']}, family {first['family']}). "
        "LUTs are packed sites: one for each carry bit, and the other LUTs; nothing is placed. Every netlist was run "
        "on the whole test set and compared with the interpreter by `==`; so was the streaming Verilog, clock by "
        "clock, where a simulator was at hand.",
        "",
        *(["![What each network takes](hardware.png)", ""] if "hardware" in report["figures"] else []),
        f"| network | {measure.replace('_', ' ')} | LUT | of the first | raw LUT | FF | DSP | CARRY8 | levels | "
        "latency | relative delay | proved equal |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    remarks = []
    for name, entry in entries.items():
        total, cycles = entry["total"], entry["latency_cycles"]
        proved = ", ".join(key for key, found in entry["proved"].items() if not found["mismatches"]) or "not run"
        value = "" if entry[measure] is None else _value(measure, entry[measure])
        if total is None:
            lines.append(f"| {name} | {value} | | | | | | | | | | {proved} |")
        else:
            share = f"{total['lut_packed'] / reference['lut_packed']:.1%}" if reference else ""
            lines.append(
                f"| {name} | {value} | {total['lut_packed']:,} | {share} | {total['lut']:,} | {total['ff']:,} | "
                f"{total['dsp']:,} | {total['carry8']:,} | {total['levels']} | "
                f"{'' if cycles is None else f'{cycles} cycles'} | {total['relative_ns']:.1f} ns | {proved} |"
            )
        remarks += [
            f"- {name}: {note}" for note in entry["notes"] if "unrolled" in note or note.startswith("no totals")
        ]
    return [
        *lines,
        "",
        "The relative delay adds constant delays along the longest path between registers: it compares designs and "
        "promises no clock. The initiation interval is 1.",
        *(["", *remarks] if remarks else []),
    ]


def _estimates(report: Mapping[str, Any]) -> list[str]:
    """The section of what was estimated before any synthesis."""
    lines = [
        "",
        "## Hardware, by estimate",
        "",
        "What each plan's network is expected to take, from its own integers; the range held 68 % of designs that "
        "were not fitted. csynth: the HLS tool's estimate; synthesis: Vivado's; open: Yosys, for Verilog of our own. "
        "Figures of different stages are not comparable.",
        "",
        "| plan | stage | LUT | FF | DSP | BRAM18 | latency (cycles) |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    warnings: dict[str, None] = {}
    for name, plan in report["plans"].items():
        for stage, found in plan["estimates"].items():
            cells = [_bar(found[figure]) for figure in ("lut", "ff", "dsp", "bram18", "latency_cycles")]
            lines.append(f"| {name} | {stage} | {' | '.join(cells)} |")
            warnings |= dict.fromkeys(found["warnings"])
    beyond = [f"- beyond what was fitted: {warning}" for warning in warnings]
    return [*lines, *(["", *beyond] if beyond else [])]


def _bar(bar: Sequence[float | None]) -> str:
    value, low, high = bar
    text = f"{value:,.0f}"
    return text if low is None or high is None or low == high else f"{text} ({low:,.0f} to {high:,.0f})"


def _firmware(report: Mapping[str, Any]) -> list[str]:
    """The section of the HLS projects."""
    lines = [
        "",
        "## Firmware",
        "",
        "| plan | back end | project, from the experiment's or report's folder | network | part | clock | "
        "interface, strategy | reuse factors |",
        "|---|---|---|---|---|---:|---|---|",
    ]
    for entry in report["firmware"]:
        taken = entry["reuse_factors"]
        same = set(taken.values())
        factors = f"{same.pop()} (all)" if len(same) == 1 else ", ".join(f"{name} {n}" for name, n in taken.items())
        lines.append(
            f"| {entry['plan']} | {entry['backend']} | `{entry['project']}` | `{entry['network'][:16]}` | "
            f"{entry['part']} | {entry['clock_period_ns']:g} ns | {entry['io_type']}, {entry['strategy']} | {factors} |"
        )
    return lines
