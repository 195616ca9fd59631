"""What is known of a layer before any synthesis: :class:`LayerFeatures`, read from an integer network or given.

Three words recur. A *product* layer (dense, convolution) multiplies by constants and sums. A *rescale* takes the sums
to the next layer's integers: a constant multiplier, rounding, clipping (ReLU is a clip). Everything else is a handful
of adders, comparators, general products or table entries an element.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from hawq_flow.estimate.counts import Counts, count
from hawq_flow.network import (
    Add,
    Conv,
    Dense,
    IntegerNetwork,
    Lookup,
    MaxPool,
    Multiply,
    Op,
    ReduceMax,
    ReduceSum,
    Requantize,
    Subtract,
    SumPool,
    Value,
)
from hawq_flow.numeric import IntArray, IntType, Rounding
from hawq_flow.to_rtl.adders import widths
from hawq_flow.to_rtl.circuit import width
from hawq_flow.to_rtl.csd import HARD_DIGITS, csd_count
from hawq_flow.to_rtl.plan import Stage, stages

Strategy = Literal["latency", "resource"]
IoType = Literal["io_parallel", "io_stream"]
Multipliers = Literal["auto", "dsp", "fabric"]
Kind = Literal["product", "rescale", "adder", "compare", "multiply", "table", "softmax"]
PRODUCT: Kind = "product"
SEVEN_SERIES = re.compile(r"x[acq]7[akvsz]")
ULTRASCALE = re.compile(r"x[acq](a?[kvz]?u|k\d|v[cemhp]|au)")
"""UltraScale, UltraScale+ (Alveo and Kria among them) and Versal, which adds no slower."""


class EstimateError(ValueError):
    """An estimate that cannot be made; the text says for what, why, and what to do."""


@dataclass(frozen=True)
class HardwareConfig:
    """How a network becomes hardware, as far as figures depend on it.

    Attributes
    ----------
    reuse_factor:
        How often hls4ml uses each multiplier an inference, 1 or more: one for all layers, or one a layer by its op's
        name (layers not named have 1). The open road is wholly unrolled and knows only 1.
    strategy:
        hls4ml's: ``latency`` (constants in the logic) or ``resource`` (weights in memory).
    clock_ns:
        Target clock period in ns.
    part:
        The device in Xilinx' spelling (``xcu250-figd2104-2L-e``); its family decides the speed of an adder.
    io_type:
        hls4ml's ``io_parallel`` or ``io_stream``.
    multipliers:
        ``auto``: hard products become DSP blocks above the vendor's threshold; ``dsp``, ``fabric``: all or none do.
    """

    reuse_factor: int | Mapping[str, int] = 1
    strategy: Strategy = "latency"
    clock_ns: float = 5.0
    part: str = "xcu250-figd2104-2L-e"
    io_type: IoType = "io_parallel"
    multipliers: Multipliers = "auto"

    def __post_init__(self) -> None:
        factors = self.reuse_factor.values() if isinstance(self.reuse_factor, Mapping) else [self.reuse_factor]
        for factor in factors:
            if isinstance(factor, bool) or not isinstance(factor, int) or factor < 1:
                raise EstimateError(f"hardware: reuse factor {factor!r}; expected an integer of at least 1")
        for name, value, known in (
            ("strategy", self.strategy, ("latency", "resource")),
            ("io_type", self.io_type, ("io_parallel", "io_stream")),
            ("multipliers", self.multipliers, ("auto", "dsp", "fabric")),
        ):
            if value not in known:
                raise EstimateError(f"hardware: {name} {value!r}; expected {' or '.join(map(repr, known))}")
        if not (math.isfinite(self.clock_ns) and self.clock_ns > 0):
            raise EstimateError(f"hardware: clock_ns {self.clock_ns!r}; expected a period in ns above 0")

    def reuse(self, layer: str) -> int:
        """The reuse factor of one layer."""
        return self.reuse_factor.get(layer, 1) if isinstance(self.reuse_factor, Mapping) else self.reuse_factor

    @property
    def family(self) -> Literal["7series", "ultrascale"]:
        """The family that the part belongs to, as far as speed goes: Xilinx 7 (and Zynq 7000), or UltraScale(+).

        A part that is neither (``known_part``) counts as UltraScale, and the estimate warns.
        """
        return "7series" if SEVEN_SERIES.match(self.part.lower()) else "ultrascale"

    @property
    def known_part(self) -> bool:
        """Whether the part is one of the families that estimates were fitted to."""
        return any(family.match(self.part.lower()) for family in (SEVEN_SERIES, ULTRASCALE))

    def check_layers(self, names: Iterable[str]) -> None:
        """``EstimateError`` if a reuse factor is given for a layer that is not one of ``names``."""
        known = list(names)
        for name in self.reuse_factor if isinstance(self.reuse_factor, Mapping) else ():
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known)}"
                raise EstimateError(
                    f"hardware: a reuse factor is given for layer {name!r}, which the design does not have; {hint}"
                )


@dataclass(frozen=True)
class LayerFeatures:
    """One layer, or one op, as hardware sees it.

    Attributes
    ----------
    name, kind:
        The layer's name, and what it is made of (``Kind``).
    n_in, n_out:
        Terms of one dot product and number of dot products at one position; 0 for all but products.
    positions:
        Positions of the result: 1 for a vector, the pixels of an image. hls4ml streams one after the other.
    elements:
        Elements of the result that are no constants: how many rescales, adders or tables there are.
    operations:
        Adders or comparators an element (window size less one, terms less one); 1 for the rest.
    input_bits, weight_bits, sum_bits, output_bits:
        Widths of what enters, of the weights (or of the other operand, the multiplier, the table's index), of the
        finished sum (of a rescale: of the window of sums that do not saturate) and of the result.
    counts:
        Of the constants.
    rounds:
        Whether a rescale rounds to nearest and saturates, not truncates and wraps.
    registered:
        Whether its result ends in registers on the open road (it is the last of its stage, see ``to_rtl``).
    reads:
        Names of the layers whose results it reads, wires in between left out; without any in all of a design's layers,
        each reads the one before.
    biased:
        Whether a product has a bias, which the rescale that alone reads it adds, or makes part of its thresholds.
    entering_bits, result_bits:
        On the open road: mean width of the elements that enter, by their ranges, and bits of all elements of the
        result together; None: ``input_bits``, and ``elements`` of ``output_bits``.
    delay_bits:
        Flip-flops, on the open road, of delay lines: they hold its result, and a network input that it reads first,
        where that skips stages, or is an output before the others are there.
    """

    name: str
    kind: Kind
    elements: int
    input_bits: int
    output_bits: int
    n_in: int = 0
    n_out: int = 0
    positions: int = 1
    weight_bits: int = 0
    sum_bits: int = 0
    operations: int = 1
    counts: Counts = field(default=Counts())
    rounds: bool = True
    registered: bool = True
    reads: tuple[str, ...] = ()
    biased: bool = True
    entering_bits: float | None = None
    result_bits: int | None = None
    delay_bits: int = 0

    @property
    def entering(self) -> float:
        """Mean width of what enters."""
        return float(self.input_bits) if self.entering_bits is None else self.entering_bits

    @property
    def leaving(self) -> int:
        """Bits of all elements of the result together."""
        return self.elements * self.output_bits if self.result_bits is None else self.result_bits


def held(values: IntArray) -> int:
    """Bits of the narrowest type that holds the integers."""
    return IntType.holding(int(values.min()), int(values.max())).max_bits


def dense_features(
    name: str,
    matrix: IntArray,
    input_bits: int,
    *,
    signed: bool = False,
    sum_bits: int | None = None,
    weight_bits: int | None = None,
    positions: int = 1,
    groups: int = 1,
) -> LayerFeatures:
    """Features of a product with an int64 matrix (outputs, terms) and inputs of ``input_bits``, signed or not.

    ``sum_bits``: None derives the width that holds every sum.
    """
    matrix = np.asarray(matrix, np.int64)
    counts = count(matrix, groups=groups)
    if sum_bits is None:
        high, low = (2 ** (input_bits - 1) - 1, -(2 ** (input_bits - 1))) if signed else (2**input_bits - 1, 0)
        positive, negative = np.maximum(matrix, 0).sum(axis=1), np.minimum(matrix, 0).sum(axis=1)
        most, least = int((positive * high + negative * low).max()), int((positive * low + negative * high).min())
        sum_bits = IntType.holding(least, most).max_bits
    return LayerFeatures(
        name,
        PRODUCT,
        elements=matrix.shape[0] * positions,
        input_bits=input_bits,
        output_bits=sum_bits,
        n_in=matrix.shape[1],
        n_out=matrix.shape[0],
        positions=positions,
        weight_bits=held(matrix) if weight_bits is None else weight_bits,
        sum_bits=sum_bits,
        counts=counts,
    )


def rescale_features(
    name: str, multiplier: IntArray, shift: IntArray, input_bits: int, output_bits: int
) -> LayerFeatures:
    """Features of a rescale by ``multiplier / 2^shift``: int64, one multiplier an element, shifts broadcastable.

    Its window is what it does not saturate: on average over the multipliers, sums below ``2^output_bits`` steps.
    """
    multiplier = np.asarray(multiplier, np.int64)
    if not multiplier.size:  # nothing but constants
        return LayerFeatures(name, "rescale", 0, input_bits, output_bits)
    digits = csd_count(multiplier)
    reach = output_bits + np.asarray(shift, float) - np.log2(np.maximum(np.abs(multiplier.astype(float)), 1.0))
    return LayerFeatures(
        name,
        "rescale",
        elements=multiplier.size,
        input_bits=input_bits,
        output_bits=output_bits,
        weight_bits=held(multiplier),
        sum_bits=int(np.clip(np.ceil(reach.mean()), 1, input_bits)),
        counts=Counts(
            nonzeros=int(np.count_nonzero(multiplier)),
            digits=int(digits.sum()),
            simple=int((digits == HARD_DIGITS - 1).sum()),
            hard=int((digits >= HARD_DIGITS).sum()),
        ),
    )


def features(network: IntegerNetwork) -> tuple[LayerFeatures, ...]:
    """Features of every op of the network that costs anything, in order, by the op's name; dead ops cost nothing."""
    found: dict[str, LayerFeatures] = {}
    parts = stages(network)
    alive = {op.name for stage in parts for op in stage.ops}
    ends = {stage.output for stage in parts}
    by_name = {op.name: op for op in network.ops}
    made = {name: _of_op(network, op, by_name) for name, op in by_name.items() if name in alive}
    wires = {stage.output for stage in parts if all(made[op.name] is None for op in stage.ops)}
    delays = _delays(network, parts)
    sources: dict[str, tuple[str, ...]] = {}  # of each value: the layers that it comes from, wires left out
    for op in network.ops:
        if op.name not in alive:
            continue
        read = tuple(dict.fromkeys(name for value in op.inputs for name in sources.get(value, ())))
        layer = _wires(network, op) if op.name in wires else made[op.name]
        sources[op.name] = read if layer is None else (op.name,)
        if layer is not None:
            value = network.values[op.name]
            waiting = [op.name, *(name for name in op.inputs if name not in sources)]
            found[op.name] = dataclasses.replace(
                layer,
                reads=read,
                registered=op.name in ends,
                positions=max(math.prod(value.shape[1:]), 1),
                entering_bits=_mean([network.values[name] for name in op.inputs]),
                result_bits=int(_widths(value).sum()),
                delay_bits=sum(delays.pop(name, 0) for name in waiting),
            )
        elif op.name in ends:  # wires end a stage: what they come from does
            for name in read:
                found[name] = dataclasses.replace(found[name], registered=True)
    if found:  # delay lines of wires
        last = next(reversed(found))
        found[last] = dataclasses.replace(found[last], delay_bits=found[last].delay_bits + sum(delays.values()))
    return tuple(found.values())


def _widths(value: Value) -> IntArray:
    """Bits of each element, by its own range; 0 for a constant, which takes no wire."""
    return np.where(value.low == value.high, 0, widths(value.low, value.high))


def _mean(values: list[Value]) -> float:
    """Mean width of the elements that are no constants, of the widest of the values; 0 if all are constants."""
    widths = [bits[bits > 0] for bits in map(_widths, values)]
    return max((float(bits.mean()) for bits in widths if bits.size), default=0.0)


def _delays(network: IntegerNetwork, parts: list[Stage]) -> dict[str, int]:
    """Flip-flops of each value's delay line in the generator's top, one register a stage."""
    there = {spec.name: 0 for spec in network.inputs}
    until = dict(there)
    for stage in parts:
        begin = max((there[name] for name in stage.inputs), default=0)
        there[stage.output] = until[stage.output] = begin + 1
        until.update({name: max(until[name], begin) for name in stage.inputs})
    last = max((there[output.name] for output in network.outputs), default=0)
    until.update({output.name: max(last, 1) for output in network.outputs})
    found = {}
    for name, cycle in there.items():
        value = network.values[name]
        bits = max(1, width(int(value.low.min()), int(value.high.max())))
        found[name] = bits * math.prod(value.shape) * (until[name] - cycle)
    return found


def _wires(network: IntegerNetwork, op: Op) -> LayerFeatures:
    """A stage of wires alone, which costs registers on the open road and nothing else."""
    out = network.values[op.name]
    bits = out.type.max_bits
    return LayerFeatures(op.name, "adder", math.prod(out.shape), bits, bits, operations=0)


def _of_op(network: IntegerNetwork, op: Op, by_name: Mapping[str, Op]) -> LayerFeatures | None:
    """Features of one op; None for what is only wires."""
    values = network.values
    out = values[op.name]
    bits, varies = out.type.max_bits, out.low != out.high
    elements = int(np.count_nonzero(varies))
    inputs = [values[name] for name in op.inputs]
    wide = max(value.type.max_bits for value in inputs)
    match op:
        case Dense() | Conv():
            matrix = op.weight.reshape(op.weight.shape[0], -1)
            groups = op.groups if isinstance(op, Conv) else 1
            positions = math.prod(out.shape[1:]) if isinstance(op, Conv) else 1
            return dataclasses.replace(
                dense_features(op.name, matrix, wide, sum_bits=bits, positions=positions, groups=groups),
                biased=bool(op.bias.any() and elements),
            )
        case Requantize():
            multiplier, shift = (np.broadcast_to(array, out.shape)[varies] for array in (op.multiplier, op.shift))
            source = by_name.get(op.inputs[0])
            return dataclasses.replace(
                rescale_features(op.name, multiplier, shift, wide, bits),
                rounds=op.rounding is not Rounding.FLOOR,
                biased=isinstance(source, Dense | Conv) and bool(source.bias.any()),
            )
        case SumPool() | MaxPool():
            kind: Kind = "adder" if isinstance(op, SumPool) else "compare"
            return LayerFeatures(op.name, kind, elements, wide, bits, operations=math.prod(op.kernel) - 1)
        case ReduceSum() | ReduceMax():
            kind = "adder" if isinstance(op, ReduceSum) else "compare"
            terms = math.prod(inputs[0].shape) // math.prod(out.shape)
            return LayerFeatures(op.name, kind, elements, wide, bits, operations=terms - 1)
        case Add() | Subtract():
            return LayerFeatures(op.name, "adder", elements, wide, bits, operations=len(inputs) - 1)
        case Multiply():
            narrow = min(value.type.max_bits for value in inputs)
            return LayerFeatures(op.name, "multiply", elements, wide, bits, weight_bits=narrow)
        case Lookup():
            index = max(op.table.size - 1, 1).bit_length()
            return LayerFeatures(op.name, "table", elements, wide, bits, weight_bits=index)
        case _:
            return None  # Reshape, Pad, Upsample, Concat: wires
