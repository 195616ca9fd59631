"""What imports write for FINN: rescales of rescales, as two nodes, or in the thresholds of the last of them."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from test_importing import Graph
from test_to_finn import assert_legal_and_equal, rescale

from hawq_flow import from_onnx, interpret, to_finn
from hawq_flow.network import Dense, InputSpec, IntegerNetwork, OutputSpec, Requantize
from hawq_flow.numeric import IntType, Rounding
from hawq_flow.to_qonnx import NotExact


def forms(model: onnx.ModelProto) -> dict[str, str]:
    said = {entry.key: entry.value for entry in model.metadata_props}["hawq_flow.finn"]
    return dict(pair.split("=") for pair in said.split())  # type: ignore[misc]


def every_input(bits: int, width: int) -> Any:
    ends = np.arange(-(1 << bits - 1), 1 << bits - 1)
    return np.array(list(itertools.product(ends, repeat=width)))


def wide_mlp() -> onnx.ModelProto:
    """2-24-3: biases finer than the sums, which have 22 bits, as Brevitas writes it."""
    rng = np.random.default_rng(5)
    g = Graph()
    x = g.quant("x", "q0", 0.0625, 6)
    w1 = g.quant(g.constant("w1", rng.normal(0, 9000, (2, 24))), "qw1", rng.uniform(0.2, 0.6, (1, 24)), 17, narrow=1)
    g.node("Add", [g.node("MatMul", [x, w1], "m1"), g.constant("b1", rng.normal(0, 900, 24))], "a1")
    g.quant(g.node("Relu", ["a1"], "r1"), "q1", 731.1, 5, signed=0)
    w2 = g.quant(g.constant("w2", rng.normal(0, 1, (24, 3))), "qw2", 0.117, 3, narrow=1)
    g.node("MatMul", ["q1", w2], "out")
    return g.model({"x": ["n", 2]}, "out", ["n", 3])  # type: ignore[list-item]


def test_an_import_with_wide_sums_is_exact_on_every_input() -> None:
    network = from_onnx.read(wide_mlp()).network
    bias = network.op("q1_bias")
    assert isinstance(bias, Requantize)
    assert network.values["m1"].magnitude.bit_length() in range(17, 25)
    assert bias.type.max_bits > 25  # more than float32 adds exactly
    model = assert_legal_and_equal(network, every_input(6, 2))
    assert forms(model) == {"q1_bias": "absorbed", "q1": "thresholds"}
    assert [node.op_type for node in model.graph.node] == ["Quant", "MatMul", "MultiThreshold", "Quant", "MatMul"]
    done = to_finn.execute(model, network, every_input(6, 2)[::7])
    assert set(done.values) == {"m1", "q1", "out"}
    assert len(np.unique(done.values["q1"])) > 20
    with pytest.raises(
        NotExact, match=r"q1: reads q1_bias, of type int\d+, which is no node. activations='auto' writes"
    ):
        to_finn.export(network, activations="quant")


def chain(*steps: Requantize) -> IntegerNetwork:
    fc = Dense("fc", "x", np.array([[700, -2001], [333, 1200]]), np.array([5, -9]))
    return IntegerNetwork((InputSpec("x", (2,), IntType(5, True)),), (fc, *steps), (OutputSpec(steps[-1].name),))


@pytest.mark.parametrize("rounding", Rounding)
def test_any_rising_chain_is_one_row_of_thresholds(rounding: Rounding) -> None:
    """Factors, roundings, clipping and widths of channels on the way, and three steps."""
    network = chain(
        Requantize("a", "fc", np.array([1 << 8, 200]), np.array(1), np.array(-77), IntType((24, 22), True), rounding),
        Requantize("b", "a", np.array([3, 5]), np.array(14), np.array(4), IntType(13, True, True), rounding),
        rescale("c", "b", 5, 10, IntType(4, True), rounding, offset=1),
    )
    model = assert_legal_and_equal(network, every_input(5, 2))
    assert forms(model) == {"a": "absorbed", "b": "absorbed", "c": "thresholds"}
    thresholds = next(t for t in model.graph.initializer if t.name == "c/thresholds")
    assert np.unique(numpy_helper.to_array(thresholds)).size > 10


def test_one_absorbed_rescale_may_have_several_readers() -> None:
    steps = (
        rescale("a", "fc", 1 << 12, 0, IntType(30, True), offset=-77),
        rescale("b", "a", 3, 22, IntType(4, True), Rounding.FLOOR),
        rescale("c", "a", 1, 20, IntType(3, False), Rounding.HALF_UP),
    )
    network = dataclasses.replace(chain(*steps), outputs=(OutputSpec("b"), OutputSpec("c")))
    model = assert_legal_and_equal(network, every_input(5, 2))
    assert forms(model) == {"a": "absorbed", "b": "thresholds", "c": "thresholds"}


def test_no_product_overflows_beyond_the_interval() -> None:
    """A sum that is 0 always: its neighbours, which no data reaches, would leave int64."""
    zero = Dense("fc", "x", np.zeros((1, 1), np.int64), np.array([0]))
    steps = (rescale("a", "fc", 1 << 40, 0, IntType(40, True)), rescale("b", "a", 1 << 40, 1, IntType(2, True)))
    network = IntegerNetwork((InputSpec("x", (1,), IntType(2, True)),), (zero, *steps), (OutputSpec("b"),))
    assert_legal_and_equal(network, np.arange(-2, 2)[:, None])


def test_what_cannot_be_absorbed_is_refused_by_name() -> None:
    last = rescale("b", "a", 3, 22, IntType(4, True))
    falling = chain(rescale("a", "fc", -(1 << 12), 0, IntType(30, True)), last)
    with pytest.raises(NotExact, match="a: type int30; FINN's thresholds have at most 8 bits"):
        to_finn.export(falling)
    wide = chain(rescale("a", "fc", 1 << 12, 0, IntType(30, True)), last)
    read = dataclasses.replace(wide, outputs=(OutputSpec("a"), OutputSpec("b")))
    with pytest.raises(NotExact, match="a: type int30; FINN's thresholds have at most 8 bits"):
        to_finn.export(read)


@pytest.mark.parametrize("deep", [1, 2])
def test_an_identity_before_thresholds_is_no_node(deep: int) -> None:
    """Of an input, whose own declaration is taken out as well."""
    u4 = IntType(4, False)
    same = [rescale(f"q{i}", f"q{i - 1}" if i else "x", 1, 0, u4) for i in range(deep)]
    last = rescale("r", same[-1].name, 3, 1, u4, offset=1)
    network = IntegerNetwork((InputSpec("x", (4,), u4),), (*same, last), (OutputSpec("r"),))
    model = assert_legal_and_equal(network, np.repeat(np.arange(16)[:, None], 4, 1))
    assert [(node.op_type, node.input[0]) for node in model.graph.node] == [("MultiThreshold", "x")]
    assert set(to_finn.execute(model, network, np.zeros((1, 4), int)).values) == {"r"}
    assert interpret.run(network, np.full((1, 4), 3)).tolist() == [[5] * 4]


@pytest.mark.parametrize("multiplier", [1, 64, [3, 5]])
def test_a_rescale_that_only_multiplies_and_adds_is_two_nodes(multiplier: Any) -> None:
    """What an import writes for a bias finer than the sums: FINN absorbs it in the thresholds behind it."""
    factor = np.array(multiplier)
    wide, narrow = IntType(17, True), IntType(2, True)
    network = IntegerNetwork(
        (InputSpec("x", (2,), IntType(4, True)),),
        (
            Dense("fc", "x", np.array([[1, -2], [3, 1]]), np.zeros(2, np.int64)),
            Requantize("bias", "fc", factor, np.array(0), np.array([7, -5]), wide),
            Requantize("act", "bias", np.array(1), np.array(5), np.array(0), narrow),
        ),
        (OutputSpec("act"),),
    )
    model = to_finn.export(network)
    kinds = [node.op_type for node in model.graph.node]
    assert kinds[-2:] == ["Add", "MultiThreshold"]
    assert ("Mul" in kinds) == (multiplier != 1)
    assert to_finn.check(model) == []
    x = np.stack(np.meshgrid(np.arange(-8, 8), np.arange(-8, 8)), -1).reshape(-1, 2)
    values = to_finn.execute(model, network, x).values
    assert np.array_equal(values["act"], interpret.run(network, x))
    ending = dataclasses.replace(network, outputs=(OutputSpec("act"), OutputSpec("bias")))
    with pytest.raises(NotExact, match="bias: type int17; FINN's thresholds have at most 8 bits"):
        to_finn.export(ending)
