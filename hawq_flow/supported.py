"""What a network may be made of: the README's table, found by trying.

Every row is a small model. It is read, quantized, lowered and exported, and its hls4ml project designed for each way of
moving data; the table says what came out. So it cannot claim what the code refuses, nor forget what it takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from hawq_flow import to_onnx, to_qcdq
from hawq_flow.lower import lower
from hawq_flow.network import IntegerNetwork
from hawq_flow.plan import BitPlan
from hawq_flow.quant import QuantConfig, quantize
from hawq_flow.to_hls import HlsConfig, design
from hawq_flow.to_qonnx import NotExact, check
from hawq_flow.topology import read
from hawq_flow.topology.operations import TABLES

Build = Callable[[], nn.Module]


@dataclass(frozen=True)
class Row:
    """One line of the table: what it is called in torch, and a model that has it, for inputs of ``shape``."""

    torch: str
    build: Build
    shape: tuple[int, ...]
    config: QuantConfig = field(default_factory=QuantConfig)


class _Joined(nn.Module):
    """Two convolutions of one input, joined by a function."""

    def __init__(self, join: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.a, self.b, self.join = nn.Conv2d(2, 2, 1), nn.Conv2d(2, 2, 1), join

    def forward(self, x: Tensor) -> Tensor:
        return self.join(torch.relu(self.a(x)), self.b(x))


def _behind(*modules: Callable[[], nn.Module], one: bool = False) -> Build:
    """Modules behind a convolution (of one dimension, or two)."""
    first: Callable[[], nn.Module] = (lambda: nn.Conv1d(2, 4, 3)) if one else (lambda: nn.Conv2d(2, 4, (3, 2)))
    return lambda: nn.Sequential(first(), *(module() for module in modules))


IMAGE, LINE = (2, 8, 7), (2, 9)
ROWS: tuple[Row, ...] = (
    Row("`Linear`", lambda: nn.Sequential(nn.Linear(4, 3)), (4,)),
    Row("`Conv2d`, stride, padding", lambda: nn.Sequential(nn.Conv2d(2, 4, (3, 2), (2, 1), (1, 0))), IMAGE),
    Row("`Conv1d`, stride, padding", lambda: nn.Sequential(nn.Conv1d(2, 4, 3, 2, 1)), LINE),
    Row("pointwise convolution", lambda: nn.Sequential(nn.Conv2d(2, 4, 1)), IMAGE),
    Row("depthwise convolution", lambda: nn.Sequential(nn.Conv2d(2, 2, 3, groups=2)), IMAGE),
    Row("grouped convolution, other", lambda: nn.Sequential(nn.Conv2d(2, 4, 3, groups=2)), IMAGE),
    Row("`BatchNorm1d/2d` behind a layer", _behind(lambda: nn.BatchNorm2d(4), nn.ReLU), IMAGE),
    Row("`ReLU`, `ReLU6`", _behind(nn.ReLU6, lambda: nn.Conv2d(4, 2, 1), nn.ReLU), IMAGE),
    Row("`MaxPool1d/2d`, side by side", _behind(lambda: nn.MaxPool2d(2)), IMAGE),
    Row("`MaxPool1d/2d`, overlapping or padded", _behind(lambda: nn.MaxPool2d(3, 2, 1)), IMAGE),
    Row("`AvgPool1d/2d`", _behind(lambda: nn.AvgPool2d(2)), IMAGE),
    Row("global average: `AdaptiveAvgPool`, `mean`", _behind(lambda: nn.AdaptiveAvgPool2d(1), nn.Flatten), IMAGE),
    Row("residual `+`", lambda: _Joined(lambda a, b: torch.relu(a + b)), IMAGE),
    Row("`torch.cat` along channels", lambda: _Joined(lambda a, b: torch.cat([a, b], 1)), IMAGE),
    Row("`Upsample` (nearest)", _behind(lambda: nn.Upsample(scale_factor=2)), IMAGE),
    Row("`ZeroPad1d/2d`, `pad`", _behind(lambda: nn.ZeroPad2d((1, 2, 0, 1))), IMAGE),
    Row("`Flatten`, `view` before `Linear`", _behind(nn.Flatten, lambda: nn.Linear(144, 2)), IMAGE),
    Row("`Unflatten` behind `Linear`", lambda: nn.Sequential(nn.Linear(4, 12), nn.Unflatten(1, (3, 2, 2))), (4,)),
    Row(
        ", ".join(f"`{name}`" for name in TABLES) + " (tables)",
        _behind(nn.Tanh, lambda: nn.Conv2d(4, 2, 1), nn.GELU),
        IMAGE,
    ),
    Row("`Softmax` over channels", lambda: nn.Sequential(nn.Linear(4, 3), nn.Softmax(1)), (4,)),
    Row(
        "zero points (`asymmetric`) and padding",
        lambda: nn.Sequential(nn.Conv2d(2, 2, 1), nn.Conv2d(2, 2, 3, padding=1)),
        IMAGE,
        QuantConfig(asymmetric=True),
    ),
)


@dataclass(frozen=True)
class Line:
    """What trying a row gave: the ops of its integer network, and by back end the reason of a refusal."""

    torch: str
    ops: tuple[str, ...]
    refusals: dict[str, str]


TRIED: dict[str, Callable[[IntegerNetwork], object]] = {
    "QONNX": check,
    "standard ONNX": lambda network: to_onnx.plan_network(network, to_onnx.choose(network)),
    "QCDQ": to_qcdq.plan_network,
    "HLS io_parallel": lambda network: design(network, HlsConfig(io_type="io_parallel")),
    "HLS io_stream": lambda network: design(network, HlsConfig(io_type="io_stream")),
}
"""By back end, what refuses a network that it does not take."""


def lines() -> Iterator[Line]:
    """Try every row."""
    for row in ROWS:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = row.build().eval()
            x = torch.randn(64, *row.shape)
        plan = BitPlan.homogeneous(read(model, row.shape).shapes, 4, 6, input_bits=8)
        trained = quantize(model, plan, row.config, input_shape=row.shape)
        trained.calibrate(x)
        trained.freeze()
        network = lower(trained.eval())
        refusals = {}
        for backend, take in TRIED.items():
            try:
                take(network)
            except NotExact as error:
                refusals[backend] = str(error)
        yield Line(row.torch, tuple(dict.fromkeys(op.kind for op in network.ops)), refusals)


def table() -> str:
    """The table in Markdown: a line for each row, a column for each back end, and the reasons of refusals below it."""
    head = ["in torch", "ops of the integer network", *TRIED]
    rows, notes = [], []
    for line in lines():
        cells = []
        for backend in TRIED:
            reason = line.refusals.get(backend)
            if reason is None:
                cells.append("yes")
                continue
            said = reason.partition(": ")[2]
            if said not in notes:
                notes.append(said)
            cells.append(f"refused ({notes.index(said) + 1})")
        rows.append([line.torch, ", ".join(line.ops), *cells])
    text = ["| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *rows)]
    return "\n".join([*text, "", *(f"{i}. {note}" for i, note in enumerate(notes, start=1))]) + "\n"
