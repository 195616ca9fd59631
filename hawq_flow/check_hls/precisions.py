"""Where hls4ml's default precision loses bits, computed from the bits that are really needed.

hls4ml types by itself whatever follows from types: a Quant, the sums of a dense layer or convolution with quantized
weights, sums and products of two values, pools and reshapes. The *default precision* types the rest:

* the inputs of the graph;
* constants that come through no Quant: weights, biases, factors, the scale and constant of a BatchNormalization;
* the results of activations, unless a Quant alone reads them;
* the factors in front of and behind a quantizer whose scale is no power of two.

Each of these is exact where the default holds it; what it needs is known from the constants and the ranges of the
tensors. A scale whose reciprocal is not dyadic, a function read from a table, an input without a range: no precision is
enough, and the finding says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from hawq_flow.check_hls.common import typed
from hawq_flow.check_hls.findings import Finding
from hawq_flow.check_hls.malformed import Guard
from hawq_flow.check_hls.needs import MOST_BITS, Need, is_power_of_two
from hawq_flow.check_hls.ranges import Range, normalization
from hawq_flow.check_hls.reading import QUANTIZERS, Node, Reading, levels

TABLES = ("Sigmoid", "Tanh", "Elu", "Selu", "Softplus", "Softsign")
"""Functions that hls4ml reads from tables of 1024 entries; Softmax, whose tables are worse, has a rule of its own."""

RESULTS = ("Relu", "LeakyRelu", "ThresholdedRelu")
"""Functions that hls4ml computes, into a result of the default precision."""

_NEVER = "no default precision is enough"


def imprecise(reading: Reading, known: Mapping[str, Range], guard: Guard, default: Need) -> list[Finding]:
    """Every place where the default precision loses bits, in the graph's order, and a note for each input's grid."""
    wants: list[tuple[str, str, str, Need | None, str]] = []
    for name in reading.inputs:
        wants += _input(reading, name)
    for node in reading.nodes:
        here: list[tuple[str, Need | None, str]] = guard.run(
            node.name, node.op_type, [], lambda node: list(_node(reading, known, node)), node
        )
        for what, need, why in here:
            wants.append((node.name, node.op_type, what, need, why))
    wants = [entry if _possible(entry[3]) else (*entry[:3], None, _TOO_WIDE) for entry in wants]
    lost = [entry for entry in wants if entry[3] is None or not entry[3].within(default)]
    enough = [need for *_, need, _ in lost if need is not None]
    together = Need.together([default, *enough]) if enough else default
    if not _possible(together):
        lost = [(*entry[:3], None, _TOO_WIDE) for entry in lost]
    found = [Finding(*_texts(reading, entry, default, together)) for entry in lost]
    return found + list(_notes(reading))


_TOO_WIDE = f"what it needs, with the rest of the file, is wider than {MOST_BITS} bits, the most that the C++ takes"


def _possible(need: Need | None) -> bool:
    return need is None or need.integer + need.fraction <= MOST_BITS


def _texts(
    reading: Reading, entry: tuple[str, str, str, Need | None, str], default: Need, together: Need
) -> tuple[str, str, str, str, str, str]:
    name, op_type, what, need, why = entry
    if need is None:
        reason = f"{what} in {default}: {why}; {_NEVER}"
        if op_type == "Input":
            fix = "Put a Quant with a power-of-two scale behind the input in the source tool, or set its type by hand"
            if _quantized_only(reading, name):
                fix += "; --repair takes the input's integers from its quantizer"
            else:
                fix += "; --repair needs to be told the input's type (--input)"
        elif op_type in TABLES:
            fix = "End the network before it, or compare on your data; --repair makes no function of a table"
        else:
            fix = "Set its precision in hls_config['LayerName'] by hand, and compare; --repair makes it exact integers"
        return name, op_type, "imprecise", reason, fix, ""
    reason = f"{what} in {default}, hls4ml's default precision; {why} needs {need}"
    fix = f"Pass default_precision={str(together)!r} to config_from_onnx_model (enough for all such lines here)"
    if not reading.integers:
        fix += ", or give it a Quant in the source tool; --repair writes integers"
    return name, op_type, "imprecise", reason, fix, str(together)


_QUANTIZING = (*QUANTIZERS, "QuantizeLinear", "DynamicQuantizeLinear")


def _quantized_only(reading: Reading, name: str) -> bool:
    """Whether quantizers, and nothing else, read an input."""
    readers = _ends(reading, name)
    return bool(readers) and all(reader.op_type in _QUANTIZING for reader in readers or ())


def _ends(reading: Reading, tensor: str) -> list[Node] | None:
    """The nodes that a tensor goes to, past changes of shape; None if it is, by those, an output of the graph."""
    found: list[Node] = []
    left = [tensor]
    while left:
        here = left.pop()
        if here in reading.outputs:
            return None
        for reader in reading.readers(here):
            if reader.op_type in ("Reshape", "Flatten", "Transpose"):
                left.append(reader.output)
            else:
                found.append(reader)
    return found


def _quants(reading: Reading, tensor: str) -> list[Node] | None:
    """The Quants that a tensor goes to, past changes of shape; None if anything else reads it."""
    found = _ends(reading, tensor)
    return found if found is not None and all(node.op_type in ("Quant", "IntQuant") for node in found) else None


def _grid(reading: Reading, node: Node) -> tuple[Need | None, float, Range] | None:
    """What the numbers of a Quant with one scale and no zero point need, the scale, and their range."""
    if len(node.inputs) != 4:
        return None
    scale, bits = reading.constant(node.inputs[1]), reading.constant(node.inputs[3])
    if scale is None or bits is None or not scale.size or not bits.size or not (scale == scale.flat[0]).all():
        return None
    step = float(scale.flat[0])
    low, high = levels(node, float(bits.flat[0]))
    if not is_power_of_two(step) or high > 2.0**64:
        return None
    need = Need.of([low * step, high * step, step])
    return need, step, Range(low * step, high * step, 0)


def _input(reading: Reading, name: str) -> Iterator[tuple[str, str, str, Need | None, str]]:
    what = "read"
    quants = _quants(reading, name)
    grids = [_grid(reading, quant) for quant in quants or []]
    if not quants or any(grid is None for grid in grids):
        why = "the file does not say which numbers come (no quantizer alone reads it)"
        if _quantized_only(reading, name):
            why = _unusable(reading, (_ends(reading, name) or [])[0])
        yield name, "Input", what, None, why
        return
    needs = [grid[0] for grid in grids if grid is not None and grid[0] is not None]
    yield name, "Input", what, Need.together(needs), f"the grid of its Quant {quants[0].name}"


def _unusable(reading: Reading, quantizer: Node) -> str:
    """Why the quantizer of an input says no type for it."""
    scale = reading.constant(quantizer.inputs[1]) if len(quantizer.inputs) > 1 else None
    told = f", scale {scale.flat[0]:g}{', ...' if scale.size > 1 else ''}" if scale is not None and scale.size else ""
    return f"hls4ml cuts it off before its {quantizer.op_type} {quantizer.name} scales it{told}, whose grid is no type"


def _notes(reading: Reading) -> Iterator[Finding]:
    for name in reading.inputs:
        quants = _quants(reading, name)
        grid = _grid(reading, quants[0]) if quants else None
        if quants and grid is not None:
            _, step, span = grid
            yield Finding(
                name,
                "Input",
                "note",
                f"hls4ml cuts inputs off to the type of the port before the Quant {quants[0].name} rounds them: "
                "numbers off "
                f"its grid come out differently",
                f"Feed multiples of {step:g} from {span.low:g} to {span.high:g}: round the data before",
            )


def _typed_constant(reading: Reading, tensor: str) -> bool:
    return reading.quantizer(tensor) is not None


def _node(reading: Reading, known: Mapping[str, Range], node: Node) -> Iterator[tuple[str, Need | None, str]]:
    """(what takes the default, what is needed or None, of what) for one node."""
    match node.op_type:
        case "MatMul" | "Conv":
            yield from _layer(reading, node)
            yield from _signs(reading, known, node)
        case "Add" | "Sub" | "Mul" | "Div":
            yield from _affine(reading, node)
        case "BatchNormalization":
            affine = normalization(reading, node)
            if affine is not None:
                scale, bias = (Need.of(part) for part in affine)
                needs = [need for need in (scale, bias) if need is not None]
                yield (
                    "its factor and constant are stored",
                    Need.together(needs) if len(needs) == 2 else None,
                    "holding both",
                )
        case "Quant" | "IntQuant":
            yield from _quant(reading, node)
        case "BipolarQuant" if len(node.inputs) == 2:
            signs = reading.constant(node.inputs[1])
            if signs is not None and not (signs == 1).all():
                yield "its scale is stored", Need.of(signs), "holding it"
        case op if op in TABLES:
            yield "read from a table of 1024 entries and stored", None, "the table is not the function"
        case op if op in RESULTS:
            yield from _result(reading, known, node)
        case _:
            return


def _layer(reading: Reading, node: Node) -> Iterator[tuple[str, Need | None, str]]:
    weight = reading.constant(node.inputs[1])
    if weight is not None and not _typed_constant(reading, node.inputs[1]):
        yield "weights that come through no Quant are stored", Need.of(weight), "holding them"
        yield from _fused(reading, node, weight)
    if weight is not None and (quant := reading.quantizer(node.inputs[1])) is not None:
        scale = reading.constant(quant.inputs[1])
        if scale is not None and scale.size and not ((scale == scale.flat[0]).all() and is_power_of_two(scale.flat[0])):
            yield "the scale of its weights becomes a factor behind it, stored", Need.of(scale), "holding it"
    if node.op_type == "Conv" and len(node.inputs) > 2 and node.inputs[2]:
        bias = reading.constant(node.inputs[2])
        if bias is not None and not _typed_constant(reading, node.inputs[2]):
            yield "a bias that comes through no Quant is stored", Need.of(bias), "holding it"


def _signs(reading: Reading, known: Mapping[str, Range], node: Node) -> Iterator[tuple[str, Need | None, str]]:
    """hls4ml types the sums of products from fixed-point types; signs have another type, and leave the default."""
    sources = [reading.producer(node.inputs[0]), reading.quantizer(node.inputs[1])]
    if not any(source is not None and source.op_type == "BipolarQuant" for source in sources):
        return
    scales = [reading.constant(source.inputs[1]) for source in sources if source and source.op_type == "BipolarQuant"]
    span, weight = known.get(node.output), reading.constant(node.inputs[1])
    if span is None or weight is None or any(scale is None or not scale.all() for scale in scales):
        yield "its sums of signs are stored", None, "the file does not say what they can be"
        return
    # The scale of the signs is multiplied in behind the sum: without it the sum is larger or smaller.
    bare = [np.array([span.low, span.high]) / float(np.abs(part).min()) for part in scales if part is not None]
    needs = [span.need, *(Need(need.integer, span.fraction) for ends in bare if (need := Need.of(ends)) is not None)]
    yield "its sums of signs are stored", Need.together(needs), "holding them"


def _fused(reading: Reading, node: Node, weight: np.ndarray) -> Iterator[tuple[str, Need | None, str]]:
    """hls4ml multiplies a normalization into unquantized weights, in float."""
    readers = reading.readers(node.output)
    if len(readers) != 1 or readers[0].op_type != "BatchNormalization" or node.op_type != "Conv":
        return
    affine = normalization(reading, readers[0])
    if affine is not None:
        scaled = weight * affine[0].reshape(-1, *[1] * (weight.ndim - 1))
        yield f"{readers[0].name} is multiplied into its weights, stored", Need.of(scaled), "holding the products"


def _affine(reading: Reading, node: Node) -> Iterator[tuple[str, Need | None, str]]:
    constants = [name for name in node.inputs if reading.constant(name) is not None]
    if len(constants) != 1 or len(node.inputs) != 2 or _typed_constant(reading, constants[0]):
        return
    values = np.asarray(reading.constant(constants[0]))
    if node.op_type == "Div":
        if not values.all():
            return
        inverse = 1 / values
        exact = all(is_power_of_two(abs(float(v))) for v in values.ravel())
        why = "holding it" if exact else "the reciprocal of its constant is no dyadic number"
        yield "the reciprocal of its constant is stored", Need.of(inverse) if exact else None, why
        return
    role = "factor" if node.op_type == "Mul" else "constant"
    yield f"its {role} is stored", Need.of(values), "holding it"


def _quant(reading: Reading, node: Node) -> Iterator[tuple[str, Need | None, str]]:
    if len(node.inputs) != 4 or reading.constant(node.inputs[0]) is not None:
        return
    scale = reading.constant(node.inputs[1])
    if scale is None or not scale.size:
        return
    if not all(is_power_of_two(abs(float(v))) for v in scale.ravel()):
        yield (
            f"scale {scale.flat[0]:g}{', ...' if scale.size > 1 else ''}, no power of two: hls4ml multiplies by its "
            "reciprocal and by it, stored",
            None,
            "the reciprocal is no dyadic number",
        )
    elif not (scale == scale.flat[0]).all() or scale.flat[0] < 0:
        needs = [need for need in (Need.of(scale), Need.of(1 / scale)) if need is not None]
        yield (
            "several scales, or negative: hls4ml multiplies by their reciprocals and by them, stored",
            Need.together(needs),
            "holding them",
        )


def _result(reading: Reading, known: Mapping[str, Range], node: Node) -> Iterator[tuple[str, Need | None, str]]:
    readers = reading.readers(node.output)
    alone = len(readers) == 1 and node.output not in reading.outputs
    if alone and node.op_type == "Relu" and typed(reading, readers[0]):
        return  # the Quant becomes its result type
    span = known.get(node.output)
    what = "its result is stored"
    if span is not None:
        yield what, span.need, "the range of its result"
    else:
        yield what, None, "the file does not say what its result can be"
