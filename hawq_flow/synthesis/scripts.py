"""Our own tcl for the vendor tools: one script a step, self-contained, with an exit code that means what it says.

hls4ml's ``build_prj.tcl`` drives the HLS tool for its own projects; every command of it that changes the result is kept
(the C++ standard, the largest array that is partitioned, the length of names, DSP registers, clock uncertainty). What
differs: each project starts empty (``-reset``); a failing command ends the tool with exit code 1; Vivado synthesizes
out of context and under the design's clock. The last thing a script prints is :func:`done`: a tool that ends with exit
code 0 and without that line has crashed.
"""

from __future__ import annotations

from hawq_flow.synthesis.config import SynthesisConfig
from hawq_flow.synthesis.project import Project

VERILOG, REPORTS, CHECKPOINT = "verilog", "reports", "design.dcp"
"""Folders and file that a Vivado step reads and writes in the folder where it runs."""
SOLUTION = "solution1"


def done(step: str) -> str:
    """The line that a script prints last."""
    return f"hawq_flow: {step} done"


def script(step: str, project: Project, config: SynthesisConfig) -> str:
    """The tcl of one step; it runs in a folder that holds a copy of the project's files.

    A Vivado step finds there ``verilog/`` (synthesis) or ``design.dcp`` (implementation), and writes ``reports/`` and
    ``design.dcp``.
    """
    lines = {
        "csynth": _csynth,
        "cosim": _cosim,
        "export": _export,
        "synthesis": _synthesis,
        "implementation": _implementation,
    }[step](project, config)
    body = "\n".join(f"    {line}" if line else "" for line in lines)
    return f"""# {step} of {project.top}, network {project.digest}. Written by hawq_flow.
if {{[catch {{
{body}
}} message]}} {{
    puts "ERROR: hawq_flow: {step}: $message"
    exit 1
}}
puts "{done(step)}"
exit 0
"""


def _open(project: Project, *, reset: bool) -> list[str]:
    """Project, sources and settings, as hls4ml's script has them."""
    again = " -reset" if reset else ""
    flow = " -flow_target vivado" if project.backend == "Vitis" else ""
    return [
        f"open_project{again} {project.top}_prj",
        f"set_top {project.top}",
        f'add_files firmware/{project.top}.cpp -cflags "-std=c++0x"',
        f'add_files -tb {project.top}_test.cpp -cflags "-std=c++0x"',
        "add_files -tb firmware/weights",
        "add_files -tb tb_data",
        f'open_solution{again}{flow} "{SOLUTION}"',
        # Neither command is known to every version; hls4ml lets the first fail, and the second is of 2019 and later.
        f"catch {{config_array_partition -maximum_size {project.maximum_size}}}",
        "config_compile -name_max_length 80",
        f"set_part {{{project.part}}}",
        "if {[catch {config_schedule -enable_dsp_full_reg=false} why]} {",
        '    puts "WARNING: hawq_flow: config_schedule -enable_dsp_full_reg=false: $why"',
        "}",
        f"create_clock -period {project.clock_ns} -name default",
        f"set_clock_uncertainty {project.uncertainty} default",
    ]


def _csynth(project: Project, config: SynthesisConfig) -> list[str]:
    return [*_open(project, reset=True), "csynth_design"]


def _synthesized(project: Project) -> list[str]:
    """The synthesized solution: that of an earlier step in the same folder, or made here."""
    return [
        *_open(project, reset=False),
        f"if {{![file isdirectory {project.top}_prj/{SOLUTION}/syn/verilog]}} {{",
        "    csynth_design",
        "}",
    ]


def _cosim(project: Project, config: SynthesisConfig) -> list[str]:
    # The vendor defines no macro for the test bench's run against the RTL; hls4ml's test bench takes RTL_SIM.
    return [
        *_synthesized(project),
        f'add_files -tb {project.top}_test.cpp -cflags "-std=c++0x -DRTL_SIM"',
        "cosim_design -rtl verilog -trace_level none",
    ]


def _export(project: Project, config: SynthesisConfig) -> list[str]:
    return [*_synthesized(project), "export_design -format ip_catalog -version 1.0.0"]


def _threads(config: SynthesisConfig) -> list[str]:
    return [f"set_param general.maxThreads {config.threads}"] if config.threads else []


def _synthesis(project: Project, config: SynthesisConfig) -> list[str]:
    return [
        *_threads(config),
        f"file mkdir {REPORTS}",
        f"create_project -in_memory -part {project.part}",
        f"add_files {VERILOG}",
        f"foreach ip [glob -nocomplain {VERILOG}/*_ip.tcl] {{ source $ip }}",
        # A design without registers has no clock port: then a clock beside it, so that its paths are timed too.
        "set constraints [open clock.tcl w]",
        "puts $constraints {if {[llength [get_ports -quiet ap_clk]]} {",
        f"    create_clock -name ap_clk -period {project.clock_ns} [get_ports ap_clk]",
        "} else {",
        f"    create_clock -name ap_clk -period {project.clock_ns}",
        "    set_input_delay 0 -clock ap_clk [all_inputs]",
        "    set_output_delay 0 -clock ap_clk [all_outputs]",
        "}}",
        "close $constraints",
        "read_xdc -unmanaged -mode out_of_context clock.tcl",
        f"synth_design -top {project.top} -part {project.part} -mode out_of_context "
        f"-flatten_hierarchy {config.flatten}",
        "opt_design -retarget -propconst -sweep -bram_power_opt -shift_register_opt",
        *_reports(project, config, "synth"),
        f"write_checkpoint -force {CHECKPOINT}",
    ]


def _implementation(project: Project, config: SynthesisConfig) -> list[str]:
    return [
        *_threads(config),
        f"file mkdir {REPORTS}",
        f"open_checkpoint {CHECKPOINT}",
        "opt_design",
        "place_design",
        "phys_opt_design",
        "route_design",
        *_reports(project, config, "routed"),
        f"report_route_status -file {REPORTS}/{project.top}_route_status.rpt",
        f"write_checkpoint -force {CHECKPOINT}",
    ]


def _reports(project: Project, config: SynthesisConfig, state: str) -> list[str]:
    start = f"{REPORTS}/{project.top}"
    lines = [
        f"report_utilization -file {start}_utilization_{state}.rpt",
        f"report_utilization -hierarchical -file {start}_utilization_hierarchical_{state}.rpt",
        f"report_timing_summary -file {start}_timing_summary_{state}.rpt",
    ]
    return [*lines, f"report_power -file {start}_power_{state}.rpt"] if config.power else lines
