"""How good a network is: a classifier's accuracy; an autoencoder's explained variance, and ROC area.

A classifier's measure is its accuracy, with the binomial standard error ``sqrt(p (1 - p) / n)``. An autoencoder's is
how much of its input's variance its reconstruction ``r`` explains::

    1 - sum |x - r|^2 / sum |x - mean|^2

with the mean of each element over the samples measured: 1 is perfect, 0 what the mean alone would do. It is a ratio of
two means, and its standard error is the ratio estimator's: with ``e_i`` and ``v_i`` the two squared distances of sample
i and ``R`` the ratio, ``sd(e_i - R v_i) / (mean(v) sqrt(n))``.

Where some samples are anomalies, each sample's reconstruction error is its score, and the area under the ROC curve is
the probability that an anomaly scores above a normal sample, ties counting half (Mann and Whitney's U / (n m)).
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Loss = Literal["cross_entropy", "mse"]
MEASURES: dict[str, str] = {"cross_entropy": "accuracy", "mse": "explained_variance"}
"""The measure of a network trained on a loss: its name in every ``result.json`` and ``report.json``."""


def accuracy(logits: ArrayLike, labels: ArrayLike) -> float:
    """Fraction of samples whose largest logit (the first of equal ones) is the label's.

    Parameters
    ----------
    logits:
        (n, classes).
    labels:
        (n,), class indices.
    """
    found, wanted = np.asarray(logits).argmax(axis=1), np.asarray(labels)
    if found.shape != wanted.shape:
        raise ValueError(f"accuracy: {len(found)} samples with labels of shape {wanted.shape}; expected one for each")
    _some("accuracy", len(found))
    return float((found == wanted).mean())


def accuracy_error(accuracy: float, samples: int) -> float:
    """Binomial standard error of an accuracy measured on ``samples`` samples."""
    return math.sqrt(accuracy * (1.0 - accuracy) / samples)


def reconstruction_errors(reconstruction: ArrayLike, x: ArrayLike) -> NDArray[np.float64]:
    """Mean squared error of each sample, float64 (n,); both arrays (n, ...) with as many values a sample."""
    r, target = _rows(reconstruction, x)
    return np.asarray(((r - target) ** 2).mean(axis=1))


def explained_variance(reconstruction: ArrayLike, x: ArrayLike) -> tuple[float, float]:
    """The explained variance and its standard error (0 for a single sample).

    Parameters
    ----------
    reconstruction, x:
        (n, ...) with as many values a sample.

    Raises
    ------
    ValueError
        On no samples, other sizes, or samples that are all equal (there is no variance to explain).
    """
    r, target = _rows(reconstruction, x)
    _some("explained variance", len(r))
    error = ((r - target) ** 2).sum(axis=1)
    spread = ((target - target.mean(axis=0)) ** 2).sum(axis=1)
    total = spread.mean()
    if total == 0:
        raise ValueError(f"explained variance: all {len(r)} samples are equal; expected samples that vary")
    ratio = error.mean() / total
    n = len(r)
    deviation = float((error - ratio * spread).std(ddof=1)) / (total * math.sqrt(n)) if n > 1 else 0.0
    return float(1.0 - ratio), float(deviation)


def auc(scores: ArrayLike, positive: ArrayLike) -> float:
    """Area under the ROC curve: the probability that a positive scores above a negative, ties counting half.

    Parameters
    ----------
    scores:
        (n,), higher is more positive.
    positive:
        (n,), bool.

    Raises
    ------
    ValueError
        If there is no positive, or no negative.
    """
    s, flag = np.asarray(scores, dtype=np.float64), np.asarray(positive, dtype=bool)
    if s.ndim != 1 or s.shape != flag.shape:
        raise ValueError(f"auc: scores of shape {s.shape} and flags of shape {flag.shape}; expected (n,) for both")
    if flag.all() or not flag.any():
        raise ValueError(f"auc: {int(flag.sum())} of {len(flag)} samples are positive; expected some of both kinds")
    _, place, count = np.unique(s, return_inverse=True, return_counts=True)
    rank = np.cumsum(count) - (count - 1) / 2  # the mean rank, from 1, of equal scores
    positives = int(flag.sum())
    wins = rank[place][flag].sum() - positives * (positives + 1) / 2
    return float(wins / (positives * (len(flag) - positives)))


def auc_error(area: float, positives: int, negatives: int) -> float:
    """Standard error of an area under the ROC curve (Hanley and McNeil, Radiology 143, 1982)."""
    q1, q2 = area / (2 - area), 2 * area**2 / (1 + area)
    variance = area * (1 - area) + (positives - 1) * (q1 - area**2) + (negatives - 1) * (q2 - area**2)
    return math.sqrt(max(variance, 0.0) / (positives * negatives))


def _rows(reconstruction: ArrayLike, x: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    r, target = np.asarray(reconstruction, dtype=np.float64), np.asarray(x, dtype=np.float64)
    if len(r) != len(target) or r.size != target.size:
        raise ValueError(
            f"reconstruction of shape {r.shape} of samples of shape {target.shape}; expected as many samples, and as "
            "many values in each"
        )
    size = math.prod(target.shape[1:])
    return r.reshape(len(r), size), target.reshape(len(r), size)


def _some(what: str, samples: int) -> None:
    if samples == 0:
        raise ValueError(f"{what}: no samples; expected at least one")
