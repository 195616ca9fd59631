"""Speed of the estimates: entries of cost tables a second, against what an entry stands for.

The peer is sharing sub-expressions in one layer's matrix by to_rtl's optimizer and counting its adders.
"""

from __future__ import annotations

import time

import numpy as np
from outcome import line

from hawq_flow.estimate import HardwareConfig, Stage, cost_tables
from hawq_flow.plan import LayerShape
from hawq_flow.to_rtl.sharing import shared

STAGES: tuple[Stage, ...] = ("csynth", "open")
SHAPES = (
    LayerShape("fc1", 16, 64, "x"),
    LayerShape("fc2", 64, 32, "fc1"),
    LayerShape("fc3", 32, 32, "fc2"),
    LayerShape("head", 32, 5, "fc3"),
)
WIDTHS = tuple(range(2, 9))
INPUTS = {"fc1": (16,), "fc2": tuple(range(3, 9)), "fc3": tuple(range(3, 9)), "head": tuple(range(3, 9))}


def main() -> None:
    """Measure and print."""
    rng = np.random.default_rng(0)
    weights = {
        shape.name: {
            bits: rng.integers(-(2 ** (bits - 1)) + 1, 2 ** (bits - 1), (shape.outputs, shape.fan_in))
            for bits in WIDTHS
        }
        for shape in SHAPES
    }
    entries = sum(len(WIDTHS) * len(INPUTS[shape.name]) for shape in SHAPES)
    hardware = HardwareConfig()
    begin = time.perf_counter()
    tables = [cost_tables(SHAPES, WIDTHS, INPUTS, hardware, stage, weights=weights) for stage in STAGES]
    ours = entries * sum(map(len, tables)) / (time.perf_counter() - begin)
    begin = time.perf_counter()
    matrix = weights["fc3"][6]
    graph = shared(matrix.T, np.zeros(32, np.int64), np.full(32, 63))
    graph.adder_bits(np.zeros(32, np.int64), np.full(32, 63))
    peer = 1 / (time.perf_counter() - begin)
    line(
        "estimate_tables",
        ours,
        peer,
        "to_rtl optimizer",
        target=1000.0,
        unit="entries/s",
        more_is_better=True,
    )


if __name__ == "__main__":
    main()
