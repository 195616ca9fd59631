"""What HLS writes after exporting with Vivado's logic synthesis, or implementation, in two forms.

``NAME_export.rpt``, and since Vitis HLS 2022 ``export_syn.rpt`` and ``export_impl.rpt`` with the head of HLS reports.
Both have a few lines ``LUT:  130031``. Block RAM is counted in 18 Kbit (the exporter adds each RAMB36 twice).
"""

from __future__ import annotations

import re

from hawq_flow.report.csynth_rpt import general, version_of
from hawq_flow.report.figures import cell, complete, date_of, parsed, part_of, resources
from hawq_flow.report.schema import NOT_MET, HlsReport, Resources, Stage, Timing
from hawq_flow.report.text import Text, box, quoted
from hawq_flow.report.values import count, nanoseconds

BANNER = r"^Implementation tool:"
RESULTS = r"^== Vivado (RTL Synthesis|Place & Route) Results$"
_USAGE = r"#=== Post-(Synthesis|Implementation) Resource usage ==="
_RESOURCES = {"LUT": "lut", "FF": "ff", "DSP": "dsp", "BRAM": "bram18", "URAM": "uram"}


def read_export(text: Text) -> HlsReport:
    """Resources and the clock achieved, at the stage that the heading of the resources names.

    Raises
    ------
    ReportError
        If the tool, the device, a resource (but UltraRAM, which some devices lack), the clock, or the last line,
        whether timing is met, is missing.
    """
    start = text.need(BANNER, "Implementation tool: ...")
    version = re.search(r"\bv?\.?(\d{4}\.\d+(\.\d+)?)", text.lines[start], re.ASCII)
    if version is None:
        text.fail(start, quoted(text.lines[start]), "Xilinx Vivado and a version")
    device = text.need(r"Device target:", "Device target: ...", start)
    date_at = text.need(r"Report date:", "Report date: ...", start)
    usage = text.need(_USAGE, "#=== Post-... Resource usage ===", start)
    final = text.need(r"#=== Final timing ===", "#=== Final timing ===", usage)
    stage: Stage = "implementation" if "Implementation" in text.lines[usage] else "synthesis"
    figures = _figures(text, usage + 1, final)
    clocks = _figures(text, final + 1, len(text.lines))
    verdict = text.need(r"(Timing (not )?met|No Sequential Path)$", "Timing met, or Timing not met, at its end", final)
    achieved = f"CP achieved post-{stage}"
    for key in ("CP required", achieved):
        if key not in clocks:
            text.fail(verdict, quoted(text.lines[verdict]), f"a line '{key}: ...' before it")
    date, notes = date_of(text.lines[date_at].partition(":")[2].strip())
    if text.lines[verdict].strip() != "Timing met":
        notes = (*notes, text.lines[verdict].strip().lower())
    return HlsReport(
        stage=stage,
        tool="Vivado",
        version=version[1],
        part=part_of(text, device, text.lines[device].partition(":")[2]),
        date=date,
        used=_used(text, usage, figures),
        timing=Timing(
            clock_target_ns=parsed(text, *clocks["CP required"], nanoseconds, "CP required"),
            clock_estimate_ns=parsed(text, *clocks[achieved], nanoseconds, achieved),
        ),
        sources=(text.name,),
        notes=notes,
    )


def read_results(text: Text) -> HlsReport:
    """``export_syn.rpt`` or ``export_impl.rpt``: resources and the period achieved, at the stage of its banner.

    The version in its head is that of HLS, not Vivado's: it stands in ``notes``.

    Raises
    ------
    ReportError
        If the head, a section, a resource (but UltraRAM) or a period is missing, or whether timing is met.
    """
    banner = text.need(RESULTS, "the banner == Vivado ... Results")
    synthesis = "RTL Synthesis" in text.lines[banner]
    name, row = ("RTL Synthesis", "Post-Synthesis") if synthesis else ("Place & Route", "Post-Route")
    head = general(text, banner, ("Version", "Target device"))
    usage = text.need(rf"== {name} Resource Summary$", f"the section == {name} Resource Summary", banner)
    final = text.need(rf"== {name} Timing Summary$", f"the section == {name} Timing Summary", usage)
    verdict = text.need(r"(?i)\* Timing was (not )?met$", "* Timing was met, or * Timing was not met", final)
    table = box(text, verdict)
    if table is None:
        text.cut("the table of periods")
    target, achieved = (
        cell(table, table.need_row(key), nanoseconds, table.titles[table.column("Period (ns)")])
        for key in ("Target", row)
    )
    date, notes = date_of(head["Date"][1] if "Date" in head else None)
    return HlsReport(
        stage="synthesis" if synthesis else "implementation",
        tool="Vivado",
        part=part_of(text, *head["Target device"]),
        date=date,
        used=_used(text, usage, _figures(text, usage + 1, final)),
        timing=Timing(clock_target_ns=target, clock_estimate_ns=achieved),
        sources=(text.name,),
        notes=(
            *notes,
            f"run by HLS {version_of(text, *head['Version'])}",
            *([NOT_MET] if "not met" in text.lines[verdict].lower() else []),
        ),
    )


def _used(text: Text, index: int, figures: dict[str, tuple[int, str]]) -> Resources:
    found = [(name, parsed(text, *figures[key], count, key)) for key, name in _RESOURCES.items() if key in figures]
    return complete(text, index, resources(text, index, found), "a list of resources")


def _figures(text: Text, start: int, stop: int) -> dict[str, tuple[int, str]]:
    found: dict[str, tuple[int, str]] = {}
    for index in range(start, stop):
        key, colon, value = text.lines[index].strip().partition(":")
        if colon:
            if key in found:
                text.fail(index, f"a second {key!r}", "one")
            found[key] = (index, value.strip())
    return found
