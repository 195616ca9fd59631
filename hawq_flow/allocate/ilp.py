"""The allocation as an integer linear programme, for any mix of budgets, through scipy's HiGHS.

The maths. One binary ``x[t,i]`` for each width ``i`` of each slot ``t``, with ``sum_i x[t,i] = 1``. A cost of a pair of
slots, a product, is linearized by ``z[i,j]`` in [0, 1] with ``sum_j z[i,j] = x[s,i]`` and ``sum_i z[i,j] = x[t,j]``:
with binary ``x`` these force ``z[i,j] = x[s,i] * x[t,j]``, so ``z`` itself may be continuous.

HiGHS stops within absolute gaps of 1e-6 that scipy does not expose, while widths 2..16 spread objectives over eight
decades. So the problem is solved again, with the objective scaled to the best value found and the widths that alone
exceed that value taken out, until it no longer falls; what is left undecided is below 1e-9 of the objective. Integer
budgets get half a unit of room, so that a feasibility tolerance can neither exclude a plan on the limit nor admit one
beyond it; the plan found is checked against the limits outside the solver. Ties (within 1e-9) go to the smaller
budgets, in their order, then to the lexicographically smallest plan.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array, csr_array, vstack

from hawq_flow.allocate.problem import Budget, FloatArray, Problem

_TIE = 1e-9
_SCALE = 1e4
"""What the best objective is scaled to, in the solver."""


class InfeasibleError(ValueError):
    """No plan meets the budgets; the message says the smallest feasible value of each."""


@dataclass(frozen=True)
class _Row:
    """``costs @ variables <= limit``, scaled so that the largest coefficient is 1."""

    costs: FloatArray
    limit: float

    @classmethod
    def of(cls, costs: FloatArray, limit: float) -> _Row:
        largest = float(np.abs(costs).max(initial=0.0))
        return cls(costs / largest, limit / largest) if largest > 0 else cls(costs, limit)


class Programme:
    """Variables and equalities of a problem; :meth:`minimize` solves it for one objective."""

    def __init__(self, problem: Problem) -> None:
        self.sizes = [len(widths) for widths in problem.widths]
        self.starts = np.cumsum([0, *self.sizes])
        self.binaries = int(self.starts[-1])
        self.pairs: dict[tuple[int, int], int] = {}
        count = self.binaries
        for s, t in sorted({pair for budget in problem.budgets for pair in budget.pairs}):
            self.pairs[s, t] = count
            count += self.sizes[s] * self.sizes[t]
        self.count = count
        rows: list[int] = []
        columns: list[int] = []
        values: list[float] = []
        right: list[float] = []

        def equality(plus: NDArray[np.int64], minus: int | None) -> None:
            rows.extend([len(right)] * (len(plus) + (minus is not None)))
            columns.extend([*plus.tolist(), *([] if minus is None else [minus])])
            values.extend([1.0] * len(plus) + ([] if minus is None else [-1.0]))
            right.append(1.0 if minus is None else 0.0)

        for t, size in enumerate(self.sizes):
            equality(np.arange(size) + self.starts[t], None)
        for (s, t), start in self.pairs.items():
            grid = start + np.arange(self.sizes[s] * self.sizes[t]).reshape(self.sizes[s], self.sizes[t])
            for i in range(self.sizes[s]):
                equality(grid[i], int(self.starts[s]) + i)
            for j in range(self.sizes[t]):
                equality(grid[:, j], int(self.starts[t]) + j)
        self._equal = csr_array(coo_array((values, (rows, columns)), shape=(len(right), count)))
        self._right = np.array(right)
        self._integrality = np.r_[np.ones(self.binaries), np.zeros(count - self.binaries)]

    def unary(self, costs: tuple[FloatArray, ...]) -> FloatArray:
        """Coefficients of a sum over slots."""
        return np.concatenate([*costs, np.zeros(self.count - self.binaries)])

    def budget(self, budget: Budget) -> FloatArray:
        """Coefficients of a budget's reduced cost."""
        coefficients = self.unary(budget.unary)
        for pair, costs in budget.pairs.items():
            start = self.pairs[pair]
            coefficients[start : start + costs.size] += costs.ravel()
        return coefficients

    def minimize(
        self, costs: FloatArray, rows: list[_Row], allowed: NDArray[np.bool_] | None = None
    ) -> list[int] | None:
        """The width index of every slot in a minimum of ``costs`` under ``rows``; None when there is none.

        ``allowed`` (binaries,) takes out widths. ``RuntimeError`` if the solver ends otherwise.
        """
        upper = np.ones(self.count)
        if allowed is not None:
            upper[: self.binaries] = allowed
        if rows:
            matrix = vstack([self._equal, csr_array(np.stack([row.costs for row in rows]))])
            low = np.r_[self._right, np.full(len(rows), -np.inf)]
            high = np.r_[self._right, [row.limit for row in rows]]
        else:
            matrix, low, high = self._equal, self._right, self._right
        result = milp(
            costs,
            integrality=self._integrality,
            bounds=Bounds(0.0, upper),
            constraints=LinearConstraint(matrix, low, high),
            options={"mip_rel_gap": 0.0},
        )
        # Every variable is bounded, so 'unbounded or infeasible', which presolve may say, is infeasible.
        if result.status == 2 or (result.status == 4 and "infeasible" in str(result.message).lower()):
            return None
        if result.status != 0:
            raise RuntimeError(f"allocation: HiGHS ended with status {result.status}: {result.message}")
        return [int(np.argmax(result.x[self.starts[t] : self.starts[t + 1]])) for t in range(len(self.sizes))]


def solve(problem: Problem) -> list[int]:
    """The best choice (width index of every slot) under all budgets; see the module's docstring.

    Raises
    ------
    InfeasibleError
        If no plan meets the budgets, with the smallest feasible value of each that is too tight.
    """
    programme = Programme(problem)
    rows = [budget_row(programme, budget) for budget in problem.budgets if math.isfinite(budget.limit)]
    if any(row.limit < 0 for row in rows):
        raise _infeasible(problem, programme)
    objective = programme.unary(problem.objective)
    best = _optimum(problem, programme, objective, rows)
    if best is None:
        raise _infeasible(problem, programme)
    return _break_ties(problem, programme, objective, rows, best)


def budget_row(programme: Programme, budget: Budget) -> _Row:
    """The constraint that keeps a plan within a budget; see the module's docstring on the half unit."""
    return _Row.of(programme.budget(budget), budget.reduced_limit + (0.5 if budget.integral else 0.0))


def _fits(problem: Problem, choice: list[int]) -> bool:
    # A finite reduced limit is not negative here, and the solver's own rounding is relative to it.
    return all(
        budget.reduced(choice) <= budget.reduced_limit + 1e-9 * max(1.0, budget.reduced_limit)
        for budget in problem.budgets
    )


def _affordable(problem: Problem, value: float) -> NDArray[np.bool_]:
    """Which widths leave the objective at or below ``value`` when every other slot takes its best."""
    lowest = math.fsum(float(values.min()) for values in problem.objective)
    rise = np.concatenate([values - values.min() for values in problem.objective])
    return np.asarray(rise + lowest <= value * (1 + _TIE))


def _optimum(problem: Problem, programme: Programme, objective: FloatArray, rows: list[_Row]) -> list[int] | None:
    scale = sum(float(values.max()) for values in problem.objective) or 1.0
    allowed = np.ones(programme.binaries, dtype=bool)
    best: list[int] | None = None
    value = math.inf
    while True:
        costs = np.minimum(objective * (_SCALE / scale), 1e9)  # only widths already taken out exceed the bound
        found = programme.minimize(costs, rows, allowed)
        if found is None:
            return best
        if not _fits(problem, found):
            raise RuntimeError(
                "allocation: HiGHS returned a plan beyond a budget by more than rounding; scale the "
                "cost table so that its entries span fewer orders of magnitude"
            )
        reached = problem.value(found)
        if best is not None and reached >= value * (1 - _TIE):
            return found if reached < value else best
        best, value = found, reached
        if value <= 0 or value >= scale / 10:
            return best
        scale = value
        allowed = _affordable(problem, value)


def _break_ties(
    problem: Problem, programme: Programme, objective: FloatArray, rows: list[_Row], best: list[int]
) -> list[int]:
    """Of the choices as good as ``best``, the one with the smallest budgets, then the lexicographically smallest."""
    value = problem.value(best)

    def as_good(choice: list[int] | None) -> bool:
        return choice is not None and _fits(problem, choice) and problem.value(choice) <= value * (1 + 2 * _TIE)

    allowed = _affordable(problem, value)
    ceiling = value * (1 + _TIE) if value > 0 else 0.0
    scale = _SCALE / value if value > 0 else 1.0
    costs = np.where(np.r_[allowed, np.ones(programme.count - programme.binaries, dtype=bool)], objective * scale, 0.0)
    rows = [*rows, _Row(costs, ceiling * scale)]
    for budget in problem.budgets:
        coefficients = programme.budget(budget)
        largest = float(coefficients.max(initial=0.0)) or 1.0
        found = programme.minimize(coefficients / (largest if not budget.integral else 1.0), rows, allowed)
        if found is not None and as_good(found) and budget.reduced(found) < budget.reduced(best):
            best = found
        used = budget.reduced(best)
        rows.append(_Row.of(coefficients, used + (0.5 if budget.integral else _TIE * max(1.0, used))))
    other = np.ones(programme.count)
    other[programme.binaries :] = 0.0
    other[_positions(programme, best)] = 0.0
    rival = programme.minimize(-other, rows, allowed)
    if rival is None or rival == best:
        return best
    for t, size in enumerate(programme.sizes):
        narrower = np.zeros(programme.count)
        narrower[programme.starts[t] : programme.starts[t + 1]] = np.arange(size)
        if best[t] > 0:
            found = programme.minimize(narrower, rows, allowed)
            if found is not None and as_good(found) and found[t] < best[t]:
                best = found
        allowed = allowed.copy()
        allowed[programme.starts[t] : programme.starts[t + 1]] = np.arange(size) == best[t]
    return best


def _positions(programme: Programme, choice: list[int]) -> list[int]:
    return [int(programme.starts[t]) + i for t, i in enumerate(choice)]


def _infeasible(problem: Problem, programme: Programme) -> InfeasibleError:
    """Say, for each budget, the smallest value that the others leave feasible."""
    parts = []
    for budget in problem.budgets:
        others = [other for other in problem.budgets if other is not budget]
        rows = [budget_row(programme, other) for other in others if math.isfinite(other.limit)]
        found = programme.minimize(programme.budget(budget), rows) if all(row.limit >= 0 for row in rows) else None
        kept = " with the other budgets kept" if others else ""
        if found is None:
            found = programme.minimize(programme.budget(budget), [])
            kept = " with no other budget"
        assert found is not None
        least = problem.used(budget.name, problem.plan(found))
        verb = "is exceeded: " if budget.reduced(found) > budget.reduced_limit else "holds alone: "
        parts.append(f"{budget.name} <= {budget.limit:.12g} {verb}the smallest feasible value{kept} is {least:.12g}")
    return InfeasibleError(
        f"allocation: no plan meets the budgets. {'; '.join(parts)}. Raise a limit to its smallest "
        f"feasible value, or allow narrower widths"
    )
