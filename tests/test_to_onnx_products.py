"""Standard ONNX: products of 8-bit integers saturate in no kernel: the rule, the digits, and the rule measured."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from hawq_flow import interpret, to_onnx
from hawq_flow.to_onnx import Dialect, products, saturates, saturating


def test_the_rule_of_saturation() -> None:
    u8, s8 = np.dtype(np.uint8), np.dtype(np.int8)
    assert [saturates(u8, s8, reach) for reach in (1, 64, 65, 128)] == [False, False, True, True]
    assert [saturates(s8, u8, reach) for reach in (64, 128)] == [False, True]
    assert [saturates(s8, s8, reach) for reach in (127, 128)] == [False, True]
    assert not saturates(u8, u8, 255)
    for x, w, most in ((255, 64, True), (255, 65, False), (128, 127, True), (128, 128, False)):
        assert (2 * x * w <= np.iinfo(np.int16).max) is most  # two products in 16 bits, which is what the rule says


def test_products_that_may_saturate_are_found() -> None:
    def model(kind: str, x: int, weight: NDArray[Any]) -> onnx.ModelProto:
        window = {"kernel_shape": [1]} if kind == "ConvInteger" else {}
        shape = ["batch", 2] + [4] * (weight.ndim - 2)
        graph = helper.make_graph(
            [helper.make_node(kind, ["x", "w"], ["y"], name="it", **window)],
            "g",
            [helper.make_tensor_value_info("x", x, shape)],
            [helper.make_tensor_value_info("y", TensorProto.INT32, ["batch", *["n"] * (weight.ndim - 1)])],
            [numpy_helper.from_array(weight, "w")],
        )
        return helper.make_model(graph)

    wide, narrow = np.array([[100], [-3]], np.int8), np.array([[64], [-3]], np.int8)
    assert saturating(model("MatMulInteger", TensorProto.UINT8, wide)) == ["it"]
    assert saturating(model("MatMulInteger", TensorProto.UINT8, narrow)) == []
    assert saturating(model("MatMulInteger", TensorProto.INT8, wide)) == []
    assert saturating(model("MatMulInteger", TensorProto.INT8, np.array([[-128], [1]], np.int8))) == ["it"]
    assert saturating(model("ConvInteger", TensorProto.INT8, np.array([[[1], [2]]], np.uint8))) == ["it"]
    assert saturating(model("ConvInteger", TensorProto.UINT8, np.array([[[200], [2]]], np.uint8))) == []


@pytest.mark.parametrize("low", [0, -(1 << 7), -(1 << 11), -3])
@pytest.mark.parametrize("high", [100, 255, 256, (1 << 20) + 5])
def test_digits_of_operands(low: int, high: int) -> None:
    parts = products.digits(low, high)
    values = np.unique(np.concatenate([[low, high], np.random.default_rng(0).integers(low, high, 99)]))
    total, rest = np.zeros_like(values), values
    for part in parts[:-1]:
        assert (part.dtype, part.reach) == (np.uint8, 255)
        total, rest = total + ((rest & 255) << 8 * part.place), rest >> 8
    assert np.iinfo(parts[-1].dtype).min <= rest.min()
    assert rest.max() <= np.iinfo(parts[-1].dtype).max
    assert np.abs(rest).max() <= parts[-1].reach
    np.testing.assert_array_equal(total + (rest << 8 * parts[-1].place), values)
    assert len(parts) == 1 or not (low >= -128 and high <= (127 if low < 0 else 255))


def test_digits_of_weights() -> None:
    weight = np.concatenate([np.arange(-70000, 70000, 37), [-128, 127, 128, -129, 1 << 40, -(1 << 40)]])
    digits = products.balanced(weight)
    assert all(digit.min() >= -128 and digit.max() <= 127 for digit in digits)
    np.testing.assert_array_equal(sum(digit << 8 * place for place, digit in enumerate(digits)), weight)
    assert len(products.balanced(np.arange(-128, 128))) == 1


@pytest.mark.slow
def test_products_on_a_processor_without_vnni(tmp_path: Path) -> None:
    """The rule by measurement: an emulated processor saturates where the rule says so, and our forms do not."""
    emulator = shutil.which("qemu-x86_64-static") or shutil.which("qemu-x86_64")
    if emulator is None:
        pytest.skip("no qemu-x86_64 (user mode) to emulate a processor without VNNI with")
    from test_to_onnx_ops import every_layer, rows

    network = every_layer()
    for dialect in (Dialect.FLOAT32, Dialect.INTEGER):
        model = to_onnx.export(network, dialect)
        to_onnx.save(to_onnx.traced(model, network), tmp_path / f"{dialect.value}.onnx")
    x = rows(network)
    types = {info.name: helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type) for info in model.graph.input}
    np.savez(tmp_path / "x.npz", **{name: values.astype(types[name]) for name, values in x.items()})
    np.savez(tmp_path / "y.npz", **interpret.reference(network, x))
    script = """
import sys, numpy as np, onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper
folder = sys.argv[1]
x = dict(np.load(folder + "/x.npz")); y = dict(np.load(folder + "/y.npz"))
options = ort.SessionOptions(); options.intra_op_num_threads = 1; options.log_severity_level = 3
def run(model, feed):
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, feed)))
graph = helper.make_graph([helper.make_node("MatMulInteger", ["x", "w"], ["y"])], "g",
    [helper.make_tensor_value_info("x", TensorProto.UINT8, [1, 8])],
    [helper.make_tensor_value_info("y", TensorProto.INT32, [1, 4])],
    [numpy_helper.from_array(np.full((8, 4), 127, np.int8), "w")])
naive = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)]).SerializeToString()
print("naive", run(naive, {"x": np.full((1, 8), 255, np.uint8)})["y"][0, 0])
for dialect in ("float32", "integer"):
    got = run(folder + "/" + dialect + ".onnx", x)
    print(dialect, sum(int((got[name] != y[name]).sum()) for name in got), len(got))
"""
    (tmp_path / "script.py").write_text(script)
    command = [emulator, "-cpu", "Haswell", sys.executable, str(tmp_path / "script.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert int(lines.pop("naive")) < 8 * 255 * 127  # it does saturate
    assert lines == {dialect: f"0 {len(network.ops)}" for dialect in ("float32", "integer")}
