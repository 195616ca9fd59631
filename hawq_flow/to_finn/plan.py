"""What each op becomes in FINN's dialect, by proof, and everything that FINN cannot take, named at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
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
    Op,
    OutputSpec,
    Requantize,
    Reshape,
    SumPool,
    Upsample,
    Value,
)
from hawq_flow.numeric import IntArray, Rounding, requantize
from hawq_flow.to_qonnx import NotExact, check, declared_accumulator, plan_requantize, precision_bits
from hawq_flow.to_qonnx.plan import is_bipolar, only_rescaled, per_channel, truncation

MANTISSA = 24
MOST_BITS = 8
"""Widest activation that FINN's ConvertQuantActToMultiThreshold converts by default."""
CARRIED = "FINN carries integers in float32 until it is hardware, 24 bits"

Form = Literal["quant", "thresholds", "affine", "trunc", "host", "absorbed"]


@dataclass(frozen=True)
class Activation:
    """One Requantize.

    Attributes
    ----------
    form:
        ``quant``: [Mul] [Add] [Relu] Quant; ``thresholds``: MultiThreshold; ``affine``: [Mul] [Add] that round and clip
        nothing, which FINN absorbs in the thresholds behind them; ``trunc``: the Trunc behind an AveragePool;
        ``host``: at the end and too wide for thresholds, as in plain QONNX: FINN leaves it to the host. ``absorbed``:
        no node; the thresholds that read it count over what it reads itself.
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
        Rescales at the end that no node may be: for the host to do, in integers, in this order.
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
    bits, unread = precision_bits(network), _unread(network)
    wrong = [
        f"{spec.name}: integers of {bits[spec.name]} bits; {CARRIED}"
        for spec in network.inputs
        if bits[spec.name] > MANTISSA
    ]
    averages, absorbed = _averages(network, values), _absorbed(network, values)
    chosen: dict[str, Activation] = {}
    for op in network.ops:
        reason = _refusal(op, values)
        if isinstance(op, Requantize) and reason is None:
            found: Activation | str
            if op.name in averages:
                found = averages[op.name]
            elif op.name in absorbed:
                found = Activation("absorbed")
            elif op.type.max_bits > MOST_BITS and op.name in unread:
                why = _not_for_host(op, values, bits[op.name], absorbed)
                found = f"{why}; FINN's host rescales sums, and this reads an input" if why else Activation("host")
            elif op.input not in absorbed and (affine := _affine(op, network, values)) is not None:
                found = affine
            else:
                before = _chain(op.input, absorbed)
                found = _activation(op, before, values[before[0].input if before else op.input], activations)
            if isinstance(found, str):
                reason = found
            else:
                chosen[op.name] = found
        elif reason is None and bits[op.name] > MANTISSA:
            reason = f"needs {bits[op.name]} bits; {CARRIED}"
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
    """The network without the wide rescales at its end that can be no node; and these.

    Their inputs become outputs instead. What then stands at the end may have to go as well.
    """
    left: tuple[Requantize, ...] = ()
    while True:
        bits, values, unread = precision_bits(network), network.values, _unread(network)
        produced, absorbed = {op.name for op in network.ops}, _absorbed(network, values)
        ends = {
            op.name: op
            for op in network.ops
            if isinstance(op, Requantize)
            and op.type.max_bits > MOST_BITS
            and op.name in unread
            and op.input in produced
            and _not_for_host(op, values, bits[op.name], absorbed)
        }
        if not ends:
            return network, left
        ending = {spec.name for spec in network.outputs}
        left = (*(op for name, op in ends.items() if name in ending), *left)  # what nobody asks for is dropped
        specs = {spec.name: spec for spec in network.outputs if spec.name not in ends}
        wanted = (ends[spec.name].input if spec.name in ends else spec.name for spec in network.outputs)
        outputs = tuple(specs.get(name, OutputSpec(name)) for name in dict.fromkeys(wanted))
        kept = tuple(op for op in network.ops if op.name not in ends)
        network = dataclasses.replace(network, ops=kept, outputs=outputs)


def _not_for_host(
    op: Requantize, values: Mapping[str, Value], bits: int, absorbed: Mapping[str, Requantize]
) -> str | None:
    """Why a wide rescale at the end cannot be Mul and Quant that FINN leaves where they are; None when it can."""
    if bits > MANTISSA:
        return f"needs {bits} bits; {CARRIED}"
    if op.input in absorbed:
        return f"reads {op.input}, which is no node"
    if plan_requantize(op, values).two_steps or not op.type.uniform:
        return f"type {op.type} with a zero point or widths of its channels: a Quant behind a Quant"
    if (op.multiplier <= 0).any():
        return "a multiplier of zero or less"
    factor = np.ldexp(op.multiplier.astype(np.float64), -op.shift)
    if factor.size not in (1, *values[op.input].shape[:1]) or per_channel(factor, values[op.input]) is None:
        return "a factor of more than one number a channel"
    return None


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


def _refusal(op: Op, values: Mapping[str, Value]) -> str | None:
    """Why FINN cannot take the op at all."""
    if any(values[name].shape == () for name in (op.name, *op.inputs)):
        return "a value without axes; FINN's streams have channels. Give it one axis of length 1"
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


def _activation(op: Requantize, before: Sequence[Requantize], x: Value, wanted: str) -> Activation | str:
    """The form of a Requantize that reads ``x`` by way of absorbed ones, or why there is none."""
    if op.type.max_bits > MOST_BITS:
        return f"type {op.type}; FINN's thresholds have at most {MOST_BITS} bits"
    if not op.type.uniform:
        return f"type {op.type}; FINN has one width for all channels"
    parts = _parts(op, x)
    if parts is None:
        return "a scale or zero point that differs within a channel; FINN's thresholds are one row a channel"
    if (op.multiplier < 0).any():
        return "a multiplier below zero; FINN's thresholds rise"
    if x.magnitude.bit_length() > MANTISSA:
        return f"reads integers of {x.magnitude.bit_length()} bits; float32, where FINN keeps thresholds, has 24"
    exact = f"reads {before[-1].name}, of type {before[-1].type}, which is no node" if before else _quant_reason(op, x)
    if exact is None and wanted != "thresholds":
        return _quant(op, *parts[:2])
    if wanted == "quant":
        return f"{exact}. activations='auto' writes its thresholds out"
    return Activation("thresholds", thresholds=thresholds(op, x, op.rounding, before).astype(np.float32))


def _parts(op: Requantize, x: Value) -> tuple[IntArray, IntArray, IntArray] | None:
    """Multiplier, shift and offset, each a scalar or (channels,); None when one differs within a channel."""
    multiplier, shift, offset = (per_channel(array, x) for array in (op.multiplier, op.shift, op.offset))
    if multiplier is None or shift is None or offset is None:
        return None
    return multiplier, shift, offset


def _affine(op: Requantize, network: IntegerNetwork, values: Mapping[str, Value]) -> Activation | None:
    """A rescale before others that only multiplies and adds, in float32 exactly; None for any other."""
    x = values[op.input]
    parts = _parts(op, x)
    if not only_rescaled(op.name, network) or parts is None or not op.type.uniform:
        return None
    multiplier, _, offset = parts
    if op.shift.any() or (op.multiplier <= 0).any():
        return None
    low, high = x.low * op.multiplier + op.offset, x.high * op.multiplier + op.offset
    least, most = op.type.range
    reach = x.magnitude * int(op.multiplier.max()) + int(np.abs(op.offset).max())
    if low.min() < least or high.max() > most or reach.bit_length() > MANTISSA:
        return None
    factor = None if (multiplier == 1).all() else multiplier.astype(np.float64)
    return Activation("affine", factor, offset.astype(np.float64) if offset.any() else None)


def _absorbed(network: IntegerNetwork, values: Mapping[str, Value]) -> dict[str, Requantize]:
    """Rescales, wide and rising, that are no Mul and Add but that other rescales alone read: by name, in order.

    Thresholds express any rising function of a sum, so also a rescale of a rescale: they count over the first one's
    input. An import writes these, for a bias that is finer than the sums. No graph has their values.
    """
    result: dict[str, Requantize] = {}
    for op in network.ops:
        if not isinstance(op, Requantize) or op.type.max_bits <= MOST_BITS or not only_rescaled(op.name, network):
            continue
        rising = (op.multiplier >= 0).all() and _parts(op, values[op.input]) is not None
        if rising and (op.input in result or _affine(op, network, values) is None):
            result[op.name] = op
    return result


def _chain(name: str, absorbed: Mapping[str, Requantize]) -> tuple[Requantize, ...]:
    """The absorbed rescales by way of which the value ``name`` comes from what has a node, first one first."""
    op = absorbed.get(name)
    return () if op is None else (*_chain(op.input, absorbed), op)


def _quant(op: Requantize, multiplier: IntArray, shift: IntArray) -> Activation:
    factor = np.ldexp(multiplier.astype(np.float64), -shift)
    if (factor == 1).all():
        return Activation("quant")
    # Below the next multiple of 2^-c, so that no value is a tie any more; where c is 0, none is one.
    nudge = np.where(shift > 0, np.ldexp(0.5, -shift), 0.0)
    match op.rounding:
        case Rounding.HALF_EVEN:
            return Activation("quant", factor)
        case Rounding.HALF_UP:
            return Activation("quant", factor, nudge if nudge.any() else None)
        case _:
            return Activation("quant", factor, np.where(shift > 0, nudge - 0.5, 0.0) if nudge.any() else None)


def _quant_reason(op: Requantize, x: Value) -> str | None:
    """Why Quant, as FINN turns it into thresholds, would not be this Requantize; None when it is.

    FINN's MultiThreshold counts thresholds at half steps that x reaches, so ties go up; Quant rounds them to even. What
    both agree on: ties that no integer of the interval meets, or that saturate.
    """
    if op.offset.any():
        return "a zero point; FINN takes Quant with zero point 0"
    if not op.multiplier.all():
        return "a multiplier of zero; FINN absorbs factors that are positive"
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


def thresholds(op: Requantize, x: Value, rounding: Rounding, before: Sequence[Requantize] = ()) -> IntArray:
    """The least integer at which each step of a rising Requantize is reached: int64 (channels, steps), ascending.

    Steps run from the type's lowest value to its highest. A step that no integer of the channel's interval reaches has
    the interval's high plus one; one that all reach has its low.

    Parameters
    ----------
    x:
        What is counted over: the operand, or that of the first of ``before``.
    rounding:
        Of ``op``, which may have another.
    before:
        Rising rescales by way of which ``op`` reads ``x``, first one first.
    """
    channels = x.shape[0]
    low, high = (end(a.reshape(channels, -1), axis=1)[:, None] for end, a in ((np.min, x.low), (np.max, x.high)))
    least, most = op.type.range
    levels = np.arange(least + 1, most + 1, dtype=np.int64)[None]
    steps = [*before, dataclasses.replace(op, rounding=rounding)]
    scales = [_rows(step, x) for step in steps]
    below = np.broadcast_to(low - 1, (channels, levels.size)).copy()  # counts as not reached
    above = np.broadcast_to(high + 1, below.shape).copy()  # counts as reached
    while (above - below > 1).any():
        middle = np.clip((below + above) // 2, low, high)  # inside the interval, where no product overflows
        result = middle
        for step, (multiplier, shift, offset) in zip(steps, scales, strict=True):
            result = requantize(result, multiplier, shift, offset, step.rounding, step.type, rank=2)
        above = np.where(result >= levels, middle, above)
        below = np.where(result >= levels, below, middle)
    return above


def _rows(op: Requantize, x: Value) -> tuple[IntArray, IntArray, IntArray]:
    parts = _parts(op, x)
    assert parts is not None
    multiplier, shift, offset = (part.reshape(-1, 1) for part in parts)
    return multiplier, shift, offset
