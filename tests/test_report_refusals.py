"""Reports that are cut, incomplete, foreign, mixed up, or of figures that cannot be: each refused with its line."""

from __future__ import annotations

from pathlib import Path

import pytest
import report_texts as texts
from report_reading import bare, read, refused
from report_texts import written

from hawq_flow import report
from hawq_flow.report import NoFigures, ReportError, Timing

COMMA = "expected a figure with a decimal point and without separators; run the tool with LC_ALL=C"


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        (texts.timing_summary(), "-0.037", "-0,037"),
        (texts.timing_path(), "1.093ns", "1,093ns"),
        (texts.power(), "1.707", "1,707"),
        (texts.utilization(), "|3.5 ", "|3,500 "),
        (texts.csynth_rpt(), "|5.00 ns", "|5,00 ns"),
        (texts.export_rpt(), "4.002", "4,002"),
        (texts.export_results(), "4.002", "4,002"),
        (texts.csynth_summary(), "4207 (~0%)", "4,207 (~0%)"),
        (texts.csynth_summary(latency="7 ~ 9"), "7 ~ 9", "7 ~ 9,1"),
        (texts.csynth_xml(), "<EstimatedClockPeriod>4.321", "<EstimatedClockPeriod>4,321"),
    ],
)
def test_a_comma_that_may_be_a_decimal_point_is_refused(tmp_path: Path, text: str, old: str, new: str) -> None:
    assert old in text
    message = refused(tmp_path, "a.txt", text.replace(old, new, 1))
    assert COMMA in message
    assert f"line {1 + text[: text.index(old)].count(chr(10))}: found " in message


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        (texts.csynth_xml(), "<LUT>4207<", "<LUT>-5<"),
        (texts.csynth_rpt(), "|4207 ", "|-5 "),
        (texts.csynth_summary(), "31 (~0%)", "-5 (~0%)"),
        (texts.csynth_rpt(interval=("2", "1234")), "|1234", "|-5  "),
        (texts.utilization(), "|2009 ", "|-5 "),
        (texts.hierarchy(), "|2009 ", "|-5 "),
        (texts.export_rpt(), "DSP:             30", "DSP:   -5"),
        (texts.export_xml(), "<FF>1100<", "<FF>-5<"),
        (texts.power(), "1.565", "-5   "),
        (texts.csynth_rpt(target="5.00"), "|5.00 ", "|-5.0 "),
    ],
)
def test_what_cannot_be_below_0(tmp_path: Path, text: str, old: str, new: str) -> None:
    assert old in text
    message = refused(tmp_path, "a.txt", text.replace(old, new, 1))
    assert "'-5" in message
    assert "expected a figure that is not below 0, or a mark that there is none" in message


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("<LUT>4207<", "<LUT>1e3<", "found LUT '1e3'"),
        ("<LUT>4207<", "<LUT>٤٢٠٧<", "found LUT '٤٢٠٧'"),
        ("<Worst-caseLatency>9<", "<Worst-caseLatency>1e1<", "found Worst-caseLatency '1e1'"),
        ("<EstimatedClockPeriod>4.321", "<EstimatedClockPeriod>٤.٣٢١", "EstimatedClockPeriod '٤.٣٢١'"),
    ],
)
def test_what_python_takes_for_a_number_and_no_tool_prints(tmp_path: Path, old: str, new: str, found: str) -> None:
    text = texts.csynth_xml()
    assert old in text
    message = refused(tmp_path, "csynth.xml", text.replace(old, new, 1))
    assert f"{found}; expected a figure, or a mark that there is none" in message


@pytest.mark.parametrize("layout", ["old", "new"])
@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [
        ("    * Summary: ", "    + Detail: ", "expected * Summary: of + Latency"),
        ("    +---", "    + Detail: ", "expected a table under + Latency, * Summary:"),
    ],
)
def test_a_table_of_instances_is_not_the_tops(
    tmp_path: Path, layout: str, start: str, stop: str, expected: str
) -> None:
    """A hole where the latency of the top stood: the table of latencies that follows is of its instances."""
    one = [("dense_U0", "dense")]  # a table of one row, as the top's is
    lines = texts.csynth_rpt(layout=layout, version="2018.3", instances=one).split("\n")
    latency = next(i for i, line in enumerate(lines) if line.startswith("+ Latency"))
    first = next(i for i in range(latency, len(lines)) if lines[i].startswith(start))
    last = lines.index(stop, first)
    message = refused(tmp_path, "net_csynth.rpt", "\n".join(lines[:first] + lines[last:]))
    assert expected in message
    assert f"line {first}: found " in message  # the last line before the hole


def without(text: str, *starts: str) -> str:
    """The text without the first line that begins so, of each of ``starts``."""
    lines = text.split("\n")
    for start in starts:
        lines.remove(next(line for line in lines if line.strip().startswith(start)))
    return "\n".join(lines)


def renamed(text: str, after: str, old: str, new: str) -> str:
    """The text with the first ``old`` behind ``after`` renamed, in the width that it had."""
    start = text.index(after)
    at = text.index(old, start)
    return text[:at] + new + text[at + len(old) :][len(new) - len(old) :]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (without(texts.utilization(), "|DSPs "), "a figure of dsp too: a row is lost"),
        (without(texts.utilization(), "|Block RAM Tile "), "a figure of bram18 too: a row is lost"),
        (without(texts.utilization(), "|  LUT as Memory "), "a figure of lut_memory too: a row is lost"),
        (texts.utilization().replace("|DSPs ", "|DSP58"), "a figure of dsp too"),
        (renamed(texts.utilization(), "2. BLOCKRAM\n---", "Used", "Uses"), "a figure of bram18, ramb36, ramb18 too"),
        (renamed(texts.utilization(), "3. ARITHMETIC\n---", "Used", "Uses"), "a figure of dsp too: a row is lost"),
        (renamed(texts.utilization(), "4. Primitives\n---", "Used", "Uses"), "expected a column 'Used'"),
        (renamed(texts.utilization(), "5. Black Boxes\n---", "Ref Name", "Reference"), "expected a column 'Ref Name'"),
        (texts.utilization().replace("Available ", "Accessible"), "expected a column 'Available'"),
        (without(texts.hierarchy(), "|net "), "expected the row of the whole design, (top), first"),
        (texts.hierarchy().replace("DSP Blocks", "DSP 58s   "), "expected a column 'DSP Blocks'"),
        (texts.hierarchy().replace("RAMB18 ", "RAMB19 "), "expected a column 'RAMB18'"),
        (texts.csynth_xml().replace("<DSP>31</DSP>", "", 1), "found an element <Resources> with figures of"),
        (texts.csynth_xml().replace("<BRAM_18K>6</BRAM_18K>", "", 1), "a figure of bram18 too: a row is lost"),
        (texts.csynth_xml().replace("<LUT>1728000</LUT>", ""), "found an element <AvailableResources> with figures of"),
        (
            texts.csynth_xml().replace("<Interval-max>3</Interval-max>", ""),
            "without SummaryOfOverallLatency/Interval-max",
        ),
        (texts.csynth_xml().replace("<ClockUncertainty>0.62</ClockUncertainty>\n", "", 1), "without ClockUncertainty"),
        (texts.csynth_rpt().replace("|DSP ", "|DSQ "), "found the row Total with figures of lut, ff, bram18, uram"),
        (texts.csynth_rpt().replace("|LUT  ", "|LUX  ", 1), "a figure of lut too: a row is lost"),
        (texts.csynth_rpt().replace("|Interval ", "|Intervel ", 1), "expected a column 'Interval min'"),
        (texts.csynth_rpt().replace("(absolute)", "(abstract)", 1), "expected a column 'Latency (absolute) min'"),
        (without(texts.csynth_rpt(), "|Available SLR"), "expected both or neither"),
        (texts.csynth_summary().replace("|DSP ", "|DSQ "), "expected a column 'DSP'"),
        (without(texts.export_rpt(), "DSP:"), "a figure of dsp too: a row is lost"),
        (without(texts.export_rpt(), "BRAM:"), "a figure of bram18 too: a row is lost"),
        (without(texts.export_results(), "BRAM:"), "a figure of bram18 too: a row is lost"),
        (without(texts.export_results("Place & Route"), "|Post-Route"), "expected a row 'Post-Route' in it"),
        (without(texts.export_results(), "* Timing was"), "expected * Timing was met, or * Timing was not met"),
        (texts.export_xml().replace("<BRAM>6</BRAM>", ""), "a figure of bram18 too: a row is lost"),
        (
            texts.csynth_rpt().replace("    * Summary", "\t* Summary").replace("|ap_clk ", "|\tap_clk ", 1),
            "found a tab in",
        ),
    ],
)
def test_what_a_kind_always_has_must_be_there(tmp_path: Path, text: str, what: str) -> None:
    assert text not in texts.ALL.values()
    assert what in refused(tmp_path, "a.txt", text)


def test_what_only_some_devices_have_may_be_missing(tmp_path: Path) -> None:
    assert read(tmp_path, "a.rpt", without(texts.export_rpt(), "URAM:")).used.uram is None
    assert read(tmp_path, "a.rpt", without(texts.utilization(), "|URAM ")).used.uram is None
    lines = texts.cosim().split("\n")
    found = read(tmp_path, "a.rpt", "\n".join(line for line in lines if not line.startswith("Simulation tool")))
    assert (found.tool, found.timing) == ("unknown simulator", Timing(8, 10, None, None, 2, 4))


TOLD_EARLY = {
    "csynth.rpt",
    "net_timing_routed.rpt",
    "net_utilization_synth.rpt",
    "net_utilization_placed.rpt",
    "net_power_routed.rpt",
}
"""Kinds whose last part holds no figures: a cut in there gives the same report."""


@pytest.mark.parametrize("name", list(texts.ALL))
def test_a_cut_is_refused_or_gives_the_same_figures(tmp_path: Path, name: str) -> None:
    text = texts.ALL[name]
    whole_report = bare(read(tmp_path, name))
    lines = [i + 1 for i, char in enumerate(text) if char == "\n"]
    path, same = tmp_path / name, 0
    for place in sorted({*range(0, len(text), 37), *lines}):
        if not text[place:].strip():
            continue
        path.write_text(text[:place])
        try:
            found = report.read(path)
        except ReportError:
            continue
        assert bare(found) == whole_report, place
        same += 1
    # XML can be cut nowhere; a table of one row without titles below ends with its own rule.
    assert (same > 0) == (name in TOLD_EARLY), same


def test_empty_binary_and_foreign_files(tmp_path: Path) -> None:
    assert "line 1: found an empty file" in refused(tmp_path, "a.rpt", " \n\n")
    (tmp_path / "b.rpt").write_bytes(b"Copyright\nx\0y")
    with pytest.raises(ReportError, match="line 2: found a byte 0"):
        report.read(tmp_path / "b.rpt")
    with pytest.raises(ReportError, match="no such file"):
        report.read(tmp_path / "none.rpt")
    foreign = refused(tmp_path, "c.rpt", "Quartus Prime\nLogic utilization : 12\n")
    assert "line 1: found a text that begins with 'Quartus Prime'" in foreign
    assert "expected a csynth" in foreign
    assert "XML of <project>" in refused(tmp_path, "csynth.xml", "<project>\n<x/></project>")
    assert "a document type html" in refused(tmp_path, "csynth.xml", "<!DOCTYPE html>\n<html></html>")
    assert "line 2: found XML that is cut or malformed" in refused(tmp_path, "csynth.xml", "<profile>\n<a></b>")


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("a_drc_routed.rpt", texts.other("report_drc -file a.rpt", "Report DRC"), "a DRC report"),
        ("c.rpt", texts.other("report_clock_utilization", "Clock Utilization Report"), "a clock utilization report"),
        ("io.rpt", texts.other("report_io -file io.rpt", "IO Information"), "an IO report"),
        ("odd.rpt", texts.other("report_ssn", "Report SSN"), "'Report SSN', written by report_ssn"),
        ("route.rpt", "Design Route Status\n    : # nets :\n", "a route status report"),
        ("d.rpt", "\n\n" + "=" * 64 + "\n== Design Size Report\n", "a design size report"),
        ("d.xml", '<design_size title="x"><item/></design_size>', "a design size report"),
        ("vivado.log", "\n****** Vivado v2020.1 (64-bit)\nINFO: x\n", "the log of a tool's run"),
        ("hls.log", "\n****** Vitis HLS - High-Level Synthesis v2022.2\n", "the log of a tool's run"),
        ("csim.log", "INFO: [SIM 2] *************** CSIM start ***************\n", "the log of a C simulation"),
    ],
)
def test_kinds_without_figures_say_what_they_are(tmp_path: Path, name: str, text: str, what: str) -> None:
    with pytest.raises(NoFigures) as caught:
        report.read(written(tmp_path, name, text))
    assert f"found {what}" in str(caught.value)
    assert "no totals of resources, clock, slack, latency or power" in str(caught.value)


def test_mixed_up_files(tmp_path: Path) -> None:
    csynth, used = texts.csynth_rpt(), texts.utilization()
    message = refused(tmp_path, "net_utilization_synth.rpt", csynth)
    assert "a csynth report in a file named 'net_utilization_synth.rpt'; expected a utilization report" in message
    assert "a utilization report in a file named 'net_csynth.rpt'" in refused(tmp_path, "net_csynth.rpt", used)
    assert "a report of synthesis" in refused(tmp_path, "net_utilization_placed.rpt", used)
    for two in (csynth + used, used + csynth, csynth + csynth, used + used, texts.cosim() + texts.cosim()):
        assert "which begins another report" in refused(tmp_path, "a.rpt", two)
    inside = used.replace("2. BLOCKRAM\n---", "== Utilization Estimates\n2. BLOCKRAM\n---")
    assert "'== Utilization Estimates', which begins another report" in refused(tmp_path, "a.rpt", inside)
    swapped = used.replace("Utilization Design Information", "Timing Summary Report")
    assert "'Timing Summary Report' under the head of report_utilization" in refused(tmp_path, "a.rpt", swapped)
    # A function may be called like another kind of report.
    assert read(tmp_path, "power_csynth.rpt", texts.csynth_rpt("power")).top == "power"
    assert read(tmp_path, "utilization_timing_csynth.xml", texts.csynth_xml("timing", modules=False)).top == "timing"


def test_errors_name_the_line(tmp_path: Path) -> None:
    text = texts.csynth_rpt().replace("|Total                |6", "|Total                |x")
    line = 1 + text[: text.index("|Total")].count("\n")
    assert f"line {line}: found BRAM_18K 'x'" in refused(tmp_path, "net_csynth.rpt", text)
    text = texts.csynth_rpt().replace("|Available  ", "|Avaliable  ")
    assert "expected a row 'Available' in it" in refused(tmp_path, "net_csynth.rpt", text)
    text = texts.csynth_rpt().replace("* Target device:  xcu250-figd2104-2L-e", "* Target device:  unknown")
    assert "the name of a device" in refused(tmp_path, "net_csynth.rpt", text)
    text = texts.csynth_xml().replace("<Part>xcu250-figd2104-2L-e</Part>\n", "")
    assert "line 5: found an element <UserAssignments> without Part" in refused(tmp_path, "csynth.xml", text)
    text = texts.csynth_xml().replace("<FF>1201</FF><LUT>4207</LUT><BRAM", "<FF>1201</FF><LUT>4208</LUT><BRAM")
    assert "the totals" in refused(tmp_path, "csynth.xml", text)
    text = texts.utilization().replace("2. BLOCKRAM\n---", "2. MEMORY\n---")
    assert "expected the section '2. BLOCKRAM' of the table of contents" in refused(tmp_path, "a.rpt", text)
    text = texts.csynth_summary().replace("report of 'net'", "x").replace("+ net*", "+ other*")
    assert "a table whose first module is 'other'" in refused(tmp_path, "csynth.rpt", text)
