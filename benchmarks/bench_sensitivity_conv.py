"""Hessian traces of a digits CNN (8x8) and a ResNet-8 (32x32): exact, against PyHessian's 100 iterations.

Same model, same samples, same process, one thread, CPU seconds (so that a busy machine does not show). PyHessian runs
once over all parameters, the cheapest way to use it, and gives one trace with a random error, which is printed; ours
gives every layer's and every activation's. Its error is that of its trace over the weights against the sum of our
exact ones (the biases' part, which PyHessian's trace has and ours has not, is taken out by freezing them). Peak memory
is the process's (torch included) in a run of its own, exact traces, activations and eigenvalues.

The networks are randomly initialized, batch norm folded (so without), which changes nothing of the work.
"""

from __future__ import annotations

import math
import os
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"  # before torch loads its BLAS

import pyhessian  # noqa: E402
import torch  # noqa: E402
from outcome import line  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from hawq_flow.sensitivity import measure  # noqa: E402

ITERATIONS = 100


class Block(nn.Module):
    """A residual block of ResNet-8."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1)
        self.skip = nn.Identity() if stride == 1 else nn.Conv2d(inputs, outputs, 1, stride)
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        inner: Tensor = self.conv2(self.relu(self.conv1(x))) + self.skip(x)
        return inner.relu()


def resnet8() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 1, 1),
        nn.ReLU(),
        Block(16, 16, 1),
        Block(16, 32, 2),
        Block(32, 64, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


def digits_cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    )


CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "digits CNN": (digits_cnn, (1, 8, 8), 1347),
    "ResNet-8": (resnet8, (3, 32, 32), 128),
}


def case(name: str) -> tuple[nn.Module, Tensor, Tensor]:
    build, shape, samples = CASES[name]
    torch.manual_seed(0)
    return build(), torch.randn(samples, *shape), torch.randint(0, 10, (samples,))


def seconds(work: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return statistics.median(times)


def hutchinson(model: nn.Module, x: Tensor, y: Tensor) -> list[float]:
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.endswith("weight"))
    model.zero_grad(set_to_none=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Using backward\(\) with create_graph=True", category=UserWarning)
        operator = pyhessian.hessian(model, nn.CrossEntropyLoss(), data=(x, y), cuda=False)
        values = operator.trace(maxIter=ITERATIONS, tol=-math.inf)
    model.zero_grad(set_to_none=True)
    return [float(value) for value in values]


def peak(name: str) -> float:
    """MB that a process of its own takes for all of it."""
    return float(subprocess.run([sys.executable, __file__, name], check=True, capture_output=True, text=True).stdout)


def main() -> None:
    torch.set_num_threads(1)
    if len(sys.argv) > 1:
        model, x, y = case(sys.argv[1])
        measure(model, x, y, method="exact")
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        return
    for name in CASES:
        model, x, y = case(name)
        measure(model, x[:8], y[:8], method="exact", eigenvalue_samples=0)
        ours = seconds(partial(measure, model, x, y, method="exact", eigenvalue_samples=0), 3)
        eigenvalues = seconds(partial(measure, model, x, y, method="exact"), 1)
        rough = partial(measure, model, x, y, method="sketch", relative_error=0.05, eigenvalue_samples=0)
        sketch = seconds(rough, 1)
        exact = sum(layer.trace for layer in measure(model, x, y, method="exact", eigenvalue_samples=0).layers)
        start = time.process_time()
        probes = hutchinson(model, x, y)
        peer = time.process_time() - start
        error = abs(statistics.mean(probes) / exact - 1)
        stated = statistics.stdev(probes) / math.sqrt(len(probes)) / exact
        by = f"PyHessian 0.1, {ITERATIONS} iterations, error {error:.1%} (standard {stated:.1%})"
        line(f"Hessian traces of {name}, {len(x)} samples", ours, peer, by, target=5, unit="CPU s")
        line(f"the same with top eigenvalues, {name}", eigenvalues, peer, by, target=1, unit="CPU s")
        line(f"the same sketched to 5 %, {name}", sketch, peer, by, target=1, unit="CPU s")
        line(f"Peak memory of {name}", peak(name), 2048, "the target itself", target=1, unit="MB", digits=1)


if __name__ == "__main__":
    main()
