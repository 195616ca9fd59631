"""Allocation for 20 layers x 7 widths of weights and activations: the whole Pareto front against one ILP a budget.

A chain of 20 dense layers of 16 to 64 features with random sensitivities; weights and activations of 2..8 bits, BOPs
(the pairwise cost) as the budget. The peer is HiGHS through scipy, one solve of the same linearized problem for each
point of the front; it is timed on 12 budgets spread over the front and multiplied by the number of points. The answers
are compared. The absolute targets, 50 ms for the front, stand in lines of their own: with free activations, and with
activations tied to the weights (a = w + 2). One thread, CPU seconds.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from typing import TypeVar

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"  # before numpy loads its BLAS

import numpy as np  # noqa: E402
from outcome import line  # noqa: E402

from hawq_flow.allocate import AsWeight, Choices, Term, Terms, pareto_front  # noqa: E402
from hawq_flow.allocate.ilp import Programme, budget_row  # noqa: E402
from hawq_flow.allocate.problem import build  # noqa: E402
from hawq_flow.plan import LayerShape  # noqa: E402

LAYERS, WIDTHS, BUDGETS = 20, range(2, 9), 12
Result = TypeVar("Result")


def instance() -> tuple[list[LayerShape], Terms]:
    rng = np.random.default_rng(0)
    sizes = [16, *rng.choice([16, 32, 48, 64], LAYERS - 1).tolist(), 5]
    shapes = [LayerShape(f"fc{i}", n, m, f"fc{i - 1}" if i else "x") for i, (n, m) in enumerate(pairwise(sizes))]

    def term(size: int, trace: float) -> Term:
        return Term(size, trace, {bits: size * float(rng.uniform(0.5, 1.5)) * 4.0**-bits for bits in range(2, 17)})

    return shapes, Terms(
        {s.name: term(s.weights, float(rng.uniform(0.1, 10))) for s in shapes},
        {name: term(32, float(rng.uniform(0.1, 1))) for name in ["x", *(s.name for s in shapes)]},
    )


def timed(work: Callable[[], Result]) -> tuple[float, Result]:
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def main() -> None:
    shapes, terms = instance()
    choices = Choices.uniform(shapes, WIDTHS, WIDTHS)
    front = pareto_front(shapes, terms, choices)
    ours = statistics.median(timed(lambda: pareto_front(shapes, terms, choices))[0] for _ in range(9))
    solves = []
    for i in np.linspace(0, len(front) - 1, BUDGETS + 2).astype(int)[1:-1]:
        problem = build(shapes, terms, choices, {"bops": float(front.costs[i])})
        programme = Programme(problem)
        costs = programme.unary(problem.objective) * (1e4 / front.objectives[i])
        rows = [budget_row(programme, problem.budgets[0])]
        seconds, found = timed(lambda: programme.minimize(costs, rows))  # noqa: B023
        if found is None or not math.isclose(problem.value(found), front.objectives[i], rel_tol=1e-9):
            raise AssertionError(f"point {i}: the front and the ILP disagree")
        solves.append(seconds)
    name = f"Pareto front of {LAYERS} layers x {len(WIDTHS)} widths, weights and activations"
    line(
        f"{name} ({len(front)} points)",
        ours,
        statistics.mean(solves) * len(front),
        f"HiGHS once a point (mean of {BUDGETS} solves x {len(front)})",
        target=1,
        unit="CPU s",
    )
    line(f"{name}, absolute", ours, 0.05, "the target itself", target=1, unit="CPU s")
    tied = Choices.uniform(shapes, WIDTHS, AsWeight(2))
    ours = statistics.median(timed(lambda: pareto_front(shapes, terms, tied))[0] for _ in range(9))
    name = f"Pareto front of {LAYERS} layers x {len(WIDTHS)} widths, activations tied"
    line(f"{name}, absolute", ours, 0.05, "the target itself", target=1, unit="CPU s")


if __name__ == "__main__":
    main()
