"""``NAME_export.rpt``: what HLS writes after exporting with Vivado's logic synthesis, or implementation.

A few lines ``LUT:  130031``. Block RAM is counted in 18 Kbit (the exporter adds each RAMB36 twice).
"""

from __future__ import annotations

import re

from hawq_flow.report.figures import date_of, parsed, part_of, resources
from hawq_flow.report.schema import HlsReport, Stage, Timing
from hawq_flow.report.text import Text, quoted
from hawq_flow.report.values import nanoseconds, number

BANNER = r"^Implementation tool:"
_USAGE = r"#=== Post-(Synthesis|Implementation) Resource usage ==="
_RESOURCES = {"LUT": "lut", "FF": "ff", "DSP": "dsp", "BRAM": "bram18", "URAM": "uram"}


def read_export(text: Text) -> HlsReport:
    """Resources and the clock achieved, at the stage that the heading of the resources names.

    Raises
    ------
    ReportError
        If the tool, the device, the resources, the clock, or the last line, whether timing is met, is missing.
    """
    start = text.need(BANNER, "Implementation tool: ...")
    version = re.search(r"\bv?\.?(\d{4}\.\d+(\.\d+)?)", text.lines[start])
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
    for key, found, where in (("LUT", figures, final), ("FF", figures, final), ("CP required", clocks, verdict)):
        if key not in found:
            text.fail(where, quoted(text.lines[where]), f"a line '{key}: ...' before it")
    if achieved not in clocks:
        text.fail(verdict, quoted(text.lines[verdict]), f"a line '{achieved}: ...' before it")
    date, notes = date_of(text.lines[date_at].partition(":")[2].strip())
    if text.lines[verdict].strip() != "Timing met":
        notes = (*notes, text.lines[verdict].strip().lower())
    return HlsReport(
        stage=stage,
        tool="Vivado",
        version=version[1],
        part=part_of(text, device, text.lines[device].partition(":")[2]),
        date=date,
        used=resources(
            text,
            usage,
            [(name, parsed(text, *figures[key], number, key)) for key, name in _RESOURCES.items() if key in figures],
        ),
        timing=Timing(
            clock_target_ns=parsed(text, *clocks["CP required"], nanoseconds, "CP required"),
            clock_estimate_ns=parsed(text, *clocks[achieved], nanoseconds, achieved),
        ),
        sources=(text.name,),
        notes=notes,
    )


def _figures(text: Text, start: int, stop: int) -> dict[str, tuple[int, str]]:
    found: dict[str, tuple[int, str]] = {}
    for index in range(start, stop):
        key, colon, value = text.lines[index].strip().partition(":")
        if colon:
            if key in found:
                text.fail(index, f"a second {key!r}", "one")
            found[key] = (index, value.strip())
    return found
