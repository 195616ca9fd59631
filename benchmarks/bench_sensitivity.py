"""Hessian traces of the jet network (16-64-32-32-5) on 100,000 jets: exact, against PyHessian's 100 iterations.

Same model, same samples, same process, one thread, CPU seconds (so that a busy machine does not show). PyHessian runs
once over all parameters, the cheapest way to use it, and gives one trace with a random error; ours gives every layer's,
exactly. The absolute target, 0.5 s, stands in a line of its own, with the activations' traces; a last one adds every
weight's second derivative and the top eigenvalues.
"""

from __future__ import annotations

import math
import os
import statistics
import time
import warnings
from collections.abc import Callable
from itertools import pairwise

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"  # before torch loads its BLAS

import pyhessian  # noqa: E402
import torch  # noqa: E402
from outcome import line  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from hawq_flow.sensitivity import measure  # noqa: E402

SIZES, SAMPLES, ITERATIONS = (16, 64, 32, 32, 5), 100_000, 100


def network() -> nn.Module:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for n, m in pairwise(SIZES):
        layers += [nn.Linear(n, m), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def seconds(work: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return statistics.median(times)


def hutchinson(model: nn.Module, x: Tensor, y: Tensor) -> None:
    model.zero_grad(set_to_none=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Using backward\(\) with create_graph=True", category=UserWarning)
        operator = pyhessian.hessian(model, nn.CrossEntropyLoss(), data=(x, y), cuda=False)
        assert len(operator.trace(maxIter=ITERATIONS, tol=-math.inf)) == ITERATIONS
    model.zero_grad(set_to_none=True)


def main() -> None:
    torch.set_num_threads(1)
    model = network()
    x, y = torch.randn(SAMPLES, SIZES[0]), torch.randint(0, SIZES[-1], (SAMPLES,))
    measure(model, x[:1000], y[:1000])
    ours = seconds(lambda: measure(model, x, y, eigenvalue_samples=0), 7)
    peer = seconds(lambda: hutchinson(model, x, y), 1)
    weights = seconds(lambda: measure(model, x, y, eigenvalue_samples=0, activations=False), 7)
    line(
        "Hessian traces in all weights of 100,000 jets",
        weights,
        peer,
        f"PyHessian 0.1, {ITERATIONS} iterations",
        target=100,
        unit="CPU s",
    )
    line(
        "Hessian traces in all weights and activations of 100,000 jets",
        ours,
        0.5,
        "the target itself",
        target=1,
        unit="CPU s",
    )
    more = seconds(lambda: measure(model, x, y, diagonals=True), 3)
    line(
        "Hessian traces, diagonals and top eigenvalues of 100,000 jets",
        more,
        peer,
        f"PyHessian 0.1, {ITERATIONS} iterations, one trace only",
        target=1,
        unit="CPU s",
    )


if __name__ == "__main__":
    main()
