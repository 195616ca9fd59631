"""The terminal: a run's progress as lines and bars, and how the command ends when it fails."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NoReturn

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from hawq_flow.reporter import Reporter


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


def fail(text: str, code: int = 1) -> NoReturn:
    """Say what went wrong on standard error and end with ``code``."""
    console = Console(stderr=True, highlight=False)
    console.print("error:", style="red", end=" ")
    console.print(text, markup=False, soft_wrap=True)  # texts hold brackets and paths: neither tags nor wrapping
    sys.exit(code)


def writable(file: Path) -> None:
    """Refuse what is no place for a file before anything is computed for it; the folder it goes into is made."""
    if file.is_dir():
        fail(f"{file}: is a folder; name the file to write")
    file.parent.mkdir(parents=True, exist_ok=True)
