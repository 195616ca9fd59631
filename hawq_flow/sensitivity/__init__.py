"""How much the loss bends along each layer's weights and activations: what decides where bits are worth spending.

:func:`measure` gives, for a float network whose batch norm is folded, the trace of the Hessian of the mean
cross-entropy in every layer's weights (biases excluded) and the mean over samples of its trace in every activation,
each with the method used and its standard errors. HAWQ-v2 (arXiv:1911.03852) turns them into a bit allocation.

Two methods. ``exact`` holds for piecewise linear networks (:mod:`hawq_flow.sensitivity.exact` has the maths,
:mod:`hawq_flow.sensitivity.linearity` decides). ``hutchinson`` holds for any network, with a random error
(:mod:`hawq_flow.sensitivity.hutchinson`, through PyHessian). ``auto`` takes the first where it holds and
records the reason where it does not.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

import torch
from torch import Tensor, nn

from hawq_flow.sensitivity.exact import exact_eigenvalues, exact_traces
from hawq_flow.sensitivity.hutchinson import hutchinson_activations, hutchinson_layers
from hawq_flow.sensitivity.linearity import NotPiecewiseLinear, Program, compile_program, is_layer, layer_calls, trace
from hawq_flow.sensitivity.result import ActivationSensitivity, LayerSensitivity, Sensitivity

__all__ = ["ActivationSensitivity", "LayerSensitivity", "Sensitivity", "measure"]


def measure(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    method: Literal["auto", "exact", "hutchinson"] = "auto",
    input_name: str = "x",
    activations: bool = True,
    diagonals: bool = False,
    eigenvalue_samples: int = 1024,
    eigenvalue_tolerance: float = 1e-4,
    relative_error: float = 0.01,
    max_iterations: int = 200,
    seed: int = 0,
) -> Sensitivity:
    """Measure the Hessian traces of a float network on training data.

    The model is left as it was: mode, gradients, ``requires_grad`` and the global random generator.

    Parameters
    ----------
    model:
        Maps (n, *features) to logits (n, C), C >= 2. Batch norm must be folded into the weights first: the trace is
        over the weights that are quantized (folding changed one network's trace from 1.04 to 0.60). Dropout is taken
        as in evaluation. A model in float64 is measured in float64; a float32 one agrees with that to about 1e-7.
    x:
        Standardized training samples, floating point, shape (n, *features), n >= 4, finite. Moved to the model's
        device.
    y:
        Labels, int64, shape (n,), in 0..C-1. (The exact Hessian does not depend on them; they are checked all the
        same.)
    method:
        ``exact`` raises where the identity does not hold; ``auto`` falls back on ``hutchinson`` and says why.
    input_name:
        The plan's name for the network's input.
    activations:
        Whether to measure activations too.
    diagonals:
        Whether to keep the second derivative of every single weight; exact only.
    eigenvalue_samples:
        Samples (the first ones) for each layer's top eigenvalue; 0 leaves eigenvalues out.
    eigenvalue_tolerance:
        Relative residual at which the eigenvalue's Lanczos iteration stops.
    relative_error, max_iterations:
        Hutchinson only: the relative standard error wanted of the estimator, and the most probes of a batch of data.
        ``converged`` in the result says which of them ended it.
    seed:
        Of this function's own generators (Lanczos start vectors, Hutchinson signs).

    Raises
    ------
    ValueError
        On batch norm, non-finite data or weights, wrong shapes or labels, a model without layers, a layer that
        forward() does not use, weights shared by two layers, or ``method="exact"`` where the identity does not hold.
    """
    if method not in ("auto", "exact", "hutchinson"):
        raise ValueError(f"sensitivity: method {method!r}; expected 'auto', 'exact' or 'hutchinson'")
    if max_iterations < 2:
        raise ValueError(
            f"sensitivity: max_iterations {max_iterations}; expected at least 2 (one probe has no standard error)"
        )
    names = _check_model(model)
    device = next(model.parameters()).device
    x, y = x.detach().to(device), y.detach().to(device)
    classes = _check_data(model, x, y)
    program, reason = None, ""
    if method != "hutchinson":
        try:
            program = compile_program(model, tuple(x.shape[1:]), input_name)
        except NotPiecewiseLinear as error:
            if method == "exact":
                raise ValueError(
                    f"sensitivity: the exact method does not hold for this network: {error}. Use "
                    f"method='hutchinson', or 'auto'"
                ) from error
            reason = str(error)
    generator = torch.Generator().manual_seed(seed)
    if program is not None:
        return _exact(
            program,
            model,
            x,
            classes,
            activations,
            diagonals,
            eigenvalue_samples,
            eigenvalue_tolerance,
            generator,
            seed,
        )
    if diagonals:
        why = f", and {reason}" if reason else ""
        raise ValueError(f"sensitivity: diagonals come from the exact method only{why}; pass diagonals=False")
    measured = (
        []
        if not activations
        else hutchinson_activations(
            model, input_name, x, y, generator, tolerance=relative_error, max_iterations=max_iterations
        )
    )
    layers = hutchinson_layers(
        model,
        names,
        x,
        y,
        generator,
        tolerance=relative_error,
        max_iterations=max_iterations,
        eigenvalue_samples=eigenvalue_samples,
        eigenvalue_tolerance=eigenvalue_tolerance,
    )
    return Sensitivity(tuple(layers), tuple(measured), "hutchinson", reason, seed)


def _exact(
    program: Program,
    model: nn.Module,
    x: Tensor,
    classes: int,
    activations: bool,
    diagonals: bool,
    eigenvalue_samples: int,
    tolerance: float,
    generator: torch.Generator,
    seed: int,
) -> Sensitivity:
    layers, measured = exact_traces(program, model, x, classes, activations=activations, diagonals=diagonals)
    if eigenvalue_samples:
        eigenvalues = exact_eigenvalues(program, model, x[:eigenvalue_samples], generator, tolerance=tolerance)
        layers = [
            dataclasses.replace(
                layer,
                top_eigenvalue=eigenvalues[layer.name][0],
                eigenvalue_residual=eigenvalues[layer.name][1],
                eigenvalue_samples=min(eigenvalue_samples, len(x)),
            )
            for layer in layers
        ]
    return Sensitivity(tuple(layers), tuple(measured), "exact", "", seed)


def _check_model(model: nn.Module) -> list[str]:
    """Names of the layers in the order of the forward pass (of definition, when it cannot be traced)."""
    norms = [
        f"{name} ({type(module).__name__})"
        for name, module in model.named_modules()
        if isinstance(module, nn.modules.batchnorm._BatchNorm)
    ]
    if norms:
        raise ValueError(
            f"sensitivity: the model still has batch norm: {', '.join(norms)}. Fold it into the "
            f"preceding layers' weights first; traces and quantization errors must be of the same weights"
        )
    modules = {name: module for name, module in model.named_modules() if is_layer(module)}
    if not modules:
        raise ValueError("sensitivity: the model has no Linear, Conv1d or Conv2d layer; expected at least one")
    owners: dict[int, str] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        if not is_layer(module):
            continue
        weight = module.weight
        assert isinstance(weight, Tensor)
        if not bool(torch.isfinite(weight).all()):
            raise ValueError(
                f"sensitivity: layer {name!r} has {int((~torch.isfinite(weight)).sum())} weights that "
                f"are not finite; the training diverged, train again"
            )
        if owners.setdefault(id(weight), name) != name:
            raise ValueError(
                f"sensitivity: layers {owners[id(weight)]!r} and {name!r} share one weight tensor; a bit "
                f"plan gives every layer its own width: copy the weights"
            )
    try:
        called = list(layer_calls(trace(model), model))
    except NotPiecewiseLinear:  # method 'exact' reports this later, with its reason; 'hutchinson' needs no graph
        return list(modules)
    unused = [name for name in modules if name not in called]
    if unused:
        raise ValueError(
            f"sensitivity: forward() does not call {', '.join(unused)}; remove what is not used, or it "
            f"would be given a width"
        )
    return called


def _check_data(model: nn.Module, x: Tensor, y: Tensor) -> int:
    """The number of classes, after checking samples and labels against the model."""
    if x.ndim < 2 or not x.is_floating_point() or len(x) < 4:
        raise ValueError(
            f"sensitivity: x has shape {tuple(x.shape)} and dtype {x.dtype}; expected (n, *features) in "
            f"floating point, n >= 4"
        )
    if y.shape != x.shape[:1] or y.dtype != torch.int64:
        raise ValueError(
            f"sensitivity: y has shape {tuple(y.shape)} and dtype {y.dtype}; expected ({len(x)},) and "
            f"torch.int64, one label for each sample"
        )
    # One sum instead of a mask; it cannot overflow in float64 unless a value is all but infinite.
    if not math.isfinite(float(x.sum(dtype=torch.float64))) and not bool(torch.isfinite(x).all()):
        raise ValueError(
            f"sensitivity: {int((~torch.isfinite(x)).sum())} of {x.numel()} values of x are NaN or "
            f"infinite; clean and standardize the data first"
        )
    first = next((module for _, module in model.named_modules() if isinstance(module, nn.Linear)), None)
    parameter = next(model.parameters())
    training = [module for module in model.modules() if module.training]
    try:
        for module in training:
            module.training = False
        with torch.no_grad():
            logits = model(x[:2].to(parameter.dtype))
    except RuntimeError as error:
        expected = f" (its first Linear layer takes {first.in_features} features)" if first is not None else ""
        raise ValueError(
            f"sensitivity: the model does not take samples of shape {tuple(x.shape[1:])}{expected}: {error}"
        ) from error
    finally:
        for module in training:
            module.training = True
    if not isinstance(logits, Tensor) or logits.ndim != 2 or logits.shape[1] < 2:
        found = f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(f"sensitivity: the model returns {found}; expected logits of shape (n, C) with C >= 2 classes")
    classes = int(logits.shape[1])
    if not 0 <= int(y.min()) <= int(y.max()) < classes:
        raise ValueError(
            f"sensitivity: labels run from {int(y.min())} to {int(y.max())}; the model's {classes} "
            f"logits expect 0 to {classes - 1}"
        )
    return classes
