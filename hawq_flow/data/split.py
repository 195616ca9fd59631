"""The values: a :class:`Part` (arrays), a :class:`Split` (three parts, names, digest), and a "
":class:`Standardization`."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hawq_flow.data.errors import DataError, count, refuse_not_finite, refuse_repeated, some

DIGEST_VERSION = 1


def frozen(values: ArrayLike, dtype: type[Any]) -> NDArray[Any]:
    """Return a C-contiguous copy of ``values`` that cannot be written to."""
    out = np.array(values, dtype=dtype, order="C", copy=True)
    out.setflags(write=False)
    return out


@dataclass(frozen=True, eq=False)
class Part:
    """Examples and their classes.

    Attributes
    ----------
    x:
        float64 of shape (n, features) or (n, channels, height, width), all finite, read-only.
    y:
        int64 of shape (n,), indices into the split's classes, read-only.
    """

    x: NDArray[np.float64]
    y: NDArray[np.int64]

    def __post_init__(self) -> None:
        labels = np.asarray(self.y)
        if labels.size and labels.dtype.kind not in "iu":
            raise DataError(f"part: y is of type {labels.dtype}; expected integers, indices into the classes")
        object.__setattr__(self, "x", frozen(self.x, np.float64))
        object.__setattr__(self, "y", frozen(labels, np.int64))
        if self.x.ndim < 2 or self.y.ndim != 1 or len(self.x) != len(self.y):
            raise DataError(
                f"part: x has shape {self.x.shape} and y has shape {self.y.shape}; expected (n, ...) with at least one "
                "feature axis and (n,), with the same n"
            )

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True, eq=False)
class Standardization:
    """An affine map to mean 0 and standard deviation 1, fitted on training data; it travels with the network.

    Attributes
    ----------
    mean, std:
        float64, broadcastable to one example: one value a feature, or of shape () for images. Units of the features.
    """

    mean: NDArray[np.float64]
    std: NDArray[np.float64]

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", frozen(self.mean, np.float64))
        object.__setattr__(self, "std", frozen(self.std, np.float64))
        if self.mean.shape != self.std.shape:
            raise DataError(
                f"standardization: mean has shape {self.mean.shape} and std {self.std.shape}; expected equal shapes"
            )
        if not np.isfinite(self.mean).all() or not np.isfinite(self.std).all() or not (self.std > 0).all():
            raise DataError(
                f"standardization: mean {self.mean.tolist()}, std {self.std.tolist()}; expected finite means and "
                "finite standard deviations above 0; fit it on training data without constant columns"
            )

    @classmethod
    def fit(
        cls,
        x: NDArray[np.float64],
        features: Sequence[str] = (),
        *,
        shared: bool = False,
        source: str = "standardization",
    ) -> Standardization:
        """Fit on training examples.

        Parameters
        ----------
        x:
            Training examples, float64 of shape (n, ...).
        features:
            Names of the features, for errors.
        shared:
            One mean and one standard deviation for all features (pixels of an image share a scale).
        source:
            Where the data come from, for errors.

        Raises
        ------
        DataError
            If there is no example, or a feature is constant (it has no standard deviation to divide by).
        """
        if len(x) == 0:
            raise DataError(f"{source}: no training example; expected at least two different ones")
        axis = None if shared else 0
        constant = np.atleast_1d(x.max(axis=axis) == x.min(axis=axis))
        if constant.any():
            flat = constant.ravel()
            names = list(features) if len(features) == flat.size else [f"feature {i}" for i in range(flat.size)]
            found = [
                f"{name!r} (always {value!r})"
                for name, value, bad in zip(
                    ["everything"] if shared else names, x.reshape(len(x), -1)[0].tolist(), flat, strict=False
                )
                if bad
            ]
            raise DataError(
                f"{source}: {count(found, 'constant column')} in the {len(x)} training rows: {some(found)}; "
                "expected columns that vary; leave them out of `features`"
            )
        return cls(x.mean(axis=axis, dtype=np.float64), x.std(axis=axis, dtype=np.float64))

    def apply(self, x: ArrayLike) -> NDArray[np.float64]:
        """Return ``(x - mean) / std``, float64 of the shape of ``x`` (n, ...).

        Raises
        ------
        DataError
            If the examples do not have the fitted shape.
        """
        values = np.asarray(x, dtype=np.float64)
        if self.mean.ndim and values.shape[1:] != self.mean.shape:
            raise DataError(
                f"standardization: examples of shape {values.shape[1:]}; expected {self.mean.shape}, the shape it was "
                "fitted on"
            )
        out: NDArray[np.float64] = (values - self.mean) / self.std
        return out

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary that JSON can hold exactly (floats print so that they read back equal)."""
        return {"mean": self.mean.tolist(), "std": self.std.tolist()}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Standardization:
        """Return the standardization that :meth:`to_dict` stored; ``DataError`` if a key is missing or unknown."""
        if set(stored) != {"mean", "std"}:
            raise DataError(f"standardization: keys {sorted(stored)}; expected ['mean', 'std']")
        return cls(stored["mean"], stored["std"])

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Standardization)
            and np.array_equal(self.mean, other.mean)
            and np.array_equal(self.std, other.std)
        )

    def __hash__(self) -> int:
        return hash((self.mean.shape, self.mean.tobytes(), self.std.tobytes()))


@dataclass(frozen=True, eq=False)
class Split:
    """A data set in three parts.

    Attributes
    ----------
    train, val, test:
        The parts; validation may be empty.
    features:
        One name for each feature, in C order for images.
    classes:
        Class names; ``y`` indexes them. Sorted: as numbers if all are integers, else as text.
    source:
        The name :func:`load` was given. Not part of the digest.
    shared_scale:
        Whether all features are standardized by one mean and deviation (images).
    """

    train: Part
    val: Part
    test: Part
    features: tuple[str, ...]
    classes: tuple[str, ...]
    source: str
    shared_scale: bool = False

    def __post_init__(self) -> None:
        parts = {"train": self.train, "val": self.val, "test": self.test}
        shapes = {name: part.x.shape[1:] for name, part in parts.items()}
        if len(set(shapes.values())) != 1 or math.prod(shapes["train"]) != len(self.features):
            raise DataError(
                f"{self.source}: examples have shapes {shapes}; expected one shape with {len(self.features)} values, "
                "one for each feature name"
            )
        refuse_repeated(self.features, f"{self.source}: feature")
        refuse_repeated(self.classes, f"{self.source}: class")
        for name, part in parts.items():
            refuse_not_finite(self.source, self.features, part.x, f" of the {name} part")
            if len(part) and not 0 <= part.y.min() <= part.y.max() < len(self.classes):
                raise DataError(
                    f"{self.source}: labels of the {name} part run from {part.y.min()} to {part.y.max()}; expected 0 "
                    f"to {len(self.classes) - 1}, one for each of the {len(self.classes)} classes"
                )
        seen = np.bincount(self.train.y, minlength=len(self.classes))
        for name, part in parts.items():
            unseen = [self.classes[c] for c in np.unique(part.y) if not seen[c]]
            if unseen:
                raise DataError(
                    f"{self.source}: {count(unseen, 'class', 'classes')} in the {name} part without a training row: "
                    f"{some(map(repr, unseen))}; expected every class in training; add rows, or leave the class out"
                )

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of the content: names, classes, shapes and every value of every part; not of the source."""
        header = {
            "version": DIGEST_VERSION,
            "features": self.features,
            "classes": self.classes,
            "shared_scale": self.shared_scale,
            "shapes": [part.x.shape for part in (self.train, self.val, self.test)],
        }
        out = hashlib.sha256(json.dumps(header, sort_keys=True).encode() + b"\n")
        for part in (self.train, self.val, self.test):
            # Adding 0.0 turns -0.0 into 0.0: equal values, equal hash. Little-endian on every machine.
            out.update((part.x + 0.0).astype("<f8").tobytes())
            out.update(part.y.astype("<i8").tobytes())
        return out.hexdigest()

    def standardization(self) -> Standardization:
        """Return the standardization fitted on the training part; ``DataError`` names constant columns."""
        return Standardization.fit(self.train.x, self.features, shared=self.shared_scale, source=self.source)
