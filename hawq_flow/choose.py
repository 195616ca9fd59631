"""From sensitivities to plans: an experiment's own quantization errors, choices and budgets, put to the allocator.

The allocator (:mod:`hawq_flow.allocate`) takes plain numbers. Here they are made: every layer's weights, folded, are
quantized at every candidate width by the scheme that training will start from, and so is every activation on training
data, with the range its observer would find. The rest is configuration.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from hawq_flow import allocate
from hawq_flow.config import AllocateConfig, PlansConfig
from hawq_flow.plan import BitPlan, LayerShape, bops
from hawq_flow.quant import Observer, QuantConfig, activation_type
from hawq_flow.sensitivity import Sensitivity
from hawq_flow.topology import INPUT, Topology

SAMPLES = 16384
"""Training samples on which activations' quantization errors are measured."""


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
    weights = allocate.weight_terms(
        {stage.name: stage.linear.weight.detach().cpu().numpy().astype(np.float64) for stage in folded.stages},
        {entry.name: max(entry.trace, 0.0) for entry in measured.layers},
        config.weight_bits,
        per="channel" if quant.per_channel else "tensor",
        scaling="mse" if quant.weight_scale == "mse" else "max_abs",
    )
    values = activations(folded, x[:SAMPLES])
    inner = {}
    for stage in folded.stages:
        if stage.name == folded.output:
            continue
        errors = {
            bits: activation_error(values[stage.name], bits, stage.relu, quant) for bits in config.activation_bits
        }
        found = measured.activation(stage.name)
        inner[stage.name] = allocate.Term(found.size, config.activation_emphasis * max(found.trace, 0.0), errors)
    return allocate.Terms(weights, inner)


def activations(folded: Topology, x: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """Real activations of every layer by name, (n, outputs), in float64, and the input itself."""
    values = {INPUT: x}
    for stage in folded.stages:
        real = values[stage.source].reshape(len(x), -1) @ stage.linear.weight.detach().cpu().numpy().astype(float).T
        if stage.linear.bias is not None:
            real = real + stage.linear.bias.detach().cpu().numpy().astype(float)
        values[stage.name] = np.maximum(real, 0.0) if stage.relu else real
    return values


def activation_error(a: NDArray[np.float64], bits: int, relu: bool, config: QuantConfig) -> float:
    """Squared error, summed over elements and averaged over samples, of ``a`` in the range its observer finds."""
    kind = activation_type(bits, relu=relu, asymmetric=False)
    observer = Observer(config.activation_observer, config, kind)
    observer.observe(torch.from_numpy(a))
    scale, _ = observer.grid(asymmetric=False)
    return allocate.activation_error(a, bits, not relu, maximum=scale * kind.range[1])


def mixed_plan(
    shapes: Sequence[LayerShape], objective: allocate.Terms, config: AllocateConfig, plans: PlansConfig, name: str
) -> tuple[allocate.Allocation, allocate.ParetoFront | None]:
    """The best plan under the budgets of mixed plan ``name``; with the whole front when BOPs are the only budget."""
    choices = allocate.Choices.uniform(
        shapes,
        config.weight_bits,
        config.activation_bits,
        input_bits=plans.input_bits,
        output_bits=plans.output_bits,
    ).fix(config.fixed)
    choices = dataclasses.replace(choices, weight_groups=config.tied)
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
    if list(budgets) == ["bops"]:
        try:
            front = allocate.pareto_front(shapes, objective, choices)
        except allocate.NoChainError:  # too many open widths for the programme: the front is left out, the plan is not
            return allocate.allocate(shapes, objective, choices, budgets), None
        return front.best(budgets["bops"]), front
    return allocate.allocate(shapes, objective, choices, budgets), None
