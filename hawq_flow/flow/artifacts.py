"""Every artifact of a run, made on demand: each a function of earlier ones and of its section of the configuration."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hawq_flow import (
    choose,
    coverage,
    devices,
    equality,
    estimate,
    store,
    to_hls,
    to_onnx,
    to_qonnx,
)
from hawq_flow.config import RtlStage
from hawq_flow.equality import Backend
from hawq_flow.flow.hardware import Hardware
from hawq_flow.flow.making import FlowError, once, write
from hawq_flow.flow.planning import Planning, load_state, save_state
from hawq_flow.lower import lower
from hawq_flow.numeric import IntArray
from hawq_flow.prove import drawn, prove
from hawq_flow.quant import QuantNetwork, quantize
from hawq_flow.report import Resources
from hawq_flow.store import Artifact

FEW = 16
"""Samples that stand in for training where only a network's structure matters."""


class Artifacts(Planning, Hardware):
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
            save_state(model, folder / "qat.npz")
            result = self._result(model, losses)
            result["zero_fraction"] = model.zero_fraction()
            store.write_json(folder / "result.json", result)

        return self._make("qat", f"qat/{name}", depends, build)

    def quantized(self, name: str) -> QuantNetwork:
        """The trained quantized network of a plan, frozen, in evaluation mode."""
        model = quantize(self.fresh_model(), self.plan(name), self.experiment.quant, input_shape=self.input_shape)
        load_state(model, self.qat(name).file("qat.npz"))
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

    @once
    def estimated(self, name: str, stage: estimate.Stage) -> estimate.Estimate:
        """What a plan's network is expected to take, before any synthesis."""
        return estimate.estimate(self.network(name), self.hardware, stage, coefficients=self.coefficients)

    def fit_problem(self, name: str) -> str:
        """Why a plan's project will hardly fit the part, before hours of synthesis; '' if it will, or nobody knows.

        ``DoesNotFit`` when even the low end of the estimates' 90 % range is more than the part has.
        """
        device = devices.find(self.experiment.hls.part)
        if device is None:
            return ""
        found = self.estimated(name, "synthesis")
        bars: dict[str, estimate.Bar] = {
            figure: getattr(found.total, figure) for figure in ("lut", "ff", "dsp", "bram18")
        }
        if not found.warnings:  # where nothing like the network was fitted, the ranges say nothing
            least = Resources(**{figure: bar.low90 for figure, bar in bars.items()})
            devices.check_fits(least, device, f"plan {name}, by the low end of its estimate")
        over = devices.fits(Resources(**{figure: bar.value for figure, bar in bars.items()}), device)
        return f"{name}: estimated at {'; '.join(map(str, over))} of {device.name}" if over else ""

    @property
    def rtl_stage(self) -> RtlStage:
        """As the experiment says."""
        return self.experiment.rtl or RtlStage(plans=())

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
            "circuits": self.circuits_depend(name) if name in self.experiment.rtl_plans else None,
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
                self.simulations(name, backends, Path(build))
                | (self.circuits(name, Path(build)) if name in self.experiment.rtl_plans else {}),
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
