"""Which kind of report a file is, by what is in it, and the parser for it: :func:`read`, :func:`read_all`.

A file holds one report of one design. The exception is what hls4ml prints of a project (``SYNTHESIS REPORT:``, then
``CO-SIMULATION RESULT:``), which people save as a report: its parts are read as reports of their own. Where a file's
name says what it holds (``..._utilization_placed.rpt``), it must hold that.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from hawq_flow.report import cosim, csynth_rpt, csynth_summary, export, vivado
from hawq_flow.report.csynth_xml import read_csynth_xml, read_export_xml
from hawq_flow.report.power import read_power
from hawq_flow.report.schema import Foreign, HlsReport, NoFigures, ReportError
from hawq_flow.report.text import Text, load, quoted
from hawq_flow.report.timing import read_timing_paths, read_timing_summary
from hawq_flow.report.utilization import read_utilization
from hawq_flow.report.xml import parse_xml

KNOWN = "a csynth (.rpt or .xml), cosim or export report of HLS, or a utilization, timing or power report of Vivado"

_SIGNS: dict[str, tuple[str, ...]] = {
    "csynth": (csynth_rpt.BANNER, r"^== Performance Estimates$", r"^== Utilization Estimates$"),
    "csynth summary": (csynth_summary.BANNER, r"^[+*] Performance & Resource Estimates:"),
    "cosim": (cosim.BANNER, r"^\+\s+RTL\s+\+"),
    "export": (export.BANNER, r"^#=== Post-\w+ Resource usage"),
    "export results": (export.RESULTS, r"^== (RTL Synthesis|Place & Route) Resource Summary$"),
    "Vivado": (
        vivado.BANNER,
        r"^(Utilization Design Information|Timing Summary Report|Timing Report|Power Report|Clock Utilization Report)$",
    ),
}
"""Lines that a report of each kind has once: a second one, or one of another kind, is another report in the file."""

_COMPILED = {kind: tuple(re.compile(sign) for sign in signs) for kind, signs in _SIGNS.items()}
_FIRST = re.compile(r"[=+*R#|UTPCI]")
_READERS: dict[str, Callable[[Text], HlsReport]] = {
    "csynth": csynth_rpt.read_csynth_rpt,
    "csynth summary": csynth_summary.read_csynth_summary,
    "cosim": cosim.read_cosim,
    "export": export.read_export,
    "export results": export.read_results,
}
_VIVADO_READERS: dict[str, Callable[[Text, vivado.Head], HlsReport]] = {
    "report_utilization": read_utilization,
    "report_timing_summary": read_timing_summary,
    "report_timing": read_timing_paths,
    "report_power": read_power,
}
_NAMES: tuple[tuple[str, str], ...] = (
    (r"(^|_)csynth(__v\d+)?\.(rpt|xml)$", "csynth"),
    (r"(^|_)cosim(__v\d+)?\.rpt$", "cosim"),
    (r"((^|_)export|^export_(syn|impl))(__v\d+)?\.(rpt|xml)$", "export"),
    (r"(^|_)clock_utilization(_[a-z]+)*(__v\d+)?\.rpt$", "clock utilization"),
    (r"(^|_)(utilization(_[a-z]+)*|vivado_synth)(__v\d+)?\.rpt$", "utilization"),
    (r"(^|_)timing(_[a-z]+)*(__v\d+)?\.rpt$", "timing"),
    (r"(^|_)power(_[a-z]+)*(__v\d+)?\.rpt$", "power"),
)
"""What the end of a file's name says that it holds (a function may be called power); the first that matches."""
_SIZES = "a design size report: the compiler's counts of instructions"


def read(path: str | Path) -> HlsReport:
    """The report in a file, dispatched on what it holds.

    Of a file with what hls4ml prints of a project, the HLS estimates; :func:`read_all` gives the rest.

    Raises
    ------
    ReportError
        If the file is no report, holds none of the schema's figures (the text says what it is), is cut, holds two
        reports, or holds another kind than its name says. The text names file, line, what was found and expected.
    """
    return read_all(path)[0]


def read_all(path: str | Path) -> tuple[HlsReport, ...]:
    """Every report in a file, as :func:`read`: one, or the HLS estimates and the simulation that hls4ml printed."""
    text = load(path)
    name = Path(path).name
    first = next(i for i, line in enumerate(text.lines) if line.strip())
    if text.lines[first].lstrip().startswith("<"):
        return (_checked_name(text, name, first, *_read_xml(text)),)
    _refuse_logs(text, first)
    printed = text.find(r"SYNTHESIS REPORT:$")
    if printed is not None:
        return _read_printed(text, name, printed)
    kind, index = _kind(text)
    if kind == "Vivado":
        return (_read_vivado(text, name),)
    return (_checked_name(text, name, index, kind.split()[0], _READERS[kind](text)),)


def _signs(text: Text) -> list[tuple[str, str, int]]:
    """(kind, sign, line) of every sign in the text."""
    found = []
    for index, line in enumerate(text.lines):
        stripped = line.strip()
        if not stripped or not _FIRST.match(stripped):
            continue
        for kind, signs in _COMPILED.items():
            found += [(kind, sign.pattern, index) for sign in signs if sign.match(stripped)]
    return found


def _kind(text: Text) -> tuple[str, int]:
    """The kind of the only report in the text, and the line that shows it."""
    if (sized := text.find(r"== Design Size Report")) is not None:
        raise _refusal(text, sized, _SIZES)
    if (status := text.find(r"Design Route Status$")) is not None:
        raise _refusal(text, status, vivado.WITHOUT_FIGURES["report_route_status"])
    found = _signs(text)
    if not found:
        first = next(i for i, line in enumerate(text.lines) if line.strip())
        what = f"a text that begins with {quoted(text.lines[first])}, and no banner of a report"
        raise text.error(first, what, KNOWN, Foreign)
    kind, _, start = found[0]
    seen: set[str] = set()
    for other, sign, index in found:
        if other != kind or sign in seen:
            text.fail(
                index,
                f"{quoted(text.lines[index])}, which begins another report",
                f"one report, as from line {text.first + start}",
            )
        seen.add(sign)
    return kind, start


def _refusal(text: Text, index: int, what: str) -> ReportError:
    """The refusal of a kind that is known, and has nothing for the schema."""
    return text.error(index, f"{what}. It has no totals of resources, clock, slack, latency or power", KNOWN, NoFigures)


def _refuse_logs(text: Text, first: int) -> None:
    head = text.part(first, min(first + 60, len(text.lines)))
    tool = head.find(r"(\*{6}|#)\s+(Vivado|Vitis|vitis_hls|v\+\+|xsct)\b")
    if tool is not None:
        what = "steps and messages; figures in it are of steps on the way, and its reports hold the final ones"
        raise _refusal(text, first + tool, f"the log of a tool's run ({quoted(head.lines[tool])}): {what}")
    simulation = text.find(r"INFO: \[SIM(\s+211)?[- ]\d+\] \*+ CSIM start", first, first + 3)
    if simulation is not None:
        raise _refusal(text, simulation, "the log of a C simulation: what the test bench printed")


def _read_xml(text: Text) -> tuple[str, HlsReport]:
    root = parse_xml(text)
    if root.tag == "profile" and root.find("ReportVersion") is not None:
        return "csynth", read_csynth_xml(root)
    if root.tag == "profile" and root.find("RunData") is not None:
        return "export", read_export_xml(root)
    if root.tag == "design_size":
        raise _refusal(text, root.index, _SIZES)
    raise text.error(root.index, f"XML of <{root.tag}>", KNOWN, Foreign)


def _read_printed(text: Text, name: str, start: int) -> tuple[HlsReport, ...]:
    """What hls4ml prints: the first sections of the csynth report, and the cosim report where there was one."""
    simulated = text.find(r"CO-SIMULATION RESULT:$", start)
    synthesis = text.part(start, len(text.lines) if simulated is None else simulated)
    kind, index = _kind(synthesis)
    if kind != "csynth":
        synthesis.fail(index, f"a {kind} report", "the csynth report that SYNTHESIS REPORT: announces")
    reports = [_checked_name(synthesis, name, index, "csynth", csynth_rpt.read_csynth_rpt(synthesis, printed=True))]
    if simulated is not None:
        rest = text.part(simulated + 1, len(text.lines))
        if not any(line.strip() for line in rest.lines):
            text.fail(simulated, "nothing after CO-SIMULATION RESULT:", "a cosim report")
        kind, index = _kind(rest)
        if kind != "cosim":
            rest.fail(index, f"a {kind} report", "the cosim report that CO-SIMULATION RESULT: announces")
        reports.append(cosim.read_cosim(rest))
    return tuple(reports)


def _read_vivado(text: Text, name: str) -> HlsReport:
    head = vivado.read_head(text)
    title_at = next((i for i in range(head.stop, len(text.lines)) if text.lines[i].strip()), None)
    if title_at is None:
        text.cut("the title of the report")
    title = text.lines[title_at].strip()
    command = head.command
    if command in vivado.WITHOUT_FIGURES:
        raise _refusal(text, title_at, vivado.WITHOUT_FIGURES[command])
    if command not in _VIVADO_READERS:
        raise _refusal(text, title_at, f"{quoted(title)}, written by {command}")
    if title != vivado.TITLES[command]:
        text.fail(title_at, f"{quoted(title)} under the head of {command}", repr(vivado.TITLES[command]))
    vivado.whole_design(text, head)
    report = _VIVADO_READERS[command](text, head)
    kind = {"report_utilization": "utilization", "report_power": "power"}.get(command, "timing")
    said = vivado.stage_of_name(name)
    if said is not None and said != report.stage:
        text.fail(head.stop - 2, f"a report of {report.stage} in a file named {name!r}", f"one of {said}")
    return _checked_name(text, name, title_at, kind, report)


def claimed(name: str) -> str | None:
    """The kind of report that a file's name says it is, or None."""
    return next((kind for pattern, kind in _NAMES if re.search(pattern, name.lower())), None)


def _checked_name(text: Text, name: str, index: int, kind: str, report: HlsReport) -> HlsReport:
    """The report, unless the file's name says that it is another kind."""
    said = claimed(name)
    if said is not None and said != kind:
        text.fail(
            index,
            f"a {kind} report in a file named {name!r}",
            f"a {said} report, or another name: one of both is mixed up",
        )
    return report


__all__ = ["KNOWN", "claimed", "read", "read_all"]
