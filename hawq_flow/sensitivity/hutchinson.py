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
the
  standard error of the mean, measured from the probes, is small enough.

The data is cut into batches with independent probes. The spread of the probes within a batch gives the estimator's
error; the spread of the batch means, less the part the probes explain, gives the data's.
"""

from __future__ import annotations

import copy
import math
import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn

from hawq_flow.sensitivity.exact import top_eigenvalue
from hawq_flow.sensitivity.linearity import NotPiecewiseLinear, activation_nodes, trace
from hawq_flow.sensitivity.result import ActivationSensitivity, LayerSensitivity

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


def _batches(x: Tensor, y: Tensor) -> list[tuple[Tensor, Tensor]]:
    """At least 8 batches (2 when the samples are few), nearly equal: their spread is the sampling error."""
    count = max(math.ceil(len(x) / _BATCH), min(8, len(x) // 2))
    return list(zip(torch.tensor_split(x, count), torch.tensor_split(y, count), strict=True))


def _seed(generator: torch.Generator) -> int:
    return int(torch.randint(0, 2**62, (1,), generator=generator))


def _reached(mean: float, error: float, tolerance: float) -> bool:
    return error <= tolerance * abs(mean)


def hutchinson_layers(
    model: nn.Module,
    names: list[str],
    x: Tensor,
    y: Tensor,
    generator: torch.Generator,
    *,
    tolerance: float,
    max_iterations: int,
    eigenvalue_samples: int,
    eigenvalue_tolerance: float,
) -> list[LayerSensitivity]:
    """Trace and top eigenvalue of every named layer's Hessian; see the module's docstring.

    Parameters
    ----------
    x, y:
        Samples (n, *features) and int64 labels (n,) on the model's device; n >= 4.
    tolerance:
        Relative standard error of the estimator at which probes stop.
    max_iterations:
        Most probes of a batch; ``converged`` is False when they end first.
    eigenvalue_samples:
        Samples for the top eigenvalue (the first ones); 0 leaves it out.
    """
    scratch = copy.deepcopy(model).eval().double()
    x = x.double()
    batches = _batches(x, y)
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
            probes.add([_pyhessian_probes(scratch, bx, by, count, _seed(generator)) for bx, by in batches])
            converged = _reached(probes.mean, probes.estimator_error, tolerance)
        value, residual = (
            (None, None)
            if not eigenvalue_samples
            else _eigenvalue(
                scratch, weight, x[:eigenvalue_samples], y[:eigenvalue_samples], generator, eigenvalue_tolerance
            )
        )
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
                value,
                residual,
                min(eigenvalue_samples, len(x)),
            )
        )
    return results


def _pyhessian_probes(model: nn.Module, x: Tensor, y: Tensor, count: int, seed: int) -> list[float]:
    """``count`` values of ``v^T H v`` in the one parameter of ``model`` that requires a gradient."""
    import pyhessian

    model.zero_grad(set_to_none=True)  # gradients left there would be added to the next ones, and the trace doubled
    devices = [x.device] if x.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), warnings.catch_warnings():
        # The cycle the warning is about is broken by the zero_grad below.
        warnings.filterwarnings("ignore", message=r"Using backward\(\) with create_graph=True", category=UserWarning)
        torch.manual_seed(seed)
        operator: Any = pyhessian.hessian(model, nn.CrossEntropyLoss(), data=(x, y), cuda=x.device.type == "cuda")
        values = operator.trace(maxIter=count, tol=-math.inf)  # nothing is below -inf: all probes are drawn
    model.zero_grad(set_to_none=True)
    return [float(value) for value in values]


def _eigenvalue(
    model: nn.Module, weight: nn.Parameter, x: Tensor, y: Tensor, generator: torch.Generator, tolerance: float
) -> tuple[float, float]:
    """Lanczos, as PyHessian's power iteration adds 1e-6 to every norm, which shrinks small eigenvalues."""
    loss = nn.functional.cross_entropy(model(x), y)
    (gradient,) = torch.autograd.grad(loss, weight, create_graph=True)

    def product(v: Tensor) -> Tensor:
        (hv,) = torch.autograd.grad(gradient, weight, v.reshape(weight.shape), retain_graph=True)
        return hv.detach().flatten()

    return top_eigenvalue(product, weight.numel(), generator, tolerance=tolerance, device=x.device)


class _FromActivation(fx.Interpreter):
    """Runs a graph and makes the value of one node a leaf that requires a gradient."""

    def __init__(self, module: fx.GraphModule, node: str) -> None:
        super().__init__(module)
        self._node = node
        self.leaf = torch.empty(0)

    def run_node(self, n: fx.Node) -> Any:
        """Evaluate one node, cutting the graph at the chosen one."""
        value = super().run_node(n)
        if n.name == self._node:
            self.leaf = value = value.detach().requires_grad_(True)
        return value


def hutchinson_activations(
    model: nn.Module,
    input_name: str,
    x: Tensor,
    y: Tensor,
    generator: torch.Generator,
    *,
    tolerance: float,
    max_iterations: int,
) -> list[ActivationSensitivity]:
    """Trace of the Hessian in every activation, mean over samples, each sample with its own signs.

    Samples do not mix, so one product with signs over the whole batch is one estimate for every sample of it.

    Raises
    ------
    ValueError
        If the forward pass cannot be traced, so that it is unknown where activations end.
    """
    scratch = copy.deepcopy(model).eval().double()
    scratch.requires_grad_(False)
    try:
        graph = trace(scratch)
        nodes = activation_nodes(graph, scratch, input_name)
    except NotPiecewiseLinear as error:
        raise ValueError(
            f"activation sensitivities: {error}. Make forward() traceable by torch.fx, or pass "
            f"activations=False and fix or tie the activation widths"
        ) from error
    module = fx.GraphModule(scratch, graph)
    x = x.double()
    results = []
    for name, node in nodes.items():
        runs = []
        for bx, by in _batches(x, y):
            run = _FromActivation(module, node.name)
            logits = run.run(bx)
            loss = nn.functional.cross_entropy(logits, by, reduction="sum")
            (gradient,) = torch.autograd.grad(loss, run.leaf, create_graph=True)
            runs.append((run.leaf, gradient))
        total = torch.zeros(len(x), dtype=torch.float64, device=x.device)
        squares = torch.zeros_like(total)
        count, converged = 0, False
        mean = spread = 0.0
        while not converged and count < max_iterations:
            for _ in range(min(_PROBES_PER_ROUND, max(2, max_iterations - count))):
                values = torch.cat([_per_sample(leaf, gradient, generator) for leaf, gradient in runs])
                total += values
                squares += values.square()
                count += 1
            means = total / count
            variances = (squares / count - means.square()).clamp(min=0) * (count / (count - 1))
            mean = float(means.mean())
            spread = math.sqrt(float(variances.mean()) / count / len(x))
            converged = _reached(mean, spread, tolerance)
        sampling = math.sqrt(max(0.0, float(means.var()) / len(x) - spread**2))
        results.append(
            ActivationSensitivity(
                name, runs[0][0][0].numel(), mean, "hutchinson", spread, sampling, len(x), count, converged
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
