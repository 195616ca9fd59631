"""What a step left behind: which files are reports, and whether they are of this run, part, clock and design.

A report is believed when it was written after the run began, names the project's part, its clock and its top, and
parses. Everything else is refused with the file and what was found. Every run has a folder that was not there before;
that a report was brought into it from elsewhere is seen by its file's time, and by the date in its text. The text's
clock may be of another time zone (a container's), so there a shift by any number of quarters of an hour, up to what
zones differ by, is no fault.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from hawq_flow import report
from hawq_flow.report import HlsReport, ReportError, same_part
from hawq_flow.synthesis.project import VECTORS, Project, SynthesisError
from hawq_flow.synthesis.scripts import CHECKPOINT, REPORTS, SOLUTION, VERILOG

STAGE = {"csynth": "csynth", "cosim": "cosim", "synthesis": "synthesis", "implementation": "implementation"}
"""The stage of the report that a step must leave; ``export`` leaves an archive."""
RTL_LOG = "rtl_cosim_results.log"
_CLOCK_NS = 0.0051
"""Reports print periods with two decimals."""
_STALE_S = 2.0
"""File systems keep times as coarsely as this."""
_CLOCKS_S = 60.0
"""By so much may the clocks of two machines differ."""
_DAY_S, _ZONE_S, _ZONES_S = 86400.0, 900.0, 26 * 3600.0
"""Time zones differ by quarters of an hour, and by 26 hours at most."""


class WrongReport(SynthesisError):
    """A report of another run, part, clock or design, or one that cannot be read."""


class NoReport(SynthesisError):
    """A tool that ended well without the files it should have written."""


class Different(SynthesisError):
    """An RTL simulation that gave other integers than the network."""


def gather(step: str, project: Project, work: Path, target: Path) -> None:
    """Copy what a step left in the folder where it ran into ``target``.

    ``target/reports`` gets the reports, and beside it what later steps start from or users want: ``verilog/``,
    ``design.dcp``, the IP archive. Times of files are kept.

    Raises
    ------
    NoReport
        If any of it is missing.
    WrongReport
        If anything of such a name is no file that can be read.
    """
    solution = work / f"{project.top}_prj" / SOLUTION
    match step:
        case "csynth":
            _copy(
                [*(solution / "syn/report").glob("*.rpt"), *(solution / "syn/report").glob("*.xml")], target / REPORTS
            )
            _copy([p for p in (solution / "syn/verilog").glob("*") if p.is_file()], target / VERILOG)
        case "cosim":
            _copy(list((solution / "sim/report").glob("*_cosim.rpt")), target / REPORTS)
            logs = sorted(filter(os.path.isfile, work.rglob(RTL_LOG)), key=os.path.getmtime)
            _copy(logs[-1:], target)  # written by the run of the C simulation first, by that of the RTL last
        case "export":
            _copy([*(solution / "impl").rglob("*.zip")], target)
        case _:
            _copy(list((work / REPORTS).glob("*.rpt")), target / REPORTS)
            _copy([p for p in [work / CHECKPOINT] if p.is_file()], target)
    complete(step, target)


def complete(step: str, folder: Path) -> None:
    """``NoReport`` unless a step's results hold what it must leave."""
    must: dict[str, tuple[tuple[str, str], ...]] = {
        "csynth": ((f"{REPORTS}/*", "report"), (f"{VERILOG}/*.v", "Verilog")),
        "cosim": ((f"{REPORTS}/*", "report"), (RTL_LOG, RTL_LOG)),
        "export": (("*.zip", "IP archive"),),
    }
    for pattern, what in must.get(step, ((f"{REPORTS}/*", "report"), (CHECKPOINT, "checkpoint"))):
        if not any(path.stat().st_size for path in folder.glob(pattern)):
            raise NoReport(f"the tool ended well and left no {what}")


def _copy(files: Sequence[Path], target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for file in sorted(files):
        if not (os.path.isfile(file) and os.access(file, os.R_OK)):
            raise WrongReport(f"{file}: is no file that can be read (a folder, a link to nothing, a pipe, or not ours)")
        shutil.copy2(file, target / file.name)


def read(step: str, project: Project, folder: Path, version: str | None = None) -> tuple[HlsReport, ...]:
    """The reports of a step's results (``folder/reports``), checked against the project; () for ``export``.

    Parameters
    ----------
    version:
        Of the tool that ran, where known: reports that name another are refused.

    Raises
    ------
    WrongReport
        For a file that cannot be read, no report of the step's stage, or another part, clock, top or tool's version.
    """
    if step not in STAGE:
        return ()
    try:
        found = report.read_project(folder / REPORTS)
    except ReportError as error:
        raise WrongReport(f"{step}: {error}") from error
    reports = [r for r in found if r.stage == STAGE[step]]
    if not reports:
        raise WrongReport(f"{step}: {folder / REPORTS} has no report of the stage {STAGE[step]!r}")
    return tuple(_checked(step, project, r, version) for r in reports)


def _checked(step: str, project: Project, found: HlsReport, version: str | None) -> HlsReport:
    where = f"{step}: {', '.join(found.sources) or 'report'}"
    # cosim's report has neither part nor clock.
    if found.part is None and step != "cosim":
        raise WrongReport(f"{where}: names no part; expected {project.part}")
    if found.part is not None and not same_part(found.part, project.part):
        raise WrongReport(f"{where}: is for the part {found.part}; the project is for {project.part}")
    if found.version and version and found.version.split(".")[:2] != version.split(".")[:2]:
        raise WrongReport(f"{where}: is by version {found.version}; the tool that ran is {version}")
    clock = found.timing.clock_target_ns
    if clock is None and step == "csynth":
        raise WrongReport(f"{where}: names no clock; expected {project.clock_ns} ns")
    if clock is not None and abs(clock - project.clock_ns) > _CLOCK_NS:
        raise WrongReport(f"{where}: is for a clock of {clock} ns; the project is for {project.clock_ns} ns")
    if found.top is not None and found.top != project.top:
        raise WrongReport(f"{where}: is for the design {found.top!r}; the project's top is {project.top!r}")
    if found.top is None and step != "cosim":
        raise WrongReport(f"{where}: names no design; expected {project.top!r}")
    return dataclasses.replace(found, digest=project.digest)


def check_times(folder: Path, started: float) -> None:
    """``WrongReport`` when a report's file is older than the run.

    ``started`` is the time (seconds since 1970) of a file written on the same file system when the run began: the
    clock of a file server may be another than this machine's.
    """
    for path in sorted((folder / REPORTS).glob("*")):
        if path.stat().st_mtime < started - _STALE_S:
            written = datetime.datetime.fromtimestamp(path.stat().st_mtime).isoformat(" ", "seconds")
            began = datetime.datetime.fromtimestamp(started).isoformat(" ", "seconds")
            raise WrongReport(f"{path}: was written {written}, before the run that began {began}; not of this run")


def check_dates(reports: Sequence[HlsReport], started: datetime.datetime, seconds: float) -> None:
    """``WrongReport`` when the date in a report's text is before the run, in whatever time zone the tool was.

    Parameters
    ----------
    started, seconds:
        When the run began, in the local time of the machine that ran it, and how long it took.
    """
    for found in reports:
        if found.date is None:
            continue
        try:
            date = datetime.datetime.fromisoformat(found.date).replace(tzinfo=None)
        except ValueError as error:
            raise WrongReport(f"{', '.join(found.sources)}: date {found.date!r} ({error})") from error
        whole_day = ":" not in found.date
        early = (started - date).total_seconds() - (_DAY_S if whole_day else 0)
        if early <= _CLOCKS_S:
            continue
        zone = math.ceil((early - _CLOCKS_S) / _ZONE_S) * _ZONE_S  # the least shift that puts it after the start
        after_start = 0.0 if whole_day else zone - early
        if zone > _ZONES_S or after_start > seconds + _CLOCKS_S:
            raise WrongReport(
                f"{', '.join(found.sources)}: is dated {date.isoformat(' ')}, before the run that began "
                f"{started.isoformat(' ', 'seconds')}; not of this run"
            )


def check_cosim(project: Project, folder: Path) -> None:
    """``Different`` unless the RTL simulation's results are the network's integers on every test vector.

    The test bench writes them and compares nothing; the vendor compares with the C simulation only.
    """
    expected = [line.split() for line in (project.folder / VECTORS[1]).read_text().splitlines()]
    found = (
        (folder / RTL_LOG).read_text(errors="replace").split()
    )  # a line for each output, or for each row: the numbers alone count
    columns = len(expected[0]) if expected else 0
    if len(found) != columns * len(expected):
        raise Different(f"RTL simulation: {len(found)} numbers came back, expected {len(expected)} rows of {columns}")
    for row, want in enumerate(expected):
        got = found[row * columns : (row + 1) * columns]
        numbers = _numbers(want)
        if numbers is None or _numbers(got) != numbers:
            raise Different(f"RTL simulation, row {row}: got {' '.join(got)}, expected {' '.join(want)}")


def _numbers(words: Sequence[str]) -> list[float] | None:
    """Their values; None where one is no number: an X or Z of the simulator."""
    try:
        return [float(word) for word in words]
    except ValueError:
        return None
