"""One torch custom op for each IR op, and the table of symbolic functions that turn them into QONNX nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx
import torch
from onnxscript import opset20 as standard
from onnxscript.values import Opset

from hawq_flow.numeric import IntType, Rounding

DOMAIN = "qonnx.custom_op.general"
OPSET = 20


def _register_schema() -> None:
    """Tell onnx the operator schema of QONNX's Quant, which the exporter needs to build the node (once a process)."""
    if onnx.defs.has("Quant", DOMAIN):
        return
    schema = onnx.defs.OpSchema
    floats = [("T", ["tensor(float)"], "float32, as QONNX executes it")]
    schema_of_quant = schema(
        "Quant",
        DOMAIN,
        1,
        doc="(clip(round(x / scale + zeropt)) - zeropt) * scale over the integers of bitwidth bits.",
        inputs=[schema.FormalParameter(name, "T") for name in ("x", "scale", "zeropt", "bitwidth")],
        outputs=[schema.FormalParameter("y", "T")],
        type_constraints=floats,
        attributes=[
            schema.Attribute("signed", schema.AttrType.INT, required=True),
            schema.Attribute("narrow", schema.AttrType.INT, required=True),
            schema.Attribute("rounding_mode", schema.AttrType.STRING, required=False),
        ],
    )
    onnx.defs.register_schema(schema_of_quant)


_register_schema()
_qonnx = Opset(DOMAIN, 1)


# --- one torch custom op for each IR op ------------------------------------------------------------------------------
#
# Tensors first, then the names and types that the symbolic function needs. `type` is [bits, signed, narrow]; an empty
# list stands for "no such type". The eager implementations make the module runnable in torch (exact in float64 under
# the bound of the module's docstring); they are the meaning of the op, the exporter only needs the shapes.


def _clip(x: torch.Tensor, type: Sequence[int]) -> torch.Tensor:
    low, high = IntType(type[0], bool(type[1]), bool(type[2])).range
    return torch.clamp(x, low, high)


@torch.library.custom_op("hawq_flow::input", mutates_args=())
def _input_op(x: torch.Tensor, name: str, type: Sequence[int]) -> torch.Tensor:
    return _clip(torch.round(x), type)


@torch.library.custom_op("hawq_flow::dense", mutates_args=())
def _dense_op(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    name: str,
    type: Sequence[int],
    accumulator: Sequence[int],
) -> torch.Tensor:
    acc = x @ weight.to(x.dtype) + bias.to(x.dtype)
    return _clip(acc, accumulator) if accumulator else acc


@torch.library.custom_op("hawq_flow::requantize", mutates_args=())
def _requantize_op(
    x: torch.Tensor,
    factor: torch.Tensor,
    offset: torch.Tensor,
    low: torch.Tensor,
    high: torch.Tensor,
    name: str,
    rounding: str,
    wide: Sequence[int],
    type: Sequence[int],
) -> torch.Tensor:
    y = x * factor.to(x.dtype) if factor.numel() else x
    if rounding == Rounding.HALF_EVEN.value:
        y = torch.round(y)
    else:
        y = torch.floor(y + 0.5 if rounding == Rounding.HALF_UP.value else y)
    if offset.numel():
        y = y + offset.to(x.dtype)
    if low.numel():
        y = torch.minimum(torch.maximum(y, low.to(x.dtype)), high.to(x.dtype))
    return _clip(y, type)


@torch.library.custom_op("hawq_flow::reshape", mutates_args=())
def _reshape_op(x: torch.Tensor, name: str, shape: Sequence[int]) -> torch.Tensor:
    return x.reshape([-1, *shape]).clone()


@_input_op.register_fake
def _(x: torch.Tensor, name: str, type: Sequence[int]) -> torch.Tensor:
    return torch.empty_like(x)


@_dense_op.register_fake
def _(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *_: Any) -> torch.Tensor:
    return x.new_empty((x.shape[0], weight.shape[1]))


@_requantize_op.register_fake
def _(x: torch.Tensor, *_: Any) -> torch.Tensor:
    return torch.empty_like(x)


@_reshape_op.register_fake
def _(x: torch.Tensor, name: str, shape: Sequence[int]) -> torch.Tensor:
    return x.new_empty((x.shape[0], *shape))


# --- one symbolic function for each custom op, and the table ---------------------------------------------------------
#
# The last node of a group defines the IR value; the exporter names it after the module's output. The others get
# their names here: values `op/what`, nodes `op/what` likewise.


def _named(value: Any, name: str) -> Any:
    value.name = name
    producer = value.producer()
    if producer is not None:
        producer.name = name
    return value


def _constant(value: float, name: str) -> Any:
    return _named(standard.Constant(value_float=float(value)), name)


def _quant(x: Any, name: str, type: Sequence[int], rounding: str = "ROUND") -> Any:
    """A Quant of scale 1 and zero point 0; its parameters have tensors of their own, as hls4ml needs."""
    bits, signed, narrow = type
    return _qonnx.Quant(
        x,
        _constant(1.0, f"{name}/scale"),
        _constant(0.0, f"{name}/zero_point"),
        _constant(bits, f"{name}/bits"),
        signed=int(signed),
        narrow=int(narrow),
        rounding_mode=rounding,
    )


def _given(constant: Any) -> bool:
    """Whether an optional constant is there: an empty tensor stands for none."""
    return constant.shape is not None and 0 not in tuple(constant.shape)


def _input_nodes(x: Any, name: str, type: Sequence[int]) -> Any:
    return _quant(x, f"{name}/quant", type)


def _dense_nodes(x: Any, weight: Any, bias: Any, name: str, type: Sequence[int], accumulator: Sequence[int]) -> Any:
    quantized = _named(_quant(weight, f"{name}/weight_quant", type), f"{name}/weight_quant")
    product = _named(standard.MatMul(x, quantized), f"{name}/matmul")
    total = standard.Add(product, bias)
    return _quant(_named(total, f"{name}/sum"), f"{name}/quant", accumulator) if accumulator else total


def _requantize_nodes(
    x: Any,
    factor: Any,
    offset: Any,
    low: Any,
    high: Any,
    name: str,
    rounding: str,
    wide: Sequence[int],
    type: Sequence[int],
) -> Any:
    y, mode = x, "ROUND"
    if _given(factor):
        y = _named(standard.Mul(y, factor), f"{name}/scaled")
        if rounding == Rounding.HALF_UP.value:
            y = _named(standard.Add(y, _constant(0.5, f"{name}/half")), f"{name}/plus_half")
        if rounding != Rounding.HALF_EVEN.value:
            mode = "FLOOR"
        if wide:
            y, mode = _named(_quant(y, f"{name}/round", wide, mode), f"{name}/rounded"), "ROUND"
    if _given(offset):
        y = _named(standard.Add(y, offset), f"{name}/shifted")
    if _given(low):
        y = _named(standard.Max(y, low), f"{name}/above_low")
        y = _named(standard.Min(y, high), f"{name}/below_high")
    return _quant(y, f"{name}/quant", type, mode)


def _reshape_nodes(x: Any, name: str, shape: Sequence[int]) -> Any:
    return standard.Reshape(x, _named(standard.Constant(value_ints=[-1, *shape]), f"{name}/shape"))


TRANSLATION: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.hawq_flow.input.default: _input_nodes,
    torch.ops.hawq_flow.dense.default: _dense_nodes,
    torch.ops.hawq_flow.requantize.default: _requantize_nodes,
    torch.ops.hawq_flow.reshape.default: _reshape_nodes,
}
"""Custom op -> symbolic function: all that torch.onnx.export needs to know about this IR."""
