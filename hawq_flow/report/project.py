"""Folders: the reports of one HLS project by stage, and every project of a folder tree.

Known layouts: an hls4ml or hawq_flow project (``NAME_prj/solution1/syn/report``, ``vivado_synth.rpt`` beside), a plain
solution of Vivado HLS, Vitis HLS or the Vitis IDE (``syn/report``, ``sim/report``, ``impl/report``), what ``hls build``
keeps of a project (``PROJECT.synthesis/STEP/reports``), and a folder that just holds report files. What tools leave
behind in their working folders (hidden ones, ``impl/verilog``, ``sim/wrapc``) is not looked into: those are reports of
steps and of wrappers, and their results stand in the folders named.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hawq_flow.report.merge import merge, with_modules
from hawq_flow.report.read import claimed, read_all
from hawq_flow.report.schema import Foreign, HlsReport, NoFigures, ReportError
from hawq_flow.report.values import Part, same_part

MANIFEST = "hawq_flow.json"
"""In a project made by this package, and beside the reports kept of one: it tells the digest of the network."""
KEPT = "reports"
"""Folder of the reports of one step that were kept, in a folder named after the step."""

_REPORTS = re.compile(r"(syn|sim|impl|csim)/report(/(verilog|vhdl|systemc))?$")
_WORK = re.compile(
    r"(^|/)(\..*|impl/(verilog|vhdl|ip|misc|export.*)|sim/(?!report)[^/]*|sim/report/.*|csim/(?!report).*|syn/(verilog|vhdl|systemc)|"
    r"[^/]*\.(runs|cache|gen|ip_user_files|sim|hw|srcs)/.*\.(cache|gen)|tb_data|firmware|__pycache__)$"
)
_MARKERS = (MANIFEST, "hls4ml_config.yml", "build_prj.tcl", "project.tcl", "vivado_synth.rpt")


@dataclass(frozen=True)
class Refusal:
    """A file or folder that gave no report, and why.

    ``in_order``: it is of a kind that holds no figures, or no report at all by name and text; else something is wrong.
    """

    path: str
    reason: str
    in_order: bool = False


def read_project(folder: str | Path) -> tuple[HlsReport, ...]:
    """The reports of one project, one a stage, in the order of the stages.

    Reports of HLS of one design are one report: its totals from ``csynth.xml``, ``csynth.rpt`` and ``TOP_csynth.*``,
    and a row for each module from theirs. Utilization, timing, power and export reports of one stage are one report.

    Raises
    ------
    ReportError
        If there is no report, a report is refused (but for kinds that hold no figures, and files that are no report by
        name and text), files of one stage disagree (part, clock, top, version, any figure), or there are two designs.
    """
    root = Path(folder)
    if not root.is_dir():
        raise ReportError(f"{root}: found no such folder; expected a project's")
    reports, refusals = _read_files(_files(root))
    wrong = [refusal for refusal in refusals if not refusal.in_order]
    if wrong:
        raise ReportError(wrong[0].reason)
    if not reports:
        named = f"; refused: {refusals[0].reason}" if refusals else ""
        raise ReportError(f"{root}: found no report in it{named}; expected those of one project")
    return _noted([_in_project(_stage(group, str(root)), root) for group in _by_stage(reports)])


def tree(paths: Iterable[str | Path]) -> tuple[tuple[HlsReport, ...], tuple[Refusal, ...]]:
    """Every project of folders (or files) and of all folders below them, and what was refused and why.

    A folder is read as by :func:`read_project`, except that a stage of several designs (a block design and its parts,
    each synthesized by itself) gives one report a design, and a stage whose files disagree is a refusal; the rest of
    the folder is still read.

    Raises
    ------
    ReportError
        If a path does not exist.
    """
    reports: list[HlsReport] = []
    refusals: list[Refusal] = []
    seen: set[Path] = set()  # a file that is reached twice is read once
    for root in map(Path, paths):
        if not root.exists():
            raise ReportError(f"{root}: found no such file or folder; expected reports, or a folder of them")
        projects: dict[Path, list[Path]] = {}
        for path in [root] if root.is_file() else _files(root):
            if path.resolve() in seen:
                continue
            seen.add(path.resolve())
            projects.setdefault(_project_of(path, root), []).append(path)
        for project, files in projects.items():
            found, refused = _read_files(files)
            refusals += refused
            merged: list[HlsReport] = []
            for group in _by_stage(found):
                for design in _by_design(group):
                    try:
                        merged.append(_in_project(_stage(design, str(project)), project))
                    except ReportError as error:
                        refusals.append(Refusal(str(project), str(error)))
            reports += _noted(merged)
    return tuple(reports), tuple(refusals)


def _files(root: Path) -> list[Path]:
    """Files that may be reports, in a fixed order, leaving out the folders that tools work in."""
    found: list[Path] = []
    for folder, names, files in os.walk(root):
        here = Path(folder)
        names[:] = sorted(n for n in names if not _WORK.search((here / n).relative_to(root).as_posix()))
        found += [here / name for name in sorted(files) if _candidate(here / name)]
    return found


def _candidate(path: Path) -> bool:
    if path.suffix in (".rpt", ".log"):
        return True
    return path.suffix == ".xml" and bool(re.search(r"csynth|_export|export_(syn|impl)", path.name))


def _read_files(files: Sequence[Path]) -> tuple[list[HlsReport], list[Refusal]]:
    reports: list[HlsReport] = []
    refusals: list[Refusal] = []
    for path in files:
        try:
            reports += read_all(path)
        except ReportError as error:
            # A log, or a file that neither its name nor its text calls a report, is no part of a project's reports.
            other = path.suffix == ".log" or (isinstance(error, Foreign) and claimed(path.name) is None)
            refusals.append(Refusal(str(path), str(error), other or isinstance(error, NoFigures)))
    return reports, refusals


def _project_of(path: Path, root: Path) -> Path:
    """The project a file belongs to: the folder above the solution's or the steps', or the file's own folder."""
    folder = path.parent
    if folder.name == KEPT and folder != root and (folder.parent / MANIFEST).is_file():
        return folder.parent if folder.parent == root else folder.parents[1]
    match = _REPORTS.search(folder.as_posix())
    if match is None:
        return folder
    project = solution = folder.parents[match[0].count("/")]
    above = solution.parent
    if solution != root and above != root.parent:
        others = [f for f in above.iterdir() if f.is_dir() and any((f / n).is_dir() for n in ("syn", "sim", "impl"))]
        if len(others) == 1:
            project = above
            if above != root and any((above.parent / name).exists() for name in _MARKERS):
                project = above.parent
    return project


def _in_project(report: HlsReport, project: Path) -> HlsReport:
    """The report with its project, and the network's digest where the project was made by this package.

    Reports that were kept have their own manifest, as steps may have been run for different networks.
    """
    kept = dict.fromkeys(Path(source).parents[1] for source in report.sources if Path(source).parent.name == KEPT)
    # Within a project: NAME_prj, or NAME_prj/solution1.
    above = [project, *(folder.parent for folder in (project, project.parent) if folder.name.endswith("_prj"))]
    paths = [folder / MANIFEST for folder in kept if (folder / MANIFEST).is_file()]
    paths = paths or [folder / MANIFEST for folder in above if (folder / MANIFEST).is_file()][:1]
    digests = {_digest(path): path for path in paths}
    if len(digests) > 1:
        names = " and ".join(str(path) for path in digests.values())
        raise ReportError(f"{project}: found digests of different networks in {names}; expected one for {report.stage}")
    return replace(report, digest=next(iter(digests), None), project=str(project))


def _noted(reports: Sequence[HlsReport]) -> tuple[HlsReport, ...]:
    """The reports of one project, each with a note of those that are for another part."""

    def told(one: HlsReport) -> tuple[str, ...]:
        parts = {o.stage: o.part for o in reports if o.part and one.part and not same_part(o.part, one.part)}
        return tuple(f"for another part: {stage}, {part}" for stage, part in parts.items())

    return tuple(replace(one, notes=(*one.notes, *told(one))) for one in reports)


def _digest(path: Path) -> str:
    """The network's digest of a manifest."""
    try:
        manifest = json.loads(path.read_text())
    except ValueError as error:
        raise ReportError(f"{path}: found no JSON ({error}); expected the manifest of a project by hawq_flow") from None
    digest = manifest.get("digest") if isinstance(manifest, dict) else None
    if not isinstance(digest, str):
        raise ReportError(f"{path}: found no digest; expected the manifest of a project by hawq_flow")
    return digest


def _by_stage(reports: Sequence[HlsReport]) -> Iterator[list[HlsReport]]:
    for stage in ("csynth", "cosim", "synthesis", "implementation", "open"):
        group = [report for report in reports if report.stage == stage]
        if group:
            yield group


def _by_design(group: Sequence[HlsReport]) -> list[list[HlsReport]]:
    """Reports of Vivado by the design they name; those that name none go with the only design, or by themselves."""
    if group[0].stage not in ("synthesis", "implementation"):
        return [list(group)]
    designs: dict[str | None, list[HlsReport]] = {}
    for report in group:
        designs.setdefault(report.top, []).append(report)
    nameless = designs.pop(None, [])
    if len(designs) == 1:
        return [[*next(iter(designs.values())), *nameless]]
    return [*designs.values(), *([nameless] if nameless else [])]


def _stage(group: Sequence[HlsReport], where: str) -> HlsReport:
    if group[0].stage != "csynth":
        return merge(group, where)
    tops: dict[str, list[HlsReport]] = {}
    for report in group:
        tops.setdefault(str(report.top), []).append(report)
    merged = {name: merge(_detailed_first(reports), where) for name, reports in tops.items()}
    top = _top(merged, group, where)
    others = [report for name, report in merged.items() if name != top]
    for report in others:
        for field in ("part", "version", "tool"):
            mine, theirs = getattr(merged[top], field), getattr(report, field)
            same = Part.parse(mine).merged(Part.parse(theirs)) if field == "part" else mine == theirs
            if not same:
                raise ReportError(
                    f"{where}: found {field} {mine} of {top} and {theirs} of {report.top}; expected one run of HLS"
                )
    return with_modules(merged[top], others, where)


def _detailed_first(reports: Sequence[HlsReport]) -> list[HlsReport]:
    """The reports with rows of modules first, those with latencies in their rows before the others."""

    def rank(report: HlsReport) -> tuple[bool, bool]:
        timed = any(row.timing.latency_cycles_min is not None for row in report.modules)
        return not report.modules, not timed

    return sorted(reports, key=rank)


def _top(merged: dict[str, HlsReport], group: Sequence[HlsReport], where: str) -> str:
    """The design that all others are modules of.

    ``csynth.xml`` and ``csynth.rpt`` name it. Else it is the one that is in nobody's table of instances.
    """
    summary = re.compile(r"csynth(__v\d+)?\.(xml|rpt)$")
    named = sorted({str(r.top) for r in group for source in r.sources if summary.match(Path(source).name)})
    if len(named) > 1:
        raise ReportError(f"{where}: found summaries of {' and '.join(named)}; expected those of one design")
    below = {name: {row.module for row in report.modules} & set(merged) for name, report in merged.items()}
    inside = set().union(*below.values())
    roots = [name for name in merged if name not in inside]
    if named:
        top = named[0]
    elif len(roots) == 1:
        top = roots[0]
    else:
        raise ReportError(
            f"{where}: found reports of {', '.join(sorted(roots))}, none of them a module of another and no csynth.xml "
            "that names the top; expected those of one design"
        )
    reached, waiting = {top}, [top]
    while waiting:
        fresh = below[waiting.pop()] - reached
        reached |= fresh
        waiting += fresh
    # Where some function below the top has no report, what it calls is not known, and the others may be that.
    called = {row.module for n in reached for row in merged[n].modules if row.timing.interval_cycles_max is not None}
    complete = bool(merged[top].modules) and called <= set(merged)
    strangers = sorted(set(merged) - reached)
    if complete and strangers:
        raise ReportError(
            f"{where}: found a report of {', '.join(strangers)}, which {top} does not call; expected one design"
        )
    return top
