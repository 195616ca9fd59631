"""How a flow makes its artifacts: each once, announced, kept by the store."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from hawq_flow import store
from hawq_flow.reporter import Reporter
from hawq_flow.store import Artifact

_P = ParamSpec("_P")
_R = TypeVar("_R")


class FlowError(RuntimeError):
    """A run that cannot go on; the text says which stage, why, and what to do."""


def once(method: Callable[Concatenate[Any, _P], _R]) -> Callable[Concatenate[Any, _P], _R]:
    """What a method gives is made once in a flow's life, however many stages ask for it.

    An artifact is then found and its files hashed once; a network, a design or an estimate is one immutable value.
    """

    @functools.wraps(method)
    def found(self: Any, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        key = (method.__name__, *args, *kwargs.items())
        if key not in self._made:
            self._made[key] = method(self, *args, **kwargs)
        made: _R = self._made[key]
        return made

    return found


class Maker:
    """A folder of artifacts and who is told of them.

    Parameters
    ----------
    out:
        The run's folder.
    reporter:
        Told what happens.
    """

    def __init__(self, out: Path, reporter: Reporter | None = None) -> None:
        self.out = out
        self.reporter = reporter or Reporter()
        self._made: dict[tuple[Any, ...], Any] = {}

    def _make(
        self,
        stage: str,
        place: str,
        depends: Mapping[str, Any],
        build: Callable[[Path], None],
        root: Path | None = None,
    ) -> Artifact:
        """``store.make`` with the reporter told; ``place`` is the artifact's path below the run's folder."""

        def announced(folder: Path) -> None:
            self.reporter.stage(stage, place)
            build(folder)

        return store.make(
            (root or self.out) / place, stage, depends, announced, on_reuse=lambda: self.reporter.reused(stage, place)
        )


def write(path: Path, text: str) -> None:
    """Write a text file."""
    path.write_text(text)
