"""Costs of bit plans without a network: of one plan, and as tables for the allocator, separable by layer.

A table has one cost for each layer and pair (weight width, input width). Products are exact in it: their weights are
counted at each width. A rescale depends on three widths, those of its layer (through its sums) and the one it
rescales to, which is the next layer's input: its cost ``g(sums, bits)`` is split into main effects around the middle
of both, ``g(sums, middle)`` with the layer that sums, and ``g(middle, bits) - g(middle, middle)`` with the layer that
reads (shared evenly by several readers, which then all see the same width). So a plan's entries add up to an estimate
to first order, and :func:`estimate_plan` is the check.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from hawq_flow.estimate.coefficients import STAGE_FIGURES, STAGES, Coefficients, Stage, shipped
from hawq_flow.estimate.counts import Counts, count, drawn
from hawq_flow.estimate.estimating import Estimate, estimate_layers, predicted
from hawq_flow.estimate.features import (
    PRODUCT,
    EstimateError,
    HardwareConfig,
    LayerFeatures,
    rescale_features,
)
from hawq_flow.numeric import IntArray, IntType
from hawq_flow.plan import BitPlan, LayerShape, max_bits

CostTable = dict[str, dict[tuple[int, int], float]]
Weights = Mapping[str, Mapping[int, IntArray]]
"""For each layer and weight width: int64 (outputs, terms of a dot product)."""


class CostTables(dict[str, CostTable]):
    """Tables by figure; a figure that the stage does not have is an ``EstimateError``, and no table of zeros."""

    def __init__(self, stage: Stage) -> None:
        super().__init__({figure: {} for figure in STAGE_FIGURES[stage]})
        self.stage = stage

    def __missing__(self, figure: str) -> CostTable:
        stages = [stage for stage in STAGES if figure in STAGE_FIGURES[stage]]
        fix = f"; stages that have it: {', '.join(stages)}" if stages else ""
        raise EstimateError(
            f"estimate: stage {self.stage!r} has no figure {figure!r} (it has {', '.join(self)}), so that a budget of "
            f"it would limit nothing{fix}"
        )


MULTIPLIER_BITS = 8
SATURATED_BITS = 4
"""Bits of a finished sum that lie beyond where its rescale saturates, as trained networks have it."""


@dataclasses.dataclass(frozen=True)
class _Product:
    """A layer's weights at one width: their counts, and the largest sums of an input of one step."""

    shape: LayerShape
    bits: int
    counts: Counts
    positive: int
    negative: int

    def features(self, input_bits: int, signed: bool) -> LayerFeatures:
        """With inputs of so many bits; the sum's width holds every sum."""
        high, low = (2 ** (input_bits - 1) - 1, -(2 ** (input_bits - 1))) if signed else (2**input_bits - 1, 0)
        most = self.positive * high - self.negative * low
        least = self.positive * low - self.negative * high
        sum_bits = IntType.holding(min(least, 0), max(most, 0)).max_bits
        return LayerFeatures(
            self.shape.name,
            PRODUCT,
            elements=self.shape.outputs * self.shape.positions,
            input_bits=input_bits,
            output_bits=sum_bits,
            n_in=self.shape.fan_in,
            n_out=self.shape.outputs,
            positions=self.shape.positions,
            weight_bits=self.bits,
            sum_bits=sum_bits,
            counts=self.counts,
            registered=False,
        )


def _product(shape: LayerShape, bits: int, weights: Weights | None) -> _Product:
    if weights is None:
        matrix = drawn(shape.fan_in, shape.outputs, bits)
        counts = count(matrix, exact=False)
    else:
        try:
            matrix = np.asarray(weights[shape.name][bits], np.int64)
        except KeyError:
            raise EstimateError(
                f"estimate: no weights of layer {shape.name!r} at {bits} bits; give weights[{shape.name!r}][{bits}], "
                f"int64 ({shape.outputs}, {shape.fan_in})"
            ) from None
        if matrix.shape != (shape.outputs, shape.fan_in):
            raise EstimateError(
                f"estimate: weights of layer {shape.name!r} at {bits} bits have shape {matrix.shape}; expected "
                f"({shape.outputs}, {shape.fan_in})"
            )
        counts = count(matrix)
    positive = int(np.maximum(matrix, 0).sum(axis=1).max())
    negative = int(np.maximum(-matrix, 0).sum(axis=1).max())
    return _Product(shape, bits, counts, positive, negative)


def _rescale(shape: LayerShape, sum_bits: int, bits: int) -> LayerFeatures:
    """The rescale of a layer's sums of ``sum_bits`` to ``bits``, by multipliers as the quantizer makes them."""
    elements = shape.outputs * shape.positions
    multiplier = np.resize(np.arange(2 ** (MULTIPLIER_BITS - 1) + 1, 2**MULTIPLIER_BITS, 2, dtype=np.int64), elements)
    window = max(sum_bits - SATURATED_BITS, bits)
    shift = np.asarray(MULTIPLIER_BITS - 1 + max(window - bits, 0), np.int64)
    rescale = rescale_features(f"{shape.name}_requant", multiplier, shift, sum_bits, bits)
    return dataclasses.replace(rescale, positions=shape.positions)


def _signed(shape: LayerShape, layers: set[str]) -> bool:
    """Whether a layer's input has a sign: a network input may, what another layer gives has passed a ReLU."""
    return shape.source not in layers


def plan_features(
    shapes: Sequence[LayerShape], plan: BitPlan, weights: Weights | None = None
) -> tuple[LayerFeatures, ...]:
    """Features of a plan's layers and rescales, in order.

    ``weights``: the integers at the plan's widths; None draws weights as trained layers have them.
    """
    plan.check(shapes)
    names = {shape.name for shape in shapes}
    found = []
    for shape in shapes:
        width = max_bits(plan.source_bits(shape.source))
        product = _product(shape, max_bits(plan[shape.name].weight), weights).features(width, _signed(shape, names))
        reads = (f"{shape.source}_requant",) if shape.source in names else ()
        rescale = _rescale(shape, product.sum_bits, max_bits(plan[shape.name].activation))
        found += [dataclasses.replace(product, reads=reads), dataclasses.replace(rescale, reads=(shape.name,))]
    return tuple(found)


def estimate_plan(
    shapes: Sequence[LayerShape],
    plan: BitPlan,
    hardware: HardwareConfig | None = None,
    stage: Stage = "csynth",
    *,
    weights: Weights | None = None,
    coefficients: Coefficients | None = None,
) -> Estimate:
    """What a network of these layers takes under a plan, before it is trained; see :func:`plan_features`."""
    return estimate_layers(
        plan_features(shapes, plan, weights), hardware or HardwareConfig(), stage, coefficients=coefficients
    )


def _middle(widths: Sequence[int]) -> int:
    return sorted(widths)[len(widths) // 2]


def cost_tables(
    shapes: Sequence[LayerShape],
    weight_bits: Sequence[int],
    input_bits: Mapping[str, Sequence[int]],
    hardware: HardwareConfig | None = None,
    stage: Stage = "csynth",
    *,
    weights: Weights | None = None,
    output_bits: int = 16,
    coefficients: Coefficients | None = None,
) -> CostTables:
    """Costs ``{figure: {layer: {(weight bits, input bits): cost}}}`` for :func:`hawq_flow.allocate.allocate`.

    The figures are those of the stage (``STAGE_FIGURES``): asking for another is an ``EstimateError``.

    Parameters
    ----------
    weight_bits:
        The weight widths to choose from.
    input_bits:
        For each layer the widths its input may have (one, where it reads a network input).
    weights:
        For each layer and width the integers; None draws them.
    output_bits:
        Width of what leaves layers that no other reads.

    Raises
    ------
    EstimateError
        If weights or widths of a layer are missing, or a reuse factor is of a layer that is not there.
    """
    hardware, coefficients = hardware or HardwareConfig(), coefficients or shipped()
    names = {shape.name for shape in shapes}
    hardware.check_layers(shape.name for shape in shapes)
    by_name = {shape.name: shape for shape in shapes}
    readers = {name: sum(shape.source == name for shape in shapes) for name in names}
    if missing := sorted(names - set(input_bits)):
        raise EstimateError(f"estimate: no input widths for layer {missing[0]!r}; give input_bits[{missing[0]!r}]")
    tables = CostTables(stage)
    figures = tuple(tables)
    products = {(shape.name, bits): _product(shape, bits, weights) for shape in shapes for bits in weight_bits}
    middle_weight = _middle(weight_bits)
    middle_output = {
        shape.name: _middle([bits for other in shapes if other.source == shape.name for bits in input_bits[other.name]])
        if readers[shape.name]
        else output_bits
        for shape in shapes
    }
    middle_sum = {
        shape.name: products[shape.name, middle_weight]
        .features(_middle(input_bits[shape.name]), _signed(shape, names))
        .sum_bits
        for shape in shapes
    }

    def costs(layers: Sequence[LayerFeatures]) -> dict[str, float]:
        # a part of a design: an empty layer ends it, so that what joins it to the next is counted
        _, total = predicted(coefficients, stage, [*layers, END], hardware)
        return total

    def effect(producer: LayerShape, bits: int) -> dict[str, float]:
        """What rescaling a layer's sums to ``bits`` costs more than to the middle width."""
        here, there = (
            costs([_rescale(producer, middle_sum[producer.name], width)])
            for width in (bits, middle_output[producer.name])
        )
        return {figure: here[figure] - there[figure] for figure in figures}

    effects = {
        (shape.name, bits): effect(by_name[shape.source], bits)
        for shape in shapes
        if shape.source in names
        for bits in input_bits[shape.name]
    }
    for shape in shapes:
        for figure in figures:
            tables[figure][shape.name] = {}
        for bits in weight_bits:
            for width in input_bits[shape.name]:
                product = products[shape.name, bits].features(width, _signed(shape, names))
                total = costs([product, _rescale(shape, product.sum_bits, middle_output[shape.name])])
                before = effects.get((shape.name, width), {})
                for figure in figures:
                    share = before.get(figure, 0.0) / readers.get(shape.source, 1)
                    tables[figure][shape.name][bits, width] = total[figure] + share
    return tables


END = LayerFeatures("", "adder", elements=0, input_bits=0, output_bits=0, operations=0, registered=False)
"""A layer that takes nothing."""
