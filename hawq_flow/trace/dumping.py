"""Everything of a network on given rows, as one artifact: statistics of all rows, dumps of the first, constants.

docs/trace.md has the folder's layout. What is dumped is held in files while it is gathered, block by block, so that
many rows of a large network need no memory.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import ArrayLike

from hawq_flow import store
from hawq_flow.interpret import check_inputs
from hawq_flow.network import IntegerNetwork
from hawq_flow.numeric import IntArray
from hawq_flow.trace import drifting, vectors
from hawq_flow.trace.figures import drift_figure, save
from hawq_flow.trace.memories import fill_images
from hawq_flow.trace.reading import CONSTANTS, NPZ, TABLE, VECTORS
from hawq_flow.trace.statistics import Statistics, Tally, frame
from hawq_flow.trace.statistics import markdown as statistics_markdown
from hawq_flow.trace.tracing import Signal, TraceError, blocks, signals

FORMAT, VERSION = "hawq_flow.trace", 1
INDEX = "trace.json"
FORMS = ("npz", "csv", "parquet", *vectors.FORMS)
CHUNK = 1 << 18
"""Rows of the table of elements that are written at once."""


@dataclass(frozen=True)
class Options:
    """What :func:`write` puts into the folder.

    Attributes
    ----------
    forms:
        Dumps of the integers: ``npz``, ``csv`` and ``parquet`` (tidy, an integer a row), ``hex``, ``bin`` and ``txt``.
    rows:
        First rows that are dumped; statistics are of all.
    elements_per_word:
        Of images; None: signals as :func:`hawq_flow.trace.vectors.per_word` chooses, constants one.
    tile:
        (rows, columns) of a MAC array that weights are also cut for.
    """

    forms: tuple[str, ...] = ("npz", "hex")
    rows: int = 64
    elements_per_word: int | None = None
    tile: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        unknown = [form for form in self.forms if form not in FORMS]
        if unknown:
            raise TraceError(f"forms {', '.join(unknown)}; expected some of {', '.join(FORMS)}")
        sizes = {"rows": self.rows, "elements_per_word": self.elements_per_word}
        sizes |= dict(zip(("rows of a tile", "columns of a tile"), self.tile or (), strict=False))
        for name, value in sizes.items():
            if value is not None and value < 1:
                raise TraceError(f"{name} {value}; expected 1 or more")


def write(
    network: IntegerNetwork,
    x: ArrayLike | Mapping[str, ArrayLike],
    folder: Path | str,
    options: Options = Options(),
    *,
    against: ArrayLike | Mapping[str, ArrayLike] | None = None,
) -> store.Artifact:
    """Write a trace; the folder is absent or whole, and the same bytes when made twice.

    Parameters
    ----------
    x:
        Integers (n, *input shape), n >= 1, or by name.
    folder:
        An older trace there is replaced, or kept when it was made of the same; a folder of other things is refused.
    against:
        Inputs that ``x`` is held against: adds the tables and the figure of the drift from them to ``x``.

    Returns
    -------
    The artifact: the folder and its manifest.

    Raises
    ------
    NetworkError
        If the inputs are not the network's.
    StoreError
        If the folder holds something else.
    """
    inputs = check_inputs(network, x)
    old = None if against is None else check_inputs(network, against)

    def build(place: Path) -> None:
        _fill(network, inputs, place, options, old)

    depends = {
        "network": network.digest,
        "inputs": _digests(inputs),
        "against": None if old is None else _digests(old),
        "options": options,
        "code": store.code_digest("trace"),
        "versions": store.versions("numpy", "pandas", "pyarrow", "matplotlib"),
    }
    return store.make(Path(folder), "trace", depends, build)


def _digests(inputs: Mapping[str, IntArray]) -> dict[str, Any]:
    return {name: [*array.shape, hashlib.sha256(array.tobytes()).hexdigest()] for name, array in inputs.items()}


def _fill(
    network: IntegerNetwork,
    inputs: Mapping[str, IntArray],
    folder: Path,
    options: Options,
    old: Mapping[str, IntArray] | None,
) -> None:
    found = signals(network)
    total = len(next(iter(inputs.values())))
    rows = min(options.rows, total) if options.forms else 0
    before = None if old is None else drifting.observe(network, old)
    tally, seen = Tally(network), None if before is None else drifting.Observer(network, before)
    with tempfile.TemporaryDirectory(prefix="hawq_flow-trace-") as work:
        kept = {
            name: np.lib.format.open_memmap(Path(work) / f"{name}.npy", "w+", np.int64, (rows, signal.elements))
            for name, signal in found.items()
            if rows
        }
        for part, block in blocks(network, inputs):
            tally.add(block)
            if seen is not None:
                seen.add(block)
            for name, array in kept.items():
                some = block[name][: max(0, rows - part.start)]
                array[part.start : part.start + len(some)] = some.reshape(len(some), found[name].elements)
        _dump(network, found, kept, folder, options.forms, options.elements_per_word)
    statistics = tally.result()
    table = frame(statistics)
    table.to_csv(folder / "values.csv", index=False, lineterminator="\n")
    table.to_parquet(folder / "values.parquet", index=False)
    (folder / "values.md").write_text(statistics_markdown(statistics))
    constants = folder / CONSTANTS
    constants.mkdir()
    fill_images(network, constants, options.tile, elements_per_word=options.elements_per_word or 1)
    _index(network, statistics, folder, total, rows, options)
    if before is not None and seen is not None:
        write_drift(drifting.drift(network, before, seen.result(statistics)), folder)


def _dump(
    network: IntegerNetwork,
    found: Mapping[str, Signal],
    kept: Mapping[str, IntArray],
    folder: Path,
    forms: Sequence[str],
    elements_per_word: int | None,
) -> None:
    """The dumps, signal by signal from what was kept."""
    if "npz" in forms:
        store.save_arrays(folder / NPZ, {name: array.reshape(-1, *found[name].shape) for name, array in kept.items()})
    images = [form for form in forms if form in vectors.FORMS]
    if images:
        vectors.write(folder / VECTORS, network.digest, found, kept, images, elements_per_word)
    for form in ("csv", "parquet"):
        if form not in forms:
            continue
        path = folder / f"{TABLE}.{form}"
        writer = (
            pa.csv.CSVWriter(path, SCHEMA, write_options=pa.csv.WriteOptions(quoting_style="needed"))
            if form == "csv"
            else pa.parquet.ParquetWriter(path, SCHEMA)
        )
        with writer:
            for name, array in kept.items():
                for batch in _batches(found[name], array):
                    writer.write(batch)


SCHEMA = pa.schema(
    [
        ("row", pa.int64()),
        ("signal", pa.string()),
        ("element", pa.int64()),
        ("index", pa.string()),
        ("value", pa.int64()),
    ]
)
"""Columns of the table of elements: row, signal, flat element, its index as text ("3 0 7"), integer."""


def _batches(signal: Signal, array: IntArray) -> Iterator[pa.Table]:
    indices = np.array([" ".join(map(str, index)) for index in np.ndindex(signal.shape)])
    elements = np.arange(signal.elements)
    step = max(1, CHUNK // signal.elements)
    for start in range(0, len(array), step):
        some = np.asarray(array[start : start + step])
        rows = np.repeat(np.arange(start, start + len(some)), signal.elements)
        columns = [
            pa.array(rows),
            pa.array([signal.name] * some.size, pa.string()),
            pa.array(np.tile(elements, len(some))),
            pa.array(np.tile(indices, len(some))),
            pa.array(some.ravel()),
        ]
        yield pa.Table.from_arrays(columns, schema=SCHEMA)


def _index(
    network: IntegerNetwork,
    statistics: Mapping[str, Statistics],
    folder: Path,
    total: int,
    rows: int,
    options: Options,
) -> None:
    document = {
        "format": FORMAT,
        "version": VERSION,
        "network": network.digest,
        "rows": total,
        "rows_dumped": rows,
        "order": "elements in C order, channels first; row i is row i of the inputs",
        "forms": options.forms,
        "outputs": [spec.name for spec in network.outputs],
        "signals": [
            {**entry.to_dict(), "shape": list(entry.signal.shape), "operands": list(entry.signal.operands)}
            for entry in statistics.values()
        ],
    }
    store.write_json(folder / INDEX, document)


def write_drift(found: drifting.Drift, folder: Path) -> None:
    """The drift as ``drift.csv``, ``drift.parquet``, ``drift.md`` and ``drift.png`` in ``folder``."""
    table = pd.DataFrame(found.table())
    table.to_csv(folder / "drift.csv", index=False, lineterminator="\n")
    table.to_parquet(folder / "drift.parquet", index=False)
    (folder / "drift.md").write_text(found.markdown())
    save(drift_figure(found), folder / "drift.png")
