"""The certificate of an import: the file as it runs in float32, against the network's integers, on the same rows.

The file's numbers are brought to the output's grid and both sides are compared as integers with ``==``. The original
runs in float32 (onnxruntime where all operators are standard, else qonnx's executor), whose rounding can differ from
the exact arithmetic that the network reproduces: where it does, the certificate counts the rows and says by how much.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import ArrayLike, NDArray

from hawq_flow.from_onnx.affine import floats
from hawq_flow.from_onnx.result import Imported
from hawq_flow.interpret import trace
from hawq_flow.network import IntegerNetwork, Requantize
from hawq_flow.runtime import FATAL, session

_QONNX = "qonnx.custom_op.general"
_OWN = ("Quant", "IntQuant", "BipolarQuant", "Trunc")
_DEFAULTS: dict[str, dict[str, int | str]] = {
    "Quant": {"signed": 1, "narrow": 0, "rounding_mode": "ROUND"},
    "IntQuant": {"signed": 1, "narrow": 0, "rounding_mode": "ROUND"},
    "Trunc": {"rounding_mode": "FLOOR"},
}
"""Attributes that reading takes as these where a file leaves them out."""


def compare(
    imported: Imported,
    raw: ArrayLike | Mapping[str, ArrayLike],
    labels: ArrayLike | None = None,
    *,
    rows_at_once: int = 256,
) -> dict[str, Any]:
    """Run the original and the network on raw rows and count what differs.

    Parameters
    ----------
    raw:
        Real numbers (n, *the file's shape), by input name when there are several. They are brought to the network's
        input grid first, and the original gets the float32 nearest to those, so that both see the same numbers.
    labels:
        Class numbers (n,), the place of the largest output; they give every output an ``accuracy`` of both sides.

    Returns
    -------
    ``{"rows": n, "executor": ..., "outputs": {name: {...}}}``; for each output of the file ``elements`` compared,
    ``differ`` of them, in ``rows_differ`` rows, by ``largest`` units of the output at most, ``off_grid`` the largest
    distance (in units) of the original's numbers from the grid, ``argmax_differ`` rows with another largest element and
    ``argmax_ties`` rows where several are exactly the largest and float32 picked another (None for one element a row),
    and a ``note`` in words.
    """
    integers = imported.integers(raw)
    feeds = {name: array.astype(np.float32) for name, array in imported.rows(integers).items()}
    wanted = [entry.tensor for entry in imported.outputs]
    original, executor = run_original(imported.original, feeds, wanted, rows_at_once)
    ours = trace(imported.network, integers)
    rows = len(next(iter(feeds.values())))
    result: dict[str, Any] = {"rows": rows, "executor": executor, "outputs": {}}
    for entry in imported.outputs:
        scale, offset = (floats(part) for part in imported.units(entry))
        theirs = original[entry.tensor].reshape(rows, -1).astype(np.float64)
        exact = ours[entry.name].reshape(rows, -1)[:, entry.order]
        units = (theirs - offset) / scale
        nearest = np.rint(units)
        apart = np.abs(nearest - exact)
        real = exact * scale + offset
        result["outputs"][entry.source] = {
            "elements": int(exact.size),
            "differ": int((apart > 0).sum()),
            "rows_differ": int((apart > 0).any(1).sum()),
            "largest": int(apart.max(initial=0)),
            "off_grid": float(np.abs(units - nearest).max(initial=0)),
            **_argmax(theirs, exact * scale + offset),
            "note": _note(int((apart > 0).sum()), entry.left, _quantized(imported.network, entry.name)),
        }
        if labels is not None:
            result["outputs"][entry.source]["accuracy"] = {
                side: float((values.argmax(1) == np.asarray(labels)).mean())
                for side, values in (("integers", real), ("original", theirs))
            }
    return result


def _argmax(theirs: NDArray[np.float64], ours: NDArray[np.float64]) -> dict[str, int | None]:
    """Rows whose largest element differs, and rows where it does only because several are exactly largest."""
    if theirs.shape[1] < 2:
        return {"argmax_differ": None, "argmax_ties": None}
    chosen = theirs.argmax(1)
    other = chosen != ours.argmax(1)
    tied = ours[np.arange(len(ours)), chosen] == ours.max(1)
    return {"argmax_differ": int((other & ~tied).sum()), "argmax_ties": int((other & tied).sum())}


def _quantized(network: IntegerNetwork, name: str) -> bool:
    """Whether a quantizer that rounds lies before a value: only there can float32's rounding move a whole level."""
    needed = {name}
    for op in reversed(network.ops):
        if op.name in needed:
            if isinstance(op, Requantize) and op.shift.any():
                return True
            needed |= set(op.inputs)
    return False


def _note(differ: int, left: str, quantized: bool) -> str:
    text = f"compared before {left}, which stays in float. " if left else ""
    if not differ:
        return f"{text}equal on every row"
    effect = (
        "one can fall on the other side of a quantizer's threshold, and what follows differs"
        if quantized
        else "its numbers lie that far beside the grid"
    )
    return (
        f"{text}the original runs in float32, which rounds sums and products of more than 24 bits: {effect}; the "
        "network computes the file's numbers exactly"
    )


def run_original(
    model: onnx.ModelProto, feeds: Mapping[str, NDArray[np.float32]], wanted: list[str], rows_at_once: int = 256
) -> tuple[dict[str, NDArray[Any]], str]:
    """The tensors ``wanted`` of a model for rows of float32, and the executor's name.

    Rows run in blocks; a file whose shapes hold one row only runs row by row.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    standard = True
    for node in copy.graph.node:
        if node.domain not in ("", "ai.onnx"):
            standard = False
            if node.op_type in _OWN:
                node.domain = _QONNX
                given = {attribute.name for attribute in node.attribute}
                for key, value in _DEFAULTS.get(node.op_type, {}).items():
                    if key not in given:  # qonnx's executor wants what its specification lets a file leave out
                        node.attribute.append(onnx.helper.make_attribute(key, value))
    if not standard and _QONNX not in {entry.domain for entry in copy.opset_import}:
        copy.opset_import.append(onnx.helper.make_opsetid(_QONNX, 1))
    present = {info.name for info in copy.graph.output}
    for name in wanted:
        if name not in present:
            copy.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    rows = len(next(iter(feeds.values())))
    engine = _onnxruntime if standard else _qonnx
    label = "onnxruntime, float32, optimization off" if standard else "qonnx executor, float32"

    def at_once(step: int) -> dict[str, NDArray[Any]]:
        parts: dict[str, list[NDArray[Any]]] = {name: [] for name in wanted}
        runs: dict[int, Any] = {}
        for start in range(0, rows, step):
            block = {name: array[start : start + step] for name, array in feeds.items()}
            size = min(step, rows - start)
            if size not in runs:
                runs[size] = engine(with_rows(copy, feeds, size))
            outcome = runs[size](block, wanted)
            for name in wanted:
                if outcome[name].shape[:1] != (size,) and size > 1:
                    raise ValueError(f"{name}: {outcome[name].shape} for {size} rows")
                parts[name].append(np.asarray(outcome[name]).reshape(size, -1))
        return {name: np.concatenate(arrays) for name, arrays in parts.items()}

    if rows_at_once > 1 and rows > 1:
        try:
            return at_once(min(rows_at_once, rows)), label
        except Exception:  # shapes that fix one row raise a dozen types; one row at a time then says what is wrong
            pass
    return at_once(1), f"{label}, row by row"


def with_rows(model: onnx.ModelProto, inputs: Mapping[str, Any], rows: int) -> onnx.ModelProto:
    """A copy for a batch of ``rows``, without the shapes that were inferred for another."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for info in copy.graph.input:
        if info.name in inputs:
            info.type.tensor_type.shape.dim[0].ClearField("dim_param")
            info.type.tensor_type.shape.dim[0].dim_value = rows
    del copy.graph.value_info[:]
    for info in copy.graph.output:
        info.type.tensor_type.ClearField("shape")
    return copy


def _onnxruntime(model: onnx.ModelProto) -> Any:
    # A file of one row fails on a block, which is tried: nothing to print.
    loaded = session(model, optimized=False, prints=FATAL)
    types = {entry.name: entry.type for entry in loaded.get_inputs()}

    def run(feeds: Mapping[str, NDArray[np.float32]], wanted: list[str]) -> dict[str, NDArray[Any]]:
        numpy_types = {
            "tensor(float)": np.float32,
            "tensor(double)": np.float64,
            "tensor(int8)": np.int8,
            "tensor(uint8)": np.uint8,
            "tensor(int16)": np.int16,
            "tensor(uint16)": np.uint16,
            "tensor(int32)": np.int32,
            "tensor(int64)": np.int64,
        }
        given = {name: array.astype(numpy_types[types[name]]) for name, array in feeds.items()}
        return dict(zip(wanted, loaded.run(wanted, given), strict=True))

    return run


def _qonnx(model: onnx.ModelProto) -> Any:
    from qonnx.core.modelwrapper import ModelWrapper
    from qonnx.core.onnx_exec import execute_onnx
    from qonnx.transformation.fold_constants import FoldConstants
    from qonnx.transformation.infer_shapes import InferShapes

    wrapper = ModelWrapper(model).transform(InferShapes()).transform(FoldConstants()).transform(InferShapes())

    def run(feeds: Mapping[str, NDArray[np.float32]], wanted: list[str]) -> dict[str, NDArray[Any]]:
        context = execute_onnx(wrapper, dict(feeds), return_full_exec_context=True)
        return {name: context[name] for name in wanted}

    return run
