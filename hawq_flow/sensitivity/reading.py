"""A model's traced graph as a :class:`~hawq_flow.sensitivity.program.Program`, or what stands in the way, by name.

In-place operations on the model's own values (``nn.ReLU(inplace=True)``, ``out += identity``) are read as what they
mean: whoever reads the changed tensor later reads the result. Sizes (``x.size(0)``, ``x.shape``) are followed as
numbers, the batch's as an opaque one.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from hawq_flow.sensitivity.calls import (
    ADDS,
    CLAMPS,
    CLIPS,
    DROPOUTS,
    IDENTITIES,
    IN_PLACE_OPERATORS,
    JOINS,
    LEAKY,
    LINEAR_FUNCTIONS,
    LINEAR_MODULES,
    MAX_POOL_FUNCTIONS,
    MAX_POOLS,
    MAXIMA,
    MEANS,
    NEGATIVES,
    POOL_ARGUMENTS,
    PRODUCTS,
    QUOTIENTS,
    RELUS,
    SAME,
    SUBTRACTS,
    SUMS,
    activation,
    is_any,
    module_of,
    name_of,
    with_indices,
)
from hawq_flow.sensitivity.program import (
    Affine,
    Clip,
    Concatenation,
    Convolution,
    Dense,
    Linear,
    Maximum,
    MaxPool,
    Operation,
    Program,
    Relu,
    Reshape,
    Shape,
    Step,
    Sum,
    Weights,
)


class NotPiecewiseLinear(Exception):
    """The identity cannot be shown to hold; the message names the module or operation and the reason."""


class _Batch:
    """The size of the batch, which is no number here."""

    def __repr__(self) -> str:
        return "the batch's size"


BATCH = _Batch()


@dataclass(frozen=True)
class _Value:
    """A tensor of the graph: a value of the program."""

    index: int


@dataclass(frozen=True)
class _MaxResult:
    """What ``x.max(dim)`` returns: the maxima, and indices that may not be read."""

    values: _Value


@dataclass(frozen=True)
class _Arguments:
    """What a call gives after its first argument, by place and by name."""

    places: tuple[Any, ...]
    names: Mapping[str, Any]

    def __call__(self, place: int, name: str, default: Any) -> Any:
        return self.places[place] if len(self.places) > place else self.names.get(name, default)

    def all(self, name: str) -> tuple[Any, ...]:
        """Numbers given one by one, or as one tuple, or under a name."""
        given = self.places or (self.names.get(name, ()),)
        return tuple(given[0]) if isinstance(given[0], (tuple, list)) else given


def read_program(graph: fx.Graph, model: nn.Module, features: Shape, activations: Mapping[str, fx.Node]) -> Program:
    """Read a traced graph; :class:`NotPiecewiseLinear` where the identity does not hold.

    Parameters
    ----------
    features:
        Shape of one sample, batch excluded.
    activations:
        The nodes whose values are wanted as activations, by name.
    """
    reader = _Reader(model, features)
    output = reader.run(graph)
    found = {name: reader.made[node] for name, node in activations.items()}
    return Program(tuple(reader.steps), tuple(reader.shapes), output, found)


class _Reader:
    """Walks a graph; ``env`` holds what every node is now, ``made`` the value it was when it was computed."""

    def __init__(self, model: nn.Module, features: Shape) -> None:
        self.model = model
        self.shapes: list[Shape] = [features]
        self.steps: list[Step] = []
        self.env: dict[fx.Node, Any] = {}
        self.made: dict[fx.Node, int] = {}
        self.storage: list[int] = [0]  # of every value: the first value whose memory it may share
        self.stale: set[int] = set()

    def run(self, graph: fx.Graph) -> int:
        output: Any = None
        for node in graph.nodes:
            if node.op == "placeholder":
                self.env[node] = _Value(0)
            elif node.op == "output":
                output = self._load(node.args[0], node)
            elif node.op == "call_module":
                self.env[node] = self._module(node)
            elif node.op == "get_attr":
                raise self._refusal(node, f"attribute {node.target!r} is a tensor in the forward pass, which")
            else:
                self.env[node] = self._call(node)
            if isinstance(value := self.env.get(node), _Value):
                self.made[node] = value.index
        if not isinstance(output, _Value):
            raise NotPiecewiseLinear("the network returns several values; expected one tensor")
        return output.index

    # What nodes read

    def _load(self, arg: Any, node: fx.Node) -> Any:
        if isinstance(arg, (tuple, list)):
            return type(arg)(self._load(item, node) for item in arg)
        if not isinstance(arg, fx.Node):
            return arg
        value = self.env[arg]
        if isinstance(value, _Value) and value.index in self.stale:
            raise NotPiecewiseLinear(
                f"{_label(node)} reads {arg.name!r} after an in-place operation changed the tensor that it "
                "shares its memory with; write it without in-place"
            )
        return value

    def _refusal(self, node: fx.Node, what: str = "") -> NotPiecewiseLinear:
        if not what:
            what = _label(node)
        return NotPiecewiseLinear(f"{what} is not known to be piecewise linear")

    # What they make

    def _emit(self, operation: Operation, *sources: _Value, view: bool = False) -> _Value:
        shape = self._shape_of(operation, sources)
        output = len(self.shapes)
        self.steps.append(Step(operation, output, tuple(source.index for source in sources)))
        self.shapes.append(shape)
        self.storage.append(self.storage[sources[0].index] if view else output)
        return _Value(output)

    def _shape_of(self, operation: Operation, sources: Sequence[_Value]) -> Shape:
        inputs = [torch.empty(1, *self.shapes[source.index], device="meta") for source in sources]
        layers = [operation.layer] if operation.layer else []
        return tuple(operation.forward(inputs, Weights.of(self.model, layers, torch.float32, "meta")).shape[1:])

    def _in_place(self, node: fx.Node, source: _Value, result: _Value) -> _Value:
        """``source``'s tensor now holds ``result``: later readers of it read that, of its views nothing."""
        if self.storage[source.index] == 0:
            raise NotPiecewiseLinear(
                f"{_label(node)} changes the network's input in place, so that there is no single input; "
                "write it without in-place"
            )
        family = self.storage[source.index]
        self.stale |= {i for i, first in enumerate(self.storage) if first == family and i != result.index}
        for other, value in self.env.items():
            if value == source:
                self.env[other] = result
        self.storage[result.index] = family
        self.stale -= {source.index, result.index}
        return result

    def _shape(self, value: _Value) -> Shape:
        return self.shapes[value.index]

    # Modules

    def _module(self, node: fx.Node) -> _Value:
        name = str(node.target)
        module = self.model.get_submodule(name)
        args = self._load(node.args, node)
        kind = type(module)
        if len(args) == 1 and not node.kwargs and isinstance(args[0], _Value):
            x = args[0]
            if isinstance(module, IDENTITIES):
                return x
            if isinstance(module, nn.Linear) and kind is nn.Linear:
                return self._dense(name, module, x)
            if isinstance(module, (nn.Conv1d, nn.Conv2d)) and kind in (nn.Conv1d, nn.Conv2d):
                return self._convolution(name, module, x)
            if kind is nn.Flatten:
                return self._flatten(node, x, module.start_dim, module.end_dim)
            operation = activation(module)
            if operation is not None:
                result = self._emit(operation, x)
                return self._in_place(node, x, result) if module.inplace else result
            if kind in MAX_POOLS and not module.return_indices:
                return self._emit(MaxPool(with_indices(module), MAX_POOLS[kind]), x)
            if kind in LINEAR_MODULES:
                return self._emit(Linear(name, module), x)
        raise self._refusal(node, f"module {name!r} is a {kind.__name__}, which")

    def _dense(self, name: str, module: nn.Linear, x: _Value) -> _Value:
        shape = self._shape(x)
        if not shape or shape[-1] != module.in_features:
            raise ValueError(
                f"layer {name!r} receives {shape[-1] if shape else 'no'} features; expected {module.in_features}. Give "
                "x the features the model was trained on"
            )
        return self._emit(Dense(name), x)

    def _convolution(self, name: str, module: nn.Conv1d | nn.Conv2d, x: _Value) -> _Value:
        kernel, stride, dilation = (tuple(v) for v in (module.kernel_size, module.stride, module.dilation))
        padding = (
            tuple((p, p) for p in module.padding) if not isinstance(module.padding, str) else ((0, 0),) * len(kernel)
        )
        if module.padding == "same":  # an odd zero comes last
            totals = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
            padding = tuple((t // 2, t - t // 2) for t in totals)
        inside = tuple(begin for begin, _ in padding)
        if module.padding_mode != "zeros" or any(begin != end for begin, end in padding):
            pads = [p for pair in reversed(padding) for p in pair]
            mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
            x = self._emit(Linear("pad", lambda t: functional.pad(t, pads, mode)), x)
            inside = (0,) * len(kernel)
        return self._emit(Convolution(name, kernel, stride, inside, dilation, module.groups), x)

    # Functions and methods

    def _call(self, node: fx.Node) -> Any:
        target: Any = node.target
        args = self._load(node.args, node)
        kwargs = {key: self._load(value, node) for key, value in node.kwargs.items()}
        if not _mentions_value((args, kwargs)):
            return self._number(node, args, kwargs)
        if isinstance(args[0] if args else None, _MaxResult):
            if (target, args[1]) in ((operator.getitem, 0), (getattr, "values")):
                return args[0].values
            raise self._refusal(node)
        values = [value for value in (*args, *kwargs.values()) if isinstance(value, _Value)]
        x = args[0] if args else kwargs.pop("input", None)
        rest = args[1:]
        in_place = (
            target in IN_PLACE_OPERATORS
            or bool(kwargs.pop("inplace", False))
            or (is_any(target, (*RELUS, *LEAKY, *CLIPS)) and any(value is True for value in rest))
            or (isinstance(name := name_of(target), str) and name.endswith("_") and not name.endswith("__"))
        )
        if is_any(target, JOINS):
            found = self._join(node, x, rest, kwargs)
        elif is_any(target, (*ADDS, *SUBTRACTS, *PRODUCTS, *QUOTIENTS)):
            found = self._arithmetic(node, target, args if args else (x, *rest), kwargs)
        elif isinstance(x, _Value) and len(values) == 1:
            size = self._size(node, target, x, rest)
            if size is not None:
                return size
            found = self._unary(node, target, x, rest, kwargs)
        else:
            raise self._refusal(node)
        if in_place and isinstance(found, _Value) and isinstance(x, _Value):
            return self._in_place(node, x, found) if found != x else found
        return found

    def _number(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        """Arithmetic on sizes."""
        if node.op == "call_function" and node.target is operator.getitem:
            return args[0][args[1]]
        plain = node.op == "call_function" and module_of(node.target) in ("_operator", "math", "builtins")
        if plain and all(isinstance(value, (int, float)) for value in args):
            return node.target(*args, **kwargs)  # type: ignore[operator]
        raise self._refusal(node)

    def _size(self, node: fx.Node, target: Any, x: _Value, rest: tuple[Any, ...]) -> Any:
        sizes = (BATCH, *self._shape(x))
        if target == "size":
            return sizes[rest[0]] if rest else sizes
        if target is getattr and rest == ("shape",):
            return sizes
        if (target is getattr and rest == ("ndim",)) or target == "dim":
            return len(sizes)
        return None

    def _join(self, node: fx.Node, parts: Any, rest: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _Value:
        parts = kwargs.get("tensors", parts)
        dim = rest[0] if rest else kwargs.get("dim", kwargs.get("axis", 0))
        if not isinstance(parts, (tuple, list)) or not all(isinstance(part, _Value) for part in parts):
            raise self._refusal(node)
        return self._emit(Concatenation(self._axis(node, parts[0], dim)), *parts)

    def _arithmetic(self, node: fx.Node, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _Value:
        operands = [*args, *([kwargs["other"]] if "other" in kwargs else [])]
        if len(operands) != 2 or set(kwargs) - {"other", "alpha"}:
            raise self._refusal(node)
        a, b = operands
        alpha = kwargs.get("alpha", 1)
        sign = -alpha if is_any(target, SUBTRACTS) else alpha
        if not all(isinstance(v, (_Value, int, float)) for v in (a, b, alpha)):
            raise self._refusal(node)
        if is_any(target, (*ADDS, *SUBTRACTS)):
            if isinstance(a, _Value) and isinstance(b, _Value):
                if self._shape(a) != self._shape(b):
                    raise self._refusal(
                        node, f"node {node.name!r} adds values of shapes {self._shape(a)} and {self._shape(b)}, which"
                    )
                return self._emit(Sum((1.0, float(sign))), a, b)
            return (
                self._emit(Affine(1.0, float(sign * b)), a)
                if isinstance(a, _Value)
                else self._emit(Affine(float(sign), float(a)), b)
            )
        if isinstance(a, _Value) and not isinstance(b, _Value):
            return self._emit(Affine(float(b) if is_any(target, PRODUCTS) else 1 / float(b)), a)
        if isinstance(b, _Value) and not isinstance(a, _Value) and is_any(target, PRODUCTS):
            return self._emit(Affine(float(a)), b)
        raise self._refusal(node)  # a product of two values, or a quotient by one

    def _unary(self, node: fx.Node, target: Any, x: _Value, rest: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = _Arguments(rest, kwargs)
        for attempt in (self._elementwise, self._reshaping, self._reducing, self._windows):
            if (found := attempt(node, target, x, given)) is not None:
                return found
        raise self._refusal(node)

    def _elementwise(self, node: fx.Node, target: Any, x: _Value, given: _Arguments) -> _Value | None:
        if is_any(target, (*DROPOUTS, *SAME)):
            return x
        operation: Operation
        if is_any(target, RELUS):
            operation = Relu()
        elif is_any(target, LEAKY):
            operation = Relu(float(given(0, "negative_slope", 0.01)))
        elif target is functional.relu6:
            operation = Clip(0.0, 6.0, False)
        elif is_any(target, CLIPS):
            operation = Clip(float(given(0, "min_val", -1.0)), float(given(1, "max_val", 1.0)), False)
        elif is_any(target, CLAMPS):
            low, high = given(0, "min", None), given(1, "max", None)
            operation = Clip(-math.inf if low is None else float(low), math.inf if high is None else float(high), True)
        elif is_any(target, NEGATIVES):
            operation = Affine(-1.0)
        else:
            return None
        return self._emit(operation, x)

    def _reshaping(self, node: fx.Node, target: Any, x: _Value, given: _Arguments) -> _Value | None:
        shape = self._shape(x)
        if is_any(target, (torch.flatten, "flatten")):
            return self._flatten(node, x, given(0, "start_dim", 0), given(1, "end_dim", -1))
        if is_any(target, (torch.reshape, "view", "reshape")):
            return self._reshape(node, x, given.all("shape"))
        if is_any(target, (torch.unsqueeze, "unsqueeze")):
            axis = given(0, "dim", 0)
            axis = axis if axis >= 0 else axis + len(shape) + 2
            return self._reshape(
                node, x, (BATCH, *shape[: axis - 1], 1, *shape[axis - 1 :]) if axis > 0 else (1, BATCH)
            )
        if is_any(target, (torch.squeeze, "squeeze")) and given(0, "dim", None) is not None:
            axis = self._axis(node, x, given(0, "dim", None))
            return x if shape[axis - 1] != 1 else self._reshape(node, x, (BATCH, *shape[: axis - 1], *shape[axis:]))
        if is_any(target, ("permute", torch.permute)):
            order = tuple(d % (len(shape) + 1) for d in given.all("dims"))
            if order[0] != 0:
                raise self._refusal(node, f"node {node.name!r} moves the batch's axis, which")
            return self._emit(Linear("permute", lambda t: t.permute(order)), x, view=True)
        if is_any(target, ("transpose", torch.transpose)):
            first, second = (self._axis(node, x, given(i, f"dim{i}", None)) for i in (0, 1))
            return self._emit(Linear("transpose", lambda t: t.transpose(first, second)), x, view=True)
        return None

    def _reducing(self, node: fx.Node, target: Any, x: _Value, given: _Arguments) -> _Value | _MaxResult | None:
        dim, keep = given(0, "dim", None), bool(given(1, "keepdim", False))
        if is_any(target, MEANS):
            axes = self._axes(node, x, dim)
            return self._emit(Linear("mean", lambda t: t.mean(axes, keep)), x)
        if is_any(target, SUMS):
            axes = self._axes(node, x, dim)
            return self._emit(Linear("sum", lambda t: t.sum(axes, keep)), x)
        if is_any(target, MAXIMA):
            return self._emit(Maximum(self._axes(node, x, dim), keep), x)
        if is_any(target, (torch.max, "max")) and dim is not None:
            return self._max(node, x, dim, keep)
        return None

    def _windows(self, node: fx.Node, target: Any, x: _Value, given: _Arguments) -> _Value | None:
        if is_any(target, LINEAR_FUNCTIONS):
            pads = given(0, "pad", ())
            if target is functional.pad and len(pads) > 2 * len(self._shape(x)):
                raise self._refusal(node, f"node {node.name!r} pads the batch's axis, which")
            return self._emit(Linear(name_of(target), lambda t: target(t, *given.places, **given.names)), x)
        for functions, pool, axes in MAX_POOL_FUNCTIONS:
            if is_any(target, functions) and not given(5, "return_indices", False):
                named = {**dict(zip(POOL_ARGUMENTS, given.places, strict=False)), **given.names, "return_indices": True}
                return self._emit(MaxPool(functools.partial(pool, **named), axes), x)
        return None

    def _max(self, node: fx.Node, x: _Value, dim: Any, keep: bool) -> _MaxResult:
        axis = self._axis(node, x, dim)
        shape = self._shape(x)
        last = self._emit(Linear("movedim", lambda t: t.movedim(axis, -1)), x)
        largest = self._emit(MaxPool(_largest, 1), last)
        kept = (*shape[: axis - 1], *((1,) if keep else ()), *shape[axis:])
        return _MaxResult(self._emit(Reshape(kept), largest))

    def _flatten(self, node: fx.Node, x: _Value, start: Any, end: Any) -> _Value:
        shape = self._shape(x)
        if (start, end) == (1, -1) and len(shape) == 1:
            return x
        first, last = self._axis(node, x, start) - 1, self._axis(node, x, end) - 1
        return self._emit(
            Reshape((*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :])), x, view=True
        )

    def _reshape(self, node: fx.Node, x: _Value, sizes: tuple[Any, ...]) -> _Value:
        """To ``sizes``, of which the first is the batch: its size, or -1 where the others leave nothing else."""
        shape = self._shape(x)
        size = math.prod(shape)
        rest = list(sizes[1:])
        fine = bool(rest) and all(isinstance(v, int) for v in rest)
        if fine and sizes[0] is BATCH and rest.count(-1) == 1:
            rest[rest.index(-1)] = size // max(1, -math.prod(rest))
        fine = fine and (sizes[0] is BATCH or sizes[0] == -1) and min(rest, default=0) > 0 and math.prod(rest) == size
        if not fine:
            raise self._refusal(node, f"node {node.name!r} reshapes samples of shape {shape} to {sizes}, which")
        return x if tuple(rest) == shape else self._emit(Reshape(tuple(rest)), x, view=True)

    def _axis(self, node: fx.Node, x: _Value, dim: Any) -> int:
        count = len(self._shape(x)) + 1
        if isinstance(dim, int) and dim % count > 0 and -count <= dim < count:
            return dim % count
        raise self._refusal(node, f"node {node.name!r} works along axis {dim!r}, across samples, which")

    def _axes(self, node: fx.Node, x: _Value, dims: Any) -> Shape:
        return tuple(self._axis(node, x, dim) for dim in (dims if isinstance(dims, (tuple, list)) else (dims,)))


def _label(node: fx.Node) -> str:
    if node.op == "call_module":
        return f"module {node.target!r}"
    return f"operation {name_of(node.target)!r} (node {node.name!r})"


def _largest(t: Tensor) -> tuple[Tensor, Tensor]:
    found = t.max(-1, keepdim=True)
    return found.values, found.indices


def _mentions_value(item: Any) -> bool:
    if isinstance(item, Mapping):
        return any(_mentions_value(value) for value in item.values())
    if isinstance(item, (tuple, list)):
        return any(_mentions_value(value) for value in item)
    return isinstance(item, (_Value, _MaxResult))
