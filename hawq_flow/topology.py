"""What a float torch model is made of: its layers in order, read with torch.fx, or a refusal by name.

A supported model is a graph of *stages*. A stage is one ``nn.Linear``, then optionally ``nn.BatchNorm1d``, then
optionally ReLU, then optionally dropout (which is the identity in evaluation). Flattening may stand anywhere before a
stage. Everything else is refused, with the name of the module or function and the way out.

Batch norm after a linear layer is an affine map per output channel, so it folds into the layer (Jacob et al.,
arXiv:1712.05877)::

    gamma (W x + b - mean) / sqrt(var + eps) + beta = (s W) x + s (b - mean) + beta,   s = gamma / sqrt(var + eps)
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import fx, nn
from torch.nn import functional

from hawq_flow.plan import LayerShape

INPUT = "x"
"""Name of the network input in plans, integer networks and exports."""
REQUANT = "_requant"
"""A layer ``fc1`` defines the integer values ``fc1`` (the accumulator) and ``fc1_requant`` (its output)."""
FLATTEN = "_flat"
"""A layer that flattens its input first reads the integer value ``fc1_flat``."""
DERIVED = (REQUANT, FLATTEN)


class UnsupportedModelError(ValueError):
    """A module, function or pattern that cannot be lowered; the text names it and says what to do."""


@dataclass(frozen=True)
class Stage:
    """One linear layer with what follows it.

    Attributes
    ----------
    name:
        The linear module's qualified name in the model (``layers.0``), which is the layer's name in plans.
    source:
        Name of the stage (or ``INPUT``) whose output it reads.
    linear, batch_norm, batch_norm_name, relu, dropout:
        The modules, not copied; ``dropout`` is the probability after the activation (0: none).
    flattened:
        Whether the source passes through a flatten first.
    """

    name: str
    source: str
    linear: nn.Linear
    batch_norm: nn.BatchNorm1d | None = None
    batch_norm_name: str = ""
    relu: bool = False
    dropout: float = 0.0
    flattened: bool = False


@dataclass(frozen=True)
class Topology:
    """The stages of a model in evaluation order, the shape of one input sample, and the stage that is the output."""

    input_shape: tuple[int, ...]
    stages: tuple[Stage, ...]
    output: str

    @property
    def shapes(self) -> list[LayerShape]:
        """Each layer's shape, for plans and costs."""
        return [LayerShape(s.name, s.linear.in_features, s.linear.out_features, s.source) for s in self.stages]


def identifier(name: str) -> str:
    """A layer's name as a C++ and Verilog identifier: ``layers.0`` becomes ``layers_0``."""
    text = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return f"_{text}" if text[:1].isdigit() else text


def read(model: nn.Module, input_shape: Sequence[int] | None = None) -> Topology:
    """Read the stages of ``model``.

    Parameters
    ----------
    input_shape:
        Shape of one sample; None takes (in_features,) of the first linear layer.

    Raises
    ------
    UnsupportedModelError
        Naming the module, function or pattern that is not supported.
    """
    if isinstance(model, nn.Linear):
        raise UnsupportedModelError(
            "the model is a bare nn.Linear, which has no name to plan bits for; wrap it: nn.Sequential(layer)"
        )
    try:
        graph = fx.symbolic_trace(model)
    except Exception as error:  # fx raises many types; every one means that the forward cannot be read
        raise UnsupportedModelError(
            f"{type(model).__name__}: torch.fx cannot trace its forward ({error}); write it without control flow that "
            "depends on data"
        ) from error
    return _Reader(model, graph).topology(input_shape)


class _Reader:
    """Walks an fx graph, growing stages; ``where`` maps each node to the stage or input it stands for."""

    def __init__(self, model: nn.Module, graph: fx.GraphModule) -> None:
        self.model, self.graph = model, graph
        self.stages: dict[str, Stage] = {}
        self.where: dict[fx.Node, str] = {}
        self.flat: set[fx.Node] = set()

    def topology(self, input_shape: Sequence[int] | None) -> Topology:
        output: str | None = None
        for node in self.graph.graph.nodes:
            if node.op == "placeholder":
                if self.where:
                    raise UnsupportedModelError(f"input {node.target!r}: a second input; models have one input here")
                self.where[node] = INPUT
            elif node.op == "output":
                result = node.args[0]
                if not isinstance(result, fx.Node) or result not in self.where:
                    raise UnsupportedModelError("forward returns several values; expected one tensor of logits")
                output = self.where[result]
                self._final(result, output)
            elif node.op == "call_module":
                self._module(node)
            else:
                self._function(node)
        if output is None or output == INPUT or not self.stages:
            raise UnsupportedModelError(f"{type(self.model).__name__}: no nn.Linear between input and output")
        first = next(iter(self.stages.values()))
        shape = tuple(input_shape) if input_shape is not None else (first.linear.in_features,)
        self._shapes(shape)
        # A layer also defines the integer values of DERIVED, so those names are taken as well.
        names = []
        for stage in self.stages.values():
            names += [identifier(stage.name) + suffix for suffix in ("", *DERIVED)]
        for name in names:
            if names.count(name) > 1:
                raise UnsupportedModelError(f"layers whose names become the same identifier {name!r}; rename one")
        return Topology(shape, tuple(self.stages.values()), output)

    def _shapes(self, shape: tuple[int, ...]) -> None:
        """Every linear layer must see (n, features)."""
        sizes = {INPUT: shape}
        for stage in self.stages.values():
            size = sizes[stage.source]
            if stage.flattened:
                size = (math.prod(size),)
            if size != (stage.linear.in_features,):
                raise UnsupportedModelError(
                    f"layer {stage.name!r}: reads a value of shape {size}, expected ({stage.linear.in_features},); "
                    "give the input's shape, or put a Flatten before the layer"
                )
            sizes[stage.name] = (stage.linear.out_features,)

    def _final(self, node: fx.Node, output: str) -> None:
        readers = [stage.name for stage in self.stages.values() if stage.source == output]
        if readers:
            raise UnsupportedModelError(f"layer {output!r}: is the output and also read by {', '.join(readers)}")
        unread = [n for n in self.stages if n != output and all(s.source != n for s in self.stages.values())]
        if unread:
            raise UnsupportedModelError(f"layer {', '.join(unread)}: its output is never used; remove the layer")

    def _source(self, node: fx.Node, what: str) -> fx.Node:
        source = node.args[0] if node.args else node.kwargs.get("input")
        if not isinstance(source, fx.Node) or source not in self.where:
            raise UnsupportedModelError(f"{what}: its input is not the output of a supported layer")
        return source

    def _pass(self, node: fx.Node, source: fx.Node) -> None:
        self.where[node] = self.where[source]
        if source in self.flat:
            self.flat.add(node)

    def _attach(self, node: fx.Node, source: fx.Node, what: str, **change: object) -> None:
        """Add batch norm, ReLU or dropout to the stage that ``source`` stands for."""
        name = self.where[source]
        if name == INPUT:
            raise UnsupportedModelError(f"{what}: applied to the network's input; it must follow an nn.Linear")
        passed = source
        while len(passed.users) == 1 and passed.op != "placeholder" and passed.target != name:
            passed = self._source(passed, what)  # through flattens and identities, back to the layer
        if len(passed.users) > 1:
            raise UnsupportedModelError(
                f"{what}: layer {name!r} is read before and after it; branches at this point are not supported"
            )
        self.stages[name] = replace(self.stages[name], **change)  # type: ignore[arg-type]
        self._pass(node, source)

    def _module(self, node: fx.Node) -> None:
        name = str(node.target)
        module = self.graph.get_submodule(name)
        what = f"{name!r} ({type(module).__name__})"
        source = self._source(node, what)
        if isinstance(module, nn.Linear):
            if identifier(name) == INPUT:
                raise UnsupportedModelError(f"{what}: {INPUT!r} is the name of the network's input; rename the layer")
            if name in self.stages:
                raise UnsupportedModelError(f"{what}: called twice; each layer is used once (make two layers)")
            self.stages[name] = Stage(name, self.where[source], module, flattened=source in self.flat)
            self.where[node] = name
        elif isinstance(module, nn.BatchNorm1d):
            stage = self.stages.get(self.where[source])
            if stage is None or stage.relu or stage.batch_norm is not None:
                raise UnsupportedModelError(
                    f"{what}: batch norm must directly follow an nn.Linear, to fold into it; here it follows "
                    f"{'a ReLU' if stage and stage.relu else 'something else'}"
                )
            if module.running_mean is None or module.running_var is None:
                raise UnsupportedModelError(f"{what}: has no running statistics to fold; use track_running_stats=True")
            self._attach(node, source, what, batch_norm=module, batch_norm_name=name)
        elif isinstance(module, nn.ReLU):
            self._attach(node, source, what, relu=True)
        elif isinstance(module, nn.Dropout):
            self._dropout(node, source, what, module.p)
        elif isinstance(module, nn.Flatten):
            self._flatten(node, source, what, module.start_dim, module.end_dim)
        elif isinstance(module, nn.Identity):
            self._pass(node, source)
        else:
            raise UnsupportedModelError(
                f"{what}: not supported; a dense network is made of Linear, BatchNorm1d, ReLU, Dropout, Flatten and "
                f"Identity{_advice(type(module).__name__)}"
            )

    def _function(self, node: fx.Node) -> None:
        target = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
        what = f"{node.name!r} ({target})"
        if node.target in (functional.relu, torch.relu, torch.relu_, "relu", "relu_"):
            self._attach(node, self._source(node, what), what, relu=True)
        elif node.target in (torch.flatten, "flatten"):
            arguments = dict(zip(("start_dim", "end_dim"), node.args[1:], strict=False)) | dict(node.kwargs)
            start, end = arguments.get("start_dim", 0), arguments.get("end_dim", -1)
            self._flatten(node, self._source(node, what), what, start, end)
        elif node.target is functional.dropout:
            p = node.args[1] if len(node.args) > 1 else node.kwargs.get("p", 0.5)
            self._dropout(node, self._source(node, what), what, float(p))  # type: ignore[arg-type]
        else:
            raise UnsupportedModelError(
                f"{what}: not supported in forward(); use Linear, BatchNorm1d, ReLU, Dropout and "
                f"torch.flatten(x, 1){_advice(str(target))}"
            )

    def _dropout(self, node: fx.Node, source: fx.Node, what: str, p: float) -> None:
        if self.where[source] == INPUT or len(source.users) > 1:
            raise UnsupportedModelError(f"{what}: dropout must follow a layer and be its only reader")
        self._attach(node, source, what, dropout=p)

    def _flatten(self, node: fx.Node, source: fx.Node, what: str, start: object, end: object) -> None:
        if (start, end) != (1, -1):
            raise UnsupportedModelError(f"{what}: flattens axes {start} to {end}; expected 1 to -1 (keep the batch)")
        self._pass(node, source)
        self.flat.add(node)


def _advice(name: str) -> str:
    if "softmax" in name.lower() or "sigmoid" in name.lower():
        return "; end the network on logits and apply it outside (the argmax is the same)"
    if name in ("view", "reshape", "size", "getattr"):
        return "; write torch.flatten(x, 1)"
    return ""


def batch_norm_factor(batch_norm: nn.BatchNorm1d, variance: torch.Tensor) -> torch.Tensor:
    """``gamma / sqrt(variance + eps)`` per channel; gamma is 1 without affine parameters."""
    inverse = torch.rsqrt(variance + batch_norm.eps)
    return inverse if batch_norm.weight is None else batch_norm.weight * inverse


def fold_batch_norm(model: nn.Module, input_shape: Sequence[int] | None = None) -> nn.Module:
    """A copy of ``model`` in eval mode with every batch norm folded into its linear layer and replaced by Identity.

    Module names stay, so layers keep the names plans use. The caller's model is untouched.
    """
    folded = copy.deepcopy(model).eval()
    with torch.no_grad():
        for stage in read(folded, input_shape).stages:
            norm = stage.batch_norm
            if norm is None:
                continue
            assert norm.running_mean is not None  # read() refused otherwise
            assert norm.running_var is not None
            factor = batch_norm_factor(norm, norm.running_var)
            linear = stage.linear
            shift = -norm.running_mean * factor
            if norm.bias is not None:
                shift = shift + norm.bias
            bias = shift if linear.bias is None else shift + linear.bias * factor
            linear.weight = nn.Parameter(linear.weight * factor[:, None])  # a new one: weights may be tied
            linear.bias = nn.Parameter(bias.clone())
            parent, _, leaf = stage.batch_norm_name.rpartition(".")
            setattr(folded.get_submodule(parent), leaf, nn.Identity())
    return folded
