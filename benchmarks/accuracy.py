"""Accuracy of quantized training on the shipped jets: ours against Brevitas, same float networks, same recipe.

For every seed one float network is trained; from its weights both tools train W = A = 8, 6, 4, 3, 2 bits with an INT16
input for as many epochs, by the same loop (``train.fit``). Brevitas is also trained from scratch, and its better result
counts. Not part of ``make bench``: it measures accuracy and takes many minutes. One JSON object a line.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

import brevitas.nn as qnn
import numpy as np
import torch
from bench_train import SIZES, float_network, peer
from outcome import line
from torch import nn

from hawq_flow import data
from hawq_flow.plan import BitPlan
from hawq_flow.quant import quantize
from hawq_flow.topology import read
from hawq_flow.train import TrainConfig, evaluate, fit

JETS = Path(__file__).parent.parent / "experiments" / "jets"


def copied(model: nn.Module, source: nn.Sequential) -> nn.Module:
    """``model`` with the weights of ``source``'s linear layers."""
    linear = [layer for layer in source if isinstance(layer, nn.Linear)]
    for own, other in zip([m for m in model.modules() if isinstance(m, qnn.QuantLinear)], linear, strict=True):
        own.weight.data.copy_(other.weight)
        own.bias.data.copy_(other.bias)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--bits", type=int, nargs="+", default=[8, 6, 4, 3, 2])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    split = data.load("jets", root=JETS)
    standardization = split.standardization()
    x, test = (standardization.apply(part.x).astype(np.float32) for part in (split.train, split.test))
    y, labels = split.train.y, split.test.y
    ours: dict[int, list[float]] = {bits: [] for bits in arguments.bits}
    theirs: dict[int, list[float]] = {bits: [] for bits in arguments.bits}
    for seed in range(arguments.seeds):
        recipe = TrainConfig(epochs=60, seed=seed, device="cpu")
        torch.manual_seed(seed)
        start = float_network()
        fit(start, x, y, TrainConfig(epochs=100, seed=seed, device="cpu"))
        for bits in arguments.bits:
            model = quantize(start, BitPlan.homogeneous(read(start).shapes, bits, bits))
            fit(model, x, y, recipe)
            ours[bits].append(evaluate(model, test, labels))
            best = []
            for other in (copied(peer(bits), start), peer(bits)):
                fit(other, x, y, recipe)
                best.append(evaluate(other, test, labels))
            theirs[bits].append(max(best))
    for bits in arguments.bits:
        a, b = statistics.mean(ours[bits]), statistics.mean(theirs[bits])
        line(
            f"test accuracy of {'-'.join(map(str, SIZES))} at W{bits}A{bits}",
            a,
            b,
            "Brevitas, better of two starts",
            target=1,
            unit=f"fraction, mean of {arguments.seeds} seeds",
            more_is_better=True,
        )


if __name__ == "__main__":
    main()
