"""Sensitivities, quantization errors and budgets in; a bit plan, or the whole Pareto front of plans, out.

The objective is HAWQ-v2's (arXiv:1911.03852), extended to activations: ``sum (trace / size) * ||Q_b(t) - t||^2`` over
all weights and all activations that have a term. Budgets bound sums of costs that depend on a layer's weight width and
its
*input's* width: ``bops`` (:func:`hawq_flow.plan.bops`), ``weight_bits``, ``mean_bits``, and any table the caller names.

Two exact methods. :func:`allocate` with ``method="ilp"`` (HAWQ-v3's way, arXiv:2011.10680) takes any mix of budgets;
:func:`pareto_front` takes one budget and gives the best plan for every value of it at once
(:mod:`hawq_flow.allocate.pareto` has the maths), for chains, tied groups and whatever else keeps few widths open at a
time. Of equally good plans both return the one that uses less of the budget, then the lexicographically smallest in
plan order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hawq_flow.allocate import ilp, pareto
from hawq_flow.allocate.errors import activation_error, activation_terms, weight_error, weight_integers, weight_terms
from hawq_flow.allocate.ilp import InfeasibleError
from hawq_flow.allocate.pareto import NoChainError
from hawq_flow.allocate.problem import (
    LIMIT_TOLERANCE,
    AsWeight,
    Choices,
    CostTable,
    Problem,
    Term,
    Terms,
    Widths,
    build,
    used,
)
from hawq_flow.allocate.result import Allocation, BudgetUse, Row, explain
from hawq_flow.plan import BitPlan, LayerShape

__all__ = [
    "Allocation",
    "AsWeight",
    "BudgetUse",
    "Choices",
    "CostTable",
    "InfeasibleError",
    "NoChainError",
    "ParetoFront",
    "Row",
    "Term",
    "Terms",
    "Widths",
    "activation_error",
    "activation_terms",
    "allocate",
    "evaluate",
    "pareto_front",
    "used",
    "weight_error",
    "weight_integers",
    "weight_terms",
]


@dataclass(frozen=True, eq=False)
class ParetoFront:
    """All plans that no other plan beats in both objective and budget, by increasing budget.

    Attributes
    ----------
    budget:
        The budget's name.
    costs:
        float64 (points,), strictly increasing: what each plan uses of it.
    objectives:
        float64 (points,), strictly decreasing.
    choices:
        int64 (points, slots): the plans in the problem's normal form; :meth:`plan` and indexing read them.
    """

    budget: str
    costs: NDArray[np.float64]
    objectives: NDArray[np.float64]
    choices: NDArray[np.int64]
    _problem: Problem

    def __len__(self) -> int:
        return len(self.costs)

    def __getitem__(self, index: int) -> Allocation:
        return explain(self._problem, self.choices[index].tolist(), "pareto", {self.budget: math.inf})

    def __iter__(self) -> Iterator[Allocation]:
        return (self[i] for i in range(len(self)))

    def plan(self, index: int) -> BitPlan:
        """The bit plan of one point, without its explanation."""
        return self._problem.plan(self.choices[index].tolist())

    def best(self, limit: float) -> Allocation:
        """The best plan that uses at most ``limit`` of the budget.

        Raises
        ------
        InfeasibleError
            If none does, with the smallest feasible value.
        """
        if not limit > 0:
            raise ValueError(f"allocation: budget {self.budget!r} has limit {limit!r}; expected a positive number")
        index = int(np.searchsorted(self.costs, limit * (1 + LIMIT_TOLERANCE), side="right")) - 1
        if index < 0:
            raise InfeasibleError(
                f"allocation: no plan meets the budgets. {self.budget} <= {limit:.12g} is exceeded: "
                f"the smallest feasible value is {self.costs[0]:.12g}. Raise a limit to its "
                f"smallest feasible value, or allow narrower widths"
            )
        return explain(self._problem, self.choices[index].tolist(), "pareto", {self.budget: limit})


def allocate(
    shapes: Sequence[LayerShape],
    terms: Terms,
    choices: Choices,
    budgets: Mapping[str, float],
    *,
    method: Literal["ilp", "pareto"] = "ilp",
    tables: Mapping[str, CostTable] | None = None,
    zero_fraction: Mapping[str, float] | None = None,
) -> Allocation:
    """The plan of least objective under the budgets.

    Parameters
    ----------
    shapes:
        The layers in order, each with its source.
    terms:
        The objective.
    choices:
        Allowed, fixed and tied widths.
    budgets:
        Limits by name: ``bops``, ``weight_bits``, ``mean_bits`` or names of ``tables``; each > 0. Empty = no limit.
    method:
        ``ilp`` for any budgets; ``pareto`` for one budget on a chain.
    tables:
        Costs of the caller's own budgets: {budget: {layer: {(weight width, input width): cost}}}.
    zero_fraction:
        Fraction of zero weights by layer, for ``bops`` only; None counts all.

    Raises
    ------
    InfeasibleError
        If no plan meets the budgets, stating the smallest feasible values.
    NoChainError
        If ``method="pareto"`` and the layers' couplings are too many for it.
    ValueError
        On inconsistent names, widths, terms or tables, or ``method="pareto"`` without exactly one budget.
    """
    if method == "pareto":
        if len(budgets) != 1:
            raise ValueError(
                f"allocation: method 'pareto' with budgets {', '.join(budgets) or 'none'}; expected "
                f"exactly one. Use method='ilp' for any other number"
            )
        ((name, limit),) = budgets.items()
        return pareto_front(shapes, terms, choices, name, tables=tables, zero_fraction=zero_fraction).best(limit)
    if method != "ilp":
        raise ValueError(f"allocation: method {method!r}; expected 'ilp' or 'pareto'")
    problem = build(shapes, terms, choices, budgets, tables, zero_fraction)
    return explain(problem, ilp.solve(problem), "ilp", budgets)


def pareto_front(
    shapes: Sequence[LayerShape],
    terms: Terms,
    choices: Choices,
    budget: str = "bops",
    *,
    tables: Mapping[str, CostTable] | None = None,
    zero_fraction: Mapping[str, float] | None = None,
) -> ParetoFront:
    """The exact front of objective against one budget; arguments and errors as for :func:`allocate`."""
    problem = build(shapes, terms, choices, {budget: math.inf}, tables, zero_fraction)
    (normal,) = problem.budgets
    found = pareto.solve(problem, normal)
    reduced = np.zeros(len(found))
    objectives = np.zeros(len(found))
    for t, costs in enumerate(normal.unary):
        reduced += costs[found[:, t]]
        objectives += problem.objective[t][found[:, t]]
    for (s, t), pair in normal.pairs.items():
        reduced += pair[found[:, s], found[:, t]]
    return ParetoFront(budget, (normal.constant + normal.unit * reduced) / normal.scale, objectives, found, problem)


def evaluate(
    shapes: Sequence[LayerShape],
    terms: Terms,
    plan: BitPlan,
    budgets: Sequence[str] = ("bops",),
    *,
    tables: Mapping[str, CostTable] | None = None,
    zero_fraction: Mapping[str, float] | None = None,
) -> Allocation:
    """A given plan (a homogeneous baseline, say) explained like an allocated one; per-channel widths are refused.

    ``plan`` names one width for each tensor; arguments and errors as for :func:`allocate`.
    """
    plan.check(shapes)
    widths = {("input", name): bits for name, bits in plan.inputs}
    for name, entry in plan.layers:
        widths |= {("weight", name): entry.weight, ("activation", name): entry.activation}
    chosen: dict[tuple[str, str], int] = {}
    for key, bits in widths.items():
        if not isinstance(bits, int):
            raise ValueError(
                f"allocation: {key[0]} {key[1]!r} has one width for each channel; expected one for the tensor"
            )
        chosen[key] = bits
    choices = Choices(
        {name: chosen["weight", name] for name, _ in plan.layers},
        {name: bits for (kind, name), bits in chosen.items() if kind != "weight"},
    )
    problem = build(shapes, terms, choices, dict.fromkeys(budgets, math.inf), tables, zero_fraction)
    return explain(problem, [0] * len(problem.widths), "given", dict.fromkeys(budgets, math.inf))
