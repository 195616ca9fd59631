"""Random convolutional, residual and concatenating graphs in hls4ml's C simulation, compared with ==.

Several graphs on one input share a compilation. Every value of a graph that nobody reads is an output.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graph_strategies import Grower, graph_rows
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import merge, uniform_types

from hawq_flow import equality, to_hls
from hawq_flow.network import InputSpec, IntegerNetwork, MaxPool, Reshape, SumPool
from hawq_flow.to_hls import HlsConfig


class Branch(Grower):
    """A graph whose names have a prefix, to stand beside others; for ``stream``, with pools that streams take."""

    def __init__(self, draw: Any, spec: InputSpec, prefix: str, stream: bool) -> None:
        super().__init__(draw, spec, hls=True)
        self.prefix, self.stream = prefix, stream

    def name(self, kind: str) -> str:
        return f"{self.prefix}{super().name(kind)}"

    def pool(self, value: str, kind: type[MaxPool | SumPool]) -> str:
        if kind is SumPool or not self.stream:
            return super().pool(value, kind)
        kernel = tuple(self.draw(st.integers(1, min(3, n))) for n in self.shape(value)[1:])
        padding = tuple(self.draw(st.integers(0, k - 1)) for k in kernel * 2)
        return self.add(kind(self.name("maxpool"), value, kernel, kernel, padding))

    def finish(self, value: str) -> IntegerNetwork:
        """End on the map itself, on a dense layer behind it, or on a map that a dense layer grows."""
        ending = self.draw(st.integers(0, 2))
        if value == "x" or ending == 0:
            return self.network([self.requantize(value)])
        flat = self.add(Reshape(self.name("flat"), value, (int(np.prod(self.shape(value))),)))
        out = self.requantize(self.dense(flat))
        if ending == 2:
            place = self.draw(st.integers(0, len(self.spec.shape) - 1))
            shape = tuple(self.shape(out)[0] if i == place else 1 for i in range(len(self.spec.shape)))
            grown = self.add(Reshape(self.name("grown"), out, shape))
            out = self.conv(grown, same=True)
        return self.network([out])


@st.composite
def side_by_side(draw: Any, branches: int, *, stream: bool = False) -> IntegerNetwork:
    """Several graphs that read one input, signal or image."""
    rank = draw(st.integers(1, 2))
    size = st.integers(2, 9) if rank == 1 else st.integers(2, 5)
    spec = InputSpec("x", (draw(st.integers(1, 4)), *(draw(size) for _ in range(rank))), draw(uniform_types(2, 8)))
    networks = []
    for i in range(branches):
        branch = Branch(draw, spec, f"b{i}_", stream)
        value = branch.conv("x")  # one reader of the input each, so that a stream is not copied too often
        value = branch.requantize(value)
        for _ in range(draw(st.integers(0, 2))):
            value = branch.block(value)
        networks.append(branch.finish(value))
    return merge(networks)


def assert_csim_equal(network: IntegerNetwork, folder: Path, config: HlsConfig, seed: int = 0) -> None:
    to_hls.write_project(network, folder / "project", config)
    backends = {config.backend: equality.csim_backend(folder / "project", folder / "build")}
    equality.require(equality.certify(network, graph_rows(network, seed, rows=25), backends))


@pytest.mark.parametrize(
    ("backend", "io_type"),
    [("Vitis", "io_stream"), pytest.param("Vivado", "io_parallel", marks=pytest.mark.slow)],
)
def test_a_sample_of_graphs(backend: str, io_type: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    @settings(max_examples=2)  # the first example is the simplest there is
    @given(side_by_side(3, stream=io_type == "io_stream"))
    def check(network: IntegerNetwork) -> None:
        assert_csim_equal(network, tmp_path_factory.mktemp("csim"), HlsConfig(backend=backend, io_type=io_type))

    check()


@pytest.mark.slow
@pytest.mark.parametrize("io_type", ["io_parallel", "io_stream"])
def test_many_graphs(io_type: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    @settings(max_examples=30)
    @given(
        side_by_side(4, stream=io_type == "io_stream"),
        st.sampled_from(["Vitis", "Vivado"]),
        st.sampled_from([("Latency", 1), ("Latency", 2), ("Resource", 1), ("Resource", 3), ("Resource", 8)]),
    )
    def check(network: IntegerNetwork, backend: str, form: tuple[str, int]) -> None:
        config = HlsConfig(backend=backend, io_type=io_type, strategy=form[0], reuse_factor=form[1])
        assert_csim_equal(network, tmp_path_factory.mktemp("csim"), config)

    check()
