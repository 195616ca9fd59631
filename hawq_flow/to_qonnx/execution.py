"""Running a QONNX model: by qonnx's own executor where float32 is proven exact, else the graph in a wider float."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import ArrayLike, NDArray

from hawq_flow.interpret import check_inputs
from hawq_flow.network import IntegerNetwork, Lookup, Requantize, Value
from hawq_flow.numeric import IntArray, Rounding
from hawq_flow.to_qonnx.evaluation import evaluate
from hawq_flow.to_qonnx.exporting import BATCH, with_batch
from hawq_flow.to_qonnx.plan import NotExact, check

BLOCK_ELEMENTS = 1 << 25
"""Elements of all tensors of a block of rows together: 128 MiB in float32. Rows run in blocks no larger."""


def precision_bits(network: IntegerNetwork) -> dict[str, int]:
    """For every value, the bits of mantissa with which its nodes are exact, whatever the data.

    A float of p bits (float32: 24, float64: 53) holds every integer of magnitude up to 2^p, and every such integer
    times a power of two. Sums and products of any op need the bits of its ``Value.bound``. A Requantize multiplies by
    ``m * 2^-c``, so it needs the bits of ``|x| * m``; half up adds ``2^(c-1)`` to that numerator.
    A Lookup subtracts the start of its table.
    """
    values = check(network)
    needed = {spec.name: values[spec.name].magnitude.bit_length() for spec in network.inputs}
    for op in network.ops:
        bound = values[op.name].bound
        if isinstance(op, Requantize):
            bound = _requantize_bound(op, values[op.input])
        elif isinstance(op, Lookup):
            bound = max(bound, abs(op.start), op.table.size - 1)
        needed[op.name] = bound.bit_length()
    return needed


def _requantize_bound(op: Requantize, x: Value) -> int:
    """The largest numerator of any node of a Requantize, over the power of two that it is divided by."""
    product = x.magnitude * int(np.abs(op.multiplier).max())
    after = (product >> int(op.shift.min())) + int(np.abs(op.offset).max()) + 1
    if op.rounding is Rounding.HALF_UP and (op.multiplier != np.int64(1) << op.shift).any():
        # A half is added where the shift is 0, too, so every numerator counts halves at least.
        multiplier, shift = np.broadcast_arrays(np.abs(op.multiplier), op.shift)
        for m, c in np.unique(np.stack([multiplier.ravel(), shift.ravel()]), axis=1).T.tolist():
            product = max(product, (x.magnitude * m << int(c == 0)) + (1 << max(c, 1) - 1))
    return max(product, after)


def float32_exact(network: IntegerNetwork) -> list[str]:
    """Names of the values (inputs and ops) that a float32 executor could round wrongly; empty when proven exact."""
    return [name for name, bits in precision_bits(network).items() if bits > 24]


@dataclass(frozen=True)
class Execution:
    """Every IR value by name, int64 of shape (n, *shape), and how it was computed."""

    values: Mapping[str, IntArray]
    method: str


def execute(model: onnx.ModelProto, network: IntegerNetwork, x: ArrayLike | Mapping[str, ArrayLike]) -> Execution:
    """Run a QONNX model on integers: by qonnx's executor in float32 where that is proven exact, else wider.

    Rows run in blocks, so that the tensors of the graph stay within ``BLOCK_ELEMENTS``; the returned values of all
    rows, 8 bytes an element, are the rest of the memory needed.

    Parameters
    ----------
    model:
        What :func:`export` made of ``network`` (or a loaded copy). Its nodes are executed; the network supplies the
        proof of exactness and the names of the values to return.
    x:
        Integers as for ``interpret.run``.

    Raises
    ------
    NotExact
        If no float of this platform carries the integers exactly.
    """
    inputs = check_inputs(network, x)
    needed = precision_bits(network)
    worst = max(needed, key=lambda name: needed[name])
    if needed[worst] <= 24:
        run = qonnx_executor(model)
        method = "qonnx executor, float32, proven exact: every intermediate fits 24 bits"
    else:
        dtype: type[np.floating[Any]] = np.float64 if needed[worst] <= 53 else np.longdouble
        mantissa = np.finfo(dtype).nmant + 1
        if needed[worst] > mantissa:
            raise NotExact(
                f"{worst}: needs {needed[worst]} bits of mantissa; the widest float here has {mantissa}. "
                "Use multipliers of fewer bits"
            )
        method = (
            f"same QONNX graph evaluated in float with {mantissa} bits of mantissa: float32 is not provably exact, "
            f"{worst} needs {needed[worst]} bits"
        )

        def run(block: Mapping[str, IntArray]) -> Mapping[str, NDArray[Any]]:
            return evaluate(model, block, dtype, keep=list(network.values))

    shapes = {name: value.shape for name, value in network.values.items()}
    return Execution(in_blocks(run, inputs, shapes, BLOCK_ELEMENTS // row_elements(model)), method)


def in_blocks(
    run: Callable[[Mapping[str, IntArray]], Mapping[str, NDArray[Any]]],
    inputs: Mapping[str, IntArray],
    shapes: Mapping[str, Sequence[int]],
    step: int,
) -> dict[str, IntArray]:
    """What ``run`` gives for all rows, ``step`` of them at a time (at least one): int64 (n, *shape) by name.

    ``NotExact`` if a value is not a whole number.
    """
    rows, step = len(next(iter(inputs.values()))), max(1, step)
    result: dict[str, IntArray] = {name: np.empty((rows, *shape), dtype=np.int64) for name, shape in shapes.items()}
    for start in range(0, rows, step):
        context = run({name: array[start : start + step] for name, array in inputs.items()})
        for name, array in result.items():
            array[start : start + step] = _integers(context[name], name)
    return result


def row_elements(model: onnx.ModelProto) -> int:
    """Elements of all tensors whose shapes the model tells that one row brings with it; 1 at least."""
    infos = (*model.graph.input, *model.graph.value_info, *model.graph.output)
    shapes = [info.type.tensor_type.shape.dim for info in infos]
    known = (dims for dims in shapes if dims and dims[0].dim_param == BATCH)
    return max(1, sum(math.prod(int(dim.dim_value) for dim in dims[1:]) for dims in known))


def _integers(array: NDArray[Any], name: str) -> IntArray:
    result = array.astype(np.int64)
    if not (result == array).all():
        raise NotExact(f"{name}: the graph produced values that are not whole numbers; expected integers")
    return result


def qonnx_executor(model: onnx.ModelProto) -> Callable[[Mapping[str, IntArray]], Mapping[str, NDArray[Any]]]:
    """A function from inputs to all tensors, by qonnx's own executor, a whole block of rows at once."""
    from qonnx.core.modelwrapper import ModelWrapper
    from qonnx.core.onnx_exec import execute_onnx

    wrappers: dict[int, ModelWrapper] = {}

    def run(inputs: Mapping[str, IntArray]) -> Mapping[str, NDArray[Any]]:
        rows = len(next(iter(inputs.values())))
        if rows not in wrappers:
            wrappers[rows] = ModelWrapper(with_batch(model, rows))
        feed = {name: array.astype(np.float32) for name, array in inputs.items()}
        context: dict[str, NDArray[Any]] = execute_onnx(wrappers[rows], feed, return_full_exec_context=True)
        return context

    return run
