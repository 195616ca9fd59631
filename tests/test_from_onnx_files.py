"""The real files of other tools, Brevitas' exports, our own exports read back; imported networks in C simulation."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import core_strategies
import graph_strategies
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from onnx_sources import Source
from strategies import jets_like, nasty_network

from hawq_flow import interpret, to_hls, to_onnx, to_qonnx
from hawq_flow.from_onnx import Imported, ImportRefused, compare, read
from hawq_flow.from_onnx.comparing import run_original
from hawq_flow.network import IntegerNetwork, NetworkError
from hawq_flow.numeric import IntType

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
needs_data = pytest.mark.skipif(
    not (DATA / "onnx").is_dir(), reason="the files of other tools, which may not be shipped"
)
FLOAT = "weights are float32, not quantized"
UNDECLARED = "which no quantizer makes integers. Declare its type"


@dataclass(frozen=True)
class Case:
    """A file, the inputs declared for it, and what must come of it: the types of its ops, or refusals by node.

    ``wide``: its sums pass 2^24, where the original's float32 rounds.
    """

    path: str
    inputs: dict[str, str] = field(default_factory=dict)
    types: tuple[str, ...] = ()
    refusals: tuple[tuple[str, str], ...] = ()
    wide: bool = False

    def __str__(self) -> str:
        return Path(self.path).stem + ("-declared" if self.inputs else "")


_JETS = {"global_in": "ap_fixed<16,6>"}
_MNIST = ("int23", "uint7", "uint7", "int22", "uint7", "uint7", "uint7", "int23")
CASES = [
    Case("hawq_mnist/cnn_4dtem.onnx", types=("int23", "int28", *_MNIST[1:])),
    Case("hawq_mnist/cnn_4dtem_clean.onnx", types=("int23", "int28", *_MNIST[1:])),
    Case("hawq_mnist/cnn_dev.onnx", refusals=(("Conv_9", UNDECLARED),)),
    Case(
        "hawq_mnist/cnn_dev.onnx",
        {"x.1": "fixed<8,8>"},
        ("int19", "int19", "uint18", "int32", "int32", "uint31", "uint31", "int45"),
        wide=True,
    ),
    Case(
        "hls4ml_example_models/conv2d_small_mp_keras.onnx",
        refusals=(
            ("Conv2D_1", FLOAT),
            ("Conv2D_2", FLOAT),
            ("Gemm_biased_tensor_name", FLOAT),
            ("Gemm_biased_tensor_name1", FLOAT),
        ),
    ),
    Case(
        "hls4ml_example_models/three_layer_bn_pytorch.onnx",
        refusals=tuple((f"Gemm_{n}", FLOAT) for n in (29, 34, 39, 44)),
    ),
    Case(
        "hls4ml_example_models/three_layer_pytorch.onnx", refusals=tuple((f"Gemm_{n}", FLOAT) for n in (9, 11, 13, 15))
    ),
    Case("model_zoo/TFC_1W2A.onnx", types=("int2n", "int11", "int2n", "int8", "int2n", "int8", "int2n", "int8")),
    Case("model_zoo/TFC_2W2A.onnx", types=("int2n", "int10", "int2n", "int8", "int2n", "int7", "int2n", "int8")),
    Case("model_zoo/qkeras_jettagging.onnx", refusals=(("MatMul_0", UNDECLARED),)),
    Case("model_zoo/qkeras_jettagging.onnx", _JETS, ("int24", "uint6", "int15", "uint6", "int15", "uint6", "int16")),
    Case("qonnx_repo/eltwise_chanlast_testcase.onnx", refusals=(("Conv_0", UNDECLARED),)),
    Case("qonnx_repo/eltwise_chanlast_testcase.onnx", {"global_in": "ufixed<8,8>"}, ("int20", "int22", "uint4")),
    Case(
        "qonnx_repo/residual_block_clean.onnx",
        {"global_in": "ufixed<8,0>"},
        refusals=(("Conv_2", "pads with real zero"),),
    ),
    Case("qonnx_repo/residual_block_clean.onnx", refusals=(("Conv_0", UNDECLARED),)),
    Case("qonnx_repo/tests__model_test_qkeras_qactivation_0.onnx", types=("uint8",)),
    Case("qonnx_repo/tests__model_test_qkeras_qconv2d_0.onnx", refusals=(("Conv_0", UNDECLARED),)),
    Case("qonnx_repo/tests__model_test_qkeras_qconv2d_0.onnx", {"global_in": "fixed<8,1>"}, ("int19",)),
    Case("qonnx_repo/tests__model_test_qkeras_qdense2_0.onnx", types=("int17", "int28")),
    Case("qonnx_repo/tests__model_test_qkeras_qdense_0.onnx", refusals=(("MatMul_0", UNDECLARED),)),
    Case("qonnx_repo/tests__model_test_qkeras_qdense_0.onnx", _JETS, ("int27", "uint6", "int18")),
    Case("qonnx_repo/tests__model_test_qkeras_qdense_1.onnx", refusals=(("MatMul_0", UNDECLARED),)),
    Case("qonnx_repo/tests__model_test_qkeras_qdense_1.onnx", _JETS, ("int27", "uint6", "int18")),
]


def rows_like(result: Imported, rows: int) -> np.ndarray:
    shape = result.inputs[0].shape
    rng = np.random.default_rng(0)
    if result.network.inputs[0].type == IntType(8, signed=False) and len(shape) > 1:
        return rng.integers(0, 256, (2, *shape))  # an image of 224 x 224
    return rng.uniform(0, 1, (rows, *shape)) if len(shape) > 1 else rng.normal(0, 2, (rows, *shape))


@needs_data
@pytest.mark.parametrize("case", CASES, ids=str)
def test_real_files(case: Case) -> None:
    path = DATA / "onnx" / case.path
    if case.refusals:
        with pytest.raises(ImportRefused) as caught:
            read(path, inputs=case.inputs)
        assert [refusal.node for refusal in caught.value.refusals] == [node for node, _ in case.refusals]
        for refusal, (_, reason) in zip(caught.value.refusals, case.refusals, strict=True):
            assert reason in refusal.reason
        return
    result = read(path, inputs=case.inputs)
    assert result.snaps == ()
    assert tuple(str(result.network.values[op.name].type) for op in result.network.ops) == case.types
    found = compare(result, rows_like(result, 24))
    for entry in found["outputs"].values():
        assert not entry["argmax_differ"], entry
        if case.wide:
            assert entry["differ"] > 0
            assert "float32" in entry["note"]
        else:
            assert entry["differ"] == 0, entry


@needs_data
def test_the_accuracy_of_the_jet_tagger_is_reproduced() -> None:
    """100 real jets, standardized: the original in float32 on the raw features, ours on ap_fixed<16,6>."""
    result = read(DATA / "onnx/model_zoo/qkeras_jettagging.onnx", inputs=_JETS)
    x = np.loadtxt(DATA / "jets/hlf_100_features.dat")
    labels = np.loadtxt(DATA / "jets/hlf_100_labels_gqtwz.txt").astype(int)
    original, executor = run_original(result.original, {"global_in": x.astype(np.float32)}, ["global_out"])
    ours = interpret.run(result.network, result.integers(x))
    assert executor == "qonnx executor, float32"
    assert (original["global_out"].argmax(1) == labels).mean() == 0.74
    assert (ours.argmax(1) == labels).mean() == 0.74
    assert compare(result, x)["outputs"]["global_out"]["differ"] == 0


# --- our own exports read back ----------------------------------------------------------------------------------------


def assert_round_trip(network: IntegerNetwork, model: onnx.ModelProto | None = None) -> Imported:
    result = read(model or to_qonnx.export(network))
    rng = np.random.default_rng(0)
    given = {}
    for spec in network.inputs:
        low, high = spec.type.low(len(spec.shape)), spec.type.high(len(spec.shape))
        given[spec.name] = rng.integers(low, high + 1, (12, *spec.shape))
    expected = interpret.trace(network, given)
    x = result.integers(given)
    real = result.real(interpret.trace(result.network, x))
    for output in network.outputs:
        np.testing.assert_array_equal(real[output.name], expected[output.name], err_msg=output.name)
    return result


@pytest.mark.parametrize("network", [jets_like(), nasty_network()], ids=["jets", "nasty"])
def test_our_qonnx_is_read_back(network: IntegerNetwork) -> None:
    result = assert_round_trip(network)
    assert len(result.network.ops) <= len(network.ops) + 1


@pytest.mark.parametrize("network", [jets_like(), nasty_network()], ids=["jets", "nasty"])
def test_our_pre_quantized_onnx_is_read_back(network: IntegerNetwork) -> None:
    """Integer inputs with their true width in the metadata, MatMulInteger, Mul, Round, Clip, Cast."""
    result = assert_round_trip(network, to_onnx.export(network))
    assert result.network.inputs[0].type == network.inputs[0].type


def test_our_jet_network_is_read_back_op_by_op() -> None:
    network = jets_like()
    back = assert_round_trip(network).network
    (spec,) = network.inputs
    x = np.random.default_rng(1).integers(spec.type.low(), spec.type.high() + 1, (12, *spec.shape))
    theirs, ours = interpret.trace(back, x), interpret.trace(network, x)
    pairs = zip(network.ops, back.ops, strict=True)
    for op, read_op in pairs:
        assert op.kind == read_op.kind
        np.testing.assert_array_equal(theirs[read_op.name], ours[op.name], err_msg=op.name)


def _sayable(network: IntegerNetwork) -> bool:
    try:
        to_qonnx.check(network)
    except NetworkError:
        return False
    return True


@settings(max_examples=5)
@given(graph_strategies.expressible_graphs())
def test_any_exported_graph_is_read_back(network: IntegerNetwork) -> None:
    if _sayable(network):
        assert_round_trip(network)


@settings(max_examples=5)
@given(core_strategies.graphs())
def test_any_graph_of_all_ops_is_read_back(network: IntegerNetwork) -> None:
    if _sayable(network):
        assert_round_trip(network)


@pytest.mark.slow
@settings(max_examples=200)
@given(graph_strategies.expressible_graphs())
def test_many_exported_graphs_are_read_back(network: IntegerNetwork) -> None:
    if _sayable(network):
        assert_round_trip(network)


# --- Brevitas ---------------------------------------------------------------------------------------------------------

needs_brevitas = pytest.mark.skipif(
    importlib.util.find_spec("brevitas") is None or importlib.util.find_spec("onnxoptimizer") is None,
    reason="brevitas (extra `bench`) or onnxoptimizer, which its export needs, is not installed",
)


def brevitas_model(kind: str) -> tuple[Any, tuple[int, ...]]:
    """A small Brevitas network in evaluation mode, its observers having seen some data, and its input's shape."""
    import torch
    from brevitas import nn as qnn
    from brevitas import quant
    from torch import nn

    torch.manual_seed(0)
    bias = None if kind in ("float_bias", "shifted", "bipolar") else quant.Int32Bias
    act = quant.ShiftedUint8ActPerTensorFloat if kind == "shifted" else quant.Uint8ActPerTensorFloat
    if kind == "bipolar":
        act, weight, width = quant.SignedBinaryActPerTensorConst, quant.SignedBinaryWeightPerTensorConst, 1
    else:
        weight, width = quant.Int8WeightPerChannelFloat, 4
    shared: dict[str, Any] = {"weight_quant": weight, "weight_bit_width": width, "bias_quant": bias}
    shared["return_quant_tensor"] = bias is not None
    relu: dict[str, Any] = {"act_quant": act, "bit_width": 1 if kind == "bipolar" else 6, "return_quant_tensor": True}
    if kind == "cnn":
        shape: tuple[int, ...] = (2, 8, 8)
        layers: list[nn.Module] = [
            qnn.QuantIdentity(bit_width=8, return_quant_tensor=True),
            qnn.QuantConv2d(2, 6, 3, padding=1, bias=True, **shared),
            nn.BatchNorm2d(6),
            qnn.QuantReLU(**relu),
            nn.MaxPool2d(2),
            qnn.QuantConv2d(6, 8, 3, stride=2, padding=1, bias=True, **shared),
            qnn.QuantReLU(**relu),
            nn.Flatten(),
            qnn.QuantLinear(32, 4, bias=True, weight_bit_width=8, bias_quant=bias),
        ]
    else:
        shape = (16,)
        layers = [
            qnn.QuantIdentity(bit_width=8, return_quant_tensor=True),
            qnn.QuantLinear(16, 24, bias=True, **shared),
            qnn.QuantReLU(**relu),
            qnn.QuantLinear(24, 5, bias=True, **shared),
        ]
    model = nn.Sequential(*layers).train()
    for _ in range(4):
        model(torch.randn(64, *shape))
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.weight.data.copy_(torch.randn_like(module.weight))  # negative factors too
            module.bias.data.copy_(0.3 * torch.randn_like(module.bias))
    return model.eval(), shape


@needs_brevitas
@pytest.mark.filterwarnings("ignore")  # Brevitas and torch's older exporter warn of each other
@pytest.mark.parametrize("form", ["qonnx", "qcdq"])
@pytest.mark.parametrize("kind", ["mlp", "float_bias", "shifted", "bipolar", "cnn"])
def test_brevitas_exports(kind: str, form: str, tmp_path: Path) -> None:
    import torch
    from brevitas.export import export_onnx_qcdq, export_qonnx

    if (kind, form) == ("bipolar", "qcdq"):
        pytest.skip("Brevitas exports no binary QCDQ")
    model, shape = brevitas_model(kind)
    path = tmp_path / "model.onnx"
    {"qonnx": export_qonnx, "qcdq": export_onnx_qcdq}[form](model, torch.randn(1, *shape), str(path), dynamo=False)
    result = read(path)
    assert result.snaps == ()
    x = np.random.default_rng(0).normal(0, 1, (200, *shape))
    (entry,) = compare(result, x)["outputs"].values()
    assert (entry["differ"], entry["argmax_differ"]) == (0, 0)
    widths = {
        str(v.type) for name, v in result.network.values.items() if name in {s.name for s in result.network.inputs}
    }
    assert widths <= {"int8", "uint8", "int8n"}


# --- C simulation -----------------------------------------------------------------------------------------------------


def assert_csim_equal(network: IntegerNetwork, folder: Path, rows: int = 60) -> None:
    project = to_hls.write_project(network, folder / "project", to_hls.HlsConfig())
    csim = to_hls.compile_csim(project, folder / "build")
    spec = network.inputs[0]
    x = np.random.default_rng(0).integers(spec.type.low(), spec.type.high() + 1, (rows, *spec.shape))
    expected = interpret.trace(network, x)
    for name, values in csim.run(x).items():
        np.testing.assert_array_equal(values, expected[name], err_msg=name)


@pytest.mark.slow
def test_an_imported_network_with_a_fine_bias_runs_in_c_simulation(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    s = Source()
    y = s.node("MatMul", [s.quant("x", 0.037, 8), s.weights(rng.integers(-7, 8, (6, 5)), 0.021, 4)])
    y = s.node("Add", [y, s.const(rng.normal(0, 0.1, 5))])
    y = s.quant(s.node("Relu", [y]), 0.043, 8, signed=0)
    y = s.node("MatMul", [y, s.weights(rng.integers(-7, 8, (5, 3)), 0.125, 4)])
    network = read(s.model({"x": [6]}, [y])).network
    assert len(network.ops) == 4
    assert_csim_equal(network, tmp_path)


@needs_data
@pytest.mark.slow
def test_the_jet_tagger_runs_in_c_simulation(tmp_path: Path) -> None:
    assert_csim_equal(read(DATA / "onnx/model_zoo/qkeras_jettagging.onnx", inputs=_JETS).network, tmp_path)
