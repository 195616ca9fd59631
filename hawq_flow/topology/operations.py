"""Modules, functions and methods of torch as calls: one name and one set of settings for every spelling.

``nn.ReLU``, ``functional.relu``, ``torch.relu``, ``x.relu()`` and their in-place forms are one operation with one name.
What stands in none of the tables is not supported, and ``advice`` says what to write instead.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from hawq_flow.topology.stages import UnsupportedModelError

REQUIRED = object()
"""Default of a parameter that has none."""


@dataclass(frozen=True)
class Call:
    """An operation: its name, its settings, and whether it writes into its operand."""

    operation: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    in_place: bool = False


@dataclass(frozen=True)
class Spelling:
    """A function or method: the operation, its parameters after the operand with defaults, and fixed settings."""

    operation: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    in_place: bool = False

    def call(self, what: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
        """Bind arguments (the operand left out)."""
        names = list(self.parameters)
        given = dict(zip(names, args, strict=False)) | dict(kwargs)
        unknown = [name for name in given if name not in self.parameters]
        if len(args) > len(names) or unknown:
            raise UnsupportedModelError(
                f"{what}: arguments {', '.join(unknown) or f'{len(args)} in number'} are not supported; expected "
                f"{', '.join(names) or 'none'}"
            )
        settings = {**self.parameters, **given}
        missing = [name for name, value in settings.items() if value is REQUIRED]
        if missing:
            raise UnsupportedModelError(f"{what}: no {', '.join(missing)} given")
        in_place = self.in_place or bool(settings.pop("inplace", False))
        return Call(self.operation, {**settings, **self.fixed}, in_place)


_POOL = {"kernel_size": REQUIRED, "stride": None, "padding": 0}
_MAX = {**_POOL, "dilation": 1, "ceil_mode": False, "return_indices": False}
_TORCH_MAX = {name: default for name, default in _MAX.items() if name != "return_indices"}
_AVERAGE = {**_POOL, "ceil_mode": False, "count_include_pad": True, "divisor_override": None}
_REDUCE = {"dim": REQUIRED, "keepdim": False}
_SOFTMAX = {"dim": None}
_INPLACE = {"inplace": False}

TABLES: dict[str, tuple[type[nn.Module], Callable[..., Any], Mapping[str, Any]]] = {
    "sigmoid": (nn.Sigmoid, torch.sigmoid, {}),
    "tanh": (nn.Tanh, torch.tanh, {}),
    "elu": (nn.ELU, functional.elu, {"alpha": 1.0}),
    "selu": (nn.SELU, functional.selu, {}),
    "celu": (nn.CELU, functional.celu, {"alpha": 1.0}),
    "gelu": (nn.GELU, functional.gelu, {"approximate": "none"}),
    "silu": (nn.SiLU, functional.silu, {}),
    "mish": (nn.Mish, functional.mish, {}),
    "leaky_relu": (nn.LeakyReLU, functional.leaky_relu, {"negative_slope": 0.01}),
    "softplus": (nn.Softplus, functional.softplus, {"beta": 1.0, "threshold": 20.0}),
    "softsign": (nn.Softsign, functional.softsign, {}),
    "logsigmoid": (nn.LogSigmoid, functional.logsigmoid, {}),
    "hardtanh": (nn.Hardtanh, functional.hardtanh, {"min_val": -1.0, "max_val": 1.0}),
    "hardsigmoid": (nn.Hardsigmoid, functional.hardsigmoid, {}),
    "hardswish": (nn.Hardswish, functional.hardswish, {}),
}
"""Functions of one element that become lookup tables: module, function, parameters."""
_IN_PLACE_TABLES = ("elu", "selu", "celu", "silu", "mish", "leaky_relu", "hardtanh", "hardsigmoid", "hardswish")


def _table(name: str, settings: Mapping[str, Any], in_place: bool) -> Call:
    _, function, parameters = TABLES[name]
    chosen = {key: settings[key] for key in parameters}
    if name == "hardtanh" and (chosen["min_val"], chosen["max_val"]) == (0, 6):
        return Call("activation", {"activation": "relu6"}, in_place)
    label = name + "".join(f", {key}={value}" for key, value in chosen.items())
    return Call("table", {"function": partial(function, **chosen), "function_name": label}, in_place)


def _functions() -> dict[Any, Spelling]:
    relu, relu6 = {"activation": "relu"}, {"activation": "relu6"}
    table: dict[Any, Spelling] = {
        functional.relu: Spelling("activation", _INPLACE, relu),
        torch.relu: Spelling("activation", {}, relu),
        torch.relu_: Spelling("activation", {}, relu, True),
        functional.relu_: Spelling("activation", {}, relu, True),
        functional.relu6: Spelling("activation", _INPLACE, relu6),
        torch.flatten: Spelling("flatten", {"start_dim": 0, "end_dim": -1}),
        torch.reshape: Spelling("reshape", {"shape": REQUIRED}),
        torch.squeeze: Spelling("squeeze", {"dim": None}),
        torch.unsqueeze: Spelling("unsqueeze", {"dim": REQUIRED}),
        functional.max_pool1d: Spelling("max", _MAX, {"rank": 1}),
        functional.max_pool2d: Spelling("max", _MAX, {"rank": 2}),
        torch.max_pool1d: Spelling("max", _TORCH_MAX, {"rank": 1}),
        torch.max_pool2d: Spelling("max", _TORCH_MAX, {"rank": 2}),
        functional.avg_pool1d: Spelling(
            "average", {k: v for k, v in _AVERAGE.items() if k != "divisor_override"}, {"rank": 1}
        ),
        functional.avg_pool2d: Spelling("average", _AVERAGE, {"rank": 2}),
        functional.adaptive_avg_pool1d: Spelling("adaptive", {"output_size": REQUIRED}, {"pool": "average", "rank": 1}),
        functional.adaptive_avg_pool2d: Spelling("adaptive", {"output_size": REQUIRED}, {"pool": "average", "rank": 2}),
        functional.adaptive_max_pool1d: Spelling(
            "adaptive", {"output_size": REQUIRED, "return_indices": False}, {"pool": "max", "rank": 1}
        ),
        functional.adaptive_max_pool2d: Spelling(
            "adaptive", {"output_size": REQUIRED, "return_indices": False}, {"pool": "max", "rank": 2}
        ),
        torch.mean: Spelling("reduce", _REDUCE, {"reduction": "mean"}),
        torch.sum: Spelling("reduce", _REDUCE, {"reduction": "sum"}),
        torch.amax: Spelling("reduce", _REDUCE, {"reduction": "max"}),
        operator.add: Spelling("add"),
        operator.iadd: Spelling("add", {}, {}, True),
        torch.add: Spelling("add", {"alpha": 1}),
        torch.cat: Spelling("concat", {"dim": 0}),
        torch.concat: Spelling("concat", {"dim": 0}),
        torch.concatenate: Spelling("concat", {"dim": 0}),
        functional.interpolate: Spelling(
            "upsample",
            {
                "size": None,
                "scale_factor": None,
                "mode": "nearest",
                "align_corners": None,
                "recompute_scale_factor": None,
                "antialias": False,
            },
        ),
        functional.pad: Spelling("pad", {"pad": REQUIRED, "mode": "constant", "value": None}),
        functional.softmax: Spelling("softmax", {**_SOFTMAX, "_stacklevel": 3, "dtype": None}),
        torch.softmax: Spelling("softmax", {**_SOFTMAX, "dtype": None}),
    }
    for dropout in (functional.dropout, functional.dropout1d, functional.dropout2d):
        table[dropout] = Spelling("dropout", {"p": 0.5, "training": True, **_INPLACE})
    for name, (_, function, parameters) in TABLES.items():
        table[function] = Spelling(f"table {name}", {**parameters, **(_INPLACE if name in _IN_PLACE_TABLES else {})})
    for name in ("sigmoid", "tanh"):
        table[getattr(functional, name)] = Spelling(f"table {name}")
    return table


FUNCTIONS: dict[Any, Spelling] = _functions()

METHODS: dict[str, Spelling] = {
    "relu": FUNCTIONS[torch.relu],
    "relu_": FUNCTIONS[torch.relu_],
    "sigmoid": Spelling("table sigmoid"),
    "sigmoid_": Spelling("table sigmoid", in_place=True),
    "tanh": Spelling("table tanh"),
    "tanh_": Spelling("table tanh", in_place=True),
    "add": Spelling("add", {"alpha": 1}),
    "add_": Spelling("add", {"alpha": 1}, {}, True),
    "flatten": FUNCTIONS[torch.flatten],
    "squeeze": FUNCTIONS[torch.squeeze],
    "unsqueeze": FUNCTIONS[torch.unsqueeze],
    "unflatten": Spelling("unflatten", {"dim": REQUIRED, "sizes": REQUIRED}),
    "mean": FUNCTIONS[torch.mean],
    "sum": FUNCTIONS[torch.sum],
    "amax": FUNCTIONS[torch.amax],
    "softmax": FUNCTIONS[torch.softmax],
    "contiguous": Spelling("identity"),
    "clone": Spelling("identity", fixed={"copy": True}),
}


def _pool_settings(module: Any, operation: str) -> Call:
    names = _MAX if operation == "max" else _AVERAGE
    settings = {name: getattr(module, name, default) for name, default in names.items()}
    return Call(operation, {**settings, "rank": _rank(module)})


def _rank(module: nn.Module) -> int:
    """Dimensions of space that a module's name says it works in."""
    return 1 if type(module).__name__.endswith("1d") else 2


def module_call(module: nn.Module) -> Call | None:
    """What calling a module without weights means; None for a module that is not in the tables."""
    match module:
        case nn.ReLU6():  # before Hardtanh, whose subclass it is
            return Call("activation", {"activation": "relu6"}, module.inplace)
        case nn.ReLU():
            return Call("activation", {"activation": "relu"}, module.inplace)
        case nn.Identity():
            return Call("identity")
        case nn.Dropout() | nn.Dropout1d() | nn.Dropout2d():
            return Call("dropout", {"p": module.p}, module.inplace)
        case nn.Flatten():
            return Call("flatten", {"start_dim": module.start_dim, "end_dim": module.end_dim})
        case nn.Unflatten():
            return Call("unflatten", {"dim": module.dim, "sizes": module.unflattened_size})
        case nn.MaxPool1d() | nn.MaxPool2d():
            return _pool_settings(module, "max")
        case nn.AvgPool1d() | nn.AvgPool2d():
            return _pool_settings(module, "average")
        case nn.AdaptiveAvgPool1d() | nn.AdaptiveAvgPool2d():
            return Call("adaptive", {"output_size": module.output_size, "pool": "average", "rank": _rank(module)})
        case nn.AdaptiveMaxPool1d() | nn.AdaptiveMaxPool2d():
            return Call(
                "adaptive",
                {
                    "output_size": module.output_size,
                    "pool": "max",
                    "return_indices": module.return_indices,
                    "rank": _rank(module),
                },
            )
        case nn.Upsample():
            return Call("upsample", {"size": module.size, "scale_factor": module.scale_factor, "mode": module.mode})
        case nn.ZeroPad1d() | nn.ZeroPad2d() | nn.ConstantPad1d() | nn.ConstantPad2d():
            return Call("pad", {"pad": module.padding, "mode": "constant", "value": module.value})
        case nn.Softmax():
            return Call("softmax", {"dim": module.dim})
    for name, (kind, _, parameters) in TABLES.items():
        if type(module) is kind:
            settings = {key: getattr(module, key) for key in parameters}
            return _table(name, settings, bool(getattr(module, "inplace", False)))
    return None


def bound(spelling: Spelling, what: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
    """The call of a function or method with its arguments, the operand left out."""
    call = spelling.call(what, args, kwargs)
    if call.operation.startswith("table "):
        return _table(call.operation.removeprefix("table "), call.settings, call.in_place)
    return call


_ADVICE = {
    "LogSoftmax": "end the network on logits and apply it outside (the argmax is the same)",
    "log_softmax": "end the network on logits and apply it outside (the argmax is the same)",
    "LayerNorm": "use batch norm, which folds into a layer",
    "GroupNorm": "use batch norm, which folds into a layer",
    "InstanceNorm2d": "use batch norm, which folds into a layer",
    "BatchNorm3d": "convolutions have one or two dimensions of space here",
    "Conv3d": "convolutions have one or two dimensions of space here",
    "ConvTranspose1d": "use Upsample(mode='nearest') and a convolution",
    "ConvTranspose2d": "use Upsample(mode='nearest') and a convolution",
    "PReLU": "use ReLU, or LeakyReLU with a fixed slope",
    "permute": "feed the data channels first",
    "transpose": "feed the data channels first",
    "setitem": "it writes into a slice: build the value with torch.cat",
    "getitem": "slices are not supported: make the parts layers of their own; new axes come with unsqueeze or view",
    "chunk": "splitting is not supported: make two layers",
    "split": "splitting is not supported: make two layers",
    "sub": "subtract in the weights of the next layer",
    "mul": "a constant factor belongs into a layer's weights; products of values are not supported (no squeeze-excite)",
    "neg": "a sign belongs into a layer's weights",
    "div": "a constant factor belongs into a layer's weights",
    "truediv": "a constant factor belongs into a layer's weights",
    "clamp": "use ReLU, ReLU6 or Hardtanh",
    "detach": "leave it out: there is nothing to detach in evaluation",
    "to": "leave it out: the network is in one dtype, on one device",
    "float": "leave it out: the network is in one dtype",
    "matmul": "products of values are not supported",
    "linear": "use the module nn.Linear, whose name a bit plan can give",
    "conv1d": "use the module nn.Conv1d, whose name a bit plan can give",
    "conv2d": "use the module nn.Conv2d, whose name a bit plan can give",
    "batch_norm": "use the module nn.BatchNorm1d or nn.BatchNorm2d",
}


def advice(name: str) -> str:
    """What to write instead of something that is not supported, or ''."""
    return f"; {_ADVICE[name]}" if name in _ADVICE else ""
