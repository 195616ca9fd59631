"""Integer-only quantization-aware training (QAT): observers, quantizers, and the trainable integer network.

The scheme is HAWQ-v3's (arXiv:2011.10680), with learned step sizes (LSQ, arXiv:1902.08153). A layer with weights
``W``, bias ``b``, input scale ``S_x`` and output scale ``S_a`` computes, for output channel ``c``::

    q_w = clip(round(W_c / S_w,c))          q_b = round(b_c / (S_w,c * S_x))
    acc = q_w . (q_x - z_x) + q_b           q_a = clip(round(M_c * acc) + z_a)

Every rescale ``M_c = m / 2^k`` is dyadic, and it is *snapped first*: ``M_c`` is the dyadic number nearest to
``S_w,c * S_x / S_a`` with a multiplier of the chosen bits, and then the weight scale follows, ``S_w,c := M_c * S_a
/ S_x``, and with it the bias grid ``S_w,c * S_x = M_c * S_a``. So snapping costs nothing that training does not see.

**Training** runs on integer-valued floats. The activation that travels is ``q - z``; the scales are folded into
the weights, ``v = (M q_w) . (q_x - z_x) + M q_b`` and ``q_a - z_a = clip(round(v))``, so that the forward pass is one
matrix product and one fused quantizer a layer, and computes the deployed integers whenever float32 holds them.
Gradients are straight-through inside the clipping range and zero outside. With ``s = S_x / S_a``::

    dL/dW       = g_w * s * [W / S_w inside the range]          g_w = dL/d(M q_w)
    dL/dlog S_a = - sum g_w * (M q_w) - sum g_b * (M q_b)       (this layer's half)
    dL/dlog S_x = + sum g_w * (M q_w)                           (the consumer's half)
    dL/dlog S_w = sum g_w * (M q_w - s W [inside])              (per channel)

The first two together are exactly LSQ's gradient of the activation's step, at the price of two small sums.

**Batch norm** is folded into the weights during training, with the batch's statistics until :meth:`freeze`, with the
running ones after it. **Freezing** fixes dyadic scales, batch-norm statistics and folding; the weights go on training.

**Evaluation** runs the integers themselves in float64, asserts by bounds that all stay below 2^53, and is the integer
network: lowering changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from hawq_flow.numeric import IntArray, IntType, Rounding, nearest_dyadic
from hawq_flow.numeric import quantize as quantize_array
from hawq_flow.plan import BitPlan, Bits, LayerShape
from hawq_flow.topology import INPUT, Stage, Topology, batch_norm_factor, identifier, read

FINEST = 4
"""An output grid is at most this many bits finer than its accumulator's: more would only copy rounding noise."""
CALIBRATION = 16384
"""Samples that start the activation scales; the input's scale sees all of them."""
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
    asymmetric:
        Zero points for signed activations and the input (activations after ReLU are unsigned with zero point 0 anyway).
    rounding:
        Of every requantization.
    """

    per_channel: bool = True
    multiplier_bits: int = 8
    input_observer: ObserverKind = "minmax"
    activation_observer: ObserverKind = "mse"
    percentile: float = 99.99
    momentum: float = 0.1
    weight_scale: Literal["max", "mse"] = "mse"
    learn_scales: bool = True
    asymmetric: bool = False
    rounding: Rounding = Rounding.HALF_EVEN

    def __post_init__(self) -> None:
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
        if self.weight_scale not in ("max", "mse"):
            raise ValueError(f"weight_scale {self.weight_scale!r}; expected max or mse")


# ---------------------------------------------------------------------------------------------------------------- ranges


class Observer:
    """Finds the range of a tensor over batches. ``observe`` batches, then read ``low`` <= 0 <= ``high``."""

    def __init__(self, kind: ObserverKind, config: QuantConfig, type: IntType) -> None:
        self.kind, self.config, self.type = kind, config, type
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
                if self.type.signed
                else (100.0 - self.config.percentile) / 100.0
            )
            ends = np.quantile(flat.cpu().numpy(), [tail, 1.0 - tail])
            low, high = float(ends[0]), float(ends[1])
        else:
            low, high = float(flat.min()), float(flat.max())
        if self.kind == "mse":
            shrink = _best_shrink(flat, low, high, self.type)
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

    def grid(self, asymmetric: bool) -> tuple[float, int]:
        """(scale, zero point) that spread the type's integers over the range."""
        if not self.batches:
            raise RuntimeError("observer: nothing observed yet; calibrate the network on data before using it")
        return _grid(self.low, self.high, self.type, asymmetric)


def _grid(low: float, high: float, type: IntType, asymmetric: bool) -> tuple[float, int]:
    bottom, top = type.range
    if asymmetric:
        span = high - low if high > low else 1.0  # a constant zero: any scale serves
        scale = span / (top - bottom)
        return scale, min(max(round(-low / scale) + bottom, bottom), top)
    reach = high if bottom == 0 else max(-low, high)
    return (reach if reach > 0 else 1.0) / top, 0


def _best_shrink(flat: Tensor, low: float, high: float, type: IntType) -> float:
    """The factor (0.1 to 1) by which to shrink the range so that quantizing ``flat`` has the least squared error."""
    sample = flat if flat.numel() <= 65536 else flat[:: flat.numel() // 65536 + 1]
    bottom, top = type.range
    best, best_error = 1.0, math.inf
    for factor in np.linspace(1.0, 0.1, 46):
        scale, zero = _grid(low * factor, high * factor, type, asymmetric=False)
        error = float(
            ((sample / scale + zero).round_().clamp_(bottom, top).sub_(zero).mul_(scale) - sample).square().sum()
        )
        if error < best_error:
            best, best_error = float(factor), error
    return best


def _weight_scale(weight: Tensor, top: Tensor, config: QuantConfig) -> Tensor:
    """Float64 scale per output channel (or equal in all, per tensor) of a (channels, n) weight; ``top`` = largest integer."""
    w = weight.detach().to(torch.float64)
    reach = w.abs().amax(dim=1)
    if not config.per_channel:
        reach = reach.max().expand_as(reach)
    # A channel of zeros takes the layer's typical reach: its integers are all zero under any scale.
    typical = reach[reach > 0].mean() if bool((reach > 0).any()) else torch.ones((), dtype=torch.float64)
    reach = torch.where(reach > 0, reach, typical)
    if config.weight_scale == "max":
        return reach / top
    best = torch.full_like(reach, math.inf)
    scale = reach / top
    for factor in np.linspace(1.0, 0.2, 41):
        candidate = reach * factor / top
        quantized = (w / candidate[:, None]).round_().clamp_(-top[:, None], top[:, None]) * candidate[:, None]
        error = (quantized - w).square().sum(dim=1)
        if not config.per_channel:
            error = error.sum().expand_as(error)
        better = error < best
        best, scale = torch.where(better, error, best), torch.where(better, candidate, scale)
    return scale


def snap(ratio: Tensor, bits: int) -> Tensor:
    """The dyadic number with a multiplier of at most ``bits`` bits nearest to each positive float64 ``ratio``, as float64.

    The same numbers as :func:`hawq_flow.numeric.nearest_dyadic`, on tensors.
    """
    _mantissa, exponent = torch.frexp(ratio)
    shift = (bits - exponent).clamp_(min=0)
    return torch.ldexp(torch.round(torch.ldexp(ratio, shift)), -shift)


# ------------------------------------------------------------------------------------------------------- straight-through


class _Weights(torch.autograd.Function):
    """(W, b) and log scales -> (M q_w, M q_b), with the gradients of the module's docstring."""

    @staticmethod
    def forward(
        ctx: Any,
        weight: Tensor,
        bias: Tensor,
        log_w: Tensor,
        log_x: Tensor,
        log_a: Tensor,
        multiplier: Tensor,
        inverse: Tensor,
        top: Tensor,
        ratio: Tensor,
        inverse_a: Tensor,
        rounding_shift: float,
    ) -> tuple[Tensor, Tensor]:
        # multiplier = M (c, 1); inverse = 1 / S_w (c, 1); ratio = S_x / S_a; inverse_a = 1 / S_a.
        rounded = torch.round(weight * inverse)
        q = torch.minimum(torch.maximum(rounded, -top), top)
        folded = q * multiplier
        m = multiplier[:, 0]
        folded_bias = torch.round(bias * inverse_a / m) * m
        ctx.save_for_backward(weight, folded, folded_bias, rounded == q, ratio, inverse_a)
        ctx.shape_w = log_w.shape
        return folded, folded_bias - rounding_shift if rounding_shift else folded_bias

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        g_w, g_b = grads
        weight, folded, folded_bias, inside, ratio, inverse_a = ctx.saved_tensors
        passed = g_w * inside * ratio
        grad_weight, grad_bias = passed, g_b * inverse_a
        grad_log_w = grad_log_x = grad_log_a = None
        if any(ctx.needs_input_grad[2:5]):
            through = g_w * folded
            total = through.sum()
            grad_log_x = total
            grad_log_a = -total - (g_b * folded_bias).sum()
            grad_log_w = (through - passed * weight).sum(dim=1, keepdim=True)
            if ctx.shape_w[0] == 1:
                grad_log_w = grad_log_w.sum(dim=0, keepdim=True)
        return grad_weight, grad_bias, grad_log_w, grad_log_x, grad_log_a, None, None, None, None, None, None


class _Clip(torch.autograd.Function):
    """``clip(round(v), low, high)`` with per-channel bounds; gradient 1 where the rounded value is inside."""

    @staticmethod
    def forward(ctx: Any, v: Tensor, low: Tensor, high: Tensor) -> Tensor:
        rounded = torch.round(v)
        q = torch.minimum(torch.maximum(rounded, low), high)
        ctx.save_for_backward(rounded == q)
        return q

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (inside,) = ctx.saved_tensors
        return grads[0] * inside, None, None


# --------------------------------------------------------------------------------------------------------------- modules


@dataclass(frozen=True)
class IntegerLayer:
    """One layer as integers: what evaluation computes and lowering copies.

    ``weight`` (outputs, inputs), ``bias`` (outputs,) with the input's zero point folded in, ``multiplier`` and ``shift``
    (outputs,), ``offset`` the output's zero point, ``type`` the output's integers, all int64; ``scale`` the output's.
    """

    name: str
    source: str
    weight: IntArray
    bias: IntArray
    multiplier: IntArray
    shift: IntArray
    offset: int
    type: IntType
    rounding: Rounding
    scale: float
    flattened: bool


class QuantLinear(nn.Module):
    """A linear layer with folded batch norm, quantized weights, and a quantized output activation.

    Built by :func:`quantize`. ``weight`` (outputs, inputs) and ``bias`` are float parameters; ``log_weight_scale``
    (outputs or 1, 1) and ``log_scale`` (scalar, the output's) are the logarithms of the scales.
    """

    multiplier: Tensor
    shift: Tensor
    frozen_scale: Tensor
    zero_point: Tensor
    weight_top: Tensor

    def __init__(self, stage: Stage, weight_bits: Bits, activation_bits: Bits, config: QuantConfig) -> None:
        super().__init__()
        linear = stage.linear
        self.name, self.source, self.flattened = stage.name, stage.source, stage.flattened
        self.relu, self.dropout, self.config = stage.relu, stage.dropout, config
        outputs = linear.out_features
        widths = weight_bits if isinstance(weight_bits, tuple) else (weight_bits,) * outputs
        if min(widths) < 2:
            raise ValueError(
                f"layer {stage.name!r}: weights of {min(widths)} bit; symmetric signed weights need 2 or more"
            )
        self.weight_bits, self.activation_bits = weight_bits, activation_bits
        least = 1 if stage.relu or config.asymmetric else 2
        if (min(activation_bits) if isinstance(activation_bits, tuple) else activation_bits) < least:
            raise ValueError(f"layer {stage.name!r}: an output activation of 1 bit; signed activations need 2 or more")
        self.out_type = activation_type(activation_bits, relu=stage.relu, asymmetric=config.asymmetric)
        self.weight = nn.Parameter(linear.weight.detach().clone())
        bias = linear.bias.detach().clone() if linear.bias is not None else torch.zeros(outputs)
        self.bias = nn.Parameter(bias.to(self.weight))
        self.batch_norm = _copy_batch_norm(stage.batch_norm)
        self.log_weight_scale = nn.Parameter(torch.zeros(outputs if config.per_channel else 1, 1))
        self.log_scale = nn.Parameter(torch.zeros(()))
        for parameter in (self.log_weight_scale, self.log_scale):
            parameter.requires_grad_(config.learn_scales)
        self.register_buffer("weight_top", torch.tensor([[2.0 ** (w - 1) - 1] for w in widths]))
        self.register_buffer("zero_point", torch.zeros((), dtype=torch.int64))
        self.register_buffer("multiplier", torch.zeros(outputs, dtype=torch.int64))
        self.register_buffer("shift", torch.zeros(outputs, dtype=torch.int64))
        self.register_buffer("frozen_scale", torch.zeros((), dtype=torch.float64))  # 0: not frozen
        self.observer = Observer(config.activation_observer, config, self.out_type)

    @property
    def frozen(self) -> bool:
        """Whether the dyadic scales are fixed."""
        return bool(self.frozen_scale > 0)

    def folded(self) -> tuple[Tensor, Tensor]:
        """Weights and bias with batch norm's running statistics folded in (differentiable)."""
        norm = self.batch_norm
        if norm is None:
            return self.weight, self.bias
        assert norm.running_mean is not None
        assert norm.running_var is not None
        return self._fold(norm.running_mean, norm.running_var)

    def _fold(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        norm = self.batch_norm
        assert norm is not None
        factor = batch_norm_factor(norm, variance)
        bias = (self.bias - mean) * factor
        return self.weight * factor[:, None], bias if norm.bias is None else bias + norm.bias

    def _fold_batch(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Fold with the statistics of this batch of real inputs, and update the running ones."""
        norm = self.batch_norm
        assert norm is not None
        y = functional.linear(x, self.weight, self.bias)
        mean, variance = y.mean(dim=0), y.var(dim=0, unbiased=False)
        with torch.no_grad():
            momentum = norm.momentum if norm.momentum is not None else 0.1
            unbiased = variance * (len(y) / max(len(y) - 1, 1))
            assert norm.running_mean is not None
            assert norm.running_var is not None
            norm.running_mean.lerp_(mean, momentum)
            norm.running_var.lerp_(unbiased, momentum)
        return self._fold(mean, variance)

    def scales(self, input_scale: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(M, S_w, S_a) in float64: the snapped dyadic rescale (c,), the weight scale that follows (c,), the output scale."""
        if self.frozen:
            m = torch.ldexp(self.multiplier.to(torch.float64), -self.shift)
            return m, m * self.frozen_scale / input_scale, self.frozen_scale
        raw = self.log_weight_scale.detach().to(torch.float64).exp()[:, 0]
        raw = raw.expand(len(weight)) * input_scale
        scale = torch.maximum(
            self.log_scale.detach().to(torch.float64).exp(),
            raw.max() * 2.0 ** -min(FINEST, self.config.multiplier_bits - 1),
        )
        # An output scale far above the accumulator's would need a shift beyond 61; 2^-40 leaves room for any multiplier.
        m = snap((raw / scale).clamp_(min=2.0**-36), self.config.multiplier_bits)
        return m, m * scale / input_scale, scale

    def forward(self, x: Tensor, input_scale: Tensor, log_input_scale: Tensor) -> tuple[Tensor, Tensor]:
        """Training: integers minus zero point in, the same out, with the output's scale."""
        if self.batch_norm is None or self.frozen:
            weight, bias = self.folded()
        else:
            weight, bias = self._fold_batch(x * input_scale.to(x.dtype))
        with torch.no_grad():
            m, weight_scale, scale = self.scales(input_scale, weight)
            dtype = weight.dtype
            constants = (
                m[:, None].to(dtype),
                weight_scale[:, None].reciprocal().to(dtype),
                self.weight_top,
                (input_scale / scale).to(dtype),
                scale.reciprocal().to(dtype),
            )
        # FLOOR(v) is round-to-nearest of v - 1/2 but for ties; HALF_UP differs from HALF_EVEN in ties alone.
        down = 0.5 if self.config.rounding is Rounding.FLOOR else 0.0
        folded, folded_bias = _Weights.apply(
            weight, bias, self.log_weight_scale, log_input_scale, self.log_scale, *constants, down
        )
        v = functional.linear(x, folded, folded_bias)
        low, high = self.out_type.range
        zero = int(self.zero_point)
        if isinstance(self.out_type.bits, int):
            q = torch.fake_quantize_per_tensor_affine(v, 1.0, zero, low, high)
        else:
            q = _Clip.apply(v, *self.bounds(v))
        if self.dropout:
            q = functional.dropout(q, self.dropout, training=True)
        return q, scale

    def bounds(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Smallest and largest output integers minus the zero point, per channel, in the dtype of ``like``."""
        zero = int(self.zero_point)
        low, high = (torch.from_numpy(np.asarray(b, np.float64)) for b in (self.out_type.low(), self.out_type.high()))
        return low.to(like) - zero, high.to(like) - zero

    @torch.no_grad()
    def observe(self, pre_activation: Tensor) -> None:
        """Take a batch of real pre-activations into the observer and move the output's scale to what it says."""
        values = torch.relu(pre_activation) if self.relu else pre_activation
        self.observer.observe(values)
        scale, zero = self.observer.grid(self.config.asymmetric and not self.relu)
        self.log_scale.fill_(math.log(scale))
        self.zero_point.fill_(zero)

    @torch.no_grad()
    def fit_weight_scale(self) -> None:
        """Set the weight scales from the present weights."""
        scale = _weight_scale(self.folded()[0], self.weight_top[:, 0].to(torch.float64), self.config)
        self.log_weight_scale.copy_(scale.log()[: len(self.log_weight_scale), None])

    @torch.no_grad()
    def freeze(self, input_scale: Tensor) -> Tensor:
        """Fix the dyadic scales; returns the output's scale."""
        if not self.frozen:
            m, _, scale = self.scales(input_scale, self.folded()[0])
            multiplier, shift = nearest_dyadic(m.cpu().numpy(), self.config.multiplier_bits)
            self.multiplier.copy_(torch.from_numpy(multiplier))
            self.shift.copy_(torch.from_numpy(shift))
            self.frozen_scale.copy_(scale)
            for parameter in (self.log_weight_scale, self.log_scale):
                parameter.requires_grad_(False)
            if self.batch_norm is not None:
                self.batch_norm.requires_grad_(False)
        return self.frozen_scale

    @torch.no_grad()
    def integers(self, input_scale: Tensor, input_zero_point: int) -> IntegerLayer:
        """The layer as integers, in float64 arithmetic."""
        weight, bias = (t.detach().to(torch.float64) for t in self.folded())
        m, weight_scale, scale = self.scales(input_scale, self.folded()[0])
        top = self.weight_top.to(torch.float64)
        q = torch.round(weight / weight_scale[:, None])
        q = torch.minimum(torch.maximum(q, -top), top)
        b = torch.round(bias / (m * scale)) - input_zero_point * q.sum(dim=1)
        # 24 significant bits: what a float32 initializer holds. Every later representation carries this bias exactly.
        b = b.to(torch.float32).to(torch.float64)
        if not bool(torch.isfinite(b).all() and torch.isfinite(q).all()):
            raise ValueError(
                f"layer {self.name!r}: a weight or bias is NaN or infinite; training has diverged (lower the "
                "learning rate)"
            )
        multiplier, shift = nearest_dyadic(m.cpu().numpy(), self.config.multiplier_bits)
        to_int = lambda t: t.cpu().numpy().astype(np.int64)  # noqa: E731
        return IntegerLayer(
            self.name,
            self.source,
            to_int(q),
            to_int(b),
            multiplier,
            shift,
            int(self.zero_point),
            self.out_type,
            self.config.rounding,
            float(scale),
            self.flattened,
        )


def activation_type(bits: Bits, *, relu: bool, asymmetric: bool) -> IntType:
    """The integers of an activation: unsigned after ReLU or with a zero point, else symmetric (narrow) signed."""
    if relu or asymmetric:
        return IntType(bits, signed=False)
    return IntType(bits, signed=True, narrow=True)


def _copy_batch_norm(norm: nn.BatchNorm1d | None) -> nn.BatchNorm1d | None:
    if norm is None:
        return None
    copy = nn.BatchNorm1d(norm.num_features, norm.eps, norm.momentum, norm.affine)
    copy.load_state_dict(norm.state_dict())
    return copy


class QuantNetwork(nn.Module):
    """A float model under a bit plan: trainable in fake quantization, exact integers in evaluation.

    Built by :func:`quantize`. :meth:`calibrate` it on data, train it (``train.fit``), :meth:`freeze` it, lower it.
    """

    input_scale: Tensor
    input_zero_point: Tensor

    def __init__(self, topology: Topology, plan: BitPlan, config: QuantConfig) -> None:
        super().__init__()
        plan.check(topology.shapes)
        bits = plan.input_bits(INPUT)
        if not isinstance(bits, int):
            raise ValueError(f"bit plan, input {INPUT!r}: {len(bits)} widths; the input has one width for all features")
        self.plan, self.config = plan, config
        self.input_shape, self.output = topology.input_shape, topology.output
        self.shapes: list[LayerShape] = topology.shapes
        self.input_type = activation_type(bits, relu=False, asymmetric=config.asymmetric)
        self.layers = nn.ModuleList(
            QuantLinear(stage, plan[stage.name].weight, plan[stage.name].activation, config)
            for stage in topology.stages
        )
        self.register_buffer("input_scale", torch.zeros((), dtype=torch.float64))
        self.register_buffer("input_zero_point", torch.zeros((), dtype=torch.int64))

    def _layers(self) -> list[QuantLinear]:
        return list(self.layers)  # type: ignore[arg-type]

    @property
    def frozen(self) -> bool:
        """Whether every dyadic scale is fixed."""
        return all(layer.frozen for layer in self._layers())

    @property
    def calibrated(self) -> bool:
        """Whether the input has its scale (and so every layer its first one)."""
        return bool(self.input_scale > 0)

    def _require_calibrated(self) -> None:
        if not self.calibrated:
            raise RuntimeError("network not calibrated: call calibrate(x) on training data first")

    @torch.no_grad()
    def observe(self, q: Tensor) -> None:
        """Let scales follow the weights and a batch of quantized inputs, unless they are learned or frozen."""
        if self.config.learn_scales or self.frozen:
            return
        self._observe(q)

    @torch.no_grad()
    def calibrate(self, x: Tensor) -> None:
        """Set the input's scale from all of ``x`` (n, *input_shape) and start every other scale from it.

        Layer by layer, each reading the *quantized* output of the one before, so that an error made is seen by the next.
        """
        if len(x) == 0:
            raise ValueError("calibrate: no data; give at least one batch of training inputs")
        observer = Observer(self.config.input_observer, self.config, self.input_type)
        observer.observe(x)
        scale, zero = observer.grid(self.config.asymmetric)
        self.input_scale.fill_(scale)
        self.input_zero_point.fill_(zero)
        self._observe(self.quantize_input(x[:CALIBRATION]))

    def _observe(self, q: Tensor) -> None:
        """Run quantized inputs through float weights and quantized activations, each layer observing its own.

        Every layer reads the quantized output of the one before, so that an error made is seen by the next.
        """
        values: dict[str, tuple[Tensor, Tensor]] = {INPUT: (q, self.input_scale)}
        for layer in self._layers():
            value, scale_in = values[layer.source]
            layer.fit_weight_scale()
            weight, bias = layer.folded()
            real = functional.linear(
                value.flatten(1) if layer.flattened else value, weight * scale_in.to(q.dtype), bias
            )
            layer.observe(real)
            scale = layer.scales(scale_in, weight)[2]
            v = torch.round(real / scale.to(real.dtype))
            low, high = layer.bounds(v)
            values[layer.name] = (torch.minimum(torch.maximum(v, low), high), scale)

    def quantize_input(self, x: Tensor) -> Tensor:
        """Standardized data (n, *input_shape) -> integers minus zero point, in the parameters' dtype and device.

        One float64 function (``numeric.quantize``), called once for a whole data set; every representation gets the
        same integers.
        """
        self._require_calibrated()
        q = self.input_integers(x.detach().cpu().numpy()) - int(self.input_zero_point)
        parameter = self._layers()[0].weight
        return torch.from_numpy(q.astype(np.float64)).to(parameter)

    def input_integers(self, x: Any) -> IntArray:
        """Standardized data (n, *input_shape) -> int64 input integers."""
        array = np.asarray(x)
        if array.shape[1:] != self.input_shape:
            raise ValueError(f"input of shape {array.shape}; expected (n, {', '.join(map(str, self.input_shape))})")
        return quantize_array(
            array, float(self.input_scale), int(self.input_zero_point), self.input_type, rank=array.ndim - 1
        )

    def train_forward(self, q: Tensor) -> Tensor:
        """Training on already quantized inputs (``quantize_input``'s): logits (n, outputs) in real units."""
        scale = self.input_scale
        values = {INPUT: (q, scale, torch.zeros((), dtype=q.dtype, device=q.device))}
        for layer in self._layers():
            value, scale, log_scale = values[layer.source]
            out, scale = layer(value.flatten(1) if layer.flattened else value, scale, log_scale)
            values[layer.name] = (out, scale, layer.log_scale)
        out, scale, log_scale = values[self.output]
        # The value scale, the gradient of the log scale: S * exp(log S - log S).
        if log_scale.requires_grad:
            return out * (scale.to(out.dtype) * torch.exp(log_scale - log_scale.detach()))
        return out * scale.to(out.dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (n, outputs) of standardized data: float32 fake quantization in training, exact float64 in evaluation."""
        if self.training:
            return self.train_forward(self.quantize_input(x))
        out = self.integers(x)[identifier(self.output) + REQUANT]
        last = self.integer_layers()[-1]
        return last.scale * (out - last.offset)

    def freeze(self) -> None:
        """Fix every dyadic scale, batch-norm statistic and folding; the weights go on training, clipped."""
        self._require_calibrated()
        scales = {INPUT: self.input_scale}
        for layer in self._layers():
            scales[layer.name] = layer.freeze(scales[layer.source])

    def integer_layers(self) -> list[IntegerLayer]:
        """Every layer as integers, in order; the output layer is the last."""
        self._require_calibrated()
        scales: dict[str, tuple[Tensor, int]] = {INPUT: (self.input_scale, int(self.input_zero_point))}
        result = []
        for layer in self._layers():
            integers = layer.integers(*scales[layer.source])
            scales[layer.name] = (
                torch.tensor(integers.scale, dtype=torch.float64, device=self.input_scale.device),
                integers.offset,
            )
            result.append(integers)
        return sorted(result, key=lambda entry: entry.name == self.output)

    @torch.no_grad()
    def integers(self, x: Tensor) -> dict[str, Tensor]:
        """Every integer of the network by its IR name, as float64 tensors: what evaluation computes.

        Raises ``OverflowError`` when a bound from the actual weights reaches 2^53.
        """
        q = torch.from_numpy(self.input_integers(x.detach().cpu().numpy())).to(self.input_scale)
        values = {INPUT: q}
        result = {INPUT: q}
        types = {INPUT: self.input_type}
        for layer in self.integer_layers():
            value = values[layer.source]
            value = value.flatten(1) if layer.flattened else value
            acc, out = _integer_layer(layer, value, max(map(abs, types[layer.source].range)))
            name = identifier(layer.name)
            if layer.flattened:
                result[name + FLATTEN] = value
            result[name], result[name + REQUANT] = acc, out
            values[layer.name], types[layer.name] = out, layer.type
        return result

    def zero_fraction(self) -> dict[str, float]:
        """Fraction of integer weights that are zero, by layer: sparse BOPs count it."""
        return {layer.name: float((layer.weight == 0).mean()) for layer in self.integer_layers()}


REQUANT = "_requant"
"""A layer ``fc1`` defines the IR values ``fc1`` (the accumulator) and ``fc1_requant`` (its output)."""
FLATTEN = "_flat"
"""A layer that flattens its input first reads the IR value ``fc1_flat``."""


def _integer_layer(layer: IntegerLayer, q: Tensor, reach: int) -> tuple[Tensor, Tensor]:
    """(accumulators, outputs) of one layer on float64 integers, after asserting that float64 holds every one of them."""
    bound = int((np.abs(layer.weight).sum(axis=1) * reach + np.abs(layer.bias)).max())
    bound = bound * int(layer.multiplier.max()) + (1 << int(layer.shift.max()))
    if bound >= 1 << 53:
        raise OverflowError(
            f"layer {layer.name!r}: the product of accumulator and multiplier may reach 2^{bound.bit_length() - 1}, "
            "beyond the 2^53 that float64 holds; use a multiplier of fewer bits or narrower weights or inputs"
        )
    on = lambda a: torch.from_numpy(np.asarray(a, dtype=np.float64)).to(q)  # noqa: E731
    acc = functional.linear(q, on(layer.weight), on(layer.bias))
    scaled = acc * on(np.ldexp(layer.multiplier.astype(np.float64), -layer.shift))
    match layer.rounding:
        case Rounding.HALF_EVEN:
            rounded = torch.round(scaled)
        case Rounding.FLOOR:
            rounded = torch.floor(scaled)
        case Rounding.HALF_UP:
            rounded = torch.floor(scaled + 0.5)
    out = torch.minimum(torch.maximum(rounded + layer.offset, on(layer.type.low())), on(layer.type.high()))
    return acc, out


def quantize(
    model: nn.Module, plan: BitPlan, config: QuantConfig | None = None, *, input_shape: Sequence[int] | None = None
) -> QuantNetwork:
    """A trainable quantized network from a float ``model`` and a bit plan; the model is copied, not changed.

    Parameters
    ----------
    model:
        Built from Linear, BatchNorm1d, ReLU, Dropout, Flatten, Identity, with a forward that torch.fx can trace.
    plan:
        Widths for the input ``x`` and for every linear layer by its name in the model.
    input_shape:
        Shape of one sample; None takes (in_features,) of the first linear layer.

    Raises
    ------
    UnsupportedModelError
        Naming the module or pattern that is not supported.
    ValueError
        If the plan does not name exactly the model's layers (both are listed).
    """
    return QuantNetwork(read(model, input_shape), plan, config or QuantConfig())
