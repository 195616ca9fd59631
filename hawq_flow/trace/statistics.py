"""Statistics of signals over rows: ranges used and proven, what saturation cut, how roundings fell.

``saturated`` counts results beyond the type of an output (or of a declared accumulator) that were brought back into
it, by clipping or by wrapping, as ``overflow`` says; ``rectified`` counts, apart, the negative ones that an unsigned
type with zero point 0 made 0 (ReLU): the two rules of ``coverage``. Of a rounding, ``exact + up + down`` are all
elements; ``ties`` lay exactly between two integers, and are among ``up`` and ``down``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from hawq_flow import coverage
from hawq_flow.coverage import Coverage
from hawq_flow.network import Conv, Dense, IntegerNetwork, Requantize
from hawq_flow.numeric import IntArray
from hawq_flow.trace.tracing import Signal, TraceError, blocks, signals


@dataclass(frozen=True, eq=False)
class Rounded:
    """How the roundings of a requantization fell."""

    mode: str
    exact: int
    up: int
    down: int
    ties: int


@dataclass(frozen=True, eq=False)
class Statistics:
    """What was seen of one signal.

    Attributes
    ----------
    elements:
        Elements seen: rows times elements a row.
    least, most:
        Smallest and largest integer of every element over the rows; int64, the signal's shape.
    zeros:
        Elements that are 0.
    overflow, saturated, rectified:
        Of an output with a declared type: ``saturate`` or ``wrap``, and how many results were brought back into it.
        None where nothing can be cut.
    rounded:
        Of a ``rounded`` step; None elsewhere.
    covered:
        Of a value: what ``coverage`` counts of it; None of a step.
    """

    signal: Signal
    elements: int
    least: IntArray
    most: IntArray
    zeros: int
    overflow: str | None = None
    saturated: int | None = None
    rectified: int | None = None
    rounded: Rounded | None = None
    covered: Coverage | None = None

    def to_dict(self) -> dict[str, Any]:
        """One row of the table: plain numbers and text, None where a count has no meaning."""
        signal, rounded, scale = self.signal, self.rounded, self.signal.scale
        covered = self.covered
        return {
            "signal": signal.name,
            "op": signal.op,
            "kind": signal.kind,
            "layer": signal.layer,
            "role": signal.role,
            "operands": " ".join(signal.operands),
            "shape": "x".join(map(str, signal.shape)),
            "type": signal.type,
            "bits": signal.bits,
            "signed": signal.signed,
            "elements": self.elements,
            "least": int(self.least.min()),
            "most": int(self.most.max()),
            "proven_low": int(signal.low.min()),
            "proven_high": int(signal.high.max()),
            "zeros": self.zeros,
            "distinct": None if covered is None else covered.distinct,
            "at_ends": None if covered is None else covered.ends,
            "overflow": self.overflow,
            "saturated": self.saturated,
            "rectified": self.rectified,
            "rounding": None if rounded is None else rounded.mode,
            "exact": None if rounded is None else rounded.exact,
            "rounded_up": None if rounded is None else rounded.up,
            "rounded_down": None if rounded is None else rounded.down,
            "ties": None if rounded is None else rounded.ties,
            "scale": None if scale is None else _numbers(scale.scale),
            "zero_point": None if scale is None else _numbers(scale.zero_point),
            "scale_from": "unknown" if scale is None else scale.source,
        }


def _numbers(array: Any) -> str:
    """One number, or those of all channels separated by blanks, each as text that reads back as itself."""
    return " ".join(map(repr, np.asarray(array).ravel().tolist()))


class Tally:
    """Counts of all signals, block after block."""

    def __init__(self, network: IntegerNetwork) -> None:
        self.network = network
        self.signals = signals(network)
        self.least: dict[str, IntArray] = {}
        self.most: dict[str, IntArray] = {}
        self.elements = dict.fromkeys(self.signals, 0)
        self.zeros = dict.fromkeys(self.signals, 0)
        self.roundings: dict[str, IntArray] = {}
        self.cut: dict[str, int] = {}
        self.covered: dict[str, Coverage] = {}

    def add(self, block: Mapping[str, IntArray]) -> None:
        """Count one block: every signal by name, int64 (n, *shape), n >= 1."""
        for name, array in block.items():
            least, most = array.min(axis=0), array.max(axis=0)
            known = name in self.least
            self.least[name] = np.minimum(self.least[name], least) if known else least
            self.most[name] = np.maximum(self.most[name], most) if known else most
            self.elements[name] += array.size
            self.zeros[name] += array.size - int(np.count_nonzero(array))
        counts = coverage.count(self.network, block)
        self.covered = coverage.merge([self.covered, counts]) if self.covered else counts
        for op in self.network.ops:
            match op:
                case Requantize():
                    product, rounded = block[f"{op.name}.product"], block[f"{op.name}.rounded"]
                    back = (rounded - op.offset) << op.shift
                    found = np.array([(back == product).sum(), (back > product).sum(), (back < product).sum()])
                    self.roundings[op.name] = self.roundings.get(op.name, 0) + found
                case Dense() | Conv() if op.accumulator is not None:
                    sums, rank = block[f"{op.name}.accumulator"], op.weight.ndim - 1
                    beyond = (sums < op.accumulator.low(rank)) | (sums > op.accumulator.high(rank))
                    self.cut[op.name] = self.cut.get(op.name, 0) + int(beyond.sum())

    def result(self) -> dict[str, Statistics]:
        """The statistics by signal."""
        if not self.least:
            raise TraceError("trace: 0 rows were counted; give at least one")
        return {name: self._one(signal) for name, signal in self.signals.items()}

    def _one(self, signal: Signal) -> Statistics:
        name = signal.name
        more: dict[str, Any] = {"covered": self.covered.get(name)}
        if signal.kind != "Input":
            op = self.network.op(signal.op)
            if isinstance(op, Requantize) and signal.role == "rounded":
                exact, up, down = self.roundings[op.name].tolist()
                more["rounded"] = Rounded(op.rounding.value, exact, up, down, self.covered[op.name].ties)
            if isinstance(op, Requantize) and signal.role == "output":
                found = self.covered[name]
                more |= {
                    "overflow": op.overflow.value,
                    "saturated": found.saturated,
                    "rectified": found.rectified,
                }
            if isinstance(op, Dense | Conv) and op.accumulator is not None and signal.role == "output":
                more |= {"overflow": op.overflow.value, "saturated": self.cut[name], "rectified": 0}
        return Statistics(signal, self.elements[name], self.least[name], self.most[name], self.zeros[name], **more)


def values(network: IntegerNetwork, x: ArrayLike | Mapping[str, ArrayLike]) -> dict[str, Statistics]:
    """Statistics of every signal over all rows, in the network's order; rows are taken block by block.

    Parameters
    ----------
    x:
        Integers (n, *input shape), n >= 1, or by name; as for ``interpret.run``.

    Raises
    ------
    NetworkError
        If the inputs are not the network's, or there are none.
    """
    tally = Tally(network)
    for _, block in blocks(network, x):
        tally.add(block)
    return tally.result()


def frame(found: Mapping[str, Statistics]) -> pd.DataFrame:
    """The statistics as a table, a row a signal; counts without a meaning are missing, and stay integers."""
    table = pd.DataFrame([entry.to_dict() for entry in found.values()])
    counts = ["distinct", "at_ends", "saturated", "rectified", "exact", "rounded_up", "rounded_down", "ties"]
    texts = ["overflow", "rounding", "scale", "zero_point"]
    return table.astype(dict.fromkeys(counts, "Int64") | dict.fromkeys(texts, "string"))


def markdown(found: Mapping[str, Statistics]) -> str:
    """The statistics as a Markdown table, a row a signal."""
    lines = [
        "| signal | type | used | proven | saturated | rectified | exact | up | down | ties | scale |",
        "|---|---|---|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    for entry in found.values():
        signal, rounded = entry.signal, entry.rounded
        cut = ["" if count is None else f"{count:,}" for count in (entry.saturated, entry.rectified)]
        fell = (
            [""] * 4 if rounded is None else [f"{n:,}" for n in (rounded.exact, rounded.up, rounded.down, rounded.ties)]
        )
        known = "unknown"
        if signal.scale is not None:
            many = signal.scale.scale.size > 1
            known = f"{signal.scale.scale.size} by channel" if many else f"{float(signal.scale.scale.item()):g}"
        used = f"{int(entry.least.min()):,} to {int(entry.most.max()):,}"
        proven = f"{int(signal.low.min()):,} to {int(signal.high.max()):,}"
        lines.append(f"| {signal.name} | {signal.type} | {used} | {proven} | {' | '.join([*cut, *fell])} | {known} |")
    return "\n".join(lines) + "\n"
