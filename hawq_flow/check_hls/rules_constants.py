"""Constants: weights, biases and factors, and the scales that hls4ml has to move past them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from hawq_flow.check_hls.common import MOVED, REPAIR, Rule, alpha, broadcasts, finding, shown, uniform
from hawq_flow.check_hls.findings import Finding
from hawq_flow.check_hls.reading import Node, Reading

_SPLIT = "Use a power of two, one for the tensor, as weight scale, or multiply behind the layer"


def _weights(reading: Reading, node: Node) -> Iterator[Finding]:
    """The constant operand of a MatMul or Conv."""
    weight = reading.constant(node.inputs[1])
    quant = reading.quantizer(node.inputs[1])
    if weight is None:
        if node.op_type == "MatMul" and reading.constant(node.inputs[0]) is not None:
            yield finding(
                node,
                "crash",
                "the constant stands on the left; hls4ml makes a dense layer only of value times constant",
                f"Export x @ W; {REPAIR}",
            )
        elif node.op_type == "Conv" and not reading.fixed(node.inputs[1]):
            yield finding(
                node,
                "crash",
                "its weights are not constant (or their quantizer's parameters are not)",
                "Export after freezing; --repair needs constants too",
            )
        return
    scale, zero = alpha(reading, node.inputs[1]), None
    if quant is not None and quant.op_type == "Quant":
        zero = reading.constant(quant.inputs[2])
    if scale is not None:
        yield from _weight_scale(reading, node, scale)
    if zero is not None and zero.any() and quant is not None:
        dropped = scale is None
        yield finding(
            quant,
            "wrong" if dropped else "crash",
            f"weights with zero point {zero.flat[0]:g}: "
            + (
                "hls4ml drops it, and clips weights that use the shifted range"
                if dropped
                else "hls4ml cannot move it behind the product, and fails with 'IndexError'"
            ),
            f"Quantize weights symmetrically; {REPAIR}",
        )


def _weight_scale(reading: Reading, node: Node, scale: NDArray[np.float64]) -> Iterator[Finding]:
    if node.op_type == "MatMul":
        if not uniform(scale):
            yield finding(
                node,
                "crash",
                f"weight scales for each channel, shape {shown(scale.shape)}: hls4ml cannot move them behind the "
                "MatMul, "
                "even powers of two, and fails with 'IndexError: list index out of range'",
                f"{_SPLIT}; {REPAIR}",
            )
        return
    shape = reading.shapes[node.inputs[1]]
    group = int(node.attributes.get("group", 1))
    if group > 1:
        reason = "a depthwise convolution with such a weight scale: hls4ml merges it back and fails to broadcast it"
    elif uniform(scale):
        return
    elif scale.ndim != len(shape) or scale.shape[0] != shape[0] or any(n != 1 for n in scale.shape[1:]):
        reason = f"weight scales of shape {shown(scale.shape)}: hls4ml can move only scales for each output channel"
    elif alpha(reading, node.inputs[0]) is not None:
        reason = "scales for each channel on the weights beside a scale on the value: hls4ml moves only one of them"
    elif len(node.inputs) > 2 and (bias := reading.constant(node.inputs[2])) is not None and bias.any():
        reason = "weight scales for each channel beside a bias: hls4ml cannot move them behind the sum"
    else:
        return
    yield finding(node, "crash", f"{reason} ('IndexError' or 'ValueError')", f"{_SPLIT}; {REPAIR}")


def _constant_scale(reading: Reading, node: Node) -> Iterator[Finding]:
    """A constant through a quantizer whose scale stays: only weights, and biases on the very same scale, are moved."""
    for place, tensor in enumerate(node.inputs):
        scale = alpha(reading, tensor)
        if scale is None or reading.constant(tensor) is None or (node.op_type in ("MatMul", "Conv") and place == 1):
            continue
        if _same_scale(reading, node, place, scale):
            continue
        yield finding(
            node,
            "crash",
            f"the constant {tensor!r} is quantized with scale {scale.flat[0]:g}"
            + (", ..." if scale.size > 1 else "")
            + ", no single power of two, and the other operand is not scaled by the same number: hls4ml fails with "
            "'IndexError: list index out of range'",
            f"Leave the bias unquantized, or give it a power-of-two scale; {REPAIR}",
        )


def _same_scale(reading: Reading, node: Node, place: int, scale: NDArray[np.float64]) -> bool:
    if not uniform(scale):
        return False
    layer = node if node.op_type == "Conv" else None
    if node.op_type == "Add":
        layer = reading.producer(node.inputs[1 - place])
    if layer is None or layer.op_type not in ("MatMul", "Conv"):
        return False
    x, weight = alpha(reading, layer.inputs[0]), alpha(reading, layer.inputs[1])
    if any(other is not None and not uniform(other) for other in (x, weight)):
        return False
    mine = np.float32(scale.flat[0])
    if node.op_type == "Conv":
        product = np.float32(1)
        for other in (x, weight):
            product = product * np.float32(other.flat[0]) if other is not None else product
        return bool(product == mine) and not (x is None and weight is None)
    last = weight if weight is not None else x
    return last is not None and bool(np.float32(last.flat[0]) == mine)


def _affine(reading: Reading, node: Node) -> Iterator[Finding]:
    """Add, Sub, Mul and Div with a constant; Max and Min with one."""
    if len(node.inputs) != 2:
        return
    fixed = [reading.constant(name) is not None for name in node.inputs]
    if all(fixed):
        return
    if not any(fixed):
        if node.op_type == "Div":
            yield finding(
                node,
                "crash",
                "one value divided by another: the C++ that hls4ml writes does not compile",
                "Multiply by a constant reciprocal instead; --repair has no exact form for a quotient",
            )
        return
    place = fixed.index(True)
    if node.op_type in ("Max", "Min"):
        yield finding(
            node,
            "crash",
            f"{node.op_type} with a constant: hls4ml takes two values only, and fails with 'IndexError'",
            f"Use Relu, or let a Quant clip; {REPAIR}",
        )
        return
    if node.op_type == "Div" and place == 0:
        yield finding(
            node,
            "crash",
            "a constant divided by a value: hls4ml divides by constants only, and fails with 'IndexError'",
            "Multiply by a constant reciprocal instead; --repair has no exact form for a quotient",
        )
        return
    constant, value = np.asarray(reading.constant(node.inputs[place])), node.inputs[1 - place]
    shape = reading.shapes.get(value)
    if shape is None or None in shape[1:]:
        return
    yield from _shape_of_constant(reading, node, constant, tuple(n or 1 for n in shape), place)
    yield from _before_product(reading, node, constant)


def _shape_of_constant(
    reading: Reading, node: Node, constant: NDArray[np.float64], shape: tuple[int, ...], place: int
) -> Iterator[Finding]:
    rest, held = shape[1:], constant.shape
    downstream = reading.downstream(node)
    if downstream and constant.ndim:
        held = (1,) * (len(shape) - constant.ndim) + held
        held, rest = (held[0], *held[2:], held[1]), (*rest[1:], rest[0])
    fits = held == rest or tuple(n for n in held if n != 1) == rest or broadcasts(held, rest)
    if not fits:
        yield finding(
            node,
            "crash",
            f"a constant of shape {shown(constant.shape)}"
            + (MOVED if downstream else "")
            + "; hls4ml fails to broadcast "
            f"it to {shown(rest)} ('input operand has more dimensions than allowed')",
            f"Write it as BatchNormalization behind a convolution, as a scalar or (n,) elsewhere; {REPAIR}",
        )
        return
    layer = reading.producer(node.inputs[1 - place])
    if layer is None or layer.op_type != "Conv" or constant.ndim or reading.uses(layer.output) > 1:
        return
    weights_typed = reading.quantizer(layer.inputs[1]) is not None
    itself_typed = reading.quantizer(node.inputs[place]) is not None
    if node.op_type in ("Mul", "Div"):
        merged = not weights_typed and not itself_typed
    else:
        bias_typed = len(layer.inputs) > 2 and reading.quantizer(layer.inputs[2]) is not None
        merged = not bias_typed and not itself_typed
    if merged:
        yield finding(
            node,
            "crash",
            "a scalar straight behind a Conv: hls4ml merges it into the weights element by element, and fails with "
            "'operands could not be broadcast together'",
            f"Fold it into the convolution's weights and bias, or write BatchNormalization; {REPAIR}",
        )


def _before_product(reading: Reading, node: Node, constant: NDArray[np.float64]) -> Iterator[Finding]:
    """A factor straight in front of a MatMul or Conv is moved behind it, where hls4ml cannot give it a type."""
    if node.op_type not in ("Mul", "Div"):
        return
    for reader in reading.readers(node.output):
        if reader.op_type not in ("MatMul", "Conv") or reader.inputs[0] != node.output:
            continue
        columns = reading.shapes.get(reader.output, (None,))[-1]
        square = reader.op_type == "MatMul" and constant.ndim > 0 and columns == constant.shape[-1]
        if uniform(constant) or square:
            yield finding(
                node,
                "crash",
                f"{node.op_type} by a constant straight in front of {reader.name} ({reader.op_type}): hls4ml moves the "
                "factor behind the product and raises 'Unexpected new precision type'",
                f"Multiply behind the {reader.op_type}, or make the factor part of a Quant's scale; {REPAIR}",
            )


def _channel_scale_moved(reading: Reading, node: Node) -> Iterator[Finding]:
    """hls4ml moves scales for each input of a square MatMul behind it, as if they were for each output."""
    scale = alpha(reading, node.inputs[0])
    columns = reading.shapes.get(node.output, (None,))[-1]
    if (
        scale is not None
        and not uniform(scale)
        and columns == scale.shape[-1]
        and reading.constant(node.inputs[1]) is not None
    ):
        yield finding(
            node,
            "wrong",
            f"its input has {scale.size} scales, one for each element, and it has as many outputs: hls4ml moves the "
            "scales "
            "behind the product, where they meet the outputs instead",
            f"Use one scale for the tensor; {REPAIR}",
        )


RULES: dict[str, tuple[Rule, ...]] = {
    "MatMul": (_weights, _constant_scale, _channel_scale_moved),
    "Conv": (_weights, _constant_scale),
    **dict.fromkeys(("Add", "Sub", "Mul", "Div"), (_affine, _constant_scale)),
    **dict.fromkeys(("Max", "Min"), (_affine,)),
}
"""The rules of each operator that takes constants."""
