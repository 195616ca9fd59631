"""The physical model of the open road: wholly unrolled shifts and adders with sub-expressions shared, packed LUTs.

A product by a constant matrix of ``m`` outputs whose weights have ``d`` non-zero signed digits needs ``d - m`` adders
when nothing is shared. The optimizer of ``to_rtl`` leaves about half of them, more where few outputs give few pairs
that recur: a share ``alpha + beta / m`` (``adder``, ``apart``) stands for it, so that nothing is optimized to
estimate. An adder is as wide as its operands: from the input's width at the leaves of a tree to the sum's at its
root; half of all adders are leaves, so the mean width is about ``b_a + 1 + (b_s - b_a) / log2(1 + d / m)``. A bias is
one adder more an output.

A rescale multiplies the ``sum_bits`` that do not saturate by a constant of a few digits (``scale``), rounds and
clips; one to few values compares with their thresholds instead (``threshold``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hawq_flow.estimate.features import LayerFeatures
from hawq_flow.estimate.terms import Terms


def adders(layer: LayerFeatures) -> float:
    """Adders of a product with nothing shared: digits less outputs."""
    return float(max(layer.counts.digits - layer.counts.rows, 0))


def width(layer: LayerFeatures) -> float:
    """Mean width of the adders of a product, in bits."""
    terms = max(layer.counts.digits / max(layer.counts.rows, 1), 2.0)
    return layer.input_bits + 1 + (layer.sum_bits - layer.input_bits) / math.log2(1 + terms)


def lut_terms(layer: LayerFeatures) -> Terms:
    """Amounts that packed LUTs are paid for."""
    n, counts, copies = layer.elements, layer.counts, layer.positions
    match layer.kind:
        case "product":
            bits = copies * adders(layer) * width(layer)
            bias = copies * counts.rows * layer.sum_bits
            return {"adder": bits, "apart": bits / max(counts.rows, 1), "bias": bias}
        case "rescale":
            values = 2.0**layer.output_bits - 1
            product = max(counts.digits - counts.nonzeros, 0) * layer.sum_bits
            thresholds = n * values * layer.input_bits
            if thresholds < product + n * layer.output_bits:
                return {"threshold": thresholds}
            return {"scale": product, "clip": n * layer.output_bits}
        case "multiply":
            return {"array": n * layer.input_bits * layer.weight_bits}
        case "table":
            return {"table": n * layer.output_bits * 2.0 ** max(layer.weight_bits - 6, 0)}
        case "compare":
            return {"compare": n * layer.operations * layer.output_bits}
        case _:
            return {"sum": n * layer.operations * layer.output_bits}


def ff_terms(layer: LayerFeatures) -> Terms:
    """Flip-flops, counted: one register a bit that leaves a stage."""
    return {"register": layer.elements * layer.output_bits if layer.registered else 0}


def cycle_terms(layer: LayerFeatures) -> Terms:
    """Clock cycles, counted: one a stage."""
    return {"stage": 1 if layer.registered else 0}


def design_terms(layers: Sequence[LayerFeatures]) -> Terms:
    """Flip-flops of the streaming top: one valid bit a stage."""
    return {"valid": sum(layer.registered for layer in layers)}
