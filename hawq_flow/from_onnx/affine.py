"""Exact real numbers for scales and offsets: object arrays of ``fractions.Fraction``, kept small.

Every float constant of a file is a dyadic rational, so sums, products and quotients of them are rationals and no
rounding ever enters the meaning of a value. (The square root in a batch normalization is the one exception: it is taken
in float64 and is exact from there on.) Arrays broadcast over the model's tensor; an axis along which all entries agree
has length one, so that "per tensor" and "per channel" are shapes and nothing more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Rationals = NDArray[np.object_]


def exact(values: ArrayLike) -> Rationals:
    """The exact rational of every finite number, of rank 1 or more; infinities stay floats (they mean "no bound")."""
    array = np.atleast_1d(np.asarray(values))  # arithmetic on arrays of rank 0 would give bare numbers
    result = np.empty(array.shape, dtype=object)
    if array.dtype.kind in "iub":
        result[...] = np.array([Fraction(int(v)) for v in array.ravel()], dtype=object).reshape(array.shape)
    elif array.dtype.kind == "f":
        flat = [Fraction(float(v)) if math.isfinite(v) else float(v) for v in array.ravel()]
        result[...] = np.array(flat, dtype=object).reshape(array.shape)
    else:
        flat = [v if isinstance(v, float) and math.isinf(v) else Fraction(v) for v in array.ravel()]
        result[...] = np.array(flat, dtype=object).reshape(array.shape)
    return compress(result)


def compress(array: Rationals) -> Rationals:
    """The same array with length one along every axis where all entries agree."""
    for axis in range(array.ndim):
        if array.shape[axis] > 1:
            first = array[(slice(None),) * axis + (slice(0, 1),)]
            if bool(np.all(array == first)):
                array = first
    return array


def aligned(array: Rationals, rank: int) -> Rationals:
    """The array with leading axes of length one up to ``rank`` axes."""
    return array.reshape((1,) * (rank - array.ndim) + array.shape)


def full(array: Rationals, shape: tuple[int, ...]) -> Rationals:
    """The array broadcast to a whole shape."""
    return np.broadcast_to(array, shape)


def divisor(array: Rationals) -> Rationals:
    """The numbers to divide by: 1 in place of 0."""
    return np.array([v or Fraction(1) for v in array.ravel()] + [None], dtype=object)[:-1].reshape(array.shape)


def only(array: Rationals) -> Fraction | None:
    """The single number of a uniform array, or None."""
    return array.reshape(-1)[0] if array.size == 1 else None


def whole(array: Rationals) -> bool:
    """Whether every number is an integer."""
    return all(isinstance(v, Fraction) and v.denominator == 1 for v in array.ravel())


def integers(array: Rationals) -> NDArray[np.int64]:
    """Whole rationals as int64."""
    return np.array([int(v) for v in array.ravel()], dtype=np.int64).reshape(array.shape)


def floats(array: Rationals) -> NDArray[np.float64]:
    """The nearest float64 of every rational."""
    return np.array([float(v) for v in array.ravel()], dtype=np.float64).reshape(array.shape)


def common(values: Iterable[Fraction]) -> Fraction:
    """The largest rational of which all are whole multiples (0 when all are 0)."""
    numbers = [abs(v) for v in set(values)]
    denominator = math.lcm(*(v.denominator for v in numbers)) if numbers else 1
    return Fraction(math.gcd(*(v.numerator * (denominator // v.denominator) for v in numbers)), denominator)


def bounded(value: Any) -> bool:
    """Whether a clamp's end is a number, not an infinity."""
    return isinstance(value, Fraction)
