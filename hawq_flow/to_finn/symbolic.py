"""The symbolic functions of FINN's dialect: the same custom ops as for QONNX, in the patterns that FINN converts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from onnxscript import opset20 as standard
from onnxscript.values import Opset

from hawq_flow.network import Conv, Dense, Requantize, SumPool
from hawq_flow.to_finn.plan import Plan
from hawq_flow.to_qonnx import TRANSLATION
from hawq_flow.to_qonnx.plan import triple, weight_type
from hawq_flow.to_qonnx.symbolic import (
    BIPOLAR,
    DOMAIN,
    constant,
    convolution,
    named,
    quant,
    quantized_weight,
    tensor,
    truncate,
)

UNITS = [2, 1, 1]
"""The type of a sum pool's ones: two signed bits, as FINN takes ternary weights."""


_qonnx = Opset(DOMAIN, 1)


def table(plan: Plan) -> dict[Callable[..., Any], Callable[..., Any]]:
    """The network's own table of symbolic functions: they look up by name what the plan says of each op."""
    by_name = {op.name: op for op in plan.network.ops}
    values = plan.network.values

    def each_channel(array: NDArray[Any], name: str, what: str) -> Any:
        """A scalar, or one number a channel on the axis behind the batch of a value of that name."""
        shape = () if array.ndim == 0 else (1, -1, *[1] * (len(values[name].shape) - 1))
        return tensor(array.astype(np.float32).reshape(shape), f"{name}/{what}")

    def input_nodes(x: Any, name: str, type: Sequence[int]) -> Any:
        return standard.Identity(x)  # taken out again: an input is declared by its annotation

    def biased(product: Any, name: str) -> Any:
        op = by_name[name]
        assert isinstance(op, Dense | Conv)
        if not op.bias.any():
            return product
        return standard.Add(named(product, f"{name}/product"), each_channel(op.bias, name, "bias"))

    def weights(weight: Any, name: str) -> Any:
        op = by_name[name]
        assert isinstance(op, Dense | Conv)
        return quantized_weight(weight, name, BIPOLAR if name in plan.bipolar else triple(weight_type(op)))

    def dense(x: Any, weight: Any, bias: Any, name: str, *_: Any) -> Any:
        return biased(standard.MatMul(x, weights(weight, name)), name)

    def conv(x: Any, weight: Any, bias: Any, name: str, *_: Any) -> Any:
        op = by_name[name]
        assert isinstance(op, Conv)
        operands = (x, weights(weight, name))
        return biased(convolution(operands, op.kernel, op.stride, op.padding, op.groups), name)

    def sum_pool(x: Any, weight: Any, name: str, stride: Sequence[int], padding: Sequence[int]) -> Any:
        op = by_name[name]
        assert isinstance(op, SumPool)
        if name not in plan.averages:
            return convolution((x, quantized_weight(weight, name, UNITS)), op.kernel, stride, padding, weight.shape[0])
        mean = standard.AveragePool(x, kernel_shape=list(op.kernel), strides=list(stride), pads=list(padding))
        return standard.Mul(named(mean, f"{name}/mean"), constant(float(np.prod(op.kernel)), f"{name}/places"))

    def requantize(x: Any, factor: Any, offset: Any, low: Any, high: Any, name: str, *rest: Any) -> Any:
        op, chosen = by_name[name], plan.activations[name]
        assert isinstance(op, Requantize)
        if chosen.form == "host":
            return plain(x, factor, offset, low, high, name, *rest)
        if chosen.form == "absorbed":
            return standard.Identity(x)  # taken out again: thresholds read what it reads
        if chosen.form == "trunc":
            return truncate(x, f"{name}/trunc", *chosen.bits)
        if chosen.thresholds is not None:
            return _qonnx.MultiThreshold(
                x,
                tensor(chosen.thresholds, f"{name}/thresholds"),
                out_dtype=f"{'' if op.type.signed else 'U'}INT{op.type.max_bits}",
                out_scale=1.0,
                out_bias=float(op.type.range[0]),
                data_layout="NC" if len(values[name].shape) == 1 else "NCHW",
            )
        if chosen.factor is not None:
            x = named(standard.Mul(x, each_channel(chosen.factor, name, "factor")), f"{name}/scaled")
        if chosen.nudge is not None:
            x = named(standard.Add(x, each_channel(chosen.nudge, name, "nudge")), f"{name}/nudged")
        if chosen.form == "affine":
            return x if chosen.factor is not None or chosen.nudge is not None else standard.Identity(x)
        if not op.type.signed:
            x = named(standard.Relu(x), f"{name}/relu")
        return quant(x, f"{name}/quant", triple(op.type))

    ops = torch.ops.hawq_flow
    plain = TRANSLATION[ops.requantize.default]
    return TRANSLATION | {
        ops.input.default: input_nodes,
        ops.dense.default: dense,
        ops.conv.default: conv,
        ops.sum_pool.default: sum_pool,
        ops.requantize.default: requantize,
    }
