"""The values: :class:`Part` (arrays), :class:`Split` (three parts, names, digest) and :class:`Standardization`."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hawq_flow.data.errors import DataError, count, refuse_not_finite, refuse_repeated, some

DIGEST_VERSION = 2
Scale = Literal["feature", "channel", "shared"]
"""What shares a mean and a deviation: nothing, the elements of a channel (axis 1 of x), or everything."""


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
        float64 of shape (n, features), (n, channels, length) or (n, channels, height, width), all finite, read-only.
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
        float64, broadcastable to one example: of its shape (one value a feature), of shape (channels, 1, ...), or of
        shape () when everything shares them. Units of the features.
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
        scale: Scale = "feature",
        source: str = "standardization",
    ) -> Standardization:
        """Fit on training examples.

        Parameters
        ----------
        x:
            Training examples, float64 of shape (n, ...).
        features:
            Names of the features, for errors.
        scale:
            What shares a mean and a standard deviation: see :data:`Scale`.
        source:
            Where the data come from, for errors.

        Raises
        ------
        DataError
            If there is no example, a feature (channel) is constant (it has no standard deviation to divide by), or
            ``scale`` is "channel" and the examples have no axis beside the channels.
        """
        if len(x) == 0:
            raise DataError(f"{source}: no training example; expected at least two different ones")
        if scale == "channel" and x.ndim < 3:
            raise DataError(
                f"{source}: standardization by channel of examples of shape {x.shape[1:]}; expected (channels, length) "
                "or (channels, height, width); give their `shape`, or standardize by feature"
            )
        axes: dict[str, tuple[int, ...]] = {
            "feature": (0,),
            "channel": (0, *range(2, x.ndim)),
            "shared": tuple(range(x.ndim)),
        }
        axis = axes[scale]
        lowest = x.min(axis=axis)
        constant = np.atleast_1d(x.max(axis=axis) == lowest)
        if constant.any():
            flat = constant.ravel()
            if scale == "feature" and len(features) == flat.size:
                names = [repr(name) for name in features]
            else:
                names = ["'everything'"] if scale == "shared" else [f"{scale} {i}" for i in range(flat.size)]
            found = [
                f"{name} (always {value!r})"
                for name, value, bad in zip(names, np.atleast_1d(lowest).ravel().tolist(), flat, strict=True)
                if bad
            ]
            raise DataError(
                f"{source}: {count(found, 'constant column')} in the {len(x)} training rows: {some(found)}; "
                "expected columns that vary; leave them out of `features`, or standardize by channel or shared"
            )
        mean, std = x.mean(axis=axis, dtype=np.float64), x.std(axis=axis, dtype=np.float64)
        spread = (-1, *[1] * (x.ndim - 2)) if scale == "channel" else mean.shape
        return cls(mean.reshape(spread), std.reshape(spread))

    def apply(self, x: ArrayLike) -> NDArray[np.float64]:
        """Return ``(x - mean) / std``, float64 of the shape of ``x`` (n, ...).

        Raises
        ------
        DataError
            If the examples do not have the fitted shape.
        """
        values = np.asarray(x, dtype=np.float64)
        shape = values.shape[1:]
        if self.mean.ndim and (
            len(shape) != self.mean.ndim
            or any(have not in (1, size) for have, size in zip(self.mean.shape, shape, strict=True))
        ):
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
        One name for each feature, in C order for images; none for images whose pixels have no names.
    classes:
        Class names; ``y`` indexes them. Sorted: as numbers if all are integers, else as text.
    source:
        The name :func:`load` was given. Not part of the digest.
    scale:
        What shares a mean and a deviation in standardization.
    normal:
        For anomaly detection, the classes that are normal: training and validation hold no others. Empty: all are
        trained on.
    """

    train: Part
    val: Part
    test: Part
    features: tuple[str, ...]
    classes: tuple[str, ...]
    source: str
    scale: Scale = "feature"
    normal: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        parts = {"train": self.train, "val": self.val, "test": self.test}
        shapes = {name: part.x.shape[1:] for name, part in parts.items()}
        named = not self.features or math.prod(shapes["train"]) == len(self.features)
        if len(set(shapes.values())) != 1 or not named:
            raise DataError(
                f"{self.source}: examples have shapes {shapes}; expected one shape with {len(self.features)} values, "
                "one for each feature name (or no names)"
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
            if self.normal and name == "test":  # the anomalies: what training must not see
                unseen = [name for name in unseen if name in self.normal]
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
            "scale": self.scale,
            "normal": self.normal,
            "shapes": [part.x.shape for part in (self.train, self.val, self.test)],
        }
        out = hashlib.sha256(json.dumps(header, sort_keys=True).encode() + b"\n")
        for part in (self.train, self.val, self.test):
            # Adding 0.0 turns -0.0 into 0.0: equal values, equal hash. Little-endian on every machine.
            out.update((part.x + 0.0).astype("<f8").tobytes())
            out.update(part.y.astype("<i8").tobytes())
        return out.hexdigest()

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one example."""
        return tuple(self.train.x.shape[1:])

    def anomalous(self, part: Part) -> NDArray[np.bool_]:
        """Whether each example of ``part`` is an anomaly: of no class in ``normal``; (n,). All False without any."""
        if not self.normal:
            return np.zeros(len(part), dtype=bool)
        good = [self.classes.index(name) for name in self.normal]
        return ~np.isin(part.y, good)

    def standardization(self) -> Standardization:
        """Return the standardization fitted on the training part; ``DataError`` names constant columns."""
        return Standardization.fit(self.train.x, self.features, scale=self.scale, source=self.source)
