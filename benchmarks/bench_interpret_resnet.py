"""Integer inference of ResNet-18 at 224 x 224 (W8A8, random weights, one thread): the interpreter and float32 torch.

The network is built from the IR's ops alone, in the exact shape of torchvision's ResNet-18 with its batch norms folded.
Weights are random; multipliers are chosen on one image as the network is built, so that activations use their range.
That pass is the plain int64 definition of every op, and the interpreter must give the same integers. The peer is the
same network in float32 torch (convolution with bias, ReLU, add: nothing rounded), one image a call, in this process.
Absolute targets stand in lines of their own: 1 s an image, 60 s for proof and compilation, 2 GB of memory.
"""

from __future__ import annotations

import os
import resource
import statistics
import time
from collections.abc import Callable
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = "1"  # before numpy loads its BLAS

import numpy as np  # noqa: E402
from outcome import line  # noqa: E402

from hawq_flow.interpret import run  # noqa: E402
from hawq_flow.network import (  # noqa: E402
    Add,
    Conv,
    Dense,
    InputSpec,
    IntegerNetwork,
    MaxPool,
    Op,
    OutputSpec,
    Requantize,
    Reshape,
    SumPool,
    forward,
    verify,
)
from hawq_flow.numeric import IntArray, IntType, nearest_dyadic  # noqa: E402

UINT8, INT8 = IntType(8, signed=False), IntType(8, signed=True)
STAGES, IMAGES, RUNS = ((64, 1), (128, 2), (256, 2), (512, 2)), 4, 5
"""Channels and first stride of each stage of two blocks; images timed, and how many times."""


class Builder:
    """Ops so far, and every value of one image."""

    def __init__(self, image: IntArray) -> None:
        self.rng = np.random.default_rng(0)
        self.ops: list[Op] = []
        self.env = {"x": image}
        self.macs = 0

    def add(self, op: Op) -> str:
        self.ops.append(op)
        self.env[op.name] = forward(op, [self.env[name] for name in op.inputs])
        return op.name

    def conv(self, name: str, source: str, outputs: int, kernel: int, stride: int) -> str:
        # Normal weights that reach the ends of int8 in most channels, as max-abs scales per channel make them.
        shape = (outputs, self.env[source].shape[1], kernel, kernel)
        weight = np.clip(np.rint(self.rng.normal(0, 40, shape)), -127, 127).astype(np.int64)
        bias = self.rng.integers(-2000, 2000, outputs)
        self.add(Conv(name, source, weight, bias, (stride, stride), (kernel // 2,) * 4))
        self.macs += weight.size * self.env[name][0, 0].size
        return name

    def requantize(self, name: str, source: str, type: IntType, *, per_channel: bool = True) -> str:
        """To the range of ``type``, by each channel's (or the whole value's) 99.9th percentile on the image."""
        x = np.abs(self.env[source][0].astype(np.float64))
        space = tuple(range(1, x.ndim)) if per_channel else None
        reach = np.maximum(np.quantile(x, 0.999, axis=space, keepdims=True), 1)
        multiplier, shift = nearest_dyadic(type.range[1] / reach, 16)
        return self.add(Requantize(name, source, multiplier, shift, np.zeros((), np.int64), type))

    def block(self, name: str, source: str, outputs: int, stride: int) -> str:
        self.conv(f"{name}_c1", source, outputs, 3, stride)
        self.requantize(f"{name}_q1", f"{name}_c1", UINT8)
        self.conv(f"{name}_c2", f"{name}_q1", outputs, 3, 1)
        self.requantize(f"{name}_q2", f"{name}_c2", INT8)
        if self.env[source].shape != self.env[f"{name}_c2"].shape:
            source = self.conv(f"{name}_c0", source, outputs, 1, stride)
        self.requantize(f"{name}_q0", source, INT8, per_channel=source.endswith("_c0"))
        self.add(Add(f"{name}_sum", (f"{name}_q2", f"{name}_q0")))
        return self.requantize(f"{name}_q", f"{name}_sum", UINT8, per_channel=False)


def resnet18(image: IntArray) -> tuple[IntegerNetwork, dict[str, IntArray], int]:
    """The network, every value of ``image`` (1, 3, 224, 224) by definition, and its multiplications."""
    build = Builder(image)
    build.conv("stem", "x", 64, 7, 2)
    build.requantize("stem_q", "stem", UINT8)
    x = build.add(MaxPool("pool", "stem_q", (3, 3), (2, 2), (1, 1, 1, 1)))
    for i, (channels, stride) in enumerate(STAGES):
        x = build.block(f"s{i}a", x, channels, stride)
        x = build.block(f"s{i}b", x, channels, 1)
    size = build.env[x].shape[2:]
    build.add(SumPool("sum", x, size, size, (0,) * 4))
    build.requantize("mean", "sum", UINT8, per_channel=False)
    build.add(Reshape("flat", "mean", (512,)))
    weight = np.clip(np.rint(build.rng.normal(0, 40, (1000, 512))), -127, 127).astype(np.int64)
    build.add(Dense("fc", "flat", weight, build.rng.integers(-2000, 2000, 1000)))
    build.macs += weight.size
    net = IntegerNetwork((InputSpec("x", image.shape[1:], INT8),), tuple(build.ops), (OutputSpec("fc"),))
    return net, build.env, build.macs


def timed(function: Callable[..., object], *arguments: object) -> float:
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    rng = np.random.default_rng(1)
    # Smooth images, as photographs are: noise at 28 x 28 enlarged eight times, and some noise on it.
    coarse = rng.normal(0, 45, (IMAGES, 3, 28, 28)).repeat(8, 2).repeat(8, 3)
    images = np.clip(np.rint(coarse + rng.normal(0, 8, coarse.shape)), -128, 127).astype(np.int64)
    net, expected, macs = resnet18(images[:1])
    before = megabytes()
    proof = timed(verify, net)
    first = timed(run, net, images[:1])
    found = run(net, images[:1])
    assert (found == expected["fc"]).all(), "the interpreter differs from the definition"
    activations = [expected[op.name] for op in net.ops if isinstance(op, Requantize) and op.type == UINT8]
    used = [float((a == 255).mean()) for a in activations], [float((a > 0).mean()) for a in activations]
    assert max(used[0]) < 0.02, f"saturated activations: {used[0]}"
    assert min(used[1]) > 0.2, f"dead activations: {used[1]}"

    ours = [timed(run, net, images) / IMAGES for _ in range(RUNS)]
    peak = megabytes()
    import torch  # after the memory was measured

    torch.set_num_threads(1)
    peer = torch_peer(net)
    with torch.inference_mode():
        batch = torch.tensor(images, dtype=torch.float32)
        peer(batch[:1])
        theirs = [timed(lambda: [peer(image[None]) for image in batch]) / IMAGES for _ in range(RUNS)]
    a, b = statistics.median(ours), statistics.median(theirs)
    line("integer inference of ResNet-18, an image", a, b, "torch float32, one thread", target=0.5, unit="s")
    line(f"the same ({macs / 1e9:.2f} G products)", a, 1.0, "the target itself", target=1, unit="s")
    line("interval proof of ResNet-18", proof, 60.0, "the target itself", target=1, unit="s")
    line("first image: compile and run", first, 60.0, "the target itself", target=1, unit="s")
    line("peak memory", peak, 2048, f"the target itself ({before:.0f} MB before)", target=1, unit="MB", digits=0)


def torch_peer(net: IntegerNetwork) -> Callable[[Any], Any]:
    """The same network in float32: multipliers inside the weights, ReLU for unsigned types, nothing rounded."""
    import torch
    from torch.nn import functional as F

    def tensor(array: Any) -> torch.Tensor:
        return torch.tensor(array, dtype=torch.float32)

    constants: dict[str, tuple[torch.Tensor, ...]] = {}
    for op in net.ops:
        if isinstance(op, Conv | Dense):
            constants[op.name] = (
                torch.tensor(op.weight, dtype=torch.float32),
                torch.tensor(op.bias, dtype=torch.float32),
            )
    for op in net.ops:
        if isinstance(op, Requantize):
            factor = tensor(np.ldexp(op.multiplier.astype(float), -op.shift))
            if len(constants.get(op.input, ())) == 2:  # a layer's sums: its weights take the factor
                weight, bias = constants[op.input]
                constants[op.input] = weight * factor[..., None], bias * factor.reshape(-1)
            else:
                constants[op.name] = (factor,)

    def forward(x: torch.Tensor) -> torch.Tensor:
        env = {"x": x}
        for op in net.ops:
            y = env[op.inputs[0]]
            if isinstance(op, Conv):
                weight, bias = constants[op.name]
                y = F.conv2d(y, weight, bias, op.stride, op.padding[:2])
            elif isinstance(op, Requantize):
                y = y * constants[op.name][0] if op.name in constants else y
                y = y.relu() if not op.type.signed else y
            elif isinstance(op, MaxPool):
                y = F.max_pool2d(y, op.kernel, op.stride, op.padding[:2])
            elif isinstance(op, SumPool):
                y = y.sum((2, 3), keepdim=True)
            elif isinstance(op, Add):
                y = y + env[op.inputs[1]]
            elif isinstance(op, Reshape):
                y = y.flatten(1)
            elif isinstance(op, Dense):
                y = F.linear(y, *constants[op.name])
            env[op.name] = y
        return env["fc"]

    return forward


if __name__ == "__main__":
    main()
