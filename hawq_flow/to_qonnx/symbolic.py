"""One symbolic function for each custom op, and the table that torch.onnx.export is given.

The last node of a group defines the IR value; the exporter names it after the module's output. The others get their
names here: values ``op/what``, nodes ``op/what`` likewise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx
import torch
from onnxscript import opset20 as standard
from onnxscript.values import Opset

from hawq_flow.numeric import Rounding
from hawq_flow.to_qonnx import ops as _ops  # noqa: F401  (defines torch.ops.hawq_flow)

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


def _named(value: Any, name: str) -> Any:
    value.name = name
    producer = value.producer()
    if producer is not None:
        producer.name = name
    return value


def _constant(value: float, name: str) -> Any:
    return _named(standard.Constant(value_float=float(value)), name)


def _integers(values: Sequence[int], name: str) -> Any:
    return _named(standard.Constant(value_ints=[int(n) for n in values]), name)


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


def _accumulated(total: Any, name: str, accumulator: Sequence[int]) -> Any:
    """A finished sum, cut to its declared accumulator when there is one."""
    return _quant(_named(total, f"{name}/sum"), f"{name}/quant", accumulator) if accumulator else total


def _quantized_weight(weight: Any, name: str, type: Sequence[int]) -> Any:
    return _named(_quant(weight, f"{name}/weight_quant", type), f"{name}/weight_quant")


def _input_nodes(x: Any, name: str, type: Sequence[int]) -> Any:
    return _quant(x, f"{name}/quant", type)


def _dense_nodes(x: Any, weight: Any, bias: Any, name: str, type: Sequence[int], accumulator: Sequence[int]) -> Any:
    product = _named(standard.MatMul(x, _quantized_weight(weight, name, type)), f"{name}/matmul")
    return _accumulated(standard.Add(product, bias), name, accumulator)


def _convolution(
    operands: Sequence[Any], kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], groups: int
) -> Any:
    return standard.Conv(
        *operands,
        kernel_shape=[int(n) for n in kernel],
        strides=list(stride),
        pads=list(padding),
        dilations=[1] * len(stride),
        group=groups,
    )


def _conv_nodes(
    x: Any,
    weight: Any,
    bias: Any,
    name: str,
    type: Sequence[int],
    accumulator: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    groups: int,
) -> Any:
    operands = (x, _quantized_weight(weight, name, type), bias)
    return _accumulated(_convolution(operands, tuple(weight.shape)[2:], stride, padding, groups), name, accumulator)


def _sum_pool_nodes(x: Any, weight: Any, name: str, stride: Sequence[int], padding: Sequence[int]) -> Any:
    channels, _, *kernel = tuple(weight.shape)
    return _convolution((x, _quantized_weight(weight, name, [1, 0, 0])), kernel, stride, padding, int(channels))


def _max_pool_nodes(x: Any, name: str, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int]) -> Any:
    # ONNX offers the winners' places as a second output, which is left out of the canonical graph.
    largest, _ = standard.MaxPool(x, kernel_shape=list(kernel), strides=list(stride), pads=list(padding))
    return largest


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
    return standard.Reshape(x, _integers([-1, *shape], f"{name}/shape"))


def _pad_nodes(x: Any, name: str, padding: Sequence[int], value: int) -> Any:
    rank = len(padding) // 2
    pads = [0, 0, *padding[:rank], 0, 0, *padding[rank:]]  # batch and channels are not padded
    return standard.Pad(x, _integers(pads, f"{name}/pads"), _constant(value, f"{name}/value"), mode="constant")


def _upsample_nodes(x: Any, name: str, factors: Sequence[int]) -> Any:
    scales = _named(standard.Constant(value_floats=[1.0, 1.0, *map(float, factors)]), f"{name}/scales")
    return standard.Resize(
        x, None, scales, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    )


def _distinct(operands: Sequence[Any], name: str) -> list[Any]:
    """The operands, repeated ones through an Identity: qonnx renames a tensor in one place of a node's inputs only."""
    result: list[Any] = []
    for i, operand in enumerate(operands):
        seen = any(operand is other for other in operands[:i])
        result.append(_named(standard.Identity(operand), f"{name}/again{i}") if seen else operand)
    return result


def _concat_nodes(operands: Sequence[Any], name: str, axis: int) -> Any:
    return standard.Concat(*_distinct(operands, name), axis=axis + 1)


def _add_nodes(operands: Sequence[Any], name: str) -> Any:
    total, *others = _distinct(operands, name)
    for i, other in enumerate(others, start=1):
        total = standard.Add(total, other)
        if i < len(others):
            _named(total, f"{name}/sum{i}")
    return total


def _subtract_nodes(left: Any, right: Any, name: str) -> Any:
    return standard.Sub(*_distinct([left, right], name))


def _multiply_nodes(left: Any, right: Any, name: str) -> Any:
    return standard.Mul(*_distinct([left, right], name))


def _reduce_max_nodes(x: Any, name: str, axis: int) -> Any:
    return standard.ReduceMax(x, _integers([axis + 1], f"{name}/axes"), keepdims=1)


def _reduce_sum_nodes(x: Any, name: str, axis: int) -> Any:
    return standard.ReduceSum(x, _integers([axis + 1], f"{name}/axes"), keepdims=1)


def _lookup_nodes(x: Any, table: Any, name: str, start: int) -> Any:
    if start:
        x = _named(standard.Sub(x, _constant(start, f"{name}/start")), f"{name}/entry")
    index = _named(standard.Cast(x, to=onnx.TensorProto.INT64), f"{name}/index")
    return standard.Gather(table, index, axis=0)


TRANSLATION: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.hawq_flow.input.default: _input_nodes,
    torch.ops.hawq_flow.dense.default: _dense_nodes,
    torch.ops.hawq_flow.conv.default: _conv_nodes,
    torch.ops.hawq_flow.requantize.default: _requantize_nodes,
    torch.ops.hawq_flow.reshape.default: _reshape_nodes,
    torch.ops.hawq_flow.pad.default: _pad_nodes,
    torch.ops.hawq_flow.max_pool.default: _max_pool_nodes,
    torch.ops.hawq_flow.sum_pool.default: _sum_pool_nodes,
    torch.ops.hawq_flow.upsample.default: _upsample_nodes,
    torch.ops.hawq_flow.concat.default: _concat_nodes,
    torch.ops.hawq_flow.add.default: _add_nodes,
    torch.ops.hawq_flow.subtract.default: _subtract_nodes,
    torch.ops.hawq_flow.multiply.default: _multiply_nodes,
    torch.ops.hawq_flow.reduce_max.default: _reduce_max_nodes,
    torch.ops.hawq_flow.reduce_sum.default: _reduce_sum_nodes,
    torch.ops.hawq_flow.lookup.default: _lookup_nodes,
}
"""Custom op -> symbolic function: all that torch.onnx.export needs to know about this IR."""
