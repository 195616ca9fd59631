"""``report_timing_summary`` and ``report_timing``: worst slacks, and the period of the clock.

A summary holds the worst negative slack of setup and hold (WNS, WHS) and the total of setup (TNS) of the whole design.
``report_timing`` lists paths; without options that select some, the one it shows is the worst: its slack is the WNS.
The period is given where one clock is: of several clocks none is *the* clock, and they are named in ``notes``.
"""

from __future__ import annotations

import re
from dataclasses import replace

from hawq_flow.report.figures import parsed
from hawq_flow.report.schema import HlsReport, Stage, Timing
from hawq_flow.report.text import Text, dashed, quoted
from hawq_flow.report.values import nanoseconds, number
from hawq_flow.report.vivado import Head, begin, stage_of

_SELECTING = re.compile(
    r"-(from|to|through|rise_from|fall_from|rise_to|fall_to|rise_through|fall_through|group|cells|of_objects|"
    r"slack_lesser_than|slack_greater_than|no_report_unconstrained|exceptions|user_ignored|unique_pins|(max_paths|nworst)\s+(?!1\b)\d+)\b"
)


def read_timing_summary(text: Text, head: Head) -> HlsReport:
    """WNS, TNS and WHS, and the period of the clock where there is one clock alone.

    Raises
    ------
    ReportError
        If the summary or the table of clocks is cut, or the stage cannot be told.
    """
    start = text.need(r"\| Design Timing Summary$", "the Design Timing Summary", head.stop)
    clock = text.need(r"\| Clock Summary$", "the Clock Summary", start)
    text.need(r"\| Intra Clock Table$", "the Intra Clock Table, which follows the clocks", clock)
    titles, rows = dashed(text, start, r"WNS\(ns\)")
    if len(rows) != 1:
        text.fail(start, f"{len(rows)} rows in the Design Timing Summary", "one")
    index, line = rows[0]
    values = line.split()
    if len(values) != len(titles):
        text.fail(index, f"{len(values)} figures", f"{len(titles)}, as there are titles")
    slack = dict(zip(titles, values, strict=True))
    for title in ("WNS(ns)", "TNS(ns)", "WHS(ns)"):
        if title not in slack:
            text.fail(index, f"titles {', '.join(titles)}", f"a title {title!r}")
    target, notes = _clocks(text, clock)
    report = begin(text, head, stage_of(text, head, _evidence(text)))
    return replace(
        report,
        timing=Timing(
            clock_target_ns=target,
            wns_ns=parsed(text, index, slack["WNS(ns)"], number, "WNS"),
            tns_ns=parsed(text, index, slack["TNS(ns)"], number, "TNS"),
            whs_ns=parsed(text, index, slack["WHS(ns)"], number, "WHS"),
        ),
        notes=(*report.notes, *notes),
    )


def _clocks(text: Text, start: int) -> tuple[float | None, tuple[str, ...]]:
    stop = text.need(r"\| Intra Clock Table$", "the Intra Clock Table", start)
    if text.find(r"Clock\s+Waveform", start, stop) is None:
        return None, ("no clock is defined",)
    _, rows = dashed(text, start, r"Clock\s+Waveform")
    periods: dict[str, float] = {}
    for index, line in rows:
        match = re.fullmatch(r"(.+?)\s+\{[^}]*\}\s+([\d.]+)\s+([\d.]+)\s*", line.strip())
        if match is None:
            text.fail(index, quoted(line), "a clock with its waveform {..}, period and frequency")
        periods[match[1]] = float(match[2])
    if len(periods) == 1:
        return next(iter(periods.values())), ()
    return None, ("clocks: " + ", ".join(f"{name} {period} ns" for name, period in periods.items()),)


def _evidence(text: Text) -> Stage | None:
    """The stage by how the delays of nets were found: routed, estimated from a placement, or not placed."""
    kinds = set(re.findall(r"net \(fo=\d+, (routed|estimated|unplaced)\)", "\n".join(text.lines)))
    if kinds & {"routed", "estimated"}:
        return "implementation"
    return "synthesis" if "unplaced" in kinds else None


def read_timing_paths(text: Text, head: Head) -> HlsReport:
    """The slack of the worst path, and the period of its clock.

    Raises
    ------
    ReportError
        If the command selected paths (their slacks are not the design's), or a path is cut before its last line.
    """
    selecting = _SELECTING.search(head.options)
    if selecting:
        text.fail(head.stop - 2, f"the option {selecting[0]}", "a report of the whole design's worst path")
    starts = [i for i in range(head.stop, len(text.lines)) if re.match(r"\s*Slack\b.*:", text.lines[i])]
    if not starts:
        text.cut("a path, which begins with 'Slack (MET) :'")
    worst: dict[str, float] = {}
    for start, stop in zip(starts, [*starts[1:], len(text.lines)], strict=True):
        kind, slack = _path(text, start, stop)
        if slack is not None:
            worst[kind] = min(slack, worst.get(kind, slack))
    periods = set(re.findall(r"period=([\d.]+)ns", "\n".join(text.lines)))
    report = begin(text, head, stage_of(text, head, _evidence(text)))
    notes = () if len(periods) == 1 else (f"clocks of {', '.join(sorted(periods)) or 'no'} ns",)
    return replace(
        report,
        timing=Timing(
            clock_target_ns=float(next(iter(periods))) if len(periods) == 1 else None,
            wns_ns=worst.get("Setup"),
            whs_ns=worst.get("Hold"),
        ),
        notes=(*report.notes, *notes),
    )


def _path(text: Text, start: int, stop: int) -> tuple[str, float | None]:
    value = text.lines[start].partition(":")[2].split("(")[0]
    slack = parsed(text, start, value, nanoseconds, "slack")
    kind_at = text.need(r"Path Type:", "the line Path Type: of this path", start, stop)
    kind = re.match(r"(Setup|Hold)?", text.lines[kind_at].partition(":")[2].strip())
    last = text.need(r"slack\s+\S+$|arrival time", "the last line 'slack' of this path", kind_at, stop)
    if slack is not None:
        last = text.need(r"slack\s+\S+$", "the last line 'slack' of this path", last, stop)
        again = parsed(text, last, text.lines[last].split()[-1], number, "slack")
        if again != slack:
            text.fail(last, f"a slack of {again}", f"{slack}, as the path begins with")
    return (kind[1] if kind and kind[1] else "Setup"), slack
