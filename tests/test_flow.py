"""The whole road on the tiny experiment: every stage, its artifacts, reuse, proof, and the notebooks that read them."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from pathlib import Path

import nbformat
import numpy as np
import pytest
import torch
from nbclient import NotebookClient

from hawq_flow import equality, handover, prove, quality, store, to_onnx
from hawq_flow.config import ConfigError, Experiment, HlsStage, OnnxConfig, load
from hawq_flow.flow import STAGES, Flow, FlowError
from hawq_flow.flow.handover import experiment_of, of_run
from hawq_flow.interpret import run as interpret
from hawq_flow.network import IntegerNetwork
from hawq_flow.numeric import Rounding
from hawq_flow.plan import BitPlan, bops
from hawq_flow.reporter import Reporter
from hawq_flow.train import predict

ROOT = Path(__file__).parent.parent
TINY = ROOT / "experiments" / "tiny" / "experiment.toml"
ONNX = ("onnx-plain", "onnx-optimized", "onnx-reference")


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
        expected = {"qat", "interpreter", "qonnx", *ONNX} | ({"csim-vitis", "cpp"} if name == "mixed" else set())
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


def test_a_plan_is_handed_over(finished: tuple[Flow, Recorder], tmp_path: Path) -> None:
    flow, _ = finished
    with pytest.raises(FlowError, match="handover: no plan 'int9'; the experiment has "):
        of_run(flow, "int9")
    contents = of_run(flow, "mixed", rows=20)
    assert contents.name == "tiny-mixed"
    assert contents.data_rows == 20
    assert list(contents.projects) == ["Vitis"]
    assert contents.without_rtl == "the plan is none of [rtl] in the experiment"
    assert contents.certificate == flow.equality("mixed").json("equality.json")
    assert contents.result is not None
    assert contents.result["test_accuracy"] == flow.qat("mixed").json("result.json")["test_accuracy"]
    assert np.array_equal(contents.rows["x"], contents.network.inputs[0].integers(flow.split.test.x[:20]))
    digest = handover.write(contents, tmp_path / "tiny.tar.gz")
    found = handover.check(tmp_path / "tiny.tar.gz")
    assert found.manifest == digest
    assert found.network == flow.network("mixed").digest


def test_an_experiment_is_found_by_its_firmware(tmp_path: Path) -> None:
    assert experiment_of(TINY) == TINY
    assert experiment_of(TINY.parent) == TINY.parent
    with pytest.raises(FlowError, match="no such file or folder; give an experiment's TOML, or its firmware folder"):
        experiment_of(tmp_path / "none")
    own = tmp_path / "experiments" / "own" / "experiment.toml"
    own.parent.mkdir(parents=True)
    text = TINY.read_text().replace("[firmware]", '[firmware]\nfolder = "../../firmware/own"')
    own.write_text(text)
    (tmp_path / "firmware" / "own").mkdir(parents=True)
    (tmp_path / "firmware" / "other").mkdir()
    assert experiment_of(tmp_path / "firmware" / "own") == own
    with pytest.raises(FlowError, match="no experiment near it has it as"):
        experiment_of(tmp_path / "firmware" / "other")


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


def test_outputs_that_are_no_vector_show_their_shape(tmp_path: Path) -> None:
    plain = _untrained(tmp_path)
    for outputs, text in ((2, "model's end$"), (4, "model's end, and give it 2 outputs, not 4$")):
        (tmp_path / "model.py").write_text(
            "from torch import nn\n"
            f"def build(): return nn.Sequential(nn.Conv2d(2, {outputs}, 3), nn.AdaptiveAvgPool2d(1))"
        )
        with pytest.raises(
            FlowError,
            match=rf"outputs of shape \({outputs}, 1, 1\) for 2 classes; expected \(2,\), .*: add nn.Flatten\(\) "
            rf"at the {text}",
        ):
            _ = Flow(plain, tmp_path / "run").topology


def test_what_hls_refuses_says_how_to_go_without(tmp_path: Path) -> None:
    experiment = _untrained(tmp_path)
    (tmp_path / "model.py").write_text(
        "from torch import nn\n"
        "def build(): return nn.Sequential(nn.Conv2d(2, 4, 3, groups=2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), "
        "nn.Linear(4, 2))"
    )
    refused = dataclasses.replace(experiment, firmware=HlsStage(backends=("Vitis",)))
    with pytest.raises(
        FlowError,
        match=r"Vitis, layer '0': 4 outputs in 2 groups of .*To go without a project, leave \[firmware\] out of the",
    ):
        Flow(refused, tmp_path / "run").run("hls")
    Flow(experiment, tmp_path / "run").run("equality")


def test_a_dialect_that_cannot_be_exact_warns_before_training_and_is_refused_after_it(
    tiny: Experiment, tmp_path: Path
) -> None:
    asked = dataclasses.replace(tiny, onnx=OnnxConfig(to_onnx.Dialect.FLOAT32), firmware=None)
    asked = _changed(_changed(asked, "quant", multiplier_bits=20), "plans", mixed=False)
    recorder = Recorder()
    flow = Flow(_changed(_changed(asked, "train", epochs=1), "qat", epochs=1), tmp_path, recorder)
    text = r"plan int8, dialect = 'float32' in \[onnx\]: .*dialect 'float32' holds numerators of 24 bits"
    with pytest.raises(FlowError, match=text):
        flow.run("export")
    assert any(
        re.search(f"before training, {text}.*After training it may be", warning) for warning in recorder.warnings
    )


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


# ------------------------------------------------------------------- autoencoders, untrained networks, stages left out

AUTOENCODER = """
from torch import nn
def build(outputs=64, code=8):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, code), nn.ReLU(),
                         nn.Linear(code, outputs))
"""


def _autoencoder(folder: Path, data: str = "", model: str = "") -> Experiment:
    """Digits as images, reconstructed; a short training, no firmware."""
    (folder / "model.py").write_text(AUTOENCODER)
    (folder / "experiment.toml").write_text(
        f"""name = "reconstruct"
[data]
source = "digits"
shape = [1, 8, 8]
{data}
[model]
file = "model.py"
{model}
[train]
loss = "mse"
epochs = 20
batch_size = 16
[qat]
loss = "mse"
epochs = 5
batch_size = 16
[plans]
homogeneous = [8]
input_bits = 8
[sensitivity]
samples = 200
"""
    )
    return load(folder)


def test_an_autoencoder_is_reported_by_its_own_measure(tmp_path: Path) -> None:
    recorder = Recorder()
    flow = Flow(_autoencoder(tmp_path, 'normal = ["0", "1", "2", "3"]'), None, recorder)
    flow.run()
    report = flow.report().json("report.json")
    assert report["measure"] == "explained_variance"
    assert flow.split.classes[4:] == tuple("456789")
    assert set(flow.split.train.y) == {0, 1, 2, 3}
    mean_alone = 0.0
    for figures in (report["float"], *report["plans"].values()):
        assert mean_alone + 0.2 < figures["explained_variance"] < 1
        assert 0.6 < figures["auc"] < 1
        assert 0 < figures["auc_error"] < 0.1
        assert "accuracy" not in figures
    assert set(report["figures"]) == {"explained_variance", "sensitivity", "errors"}
    for name in report["figures"].values():
        assert (flow.out / "report" / name).is_file()
    assert "confusion" not in report
    result = flow.float_artifact().json("result.json")
    assert "test_accuracy" not in result
    # The measure is of normal samples alone, in the float network's own units.
    model, x = flow.float_model(), flow.standardized["test"]
    good = ~flow.split.anomalous(flow.split.test)
    found, _ = quality.explained_variance(predict(model, x[good]), x[good])
    assert result["test_explained_variance"] == found
    assert any(text.startswith("float: explained variance 0.") and ", AUC 0." in text for text in recorder.results)
    assert any(text.startswith("int8: 0 mismatches on") for text in recorder.results)
    assert report["plans"]["int8"]["coverage"]["x"]["elements"] == 64 * report["samples"]
    assert report["firmware"] == []
    assert not (flow.out / "hls").exists()


def test_the_loss_must_fit_the_network_and_the_data(tmp_path: Path) -> None:
    with pytest.raises(FlowError, match=r"outputs of shape \(60,\) for inputs of shape \(1, 8, 8\); with loss 'mse' a"):
        _ = Flow(_autoencoder(tmp_path, model="arguments = { outputs = 60 }")).topology
    (tmp_path / "recordings" / "toyadmos_ad").mkdir(parents=True)
    noise = np.random.default_rng(0).normal(size=10 * 640)
    (tmp_path / "recordings" / "toyadmos_ad" / "dat2header_data.dat").write_text(" ".join(f"{v:.3f}" for v in noise))
    (tmp_path / "model.py").write_text("from torch import nn\ndef build(): return nn.Sequential(nn.Linear(640, 1))")
    (tmp_path / "experiment.toml").write_text(
        'name = "x"\n[data]\nsource = "field:toyadmos"\nfolder = "recordings"\n[model]\nfile = "model.py"'
    )
    with pytest.raises(FlowError, match="field:toyadmos is unlabelled; a classifier needs classes: set loss = 'mse'"):
        _ = Flow(load(tmp_path)).topology


UNTRAINED = """name = "untrained"
[data]
source = "synthetic:images"
shape = [2, 9, 7]
samples = 60
classes = 2
[model]
file = "model.py"
[train]
epochs = 0
batch_size = 16
[qat]
epochs = 0
[plans]
homogeneous = [8]
mixed = false
"""


def _untrained(folder: Path) -> Experiment:
    """A convolutional network with more outputs than the data have classes, as published networks have."""
    (folder / "model.py").write_text(
        """from torch import nn
def build():
    return nn.Sequential(nn.Conv2d(2, 5, 3, bias=False), nn.BatchNorm2d(5), nn.ReLU6(), nn.AdaptiveAvgPool2d(1),
                         nn.Flatten(), nn.Linear(5, 6))
"""
    )
    (folder / "experiment.toml").write_text(UNTRAINED)
    return load(folder)


def test_a_network_that_is_not_trained_is_calibrated_lowered_and_proved(tmp_path: Path) -> None:
    recorder = Recorder()
    flow = Flow(_untrained(tmp_path), None, recorder)
    flow.run()
    assert "sensitivity" not in recorder.worked
    assert not any("steps" in text for text in recorder.warnings)
    assert any("not trained" in text for text in recorder.results)
    report = flow.report().json("report.json")
    assert (report["trained"], report["mixed"]) == (False, [])
    assert "sensitivity" not in report
    assert "**Not trained**" in flow.report().file("report.md").read_text()
    counts = report["plans"]["int8"]["coverage"]
    output = flow.network("int8").outputs[0].name
    assert counts[output]["varying"] == 6
    assert counts[output]["distinct"] > 20
    # Every channel of the convolution does something: its ReLU6 neither always cuts nor never.
    float_out = flow.float_model()[:3](torch.from_numpy(flow.standardized["test"]).float())
    share = (float_out > 0).float().mean(dim=(0, 2, 3))
    assert ((share > 0.1) & (share < 0.9)).all()


def test_spare_outputs_are_for_untrained_networks_only(tmp_path: Path) -> None:
    trained = _untrained(tmp_path)
    trained = dataclasses.replace(trained, train=dataclasses.replace(trained.train, epochs=1))
    with pytest.raises(FlowError, match="model: 6 outputs for 2 classes"):
        _ = Flow(trained).topology


def test_a_constant_output_fails_however_equal_it_is(tmp_path: Path) -> None:
    """A ReLU that never fires: every representation agrees on the biases behind it, and that proves nothing."""
    experiment = _untrained(tmp_path)
    text = (tmp_path / "model.py").read_text()
    (tmp_path / "model.py").write_text(
        text.replace("    return nn", "    model = nn")
        + "    nn.init.constant_(model[1].bias, -9.0)\n    return model\n"
    )
    flow = Flow(experiment)
    with pytest.raises(FlowError, match=r"plan int8: output '_5_requant': none of its 6 elements varies over 12 rows"):
        flow.run("equality")
    page = (flow.out / "equality" / "int8" / "equality.md").read_text()
    assert "All 6 representations equal the interpreter" in page
    assert "**output '_5_requant': none of its 6 elements varies" in page


def test_blocks_of_rows_do_not_change_the_certificate(
    finished: tuple[Flow, Recorder], tiny: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow, _ = finished
    shutil.copytree(flow.out, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "equality" / "mixed")
    monkeypatch.setattr(prove, "block_rows", lambda network: 100)
    found = Flow(tiny, tmp_path / "run").equality("mixed")
    for name in ("equality.json", "coverage.json"):
        assert found.json(name) == flow.equality("mixed").json(name)


def test_drawn_inputs_are_compared_beside_the_test_set(
    finished: tuple[Flow, Recorder], tiny: Experiment, tmp_path: Path
) -> None:
    flow, _ = finished
    shutil.copytree(flow.out, tmp_path / "run")
    changed = dataclasses.replace(_changed(tiny, "equality", drawn=60), firmware=None)
    found = Flow(changed, tmp_path / "run").equality("mixed")
    certificate = found.json("equality.json")
    names = ["qat", "interpreter", "qonnx", *ONNX]
    fast = [name for name in names if name != "onnx-reference"]
    assert list(certificate["backends"]) == [*names, *(f"{name}-drawn" for name in fast)]
    for name in fast:
        one, other = certificate["backends"][name], certificate["backends"][f"{name}-drawn"]
        assert one["mismatches"] == other["mismatches"] == 0
        assert other["elements"] * certificate["samples"] == one["elements"] * 60
        assert other["method"] == f"{one['method']}; on 60 drawn inputs"
    covered = found.json("coverage-drawn.json")
    assert covered["x"]["ends"] > found.json("coverage.json")["x"]["ends"] / certificate["samples"]
    assert sum(entry["ties"] for entry in covered.values()) > 0
    assert "What the drawn inputs exercised" in found.file("equality.md").read_text()


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
    assert tiny.firmware is not None
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


def test_what_hls_refuses_is_refused_before_training(tiny: Experiment, tmp_path: Path) -> None:
    """A softmax has no exact form in HLS; a user learns it in a second, not after training."""
    text = (
        "from torch import nn\ndef build():\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.Softmax(1))\n"
    )
    (tmp_path / "model.py").write_text(text)
    model = dataclasses.replace(tiny.model, file=str(tmp_path / "model.py"), arguments={})
    experiment, recorder = dataclasses.replace(tiny, model=model), Recorder()
    flow = Flow(experiment, tmp_path / "run", recorder)
    with pytest.raises(FlowError, match=r"ReduceMax has no form in hls4ml.*leave \[firmware\] out of the experiment"):
        flow.run()
    assert recorder.worked == ["data"]
    Flow(dataclasses.replace(experiment, firmware=None), tmp_path / "run", recorder).run("float")
    assert "float" in recorder.worked
