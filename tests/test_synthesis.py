"""Vendor tools run: every planted fault ends as its typed outcome, and only reports of the run are believed."""

from __future__ import annotations

import datetime
import fcntl
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from fake_vendor import DIGEST, PART, config, only, project, run, tool

from hawq_flow import store
from hawq_flow.report import HlsReport
from hawq_flow.synthesis import (
    Outcome,
    SynthesisConfig,
    SynthesisError,
    build,
    build_all,
    causes,
    reports,
    results,
)


@pytest.mark.parametrize(
    ("name", "tool_name", "version"),
    [
        ("vivado_hls", "Vivado HLS", "2020.1"),
        ("vitis_hls", "Vitis HLS", "2022.2"),
        ("vitis-run", "Vitis HLS", "2024.2"),
    ],
)
def test_a_good_run(tmp_path: Path, name: str, tool_name: str, version: str) -> None:
    told: list[str] = []
    (project(tmp_path / "project") / "firmware/network-stamp.so").write_text("compiled by build_lib.sh")
    before = sorted(p.name for p in (tmp_path / "project").rglob("*"))
    result = run(tmp_path, "echo 'INFO: [HLS 200-42] -- Implementing module '\\''dense'\\'' '", name=name, told=told)
    step = only(result)
    assert (step.outcome, step.tool, step.version, step.reused) == (Outcome.OK, tool_name, version, False)
    assert result.ok
    assert result.require() is result
    (found,) = result.reports
    assert (found.stage, found.part, found.top, found.digest) == ("csynth", PART, "network", DIGEST)
    assert (found.used.lut, found.used.dsp, found.timing.latency_cycles_max) == (400, 3, 9)
    assert any(f"{tmp_path.name}/project: csynth: INFO: [HLS 200-42] -- Implem" in line for line in told)
    assert len(told) == 3  # starts, the milestone, how it ended; not every line of the log
    # Kept beside the project, whole, and nothing in it or left elsewhere.
    kept = tmp_path / "project.synthesis" / "csynth"
    assert step.folder == kept
    names = {"hawq_flow.json", "csynth.log", "result.json", "reports/network_csynth.xml", "verilog/network.v"}
    assert set(store.open_artifact(kept).manifest["files"]) == names
    assert sorted(p.name for p in (tmp_path / "project").rglob("*")) == before
    assert {p.name for p in tmp_path.iterdir() if p.is_dir()} == {"project", "project.synthesis", "bin", "locks"}
    assert reports(tmp_path / "project") == result.reports


def test_how_each_tool_is_called(tmp_path: Path) -> None:
    for name, expected in (
        ("vivado_hls", "-f csynth.tcl"),
        ("vitis_hls", "-f csynth.tcl"),
        ("vitis-run", "--mode hls --tcl csynth.tcl"),
    ):
        step = only(run(tmp_path / name, 'echo "called: $*"', name=name))
        assert f"called: {expected}" in step.tail


def test_all_steps(tmp_path: Path) -> None:
    tool(tmp_path / "bin", "vivado")
    steps = ("implementation", "synthesis", "export", "cosim", "csynth")
    result = run(tmp_path, steps=steps, power=True)
    result.require()
    assert [step.name for step in result.steps] == ["csynth", "cosim", "export", "synthesis", "implementation"]
    assert [step.tool for step in result.steps] == ["Vitis HLS"] * 3 + ["Vivado"] * 2
    assert [found.stage for found in result.reports] == ["csynth", "cosim", "synthesis", "implementation"]
    assert {found.digest for found in result.reports} == {DIGEST}
    assert (tmp_path / "project.synthesis/export/network.zip").is_file()
    assert reports(tmp_path / "project") == result.reports


def test_what_is_there_is_not_run_again_and_what_changed_is(tmp_path: Path) -> None:
    count = f'[ "$step" = csynth ] && echo x >>{tmp_path}/runs'
    assert not only(run(tmp_path, count)).reused
    again = only(run(tmp_path, count))
    assert again.reused
    assert again.reports
    (tmp_path / "project/firmware/network.cpp").write_text("void network() { /* changed */ }\n")
    assert reports(tmp_path / "project") == ()  # they are of what the project was
    settings = config(tmp_path)
    assert not only(build(tmp_path / "project", settings)).reused
    later = f"version=2023.1; {count}"
    tool(tmp_path / "bin", "vitis_hls", later, banner="Vitis HLS - High-Level Synthesis v2023.1 (64-bit)")
    assert not only(build(tmp_path / "project", settings)).reused
    assert (tmp_path / "runs").read_text() == "x\n" * 3


FAULTS = {
    "exit 1": ("echo 'ERROR: [HLS 200-70] it broke'; exit 1", Outcome.TOOL_ERROR, "it broke"),
    "exit 1, silently": ("exit 1", Outcome.TOOL_ERROR, "exit code 1 and names no cause"),
    "no report": ("finish", Outcome.NO_REPORT, "left no report"),
    "Verilog alone": ("csynth; rm network_prj/solution1/syn/report/*; finish", Outcome.NO_REPORT, "left no report"),
    "silent crash": ("csynth; exit 0", Outcome.TOOL_ERROR, "ended with exit code 0, but not at the end of its script"),
    "crash": ("echo 'Abnormal program termination (11)'; exit 1", Outcome.TOOL_ERROR, "the tool crashed"),
    "signal": ("kill -SEGV $$", Outcome.TOOL_ERROR, "the tool crashed"),
    "old report": (
        "csynth; touch -d '2001-01-01' network_prj/solution1/syn/report/*; finish",
        Outcome.WRONG_REPORT,
        "was written 2001-01-01 00:00:00, before the run",
    ),
    "other part": ("part=xc7z020clg400-1", Outcome.WRONG_REPORT, "for the part xc7z020-clg400-1; the project is for"),
    "other speed": ("part=xcvu9p-flga2104-3-e", Outcome.WRONG_REPORT, "the project is for xcvu9p-flga2104-2L-e"),
    "other speed of the same start": (
        "part=xcvu9p-flga2104-2",
        Outcome.WRONG_REPORT,
        "for the part xcvu9p-flga2104-2;",
    ),
    "other clock": ("clock=4.00", Outcome.WRONG_REPORT, "a clock of 4.0 ns; the project is for 5.0 ns"),
    "other design": ("top=other", Outcome.WRONG_REPORT, "the design 'other'; the project's top is 'network'"),
    "other version": ("version=2020.2", Outcome.WRONG_REPORT, "by version 2020.2; the tool that ran is 2022.2"),
    "cut report": (
        "csynth; head -n 8 network_prj/solution1/syn/report/network_csynth.xml >x; "
        "mv x network_prj/solution1/syn/report/network_csynth.xml; finish",
        Outcome.WRONG_REPORT,
        "network_csynth.xml",
    ),
    "part": (
        "echo \"ERROR: [HLS 200-1023] Part 'xcvu9p-flga2104-2L-e' is not installed.\"; exit 1",
        Outcome.MISSING_PART,
        "the part is not installed",
    ),
    "part, exit 0": ("echo 'ERROR: [Coretcl 2-106] Specified part could not be found.'", Outcome.OK, ""),
    "Killed": (
        'echo \'/opt/loader: line 312:  4242 Killed   "$PROG" "$@"\'; exit 137',
        Outcome.OUT_OF_MEMORY,
        "system",
    ),
    "Killed, exit 1": ("echo Killed; exit 1", Outcome.OUT_OF_MEMORY, "the system killed it"),
    "killed": ("kill -KILL $$", Outcome.OUT_OF_MEMORY, "the system killed it"),
    "disk": ("echo 'write error: No space left on device'; exit 1", Outcome.DISK_FULL, "the disk is full"),
    "file size": ("ulimit -f 8; exec yes >big", Outcome.DISK_FULL, "the disk is full"),
    "too large": (
        "echo 'ERROR: [XFORM 203-504] Stop unrolling loop'; exit 1",
        Outcome.TOOL_ERROR,
        "take a larger reuse factor.*its first error: .*Stop unrolling",
    ),
    "date": (
        "echo \"ERROR: '2203051132' is an invalid argument. Please specify an integer value.\"; exit 1",
        Outcome.TOOL_ERROR,
        "y2k22",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_tools_are_typed(tmp_path: Path, fault: str) -> None:
    body, outcome, cause = FAULTS[fault]
    result = run(tmp_path, body)
    step = only(result)
    assert step.outcome is outcome, step
    assert re.search(cause, step.cause, re.S), step.cause
    if outcome is not Outcome.OK:
        assert not (tmp_path / "project.synthesis" / "csynth").exists()
        assert (step.folder / "csynth.log").is_file()
        assert not result.reports
        with pytest.raises(SynthesisError, match=f"csynth.*{outcome.value}"):
            result.require()


def test_a_hang_that_ignores_term_and_forks_is_ended(tmp_path: Path) -> None:
    body = f"trap '' TERM\nsetsid sh -c 'trap \"\" TERM; echo $$ >{tmp_path}/child; sleep 60' &\nsleep 60\n"
    started = time.monotonic()
    step = only(run(tmp_path, body, time_limit_s=0.5))
    assert step.outcome is Outcome.TIMED_OUT
    assert step.cause == "it ran longer than its limit of 0.5 s; raise time_limit_s in [synthesis]"
    assert time.monotonic() - started < 15
    child = int((tmp_path / "child").read_text())
    assert not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text()


def test_a_tool_that_takes_too_much_memory_is_ended(tmp_path: Path) -> None:
    body = "x=0123456789abcdef; while :; do x=$x$x; done"
    step = only(run(tmp_path, body, memory_limit_gb=0.1))
    assert step.outcome is Outcome.OUT_OF_MEMORY
    assert "the limit is 0.0931 GiB; raise memory_limit_gb" in step.cause


def test_no_tool(tmp_path: Path) -> None:
    where = project(tmp_path / "project")
    absent = SynthesisConfig(
        vitis_hls="no-such-vitis", vitis_run="no-such-run", vivado_hls=str(tmp_path / "vivado_hls")
    )
    step = only(build(where, absent))
    assert step.outcome is Outcome.MISSING_TOOL
    assert step.cause.startswith("no-such-vitis or no-such-run not found: put it on PATH")
    tool(tmp_path, "vivado_hls")
    assert "vivado_hls is there: it builds projects of the back end 'Vivado'" in only(build(where, absent)).cause


def test_what_a_failed_build_left_goes_with_the_next(tmp_path: Path) -> None:
    failed = only(run(tmp_path, "exit 1"))
    (tmp_path / ".project.synthesis-killed" / "csynth").mkdir(parents=True)  # a process that was killed left it
    told: list[str] = []
    assert (failed.folder / "csynth.tcl").is_file()
    assert run(tmp_path, "", keep_work=True, told=told).ok
    assert not failed.folder.exists()
    (kept,) = tmp_path.glob(".project.synthesis-*")
    assert told[-1].endswith(f"what the tools left is in {kept}, until this project is built again")
    assert [p.name.split("-")[0] for p in kept.iterdir() if p.is_dir()] == ["csynth"]


def test_a_step_that_failed_stops_those_that_start_from_it(tmp_path: Path) -> None:
    tool(tmp_path / "bin", "vivado", "[ $step = synthesis ] && exit 1")
    result = run(tmp_path, steps=("csynth", "cosim", "synthesis", "implementation"))
    assert [step.outcome.value for step in result.steps] == ["ok", "ok", "tool error", "not run"]
    assert result.steps[3].cause == "it starts from synthesis, which did not end well"
    assert [found.stage for found in result.reports] == ["csynth", "cosim"]


@pytest.mark.parametrize(
    ("rtl", "outcome", "cause"),
    [
        ("echo 1 -2; echo 300000000 5", Outcome.DIFFERENT, "row 1: got 300000000 5, expected 300000000 4"),
        ("echo 1 XX; echo 300000000 4", Outcome.DIFFERENT, "row 0: got 1 XX, expected 1 -2"),
        ("echo 1 -2", Outcome.DIFFERENT, "2 numbers came back, expected 2 rows of 2"),
        ("echo 1; echo -2.0; echo 3e8; echo 4", Outcome.OK, ""),  # a line for each output
    ],
)
def test_the_rtl_simulation_is_compared_with_the_network(
    tmp_path: Path, rtl: str, outcome: Outcome, cause: str
) -> None:
    result = run(tmp_path, f"rtl() {{ {rtl}; }}", steps=("csynth", "cosim"))
    assert result.steps[1].outcome is outcome
    assert cause in result.steps[1].cause


def test_a_report_of_the_past_is_refused_by_its_own_date(tmp_path: Path) -> None:
    tool(tmp_path / "bin", "vivado", "date='Mon Jun 28 13:59:34 2021'")
    step = run(tmp_path, steps=("csynth", "synthesis")).steps[1]
    assert step.outcome is Outcome.WRONG_REPORT
    assert "is dated 2021-06-28 13:59:34, before the run that began" in step.cause


@pytest.mark.parametrize(
    ("date", "refused"),
    [
        ("2024-05-03T12:00:01", False),
        ("2024-05-03T12:00:00+02:00", False),  # of the machine's own clock, whatever it calls its zone
        ("2024-05-03T11:59:30", False),  # another machine's clock
        ("2024-05-03T11:57:00", True),
        ("2024-05-03T10:05:00", False),  # two zones to the west, five minutes after the start
        ("2024-05-03T06:35:00", False),  # India's report, Greenwich's start
        ("2024-05-03T10:20:00", False),  # a run of ten minutes
        ("2024-05-03T10:27:00", True),  # in no zone a date of the run
        ("2024-05-01T12:05:00", True),
        ("2024-05-02", False),
        ("2024-05-01", True),
        ("2024-05-03", False),
        (None, False),
        ("yesterday", True),
    ],
)
def test_dates_of_reports(date: str | None, refused: bool) -> None:
    found = HlsReport(stage="csynth", tool="Vitis HLS", date=date, sources=("a.rpt",))
    started = datetime.datetime(2024, 5, 3, 12, 0, 0, 900000)
    if refused:
        with pytest.raises(results.WrongReport, match=r"a\.rpt"):
            results.check_dates([found], started, 600.0)
    else:
        results.check_dates([found], started, 600.0)


def test_what_does_not_fit_stops_before_the_next_step(tmp_path: Path) -> None:
    tool(tmp_path / "bin", "vivado")
    result = run(tmp_path, "dsp=7000", steps=("csynth", "synthesis"))
    assert [step.outcome for step in result.steps] == [Outcome.DOES_NOT_FIT, Outcome.NOT_RUN]
    assert "DSP 7,000 of 6,840 (102 %)" in result.steps[0].cause


def test_look_up_tables_of_csynth_are_too_high_to_stop(tmp_path: Path) -> None:
    tool(tmp_path / "bin", "vivado", "lut=1300000")
    result = run(tmp_path, "lut=2000000", steps=("csynth", "synthesis"))
    assert [step.outcome for step in result.steps] == [Outcome.OK, Outcome.DOES_NOT_FIT]
    assert "synthesis decides" in result.steps[0].notes[0]


def test_an_unknown_device_is_said(tmp_path: Path) -> None:
    tool(tmp_path / "bin", "vitis_hls", "part=xc7a35tcsg324-1; dsp=70000")
    for name in ("hawq_flow.json", "project.tcl"):
        path = project(tmp_path / "project") / name if name.endswith("json") else tmp_path / "project" / name
        path.write_text(path.read_text().replace(PART, "xc7a35tcsg324-1"))
    step = only(build(tmp_path / "project", config(tmp_path)))
    assert step.outcome is Outcome.OK
    assert step.notes == ("xc7a35tcsg324-1 is not among the known devices: not checked whether the design fits",)


# --- licences --------------------------------------------------------------------------------------------------------

NO_SERVER = (
    "echo 'ERROR: [Common 17-345] A valid license was not found'; echo 'FLEXnet Licensing error:-15,570.'; exit 1"
)


def test_a_licence_failure_waits_and_is_tried_again(tmp_path: Path) -> None:
    told: list[str] = []
    body = f"echo x >>{tmp_path}/tries; [ $(wc -l <{tmp_path}/tries) -lt 3 ] && {{ {NO_SERVER}; }}"
    result = run(tmp_path, body, told=told)
    assert result.ok
    waits = [line for line in told if "retry" in line]
    assert len(waits) == 2
    assert "licence: the licence server cannot be reached" in waits[0]
    assert waits[0].endswith("retry 1 of 5 in 0.05 s")
    assert waits[1].endswith("retry 2 of 5 in 0.1 s")


def test_a_licence_that_never_comes(tmp_path: Path) -> None:
    step = only(run(tmp_path, f"echo x >>{tmp_path}/tries; {NO_SERVER}", licence_retries=2))
    assert step.outcome is Outcome.LICENCE
    assert (tmp_path / "tries").read_text() == "x\n" * 3


@pytest.mark.parametrize(
    ("line", "cause", "again"),
    [
        ("FLEXnet Licensing error:-5,357.", "has no such feature", False),
        ("ERROR: the license of feature Synthesis has expired", "has expired", False),
        ("FLEXnet Licensing error:-4,132. Licensed number of users already reached.", "in use", True),
        ("ERROR: [Common 17-345] A valid license was not found for feature 'Synthesis'", "no licence was given", True),
        ("cannot connect to license server system", "server cannot be reached", True),
    ],
)
def test_licence_messages(tmp_path: Path, line: str, cause: str, again: bool) -> None:
    step = only(run(tmp_path, f'echo x >>{tmp_path}/tries; echo "{line}"; exit 1', licence_retries=1))
    assert step.outcome is Outcome.LICENCE
    assert cause in step.cause
    assert len((tmp_path / "tries").read_text().split()) == (2 if again else 1)


def test_words_about_licences_in_a_good_log_mean_nothing(tmp_path: Path) -> None:
    body = "echo \"WARNING: No 'Implementation' license found. FLEXnet Licensing error:-5,357\""
    assert run(tmp_path, body).ok
    assert causes.retried("no words on it")


NOISE = "echo 'LM_LICENSE_FILE=2100@server'; echo 'INFO: license checked'; echo 'Killed 3 redundant registers'"
NOISE += "; echo '// handles out of memory cases'; echo 'INFO: [x 1] no space left on device: line'"


@pytest.mark.parametrize(
    ("body", "outcome", "cause"),
    [
        (f"{NOISE}; echo 'ERROR: [Synth 8-439] no module'; exit 1", Outcome.TOOL_ERROR, "[Synth 8-439] no module"),
        (f"{NOISE}; exit 1", Outcome.TOOL_ERROR, "names no cause"),
        ("echo 'ERROR: [Common 17-69] License Error: none'; exit 1", Outcome.LICENCE, "no licence was given"),
        ("echo 'ERROR: [HLS 1] broke'; echo 'ERROR: [Common 17-69] License Error'; exit 1", Outcome.LICENCE, "given"),
        ("echo 'ERROR: [HLS 207] license.h: x'; echo 'FLEXnet Licensing error:-5,1'; exit 1", Outcome.TOOL_ERROR, "x"),
        (
            "echo 'ERROR: [Place 30-640] This design requires more Slice LUTs cells than are available.'; exit 1",
            Outcome.DOES_NOT_FIT,
            "[Place 30-640] This design requires more Slice LUTs cells than are available: take narrower bits",
        ),
        (
            "echo \"terminate called after throwing 'std::bad_alloc'\"; exit 134",
            Outcome.OUT_OF_MEMORY,
            "no more memory",
        ),
        ("echo 'ERROR: [Common 17-179] Fork failed: Cannot allocate memory'; exit 1", Outcome.OUT_OF_MEMORY, "memory"),
    ],
)
def test_only_lines_that_complain_count(tmp_path: Path, body: str, outcome: Outcome, cause: str) -> None:
    step = only(run(tmp_path, body, licence_retries=0))
    assert step.outcome is outcome, step
    assert cause in step.cause


def test_licences_cap_what_runs_at_once_over_processes(tmp_path: Path) -> None:
    """Each tool notes how many run; with two licences and four projects in two processes never more than two do."""
    count = f"""mkdir -p {tmp_path}/running; touch {tmp_path}/running/$$
ls {tmp_path}/running | wc -l >>{tmp_path}/counts; sleep 0.3; rm {tmp_path}/running/$$"""
    tool(tmp_path / "bin", "vitis_hls", count)
    settings = config(tmp_path, licences=2)
    folders = [project(tmp_path / str(i) / "project") for i in range(4)]
    there = f"from hawq_flow.synthesis import *; a = build_all({[str(f) for f in folders[2:]]}, {settings!r})"
    other = subprocess.Popen(
        [sys.executable, "-c", f"{there}; assert all(b.ok for b in a)"], cwd=Path(__file__).parents[1]
    )
    mine = build_all(folders[:2], settings, print)
    assert other.wait(30) == 0
    assert all(result.ok for result in mine)
    assert [result.project.folder for result in mine] == folders[:2]
    counts = [int(line) for line in (tmp_path / "counts").read_text().split()]
    assert len(counts) == 4
    assert max(counts) <= 2


def test_one_licence_lets_the_second_wait_and_says_so(tmp_path: Path) -> None:
    told: list[str] = []
    (tmp_path / "locks").mkdir()
    with (tmp_path / "locks/place-0.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        threading.Timer(0.5, lambda: fcntl.flock(lock, fcntl.LOCK_UN)).start()
        assert run(tmp_path, told=told).ok
    assert any("waits for one of 1 licences" in line for line in told)


# --- projects and settings -------------------------------------------------------------------------------------------


def test_an_unknown_banner_gives_no_version(tmp_path: Path) -> None:
    tool(tmp_path / "bin", "vitis_hls", banner="High-Level Synthesis, as ever")
    step = only(build(project(tmp_path / "project"), config(tmp_path)))
    assert (step.outcome, step.version) == (Outcome.OK, None)
    assert "of unknown version" in str(step)


@pytest.mark.parametrize(
    ("name", "old", "new", "text"),
    [
        ("hawq_flow.json", '"format"', '"former"', "unreadable"),
        ("hawq_flow.json", "hawq_flow.hls", "other", "expected 'hawq_flow.hls'"),
        ("hawq_flow.json", '"Vitis"', '"Catapult"', "back end 'Catapult'; Vivado HLS and Vitis HLS are run"),
        ("hawq_flow.json", '"network"', '"net; rm"', "top 'net; rm'"),
        (
            "project.tcl",
            "set clock_period 5.0",
            "set clock_period 4",
            "project.tcl: part .*, clock 4 ns; hawq_flow.json",
        ),
        ("project.tcl", "set part", "set parts", "part is None"),
        ("project.tcl", "set clock_period 5.0", "set clock_period 5.0.0", "clock_period is '5.0.0'"),
        ("project.tcl", "set clock_period 5.0", "set clock_period 5%", "clock_period is '5%'"),
        ("hawq_flow.json", "{", "", r"hawq_flow\.json: unreadable .*; copy or write it again"),
        ("hawq_flow.json", '"format"', "\udcff", r"hawq_flow\.json: is not UTF-8 text"),
        ("project.tcl", "set part", "\udcff", r"project/project\.tcl: is not UTF-8 text"),
        ("network_test.cpp", "vector<float>", "\udcff", r"project/network_test\.cpp: is not UTF-8 text"),
        ("network_test.cpp", "vector<float>", "vector<half>", "not the test bench of hls4ml 1.3.0"),
    ],
)
def test_projects_that_are_none(tmp_path: Path, name: str, old: str, new: str, text: str) -> None:
    tool(tmp_path / "bin", "vitis_hls")
    path = project(tmp_path / "project") / name
    path.write_text(path.read_text().replace(old, new), errors="surrogateescape")
    with pytest.raises(SynthesisError, match=text):
        build(tmp_path / "project", config(tmp_path))


def test_a_project_without_a_file_and_no_project(tmp_path: Path) -> None:
    (project(tmp_path / "project") / "firmware/network.cpp").unlink()
    with pytest.raises(SynthesisError, match=r"no firmware/network\.cpp; write the project again"):
        build(tmp_path / "project")
    with pytest.raises(SynthesisError, match=r"no hawq_flow\.json; expected a project"):
        build_all([tmp_path])


def test_a_project_inside_an_artifact_keeps_its_results_beside_it(tmp_path: Path) -> None:
    where = project(tmp_path / "vitis" / "project")
    (tmp_path / "vitis" / store.MANIFEST).write_text("{}")
    tool(tmp_path / "bin", "vitis_hls")
    assert build(where, config(tmp_path)).ok
    assert (tmp_path / "vitis.synthesis/csynth/result.json").is_file()
    assert {p.name for p in (tmp_path / "vitis").iterdir()} == {"project", store.MANIFEST}


def test_a_kept_result_that_was_changed_is_refused(tmp_path: Path) -> None:
    assert run(tmp_path).ok
    path = tmp_path / "project.synthesis/csynth/reports/network_csynth.xml"
    path.write_text(path.read_text().replace("<LUT>400", "<LUT>4"))
    with pytest.raises(store.StoreError, match=r"network_csynth\.xml: changed since it was made"):
        reports(tmp_path / "project")
    assert not only(run(tmp_path)).reused


def test_the_environment_and_the_limits_reach_the_tool(tmp_path: Path) -> None:
    step = only(run(tmp_path, 'echo "locale $LC_ALL in $(pwd)"'))
    assert "locale C in " in step.tail
    assert str(tmp_path / "project") + "\n" not in step.tail
    assert json.loads((tmp_path / "project.synthesis/csynth/result.json").read_text())["version"] == "2022.2"
    assert os.listdir(tmp_path / "locks") == ["place-0.lock"]
