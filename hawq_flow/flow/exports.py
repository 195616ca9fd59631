"""What is made of an integer network, wherever it came from: QONNX, standard ONNX, HLS projects, and their backends."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import onnx

from hawq_flow import equality, store, to_hls, to_onnx, to_qonnx
from hawq_flow.equality import Backend
from hawq_flow.flow.making import FlowError, Maker, once
from hawq_flow.network import IntegerNetwork
from hawq_flow.numeric import IntArray
from hawq_flow.store import Artifact
from hawq_flow.to_hls import HlsConfig
from hawq_flow.to_onnx import Dialect


class Exports(Maker):
    """The artifacts that depend on a network alone; who derives from this says where networks come from."""

    way_out = ""
    """What to do when HLS refuses a network; ends the refusal."""

    @abstractmethod
    def network_artifact(self, name: str) -> Artifact:
        """The saved integer network of that name."""

    @abstractmethod
    def hls_config(self, backend: str) -> HlsConfig:
        """How a project is made for one of hls4ml's back ends."""

    @property
    @abstractmethod
    def firmware_folder(self) -> Path:
        """Where the HLS projects go."""

    @property
    @abstractmethod
    def dialect(self) -> Dialect | None:
        """The dialect of standard ONNX; None: chosen by proof."""

    @abstractmethod
    def vectors(self, name: str) -> IntArray:
        """Input integers that travel with a project of that network, (n, *input shape)."""

    @once
    def network(self, name: str) -> IntegerNetwork:
        """The integer network of that name."""
        return IntegerNetwork.load(self.network_artifact(name).path)

    @once
    def qonnx(self, name: str) -> Artifact:
        """``model.onnx``: the network in QONNX."""
        depends = {
            "network": self.network_artifact(name).digest,
            "code": store.code_digest("to_qonnx"),
            "versions": store.versions("torch", "onnx", "onnxscript", "qonnx"),
        }

        def build(folder: Path) -> None:
            to_qonnx.save(to_qonnx.export(self.network(name)), folder / "model.onnx")

        return self._make("export", f"qonnx/{name}", depends, build)

    @once
    def onnx(self, name: str) -> Artifact:
        """``model.onnx``: the network in standard, pre-quantized ONNX."""
        depends = {
            "network": self.network_artifact(name).digest,
            "dialect": self.dialect,
            "code": store.code_digest("to_onnx"),
            "versions": store.versions("torch", "onnx", "onnxscript"),
        }

        def build(folder: Path) -> None:
            try:
                model = to_onnx.export(self.network(name), self.dialect)
            except to_qonnx.NotExact as error:
                raise FlowError(self.without_dialect(f"plan {name}", error)) from error
            to_qonnx.save(model, folder / "model.onnx")

        return self._make("export", f"onnx/{name}", depends, build)

    @once
    def hls(self, name: str, backend: str) -> Artifact:
        """``project``: the network's hls4ml project for one back end."""
        config, vectors = self.hls_config(backend), self.vectors(name)
        depends = {
            "network": self.network_artifact(name).digest,
            "qonnx": self.qonnx(name).digest,
            "hls": config,
            "vectors": [list(vectors.shape), hashlib.sha256(vectors.tobytes()).hexdigest()],
            "code": store.code_digest("to_hls"),
            "versions": store.versions("hls4ml", "qonnx", "onnx", "numpy"),
        }

        def build(folder: Path) -> None:
            try:
                to_hls.write_project(self.network(name), folder / "project", config, vectors=vectors)
            except to_qonnx.NotExact as error:
                raise FlowError(self.without_project(f"{name}, {backend}", error, self.network(name))) from error

        return self._make("hls", f"{name}/{backend.lower()}", depends, build, self.firmware_folder)

    def reuse_factors(self, name: str, backend: str) -> dict[str, int]:
        """What hls4ml took for each layer with weights: the nearest, where the one asked for does not divide."""
        layers = to_hls.read_manifest(self.hls(name, backend).path / "project")["layers"]
        return {layer: entry["reuse_factor"] for layer, entry in layers.items() if "weight" in entry["types"]}

    def stale(self, projects: Iterable[tuple[str, str]]) -> list[Path]:
        """HLS projects in the firmware folder that are none of these (name, backend): an earlier configuration's."""
        current = {self.hls(name, backend).path for name, backend in projects}
        return sorted({path.parent for path in self.firmware_folder.glob(f"*/*/{store.MANIFEST}")} - current)

    def exported(self, name: str) -> dict[str, Backend]:
        """The plain definition and the exported models of a network, for its certificate."""
        network = self.network(name)
        qonnx, standard = (onnx.load(artifact.file("model.onnx")) for artifact in (self.qonnx(name), self.onnx(name)))
        return {
            "interpreter": equality.reference_backend(network),
            "qonnx": equality.qonnx_backend(network, qonnx),
            **equality.onnx_backends(network, standard),
        }

    def simulations(self, name: str, backends: Sequence[str], build: Path) -> dict[str, Backend]:
        """The C simulations of a network's projects and, if there are any, its plain C++; compiled below ``build``."""
        found = {
            f"csim-{backend.lower()}": equality.csim_backend(
                self.hls(name, backend).path / "project", build / backend.lower()
            )
            for backend in backends
        }
        return found | ({"cpp": equality.cpp_backend(self.network(name), build / "cpp")} if backends else {})

    def exports_depend(self, name: str, backends: Sequence[str]) -> Mapping[str, object]:
        """What a certificate of :meth:`exported` and :meth:`simulations` depends on."""
        return {
            "network": self.network_artifact(name).digest,
            "qonnx": self.qonnx(name).digest,
            "onnx": self.onnx(name).digest,
            "hls": {backend: self.hls(name, backend).digest for backend in backends},
            "code": [store.code_digest("prove"), store.code_digest("lower")],
            "versions": store.versions("qonnx", "hls4ml", "onnx", "onnxruntime", "torch", "numpy"),
        }

    def without_project(self, where: str, error: to_qonnx.NotExact, network: IntegerNetwork) -> str:
        """A refusal of HLS with the model's own name for the layer, and the way out that is left."""
        name, _, reason = str(error).partition(": ")
        layers = {op.name: op.layer for op in network.ops}
        named = f"layer {layers[name]!r}" if layers.get(name) else name
        return f"{where}, {named}: {reason}{self.way_out}"

    def without_dialect(self, where: str, error: to_qonnx.NotExact) -> str:
        """A refusal of standard ONNX, with the way out."""
        asked = f"dialect = {self.dialect.value!r} in [onnx]" if self.dialect else "standard ONNX"
        return f"{where}, {asked}: {error}"
