"""Every op of the IR as a circuit: arrays of signals (the value's shape) in, an array of signals out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hawq_flow.network import (
    Add,
    Concat,
    Conv,
    Dense,
    Lookup,
    MaxPool,
    Multiply,
    Op,
    Pad,
    ReduceMax,
    ReduceSum,
    Requantize,
    Reshape,
    Subtract,
    SumPool,
    Upsample,
    Value,
    padded,
    patches,
)
from hawq_flow.numeric import IntArray, Rounding
from hawq_flow.to_rtl.adders import AdderError, AdderGraph
from hawq_flow.to_rtl.circuit import Circuit, Signal, Sum, constant, joined
from hawq_flow.to_rtl.config import NotSynthesizable, RtlConfig
from hawq_flow.to_rtl.products import adders, instantiate, multiplied
from hawq_flow.to_rtl.rescale import Rescale, rescale

Signals = NDArray[Any]
"""An object array of :class:`Signal` and :class:`Sum`, of a value's shape."""


def build(circuit: Circuit, op: Op, operands: Sequence[Signals], value: Value, config: RtlConfig) -> Signals:
    """The circuit of one op; ``value`` is what the network derives of its result.

    Raises
    ------
    NotSynthesizable
        If a constant product cannot be carried in an adder graph's 62 bits.
    """
    try:
        return _built(circuit, op, operands, value, config)
    except AdderError as error:
        raise NotSynthesizable(
            f"{op.name}: its products leave the 62 bits of an adder graph ({error}); narrow its constants or its input"
        ) from error


def _built(circuit: Circuit, op: Op, operands: Sequence[Signals], value: Value, config: RtlConfig) -> Signals:
    x = operands[0]
    match op:
        case Dense():
            sums = _sums(circuit, op.weight, op.bias, x[:, None], config)
            return _declared(circuit, op, sums[:, 0], config)
        case Conv():
            return _declared(circuit, op, _conv(circuit, op, x, value, config), config)
        case Requantize():
            return _requantize(circuit, op, x, config)
        case Lookup():
            entries = [int(entry) for entry in op.table]
            return _each(lambda v: _look_up(circuit, entries, op.start, circuit.signal(v)), x)
        case Reshape():
            return x.reshape(op.to)
        case Pad():
            filled: Any = constant(op.value)
            return np.asarray(padded(x[None], op.padding, filled)[0])
        case Upsample():
            for axis, factor in enumerate(op.factors, start=1):
                x = np.repeat(x, factor, axis)
            return x
        case Concat():
            return np.concatenate(list(operands), axis=op.axis)
        case MaxPool():
            return _gathered(_largest, circuit, _windows(x, op, None), value)
        case SumPool():
            return _gathered(_total, circuit, _windows(x, op, constant(0)), value)
        case ReduceMax():
            return _gathered(_largest, circuit, np.moveaxis(x, op.axis, -1), value)
        case ReduceSum():
            return _gathered(_total, circuit, np.moveaxis(x, op.axis, -1), value)
        case Add():
            stacked = np.stack([np.broadcast_to(operand, value.shape) for operand in operands], axis=-1)
            return _gathered(_total, circuit, stacked, value)
        case Subtract():
            return _pairs(circuit, operands, value, partial(circuit.add, minus=True))
        case Multiply():
            return _pairs(circuit, operands, value, circuit.product)


def _each(function: Callable[..., Any], first: Signals, *others: NDArray[Any]) -> Signals:
    """``function`` element by element, over arrays of one shape."""
    result = np.empty(first.shape, dtype=object)
    for i, entries in enumerate(zip(first.flat, *(other.flat for other in others), strict=True)):
        result.flat[i] = function(*entries)
    return result


def _look_up(circuit: Circuit, entries: list[int], start: int, x: Signal) -> Signal:
    if x.constant:
        return constant(entries[x.low - start])
    used = entries[x.low - start : x.high - start + 1]
    return circuit.table(tuple(used), x.low, x)


def _gathered(
    function: Callable[[Circuit, list[Signal], int, int], Signal], circuit: Circuit, groups: Signals, value: Value
) -> Signals:
    """``function`` over what stands behind the value's axes (its None left out), within the range of each element."""
    result = np.empty(value.shape, dtype=object)
    rows = groups.reshape(result.size, -1).tolist()
    for i, (row, low, high) in enumerate(zip(rows, value.low.flat, value.high.flat, strict=True)):
        terms = [circuit.signal(term) for term in row if term is not None]
        result.flat[i] = function(circuit, terms, int(low), int(high))
    return result


def _largest(circuit: Circuit, terms: list[Signal], low: int, high: int) -> Signal:
    return joined(terms, circuit.larger, lambda x: (x.cycle, x.depth), 1)[0]


def _total(circuit: Circuit, terms: list[Signal], low: int, high: int) -> Signal:
    return circuit.total(terms, low, high)


def _windows(x: Signals, op: MaxPool | SumPool, fill: Any) -> Signals:
    """The elements of every window: (channels, *positions, elements)."""
    seen = patches(x[None], op.kernel, op.stride, op.padding, fill)[0]
    rank = len(op.kernel)
    return np.moveaxis(seen, range(1, 1 + rank), range(-rank, 0))


def _pairs(circuit: Circuit, operands: Sequence[Signals], value: Value, function: Callable[..., Signal]) -> Signals:
    def one(a: Signal | Sum, b: Signal | Sum, low: int, high: int) -> Signal:
        return function(circuit.signal(a), circuit.signal(b), low=int(low), high=int(high))

    left, right = (np.broadcast_to(operand, value.shape) for operand in operands)
    return _each(one, left, right, value.low, value.high)


# --------------------------------------------------------------------------------------------------- sums of products


def _conv(circuit: Circuit, op: Conv, x: Signals, value: Value, config: RtlConfig) -> Signals:
    nothing: Any = constant(0)
    seen = patches(x[None], op.kernel, op.stride, op.padding, nothing)[0]
    inputs, outputs = op.weight.shape[1], op.weight.shape[0] // op.groups
    parts = []
    for group in range(op.groups):
        rows = slice(group * outputs, (group + 1) * outputs)
        columns = seen[group * inputs : (group + 1) * inputs].reshape(op.weight[0].size, -1)
        weight = op.weight[rows].reshape(outputs, -1)
        parts.append(_sums(circuit, weight, op.bias[rows], columns, config))
    return np.concatenate(parts).reshape(value.shape)


def _sums(circuit: Circuit, weight: IntArray, bias: IntArray, x: Signals, config: RtlConfig) -> Signals:
    """``weight @ x + bias``, the bias put off: x (n, positions) -> (outputs, positions)."""
    signals = _each(circuit.signal, x)
    low = np.array([min(v.low for v in row) for row in signals], dtype=np.int64)
    high = np.array([max(v.high for v in row) for row in signals], dtype=np.int64)
    by_adders, by_dsp = _split(weight, signals, config)
    graph = adders(by_adders.T, low, high, config.optimizer, config.effort)
    return _positions(circuit, graph, by_dsp, bias, signals)


def _split(weight: IntArray, x: Signals, config: RtlConfig) -> tuple[IntArray, IntArray]:
    """The weights whose products become adders, and those that become multipliers; zero elsewhere."""
    by_dsp = np.zeros_like(weight)
    if config.dsp_threshold is not None:
        for i, j in np.argwhere(weight):
            if any(multiplied(int(weight[i, j]), v, config) for v in x[j]):
                by_dsp[i, j] = weight[i, j]
    return weight - by_dsp, by_dsp


def _positions(circuit: Circuit, graph: AdderGraph, by_dsp: IntArray, bias: IntArray, x: Signals) -> Signals:
    result = np.empty((len(bias), x.shape[1]), dtype=object)
    for position in range(x.shape[1]):
        column = list(x[:, position])
        for j, (signal, sign) in enumerate(instantiate(circuit, graph, column)):
            products = [circuit.product(column[i], constant(int(by_dsp[j, i]))) for i in np.flatnonzero(by_dsp[j])]
            if products:
                first = [signal] if sign > 0 else [circuit.add(constant(0), signal, minus=True)]
                signal, sign = circuit.total(first + products), 1
            add = int(bias[j])
            ends = (signal.low, signal.high) if sign > 0 else (-signal.high, -signal.low)
            result[j, position] = Sum(signal, add, sign < 0, ends[0] + add, ends[1] + add)
    return result


def _declared(circuit: Circuit, op: Dense | Conv, sums: Signals, config: RtlConfig) -> Signals:
    """Finished sums brought into a declared accumulator: a rescale by 1."""
    if op.accumulator is None:
        return sums
    one, zero = np.array(1), np.array(0)
    into = Requantize(op.name, op.name, one, zero, zero, op.accumulator, Rounding.FLOOR, op.overflow)
    return _requantize(circuit, into, sums, config)


def _requantize(circuit: Circuit, op: Requantize, x: Signals, config: RtlConfig) -> Signals:
    def one(v: Signal | Sum, m: int, s: int, z: int, low: int, high: int) -> Signal:
        f = Rescale(int(m), int(s), int(z), op.rounding, op.overflow, int(low), int(high))
        return rescale(circuit, v, f, config)

    ends = op.type.low(x.ndim), op.type.high(x.ndim)
    return _each(one, x, *(np.broadcast_to(a, x.shape) for a in (op.multiplier, op.shift, op.offset, *ends)))
