"""Shared adders of constant matrices against da4ml's on the same weights: adder bits, adders, depth and time.

Random weights of 6 bits, layers 16-64-32-32-5 (signed inputs of 6 bits, then unsigned ones). The peer is da4ml's solver
(C++) at its defaults, with the cost counted in adder bits, where da4ml is installed (``pip install da4ml``); its graphs
are read into ours and counted by the same rule. Otherwise the peer is the plain signed-digit form. One thread, CPU s.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import pairwise

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"  # before numpy loads its BLAS

import numpy as np  # noqa: E402
from outcome import line  # noqa: E402

from hawq_flow.numeric import IntArray  # noqa: E402
from hawq_flow.to_rtl.adders import AdderGraph  # noqa: E402
from hawq_flow.to_rtl.da4ml_optimizer import da4ml_adders  # noqa: E402
from hawq_flow.to_rtl.sharing import least_depth, plain, shared  # noqa: E402

LAYERS = (16, 64, 32, 32, 5)


def main() -> None:
    rng = np.random.default_rng(0)
    ours = peers = seconds = 0.0
    peer = "da4ml"
    print(f"{'layer':>8} {'graph':>12} {'bits':>7} {'adders':>7} {'depth':>6} {'CPU s':>6}")
    for inputs, outputs in pairwise(LAYERS):
        matrix = rng.integers(-31, 32, (inputs, outputs))
        low, high = (-32, 31) if inputs == LAYERS[0] else (0, 63)
        makers: dict[str, Callable[[IntArray, int, int], AdderGraph]] = {
            "plain": lambda m, a, b: plain(m),
            "da4ml": da4ml_adders,
            "low": lambda m, a, b: shared(m, a, b, effort="low"),
            "normal": shared,
            "depth + 2": lambda m, a, b: shared(m, a, b, depth_limit=least_depth(m) + 2),
        }
        bits = {}
        for name, make in makers.items():
            start = time.process_time()
            try:
                graph = make(matrix, low, high)
            except ModuleNotFoundError as error:
                print(error)
                continue
            spent = time.process_time() - start
            bits[name] = graph.adder_bits(low, high)
            shape = f"{inputs}x{outputs}"
            print(f"{shape:>8} {name:>12} {bits[name]:7d} {graph.nodes:7d} {graph.latency:6d} {spent:6.2f}")
            if name == "normal":
                seconds += spent
        peer = "da4ml" if "da4ml" in bits else "plain"
        ours += bits["normal"]
        peers += bits[peer]
    line("adder bits of a 6-bit 16-64-32-32-5 network", ours, peers, peer, target=1, unit="bits")
    line("adders of a 6-bit 16-64-32-32-5 network, absolute", seconds, 6, "the target itself", target=1, unit="CPU s")


if __name__ == "__main__":
    main()
