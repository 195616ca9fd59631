"""Fitted coefficients: what one of each term costs, how wrong they were on projects held out, and where they came from.

A :class:`Model` belongs to a stage and a strategy (``csynth.latency``). The file is readable JSON, versioned; its
digest is the *coefficient version* that every estimate carries.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from hawq_flow.document import exact_keys, table, version
from hawq_flow.estimate.features import EstimateError, HardwareConfig
from hawq_flow.estimate.terms import Terms

Stage = Literal["csynth", "synthesis", "open"]
STAGES: tuple[Stage, ...] = ("csynth", "synthesis", "open")
Figure = Literal["lut", "ff", "dsp", "bram18", "latency_cycles"]
FIGURES: tuple[Figure, ...] = ("lut", "ff", "dsp", "bram18", "latency_cycles")
VERSION = 1
SHIPPED = "coefficients.json"


@dataclass(frozen=True)
class Spread:
    """Errors of one figure on rows that were held out of the fit, every project weighing the same.

    Attributes
    ----------
    median:
        Median absolute error: relative to what was measured, for ``latency_cycles`` in cycles.
    low68, high68, low90, high90:
        What was measured, over what was predicted (cycles: less what was predicted): the quantiles that hold 68 % and
        90 % of the rows. They make the error bars.
    rows, projects:
        How many rows of how many projects.
    """

    median: float
    low68: float
    high68: float
    low90: float
    high90: float
    rows: int
    projects: int


@dataclass(frozen=True)
class Model:
    """Coefficients of one stage and strategy.

    Attributes
    ----------
    coefficients:
        For each figure, what one of each term costs.
    scale:
        A factor for each figure, 1 as shipped: what :func:`hawq_flow.estimate.calibrate` fits to few reports.
    layer, design:
        Errors of single layers and of whole designs, by figure; a figure that was never measured is not there.
    domain:
        Smallest and largest of each feature of the product layers that were fitted.
    base:
        '' or the stage whose estimate this one scales.
    sources:
        What was fitted: data, tool versions, rows.
    """

    coefficients: Mapping[str, Mapping[str, float]]
    scale: Mapping[str, float] = field(default_factory=dict)
    layer: Mapping[str, Spread] = field(default_factory=dict)
    design: Mapping[str, Spread] = field(default_factory=dict)
    domain: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    base: str = ""
    sources: tuple[str, ...] = ()

    def cost(self, figure: str, terms: Terms) -> float:
        """What the terms cost, in the figure's unit; terms without a coefficient cost nothing."""
        coefficients = self.coefficients.get(figure, {})
        return sum(coefficients.get(name, 0.0) * amount for name, amount in terms.items())

    def factor(self, figure: str) -> float:
        """The figure's scale."""
        return self.scale.get(figure, 1.0)


@dataclass(frozen=True)
class Coefficients:
    """All models, by ``stage.strategy`` or ``stage``, under a name ("shipped", or the user's)."""

    name: str
    models: Mapping[str, Model]

    def model(self, stage: Stage, hardware: HardwareConfig) -> Model:
        """The model of a stage and strategy, or ``EstimateError``."""
        for key in (f"{stage}.{hardware.strategy}", stage):
            if key in self.models:
                return self.models[key]
        raise EstimateError(
            f"estimate: no coefficients for stage {stage!r} with strategy {hardware.strategy!r}; there are "
            f"{', '.join(sorted(self.models))}"
        )

    @functools.cached_property
    def version(self) -> str:
        """Name and digest: what an estimate was made with."""
        return f"{self.name} {hashlib.sha256(self.to_json().encode()).hexdigest()[:12]}"

    def to_json(self) -> str:
        """Readable, with a final newline; the same coefficients give the same bytes."""
        models = {key: dataclasses.asdict(model) for key, model in sorted(self.models.items())}
        return json.dumps({"version": VERSION, "name": self.name, "models": models}, indent=1, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str, where: str = "coefficients") -> Coefficients:
        """Read :meth:`to_json`'s form; ``EstimateError`` naming ``where`` on anything else."""
        try:
            data: Any = json.loads(text)
            table(data, where)
            exact_keys(data, {"version", "name", "models"}, where)
            version(data["version"], VERSION, where, "Fit the coefficients again")
            return cls(data["name"], {key: _model(entry, f"{where}, {key}") for key, entry in data["models"].items()})
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise EstimateError(
                f"{where}: not coefficients of hawq_flow ({error}); give a file that it wrote"
            ) from None

    def save(self, path: Path) -> None:
        """Write the file."""
        path.write_text(self.to_json())

    @classmethod
    def load(cls, path: Path) -> Coefficients:
        """Read a file that :meth:`save` wrote."""
        try:
            text = path.read_text()
        except OSError as error:
            raise EstimateError(f"coefficients: {path} cannot be read ({error.strerror})") from None
        return cls.from_json(text, str(path))


def _model(entry: Any, where: str) -> Model:
    table(entry, where)
    exact_keys(entry, {each.name for each in dataclasses.fields(Model)}, where)
    return Model(
        coefficients={
            figure: {name: float(value) for name, value in terms.items()}
            for figure, terms in entry["coefficients"].items()
        },
        scale={figure: float(value) for figure, value in entry["scale"].items()},
        layer={figure: Spread(**spread) for figure, spread in entry["layer"].items()},
        design={figure: Spread(**spread) for figure, spread in entry["design"].items()},
        domain={name: (float(low), float(high)) for name, (low, high) in entry["domain"].items()},
        base=str(entry["base"]),
        sources=tuple(entry["sources"]),
    )


@functools.cache
def shipped() -> Coefficients:
    """The coefficients that come with the package."""
    return Coefficients.from_json(resources.files("hawq_flow.estimate").joinpath(SHIPPED).read_text(), SHIPPED)
