"""A node of the file, as the rules of reading see it: its name, attributes and inputs, with the errors they share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from hawq_flow.from_onnx.building import Builder
from hawq_flow.from_onnx.refusals import Refuse
from hawq_flow.from_onnx.tensors import Const, Known, Left, Tabulated, Tensor

_QONNX = {"Quant": 4, "IntQuant": 4, "BipolarQuant": 2, "Trunc": 5}
"""Inputs of QONNX's operators, at least; their attributes are whole numbers but for the rounding's name."""


def _number(kind: str) -> int:
    """The number of an attribute's type, from the name that schemas give it ("AttrType.INT")."""
    return int(onnx.AttributeProto.AttributeType.Value(kind.rpartition(".")[2]))


def well_formed(proto: onnx.NodeProto, opset: int) -> None:
    """``Refuse`` a node with fewer inputs, or attributes of other types, than its operator's specification has."""
    types: dict[str, int] = dict.fromkeys(("signed", "narrow"), onnx.AttributeProto.INT)
    types["rounding_mode"] = onnx.AttributeProto.STRING
    needed: list[str] = []
    if proto.op_type in _QONNX:
        least = _QONNX[proto.op_type]
    else:
        try:
            schema = onnx.defs.get_schema(proto.op_type, opset, "")
        except onnx.defs.SchemaError:
            return  # unknown, or of another version: its rule says what it needs
        least = schema.min_input
        types = {name: _number(str(attribute.type)) for name, attribute in schema.attributes.items()}
        needed = [name for name, attribute in schema.attributes.items() if attribute.required]
    present = {attribute.name: attribute.type for attribute in proto.attribute}
    for name in needed:
        if name not in present:
            raise Refuse(f"has no attribute {name}, which a {proto.op_type} needs")
    for name, kind in present.items():
        if name in types and kind not in (types[name], onnx.AttributeProto.UNDEFINED):
            found, expected = (onnx.AttributeProto.AttributeType.Name(v) for v in (kind, types[name]))
            raise Refuse(f"has the attribute {name} as {found}; expected {expected}")
    if len(proto.input) < least or not all(proto.input[:least]):
        raise Refuse(f"has {len([n for n in proto.input if n])} inputs; a {proto.op_type} has {least} at least")


@dataclass(frozen=True)
class Node:
    """One node with what is known of its inputs (None: left out).

    ``names`` are the inputs' and ``opset`` is the version of the node's own domain.
    """

    name: str
    op_type: str
    domain: str
    opset: int
    attributes: dict[str, Any]
    inputs: tuple[Known | None, ...]
    names: tuple[str, ...]
    outputs: tuple[str, ...]
    builder: Builder

    def given(self, i: int) -> bool:
        """Whether input i is there."""
        return i < len(self.inputs) and self.inputs[i] is not None

    def constant(self, i: int, what: str, *, finite: bool = True) -> Const:
        """Input i as a constant, of numbers unless ``finite`` is False (the bounds of a clip)."""
        found = self.inputs[i] if i < len(self.inputs) else None
        if found is None:
            raise Refuse(f"its {what} is missing")
        if not isinstance(found, Const):
            raise Refuse(f"its {what} is computed from the input; expected a constant")
        if found.array.dtype.kind not in "iubf":
            raise Refuse(f"its {what} holds {found.array.dtype}; expected numbers")
        if finite and found.array.dtype.kind == "f" and not np.isfinite(found.array).all():
            raise Refuse(f"its {what} holds NaN or infinity; expected numbers")
        if found.array.size == 0 and what not in ("axes", "scales", "shape"):
            raise Refuse(f"its {what} is empty; expected at least one number")
        return found

    def axis(self, axis: int, rank: int) -> int:
        """An axis counted from the front."""
        if not -rank <= axis < rank:
            raise Refuse(f"names axis {axis} of a tensor of {rank} axes; expected {-rank} to {rank - 1}")
        return axis % rank

    def tensor(self, i: int = 0) -> Tensor:
        """Input i as integers with a meaning."""
        found = self.inputs[i] if i < len(self.inputs) else None
        if isinstance(found, Left):
            raise Refuse(f"reads {found.node}, a {found.function}, which integers do not compute inside a network")
        if isinstance(found, Tabulated):
            raise Refuse(f"reads a {found.function} that no quantizer follows; quantize it first")
        if not isinstance(found, Tensor):
            raise Refuse(f"its input {i} is a constant; expected a value of the network")
        return found

    def text(self, name: str, default: str) -> str:
        """A string attribute."""
        value = self.attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else str(value)

    def ints(self, name: str, default: list[int]) -> list[int]:
        """A list of integers as attribute."""
        return [int(v) for v in self.attributes.get(name, default)]
