"""Running a QONNX model: by qonnx's own executor where float32 is proven exact, else the graph in a wider float."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import ArrayLike, NDArray
from onnx import helper, numpy_helper

from hawq_flow.interpret import check_inputs
from hawq_flow.network import IntegerNetwork, Requantize
from hawq_flow.numeric import IntArray, Rounding
from hawq_flow.to_qonnx.exporting import with_batch
from hawq_flow.to_qonnx.plan import NotExact, check


def precision_bits(network: IntegerNetwork) -> dict[str, int]:
    """For every value, the bits of mantissa with which its nodes are exact, whatever the data.

    A float of p bits (float32: 24, float64: 53) holds every integer of magnitude up to 2^p, and every such integer
    times a power of two. A Requantize multiplies by ``m * 2^-c``, so it needs the bits of ``|x| * m``; half up adds
    ``2^(c-1)`` to that numerator.
    """
    values = check(network)
    needed = {spec.name: values[spec.name].magnitude.bit_length() for spec in network.inputs}
    for op in network.ops:
        bound = values[op.name].bound
        if isinstance(op, Requantize):
            product = values[op.input].magnitude * int(np.abs(op.multiplier).max())
            if op.rounding is Rounding.HALF_UP:
                product += (1 << int(op.shift.max())) >> 1
            after = (product >> int(op.shift.min())) + int(np.abs(op.offset).max()) + 1
            bound = max(product, after)
        needed[op.name] = bound.bit_length()
    return needed


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
        context = _run_qonnx(model, inputs)
        method = "qonnx executor, float32, proven exact: every intermediate fits 24 bits"
    else:
        dtype: type[np.floating[Any]] = np.float64 if needed[worst] <= 53 else np.longdouble
        mantissa = np.finfo(dtype).nmant + 1
        if needed[worst] > mantissa:
            raise NotExact(
                f"{worst}: needs {needed[worst]} bits of mantissa; the widest float here has {mantissa}. "
                "Use multipliers of fewer bits"
            )
        context = evaluate(model, inputs, dtype)
        method = (
            f"same QONNX graph evaluated in float with {mantissa} bits of mantissa: float32 is not provably exact, "
            f"{worst} needs {needed[worst]} bits"
        )
    wanted = [spec.name for spec in network.inputs] + [op.name for op in network.ops]
    return Execution({name: _integers(context[name], name) for name in wanted}, method)


def _integers(array: NDArray[Any], name: str) -> IntArray:
    result = array.astype(np.int64)
    if not (result == array).all():
        raise NotExact(f"{name}: the QONNX graph produced values that are not whole numbers; expected integers")
    return result


def _run_qonnx(model: onnx.ModelProto, inputs: Mapping[str, IntArray]) -> dict[str, NDArray[Any]]:
    """All tensors, by qonnx's own executor, the whole batch at once."""
    from qonnx.core.modelwrapper import ModelWrapper
    from qonnx.core.onnx_exec import execute_onnx

    rows = len(next(iter(inputs.values())))
    wrapper = ModelWrapper(with_batch(model, rows))
    feed = {name: array.astype(np.float32) for name, array in inputs.items()}
    context: dict[str, NDArray[Any]] = execute_onnx(wrapper, feed, return_full_exec_context=True)
    return context


def evaluate(
    model: onnx.ModelProto, inputs: Mapping[str, ArrayLike], dtype: type[np.floating[Any]] = np.float64
) -> dict[str, NDArray[Any]]:
    """All tensors of the graph, node by node in numpy with the given float, by the definitions of ONNX and QONNX.

    Knows the node types :func:`export` writes and no others; shares nothing with the interpreter.
    """
    env: dict[str, NDArray[Any]] = {name: np.asarray(array).astype(dtype) for name, array in inputs.items()}
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        env[tensor.name] = array if array.dtype.kind == "i" else array.astype(dtype)
    for node in model.graph.node:
        operands = [env[name] for name in node.input]
        match node.op_type:
            case "MatMul":
                result = operands[0] @ operands[1]
            case "Add":
                result = operands[0] + operands[1]
            case "Mul":
                result = operands[0] * operands[1]
            case "Max":
                result = np.maximum(operands[0], operands[1])
            case "Min":
                result = np.minimum(operands[0], operands[1])
            case "Reshape":
                result = operands[0].reshape(operands[1].tolist())
            case "Quant":
                result = _quant_value(node, *operands)
            case _:
                raise NotExact(f"{node.name}: node type {node.op_type}; this evaluator knows the types export() writes")
        env[node.output[0]] = result
    return env


def _quant_value(
    node: onnx.NodeProto, x: NDArray[Any], scale: NDArray[Any], zero: NDArray[Any], bits: NDArray[Any]
) -> NDArray[Any]:
    """QONNX's Quant as its specification says: scale, shift, clip, round, and back."""
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    rounding = {b"ROUND": np.rint, b"FLOOR": np.floor}[attributes["rounding_mode"]]
    signed, narrow = int(attributes["signed"]), int(attributes["narrow"])
    high = np.ldexp(x.dtype.type(1), int(bits) - signed) - 1 - (narrow if not signed else 0)
    low = -np.ldexp(x.dtype.type(1), int(bits) - 1) + narrow if signed else x.dtype.type(0)
    return np.asarray((rounding(np.clip(x / scale + zero, low, high)) - zero) * scale)
