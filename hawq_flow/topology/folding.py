"""Batch norm folded into the weights of the layer before it."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import nn

from hawq_flow.topology.reading import read
from hawq_flow.topology.stages import BatchNorm


def batch_norm_factor(batch_norm: BatchNorm, variance: torch.Tensor) -> torch.Tensor:
    """``gamma / sqrt(variance + eps)`` per channel; gamma is 1 without affine parameters."""
    inverse = torch.rsqrt(variance + batch_norm.eps)
    return inverse if batch_norm.weight is None else batch_norm.weight * inverse


def fold_batch_norm(model: nn.Module, input_shape: Sequence[int] | None = None) -> nn.Module:
    """A copy of ``model`` in eval mode with every batch norm folded into its layer and replaced by Identity.

    Module names stay, so layers keep the names plans use. The caller's model is untouched.
    """
    folded = copy.deepcopy(model).eval()
    with torch.no_grad():
        for stage in read(folded, input_shape).layers:
            norm = stage.batch_norm
            if norm is None:
                continue
            assert norm.running_mean is not None  # read() refused otherwise
            assert norm.running_var is not None
            factor = batch_norm_factor(norm, norm.running_var)
            layer = stage.layer
            shift = -norm.running_mean * factor
            if norm.bias is not None:
                shift = shift + norm.bias
            bias = shift if layer.bias is None else shift + layer.bias * factor
            channels = factor.reshape((-1,) + (1,) * (layer.weight.ndim - 1))
            layer.weight = nn.Parameter(layer.weight * channels)  # a new one: weights may be tied
            layer.bias = nn.Parameter(bias.clone())
            parent, _, leaf = stage.batch_norm_name.rpartition(".")
            setattr(folded.get_submodule(parent), leaf, nn.Identity())
    return folded
