"""Inputs and outputs of a network: names, types, and what their integers mean."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hawq_flow.network.values import NetworkError, Shape, broadcast, dims, frozen
from hawq_flow.numeric import FloatArray, IntArray, IntType, quantize


@dataclass(frozen=True, eq=False)
class InputSpec:
    """A network input: integers of ``type``, with their real meaning as annotation.

    Attributes
    ----------
    name, shape:
        The value's name and its shape, batch excluded, channels first.
    type:
        The integers' type.
    scale, zero_point:
        ``real = scale * (integer - zero_point)``; float64 and int64, scalar or broadcastable over ``shape``.
    mean, std:
        Standardization of the raw data before quantization, ``(raw - mean) / std``: float64, broadcastable over
        ``shape``.
    """

    name: str
    shape: Shape
    type: IntType
    scale: FloatArray = field(default_factory=lambda: np.float64(1.0))  # type: ignore[arg-type,return-value]
    zero_point: IntArray = field(default_factory=lambda: np.int64(0))  # type: ignore[arg-type,return-value]
    mean: FloatArray = field(default_factory=lambda: np.float64(0.0))  # type: ignore[arg-type,return-value]
    std: FloatArray = field(default_factory=lambda: np.float64(1.0))  # type: ignore[arg-type,return-value]

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(int(n) for n in self.shape))
        for name, dtype in (("scale", np.float64), ("zero_point", np.int64), ("mean", np.float64), ("std", np.float64)):
            array = frozen(getattr(self, name), dtype)
            broadcast(array, self.shape, f"input {self.name!r}: {name}")
            object.__setattr__(self, name, array)
        for name in ("scale", "std"):
            array = getattr(self, name)
            if not (np.isfinite(array).all() and (array > 0).all()):
                raise NetworkError(f"input {self.name!r}: {name} must be positive and finite; found {array.tolist()}")

    def standardize(self, raw: Any) -> FloatArray:
        """``(raw - mean) / std`` in float64; ``raw`` has shape (n, *shape)."""
        return np.asarray((np.asarray(raw, dtype=np.float64) - self.mean) / self.std)

    def integers(self, raw: Any) -> IntArray:
        """The integers of raw data (n, *shape): standardized, quantized once, in float64. NaN is refused."""
        array = np.asarray(raw)
        if array.shape[1:] != self.shape:
            raise NetworkError(f"input {self.name!r}: data of shape {array.shape}; expected (n, {dims(self.shape)})")
        return quantize(self.standardize(array), self.scale, self.zero_point, self.type, rank=len(self.shape))


@dataclass(frozen=True, eq=False)
class OutputSpec:
    """A network output: the name of a value and what its integers mean, ``real = scale * (integer - zero_point)``."""

    name: str
    scale: FloatArray = field(default_factory=lambda: np.float64(1.0))  # type: ignore[arg-type,return-value]
    zero_point: IntArray = field(default_factory=lambda: np.int64(0))  # type: ignore[arg-type,return-value]

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", frozen(self.scale, np.float64))
        object.__setattr__(self, "zero_point", frozen(self.zero_point, np.int64))
