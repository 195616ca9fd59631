"""Ranges and scales: how a tensor's numbers choose the grid of integers that will hold them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from hawq_flow.numeric import IntType, Rounding

ObserverKind = Literal["minmax", "moving_average", "percentile", "mse"]


@dataclass(frozen=True)
class QuantConfig:
    """How tensors are quantized, beside the widths (which are the plan's).

    Attributes
    ----------
    per_channel:
        One weight scale for each output channel (else one for each layer).
    multiplier_bits:
        Bits of the dyadic multipliers, 1 to 24 (24 is what a float32 initializer holds). Since weight scales follow
        the snapped multipliers, few bits cost no accuracy and save hardware.
    input_observer, activation_observer:
        How ranges are found: "minmax", "moving_average", "percentile" or "mse" (least squared quantization error).
    percentile:
        For the percentile observer: the two-sided coverage in percent.
    momentum:
        For the moving average: the weight of a new batch.
    weight_scale:
        "max": the largest weight of the channel is the largest integer; "mse": least squared error; both only start
        the scale when ``learn_scales`` is set.
    learn_scales:
        Train weight and activation scales by gradient (LSQ) until they freeze; else weight scales follow the weights
        and activation scales the observer.
    refresh:
        Training snaps the scales to dyadic numbers every so many steps (every step would cost a fifth of the time).
    asymmetric:
        Zero points for signed activations and the input (activations after ReLU are unsigned with zero point 0 anyway).
    rounding:
        Of every requantization.
    table_bits:
        Width of the integers that enter a lookup table (sigmoid, tanh, GELU, softmax...), 2 to 14; what comes out has
        the plan's width.
    """

    per_channel: bool = True
    multiplier_bits: int = 8
    input_observer: ObserverKind = "minmax"
    activation_observer: ObserverKind = "mse"
    percentile: float = 99.99
    momentum: float = 0.1
    weight_scale: Literal["max", "mse"] = "mse"
    learn_scales: bool = True
    refresh: int = 10
    asymmetric: bool = False
    rounding: Rounding = Rounding.HALF_EVEN
    table_bits: int = 8

    def __post_init__(self) -> None:
        if not 2 <= self.table_bits <= 14:
            raise ValueError(f"table_bits {self.table_bits}; expected 2 to 14 (a table has 2^bits entries)")
        if not 1 <= self.multiplier_bits <= 24:
            raise ValueError(f"multiplier_bits {self.multiplier_bits}; expected 1 to 24 (what float32 holds exactly)")
        if not 50 < self.percentile <= 100:
            raise ValueError(f"percentile {self.percentile}; expected above 50 and at most 100")
        if not 0 < self.momentum <= 1:
            raise ValueError(f"momentum {self.momentum}; expected above 0 and at most 1")
        for field in ("input_observer", "activation_observer"):
            if getattr(self, field) not in ("minmax", "moving_average", "percentile", "mse"):
                raise ValueError(
                    f"{field} {getattr(self, field)!r}; expected minmax, moving_average, percentile or mse"
                )
        if self.refresh < 1:
            raise ValueError(f"refresh {self.refresh}; expected 1 or more steps")
        if self.weight_scale not in ("max", "mse"):
            raise ValueError(f"weight_scale {self.weight_scale!r}; expected max or mse")


class Observer:
    """Finds the range of a tensor over batches. ``observe`` batches, then read ``low`` <= 0 <= ``high``.

    ``asymmetric`` says whether *this* tensor's integers have a zero point.
    """

    def __init__(self, kind: ObserverKind, config: QuantConfig, type: IntType, asymmetric: bool = False) -> None:
        self.kind, self.config, self.type, self.asymmetric = kind, config, type, asymmetric
        self.low = self.high = 0.0
        self.batches = 0

    def observe(self, values: Tensor) -> None:
        """Take in a batch (any shape, finite)."""
        flat = values.detach().reshape(-1).to(torch.float64)
        if not bool(torch.isfinite(flat).all()):
            raise ValueError("observer: a value is NaN or infinite; training has diverged (lower the learning rate)")
        if self.kind == "percentile":
            tail = (
                (100.0 - self.config.percentile) / 200.0
                if self.type.signed or self.asymmetric
                else (100.0 - self.config.percentile) / 100.0
            )
            ends = np.quantile(flat.cpu().numpy(), [tail, 1.0 - tail])
            low, high = float(ends[0]), float(ends[1])
        else:
            low, high = float(flat.min()), float(flat.max())
        if self.kind == "mse":
            shrink = _best_shrink(flat, min(low, 0.0), max(high, 0.0), self.type, self.asymmetric)
            low, high = low * shrink, high * shrink
        low, high = min(low, 0.0), max(high, 0.0)
        if self.batches == 0:
            self.low, self.high = low, high
        elif self.kind == "minmax":
            self.low, self.high = min(self.low, low), max(self.high, high)
        else:
            m = self.config.momentum
            self.low, self.high = (1 - m) * self.low + m * low, (1 - m) * self.high + m * high
        self.batches += 1

    def grid(self) -> tuple[float, int]:
        """(scale, zero point) that spread the type's integers over the range; the zero point is 0 if symmetric."""
        if not self.batches:
            raise RuntimeError("observer: nothing observed yet; calibrate the network on data before using it")
        return _grid(self.low, self.high, self.type, self.asymmetric)


def _grid(low: float, high: float, type: IntType, asymmetric: bool) -> tuple[float, int]:
    bottom, top = type.range
    if asymmetric:
        span = high - low if high > low else 1.0  # a constant zero: any scale serves
        scale = span / (top - bottom)
        return scale, min(max(round(-low / scale) + bottom, bottom), top)
    reach = high if bottom == 0 else max(-low, high)
    return (reach if reach > 0 else 1.0) / top, 0


def _best_shrink(flat: Tensor, low: float, high: float, type: IntType, asymmetric: bool) -> float:
    """The factor (0.1 to 1) by which to shrink the range so that quantizing ``flat`` has the least squared error."""
    sample = flat if flat.numel() <= 65536 else flat[:: flat.numel() // 65536 + 1]
    bottom, top = type.range
    best, best_error = 1.0, math.inf
    for factor in np.linspace(1.0, 0.1, 46):
        scale, zero = _grid(low * factor, high * factor, type, asymmetric)
        error = float(
            ((sample / scale + zero).round_().clamp_(bottom, top).sub_(zero).mul_(scale) - sample).square().sum()
        )
        if error < best_error:
            best, best_error = float(factor), error
    return best


def weight_scale(weight: Tensor, top: Tensor, config: QuantConfig) -> Tensor:
    """Float64 scale of each output channel of a (channels, n) weight whose largest integers are ``top`` (channels,)."""
    w = weight.detach().to(torch.float64)
    reach = w.abs().amax(dim=1)
    if not config.per_channel:
        reach = reach.max().expand_as(reach)
    # A channel of zeros takes the layer's typical reach: its integers are all zero under any scale.
    typical = reach[reach > 0].mean() if bool((reach > 0).any()) else torch.ones((), dtype=torch.float64)
    reach = torch.where(reach > 0, reach, typical)
    # One scale for channels of several widths: the narrowest sets the coarsest step that clips nothing anywhere.
    coarsest = reach / (top if config.per_channel else top.min())
    if config.weight_scale == "max":
        return coarsest
    best, scale = torch.full_like(reach, math.inf), coarsest
    mixed = not config.per_channel and bool((top != top[0]).any())
    factors = np.geomspace(1.0, 0.2 * float(top.min() / top.max()), 161) if mixed else np.linspace(1.0, 0.2, 41)
    for factor in factors:
        candidate = coarsest * factor
        quantized = (w / candidate[:, None]).round_().clamp_(-top[:, None], top[:, None]) * candidate[:, None]
        error = (quantized - w).square().sum(dim=1)
        if not config.per_channel:
            error = error.sum().expand_as(error)
        better = error < best
        best, scale = torch.where(better, error, best), torch.where(better, candidate, scale)
    return scale
