"""Numbers that mean nothing: bit widths of no bits, divisions by zero, no numbers at all, shapes that do not fit.

Such a file is well formed, and hls4ml often imports it; what it should compute there, nobody can say. Kinds are as
hls4ml behaves; "wrong" where it imports.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from hawq_flow.check_hls.common import finding, shown
from hawq_flow.check_hls.findings import Finding
from hawq_flow.check_hls.malformed import FIX, MALFORMED, Guard
from hawq_flow.check_hls.needs import MOST_BITS
from hawq_flow.check_hls.ranges import NORMALIZED
from hawq_flow.check_hls.reading import Node, Reading, quantized

_EXPORT = "Export the trained network again, and look at this node's numbers; --repair needs them sound too"

_READS = ("Add", "Sub", "Mul", "Div", "MatMul", "Conv", "BatchNormalization", "Max", "Min", "Sum", "Concat", "PRelu")
"""Operators whose constants are numbers."""


def sound(reading: Reading, guard: Guard) -> tuple[Reading, list[Finding]]:
    """The graph with every node that means nothing taken for an unknown one, and a finding for each of them."""
    found: list[Finding] = []
    nodes: list[Node] = []
    for node in reading.nodes:
        here: list[Finding] = guard.run(node.name, node.op_type, [], _node, reading, node)
        found += here
        stopped = bool(here) or node.name in guard.found
        nodes.append(dataclasses.replace(node, op_type=MALFORMED, attributes={}) if stopped else node)
    whole = dataclasses.replace(reading, nodes=tuple(nodes))
    if not any(node.op_type == MALFORMED for node in nodes):
        found += [_unreached(name) for name in dict.fromkeys(reading.outputs) if reading.fixed(name)]
    return whole, found


def _unreached(name: str) -> Finding:
    return Finding(
        name,
        "Output",
        "crash",
        "an output of constants alone, which no input reaches; hls4ml has no layer for it, and fails with 'IndexError'",
        "Leave this output out; --repair needs an input behind every output",
    )


def _node(reading: Reading, node: Node) -> list[Finding]:
    if node.op_type == MALFORMED:
        return []
    known = [(node.op_type, node.name), *([("Gemm", node.name)] if node.op_type == "MatMul" else [])]
    for key in (key for key in known if key in reading.unfit):
        kind, reason = reading.unfit[key]
        return [finding(node, kind, f"malformed: {reason}", FIX)]
    checks = (_quantizer, _numbers, _shapes)
    return [found for check in checks for found in list(check(reading, node))[:1]][:1]


def _quantizer(reading: Reading, node: Node) -> Iterator[Finding]:
    if node.op_type == "BipolarQuant":
        names: tuple[str, ...] = ("scale",)
    elif node.op_type in ("Quant", "IntQuant"):
        names = ("scale", "zero point", "bit width")
    else:
        return
    for what, tensor in zip(names, node.inputs[1:], strict=False):
        values = reading.constant(tensor)
        if values is None:
            continue
        if not values.size:
            says = "; hls4ml raises 'Only scalar bitwidth values are supporeted by the Quant node'"
            bits = what == "bit width"
            yield finding(
                node, "refused" if bits else "wrong", f"its {what} is an empty array{says if bits else ''}", _EXPORT
            )
        elif _booleans(reading, tensor):
            reason = f"its {what} is of booleans; numpy raises 'TypeError' in hls4ml"
            yield finding(node, "crash", reason, _EXPORT)
        elif what == "bit width":
            yield from _bits(reading, node, float(values.min()), float(values.max()))
        elif not np.isfinite(values).all():
            yield finding(node, "wrong", f"its {what} is {values[~np.isfinite(values)][0]:g}, no number", _EXPORT)
        elif what == "scale" and not values.all():
            yield finding(node, "wrong", "scale 0: QONNX divides by the scale, so it says no number", _EXPORT)
    x = reading.constant(node.inputs[0])
    parameters = [reading.constant(name) for name in node.inputs[1:]]
    known = [part for part in parameters if part is not None]
    if x is None or len(known) != len(parameters):
        return
    try:
        shape = quantized(node, x, *known).shape if len(known) == 3 else np.broadcast_shapes(x.shape, known[0].shape)
    except ValueError:
        shape = ()
    if shape != x.shape:
        yield finding(
            node,
            "crash",
            f"parameters of shapes {', '.join(shown(part.shape) for part in known)} do not broadcast to its constant "
            f"{shown(x.shape)}; hls4ml fails with 'operands could not be broadcast together'",
            _EXPORT,
        )


def _booleans(reading: Reading, tensor: str) -> bool:
    return tensor in reading.constants and reading.constants[tensor].dtype.kind == "b"


def _bits(reading: Reading, node: Node, least: float, most: float) -> Iterator[Finding]:
    if not np.isfinite([least, most]).all():
        worst = most if np.isfinite(least) else least
        yield finding(
            node, "crash", f"{worst:g} bits; hls4ml fails with 'cannot convert float' (NaN or infinity)", _EXPORT
        )
    elif least <= 0:
        on_value = reading.constant(node.inputs[0]) is None
        stops = on_value or least < 0
        reason = f"{least:g} bits hold no number"
        yield finding(
            node,
            "crash" if stops else "wrong",
            reason + ("; its C++ does not compile or stops" if stops else ""),
            _EXPORT,
        )
    elif most > MOST_BITS:
        reason = f"{most:g} bits; the C++ stops at more than {MOST_BITS} ('Bitwidth exceeds the default max value')"
        yield finding(node, "crash", reason, _EXPORT)


def _numbers(reading: Reading, node: Node) -> Iterator[Finding]:
    """Constants of a layer: some number, and every one finite."""
    if node.op_type not in _READS:
        return
    for place, name in enumerate(node.inputs):
        values = reading.constant(name)
        if values is None:
            continue
        if not values.size:
            yield finding(
                node,
                "crash",
                f"its constant {name!r} of shape {shown(values.shape)} holds no number; hls4ml fails with 'zero-size "
                "array to reduction operation minimum' or on the shape behind it",
                _EXPORT,
            )
        elif _booleans(reading, name):
            reason = f"its constant {name!r} is of booleans; numpy raises 'TypeError' in hls4ml"
            yield finding(node, "crash", reason, _EXPORT)
        elif not np.isfinite(values).all():
            odd = values[~np.isfinite(values)][0]
            yield finding(node, "wrong", f"its constant {name!r} holds {odd:g}, no number", _EXPORT)
        elif node.op_type == "Div" and place == 1 and not values.all():
            yield finding(node, "wrong", f"it divides by {name!r}, which holds 0", _EXPORT)
    if node.op_type == "BatchNormalization":
        variance = reading.constant(node.inputs[4])
        if variance is not None and variance.size and (variance + node.attributes.get("epsilon", 1e-5)).min() <= 0:
            reason = f"a variance of {variance.min():g}, which has no square root to divide by"
            yield finding(node, "wrong", reason, _EXPORT)


def _shapes(reading: Reading, node: Node) -> Iterator[Finding]:
    """What onnx's shape inference does not look at."""
    x = reading.shapes.get(node.inputs[0]) if node.inputs else None
    if x is None or len(x) < 2 or x[1] is None:
        return
    if node.op_type == "BatchNormalization":
        sizes = [part.size for name in node.inputs[1:NORMALIZED] if (part := reading.constant(name)) is not None]
        if any(size != x[1] for size in sizes):
            yield finding(node, "wrong", f"normalizes {x[1]} channels with {sizes} numbers", _EXPORT)
    if node.op_type == "Conv":
        weight, group = reading.shapes.get(node.inputs[1], ()), int(node.attributes.get("group", 1))
        if len(weight) != len(x):
            if weight:
                yield finding(node, "wrong", f"weights of shape {shown(weight)} on a value of {shown(x)}", _EXPORT)
        elif weight[1] is not None and (group < 1 or weight[1] * group != x[1]):
            reason = f"weights of shape {shown(weight)} in {group} groups do not fit a value of {x[1]} channels"
            yield finding(node, "wrong", reason, _EXPORT)
