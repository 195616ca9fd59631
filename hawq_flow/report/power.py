"""``report_power``: total, dynamic and static power on chip, in W, as Vivado estimates them."""

from __future__ import annotations

from dataclasses import replace

from hawq_flow.report.figures import parsed
from hawq_flow.report.schema import HlsReport
from hawq_flow.report.text import Text, box, must_not_end_in_a_table
from hawq_flow.report.utilization import contents
from hawq_flow.report.values import count
from hawq_flow.report.vivado import Head, begin, stage_of


def read_power(text: Text, head: Head) -> HlsReport:
    """The figures of the section 1. Summary, and how confident the tool is of them, in ``notes``.

    Raises
    ------
    ReportError
        If a section or one of the three figures is missing.
    """
    start = contents(text, head.stop)
    must_not_end_in_a_table(text)
    summary = text.need(r"1\.? Summary$", "the section 1. Summary", start)
    table = box(text, summary)
    if table is None:
        text.cut("the table of the section 1. Summary")
    figures = {row.cells[0].strip(): (row.index, row.cells[-1].strip()) for row in (*table.head, *table.rows)}
    found: dict[str, float | None] = {}
    for key in ("Total On-Chip Power (W)", "Dynamic (W)", "Device Static (W)"):
        if key not in figures:
            text.fail(table.stop - 1, "the end of the table", f"a row {key!r} in it")
        index, value = figures[key]
        found[key] = parsed(text, index, value, count, key)
    report = begin(text, head, stage_of(text, head))
    confidence = figures.get("Confidence Level", (0, ""))[1]
    return replace(
        report,
        power_w=found["Total On-Chip Power (W)"],
        power_dynamic_w=found["Dynamic (W)"],
        power_static_w=found["Device Static (W)"],
        notes=(*report.notes, *([f"confidence in the power: {confidence.lower()}"] if confidence else [])),
    )
