"""The head that Vivado gives to every report, and which of its reports hold figures.

The head tells the command that wrote the report, the design, its state and the device, in spellings that vary with the
report and the version: ``xcvu9pflgb2104-2``; ``xcvu9p-flgb2104`` with a speed file ``-2`` and a grade ``I`` apart.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import PurePath

from hawq_flow.report.figures import date_of
from hawq_flow.report.schema import HlsReport, Stage
from hawq_flow.report.text import Text, quoted
from hawq_flow.report.values import Part

BANNER = r"^\| Tool Version\s*:"

TITLES: dict[str, str] = {
    "report_utilization": "Utilization Design Information",
    "report_timing_summary": "Timing Summary Report",
    "report_timing": "Timing Report",
    "report_power": "Power Report",
}
"""Commands whose reports are read, and the title under the head."""

WITHOUT_FIGURES: dict[str, str] = {
    "report_clock_utilization": "a clock utilization report: clock buffers, and loads by clock region",
    "report_drc": "a DRC report: broken design rules",
    "report_methodology": "a methodology report: broken design rules",
    "report_control_sets": "a control set report: groups of flip-flops by clock, reset and enable",
    "report_io": "an IO report: pins",
    "report_route_status": "a route status report: counts of nets",
    "report_bus_skew": "a bus skew report: skew constraints",
    "report_cdc": "a clock domain crossing report: paths between clocks",
    "report_clock_interaction": "a clock interaction report: pairs of clocks",
    "report_clocks": "a clock report: definitions of clocks",
    "report_clock_networks": "a clock network report: trees of clocks",
    "report_incremental_reuse": "an incremental reuse report: cells taken from an earlier run",
    "report_high_fanout_nets": "a fanout report: loads of nets",
    "report_qor_suggestions": "a report of suggestions",
    "report_qor_assessment": "an assessment report: a score of the design",
    "report_design_analysis": "a design analysis report: congestion and levels of logic",
    "report_ram_utilization": "a RAM report: memories one by one",
    "report_exceptions": "an exceptions report: exceptions from timing constraints",
    "report_operating_conditions": "a report of operating conditions",
}
"""Commands whose reports hold none of the schema's figures, and what they do hold."""

_ENDS = ("from", "to", "through")
_SELECTING: dict[str, tuple[str, ...]] = {
    "report_utilization": ("cells", "pblocks", "evaluate_pblock", "exclude_child_pblocks", "exclude_non_assigned"),
    "report_timing_summary": ("cells",),
    "report_timing": (
        *(edge + end for edge in ("", "rise_", "fall_") for end in _ENDS),
        *("group", "cells", "of_objects", "slack_lesser_than", "slack_greater_than", "exceptions", "user_ignored"),
    ),
    "report_power": (),
}
"""Options that leave a part of the design, or of its paths; ``-max_paths 10`` does not, as the worst is among them."""


@dataclass(frozen=True)
class Head:
    """The head of one report; ``stop`` is the line after it, ``command`` the command's name, ``options`` the rest.

    ``options_at`` is the line of the command.
    """

    version: str
    part: Part
    date: str | None
    notes: tuple[str, ...]
    command: str
    options: str
    options_at: int
    design: str
    state: str | None
    stop: int


def read_head(text: Text) -> Head:
    """The head, checked to be whole.

    Raises
    ------
    ReportError
        If a line that every version prints is missing, or the device is none.
    """
    start = text.need(BANNER, "| Tool Version : Vivado ...")
    found: dict[str, tuple[int, str]] = {}
    stop = start
    while stop <= text.last and (match := re.match(r"\|\s*([A-Z][\w ]*?)\s*:\s*(.*?)\s*$", text.lines[stop])):
        found.setdefault(match[1], (stop, match[2]))
        stop += 1
    if stop > text.last or not re.match(r"-{20,}$", text.lines[stop].strip()):
        text.fail(
            min(stop, text.last), quoted(text.lines[min(stop, text.last)]), "the rule of dashes that ends the head"
        )
    for key in ("Date", "Command", "Design", "Device"):
        if not found.get(key, (0, ""))[1]:
            text.fail(stop, "the end of the report's head", f"a line '| {key} : ...' in it")
    version = re.search(r"Vivado.*?v\.?(\d{4}\.\d+(\.\d+)?)", found["Tool Version"][1], re.ASCII)
    if version is None:
        text.fail(start, quoted(text.lines[start]), "Vivado and a version like v.2020.1")
    date, notes = date_of(found["Date"][1])
    command, _, options = found["Command"][1].partition(" ")
    return Head(
        version=version[1],
        part=_part(text, found),
        date=date,
        notes=notes,
        command=command,
        options=options,
        options_at=found["Command"][0],
        design=found["Design"][1],
        state=found.get("Design State", (0, ""))[1] or None,
        stop=stop + 1,
    )


def _part(text: Text, found: dict[str, tuple[int, str]]) -> Part:
    index, spelling = found["Device"]
    try:
        part = Part.parse(spelling)
    except ValueError:
        text.fail(index, quoted(spelling), "the name of a device, like 7z020clg400-1")
    speed = re.match(r"-(\w+)", found.get("Speed File", (0, ""))[1])
    if speed:
        line = found["Speed File"][0]
        merged = part.merged(Part(part.die, speed=speed[1].upper()))
        part = merged or text.fail(line, f"a speed file -{speed[1]}", f"that of the device {part}")
    grade = found.get("Temperature Grade", (0, ""))[1].strip().lower()
    if len(grade) == 1 and part.grade is None:
        part = replace(part, grade=grade)
    return part


def whole_design(text: Text, head: Head) -> None:
    """``ReportError`` if an option selects a part of the design: its figures are not the design's.

    Tcl takes an option by its beginning: ``-cell`` is ``-cells``. (``-pb`` is whole: a file beside the report.)
    """
    for option in re.findall(r"(?:^|\s)-([a-z]\w*)", head.options):
        if option != "pb" and any(name.startswith(option) for name in _SELECTING[head.command]):
            text.fail(head.options_at, f"the option -{option}, which selects a part", "a report of the whole design")


def begin(text: Text, head: Head, stage: Stage) -> HlsReport:
    """A report with what the head says, to be completed with figures."""
    return HlsReport(
        stage=stage,
        tool="Vivado",
        version=head.version,
        part=str(head.part),
        date=head.date,
        top=head.design,
        sources=(text.name,),
        notes=(*head.notes, *(["after opt_design"] if (head.state or "").lower() == "optimized" else [])),
    )


def stage_of(text: Text, head: Head, evidence: Stage | None = None) -> Stage:
    """The stage: by the design's state, else by ``evidence`` in the report, else by the name of the file.

    Raises
    ------
    ReportError
        If none of them tells, or the state is one that no stage has.
    """
    state = (head.state or "").lower()
    if state:
        if re.search(r"plac|rout|phys_?opt", state):
            return "implementation"
        if re.search(r"synth|optimized", state):  # after opt_design nothing is placed yet
            return "synthesis"
        text.fail(head.stop - 2, f"the design state {quoted(state)}", "Synthesized, Fully Placed, Routed or the like")
    if evidence is not None:
        return evidence
    written = re.search(r"-file\s+(\S+)", head.options)
    for name in (written[1] if written else "", text.name):
        stage = stage_of_name(PurePath(name).name)
        if stage is not None:
            return stage
    found = "neither a design state, nor delays of nets, nor a file name that tells"
    raise text.error(head.stop - 1, found, "the stage: synthesized, or placed and routed")


def stage_of_name(name: str) -> Stage | None:
    """What a file's name says of the stage: ``..._synth.rpt``, ``..._routed.rpt``."""
    if re.search(r"_(post_?)?(placed?|routed?|postroute|opted|physopted?|impl)(_physopted?)?(__v\d+)?\.rpt$", name):
        return "implementation"
    if re.search(r"_(post_?)?synth(ed)?(__v\d+)?\.rpt$", name):
        return "synthesis"
    return None
