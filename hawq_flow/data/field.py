"""Recorded data that are on some machines and shipped with none: a folder that a setting or HAWQ_FLOW_FIELD names.

::

    field:toyadmos   toyadmos_ad/dat2header_data.dat: 309 log-mel features of 640 values, unlabelled
    field:ecg5000    ecg5000/ECG5000_TRAIN.arff: heartbeats (1, 140); class 1 is "normal", all others "abnormal"
    field:wakeword   mlperf_tiny/streaming_wakeword_calibration_samples.npz: spectra (1, 30, 40), three classes

Nothing is copied. A file that is not there raises :class:`~hawq_flow.data.AbsentDataError`.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hawq_flow.data.errors import AbsentDataError, DataError
from hawq_flow.data.files import Table

VARIABLE = "HAWQ_FLOW_FIELD"
FILES = {
    "toyadmos": "toyadmos_ad/dat2header_data.dat",
    "ecg5000": "ecg5000/ECG5000_TRAIN.arff",
    "wakeword": "mlperf_tiny/streaming_wakeword_calibration_samples.npz",
}


def field(source: str, name: str, folder: Path | None) -> Table:
    """Read one of :data:`FILES` below ``folder`` (None: the folder that HAWQ_FLOW_FIELD names).

    Raises
    ------
    AbsentDataError
        If no folder is named, or the file is not in it.
    DataError
        If the name is unknown, or the file is not what it should be.
    """
    if name not in FILES:
        raise DataError(f"{source}: no such recording; expected one of {', '.join(f'field:{n}' for n in FILES)}")
    if folder is None and not os.environ.get(VARIABLE):
        raise AbsentDataError(
            f"{source}: no folder named; expected `folder` in [data], or {VARIABLE} in the environment, to name the "
            f"folder that holds {FILES[name]}"
        )
    path = (folder if folder is not None else Path(os.environ[VARIABLE])) / FILES[name]
    if not path.is_file():
        raise AbsentDataError(
            f"{source}: no file {path}; expected the folder that `folder` in [data] or {VARIABLE} names to hold "
            f"{FILES[name]}"
        )
    try:
        return {"toyadmos": _toyadmos, "ecg5000": _ecg5000, "wakeword": _wakeword}[name](source, path)
    except (ValueError, KeyError, OSError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{source}: {path} cannot be read: {error}; expected the file as published") from error


def _check(source: str, path: Path, x: NDArray[np.float64], size: int) -> None:
    if x.size == 0 or x.ndim < 2 or x.size != len(x) * size:
        raise DataError(f"{source}: {path} holds an array of shape {x.shape}; expected {size} values an example")


def _toyadmos(source: str, path: Path) -> Table:
    x = np.array(path.read_bytes().split(), dtype=np.float64)
    x = x.reshape(-1, 640) if x.size % 640 == 0 else x[None]
    _check(source, path, x, 640)
    names = tuple(f"frame{f}_band{b}" for f in range(5) for b in range(128))
    return Table(x, np.full(len(x), "recorded"), names, "state", "feature", unlabelled=True)


def _ecg5000(source: str, path: Path) -> Table:
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip() and line[0] not in "%@"]
    values = np.array([line.split(",") for line in lines], dtype=np.float64)
    _check(source, path, values, 141)
    labels = np.where(values[:, -1] == 1, "normal", "abnormal")
    return Table(values[:, None, :-1], labels, tuple(f"t{i}" for i in range(140)), "beat", "shared")


def _wakeword(source: str, path: Path) -> Table:
    with np.load(path, allow_pickle=False) as arrays:
        x, labels = arrays["specs"].astype(np.float64), arrays["labels"].astype(np.int64)
    _check(source, path, x, 30 * 40)
    return Table(x.reshape(-1, 1, 30, 40), labels, (), "word", "shared")
