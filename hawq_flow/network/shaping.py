"""Ops that move, pick or gather integers without weights: reshape, pad, pool, repeat, concatenate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hawq_flow.network.values import (
    Nary,
    NetworkError,
    Shape,
    Unary,
    Value,
    declared,
    dims,
    joint_type,
    limit,
    same_width,
)
from hawq_flow.network.windows import padded, patches, set_window, window_shape
from hawq_flow.numeric import Overflow


@dataclass(frozen=True, eq=False)
class Reshape(Unary):
    """The same integers in another shape (C order, batch excluded)."""

    name: str
    input: str
    to: Shape
    layer: str = ""
    kind: ClassVar[str] = "Reshape"

    def __post_init__(self) -> None:
        object.__setattr__(self, "to", tuple(int(n) for n in self.to))

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """Shape of the result, or ``NetworkError``."""
        if int(np.prod(shapes[0])) != int(np.prod(self.to)) or min(self.to, default=1) < 1:
            raise NetworkError(
                f"{self.name}: cannot reshape ({dims(shapes[0])}) to ({dims(self.to)}); "
                "the number of elements must stay the same"
            )
        return self.to

    def derive(self, values: Sequence[Value]) -> Value:
        """The operand's interval, reshaped; a per-channel type becomes the narrowest single one."""
        x = values[0]
        shape = self.shape([x.shape])
        return Value(shape, x.low.reshape(shape), x.high.reshape(shape), same_width(x), x.magnitude)


def _spatial(name: str, shape: Shape, rank: int, what: str) -> None:
    if len(shape) != rank + 1:
        raise NetworkError(
            f"{name}: {what} in {rank} dimensions on a value of shape ({dims(shape)}); expected (channels, "
            f"{', '.join(['n'] * rank)})"
        )


@dataclass(frozen=True, eq=False)
class Pad(Unary):
    """``x`` (channels, *space) with the integer ``value`` around its space.

    ``padding`` is ordered as in ONNX's ``pads`` restricted to space: all beginnings, then all ends. Before a
    convolution of integers with a zero point z, real zero is z: Pad with ``value`` z, then Conv without padding.
    """

    name: str
    input: str
    padding: Shape
    value: int = 0
    layer: str = ""
    kind: ClassVar[str] = "Pad"

    def __post_init__(self) -> None:
        object.__setattr__(self, "padding", tuple(int(n) for n in self.padding))
        object.__setattr__(self, "value", int(self.value))
        if len(self.padding) not in (2, 4) or min(self.padding) < 0:
            raise NetworkError(
                f"{self.name}: padding {self.padding}; expected 2 or 4 numbers of 0 or more: all beginnings, then all "
                "ends"
            )

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """Shape of the result, or ``NetworkError``."""
        rank = len(self.padding) // 2
        _spatial(self.name, shapes[0], rank, "padding")
        space = (n + self.padding[i] + self.padding[rank + i] for i, n in enumerate(shapes[0][1:]))
        return (shapes[0][0], *space)

    def derive(self, values: Sequence[Value]) -> Value:
        """The operand's interval, and the value around it, which the operand's type must hold."""
        x = values[0]
        shape = self.shape([x.shape])
        if self.value > int(x.type.high().min()) or self.value < int(x.type.low().max()):
            raise NetworkError(
                f"{self.name}: pads with {self.value}, which {self.input!r} of type {x.type} cannot hold; pad with its "
                "zero point, or widen the type"
            )
        low, high = (padded(end[None], self.padding, self.value)[0] for end in (x.low, x.high))
        return Value(shape, low, high, x.type, max(x.magnitude, abs(self.value)))


@dataclass(frozen=True, eq=False)
class _Pool(Unary):
    name: str
    input: str
    kernel: Shape
    stride: Shape
    padding: Shape
    layer: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "kernel", tuple(int(n) for n in self.kernel))
        set_window(self, self.kernel)

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """Shape of the result, or ``NetworkError``."""
        _spatial(self.name, shapes[0], len(self.kernel), "a pool")
        return (shapes[0][0], *window_shape(self.name, shapes[0], self.kernel, self.stride, self.padding))


@dataclass(frozen=True, eq=False)
class MaxPool(_Pool):
    """Largest element of every window, channel by channel; padding never wins.

    ``kernel`` and ``stride`` have one entry an axis of space, ``padding`` as in :class:`Conv`.
    """

    kind: ClassVar[str] = "MaxPool"

    def derive(self, values: Sequence[Value]) -> Value:
        """The largest of the windows' lows, and of their highs."""
        x = values[0]
        shape = self.shape([x.shape])
        axes = tuple(range(1, 1 + len(self.kernel)))
        least = int(x.low.min())  # no larger than any element, so padding never wins
        low, high = (
            patches(end[None], self.kernel, self.stride, self.padding, least)[0].max(axis=axes)
            for end in (x.low, x.high)
        )
        return Value(shape, low, high, x.type, x.magnitude)


@dataclass(frozen=True, eq=False)
class SumPool(_Pool):
    """Sum of every window, channel by channel, with zeros around: an average once a Requantize has divided it.

    ``kernel``, ``stride`` and ``padding`` as in :class:`MaxPool`; a global pool has the space as its kernel.
    """

    kind: ClassVar[str] = "SumPool"

    def derive(self, values: Sequence[Value]) -> Value:
        """Sums of the ends of the intervals; the bound is the sum of the magnitudes."""
        x = values[0]
        shape = self.shape([x.shape])
        limit(self.name, x.magnitude * int(np.prod(self.kernel)), "the sum of a window", "narrow its input")
        axes = tuple(range(1, 1 + len(self.kernel)))
        reach = np.maximum(np.abs(x.low), np.abs(x.high))
        low, high, bound = (
            patches(end[None], self.kernel, self.stride, self.padding)[0].sum(axis=axes)
            for end in (x.low, x.high, reach)
        )
        return declared(self.name, shape, low, high, int(bound.max()), None, Overflow.SATURATE)


@dataclass(frozen=True, eq=False)
class Upsample(Unary):
    """Every element of space repeated ``factors`` times along each axis (nearest neighbour)."""

    name: str
    input: str
    factors: Shape
    layer: str = ""
    kind: ClassVar[str] = "Upsample"

    def __post_init__(self) -> None:
        object.__setattr__(self, "factors", tuple(int(n) for n in self.factors))
        if len(self.factors) not in (1, 2) or min(self.factors) < 1:
            raise NetworkError(f"{self.name}: factors {self.factors}; expected one or two numbers of 1 or more")

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """Shape of the result, or ``NetworkError``."""
        _spatial(self.name, shapes[0], len(self.factors), "upsampling")
        return (shapes[0][0], *(n * f for n, f in zip(shapes[0][1:], self.factors, strict=True)))

    def derive(self, values: Sequence[Value]) -> Value:
        """The operand's interval, repeated."""
        x = values[0]
        low, high = x.low, x.high
        for axis, factor in enumerate(self.factors, start=1):
            low, high = np.repeat(low, factor, axis), np.repeat(high, factor, axis)
        return Value(self.shape([x.shape]), low, high, x.type, x.magnitude)


@dataclass(frozen=True, eq=False)
class Concat(Nary):
    """Operands side by side along ``axis`` (0: channels). Their scales must agree: requantize each before."""

    name: str
    operands: tuple[str, ...]
    axis: int = 0
    layer: str = ""
    kind: ClassVar[str] = "Concat"

    def __post_init__(self) -> None:
        object.__setattr__(self, "operands", tuple(self.operands))
        object.__setattr__(self, "axis", int(self.axis))
        if len(self.operands) < 2 or self.axis < 0:
            raise NetworkError(
                f"{self.name}: {len(self.operands)} operands along axis {self.axis}; expected two or more, and an axis "
                "of 0 or more (batch excluded)"
            )

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """Shape of the result, or ``NetworkError``."""
        rest = {(*shape[: self.axis], *shape[self.axis + 1 :]) for shape in shapes}
        if len(rest) != 1 or any(len(shape) <= self.axis for shape in shapes):
            raise NetworkError(
                f"{self.name}: operands of shapes {', '.join(f'({dims(shape)})' for shape in shapes)}; expected "
                f"the same but for axis {self.axis}"
            )
        total = sum(shape[self.axis] for shape in shapes)
        return (*shapes[0][: self.axis], total, *shapes[0][self.axis + 1 :])

    def derive(self, values: Sequence[Value]) -> Value:
        """The operands' intervals, side by side."""
        shape = self.shape([x.shape for x in values])
        low, high = (np.concatenate([getattr(x, end) for x in values], self.axis) for end in ("low", "high"))
        return Value(shape, low, high, joint_type(self.name, values), max(x.magnitude for x in values))
