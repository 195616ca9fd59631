"""The physical model of the open road: wholly unrolled shifts and adders with sub-expressions shared, packed LUTs.

A product by a constant matrix of ``m`` outputs whose weights have ``d`` non-zero signed digits needs ``d - m`` adders
when nothing is shared. The optimizer of ``to_rtl`` leaves about half of them, more where few outputs give few pairs
that recur: a share ``alpha + beta / m`` (``adder``, ``apart``) stands for it, so that nothing is optimized to
estimate. An adder is as wide as its operands: from the input's width at the leaves of a tree to the sum's at its
root; half of all adders are leaves, so the mean width is about ``b_a + 1 + (b_s - b_a) / log2(1 + d / m)``. A bias is
one adder more an output, unless a rescale by thresholds takes it into them.

A rescale multiplies the ``sum_bits`` that do not saturate by a constant of a few digits (``scale``) and rounds and
clips (``clip``). One to few values compares the sum with its thresholds instead (``threshold``: bits compared), where
that is estimated to be less, as the generator does it (:mod:`hawq_flow.to_rtl.rescale`). The rest is an adder a bit
(``sum``), a comparator and a multiplexer a bit (``compare``), an adder a partial product's bit (``array``), and a
table's LUTs: one of six inputs for 64 entries of an output's bit, and a third of one more to choose among four.

``DEFAULTS`` are what one of each would take by this reading; they stand where nothing was fitted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from hawq_flow.estimate.features import LayerFeatures
from hawq_flow.estimate.terms import Terms
from hawq_flow.to_rtl.rescale import MOST_THRESHOLDS

DEFAULTS: Mapping[str, Mapping[str, float]] = {
    "lut": {
        "adder": 0.5,
        "apart": 0.5,
        "bias": 1.0,
        "threshold": 1 / 3,
        "scale": 1.0,
        "clip": 1.0,
        "array": 1.0,
        "table": 1.0,
        "compare": 1.5,
        "sum": 1.0,
    },
    "ff": {"register": 1.0, "delay": 1.0, "valid": 1.0},
    "latency_cycles": {"stage": 1.0},
}
"""All terms, by figure, and LUTs (flip-flops, cycles) of one of each from first principles."""
LUT_ENTRIES = 64.0


def adders(layer: LayerFeatures) -> float:
    """Adders of a product with nothing shared: digits less outputs."""
    return float(max(layer.counts.digits - layer.counts.rows, 0))


def width(layer: LayerFeatures) -> float:
    """Mean width of the adders of a product, in bits; none where only constants enter."""
    if not layer.entering:
        return 0.0
    terms = max(layer.counts.digits / max(layer.counts.rows, 1), 2.0)
    return layer.entering + 1 + max(layer.sum_bits - layer.entering, 0.0) / math.log2(1 + terms)


def lut_terms(layer: LayerFeatures) -> Terms:
    """Amounts that packed LUTs are paid for."""
    n, counts, copies = layer.elements, layer.counts, layer.positions
    match layer.kind:
        case "product":
            bits = copies * adders(layer) * width(layer)
            bias = copies * counts.rows * layer.sum_bits if layer.registered and layer.biased else 0.0
            return {"adder": bits, "apart": bits / max(counts.rows, 1), "bias": bias}
        case "rescale":
            return _rescale(layer)
        case "multiply":
            return {"array": n * layer.input_bits * layer.weight_bits}
        case "table":
            blocks = max(2.0**layer.weight_bits / LUT_ENTRIES, 1.0)
            return {"table": layer.leaving * (blocks + (blocks - 1) / 3)}
        case "compare":
            return {"compare": n * layer.operations * layer.output_bits}
        case _:
            return {"sum": n * layer.operations * layer.output_bits}


def _rescale(layer: LayerFeatures) -> Terms:
    """By multiplying or by thresholds, whichever the generator estimates to take fewer LUTs."""
    n, counts = layer.elements, layer.counts
    if not n:
        return {}
    bits = layer.leaving / n
    steps = 2.0**bits - 1
    product = max(counts.digits - counts.nonzeros, 0) / n
    compared = steps * (layer.entering / 3 + 1.5)
    multiplied = product * (layer.sum_bits + 2) + bits + 2
    multiplied += (bits + 3 if layer.rounds else 0.0) + (layer.entering if layer.biased else 0.0)
    if steps <= MOST_THRESHOLDS and compared < multiplied:
        return {"threshold": n * steps * layer.entering}
    bias = n * layer.entering if layer.biased else 0.0
    return {"scale": n * product * layer.sum_bits, "clip": layer.leaving, "bias": bias}


def ff_terms(layer: LayerFeatures) -> Terms:
    """Flip-flops, counted: one register a bit that leaves a stage, and delay lines."""
    return {"register": layer.leaving if layer.registered else 0, "delay": layer.delay_bits}


def cycle_terms(layer: LayerFeatures) -> Terms:
    """Clock cycles, counted: one a stage."""
    return {"stage": 1 if layer.registered else 0}


def design_terms(latency: float) -> Terms:
    """Flip-flops of the streaming top of so many cycles: one valid bit a cycle."""
    return {"valid": latency}
