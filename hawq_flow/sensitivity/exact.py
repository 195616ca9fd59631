"""Exact Hessian traces of piecewise linear networks, by the layerwise Gauss-Newton identity.

The maths. Fix every weight but those of one layer ``W``. On a network of piecewise linear operations the outputs ``z``
of one sample are then piecewise linear in ``W``: with ``J = dz/dW``, ``dz = J dW``, and ``J`` is constant near almost
every ``W``. The Hessian of the loss ``l(z)`` in ``W`` therefore has no second term and equals Gauss-Newton (Martens,
arXiv:1412.1193, sec. 8, where it is an approximation in general)::

    H = E[J^T S J],     S = d2l/dz2 = F F^T     (hawq_flow.sensitivity.loss: K columns, C - 1 for C classes)
    trace H = E[sum over columns f of |J^T f|^2]

``J^T f`` is what one backward pass that starts from ``f`` gives: K passes, no sampling, no second derivatives; and
likewise ``trace(B^T S B)`` for an activation ``a`` instead of ``W``, ``B = dz/da``. A dense layer ``u = W x`` has
``J^T f = (B^T f) x^T``, an outer product, so that::

    trace H         = E[|x|^2 trace(B^T S B)]
    H[(o,i), (o,i)] = E[x_i^2 (B^T S B)[o,o]]

A convolution meets its weights at many positions; its gradients of single samples are in
:mod:`hawq_flow.sensitivity.gradients`. Max pooling passes the adjoint to the element it picked, and keeps all this.

Products are in the model's own precision (float32 at least), in chunks of samples and columns that stay in cache, and
in :data:`~hawq_flow.sensitivity.cost.MEMORY` bytes; per-sample traces, all sums over samples, the loss's factor and the
eigenvalues are float64. On a float32 model that agrees with a float64 computation to about 1e-7 (dense) or 1e-6
(convolutions); a model in float64 gives float64. The model is only read: no hooks, no change of mode, no gradients.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn

from hawq_flow.sensitivity import cost
from hawq_flow.sensitivity.cost import Chunk
from hawq_flow.sensitivity.eigenvalues import top_eigenvalue
from hawq_flow.sensitivity.gradients import LayerForm
from hawq_flow.sensitivity.loss import LossName, columns, loss_factor
from hawq_flow.sensitivity.program import Program, Step, Weights
from hawq_flow.sensitivity.result import ActivationSensitivity, LayerSensitivity


def precision(model: nn.Module, layers: tuple[str, ...]) -> torch.dtype:
    """float64 for a model in float64, else float32."""
    weight = model.get_submodule(layers[0]).weight
    assert isinstance(weight, Tensor)
    return torch.float64 if weight.dtype == torch.float64 else torch.float32


class Accumulator:
    """Squares of the adjoints that pass layers and activations, in float64: of every sample, summed over its adjoints,
    or, for ``probes`` adjoints of every sample, each by itself: (n, probes).

    A layer or an activation that the output does not depend on stays at 0.
    """

    def __init__(
        self,
        program: Program,
        forms: dict[str, LayerForm],
        samples: int,
        device: torch.device,
        *,
        activations: bool,
        diagonals: bool = False,
        probes: int = 0,
    ) -> None:
        def zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.float64, device=device)

        self._forms = forms
        shape = (samples, probes) if probes else (samples,)
        self._each = probes > 0
        self.layers = {name: zeros(*shape) for name in forms}
        self.values = {value: zeros(*shape) for value in program.activations.values() if activations}
        self.diagonals = {name: zeros(*form.weight) for name, form in forms.items() if diagonals}

    @property
    def to_input(self) -> bool:
        """Whether the input's adjoint is wanted."""
        return 0 in self.values

    def add(self, part: Any, values: list[Tensor], value: int, step: Step | None, adjoint: Tensor) -> None:
        """Take in the adjoint (n, K, *value) of one value, of the samples (and probes) ``part``."""
        layer = step.operation.layer if step is not None else ""
        factorized = bool(layer) and self._forms[layer].factorized
        if value in self.values or factorized:
            squares = (adjoint * adjoint).flatten(2)
            if self.diagonals:
                squares = squares.sum(1)
            norms = squares.sum(2) if self._each else squares.flatten(1).sum(1)
            if value in self.values:
                self.values[value][part] += norms
        if step is None or not layer:
            return
        form, source = self._forms[layer], values[step.inputs[0]]
        if factorized:
            inputs = form.patches(source).flatten(1).square()
            self.layers[layer][part] += inputs.sum(1, keepdim=self._each) * norms
            if self.diagonals:
                self.diagonals[layer] += (squares.T @ inputs).reshape(form.weight)
        elif self.diagonals:
            gradients = form.gradients(source, adjoint).square_()
            self.layers[layer][part] += gradients.flatten(1).sum(1, dtype=torch.float64)
            self.diagonals[layer] += gradients.sum((0, 1), dtype=torch.float64).reshape(form.weight)
        else:
            self.layers[layer][part] += form.squares(source, adjoint, each=self._each)

    def check(self) -> None:
        """``ValueError`` when some sample's squares are not finite."""
        for squares in (*self.layers.values(), *self.values.values()):
            if not bool(torch.isfinite(squares).all()):
                bad = int((~torch.isfinite(squares.reshape(len(squares), -1))).any(1).sum())
                raise ValueError(
                    f"sensitivity: the traces of {bad} of {len(squares)} samples are not finite: the "
                    "network's values overflow. Standardize the data, or train again"
                )


@torch.no_grad()
def exact_traces(
    program: Program, model: nn.Module, x: Tensor, loss: LossName, *, activations: bool, diagonals: bool
) -> tuple[list[LayerSensitivity], list[ActivationSensitivity]]:
    """Traces of every layer and activation over the samples ``x``; see the module's docstring.

    Parameters
    ----------
    program:
        ``model`` as compiled by :func:`hawq_flow.sensitivity.linearity.compile_program`.
    x:
        Standardized samples, shape (n, *features), any float dtype; n >= 2.
    activations:
        Whether to measure activations too (the input's takes a quarter more time).
    diagonals:
        Whether to keep every weight's second derivative too.
    """
    weights = Weights.of(model, program.layers, precision(model, program.layers))
    forms = cost.forms(program, weights)
    found = Accumulator(program, forms, len(x), x.device, activations=activations, diagonals=diagonals)
    count = columns(loss, program.size(program.output))
    chunk = cost.chunk(program, forms, count, weights.dtype.itemsize, to_input=found.to_input, gradients=diagonals)
    for start in range(0, len(x), chunk.samples):
        part = slice(start, start + chunk.samples)
        values = program.forward(weights, x[part].to(weights.dtype))
        for first in range(0, count, chunk.columns):
            factor = loss_factor(values[program.output], loss, first, min(count, first + chunk.columns))
            for value, step, adjoint in program.backward(weights, values, factor, to_input=found.to_input):
                found.add(part, values, value, step, adjoint)
    found.check()
    samples = len(x)
    layers = [
        LayerSensitivity(
            name,
            forms[name].weights,
            *_mean(traces),
            samples,
            diagonal=(found.diagonals[name] / samples).cpu().numpy() if diagonals else None,
        )
        for name, traces in found.layers.items()
    ]
    return layers, [
        ActivationSensitivity(name, program.size(value), *_mean(found.values[value]), samples)
        for name, value in (program.activations if activations else {}).items()
    ]


def _mean(traces: Tensor) -> tuple[float, Literal["exact"], float, float]:
    """(trace, method, estimator's error, sampling error) of per-sample traces."""
    return float(traces.mean()), "exact", 0.0, float(traces.std()) / math.sqrt(len(traces))


@torch.no_grad()
def exact_eigenvalues(
    program: Program, model: nn.Module, x: Tensor, loss: LossName, generator: torch.Generator, *, tolerance: float
) -> dict[str, tuple[float, float]]:
    """Top eigenvalue of every layer's Hessian over all of ``x``, as (eigenvalue, residual), in float64.

    The product with a direction ``V`` stays factorized: ``H V = E[sum_f G_f <G_f, V>]`` with ``G_f = J^T f``, kept as
    itself or as its adjoints and patches, whichever is smaller. Layers are taken together, in as many runs as keep that
    within half of :data:`~hawq_flow.sensitivity.cost.MEMORY`; :func:`eigenvalue_samples` says how many samples fit.
    """
    weights = Weights.of(model, program.layers, torch.float64)
    forms = cost.forms(program, weights)
    count = columns(loss, program.size(program.output))
    chunk = cost.chunk(program, forms, count, 8, to_input=False, memory=cost.MEMORY // 2)
    found: dict[str, tuple[float, float]] = {}
    for names in _runs(forms, count, len(x)):
        kept = {name: _Curvature(forms[name], len(x), count, x.device) for name in names}
        _fill(program, weights, x, loss, chunk, kept)
        while names:
            name = names.pop(0)
            curvature = kept.pop(name)
            found[name] = top_eigenvalue(
                curvature.product, forms[name].weights, generator, tolerance=tolerance, device=x.device
            )
    return {name: found[name] for name in program.layers}


def eigenvalue_samples(program: Program, forms: dict[str, LayerForm], count: int, asked: int, budget: float) -> int:
    """How many samples :func:`exact_eigenvalues` takes: those asked for, fewer where memory or operations run out.

    Parameters
    ----------
    forms:
        Every layer's form.
    count:
        Columns of the loss's factor.
    budget:
        Floating-point operations it may take.
    """
    largest = max(_Curvature.elements(form, count) for form in forms.values())
    fitting = cost.MEMORY // 2 // (8 * largest)
    forward, backward = cost.operations(program, forms, count, to_input=False)
    runs = 1 + sum(_Curvature.elements(form, count) for form in forms.values()) // largest
    return max(1, min(asked, fitting, int(budget / (runs * (forward + backward)))))


def _runs(forms: dict[str, LayerForm], count: int, samples: int) -> list[list[str]]:
    """The layers in order, in groups whose curvatures fit half the memory."""
    groups: list[list[str]] = []
    room = 0
    for name, form in forms.items():
        needed = 8 * samples * _Curvature.elements(form, count)
        if not groups or needed > room:
            groups.append([])
            room = cost.MEMORY // 2
        groups[-1].append(name)
        room -= needed
    return groups


def _fill(
    program: Program, weights: Weights, x: Tensor, loss: LossName, chunk: Chunk, kept: dict[str, _Curvature]
) -> None:
    count = columns(loss, program.size(program.output))
    for start in range(0, len(x), chunk.samples):
        values = program.forward(weights, x[start : start + chunk.samples].double())
        for first in range(0, count, chunk.columns):
            last = min(count, first + chunk.columns)
            factor = loss_factor(values[program.output], loss, first, last)
            for _, step, adjoint in program.backward(weights, values, factor, to_input=False):
                if step is not None and step.operation.layer in kept:
                    kept[step.operation.layer].add(start, first, values[step.inputs[0]], adjoint)


class _Curvature:
    """One layer's Hessian as its per-sample gradients ``G`` (n, K, weights), or as adjoints and patches."""

    def __init__(self, form: LayerForm, samples: int, count: int, device: torch.device) -> None:
        def zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.float64, device=device)

        self._form, self._samples = form, samples
        self._whole = count * form.weights <= self.elements(form, count)
        outputs = form.groups * form.outputs * form.positions
        self._adjoints = zeros(samples, count, form.weights if self._whole else outputs)
        self._patches = zeros(0 if self._whole else samples, form.groups, form.inputs, form.positions)

    @staticmethod
    def elements(form: LayerForm, count: int) -> int:
        """Elements of one sample."""
        patches = form.groups * form.inputs * form.positions
        return min(count * form.weights, count * form.groups * form.outputs * form.positions + patches)

    def add(self, start: int, first: int, source: Tensor, adjoint: Tensor) -> None:
        """Keep the samples from ``start`` and the columns from ``first``."""
        n, k = adjoint.shape[:2]
        place = (slice(start, start + n), slice(first, first + k))
        if self._whole:
            self._adjoints[place] = self._form.gradients(source, adjoint)
            return
        self._adjoints[place] = adjoint.flatten(2)
        self._patches[place[0]] = self._form.patches(source)

    def product(self, v: Tensor) -> Tensor:
        """``H v`` for a flat ``v``."""
        if self._whole:
            flat = self._adjoints.flatten(0, 1)
            return flat.T @ (flat @ v) / self._samples
        form = self._form
        moved = v.reshape(form.groups, form.outputs, form.inputs) @ self._patches  # (n, groups, outputs, P)
        along = self._adjoints @ moved.flatten(1)[:, :, None]  # (n, K, 1)
        back = (along.transpose(1, 2) @ self._adjoints).reshape(moved.shape)
        return torch.einsum("ngop,ngip->goi", back, self._patches).flatten() / self._samples
