"""The network as hardware that was sized for its healthy integers: every op on whatever its registers may hold.

Each op is computed by the interpreter's own function for it, made for operands that reach every integer of their types
instead of the intervals that the healthy weights allow; so its floats are proven wide enough for faulty values too. Its
result is then taken into the register of its value. Where no float or int64 is proven wide enough, sums and products
are computed in int64 as they come: int64 arithmetic is exact modulo 2^64, and 2^bits divides that. Only a Requantize
(it shifts, so it is not modular) then needs Python's integers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hawq_flow.interpret.products import Step
from hawq_flow.interpret.steps import step
from hawq_flow.network import LIMIT, Conv, Dense, IntegerNetwork, Lookup, NetworkError, Requantize, Value, forward
from hawq_flow.numeric import IntArray, IntType, Overflow, Rounding, lossless_float, shift_round


def ends(type: IntType, rank: int) -> tuple[IntArray, IntArray]:
    """Smallest and largest integer of the register of a type, broadcastable over ``rank`` axes.

    A narrow type's register has the integer that the type leaves out.
    """
    return type.low(rank) - int(type.narrow), type.high(rank)


def wrap(values: NDArray[Any], low: NDArray[Any], high: NDArray[Any]) -> NDArray[Any]:
    """``values`` modulo 2^bits into registers from ``low`` to ``high``: int64 (itself modulo 2^64) or object arrays."""
    return np.asarray(low + ((values - low) & (high - low)))


def flip(values: IntArray, bit: int, low: IntArray, high: IntArray) -> IntArray:
    """``values`` of registers from ``low`` to ``high`` with one bit inverted, int64."""
    return wrap(values ^ np.int64(1 << bit), low, high)


def carrier(type: IntType) -> np.dtype[Any]:
    """The narrowest dtype in which the interpreter carries every integer of a register."""
    low, high = ends(type, 1)
    return lossless_float(max(-int(low.min()), int(high.max()))) or np.dtype(np.int64)


def rescale(
    x: IntArray,
    multiplier: IntArray,
    shift: IntArray,
    offset: IntArray,
    rounding: Rounding,
    low: IntArray,
    high: IntArray,
    overflow: Overflow,
) -> IntArray:
    """``overflow(round(x * multiplier / 2^shift) + offset)`` between ``low`` and ``high``, exact for any operands.

    All int64, broadcastable; shifts up to 63. As :func:`hawq_flow.numeric.requantize`, but for operands that no proof
    bounds: products of 2^62 and more are computed in Python's integers.
    """
    if not x.size:
        return np.empty(np.broadcast_shapes(x.shape, multiplier.shape, shift.shape, offset.shape), np.int64)
    largest = _magnitude(x) * _magnitude(multiplier)
    if largest < LIMIT and _magnitude(offset) < LIMIT:
        y: NDArray[Any] = shift_round(x * multiplier, shift, rounding) + offset
    else:
        y = _shift_round(x.astype(object) * multiplier.astype(object), shift.astype(object), rounding) + offset
        low, high = low.astype(object), high.astype(object)
    if overflow is Overflow.WRAP:
        y = wrap(y, low, high)
    else:
        y = np.minimum(np.maximum(y, low), high)
    return np.asarray(y, dtype=np.int64)


def _magnitude(values: IntArray) -> int:
    return max(abs(int(values.min())), abs(int(values.max())))


def _shift_round(product: NDArray[Any], shift: NDArray[Any], rounding: Rounding) -> NDArray[Any]:
    """:func:`hawq_flow.numeric.shift_round` on objects."""
    half = (1 << shift) >> 1  # 0 without a shift
    if rounding is Rounding.FLOOR:
        half = half * 0
    elif rounding is Rounding.HALF_EVEN:
        half = half - np.minimum(shift, 1) * (1 - ((product >> shift) & 1))
    return np.asarray((product + half) >> shift)


class Registers:
    """What each op computes from faulty operands, and the integers that values' registers hold.

    ``steps``: by op, arrays (n, *shape), one an operand -> (n, *shape). ``sums``: for layers whose accumulator
    saturates, the same for the sum before it. ``low``, ``high``: by value, the ends of its registers.
    """

    def __init__(self, network: IntegerNetwork) -> None:
        self.network = network
        values = network.values
        self.low = {name: ends(value.type, len(value.shape))[0] for name, value in values.items()}
        self.high = {name: ends(value.type, len(value.shape))[1] for name, value in values.items()}
        self.carriers = {name: carrier(value.type) for name, value in values.items()}
        self.sums: dict[str, Step] = {}
        self.sum_types: dict[str, IntType] = {}
        self.steps: dict[str, Step] = {}
        wide = {name: _wide(value) for name, value in values.items()}
        for op in network.ops:
            name, rank = op.name, len(values[op.name].shape)
            if isinstance(op, Lookup):
                self.steps[name] = self._lookup(op)
                continue
            if not isinstance(op, (Dense, Conv)) or op.accumulator is None:
                self.steps[name] = _computed(op, wide, self.low[name], self.high[name], self.carriers[name])
                continue
            plain = dataclasses.replace(op, accumulator=None)
            if op.overflow is Overflow.WRAP:
                self.steps[name] = _computed(plain, wide, self.low[name], self.high[name], self.carriers[name])
                continue
            type = plain.derive([values[operand] for operand in op.inputs]).type
            self.sum_types[name] = type
            self.sums[name] = _computed(plain, wide, *ends(type, rank), carrier(type))
            self.steps[name] = _clipped(
                self.sums[name], op.accumulator.low(rank), op.accumulator.high(rank), self.carriers[name]
            )

    def _lookup(self, op: Lookup) -> Step:
        # The table is wrapped once: a value's type may be narrower than entries that no healthy address reaches.
        table = wrap(op.table, self.low[op.name], self.high[op.name]).astype(self.carriers[op.name])
        return lambda x: np.asarray(table[address(op, x)])


def address(op: Lookup, x: NDArray[Any]) -> IntArray:
    """Which entry of its table a Lookup reads: clipped to the ends."""
    return np.clip(x.astype(np.int64) - op.start, 0, op.table.size - 1)


def _wide(value: Value) -> Value:
    """The value with every integer of its register as its interval, in every element."""
    low, high = (np.broadcast_to(end, value.shape) for end in ends(value.type, len(value.shape)))
    type = dataclasses.replace(value.type, narrow=False)
    return Value(value.shape, low, high, type, max(-int(low.min()), int(high.max())))


def _computed(op: Any, wide: Mapping[str, Value], low: IntArray, high: IntArray, dtype: np.dtype[Any]) -> Step:
    """The op on operands of any integers of their types, and then the register from ``low`` to ``high``."""
    try:
        derived = op.derive([wide[operand] for operand in op.inputs])
    except NetworkError:  # an intermediate may reach 2^62
        if isinstance(op, Requantize):
            return lambda x: _requantized(op, x.astype(np.int64)).astype(dtype)
        return lambda *xs: wrap(forward(op, [x.astype(np.int64) for x in xs]), low, high).astype(dtype)
    compute = step(op, {**wide, op.name: derived})
    if bool(((derived.low >= low) & (derived.high <= high)).all()):
        return lambda *xs: compute(*xs).astype(dtype, copy=False)
    return lambda *xs: _registered(compute(*xs), low, high).astype(dtype, copy=False)


def _requantized(op: Requantize, x: IntArray) -> IntArray:
    rank = x.ndim - 1
    low, high = op.type.low(rank), op.type.high(rank)
    return rescale(x, op.multiplier, op.shift, op.offset, op.rounding, low, high, op.overflow)


def _registered(y: NDArray[Any], low: IntArray, high: IntArray) -> NDArray[Any]:
    """:func:`wrap`, if anything is outside. An end that y's float would round lies beyond every integer it holds."""
    if y.size == 0 or bool(((y >= low.astype(y.dtype)) & (y <= high.astype(y.dtype))).all()):
        return y
    return wrap(y.astype(np.int64), low, high)


def _clipped(compute: Step, low: IntArray, high: IntArray, dtype: np.dtype[Any]) -> Step:
    def clipped(*operands: NDArray[Any]) -> NDArray[Any]:
        return np.clip(compute(*operands).astype(np.int64), low, high).astype(dtype)

    return clipped
