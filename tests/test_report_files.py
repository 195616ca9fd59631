"""The 331 real reports beside the repository: each read or refused for a true reason; figures read by eye; cuts.

``report_golden`` has what was read by eye.
"""

from __future__ import annotations

import csv
import dataclasses
import random
import re
import statistics
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from report_golden import GOLDEN

from hawq_flow import devices, report
from hawq_flow.report import HlsReport, NoFigures, ReportError

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
REPORTS = DATA / "reports"
pytestmark = pytest.mark.skipif(not REPORTS.is_dir(), reason="the reports stand beside the repository, not in it")


@lru_cache
def index() -> tuple[Path, ...]:
    with (REPORTS / "INDEX.csv").open() as file:
        return tuple(DATA / row["local"] for row in csv.DictReader(file))


@lru_cache
def outcome(path: Path) -> tuple[HlsReport, ...] | ReportError:
    try:
        return report.read_all(path)
    except ReportError as error:
        return error


def expected(path: Path) -> str:
    """What a file must come to, told from its name alone: a stage, or a word of the refusal."""
    name = path.name
    for sign, word in (
        ("design_size", "a design size report"),
        ("_drc_", "a DRC report"),
        ("clock_utilization", "a clock utilization report"),
        ("route_status", "a route status report"),
        (".log", "the log of a tool's run"),
    ):
        if sign in name:
            return word
    if "export" in name:
        return "implementation" if "phil" in str(path) else "synthesis"
    if re.search(r"vivado_synth|utilization_synth|timing_synth", name):
        return "synthesis"
    if re.search(r"_placed|_routed", name):
        return "implementation"
    return "cosim" if "cosim" in name else "csynth"


def test_all_files_are_read_or_refused_for_a_true_reason() -> None:
    assert len(index()) == 331
    kinds: Counter[str] = Counter()
    for path in index():
        want, found = expected(path), outcome(path)
        kinds[want] += 1
        if isinstance(found, ReportError):
            assert isinstance(found, NoFigures), found
            assert f"found {want}" in str(found)
        else:
            assert found[0].stage == want, path
            assert found[0].sources == (str(path),)
    assert kinds == {
        "csynth": 260,
        "cosim": 1,
        "synthesis": 28,
        "implementation": 15,
        "a design size report": 14,
        "a DRC report": 3,
        "a clock utilization report": 4,
        "a route status report": 3,
        "the log of a tool's run": 3,
    }


def test_every_report_says_what_it_is() -> None:
    for path in index():
        found = outcome(path)
        if isinstance(found, ReportError):
            continue
        for one in found:
            assert re.fullmatch(r"20\d\d\.\d(\.\d)?", one.version or "") or one.stage == "cosim", path
            assert re.fullmatch(r"xc\w+-[a-z]+\d+(-\d\w*)?(-[a-z])?", one.part or "") or one.stage == "cosim", path
            assert one.date is not None or path.suffix == ".xml", path
            if one.stage == "csynth":
                assert None not in (one.used.lut, one.used.ff), path
                assert one.version == path.relative_to(REPORTS).parts[0]


def differences(found: Any, want: Mapping[str, Any]) -> dict[str, Any]:
    return {name: (getattr(found, name), value) for name, value in want.items() if getattr(found, name) != value}


@pytest.mark.parametrize("name", list(GOLDEN))
def test_figures_read_by_eye(name: str) -> None:
    want = dict(GOLDEN[name])
    found = report.read_all(REPORTS / name)
    one = found[0]
    assert not differences(one.used, want.pop("used", {}))
    assert not differences(one.available, want.pop("available", {}))
    assert not differences(one.available_slr, want.pop("available_slr", {}))
    assert not differences(one.timing, want.pop("timing", {}))
    if "cosim" in want:
        assert not differences(found[1].timing, want.pop("cosim"))
    if "power" in want:
        assert (one.power_w, one.power_dynamic_w, one.power_static_w) == want.pop("power")
    if "modules" in want:
        assert len(one.modules) == want.pop("modules")
    for key, attribute in (("row", "instance"), ("module", "module")):
        if key in want:
            label, area, timing = want.pop(key)
            (row,) = [row for row in one.modules if getattr(row, attribute) == label]
            assert not differences(row.used, area)
            assert not differences(row.timing, timing)
    assert not differences(one, want)


def test_enough_was_read_by_eye() -> None:
    assert len(GOLDEN) >= 60
    assert {name.split("/")[0] for name in GOLDEN} == {p.relative_to(REPORTS).parts[0] for p in index()} - {"unknown"}


def test_devices_have_what_the_reports_say() -> None:
    checked: Counter[str] = Counter()
    for path in index():
        found = outcome(path)
        if isinstance(found, ReportError):
            continue
        for one in found:
            device = devices.find(one.part) if one.part else None
            assert device is not None or one.part is None, path
            for name, value in one.available.figures().items():
                if name in devices.RESOURCES and device is not None:
                    assert getattr(device, name) == value, (path, name)
                    checked[device.name] += 1
            for name, value in one.available_slr.figures().items():
                assert device is not None
                assert device.slr()[name] == value, (path, name)
    assert set(checked) == {device.name for device in devices.load()} - {"VU13P"}


@lru_cache
def gathered() -> tuple[tuple[HlsReport, ...], tuple[report.Refusal, ...]]:
    return report.tree([REPORTS])


def projects() -> dict[tuple[str, str], HlsReport]:
    reports, _ = gathered()
    return {(Path(str(one.project)).name, one.stage): one for one in reports if one.stage in ("csynth", "synthesis")}


def test_the_folders_of_reports() -> None:
    reports, refusals = gathered()
    stages = Counter(one.stage for one in reports)
    assert stages == {"csynth": 29, "cosim": 4, "synthesis": 17, "implementation": 6}
    wrong = {Path(refusal.path).name: refusal.reason for refusal in refusals if not refusal.in_order}
    assert set(wrong) == {"tutorial_svhn_cnn", "generic_gaussian", "vitis_accel_u55c"}  # two runs in one folder each
    assert all("expected one run of one design" in reason for reason in wrong.values())
    found = projects()
    core = found["Keb-L_core_model16", "synthesis"]
    assert (core.used.lut, core.timing.wns_ns, core.timing.clock_estimate_ns, len(core.sources)) == (
        130031,
        1.093,
        3.907,
        3,
    )
    frame = report.table(reports, devices.find)
    assert len(frame) == len(reports)
    both = frame[["csynth_lut", "synthesis_lut"]].notna()
    assert not (both["csynth_lut"] & both["synthesis_lut"]).any()


def test_estimates_of_hls_are_not_logic_synthesis() -> None:
    """The median ratios csynth / logic synthesis of the folders that have both for one design."""
    found = projects()
    pairs = [
        (one, found[name, "synthesis"])
        for (name, stage), one in found.items()
        if stage == "csynth" and (name, "synthesis") in found
    ]
    pairs = [(one, two) for one, two in pairs if two.top in (one.top, "bd_0_wrapper") or str(one.top) in str(two.top)]
    assert len(pairs) == 10
    medians = {
        name: statistics.median(
            getattr(one.used, name) / getattr(two.used, name) for one, two in pairs if getattr(two.used, name)
        )
        for name in ("lut", "ff", "dsp")
    }
    assert {name: round(value, 2) for name, value in medians.items()} == {"lut": 2.21, "ff": 1.26, "dsp": 1.0}


def test_real_reports_cut_anywhere(tmp_path: Path) -> None:
    """A real report of each kind and version, cut at random places and ends of lines: refused, or the same figures."""
    chosen: dict[tuple[str, ...], Path] = {}
    for path in index():
        found = outcome(path)
        if not isinstance(found, ReportError) and path.stat().st_size < 100_000:
            kind = re.sub(r"^.*?(csynth|utilization|vivado|timing|power|export|cosim|core).*$", r"\1", path.name)
            chosen.setdefault((str(found[0].version), kind, path.suffix, str(path.name == "csynth.rpt")), path)
    assert len(chosen) >= 25
    rng = random.Random(5)
    refused = 0
    for path in chosen.values():
        found = outcome(path)
        assert not isinstance(found, ReportError)
        full = [dataclasses.replace(one, sources=()) for one in found]
        data = path.read_bytes()
        ends = [i + 1 for i, byte in enumerate(data) if byte == 10]
        copy = tmp_path / path.name
        for place in [*(rng.randrange(1, len(data)) for _ in range(4)), *(rng.choice(ends) for _ in range(4))]:
            if not data[place:].strip():
                continue
            copy.write_bytes(data[:place])
            try:
                part = report.read_all(copy)
            except ReportError:
                refused += 1
                continue
            assert [dataclasses.replace(one, sources=()) for one in part] == full[: len(part)], (path, place)
    assert refused > 150
