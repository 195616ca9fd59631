"""What one layer's weight gradients are made of, sample by sample and adjoint by adjoint.

A layer applies its weights at P positions: a dense layer at one, a convolution at every place of its kernel. With
``x_p`` the patch of inputs (J of them) at position p and ``u_p`` an adjoint of the outputs there, the gradient of the
weights of one sample and one adjoint is ``G = sum_p u_p x_p^T``, group by group.

``|G|^2`` summed over the K adjoints comes in two ways, of which the cheaper is taken (multiplications, one group):

* ``gradient``: ``G`` itself, ``K O P J``;
* ``gram``: ``sum_{p,q} (sum_k u_{k,p} . u_{k,q}) (x_p . x_q)``, ``P^2 (K O + J)``: for few positions and wide layers.
  With one position it is ``|u|^2 |x|^2``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from hawq_flow.sensitivity.program import Convolution, Dense, Operation, Shape


@dataclass(frozen=True)
class LayerForm:
    """A layer's sizes: ``groups`` groups of ``outputs`` outputs and ``inputs`` inputs (J) each, at ``positions``."""

    operation: Dense | Convolution
    weight: Shape
    groups: int
    outputs: int
    inputs: int
    positions: int

    @classmethod
    def of(cls, operation: Operation, weight: Shape, output: Shape) -> LayerForm:
        """From the weight's shape and the shape of one sample's output."""
        assert isinstance(operation, (Dense, Convolution))
        groups = 1 if isinstance(operation, Dense) else operation.groups
        return cls(operation, weight, groups, weight[0] // groups, math.prod(weight[1:]), math.prod(output[1:]))

    @property
    def weights(self) -> int:
        """Number of weights."""
        return math.prod(self.weight)

    @property
    def factorized(self) -> bool:
        """Whether one position and one group make ``G`` an outer product."""
        return self.positions == 1 and self.groups == 1

    def multiplications(self, columns: int) -> tuple[int, int]:
        """Of one sample's ``|G|^2`` by ``gradient`` and by ``gram``, for ``columns`` adjoints."""
        gradient = columns * self.weights * (self.positions + 1)
        gram = self.groups * self.positions**2 * (columns * self.outputs + self.inputs + 1)
        return gradient, gram

    def gram(self, columns: int) -> bool:
        """Whether the second way is the cheaper."""
        gradient, gram = self.multiplications(columns)
        return gram < gradient

    def elements(self, columns: int, *, gradients: bool, each: bool) -> tuple[int, int]:
        """Working memory of one sample in elements, for each adjoint and on top: of gradients, or of squares."""
        of_outputs = self.groups * self.outputs * self.positions
        patches = 2 * self.groups * self.inputs * self.positions
        if gradients or not self.gram(columns):
            return 2 * of_outputs + 2 * self.weights, patches
        grams = self.groups * self.positions**2
        return 2 * of_outputs + (2 * grams if each else 0), patches + 3 * grams

    def patches(self, source: Tensor) -> Tensor:
        """What the weights meet: (n, groups, J, P) from inputs (n, *in)."""
        if isinstance(self.operation, Dense):
            return source.reshape(len(source), 1, self.inputs, 1)
        op = self.operation
        if all(k == 1 for k in op.kernel) and not any(op.padding):
            for axis, stride in enumerate(op.stride):
                if stride > 1:
                    count = (source.shape[2 + axis] - 1) // stride + 1
                    source = source.index_select(2 + axis, torch.arange(count, device=source.device) * stride)
            return source.reshape(len(source), self.groups, self.inputs, self.positions)
        one = (1,) * (2 - len(op.kernel))
        zero = (0,) * (2 - len(op.kernel))
        columns = functional.unfold(
            source if len(op.kernel) == 2 else source.unsqueeze(2),
            one + op.kernel,
            1,
            zero + op.padding,
            one + op.stride,
        )
        return columns.reshape(len(source), self.groups, self.inputs, self.positions)

    def outputs_of(self, adjoint: Tensor) -> Tensor:
        """(n, groups, K * outputs, P) from adjoints (n, K, *out)."""
        n, k = adjoint.shape[:2]
        grouped = adjoint.reshape(n, k, self.groups, self.outputs, self.positions)
        return grouped.transpose(1, 2).reshape(n, self.groups, k * self.outputs, self.positions)

    def gradients(self, source: Tensor, adjoint: Tensor) -> Tensor:
        """``G``, of shape (n, K, weights) in the order of the weight tensor."""
        n, k = adjoint.shape[:2]
        product = self.outputs_of(adjoint) @ self.patches(source).transpose(2, 3)  # (n, groups, K * outputs, J)
        return product.reshape(n, self.groups, k, -1).transpose(1, 2).reshape(n, k, self.weights)

    def squares(self, source: Tensor, adjoint: Tensor, *, each: bool = False) -> Tensor:
        """``|G|^2`` summed over the adjoints, float64 of shape (n,); with ``each``, of every adjoint, (n, K)."""
        outputs, patches = self.outputs_of(adjoint), self.patches(source)
        n, k = adjoint.shape[:2]
        if self.gram(k):
            if each:
                outputs = outputs.reshape(n, self.groups * k, self.outputs, self.positions)
            product = outputs.transpose(2, 3) @ outputs
            across = patches.transpose(2, 3) @ patches
            product *= across.repeat_interleave(k, 1) if each else across
        else:
            product = outputs @ patches.transpose(2, 3)
            product *= product
        if each:
            return product.reshape(n, self.groups, k, -1).sum((1, 3), dtype=torch.float64)
        return product.flatten(1).sum(1, dtype=torch.float64)
