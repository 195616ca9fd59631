"""The second table of symbolic functions for the torch custom ops of the IR: standard operators alone.

Each function finds what to write by the op's name: the module's own constants are float32, while multipliers, shifts
and containers stand in the plan. So the table is a closure over the plan of one network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from onnxscript.values import Opset

from hawq_flow.to_onnx import layers, rescale, shaping
from hawq_flow.to_onnx.containers import worked
from hawq_flow.to_onnx.nodes import Nodes
from hawq_flow.to_onnx.plan import Plan
from hawq_flow.to_qonnx.symbolic import OPSET


def translation(plan: Plan) -> dict[Callable[..., Any], Callable[..., Any]]:
    """Custom op -> symbolic function, for one network in one dialect: what ``to_qonnx.exported`` takes."""
    # The exporter writes one opset and converts from no later one. The signatures used here are the same in the opset
    # that the file declares, in which onnx checks it; there they take more types.
    opset = Opset("", OPSET)

    def write(function: Callable[..., Any], name: str, x: Any) -> Any:
        return function(Nodes(opset, name), plan.ops[name], x)

    def input_nodes(x: Any, name: str, type: Sequence[int]) -> Any:
        spec, dtype = plan.inputs[name]
        nodes = Nodes(opset, name)
        low, high = spec.type.range
        if (low, high) == (np.iinfo(dtype).min, np.iinfo(dtype).max) and spec.type.uniform:
            return nodes("Identity", x, what="declared")
        work = worked(dtype)
        rank = len(spec.shape)
        bounds = (low, high) if spec.type.uniform else (spec.type.low(rank), spec.type.high(rank))
        return nodes.finish(nodes.clip(nodes.cast(x, dtype, work, "wide"), work, *bounds), work, dtype)

    def dense_nodes(x: Any, weight: Any, bias: Any, name: str, type: Sequence[int], accumulator: Sequence[int]) -> Any:
        return write(layers.layer, name, x)

    def conv_nodes(
        x: Any,
        weight: Any,
        bias: Any,
        name: str,
        type: Sequence[int],
        accumulator: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        groups: int,
    ) -> Any:
        return write(layers.layer, name, x)

    def sum_pool_nodes(x: Any, weight: Any, name: str, stride: Sequence[int], padding: Sequence[int]) -> Any:
        return write(layers.layer, name, x)

    def requantize_nodes(
        x: Any,
        factor: Any,
        offset: Any,
        low: Any,
        high: Any,
        name: str,
        rounding: str,
        wide: Sequence[int],
        type: Sequence[int],
    ) -> Any:
        return write(rescale.requantize, name, x)

    def max_pool_nodes(x: Any, name: str, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int]) -> Any:
        return write(shaping.max_pool, name, x)

    def reshape_nodes(x: Any, name: str, shape: Sequence[int]) -> Any:
        return write(shaping.reshape, name, x)

    def pad_nodes(x: Any, name: str, padding: Sequence[int], value: int) -> Any:
        return write(shaping.pad, name, x)

    def upsample_nodes(x: Any, name: str, factors: Sequence[int]) -> Any:
        return write(shaping.upsample, name, x)

    def concat_nodes(operands: Sequence[Any], name: str, axis: int) -> Any:
        return write(shaping.concat, name, operands)

    def add_nodes(operands: Sequence[Any], name: str) -> Any:
        return write(shaping.add, name, operands)

    def pair_nodes(left: Any, right: Any, name: str) -> Any:
        return write(shaping.binary, name, [left, right])

    def reduce_nodes(x: Any, name: str, axis: int) -> Any:
        return write(shaping.reduce, name, x)

    def lookup_nodes(x: Any, table: Any, name: str, start: int) -> Any:
        return write(shaping.lookup, name, x)

    ops = torch.ops.hawq_flow
    return {
        ops.input.default: input_nodes,
        ops.dense.default: dense_nodes,
        ops.conv.default: conv_nodes,
        ops.requantize.default: requantize_nodes,
        ops.reshape.default: reshape_nodes,
        ops.pad.default: pad_nodes,
        ops.max_pool.default: max_pool_nodes,
        ops.sum_pool.default: sum_pool_nodes,
        ops.upsample.default: upsample_nodes,
        ops.concat.default: concat_nodes,
        ops.add.default: add_nodes,
        ops.subtract.default: pair_nodes,
        ops.multiply.default: pair_nodes,
        ops.reduce_max.default: reduce_nodes,
        ops.reduce_sum.default: reduce_nodes,
        ops.lookup.default: lookup_nodes,
    }
