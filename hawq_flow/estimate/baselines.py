"""What others estimate hardware by, on the same features and the same held-out projects: BOPs and HGQ's EBOPs.

- BOPs (Baskin et al., arXiv:1804.10969): :func:`hawq_flow.plan.layer_bops`, zero weights left out;
- EBOPs (Sun et al., "Gradient-based automatic mixed precision quantization for neural networks on-chip",
  arXiv:2405.00645): every product counts the input's bits times the weight's *effective* bits, those from its highest
  to its lowest non-zero bit; their sum is meant to be LUTs plus 55 times DSPs.

Neither says what a unit of it costs, so each gets one coefficient, fitted as ours are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.stats

from hawq_flow.estimate.data import Measured
from hawq_flow.estimate.features import PRODUCT, LayerFeatures
from hawq_flow.estimate.fitting import FLOORS, Held, weighted_quantile
from hawq_flow.estimate.solving import held_out, project_weights
from hawq_flow.numeric import FloatArray
from hawq_flow.plan import LayerShape, layer_bops

LUT_A_DSP = 55
"""LUTs that HGQ counts a DSP block for."""


def bops(layers: Sequence[LayerFeatures]) -> float:
    """Bit operations of the product layers, zero weights counting only for their sums."""
    total = 0.0
    for layer in layers:
        if layer.kind == PRODUCT:
            shape = LayerShape(layer.name or "layer", layer.n_in, layer.n_out, "x", layer.positions)
            zeros = layer.counts.zeros / max(layer.n_in * layer.n_out, 1)
            total += layer_bops(shape, layer.weight_bits, layer.input_bits, zero_fraction=zeros)
    return total


def ebops(layers: Sequence[LayerFeatures]) -> float:
    """Effective bit operations of the product layers."""
    return float(sum(x.positions * x.counts.effective_bits * x.input_bits for x in layers if x.kind == PRODUCT))


@dataclass(frozen=True)
class Comparison:
    """Errors of one way to estimate, on projects held out: median relative error (of the rows, and with every project
    weighing the same) and rank correlation."""

    rows: float
    projects: float
    rank: float


def compare(held: Sequence[Held]) -> dict[str, dict[str, Comparison]]:
    """For ``lut`` and ``lut + 55 dsp``: ours, BOPs and EBOPs on the same rows, each fitted to the other projects."""
    rows = [each.row for each in held]
    projects = [row.project for row in rows]
    weights = project_weights(projects)
    targets: Mapping[str, tuple[FloatArray, FloatArray]] = {
        "lut": (_figure(rows, "lut"), np.array([each.predicted["lut"] for each in held])),
        "lut + 55 dsp": (
            _figure(rows, "lut") + LUT_A_DSP * _figure(rows, "dsp"),
            np.array([each.predicted["lut"] + LUT_A_DSP * each.predicted["dsp"] for each in held]),
        ),
    }
    found: dict[str, dict[str, Comparison]] = {}
    for name, (measured, ours) in targets.items():
        ways = {"ours": ours}
        for way, amount in (("BOPs", bops), ("EBOPs", ebops)):
            amounts = np.array([[amount(row.layers)] for row in rows])
            ways[way] = held_out(amounts, measured, projects, FLOORS["lut"])
        found[name] = {}
        for way, values in ways.items():
            errors = np.abs(values - measured) / np.maximum(measured, FLOORS["lut"])
            rank = float(scipy.stats.spearmanr(measured, values).statistic)
            found[name][way] = Comparison(float(np.median(errors)), weighted_quantile(errors, weights, 0.5), rank)
    return found


def _figure(rows: Sequence[Measured], figure: str) -> FloatArray:
    return np.array([float(getattr(row, figure) or 0.0) for row in rows])
