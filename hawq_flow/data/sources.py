"""The entry point: a source's name becomes a checked :class:`~hawq_flow.data.Split`."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hawq_flow.data.errors import DataError, refuse_not_finite
from hawq_flow.data.files import Table, read_file, read_parquet
from hawq_flow.data.openml import cache_folder, openml
from hawq_flow.data.rows import check_fractions, class_indices, split_rows
from hawq_flow.data.split import Part, Split

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
    return Table(np.asarray(x, dtype=np.float64), np.asarray(y), names, "digit", shared_scale=True)


def load(
    source: str,
    *,
    root: Path | str = ".",
    features: Sequence[str] | None = None,
    label: str | None = None,
    val_fraction: float = 0.1,
    test_fraction: float = 0.2,
    seed: int = 0,
    cache: Path | str | None = None,
) -> Split:
    """Load a data set and split it, stratified by class.

    Parameters
    ----------
    source:
        ``"jets"``, ``"openml:NUMBER"``, ``"digits"`` or ``"file:NAME"``; see the opening of :mod:`hawq_flow.data`.
    root:
        Folder that relative names start from: that of the experiment's TOML. ``jets`` is ``jets.parquet`` in it.
    features:
        Feature columns in the order wanted; all columns but the label by default.
    label:
        Label column. Needed for ``file:``; others know theirs.
    val_fraction, test_fraction:
        Fractions of all rows. The 60,000 shipped jets become 42,000 + 6,000 + 12,000 by default.
    seed:
        Decides which rows go where.
    cache:
        Folder for downloads; :func:`cache_folder` by default.

    Returns
    -------
    Split
        Checked: finite, no constant column, every class in every part.

    Raises
    ------
    DataError
        If anything about the data is not as it should be: says where, what, what was expected, and the fix.
    """
    check_fractions(source, val_fraction, test_fraction)
    kind, _, rest = source.partition(":")
    if isinstance(features, str):
        raise DataError(f"{source}: `features` is the text {features!r}; expected a list of column names")
    if source == "jets":
        table = jets(source, Path(root), features, label)
    elif source == "digits":
        table = digits(source, features, label)
    elif kind == "openml" and rest:
        table = openml(source, rest, features, label, Path(cache) if cache is not None else cache_folder())
    elif kind == "file" and rest:
        table = read_file(source, Path(root) / rest, features, label)
    else:
        near = difflib.get_close_matches(kind, ("jets", "openml", "digits", "file"), n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise DataError(
            f"unknown data source {source!r}; {hint}expected 'jets', 'openml:NUMBER', 'digits' or 'file:NAME.csv' "
            "(.parquet, .npz)"
        )
    refuse_not_finite(source, table.features, table.x)
    y, classes = class_indices(source, table.labels, table.label)
    train, val, test = (
        Part(table.x[rows], y[rows]) for rows in split_rows(y, classes, val_fraction, test_fraction, seed, source)
    )
    split = Split(train, val, test, table.features, classes, source, table.shared_scale)
    split.standardization()  # refuses constant columns, now rather than after training
    return split
