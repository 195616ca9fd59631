"""Every integer of a network on given inputs, where a hardware designer or a physicist can look at it.

* :func:`signals` names every value, and every step inside an op (the sum before the bias, the product before the
  shift, the rounded result before clipping), with what is proven of it; :func:`compute` gives their integers;
* :func:`values` counts over any number of rows: ranges, saturation, how roundings fell;
* :func:`write` puts all that into a folder: tables, dumps, memory images; :func:`write_images` only the constants;
* :func:`compare` holds a designer's dump against the interpreter and names the first difference;
* :func:`drift` says what unseen data do to saturation and ranges.

Modules: ``tracing``, ``statistics``, ``memories`` (images of constants, tiles of a MAC array), ``vectors`` (images of
signals), ``reading`` and ``comparing`` (of dumps), ``drifting`` and ``figures``, ``dumping`` (the folder).
docs/trace.md documents the layouts.
"""

from hawq_flow.trace.comparing import Compared, Comparison, Difference, compare
from hawq_flow.trace.drifting import Drift, Thresholds, drift, observe
from hawq_flow.trace.dumping import FORMS, Options, write
from hawq_flow.trace.figures import drift_figure, save
from hawq_flow.trace.memories import Constant, constants, fill_images, read_images, tiles, untiled, write_images
from hawq_flow.trace.reading import ORDERS, read
from hawq_flow.trace.statistics import Rounded, Statistics, frame, markdown, values
from hawq_flow.trace.tracing import Scale, Signal, TraceError, blocks, compute, signals

__all__ = [
    "FORMS",
    "ORDERS",
    "Compared",
    "Comparison",
    "Constant",
    "Difference",
    "Drift",
    "Options",
    "Rounded",
    "Scale",
    "Signal",
    "Statistics",
    "Thresholds",
    "TraceError",
    "blocks",
    "compare",
    "compute",
    "constants",
    "drift",
    "drift_figure",
    "fill_images",
    "frame",
    "markdown",
    "observe",
    "read",
    "read_images",
    "save",
    "signals",
    "tiles",
    "untiled",
    "values",
    "write",
    "write_images",
]
