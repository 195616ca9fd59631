"""Allocation: both solvers against enumeration, ties, budgets, tied groups, errors, and the explanation's stored "
"form."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hawq_flow.allocate import (
    Allocation,
    AsWeight,
    Choices,
    CostTable,
    InfeasibleError,
    NoChainError,
    Term,
    Terms,
    activation_error,
    activation_terms,
    allocate,
    evaluate,
    pareto_front,
    weight_error,
    weight_terms,
)
from hawq_flow.plan import BitPlan, LayerBits, LayerShape, bops, mean_weight_bits, weight_bits


def chain(dims: list[int]) -> list[LayerShape]:
    return [
        LayerShape(f"fc{i + 1}", n, m, "x" if i == 0 else f"fc{i}") for i, (n, m) in enumerate(itertools.pairwise(dims))
    ]


def falling(size: int, trace: float, rng: np.random.Generator) -> Term:
    return Term(size, trace, {bits: size * float(rng.uniform(0.5, 1.5)) * 4.0**-bits for bits in range(1, 25)})


def instance(dims: list[int], seed: int = 0) -> tuple[list[LayerShape], Terms]:
    rng = np.random.default_rng(seed)
    shapes = chain(dims)
    return shapes, Terms(
        {s.name: falling(s.weights, float(rng.uniform(0.1, 10)), rng) for s in shapes},
        {name: falling(8, float(rng.uniform(0.1, 1)), rng) for name in ["x", *(s.name for s in shapes)]},
    )


def used(name: str, plan: BitPlan, shapes: list[LayerShape], tables: Mapping[str, CostTable]) -> float:
    if name == "bops":
        return bops(plan, shapes)
    if name == "weight_bits":
        return weight_bits(plan, shapes)
    if name == "mean_bits":
        return mean_weight_bits(plan, shapes)
    return sum(tables[name][s.name][plan[s.name].weight, plan.source_bits(s.source)] for s in shapes)


def plans(shapes: list[LayerShape], choices: Choices) -> list[BitPlan]:
    """Every plan that the choices allow, lexicographically, by brute force over all tensors."""

    layers = [s.name for s in shapes]
    inputs = [n for n in choices.activations if n not in layers]

    def allowed(choice: Any) -> list[int]:
        return (
            list(range(1, 25))
            if isinstance(choice, AsWeight)
            else [choice]
            if isinstance(choice, int)
            else sorted(choice)
        )

    free = [("a", n) for n in inputs] + [key for n in layers for key in (("w", n), ("a", n))]
    free = [(k, n) for k, n in free if k == "w" or not isinstance(choices.activations[n], AsWeight)]
    found = []
    for widths in itertools.product(
        *(allowed((choices.weights if k == "w" else choices.activations)[n]) for k, n in free)
    ):
        value = dict(zip(free, widths, strict=True))
        for n, choice in choices.activations.items():
            if isinstance(choice, AsWeight):
                value["a", n] = value["w", choice.layer or n] + choice.offset
        if any(len({value["w", n] for n in group}) > 1 for group in choices.weight_groups):
            continue
        if any(len({value["a", n] for n in group}) > 1 for group in choices.activation_groups):
            continue
        found.append(
            BitPlan.of({n: value["a", n] for n in inputs}, {n: LayerBits(value["w", n], value["a", n]) for n in layers})
        )
    key = lambda p: [b for _, b in p.inputs] + [b for _, e in p.layers for b in (e.weight, e.activation)]  # noqa: E731
    return sorted(found, key=key)


def objective(plan: BitPlan, terms: Terms) -> float:
    return math.fsum(
        [t.cost(plan[n].weight) for n, t in terms.weights.items()]
        + [t.cost(plan.source_bits(n)) for n, t in terms.activations.items()]
    )


def best(
    candidates: list[BitPlan],
    shapes: list[LayerShape],
    terms: Terms,
    budgets: Mapping[str, float],
    tables: Mapping[str, CostTable],
) -> BitPlan | None:
    """The documented optimum: least objective, then budgets in order, then the first lexicographically."""
    left = [
        p for p in candidates if all(used(n, p, shapes, tables) <= limit * (1 + 1e-9) for n, limit in budgets.items())
    ]
    if not left:
        return None
    for measure in [lambda p: objective(p, terms), *((lambda p, n=n: used(n, p, shapes, tables)) for n in budgets)]:
        least = min(measure(p) for p in left)
        left = [p for p in left if measure(p) <= least + 1e-9 * abs(least)]
    return left[0]


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[LayerShape], Terms, Choices, dict[str, CostTable]]:
    """Chains of 1 to 3 layers; errors are small dyadic numbers, so ties are frequent and exact."""
    dims = draw(st.lists(st.integers(1, 5), min_size=2, max_size=4))
    shapes = chain(dims)
    layers = [s.name for s in shapes]
    widths = st.lists(st.integers(2, 7), min_size=1, max_size=3, unique=True)
    weights = {n: draw(widths) for n in layers}
    activations: dict[str, Any] = {}
    for n in ["x", *layers]:
        kind = draw(st.sampled_from(["free", "free", "fixed", "tied", "tied_other"]))
        activations[n] = (
            draw(widths)
            if kind == "free"
            else draw(st.integers(2, 8))
            if kind == "fixed"
            else AsWeight(
                draw(st.integers(0, 3)), draw(st.sampled_from(layers)) if kind == "tied_other" or n == "x" else None
            )
        )
    groups = []
    if len(layers) > 1 and draw(st.booleans()):
        group = draw(st.lists(st.sampled_from(layers), min_size=2, max_size=3, unique=True))
        common = draw(widths)
        weights |= dict.fromkeys(group, common)
        groups.append(group)
    plain = [n for n, choice in activations.items() if not isinstance(choice, AsWeight)]
    activation_groups = []
    if len(plain) > 1 and draw(st.booleans()):
        group = draw(st.lists(st.sampled_from(plain), min_size=2, max_size=2, unique=True))
        activations |= dict.fromkeys(group, draw(widths))
        activation_groups.append(group)
    values = st.integers(0, 8).map(float)
    term = st.builds(
        lambda t, e: Term(4, t, dict(zip(range(1, 25), e, strict=True))),
        values,
        st.lists(values, min_size=24, max_size=24),
    )
    terms = Terms({n: draw(term) for n in layers}, {n: draw(term) for n in ["x", *layers]})
    cost = st.integers(0, 50).map(float) if draw(st.booleans()) else st.floats(0, 50).map(lambda v: round(v, 3))
    costs = draw(st.lists(cost, min_size=60, max_size=60))
    table = {
        n: {(w, a): costs[(7 * i + 3 * w + a) % 60] + 1 for w in range(2, 8) for a in range(2, 12)}
        for i, n in enumerate(layers)
    }
    return shapes, terms, Choices(weights, activations, groups, activation_groups), {"lut": table}


@settings(max_examples=150, deadline=None)
@given(problems(), st.data())
def test_ilp_agrees_with_enumeration(problem: Any, data: st.DataObject) -> None:
    shapes, terms, choices, tables = problem
    candidates = plans(shapes, choices)
    budgets = {}
    for name in data.draw(
        st.lists(st.sampled_from(["bops", "weight_bits", "mean_bits", "lut"]), max_size=3, unique=True)
    ):
        values = sorted({used(name, p, shapes, tables) for p in candidates})
        budgets[name] = max(
            data.draw(st.sampled_from(values)) * data.draw(st.sampled_from([1.0, 1.0, 1.001, 0.7])), 1e-6
        )
    expected = best(candidates, shapes, terms, budgets, tables)
    if expected is None:
        with pytest.raises(InfeasibleError, match="smallest feasible value"):
            allocate(shapes, terms, choices, budgets, tables=tables)
        return
    found = allocate(shapes, terms, choices, budgets, tables=tables)
    assert found.objective == pytest.approx(objective(expected, terms), rel=1e-9, abs=0)
    assert found.plan == expected
    assert all(use.used == pytest.approx(used(use.name, expected, shapes, tables), rel=1e-12) for use in found.budgets)


@settings(max_examples=150, deadline=None)
@given(problems(), st.sampled_from(["bops", "weight_bits", "mean_bits", "lut"]))
def test_pareto_agrees_with_enumeration(problem: Any, budget: str) -> None:
    """Every point of the front, and nothing but the front: for every value the budget can take."""
    shapes, terms, choices, tables = problem
    candidates = plans(shapes, choices)
    front = pareto_front(shapes, terms, choices, budget, tables=tables)
    values = sorted({used(budget, p, shapes, tables) for p in candidates})
    expected = [best(candidates, shapes, terms, {budget: value}, tables) for value in values]
    assert list(dict.fromkeys(expected)) == [front.plan(i) for i in range(len(front))]
    assert (np.diff(front.costs) > 0).all()
    assert (np.diff(front.objectives) < 0).all()
    for value, plan in zip(values, expected, strict=True):
        assert front.best(value).plan == plan
    for point, cost in zip(front, front.costs, strict=True):
        assert point.budgets[0].used == pytest.approx(cost, rel=1e-12)
        assert point.objective == objective(point.plan, terms)


@pytest.mark.parametrize("activations", [range(2, 9), AsWeight(3), 8])
def test_pareto_and_ilp_agree_on_longer_chains(activations: Any) -> None:
    """Beyond enumeration, with the eight decades of widths 2..16."""
    shapes, terms = instance([16, 64, 32, 32, 5], seed=3)
    choices = Choices.uniform(shapes, range(2, 17), activations)
    front = pareto_front(shapes, terms, choices)
    for i in np.linspace(0, len(front) - 1, 6).astype(int):
        found = allocate(shapes, terms, choices, {"bops": float(front.costs[i])})
        assert found.plan == front.plan(int(i))
        assert found.objective == pytest.approx(front.objectives[i], rel=1e-12)


def test_budget_is_of_the_input_width() -> None:
    """The jet tagger's published figures: W6 with 9-bit activations, the first layer's input included."""
    shapes, terms = instance([16, 64, 32, 32, 5])
    found = allocate(shapes, terms, Choices.uniform(shapes, 6, 9, input_bits=9), {"bops": 400_000})
    assert round(found.budget("bops").used) == 315_968


def test_ties_go_to_the_smaller_budget_then_the_first_plan() -> None:
    shapes = chain([4, 4, 4])
    flat = Term(4, 0.0, dict.fromkeys(range(2, 9), 1.0))
    same = Term(4, 1.0, {2: 2.0, 3: 1.0})
    dead = allocate(
        shapes, Terms({"fc1": flat, "fc2": same}), Choices.uniform(shapes, (2, 3), 8), {"weight_bits": 1000}
    )
    assert [dead.plan[n].weight for n in ("fc1", "fc2")] == [2, 3]
    for method in ("ilp", "pareto"):  # one extra bit for either of two equal layers
        symmetric = allocate(
            shapes,
            Terms({"fc1": same, "fc2": same}),
            Choices.uniform(shapes, (2, 3), 8),
            {"weight_bits": 80},
            method=method,
        )
        assert [symmetric.plan[n].weight for n in ("fc1", "fc2")] == [2, 3]


def test_fan_out_couples_and_long_ties_are_refused_by_the_front_only() -> None:
    shapes, terms = instance([8] * 8)
    widths = tuple(range(2, 9))
    choices = Choices.uniform(shapes, widths, widths)
    skip = [*shapes[:-1], LayerShape("fc7", 8, 8, "fc1")]  # fc6's output is not read, fc1's twice
    front = pareto_front(skip, terms, choices)
    assert allocate(skip, terms, choices, {"bops": front.costs[20]}).plan == front.plan(20)
    # A ladder of ties: each layer's input is as wide as the weights four layers on, so five weights stay open.
    tied = Choices(
        dict.fromkeys(choices.weights, widths),
        {"x": 8, **{f"fc{i}": AsWeight(0, f"fc{(i + 4) % 7 + 1}") for i in range(1, 8)}},
    )
    with pytest.raises(
        NoChainError, match=r"joint widths of weights of .* would have to be carried, more than 1024.*Use method='ilp'"
    ):
        pareto_front(shapes, terms, tied)
    assert allocate(shapes, terms, tied, {"mean_bits": 4}).budget("mean_bits").used <= 4


def test_groups_and_fixed_layers() -> None:
    shapes, terms = instance([16, 64, 32, 32, 5])
    choices = Choices(
        {s.name: range(2, 9) for s in shapes},
        {"x": 16, "fc1": 8, "fc2": range(3, 9), "fc3": range(3, 9), "fc4": 16},
        weight_groups=[["fc1", "fc3"]],
        activation_groups=[["fc2", "fc3"]],
    ).fix(weights={"fc2": 5})
    front = pareto_front(shapes, terms, choices)
    for limit in (210_000, 260_000):
        found = allocate(shapes, terms, choices, {"bops": limit})
        assert found.plan == front.best(limit).plan
        assert found.plan["fc1"].weight == found.plan["fc3"].weight
        assert found.plan["fc2"].weight == 5
        assert found.plan["fc2"].activation == found.plan["fc3"].activation


def test_infeasible_budgets_state_the_smallest_feasible_value() -> None:
    shapes, terms = instance([16, 64, 32, 32, 5])
    choices = Choices.uniform(shapes, range(2, 9), 6)
    least = bops(BitPlan.homogeneous(shapes, 2, 6), shapes)
    text = rf"bops <= 1000 is exceeded: the smallest feasible value is {least:.12g}\. Raise"
    for method in ("ilp", "pareto"):
        with pytest.raises(InfeasibleError, match=text):
            allocate(shapes, terms, choices, {"bops": 1000}, method=method)
    assert allocate(shapes, terms, choices, {"bops": least}).budget("bops").used == least
    # Each budget is feasible alone; together they are not, and each is stated with the other kept.
    tables = {"lut": {s.name: {(w, a): 10.0 - w for w in range(2, 9) for a in (6, 16)} for s in shapes}}
    kept = "the smallest feasible value with the other budgets kept is"
    with pytest.raises(
        InfeasibleError, match=rf"mean_bits <= 3 is .*: {kept} 5\.59\d+; lut <= 13 is .*: {kept} 23\. Raise"
    ):
        allocate(shapes, terms, choices, {"mean_bits": 3, "lut": 13}, tables=tables)


def test_sparse_bops_and_no_budget() -> None:
    shapes, terms = instance([4, 4, 4])
    choices = Choices.uniform(shapes, range(2, 6), range(2, 6))
    zeros = {"fc1": 0.37, "fc2": 0.11}
    front = pareto_front(shapes, terms, choices, zero_fraction=zeros)
    middle = float(front.costs[len(front) // 2])
    found = allocate(shapes, terms, choices, {"bops": middle}, zero_fraction=zeros)
    assert found.plan == front.best(middle).plan
    assert found.budget("bops").used == pytest.approx(bops(found.plan, shapes, zeros), rel=1e-12)
    assert allocate(shapes, terms, choices, {}).plan["fc1"] == LayerBits(5, 5)


def test_the_result_explains_itself_and_is_stored() -> None:
    shapes, terms = instance([16, 64, 5])
    found = allocate(shapes, terms, Choices.uniform(shapes, range(2, 9), range(2, 9)), {"bops": 80_000, "mean_bits": 6})
    assert found.objective == pytest.approx(sum(row.contribution for row in found.table), rel=1e-12)
    assert [(row.name, row.kind) for row in found.table] == [
        ("x", "activation"),
        ("fc1", "weight"),
        ("fc1", "activation"),
        ("fc2", "weight"),
        ("fc2", "activation"),
    ]
    row = found.rows()[1]
    assert (row["error_4"], row["trace"]) == (terms.weights["fc1"].errors[4], terms.weights["fc1"].trace)
    assert row["size"] == 1024
    assert row["chosen"] == found.plan["fc1"].weight
    for text in ("bops: ", "of 80,000", "err 4b"):
        assert text in found.text()
    assert Allocation.from_json(found.to_json()) == found
    data = json.loads(found.to_json())
    with pytest.raises(ValueError, match="version 2; this hawq_flow reads version 1"):
        Allocation.from_dict({**data, "version": 2})
    with pytest.raises(ValueError, match="unknown keys bonus, missing keys none"):
        Allocation.from_dict({**data, "bonus": 1})
    same = evaluate(shapes, terms, found.plan, ["bops", "mean_bits"])
    assert same.objective == found.objective
    assert same.budget("bops").used == found.budget("bops").used


def test_bad_problems_say_what_is_wrong() -> None:
    shapes, terms = instance([4, 4, 4])
    choices = Choices.uniform(shapes, (2, 3), (2, 3))

    def fails(
        text: str,
        terms: Terms = terms,
        choices: Choices = choices,
        budgets: Mapping[str, float] = {"bops": 1e6},
        **options: Any,
    ) -> None:
        with pytest.raises(ValueError, match=text):
            allocate(shapes, terms, choices, budgets, **options)

    fails("unknown budget 'lut'; expected one of bops, weight_bits, mean_bits", budgets={"lut": 3})
    fails("limit nan; expected a positive number", budgets={"bops": math.nan})
    fails(
        "table 'lut', layer 'fc1': cost None for a weight of 2 and an input of 16 bits",
        budgets={"lut": 3},
        tables={"lut": {}},
    )
    fails("tables named bops, which are built in", tables={"bops": {}})
    fails("terms of weights: missing fc2; unknown none", terms=Terms({"fc1": terms.weights["fc1"]}))
    fails("activation 'fc1' may choose among 2 widths but has no term", terms=Terms(terms.weights))
    fails(
        "weights of 'fc1': no quantization error for 3 bits",
        terms=Terms({**terms.weights, "fc1": Term(16, 1.0, {2: 1.0})}),
    )
    fails("widths of weights .*missing fc2; unknown fc9", choices=Choices({"fc1": 2, "fc9": 2}, choices.activations))
    fails("weights of 'fc1': width 0; expected integers from 1 to 24", choices=choices.fix(weights={"fc1": 0}))
    fails(
        "activation 'fc1', tied to the weights of 'fc1' \\+23: width 25",
        choices=Choices(choices.weights, {**choices.activations, "fc1": AsWeight(23)}),
    )
    fails(
        "tied to the weights of 'fc9', which is no layer",
        choices=Choices(choices.weights, {**choices.activations, "x": AsWeight(0, "fc9")}),
    )
    fails("have no width in common", choices=Choices({"fc1": 2, "fc2": 3}, choices.activations, [["fc1", "fc2"]]))
    fails("weight group names 'fc9'", choices=Choices(choices.weights, choices.activations, [["fc1", "fc9"]]))
    fails(
        "method 'pareto' with budgets bops, mean_bits; expected exactly one",
        budgets={"bops": 1e6, "mean_bits": 3},
        method="pareto",
    )
    fails("method 'greedy'; expected 'ilp' or 'pareto'", method="greedy")
    with pytest.raises(ValueError, match=r"trace -1\.0; expected finite and >= 0"):
        Term(1, -1.0, {})


def test_weight_error_is_of_the_training_quantizer() -> None:
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(6, 10))
    for bits in (2, 4, 8, 16):
        top = 2 ** (bits - 1) - 1
        scale = np.abs(weight).max(axis=1, keepdims=True) / top
        direct = ((np.clip(np.rint(weight / scale), -top, top) * scale - weight) ** 2).sum()
        assert weight_error(weight, bits) == pytest.approx(direct, rel=1e-12)
        assert weight_error(weight, bits, scaling="mse") <= weight_error(weight, bits)
        assert weight_error(weight, bits) <= weight_error(weight, bits, per="tensor") * 1.5
    fine = min(
        ((np.clip(np.rint(weight[0] / s), -1, 1) * s - weight[0]) ** 2).sum() for s in np.linspace(1e-3, 3, 30_000)
    )
    assert weight_error(weight[:1], 2, scaling="mse") == pytest.approx(fine, rel=1e-4)
    assert weight_error(np.zeros((2, 3)), 4) == 0.0
    with pytest.raises(ValueError, match="1 bits; expected 2 to 24"):
        weight_error(weight, 1)
    with pytest.raises(ValueError, match="1 of 60 values are NaN"):
        weight_error(np.where(weight == weight.max(), np.nan, weight), 4)
    with pytest.raises(ValueError, match="per='row'"):
        weight_error(weight, 4, per="row")


def test_activation_error() -> None:
    rng = np.random.default_rng(0)
    values = np.maximum(rng.normal(size=(9000, 5)), 0)
    scale = values.max() / 15
    direct = ((np.rint(values / scale) * scale - values) ** 2).sum(axis=1).mean()
    assert activation_error(values, 4, signed=False) == pytest.approx(direct, rel=1e-12)
    signed = rng.normal(size=(50, 2, 3))
    scale = np.abs(signed).max() / 7
    assert activation_error(signed, 4, signed=True) == pytest.approx(
        ((np.rint(signed / scale) * scale - signed) ** 2).sum() / 50, rel=1e-12
    )
    clipped = ((np.clip(np.rint(values * 15), 0, 15) / 15 - values) ** 2).sum(axis=1).mean()
    assert activation_error(values, 4, signed=False, maximum=1.0) == pytest.approx(clipped, rel=1e-12)
    assert activation_error(np.zeros((3, 2)), 4, signed=False) == 0.0
    with pytest.raises(ValueError, match="of an unsigned activation; pass signed=True"):
        activation_error(signed, 4, signed=False)
    with pytest.raises(ValueError, match="maximum -1; expected positive"):
        activation_error(values, 4, signed=False, maximum=-1)


def test_terms_from_tensors() -> None:
    rng = np.random.default_rng(0)
    weight, values = rng.normal(size=(3, 4)), np.maximum(rng.normal(size=(20, 3)), 0)
    (term,) = weight_terms({"fc1": weight}, {"fc1": 2.5}, range(2, 5)).values()
    assert (term.size, term.errors[3]) == (12, weight_error(weight, 3))
    assert term.cost(3) == 2.5 / 12 * term.errors[3]
    (term,) = activation_terms({"fc1": values}, {"fc1": 2.5}, range(1, 5), maxima={"fc1": 1.5}).values()
    assert (term.size, term.errors[1]) == (3, activation_error(values, 1, False, maximum=1.5))
    (term,) = activation_terms({"x": -values}, {"x": 2.5}, range(1, 5)).values()
    assert sorted(term.errors) == [2, 3, 4]
