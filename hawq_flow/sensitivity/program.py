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
    """A linear layer, over the last axis at every position of the others."""

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
    dilation: Shape
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
            self.dilation,
            self.groups,
        )

    def _backward(
        self, adjoint: Tensor, source: Tensor, weight: Tensor, wanted: tuple[bool, bool]
    ) -> tuple[Tensor, Tensor]:
        zeros = [0] * len(self.kernel)
        (to_source, to_weight, _) = torch.ops.aten.convolution_backward(
            adjoint,
            source,
            weight,
            None,
            self.stride,
            self.padding,
            self.dilation,
            False,
            zeros,
            self.groups,
            [*wanted, False],
        )
        return to_source, to_weight

    def adjoint(
        self, adjoint: Tensor, sources: Sequence[Tensor], wanted: Sequence[bool], weights: Weights
    ) -> list[Tensor | None]:
        """The transposed convolution of ``a``."""
        if not wanted[0]:
            return [None]
        n, k = adjoint.shape[:2]
        # Only the shape of the source matters here; one number, expanded, has it.
        source = adjoint.new_zeros(1).expand(n * k, *sources[0].shape[1:])
        flat, _ = self._backward(adjoint.flatten(0, 1), source, weights.weight[self.module], (True, False))
        return [flat.unflatten(0, (n, k))]

    def gradient(self, adjoint: Tensor, source: Tensor, weight: Tensor) -> Tensor:
        """Sum over samples of the weights' gradient, from adjoints (n, *out) and sources (n, *in)."""
        return self._backward(adjoint, source, weight, (False, True))[1]


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
    """``min(max(x, low), high)``; ``closed``: the derivative at the ends is 1 (clamp), not 0 (ReLU6, hardtanh)."""

    low: float
    high: float
    closed: bool

    def forward(self, sources: Sequence[Tensor], weights: Weights) -> Tensor:
        """Element by element."""
        return sources[0].clamp(self.low, self.high)

    def adjoint(
        self, adjoint: Tensor, sources: Sequence[Tensor], wanted: Sequence[bool], weights: Weights
    ) -> list[Tensor | None]:
        """Where it does not clip."""
        x = sources[0]
        inside = (x >= self.low) & (x <= self.high) if self.closed else (x > self.low) & (x < self.high)
        return [adjoint * inside.unsqueeze(1)]


@dataclass(frozen=True)
class Affine(Operation):
    """``scale x + shift`` with two numbers."""

    scale: float = 1.0
    shift: float = 0.0

    def forward(self, sources: Sequence[Tensor], weights: Weights) -> Tensor:
        """Element by element."""
        return sources[0] * self.scale + self.shift

    def adjoint(
        self, adjoint: Tensor, sources: Sequence[Tensor], wanted: Sequence[bool], weights: Weights
    ) -> list[Tensor | None]:
        """``scale a``."""
        return [adjoint * self.scale]


@dataclass(frozen=True)
class Sum(Operation):
    """Values of one shape, weighted and added."""

    factors: tuple[float, ...]

    def forward(self, sources: Sequence[Tensor], weights: Weights) -> Tensor:
        """``sum of f_i x_i``."""
        terms = [x if f == 1 else x * f for f, x in zip(self.factors, sources, strict=True)]
        return sum(terms[1:], terms[0])

    def adjoint(
        self, adjoint: Tensor, sources: Sequence[Tensor], wanted: Sequence[bool], weights: Weights
    ) -> list[Tensor | None]:
        """``f_i a`` for each."""
        return [adjoint if f == 1 else adjoint * f for f in self.factors]


@dataclass(frozen=True)
class Concatenation(Operation):
    """Values joined along an axis (1: the first after the batch)."""

    axis: int

    def forward(self, sources: Sequence[Tensor], weights: Weights) -> Tensor:
        """In order."""
        return torch.cat(list(sources), self.axis)

    def adjoint(
        self, adjoint: Tensor, sources: Sequence[Tensor], wanted: Sequence[bool], weights: Weights
    ) -> list[Tensor | None]:
        """Each its part."""
        return list(adjoint.split([x.shape[self.axis] for x in sources], self.axis + 1))


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

    name: str
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
    """Maxima that one element each supplies; ``function`` gives them and its flat index over the last ``axes`` axes."""

    function: Callable[[Tensor], tuple[Tensor, Tensor]]
    axes: int

    def forward(self, sources: Sequence[Tensor], weights: Weights) -> Tensor:
        """The maxima."""
        return self.function(sources[0])[0]

    def adjoint(
        self, adjoint: Tensor, sources: Sequence[Tensor], wanted: Sequence[bool], weights: Weights
    ) -> list[Tensor | None]:
        """To the elements that supplied them."""
        x = sources[0]
        _, where = self.function(x)
        k = adjoint.shape[1]
        where = where.flatten(-self.axes)[:, None].expand(-1, k, *where.shape[1 : -self.axes], -1)
        space = x.shape[-self.axes :]
        flat = adjoint.new_zeros(len(x), k, *x.shape[1 : -self.axes], math.prod(space))
        return [flat.scatter_add_(-1, where, adjoint.flatten(-self.axes)).unflatten(-1, space)]


@dataclass(frozen=True)
class Maximum(Operation):
    """The maximum over some axes (torch's amax); elements that tie share the derivative."""

    axes: Shape
    keep: bool

    def forward(self, sources: Sequence[Tensor], weights: Weights) -> Tensor:
        """The maxima."""
        return sources[0].amax(self.axes, self.keep)

    def adjoint(
        self, adjoint: Tensor, sources: Sequence[Tensor], wanted: Sequence[bool], weights: Weights
    ) -> list[Tensor | None]:
        """To the largest elements."""
        x = sources[0]
        largest = (x == x.amax(self.axes, keepdim=True)).to(adjoint)
        share = largest / largest.sum(self.axes, keepdim=True)
        if not self.keep:
            for axis in sorted(self.axes):
                adjoint = adjoint.unsqueeze(axis + 1)
        return [adjoint * share.unsqueeze(1)]


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
