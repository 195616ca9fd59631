"""Stock hls4ml on any ONNX model, along the road that its documentation names; and a builder of the smallest models."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import hls4ml
import numpy as np
import onnx
from numpy.typing import ArrayLike, NDArray
from onnx import helper, numpy_helper
from qonnx.core.modelwrapper import ModelWrapper
from qonnx.core.onnx_exec import execute_onnx
from qonnx.transformation.channels_last import ConvertToChannelsLastAndClean
from qonnx.transformation.gemm_to_matmul import GemmToMatMul
from qonnx.util.cleanup import cleanup_model
from torch import nn

QONNX = "qonnx.custom_op.general"
SHARED = Path(__file__).parents[2] / "shared" / "data" / "onnx"
"""Files of other tools, where they are at hand."""


@contextlib.contextmanager
def _quiet() -> Any:
    """hls4ml and qonnx print and warn."""
    sink = io.StringIO()
    with contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def copied(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy, since qonnx changes what it is given."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def prepared(model: onnx.ModelProto) -> Any:
    """qonnx's cleanup, channels last where a layer has axes, Gemm to MatMul, cleanup."""
    wrapper = cleanup_model(ModelWrapper(copied(model)))
    axes = any(
        node.op_type in ("Conv", "MaxPool")
        or (node.op_type == "BatchNormalization" and len(wrapper.get_tensor_shape(node.input[0])) > 2)
        for node in wrapper.graph.node
    )
    if axes:
        wrapper = wrapper.transform(ConvertToChannelsLastAndClean())
    return cleanup_model(wrapper.transform(GemmToMatMul()))


def converted(
    model: onnx.ModelProto, folder: Path, *, precision: str = "fixed<16,6>", io_type: str = "io_parallel"
) -> Any:
    """hls4ml's graph of a model, with nothing but a default precision told."""
    with _quiet():
        wrapper = prepared(model)
        settings = hls4ml.utils.config_from_onnx_model(
            wrapper, granularity="name", backend="Vitis", default_precision=precision
        )
        return hls4ml.converters.convert_from_onnx_model(
            wrapper, output_dir=str(folder), project_name="p", backend="Vitis", io_type=io_type, hls_config=settings
        )


def failure(model: onnx.ModelProto, folder: Path) -> str:
    """What stock hls4ml raises on a model, or '' if it imports."""
    try:
        converted(model, folder)
    except Exception as error:  # what it raises is what is asked for
        return f"{type(error).__name__}: {error}"
    return ""


def _predicted(graph: Any, rows: NDArray[Any], folder: Path) -> list[NDArray[np.float32]]:
    """Every output (n, elements) of hls4ml's compiled graph."""
    with _quiet():
        graph.write()
        script = folder / "build_lib.sh"  # these models are small: a fast compilation beats a fast program
        script.write_text(script.read_text().replace("-O3", "-O0"))
        graph._compile()
        given = graph.predict(np.ascontiguousarray(rows, dtype=np.float32))
    outputs = given if isinstance(given, list) else [given]
    return [np.asarray(output).reshape(len(rows), -1) for output in outputs]


def of_torch(model: nn.Module, rows: NDArray[Any], folder: Path, precision: str) -> NDArray[np.float32]:
    """The output (n, elements) of a float torch model in one precision throughout, as hls4ml makes it untold."""
    with _quiet():
        settings = hls4ml.utils.config_from_pytorch_model(
            model, rows.shape[1:], granularity="model", default_precision=precision, backend="Vitis"
        )
        graph = hls4ml.converters.convert_from_pytorch_model(
            model, hls_config=settings, output_dir=str(folder), project_name="p", backend="Vitis"
        )
    return _predicted(graph, rows, folder)[0]


def _simulated(
    model: onnx.ModelProto, rows: NDArray[Any], folder: Path, precision: str, io_type: str, pipe: Any
) -> None:
    try:
        pipe.send(_predicted(converted(model, folder, precision=precision, io_type=io_type), rows, folder))
    except Exception as error:  # told to the parent
        pipe.send(f"{type(error).__name__}: {error}")


def simulated(
    model: onnx.ModelProto,
    rows: ArrayLike,
    folder: Path,
    *,
    precision: str = "fixed<16,6>",
    io_type: str = "io_parallel",
    timeout_s: float = 300.0,
) -> list[NDArray[np.float32]] | str:
    """Every output (n, elements) of hls4ml's C simulation; a text when it raises, or when its C++ stops the process."""
    context = multiprocessing.get_context("fork")  # an assertion in generated C++ ends the process it runs in
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_simulated, args=(model, np.asarray(rows), folder, precision, io_type, theirs))
    process.start()
    theirs.close()
    try:
        outcome = ours.recv() if ours.poll(timeout_s) else "no answer in time"
    except EOFError:
        outcome = "the C++ stopped the process"
    process.join(5)
    if process.is_alive():
        process.kill()
    return outcome  # type: ignore[no-any-return]


def executed(model: onnx.ModelProto, rows: ArrayLike) -> list[NDArray[np.float32]]:
    """Every output (n, elements) of qonnx's executor, row by row."""
    with _quiet():
        wrapper = cleanup_model(ModelWrapper(copied(model)))
        name = wrapper.graph.input[0].name
        results = [execute_onnx(wrapper, {name: np.asarray(row, dtype=np.float32)[None]}) for row in np.asarray(rows)]
    return [np.stack([result[info.name].ravel() for result in results]) for info in wrapper.graph.output]


class Small:
    """A model of a few nodes: ``x`` is its input; methods add a node and return the tensor it gives."""

    def __init__(self, *shape: Any) -> None:
        self.shape = shape
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs = [helper.make_tensor_value_info("x", 1, list(shape))]
        self.rng = np.random.default_rng(0)

    def constant(self, values: ArrayLike, dtype: Any = np.float32) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values, dtype=dtype), name))
        return name

    def op(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        output = f"t{len(self.nodes)}"
        name = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [output], name=name, domain=domain, **attributes))
        return output

    def quant(
        self,
        x: str,
        bits: Any = 8,
        *,
        signed: int = 1,
        narrow: int = 0,
        mode: str = "ROUND",
        scale: Any = 1.0,
        zero: Any = 0.0,
        kind: str = "Quant",
        domain: str = QONNX,
    ) -> str:
        given = [value if isinstance(value, str) else self.constant(value) for value in (scale, zero, bits)]
        return self.op(kind, x, *given, domain=domain, signed=signed, narrow=narrow, rounding_mode=mode)

    def integers(self, *shape: int, reach: int = 7) -> NDArray[np.float64]:
        return self.rng.integers(-reach, reach + 1, shape).astype(np.float64)

    def dense(self, x: str, weight: Any = None, bits: Any = 4, **quant: Any) -> str:
        array = self.integers(4, 3) if weight is None else np.asarray(weight)
        return self.op("MatMul", x, self.quant(self.constant(array), bits, **quant))

    def conv(self, x: str, weight: Any = None, *rest: str, without: Sequence[str] = (), **given: Any) -> str:
        array = self.integers(3, 2, 3, 3) if weight is None else np.asarray(weight)
        rank = array.ndim - 2
        attributes = {
            "kernel_shape": array.shape[2:],
            "strides": [1] * rank,
            "pads": [0] * 2 * rank,
            "dilations": [1] * rank,
            "group": 1,
        }
        quant = {key: given.pop(key) for key in ("scale", "zero", "kind", "bits") if key in given}
        attributes = {key: value for key, value in (attributes | given).items() if key not in without}
        stored = self.constant(array)
        if quant.pop("kind", "Quant") is not None:
            stored = self.quant(stored, quant.pop("bits", 4), **quant)
        return self.op("Conv", x, stored, *rest, **attributes)

    def norm(self, x: str, scale: ArrayLike, bias: ArrayLike = 0.0, channels: int = 3) -> str:
        parts = [np.zeros(channels) + scale, np.zeros(channels) + bias, np.zeros(channels), np.ones(channels)]
        return self.op("BatchNormalization", x, *map(self.constant, parts), epsilon=0.0)

    def pool(self, x: str, without: Sequence[str] = (), **given: Any) -> str:
        attributes = {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [0] * 4} | given
        return self.op("MaxPool", x, **{key: value for key, value in attributes.items() if key not in without})

    def model(self, *outputs: str, opset: int = 13) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "small",
            self.inputs,
            [helper.make_tensor_value_info(name, 1, None) for name in outputs],
            self.constants,
        )
        domains = {"": opset} | {node.domain: 1 for node in self.nodes if node.domain}
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid(name, version) for name, version in domains.items()], ir_version=8
        )
        return _with_shapes(model)


def _with_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Shapes of the outputs, which tools write: inferred with every quantizer taken for Identity."""
    plain = copied(model)
    for node in plain.graph.node:
        if node.op_type in ("Quant", "IntQuant", "BipolarQuant", "Trunc"):
            del node.input[1:], node.attribute[:]
            node.op_type, node.domain = "Identity", ""
    with contextlib.suppress(onnx.shape_inference.InferenceError):
        plain = onnx.shape_inference.infer_shapes(plain)
    for given, found in zip(model.graph.output, plain.graph.output, strict=True):
        given.CopyFrom(found)
    return model


Build = Callable[[], onnx.ModelProto]
