"""Convolutions, pools, residual sums and concatenations in hls4ml: exact in C simulation, or refused by name."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from hls_networks import S8, STREAM_GROUPS, U6, lines, planes, requantize, shared_sums
from strategies import rows_for

from hawq_flow import equality, interpret, to_hls
from hawq_flow.network import (
    Add,
    Concat,
    Conv,
    Dense,
    InputSpec,
    IntegerNetwork,
    Lookup,
    MaxPool,
    Multiply,
    Op,
    OutputSpec,
    ReduceMax,
    ReduceSum,
    Reshape,
    Subtract,
    SumPool,
)
from hawq_flow.numeric import IntType
from hawq_flow.to_hls import HlsConfig, Layout, ProjectError
from hawq_flow.to_hls.fixed import FixedType
from hawq_flow.to_hls.project import _check_plumbing
from hawq_flow.to_qonnx import NotExact


def assert_csim_equal(
    network: IntegerNetwork, folder: Path, config: HlsConfig, *, traced: bool = False, seed: int = 0
) -> to_hls.Csim:
    """Outputs (``traced``: every value) of the C simulation are the reference's, on about a hundred rows."""
    project = to_hls.write_project(network, folder / "project", config)
    csim = to_hls.compile_csim(project, folder / "build", traced=traced)
    x = rows_for(network, seed, rows=30)
    expected = interpret.reference(network, x)
    got = csim.trace(x) if traced else csim.run(x)
    assert set(got) == ({op.name for op in network.ops} if traced else {o.name for o in network.outputs})
    for name, values in got.items():
        np.testing.assert_array_equal(values, expected[name], err_msg=name)
    assert sum(np.ptp(expected[o.name]) == 0 for o in network.outputs) <= 1, "constant outputs compare nothing"
    return csim


def image(ops: Sequence[Op], outputs: Sequence[str] = (), type: IntType = S8) -> IntegerNetwork:
    """Ops on an input x of (3, 5, 7)."""
    names = outputs or [ops[-1].name]
    return IntegerNetwork((InputSpec("x", (3, 5, 7), type),), tuple(ops), tuple(OutputSpec(name) for name in names))


def ones(name: str, operand: str, *shape: int, groups: int = 1, padding: int = 0, stride: int = 1) -> Conv:
    rank = len(shape) - 2
    bias = np.zeros(shape[0], np.int64)
    return Conv(name, operand, np.ones(shape, np.int64), bias, (stride,) * rank, (padding,) * 2 * rank, groups)


def classifier(bits: int = 5) -> IntegerNetwork:
    """conv -> pool -> conv -> flatten -> dense on (2, 5, 7), with multipliers of few bits: errors of one unit show."""
    rng = np.random.default_rng(0)
    s = 1 << (bits - 1)
    ops: list[Op] = [
        Conv("conv1", "x", rng.integers(-7, 8, (4, 2, 3, 3)), rng.integers(-99, 99, 4), (1, 1), (1, 1, 1, 1)),
        requantize("act1", "conv1", rng.integers(s, 2 * s, 4), bits + 5, 0, U6),
        MaxPool("pool1", "act1", (2, 3), (2, 3), (0, 0, 0, 0)),
        Conv("conv2", "pool1", rng.integers(-7, 8, (3, 4, 2, 1)), rng.integers(-99, 99, 3), (1, 1), (0, 0, 0, 0)),
        requantize("act2", "conv2", rng.integers(s, 2 * s, 3), bits + 3, 0, U6),
        Reshape("flat", "act2", (6,)),
        Dense("fc", "flat", rng.integers(-7, 8, (3, 6)), rng.integers(-99, 99, 3), layer="fc"),
    ]
    return IntegerNetwork((InputSpec("x", (2, 5, 7), S8),), tuple(ops), (OutputSpec("fc"),))


# --- exactness -------------------------------------------------------------------------------------------------------


def test_two_dimensional_layers_side_by_side(tmp_path: Path) -> None:
    assert_csim_equal(planes(), tmp_path, HlsConfig(backend="Vivado"))


@pytest.mark.parametrize("io_type", ["io_parallel", pytest.param("io_stream", marks=pytest.mark.slow)])
def test_sums_that_are_shared_reshaped_and_added(tmp_path: Path, io_type: str) -> None:
    network = shared_sums()
    assert_csim_equal(network, tmp_path, HlsConfig(io_type=io_type), traced=True)
    # What lies between two added sums is part of the dense layer; a bias of zeros is no layer.
    names = [layer.name for layer in to_hls.design(network).layers]
    found = [name for name in names if "left" in name or "lone" in name]
    assert found == ["Dense_lone", "bn_lone_offset_shifted", "Dense_left_matmul", "left_cast_act"]


@pytest.mark.slow
@pytest.mark.parametrize("group", [0, 1, 2])
def test_two_dimensional_layers_on_streams(tmp_path: Path, group: int) -> None:
    assert_csim_equal(planes(*STREAM_GROUPS[group]), tmp_path, HlsConfig(io_type="io_stream"), traced=True)


def test_one_dimensional_layers_on_streams_with_the_resource_strategy(tmp_path: Path) -> None:
    config = HlsConfig(io_type="io_stream", strategy="Resource", reuse_factor=3)
    layers = assert_csim_equal(lines(stream=True), tmp_path, config).manifest["layers"]
    assert layers["Conv1D_stem"] | {"strategy": "Resource", "reuse_factor": 3} == layers["Conv1D_stem"]
    # Four products an output: the nearest divisor. hls4ml itself would lose its choice for a pointwise convolution.
    assert layers["Conv1D_pointwise"]["reuse_factor"] == 2
    assert layers["DepthwiseConv1D_depthwise"]["strategy"] == "Latency"


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["Vitis", "Vivado"])
@pytest.mark.parametrize("io_type", ["io_parallel", "io_stream"])
@pytest.mark.parametrize(
    ("strategy", "reuse_factor"), [("Latency", 1), ("Latency", 4), ("Resource", 1), ("Resource", 3), ("Resource", 16)]
)
def test_every_form_of_hardware_is_exact(
    tmp_path: Path, backend: str, io_type: str, strategy: str, reuse_factor: int
) -> None:
    config = HlsConfig(backend=backend, io_type=io_type, strategy=strategy, reuse_factor=reuse_factor)
    if io_type == "io_parallel":
        networks = [planes(), lines()]
    else:
        networks = [*(planes(*group) for group in STREAM_GROUPS), lines(stream=True)]
    for number, network in enumerate(networks):
        assert_csim_equal(network, tmp_path / str(number), config, seed=number)


@pytest.mark.slow
def test_every_value_of_every_layer_comes_back_in_the_networks_order(tmp_path: Path) -> None:
    assert_csim_equal(planes(), tmp_path / "planes", HlsConfig(), traced=True)
    assert_csim_equal(lines(), tmp_path / "lines", HlsConfig(), traced=True)


@pytest.mark.slow
def test_a_grown_map_read_twice_on_a_stream(tmp_path: Path) -> None:
    """hls4ml would copy the reshaped stream in its default type, ap_fixed<16,6>."""
    rng = np.random.default_rng(1)
    ops: list[Op] = [
        Dense("fc", "x", rng.integers(-7, 8, (12, 5)), rng.integers(-7, 8, 12)),
        requantize("act", "fc", 1, 2, 0, IntType(12, True), rank=1),
        Reshape("map", "act", (2, 2, 3)),
        Conv("a", "map", rng.integers(-7, 8, (2, 2, 2, 2)), np.array([5, -3]), (1, 1), (1, 0, 0, 1)),
        Conv("b", "map", rng.integers(-7, 8, (2, 2, 1, 1)), np.array([5, -3]), (1, 1), (0, 0, 0, 0)),
    ]
    network = IntegerNetwork((InputSpec("x", (5,), S8),), tuple(ops), (OutputSpec("a"), OutputSpec("b")))
    assert_csim_equal(network, tmp_path, HlsConfig(io_type="io_stream"), traced=True)


# --- errors are found -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier's project that no test changes."""
    return to_hls.write_project(classifier(), tmp_path_factory.mktemp("classifier") / "project", HlsConfig())


def edited(project: Path, folder: Path, layer: str, prefix: str) -> Path:
    """A copy of the project in which one constant of a layer's written array is larger by one."""
    copy = folder / "copy"
    subprocess.run(["cp", "-r", project, copy], check=True)
    variable = to_hls.read_manifest(copy)["layers"][layer]["variable"]
    header = copy / "firmware" / "weights" / f"{prefix}{re.sub('[^0-9]', '', variable)}.h"
    before, brace, values = header.read_text().partition("] = {")
    numbers = values.split(",")
    numbers[0] = str(float(numbers[0]) + (1 if prefix == "w" else 2.0**-8))
    header.write_text(before + brace + ",".join(numbers))
    return copy


@pytest.mark.parametrize(
    ("layer", "prefix", "value"),
    [
        ("Conv2D_conv2", "w", "conv2"),
        pytest.param("act1_scaled", "s", "act1", marks=pytest.mark.slow),
    ],
)
def test_a_constant_edited_in_the_written_firmware_is_found_and_named(
    project: Path, tmp_path: Path, layer: str, prefix: str, value: str
) -> None:
    network = classifier()
    x = rows_for(network, rows=100)
    copy = edited(project, tmp_path, layer, prefix)
    certificate = equality.certify(network, x, {"csim": equality.csim_backend(copy, tmp_path / "build")})
    first = certificate["backends"]["csim"]["first_mismatch"]
    assert first["layer"] == value
    assert first["element"][0] == 0  # the first constant is the first channel's, wherever channels are
    assert first["expected"] == interpret.trace(network, x)[value][(first["row"], *first["element"])]
    if prefix == "w":  # one weight more by one: the difference is the number it multiplies
        _, *position = first["element"]
        seen = interpret.trace(network, x)["pool1"][first["row"], 0]
        assert first["got"] - first["expected"] == seen[tuple(position)]


def test_a_layer_of_another_shape_or_constant_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = to_hls.design

    def wrong(network: IntegerNetwork, config: HlsConfig) -> to_hls.Design:
        plan = right(network, config)
        layers = [
            dataclasses.replace(
                layer, constants={**layer.constants, "weight": layer.constants["weight"].swapaxes(0, 1)}
            )
            if layer.name == "Conv2D_conv1"
            else layer
            for layer in plan.layers
        ]
        return dataclasses.replace(plan, layers=tuple(layers))

    monkeypatch.setattr("hawq_flow.to_hls.project.design", wrong)
    with pytest.raises(ProjectError, match="Conv2D_conv1: hls4ml holds a weight of 72 values"):
        to_hls.write_project(classifier(), tmp_path / "a")


def test_a_told_reuse_factor_that_is_not_taken_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hawq_flow.to_hls.layers._resource", lambda *_, **__: {"ReuseFactor": 5})
    with pytest.raises(
        ProjectError, match=r"Conv2D_conv1: hls4ml took .*'ReuseFactor': 6.*expected {'ReuseFactor': 5}"
    ):
        to_hls.write_project(classifier(), tmp_path / "a", HlsConfig(strategy="Resource", reuse_factor=5))


# --- orders ----------------------------------------------------------------------------------------------------------


def test_a_layout_is_what_its_document_says() -> None:
    x = np.arange(2 * 30).reshape(2, 2, 3, 5)
    layout = Layout.of((2, 3, 5))
    np.testing.assert_array_equal(layout.to_firmware(x), x.transpose(0, 2, 3, 1).reshape(2, -1))
    np.testing.assert_array_equal(layout.to_network(layout.to_firmware(x)), x.reshape(2, -1))
    assert layout.document == [{"shape": [2, 3, 5], "axes": [1, 2, 0]}]
    assert Layout.read(layout.document) == layout
    assert layout.words((2, 3, 5)) == (
        "channels last, batch excluded: C order of (3, 5, 2): the network's (2, 3, 5) transposed by (1, 2, 0)"
    )
    joined = Layout.joined([layout, Layout.of((4,))])
    both = np.concatenate([x.reshape(2, -1), -np.ones((2, 4), int)], axis=1)
    np.testing.assert_array_equal(joined.to_firmware(both)[:, :30], layout.to_firmware(x))
    np.testing.assert_array_equal(joined.to_network(joined.to_firmware(both)), both)
    assert joined.words((34,)).startswith("piece by piece: C order of (3, 5, 2)")
    assert Layout.of((1, 3, 5)).same  # one channel: both orders are one
    assert Layout.of((7, 1, 1)).words((7, 1, 1)) == "C order of (7, 1, 1), batch excluded, as in the network"
    assert not layout.equals(Layout.of((30,)))


def test_the_port_is_channels_last_and_says_so(project: Path) -> None:
    network, manifest = classifier(), to_hls.read_manifest(project)
    port = manifest["inputs"][0]
    assert port["shape"] == [2, 5, 7]
    assert port["layout"] == [{"shape": [2, 5, 7], "axes": [1, 2, 0]}]
    sentence = "channels last, batch excluded: C order of (5, 7, 2): the network's (2, 5, 7) transposed by (1, 2, 0)"
    assert port["order"] == sentence
    readme = (project / "README.md").read_text()
    assert f"| input `x` | x | 70 | {sentence} | int8" in readme
    assert "x.reshape(shape).transpose(axes).ravel()" in readme
    # The formulas that the README prints, on one sample.
    forth = re.search(r"`port = (x\..*?)`", readme)
    back = re.search(r"`y = (port\..*?)`", readme)
    assert forth is not None
    assert back is not None
    sample = np.arange(70).reshape(2, 5, 7)
    names = {"x": sample, "numpy": np, **port["layout"][0]}
    names["port"] = eval(forth[1], names)
    np.testing.assert_array_equal(names["port"], Layout.read(port["layout"]).to_firmware(sample[None])[0])
    np.testing.assert_array_equal(eval(back[1], names), sample)
    # The vectors are in the port's order, and the golden rows are the network's answers to them.
    rows = np.loadtxt(project / "tb_data" / "tb_input_features.dat", dtype=np.int64)
    x = rows.reshape(-1, 5, 7, 2).transpose(0, 3, 1, 2)
    golden = np.loadtxt(project / "tb_data" / "tb_output_predictions.dat", dtype=np.int64)
    np.testing.assert_array_equal(golden, interpret.run(network, x))


def test_the_graph_for_hls4ml_has_no_transpose(project: Path) -> None:
    model = onnx.load(project / "hls4ml_model.onnx")
    kinds = {node.op_type for node in model.graph.node}
    assert kinds == {"Add", "BatchNormalization", "Conv", "MatMul", "MaxPool", "Quant", "Reshape"}
    dims = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    assert dims == [1, 5, 7, 2]


def test_multipliers_are_one_a_channel_and_types_are_the_networks(project: Path) -> None:
    network, layers = classifier(), to_hls.read_manifest(project)["layers"]
    assert layers["Conv2D_conv1"]["types"] == {
        "weight": "ap_fixed<4,4>",
        "bias": str(FixedType.holding(conv_of(network, "conv1").bias)),
        "accum": f"ap_fixed<{network.values['conv1'].type.bits},{network.values['conv1'].type.bits}>",
        "result": f"ap_fixed<{network.values['conv1'].type.bits},{network.values['conv1'].type.bits}>",
    }
    assert layers["act1_scaled"]["types"]["result"] == "ap_ufixed<6,6,AP_RND_CONV,AP_SAT,0>"
    number = re.sub("[^0-9]", "", layers["act1_scaled"]["variable"])
    text = (project / "firmware" / "weights" / f"s{number}.h").read_text()
    assert f"s{number}[4]" in text  # not one for each of 4 * 5 * 7 elements


def conv_of(network: IntegerNetwork, name: str) -> Conv:
    op = network.op(name)
    assert isinstance(op, Conv)
    return op


def test_names_that_hls4ml_would_make_again_are_avoided() -> None:
    """The Quant of 'cut' becomes a layer called 'cut_act', which here is a value of the network too."""
    plan = to_hls.design(planes("narrow"))
    names = [layer.name for layer in plan.layers]
    assert len({name.lower() for name in names}) == len(names)
    assert plan.values["cut_act"].tensor == "cut_act_2"


def test_a_cast_that_changes_nothing_is_no_layer() -> None:
    plan = to_hls.design(planes("elements"))
    assert plan.values["same"].tensor == plan.values["stem_act"].tensor
    assert "cast_act" in [layer.name for layer in plan.layers]


# --- refusals --------------------------------------------------------------------------------------------------------

_CONV = ones("conv", "x", 4, 3, 3, 3)
_ACT = requantize("act", "conv", 1, 5, 0, S8)


def _values(*ops: Op) -> list[Op]:
    return [_CONV, _ACT, *ops]


@pytest.mark.parametrize(
    ("network", "io_type", "text"),
    [
        (
            image([Concat("wide", ("x", "x")), ones("grouped", "wide", 6, 3, 3, 3, groups=2)]),
            "io_parallel",
            r"grouped: 6 outputs in 2 groups of 3 input channels; .*groups = 1.*leave this network to QONNX",
        ),
        (
            image([ones("twofold", "x", 6, 1, 3, 3, groups=3)]),
            "io_parallel",
            r"twofold: 6 outputs in 3 groups of 1 input channels; .*each by itself with one output",
        ),
        (
            image([MaxPool("pool", "x", (3, 3), (2, 2), (0, 0, 0, 0))]),
            "io_stream",
            r"pool: windows of \(3, 3\) with stride \(2, 2\); .*stride = kernel\)\. Use io_parallel",
        ),
        (
            image(_values(ReduceMax("most", "act", 0), Subtract("less", "act", "most"))),
            "io_parallel",
            r"most: ReduceMax has no form in hls4ml\. It is mostly part of a softmax: end the network on the values",
        ),
        (image(_values(ReduceSum("all", "act", 1))), "io_parallel", "all: ReduceSum has no form"),
        (image(_values(Subtract("less", "act", "act"))), "io_parallel", "less: Subtract has no bit-exact form here"),
        (image(_values(Multiply("gate", "act", "act"))), "io_parallel", "gate: Multiply has no bit-exact form here"),
        (
            image(_values(SumPool("mean", "act", (3, 5), (1, 1), (0, 0, 0, 0)), Add("sum", ("act", "mean")))),
            "io_parallel",
            r"sum: operands of shapes \(4, 3, 5\), \(4, 1, 1\); hls4ml adds equal shapes\. Upsample the smaller",
        ),
        (
            image(_values(Reshape("turned", "act", (3, 4, 5)), ones("after", "turned", 2, 3, 1, 1))),
            "io_parallel",
            r"turned: \(4, 3, 5\) to \(3, 4, 5\); hls4ml computes channels last, where this would move elements\.",
        ),
        (
            image(
                _values(
                    Reshape("flat", "act", (60,)),
                    Dense("fc", "flat", np.eye(60, dtype=np.int64), np.zeros(60, np.int64)),
                    Add("sum", ("flat", "fc")),
                )
            ),
            "io_parallel",
            r"sum: its operands lie in different orders in the firmware .*put a dense layer behind each",
        ),
        (
            image([requantize("wide", "x", 1, 0, 0, IntType(20, True)), Lookup("table", "wide", np.arange(256), -128)]),
            "io_parallel",
            r"table: looks up a value of 20 bits \(ap_fixed<20,20.*Requantize its input to fewer bits",
        ),
        (
            image(_values(Reshape("flat", "act", (60,))), ("act", "flat")),
            "io_parallel",
            r"output 'flat' has the integers of 'act', at most in another shape; .*List one of them",
        ),
        (
            image(
                _values(
                    SumPool("mean", "act", (3, 5), (1, 1), (0, 0, 0, 0)),
                    Reshape("line", "mean", (2, 2)),
                    ones("wise", "line", 2, 1, 1, groups=2),
                )
            ),
            "io_parallel",
            r"wise: a depthwise convolution or sum pool in one dimension, beside mean in two; .*does not compile",
        ),
    ],
)
def test_refused(tmp_path: Path, network: IntegerNetwork, io_type: str, text: str) -> None:
    with pytest.raises(NotExact, match=text):
        to_hls.write_project(network, tmp_path / "p", HlsConfig(io_type=io_type))
    assert list(tmp_path.iterdir()) == []


# --- what may go wrong around hls4ml ---------------------------------------------------------------------------------


def test_a_stream_copied_into_another_type_is_noticed() -> None:
    def variable(text: str) -> SimpleNamespace:
        precision = SimpleNamespace(definition_cpp=lambda: text)
        return SimpleNamespace(type=SimpleNamespace(precision=precision))

    made = SimpleNamespace(
        class_name="Clone",
        name="clone_a",
        get_input_variable=lambda: variable("ap_fixed<8,8>"),
        get_variables=lambda: [variable("ap_fixed<8,8>"), variable("ap_fixed<16,6>")],
    )
    with pytest.raises(ProjectError, match=r"clone_a: .* copies a stream of ap_fixed<8,8> into one of ap_fixed<16,6>"):
        _check_plumbing(made)


def test_a_stream_that_runs_dry_is_an_error_that_says_so(project: Path, tmp_path: Path) -> None:
    program = tmp_path / "csim"
    program.write_text('#!/bin/sh\necho "1 2 3"; echo "WARNING: Hls::stream \'layer5_out\' is read while empty"\n')
    program.chmod(0o755)
    csim = to_hls.Csim(program, to_hls.read_manifest(project), (("output fc", 3),), 0.0)
    text = r"something else than integers: \"WARNING: Hls::stream 'layer5_out' is read while empty\"\. A stream read"
    with pytest.raises(ProjectError, match=text):
        csim.run(rows_for(classifier()))


def test_a_project_of_an_earlier_format_is_refused(project: Path, tmp_path: Path) -> None:
    manifest = to_hls.read_manifest(project) | {"version": 1}
    (tmp_path / "hawq_flow.json").write_text(json.dumps(manifest))
    with pytest.raises(ProjectError, match=r"version 1; expected 'hawq_flow.hls' version 2; write the project again"):
        to_hls.read_manifest(tmp_path)
