"""``NAME_cosim.rpt``: latency and interval measured by simulating the RTL with the vendor's tool, in clock cycles.

It names neither design nor device. ``NA`` stands where a language was not simulated, or where the test bench called
the design once and there is no interval to measure.
"""

from __future__ import annotations

from hawq_flow.report.figures import cell, date_of
from hawq_flow.report.schema import HlsReport, Timing
from hawq_flow.report.text import Table, TableRow, Text, box, must_not_end_in_a_table, quoted
from hawq_flow.report.values import whole

BANNER = r"^Report time\s*:"


def read_cosim(text: Text) -> HlsReport:
    """The row of the language that was simulated.

    Raises
    ------
    ReportError
        If the table is cut, no language was simulated, or one failed: a failed simulation measures nothing.
    """
    start = text.need(BANNER, "Report time : ...")
    simulator = text.find(r"Simulation tool\s*:", start)  # until 2017 there was no such line
    table = box(text, start)
    if table is None:
        text.cut("the table of latencies")
    must_not_end_in_a_table(text)
    for title in ("RTL", "Status"):
        table.column(title)
    if not table.rows:
        text.fail(table.stop - 1, "a table without rows", "a row for each language")
    passed: list[TableRow] = []
    for row in table.rows:
        status = row.cells[table.column("Status")].strip().lower()
        if status == "pass":
            passed.append(row)
        elif status not in ("na", "n/a", "-"):
            text.fail(
                row.index, quoted(text.lines[row.index]), "the status Pass or NA: a failed simulation has no figures"
            )
    if not passed:
        text.fail(table.stop - 1, "no language with the status Pass", "one: nothing was simulated")
    timings = {row.cells[table.column("RTL")].strip(): _timing(table, row) for row in passed}
    if len(set(timings.values())) > 1:
        text.fail(passed[-1].index, f"different latencies of {' and '.join(timings)}", "the same of one design")
    date, notes = date_of(text.lines[start].partition(":")[2].strip())
    return HlsReport(
        stage="cosim",
        tool="unknown simulator" if simulator is None else text.lines[simulator].partition(":")[2].strip().rstrip("."),
        date=date,
        timing=next(iter(timings.values())),
        sources=(text.name,),
        notes=(*notes, f"simulated: {', '.join(timings)}"),
    )


def _timing(table: Table, row: TableRow) -> Timing:
    # Titles: "Latency min", in Vitis HLS 2021 and newer "Latency(Clock Cycles) min".
    named = {"".join(title.split()).lower().replace("(clockcycles)", ""): title for title in table.titles}
    for name in ("latencymin", "latencymax", "intervalmin", "intervalmax"):
        if name not in named:
            table.text.fail(table.start + 1, f"columns {', '.join(map(repr, table.titles))}", f"a column like {name!r}")
    return Timing(
        latency_cycles_min=cell(table, row, whole, named["latencymin"]),
        latency_cycles_max=cell(table, row, whole, named["latencymax"]),
        interval_cycles_min=cell(table, row, whole, named["intervalmin"]),
        interval_cycles_max=cell(table, row, whole, named["intervalmax"]),
    )
