"""``pack`` and ``collect``: projects built on another machine, with the vendor's tools and without this package.

A pack is a folder: the projects' sources, one tcl file a step, ``build.sh`` (POSIX sh, no Python), ``pack.json`` with
each network's digest, and ``SHA256SUMS`` over all of it, which the script checks before it begins. The script writes
``results/NAME/STEP``: the log, the reports, ``result.json`` and their checksums. ``collect`` compares everything with
the projects of a run, file by file, and keeps what holds as :func:`build` would have kept it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hawq_flow import store, tools
from hawq_flow.synthesis import causes, results, scripts, shell, vendor
from hawq_flow.synthesis.build import RESULT, Build, Step, dependencies, finish, in_order
from hawq_flow.synthesis.causes import Outcome
from hawq_flow.synthesis.config import SynthesisConfig
from hawq_flow.synthesis.project import MANIFEST, PACK, SUMS, Project, SynthesisError, find, read, table, text_of

SOURCES, RESULTS = "sources", "results"
FORMAT, VERSION = "hawq_flow.pack", 1
_TAKEN = {PACK, SUMS, RESULTS, "work", "build.sh", "README.md"}
"""What a pack holds beside its projects, and what ``build.sh`` makes there."""
_TIMED_OUT, _TIMED_OUT_KILLED = 124, 137
"""Exit codes of timeout(1)."""


def pack(folders: Sequence[Path | str], out: Path | str, config: SynthesisConfig | None = None) -> Path:
    """Write a pack of one or several projects; the same projects and settings give the same bytes.

    Parameters
    ----------
    folders:
        Projects that ``to_hls.write_project`` wrote.
    out:
        The pack's folder; it must not exist, and appears complete.
    config:
        Which steps, and the settings of their scripts and limits. Programs named there are not taken along: on the
        other machine they are found on PATH, or named by ``HAWQ_FLOW_VIVADO_HLS`` and the like.

    Raises
    ------
    SynthesisError
        If a folder is no project, or none is given.
    FileExistsError
        If ``out`` exists.
    """
    config = config or SynthesisConfig()
    out = Path(out)
    if not folders:
        raise SynthesisError("pack: no project given; name at least one folder")
    projects = _named([read(folder) for folder in folders])
    with tools.whole_folder(out, "a pack") as work:
        for name, project in projects.items():
            project.copy(work / name / SOURCES)
            for step in config.steps:
                (work / name / f"{step}.tcl").write_text(scripts.script(step, project, config))
        store.write_json(work / PACK, _document(projects, config))
        (work / "build.sh").write_text(shell.script(projects, config))
        (work / "README.md").write_text(shell.readme(projects, config))
        (work / SUMS).write_text(store.checksums(work, SUMS))
        (work / "build.sh").chmod(0o755)
    return out


def _named(projects: Sequence[Project]) -> dict[str, Project]:
    """Projects by a name made of the ends of their paths: as many parts as it takes to tell them apart."""
    paths = [project.folder.resolve() for project in projects]
    if len(set(paths)) != len(paths):
        raise SynthesisError("pack: a project is given twice")
    for parts in range(1, max(len(path.parts) for path in paths) + 1):
        names = [re.sub(r"[^A-Za-z0-9_.-]", "_", "-".join(path.parts[1:][-parts:])).strip(".-") for path in paths]
        if len(set(names)) == len(names) and not _TAKEN & set(names):
            return dict(sorted(zip(names, projects, strict=True)))
    raise SynthesisError(f"pack: {', '.join(map(str, paths))}: no names tell them apart; rename one")


def _document(projects: Mapping[str, Project], config: SynthesisConfig) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "steps": list(config.steps),
        "settings": {name: getattr(config, name) for name in ("power", "threads", "flatten", "time_limit_s")},
        "projects": {
            name: {
                "digest": project.digest,
                "sources": project.sources,
                "top": project.top,
                "part": project.part,
                "clock_period_ns": project.clock_ns,
                "backend": project.backend,
            }
            for name, project in projects.items()
        },
    }


def collect(folder: Path | str, run_folder: Path | str) -> tuple[Build, ...]:
    """Read a pack's results back into the run whose projects it holds.

    Parameters
    ----------
    folder:
        The pack, with the ``results`` that ``build.sh`` left in it.
    run_folder:
        Where the projects are, at any depth.

    Returns
    -------
    A :class:`Build` for each project of the pack: a step that failed there has its outcome and cause; one without
    results is 'not run'. What is ok is kept beside the project, as if it had been built here.

    Raises
    ------
    SynthesisError
        If the pack was changed, a project of it is of another network than any in ``run_folder`` or has other
        sources or settings, or results were changed, are of another project, or older than their run.
    """
    folder, run_folder = Path(folder), Path(run_folder)
    for path, what in ((folder, "the pack"), (run_folder, "the run, or another folder above its projects")):
        if not path.is_dir():
            raise SynthesisError(f"{path}: no such folder; expected {what}")
    document = table(folder / PACK)
    if document.get("format") != FORMAT or document.get("version") != VERSION:
        raise SynthesisError(
            f"{folder / PACK}: {document.get('format')!r} version {document.get('version')!r}; expected {FORMAT!r} "
            f"version {VERSION}: pack the projects again"
        )
    try:
        config = SynthesisConfig(steps=tuple(document["steps"]), **document["settings"])
        entries = {name: (str(entry["digest"]), str(entry["sources"])) for name, entry in document["projects"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SynthesisError(f"{folder / PACK}: unreadable ({error!r}); pack the projects again") from error
    _check_sums(folder, ignore=(RESULTS, "work", ".lock"))
    there = _projects(run_folder)
    matched = {name: _match(folder, name, *entry, there, run_folder) for name, entry in entries.items()}
    for name, project in matched.items():
        _check_sources(folder / name, project, config)
    return tuple(_collected(folder / RESULTS / name, project, config) for name, project in matched.items())


def _check_sums(folder: Path, ignore: Sequence[str] = ()) -> None:
    """``SynthesisError`` unless the folder holds the files of its ``SHA256SUMS``, unchanged, and no others.

    Files beside the folders (``nohup.out``) are read by nothing; those inside could be by a tool.
    """
    path = folder / SUMS
    if not path.is_file():
        raise SynthesisError(f"{folder}: no {SUMS}; not a whole pack, or results whose making was interrupted")
    expected = {}
    for line in text_of(path).splitlines():
        digest, _, name = line.partition("  ")
        expected[name.removeprefix("./")] = digest
    found = {p.relative_to(folder).as_posix(): p for p in folder.rglob("*") if p.is_file() and p != path}
    found = {name: p for name, p in found.items() if name.split("/")[0] not in ignore}
    if missing := sorted(set(expected) - set(found)):
        raise SynthesisError(f"{folder}: {', '.join(missing[:5])}: missing; copy the whole folder again")
    if more := sorted(name for name in set(found) - set(expected) if "/" in name):
        raise SynthesisError(f"{folder}: {', '.join(more[:5])}: not in {SUMS}; remove what was added to the folder")
    for name, digest in expected.items():
        if store.file_digest(found[name]) != digest:
            raise SynthesisError(f"{found[name]}: changed since {SUMS} was written; copy the folder again")


def _projects(run_folder: Path) -> list[Project]:
    found = []
    for path in find(run_folder):
        with contextlib.suppress(SynthesisError):  # not one that is built with these tools
            found.append(read(path))
    return found


def _match(folder: Path, name: str, digest: str, sources: str, there: Sequence[Project], run_folder: Path) -> Project:
    same = [project for project in there if project.digest == digest]
    if not same:
        known = ", ".join(sorted({project.digest[:12] for project in there})) or "none"
        raise SynthesisError(
            f"{folder / name}: of the network {digest[:12]}; {run_folder} has projects of {known}. It is another run's"
        )
    whole = [project for project in same if project.sources == sources]
    if not whole:
        raise SynthesisError(
            f"{folder / name}: of the network of {same[0].folder}, with other sources or settings than that project "
            "has now; pack it again"
        )
    return whole[0]


def _check_sources(folder: Path, project: Project, config: SynthesisConfig) -> None:
    """What was packed is what the project gives now, byte for byte."""
    again = tools.fresh_folder(project.results.parent, f".{project.results.name}.collect")
    try:
        project.copy(again / SOURCES)
        for step in config.steps:
            (again / f"{step}.tcl").write_text(scripts.script(step, project, config))
        expected, found = (store.checksums(place, SUMS) for place in (again, folder))
    finally:
        shutil.rmtree(again)
    if expected != found:
        odd = sorted({line.partition("  ")[2] for line in set(expected.splitlines()) ^ set(found.splitlines())})
        raise SynthesisError(
            f"{folder}: {', '.join(odd[:5])}: not what {project.folder} gives; the pack was changed after packing, or "
            "by another hawq_flow: pack it again"
        )


def _collected(folder: Path, project: Project, config: SynthesisConfig) -> Build:
    steps = in_order(config.steps, lambda name: _collect_step(folder / name, name, project, config))
    return Build(project, tuple(steps))


def _collect_step(folder: Path, name: str, project: Project, config: SynthesisConfig) -> Step:
    if not folder.is_dir():
        return Step(name, Outcome.NOT_RUN, f"{folder} does not exist: run build.sh, or copy its results back")
    _check_sums(folder)
    told = table(folder / RESULT)
    try:
        kind, code, digest, sources = str(told["tool"]), int(told["exit_code"]), told["digest"], told["sources"]
        started, seconds = datetime.datetime.fromisoformat(told["start"]), float(told["seconds"])
        stale = int(told["stale"])
    except (KeyError, ValueError, TypeError) as error:
        raise SynthesisError(f"{folder / RESULT}: unreadable ({error!r}); run build.sh again") from error
    if (digest, sources) != (project.digest, project.sources):
        raise SynthesisError(f"{folder}: results of the network {str(digest)[:12]}; expected {project.digest[:12]}")
    if kind not in vendor.kinds(name, project.backend):
        if kind == "":
            return Step(name, Outcome.MISSING_TOOL, "no tool for it was found where build.sh ran")
        raise SynthesisError(
            f"{folder / RESULT}: tool {kind!r} for {name}; expected {vendor.kinds(name, project.backend)}"
        )
    log = folder / f"{name}.log"
    if not log.is_file():
        raise SynthesisError(f"{folder}: no {log.name}; run build.sh again")
    text = log.read_text(errors="replace")
    tail = "\n".join(text.splitlines()[-tools.TAIL_LINES :])
    version = vendor.version(text)
    # 137 of a tool that ignored SIGTERM at the end of its time.
    late = code == _TIMED_OUT or (code == _TIMED_OUT_KILLED and seconds >= config.time_limit_s)
    outcome = tools.Outcome.TIMED_OUT if late else tools.outcome(code, tail)
    over = f"it ran longer than its limit of {config.time_limit_s:g} s" if late else ""
    run = tools.Run((kind,), outcome, code, seconds, log, tail, over)
    ended, cause = causes.diagnose(run, text, scripts.done(name) in text.splitlines())
    step = Step(name, ended, cause, vendor.NAMES[kind], version, seconds, tail, folder)
    if ended is not Outcome.OK:
        return step
    if stale:
        raise SynthesisError(f"{folder}: {stale} files were older than the run that should have written them")
    try:
        results.complete(name, folder)
        if name == "cosim":
            results.check_cosim(project, folder)
        results.check_dates(results.read(name, project, folder, version), started, seconds)
    except results.Different as error:
        return _ended(step, Outcome.DIFFERENT, error)
    except results.NoReport as error:
        return _ended(step, Outcome.NO_REPORT, error)
    except results.WrongReport as error:
        raise SynthesisError(f"{folder}: {error}") from error

    def keep(target: Path) -> None:
        for path in sorted(folder.iterdir()):
            if path.is_dir():
                shutil.copytree(path, target / path.name)
            elif path.name not in (SUMS, RESULT):
                shutil.copy2(path, target / path.name)
        shutil.copyfile(project.folder / MANIFEST, target / MANIFEST)
        store.write_json(target / RESULT, {"version": version, "seconds": seconds, "notes": []})

    script = scripts.script(name, project, config)
    depends = dependencies(name, project, script, version, vendor.NAMES[kind])
    store.make(project.results / name, f"synthesis.{name}", depends, keep)
    return finish(step, project)


def _ended(step: Step, outcome: Outcome, error: Exception) -> Step:
    return dataclasses.replace(step, outcome=outcome, cause=str(error))
