"""Exact Hessian traces of piecewise linear networks, by the layerwise Gauss-Newton identity.

The maths. Fix every weight but those of one layer ``W``. On a ReLU network the logits ``z`` of one sample are then
piecewise linear in ``W``: with ``x`` what enters the layer and ``u = W x``, ``dz = B dW x`` where ``B = dz/du``
depends on ``x`` only. The Hessian of the cross-entropy ``l(z)`` in ``W`` therefore has no second term and equals
Gauss-Newton (Martens, arXiv:1412.1193, sec. 8, where it is an approximation in general)::

    H = E[(B^T S B) kron (x x^T)],     S = d2l/dz2 = diag(p) - p p^T,     p = softmax(z)
    trace H         = E[|x|^2 trace(B^T S B)]
    H[(o,i), (o,i)] = E[x_i^2 (B^T S B)[o,o]]

and likewise ``trace(B_a^T S B_a)`` for an activation ``a`` instead of ``W``. ``S`` has rank C - 1 and a Cholesky
factor in closed form: with tails ``r_i = p_i + ... + p_C``, ``S = F F^T`` where ``F[i,i] = sqrt(p_i r_{i+1} / r_i)``
and ``F[j,i] = -(p_j / r_{i+1}) F[i,i]`` for ``j > i``. Sending the C - 1 columns of ``F`` backward through the network
gives ``U = B^T F`` at every layer, and ``trace(B^T S B) = |U|^2``: C - 1 backward passes, no sampling, no second
derivatives.

Products are in the model's own precision (float32 at least), in chunks that stay in cache; per-sample traces, all sums
over samples, the loss's factor and the eigenvalues are float64. On a float32 model that agrees with a float64
computation to about 1e-7; a model in float64 gives float64. The model is only read: no autograd, no hooks, no change of
mode.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from hawq_flow.sensitivity.linearity import Program
from hawq_flow.sensitivity.result import ActivationSensitivity, LayerSensitivity

_CHUNK_ELEMENTS = 1 << 19
"""Elements of the widest adjoint of a chunk: 2 MiB of float32, about a core's cache."""

Product = Callable[[Tensor], Tensor]


def loss_factor(logits: Tensor) -> Tensor:
    """The factor ``F`` of the cross-entropy's Hessian in the logits, ``diag(p) - p p^T = F F^T``.

    Parameters
    ----------
    logits:
        Shape (n, C), C >= 2; taken as float64.

    Returns
    -------
    float64 of shape (n, C - 1, C): for each sample the columns of ``F``, as adjoints to send backward.
    """
    p = torch.softmax(logits.double(), dim=1)
    tails = p.flip(1).cumsum(1).flip(1)
    here, rest = tails[:, :-1], tails[:, 1:]
    # A tail can underflow. Below the floor its column is 0 for all purposes, and with it no quotient is infinite.
    floor = 1e-300
    diagonal = torch.sqrt(p[:, :-1] * rest / here.clamp(min=floor))
    later = torch.ones(logits.shape[1] - 1, logits.shape[1], dtype=p.dtype, device=p.device).triu(1)
    factor = (p[:, None, :] * (diagonal / rest.clamp(min=floor))[:, :, None]).mul_(-later)
    factor.diagonal(dim1=1, dim2=2).copy_(diagonal)
    return factor


@dataclass(frozen=True)
class _Weights:
    """The layers' parameters in the type to compute in."""

    weight: dict[str, Tensor]
    bias: dict[str, Tensor | None]

    @classmethod
    def of(cls, program: Program, model: nn.Module, dtype: torch.dtype) -> _Weights:
        weight: dict[str, Tensor] = {}
        bias: dict[str, Tensor | None] = {}
        for name in program.layers:
            module = model.get_submodule(name)
            assert isinstance(module, nn.Linear)
            weight[name] = module.weight.detach().to(dtype)
            bias[name] = None if module.bias is None else module.bias.detach().to(dtype)
        return cls(weight, bias)


def _forward(program: Program, weights: _Weights, x: Tensor) -> list[Tensor]:
    """All values of the program on samples ``x``."""
    values: list[Tensor] = [x]
    for step in program.steps:
        source = values[step.inputs[0]]
        if step.kind == "linear":
            values.append(nn.functional.linear(source, weights.weight[step.layer], weights.bias[step.layer]))
        elif step.kind == "relu":
            values.append(nn.functional.leaky_relu(source, step.slope) if step.slope else source.clamp(min=0))
        elif step.kind == "flatten":
            values.append(source.flatten(1))
        else:
            values.append(source + values[step.inputs[1]])
    return values


def _backward(
    program: Program, weights: _Weights, values: list[Tensor], *, to_input: bool
) -> Iterator[tuple[str, int, Tensor]]:
    """Send the loss factor backward, as far as the input if ``to_input``, else to the layers.

    Yields ``("", value, adjoint)`` once the adjoint of a value is complete, and ``(layer, input value, adjoint)`` when
    it passes a layer's output ``u``; adjoints have shape (n, C - 1, *value).
    """
    adjoints: dict[int, Tensor] = {program.logits: loss_factor(values[program.logits]).to(values[0].dtype)}

    def give(value: int, adjoint: Tensor) -> None:
        adjoints[value] = adjoints[value] + adjoint if value in adjoints else adjoint

    for step in reversed(program.steps):
        adjoint = adjoints.pop(step.output, None)
        if adjoint is None:  # a value nobody reads on the way to the logits
            continue
        yield "", step.output, adjoint
        source = step.inputs[0]
        if step.kind == "linear":
            yield step.layer, source, adjoint
            if to_input or source != 0:
                give(source, adjoint @ weights.weight[step.layer])
        elif step.kind == "relu":
            # The activations' own backward kernels, in one pass; the samples' signs broadcast over the columns.
            before = values[source].unsqueeze(1)
            give(
                source,
                torch.ops.aten.leaky_relu_backward(adjoint, before, step.slope, False)
                if step.slope
                else torch.ops.aten.threshold_backward(adjoint, before, 0),
            )
        elif step.kind == "flatten":
            give(source, adjoint.unflatten(2, values[source].shape[1:]))
        else:
            give(source, adjoint)
            give(step.inputs[1], adjoint)
    if 0 in adjoints:
        yield "", 0, adjoints[0]


def _chunk_size(weights: _Weights, x: Tensor, classes: int) -> int:
    width = max([math.prod(x.shape[1:]), *(max(weight.shape) for weight in weights.weight.values())])
    return max(1, _CHUNK_ELEMENTS // ((classes - 1) * width))


@torch.no_grad()
def exact_traces(
    program: Program, model: nn.Module, x: Tensor, classes: int, *, activations: bool, diagonals: bool
) -> tuple[list[LayerSensitivity], list[ActivationSensitivity]]:
    """Traces of every layer and activation over the samples ``x``; see the module's docstring.

    Parameters
    ----------
    program:
        ``model`` as compiled by :func:`hawq_flow.sensitivity.linearity.compile_program`.
    x:
        Standardized samples, shape (n, *features), any float dtype; n >= 2.
    classes:
        C, the number of logits.
    activations:
        Whether to measure activations too (the input's takes a quarter more time).
    diagonals:
        Whether to keep every weight's second derivative too (one more matrix product a layer).
    """
    first = model.get_submodule(program.layers[0]).weight
    assert isinstance(first, Tensor)
    weights = _Weights.of(program, model, torch.float64 if first.dtype == torch.float64 else torch.float32)
    dtype = weights.weight[program.layers[0]].dtype

    def zeros(*shape: int) -> Tensor:
        return torch.zeros(shape, dtype=torch.float64, device=x.device)

    # Per-sample traces; a layer or an activation that the logits do not depend on stays at 0.
    by_layer = {name: zeros(len(x)) for name in program.layers}
    wanted = program.activations if activations else {}
    by_value = {value: zeros(len(x)) for value in wanted.values()}
    outputs = {step.output for step in program.steps if step.kind == "linear"}
    diagonal = {name: zeros(*weights.weight[name].shape) for name in program.layers if diagonals}
    sizes: dict[int, int] = {}
    step = _chunk_size(weights, x, classes)
    for start in range(0, len(x), step):
        values = _forward(program, weights, x[start : start + step].to(dtype))
        part = slice(start, start + step)
        sizes = {value: math.prod(values[value].shape[1:]) for value in by_value}
        squares = norms = values[0]
        for layer, value, adjoint in _backward(program, weights, values, to_input=0 in by_value):
            if layer:  # its adjoint was yielded just before as its output's: the squares are at hand
                source = values[value].square()
                by_layer[layer][part] = source.sum(1) * norms
                if diagonals:
                    diagonal[layer] += squares.T @ source
                continue
            if value not in outputs and value not in by_value:
                continue
            squares = (adjoint * adjoint).flatten(2)
            if diagonals:
                squares = squares.sum(1)
            norms = squares.flatten(1).sum(1)
            if value in by_value:
                by_value[value][part] = norms
    samples = len(x)
    layers = [
        LayerSensitivity(
            name,
            weights.weight[name].numel(),
            *_mean(traces),
            samples,
            diagonal=(diagonal[name] / samples).cpu().numpy() if diagonals else None,
        )
        for name, traces in by_layer.items()
    ]
    return layers, [
        ActivationSensitivity(name, sizes[value], *_mean(by_value[value]), samples) for name, value in wanted.items()
    ]


def _mean(traces: Tensor) -> tuple[float, Literal["exact"], float, float]:
    """(trace, method, estimator's error, sampling error) of per-sample traces."""
    if not bool(torch.isfinite(traces).all()):
        bad = int((~torch.isfinite(traces)).sum())
        raise ValueError(
            f"sensitivity: the traces of {bad} of {len(traces)} samples are not finite: the "
            "network's values overflow. Standardize the data, or train again"
        )
    return float(traces.mean()), "exact", 0.0, float(traces.std()) / math.sqrt(len(traces))


@torch.no_grad()
def exact_eigenvalues(
    program: Program, model: nn.Module, x: Tensor, generator: torch.Generator, *, tolerance: float
) -> dict[str, tuple[float, float]]:
    """Top eigenvalue of every layer's Hessian over all of ``x``, as (eigenvalue, residual).

    The product with a direction ``V`` (out x in) stays factorized: ``H V = E[U (U^T V x) x^T]``. Memory is
    (C - 1) * len(x) * width doubles, so ``x`` is a few thousand samples.
    """
    weights = _Weights.of(program, model, torch.float64)
    values = _forward(program, weights, x.double())
    found: dict[str, tuple[float, float]] = {}
    for layer, value, adjoint in _backward(program, weights, values, to_input=False):
        if layer:
            source = values[value]

            def product(v: Tensor, source: Tensor = source, adjoint: Tensor = adjoint) -> Tensor:
                direction = v.reshape(adjoint.shape[2], source.shape[1])
                weight = torch.einsum("nko,no->nk", adjoint, source @ direction.T)
                return (torch.einsum("nko,nk->no", adjoint, weight).T @ source).flatten() / len(source)

            found[layer] = top_eigenvalue(
                product, adjoint.shape[2] * source.shape[1], generator, tolerance=tolerance, device=source.device
            )
    return {name: found.get(name, (0.0, 0.0)) for name in program.layers}


def top_eigenvalue(
    product: Product,
    dimension: int,
    generator: torch.Generator,
    *,
    tolerance: float,
    device: torch.device,
    max_iterations: int = 200,
) -> tuple[float, float]:
    """Largest eigenvalue of a symmetric operator by Lanczos with full reorthogonalization.

    Parameters
    ----------
    product:
        Maps a float64 vector of length ``dimension`` to the operator applied to it.
    generator:
        CPU generator of the start vector.
    tolerance:
        Stop once the residual ``|H v - lambda v|`` is at most ``tolerance * |lambda|``.
    max_iterations:
        Largest Krylov dimension; the residual reached is returned either way.

    Returns
    -------
    (eigenvalue, residual). There is an eigenvalue within the residual of the first.
    """
    v = torch.randn(dimension, dtype=torch.float64, generator=generator).to(device)
    basis = [v / v.norm()]
    alphas: list[float] = []
    betas: list[float] = []
    value = residual = 0.0
    limit = min(dimension, max_iterations)
    for _ in range(limit):
        w = product(basis[-1])
        alphas.append(float(w @ basis[-1]))
        stacked = torch.stack(basis)
        for _ in range(2):  # twice is enough (Parlett): one pass leaves components of the size of rounding over beta
            w = w - stacked.T @ (stacked @ w)
        beta = float(w.norm())
        tridiagonal = np.diag(alphas) + np.diag(betas, 1) + np.diag(betas, -1)
        eigenvalues, vectors = np.linalg.eigh(tridiagonal)
        value, residual = float(eigenvalues[-1]), abs(beta * float(vectors[-1, -1]))
        scale = float(np.abs(eigenvalues).max())
        if residual <= tolerance * abs(value) or beta <= 1e-14 * scale:
            break
        betas.append(beta)
        basis.append(w / beta)
    return value, residual
