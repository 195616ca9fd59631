"""Hessian traces by Hutchinson's estimator, for networks on which the exact identity does not hold, and as a
cross-check.

For a random vector ``v`` of independent signs, ``E[v^T H v] = trace H`` (Hutchinson 1990; in HAWQ-v2,
arXiv:1911.03852). Weights go through PyHessian (arXiv:1912.07145). What PyHessian 0.1 does to its caller is kept from
the caller here:

* it puts the model in evaluation mode and leaves gradients behind: it gets a deep copy, in float64;
* it differentiates every parameter: all but the one layer's weights are frozen, so a block's trace comes alone;
* gradients of an earlier run are added to the next one's: they are dropped before every run;
* it draws from the global generator: that runs inside ``fork_rng``, seeded from this module's own generator;
* its stopping rule compares successive means and stops by luck: it is disabled, and probes are added in rounds until
  the standard error of the mean, measured from the probes, is small enough.

The data is cut into batches with independent probes. The spread of the probes within a batch gives the estimator's
error; the spread of the batch means, less the part the probes explain, gives the data's. A batch is as large as its
graph, differentiated twice, fits :data:`~hawq_flow.sensitivity.cost.MEMORY`: what autograd saves for two samples is
counted first.
"""

from __future__ import annotations

import copy
import math
import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from hawq_flow.sensitivity import cost
from hawq_flow.sensitivity.eigenvalues import top_eigenvalue
from hawq_flow.sensitivity.linearity import activation_stages
from hawq_flow.sensitivity.loss import LossName, criterion, total
from hawq_flow.sensitivity.result import ActivationSensitivity, LayerSensitivity
from hawq_flow.sensitivity.sketch import SampleProbes
from hawq_flow.topology import INPUT, Topology, read, stage_output

_PROBES_PER_ROUND = 8
_BATCH = 2048


class Probes:
    """Standard errors from probes arranged as (batches, probes), batches weighted by their samples."""

    def __init__(self, sizes: list[int]) -> None:
        self._weights = np.array(sizes, dtype=np.float64) / sum(sizes)
        self._values = np.empty((len(sizes), 0))

    def add(self, values: list[list[float]]) -> None:
        """Take in one round: for each batch, the estimates of equally many probes."""
        self._values = np.concatenate([self._values, np.array(values, dtype=np.float64)], axis=1)

    @property
    def count(self) -> int:
        """Probes of every batch so far."""
        return int(self._values.shape[1])

    @property
    def mean(self) -> float:
        """The estimated trace."""
        return float(self._weights @ self._values.mean(axis=1))

    @property
    def estimator_error(self) -> float:
        """Standard error of :attr:`mean` from the probes alone."""
        variances = self._values.var(axis=1, ddof=1) / self.count
        return math.sqrt(float(self._weights**2 @ variances))

    @property
    def sampling_error(self) -> float:
        """Standard error of :attr:`mean` from the data: the spread between batches that the probes do not explain."""
        means = self._values.mean(axis=1)
        batches = len(means)
        between = float(self._weights @ (means - self.mean) ** 2) / (batches - 1)
        return math.sqrt(max(0.0, between - self.estimator_error**2))


def _batches(x: Tensor, y: Tensor, most: int) -> list[tuple[Tensor, Tensor]]:
    """At least 8 batches (2 when the samples are few), nearly equal: their spread is the sampling error."""
    count = min(len(x), max(math.ceil(len(x) / most), min(8, len(x) // 2)))
    return list(zip(torch.tensor_split(x, count), torch.tensor_split(y, count), strict=True))


def largest_batch(model: nn.Module, x: Tensor, y: Tensor, loss: LossName) -> int:
    """The most samples whose graph, differentiated twice, fits the memory; at most 2048.

    ``model`` and ``x`` (at least 2 samples) are float64. What autograd saves for the gradient of every parameter and of
    the input is counted on two samples; the products with it are taken to need as much again.
    """
    saved: dict[int, int] = {}
    parameters = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    required = [parameter.requires_grad for parameter in model.parameters()]
    model.requires_grad_(True)
    leaf = x[:2].detach().clone().requires_grad_(True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        value = total(loss, model(leaf.clone()), y[:2])
        torch.autograd.grad(value, [leaf, *model.parameters()], create_graph=True, allow_unused=True)
    for parameter, wanted in zip(model.parameters(), required, strict=True):
        parameter.requires_grad_(wanted)
    each = 2 * sum(saved.values()) / 2
    return max(1, min(_BATCH, int(cost.MEMORY / max(each, 1.0))))


def _double(model: nn.Module, x: Tensor, y: Tensor) -> tuple[nn.Module, Tensor, Tensor]:
    """A copy of the model in evaluation, samples and targets, all in float64 (labels stay integers)."""
    return copy.deepcopy(model).eval().double(), x.double(), y.double() if y.is_floating_point() else y


def _seed(generator: torch.Generator) -> int:
    return int(torch.randint(0, 2**62, (1,), generator=generator))


def _reached(mean: float, error: float, tolerance: float) -> bool:
    return error <= tolerance * abs(mean)


def hutchinson_layers(
    model: nn.Module,
    names: list[str],
    x: Tensor,
    y: Tensor,
    loss: LossName,
    generator: torch.Generator,
    *,
    tolerance: float,
    max_iterations: int,
) -> list[LayerSensitivity]:
    """Trace of every named layer's Hessian; see the module's docstring.

    Parameters
    ----------
    x, y:
        Samples (n, *features) and int64 labels (n,), or targets of the outputs' shape, on the model's device; n >= 4.
    tolerance:
        Relative standard error of the estimator at which probes stop.
    max_iterations:
        Most probes of a batch; ``converged`` is False when they end first.
    """
    scratch, x, y = _double(model, x, y)
    batches = _batches(x, y, largest_batch(scratch, x, y, loss))
    results = []
    for name in names:
        scratch.requires_grad_(False)
        weight = scratch.get_submodule(name).weight
        assert isinstance(weight, nn.Parameter)
        weight.requires_grad_(True)
        probes = Probes([len(bx) for bx, _ in batches])
        converged = False
        while not converged and probes.count < max_iterations:
            count = min(_PROBES_PER_ROUND, max(2, max_iterations - probes.count))
            probes.add([_pyhessian_probes(scratch, bx, by, loss, count, _seed(generator)) for bx, by in batches])
            converged = _reached(probes.mean, probes.estimator_error, tolerance)
        results.append(
            LayerSensitivity(
                name,
                weight.numel(),
                probes.mean,
                "hutchinson",
                probes.estimator_error,
                probes.sampling_error,
                len(x),
                probes.count,
                converged,
            )
        )
    return results


def _pyhessian_probes(model: nn.Module, x: Tensor, y: Tensor, loss: LossName, count: int, seed: int) -> list[float]:
    """``count`` values of ``v^T H v`` in the one parameter of ``model`` that requires a gradient."""
    import pyhessian

    model.zero_grad(set_to_none=True)  # gradients left there would be added to the next ones, and the trace doubled
    devices = [x.device] if x.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), warnings.catch_warnings():
        # The cycle the warning is about is broken by the zero_grad below.
        warnings.filterwarnings("ignore", message=r"Using backward\(\) with create_graph=True", category=UserWarning)
        torch.manual_seed(seed)
        operator: Any = pyhessian.hessian(model, criterion(loss), data=(x, y), cuda=x.device.type == "cuda")
        values = operator.trace(maxIter=count, tol=-math.inf)  # nothing is below -inf: all probes are drawn
    model.zero_grad(set_to_none=True)
    return [float(value) for value in values]


def autograd_eigenvalues(
    model: nn.Module,
    names: list[str],
    x: Tensor,
    y: Tensor,
    loss: LossName,
    generator: torch.Generator,
    *,
    tolerance: float,
) -> dict[str, tuple[float, float]]:
    """:func:`autograd_eigenvalue` of every named layer, on a copy of the model in float64."""
    scratch, x, y = _double(model, x, y)
    most = largest_batch(scratch, x, y, loss)
    found = {}
    for name in names:
        scratch.requires_grad_(False)
        weight = scratch.get_submodule(name).weight
        assert isinstance(weight, nn.Parameter)
        weight.requires_grad_(True)
        found[name] = autograd_eigenvalue(scratch, weight, x, y, loss, generator, tolerance=tolerance, most=most)
    return found


def autograd_eigenvalue_samples(model: nn.Module, x: Tensor, layers: int, asked: int, budget: float) -> int:
    """How many samples the eigenvalues of ``layers`` layers take: those asked for, or fewer for ``budget`` operations.

    One product costs about four forward passes (counted on one sample), and Lanczos takes some 25 of them.
    """
    scratch = copy.deepcopy(model).eval()
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        scratch(x[:1].to(next(scratch.parameters()).dtype, copy=True))
    return min(asked, int(budget / (100 * layers * max(1, counter.get_total_flops()))))


def autograd_eigenvalue(
    model: nn.Module,
    weight: nn.Parameter,
    x: Tensor,
    y: Tensor,
    loss: LossName,
    generator: torch.Generator,
    *,
    tolerance: float,
    most: int,
) -> tuple[float, float]:
    """Top eigenvalue of the Hessian in one weight tensor, by Lanczos on autograd's products, as (value, residual).

    (PyHessian's power iteration adds 1e-6 to every norm, which shrinks small eigenvalues.) The graph is kept when all
    samples fit one batch of ``most``, and made again for every product when not.
    """
    pieces = list(zip(x.split(most), y.split(most), strict=True))

    def gradient(bx: Tensor, by: Tensor) -> Tensor:
        value = total(loss, model(bx), by) / len(x)
        return torch.autograd.grad(value, weight, create_graph=True)[0]

    kept = gradient(x, y) if len(pieces) == 1 else None

    def product(v: Tensor) -> Tensor:
        direction = v.reshape(weight.shape)
        found = torch.zeros_like(v)
        for bx, by in pieces:
            g = gradient(bx, by) if kept is None else kept
            if g.requires_grad:  # else the outputs do not depend on the weight, or the loss only linearly
                (hv,) = torch.autograd.grad(g, weight, direction, retain_graph=kept is not None)
                found += hv.detach().flatten()
        return found

    return top_eigenvalue(product, weight.numel(), generator, tolerance=tolerance, device=x.device)


def _cut(topology: Topology, name: str, x: Tensor) -> tuple[Tensor, Tensor]:
    """(outputs, leaf): the network on ``x`` from the value ``name`` on, which is a leaf that requires a gradient."""
    leaf = x.detach().requires_grad_(name == INPUT)
    values = {INPUT: leaf}
    for stage in topology.stages:
        value = stage_output(stage, [values[source] for source in stage.sources])
        if stage.name == name:
            value = leaf = value.detach().requires_grad_(True)
        values[stage.name] = value
    return values[topology.output], leaf


def hutchinson_activations(
    model: nn.Module,
    input_name: str,
    x: Tensor,
    y: Tensor,
    loss: LossName,
    generator: torch.Generator,
    *,
    tolerance: float,
    max_iterations: int,
) -> list[ActivationSensitivity]:
    """Trace of the Hessian in every activation, mean over samples, each sample with its own signs.

    Samples do not mix, so one product with signs over the whole batch is one estimate for every sample of it.

    Raises
    ------
    UnsupportedModelError
        If the model cannot be read as stages, so that it is unknown where activations end.
    """
    scratch, x, y = _double(model, x, y)
    scratch.requires_grad_(False)
    topology = read(scratch, tuple(x.shape[1:]))
    batches = _batches(x, y, largest_batch(scratch, x, y, loss))
    results = []
    for name, stage in activation_stages(topology, input_name).items():
        probes = SampleProbes(len(x), x.device)
        size = 0
        while not (probes.count and probes.reached(tolerance)) and probes.count < max_iterations:
            count = min(_PROBES_PER_ROUND, max(2, max_iterations - probes.count))
            parts = []
            for bx, by in batches:  # one graph at a time, made again in every round: memory does not grow with the data
                outputs, leaf = _cut(topology, stage, bx)
                (gradient,) = torch.autograd.grad(
                    total(loss, outputs, by), leaf, create_graph=True, materialize_grads=True
                )
                parts.append(torch.stack([_per_sample(leaf, gradient, generator) for _ in range(count)], 1))
                size = leaf[0].numel()
            probes.add(torch.cat(parts))
        results.append(
            ActivationSensitivity(
                name,
                size,
                probes.mean,
                "hutchinson",
                probes.estimator_error,
                probes.sampling_error,
                len(x),
                probes.count,
                probes.reached(tolerance),
            )
        )
    return results


def _per_sample(leaf: Tensor, gradient: Tensor, generator: torch.Generator) -> Tensor:
    """``v_s^T H_s v_s`` for every sample ``s``, float64 of shape (n,)."""
    signs = torch.randint(0, 2, leaf.shape, generator=generator).to(leaf) * 2 - 1
    if not gradient.requires_grad:  # the loss does not depend on this activation, or only linearly
        return torch.zeros(len(leaf), dtype=torch.float64, device=leaf.device)
    (product,) = torch.autograd.grad(gradient, leaf, signs, retain_graph=True)
    return (product * signs).flatten(1).sum(1).detach()
