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

    # Constants and arguments of the custom ops stand in the plan already: what matters is where the name does.
    def layer_nodes(x: Any, weight: Any, bias: Any, name: str, *_: Any) -> Any:
        return write(layers.layer, name, x)

    def sum_pool_nodes(x: Any, weight: Any, name: str, *_: Any) -> Any:
        return write(layers.layer, name, x)

    def requantize_nodes(x: Any, factor: Any, offset: Any, low: Any, high: Any, name: str, *_: Any) -> Any:
        return write(rescale.requantize, name, x)

    def pair_nodes(left: Any, right: Any, name: str) -> Any:
        return write(shaping.binary, name, [left, right])

    def lookup_nodes(x: Any, table: Any, name: str, *_: Any) -> Any:
        return write(shaping.lookup, name, x)

    def named_first(function: Callable[..., Any]) -> Callable[..., Any]:
        """Of an op without constants: its operand or operands, then the name."""

        def nodes(x: Any, name: str, *_: Any) -> Any:
            return write(function, name, x)

        return nodes

    ops = torch.ops.hawq_flow
    return {
        ops.input.default: input_nodes,
        ops.dense.default: layer_nodes,
        ops.conv.default: layer_nodes,
        ops.requantize.default: requantize_nodes,
        ops.reshape.default: named_first(shaping.reshape),
        ops.pad.default: named_first(shaping.pad),
        ops.max_pool.default: named_first(shaping.max_pool),
        ops.sum_pool.default: sum_pool_nodes,
        ops.upsample.default: named_first(shaping.upsample),
        ops.concat.default: named_first(shaping.concat),
        ops.add.default: named_first(shaping.add),
        ops.subtract.default: pair_nodes,
        ops.multiply.default: pair_nodes,
        ops.reduce_max.default: named_first(shaping.reduce),
        ops.reduce_sum.default: named_first(shaping.reduce),
        ops.lookup.default: lookup_nodes,
    }
