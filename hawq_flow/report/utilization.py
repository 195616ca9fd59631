"""``report_utilization``: resources after logic synthesis or placement, as a list of site types or by hierarchy.

Families name the same sites differently (``Slice LUTs``, ``CLB LUTs``; ``DSPs``, ``DSP Slices``); a table of contents
lists the sections, and every one of them must be there, and in them the sites that every family has. Block RAM tiles
are of 36 Kbit, half a tile being one RAMB18: they are counted here in 18 Kbit. Carry chains of 7 series devices stand
in the list of primitives alone.
"""

from __future__ import annotations

import re
from dataclasses import replace

from hawq_flow.report.figures import cell, complete, resources
from hawq_flow.report.schema import HlsReport, Resources, Row
from hawq_flow.report.text import Table, Text, box, boxes, must_not_end_in_a_table, quoted
from hawq_flow.report.values import count
from hawq_flow.report.vivado import Head, begin, stage_of

_SITES: dict[str, str] = {
    "clb luts": "lut",
    "slice luts": "lut",
    "luts": "lut",
    "lut as logic": "lut_logic",
    "lut as memory": "lut_memory",
    "clb registers": "ff",
    "slice registers": "ff",
    "registers": "ff",
    "block ram tile": "bram18",
    "ramb36/fifo": "ramb36",
    "ramb36": "ramb36",
    "ramb18": "ramb18",
    "uram": "uram",
    "dsps": "dsp",
    "dsp slices": "dsp",
    "carry4": "carry",
    "carry8": "carry",
}
_ALWAYS = ("lut", "lut_logic", "lut_memory", "ff", "dsp", "bram18", "ramb36", "ramb18")
"""Sites that every device has, so that every report has a row of them. UltraRAM and carry chains some have not."""
_DSPS = ("DSP Blocks", "DSP48 Blocks", "DSP Slices")
_HEADING = r"\d+(\.\d+)*\.? "
_HIERARCHY: dict[str, str] = {
    "Total LUTs": "lut",
    "Logic LUTs": "lut_logic",
    "FFs": "ff",
    "RAMB36": "ramb36",
    "RAMB18": "ramb18",
    "URAM": "uram",
    **dict.fromkeys(_DSPS, "dsp"),
}


def contents(text: Text, start: int) -> int:
    """Checks that every section of the table of contents is there; the line after the table of contents.

    Raises
    ------
    ReportError
        If the table of contents, or a section that it lists, is missing: the file is cut.
    """
    index = text.need(r"Table of Contents$", "the Table of Contents", start) + 2
    listed: list[str] = []
    while index < len(text.lines) and re.match(_HEADING + r"\S", text.lines[index].strip()):
        listed.append(text.lines[index].strip())
        index += 1
    if not listed:
        text.fail(min(index, text.last), "an empty Table of Contents", "a list of sections")
    position = index
    for title in listed:
        position = text.need(rf"{re.escape(title)}$", f"the section {title!r} of the table of contents", position) + 1
        if position > text.last or not re.match(r"-{3,}$", text.lines[position].strip()):
            text.cut(f"the section {title!r}")
    if position >= text.last:
        text.cut(f"the table of the section {listed[-1]!r}")
    return index


def read_utilization(text: Text, head: Head) -> HlsReport:
    """Used and available sites, or a row for each module.

    Raises
    ------
    ReportError
        If a section is missing, a table is cut, or a site that every device has is nowhere.
    """
    start = contents(text, head.stop)
    must_not_end_in_a_table(text)
    report = begin(text, head, stage_of(text, head))
    if text.find(_HEADING + "Utilization by Hierarchy$", start) is not None:
        return _by_hierarchy(text, start, report)
    used: dict[str, float] = {}
    available: dict[str, float] = {}
    for table in boxes(text, start):
        if table.has("Site Type", "Used"):
            _sites(table, used, available)
    primitives, hidden = _references(text, start, "Primitives"), _references(text, start, "Black Boxes")
    carry = primitives.row("CARRY4", "CARRY8") if primitives else None
    if primitives and carry:
        used.setdefault("carry", cell(primitives, carry, count, "Used"))
    names = ", ".join(row.cells[0].strip() for row in hidden.rows) if hidden else ""
    return replace(
        report,
        used=complete(text, text.last, Resources(**used), "sites used,", *_ALWAYS),
        available=complete(text, text.last, Resources(**available), "sites available,", *_ALWAYS),
        notes=(*report.notes, *([f"black boxes, not counted: {names}"] if names else [])),
    )


def _references(text: Text, start: int, section: str) -> Table | None:
    """The table of cells under a heading; None if there is no such section (``-no_primitives``)."""
    heading = text.find(f"{_HEADING}{section}$", start)
    if heading is None:
        return None
    table = box(text, heading, text.find(_HEADING + r"\S", heading + 1))
    if table is None:
        text.fail(heading, quoted(text.lines[heading]), "the table of the section under it")
    table.column("Ref Name"), table.column("Used")
    return table


def _sites(table: Table, used: dict[str, float], available: dict[str, float]) -> None:
    """The figures of a table of sites; of a site that stands in two tables, those of the first."""
    table.column("Available")
    for row in table.rows:
        name = _SITES.get(row.cells[table.column("Site Type")].strip().rstrip("*").strip().lower())
        if name is None:
            continue
        factor = 2 if name == "bram18" else 1
        for title, into in (("Used", used), ("Available", available)):
            value = cell(table, row, count, title)
            if value is not None:
                into.setdefault(name, int(value * factor) if value * factor == int(value * factor) else value * factor)


def _by_hierarchy(text: Text, start: int, report: HlsReport) -> HlsReport:
    table = next((table for table in boxes(text, start) if table.has("Instance", "Module")), None)
    if table is None or not table.rows:
        text.cut("the table of instances and modules")
    for titles in (("Total LUTs",), ("Logic LUTs",), ("FFs",), ("RAMB36",), ("RAMB18",), _DSPS):
        table.column(*titles)
    rows: list[Row] = []
    path: list[tuple[int, str]] = []
    for row in table.rows:
        label, module = (row.cells[table.column(title)] for title in ("Instance", "Module"))
        name = label.strip()
        if name.startswith("("):
            continue  # a module's own share, without what is below it
        depth = len(label) - len(label.lstrip())
        path = [entry for entry in path if entry[0] < depth] + [(depth, name)]
        figures = {field: cell(table, row, count, title) for title, field in _HIERARCHY.items() if table.has(title)}
        memory = [cell(table, row, count, title) for title in ("LUTRAMs", "SRLs") if table.has(title)]
        if memory and None not in memory:
            figures["lut_memory"] = sum(memory)
        if figures.get("ramb36") is not None and figures.get("ramb18") is not None:
            figures["bram18"] = 2 * figures["ramb36"] + figures["ramb18"]
        rows.append(
            Row(module.strip(), "/".join(piece for _, piece in path), resources(text, row.index, figures.items()))
        )
    first = table.rows[0]
    label, module = (first.cells[table.column(title)].strip() for title in ("Instance", "Module"))
    if module != "(top)" or label.startswith("("):
        text.fail(first.index, quoted(text.lines[first.index]), "the row of the whole design, (top), first")
    complete(text, first.index, rows[0].used, "a row")
    return replace(report, used=rows[0].used, modules=tuple(rows[1:]))
