"""The quantized network: layers in order, calibration, freezing, and evaluation on exact integers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from hawq_flow.numeric import IntArray, Rounding
from hawq_flow.numeric import quantize as quantize_array
from hawq_flow.plan import BitPlan, LayerShape
from hawq_flow.quant.layer import IntegerLayer, QuantLinear, activation_type
from hawq_flow.quant.observe import Observer, QuantConfig
from hawq_flow.topology import FLATTEN, INPUT, REQUANT, Topology, identifier, read

CALIBRATION = 16384
"""Samples that start the activation scales; the input's scale sees all of them."""


class QuantNetwork(nn.Module):
    """A float model under a bit plan: trainable in fake quantization, exact integers in evaluation.

    Built by :func:`quantize`. :meth:`calibrate` it on data, train it (``train.fit``), :meth:`freeze` it, lower it.
    """

    input_scale: Tensor
    input_zero_point: Tensor
    _no_log: Tensor

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
        self.register_buffer("_no_log", torch.zeros(()), persistent=False)
        self._age = -1  # steps since the scales were snapped; negative: snap before the next

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
        self._age = -1

    @torch.no_grad()
    def calibrate(self, x: Tensor) -> None:
        """Set the input's scale from all of ``x`` (n, *input_shape) and start every other scale from it.

        Layer by layer, each reading the *quantized* output of the one before: an error made is seen by the next.
        """
        if len(x) == 0:
            raise ValueError("calibrate: no data; give at least one batch of training inputs")
        observer = Observer(self.config.input_observer, self.config, self.input_type)
        observer.observe(x)
        scale, zero = observer.grid(self.config.asymmetric)
        self.input_scale.fill_(scale)
        self.input_zero_point.fill_(zero)
        self._observe(self.quantize_input(x[:CALIBRATION]))
        self._age = -1

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
            scale = layer.scales(scale_in)[2]
            v = torch.round(real / scale.to(real.dtype))
            low, high = layer.bounds(v)
            values[layer.name] = (torch.minimum(torch.maximum(v, low), high), scale)

    def quantize_input(self, x: Tensor) -> Tensor:
        """Standardized data (n, *input_shape) -> integers minus zero point, in the parameters' dtype and device.

        One float64 function (``numeric.quantize``), called once for a whole data set; every representation gets the
        same integers.
        """
        q = self.input_integers(x.detach().cpu().numpy()) - int(self.input_zero_point)
        parameter = self._layers()[0].weight
        return torch.from_numpy(q.astype(np.float64)).to(parameter)

    def input_integers(self, x: Any) -> IntArray:
        """Standardized data (n, *input_shape) -> int64 input integers."""
        self._require_calibrated()
        array = np.asarray(x)
        if array.shape[1:] != self.input_shape:
            raise ValueError(f"input of shape {array.shape}; expected (n, {', '.join(map(str, self.input_shape))})")
        return quantize_array(
            array, float(self.input_scale), int(self.input_zero_point), self.input_type, rank=array.ndim - 1
        )

    def refresh(self) -> None:
        """Snap every scale as it stands, for the training steps that follow."""
        with torch.no_grad():
            scales = {INPUT: self.input_scale}
            for layer in self._layers():
                scales[layer.name] = layer.refresh(scales[layer.source])
        self._age = 0

    def train(self, mode: bool = True) -> QuantNetwork:
        """Switch between fake quantization (True) and exact integers; the next step snaps the scales afresh."""
        self._age = -1
        return super().train(mode)

    def train_forward(self, q: Tensor) -> Tensor:
        """Training on already quantized inputs (``quantize_input``'s): logits (n, outputs) in real units."""
        if self._age < 0 or (self._age >= self.config.refresh and not self.frozen):
            self.refresh()
        self._age += 1
        values = {INPUT: (q, self._no_log)}
        for layer in self._layers():
            value, log_scale = values[layer.source]
            values[layer.name] = (layer(value.flatten(1) if layer.flattened else value, log_scale), layer.log_scale)
        out, log_scale = values[self.output]
        last = next(layer for layer in self._layers() if layer.name == self.output)
        assert last.constants is not None
        if not log_scale.requires_grad:
            return out * last.constants.scale
        # The value of the scale, with the gradient of its logarithm: S * exp(log S - log S).
        return out * (last.constants.scale * torch.exp(log_scale - log_scale.detach()))

    def forward(self, x: Tensor) -> Tensor:
        """Logits (n, outputs) of standardized data: fake quantization in training, exact float64 in evaluation."""
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
        self._age = -1

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


def _integer_layer(layer: IntegerLayer, q: Tensor, reach: int) -> tuple[Tensor, Tensor]:
    """(accumulators, outputs) of one layer on float64 integers, after asserting that float64 holds every one."""
    bound = int((np.abs(layer.weight).sum(axis=1) * reach + np.abs(layer.bias)).max())
    bound = bound * int(layer.multiplier.max()) + (1 << int(layer.shift.max()))
    if bound >= 1 << 53:
        raise OverflowError(
            f"layer {layer.name!r}: the product of accumulator and multiplier may reach 2^{bound.bit_length() - 1}, "
            "beyond the 2^53 that float64 holds; use a multiplier of fewer bits or narrower weights or inputs"
        )

    def on(array: Any) -> Tensor:
        return torch.from_numpy(np.asarray(array, dtype=np.float64)).to(q)

    acc = functional.linear(q, on(layer.weight), on(layer.bias))
    scaled = acc * on(np.ldexp(layer.multiplier.astype(np.float64), -layer.shift))
    match layer.rounding:
        case Rounding.HALF_EVEN:
            rounded = torch.round(scaled)
        case Rounding.FLOOR:
            rounded = torch.floor(scaled)
        case Rounding.HALF_UP:
            # Without a shift there is nothing to round, and a half would not fit beside an odd sum near 2^53.
            rounded = torch.floor(scaled + on(0.5 * (layer.shift > 0)))
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
