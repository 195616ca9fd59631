"""The integers of a quantized network as steps, and their evaluation in float64.

A step is one op of the integer network in the words of the IR (``kind`` and the fields of that op), which this side of
the project does not import: lowering turns each step into its op and nothing else. Evaluation here is torch's, in
float64, under asserted bounds; the interpreter's is another, and the equality contract compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from hawq_flow.numeric import IntType, Rounding
from hawq_flow.topology import Stage
from hawq_flow.topology.floats import max_windows, pad_space, repeat_space, sum_windows

BLOCK_ELEMENTS = 1 << 23
"""Rows are evaluated in blocks in which the widest value has about this many elements."""


@dataclass(frozen=True)
class IntegerStep:
    """One op: the name of its value, its kind and operands, and its other fields by their names in the IR.

    ``stage`` holds the geometry that evaluation needs for windows.
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    layer: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    stage: Stage | None = None


def requantize_step(
    name: str, source: str, layer: str, multiplier: Any, shift: Any, type: IntType, rounding: Rounding, offset: int = 0
) -> IntegerStep:
    """A Requantize with int64 multiplier and shift, scalar or shaped to broadcast."""
    fields = {
        "multiplier": np.asarray(multiplier, dtype=np.int64),
        "shift": np.asarray(shift, dtype=np.int64),
        "offset": np.asarray(offset, dtype=np.int64),
        "type": type,
        "rounding": rounding,
    }
    return IntegerStep(name, "Requantize", (source,), layer, fields)


def bounds(steps: Sequence[IntegerStep], input_name: str, input_type: IntType) -> None:
    """``OverflowError`` unless float64 holds every integer that evaluation can meet, products before a shift too."""
    reach = {input_name: max(map(abs, input_type.range))}
    for step in steps:
        x, fields = reach[step.inputs[0]], step.fields
        bound = 0
        match step.kind:
            case "Dense" | "Conv":
                weight = np.abs(fields["weight"]).reshape(len(fields["weight"]), -1)
                bound = int((weight.sum(axis=1) * x + np.abs(fields["bias"])).max())
                out = bound
            case "Requantize":
                bound = x * int(fields["multiplier"].max()) + (1 << int(fields["shift"].max()))
                out = max(map(abs, fields["type"].range))
            case "SumPool":
                out = x * int(np.prod(fields["kernel"]))
            case "Add" | "Subtract":
                out = sum(reach[name] for name in step.inputs)
            case "Concat":
                out = max(reach[name] for name in step.inputs)
            case "Multiply":
                out = x * reach[step.inputs[1]]
            case "ReduceSum":
                assert step.stage is not None
                out = x * step.stage.shape[0]
            case "Lookup":
                out = int(np.abs(fields["table"]).max())
            case _:
                out = x
        reach[step.name] = out
        bound = max(bound, out)
        if bound >= 1 << 53:
            what = "the product of accumulator and multiplier" if step.kind == "Requantize" else "a sum"
            raise OverflowError(
                f"layer {step.layer or step.name!r}: {what} may reach 2^{bound.bit_length() - 1}, beyond the 2^53 that "
                "float64 holds; use a multiplier of fewer bits or narrower weights or inputs"
            )


@torch.no_grad()
def evaluate_steps(
    steps: Sequence[IntegerStep], input_name: str, q: Tensor, wanted: Iterable[str]
) -> dict[str, Tensor]:
    """Values by name, float64 (n, *shape), of input integers ``q`` (n, *shape), float64. Others are freed early."""
    keep = set(wanted)
    last = {name: i for i, step in enumerate(steps) for name in step.inputs}
    values = {input_name: q}
    result = {name: q for name in keep if name == input_name}
    for i, step in enumerate(steps):
        values[step.name] = _compute(step, [values[name] for name in step.inputs])
        if step.name in keep:
            result[step.name] = values[step.name]
        for name in (*step.inputs, step.name):
            if last.get(name, -1) <= i:
                values.pop(name, None)
    return result


def _compute(step: IntegerStep, operands: Sequence[Tensor]) -> Tensor:
    x, fields = operands[0], step.fields

    def on(array: Any) -> Tensor:
        return torch.from_numpy(np.asarray(array, dtype=np.float64)).to(x)

    match step.kind:
        case "Dense":
            return functional.linear(x, on(fields["weight"]), on(fields["bias"]))
        case "Conv":
            rank = len(fields["stride"])
            function = functional.conv1d if rank == 1 else functional.conv2d
            padded = pad_space(x, fields["padding"])
            return function(padded, on(fields["weight"]), on(fields["bias"]), fields["stride"], 0, 1, fields["groups"])
        case "Requantize":
            return _requantize(fields, x, on)
        case "Pad":
            return pad_space(x, fields["padding"], float(fields["value"]))
        case "MaxPool":
            assert step.stage is not None
            return max_windows(step.stage, x)
        case "SumPool":
            assert step.stage is not None
            return sum_windows(step.stage, x)
        case "Upsample":
            return repeat_space(x, fields["factors"])
        case "Reshape":
            return x.reshape(-1, *fields["to"])
        case "Concat":
            return torch.cat(list(operands), 1)
        case "Add":
            return torch.stack(list(operands)).sum(0)
        case "Subtract":
            return x - operands[1]
        case "Multiply":
            return x * operands[1]
        case "ReduceMax":
            return x.amax(dim=1, keepdim=True)
        case "ReduceSum":
            return x.sum(dim=1, keepdim=True)
        case "Lookup":
            return on(fields["table"])[(x - fields["start"]).long()]
        case _:
            raise AssertionError(f"{step.name}: no evaluation of {step.kind}")


def _requantize(fields: Mapping[str, Any], x: Tensor, on: Any) -> Tensor:
    scaled = x * on(np.ldexp(fields["multiplier"].astype(np.float64), -fields["shift"]))
    match fields["rounding"]:
        case Rounding.HALF_EVEN:
            rounded = torch.round(scaled)
        case Rounding.FLOOR:
            rounded = torch.floor(scaled)
        case _:
            # Without a shift there is nothing to round, and a half would not fit beside an odd sum near 2^53.
            rounded = torch.floor(scaled + on(0.5 * (fields["shift"] > 0)))
    type, rank = fields["type"], x.ndim - 1
    return torch.minimum(torch.maximum(rounded + on(fields["offset"]), on(type.low(rank))), on(type.high(rank)))
