"""Hardware figures before any synthesis, with error bars: LUT, FF, DSP, BRAM, latency, interval of integer networks.

:func:`estimate` reads a network, :func:`estimate_plan` a bit plan; :func:`cost_tables` makes tables for the allocator;
:func:`calibrate` fits the shipped coefficients to a user's own reports. See docs/estimates.md.
"""

from hawq_flow.estimate.calibrating import Calibration, calibrate, markdown
from hawq_flow.estimate.coefficients import (
    FIGURES,
    STAGE_FIGURES,
    STAGES,
    Coefficients,
    Model,
    Spread,
    Stage,
    shipped,
)
from hawq_flow.estimate.counts import Counts
from hawq_flow.estimate.estimating import Bar, Estimate, Figures, estimate, estimate_layers
from hawq_flow.estimate.features import EstimateError, HardwareConfig, LayerFeatures, dense_features, features
from hawq_flow.estimate.tables import CostTable, CostTables, cost_tables, estimate_plan
from hawq_flow.estimate.text import estimate_markdown

__all__ = [
    "FIGURES",
    "STAGES",
    "STAGE_FIGURES",
    "Bar",
    "Calibration",
    "Coefficients",
    "CostTable",
    "CostTables",
    "Counts",
    "Estimate",
    "EstimateError",
    "Figures",
    "HardwareConfig",
    "LayerFeatures",
    "Model",
    "Spread",
    "Stage",
    "calibrate",
    "cost_tables",
    "dense_features",
    "estimate",
    "estimate_layers",
    "estimate_markdown",
    "estimate_plan",
    "features",
    "markdown",
    "shipped",
]
