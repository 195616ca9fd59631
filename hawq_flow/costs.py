"""What the layers of an integer network are and cost, read from the network itself: for those that came without a plan.

A layer is a ``Dense`` or ``Conv``. Its weights are as wide as the narrowest type that holds them (one bit for weights
that are all -1 or +1), its input as wide as the type of the value it reads; the bit operations follow from
:func:`hawq_flow.plan.layer_bops`, with every weight counted, as in :func:`hawq_flow.plan.bops`. A network trained
under a plan may cost less here than there: weights that do not use their width are counted by what they use.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hawq_flow.network import Conv, Dense, IntegerNetwork
from hawq_flow.numeric import IntArray, IntType
from hawq_flow.plan import LayerShape, layer_bops


@dataclass(frozen=True)
class LayerCost:
    """One layer of an integer network.

    Attributes
    ----------
    shape:
        Its sizes; ``shape.source`` is the value it reads.
    kind:
        'Dense' or 'Conv'.
    weight_bits, input_bits, accumulator_bits:
        Widths in bits: of its weights, of the value it reads (the widest channel's), of its finished sums.
    zero_fraction:
        Fraction of its weights that are zero.
    bops:
        Bit operations of one inference, every weight counted.
    """

    shape: LayerShape
    kind: str
    weight_bits: int
    input_bits: int
    accumulator_bits: int
    zero_fraction: float
    bops: float


def held_bits(weight: IntArray) -> int:
    """Width in bits of the narrowest type that holds the weights; 1 for weights that are all -1 or +1."""
    if np.array_equal(np.abs(weight), np.ones_like(weight)):
        return 1
    return IntType.holding(int(weight.min()), int(weight.max())).max_bits


def layers(network: IntegerNetwork) -> list[LayerCost]:
    """The network's layers in order."""
    values = network.values
    found = []
    for op in network.ops:
        if not isinstance(op, (Dense, Conv)):
            continue
        weight = op.weight
        positions = math.prod(values[op.name].shape[1:]) if isinstance(op, Conv) else 1
        fan_in = math.prod(weight.shape[1:])
        shape = LayerShape(op.layer or op.name, fan_in, weight.shape[0], op.input, positions)
        weight_bits, input_bits = held_bits(weight), values[op.input].type.max_bits
        found.append(
            LayerCost(
                shape,
                op.kind,
                weight_bits,
                input_bits,
                values[op.name].type.max_bits,
                float(np.mean(weight == 0)),
                layer_bops(shape, weight_bits, input_bits),
            )
        )
    return found


def bops(costs: Sequence[LayerCost]) -> float:
    """Bit operations of one inference."""
    return sum(cost.bops for cost in costs)


def weight_bits(costs: Sequence[LayerCost]) -> int:
    """Bits that hold all the weights, biases excluded."""
    return sum(cost.shape.weights * cost.weight_bits for cost in costs)


def markdown(costs: Sequence[LayerCost]) -> str:
    """The layers as a Markdown table with a line of totals."""
    lines = [
        "| layer | kind | weights | weight bits | input bits | accumulator bits | zeros | BOPs |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
        *(
            f"| {c.shape.name} | {c.kind} | {c.shape.weights:,} | {c.weight_bits} | {c.input_bits} | "
            f"{c.accumulator_bits} | {c.zero_fraction:.1%} | {c.bops:,.0f} |"
            for c in costs
        ),
        f"| **all** | | {sum(c.shape.weights for c in costs):,} | | | | | {bops(costs):,.0f} |",
    ]
    return "\n".join(lines) + "\n"
