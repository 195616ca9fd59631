"""What an allocation returns: the plan, what it costs, and why."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hawq_flow.allocate.problem import Problem, Term
from hawq_flow.document import exact_keys, version
from hawq_flow.plan import BitPlan

ALLOCATION_VERSION = 1


@dataclass(frozen=True)
class BudgetUse:
    """What a plan uses of one budget, and its limit (None when it was unlimited)."""

    name: str
    used: float
    limit: float | None


@dataclass(frozen=True)
class Row:
    """One tensor of the explanation.

    Attributes
    ----------
    name, kind:
        The layer (or network input) and which tensor of it: ``weight`` or ``activation`` (its output).
    size, trace:
        Elements and Hessian trace; None when an activation without a term is fixed or tied.
    errors:
        (width, squared quantization error) for every width that was known, ascending.
    allowed:
        The widths among which this one was chosen.
    chosen:
        The width chosen.
    contribution:
        ``trace / size * error`` at that width: its part of the objective.
    """

    name: str
    kind: str
    size: int | None
    trace: float | None
    errors: tuple[tuple[int, float], ...]
    allowed: tuple[int, ...]
    chosen: int
    contribution: float

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON form."""
        return {
            "name": self.name,
            "kind": self.kind,
            "size": self.size,
            "trace": self.trace,
            "errors": [[bits, error] for bits, error in self.errors],
            "allowed": list(self.allowed),
            "chosen": self.chosen,
            "contribution": self.contribution,
        }


_ROW_KEYS = {"name", "kind", "size", "trace", "errors", "allowed", "chosen", "contribution"}


@dataclass(frozen=True)
class Allocation:
    """A plan with its objective, its budgets and the table that explains it."""

    plan: BitPlan
    objective: float
    budgets: tuple[BudgetUse, ...]
    method: str
    table: tuple[Row, ...]

    def budget(self, name: str) -> BudgetUse:
        """Use of the budget called ``name``; ``KeyError`` lists those there are."""
        for use in self.budgets:
            if use.name == name:
                return use
        raise KeyError(
            f"allocation: no budget {name!r}; it has {', '.join(use.name for use in self.budgets) or 'none'}"
        )

    def rows(self) -> list[dict[str, Any]]:
        """The table as plain dictionaries, one column ``error_<width>`` for each width: ready for a data frame."""
        widths = sorted({bits for row in self.table for bits, _ in row.errors})
        return [
            {
                "name": row.name,
                "kind": row.kind,
                "size": row.size,
                "trace": row.trace,
                **{f"error_{bits}": dict(row.errors).get(bits) for bits in widths},
                "chosen": row.chosen,
                "contribution": row.contribution,
            }
            for row in self.table
        ]

    def text(self) -> str:
        """The table, the objective and the budgets as aligned text (errors at the allowed widths)."""
        widths = sorted({bits for row in self.table for bits in row.allowed if len(row.allowed) > 1})
        header = ["name", "kind", "size", "trace", *(f"err {bits}b" for bits in widths), "chosen", "contribution"]
        lines = [header]
        for row in self.table:
            errors = dict(row.errors)
            known = {bits: f"{errors[bits]:.3g}" for bits in row.allowed if bits in errors}
            lines.append(
                [
                    row.name,
                    row.kind,
                    "-" if row.size is None else str(row.size),
                    "-" if row.trace is None else f"{row.trace:.4g}",
                    *(known.get(bits, "-") for bits in widths),
                    str(row.chosen),
                    f"{row.contribution:.4g}",
                ]
            )
        columns = [max(len(line[i]) for line in lines) for i in range(len(header))]
        shown = [
            "  ".join(
                cell.ljust(width) if i < 2 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(line, columns, strict=True))
            ).rstrip()
            for line in lines
        ]
        shown.append(f"objective {self.objective:.6g} ({self.method})")
        shown += [
            f"{use.name}: {_shown(use.used)}" + ("" if use.limit is None else f" of {_shown(use.limit)}")
            for use in self.budgets
        ]
        return "\n".join(shown)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON form, version 1."""
        return {
            "version": ALLOCATION_VERSION,
            "plan": self.plan.to_dict(),
            "objective": self.objective,
            "method": self.method,
            "budgets": {use.name: {"used": use.used, "limit": use.limit} for use in self.budgets},
            "table": [row.to_dict() for row in self.table],
        }

    def to_json(self) -> str:
        """:meth:`to_dict` as indented JSON text with a final newline."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Allocation:
        """Read :meth:`to_dict`'s form back; ``ValueError`` on an unknown version or key."""
        exact_keys(data, {"version", "plan", "objective", "method", "budgets", "table"}, "allocation")
        version(data["version"], ALLOCATION_VERSION, "allocation", "Allocate again")
        budgets = []
        for name, use in data["budgets"].items():
            exact_keys(use, {"used", "limit"}, f"allocation, budget {name!r}")
            budgets.append(BudgetUse(name, use["used"], use["limit"]))
        table = []
        for i, row in enumerate(data["table"]):
            exact_keys(row, _ROW_KEYS, f"allocation, table row {i}")
            errors = tuple((bits, error) for bits, error in row["errors"])
            table.append(Row(**{**row, "errors": errors, "allowed": tuple(row["allowed"])}))
        return cls(BitPlan.from_dict(data["plan"]), data["objective"], tuple(budgets), data["method"], tuple(table))

    @classmethod
    def from_json(cls, text: str) -> Allocation:
        """Read :meth:`to_json`'s text back."""
        return cls.from_dict(json.loads(text))


def explain(problem: Problem, choice: Sequence[int], method: str, limits: Mapping[str, float]) -> Allocation:
    """The :class:`Allocation` of one choice of width indices; ``limits`` by budget, infinite when there is none."""
    plan = problem.plan(choice)
    rows: list[Row] = []
    inputs = [name for name in problem.activation_places if name not in problem.weight_places]
    rows += [_row(problem, choice, name, "activation") for name in inputs]
    for shape in problem.shapes:
        rows += [_row(problem, choice, shape.name, "weight"), _row(problem, choice, shape.name, "activation")]
    budgets = tuple(
        BudgetUse(name, problem.used(name, plan), None if math.isinf(limit) else float(limit))
        for name, limit in limits.items()
    )
    return Allocation(plan, problem.value(choice), budgets, method, tuple(rows))


def _row(problem: Problem, choice: Sequence[int], name: str, kind: str) -> Row:
    place = (problem.weight_places if kind == "weight" else problem.activation_places)[name]
    term: Term | None = (problem.terms.weights if kind == "weight" else problem.terms.activations).get(name)
    bits = problem.bits(place, choice)
    allowed = tuple(width + place.offset for width in problem.widths[place.slot])
    if term is None:
        return Row(name, kind, None, None, (), allowed, bits, 0.0)
    return Row(name, kind, term.size, term.trace, tuple(sorted(term.errors.items())), allowed, bits, term.cost(bits))


def _shown(cost: float) -> str:
    """A cost for people: whole above 1,000 (BOPs hold fractions of n log2 n), else six digits."""
    return f"{cost:,.0f}" if cost >= 1000 else f"{cost:.6g}"
