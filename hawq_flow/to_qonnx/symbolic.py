"""One symbolic function for each custom op, and the table that torch.onnx.export is given.

The last node of a group defines the IR value; the exporter names it after the module's output. The others get their
names here: values ``op/what``, nodes ``op/what`` likewise.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir
import torch
from numpy.typing import NDArray
from onnxscript import opset20 as standard
from onnxscript.values import Opset

from hawq_flow.numeric import Rounding
from hawq_flow.to_qonnx import ops as _ops  # noqa: F401  (defines torch.ops.hawq_flow)

DOMAIN = "qonnx.custom_op.general"
OPSET = 20


def _register_schemas() -> None:
    """Tell onnx the operator schemas of QONNX, which the exporter needs to build the nodes (once a process)."""
    schema = onnx.defs.OpSchema
    signed, narrow = (schema.Attribute(name, schema.AttrType.INT, required=True) for name in ("signed", "narrow"))
    rounding = schema.Attribute("rounding_mode", schema.AttrType.STRING, required=False)
    known: dict[str, tuple[str, list[str], list[onnx.defs.OpSchema.Attribute]]] = {
        "Quant": (
            "(clip(round(x / scale + zeropt)) - zeropt) * scale over the integers of bitwidth bits.",
            ["x", "scale", "zeropt", "bitwidth"],
            [signed, narrow, rounding],
        ),
        "BipolarQuant": ("scale where x >= 0, -scale elsewhere.", ["x", "scale"], []),
        "Trunc": (
            "(round_mode(round(x / scale + zeropt) / 2^(in_bitwidth - out_bitwidth)) - zeropt) * scale.",
            ["x", "scale", "zeropt", "in_bitwidth", "out_bitwidth"],
            [rounding],
        ),
        "MultiThreshold": (
            "out_scale * (how many thresholds of its channel x reaches) + out_bias.",
            ["x", "thresholds"],
            [
                schema.Attribute(what, getattr(schema.AttrType, kind), required=False)
                for what, kind in (
                    ("out_dtype", "STRING"),
                    ("data_layout", "STRING"),
                    ("out_scale", "FLOAT"),
                    ("out_bias", "FLOAT"),
                )
            ],
        ),
    }
    for name, (doc, inputs, attributes) in known.items():
        if not onnx.defs.has(name, DOMAIN):
            onnx.defs.register_schema(
                schema(
                    name,
                    DOMAIN,
                    1,
                    doc=doc,
                    inputs=[schema.FormalParameter(operand, "T") for operand in inputs],
                    outputs=[schema.FormalParameter("y", "T")],
                    type_constraints=[("T", ["tensor(float)"], "float32, as QONNX executes it")],
                    attributes=attributes,
                )
            )


_register_schemas()
_qonnx = Opset(DOMAIN, 1)


def named(value: Any, name: str) -> Any:
    """The value, and the node that makes it, called ``name``."""
    value.name = name
    producer = value.producer()
    if producer is not None:
        producer.name = name
    return value


def constant(value: float, name: str) -> Any:
    """A float32 scalar."""
    return named(standard.Constant(value_float=float(value)), name)


def integers(values: Sequence[int], name: str) -> Any:
    """An int64 vector."""
    return named(standard.Constant(value_ints=[int(n) for n in values]), name)


BIPOLAR = [1, 1, 0]
"""The type of weights that are -1 or +1: a signed Quant of one bit, as QONNX reads it."""


def quant(x: Any, name: str, type: Sequence[int], rounding: str = "ROUND") -> Any:
    """A Quant of scale 1 and zero point 0; its parameters have tensors of their own, as hls4ml needs."""
    bits, signed, narrow = type
    return _qonnx.Quant(
        x,
        constant(1.0, f"{name}/scale"),
        constant(0.0, f"{name}/zero_point"),
        constant(bits, f"{name}/bits"),
        signed=int(signed),
        narrow=int(narrow),
        rounding_mode=rounding,
    )


def given(constant: Any) -> bool:
    """Whether an optional constant is there: an empty tensor stands for none."""
    return constant.shape is not None and 0 not in tuple(constant.shape)


def _accumulated(total: Any, name: str, accumulator: Sequence[int]) -> Any:
    """A finished sum, cut to its declared accumulator when there is one."""
    return quant(named(total, f"{name}/sum"), f"{name}/quant", accumulator) if accumulator else total


def tensor(array: NDArray[Any], name: str) -> Any:
    """A constant of the array's own dtype and shape."""
    value: Any = onnx_ir.tensor(np.ascontiguousarray(array).reshape(np.shape(array)))
    return named(standard.Constant(value=value), name)


def quantized_weight(weight: Any, name: str, type: Sequence[int]) -> Any:
    """Constant weights through their Quant; through BipolarQuant where the type is :data:`BIPOLAR`."""
    if list(type) == BIPOLAR:
        unit = constant(1.0, f"{name}/weight_quant/scale")
        return named(_qonnx.BipolarQuant(weight, unit), f"{name}/weight_quant")
    return named(quant(weight, f"{name}/weight_quant", type), f"{name}/weight_quant")


def _input_nodes(x: Any, name: str, type: Sequence[int]) -> Any:
    return quant(x, f"{name}/quant", type)


def _dense_nodes(x: Any, weight: Any, bias: Any, name: str, type: Sequence[int], accumulator: Sequence[int]) -> Any:
    product = named(standard.MatMul(x, quantized_weight(weight, name, type)), f"{name}/matmul")
    return _accumulated(standard.Add(product, bias), name, accumulator)


def convolution(
    operands: Sequence[Any], kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], groups: int
) -> Any:
    """A Conv of (x, weight) or (x, weight, bias)."""
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
    operands = (x, quantized_weight(weight, name, type), bias)
    return _accumulated(convolution(operands, tuple(weight.shape)[2:], stride, padding, groups), name, accumulator)


def _sum_pool_nodes(x: Any, weight: Any, name: str, stride: Sequence[int], padding: Sequence[int]) -> Any:
    channels, _, *kernel = tuple(weight.shape)
    return convolution((x, quantized_weight(weight, name, [1, 0, 0])), kernel, stride, padding, int(channels))


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
    if given(factor):
        y = named(standard.Mul(y, factor), f"{name}/scaled")
        if rounding == Rounding.HALF_UP.value:
            y = named(standard.Add(y, constant(0.5, f"{name}/half")), f"{name}/plus_half")
        if rounding != Rounding.HALF_EVEN.value:
            mode = "FLOOR"
        if wide:
            y, mode = named(quant(y, f"{name}/round", wide, mode), f"{name}/rounded"), "ROUND"
    if given(offset):
        y = named(standard.Add(y, offset), f"{name}/shifted")
    if given(low):
        y = named(standard.Max(y, low), f"{name}/above_low")
        y = named(standard.Min(y, high), f"{name}/below_high")
    return quant(y, f"{name}/quant", type, mode)


def truncate(x: Any, name: str, before: int, after: int) -> Any:
    """A Trunc (version 1) of scale 1 and zero point 0: floor(x / 2^(before - after))."""
    return _qonnx.Trunc(
        x,
        constant(1.0, f"{name}/scale"),
        constant(0.0, f"{name}/zero_point"),
        constant(before, f"{name}/bits_before"),
        constant(after, f"{name}/bits_after"),
        rounding_mode="FLOOR",
    )


def _reshape_nodes(x: Any, name: str, shape: Sequence[int]) -> Any:
    return standard.Reshape(x, integers([-1, *shape], f"{name}/shape"))


def _pad_nodes(x: Any, name: str, padding: Sequence[int], value: int) -> Any:
    rank = len(padding) // 2
    pads = [0, 0, *padding[:rank], 0, 0, *padding[rank:]]  # batch and channels are not padded
    return standard.Pad(x, integers(pads, f"{name}/pads"), constant(value, f"{name}/value"), mode="constant")


def _upsample_nodes(x: Any, name: str, factors: Sequence[int]) -> Any:
    scales = named(standard.Constant(value_floats=[1.0, 1.0, *map(float, factors)]), f"{name}/scales")
    return standard.Resize(
        x, None, scales, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    )


def _distinct(operands: Sequence[Any], name: str) -> list[Any]:
    """The operands, repeated ones through an Identity: qonnx renames a tensor in one place of a node's inputs only."""
    result: list[Any] = []
    for i, operand in enumerate(operands):
        seen = any(operand is other for other in operands[:i])
        result.append(named(standard.Identity(operand), f"{name}/again{i}") if seen else operand)
    return result


def _concat_nodes(operands: Sequence[Any], name: str, axis: int) -> Any:
    return standard.Concat(*_distinct(operands, name), axis=axis + 1)


def _add_nodes(operands: Sequence[Any], name: str) -> Any:
    total, *others = _distinct(operands, name)
    for i, other in enumerate(others, start=1):
        total = standard.Add(total, other)
        if i < len(others):
            named(total, f"{name}/sum{i}")
    return total


def _subtract_nodes(left: Any, right: Any, name: str) -> Any:
    return standard.Sub(*_distinct([left, right], name))


def _multiply_nodes(left: Any, right: Any, name: str) -> Any:
    return standard.Mul(*_distinct([left, right], name))


def _reduce_max_nodes(x: Any, name: str, axis: int) -> Any:
    return standard.ReduceMax(x, integers([axis + 1], f"{name}/axes"), keepdims=1)


def _reduce_sum_nodes(x: Any, name: str, axis: int) -> Any:
    return standard.ReduceSum(x, integers([axis + 1], f"{name}/axes"), keepdims=1)


def _lookup_nodes(x: Any, table: Any, name: str, start: int) -> Any:
    if start:
        x = named(standard.Sub(x, constant(start, f"{name}/start")), f"{name}/entry")
    index = named(standard.Cast(x, to=onnx.TensorProto.INT64), f"{name}/index")
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


def translation(bipolar: Collection[str], truncated: Mapping[str, tuple[int, int]]) -> dict[Callable[..., Any], Any]:
    """:data:`TRANSLATION` with some ops in QONNX's two other quantizers.

    Parameters
    ----------
    bipolar:
        Layers whose weights are -1 and +1, written with BipolarQuant.
    truncated:
        Rescales that drop low bits alone, as (bits before, bits after), written with Trunc.
    """

    def dense(x: Any, weight: Any, bias: Any, name: str, type: Sequence[int], *rest: Any) -> Any:
        return _dense_nodes(x, weight, bias, name, BIPOLAR if name in bipolar else type, *rest)

    def conv(x: Any, weight: Any, bias: Any, name: str, type: Sequence[int], *rest: Any) -> Any:
        return _conv_nodes(x, weight, bias, name, BIPOLAR if name in bipolar else type, *rest)

    def requantize(x: Any, factor: Any, offset: Any, low: Any, high: Any, name: str, *rest: Any) -> Any:
        if name in truncated:
            return truncate(x, f"{name}/trunc", *truncated[name])
        return _requantize_nodes(x, factor, offset, low, high, name, *rest)

    ops = torch.ops.hawq_flow
    return TRANSLATION | {ops.dense.default: dense, ops.conv.default: conv, ops.requantize.default: requantize}
