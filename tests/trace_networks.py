"""A small network with a bit of everything that a trace shows, its inputs, and dumps of it to be spoilt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from hawq_flow import images, store, trace
from hawq_flow.images import ImageError
from hawq_flow.network import (
    Add,
    Conv,
    Dense,
    InputSpec,
    IntegerNetwork,
    Lookup,
    MaxPool,
    OutputSpec,
    Pad,
    Requantize,
    Reshape,
)
from hawq_flow.numeric import IntType, Overflow, Rounding
from hawq_flow.trace import TraceError

ROWS = 6
"""Rows that :func:`write_all` dumps."""


def mixed() -> IntegerNetwork:
    """(2, 4, 5) -> 3: groups, a declared accumulator of each kind, every rounding, widths by channel, a table."""
    rng = np.random.default_rng(3)
    draw = rng.integers
    one, zero = np.asarray(1), np.asarray(0)
    by_channel = np.array([5, 3, 1, 7]).reshape(4, 1, 1)
    ops = (
        Pad("edge", "x", (1, 0, 0, 1), 2),
        Conv("conv", "edge", draw(-7, 8, (4, 1, 2, 3)), draw(-9, 9, 4), (1, 2), (0, 1, 1, 0), 2, layer="features.0"),
        Requantize("conv_requant", "conv", by_channel, np.asarray(4), zero, IntType((3, 4, 5, 3), False)),
        MaxPool("pool", "conv_requant", (2, 1), (2, 1), (0,) * 4),
        Reshape("flat", "pool", (int(np.prod((4, 2, 3))),)),
        Requantize("scaled", "flat", np.asarray(3), one, zero, IntType(5, False), Rounding.HALF_UP),
        Dense("fc", "scaled", draw(-3, 4, (5, 24)), draw(-9, 9, 5), IntType(7, True), layer="fc"),
        Dense("side", "scaled", draw(-3, 4, (5, 24)), draw(-9, 9, 5), IntType(6, True), Overflow.WRAP),
        Add("both", ("fc", "side")),
        Requantize("small", "both", one, one, np.asarray(1), IntType(4, True, True), Rounding.FLOOR, Overflow.SATURATE),
        Lookup("tanh", "small", draw(-100, 100, 15), -7, "tanh", scales=(0.25, 0, 0.01, 0)),
        Dense("head", "tanh", draw(-3, 4, (3, 5)), draw(-9, 9, 3)),
        Requantize("head_requant", "head", np.asarray(-3), one, zero, IntType(6, True), overflow=Overflow.WRAP),
    )
    spec = InputSpec(
        "x",
        (2, 4, 5),
        IntType(5, True),
        np.asarray(0.125),
        np.asarray(2),
        np.array([1.0, -2.0]).reshape(2, 1, 1),
        np.array([2.0, 0.5]).reshape(2, 1, 1),
    )
    return IntegerNetwork((spec,), ops, (OutputSpec("head_requant", np.asarray(0.5), np.asarray(1)),))


def inputs(network: IntegerNetwork, rows: int, seed: int = 0) -> NDArray[Any]:
    """Integers over the whole type of the one input."""
    spec = network.inputs[0]
    return np.random.default_rng(seed).integers(*spec.type.range, (rows, *spec.shape), endpoint=True)


def write_all(network: IntegerNetwork, folder: Path) -> Path:
    """A trace of 11 rows in every form, three elements a word, tiles of 2 x 3."""
    trace.write(network, inputs(network, 11), folder, trace.Options(trace.FORMS, ROWS, 3, (2, 3)))
    return folder


def plant(folder: Path, form: str, signal: Any, row: int, element: int, value: int) -> None:
    """Change one integer of a dump."""
    if form == "npz":
        arrays = store.load_arrays(folder / "trace.npz")
        arrays[signal.name].reshape(-1, signal.elements)[row, element] = value
        store.save_arrays(folder / "trace.npz", arrays)
    elif form in ("csv", "parquet"):
        path = folder / f"elements.{form}"
        table = pd.read_csv(path) if form == "csv" else pd.read_parquet(path)
        where = (table["signal"] == signal.name) & (table["row"] == row) & (table["element"] == element)
        assert where.sum() == 1
        table.loc[where, "value"] = value
        table.to_csv(path, index=False) if form == "csv" else table.to_parquet(path)
    else:
        path = folder / "vectors" / f"{signal.name}.{form}"
        entry = next(e for e in json.loads((path.parent / "index.json").read_text())["files"] if e["file"] == path.name)
        lines = path.read_text().splitlines()
        if form == "txt":
            fields = lines[row].split()
            fields[element] = str(value)
            lines[row] = " ".join(fields)
        else:
            packed, radix = entry["elements_per_word"], images.RADIX[form]
            at = row * -(-signal.elements // packed) + element // packed
            shift = (element % packed) * signal.bits
            bits = int(lines[at], radix) & ~(((1 << signal.bits) - 1) << shift)
            bits |= (value % (1 << signal.bits)) << shift
            lines[at] = f"{bits:x}" if form == "hex" else f"{bits:b}"
        path.write_text("\n".join(lines) + "\n")


def refused(network: IntegerNetwork, path: Path, said: str, x: Any = None, lines: str | None = None) -> None:
    if lines is not None:
        path.write_text(f"row,signal,element,value\n{lines}\n")
    rows = inputs(network, 11) if x is None else x
    with pytest.raises((TraceError, ImageError)) as error:
        trace.compare(network, rows, path)
    assert said in str(error.value)
    assert str(path) in str(error.value) or str(path.parent) in str(error.value)
