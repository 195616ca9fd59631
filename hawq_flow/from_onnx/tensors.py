"""What reading a file knows of each tensor: a constant, or integers of the network with an exact real meaning.

A tensor that depends on the input is, element by element (batch of one row)::

    real[e] = clamp(scale[e] * integer[index[e]] + offset[e], low[e], high[e])

``integer`` is a value of the IR, flat; ``index`` says which of its elements each element of the model's tensor is, so
that transposing, reshaping and picking are bookkeeping; scale, offset and the clamp's ends are exact (``affine``) and
broadcast over the model's tensor. The form is closed under affine maps by constants, ReLU and clipping: those cost no
operation until a quantizer or a layer asks for integers.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hawq_flow.from_onnx.affine import Rationals, aligned, compress, exact, full
from hawq_flow.from_onnx.refusals import Refuse
from hawq_flow.numeric import FloatArray, IntArray

Shape = tuple[int, ...]
NO_LOW: Rationals = np.array([-math.inf], dtype=object)
NO_HIGH: Rationals = np.array([math.inf], dtype=object)


@dataclass(frozen=True)
class Grid:
    """A constant known to lie on integers: ``value = scale * integer``, exactly; scale broadcasts over it."""

    integers: IntArray
    scale: Rationals

    def map(self, function: Callable[[NDArray[Any]], NDArray[Any]]) -> Grid:
        """The grid after a rearrangement of the constant's elements."""
        scale = full(aligned(self.scale, self.integers.ndim), self.integers.shape)
        return Grid(np.array(function(self.integers)), compress(np.array(function(scale), dtype=object)))


@dataclass(frozen=True)
class Const:
    """A tensor that depends on no input: its array as float32 (or integer) tools compute it, and its grid if known."""

    array: NDArray[Any]
    grid: Grid | None = None

    @property
    def shape(self) -> Shape:
        """Shape, all axes."""
        return self.array.shape

    def real(self) -> Rationals:
        """Its numbers, exactly."""
        if self.grid is None:
            return exact(self.array)
        scale = full(aligned(self.grid.scale, self.array.ndim), self.array.shape)
        return compress(np.asarray(exact(self.grid.integers) * scale, dtype=object))


@dataclass(frozen=True)
class Tensor:
    """A tensor that depends on the input; see the module's docstring.

    Attributes
    ----------
    name:
        The IR's value, or the input of the graph while ``raw``.
    index:
        int64 of the model's shape (batch axis of one included).
    scale, offset, low, high:
        Exact, of the model's rank, broadcastable over ``index``.
    raw:
        Whether ``integer`` is still the real-valued input itself.
    shared:
        Whether another node of the file reads the same integers, so that their op must stay as it is.
    """

    name: str
    index: IntArray
    scale: Rationals
    offset: Rationals
    low: Rationals
    high: Rationals
    raw: bool = False
    shared: bool = False

    @property
    def shape(self) -> Shape:
        """The model's shape, the batch of one included."""
        return self.index.shape

    @property
    def clamped(self) -> bool:
        """Whether a clamp is pending."""
        return any(isinstance(v, Fraction) for end in (self.low, self.high) for v in end.ravel())

    def map(self, function: Callable[[NDArray[Any]], NDArray[Any]]) -> Tensor:
        """The tensor after a rearrangement (or a choice) of its elements."""
        index = np.array(function(self.index))
        rank = index.ndim

        def moved(array: Rationals) -> Rationals:
            if array.size == 1:
                return array.reshape((1,) * rank)
            return compress(np.asarray(function(full(array, self.index.shape)), dtype=object))

        parts = {name: moved(getattr(self, name)) for name in ("scale", "offset", "low", "high")}
        return Tensor(self.name, index, **parts, raw=self.raw, shared=self.shared)

    def affine(self, factor: Rationals, term: Rationals) -> Tensor:
        """``factor * self + term``, both broadcastable against the tensor."""
        shape = np.broadcast_shapes(self.shape, factor.shape, term.shape)
        rank = len(shape)
        k, b = aligned(factor, rank), aligned(term, rank)
        parts = [aligned(getattr(self, name), rank) for name in ("scale", "offset", "low", "high")]
        scale, offset = parts[0] * k, parts[1] * k + b
        ends = [_times(end, k) + b for end in parts[2:]]
        negative = k < 0
        low, high = np.where(negative, ends[1], ends[0]), np.where(negative, ends[0], ends[1])
        dead = full(k == 0, np.broadcast_shapes(low.shape, k.shape))
        low = np.where(dead, -math.inf, full(low, dead.shape))
        high = np.where(dead, math.inf, full(high, dead.shape))
        return dataclasses.replace(
            self,
            index=np.array(
                np.broadcast_to(self.index.reshape((1,) * (rank - self.index.ndim) + self.index.shape), shape)
            ),
            scale=compress(scale),
            offset=compress(offset),
            low=compress(low.astype(object)),
            high=compress(high.astype(object)),
        )

    def clamp(self, low: Rationals, high: Rationals) -> Tensor:
        """``min(max(self, low), high)``; what it makes of a constant element (scale 0) goes into the offset at once."""
        rank = len(self.shape)
        ends = [aligned(end, rank) for end in (low, high)]
        check_bounds(low, high)
        if any(np.broadcast_shapes(end.shape, self.shape) != self.shape for end in ends):
            raise Refuse(f"clips {self.shape} with bounds of {low.shape} and {high.shape}; expected one a channel")
        lower = np.minimum(np.maximum(self.low, ends[0]), ends[1])
        upper = np.minimum(np.maximum(self.high, ends[0]), ends[1])
        dead = self.scale == 0
        offset = np.where(dead, np.minimum(np.maximum(self.offset, ends[0]), ends[1]), self.offset)
        lower, upper = np.where(dead, -math.inf, lower), np.where(dead, math.inf, upper)
        parts = [compress(part.astype(object)) for part in (offset, lower, upper)]
        return dataclasses.replace(self, offset=parts[0], low=parts[1], high=parts[2])


def check_bounds(low: Rationals, high: Rationals) -> None:
    """``Refuse`` bounds of a clip that no number passes: infinity as the lower one, NaN as either."""
    if any(not v < math.inf for v in low.ravel()) or any(not v > -math.inf for v in high.ravel()):
        raise Refuse("clips to infinity, or with a bound that is NaN; give finite bounds")


def _times(end: Rationals, factor: Rationals) -> Rationals:
    """A clamp's end times a factor; an infinite end of a zero factor stays infinite (its value does not matter)."""
    ends, factors = np.broadcast_arrays(end, factor)
    flat = [
        e if f == 0 else (e * (1 if f > 0 else -1) if not isinstance(e, Fraction) else e * f)
        for e, f in zip(ends.ravel(), factors.ravel(), strict=True)
    ]
    return np.array([*flat, None], dtype=object)[:-1].reshape(ends.shape)


@dataclass(frozen=True)
class Tabulated:
    """A function of one integer written down: element e is ``table[integer[index[e]] - start]``, float64.

    ``before`` is what the table was made of, ``tensor`` its name in the file: what the network ends on if no quantizer
    follows.
    """

    before: Tensor
    tensor: str
    table: FloatArray
    start: int
    function: str

    @property
    def shape(self) -> Shape:
        """The model's shape, the batch of one included."""
        return self.before.shape


@dataclass(frozen=True)
class Left:
    """What stays in float after the network's end (a softmax, an argmax), and the ``tensor`` the network ends on."""

    before: Tensor
    tensor: str
    node: str
    function: str
    shape: Shape


@dataclass(frozen=True)
class Unknown:
    """The output of a refused node: what depends on it is not judged.

    ``lost`` names an output that its node's rule leaves out: no refusal stands behind it, so its reader is refused.
    """

    lost: str = ""


Known = Const | Tensor | Tabulated | Left
Any_ = Known | Unknown


def fresh(name: str, index: IntArray, scale: Rationals, offset: Rationals) -> Tensor:
    """A tensor without a pending clamp; scale and offset are brought to the rank of ``index``."""
    rank = index.ndim
    low, high = (end.reshape((1,) * rank) for end in (NO_LOW, NO_HIGH))
    return Tensor(name, index, compress(aligned(scale, rank)), compress(aligned(offset, rank)), low, high)


def scalar(value: Fraction | int) -> Rationals:
    """One number as an exact array."""
    return np.array([Fraction(value)], dtype=object)
