"""Reading an fx graph node by node: one raw stage for every operation, with its shape; fusing comes after.

Two things are followed beside the tensors. *Numbers*: ``x.size(0)``, ``x.shape[2]`` and arithmetic on them, which
models use to reshape. And *storage*: an in-place operation changes every name of its tensor, so whoever reads one of
them later reads the result; a reshaped view of it would change as well, and reading one after that is refused.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

from torch import fx, nn

from hawq_flow.topology import windows
from hawq_flow.topology.fusing import fuse
from hawq_flow.topology.operations import FUNCTIONS, METHODS, Call, advice, bound, module_call
from hawq_flow.topology.stages import INPUT, BatchNorm, Layer, Stage, Topology, UnsupportedModelError, identifier

_ARITHMETIC = (operator.add, operator.sub, operator.mul, operator.floordiv)
_BATCH = object()
"""What stands for the size of the batch among numbers."""


def read(model: nn.Module, input_shape: Sequence[int] | None = None) -> Topology:
    """Read the stages of ``model``.

    Parameters
    ----------
    input_shape:
        Shape of one sample, batch excluded, channels first; None takes (in_features,) of the first linear layer.

    Raises
    ------
    UnsupportedModelError
        Naming the module, function or pattern that is not supported, and the way out.
    """
    if isinstance(model, Layer):
        raise UnsupportedModelError(
            f"the model is a bare nn.{type(model).__name__}, which has no name to plan bits for; wrap it: "
            "nn.Sequential(layer)"
        )
    _refuse_hooks(model, type(model).__name__)
    modes = {module: module.training for module in model.modules()}
    try:
        for module in modes:  # what is deployed is the evaluation; a forward may depend on the mode
            module.training = False
        graph = fx.Tracer().trace(model)
    except Exception as error:  # fx raises many types; every one means that the forward cannot be read
        raise UnsupportedModelError(
            f"{type(model).__name__}: torch.fx cannot trace its forward ({error}); write it without control flow that "
            "depends on data or on its shape"
        ) from error
    finally:
        for module, training in modes.items():
            module.training = training
    return _Reader(model, graph).topology(input_shape)


def _refuse_hooks(module: nn.Module, what: str) -> None:
    """Hooks change what a module computes, and tracing does not see them (pruning and old weight norm are hooks)."""
    if module._forward_hooks or module._forward_pre_hooks:
        raise UnsupportedModelError(
            f"{what}: has hooks, which a reader of the forward cannot see; make them permanent first "
            "(torch.nn.utils.prune.remove, remove_weight_norm) or remove them"
        )


class _Reader:
    """Walks an fx graph. ``where`` maps each node to the raw stage it stands for now; ``numbers`` are no tensors."""

    def __init__(self, model: nn.Module, graph: fx.Graph) -> None:
        self.model, self.graph = model, graph
        self.stages: dict[str, Stage] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.where: dict[fx.Node, str] = {}
        self.numbers: dict[fx.Node, Any] = {}
        self.storage: dict[str, str] = {}
        self.stale: dict[fx.Node, str] = {}
        self.widths: dict[str, str] = {}
        self.taken: set[str] = set()

    def topology(self, input_shape: Sequence[int] | None) -> Topology:
        shape = tuple(int(n) for n in input_shape) if input_shape is not None else self._first_features()
        layers = [str(n.target) for n in self.graph.nodes if n.op == "call_module" and self._is_layer(n)]
        self.taken = {identifier(name) for name in layers} | {INPUT}
        output: str | None = None
        for node in self.graph.nodes:
            match node.op:
                case "placeholder":
                    if self.where:
                        raise UnsupportedModelError(
                            f"input {node.target!r}: a second input; models have one input here"
                        )
                    self.where[node] = INPUT
                    self.shapes[INPUT], self.widths[INPUT], self.storage[INPUT] = shape, INPUT, INPUT
                case "output":
                    result = node.args[0]
                    if not isinstance(result, fx.Node) or result not in self.where:
                        raise UnsupportedModelError("forward returns several values; expected one tensor of logits")
                    output = self._operand(result, "the output")
                case "call_module":
                    self._module(node)
                case _:
                    self._function(node)
        if output is None or not any(stage.module is not None for stage in self.stages.values()):
            raise UnsupportedModelError(
                f"{type(self.model).__name__}: no nn.Linear or convolution between input and output"
            )
        return fuse(shape, self.stages, output)

    def _is_layer(self, node: fx.Node) -> bool:
        return isinstance(self.model.get_submodule(str(node.target)), Layer)

    def _first_features(self) -> tuple[int, ...]:
        for node in self.graph.nodes:
            if node.op == "call_module":
                module = self.model.get_submodule(str(node.target))
                if isinstance(module, nn.Linear):
                    return (int(module.in_features),)
                if isinstance(module, (nn.Conv1d, nn.Conv2d)):
                    break
        else:
            return ()  # there is no layer, which is said when the whole forward has been read
        raise UnsupportedModelError(
            f"{type(self.model).__name__}: give the input's shape, (channels, height, width) or (channels, length); it "
            "cannot be read off a convolution"
        )

    # ------------------------------------------------------------------------------------------------ nodes as stages

    def _operand(self, node: Any, what: str) -> str:
        if not isinstance(node, fx.Node) or node not in self.where:
            raise UnsupportedModelError(f"{what}: its input is not the output of a supported layer")
        if node in self.stale:
            raise UnsupportedModelError(f"{what}: {self.stale[node]}")
        return self.where[node]

    def _name(self, node: fx.Node) -> str:
        name = node.name
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    def _add(self, node: fx.Node, stage: Stage, in_place: bool = False, view: bool = False) -> None:
        self.stages[stage.name] = stage
        self.shapes[stage.name], self.widths[stage.name] = stage.shape, stage.width
        source = stage.sources[0]
        self.storage[stage.name] = self.storage[source] if in_place or view else stage.name
        if in_place:
            self._overwritten(source, stage)
        self.where[node] = stage.name

    def _overwritten(self, source: str, stage: Stage) -> None:
        """``stage`` wrote into the tensor that ``source`` is: later readers of any of its names read ``stage``."""
        storage = self.storage[source]
        if storage == INPUT:
            raise UnsupportedModelError(
                f"{stage.what}: writes into the network's input, which belongs to the caller; use the form that "
                "returns a new tensor"
            )
        for node, name in self.where.items():
            if name == source:
                self.where[node] = stage.name
            elif self.storage[name] == storage:
                self.stale[node] = (
                    f"reads {node.name!r}, a view of a tensor that {stage.what} has since overwritten; use the form "
                    "that returns a new tensor"
                )

    def _module(self, node: fx.Node) -> None:
        name = str(node.target)
        module = self.model.get_submodule(name)
        what = f"{name!r} ({type(module).__name__})"
        _refuse_hooks(module, what)
        given = [*node.args, *node.kwargs.values()]
        if len(given) != 1:
            raise UnsupportedModelError(f"{what}: called with {len(given)} arguments; expected one tensor")
        source = self._operand(given[0], what)
        if isinstance(module, Layer):
            if identifier(name) == INPUT:
                raise UnsupportedModelError(f"{what}: {INPUT!r} is the name of the network's input; rename the layer")
            if name in self.stages:
                raise UnsupportedModelError(f"{what}: called twice; each layer is used once (make two layers)")
            self._add(node, windows.layer(name, what, module, source, self.shapes[source]))
        elif isinstance(module, BatchNorm):
            if any(stage.batch_norm is module for stage in self.stages.values()):
                raise UnsupportedModelError(f"{what}: called twice; each batch norm is used once (make two)")
            if module.running_mean is None or module.running_var is None:
                raise UnsupportedModelError(f"{what}: has no running statistics to fold; use track_running_stats=True")
            shape = self.shapes[source]
            axes = (1, 2) if isinstance(module, nn.BatchNorm1d) else (3,)
            if len(shape) not in axes:
                raise UnsupportedModelError(
                    f"{what}: on a value of shape {shape}; expected {' or '.join(map(str, axes))} axes, channels "
                    "first: use the batch norm of that many dimensions"
                )
            if shape[0] != module.num_features:
                raise UnsupportedModelError(
                    f"{what}: {module.num_features} features on a value of shape {shape}; expected {shape[0]}"
                )
            stage = Stage(name, "batch_norm", (source,), shape, self.widths[source], what, batch_norm=module)
            self._add(node, stage)
        else:
            call = module_call(module)
            if call is None:
                raise UnsupportedModelError(
                    f"{what}: not supported; see README for what a network may be made of"
                    f"{advice(type(module).__name__)}"
                )
            self._call(node, call, what, [source])

    def _function(self, node: fx.Node) -> None:
        target: Any = node.target
        label = target if isinstance(target, str) else getattr(target, "__name__", str(target))
        what = f"{node.name!r} ({label})"
        if self._number(node):
            return
        spelling = METHODS.get(target) if node.op == "call_method" else FUNCTIONS.get(target)
        if node.op == "call_method" and target in ("view", "reshape"):
            given = node.args[1:] or tuple(node.kwargs[key] for key in ("shape", "size") if key in node.kwargs)
            self._reshape(node, what, self._operand(node.args[0], what), self._resolve(given, what))
            return
        if node.op == "get_attr":
            raise UnsupportedModelError(
                f"{what}: a parameter or buffer not supported in forward(); a factor or an offset belongs into the "
                "weights and bias of a layer beside it"
            )
        if spelling is None:
            raise UnsupportedModelError(f"{what}: not supported in forward(){advice(str(label).strip('_'))}")
        args, kwargs = list(node.args), dict(node.kwargs)
        first = args.pop(0) if args else kwargs.pop("tensors" if spelling.operation == "concat" else "input", None)
        operands: list[Any] = [first]
        if spelling.operation == "concat":
            operands = list(first) if isinstance(first, (tuple, list)) else []
        elif spelling.operation == "add":
            operands.append(args.pop(0) if args else kwargs.pop("other", None))
            for operand in operands:
                if not (isinstance(operand, fx.Node) and operand in self.where):
                    raise UnsupportedModelError(
                        f"{what}: adds {operand!r}, which is not the output of a layer; put constants into a bias"
                    )
        call = bound(spelling, what, [self._resolve(a, what) for a in args], self._resolve(kwargs, what))
        self._call(node, call, what, [self._operand(operand, what) for operand in operands])

    # --------------------------------------------------------------------------------------------------------- numbers

    def _number(self, node: fx.Node) -> bool:
        """Follow a node that computes sizes; False when it computes a tensor."""
        target: Any = node.target
        first = node.args[0] if node.args else None
        tensor = isinstance(first, fx.Node) and first in self.where
        if node.op == "call_method" and target == "size" and tensor:
            sizes = self._sizes(first)
            axis = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
            self.numbers[node] = sizes if axis is None else sizes[axis]  # type: ignore[index]
        elif node.op == "call_method" and target == "dim" and tensor:
            self.numbers[node] = len(self._sizes(first))
        elif node.op == "call_function" and target is getattr and tensor and node.args[1] == "shape":
            self.numbers[node] = self._sizes(first)
        elif node.op == "call_function" and target is operator.getitem and first in self.numbers:
            self.numbers[node] = self.numbers[first][node.args[1]]  # type: ignore[index]
        elif node.op == "call_function" and target in _ARITHMETIC and not tensor:
            values = [self.numbers.get(a, a) if isinstance(a, fx.Node) else a for a in node.args]
            if not all(isinstance(value, int) for value in values):
                return False
            self.numbers[node] = target(*values)
        else:
            return False
        return True

    def _sizes(self, node: Any) -> tuple[Any, ...]:
        return (_BATCH, *self.shapes[self.where[node]])

    def _resolve(self, value: Any, what: str) -> Any:
        """Arguments with nodes that are numbers replaced by them."""
        if isinstance(value, fx.Node):
            if value not in self.numbers:
                raise UnsupportedModelError(
                    f"{what}: argument {value.name!r} is computed from data; expected a constant"
                )
            return self.numbers[value]
        if isinstance(value, dict):
            return {key: self._resolve(entry, what) for key, entry in value.items()}
        if isinstance(value, (tuple, list)):
            return tuple(self._resolve(entry, what) for entry in value)
        return value

    # ------------------------------------------------------------------------------------------------------- operations

    def _call(self, node: fx.Node, call: Call, what: str, sources: list[str]) -> None:
        settings = dict(call.settings)
        source = sources[0]
        shape, width = self.shapes[source], self.widths[source]

        def stage(kind: Any, to: tuple[int, ...] = shape, **fields: Any) -> Stage:
            return Stage(self._name(node), kind, tuple(sources), to, width, what, **fields)

        match call.operation:
            case "identity":
                if settings.get("copy"):
                    self._add(node, stage("reshape"))  # a storage of its own; a reshape to the same shape is left out
                else:
                    self.where[node] = source
            case "activation" | "table":
                self._add(node, stage(call.operation, **settings), call.in_place)
            case "dropout":
                if source == INPUT:
                    raise UnsupportedModelError(f"{what}: dropout must follow a layer and be its only reader")
                self._add(node, stage("dropout", dropout=float(settings["p"])), call.in_place, view=True)
            case "softmax":
                if settings["dim"] not in ((1, -1) if len(shape) == 1 else (1, -len(shape))):
                    raise UnsupportedModelError(
                        f"{what}: softmax over axis {settings['dim']} of a value of shape (n, "
                        f"{', '.join(map(str, shape))}); expected axis 1, the channels"
                    )
                self._add(node, stage("softmax"))
            case "max" | "average":
                fields = windows.pool(what, call.operation, settings, shape)
                self._add(node, stage(call.operation, fields.pop("shape"), **fields))
            case "adaptive":
                fields = windows.adaptive(what, settings, shape)
                self._add(node, stage(settings["pool"], fields.pop("shape"), **fields))
            case "reduce":
                fields = windows.reduce(what, settings, shape)
                kept, to = fields.pop("shape"), fields.pop("to")
                kind = "max" if settings["reduction"] == "max" else "average"
                pooled = stage(kind, kept, **fields)
                self._add(node, pooled)
                if to != kept:
                    self._view(node, what, pooled.name, to)
            case "upsample":
                factors = windows.upsample(what, settings, shape)
                to = (shape[0], *(n * f for n, f in zip(shape[1:], factors, strict=True)))
                self._add(node, stage("upsample", to, factors=factors))
            case "pad":
                padding = windows.pad(what, settings, shape)
                rank = len(padding) // 2
                to = (shape[0], *(n + padding[i] + padding[rank + i] for i, n in enumerate(shape[1:])))
                self._add(node, stage("pad", to, padding=padding))
            case "add" | "concat":
                self._join(node, call, what, sources)
            case "flatten":
                start, end = settings["start_dim"], settings["end_dim"]
                if (start, end % (len(shape) + 1)) != (1, len(shape)):
                    raise UnsupportedModelError(
                        f"{what}: flattens axes {start} to {end}; expected 1 to -1 (keep the batch)"
                    )
                self._view(node, what, source, (math.prod(shape),))
            case "reshape":
                self._reshape(node, what, source, settings["shape"])
            case "unflatten":
                axis, sizes = settings["dim"] % (len(shape) + 1), tuple(settings["sizes"])
                if axis == 0:
                    raise UnsupportedModelError(f"{what}: unflattens axis 0, the batch; expected another axis")
                self._reshape(node, what, source, (_BATCH, *shape[: axis - 1], *sizes, *shape[axis:]))
            case "squeeze":
                self._squeeze(node, what, source, settings["dim"])
            case "unsqueeze":
                axis = settings["dim"] % (len(shape) + 2)
                if axis == 0:
                    raise UnsupportedModelError(f"{what}: a new axis before the batch; expected axis 1 or more")
                self._view(node, what, source, (*shape[: axis - 1], 1, *shape[axis - 1 :]))

    def _view(self, node: fx.Node, what: str, source: str, to: tuple[int, ...]) -> None:
        """``source`` in another shape, in the same storage."""
        self._add(node, Stage(self._name(node), "reshape", (source,), to, self.widths[source], what), view=True)

    def _squeeze(self, node: fx.Node, what: str, source: str, dim: Any) -> None:
        shape = self.shapes[source]
        rank = len(shape) + 1
        if dim is None:
            raise UnsupportedModelError(
                f"{what}: squeezes every axis of one element, a batch of one too; name the axes"
            )
        axes = {axis % rank for axis in (dim if isinstance(dim, (tuple, list)) else (dim,))}
        if 0 in axes:
            raise UnsupportedModelError(f"{what}: squeezes axis 0, the batch; expected other axes")
        to = tuple(n for i, n in enumerate(shape, start=1) if not (i in axes and n == 1))
        self._view(node, what, source, to)

    def _reshape(self, node: fx.Node, what: str, source: str, to: Any) -> None:
        """``to`` includes the batch: as a number of the batch, or as -1."""
        shape = self.shapes[source]
        sizes: list[Any] = []
        for size in to if isinstance(to, (tuple, list)) else [to]:
            sizes += size if isinstance(size, (tuple, list)) else [size]
        elements = math.prod(shape)
        rest = sizes[1:]
        known = math.prod(n for n in rest if n != -1) if all(isinstance(n, int) for n in rest) else 0
        if rest.count(-1) == 1 and sizes[0] != -1 and known > 0 and elements % known == 0:
            rest = [elements // known if n == -1 else n for n in rest]
        keeps_batch = sizes and (sizes[0] is _BATCH or sizes[0] == -1)
        if not keeps_batch or not all(isinstance(n, int) for n in rest) or math.prod(rest) != elements:
            shown = ", ".join("batch" if n is _BATCH else str(n) for n in sizes)
            raise UnsupportedModelError(
                f"{what}: reshapes (batch, {', '.join(map(str, shape))}) to ({shown}); expected the batch kept and the "
                "same number of elements, as in torch.flatten(x, 1) or x.view(x.size(0), -1)"
            )
        self._view(node, what, source, tuple(rest))

    def _join(self, node: fx.Node, call: Call, what: str, sources: list[str]) -> None:
        shapes = [self.shapes[source] for source in sources]
        shown = ", ".join(str(shape) for shape in shapes)
        if len(sources) == 1:  # a concatenation of one: the same values, in a storage of their own
            self._add(node, Stage(self._name(node), "reshape", (sources[0],), shapes[0], self.widths[sources[0]], what))
            return
        if call.operation == "add":
            if call.settings.get("alpha", 1) != 1:
                raise UnsupportedModelError(
                    f"{what}: alpha {call.settings['alpha']}; expected 1: scale in a layer's weights"
                )
            if len(set(shapes)) != 1:
                raise UnsupportedModelError(f"{what}: adds values of shapes {shown}; expected equal shapes")
            to = shapes[0]
        else:
            if call.settings["dim"] not in (1, -len(shapes[0])) or len({shape[1:] for shape in shapes}) != 1:
                raise UnsupportedModelError(
                    f"{what}: concatenates values of shapes {shown} along axis {call.settings['dim']}; expected axis "
                    "1, the channels, and equal shapes but for it"
                )
            to = (sum(shape[0] for shape in shapes), *shapes[0][1:])
        order = [INPUT, *self.stages]
        width = max((self.widths[source] for source in sources), key=order.index)
        stage = Stage(self._name(node), call.operation, tuple(sources), to, width, what)  # type: ignore[arg-type]
        self._add(node, stage, call.in_place)
