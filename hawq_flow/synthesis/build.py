"""``build``: a project through the vendor's tools, step by step, each result an artifact beside the project.

A step runs in a folder of its own that did not exist before, under the limits, and ends as one typed outcome. What it
leaves is checked (:mod:`results`) and kept as ``PROJECT.synthesis/STEP``, absent or complete; its key covers the
project's files, the script, the tool's version and the step it started from, so that a step is run again when one of
these changed and only then. Nothing is written into the project.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import glob
import queue
import re
import shutil
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hawq_flow import devices, store, tools
from hawq_flow.report import HlsReport
from hawq_flow.synthesis import causes, licences, results, scripts, vendor
from hawq_flow.synthesis.causes import Outcome
from hawq_flow.synthesis.config import NEEDS, STEPS, SynthesisConfig
from hawq_flow.synthesis.project import MANIFEST, Project, SynthesisError, read, table
from hawq_flow.synthesis.vendor import Tool

Tell = Callable[[str], None]
RESULT = "result.json"
_OVERESTIMATED = {"lut", "ff"}
"""What csynth reports too high (median over real projects: 2.17 and 1.24 times logic synthesis): no ground to stop."""
_MILESTONE = re.compile(
    r"^(?:CRITICAL WARNING|ERROR)\b|Implementing module '|Starting (?:hardware synthesis|code trans|scheduling)"
    r"|Generating all RTL models|co-simulation (?:start|finish)|^(?:Start|Finished) |^Phase \d+(?:\.\d+)? "
    r"|^Starting \w+|^(?:synth|opt|place|route|phys_opt)_design"
)


@dataclass(frozen=True)
class Step:
    """How one step ended.

    Attributes
    ----------
    name, outcome, cause:
        The step, its outcome, and the cause in words ('' when ok).
    tool, version:
        The vendor's tool and the version of its own banner; '' and None where it was not run.
    seconds:
        Wall clock of the last try.
    tail:
        The end of the log.
    folder:
        Where it worked, when it failed: the log and all that the tool left, until the project is built again. The
        artifact, when ok.
    reports:
        What was read, with the network's digest.
    notes:
        What is not an error and should be known.
    reused:
        Whether the artifact was already there.
    """

    name: str
    outcome: Outcome
    cause: str = ""
    tool: str = ""
    version: str | None = None
    seconds: float = 0.0
    tail: str = ""
    folder: Path | None = None
    reports: tuple[HlsReport, ...] = ()
    notes: tuple[str, ...] = ()
    reused: bool = False

    def __str__(self) -> str:
        tool = f" ({self.tool} {self.version or 'of unknown version'})" if self.tool else ""
        return f"{self.name}{tool}: {self.outcome.value}" + (f": {self.cause}" if self.cause else "")


@dataclass(frozen=True)
class Build:
    """What became of one project: a :class:`Step` for each of the configuration's, in order.

    ``error`` is what :func:`build_all` met that is no outcome of a tool, as a folder that cannot be written; then there
    are no steps.
    """

    project: Project
    steps: tuple[Step, ...]
    error: Exception | None = None

    @property
    def ok(self) -> bool:
        """Whether every step ended well."""
        return self.error is None and all(step.outcome is Outcome.OK for step in self.steps)

    @property
    def reports(self) -> tuple[HlsReport, ...]:
        """What all steps left."""
        return tuple(found for step in self.steps for found in step.reports)

    def require(self) -> Build:
        """This build if it is ok, else ``SynthesisError`` with the failed step, its cause and the end of its log."""
        if self.error is not None:
            raise SynthesisError(f"{self.project.folder}: {self.error}") from self.error
        for step in self.steps:
            if step.outcome is not Outcome.OK:
                where = f"\nIts files: {step.folder}" if step.folder else ""
                said = f"\nThe end of its log:\n{step.tail}" if step.tail else ""
                raise SynthesisError(f"{self.project.folder}: {step}{where}{said}")
        return self


class _Failed(Exception):
    """A step that did not end well; carries what became of it."""

    def __init__(self, step: Step) -> None:
        super().__init__(str(step))
        self.step = step


@dataclass(frozen=True)
class _Job:
    """A project being built: in which folder beside it, whom it tells, and what ends it."""

    project: Project
    config: SynthesisConfig
    work: Path
    tell: Tell
    stop: threading.Event

    def say(self, text: str) -> None:
        """Tell something of this project."""
        self.tell(f"{self.project.name}: {text}")


def build(
    folder: Path | str,
    config: SynthesisConfig | None = None,
    tell: Tell | None = None,
    stop: threading.Event | None = None,
) -> Build:
    """Run a project's steps.

    Parameters
    ----------
    folder:
        A project that ``to_hls.write_project`` wrote.
    tell:
        Called with a line of text for what happens: steps, milestones of the tools' logs, waits for licences.
    stop:
        Set by another thread, it ends the tool that runs and the build.

    Returns
    -------
    What became of each step. A step that failed is followed by steps 'not run' where they start from it; nothing is
    raised for a tool's failure (:meth:`Build.require` does).

    Raises
    ------
    SynthesisError
        If the folder is no such project, or its path has blanks.
    OSError
        If the folder beside the project cannot be written (a full disk is an outcome).
    KeyboardInterrupt
        If ``stop`` was set, or Ctrl-C pressed in the main thread; the tool has ended then.
    """
    config = config or SynthesisConfig()
    project = _buildable(folder)
    say: Tell = tell or (lambda text: None)
    steps: list[Step] = []
    beside, prefix = project.results.parent, f".{project.results.name}"
    with store.locked(project.results, waiting=lambda: say(f"{project.name}: another process builds this project")):
        for left in beside.glob(f"{glob.escape(prefix)}-*"):
            shutil.rmtree(left, ignore_errors=True)  # of the build before: killed, or kept because it failed
        work = tools.fresh_folder(beside, prefix)
        job = _Job(project, config, work, say, stop or threading.Event())
        ended = False
        try:
            for step in in_order(config.steps, lambda name: _step(name, job)):
                steps.append(step)
                job.say(str(step))
            ended = True
        finally:
            failed = any(step.folder and work in (step.folder, *step.folder.parents) for step in steps)
            if config.keep_work or failed or not ended:
                say(f"{project.name}: what the tools left is in {work}, until this project is built again")
            else:
                shutil.rmtree(work, ignore_errors=True)
    return Build(project, tuple(steps))


def _buildable(folder: Path | str) -> Project:
    """The project, or ``SynthesisError`` where no tool could work.

    Our scripts name no path but those within the project; the tools themselves pass the whole path on to compilers and
    simulators in lists that blanks separate.
    """
    project = read(folder)
    if re.search(r"\s", str(project.results)):
        raise SynthesisError(
            f"{project.folder}: the vendor's tools cannot work in {str(project.results.parent)!r}: move it to a path "
            "without blanks, or pack the project (hls pack) into one"
        )
    return project


def in_order(names: Iterable[str], run: Callable[[str], Step]) -> Iterator[Step]:
    """How each step ends that ``run`` runs, in order; 'not run' where the step it starts from did not end well."""
    ended: dict[str, Outcome] = {}
    for name in names:
        before = NEEDS[name]
        if before is not None and ended[before] is not Outcome.OK:
            step = Step(name, Outcome.NOT_RUN, f"it starts from {before}, which did not end well")
        else:
            step = run(name)
        ended[name] = step.outcome
        yield step


def build_all(
    folders: Sequence[Path | str], config: SynthesisConfig | None = None, tell: Tell | None = None
) -> tuple[Build, ...]:
    """Run several projects, as many at once as there are licences; results in the order of ``folders``.

    ``tell`` is called from several threads, one at a time. A project whose build raises stops no other: the error is
    told, and is its :attr:`Build.error`. Ctrl-C ends the tools that run, and is raised.

    Raises
    ------
    SynthesisError
        If any folder is no project that can be built; before anything is run.
    """
    config = config or SynthesisConfig()
    projects = [_buildable(folder) for folder in folders]  # said before hours of work
    say = _one_at_a_time(tell or (lambda text: None))
    waiting = deque(enumerate(projects))
    done: dict[int, Build] = {}
    raised: list[BaseException] = []
    stop = threading.Event()
    ends: queue.SimpleQueue[None] = queue.SimpleQueue()

    def work() -> None:
        while waiting and not stop.is_set():
            number, project = waiting.popleft()
            try:
                done[number] = build(project.folder, config, say, stop)
            except (SynthesisError, store.StoreError, OSError) as error:
                done[number] = Build(project, (), error)
                say(f"{project.folder}: {error}")
            except BaseException as error:  # what nobody foresaw: raised when all are done
                raised.append(error)
        ends.put(None)

    # The main thread waits, so that Ctrl-C reaches it. Daemons: one that waits for another process holds up no exit.
    workers = min(config.licences, len(folders))
    for _ in range(workers):
        threading.Thread(target=work, daemon=True).start()
    try:
        for _ in range(workers):
            ends.get()  # not Thread.join, which in Python 3.11 takes an interrupted thread for an ended one
    except BaseException:
        stop.set()
        with contextlib.suppress(queue.Empty):
            for _ in range(workers):
                ends.get(timeout=5 * tools.GRACE_S)
        raise
    if raised:
        raise raised[0]
    return tuple(done[number] for number in range(len(projects)))


def _one_at_a_time(tell: Tell) -> Tell:
    lock = threading.Lock()

    def say(text: str) -> None:
        with lock:
            tell(text)

    return say


def reports(folder: Path | str) -> tuple[HlsReport, ...]:
    """What is kept of earlier builds or collected packs of a project as it is now, in the order of the steps.

    Results of an earlier state of the project are passed over.

    Raises
    ------
    SynthesisError, StoreError
        If a kept result was changed since, or cannot be read.
    """
    project = read(folder)
    found: list[HlsReport] = []
    for name in STEPS:
        path = project.results / name
        if (path / store.MANIFEST).is_file():
            artifact = store.open_artifact(path)
            if artifact.manifest["depends"].get("project") == project.sources:
                found += results.read(name, project, path)
    return tuple(found)


def _step(name: str, job: _Job) -> Step:
    """Run or reuse one step; a disk that is full wherever files are written is an outcome like the others."""
    try:
        return _made_or_kept(name, job)
    except OSError as error:
        if error.errno not in tools.FULL:
            raise
        return Step(name, Outcome.DISK_FULL, f"{causes.DISK_FULL} ({error})", folder=job.work)


def _made_or_kept(name: str, job: _Job) -> Step:
    project, config = job.project, job.config
    tool = vendor.find(name, project.backend, config)
    text = scripts.script(name, project, config)
    if tool is None:
        kept = _kept(name, project, text)
        return kept or Step(name, Outcome.MISSING_TOOL, vendor.missing(name, project.backend, config))
    tool = vendor.probe(tool, job.work, job.stop)
    made: list[Step] = []

    def run(target: Path) -> None:
        made.append(_with_retries(name, job, tool, text, target))

    path = project.results / name
    depends = dependencies(name, project, text, tool.version, tool.name)
    try:
        artifact = store.make(path, f"synthesis.{name}", depends, run)
    except _Failed as failed:
        return failed.step
    if made and made[0].folder and not config.keep_work:
        shutil.rmtree(made[0].folder, ignore_errors=True)
    step = _told(name, artifact)
    return finish(dataclasses.replace(step, tail=made[0].tail if made else "", reused=not made), project)


def _told(name: str, artifact: store.Artifact) -> Step:
    """A step that ended well, by its artifact."""
    told = artifact.json(RESULT)
    return Step(
        name,
        Outcome.OK,
        tool=artifact.manifest["depends"]["tool"],
        version=told["version"],
        seconds=float(told["seconds"]),
        notes=tuple(told["notes"]),
        reused=True,
    )


def _kept(name: str, project: Project, script: str) -> Step | None:
    """A step of an earlier build or of a collected pack, by whatever version: for where the tool is not here."""
    path = project.results / name
    if not (path / store.MANIFEST).is_file():
        return None
    artifact = store.open_artifact(path)
    depends = artifact.manifest["depends"]
    if (depends.get("project"), depends.get("script")) != (project.sources, script):
        return None
    return finish(_told(name, artifact), project)


def finish(step: Step, project: Project) -> Step:
    """A step that ended well, with its reports read from the artifact and compared with the device."""
    path = project.results / step.name
    step = dataclasses.replace(step, folder=path, reports=results.read(step.name, project, path))
    device = devices.find(project.part)
    if device is None:
        note = f"{project.part} is not among the known devices: not checked whether the design fits"
        return dataclasses.replace(step, notes=(*step.notes, note))
    over = [too_much for found in step.reports for too_much in devices.fits(found.used, device)]
    said = "; ".join(map(str, over))
    if not over:
        return step
    if step.name == "csynth" and {too_much.resource for too_much in over} <= _OVERESTIMATED:
        note = f"csynth estimates more than {device.name} has ({said}); it estimates these too high: synthesis decides"
        return dataclasses.replace(step, notes=(*step.notes, note))
    cause = f"{said} of {device.name}: take narrower bits, a larger reuse factor or a larger device"
    return dataclasses.replace(step, outcome=Outcome.DOES_NOT_FIT, cause=cause)


def dependencies(name: str, project: Project, script: str, version: str | None, tool: str) -> Mapping[str, Any]:
    """What a step's result depends on; the same here and where a pack is collected."""
    before = NEEDS[name]
    start = None
    if before is not None and (project.results / before / store.MANIFEST).is_file():
        start = table(project.results / before / store.MANIFEST)["key"]
    return {
        "project": project.sources,
        "network": project.digest,
        "script": script,
        "tool": tool,
        "version": version,
        "start": start,
    }


def _with_retries(name: str, job: _Job, tool: Tool, text: str, target: Path) -> Step:
    """Run a step until it ends otherwise than for want of a licence, or the retries are used up."""
    retries = job.config.licence_retries
    for retry in range(retries + 1):
        try:
            return _once(name, job, tool, text, target)
        except _Failed as failed:
            step = failed.step
            if step.outcome is not Outcome.LICENCE or retry == retries or not causes.retried(step.cause):
                raise
            wait = licences.wait_s(job.config.licence_wait_s, retry + 1)
            job.say(f"{step}; retry {retry + 1} of {retries} in {wait:.3g} s")
            if job.stop.wait(wait):
                raise KeyboardInterrupt from None
    raise AssertionError("unreachable: the last retry raises")


def _once(name: str, job: _Job, tool: Tool, text: str, target: Path) -> Step:
    """One run of one step in a folder of its own; its checked results go into ``target``."""
    project, config = job.project, job.config
    place = tools.fresh_folder(job.work, name)
    project.copy(place)
    (place / f"{name}.tcl").write_text(text)
    before = NEEDS[name]
    if before is not None:
        kept = project.results / before
        if name == "synthesis":
            shutil.copytree(kept / scripts.VERILOG, place / scripts.VERILOG)
        elif name == "implementation":
            shutil.copyfile(kept / scripts.CHECKPOINT, place / scripts.CHECKPOINT)
    log, marker = place / f"{name}.log", place / ".start"
    manifest = (place / MANIFEST).read_bytes()  # before a tool works there

    def progress(line: str) -> None:
        if _MILESTONE.search(line):
            job.say(f"{name}: {line.strip()}")

    def waiting() -> None:
        job.say(f"{name}: waits for one of {config.licences} licences on this machine")

    with licences.place(config.licences, licences.folder(config.licence_folder), waiting, job.stop) as lock:
        job.say(f"{name}: {tool.name} {tool.version or 'of unknown version'} starts")
        started = datetime.datetime.now()
        marker.touch()
        began = marker.stat().st_mtime
        run = tools.run(
            tool.command(f"{name}.tcl"),
            folder=place,
            timeout_s=config.time_limit_s,
            memory_bytes=config.memory_bytes,
            log=log,
            environment={"LC_ALL": "C"},
            progress=progress,
            stop=job.stop,
            hold=(lock,),
        )
    logged = log.read_text(errors="replace")
    version = vendor.version(logged) or tool.version
    outcome, cause = causes.diagnose(run, logged, scripts.done(name) in logged.splitlines())
    step = Step(name, outcome, cause, tool.name, version, run.seconds, run.tail, place)

    def failed(outcome: Outcome, error: object) -> _Failed:
        return _Failed(dataclasses.replace(step, outcome=outcome, cause=str(error)))

    if outcome is not Outcome.OK:
        # What could not be written names no cause.
        full = outcome is Outcome.TOOL_ERROR and tools.disk_full(place)
        raise failed(Outcome.DISK_FULL, causes.DISK_FULL) if full else _Failed(step)
    try:
        # Checked where it stays when it is refused: what is said of a file names one that is there.
        gathered = place.with_name(f"{place.name}.results")
        results.gather(name, project, place, gathered)
        if name == "cosim":
            results.check_cosim(project, gathered)
        results.check_times(gathered, began)
        results.check_dates(results.read(name, project, gathered, version), started, run.seconds)
        for path in sorted(gathered.iterdir()):
            shutil.move(path, target)
        gathered.rmdir()
        shutil.copy2(log, target / f"{name}.log")
        (target / MANIFEST).write_bytes(manifest)  # whose reports these are, for whoever finds them
        noted = [f"the tool's banner says {version}, its -version {tool.version}"] if version != tool.version else []
        store.write_json(target / RESULT, {"version": version, "seconds": round(run.seconds, 1), "notes": noted})
    except results.NoReport as error:
        full = tools.disk_full(place)
        raise (failed(Outcome.DISK_FULL, causes.DISK_FULL) if full else failed(Outcome.NO_REPORT, error)) from error
    except results.Different as error:
        raise failed(Outcome.DIFFERENT, error) from error
    except results.WrongReport as error:
        raise failed(Outcome.WRONG_REPORT, error) from error
    except OSError as error:
        if error.errno not in tools.FULL:
            raise
        raise failed(Outcome.DISK_FULL, f"{causes.DISK_FULL} ({error})") from error
    return step
