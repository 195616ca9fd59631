"""Which networks the exact method holds for, decided by reading their traced graph.

The layerwise Gauss-Newton identity needs the outputs to be piecewise linear in one layer's weights with the others
fixed: every operation between a layer and the outputs is piecewise linear, and the layer is used once. Such a network
becomes a :class:`~hawq_flow.sensitivity.program.Program`; anything else is refused with the name of the module and the
reason.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional

from hawq_flow.sensitivity.calls import CLIPS, DROPOUTS, FLATTENS, IDENTITIES, LEAKY, RELUS, is_any
from hawq_flow.sensitivity.program import Program
from hawq_flow.sensitivity.reading import NotPiecewiseLinear, read_program

_LAYERS: tuple[type[nn.Module], ...] = (nn.Linear, nn.Conv1d, nn.Conv2d)
_UNARY: tuple[Any, ...] = (
    *RELUS,
    *LEAKY,
    *CLIPS,
    *DROPOUTS,
    functional.gelu,
    functional.silu,
    functional.elu,
    functional.softplus,
    torch.sigmoid,
    torch.tanh,
    functional.sigmoid,
    functional.tanh,
    functional.hardsigmoid,
    functional.hardswish,
)
_UNARY_METHODS = ("relu", "relu_", "sigmoid", "sigmoid_", "tanh", "tanh_")


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
    flatten, ...; batch norm is folded, an identity), so the tensor that a quantizer after the non-linearity sees. A
    pool after it is not part of it, nor is an addition, nor the ReLU after an addition.

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
        return elementwise or isinstance(module, (*IDENTITIES, nn.Flatten))
    if node.op == "call_method":
        return node.target in (*_UNARY_METHODS, *FLATTENS)
    return node.op == "call_function" and is_any(node.target, (*_UNARY, *FLATTENS))


def compile_program(model: nn.Module, features: tuple[int, ...], input_name: str) -> Program:
    """Read ``model`` as a program, or raise :class:`NotPiecewiseLinear` naming what stands in the way.

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
    return read_program(graph, model, features, activation_nodes(graph, model, input_name))
