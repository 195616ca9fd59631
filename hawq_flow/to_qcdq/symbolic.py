"""The symbolic functions of QCDQ: the same custom ops as for QONNX, in standard operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from onnx import TensorProto
from onnxscript import opset20 as standard

from hawq_flow.network import Conv, Dense, IntegerNetwork
from hawq_flow.numeric import IntArray, Rounding
from hawq_flow.to_qcdq.plan import Plan, Storage
from hawq_flow.to_qonnx import TRANSLATION
from hawq_flow.to_qonnx.symbolic import constant, convolution, named, tensor

Table = dict[Callable[..., Any], Callable[..., Any]]


def _vector(values: Any) -> NDArray[np.float32]:
    return np.asarray(values, dtype=np.float32)


def _dequantized(integers: IntArray, container: np.dtype[Any], scale: NDArray[np.float32], name: str, axis: int) -> Any:
    """DequantizeLinear of constant integers, one scale for all or one along ``axis``; no zero point stands for 0."""
    stored = tensor(integers.astype(container), f"{name}/integers")
    scales = tensor(_vector(scale), f"{name}/scale")
    return named(standard.DequantizeLinear(stored, scales, axis=axis if scale.ndim else 1), name)


def _between(x: Any, low: NDArray[Any], high: NDArray[Any], name: str) -> Any:
    """Bounds of x's own type: Clip for scalars, Max and Min for a bound a channel."""
    if low.ndim == 0:
        return named(standard.Clip(x, tensor(low, f"{name}/low"), tensor(high, f"{name}/high")), f"{name}/clip")
    x = named(standard.Max(x, tensor(low, f"{name}/low")), f"{name}/above_low")
    return named(standard.Min(x, tensor(high, f"{name}/high")), f"{name}/below_high")


def _stored(x: Any, name: str, held: Storage) -> Any:
    """QuantizeLinear-Clip-DequantizeLinear with scale 1: rounds half to even, saturates, and is float32 again.

    Whole numbers of more than 16 bits are clipped alone.
    """
    bounds = None if held.low is None or held.high is None else (held.low, held.high)
    if bounds is not None and held.before:
        x = _between(x, _vector(bounds[0]), _vector(bounds[1]), name)
    if held.container.kind == "f":
        return x
    scale, zero = constant(1.0, f"{name}/scale"), tensor(np.zeros((), held.container), f"{name}/zero_point")
    x = named(standard.QuantizeLinear(x, scale, zero), f"{name}/quantize")
    if bounds is not None and not held.before:
        x = _between(x, bounds[0].astype(held.container), bounds[1].astype(held.container), name)
    return named(standard.DequantizeLinear(x, scale, zero), f"{name}/dequantize")


def table(network: IntegerNetwork, plan: Plan) -> Table:
    """The network's own table of symbolic functions: they look up by name what the plan says of each op."""
    layers = {op.name: op for op in network.ops if isinstance(op, Dense | Conv)}

    def operands(name: str, axis: int) -> tuple[Any, Any]:
        """Weight and bias of a layer; ``axis`` is the outputs' in the weight as it stands in the graph."""
        op, layer = layers[name], plan.layers[name]
        weight = op.weight.T if isinstance(op, Dense) else op.weight
        w = _dequantized(weight, layer.container, layer.scale, f"{name}/weight", axis)
        if layer.apart:
            real = _vector(op.weight) * layer.scale.reshape(-1, *[1] * (weight.ndim - 1))
            w = _between(w, real.min(), real.max(), f"{name}/weight")
        return w, _dequantized(op.bias, np.dtype(np.int32), layer.scale, f"{name}/bias", 0)

    def accumulated(total: Any, name: str) -> Any:
        bounds = plan.layers[name].accumulator
        if bounds is None:
            return total
        low, high = (_vector(end) for end in bounds)
        return _between(named(total, f"{name}/sum"), low, high, name)

    def input_nodes(x: Any, name: str, type: Sequence[int]) -> Any:
        return _stored(x, name, plan.inputs[name])

    def dense(x: Any, weight: Any, bias: Any, name: str, type: Sequence[int], accumulator: Sequence[int]) -> Any:
        w, b = operands(name, 1)
        return accumulated(standard.Add(named(standard.MatMul(x, w), f"{name}/matmul"), b), name)

    def conv(x: Any, weight: Any, bias: Any, name: str, *_: Any) -> Any:
        op = layers[name]
        assert isinstance(op, Conv)
        w, b = operands(name, 0)
        return accumulated(convolution((x, w, b), op.kernel, op.stride, op.padding, op.groups), name)

    def sum_pool(x: Any, weight: Any, name: str, stride: Sequence[int], padding: Sequence[int]) -> Any:
        channels, _, *kernel = (int(n) for n in weight.shape)
        ones = np.ones((channels, 1, *kernel), dtype=np.int64)
        w = _dequantized(ones, np.dtype(np.int8), _vector(1.0), f"{name}/weight", 0)
        return convolution((x, w), kernel, stride, padding, channels)

    def requantize(x: Any, factor: Any, offset: Any, low: Any, high: Any, name: str, *_: Any) -> Any:
        rescale = plan.rescales[name]
        dtype, y = np.dtype(np.float64 if rescale.double else np.float32), x
        if rescale.double:
            y = named(standard.Cast(y, to=TensorProto.DOUBLE), f"{name}/double")
        if rescale.factor is not None:
            y = named(standard.Mul(y, tensor(rescale.factor.astype(dtype), f"{name}/factor")), f"{name}/scaled")
        if not rescale.exact:
            if rescale.rounding is Rounding.HALF_UP:
                y = named(standard.Add(y, tensor(np.asarray(0.5, dtype), f"{name}/half")), f"{name}/plus_half")
            if rescale.rounding is not Rounding.HALF_EVEN:
                y = named(standard.Floor(y), f"{name}/floor")
            elif rescale.double or rescale.offset is not None or rescale.storage.container.kind == "f":
                y = named(standard.Round(y), f"{name}/round")
        if rescale.offset is not None:
            shift = rescale.offset.astype(dtype)
            y = named(standard.Add(y, tensor(shift, f"{name}/offset")), f"{name}/shifted")
        if rescale.double:  # what float32 could not hold is beyond the type by now, and saturates
            y = named(standard.Cast(y, to=TensorProto.FLOAT), f"{name}/single")
        return _stored(y, name, rescale.storage)

    ops = torch.ops.hawq_flow
    return TRANSLATION | {
        ops.input.default: input_nodes,
        ops.dense.default: dense,
        ops.conv.default: conv,
        ops.sum_pool.default: sum_pool,
        ops.requantize.default: requantize,
    }
