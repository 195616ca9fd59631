"""From data to bit plans: the data set, the float network, sensitivities, and the plans that budgets choose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from hawq_flow import allocate, choose, estimate, quality, sensitivity, store
from hawq_flow.flow.inputs import Inputs
from hawq_flow.flow.making import FlowError, once, write
from hawq_flow.numeric import IntArray
from hawq_flow.plan import BitPlan
from hawq_flow.store import Artifact
from hawq_flow.topology import INPUT, Topology, fold_batch_norm, read
from hawq_flow.train import TrainConfig, fit, predict


class Planning(Inputs):
    """The artifacts of a run up to its bit plans."""

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
            save_state(model, folder / "float.npz")
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
        load_state(model, self.float_artifact().file("float.npz"))
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
        section = self.experiment.allocate
        depends = {
            "float": self.float_artifact().digest,
            "model": self._model_depends,
            "data": self.data().digest,
            "sensitivity": self.sensitivity().digest,
            "config": section.of(name),
            "plans": self.experiment.plans,
            "quant": self.experiment.quant,
            "hardware": [self.hardware, self.coefficients.version] if section.hardware_budgets else None,
            "code": store.code_digest("choose"),
            "versions": store.versions("scipy", "numpy"),
        }

        def build(folder: Path) -> None:
            try:
                found, front = choose.mixed_plan(
                    self.topology.shapes, self._terms, section, self.experiment.plans, name, self.cost_tables
                )
            except allocate.InfeasibleError as error:
                limit = section.named_budgets[name]
                share = f" ({limit:g} of {self.plan_names[0]}'s)" if limit is not None and limit <= 1 else ""
                asked = "" if limit is None else f"budget of BOPs {limit}{share}: "
                raise FlowError(f"plan {name}: {asked}{error}") from error
            write(folder / "plan.json", found.plan.to_json())
            write(folder / "allocation.json", found.to_json())
            certain = self._certainty(name, found)
            store.write_json(folder / "certainty.json", certain)
            write(folder / "allocation.txt", "\n".join([found.text(), *certain]) + "\n")
            if front is not None:
                rows = [
                    f"{cost:.0f},{objective:.9g}" for cost, objective in zip(front.costs, front.objectives, strict=True)
                ]
                write(folder / "front.csv", "\n".join([f"{front.budget},objective", *rows]) + "\n")

        return self._make("plans", f"plans/{name}", depends, build)

    @cached_property
    def _folded(self) -> Topology:
        """The trained float network's stages, batch norm folded."""
        return read(fold_batch_norm(self.float_model(), self.input_shape), self.input_shape)

    @cached_property
    def _terms(self) -> allocate.Terms:
        measured = sensitivity.Sensitivity.from_json(self.sensitivity().file("sensitivity.json").read_text())
        return choose.terms(
            self._folded, self.standardized["train"], measured, self.experiment.allocate, self.experiment.quant
        )

    @property
    def hardware(self) -> estimate.HardwareConfig:
        """How projects are made, as estimates see it."""
        return choose.hardware_config(self.experiment.hls)

    @cached_property
    def coefficients(self) -> estimate.Coefficients:
        """The estimates' coefficients: the user's own, or those shipped."""
        file = self.experiment.allocate.coefficients
        return estimate.Coefficients.load(self.experiment.folder / file) if file else estimate.shipped()

    @cached_property
    def _integers(self) -> dict[str, dict[int, IntArray]]:
        """The float network's weights rounded at every width."""
        return choose.weight_integers(
            self._folded, self.experiment.allocate, self.experiment.plans, self.experiment.quant
        )

    @cached_property
    def cost_tables(self) -> Mapping[str, allocate.CostTable]:
        """Estimated costs by budget, layer and widths; none where no budget is in hardware units."""
        section, plans, shapes = self.experiment.allocate, self.experiment.plans, self.topology.shapes
        if not section.hardware_budgets:
            return {}
        return estimate.cost_tables(
            shapes,
            sorted(next(iter(self._integers.values()))),
            choose.input_widths(shapes, section, plans),
            self.hardware,
            section.stage,
            weights=self._integers,
            output_bits=plans.output_bits,
            coefficients=self.coefficients,
        )

    def _certainty(self, name: str, found: allocate.Allocation) -> list[str]:
        """What the estimates' error bars say of an allocated plan's budgets in hardware units."""
        section, plans, shapes = self.experiment.allocate, self.experiment.plans, self.topology.shapes
        if not section.hardware_budgets:
            return []
        whole = estimate.estimate_plan(
            shapes,
            found.plan,
            self.hardware,
            section.stage,
            weights=self._integers,
            coefficients=self.coefficients,
        )
        return choose.certainty(found, whole, choose.hardware_limits(shapes, section, plans, name, self.cost_tables))

    def plan(self, name: str) -> BitPlan:
        """One of the plans, by name."""
        return BitPlan.from_json(self.plan_artifact(name).file("plan.json").read_text())


def save_state(model: nn.Module, path: Path) -> None:
    """A model's state as an NPZ file."""
    store.save_arrays(path, {key: tensor.detach().cpu().numpy() for key, tensor in model.state_dict().items()})


def load_state(model: nn.Module, path: Path) -> None:
    """A model's state from :func:`save_state`'s file."""
    model.load_state_dict({key: torch.from_numpy(array) for key, array in store.load_arrays(path).items()})
