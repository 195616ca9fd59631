"""How much the loss bends along each layer's weights and activations: what decides where bits are worth spending.

:func:`measure` gives, for a float network whose batch norm is folded, the trace of the Hessian of the mean loss
(cross-entropy, or mean squared error) in every layer's weights (biases excluded) and the mean over samples of its trace
in every activation, each with the method used and its standard errors. HAWQ-v2 (arXiv:1911.03852) turns them into a bit
allocation.

Three methods:

``exact``
    Piecewise linear networks, convolutions and pools included (:mod:`hawq_flow.sensitivity.exact` has the maths,
    :mod:`hawq_flow.sensitivity.linearity` decides). One backward pass for each of C - 1 columns (C outputs).
``sketch``
    The same networks, with a few random passes in place of all columns (:mod:`hawq_flow.sensitivity.sketch`): for many
    outputs, or much data. It has a random error, and states it.
``hutchinson``
    Any network, with a random error (:mod:`hawq_flow.sensitivity.hutchinson`, through PyHessian): probes of the
    Hessian, layer by layer. Activations need a network that :mod:`hawq_flow.topology` can read, as quantization does;
    of another they are left out, and the result says why.

``auto`` predicts the operations of the first two (:mod:`hawq_flow.sensitivity.cost`) and takes ``exact`` where that is
within a budget or no dearer, else ``sketch``; where the network is not known to be piecewise linear, ``hutchinson``.
The result says which, and why. All of them work in chunks that keep the process under 2 GB, unless one sample and one
column alone need more.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from hawq_flow.sensitivity import cost
from hawq_flow.sensitivity.checks import check_data, check_model
from hawq_flow.sensitivity.exact import eigenvalue_samples as exact_eigenvalue_samples
from hawq_flow.sensitivity.exact import exact_eigenvalues, exact_traces
from hawq_flow.sensitivity.hutchinson import (
    autograd_eigenvalue_samples,
    autograd_eigenvalues,
    hutchinson_activations,
    hutchinson_layers,
)
from hawq_flow.sensitivity.linearity import NotPiecewiseLinear, compile_program
from hawq_flow.sensitivity.loss import LossName, columns
from hawq_flow.sensitivity.program import Program, Weights
from hawq_flow.sensitivity.result import ActivationSensitivity, LayerSensitivity, Method, Sensitivity
from hawq_flow.sensitivity.sketch import predicted_probes, sketch_traces
from hawq_flow.topology import UnsupportedModelError

__all__ = ["ActivationSensitivity", "LayerSensitivity", "LossName", "Method", "Sensitivity", "measure"]


def measure(
    model: nn.Module,
    x: Tensor,
    y: Tensor | None,
    *,
    method: Literal["auto", "exact", "sketch", "hutchinson"] = "auto",
    loss: LossName = "cross_entropy",
    input_name: str = "x",
    activations: bool = True,
    diagonals: bool = False,
    eigenvalue_samples: int = 1024,
    eigenvalue_tolerance: float = 1e-4,
    relative_error: float = 0.01,
    max_iterations: int = 200,
    budget: float = 1e13,
    seed: int = 0,
) -> Sensitivity:
    """Measure the Hessian traces of a float network on training data.

    The model is left as it was: mode, gradients, ``requires_grad`` and the global random generator.

    Parameters
    ----------
    model:
        Maps (n, *features) to logits (n, C), C >= 2, or for ``loss="mse"`` to outputs (n, *shape). Batch norm must be
        folded into the weights first: the trace is over the weights that are quantized (folding changed one network's
        trace from 1.04 to 0.60). Dropout is taken as in evaluation. A model in float64 is measured in float64; a
        float32 one agrees with that to about 1e-7 (dense) or 1e-6 (convolutions).
    x:
        Standardized training samples, floating point, shape (n, *features), n >= 4, finite. Moved to the model's
        device.
    y:
        Labels, int64, shape (n,), in 0..C-1; for ``loss="mse"`` targets, floating point, of the outputs' shape (for an
        autoencoder ``x``). The Hessian of a piecewise linear network does not depend on them; they are checked all the
        same, and targets may be None where the method is not ``hutchinson``.
    method:
        ``exact`` and ``sketch`` raise where the identity does not hold; ``auto`` chooses, see the module, and says why.
    loss:
        ``cross_entropy``, or ``mse``: the mean over samples and outputs, as ``torch.nn.functional.mse_loss``.
    input_name:
        The plan's name for the network's input.
    activations:
        Whether to measure activations too (they are left out where the network cannot be read, see the module).
    diagonals:
        Whether to keep the second derivative of every single weight; exact only, which ``auto`` then takes.
    eigenvalue_samples:
        Samples (the first ones) for each layer's top eigenvalue; 0 leaves eigenvalues out. Fewer are taken where the
        memory or the budget ends, and none where that leaves fewer than 4; the result says how many.
    eigenvalue_tolerance:
        Relative residual at which the eigenvalue's Lanczos iteration stops.
    relative_error, max_iterations:
        Not exact: the relative standard error wanted of the estimator, and the most probes of a sample or batch.
        ``converged`` in the result says which of them ended it.
    budget:
        Floating-point operations up to which ``auto`` takes the exact method, and in which the sketch that it takes
        instead (at least 2 probes) and the eigenvalues stay; a core does some 1e10 to 5e10 a second.
    seed:
        Of this function's own generators (Lanczos start vectors, random signs).

    Raises
    ------
    ValueError
        On batch norm, non-finite data or weights, wrong shapes, labels or targets, a model without layers, a layer that
        forward() does not use, weights shared by two layers, or ``method="exact"`` or ``"sketch"`` where the identity
        does not hold.
    """
    if method != "auto" and method not in get_args(Method):
        raise ValueError(f"sensitivity: method {method!r}; expected 'auto', 'exact', 'sketch' or 'hutchinson'")
    if loss not in get_args(LossName):
        raise ValueError(f"sensitivity: loss {loss!r}; expected 'cross_entropy' or 'mse'")
    if max_iterations < 2:
        raise ValueError(
            f"sensitivity: max_iterations {max_iterations}; expected at least 2 (one probe has no standard error)"
        )
    if not relative_error > 0:
        raise ValueError(f"sensitivity: relative_error {relative_error}; expected a positive number, such as 0.01")
    modules = check_model(model)
    device = next(model.parameters()).device
    x, y = x.detach().to(device), None if y is None else y.detach().to(device)
    names, outputs = check_data(model, modules, x, y, loss)
    program, reason = None, ""
    if method != "hutchinson":
        try:
            program = compile_program(model, tuple(x.shape[1:]), input_name)
        except NotPiecewiseLinear as error:
            if method != "auto":
                raise ValueError(
                    f"sensitivity: the {method} method does not hold for this network: {error}. Use "
                    f"method='hutchinson', or 'auto'"
                ) from error
            reason = str(error)
    generator = torch.Generator().manual_seed(seed)
    if program is None:
        chosen: Method = "hutchinson"
    elif method == "auto":
        chosen, reason, max_iterations = _choose(
            program, model, len(x), loss, activations, diagonals, relative_error, max_iterations, budget
        )
    else:
        chosen = "exact" if method == "exact" else "sketch"
    if diagonals and chosen != "exact":
        why = f", and {reason}" if reason else ""
        raise ValueError(f"sensitivity: diagonals come from the exact method only{why}; pass diagonals=False")
    if chosen == "hutchinson":
        if y is None:
            raise ValueError(
                "sensitivity: y is None, but the Hessian of this network depends on its targets "
                f"({reason or 'method hutchinson'}); give targets, for an autoencoder its inputs"
            )
        measured = []
        if activations:
            try:
                measured = hutchinson_activations(
                    model, input_name, x, y, loss, generator, tolerance=relative_error, max_iterations=max_iterations
                )
            except UnsupportedModelError as error:
                left_out = "activations are left out: it is not known where they end"
                reason = f"{reason}; {left_out}" if reason else f"{left_out}: {error}"
        layers = hutchinson_layers(
            model, names, x, y, loss, generator, tolerance=relative_error, max_iterations=max_iterations
        )
    elif chosen == "sketch":
        assert program is not None
        layers, measured = sketch_traces(
            program,
            model,
            x,
            loss,
            generator,
            activations=activations,
            tolerance=relative_error,
            max_iterations=max_iterations,
        )
    else:
        assert program is not None
        layers, measured = exact_traces(program, model, x, loss, activations=activations, diagonals=diagonals)
    asked = min(eigenvalue_samples, len(x))
    if asked > 0:
        # Where the targets may be left out, they make no difference.
        targets = torch.zeros(len(x), *outputs, device=device) if y is None else y
        inside = program if chosen == "exact" else None
        found, samples = _eigenvalues(
            inside, model, names, x[:asked], targets[:asked], loss, generator, eigenvalue_tolerance, budget
        )
        layers = [dataclasses.replace(layer, **found[layer.name]) if found else layer for layer in layers]
        if samples < asked:
            few = (
                f"eigenvalues are of {samples} samples, not {asked}: memory or budget"
                if samples
                else "eigenvalues are left out: within memory and budget they would be of fewer than 4 samples"
            )
            reason = f"{reason}; {few}" if reason else few
    return Sensitivity(tuple(layers), tuple(measured), chosen, reason, seed)


def _choose(
    program: Program,
    model: nn.Module,
    samples: int,
    loss: LossName,
    activations: bool,
    diagonals: bool,
    relative_error: float,
    max_iterations: int,
    budget: float,
) -> tuple[Method, str, int]:
    """The method and why, for a network on which both hold, from their predicted operations; the most probes."""
    if diagonals:
        return "exact", "diagonals come from the exact method only", max_iterations
    forms = cost.forms(program, Weights.of(model, program.layers, torch.float32, "meta"))
    count = columns(loss, program.size(program.output))
    forward, backward = cost.operations(program, forms, count, to_input=activations)
    exact = samples * (forward + backward)
    probes = predicted_probes(samples, relative_error, max_iterations)
    one = cost.operations(program, forms, 1, to_input=activations)[1]
    sketch = samples * (forward + probes * one)
    figures = f"exact takes about {exact:.1e} operations ({count} passes), a sketch {sketch:.1e} ({probes} passes)"
    if exact <= budget:
        return "exact", f"{figures}; the budget is {budget:.1e}", max_iterations
    if exact <= sketch:
        return "exact", f"{figures}; exact is the cheaper", max_iterations
    most = max(2, min(max_iterations, int((budget / samples - forward) / one)))
    ends = f", which ends the sketch at {most}" if most < probes else ""
    return "sketch", f"{figures}; the budget is {budget:.1e}{ends}", most


def _eigenvalues(
    program: Program | None,
    model: nn.Module,
    names: list[str],
    x: Tensor,
    y: Tensor,
    loss: LossName,
    generator: torch.Generator,
    tolerance: float,
    budget: float,
) -> tuple[dict[str, dict[str, Any]], int]:
    """Every layer's fields of its top eigenvalue, and on how many samples: with a program exact, else by autograd."""
    if program is not None:
        forms = cost.forms(program, Weights.of(model, program.layers, torch.float32, "meta"))
        count = columns(loss, program.size(program.output))
        samples = exact_eigenvalue_samples(program, forms, count, len(x), budget)
    else:
        samples = autograd_eigenvalue_samples(model, x, len(names), len(x), budget)
    if samples < min(4, len(x)):
        return {}, 0
    x, y = x[:samples], y[:samples]
    if program is not None:
        found = exact_eigenvalues(program, model, x, loss, generator, tolerance=tolerance)
    else:
        found = autograd_eigenvalues(model, names, x, y, loss, generator, tolerance=tolerance)
    return {
        name: {"top_eigenvalue": value, "eigenvalue_residual": residual, "eigenvalue_samples": samples}
        for name, (value, residual) in found.items()
    }, samples
