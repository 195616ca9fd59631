"""The netlist's reader, simulator and figures: on netlists written by hand, and on what Yosys made."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from open_designs import CSD, design, needs_yosys, rows, synthesis, two_layers

from hawq_flow import equality, interpret
from hawq_flow.network import IntegerNetwork, OutputSpec
from hawq_flow.to_rtl.design import Module, Port
from hawq_flow.to_rtl.figures import figures_of
from hawq_flow.to_rtl.generate import generate
from hawq_flow.to_rtl.netlist import Netlist, NetlistError, read_netlist
from hawq_flow.to_rtl.netlist_simulator import simulate_module, simulate_netlist
from hawq_flow.to_rtl.synthesize import RtlSynthesisConfig, synthesize
from hawq_flow.to_rtl.timing import depth

CLK = 2


def lut(name: str, init: str, inputs: list[Any], output: Any) -> dict[str, Any]:
    pins = {f"I{i}": [net] for i, net in enumerate(inputs)}
    return {name: {"type": f"LUT{len(inputs)}", "parameters": {"INIT": init}, "connections": {**pins, "O": [output]}}}


def cell(name: str, type: str, parameters: dict[str, str] | None = None, **pins: list[Any]) -> dict[str, Any]:
    return {name: {"type": type, "parameters": parameters or {}, "connections": pins}}


def netlist(cells: dict[str, Any], x: list[Any], y: list[Any]) -> Netlist:
    ports = {
        "clk": {"direction": "input", "bits": [CLK]},
        "x": {"direction": "input", "bits": x},
        "y": {"direction": "output", "bits": y},
    }
    return read_netlist({"modules": {"m": {"ports": ports, "cells": cells}}}, "m")


def ports(x: int, y: int, latency: int = 0, signed: bool = False) -> Module:
    return Module("m", "", (Port("x", "x", x, signed, 1),), (Port("y", "y", y, signed, 1),), latency, (), "")


def run(found: Netlist, x: int, y: int, latency: int = 0) -> list[int]:
    """All inputs of an x-bit port."""
    every = np.arange(1 << x)[:, None]
    result: list[int] = simulate_module(ports(x, y, latency), found, {"x": every})["y"][:, 0].tolist()
    return result


@pytest.mark.parametrize("inputs", range(1, 7))
def test_a_lut_is_its_table(inputs: int) -> None:
    table = np.random.default_rng(inputs).integers(0, 2, 1 << inputs)
    init = "".join(map(str, table[::-1]))
    found = netlist(lut("l", init, list(range(10, 10 + inputs)), 30), list(range(10, 10 + inputs)), [30])
    assert run(found, inputs, 1) == table.tolist()


def test_tables_that_are_written_down_are_those_tables() -> None:
    for init in range(256):
        bits = f"{init:08b}"
        found = netlist(lut("l", bits, [10, 11, 12], 30), [10, 11, 12], [30])
        assert run(found, 3, 1) == [int(b) for b in bits[::-1]]


@pytest.mark.parametrize(("ci", "cyinit"), [("0", "0"), ("0", "1"), ("1", "0"), (18, 19)])
def test_a_carry_chain_adds(ci: Any, cyinit: Any) -> None:
    a, b = [10, 11, 12, 13], [14, 15, 16, 17]
    cells: dict[str, Any] = {}
    for i in range(4):
        cells |= lut(f"s{i}", "0110", [a[i], b[i]], 20 + i)
    cells |= cell(
        "c", "CARRY4", CI=[ci], CYINIT=[cyinit], S=[20, 21, 22, 23], DI=a, O=[30, 31, 32, 33], CO=[40, 41, 42, 43]
    )
    found = netlist(cells, a + b + [18, 19], [30, 31, 32, 33, 43])
    extra = [int(ci) | int(cyinit)] * 4 if isinstance(ci, str) else [0, 1, 1, 1]
    every = np.arange(1 << 10)
    wanted = (every & 15) + (every >> 4 & 15) + np.array(extra)[every >> 8]
    assert run(found, 10, 5) == wanted.tolist()


def test_wide_multiplexers_inverters_and_buffers() -> None:
    cells = cell("m", "MUXF7", I0=[10], I1=[11], S=[12], O=[20]) | cell("i", "INV", I=[20], O=[21])
    cells |= cell("b", "BUFG", I=[21], O=[22])
    assert run(netlist(cells, [10, 11, 12], [22]), 3, 1) == [1, 0, 1, 0, 1, 1, 0, 0]


@pytest.mark.parametrize(
    ("type", "pin", "parameters", "wanted"),
    [
        ("FDRE", "R", {}, [0, 1, 0, 0]),
        ("FDSE", "S", {}, [0, 1, 1, 1]),
        ("FDRE", "R", {"IS_D_INVERTED": "1"}, [1, 0, 0, 0]),
        ("FDSE", "S", {"IS_S_INVERTED": "1"}, [1, 1, 0, 1]),
    ],
)
def test_registers_with_a_reset(type: str, pin: str, parameters: dict[str, str], wanted: list[int]) -> None:
    cells = cell("f", type, parameters, C=[CLK], CE=["1"], D=[10], Q=[20], **{pin: [11]})
    found = netlist(cells, [10, 11], [20])
    assert found.latency == 1
    assert run(found, 2, 1, latency=1) == wanted
    with pytest.raises(NetlistError, match="1 registers between inputs and outputs of the netlist; the module says a "):
        run(found, 2, 1, latency=2)


REFUSED = [
    (
        cell("f", "FDRE", C=[CLK], CE=[11], D=[10], Q=[20], R=["0"]),
        r"cell f \(FDRE\): pin CE is a signal, expected con",
    ),
    (cell("f", "FDCE", C=[CLK], CE=["1"], D=[10], Q=[20], CLR=[11]), "an asynchronous reset is no function of one clo"),
    (cell("f", "FDRE", {"IS_C_INVERTED": "1"}, C=[CLK], CE=["1"], D=[10], Q=[20], R=["0"]), "expected the rising edge"),
    (cell("s", "SRL16E", D=[10], Q=[20]), r"cell s \(SRL16E\): a primitive that the netlist's reader does not know"),
    (lut("l", "01x0", [10, 11], 20), "parameter INIT is '01x0'; expected a string of the bits 0 and 1"),
    (lut("l", "0110", [10, "x"], 20), r"cell l \(LUT2\) reads an undefined net \(x\)"),
    (lut("l", "0110", [10, 99], 20), r"cell l \(LUT2\) reads a net that nothing drives"),
    (lut("l", "0110", [10, 20], 20), r"cell l \(LUT2\) is in or behind a loop; expected a pipeline"),
    (lut("l", "0110", [10, 11], 20) | lut("k", "1000", [10, 11], 20), "a net is driven twice"),
    (
        cell("f", "FDRE", C=[CLK], CE=["1"], D=[10], Q=[21], R=["0"]) | lut("l", "0110", [21, 11], 20),
        r"cell l \(LUT2\) meets signals behind 0 and 1 registers; expected equal numbers on every path",
    ),
    (
        cell("f", "FDRE", C=[CLK], CE=["1"], D=[10], Q=[20], R=["0"])
        | cell("g", "FDRE", C=[11], CE=["1"], D=[10], Q=[21], R=["0"]),
        "2 clocks; expected one",
    ),
]


@pytest.mark.parametrize(("cells", "said"), REFUSED, ids=[said[:30] for _, said in REFUSED])
def test_what_is_not_a_pipeline_of_known_cells_is_refused(cells: dict[str, Any], said: str) -> None:
    with pytest.raises(NetlistError, match=said):
        _ = netlist(cells, [10, 11], [20]).latency


def test_an_undefined_input_that_a_table_ignores_is_allowed() -> None:
    assert run(netlist(lut("l", "1010", [10, "x"], 20), [10], [20]), 1, 1) == [0, 1]


def test_a_file_that_is_no_netlist_is_refused() -> None:
    with pytest.raises(NetlistError, match=r"netlist of module 'm': not the JSON that Yosys writes"):
        read_netlist(b"{", "m")
    with pytest.raises(NetlistError, match="no module 'm'; the file has a, b"):
        read_netlist({"modules": {"a": {}, "b": {}}}, "m")


def test_ports_and_values_are_checked() -> None:
    found = netlist(lut("l", "0110", [10, 11], 20), [10, 11], [20])
    with pytest.raises(NetlistError, match=r"the netlist has ports \{'x': 2\}, expected \{'x': 3\}"):
        simulate_module(ports(3, 1), found, {"x": [[0]]})
    with pytest.raises(NetlistError, match=r"port x \(x\) row 1 element 0 is 4; expected 0 to 3"):
        simulate_module(ports(2, 1), found, {"x": [[0], [4]]})
    with pytest.raises(NetlistError, match="value 'x' is missing"):
        simulate_netlist([(ports(2, 1), found)], {})
    with pytest.raises(NetlistError, match="module m is 1 of 9 positions"):
        simulate_netlist([(dataclasses.replace(ports(2, 1), unrolled="1 of 9 positions"), found)], {"x": [[0]]})


def adder(share: bool) -> dict[str, Any]:
    """Two bits of a carry chain; with ``share``, a LUT at DI that fits beside the one at S, else one that does not."""
    cells = lut("s0", "0110", [10, 11], 20) | lut("s1", "0" * 31 + "1", [10, 11, 12, 13, 14], 21)
    cells |= lut("d", "0110" if share else "01101001", [10, 11] if share else [10, 11, 15], 22)
    return cells | cell(
        "c", "CARRY4", S=[20, 21, "0", "0"], DI=[10, 22, "0", "0"], O=[30, 31, 32, 33], CO=[40, 41, 42, 43]
    )


@pytest.mark.parametrize(("share", "packed"), [(True, 3), (False, 4)])
def test_packed_sites_are_carry_bits_and_what_fits_beside_them(share: bool, packed: int) -> None:
    """Bits 0, 1 and the carry out as bit 2; the LUT at DI shares the site of bit 1 or takes its own."""
    figures = figures_of(netlist(adder(share), list(range(10, 16)), [30, 31, 32]))
    assert (figures.lut, figures.carry_bits, figures.lut_packed, figures.carry4, figures.carry8) == (3, 3, packed, 1, 1)


def test_an_unused_carry_bit_takes_no_site() -> None:
    assert figures_of(netlist(adder(True), list(range(10, 16)), [30])).carry_bits == 1


def test_depth_counts_cells_between_registers() -> None:
    """Two LUTs and a carry chain before the register, one LUT behind it."""
    cells = lut("a", "0110", [10, 11], 20) | lut("b", "0110", [20, 11], 21)
    cells |= cell("c", "CARRY4", S=[21, 10, "0", "0"], DI=[10, 11, "0", "0"], O=[30, 31, 32, 33], CO=[40, 41, 42, 43])
    cells |= cell("f", "FDRE", C=[CLK], CE=["1"], D=[32], Q=[50], R=["0"]) | lut("z", "10", [50], 51)
    found = depth(netlist(cells, [10, 11], [51]))
    assert (found.levels, found.luts) == (3, 2)
    # Clock to Q, three routed nets into a, b and the chain, two carry bits more, its sum, and the net to the register.
    assert found.ns == pytest.approx(0.30 + 3 * 0.45 + 2 * 0.12 + 0.40 + 0.03 + 0.22 + 0.45 + 0.05)


@needs_yosys
def test_the_netlist_is_the_network() -> None:
    network, x = two_layers(), rows(two_layers(), 3000)
    stages = [(m.module, m.netlist) for m in synthesis().modules]
    found = simulate_netlist(stages, {"x": x})
    expected = interpret.trace(network, x)
    for name, got in found.items():
        assert np.array_equal(got, expected[name]), name
    assert [netlist.latency for _, netlist in stages] == [m.latency for m in design().modules]


@needs_yosys
@pytest.mark.parametrize("ops", [True, False], ids=["beside an op", "no ops"])
def test_an_input_that_is_an_output_passes_by_the_netlist(ops: bool) -> None:
    before = two_layers()
    outputs = (*before.outputs, OutputSpec("x")) if ops else (OutputSpec("x"),)
    network = IntegerNetwork(before.inputs, before.ops if ops else (), outputs)
    for flatten in (False, True):
        made = synthesize(generate(network, CSD), RtlSynthesisConfig(flatten=flatten))
        backend = equality.netlist_backend(network, made)
        certificate = equality.certify(network, rows(network, 100), {"netlist": backend})
        equality.require(certificate)
        assert certificate["backends"]["netlist"]["elements"] >= 600


@needs_yosys
def test_one_flipped_table_bit_is_found() -> None:
    """Faults are planted in the LUTs that drive carry chains; nearly all of them show on a thousand rows."""
    network, x = two_layers(), rows(two_layers(), 1000)
    first = synthesis().modules[0]
    expected = interpret.trace(network, x)["act1"]
    whole = first.netlist
    seen = 0
    tried = np.flatnonzero((whole.kind == 0) & whole.order.live[: len(whole.kind)])[::7]
    for node in tried:
        table = whole.table.copy()
        table[node] ^= np.uint64(1)
        faulty = dataclasses.replace(whole, table=table)
        got = simulate_module(first.module, faulty, {first.module.inputs[0].name: x})
        seen += bool((got[first.module.outputs[0].name] != expected).any())
    assert len(tried) >= 5
    assert seen >= 0.8 * len(tried)
