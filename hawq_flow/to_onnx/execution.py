"""Running the file: by onnxruntime at two optimisation levels, and by onnx's reference evaluator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
from numpy.typing import ArrayLike
from onnx import helper
from onnx.reference import ReferenceEvaluator

from hawq_flow.interpret import check_inputs
from hawq_flow.network import IntegerNetwork
from hawq_flow.runtime import session
from hawq_flow.to_qonnx import Execution
from hawq_flow.to_qonnx.execution import in_blocks, row_elements

BLOCK_ELEMENTS = 1 << 24
"""Elements of all tensors of a block of rows together."""
FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "avx_vnni_int8", "amx_int8", "asimddp", "i8mm")
"""What decides which kernels multiply 8-bit integers, as Linux calls it."""


def cpu_flags() -> tuple[str, ...]:
    """Those of :data:`FLAGS` that this processor has; ("unknown",) where Linux does not tell."""
    return _flags(Path("/proc/cpuinfo"))


@lru_cache(maxsize=4)
def _flags(path: Path) -> tuple[str, ...]:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return ("unknown",)
    words = {word for line in lines if line.lower().startswith(("flags", "features")) for word in line.split()}
    return tuple(flag for flag in FLAGS if flag in words) if words else ("unknown",)


def execute(
    model: onnx.ModelProto, network: IntegerNetwork, x: ArrayLike | Mapping[str, ArrayLike], *, optimized: bool
) -> Execution:
    """Run a model of :func:`export` in onnxruntime once: :func:`runtime`, called with ``x``."""
    return runtime(model, network, optimized=optimized)(x)


def runtime(
    model: onnx.ModelProto, network: IntegerNetwork, *, optimized: bool
) -> Callable[[ArrayLike | Mapping[str, ArrayLike]], Execution]:
    """A model of :func:`export` loaded into onnxruntime, on one thread of the CPU.

    Parameters
    ----------
    model:
        What ``export`` (or :func:`traced`) made of ``network``, or a loaded copy.
    optimized:
        At onnxruntime's default optimisation level, or at none (ORT_DISABLE_ALL).

    Returns
    -------
    A function from integers as for ``interpret.run`` to the graph's outputs by name, int64 (n, *shape), and how they
    were computed.
    """
    loaded = session(model, optimized=optimized)
    level = "default optimisation" if optimized else "no optimisation"
    method = (
        f"onnxruntime {onnxruntime.__version__}, {level}, {_dialect(model)}; processor flags: "
        f"{' '.join(cpu_flags()) or 'none that matter'}"
    )
    return lambda x: _run(model, network, x, loaded.run, method)


def evaluate_reference(
    model: onnx.ModelProto, network: IntegerNetwork, x: ArrayLike | Mapping[str, ArrayLike]
) -> Execution:
    """Run a model of :func:`export` in onnx's reference evaluator; arguments and result as for :func:`execute`."""
    evaluator = ReferenceEvaluator(model)
    method = f"onnx {onnx.__version__} reference evaluator, {_dialect(model)}"
    return _run(model, network, x, evaluator.run, method)


def _dialect(model: onnx.ModelProto) -> str:
    properties = {entry.key: entry.value for entry in model.metadata_props}
    return f"dialect {properties.get('hawq_flow.dialect', 'unknown')}, opset {model.opset_import[0].version}"


def _run(
    model: onnx.ModelProto,
    network: IntegerNetwork,
    x: ArrayLike | Mapping[str, ArrayLike],
    run: Callable[..., Any],
    method: str,
) -> Execution:
    """Rows in blocks; inputs in the dtypes that the graph declares, outputs as int64."""
    dtypes = {info.name: helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type) for info in model.graph.input}
    inputs = {name: array.astype(dtypes[name]) for name, array in check_inputs(network, x).items()}
    names = [info.name for info in model.graph.output]
    values = in_blocks(
        lambda block: dict(zip(names, run(names, block), strict=True)),
        inputs,
        {name: network.values[name].shape for name in names},
        BLOCK_ELEMENTS // row_elements(model),
    )
    return Execution(values, method)
