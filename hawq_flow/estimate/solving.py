"""Non-negative coefficients of a linear model, fitted robustly to relative errors, and their held-out errors.

``y_i`` measured, ``x_i`` the amounts of row i, ``c >= 0`` the coefficients: minimize the sum of
``w_i rho((x_i c - y_i) / d_i)``, rho quadratic to ``HUBER`` and linear beyond (Huber 1964), and
``d_i = max(y_i, x_i c, floor)``, so that twofold too much and twofold too little weigh the same. ``w_i`` gives every
*project* the same weight, however many rows it has. Solved by non-negative least squares, re-weighted.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hawq_flow.numeric import FloatArray

HUBER = 0.1
"""Relative error beyond which a row pulls no harder."""
ROUNDS = 40


def project_weights(projects: Sequence[str]) -> FloatArray:
    """One over the number of rows of each row's project."""
    _, inverse, counts = np.unique(np.asarray(projects), return_inverse=True, return_counts=True)
    return 1.0 / counts[inverse]


def solve(amounts: FloatArray, measured: FloatArray, projects: Sequence[str], floor: float = 1.0) -> FloatArray:
    """Coefficients (terms,) for amounts (rows, terms) and measured (rows,), none of them negative.

    ``floor``: figures below it do not count as relative errors: an error of ``floor`` LUTs is no error of 100 %.
    """
    import scipy.optimize  # half a second that estimating without fitting should not take

    amounts, measured = np.asarray(amounts, float), np.asarray(measured, float)
    size = np.maximum(np.abs(amounts).max(axis=0, initial=0.0), 1e-12)  # terms of one size, for the solver's tolerance
    scaled = amounts / size
    share = project_weights(projects)
    denominator = np.maximum(measured, floor)
    robust = np.ones(len(measured))
    coefficients = np.zeros(amounts.shape[1])
    for _ in range(ROUNDS):
        root = np.sqrt(share * robust) / denominator
        coefficients, _ = scipy.optimize.nnls(scaled * root[:, None], measured * root, maxiter=100 * amounts.shape[1])
        found = scaled @ coefficients
        # half a step towards the symmetric denominator: a whole one oscillates
        denominator = np.sqrt(denominator * np.maximum(np.maximum(measured, found), floor))
        error = np.abs(found - measured) / denominator
        robust = np.minimum(1.0, HUBER / np.maximum(error, 1e-9))
    return np.asarray(coefficients / size)


def held_out(amounts: FloatArray, measured: FloatArray, projects: Sequence[str], floor: float = 1.0) -> FloatArray:
    """What is predicted (rows,) for each project by coefficients fitted on all the others."""
    names = np.asarray(projects)
    predicted = np.zeros(len(measured))
    for name in sorted(set(projects)):
        out = names == name
        if out.all():
            raise ValueError(f"held out: every row is of project {name!r}; expected at least two projects")
        predicted[out] = amounts[out] @ solve(amounts[~out], measured[~out], list(names[~out]), floor)
    return predicted
