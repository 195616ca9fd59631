"""What a bundle is made of, before it is files: everything a run knows of one network, and which rows travel.

The rows of a bundle's vectors are the data's, and among them rows that data rarely are: drawn over the whole type, at
its ends, near zero (``prove.drawn``), and those that drive each sum of a first layer to its extremes. They stand behind
the first :data:`HEAD` rows of the data, so that whoever looks at some rows only sees both kinds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hawq_flow import equality, interpret
from hawq_flow.network import Dense, IntegerNetwork
from hawq_flow.numeric import FloatArray, IntArray
from hawq_flow.prove import drawn, prove
from hawq_flow.report import HlsReport
from hawq_flow.to_rtl import Rtl

LAYER_ROWS, LAYER_INTEGERS = 256, 2_000_000
"""How many rows of every layer travel by default: so many, or as few as keep all layers below so many integers."""
HEAD, DRAWN = 128, 1000
"""How many rows of the data stand before the drawn ones, and how many are drawn."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*\Z")


class HandoverError(RuntimeError):
    """A bundle that cannot be made, or that is not what it says; names the file, what was found and expected."""


@dataclass(frozen=True)
class Contents:
    """One network with all that is handed over of it.

    Attributes
    ----------
    name:
        The bundle's name, and its folder's: letters, digits, ``_``, ``.``, ``-``.
    network:
        What everything else was made from.
    rows:
        Input integers of the data by input, (n, *shape): the test set. Outputs travel for all of them.
    drawn:
        How many rows are drawn beside them, to reach what the data may not.
    raw:
        The raw data that ``rows`` were made from (n, *shape), where it is known and there is one input.
    qonnx, onnx:
        The network's models as files' bytes.
    projects:
        hls4ml projects by back end.
    rtl, without_rtl:
        The Verilog design where it is wholly unrolled; else None, and why.
    certificate, coverage:
        What proved the representations equal, on all rows.
    plan, result:
        The bit plan and the measured quality, where known.
    reports:
        Figures of hardware, of whatever stage.
    part, clock_period_ns:
        The device and the clock it was made for.
    layer_rows:
        How many of the rows travel with every layer's integers; None: as many as :data:`LAYER_ROWS` and
        :data:`LAYER_INTEGERS` allow.
    """

    name: str
    network: IntegerNetwork
    rows: Mapping[str, IntArray]
    certificate: Mapping[str, Any]
    coverage: Mapping[str, Any]
    qonnx: bytes
    onnx: bytes
    part: str
    clock_period_ns: float
    raw: FloatArray | None = None
    projects: Mapping[str, Path] = field(default_factory=dict)
    rtl: Rtl | None = None
    without_rtl: str = "not asked for"
    plan: Mapping[str, Any] | None = None
    result: Mapping[str, Any] | None = None
    reports: tuple[HlsReport, ...] = ()
    layer_rows: int | None = None
    drawn: int = DRAWN

    def __post_init__(self) -> None:
        if not _NAME.match(self.name):
            raise HandoverError(
                f"handover: name {self.name!r}; expected a letter, then letters, digits, '_', '.' and '-': it becomes "
                "a folder's name"
            )
        object.__setattr__(self, "rows", interpret.check_inputs(self.network, self.rows))
        if not self.data_rows:
            raise HandoverError(f"handover: {self.name}: no rows; vectors that compare nothing prove nothing")
        if self.layer_rows is not None and self.layer_rows < 1:
            raise HandoverError(f"handover: layer_rows {self.layer_rows}; expected 1 or more")
        if self.rtl is not None and self.rtl.network != self.network.digest:
            raise HandoverError(
                f"handover: {self.name}: the Verilog is of the network {self.rtl.network[:12]}, the bundle's is "
                f"{self.network.digest[:12]}; generate it again"
            )
        if self.rtl is not None and self.rtl.text is None:
            raise HandoverError(
                f"handover: {self.name}: this design is not wholly unrolled, so it has no top to simulate; leave it out"
            )

    @property
    def data_rows(self) -> int:
        """Rows of the data."""
        return len(next(iter(self.rows.values())))

    @cached_property
    def vectors(self) -> dict[str, IntArray]:
        """The rows of the bundle by input, (n, *shape): data, drawn ones, data again."""
        more = _stress(self.network, self.drawn)
        return {name: np.concatenate([rows[:HEAD], more[name], rows[HEAD:]]) for name, rows in self.rows.items()}

    @property
    def count(self) -> int:
        """Rows in all."""
        return len(next(iter(self.vectors.values())))

    @property
    def parts(self) -> list[dict[str, Any]]:
        """Which rows are what: ``rows`` [from, to), ``of`` "data" or "drawn", and the first row of the data."""
        head, drawn = min(HEAD, self.data_rows), self.count - self.data_rows
        found: list[dict[str, Any]] = [{"rows": [0, head], "of": "data", "first": 0}]
        if drawn:
            found.append({"rows": [head, head + drawn], "of": "drawn"})
        if self.data_rows > head:
            found.append({"rows": [head + drawn, self.count], "of": "data", "first": head})
        return found

    @cached_property
    def covered(self) -> dict[str, dict[str, int]]:
        """What the vectors exercise, by value: see ``coverage.py``."""
        network = self.network
        _, counts = prove(network, self.vectors, lambda rows: {"interpreter": equality.reference_backend(network)}, {})
        return {name: entry.to_dict() for name, entry in counts.items()}

    @cached_property
    def layers(self) -> int:
        """How many rows travel with every layer's integers."""
        if self.layer_rows is not None:
            return min(self.layer_rows, self.count)
        values = self.network.values
        each = sum(int(np.prod(values[op.name].shape)) for op in self.network.ops)
        return max(1, min(self.count, LAYER_ROWS, LAYER_INTEGERS // max(each, 1)))

    @cached_property
    def outputs(self) -> dict[str, IntArray]:
        """What the network gives for all rows, by output, (n, elements)."""
        found = interpret.outputs(self.network, self.vectors)
        return {name: array.reshape(len(array), -1) for name, array in found.items()}

    @cached_property
    def traced(self) -> dict[str, IntArray]:
        """Every value for the first :attr:`layers` rows, (n, elements), inputs included, in the network's order."""
        found = interpret.trace(self.network, {name: array[: self.layers] for name, array in self.vectors.items()})
        return {name: array.reshape(len(array), -1) for name, array in found.items()}

    @property
    def classes(self) -> list[str]:
        """Names of the classes, where the network is a classifier that knows them."""
        known = json.loads(dict(self.network.metadata).get("classes", "[]"))
        outputs = self.network.outputs
        if len(outputs) != 1 or int(np.prod(self.network.values[outputs[0].name].shape)) != len(known):
            return []
        return [str(name) for name in known]

    @property
    def features(self) -> list[str]:
        """Names of the input's elements, where they are known one by one."""
        known = json.loads(dict(self.network.metadata).get("features", "[]"))
        inputs = self.network.inputs
        return [str(name) for name in known] if len(inputs) == 1 and inputs[0].shape == (len(known),) else []


def _stress(network: IntegerNetwork, rows: int) -> dict[str, IntArray]:
    """Drawn rows by input, and behind them those at which sums of layers that read an input are least and largest."""
    found = drawn(network, rows)
    if not rows:
        return found
    for op in network.ops:
        for spec in network.inputs:
            if isinstance(op, Dense) and op.input == spec.name:
                low, high = spec.type.low(), spec.type.high()
                ends = [np.where(op.weight > 0, *pair) for pair in ((high, low), (low, high))]
                others = {
                    other.name: np.zeros((2 * len(op.weight), *other.shape), np.int64) for other in network.inputs
                }
                extremes = others | {spec.name: np.concatenate(ends)}
                found = {name: np.concatenate([array, extremes[name]]) for name, array in found.items()}
    return found
