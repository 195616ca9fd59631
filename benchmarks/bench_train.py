"""Quantized training of the jet tagger (16-64-32-32-5, W8A8, batch 1024, one thread): ours against Brevitas, in turn.

Both train by the same loop (`train.fit`: data in one tensor, fused Adam), so the ratio is of the quantizers alone and
errs on Brevitas' side: its users' usual DataLoader would cost it another third.
"""

from __future__ import annotations

import statistics
import time
import warnings
from itertools import pairwise

import numpy as np
import torch
from outcome import line
from torch import nn

from hawq_flow.plan import BitPlan, LayerShape
from hawq_flow.quant import quantize
from hawq_flow.train import TrainConfig, fit

SIZES = (16, 64, 32, 32, 5)
SAMPLES, EPOCHS, ROUNDS, BITS = 49152, 4, 5, 8


def float_network() -> nn.Sequential:
    layers: list[nn.Module] = []
    for n, m in pairwise(SIZES):
        layers += [nn.Linear(n, m), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def peer(bits: int = BITS) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Brevitas' import warns of torch's deprecations
        import brevitas.nn as qnn
        from brevitas.quant import Int8ActPerTensorFloat, Int8WeightPerTensorFloat, Uint8ActPerTensorFloat
    layers: list[nn.Module] = [qnn.QuantIdentity(bit_width=16, act_quant=Int8ActPerTensorFloat)]
    for i, (n, m) in enumerate(pairwise(SIZES)):
        layers.append(qnn.QuantLinear(n, m, bias=True, weight_bit_width=bits, weight_quant=Int8WeightPerTensorFloat))
        if i < len(SIZES) - 2:
            layers.append(qnn.QuantReLU(bit_width=bits, act_quant=Uint8ActPerTensorFloat))
    return nn.Sequential(*layers)


def throughput(model: nn.Module, x: np.ndarray, y: np.ndarray) -> float:
    """Samples a second."""
    start = time.perf_counter()
    fit(model, x, y, TrainConfig(epochs=EPOCHS, device="cpu"))
    return EPOCHS * len(x) / (time.perf_counter() - start)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(SAMPLES, SIZES[0])).astype(np.float32)
    y = (x @ rng.normal(size=(SIZES[0], SIZES[-1]))).argmax(axis=1)
    names = [str(i) for i in range(0, 2 * (len(SIZES) - 1), 2)]
    shapes = [
        LayerShape(name, n, m, source)
        for name, n, m, source in zip(names, SIZES, SIZES[1:], ["x", *names], strict=False)
    ]
    plan = BitPlan.homogeneous(shapes, BITS, BITS)
    ours, theirs = [], []
    for _ in range(ROUNDS):
        model = quantize(float_network(), plan)
        model.calibrate(torch.from_numpy(x))
        ours.append(throughput(model, x, y))
        theirs.append(throughput(peer(), x, y))
    a, b = statistics.median(ours), statistics.median(theirs)
    ratio = statistics.median(p / q for p, q in zip(ours, theirs, strict=True))
    line(
        "qat training of the jet tagger",
        a,
        b,
        "Brevitas",
        ratio=ratio,
        target=3,
        unit="samples/s",
        more_is_better=True,
        digits=0,
    )


if __name__ == "__main__":
    main()
