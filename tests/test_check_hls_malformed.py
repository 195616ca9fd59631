"""Whatever onnx.load accepts is judged, and never by an exception; what means nothing is never called ready."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from check_hls_models import PLANE, VECTOR, WIDE, c, d, small
from check_hls_mutants import FAULTS, mutant
from stock_hls4ml import copied, failure, simulated

from hawq_flow.check_hls import check, exact, markdown, ready, table
from hawq_flow.check_hls.findings import BLOCKING


@pytest.mark.parametrize(("name", "build", "kind", "raised", "says"), FAULTS, ids=[name for name, *_ in FAULTS])
def test_what_means_nothing_is_found(
    name: str, build: Callable[[], onnx.ModelProto], kind: str, raised: str, says: str, tmp_path: Path
) -> None:
    model = build()
    before = model.SerializeToString()
    found = check(model, default_precision=WIDE)
    assert model.SerializeToString() == before
    assert any(f.kind == kind and says in f.reason for f in found), table(found)
    assert not ready(found)
    assert all(f.fix for f in found)
    happened = failure(model, tmp_path / "p")
    assert bool(happened) == bool(raised), happened
    assert re.search(raised, happened), happened


@pytest.mark.parametrize("bits", [1025, 2000, 1e9, 1e30])
def test_more_bits_than_the_generated_code_takes(bits: float) -> None:
    for model in (small(VECTOR, lambda g: g.quant(d(g), bits)), small(VECTOR, lambda g: g.quant(d(g, bits=bits)))):
        (found,) = [f for f in check(model, default_precision=WIDE) if f.kind in BLOCKING]
        assert found.kind == "crash"
        assert f"{bits:g} bits; the C++ stops at more than 1024" in found.reason
    assert ready(check(small(VECTOR, lambda g: g.quant(d(g), 1024))))


@pytest.mark.slow
@pytest.mark.parametrize("bits", [0, -3])
def test_no_bits_stop_the_generated_code(bits: int, tmp_path: Path) -> None:
    result = simulated(small(VECTOR, lambda g: g.quant(d(g), bits)), np.zeros((1, 4)), tmp_path / "p")
    assert isinstance(result, str)
    assert "stopped the process" in result or "Failed to compile" in result


def _judged(seeds: range) -> int:
    """How many mutants are ready."""
    count = 0
    for seed in seeds:
        found = check(mutant(seed), default_precision=WIDE)
        assert table(found).count("->") <= len(found)
        assert markdown(found).startswith("**")
        count += ready(found)
    return count


def test_damaged_files_are_judged() -> None:
    assert 0 < _judged(range(200)) < 100  # some faults do no harm, as another order of the nodes


@pytest.mark.slow
def test_many_damaged_files_are_judged() -> None:
    _judged(range(200, 10_000))


@pytest.mark.slow
def test_damaged_files_that_are_ready_import(tmp_path: Path) -> None:
    refused = {}
    for seed in range(2000):
        model = mutant(seed)
        if ready(check(model, default_precision=WIDE)) and (happened := failure(model, tmp_path / "p")):
            refused[seed] = happened
    assert not refused


@pytest.mark.parametrize("axes", [False, True])
def test_another_order_of_the_nodes(axes: bool, tmp_path: Path) -> None:
    model = small(PLANE, lambda g: g.quant(c(g))) if axes else small(VECTOR, lambda g: g.quant(d(g)))
    turned = copied(model)
    del turned.graph.node[:]
    turned.graph.node.extend(reversed(model.graph.node))
    (more,) = set(check(turned)) - set(check(model))
    assert set(check(model)) < set(check(turned))
    assert "it stands behind a node that reads it; ONNX wants the order of computation" in more.reason
    assert more.kind == ("crash" if axes else "note")
    happened = failure(turned, tmp_path / "p")
    assert bool(happened) == axes
    assert ("All tensor shapes must be specified" in more.reason) == ("All tensor shapes" in happened)


def _deep(op: str) -> onnx.ModelProto:
    def build(g):  # type: ignore[no-untyped-def]
        if op == "Transpose":
            weight = g.quant(g.constant(np.ones((4, 4))), 4)
            for _ in range(1200):
                weight = g.op("Transpose", weight, perm=[1, 0])
            return g.quant(g.op("MatMul", g.quant("x"), weight))
        y = c(g) if op == "Mul" else g.quant("x")
        for _ in range(600):
            y = g.op("Mul", y, g.constant(2.0)) if op == "Mul" else g.quant(g.dense(y, np.ones((4, 4)), scale=0.5))
        return y

    return small(PLANE if op == "Mul" else VECTOR, build)


@pytest.mark.parametrize("op", ["Transpose", "Mul", "MatMul"])
def test_deep_files_are_judged(op: str) -> None:
    found = [f for f in check(_deep(op), default_precision="fixed<1024,700>") if f.kind in BLOCKING]
    assert not found, table(found)


def test_a_need_that_no_type_holds_is_said() -> None:
    tiny = np.array([2.0**-149, 1, 2], dtype=np.float32)
    found = check(
        small(VECTOR, lambda g: g.quant(g.op("Mul", d(g), g.constant(tiny)))), default_precision="fixed<950,900>"
    )
    assert not exact(found)
    assert any("wider than 1024 bits, the most that the C++ takes" in f.reason for f in found), table(found)


def test_a_negative_scale_is_exact_where_the_precision_holds_it(tmp_path: Path) -> None:
    model = small(VECTOR, lambda g: g.quant(d(g), scale=-1.0))
    assert not [f for f in check(model, default_precision=WIDE) if f.kind == "imprecise"]
    assert failure(model, tmp_path / "p") == ""
