"""The ``hawq-flow`` command."""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from hawq_flow import __version__
from hawq_flow.reporter import Reporter
from hawq_flow.store import MANIFEST, open_artifact

TRACEBACK = "HAWQ_FLOW_TRACEBACK"
"""Environment variable: set, an error shows where it was raised."""
FILES_SHOWN = 30

app = typer.Typer(
    help="A PyTorch network to FPGA firmware, in integers all the way, with proof of equality.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"hawq-flow {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of the command itself."""


@app.command()
def run(
    experiment: Annotated[
        Path, typer.Argument(help="The experiment's TOML, or the folder that holds experiment.toml.")
    ],
    until: Annotated[str, typer.Option(help="Stop after this stage.")] = "report",
    out: Annotated[Path | None, typer.Option(help="The run's folder; default: 'run' beside the TOML.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed, instead of the experiment's.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print results only.")] = False,
) -> None:
    """Do the whole job: data, training, bit plans, integers, QONNX, HLS, proof of equality, report.

    Stages: data, float, sensitivity, plans, qat, lower, export, hls, equality, report. A stage whose artifact is
    already there, made from the same inputs by the same code, is skipped.
    """
    import dataclasses

    import torch  # seconds that --help should not take

    from hawq_flow.config import load
    from hawq_flow.flow import Flow

    torch.set_num_threads(1)  # one thread a worker: small networks gain nothing from more, and lose on a shared machine

    config = load(experiment)
    if seed is not None:
        config = dataclasses.replace(config, seed=seed)
    with RichReporter(quiet=quiet) as reporter:
        Flow(config, out, reporter).run(until)


@app.command()
def show(path: Annotated[Path, typer.Argument(help="An artifact's folder, or a file in one.")]) -> None:
    """Say what an artifact is, what it was made from and whether its files are whole; or list a run's artifacts."""
    if not path.exists():
        _fail(f"{path}: no such file or folder; give a run's folder, an artifact's, or a file in one")
    folder = path if path.is_dir() else path.parent
    if not (folder / MANIFEST).is_file() and (inside := sorted(folder.glob("**/" + MANIFEST))):
        listing = Table("artifact", "stage", "digest", title=escape(str(folder)), title_justify="left")
        for place in inside:
            found = open_artifact(place.parent, check=False)
            listing.add_row(escape(str(place.parent.relative_to(folder))), found.manifest["stage"], found.digest[:16])
        Console().print(listing)
        return
    artifact = open_artifact(folder)
    console = Console()
    manifest = artifact.manifest
    console.print(
        f"[bold]{escape(str(folder))}[/]: artifact of stage [bold]{manifest['stage']}[/], "
        f"digest {artifact.digest[:16]}, whole"
    )
    table = Table(title="made from", show_header=False, title_justify="left")
    for name, value in manifest["depends"].items():
        table.add_row(escape(name), escape(_short(value)))
    console.print(table)
    files = Table("file", "bytes", "sha256", title="files", title_justify="left")
    for name, digest in list(manifest["files"].items())[:FILES_SHOWN]:
        files.add_row(escape(name), f"{(folder / name).stat().st_size:,}", digest[:16])
    console.print(files)
    if len(manifest["files"]) > FILES_SHOWN:
        console.print(f"and {len(manifest['files']) - FILES_SHOWN} more files")
    for name in ("result.json", "data.json", "plan.json", "equality.json"):
        if name in manifest["files"]:
            console.print(f"[bold]{name}[/]")
            content = artifact.json(name)
            content.pop("loss", None)
            console.print_json(json.dumps(content))


@app.command()
def layers() -> None:
    """Try every layer a network may be made of and print which back ends take it (half a minute)."""
    from hawq_flow.supported import table

    typer.echo(table(), nl=False)


def _short(value: Any) -> str:
    if isinstance(value, str):
        return value[:16] if len(value) == 64 else value
    return json.dumps(value, indent=1)


class RichReporter(Reporter):
    """A run's progress in the terminal: a line a stage, a bar for what takes long."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.console = Console(highlight=False)
        self.quiet = quiet
        self.bars = Progress(
            TextColumn("  {task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            console=self.console,
            transient=True,
            disable=quiet,
        )
        self.task: TaskID | None = None

    def __enter__(self) -> RichReporter:
        self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bars.stop()

    def _clear(self) -> None:
        if self.task is not None:
            self.bars.remove_task(self.task)
            self.task = None

    def stage(self, name: str, detail: str) -> None:
        """A stage begins its work."""
        self._clear()
        if not self.quiet:
            self.console.print(f"{name:<12}", style="bold", end=" ")
            self.console.print(detail, markup=False, soft_wrap=True)

    def reused(self, name: str, detail: str) -> None:
        """A stage's artifact was already there."""

    def progress(self, done: int, total: int, text: str) -> None:
        """Part of the present stage is done."""
        if self.task is None:
            self.task = self.bars.add_task(text, total=total)
        self.bars.update(self.task, completed=done, total=total, description=text)
        if done >= total:
            self._clear()

    def warning(self, text: str) -> None:
        """Something the user should know and may want to change."""
        self._clear()
        self.console.print(f"{'':<12} {text}", style="yellow", markup=False, soft_wrap=True)

    def result(self, text: str) -> None:
        """A figure worth showing."""
        self._clear()
        self.console.print(f"{'':<12} {text}", style="green", markup=False, soft_wrap=True)


def main() -> None:
    """Run the command; errors of ours become one message and exit status 1 (2 for a wrong command line)."""
    try:
        app()
    except KeyboardInterrupt:
        _fail("interrupted; what was finished is kept, and the same command goes on from there", code=130)
    except Exception as error:
        if os.environ.get(TRACEBACK) or not _ours(error):
            raise
        _fail(str(error))


def _ours(error: Exception) -> bool:
    """Whether the error's text was written for the user: a class of ours, or a refusal raised by our own code."""
    if type(error).__module__.startswith("hawq_flow."):
        return True
    if not isinstance(error, (ValueError, RuntimeError, OverflowError, OSError)):
        return False
    frames = traceback.extract_tb(error.__traceback__)
    return isinstance(error, OSError) or Path(frames[-1].filename).is_relative_to(Path(__file__).parent)


def _fail(text: str, code: int = 1) -> NoReturn:
    console = Console(stderr=True, highlight=False)
    console.print("error:", style="red", end=" ")
    console.print(text, markup=False, soft_wrap=True)  # texts hold brackets and paths: neither tags nor wrapping
    sys.exit(code)
