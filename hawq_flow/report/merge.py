"""Reports of one run of one design, from several files, made into one: they must agree on all that two of them say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime, timedelta

from hawq_flow.report.schema import ONE_LATENCY, HlsReport, ReportError, Resources, Row, Timing
from hawq_flow.report.values import Part

_TOLERANCE = 5.1e-3
"""Relative, of latencies in ns: tools print three decimals of a unit, so 0.105 us may be 104.6 ns."""

_RUN = timedelta(minutes=10)
"""Within this, the reports of one run of HLS are written."""
_FEW, _SHARE = 4, 0.01
"""Of LUTs or flip-flops, absolute and relative: what the summary of a run may count otherwise than its report."""


def merge(reports: Sequence[HlsReport], where: str) -> HlsReport:
    """One report with every figure of several of one stage.

    Parameters
    ----------
    reports:
        At least one, all of the same design; the first that has modules gives them.
    where:
        What is merged, for errors: a folder.

    Raises
    ------
    ReportError
        If two reports differ in stage, tool, version, part, top, clock or any other figure; both files are named.
        Latencies in ns may differ by the digits that are not printed. Vivado HLS prints the interval of a top that is
        not pipelined as its latency in the .rpt, and as one more, which is right, in csynth.xml: the latter is taken.
        Of one run of Vitis HLS, csynth.rpt may count a few LUTs and flip-flops otherwise than the top's own report
        (of a loop that rewinds): the latter is taken, and a note tells both.
    """
    # A summary prints one latency for two ends, so what tells both goes first and it is checked to lie between.
    order = sorted(reports, key=lambda report: report.one_latency)
    merged = order[0]
    for other in order[1:]:
        merged = _pair(merged, other, where)
    return merged


def _pair(one: HlsReport, two: HlsReport, where: str) -> HlsReport:
    def same(name: str, first: str | None, second: str | None) -> str | None:
        if first is not None and second is not None and first != second:
            _differ(one, two, where, name, first, second)
        return first if first is not None else second

    same("stage", one.stage, two.stage)
    part = one.part or two.part
    if one.part and two.part:
        both = Part.parse(one.part).merged(Part.parse(two.part))
        if both is None:
            _differ(one, two, where, "part", one.part, two.part)
        part = str(both)
    between = two.one_latency and not one.one_latency
    notes = tuple(dict.fromkeys(n for n in (*one.notes, *two.notes) if not (between and n == ONE_LATENCY)))
    if between and _one_run(one, two):
        two, told = _as_reported(one, two)
        notes += told
    return replace(
        one,
        tool=same("tool", one.tool, two.tool) or one.tool,
        version=same("version", one.version, two.version),
        part=part,
        date=max((date for date in (one.date, two.date) if date), default=None),
        top=same("top", one.top, two.top),
        used=_resources(one, two, where, "used"),
        available=_resources(one, two, where, "available"),
        available_slr=_resources(one, two, where, "available_slr"),
        timing=_timing(one, two, where, between),
        power_w=_figure(one, two, where, "power_w", one.power_w, two.power_w),
        power_dynamic_w=_figure(one, two, where, "power_dynamic_w", one.power_dynamic_w, two.power_dynamic_w),
        power_static_w=_figure(one, two, where, "power_static_w", one.power_static_w, two.power_static_w),
        modules=one.modules or two.modules,
        sources=(*one.sources, *(source for source in two.sources if source not in one.sources)),
        digest=same("digest", one.digest, two.digest),
        notes=notes,
        project=same("project", one.project, two.project),
    )


def _one_run(one: HlsReport, two: HlsReport) -> bool:
    """Whether both were written within minutes."""
    if one.date is None or two.date is None:
        return False
    return abs(datetime.fromisoformat(one.date) - datetime.fromisoformat(two.date)) <= _RUN


def _as_reported(one: HlsReport, two: HlsReport) -> tuple[HlsReport, tuple[str, ...]]:
    """A summary with the LUTs and flip-flops of the top's own report where they nearly agree, and notes of both."""
    notes = []
    for name in ("lut", "ff"):
        own, other = getattr(one.used, name), getattr(two.used, name)
        if None not in (own, other) and own != other and abs(own - other) <= max(_FEW, _SHARE * own):
            two = replace(two, used=replace(two.used, **{name: own}))
            notes.append(f"csynth.rpt counts {other} {name.upper()}, the top's own report {own}, which is taken")
    return two, tuple(notes)


def _differ(one: HlsReport, two: HlsReport, where: str, name: str, first: object, second: object) -> None:
    raise ReportError(
        f"{where}: found {name} {first} in {', '.join(one.sources)} and {second} in {', '.join(two.sources)}; "
        f"expected one run of one design ({one.stage}). Remove or separate the files of another run"
    )


def _figure(
    one: HlsReport, two: HlsReport, where: str, name: str, first: float | None, second: float | None
) -> float | None:
    if first is None or second is None:
        return second if first is None else first
    slack = _TOLERANCE * max(abs(first), abs(second)) if name.startswith("latency_ns") else 0
    if abs(first - second) > slack:
        _differ(one, two, where, name, first, second)
    return first


def _resources(one: HlsReport, two: HlsReport, where: str, field: str) -> Resources:
    first, second = asdict(getattr(one, field)), asdict(getattr(two, field))
    return Resources(**{name: _figure(one, two, where, f"{field}.{name}", first[name], second[name]) for name in first})


def _timing(one: HlsReport, two: HlsReport, where: str, between: bool) -> Timing:
    first, second = asdict(one.timing), asdict(two.timing)
    found = {}
    for name in first:
        low, high = (name.replace("_max", "_min"), name.replace("_min", "_max"))
        if between and low != high and None not in (first[low], first[high], second[name]):
            margin = _TOLERANCE * abs(first[high]) if name.startswith("latency_ns") else 0
            if not first[low] - margin <= second[name] <= first[high] + margin:
                _differ(one, two, where, name, f"{first[low]} to {first[high]}", second[name])
            found[name] = first[name]
        elif _one_more(one, two, name):
            found[name] = max(first[name], second[name])
        else:
            found[name] = _figure(one, two, where, name, first[name], second[name])
    return Timing(**found)


def _one_more(one: HlsReport, two: HlsReport, name: str) -> bool:
    """Whether the interval of Vivado HLS's csynth.xml is one more than that of its .rpt, which is then the latency."""
    first, second = getattr(one.timing, name), getattr(two.timing, name)
    if not name.startswith("interval") or one.tool != "Vivado HLS" or None in (first, second):
        return False
    lesser = one if first < second else two
    latency = getattr(lesser.timing, name.replace("interval", "latency"))
    return bool(abs(first - second) == 1 and min(first, second) == latency)


def with_modules(top: HlsReport, others: Sequence[HlsReport], where: str) -> HlsReport:
    """The report of a top with what the reports of its modules say of them, and rows for modules further down.

    Raises
    ------
    ReportError
        If a module's own report and its row in the report above it differ: they are of two runs.
    """
    own = {report.top: report for report in others}
    rows: list[Row] = []
    for row in top.modules:
        report = own.get(row.module)
        if report is None:
            rows.append(row)
            continue
        beside = replace(top, used=row.used, timing=row.timing, available=Resources(), available_slr=Resources())
        used = _resources(beside, replace(report, available=Resources()), where, "used")
        timing = _timing(replace(report, used=used), beside, where, top.one_latency)
        rows.append(replace(row, used=used, timing=timing))
    known = {row.module for row in top.modules}
    rows += [Row(str(name), None, report.used, report.timing) for name, report in own.items() if name not in known]
    return replace(
        top,
        modules=tuple(rows),
        sources=(*top.sources, *(s for report in others for s in report.sources if s not in top.sources)),
    )
