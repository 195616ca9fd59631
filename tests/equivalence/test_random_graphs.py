"""Random convolutional, residual and concatenating graphs through every representation, compared with ==.

Signals and images of uneven sizes; strides, asymmetric padding, groups, depthwise; branches of unequal scales; pools,
upsampling, padding with a zero point, tables; multipliers per channel, ties on purpose, saturation, all roundings.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from graph_strategies import coverage, expressible_graphs, graph_rows
from hypothesis import given, settings
from hypothesis import strategies as st

from hawq_flow import equality, interpret, to_qonnx
from hawq_flow.network import IntegerNetwork


def assert_all_equal(network: IntegerNetwork, seed: int) -> None:
    model = to_qonnx.export(network)
    x = graph_rows(network, seed)
    backends = {
        "reference": equality.reference_backend(network),
        "qonnx": equality.qonnx_backend(network, model),
    }
    # The double (or wider) evaluation of the graph also where qonnx itself was exact; torch's eager ops likewise.
    bits = max(to_qonnx.precision_bits(network).values())
    values = to_qonnx.evaluate(model, {"x": x}, np.float64 if bits <= 53 else np.longdouble)
    traced = {op.name: values[op.name] for op in network.ops}
    backends["wide"] = equality.trace_backend(traced, "wide")
    if bits <= 53:
        eager = to_qonnx.QonnxModule(network)(torch.from_numpy(x).double())
        named = {op.name: value.numpy() for op, value in zip(network.ops, eager, strict=True)}
        backends["torch"] = equality.trace_backend(named, "eager torch")
    equality.require(equality.certify(network, x, backends))


@settings(max_examples=10)
@given(expressible_graphs(), st.integers(0, 2**16))
def test_interpreter_reference_qonnx_and_torch(network: IntegerNetwork, seed: int) -> None:
    assert_all_equal(network, seed)


@pytest.mark.slow
@settings(max_examples=500)
@given(expressible_graphs(max_blocks=6), st.integers(0, 2**16))
def test_interpreter_reference_qonnx_and_torch_at_length(network: IntegerNetwork, seed: int) -> None:
    assert_all_equal(network, seed)


@pytest.mark.parametrize("hls", [False, True])
def test_the_graphs_cover_what_they_are_drawn_for(hls: bool) -> None:
    """Equality on dull data proves little: ties, both saturations and every op must occur, and both float widths."""
    counts: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    constant = []

    @settings(max_examples=40)
    @given(expressible_graphs(hls=hls))
    def collect(network: IntegerNetwork) -> None:
        x = graph_rows(network)
        counts.update(coverage(network, x))
        kinds.update({op.kind for op in network.ops})
        kinds["float32" if not to_qonnx.float32_exact(network) else "wider"] += 1
        constant.append(np.ptp(interpret.run(network, x)) == 0)

    collect()
    assert min(counts[what] / counts["elements"] for what in ("ties", "low", "high")) > 0.01, counts
    assert (counts["low"] + counts["high"]) / counts["elements"] < 0.5, counts
    expected = {"Conv", "Requantize", "Reshape", "Dense", "Pad", "MaxPool", "SumPool", "Upsample", "Concat", "Add"}
    expected |= {"Lookup", "float32", "wider"} | (set() if hls else {"Subtract", "Multiply", "ReduceMax", "ReduceSum"})
    assert set(kinds) == expected
    assert np.mean(constant) < 0.2
