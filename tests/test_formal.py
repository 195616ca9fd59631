"""Proofs for all inputs: of small designs with planted faults, and (slow) of the jet MLP's, netlists included."""

from __future__ import annotations

import dataclasses
import errno
import resource

import numpy as np
import pytest
from open_designs import CSD, changed, design, module, needs_yosys, pooled, rtl_of, scalar, synthesis, two_layers

from hawq_flow import interpret
from hawq_flow.network import Add, Dense, InputSpec, IntegerNetwork, Lookup, OutputSpec, ReduceMax, Requantize
from hawq_flow.numeric import IntType, Overflow, Rounding
from hawq_flow.to_rtl import formal
from hawq_flow.to_rtl.design import Port, Rtl
from hawq_flow.to_rtl.equivalence import blif, equivalent, find_abc
from hawq_flow.to_rtl.formal import Claim, Proof, Verdict, design_of, prove
from hawq_flow.to_rtl.generate import generate
from hawq_flow.to_rtl.netlist import NetlistError
from hawq_flow.to_rtl.synthesize import OpenSynthesis, RtlSynthesisConfig, synthesize
from hawq_flow.to_rtl.wiring import WiringError, check_top
from hawq_flow.to_rtl.words import CONSTANT, Words

pytestmark = needs_yosys
needs_abc = pytest.mark.skipif(find_abc() is None, reason="no ABC is installed")


def confirmed(network: IntegerNetwork, claim: Claim) -> None:
    """The interpreter disagrees with what the reason says of the counterexample's row."""
    assert claim.counterexample is not None
    env = {name: np.array(value)[None] for name, value in claim.counterexample.items()}
    value, _, said = claim.reason.partition("[")
    element, _, rest = said.partition("] is ")
    got, _, expected = rest.partition(", the network gives ")
    first = next(op for op in network.ops if any(name in env for name in op.inputs))
    ops = network.ops[network.ops.index(first) :]
    sub = IntegerNetwork(
        tuple(
            InputSpec(name, network.values[name].shape, network.values[name].type)
            for name in dict.fromkeys(n for op in ops for n in op.inputs)
            if name in env
        ),
        ops[: [op.name for op in ops].index(value) + 1],
        (OutputSpec(value),),
    )
    shaped = {name: array.reshape(1, *network.values[name].shape) for name, array in env.items()}
    true = interpret.run(sub, shaped).ravel()[int(element)]
    assert true == int(expected) != int(got)


def test_a_design_is_proved_for_all_inputs() -> None:
    proof = prove(two_layers(), design())
    assert proof.ok
    assert [(c.module, c.claim, c.proved, c.outputs) for c in proof.claims] == [
        ("fc1_stage", "RTL = network", 5, 5),
        ("fc2_stage", "RTL = network", 3, 3),
        ("top", "top = network", 3, 3),
    ]
    assert "| fc1_stage | RTL = network | proved | 5 of 5 |" in proof.markdown()


@needs_abc
def test_the_netlist_is_proved_too() -> None:
    proof = prove(two_layers(), design(), synthesis=synthesis())
    assert proof.ok
    assert [c.claim for c in proof.claims] == [*["RTL = network", "netlist = RTL"] * 2, "top = network"]


def test_words_are_the_matrix() -> None:
    """The algebra finds every row of the weights, with its factors, among the words of the first module."""
    network, first = two_layers(), design().modules[0]
    value = network.values["x"]
    words = Words(first, design_of(first), value.low, value.high)
    forms = [{k: c for k, c in word.form.items() if k != CONSTANT} for word in words.words]
    for row in network.ops[0].weight:  # type: ignore[union-attr]
        wanted = {i: int(c) for i, c in enumerate(row) if c}
        negated = {i: -c for i, c in wanted.items()}
        assert not wanted or wanted in forms or negated in forms


FAULTS = [(" + ", " - "), (" - ", " + ")]


@pytest.mark.parametrize(("old", "new"), FAULTS)
@pytest.mark.parametrize("number", [0, 1])
def test_a_planted_fault_is_refuted_by_a_row_that_the_interpreter_confirms(number: int, old: str, new: str) -> None:
    proof = prove(two_layers(), changed(design(), number, old, new))
    assert not proof.ok
    refuted = proof.refuted
    assert [c.module for c in refuted] == [design().modules[number].name]
    confirmed(two_layers(), refuted[0])


def test_a_fault_at_one_sum_alone_is_refuted() -> None:
    """Wrong for a single input of 2^24, which no sample meets."""
    network = IntegerNetwork(
        (InputSpec("x", (2,), IntType(12, True)),),
        (Dense("d", "x", np.array([[4096, 1]]), np.array([0])),),
        (OutputSpec("d"),),
    )
    right = """module m(input [23:0] x, output [24:0] y);
  wire [24:0] s = {x[11], x[11:0], 12'd0} + {{13{x[23]}}, x[23:12]};
  assign y = s;
endmodule
"""
    inputs, outputs = [Port("x", "x", 12, True, 2)], [Port("y", "d", 25, True, 1)]
    good = rtl_of(module(right, inputs, outputs, 0, ("d",)), network=network.digest)
    assert prove(network, good).claims[0].verdict is Verdict.PROVED
    wrong = right.replace("y = s;", "y = (s == 25'd1234567) ? 25'd0 : s;")
    bad = prove(network, rtl_of(module(wrong, inputs, outputs, 0, ("d",)), network=network.digest))
    assert bad.claims[0].reason == "d[0] is 0, the network gives 1234567"
    confirmed(network, bad.claims[0])


def test_a_fault_that_no_input_meets_is_not_finished() -> None:
    """The sum 5 is in the sum's range, but 3 x + 7 y never is 5: neither proved nor refuted."""
    network = IntegerNetwork(
        (InputSpec("x", (2,), IntType(2, False)),),
        (Dense("d", "x", np.array([[3, 7]]), np.array([0])),),
        (OutputSpec("d"),),
    )
    text = """module m(input [3:0] x, output [4:0] y);
  wire [3:0] a = {1'd0, x[1:0], 1'd0} + {2'd0, x[1:0]};
  wire [4:0] b = {x[3:2], 3'd0} - {3'd0, x[3:2]};
  wire [4:0] s = {1'd0, a} + b;
  assign y = (s == 5'd5) ? 5'd0 : s;
endmodule
"""
    made = module(text, [Port("x", "x", 2, False, 2)], [Port("y", "d", 5, False, 1)], 0, ("d",))
    claim = prove(network, rtl_of(made, network=network.digest)).claims[0]
    assert claim.verdict is Verdict.UNFINISHED
    assert "where its sum is 5, its logic gives something else" in claim.reason


def test_other_roundings_overflows_tables_and_narrow_ranges() -> None:
    rng = np.random.default_rng(2)
    ops = (
        Dense("d", "x", rng.integers(-5, 6, (4, 3)), rng.integers(-9, 9, 4)),
        Requantize(
            "wrap", "d", np.array([3, -5, 1, 7]), np.array([1, 2, 0, 3]), scalar(-1), IntType(4, True),
            Rounding.FLOOR, Overflow.WRAP,
        ),
        Lookup("table", "wrap", rng.integers(-7, 8, 16), -8),
    )  # fmt: skip
    network = IntegerNetwork((InputSpec("x", (3,), IntType(4, False)),), ops, (OutputSpec("table"),))
    proof = prove(network, generate(network, CSD))
    assert proof.ok, proof.markdown()


def test_few_bits_are_proved_by_all_inputs_and_many_are_not_finished() -> None:
    rtl = generate(pooled(), CSD)
    proof = prove(pooled(), rtl)
    assert proof.ok, proof.markdown()
    assert "all inputs" in {c.method for c in proof.claims}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(formal, "EXHAUSTIVE_BITS", 4)
        less = prove(pooled(), rtl)
    left = [c for c in less.claims if c.verdict is Verdict.UNFINISHED]
    assert left
    assert "no method for" in left[0].reason


def test_element_wise_ops_that_are_no_chain_take_another_way() -> None:
    """Two tables of one value, summed: no word holds what the output depends on, but all inputs are few."""
    ops = (
        Lookup("a", "x", np.array([3, -1, 0, 2]), -2),
        Lookup("b", "x", np.array([1, 1, -2, 0]), -2),
        Add("sum", ("a", "b")),
    )
    network = IntegerNetwork((InputSpec("x", (3,), IntType(2, True)),), ops, (OutputSpec("sum"),))
    text = """module m(input [5:0] x, output [8:0] y);
  genvar i;
  generate for (i = 0; i < 3; i = i + 1) begin : each
    assign y[3*i+2:3*i] = (x[2*i+1:2*i] == 2) ? 3'd4 : (x[2*i+1:2*i] == 3) ? 3'd0 : (x[2*i+1:2*i] == 0) ? 3'd6 : 3'd2;
  end endgenerate
endmodule
"""
    made = module(text, [Port("x", "x", 2, True, 3)], [Port("y", "sum", 3, True, 3)], 0, ("a", "b", "sum"))
    claim = prove(network, rtl_of(made, network=network.digest)).claims[0]
    assert claim.verdict is Verdict.REFUTED  # the RTL says 4 = -4 where 3 + 1 = 4 does not fit three bits
    wider = text.replace("8:0", "11:0").replace("3*i+2:3*i", "4*i+3:4*i").replace("3'd6", "4'd14").replace("3'd", "4'd")
    made = module(wider, [Port("x", "x", 2, True, 3)], [Port("y", "sum", 4, True, 3)], 0, ("a", "b", "sum"))
    claim = prove(network, rtl_of(made, network=network.digest)).claims[0]
    assert (claim.verdict, claim.method) == (Verdict.PROVED, "all inputs"), claim.reason


def test_all_inputs_are_those_that_vary_however_many_do_not() -> None:
    """70 elements, of which all but two are constants: numpy's arrays have 64 axes."""
    weight = np.zeros((70, 2), dtype=np.int64)
    weight[[3, 5]] = [[1, -2], [3, 1]]
    ops = (
        Dense("d", "x", weight, np.arange(70) % 5),
        Requantize("q", "d", scalar(1), scalar(1), scalar(0), IntType(3, False)),
        ReduceMax("most", "q", 0),
    )
    network = IntegerNetwork((InputSpec("x", (2,), IntType(3, True)),), ops, (OutputSpec("most"),))
    proof = prove(network, generate(network, CSD))
    assert proof.ok, proof.markdown()
    assert proof.claims[1].method == "all inputs"
    still = Dense("d", "x", 0 * weight, np.arange(70) % 5)
    constant = dataclasses.replace(network, ops=(still, *ops[1:]))
    assert prove(constant, generate(constant, CSD)).ok


def test_a_pipeline_inside_a_stage_is_proved() -> None:
    assert prove(two_layers(), generate(two_layers(), dataclasses.replace(CSD, pipeline=2))).ok


def test_what_does_not_end_in_its_time_is_not_finished_and_nothing_is_lost() -> None:
    assert prove(two_layers(), design(), time_limit_s=60.0).ok
    proof = prove(two_layers(), design(), synthesis=synthesis(), time_limit_s=0.01)
    left = [(c.claim, c.verdict.value) for c in proof.claims]
    assert left == [
        *[("RTL = network", "not finished"), ("netlist = RTL", "not finished")] * 2,
        ("top = network", "proved"),
    ]
    assert "reading module fc1_stage: timed out after 0 s; raise time_limit_s" in proof.claims[0].reason
    task = formal._Task(two_layers(), design().modules[0], 0.0, 8.0)
    task.__dict__["design"] = design_of(design().modules[0])
    for work in (task.rtl, lambda: task.netlist(synthesis().modules[0])):
        claim = task.claim("a claim", work)
        assert (claim.verdict, claim.reason) == (Verdict.UNFINISHED, "the time limit of 0 s")


def test_a_disk_that_fills_leaves_the_other_claims() -> None:
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(design().modules[0].text) + 2000, old[1]))
    try:
        proof = prove(two_layers(), design())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
    assert [c.verdict for c in proof.claims] == [Verdict.UNFINISHED, Verdict.UNFINISHED, Verdict.PROVED]
    assert proof.claims[0].reason == (
        "reading module fc1_stage: disk full: make room for temporary files, or raise the quota or the limit of a "
        "file's size"
    )


@needs_abc
def test_a_disk_that_fills_before_abc_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(formal, "equivalent", full)
    proof = prove(two_layers(), design(), synthesis=synthesis())
    assert [c.reason[:10] for c in proof.claims] == ["", "disk full:", "", "disk full:", ""]


def added() -> IntegerNetwork:
    """A network whose top has a delay line, and two outputs that differ by their values alone."""
    rng = np.random.default_rng(3)
    ops = (
        Dense("a", "x", rng.integers(-3, 4, (3, 3)), rng.integers(-3, 4, 3)),
        Dense("b", "x", rng.integers(-3, 4, (3, 3)), rng.integers(-3, 4, 3)),
        Requantize("p", "a", scalar(1), scalar(2), scalar(0), IntType(3, True)),
        Requantize("q", "b", scalar(1), scalar(2), scalar(0), IntType(3, True)),
        Add("sum", ("p", "q", "x")),
    )
    return IntegerNetwork((InputSpec("x", (3,), IntType(3, True)),), ops, (OutputSpec("sum"), OutputSpec("p")))


def retopped(**changes: str) -> Rtl:
    """The design of :func:`added` with words of its top replaced; they must be there."""
    rtl = generate(added(), CSD)
    text = rtl.text
    assert text is not None
    for old, new in TOPS[changes["name"]][0]:
        assert old in text, text
        text = text.replace(old, new, 1)
    return dataclasses.replace(rtl, text=text)


TOPS: dict[str, tuple[list[tuple[str, str]], str]] = {
    "comments": ([("assign", "//"), ("assign", "//"), ("assign", "//")], "missing in its text"),
    "another module": ([("module top", "module other")], "its text is of the module other; expected top"),
    "a stage": ([("a_stage u_a_stage", "zzz u_a_stage")], "u_a_stage is an instance of zzz, which is no module"),
    "swapped": ([(".p(p), .q(q)", ".p(q), .q(p)")], "u_sum_stage.p gets q as 3 x int3; expected p as 3 x int3"),
    "late": ([("sum_out = sum", "sum_out = x_delayed_1")], "the output sum_out gets x as 3 x int3; expected sum as"),
    "early": ([(".x(x_delayed_1)", ".x(x)")], "u_sum_stage.x gets x in cycle 0; expected cycle 1"),
    "undelayed": ([("p_out = p_delayed_1", "p_out = p")], "the output p_out gets p in cycle 1; expected cycle 2"),
    "no source": ([("x_delayed_1 <= x;", "")], "x_delayed_1 gets nothing, which is no bus with a source"),
    "twice": ([("x_delayed_1 <= x;", "x_delayed_1 <= x; x_delayed_1 <= x;")], "x_delayed_1 is given a next"),
    "valid": ([("{valid[0:0], valid_in}", "{valid_in, valid[0:0]}")], "expected {valid[0:0], valid_in}"),
    "valid out": ([("valid_out = valid[1]", "valid_out = valid[0]")], "not expected: assign valid_out valid[0]"),
    "clock": ([(".clk(clk)", ".clk(valid_in)")], "is connected as .clk(valid_in)"),
    "narrow": ([("[8:0] x_delayed_1", "[7:0] x_delayed_1")], "x_delayed_1 has 8 bits, and x 9"),
    "narrow port": ([("input wire [8:0] x", "input wire [7:0] x")], "its text has the ports {'clk': 1"),
    "extra": ([("assign", "wire [0:0] n = 1'd0; assign")], "not expected: wire 0 n 1'd0"),
    "double": ([("wire [8:0] p;", "wire [8:0] p; wire [8:0] p;")], "p is declared twice"),
    "taken": ([(".p(p));", ".p(x));")], "u_a_stage puts p on x, which is no free wire of 9 bits"),
}  # fmt: skip


@pytest.mark.parametrize("name", TOPS)
def test_a_top_that_is_wired_otherwise_is_not_proved(name: str) -> None:
    with pytest.raises(WiringError) as error:
        check_top(added(), retopped(name=name))
    assert TOPS[name][1] in str(error.value)


def test_the_top_of_every_kind_of_design_is_proved() -> None:
    for config in (CSD, dataclasses.replace(CSD, pipeline="none"), dataclasses.replace(CSD, pipeline=1)):
        check_top(added(), generate(added(), config))
    wires = IntegerNetwork((InputSpec("x", (3,), IntType(3, True)),), (), (OutputSpec("x"),))
    check_top(wires, generate(wires))


def test_a_design_must_be_whole() -> None:
    """Neither without modules, nor without a top, nor with ops or ports that are not the network's, is it proved."""
    whole = generate(added(), CSD)
    assert prove(added(), whole).ok
    empty = prove(added(), dataclasses.replace(whole, modules=(), text=None))
    assert not empty.ok
    assert [c.reason for c in empty.claims] == ["the design has no top"]
    assert not Proof("", ()).ok
    assert not prove(added(), dataclasses.replace(whole, modules=())).ok
    less = dataclasses.replace(whole.modules[0], ops=("a",))
    claim = prove(added(), dataclasses.replace(whole, modules=(less, *whole.modules[1:]))).claims[0]
    assert (claim.verdict, claim.reason) == (
        Verdict.UNFINISHED, "its port p is not the value p of the network, or of its ops"
    )  # fmt: skip
    less = dataclasses.replace(less, ops=("b", "q"), inputs=())
    claim = prove(added(), dataclasses.replace(whole, modules=(less, *whole.modules[1:]))).claims[0]
    assert claim.reason == "its op b is none of the network, or its operands are not in the module"
    for changes, said in (
        ({"outputs": whole.outputs[::-1]}, "its outputs are p, sum; the network's are sum, p"),
        ({"inputs": ()}, "its inputs are none; the network's are x"),
        ({"inputs": (dataclasses.replace(whole.inputs[0], bits=2),)}, "port x has 3 elements from -2 to 1;"),
        ({"modules": (*whole.modules, whole.modules[0])}, "two modules have one name"),
    ):  # fmt: skip
        with pytest.raises(WiringError) as error:
            check_top(added(), dataclasses.replace(whole, **changes))
        assert said in str(error.value)


def test_netlists_that_do_not_fit_are_never_passed_over() -> None:
    whole = prove(two_layers(), design(), synthesis=synthesize(design(), RtlSynthesisConfig(flatten=True)))
    assert not whole.ok
    assert [(c.module, c.reason) for c in whole.claims if c.claim == "netlist = RTL"] == [
        ("top", "synthesized as one module, and netlists are proved module by module: synthesize without flatten")
    ]
    part = dataclasses.replace(synthesis(), modules=synthesis().modules[:1])
    missing = [c for c in prove(two_layers(), design(), synthesis=part).claims if c.verdict is Verdict.UNFINISHED]
    assert [(c.module, c.reason) for c in missing] == [("fc2_stage", "no netlist of it was given")]
    other = dataclasses.replace(synthesis(), rtl=changed(design(), 0, " + ", " - "))
    with pytest.raises(ValueError, match="prove: the netlists are of another design than the one given"):
        prove(two_layers(), design(), synthesis=other)


def test_an_output_that_is_always_the_same_is_proved() -> None:
    """A unit that its ReLU holds at 0 for every sum, and one that is always at its upper end."""
    ops = (
        Dense("d", "x", np.array([[3, 5], [-3, -7], [1, 2]]), np.array([1, -500, 500])),
        Requantize("q", "d", scalar(1), scalar(2), scalar(0), IntType(3, False)),
    )
    network = IntegerNetwork((InputSpec("x", (2,), IntType(4, False)),), ops, (OutputSpec("q"),))
    rtl = generate(network)
    proof = prove(network, rtl)
    assert proof.ok, proof.markdown()
    text = rtl.modules[0].text
    assert "3'd0," in text
    assert prove(network, changed(rtl, 0, "3'd0,", "3'd1,")).refuted


def test_another_network_is_refused() -> None:
    with pytest.raises(ValueError, match="prove: the design is of network"):
        prove(pooled(), design())


def test_a_wrong_latency_is_an_error_before_any_proof() -> None:
    first = dataclasses.replace(design().modules[0], latency=2)
    rtl = dataclasses.replace(design(), modules=(first, *design().modules[1:]))
    with pytest.raises(NetlistError, match="the module says a latency of 2"):
        prove(two_layers(), rtl)


def _with_fault(node: int) -> OpenSynthesis:
    """The synthesis with one bit of one table of its first netlist flipped."""
    found = synthesis()
    whole = found.modules[0].netlist
    table = whole.table.copy()
    table[node] ^= np.uint64(1)
    first = dataclasses.replace(found.modules[0], _netlist=dataclasses.replace(whole, table=table))
    return dataclasses.replace(found, modules=(first, *found.modules[1:]))


@needs_abc
def test_a_fault_in_the_netlist_is_refuted() -> None:
    whole = synthesis().modules[0].netlist
    luts = np.flatnonzero((whole.kind == 0) & whole.order.live[: len(whole.kind)])
    proof = prove(two_layers(), design(), synthesis=_with_fault(int(luts[len(luts) // 2])))
    assert [c.claim for c in proof.refuted] == ["netlist = RTL"]
    confirmed(two_layers(), proof.refuted[0])


@needs_abc
def test_equivalence_finds_the_inputs_that_differ() -> None:
    """Without any search by evaluation: one input of 2^12."""
    text = "module m(input [11:0] x, output y);\n  assign y = ^x;\nendmodule\n"
    ports = [Port("x", "x", 12, False, 1)], [Port("y", "y", 1, False, 1)]
    first = design_of(module(text, *ports, 0)).netlist
    second = design_of(module(text.replace("^x", "(x == 12'd2730) ? 1'b1 : ^x"), *ports, 0)).netlist
    limits = {"time_limit_s": 60.0, "memory_limit_gb": 2.0}
    assert equivalent(first, first, **limits).equal is True
    answer = equivalent(first, second, **limits)
    assert answer.equal is False
    assert answer.pattern is not None
    assert sum(answer.pattern[f"x[{i}]"] << i for i in range(12)) == 2730
    late = equivalent(first, second, time_limit_s=1e-3, memory_limit_gb=2.0)
    assert late.equal is None
    assert "timed out" in late.reason
    assert ".model m\n" in blif(first)
    other = dataclasses.replace(second, inputs={})
    with pytest.raises(ValueError, match="have different ports"):
        equivalent(first, other, **limits)


@pytest.mark.slow
@needs_abc
def test_a_layer_of_the_jet_mlp_is_proved_with_its_netlist() -> None:
    """32 inputs of 6 bits, 32 outputs, 5-bit weights: about the third layer of the jet tagger's mixed plan."""
    rng = np.random.default_rng(5)
    weight = np.where(rng.random((32, 32)) < 0.95, rng.integers(-15, 16, (32, 32)), 0)
    ops = (
        Dense("fc", "x", weight, rng.integers(-900, 900, 32)),
        Requantize("act", "fc", rng.integers(20, 255, 32), np.full(32, 12), scalar(0), IntType(8, False)),
    )
    network = IntegerNetwork((InputSpec("x", (32,), IntType(6, False)),), ops, (OutputSpec("act"),))
    rtl = generate(network, CSD)
    proof = prove(network, rtl, synthesis=synthesize(rtl))
    assert proof.ok, proof.markdown()
    assert [c.proved for c in proof.claims] == [32, 32, 32]
