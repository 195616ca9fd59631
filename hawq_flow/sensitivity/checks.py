"""What :func:`hawq_flow.sensitivity.measure` asks of a model and its data, refused by name where it is not so."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from hawq_flow.sensitivity.loss import LossName
from hawq_flow.topology import Layer


def check_model(model: nn.Module) -> dict[str, Layer]:
    """The layers by name, in the order of definition, after checking them."""
    if isinstance(model, Layer):
        raise ValueError(
            f"sensitivity: the model is a bare {type(model).__name__}, which has no name to plan bits for; wrap it: "
            "nn.Sequential(layer)"
        )
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
    modules = {name: module for name, module in model.named_modules() if isinstance(module, Layer)}
    if not modules:
        raise ValueError("sensitivity: the model has no Linear, Conv1d or Conv2d layer; expected at least one")
    owners: dict[int, str] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        if not isinstance(module, Layer):
            continue
        weight = module.weight
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
    return modules


def check_data(
    model: nn.Module, layers: dict[str, Layer], x: Tensor, y: Tensor | None, loss: LossName
) -> tuple[list[str], tuple[int, ...]]:
    """The layers' names in the order in which forward() calls them, and the shape of one sample's outputs.

    Samples, and labels or targets, are checked against the model, which is run on two samples in evaluation mode.
    """
    if x.ndim < 2 or not x.is_floating_point() or len(x) < 4:
        raise ValueError(
            f"sensitivity: x has shape {tuple(x.shape)} and dtype {x.dtype}; expected (n, *features) in "
            f"floating point, n >= 4"
        )
    if loss == "cross_entropy" and (y is None or y.shape != x.shape[:1] or y.dtype != torch.int64):
        found = "is None" if y is None else f"has shape {tuple(y.shape)} and dtype {y.dtype}"
        raise ValueError(f"sensitivity: y {found}; expected ({len(x)},) and torch.int64, one label for each sample")
    # One sum instead of a mask; it cannot overflow in float64 unless a value is all but infinite.
    if not math.isfinite(float(x.sum(dtype=torch.float64))) and not bool(torch.isfinite(x).all()):
        raise ValueError(
            f"sensitivity: {int((~torch.isfinite(x)).sum())} of {x.numel()} values of x are NaN or "
            f"infinite; clean and standardize the data first"
        )
    first = next((module for _, module in model.named_modules() if isinstance(module, nn.Linear)), None)
    parameter = next(model.parameters())
    training = [module for module in model.modules() if module.training]
    called: dict[str, None] = {}
    hooks = [
        layer.register_forward_pre_hook(lambda _module, _inputs, name=name: called.setdefault(name))
        for name, layer in layers.items()
    ]
    try:
        for module in training:
            module.training = False
        with torch.no_grad():
            outputs = model(x[:2].to(parameter.dtype, copy=True))
    except RuntimeError as error:
        expected = f" (its first Linear layer takes {first.in_features} features)" if first is not None else ""
        raise ValueError(
            f"sensitivity: the model does not take samples of shape {tuple(x.shape[1:])}{expected}: {error}"
        ) from error
    finally:
        for module in training:
            module.training = True
        for hook in hooks:
            hook.remove()
    if unused := [name for name in layers if name not in called]:
        raise ValueError(
            f"sensitivity: forward() does not call {', '.join(unused)}; remove what is not used, or it "
            f"would be given a width"
        )
    return list(called), _check_targets(x, y, outputs) if loss == "mse" else _check_labels(y, outputs)


def _check_labels(y: Tensor | None, outputs: object) -> tuple[int, ...]:
    if not isinstance(outputs, Tensor) or outputs.ndim != 2 or outputs.shape[1] < 2:
        raise ValueError(
            f"sensitivity: the model returns {_described(outputs)}; expected logits of shape (n, C) with C >= 2 classes"
        )
    classes = int(outputs.shape[1])
    assert y is not None  # check_data has looked
    if not 0 <= int(y.min()) <= int(y.max()) < classes:
        raise ValueError(
            f"sensitivity: labels run from {int(y.min())} to {int(y.max())}; the model's {classes} "
            f"logits expect 0 to {classes - 1}"
        )
    return (classes,)


def _described(outputs: object) -> str:
    return f"shape {tuple(outputs.shape)}" if isinstance(outputs, Tensor) else type(outputs).__name__


def _check_targets(x: Tensor, y: Tensor | None, outputs: object) -> tuple[int, ...]:
    if not isinstance(outputs, Tensor) or outputs.ndim < 2:
        raise ValueError(
            f"sensitivity: the model returns {_described(outputs)} for 2 samples; expected outputs of shape (n, *shape)"
        )
    shape = tuple(outputs.shape[1:])
    if y is None:
        return shape
    if tuple(y.shape) != (len(x), *shape) or not y.is_floating_point():
        raise ValueError(
            f"sensitivity: y has shape {tuple(y.shape)} and dtype {y.dtype}; a mean squared error expects targets of "
            f"the outputs' shape, {(len(x), *shape)}, in floating point (for an autoencoder its inputs), or None"
        )
    if not bool(torch.isfinite(y).all()):
        raise ValueError(f"sensitivity: {int((~torch.isfinite(y)).sum())} of {y.numel()} targets are not finite")
    return shape
