"""The float network as hls4ml takes it by default: ``ap_fixed<W,I>`` everywhere, truncated and wrapping, in integers.

What a quantized network is compared with is not the float network, which nobody builds, but what hls4ml makes of it
untold: every weight, product, sum and activation in one ``ap_fixed<W, I, AP_TRN, AP_WRAP>`` (16 and 6 bits by
default). With ``f = W - I`` fraction bits and ``wrap`` into W bits of two's complement, a dense layer is there

    product[i, j] = wrap(floor(x[i] w[i, j] / 2^f))        y[j] = wrap(bias[j] + sum_i product[i, j])

which the integer network says with what it has: a ``Dense`` of one weight an output (all products), a ``Requantize``
that floors and wraps, and a ``Dense`` of ones with a declared, wrapping accumulator. A ReLU is a ``Requantize`` into
the non-negative half. Wrapping sums need no order, so this is exact whatever tree the tool builds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from torch import nn

from hawq_flow.network import Dense, InputSpec, IntegerNetwork, Op, OutputSpec, Requantize, Reshape, verify
from hawq_flow.numeric import IntArray, IntType, Overflow, Rounding
from hawq_flow.topology import INPUT, Stage, UnsupportedModelError, fold_batch_norm, identifier, read


@dataclass(frozen=True)
class FixedPoint:
    """``ap_fixed<width, integer>`` with AP_TRN and AP_WRAP, HLS's defaults; ``integer`` counts the sign."""

    width: int = 16
    integer: int = 6

    def __post_init__(self) -> None:
        whole = all(type(bits) is int for bits in (self.width, self.integer))
        if not whole or not 2 <= self.width <= 24 or not 1 <= self.integer <= self.width:
            raise ValueError(f"{self}: expected a width of 2 to 24 bits of which 1 to all are integer")

    def __str__(self) -> str:
        return f"ap_fixed<{self.width},{self.integer}>"

    @property
    def fraction(self) -> int:
        """Bits behind the point."""
        return self.width - self.integer

    @property
    def type(self) -> IntType:
        """The integers that stand for its numbers, in units of ``2^-fraction``."""
        return IntType(self.width, True)

    def integers(self, values: ArrayLike) -> IntArray:
        """Real numbers as its integers: truncated towards minus infinity and wrapped, as assigning in HLS does.

        ``ValueError`` for NaN and infinities, and beyond 2^62, where the wrapping of a float is anybody's guess.
        """
        scaled = np.floor(np.ldexp(np.asarray(values, dtype=np.float64), self.fraction))
        if not (np.abs(scaled) < 2.0**62).all():  # NaN compares false
            raise ValueError(f"{self}: values that are NaN, infinite or beyond 2^62 steps; expected finite numbers")
        floors = scaled.astype(np.int64)
        half = 1 << (self.width - 1)
        return np.asarray(((floors + half) & ((1 << self.width) - 1)) - half)


def fixed_point(
    model: nn.Module,
    input_shape: tuple[int, ...],
    format: FixedPoint | None = None,
    *,
    mean: ArrayLike = 0.0,
    std: ArrayLike = 1.0,
) -> IntegerNetwork:
    """The float model in one fixed-point type, with hls4ml's meaning of it.

    Parameters
    ----------
    model:
        A float model of linear layers and ReLUs (batch norm is folded first); ``input_shape`` is one sample's.
    format:
        The type; default ``ap_fixed<16,6>``.
    mean, std:
        Standardization of the raw data, annotated on the input.

    Raises
    ------
    UnsupportedModelError
        For stages other than linear layers, ReLU and reshapes, by name.
    """
    format = format or FixedPoint()
    topology = read(fold_batch_norm(model, input_shape), input_shape)
    scale = np.asarray(2.0**-format.fraction)
    spec = InputSpec(
        INPUT,
        tuple(input_shape),
        format.type,
        scale,
        np.asarray(0),
        np.asarray(mean, dtype=np.float64),
        np.asarray(std, dtype=np.float64),
    )
    ops: list[Op] = []
    names = {INPUT: INPUT}  # the value that each stage's output is
    for stage in topology.stages:
        names[stage.name] = _add(stage, names[stage.sources[0]], format, ops)
    output = OutputSpec(names[topology.output], scale, np.asarray(0))
    network = IntegerNetwork((spec,), tuple(ops), (output,), (("format", str(format)),))
    verify(network)
    return network


def _add(stage: Stage, value: str, format: FixedPoint, ops: list[Op]) -> str:
    """Append one stage's ops; the name of its output."""
    name, type = identifier(stage.name), format.type
    if stage.kind == "reshape":
        ops.append(Reshape(name, value, stage.shape))
        return name
    if stage.kind == "linear":
        weight = format.integers(stage.layer.weight.detach().cpu().numpy())
        bias = (
            np.zeros(stage.outputs, np.int64)
            if stage.layer.bias is None
            else format.integers(stage.layer.bias.detach().cpu().numpy())
        )
        outputs, inputs = weight.shape
        spread = np.zeros((outputs * inputs, inputs), np.int64)
        spread[np.arange(outputs * inputs), np.tile(np.arange(inputs), outputs)] = weight.ravel()
        ones = np.repeat(np.eye(outputs, dtype=np.int64), inputs, axis=1)
        ops += [
            Dense(f"{name}_product", value, spread, np.zeros(len(spread), np.int64), layer=stage.name),
            _truncated(f"{name}_truncated", f"{name}_product", format, stage.name),
            Dense(name, f"{name}_truncated", ones, bias, accumulator=type, overflow=Overflow.WRAP, layer=stage.name),
        ]
        value = name
    elif stage.kind != "activation":
        raise UnsupportedModelError(
            f"{stage.what}: the {format} baseline is of linear layers and ReLU; leave it out for this model"
        )
    if stage.activation not in ("", "relu"):
        raise UnsupportedModelError(f"{stage.what}: the {format} baseline has no {stage.activation}; use ReLU")
    if not stage.activation:
        return value
    one, zero = np.asarray(1), np.asarray(0)
    ops.append(Requantize(f"{name}_relu", value, one, zero, zero, IntType(format.width - 1, False), layer=stage.name))
    return f"{name}_relu"


def _truncated(name: str, value: str, format: FixedPoint, layer: str) -> Requantize:
    """``wrap(floor(value / 2^fraction))``: a product assigned to the type."""
    one, shift, zero = np.asarray(1), np.asarray(format.fraction), np.asarray(0)
    return Requantize(name, value, one, shift, zero, format.type, Rounding.FLOOR, Overflow.WRAP, layer=layer)
