"""A node of the file, as the rules of reading see it: its name, attributes and inputs, with the errors they share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hawq_flow.from_onnx.building import Builder
from hawq_flow.from_onnx.refusals import Refuse
from hawq_flow.from_onnx.tensors import Const, Known, Left, Tabulated, Tensor


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

    def constant(self, i: int, what: str) -> Const:
        """Input i as a constant."""
        found = self.inputs[i] if i < len(self.inputs) else None
        if not isinstance(found, Const):
            raise Refuse(f"its {what} is computed from the input; expected a constant")
        return found

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
