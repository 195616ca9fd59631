"""Vendor tools that are shell scripts, and a firmware project small enough for them."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

from hawq_flow.synthesis import Build, SynthesisConfig, build

DIGEST = "ab" * 32
PART = "xcvu9p-flga2104-2L-e"
ROWS = "1 -2\n300000000 4\n"

_XML = """<?xml version="1.0" encoding="UTF-8"?>
<profile>
<section name="General"/>
<ReportVersion><Version>$version</Version></ReportVersion>
<UserAssignments>
  <unit>ns</unit><ProductFamily>virtexuplus</ProductFamily><Part>$part</Part><TopModelName>$top</TopModelName>
  <TargetClockPeriod>$clock</TargetClockPeriod><ClockUncertainty>1.35</ClockUncertainty><FlowTarget>vivado</FlowTarget>
</UserAssignments>
<PerformanceEstimates>
  <SummaryOfTimingAnalysis><unit>ns</unit><EstimatedClockPeriod>3.500</EstimatedClockPeriod></SummaryOfTimingAnalysis>
  <SummaryOfOverallLatency>
    <unit>clock cycles</unit><Best-caseLatency>7</Best-caseLatency><Average-caseLatency>7</Average-caseLatency>
    <Worst-caseLatency>9</Worst-caseLatency>
    <Best-caseRealTimeLatency>35.000 ns</Best-caseRealTimeLatency>
    <Worst-caseRealTimeLatency>45.000 ns</Worst-caseRealTimeLatency>
    <Interval-min>1</Interval-min><Interval-max>1</Interval-max>
  </SummaryOfOverallLatency>
</PerformanceEstimates>
<AreaEstimates>
  <Resources><BRAM_18K>0</BRAM_18K><DSP>$dsp</DSP><FF>220</FF><LUT>$lut</LUT><URAM>0</URAM></Resources>
  <AvailableResources>
    <BRAM_18K>4320</BRAM_18K><DSP>6840</DSP><FF>2364480</FF><LUT>1182240</LUT><URAM>960</URAM>
  </AvailableResources>
</AreaEstimates>
</profile>
"""
_COSIM = """Report time       : $date
Solution          : solution1.
Simulation tool   : xsim.

+----------+----------+-----------------------------------------------+-----------------------------------------------+
|          |          |                    Latency                    |                    Interval                   |
+   RTL    +  Status  +-----------------------------------------------+-----------------------------------------------+
|          |          |      min      |      avg      |      max      |      min      |      avg      |      max      |
+----------+----------+-----------------------------------------------+-----------------------------------------------+
|      VHDL|        NA|             NA|             NA|             NA|             NA|             NA|             NA|
|   Verilog|      Pass|              7|              8|              9|              1|              1|              1|
+----------+----------+-----------------------------------------------+-----------------------------------------------+
"""
_UTILIZATION = """Copyright 1986-2022 Xilinx, Inc. All Rights Reserved.
-------------------------------------------------------------------------------------
| Tool Version : Vivado v.$version (lin64) Build 3671981 Fri Oct 14 04:59:54 MDT 2022
| Date         : $date
| Host         : host running 64-bit Linux
| Command      : report_utilization -file $file
| Design       : $top
| Device       : $part
| Design State : $state
-------------------------------------------------------------------------------------

Utilization Design Information

Table of Contents
-----------------
1. CLB Logic
2. BLOCKRAM
3. ARITHMETIC

1. CLB Logic
------------

+-------------------------+------+-------+------------+-----------+-------+
|        Site Type        | Used | Fixed | Prohibited | Available | Util% |
+-------------------------+------+-------+------------+-----------+-------+
| CLB LUTs                | $lut |     0 |          0 |   1182240 |  0.01 |
|   LUT as Logic          | $lut |     0 |          0 |   1182240 |  0.01 |
|   LUT as Memory         |    0 |     0 |          0 |    591840 |  0.00 |
| CLB Registers           |  150 |     0 |          0 |   2364480 |  0.01 |
+-------------------------+------+-------+------------+-----------+-------+


2. BLOCKRAM
-----------

+----------------+------+-------+------------+-----------+-------+
|    Site Type   | Used | Fixed | Prohibited | Available | Util% |
+----------------+------+-------+------------+-----------+-------+
| Block RAM Tile |    0 |     0 |          0 |      2160 |  0.00 |
|   RAMB36/FIFO* |    0 |     0 |          0 |      2160 |  0.00 |
|   RAMB18       |    0 |     0 |          0 |      4320 |  0.00 |
+----------------+------+-------+------------+-----------+-------+


3. ARITHMETIC
-------------

+-----------+------+-------+------------+-----------+-------+
| Site Type | Used | Fixed | Prohibited | Available | Util% |
+-----------+------+-------+------------+-----------+-------+
| DSPs      | $dsp |     0 |          0 |      6840 |  0.01 |
+-----------+------+-------+------------+-----------+-------+


"""

_TOOL = """#!/bin/sh
# A vendor tool: it knows the project, and what to do about it is told in BODY.
part=@PART@ clock=5.00 top=network dsp=3 lut=400 file=x.rpt version=@VERSION@
now() { LC_ALL=C date "+%a %b %d %H:%M:%S %Y"; }
say() { echo "@BANNER@"; }
case "$1" in -version | --version) say; exit 0 ;; esac
for script; do :; done
step=$(basename "$script" .tcl)
say
csynth() {
    mkdir -p network_prj/solution1/syn/report network_prj/solution1/syn/verilog
    cat >network_prj/solution1/syn/report/network_csynth.xml <<END
@XML@END
    echo "module $top; endmodule" >network_prj/solution1/syn/verilog/network.v
}
rtl() { cat tb_data/tb_output_predictions.dat; }
cosim() {
    date=$(now)
    mkdir -p network_prj/solution1/sim/report
    cat >network_prj/solution1/sim/report/network_cosim.rpt <<END
@COSIM@END
    rtl >tb_data/rtl_cosim_results.log
}
export_() { mkdir -p network_prj/solution1/impl/ip; echo zip >network_prj/solution1/impl/ip/network.zip; }
used() {
    date=${date:-$(now)}
    state=$1
    mkdir -p reports
    cat >reports/network_utilization.rpt <<END
@UTILIZATION@END
    echo dcp >design.dcp
}
work() {
    case $step in
        csynth) csynth ;;
        cosim) cosim ;;
        export) export_ ;;
        synthesis) grep -q network verilog/network.v && used Synthesized ;;
        implementation) grep -q dcp design.dcp && used Routed ;;
    esac
}
finish() { echo "hawq_flow: $step done"; exit 0; }
@BODY@
work
finish
"""
BANNERS = {
    "vivado_hls": "Vivado(TM) HLS - High-Level Synthesis from C, C++ and SystemC v2020.1 (64-bit)",
    "vitis_hls": "****** Vitis HLS - High-Level Synthesis from C, C++ and OpenCL v2022.2 (64-bit)",
    "vitis-run": "****** vitis-run v2024.2 (64-bit)",
    "vivado": "Vivado v2022.2 (64-bit)",
}


def hearing() -> None:
    """For ``preexec_fn``: signals that a job in the background, or one behind nohup, starts with ignored are heard."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def tool(folder: Path, name: str = "vitis_hls", body: str = "", banner: str | None = None) -> Path:
    """Write one tool; ``body`` is sh, run after the banner and before it does its work well."""
    folder.mkdir(parents=True, exist_ok=True)
    text = _TOOL.replace("@PART@", PART).replace("@XML@", _XML).replace("@COSIM@", _COSIM)
    text = text.replace("@UTILIZATION@", _UTILIZATION).replace("@BODY@", body)
    path = folder / name
    said = BANNERS[name] if banner is None else banner
    found = re.search(r"v(\d{4}\.\d)", said)
    path.write_text(text.replace("@BANNER@", said).replace("@VERSION@", found[1] if found else "2022.2"))
    path.chmod(0o755)
    return path


def project(folder: Path, *, digest: str = DIGEST, backend: str = "Vitis", clock: float = 5.0) -> Path:
    """Write a project: what of it is read here, and no more."""
    files = {
        "hawq_flow.json": json.dumps(
            {
                "format": "hawq_flow.hls",
                "digest": digest,
                "top": "network",
                "config": {"part": PART, "backend": backend, "clock_period_ns": clock},
            }
        ),
        "project.tcl": f'set project_name "network"\nset part "{PART}"\nset clock_period {clock}\n'
        "set clock_uncertainty 27%\nset maximum_size 4096\n",
        "network_test.cpp": "std::ofstream fout(RESULTS_LOG);\nstd::vector<float> in;\n"
        "nnet::copy_data<float, x_t, 0, 2>(in, x);\n",
        "firmware/network.cpp": "void network() {}\n",
        "firmware/weights/w2.h": "int w2[1] = {3};\n",
        "tb_data/tb_input_features.dat": "1 2\n3 4\n",
        "tb_data/tb_output_predictions.dat": ROWS,
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def config(tmp: Path, **changes: object) -> SynthesisConfig:
    """Limits for tests; tools in ``tmp/bin``, locks in ``tmp``."""
    names = {name.replace("-", "_"): str(tmp / "bin" / name) for name in BANNERS}
    small = {"time_limit_s": 20.0, "licence_folder": str(tmp / "locks"), "licence_wait_s": 0.05}
    return SynthesisConfig(**{**names, **small, **changes})  # type: ignore[arg-type]


def run(tmp: Path, body: str = "", *, name: str = "vitis_hls", told: list[str] | None = None, **changes: Any) -> Build:
    """Build a project with one fake HLS tool."""
    tool(tmp / "bin", name, body)
    where = project(tmp / "project", backend="Vivado" if name == "vivado_hls" else "Vitis")
    return build(where, config(tmp, **changes), None if told is None else told.append)


def only(result: Build) -> Any:
    (step,) = result.steps
    return step
