"""The stages in order: an experiment's TOML becomes a verified firmware project, one artifact a stage.

::

    data -> float -> sensitivity -> plans -> qat -> lower -> export -> hls -> rtl -> equality -> report

Every stage is a function of earlier artifacts and its section of the configuration, kept by ``store.make``: it is
skipped when its manifest matches. The folder of a run::

    run/data, float, sensitivity      one artifact each (sensitivity only when there are mixed plans)
    run/plans/NAME                    plan.json (and allocation.json, front.csv for a mixed plan)
    run/qat/NAME, network/NAME, qonnx/NAME, equality/NAME
    run/hls/NAME/BACKEND/project      hls4ml projects (or in the experiment's firmware folder), if it has [firmware]
    run/rtl/NAME, synthesis/NAME      Verilog and what Yosys makes of it, if it has [rtl]
    run/report                        report.md, report.json, figures
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from hawq_flow import equality, store, summary
from hawq_flow.config import check_layers
from hawq_flow.flow.figures import firmware_figures, hardware_figures, kept_budgets, write_report
from hawq_flow.flow.making import FlowError, once
from hawq_flow.flow.variants import BASELINE, Variants
from hawq_flow.plan import bops
from hawq_flow.store import Artifact

__all__ = ["STAGES", "Flow", "FlowError"]

FEW_STEPS = 500
"""Fewer optimizer steps than this draw a warning."""
STAGES = ("data", "float", "sensitivity", "plans", "qat", "lower", "export", "hls", "rtl", "equality", "report")


class Flow(Variants):
    """One run of an experiment. Artifacts are made on demand; :meth:`run` makes them all in order."""

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
                if stage == "data" and STAGES.index(until) >= STAGES.index("export"):
                    self.check_exports(projects=STAGES.index(until) >= STAGES.index("hls"))

    def _run_data(self) -> None:
        self.data()
        self.coefficients  # noqa: B018  a file that is not there is said before training
        check_layers(self.experiment.allocate, [stage.name for stage in self.topology.layers])
        for section, name in ((self.experiment.train, "train"), (self.experiment.qat, "qat")):
            steps = section.epochs * math.ceil(len(self.split.train) / section.batch_size)
            if 0 < steps < FEW_STEPS:
                self.reporter.warning(
                    f"[{name}] makes {steps} steps on {len(self.split.train):,} samples; fewer than {FEW_STEPS} rarely "
                    "train to the end: lower batch_size or raise epochs"
                )

    def _run_float(self) -> None:
        found = self.float_artifact().json("result.json")
        trained = "" if self.experiment.train.epochs else ", not trained"
        self.reporter.result(f"float: {self._figure(found)} on {found['test_samples']:,} test samples{trained}")

    def _figure(self, found: Mapping[str, Any]) -> str:
        """A result's measure in words."""
        text = summary.show(self.measure, found[f"test_{self.measure}"])
        return text + (f", AUC {found['test_auc']:.4f}" if "test_auc" in found else "")

    def _run_sensitivity(self) -> None:
        if self.mixed_names:
            self.sensitivity()

    def _run_plans(self) -> None:
        for name in self.plan_names:
            self.plan_artifact(name)
        for name in self.plan_names:
            plan = self.plan(name)
            cost = bops(plan, self.topology.shapes)
            self.reporter.result(f"{name}: {summary.widths(plan)}, {cost:,.0f} BOPs")
            if name in self.mixed_names:
                for line in self.plan_artifact(name).json("certainty.json"):
                    self.reporter.warning(f"{name}: {line}")

    def _run_qat(self) -> None:
        for name in self.plan_names:
            found = self.qat(name).json("result.json")
            self.reporter.result(f"{name}: {self._figure(found)} in integers")

    def _run_lower(self) -> None:
        for name in self.plan_names:
            self.network_artifact(name)

    def _run_export(self) -> None:
        for name in self.plan_names:
            self.qonnx(name)
            self.onnx(name)

    def _run_hls(self) -> None:
        for name in self.hls_plans:
            if problem := self.fit_problem(name):
                self.reporter.warning(f"{problem}: it may not fit; synthesis decides")
            for backend in self.experiment.firmware_backends:
                taken = self.reuse_factors(name, backend)
                if set(taken.values()) != {self.experiment.hls.reuse_factor}:
                    self.reporter.warning(
                        f"{name}, {backend}: hls4ml took other reuse factors than {self.experiment.hls.reuse_factor}: "
                        + ", ".join(f"{layer} {factor}" for layer, factor in taken.items())
                    )
        for stale in self.stale_projects():
            self.reporter.warning(f"{stale}: a project of an earlier run of other plans; not of this one. Delete it")

    def _run_rtl(self) -> None:
        if self.experiment.rtl is None:
            return
        if self.without_yosys:
            self.reporter.warning(f"no synthesis: {self.without_yosys}")
        if self.without_simulator:
            self.reporter.warning(f"Verilog is not simulated: {self.without_simulator}")
        if self.experiment.rtl.compare and self.without_baseline:
            self.reporter.warning(f"no {BASELINE} baseline: {self.without_baseline}")
        for name in [*self.variant_names, *self.experiment.rtl_plans]:
            self.rtl(name)
            if self.without_yosys:
                continue
            found = self.synthesis(name).json("synthesis.json")
            report, total = found["report"], found["total"]
            if total is None:
                self.reporter.warning(f"{name}: {'; '.join(report['notes'])}")
                continue
            cycles = report["timing"]["latency_cycles_max"]
            self.reporter.result(
                f"{name}: {total['lut_packed']:,} LUT, {total['ff']:,} FF, {total['dsp']:,} DSP"
                + (f", latency {cycles} cycles" if cycles is not None else ", one position a layer")
                + f" ({report['tool']}, {report['part']})"
            )

    def _run_equality(self) -> None:
        failed: list[str] = []
        for name in self.variant_names:
            if said := self._proved(name, self.variant(name), failed):
                accuracy = self.variant(name).json("result.json")["accuracy"]
                self.reporter.result(f"{name}: {accuracy:.2%}, {said}")
        for name in self.plan_names:
            artifact = self.equality(name)
            if said := self._proved(f"plan {name}", artifact, failed):
                covered = artifact.json("coverage.json")
                failed += [f"plan {name}: {problem}" for problem in self.coverage_problems(name, covered)]
                ties, saturated = (sum(entry[what] for entry in covered.values()) for what in ("ties", "saturated"))
                self.reporter.result(f"{name}: {said}, which hit {ties:,} ties and {saturated:,} saturations")
        if failed:
            raise FlowError("\n".join(failed))

    @staticmethod
    def _proved(what: str, artifact: Artifact, failed: list[str]) -> str:
        """A clean certificate in words; '' for one that is not, which is added to ``failed``."""
        certificate = artifact.json("equality.json")
        try:
            equality.require(certificate)
        except equality.EqualityError as error:
            failed.append(f"{what}: {error}")
            return ""
        return f"0 mismatches on {certificate['samples']:,} samples ({', '.join(certificate['backends'])})"

    def _run_report(self) -> None:
        for name in self.mixed_names:
            for kept in kept_budgets(self, name):
                self.reporter.warning(f"{name}: {summary.budget(kept)}")
        artifact = self.report()
        self.reporter.result(f"report: {artifact.path / 'report.md'}")

    @once
    def report(self) -> Artifact:
        """``report.md``, ``report.json`` and the figures."""
        names = self.plan_names
        depends = {
            "name": self.experiment.name,
            "data": self.data().digest,
            "float": self.float_artifact().digest,
            "sensitivity": self.sensitivity().digest if self.mixed_names else None,
            "plans": {name: self.plan_artifact(name).digest for name in names},
            "qat": {name: self.qat(name).digest for name in names},
            "network": {name: self.network_artifact(name).digest for name in names},
            "equality": {name: self.equality(name).digest for name in names},
            "firmware": firmware_figures(self),
            "hardware": hardware_figures(self),
            "estimates": [self.hardware, self.coefficients.version],
            "code": [store.code_digest("summary"), store.code_digest("flow.figures")],
            "versions": store.versions("matplotlib", "numpy"),
        }
        return self._make("report", "report", depends, lambda folder: write_report(self, folder))
