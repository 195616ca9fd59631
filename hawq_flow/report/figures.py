"""Names that tools give to one figure, and cells read with the file and line in every error."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from hawq_flow.report.schema import Resources
from hawq_flow.report.text import Table, TableRow, Text, quoted
from hawq_flow.report.values import Part, count, iso_date

T = TypeVar("T")

HLS_RESOURCES: dict[str, str] = {
    "BRAM_18K": "bram18",
    "BRAM": "bram18",
    "DSP": "dsp",
    "DSP48": "dsp",
    "DSP48A": "dsp",
    "DSP48E": "dsp",
    "DSP48E1": "dsp",
    "DSP48E2": "dsp",
    "DSP58": "dsp",
    "FF": "ff",
    "LUT": "lut",
    "URAM": "uram",
}
"""HLS tools' names of a resource -> the field of :class:`Resources`. Their block RAM is in units of 18 Kbit."""


def parsed(text: Text, index: int, cell: str, parse: Callable[[str], T], what: str) -> T:
    """``parse(cell)``, with its ``ValueError`` turned into a ``ReportError`` about line ``index``."""
    try:
        return parse(cell)
    except ValueError:
        expected = "a figure, or a mark that there is none"
        if "," in cell:
            expected = "a figure with a decimal point and without separators; run the tool with LC_ALL=C"
        elif cell.strip().startswith("-"):
            expected = "a figure that is not below 0, or a mark that there is none"
        text.fail(index, f"{what} {quoted(cell)}", expected)


def resources(text: Text, index: int, figures: Iterable[tuple[str, float | None]]) -> Resources:
    """Resources from (field, figure) pairs; ``ReportError`` if a field is given twice with different figures."""
    kept: dict[str, float] = {}
    for name, value in figures:
        if value is None:
            continue
        if kept.setdefault(name, value) != value:
            text.fail(index, f"two figures of {name}: {kept[name]} and {value}", "one")
    return Resources(**kept)


def complete(text: Text, index: int, found: Resources, what: str, *names: str) -> Resources:
    """``found``; ``ReportError`` about line ``index`` unless it has a figure of each of ``names``: its kind always has.

    Without ``names``: LUT, FF, DSP and block RAM.
    """
    missing = [name for name in names or ("lut", "ff", "dsp", "bram18") if getattr(found, name) is None]
    if missing:
        known = ", ".join(found.figures()) or "nothing"
        text.fail(index, f"{what} with figures of {known}", f"a figure of {', '.join(missing)} too: a row is lost")
    return found


def cell(table: Table, row: TableRow, parse: Callable[[str], Any], *titles: str) -> Any:
    """The cell of ``row`` under one of ``titles``, parsed; None where the table has no such column."""
    for title in titles:
        if title in table.titles:
            return parsed(table.text, row.index, row.cells[table.column(title)], parse, title)
    return None


def hls_resources(table: Table, row: TableRow) -> Resources:
    """The resources in a row of a table of HLS, under whatever titles."""
    titles = [title for title in table.titles if title in HLS_RESOURCES]
    return resources(
        table.text, row.index, [(HLS_RESOURCES[title], cell(table, row, count, title)) for title in titles]
    )


def part_of(text: Text, index: int, spelling: str) -> str:
    """The full spelling of a part; ``ReportError`` if it is none."""
    try:
        return str(Part.parse(spelling))
    except ValueError:
        text.fail(index, quoted(spelling), "the name of a device, like xc7z020-clg400-1")


def date_of(spelling: str | None) -> tuple[str | None, tuple[str, ...]]:
    """The ISO date and a note where a report has a date that is not understood."""
    if spelling is None:
        return None, ()
    date = iso_date(spelling)
    return date, () if date else (f"date not understood: {spelling.strip()}",)
