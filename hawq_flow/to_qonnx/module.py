"""The torch module made of the custom ops: what torch.onnx.export is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hawq_flow.network import (
    Add,
    Concat,
    Conv,
    Dense,
    IntegerNetwork,
    Lookup,
    MaxPool,
    Multiply,
    Op,
    Pad,
    ReduceMax,
    ReduceSum,
    Requantize,
    Reshape,
    Subtract,
    SumPool,
    Upsample,
    Value,
)
from hawq_flow.to_qonnx.plan import check, declared_accumulator, plan_requantize, triple, weight_type


@dataclass(frozen=True)
class _Call:
    """One IR op as a call: the custom op, constants by what they are, and the arguments after the name."""

    function: Callable[..., torch.Tensor]
    constants: Mapping[str, NDArray[Any]]
    arguments: tuple[Any, ...]
    variadic: bool = False


def _call(op: Op, values: Mapping[str, Value]) -> _Call:
    ops = torch.ops.hawq_flow
    match op:
        case Dense():
            arguments: tuple[Any, ...] = (triple(weight_type(op)), declared_accumulator(op, values))
            return _Call(ops.dense, {"weight": op.weight.T, "bias": op.bias}, arguments)
        case Conv():
            arguments = (triple(weight_type(op)), declared_accumulator(op, values))
            arguments += (list(op.stride), list(op.padding), op.groups)
            return _Call(ops.conv, {"weight": op.weight, "bias": op.bias}, arguments)
        case Requantize():
            plan = plan_requantize(op, values)
            rank = len(values[op.name].shape)
            none = np.zeros(0)
            constants = {
                "factor": none if plan.identity else plan.factor,
                "offset": op.offset if plan.offset else none,
                "low": op.type.low(rank) if plan.bounds else none,
                "high": op.type.high(rank) if plan.bounds else none,
            }
            wide = triple(plan.rounded) if plan.two_steps else []
            return _Call(ops.requantize, constants, (op.rounding.value, wide, triple(op.type)))
        case Reshape():
            return _Call(ops.reshape, {}, (list(op.to),))
        case Pad():
            return _Call(ops.pad, {}, (list(op.padding), op.value))
        case MaxPool():
            return _Call(ops.max_pool, {}, (list(op.kernel), list(op.stride), list(op.padding)))
        case SumPool():
            ones = np.ones((values[op.name].shape[0], 1, *op.kernel))
            return _Call(ops.sum_pool, {"weight": ones}, (list(op.stride), list(op.padding)))
        case Upsample():
            return _Call(ops.upsample, {}, (list(op.factors),))
        case Concat():
            return _Call(ops.concat, {}, (op.axis,), variadic=True)
        case Add():
            return _Call(ops.add, {}, (), variadic=True)
        case Subtract():
            return _Call(ops.subtract, {}, ())
        case Multiply():
            return _Call(ops.multiply, {}, ())
        case ReduceMax():
            return _Call(ops.reduce_max, {}, (op.axis,))
        case ReduceSum():
            return _Call(ops.reduce_sum, {}, (op.axis,))
        case Lookup():
            return _Call(ops.lookup, {"table": op.table}, (op.start,))


class QonnxModule(torch.nn.Module):
    """The network as a torch module made of the custom ops: inputs (n, *shape) in, every op's value out, in order.

    Runs in eager torch too: in float64 it gives the network's integers exactly under the bound of the package's
    docstring.
    """

    def __init__(self, network: IntegerNetwork) -> None:
        super().__init__()
        self.network = network
        values = check(network)
        self._calls = [_call(op, values) for op in network.ops]
        for op, call in zip(network.ops, self._calls, strict=True):
            for what, array in call.constants.items():
                constant = np.ascontiguousarray(array, dtype=np.float32).reshape(array.shape)
                self.register_buffer(f"{op.name}/{what}", torch.from_numpy(constant))

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Every op's value, in the network's order; inputs in the network's order, whole numbers in a float dtype."""
        env: dict[str, torch.Tensor] = {}
        for spec, x in zip(self.network.inputs, inputs, strict=True):
            env[spec.name] = torch.ops.hawq_flow.input(x, spec.name, triple(spec.type))
        for op, call in zip(self.network.ops, self._calls, strict=True):
            operands: list[Any] = [env[name] for name in op.inputs]
            if call.variadic:
                operands = [operands]
            constants = [self.get_buffer(f"{op.name}/{what}") for what in call.constants]
            env[op.name] = call.function(*operands, *constants, op.name, *call.arguments)
        return tuple(env[op.name] for op in self.network.ops)
