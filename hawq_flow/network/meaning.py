"""The closed union of ops, and what each of them means, in plain int64."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hawq_flow.network.arithmetic import Add, Lookup, Multiply, ReduceMax, ReduceSum, Subtract
from hawq_flow.network.layers import Conv, Dense, Requantize
from hawq_flow.network.shaping import Concat, MaxPool, Pad, Reshape, SumPool, Upsample
from hawq_flow.network.windows import padded, patches
from hawq_flow.numeric import IntArray, overflow_to, requantize

Op = (
    Dense
    | Conv
    | Requantize
    | Reshape
    | Pad
    | MaxPool
    | SumPool
    | Upsample
    | Concat
    | Add
    | Subtract
    | Multiply
    | ReduceMax
    | ReduceSum
    | Lookup
)
"""The closed union of operations. A new one: its class, a case below, a function in each back end, a line of test."""
OPS: dict[str, type[Op]] = {
    cls.kind: cls
    for cls in (
        Dense,
        Conv,
        Requantize,
        Reshape,
        Pad,
        MaxPool,
        SumPool,
        Upsample,
        Concat,
        Add,
        Subtract,
        Multiply,
        ReduceMax,
        ReduceSum,
        Lookup,
    )
}


def forward(op: Op, operands: Sequence[IntArray]) -> IntArray:
    """The meaning of one op in plain int64: operands of shape (n, *shape) -> (n, *shape). Short and slow on purpose.

    ``interpret.run`` computes the same faster, and its tests hold it to this.
    """
    x = operands[0]
    match op:
        case Dense():
            acc = x @ op.weight.T + op.bias
            return acc if op.accumulator is None else overflow_to(acc, op.accumulator, op.overflow)
        case Conv():
            acc = np.concatenate([_convolve(op, x, group) for group in range(op.groups)], axis=1)
            return acc if op.accumulator is None else overflow_to(acc, op.accumulator, op.overflow, acc.ndim - 1)
        case Requantize():
            return requantize(x, op.multiplier, op.shift, op.offset, op.rounding, op.type, op.overflow, rank=x.ndim - 1)
        case Reshape():
            return x.reshape((-1, *op.to))
        case Pad():
            return padded(x, op.padding, op.value)
        case MaxPool():
            axes = tuple(range(2, 2 + len(op.kernel)))
            least = int(np.iinfo(np.int64).min)
            return np.asarray(patches(x, op.kernel, op.stride, op.padding, least).max(axis=axes))
        case SumPool():
            axes = tuple(range(2, 2 + len(op.kernel)))
            return np.asarray(patches(x, op.kernel, op.stride, op.padding).sum(axis=axes))
        case Upsample():
            for axis, factor in enumerate(op.factors, start=2):
                x = np.repeat(x, factor, axis)
            return x
        case Concat():
            return np.concatenate(list(operands), axis=op.axis + 1)
        case Add():
            total = operands[0] + operands[1]
            for other in operands[2:]:
                total = total + other
            return total
        case Subtract():
            return operands[0] - operands[1]
        case Multiply():
            return operands[0] * operands[1]
        case ReduceMax():
            return np.asarray(x.max(axis=op.axis + 1, keepdims=True))
        case ReduceSum():
            return np.asarray(x.sum(axis=op.axis + 1, keepdims=True))
        case Lookup():
            return np.asarray(op.table[x - op.start])


def _convolve(op: Conv, x: IntArray, group: int) -> IntArray:
    """One group's sums: (n, channels, *space) -> (n, outputs / groups, *positions)."""
    inputs, outputs = op.weight.shape[1], op.weight.shape[0] // op.groups
    seen = patches(x[:, group * inputs : (group + 1) * inputs], op.kernel, op.stride, op.padding)
    rows = slice(group * outputs, (group + 1) * outputs)
    sums = np.tensordot(op.weight[rows], seen, axes=(range(1, op.weight.ndim), range(1, op.weight.ndim)))
    bias = op.bias[rows].reshape((-1,) + (1,) * (op.weight.ndim - 2))
    return np.asarray(np.moveaxis(sums, 0, 1) + bias)
