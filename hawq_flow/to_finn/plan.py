"""What each op becomes in FINN's dialect, by proof, and everything that FINN cannot take, named at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hawq_flow.network import (
    Add,
    Concat,
    Conv,
    Dense,
    IntegerNetwork,
    MaxPool,
    OutputSpec,
    Requantize,
    Reshape,
    SumPool,
    Upsample,
    Value,
)
from hawq_flow.numeric import IntArray, Rounding, requantize
from hawq_flow.to_qonnx import NotExact, check, declared_accumulator, plan_requantize, precision_bits
from hawq_flow.to_qonnx.plan import is_bipolar, truncation

MANTISSA = 24
MOST_BITS = 8
"""Widest activation that FINN's ConvertQuantActToMultiThreshold converts by default."""

Form = Literal["quant", "thresholds", "affine", "trunc", "host"]


@dataclass(frozen=True)
class Activation:
    """One Requantize.

    Attributes
    ----------
    form:
        ``quant``: [Mul] [Add] [Relu] Quant; ``thresholds``: MultiThreshold; ``affine``: [Mul] [Add] that round and clip
        nothing, which FINN absorbs in the thresholds behind them; ``trunc``: the Trunc behind an AveragePool;
        ``host``: at the end and too wide for thresholds, as in plain QONNX: FINN leaves it to the host.
    factor, nudge:
        Of ``quant`` and ``affine``: what is multiplied by and added before, scalars or (channels,); None where nothing
        is.
    thresholds:
        Of ``thresholds``: float32 (channels, steps), whole numbers, ascending.
    bits:
        Of ``trunc``: bits before and after.
    """

    form: Form
    factor: NDArray[np.float64] | None = None
    nudge: NDArray[np.float64] | None = None
    thresholds: NDArray[np.float32] | None = None
    bits: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Plan:
    """What is exported.

    Attributes
    ----------
    network:
        As FINN takes it: no groups but depthwise ones, and without ``left``, whose inputs are its outputs instead.
    left:
        Rescales at the end that no float32 node holds exactly: for the host to do, in integers.
    activations, averages, bipolar:
        Of the rescales; sum pools that are averages; layers of weights -1 and +1: by name.
    """

    network: IntegerNetwork
    left: tuple[Requantize, ...]
    activations: Mapping[str, Activation]
    averages: frozenset[str]
    bipolar: frozenset[str]


def plan_network(network: IntegerNetwork, *, activations: Literal["auto", "quant", "thresholds"] = "auto") -> Plan:
    """Choose the form of every op, or refuse.

    Raises
    ------
    NotExact
        Naming every op that FINN cannot take, with the reason.
    """
    check(network)
    network, left = _without_ends(ungrouped(network))
    values = check(network)
    wrong: list[str] = []
    bits = precision_bits(network)
    averages = _averages(network, values)
    chosen: dict[str, Activation] = {}
    for op in network.ops:
        reason = _refusal(op, values)
        if isinstance(op, Requantize) and reason is None:
            found: Activation | str
            if op.name in averages:
                found = averages[op.name]
            elif op.type.max_bits > MOST_BITS and op.name in _unread(network):
                found = Activation("host")
            elif _before_rescales(op, network) and (affine := _affine(op, values[op.input])) is not None:
                found = affine
            else:
                found = _activation(op, values[op.input], activations)
            if isinstance(found, str):
                reason = found
            else:
                chosen[op.name] = found
        elif reason is None and bits[op.name] > MANTISSA:
            reason = f"needs {bits[op.name]} bits; FINN carries integers in float32 until it is hardware, 24 bits"
        if reason is not None:
            wrong.append(f"{op.name}: {reason}")
    if wrong:
        raise NotExact(
            f"{wrong[0].partition(':')[0]}: FINN cannot take this network. {'; '.join(wrong)}. Change these, or use "
            "the plain QONNX export"
        )
    pools = {op.input for op in network.ops if isinstance(op, Requantize) and op.name in averages}
    layers = (op for op in network.ops if isinstance(op, Dense | Conv))
    return Plan(network, left, chosen, frozenset(pools), frozenset(op.name for op in layers if is_bipolar(op)))


def _unread(network: IntegerNetwork) -> set[str]:
    """Values that no op reads: outputs alone."""
    return {op.name for op in network.ops} - {name for op in network.ops for name in op.inputs}


def _without_ends(network: IntegerNetwork) -> tuple[IntegerNetwork, tuple[Requantize, ...]]:
    """The network without the wide rescales at its end that float32 nodes would not do exactly; and these.

    Their inputs become outputs, meaning the same but for the last rounding: scale * m * 2^-c.
    """
    bits, values, unread = precision_bits(network), network.values, _unread(network)
    produced = {op.name for op in network.ops}
    left = {
        op.name: op
        for op in network.ops
        if isinstance(op, Requantize)
        and op.name in unread
        and op.input in produced
        and op.type.max_bits > MOST_BITS
        and (bits[op.name] > MANTISSA or plan_requantize(op, values).two_steps or not op.type.uniform)
    }
    if not left:
        return network, ()
    outputs: dict[str, OutputSpec] = {}
    for spec in network.outputs:
        op = left.get(spec.name)
        if op is not None:
            factor = np.ldexp(op.multiplier.astype(np.float64), -op.shift)
            known = (spec.zero_point == op.offset).all()
            spec = OutputSpec(op.input, spec.scale * factor if known else np.ones(()), np.zeros((), np.int64))
        outputs.setdefault(spec.name, spec)
    kept = tuple(op for op in network.ops if op.name not in left)
    return dataclasses.replace(network, ops=kept, outputs=tuple(outputs.values())), tuple(left.values())


def ungrouped(network: IntegerNetwork) -> IntegerNetwork:
    """Grouped convolutions as plain ones with zeros between the groups; depthwise ones stay."""
    for op in network.ops:
        if isinstance(op, Conv) and op.groups > 1 and not (op.weight.shape[1] == 1 and len(op.weight) == op.groups):
            outputs, inputs = len(op.weight) // op.groups, op.weight.shape[1]
            weight = np.zeros((len(op.weight), inputs * op.groups, *op.kernel), dtype=np.int64)
            for g in range(op.groups):
                rows, columns = slice(g * outputs, (g + 1) * outputs), slice(g * inputs, (g + 1) * inputs)
                weight[rows, columns] = op.weight[rows]
            network = network.replace_op(dataclasses.replace(op, weight=weight, groups=1))
    return network


def _refusal(op: object, values: Mapping[str, Value]) -> str | None:
    """Why FINN cannot take the op at all."""
    match op:
        case Dense() | Conv() if declared_accumulator(op, values):
            return f"a sum that saturates in its declared accumulator {op.accumulator}; FINN's accumulators never do"
        case Conv() if len(op.kernel) != 2:
            return "a convolution in one dimension; FINN takes two. Give its input a height of 1"
        case MaxPool() | SumPool() | Upsample() if len(values[op.name].shape) != 3:
            return "a window in one dimension; FINN takes two. Give its input a height of 1"
        case MaxPool() if any(k < s for k, s in zip(op.kernel, op.stride, strict=True)):
            return f"kernel {op.kernel} below stride {op.stride}; FINN's pools take the stride at most"
        case MaxPool() if any(op.padding) and values[op.input].type.signed:
            return "a padded pool of signed integers; FINN pads with zero, their least is below. Pool what ReLU gives"
        case Reshape() if len(op.to) != 1:
            return f"a reshape to {op.to}; FINN takes flattening alone"
        case Concat() if op.axis != 0:
            return f"a concatenation along axis {op.axis}; FINN joins channels alone (axis 0)"
        case Add() if len({values[name].shape for name in op.operands}) > 1:
            return "a sum that broadcasts; FINN adds streams of equal shapes"
        case Add() | Concat() if len(set(op.operands)) < len(op.operands):
            return "one operand taken twice; FINN joins different streams"
        case Dense() | Conv() | Requantize() | Reshape() | MaxPool() | SumPool() | Upsample() | Concat() | Add():
            return None
        case _:
            return f"{getattr(op, 'kind', '?')} has no layer in FINN"


def _averages(network: IntegerNetwork, values: Mapping[str, Value]) -> dict[str, Activation]:
    """Rescales that drop the low bits of a square sum pool that they alone read: FINN's QuantAvgPool2d."""
    outputs = {spec.name for spec in network.outputs}
    result = {}
    for op in network.ops:
        if not isinstance(op, Requantize):
            continue
        dropped = truncation(op, values)
        source = next((other for other in network.ops if other.name == op.input), None)
        if dropped is None or not isinstance(source, SumPool) or source.name in outputs:
            continue
        alone = sum(source.name in other.inputs for other in network.ops) == 1
        square = len(source.kernel) == 2 and len(set(source.kernel)) == len(set(source.stride)) == 1
        k, least = source.kernel[0], values[source.input].type.max_bits
        if alone and square and not any(source.padding) and source.kernel[0] >= source.stride[0]:
            before = _pool_bits(k, least, dropped[0], dropped[0] - dropped[1])
            if before is not None:
                result[op.name] = Activation("trunc", bits=(before, before - dropped[0] + dropped[1]))
    return result


def pool_input_bits(before: int, kernel: int) -> int:
    """The input bits that FINN reads out of a Trunc's bits: the largest b with 2^b * k^2 <= 2^before."""
    return ((1 << before) // (kernel * kernel)).bit_length() - 1


def pool_accumulator_bits(inputs: int, kernel: int) -> int:
    """QuantAvgPool2d's accumulator: bits of (2^b - 1) * k^2."""
    return (((1 << inputs) - 1) * kernel * kernel).bit_length()


def _pool_bits(kernel: int, least: int, needed: int, dropped: int) -> int | None:
    """Bits before a Trunc such that FINN's shift is the one meant; None when there are none below MANTISSA.

    FINN shifts by its accumulator's bits minus the bits after, so the accumulator must have the bits before.
    """
    for before in range(max(needed, dropped + 2), MANTISSA - 3):
        inputs = pool_input_bits(before, kernel)
        if inputs >= least and pool_accumulator_bits(inputs, kernel) == before:
            return before
    return None


def _per_channel(array: NDArray[np.generic], x: Value) -> NDArray[np.generic] | None:
    """(channels,) or a scalar; None when a channel's elements differ."""
    if array.size == 1:
        return array.reshape(())
    full = np.broadcast_to(array, x.shape).reshape(x.shape[0], -1)
    return full[:, 0] if (full == full[:, :1]).all() else None


def _activation(op: Requantize, x: Value, wanted: str) -> Activation | str:
    """The form of a Requantize, or why there is none."""
    parts = [_per_channel(array, x) for array in (op.multiplier, op.shift, op.offset)]
    if op.type.max_bits > MOST_BITS:
        return f"type {op.type}; FINN's thresholds have at most {MOST_BITS} bits"
    if not op.type.uniform:
        return f"type {op.type}; FINN has one width for all channels"
    if any(part is None for part in parts):
        return "a scale or zero point that differs within a channel; FINN's thresholds are one row a channel"
    if (op.multiplier <= 0).any():
        return "a multiplier of zero or less; FINN's thresholds rise"
    if x.magnitude.bit_length() > MANTISSA:
        return f"reads integers of {x.magnitude.bit_length()} bits; float32, where FINN keeps thresholds, has 24"
    exact = _quant_reason(op, x)
    if exact is None and wanted != "thresholds":
        multiplier, shift = (np.asarray(part, dtype=np.int64) for part in parts[:2])
        return _quant(op, multiplier, shift)
    if wanted == "quant":
        return f"{exact}. activations='auto' writes its thresholds out"
    return Activation("thresholds", thresholds=thresholds(op, x, op.rounding).astype(np.float32))


def _before_rescales(op: Requantize, network: IntegerNetwork) -> bool:
    """Whether other rescales alone read the value, and it is no output."""
    readers = [other for other in network.ops if op.name in other.inputs]
    ends = any(spec.name == op.name for spec in network.outputs)
    return bool(readers) and not ends and all(isinstance(reader, Requantize) for reader in readers)


def _affine(op: Requantize, x: Value) -> Activation | None:
    """A rescale that only multiplies and adds, in float32 exactly; None for any other."""
    multiplier, offset = (_per_channel(array, x) for array in (op.multiplier, op.offset))
    if op.shift.any() or multiplier is None or offset is None or (op.multiplier <= 0).any() or not op.type.uniform:
        return None
    low, high = x.low * op.multiplier + op.offset, x.high * op.multiplier + op.offset
    least, most = op.type.range
    reach = x.magnitude * int(op.multiplier.max()) + int(np.abs(op.offset).max())
    if low.min() < least or high.max() > most or reach.bit_length() > MANTISSA:
        return None
    factor = None if (multiplier == 1).all() else multiplier.astype(np.float64)
    return Activation("affine", factor, offset.astype(np.float64) if offset.any() else None)


def _quant(op: Requantize, multiplier: IntArray, shift: IntArray) -> Activation:
    factor = np.ldexp(multiplier.astype(np.float64), -shift)
    if (factor == 1).all():
        return Activation("quant")
    # Below the next multiple of 2^-c, so that no value is a tie any more.
    nudge = np.ldexp(0.5, -np.asarray(shift))
    match op.rounding:
        case Rounding.HALF_EVEN:
            return Activation("quant", factor)
        case Rounding.HALF_UP:
            return Activation("quant", factor, nudge)
        case _:
            return Activation("quant", factor, nudge - 0.5)


def _quant_reason(op: Requantize, x: Value) -> str | None:
    """Why Quant, as FINN turns it into thresholds, would not be this Requantize; None when it is.

    FINN's MultiThreshold counts thresholds at half steps that x reaches, so ties go up; Quant rounds them to even. What
    both agree on: ties that no integer of the interval meets, or that saturate.
    """
    if op.offset.any():
        return "a zero point; FINN takes Quant with zero point 0"
    product = x.magnitude * int(op.multiplier.max())
    if op.rounding is not Rounding.HALF_EVEN:
        product = 2 * product + (1 << int(op.shift.max())) + 1
    if product.bit_length() > MANTISSA:
        return f"products of {product.bit_length()} bits; float32, where FINN divides thresholds, has 24"
    if op.rounding is Rounding.HALF_EVEN:
        even, up = (thresholds(op, x, rounding) for rounding in (Rounding.HALF_EVEN, Rounding.HALF_UP))
        if (even != up).any():
            return (
                f"{int((even != up).sum())} of its thresholds are ties that go down to even; FINN's go up (train with "
                "another rounding)"
            )
    return None


def thresholds(op: Requantize, x: Value, rounding: Rounding) -> IntArray:
    """The least integer at which each step of a rising Requantize is reached: int64 (channels, steps), ascending.

    Steps run from the type's lowest value to its highest. A step that no integer of the channel's interval reaches has
    the interval's high plus one; one that all reach has its low.
    """
    channels = x.shape[0]
    low, high = (end(a.reshape(channels, -1), axis=1)[:, None] for end, a in ((np.min, x.low), (np.max, x.high)))
    least, most = op.type.range
    levels = np.arange(least + 1, most + 1, dtype=np.int64)[None]
    scale = [np.broadcast_to(_rows(a, x), (channels, 1)) for a in (op.multiplier, op.shift, op.offset)]
    below = np.broadcast_to(low - 1, (channels, levels.size)).copy()  # counts as not reached
    above = np.broadcast_to(high + 1, below.shape).copy()  # counts as reached
    while (above - below > 1).any():
        middle = (below + above) // 2
        reached = requantize(middle, scale[0], scale[1], scale[2], rounding, op.type) >= levels
        above = np.where(reached, middle, above)
        below = np.where(reached, below, middle)
    return above


def _rows(array: IntArray, x: Value) -> IntArray:
    one = _per_channel(array, x)
    assert one is not None
    return np.asarray(one, dtype=np.int64).reshape(-1, 1)
