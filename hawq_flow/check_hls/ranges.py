"""What every tensor can hold: an interval and a grid, from the quantizers and the actual constants.

A range says that all elements are multiples of ``2^-fraction`` between ``low`` and ``high``. A Quant gives one,
whatever comes into it; linear layers with constants carry it on (sums of the positive and of the negative weights,
output by output; a convolution's padding adds 0); what is not understood has none. Ranges hold for the graph's exact
arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hawq_flow.check_hls.malformed import Guard
from hawq_flow.check_hls.needs import Need, fraction_bits, integer_bits
from hawq_flow.check_hls.reading import Node, Reading, levels

NORMALIZED = 5
"""Operands of a BatchNormalization: the value, then scale, bias, mean and variance."""


@dataclass(frozen=True)
class Range:
    """Multiples of ``2^-fraction`` from ``low`` to ``high``."""

    low: float
    high: float
    fraction: int

    @property
    def need(self) -> Need:
        """The narrowest ``fixed<W,I>`` that holds it."""
        return Need(integer_bits(self.low, self.high), self.fraction)

    def on(self, scale: float, low: float, high: float) -> bool:
        """Whether quantizing to that power of two, clipped to low..high, changes nothing."""
        return low <= self.low and self.high <= high and float(np.ldexp(1.0, -self.fraction)) >= scale


def ranges(reading: Reading, guard: Guard) -> Mapping[str, Range]:
    """The range of every tensor that has a known one."""
    found: dict[str, Range] = {}
    for node in reading.nodes:
        range = guard.run(node.name, node.op_type, None, _range, reading, node, found)
        if range is not None and np.isfinite([range.low, range.high]).all() and range.fraction < 200:
            found[node.output] = range
    return found


def fraction_of(values: NDArray[np.float64]) -> int:
    """Bits right of the point that hold every number; 0 when all are 0."""
    nonzero = values[values != 0]
    return int(fraction_bits(nonzero).max()) if nonzero.size else 0


def _of(reading: Reading, found: Mapping[str, Range], tensor: str) -> Range | None:
    if tensor in found:
        return found[tensor]
    constant = reading.constant(tensor)
    if constant is None or not constant.size or not np.isfinite(constant).all():
        return None
    return Range(float(constant.min()), float(constant.max()), fraction_of(constant.ravel()))


def _range(reading: Reading, node: Node, found: Mapping[str, Range]) -> Range | None:
    operands = [_of(reading, found, name) for name in node.inputs if name]
    match node.op_type:
        case "Quant" | "IntQuant" if len(node.inputs) == 4:
            return _quant(reading, node)
        case "BipolarQuant" if len(node.inputs) == 2:
            scale = reading.constant(node.inputs[1])
            if scale is None or not scale.size:
                return None
            top = float(np.abs(scale).max())
            return Range(-top, top, fraction_of(scale.ravel()))
        case "MatMul" | "Conv":
            return _product(reading, node, operands)
        case "BatchNormalization":
            affine = normalization(reading, node)
            if affine is None or operands[0] is None:
                return None
            return _scaled(operands[0], *affine)
        case "Reshape" | "Flatten" | "Transpose" | "MaxPool" | "GlobalMaxPool":
            # hls4ml and ONNX agree that padding never wins a maximum of what is there.
            return operands[0]
        case "Relu":
            x = operands[0]
            return None if x is None else Range(max(x.low, 0.0), max(x.high, 0.0), x.fraction)
        case _:
            pass
    if any(operand is None for operand in operands):
        return None
    known = [operand for operand in operands if operand is not None]
    fraction = max((operand.fraction for operand in known), default=0)
    match node.op_type, len(known):
        case (("Add" | "Sum"), 2):
            return Range(known[0].low + known[1].low, known[0].high + known[1].high, fraction)
        case "Sub", 2:
            return Range(known[0].low - known[1].high, known[0].high - known[1].low, fraction)
        case "Mul", 2:
            ends = [a * b for a in (known[0].low, known[0].high) for b in (known[1].low, known[1].high)]
            return Range(min(ends), max(ends), known[0].fraction + known[1].fraction)
        case "Max", _:
            return Range(max(k.low for k in known), max(k.high for k in known), fraction)
        case "Min", _:
            return Range(min(k.low for k in known), min(k.high for k in known), fraction)
        case "Concat", _:
            return Range(min(k.low for k in known), max(k.high for k in known), fraction)
        case _:
            return None


def _quant(reading: Reading, node: Node) -> Range | None:
    scale, zero, bits = (reading.constant(name) for name in node.inputs[1:])
    if scale is None or zero is None or bits is None or not (scale.size and zero.size and bits.size):
        return None
    low, high = levels(node, float(bits.max()))
    if high > 2.0**64:
        return None
    ends = np.stack([(low - zero) * scale, (high - zero) * scale]) if zero.shape == scale.shape else None
    if ends is None:
        ends = np.stack(np.broadcast_arrays((low - zero) * scale, (high - zero) * scale))
    return Range(float(ends.min()), float(ends.max()), fraction_of(scale.ravel()) + fraction_of(zero.ravel()))


def _product(reading: Reading, node: Node, operands: list[Range | None]) -> Range | None:
    weight, x = reading.constant(node.inputs[1]), operands[0]
    if weight is None or x is None or not weight.size or weight.ndim < 2:
        return None
    low, high = x.low, x.high
    if node.op_type == "Conv":
        if any(node.attributes.get("pads", ())) or node.attributes.get("auto_pad", "NOTSET") != "NOTSET":
            low, high = min(low, 0.0), max(high, 0.0)
        weight = weight.reshape(len(weight), -1).T
    weight = weight.reshape(-1, weight.shape[-1])
    up, down = np.maximum(weight, 0).sum(axis=0), np.minimum(weight, 0).sum(axis=0)
    lows, highs = up * low + down * high, up * high + down * low
    fraction = x.fraction + fraction_of(weight.ravel())
    if node.op_type == "Conv" and len(node.inputs) > 2 and node.inputs[2]:
        bias = reading.constant(node.inputs[2])
        if bias is None:
            return None
        lows, highs, fraction = lows + bias, highs + bias, max(fraction, fraction_of(bias.ravel()))
    return Range(float(lows.min()), float(highs.max()), fraction)


def normalization(reading: Reading, node: Node) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """The factor and the constant that hls4ml makes of a BatchNormalization, in its float32; None without constants."""
    parts = [reading.constant(name) for name in node.inputs[1:NORMALIZED]]
    if len(parts) != 4 or any(part is None for part in parts):
        return None
    gamma, beta, mean, variance = (np.asarray(part, dtype=np.float32) for part in parts)
    scale = gamma / np.sqrt(variance + np.float32(node.attributes.get("epsilon", 1e-5)))
    return scale.astype(np.float64), (beta - scale * mean).astype(np.float64)


def _scaled(x: Range, scale: NDArray[np.float64], bias: NDArray[np.float64]) -> Range:
    ends = np.stack([x.low * scale + bias, x.high * scale + bias])
    fraction = max(x.fraction + fraction_of(scale.ravel()), fraction_of(bias.ravel()))
    return Range(float(ends.min()), float(ends.max()), fraction)
