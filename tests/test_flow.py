"""The whole road on the tiny experiment: every stage, its artifacts, reuse, proof, and the notebooks that read them."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import nbformat
import numpy as np
import pytest
import torch
from nbclient import NotebookClient

from hawq_flow import equality, store
from hawq_flow.config import ConfigError, Experiment, load
from hawq_flow.flow import STAGES, Flow, FlowError
from hawq_flow.interpret import run as interpret
from hawq_flow.network import IntegerNetwork
from hawq_flow.numeric import Rounding
from hawq_flow.plan import BitPlan, bops
from hawq_flow.reporter import Reporter

ROOT = Path(__file__).parent.parent
TINY = ROOT / "experiments" / "tiny" / "experiment.toml"


class Recorder(Reporter):
    """Remembers which stages worked and which were reused."""

    def __init__(self) -> None:
        self.worked: list[str] = []
        self.reusedd: list[str] = []
        self.results: list[str] = []
        self.warnings: list[str] = []

    def stage(self, name: str, detail: str) -> None:
        self.worked.append(detail)

    def reused(self, name: str, detail: str) -> None:
        self.reusedd.append(detail)

    def warning(self, text: str) -> None:
        self.warnings.append(text)

    def result(self, text: str) -> None:
        self.results.append(text)


@pytest.fixture(scope="module")
def tiny() -> Experiment:
    return load(TINY)


@pytest.fixture(scope="module")
def finished(tiny: Experiment, tmp_path_factory: pytest.TempPathFactory) -> tuple[Flow, Recorder]:
    """The tiny experiment, run to its report, with two representations of the mixed plan simulated in C."""
    recorder = Recorder()
    flow = Flow(tiny, tmp_path_factory.mktemp("run"), recorder)
    flow.run()
    return flow, recorder


def test_every_stage_leaves_a_whole_artifact(finished: tuple[Flow, Recorder]) -> None:
    flow, recorder = finished
    assert len(recorder.worked) == len(set(recorder.worked))
    for place in recorder.worked:
        store.open_artifact(flow.out / place if not place.startswith("mixed/") else flow.out / "hls" / place)
    assert any("0 mismatches" in text for text in recorder.results)


def test_certificates_cover_the_whole_test_set(finished: tuple[Flow, Recorder]) -> None:
    flow, _ = finished
    for name in flow.plan_names:
        certificate = flow.equality(name).json("equality.json")
        assert set(certificate) == {"samples", "backends"}
        assert certificate["samples"] == len(flow.split.test)
        expected = {"qat", "interpreter", "qonnx"} | ({"csim-vitis"} if name == "mixed" else set())
        assert set(certificate["backends"]) == expected
        for entry in certificate["backends"].values():
            assert set(entry) == {"mismatches", "elements", "method", "first_mismatch"}
            assert entry["mismatches"] == 0
            assert entry["first_mismatch"] is None
            assert entry["elements"] >= certificate["samples"] * len(flow.split.classes)


def test_reported_accuracy_is_that_of_the_saved_integers(finished: tuple[Flow, Recorder]) -> None:
    flow, _ = finished
    report = flow.report().json("report.json")
    for name, plan in report["plans"].items():
        network = IntegerNetwork.load(flow.out / "network" / name)
        predicted = interpret(network, network.inputs[0].integers(flow.split.test.x)).argmax(axis=1)
        assert plan["accuracy"] == pytest.approx((predicted == flow.split.test.y).mean(), abs=0)
        assert plan["bops"] == bops(BitPlan.from_dict(plan["plan"]), flow.topology.shapes)
        assert plan["sparse_bops"] <= plan["bops"]
        assert plan["digest"] == network.digest
        assert plan["equal"] is True
    counts = np.array(report["confusion"]["counts"])
    assert counts.sum() == report["samples"]
    assert np.trace(counts) / counts.sum() == pytest.approx(report["plans"]["mixed"]["accuracy"], abs=1e-12)


def test_mixed_plan_keeps_its_budget(finished: tuple[Flow, Recorder]) -> None:
    flow, _ = finished
    reference = bops(flow.plan("int8"), flow.topology.shapes)
    assert bops(flow.plan("mixed"), flow.topology.shapes) <= 0.6 * reference


def test_second_run_reuses_everything(finished: tuple[Flow, Recorder], tiny: Experiment) -> None:
    flow, first = finished
    recorder = Recorder()
    Flow(tiny, flow.out, recorder).run()
    assert recorder.worked == []
    assert set(recorder.reusedd) == set(first.worked)


def test_a_changed_section_remakes_only_what_depends_on_it(
    finished: tuple[Flow, Recorder], tiny: Experiment, tmp_path: Path
) -> None:
    flow, _ = finished
    shutil.copytree(flow.out, tmp_path / "run")
    changed = dataclasses.replace(tiny, allocate=dataclasses.replace(tiny.allocate, bops=0.7))
    recorder = Recorder()
    Flow(changed, tmp_path / "run", recorder).run("plans")
    assert recorder.worked == ["plans/mixed"]
    recorder = Recorder()
    Flow(dataclasses.replace(tiny, seed=1), tmp_path / "run", recorder).run("float")
    assert recorder.worked == ["float"]


def test_same_seed_same_bytes(finished: tuple[Flow, Recorder], tiny: Experiment, tmp_path: Path) -> None:
    flow, _ = finished
    again = Flow(tiny, tmp_path)
    again.run("export")
    for place in ("float", "sensitivity", "plans/mixed", "qat/mixed", "network/mixed", "qonnx/mixed"):
        first = store.open_artifact(flow.out / place).manifest
        assert store.open_artifact(tmp_path / place).manifest == first, place


def test_a_mismatch_stops_the_run_and_is_named(
    finished: tuple[Flow, Recorder], tiny: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow, _ = finished
    shutil.copytree(flow.out, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "equality" / "int4")
    other = Flow(tiny, tmp_path / "run")
    honest = other.quantized

    def planted(name: str):  # type: ignore[no-untyped-def]
        model = honest(name)
        layer = model.layers[0]
        layer.weight.data[0, 10] += 1.01 * float(layer.scales(model.input_scale)[1][0])
        return model

    monkeypatch.setattr(other, "quantized", planted)
    with pytest.raises(FlowError, match=r"plan int4: not equal on 359 samples\nqat: .* differ; first _1\[0\] in row"):
        other.run("equality")
    certificate = store.open_artifact(tmp_path / "run" / "equality" / "int4").json("equality.json")
    assert not equality.equal(certificate)


def test_until_stops(tiny: Experiment, tmp_path: Path) -> None:
    recorder = Recorder()
    Flow(tiny, tmp_path, recorder).run("data")
    assert recorder.worked == ["data"]
    with pytest.raises(FlowError, match="unknown stage 'fpga'; expected one of data, float"):
        Flow(tiny, tmp_path).run("fpga")
    assert STAGES[-1] == "report"


def test_outputs_must_be_the_classes(tiny: Experiment, tmp_path: Path) -> None:
    text = "from torch import nn\ndef build(): return nn.Sequential(nn.Flatten(), nn.Linear(64, 3))"
    (tmp_path / "model.py").write_text(text)
    model = dataclasses.replace(tiny.model, file=str(tmp_path / "model.py"), arguments={})
    with pytest.raises(FlowError, match=r"3 outputs for 10 classes"):
        _ = Flow(dataclasses.replace(tiny, model=model), tmp_path / "run").topology


def _changed(tiny: Experiment, section: str, **change: object) -> Experiment:
    return dataclasses.replace(tiny, **{section: dataclasses.replace(getattr(tiny, section), **change)})


@pytest.mark.parametrize(
    ("section", "change", "remade"),
    [
        # Rounding can train to the very same state, and yet is another network: everything behind must follow.
        ("quant", {"rounding": Rounding.HALF_UP}, {"qat/mixed", "network/mixed", "qonnx/mixed", "equality/mixed"}),
        ("quant", {"multiplier_bits": 5}, {"qat/mixed", "network/mixed", "qonnx/mixed"}),
        ("firmware", {"vectors": 16}, {"mixed/vitis"}),
        ("hls", {"clock_period_ns": 4.0}, {"mixed/vitis"}),
        ("plans", {"input_bits": 7}, {"plans/mixed", "qat/mixed", "network/mixed"}),
        ("qat", {"lr": 1e-3}, {"qat/mixed", "network/mixed"}),
        ("sensitivity", {"samples": 500}, {"sensitivity", "plans/mixed"}),
        ("data", {"seed": 3}, {"data", "float", "sensitivity", "qat/mixed", "network/mixed"}),
    ],
)
def test_every_key_remakes_what_depends_on_it(
    finished: tuple[Flow, Recorder],
    tiny: Experiment,
    tmp_path: Path,
    section: str,
    change: dict[str, object],
    remade: set[str],
) -> None:
    flow, _ = finished
    shutil.copytree(flow.out, tmp_path / "run")
    recorder = Recorder()
    other = Flow(_changed(tiny, section, **change), tmp_path / "run", recorder)
    other.run("equality" if "equality/mixed" in remade else "hls")
    assert remade <= set(recorder.worked), recorder.worked
    network, fresh = other.network("mixed"), Flow(_changed(tiny, section, **change), tmp_path / "fresh")
    if section == "quant":
        assert network == fresh.network("mixed")
        assert network != flow.network("mixed")


def test_another_seed_is_another_network(tiny: Experiment, tmp_path: Path) -> None:
    first, second = (Flow(dataclasses.replace(tiny, seed=s), tmp_path / str(s)).fresh_model() for s in (0, 1))
    assert not torch.equal(first.state_dict()["1.weight"], second.state_dict()["1.weight"])


def test_names_are_checked_before_anything_is_trained(tiny: Experiment, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"firmware: plans names 'int5'; did you mean 'int8'\? There are int8, int4, mixed"
    ):
        dataclasses.replace(tiny, firmware=dataclasses.replace(tiny.firmware, plans=("int5",)))
    for change, text in (
        ({"fixed": {"8": 4}}, r"fixed names '8'; .*There are 1, 4, 7"),
        ({"tied": (("1", "5"),)}, r"tied names '5'; .*There are 1, 4, 7"),
        ({"tied": (("1", "4"), ("4", "7"))}, r"tied names '4' twice; merge its groups"),
    ):
        recorder = Recorder()
        other = dataclasses.replace(tiny, allocate=dataclasses.replace(tiny.allocate, **change))
        with pytest.raises(ConfigError, match=text):
            Flow(other, tmp_path, recorder).run()
        assert "float" not in recorder.worked


def test_default_firmware_is_the_first_plan_of_each_kind(tiny: Experiment) -> None:
    plain = dataclasses.replace(tiny, firmware=dataclasses.replace(tiny.firmware, plans=None))
    assert plain.firmware_plans == ["int8", "mixed"]


def test_an_infeasible_budget_says_whose_it_is(finished: tuple[Flow, Recorder], tiny: Experiment) -> None:
    flow, _ = finished
    other = dataclasses.replace(tiny, allocate=dataclasses.replace(tiny.allocate, bops=0.01))
    with pytest.raises(
        FlowError, match=r"plan mixed: budget of BOPs 0.01 \(0.01 of int8's\): .*smallest feasible value"
    ):
        Flow(other, flow.out).plan("mixed")


def test_warnings_of_few_steps_odd_reuse_factors_and_stale_projects(
    finished: tuple[Flow, Recorder], tiny: Experiment, tmp_path: Path
) -> None:
    flow, _ = finished
    shutil.copytree(flow.out, tmp_path / "run")
    recorder = Recorder()
    few = dataclasses.replace(tiny, train=dataclasses.replace(tiny.train, epochs=2))
    Flow(few, tmp_path / "few", recorder).run("data")
    assert any(text.startswith("[train] makes 40 steps on 1,259 samples") for text in recorder.warnings)
    recorder = Recorder()
    other = dataclasses.replace(
        tiny,
        hls=dataclasses.replace(tiny.hls, strategy="Resource", reuse_factor=7),
        firmware=dataclasses.replace(tiny.firmware, backends=("Vivado",)),
    )
    Flow(other, tmp_path / "run", recorder).run("hls")
    assert any("hls4ml took other reuse factors than 7: " in text for text in recorder.warnings), recorder.warnings
    stale = [text for text in recorder.warnings if "of an earlier run" in text]
    assert len(stale) == 1
    assert "mixed/vitis: a project of" in stale[0]


@pytest.mark.parametrize("notebook", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebooks_run_on_the_tiny_experiment(
    notebook: Path, finished: tuple[Flow, Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    flow, _ = finished
    monkeypatch.setenv("HAWQ_FLOW_RUN", str(flow.out))
    document = nbformat.read(notebook, as_version=4)
    assert all(not cell.get("outputs") for cell in document.cells), "commit notebooks without outputs"
    NotebookClient(document, timeout=300, kernel_name="python3").execute()
    text = json.dumps(document)
    assert "image/png" in text
    assert "0 mismatches" in text or "equal the interpreter" in text
