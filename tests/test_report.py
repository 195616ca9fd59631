"""Reports of every kind in small: figures, tables, values. What is refused: ``test_report_refusals``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
import report_texts as texts
from report_reading import read, refused
from report_texts import written

from hawq_flow import report
from hawq_flow.report import ReportError, Resources, Timing, same_part
from hawq_flow.report.text import box, dashed, load
from hawq_flow.report.values import Part, count, iso_date, nanoseconds, number, slack, whole

# ------------------------------------------------------------------------------------------------------- figures


def test_csynth_new_layout(tmp_path: Path) -> None:
    found = read(tmp_path, "net_csynth.rpt")
    assert (found.stage, found.tool, found.version, found.top) == ("csynth", "Vitis HLS", "2021.1", "net")
    assert (found.part, found.date) == ("xcu250-figd2104-2L-e", "2024-03-05T14:06:07")
    assert found.used == Resources(lut=4207, ff=1201, dsp=31, bram18=6, uram=1)
    assert found.available == Resources(lut=1728000, ff=3456000, dsp=12288, bram18=5376, uram=1280)
    assert found.available_slr == Resources(lut=432000, ff=864000, dsp=3072, bram18=1344, uram=320)
    assert found.timing == Timing(7, 9, 35.0, 45.0, 2, 3, 5.0, 4.321, 0.62)
    assert [(row.module, row.instance, row.used.lut) for row in found.modules] == [
        ("dense", "dense_U0", 2103),
        ("relu", "relu_U0", 1402),
    ]
    assert found.modules[0].timing == Timing(3, 4, 15.0, 20.0, 1, 2)
    assert found.sources == (str(tmp_path / "net_csynth.rpt"),)


def test_csynth_old_layout_has_cycles_alone(tmp_path: Path) -> None:
    found = read(tmp_path, "old_csynth.rpt")
    assert (found.tool, found.version) == ("Vivado HLS", "2018.2")
    assert found.timing == Timing(7, 9, None, None, 2, 3, 5.0, 4.321, 0.62)
    assert found.available_slr == Resources()


@pytest.mark.parametrize("name", ["DSP48E", "DSP48E1", "DSP58", "DSP"])
def test_dsp_under_every_name(tmp_path: Path, name: str) -> None:
    used = {"BRAM_18K": "0", name: "12", "FF": "20", "LUT": "30"}
    found = read(tmp_path, "net_csynth.rpt", texts.csynth_rpt(used=used, instances=()))
    assert found.used == Resources(lut=30, ff=20, dsp=12, bram18=0)
    assert found.available.uram is None  # no such column: not 0
    assert read(tmp_path, "csynth.xml", texts.csynth_xml(dsp=name, modules=False)).used.dsp == 31


def test_columns_are_found_by_title_in_any_order(tmp_path: Path) -> None:
    used = {"URAM": "1", "LUT": "4207", "DSP": "31", "FF": "1201", "BRAM_18K": "6"}
    assert read(tmp_path, "net_csynth.rpt", texts.csynth_rpt(used=used)).used == Resources(
        lut=4207, ff=1201, dsp=31, bram18=6, uram=1
    )


def test_unknown_latency_is_none(tmp_path: Path) -> None:
    found = read(tmp_path, "net_csynth.rpt", texts.csynth_rpt(latency=("?", "?"), interval=("?", "?")))
    assert found.timing == Timing(clock_target_ns=5.0, clock_estimate_ns=4.321, clock_uncertainty_ns=0.62)
    found = read(tmp_path, "csynth.xml", texts.csynth_xml(latency=("undef", "undef"), interval=("undef", "undef")))
    assert found.timing.latency_cycles_min is None
    assert found.timing.interval_cycles_max is None


def test_csynth_summary(tmp_path: Path) -> None:
    found = read(tmp_path, "csynth.rpt")
    assert found.used == Resources(lut=4207, ff=1201, dsp=31, bram18=6, uram=1)
    assert found.timing == Timing(9, 9, 45.0, 45.0, 3, 3)
    assert found.available == Resources()
    assert [(row.module, row.instance) for row in found.modules] == [("dense", "net/dense"), ("relu", "net/relu")]
    assert found.modules[0].used == Resources(lut=2103, ff=600, dsp=15, bram18=3)  # '-' of URAM is absent, not 0
    assert found.modules[0].timing == Timing(4, 4, 20.0, 20.0, 2, 2)
    assert found.modules[1].timing == Timing()
    ranged = read(tmp_path, "csynth.rpt", texts.csynth_summary(latency="7 ~ 9"))
    assert (ranged.timing.latency_cycles_min, ranged.timing.latency_cycles_max) == (7, 9)
    assert (found.one_latency, found.notes) == (
        True,
        ("csynth.rpt prints one latency and one interval: both ends have it",),
    )


def test_csynth_xml(tmp_path: Path) -> None:
    found = read(tmp_path, "csynth.xml")
    assert found.used == Resources(lut=4207, ff=1201, dsp=31, bram18=6, uram=1)
    assert found.timing == Timing(7, 9, 35.0, 45.0, 2, 3, 5.0, 4.321, 0.62)
    assert [(row.module, row.instance, row.used.ff) for row in found.modules] == [
        ("dense", "net/dense_U0", 600),
        ("relu", "net/relu_U0", 400),
    ]
    assert found.modules[0].timing == Timing(3, 4, 15.0, 20.0, 1, 2, 5.0, 3.21, 0.62)
    assert read(tmp_path, "csynth.xml", texts.csynth_xml(version="2019.2", modules=False)).tool == "Vivado HLS"


def test_export_xml(tmp_path: Path) -> None:
    found = read(tmp_path, "net_export.xml")
    assert (found.stage, found.version, found.used.lut, found.used.bram18) == ("implementation", "2021.1", 2000, 6)
    assert (found.timing.clock_target_ns, found.timing.clock_estimate_ns) == (5.0, 4.1)
    assert read(tmp_path, "net_export.xml", texts.export_xml("synth")).stage == "synthesis"
    assert "a run of type 'place'" in refused(tmp_path, "net_export.xml", texts.export_xml("place"))
    info = (
        '<GeneralInfo><item NAME="Target device" VALUE="xczu3eg-sbva484-1-e"/>'
        '<item NAME="Report date" VALUE="Tue Jan 20 23:44:15 EST 2026"/></GeneralInfo>'
    )
    slacks = "<TIMING_MET>FALSE</TIMING_MET><WNS_FINAL>-2.845</WNS_FINAL><TNS_FINAL>-9.5</TNS_FINAL>"
    found = read(tmp_path, "export_impl.xml", texts.export_xml("impl", slacks, info))
    assert (found.part, found.date, found.notes) == ("xczu3eg-sbva484-1-e", "2026-01-20T23:44:15", ("timing not met",))
    assert (found.timing.wns_ns, found.timing.tns_ns) == (-2.845, -9.5)
    odd = refused(tmp_path, "export_impl.xml", texts.export_xml(timing="<TIMING_MET>MAYBE</TIMING_MET>"))
    assert "found TIMING_MET 'MAYBE'; expected TRUE or FALSE" in odd


@pytest.mark.parametrize("newer", [False, True])
def test_cosim(tmp_path: Path, newer: bool) -> None:
    found = read(tmp_path, "net_cosim.rpt", texts.cosim(newer=newer))
    assert (found.stage, found.tool) == ("cosim", "xsim")
    assert found.timing == Timing(8, 10, None, None, 2, 4)
    assert found.date == ("2026-05-17T15:38:56" if newer else "2024-02-21T17:52:05")
    once = read(tmp_path, "net_cosim.rpt", texts.cosim(newer=newer, figures=("9", "9", "9", "NA", "NA", "NA")))
    assert once.timing == Timing(9, 9)


def test_a_failed_or_missing_simulation_has_no_figures(tmp_path: Path) -> None:
    assert "a failed simulation has no figures" in refused(tmp_path, "net_cosim.rpt", texts.cosim("Fail"))
    assert "nothing was simulated" in refused(tmp_path, "net_cosim.rpt", texts.cosim("NA"))


def test_export(tmp_path: Path) -> None:
    found = read(tmp_path, "net_export.rpt")
    assert (found.stage, found.part, found.date) == ("synthesis", "xcu250-figd2104-2L-e", "2024-03-05T15:07:09")
    assert found.used == Resources(lut=2009, ff=1103, dsp=30, bram18=6, uram=1)
    assert (found.timing.clock_target_ns, found.timing.clock_estimate_ns) == (5.0, 4.002)
    placed = read(tmp_path, "net_export.rpt", texts.export_rpt("Implementation", met=False))
    assert (placed.stage, placed.timing.clock_estimate_ns) == ("implementation", 5.037)
    assert placed.notes == ("timing not met",)


def test_export_results(tmp_path: Path) -> None:
    found = read(tmp_path, "export_syn.rpt")
    assert (found.stage, found.tool, found.version, found.notes) == (
        "synthesis",
        "Vivado",
        None,
        ("run by HLS 2024.1",),
    )
    assert (found.part, found.date) == ("xcu250-figd2104-2L-e", "2024-03-05T15:08:10")
    assert found.used == Resources(lut=2009, ff=1103, dsp=30, bram18=6, uram=1)
    assert (found.timing.clock_target_ns, found.timing.clock_estimate_ns) == (5.0, 4.002)
    placed = read(tmp_path, "export_impl.rpt", texts.export_results("Place & Route", met=False))
    assert (placed.stage, placed.timing.clock_estimate_ns) == ("implementation", 5.037)
    assert placed.notes == ("run by HLS 2024.1", "timing not met")
    twice = refused(tmp_path, "export_syn.rpt", texts.export_results(more="LUT:     2010\n"))
    assert "a second 'LUT'" in twice


@pytest.mark.parametrize("family", list(texts.SITES))
def test_utilization_of_families(tmp_path: Path, family: str) -> None:
    found = read(tmp_path, "net_utilization_synth.rpt", texts.utilization(family))
    assert (found.used.lut, found.used.lut_logic, found.used.lut_memory, found.used.ff) == (2009, 1992, 17, 1103)
    assert (found.used.dsp, found.used.bram18, found.used.ramb36, found.used.ramb18) == (30, 7, 2, 3)
    assert (found.available.lut, found.available.bram18, found.available.dsp) == (1728000, 5376, 12288)
    assert found.used.uram == (1 if family == "UltraScale+" else None)
    assert found.used.carry == (None if family == "Versal" else 77)
    assert (found.stage, found.top, found.part) == ("synthesis", "net", "xcu250-figd2104-2L")


def test_utilization_states_cells_and_black_boxes(tmp_path: Path) -> None:
    for state, stage in (("Fully Placed", "implementation"), ("Physopt postRoute", "implementation")):
        assert read(tmp_path, "a.rpt", texts.utilization(state=state)).stage == stage
    optimized = read(tmp_path, "a.rpt", texts.utilization(state="Optimized"))
    assert (optimized.stage, optimized.notes) == ("synthesis", ("after opt_design",))
    assert "the design state 'elaborated'" in refused(tmp_path, "a.rpt", texts.utilization(state="Elaborated"))
    boxes = read(tmp_path, "a.rpt", texts.utilization(boxes=("pll", "dma")))
    assert boxes.notes == ("black boxes, not counted: pll, dma",)
    counted = texts.utilization().replace("|CARRY8    |77", "|CARRY8    |79")  # the primitives: the sites count first
    assert counted != texts.utilization()
    assert read(tmp_path, "a.rpt", counted).used.carry == 77


@pytest.mark.parametrize("old", [False, True])
def test_utilization_by_hierarchy(tmp_path: Path, old: bool) -> None:
    found = read(tmp_path, "hierarchy.rpt", texts.hierarchy(old))
    assert found.used == Resources(2009, 1992, 17, 1103, 30, 7, 2, 3, 1)
    assert [(row.module, row.instance, row.used.lut, row.used.dsp) for row in found.modules] == [
        ("dense", "net/dense_U0", 1500, 20),
        ("mul", "net/dense_U0/mul_U1", 700, 19),
        ("relu", "net/relu_U0", 500, 10),
    ]


def test_timing_summary(tmp_path: Path) -> None:
    found = read(tmp_path, "net_timing_routed.rpt")
    assert (found.stage, found.part) == ("implementation", "xcu250-figd2104-2L-e")
    assert found.timing == Timing(clock_target_ns=5.0, wns_ns=-0.037, tns_ns=-0.183, whs_ns=0.025)
    assert read(tmp_path, "a.rpt", texts.timing_summary(nets="unplaced")).stage == "synthesis"
    several = read(tmp_path, "a.rpt", texts.timing_summary(clocks=(("fast", "2.500"), ("slow clock", "5.000"))))
    assert several.timing.clock_target_ns is None
    assert several.notes == ("clocks: fast 2.5 ns, slow clock 5.0 ns", "timing not met")
    assert found.notes == ("timing not met",)
    hold = ("0.037", "0.000", "0", "100", "-0.001", "-0.001", "1", "100", "1.9", "0.0", "0", "80")
    assert read(tmp_path, "a.rpt", texts.timing_summary(slacks=hold)).notes == ("timing not met",)
    met = ("0.037", "0.000", "0", "100", "0.001", "0.000", "0", "100", "1.9", "0.0", "0", "80")
    assert read(tmp_path, "a.rpt", texts.timing_summary(slacks=met)).notes == ()
    odd = refused(tmp_path, "a.rpt", texts.timing_summary(clocks=(("ap_clk", "5.0.0"),)))
    assert "found period '5.0.0'; expected a figure" in odd
    untitled = texts.timing_summary().replace("Clock       Waveform(ns)", "Clock       Period")
    assert "expected a line of titles like" in refused(tmp_path, "a.rpt", untitled)
    row = next(line for line in texts.timing_summary().splitlines() if line.startswith("ap_clk      {"))
    without = texts.timing_summary().replace(row + "\n", "")
    assert "a table without clocks; expected a row for each" in refused(tmp_path, "a.rpt", without)
    free = read(tmp_path, "a.rpt", texts.timing_summary(clocks=(), slacks=("NA",) * 12))
    assert (free.timing, free.notes) == (Timing(), ("no clock is defined",))


def test_the_stage_of_timing_comes_from_the_state_the_nets_or_the_name(tmp_path: Path) -> None:
    blind = texts.timing_summary(nets="odd")
    assert read(tmp_path, "net_timing_synth.rpt", blind).stage == "synthesis"
    assert read(tmp_path, "net_timing_routed.rpt", blind).stage == "implementation"
    named = texts.timing_summary(nets="odd", command="report_timing_summary -file net_timing_routed.rpt")
    assert read(tmp_path, "a.rpt", named).stage == "implementation"
    assert read(tmp_path, "a.rpt", texts.timing_summary(nets="odd", state="Routed")).stage == "implementation"
    assert "nor a file name that tells" in refused(tmp_path, "a.rpt", blind)


def test_timing_path(tmp_path: Path) -> None:
    found = read(tmp_path, "net_timing_synth.rpt")
    assert found.stage == "synthesis"
    assert found.timing == Timing(clock_target_ns=5.0, wns_ns=1.093)
    for options in ("-max_paths 10 ", "-nworst 2 -unique_pins ", "-sort_by group -pb a.pb "):
        two = texts.timing_path(options=options) + texts.timing_path(slack="-0.087").partition("Timing Report\n")[2]
        both = read(tmp_path, "a.rpt", two)
        assert (both.timing.wns_ns, both.notes) == (-0.087, ("timing not met",))
    changed = texts.timing_path().replace("slack                                  1.093", "slack   1.094")
    assert "a slack of 1.094; expected 1.093" in refused(tmp_path, "a.rpt", changed)


@pytest.mark.parametrize(("kind", "field"), [("Hold", "whs_ns"), ("Removal", "whs_ns"), ("Recovery", "wns_ns")])
def test_paths_count_for_the_slack_of_their_type(tmp_path: Path, kind: str, field: str) -> None:
    found = read(
        tmp_path, "a.rpt", texts.timing_path(kind, "0.020", "-delay_type min ", "(Min at Fast Process Corner)")
    )
    assert found.timing == dataclasses.replace(Timing(clock_target_ns=5.0), **{field: 0.020})


def test_paths_without_a_clock_and_of_no_known_type(tmp_path: Path) -> None:
    bare_min = read(tmp_path, "a.rpt", texts.timing_path("Min", "0.020", corner="at Fast Process Corner"))
    assert (bare_min.timing.wns_ns, bare_min.timing.whs_ns) == (None, 0.020)
    bare_max = read(tmp_path, "a.rpt", texts.timing_path("Max", "0.020", corner="at Slow Process Corner"))
    assert (bare_max.timing.wns_ns, bare_max.timing.whs_ns) == (0.020, None)
    odd = refused(tmp_path, "a.rpt", texts.timing_path("Skew"))
    assert "line 16: found 'Path Type:              Skew (Max at Slow)'; expected a type of path, one of Setup" in odd


@pytest.mark.parametrize(
    ("command", "text", "option"),
    [
        ("report_utilization", texts.utilization(), "-cells net/dense_U0"),
        ("report_utilization", texts.utilization(), "-cell [get_cells -hier {a b}]"),
        ("report_utilization", texts.utilization(), "-pblocks [get_pblocks p1]"),
        ("report_utilization", texts.utilization(), "-exclude_child_pblocks"),
        ("report_utilization", texts.hierarchy(), "-cells [get_cells net_i]"),
        ("report_timing_summary", texts.timing_summary(), "-cells [get_cells u0]"),
        ("report_timing", texts.timing_path(), "-from [get_cells a]"),
        ("report_timing", texts.timing_path(), "-rise_through [get_nets n]"),
        ("report_timing", texts.timing_path(), "-group ap_clk"),
        ("report_timing", texts.timing_path(), "-slack_greater_than 0"),
    ],
)
def test_a_report_of_a_part_is_refused(tmp_path: Path, command: str, text: str, option: str) -> None:
    part = text.replace(f"| Command      : {command}", f"| Command      : {command} -quiet {option}")
    assert part != text
    told = f"line 6: found the option {option.split()[0]}, which selects a part; expected a report of the whole design"
    assert told in refused(tmp_path, "a.rpt", part)


def test_a_head_is_whole(tmp_path: Path) -> None:
    for key in ("Date", "Command", "Design", "Device"):
        lines = [line for line in texts.utilization().split("\n") if not line.startswith(f"| {key} ")]
        assert f"expected a line '| {key} : ...' in it" in refused(tmp_path, "a.rpt", "\n".join(lines))


def test_power(tmp_path: Path) -> None:
    found = read(tmp_path, "net_power_routed.rpt")
    assert (found.power_w, found.power_dynamic_w, found.power_static_w) == (1.707, 1.565, 0.142)
    assert (found.stage, found.notes) == ("implementation", ("confidence in the power: medium",))


def test_what_hls4ml_prints_is_two_reports(tmp_path: Path) -> None:
    synthesis = texts.csynth_rpt(version="2019.2").lstrip("\n")
    synthesis = synthesis[: synthesis.index("    * DSP: ")]
    printed = "Found 1 solution(s) in ./net_prj.\nC SIMULATION RESULT:\n0.125 0.5\n\nSYNTHESIS REPORT:\n" + synthesis
    both = report.read_all(written(tmp_path, "net_csynth.rpt", printed + "\nCO-SIMULATION RESULT:\n" + texts.cosim()))
    assert [one.stage for one in both] == ["csynth", "cosim"]
    assert both[0].used.lut == 4207
    assert both[1].timing.latency_cycles_max == 10
    assert report.read(tmp_path / "net_csynth.rpt") == both[0]
    cut = printed[: printed.index("Total", printed.index("relu_U0", printed.index("== Utilization"))) - 5]
    assert "expected a row 'Total' in it" in refused(tmp_path, "net_csynth.rpt", cut)
    empty = refused(tmp_path, "net_csynth.rpt", printed + "\nCO-SIMULATION RESULT:\n\n")
    assert "nothing after CO-SIMULATION RESULT" in empty


# ------------------------------------------------------------------------------------------------------- tables


def test_boxes(tmp_path: Path) -> None:
    lines = "x\n+---+-----+\n| a |  b  |\n|   | c   |\n+---+-----+\n|1||2 |  3  |\n+---+-----+\ny\n"
    text = load(written(tmp_path, "t.txt", lines.replace("|1||2 |", "| 1 |")))
    found = box(text, 0)
    assert found is not None
    assert found.titles == ("a", "b c")
    assert [[cell.strip() for cell in row.cells] for row in found.rows] == [["1", "3"]]
    assert (found.start, found.stop) == (1, 7)
    bar = load(written(tmp_path, "u.txt", "+-----+---+\n| a   | b |\n+-----+---+\n| x|y | 2 |\n+-----+---+\n"))
    assert box(bar, 0).rows[0].cells[0].strip() == "x|y"  # type: ignore[union-attr]
    narrow = load(written(tmp_path, "v.txt", "+---+---+\n| a | b |\n+---+---+\n| 1 | 2 |\n+---+--+\n"))
    with pytest.raises(ReportError, match=r"line 5: found '.*'; expected a rule as wide"):
        box(narrow, 0)
    short = load(written(tmp_path, "w.txt", "+---+---+\n| a | b |\n+---+---+\n| 1 |\n+---+---+\n"))
    with pytest.raises(ReportError, match="line 4: found a row of 1 cells; expected 2"):
        box(short, 0)


def test_dashed(tmp_path: Path) -> None:
    text = load(
        written(tmp_path, "t.txt", "From Clock    WNS(ns)\n----------    -------\na               0.1\nb  0.2\n\nc\n")
    )
    titles, rows = dashed(text, 0, "From Clock")
    assert titles == ["From Clock", "WNS(ns)"]
    assert [line.split() for _, line in rows] == [["a", "0.1"], ["b", "0.2"]]
    with pytest.raises(ReportError, match="dashes under the titles"):
        dashed(text, 0, "b")


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("12", 12),
        (" 6 (9%) ", 6),
        ("175.5", 175.5),
        ("1,303,680", 1303680),
        ("-", None),
        ("?", None),
        ("undef", None),
        ("NA", None),
        ("3 (~0%)", 3),
        ("-0.037", -0.037),
        ("", None),
        ("Unspecified*", None),
    ],
)
def test_numbers(cell: str, value: float | None) -> None:
    assert number(cell) == value
    assert type(number(cell)) is type(value)


def test_numbers_that_are_none() -> None:
    for cell in ("<0.001", "12a", "1 2", "~0", "1,30", "0,549", "1,543", "1,234.5", "1e3", "1.145e+03", "١٢", "１２"):
        with pytest.raises(ValueError, match="no number"):
            number(cell)
    with pytest.raises(ValueError, match="no whole number"):
        whole("1.5")
    for parse in (count, whole):
        with pytest.raises(ValueError, match="is below 0"):
            parse("-5")


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("5.220 us", 5220.0),
        ("0 ns", 0.0),
        ("2.627 ms", 2627000.0),
        ("0.140 sec", 140000000.0),
        ("65.000", 65.0),
        ("?", None),
        ("2.463e+05", 246300.0),
        (" 5.00 ns ", 5.0),
        ("900 ps", 0.9),
    ],
)
def test_durations(cell: str, value: float | None) -> None:
    assert nanoseconds(cell) == value


def test_durations_that_are_none() -> None:
    for cell in ("5 minutes", "5,0 ns", "1.2.3", "1e3", "٣.٥ ns"):
        with pytest.raises(ValueError, match="no duration"):
            nanoseconds(cell)
    with pytest.raises(ValueError, match="is below 0"):
        nanoseconds("-5.00 ns")
    assert slack("-0.087ns") == -0.087


@pytest.mark.parametrize("parse", [number, count, whole, nanoseconds, slack])
@pytest.mark.parametrize("cell", ["1e+999", "1e+999999", "9" * 400, "9" * 400 + ".5"])
def test_figures_that_no_tool_prints(parse: Callable[[str], object], cell: str) -> None:
    with pytest.raises(ValueError, match=r"beyond any that a tool prints|no duration|is no number"):
        parse(cell)


def test_dates() -> None:
    assert iso_date("Sun Mar 31 23:52:47 2019") == "2019-03-31T23:52:47"
    assert iso_date("Wed Feb 24 13:15:48 CST 2021") == "2021-02-24T13:15:48"
    assert iso_date("Sun Dec  4 02:06:30 +03 2022") == "2022-12-04T02:06:30"
    assert iso_date("Sun May 17 12:38:56 AM CST 2026") == "2026-05-17T00:38:56"
    assert iso_date("Thu Apr  1 14:01:14 2021.") == "2021-04-01T14:01:14"
    assert iso_date("Mittwoch 3. März") is None
    assert iso_date("Sun Feb 30 10:00:00 2021") is None


@pytest.mark.parametrize(
    ("spelling", "full"),
    [
        ("xcvu9p-flgb2104-2-i", "xcvu9p-flgb2104-2-i"),
        ("xcvu9pflgb2104-2", "xcvu9p-flgb2104-2"),
        ("7z020clg400-1", "xc7z020-clg400-1"),
        ("XC7Z020CLG400-1", "xc7z020-clg400-1"),
        ("7z020-clg400", "xc7z020-clg400"),
        ("xc7z007sclg225-1", "xc7z007s-clg225-1"),
        ("xcu250figd2104-2L", "xcu250-figd2104-2L"),
        ("xcu250-figd2104-2l-e", "xcu250-figd2104-2L-e"),
        ("xc7a35ticsg324-1L", "xc7a35ti-csg324-1L"),
        ("xc7s50csga324-1", "xc7s50-csga324-1"),
        ("xck26-sfvc784-2LV-c", "xck26-sfvc784-2LV-c"),
        ("xcvc1902-vsva2197-2MP-e-S", "xcvc1902-vsva2197-2MP-e-S"),
        ("xczu3egsbva484-1", "xczu3eg-sbva484-1"),
        ("xa7z020clg400-1I", "xa7z020-clg400-1I"),
        ("xcku115", "xcku115"),
        ("xcvu47p_CIV-fsvh2892-3-e", "xcvu47p_civ-fsvh2892-3-e"),
    ],
)
def test_parts(spelling: str, full: str) -> None:
    assert str(Part.parse(spelling)) == full


@pytest.mark.parametrize(
    ("found", "expected", "same"),
    [
        ("xcvu9pflgb2104-2", "xcvu9p-flgb2104-2-i", True),
        ("7z020clg400-1", "xc7z020clg400-1", True),
        ("xcvu9p-flgb2104", "xcvu9p-flgb2104-2L-e", True),
        ("xcu250-figd2104-2l-e", "xcu250-figd2104-2L-e", True),
        ("xcu250-figd2104-2-e", "xcu250-figd2104-2L-e", False),
        ("xcu250-figd2104-2", "xcu250-figd2104-2L-e", False),
        ("xcvu9p-flgb2104-2-i", "xcvu9p-flgb2104-2-e", False),
        ("xcvu9p-flga2104-2-i", "xcvu9p-flgb2104-2-i", False),
        ("xcu5", "xcu50", False),
        ("Generic", "generic", True),
        ("generic", "xcu50", False),
    ],
)
def test_same_parts(found: str, expected: str, same: bool) -> None:
    assert same_part(found, expected) is same_part(expected, found) is same


def test_parts_together() -> None:
    one, two = Part.parse("xcvu9pflgb2104-2"), Part.parse("xcvu9p-flgb2104-2-i")
    assert str(one.merged(two)) == str(two.merged(one)) == "xcvu9p-flgb2104-2-i"
    assert one.merged(Part.parse("xcvu9p-flgb2104-1")) is None
    for text in ("", "target", "Unknown device"):
        with pytest.raises(ValueError, match="names no device"):
            Part.parse(text)
