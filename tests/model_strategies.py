"""Random float torch models of everything a network may be made of, for the tests of reading, training and lowering."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional


class RandomNet(nn.Module):
    """Runs a list of instructions on a growing list of values: (function of the values, indices it reads)."""

    def __init__(self, modules: list[nn.Module], program: list[tuple[Callable[..., Tensor], tuple[int, ...]]]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(modules)
        self.program = program

    def forward(self, x: Tensor) -> Tensor:
        values = [x]
        for function, sources in self.program:
            values.append(function(self, *(values[i] for i in sources)))
        return values[-1]


def _call(index: int) -> Callable[..., Tensor]:
    return lambda net, x: net.parts[index](x)


TABLE_MODULES: tuple[Callable[[], nn.Module], ...] = (nn.Sigmoid, nn.Tanh, nn.ELU, nn.GELU, nn.Hardswish, nn.LeakyReLU)


@st.composite
def models(draw: Any, max_steps: int = 6) -> tuple[RandomNet, tuple[int, ...]]:
    """A model and the shape of one input sample: (channels, length), (channels, height, width), or features alone.

    Values only meet where shapes agree: every sum and concatenation joins the current value with an earlier one of its
    shape. At the end, half of the models flatten into a linear layer.
    """
    seed = draw(st.integers(0, 2**31 - 1))
    rank = draw(st.integers(0, 2))
    shape = (draw(st.integers(1, 4)), *(draw(st.integers(3, 7)) for _ in range(rank)))
    first = shape
    modules: list[nn.Module] = []
    program: list[tuple[Callable[..., Tensor], tuple[int, ...]]] = []
    shapes = [shape]
    folded: set[int] = set()  # values before a batch norm: nothing else may read them
    torch.manual_seed(seed)

    def module(part: nn.Module, to: tuple[int, ...], source: int | None = None) -> None:
        modules.append(part)
        program.append((_call(len(modules) - 1), (len(shapes) - 1 if source is None else source,)))
        shapes.append(to)

    def apply(function: Callable[..., Tensor], to: tuple[int, ...], *others: int) -> None:
        program.append((function, (len(shapes) - 1, *others)))
        shapes.append(to)

    def layer() -> None:
        shape = shapes[-1]
        outputs = draw(st.integers(1, 5))
        bias = draw(st.booleans())
        if len(shape) == 1:
            module(nn.Linear(shape[0], outputs, bias=bias), (outputs,))
            norm: nn.Module = nn.BatchNorm1d(outputs)
        else:
            space = shape[1:]
            kernel = tuple(draw(st.integers(1, min(3, n))) for n in space)
            stride = tuple(draw(st.integers(1, 2)) for _ in space)
            padding = tuple(draw(st.integers(0, k - 1)) for k in kernel)
            groups = draw(st.sampled_from([1, 1, shape[0]]))
            outputs = groups * draw(st.integers(1, 2)) if groups > 1 else outputs
            kind = nn.Conv1d if len(space) == 1 else nn.Conv2d
            to = tuple((n + 2 * p - k) // s + 1 for n, p, k, s in zip(space, padding, kernel, stride, strict=True))
            conv = kind(shape[0], outputs, kernel, stride, padding, groups=groups, bias=bias)  # type: ignore[arg-type]
            module(conv, (outputs, *to))
            norm = nn.BatchNorm1d(outputs) if len(space) == 1 else nn.BatchNorm2d(outputs)
        if draw(st.booleans()):
            module(norm, shapes[-1])
            folded.add(len(shapes) - 2)
        kind_of = draw(st.sampled_from(["relu", "relu6", "table", "none"]))
        if kind_of == "relu":
            module(nn.ReLU(inplace=True), shapes[-1])
        elif kind_of == "relu6":
            module(nn.ReLU6(), shapes[-1])
        elif kind_of == "table":
            module(draw(st.sampled_from(TABLE_MODULES))(), shapes[-1])

    layer()
    for _ in range(draw(st.integers(0, max_steps - 1))):
        shape, rank = shapes[-1], len(shapes[-1]) - 1
        equals = [i for i, other in enumerate(shapes[:-1]) if other == shape and i not in folded]
        alike = [i for i, other in enumerate(shapes[:-1]) if other[1:] == shape[1:] and i not in folded]
        choices = ["layer", "layer", "layer", "relu"]
        choices += ["add", "add"] if equals else []
        choices += ["concat"] if alike else []
        if rank:
            choices += ["max", "average", "global", "upsample", "pad", "flatten"]
        match draw(st.sampled_from(choices)):
            case "layer":
                layer()
            case "relu":
                apply(lambda net, x: functional.relu(x), shape)
            case "add":
                apply(lambda net, x, y: x + y, shape, draw(st.sampled_from(equals)))
            case "concat":
                other = draw(st.sampled_from(alike))
                apply(lambda net, x, y: torch.cat([x, y], 1), (shape[0] + shapes[other][0], *shape[1:]), other)
            case ("max" | "average") as pool:
                kernel = tuple(draw(st.integers(1, min(3, n))) for n in shape[1:])
                stride = tuple(draw(st.integers(1, 2)) for _ in kernel)
                pads = tuple(draw(st.integers(0, k // 2)) for k in kernel)
                to = tuple((n + 2 * p - k) // s + 1 for n, p, k, s in zip(shape[1:], pads, kernel, stride, strict=True))
                name = {"max": "MaxPool", "average": "AvgPool"}[pool] + f"{rank}d"
                module(getattr(nn, name)(kernel, stride, pads), (shape[0], *to))
            case "global":
                apply(lambda net, x, rank=rank: x.mean(tuple(range(2, 2 + rank))), (shape[0],))
            case "upsample":
                to = tuple(2 * n for n in shape[1:])
                module(nn.Upsample(scale_factor=2), (shape[0], *to))
            case "pad":
                pads = [draw(st.integers(0, 2)) for _ in range(2 * rank)]
                to = tuple(n + pads[2 * (rank - 1 - i)] + pads[2 * (rank - 1 - i) + 1] for i, n in enumerate(shape[1:]))
                apply(lambda net, x, pads=tuple(pads): functional.pad(x, pads), (shape[0], *to))
            case "flatten":
                size = 1
                for n in shape:
                    size *= n
                apply(lambda net, x: torch.flatten(x, 1), (size,))
    if draw(st.booleans()):
        size = 1
        for n in shapes[-1]:
            size *= n
        if len(shapes[-1]) > 1:
            apply(lambda net, x: x.view(x.size(0), -1), (size,))
        module(nn.Linear(size, 3), (3,))
    net = RandomNet(modules, program)
    net.train()
    generator = torch.Generator().manual_seed(seed)
    for _ in range(2):
        with torch.no_grad():
            net(torch.randn(16, *first, generator=generator))
    return net, first
