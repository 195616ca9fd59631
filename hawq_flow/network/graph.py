"""The network itself: its ops in order, every value derived, storage, digest, and the proof that nothing overflows."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hawq_flow.network.meaning import OPS, Op
from hawq_flow.network.specs import InputSpec, OutputSpec
from hawq_flow.network.values import NetworkError, Value, broadcast, channels
from hawq_flow.numeric import IntType, Overflow, Rounding, significant_bits

FORMAT_VERSION = 1
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


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
            channels(spec.type, spec.shape, spec.name)
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
                broadcast(getattr(output, name), values[output.name].shape, f"output {output.name!r}: {name}")
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
        if spec.name == "scales" and value is None:  # younger than the format: networks without it keep their digest
            continue
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
        Also require what ONNX files and hls4ml need: every constant (weights, biases, multipliers, offsets, tables and
        where they start, the value of a pad) has at most 24 significant bits, so that float32 initializers hold it
        exactly (training guarantees it).

    Raises
    ------
    NetworkError
        Naming the op, what was found, what was expected and the fix.
    """
    values = network.values
    for op in network.ops:
        if not float32_constants:
            break
        for name in ("weight", "bias", "multiplier", "offset", "table", "start", "value"):
            constant = getattr(op, name, None)
            if constant is None:
                continue
            array = np.asarray(constant)
            bits = significant_bits(array)
            if bits.max() > 24:
                index = tuple(int(i) for i in np.unravel_index(int(bits.argmax()), bits.shape))
                raise NetworkError(
                    f"{op.name}: {name}{list(index)} = {array[index]} has {bits.max()} significant bits; a float32 "
                    "initializer holds 24. Round it to 24 significant bits (training does), or pass "
                    "float32_constants=False"
                )
    return values
