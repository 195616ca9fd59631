"""What stock hls4ml 1.3.0 refuses, crashes on, or computes differently: one function a rule.

Each rule was found by giving hls4ml the smallest file that triggers it, through the road that its documentation names,
and ``tests/test_check_hls.py`` does so again: hls4ml has to do what the finding says, and has to import the nearest
file without the trouble. The rules name the reason inside hls4ml where it is known, since the next version may change
it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hawq_flow.check_hls import rules_constants, rules_layers, rules_quant
from hawq_flow.check_hls.common import REPAIR, Rule, finding, grid, shown, typed
from hawq_flow.check_hls.findings import Finding
from hawq_flow.check_hls.malformed import MALFORMED, Guard
from hawq_flow.check_hls.ranges import Range
from hawq_flow.check_hls.reading import Node, Reading

KNOWN = frozenset(
    [
        "Add",
        "Average",
        "AveragePool",
        "BatchNormalization",
        "BipolarQuant",
        "Concat",
        "Conv",
        "Div",
        "Elu",
        "Flatten",
        "GlobalAveragePool",
        "GlobalMaxPool",
        "IntQuant",
        "LeakyRelu",
        "MatMul",
        "Max",
        "MaxPool",
        "Min",
        "Mul",
        "PRelu",
        "Pad",
        "Quant",
        "Relu",
        "Reshape",
        "Resize",
        "Selu",
        "Sigmoid",
        "Softmax",
        "Softplus",
        "Softsign",
        "Sub",
        "Sum",
        "Tanh",
        "ThresholdedRelu",
        "Transpose",
    ]
)
"""The operators that hls4ml 1.3.0's ONNX reader has a handler for; Identity and Dropout are skipped before."""


def structural(reading: Reading, known: Mapping[str, Range], guard: Guard) -> list[Finding]:
    """Every finding that no choice of precisions changes, in the graph's order."""
    found: list[Finding] = []
    for name in reading.inputs:
        found += _input(reading, name)
    for node in reading.folded:
        found += _folded(node)
    found += [_ended(node) for node in reading.skipped]
    for node in reading.nodes:
        if node.op_type == MALFORMED:
            continue
        if node.op_type not in KNOWN:
            found.append(_unknown(node))
            continue
        here: list[Finding] = guard.run(node.name, node.op_type, [], _node, reading, node, known)
        found += here
    return found


def _node(reading: Reading, node: Node, known: Mapping[str, Range]) -> list[Finding]:
    found: list[Finding] = []
    for rule in RULES.get(node.op_type, ()):
        found += rule(reading, node)
    found += _repeated(reading, node)
    found += _merged(reading, node, known.get(node.output))
    found += _forked(reading, node)
    return found


def _input(reading: Reading, name: str) -> Iterator[Finding]:
    shape = reading.shapes.get(name, ())
    if len(shape) < 2:
        yield Finding(
            name,
            "Input",
            "crash",
            f"shape {shown(shape)}; hls4ml takes the first dimension for the batch, drops it, and is left without any",
            "Export with a batch dimension in front; " + REPAIR,
        )
    elif any(dimension in (None, 0) for dimension in shape[1:]):
        yield Finding(
            name,
            "Input",
            "crash",
            f"shape {shown(shape)}: hls4ml reads a dimension without a number as 0, and makes arrays of no element",
            "Export with fixed sizes (only the batch may be dynamic); --repair needs them too",
        )


_INSTEAD = {
    "QuantizeLinear": "Export QONNX (Quant) instead of QCDQ",
    "DequantizeLinear": "Export QONNX (Quant) instead of QCDQ",
    "Clip": "Let the Quant behind it clip, or write Relu",
    "Round": "Let a Quant round",
    "Floor": "Use a Quant with rounding_mode FLOOR",
    "Trunc": "Replace the truncation by a Quant of its output's type",
    "Gemm": "Export Linear with a bias, untransposed and unscaled, or as MatMul and Add",
    "Unsqueeze": "Use Reshape",
    "Squeeze": "Use Reshape or Flatten",
    "Upsample": "Drop the resizing, or do it outside",
    "Mean": "Sum, and fold the division into the next scale",
    "ReduceMean": "Sum by a convolution of ones, and fold the division into the next scale",
    "MultiThreshold": "Export QONNX before FINN's streamlining, where activations are Quants",
}


def _unknown(node: Node) -> Finding:
    if node.op_type == "Gemm":
        return finding(
            node,
            "crash",
            "qonnx's GemmToMatMul, which has to come before hls4ml, fails on a Gemm without bias, with transA, or "
            "with beta",
            f"{_INSTEAD['Gemm']}; {REPAIR}",
        )
    return finding(
        node,
        "refused",
        f"hls4ml raises 'ERROR: Unsupported operation type: {node.op_type}'",
        f"{_INSTEAD.get(node.op_type, 'Write it with operators that hls4ml reads')}; "
        "--repair does it where the operator has an exact integer form",
    )


def _folded(node: Node) -> Iterator[Finding]:
    if node.op_type == "IntQuant":
        for name in ("signed", "narrow"):
            if name not in node.attributes:
                reason = f"no attribute {name!r}; qonnx's cleanup computes it, and raises 'Required attribute'"
                yield finding(node, "refused", reason, f"Write it out; {REPAIR}")
        yield finding(
            node,
            "note",
            "IntQuant on constants: qonnx's cleanup computes it away, so hls4ml never learns the bit width and gives "
            "these "
            "constants its default precision",
            f"Name the operator Quant; {REPAIR}",
        )


def _ended(node: Node) -> Finding:
    return finding(
        node,
        "crash",
        f"{node.op_type} gives an output of the graph: hls4ml skips the node and loses the output with it, so that "
        "the C++ "
        "has a function without that port, which does not compile",
        f"Remove the {node.op_type} at the end; {REPAIR}",
    )


def _repeated(reading: Reading, node: Node) -> Iterator[Finding]:
    values = [name for name in node.inputs if name and name not in reading.constants]
    given = [name for name in node.given if name and name not in reading.constants]
    if len(set(given)) < len(given):
        yield finding(
            node,
            "crash",
            f"reads {_twice(given)!r} twice; qonnx renames one of the two only, and hls4ml raises 'Could not find "
            "the shape for input'",
            "Multiply by 2, or compute the value twice; --repair does not",
        )
    elif len(set(values)) < len(values) and reading.layout and (reading.rank(node.output) or 0) > 2:
        yield finding(
            node,
            "wrong",
            f"reads {_twice(values)!r} twice in a convolutional part, once through Identity: it imports, and comes "
            "out with other numbers",
            "Multiply by 2, or compute the value twice; --repair does not",
        )


def _forked(reading: Reading, node: Node) -> Iterator[Finding]:
    """An output of the graph inside a convolutional part: the Transposes around it get in each other's way."""
    tensor = node.output
    if tensor not in reading.outputs or not reading.layout or (reading.rank(tensor) or 0) < 3:
        return
    readers = reading.readers(tensor)
    into = [reader for reader in readers if reading.is_layout(reader) or reading.pulled_up(reader)]
    if not into:
        return
    if reading.is_layout(node):
        if len(readers) == 1:
            yield finding(
                node,
                "wrong",
                f"an output of the graph that {into[0].name} reads as well: the conversion to channels last loses "
                "the output",
                f"Export it without this output; {REPAIR}",
            )
    elif reading.downstream(node):
        yield finding(
            node,
            "crash",
            f"an output of the graph that {into[0].name} reads as well: the conversion to channels last stops with "
            "'AssertionError: Must have >1 consumer'",
            "Export it without this output; --repair cannot leave it out",
        )


def _twice(values: list[str]) -> str:
    return next(value for value in values if values.count(value) > 1)


def _merged(reading: Reading, node: Node, known: Range | None) -> Iterator[Finding]:
    """hls4ml makes a Quant the result type of the layer before it, without looking who else reads that layer."""
    affine = node.op_type in ("Mul", "Add", "Sub", "Div") and any(name in reading.constants for name in node.inputs)
    weighted = node.op_type in ("MatMul", "Conv") and reading.constant(node.inputs[1]) is not None
    if not (affine or weighted or node.op_type in ("BatchNormalization", "Relu")):
        return
    tensor = node.output
    first = next((reader for reader in reading.readers(tensor) if typed(reading, reader)), None)
    if first is None or reading.uses(tensor) < 2:
        return
    mine = grid(reading, first)
    if known is not None and mine is not None and known.on(*mine):
        return  # the Quant changes nothing
    others = [reader for reader in reading.readers(tensor) if reader is not first]
    if tensor not in reading.outputs and all(_same_or_narrower(reading, first, other) for other in others):
        return
    if tensor in reading.outputs and first.output in reading.outputs:
        yield finding(
            node,
            "crash",
            f"an output of the graph, as is {first.name} behind it: hls4ml merges the two, and fails with 'Remove "
            "leaf node "
            f"... will connect its input node to output, but it already is'",
            f"List one of them as output; {REPAIR}",
        )
        return
    whom = ", ".join([reader.name for reader in others] + (["an output"] if tensor in reading.outputs else []))
    yield finding(
        node,
        "wrong",
        f"read by {first.name} and by {whom}: hls4ml merges the Quant {first.name} into this layer, so the others get "
        "quantized numbers as well",
        f"Compute this layer once for each reader, or quantize for all of them alike; {REPAIR}",
    )


def _same_or_narrower(reading: Reading, first: Node, other: Node) -> bool:
    """Whether quantizing twice, by first and then by other, is what other does alone."""
    if not typed(reading, other):
        return False
    one, two = grid(reading, first), grid(reading, other)
    mode = "rounding_mode"
    same_rounding = first.attributes.get(mode, "ROUND") == other.attributes.get(mode, "ROUND")
    return bool(one and two and one[0] == two[0] and one[1] <= two[1] and two[2] <= one[2] and same_rounding)


RULES: dict[str, tuple[Rule, ...]] = {
    op: tuple(rule for part in (rules_quant, rules_constants, rules_layers) for rule in part.RULES.get(op, ()))
    for op in KNOWN
}
"""The rules of each operator: about quantizers, about constants, about the layer itself."""
