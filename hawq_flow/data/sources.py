"""The entry point: a source's name becomes a checked :class:`~hawq_flow.data.Split`."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hawq_flow.data.errors import DataError, refuse_not_finite, some
from hawq_flow.data.field import field
from hawq_flow.data.files import Table, read_file, read_parquet
from hawq_flow.data.openml import cache_folder, openml
from hawq_flow.data.rows import check_fractions, class_indices, split_rows
from hawq_flow.data.split import Part, Scale, Split
from hawq_flow.data.synthetic import synthetic

JETS_FILE = "jets.parquet"
JETS_LABEL = "class"


def jets(source: str, root: Path, features: Sequence[str] | None, label: str | None) -> Table:
    """Return the shipped jets, checked against the SHA-256 that ``jets.json`` beside them records."""
    path = root / JETS_FILE
    if not path.is_file():
        raise DataError(
            f"{source}: no file {path}; expected it beside the experiment's TOML, as in experiments/jets; copy it from "
            "there, or make it with experiments/jets/simulate.py"
        )
    note = path.with_suffix(".json")
    if note.is_file():
        recorded = json.loads(note.read_text(encoding="utf-8"))["sha256"]
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        if found != recorded:
            raise DataError(
                f"{source}: {path} has SHA-256 {found}; expected {recorded}, which {note.name} records; restore both "
                "files from the repository"
            )
    return read_parquet(source, path, features, label or JETS_LABEL)


def digits(source: str, features: Sequence[str] | None, label: str | None) -> Table:
    """Return scikit-learn's digits: 1,797 images of 64 pixels, 0 to 16."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise DataError(f"{source}: needs scikit-learn, which is not installed; pip install scikit-learn") from error
    if features is not None or label is not None:
        raise DataError(f"{source}: `features` or `label` given; expected neither: its 64 pixels and classes are fixed")
    x, y = load_digits(return_X_y=True)
    names = tuple(f"pixel_{row}_{column}" for row in range(8) for column in range(8))
    return Table(np.asarray(x, dtype=np.float64), np.asarray(y), names, "digit", "shared")


def load(
    source: str,
    *,
    root: Path | str = ".",
    features: Sequence[str] | None = None,
    label: str | None = None,
    val_fraction: float = 0.1,
    test_fraction: float = 0.2,
    seed: int = 0,
    shape: Sequence[int] | None = None,
    standardize: Scale | None = None,
    normal: Sequence[str] = (),
    samples: int = 0,
    classes: int = 0,
    folder: Path | str | None = None,
    cache: Path | str | None = None,
) -> Split:
    """Load a data set and split it, stratified by class.

    Parameters
    ----------
    source:
        ``"jets"``, ``"openml:NUMBER"``, ``"digits"``, ``"file:NAME"``, ``"synthetic:NAME"`` or ``"field:NAME"``; see
        the opening of :mod:`hawq_flow.data`.
    root:
        Folder that relative names start from: that of the experiment's TOML. ``jets`` is ``jets.parquet`` in it.
    features:
        Feature columns in the order wanted; all columns but the label by default.
    label:
        Label column. Needed for ``file:``; others know theirs.
    val_fraction, test_fraction:
        Fractions of all rows. The 60,000 shipped jets become 42,000 + 6,000 + 12,000 by default.
    seed:
        Decides which rows go where (and is that of synthetic data).
    shape:
        Each example is brought to this shape, in C order: [1, 8, 8] makes images of the 64 pixels of ``digits``. It
        only cuts; the sizes that an example has, in another order, are refused. Synthetic images are made in it.
    standardize:
        "feature", "channel" or "shared"; by default as the source has it: images shared, tables by feature.
    normal:
        For anomaly detection: classes that are normal. All rows of other classes go to the test part.
    samples, classes:
        Of synthetic data.
    folder:
        Where recordings (``field:``) lie, relative to ``root``; by default what HAWQ_FLOW_FIELD names.
    cache:
        Folder for downloads; :func:`cache_folder` by default.

    Returns
    -------
    Split
        Checked: finite, no constant column, every (normal) class in every part.

    Raises
    ------
    DataError
        If anything about the data is not as it should be: says where, what, what was expected, and the fix.
        :class:`AbsentDataError` if they are recordings that this machine does not have.
    """
    check_fractions(source, val_fraction, test_fraction)
    kind, _, rest = source.partition(":")
    if isinstance(features, str):
        raise DataError(f"{source}: `features` is the text {features!r}; expected a list of column names")
    made = kind == "synthetic" and bool(rest)
    for name, given in (("samples", samples), ("classes", classes)):
        if given and not made:
            raise DataError(f"{source}: `{name}` given; expected it for synthetic data only: these have their own")
    if kind in ("synthetic", "field") and (features is not None or label is not None):
        raise DataError(f"{source}: `features` or `label` given; expected neither: they are fixed")
    if source == "jets":
        table = jets(source, Path(root), features, label)
    elif source == "digits":
        table = digits(source, features, label)
    elif kind == "openml" and rest:
        table = openml(source, rest, features, label, Path(cache) if cache is not None else cache_folder())
    elif kind == "file" and rest:
        table = read_file(source, Path(root) / rest, features, label)
    elif made:
        table = synthetic(source, rest, shape, samples, classes, seed)
    elif kind == "field" and rest:
        table = field(source, rest, Path(root) / folder if folder is not None else None)
    else:
        near = difflib.get_close_matches(kind, ("jets", "openml", "digits", "file", "synthetic", "field"), n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise DataError(
            f"unknown data source {source!r}; {hint}expected 'jets', 'openml:NUMBER', 'digits', 'file:NAME.csv' "
            "(.parquet, .npz), 'synthetic:NAME' or 'field:NAME'"
        )
    refuse_not_finite(source, table.features, table.x)
    if shape is not None:
        table = _shaped(source, table, tuple(shape))
    y, names = class_indices(source, table.labels, table.label, least=1 if table.unlabelled else 2)
    parts = split_rows(y, names, val_fraction, test_fraction, seed, source)
    if normal:
        parts = _only_normal(source, y, names, normal, parts)
    train, val, test = (Part(table.x[rows], y[rows]) for rows in parts)
    split = Split(train, val, test, table.features, names, source, standardize or table.scale, tuple(normal))
    split.standardization()  # refuses constant columns, now rather than after training
    return split


def _shaped(source: str, table: Table, shape: tuple[int, ...]) -> Table:
    """The table with every example in ``shape``, C order."""
    size = math.prod(table.x.shape[1:])
    if not shape or min(shape) < 1 or math.prod(shape) != size:
        raise DataError(
            f"{source}: `shape` {list(shape)} for examples of {size} values; expected sizes of 1 or more whose product "
            f"is {size}"
        )
    own = table.x.shape[1:]
    # The same sizes in another order: surely meant as a transposition, which reshaping is only where 1s move.
    if sorted(own) == sorted(shape) and [n for n in own if n > 1] != [n for n in shape if n > 1]:
        raise DataError(
            f"{source}: `shape` {list(shape)} for examples of shape {list(own)}, the same sizes in another order; "
            "expected another cut of the values in their order: `shape` never transposes, so this would scramble them. "
            "For channels first transpose the array to (n, channels, height, width) instead"
        )
    return dataclasses.replace(table, x=table.x.reshape(-1, *shape))


Rows = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


def _only_normal(source: str, y: NDArray[np.int64], names: Sequence[str], normal: Sequence[str], parts: Rows) -> Rows:
    """The rows of every part with the anomalies, all of them, in the test part."""
    for name in normal:
        if name not in names:
            raise DataError(f"{source}: `normal` names {name!r}; expected classes of {some(map(repr, names), 20)}")
    if len(set(normal)) == len(names):
        raise DataError(f"{source}: `normal` names every class; leave one out as the anomaly, or leave the key out")
    good = np.isin(y, [names.index(name) for name in normal])
    train, val, test = parts
    moved = np.concatenate([train[~good[train]], val[~good[val]]])
    return train[good[train]], val[good[val]], np.concatenate([test, moved])
