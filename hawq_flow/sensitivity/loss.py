"""The losses whose curvature is measured, and the factor of their second derivative in the network's outputs.

Both are means over samples of a loss ``l(z)`` of one sample's outputs ``z``; ``S = d2l/dz2 = F F^T``.

``cross_entropy``, over C logits: ``S = diag(p) - p p^T`` with ``p = softmax(z)``. It has rank C - 1 and a Cholesky
factor in closed form: with tails ``r_i = p_i + ... + p_C``, ``F[i,i] = sqrt(p_i r_{i+1} / r_i)`` and
``F[j,i] = -(p_j / r_{i+1}) F[i,i]`` for ``j > i``.

``mse``, the mean over all k outputs of one sample (so ``torch.nn.functional.mse_loss`` over a batch):
``l = |z - t|^2 / k``, ``S = (2/k) I``, ``F = sqrt(2/k) I``.

Neither ``S`` depends on the labels or targets.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

LossName = Literal["cross_entropy", "mse"]


def columns(loss: LossName, outputs: int) -> int:
    """How many columns ``F`` has for a network of ``outputs`` outputs a sample: C - 1, or k."""
    return outputs - 1 if loss == "cross_entropy" else outputs


def criterion(loss: LossName) -> nn.Module:
    """The loss as torch's module, mean over the batch."""
    return nn.CrossEntropyLoss() if loss == "cross_entropy" else nn.MSELoss()


def total(loss: LossName, outputs: Tensor, y: Tensor) -> Tensor:
    """The sum over the batch of every sample's loss, a scalar."""
    if loss == "cross_entropy":
        return functional.cross_entropy(outputs, y, reduction="sum")
    squares: Tensor = functional.mse_loss(outputs, y, reduction="sum").div(math.prod(outputs.shape[1:]))
    return squares


def loss_factor(outputs: Tensor, loss: LossName = "cross_entropy", first: int = 0, last: int | None = None) -> Tensor:
    """Columns ``first`` to ``last`` (excluded; None: all) of the factor ``F`` of the loss's Hessian in the outputs.

    Parameters
    ----------
    outputs:
        Logits (n, C), C >= 2, or outputs (n, *shape); taken as float64.

    Returns
    -------
    float64 of shape (n, last - first, *shape): for each sample the columns of ``F``, as adjoints to send backward.
    """
    if loss == "mse":
        shape = outputs.shape[1:]
        size = math.prod(shape)
        part = torch.zeros((size if last is None else last) - first, size, dtype=torch.float64, device=outputs.device)
        part.diagonal(first).fill_(math.sqrt(2 / size))
        return part.reshape(-1, *shape).expand(len(outputs), -1, *shape)
    p, diagonal, ratio = _softmax_parts(outputs)
    later = torch.ones(outputs.shape[1] - 1, outputs.shape[1], dtype=p.dtype, device=p.device).triu(1)[first:last]
    factor = (p[:, None, :] * ratio[:, first:last, None]).mul_(-later)
    factor.diagonal(first, dim1=1, dim2=2).copy_(diagonal[:, first:last])
    return factor


def _softmax_parts(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """``p`` (n, C), the diagonal of ``F`` and ``F[i,i] / r_{i+1}``, both (n, C - 1), float64."""
    p = torch.softmax(logits.double(), dim=1)
    tails = p.flip(1).cumsum(1).flip(1)
    here, rest = tails[:, :-1], tails[:, 1:]
    # A tail can underflow. Below the floor its column is 0 for all purposes, and with it no quotient is infinite.
    floor = 1e-300
    diagonal = torch.sqrt(p[:, :-1] * rest / here.clamp(min=floor))
    return p, diagonal, diagonal / rest.clamp(min=floor)


def loss_sketch(outputs: Tensor, loss: LossName, probes: int, generator: torch.Generator) -> Tensor:
    """``F s`` for each sample's own random signs ``s``, ``probes`` times: float64, (n, probes, *shape), in O(outputs).

    ``E[(F s)(F s)^T] = S``.
    """
    count = columns(loss, math.prod(outputs.shape[1:]))
    signs = (
        torch.randint(0, 2, (len(outputs), probes, count), generator=generator).to(outputs.device, torch.float64) * 2
        - 1
    )
    if loss == "mse":
        return (signs * math.sqrt(2 / count)).reshape(len(outputs), probes, *outputs.shape[1:])
    p, diagonal, ratio = _softmax_parts(outputs)
    before = functional.pad((ratio[:, None] * signs).cumsum(2), (1, 0))  # sum over i < j
    return functional.pad(diagonal[:, None] * signs, (0, 1)) - p[:, None] * before
