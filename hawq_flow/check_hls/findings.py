"""What a preflight finds: one line for each node that stock hls4ml refuses, crashes on, or computes differently."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hawq_flow.check_hls.needs import Need

KINDS = ("refused", "crash", "wrong", "imprecise", "note")
"""The kinds of finding, worst first."""

REFUSED_REPAIR = "--repair refuses this file"
"""What a finding's fix says where the whole file cannot be repaired."""

BLOCKING = ("refused", "crash", "wrong")
"""Kinds that no setting of hls4ml mends."""


@dataclass(frozen=True)
class Finding:
    """One thing that stock hls4ml does with one node.

    Attributes
    ----------
    node:
        The node's name in the file; where it has none, its operator and number; for an input, the input's name.
    op_type:
        The node's operator; ``"Input"`` for an input of the graph.
    kind:
        ``"refused"``: hls4ml raises, and says why. ``"crash"``: an exception that does not say why, in hls4ml or in the
        conversion that it needs first, or generated C++ that stops. ``"wrong"``: it imports, and computes other
        numbers. ``"imprecise"``: bits are lost at the default precision. ``"note"``: worth knowing.
    reason:
        What hls4ml does, and on what.
    fix:
        What to do in the tool that wrote the file, and whether ``--repair`` does it.
    needs:
        For an imprecise node that precisions make exact: the default precision, ``fixed<W,I>``, that is enough for it
        and for all such nodes of the file, and holds all that the default holds. Else empty; the bits of the node
        itself stand in the reason.
    """

    node: str
    op_type: str
    kind: str
    reason: str
    fix: str
    needs: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"finding of {self.node}: kind {self.kind!r}; expected one of {', '.join(KINDS)}")
        if self.needs and not re.fullmatch(r"fixed<\d+,-?\d+>", self.needs):
            raise ValueError(f"finding of {self.node}: needs {self.needs!r}; expected fixed<W,I>")


def ready(findings: Sequence[Finding]) -> bool:
    """Whether stock hls4ml imports the file and computes its numbers, up to precisions (see :func:`precision`)."""
    return not any(finding.kind in BLOCKING for finding in findings)


def precision(findings: Sequence[Finding]) -> str | None:
    """The narrowest default precision at which no finding that a precision can mend is left; '' when the default does.

    None where some imprecise node is exact at no precision: a table, a scale whose inverse is no dyadic number, an
    input of which the file does not say the range.
    """
    imprecise = [finding for finding in findings if finding.kind == "imprecise"]
    if any(not finding.needs for finding in imprecise):
        return None
    return str(Need.together([Need.read(finding.needs) for finding in imprecise])) if imprecise else ""


def exact(findings: Sequence[Finding]) -> bool:
    """Whether stock hls4ml computes the file's numbers exactly, at its default precision or at :func:`precision`.

    It is what the exit status of ``hawq-flow check`` says: 0 if so, else 1.
    """
    return ready(findings) and precision(findings) is not None


def verdict(findings: Sequence[Finding]) -> str:
    """One sentence: whether stock hls4ml can be used on this file, and how; then the exit status that says so."""
    status = "exit status 0: exact" if exact(findings) else "exit status 1: not exact"
    return f"{_verdict(findings)} [{status}{' at that precision' if exact(findings) and precision(findings) else ''}]"


def _verdict(findings: Sequence[Finding]) -> str:
    counts = {kind: sum(finding.kind == kind for finding in findings) for kind in KINDS}
    blocking = [f"{counts[kind]} {kind}" for kind in BLOCKING if counts[kind]]
    if blocking:
        says = {"refused": "does not import", "crash": "fails", "wrong": "imports, and computes other numbers"}
        worst = next(kind for kind in BLOCKING if counts[kind])
        return f"not ready: stock hls4ml {says[worst]} ({', '.join(blocking)})"
    wanted = precision(findings)
    if wanted == "":
        return "ready: stock hls4ml imports it and computes its numbers"
    if wanted:
        return f"ready with default_precision={wanted!r}: at its default precision hls4ml loses bits"
    repair = "" if any(REFUSED_REPAIR in finding.fix for finding in findings) else ", or repair"
    return (
        f"imports, but is not exact at any default precision ({counts['imprecise']} imprecise): set precisions by hand "
        f"and compare{repair}"
    )


def _cell(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")


NAMED = 4
"""How many nodes a row names before it only counts."""


def _rows(findings: Sequence[Finding]) -> list[tuple[str, str, str, str, str]]:
    """Kind, nodes, operator, reason and fix, worst first; nodes of which all the rest is the same share a row."""
    nodes: dict[tuple[str, str, str, str], list[str]] = {}
    for finding in sorted(findings, key=lambda finding: KINDS.index(finding.kind)):
        nodes.setdefault((finding.kind, finding.op_type, finding.reason, finding.fix), []).append(finding.node)
    return [(kind, listed(names), op, reason, fix) for (kind, op, reason, fix), names in nodes.items()]


def listed(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def markdown(findings: Sequence[Finding]) -> str:
    """All findings as one Markdown table, worst first, under the verdict; what several nodes share is one row."""
    lines = [f"**{verdict(findings)}**"]
    if findings:
        lines += ["", "| kind | node | op | what hls4ml does | what to do |", "|---|---|---|---|---|"]
        lines += ["| " + " | ".join(_cell(text) for text in row) + " |" for row in _rows(findings)]
    return "\n".join(lines) + "\n"


def table(findings: Sequence[Finding]) -> str:
    """The same for a terminal: a line for each row, its fix indented under it, and the verdict last."""
    lines = []
    for kind, nodes, op_type, reason, fix in _rows(findings):
        lines += [f"{kind:<9}  {nodes} ({op_type}): {reason}", f"{'':<9}  -> {fix}"]
    return "\n".join([*lines, verdict(findings)]) + "\n"
