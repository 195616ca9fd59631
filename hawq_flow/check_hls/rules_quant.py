"""Quantizers: what hls4ml makes of Quant, IntQuant and BipolarQuant."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hawq_flow.check_hls.common import MOVED, REPAIR, Rule, broadcasts, finding, shown, typed
from hawq_flow.check_hls.findings import Finding
from hawq_flow.check_hls.reading import Node, Reading, levels


def _quant_form(reading: Reading, node: Node) -> Iterator[Finding]:
    rounding = node.attributes.get("rounding_mode", "ROUND")
    if "rounding_mode" not in node.attributes:
        yield finding(
            node,
            "refused",
            "no attribute 'rounding_mode'; hls4ml raises 'Unexpected value of attribute \"rounding_mode\"'",
            f"Write it out; {REPAIR}",
        )
    if "signed" not in node.attributes:
        yield finding(
            node,
            "wrong",
            "no attribute 'signed', which QONNX requires: hls4ml takes it for unsigned, this check for signed",
            f"Write it out; {REPAIR}, taking it for signed",
        )
    if rounding not in ("ROUND", "FLOOR"):
        yield finding(
            node,
            "refused",
            f"hls4ml raises 'Rounding mode {rounding} not supported in Quant node. Only ROUND and FLOOR supported.'",
            "Train and export with ROUND (half to even) or FLOOR; --repair writes half up as an addition of 1/2 and "
            "FLOOR",
        )
    if node.attributes.get("narrow") and not node.attributes.get("signed", 1):
        yield finding(
            node,
            "refused",
            "narrow and unsigned: hls4ml raises 'Narrow mode is only supported for singed numbers.'",
            f"Set narrow to 0 on unsigned quantizers (one more level); {REPAIR}",
        )
    for what, name in zip(("scale", "zero point", "bit width"), node.inputs[1:], strict=False):
        if reading.constant(name) is None:
            yield finding(
                node,
                "crash",
                f"its {what} {name!r} is not constant; hls4ml wants constants, and fails with 'IndexError'",
                "Export after freezing the quantizer's parameters (evaluation mode); --repair needs constants too",
            )


def _quant_bits(reading: Reading, node: Node) -> Iterator[Finding]:
    bits = reading.constant(node.inputs[3]) if len(node.inputs) == 4 else None
    if bits is None or not bits.size:
        return
    if bits.size > 1:
        yield finding(
            node,
            "refused",
            f"{bits.size} bit widths; hls4ml raises 'Only scalar bitwidth values are supporeted by the Quant node'",
            "Use one width for the tensor, the widest; --repair does so for weights, whose integers stay the same",
        )
        return
    on_value = reading.constant(node.inputs[0]) is None
    dimensions = (reading.rank(node.inputs[0]) or 0) if bits.ndim and reading.downstream(node) else bits.ndim
    if dimensions > 1:
        yield finding(
            node,
            "crash",
            f"a bit width of shape {shown(bits.shape)}" + (MOVED if on_value and bits.ndim == 1 else "") + "; hls4ml "
            "takes only () and (1,), and fails with 'TypeError: only 0-dimensional arrays can be converted'",
            f"Store the bit width as a scalar; {REPAIR}",
        )
    value = float(bits.flat[0])
    if value != np.ceil(value):
        yield finding(
            node,
            "wrong",
            f"{value:g} bits: hls4ml rounds them up to {np.ceil(value):g}, QONNX clips at the levels of {value:g}",
            "Export whole bit widths; --repair keeps the levels that QONNX has",
        )
    if value == 1 and node.attributes.get("signed", 1):
        yield finding(
            node,
            "wrong",
            "1 signed bit: QONNX clips to -1 and 1, hls4ml's type of one bit holds -1 and 0",
            f"Use BipolarQuant for weights of -1 and 1, or 2 bits; {REPAIR}",
        )


def _quant_scale(reading: Reading, node: Node) -> Iterator[Finding]:
    """A Quant of a value: what its scale and zero point become."""
    if len(node.inputs) != 4 or reading.constant(node.inputs[0]) is not None:
        return
    scale, zero = reading.constant(node.inputs[1]), reading.constant(node.inputs[2])
    shape = reading.shapes.get(node.inputs[0])
    if scale is None or zero is None or shape is None or not scale.size:
        return
    is_typed = typed(reading, node)
    dimensions = len(shape) if scale.ndim and reading.downstream(node) else scale.ndim
    if (scale == 1).all():
        pass
    elif dimensions > 1 and (
        is_typed or dimensions > len(shape) - 1 or (scale.shape[0] == 1 and dimensions == scale.ndim)
    ):
        yield finding(
            node,
            "crash",
            f"a scale of shape {shown(scale.shape)}"
            + (MOVED if dimensions != scale.ndim else "")
            + "; where it is not "
            "1, hls4ml takes only () and (1,) here (numpy raises TypeError or ValueError inside quant_opt.py)",
            f"Store one scale for the tensor as a scalar; {REPAIR}",
        )
    elif scale.size > 1 and not is_typed and not broadcasts(scale.shape, _last(reading, node, shape)):
        yield finding(
            node,
            "crash",
            f"a scale of shape {shown(scale.shape)} does not broadcast to the tensor as hls4ml stores it, channels "
            "last; "
            "it raises 'operands could not be broadcast together'",
            f"Use one scale for the tensor; {REPAIR}",
        )
    if is_typed and zero.any():
        bits = reading.constant(node.inputs[3])
        low, high = levels(node, float(bits.max())) if bits is not None and bits.size else (0.0, 0.0)
        yield finding(
            node,
            "wrong",
            f"zero point {zero.flat[np.abs(zero).argmax()]:g} with a power-of-two scale: hls4ml drops it (quant_opt.py "
            f"overwrites its test of the zero point) and clips to {low:g}..{high:g} steps instead of "
            f"{low - zero.flat[0]:g}..{high - zero.flat[0]:g}",
            "Quantize symmetrically, without a zero point; --repair adds the zero point as a constant",
        )


def _last(reading: Reading, node: Node, shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
    """A tensor's shape without the batch, as it lies when hls4ml reads it."""
    rest = shape[1:]
    moved = reading.layout and len(rest) > 1 and (reading.downstream(node) or reading.pulled_up(node))
    return (*rest[1:], rest[0]) if moved else rest


def _bipolar(reading: Reading, node: Node) -> Iterator[Finding]:
    scale = reading.constant(node.inputs[1]) if len(node.inputs) == 2 else None
    if scale is None:
        yield finding(
            node,
            "crash",
            "its scale is not constant; hls4ml wants a constant, and fails with 'IndexError'",
            "Export after freezing the quantizer's parameters (evaluation mode); --repair needs constants too",
        )
        return
    if reading.constant(node.inputs[0]) is not None:
        return
    if scale.ndim > 1 and not (scale == 1).all():
        yield finding(
            node,
            "crash",
            f"a scale of shape {shown(scale.shape)}; hls4ml fails to broadcast it",
            f"Store one scale for the tensor as a scalar; {REPAIR}",
        )
    others = [reader for reader in reading.readers(node.output) if reader.op_type not in ("MatMul", "Conv")]
    if node.output in reading.outputs or (others and (scale == 1).all()):
        whom = "an output of the graph" if node.output in reading.outputs else others[0].name
        yield finding(
            node,
            "wrong",
            f"read by {whom}: hls4ml stores -1 and 1 as the bits 0 and 1, and only its matrix products know it",
            "Use a Quant of 2 bits where others than matrix products read the signs; --repair writes -1 and 1 as "
            "integers",
        )


RULES: dict[str, tuple[Rule, ...]] = {
    "Quant": (_quant_form, _quant_bits, _quant_scale),
    "IntQuant": (_quant_form, _quant_bits, _quant_scale),
    "BipolarQuant": (_bipolar,),
}
"""The rules of each quantizer."""
