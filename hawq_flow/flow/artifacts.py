"""Every artifact of a run, made on demand: each a function of earlier ones and of its section of the configuration."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from hawq_flow import (
    allocate,
    choose,
    coverage,
    equality,
    quality,
    sensitivity,
    store,
    to_hls,
    to_onnx,
    to_qonnx,
)
from hawq_flow.equality import Backend
from hawq_flow.flow.exports import Exports
from hawq_flow.flow.inputs import Inputs
from hawq_flow.flow.making import FlowError, once, write
from hawq_flow.lower import lower
from hawq_flow.numeric import IntArray
from hawq_flow.plan import BitPlan
from hawq_flow.prove import drawn, prove
from hawq_flow.quant import QuantNetwork, quantize
from hawq_flow.store import Artifact
from hawq_flow.topology import INPUT, fold_batch_norm, read
from hawq_flow.train import TrainConfig, fit, predict

FEW = 16
"""Samples that stand in for training where only a network's structure matters."""


class Artifacts(Inputs, Exports):
    """The artifacts of one run of an experiment."""

    way_out = ". To go without a project, leave [firmware] out of the experiment"

    def _quantized_depends(self, name: str) -> dict[str, Any]:
        """What ``quantized(name)`` reads. The trained state alone is not enough: two roundings can train alike."""
        return {
            "qat": self.qat(name).digest,
            "plan": self.plan_artifact(name).json("plan.json"),
            "quant": self.experiment.quant,
            "model": self._model_depends,
            "data": self.data().digest,
        }

    # ---------------------------------------------------------------------------------------------------------- stages

    @once
    def data(self) -> Artifact:
        """``data.json``: what the data set is, with its content hash and standardization."""
        split = self.split
        described = {
            "source": split.source,
            "digest": split.digest,
            "features": split.features,
            "shape": split.shape,
            "normal": split.normal,
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

    @once
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
        return {
            "loss": list(losses),
            **{f"val_{name}": value for name, value in self._measured(model, "val").items()},
            **{f"test_{name}": value for name, value in self._measured(model, "test").items()},
            "test_samples": len(self.split.test),
        }

    def _measured(self, model: nn.Module, part: Literal["val", "test"]) -> dict[str, float | None]:
        """The measure of quality on a part by its name; of autoencoders on normal samples, and the AUC on all."""
        held = self.split.val if part == "val" else self.split.test
        x = self.standardized[part]
        if len(held) == 0:
            return {self.measure: None}
        out = predict(model, x)
        if self.loss == "cross_entropy":
            return {self.measure: quality.accuracy(out, held.y)}
        anomalous = self.split.anomalous(held)
        value, error = quality.explained_variance(out[~anomalous], x[~anomalous])
        found: dict[str, float | None] = {self.measure: value, f"{self.measure}_error": error}
        if anomalous.any():
            area = quality.auc(quality.reconstruction_errors(out, x), anomalous)
            found["auc"] = area
            found["auc_error"] = quality.auc_error(area, int(anomalous.sum()), int((~anomalous).sum()))
        return found

    def float_model(self) -> nn.Module:
        """The trained float model, in evaluation mode."""
        model = self.fresh_model()
        _load_state(model, self.float_artifact().file("float.npz"))
        return model.eval()

    @once
    def sensitivity(self) -> Artifact:
        """``sensitivity.json``: Hessian traces of the folded float network."""
        section = self.experiment.sensitivity
        depends = {
            "float": self.float_artifact().digest,
            "model": self._model_depends,
            "data": self.data().digest,
            "config": section,
            "loss": self.loss,
            "code": [store.code_digest("sensitivity"), store.code_digest("topology")],
            "versions": store.versions("torch", "pyhessian"),
        }

        def build(folder: Path) -> None:
            folded = fold_batch_norm(self.float_model(), self.input_shape)
            rows = slice(0, section.samples or None)
            x = torch.from_numpy(self.standardized["train"][rows].astype(np.float32))
            if self.loss == "mse":
                y = x.reshape(-1, *self.topology.output_shape)
            else:
                y = torch.from_numpy(self.split.train.y[rows].copy())
            found = sensitivity.measure(
                folded,
                x,
                y,
                method=section.method,
                loss=self.loss,
                input_name=INPUT,
                eigenvalue_samples=section.eigenvalue_samples,
                relative_error=section.relative_error,
                budget=section.budget,
            )
            (folder / "sensitivity.json").write_text(found.to_json())

        return self._make("sensitivity", "sensitivity", depends, build)

    @property
    def plan_names(self) -> list[str]:
        """Names of the plans: the homogeneous ones, then the mixed ones."""
        return self.experiment.plan_names

    @property
    def mixed_names(self) -> list[str]:
        """Names of the plans that the allocation chooses."""
        return self.experiment.mixed_names

    @property
    def hls_plans(self) -> list[str]:
        """The plans that become firmware."""
        return self.experiment.firmware_plans

    @once
    def plan_artifact(self, name: str) -> Artifact:
        """``plan.json``; for a mixed plan also ``allocation.json``, ``allocation.txt`` and ``front.csv``."""
        if name not in self.mixed_names:
            plan = choose.homogeneous_plan(self.topology.shapes, int(name.removeprefix("int")), self.experiment.plans)
            return self._make(
                "plans", f"plans/{name}", {"plan": plan.to_dict()}, lambda f: write(f / "plan.json", plan.to_json())
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
            write(folder / "plan.json", found.plan.to_json())
            write(folder / "allocation.json", found.to_json())
            write(folder / "allocation.txt", found.text() + "\n")
            if front is not None:
                rows = [
                    f"{cost:.0f},{objective:.9g}" for cost, objective in zip(front.costs, front.objectives, strict=True)
                ]
                write(folder / "front.csv", "\n".join([f"{front.budget},objective", *rows]) + "\n")

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

    @once
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

    @once
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

    @property
    def dialect(self) -> to_onnx.Dialect | None:
        """As the experiment says."""
        return self.experiment.onnx.dialect

    def hls_config(self, backend: str) -> to_hls.HlsConfig:
        """As the experiment says."""
        if self.experiment.firmware is None:
            raise FlowError("firmware: this experiment has no [firmware] section, so it has no projects; add one")
        return dataclasses.replace(self.experiment.hls, backend=backend)

    def vectors(self, name: str) -> IntArray:
        """The first samples of the test set."""
        rows = self.experiment.firmware.vectors if self.experiment.firmware is not None else 0
        return self.network(name).inputs[0].integers(self.split.test.x[:rows])

    def check_exports(self, *, projects: bool) -> None:
        """Refuse before training what HLS, where ``projects`` are to be made, would refuse after it.

        What it can take depends on the network's structure, not on its weights: the fresh network, calibrated on a few
        samples, is lowered and its projects are designed. Nothing is written. The bits that a dialect of standard ONNX
        needs depend on the weights as well: a dialect that could not hold the fresh network is a warning. Once the
        float network is trained, the stages themselves are soon enough.
        """
        wanted = self.experiment.firmware_backends if projects else []
        if not (wanted or self.dialect) or (self.out / "float" / store.MANIFEST).is_file():
            return
        plan = choose.homogeneous_plan(
            self.topology.shapes, self.experiment.plans.homogeneous[0], self.experiment.plans
        )
        model = quantize(self.fresh_model(), plan, self.experiment.quant, input_shape=self.input_shape)
        model.calibrate(torch.from_numpy(self.standardized["train"][:FEW].astype(np.float32)))
        model.freeze()
        network = lower(model.eval())
        if self.dialect:
            try:
                to_onnx.plan_network(network, self.dialect)
            except to_qonnx.NotExact as error:
                where = f"before training, plan {self.plan_names[0]}"
                self.reporter.warning(f"{self.without_dialect(where, error)}. After training it may be refused")
        for backend in wanted:
            try:
                to_hls.design(network, dataclasses.replace(self.experiment.hls, backend=backend))
            except to_qonnx.NotExact as error:
                raise FlowError(self.without_project(backend, error, network)) from error

    def stale_projects(self) -> list[Path]:
        """HLS projects in the firmware folder that other configurations left there."""
        return self.stale((name, backend) for name in self.hls_plans for backend in self.experiment.firmware_backends)

    @property
    def firmware_folder(self) -> Path:
        """Where the HLS projects go."""
        folder = self.experiment.firmware.folder if self.experiment.firmware is not None else ""
        return (self.experiment.folder / folder).resolve() if folder else self.out / "hls"

    @once
    def equality(self, name: str) -> Artifact:
        """``equality.json``, ``coverage.json``, ``equality.md``: the whole test set, every representation compared.

        With ``equality.drawn``, also every representation but the C simulation and onnx's reference evaluator on drawn
        inputs (their names end in ``-drawn``), and ``coverage-drawn.json``.
        """
        backends = self.experiment.firmware_backends if name in self.hls_plans else []
        depends = {
            **self._quantized_depends(name),
            **self.exports_depend(name, backends),
            "config": self.experiment.equality,
        }

        def build(folder: Path) -> None:
            certificate, tested, made = self._proof(name, backends)
            covered, more = ({value: entry.to_dict() for value, entry in counts.items()} for counts in (tested, made))
            store.write_json(folder / "equality.json", certificate)
            store.write_json(folder / "coverage.json", covered)
            page = [
                equality.markdown(certificate, f"Equality of plan {name}"),
                "What the test set exercised:\n",
                coverage.markdown(covered),
                *(f"\n**{problem}**" for problem in self.coverage_problems(name, covered)),
            ]
            if more:
                store.write_json(folder / "coverage-drawn.json", more)
                page += ["\nWhat the drawn inputs exercised:\n", coverage.markdown(more)]
            write(folder / "equality.md", "\n".join(page) + "\n")

        return self._make("equality", f"equality/{name}", depends, build)

    def coverage_problems(self, name: str, covered: Mapping[str, Mapping[str, int]]) -> list[str]:
        """Why the equality of a plan's representations proves nothing on this test set, if so."""
        return coverage.problems([output.name for output in self.network(name).outputs], covered)

    def _proof(
        self, name: str, backends: Sequence[str]
    ) -> tuple[dict[str, Any], dict[str, coverage.Coverage], dict[str, coverage.Coverage]]:
        network = self.network(name)
        trained = self.quantized(name)
        exported = self.exported(name)

        def compared(values: Mapping[str, torch.Tensor], *without: str) -> dict[str, Backend]:
            return {
                "qat": equality.trace_backend(
                    {key: _whole(tensor, key) for key, tensor in values.items()}, "QAT module in evaluation, float64"
                ),
                **{key: backend for key, backend in exported.items() if key not in without},
            }

        def of_rows(rows: slice) -> dict[str, Backend]:
            return compared(trained.integers(torch.from_numpy(self.standardized["test"][rows])))

        with tempfile.TemporaryDirectory(prefix="hawq_flow-csim-") as build:
            certificate, counts = prove(
                network,
                {network.inputs[0].name: network.inputs[0].integers(self.split.test.x)},
                of_rows,
                self.simulations(name, backends, Path(build)),
                progress=lambda done, rows: self.reporter.progress(done, rows, f"{name}: rows compared"),
            )
        if not (rows := self.experiment.equality.drawn):
            return certificate, counts, {}
        x = drawn(network, rows)
        more, more_counts = prove(
            network,
            x,
            lambda part: compared(trained.integers_of(x[network.inputs[0].name][part]), equality.SLOW),
            {},
            progress=lambda done, rows: self.reporter.progress(done, rows, f"{name}: drawn rows compared"),
        )
        entries = {
            f"{key}-drawn": {**entry, "method": f"{entry['method']}; on {rows:,} drawn inputs"}
            for key, entry in more["backends"].items()
        }
        certificate["backends"] |= entries
        return certificate, counts, more_counts


def _whole(tensor: torch.Tensor, name: str) -> IntArray:
    """A float64 tensor of whole numbers as int64; anything else is an error, not a cast."""
    array = tensor.cpu().numpy()
    if not (array == np.rint(array)).all():
        raise FlowError(f"QAT evaluation: {name} holds values that are not whole; evaluation must compute integers")
    return np.asarray(array, dtype=np.int64)


def _save_state(model: nn.Module, path: Path) -> None:
    store.save_arrays(path, {key: tensor.detach().cpu().numpy() for key, tensor in model.state_dict().items()})


def _load_state(model: nn.Module, path: Path) -> None:
    model.load_state_dict({key: torch.from_numpy(array) for key, array in store.load_arrays(path).items()})
