"""Integer inference of 100,000 jets (16-64-32-32-5, W8A8, INT16 input, one thread): the interpreter against qonnx.

The peer is qonnx's executor on the same network's QONNX export, on as many rows as it does in seconds, its batch in one
call. The absolute target, 0.1 s for 100,000 jets, stands in a line of its own.
"""

from __future__ import annotations

import os
import statistics
import time
from itertools import pairwise

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = "1"  # before numpy loads its BLAS

import numpy as np  # noqa: E402
import torch  # noqa: E402
from outcome import line  # noqa: E402
from qonnx.core.modelwrapper import ModelWrapper  # noqa: E402
from qonnx.core.onnx_exec import execute_onnx  # noqa: E402

from hawq_flow import to_qonnx  # noqa: E402
from hawq_flow.interpret import run  # noqa: E402
from hawq_flow.network import Dense, InputSpec, IntegerNetwork, Op, OutputSpec, Requantize  # noqa: E402
from hawq_flow.numeric import IntType  # noqa: E402

SIZES, ROWS, PEER_ROWS = (16, 64, 32, 32, 5), 100_000, 2_000


def network() -> IntegerNetwork:
    rng = np.random.default_rng(0)
    ops: list[Op] = []
    source = "x"
    for i, (n, m) in enumerate(pairwise(SIZES)):
        last = i == len(SIZES) - 2
        ops.append(Dense(f"fc{i}", source, rng.integers(-127, 128, (m, n)), rng.integers(-1000, 1000, m)))
        shift = np.full(m, 23 if i == 0 else 15)
        kind = IntType(16, signed=True) if last else IntType(8, signed=False)
        ops.append(Requantize(f"q{i}", f"fc{i}", rng.integers(128, 256, m), shift, np.zeros((), np.int64), kind))
        source = f"q{i}"
    return IntegerNetwork((InputSpec("x", (SIZES[0],), IntType(16, signed=True)),), tuple(ops), (OutputSpec(source),))


def main() -> None:
    torch.set_num_threads(1)
    net = network()
    x = np.random.default_rng(1).integers(-(2**15), 2**15, (ROWS, SIZES[0]))
    model = to_qonnx.with_batch(to_qonnx.export(net), PEER_ROWS)
    wrapper = ModelWrapper(model)
    feed = {model.graph.input[0].name: x[:PEER_ROWS].astype(np.float32)}
    run(net, x[:1000])
    ours, theirs = [], []
    for _ in range(5):
        start = time.perf_counter()
        run(net, x)
        ours.append((time.perf_counter() - start) / ROWS)
        start = time.perf_counter()
        execute_onnx(wrapper, feed)
        theirs.append((time.perf_counter() - start) / PEER_ROWS)
    a, b = statistics.median(ours), statistics.median(theirs)
    line(
        "integer inference, rows a second",
        1 / a,
        1 / b,
        "qonnx executor, one batch",
        target=1,
        unit="rows/s",
        more_is_better=True,
        digits=0,
    )
    line("integer inference of 100,000 jets", a * ROWS, 0.1, "the target itself", target=1, unit="s")


if __name__ == "__main__":
    main()
