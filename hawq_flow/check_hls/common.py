"""What the rules share: how a finding is said, and what hls4ml makes of a quantizer's scale."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from hawq_flow.check_hls.findings import Finding
from hawq_flow.check_hls.needs import is_power_of_two
from hawq_flow.check_hls.reading import Node, Reading, levels

REPAIR = "--repair writes the same integers in a form that hls4ml reads"

Rule = Callable[[Reading, Node], Iterator[Finding]]
"""What a rule is: the findings of one node."""

MOVED = ", which the conversion to channels last gives as many dimensions as the tensor"


def finding(node: Node, kind: str, reason: str, fix: str) -> Finding:
    """A finding of a node."""
    return Finding(node.name, node.op_type, kind, reason, fix)


def shown(shape: tuple[int | None, ...]) -> str:
    """A shape for people; ? for what is not known."""
    return "(" + ", ".join("?" if n is None else str(n) for n in shape) + ")"


def typed(reading: Reading, node: Node) -> bool:
    """Whether a Quant becomes a type: one power of two as scale (hls4ml then forgets the zero point)."""
    if node.op_type not in ("Quant", "IntQuant") or len(node.inputs) != 4:
        return False
    scale = reading.constant(node.inputs[1])
    return scale is not None and scale.size > 0 and uniform(scale) and is_power_of_two(float(scale.flat[0]))


def grid(reading: Reading, node: Node) -> tuple[float, float, float] | None:
    """Scale, least and greatest number of a Quant that is a type."""
    scale, bits = reading.constant(node.inputs[1]), reading.constant(node.inputs[3])
    if scale is None or bits is None or not bits.size:
        return None
    low, high = levels(node, float(bits.flat[0]))
    return float(scale.flat[0]), low * float(scale.flat[0]), high * float(scale.flat[0])


def alpha(reading: Reading, tensor: str) -> NDArray[np.float64] | None:
    """The scale that stays as a factor of its own behind a quantizer (hls4ml's ApplyAlpha); None where none stays."""
    node = reading.producer(tensor)
    while node is not None and node.op_type == "Transpose" and reading.constant(tensor) is not None:
        tensor = node.inputs[0]
        node = reading.producer(tensor)
    if node is None or node.op_type not in ("Quant", "BipolarQuant", "IntQuant"):
        return None
    scale = reading.constant(node.inputs[1])
    if scale is None:
        return None
    plain = bool((scale == scale.flat[0]).all()) and is_power_of_two(float(scale.flat[0]))
    return None if plain or (node.op_type == "BipolarQuant" and (scale == 1).all()) else scale


def uniform(array: NDArray[np.float64]) -> bool:
    """Whether all elements are the same number."""
    return bool((array == array.flat[0]).all())


def broadcasts(shape: tuple[int, ...], target: tuple[int | None, ...]) -> bool:
    """Whether numpy broadcasts ``shape`` to ``target``; an unknown dimension fits."""
    if len(shape) > len(target):
        return False
    pairs = zip(shape[::-1], target[::-1], strict=False)
    return all(n == 1 or m is None or n == m for n, m in pairs)
