"""One quantized layer: its fake quantization in training, its integers in evaluation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from hawq_flow.numeric import IntArray, IntType, Rounding
from hawq_flow.plan import Bits, LayerBits
from hawq_flow.quant.grid import Grid, Gridded
from hawq_flow.quant.observe import Observer, QuantConfig, weight_scale
from hawq_flow.quant.ste import QuantizeWeights, RoundClip, RoundClipChannels, clip_bound
from hawq_flow.quant.steps import IntegerStep, requantize_step
from hawq_flow.topology import BatchNorm, Stage, Topology, batch_norm_factor
from hawq_flow.topology.floats import activate, convolve

FINEST = 4
"""An output grid is at most this many bits finer than its accumulator's: more would only copy rounding noise."""


def snap(ratio: Tensor, bits: int) -> Tensor:
    """The dyadic number with a multiplier of at most ``bits`` bits nearest to each positive ``ratio``, in float64.

    The same numbers as :func:`hawq_flow.numeric.nearest_dyadic`, on tensors.
    """
    _mantissa, exponent = torch.frexp(ratio)
    shift = (bits - exponent).clamp_(min=0)
    return torch.ldexp(torch.round(torch.ldexp(ratio, shift)), -shift)


@dataclass(frozen=True)
class IntegerLayer:
    """One layer as integers: what evaluation computes and lowering copies.

    ``weight`` (outputs, inputs) or (outputs, inputs / groups, *kernel), ``bias`` (outputs,) with the input's zero point
    folded in, ``multiplier`` and ``shift`` (outputs,), all int64; ``offset`` the output's zero point, ``type`` its
    integers, ``scale`` its scale.
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


@dataclass(frozen=True)
class _Constants:
    """What a training step multiplies and clips with, from one snapping of the scales."""

    weights: tuple[Tensor, Tensor, Tensor, Tensor | float, float, float, float]
    clip: tuple[float, float] | tuple[Tensor, Tensor]
    input_scale: float
    scale: float


class QuantLayer(Gridded):
    """A linear layer or convolution with folded batch norm, quantized weights, and a quantized output activation.

    Built by :func:`quantize`. ``weight`` (as in the model) and ``bias`` are float parameters; ``log_weight_scale``
    (outputs or 1, 1) and ``log_scale`` (scalar, the output's) are the logarithms of the scales.
    """

    weight_top: Tensor

    def __init__(self, stage: Stage, topology: Topology, bits: LayerBits, config: QuantConfig) -> None:
        super().__init__()
        linear = stage.layer
        self.stage, self.name, self.source = replace(stage, module=None, batch_norm=None), stage.name, stage.sources[0]
        self.activation, self.dropout, self.config = stage.activation, stage.dropout, config
        outputs = stage.outputs
        weight_bits = bits.weight
        activation_bits = config.table_bits if topology.only_tables(stage.name) else bits.activation
        self.asymmetric = config.asymmetric and not stage.activation and topology.may_shift(stage.name)
        widths = weight_bits if isinstance(weight_bits, tuple) else (weight_bits,) * outputs
        if min(widths) < 2:
            raise ValueError(
                f"layer {stage.name!r}: weights of {min(widths)} bit; symmetric signed weights need 2 or more"
            )
        self.weight_bits, self.activation_bits = weight_bits, activation_bits
        least = 1 if stage.activation or self.asymmetric else 2
        if (min(activation_bits) if isinstance(activation_bits, tuple) else activation_bits) < least:
            raise ValueError(f"layer {stage.name!r}: an output activation of 1 bit; signed activations need 2 or more")
        self.out_type = activation_type(activation_bits, relu=bool(stage.activation), asymmetric=self.asymmetric)
        self.weight = nn.Parameter(linear.weight.detach().clone())
        bias = linear.bias.detach().clone() if linear.bias is not None else torch.zeros(outputs)
        self.bias = nn.Parameter(bias.to(self.weight))
        self.batch_norm = _copy_batch_norm(stage.batch_norm)
        self.log_weight_scale = nn.Parameter(torch.zeros(outputs if config.per_channel else 1, 1))
        self.log_scale = nn.Parameter(torch.zeros(()))
        for parameter in (self.log_weight_scale, self.log_scale):
            parameter.requires_grad_(config.learn_scales)
        self.register_buffer("weight_top", torch.tensor([[2.0 ** (w - 1) - 1] for w in widths]), persistent=False)
        self.register_scales(outputs)
        self.constants: _Constants | None = None
        self.observer = Observer(config.activation_observer, config, self.out_type, self.asymmetric)

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
        channels = factor.reshape((-1,) + (1,) * (self.weight.ndim - 1))
        return self.weight * channels, bias if norm.bias is None else bias + norm.bias

    def _fold_batch(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Fold with the statistics of this batch of real inputs, and update the running ones."""
        norm = self.batch_norm
        assert norm is not None
        y = convolve(self.stage, x, self.weight, self.bias)
        axes = [0, *range(2, y.ndim)]
        mean, variance = y.mean(dim=axes), y.var(dim=axes, unbiased=False)
        with torch.no_grad():
            momentum = norm.momentum if norm.momentum is not None else 0.1
            samples = y.numel() // y.shape[1]
            unbiased = variance * (samples / max(samples - 1, 1))
            assert norm.running_mean is not None
            assert norm.running_var is not None
            norm.running_mean.lerp_(mean, momentum)
            norm.running_var.lerp_(unbiased, momentum)
        return self._fold(mean, variance)

    def scales(self, input_scale: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(M, S_w, S_a), float64: the snapped rescale (c,), the weight scale that follows (c,), the output's scale."""
        if self.frozen:
            m = torch.ldexp(self.multiplier.to(torch.float64), -self.shift)
            return m, m * self.frozen_scale / input_scale, self.frozen_scale
        raw = self.log_weight_scale.detach().to(torch.float64).exp()[:, 0]
        raw = raw.expand(len(self.weight)) * input_scale
        scale = torch.maximum(
            self.log_scale.detach().to(torch.float64).exp(),
            raw.max() * 2.0 ** -min(FINEST, self.config.multiplier_bits - 1),
        )
        if self.activation == "relu6":  # the integers end where 6 does: saturation is the clip
            scale = scale.clamp(max=6.0 / int(self.out_type.high().max()))
        # A ratio below 2^-36 would need a shift beyond 61 for a multiplier of 24 bits; such weights all round to zero.
        m = snap((raw / scale).clamp_(2.0**-36, 2.0 ** (self.config.multiplier_bits - 1)), self.config.multiplier_bits)
        return m, m * scale / input_scale, scale

    def grid_behind(self, grids: Sequence[Grid]) -> Grid:
        """The output's grid as the scales stand."""
        return self.grid(self.scales(grids[0].scale)[2])

    def refresh(self, grids: Sequence[Grid]) -> Grid:
        """Snap the scales as they stand, keep what training computes with until next time; the output's grid."""
        input_scale = grids[0].scale
        m, step, scale = self.scales(input_scale)
        dtype = self.weight.dtype
        uniform = not isinstance(self.weight_bits, tuple)
        low, high = self.bounds(self.weight)
        self.constants = _Constants(
            weights=(
                m[:, None].to(dtype),
                step[:, None].reciprocal().to(dtype),
                (m * scale).reciprocal().to(dtype),
                clip_bound(int(self.weight_top[0]), dtype) if uniform else self.weight_top,
                float(input_scale / scale),
                float(scale.reciprocal()),
                # FLOOR(v) is rounding to nearest of v - 1/2 but for ties; HALF_UP differs from HALF_EVEN in ties alone.
                0.5 if self.config.rounding is Rounding.FLOOR else 0.0,
            ),
            clip=(-clip_bound(-int(low), dtype), clip_bound(int(high), dtype)) if low.ndim == 0 else (low, high),
            input_scale=float(input_scale),
            scale=float(scale),
        )
        return self.grid(scale)

    def forward(self, values: Sequence[Tensor], logs: Sequence[Tensor]) -> Tensor:
        """Training: integers minus zero point in (n, *input shape), the same out (n, *output shape)."""
        x, log_input_scale = values[0], logs[0]
        constants = self.constants
        assert constants is not None  # the network refreshes before its first step
        if self.batch_norm is None or self.frozen:
            weight, bias = self.folded()
        else:
            # The batch's statistics move with the input's scale too: its value, with the gradient of its logarithm.
            scale: Tensor | float = constants.input_scale
            if log_input_scale.requires_grad:
                scale = scale * torch.exp(log_input_scale - log_input_scale.detach())
            weight, bias = self._fold_batch(x * scale)
        folded, folded_bias = QuantizeWeights.apply(
            weight.flatten(1), bias, self.log_weight_scale, log_input_scale, self.log_scale, *constants.weights
        )
        v = convolve(self.stage, x, folded.reshape(weight.shape), folded_bias)
        low, high = constants.clip
        q = RoundClip.apply(v, low, high) if isinstance(low, float) else RoundClipChannels.apply(v, low, high)
        return functional.dropout(q, self.dropout, training=True) if self.dropout else q

    def bounds(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Smallest and largest output integers minus the zero point, per channel, in the dtype of ``like``."""
        zero, rank = int(self.zero_point), len(self.stage.shape)
        ends = (self.out_type.low(rank), self.out_type.high(rank))
        low, high = (torch.from_numpy(np.asarray(end, np.float64)) for end in ends)
        return low.to(like) - zero, high.to(like) - zero

    @torch.no_grad()
    def observe(self, pre_activation: Tensor) -> None:
        """Take a batch of real pre-activations into the observer and move the output's scale to what it says."""
        self.observer.observe(activate(pre_activation, self.activation))
        scale, zero = self.observer.grid()
        self.log_scale.fill_(math.log(scale))
        # Channels of several widths share one zero point, so the narrowest must be able to hold it.
        self.zero_point.fill_(min(zero, int(self.out_type.high().min())))

    @torch.no_grad()
    def calibrate(self, values: Sequence[Tensor], grids: Sequence[Grid]) -> tuple[Tensor, Grid]:
        """Observe the layer on quantized inputs through float weights; returns its quantized output and its grid."""
        self.fit_weight_scale()
        weight, bias = self.folded()
        scale_in = grids[0].scale
        real = convolve(self.stage, values[0], weight * scale_in.to(weight.dtype), bias)
        self.observe(real)
        scale = self.scales(scale_in)[2]
        v = torch.round(real / scale.to(real.dtype))
        low, high = self.bounds(v)
        return torch.minimum(torch.maximum(v, low), high), self.grid(scale)

    @torch.no_grad()
    def fit_weight_scale(self) -> None:
        """Set the weight scales from the present weights."""
        scale = weight_scale(self.folded()[0].flatten(1), self.weight_top[:, 0].to(torch.float64), self.config)
        self.log_weight_scale.copy_(scale.log()[: len(self.log_weight_scale), None])

    @torch.no_grad()
    def freeze(self, grids: Sequence[Grid]) -> Grid:
        """Fix the dyadic scales; returns the output's grid."""
        if not self.frozen:
            m, _, scale = self.scales(grids[0].scale)
            self.fix(m, scale)
        return self.grid(self.frozen_scale)

    def settle(self) -> None:
        """Once frozen, scales and batch norm train no more."""
        if self.frozen:
            for parameter in (self.log_weight_scale, self.log_scale):
                parameter.requires_grad_(False)
            if self.batch_norm is not None:
                self.batch_norm.requires_grad_(False)

    @torch.no_grad()
    def integers(self, input_scale: Tensor, input_zero_point: int) -> IntegerLayer:
        """The layer as integers, in float64 arithmetic."""
        weight, bias = (t.detach().to(torch.float64) for t in self.folded())
        m, step, scale = self.scales(input_scale)
        top = self.weight_top.to(torch.float64)
        q = torch.round(weight.flatten(1) / step[:, None])
        q = torch.minimum(torch.maximum(q, -top), top)
        b = torch.round(bias / (m * scale)) - input_zero_point * q.sum(dim=1)
        # 24 significant bits: what a float32 initializer holds. Every later representation carries this bias exactly.
        b = b.to(torch.float32).to(torch.float64)
        if not bool(torch.isfinite(b).all() and torch.isfinite(q).all()):
            raise ValueError(
                f"layer {self.name!r}: a weight or bias is NaN or infinite; training has diverged "
                "(lower the learning rate)"
            )
        if float(b.abs().max()) >= 2.0**53:
            raise OverflowError(
                f"layer {self.name!r}: a bias of {float(b.abs().max()):.3g} steps of its accumulator, beyond the 2^53 "
                "that float64 holds; its weights and input are tiny beside its bias: check the scales"
            )
        multiplier, shift = self.dyadic(m)
        return IntegerLayer(
            self.name,
            self.source,
            q.reshape(weight.shape).cpu().numpy().astype(np.int64),
            b.cpu().numpy().astype(np.int64),
            multiplier,
            shift,
            int(self.zero_point),
            self.out_type,
            self.config.rounding,
            float(scale),
        )

    def steps(self, names: Sequence[str], grids: Sequence[Grid]) -> tuple[list[IntegerStep], Grid]:
        """The layer as steps reading the values ``names``; and the output's grid."""
        integers, stage = self.integers(grids[0].scale, grids[0].zero_point), self.stage
        total, output = stage.values[-2:]
        source, padding, steps = names[0], stage.padding, []
        if any(padding) and grids[0].zero_point:  # what is real zero is not integer zero
            fields = {"padding": padding, "value": grids[0].zero_point}
            steps.append(IntegerStep(stage.values[0], "Pad", (source,), self.name, fields))
            source, padding = stage.values[0], (0,) * len(padding)
        fields = {"weight": integers.weight, "bias": integers.bias}
        if stage.kind == "conv":
            fields |= {"stride": stage.stride, "padding": padding, "groups": stage.groups}
        steps.append(IntegerStep(total, "Conv" if stage.kind == "conv" else "Dense", (source,), self.name, fields))
        channels = (-1,) + (1,) * (len(stage.shape) - 1)
        multiplier, shift = integers.multiplier.reshape(channels), integers.shift.reshape(channels)
        steps.append(
            requantize_step(
                output, total, self.name, multiplier, shift, integers.type, integers.rounding, integers.offset
            )
        )
        scale = torch.tensor(integers.scale, dtype=torch.float64, device=grids[0].scale.device)
        return steps, self.grid(scale)


def activation_type(bits: Bits, *, relu: bool, asymmetric: bool) -> IntType:
    """The integers of an activation: unsigned after ReLU or with a zero point, else symmetric (narrow) signed."""
    if relu or asymmetric:
        return IntType(bits, signed=False)
    return IntType(bits, signed=True, narrow=True)


def _copy_batch_norm(norm: BatchNorm | None) -> BatchNorm | None:
    if norm is None:
        return None
    copy = type(norm)(norm.num_features, norm.eps, norm.momentum, norm.affine)
    copy.load_state_dict(norm.state_dict())
    return copy
