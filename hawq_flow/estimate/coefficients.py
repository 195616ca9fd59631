"""Fitted coefficients: what one of each term costs, how wrong they were on projects held out, and where they came from.

A :class:`Model` belongs to a stage and a strategy (``csynth.latency``). The file is readable JSON, versioned; its
digest is the *coefficient version* that every estimate carries.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from hawq_flow.document import exact_keys, listed, table, version
from hawq_flow.estimate import open_terms, terms
from hawq_flow.estimate.features import EstimateError, HardwareConfig, Kind, Strategy
from hawq_flow.estimate.terms import Terms
from hawq_flow.store import write_atomic

T = TypeVar("T")

Stage = Literal["csynth", "synthesis", "open"]
STAGES: tuple[Stage, ...] = ("csynth", "synthesis", "open")
Figure = Literal["lut", "ff", "dsp", "bram18", "latency_cycles"]
FIGURES: tuple[Figure, ...] = ("lut", "ff", "dsp", "bram18", "latency_cycles")
STAGE_FIGURES: Mapping[Stage, tuple[Figure, ...]] = {
    "csynth": FIGURES,
    "synthesis": FIGURES,
    "open": ("lut", "ff", "latency_cycles"),
}
"""The figures that a stage has; the open road uses no blocks."""
CLOCK = "clock period in ns on"
DOMAIN = (
    "terms of a dot product",
    "outputs",
    "input bits",
    "weight bits",
    "reuse factor",
    "positions",
    *(f"{CLOCK} {family}" for family in terms.FAMILIES),
)
"""Features of product layers that are checked against what was fitted."""
VERSION = 3
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
        For each figure, what one of each term costs; a term that was never measured is not there.
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
    kinds:
        Kinds of layers that were fitted.
    """

    coefficients: Mapping[str, Mapping[str, float]]
    scale: Mapping[str, float] = field(default_factory=dict)
    layer: Mapping[str, Spread] = field(default_factory=dict)
    design: Mapping[str, Spread] = field(default_factory=dict)
    domain: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    base: str = ""
    sources: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()

    def cost(self, figure: str, amounts: Terms, defaults: Mapping[str, Mapping[str, float]] = terms.DEFAULTS) -> float:
        """What the amounts cost, in the figure's unit: by ``defaults`` where a term has no coefficient."""
        coefficients = {**defaults.get(figure, {}), **self.coefficients.get(figure, {})}
        return sum(coefficients[name] * amount for name, amount in amounts.items())

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
            if "version" in data:
                version(data["version"], VERSION, where, "Fit the coefficients again")
            exact_keys(data, {"version", "name", "models"}, where)
            models = _each(data["models"], MODELS, f"{where}, models", _model)
            if not models:
                raise ValueError(f"{where}, models: found none; expected some of {listed(MODELS)}")
            return cls(_text(data["name"], f"{where}, name"), models)
        except ValueError as error:
            raise EstimateError(
                f"{where}: not coefficients of hawq_flow ({error}); give a file that it wrote"
            ) from None

    def save(self, path: Path) -> None:
        """Write the file, wholly or not at all."""
        write_atomic(path, self.to_json())

    @classmethod
    def load(cls, path: Path) -> Coefficients:
        """Read a file that :meth:`save` wrote."""
        try:
            text = path.read_text()
        except OSError as error:
            raise EstimateError(f"coefficients: {path} cannot be read ({error.strerror})") from None
        return cls.from_json(text, str(path))


MODELS = frozenset({*STAGES, *(f"{stage}.{strategy}" for stage in STAGES for strategy in get_args(Strategy))})


def _each(data: Any, known: Iterable[str], where: str, read: Callable[[Any, str], T]) -> dict[str, T]:
    """Every entry of a table, read; ``ValueError`` for a name that is not known."""
    table(data, where)
    for name in data:
        if name not in known:
            raise ValueError(f"{where}: unknown name {name!r}; expected some of {listed(known)}")
    return {name: read(entry, f"{where}.{name}") for name, entry in data.items()}


def _number(value: Any, where: str, least: float = 0.0) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < least:
        kind = "a finite number" + ("" if least == -math.inf else f" of at least {least:g}")
        raise ValueError(f"{where}: found {value!r}; expected {kind}")
    return float(value)


def _any_number(value: Any, where: str) -> float:
    return _number(value, where, -math.inf)


def _factor(value: Any, where: str) -> float:
    if _number(value, where) == 0:
        raise ValueError(f"{where}: found {value!r}; expected a factor above 0")
    return float(value)


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{where}: found {value!r}; expected a text")
    return value


def _texts(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError(f"{where}: found {value!r}; expected a list of texts")
    return tuple(_text(each, where) for each in value)


def _ordered(values: Sequence[float], where: str) -> None:
    if list(values) != sorted(values):
        raise ValueError(f"{where}: found {', '.join(f'{value:g}' for value in values)}; expected them in rising order")


def _range(value: Any, where: str) -> tuple[float, float]:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError(f"{where}: found {value!r}; expected the smallest and the largest")
    low, high = (_any_number(end, where) for end in value)
    _ordered((low, high), where)
    return low, high


def _spread(entry: Any, where: str) -> Spread:
    names = [each.name for each in dataclasses.fields(Spread)]
    exact_keys(entry, set(names), where)
    cycles = where.endswith("latency_cycles")
    ends = {name: _number(entry[name], f"{where}.{name}", -math.inf if cycles else 0.0) for name in names[1:5]}
    _ordered([ends[name] for name in ("low90", "low68", "high68", "high90")], f"{where}, low90 to high90")
    numbers = {}
    for name in ("rows", "projects"):
        numbers[name] = int(_number(entry[name], f"{where}.{name}", 1))
        if numbers[name] != entry[name]:
            raise ValueError(f"{where}.{name}: found {entry[name]!r}; expected an integer")
    median = _number(entry["median"], f"{where}.median")
    return Spread(median, **ends, rows=numbers["rows"], projects=numbers["projects"])


def _model(entry: Any, where: str) -> Model:
    exact_keys(entry, {each.name for each in dataclasses.fields(Model)}, where)
    stage = next(each for each in STAGES if where.rpartition("models.")[2].startswith(each))
    defaults = open_terms.DEFAULTS if stage == "open" else terms.DEFAULTS

    def costs(data: Any, at: str) -> dict[str, float]:
        return _each(data, defaults[at.rpartition(".")[2]], at, _number)

    base = entry["base"]
    if base not in ("", "csynth") or (base and stage != "synthesis"):
        raise ValueError(f"{where}.base: found {base!r}; expected '', or at stage synthesis 'csynth'")
    if not base:
        exact_keys(entry["coefficients"], set(defaults), f"{where}.coefficients")
    return Model(
        coefficients=_each(entry["coefficients"], defaults, f"{where}.coefficients", costs),
        scale=_each(entry["scale"], FIGURES, f"{where}.scale", _factor),
        layer=_each(entry["layer"], FIGURES, f"{where}.layer", _spread),
        design=_each(entry["design"], FIGURES, f"{where}.design", _spread),
        domain=_each(entry["domain"], DOMAIN, f"{where}.domain", _range),
        base=base,
        sources=_texts(entry["sources"], f"{where}.sources"),
        kinds=tuple(
            _each(
                dict.fromkeys(_texts(entry["kinds"], f"{where}.kinds")),
                get_args(Kind),
                f"{where}.kinds",
                lambda _, at: at,
            )
        ),
    )


@functools.cache
def shipped() -> Coefficients:
    """The coefficients that come with the package."""
    return Coefficients.from_json(resources.files("hawq_flow.estimate").joinpath(SHIPPED).read_text(), SHIPPED)
