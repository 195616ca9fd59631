"""What an import says when it cannot: every refusal of a file at once, and the record of every accepted snap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Refusal:
    """One node of the source that integers cannot carry: its name, its operator, and the reason with the fix."""

    node: str
    op_type: str
    reason: str

    def __str__(self) -> str:
        return f"{self.node} ({self.op_type}): {self.reason}"


class ImportRefused(ValueError):
    """The file, or parts of it, cannot be an integer network; ``refusals`` lists all of it, in the graph's order."""

    refusals: tuple[Refusal, ...]

    def __init__(self, source: str, refusals: Sequence[Refusal]) -> None:
        self.refusals = tuple(refusals)
        many = "1 thing" if len(self.refusals) == 1 else f"{len(self.refusals)} things"
        lines = "\n".join(f"  {refusal}" for refusal in self.refusals)
        super().__init__(f"{source}: refused for {many} that integers cannot carry exactly:\n{lines}")


class Refuse(Exception):
    """Raised while reading one node; the reader turns it into a :class:`Refusal` and goes on past the node."""


@dataclass(frozen=True)
class Snap:
    """One rescale that was changed within the bound the user accepted.

    Attributes
    ----------
    node:
        The source's quantizer.
    scale_error:
        Largest relative change of the rescale's factor over its channels.
    bias_error:
        Largest change of a bias, in units of the accumulator.
    integers, of:
        How many integers of the proven interval (summed over channels) map to another level, of how many.
    levels:
        Largest difference between old and new level.
    """

    node: str
    scale_error: float
    bias_error: float
    integers: int
    of: int
    levels: int

    def __str__(self) -> str:
        return (
            f"{self.node}: scale changed by {self.scale_error:.1e} relative, bias by {self.bias_error:.2g} accumulator "
            f"units; {self.integers} of {self.of} integers map to another level, by {self.levels} at most"
        )
