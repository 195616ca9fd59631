"""A dump against the interpreter: the first difference in the order of computation, and how many each signal has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from hawq_flow.interpret import check_inputs
from hawq_flow.network import IntegerNetwork
from hawq_flow.numeric import IntArray
from hawq_flow.trace.memories import ROLES, as_signals
from hawq_flow.trace.reading import Dumped, dumpable, read
from hawq_flow.trace.tracing import Signal, TraceError, blocks, signals


def _of(part: int, whole: int) -> str:
    return f"{part:,}" if part == whole else f"{part:,} of {whole:,}"


@dataclass(frozen=True)
class Difference:
    """One element that differs: signal, row, index inside the signal (batch excluded, channels first), integers."""

    signal: Signal
    row: int
    element: tuple[int, ...]
    got: int
    expected: int

    def __str__(self) -> str:
        op = "" if self.signal.name == self.signal.op else f" of op {self.signal.op}"
        return (
            f"{self.signal.name} ({self.signal.role}{op}, {self.signal.kind}), row {self.row}, element "
            f"{list(self.element)}: got {self.got}, expected {self.expected}"
        )


@dataclass(frozen=True)
class Compared:
    """One signal of a dump: rows (of so many) and elements compared, how many differ, the first that does, its file."""

    signal: Signal
    rows: int
    of: int
    elements: int
    differ: int
    first: Difference | None
    source: str


@dataclass(frozen=True)
class Comparison:
    """A dump against the interpreter.

    Attributes
    ----------
    rows:
        Rows of the inputs it was compared on; 0 where it holds constants alone.
    compared:
        Every signal of the dump, in the order of computation; constants stand before their op, with one row.
    left_out:
        Signals the dump does not hold; and constants, if it holds any.
    foreign:
        Index files that name another network than this, each with the digest that it names.
    """

    rows: int
    compared: tuple[Compared, ...]
    left_out: tuple[str, ...]
    foreign: tuple[tuple[str, str], ...] = ()

    @property
    def equal(self) -> bool:
        """Whether everything that was compared agrees."""
        return not any(entry.differ for entry in self.compared)

    @property
    def first(self) -> Difference | None:
        """The first difference: of the first signal that differs, in its first row."""
        return next((entry.first for entry in self.compared if entry.first is not None), None)

    @property
    def elements(self) -> int:
        """Elements compared."""
        return sum(entry.elements for entry in self.compared)

    def markdown(self) -> str:
        """The verdict, a table with a row a signal, and what was not compared."""
        first = self.first
        differ = sum(entry.differ for entry in self.compared)
        constants = sum(entry.signal.role in ROLES for entry in self.compared)
        verdict = (
            f"Equal: {self.elements:,} elements of {len(self.compared) - constants} signals and {constants} constants."
            if first is None
            else f"**{differ:,} of {self.elements:,} elements differ. First: {first}.**"
        )
        lines = [
            verdict,
            "",
            "| signal | op | kind | role | rows | elements compared | differ | first difference |",
            "|---|---|---|---|---:|---:|---:|---|",
        ]
        for entry in self.compared:
            s, found = entry.signal, entry.first
            at = "" if found is None else f"row {found.row}, {list(found.element)}: {found.got}, not {found.expected}"
            rows, elements = _of(entry.rows, entry.of), _of(entry.elements, entry.of * s.elements)
            lines.append(f"| {s.name} | {s.op} | {s.kind} | {s.role} | {rows} | {elements} | {entry.differ:,} | {at} |")
        part = [entry.signal.name for entry in self.compared if entry.elements < entry.of * entry.signal.elements]
        lines += ["", f"Not compared, for the dump lacks them: {', '.join(self.left_out) or 'no signal'}."]
        lines.append(f"Compared in part, as the table says: {', '.join(part) or 'no signal'}.")
        lines += [f"Made of another network, {digest[:16]}, as {source} says." for source, digest in self.foreign]
        return "\n".join(lines) + "\n"


def compare(
    network: IntegerNetwork,
    x: ArrayLike | Mapping[str, ArrayLike] | None,
    dump: Path | str,
    *,
    order: str = "channels_first",
    elements_per_word: int | None = None,
) -> Comparison:
    """Compare a dump with the interpreter on the same inputs.

    Parameters
    ----------
    x:
        Integers (n, *input shape), or by name. None: the dump holds the inputs itself, or constants alone.
    dump, order, elements_per_word:
        As for :func:`hawq_flow.trace.reading.read`. Row i of the dump is row i of ``x``.

    Raises
    ------
    TraceError, ImageError
        If the dump does not belong to the network, has rows beyond those of ``x``, or lacks the inputs when none are
        given.
    NetworkError
        If the inputs are not the network's.
    """
    found = read(network, dump, order=order, elements_per_word=elements_per_word)
    constants = as_signals(network)
    shown = [name for name in found if name not in constants]
    tallies = {name: _Tally(entry, 1) for name, entry in found.items() if name in constants}
    for name, tally in tallies.items():
        _within(tally.entry, 1, "a constant has one row, 0")
        tally.add(slice(0, 1), constants[name].low[None])
    total = 0
    if shown:
        inputs = check_inputs(network, _inputs(network, found, dump) if x is None else x)
        total = len(next(iter(inputs.values())))
        for name in shown:
            few = f"the inputs have {total:,} rows, counted from 0: give the inputs that the dump was made of"
            _within(found[name], total, few)
            tallies[name] = _Tally(found[name], total)
        needed = max((int(found[name].rows.max()) + 1 for name in shown if found[name].rows.size), default=1)
        for part, block in blocks(network, {name: array[:needed] for name, array in inputs.items()}):
            for name in shown:
                tallies[name].add(part, block[name])
    wanted = dumpable(network) if len(shown) < len(found) else signals(network)
    claims = dict.fromkeys(entry.claim for entry in found.values())
    return Comparison(
        total,
        tuple(tallies[name].result() for name in found),
        tuple(name for name in wanted if name not in found),
        tuple(claim for claim in claims if claim is not None and claim[1] != network.digest),
    )


def _within(entry: Dumped, rows: int, few: str) -> None:
    """``TraceError`` when a dump has a row beyond those there are."""
    most = int(entry.rows.max()) if entry.rows.size else -1
    if most >= rows:
        raise TraceError(f"{entry.source}: {entry.signal.name} has a row {most}; {few}")


def _inputs(network: IntegerNetwork, found: Mapping[str, Dumped], dump: Path | str) -> dict[str, IntArray]:
    """The inputs that a dump holds: its leading rows that are whole."""
    result = {}
    for spec in network.inputs:
        entry = found.get(spec.name)
        if entry is None or entry.given is not None or not np.array_equal(entry.rows, np.arange(len(entry.rows))):
            raise TraceError(
                f"{dump}: does not hold input {spec.name!r} whole, row by row from 0; give the inputs with --data"
            )
        result[spec.name] = entry.values.reshape(-1, *spec.shape)
    return result


class _Tally:
    """The differences of one signal, block after block."""

    def __init__(self, entry: Dumped, rows: int) -> None:
        self.entry, self.rows = entry, rows
        self.differ = 0
        self.first: Difference | None = None

    def add(self, part: slice, expected: IntArray) -> None:
        entry = self.entry
        start, stop = np.searchsorted(entry.rows, [part.start, part.stop])
        rows = entry.rows[start:stop]
        if not len(rows):
            return
        want = expected.reshape(len(expected), -1)[rows - part.start]
        wrong = entry.values[start:stop] != want
        if entry.given is not None:
            wrong &= entry.given[start:stop]
        count = int(wrong.sum())
        self.differ += count
        if count and self.first is None:
            at, element = (int(i) for i in np.argwhere(wrong)[0])
            index = tuple(int(i) for i in np.unravel_index(element, entry.signal.shape))
            got, right = int(entry.values[start + at, element]), int(want[at, element])
            self.first = Difference(entry.signal, int(rows[at]), index, got, right)

    def result(self) -> Compared:
        entry = self.entry
        elements = entry.values.size if entry.given is None else int(entry.given.sum())
        return Compared(entry.signal, len(entry.rows), self.rows, elements, self.differ, self.first, entry.source)
