"""Which modules, functions and methods of torch mean what, to the reader of piecewise linear networks."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from hawq_flow.sensitivity.program import Clip, Operation, Relu

IDENTITIES: tuple[type[nn.Module], ...] = (
    nn.Identity,
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
)
LINEAR_MODULES: tuple[type[nn.Module], ...] = (
    nn.AvgPool1d,
    nn.AvgPool2d,
    nn.AdaptiveAvgPool1d,
    nn.AdaptiveAvgPool2d,
    nn.Upsample,
    nn.UpsamplingNearest2d,
    nn.ZeroPad1d,
    nn.ZeroPad2d,
    nn.ConstantPad1d,
    nn.ConstantPad2d,
    nn.ReflectionPad1d,
    nn.ReflectionPad2d,
    nn.ReplicationPad1d,
    nn.ReplicationPad2d,
    nn.PixelShuffle,
)
"""Modules without parameters that are linear (affine, for a constant that is padded)."""
MAX_POOLS: dict[type[nn.Module], int] = {
    nn.MaxPool1d: 1,
    nn.MaxPool2d: 2,
    nn.AdaptiveMaxPool1d: 1,
    nn.AdaptiveMaxPool2d: 2,
}

RELUS: tuple[Any, ...] = (functional.relu, torch.relu, torch.relu_, functional.relu_, "relu", "relu_")
LEAKY: tuple[Any, ...] = (functional.leaky_relu, functional.leaky_relu_)
CLIPS: tuple[Any, ...] = (functional.relu6, functional.hardtanh, functional.hardtanh_)
DROPOUTS: tuple[Any, ...] = (
    functional.dropout,
    functional.dropout1d,
    functional.dropout2d,
    functional.alpha_dropout,
    functional.feature_alpha_dropout,
)
FLATTENS: tuple[Any, ...] = (torch.flatten, torch.reshape, "flatten", "view", "reshape")
CLAMPS: tuple[Any, ...] = (torch.clamp, "clamp", "clamp_")
SAME: tuple[Any, ...] = ("contiguous", "clone")
ADDS: tuple[Any, ...] = (operator.add, operator.iadd, torch.add, "add", "add_", "__add__")
SUBTRACTS: tuple[Any, ...] = (operator.sub, operator.isub, torch.sub, "sub", "sub_")
PRODUCTS: tuple[Any, ...] = (operator.mul, operator.imul, torch.mul, "mul", "mul_")
QUOTIENTS: tuple[Any, ...] = (operator.truediv, operator.itruediv, torch.div, "div", "div_")
NEGATIVES: tuple[Any, ...] = (operator.neg, torch.neg, "neg")
JOINS: tuple[Any, ...] = (torch.cat, torch.concat, torch.concatenate)
MEANS: tuple[Any, ...] = (torch.mean, "mean")
SUMS: tuple[Any, ...] = (torch.sum, "sum")
MAXIMA: tuple[Any, ...] = (torch.amax, "amax")
LINEAR_FUNCTIONS: tuple[Any, ...] = (
    functional.avg_pool1d,
    functional.avg_pool2d,
    functional.adaptive_avg_pool1d,
    functional.adaptive_avg_pool2d,
    functional.interpolate,
    functional.pad,
)
"""Functions that are linear (affine, for a constant that is padded) in their first argument."""
MAX_POOL_FUNCTIONS: tuple[tuple[tuple[Any, ...], Any, int], ...] = (
    ((functional.max_pool1d, torch.max_pool1d), functional.max_pool1d, 1),
    ((functional.max_pool2d, torch.max_pool2d), functional.max_pool2d, 2),
)
"""Functions, the one of them that gives indices, and its axes of space."""
IN_PLACE_OPERATORS: tuple[Any, ...] = (operator.iadd, operator.isub, operator.imul, operator.itruediv)


POOL_ARGUMENTS = ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")


def activation(module: nn.Module) -> Operation | None:
    """The operation of a piecewise linear activation module; None for another module."""
    if type(module) is nn.ReLU:
        return Relu()
    if type(module) is nn.LeakyReLU:
        return Relu(float(module.negative_slope))
    if type(module) in (nn.ReLU6, nn.Hardtanh):
        assert isinstance(module, nn.Hardtanh)
        return Clip(float(module.min_val), float(module.max_val), False)
    return None


def with_indices(module: Any) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """The pool as a function that returns indices too, without changing the module."""
    one = isinstance(module, (nn.MaxPool1d, nn.AdaptiveMaxPool1d))
    if isinstance(module, (nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d)):
        adaptive: Any = functional.adaptive_max_pool1d if one else functional.adaptive_max_pool2d
        return lambda t: adaptive(t, module.output_size, True)
    pool: Any = functional.max_pool1d if one else functional.max_pool2d
    names = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")
    return lambda t: pool(t, **{name: getattr(module, name) for name in names}, return_indices=True)


def is_any(target: Any, known: Sequence[Any]) -> bool:
    """Whether a call's target is one of the functions (by identity) or methods (by name) known."""
    return any(target is item or (isinstance(item, str) and target == item) for item in known)


def name_of(function: Any) -> str:
    """A function's name, or a method's."""
    return function if isinstance(function, str) else getattr(function, "__name__", repr(function))


def module_of(function: Any) -> str:
    """The name of the Python module that a function is of."""
    return str(getattr(function, "__module__", ""))
