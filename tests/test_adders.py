"""Graphs of adders: what they compute, their exact ranges and costs, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hawq_flow.to_rtl.adders import AdderError, AdderGraph, Node, Term, graph_of, proved, widths


def small() -> AdderGraph:
    """y0 = 3a - 4b, y1 = -6a, y2 = 0, from 3a = a + 2a and one difference."""
    return graph_of(2, [(0, 0, 0, 1, False), (2, 1, 0, 2, True)], [(3, 0, 1), (2, 1, -1), (-1, 0, 1)])


@st.composite
def graphs(draw: st.DrawFn) -> AdderGraph:
    inputs = draw(st.integers(1, 4))
    nodes: list[Node] = []
    for k in range(draw(st.integers(0, 8))):
        a, b = (draw(st.integers(0, inputs + k - 1)) for _ in range(2))
        s, t = (draw(st.integers(0, 3)) for _ in range(2))
        nodes.append((a, b, s, t, draw(st.booleans())))
    ends: list[Term] = [
        (draw(st.integers(-1, inputs + len(nodes) - 1)), draw(st.integers(0, 3)), draw(st.sampled_from([1, -1])))
        for _ in range(draw(st.integers(1, 4)))
    ]
    return graph_of(inputs, nodes, ends)


@st.composite
def boxes(draw: st.DrawFn, inputs: int) -> tuple[np.ndarray, np.ndarray]:
    ends = [sorted(draw(st.tuples(st.integers(-9, 9), st.integers(-9, 9)))) for _ in range(inputs)]
    return np.array([low for low, _ in ends]), np.array([high for _, high in ends])


def corners(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    return np.array(np.meshgrid(*zip(low, high, strict=True))).reshape(len(low), -1).T


def test_small_graph() -> None:
    graph = small()
    assert (graph.nodes, graph.values, graph.outputs, graph.latency) == (2, 4, 3, 2)
    assert graph.coefficients.tolist() == [[1, 0], [0, 1], [3, 0], [3, -4]]
    assert graph.matrix.tolist() == [[3, -6, 0], [-4, 0, 0]]
    assert graph.depth.tolist() == [0, 0, 1, 2]
    assert graph.evaluate([[1, 2], [5, -1]]).tolist() == [[-5, -6, 0], [19, -30, 0]]
    low, high = graph.intervals([0, -2], [7, 1])
    assert low.tolist() == [0, -2, 0, -4]
    assert high.tolist() == [7, 1, 21, 29]
    assert [bound.tolist() for bound in graph.output_intervals([0, -2], [7, 1])] == [[-4, -42, 0], [29, 0, 0]]
    assert graph.bits([0, -2], [7, 1]).tolist() == [3, 2, 5, 6]
    # a + 2a: bits 1 to 4; the difference from 4b: bits 2 to 5; y1 negates the five bits of 3a.
    assert graph.node_bits([0, -2], [7, 1]).tolist() == [4, 4]
    assert graph.negation_bits([0, -2], [7, 1]) == 5
    assert graph.adder_bits([0, -2], [7, 1]) == 13
    assert graph.evaluate(np.zeros((0, 2), dtype=np.int64)).shape == (0, 3)


@pytest.mark.parametrize(
    ("node", "low", "high", "bits"),
    [
        ((0, 1, 0, 0, False), [0, 0], [15, 15], 5),
        ((0, 1, 0, 3, False), [0, 0], [15, 15], 5),  # of 8 bits the lowest three are a's
        ((0, 1, 0, 4, False), [0, 0], [15, 15], 0),  # side by side
        ((0, 1, 4, 0, False), [0, 0], [15, 15], 0),
        ((0, 1, 0, 4, False), [-8, 0], [7, 15], 5),  # a's sign reaches into b: 9 bits from bit 4
        ((0, 1, 0, 4, True), [0, 0], [15, 15], 5),  # a - 16b: b is negated
        ((0, 1, 4, 0, True), [0, 0], [15, 15], 9),  # 16a - b: every bit
        ((0, 1, 0, 0, False), [0, 0], [15, 0], 0),  # a + 0
        ((0, 1, 0, 0, True), [0, 0], [15, 0], 0),  # a - 0
        ((0, 1, 0, 0, False), [0, 0], [0, 15], 0),  # 0 + b
        ((0, 1, 0, 0, True), [0, 0], [0, 15], 5),  # 0 - b
        ((0, 0, 2, 0, True), [0, 0], [15, 15], 6),  # 4a - a = 3a, whose range begins at 0
        ((0, 1, 0, 0, False), [3, 9], [3, 9], 0),  # 12
    ],
)
def test_cost_of_one_adder(node: Node, low: list[int], high: list[int], bits: int) -> None:
    assert graph_of(2, [node], [(2, 0, 1)]).node_bits(low, high).tolist() == [bits]


def test_zeros_below_a_sum_are_not_paid_for_again() -> None:
    # 4a + 4b ends in two zeros, under which c is wires: of 8 bits the upper six.
    graph = graph_of(3, [(0, 1, 2, 2, False), (3, 2, 0, 0, False)], [(4, 0, 1)])
    assert graph.node_bits(0, 15).tolist() == [5, 6]


@given(st.data())
@settings(max_examples=60)
def test_ranges_are_exact_and_values_right(data: st.DataObject) -> None:
    graph = data.draw(graphs())
    low, high = data.draw(boxes(graph.inputs))
    x = corners(low, high)
    values = x @ graph.coefficients.T
    for found, exact in zip(graph.intervals(low, high), (values.min(axis=0), values.max(axis=0)), strict=True):
        assert np.array_equal(found, exact)
    assert np.array_equal(graph.evaluate(x), x @ graph.matrix)
    bits = graph.bits(low, high)
    assert ((values >= -(1 << bits)) & (values < 1 << bits)).all()
    assert (graph.node_bits(low, high) <= bits[graph.inputs :]).all()


@given(graphs())
@settings(max_examples=40)
def test_without_dead(graph: AdderGraph) -> None:
    lean = graph.without_dead()
    assert proved(lean, graph.matrix) is lean
    assert set(range(lean.inputs, lean.values)) <= {*lean.source.tolist(), *lean.left.tolist(), *lean.right.tolist()}
    assert lean.without_dead().nodes == lean.nodes


def test_widths_of_large_ranges() -> None:
    ends = [(0, (1 << k) - 1, k) for k in range(62)] + [(-(1 << k), (1 << k) - 1, k + 1) for k in range(62)]
    ends += [(0, 1 << k, k + 1) for k in range(62)] + [(-(1 << k) - 1, 0, k + 2) for k in range(61)]
    low, high, bits = np.array(ends).T
    assert np.array_equal(widths(low, high), bits)


def broken(**changes: Any) -> AdderGraph:
    fields: dict[str, Any] = {
        "inputs": 2,
        "left": [0],
        "right": [1],
        "left_shift": [0],
        "right_shift": [1],
        "negative": [True],
        "source": [2, -1],
        "shift": [0, 0],
        "sign": [1, 1],
    }
    return AdderGraph(**(fields | changes))


def test_arrays_are_read_only() -> None:
    with pytest.raises(ValueError, match="read-only"):
        broken().left[0] = 1


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"inputs": 0}, "inputs 0; expected an integer of 1 or more"),
        ({"inputs": True}, "inputs True; expected an integer of 1 or more"),
        ({"left": [[0]]}, r"left has shape \(1, 1\) and type int64; expected one axis of int64"),
        ({"left": [0.5]}, r"left has shape \(1,\) and type float64; expected one axis of int64"),
        ({"negative": [2]}, r"negative has shape \(1,\) and type int64; expected one axis of bool"),
        ({"right": [1, 1]}, "right has 2 entries; expected 1, as left has"),
        ({"sign": [1]}, "sign has 1 entries; expected 2, as source has"),
        ({"left": [2]}, r"left\[0\] is 2; expected 0 to 1, a value before the node"),
        ({"right": [-1]}, r"right\[0\] is -1; expected 0 to 1, a value before the node"),
        ({"source": [2, 3]}, r"source\[1\] is 3; expected -1 to 2, a value of the graph, or -1 for the output 0"),
        ({"right_shift": [63]}, r"right_shift\[0\] is 63; expected 0 to 62, a left shift in int64"),
        ({"shift": [0, -1]}, r"shift\[1\] is -1; expected 0 to 62, a left shift in int64"),
        ({"sign": [1, 0]}, r"sign\[1\] is 0; expected 1 or -1"),
    ],
)
def test_refused_graphs(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(AdderError, match=text):
        broken(**changes)


def test_refused_calls() -> None:
    graph = broken()
    with pytest.raises(AdderError, match=r"x has shape \(2,\) and type int64; expected \(n, 2\) integers"):
        graph.evaluate([1, 2])
    with pytest.raises(AdderError, match=r"x has shape \(1, 2\) and type float64; expected \(n, 2\) integers"):
        graph.evaluate([[1.0, 2.0]])
    with pytest.raises(AdderError, match=r"value 2 can reach a magnitude of .*; expected below 2\^62"):
        graph.evaluate([[1 << 61, 1 << 61]])
    with pytest.raises(
        AdderError, match=r"low has shape \(3,\) and type int64; expected \(2,\) integers, or one for all"
    ):
        graph.intervals([0, 0, 0], 1)
    with pytest.raises(AdderError, match=r"high has shape .* and type float64"):
        graph.intervals(0, 1.5)
    with pytest.raises(AdderError, match="input 1 has low 3 above high 2; exchange them"):
        graph.bits([0, 3], [2, 2])
    with pytest.raises(AdderError, match=r"output 0 can reach a magnitude of .*; expected below 2\^62"):
        broken(shift=[50, 0]).output_intervals(0, 1 << 20)


def test_refused_coefficients() -> None:
    doubling: list[Node] = [(k, k, 31, 0, False) for k in range(2)]
    with pytest.raises(AdderError, match=r"coefficients of node 1 can reach \d+; expected below 2\^62"):
        _ = graph_of(1, doubling, [(2, 0, 1)]).coefficients
    with pytest.raises(AdderError, match=r"coefficients of output 0 reach \d+; expected below 2\^62"):
        _ = graph_of(1, doubling[:1], [(1, 31, 1)]).matrix


def test_proof_refuses_another_matrix() -> None:
    graph = small()
    matrix = graph.matrix.copy()
    assert proved(graph, matrix) is graph
    matrix[1, 2] = 7
    with pytest.raises(AdderError, match=r"output 2 has 0 times input 1; the matrix has 7: the optimizer .* is wrong"):
        proved(graph, matrix)
    with pytest.raises(
        AdderError, match=r"2 inputs and 3 outputs for a matrix of shape \(3, 2\); expected shape \(2, 3\)"
    ):
        proved(graph, matrix.T)
