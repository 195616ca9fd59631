"""Element types of the file's tensors, and proof that arithmetic in them is arithmetic of real numbers.

A network of integers computes real numbers. So does float32, but for its rounding (``comparing`` counts that). The
small types do not: int8 and its kin wrap at their ends and their division truncates, float16 rounds at 11 bits. Reading
therefore follows the type of every tensor by ONNX's rules (most operators have their first input's) and, where it is
an integer or float16, proves that every number the tensor takes is one of the type; else the node is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from hawq_flow.from_onnx.affine import Rationals, divisor, full, whole
from hawq_flow.from_onnx.building import Builder
from hawq_flow.from_onnx.refusals import Refuse
from hawq_flow.from_onnx.tensors import Known, Tabulated, Tensor
from hawq_flow.numeric import IntArray

Element = np.dtype[Any]
FLOAT: Element = np.dtype(np.float32)
_FIXED: dict[str, Element] = {
    **dict.fromkeys(("Quant", "IntQuant", "BipolarQuant", "Trunc"), FLOAT),
    **dict.fromkeys(("MatMulInteger", "ConvInteger"), np.dtype(np.int32)),
    **dict.fromkeys(("Shape", "ArgMax", "ArgMin"), np.dtype(np.int64)),
}
"""Operators whose output has a type of its own."""
_HALF_BITS, _HALF_LEAST, _HALF_MOST = 11, Fraction(1, 1 << 24), Fraction(65504)
"""float16: significant bits, the smallest number, the largest."""


def element(number: int) -> Element | None:
    """The type of ONNX's number, if NumPy has it."""
    try:
        return np.dtype(helper.tensor_dtype_to_np_dtype(number))
    except (KeyError, TypeError):
        return None


def made_by(proto: onnx.NodeProto, attributes: Mapping[str, Any], elements: list[Element | None]) -> Element | None:
    """The element type of a node's first output, from its inputs'; None where it is not known."""
    kind = proto.op_type
    if kind in _FIXED:
        return _FIXED[kind]
    if kind == "Cast":
        return element(int(attributes.get("to", 0)))
    if kind == "QuantizeLinear":
        if len(elements) > 2 and elements[2] is not None:
            return elements[2]
        return element(int(attributes.get("output_dtype", 0)) or onnx.TensorProto.UINT8)
    place = 1 if kind == "DequantizeLinear" else 0
    return elements[place] if place < len(elements) else None


def _reach(builder: Builder, tensor: Tensor) -> tuple[IntArray, IntArray]:
    """The proven interval of the integers behind a tensor, joined along every axis its scale and offset are one for."""
    draft = builder.inputs.get(tensor.name)
    parts = (tensor.scale, tensor.offset, tensor.low, tensor.high)
    shape = np.broadcast_shapes(*(part.shape for part in parts))
    if draft is not None and draft.order is None:  # its layout is still open: looking must not fix it
        low, high = (np.full(shape, end, dtype=np.int64) for end in draft.type.range)
        return low, high
    value, places = builder.values[tensor.name], builder.positions(tensor)
    axes = tuple(i for i, n in enumerate(shape) if n == 1)
    low, high = (np.broadcast_to(end, value.shape).reshape(-1)[places] for end in (value.low, value.high))
    return low.min(axis=axes, keepdims=True), high.max(axis=axes, keepdims=True)


def check(builder: Builder, found: Known, dtype: Element | None) -> None:
    """``Refuse`` unless every number of a tensor is one of its element type."""
    if dtype is None or not (dtype.kind in "iu" or dtype == np.float16):
        return
    if isinstance(found, Tabulated):
        with np.errstate(all="ignore"):
            held = found.table.astype(dtype).astype(np.float64) == found.table
        if not held.all():
            raise Refuse(f"makes numbers that {dtype} does not hold; compute in float")
    elif isinstance(found, Tensor):
        _check_tensor(builder, found, dtype)


def _check_tensor(builder: Builder, tensor: Tensor, dtype: Element) -> None:
    if dtype.kind in "iu" and not (whole(tensor.scale) and whole(tensor.offset)):
        raise Refuse(
            f"makes numbers that are not whole in {dtype}, which truncates; round them first, or compute in float"
        )
    if tensor.raw:
        return
    first, last = _reach(builder, tensor)
    scale, offset, floor, ceiling = (
        full(part, first.shape) for part in (tensor.scale, tensor.offset, tensor.low, tensor.high)
    )
    ends = [np.asarray(scale * end.astype(object) + offset, dtype=object) for end in (first, last)]
    least: Rationals = np.minimum(np.maximum(np.minimum(*ends), floor), ceiling)
    most: Rationals = np.minimum(np.maximum(np.maximum(*ends), floor), ceiling)
    low, high = min(least.ravel()), max(most.ravel())
    if dtype == np.float16:
        _check_half(scale, offset, first, last, max(abs(low), abs(high)))
        return
    limits = np.iinfo(str(dtype))
    if low < limits.min or high > limits.max:
        raise Refuse(
            f"makes integers from {low} to {high} in {dtype}, which would wrap; clip them first, or compute in a "
            "wider type"
        )


def _check_half(scale: Rationals, offset: Rationals, first: IntArray, last: IntArray, largest: Fraction) -> None:
    """Numbers ``scale * (integer + offset / scale)`` are of float16 if few bits hold the sum and scale is dyadic."""
    units: NDArray[np.object_] = offset / divisor(scale)
    widest = max(max(abs(end.astype(object) + units).ravel()) for end in (first, last))
    steps = [abs(s) for s in scale.ravel()]
    dyadic = all(n & (n - 1) == 0 for s in steps for n in (s.numerator, s.denominator))
    fits = all(s >= _HALF_LEAST for s in steps if s) and largest <= _HALF_MOST
    if not (dyadic and fits and whole(units) and widest <= 1 << _HALF_BITS):
        raise Refuse(
            f"makes numbers in float16 that its {_HALF_BITS} bits would round (integers of up to {int(widest)}); "
            "export the model in float32"
        )
