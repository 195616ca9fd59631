"""Experiments as frozen dataclasses, read from strict TOML: an unknown key is an error that offers the nearest one.

A section of the file is a dataclass here or the one its stage defines (``[quant]`` is ``QuantConfig``); a key is a
field; what is left out takes the field's default. Types are checked: a width given as text or a flag given as a number
is refused with its place in the file.
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
import math
import re
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from hawq_flow.plan import MAX_BITS
from hawq_flow.quant import QuantConfig
from hawq_flow.synthesis import SynthesisConfig
from hawq_flow.to_hls import HlsConfig
from hawq_flow.to_onnx import Dialect
from hawq_flow.to_rtl.config import RtlConfig
from hawq_flow.to_rtl.synthesize import RtlSynthesisConfig
from hawq_flow.train import TrainConfig


class ConfigError(ValueError):
    """A configuration that is not valid; the text says file, place, what was found, what was expected."""


def _widths(name: str, bits: tuple[int, ...]) -> None:
    """Refuse an empty list of widths, a width no plan can hold, or the same one twice."""
    if not bits:
        raise ValueError(f"{name} is empty; expected at least one width")
    for width in bits:
        if not 2 <= width <= MAX_BITS:
            raise ValueError(f"{name} {width}; expected 2 to {MAX_BITS} bits")
        if bits.count(width) > 1:
            raise ValueError(f"{name} {width} named twice; name each width once")


@dataclass(frozen=True)
class DataConfig:
    """Where the data come from: see ``data.load``.

    ``shape``, ``normal``, ``folder`` and ``label`` left empty, and 0 ``samples`` and ``classes``, are not given;
    ``standardize = "source"`` takes the source's own way.
    """

    source: str
    features: tuple[str, ...] = ()
    label: str = ""
    val_fraction: float = 0.1
    test_fraction: float = 0.2
    seed: int = 0
    shape: tuple[int, ...] = ()
    standardize: Literal["source", "feature", "channel", "shared"] = "source"
    normal: tuple[str, ...] = ()
    samples: int = 0
    classes: int = 0
    folder: str = ""


@dataclass(frozen=True)
class ModelConfig:
    """The float network: a Python file with ``build(**arguments)``, relative to the experiment's folder."""

    file: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PlansConfig:
    """The homogeneous baselines, and the widths of input and output that every plan shares.

    Without ``mixed`` there are no other plans: nothing is allocated, and no sensitivity is measured.
    """

    homogeneous: tuple[int, ...] = (8, 6, 4)
    input_bits: int = 16
    output_bits: int = 16
    mixed: bool = True

    def __post_init__(self) -> None:
        _widths("homogeneous", self.homogeneous)
        _widths("input_bits", (self.input_bits,))
        _widths("output_bits", (self.output_bits,))


@dataclass(frozen=True)
class SensitivityConfig:
    """How the Hessian traces are found.

    Attributes
    ----------
    method:
        "auto" chooses by predicted cost and says why; or "exact", "sketch", "hutchinson" (``hawq_flow.sensitivity``).
    samples:
        Training samples used; 0: all.
    budget:
        Floating-point operations up to which "auto" takes the exact method (a core does 1e10 to 5e10 a second).
    relative_error:
        Standard error that the estimators aim at, relative to the trace.
    eigenvalue_samples:
        Samples on which each layer's top eigenvalue is found; 0: none is.
    """

    method: Literal["auto", "exact", "sketch", "hutchinson"] = "auto"
    samples: int = 0
    budget: float = 1e13
    relative_error: float = 0.01
    eigenvalue_samples: int = 1024

    def __post_init__(self) -> None:
        for name in ("samples", "eigenvalue_samples"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} {getattr(self, name)}; expected 0 or more")
        for name in ("budget", "relative_error"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise ValueError(f"{name} {getattr(self, name)}; expected a positive number")


DEFAULT_BOPS = 0.6
"""Budget of the mixed plan when none is given: a fraction of the first homogeneous plan's BOPs."""


HARDWARE_BUDGETS = ("lut", "ff", "dsp", "latency_cycles")
"""Budgets that are estimates of hardware (``hawq_flow.estimate``)."""
TABLES = ("bops", *HARDWARE_BUDGETS)
"""Budgets that may be tables, of one budget a mixed plan."""


@dataclass(frozen=True)
class AllocateConfig:
    """How the mixed plans are chosen.

    Attributes
    ----------
    weight_bits, activation_bits:
        Candidate widths of every layer's weights and output.
    bops:
        A budget of bit operations: at most 1, a fraction of the first homogeneous plan's; above 1, absolute. A table
        {name: budget} makes one mixed plan of each; a number makes one, called "mixed", or is every plan's where
        another budget is a table. Left out: ``DEFAULT_BOPS``, or no such budget when another is given.
    weight_bits_total, mean_bits:
        More budgets, each optional, for every mixed plan: the bits of all weights, and the mean bits of a weight.
    lut, ff, dsp, latency_cycles:
        Budgets in hardware units, each optional, by the estimates of ``stage``: below 1, a fraction of the first
        homogeneous plan's; from 1 on, absolute. ``latency_cycles`` is absolute; ``dsp`` may be 0. A number is every
        mixed plan's; a table {name: budget} makes one mixed plan of each, as with ``bops``. Tables name the same plans.
    stage:
        Whose figures the estimates stand for: "open" (Yosys), "csynth" (HLS estimates), "synthesis" (Vivado).
    coefficients:
        A file of `hawq-flow calibrate`, relative to the experiment's folder; "": the shipped coefficients.
    fixed:
        Weight widths that are given, by layer.
    tied:
        Groups of layers that share one weight width.
    activation_emphasis:
        Factor on the terms of activations. 1 weighs both kinds of error alike, as for a network that is quantized and
        left; training afterwards makes good most of the weights' share of the loss but little of the activations'.
    """

    weight_bits: tuple[int, ...] = (2, 3, 4, 5, 6, 7, 8)
    activation_bits: tuple[int, ...] = (3, 4, 5, 6, 7, 8)
    bops: float | Mapping[str, float] | None = None
    weight_bits_total: int | None = None
    mean_bits: float | None = None
    lut: float | Mapping[str, float] | None = None
    ff: float | Mapping[str, float] | None = None
    dsp: float | Mapping[str, float] | None = None
    latency_cycles: float | Mapping[str, float] | None = None
    stage: Literal["open", "csynth", "synthesis"] = "open"
    coefficients: str = ""
    fixed: Mapping[str, int] = field(default_factory=dict)
    tied: tuple[tuple[str, ...], ...] = ()
    activation_emphasis: float = 1.0

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the mixed plans: those of the tables, else "mixed"."""
        return next((tuple(table) for table in self._tables.values()), ("mixed",))

    @property
    def _tables(self) -> dict[str, Mapping[str, float]]:
        """The budgets that are tables, by key."""
        given = {key: getattr(self, key) for key in TABLES}
        return {key: budget for key, budget in given.items() if isinstance(budget, Mapping)}

    @property
    def named_budgets(self) -> dict[str, float | None]:
        """The BOPs budget of every mixed plan, by the plan's name."""
        if isinstance(self.bops, Mapping):
            return dict(self.bops)
        other = self.weight_bits_total is not None or self.mean_bits is not None or self.hardware_budgets
        return dict.fromkeys(self.names, DEFAULT_BOPS if self.bops is None and not other else self.bops)

    @property
    def hardware_budgets(self) -> tuple[str, ...]:
        """Which budgets in hardware units are given, to every mixed plan."""
        return tuple(key for key in HARDWARE_BUDGETS if getattr(self, key) is not None)

    def hardware_limits(self, plan: str) -> dict[str, float]:
        """The budgets in hardware units of one mixed plan, by key, as they are given."""
        given = {key: getattr(self, key) for key in self.hardware_budgets}
        return {key: limit[plan] if isinstance(limit, Mapping) else limit for key, limit in given.items()}

    def of(self, plan: str) -> AllocateConfig:
        """What of this one mixed plan depends on: its own budgets, without the other plans'."""
        own: dict[str, Any] = {"bops": self.named_budgets[plan], **self.hardware_limits(plan)}
        return dataclasses.replace(self, **own)

    def __post_init__(self) -> None:
        _widths("weight_bits", self.weight_bits)
        _widths("activation_bits", self.activation_bits)
        self._check_tables()
        given = {key: getattr(self, key) for key in ("weight_bits_total", "mean_bits", *self.hardware_budgets)}
        for key, budget in {"bops": self.named_budgets, **given}.items():
            named = budget if isinstance(budget, Mapping) else {"": budget}
            for name, value in named.items():
                if value is not None and not value > 0 and not (key == "dsp" and value == 0):
                    whose = f"{key} of plan {name!r}" if name else key
                    raise ValueError(f"{whose} {value}; expected above 0, or no such key for no such budget")
        if self.dsp is not None and self.stage == "open":
            raise ValueError(
                "dsp is a budget, but designs of stage 'open' are estimated without DSPs; set stage = 'csynth' or "
                "'synthesis'"
            )
        if not self.activation_emphasis > 0:
            raise ValueError(f"activation_emphasis {self.activation_emphasis}; expected above 0")

    def _check_tables(self) -> None:
        """``ValueError`` unless every table of budgets names the same mixed plans, one at least."""
        for key, budgets in self._tables.items():
            if not budgets:
                raise ValueError(f"{key} is an empty table; name at least one mixed plan, or leave the key out")
            for name in budgets:
                if not re.fullmatch(r"[A-Za-z]\w*", name) or re.fullmatch(r"int\d+", name):
                    raise ValueError(
                        f"{key}: plan name {name!r}; expected letters, digits and underscores, and no homogeneous "
                        "plan's name (int8)"
                    )
            if set(budgets) != set(self.names):
                raise ValueError(
                    f"{key} is a table of plans {', '.join(budgets)}, {next(iter(self._tables))} of "
                    f"{', '.join(self.names)}; every table of budgets names all mixed plans: give each the same"
                )


@dataclass(frozen=True)
class HlsStage:
    """Which plans become HLS projects, and for which back ends. Without the section none does.

    Attributes
    ----------
    plans:
        Names of plans; left out: the first homogeneous and, if any, the first mixed one.
    backends:
        hls4ml's back ends: Vitis, Vivado, Catapult.
    folder:
        Where projects go, relative to the experiment's folder; "" is ``hls`` in the run's folder.
    vectors:
        Test samples that travel with a project as test vectors.
    """

    plans: tuple[str, ...] | None = None
    backends: tuple[Literal["Vitis", "Vivado", "Catapult"], ...] = ("Vitis", "Vivado")
    folder: str = ""
    vectors: int = 256

    def __post_init__(self) -> None:
        if self.vectors < 1:
            raise ValueError(f"vectors {self.vectors}; expected 1 or more: a project is checked with them")


@dataclass(frozen=True)
class RtlStage:
    """The open road: which plans become Verilog that Yosys synthesizes. Without the section none does.

    Attributes
    ----------
    plans:
        Names of plans; left out: those that become HLS projects, or without ``[firmware]`` as they would be.
    compare:
        Also the float network as ``ap_fixed<16,6>``, and the baseline plan and the first mixed one with a softmax.
    simulate:
        Whether the streaming Verilog is simulated on the whole test set; the synthesized netlist always is.
    design, synthesis:
        How Verilog is generated and how Yosys runs.
    """

    plans: tuple[str, ...] | None = None
    compare: bool = False
    simulate: bool = True
    design: RtlConfig = field(default_factory=RtlConfig)
    synthesis: RtlSynthesisConfig = field(default_factory=RtlSynthesisConfig)

    def __post_init__(self) -> None:
        if self.synthesis.dsp and self.design.dsp_threshold is None:
            raise ValueError(
                "[rtl.synthesis] dsp = true, but [rtl.design] has no dsp_threshold: products by constants are then "
                "shifts and adders, which no DSP takes; set dsp_threshold (Vivado HLS: 11), or leave dsp out"
            )


@dataclass(frozen=True)
class OnnxConfig:
    """The standard ONNX: ``dialect`` of its rescales; None: the first of float32, float64, integer proven exact."""

    dialect: Dialect | None = None


@dataclass(frozen=True)
class EqualityConfig:
    """What is compared beside the test set: ``drawn`` inputs, made to hit ties, saturation and borders.

    For networks whose test set is small or synthetic. The C simulation and
    onnx's reference evaluator are compared on the test set alone.
    """

    drawn: int = 0

    def __post_init__(self) -> None:
        if self.drawn < 0:
            raise ValueError(f"drawn {self.drawn}; expected 0 or more inputs")


@dataclass(frozen=True)
class Experiment:
    """A whole experiment; ``folder`` is where its TOML lies, which relative paths start from."""

    name: str
    folder: Path
    data: DataConfig
    model: ModelConfig
    seed: int = 0
    train: TrainConfig = field(default_factory=TrainConfig)
    qat: TrainConfig = field(default_factory=TrainConfig)
    quant: QuantConfig = field(default_factory=QuantConfig)
    plans: PlansConfig = field(default_factory=PlansConfig)
    sensitivity: SensitivityConfig = field(default_factory=SensitivityConfig)
    allocate: AllocateConfig = field(default_factory=AllocateConfig)
    hls: HlsConfig = field(default_factory=HlsConfig)
    firmware: HlsStage | None = None
    rtl: RtlStage | None = None
    synthesis: SynthesisConfig = field(default_factory=SynthesisConfig)
    onnx: OnnxConfig = field(default_factory=OnnxConfig)
    equality: EqualityConfig = field(default_factory=EqualityConfig)

    def __post_init__(self) -> None:
        if self.qat.loss != self.train.loss:
            raise ValueError(
                f"qat: loss {self.qat.loss!r}, but the float network's is {self.train.loss!r}; give [train] and [qat] "
                "the same loss"
            )
        if self.data.normal and self.train.loss != "mse":
            raise ValueError(
                f"data: normal is given, but the loss is {self.train.loss!r}; anomalies are found by reconstruction: "
                "set loss = 'mse' in [train] and [qat], or leave the key out"
            )
        names = self.plan_names
        for section, chosen in (("firmware", self.firmware_plans), ("rtl", self.rtl_plans)):
            for name in chosen:
                if name not in names:
                    raise ValueError(f"{section}: plans names {_nearest(name, names)}")

    @property
    def plan_names(self) -> list[str]:
        """Names of the plans: the homogeneous ones, then the mixed ones."""
        return [f"int{bits}" for bits in self.plans.homogeneous] + self.mixed_names

    @property
    def mixed_names(self) -> list[str]:
        """Names of the plans that the allocation chooses; none without ``plans.mixed``."""
        return list(self.allocate.names) if self.plans.mixed else []

    @property
    def firmware_plans(self) -> list[str]:
        """Names of the plans that become HLS projects."""
        if self.firmware is None:
            return []
        return self._main_plans if self.firmware.plans is None else list(self.firmware.plans)

    @property
    def rtl_plans(self) -> list[str]:
        """Names of the plans that become Verilog and are synthesized."""
        if self.rtl is None:
            return []
        if self.rtl.plans is not None:
            return list(self.rtl.plans)
        return self.firmware_plans or self._main_plans

    @property
    def _main_plans(self) -> list[str]:
        """The first homogeneous plan and, if any, the first mixed one."""
        return [f"int{self.plans.homogeneous[0]}", *self.mixed_names[:1]]

    @property
    def firmware_backends(self) -> list[str]:
        """hls4ml's back ends that projects are made for."""
        return list(self.firmware.backends) if self.firmware is not None else []


def _nearest(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"{name!r}; {f'did you mean {near[0]!r}? ' if near else ''}There are {', '.join(known)}"


def check_layers(config: AllocateConfig, layers: Sequence[str]) -> None:
    """``ConfigError`` when ``fixed`` or ``tied`` name what is no layer of the model, or one layer twice."""
    for name in config.fixed:
        if name not in layers:
            raise ConfigError(f"allocate: fixed names {_nearest(name, layers)}")
    if not all(config.tied):
        raise ConfigError("allocate: tied holds an empty group; name at least two layers in each")
    grouped = [name for group in config.tied for name in group]
    for name in grouped:
        if name not in layers:
            raise ConfigError(f"allocate: tied names {_nearest(name, layers)}")
        if grouped.count(name) > 1:
            raise ConfigError(f"allocate: tied names {name!r} twice; merge its groups")


def load(path: Path | str) -> Experiment:
    """Read an experiment's TOML.

    Raises
    ------
    ConfigError
        On a missing file, bad TOML, an unknown or missing key, or a value of the wrong type or range.
    """
    path = Path(path)
    if path.is_dir():
        path = path / "experiment.toml"
    if not path.is_file():
        raise ConfigError(f"{path}: no such file; give an experiment's TOML, or the folder that holds experiment.toml")
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    if "folder" in document:
        raise ConfigError(f"{path}: unknown key 'folder'; it is the folder the file lies in")
    return typing.cast(Experiment, build(Experiment, {**document, "folder": path.parent.resolve()}, str(path)))


def build(cls: Any, values: Mapping[str, Any], where: str) -> Any:
    """An instance of dataclass ``cls`` from a mapping, strictly; ``where`` begins every error."""
    hints = typing.get_type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls)}
    for key in values:
        if key not in fields:
            near = difflib.get_close_matches(key, fields, n=1)
            known = ", ".join(name for name in fields if name != "folder")
            hint = f"did you mean {near[0]!r}?" if near else f"known keys: {known}"
            raise ConfigError(f"{where}: unknown key {key!r}; {hint}")
    arguments = {}
    for name, spec in fields.items():
        if name in values:
            arguments[name] = _convert(hints[name], values[name], f"{where}: {name}")
        elif spec.default is dataclasses.MISSING and spec.default_factory is dataclasses.MISSING:
            raise ConfigError(f"{where}: key {name!r} is missing; it has no default")
    try:
        return cls(**arguments)
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from error


def _convert(hint: Any, value: Any, where: str) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where}: found {value!r}; expected a section")
        return build(hint, value, where)
    if origin in (types.UnionType, typing.Union):
        errors: list[str] = []
        for option in args:
            if option is type(None):
                continue
            try:
                return _convert(option, value, where)
            except ConfigError as error:
                errors.append(str(error))
        deeper = [error for error in errors if not error.startswith(f"{where}: found")]
        if deeper:  # the right kind of value, with something wrong inside
            raise ConfigError(deeper[0])
        wanted = " or ".join(error.rsplit("expected ", 1)[1] for error in errors)
        raise ConfigError(f"{where}: found {value!r}; expected {wanted}")
    if origin is Literal:
        if value not in args:
            raise ConfigError(f"{where}: found {value!r}; expected one of {', '.join(map(repr, args))}")
        return value
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise ConfigError(f"{where}: found {value!r}; expected a list")
        return tuple(_convert(args[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if hint is Mapping or origin in (Mapping, dict) or getattr(origin, "__name__", "") == "Mapping":
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where}: found {value!r}; expected a table")
        return {str(k): _convert(args[1], v, f"{where}.{k}") if args else v for k, v in value.items()}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        names = [member.value for member in hint]
        if value not in names:
            raise ConfigError(f"{where}: found {value!r}; expected one of {', '.join(map(repr, names))}")
        return hint(value)
    if hint is Any:
        return value
    if hint is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        if not -1e300 < value < 1e300:  # also infinities and NaN, which TOML can write
            raise ConfigError(f"{where}: found {value!r}; expected a finite number")
        return float(value)
    if hint is int and isinstance(value, int) and not isinstance(value, bool) and not abs(value) < 2**53:
        raise ConfigError(f"{where}: found {value}; expected an integer below 2^53")
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise ConfigError(f"{where}: found {value!r}; expected {getattr(hint, '__name__', hint)}")
    return value
