"""Small reports of each kind, written here in the forms that the tools use, so that tests need no vendor's file.

Figures are made up and all different, so that a figure taken from the wrong place is seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def table(head: Sequence[Sequence[str]], *blocks: Sequence[Sequence[str]], indent: int = 0, aligned: str = "<") -> str:
    """A box table: lines of titles (a title spans columns where the next are None), and blocks of rows with rules."""
    rows = [row for block in (head, *blocks) for row in block]
    columns = max(len(row) for row in rows)
    widths = [max([len(row[i]) for row in rows if row[i] is not None] + [1]) + 2 for i in range(columns)]
    for row in head:  # wide titles over several columns
        for start in range(columns):
            stop = start + 1
            while stop < columns and row[stop] is None:
                stop += 1
            if row[start] is not None and stop > start + 1:
                missing = len(row[start]) + 2 - (sum(widths[start:stop]) + stop - start - 1)
                widths[start] += max(0, missing)
    rule = "+" + "+".join("-" * width for width in widths) + "+"

    def line(row: Sequence[str | None]) -> str:
        text, start = "|", 0
        while start < columns:
            stop = start + 1
            while stop < columns and row[stop] is None:
                stop += 1
            width = sum(widths[start:stop]) + stop - start - 1
            text += f"{row[start] or '':{aligned}{width}}" + "|"
            start = stop
        return text

    lines = [rule, *map(line, head), rule]
    for block in blocks:
        lines += [*map(line, block), rule]
    return "\n".join(" " * indent + text for text in lines) + "\n"


def section(name: str) -> str:
    bar = "=" * 64
    return f"\n\n{bar}\n== {name}\n{bar}\n"


def csynth_rpt(
    top: str = "net",
    *,
    layout: str = "new",
    version: str = "2021.1",
    part: str = "xcu250-figd2104-2L-e",
    used: Mapping[str, str] | None = None,
    instances: Sequence[tuple[str, str]] = (("dense_U0", "dense"), ("relu_U0", "relu")),
    latency: tuple[str, str] = ("7", "9"),
    interval: tuple[str, str] = ("2", "3"),
    slr: bool = True,
    target: str = "5.00",
    estimate: str = "4.321",
) -> str:
    """``NAME_csynth.rpt``; ``layout`` old: until 2019.1, the unit in the headings; new: each cell with its unit."""
    used = used or {"BRAM_18K": "6", "DSP": "31", "FF": "1201", "LUT": "4207", "URAM": "1"}
    old = layout == "old"
    unit = "" if old else " ns"
    tool = "Vivado" if version < "2020.2" else "Vitis"
    text = section(f"{tool} HLS Report for '{top}'")
    text += f"* Date:           Tue Mar  5 14:06:07 2024\n\n* Version:        {version} (Build 1234567 on Thu Jan 04)\n"
    text += "* Project:        net_prj\n* Solution:       solution1\n* Product family: virtexuplus\n"
    text += f"* Target device:  {part}\n"
    text += section("Performance Estimates")
    text += f"+ Timing{' (ns)' if old else ''}: \n    * Summary: \n"
    clock = [["ap_clk", f"{target}{unit}", f"{estimate}{unit}", f"0.62{unit}"]]
    text += table([["Clock", "Target", "Estimated", "Uncertainty"]], clock, indent=4)
    text += f"\n+ Latency{' (clock cycles)' if old else ''}: \n    * Summary: \n"
    low, high = latency
    if old:
        head = [["Latency", None, "Interval", None, "Pipeline"], ["min", "max", "min", "max", "Type"]]
        figures = [low, high, *interval, "none"]
        rows = [[name, module, "3", "4", "1", "2", "none"] for name, module in instances]
    else:
        head = [
            ["Latency (cycles)", None, "Latency (absolute)", None, "Interval", None, "Pipeline"],
            ["min", "max", "min", "max", "min", "max", "Type"],
        ]
        absolute = ["?", "?"] if low == "?" else [f"{5 * int(low)}.000 ns", f"0.0{5 * int(high)} us"]
        figures = [low, high, *absolute, *interval, "none"]
        rows = [[n, m, "3", "4", "15.000 ns", "20.000 ns", "1", "2", "none"] for n, m in instances]
    text += table(head, [figures], indent=4)
    text += "\n    + Detail: \n        * Instance: \n"
    if rows:
        named = [["", "", *head[0]], ["Instance", "Module", *head[1]]]
        text += table(named, rows, indent=8)
    else:
        text += "        N/A\n"
    text += "\n        * Loop: \n        N/A\n"
    names = list(used)
    available = {"BRAM_18K": "5376", "FF": "3456000", "LUT": "1728000", "URAM": "1280"}
    text += section("Utilization Estimates") + "* Summary: \n"
    kinds = ("DSP", "Expression", "FIFO", "Instance", "Memory", "Multiplexer", "Register")
    blocks = [[[kind, *("-" for _ in names)] for kind in kinds], [["Total", *used.values()]]]
    if slr:
        blocks.append([["Available SLR", *(str(int(available.get(n, "12288")) // 4) for n in names)]])
        blocks.append([["Utilization SLR (%)", *("~0" for _ in names)]])
    blocks += [
        [["Available", *(available.get(name, "12288") for name in names)]],
        [["Utilization (%)", *("~0" for _ in names)]],
    ]
    text += table([["Name", *names]], *blocks)
    text += "\n+ Detail: \n    * Instance: \n"
    if instances:
        shares = [[n, m, *(str(int(v) // (k + 2)) for v in used.values())] for k, (n, m) in enumerate(instances)]
        totals = [str(sum(int(row[2 + i]) for row in shares)) for i in range(len(names))]
        text += table([["Instance", "Module", *names]], shares, [["Total", "", *totals]], indent=4)
    else:
        text += "    N/A\n"
    text += "\n    * DSP: \n    N/A\n\n    * Register: \n"
    text += table([["Name", "FF", "LUT"]], [["state", "3", "0"]], [["Total", "3", "0"]], indent=4)
    text += section("Interface") + "* Summary: \n"
    return text + table([["RTL Ports", "Dir", "Bits"]], [["ap_clk", "in", "1"], ["ap_rst", "in", "1"]]) + "\n"


def csynth_summary(
    top: str = "net",
    *,
    version: str = "2021.1",
    latency: str = "9",
    lut: str = "4207 (~0%)",
    date: str = "Tue Mar  5 14:06:09 2024",
) -> str:
    """``csynth.rpt`` of Vitis HLS: the hierarchy of modules and loops."""
    text = section(f"Synthesis Summary Report of '{top}'").lstrip("\n")
    text = "\n\n" + text + "+ General Information: \n"
    text += f"    * Date:           {date}\n"
    text += f"    * Version:        {version} (Build 1234567 on Jun 10 2021)\n    * Project:        net_prj\n"
    text += "    * Solution:       solution1 (Vivado IP Flow Target)\n    * Product family: virtexuplus\n"
    text += "    * Target device:  xcu250-figd2104-2L-e\n    \n\n+ Performance & Resource Estimates: \n    \n"
    text += "    PS: '+' for module; 'o' for loop; '*' for dataflow\n"
    titles = (
        "Modules|Issue||Latency|Latency|Iteration||Trip||||||",
        "& Loops|Type|Slack|(cycles)|(ns)|Latency|Interval|Count|Pipelined|BRAM|DSP|FF|LUT|URAM",
    )
    figures = (
        f"+ {top}*|-|0.05|{latency}|45.000|-|3|-|dataflow|6 (~0%)|31 (~0%)|1201 (~0%)|{lut}|1 (~0%)",
        " + dense|-|0.10|4|2.000e+01|-|2|-|no|3 (~0%)|15 (~0%)|600 (~0%)|2103 (~0%)|-",
        "  o LOOP_1|-|2.00|3|15.000|1|1|3|yes|-|-|-|-|-",
        " + relu|II|0.20|-|-|-|-|-|no|-|-|400 (~0%)|1402 (~0%)|-",
    )
    head = [line.split("|") for line in titles]
    rows = [line.split("|") for line in figures]
    text += table(head, rows, indent=4)
    return text + section("HW Interfaces") + "* Ports\n" + table([["Port", "Mode"]], [["x", "ap_vld"]]) + "\n"


def csynth_xml(
    top: str = "net",
    *,
    version: str = "2021.1",
    lut: str = "4207",
    latency: tuple[str, str] = ("7", "9"),
    interval: tuple[str, str] = ("2", "3"),
    modules: bool = True,
    dsp: str = "DSP",
    part: str = "xcu250-figd2104-2L-e",
) -> str:
    """``csynth.xml``; ``modules``: with ModuleInformation, as Vitis HLS writes it."""

    def performance(low: str, high: str, clock: str, early: str = "35.000 ns", late: str = "0.045 us") -> str:
        return f"""<PerformanceEstimates><PipelineType>none</PipelineType>
<SummaryOfTimingAnalysis>{clock}</SummaryOfTimingAnalysis>
<SummaryOfOverallLatency><unit>clock cycles</unit>
<Best-caseLatency>{low}</Best-caseLatency><Average-caseLatency>8</Average-caseLatency>
<Worst-caseLatency>{high}</Worst-caseLatency>
<Best-caseRealTimeLatency>{early}</Best-caseRealTimeLatency>
<Worst-caseRealTimeLatency>{late}</Worst-caseRealTimeLatency>"""

    text = f"""<profile>
<ReportVersion>
<Version>{version}</Version>
</ReportVersion>
<UserAssignments>
<unit>ns</unit><ProductFamily>virtexuplus</ProductFamily>
<Part>{part}</Part>
<TopModelName>{top}</TopModelName>
<TargetClockPeriod>5.00</TargetClockPeriod>
<ClockUncertainty>0.62</ClockUncertainty>
</UserAssignments>
{performance(*latency, "<unit>ns</unit><EstimatedClockPeriod>4.321</EstimatedClockPeriod>")}
<Interval-min>{interval[0]}</Interval-min><Interval-max>{interval[1]}</Interval-max>
</SummaryOfOverallLatency></PerformanceEstimates>
<AreaEstimates>
<Resources><BRAM_18K>6</BRAM_18K><{dsp}>31</{dsp}><FF>1201</FF><LUT>{lut}</LUT><URAM>1</URAM></Resources>
<AvailableResources><BRAM_18K>5376</BRAM_18K><{dsp}>12288</{dsp}><FF>3456000</FF><LUT>1728000</LUT><URAM>1280</URAM>
</AvailableResources>
</AreaEstimates>
"""
    if modules:
        clock = "<TargetClockPeriod>5.00</TargetClockPeriod><ClockUncertainty>0.62</ClockUncertainty>"
        clock += "<EstimatedClockPeriod>3.210</EstimatedClockPeriod>"
        figures = {"dense": ("15", "600", "2103"), "relu": ("10", "400", "1402"), top: ("31", "1201", lut)}
        text += f"<RTLDesignHierarchy><TopModule><ModuleName>{top}</ModuleName><InstancesList>"
        for name in ("dense", "relu"):
            text += f"<Instance><InstName>{name}_U0</InstName><ModuleName>{name}</ModuleName></Instance>"
        text += "</InstancesList></TopModule></RTLDesignHierarchy>\n<ModuleInformation>\n"
        for name, (blocks, ff, module_lut) in figures.items():
            text += f"<Module><Name>{name}</Name>\n{performance('3', '4', clock, '15.000 ns', '20.000 ns')}"
            text += "<PipelineInitiationInterval>1 ~ 2</PipelineInitiationInterval></SummaryOfOverallLatency>"
            text += f"</PerformanceEstimates><AreaEstimates><Resources><DSP>{blocks}</DSP><AVAIL_DSP>12288</AVAIL_DSP>"
            memory = {"dense": ("3", "0"), "relu": ("2", "0")}.get(name, ("6", "1"))
            text += f"<FF>{ff}</FF><LUT>{module_lut}</LUT><BRAM_18K>{memory[0]}</BRAM_18K><URAM>{memory[1]}</URAM>"
            text += "</Resources></AreaEstimates></Module>\n"
        text += "</ModuleInformation>\n"
    return text + "</profile>\n"


def export_xml(run: str = "impl", timing: str = "", more: str = "") -> str:
    return f"""<profile>
<RunData><RUN_TYPE>{run}</RUN_TYPE><VIVADO_VERSION>v.2021.1</VIVADO_VERSION></RunData>
<TimingReport><TargetClockPeriod>5.000</TargetClockPeriod><AchievedClockPeriod>4.100</AchievedClockPeriod>{timing}</TimingReport>
<AreaReport><Resources><BRAM>6</BRAM><CLB>300</CLB><DSP>30</DSP><FF>1100</FF><LUT>2000</LUT><SRL>5</SRL></Resources>
<AvailableResources><BRAM>5376</BRAM><DSP>12288</DSP><FF>3456000</FF><LUT>1728000</LUT></AvailableResources></AreaReport>
{more}</profile>
"""


def cosim(
    status: str = "Pass", *, newer: bool = False, figures: Sequence[str] = ("8", "9", "10", "2", "3", "4")
) -> str:
    """``NAME_cosim.rpt``, whose head has a line of titles that is half a rule; ``newer``: with execution times."""
    wide, narrow, total = "-" * 47, "-" * 10, "-" * 22
    unit = "(Clock Cycles)" if newer else ""
    more = (lambda text: f"{text}|") if newer else (lambda text: "")
    lines = [
        f"+{narrow}+{narrow}+{wide}+{wide}+" + (f"{total}+" if newer else ""),
        f"|{'':10}|{'':10}|{'Latency' + unit:^47}|{'Interval' + unit:^47}|" + more(" Total Execution Time "),
        f"+   RTL    +  Status  +{wide}+{wide}+" + ("    (Clock Cycles)    +" if newer else ""),
        f"|{'':10}|{'':10}|" + "".join(f"{name:^15}|" for name in ("min", "avg", "max") * 2) + more(" " * 22),
        f"+{narrow}+{narrow}+{wide}+{wide}+" + (f"{total}+" if newer else ""),
    ]
    for language, state, values in (("VHDL", "NA", ["NA"] * 6), ("Verilog", status, figures)):
        lines.append(f"|{language:>10}|{state:>10}|" + "".join(f"{v:>15}|" for v in values) + more(f"{'99':>22}"))
    lines.append(lines[-3])
    date = "Sun May 17 03:38:56 PM CST 2026" if newer else "Wed Feb 21 17:52:05 UTC 2024"
    return (
        f"Report time       : {date}.\nSolution          : solution1.\nSimulation tool   : xsim.\n\n"
        + "\n".join(lines)
        + "\n"
    )


def export_rpt(stage: str = "Synthesis", met: bool = True) -> str:
    lines = [
        "\n\nImplementation tool: Xilinx Vivado v.2021.1\nProject:             net_prj\nSolution:            solution1",
        "Device target:       xcu250-figd2104-2L-e\nReport date:         Tue Mar 05 15:07:09 CET 2024\n",
        f"#=== Post-{stage} Resource usage ===\nSLICE:            0\nLUT:           2009\nFF:            1103",
        "DSP:             30\nBRAM:             6\nSRL:             17\nURAM:             1\n#=== Final timing ===",
        "CP required:    5.000\nCP achieved post-synthesis:    4.002",
    ]
    if stage == "Implementation":
        lines.append("CP achieved post-implementation:    5.037")
    return "\n".join([*lines, "Timing met" if met else "Timing not met"]) + "\n"


def export_results(name: str = "RTL Synthesis", met: bool = True, more: str = "") -> str:
    """``export_syn.rpt``, ``export_impl.rpt`` (Place & Route)."""
    text = section(f"Vivado {name} Results").lstrip("\n") + "+ General Information: \n"
    text += "    * Date:            Tue Mar 05 15:08:10 CET 2024\n"
    text += "    * Version:         2024.1 (Build 1234567 on Mar 01 2024)\n    * Project:         net_prj\n"
    text += "    * Product family:  virtexuplus\n    * Target device:   xcu250-figd2104-2L-e\n"
    text += section(f"{name} Resource Summary")
    text += f"LUT:              2009\nFF:               1103\nDSP:              30\n{more}BRAM:             6\n"
    text += "URAM:             1\nSRL:              17\n" + section(f"{name} Timing Summary")
    text += "* Timing was met\n" if met else "* Timing was not met\n"
    periods = [["Target", "5.000"], ["Post-Synthesis", "4.002"]]
    if name != "RTL Synthesis":
        periods.append(["Post-Route", "5.037"])
    return text + table([["Timing", "Period (ns)"]], periods)


def head(
    command: str,
    *,
    design: str = "net",
    device: str = "xcu250figd2104-2L",
    state: str | None = "Synthesized",
    more: Sequence[str] = (),
    version: str = "2021.1",
) -> str:
    bar = "-" * 90
    lines = [
        f"| Tool Version : Vivado v.{version} (lin64) Build 1234567 Thu Jun 10 19:36:07 MDT 2021",
        "| Date         : Tue Mar  5 15:06:07 2024",
        "| Host         : host running 64-bit Linux",
        f"| Command      : {command}",
        f"| Design       : {design}",
        f"| Device       : {device}",
        *more,
    ]
    if state is not None:
        lines.append(f"| Design State : {state}")
    return "Copyright 1986-2021 Xilinx, Inc. All Rights Reserved.\n" + "\n".join([bar, *lines, bar]) + "\n\n"


def numbered(title: str, sections: Sequence[tuple[str, str]]) -> str:
    text = f"{title}\n\nTable of Contents\n-----------------\n" + "".join(f"{name}\n" for name, _ in sections) + "\n"
    return text + "".join(f"{name}\n{'-' * len(name)}\n\n{body}\n\n" for name, body in sections)


SITES = {
    "7 series": ("Slice LUTs", "Slice Registers", "DSPs", "1. Slice Logic"),
    "UltraScale+": ("CLB LUTs", "CLB Registers", "DSPs", "1. CLB Logic"),
    "Versal": ("CLB LUTs", "Registers", "DSP Slices", "1. Netlist Logic"),
}


def utilization(
    family: str = "UltraScale+",
    *,
    state: str = "Synthesized",
    lut: str = "2009",
    boxes: Sequence[str] = (),
    **head_kinds: str,
) -> str:
    """``report_utilization`` of a family of devices."""
    luts, registers, dsps, logic = SITES[family]
    ultrascale = family == "UltraScale+"
    columns = ["Site Type", "Used", "Fixed", "Prohibited", "Available", "Util%"]

    def rows(*entries: tuple[str, str, str]) -> list[list[str]]:
        return [[name, used, "0", "0", available, "0.1"] for name, used, available in entries]

    slices = rows(
        (luts + ("*" if state == "Synthesized" else ""), lut, "1728000"),
        ("  LUT as Logic", str(int(lut) - 17), "1728000"),
        ("  LUT as Memory", "17", "791040"),
        ("    LUT as Distributed RAM", "0", ""),
        ("    LUT as Shift Register", "17", ""),
        (registers, "1103", "3456000"),
        ("  Register as Flip Flop", "1103", "3456000"),
        ("  Register as Latch", "0", "3456000"),
        *([("CARRY8", "77", "216000")] if ultrascale else []),
    )
    memory = rows(
        ("Block RAM Tile", "3.5", "2688"),
        ("  RAMB36/FIFO*", "2", "2688"),
        ("  RAMB18", "3", "5376"),
        *([("URAM", "1", "1280")] if ultrascale else []),
    )
    primitives = [["FDRE", "1103", "Register"], ["CARRY8" if ultrascale else "CARRY4", "77", "CLB"]]
    if family == "Versal":
        primitives = primitives[:1]
    netlist = table([["Ref Name", "Used"]], *([[[name, "1"] for name in boxes]] if boxes else []))
    sections = [
        (logic, table([columns], slices) + "* Warning! The Final LUT count is typically lower.\n"),
        ("1.1 Summary of Registers by Type", table([["Total", "Clock Enable"]], [["1103", "Yes"]])),
        ("2. BLOCKRAM", table([columns], memory)),
        ("3. ARITHMETIC", table([columns], rows((dsps, "30", "12288"), ("  DSP48E2 only", "30", "")))),
        ("4. Primitives", table([["Ref Name", "Used", "Functional Category"]], primitives)),
        ("5. Black Boxes", netlist),
        ("6. SLR Utilization", table([["Site Type", "SLR0", "SLR1"]], [[luts, "1000", "1009"], [dsps, "0", "0"]])),
    ]
    return head("report_utilization -file a.rpt", state=state, **head_kinds) + numbered(
        "Utilization Design Information", sections
    )


def hierarchy(old: bool = False) -> str:
    columns = ["Total LUTs", "Logic LUTs", "LUTRAMs", "SRLs", "FFs", "RAMB36", "RAMB18", "URAM"]
    columns.append("DSP48 Blocks" if old else "DSP Blocks")
    rows = [
        ["net", "(top)", "2009", "1992", "4", "13", "1103", "2", "3", "1", "30"],
        ["  (net)", "(top)", "9", "9", "0", "0", "3", "0", "0", "0", "0"],
        ["  dense_U0", "dense", "1500", "1483", "4", "13", "900", "2", "2", "1", "20"],
        ["    mul_U1", "mul", "700", "700", "0", "0", "50", "0", "0", "0", "19"],
        ["  relu_U0", "relu", "500", "500", "0", "0", "200", "0", "1", "0", "10"],
    ]
    body = table([["Instance", "Module", *columns]], rows)
    return head("report_utilization -hierarchical", state="Routed") + numbered(
        "Utilization Design Information", [("1. Utilization by Hierarchy", body)]
    )


def timing_summary(
    *,
    nets: str = "routed",
    clocks: Sequence[tuple[str, str]] = (("ap_clk", "5.000"),),
    slacks: Sequence[str] = ("-0.037", "-0.183", "9", "100", "0.025", "0.000", "0", "100", "1.9", "0.0", "0", "80"),
    command: str = "report_timing_summary -file net_timing.rpt",
    state: str | None = None,
) -> str:
    more = ["| Speed File   : -2L  PRODUCTION 1.20 05-21-2018", "| Temperature Grade : E"]
    text = head(command, device="xcu250-figd2104", state=state, more=more) + "Timing Summary Report\n\n"

    def titled(name: str) -> str:
        bar = "-" * 60
        return f"\n{bar}\n| {name}\n| {'-' * len(name)}\n{bar}\n\n"

    titles = [
        *("WNS(ns)", "TNS(ns)", "TNS Failing Endpoints", "TNS Total Endpoints"),
        *("WHS(ns)", "THS(ns)", "THS Failing Endpoints", "THS Total Endpoints"),
        *("WPWS(ns)", "TPWS(ns)", "TPWS Failing Endpoints", "TPWS Total Endpoints"),
    ]
    text += titled("Design Timing Summary") + "    " + "  ".join(titles) + "\n    "
    text += "  ".join("-" * len(title) for title in titles) + "\n    "
    text += "  ".join(f"{value:>{len(title)}}" for value, title in zip(slacks, titles, strict=True)) + "\n\n\n"
    text += "Timing constraints are not met.\n" + titled("Clock Summary")
    if clocks:
        text += "Clock       Waveform(ns)       Period(ns)      Frequency(MHz)\n"
        text += "-----       ------------       ----------      --------------\n"
        text += "".join(f"{name:<10}  {{0.000 2.500}}      {period}           200.000\n" for name, period in clocks)
    text += (
        titled("Intra Clock Table")
        + "Clock             WNS(ns)\n-----             -------\nap_clk             -0.037\n"
    )
    text += titled("Timing Details") + f"        net (fo=1, {nets})           1.193     1.193    a/b\n"
    return text


def timing_path(kind: str = "Setup", slack: str = "1.093", options: str = "", corner: str = "(Max at Slow)") -> str:
    text = head(f"report_timing {options}-file net_timing.rpt", device="xcu250-figd2104-2L-e", state=None)
    return (
        text
        + f"""Timing Report

Slack (MET) :             {slack}ns  (required time - arrival time)
  Source:                 a_reg/C
                            (rising edge-triggered cell FDRE clocked by ap_clk  {{rise@0.000ns period=5.000ns}})
  Path Type:              {kind} {corner}
  Requirement:            5.000ns  (ap_clk rise@5.000ns - ap_clk rise@0.000ns)

                         net (fo=16, unplaced)        0.145     0.222    b
  -------------------------------------------------------------------
                         required time                          4.681
                         arrival time                          -3.588
  -------------------------------------------------------------------
                         slack                                  {slack}


"""
    )


def power(state: str = "routed") -> str:
    rows = [
        ("Total On-Chip Power (W)", "1.707"),
        ("Design Power Budget (W)", "Unspecified*"),
        ("Dynamic (W)", "1.565"),
        ("Device Static (W)", "0.142"),
        ("Confidence Level", "Medium"),
    ]
    lines = [f"| {name:<26}| {value:<14}|" for name, value in rows]
    rule = "+" + "-" * 27 + "+" + "-" * 15 + "+"
    body = "\n".join([rule, *lines, rule]) + "\n"
    parts = table([["On-Chip", "Power (W)", "Used"]], [["Clocks", "0.016", "4"], ["Slice Logic", "<0.001", "7927"]])
    sections = [("1. Summary", body), ("1.1 On-Chip Components", parts), ("2. Settings", parts)]
    more = ["| Grade        : extended"]
    return head("report_power -file net_power.rpt", state=state, more=more) + numbered("Power Report", sections)


def other(command: str, title: str) -> str:
    return head(command, state="Routed") + f"{title}\n\n1. REPORT SUMMARY\n-----------------\nViolations found: 0\n"


ALL = {
    "net_csynth.rpt": csynth_rpt(),
    "old_csynth.rpt": csynth_rpt("old", layout="old", version="2018.2", slr=False),
    "csynth.rpt": csynth_summary(),
    "csynth.xml": csynth_xml(),
    "net_export.xml": export_xml(),
    "net_cosim.rpt": cosim(),
    "new_cosim.rpt": cosim(newer=True),
    "net_export.rpt": export_rpt(),
    "export_syn.rpt": export_results(),
    "export_impl.rpt": export_results("Place & Route"),
    "net_utilization_synth.rpt": utilization(),
    "net_utilization_placed.rpt": utilization("7 series", state="Fully Placed"),
    "hierarchy.rpt": hierarchy(),
    "net_timing_routed.rpt": timing_summary(),
    "net_timing_synth.rpt": timing_path(),
    "net_power_routed.rpt": power(),
}
"""A report of each kind, by the name of its file."""
