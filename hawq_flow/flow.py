"""The stages in order: an experiment's TOML becomes a verified firmware project, one artifact a stage.

::

    data -> float -> sensitivity -> plans -> qat -> lower -> export -> hls -> equality -> report

Every stage is a function of earlier artifacts and its section of the configuration, kept by ``store.make``: it is
skipped when its manifest matches. The folder of a run::

    run/data, float, sensitivity      one artifact each
    run/plans/NAME                    plan.json (and allocation.json, front.csv for a mixed plan)
    run/qat/NAME, network/NAME, qonnx/NAME, equality/NAME
    run/hls/NAME/BACKEND/project      hls4ml projects (or in the experiment's firmware folder)
    run/report                        report.md, report.json, figures
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from torch import nn

from hawq_flow import allocate, choose, data, equality, model_file, sensitivity, store, summary, to_hls, to_qonnx
from hawq_flow.config import Experiment, check_layers
from hawq_flow.interpret import run
from hawq_flow.lower import lower
from hawq_flow.network import IntegerNetwork
from hawq_flow.numeric import IntArray
from hawq_flow.plan import BitPlan, bops, mean_weight_bits, weight_bits
from hawq_flow.quant import QuantNetwork, quantize
from hawq_flow.reporter import Reporter
from hawq_flow.store import Artifact
from hawq_flow.topology import INPUT, Topology, fold_batch_norm, read
from hawq_flow.train import TrainConfig, evaluate, fit

FEW_STEPS = 500
"""Fewer optimizer steps than this draw a warning."""
STAGES = ("data", "float", "sensitivity", "plans", "qat", "lower", "export", "hls", "equality", "report")


class FlowError(RuntimeError):
    """A run that cannot go on; the text says which stage, why, and what to do."""


_P = ParamSpec("_P")


def _once(method: Callable[Concatenate[Flow, _P], Artifact]) -> Callable[Concatenate[Flow, _P], Artifact]:
    """An artifact is made, or found and its files hashed, once in a flow's life, however many stages ask for it."""

    @functools.wraps(method)
    def found(self: Flow, *args: _P.args, **kwargs: _P.kwargs) -> Artifact:
        key = (method.__name__, *args, *kwargs.items())
        if key not in self._artifacts:
            self._artifacts[key] = method(self, *args, **kwargs)
        return self._artifacts[key]

    return found


class Flow:
    """One run of an experiment. Artifacts are made on demand; :meth:`run` makes them all in order.

    Parameters
    ----------
    experiment:
        The configuration.
    out:
        The run's folder; None takes ``run`` in the experiment's folder.
    reporter:
        Told what happens.
    """

    def __init__(self, experiment: Experiment, out: Path | None = None, reporter: Reporter | None = None) -> None:
        self.experiment = experiment
        self.out = out if out is not None else experiment.folder / "run"
        self.reporter = reporter or Reporter()
        self._artifacts: dict[tuple[Any, ...], Artifact] = {}

    # ------------------------------------------------------------------------------------------------ running stages

    def run(self, until: str = STAGES[-1]) -> None:
        """Make every stage's artifacts up to and including ``until``.

        Raises
        ------
        FlowError
            On an unknown stage, or when a representation differs from the interpreter (its certificate is kept).
        """
        if until not in STAGES:
            raise FlowError(f"unknown stage {until!r}; expected one of {', '.join(STAGES)}")
        with store.locked(
            self.out / "run", waiting=lambda: self.reporter.warning(f"another run is at work in {self.out}: waiting")
        ):
            for stage in STAGES[: STAGES.index(until) + 1]:
                getattr(self, f"_run_{stage}")()

    def _run_data(self) -> None:
        self.data()
        check_layers(self.experiment.allocate, [stage.name for stage in self.topology.stages])
        for section, name in ((self.experiment.train, "train"), (self.experiment.qat, "qat")):
            steps = section.epochs * math.ceil(len(self.split.train) / section.batch_size)
            if steps < FEW_STEPS:
                self.reporter.warning(
                    f"[{name}] makes {steps} steps on {len(self.split.train):,} samples; fewer than {FEW_STEPS} rarely "
                    "train to the end: lower batch_size or raise epochs"
                )

    def _run_float(self) -> None:
        found = self.float_artifact().json("result.json")
        self.reporter.result(f"float: {found['test_accuracy']:.2%} on {found['test_samples']:,} test samples")

    def _run_sensitivity(self) -> None:
        self.sensitivity()

    def _run_plans(self) -> None:
        for name in self.plan_names:
            self.plan_artifact(name)
        for name in self.plan_names:
            plan = self.plan(name)
            cost = bops(plan, self.topology.shapes)
            self.reporter.result(f"{name}: {summary.widths(plan)}, {cost:,.0f} BOPs")

    def _run_qat(self) -> None:
        for name in self.plan_names:
            found = self.qat(name).json("result.json")
            self.reporter.result(f"{name}: {found['test_accuracy']:.2%} in integers")

    def _run_lower(self) -> None:
        for name in self.plan_names:
            self.network_artifact(name)

    def _run_export(self) -> None:
        for name in self.plan_names:
            self.qonnx(name)

    def _run_hls(self) -> None:
        for name in self.hls_plans:
            for backend in self.experiment.firmware.backends:
                taken = self.reuse_factors(name, backend)
                if set(taken.values()) != {self.experiment.hls.reuse_factor}:
                    self.reporter.warning(
                        f"{name}, {backend}: hls4ml took other reuse factors than {self.experiment.hls.reuse_factor}: "
                        + ", ".join(f"{layer} {factor}" for layer, factor in taken.items())
                    )
        for stale in self.stale_projects():
            self.reporter.warning(f"{stale}: a project of an earlier run of other plans; not of this one. Delete it")

    def _run_equality(self) -> None:
        failed = []
        for name in self.plan_names:
            certificate = self.equality(name).json("equality.json")
            try:
                equality.require(certificate)
            except equality.EqualityError as error:
                failed.append(f"plan {name}: {error}")
                continue
            names = ", ".join(certificate["backends"])
            self.reporter.result(f"{name}: 0 mismatches on {certificate['samples']:,} samples ({names})")
        if failed:
            raise FlowError("\n".join(failed))

    def _run_report(self) -> None:
        artifact = self.report()
        self.reporter.result(f"report: {artifact.path / 'report.md'}")

    def _make(
        self,
        stage: str,
        place: str,
        depends: Mapping[str, Any],
        build: Callable[[Path], None],
        root: Path | None = None,
    ) -> Artifact:
        """``store.make`` with the reporter told; ``place`` is the artifact's path below the run's folder."""

        def announced(folder: Path) -> None:
            self.reporter.stage(stage, place)
            build(folder)

        return store.make(
            (root or self.out) / place, stage, depends, announced, on_reuse=lambda: self.reporter.reused(stage, place)
        )

    # --------------------------------------------------------------------------------------------------- shared inputs

    @cached_property
    def split(self) -> data.Split:
        """The data set."""
        section = self.experiment.data
        return data.load(
            section.source,
            root=self.experiment.folder,
            features=list(section.features) or None,
            label=section.label or None,
            val_fraction=section.val_fraction,
            test_fraction=section.test_fraction,
            seed=section.seed,
        )

    @cached_property
    def standardization(self) -> data.Standardization:
        """Fitted on the training part."""
        return self.split.standardization()

    @cached_property
    def standardized(self) -> dict[str, NDArray[np.float64]]:
        """Standardized samples of train, val and test."""
        parts = {"train": self.split.train, "val": self.split.val, "test": self.split.test}
        return {name: self.standardization.apply(part.x) for name, part in parts.items()}

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return tuple(self.split.train.x.shape[1:])

    @property
    def _model_file(self) -> Path:
        return (self.experiment.folder / self.experiment.model.file).resolve()

    @property
    def _model_depends(self) -> dict[str, Any]:
        """What the float network's definition depends on."""
        return {
            "sources": model_file.sources(self._model_file),
            "arguments": dict(self.experiment.model.arguments),
            "seed": self.experiment.seed,
        }

    def _quantized_depends(self, name: str) -> dict[str, Any]:
        """What ``quantized(name)`` reads. The trained state alone is not enough: two roundings can train alike."""
        return {
            "qat": self.qat(name).digest,
            "plan": self.plan_artifact(name).json("plan.json"),
            "quant": self.experiment.quant,
            "model": self._model_depends,
            "data": self.data().digest,
        }

    def fresh_model(self) -> nn.Module:
        """The float network, freshly built: the same seed, the same weights."""
        return model_file.build(self._model_file, self.experiment.model.arguments, self.experiment.seed)

    @cached_property
    def topology(self) -> Topology:
        """The model's layers."""
        topology = read(self.fresh_model(), self.input_shape)
        outputs = topology.stages[-1].linear.out_features
        if outputs != len(self.split.classes):
            raise FlowError(
                f"model: {outputs} outputs for {len(self.split.classes)} classes ({', '.join(self.split.classes)}); "
                "set the model's number of outputs in [model] arguments"
            )
        return topology

    def _seeded(self, config: TrainConfig) -> TrainConfig:
        return dataclasses.replace(config, seed=config.seed + self.experiment.seed)

    # ---------------------------------------------------------------------------------------------------------- stages

    @_once
    def data(self) -> Artifact:
        """``data.json``: what the data set is, with its content hash and standardization."""
        split = self.split
        described = {
            "source": split.source,
            "digest": split.digest,
            "features": split.features,
            "classes": split.classes,
            "samples": {"train": len(split.train), "val": len(split.val), "test": len(split.test)},
            "standardization": self.standardization.to_dict(),
        }
        return self._make(
            "data",
            "data",
            {"config": self.experiment.data, "digest": split.digest, "code": store.code_digest("data")},
            lambda folder: store.write_json(folder / "data.json", described),
        )

    @_once
    def float_artifact(self) -> Artifact:
        """``float.npz`` (the state of the trained float model) and ``result.json``."""
        config = self._seeded(self.experiment.train)
        depends = {
            "data": self.data().digest,
            "model": self._model_depends,
            "train": config,
            "code": store.code_digest("train"),
            "versions": store.versions("torch", "numpy"),
        }

        def build(folder: Path) -> None:
            self.topology  # noqa: B018  refuses an unsupported model before training it
            model = self.fresh_model()
            history = self._fit(model, config, "float")
            _save_state(model, folder / "float.npz")
            store.write_json(folder / "result.json", self._result(model, history))

        return self._make("float", "float", depends, build)

    def _fit(self, model: nn.Module, config: TrainConfig, text: str) -> list[float]:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)  # dropout's masks
            history = fit(
                model,
                self.standardized["train"],
                self.split.train.y,
                config,
                progress=lambda epoch, loss: self.reporter.progress(epoch, config.epochs, f"{text}, loss {loss:.4f}"),
            )
        return history.loss

    def _result(self, model: nn.Module, losses: Sequence[float]) -> dict[str, Any]:
        val = self.split.val
        return {
            "loss": list(losses),
            "val_accuracy": evaluate(model, self.standardized["val"], val.y) if len(val) else None,
            "test_accuracy": evaluate(model, self.standardized["test"], self.split.test.y),
            "test_samples": len(self.split.test),
        }

    def float_model(self) -> nn.Module:
        """The trained float model, in evaluation mode."""
        model = self.fresh_model()
        _load_state(model, self.float_artifact().file("float.npz"))
        return model.eval()

    @_once
    def sensitivity(self) -> Artifact:
        """``sensitivity.json``: Hessian traces of the folded float network."""
        section = self.experiment.sensitivity
        depends = {
            "float": self.float_artifact().digest,
            "model": self._model_depends,
            "data": self.data().digest,
            "config": section,
            "code": [store.code_digest("sensitivity"), store.code_digest("topology")],
            "versions": store.versions("torch", "pyhessian"),
        }

        def build(folder: Path) -> None:
            folded = fold_batch_norm(self.float_model(), self.input_shape)
            rows = slice(0, section.samples or None)
            x = torch.from_numpy(self.standardized["train"][rows].astype(np.float32))
            y = torch.from_numpy(self.split.train.y[rows].copy())
            found = sensitivity.measure(folded, x, y, method=section.method, input_name=INPUT)
            (folder / "sensitivity.json").write_text(found.to_json())

        return self._make("sensitivity", "sensitivity", depends, build)

    @property
    def plan_names(self) -> list[str]:
        """Names of the plans: the homogeneous ones, then the mixed ones."""
        return self.experiment.plan_names

    @property
    def mixed_names(self) -> list[str]:
        """Names of the plans that the allocation chooses, at least one."""
        return list(self.experiment.allocate.named_budgets)

    @property
    def hls_plans(self) -> list[str]:
        """The plans that become firmware."""
        return self.experiment.firmware_plans

    @_once
    def plan_artifact(self, name: str) -> Artifact:
        """``plan.json``; for a mixed plan also ``allocation.json``, ``allocation.txt`` and ``front.csv``."""
        if name not in self.mixed_names:
            plan = choose.homogeneous_plan(self.topology.shapes, int(name.removeprefix("int")), self.experiment.plans)
            return self._make(
                "plans", f"plans/{name}", {"plan": plan.to_dict()}, lambda f: _write(f / "plan.json", plan.to_json())
            )
        depends = {
            "float": self.float_artifact().digest,
            "model": self._model_depends,
            "data": self.data().digest,
            "sensitivity": self.sensitivity().digest,
            "config": dataclasses.replace(self.experiment.allocate, bops=self.experiment.allocate.named_budgets[name]),
            "plans": self.experiment.plans,
            "quant": self.experiment.quant,
            "code": store.code_digest("choose"),
            "versions": store.versions("scipy", "numpy"),
        }

        def build(folder: Path) -> None:
            try:
                found, front = choose.mixed_plan(
                    self.topology.shapes, self._terms, self.experiment.allocate, self.experiment.plans, name
                )
            except allocate.InfeasibleError as error:
                limit = self.experiment.allocate.named_budgets[name]
                share = f" ({limit:g} of {self.plan_names[0]}'s)" if limit is not None and limit <= 1 else ""
                raise FlowError(f"plan {name}: budget of BOPs {limit}{share}: {error}") from error
            _write(folder / "plan.json", found.plan.to_json())
            _write(folder / "allocation.json", found.to_json())
            _write(folder / "allocation.txt", found.text() + "\n")
            if front is not None:
                rows = [
                    f"{cost:.0f},{objective:.9g}" for cost, objective in zip(front.costs, front.objectives, strict=True)
                ]
                _write(folder / "front.csv", "\n".join([f"{front.budget},objective", *rows]) + "\n")

        return self._make("plans", f"plans/{name}", depends, build)

    @cached_property
    def _terms(self) -> allocate.Terms:
        measured = sensitivity.Sensitivity.from_json(self.sensitivity().file("sensitivity.json").read_text())
        folded = read(fold_batch_norm(self.float_model(), self.input_shape), self.input_shape)
        return choose.terms(
            folded, self.standardized["train"], measured, self.experiment.allocate, self.experiment.quant
        )

    def plan(self, name: str) -> BitPlan:
        """One of the plans, by name."""
        return BitPlan.from_json(self.plan_artifact(name).file("plan.json").read_text())

    @_once
    def qat(self, name: str) -> Artifact:
        """``qat.npz`` (the state of the trained quantized network) and ``result.json``."""
        config = self._seeded(self.experiment.qat)
        depends = {
            "float": self.float_artifact().digest,
            "model": self._model_depends,
            "data": self.data().digest,
            "plan": self.plan_artifact(name).json("plan.json"),
            "quant": self.experiment.quant,
            "train": config,
            "code": store.code_digest("train"),
            "versions": store.versions("torch", "numpy"),
        }

        def build(folder: Path) -> None:
            model = quantize(self.float_model(), self.plan(name), self.experiment.quant, input_shape=self.input_shape)
            losses = self._fit(model, config, name)
            _save_state(model, folder / "qat.npz")
            result = self._result(model, losses)
            result["zero_fraction"] = model.zero_fraction()
            store.write_json(folder / "result.json", result)

        return self._make("qat", f"qat/{name}", depends, build)

    def quantized(self, name: str) -> QuantNetwork:
        """The trained quantized network of a plan, frozen, in evaluation mode."""
        model = quantize(self.fresh_model(), self.plan(name), self.experiment.quant, input_shape=self.input_shape)
        _load_state(model, self.qat(name).file("qat.npz"))
        model.eval()
        return model

    @_once
    def network_artifact(self, name: str) -> Artifact:
        """The saved integer network of a plan."""
        depends = {
            **self._quantized_depends(name),
            "name": self.experiment.name,
            "code": store.code_digest("lower"),
        }

        def build(folder: Path) -> None:
            lower(
                self.quantized(name),
                mean=self.standardization.mean,
                std=self.standardization.std,
                metadata={
                    "experiment": self.experiment.name,
                    "plan": name,
                    "classes": json.dumps(self.split.classes),
                    "features": json.dumps(self.split.features),
                    "data": self.split.digest,
                },
            ).save(folder)

        return self._make("lower", f"network/{name}", depends, build)

    def network(self, name: str) -> IntegerNetwork:
        """The integer network of a plan."""
        return IntegerNetwork.load(self.network_artifact(name).path)

    @_once
    def qonnx(self, name: str) -> Artifact:
        """``model.onnx``: the plan's network in QONNX."""
        depends = {
            "network": self.network_artifact(name).digest,
            "code": store.code_digest("to_qonnx"),
            "versions": store.versions("torch", "onnx", "onnxscript", "qonnx"),
        }

        def build(folder: Path) -> None:
            to_qonnx.save(to_qonnx.export(self.network(name)), folder / "model.onnx")

        return self._make("export", f"qonnx/{name}", depends, build)

    @_once
    def hls(self, name: str, backend: str) -> Artifact:
        """``project``: the plan's hls4ml project for one back end."""
        config = dataclasses.replace(self.experiment.hls, backend=backend)
        depends = {
            "network": self.network_artifact(name).digest,
            "qonnx": self.qonnx(name).digest,
            "hls": config,
            "data": self.data().digest,
            "vectors": self.experiment.firmware.vectors,
            "code": store.code_digest("to_hls"),
            "versions": store.versions("hls4ml", "qonnx", "onnx", "numpy"),
        }
        section = self.experiment.firmware

        def build(folder: Path) -> None:
            vectors = self.network(name).inputs[0].integers(self.split.test.x[: section.vectors])
            to_hls.write_project(self.network(name), folder / "project", config, vectors=vectors)

        return self._make("hls", f"{name}/{backend.lower()}", depends, build, self.firmware_folder)

    def reuse_factors(self, name: str, backend: str) -> dict[str, int]:
        """The reuse factor hls4ml took for each dense layer; it replaces one that does not divide by the nearest."""
        layers = json.loads(self.hls(name, backend).file("project/hawq_flow.json").read_text())["layers"]
        return {layer: entry["reuse_factor"] for layer, entry in layers.items() if "accum" in entry["types"]}

    def stale_projects(self) -> list[Path]:
        """HLS projects in the firmware folder that other configurations left there."""
        current = {self.hls(n, b).path for n in self.hls_plans for b in self.experiment.firmware.backends}
        return sorted({p.parent for p in self.firmware_folder.glob(f"*/*/{store.MANIFEST}")} - current)

    @property
    def firmware_folder(self) -> Path:
        """Where the HLS projects go."""
        folder = self.experiment.firmware.folder
        return (self.experiment.folder / folder).resolve() if folder else self.out / "hls"

    @_once
    def equality(self, name: str) -> Artifact:
        """``equality.json`` and ``equality.md``: every representation against the interpreter on the whole test set."""
        backends = list(self.experiment.firmware.backends) if name in self.hls_plans else []
        projects: dict[str, Artifact] = {backend: self.hls(name, backend) for backend in backends}
        depends = {
            **self._quantized_depends(name),
            "network": self.network_artifact(name).digest,
            "qonnx": self.qonnx(name).digest,
            "hls": {backend: project.digest for backend, project in projects.items()},
            "code": [store.code_digest("equality"), store.code_digest("lower")],
            "versions": store.versions("qonnx", "hls4ml", "torch", "numpy"),
        }

        def build(folder: Path) -> None:
            certificate = self._certificate(name, projects)
            store.write_json(folder / "equality.json", certificate)
            _write(folder / "equality.md", equality.markdown(certificate, f"Equality of plan {name}"))

        return self._make("equality", f"equality/{name}", depends, build)

    def _certificate(self, name: str, projects: Mapping[str, Artifact]) -> dict[str, Any]:
        network = self.network(name)
        integers = network.inputs[0].integers(self.split.test.x)
        trained = self.quantized(name).integers(torch.from_numpy(self.standardized["test"]))
        backends = {
            "qat": equality.trace_backend(
                {key: _whole(tensor, key) for key, tensor in trained.items()}, "QAT module in evaluation, float64"
            ),
            "interpreter": equality.reference_backend(network),
            "qonnx": equality.qonnx_backend(network, onnx.load(self.qonnx(name).file("model.onnx"))),
        }
        with tempfile.TemporaryDirectory(prefix="hawq_flow-csim-") as build:
            for backend, project in projects.items():
                backends[f"csim-{backend.lower()}"] = equality.csim_backend(
                    project.path / "project", Path(build) / backend
                )
            return equality.certify(network, integers, backends)

    @_once
    def report(self) -> Artifact:
        """``report.md``, ``report.json`` and the figures."""
        names = self.plan_names
        depends = {
            "name": self.experiment.name,
            "data": self.data().digest,
            "float": self.float_artifact().digest,
            "sensitivity": self.sensitivity().digest,
            "plans": {name: self.plan_artifact(name).digest for name in names},
            "qat": {name: self.qat(name).digest for name in names},
            "network": {name: self.network_artifact(name).digest for name in names},
            "equality": {name: self.equality(name).digest for name in names},
            "firmware": self._firmware_figures(),
            "code": store.code_digest("summary"),
            "versions": store.versions("matplotlib", "numpy"),
        }
        return self._make("report", "report", depends, self._write_report)

    def _write_report(self, folder: Path) -> None:
        plans = {name: self._plan_figures(name) for name in self.plan_names}
        mixed = self.mixed_names[0]
        network = self.network(mixed)
        predicted = run(network, network.inputs[0].integers(self.split.test.x)).argmax(axis=1)
        classes = self.split.classes
        matrix = summary.confusion(predicted, self.split.test.y, len(classes))
        found = self.float_artifact().json("result.json")
        report = {
            "version": 1,
            "experiment": self.experiment.name,
            "seed": self.experiment.seed,
            "data": self.data().json("data.json"),
            "samples": found["test_samples"],
            "float": {"accuracy": found["test_accuracy"]},
            "reference": self.plan_names[0],
            "mixed": self.mixed_names,
            "firmware": self._firmware_figures(),
            "plans": plans,
            "sensitivity": self.sensitivity().json("sensitivity.json"),
            "allocation": {n: self.plan_artifact(n).file("allocation.txt").read_text() for n in self.mixed_names},
            "confusion": {"plan": mixed, "classes": classes, "counts": matrix.tolist()},
            "figures": {"accuracy": "accuracy.png", "sensitivity": "sensitivity.png", "confusion": "confusion.png"},
        }
        store.write_json(folder / "report.json", report)
        _write(folder / "report.md", summary.markdown(report))
        summary.save(summary.accuracy_figure(report), folder / "accuracy.png")
        summary.save(summary.sensitivity_figure(report), folder / "sensitivity.png")
        title = f"{mixed} plan: {plans[mixed]['accuracy']:.1%} of {found['test_samples']:,}"
        summary.save(summary.confusion_figure(matrix, classes, title), folder / "confusion.png")

    def _firmware_figures(self) -> list[dict[str, Any]]:
        config, section = self.experiment.hls, self.experiment.firmware
        return [
            {
                "plan": name,
                "backend": backend,
                "project": f"{section.folder or '../hls'}/{name}/{backend.lower()}/project",
                "network": self.network(name).digest,
                "part": config.part,
                "clock_period_ns": config.clock_period_ns,
                "io_type": config.io_type,
                "strategy": config.strategy,
                "reuse_factors": self.reuse_factors(name, backend),
            }
            for name in self.hls_plans
            for backend in section.backends
        ]

    def _plan_figures(self, name: str) -> dict[str, Any]:
        plan, shapes = self.plan(name), self.topology.shapes
        result = self.qat(name).json("result.json")
        certificate = self.equality(name).json("equality.json")
        return {
            "accuracy": result["test_accuracy"],
            "val_accuracy": result["val_accuracy"],
            "bops": bops(plan, shapes),
            "sparse_bops": bops(plan, shapes, result["zero_fraction"]),
            "weight_bits": weight_bits(plan, shapes),
            "mean_weight_bits": mean_weight_bits(plan, shapes),
            "zero_fraction": result["zero_fraction"],
            "equal": equality.equal(certificate),
            "certificate": certificate,
            "digest": self.network(name).digest,
            "plan": plan.to_dict(),
        }


def _whole(tensor: torch.Tensor, name: str) -> IntArray:
    """A float64 tensor of whole numbers as int64; anything else is an error, not a cast."""
    array = tensor.cpu().numpy()
    if not (array == np.rint(array)).all():
        raise FlowError(f"QAT evaluation: {name} holds values that are not whole; evaluation must compute integers")
    return np.asarray(array, dtype=np.int64)


def _write(path: Path, text: str) -> None:
    path.write_text(text)


def _save_state(model: nn.Module, path: Path) -> None:
    store.save_arrays(path, {key: tensor.detach().cpu().numpy() for key, tensor in model.state_dict().items()})


def _load_state(model: nn.Module, path: Path) -> None:
    model.load_state_dict({key: torch.from_numpy(array) for key, array in store.load_arrays(path).items()})
