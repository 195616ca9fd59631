"""The intermediate representation: one immutable network of integers, its meaning bounded by proof.

An :class:`IntegerNetwork` is a tuple of operations in single-assignment form. Every op names its operands and
defines one value, called by the op's own name. Shapes exclude the batch and are channels first. Scales, zero
points and the standardization of the data are annotations on inputs and outputs; they are never operands.

Nothing that can be derived is stored. From the declared input types and the actual integers of every op,
:meth:`IntegerNetwork.values` derives, by interval arithmetic, for every value

* ``low`` and ``high``: what each element can reach, element by element;
* ``type``: the declared type of an input or a requantization, else the narrowest that holds the interval;
* ``bound``: the largest magnitude of *any* intermediate on the way to it (partial sums of a dot product in any
  order, the product before a shift), which tells every back end what word it needs: float32 carries integers
  below 2^24 exactly, float64 below 2^53, int64 below 2^62.

:func:`verify` proves that a network is well formed and cannot overflow. An op joins the closed union
:data:`Op` by defining ``inputs``, ``shape`` and ``derive``; storing, loading and the digest read its fields.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hawq_flow.numeric import (
    MAX_SHIFT,
    FloatArray,
    IntArray,
    IntType,
    Overflow,
    Rounding,
    overflow_to,
    quantize,
    requantize,
    shift_round,
    significant_bits,
)

Shape = tuple[int, ...]
FORMAT_VERSION = 1
LIMIT = 1 << 62
"""No intermediate may reach this magnitude: int64 with one bit to spare."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class NetworkError(ValueError):
    """A network that is malformed, or whose integers could overflow; the text says where, what and how to fix it."""


def _frozen(values: Any, dtype: type) -> NDArray[Any]:
    """A read-only C-ordered copy of ``values``; integers must be given as integers (floats are refused, not cut)."""
    array = np.asarray(values)
    if dtype is np.int64 and array.dtype.kind not in "iub":
        raise NetworkError(
            f"integers expected, found an array of {array.dtype}; round explicitly before building the op"
        )
    result: NDArray[Any] = np.array(array, dtype=dtype, order="C")
    result.flags.writeable = False
    return result


@dataclass(frozen=True)
class Value:
    """What is derived of one value: shape, element-wise interval (int64), type, and the bound on intermediates."""

    shape: Shape
    low: IntArray
    high: IntArray
    type: IntType
    bound: int

    @property
    def magnitude(self) -> int:
        """Largest absolute value an element can take."""
        return max(abs(int(self.low.min())), abs(int(self.high.max())))


@dataclass(frozen=True, eq=False)
class InputSpec:
    """A network input: integers of ``type``, with their real meaning as annotation.

    Attributes
    ----------
    name, shape:
        The value's name and its shape, batch excluded, channels first.
    type:
        The integers' type.
    scale, zero_point:
        ``real = scale * (integer - zero_point)``; float64 and int64, scalar or broadcastable over ``shape``.
    mean, std:
        Standardization of the raw data before quantization, ``(raw - mean) / std``: float64, broadcastable over
        ``shape``.
    """

    name: str
    shape: Shape
    type: IntType
    scale: FloatArray = field(default_factory=lambda: np.float64(1.0))  # type: ignore[arg-type,return-value]
    zero_point: IntArray = field(default_factory=lambda: np.int64(0))  # type: ignore[arg-type,return-value]
    mean: FloatArray = field(default_factory=lambda: np.float64(0.0))  # type: ignore[arg-type,return-value]
    std: FloatArray = field(default_factory=lambda: np.float64(1.0))  # type: ignore[arg-type,return-value]

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(int(n) for n in self.shape))
        for name, dtype in (("scale", np.float64), ("zero_point", np.int64), ("mean", np.float64), ("std", np.float64)):
            array = _frozen(getattr(self, name), dtype)
            _broadcast(array, self.shape, f"input {self.name!r}: {name}")
            object.__setattr__(self, name, array)
        for name in ("scale", "std"):
            array = getattr(self, name)
            if not (np.isfinite(array).all() and (array > 0).all()):
                raise NetworkError(f"input {self.name!r}: {name} must be positive and finite; found {array.tolist()}")

    def standardize(self, raw: Any) -> FloatArray:
        """``(raw - mean) / std`` in float64; ``raw`` has shape (n, *shape)."""
        return np.asarray((np.asarray(raw, dtype=np.float64) - self.mean) / self.std)

    def integers(self, raw: Any) -> IntArray:
        """The integers of raw data (n, *shape): standardized, quantized once, in float64. NaN is refused."""
        array = np.asarray(raw)
        if array.shape[1:] != self.shape:
            raise NetworkError(f"input {self.name!r}: data of shape {array.shape}; expected (n, {_dims(self.shape)})")
        return quantize(self.standardize(array), self.scale, self.zero_point, self.type, rank=len(self.shape))


@dataclass(frozen=True, eq=False)
class OutputSpec:
    """A network output: the name of a value and what its integers mean, ``real = scale * (integer - zero_point)``."""

    name: str
    scale: FloatArray = field(default_factory=lambda: np.float64(1.0))  # type: ignore[arg-type,return-value]
    zero_point: IntArray = field(default_factory=lambda: np.int64(0))  # type: ignore[arg-type,return-value]

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", _frozen(self.scale, np.float64))
        object.__setattr__(self, "zero_point", _frozen(self.zero_point, np.int64))


@dataclass(frozen=True, eq=False)
class Dense:
    """``weight @ x + bias``: x (features,), weight (outputs, features), bias (outputs,), all int64.

    Attributes
    ----------
    accumulator, overflow:
        A declared type for the finished sum and what happens outside it. None: the type is derived and holds every sum.
    layer:
        The source model's name for the layer this op came from (an annotation).
    """

    name: str
    input: str
    weight: IntArray
    bias: IntArray
    accumulator: IntType | None = None
    overflow: Overflow = Overflow.SATURATE
    layer: str = ""
    kind: ClassVar[str] = "Dense"

    def __post_init__(self) -> None:
        object.__setattr__(self, "weight", _frozen(self.weight, np.int64))
        object.__setattr__(self, "bias", _frozen(self.bias, np.int64))
        if self.weight.ndim != 2 or self.weight.size == 0 or self.bias.shape != self.weight.shape[:1]:
            raise NetworkError(
                f"{self.name}: weight of shape {self.weight.shape} with bias of shape {self.bias.shape}; "
                "expected (outputs, features) and (outputs,), neither empty"
            )
        if self.accumulator is not None:
            _modulus(self.accumulator, self.overflow, self.name)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the operands."""
        return (self.input,)

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """Shape of the result, or ``NetworkError``."""
        if shapes[0] != self.weight.shape[1:]:
            raise NetworkError(
                f"{self.name}: input {self.input!r} has shape ({_dims(shapes[0])}), expected "
                f"({self.weight.shape[1]},) for a weight of shape {self.weight.shape}; insert a Reshape"
            )
        return (int(self.weight.shape[0]),)

    def derive(self, values: Sequence[Value]) -> Value:
        """Interval of the sums, and the bound over partial sums in any order."""
        x = values[0]
        shape = self.shape([x.shape])
        positive, negative = np.maximum(self.weight, 0), np.minimum(self.weight, 0)
        reach = np.maximum(np.abs(x.low), np.abs(x.high))
        bound = _dot_bound(self.weight, reach, self.bias, self.name)
        low = np.asarray(positive @ x.low + negative @ x.high + self.bias, dtype=np.int64)
        high = np.asarray(positive @ x.high + negative @ x.low + self.bias, dtype=np.int64)
        return _declared(self.name, shape, low, high, bound, self.accumulator, self.overflow)


@dataclass(frozen=True, eq=False)
class Requantize:
    """``overflow(round(x * multiplier / 2^shift) + offset)`` into ``type``: the dyadic rescale of a sum.

    ``multiplier``, ``shift`` and ``offset`` are int64, scalar or broadcastable over the value (one per channel:
    shape (channels, 1, ...)). The offset is the zero point, added after rounding and before clipping.
    With an unsigned type, zero offset and saturation this *is* ReLU followed by a rescale.
    """

    name: str
    input: str
    multiplier: IntArray
    shift: IntArray
    offset: IntArray
    type: IntType
    rounding: Rounding = Rounding.HALF_EVEN
    overflow: Overflow = Overflow.SATURATE
    layer: str = ""
    kind: ClassVar[str] = "Requantize"

    def __post_init__(self) -> None:
        for name in ("multiplier", "shift", "offset"):
            object.__setattr__(self, name, _frozen(getattr(self, name), np.int64))
        if self.shift.size and (self.shift.min() < 0 or self.shift.max() > MAX_SHIFT):
            raise NetworkError(
                f"{self.name}: shifts from {self.shift.min()} to {self.shift.max()}; expected 0 to {MAX_SHIFT}"
            )
        _modulus(self.type, self.overflow, self.name)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the operands."""
        return (self.input,)

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """Shape of the result, or ``NetworkError``."""
        for name in ("multiplier", "shift", "offset"):
            _broadcast(getattr(self, name), shapes[0], f"{self.name}: {name}")
        _channels(self.type, shapes[0], self.name)
        return shapes[0]

    def derive(self, values: Sequence[Value]) -> Value:
        """Interval of the result; the bound covers the product before the shift, its rounding half, and the offset."""
        x = values[0]
        shape = self.shape([x.shape])
        largest = x.magnitude * int(np.abs(self.multiplier).max()) + (1 << int(self.shift.max()))
        largest = max(largest, (largest >> int(self.shift.min())) + int(np.abs(self.offset).max()) + 1)
        _limit(self.name, largest, "the product with the multiplier", "use multipliers of fewer bits")
        # The map is monotone (its sign is the multiplier's) until it wraps, so the ends of the interval go to its ends.
        ends = [shift_round(end * self.multiplier, self.shift, self.rounding) + self.offset for end in (x.low, x.high)]
        low, high = np.minimum(*ends), np.maximum(*ends)
        value = _declared(self.name, shape, low, high, largest, self.type, self.overflow)
        return dataclasses.replace(value, type=self.type)


@dataclass(frozen=True, eq=False)
class Reshape:
    """The same integers in another shape (C order, batch excluded)."""

    name: str
    input: str
    to: Shape
    layer: str = ""
    kind: ClassVar[str] = "Reshape"

    def __post_init__(self) -> None:
        object.__setattr__(self, "to", tuple(int(n) for n in self.to))

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the operands."""
        return (self.input,)

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """Shape of the result, or ``NetworkError``."""
        if int(np.prod(shapes[0])) != int(np.prod(self.to)) or min(self.to, default=1) < 1:
            raise NetworkError(
                f"{self.name}: cannot reshape ({_dims(shapes[0])}) to ({_dims(self.to)}); "
                "the number of elements must stay the same"
            )
        return self.to

    def derive(self, values: Sequence[Value]) -> Value:
        """The operand's interval, reshaped; a per-channel type becomes the narrowest single one."""
        x = values[0]
        shape = self.shape([x.shape])
        type = x.type if x.type.uniform else dataclasses.replace(x.type, bits=x.type.max_bits)
        if not isinstance(type.bits, int):
            type = dataclasses.replace(type, bits=type.max_bits)
        return Value(shape, x.low.reshape(shape), x.high.reshape(shape), type, x.magnitude)


Op = Dense | Requantize | Reshape
"""The closed union of operations. A new one: its class above, one function in each back end, six lines of test."""
OPS: dict[str, type[Op]] = {cls.kind: cls for cls in (Dense, Requantize, Reshape)}


def _dims(shape: Shape) -> str:
    return ", ".join(map(str, shape))


def _broadcast(array: NDArray[Any], shape: Shape, where: str) -> None:
    try:
        fits = np.broadcast_shapes(array.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits or array.size == 0:
        raise NetworkError(
            f"{where} of shape {array.shape} does not broadcast over a value of shape ({_dims(shape)}); "
            "give a scalar, or one entry per channel shaped (channels, 1, ...)"
        )


def _channels(type: IntType, shape: Shape, where: str) -> None:
    if not isinstance(type.bits, int) and (not shape or len(type.bits) != shape[0]):
        raise NetworkError(
            f"{where}: type {type} has {len(type.widths)} channel widths for a value of shape ({_dims(shape)}); "
            "give one width, or one for each channel of axis 0"
        )


def _modulus(type: IntType, overflow: Overflow, where: str) -> None:
    if overflow is Overflow.WRAP and type.narrow:
        raise NetworkError(f"{where}: wraps into {type}; a narrow type has no modulus. Saturate, or use the full type")


def _limit(name: str, bound: int, what: str, fix: str) -> None:
    if bound >= LIMIT:
        raise NetworkError(
            f"{name}: {what} may reach {bound} (2^{bound.bit_length() - 1} or more), beyond the 2^62 that int64 "
            f"carries safely; {fix}"
        )


def _dot_bound(weight: IntArray, reach: IntArray, bias: IntArray, name: str) -> int:
    """max over rows of sum |w| * reach + |b|, in exact integers, refused beyond ``LIMIT``."""
    estimate = float(
        (np.abs(weight.astype(np.float64)) @ reach.astype(np.float64) + np.abs(bias.astype(np.float64))).max()
    )
    if estimate < LIMIT / 2:  # far from the limit, so int64 cannot wrap
        return int((np.abs(weight) @ reach + np.abs(bias)).max())
    w, x, b = (array.astype(object) for array in (weight, reach, bias))  # near it: Python's unbounded integers
    bound = int((np.abs(w) @ x + np.abs(b)).max())
    _limit(name, bound, "a partial sum", "narrow the weights, the input or the bias")
    return bound


def _declared(
    name: str, shape: Shape, low: IntArray, high: IntArray, bound: int, type: IntType | None, overflow: Overflow
) -> Value:
    """A value whose interval is cut to a declared type, or typed by its interval when there is none."""
    low, high = np.broadcast_to(low, shape), np.broadcast_to(high, shape)
    if type is None:
        least, most = int(low.min()), int(high.max())
        if least < -(LIMIT >> 1) or (least < 0 and most >= LIMIT >> 1):
            raise NetworkError(
                f"{name}: sums from {least} to {most} need a signed type of 63 bits; the widest has 62. Narrow the "
                "weights, the input or the bias"
            )
        return Value(shape, low, high, IntType.holding(least, most), bound)
    _channels(type, shape, name)
    rank = len(shape)
    floor, ceiling = np.broadcast_to(type.low(rank), shape), np.broadcast_to(type.high(rank), shape)
    if overflow is Overflow.SATURATE:
        return Value(shape, np.clip(low, floor, ceiling), np.clip(high, floor, ceiling), type, bound)
    # An interval that stays inside keeps its ends; one that leaves may come out anywhere in the type.
    inside = (low >= floor) & (high <= ceiling)
    low, high = np.where(inside, low, floor), np.where(inside, high, ceiling)
    # A wrapped value can be larger than what was wrapped: -1 becomes 2^bits - 1.
    return Value(shape, low, high, type, max(bound, -int(low.min()), int(high.max())))


@dataclass(frozen=True, eq=False)
class IntegerNetwork:
    """An immutable integer network: what training lowers to and every back end reads.

    Attributes
    ----------
    inputs, ops, outputs:
        Specifications and operations, in evaluation order.
    metadata:
        Pairs of strings carried along (class names, feature names, the experiment's name); sorted, unique keys.
    """

    inputs: tuple[InputSpec, ...]
    ops: tuple[Op, ...]
    outputs: tuple[OutputSpec, ...]
    metadata: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        for name in ("inputs", "ops", "outputs"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "metadata", tuple(sorted(dict(self.metadata).items())))

    @cached_property
    def values(self) -> Mapping[str, Value]:
        """Every value by name, derived; raises ``NetworkError`` on the first thing that is wrong."""
        if not self.inputs or not self.outputs:
            raise NetworkError(
                f"network with {len(self.inputs)} inputs and {len(self.outputs)} outputs; expected at least one each"
            )
        values: dict[str, Value] = {}
        for spec in self.inputs:
            _define(spec.name, values)
            _channels(spec.type, spec.shape, spec.name)
            rank = len(spec.shape)
            low = np.broadcast_to(spec.type.low(rank), spec.shape)
            high = np.broadcast_to(spec.type.high(rank), spec.shape)
            values[spec.name] = Value(spec.shape, low, high, spec.type, max(-int(low.min()), int(high.max())))
        for op in self.ops:
            if type(op) not in OPS.values():
                raise NetworkError(
                    f"{getattr(op, 'name', op)!r}: {type(op).__name__} is not an op of this IR; it has {', '.join(OPS)}"
                )
            _define(op.name, values)
            for operand in op.inputs:
                if operand not in values:
                    raise NetworkError(
                        f"{op.name}: operand {operand!r} is not defined before it; defined so far: {', '.join(values)}"
                    )
            values[op.name] = op.derive([values[operand] for operand in op.inputs])
        for output in self.outputs:
            if output.name not in values:
                raise NetworkError(f"output {output.name!r} names no value; the network defines {', '.join(values)}")
            for name in ("scale", "zero_point"):
                _broadcast(getattr(output, name), values[output.name].shape, f"output {output.name!r}: {name}")
        return values

    def op(self, name: str) -> Op:
        """The op called ``name``."""
        for op in self.ops:
            if op.name == name:
                return op
        raise KeyError(f"no op {name!r}; the network has {', '.join(op.name for op in self.ops)}")

    def replace_op(self, op: Op) -> IntegerNetwork:
        """The same network with the op of that name replaced."""
        self.op(op.name)
        return dataclasses.replace(self, ops=tuple(op if old.name == op.name else old for old in self.ops))

    @cached_property
    def _encoded(self) -> tuple[str, dict[str, NDArray[Any]]]:
        arrays: dict[str, NDArray[Any]] = {}
        document = {
            "format": "hawq_flow.IntegerNetwork",
            "version": FORMAT_VERSION,
            "inputs": [_encode(spec, f"input.{spec.name}", arrays) for spec in self.inputs],
            "ops": [{"kind": op.kind, **_encode(op, f"op.{op.name}", arrays)} for op in self.ops],
            "outputs": [_encode(spec, f"output.{i}", arrays) for i, spec in enumerate(self.outputs)],
            "metadata": dict(self.metadata),
        }
        return json.dumps(document, indent=1) + "\n", arrays

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) over everything in the network: equal digests, equal networks."""
        text, arrays = self._encoded
        sha = hashlib.sha256(text.encode())
        for name in sorted(arrays):
            array = arrays[name]
            little = array.astype(array.dtype.newbyteorder("<"))
            sha.update(f"{name}:{little.dtype.str}:{array.shape}\n".encode())
            sha.update(little.tobytes())
        return sha.hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IntegerNetwork) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def save(self, folder: Path | str) -> None:
        """Write ``network.json`` and ``network.npz`` into ``folder`` (created); equal networks give equal bytes."""
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        text, arrays = self._encoded
        document = json.loads(text)
        document["digest"] = self.digest
        np.savez(path / "network.npz", allow_pickle=False, **arrays)
        (path / "network.json").write_text(json.dumps(document, indent=1) + "\n")

    @classmethod
    def load(cls, folder: Path | str) -> IntegerNetwork:
        """Read what :meth:`save` wrote.

        ``NetworkError`` when files are missing, of another version, or do not match their digest.
        """
        path = Path(folder)
        for name in ("network.json", "network.npz"):
            if not (path / name).is_file():
                raise NetworkError(
                    f"{path / name}: missing; a saved network is network.json and network.npz side by side"
                )
        try:
            document = json.loads((path / "network.json").read_text())
            with (path / "network.npz").open("rb") as handle, np.load(handle, allow_pickle=False) as stored:
                arrays = {name: stored[name] for name in stored.files}
        except Exception as error:  # zip and NPY readers raise a dozen types on damaged bytes
            raise NetworkError(f"{path}: not readable as a saved network ({error}); save it again") from error
        if not isinstance(document, dict) or document.get("format") != "hawq_flow.IntegerNetwork":
            raise NetworkError(
                f"{path / 'network.json'}: not a saved IntegerNetwork; expected its 'format' field to say so"
            )
        if document.get("version") != FORMAT_VERSION:
            raise NetworkError(
                f"{path / 'network.json'}: version {document.get('version')!r}; "
                f"this hawq_flow reads version {FORMAT_VERSION}"
            )
        try:
            network = cls(
                tuple(_decode(InputSpec, entry, arrays) for entry in document["inputs"]),
                tuple(_decode(OPS[entry.pop("kind")], entry, arrays) for entry in document["ops"]),
                tuple(_decode(OutputSpec, entry, arrays) for entry in document["outputs"]),
                tuple(document["metadata"].items()),
            )
        except (KeyError, TypeError, AttributeError, ValueError, IndexError, OverflowError) as error:
            raise NetworkError(
                f"{path}: a field or an array is missing, unknown or not valid ({error}); save the network again"
            ) from error
        if network.digest != document.get("digest"):
            raise NetworkError(
                f"{path}: content has digest {network.digest[:12]}, the file says {str(document.get('digest'))[:12]}; "
                "the two files do not belong together or were edited"
            )
        return network


def _define(name: str, values: Mapping[str, Value]) -> None:
    if not _NAME.match(name):
        raise NetworkError(
            f"value {name!r}: a name must be letters, digits and underscores (it becomes an identifier in C++ "
            "and Verilog)"
        )
    if name in values:
        raise NetworkError(f"value {name!r} is defined twice; names are unique")


def _encode(item: Any, prefix: str, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """Fields of a spec or an op as JSON; arrays go to ``arrays`` under ``prefix.field``, the name in their place."""
    result: dict[str, Any] = {}
    for spec in dataclasses.fields(item):
        value = getattr(item, spec.name)
        if isinstance(value, np.ndarray):
            key = f"{prefix}.{spec.name}"
            arrays[key] = value
            result[spec.name] = {"array": key}
        elif isinstance(value, IntType):
            result[spec.name] = {"type": value.to_dict()}
        elif isinstance(value, enum.Enum):
            result[spec.name] = value.value
        else:
            result[spec.name] = list(value) if isinstance(value, tuple) else value
    return result


def _decode(cls: Any, entry: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Any:
    fields: dict[str, Any] = {}
    for name, value in entry.items():
        if isinstance(value, dict) and "array" in value:
            value = arrays[value["array"]]
        elif isinstance(value, dict) and "type" in value:
            value = IntType.from_dict(value["type"])
        elif name == "rounding":
            value = Rounding(value)
        elif name == "overflow":
            value = Overflow(value)
        elif isinstance(value, list):
            value = tuple(value)
        fields[name] = value
    return cls(**fields)


def verify(network: IntegerNetwork, *, float32_constants: bool = True) -> Mapping[str, Value]:
    """Prove a network well formed and free of overflow; return every derived value.

    Parameters
    ----------
    float32_constants:
        Also require what ONNX files and hls4ml need: every multiplier has at most 24 bits and every bias at most 24
        significant bits, so that float32 initializers hold them exactly (training guarantees it).

    Raises
    ------
    NetworkError
        Naming the op, what was found, what was expected and the fix.
    """
    values = network.values
    for op in network.ops:
        if not float32_constants:
            break
        for name in ("weight", "bias", "multiplier", "offset"):
            array = getattr(op, name, None)
            if array is None:
                continue
            bits = significant_bits(array)
            if bits.max() > 24:
                index = tuple(int(i) for i in np.unravel_index(int(bits.argmax()), bits.shape))
                raise NetworkError(
                    f"{op.name}: {name}{list(index)} = {array[index]} has {bits.max()} significant bits; a float32 "
                    "initializer holds 24. Round it to 24 significant bits (training does), or pass "
                    "float32_constants=False"
                )
    return values


def forward(op: Op, operands: Sequence[IntArray]) -> IntArray:
    """The meaning of one op in plain int64: operands of shape (n, *shape) -> (n, *shape). Short and slow on purpose.

    ``interpret.run`` computes the same faster, and its tests hold it to this.
    """
    match op:
        case Dense():
            acc = operands[0] @ op.weight.T + op.bias
            return acc if op.accumulator is None else overflow_to(acc, op.accumulator, op.overflow)
        case Requantize():
            return requantize(
                operands[0],
                op.multiplier,
                op.shift,
                op.offset,
                op.rounding,
                op.type,
                op.overflow,
                rank=operands[0].ndim - 1,
            )
        case Reshape():
            return operands[0].reshape((-1, *op.to))
