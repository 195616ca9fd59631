"""Projects read as a whole, trees of them, and the table of their figures."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import report_texts as texts
from report_texts import written

from hawq_flow import report
from hawq_flow.report import HlsReport, ReportError, Resources, Timing


def project(root: Path, *, solution: str = "net_prj/solution1") -> Path:
    """A project as hls4ml, or hawq_flow, leaves it behind after every step."""
    syn, impl = root / solution / "syn" / "report", root / solution / "impl" / "report" / "verilog"
    written(syn, "csynth.xml", texts.csynth_xml())
    written(syn, "csynth.rpt", texts.csynth_summary())
    written(syn, "net_csynth.rpt", texts.csynth_rpt())
    areas = {
        "dense": ({"BRAM_18K": "3", "DSP": "15", "FF": "600", "LUT": "2103", "URAM": "0"}, (("mul_U0", "mul"),)),
        "mul": ({"BRAM_18K": "1", "DSP": "7", "FF": "300", "LUT": "1051", "URAM": "0"}, ()),
        "relu": ({"BRAM_18K": "2", "DSP": "10", "FF": "400", "LUT": "1402", "URAM": "0"}, ()),
    }
    for name, (used, calls) in areas.items():
        kinds = {"latency": ("3", "4"), "interval": ("1", "2"), "estimate": "3.210"}
        written(syn, f"{name}_csynth.rpt", texts.csynth_rpt(name, used=used, instances=calls, **kinds))
    written(root / solution / "sim" / "report", "net_cosim.rpt", texts.cosim())
    written(impl, "net_export.rpt", texts.export_rpt().replace("BRAM:             6", "BRAM:             7"))
    written(root, "vivado_synth.rpt", texts.utilization())
    # What tools leave behind, and what is not to be looked at.
    written(root / solution / ".autopilot" / "db", "net.verbose.rpt", texts.csynth_rpt("other"))
    written(
        root / solution / "impl" / "verilog" / "project.runs",
        "bd_utilization_synth.rpt",
        texts.utilization(design="bd"),
    )
    written(root, "vitis_hls.log", "****** Vitis HLS - x\n")
    written(root / solution / "syn" / "report", "csynth_design_size.rpt", "== Design Size Report\n")
    written(root / "firmware", "odd.xml", "<x/>")
    written(impl, "net_failfast_synth.rpt", "a kind that nobody told us of\n")
    written(root / solution / "sim" / "report" / "verilog", "result.transaction.rpt", "transaction 0: 9\n")
    written(root / solution, "solution1.log", "INFO: nothing that begins like a log\n")
    return root


def test_read_project(tmp_path: Path) -> None:
    root = project(tmp_path / "net")
    (root / "hawq_flow.json").write_text(json.dumps({"digest": "abc123"}))
    stages = {one.stage: one for one in report.read_project(root)}
    assert list(stages) == ["csynth", "cosim", "synthesis"]
    csynth = stages["csynth"]
    assert csynth.used == Resources(lut=4207, ff=1201, dsp=31, bram18=6, uram=1)
    assert csynth.timing == Timing(7, 9, 35.0, 45.0, 2, 3, 5.0, 4.321, 0.62)
    assert csynth.available_slr.lut == 432000
    assert [row.module for row in csynth.modules] == ["dense", "relu", "mul"]
    assert len(csynth.sources) == 6
    synthesis = stages["synthesis"]
    assert (synthesis.used.lut, synthesis.used.carry, synthesis.timing.clock_estimate_ns) == (2009, 77, 4.002)
    assert (synthesis.top, synthesis.part) == ("net", "xcu250-figd2104-2L-e")
    assert {one.digest for one in stages.values()} == {"abc123"}
    for inside in ("net_prj", "net_prj/solution1"):
        assert report.read_project(root / inside)[0].digest == "abc123"
    assert {one.project for one in stages.values()} == {str(root)}


def test_projects_that_disagree_are_refused(tmp_path: Path) -> None:
    def broken(name: str, path: str, text: str) -> str:
        root = project(tmp_path / name)
        written(root, path, text)
        with pytest.raises(ReportError) as caught:
            report.read_project(root)
        return str(caught.value)

    syn = "net_prj/solution1/syn/report/"
    message = broken("a", syn + "net_csynth.rpt", texts.csynth_rpt(part="xcvu9p-flgb2104-2-i"))
    assert "found part" in message
    assert "net_csynth.rpt" in message
    assert "csynth.xml" in message
    assert "clock_target_ns" in broken("b", syn + "net_csynth.rpt", texts.csynth_rpt(target="4.00"))
    assert "found version" in broken("c", syn + "net_csynth.rpt", texts.csynth_rpt(version="2022.1"))
    assert "found used.lut" in broken("d", syn + "csynth.rpt", texts.csynth_summary(lut="4307 (~0%)"))
    late = texts.csynth_summary(lut="4208 (~0%)", date="Tue Mar  5 14:26:09 2024")  # as near, and of another run
    assert "found used.lut 4207" in broken("n", syn + "csynth.rpt", late)
    assert "latency_cycles_min 7 to 9" in broken("e", syn + "csynth.rpt", texts.csynth_summary(latency="10"))
    assert "which net does not call" in broken("f", syn + "odd_csynth.rpt", texts.csynth_rpt("odd", instances=()))
    assert "found summaries of net and two" in broken("g", syn + "csynth.xml", texts.csynth_xml("two", modules=False))
    assert "found top" in broken("h", "net_utilization_synth.rpt", texts.utilization(design="else"))
    assert "found used.lut 2010" in broken("i", "net_utilization_synth.rpt", texts.utilization(lut="2010"))
    own = texts.csynth_rpt("relu", instances=())
    assert "found used.lut" in broken("j", syn + "relu_csynth.rpt", own)
    assert "of the table of contents" in broken("k", "vivado_synth.rpt", texts.utilization()[:1600])
    assert "no banner of a report" in broken("m", syn + "csynth.rpt", "cut before it began\n")
    manifest = broken("l", "hawq_flow.json", "{}")
    assert "found no digest" in manifest


def test_a_summary_that_counts_a_little_otherwise(tmp_path: Path) -> None:
    root = project(tmp_path / "net")
    syn = root / "net_prj" / "solution1" / "syn" / "report"
    written(syn, "csynth.rpt", texts.csynth_summary(lut="4211 (~0%)"))
    found = report.read_project(root)[0]
    assert found.used.lut == 4207
    assert found.notes == ("csynth.rpt counts 4211 LUT, the top's own report 4207, which is taken",)
    (syn / "net_csynth.rpt").unlink()  # csynth.xml has no date: nothing says that it is the same run
    with pytest.raises(ReportError, match=r"found used\.lut 4207"):
        report.read_project(root)


def test_a_project_of_two_devices_says_so(tmp_path: Path) -> None:
    root = project(tmp_path / "net", solution="solution1")
    for path in (root / "solution1" / "impl").rglob("*_export.rpt"):
        path.unlink()
    written(root, "vivado_synth.rpt", texts.utilization(device="xcvu9pflgb2104-2"))
    for found in (report.read_project(root), report.tree([root])[0]):
        notes = {one.stage: one.notes for one in found}
        assert notes["csynth"] == ("for another part: synthesis, xcvu9p-flgb2104-2",)
        assert notes["synthesis"] == ("for another part: csynth, xcu250-figd2104-2L-e",)
        assert notes["cosim"] == ("simulated: Verilog",)


def test_results_that_were_kept(tmp_path: Path) -> None:
    """As ``hls build`` keeps them: each step has its reports and the manifest of what it was run for."""
    run = tmp_path / "run"
    for plan, digests in (("a", ("1" * 64, "1" * 64)), ("b", ("2" * 64, "3" * 64))):
        kept = run / plan / "project.synthesis"
        written(kept / "csynth" / "reports", "net_csynth.rpt", texts.csynth_rpt())
        written(kept / "synthesis" / "reports", "net_utilization_synth.rpt", texts.utilization())
        for step, digest in zip(("csynth", "synthesis"), digests, strict=True):
            written(kept / step, "hawq_flow.json", json.dumps({"digest": digest}))
    reports, refusals = report.tree([run])
    assert refusals == ()
    found = {(Path(str(one.project)).relative_to(run).as_posix(), one.stage): one.digest for one in reports}
    assert found == {
        ("a/project.synthesis", "csynth"): "1" * 64,
        ("a/project.synthesis", "synthesis"): "1" * 64,
        ("b/project.synthesis", "csynth"): "2" * 64,
        ("b/project.synthesis", "synthesis"): "3" * 64,  # the network changed, and one step was run again
    }
    kept = run / "a" / "project.synthesis"
    for folder in (kept, kept / "csynth", kept / "csynth" / "reports"):
        assert report.read_project(folder)[0].digest == "1" * 64
        assert report.tree([folder])[0][0].digest == "1" * 64
    assert [one.stage for one in report.read_project(kept)] == ["csynth", "synthesis"]
    written(run / "b" / "project.synthesis" / "csynth", "hawq_flow.json", "{}")
    reports, refusals = report.tree([run])
    assert len(reports) == 3
    assert "found no digest" in refusals[0].reason
    written(kept / "again" / "reports", "net_csynth.rpt", texts.csynth_rpt())
    written(kept / "again", "hawq_flow.json", json.dumps({"digest": "4" * 64}))
    with pytest.raises(ReportError, match=r"found digests of different networks in .* and .*; expected one for csynth"):
        report.read_project(kept)


def test_projects_without_reports(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="no such folder"):
        report.read_project(tmp_path / "none")
    with pytest.raises(ReportError, match="found no report in it; expected those of one project"):
        report.read_project(tmp_path)
    written(tmp_path, "vivado.log", "****** Vivado v2020.1\n")
    with pytest.raises(ReportError, match=r"found no report in it; refused: .*vivado\.log, line 1"):
        report.read_project(tmp_path)


def test_two_designs_without_a_summary(tmp_path: Path) -> None:
    for name in ("one", "two"):
        written(tmp_path, f"{name}_csynth.rpt", texts.csynth_rpt(name, instances=()))
    with pytest.raises(ReportError, match=r"found reports of one, two, none of them a module of another"):
        report.read_project(tmp_path)
    written(tmp_path, "one_csynth.rpt", texts.csynth_rpt("one", instances=(("two_U0", "two"),)))
    with pytest.raises(ReportError, match=r"found used\.lut"):  # its row and its own report are of two runs
        report.read_project(tmp_path)


def test_the_interval_of_vivado_hls_is_one_more_in_its_summary(tmp_path: Path) -> None:
    kinds = {"version": "2019.2", "latency": ("7", "9")}
    written(tmp_path, "csynth.xml", texts.csynth_xml(modules=False, interval=("8", "10"), **kinds))
    written(tmp_path, "net_csynth.rpt", texts.csynth_rpt(interval=("7", "9"), **kinds))
    (found,) = report.read_project(tmp_path)
    assert (found.timing.interval_cycles_min, found.timing.interval_cycles_max) == (8, 10)
    written(tmp_path, "net_csynth.rpt", texts.csynth_rpt(interval=("6", "9"), **kinds))
    with pytest.raises(ReportError, match="interval_cycles_min"):
        report.read_project(tmp_path)


def test_tree(tmp_path: Path) -> None:
    project(tmp_path / "a" / "net")
    project(tmp_path / "b", solution="solution1")
    flat = tmp_path / "flat"
    written(flat, "one_utilization_synth.rpt", texts.utilization(design="one"))
    written(flat, "two_utilization_synth.rpt", texts.utilization(design="two"))
    mixed = tmp_path / "mixed"
    written(mixed, "net_csynth.rpt", texts.csynth_rpt())
    written(mixed, "csynth.xml", texts.csynth_xml(lut="1", modules=False))
    written(mixed, "net_cosim.rpt", texts.cosim())
    reports, refusals = report.tree([tmp_path])
    assert report.tree([tmp_path, tmp_path / "a", tmp_path]) == (reports, refusals), (
        "what is reached twice is read once"
    )
    found = [(Path(str(one.project)).relative_to(tmp_path).as_posix(), one.stage, one.top) for one in reports]
    assert sorted(found, key=str) == sorted(
        [
            *[("a/net", "csynth", "net"), ("a/net", "cosim", None), ("a/net", "synthesis", "net")],
            *[("b", "csynth", "net"), ("b", "cosim", None), ("b", "synthesis", "net")],
            *[("flat", "synthesis", "one"), ("flat", "synthesis", "two"), ("mixed", "cosim", None)],
        ],
        key=str,
    )
    named = {Path(refusal.path).name: refusal for refusal in refusals}
    assert set(named) == {
        *{"vitis_hls.log", "solution1.log", "csynth_design_size.rpt", "net_failfast_synth.rpt"},
        "mixed",
    }
    assert named["net_failfast_synth.rpt"].in_order
    assert named["vitis_hls.log"].in_order
    assert not named["mixed"].in_order
    assert "found used.lut" in named["mixed"].reason
    single, none = report.tree([flat / "one_utilization_synth.rpt"])
    assert (len(single), none) == (1, ())
    with pytest.raises(ReportError, match="no such file or folder"):
        report.tree([tmp_path / "none"])


@dataclasses.dataclass(frozen=True)
class Small:
    lut: int = 10000
    ff: int = 20000
    dsp: int = 100
    bram18: int = 50
    uram: int = 0


def test_table(tmp_path: Path) -> None:
    reports, _ = report.tree([project(tmp_path / "net")])
    frame = report.table(reports)
    assert list(frame["stage"]) == ["csynth", "cosim", "synthesis"]
    assert "lut" not in frame.columns
    csynth, cosim, synthesis = (row for _, row in frame.iterrows())
    assert csynth["csynth_lut"] == 4207
    assert pd.isna(csynth["synthesis_lut"])
    assert synthesis["synthesis_lut"] == 2009
    assert pd.isna(synthesis["csynth_lut"])
    assert cosim["cosim_latency_cycles_max"] == 10
    assert csynth["csynth_lut_percent"] == pytest.approx(100 * 4207 / 1728000, rel=1e-12)
    assert not [name for name in frame.columns if name.startswith(("implementation_", "open_"))]
    assert str(frame["csynth_lut"].dtype) == "Int64"
    assert str(frame["csynth_clock_target_ns"].dtype) == "Float64"
    modules = report.table(reports, modules=True)
    assert list(modules["module"]) == ["dense", "relu", "mul"]
    assert list(modules["csynth_lut"]) == [2103, 1402, 1051]


def test_percentages_where_the_device_is_known(tmp_path: Path) -> None:
    one = HlsReport("synthesis", "Vivado", part="xc7z020-clg400-1", used=Resources(lut=5000, dsp=10, uram=0))
    plain, known = report.table([one]), report.table([one], lambda part: Small())
    assert "synthesis_lut_percent" not in plain.columns
    assert list(known["synthesis_lut_percent"]) == [50.0]
    assert list(known["synthesis_dsp_percent"]) == [10.0]
    assert "synthesis_uram_percent" not in known.columns  # of none there is no percentage
    assert "synthesis_lut_percent" not in report.table([one], lambda part: None).columns
    told = dataclasses.replace(one, available=Resources(lut=50000))
    assert list(report.table([told], lambda part: Small())["synthesis_lut_percent"]) == [10.0]  # the report's own


def test_written_tables(tmp_path: Path) -> None:
    reports, _ = report.tree([project(tmp_path / "net")])
    frame = report.table(reports)
    text = report.write_table(frame, "markdown")
    assert "## HLS estimates (csynth)" in text
    assert "## Logic synthesis by Vivado" in text
    assert "| 4207 |" in text
    head = next(line for line in text.splitlines() if "csynth_lut" in line)
    assert "synthesis_lut" not in head
    assert report.write_table(frame, "csv", tmp_path / "t.csv") == (tmp_path / "t.csv").read_text()
    back = pd.read_csv(tmp_path / "t.csv")
    assert list(back.columns) == list(frame.columns)
    assert back["csynth_lut"][0] == 4207
    assert report.write_table(frame, "parquet", tmp_path / "t.parquet") == ""
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "t.parquet"), frame)
    with pytest.raises(ValueError, match="expected a path"):
        report.write_table(frame, "parquet")
    with pytest.raises(ValueError, match="found no such form; expected markdown, csv, parquet"):
        report.write_table(frame, "html")
    assert report.write_table(report.table([]), "markdown") == "No reports.\n"


def test_reading_reports_loads_no_pandas() -> None:
    """Half a second, which whoever makes no table should not wait for."""
    code = "import sys, hawq_flow.report; assert 'pandas' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[1])


def test_the_open_road_is_labelled() -> None:
    one = HlsReport("open", "Yosys", top="a|b", used=Resources(lut=12.0, carry=3))
    text = report.write_table(report.table([one]), "markdown")
    assert "## Open synthesis: Yosys, not Vivado" in text
    assert "a\\|b" in text
    two = report.table([one, HlsReport("open", "Yosys", top="c", used=Resources(lut=3), power_w=0.25)])
    lines = report.markdown(two).splitlines()
    assert lines[3] == "|---|---|---:|---:|---:|"  # texts to the left, figures to the right
    assert lines[4:6] == ["| a\\|b | Yosys | 12 | 3 |  |", "| c | Yosys | 3 |  | 0.25 |"]
