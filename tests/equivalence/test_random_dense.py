"""Random dense networks through every representation, compared with ==.

Widths of 2 to 16 bits, signed and unsigned, narrow; multipliers, shifts, zero points per tensor and per channel; ties
on purpose, saturation, all roundings, declared accumulators. QONNX runs by its own executor where float32 is proven
exact, else in double or wider; a sample goes through the C simulations, several networks in one compilation.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import branching_networks, expressible_networks, jets_like, jets_rows, rows_for

from hawq_flow import equality, to_hls, to_qonnx
from hawq_flow.network import IntegerNetwork
from hawq_flow.to_hls import HlsConfig


def assert_all_equal(network: IntegerNetwork, seed: int) -> None:
    model = to_qonnx.export(network)
    x = rows_for(network, seed)
    backends = {
        "reference": equality.reference_backend(network),
        "qonnx": equality.qonnx_backend(network, model),
    }
    equality.require(equality.certify(network, x, backends))
    # The double (or wider) evaluation of the graph also where qonnx itself was exact.
    wide = np.float64 if max(to_qonnx.precision_bits(network).values()) <= 53 else np.longdouble
    values = to_qonnx.evaluate(model, {"x": x}, wide)
    traced = {op.name: values[op.name] for op in network.ops}
    equality.require(equality.certify(network, x, {"double": equality.trace_backend(traced, "double")}))


@settings(max_examples=15)
@given(expressible_networks(), st.integers(0, 2**16))
def test_interpreter_reference_and_qonnx(network: IntegerNetwork, seed: int) -> None:
    assert_all_equal(network, seed)


@pytest.mark.slow
@settings(max_examples=500)
@given(expressible_networks(max_width=12), st.integers(0, 2**16))
def test_interpreter_reference_and_qonnx_at_length(network: IntegerNetwork, seed: int) -> None:
    assert_all_equal(network, seed)


def assert_csim_equal(network: IntegerNetwork, folder: Path, config: HlsConfig) -> None:
    to_hls.write_project(network, folder / "project", config)
    backends = {config.backend: equality.csim_backend(folder / "project", folder / "build")}
    equality.require(equality.certify(network, rows_for(network, rows=100), backends))


@pytest.mark.parametrize("backend", ["Vitis", "Vivado"])
def test_a_sample_in_c_simulation(backend: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    @settings(max_examples=1 if backend == "Vitis" else 2)  # the first example is the simplest there is
    @given(branching_networks())
    def check(network: IntegerNetwork) -> None:
        assert_csim_equal(network, tmp_path_factory.mktemp("csim"), HlsConfig(backend=backend))

    check()


@pytest.mark.slow
@settings(max_examples=24)
@given(
    branching_networks(),
    st.sampled_from(["Vitis", "Vivado"]),
    st.sampled_from(["io_parallel", "io_stream"]),
    st.sampled_from([("Latency", 1), ("Latency", 2), ("Resource", 1), ("Resource", 3)]),
)
def test_many_in_c_simulation(
    tmp_path_factory: pytest.TempPathFactory, network: IntegerNetwork, backend: str, io_type: str, form: tuple[str, int]
) -> None:
    config = HlsConfig(backend=backend, io_type=io_type, strategy=form[0], reuse_factor=form[1])
    assert_csim_equal(network, tmp_path_factory.mktemp("csim"), config)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["Vitis", "Vivado"])
@pytest.mark.parametrize(("weights", "activations"), [((4, 4, 5, 4), (6, 6, 6)), ((8, 8, 8, 8), (8, 8, 8))])
def test_the_jet_taggers_shape_on_20000_rows(
    tmp_path: Path, backend: str, weights: tuple[int, ...], activations: tuple[int, ...]
) -> None:
    network = jets_like(weights, activations)
    to_hls.write_project(network, tmp_path / "project", HlsConfig(backend=backend))
    backends = {
        "qonnx": equality.qonnx_backend(network),
        "csim": equality.csim_backend(tmp_path / "project", tmp_path / "build"),
    }
    equality.require(equality.certify(network, jets_rows(network, 20_000), backends))
