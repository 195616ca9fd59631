"""A preflight for any QONNX or ONNX file: what stock hls4ml refuses, crashes on or gets wrong, in one table; and a
repair.

``check`` reads a file (onnx and numpy alone; hls4ml need not be there) and lists a :class:`Finding` for each node that
hls4ml 1.3.0 would not carry over exactly, on the road that its documentation names: qonnx's cleanup, channels last for
convolutions, GemmToMatMul, ``config_from_onnx_model`` and ``convert_from_onnx_model``. ``repair`` imports the file as
an integer network and writes an equal model that passes.

Modules: ``findings`` (what is found, tables, the verdict), ``needs`` (bits), ``malformed`` (files that ONNX forbids),
``reading`` (the file after cleaning), ``ranges`` (what tensors hold), ``rules*`` (refused, crash, wrong),
``precisions`` (imprecise), ``unrepairable``, ``repairing``.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from hawq_flow.check_hls.findings import KINDS, Finding, exact, markdown, precision, ready, table, verdict
from hawq_flow.check_hls.malformed import Guard, sift
from hawq_flow.check_hls.needs import Need
from hawq_flow.check_hls.precisions import imprecise
from hawq_flow.check_hls.ranges import ranges
from hawq_flow.check_hls.reading import Unreadable, load, read
from hawq_flow.check_hls.repairing import RepairRefused, for_hls4ml, repair
from hawq_flow.check_hls.rules import structural
from hawq_flow.check_hls.rules_malformed import sound
from hawq_flow.check_hls.unrepairable import unquantized, without_repair

__all__ = [
    "DEFAULT_PRECISION",
    "KINDS",
    "Finding",
    "RepairRefused",
    "Unreadable",
    "check",
    "exact",
    "for_hls4ml",
    "markdown",
    "precision",
    "ready",
    "repair",
    "table",
    "verdict",
]

DEFAULT_PRECISION = "fixed<16,6>"
"""hls4ml's own default."""


def check(model: onnx.ModelProto | Path | str, *, default_precision: str = DEFAULT_PRECISION) -> tuple[Finding, ...]:
    """Everything that stock hls4ml 1.3.0 would refuse, crash on, get wrong or store in too few bits.

    Parameters
    ----------
    model:
        A QONNX or ONNX model, or the path of one. It is not changed.
    default_precision:
        The default precision that the user will give to hls4ml, a signed ``fixed<W,I>``; what it loses is "imprecise".

    Raises
    ------
    Unreadable
        If the path holds no ONNX model.
    ValueError
        If ``default_precision`` is no signed ``fixed<W,I>``.
    """
    default, guard = Need.read(default_precision), Guard()
    with np.errstate(all="ignore"):  # a file may hold any number: what is none becomes a finding
        given, malformed = sift(load(model))
        reading, meaningless = sound(read(given), guard)
        known = ranges(reading, guard)
        found = (*structural(reading, known, guard), *imprecise(reading, known, guard, default))
        floats = unquantized(reading)
    every = (*malformed, *meaningless, *guard.found.values(), *found)
    return tuple(without_repair(finding, floats) for finding in every) if floats else every
