"""The road of an imported file: one folder with network, exports, projects, certificates; and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from hawq_flow import interpret
from hawq_flow.flow.importing import Import, ImportConfig
from hawq_flow.flow.making import FlowError
from hawq_flow.from_onnx import ImportRefused
from hawq_flow.reporter import Reporter
from hawq_flow.to_hls import HlsConfig

DOMAIN = "qonnx.custom_op.general"


class Recorder(Reporter):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.kept: list[str] = []
        self.results: list[str] = []

    def stage(self, name: str, detail: str) -> None:
        self.made.append(detail)

    def reused(self, name: str, detail: str) -> None:
        self.kept.append(detail)

    def result(self, text: str) -> None:
        self.results.append(text)


class Graph:
    """A QONNX file in the making."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, name: str, value: Any) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(value, np.float32), name))
        return name

    def quant(self, x: str, out: str, scale: Any, bits: int, *, signed: int = 1, narrow: int = 0) -> str:
        inputs = [x, *(self.constant(f"{out}_{what}", v) for what, v in (("s", scale), ("z", 0), ("b", bits)))]
        attributes = {"signed": signed, "narrow": narrow, "rounding_mode": "ROUND"}
        self.nodes.append(helper.make_node("Quant", inputs, [out], name=out, domain=DOMAIN, **attributes))
        return out

    def node(self, op: str, inputs: list[str], out: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, [out], name=out, **attributes))
        return out

    def model(self, inputs: dict[str, list[int]], output: str, shape: list[int]) -> onnx.ModelProto:
        def info(name: str, dims: list[int]) -> onnx.ValueInfoProto:
            return helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)

        ends = [info(name, dims) for name, dims in inputs.items()], [info(output, shape)]
        graph = helper.make_graph(self.nodes, "other", *ends, self.constants)
        opsets = [helper.make_opsetid("", 13), helper.make_opsetid(DOMAIN, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8, producer_name="another")


def mlp(quantized_input: bool = True) -> onnx.ModelProto:
    """4-6-3 with scales that are no dyadic numbers, one a channel in the first layer, as Brevitas writes them."""
    rng = np.random.default_rng(5)
    g = Graph()
    x = g.quant("x", "q0", 0.0625, 8) if quantized_input else "x"
    w1 = g.quant(g.constant("w1", rng.normal(0, 1, (4, 6))), "qw1", rng.uniform(0.05, 0.3, (1, 6)), 4, narrow=1)
    g.node("Add", [g.node("MatMul", [x, w1], "m1"), g.constant("b1", rng.normal(0, 1, 6))], "a1")
    g.quant(g.node("Relu", ["a1"], "r1"), "q1", 0.0731, 5, signed=0)
    w2 = g.quant(g.constant("w2", rng.normal(0, 1, (6, 3))), "qw2", 0.117, 3, narrow=1)
    g.node("MatMul", ["q1", w2], "out")
    return g.model({"x": ["n", 4]}, "out", ["n", 3])  # type: ignore[list-item]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("file") / "other.onnx"
    onnx.save(mlp(), path)
    return path


def test_one_folder_with_everything_and_again_nothing_is_made(file: Path, tmp_path: Path) -> None:
    config = ImportConfig(file, rows=60, backends=("Vitis",), hls=HlsConfig(project="other"))
    first, second = Recorder(), Recorder()
    run = Import(config, tmp_path / "run", first)
    run.run()
    assert first.made == [
        "network/model",
        "qonnx/model",
        "model/vitis",
        "onnx/model",
        "equality/model",
        "original/model",
        "report",
    ]
    certificate = run.equality("model").json("equality.json")
    assert certificate["samples"] == 60
    assert {name: entry["mismatches"] for name, entry in certificate["backends"].items()} == dict.fromkeys(
        ["interpreter", "qonnx", "onnx-plain", "onnx-optimized", "onnx-reference", "csim-vitis", "cpp"], 0
    )
    page = (tmp_path / "run/report/import.md").read_text()
    for text in (
        "# Import of other.onnx",
        "Every scale of the file is carried exactly.",
        "| m1 | Dense | 24 | 4 | 8 |",
    ):
        assert text in page
    assert "W 4-3, inputs of layers 8-5" in first.results[0]
    assert (tmp_path / "run/hls/model/vitis/project/hawq_flow.json").is_file()
    Import(config, tmp_path / "run", second).run()
    assert second.made == []
    assert len(second.kept) == len(first.made)


def test_given_data_and_its_labels(file: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(0, 4, (50, 4)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    run = Import(ImportConfig(file, data=tmp_path / "x.npy"), tmp_path / "run")
    network = run.imported.network
    assert np.array_equal(run.integers[network.inputs[0].name], np.clip(np.rint(x / 0.0625), -128, 127))
    real = run.imported.real({s.name: v for s, v in _outputs(run)})["out"]
    labels = real.argmax(1)
    labels[:10] = (labels[:10] + 1) % 3
    np.savez(tmp_path / "xy.npz", x=x, y=labels)
    recorder = Recorder()
    labelled = Import(ImportConfig(file, data=tmp_path / "xy.npz"), tmp_path / "run2", recorder)
    labelled.run()
    assert labelled.original("model").json("original.json")["outputs"]["out"]["accuracy"] == {
        "integers": 0.8,
        "original": 0.8,
    }
    assert "out: accuracy 80.00% in integers, 80.00% of the file" in recorder.results


def _outputs(run: Import) -> Any:
    from hawq_flow.interpret import trace

    values = trace(run.imported.network, run.integers)
    return [(spec, values[spec.name]) for spec in run.imported.network.outputs]


def test_what_cannot_be_carried_is_listed_before_anything_is_made(tmp_path: Path) -> None:
    path = tmp_path / "raw.onnx"
    onnx.save(mlp(quantized_input=False), path)
    with pytest.raises(
        ImportRefused, match=r"(?s)raw.onnx: refused for 1 thing.*m1 \(MatMul\): a layer reads the input"
    ):
        Import(ImportConfig(path), tmp_path / "run").run()
    assert not (tmp_path / "run").exists()
    run = Import(ImportConfig(path, inputs={"x": "ap_fixed<8,4>"}), tmp_path / "run")
    run.run()
    assert str(run.imported.network.inputs[0].type) == "int8"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "no such file; give an .npy of inputs, an .npz with x and, if any, labels y, or a text file"),
        (b"not an array", r"not readable as numbers; give an .npy .* \(ending in .csv, .dat, .txt\)"),
        (
            {"x": np.zeros((3, 4)), "y": np.array(["g", "q", "t"])},
            "labels of <U1 such as .*'g'.*; expected class numbers",
        ),
        ({"x": np.zeros((3, 4)), "y": np.array([0, 1, 3])}, "label 3 for 3 outputs; expected class numbers below"),
        ({"x": np.zeros((3, 4)), "y": np.array([0, 1, -1])}, "expected class numbers, the place of the right output"),
        ({"x": np.array([["a"] * 4])}, "input 'x' is of <U1; expected numbers"),
        ({"x": np.ones((3, 4), complex)}, "input 'x' is of complex128; expected numbers"),
        ({"x": np.full((3, 4), np.nan)}, "NaN"),
        ({"x": np.ones((30, 4))}, "none of its 3 elements varies"),
        ({"z": np.zeros(3)}, "holds z; expected the inputs as x"),
        ({"x": np.zeros((3, 5))}, r"input 'x': rows of shape \(5,\); expected \(4,\)"),
        ({"x": np.zeros((3, 4)), "y": np.zeros(2, int)}, r"labels of shape \(2,\) for 3 rows"),
        ({"x": np.zeros((0, 4))}, "0 rows; expected at least one"),
    ],
)
def test_data_that_is_none(content: Any, text: str, file: Path, tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        np.savez(path, **content)
    with pytest.raises((FlowError, ValueError), match=text):
        Import(ImportConfig(file, data=path), tmp_path / "run").run()


def test_data_and_labels_as_text(file: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(1).normal(0, 4, (20, 4)).round(3)
    np.savetxt(tmp_path / "x.dat", x)
    np.savetxt(tmp_path / "x.csv", x, delimiter=",")
    np.savetxt(tmp_path / "y.txt", np.arange(20) % 3, fmt="%d")
    runs = [
        Import(ImportConfig(file, data=tmp_path / name, labels=tmp_path / "y.txt"), tmp_path / "run")
        for name in ("x.dat", "x.csv")
    ]
    for run in runs:
        assert run.data is not None
        assert np.array_equal(run.data[0]["x"], x)
        assert np.array_equal(run.data[1], np.arange(20) % 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"y.txt without data; labels are of given inputs"):
        ImportConfig(file, labels=tmp_path / "y.txt")
    (tmp_path / "bad.csv").write_text("1,2\n3\n")
    with pytest.raises(FlowError, match=r"bad.csv: not readable as numbers: .*; give an .npy"):
        _ = Import(ImportConfig(file, data=tmp_path / "bad.csv"), tmp_path / "run").data


def test_what_the_integers_need_beside_scales_is_in_every_file(tmp_path: Path) -> None:
    g = Graph()
    x = g.node("Transpose", [g.quant("x", "q0", 0.25, 6)], "t0", perm=[0, 3, 1, 2])
    w = g.quant(g.constant("w", np.random.default_rng(2).normal(0, 1, (3, 2, 1, 1))), "qw", 0.3, 4, narrow=1)
    g.node("Conv", [x, w, g.constant("b", [0.1, -0.25, 0.4])], "c", kernel_shape=[1, 1], pads=[0, 0, 0, 0])
    g.node("Softmax", [g.node("Transpose", ["c"], "t1", perm=[0, 2, 3, 1])], "out", axis=3)
    path = tmp_path / "last.onnx"
    onnx.save(g.model({"x": [1, 2, 3, 2]}, "out", [1, 2, 3, 3]), path)
    run = Import(ImportConfig(path, rows=40, backends=("Vitis",)), tmp_path / "run")
    run.run()
    standard = onnx.load(run.onnx("model").file("model.onnx"))
    told = json.loads({entry.key: entry.value for entry in standard.metadata_props}["network.origin"])
    given, made = told["inputs"][0], told["outputs"][0]
    assert (given["order"], made["order"], made["left"]) == (
        {"transpose": [2, 0, 1]},
        {"transpose": [1, 2, 0]},
        "Softmax",
    )
    rows = run.imported.rows(run.integers)["x"]
    network = run.network("model")
    integers = network.inputs[0].integers(np.transpose(rows, (0, 3, 1, 2)))
    assert np.array_equal(integers, run.integers[network.inputs[0].name])
    output = network.outputs[0]
    result = interpret.run(network, integers)
    real = np.asarray(made["scale"]) * (result - output.zero_point) + np.asarray(made["offset"])
    expected = run.imported.real(result)["out"]
    assert np.array_equal(np.transpose(real, (0, 2, 3, 1)), expected)
    readme = (run.hls("model", "Vitis").path / "project" / "README.md").read_text()
    assert "Imported from `last.onnx` (another), sha256" in readme
    assert "transposed by [2, 0, 1]" in readme
    assert "the file applies Softmax to it, which is not in the firmware" in readme


def test_no_rows_to_draw(file: Path) -> None:
    with pytest.raises(ValueError, match="rows 0; expected 1 or more inputs to draw"):
        ImportConfig(file, rows=0)
