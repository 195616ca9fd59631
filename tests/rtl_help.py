"""What the tests of to_rtl share: a design run by the package's own reader, by a simulator, and tiny networks."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

from hawq_flow import interpret
from hawq_flow.network import Dense, InputSpec, IntegerNetwork, OutputSpec, Requantize
from hawq_flow.numeric import IntType
from hawq_flow.to_rtl import Module, Rtl, RtlConfig, compile_simulation, find_verilator, generate, reader
from hawq_flow.to_rtl.packing import pack, unpack


def simulator(folder: Path) -> str:
    """A simulator that is here: Icarus, which compiles fast, else Verilator; skips the test if there is none."""
    if shutil.which("iverilog") and shutil.which("vvp"):
        return "icarus"
    return verilator(folder)


def verilator(folder: Path) -> str:
    """Verilator; skips the test if there is none."""
    folder.mkdir(parents=True, exist_ok=True)
    if find_verilator(folder) is None or shutil.which("g++") is None:
        pytest.skip("no Verilog simulator: neither Icarus Verilog nor Verilator (extra 'rtl') with g++")
    return "verilator"


def equal(
    network: IntegerNetwork,
    x: ArrayLike | Mapping[str, ArrayLike],
    folder: Path,
    config: RtlConfig | None = None,
    tool: str = "reader",
) -> Rtl:
    """Generate, run, and compare every output with the interpreter."""
    rtl = generate(network, config)
    got = compile_simulation(rtl, network, folder, tool=tool).run(x)
    expected = interpret.reference(network, x)
    assert set(got) == {output.name for output in network.outputs}
    for name, array in got.items():
        assert array.shape == expected[name].shape
        wrong = np.argwhere(array != expected[name])
        assert not len(wrong), f"{name}{wrong[0]}: {array[tuple(wrong[0])]}, expected {expected[name][tuple(wrong[0])]}"
    return rtl


def run_module(module: Module, values: Mapping[str, NDArray[np.int64]]) -> dict[str, NDArray[np.int64]]:
    """One module by the reader: rows (n, elements) by value, in and out."""
    rows = len(next(iter(values.values())))
    late = {name: np.concatenate([array, np.repeat(array[-1:], module.latency, 0)]) for name, array in values.items()}
    columns = {port.name: reader.Column(port.width, rows=pack([port], late)) for port in module.inputs}
    text = reader.read(module.text)
    found = reader.run({text.name: text}, module.name, columns)
    bits = np.concatenate([found[port.name].matrix() for port in module.outputs], axis=1)
    return unpack(module.outputs, bits[module.latency : module.latency + rows])


def small_network(inputs: int = 3, outputs: int = 2, seed: int = 0) -> IntegerNetwork:
    """A dense layer and its rescale, of a few bits."""
    rng = np.random.default_rng(seed)
    return IntegerNetwork(
        (InputSpec("x", (inputs,), IntType(4, True)),),
        (
            Dense("d", "x", rng.integers(-7, 8, (outputs, inputs)), rng.integers(-20, 20, outputs)),
            Requantize("q", "d", np.array(5), np.array(5), np.array(0), IntType(4, False)),
        ),
        (OutputSpec("q"),),
    )
