"""Stages without weights: rescales, sums, concatenations, tables, softmax, and what only moves integers.

A value's integers ``q`` on scale ``S_x`` pass to scale ``S_a`` by a dyadic multiplier snapped to the ratio of the
scales, ``M = snap(S_x / S_a)``. Where one value is rescaled (an average, a ReLU that stands alone) the output's scale
follows the snapped multiplier, ``S_a := S_x / M``, so that nothing is lost. Where several values meet, each is rescaled
to one scale of the sum, HAWQ's way (arXiv:2011.10680)::

    sum = round(M_1 q_1) + round(M_2 q_2),   M_i = snap(2^g S_i / S_a),       out = clip(round(sum / 2^g))

with ``g`` guard bits that keep the operands' rounding below the output's (each operand is as wide as its own range
needs, so that large ones may cancel); training sees the snapped multipliers, and with them the small differences
between ``M_i`` and the true ratio. Gradients are straight-through; the factor of training is ``M exp(log S_x - log
S_a)`` with the exponent's value zero, which gives the scales their gradient (LSQ, arXiv:1902.08153).

A **table** holds ``round(f(S_x (q - z)) / S_a) + z_a`` for every integer ``q``. **Softmax** is integer as well::

    d = q - max q,   e = exp table(d),   r = reciprocal table(sum e),   out = clip(round(e r / 2^c))
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from hawq_flow.numeric import IntType, Rounding, nearest_dyadic
from hawq_flow.plan import max_bits
from hawq_flow.quant.grid import Grid, Gridded
from hawq_flow.quant.layer import activation_type, snap
from hawq_flow.quant.observe import Observer, QuantConfig
from hawq_flow.quant.ste import RoundClip, clip_bound
from hawq_flow.quant.steps import IntegerStep, requantize_step
from hawq_flow.topology import PASSING, Stage, Topology
from hawq_flow.topology.floats import max_windows, pad_space, repeat_space, stage_output, sum_windows

GUARD = 4
"""Bits by which the operands of a sum are finer than its result (fewer for multipliers of fewer bits)."""
SIX = 6.0
"""Where ReLU6 ends."""
EXP_BITS = 12
"""Width of the exponentials of a softmax."""
SUM_BITS = 16
"""Width of their sum as the reciprocal table reads it."""
RECIPROCAL_BITS = 16
"""Width of the reciprocals of a softmax."""


class Joint(Gridded):
    """A stage without weights that ends on a grid of its own: the output's scale is learned or observed.

    Subclasses say how real values are computed (for observing), how training computes, and the integer steps.
    """

    shiftable = True
    """Whether the output may have a zero point."""

    def __init__(self, stage: Stage, topology: Topology, bits: int, config: QuantConfig) -> None:
        super().__init__()
        self.stage, self.name, self.config = replace(stage, module=None, batch_norm=None), stage.name, config
        self.sources = stage.sources
        positive = topology.nonnegative(stage.name)
        self.asymmetric = self.shiftable and config.asymmetric and not positive and topology.may_shift(stage.name)
        if topology.only_tables(stage.name):
            bits = config.table_bits
        if bits < 2 and not (positive or self.asymmetric):
            raise ValueError(f"{stage.name!r}: an output of 1 bit; signed activations need 2 or more")
        self.out_type = activation_type(bits, relu=positive, asymmetric=self.asymmetric)
        self.log_scale = nn.Parameter(torch.zeros(()), requires_grad=config.learn_scales)
        self.register_scales(len(stage.sources))
        self.factors: list[float] = []
        self.scale_value = 0.0  # the output's, as training uses it
        self.observer = Observer(config.activation_observer, config, self.out_type, self.asymmetric)

    def raw_scale(self, like: Tensor) -> Tensor:
        """The output's scale before snapping, float64."""
        scale = self.log_scale.detach().to(torch.float64).exp().to(like.device)
        if self.stage.activation == "relu6":  # the integers end where 6 does: saturation is the clip
            scale = scale.clamp(max=SIX / self.out_type.range[1])
        return scale

    def readable(self, grid: Grid, bits: int) -> None:
        """``ValueError`` when a table would have more than 2^16 entries for its input, or for differences of it."""
        if grid.type.max_bits > bits:
            raise ValueError(
                f"{self.name!r}: a table over integers of {grid.type.max_bits} bits; expected {bits} at most. Give "
                "what it reads a narrower width in the plan, or put a layer before it that nothing else reads"
            )

    def six_ends(self, scale: Tensor) -> None:
        """``ValueError`` when a ReLU6's largest integer would mean more than 6: no multiplier is large enough."""
        if self.stage.activation == "relu6" and float(scale) * self.out_type.range[1] > SIX * (1 + 1e-9):
            raise ValueError(
                f"{self.name!r}: ReLU6 behind integers of a much coarser scale needs multipliers of more than "
                f"{self.config.multiplier_bits} bits to end at 6; raise quant.multiplier_bits, or use ReLU"
            )

    def snapped(self, ratios: Tensor) -> Tensor:
        """Dyadic numbers near ``ratios``, with multipliers of the chosen bits."""
        return snap(ratios.clamp(2.0**-36, 2.0 ** (self.config.multiplier_bits - 1)), self.config.multiplier_bits)

    def scales(self, grids: Sequence[Grid]) -> tuple[Tensor, Tensor]:
        """(multipliers (operands,), the output's scale), float64; the frozen ones once frozen."""
        if self.frozen:
            return torch.ldexp(self.multiplier.to(torch.float64), -self.shift), self.frozen_scale
        return self.fresh_scales(torch.stack([grid.scale for grid in grids]))

    def fresh_scales(self, operands: Tensor) -> tuple[Tensor, Tensor]:
        """Multipliers and output scale from the operands' scales (operands,)."""
        raise NotImplementedError

    def real(self, operands: Sequence[Tensor]) -> Tensor:
        """The stage's real output from real operands: what its observer sees."""
        return stage_output(self.stage, operands)

    def refresh(self, grids: Sequence[Grid]) -> Grid:
        """Snap the scales as they stand, keep what training computes with until next time; the output's grid."""
        factors, scale = self.scales(grids)
        self.factors, self.scale_value = [float(m) for m in factors], float(scale)
        return self.grid(scale)

    @torch.no_grad()
    def calibrate(self, values: Sequence[Tensor], grids: Sequence[Grid]) -> tuple[Tensor, Grid]:
        """Observe real values made of quantized operands, move the scale to what they say; the output and its grid."""
        pairs = zip(values, grids, strict=True)
        self.observer.observe(self.real([value * grid.scale.to(value.dtype) for value, grid in pairs]))
        scale, zero = self.observer.grid()
        self.log_scale.fill_(math.log(scale))
        self.zero_point.fill_(zero)
        grid = self.refresh(grids)
        logs, training = [self.log_scale.detach()] * len(values), self.training
        self.training = False  # no dropout
        quantized = self(values, logs)
        self.training = training
        return quantized, grid

    def forward(self, values: Sequence[Tensor], logs: Sequence[Tensor]) -> Tensor:
        """Training: integers minus zero point, the operands' in, the output's out."""
        raise NotImplementedError

    @torch.no_grad()
    def freeze(self, grids: Sequence[Grid]) -> Grid:
        """Fix the dyadic scales; returns the output's grid."""
        if not self.frozen:
            self.fix(*self.scales(grids))
        return self.grid(self.frozen_scale)

    def settle(self) -> None:
        """Once frozen, the scale trains no more."""
        if self.frozen:
            self.log_scale.requires_grad_(False)

    def grid_behind(self, grids: Sequence[Grid]) -> Grid:
        """The output's grid as the scales stand."""
        return self.grid(self.scales(grids)[1])

    def rescaled(self, value: Tensor, log: Tensor, factor: float, type: IntType, zero: int = 0) -> Tensor:
        """``clip(round(value * M))`` into ``type`` minus ``zero``, with the gradients of both scales."""
        if log.requires_grad or self.log_scale.requires_grad:
            exponent = (log - log.detach()) - (self.log_scale - self.log_scale.detach())
            v = value * (factor * torch.exp(exponent)).to(value.dtype)
        else:
            v = value * factor
        return self.rounded(v, type, zero)

    def rounded(self, v: Tensor, type: IntType, zero: int = 0) -> Tensor:
        """``clip(round(v))`` into ``type`` minus ``zero``, straight-through."""
        if self.config.rounding is Rounding.FLOOR:  # rounding to nearest of v - 1/2, but for ties
            v = v - 0.5
        return self.nearest(v, type, zero)

    def nearest(self, v: Tensor, type: IntType, zero: int = 0) -> Tensor:
        """:meth:`rounded` to nearest, whatever the requantizations do."""
        low, high = type.range
        ends = (-clip_bound(-(low - zero), v.dtype), clip_bound(high - zero, v.dtype))
        clipped: Tensor = RoundClip.apply(v, *ends)
        return clipped

    def dropped(self, q: Tensor) -> Tensor:
        """Dropout, in training."""
        return functional.dropout(q, self.stage.dropout, training=True) if self.stage.dropout and self.training else q

    def steps(self, names: Sequence[str], grids: Sequence[Grid]) -> tuple[list[IntegerStep], Grid]:
        """The stage as steps reading the values ``names``; and the output's grid."""
        raise NotImplementedError


class QuantRescale(Joint):
    """One value, summed over windows first if it is an average, brought to a scale of its own."""

    def fresh_scales(self, operands: Tensor) -> tuple[Tensor, Tensor]:
        """The multiplier near S_x / (N S_a), and the scale that follows it."""
        source = operands / self.stage.divisor  # 1 where nothing was summed
        ratios = source / self.raw_scale(operands)
        factors = self.snapped(ratios)
        if self.stage.activation == "relu6" and bool((factors < ratios).any()):  # up, lest the scale pass 6 / top
            factors = self.snapped(ratios * (1 + 2.0 ** (1 - self.config.multiplier_bits)))
        scale = (source / factors)[0]
        self.six_ends(scale)
        return factors, scale

    def forward(self, values: Sequence[Tensor], logs: Sequence[Tensor]) -> Tensor:
        """Training: integers minus zero point, the operand's in, the output's out."""
        x = sum_windows(self.stage, values[0]) if self.stage.kind == "average" else values[0]
        q = self.rescaled(x, logs[0], self.factors[0], self.out_type, int(self.zero_point))
        return self.dropped(q)

    def steps(self, names: Sequence[str], grids: Sequence[Grid]) -> tuple[list[IntegerStep], Grid]:
        """The stage as steps reading the values ``names``; and the output's grid."""
        factors, scale = self.scales(grids)
        multiplier, shift = self.dyadic(factors)
        stage, source, steps = self.stage, names[0], []
        if stage.kind == "average":
            fields = {"kernel": stage.kernel, "stride": stage.stride, "padding": stage.padding}
            steps.append(IntegerStep(stage.values[0], "SumPool", (source,), "", fields, stage))
            source = stage.values[0]
        grid = self.grid(scale)
        rounding, zero = self.config.rounding, grid.zero_point
        steps.append(requantize_step(stage.output, source, "", multiplier[0], shift[0], self.out_type, rounding, zero))
        return steps, grid


class QuantSum(Joint):
    """A residual addition: every operand rescaled to a finer grid of the sum, added, rounded, clipped."""

    guard_bits: Tensor

    def __init__(self, stage: Stage, topology: Topology, bits: int, config: QuantConfig) -> None:
        super().__init__(stage, topology, bits, config)
        self.register_buffer("guard_bits", torch.tensor(min(GUARD, config.multiplier_bits - 1)))

    @property
    def guard(self) -> int:
        """Bits by which the operands are finer than the result."""
        return int(self.guard_bits)

    def operand_type(self, grid: Grid, factor: float) -> IntType:
        """An operand's integers: its own range times its multiplier, so that nothing is cut before the sum."""
        reach = math.ceil(factor * max(map(abs, grid.type.range)))
        signed = grid.type.signed
        return IntType(max(reach.bit_length(), 1) + int(signed), signed, signed)

    def fresh_scales(self, operands: Tensor) -> tuple[Tensor, Tensor]:
        """Multipliers near 2^g S_i / S_a, and S_a, coarse enough for multipliers of the chosen bits."""
        scale, bits = self.raw_scale(operands), self.config.multiplier_bits
        guard = min(GUARD, bits - 1)
        if self.stage.activation == "relu6":  # the scale may not grow beyond 6 / top: fewer guard bits instead
            ratio = math.ceil(math.log2(float(operands.max() / scale)))
            guard = max(0, min(guard, bits - 1 - ratio))
        self.guard_bits.fill_(guard)
        scale = torch.maximum(scale, operands.max() * 2.0 ** (guard - bits + 1))
        self.six_ends(scale)
        return self.snapped(torch.ldexp(operands / scale, torch.tensor(guard))), scale

    def refresh(self, grids: Sequence[Grid]) -> Grid:
        """As for every stage; the operands' types are kept too."""
        grid = super().refresh(grids)
        self.types = [self.operand_type(g, factor) for g, factor in zip(grids, self.factors, strict=True)]
        return grid

    def forward(self, values: Sequence[Tensor], logs: Sequence[Tensor]) -> Tensor:
        """Training: integers, the operands' in, the output's minus its zero point out."""
        parts = [
            self.rescaled(value, log, factor, type)
            for value, log, factor, type in zip(values, logs, self.factors, self.types, strict=True)
        ]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return self.dropped(self.rounded(total * 2.0**-self.guard, self.out_type, int(self.zero_point)))

    def steps(self, names: Sequence[str], grids: Sequence[Grid]) -> tuple[list[IntegerStep], Grid]:
        """The stage as steps reading the values ``names``; and the output's grid."""
        factors, scale = self.scales(grids)
        multiplier, shift = self.dyadic(factors)
        stage, rounding = self.stage, self.config.rounding
        steps = [
            requantize_step(name, source, "", m, s, self.operand_type(grid, float(factor)), rounding)
            for name, source, m, s, grid, factor in zip(
                stage.operands, names, multiplier, shift, grids, factors, strict=True
            )
        ]
        total, output = stage.values[-2:]
        steps.append(IntegerStep(total, "Add", stage.operands, ""))
        grid = self.grid(scale)
        steps.append(requantize_step(output, total, "", 1, self.guard, self.out_type, rounding, grid.zero_point))
        return steps, grid


class QuantConcat(Joint):
    """Values side by side: every one rescaled to the scale of the whole."""

    shiftable = False  # the operands have no room for a zero point each

    def __init__(self, stage: Stage, topology: Topology, bits: int, config: QuantConfig) -> None:
        super().__init__(stage, topology, bits, config)
        # Between signed neighbours a value that is never negative keeps to the positive half of their range.
        self.positive = [topology.nonnegative(source) for source in stage.sources]

    def operand_type(self, index: int) -> IntType:
        """An operand's integers: the result's range, or its positive half."""
        if not self.out_type.signed or not self.positive[index]:
            return self.out_type
        return IntType(max(self.out_type.max_bits - 1, 1), signed=False)

    def fresh_scales(self, operands: Tensor) -> tuple[Tensor, Tensor]:
        """Multipliers near S_i / S_a, and S_a, coarse enough for multipliers of the chosen bits."""
        scale = torch.maximum(self.raw_scale(operands), operands.max() * 2.0 ** -(self.config.multiplier_bits - 1))
        return self.snapped(operands / scale), scale

    def forward(self, values: Sequence[Tensor], logs: Sequence[Tensor]) -> Tensor:
        """Training: the operands' integers in, all of them on one scale out."""
        parts = [
            self.rescaled(value, log, factor, self.operand_type(i))
            for i, (value, log, factor) in enumerate(zip(values, logs, self.factors, strict=True))
        ]
        return self.dropped(torch.cat(parts, 1))

    def steps(self, names: Sequence[str], grids: Sequence[Grid]) -> tuple[list[IntegerStep], Grid]:
        """The stage as steps reading the values ``names``; and the output's grid."""
        factors, scale = self.scales(grids)
        multiplier, shift = self.dyadic(factors)
        stage = self.stage
        steps = [
            requantize_step(name, source, "", multiplier[i], shift[i], self.operand_type(i), self.config.rounding)
            for i, (name, source) in enumerate(zip(stage.operands, names, strict=True))
        ]
        steps.append(IntegerStep(stage.output, "Concat", stage.operands, "", {"axis": 0}))
        return steps, self.grid(scale)


class QuantTable(Joint):
    """A function of one element as a table over its integer input."""

    def fresh_scales(self, operands: Tensor) -> tuple[Tensor, Tensor]:
        """No multiplier is used (1 stands for it); the output's scale as it is."""
        return torch.ones_like(operands), self.raw_scale(operands)

    def refresh(self, grids: Sequence[Grid]) -> Grid:
        """As for every stage; the operand's scale is kept too."""
        self.source_scale = float(grids[0].scale)
        self.readable(grids[0], 16)
        return super().refresh(grids)

    def forward(self, values: Sequence[Tensor], logs: Sequence[Tensor]) -> Tensor:
        """Training: the operand's integers minus zero point in, the table's out, with the function's gradient."""
        log = logs[0]
        real = values[0] * (self.source_scale * torch.exp(log - log.detach())).to(values[0].dtype)
        own = self.log_scale
        v = self.real([real]) * (torch.exp(own.detach() - own) / self.scale_value).to(real.dtype)
        return self.dropped(self.nearest(v, self.out_type, int(self.zero_point)))

    def steps(self, names: Sequence[str], grids: Sequence[Grid]) -> tuple[list[IntegerStep], Grid]:
        """The stage as steps reading the values ``names``; and the output's grid."""
        source, scale = grids[0], self.scales(grids)[1]
        grid = self.grid(scale)
        low, high = source.type.range
        integers = torch.arange(low, high + 1, dtype=torch.float64)
        values = self.real([(integers - source.zero_point) * float(source.scale)])
        # A table is made once, so its rounding is the best there is, whatever the requantizations use.
        rounded = torch.round(values / float(scale)) + grid.zero_point
        table = rounded.clamp(*self.out_type.range).numpy().astype(np.int64)
        scales = (float(source.scale), int(source.zero_point), float(scale), int(grid.zero_point))
        fields = {"table": table, "start": low, "function": self.stage.function_name, "scales": scales}
        return [IntegerStep(self.stage.output, "Lookup", (names[0],), "", fields)], grid


class QuantSoftmax(Joint):
    """Softmax over channels, in integers; its scale is fixed: the largest integer means 1."""

    def __init__(self, stage: Stage, topology: Topology, bits: int, config: QuantConfig) -> None:
        super().__init__(stage, topology, min(bits, RECIPROCAL_BITS), config)
        self.log_scale.requires_grad_(False)

    def raw_scale(self, like: Tensor) -> Tensor:
        """One over the largest integer."""
        return torch.tensor(1.0 / self.out_type.range[1], dtype=torch.float64, device=like.device)

    def fresh_scales(self, operands: Tensor) -> tuple[Tensor, Tensor]:
        """No multiplier is used (1 stands for it); the fixed scale."""
        return torch.ones_like(operands), self.raw_scale(operands)

    def refresh(self, grids: Sequence[Grid]) -> Grid:
        """As for every stage; the operand's scale is kept too."""
        self.source_scale = float(grids[0].scale)
        self.readable(grids[0], 15)
        self.log_scale.data.fill_(math.log(1.0 / self.out_type.range[1]))
        return super().refresh(grids)

    def forward(self, values: Sequence[Tensor], logs: Sequence[Tensor]) -> Tensor:
        """Training: the operand's integers in, probabilities times the largest integer out."""
        log = logs[0]
        real = values[0] * (self.source_scale * torch.exp(log - log.detach())).to(values[0].dtype)
        v = torch.softmax(real, 1) / self.scale_value
        return self.dropped(self.nearest(v, self.out_type))

    def steps(self, names: Sequence[str], grids: Sequence[Grid]) -> tuple[list[IntegerStep], Grid]:
        """The stage as steps reading the values ``names``; and the output's grid."""
        source = grids[0]
        steps = softmax_steps(
            self.stage, names[0], source.type, float(source.scale), self.out_type, self.config.rounding
        )
        return steps, self.grid(self.scales(grids)[1])


def softmax_steps(
    stage: Stage,
    value: str,
    source: IntType,
    scale: float,
    out: IntType,
    rounding: Rounding,
    sum_bits: int = SUM_BITS,
) -> list[IntegerStep]:
    """A softmax in integers: exp of differences from the largest by table, their sum, its reciprocal by table.

    Parameters
    ----------
    stage:
        Names the values and gives the shape, (classes,) or (classes, *space).
    value, source, scale:
        The integers it reads: their value's name, type and scale.
    out:
        Type of the result, unsigned; its largest integer means 1.
    sum_bits:
        Width of the sum as the table of reciprocals, of ``2^sum_bits`` entries at most, reads it.
    """
    largest, difference, exponential, total, ranged, reciprocal, product, output = stage.values
    span = source.range[1] - source.range[0]
    one = (1 << EXP_BITS) - 1
    distances = np.arange(-span, span + 1, dtype=np.float64) * scale
    exponentials = np.rint(np.exp(np.minimum(distances, 0.0)) * one).astype(np.int64)
    # The largest element alone contributes ``one``, so the sum is never less.
    largest_sum = stage.shape[0] * one
    narrowed = max(0, largest_sum.bit_length() - sum_bits)
    sums = np.arange((largest_sum >> narrowed) + 2, dtype=np.float64)[: 1 << sum_bits]
    least = max(1, one >> narrowed)
    whole = (1 << RECIPROCAL_BITS) - 1
    reciprocals = np.rint(whole * least / np.maximum(sums, least)).astype(np.int64)
    # out = e / sum * top, with sum = s 2^narrowed and 1 / s = reciprocal / (whole * least)
    multiplier, shift = nearest_dyadic(out.range[1] / (whole * least * 2.0**narrowed), 16)
    exp = {"table": exponentials, "start": -span, "function": "exp"}
    inverse = {"table": reciprocals, "start": 0, "function": "reciprocal"}
    return [
        IntegerStep(largest, "ReduceMax", (value,), "", {"axis": 0}),
        IntegerStep(difference, "Subtract", (value, largest), ""),
        IntegerStep(exponential, "Lookup", (difference,), "", exp),
        IntegerStep(total, "ReduceSum", (exponential,), "", {"axis": 0}, stage),
        requantize_step(ranged, total, "", 1, narrowed, IntType(sum_bits, False), Rounding.HALF_EVEN),
        IntegerStep(reciprocal, "Lookup", (ranged,), "", inverse),
        IntegerStep(product, "Multiply", (exponential, reciprocal), ""),
        requantize_step(output, product, "", multiplier, shift, out, rounding),
    ]


class Passing(nn.Module):
    """A stage that moves, picks or repeats integers: scale and zero point stay those of what it reads."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        assert stage.kind in PASSING, stage.kind
        self.stage, self.name, self.sources = stage, stage.name, stage.sources

    def grid_of(self, grid: Grid) -> Grid:
        """The output's grid; widths a channel become one when channels are mixed."""
        if self.stage.kind == "reshape" and not isinstance(grid.type.bits, int):
            return replace(grid, type=replace(grid.type, bits=max_bits(grid.type.bits)))
        return grid

    def refresh(self, grids: Sequence[Grid]) -> Grid:
        """The output's grid."""
        return self.grid_of(grids[0])

    freeze = grid_behind = refresh

    def calibrate(self, values: Sequence[Tensor], grids: Sequence[Grid]) -> tuple[Tensor, Grid]:
        """The output and its grid."""
        return self.moved(values[0]), self.grid_of(grids[0])

    def moved(self, x: Tensor) -> Tensor:
        """Integers minus zero point, moved."""
        match self.stage.kind:
            case "max":
                return max_windows(self.stage, x)
            case "upsample":
                return repeat_space(x, self.stage.factors)
            case "pad":
                return pad_space(x, self.stage.padding)
            case _:
                return x.reshape(-1, *self.stage.shape)

    def forward(self, values: Sequence[Tensor], logs: Sequence[Tensor]) -> Tensor:
        """Training: as in evaluation, with dropout."""
        x = self.moved(values[0])
        return functional.dropout(x, self.stage.dropout, training=True) if self.stage.dropout else x

    def steps(self, names: Sequence[str], grids: Sequence[Grid]) -> tuple[list[IntegerStep], Grid]:
        """The stage as steps reading the values ``names``; and the output's grid."""
        stage = self.stage
        match stage.kind:
            case "max":
                kind = "MaxPool"
                fields: dict[str, object] = {
                    "kernel": stage.kernel,
                    "stride": stage.stride,
                    "padding": stage.padding,
                }
            case "upsample":
                kind, fields = "Upsample", {"factors": stage.factors}
            case "pad":
                kind, fields = "Pad", {"padding": stage.padding, "value": grids[0].zero_point}
            case _:
                kind, fields = "Reshape", {"to": stage.shape}
        step = IntegerStep(stage.output, kind, (names[0],), "", fields, stage)
        return [step], self.grid_of(grids[0])


def joint(stage: Stage, topology: Topology, bits: int, config: QuantConfig) -> Joint | Passing:
    """The quantized form of a stage without weights; ``bits`` is the plan's width for its output."""
    match stage.kind:
        case "average" | "activation":
            return QuantRescale(stage, topology, bits, config)
        case "add":
            return QuantSum(stage, topology, bits, config)
        case "concat":
            return QuantConcat(stage, topology, bits, config)
        case "table":
            return QuantTable(stage, topology, bits, config)
        case "softmax":
            return QuantSoftmax(stage, topology, bits, config)
        case _:
            return Passing(stage)
