"""The preflight against the real hls4ml: what a finding says, hls4ml does; and what has none, imports."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from check_hls_models import FINE, HALVES, SMALL, VECTOR, WIDE, d, small
from check_hls_trouble import TROUBLE
from hls4ml.converters.onnx_to_hls import get_supported_onnx_layers
from stock_hls4ml import failure

from hawq_flow import check_hls, from_onnx
from hawq_flow.check_hls import Finding, check, exact, markdown, precision, ready, table, verdict
from hawq_flow.check_hls.findings import BLOCKING
from hawq_flow.check_hls.needs import Need, fraction_bits, integer_bits
from hawq_flow.check_hls.rules import KNOWN


def blocking(model: onnx.ModelProto) -> list[Finding]:
    return [finding for finding in check(model, default_precision=WIDE) if finding.kind in BLOCKING]


@pytest.mark.parametrize(
    ("name", "shape", "build", "kind", "raised", "says", "op"), TROUBLE, ids=lambda v: v if isinstance(v, str) else ""
)
def test_what_is_found_fails_in_hls4ml(
    name: str, shape: Any, build: Any, kind: str, raised: str, says: str, op: str, tmp_path: Path
) -> None:
    model = small(shape, build)
    found = blocking(model)
    assert any(f.kind == kind and says in f.reason and (not op or f.op_type == op) for f in found), table(found)
    assert all(f.kind in ("refused", "crash") for f in found), table(found)
    assert all((f.fix and "--repair" in f.fix) or f.op_type in ("Resize",) for f in found), table(found)
    happened = failure(model, tmp_path / "p")
    assert re.search(raised, happened), happened


@pytest.mark.parametrize(("name", "shape", "build"), FINE, ids=lambda v: v if isinstance(v, str) else "")
def test_what_imports_is_not_blamed(name: str, shape: Any, build: Any, tmp_path: Path) -> None:
    model = small(shape, build)
    assert failure(model, tmp_path / "p") == ""
    assert not blocking(model), table(blocking(model))


def test_the_list_of_operators_is_hls4mls() -> None:
    assert set(get_supported_onnx_layers()) - {"MaxPool1d", "Upsample", "Lookup"} == KNOWN


# --- the rest of a finding -------------------------------------------------------------------------------------------


def test_findings_of_a_file_in_full() -> None:
    model = small(VECTOR, lambda g: g.quant(d(g, scale=HALVES), mode="CEIL"))
    found = check(model)
    assert [(f.node, f.op_type, f.kind) for f in found] == [
        ("matmul2", "MatMul", "crash"),
        ("quant3", "Quant", "refused"),
        ("x", "Input", "imprecise"),
        ("x", "Input", "note"),
    ]
    crash = found[0]
    assert crash.reason == (
        "weight scales for each channel, shape (3): hls4ml cannot move them behind the MatMul, even powers of two, and "
        "fails with 'IndexError: list index out of range'"
    )
    assert crash.fix == (
        "Use a power of two, one for the tensor, as weight scale, or multiply behind the layer; --repair writes the "
        "same "
        "integers in a form that hls4ml reads"
    )
    assert not ready(found)
    assert verdict(found) == ("not ready: stock hls4ml does not import (1 refused, 1 crash) [exit status 1: not exact]")
    text = table(found)
    assert text.splitlines()[0].startswith("refused    quant3 (Quant): hls4ml raises 'Rounding mode CEIL")
    assert text.splitlines()[1].startswith("           -> Train and export with ROUND")
    assert text.splitlines()[-1] == verdict(found)
    lines = markdown(found).splitlines()
    assert lines[0] == f"**{verdict(found)}**"
    assert lines[2] == "| kind | node | op | what hls4ml does | what to do |"
    assert lines[4].startswith("| refused | quant3 | Quant | hls4ml raises")
    assert len(lines) == 4 + len(found)


def test_cells_of_the_table_cannot_break_it() -> None:
    odd = Finding("a|b\nc", "Quant", "note", "x\\y", "z")
    assert markdown([odd]).splitlines()[-1] == "| note | a\\|b c | Quant | x\\\\y | z |"


def test_verdicts() -> None:
    def one(kind: str, needs: str = "") -> Finding:
        return Finding("n", "Mul", kind, "r", "f", needs)

    fine = "ready: stock hls4ml imports it and computes its numbers [exit status 0: exact]"
    assert verdict([]) == verdict([one("note")]) == fine
    assert markdown([]) == f"**{fine}**\n"
    both = [one("imprecise", "fixed<20,4>"), one("imprecise", "fixed<9,9>")]
    assert precision(both) == "fixed<25,9>"
    assert verdict(both) == (
        "ready with default_precision='fixed<25,9>': at its default precision hls4ml loses bits "
        "[exit status 0: exact at that precision]"
    )
    assert precision([*both, one("imprecise")]) is None
    assert verdict([*both, one("imprecise")]) == (
        "imports, but is not exact at any default precision (3 imprecise): set precisions by hand and compare, or "
        "repair [exit status 1: not exact]"
    )
    assert verdict([one("wrong")]) == (
        "not ready: stock hls4ml imports, and computes other numbers (1 wrong) [exit status 1: not exact]"
    )
    assert verdict([one("crash"), one("crash")]) == "not ready: stock hls4ml fails (2 crash) [exit status 1: not exact]"
    assert ready(both)
    assert ready([*both, one("imprecise")])
    assert not ready([one("wrong")])
    assert exact(both)
    assert exact([one("note")])
    assert not exact([*both, one("imprecise")])
    assert not exact([one("wrong")])


def test_nodes_of_which_the_same_is_said_share_a_row() -> None:
    same = [Finding(f"q{n}", "QuantizeLinear", "refused", "r", "f") for n in range(7)]
    other = Finding("d0", "DequantizeLinear", "refused", "r", "f")
    found = [*same[:3], other, *same[3:]]
    assert table(found).splitlines()[:-1] == [
        "refused    q0, q1, q2, q3 and 3 more (QuantizeLinear): r",
        "           -> f",
        "refused    d0 (DequantizeLinear): r",
        "           -> f",
    ]
    assert markdown(found).splitlines()[4:] == [
        "| refused | q0, q1, q2, q3 and 3 more | QuantizeLinear | r | f |",
        "| refused | d0 | DequantizeLinear | r | f |",
    ]
    assert verdict(found).startswith("not ready: stock hls4ml does not import (8 refused)")
    assert "q0, q1, q2, q3 (QuantizeLinear)" in table(same[:4])


def _qcdq(layers: int) -> onnx.ModelProto:
    def build(g):  # type: ignore[no-untyped-def]
        def through(x: str) -> str:
            step = (g.constant(0.3), g.constant(0, np.int8))
            return str(g.op("DequantizeLinear", g.op("QuantizeLinear", x, *step), *step))

        y = through("x")
        for _ in range(layers):
            y = through(g.op("MatMul", y, through(g.constant(g.integers(4, 4)))))
        return y

    return small(VECTOR, build)


def test_a_file_of_qcdq_is_told_in_a_few_rows() -> None:
    found = check(_qcdq(10))
    assert len(found) > 40
    assert table(found).count("->") <= 4, table(found)
    assert " more (QuantizeLinear): hls4ml raises 'ERROR: Unsupported operation type: QuantizeLinear'" in table(found)


@pytest.mark.parametrize(
    ("build", "why", "fix"),
    [
        (
            lambda g: g.quant(g.dense(g.quant("x", scale=0.3))),
            "hls4ml cuts it off before its Quant quant0 scales it, scale 0.3, whose grid is no type",
            "; --repair takes the input's integers from its quantizer",
        ),
        (
            lambda g: g.quant(g.dense(g.quant(g.op("Reshape", "x", g.constant([1, 4], np.int64)), scale=0.3))),
            "hls4ml cuts it off before its Quant quant1 scales it, scale 0.3, whose grid is no type",
            "; --repair takes the input's integers from its quantizer",
        ),
        (
            lambda g: g.quant(g.dense("x")),
            "the file does not say which numbers come (no quantizer alone reads it)",
            "; --repair needs to be told the input's type (--input)",
        ),
        (
            lambda g: g.quant(g.op("Add", "x", g.quant("x", scale=0.3))),
            "the file does not say which numbers come (no quantizer alone reads it)",
            "; --repair needs to be told the input's type (--input)",
        ),
    ],
)
def test_only_an_input_without_a_quantizer_needs_a_type_for_repair(build: Any, why: str, fix: str) -> None:
    model = small(VECTOR, build)
    (found,) = [f for f in check(model) if f.op_type == "Input" and f.kind == "imprecise"]
    assert why in found.reason
    assert found.fix.endswith(fix), found.fix
    if "its quantizer" in fix:  # and so it is
        check_hls.repair(model)
    elif "MatMul" in {node.op_type for node in model.graph.node}:
        with pytest.raises(from_onnx.ImportRefused, match="which no quantizer makes integers"):
            check_hls.repair(model)


def _floats(g):  # type: ignore[no-untyped-def]
    weight = np.random.default_rng(0).normal(size=(4, 4))
    return g.op("Softmax", g.op("MatMul", g.op("Relu", g.op("MatMul", "x", g.constant(weight))), g.constant(weight)))


def test_a_file_of_float_weights_is_not_promised_a_repair() -> None:
    model = small(VECTOR, _floats)
    found = check(model)
    assert len(found) == 5
    assert [f.op_type for f in found].count("Softmax") == 1
    said = "; --repair refuses this file, whose weights are float (matmul0, matmul2): export it with quantizers"
    assert all(f.fix.endswith(said) for f in found), table(found)
    with pytest.raises(from_onnx.ImportRefused, match="not quantized: no grid of 17 bits holds them"):
        check_hls.repair(model)
    bare = check(small(VECTOR, lambda g: g.op("Relu", g.op("MatMul", "x", g.constant(np.full((4, 3), 0.1))))))
    assert not any("whose weights are float" in f.fix for f in bare)  # 0.1 times integers of one bit
    assert "and compare, or repair" in verdict(bare)
    only = [f for f in found if f.kind == "imprecise"]
    assert verdict(only).endswith("set precisions by hand and compare [exit status 1: not exact]")


def test_a_repaired_file_is_told_the_precision_and_no_repair() -> None:
    repaired, _ = check_hls.repair(small(VECTOR, lambda g: g.quant(g.op("Mul", d(g), g.constant(3 / 4096)))))
    lines = [f for f in check(repaired) if f.kind == "imprecise"]
    assert len(lines) > 1
    wanted = precision(lines)
    says = f"Pass default_precision={wanted!r} to config_from_onnx_model (enough for all such lines here)"
    assert {f.fix for f in lines} == {says}


def test_findings_are_held_to_their_form() -> None:
    with pytest.raises(ValueError, match="kind 'bad'; expected one of refused, crash, wrong, imprecise, note"):
        Finding("n", "Mul", "bad", "", "")
    with pytest.raises(ValueError, match=r"needs '16'; expected fixed<W,I>"):
        Finding("n", "Mul", "imprecise", "", "", "16")


def test_what_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(check_hls.Unreadable, match="no such file; expected an ONNX model"):
        check(tmp_path / "none.onnx")
    (tmp_path / "text.onnx").write_text("hello")
    with pytest.raises(check_hls.Unreadable, match=r"text.onnx: (not an ONNX model|a graph without nodes)"):
        check(tmp_path / "text.onnx")
    model = small(VECTOR, lambda g: g.quant(d(g)))
    with pytest.raises(ValueError, match="precision 'int'; expected fixed<W,I>, a signed type"):
        check(model, default_precision="int")
    onnx.save(model, tmp_path / "model.onnx")
    before = model.SerializeToString()
    assert check(tmp_path / "model.onnx") == check(str(tmp_path / "model.onnx")) == check(model)
    assert model.SerializeToString() == before


def test_bits() -> None:
    assert [int(n) for n in fraction_bits([1, 0.5, 3, 0.375, -6, 2.0**-30])] == [0, 1, 0, 3, -1, 30]
    assert [integer_bits(*ends) for ends in ((0, 0), (0, 1), (-1, 0), (-1, 1), (-8, 7.9), (-8.1, 0), (0.2, 0.3))] == [
        1,
        2,
        1,
        2,
        4,
        5,
        0,
    ]
    assert str(Need.of([0.75, -2])) == "fixed<4,2>"
    assert str(Need.of([1 / 1024])) == "fixed<2,-8>"  # 01 in the two places from 2^-9
    assert Need.of([np.inf]) is None
    assert Need.read("ap_fixed<16, 6>") == Need(6, 10)
    assert Need(4, 3).within(Need(6, 10))
    assert not Need(4, 11).within(Need(6, 10))
    assert not Need(7, 3).within(Need(6, 10))


@pytest.mark.parametrize(
    ("build", "node", "needs", "says"),
    [
        (lambda g: g.quant(d(g)), "x", "fixed<8,8>", "read in fixed<16,6>"),
        (
            lambda g: g.quant(g.dense(g.quant("x", 12, scale=1 / 32))),
            "x",
            "fixed<12,7>",
            "the grid of its Quant quant0",
        ),
        (lambda g: g.quant(g.op("Mul", d(g), g.constant(3 / 4096))), "mul3", "fixed<3,-9>", "its factor is stored"),
        (
            lambda g: g.quant(g.op("Add", d(g), g.constant([1.0, 40, 3]))),
            "add3",
            "fixed<7,7>",
            "its constant is stored",
        ),
        (lambda g: g.quant(g.op("Div", d(g), g.constant(4096.0))), "div3", "fixed<2,-10>", "the reciprocal of its"),
        (lambda g: g.quant(g.op("Div", d(g), g.constant(3.0))), "div3", "", "is no dyadic number"),
        (
            lambda g: g.quant(g.op("MatMul", g.quant("x"), g.constant(SMALL * 8192 * 11))),
            "matmul1",
            "fixed<8,8>",
            "no Quant",
        ),
        (
            lambda g: g.quant(d(g, kind="IntQuant", weight=SMALL, scale=1 / 8192)),
            "matmul2",
            "fixed<4,-9>",
            "through no Quant",
        ),
        (lambda g: g.quant(d(g), scale=0.3), "quant3", "", "no power of two: hls4ml multiplies by its reciprocal"),
        (lambda g: g.op("Relu", d(g, weight=np.full((4, 3), 7.0))), "relu3", "fixed<13,13>", "its result is stored"),
        (lambda g: g.op("Relu", g.op("Tanh", d(g))), "relu4", "", "the file does not say what its result can be"),
        (lambda g: g.quant(g.op("Tanh", d(g))), "tanh3", "", "read from a table of 1024 entries"),
        (lambda g: g.quant(g.dense("x")), "x", "", "the file does not say which numbers come"),
        (lambda g: g.quant(g.norm(d(g), 1 / 4096)), "batchnormalization3", "fixed<13,1>", "its factor and constant"),
    ],
)
def test_what_is_imprecise_and_the_bits_it_needs(build: Any, node: str, needs: str, says: str) -> None:
    found = [f for f in check(small(VECTOR, build)) if f.node == node and f.kind == "imprecise" and says in f.reason]
    assert len(found) == 1, table(check(small(VECTOR, build)))
    (finding,) = found
    if needs:
        assert f"needs {needs}" in finding.reason
        assert f"default_precision={finding.needs!r}" in finding.fix
        assert Need.read(needs).within(Need.read(finding.needs))
        assert Need(6, 10).within(Need.read(finding.needs))
    else:
        assert "no default precision is enough" in finding.reason
        assert finding.needs == ""


def test_what_the_default_precision_holds_is_not_imprecise() -> None:
    model = small(VECTOR, lambda g: g.quant(g.op("Mul", d(g), g.constant(3 / 1024))))
    assert {f.node for f in check(model) if f.kind == "imprecise"} == {"x"}
    assert not [f for f in check(model, default_precision="fixed<24,12>") if f.kind == "imprecise"]
    behind = small(VECTOR, lambda g: g.quant(g.op("Relu", d(g)), signed=0))  # the Quant becomes Relu's type
    assert {f.node for f in check(behind) if f.kind == "imprecise"} == {"x"}


def test_an_input_is_noted_with_its_grid() -> None:
    (note,) = [f for f in check(small(VECTOR, lambda g: g.dense(g.quant("x", scale=0.25)))) if f.kind == "note"]
    assert note.fix == "Feed multiples of 0.25 from -32 to 31.75: round the data before"


def test_weights_through_intquant_are_noted() -> None:
    (note, _) = [f for f in check(small(VECTOR, lambda g: g.quant(d(g, kind="IntQuant")))) if f.kind == "note"]
    assert note.op_type == "IntQuant"
    assert "never learns the bit width" in note.reason
    assert "Name the operator Quant" in note.fix
