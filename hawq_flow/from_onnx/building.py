"""The network as it grows: ops appended one by one, each value derived at once, inputs laid out when first needed."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hawq_flow.from_onnx.affine import Rationals, common, compress, full
from hawq_flow.from_onnx.refusals import Refuse, Snap
from hawq_flow.from_onnx.tensors import Tensor, fresh
from hawq_flow.network import Conv, Dense, InputSpec, IntegerNetwork, Op, OutputSpec, Requantize, Reshape, Value
from hawq_flow.numeric import FloatArray, IntArray, IntType, significant_bits

_UNFIT = re.compile(r"[^A-Za-z0-9_]+")
_RESERVED = frozenset(
    [
        "and",
        "asm",
        "auto",
        "bool",
        "break",
        "case",
        "catch",
        "char",
        "class",
        "const",
        "continue",
        "default",
        "delete",
        "do",
        "double",
        "else",
        "enum",
        "extern",
        "false",
        "float",
        "for",
        "goto",
        "if",
        "inline",
        "int",
        "input",
        "long",
        "module",
        "new",
        "not",
        "operator",
        "or",
        "output",
        "private",
        "public",
        "reg",
        "register",
        "return",
        "short",
        "signed",
        "sizeof",
        "static",
        "struct",
        "switch",
        "template",
        "this",
        "throw",
        "true",
        "try",
        "typedef",
        "union",
        "unsigned",
        "using",
        "virtual",
        "void",
        "volatile",
        "while",
        "wire",
        "xor",
    ]
)
"""Words that C++ or Verilog keep for themselves."""


def identifier(text: str) -> str:
    """A name of the source as an identifier of C++ and Verilog: letters, digits, single underscores."""
    name = re.sub("__+", "_", _UNFIT.sub("_", text)).strip("_")
    if not name or name[0].isdigit():
        name = f"n_{name}".rstrip("_")
    return f"{name}_" if name in _RESERVED else name


@dataclass
class InputDraft:
    """An input before its layout is fixed: all arrays are in the file's order, of the file's shape without batch.

    ``order``, once fixed, gives for every element of the IR's value (flat) the file's element (flat).
    """

    name: str
    source: str
    file_shape: tuple[int, ...]
    type: IntType
    scale: FloatArray
    zero_point: IntArray
    mean: FloatArray
    std: FloatArray
    shape: tuple[int, ...] | None = None
    order: IntArray | None = None

    def spec(self) -> InputSpec:
        """The specification, in the layout that was fixed."""
        assert self.order is not None
        assert self.shape is not None

        def laid(array: NDArray[Any]) -> NDArray[Any]:
            if array.size == 1:
                return array.reshape(())
            whole = np.broadcast_to(array, self.file_shape).reshape(-1)[self.order].reshape(self.shape)
            return np.asarray(compress(whole))

        parts = {name: laid(getattr(self, name)) for name in ("scale", "zero_point", "mean", "std")}
        return InputSpec(self.name, self.shape, self.type, **parts)


class Builder:
    """Ops in order with every value derived, as reading goes."""

    def __init__(self, snap: Fraction | None) -> None:
        self.snap = snap
        self.inputs: dict[str, InputDraft] = {}
        self.ops: dict[str, Op] = {}
        self.values: dict[str, Value] = {}
        self.snaps: list[Snap] = []
        self.notes: list[str] = []
        self.raw_shapes: dict[str, tuple[int, ...]] = {}
        self._taken: set[str] = set()
        self._reshaped: dict[tuple[str, tuple[int, ...]], str] = {}

    def name(self, wanted: str) -> str:
        """A free identifier near ``wanted``."""
        base = identifier(wanted)
        name, n = base, 1
        while name.lower() in self._taken:
            n += 1
            name = f"{base}_{n}"
        self._taken.add(name.lower())
        return name

    def add(self, op: Op) -> str:
        """Append an op (its name from :meth:`name`) and derive its value."""
        if not op.layer:
            source = self.ops.get(op.inputs[0])
            op = dataclasses.replace(op, layer=source.layer if source else op.name)
        self.values[op.name] = op.derive([self.values[name] for name in op.inputs])
        self.ops[op.name] = op
        return op.name

    def replace(self, op: Op) -> None:
        """Put another op in the place of the one of its name, which nothing reads yet."""
        self.values[op.name] = op.derive([self.values[name] for name in op.inputs])
        self.ops[op.name] = op

    def own(self, tensor: Tensor) -> Op | None:
        """The op behind a tensor when nothing else reads it, so that it may be changed; else None."""
        op = None if tensor.raw or tensor.shared else self.ops.get(tensor.name)
        if op is None or any(tensor.name in other.inputs for other in self.ops.values()):
            return None
        return op

    # --- layouts ---------------------------------------------------------------------------------------------------

    def settle(self, name: str, shape: tuple[int, ...], order: IntArray) -> None:
        """Fix the layout of an input, once: its IR shape, and the file's element at every place of it."""
        draft = self.inputs[name]
        if draft.order is None:
            draft.shape, draft.order = shape, np.ascontiguousarray(order.reshape(-1))
            low, high = (
                np.broadcast_to(end, shape) for end in (draft.type.low(len(shape)), draft.type.high(len(shape)))
            )
            bound = max(abs(int(low.min())), abs(int(high.max())))
            self.values[name] = Value(shape, low, high, draft.type, bound)

    def positions(self, tensor: Tensor) -> IntArray:
        """For every element of a tensor its flat place in the IR's value; fixes an input's layout to the file's."""
        draft = self.inputs.get(tensor.name)
        if draft is None:
            return tensor.index
        size = int(np.prod(draft.file_shape))
        if draft.order is None:
            self.settle(tensor.name, draft.file_shape, np.arange(size))
        assert draft.order is not None
        place = np.empty(size, np.int64)
        place[draft.order] = np.arange(size)
        return place[tensor.index]

    def unit(self, tensor: Tensor) -> Rationals:
        """The tensor's scales without signs, 1 for a dead channel."""
        flat = [abs(v) if v else Fraction(1) for v in tensor.scale.ravel()]
        return np.array([*flat, None], dtype=object)[:-1].reshape(tensor.scale.shape)

    def moved(self, tensor: Tensor, name: str) -> Tensor:
        """The tensor over another value of the same elements, which only it reads."""
        if name == tensor.name:
            return tensor
        return dataclasses.replace(tensor, name=name, index=self.positions(tensor), shared=False)

    def value(self, tensor: Tensor) -> Value:
        """What is derived of the integers of a tensor; fixes an input's layout to the file's."""
        self.positions(tensor)
        return self.values[tensor.name]

    def laid_out(self, tensor: Tensor, what: str) -> str:
        """The IR value of a tensor's own shape (batch excluded) and order; a Reshape is added where that is all.

        An input whose layout is open takes the tensor's: that is how channels-last inputs become channels first.
        """
        shape = tensor.shape[1:]
        size = int(np.prod(shape))
        draft = self.inputs.get(tensor.name)
        if draft is not None and draft.order is None and size == int(np.prod(draft.file_shape)):
            flat = tensor.index.reshape(-1)
            if np.array_equal(np.sort(flat), np.arange(size)):
                self.settle(tensor.name, shape, flat)
        places = self.positions(tensor).reshape(-1)
        value = self.values[tensor.name]
        if tensor.shape[0] != 1 or size != int(np.prod(value.shape)) or not np.array_equal(places, np.arange(size)):
            raise Refuse(
                f"{what} reads {tensor.name} with its elements picked or in another order (a Transpose, Gather or Slice"
                " before it), and the IR has no such operation; layers that read the whole in channels-first order do"
            )
        return self.reshaped(tensor.name, shape)

    def reshaped(self, name: str, shape: tuple[int, ...]) -> str:
        """The value in another shape, through one Reshape for each shape."""
        if self.values[name].shape == shape:
            return name
        key = (name, shape)
        if key not in self._reshaped:
            self._reshaped[key] = self.add(Reshape(self.name(f"{name}_reshape"), name, shape))
        return self._reshaped[key]

    def spread(self, tensor: Tensor, array: Rationals) -> Rationals:
        """An array over the model's tensor, as one that broadcasts over the IR's value."""
        places = self.positions(tensor)
        shape = self.values[tensor.name].shape
        if array.size == 1:
            return array.reshape((1,) * len(shape))
        if tensor.shape == (1, *shape) and np.array_equal(places.reshape(-1), np.arange(places.size)):
            return compress(array.reshape(array.shape[1:]))
        whole = full(array, tensor.shape).reshape(-1)
        result = np.full(int(np.prod(shape)), whole[0], dtype=object)
        result[places.reshape(-1)] = whole
        if not bool(np.all(result[places.reshape(-1)] == whole)):
            raise Refuse("one element is read in several places, each with a scale or offset of its own")
        return compress(result.reshape(shape))

    def interval(self, name: str, shape: tuple[int, ...]) -> tuple[IntArray, IntArray]:
        """The proven interval of a value, joined along every axis where ``shape`` is one: (low, high) of ``shape``."""
        value = self.values[name]
        axes = tuple(i for i, n in enumerate(shape) if n == 1)
        return value.low.min(axis=axes, keepdims=True), value.high.max(axis=axes, keepdims=True)

    # --- small steps -----------------------------------------------------------------------------------------------

    def is_laid_out(self, tensor: Tensor) -> bool:
        """Whether the IR's value has a tensor's own shape and order."""
        places = self.positions(tensor)
        same = tensor.shape == (1, *self.values[tensor.name].shape)
        return same and np.array_equal(places.reshape(-1), np.arange(places.size))

    def one_grid(self, tensor: Tensor, name: str) -> Tensor:
        """The tensor on one scale and offset, by a step, where its scales have a whole common measure; else itself."""
        if tensor.scale.size == 1 and tensor.offset.size == 1:
            return tensor
        scale, offset = (self.spread(tensor, part) for part in (tensor.scale, tensor.offset))
        measure = common(scale.ravel())
        if measure == 0 or tensor.clamped:
            return tensor
        base = offset.reshape(-1)[0]
        ratio = np.asarray(scale / measure, dtype=object)
        units = np.asarray((offset - base) / measure, dtype=object)
        largest = max(abs(v) for part in (ratio, units) for v in part.ravel())
        if any(v.denominator != 1 for v in units.ravel()) or largest >= 1 << 20:
            return tensor
        m, z = (np.array([int(v) for v in part.ravel()], np.int64).reshape(part.shape) for part in (ratio, units))
        made = self.moved(tensor, self.step(f"{name}_grid", tensor.name, m, z))
        return fresh(made.name, made.index, np.array([measure], dtype=object), np.array([base], dtype=object))

    def step(self, name: str, source: str, multiplier: Any, offset: Any) -> str:
        """``multiplier * x + offset`` without loss: a Requantize into the narrowest type that holds it."""
        m, z = (np.asarray(v, dtype=np.int64) for v in (multiplier, offset))
        if not (m != 1).any() and not z.any():
            return source
        value = self.values[source]
        ends = [value.low.astype(object) * m + z, value.high.astype(object) * m + z]
        type = IntType.holding(min(int(end.min()) for end in ends), max(int(end.max()) for end in ends))
        return self.add(Requantize(self.name(name), source, m, np.zeros((), np.int64), z, type))

    def shifted(self, tensor: Tensor, bias: IntArray, name: str) -> Tensor:
        """The tensor over integers with ``bias`` (broadcasting over the IR's value) added: in the layer's bias if it is
        free, else by a step. Scale, offset and clamp are left for the caller to correct.
        """
        if not bias.any():
            return tensor
        op = self.own(tensor)
        shape = self.values[tensor.name].shape
        if isinstance(op, Dense | Conv) and op.accumulator is None and _by_channel(bias, shape):
            total = op.bias + np.broadcast_to(bias.reshape(-1), op.bias.shape)
            if int(significant_bits(total).max()) <= 24:
                self.replace(dataclasses.replace(op, bias=total))
                return tensor
        return self.moved(tensor, self.step(name, tensor.name, 1, bias))

    def with_bias(self, tensor: Tensor) -> Tensor:
        """The tensor with its offset in the bias of the layer it comes straight from, where that is whole and free."""
        op = self.own(tensor)
        if not isinstance(op, Dense | Conv) or op.accumulator is not None or tensor.clamped:
            return tensor
        scale, offset = (self.spread(tensor, part) for part in (tensor.scale, tensor.offset))
        if any(v == 0 for v in scale.ravel()):
            return tensor
        units = np.asarray(offset / scale, dtype=object)
        shape = self.values[tensor.name].shape
        if any(v.denominator != 1 or abs(v) >= 1 << 40 for v in units.ravel()) or not _by_channel(units, shape):
            return tensor
        bias = np.array([int(v) for v in units.ravel()], dtype=np.int64).reshape(units.shape)
        moved = self.shifted(tensor, bias, tensor.name)
        return dataclasses.replace(moved, offset=tensor.offset * 0) if moved.name == tensor.name else tensor

    def positive(self, tensor: Tensor, name: str) -> Tensor:
        """The same numbers with scale >= 0: a layer's rows are negated where it is free, else its integers are."""
        scale = self.spread(tensor, tensor.scale)
        negative = np.asarray(scale < 0, dtype=bool)
        if not negative.any():
            return tensor
        sign = np.where(negative, -1, 1).astype(np.int64)
        op = self.own(tensor)
        shape = self.values[tensor.name].shape
        positive = dataclasses.replace(tensor, scale=np.abs(tensor.scale))
        if isinstance(op, Dense | Conv) and op.accumulator is None and _by_channel(sign, shape):
            rows = np.broadcast_to(sign.reshape(-1), op.bias.shape)
            weight = op.weight * rows.reshape((-1,) + (1,) * (op.weight.ndim - 1))
            self.replace(dataclasses.replace(op, weight=weight, bias=op.bias * rows))
            return positive
        return self.moved(positive, self.step(f"{name}_negated", tensor.name, sign, 0))

    # --- the end ---------------------------------------------------------------------------------------------------

    def network(self, outputs: tuple[OutputSpec, ...], metadata: dict[str, str]) -> IntegerNetwork:
        """The network of what the outputs need."""
        needed = {output.name for output in outputs}
        kept: list[Op] = []
        for op in reversed(self.ops.values()):
            if op.name in needed:
                kept.append(op)
                needed |= set(op.inputs)
        inputs = tuple(draft.spec() for draft in self.inputs.values() if draft.name in needed)
        return IntegerNetwork(inputs, tuple(reversed(kept)), outputs, tuple(metadata.items()))


def _by_channel(array: NDArray[Any], shape: tuple[int, ...]) -> bool:
    """Whether an array over a value of ``shape`` has one number, or one for each channel (and not for each column)."""
    return array.size == 1 or array.shape == (shape[0],) + (1,) * (len(shape) - 1)


def over(builder: Builder, name: str, index: IntArray, scale: Rationals, offset: Rationals) -> Tensor:
    """A tensor over the value ``name`` in its own order, of the model's shape ``index``."""
    assert name in builder.values
    return fresh(name, index, scale, offset)
