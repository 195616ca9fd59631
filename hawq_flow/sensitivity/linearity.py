"""Which networks the exact method holds for, decided by reading their traced graph, and that graph as a small program.

The layerwise Gauss-Newton identity needs the logits to be piecewise linear in one layer's weights with the others
fixed: every operation between a layer and the logits is piecewise linear, and the layer is used once. A
:class:`Program` is such a network as a list of steps which ``exact`` runs forward and, with several adjoints at
once, backward. Anything else is refused with the name of the module and the reason.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import fx, nn
from torch.nn import functional

Kind = Literal["linear", "relu", "flatten", "add"]


class NotPiecewiseLinear(Exception):
    """The identity cannot be shown to hold; the message names the module or operation and the reason."""


@dataclass(frozen=True)
class Step:
    """``values[output] = kind(values[i] for i in inputs)``; ``slope`` is a leaky ReLU's on negative inputs."""

    kind: Kind
    output: int
    inputs: tuple[int, ...]
    layer: str = ""
    slope: float = 0.0


@dataclass(frozen=True)
class Program:
    """A piecewise linear network. Value 0 is the input, ``logits`` the value returned; ``activations`` maps the input's
    and every layer's name to the value that is its output activation."""

    steps: tuple[Step, ...]
    logits: int
    layers: tuple[str, ...]
    activations: dict[str, int]


_IDENTITIES: tuple[type[nn.Module], ...] = (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.AlphaDropout)
_LAYERS: tuple[type[nn.Module], ...] = (nn.Linear, nn.Conv1d, nn.Conv2d)
_RELUS: tuple[Any, ...] = (functional.relu, torch.relu, torch.relu_)
_DROPOUTS: tuple[Any, ...] = (functional.dropout,)
_ADDS: tuple[Any, ...] = (operator.add, operator.iadd, torch.add)
_UNARY: tuple[Any, ...] = (
    *_RELUS,
    *_DROPOUTS,
    functional.leaky_relu,
    functional.gelu,
    functional.silu,
    functional.elu,
    functional.softplus,
    functional.hardtanh,
    functional.relu6,
    torch.sigmoid,
    torch.tanh,
    functional.sigmoid,
    functional.tanh,
    functional.hardsigmoid,
    functional.hardswish,
)
_UNARY_METHODS = ("relu", "sigmoid", "tanh")


def is_layer(module: nn.Module) -> bool:
    """Whether ``module`` has weights that a bit plan names: Linear, Conv1d or Conv2d."""
    return isinstance(module, _LAYERS)


def trace(model: nn.Module) -> fx.Graph:
    """The graph of ``model``'s forward pass; :class:`NotPiecewiseLinear` when torch.fx cannot trace it."""
    try:
        return fx.Tracer().trace(model)
    except (fx.proxy.TraceError, TypeError, RuntimeError, NotImplementedError) as error:
        raise NotPiecewiseLinear(f"torch.fx cannot trace {type(model).__name__}.forward: {error}") from error


def layer_calls(graph: fx.Graph, model: nn.Module) -> dict[str, list[fx.Node]]:
    """The nodes at which each layer of ``model`` is called, in the order of the first call."""
    calls: dict[str, list[fx.Node]] = {}
    for node in graph.nodes:
        if node.op == "call_module" and is_layer(model.get_submodule(str(node.target))):
            calls.setdefault(str(node.target), []).append(node)
    return calls


def activation_nodes(graph: fx.Graph, model: nn.Module, input_name: str) -> dict[str, fx.Node]:
    """The node whose value is the input's, and each layer's, output activation.

    A layer's activation is its output after the element-wise operations that alone read it (ReLU, sigmoid, dropout,
    flatten, ...), so the tensor that a quantizer after the non-linearity sees.

    Raises
    ------
    NotPiecewiseLinear
        If the network has not one input, or a layer is called twice (it then has two activations).
    """
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    if len(inputs) != 1:
        raise NotPiecewiseLinear(f"the network has {len(inputs)} inputs; expected one")
    found = {input_name: inputs[0]}
    for name, nodes in layer_calls(graph, model).items():
        if len(nodes) > 1:
            raise NotPiecewiseLinear(
                f"layer {name!r} is called {len(nodes)} times: the logits are not linear in its "
                f"weights, and it has no single output"
            )
        node = nodes[0]
        while len(node.users) == 1 and _is_unary(user := next(iter(node.users)), model):
            node = user
        found[name] = node
    return found


def _is_unary(node: fx.Node, model: nn.Module) -> bool:
    if node.op == "call_module":
        module = model.get_submodule(str(node.target))
        elementwise = type(module).__module__ == "torch.nn.modules.activation" and not isinstance(
            module, (nn.Softmax, nn.Softmin, nn.LogSoftmax, nn.Softmax2d, nn.MultiheadAttention)
        )
        return elementwise or isinstance(module, (*_IDENTITIES, nn.Flatten))
    if node.op == "call_method":
        return node.target in (*_UNARY_METHODS, "flatten")
    return node.op == "call_function" and any(node.target is function for function in (*_UNARY, torch.flatten))


def compile_program(model: nn.Module, features: tuple[int, ...], input_name: str) -> Program:
    """Read ``model`` as a :class:`Program`, or raise :class:`NotPiecewiseLinear` naming what stands in the way.

    Parameters
    ----------
    model:
        A float network; batch norm folded. Its dropout is taken as in evaluation, whatever its mode.
    features:
        Shape of one sample, batch excluded.
    input_name:
        The name by which the plan knows the network's input.
    """
    graph = trace(model)
    activations = activation_nodes(graph, model, input_name)
    shapes: dict[int, tuple[int, ...]] = {}
    index: dict[fx.Node, int] = {}
    steps: list[Step] = []
    logits = -1
    for node in graph.nodes:
        if node.op == "placeholder":
            index[node] = 0
            shapes[0] = features
        elif node.op == "output":
            if not isinstance(node.args[0], fx.Node):
                raise NotPiecewiseLinear("the network returns several values; expected the logits alone")
            logits = index[node.args[0]]
        else:
            step, shape = _step(node, model, index, shapes, len(shapes))
            if step is None:
                index[node] = index[node.all_input_nodes[0]]
            else:
                index[node] = step.output
                shapes[step.output] = shape
                steps.append(step)
    layers = tuple(step.layer for step in steps if step.kind == "linear")
    return Program(tuple(steps), logits, layers, {name: index[node] for name, node in activations.items()})


def _step(
    node: fx.Node, model: nn.Module, index: dict[fx.Node, int], shapes: dict[int, tuple[int, ...]], output: int
) -> tuple[Step | None, tuple[int, ...]]:
    """The step of one graph node with its output's shape; None for an identity."""
    sources = tuple(index[arg] for arg in node.args if isinstance(arg, fx.Node))
    shape = shapes[sources[0]] if sources else ()
    target: Any = node.target
    if node.op == "call_module":
        name = str(target)
        module = model.get_submodule(name)
        if type(module) is nn.Linear:
            if len(shape) != 1:
                raise NotPiecewiseLinear(
                    f"layer {name!r} is applied at every position of a value of shape {shape}; "
                    f"its weights meet several inputs of one sample, which the factorized form "
                    f"does not cover"
                )
            if shape[0] != module.in_features:
                raise ValueError(
                    f"layer {name!r} receives {shape[0]} features; expected {module.in_features}. Give x "
                    f"the features the model was trained on"
                )
            return Step("linear", output, sources, layer=name), (module.out_features,)
        if isinstance(module, _IDENTITIES):
            return None, shape
        if type(module) is nn.ReLU:
            return Step("relu", output, sources), shape
        if type(module) is nn.LeakyReLU:
            return Step("relu", output, sources, slope=float(module.negative_slope)), shape
        if type(module) is nn.Flatten and module.start_dim == 1 and module.end_dim == -1:
            return _flatten(output, sources, shape)
        raise NotPiecewiseLinear(
            f"module {name!r} is a {type(module).__name__}, which is not known to be piecewise linear"
        )
    if node.op == "call_function":
        if target in _RELUS:
            return Step("relu", output, sources), shape
        if target is functional.leaky_relu:
            slope = node.args[1] if len(node.args) > 1 else node.kwargs.get("negative_slope", 0.01)
            return Step("relu", output, sources, slope=float(slope)), shape  # type: ignore[arg-type]
        if target in _DROPOUTS:
            return None, shape
        if target is torch.flatten and _flattens_all(node):
            return _flatten(output, sources, shape)
        if target in _ADDS and len(sources) == 2 and not node.kwargs and shapes[sources[0]] == shapes[sources[1]]:
            return Step("add", output, sources), shape
    if node.op == "call_method":
        if target == "relu":
            return Step("relu", output, sources), shape
        if target == "flatten" and _flattens_all(node):
            return _flatten(output, sources, shape)
    label = target if isinstance(target, str) else _name(target)
    raise NotPiecewiseLinear(f"operation {label!r} (node {node.name!r}) is not known to be piecewise linear")


def _flatten(output: int, sources: tuple[int, ...], shape: tuple[int, ...]) -> tuple[Step | None, tuple[int, ...]]:
    if len(shape) == 1:
        return None, shape
    return Step("flatten", output, sources), (math.prod(shape),)


def _flattens_all(node: fx.Node) -> bool:
    start = node.args[1] if len(node.args) > 1 else node.kwargs.get("start_dim", 0)
    end = node.args[2] if len(node.args) > 2 else node.kwargs.get("end_dim", -1)
    return bool(start == 1 and end == -1)


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", repr(function))
