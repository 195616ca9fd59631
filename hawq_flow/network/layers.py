"""Ops with constants: the products and sums of a layer, and the rescale that follows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hawq_flow.network.values import (
    NetworkError,
    Shape,
    Unary,
    Value,
    broadcast,
    channels,
    declared,
    dims,
    dot_interval,
    frozen,
    limit,
    modulus,
)
from hawq_flow.network.windows import patches, set_window, window_shape
from hawq_flow.numeric import (
    MAX_SHIFT,
    IntArray,
    IntType,
    Overflow,
    Rounding,
    shift_round,
)

_DERIVE_TERMS = 1 << 22
"""Terms of a convolution's windows that its interval is derived from at once: 32 MiB an end."""


@dataclass(frozen=True, eq=False)
class Dense(Unary):
    """``weight @ x + bias``: x (features,), weight (outputs, features), bias (outputs,), all int64.

    Attributes
    ----------
    accumulator, overflow:
        A declared type for the finished sum and what happens outside it. None: the type is derived and holds every sum.
    layer:
        The source model's name for the layer this op came from (an annotation).
    """

    name: str
    input: str
    weight: IntArray
    bias: IntArray
    accumulator: IntType | None = None
    overflow: Overflow = Overflow.SATURATE
    layer: str = ""
    kind: ClassVar[str] = "Dense"

    def __post_init__(self) -> None:
        object.__setattr__(self, "weight", frozen(self.weight, np.int64))
        object.__setattr__(self, "bias", frozen(self.bias, np.int64))
        if self.weight.ndim != 2 or self.weight.size == 0 or self.bias.shape != self.weight.shape[:1]:
            raise NetworkError(
                f"{self.name}: weight of shape {self.weight.shape} with bias of shape {self.bias.shape}; "
                "expected (outputs, features) and (outputs,), neither empty"
            )
        if self.accumulator is not None:
            modulus(self.accumulator, self.overflow, self.name)

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """Shape of the result, or ``NetworkError``."""
        if shapes[0] != self.weight.shape[1:]:
            raise NetworkError(
                f"{self.name}: input {self.input!r} has shape ({dims(shapes[0])}), expected "
                f"({self.weight.shape[1]},) for a weight of shape {self.weight.shape}; insert a Reshape"
            )
        return (int(self.weight.shape[0]),)

    def derive(self, values: Sequence[Value]) -> Value:
        """Interval of the sums, and the bound over partial sums in any order."""
        x = values[0]
        shape = self.shape([x.shape])
        low, high, bound = dot_interval(self.weight, self.bias, x.low[:, None], x.high[:, None], self.name)
        low, high = low[:, 0], high[:, 0]
        return declared(self.name, shape, low, high, bound, self.accumulator, self.overflow)


@dataclass(frozen=True, eq=False)
class Conv(Unary):
    """A convolution (cross-correlation, as in torch and ONNX) in one or two dimensions, dilation 1.

    ``y[o, p] = sum weight[o, c, k] * x[g(o) + c, p * stride + k - padding] + bias[o]`` with zeros outside of x, where
    ``g(o)`` is the first input channel of output ``o``'s group. x has shape (channels, *space). A depthwise convolution
    has ``groups`` = channels, a pointwise one a kernel of ones.

    Attributes
    ----------
    weight, bias:
        int64 (outputs, channels / groups, *kernel) and (outputs,).
    stride, padding:
        One stride an axis of space; one padding an axis and end: all beginnings, then all ends, as in ONNX's ``pads``.
    accumulator, overflow:
        As for :class:`Dense`.
    """

    name: str
    input: str
    weight: IntArray
    bias: IntArray
    stride: Shape
    padding: Shape
    groups: int = 1
    accumulator: IntType | None = None
    overflow: Overflow = Overflow.SATURATE
    layer: str = ""
    kind: ClassVar[str] = "Conv"

    def __post_init__(self) -> None:
        object.__setattr__(self, "weight", frozen(self.weight, np.int64))
        object.__setattr__(self, "bias", frozen(self.bias, np.int64))
        if self.weight.ndim not in (3, 4) or self.weight.size == 0 or self.bias.shape != self.weight.shape[:1]:
            raise NetworkError(
                f"{self.name}: weight of shape {self.weight.shape} with bias of shape {self.bias.shape}; expected "
                "(outputs, channels / groups, kernel) or (outputs, channels / groups, height, width) and (outputs,)"
            )
        object.__setattr__(self, "groups", int(self.groups))
        set_window(self, self.kernel)
        if self.groups < 1 or self.weight.shape[0] % self.groups:
            raise NetworkError(
                f"{self.name}: {self.weight.shape[0]} outputs in {self.groups} groups; expected a divisor of them"
            )
        if self.accumulator is not None:
            modulus(self.accumulator, self.overflow, self.name)

    @property
    def kernel(self) -> Shape:
        """Size of the kernel along each axis of space."""
        return self.weight.shape[2:]

    @property
    def depthwise(self) -> bool:
        """Whether every group has one input channel (and there is more than one group)."""
        return self.groups > 1 and self.weight.shape[1] == 1

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """Shape of the result, or ``NetworkError``."""
        channels = self.weight.shape[1] * self.groups
        if len(shapes[0]) != self.weight.ndim - 1 or shapes[0][0] != channels:
            raise NetworkError(
                f"{self.name}: input {self.input!r} has shape ({dims(shapes[0])}), expected ({channels}, "
                f"{', '.join(['n'] * len(self.kernel))}) for a weight of shape {self.weight.shape} in {self.groups} "
                "groups: channels first, batch excluded"
            )
        return (self.weight.shape[0], *window_shape(self.name, shapes[0], self.kernel, self.stride, self.padding))

    def derive(self, values: Sequence[Value]) -> Value:
        """Interval of the sums element by element (borders see fewer terms), and the bound over partial sums."""
        x = values[0]
        shape = self.shape([x.shape])
        low, high = np.empty(shape, np.int64), np.empty(shape, np.int64)
        bound = 0
        for group in range(self.groups):
            inputs = slice(group * self.weight.shape[1], (group + 1) * self.weight.shape[1])
            outputs = slice(group * shape[0] // self.groups, (group + 1) * shape[0] // self.groups)
            weight = self.weight[outputs].reshape(outputs.stop - outputs.start, -1)
            least, most = (
                patches(end[None, inputs], self.kernel, self.stride, self.padding)[0] for end in (x.low, x.high)
            )
            # Some lines of positions at a time: the windows of a whole image are many times its size.
            block = max(1, _DERIVE_TERMS // (weight.shape[1] * int(np.prod(shape[2:]))))
            for line in range(0, shape[1], block):
                lines = (outputs, slice(line, line + block))
                which = (slice(None),) * (1 + len(self.kernel)) + lines[1:]
                ends = [end[which].reshape(weight.shape[1], -1) for end in (least, most)]
                down, up, largest = dot_interval(weight, self.bias[outputs], ends[0], ends[1], self.name)
                low[lines], high[lines] = down.reshape(low[lines].shape), up.reshape(high[lines].shape)
                bound = max(bound, largest)
        return declared(self.name, shape, low, high, bound, self.accumulator, self.overflow)


@dataclass(frozen=True, eq=False)
class Requantize(Unary):
    """``overflow(round(x * multiplier / 2^shift) + offset)`` into ``type``: the dyadic rescale of a sum.

    ``multiplier``, ``shift`` and ``offset`` are int64, scalar or broadcastable over the value (one per channel:
    shape (channels, 1, ...)). The offset is the zero point, added after rounding and before clipping.
    With an unsigned type, zero offset and saturation this *is* ReLU followed by a rescale.
    """

    name: str
    input: str
    multiplier: IntArray
    shift: IntArray
    offset: IntArray
    type: IntType
    rounding: Rounding = Rounding.HALF_EVEN
    overflow: Overflow = Overflow.SATURATE
    layer: str = ""
    kind: ClassVar[str] = "Requantize"

    def __post_init__(self) -> None:
        for name in ("multiplier", "shift", "offset"):
            object.__setattr__(self, name, frozen(getattr(self, name), np.int64))
        if self.shift.size and (self.shift.min() < 0 or self.shift.max() > MAX_SHIFT):
            raise NetworkError(
                f"{self.name}: shifts from {self.shift.min()} to {self.shift.max()}; expected 0 to {MAX_SHIFT}"
            )
        modulus(self.type, self.overflow, self.name)

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """Shape of the result, or ``NetworkError``."""
        for name in ("multiplier", "shift", "offset"):
            broadcast(getattr(self, name), shapes[0], f"{self.name}: {name}")
        channels(self.type, shapes[0], self.name)
        return shapes[0]

    def derive(self, values: Sequence[Value]) -> Value:
        """Interval of the result; the bound covers the product before the shift, its rounding half, and the offset."""
        x = values[0]
        shape = self.shape([x.shape])
        largest = x.magnitude * int(np.abs(self.multiplier).max()) + (1 << int(self.shift.max()))
        largest = max(largest, (largest >> int(self.shift.min())) + int(np.abs(self.offset).max()) + 1)
        limit(self.name, largest, "the product with the multiplier", "use multipliers of fewer bits")
        # The map is monotone (its sign is the multiplier's) until it wraps, so the ends of the interval go to its ends.
        ends = [shift_round(end * self.multiplier, self.shift, self.rounding) + self.offset for end in (x.low, x.high)]
        low, high = np.minimum(*ends), np.maximum(*ends)
        value = declared(self.name, shape, low, high, largest, self.type, self.overflow)
        return dataclasses.replace(value, type=self.type)
