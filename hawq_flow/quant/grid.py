"""The grid that a value's integers lie on, and what every stage that ends on one of its own keeps of it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hawq_flow.numeric import IntArray, IntType, nearest_dyadic
from hawq_flow.quant.observe import QuantConfig


@dataclass(frozen=True)
class Grid:
    """What the integers of a value mean: real = scale * (integer - zero_point); scale a float64 scalar."""

    scale: Tensor
    zero_point: int
    type: IntType


class Gridded(nn.Module):
    """A stage with dyadic multipliers, and an output scale that is learned or observed until it is frozen."""

    multiplier: Tensor
    shift: Tensor
    frozen_scale: Tensor
    zero_point: Tensor
    out_type: IntType
    config: QuantConfig

    def register_scales(self, multipliers: int) -> None:
        """The buffers of the frozen state."""
        self.register_buffer("zero_point", torch.zeros((), dtype=torch.int64))
        self.register_buffer("multiplier", torch.zeros(multipliers, dtype=torch.int64))
        self.register_buffer("shift", torch.zeros(multipliers, dtype=torch.int64))
        self.register_buffer("frozen_scale", torch.zeros((), dtype=torch.float64))  # 0: not frozen

    @property
    def frozen(self) -> bool:
        """Whether the dyadic scales are fixed."""
        return bool(self.frozen_scale > 0)

    def grid(self, scale: Tensor) -> Grid:
        """The output's integers under a scale."""
        return Grid(scale, int(self.zero_point), self.out_type)

    def dyadic(self, factors: Tensor) -> tuple[IntArray, IntArray]:
        """Multipliers and shifts, int64, of snapped factors."""
        return nearest_dyadic(factors.cpu().numpy(), self.config.multiplier_bits)

    def fix(self, factors: Tensor, scale: Tensor) -> None:
        """Freeze the snapped factors and the output's scale."""
        multiplier, shift = self.dyadic(factors)
        self.multiplier.copy_(torch.from_numpy(multiplier))
        self.shift.copy_(torch.from_numpy(shift))
        self.frozen_scale.copy_(scale)
        self.settle()

    def settle(self) -> None:
        """Once frozen, what decides the scales trains no more."""
        raise NotImplementedError
