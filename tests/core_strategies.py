"""Random integer networks and inputs for the tests of the core: widths, types and structure drawn by Hypothesis."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from hawq_flow.network import (
    Add,
    Concat,
    Conv,
    Dense,
    InputSpec,
    IntegerNetwork,
    Lookup,
    MaxPool,
    Multiply,
    Op,
    OutputSpec,
    Pad,
    ReduceMax,
    ReduceSum,
    Requantize,
    Reshape,
    Shape,
    Subtract,
    SumPool,
    Upsample,
    Value,
)
from hawq_flow.numeric import IntType, Overflow, Rounding


@st.composite
def int_types(
    draw: Any, channels: int = 1, low: int = 2, high: int = 16, *, narrow: bool = True, per_channel: bool = True
) -> IntType:
    """A type of ``low`` to ``high`` bits, signed or not, narrow or not, sometimes with one width per channel."""
    width = st.integers(low, high)
    if per_channel and draw(st.booleans()):
        bits: int | tuple[int, ...] = tuple(draw(st.lists(width, min_size=channels, max_size=channels)))
    else:
        bits = draw(width)
    signed = draw(st.booleans())
    return IntType(bits, signed, signed and narrow and draw(st.booleans()))


@st.composite
def networks(draw: Any, max_layers: int = 3, max_width: int = 5, max_bits: int = 16) -> IntegerNetwork:
    """A chain of Dense and Requantize (sometimes behind a Reshape), with every option of both drawn."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    width = st.integers(1, max_width)
    shape = (draw(width), draw(st.integers(1, 3))) if draw(st.booleans()) else (draw(width),)
    spec = InputSpec("x", shape, draw(int_types(shape[0], high=max_bits)))
    ops: list[Op] = []
    value, features = "x", shape[0]
    if len(shape) == 2:
        features = shape[0] * shape[1]
        ops.append(Reshape("flat", value, (features,)))
        value = "flat"
    for i in range(draw(st.integers(1, max_layers))):
        outputs = draw(width)
        reach = 1 << (draw(st.integers(2, max_bits)) - 1)
        weight = rng.integers(-reach, reach, (outputs, features), endpoint=True)
        bias = rng.integers(-(1 << 20), 1 << 20, outputs) >> draw(st.integers(0, 20))
        overflow = draw(st.sampled_from(Overflow))
        accumulator = None
        if draw(st.booleans()):
            accumulator = draw(int_types(outputs, 2, 24, narrow=overflow is Overflow.SATURATE))
        ops.append(Dense(f"d{i}", value, weight, bias, accumulator, overflow))
        overflow = draw(st.sampled_from(Overflow))
        size = outputs if draw(st.booleans()) else ()
        # Powers of two give ties; the rest of the multipliers do not, and a few are negative or zero.
        multiplier = 1 << rng.integers(0, 4, size)
        if draw(st.booleans()):
            multiplier = rng.integers(-3, 1 << draw(st.integers(1, 20)), size)
        ops.append(
            Requantize(
                f"q{i}",
                f"d{i}",
                np.asarray(multiplier),
                rng.integers(0, draw(st.integers(1, 24)), size, endpoint=True),
                rng.integers(-9, 9, outputs if draw(st.booleans()) else ()),
                draw(int_types(outputs, high=max_bits, narrow=overflow is Overflow.SATURATE)),
                draw(st.sampled_from(Rounding)),
                overflow,
            )
        )
        value, features = f"q{i}", outputs
    return IntegerNetwork((spec,), tuple(ops), (OutputSpec(value),))


MOST_ELEMENTS = 300
"""Elements of a value beyond which a graph's values are not made larger."""


class _Grower:
    """A graph that grows op by op; every value is derived as it is added, so that the next op can fit it."""

    def __init__(self, draw: Any, spec: InputSpec) -> None:
        self.draw = draw
        self.rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        self.ops: list[Op] = []
        self.values: dict[str, Value] = dict(IntegerNetwork((spec,), (), (OutputSpec(spec.name),)).values)

    def add(self, op: Op) -> str:
        self.values[op.name] = op.derive([self.values[name] for name in op.inputs])
        self.ops.append(op)
        return op.name

    def name(self, kind: str) -> str:
        return f"{kind}{len(self.ops)}"

    def shape(self, source: str) -> Shape:
        return self.values[source].shape

    def constants(self, size: tuple[int, ...], bits: int) -> NDArray[np.int64]:
        reach = 1 << (bits - 1)
        return self.rng.integers(-reach, reach, size, endpoint=True)

    def below(self, source: str, bits: int) -> str:
        """``source``, rescaled when its values may need more than ``bits`` bits."""
        return source if self.values[source].magnitude < 1 << bits else self.requantize(source, bits)

    def requantize(self, source: str, most: int = 16) -> str:
        """Into a drawn type of ``most`` bits at most, the type's range about as wide as the value's (or not at all)."""
        draw, value = self.draw, self.values[source]
        channels, rank = value.shape[0], len(value.shape)
        overflow = draw(st.sampled_from(Overflow))
        type = draw(int_types(channels, 2, most, narrow=overflow is Overflow.SATURATE))
        size = (channels,) + (1,) * (rank - 1) if draw(st.booleans()) else ()
        width = value.magnitude.bit_length()
        bits = min(draw(st.integers(1, 20)), 59 - width)
        multiplier = self.rng.integers(-2, 1 << bits, size, endpoint=True)
        if draw(st.booleans()):  # powers of two give ties
            multiplier = 1 << self.rng.integers(0, bits, size)
        spread = max(0, width + bits - type.max_bits + draw(st.integers(-3, 2)))
        shift = self.rng.integers(max(0, spread - 2), spread, size, endpoint=True)
        offset = self.rng.integers(-9, 9, size if draw(st.booleans()) else ())
        name, rounding = self.name("requantize"), draw(st.sampled_from(Rounding))
        return self.add(
            Requantize(name, source, np.asarray(multiplier), np.asarray(shift), offset, type, rounding, overflow)
        )

    def layer_input(self, source: str) -> str:
        """Mostly below 24 bits, where the sums stay in float64; at times beyond."""
        return self.below(source, self.draw(st.sampled_from([10, 24, 40])))

    def weight(self, source: str, size: tuple[int, ...]) -> NDArray[np.int64]:
        """Weights of a drawn width, such that the sums stay below 2^60."""
        room = 60 - self.values[source].magnitude.bit_length() - int(np.prod(size[1:])).bit_length()
        return self.constants(size, min(self.draw(st.integers(2, 16)), room))

    def accumulator(self, channels: int) -> tuple[IntType | None, Overflow]:
        overflow = self.draw(st.sampled_from(Overflow))
        if self.draw(st.booleans()):
            return None, overflow
        return self.draw(int_types(channels, 2, 24, narrow=overflow is Overflow.SATURATE)), overflow

    def window(self, space: Shape) -> tuple[Shape, Shape, Shape]:
        """A kernel, a stride and a padding (each of its ends drawn) that fit ``space``."""
        draw = self.draw
        kernel, stride, before, after = [], [], [], []
        for n in space:
            k = draw(st.integers(1, 3))
            ends = [draw(st.integers(0, k - 1)) for _ in range(2)]
            if k > n + sum(ends):
                k, ends = n, [0, 0]
            kernel.append(k)
            stride.append(draw(st.integers(1, 3)))
            before.append(ends[0])
            after.append(ends[1])
        return tuple(kernel), tuple(stride), (*before, *after)

    def conv(self, source: str) -> str:
        source, draw = self.layer_input(source), self.draw
        channels, *space = self.shape(source)
        kernel, stride, padding = self.window(tuple(space))
        groups = draw(st.sampled_from([n for n in range(1, channels + 1) if channels % n == 0]))
        outputs = groups * draw(st.integers(1, max(1, 4 // groups)))
        weight = self.weight(source, (outputs, channels // groups, *kernel))
        bias = self.constants((outputs,), 20) >> draw(st.integers(0, 20))
        accumulator, overflow = self.accumulator(outputs)
        return self.add(Conv(self.name("conv"), source, weight, bias, stride, padding, groups, accumulator, overflow))

    def dense(self, source: str) -> str:
        source = self.flat(self.layer_input(source))
        outputs = self.draw(st.integers(1, 5))
        weight = self.weight(source, (outputs, self.shape(source)[0]))
        accumulator, overflow = self.accumulator(outputs)
        return self.add(
            Dense(self.name("dense"), source, weight, self.constants((outputs,), 12), accumulator, overflow)
        )

    def flat(self, source: str) -> str:
        shape = self.shape(source)
        return source if len(shape) == 1 else self.reshape(source, (int(np.prod(shape)),))

    def reshape(self, source: str, to: Shape) -> str:
        return self.add(Reshape(self.name("reshape"), source, to))

    def pad(self, source: str) -> str:
        value = self.values[source]
        padding = tuple(self.draw(st.integers(0, 2)) for _ in range(2 * (len(value.shape) - 1)))
        low, high = int(value.type.low().max()), int(value.type.high().min())
        fill = self.draw(st.sampled_from([low, high, min(max(0, low), high)]))
        return self.add(Pad(self.name("pad"), source, padding, fill))

    def pool(self, source: str) -> str:
        cls = self.draw(st.sampled_from([MaxPool, SumPool]))
        space = self.shape(source)[1:]
        kernel, stride, padding = self.window(space)
        if self.draw(st.integers(0, 4)) == 0:  # a global pool
            kernel, padding = space, (0,) * (2 * len(space))
        return self.add(cls(self.name("pool"), self.below(source, 40), kernel, stride, padding))

    def upsample(self, source: str) -> str:
        factors = tuple(self.draw(st.integers(1, 3)) for _ in self.shape(source)[1:])
        return self.add(Upsample(self.name("upsample"), source, factors))

    def lookup(self, source: str) -> str:
        source = self.below(source, 8)
        value = self.values[source]
        start = int(value.low.min()) - self.draw(st.integers(0, 3))
        entries = int(value.high.max()) - start + 1 + self.draw(st.integers(0, 3))
        table = self.constants((entries,), self.draw(st.integers(2, 30)))
        return self.add(Lookup(self.name("lookup"), source, table, start))

    def partner(self, source: str) -> str:
        """A value that broadcasts with ``source``: another one, a branch of it, its reduction, or itself."""
        shape = self.shape(source)
        fitting = [
            name
            for name, value in self.values.items()
            if len(value.shape) == len(shape)
            and all(a == b or 1 in (a, b) for a, b in zip(value.shape, shape, strict=True))
        ]
        kind = self.draw(st.integers(0, 3))
        if kind == 0:
            return self.requantize(source)
        if kind == 1:
            return self.reduce(source)
        return self.draw(st.sampled_from(fitting))

    def join(self, source: str) -> str:
        kind = self.draw(st.sampled_from([Add, Add, Subtract, Multiply]))
        most = 25 if kind is Multiply else 40
        left, right = self.below(source, most), self.below(self.partner(source), most)
        if self.draw(st.booleans()):
            left, right = right, left
        name = self.name(kind.kind.lower())
        if kind is Add:
            return self.add(Add(name, (left, right, left) if self.draw(st.booleans()) else (left, right)))
        return self.add(kind(name, left, right))

    def concat(self, source: str) -> str:
        shape = self.shape(source)
        axis = self.draw(st.integers(0, len(shape) - 1))
        rest = (*shape[:axis], *shape[axis + 1 :])
        fitting = [
            name
            for name, value in self.values.items()
            if len(value.shape) == len(shape) and (*value.shape[:axis], *value.shape[axis + 1 :]) == rest
        ]
        others = self.draw(st.lists(st.sampled_from(fitting), min_size=1, max_size=2))
        return self.add(Concat(self.name("concat"), (source, *others), axis))

    def reduce(self, source: str) -> str:
        axis = self.draw(st.integers(0, len(self.shape(source)) - 1))
        cls = self.draw(st.sampled_from([ReduceMax, ReduceSum]))
        return self.add(cls(self.name("reduce"), self.below(source, 40), axis))

    def grow(self, source: str) -> str:
        """One more op (and what has to come before it) on ``source``."""
        shape = self.shape(source)
        makers = [self.requantize, self.join, self.join, self.reduce, self.lookup]
        makers += [self.dense, self.dense] if len(shape) == 1 else [self.conv] * 5 + [self.pool] * 2
        makers += [self.dense] if len(shape) > 1 and len(self.ops) > 4 else []
        if int(np.prod(shape)) <= MOST_ELEMENTS:
            makers += [self.concat] if len(shape) == 1 else [self.concat, self.pad, self.upsample]
        return self.draw(st.sampled_from(makers))(source)


@st.composite
def graphs(draw: Any, max_steps: int = 7) -> IntegerNetwork:
    """A small network over all ops: one or two axes of space (or none), branches that join, every option drawn."""
    rank = draw(st.sampled_from([1, 1, 2, 2, 2, 0]))
    shape = (draw(st.integers(1, 4)), *(draw(st.integers(1, 7)) for _ in range(rank)))
    spec = InputSpec("x", shape, draw(int_types(shape[0], 2, draw(st.sampled_from([8, 16, 16, 40])))))
    graph = _Grower(draw, spec)
    value = "x"
    for _ in range(draw(st.integers(1, max_steps))):
        # Mostly on from the newest value, sometimes from an older one: a branch.
        source = value if draw(st.integers(0, 3)) else draw(st.sampled_from(list(graph.values)))
        value = graph.grow(source)
    return IntegerNetwork((spec,), tuple(graph.ops), (OutputSpec(value),))


def extreme_inputs(network: IntegerNetwork, seed: int = 0, rows: int = 24) -> NDArray[np.int64]:
    """Inputs of a network: random ones over the whole type, small ones (ties), and mixtures of the two ends."""
    spec = network.inputs[0]
    rng = np.random.default_rng(seed)
    rank = len(spec.shape)
    low = np.broadcast_to(spec.type.low(rank), spec.shape)
    high = np.broadcast_to(spec.type.high(rank), spec.shape)
    ends = np.where(rng.integers(0, 2, (rows, *spec.shape)) == 1, high, low)
    small = np.clip(rng.integers(-2, 3, (rows, *spec.shape)), low, high)
    return np.concatenate(
        [rng.integers(low, high, (rows, *spec.shape), endpoint=True), ends, small, low[None], high[None]]
    )
