"""``csynth.rpt`` of Vitis HLS (2020.2 and newer): one table of the whole hierarchy of modules and loops.

It prints one latency and one interval for each module, where ``NAME_csynth.rpt`` and ``csynth.xml`` have a minimum and
a maximum: both ends take it. It has no clock and no totals of the device.
"""

from __future__ import annotations

import re
from typing import Any

from hawq_flow.report.csynth_rpt import clocked, general, version_of
from hawq_flow.report.figures import cell, date_of, hls_resources, parsed, part_of
from hawq_flow.report.schema import ONE_LATENCY, HlsReport, Row, Timing
from hawq_flow.report.text import Table, TableRow, Text, box, must_not_end_in_a_table, quoted
from hawq_flow.report.values import nanoseconds, whole

BANNER = r"^== Synthesis Summary Report of '(.+)'$"


def read_csynth_summary(text: Text) -> HlsReport:
    """The summary report: totals of the top and a row for each module below it (``instance`` is its path).

    Raises
    ------
    ReportError
        If the head, the table or its first row, which must be of the design named by the banner, is missing or cut.
    """
    banner = text.need(BANNER, "the banner == Synthesis Summary Report of 'NAME'")
    match = re.match(BANNER, text.lines[banner].strip())
    assert match is not None
    top = match[1]
    head = general(text, banner)
    start = text.need(r"[+*] Performance & Resource Estimates:", "+ Performance & Resource Estimates:", banner)
    estimate = text.find(r"[+*] Timing Estimate", banner, start)
    table = box(text, start, text.find(r"={20,}$", start))
    if table is None:
        text.cut("the table of modules and loops")
    must_not_end_in_a_table(text)
    rows = _modules(text, table)
    if not rows or rows[0].module != top:
        first = rows[0].module if rows else "nothing"
        text.fail(table.stop - 1, f"a table whose first module is {first!r}", f"{top!r}, as the banner says")
    clock = box(text, estimate, start) if estimate is not None else None
    date, notes = date_of(head["Date"][1])
    return HlsReport(
        stage="csynth",
        tool="Vitis HLS",
        version=version_of(text, *head["Version"]),
        part=part_of(text, *head["Target device"]),
        date=date,
        top=top,
        used=rows[0].used,
        timing=clocked(rows[0].timing, clock) if clock is not None else rows[0].timing,
        modules=tuple(rows[1:]),
        sources=(text.name,),
        notes=(*notes, ONE_LATENCY),
        one_latency=True,
    )


def _modules(text: Text, table: Table) -> list[Row]:
    for title in ("Latency (cycles)", "Latency (ns)", "Interval", "BRAM", "DSP", "FF", "LUT"):
        table.column(title)
    rows: list[Row] = []
    path: list[tuple[int, str]] = []
    for row in table.rows:
        label = row.cells[table.column("Modules & Loops")]
        match = re.match(r"(\s*)([+o])\s+(.*?)\*?\s*$", label)
        if match is None:
            text.fail(row.index, quoted(label), "'+' before a module or 'o' before a loop")
        depth = len(match[1])
        path = [entry for entry in path if entry[0] < depth]
        path.append((depth, match[3]))
        if match[2] == "+":
            rows.append(
                Row(match[3], "/".join(name for _, name in path), hls_resources(table, row), _timing(table, row))
            )
    if rows and (rows[0].used.lut is None or rows[0].used.ff is None):
        text.fail(table.rows[0].index, quoted(text.lines[table.rows[0].index]), "the totals of FF and LUT")
    return rows


def _ends(table: Table, row: TableRow, parse: Any, title: str) -> tuple[Any, Any]:
    """Both ends of a figure that is printed once, or as a range ``10 ~ 20``."""
    pieces = row.cells[table.column(title)].split("~")
    if len(pieces) == 2 and all(piece.strip() for piece in pieces):
        low, high = (parsed(table.text, row.index, piece, parse, title) for piece in pieces)
        return low, high
    value = cell(table, row, parse, title)
    return value, value


def _timing(table: Table, row: TableRow) -> Timing:
    low, high = _ends(table, row, whole, "Latency (cycles)")
    low_ns, high_ns = _ends(table, row, nanoseconds, "Latency (ns)")
    interval_low, interval_high = _ends(table, row, whole, "Interval")
    return Timing(low, high, low_ns, high_ns, interval_low, interval_high)
