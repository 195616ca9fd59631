"""An estimate as Markdown: the whole design with its error bars, then layer by layer."""

from __future__ import annotations

from collections.abc import Mapping

from hawq_flow.devices import Device
from hawq_flow.estimate.coefficients import FIGURES, Stage
from hawq_flow.estimate.estimating import Bar, Estimate, Figures

STAGES: Mapping[Stage, str] = {
    "csynth": "csynth: what the HLS tool will estimate",
    "synthesis": "synthesis: what Vivado's logic synthesis will report",
    "open": "open: what Yosys will report (not Vivado)",
}


def estimate_markdown(found: Estimate, device: Device | None = None) -> str:
    """Totals with ranges and, where the device is known, their share of it; a row a layer; warnings.

    The open stage has no device: it stands for a family.
    """
    device = None if found.stage == "open" else device
    limits = {name: getattr(device, name) for name in ("lut", "ff", "dsp", "bram18")} if device is not None else {}
    share = f" of {device.name} |" if device is not None else ""
    lines = [
        f"## {STAGES[found.stage]}",
        "",
        f"| figure | estimate | 68 % of designs | 90 % of designs |{share}",
        "|---|---:|---:|---:|" + ("---:|" if share else ""),
    ]
    for name in FIGURES:
        bar: Bar = getattr(found.total, name)
        limit = limits.get(name)
        end = f" {bar.value / limit:.1%} |" if limit else (" |" if share else "")
        lines.append(
            f"| {name} | {bar.value:,.0f} | {_range(bar.low68, bar.high68)} | {_range(bar.low90, bar.high90)} |{end}"
        )
    interval = found.total.interval_cycles
    lines.append(f"| interval_cycles | {interval:,.0f} | | |" + (" |" if share else ""))
    lines += ["", "| layer | " + " | ".join(FIGURES) + " |", "|---|" + "---:|" * len(FIGURES)]
    lines += [f"| {name} | {_row(figures)} |" for name, figures in found.layers]
    lines += ["", f"Coefficients: {found.coefficients}. Ranges held so many of the designs that were not fitted."]
    lines += [f"- beyond what was fitted: {warning}" for warning in found.warnings]
    return "\n".join(lines) + "\n"


def _range(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{low:,.0f} to {high:,.0f}"


def _row(figures: Figures) -> str:
    bars: list[Bar] = [getattr(figures, name) for name in FIGURES]
    return " | ".join(f"{bar.value:,.0f}" for bar in bars)
