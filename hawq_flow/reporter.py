"""What a long job tells while it runs: the interface between the stages and whoever watches."""

from __future__ import annotations


class Reporter:
    """What a run tells while it runs; this one says nothing. The command line has one that draws progress bars."""

    def stage(self, name: str, detail: str) -> None:
        """A stage begins its work."""

    def reused(self, name: str, detail: str) -> None:
        """A stage's artifact was already there."""

    def progress(self, done: int, total: int, text: str) -> None:
        """Part of the present stage is done."""

    def warning(self, text: str) -> None:
        """Something the user should know and may want to change."""

    def result(self, text: str) -> None:
        """A figure worth showing."""
