"""Everything about a design that is not the network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from hawq_flow.to_rtl.sharing import Effort

PIPELINES = ("layer", "none")
OPTIMIZERS = ("shared", "csd", "da4ml")
VIVADO_DSP_BITS = 11
"""Vivado HLS and Vitis HLS make a product by a constant a DSP block when the other factor is wider than this, else
LUTs (reports of 2019 to 2024; see ``hawq_flow.estimate``)."""


class NotSynthesizable(ValueError):
    """A network, or a part of one, that has no exact circuit here; the text names the op, the reason and the fix."""


@dataclass(frozen=True)
class RtlConfig:
    """Everything about a design that is not the network.

    Attributes
    ----------
    pipeline:
        ``"layer"``: one register, at the output of each stage. A number n >= 1: registers inside stages as well, so
        that at most n adders (or comparisons) lie between two. ``"none"``: stages without registers, for proofs.
    dsp_threshold:
        None: no multipliers; products with constants are shifts and adders. N: a product of a value of more than N
        bits by a constant of three or more signed digits is written with ``*``, for synthesis to map to DSPs, as
        vendors' HLS does with N = 11 (:data:`VIVADO_DSP_BITS`).
    optimizer:
        How products with constants become adders: ``"shared"`` (signed digits with shared sub-expressions), ``"csd"``
        (signed digits alone), ``"da4ml"`` (the optional package).
    effort:
        How long ``"shared"`` searches a layer: ``"low"`` (one try), ``"normal"`` or ``"high"``; see ``sharing.shared``.
    max_products:
        Non-zero products that one op may have in all its positions together and still be unrolled wholly, and elements
        that an op without weights may have. Beyond, its module computes one position, and the design has no top.
    max_adders:
        Non-zero products that one module may have at all; beyond, the network is refused.
    """

    pipeline: str | int = "layer"
    dsp_threshold: int | None = None
    optimizer: str = "shared"
    effort: Effort = "normal"
    max_products: int = 20_000
    max_adders: int = 200_000

    def __post_init__(self) -> None:
        if isinstance(self.pipeline, str) and self.pipeline not in PIPELINES:
            raise ValueError(
                f"RtlConfig: pipeline {self.pipeline!r}; expected {' or '.join(map(repr, PIPELINES))}, or how many "
                "adders may lie between two registers"
            )
        if self.optimizer not in OPTIMIZERS:
            raise ValueError(f"RtlConfig: optimizer {self.optimizer!r}; expected one of {', '.join(OPTIMIZERS)}")
        if self.effort not in get_args(Effort):
            raise ValueError(f"RtlConfig: effort {self.effort!r}; expected one of {', '.join(get_args(Effort))}")
        numbers = {
            "dsp_threshold": (self.dsp_threshold, 2),
            "max_products": (self.max_products, 1),
            "max_adders": (self.max_adders, 1),
            "pipeline": (None if isinstance(self.pipeline, str) else self.pipeline, 1),
        }
        for name, (number, least) in numbers.items():
            if number is None and name in ("dsp_threshold", "pipeline"):
                continue
            if isinstance(number, bool) or not isinstance(number, int) or number < least:
                raise ValueError(f"RtlConfig: {name} {number!r}; expected an integer of {least} or more")
