"""Random integer networks and inputs for the tests of the core: widths, types and structure drawn by Hypothesis."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from hawq_flow.network import Dense, InputSpec, IntegerNetwork, Op, OutputSpec, Requantize, Reshape
from hawq_flow.numeric import IntType, Overflow, Rounding


@st.composite
def int_types(
    draw: Any, channels: int = 1, low: int = 2, high: int = 16, *, narrow: bool = True, per_channel: bool = True
) -> IntType:
    """A type of ``low`` to ``high`` bits, signed or not, narrow or not, sometimes with one width per channel."""
    width = st.integers(low, high)
    if per_channel and draw(st.booleans()):
        bits: int | tuple[int, ...] = tuple(draw(st.lists(width, min_size=channels, max_size=channels)))
    else:
        bits = draw(width)
    signed = draw(st.booleans())
    return IntType(bits, signed, signed and narrow and draw(st.booleans()))


@st.composite
def networks(draw: Any, max_layers: int = 3, max_width: int = 5, max_bits: int = 16) -> IntegerNetwork:
    """A chain of Dense and Requantize (sometimes behind a Reshape), with every option of both drawn."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    width = st.integers(1, max_width)
    shape = (draw(width), draw(st.integers(1, 3))) if draw(st.booleans()) else (draw(width),)
    spec = InputSpec("x", shape, draw(int_types(shape[0], high=max_bits)))
    ops: list[Op] = []
    value, features = "x", shape[0]
    if len(shape) == 2:
        features = shape[0] * shape[1]
        ops.append(Reshape("flat", value, (features,)))
        value = "flat"
    for i in range(draw(st.integers(1, max_layers))):
        outputs = draw(width)
        reach = 1 << (draw(st.integers(2, max_bits)) - 1)
        weight = rng.integers(-reach, reach, (outputs, features), endpoint=True)
        bias = rng.integers(-(1 << 20), 1 << 20, outputs) >> draw(st.integers(0, 20))
        overflow = draw(st.sampled_from(Overflow))
        accumulator = None
        if draw(st.booleans()):
            accumulator = draw(int_types(outputs, 2, 24, narrow=overflow is Overflow.SATURATE))
        ops.append(Dense(f"d{i}", value, weight, bias, accumulator, overflow))
        overflow = draw(st.sampled_from(Overflow))
        size = outputs if draw(st.booleans()) else ()
        # Powers of two give ties; the rest of the multipliers do not, and a few are negative or zero.
        multiplier = 1 << rng.integers(0, 4, size)
        if draw(st.booleans()):
            multiplier = rng.integers(-3, 1 << draw(st.integers(1, 20)), size)
        ops.append(
            Requantize(
                f"q{i}",
                f"d{i}",
                np.asarray(multiplier),
                rng.integers(0, draw(st.integers(1, 24)), size, endpoint=True),
                rng.integers(-9, 9, outputs if draw(st.booleans()) else ()),
                draw(int_types(outputs, high=max_bits, narrow=overflow is Overflow.SATURATE)),
                draw(st.sampled_from(Rounding)),
                overflow,
            )
        )
        value, features = f"q{i}", outputs
    return IntegerNetwork((spec,), tuple(ops), (OutputSpec(value),))


def extreme_inputs(network: IntegerNetwork, seed: int = 0, rows: int = 24) -> NDArray[np.int64]:
    """Inputs of a network: random ones over the whole type, small ones (ties), and mixtures of the two ends."""
    spec = network.inputs[0]
    rng = np.random.default_rng(seed)
    rank = len(spec.shape)
    low = np.broadcast_to(spec.type.low(rank), spec.shape)
    high = np.broadcast_to(spec.type.high(rank), spec.shape)
    ends = np.where(rng.integers(0, 2, (rows, *spec.shape)) == 1, high, low)
    small = np.clip(rng.integers(-2, 3, (rows, *spec.shape)), low, high)
    return np.concatenate(
        [rng.integers(low, high, (rows, *spec.shape), endpoint=True), ends, small, low[None], high[None]]
    )
