"""What each op needs in QONNX, derived from the IR's intervals, and what QONNX cannot say: refused by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from hawq_flow.network import Conv, Dense, IntegerNetwork, NetworkError, Requantize, Value, verify
from hawq_flow.numeric import IntArray, IntType, Overflow, Rounding, requantize, significant_bits

Scalar = TypeVar("Scalar", np.int64, np.float64)


class NotExact(NetworkError):
    """A back end cannot reproduce an op exactly; the text names the op, the reason and what would make it exact."""


def quant_type(low: int, high: int) -> IntType:
    """The narrowest type QONNX can say for integers in [low, high]: ``IntType.holding``, but no 1-bit signed type.

    QONNX's executor reads a signed Quant of one bit as the two values -1 and +1.
    """
    type = IntType.holding(low, high)
    return IntType(2, signed=True) if type.signed and type.max_bits == 1 else type


def triple(type: IntType) -> list[int]:
    """[bits, signed, narrow], as the custom ops take a type."""
    return [type.max_bits, int(type.signed), int(type.narrow)]


def _sayable(where: str, type: IntType) -> None:
    if type.signed and type.max_bits == 1:
        raise NotExact(
            f"{where}: type {type} holds -1 and 0; QONNX reads a signed Quant of 1 bit as -1 and +1. "
            "Use 2 signed bits, or 1 unsigned bit"
        )


@dataclass(frozen=True)
class RequantizePlan:
    """How the nodes of one Requantize are chosen.

    Attributes
    ----------
    factor:
        ``m * 2^-c``, exact in float64 and float32.
    low, high:
        What each element can reach after rounding, before the offset (int64, of the value's shape).
    rounded:
        The narrowest type of that interval.
    identity:
        Whether the factor is 1 throughout: no product, no rounding.
    offset, bounds:
        Whether a zero point is added, and whether channels have widths of their own.
    """

    factor: NDArray[np.float64]
    low: IntArray
    high: IntArray
    rounded: IntType
    identity: bool
    offset: bool
    bounds: bool

    @property
    def two_steps(self) -> bool:
        """Whether rounding and clipping are separate nodes."""
        return not self.identity and (self.offset or self.bounds)


def plan_requantize(op: Requantize, values: Mapping[str, Value]) -> RequantizePlan:
    """Derive how a Requantize is emitted, or ``NotExact`` when QONNX cannot express it."""
    _sayable(op.name, op.type)
    x = values[op.input]
    rank = len(x.shape)
    wide = IntType(62, signed=True)
    ends = [requantize(end, op.multiplier, op.shift, 0, op.rounding, wide, rank=rank) for end in (x.low, x.high)]
    low, high = np.minimum(*ends), np.maximum(*ends)
    if op.overflow is Overflow.WRAP:
        inside = (low + op.offset >= op.type.low(rank)) & (high + op.offset <= op.type.high(rank))
        if not inside.all():
            raise NotExact(
                f"{op.name}: wraps modulo 2^bits, and values from {int((low + op.offset).min())} to "
                f"{int((high + op.offset).max())} leave {op.type}; QONNX's Quant only saturates. Saturate instead, or "
                "widen the type until nothing wraps"
            )
    if not op.type.uniform:
        for end in (op.type.low(rank), op.type.high(rank)):
            bits = significant_bits(end)
            if bits.max() > 24:
                raise NotExact(
                    f"{op.name}: bound {end.flat[bits.argmax()]} of a channel of type {op.type} has {bits.max()} "
                    "significant bits; a float32 initializer holds 24. Use channels of at most 24 bits, or one width"
                )
    factor = np.ldexp(op.multiplier.astype(np.float64), -op.shift)
    rounded = quant_type(int(low.min()), int(high.max()))
    return RequantizePlan(
        factor, low, high, rounded, bool((factor == 1).all()), bool(op.offset.any()), not op.type.uniform
    )


def per_channel(array: NDArray[Scalar], x: Value) -> NDArray[Scalar] | None:
    """An array that broadcasts over a value as (channels,) or a scalar; None when a channel's elements differ."""
    if array.size == 1:
        return array.reshape(())
    full = np.broadcast_to(array, x.shape).reshape(x.shape[0], -1)
    return full[:, 0] if (full == full[:, :1]).all() else None


def only_rescaled(name: str, network: IntegerNetwork) -> bool:
    """Whether rescales alone read a value, and it is no output: a sum on its way, such as one with a finer bias."""
    readers = [op for op in network.ops if name in op.inputs]
    leaves = any(spec.name == name for spec in network.outputs)
    return bool(readers) and not leaves and all(isinstance(op, Requantize) for op in readers)


def weight_type(op: Dense | Conv) -> IntType:
    """The type the weights' Quant declares: the narrowest that holds them, narrow when the lowest value is not used."""
    type = quant_type(int(op.weight.min()), int(op.weight.max()))
    if type.signed and type.max_bits > 1 and int(op.weight.min()) > type.range[0]:
        return dataclasses.replace(type, narrow=True)
    return type


def is_bipolar(op: Dense | Conv) -> bool:
    """Whether every weight is -1 or +1: one bit, as QONNX's BipolarQuant says it."""
    return bool((np.abs(op.weight) == 1).all())


def truncation(op: Requantize, values: Mapping[str, Value]) -> tuple[int, int] | None:
    """(bits before, bits after) when a Requantize does nothing but drop low bits, as QONNX's Trunc says it; else None.

    That is: a factor of 2^-k for all elements, k >= 1, rounding down, no offset, and no value that saturates (Trunc,
    version 1, has no bounds). The bits before are those of the interval of its input, one more if that is signed.
    """
    mantissa, exponent = np.frexp(np.ldexp(op.multiplier.astype(np.float64), -op.shift))
    if op.rounding is not Rounding.FLOOR or op.offset.any() or (mantissa != 0.5).any() or np.unique(exponent).size > 1:
        return None
    x, dropped = values[op.input], 1 - int(exponent.flat[0])
    low, high = x.low >> max(dropped, 0), x.high >> max(dropped, 0)
    rank = len(x.shape)
    if dropped < 1 or (low < op.type.low(rank)).any() or (high > op.type.high(rank)).any():
        return None
    before = max(quant_type(int(x.low.min()), int(x.high.max())).max_bits, dropped + 1)
    return before, before - dropped


def declared_accumulator(op: Dense | Conv, values: Mapping[str, Value]) -> list[int]:
    """The Quant of a declared accumulator; empty when there is none, or when no sum can leave it."""
    if op.accumulator is None:
        return []
    free = dataclasses.replace(op, accumulator=None).derive([values[op.input]])
    rank = len(free.shape)
    if (free.low >= op.accumulator.low(rank)).all() and (free.high <= op.accumulator.high(rank)).all():
        return []
    if op.overflow is Overflow.WRAP:
        raise NotExact(
            f"{op.name}: sums from {int(free.low.min())} to {int(free.high.max())} wrap in the declared accumulator "
            f"{op.accumulator}; QONNX's Quant only saturates. Widen the accumulator, or let it saturate"
        )
    if not op.accumulator.uniform:
        raise NotExact(
            f"{op.name}: the declared accumulator {op.accumulator} has a width for each channel; a QONNX Quant has "
            "one. Declare one width"
        )
    _sayable(f"{op.name}: accumulator", op.accumulator)
    return triple(op.accumulator)


def check(network: IntegerNetwork) -> Mapping[str, Value]:
    """Prove that the network can be emitted exactly; return its derived values.

    Raises
    ------
    NotExact
        Naming the op, the reason and the fix.
    NetworkError
        If the network is malformed, or a constant does not fit a float32 initializer (``network.verify``).
    """
    values = verify(network)
    for spec in network.inputs:
        _sayable(f"input {spec.name!r}", spec.type)
    defined = {op.name for op in network.ops}
    seen: set[str] = set()
    for output in network.outputs:
        if output.name not in defined:
            raise NotExact(f"output {output.name!r} is an input of the network; ONNX needs an op to produce an output")
        if output.name in seen:
            raise NotExact(f"output {output.name!r} is listed twice; an ONNX graph names each output once")
        seen.add(output.name)
    for op in network.ops:
        match op:
            case Requantize():
                plan_requantize(op, values)
            case Dense() | Conv():
                declared_accumulator(op, values)
            case _:
                pass
    return values
