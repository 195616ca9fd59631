"""A QONNX graph evaluated node by node in numpy, in the float of one's choice.

The oracle of the exported file where float32 is not proven exact, by the definitions of ONNX and QONNX. It knows the
node types that ``to_qonnx`` and ``to_finn`` write and no others, and shares nothing with the interpreter.
A convolution is one matrix product over the patches of each image, which BLAS computes in float64; since every partial
sum is exact, so is the product, in whatever order it adds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import onnx
from numpy.typing import ArrayLike, NDArray
from onnx import helper, numpy_helper

from hawq_flow.to_qonnx.plan import NotExact

Array = NDArray[Any]


def evaluate(
    model: onnx.ModelProto,
    inputs: Mapping[str, ArrayLike],
    dtype: type[np.floating[Any]] = np.float64,
    *,
    keep: Collection[str] | None = None,
) -> dict[str, Array]:
    """The tensors of the graph, computed with the given float.

    Parameters
    ----------
    inputs:
        The graph's inputs by name, shape (n, *shape); converted to ``dtype``.
    keep:
        Names of the tensors to return; the others are dropped after their last use. None: all of them.

    Raises
    ------
    NotExact
        If the graph has a node of another type than :func:`export` writes.
    """
    env: dict[str, Array] = {name: np.asarray(array).astype(dtype) for name, array in inputs.items()}
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        env[tensor.name] = array if array.dtype.kind == "i" else array.astype(dtype)
    last_use = {name: i for i, node in enumerate(model.graph.node) for name in node.input}
    for i, node in enumerate(model.graph.node):
        operands = [env[name] for name in node.input if name]
        env[node.output[0]] = _node(node, operands)
        if keep is not None:
            for name in (*node.input, node.output[0]):
                if last_use.get(name, i) <= i and name not in keep:
                    env.pop(name, None)
    return env if keep is None else {name: env[name] for name in keep}


def _node(node: onnx.NodeProto, operands: Sequence[Array]) -> Array:
    x = operands[0]
    match node.op_type:
        case "MatMul":
            return np.asarray(x @ operands[1])
        case "Conv":
            dilations = list(_attributes(node)["dilations"])
            if any(n != 1 for n in dilations):
                raise NotExact(f"{node.name}: dilations {dilations}; export() writes ones")
            return _conv(_attributes(node), *operands)
        case "MaxPool":
            return _max_pool(_attributes(node), x)
        case "Add":
            return np.asarray(x + operands[1])
        case "Sub":
            return np.asarray(x - operands[1])
        case "Mul":
            return np.asarray(x * operands[1])
        case "Max":
            return np.maximum(x, operands[1])
        case "Min":
            return np.minimum(x, operands[1])
        case "Identity":
            return x
        case "Reshape":
            return x.reshape(operands[1].tolist())
        case "Concat":
            return np.concatenate(list(operands), axis=_attributes(node)["axis"])
        case "Pad":
            before, after = operands[1].reshape(2, -1)
            return np.pad(x, list(zip(before, after, strict=True)), constant_values=operands[2])
        case "Resize":
            return _resize(x, operands[1])
        case "ReduceMax":
            return np.asarray(x.max(axis=tuple(operands[1].tolist()), keepdims=True))
        case "ReduceSum":
            return np.asarray(x.sum(axis=tuple(operands[1].tolist()), keepdims=True))
        case "Cast":
            return x.astype(helper.tensor_dtype_to_np_dtype(_attributes(node)["to"]))
        case "Gather":
            return np.take(x, operands[1], axis=_attributes(node)["axis"])
        case "Quant":
            return _quant(_attributes(node), *operands)
        case "BipolarQuant":
            return np.where(x >= 0, operands[1], -operands[1])
        case "MultiThreshold":
            return _multi_threshold(_attributes(node), *operands)
        case "Relu":
            return np.maximum(x, 0)
        case "AveragePool":
            return _average_pool(_attributes(node), x)
        case "Trunc":
            return _trunc(_attributes(node), *operands)
    raise NotExact(f"{node.name}: node type {node.op_type}; this evaluator knows the types export() writes")


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def _quant(attributes: Mapping[str, Any], x: Array, scale: Array, zero: Array, bits: Array) -> Array:
    """QONNX's Quant as its specification says: scale, shift, clip, round, and back."""
    rounding = {b"ROUND": np.rint, b"FLOOR": np.floor}[attributes["rounding_mode"]]
    signed, narrow = int(attributes["signed"]), int(attributes["narrow"])
    high = np.ldexp(x.dtype.type(1), int(bits) - signed) - 1 - (narrow if not signed else 0)
    low = -np.ldexp(x.dtype.type(1), int(bits) - 1) + narrow if signed else x.dtype.type(0)
    return np.asarray((rounding(np.clip(x / scale + zero, low, high)) - zero) * scale)


def _trunc(attributes: Mapping[str, Any], x: Array, scale: Array, zero: Array, before: Array, after: Array) -> Array:
    """QONNX's Trunc, version 1: integers of ``before`` bits lose their lowest ones until ``after`` are left."""
    rounding = {b"ROUND": np.rint, b"FLOOR": np.floor, b"CEIL": np.ceil}[attributes["rounding_mode"]]
    integers = np.rint(x / scale + zero)
    return np.asarray((rounding(np.ldexp(integers, -int(before - after))) - zero) * scale)


def _multi_threshold(attributes: Mapping[str, Any], x: Array, thresholds: Array) -> Array:
    """How many thresholds of its channel (axis 1) each element reaches, from the bias on."""
    rows = thresholds.reshape(thresholds.shape[0], *[1] * (x.ndim - 2), -1)
    count = (x[..., None] >= rows).sum(axis=-1)
    return np.asarray(count.astype(x.dtype) * attributes["out_scale"] + attributes["out_bias"], dtype=x.dtype)


def _padded(x: Array, pads: Sequence[int], value: float) -> Array:
    rank = len(pads) // 2
    space = [(pads[i], pads[rank + i]) for i in range(rank)]
    return np.pad(x, [(0, 0), (0, 0), *space], constant_values=value) if any(pads) else x


def _taps(x: Array, kernel: Sequence[int], strides: Sequence[int]) -> Iterator[Array]:
    """For every place in the kernel, the elements (n, channels, *positions) that the windows see there."""
    steps = zip(x.shape[2:], kernel, strides, strict=True)
    spans = [(size - k) // step * step + 1 for size, k, step in steps]  # from a window's first place to the last one's
    for place in product(*map(range, kernel)):
        index: tuple[Any, ...] = tuple(slice(p, p + n, step) for p, n, step in zip(place, spans, strides, strict=True))
        yield x[(..., *index)]


def _conv(attributes: Mapping[str, Any], x: Array, weight: Array, *bias: Array) -> Array:
    groups, kernel = int(attributes["group"]), weight.shape[2:]
    taps = list(_taps(_padded(x, attributes["pads"], 0), kernel, attributes["strides"]))
    n, positions = len(x), taps[0].shape[2:]
    outputs, inputs = weight.shape[0] // groups, weight.shape[1]
    w = weight.reshape(groups, outputs, -1)
    b = bias[0].reshape(groups, outputs, 1) if bias else None
    result = np.empty((n, groups, outputs, int(np.prod(positions))), dtype=x.dtype)
    for row in range(n):  # one image's patches at a time stay small
        patches = np.stack([tap[row] for tap in taps], axis=1)  # (channels, places, *positions)
        np.matmul(w, patches.reshape(groups, inputs * len(taps), -1), out=result[row])
        if b is not None:
            result[row] += b
    return result.reshape(n, weight.shape[0], *positions)


def _max_pool(attributes: Mapping[str, Any], x: Array) -> Array:
    taps = _taps(_padded(x, attributes["pads"], -np.inf), attributes["kernel_shape"], attributes["strides"])
    result = next(taps).copy()
    for tap in taps:
        np.maximum(result, tap, out=result)
    return np.asarray(result)


def _average_pool(attributes: Mapping[str, Any], x: Array) -> Array:
    if any(attributes["pads"]):
        raise NotExact(f"AveragePool with pads {list(attributes['pads'])}; export() writes none")
    taps = list(_taps(x, attributes["kernel_shape"], attributes["strides"]))
    return np.asarray(sum(taps) / x.dtype.type(len(taps)))


def _resize(x: Array, scales: Array) -> Array:
    """Nearest, asymmetric, floor: output i of an axis is input floor(i / scale)."""
    for axis, scale in enumerate(scales.tolist()):
        if scale != 1:
            places = np.floor(np.arange(int(x.shape[axis] * scale)) / scale).astype(np.int64)
            x = np.take(x, places, axis=axis)
    return x
