"""``report_timing_summary`` and ``report_timing``: worst slacks, and the period of the clock.

A summary holds the worst negative slack of setup and hold (WNS, WHS) and the total of setup (TNS) of the whole design.
``report_timing`` lists paths; without options that select some, the worst is among them: its slack is the WNS.
The period is given where one clock is: of several clocks none is *the* clock, and they are named in ``notes``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from hawq_flow.report.figures import parsed
from hawq_flow.report.schema import NOT_MET, HlsReport, Stage, Timing
from hawq_flow.report.text import Text, dashed, quoted
from hawq_flow.report.values import nanoseconds, number, slack
from hawq_flow.report.vivado import Head, begin, stage_of

_ENDS = {
    "Setup": "wns_ns",
    "Recovery": "wns_ns",
    "Max": "wns_ns",
    "Hold": "whs_ns",
    "Removal": "whs_ns",
    "Min": "whs_ns",
}
"""Types of paths, and the slack that they count for: of the longest delays, or of the shortest."""


def read_timing_summary(text: Text, head: Head) -> HlsReport:
    """WNS, TNS and WHS, and the period of the clock where there is one clock alone.

    Raises
    ------
    ReportError
        If the summary or the table of clocks is cut, or the stage cannot be told.
    """
    start = text.need(r"\| Design Timing Summary$", "the Design Timing Summary", head.stop)
    clock = text.need(r"\| Clock Summary$", "the Clock Summary", start)
    stop = text.need(r"\| Intra Clock Table$", "the Intra Clock Table, which follows the clocks", clock)
    titles, rows = dashed(text, start, r"WNS\(ns\)")
    if len(rows) != 1:
        text.fail(start, f"{len(rows)} rows in the Design Timing Summary", "one")
    index, line = rows[0]
    values = line.split()
    if len(values) != len(titles):
        text.fail(index, f"{len(values)} figures", f"{len(titles)}, as there are titles")
    slacks = dict(zip(titles, values, strict=True))
    for title in ("WNS(ns)", "TNS(ns)", "WHS(ns)"):
        if title not in slacks:
            text.fail(index, f"titles {', '.join(titles)}", f"a title {title!r}")
    target, notes = _clocks(text, clock, stop)
    worst = {name: parsed(text, index, slacks[f"{name}(ns)"], number, name) for name in ("WNS", "TNS", "WHS")}
    report = begin(text, head, stage_of(text, head, _evidence(text)))
    return replace(
        report,
        timing=Timing(
            clock_target_ns=target,
            wns_ns=worst["WNS"],
            tns_ns=worst["TNS"],
            whs_ns=worst["WHS"],
        ),
        notes=(*report.notes, *notes, *_violated(worst)),
    )


def _violated(slacks: Mapping[str, float | None]) -> tuple[str, ...]:
    return (NOT_MET,) if any(slack is not None and slack < 0 for slack in slacks.values()) else ()


def _clocks(text: Text, start: int, stop: int) -> tuple[float | None, tuple[str, ...]]:
    body = next((i for i in range(start + 1, stop) if re.match(r"\s*[^\s|-]", text.lines[i])), None)
    if body is None:
        return None, ("no clock is defined",)
    _, rows = dashed(text.part(0, stop), body, r"Clock\s+Waveform")
    if not rows:
        text.fail(stop, "a table without clocks", "a row for each")
    periods: dict[str, float | None] = {}
    for index, line in rows:
        match = re.fullmatch(r"(.+?)\s+\{[^}]*\}\s+([\d.]+)\s+([\d.]+)\s*", line.strip())
        if match is None:
            text.fail(index, quoted(line), "a clock with its waveform {..}, period and frequency")
        periods[match[1]] = parsed(text, index, match[2], nanoseconds, "period")
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
        If a path is cut before its last line, or of a type that is neither a setup nor a hold check.
    """
    starts = [i for i in range(head.stop, len(text.lines)) if re.match(r"\s*Slack\b.*:", text.lines[i])]
    if not starts:
        text.cut("a path, which begins with 'Slack (MET) :'")
    worst: dict[str, float] = {}
    for start, stop in zip(starts, [*starts[1:], len(text.lines)], strict=True):
        name, value = _path(text, start, stop)
        if value is not None:
            worst[name] = min(value, worst.get(name, value))
    periods = set(re.findall(r"period=(\d+(?:\.\d+)?)ns", "\n".join(text.lines), re.ASCII))
    report = begin(text, head, stage_of(text, head, _evidence(text)))
    notes = () if len(periods) == 1 else (f"clocks of {', '.join(sorted(periods)) or 'no'} ns",)
    return replace(
        report,
        timing=Timing(
            clock_target_ns=float(next(iter(periods))) if len(periods) == 1 else None,
            wns_ns=worst.get("wns_ns"),
            whs_ns=worst.get("whs_ns"),
        ),
        notes=(*report.notes, *notes, *_violated(worst)),
    )


def _path(text: Text, start: int, stop: int) -> tuple[str, float | None]:
    value = text.lines[start].partition(":")[2].split("(")[0]
    found = parsed(text, start, value, slack, "slack")
    kind_at = text.need(r"Path Type:", "the line Path Type: of this path", start, stop)
    kind = text.lines[kind_at].partition(":")[2].split()[:1]
    if not kind or kind[0] not in _ENDS:
        text.fail(kind_at, quoted(text.lines[kind_at]), f"a type of path, one of {', '.join(_ENDS)}")
    last = text.need(r"slack\s+\S+$|arrival time", "the last line 'slack' of this path", kind_at, stop)
    if found is not None:
        last = text.need(r"slack\s+\S+$", "the last line 'slack' of this path", last, stop)
        again = parsed(text, last, text.lines[last].split()[-1], number, "slack")
        if again != found:
            text.fail(last, f"a slack of {again}", f"{found}, as the path begins with")
    return _ENDS[kind[0]], found
