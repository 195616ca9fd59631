"""Signals: every integer that an op takes in, forms on the way, and gives out; what is proven of each; their values.

A *signal* is a value of the network, or a step inside an op. Steps are called ``OP.STEP``:

* ``Dense`` and ``Conv``: ``OP.sum = weight @ x``, before the bias; ``OP.accumulator = OP.sum + bias``, where the op
  declares a type for its accumulator (elsewhere the finished sum is the output ``OP`` itself);
* ``Requantize``: ``OP.product = x * multiplier``, before the shift; ``OP.rounded = round(OP.product / 2^shift) +
  offset``, before it is brought into the output's type;
* ``Lookup``: ``OP.address = x - start``, the place in the table.

Other ops form nothing between their operands and their output. The proven range of a step is derived by the same
interval arithmetic as that of a value (``network.values``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hawq_flow import interpret
from hawq_flow.interpret.steps import step
from hawq_flow.network import (
    Conv,
    Dense,
    IntegerNetwork,
    Lookup,
    MaxPool,
    NetworkError,
    Op,
    Pad,
    Requantize,
    Reshape,
    Shape,
    Upsample,
    Value,
)
from hawq_flow.numeric import FloatArray, IntArray, shift_round

BLOCK_BYTES = 1 << 26
"""Bytes that the signals of one block of rows may take in int64."""
MOVES = (Reshape, Pad, MaxPool, Upsample)
"""Ops whose output means what their operand means: one scale and zero point for both."""


class TraceError(ValueError):
    """A dump, a table or inputs that do not belong to the network; says where, what was found and expected."""


@dataclass(frozen=True)
class Scale:
    """What integers mean, ``real = scale * (integer - zero_point)``, and which annotation says so."""

    scale: FloatArray
    zero_point: IntArray
    source: str


@dataclass(frozen=True, eq=False)
class Signal:
    """One signal and what is proven of it.

    Attributes
    ----------
    name:
        The value's name, or ``OP.STEP``.
    op, kind, layer:
        The op (or input) it belongs to, what that is (``Input``, ``Dense``, ...), and the source model's layer.
    role:
        ``input``, ``sum``, ``accumulator``, ``product``, ``rounded``, ``address`` or ``output`` (of an op).
    operands:
        The signals it is computed from.
    shape:
        Batch excluded, channels first.
    low, high:
        The proven range, element by element: int64 of ``shape``.
    bits, signed:
        The word that holds it, 1 to 63 bits: that of the value's type (its widest channel), or the narrowest that
        holds the proven range of a step.
    type:
        The type in words, such as ``uint6``; ``int[4,5]n`` is narrow with widths by channel.
    scale:
        What its integers mean where the network says so, else None: scales of sums are not part of the network.
    """

    name: str
    op: str
    kind: str
    layer: str
    role: str
    operands: tuple[str, ...]
    shape: Shape
    low: IntArray
    high: IntArray
    bits: int
    signed: bool
    type: str
    scale: Scale | None = None

    @property
    def elements(self) -> int:
        """Elements of one row."""
        return int(np.prod(self.shape))


@lru_cache(maxsize=8)
def signals(network: IntegerNetwork) -> Mapping[str, Signal]:
    """Every signal by name, in the order of computation: the inputs, then each op's steps and its output.

    Raises
    ------
    NetworkError
        If a finished sum before its declared accumulator needs a signed word of more than 62 bits.
    """
    scales = _scales(network)
    result: dict[str, Signal] = {}
    for spec in network.inputs:
        value = network.values[spec.name]
        result[spec.name] = _value(spec.name, "Input", "", "input", (), value, scales)
    for op in network.ops:
        read = op.inputs
        for role, low, high in _steps(op, network.values):
            name = f"{op.name}.{role}"
            result[name] = _step(name, op, role, read, low, high)
            read = (name,)
        result[op.name] = _value(op.name, op.kind, op.layer, "output", read, network.values[op.name], scales)
    return result


def _value(
    name: str,
    kind: str,
    layer: str,
    role: str,
    operands: tuple[str, ...],
    value: Value,
    scales: Mapping[str, Scale],
) -> Signal:
    type = value.type
    word = (type.max_bits, type.signed)
    return Signal(
        name, name, kind, layer, role, operands, value.shape, value.low, value.high, *word, str(type), scales.get(name)
    )


def _step(name: str, op: Op, role: str, operands: tuple[str, ...], low: IntArray, high: IntArray) -> Signal:
    bits, signed = word(int(low.min()), int(high.max()))
    kind = f"{'int' if signed else 'uint'}{bits}"
    return Signal(name, op.name, op.kind, op.layer, role, operands, low.shape, low, high, bits, signed, kind)


def word(low: int, high: int) -> tuple[int, bool]:
    """Bits and sign of the narrowest word that holds every integer from ``low`` to ``high``.

    >>> word(-8, 7), word(0, 255), word(0, 0)
    ((4, True), (8, False), (1, False))
    """
    if low >= 0:
        return max(1, high.bit_length()), False
    return max((-low - 1).bit_length(), max(high, 0).bit_length()) + 1, True


def _steps(op: Op, values: Mapping[str, Value]) -> Iterator[tuple[str, IntArray, IntArray]]:
    """(role, low, high) of the steps inside an op, in order."""
    x = values[op.inputs[0]]
    match op:
        case Dense() | Conv():
            bare = _bare(op).derive([x])
            yield "sum", bare.low, bare.high
            if op.accumulator is not None:
                bias = _bias(op)
                yield "accumulator", bare.low + bias, bare.high + bias
        case Requantize():
            ends = [x.low * op.multiplier, x.high * op.multiplier]
            yield "product", np.minimum(*ends), np.maximum(*ends)
            # Rounding is monotone, so the ends of the product's interval go to those of the rounded one's.
            ends = [shift_round(end, op.shift, op.rounding) + op.offset for end in ends]
            yield "rounded", np.minimum(*ends), np.maximum(*ends)
        case Lookup():
            yield "address", x.low - op.start, x.high - op.start


def _bare(op: Dense | Conv) -> Dense | Conv:
    """The products' sum alone: no bias, no declared accumulator."""
    return dataclasses.replace(op, bias=np.zeros_like(op.bias), accumulator=None)


def _bias(op: Dense | Conv) -> IntArray:
    """The bias, shaped to be added to (outputs, *positions)."""
    return op.bias.reshape((-1,) + (1,) * (op.weight.ndim - 2))


def _scales(network: IntegerNetwork) -> dict[str, Scale]:
    """What the network says of the meaning of its integers, by value; nothing is inferred but through moves."""
    known = {spec.name: Scale(spec.scale, spec.zero_point, f"input {spec.name}") for spec in network.inputs}
    for op in network.ops:
        if isinstance(op, Lookup) and op.scales is not None:
            read_scale, read_zero, given_scale, given_zero = op.scales
            known.setdefault(op.input, Scale(np.float64(read_scale), np.int64(read_zero), f"table {op.name}"))  # type: ignore[arg-type]
            known[op.name] = Scale(np.float64(given_scale), np.int64(given_zero), f"table {op.name}")  # type: ignore[arg-type]
    for spec in network.outputs:
        known[spec.name] = Scale(spec.scale, spec.zero_point, f"output {spec.name}")
    for op in network.ops:
        source = known.get(op.inputs[0])
        if isinstance(op, MOVES) and source is not None and source.scale.size == source.zero_point.size == 1:
            known.setdefault(op.name, Scale(source.scale, source.zero_point, f"{source.source}, through {op.name}"))
    return known


def compute(network: IntegerNetwork, x: ArrayLike | Mapping[str, ArrayLike]) -> dict[str, IntArray]:
    """Every signal of given rows.

    Parameters
    ----------
    x:
        Integers (n, *input shape), or by name; as for ``interpret.run``.

    Returns
    -------
    int64 (n, *shape) by signal, in the order of :func:`signals`.

    Raises
    ------
    NetworkError
        If the inputs are not the network's.
    """
    values = interpret.trace(network, x)
    result = {spec.name: values[spec.name] for spec in network.inputs}
    for op in network.ops:
        operand = values[op.inputs[0]]
        match op:
            case Dense() | Conv() if op.accumulator is None:
                result[f"{op.name}.sum"] = values[op.name] - _bias(op)
            case Dense() | Conv():
                result[f"{op.name}.sum"] = _products(network, op.name)(operand).astype(np.int64)
                result[f"{op.name}.accumulator"] = result[f"{op.name}.sum"] + _bias(op)
            case Requantize():
                product = operand * op.multiplier
                result[f"{op.name}.product"] = product
                result[f"{op.name}.rounded"] = shift_round(product, op.shift, op.rounding) + op.offset
            case Lookup():
                result[f"{op.name}.address"] = operand - op.start
        result[op.name] = values[op.name]
    return result


@lru_cache(maxsize=256)
def _products(network: IntegerNetwork, name: str) -> Callable[[IntArray], NDArray[Any]]:
    """The interpreter's function for the bare sum of an op whose accumulator hides it."""
    op = network.op(name)
    assert isinstance(op, Dense | Conv)
    bare, operand = _bare(op), network.values[op.input]
    return step(bare, {op.input: operand, op.name: bare.derive([operand])})


def blocks(
    network: IntegerNetwork, x: ArrayLike | Mapping[str, ArrayLike], rows: int | None = None
) -> Iterator[tuple[slice, dict[str, IntArray]]]:
    """Every signal, some rows at a time (``rows``; by default as ``BLOCK_BYTES`` allow): which rows, and the signals.

    Raises
    ------
    NetworkError
        If the inputs are not the network's, or there are none.
    """
    inputs = interpret.check_inputs(network, x)
    total = len(next(iter(inputs.values())))
    if total == 0:
        raise NetworkError("trace: 0 rows of inputs; give at least one")
    size = rows or max(1, BLOCK_BYTES // (8 * sum(signal.elements for signal in signals(network).values())))
    for start in range(0, total, size):
        part = slice(start, min(start + size, total))
        yield part, compute(network, {name: array[part] for name, array in inputs.items()})
