"""Shared adders of constant matrices: exact, never dearer than plain signed digits, the same each time."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hawq_flow.to_rtl import sharing
from hawq_flow.to_rtl.adders import AdderError, AdderGraph, graph_of, proved
from hawq_flow.to_rtl.csd import agreeing, csd, csd_count, minimal_forms, positive
from hawq_flow.to_rtl.da4ml_optimizer import MissingOptimizer, da4ml_adders, read_stages
from hawq_flow.to_rtl.families import family, limits_of, rounds
from hawq_flow.to_rtl.forms import Forms
from hawq_flow.to_rtl.patterns import Patterns, Weights
from hawq_flow.to_rtl.sharing import blocks, least_depth, plain, shared
from hawq_flow.to_rtl.trees import add_tree


def value(digits: np.ndarray) -> np.ndarray:
    return (digits.astype(np.int64) << np.arange(digits.shape[-1])).sum(axis=-1)


def plain_bits(matrix: np.ndarray, low: int, high: int) -> int:
    return plain(matrix).adder_bits(low, high)


def same(first: AdderGraph, second: AdderGraph) -> bool:
    return first.steps() == second.steps() and first.ends() == second.ends()


@st.composite
def matrices(draw: st.DrawFn, most: int = 5) -> np.ndarray:
    rows, columns = draw(st.integers(1, most)), draw(st.integers(1, most))
    bits = draw(st.sampled_from([1, 2, 4, 7, 16]))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    matrix = rng.integers(-(1 << bits) + 1, 1 << bits, (rows, columns))
    return matrix * (rng.random(matrix.shape) < draw(st.sampled_from([0.3, 1.0])))


# ------------------------------------------------------------------------------------------------------- signed digits


def test_all_small_integers_in_signed_digits() -> None:
    n = np.arange(-4096, 4097)
    for form in (csd, positive):
        digits = form(n)
        assert np.array_equal(value(digits), n)
        assert np.array_equal(np.count_nonzero(digits, axis=-1), csd_count(n))
    digits = csd(n)
    assert not (digits[:, 1:] * digits[:, :-1]).any()
    # Fewest: no sum of fewer powers of two, from all sums of up to two.
    two = {0} | {g << s for g in (1, -1) for s in range(14)}
    assert {int(v) for v in n[csd_count(n) <= 1]} == {v for v in two if abs(v) <= 4096}
    pairs = {a + b for a, b in itertools.product(two, two)}
    assert {int(v) for v in n[csd_count(n) <= 2]} == {v for v in pairs if abs(v) <= 4096}


def test_signed_digits_of_large_integers() -> None:
    n = np.array([(1 << 60) - 1, -(1 << 60) + 1, 0x0AAAAAAAAAAAAAAA])
    assert np.array_equal(value(csd(n)), n)
    assert csd_count(n).tolist() == [2, 2, 30]
    with pytest.raises(ValueError, match=r"csd: -1152921504606846976 is too large; expected magnitudes below 2\^60"):
        csd([-(1 << 60)])


def test_minimal_forms() -> None:
    assert set(minimal_forms(3, 2, 4)) == {(1, 1, 0, 0), (-1, 0, 1, 0)}
    for n in range(-60, 61):
        forms = minimal_forms(n, int(csd_count(n)), 7)
        assert len(set(forms)) == len(forms) >= 1
        assert all(sum(d << s for s, d in enumerate(form)) == n for form in forms)
        assert tuple(csd([n, 127])[0, :7].tolist()) in forms


@given(matrices())
@settings(max_examples=25)
def test_agreeing_digits_change_no_value(matrix: np.ndarray) -> None:
    start = positive(matrix)
    digits = agreeing(start)
    assert np.array_equal(value(digits), matrix)
    assert np.count_nonzero(digits) == np.count_nonzero(start)


def test_agreeing_finds_the_common_form() -> None:
    # 3a + b with 2 + 1 for 3 agrees with the columns 2a + b: one pattern more than with 4 - 1.
    matrix = np.array([[3, 2, 2, 2], [1, 1, 1, 1]])
    assert agreeing(csd(matrix))[0, 0].tolist() == [1, 1, 0]


# ------------------------------------------------------------------------------------------------------- whole results


def test_all_constants_of_ten_bits() -> None:
    nodes = 0
    for c in range(1, 1024, 2):
        graph = proved(shared([[c]], -8, 7, effort="low"), [[c]])
        assert graph.nodes <= csd_count(c) - 1
        nodes += graph.nodes
    assert nodes < 0.91 * (csd_count(np.arange(1, 1024, 2)) - 1).sum()
    for c in range(-255, 256):
        graph = shared([[c, 4 * c, -c]], -8, 7, effort="low")
        assert np.array_equal(graph.evaluate(np.arange(-8, 8)[:, None]), np.outer(range(-8, 8), [c, 4 * c, -c]))


def test_all_two_by_two_matrices_of_three_bits() -> None:
    x = np.array(list(itertools.product(range(-2, 2), range(-2, 2))))
    for entries in itertools.combinations_with_replacement(range(-4, 4), 4):
        # All, up to exchanges of rows and of columns and the transpose: three ways to place four sorted entries.
        for order in {tuple(entries[k] for k in places) for places in ((0, 1, 2, 3), (0, 1, 3, 2), (0, 3, 1, 2))}:
            weights = np.array(order).reshape(2, 2)
            graph = shared(weights, -2, 1, effort="low")
            assert np.array_equal(graph.evaluate(x), x @ weights)


@given(matrices(), st.sampled_from([(0, 15), (-8, 7), (-3, 100), (5, 5), (0, 0)]), st.data())
@settings(max_examples=30)
def test_exact_never_dearer_and_the_same_again(matrix: np.ndarray, box: tuple[int, int], data: st.DataObject) -> None:
    low, high = box
    graph = shared(matrix, low, high)
    assert np.array_equal(graph.matrix, matrix)
    x = np.random.default_rng(0).integers(low, high + 1, (20, len(matrix)))
    assert np.array_equal(graph.evaluate(x), x @ matrix)
    assert graph.adder_bits(low, high) <= plain_bits(matrix, low, high)
    assert same(graph, shared(np.asfortranarray(matrix), low, high))  # and again the same
    free = shared(matrix, low, high, effort="low", free_signs=True)
    assert np.array_equal(free.matrix, matrix)
    limit = least_depth(matrix) + data.draw(st.integers(0, 2))
    limited = shared(matrix, low, high, effort="low", depth_limit=limit)
    assert np.array_equal(limited.matrix, matrix)
    assert limited.latency <= limit


def test_plain_form() -> None:
    graph = plain([[7, 0, 5], [1, 0, -11]])
    assert graph.nodes == int((csd_count([7, 5]).sum() - 1) + csd_count(1) + csd_count(-11) - 1)
    assert graph.latency == least_depth([[7, 0, 5], [1, 0, -11]]) == 3
    assert graph.source[1] == -1


@pytest.mark.parametrize(
    ("matrix", "nodes"),
    [
        ([[0, 0], [0, 0]], 0),
        ([[4, -2, 1], [0, 0, 0]], 0),  # wires and signs
        ([[3], [6]], 2),  # 3 * (a + 2b)
        ([[5, -5, 20, 0]], 1),  # equal up to sign and shift
        ([[1, 2, -1], [1, 2, -1]], 1),
        ([[7, 6], [7, 7]], 3),  # the second is the first less a
        ([[45]], 2),  # 3 * 15
        ([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, -1, -1], [1, -1, 1, -1]], 6),
    ],
)
def test_known_sharing(matrix: list[list[int]], nodes: int) -> None:
    graph = shared(matrix, 0, 15)
    assert np.array_equal(graph.matrix, matrix)
    assert graph.nodes == nodes


def test_a_factor_for_each_channel() -> None:
    factors = np.random.default_rng(0).integers(-255, 256, 40)
    graph = shared(np.diag(factors), -(1 << 15), 1 << 15)
    assert np.array_equal(graph.matrix, np.diag(factors))
    assert graph.latency <= 3


def test_blocks_share_nothing() -> None:
    matrix = np.zeros((5, 5), dtype=np.int64)
    matrix[0, 3] = matrix[4, 3] = matrix[4, 1] = matrix[2, 0] = 1
    parts = [(rows.tolist(), columns.tolist()) for rows, columns in blocks(matrix)]
    assert parts == [([0, 4], [1, 3]), ([2], [0])]


def test_sharing_pays_on_a_layer() -> None:
    rng = np.random.default_rng(1)
    matrix = rng.integers(-31, 32, (16, 8))
    graph = shared(matrix, 0, 63)
    assert graph.adder_bits(0, 63) < 0.7 * plain_bits(matrix, 0, 63)
    assert graph.adder_bits(0, 63) <= shared(matrix, 0, 63, effort="low").adder_bits(0, 63)
    assert shared(matrix, 0, 63, effort="high").adder_bits(0, 63) <= graph.adder_bits(0, 63)
    shallow = shared(matrix, 0, 63, depth_limit=least_depth(matrix))
    assert graph.adder_bits(0, 63) < shallow.adder_bits(0, 63) < 0.8 * plain_bits(matrix, 0, 63)
    assert shallow.latency == least_depth(matrix)


def test_signs_of_outputs_cost_less_when_free() -> None:
    matrix = -np.random.default_rng(0).integers(0, 2, (8, 6))
    paid, free = shared(matrix, 0, 15), shared(matrix, 0, 15, free_signs=True)
    assert free.node_bits(0, 15).sum() < paid.adder_bits(0, 15)
    assert (free.sign == -1).all()


def test_constant_inputs_are_still_wires() -> None:
    matrix = np.array([[3, 5], [7, -9], [11, 13]])
    low, high = np.array([0, 4, 0]), np.array([0, 4, 15])
    graph = shared(matrix, low, high)
    assert np.array_equal(graph.matrix, matrix)
    assert graph.evaluate([[0, 4, 2]]).tolist() == [[50, -10]]


# ----------------------------------------------------------------------------------------------------------- the steps


@given(matrices(), st.integers(0, 5))
@settings(max_examples=30)
def test_patterns_keep_the_sums(matrix: np.ndarray, seed: int) -> None:
    forms = Forms(np.zeros(len(matrix), dtype=np.int64), np.full(len(matrix), 7))
    patterns = Patterns(forms, positive(matrix))
    patterns.take_all(Weights(noise=0.3), np.random.default_rng(seed))
    for j in range(matrix.shape[1]):
        total = sum(((g * forms.rows[v]) << s for v, s, g in patterns.terms(j)), np.zeros(len(matrix), dtype=np.int64))
        assert np.array_equal(total, matrix[:, j])
    # No pair of digits is left that occurs twice (pairs of one value may overlap, and then count once).
    seen: dict[tuple[int, ...], int] = {}
    for j in range(matrix.shape[1]):
        for (a, s, g), (b, t, h) in itertools.combinations(patterns.terms(j), 2):
            if a != b:
                seen[a, b, s - t, g * h] = seen.get((a, b, s - t, g * h), 0) + 1
    assert max(seen.values(), default=0) < 2


def test_overlapping_occurrences_of_one_value() -> None:
    # 0b10101 = 21: a + 4a occurs at places 0 and 2, sharing a digit, so that it is one occurrence.
    forms = Forms(np.array([0]), np.array([7]))
    patterns = Patterns(forms, csd(np.array([[21]])))
    patterns.take_all(Weights())
    assert forms.nodes == []
    # 0b1010101 = 85 has two: 5 * 17.
    assert shared([[85]], 0, 7).nodes == 2


@given(matrices(), st.sampled_from([1.0, 2.0, 3.0]))
@settings(max_examples=30)
def test_families_add_up(matrix: np.ndarray, penalty: float) -> None:
    matrix = matrix[:, matrix.any(axis=0)]
    if not matrix.size:
        return
    kin = family(matrix, penalty)
    built = np.zeros_like(matrix)
    for j in kin.order:
        parent = kin.parent[j]
        above = 0 if parent < 0 else kin.sign[j] * (built[:, parent] << kin.shift[j])
        built[:, j] = kin.difference[:, j] + above
    assert np.array_equal(built, matrix)
    count = csd_count(kin.difference).sum() + penalty * (kin.parent >= 0).sum()
    assert count <= csd_count(matrix).sum()
    limit = least_depth(matrix)
    limits = limits_of(family(matrix, penalty, limit), limit)
    assert max(limits) <= limit
    assert min(limits) >= 0


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4), st.sampled_from([1, -1])), min_size=1, max_size=9))
@settings(max_examples=60)
def test_trees(terms: list[tuple[int, int, int]]) -> None:
    low, high = np.array([0, -8, 3]), np.array([15, 7, 3])
    row = sum((np.eye(3, dtype=np.int64)[v] * (g << s) for v, s, g in terms), np.zeros(3, dtype=np.int64))
    bits = {}
    for free in (False, True):
        for limit in (None, int(np.ceil(np.log2(len(terms))))):
            forms = Forms(low, high)
            root = add_tree(forms, terms, limit, free)
            graph = proved(graph_of(3, forms.nodes, [root]), row[:, None])
            assert graph.nodes == len(terms) - 1
            assert limit is None or graph.latency <= limit
            bits[free, limit] = int(graph.node_bits(low, high).sum()), graph.negation_bits(low, high)
    assert bits[True, None][0] <= sum(bits[False, None])


def test_signs_of_a_tree_are_the_cheapest() -> None:
    # -a - b + 8c: the root is positive, and 8c - (a + b) pays all bits; (8c - a) - b and so on pay more.
    forms = Forms(np.zeros(3, dtype=np.int64), np.full(3, 7))
    root = add_tree(forms, [(0, 0, -1), (1, 0, -1), (2, 3, 1)], None, False)
    graph = graph_of(3, forms.nodes, [root])
    assert root[2] == 1
    assert graph.node_bits(0, 7).tolist() == [4, 7]


# ------------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (([1, 2], 0, 1), r"matrix of shape \(2,\) and type int64; expected integers of shape \(inputs, outputs\)"),
        ((np.zeros((0, 3), dtype=np.int64), 0, 1), r"matrix of shape \(0, 3\)"),
        (([[1.5]], 0, 1), r"matrix of shape \(1, 1\) and type float64"),
        (([[1 << 56]], 0, 1), r"an entry has the magnitude 72057594037927936; expected below 2\^56"),
        (([[1]], 2, 1), "input 0 has low 2 above high 1; exchange them"),
        (([[1]], [0, 0], 1), r"low has shape \(2,\) and type int64; expected \(1,\) integers"),
        (([[1, 1 << 30]], 0, 1 << 30), r"output 1 can reach a magnitude of 1.15e\+18; expected below 2\^56"),
    ],
)
def test_refused_matrices(arguments: tuple[Any, Any, Any], text: str) -> None:
    with pytest.raises(AdderError, match=text):
        shared(*arguments)


def test_refused_options() -> None:
    with pytest.raises(AdderError, match="effort 'huge'; expected one of low, normal, high"):
        shared([[1]], 0, 1, effort="huge")  # type: ignore[arg-type]
    for wrong in (-1, 1.0, True):
        with pytest.raises(AdderError, match=f"depth_limit {wrong}; expected an integer of 0 or more, or None"):
            shared([[1]], 0, 1, depth_limit=wrong)  # type: ignore[arg-type]
    text = "depth_limit 1: output 1 is a sum of 4 signed digits, which takes 2 adders in a row; expected 2 or more"
    with pytest.raises(AdderError, match=text):
        shared([[1, 5], [1, 5]], 0, 1, depth_limit=1)
    assert shared([[1, 5], [1, 5]], 0, 1, depth_limit=2).latency == 2
    assert shared([[4, -8]], 0, 1, depth_limit=0).nodes == 0
    assert shared([[3]], 0, 1, depth_limit=1000).nodes == 1


def test_a_limit_of_depth_holds_for_chains_that_would_be_longer() -> None:
    """Columns that are each the one before and a term: 2^60 and one are more than 2^60, in any arithmetic."""
    matrix = np.triu(np.ones((66, 66), dtype=np.int64))
    graph = shared(matrix, 0, 1, depth_limit=60, effort="low")
    assert (graph.latency, shared(matrix, 0, 1, effort="low").latency) == (60, 65)
    assert rounds(np.array([0, 1, 2, 3, 4, 5, (1 << 60) + 1])).tolist() == [0, 0, 1, 2, 2, 3, 61]


def test_a_wrong_result_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "_solved", lambda matrix, *rest: plain(np.abs(matrix)))
    with pytest.raises(AdderError, match=r"output 0 has 3 times input 1; the matrix has -3: the optimizer .* is wrong"):
        shared([[1], [-3]], 0, 1, effort="low")


# --------------------------------------------------------------------------------------------------------------- da4ml


STAGES: list[dict[str, Any]] = [
    {  # a and b, b read as 2b; b - a / 2 with the sign and the shift taken back at the end
        "inp_shifts": [0, 1],
        "ops": [(0, -1, -1, 0), (1, -1, -1, 0), (1, 0, 1, -1), (0, 0, 0, 1)],
        "out_idxs": [2, 3, -1],
        "out_shifts": [1, 0, 0],
        "out_negs": [True, False, False],
    },
    {  # first - second = (a - 4b) - 3a; second - first; the first; 0
        "inp_shifts": [0, 0, 0],
        "ops": [(0, -1, -1, 0), (1, -1, -1, 0), (2, -1, -1, 0), (0, 1, 1, 0), (1, 0, 1, 0), (0, 2, 0, 0)],
        "out_idxs": [3, 4, 5, 2],
        "out_shifts": [0, 1, 0, 0],
        "out_negs": [False, False, True, False],
    },
]
MATRIX = np.array([[-2, 4, -1, 0], [-4, 8, 4, 0]])


def test_stages_of_da4ml_are_read() -> None:
    graph = read_stages(STAGES, MATRIX)
    assert np.array_equal(graph.matrix, MATRIX)
    assert graph.nodes == 4


def test_stages_of_da4ml_that_are_refused() -> None:
    with pytest.raises(AdderError, match=r"output 0 has -2 times input 0; the matrix has 5: the optimizer .* is wrong"):
        read_stages(STAGES, MATRIX + 7 * np.array([[1, 0, 0, 0], [0, 0, 0, 0]]))
    other = [STAGES[0] | {"ops": [(0, -1, 5, 0)], "out_idxs": [0], "out_shifts": [0], "out_negs": [False]}]
    text = r"operation 0 of stage 0 has code 5; expected -1 \(copy\), 0 \(add\) or 1 \(subtract\)"
    with pytest.raises(AdderError, match=text):
        read_stages(other, [[1], [1]])
    half = [STAGES[0] | {"out_shifts": [0, 0, 0]}]
    with pytest.raises(AdderError, match="output 0 is a value shifted right by 1; expected an integer"):
        read_stages(half, np.ones((2, 3), dtype=np.int64))


def test_da4ml_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "da4ml", None)
    monkeypatch.setitem(sys.modules, "da4ml.cmvm", None)
    with pytest.raises(MissingOptimizer, match="needs the package da4ml, which is not installed: pip install da4ml"):
        da4ml_adders([[1]], 0, 1)


@pytest.mark.skipif(importlib.util.find_spec("da4ml") is None, reason="da4ml is not installed")
def test_da4ml_itself() -> None:
    matrix = np.asfortranarray(np.random.default_rng(0).integers(-31, 32, (12, 9)))
    graph = da4ml_adders(matrix, -8, 7)
    assert np.array_equal(graph.matrix, matrix)
    assert shared(matrix, -8, 7).adder_bits(-8, 7) <= graph.adder_bits(-8, 7)
    with pytest.raises(AdderError, match=r"da4ml takes entries as float32: 16777217 is above 2\^24"):
        da4ml_adders([[16777217]], 0, 1)
