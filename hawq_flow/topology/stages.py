"""Stages: what a model is made of, their shapes, and the names of the integer values they define."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from torch import Tensor, nn

from hawq_flow.plan import LayerShape

INPUT = "x"
"""Name of the network input in plans, integer networks and exports."""
REQUANT = "_requant"
"""A layer ``fc1`` defines the integer values ``fc1`` (the accumulator) and ``fc1_requant`` (its output)."""

Layer = nn.Linear | nn.Conv1d | nn.Conv2d
BatchNorm = nn.BatchNorm1d | nn.BatchNorm2d
Kind = Literal[
    "linear",
    "conv",
    "add",
    "concat",
    "average",
    "activation",
    "table",
    "softmax",
    "max",
    "upsample",
    "pad",
    "reshape",
    # before fusing only:
    "batch_norm",
    "dropout",
]
PASSING = ("max", "upsample", "pad", "reshape")
"""Kinds whose integers keep the scale and zero point of what they read."""
LAYERS = ("linear", "conv")


class UnsupportedModelError(ValueError):
    """A module, function or pattern that cannot be lowered; the text names it and says what to do."""


@dataclass(frozen=True)
class Stage:
    """One operation with what folds into it.

    Attributes
    ----------
    name:
        A layer's qualified name in the model (``layers.0``), which is its name in plans; else the name torch.fx gave
        the call.
    kind, sources:
        What it does, and the stages (or ``INPUT``) whose outputs it reads, in order.
    shape:
        Of one output sample.
    width:
        The layer (or ``INPUT``) of the plan whose activation width the output has: a layer's own; else that of the last
        layer before it.
    what:
        How errors call it.
    module:
        The layer's module, not copied; None for kinds without weights.
    batch_norm, batch_norm_name, activation, dropout:
        What is folded in: the batch norm module, "relu", "relu6" or "", and the dropout probability after it.
    kernel, stride, padding:
        Windows of conv, average, max (and padding of pad): one entry an axis of space; padding all beginnings, then
        all ends.
    groups:
        Of a convolution.
    divisor:
        Of an average: what the sum of a window is divided by.
    factors:
        Of an upsampling: repetitions along each axis of space.
    function, function_name:
        Of a table: the function of one element, and what it is called.
    """

    name: str
    kind: Kind
    sources: tuple[str, ...]
    shape: tuple[int, ...]
    width: str
    what: str
    module: Layer | None = None
    batch_norm: BatchNorm | None = None
    batch_norm_name: str = ""
    activation: str = ""
    dropout: float = 0.0
    kernel: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    padding: tuple[int, ...] = ()
    groups: int = 1
    divisor: int = 1
    factors: tuple[int, ...] = ()
    function: Callable[[Tensor], Tensor] | None = None
    function_name: str = ""

    @property
    def layer(self) -> Layer:
        """The module of a linear or conv stage."""
        assert self.module is not None, self.what
        return self.module

    @property
    def outputs(self) -> int:
        """Output features or channels of a layer."""
        return self.shape[0]

    @property
    def values(self) -> tuple[str, ...]:
        """Names of the integer values the stage may define; the last is its output."""
        name = identifier(self.name)
        match self.kind:
            case "linear":
                return (name, name + REQUANT)
            case "conv":
                return (name + "_pad", name, name + REQUANT)
            case "add":
                return (*self.operands, name + "_sum", name + REQUANT)
            case "concat":
                return (*self.operands, name)
            case "average":
                return (name, name + REQUANT)
            case "activation":
                return (name + REQUANT,)
            case "softmax":
                parts = ("_max", "_difference", "_exp", "_sum", "_range", "_reciprocal", "_product", REQUANT)
                return tuple(name + part for part in parts)
            case _:
                return (name,)

    @property
    def operands(self) -> tuple[str, ...]:
        """Names of the requantized operands of an add or concat."""
        return tuple(f"{identifier(self.name)}_in{i}" for i in range(len(self.sources)))

    @property
    def output(self) -> str:
        """Name of the integer value that is the stage's output."""
        return self.values[-1]


@dataclass(frozen=True)
class Topology:
    """The stages of a model in evaluation order, the shape of one input sample, and the stage that is the output."""

    input_shape: tuple[int, ...]
    stages: tuple[Stage, ...]
    output: str

    @cached_property
    def _by_name(self) -> dict[str, Stage]:
        return {stage.name: stage for stage in self.stages}

    def __getitem__(self, name: str) -> Stage:
        return self._by_name[name]

    @property
    def layers(self) -> tuple[Stage, ...]:
        """The stages with weights, in order."""
        return tuple(stage for stage in self.stages if stage.kind in LAYERS)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of one output sample."""
        return self[self.output].shape

    def width(self, name: str) -> str:
        """The layer (or ``INPUT``) of the plan whose activation width stage or input ``name`` has."""
        return INPUT if name == INPUT else self[name].width

    @cached_property
    def readers(self) -> dict[str, tuple[Stage, ...]]:
        """For the input and every stage, the stages that read it."""
        found: dict[str, list[Stage]] = {INPUT: [], **{stage.name: [] for stage in self.stages}}
        for stage in self.stages:
            for source in dict.fromkeys(stage.sources):
                found[source].append(stage)
        return {name: tuple(stages) for name, stages in found.items()}

    def final_readers(self, name: str) -> tuple[Stage, ...]:
        """Who reads a value, through the stages that only move it."""
        found: list[Stage] = []
        for stage in self.readers[name]:
            found += self.final_readers(stage.name) if stage.kind in PASSING else (stage,)
        return tuple(found)

    def activation(self, layer: str) -> str:
        """The stage whose output is a layer's activation: the tensor that a quantizer after the non-linearity sees.

        The layer's own stage (batch norm and ReLU are in it), or what a function of one element makes of that when it
        alone reads it. A pool after it is not part of it, nor is an addition, nor the ReLU after an addition.
        """
        name = layer
        while name != self.output and len(readers := self.readers[name]) == 1:
            if readers[0].kind not in ("activation", "table", "reshape"):
                break
            name = readers[0].name
        return name

    def emerges(self, name: str) -> bool:
        """Whether the network's output is this value, perhaps moved."""
        return name == self.output or any(
            self.emerges(stage.name) for stage in self.readers[name] if stage.kind in PASSING
        )

    def may_shift(self, name: str) -> bool:
        """Whether a value may have a zero point: only layers, tables and softmax read it (or nobody).

        Sums, concatenations and averages rescale their operands without a constant, so theirs are symmetric.
        """
        return all(stage.kind in (*LAYERS, "table", "softmax") for stage in self.final_readers(name))

    def only_tables(self, name: str) -> bool:
        """Whether tables (or a softmax, which is made of some) alone read a value: its width is then not the plan's."""
        readers = self.final_readers(name)
        return bool(readers) and not self.emerges(name) and all(s.kind in ("table", "softmax") for s in readers)

    @cached_property
    def _signs(self) -> dict[str, bool]:
        found = {INPUT: False}
        for stage in self.stages:
            if stage.activation or stage.kind in ("softmax", "activation"):
                found[stage.name] = True
            elif stage.kind == "table":
                found[stage.name] = _nonnegative(stage)
            else:
                found[stage.name] = stage.kind not in LAYERS and all(found[source] for source in stage.sources)
        return found

    def nonnegative(self, name: str) -> bool:
        """Whether a value is never negative, by what it is made of."""
        return self._signs[name]

    @property
    def shapes(self) -> list[LayerShape]:
        """Each layer's shape, for plans and costs."""
        joined: dict[str, dict[str, None]] = {}
        for stage in self.stages:
            if stage.kind in ("add", "concat"):
                for source in stage.sources:
                    if (width := self.width(source)) != stage.width:
                        joined.setdefault(width, {})[stage.width] = None
        return [
            LayerShape(
                stage.name,
                math.prod(stage.layer.weight.shape[1:]),
                stage.outputs,
                self.width(stage.sources[0]),
                math.prod(stage.shape[1:]),
                tuple(joined.get(stage.name, ())),
            )
            for stage in self.layers
        ]


def _nonnegative(stage: Stage) -> bool:
    import torch

    assert stage.function is not None
    grid = torch.linspace(-64.0, 64.0, 16385, dtype=torch.float64)
    return bool((stage.function(grid) >= 0).all())


def identifier(name: str) -> str:
    """A layer's name as a C++ and Verilog identifier: ``layers.0`` becomes ``layers_0``."""
    text = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return f"_{text}" if text[:1].isdigit() else text
