"""What a proof says: its claims, module by module, each proved, refuted by a row of inputs, or not finished."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Verdict(enum.Enum):
    """How a claim ended."""

    PROVED = "proved"
    REFUTED = "refuted"
    UNFINISHED = "not finished"


@dataclass(frozen=True)
class Claim:
    """One claim about one module, or the top.

    Attributes
    ----------
    module, claim:
        "RTL = network", "netlist = RTL" or, of the top, "top = network".
    verdict, method, reason:
        ``reason`` says what was found, or why it is not finished.
    proved, outputs:
        Output elements that are proved, and all.
    seconds:
        Wall clock.
    counterexample:
        Refuted: the module's input integers by value, flat, and the first element that differs with both integers.
    """

    module: str
    claim: str
    verdict: Verdict
    method: str
    reason: str
    proved: int
    outputs: int
    seconds: float
    counterexample: dict[str, list[int]] | None = None


@dataclass(frozen=True)
class Proof:
    """All claims about a design, by module; ``network`` is the network's digest."""

    network: str
    claims: tuple[Claim, ...]

    @property
    def ok(self) -> bool:
        """Whether every claim is proved, and there is one."""
        return bool(self.claims) and all(claim.verdict is Verdict.PROVED for claim in self.claims)

    @property
    def refuted(self) -> tuple[Claim, ...]:
        """Claims with a counterexample."""
        return tuple(claim for claim in self.claims if claim.verdict is Verdict.REFUTED)

    def markdown(self) -> str:
        """The claims as a table, with a final newline."""
        lines = ["| module | claim | verdict | outputs | method | seconds |", "|---|---|---|---|---|---|"]
        for c in self.claims:
            said = c.verdict.value + (f": {c.reason}" if c.reason else "")
            lines.append(
                f"| {c.module} | {c.claim} | {said} | {c.proved} of {c.outputs} | {c.method} | {c.seconds:.1f} |"
            )
        return "\n".join([*lines, ""])
