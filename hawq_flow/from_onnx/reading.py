"""The walk over a file's nodes: each through its rule, refusals collected, and the network that comes out."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from hawq_flow import __version__
from hawq_flow.from_onnx import elements, rules_math, rules_quant, rules_shape
from hawq_flow.from_onnx.affine import compress, exact, floats, full
from hawq_flow.from_onnx.building import Builder, InputDraft
from hawq_flow.from_onnx.clamping import materialized
from hawq_flow.from_onnx.folding import constant_of, folded
from hawq_flow.from_onnx.layers import grid_of
from hawq_flow.from_onnx.nodes import Node, well_formed
from hawq_flow.from_onnx.refusals import ImportRefused, Refusal, Refuse
from hawq_flow.from_onnx.result import ORIGIN, Imported, ImportedInput, ImportedOutput, origin
from hawq_flow.from_onnx.source import Source, integer_type, load
from hawq_flow.from_onnx.tensors import Any_, Const, Known, Left, Tabulated, Tensor, Unknown, fresh, scalar
from hawq_flow.network import LIMIT, NetworkError, OutputSpec, Requantize, verify
from hawq_flow.numeric import IntType

Rule = Callable[[Node], Known | list[Known]]
QUANTIZERS: dict[str, Rule] = {
    "Quant": rules_quant.quant,
    "IntQuant": rules_quant.quant,
    "BipolarQuant": rules_quant.bipolar,
    "Trunc": rules_quant.trunc,
}
"""Rules of QONNX, whatever domain a file puts them in."""
_TABLES = [
    "Sigmoid",
    "Tanh",
    "Softplus",
    "Softsign",
    "Exp",
    "Erf",
    "Abs",
    "Elu",
    "Selu",
    "LeakyRelu",
    "PRelu",
    "HardSigmoid",
    "HardSwish",
    "Gelu",
    "Mish",
]
RULES: dict[str, Rule] = {
    "QuantizeLinear": rules_quant.quantize_linear,
    "DequantizeLinear": rules_quant.dequantize_linear,
    "Cast": rules_quant.cast,
    **dict.fromkeys(("Round", "Floor", "Ceil"), rules_quant.rounding),
    **dict.fromkeys(("Add", "Sub", "Mul", "Div"), rules_math.arithmetic),
    "Sum": rules_math.summed,
    **dict.fromkeys(("Clip", "Min", "Max"), rules_math.clip),
    "Relu": rules_math.relu,
    "Neg": rules_math.negative,
    "BitShift": rules_quant.bit_shift,
    "BatchNormalization": rules_math.batch_norm,
    **dict.fromkeys(_TABLES, rules_math.table),
    "MatMul": rules_math.matmul,
    "Gemm": rules_math.gemm,
    "Conv": rules_math.conv,
    **dict.fromkeys(("MatMulInteger", "ConvInteger"), rules_math.integer_layer),
    **dict.fromkeys(("Softmax", "LogSoftmax", "ArgMax", "ArgMin", "TopK", "Hardmax"), rules_math.left_in_float),
    **dict.fromkeys(("Identity", "Dropout"), rules_shape.identity),
    "Transpose": rules_shape.transpose,
    "Reshape": rules_shape.reshape,
    "Flatten": rules_shape.flatten,
    "Squeeze": rules_shape.squeeze,
    "Unsqueeze": rules_shape.unsqueeze,
    "Gather": rules_shape.gather,
    "Slice": rules_shape.slice_,
    "Split": rules_shape.split,
    "Concat": rules_shape.concat,
    "MaxPool": rules_shape.max_pool,
    "GlobalMaxPool": rules_shape.max_over,
    **dict.fromkeys(("AveragePool", "GlobalAveragePool"), rules_shape.average_pool),
    **dict.fromkeys(("ReduceMean", "ReduceSum", "ReduceMax"), rules_shape.reduce),
    "Pad": rules_shape.padded,
    **dict.fromkeys(("Resize", "Upsample"), rules_shape.resize),
    "Shape": rules_shape.shape_of,
}
"""Rules of standard ONNX operators."""
_ELEMENTWISE = frozenset(
    [
        "Quant",
        "IntQuant",
        "BipolarQuant",
        "QuantizeLinear",
        "DequantizeLinear",
        "Cast",
        "Add",
        "Sub",
        "Mul",
        "Div",
        "Relu",
        "Clip",
        "Identity",
        "Round",
    ]
)
_INTEGER = re.compile(r"(u?)int(\d+)\Z")
_FIXED = re.compile(r"(?:ap_)?(u?)fixed<\s*(\d+)\s*,\s*(-?\d+)\s*(?:,.*)?>\Z")


def read(
    model: onnx.ModelProto | Path | str, *, snap: float | None = None, inputs: Mapping[str, str] | None = None
) -> Imported:
    """The integer network of another tool's quantized ONNX.

    Parameters
    ----------
    model:
        QONNX, QuantizeLinear-DequantizeLinear or pre-quantized ONNX: a path or a model in memory.
    snap:
        None: every scale and bias is carried exactly or the node is refused. A number in (0, 0.01]: a scale may change
        by that much relatively, and a bias be rounded to the grid of its accumulator, where exactness would need more
        than one multiplier; ``Imported.snaps`` lists each.
    inputs:
        Fixed-point types by input name ("ap_fixed<16,6>", "ufixed<8,0>") for inputs that the file does not quantize.

    Raises
    ------
    ImportRefused
        Listing every node that integers cannot carry, with the reason and the fix.
    ValueError
        For a snap or an input type that makes no sense.
    """
    if snap is not None and not 0 < snap <= 0.01:
        raise ValueError(f"snap {snap!r}; expected a relative change above 0 and at most 0.01, or None")
    source = load(model)
    return _Reading(source, Fraction(snap) if snap is not None else None, dict(inputs or {})).result()


class _Reading:
    """One walk over a file."""

    def __init__(self, source: Source, snap: Fraction | None, declared: dict[str, str]) -> None:
        self.source = source
        self.builder = Builder(snap)
        self.builder.raw_shapes = source.inputs
        self.refusals: list[Refusal] = []
        self.known: dict[str, Any_] = {name: Const(array) for name, array in source.constants.items()}
        self.elements: dict[str, elements.Element | None] = {
            name: array.dtype for name, array in source.constants.items()
        }
        for info in source.model.graph.input:
            self.elements.setdefault(info.name, elements.element(info.type.tensor_type.elem_type))
        unknown = [name for name in declared if name not in source.inputs]
        if unknown:
            raise ValueError(f"inputs: no input {unknown[0]!r}; the file's are {', '.join(source.inputs)}")
        for name, shape in source.inputs.items():
            index = np.arange(math.prod(shape)).reshape(1, *shape)
            one, zero = exact(np.ones(1, np.int64)), exact(np.zeros(1, np.int64))
            tensor = fresh(name, index, one, zero)
            try:
                integer = integer_type(source.model, name)
            except Refuse as refuse:
                self.refusals.append(Refusal(name, "input", str(refuse)))
                self.known[name] = Unknown()
                continue
            if name in declared:
                tensor = self._declared(tensor, *fixed_type(declared[name]), shape)
            elif integer is not None:
                tensor = self._declared(tensor, integer, 0, shape)
            else:
                tensor = dataclasses.replace(tensor, raw=True)
            self.known[name] = dataclasses.replace(tensor, shared=source.uses.get(name, 0) > 1)

    def _declared(self, tensor: Tensor, type: IntType, fraction: int, shape: tuple[int, ...]) -> Tensor:
        name = self.builder.name(tensor.name)
        scale = Fraction(2) ** -fraction
        one, zero = np.ones(1), np.zeros(1)
        self.builder.inputs[name] = InputDraft(
            name, tensor.name, shape, type, one * float(scale), np.zeros(1, np.int64), zero, one
        )
        perm = self._first_transpose(tensor.name)
        if perm:
            moved = np.transpose(tensor.index, perm)
            self.builder.settle(name, moved.shape[1:], moved)
        return fresh(name, tensor.index, scalar(scale), scalar(0))

    def _first_transpose(self, name: str) -> list[int] | None:
        """The Transpose an input reaches through elementwise nodes alone: the layout the network wants."""
        for _ in range(64):
            readers = [node for node in self.source.nodes if node.input and name in node.input]
            if len(readers) != 1:
                return None
            if readers[0].op_type == "Transpose":
                perm = [list(a.ints) for a in readers[0].attribute if a.name == "perm"]
                return perm[0] if perm and perm[0][0] == 0 else None
            if readers[0].op_type not in _ELEMENTWISE:
                return None
            name = readers[0].output[0]
        return None

    # --- the walk ----------------------------------------------------------------------------------------------------

    def result(self) -> Imported:
        for proto, name in zip(self.source.nodes, self.source.names, strict=True):
            self._step(proto, name)
        outputs = [self._output(name) for name in self.source.outputs]
        if self.refusals:
            raise ImportRefused(self.source.label, self.refusals)
        if not any(outputs):
            refusal = Refusal(self.source.label, "file", "no output depends on the input")
            raise ImportRefused(self.source.label, [refusal])
        return self._imported([output for output in outputs if output])

    def _step(self, proto: onnx.NodeProto, name: str) -> None:
        found = [self.known.get(key) if key else None for key in proto.input]
        outcome: list[Any_] = [Unknown() for _ in proto.output]
        lost = [value.lost for value in found if isinstance(value, Unknown) and value.lost]
        if lost:
            self.refusals.append(Refusal(name, proto.op_type, f"reads {lost[0]}"))
        elif not any(isinstance(value, Unknown) for value in found):
            try:
                outcome = list(self._rule(proto, name, [v for v in found if not isinstance(v, Unknown)]))
            except Refuse as refuse:
                self.refusals.append(Refusal(name, proto.op_type, str(refuse)))
            except NetworkError as error:
                self.refusals.append(Refusal(name, proto.op_type, str(error)))
            except (ValueError, IndexError, KeyError, TypeError, AttributeError, ArithmeticError) as error:
                reason = f"its inputs, shapes or attributes are not those of a {proto.op_type} ({error!r})"
                self.refusals.append(Refusal(name, proto.op_type, reason))
        else:
            self._weights_of_unread(proto, name, found)
        for i in range(len(outcome), len(proto.output)):
            outcome.append(Unknown(f"output {i} of {name}, a {proto.op_type}, which this reader does not compute"))
        for key, value in zip(proto.output, outcome, strict=False):
            # The parts of a Split read one value between them.
            shared = self.source.uses.get(key, 0) > 1 or len(proto.output) > 1
            if isinstance(value, Tensor) and shared:
                value = dataclasses.replace(value, shared=True)
            if isinstance(value, Tabulated) and shared:
                value = dataclasses.replace(value, before=dataclasses.replace(value.before, shared=True))
            self.known[key] = value

    def _weights_of_unread(self, proto: onnx.NodeProto, name: str, found: list[Any_ | None]) -> None:
        """Behind a refused node nothing is judged but a layer's weights, which do not depend on it."""
        weights = found[1] if len(found) > 1 else None
        if proto.op_type in ("MatMul", "Gemm", "Conv") and isinstance(weights, Const):
            try:
                grid_of(weights)
            except Refuse as refuse:
                self.refusals.append(Refusal(name, proto.op_type, str(refuse)))

    def _rule(self, proto: onnx.NodeProto, name: str, found: list[Known | None]) -> list[Known]:
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        if proto.op_type in QUANTIZERS or not domain:
            well_formed(proto, self.source.opsets.get("", 13))
        attributes = {a.name: helper.get_attribute_value(a) for a in proto.attribute}
        node = Node(
            name,
            proto.op_type,
            domain,
            self.source.opsets.get(domain, 1),
            attributes,
            tuple(found),
            tuple(proto.input),
            tuple(proto.output),
            self.builder,
        )
        if proto.op_type in QUANTIZERS:
            rule = QUANTIZERS[proto.op_type]
        elif domain:
            raise Refuse(f"an operator of {domain}, which this reader does not know")
        elif proto.op_type == "Constant":
            const = Const(constant_of(attributes))
            self.elements[proto.output[0]] = const.array.dtype
            return [const]
        elif all(v is None or isinstance(v, Const) for v in found) and proto.op_type not in [
            "Add",
            "Sub",
            "Mul",
            "Div",
            "DequantizeLinear",
            "QuantizeLinear",
            "Transpose",
            "Reshape",
            "Flatten",
            "Squeeze",
            "Unsqueeze",
            "Identity",
            "Gather",
            "Slice",
            "Concat",
            "Cast",
            "Split",
        ]:
            consts = folded(proto, self.source.opsets.get("", 13), found)
            for key, const in zip(proto.output, consts, strict=False):
                self.elements[key] = const.array.dtype
            return [*consts]
        elif proto.op_type in RULES:
            rule = RULES[proto.op_type]
        else:
            raise Refuse(f"no rule for {proto.op_type}: the IR has no such operation")
        outcome = rule(node)
        results = outcome if isinstance(outcome, list) else [outcome]
        made = elements.made_by(proto, attributes, [self.elements.get(key) for key in proto.input])
        for key, result in zip(proto.output, results, strict=False):
            self.elements[key] = result.array.dtype if isinstance(result, Const) else made
            elements.check(self.builder, result, self.elements[key])
        return results

    # --- the end -----------------------------------------------------------------------------------------------------

    def _output(self, name: str) -> ImportedOutput | None:
        found = self.known.get(name)
        builder = self.builder
        left, tensor_name = "", name
        try:
            if isinstance(found, Unknown) and found.lost:
                raise Refuse(f"is {found.lost}")
            if found is None or isinstance(found, Unknown):
                return None
            if isinstance(found, Const):
                builder.notes.append(f"{name}: a constant output ({found.array.reshape(-1)[:3].tolist()}...), left out")
                return None
            if isinstance(found, Left):
                left, tensor_name = found.function, found.tensor
                builder.notes.append(f"{found.node}: {found.function} is left in float; the network ends on its input")
                found = found.before
            elif isinstance(found, Tabulated):
                if not found.tensor:
                    raise Refuse(f"moves a {found.function} that no quantizer follows; quantize it first")
                left, tensor_name = found.function, found.tensor
                builder.notes.append(f"{name}: {left} is left in float, for no quantizer follows it")
                found = found.before
            tensor = materialized(builder, found, f"{name}_out", "the output")
            return self._ended(name, tensor, tensor_name, left)
        except Refuse as refuse:
            self.refusals.append(Refusal(name, "output", str(refuse)))
        except NetworkError as error:
            self.refusals.append(Refusal(name, "output", str(error)))
        except (ValueError, ArithmeticError) as error:
            self.refusals.append(Refusal(name, "output", f"its scale or offset is no number of float64 ({error})"))
        return None

    def _ended(self, name: str, tensor: Tensor, read: str, left: str) -> ImportedOutput:
        """The output's op, with as much of its offset as integers hold in the bias."""
        builder = self.builder
        if tensor.shape[:1] != (1,):
            raise Refuse(f"the output has shape {tensor.shape} for one row; expected the batch as its first axis")
        tensor = builder.positive(tensor, f"{name}_out")
        places = builder.positions(tensor)
        scale, offset = (builder.spread(tensor, part) for part in (tensor.scale, tensor.offset))
        if any(v == 0 for v in scale.ravel()):
            raise Refuse("a channel of the output is constant (scale 0), and a network's scale is positive")
        units = np.asarray(offset / scale, dtype=object)
        largest = max(abs(v) for v in units.ravel())
        if largest >= LIMIT:
            raise Refuse(f"the output has an offset of {float(largest):.2g} of its units, more than integers hold")
        whole = np.array([round(v) for v in units.ravel()], dtype=np.int64).reshape(units.shape)
        if whole.any() and builder.own(tensor) is not None and hasattr(builder.own(tensor), "bias"):
            tensor = builder.shifted(tensor, whole, f"{name}_bias")
            whole_left = np.zeros_like(whole)
            residual = compress(np.asarray(offset - scale * exact(whole), dtype=object))
        else:
            whole_left = whole
            residual = compress(np.asarray(offset - scale * exact(whole), dtype=object))
        taken = {output.name for output in getattr(self, "_ends", [])}
        value = tensor.name
        if value not in builder.ops or value in taken:
            one, zero = np.ones((), np.int64), np.zeros((), np.int64)
            type = builder.values[value].type
            kept = type if isinstance(type.bits, int) else IntType(type.max_bits, type.signed, type.narrow)
            value = builder.add(Requantize(builder.name(f"{name}_out"), value, one, zero, zero, kept))
        spec = OutputSpec(value, floats(scale), -whole_left)
        self._ends = [*getattr(self, "_ends", []), spec]
        if any(residual.ravel()):
            worst = max(
                abs(v) / s
                for v, s in zip(
                    full(residual, np.broadcast_shapes(residual.shape, scale.shape)).ravel(),
                    full(scale, np.broadcast_shapes(residual.shape, scale.shape)).ravel(),
                    strict=True,
                )
            )
            builder.notes.append(
                f"{name}: a constant of up to {float(worst):.2g} of the output's unit is to be added to its real "
                "numbers ('origin' in the network's metadata, and in every export, has it): it is no whole number of "
                "units"
            )
        identity = np.array_equal(places.reshape(-1), np.arange(places.size))
        size = int(np.prod(builder.values[value].shape))
        if not identity or places.size != size:
            builder.notes.append(
                f"{name}: the network gives its elements in another order than the file ('origin' in its metadata says "
                "which)"
            )
        return ImportedOutput(
            name, read, value, tuple(tensor.shape[1:]), places.reshape(-1), scale, residual, -whole_left, left
        )

    def _imported(self, outputs: list[ImportedOutput]) -> Imported:
        source, builder = self.source, self.builder
        metadata = {
            "source": source.label,
            "source_sha256": source.sha256,
            "source_producer": " ".join(v for v in (source.model.producer_name, source.model.producer_version) if v),
            "imported_by": f"hawq_flow {__version__}",
        }
        network = builder.network(tuple(self._ends), metadata)
        try:
            verify(network)
        except NetworkError as error:
            raise ImportRefused(source.label, [Refusal(source.label, "network", str(error))]) from error
        inputs = []
        for draft in builder.inputs.values():
            if any(spec.name == draft.name for spec in network.inputs):
                assert draft.order is not None
                size = int(np.prod(draft.file_shape))
                if not np.array_equal(draft.order, np.arange(size)):
                    builder.notes.append(
                        f"{draft.source}: the file's {draft.file_shape} is read as {draft.shape}, channels first"
                    )
                inputs.append(ImportedInput(draft.name, draft.source, draft.file_shape, draft.order))
        network = dataclasses.replace(network, metadata=(*network.metadata, (ORIGIN, origin(network, inputs, outputs))))
        return Imported(
            network,
            tuple(inputs),
            tuple(outputs),
            tuple(builder.snaps),
            tuple(dict.fromkeys(builder.notes)),
            source.model,
        )


def fixed_type(text: str) -> tuple[IntType, int]:
    """("ap_fixed<16,6>") -> (int16, 10 fractional bits): width, and integer bits including the sign, as in ap_fixed.

    >>> fixed_type("ufixed<8,0>")
    (IntType(bits=8, signed=False, narrow=False), 8)
    """
    if integer := _INTEGER.match(text.strip()):
        text = f"{integer[1]}fixed<{integer[2]},{integer[2]}>"
    match = _FIXED.match(text.strip())
    if not match:
        raise ValueError(
            f"input type {text!r}; expected fixed<width,integer bits> or ufixed<...>, as in ap_fixed<16,6>, or int8, "
            "uint8"
        )
    width, whole = int(match[2]), int(match[3])
    if not 1 <= width <= 32 or (width == 1 and not match[1]):
        raise ValueError(f"input type {text!r}: width {width}; expected {1 if match[1] else 2} to 32")
    return IntType(width, signed=not match[1]), width - whole
