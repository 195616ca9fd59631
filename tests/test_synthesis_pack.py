"""Packs: built by a shell script without this package, collected only when nothing in them was changed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from fake_vendor import DIGEST, config, hearing, project, tool

from hawq_flow import store
from hawq_flow.synthesis import Outcome, SynthesisError, build, collect, pack, reports
from hawq_flow.synthesis.project import find

STEPS = ("csynth", "cosim", "export", "synthesis", "implementation")


def script(folder: Path, tools: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run ``build.sh`` where PATH has the tools and the system's own programs, no Python of ours."""
    path = f"{tools}:/usr/bin:/bin"
    environment = {"PATH": path, "HOME": str(folder), **variables}
    return subprocess.run(
        ["./build.sh"], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run, its pack, and the pack's results."""
    tmp = tmp_path_factory.mktemp("pack")
    tool(tmp / "bin", "vitis_hls")
    tool(tmp / "bin", "vivado")
    where = project(tmp / "run/hls/mixed/vitis/project")
    pack([where], tmp / "pack", config(tmp, steps=STEPS))
    done = script(tmp / "pack", tmp / "bin")
    assert done.returncode == 0, done.stdout + done.stderr
    return tmp


@pytest.fixture
def there(built: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    shutil.copytree(built, tmp_path / "x")
    return tmp_path / "x"


RESULTS = "results/project"


def test_pack_build_collect(there: Path) -> None:
    (found,) = collect(there / "pack", there / "run")
    assert [(step.name, step.outcome, step.tool) for step in found.steps] == [
        ("csynth", Outcome.OK, "Vitis HLS"),
        ("cosim", Outcome.OK, "Vitis HLS"),
        ("export", Outcome.OK, "Vitis HLS"),
        ("synthesis", Outcome.OK, "Vivado"),
        ("implementation", Outcome.OK, "Vivado"),
    ]
    assert [r.stage for r in found.reports] == ["csynth", "cosim", "synthesis", "implementation"]
    assert {r.digest for r in found.reports} == {DIGEST}
    assert reports(there / "run/hls/mixed/vitis/project") == found.reports
    # As if it had been built here: nothing is left to do, and collecting again changes nothing.
    again = build(there / "run/hls/mixed/vitis/project", config(there, steps=STEPS))
    assert all(step.reused for step in again.steps)
    assert collect(there / "pack", there / "run") == (found,)
    # Here may be no tools at all.
    nowhere = dict.fromkeys(("vivado_hls", "vitis_hls", "vitis_run", "vivado"), "not-here")
    again = build(there / "run/hls/mixed/vitis/project", config(there, steps=STEPS, **nowhere))
    assert again.require().reports == found.reports
    other = build(there / "run/hls/mixed/vitis/project", config(there, steps=STEPS, **nowhere, flatten="none"))
    assert [step.outcome.value for step in other.steps] == ["ok", "ok", "ok", "missing tool", "not run"]


def test_projects_are_found_by_what_they_are(tmp_path: Path) -> None:
    """Not in packs, results and hidden folders; whatever the folders above are called."""
    top = tmp_path / ".hidden" / "my.synthesis.d"
    one = project(top / "old.synthesis" / "b" / "project")
    two = project(top / "run" / "a" / "project")
    tool(tmp_path / "bin", "vitis_hls")
    assert build(two, config(tmp_path, keep_work=True)).ok  # results, and a hidden folder with a copy
    assert (two.parent / "project.synthesis/csynth/hawq_flow.json").is_file()
    assert list(two.parent.glob(".project.synthesis-*/csynth-*/hawq_flow.json"))
    packed = pack([two], top / "run" / "pack", config(tmp_path))
    project(packed / "work" / "project" / "csynth.1.2")  # what build.sh leaves of a step that failed
    (top / "run" / "pack.json").write_text("{}")  # no pack by itself
    assert find(top) == [one, two]
    assert find(two) == [two]
    assert find(packed) == []
    with pytest.raises(SynthesisError, match=r"of the network abababababab; .* has projects of none"):
        collect(packed, packed)  # it is no run


def test_a_pack_has_the_same_bytes_every_time_and_no_path_of_this_machine(built: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    where = built / "run/hls/mixed/vitis/project"
    for out in (first, second):
        pack([where], out, config(built, steps=STEPS))
    files = sorted(p.relative_to(first).as_posix() for p in first.rglob("*") if p.is_file())
    assert "project/sources/firmware/weights/w2.h" in files
    assert "project/implementation.tcl" in files
    for name in files:
        assert (first / name).read_bytes() == (second / name).read_bytes()
        assert (first / name).stat().st_mode == (second / name).stat().st_mode
        assert str(built).encode() not in (first / name).read_bytes()
    assert os.access(first / "build.sh", os.X_OK)
    assert "vector<double>" in (first / "project/sources/network_test.cpp").read_text()
    with pytest.raises(FileExistsError, match="a pack is written whole"):
        pack([where], first)


def test_the_script_is_plain_sh(built: Path) -> None:
    for shell in ("dash", "bash"):
        if shutil.which(shell):
            subprocess.run([shell, "-n", built / "pack/build.sh"], check=True)


def test_several_projects_are_named_apart(tmp_path: Path) -> None:
    tool(tmp_path / "bin", "vitis_hls")
    tool(tmp_path / "bin", "vivado_hls")
    folders = [
        project(tmp_path / "run/hls/mixed/vitis/project"),
        project(tmp_path / "run/hls/int8/vitis/project", digest="cd" * 32),
        project(tmp_path / "run/hls/int8/vivado/project", digest="cd" * 32, backend="Vivado"),
    ]
    pack(folders, tmp_path / "pack", config(tmp_path))
    names = ["int8-vitis-project", "int8-vivado-project", "mixed-vitis-project"]
    assert sorted(json.loads((tmp_path / "pack/pack.json").read_text())["projects"]) == names
    assert script(tmp_path / "pack", tmp_path / "bin").returncode == 0
    found = collect(tmp_path / "pack", tmp_path / "run")
    assert [b.project.digest[:2] for b in found] == ["cd", "cd", "ab"]
    assert [b.steps[0].version for b in found] == ["2022.2", "2020.1", "2022.2"]
    # A pack has files and folders of its own.
    taken = project(tmp_path / "run/one/results")
    pack([taken], tmp_path / "named", config(tmp_path))
    assert list(json.loads((tmp_path / "named/pack.json").read_text())["projects"]) == ["one-results"]
    with pytest.raises(SynthesisError, match="given twice"):
        pack([folders[0], folders[0]], tmp_path / "other")
    with pytest.raises(SynthesisError, match="no project given"):
        pack([], tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("body", "outcome", "cause"),
    [
        ("echo 'ERROR: broken'; exit 1", Outcome.TOOL_ERROR, "broken"),
        ("csynth; exit 0", Outcome.TOOL_ERROR, "not at the end of its script"),
        ("finish", Outcome.NO_REPORT, "left no"),
        ("echo \"ERROR: [HLS 200-1023] Part 'x' is not installed.\"; exit 1", Outcome.MISSING_PART, "not installed"),
        ("sleep 30", Outcome.TIMED_OUT, "ran longer than its limit of 1 s"),
        ("kill -KILL $$", Outcome.OUT_OF_MEMORY, "killed"),
        ("echo 'FLEXnet Licensing error:-15,570.'; exit 1", Outcome.LICENCE, "cannot be reached"),
    ],
)
def test_what_failed_there_is_typed_here(tmp_path: Path, body: str, outcome: Outcome, cause: str) -> None:
    tool(tmp_path / "bin", "vitis_hls", body)
    pack(
        [project(tmp_path / "project")], tmp_path / "pack", config(tmp_path, steps=("csynth", "cosim"), time_limit_s=1)
    )
    done = script(tmp_path / "pack", tmp_path / "bin")
    assert done.returncode == 1
    assert "project: csynth: failed" in done.stdout
    (found,) = collect(tmp_path / "pack", tmp_path)
    assert [step.outcome for step in found.steps] == [outcome, Outcome.NOT_RUN]
    assert cause in found.steps[0].cause
    assert not (tmp_path / "project.synthesis/csynth").exists()


def test_an_old_report_is_left_out_by_the_script_and_refused_here(tmp_path: Path) -> None:
    tool(tmp_path / "bin", "vitis_hls", "csynth; touch -d 2001-01-01 network_prj/solution1/syn/report/*; finish")
    pack([project(tmp_path / "project")], tmp_path / "pack", config(tmp_path))
    done = script(tmp_path / "pack", tmp_path / "bin")
    assert done.returncode == 1
    assert "network_csynth.xml is older than the run" in done.stdout
    with pytest.raises(SynthesisError, match="1 files were older than the run"):
        collect(tmp_path / "pack", tmp_path)


def test_nothing_was_run_or_no_tool_was_there(tmp_path: Path) -> None:
    pack([project(tmp_path / "project")], tmp_path / "pack", config(tmp_path))
    (found,) = collect(tmp_path / "pack", tmp_path)
    assert found.steps[0].outcome is Outcome.NOT_RUN
    assert "run build.sh, or copy its results back" in found.steps[0].cause
    assert script(tmp_path / "pack", tmp_path / "bin").returncode == 1
    (found,) = collect(tmp_path / "pack", tmp_path)
    assert found.steps[0].outcome is Outcome.MISSING_TOOL


def test_tools_can_be_named_and_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    named = tool(tmp_path / "elsewhere", "vitis_hls", f"echo x >>{tmp_path}/runs")
    pack([project(tmp_path / "project")], tmp_path / "pack", config(tmp_path))
    for expected in ("csynth: ok", "csynth: already done"):
        done = script(tmp_path / "pack", tmp_path / "bin", HAWQ_FLOW_VITIS_HLS=str(named))
        assert (done.returncode, expected in done.stdout) == (0, True)
    assert (tmp_path / "runs").read_text() == "x\n"


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def sums(folder: Path) -> None:
    """Checksums made anew: what a forger would do."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p != folder / "SHA256SUMS")
    known = [p for p in files if not {"results", "work"} & {p.relative_to(folder).parts[0]}]
    lines = (f"{store.file_digest(p)}  {p.relative_to(folder).as_posix()}\n" for p in known)
    (folder / "SHA256SUMS").write_text("".join(lines))


XML = f"{RESULTS}/csynth/reports/network_csynth.xml"


def _source(pack: Path) -> None:
    edit(pack / "project/sources/firmware/network.cpp", "network", "netwerk")


def _forged_source(pack: Path) -> None:
    _source(pack)
    sums(pack)


def _forged_script(pack: Path) -> None:
    edit(pack / "project/csynth.tcl", "create_clock -period 5.0", "create_clock -period 9.0")
    sums(pack)


def _forged_steps(pack: Path) -> None:
    edit(pack / "pack.json", '"flatten": "rebuilt"', '"flatten": "none"')
    sums(pack)


def _report(pack: Path) -> None:
    edit(pack / XML, "<LUT>400<", "<LUT>4<")


def _forged(old: str, new: str) -> Any:
    def change(pack: Path) -> None:
        edit(pack / XML, old, new)
        sums(pack / RESULTS / "csynth")

    return change


def _other_network(pack: Path) -> None:
    edit(pack / "pack.json", DIGEST, "cd" * 32)
    sums(pack)


def _other_result(pack: Path) -> None:
    edit(pack / RESULTS / "csynth/result.json", DIGEST, "cd" * 32)
    sums(pack / RESULTS / "csynth")


def _without_log(pack: Path) -> None:
    (pack / RESULTS / "csynth/csynth.log").unlink()
    sums(pack / RESULTS / "csynth")


def _other_time(pack: Path) -> None:
    path = pack / RESULTS / "synthesis/result.json"
    data = json.loads(path.read_text())
    path.write_text(json.dumps({**data, "start": "2999-01-01T00:00:00"}))
    sums(pack / RESULTS / "synthesis")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (_source, r"network\.cpp: changed since SHA256SUMS was written"),
        (_forged_source, r"project: sources/firmware/network\.cpp: not what .* gives; the pack was changed"),
        (_forged_script, r"csynth\.tcl: not what .* gives"),
        (_forged_steps, r"synthesis\.tcl: not what .* gives"),
        (lambda pack: (pack / "project/csynth.tcl").unlink(), r"project/csynth\.tcl: missing; copy the whole"),
        (
            lambda pack: (pack / "project/more.tcl").write_text(""),
            r"project/more\.tcl: not in SHA256SUMS; remove what was added",
        ),
        (lambda pack: (pack / "SHA256SUMS").unlink(), "no SHA256SUMS; not a whole pack"),
        (_other_network, r"of the network cdcdcdcdcdcd; .* has projects of abababababab"),
        (lambda pack: (pack / "SHA256SUMS").write_bytes(b"\xff"), "SHA256SUMS: is not UTF-8 text"),
        (lambda pack: _without_log(pack), r"no csynth\.log; run build\.sh again"),
        (_report, r"network_csynth\.xml: changed since SHA256SUMS"),
        (_forged("xcvu9p-flga2104-2L-e", "xcvu9p-flga2104-3-e"), "the project is for xcvu9p-flga2104-2L-e"),
        (_forged(">5.00<", ">4.00<"), r"a clock of 4\.0 ns; the project is for 5\.0 ns"),
        (_forged(">network<", ">other<"), "is for the design 'other'"),
        (_forged("</profile>", ""), "network_csynth.xml"),
        (_other_result, "results of the network cdcdcdcdcdcd; expected abababababab"),
        (_other_time, "before the run that began 2999"),
        (lambda pack: (pack / RESULTS / "csynth/SHA256SUMS").unlink(), "results whose making was interrupted"),
        (lambda pack: edit(pack / "pack.json", '"version": 1', '"version": 2'), "expected 'hawq_flow.pack' version 1"),
    ],
)
def test_tampering_is_found(there: Path, change: Any, text: str) -> None:
    change(there / "pack")
    with pytest.raises(SynthesisError, match=text):
        collect(there / "pack", there / "run")
    if text.startswith(("network\\.cpp: changed", "project/csynth")):  # the script looks before it begins
        done = script(there / "pack", there / "bin")
        assert (done.returncode, "not as it was packed" in done.stderr) == (2, True)


def test_a_project_that_changed_since_is_not_given_results(there: Path) -> None:
    edit(there / "run/hls/mixed/vitis/project/firmware/weights/w2.h", "3", "4")
    with pytest.raises(SynthesisError, match="with other sources or settings than that project has now; pack it again"):
        collect(there / "pack", there / "run")


def test_a_simulation_that_differed_there(tmp_path: Path) -> None:
    tool(tmp_path / "bin", "vitis_hls", "rtl() { echo 1 2 3 4; }")
    pack([project(tmp_path / "project")], tmp_path / "pack", config(tmp_path, steps=("csynth", "cosim")))
    assert script(tmp_path / "pack", tmp_path / "bin").returncode == 0
    (found,) = collect(tmp_path / "pack", tmp_path)
    assert [step.outcome for step in found.steps] == [Outcome.OK, Outcome.DIFFERENT]
    assert not (tmp_path / "project.synthesis/cosim").exists()


def test_no_pack(tmp_path: Path) -> None:
    with pytest.raises(SynthesisError, match=r"pack\.json: unreadable"):
        collect(tmp_path, tmp_path)
    with pytest.raises(SynthesisError, match=r"nosuch: no such folder; expected the pack"):
        collect(tmp_path / "nosuch", tmp_path)
    with pytest.raises(SynthesisError, match=r"nosuch: no such folder; expected the run"):
        collect(tmp_path, tmp_path / "nosuch")


def test_files_beside_what_was_packed_do_not_matter(there: Path) -> None:
    (there / "pack/nohup.out").write_text("")
    (there / "pack/.lock").mkdir()
    (there / "pack/.lock/owner").write_text("elsewhere 1\n")
    assert collect(there / "pack", there / "run")[0].ok


# --- scripts that are interrupted, or run twice ----------------------------------------------------------------------


def started(folder: Path, tools: Path, pid: Path) -> subprocess.Popen[str]:
    """``build.sh`` at work: its tool has written ``pid``."""
    environment = {"PATH": f"{tools}:/usr/bin:/bin", "HOME": str(folder)}
    process = subprocess.Popen(
        ["./build.sh"], cwd=folder, env=environment, stdout=subprocess.DEVNULL, text=True, preexec_fn=hearing
    )
    end = time.monotonic() + 20
    while not pid.exists() and time.monotonic() < end:
        time.sleep(0.02)
    return process


def gone(pid: int) -> bool:
    end = time.monotonic() + 5
    path = Path(f"/proc/{pid}/stat")
    while path.exists() and " Z " not in path.read_text() and time.monotonic() < end:
        time.sleep(0.02)
    return not path.exists() or " Z " in path.read_text()


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    """A pack whose tool sleeps the first time, and writes a report with other figures in the end."""
    body = f"""[ -e {tmp_path}/pid ] && {{ work; finish; }}
sleep 2 & echo $! >{tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid; wait; lut=999"""
    tool(tmp_path / "bin", "vitis_hls", body)
    pack([project(tmp_path / "project")], tmp_path / "pack", config(tmp_path))
    return tmp_path


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_script_that_is_interrupted_ends_its_tool(slow: Path, number: signal.Signals) -> None:
    process = started(slow / "pack", slow / "bin", slow / "pid")
    process.send_signal(number)
    assert process.wait(15) == 128 + number
    assert gone(int((slow / "pid").read_text()))
    assert not (slow / "pack/.lock").exists()
    assert not list((slow / "pack/results/project").glob("csynth"))


def test_the_report_of_a_tool_that_outlived_its_script_is_nobodys(slow: Path) -> None:
    """Killed with no chance to end its tool, which then writes a report while the next script runs."""
    process = started(slow / "pack", slow / "bin", slow / "pid")
    process.kill()
    process.wait(5)
    assert script(slow / "pack", slow / "bin").returncode == 0
    assert gone(int((slow / "pid").read_text()))
    time.sleep(0.3)
    (found,) = collect(slow / "pack", slow)
    assert [r.used.lut for r in found.reports] == [400]


def test_a_second_script_in_a_folder_is_refused(slow: Path) -> None:
    process = started(slow / "pack", slow / "bin", slow / "pid")
    done = script(slow / "pack", slow / "bin")
    assert done.returncode == 2
    assert f"another build.sh (process {process.pid} on " in done.stderr
    assert "if it has ended, remove" in done.stderr
    assert process.wait(15) == 0
    assert collect(slow / "pack", slow)[0].ok
