"""Compiled quantized training of the jet tagger (16-64-32-32-5, W8A8, batch 1024, one thread) against Brevitas.

In turn, in one process. The peer trains in `train.fit`'s loop, as in bench_train, which is faster than its users'
DataLoader. Ours is `fast_train.fit` whole: inputs quantized, network opened, frozen, closed. It trains more epochs than
the peer, since at a hundred epochs to a sweep's plan what stands before the first must weigh as little here. Then four
plans side by side, each plan's rate; and with batch norm, which ours folds in training, and the peer, to its advantage,
does not quantize.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from bench_train import SAMPLES, SIZES, float_network, peer
from outcome import line
from torch import nn

from hawq_flow import fast_train, train
from hawq_flow.plan import BitPlan
from hawq_flow.quant import QuantNetwork, quantize
from hawq_flow.topology import read
from hawq_flow.train import TrainConfig

EPOCHS, PEER_EPOCHS, ROUNDS, PLANS = 25, 1, 5, 4


def with_batch_norm(model: nn.Module) -> nn.Sequential:
    """Every linear layer but the last followed by batch norm."""
    layers: list[nn.Module] = []
    children = list(model.children())
    for i, layer in enumerate(children):
        layers.append(layer)
        if isinstance(layer, nn.Linear) and i < len(children) - 1:
            layers.append(nn.BatchNorm1d(layer.out_features))
    return nn.Sequential(*layers)


def network(bits: int, x: np.ndarray, batch_norm: bool = False) -> QuantNetwork:
    """Calibrated, with weights and activations of so many bits and an input of 16."""
    model = with_batch_norm(float_network()) if batch_norm else float_network()
    quantized = quantize(model, BitPlan.homogeneous(read(model).shapes, bits, bits))
    quantized.calibrate(torch.from_numpy(x))
    return quantized


def rate(samples: int, work: Callable[[], object]) -> float:
    """Samples a second."""
    start = time.perf_counter()
    work()
    return samples / (time.perf_counter() - start)


def peer_rate(model: nn.Module, x: np.ndarray, y: np.ndarray) -> float:
    """Samples a second of the peer's network."""
    config = TrainConfig(epochs=PEER_EPOCHS, device="cpu")
    return rate(len(x) * PEER_EPOCHS, partial(train.fit, model, x, y, config))


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(SAMPLES, SIZES[0])).astype(np.float32)
    y = (x @ rng.normal(size=(SIZES[0], SIZES[-1]))).argmax(axis=1)
    config = TrainConfig(epochs=EPOCHS, device="cpu")
    reason = fast_train.supported(network(8, x), config)  # compiles
    if reason:
        raise SystemExit(f"bench_fast_train: {reason}")
    names = ("Brevitas", "one", "side by side", "batch norm", "Brevitas with batch norm")
    rates: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(ROUNDS):
        alone, normed = network(8, x), network(8, x, True)
        plans = [network(bits, x) for bits in range(8, 8 - PLANS, -1)]
        rates["Brevitas"].append(peer_rate(peer(), x, y))
        rates["one"].append(rate(len(x) * EPOCHS, partial(fast_train.fit, alone, x, y, config)))
        work = partial(fast_train.fit_many, plans, x, y, [config] * PLANS)
        rates["side by side"].append(rate(len(x) * EPOCHS * PLANS, work))
        rates["batch norm"].append(rate(len(x) * EPOCHS, partial(fast_train.fit, normed, x, y, config)))
        rates["Brevitas with batch norm"].append(peer_rate(with_batch_norm(peer()), x, y))
    for name, ours, theirs, target in (
        ("compiled qat training of the jet tagger", "one", "Brevitas", 15),
        (f"compiled qat training, {PLANS} plans side by side", "side by side", "Brevitas", 20),
        ("compiled qat training with batch norm", "batch norm", "Brevitas with batch norm", 12),
    ):
        line(
            name,
            statistics.median(rates[ours]),
            statistics.median(rates[theirs]),
            theirs,
            ratio=statistics.median(p / q for p, q in zip(rates[ours], rates[theirs], strict=True)),
            target=target,
            unit="samples/s",
            more_is_better=True,
            digits=0,
        )


if __name__ == "__main__":
    main()
