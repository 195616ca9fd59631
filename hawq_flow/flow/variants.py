"""Networks beside the plans, made to compare hardware with: the ``ap_fixed<16,6>`` baseline, and plans with a softmax.

A variant has a name, an integer network, Verilog and a synthesis like any plan, and a certificate of its netlist (and
of its Verilog, where it is simulated) on the whole test set. None is trained: the baseline is the float network in
hls4ml's default type, and a softmax follows a plan's network as it is.
"""

from __future__ import annotations

import tempfile
from functools import cached_property
from pathlib import Path

from hawq_flow import equality, interpret, quality, store
from hawq_flow.baseline import FixedPoint, fixed_point
from hawq_flow.flow.artifacts import Artifacts
from hawq_flow.flow.making import once
from hawq_flow.lower import with_softmax
from hawq_flow.numeric import IntArray
from hawq_flow.prove import prove
from hawq_flow.store import Artifact
from hawq_flow.topology import UnsupportedModelError

BASELINE = "ap_fixed"
"""Name of the float network in hls4ml's default type."""
SOFTMAX = "_softmax"
"""Ends the name of a plan's network with a softmax behind it."""


class Variants(Artifacts):
    """Artifacts of a run, and those of networks that its plans are compared with."""

    @property
    def variant_names(self) -> list[str]:
        """The baseline, and the first plans with a softmax, where ``[rtl]`` asks to compare."""
        stage = self.experiment.rtl
        if stage is None or not stage.compare or self.loss != "cross_entropy":
            return []
        chosen = [self.plan_names[0], *self.mixed_names[:1]]
        softmax = [f"{name}{SOFTMAX}" for name in chosen if name in self.experiment.rtl_plans]
        return [*([] if self.without_baseline else [BASELINE]), *softmax]

    @cached_property
    def without_baseline(self) -> str:
        """Why there is no ``ap_fixed`` baseline of this model; '' when there is."""
        try:
            fixed_point(self.fresh_model(), self.input_shape)
        except UnsupportedModelError as error:
            return str(error)
        return ""

    def check_exports(self, *, projects: bool) -> None:
        """Refuse before training what later stages would refuse after it; with projects, what Verilog needs as well."""
        super().check_exports(projects=projects)
        if projects and self.experiment.rtl_plans:
            self.check_tools()

    def network_artifact(self, name: str) -> Artifact:
        """The saved integer network of a plan or variant."""
        if name == BASELINE:
            return self._baseline()
        if name.endswith(SOFTMAX):
            return self._softmax(name)
        return super().network_artifact(name)

    @once
    def _baseline(self) -> Artifact:
        depends = {
            "float": self.float_artifact().digest,
            "model": self._model_depends,
            "data": self.data().digest,
            "format": str(FixedPoint()),
            "code": store.code_digest("baseline"),
        }

        def build(folder: Path) -> None:
            scheme = self.standardization
            fixed_point(self.float_model(), self.input_shape, mean=scheme.mean, std=scheme.std).save(folder)

        return self._make("lower", f"network/{BASELINE}", depends, build)

    @once
    def _softmax(self, name: str) -> Artifact:
        plan = name.removesuffix(SOFTMAX)
        depends = {"network": self.network_artifact(plan).digest, "code": store.code_digest("lower")}
        return self._make(
            "lower", f"network/{name}", depends, lambda folder: with_softmax(self.network(plan)).save(folder)
        )

    def variant_rows(self, name: str) -> dict[str, IntArray]:
        """The whole test set as a variant's input integers, by input."""
        spec = self.network(name).inputs[0]
        if name == BASELINE:  # truncated, as an assignment to the type does
            return {spec.name: FixedPoint().integers(self.standardized["test"])}
        return {spec.name: spec.integers(self.split.test.x)}

    @once
    def variant(self, name: str) -> Artifact:
        """``equality.json`` and ``result.json``: a variant's circuits against the interpreter, and its accuracy."""
        depends = {
            "network": self.network_artifact(name).digest,
            "data": self.data().digest,
            "circuits": self.circuits_depend(name),
            "code": [store.code_digest("prove"), store.code_digest("quality")],
        }

        def build(folder: Path) -> None:
            network, rows = self.network(name), self.variant_rows(name)
            with tempfile.TemporaryDirectory(prefix="hawq_flow-rtl-") as work:
                certificate, _ = prove(
                    network,
                    rows,
                    lambda part: {"interpreter": equality.reference_backend(network)},
                    self.circuits(name, Path(work)),
                    progress=lambda done, total: self.reporter.progress(done, total, f"{name}: rows compared"),
                )
            store.write_json(folder / "equality.json", certificate)
            right = quality.accuracy(interpret.run(network, rows), self.split.test.y)
            store.write_json(folder / "result.json", {"accuracy": right, "test_samples": len(self.split.test)})

        return self._make("equality", f"equality/{name}", depends, build)
