"""Traces of piecewise linear networks from a few random backward passes, where all K of the exact method cost too much.

The exact method sends the K columns of the loss's factor ``F`` backward. Here each sample sends ``F s`` instead, with
its own random signs ``s``. As ``E[s s^T] = I``::

    E|J^T F s|^2 = trace(J^T F F^T J)

which is Hutchinson's estimator at the outputs' side of ``J`` (K wide) rather than the weights'. One backward pass is a
probe of every layer and every activation at once, without second derivatives, and the n samples' signs are independent:
the error falls with ``sqrt(n * probes)``, where probes of the Hessian of a batch fall with ``sqrt(probes)``. One
sample's probe has a relative variance of at most 2, so its standard error is stated from the spread of its probes.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from hawq_flow.sensitivity import cost
from hawq_flow.sensitivity.exact import Accumulator, precision
from hawq_flow.sensitivity.gradients import LayerForm
from hawq_flow.sensitivity.loss import LossName, loss_sketch
from hawq_flow.sensitivity.program import Program, Weights
from hawq_flow.sensitivity.result import ActivationSensitivity, LayerSensitivity

_DISPERSION = 4.0
"""What the mean square of the samples' traces is taken to be, over their squared mean, when probes are predicted."""


def predicted_probes(samples: int, relative_error: float, most: int) -> int:
    """Probes for a relative standard error: ``2 dispersion / (samples error^2)``, at least 2, at most ``most``."""
    return max(2, min(most, math.ceil(2 * _DISPERSION / (samples * relative_error**2))))


class SampleProbes:
    """Mean and standard errors from probes of every sample."""

    def __init__(self, samples: int, device: torch.device) -> None:
        self._total = torch.zeros(samples, dtype=torch.float64, device=device)
        self._squares = torch.zeros_like(self._total)
        self.count = 0

    def add(self, values: Tensor) -> None:
        """Take in probes of every sample, float64 of shape (n, probes)."""
        self._total += values.sum(1)
        self._squares += values.square().sum(1)
        self.count += values.shape[1]

    @property
    def mean(self) -> float:
        """The estimated trace."""
        return float(self._total.mean()) / self.count

    @property
    def estimator_error(self) -> float:
        """Standard error of :attr:`mean` from the probes alone."""
        means = self._total / self.count
        variances = (self._squares / self.count - means.square()).clamp(min=0) * (self.count / (self.count - 1))
        return math.sqrt(float(variances.mean()) / self.count / len(means))

    @property
    def sampling_error(self) -> float:
        """Standard error of :attr:`mean` from the data: the spread between samples that the probes do not explain."""
        means = self._total / self.count
        return math.sqrt(max(0.0, float(means.var()) / len(means) - self.estimator_error**2))

    def reached(self, tolerance: float) -> bool:
        """Whether the estimator's error is at most ``tolerance`` of the mean."""
        return self.estimator_error <= tolerance * abs(self.mean)


@torch.no_grad()
def sketch_traces(
    program: Program,
    model: nn.Module,
    x: Tensor,
    loss: LossName,
    generator: torch.Generator,
    *,
    activations: bool,
    tolerance: float,
    max_iterations: int,
) -> tuple[list[LayerSensitivity], list[ActivationSensitivity]]:
    """Traces of every layer and activation, to a relative standard error of ``tolerance`` each.

    Parameters
    ----------
    x:
        Standardized samples, shape (n, *features), any float dtype; n >= 2.
    generator:
        CPU generator of the signs.
    max_iterations:
        Most probes of a sample, at least 2; ``converged`` says for each trace whether they sufficed.
    """
    weights = Weights.of(model, program.layers, precision(model, program.layers))
    forms = cost.forms(program, weights)
    layers = {name: SampleProbes(len(x), x.device) for name in forms}
    wanted = program.activations if activations else {}
    values = {value: SampleProbes(len(x), x.device) for value in wanted.values()}
    every = (*layers.values(), *values.values())
    count, aim = 0, predicted_probes(len(x), tolerance, max_iterations)
    while count < aim:
        found = _probe(program, weights, forms, x, loss, generator, aim - count, activations=activations)
        for name, squares in found.layers.items():
            layers[name].add(squares)
        for value, squares in found.values.items():
            values[value].add(squares)
        count = aim
        if not all(probes.reached(tolerance) for probes in every):
            # The error falls with the root of the probes: what the worst trace still needs, half as much again at most.
            worst = max(probes.estimator_error / abs(probes.mean) for probes in every if probes.mean)
            aim = min(max_iterations, max(count + 1, math.ceil(count * min(1.5, (worst / tolerance) ** 2))))
    return (
        [
            LayerSensitivity(name, forms[name].weights, *_figures(probes, len(x), tolerance))
            for name, probes in layers.items()
        ],
        [
            ActivationSensitivity(name, program.size(value), *_figures(values[value], len(x), tolerance))
            for name, value in wanted.items()
        ],
    )


def _probe(
    program: Program,
    weights: Weights,
    forms: dict[str, LayerForm],
    x: Tensor,
    loss: LossName,
    generator: torch.Generator,
    probes: int,
    *,
    activations: bool,
) -> Accumulator:
    """``probes`` probes of every sample."""
    found = Accumulator(program, forms, len(x), x.device, activations=activations, probes=probes)
    chunk = cost.chunk(program, forms, probes, weights.dtype.itemsize, to_input=found.to_input, each=True)
    for start in range(0, len(x), chunk.samples):
        samples = slice(start, start + chunk.samples)
        at = program.forward(weights, x[samples].to(weights.dtype))
        for first in range(0, probes, chunk.columns):
            last = min(probes, first + chunk.columns)
            factor = loss_sketch(at[program.output], loss, last - first, generator)
            for value, step, adjoint in program.backward(weights, at, factor, to_input=found.to_input):
                found.add((samples, slice(first, last)), at, value, step, adjoint)
    found.check()
    return found


def _figures(
    probes: SampleProbes, samples: int, tolerance: float
) -> tuple[float, Literal["sketch"], float, float, int, int, bool]:
    return (
        probes.mean,
        "sketch",
        probes.estimator_error,
        probes.sampling_error,
        samples,
        probes.count,
        probes.reached(tolerance),
    )
