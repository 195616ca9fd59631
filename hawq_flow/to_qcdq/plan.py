"""How each op is written in QuantizeLinear-Clip-DequantizeLinear form, by proof, and what that form cannot carry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hawq_flow.network import Conv, Dense, IntegerNetwork, Requantize, Value
from hawq_flow.numeric import IntArray, IntType, Rounding
from hawq_flow.to_qonnx import NotExact, check, declared_accumulator, plan_requantize, precision_bits
from hawq_flow.to_qonnx.plan import per_channel

FLOAT32, FLOAT64 = 24, 53
"""Bits of mantissa."""
PAIR = (1 << 15) - 1
"""On x86 without VNNI onnxruntime's uint8 x int8 kernels add pairs of products in int16, which saturates there (its
documentation of U8S8); int8 activations are turned into uint8 by adding 128 first. Where a pair could reach more, a
Clip behind the weights' DequantizeLinear, at the weights' own ends, keeps the layer out of those kernels.
"""


@dataclass(frozen=True)
class Storage:
    """The integers between QuantizeLinear and DequantizeLinear.

    Attributes
    ----------
    container:
        int8, uint8, int16 or uint16; or float32 for wider ones, which are rounded and clipped without a pair.
    low, high:
        Bounds tighter than the container's, broadcastable over (batch, *value); None where it saturates at them itself.
    before:
        Whether the bounds are met in float32 before QuantizeLinear (integers bound, so the order does not matter),
        because no Clip takes the container, or there is no QuantizeLinear.
    """

    container: np.dtype[Any]
    low: IntArray | None
    high: IntArray | None
    before: bool


@dataclass(frozen=True)
class Layer:
    """Dense or Conv: integers of ``container`` times ``scale`` (a scalar, or one dyadic factor an output).

    ``apart`` asks for the Clip that keeps the layer out of integer kernels: saturating ones, or none for 32 bits.
    """

    container: np.dtype[Any]
    scale: NDArray[np.float32]
    apart: bool
    accumulator: tuple[int, int] | None


@dataclass(frozen=True)
class Rescale:
    """Requantize: the factor left to multiply by (None: none, or already in the layer's scales), and in what float."""

    factor: NDArray[np.float64] | None
    double: bool
    rounding: Rounding
    exact: bool
    offset: IntArray | None
    storage: Storage


@dataclass(frozen=True)
class Plan:
    """The whole network's: storages of inputs, layers and rescales by name, and layers whose sum is never formed.

    ``wide`` tells whether anything has more than 8 bits, for which QuantizeLinear needs opset 21.
    """

    wide: bool
    inputs: Mapping[str, Storage]
    layers: Mapping[str, Layer]
    rescales: Mapping[str, Rescale]
    folded: frozenset[str] = field(default_factory=frozenset)


def storage(type: IntType, rank: int, *, wide: bool = False) -> Storage:
    """Where integers of ``type`` are held.

    ``wide`` holds signed ones in 16 bits: beside 16-bit nodes (opset 21) onnxruntime 1.32 cannot move an int8
    QuantizeLinear through a Reshape (it changes the zero point to uint8 and forgets ``output_dtype``).
    """
    bits = 16 if type.max_bits > 8 or (wide and type.signed) else 8
    if type.max_bits > 16:  # beyond 24 bits a bound has no float32, but plan_network lets no value reach it
        low, high = (np.clip(end, -(1 << FLOAT32), 1 << FLOAT32) for end in (type.low(rank), type.high(rank)))
        return Storage(np.dtype(np.float32), low, high, True)
    container: np.dtype[Any] = np.dtype(f"{'' if type.signed else 'u'}int{bits}")
    info = np.iinfo(container)
    if type.uniform and type.range == (info.min, info.max):
        return Storage(container, None, None, False)
    return Storage(container, type.low(rank), type.high(rank), bits > 8)


def saturating(weight: IntArray, x: Value) -> bool:
    """Whether 8-bit kernels could saturate on pairs of products (:data:`PAIR`)."""
    reach = int(x.high.max()) + (128 if int(x.low.min()) < 0 or x.type.signed else 0)
    return 2 * reach * int(np.abs(weight).max()) > PAIR


def _weight_container(weight: IntArray) -> np.dtype[Any] | None:
    for container in (np.int8, np.int32):
        if np.iinfo(container).min <= weight.min() and weight.max() <= np.iinfo(container).max:
            return np.dtype(container)
    return None


def _factor(op: Requantize) -> tuple[NDArray[np.float64], int]:
    return np.ldexp(op.multiplier.astype(np.float64), -op.shift), int(np.abs(op.multiplier).max())


def _folded(network: IntegerNetwork, values: Mapping[str, Value]) -> dict[str, Requantize]:
    """Layers whose one reader is a Requantize with one factor an output at most, by name: their scales carry it."""
    readers: dict[str, list[Any]] = {op.name: [] for op in network.ops}
    for op in network.ops:
        for name in op.inputs:
            readers.setdefault(name, []).append(op)
    outputs = {spec.name for spec in network.outputs}
    result = {}
    for op in network.ops:
        if not isinstance(op, Dense | Conv) or op.name in outputs or declared_accumulator(op, values):
            continue
        match readers[op.name]:
            case [Requantize() as reader]:
                factor = _scale(reader, values[op.name])
                if factor is not None and (factor > 0).all() and not plan_requantize(reader, values).identity:
                    result[op.name] = reader
            case _:
                pass
    return result


def _scale(op: Requantize, x: Value) -> NDArray[np.float32] | None:
    """The factors as a scalar or (channels,); None when they differ within a channel."""
    factor = per_channel(_factor(op)[0], x)
    return None if factor is None else factor.astype(np.float32)


def plan_network(network: IntegerNetwork, *, double: bool = True) -> Plan:
    """Choose the form of every op, or refuse all at once.

    Parameters
    ----------
    double:
        Allow a rescale in float64 (Cast, Mul, Round, Cast) where float32 could round the product wrongly.

    Raises
    ------
    NotExact
        Naming every value that needs more bits than the float has.
    """
    values = check(network)
    needed = precision_bits(network)
    wrong: list[str] = []
    declared = [spec.type for spec in network.inputs]
    declared += [op.type for op in network.ops if isinstance(op, Requantize)]
    wide = any(type.max_bits > 8 for type in declared)

    def held(name: str, type: IntType) -> Storage:
        return storage(type, len(values[name].shape), wide=wide)

    inputs = {spec.name: held(spec.name, spec.type) for spec in network.inputs}
    folded = {}
    readers = {op.name: op for op in network.ops if isinstance(op, Requantize)}
    for name, reader in _folded(network, values).items():
        bits = max(needed[reader.name], (values[name].bound * _factor(reader)[1]).bit_length())
        if bits <= FLOAT32:
            folded[reader.name] = name
    layers, rescales = {}, {}
    scales = {readers[reader].input: _scale(readers[reader], values[layer]) for reader, layer in folded.items()}
    for op in network.ops:
        bits, most = needed[op.name], FLOAT32
        if isinstance(op, Dense | Conv):
            scale = scales.get(op.name)
            container = _weight_container(op.weight)
            if container is None:
                wrong.append(f"{op.name}: weights up to {np.abs(op.weight).max()}; DequantizeLinear takes 32 bits")
                continue
            bounds = _accumulator(op, values)
            apart = container != np.int8 or saturating(op.weight, values[op.input])
            layers[op.name] = Layer(container, np.ones((), np.float32) if scale is None else scale, apart, bounds)
        elif isinstance(op, Requantize):
            wider = bits > FLOAT32 and double
            most = FLOAT64 if wider else FLOAT32
            rescales[op.name] = _rescale(op, values, op.name in folded, wider, held(op.name, op.type))
            if bits <= most and values[op.name].magnitude > 1 << FLOAT32:  # double ends where the value begins
                reach = values[op.name].magnitude
                wrong.append(f"{op.name}: holds integers up to {reach}, float32 holds all up to {1 << FLOAT32}")
        if bits > most:
            wrong.append(f"{op.name}: needs {bits} bits, float{32 if most == FLOAT32 else 64} has {most}")
    wrong += [f"{name}: needs {needed[name]} bits, float32 has {FLOAT32}" for name in inputs if needed[name] > FLOAT32]
    if wrong:
        hint = "" if double else "; double=True lets the rescales have 53 bits"
        raise NotExact(
            f"{wrong[0].partition(':')[0]}: QCDQ cannot be exact for this network. {'; '.join(wrong)}. Use fewer bits "
            f"for inputs, weights or multipliers, or the integer ONNX export, which carries integers{hint}"
        )
    return Plan(wide, inputs, layers, rescales, frozenset(folded.values()))


def _accumulator(op: Dense | Conv, values: Mapping[str, Value]) -> tuple[int, int] | None:
    if not declared_accumulator(op, values):
        return None
    assert op.accumulator is not None
    return op.accumulator.range


def _rescale(op: Requantize, values: Mapping[str, Value], folded: bool, double: bool, held: Storage) -> Rescale:
    """Nodes of a Requantize: what multiplies, rounds and shifts before QuantizeLinear."""
    planned = plan_requantize(op, values)
    factor = None if planned.identity or folded else planned.factor
    offset = op.offset if planned.offset else None
    return Rescale(factor, double, op.rounding, planned.identity, offset, held)
