"""Piecewise linear networks as a list of steps, run forward, and backward with several adjoints at once.

Every operation maps values of shape (n, *in) to one of shape (n, *out) and is piecewise linear in each of them. Its
``adjoint`` is the transpose of its derivative, applied to K adjoints of every sample: (n, K, *out) to (n, K, *in). The
derivative at kinks is torch's own, so that a Hessian by autograd is the same one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Weights:
    """The layers' parameters in the type to compute in."""

    weight: Mapping[str, Tensor]
    bias: Mapping[str, Tensor | None]

    @classmethod
    def of(cls, model: nn.Module, layers: Sequence[str], dtype: torch.dtype, device: str | None = None) -> Weights:
        """Weights and biases of the named layers, detached."""
        weight: dict[str, Tensor] = {}
        bias: dict[str, Tensor | None] = {}
        for name in layers:
            module = model.get_submodule(name)
            assert isinstance(module, (nn.Linear, nn.Conv1d, nn.Conv2d))
            weight[name] = module.weight.detach().to(device, dtype)
            bias[name] = None if module.bias is None else module.bias.detach().to(device, dtype)
        return cls(weight, bias)

    @property
    def dtype(self) -> torch.dtype:
        """The type to compute in."""
        return next(iter(self.weight.values())).dtype


class Operation(ABC):
    """One operation, without its parameters."""

    @property
    def layer(self) -> str:
        """The layer whose weights it applies; '' for none."""
        return ""

    @abstractmethod
    def forward(self, sources: Sequence[Tensor], weights: Weights) -> Tensor:
        """The value (n, *out) from values (n, *in)."""

    @abstractmethod
    def adjoint(
        self, adjoint: Tensor, sources: Sequence[Tensor], wanted: Sequence[bool], weights: Weights
    ) -> list[Tensor | None]:
        """For each source that is wanted, its adjoint (n, K, *in) from the output's (n, K, *out)."""


@dataclass(frozen=True)
class Dense(Operation):
    """A linear layer."""

    module: str

    @property
    def layer(self) -> str:
        """The module's name."""
        return self.module

    def forward(self, sources: Sequence[Tensor], weights: Weights) -> Tensor:
        """``W x + b``."""
        return functional.linear(sources[0], weights.weight[self.module], weights.bias[self.module])

    def adjoint(
        self, adjoint: Tensor, sources: Sequence[Tensor], wanted: Sequence[bool], weights: Weights
    ) -> list[Tensor | None]:
        """``W^T a``."""
        return [adjoint @ weights.weight[self.module] if wanted[0] else None]


@dataclass(frozen=True)
class Convolution(Operation):
    """A convolution over one or two axes of space; zeros of ``padding`` on both sides of each."""

    module: str
    kernel: Shape
    stride: Shape
    padding: Shape
    groups: int

    @property
    def layer(self) -> str:
        """The module's name."""
        return self.module

    def forward(self, sources: Sequence[Tensor], weights: Weights) -> Tensor:
        """``w * x + b``."""
        function = functional.conv1d if len(self.kernel) == 1 else functional.conv2d
        return function(
            sources[0],
            weights.weight[self.module],
            weights.bias[self.module],
            self.stride,
            self.padding,
            1,
            self.groups,
        )

    def adjoint(
        self, adjoint: Tensor, sources: Sequence[Tensor], wanted: Sequence[bool], weights: Weights
    ) -> list[Tensor | None]:
        """The transposed convolution of ``a``."""
        if not wanted[0]:
            return [None]
        n, k = adjoint.shape[:2]
        # Only the shape of the source matters here; one number, expanded, has it.
        source = adjoint.new_zeros(1).expand(n * k, *sources[0].shape[1:])
        rank = len(self.kernel)
        flat = torch.ops.aten.convolution_backward(
            adjoint.flatten(0, 1),
            source,
            weights.weight[self.module],
            None,
            self.stride,
            self.padding,
            [1] * rank,
            False,
            [0] * rank,
            self.groups,
            [True, False, False],
        )[0]
        return [flat.unflatten(0, (n, k))]


@dataclass(frozen=True)
class Relu(Operation):
    """``max(x, 0)``, or ``slope x`` below 0."""

    slope: float = 0.0

    def forward(self, sources: Sequence[Tensor], weights: Weights) -> Tensor:
        """Element by element."""
        return functional.leaky_relu(sources[0], self.slope) if self.slope else sources[0].clamp(min=0)

    def adjoint(
        self, adjoint: Tensor, sources: Sequence[Tensor], wanted: Sequence[bool], weights: Weights
    ) -> list[Tensor | None]:
        """Through the activations' own backward kernels, in one pass; the samples' signs broadcast over the columns."""
        before = sources[0].unsqueeze(1)
        if self.slope:
            return [torch.ops.aten.leaky_relu_backward(adjoint, before, self.slope, False)]
        return [torch.ops.aten.threshold_backward(adjoint, before, 0)]


@dataclass(frozen=True)
class Clip(Operation):
    """``min(max(x, low), high)``; the derivative at the ends is 0, as that of torch's ReLU6 and hardtanh."""

    low: float
    high: float

    def forward(self, sources: Sequence[Tensor], weights: Weights) -> Tensor:
        """Element by element."""
        return sources[0].clamp(self.low, self.high)

    def adjoint(
        self, adjoint: Tensor, sources: Sequence[Tensor], wanted: Sequence[bool], weights: Weights
    ) -> list[Tensor | None]:
        """Where it does not clip."""
        x = sources[0]
        return [adjoint * ((x > self.low) & (x < self.high)).unsqueeze(1)]


@dataclass(frozen=True)
class Sum(Operation):
    """Values of one shape, added."""

    def forward(self, sources: Sequence[Tensor], weights: Weights) -> Tensor:
        """In order."""
        return sum(sources[1:], sources[0])

    def adjoint(
        self, adjoint: Tensor, sources: Sequence[Tensor], wanted: Sequence[bool], weights: Weights
    ) -> list[Tensor | None]:
        """``a`` for each."""
        return [adjoint] * len(sources)


@dataclass(frozen=True)
class Concatenation(Operation):
    """Values joined along their channels."""

    def forward(self, sources: Sequence[Tensor], weights: Weights) -> Tensor:
        """In order."""
        return torch.cat(list(sources), 1)

    def adjoint(
        self, adjoint: Tensor, sources: Sequence[Tensor], wanted: Sequence[bool], weights: Weights
    ) -> list[Tensor | None]:
        """Each its part."""
        return list(adjoint.split([x.shape[1] for x in sources], 2))


@dataclass(frozen=True)
class Reshape(Operation):
    """One sample's elements, in order, in another shape."""

    shape: Shape

    def forward(self, sources: Sequence[Tensor], weights: Weights) -> Tensor:
        """(n, *shape)."""
        return sources[0].reshape(len(sources[0]), *self.shape)

    def adjoint(
        self, adjoint: Tensor, sources: Sequence[Tensor], wanted: Sequence[bool], weights: Weights
    ) -> list[Tensor | None]:
        """Back in the shape it had."""
        return [adjoint.reshape(*adjoint.shape[:2], *sources[0].shape[1:])]


@dataclass(frozen=True)
class Linear(Operation):
    """Any linear operation without parameters that treats samples alike; its transpose is autograd's."""

    function: Callable[[Tensor], Tensor]

    def forward(self, sources: Sequence[Tensor], weights: Weights) -> Tensor:
        """The function."""
        return self.function(sources[0])

    def adjoint(
        self, adjoint: Tensor, sources: Sequence[Tensor], wanted: Sequence[bool], weights: Weights
    ) -> list[Tensor | None]:
        """The vector-Jacobian product, which is the same at any point."""
        n, k = adjoint.shape[:2]
        point = adjoint.new_zeros(n * k, *sources[0].shape[1:], requires_grad=True)
        with torch.enable_grad():
            value = self.function(point)
        (flat,) = torch.autograd.grad(value, point, adjoint.flatten(0, 1))
        return [flat.unflatten(0, (n, k))]


@dataclass(frozen=True)
class MaxPool(Operation):
    """The largest element of every window, over one or two axes of space; ``padding`` on both sides is never it."""

    kernel: Shape
    stride: Shape
    padding: Shape

    def _pool(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The maxima, and the flat index over space of the one element that supplied each."""
        function = functional.max_pool1d if len(self.kernel) == 1 else functional.max_pool2d
        maxima, where = function(x, self.kernel, self.stride, self.padding, return_indices=True)
        return maxima, where

    def forward(self, sources: Sequence[Tensor], weights: Weights) -> Tensor:
        """The maxima."""
        return self._pool(sources[0])[0]

    def adjoint(
        self, adjoint: Tensor, sources: Sequence[Tensor], wanted: Sequence[bool], weights: Weights
    ) -> list[Tensor | None]:
        """To the elements that supplied them."""
        x = sources[0]
        where = self._pool(x)[1].flatten(2)[:, None].expand(-1, adjoint.shape[1], -1, -1)
        flat = adjoint.new_zeros(*adjoint.shape[:3], math.prod(x.shape[2:]))
        return [flat.scatter_add_(-1, where, adjoint.flatten(3)).unflatten(-1, x.shape[2:])]


@dataclass(frozen=True)
class Step:
    """``values[output] = operation(values[i] for i in inputs)``."""

    operation: Operation
    output: int
    inputs: tuple[int, ...]


@dataclass(frozen=True)
class Program:
    """A piecewise linear network.

    Attributes
    ----------
    steps:
        In order; step ``i`` gives value ``i + 1``. Value 0 is the input.
    shapes:
        Of one sample, for every value.
    output:
        The value returned.
    activations:
        The input's and every layer's name, with the value that is its output activation.
    """

    steps: tuple[Step, ...]
    shapes: tuple[Shape, ...]
    output: int
    activations: Mapping[str, int]

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers in order."""
        return tuple(step.operation.layer for step in self.steps if step.operation.layer)

    def size(self, value: int) -> int:
        """Elements of one sample of a value."""
        return math.prod(self.shapes[value])

    def forward(self, weights: Weights, x: Tensor) -> list[Tensor]:
        """All values on samples ``x`` of shape (n, *features)."""
        values = [x]
        for step in self.steps:
            values.append(step.operation.forward([values[i] for i in step.inputs], weights))
        return values

    def backward(
        self, weights: Weights, values: list[Tensor], factor: Tensor, *, to_input: bool
    ) -> Iterator[tuple[int, Step | None, Tensor]]:
        """Send adjoints of the output backward, as far as the input if ``to_input``, else to the layers.

        Parameters
        ----------
        factor:
            Adjoints of the output, (n, K, *output).

        Yields
        ------
        (value, step, adjoint): every value's adjoint (n, K, *value) once it is complete, with the step that made the
        value; None for the input.
        """
        adjoints: dict[int, Tensor] = {self.output: factor.to(values[0].dtype)}
        needed = self._needed(to_input)
        for step in reversed(self.steps):
            adjoint = adjoints.pop(step.output, None)
            if adjoint is None:  # a value nobody reads on the way to the output
                continue
            yield step.output, step, adjoint
            wanted = [value in needed for value in step.inputs]
            if not any(wanted):
                continue
            parts = step.operation.adjoint(adjoint, [values[i] for i in step.inputs], wanted, weights)
            for value, part in zip(step.inputs, parts, strict=True):
                if part is not None and value in needed:
                    adjoints[value] = adjoints[value] + part if value in adjoints else part
        if 0 in adjoints:
            yield 0, None, adjoints[0]

    def _needed(self, to_input: bool) -> set[int]:
        """Values whose adjoint is wanted: those that depend on a layer's weights, or all."""
        if to_input:
            return set(range(len(self.shapes)))
        found: set[int] = set()
        for step in self.steps:
            if step.operation.layer or any(value in found for value in step.inputs):
                found.add(step.output)
        return found
