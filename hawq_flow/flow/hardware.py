"""The open road of a network, wherever it came from: Verilog, its synthesis by Yosys, netlist and RTL as backends.

Artifacts, below the run's folder::

    rtl/NAME            the Verilog, a file a stage
    synthesis/NAME      synthesis.json: figures by module and in all, labelled "Yosys, not Vivado"

Netlists are kept in ``netlists``, by the module's text, the script and Yosys' version: plans that share a layer share
its synthesis. The folder may be deleted at any time.
"""

from __future__ import annotations

import dataclasses
import tempfile
from abc import abstractmethod
from functools import lru_cache
from pathlib import Path
from typing import Any

from hawq_flow import equality, store
from hawq_flow.config import RtlStage
from hawq_flow.equality import Backend
from hawq_flow.flow.exports import Exports
from hawq_flow.flow.making import FlowError, once
from hawq_flow.store import Artifact
from hawq_flow.to_rtl import NotSynthesizable, Rtl, SimulationError, generate, write
from hawq_flow.to_rtl.da4ml_optimizer import MissingOptimizer, da4ml_adders
from hawq_flow.to_rtl.simulators import choose as choose_simulator
from hawq_flow.to_rtl.synthesize import OpenSynthesis, synthesize
from hawq_flow.to_rtl.yosys import MissingTool, find_yosys


class Hardware(Exports):
    """Exports, and what the open road makes of a network."""

    @property
    @abstractmethod
    def rtl_stage(self) -> RtlStage:
        """How designs are made."""

    @property
    def without_yosys(self) -> str:
        """Why there is no synthesis; '' when there is."""
        try:
            find_yosys(self.rtl_stage.synthesis.yosys)
        except MissingTool as error:
            return str(error)
        return ""

    @property
    def without_simulator(self) -> str:
        """Why Verilog is not simulated; '' when it is."""
        if not self.rtl_stage.simulate:
            return "simulate = false in [rtl]"
        try:
            simulator()
        except SimulationError as error:
            return str(error)
        return ""

    def check_tools(self) -> None:
        """Refuse before training what the rtl stage would miss: an optimizer, or a Yosys, that is asked for by name."""
        stage = self.rtl_stage
        try:
            if stage.design.optimizer == "da4ml":
                da4ml_adders([[1]], 0, 1)
        except MissingOptimizer as error:
            raise FlowError(f"[rtl.design] optimizer: {error}: optimizer = 'shared'") from error
        try:
            if stage.synthesis.yosys is not None:
                find_yosys(stage.synthesis.yosys)
        except (MissingTool, ValueError) as error:
            raise FlowError(
                f"[rtl.synthesis] {error}. Or leave the key out, which takes the first that is there"
            ) from error

    @once
    def design(self, name: str) -> Rtl:
        """The design of a network."""
        try:
            return generate(self.network(name), self.rtl_stage.design)
        except NotSynthesizable as error:
            raise FlowError(f"{name}, Verilog: {error}. To go without it, leave the plan out of [rtl]") from error

    @once
    def synthesized(self, name: str) -> OpenSynthesis:
        """A network's synthesis, from netlists kept or made."""
        rtl = self.design(name)
        done = iter(range(1, len(rtl.modules) + 1))
        return synthesize(
            rtl,
            self.rtl_stage.synthesis,
            cache=self.out / "netlists",
            progress=lambda text: self.reporter.progress(next(done), len(rtl.modules), f"{name}: {text}"),
        )

    @once
    def rtl(self, name: str) -> Artifact:
        """The Verilog of a network."""
        depends = {
            "network": self.network_artifact(name).digest,
            "design": self.rtl_stage.design,
            "code": store.code_digest("to_rtl.generate"),
        }

        def build(folder: Path) -> None:
            write(self.design(name), folder / "verilog")

        return self._make("rtl", f"rtl/{name}", depends, build)

    @once
    def synthesis(self, name: str) -> Artifact:
        """``synthesis.json``: what Yosys makes of the Verilog."""
        config = dataclasses.replace(self.rtl_stage.synthesis, workers=None)
        yosys = find_yosys(config.yosys)
        depends = {
            "rtl": self.rtl(name).digest,
            "synthesis": config,
            "yosys": [yosys.flavour, yosys.version],
            "code": store.code_digest("to_rtl.synthesize"),
        }

        def build(folder: Path) -> None:
            store.write_json(folder / "synthesis.json", synthesis_figures(self.synthesized(name)))

        return self._make("synthesis", f"synthesis/{name}", depends, build)

    def circuits(self, name: str, build: Path) -> dict[str, Backend]:
        """The netlist and, where a simulator is at hand, the streaming Verilog of a network, for its certificate."""
        network, rtl = self.network(name), self.design(name)
        backends = {}
        whole = rtl.text is not None
        if whole and not self.without_yosys and not self.synthesized(name).reason:
            backends["netlist"] = equality.netlist_backend(network, self.synthesized(name))
        if whole and not self.without_simulator:
            backends["rtl"] = equality.rtl_backend(network, rtl, build / "rtl")
        return backends

    def circuits_depend(self, name: str) -> dict[str, Any]:
        """What a certificate of :meth:`circuits` depends on."""
        return {
            "rtl": self.rtl(name).digest,
            "synthesis": None if self.without_yosys else self.synthesis(name).digest,
            "simulator": None if self.without_simulator else simulator(),
            "code": store.code_digest("to_rtl"),
        }


@lru_cache
def simulator() -> str:
    """The RTL simulator that is used, with its version; ``SimulationError`` when there is none."""
    with tempfile.TemporaryDirectory(prefix="hawq_flow-simulator-") as folder:
        found = choose_simulator("auto", Path(folder))
    return found if isinstance(found, str) else found.version


def synthesis_figures(found: OpenSynthesis) -> dict[str, Any]:
    """A synthesis as plain JSON: the report in the one schema, totals, and figures by module."""
    total, unrolled = found.total, found.unrolled
    return {
        "version": 1,
        "report": dataclasses.asdict(found.report()),
        "total": None if total is None else dataclasses.asdict(total),
        "unrolled": None if unrolled is None else dataclasses.asdict(unrolled),
        "modules": [
            {
                "module": part.module.name,
                "ops": list(part.module.ops),
                "outcome": part.outcome.value,
                "reason": part.reason,
                "part": part.module.unrolled,
                "copies": part.module.copies,
                "latency_cycles": part.module.latency,
                "figures": None if part.figures is None else dataclasses.asdict(part.figures),
            }
            for part in found.modules
        ],
    }
