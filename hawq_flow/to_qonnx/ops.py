"""One torch custom op for each IR op: what the exporter meets, and what eager torch computes.

Tensors first, then the names and types that the symbolic function needs. ``type`` is [bits, signed, narrow]; an empty
list stands for "no such type", an empty tensor for "no such constant". The eager implementations make the module
runnable in torch, exact in float64 under the bound of the package's docstring (float64 convolutions are a matrix
product in torch; the faster algorithms that divide exist for float32 alone). They are the meaning of the op; the
exporter only needs the shapes, from the fake implementations below.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from hawq_flow.network import window_shape
from hawq_flow.numeric import IntType, Rounding


def _clip(x: torch.Tensor, type: Sequence[int]) -> torch.Tensor:
    low, high = IntType(type[0], bool(type[1]), bool(type[2])).range
    return torch.clamp(x, low, high)


def _padded(x: torch.Tensor, padding: Sequence[int], value: float) -> torch.Tensor:
    """``x`` (n, channels, *space) with ``value`` around its space; all beginnings, then all ends."""
    rank = len(padding) // 2
    pairs = [(padding[i], padding[rank + i]) for i in reversed(range(rank))]  # torch begins with the last axis
    return functional.pad(x, [n for pair in pairs for n in pair], value=value)


def _convolve(
    x: torch.Tensor, weight: torch.Tensor, stride: Sequence[int], padding: Sequence[int], groups: int
) -> torch.Tensor:
    convolve: Any = functional.conv1d if weight.ndim == 3 else functional.conv2d
    result: torch.Tensor = convolve(_padded(x, padding, 0.0), weight.to(x.dtype), stride=tuple(stride), groups=groups)
    return result


# --- the ops ---------------------------------------------------------------------------------------------------------


@torch.library.custom_op("hawq_flow::input", mutates_args=())
def _input_op(x: torch.Tensor, name: str, type: Sequence[int]) -> torch.Tensor:
    return _clip(torch.round(x), type)


@torch.library.custom_op("hawq_flow::dense", mutates_args=())
def _dense_op(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    name: str,
    type: Sequence[int],
    accumulator: Sequence[int],
) -> torch.Tensor:
    acc = x @ weight.to(x.dtype) + bias.to(x.dtype)
    return _clip(acc, accumulator) if accumulator else acc


@torch.library.custom_op("hawq_flow::conv", mutates_args=())
def _conv_op(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    name: str,
    type: Sequence[int],
    accumulator: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    groups: int,
) -> torch.Tensor:
    acc = _convolve(x, weight, stride, padding, groups)
    acc = acc + bias.to(x.dtype).reshape([-1] + [1] * (weight.ndim - 2))
    return _clip(acc, accumulator) if accumulator else acc


@torch.library.custom_op("hawq_flow::requantize", mutates_args=())
def _requantize_op(
    x: torch.Tensor,
    factor: torch.Tensor,
    offset: torch.Tensor,
    low: torch.Tensor,
    high: torch.Tensor,
    name: str,
    rounding: str,
    wide: Sequence[int],
    type: Sequence[int],
) -> torch.Tensor:
    y = x * factor.to(x.dtype) if factor.numel() else x
    if rounding == Rounding.HALF_EVEN.value:
        y = torch.round(y)
    else:
        y = torch.floor(y + 0.5 if rounding == Rounding.HALF_UP.value else y)
    if offset.numel():
        y = y + offset.to(x.dtype)
    if low.numel():
        y = torch.minimum(torch.maximum(y, low.to(x.dtype)), high.to(x.dtype))
    return _clip(y, type)


@torch.library.custom_op("hawq_flow::reshape", mutates_args=())
def _reshape_op(x: torch.Tensor, name: str, shape: Sequence[int]) -> torch.Tensor:
    return x.reshape([-1, *shape]).clone()


@torch.library.custom_op("hawq_flow::pad", mutates_args=())
def _pad_op(x: torch.Tensor, name: str, padding: Sequence[int], value: int) -> torch.Tensor:
    return _padded(x, padding, float(value)).clone()


@torch.library.custom_op("hawq_flow::max_pool", mutates_args=())
def _max_pool_op(
    x: torch.Tensor, name: str, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int]
) -> torch.Tensor:
    pool: Any = functional.max_pool1d if len(kernel) == 1 else functional.max_pool2d
    result: torch.Tensor = pool(_padded(x, padding, float("-inf")), tuple(kernel), tuple(stride))
    return result


@torch.library.custom_op("hawq_flow::sum_pool", mutates_args=())
def _sum_pool_op(
    x: torch.Tensor, weight: torch.Tensor, name: str, stride: Sequence[int], padding: Sequence[int]
) -> torch.Tensor:
    return _convolve(x, weight, stride, padding, weight.shape[0])


@torch.library.custom_op("hawq_flow::upsample", mutates_args=())
def _upsample_op(x: torch.Tensor, name: str, factors: Sequence[int]) -> torch.Tensor:
    for axis, factor in enumerate(factors, start=2):
        x = torch.repeat_interleave(x, factor, dim=axis)
    return x.clone()


@torch.library.custom_op("hawq_flow::concat", mutates_args=())
def _concat_op(operands: Sequence[torch.Tensor], name: str, axis: int) -> torch.Tensor:
    return torch.cat(list(operands), dim=axis + 1)


@torch.library.custom_op("hawq_flow::add", mutates_args=())
def _add_op(operands: Sequence[torch.Tensor], name: str) -> torch.Tensor:
    total = operands[0] + operands[1]
    for other in operands[2:]:
        total = total + other
    return total


@torch.library.custom_op("hawq_flow::subtract", mutates_args=())
def _subtract_op(left: torch.Tensor, right: torch.Tensor, name: str) -> torch.Tensor:
    return left - right


@torch.library.custom_op("hawq_flow::multiply", mutates_args=())
def _multiply_op(left: torch.Tensor, right: torch.Tensor, name: str) -> torch.Tensor:
    return left * right


@torch.library.custom_op("hawq_flow::reduce_max", mutates_args=())
def _reduce_max_op(x: torch.Tensor, name: str, axis: int) -> torch.Tensor:
    return x.amax(dim=axis + 1, keepdim=True)


@torch.library.custom_op("hawq_flow::reduce_sum", mutates_args=())
def _reduce_sum_op(x: torch.Tensor, name: str, axis: int) -> torch.Tensor:
    return x.sum(dim=axis + 1, keepdim=True)


@torch.library.custom_op("hawq_flow::lookup", mutates_args=())
def _lookup_op(x: torch.Tensor, table: torch.Tensor, name: str, start: int) -> torch.Tensor:
    return table.to(x.dtype)[(x - start).to(torch.int64)]


# --- their shapes ----------------------------------------------------------------------------------------------------


def _windows(
    x: torch.Tensor, outputs: int, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int]
) -> torch.Tensor:
    shape = window_shape("window", tuple(x.shape[1:]), tuple(kernel), tuple(stride), tuple(padding))
    return x.new_empty((x.shape[0], outputs, *shape))


def _joint(operands: Sequence[torch.Tensor]) -> torch.Tensor:
    # All operands have the batch of the first; what broadcasts is behind it.
    shape = np.broadcast_shapes(*(tuple(x.shape[1:]) for x in operands))
    return operands[0].new_empty((operands[0].shape[0], *shape))


@_input_op.register_fake
def _(x: torch.Tensor, *_: Any) -> torch.Tensor:
    return torch.empty_like(x)


@_dense_op.register_fake
def _(x: torch.Tensor, weight: torch.Tensor, *_: Any) -> torch.Tensor:
    return x.new_empty((x.shape[0], weight.shape[1]))


@_conv_op.register_fake
def _(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    name: str,
    type: Sequence[int],
    accumulator: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    groups: int,
) -> torch.Tensor:
    return _windows(x, weight.shape[0], weight.shape[2:], stride, padding)


@_requantize_op.register_fake
def _(x: torch.Tensor, *_: Any) -> torch.Tensor:
    return torch.empty_like(x)


@_reshape_op.register_fake
def _(x: torch.Tensor, name: str, shape: Sequence[int]) -> torch.Tensor:
    return x.new_empty((x.shape[0], *shape))


@_pad_op.register_fake
def _(x: torch.Tensor, name: str, padding: Sequence[int], value: int) -> torch.Tensor:
    rank = len(padding) // 2
    space = (n + padding[i] + padding[rank + i] for i, n in enumerate(x.shape[2:]))
    return x.new_empty((*x.shape[:2], *space))


@_max_pool_op.register_fake
def _(x: torch.Tensor, name: str, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int]) -> torch.Tensor:
    return _windows(x, x.shape[1], kernel, stride, padding)


@_sum_pool_op.register_fake
def _(x: torch.Tensor, weight: torch.Tensor, name: str, stride: Sequence[int], padding: Sequence[int]) -> torch.Tensor:
    return _windows(x, x.shape[1], weight.shape[2:], stride, padding)


@_upsample_op.register_fake
def _(x: torch.Tensor, name: str, factors: Sequence[int]) -> torch.Tensor:
    return x.new_empty((*x.shape[:2], *(n * f for n, f in zip(x.shape[2:], factors, strict=True))))


@_concat_op.register_fake
def _(operands: Sequence[torch.Tensor], name: str, axis: int) -> torch.Tensor:
    shape = list(operands[0].shape)
    shape[axis + 1] = sum(x.shape[axis + 1] for x in operands)
    return operands[0].new_empty(shape)


@_add_op.register_fake
def _(operands: Sequence[torch.Tensor], name: str) -> torch.Tensor:
    return _joint(operands)


@_subtract_op.register_fake
def _(left: torch.Tensor, right: torch.Tensor, name: str) -> torch.Tensor:
    return _joint([left, right])


@_multiply_op.register_fake
def _(left: torch.Tensor, right: torch.Tensor, name: str) -> torch.Tensor:
    return _joint([left, right])


@_reduce_max_op.register_fake
def _(x: torch.Tensor, name: str, axis: int) -> torch.Tensor:
    return _reduced(x, axis)


@_reduce_sum_op.register_fake
def _(x: torch.Tensor, name: str, axis: int) -> torch.Tensor:
    return _reduced(x, axis)


def _reduced(x: torch.Tensor, axis: int) -> torch.Tensor:
    return x.new_empty((*x.shape[: axis + 1], 1, *x.shape[axis + 2 :]))


@_lookup_op.register_fake
def _(x: torch.Tensor, *_: Any) -> torch.Tensor:
    return torch.empty_like(x)
