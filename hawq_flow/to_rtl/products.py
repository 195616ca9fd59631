"""Products with constants in a circuit: an adder graph as wires, or multipliers beyond a threshold."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from hawq_flow.numeric import IntArray
from hawq_flow.to_rtl.adders import AdderGraph, proved
from hawq_flow.to_rtl.circuit import Circuit, Signal, constant
from hawq_flow.to_rtl.config import RtlConfig
from hawq_flow.to_rtl.csd import HARD_DIGITS, csd_count
from hawq_flow.to_rtl.da4ml_optimizer import da4ml_adders
from hawq_flow.to_rtl.sharing import Effort, least_depth, plain, shared

DEPTH_SLACK = 2
"""Adders on the longest path beyond the fewest possible: 1 or 2 % more of them in all, at a third of the depth."""


def adders(
    matrix: IntArray, low: IntArray, high: IntArray, optimizer: str, effort: Effort, *, free_signs: bool = True
) -> AdderGraph:
    """The graph of ``x @ matrix`` (inputs, outputs) by one of ``config.OPTIMIZERS``, for x within the bounds.

    ``free_signs``: an output may come with the sign -1, which whoever adds a bias to it takes for nothing.
    """
    if optimizer == "da4ml":
        graph = da4ml_adders(matrix, low, high)
    else:
        graph = plain(matrix)
        if optimizer == "shared":
            limit = least_depth(matrix) + DEPTH_SLACK
            graph = shared(matrix, low, high, depth_limit=limit, effort=effort, free_signs=free_signs)
    return proved(graph, matrix)


@lru_cache(maxsize=4096)
def multiple(factor: int, optimizer: str) -> AdderGraph:
    """The graph of ``factor * x``."""
    one = np.array([1], dtype=np.int64)
    how = "csd" if optimizer == "csd" else "shared"
    most = one << max(0, min(16, 55 - factor.bit_length()))  # within the reach of a graph; it weighs the choice alone
    return adders(factor * one[None], 0 * one, most, how, "low", free_signs=False)


def instantiate(circuit: Circuit, graph: AdderGraph, x: Sequence[Signal]) -> list[tuple[Signal, int]]:
    """The graph's adders as wires: for each output its signal and its sign (1, -1), widths from the exact ranges."""
    low = np.array([v.low for v in x], dtype=np.int64)
    high = np.array([v.high for v in x], dtype=np.int64)
    lows, highs = (ends.tolist() for ends in graph.intervals(low, high))
    values = list(x)
    for k, (a, b, s, t, minus) in enumerate(graph.steps(), len(x)):
        values.append(circuit.add(values[a] << s, values[b] << t, minus=minus, low=lows[k], high=highs[k]))
    return [(constant(0), 1) if v < 0 else (values[v] << shift, sign) for v, shift, sign in graph.ends()]


def scaled(circuit: Circuit, x: Signal, factor: int, config: RtlConfig) -> Signal:
    """``factor * x``, factor > 0."""
    if x.constant:
        return constant(x.low * factor)
    if multiplied(factor, x, config):
        return circuit.product(x, constant(factor))
    product, sign = instantiate(circuit, multiple(factor, config.optimizer), [x])[0]
    return product if sign > 0 else circuit.add(constant(0), product, minus=True)


def multiplied(factor: int, x: Signal, config: RtlConfig) -> bool:
    """Whether ``factor * x`` is a multiplication, as vendors' HLS tells: see ``RtlConfig.dsp_threshold``."""
    if config.dsp_threshold is None or x.constant or x.top - x.shift <= config.dsp_threshold:
        return False
    return int(csd_count(factor)) >= HARD_DIGITS
