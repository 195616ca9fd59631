"""Estimates of a network's hardware before any synthesis, each with its error bar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hawq_flow.estimate import open_terms, terms
from hawq_flow.estimate.coefficients import CLOCK, DOMAIN, FIGURES, Coefficients, Figure, Model, Spread, Stage, shipped
from hawq_flow.estimate.features import PRODUCT, EstimateError, HardwareConfig, LayerFeatures, features
from hawq_flow.network import IntegerNetwork
from hawq_flow.to_rtl.config import RtlConfig


@dataclass(frozen=True)
class Bar:
    """One figure: its value, and the ranges that held 68 % and 90 % of what was measured on projects held out.

    The ranges are None where the figure was never measured for a fit. Units: LUTs, flip-flops, blocks, clock cycles.
    """

    value: float
    low68: float | None = None
    high68: float | None = None
    low90: float | None = None
    high90: float | None = None

    def uncertain(self, limit: float) -> bool:
        """Whether the 68 % range has both designs that keep a limit (at most it) and designs that do not."""
        return self.low68 is not None and self.high68 is not None and self.low68 <= limit < self.high68


@dataclass(frozen=True)
class Figures:
    """Figures of a layer or of a whole design."""

    lut: Bar
    ff: Bar
    dsp: Bar
    bram18: Bar
    latency_cycles: Bar
    interval_cycles: float


@dataclass(frozen=True)
class Estimate:
    """What a network is expected to take at one stage.

    Attributes
    ----------
    stage:
        ``csynth`` (the HLS tool's own estimate), ``synthesis`` (Vivado logic synthesis), ``open`` (Yosys, not Vivado).
    layers:
        Figures by layer, in order.
    total:
        Of the whole design: layers, and what joins them.
    coefficients:
        Name and digest of the coefficients.
    warnings:
        What lies outside of what was fitted, so that the error bars may not hold.
    """

    stage: Stage
    layers: tuple[tuple[str, Figures], ...]
    total: Figures
    coefficients: str
    warnings: tuple[str, ...]


def _bar(value: float, figure: Figure, spreads: dict[str, Spread]) -> Bar:
    spread = spreads.get(figure)
    if spread is None:
        return Bar(value)
    ends = (spread.low68, spread.high68, spread.low90, spread.high90)
    if figure == "latency_cycles":
        return Bar(value, *(max(value + end, 0.0) for end in ends))
    return Bar(value, *(value * end for end in ends))


def predicted(
    coefficients: Coefficients, stage: Stage, layers: Sequence[LayerFeatures], hardware: HardwareConfig
) -> tuple[list[dict[str, float]], dict[str, float]]:
    """Figures by name of each layer and of the whole design, without error bars; ``interval_cycles`` among them."""
    model = coefficients.model(stage, hardware)
    base = coefficients.model("csynth", hardware) if model.base else model
    each = _open_layers(model, layers) if stage == "open" else _layers(base, layers, hardware)
    longest = _longest(layers, [layer["latency_cycles"] for layer in each])
    whole = _open_design(model, longest) if stage == "open" else _design(base, layers, hardware)
    total: dict[str, float] = {
        figure: sum(layer[figure] for layer in each) + whole.get(figure, 0.0) for figure in FIGURES
    }
    total["latency_cycles"] = longest + whole["latency_cycles"]
    every: list[dict[str, float]] = [*each, total]
    for figures in every:
        for figure in FIGURES:
            # what scales csynth scales what is a ratio to it
            figures[figure] *= model.factor(figure) * (base.factor(figure) if model.base else 1.0)
    total["interval_cycles"] = max((layer["interval_cycles"] for layer in each), default=1.0)
    return each, total


def _layers(model: Model, layers: Sequence[LayerFeatures], hardware: HardwareConfig) -> list[dict[str, float]]:
    return [layer_figures(model, layer, hardware) for layer in layers]


def layer_figures(model: Model, layer: LayerFeatures, hardware: HardwareConfig) -> dict[str, float]:
    """Figures of one layer at an HLS stage, scales left out."""
    cycles = own_cycles(model, layer, hardware)
    latency = cycles + terms.waits(layer, hardware)
    return {
        "lut": model.cost("lut", terms.lut_terms(layer, hardware)),
        "ff": model.cost("ff", terms.ff_terms(layer, hardware, cycles)),
        "dsp": model.cost("dsp", terms.dsp_terms(layer, hardware)),
        "bram18": model.cost("bram18", terms.bram_terms(layer, hardware)),
        "latency_cycles": latency,
        "interval_cycles": terms.interval(layer, hardware, latency),
    }


def own_cycles(model: Model, layer: LayerFeatures, hardware: HardwareConfig) -> float:
    """Cycles of a layer's own logic, what reuse adds left out."""
    return max(model.cost("latency_cycles", terms.cycle_terms(layer, hardware)), 0.0)


def _design(model: Model, layers: Sequence[LayerFeatures], hardware: HardwareConfig) -> dict[str, float]:
    return {figure: model.cost(figure, terms.design_terms(figure, layers, hardware)) for figure in FIGURES}


def _open_layers(model: Model, layers: Sequence[LayerFeatures]) -> list[dict[str, float]]:
    return [
        {
            "lut": model.cost("lut", open_terms.lut_terms(layer), open_terms.DEFAULTS),
            "ff": model.cost("ff", open_terms.ff_terms(layer), open_terms.DEFAULTS),
            "dsp": 0.0,
            "bram18": 0.0,
            "latency_cycles": model.cost("latency_cycles", open_terms.cycle_terms(layer), open_terms.DEFAULTS),
            "interval_cycles": 1.0,
        }
        for layer in layers
    ]


def _open_design(model: Model, latency: float) -> dict[str, float]:
    return {"ff": model.cost("ff", open_terms.design_terms(latency), open_terms.DEFAULTS), "latency_cycles": 0.0}


def _longest(layers: Sequence[LayerFeatures], cycles: Sequence[float]) -> float:
    """Cycles along the longest path; along all layers where none says what it reads."""
    if not any(layer.reads for layer in layers):
        return sum(cycles)
    ends: dict[str, float] = {}
    for layer, own in zip(layers, cycles, strict=True):
        ends[layer.name] = own + max((ends.get(name, 0.0) for name in layer.reads), default=0.0)
    return max(ends.values(), default=0.0)


def domain_of(layer: LayerFeatures, hardware: HardwareConfig) -> dict[str, float]:
    """The features of a product layer that are checked against what was fitted."""
    sizes = (layer.n_in, layer.n_out, layer.input_bits, layer.weight_bits)
    values = (*sizes, hardware.reuse(layer.name), layer.positions)
    names = [name for name in DOMAIN if not name.startswith(CLOCK)]
    return {**dict(zip(names, values, strict=True)), f"{CLOCK} {hardware.family}": hardware.clock_ns}


def outside(model: Model, layers: Sequence[LayerFeatures], hardware: HardwareConfig) -> list[str]:
    """What lies outside of the fitted ranges, a line a feature; and kinds of layers that were never fitted."""
    lines: list[str] = []
    for layer in layers:
        if layer.kind not in model.kinds and layer.operations:
            fitted = ", ".join(model.kinds) or "no kind of layer"
            lines.append(
                f"{layer.name}: of kind {layer.kind!r}, estimated from first principles; fitted at this stage: {fitted}"
            )
        if layer.kind != PRODUCT:
            continue
        for name, value in domain_of(layer, hardware).items():
            if name not in model.domain:
                if (
                    model.domain
                    and name.startswith(CLOCK)
                    and (line := f"no layer was fitted with a {name}") not in lines
                ):
                    lines.append(line)
                continue
            low, high = model.domain[name]
            if not low <= value <= high:
                lines.append(f"{layer.name}: {name} {value:g}; fitted from {low:g} to {high:g}")
    return lines


def estimate_layers(
    layers: Sequence[LayerFeatures],
    hardware: HardwareConfig,
    stage: Stage = "csynth",
    *,
    coefficients: Coefficients | None = None,
) -> Estimate:
    """An estimate of layers whose features are known; see :func:`estimate`."""
    if not layers:
        raise EstimateError("estimate: no layer costs anything; expected at least one product, rescale, adder or table")
    coefficients = coefficients or shipped()
    hardware.check_layers(layer.name for layer in layers)
    model = coefficients.model(stage, hardware)
    each, total = predicted(coefficients, stage, layers, hardware)
    warnings = outside(model, layers, hardware)
    if stage != "open" and not hardware.known_part:
        warnings.append(
            f"part {hardware.part!r} is of no family that was fitted (Xilinx 7 series, UltraScale, UltraScale+): "
            "estimated as if it were UltraScale+"
        )
    if stage == "open" and any(layer.kind == PRODUCT and hardware.reuse(layer.name) > 1 for layer in layers):
        warnings.append("the open road is wholly unrolled: the reuse factor is left out")
    for layer in layers if stage == "open" else ():
        if layer.positions * layer.counts.nonzeros > RtlConfig().max_products:
            warnings.append(
                f"{layer.name}: estimated with all its {layer.positions} positions; the generator writes one beyond "
                f"{RtlConfig().max_products:,} products"
            )

    def figures(values: dict[str, float], spreads: dict[str, Spread]) -> Figures:
        bars = {figure: _bar(values[figure], figure, spreads) for figure in FIGURES}
        return Figures(**bars, interval_cycles=values["interval_cycles"])

    return Estimate(
        stage=stage,
        layers=tuple(
            (layer.name, figures(values, dict(model.layer))) for layer, values in zip(layers, each, strict=True)
        ),
        total=figures(total, dict(model.design)),
        coefficients=coefficients.version,
        warnings=tuple(warnings),
    )


def estimate(
    network: IntegerNetwork,
    hardware: HardwareConfig | None = None,
    stage: Stage = "csynth",
    *,
    coefficients: Coefficients | None = None,
) -> Estimate:
    """What a network is expected to take, from its own integers, before any synthesis.

    Parameters
    ----------
    network:
        Any integer network; convolutions and ops between layers are estimated too, with a warning where nothing like
        them was fitted.
    hardware:
        Reuse factor, strategy, clock, part; None: reuse factor 1, latency strategy, 5 ns, UltraScale+.
    stage:
        ``csynth``, ``synthesis`` or ``open``; figures of different stages are never to be mixed.
    coefficients:
        None: those shipped; else a user's own (:func:`hawq_flow.estimate.calibrate`).

    Raises
    ------
    EstimateError
        If there are no coefficients for the stage, nothing to estimate, or a reuse factor of a layer that is not there.
    """
    return estimate_layers(features(network), hardware or HardwareConfig(), stage, coefficients=coefficients)
