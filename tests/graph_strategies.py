"""Random small convolutional, residual and concatenating graphs that QONNX can express, and inputs for them.

A graph grows value by value: a block is drawn, its ops are appended, and a few rows run through them at once
(``network.forward``), so that the next rescale knows how far its input spreads and fills its type, with some
saturation. Half of the rescales are powers of two instead, for which many results are ties.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray
from strategies import uniform_types

from hawq_flow import interpret
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
    Subtract,
    SumPool,
    Upsample,
    Value,
    forward,
)
from hawq_flow.numeric import IntType, Overflow, Rounding, nearest_dyadic

Shape = tuple[int, ...]
MAX_ELEMENTS = 160
"""Elements of a value beyond which a graph is not upsampled any more."""


class Grower:
    """The ops of a graph so far, what is derived of them, and a few rows of data through them."""

    def __init__(self, draw: Any, spec: InputSpec, *, hls: bool = False) -> None:
        self.draw, self.hls, self.spec = draw, hls, spec
        self.rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        self.ops: list[Op] = []
        self.values: dict[str, Value] = dict(IntegerNetwork((spec,), (), (OutputSpec(spec.name),)).values)
        self.data: dict[str, NDArray[np.int64]] = {
            spec.name: self.rng.integers(*spec.type.range, (6, *spec.shape), endpoint=True)
        }

    def add(self, op: Op) -> str:
        self.values[op.name] = op.derive([self.values[name] for name in op.inputs])
        self.data[op.name] = forward(op, [self.data[name] for name in op.inputs])
        self.ops.append(op)
        return op.name

    def name(self, kind: str) -> str:
        return f"{kind}{len(self.ops)}"

    def shape(self, value: str) -> Shape:
        return self.values[value].shape

    def spread(self, value: str) -> float:
        return max(1.0, float(np.quantile(np.abs(self.data[value]), 0.95)))

    # --- single ops

    def _weights(self, shape: Shape, value: str) -> tuple[NDArray[np.int64], NDArray[np.int64], IntType | None]:
        reach = 1 << (self.draw(st.integers(1, 7)) - 1)
        weight = self.rng.integers(-reach, reach, shape)
        if shape[0] > 1 and self.draw(st.integers(0, 4)) == 0:
            weight[self.rng.integers(shape[0])] = 0
        if not weight.any():
            weight.flat[self.rng.integers(weight.size)] = -reach
        size = int(self.spread(value) * reach / 2)
        bias = self.rng.integers(-size - 1, size + 1, shape[0], endpoint=True)
        excess = max(0, int(np.abs(bias).max()).bit_length() - 24)
        accumulator = None
        if self.draw(st.integers(0, 5)) == 0:
            accumulator = IntType(self.draw(st.integers(4, 20)), True, self.draw(st.booleans()))
        return weight, (bias >> excess) << excess, accumulator

    def conv(self, value: str, *, same: bool = False) -> str:
        """A convolution with everything drawn; ``same`` keeps the shape of its input."""
        channels, *space = self.shape(value)
        kernel = tuple(self.draw(st.integers(1, min(3, n))) for n in space)
        stride = tuple(1 if same else self.draw(st.integers(1, 3)) for _ in space)
        before = tuple(self.draw(st.integers(0, k - 1)) for k in kernel)
        after = tuple(k - 1 - b for k, b in zip(kernel, before, strict=True))
        if not same:
            after = tuple(self.draw(st.integers(0, k - 1)) for k in kernel)
        form = self.draw(st.sampled_from(["full", "full", "depthwise", "grouped"]))
        groups = channels if form == "depthwise" else 1
        if form == "grouped" and not self.hls:
            groups = self.draw(st.sampled_from([g for g in range(1, channels + 1) if channels % g == 0]))
        outputs = channels if same or groups > 1 else self.draw(st.integers(1, 4))
        if form == "depthwise" and not same and not self.hls:
            outputs *= self.draw(st.integers(1, 2))
        weight, bias, accumulator = self._weights((outputs, channels // groups, *kernel), value)
        name = self.name("conv")
        return self.add(Conv(name, value, weight, bias, stride, before + after, groups, accumulator, layer=name))

    def dense(self, value: str) -> str:
        weight, bias, accumulator = self._weights((self.draw(st.integers(1, 5)), *self.shape(value)), value)
        name = self.name("fc")
        return self.add(Dense(name, value, weight, bias, accumulator, layer=name))

    def requantize(self, value: str, out: IntType | None = None) -> str:
        """A rescale that fills its type and saturates a little, or one of powers of two: ties."""
        x, draw = self.values[value], self.draw
        channels, rank = x.shape[0], len(x.shape)
        spread = self.spread(value)
        out = out or draw(uniform_types(2, 8))
        if not self.hls and draw(st.integers(0, 5)) == 0:
            out = IntType(tuple(draw(st.integers(2, 8)) for _ in range(channels)), out.signed, out.narrow)
        each = (channels, *[1] * (rank - 1))
        size = each if draw(st.booleans()) else ()
        if draw(st.booleans()):
            multiplier = np.asarray(1 << self.rng.integers(0, 3, size))
            fit = max(1, int(np.log2(2 * spread / max(1, out.range[1]) + 1)))
            shift = np.asarray(self.rng.integers(0, 2, size) + fit)
        else:
            fill = np.asarray(max(1, out.range[1]) / spread * self.rng.uniform(0.3, 1.5, size))
            least = int(np.ceil(np.log2(np.max(fill) + 1))) + 1
            multiplier, shift = nearest_dyadic(fill, max(min(least, 16), draw(st.sampled_from([16, 8, 4]))))
            if draw(st.integers(0, 5)) == 0:
                multiplier = -multiplier
        offset = np.int64(0)
        if draw(st.integers(0, 3)) == 0:
            offset = self.rng.integers(-5, 6, each if draw(st.booleans()) else ())
        op = Requantize(
            self.name("act"),
            value,
            multiplier,
            shift,
            np.asarray(offset, dtype=np.int64),
            out,
            draw(st.sampled_from(Rounding)),
            layer=next((o.layer for o in self.ops if o.name == value), ""),
        )
        if not self.hls and draw(st.integers(0, 5)) == 0:  # wraps by its declaration, never in fact
            free = Requantize(op.name, value, multiplier, shift, op.offset, IntType(40, True), op.rounding)
            ends = free.derive([x])
            held = IntType.holding(int(ends.low.min()), int(ends.high.max()))
            held = IntType(max(2, held.max_bits), held.signed)
            op = Requantize(
                op.name, value, multiplier, shift, op.offset, held, op.rounding, Overflow.WRAP, layer=op.layer
            )
        if np.ptp(forward(op, [self.data[value]])) == 0:  # negative sums into an unsigned type, most often
            top = max(4, out.max_bits)
            multiplier, shift = nearest_dyadic((1 << top - 1) / spread, 12)
            op = Requantize(op.name, value, multiplier, shift, op.offset * 0, IntType(top, True), op.rounding)
        return self.add(op)

    def pool(self, value: str, kind: type[MaxPool | SumPool]) -> str:
        space = self.shape(value)[1:]
        kernel = tuple(self.draw(st.integers(1, min(3, n))) for n in space)
        stride = tuple(self.draw(st.integers(1, 3)) for _ in space)
        padding = tuple(self.draw(st.integers(0, k - 1)) for k in kernel * 2)
        return self.add(kind(self.name(kind.kind.lower()), value, kernel, stride, padding))

    def global_pool(self, value: str) -> str:
        space = self.shape(value)[1:]
        return self.add(SumPool(self.name("global"), value, space, space, (0,) * (2 * len(space))))

    def lookup(self, value: str) -> str:
        """A table over the whole type of its input: random, or a sigmoid; with spare entries where HLS is not meant."""
        low, high = self.values[value].type.range
        spare = 0 if self.hls else self.draw(st.integers(0, 3))
        places = np.arange(low - spare, high + spare + 1)
        top = (1 << self.draw(st.integers(2, 8))) - 1
        if self.draw(st.booleans()):
            table = np.rint(top / (1 + np.exp(-places / max(1, high) * 3))).astype(np.int64)
        else:
            table = self.rng.integers(-top, top, places.size, endpoint=True)
        return self.add(Lookup(self.name("table"), value, table, low - spare, "drawn"))

    def upsample(self, value: str) -> str:
        factors = tuple(self.draw(st.integers(1, 3)) for _ in self.shape(value)[1:])
        if np.prod(self.shape(value)) * np.prod(factors) > MAX_ELEMENTS:
            return value
        return self.add(Upsample(self.name("up"), value, factors))

    def pad(self, value: str) -> str:
        each = self.values[value].type
        low, high = int(each.low().max()), int(each.high().min())
        padding = tuple(self.draw(st.integers(0, 2)) for _ in self.shape(value)[1:] * 2)
        return self.add(Pad(self.name("pad"), value, padding, 0 if self.hls else self.draw(st.integers(low, high))))

    # --- blocks: value in, value of the same rank out, narrow enough to go on

    def residual(self, value: str) -> str:
        """Two or three branches of the same shape and unequal scales, each rescaled, and the sum rescaled again."""
        branch = self.requantize(self.conv(value, same=True))
        if self.draw(st.booleans()):
            branch = self.requantize(self.conv(branch, same=True))
        operands = [branch, value if self.draw(st.booleans()) else self.requantize(value)]
        if self.draw(st.integers(0, 3)) == 0:
            operands.append(self.requantize(self.conv(value, same=True)))
        return self.requantize(self.add(Add(self.name("add"), tuple(operands))))

    def concat(self, value: str) -> str:
        operands = [self.requantize(self.conv(value, same=True)), value]
        if self.draw(st.integers(0, 3)) == 0:
            operands.insert(0, self.requantize(value))
        axis = 0 if self.hls else self.draw(st.integers(0, len(self.shape(value)) - 1))
        joined = self.add(Concat(self.name("concat"), tuple(operands), axis))
        return self.requantize(self.conv(joined))

    def arithmetic(self, value: str) -> str:
        """What HLS has no template for: differences, products, reductions, and operands that broadcast."""
        axis = self.draw(st.integers(0, len(self.shape(value)) - 1))
        most = self.add(ReduceMax(self.name("most"), value, axis))
        less = self.add(Subtract(self.name("less"), value, most))
        total = self.requantize(self.add(ReduceSum(self.name("total"), less, axis)))
        gated = self.add(Multiply(self.name("gated"), self.requantize(less), total))
        return self.requantize(self.add(Add(self.name("mixed"), (most, total, gated))))

    def block(self, value: str) -> str:
        kinds = ["conv", "residual", "concat", "max_pool", "sum_pool", "upsample", "pad", "lookup"]
        match self.draw(st.sampled_from(kinds if self.hls else [*kinds, "arithmetic"])):
            case "conv":
                return self.requantize(self.conv(value))
            case "residual":
                return self.residual(value)
            case "concat":
                return self.concat(value)
            case "max_pool":
                return self.pool(value, MaxPool)
            case "sum_pool":
                return self.requantize(self.pool(value, SumPool))
            case "upsample":
                return self.upsample(value)
            case "pad":
                return self.requantize(self.conv(self.pad(value)))
            case "lookup":
                return self.lookup(value)
            case _:
                return self.arithmetic(value)

    def network(self, outputs: Sequence[str]) -> IntegerNetwork:
        return IntegerNetwork((self.spec,), tuple(self.ops), tuple(OutputSpec(name) for name in outputs))


@st.composite
def expressible_graphs(draw: Any, max_blocks: int = 4, *, hls: bool = False, rank: int | None = None) -> IntegerNetwork:
    """A chain of 1 to ``max_blocks`` blocks on a signal (channels, n) or an image (channels, height, width).

    Parameters
    ----------
    hls:
        Keep to what hls4ml could take: groups of one or depthwise, zeros as padding, one width for all channels, no
        declared wrapping, no differences, products or reductions, tables over the whole of their input's type.
    rank:
        Axes of space, 1 or 2; None draws it.
    """
    rank = rank or draw(st.integers(1, 2))
    size = st.integers(2, 12) if rank == 1 else st.integers(2, 6)
    spec = InputSpec("x", (draw(st.integers(1, 4)), *(draw(size) for _ in range(rank))), draw(uniform_types(2, 8)))
    grower = Grower(draw, spec, hls=hls)
    value = "x"
    for _ in range(draw(st.integers(1, max_blocks))):
        value = grower.block(value)
    match draw(st.integers(0, 3)):
        case 0:  # a classifier: global average, dense
            value = grower.requantize(grower.global_pool(value))
            value = grower.dense(grower.add(Reshape("flat", value, (grower.shape(value)[0],))))
        case 1:
            flat = grower.add(Reshape("flat", value, (int(np.prod(grower.shape(value))),)))
            value = grower.requantize(grower.dense(flat))
        case 2:  # ends on sums
            value = grower.conv(value)
        case _:
            if value == "x":  # an upsampling that was too large; a network computes something
                value = grower.requantize(value)
    return grower.network([value])


def graph_rows(network: IntegerNetwork, seed: int = 0, rows: int = 12) -> NDArray[np.int64]:
    """Inputs (n, *shape): over the whole type, mixtures of its ends, small ones, zeros but for a border, both ends."""
    spec = network.inputs[0]
    rng = np.random.default_rng(seed)
    low, high = spec.type.range
    shape = (rows, *spec.shape)
    ends = np.where(rng.integers(0, 2, shape) == 1, high, low)
    small = np.clip(rng.integers(-3, 4, shape), low, high)
    borders = np.zeros((2 * len(spec.shape) - 2, *spec.shape), dtype=np.int64)
    for i in range(len(borders)):  # what a wrong padding shows at once
        index: list[Any] = [slice(None)] * len(spec.shape)
        index[1 + i // 2] = -(i % 2)
        borders[(i, *index)] = ends[i % rows][tuple(index)]
    edges = np.stack([np.full(spec.shape, low), np.full(spec.shape, high)])
    return np.concatenate([rng.integers(low, high, shape, endpoint=True), ends, small, borders, edges])


def coverage(network: IntegerNetwork, x: NDArray[np.int64]) -> Mapping[str, int]:
    """What the rescales of a network meet on inputs: elements, ties, results cut below and above."""
    traced = interpret.trace(network, x)
    counts = {"elements": 0, "ties": 0, "low": 0, "high": 0}
    for op in network.ops:
        if isinstance(op, Requantize):
            product = traced[op.input] * op.multiplier
            rest = product & ((np.int64(1) << op.shift) - 1)
            counts["elements"] += product.size
            counts["ties"] += int(((op.shift > 0) & (2 * rest == np.int64(1) << op.shift)).sum())
            exact = product / 2.0**op.shift + op.offset
            rank = product.ndim - 1
            counts["low"] += int((exact < op.type.low(rank) - 0.5).sum())
            counts["high"] += int((exact > op.type.high(rank) + 0.5).sum())
    return counts
