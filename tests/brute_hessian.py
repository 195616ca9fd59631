"""Hessians by brute force, in float64, from torch's own double backward: what sensitivities are checked against."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

Loss = Callable[[Tensor, Tensor], Tensor]


def seeded(build: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    """A model with reproducible weights, without touching the global generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()


def brute_hessian(model: nn.Module, name: str, x: Tensor, y: Tensor, loss: Loss = functional.cross_entropy) -> Tensor:
    """The dense Hessian of the mean loss in one layer's weights: one double-backward product for each weight."""
    model = copy.deepcopy(model).double().eval()
    weight = model.get_submodule(name).weight
    assert isinstance(weight, nn.Parameter)
    (gradient,) = torch.autograd.grad(loss(model(x.double()), y), weight, create_graph=True)
    basis = torch.eye(weight.numel(), dtype=torch.float64).reshape(-1, *weight.shape)
    if not gradient.requires_grad:
        return torch.zeros(weight.numel(), weight.numel(), dtype=torch.float64)
    return torch.stack([torch.autograd.grad(gradient, weight, v, retain_graph=True)[0].flatten() for v in basis])


def brute_activation(
    tail: Callable[[Tensor], Tensor], a: Tensor, y: Tensor, loss: Loss = functional.cross_entropy
) -> float:
    """Mean over samples of the trace of each sample's Hessian in its activation, by torch's own Hessian."""

    def trace(row: Tensor, label: Tensor) -> float:
        hessian = torch.autograd.functional.hessian(lambda v: loss(tail(v[None]), label[None]), row)
        assert isinstance(hessian, Tensor)
        return float(hessian.reshape(row.numel(), row.numel()).trace())

    return float(np.mean([trace(row, label) for row, label in zip(a, y, strict=True)]))


def brute_module_activation(
    model: nn.Module, module: str, x: Tensor, y: Tensor, loss: Loss = functional.cross_entropy
) -> float:
    """:func:`brute_activation` of what a module returns ('' is the network's input); a hook puts the variable there."""
    model = copy.deepcopy(model).double().eval()
    if not module:
        return brute_activation(lambda v: model(v.clone()), x.double(), y, loss)
    place = model.get_submodule(module)
    seen: list[Tensor] = []
    handle = place.register_forward_hook(lambda _m, _i, output: seen.append(output.detach().clone()))
    model(x.double())
    handle.remove()
    assert len(seen) == 1, "the module is called more than once"

    def value(row: Tensor, sample: Tensor, label: Tensor) -> float:
        def function(v: Tensor) -> Tensor:
            hook: Any = place.register_forward_hook(lambda _m, _i, _o: v[None].clone())
            try:
                return loss(model(sample[None]), label[None])
            finally:
                hook.remove()

        hessian = torch.autograd.functional.hessian(function, row)
        assert isinstance(hessian, Tensor)
        return float(hessian.reshape(row.numel(), row.numel()).trace())

    return float(np.mean([value(r, s, t) for r, s, t in zip(seen[0], x.double(), y, strict=True)]))
