"""Stages in float arithmetic: what the model computes in evaluation, value by value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from hawq_flow.topology.stages import INPUT, Stage, Topology


def pad_space(x: Tensor, padding: Sequence[int], value: float = 0.0) -> Tensor:
    """``x`` (n, channels, *space) padded; ``padding`` is all beginnings, then all ends."""
    if not any(padding):
        return x
    rank = len(padding) // 2
    pairs: list[int] = []
    for axis in reversed(range(rank)):
        pairs += [padding[axis], padding[rank + axis]]
    return functional.pad(x, pairs, value=value)


def convolve(stage: Stage, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The products and sums of a linear or conv stage, with any weights."""
    if stage.kind == "linear":
        return functional.linear(x, weight, bias)
    rank = len(stage.kernel)
    begins, ends = stage.padding[:rank], stage.padding[rank:]
    if begins != ends:
        x, begins = pad_space(x, stage.padding), (0,) * rank
    function = functional.conv1d if rank == 1 else functional.conv2d
    return function(x, weight, bias, stage.stride, begins, 1, stage.groups)


def sum_windows(stage: Stage, x: Tensor) -> Tensor:
    """Sums over windows (n, channels, *positions), exact on whole numbers."""
    rank = len(stage.kernel)
    if stage.kernel == tuple(x.shape[2:]) and not any(stage.padding):
        return x.sum(dim=tuple(range(2, 2 + rank)), keepdim=True)
    x = pad_space(x, stage.padding)
    kernel, stride = stage.kernel, stage.stride
    if rank == 1:  # in one dimension torch can only average, which is not exact
        return functional.avg_pool2d(x.unsqueeze(2), (1, *kernel), (1, *stride), divisor_override=1).squeeze(2)
    return functional.avg_pool2d(x, kernel, stride, divisor_override=1)


def max_windows(stage: Stage, x: Tensor) -> Tensor:
    """Largest element of every window (n, channels, *positions)."""
    x = pad_space(x, stage.padding, -torch.inf)
    function = functional.max_pool1d if len(stage.kernel) == 1 else functional.max_pool2d
    return function(x, stage.kernel, stage.stride)


def repeat_space(x: Tensor, factors: Sequence[int]) -> Tensor:
    """Every element of space repeated along each axis."""
    for axis, factor in enumerate(factors, start=2):
        x = x.repeat_interleave(factor, dim=axis)
    return x


def activate(x: Tensor, activation: str) -> Tensor:
    """ReLU, ReLU6, or nothing."""
    match activation:
        case "relu":
            return torch.relu(x)
        case "relu6":
            return functional.relu6(x)
        case _:
            return x


def stage_output(stage: Stage, operands: Sequence[Tensor]) -> Tensor:
    """What a stage computes in evaluation, in the operands' dtype; batch norm by its running statistics."""
    x = operands[0]
    match stage.kind:
        case "linear" | "conv":
            layer = stage.layer
            y = convolve(stage, x, layer.weight.to(x), None if layer.bias is None else layer.bias.to(x))
            if stage.batch_norm is not None:
                y = _normalize(stage.batch_norm, y)
        case "add":
            y = torch.stack(list(operands)).sum(0)
        case "concat":
            y = torch.cat(list(operands), 1)
        case "average":
            y = sum_windows(stage, x) / stage.divisor
        case "max":
            y = max_windows(stage, x)
        case "upsample":
            y = repeat_space(x, stage.factors)
        case "pad":
            y = pad_space(x, stage.padding)
        case "reshape":
            y = x.reshape(-1, *stage.shape)
        case "softmax":
            y = torch.softmax(x, 1)
        case "table":
            assert stage.function is not None
            y = stage.function(x)
        case _:
            y = x
    return activate(y, stage.activation)


def _normalize(norm: nn.Module, y: Tensor) -> Tensor:
    def channels(values: Tensor) -> Tensor:
        return values.to(y).reshape((1, -1) + (1,) * (y.ndim - 2))

    assert isinstance(norm, (nn.BatchNorm1d, nn.BatchNorm2d))
    assert norm.running_mean is not None
    assert norm.running_var is not None
    y = (y - channels(norm.running_mean)) * channels(torch.rsqrt(norm.running_var.to(y) + norm.eps))
    if norm.weight is not None:
        y = y * channels(norm.weight) + channels(norm.bias)
    return y


@torch.no_grad()
def evaluate(topology: Topology, x: Tensor, wanted: Iterable[str] | None = None) -> Mapping[str, Tensor]:
    """Values of stages by name for samples ``x`` (n, *input shape), in the dtype of ``x``.

    Parameters
    ----------
    wanted:
        Stages whose values are returned (``INPUT`` for the input); None returns all. Others are freed when read last.
    """
    keep = {INPUT, *topology.readers} if wanted is None else set(wanted)
    last = {source: stage.name for stage in topology.stages for source in stage.sources}
    values = {INPUT: x}
    result: dict[str, Tensor] = {INPUT: x} if INPUT in keep else {}
    for stage in topology.stages:
        values[stage.name] = stage_output(stage, [values[source] for source in stage.sources])
        if stage.name in keep:
            result[stage.name] = values[stage.name]
        for source in stage.sources:
            if last[source] == stage.name:
                values.pop(source, None)
    return result
