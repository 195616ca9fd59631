"""Quantization errors by width: the other factor of the objective's terms.

The quantizers are those of training. Weights: signed, symmetric, narrow, ``q = clip(rint(w / s), -m, m)`` with
``m = 2^(b-1) - 1``, one scale for each output channel (axis 0) or for the tensor, ``s = max|w| / m``, or the scale of
least squared error. Activations: unsigned ``0..2^b - 1`` after a ReLU, symmetric ``-m..m`` elsewhere, one scale, from a
maximum that may be given (a calibrated one; values beyond it are clipped).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hawq_flow.allocate.problem import FloatArray, Term

IntArray = NDArray[np.int64]
_ROWS = 4096
_GRID = np.linspace(1.0, 0.1, 91)
"""Fractions of the max-abs scale from which the least-squares scale is refined."""


def _real(values: ArrayLike, where: str) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0 or not np.isfinite(array).all():
        raise ValueError(
            f"{where}: {int((~np.isfinite(array)).sum())} of {array.size} values are NaN or infinite; "
            f"expected at least one value, all finite"
        )
    return array


def weight_error(
    weight: ArrayLike,
    bits: int,
    *,
    per: Literal["channel", "tensor"] = "channel",
    scaling: Literal["max_abs", "mse"] = "max_abs",
) -> float:
    """``||Q_b(W) - W||^2``: squared error of quantizing weights to ``bits``.

    Parameters
    ----------
    weight:
        Folded float weights, (out, ...).
    bits:
        2 to 24.
    per:
        One scale for each output channel (axis 0), or one for the tensor.
    scaling:
        ``max_abs`` puts the largest weight on the largest integer; ``mse`` looks for the scale of least squared error
        (never worse than max_abs).

    Raises
    ------
    ValueError
        On a width outside 2..24, non-finite or no weights, or an unknown option.

    Examples
    --------
    >>> round(weight_error([[1.0, 0.4]], 2), 6), weight_error([[1.0, 0.0]], 2)
    (0.16, 0.0)
    """
    rows, scale, top = _scaled(weight, bits, per, scaling, "weight_error")
    return float(_row_errors(rows, scale, top).sum())


def weight_integers(
    weight: ArrayLike,
    bits: int,
    *,
    per: Literal["channel", "tensor"] = "channel",
    scaling: Literal["max_abs", "mse"] = "max_abs",
) -> IntArray:
    """The integers of quantizing weights to ``bits``, int64 of the weights' shape: what hardware will multiply by.

    Arguments and errors as for :func:`weight_error`.

    Examples
    --------
    >>> weight_integers([[1.0, -0.4]], 3).tolist()
    [[3, -1]]
    """
    rows, scale, top = _scaled(weight, bits, per, scaling, "weight_integers")
    return _integers(rows, scale, top).astype(np.int64).reshape(np.shape(weight))


def _scaled(weight: ArrayLike, bits: int, per: str, scaling: str, where: str) -> tuple[FloatArray, FloatArray, int]:
    """Weights as rows of one scale each, those scales (rows, 1), and the largest integer."""
    if not 2 <= bits <= 24:
        raise ValueError(f"{where}: {bits} bits; expected 2 to 24 (one sign bit, and one value beside zero)")
    if per not in ("channel", "tensor") or scaling not in ("max_abs", "mse"):
        raise ValueError(
            f"{where}: per={per!r}, scaling={scaling!r}; expected 'channel' or 'tensor', 'max_abs' or 'mse'"
        )
    array = _real(weight, where)
    rows = array.reshape(1, -1) if per == "tensor" or array.ndim < 2 else array.reshape(len(array), -1)
    top = 2 ** (bits - 1) - 1
    largest = np.abs(rows).max(axis=1, keepdims=True)
    scale = np.where(largest > 0, largest / top, 1.0)
    if scaling == "max_abs":
        return rows, scale, top
    best, found = _row_errors(rows, scale, top), scale
    for fraction in _GRID:
        trial = scale * fraction
        for _ in range(3):  # with the integers fixed the best scale is a least-squares fit; alternate
            q = _integers(rows, trial, top)
            norm = (q * q).sum(axis=1, keepdims=True)
            trial = np.where(norm > 0, (q * rows).sum(axis=1, keepdims=True) / np.where(norm > 0, norm, 1.0), trial)
        error = _row_errors(rows, trial, top)
        found = np.where((error < best)[:, None], trial, found)
        best = np.minimum(best, error)
    return rows, found, top


def _integers(rows: FloatArray, scale: FloatArray, top: int) -> FloatArray:
    return np.asarray(np.clip(np.rint(rows / scale), -top, top))


def _row_errors(rows: FloatArray, scale: FloatArray, top: int) -> FloatArray:
    difference = _integers(rows, scale, top) * scale - rows
    return np.asarray((difference * difference).sum(axis=1))


def activation_error(activation: ArrayLike, bits: int, signed: bool, *, maximum: float | None = None) -> float:
    """``E ||Q_b(a) - a||^2``: squared error of quantizing an activation tensor, summed over its elements, mean over
    samples.

    Parameters
    ----------
    activation:
        Values on training data, shape (n, *elements).
    bits:
        1 to 24 unsigned, 2 to 24 signed.
    signed:
        False after a ReLU.
    maximum:
        What the largest integer stands for; None takes the largest magnitude of ``activation``.

    Raises
    ------
    ValueError
        On a width out of range, non-finite or no values, negative values with ``signed=False``, or a maximum <= 0.
    """
    if not 1 + bool(signed) <= bits <= 24:
        raise ValueError(f"activation_error: {bits} bits; expected {1 + bool(signed)} to 24")
    array = np.asarray(activation)
    if array.ndim < 1 or array.size == 0:
        raise ValueError(f"activation_error: shape {array.shape}; expected (n, *elements) with at least one value")
    low, high = float(array.min()), float(array.max())
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError("activation_error: values are NaN or infinite; expected all finite")
    if not signed and low < 0:
        raise ValueError(
            f"activation_error: smallest value {low:g} of an unsigned activation; pass signed=True, or "
            f"the values after the ReLU"
        )
    largest = max(-low, high) if maximum is None else float(maximum)
    if maximum is not None and not (math.isfinite(largest) and largest > 0):
        raise ValueError(f"activation_error: maximum {maximum!r}; expected positive and finite")
    top = 2 ** (bits - int(signed)) - 1
    if largest == 0:
        return 0.0
    scale = largest / top
    total = 0.0
    for start in range(0, len(array), _ROWS):  # pieces that stay in cache
        rows = np.asarray(array[start : start + _ROWS], dtype=np.float64).ravel()
        q = np.rint(rows / scale)
        np.clip(q, -top if signed else 0, top, out=q)
        q *= scale
        q -= rows
        total += float(q @ q)
    return total / len(array)


def weight_terms(
    weights: Mapping[str, NDArray[np.floating]],
    traces: Mapping[str, float],
    widths: Iterable[int],
    *,
    per: Literal["channel", "tensor"] = "channel",
    scaling: Literal["max_abs", "mse"] = "max_abs",
) -> dict[str, Term]:
    """A :class:`~hawq_flow.allocate.Term` for every layer, of folded weights (out, ...)."""
    chosen = list(widths)
    return {
        name: Term(
            int(np.size(weight)),
            traces[name],
            {bits: weight_error(weight, bits, per=per, scaling=scaling) for bits in chosen},
        )
        for name, weight in weights.items()
    }


def activation_terms(
    activations: Mapping[str, NDArray[np.floating]],
    traces: Mapping[str, float],
    widths: Iterable[int],
    *,
    signed: Mapping[str, bool] | None = None,
    maxima: Mapping[str, float] | None = None,
) -> dict[str, Term]:
    """A :class:`~hawq_flow.allocate.Term` for every activation, of values (n, *elements) on training data.

    ``signed`` by name defaults to whether a value is negative; ``maxima`` by name are calibrated ranges.
    """
    chosen = list(widths)
    terms = {}
    for name, values in activations.items():
        sign = bool(values.min() < 0) if signed is None else signed[name]
        maximum = None if maxima is None else maxima.get(name)
        terms[name] = Term(
            int(np.prod(values.shape[1:])),
            traces[name],
            {bits: activation_error(values, bits, sign, maximum=maximum) for bits in chosen if bits >= 1 + sign},
        )
    return terms
