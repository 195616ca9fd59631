"""Random dense networks that QONNX and HLS can express, the nasty ones we thought of ourselves, and their inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from hawq_flow.network import Dense, InputSpec, IntegerNetwork, Op, OutputSpec, Requantize
from hawq_flow.numeric import IntType, Rounding, nearest_dyadic


@st.composite
def uniform_types(draw: Any, low: int = 2, high: int = 16) -> IntType:
    """One width for all channels: what a port and a QONNX Quant can have."""
    signed = draw(st.booleans())
    return IntType(draw(st.integers(low if signed else 1, high)), signed, signed and draw(st.booleans()))


@st.composite
def expressible_networks(
    draw: Any, max_layers: int = 4, max_width: int = 6, spec: InputSpec | None = None, prefix: str = ""
) -> IntegerNetwork:
    """A chain of 1 to ``max_layers`` Dense, most of them followed by a Requantize; 2 to 16 bits throughout.

    The multiplier is drawn near the ratio that fills the output's type, so that results spread over it and some
    saturate; or it is a small power of two over a larger one, so that many results are ties.
    """
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    width = st.integers(1, max_width)
    if spec is None:
        spec = InputSpec("x", (draw(width),), draw(uniform_types()))
    ops: list[Op] = []
    value, features = spec.name, spec.shape[0]
    magnitude = float(max(abs(spec.type.range[0]), spec.type.range[1], 1))
    layers = draw(st.integers(1, max_layers))
    for i in range(layers):
        outputs = draw(width)
        reach = 1 << (draw(st.integers(2, 16)) - 1)
        weight = rng.integers(-reach, reach, (outputs, features))
        if draw(st.integers(0, 4)) == 0:
            weight[rng.integers(outputs)] = 0
        spread = max(1.0, magnitude * reach * features**0.5 / 3)
        bias = rng.integers(-int(spread) - 1, int(spread) + 1, outputs, endpoint=True)
        excess = max(0, int(np.abs(bias).max()).bit_length() - 24)
        bias = (bias >> excess) << excess
        accumulator = None
        if draw(st.integers(0, 5)) == 0:
            accumulator = IntType(draw(st.integers(4, 24)), True, draw(st.booleans()))
        ops.append(Dense(f"{prefix}fc{i}", value, weight, bias, accumulator, layer=f"{prefix}layer{i}"))
        value, features, magnitude = f"{prefix}fc{i}", outputs, spread
        if i == layers - 1 and draw(st.integers(0, 3)) == 0:
            break  # ends on the sums
        out = draw(uniform_types())
        size = outputs if draw(st.booleans()) else ()
        if draw(st.integers(0, 2)) == 0:
            multiplier = np.asarray(1 << rng.integers(0, 3, size))
            shift = np.asarray(rng.integers(0, max(2, int(np.log2(spread)))) + rng.integers(0, 3, size))
        else:
            fill = max(1, out.range[1]) / spread * rng.uniform(0.3, 1.5, size)
            least = int(np.ceil(np.log2(np.max(fill) + 1))) + 1
            multiplier, shift = nearest_dyadic(fill, draw(st.integers(min(max(2, least), 24), 24)))
            if draw(st.integers(0, 5)) == 0:
                multiplier = -multiplier
        offset = rng.integers(-9, 9, outputs if draw(st.booleans()) else ()) if draw(st.booleans()) else np.int64(0)
        rounding = draw(st.sampled_from(Rounding))
        ops.append(
            Requantize(
                f"{prefix}act{i}",
                value,
                multiplier,
                shift,
                np.asarray(offset, dtype=np.int64),
                out,
                rounding,
                layer=f"{prefix}layer{i}",
            )
        )
        value, magnitude = f"{prefix}act{i}", float(max(abs(out.range[0]), out.range[1], 1))
    return IntegerNetwork((spec,), tuple(ops), (OutputSpec(value),))


@st.composite
def branching_networks(draw: Any, branches: int = 6) -> IntegerNetwork:
    """Several chains from one input, an output each: many networks for the price of one compilation."""
    spec = InputSpec("x", (draw(st.integers(1, 6)),), draw(uniform_types()))
    parts = [draw(expressible_networks(max_layers=2, spec=spec, prefix=f"b{i}_")) for i in range(branches)]
    return merge(parts)


def merge(networks: Sequence[IntegerNetwork]) -> IntegerNetwork:
    """Networks with the same input, distinct value names, side by side."""
    return IntegerNetwork(
        networks[0].inputs,
        tuple(op for network in networks for op in network.ops),
        tuple(output for network in networks for output in network.outputs),
    )


def rows_for(network: IntegerNetwork, seed: int = 0, rows: int = 24) -> NDArray[np.int64]:
    """Inputs over the whole type, small ones (ties), mixtures of the two ends, and both ends everywhere."""
    spec = network.inputs[0]
    rng = np.random.default_rng(seed)
    low, high = spec.type.range
    shape = (rows, *spec.shape)
    ends = np.where(rng.integers(0, 2, shape) == 1, high, low)
    small = np.clip(rng.integers(-3, 4, shape), low, high)
    edges = np.stack([np.full(spec.shape, low), np.full(spec.shape, high)])
    return np.concatenate([rng.integers(low, high, shape, endpoint=True), ends, small, edges])


def jets_like(
    weights: Sequence[int] = (4, 4, 5, 4),
    activations: Sequence[int] = (6, 6, 6),
    *,
    sizes: Sequence[int] = (16, 64, 32, 32, 5),
    inputs: IntType | None = None,
    multiplier_bits: int = 16,
    rounding: Rounding = Rounding.HALF_EVEN,
    seed: int = 0,
) -> IntegerNetwork:
    """A random network of the jet tagger's shape, its scales chosen so that every activation uses its range."""
    rng = np.random.default_rng(seed)
    inputs = inputs or IntType(16, True, True)
    ops: list[Op] = []
    value, magnitude = "x", inputs.range[1] * 0.3
    for i, bits in enumerate(weights, start=1):
        features, outputs = sizes[i - 1], sizes[i]
        top = (1 << (bits - 1)) - 1
        spread = magnitude * top * 0.5 * features**0.5
        last = i == len(weights)
        out = IntType(8, True, True) if last else IntType(activations[i - 1], False)
        bias = rng.integers(-int(spread), int(spread) + 1, outputs)
        ops.append(Dense(f"fc{i}", value, rng.integers(-top, top + 1, (outputs, features)), bias, layer=f"fc{i}"))
        ratio = out.range[1] / 2.5 / spread * rng.uniform(0.7, 1.3, () if last else outputs)
        multiplier, shift = nearest_dyadic(ratio, multiplier_bits)
        ops.append(
            Requantize(f"act{i}", f"fc{i}", multiplier, shift, np.int64(0), out, rounding, layer=f"fc{i}")  # type: ignore[arg-type]
        )
        value, magnitude = f"act{i}", out.range[1] * 0.4
    metadata = (("classes", "g,q,W,Z,t"), ("experiment", "random"))
    spec = InputSpec("x", (sizes[0],), inputs, scale=np.float64(2.0**-12))  # type: ignore[arg-type]
    return IntegerNetwork((spec,), tuple(ops), (OutputSpec(value, scale=np.float64(0.125)),), metadata)  # type: ignore[arg-type]


def jets_rows(network: IntegerNetwork, rows: int, seed: int = 1) -> NDArray[np.int64]:
    """Normal data over about a third of the input's range, clipped."""
    spec = network.inputs[0]
    low, high = spec.type.range
    return np.clip(np.random.default_rng(seed).normal(0, high * 0.3, (rows, *spec.shape)), low, high).astype(np.int64)


def _chain(
    name: str,
    weight: Any,
    bias: Any,
    multiplier: Any,
    shift: Any,
    offset: Any,
    out: IntType,
    rounding: Rounding = Rounding.HALF_EVEN,
    accumulator: IntType | None = None,
) -> list[Op]:
    dense = Dense(f"{name}_fc", "x", np.array(weight), np.array(bias), accumulator, layer=name)
    scale = (np.array(multiplier), np.array(shift), np.array(offset))
    return [dense, Requantize(f"{name}_act", f"{name}_fc", *scale, out, rounding, layer=name)]


def nasty_network() -> IntegerNetwork:
    """Everything known to have gone wrong somewhere, side by side on one 4-element input."""
    rng = np.random.default_rng(7)
    u6, s8, n8 = IntType(6, False), IntType(8, True), IntType(8, True, True)
    w = rng.integers(-127, 128, (3, 4))
    w16 = rng.integers(-32768, 32768, (3, 4))
    ops: list[Op] = []
    # a 24-bit multiplier with shift 35, and 16-bit weights: beyond 24 fractional bits, beyond float32
    ops += _chain("wide", w16, [5, -7, 11], [16777215, 8388609, 12345677], [35, 35, 34], 0, s8)
    # biases with 24 significant bits, odd, and scaled up
    ops += _chain("bias24", w, [16777215, -16777213, 16777215 << 4], 3, 24, 0, s8)
    # uniform even power-of-two scale; ties on half of all results
    ops += _chain("ties", w, [0, 1, 2], 1, 1, 0, IntType(16, True))
    ops += _chain("tiesup", w, [0, 1, 2], 1, 1, 0, IntType(16, True), Rounding.HALF_UP)
    ops += _chain("tiesdown", w, [0, 1, 2], 1, 1, 0, IntType(16, True), Rounding.FLOOR)
    ops += _chain("powers", w, [0, 0, 0], [1, 1, 1], [14, 12, 10], 0, u6)
    # rows of zeros, a column of zeros, all zeros
    ops += _chain("zerorow", w * np.array([[1], [0], [1]]), [3, 40, -3], 1, 12, 0, u6)
    ops += _chain("zeros", np.zeros((2, 4), dtype=int), [17, -17], 1, 2, 0, s8)
    ops += _chain("zeroscale", w, [1, 2, 3], [0, 1, 0], [0, 14, 0], 1, s8)
    # one neuron; weights of -2..1, of 0/1, of -1/0
    ops += _chain("one", [[1, -2, 1, 0]], [0], 3, 7, 0, n8)
    ops += _chain("binary", [[1, 0, 1, 0], [0, 1, 1, 1]], [0, 0], 1, 9, 0, u6)
    ops += _chain("minus", [[-1, 0, -1, 0], [0, -1, -1, -1]], [0, 0], 1, 9, 0, s8)
    # zero points: odd and even, per channel, with every rounding
    for rounding in Rounding:
        ops += _chain(f"odd_{rounding.value}", w, [0, 1, 2], 1, 15, 3, IntType(8, False), rounding)
        ops += _chain(f"mixed_{rounding.value}", w, [0, 1, 2], [5, 1, 3], [18, 15, 17], [-128, 127, 4], s8, rounding)
    # factor one: no product, a cast only; with and without zero point; a power of two upwards; a negative factor
    ops += _chain("cast", w, [1, 2, 3], 1, 0, 0, s8)
    ops += _chain("castoff", w, [1, 2, 3], 1, 0, 5, u6)
    ops += _chain("up", [[1, 0, 0, 0]], [0], 4, 0, 0, IntType(12, True))
    ops += _chain("negative", w, [1, 2, 3], -3, 16, 0, s8)
    # a declared accumulator that saturates
    ops += _chain("accumulator", w, [1, 2, 3], 1, 6, 0, s8, accumulator=IntType(12, True, True))
    # a sum that is read twice, and by an output; a requantization of a requantization; of the input; a wide output
    ops.append(Dense("shared", "x", w, np.array([100, 0, -100]), layer="shared"))
    ops.append(Requantize("shared_a", "shared", np.int64(1), np.int64(0), np.int64(0), s8, layer="shared"))  # type: ignore[arg-type]
    ops.append(Requantize("shared_b", "shared", np.int64(5), np.int64(17), np.int64(0), u6, layer="shared"))  # type: ignore[arg-type]
    ops.append(Requantize("again", "shared_b", np.int64(1), np.int64(1), np.int64(0), IntType(3, False)))  # type: ignore[arg-type]
    ops.append(Requantize("same", "shared_b", np.int64(1), np.int64(0), np.int64(0), u6))  # type: ignore[arg-type]
    ops.append(Requantize("direct", "x", np.int64(3), np.int64(9), np.int64(-1), n8))  # type: ignore[arg-type]
    ops.append(Dense("after", "again", rng.integers(-8, 8, (2, 3)), np.array([0, 0])))
    ops.append(Dense("sums", "x", w16, np.array([1, 2, 3])))
    read = {name for op in ops for name in op.inputs}
    outputs = tuple(OutputSpec(op.name) for op in ops if op.name not in read or op.name == "shared")
    return IntegerNetwork((InputSpec("x", (4,), IntType(16, True)),), tuple(ops), outputs)


def parts(network: IntegerNetwork, outputs: int) -> list[IntegerNetwork]:
    """The network cut into networks of at most ``outputs`` outputs, each with the ops that these need."""
    result = []
    for start in range(0, len(network.outputs), outputs):
        kept = network.outputs[start : start + outputs]
        needed = {output.name for output in kept}
        for op in reversed(network.ops):
            if op.name in needed:
                needed.update(op.inputs)
        result.append(
            dataclasses.replace(network, ops=tuple(op for op in network.ops if op.name in needed), outputs=kept)
        )
    return result


def planted(network: IntegerNetwork) -> dict[str, tuple[IntegerNetwork, str]]:
    """The jets-like network with one error of one unit in it, and the value that shows it first."""
    dense, scale = network.op("fc2"), network.op("act2")
    assert isinstance(dense, Dense)
    assert isinstance(scale, Requantize)
    weight = dense.weight.copy()
    weight[3, 5] += 1
    multiplier = np.broadcast_to(scale.multiplier, network.values["act2"].shape).copy()
    multiplier[7] += 1
    return {
        "weight": (network.replace_op(dataclasses.replace(dense, weight=weight)), "fc2"),
        "multiplier": (network.replace_op(dataclasses.replace(scale, multiplier=multiplier)), "act2"),
        "rounding": (network.replace_op(dataclasses.replace(scale, rounding=Rounding.FLOOR)), "act2"),
    }
