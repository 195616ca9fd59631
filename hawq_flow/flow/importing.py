"""Another tool's quantized ONNX file, taken in and carried the whole road: network, exports, projects, certificates.

The folder of an import::

    OUT/network/model                 the integer network, and import.json: what was snapped, left in float, reordered
    OUT/qonnx/model, OUT/onnx/model   the same network as QONNX that hls4ml imports, and as standard ONNX
    OUT/hls/model/BACKEND/project     hls4ml projects, where asked for
    OUT/equality/model                every representation against the interpreter, on the data or on drawn inputs
    OUT/original/model                the integer network against the file that was imported, run as it is
    OUT/report/import.md              a page of all that
"""

from __future__ import annotations

import dataclasses
import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from hawq_flow import costs, coverage, equality, from_onnx, store
from hawq_flow.flow.exports import Exports
from hawq_flow.flow.making import FlowError, once, write
from hawq_flow.flow.rows import load_data
from hawq_flow.from_onnx import Imported
from hawq_flow.numeric import IntArray
from hawq_flow.prove import drawn, prove
from hawq_flow.reporter import Reporter
from hawq_flow.store import Artifact
from hawq_flow.to_hls import HlsConfig
from hawq_flow.to_onnx import Dialect

NAME = "model"
"""Name of the one network of an import."""
VECTORS = 256
"""Rows that travel with a project."""


@dataclass(frozen=True)
class ImportConfig:
    """What to import and how.

    Attributes
    ----------
    model:
        The ONNX file.
    snap, inputs:
        As for :func:`hawq_flow.from_onnx.read`.
    data:
        An ``.npy`` of raw inputs (n, *shape) in the file's own order, or an ``.npz`` with them as ``x`` and, if there
        are labels, class numbers (n,) as ``y``, or a text file of numbers, a row a line; None: inputs are drawn.
    labels:
        Class numbers (n,) in a file of their own: ``.npy``, or text.
    rows:
        Inputs drawn where there is no data.
    hls, backends:
        Projects are made for these back ends of hls4ml; none for none.
    """

    model: Path
    snap: float | None = None
    inputs: Mapping[str, str] = field(default_factory=dict)
    data: Path | None = None
    labels: Path | None = None
    rows: int = 1000
    backends: tuple[str, ...] = ()
    hls: HlsConfig = field(default_factory=HlsConfig)

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise ValueError(f"rows {self.rows}; expected 1 or more inputs to draw")
        if self.labels is not None and self.data is None:
            raise ValueError(f"labels {self.labels} without data; labels are of given inputs: give both")


class Import(Exports):
    """One import. Artifacts are made on demand; :meth:`run` makes them all."""

    way_out = ". To go without a project, leave --hls out"

    def __init__(self, config: ImportConfig, out: Path, reporter: Reporter | None = None) -> None:
        super().__init__(out, reporter)
        self.config = config

    # ------------------------------------------------------------------------------------------------ what it needs

    @property
    def dialect(self) -> Dialect | None:
        """Chosen by proof."""
        return None

    def hls_config(self, backend: str) -> HlsConfig:
        """As asked for."""
        return dataclasses.replace(self.config.hls, backend=backend)

    @property
    def firmware_folder(self) -> Path:
        """Beside the rest."""
        return self.out / "hls"

    def vectors(self, name: str) -> IntArray:
        """The first rows of what is compared."""
        return next(iter(self.integers.values()))[:VECTORS]

    @cached_property
    def imported(self) -> Imported:
        """The file, read."""
        if not self.config.model.is_file():
            raise FlowError(f"{self.config.model}: no such file; give an ONNX file")
        return from_onnx.read(self.config.model, snap=self.config.snap, inputs=self.config.inputs)

    @cached_property
    def data(self) -> tuple[dict[str, NDArray[Any]], NDArray[Any] | None] | None:
        """Raw inputs by the file's names and in its order, and labels where there are any."""
        if self.config.data is None:
            return None
        shapes = {entry.source: entry.shape for entry in self.imported.inputs}
        classes = min(math.prod(entry.shape) for entry in self.imported.outputs)
        return load_data(self.config.data, self.config.labels, shapes, classes)

    @cached_property
    def integers(self) -> dict[str, IntArray]:
        """The network's input integers that everything is compared on, by input."""
        if self.data is None:
            return drawn(self.imported.network, self.config.rows)
        return self.imported.integers(self.data[0])

    @property
    def _compared_on(self) -> dict[str, Any]:
        if self.config.data is None:
            return {"drawn": self.config.rows}
        labels = None if self.config.labels is None else store.file_digest(self.config.labels)
        return {"data": store.file_digest(self.config.data), "labels": labels}

    # ---------------------------------------------------------------------------------------------------- artifacts

    @once
    def network_artifact(self, name: str) -> Artifact:
        """The integer network and ``import.json``."""
        depends = {
            "file": store.file_digest(self.config.model),
            "snap": self.config.snap,
            "inputs": dict(self.config.inputs),
            "code": store.code_digest("from_onnx"),
            "versions": store.versions("onnx", "numpy"),
        }

        def build(folder: Path) -> None:
            self.imported.network.save(folder)
            found = self.imported
            store.write_json(folder / "import.json", {"snaps": found.snaps, "notes": found.notes})

        return self._make("import", f"network/{name}", depends, build)

    @once
    def equality(self, name: str) -> Artifact:
        """``equality.json``, ``coverage.json``: every representation against the interpreter."""
        depends = {**self.exports_depend(name, self.config.backends), "rows": self._compared_on}

        def build(folder: Path) -> None:
            exported = self.exported(name)
            with tempfile.TemporaryDirectory(prefix="hawq_flow-csim-") as work:
                certificate, counts = prove(
                    self.network(name),
                    self.integers,
                    lambda rows: exported,
                    self.simulations(name, self.config.backends, Path(work)),
                    progress=lambda done, rows: self.reporter.progress(done, rows, "rows compared"),
                )
            store.write_json(folder / "equality.json", certificate)
            store.write_json(folder / "coverage.json", {value: entry.to_dict() for value, entry in counts.items()})

        return self._make("equality", f"equality/{name}", depends, build)

    @once
    def original(self, name: str) -> Artifact:
        """``original.json``: the integer network against the imported file, run as it is."""
        depends = {
            "file": store.file_digest(self.config.model),
            "network": self.network_artifact(name).digest,
            "rows": self._compared_on,
            "code": store.code_digest("from_onnx"),
            "versions": store.versions("qonnx", "onnx", "onnxruntime", "numpy"),
        }

        def build(folder: Path) -> None:
            raw, labels = self.data if self.data is not None else (self.imported.rows(self.integers), None)
            store.write_json(folder / "original.json", from_onnx.compare(self.imported, raw, labels))

        return self._make("original", f"original/{name}", depends, build)

    @once
    def report(self) -> Artifact:
        """``import.md``: the page."""
        depends = {
            "network": self.network_artifact(NAME).digest,
            "equality": self.equality(NAME).digest,
            "original": self.original(NAME).digest,
            "name": self.config.model.name,
            "code": [store.code_digest("costs"), store.code_digest("flow.importing")],
        }
        return self._make("report", "report", depends, lambda folder: write(folder / "import.md", self._page()))

    def _page(self) -> str:
        certificate, counts = (self.equality(NAME).json(f"{what}.json") for what in ("equality", "coverage"))
        inputs = "the given data" if self.config.data is not None else "inputs drawn to reach ends, ties and borders"
        remarks = [f"- {remark}" for remark in self._remarks]
        return "\n".join(
            [
                f"# Import of {self.config.model.name}\n",
                "Every scale of the file is carried exactly."
                if not self.imported.snaps
                else f"{len(self.imported.snaps)} rescales of the file were changed within the accepted bound:",
                *(["", *remarks] if remarks else []),
                *(f"\n**{problem}**" for problem in self._problems),
                "\n## Layers\n",
                costs.markdown(costs.layers(self.network(NAME))),
                equality.markdown(certificate, f"Equality, on {inputs}"),
                coverage.markdown(counts),
                "\n## Against the file as it was\n",
                "\n".join(f"- {line}" for line in agreement(self.original(NAME).json("original.json"))) + "\n",
            ]
        )

    @property
    def _problems(self) -> list[str]:
        """Why equality on these inputs proves little, if so."""
        outputs = [output.name for output in self.network(NAME).outputs]
        return coverage.problems(outputs, self.equality(NAME).json("coverage.json"))

    @property
    def _remarks(self) -> list[str]:
        """What was snapped, left in float, or reordered, a line each."""
        return [*map(str, self.imported.snaps), *self.imported.notes]

    # ------------------------------------------------------------------------------------------------------- the run

    def run(self) -> None:
        """Make everything.

        Raises
        ------
        ImportRefused
            Naming every node that cannot be carried.
        FlowError
            When a representation differs from the interpreter (its certificate is kept).
        """
        self.integers  # noqa: B018  refuses a file or data before a folder is made
        with store.locked(
            self.out / "run", waiting=lambda: self.reporter.warning(f"another run is at work in {self.out}: waiting")
        ):
            network = self.network(NAME)
            found = costs.layers(network)
            self.reporter.result(
                f"{len(network.ops)} ops, {len(found)} layers, W {'-'.join(str(c.weight_bits) for c in found)}, "
                f"inputs of layers {'-'.join(str(c.input_bits) for c in found)}, {costs.bops(found):,.0f} BOPs"
            )
            for note in self._remarks:
                self.reporter.warning(note)
            for backend in self.config.backends:
                self.hls(NAME, backend)
            certificate = self.equality(NAME).json("equality.json")
            try:
                equality.require(certificate)
            except equality.EqualityError as error:
                raise FlowError(str(error)) from error
            for problem in self._problems:
                if self.config.data is not None:
                    raise FlowError(f"{self.config.data}: {problem}")
                self.reporter.warning(problem)
            for stale in self.stale((NAME, backend) for backend in self.config.backends):
                self.reporter.warning(f"{stale}: a project of an earlier import; not of this one. Delete it")
            names = ", ".join(certificate["backends"])
            self.reporter.result(f"0 mismatches on {certificate['samples']:,} samples ({names})")
            for line in agreement(self.original(NAME).json("original.json")):
                self.reporter.result(line)
            self.reporter.result(f"report: {self.report().path / 'import.md'}")


def agreement(found: Mapping[str, Any]) -> list[str]:
    """The comparison with the file itself in words, a line for each output."""
    lines = []
    for name, entry in found["outputs"].items():
        text = f"{name}: {entry['differ']:,} of {entry['elements']:,} elements differ from the file's own"
        text += f" ({found['executor']})"
        if entry["differ"]:
            text += f", by {entry['largest']} units at most, in {entry['rows_differ']:,} of {found['rows']:,} rows"
        if entry["argmax_differ"] is not None:
            text += f"; the largest output is another in {entry['argmax_differ']:,} rows"
        lines.append(f"{text}; {entry['note']}")
        if "accuracy" in entry:
            right = entry["accuracy"]
            lines.append(f"{name}: accuracy {right['integers']:.2%} in integers, {right['original']:.2%} of the file")
    return lines
