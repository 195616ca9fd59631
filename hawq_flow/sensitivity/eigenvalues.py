"""The largest eigenvalue of a symmetric operator known by its products."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

Product = Callable[[Tensor], Tensor]


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
