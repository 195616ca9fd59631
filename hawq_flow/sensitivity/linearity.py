"""Which networks the exact method holds for, decided on their stages (:mod:`hawq_flow.topology`).

The layerwise Gauss-Newton identity needs the outputs to be piecewise linear in one layer's weights with the others
fixed: every operation between a layer and the outputs is piecewise linear, and the layer is used once. All stages are
so but softmax and tables, of which leaky ReLU and hard tanh are. Such a network becomes a
:class:`~hawq_flow.sensitivity.program.Program`; anything else is refused with the name of the module and the reason.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from torch import Tensor, nn
from torch.nn import functional

from hawq_flow.sensitivity.program import (
    Clip,
    Concatenation,
    Convolution,
    Dense,
    Linear,
    MaxPool,
    Operation,
    Program,
    Relu,
    Reshape,
    Shape,
    Step,
    Sum,
)
from hawq_flow.topology import INPUT, Stage, Topology, UnsupportedModelError, read, stage_output
from hawq_flow.topology.floats import pad_space


class NotPiecewiseLinear(Exception):
    """The identity cannot be shown to hold; the message names the module or operation and the reason."""


def activation_stages(topology: Topology, input_name: str) -> dict[str, str]:
    """The value that is the input's, and each layer's, output activation: ``INPUT``, or a stage's name."""
    return {input_name: INPUT} | {layer.name: topology.activation(layer.name) for layer in topology.layers}


def compile_program(model: nn.Module, features: Shape, input_name: str) -> Program:
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
    try:
        topology = read(model, features)
    except UnsupportedModelError as error:
        raise NotPiecewiseLinear(str(error)) from error
    shapes, steps, at = [topology.input_shape], list[Step](), {INPUT: 0}

    def emit(operation: Operation, sources: tuple[int, ...], shape: Shape) -> int:
        steps.append(Step(operation, len(shapes), sources))
        shapes.append(shape)
        return len(shapes) - 1

    for stage in topology.stages:
        sources = tuple(at[source] for source in stage.sources)
        rank = len(stage.kernel)
        begins, ends = stage.padding[:rank], stage.padding[rank:]
        if stage.kind == "conv" and begins != ends:  # an operation's own zeros are as many on both sides
            shape = shapes[sources[0]]
            space = (n + begin + end for n, begin, end in zip(shape[1:], begins, ends, strict=True))
            sources = (emit(Linear(partial(pad_space, padding=stage.padding)), sources, (shape[0], *space)),)
            begins = (0,) * rank
        value = sources[0] if stage.kind == "activation" else emit(_operation(stage, begins), sources, stage.shape)
        if stage.activation:
            value = emit(Relu() if stage.activation == "relu" else Clip(0.0, 6.0), (value,), stage.shape)
        at[stage.name] = value
    activations = {name: at[stage] for name, stage in activation_stages(topology, input_name).items()}
    return Program(tuple(steps), tuple(shapes), at[topology.output], activations)


def _operation(stage: Stage, padding: Shape) -> Operation:
    """What the stage does before its activation; ``padding`` is on both sides of each axis of space."""
    assert stage.batch_norm is None, "batch norm is refused before"
    match stage.kind:
        case "linear":
            return Dense(stage.name)
        case "conv":
            return Convolution(stage.name, stage.kernel, stage.stride, padding, stage.groups)
        case "add":
            return Sum()
        case "concat":
            return Concatenation()
        case "max":
            return MaxPool(stage.kernel, stage.stride, padding)
        case "reshape":
            return Reshape(stage.shape)
        case "average" | "upsample" | "pad":
            return Linear(partial(_evaluate, replace(stage, activation="")))
        case "table":
            assert isinstance(stage.function, partial)
            function, settings = stage.function.func, stage.function.keywords
            if function is functional.leaky_relu:
                return Relu(float(settings["negative_slope"]))
            if function is functional.hardtanh:
                return Clip(float(settings["min_val"]), float(settings["max_val"]))
    raise NotPiecewiseLinear(f"{stage.what} is not known to be piecewise linear")


def _evaluate(stage: Stage, x: Tensor) -> Tensor:
    return stage_output(stage, [x])
