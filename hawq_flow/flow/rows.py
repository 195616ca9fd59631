"""Rows of another tool's model, from the files that people have: NumPy's, or text as hls4ml's test benches hold it."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hawq_flow.flow.making import FlowError
from hawq_flow.numeric import IntArray

TEXT = (".csv", ".dat", ".txt")
"""Endings of files that are read as text, numbers separated by commas or blanks."""


def load_data(
    path: Path, labels: Path | None, shapes: Mapping[str, tuple[int, ...]], classes: int
) -> tuple[dict[str, NDArray[Any]], IntArray | None]:
    """Raw inputs by name, (n, *shape) each, and class numbers (n,) where there are any.

    Parameters
    ----------
    path:
        ``.npy``; ``.npz`` with ``x`` (or, with several inputs, an array for each by its name) and, if any, labels
        ``y``; or text, a row a line, for one input.
    labels:
        ``.npy`` or text.
    shapes:
        Of the inputs, batch excluded.
    classes:
        Elements of the smallest output, which labels count.

    Raises
    ------
    FlowError
        Saying what was found and what was expected.
    """
    names = ["x"] if len(shapes) == 1 else list(shapes)
    arrays = _arrays(
        path, f"an .npy of inputs, an .npz with {' and '.join(names)} and, if any, labels y, or a text file"
    )
    if list(arrays) == [""]:
        arrays = {"x": arrays[""]}
    found = arrays.pop("y", None)
    if not set(names) <= set(arrays):
        raise FlowError(f"{path}: holds {', '.join(arrays) or 'nothing'}; expected the inputs as {' and '.join(names)}")
    given = {source: arrays[name] for source, name in zip(shapes, names, strict=True)}
    if path.suffix.lower() in TEXT:  # a row a line, whatever the shape
        given = {
            name: array.reshape(-1, *shapes[name]) if array.shape[1] == np.prod(shapes[name]) else array
            for name, array in given.items()
        }
    rows = {len(array) if array.ndim else 0 for array in given.values()}
    if len(rows) > 1 or not min(rows):
        raise FlowError(f"{path}: {' and '.join(map(str, sorted(rows)))} rows; expected at least one, as many of each")
    for name, array in given.items():
        if array.dtype.kind not in "iufb":
            raise FlowError(f"{path}: input {name!r} is of {array.dtype}; expected numbers")
    if labels is not None:
        found = next(iter(_arrays(labels, "an .npy or a text file of one class number a row").values()))
    return given, None if found is None else _classes(labels or path, found, min(rows), classes)


def _arrays(path: Path, wanted: str) -> dict[str, NDArray[Any]]:
    """The arrays of a file by name; '' names the one of a file that holds one."""
    if not path.is_file():
        raise FlowError(f"{path}: no such file; give {wanted}")
    try:
        if path.suffix.lower() in TEXT:
            comma = "," in path.read_text().partition("\n")[0]
            return {"": np.loadtxt(path, delimiter="," if comma else None, ndmin=2)}
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {"": loaded}
        with loaded:
            return {name: loaded[name] for name in loaded.files}
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        reason = f": {error}" if path.suffix.lower() in TEXT else ""
        raise FlowError(
            f"{path}: not readable as numbers{reason}; give {wanted} (ending in {', '.join(TEXT)})"
        ) from error


def _classes(path: Path, labels: NDArray[Any], rows: int, classes: int) -> IntArray:
    flat = labels.reshape(-1) if labels.ndim == 2 and 1 in labels.shape else labels
    if flat.shape != (rows,):
        raise FlowError(f"{path}: labels of shape {labels.shape} for {rows} rows; expected one class number a row")
    if flat.dtype.kind not in "iufb" or (flat != np.rint(flat)).any() or (flat < 0).any():
        raise FlowError(
            f"{path}: labels of {flat.dtype} such as {flat[0]!r}; expected class numbers, the place of the right "
            "output: 0, 1, ..."
        )
    if flat.max() >= classes:
        raise FlowError(f"{path}: label {flat.max():g} for {classes} outputs; expected class numbers below that")
    return flat.astype(np.int64)
