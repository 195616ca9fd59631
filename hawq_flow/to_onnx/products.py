"""Layers: MatMulInteger and ConvInteger on 8-bit operands, in as many digits as wider ones need.

An operand wider than 8 bits is a number in base 256, ``x = x_0 + 256 x_1 + ...`` with unsigned digits but for the
last, which has the sign; a weight has balanced digits from -128 to 127. The products of digits are added by Horner's
rule. Every product stays below 2^31 and every sum below 2^31 or 2^63, by the magnitudes of the actual weights.

Saturation. A processor without VNNI multiplies uint8 by int8 in pairs whose sum it cuts to 16 bits, so
``2 * 255 * max|w| > 32767`` may be wrong there (:func:`saturates`). No such instruction exists for uint8 by uint8:
the weights become ``w + 128`` with the zero point 128. int8 by int8 is safe up to 127; a weight of -128 is halved
into two products. (Measured on onnxruntime 1.32 with an emulated processor that has AVX2 and no VNNI: of MatMulInteger,
uint8 by int8 is wrong beyond 64; of ConvInteger, int8 by uint8; all others are exact.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from hawq_flow.network import Conv, Dense, SumPool, Value
from hawq_flow.numeric import IntArray
from hawq_flow.to_onnx.containers import FLOAT, INT8, UINT8, Dtype, accumulator
from hawq_flow.to_qonnx import NotExact


def saturates(x: Dtype, w: Dtype, reach: int) -> bool:
    """Whether a kernel that adds pairs of products in 16 bits could cut a sum of ``x`` times ``w``.

    Parameters
    ----------
    x, w:
        The operands' dtypes: uint8 or int8.
    reach:
        The largest magnitude of the signed operand; of ``w`` when both are signed.
    """
    if x == w == UINT8:
        return False
    return 2 * (255 if UINT8 in (x, w) else 128) * reach > (1 << 15) - 1


def saturating(model: onnx.ModelProto) -> list[str]:
    """Names of the MatMulInteger and ConvInteger of a model which :func:`saturates` says could be cut.

    Weights are initializers, whose largest magnitude is known; any other operand may hold all of its dtype.
    """
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    infos = (*model.graph.input, *model.graph.value_info, *model.graph.output)
    dtypes = {info.name: helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type) for info in infos}
    dtypes |= {name: array.dtype for name, array in weights.items()}
    found = []
    for node in model.graph.node:
        if node.op_type in ("MatMulInteger", "ConvInteger"):
            x, w = node.input[:2]
            signed = w if dtypes[w] == INT8 else x
            reach = int(np.abs(weights[signed].astype(np.int64)).max()) if signed in weights else 128
            if saturates(dtypes[x], dtypes[w], reach):
                found.append(node.name)
    return found


@dataclass(frozen=True)
class Part:
    """One digit of x: its dtype, its place in base 256, and its largest magnitude."""

    dtype: Dtype
    place: int
    reach: int


@dataclass(frozen=True)
class Term:
    """One product: which part of x, times ``weight - zero_point`` (int8 or uint8), times 256 to the ``place``."""

    part: int
    weight: IntArray
    dtype: Dtype
    zero_point: int
    place: int


@dataclass(frozen=True)
class Products:
    """How the sums of a layer are made of 8-bit products: parts of x, terms, and the dtype they are added in."""

    parts: tuple[Part, ...]
    terms: tuple[Term, ...]
    total: Dtype


@dataclass(frozen=True)
class LayerPlan:
    """How a Dense, Conv or SumPool multiplies.

    Attributes
    ----------
    weight, bias:
        Those of the op; of a SumPool, ones (channels, 1, *kernel) and zeros.
    products:
        Products of 8-bit operands; None: one MatMul or Conv of operands in ``dtype``.
    dtype:
        What the sum is computed in, before its last cast.
    """

    weight: IntArray
    bias: IntArray
    products: Products | None
    dtype: Dtype


def digits(low: int, high: int) -> tuple[Part, ...]:
    """The digits in base 256 of integers from ``low`` to ``high``: unsigned, the last one int8 when ``low`` < 0."""
    parts = []
    place = 0
    while not (low >= -128 and high <= (127 if low < 0 else 255)):
        parts.append(Part(UINT8, place, 255))
        low, high, place = low >> 8, high >> 8, place + 1
    return (*parts, Part(INT8 if low < 0 else UINT8, place, max(abs(low), abs(high))))


def balanced(weight: IntArray) -> list[IntArray]:
    """The digits of weights in base 256, each from -128 to 127, least first: one where the weights are int8."""
    result = []
    while True:
        digit = ((weight + 128) & 255) - 128
        result.append(digit)
        weight = (weight - digit) >> 8
        if not weight.any():
            return result


def _terms(weight: IntArray, parts: tuple[Part, ...]) -> Iterator[Term]:
    for i, part in enumerate(parts):
        for place, digit in enumerate(balanced(weight)):
            place += part.place
            if not saturates(part.dtype, INT8, int(np.abs(digit).max())):
                yield Term(i, digit, INT8, 0, place)
            elif part.dtype == UINT8:
                yield Term(i, digit + 128, UINT8, 128, place)
            else:
                half = digit >> 1
                yield Term(i, half, INT8, 0, place)
                yield Term(i, digit - half, INT8, 0, place)


def products(name: str, weight: IntArray, bias: IntArray, x: Value, bound: int) -> Products:
    """The 8-bit products of ``weight`` (outputs, ...) and x, and what they are added in.

    ``bound`` is that of the layer's own sums, which are the only ones where there is one product.

    Raises
    ------
    NotExact
        If one product may leave int32, or their sum int64.
    """
    parts = digits(int(x.low.min()), int(x.high.max()))
    terms = tuple(_terms(weight, parts))
    sums: dict[int, int] = {}
    for term in terms:
        fan_in = int(np.prod(weight.shape[1:]))
        # Kernels may add stored bytes, those of x made unsigned, and correct for zero points and signs afterwards.
        stored = int(np.abs(term.weight).reshape(len(weight), -1).sum(1).max())
        largest = 255 * (255 * fan_in if term.zero_point else stored)
        if largest >= 1 << 31:
            raise NotExact(
                f"{name}: sums of {fan_in} products of 8 bits may reach {largest}, beyond the int32 of ConvInteger "
                "and MatMulInteger. Use fewer inputs a sum: more groups, a smaller kernel, fewer channels"
            )
        sums[term.place] = sums.get(term.place, 0) + largest
    total = 0
    for place in range(max(sums), -1, -1):
        total = total * 256 + sums.get(place, 0)
    total = bound if len(terms) == 1 else total + int(np.abs(bias).max())
    if total >= 1 << 63:
        raise NotExact(
            f"{name}: sums in base 256 may reach {total}, beyond int64. Narrow the weights, the input or the bias"
        )
    return Products(parts, terms, accumulator(total))


def plan_layer(op: Dense | Conv | SumPool, x: Value, value: Value, *, floats: bool) -> LayerPlan:
    """How a layer on x multiplies, or ``NotExact``; ``floats``: whether it may be an exact float32 Conv."""
    if isinstance(op, SumPool):
        weight = np.ones((value.shape[0], 1, *op.kernel), dtype=np.int64)
        bias = np.zeros(weight.shape[0], dtype=np.int64)
    else:
        weight, bias = op.weight, op.bias
    narrow = len(digits(int(x.low.min()), int(x.high.max()))) == 1 and len(balanced(weight)) == 1
    largest = max(value.bound, x.magnitude, int(np.abs(weight).max()))
    if isinstance(op, Dense) and not (narrow and value.bound < 1 << 31 and weight.shape[1] * 255 * 255 < 1 << 31):
        return LayerPlan(weight, bias, None, accumulator(largest))
    if not isinstance(op, Dense) and not narrow and floats and largest < 1 << 24:
        return LayerPlan(weight, bias, None, FLOAT)
    made = products(op.name, weight, bias, x, value.bound)
    return LayerPlan(weight, bias, made, made.total)
