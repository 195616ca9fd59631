"""The tcl: run by a Tcl interpreter whose vendor commands are recorded, failing ones included; and the test bench."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_vendor import PART, config, project

from hawq_flow import to_hls
from hawq_flow.network import Dense, InputSpec, IntegerNetwork, OutputSpec
from hawq_flow.numeric import IntType
from hawq_flow.synthesis import STEPS, SynthesisConfig, scripts
from hawq_flow.synthesis.project import read

TCLSH = shutil.which("tclsh")
RECORDER = """
set failing [lindex $argv 1]
proc unknown {args} {
    puts "CALL $args"
    if {[lindex $args 0] eq $::failing} { error "it does not like it" }
    return ""
}
rename source tcl_source
proc source {name} { puts "CALL source $name" }
tcl_source [lindex $argv 0]
"""


def calls(folder: Path, text: str, failing: str = "") -> tuple[int, list[str], str]:
    """Exit code, vendor commands in order, and everything printed, of one script."""
    if TCLSH is None:
        pytest.skip("no tclsh here")
    (folder / "recorder.tcl").write_text(RECORDER)
    (folder / "script.tcl").write_text(text)
    command = [TCLSH, "recorder.tcl", "script.tcl", failing]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=20)
    lines = (done.stdout + done.stderr).splitlines()
    return done.returncode, [line[5:] for line in lines if line.startswith("CALL ")], done.stdout


def script(folder: Path, step: str, backend: str = "Vitis", **changes: object) -> str:
    return scripts.script(step, read(project(folder / "project", backend=backend)), config(folder, **changes))


@pytest.mark.parametrize(("backend", "flow"), [("Vitis", " -flow_target vivado"), ("Vivado", "")])
def test_csynth_is_hls4mls_script(tmp_path: Path, backend: str, flow: str) -> None:
    """Every command of hls4ml's build_prj.tcl that changes the result, in its order, with its project.tcl's values."""
    code, found, printed = calls(tmp_path, script(tmp_path, "csynth", backend))
    assert code == 0
    assert found == [
        "open_project -reset network_prj",
        "set_top network",
        "add_files firmware/network.cpp -cflags -std=c++0x",
        "add_files -tb network_test.cpp -cflags -std=c++0x",
        "add_files -tb firmware/weights",
        "add_files -tb tb_data",
        f"open_solution -reset{flow} solution1",
        "config_array_partition -maximum_size 4096",
        "config_compile -name_max_length 80",
        f"set_part {PART}",
        "config_schedule -enable_dsp_full_reg=false",
        "create_clock -period 5.0 -name default",
        "set_clock_uncertainty 27% default",
        "csynth_design",
    ]
    assert printed.splitlines()[-1] == "hawq_flow: csynth done"


def test_what_hls4mls_script_has_and_ours_lacks(tmp_path: Path) -> None:
    """Of the installed hls4ml: a command that a later version adds to its script would be seen here."""
    hls4ml = pytest.importorskip("hls4ml")
    for backend in ("vivado", "vitis"):
        text = (Path(hls4ml.__file__).parent / f"templates/{backend}/build_prj.tcl").read_text()
        body = text[text.index("file mkdir tb_data") :]
        commands = {word for line in body.splitlines() for word in line.split()[:1]}
        known = {"open_project", "set_top", "add_files", "open_solution", "catch", "config_compile", "set_part"}
        known |= {"config_schedule", "create_clock", "set_clock_uncertainty", "csim_design", "csynth_design"}
        known |= {"cosim_design", "export_design"}
        tcl = {
            "file",
            "set",
            "if",
            "}",
            "puts",
            "report_time",
            "#",
            "remove_recursive_log_wave",
            "cd",
            "source",
            "exec",
        }
        tcl |= {"exit", "add_vcd_instructions_tcl"}
        assert commands - known - tcl == set()


def test_cosim_and_export_synthesize_where_it_was_not(tmp_path: Path) -> None:
    for step, last in (("cosim", "cosim_design -rtl verilog -trace_level none"), ("export", "export_design")):
        code, found, _ = calls(tmp_path, script(tmp_path, step))
        assert (code, found[0], "csynth_design" in found) == (0, "open_project network_prj", True)
        assert found[-1].startswith(last)
    (tmp_path / "network_prj/solution1/syn/verilog").mkdir(parents=True)
    _, found, _ = calls(tmp_path, script(tmp_path, "cosim"))
    assert "csynth_design" not in found
    assert found[-2] == "add_files -tb network_test.cpp -cflags {-std=c++0x -DRTL_SIM}"


def test_vivado(tmp_path: Path) -> None:
    (tmp_path / "verilog").mkdir()
    (tmp_path / "verilog/network_ip.tcl").write_text("")
    code, found, _ = calls(tmp_path, script(tmp_path, "synthesis", power=True, threads=4, flatten="none"))
    assert code == 0
    assert found[:7] == [
        "set_param general.maxThreads 4",
        f"create_project -in_memory -part {PART}",
        "add_files verilog",
        "source verilog/network_ip.tcl",
        "read_xdc -unmanaged -mode out_of_context clock.tcl",
        f"synth_design -top network -part {PART} -mode out_of_context -flatten_hierarchy none",
        "opt_design -retarget -propconst -sweep -bram_power_opt -shift_register_opt",
    ]
    assert [line.split()[0] for line in found[7:]] == [
        "report_utilization",
        "report_utilization",
        "report_timing_summary",
        "report_power",
        "write_checkpoint",
    ]
    # The constraints: a clock on the port, or beside a design that has none.
    ports = "proc get_ports {args} { return ap_clk }\n"
    constraints = (tmp_path / "clock.tcl").read_text()
    assert calls(tmp_path, ports + constraints)[1] == ["create_clock -name ap_clk -period 5.0 ap_clk"]
    assert calls(tmp_path, constraints)[1][1] == "create_clock -name ap_clk -period 5.0"
    code, found, _ = calls(tmp_path, script(tmp_path, "implementation"))
    assert [line.split()[0] for line in found[:5]] == [
        "open_checkpoint",
        "opt_design",
        "place_design",
        "phys_opt_design",
        "route_design",
    ]
    assert not any("power" in line for line in found)


@pytest.mark.parametrize("step", STEPS)
def test_a_failing_command_ends_with_exit_code_1(tmp_path: Path, step: str) -> None:
    failing = {
        "csynth": "csynth_design",
        "cosim": "cosim_design",
        "export": "export_design",
        "synthesis": "synth_design",
    }
    code, _, printed = calls(tmp_path, script(tmp_path, step), failing.get(step, "route_design"))
    assert (code, f"ERROR: hawq_flow: {step}: it does not like it" in printed) == (1, True)
    assert scripts.done(step) not in printed


@pytest.mark.parametrize("command", ["config_array_partition", "config_schedule"])
def test_commands_that_not_every_version_knows(tmp_path: Path, command: str) -> None:
    code, found, printed = calls(tmp_path, script(tmp_path, "csynth"), command)
    assert (code, found[-1]) == (0, "csynth_design")
    assert ("WARNING: hawq_flow: config_schedule" in printed) == (command == "config_schedule")


def test_the_test_bench_keeps_every_digit(tmp_path: Path) -> None:
    """A real project whose integers hls4ml's own test bench would round: inputs above 2^24, outputs above 10^6."""
    weights = np.array([[3, -1], [1, 1], [-7, 2]])
    network = IntegerNetwork(
        (InputSpec("x", (2,), IntType(28, True)),),
        (Dense("fc", "x", weights, np.array([1, 0, -5])),),
        (OutputSpec("fc"),),
    )
    made = read(to_hls.write_project(network, tmp_path / "project", to_hls.HlsConfig()))
    expected = [line.split() for line in (made.folder / "tb_data/tb_output_predictions.dat").read_text().splitlines()]
    assert max(abs(int(v)) for row in expected for v in row) > 1 << 24
    work = tmp_path / "work"
    made.copy(work)
    command = ["g++", *to_hls.texts.cflags("Vitis"), "-O0", "-Ifirmware", "-DRTL_SIM", "network_test.cpp"]
    subprocess.run([*command, "firmware/network.cpp", "-o", "bench"], cwd=work, check=True, timeout=120)
    subprocess.run(["./bench"], cwd=work, check=True, timeout=20, stdout=subprocess.DEVNULL)
    found = [line.split() for line in (work / "tb_data/rtl_cosim_results.log").read_text().splitlines()]
    assert [[float(v) for v in row] for row in found] == [[float(v) for v in row] for row in expected]


def test_settings_that_change_no_result_change_no_script(tmp_path: Path) -> None:
    made = read(project(tmp_path / "project"))
    other = dataclasses.replace(SynthesisConfig(), time_limit_s=1, memory_limit_gb=3, licences=4, keep_work=True)
    for step in STEPS:
        assert scripts.script(step, made, SynthesisConfig()) == scripts.script(step, made, other)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"steps": ("place",)}, r"steps \['place'\]; expected some of csynth, cosim"),
        ({"steps": ("csynth", "csynth")}, "each once"),
        ({"steps": ("synthesis",)}, "'synthesis' starts from 'csynth'; add it"),
        ({"time_limit_s": 0.0}, "expected seconds above 0"),
        ({"memory_limit_gb": -1.0}, "memory_limit_gb -1.0"),
        ({"licences": 0}, "licences 0"),
        ({"threads": 33}, "threads 33; Vivado takes 1 to 32"),
        ({"flatten": "some"}, "flatten 'some'; expected one of rebuilt, full, none"),
    ],
)
def test_settings_are_checked(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        SynthesisConfig(**changes)
