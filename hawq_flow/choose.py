"""From sensitivities to plans: an experiment's own quantization errors, choices and budgets, put to the allocator.

The allocator (:mod:`hawq_flow.allocate`) takes plain numbers. Here they are made: every layer's weights, folded, are
quantized at every candidate width by the scheme that training will start from, and so is every activation on training
data, with the range its observer would find. The rest is configuration.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from hawq_flow import allocate, estimate
from hawq_flow.config import AllocateConfig, PlansConfig
from hawq_flow.plan import BitPlan, LayerShape, bops, widths_read
from hawq_flow.quant import Observer, QuantConfig, activation_type
from hawq_flow.sensitivity import Sensitivity
from hawq_flow.to_hls import HlsConfig
from hawq_flow.topology import Topology, evaluate

SAMPLES = 16384
"""Training samples on which activations' quantization errors are measured, at most."""
ELEMENTS = 1 << 24
"""Fewer samples where the largest value of the network would have more elements than this."""


def homogeneous_plan(shapes: Sequence[LayerShape], bits: int, plans: PlansConfig) -> BitPlan:
    """The plan with ``bits`` for every weight and activation, and the experiment's input and output widths."""
    return BitPlan.homogeneous(shapes, bits, bits, input_bits=plans.input_bits, output_bits=plans.output_bits)


def terms(
    folded: Topology, x: NDArray[np.float64], measured: Sensitivity, config: AllocateConfig, quant: QuantConfig
) -> allocate.Terms:
    """The allocation's objective.

    Parameters
    ----------
    folded:
        The float model's layers, batch norm folded.
    x:
        Standardized training samples (n, ...); the first ``SAMPLES`` are used.
    measured:
        Hessian traces of the same folded model. A negative one (an estimate away from a minimum) counts as 0.
    """
    per, scaling = _scheme(quant)
    weights = allocate.weight_terms(
        {s.name: s.layer.weight.detach().cpu().flatten(1).numpy().astype(np.float64) for s in folded.layers},
        {entry.name: max(entry.trace, 0.0) for entry in measured.layers},
        config.weight_bits,
        per=per,
        scaling=scaling,
    )
    errors = activation_errors(folded, x, config.activation_bits, quant)
    inner = {}
    for name, by_bits in errors.items():
        found = measured.activation(name)
        inner[name] = allocate.Term(found.size, config.activation_emphasis * max(found.trace, 0.0), by_bits)
    return allocate.Terms(weights, inner)


def activation_errors(
    folded: Topology, x: NDArray[np.float64], widths: Sequence[int], quant: QuantConfig
) -> dict[str, dict[int, float]]:
    """Squared error of every layer's activation, but those that are the network's output, at every width.

    As many of the first ``SAMPLES`` samples are used as keep the largest value below ``ELEMENTS`` elements.
    """
    widest = max(math.prod(stage.shape) for stage in folded.stages)
    samples = torch.from_numpy(x[: max(1, min(SAMPLES, ELEMENTS // widest))]).double()
    inner = widths_read(folded.shapes)
    # Where the width applies: behind a table, if the layer has one of its own, for that is what others read.
    places = {stage.name: folded.activation(stage.name) for stage in folded.layers if stage.name in inner}
    values = evaluate(folded, samples, set(places.values()))
    return {
        name: {bits: activation_error(values[place].numpy(), bits, folded.nonnegative(place), quant) for bits in widths}
        for name, place in places.items()
    }


def joined_layers(shapes: Sequence[LayerShape]) -> list[tuple[str, ...]]:
    """Layers whose outputs are added or concatenated, directly or through others: groups of two or more, in order.

    The result of a sum or concatenation is as wide as one of its layers; were the others free to be wider, their
    integers would be cut to that width all the same, and the errors counted would not be those made.
    """
    names = [shape.name for shape in shapes]
    group = {name: {name} for name in names}
    for shape in shapes:
        for other in set(shape.joined) & set(names):
            merged = group[shape.name] | group[other]
            for name in merged:
                group[name] = merged
    found = {tuple(name for name in names if name in members) for members in group.values() if len(members) > 1}
    return sorted(found, key=lambda members: names.index(members[0]))


def activation_error(a: NDArray[np.float64], bits: int, relu: bool, config: QuantConfig) -> float:
    """Squared error, summed over elements and averaged over samples, of ``a`` in the range its observer finds."""
    kind = activation_type(bits, relu=relu, asymmetric=False)
    observer = Observer(config.activation_observer, config, kind)
    observer.observe(torch.from_numpy(a))
    scale, _ = observer.grid()
    return allocate.activation_error(a, bits, not relu, maximum=scale * kind.range[1])


def _scheme(quant: QuantConfig) -> tuple[Literal["channel", "tensor"], Literal["mse", "max_abs"]]:
    """How training scales weights, in the allocator's words."""
    return "channel" if quant.per_channel else "tensor", "mse" if quant.weight_scale == "mse" else "max_abs"


def weight_integers(
    folded: Topology, config: AllocateConfig, plans: PlansConfig, quant: QuantConfig
) -> dict[str, dict[int, NDArray[np.int64]]]:
    """Every layer's weights at every width that a plan may give them, int64 (outputs, fan-in)."""
    per, scaling = _scheme(quant)
    widths = sorted({*config.weight_bits, *plans.homogeneous, *config.fixed.values()})
    return {
        stage.name: {
            bits: allocate.weight_integers(
                stage.layer.weight.detach().cpu().flatten(1).numpy(), bits, per=per, scaling=scaling
            )
            for bits in widths
        }
        for stage in folded.layers
    }


def hardware_config(hls: HlsConfig) -> estimate.HardwareConfig:
    """What estimates need to know of how projects are made."""
    strategy: Literal["latency", "resource"] = "resource" if hls.strategy == "Resource" else "latency"
    io_type: Literal["io_parallel", "io_stream"] = "io_stream" if hls.io_type == "io_stream" else "io_parallel"
    return estimate.HardwareConfig(hls.reuse_factor, strategy, hls.clock_period_ns, hls.part, io_type)


def input_widths(shapes: Sequence[LayerShape], config: AllocateConfig, plans: PlansConfig) -> dict[str, list[int]]:
    """The widths that each layer's input may have, those of the homogeneous plans among them."""
    layers = {shape.name for shape in shapes}
    inner = sorted({*config.activation_bits, *plans.homogeneous})
    return {shape.name: inner if shape.source in layers else [plans.input_bits] for shape in shapes}


NO_DSP = 0.5
"""A budget of no DSPs: counts are whole, and a budget of the allocator is above 0."""


def hardware_limits(
    shapes: Sequence[LayerShape],
    config: AllocateConfig,
    plans: PlansConfig,
    name: str,
    tables: Mapping[str, allocate.CostTable],
) -> dict[str, float]:
    """The budgets of mixed plan ``name`` in hardware units, absolute.

    One below 1 is a fraction of the first homogeneous plan's.
    """
    first = homogeneous_plan(shapes, plans.homogeneous[0], plans)
    limits = {}
    for budget, limit in config.hardware_limits(name).items():
        limits[budget] = limit or NO_DSP
        if 0 < limit < 1 and budget != "latency_cycles":
            whole = allocate.used(first, shapes, tables[budget])
            if not whole > 0:
                raise ValueError(
                    f"allocation: budget {budget!r} is {limit:g} of plan int{plans.homogeneous[0]}'s, which is "
                    f"estimated to use {whole:g}; give an absolute limit of 1 or more, or leave it out"
                )
            limits[budget] = limit * whole
    return limits


def mixed_plan(
    shapes: Sequence[LayerShape],
    objective: allocate.Terms,
    config: AllocateConfig,
    plans: PlansConfig,
    name: str,
    tables: Mapping[str, allocate.CostTable] | None = None,
) -> tuple[allocate.Allocation, allocate.ParetoFront | None]:
    """The best plan under the budgets of mixed plan ``name``; with the whole front where there is one budget only.

    ``tables`` hold the estimated costs of the budgets in hardware units, by budget, layer and (weight, input) widths.
    """
    choices = allocate.Choices.uniform(
        shapes,
        config.weight_bits,
        config.activation_bits,
        input_bits=plans.input_bits,
        output_bits=plans.output_bits,
    ).fix(config.fixed)
    # What is added or concatenated takes one width, so the layers behind it choose that width together.
    choices = dataclasses.replace(choices, weight_groups=config.tied, activation_groups=joined_layers(shapes))
    budgets: dict[str, float] = {}
    limit = config.named_budgets[name]
    if limit is not None:
        budgets["bops"] = limit
        if limit <= 1:
            budgets["bops"] *= bops(homogeneous_plan(shapes, plans.homogeneous[0], plans), shapes)
    if config.weight_bits_total is not None:
        budgets["weight_bits"] = float(config.weight_bits_total)
    if config.mean_bits is not None:
        budgets["mean_bits"] = config.mean_bits
    tables = {budget: (tables or {})[budget] for budget in config.hardware_budgets}
    budgets |= hardware_limits(shapes, config, plans, name, tables)
    if len(budgets) == 1 and "mean_bits" not in budgets and "weight_bits" not in budgets:
        ((budget, most),) = budgets.items()
        try:
            front = allocate.pareto_front(shapes, objective, choices, budget, tables=tables)
        except allocate.NoChainError:  # too many open widths for the programme: the front is left out, the plan is not
            return allocate.allocate(shapes, objective, choices, budgets, tables=tables), None
        return front.best(most), front
    return allocate.allocate(shapes, objective, choices, budgets, tables=tables), None


def certainty(found: allocate.Allocation, plan_estimate: estimate.Estimate, limits: Mapping[str, float]) -> list[str]:
    """What the error bars say of a plan's budgets in hardware units: a line a budget.

    The allocator adds up costs layer by layer; the estimate of the whole plan, which also joins the layers, is the
    check of that, and its error bar says whether the limit is really kept.
    """
    lines = []
    for name, limit in limits.items():
        bar: estimate.Bar = getattr(plan_estimate.total, name)
        sum_of_layers = found.budget(name).used
        text = (
            f"{name}: estimated {bar.value:,.0f} before training ({sum_of_layers:,.0f} as the sum of its layers), "
            f"limit {limit:,.0f}"
        )
        if bar.low68 is None or bar.high68 is None:
            text += "; without an error bar, since nothing was measured"
        else:
            text += f"; 68 % of designs lie between {bar.low68:,.0f} and {bar.high68:,.0f}"
        if bar.uncertain(limit):
            text += ": UNCERTAIN whether the limit is kept; synthesize, or lower it"
        elif bar.value > limit:
            text += ": the whole is above the limit, the sum of its layers is not; lower it"
        lines.append(text)
    return lines + [f"beyond what was fitted: {warning}" for warning in plan_estimate.warnings]
