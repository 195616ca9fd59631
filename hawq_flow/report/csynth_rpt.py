"""``NAME_csynth.rpt``: what Vivado HLS and Vitis HLS estimate for one function, and the old and new layouts of it.

Until 2019.1 the unit stands in the heading (``+ Timing (ns)``, ``+ Latency (clock cycles)``) and a table has cycles
alone; later each cell has its unit and the latency comes in cycles and in absolute time. Resources stand in a table
whose columns vary with version and device. The file always ends with the section ``== Interface``; as hls4ml prints it
(see ``read.py``) it ends after the table of instances.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from hawq_flow.report.figures import cell, complete, date_of, hls_resources, part_of
from hawq_flow.report.schema import HlsReport, Resources, Row, Timing
from hawq_flow.report.text import Table, TableRow, Text, box, must_not_end_in_a_table, quoted
from hawq_flow.report.values import nanoseconds, whole

BANNER = r"^== (Vivado|Vitis) HLS Report for '(.+)'$"


def general(
    text: Text, start: int, keys: Sequence[str] = ("Date", "Version", "Target device")
) -> dict[str, tuple[int, str]]:
    """The lines ``* Key: value`` under a banner: key -> (line, value); ``keys`` must be there."""
    found: dict[str, tuple[int, str]] = {}
    for index in range(start, min(start + 16, len(text.lines))):
        match = re.match(r"\*\s+([A-Z][\w ]*?):\s*(.*?)\s*$", text.lines[index].strip())
        if match:
            found.setdefault(match[1], (index, match[2]))
    for key in keys:
        if not found.get(key, (0, ""))[1]:
            text.fail(min(start + 15, text.last), "the end of the report's head", f"a line '* {key}: ...' in it")
    return found


def version_of(text: Text, index: int, value: str) -> str:
    """``2019.2.1`` of ``2019.2.1 (Build ...)``."""
    match = re.match(r"(\d{4}\.\d+(\.\d+)?)\b", value, re.ASCII)
    return match[1] if match else text.fail(index, quoted(value), "a version like 2020.1")


def read_csynth_rpt(text: Text, printed: bool = False) -> HlsReport:
    """One function's report; ``printed``: the first sections alone, as hls4ml prints them.

    Raises
    ------
    ReportError
        If a section, a row or the closing rule of a table is missing.
    """
    banner = text.need(BANNER, "the banner == Vivado HLS Report for 'NAME'")
    match = re.match(BANNER, text.lines[banner].strip())
    assert match is not None
    head = general(text, banner)
    performance = text.need(r"== Performance Estimates$", "the section == Performance Estimates", banner)
    utilization = text.need(r"== Utilization Estimates$", "the section == Utilization Estimates", performance)
    timing = _timing(text, performance, utilization)
    latencies = _instances(text, text.need(r"\+ Latency\b", "+ Latency", performance, utilization), utilization)
    end = (
        len(text.lines) if printed else text.need(r"== Interface$", "the section == Interface at its end", utilization)
    )
    if not printed:
        _interface(text, end)
    must_not_end_in_a_table(text)
    summary = _summary(text, utilization, end, "== Utilization Estimates")
    used, available, slr = _utilization(text, summary)
    areas = _instances(text, summary.stop, end)
    date, notes = date_of(head["Date"][1])
    return HlsReport(
        stage="csynth",
        tool=f"{match[1]} HLS",
        version=version_of(text, *head["Version"]),
        part=part_of(text, *head["Target device"]),
        date=date,
        top=match[2],
        used=used,
        available=available,
        timing=timing,
        modules=_rows(latencies, areas),
        sources=(text.name,),
        notes=notes,
        available_slr=slr,
    )


def clocked(timing: Timing, table: Table) -> Timing:
    """``timing`` with target, estimate and uncertainty of a table of clocks: its only row, or that of ``ap_clk``."""
    row = table.rows[0] if len(table.rows) == 1 else table.row("ap_clk")
    if row is None:
        table.text.fail(table.stop - 1, f"a table of {len(table.rows)} clocks", "one clock, or a row of ap_clk")
    table.column("Target"), table.column("Estimated")
    return replace(
        timing,
        clock_target_ns=cell(table, row, nanoseconds, "Target"),
        clock_estimate_ns=cell(table, row, nanoseconds, "Estimated"),
        clock_uncertainty_ns=cell(table, row, nanoseconds, "Uncertainty"),
    )


def latency(table: Table, row: TableRow) -> Timing:
    """Latency and interval of a row; in ns where the layout has them. ``ReportError`` if a column is missing."""
    for end in ("min", "max"):
        table.column(f"Latency (cycles) {end}", f"Latency {end}"), table.column(f"Interval {end}")
    if table.has("Latency (cycles) min"):
        table.column("Latency (absolute) min"), table.column("Latency (absolute) max")
    return Timing(
        latency_cycles_min=cell(table, row, whole, "Latency (cycles) min", "Latency min"),
        latency_cycles_max=cell(table, row, whole, "Latency (cycles) max", "Latency max"),
        latency_ns_min=cell(table, row, nanoseconds, "Latency (absolute) min"),
        latency_ns_max=cell(table, row, nanoseconds, "Latency (absolute) max"),
        interval_cycles_min=cell(table, row, whole, "Interval min"),
        interval_cycles_max=cell(table, row, whole, "Interval max"),
    )


def _timing(text: Text, start: int, stop: int) -> Timing:
    cycles = text.need(r"\+ Latency\b", "+ Latency", start, stop)
    detail = text.need(r"\+ Detail:", "+ Detail:", cycles, stop)
    table = _summary(text, text.need(r"\+ Timing\b", "+ Timing", start, cycles), cycles, "+ Timing")
    summary = _summary(text, cycles, detail, "+ Latency")
    if len(summary.rows) != 1:
        text.fail(summary.stop - 1, f"a table of {len(summary.rows)} rows", "one row under + Latency, * Summary:")
    return clocked(latency(summary, summary.rows[0]), table)


def _summary(text: Text, start: int, stop: int, section: str) -> Table:
    """The table under ``* Summary:`` of a section; ``ReportError`` if either is not in it: the next is not its own."""
    index = text.need(r"\* Summary:", f"* Summary: of {section}", start, stop)
    table = box(text, index, stop)
    if table is None:
        text.fail(stop - 1, "the end of the section", f"a table under {section}, * Summary:")
    return table


def _utilization(text: Text, table: Table) -> tuple[Resources, Resources, Resources]:
    table.need_row("Utilization (%)")  # the last row, so that nothing before it is missing
    total, available = table.need_row("Total"), table.need_row("Available")
    slr = table.row("Available SLR")
    if (slr is None) != (table.row("Utilization SLR (%)") is None):
        text.fail(table.stop - 1, "one row of 'Available SLR' and 'Utilization SLR (%)'", "both or neither")
    return (
        complete(text, total.index, hls_resources(table, total), "the row Total"),
        complete(text, available.index, hls_resources(table, available), "the row Available"),
        complete(text, slr.index, hls_resources(table, slr), "the row Available SLR") if slr else Resources(),
    )


def _instances(text: Text, start: int, stop: int) -> Table | None:
    """The table under ``* Instance:``, None for ``N/A``; ``ReportError`` if neither is there."""
    detail = text.need(r"\+ Detail:", "+ Detail:", start, stop)
    index = text.need(r"\* Instance:", "* Instance:", detail, stop)
    following = next((i for i in range(index + 1, stop) if text.lines[i].strip()), None)
    if following is None:
        text.fail(stop - 1, "the end of the section", "a table of instances, or N/A")
    if text.lines[following].strip() == "N/A":
        return None
    if not text.lines[following].strip().startswith("+-"):
        text.fail(following, quoted(text.lines[following]), "a table of instances, or N/A")
    table = box(text, following, stop)
    assert table is not None
    table.column("Instance"), table.column("Module")
    if "LUT" in table.titles:
        table.need_row("Total")  # the last row, so that nothing before it is missing
    return table


def _rows(latencies: Table | None, areas: Table | None) -> tuple[Row, ...]:
    """Instances in the order of the table of resources, then those that only the table of latencies has."""
    timing: dict[tuple[str, str], Timing] = {}
    used: dict[tuple[str, str], Resources] = {}
    for table in (areas, latencies):
        if table is None:
            continue
        for row in table.rows:
            name, module = (row.cells[table.column(title)].strip() for title in ("Instance", "Module"))
            if name == "Total" and not module:
                continue
            if table is areas:
                used[name, module] = hls_resources(table, row)
            else:
                timing[name, module] = latency(table, row)
    order = [*used, *(key for key in timing if key not in used)]
    return tuple(
        Row(module, name, used.get((name, module), Resources()), timing.get((name, module), Timing()))
        for name, module in order
    )


def _interface(text: Text, start: int) -> None:
    table = box(text, start)
    if table is None or not table.rows:
        text.cut("the table of ports of the section == Interface")
