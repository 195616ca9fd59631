"""Reports as one tidy table, and the table as Markdown, CSV or Parquet.

A row is one stage of one project (or one module of it). The columns of figures carry the stage's name
(``csynth_lut``, ``synthesis_lut``), so that HLS estimates, logic synthesis, implementation and the open road never
share one: HLS estimates about twice the LUTs that synthesis finds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from hawq_flow.report.schema import HlsReport, Row

if TYPE_CHECKING:
    import pandas as pd

PERCENT = ("lut", "ff", "dsp", "bram18", "uram")
"""Resources that get a column of percentages of the device."""

STAGES = {
    "csynth": "HLS estimates (csynth)",
    "cosim": "RTL simulation by the vendor's tool (cosim)",
    "synthesis": "Logic synthesis by Vivado",
    "implementation": "Placed and routed by Vivado",
    "open": "Open synthesis: Yosys, not Vivado",
}
"""Stages in the order of their tables, with their headings."""

FORMS = ("markdown", "csv", "parquet")
_WHO = ("project", "stage", "top")
_WHAT = ("tool", "version", "part", "date", "digest", "sources", "notes")


class Capacity(Protocol):
    """What a device has; a ``devices.Device`` is one."""

    @property
    def lut(self) -> int:
        """Look-up tables."""

    @property
    def ff(self) -> int:
        """Flip-flops."""

    @property
    def dsp(self) -> int:
        """DSP blocks."""

    @property
    def bram18(self) -> int:
        """Block RAM of 18 Kbit."""

    @property
    def uram(self) -> int:
        """UltraRAM blocks."""


def table(
    reports: Sequence[HlsReport],
    capacity: Callable[[str], Capacity | None] | None = None,
    *,
    modules: bool = False,
) -> pd.DataFrame:
    """One row a (project, stage, design), or a (project, stage, design, module).

    Parameters
    ----------
    reports:
        As :func:`tree` gives them.
    capacity:
        ``devices.find``: what a part has, for percentages where a report does not say it itself.
    modules:
        Rows of modules instead of designs: ``module`` and ``instance`` name them; percentages are of the device.

    Returns
    -------
    pandas.DataFrame
        ``project, stage, top, [module, instance,] tool, version, part, date, digest, sources, notes``, then figures
        named ``STAGE_FIGURE`` (nullable integers or floats; units in the names) and ``STAGE_FIGURE_percent``. Columns
        without a figure in any row are left out.
    """
    import pandas as pd  # half a second that reading reports, and every configuration, should not take

    records: list[dict[str, Any]] = []
    for report in reports:
        limits = _limits(report, capacity)
        who = {"project": _project(report), "stage": report.stage, "top": report.top}
        what = {
            "tool": report.tool,
            "version": report.version,
            "part": report.part,
            "date": report.date,
            "digest": report.digest,
            "sources": ", ".join(os.path.basename(source) for source in report.sources),
            "notes": "; ".join(report.notes),
        }
        if modules:
            for row in report.modules:
                named = {"module": row.module, "instance": row.instance}
                records.append({**who, **named, **what, **_figures(report.stage, row, limits)})
            continue
        total = Row("", used=report.used, timing=report.timing)
        power = {name: getattr(report, name) for name in ("power_w", "power_dynamic_w", "power_static_w")}
        figures = _figures(report.stage, total, limits)
        figures.update({f"{report.stage}_{name}": value for name, value in power.items()})
        records.append({**who, **what, **figures})
    named_columns = [*_WHO, *(["module", "instance"] if modules else []), *_WHAT]
    frame = pd.DataFrame.from_records(records, columns=[*named_columns, *_figure_columns(records, named_columns)])
    for column in frame.columns:
        frame[column] = _typed(frame[column], column in named_columns)
    return frame


def _project(report: HlsReport) -> str | None:
    if report.project is not None or not report.sources:
        return report.project
    return os.path.dirname(report.sources[0]) or "."


def _limits(report: HlsReport, capacity: Callable[[str], Capacity | None] | None) -> dict[str, float]:
    """What the device has: as the report says, else as is known of its part."""
    limits = report.available.figures()
    device = capacity(report.part) if capacity is not None and report.part is not None else None
    if device is not None:
        for name in PERCENT:
            limits.setdefault(name, getattr(device, name))
    return limits


def _figures(stage: str, row: Row, limits: dict[str, float]) -> dict[str, float | None]:
    figures: dict[str, float | None] = {}
    for name, value in asdict(row.used).items():
        figures[f"{stage}_{name}"] = value
        if name in PERCENT:
            limit = limits.get(name)
            figures[f"{stage}_{name}_percent"] = 100 * value / limit if value is not None and limit else None
    figures.update({f"{stage}_{name}": value for name, value in asdict(row.timing).items()})
    return figures


def _figure_columns(records: Sequence[dict[str, Any]], named: Sequence[str]) -> list[str]:
    """Columns with a figure, stage by stage, in the schema's order."""
    full = {name for record in records for name, value in record.items() if value is not None and name not in named}
    order: dict[str, None] = {}
    for stage in STAGES:
        for record in records:
            order.update({name: None for name in record if name in full and name.startswith(f"{stage}_")})
    return list(order)


def _typed(column: pd.Series, text: bool) -> pd.Series:
    """Text; floats for durations, power and percentages; whole numbers for counts, unless one of them is not whole."""
    if text:
        return column.astype("string")
    measured = str(column.name).endswith(("_ns", "_w", "_percent"))
    fraction = any(not float(value).is_integer() for value in column.dropna())
    return column.astype("Float64" if measured or fraction else "Int64")


def write_table(frame: pd.DataFrame, form: str, path: str | Path | None = None) -> str:
    """The table as text, and in a file where ``path`` is given.

    Parameters
    ----------
    frame:
        Of :func:`table`.
    form:
        ``markdown`` (a table for each stage, with its own columns), ``csv`` or ``parquet`` (everything in one).
    path:
        Written as UTF-8; needed for ``parquet``, whose text is empty.

    Raises
    ------
    ValueError
        For another form, or Parquet without a path.
    """
    if form not in FORMS:
        raise ValueError(f"a table as {form!r}: found no such form; expected {', '.join(FORMS)}")
    if form == "parquet":
        if path is None:
            raise ValueError("a table as parquet: found no file to write; expected a path, since Parquet is no text")
        frame.to_parquet(path, index=False)
        return ""
    text = str(frame.to_csv(index=False, lineterminator="\n")) if form == "csv" else markdown(frame)
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")
    return text


def markdown(frame: pd.DataFrame) -> str:
    """A Markdown table for each stage, of the columns that have something in it; ``No reports.`` if there is none."""
    pieces: list[str] = []
    for stage, heading in STAGES.items():
        rows = frame[frame["stage"] == stage]
        if rows.empty:
            continue
        rows = rows.drop(columns=["stage", "sources"]).dropna(axis="columns", how="all")
        rows = rows.loc[:, [column for column in rows.columns if not (rows[column].astype("string") == "").all()]]
        numeric = [dtype.kind in "iuf" for dtype in rows.dtypes]
        rows = rows.astype(object).where(rows.notna(), "")
        lines = [list(map(str, rows.columns))]
        lines += [[_cell(value) for value in record] for record in rows.itertuples(index=False)]
        body = ["| " + " | ".join(line) + " |" for line in lines]
        body.insert(1, "|" + "|".join("---:" if right else "---" for right in numeric) + "|")
        pieces.append(f"## {heading}\n\n" + "\n".join(body) + "\n")
    return "\n".join(pieces) or "No reports.\n"


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    return str(value).replace("|", "\\|")


__all__ = ["FORMS", "PERCENT", "STAGES", "Capacity", "markdown", "table", "write_table"]
