"""Repairs: what stock hls4ml refuses or gets wrong becomes an equal model that it imports and computes exactly."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from check_hls_models import PLANE, VECTOR, small
from hls_networks import PARTS, planes
from stock_hls4ml import SHARED, Small, executed, failure, simulated

from hawq_flow import interpret
from hawq_flow.check_hls import RepairRefused, check, for_hls4ml, precision, ready, repair, table, verdict
from hawq_flow.check_hls.findings import BLOCKING
from hawq_flow.from_onnx import ImportRefused
from hawq_flow.network import IntegerNetwork


def brevitas_mlp() -> onnx.ModelProto:
    """Scales for each channel on weights, a quantized input, unsigned activations behind Relu: hls4ml crashes on it."""
    g = Small(1, 6)
    x = g.quant("x", 8, scale=1 / 32)
    for inputs, outputs in ((6, 5), (5, 4)):
        weight = g.constant(g.integers(inputs, outputs) / 16)
        scales = np.array([1, 3, 5, 7, 2][:outputs]).reshape(1, -1) / 64
        product = g.op("MatMul", x, g.quant(weight, 4, narrow=1, scale=scales))
        total = g.op("Add", product, g.constant(g.integers(outputs) * scales.ravel() / 32))
        x = g.quant(g.op("Relu", total), 6, signed=0, scale=1 / 32)
    return g.model(x)


def small_cnn() -> onnx.ModelProto:
    """A convolution with scales for each channel and a bias, a pool, a dense layer with a zero point behind."""
    g = Small(*PLANE)
    x = g.quant("x", 6, scale=1 / 8)
    scales = np.array([1, 3, 5]).reshape(3, 1, 1, 1) / 64
    x = g.conv(x, g.integers(3, 2, 3, 3) * scales, g.constant(scales.ravel() * [2, -5, 1]), scale=scales)
    x = g.quant(g.op("Relu", x), 5, signed=0, scale=[1 / 4])
    x = g.op("Flatten", g.pool(x))
    x = g.op("MatMul", x, g.quant(g.constant(g.integers(6, 4) / 16), 4, scale=1 / 16))
    return g.model(g.quant(x, 8, signed=0, zero=100.0, scale=1 / 8))


@pytest.mark.parametrize("build", [brevitas_mlp, small_cnn])
def test_a_repaired_model_passes_and_imports(build: Any, tmp_path: Path) -> None:
    model = build()
    before = model.SerializeToString()
    assert not ready(check(model))
    assert failure(model, tmp_path / "before") != ""
    repaired, imported = repair(model)
    assert model.SerializeToString() == before
    found = check(repaired)
    assert ready(found), table(found)
    assert precision(found)
    assert verdict(found).startswith("ready with default_precision='fixed<")
    assert failure(repaired, tmp_path / "after") == ""
    (rows,) = _integers(imported.network, 40).values()
    want = interpret.run(imported.network, rows).reshape(len(rows), -1)
    assert np.array_equal(executed(repaired, rows)[0], want)
    assert len(np.unique(want)) > 8  # not all saturated


def _integers(network: IntegerNetwork, n: int) -> dict[str, Any]:
    rng = np.random.default_rng(7)
    return {spec.name: rng.integers(*spec.type.range, (n, *spec.shape), endpoint=True) for spec in network.inputs}


@pytest.mark.slow
@pytest.mark.parametrize("build", [brevitas_mlp, small_cnn])
def test_a_repaired_model_is_exact_in_hls4ml(build: Any, tmp_path: Path) -> None:
    repaired, imported = repair(build())
    rows = _integers(imported.network, 500)
    (x,) = rows.values()
    want = interpret.run(imported.network, x)
    got = simulated(repaired, x, tmp_path / "p", precision=precision(check(repaired)) or "")
    assert not isinstance(got, str), got
    assert np.array_equal(got[0], np.asarray(want).reshape(len(x), -1))
    # and the integers are those of the file's own numbers
    real = imported.rows(rows)
    assert all(np.array_equal(imported.integers(real)[name], rows[name]) for name in rows)


def test_a_repaired_model_says_how_real_numbers_come_and_go() -> None:
    repaired, imported = repair(small_cnn())
    told = {entry.key: entry.value for entry in repaired.metadata_props}
    assert told["hawq_flow.note"].startswith(
        "Inputs and outputs are integers carried in float32. Input: rint((raw - mean)"
    )
    (scale,) = set(np.ravel(json.loads(told["hawq_flow.inputs"])[imported.inputs[0].name]["scale"]))
    assert scale == 1 / 8
    went = json.loads(told["network.origin"])
    assert [entry["source"] for entry in went["inputs"]] == ["x"]
    assert set(np.ravel(went["outputs"][0]["scale"])) == {1 / 8}
    assert went["outputs"][0]["left"] == ""
    assert "real output = scale * (integer - zero_point) + offset" in went["note"]
    assert told["hawq_flow.default_precision"].startswith("fixed<")


def test_a_file_that_integers_cannot_carry_is_refused_by_the_import() -> None:
    with pytest.raises(ImportRefused):
        repair(small(VECTOR, lambda g: g.dense("x")))


def test_a_network_without_a_form_in_hls4ml_is_refused_with_its_findings() -> None:
    model = small(PLANE, lambda g: g.quant(g.pool(g.quant("x"), pads=[1, 1, 0, 0])))
    with pytest.raises(RepairRefused, match="imported exactly, but stock hls4ml has no form for part of it") as caught:
        repair(model)
    assert "Uneven padding not supported" in str(caught.value)
    assert "hawq_flow's own hls4ml projects" in str(caught.value)
    assert {f.kind for f in caught.value.findings} & set(BLOCKING) == {"crash"}


@pytest.mark.parametrize("part", PARTS)
def test_what_is_said_of_our_own_networks_is_true(part: str, tmp_path: Path) -> None:
    """Every kind of operation that hawq_flow exports: ready means that stock hls4ml imports it, and not ready that
    not."""
    whole = planes(part)
    outputs = tuple(entry for entry in whole.outputs if entry.name not in ("stem_act", "flat_act"))
    model = for_hls4ml(IntegerNetwork(whole.inputs, whole.ops, outputs))
    found = [finding for finding in check(model) if finding.kind in BLOCKING]
    happened = failure(model, tmp_path / "p")
    stops = [finding for finding in found if finding.kind != "wrong"]
    assert bool(stops) == bool(happened), f"{happened}\n{table(found)}"
    assert bool(found) == bool(stops) or part == "residual"  # it adds a value to itself


@pytest.mark.slow
@pytest.mark.parametrize("part", ["strided", "pointwise", "depthwise", "narrow", "sum"])
def test_our_own_networks_are_exact_in_stock_hls4ml(part: str, tmp_path: Path) -> None:
    whole = planes(part)
    outputs = tuple(entry for entry in whole.outputs if entry.name not in ("stem_act", "flat_act"))
    network = IntegerNetwork(whole.inputs, whole.ops, outputs)
    model = for_hls4ml(network)
    (x,) = _integers(network, 20).values()
    trace = interpret.trace(network, x)
    got = simulated(model, x, tmp_path / "p", precision=precision(check(model)) or "fixed<16,6>")
    assert not isinstance(got, str), got
    flat = {name: trace[name].reshape(len(x), -1) for name in (entry.name for entry in outputs)}
    unmatched = [
        name for name, want in flat.items() if not any(want.shape == g.shape and (want == g).all() for g in got)
    ]
    assert not unmatched


OUTCOMES = {
    "cnn_4dtem.onnx": ("crash", "Unexpected new precision type"),
    "cnn_4dtem_clean.onnx": ("crash", "Unexpected new precision type"),
    "cnn_dev.onnx": ("", ""),
    "conv2d_small_mp_keras.onnx": ("wrong", ""),
    "three_layer_bn_pytorch.onnx": ("refused", "Unsupported operation type: Unsqueeze"),
    "three_layer_pytorch.onnx": ("wrong", ""),
    "TFC_1W2A.onnx": ("", ""),
    "TFC_2W2A.onnx": ("", ""),
    "qkeras_jettagging.onnx": ("wrong", ""),
    "eltwise_chanlast_testcase.onnx": ("crash", "more dimensions than allowed"),
    "residual_block_clean.onnx": ("crash", "int\\(\\) argument must be"),
    "tests__model_test_qkeras_qactivation_0.onnx": ("crash", ""),
    "tests__model_test_qkeras_qconv2d_0.onnx": ("refused", "Required attribute pads unspecified"),
    "tests__model_test_qkeras_qdense2_0.onnx": ("crash", ""),
    "tests__model_test_qkeras_qdense_0.onnx": ("crash", ""),
    "tests__model_test_qkeras_qdense_1.onnx": ("crash", ""),
}
"""What the preflight says of each file, at worst, and what importing it raises: '' where it imports (and then stops in
C++, is wrong in numbers, or is right up to precision)."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name.startswith(("eltwise", "residual")) else ())
        for name in sorted(OUTCOMES)
    ],
)
def test_files_of_other_tools(name: str, tmp_path: Path) -> None:
    paths = [path for path in SHARED.glob("*/*.onnx") if path.name == name]
    if not paths:
        pytest.skip(f"{name} is not at hand")
    kind, raises = OUTCOMES[name]
    found = check(paths[0])
    worst = [k for k in BLOCKING if any(f.kind == k for f in found)]
    assert (worst or [""])[0] == kind, table(found)
    model = onnx.load(paths[0])
    for info in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        dims = info.type.tensor_type.shape.dim
        if dims and dims[0].dim_value == 789444:  # all rows of a training set: qonnx folds constants of that size
            dims[0].dim_value = 1
    happened = failure(model, tmp_path / "p")
    assert bool(happened) == bool(raises), happened
    if raises:
        assert re.search(raises, happened), happened
