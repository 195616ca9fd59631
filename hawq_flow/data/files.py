"""Files of columns (CSV, ARFF rows, Parquet, NPZ) become one :class:`Table`: features in float64, labels as they are.

Numbers are read exactly: text is rounded correctly to float64, and missing values become NaN, which is refused later
with the column and the rows. A column that holds anything else than numbers is refused here.
"""

from __future__ import annotations

import csv
import difflib
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from hawq_flow.data.errors import DataError, refuse_repeated, refuse_unknown, some
from hawq_flow.data.split import Scale

_MISSING = ("", "?", "NA", "N/A", "na", "n/a", "null", "NULL")


@dataclass(frozen=True)
class Table:
    """What a source holds before splitting: ``x`` (n, ...), labels (n,), names, and how its features share a scale.

    ``features`` may be empty for images whose pixels have no names; ``unlabelled`` data have one class.
    """

    x: NDArray[np.float64]
    labels: NDArray[Any]
    features: tuple[str, ...]
    label: str
    scale: Scale = "feature"
    unlabelled: bool = False


def choose_columns(
    source: str, columns: Sequence[str], features: Sequence[str] | None, label: str | None
) -> tuple[list[str], str]:
    """Return the feature columns and the label column, or refuse with the columns there are."""
    if "" in columns:
        raise DataError(
            f"{source}: column {list(columns).index('')} (counted from 0) has no name; expected a name for each "
            "column; name it, or write the file without its index (pandas: index=False)"
        )
    refuse_repeated(columns, f"{source}: column")
    if label is None:
        raise DataError(
            f"{source}: no label column named; expected `label` to be one of the {len(columns)} columns "
            f"{some(map(repr, columns), 20)}"
        )
    refuse_unknown(source, [label], columns, "label")
    chosen = [name for name in columns if name != label] if features is None else list(features)
    refuse_unknown(source, chosen, columns, "features")
    refuse_repeated(chosen, f"{source}: feature")
    if label in chosen:
        raise DataError(f"{source}: column {label!r} is both feature and label; expected it to be the label only")
    if not chosen:
        raise DataError(f"{source}: no feature column; expected at least one beside the label {label!r}")
    return chosen, label


def _refuse_text(source: str, name: str, column: pa.ChunkedArray) -> None:
    """Refuse a column that holds something that is no number, with its first such value and row."""
    for row, value in enumerate(column.to_pylist()):
        try:
            float("nan" if value is None else value)
        except (TypeError, ValueError):
            raise DataError(
                f"{source}: column {name!r} holds {value!r} in row {row} (counted from 0); expected numbers; leave the "
                "column out of `features`, or encode it as numbers"
            ) from None


def _numbers(source: str, name: str, column: pa.ChunkedArray) -> NDArray[np.float64]:
    """Return one Arrow column as float64 (n,), missing values as NaN; refuse what is no number."""
    kind = column.type
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    if not numeric and not pa.types.is_decimal(kind) and not pa.types.is_null(kind):
        _refuse_text(source, name, column)
        raise DataError(
            f"{source}: column {name!r} is of type {kind}; expected numbers; store it as a numeric column, or leave it "
            "out of `features`"
        )
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    out = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return np.asarray(out, dtype=np.float64)


def _from_arrow(source: str, table: pa.Table, features: Sequence[str], label: str) -> Table:
    if table.num_rows == 0:
        raise DataError(f"{source}: no rows; expected at least two a class")
    x = np.empty((table.num_rows, len(features)))
    for i, name in enumerate(features):
        x[:, i] = _numbers(source, name, table.column(name))
    column = table.column(label)
    if column.null_count:
        first = column.is_null().to_pylist().index(True)
        raise DataError(
            f"{source}: label column {label!r} is missing in {column.null_count} of {table.num_rows} rows, the first "
            f"is row {first} (counted from 0); expected a class in every row; drop those rows"
        )
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if not (text or pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise DataError(f"{source}: label column {label!r} is of type {kind}; expected strings or integers")
    return Table(x, column.to_numpy(zero_copy_only=False), tuple(features), label)


def read_delimited(
    source: str,
    path: Path,
    columns: Sequence[str],
    features: Sequence[str],
    label: str,
    skip_rows: int,
    quote: str,
    escape: str | bool = False,
) -> Table:
    """Read comma-separated rows below ``skip_rows`` header lines; numbers are rounded correctly to float64."""

    def read(types: Mapping[str, pa.DataType]) -> pa.Table:
        return pa.csv.read_csv(
            path,
            read_options=pa.csv.ReadOptions(skip_rows=skip_rows, column_names=list(columns)),
            parse_options=pa.csv.ParseOptions(quote_char=quote, escape_char=escape, newlines_in_values=True),
            convert_options=pa.csv.ConvertOptions(
                column_types=types, include_columns=[*features, label], null_values=list(_MISSING)
            ),
        )

    try:
        table = read({**{name: pa.float64() for name in features}, label: pa.string()})
    except pa.ArrowInvalid as error:
        if "conversion error" in str(error):
            # Once more as text, to find the value and its row.
            table = read({name: pa.string() for name in (*features, label)})
            for name in features:
                _refuse_text(source, name, table.column(name))
        raise DataError(
            f"{source}: rows cannot be read: {error}; expected {len(columns)} comma-separated values in every row, one "
            "for each column of the header, and numbers in the feature columns"
        ) from error
    return _from_arrow(source, table, features, label)


def _read_csv(source: str, path: Path, features: Sequence[str] | None, label: str | None) -> Table:
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream)
            header = next(reader, None)
            lines = reader.line_num
    except UnicodeDecodeError as error:
        raise DataError(f"{source}: {path} is not UTF-8 ({error}); save it as UTF-8 text") from error
    if not header:
        raise DataError(f"{source}: the file is empty; expected a header line with column names, then rows")
    if len(header) == 1 and any(mark in header[0] for mark in ";\t|"):
        raise DataError(f"{source}: the header is one column {header[0]!r}; expected columns separated by commas")
    columns = [name.strip() for name in header]
    chosen, label = choose_columns(source, columns, features, label)
    return read_delimited(source, path, columns, chosen, label, lines, '"')


def read_parquet(source: str, path: Path, features: Sequence[str] | None, label: str | None) -> Table:
    """Read the chosen columns of a Parquet file; ``DataError`` if it is none, or a name is no column."""
    try:
        columns = pa.parquet.read_schema(path).names
        chosen, label = choose_columns(source, columns, features, label)
        table = pa.parquet.read_table(path, columns=[*chosen, label])
    except pa.ArrowInvalid as error:
        raise DataError(f"{source}: {path} cannot be read: {error}; expected a Parquet file") from error
    return _from_arrow(source, table, chosen, label)


def _read_npz(source: str, path: Path, features: Sequence[str] | None, label: str | None) -> Table:
    """Read arrays by name: 1-D arrays are columns; a single array of more axes holds all features."""
    arrays: dict[str, NDArray[Any]] = {}
    try:
        loaded = np.load(path, allow_pickle=False)
        if not isinstance(loaded, np.lib.npyio.NpzFile):
            raise DataError(f"{source}: {path} holds a single array; expected an NPZ file with named arrays")
        with loaded:
            chosen, label = choose_columns(source, loaded.files, features, label)
            for name in (*chosen, label):
                arrays[name] = loaded[name]
    except DataError:
        raise
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(
            f"{source}: {path} cannot be read: {error}; expected an NPZ file of numeric and text arrays, no Python "
            "objects"
        ) from error
    lengths = {name: len(array) if array.ndim else None for name, array in arrays.items()}
    if len(set(lengths.values())) != 1 or None in lengths.values():
        raise DataError(
            f"{source}: arrays have lengths {lengths}; expected one length for all: one row an example in every array"
        )
    for name in chosen:
        if arrays[name].dtype.kind not in "biuf":
            raise DataError(
                f"{source}: array {name!r} is of type {arrays[name].dtype}; expected numbers; leave it out of "
                "`features`"
            )
    if arrays[label].ndim != 1:
        raise DataError(
            f"{source}: label array {label!r} has shape {arrays[label].shape}; expected (n,), one class an example; "
            "for one-hot rows store their argmax"
        )
    if len(arrays[label]) == 0:
        raise DataError(f"{source}: no rows; expected at least two a class")
    many = [name for name in chosen if arrays[name].ndim > 1]
    if many and len(chosen) > 1:
        raise DataError(
            f"{source}: feature array {many[0]!r} has shape {arrays[many[0]].shape} and is one of {len(chosen)}; "
            "expected either one array that holds all features, or arrays of shape (n,), one for each feature"
        )
    if many:
        x = arrays[many[0]].astype(np.float64)
        names = tuple(f"{many[0]}[{','.join(map(str, index))}]" for index in np.ndindex(x.shape[1:]))
        return Table(x, arrays[label], names, label, "shared" if x.ndim > 2 else "feature")
    x = np.stack([arrays[name].astype(np.float64) for name in chosen], axis=1)
    return Table(x, arrays[label], tuple(chosen), label)


_READERS = {".csv": _read_csv, ".parquet": read_parquet, ".npz": _read_npz}


def read_file(source: str, path: Path, features: Sequence[str] | None, label: str | None) -> Table:
    """Read a CSV, Parquet or NPZ file, told apart by its suffix; ``DataError`` if it is absent or something else."""
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise DataError(f"{source}: {path.name} ends in {path.suffix!r}; expected one of {', '.join(_READERS)}")
    if not path.is_file():
        near = difflib.get_close_matches(path.name, [p.name for p in path.parent.glob("*")], n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise DataError(
            f"{source}: no file {path}; {hint}expected a path relative to the folder of the experiment's TOML, or an "
            "absolute one"
        )
    if path.stat().st_size == 0:
        raise DataError(f"{source}: the file is empty; expected column names and rows")
    return reader(source, path, features, label)
