"""Costs read from a network: widths by the weights' own values, bit operations by the one formula."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hawq_flow import costs
from hawq_flow.network import Conv, Dense, InputSpec, IntegerNetwork, OutputSpec, Requantize, Reshape
from hawq_flow.numeric import IntType


def network() -> IntegerNetwork:
    """A ternary convolution, a requantization, a binary dense layer."""
    ternary = np.array([[[1, 0, -1]], [[-1, 1, 0]]])
    binary = np.where(np.arange(3 * 8).reshape(3, 8) % 3 == 0, 1, -1)
    return IntegerNetwork(
        (InputSpec("x", (1, 6), IntType(5, True)),),
        (
            Conv("c", "x", ternary, np.zeros(2, np.int64), (1,), (0, 0), layer="conv"),
            Requantize("a", "c", np.int64(1), np.int64(2), np.int64(0), IntType(4, False)),
            Reshape("f", "a", (8,)),
            Dense("d", "f", binary, np.zeros(3, np.int64)),
        ),
        (OutputSpec("d"),),
    )


def test_widths_zeros_and_bit_operations() -> None:
    conv, dense = costs.layers(network())
    assert (conv.shape.name, conv.kind, conv.weight_bits, conv.input_bits) == ("conv", "Conv", 2, 5)
    assert (conv.shape.fan_in, conv.shape.outputs, conv.shape.positions, conv.zero_fraction) == (3, 2, 4, 1 / 3)
    assert (dense.shape.name, dense.weight_bits, dense.input_bits, dense.zero_fraction) == ("d", 1, 4, 0.0)
    assert conv.bops == 4 * 3 * 2 * (5 * 2 + 5 + 2 + math.log2(3))
    assert dense.bops == 8 * 3 * (4 * 1 + 4 + 1 + math.log2(8))
    assert costs.bops([conv, dense]) == conv.bops + dense.bops
    assert costs.weight_bits([conv, dense]) == 6 * 2 + 24
    assert conv.accumulator_bits == network().values["c"].type.max_bits


@pytest.mark.parametrize(
    ("weights", "bits"), [([1, -1], 1), ([1, 1], 1), ([1, 0], 1), ([-1, 0], 1), ([0, 0], 1), ([-2, 1], 2), ([-2, 2], 3)]
)
def test_narrowest_width(weights: list[int], bits: int) -> None:
    assert costs.held_bits(np.array(weights)) == bits


def test_table() -> None:
    table = costs.markdown(costs.layers(network()))
    assert "| conv | Conv | 6 | 2 | 5 | " in table
    assert f"| **all** | | 30 | | | | | {costs.bops(costs.layers(network())):,.0f} |" in table
