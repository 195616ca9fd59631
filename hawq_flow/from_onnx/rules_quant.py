"""Rules for quantizers: QONNX's Quant, IntQuant, BipolarQuant, Trunc; ONNX's QuantizeLinear, DequantizeLinear, Round.

The domain is not looked at: the same operators live under ``qonnx.custom_op.general``, ``finn.custom_op.general``,
``onnx.brevitas``, ``hawq2qonnx`` and others. Definitions: QONNX's executor, and ONNX's specification of QuantizeLinear.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hawq_flow.from_onnx.affine import Rationals, aligned, compress, exact, whole
from hawq_flow.from_onnx.levels import Mode
from hawq_flow.from_onnx.nodes import Node
from hawq_flow.from_onnx.quantizing import Quantizer, quantized, unit
from hawq_flow.from_onnx.refusals import Refuse
from hawq_flow.from_onnx.tensors import Const, Grid, Known, Tabulated, Tensor, scalar

_INTEGERS = {
    1: np.float32,
    2: np.uint8,
    3: np.int8,
    4: np.uint16,
    5: np.int16,
    6: np.int32,
    7: np.int64,
    10: np.float16,
    11: np.float64,
    12: np.uint32,
}
"""NumPy types by ONNX's number of an element type."""
_PLUS = {"ROUND": Mode.ROUND, "HALF_EVEN": Mode.ROUND}


def _mode(node: Node, default: str) -> Mode:
    text = node.text("rounding_mode", default).upper()
    if text in _PLUS:
        return _PLUS[text]
    try:
        return Mode(text)
    except ValueError:
        raise Refuse(f"rounding_mode {text}; known are {', '.join(mode.value for mode in Mode)}") from None


def _range(bits: Rationals, signed: bool, narrow: bool) -> tuple[Rationals, Rationals]:
    """Lowest and highest level of bit widths (one, or one a channel)."""
    low, high = [], []
    for width in bits.ravel():
        if not isinstance(width, Fraction) or width.denominator != 1:
            raise Refuse(f"a bit width of {float(width):g}; expected a whole number")
        if signed and width == 1:
            raise Refuse(
                "a signed Quant of 1 bit: QONNX's executor reads it as -1 and +1, its formula as -1 and 0. Use "
                "BipolarQuant, or 2 bits with narrow=1"
            )
        if not 1 <= width <= 32:
            raise Refuse(f"a bit width of {width}; expected 1 to 32")
        low.append(Fraction(-(1 << int(width - 1)) + int(narrow)) if signed else Fraction(0))
        high.append(Fraction((1 << int(width - int(signed))) - 1 - int(narrow and not signed)))
    parts = [np.array(part, dtype=object).reshape(bits.shape) for part in (low, high)]
    return compress(parts[0]), compress(parts[1])


def _parameters(node: Node, rank: int, *which: str) -> list[Rationals]:
    """Inputs 1, 2, ... as exact constants of the tensor's rank."""
    found = []
    for i, what in enumerate(which, start=1):
        values = node.constant(i, what).real()
        if any(not isinstance(v, Fraction) for v in values.ravel()):
            raise Refuse(f"its {what} is NaN or infinite")
        if values.ndim > rank and values.size > 1:
            raise Refuse(f"its {what} has shape {values.shape} for a tensor of rank {rank}")
        found.append(aligned(values.reshape(-1)[:1] if values.size == 1 else values, rank))
    return found


def quant(node: Node) -> Known:
    """Quant and IntQuant: inputs x, scale, zero point, bit width."""
    x = node.inputs[0]
    if isinstance(x, Const):
        return _constant_quant(node, x)
    rank = len(_shape(node))
    scale, zero, bits = _parameters(node, rank, "scale", "zero point", "bit width")
    low, high = _range(bits, bool(node.attributes.get("signed", 1)), bool(node.attributes.get("narrow", 0)))
    _broadcasts(node, scale, zero, low)
    q = Quantizer(scale, zero, scalar(0), low, high, _mode(node, "ROUND"), scale, zero)
    return quantized(node.builder, _read(node), q, node.name)


def _shape(node: Node) -> tuple[int, ...]:
    return _read(node).shape


def _read(node: Node) -> Tensor | Tabulated:
    found = node.inputs[0]
    return found if isinstance(found, Tabulated) else node.tensor(0)


def _broadcasts(node: Node, *arrays: Rationals) -> None:
    shape = _shape(node)
    for array in arrays:
        if np.broadcast_shapes(array.shape, shape) != shape:
            raise Refuse(f"parameters of shape {array.shape} do not broadcast over a tensor of shape {shape}")


def _constant_quant(node: Node, x: Const) -> Const:
    """A Quant of constants, in the arithmetic of the executor (the arrays' own types): every tool computes these."""
    scale, zero, bits = (
        node.constant(i, what).array for i, what in ((1, "scale"), (2, "zero point"), (3, "bit width"))
    )
    low, high = _range(exact(bits), bool(node.attributes.get("signed", 1)), bool(node.attributes.get("narrow", 0)))
    if (np.asarray(scale) <= 0).any():
        raise Refuse("a scale of 0 or below; expected positive")
    quotient = x.array / scale + zero
    clip = np.clip(quotient, _as_floats(low), _as_floats(high))
    levels = _rounded(clip, _mode(node, "ROUND"))
    if not np.isfinite(levels).all():
        raise Refuse("its constant input holds NaN")
    q = levels.astype(np.int64)
    out = np.asarray((levels - zero) * scale)
    if not whole(exact(zero)):
        return Const(out.astype(np.float32))
    shifted = q - np.asarray(zero).astype(np.int64)
    return Const(out.astype(np.float32), Grid(shifted, aligned(exact(scale), shifted.ndim)))


def _as_floats(array: Rationals) -> NDArray[np.float64]:
    return np.array([float(v) for v in array.ravel()]).reshape(array.shape)


def _rounded(values: NDArray[Any], mode: Mode) -> NDArray[Any]:
    functions: dict[Mode, Callable[[NDArray[Any]], NDArray[Any]]] = {
        Mode.ROUND: np.rint,
        Mode.FLOOR: np.floor,
        Mode.CEIL: np.ceil,
        Mode.HALF_UP: lambda v: np.sign(v) * np.floor(np.abs(v) + 0.5),
        Mode.HALF_DOWN: lambda v: np.sign(v) * np.ceil(np.abs(v) - 0.5),
        Mode.UP: lambda v: np.sign(v) * np.ceil(np.abs(v)),
        Mode.DOWN: np.trunc,
    }
    return functions[mode](values)


def bipolar(node: Node) -> Known:
    """BipolarQuant: +scale where x >= 0, else -scale. Its integers are 0 and 1, its meaning scale * (2 q - 1)."""
    x = node.inputs[0]
    if isinstance(x, Const):
        scale = node.constant(1, "scale").array
        signs = np.where(x.array >= 0, 1, -1).astype(np.int64)
        return Const((signs * scale).astype(np.float32), Grid(signs, aligned(exact(scale), signs.ndim)))
    tensor = node.tensor(0)
    (scale,) = _parameters(node, len(tensor.shape), "scale")
    _broadcasts(node, scale)
    if any(v <= 0 for v in scale.ravel()):
        raise Refuse("a scale of 0 or below; expected positive")
    # x >= 0 is floor(x / u) + 1 >= 1 for any unit u > 0: the tensor's own scale, so that no multiplier is needed.
    one = scalar(1)
    q = Quantizer(node.builder.unit(tensor), one * 0, one, one * 0, one, Mode.FLOOR, 2 * scale, compress(one / 2))
    if tensor.raw:
        raise Refuse(
            f"takes the sign of the input {tensor.name!r}; declare the input's type, or quantize it to integers first"
        )
    return quantized(node.builder, tensor, q, node.name)


def trunc(node: Node) -> Known:
    """Trunc: bits dropped by a division by a power of two and a rounding (FLOOR by default); versions 1 and 2."""
    tensor = node.tensor(0)
    rank = len(tensor.shape)
    none = [np.array([v], dtype=object) for v in (-math.inf, math.inf)]
    if len(node.inputs) >= 6:
        scale, zero, _bits, out_scale, out_bits = _parameters(
            node, rank, "scale", "zero point", "input bit width", "output scale", "output bit width"
        )
        ratio = out_scale / scale
        shift = np.array([round(math.log2(v)) for v in ratio.ravel()]).reshape(ratio.shape)
        low, high = _range(out_bits, bool(node.attributes.get("signed", 1)), bool(node.attributes.get("narrow", 0)))
        by = np.array([Fraction(2) ** int(n) for n in shift.ravel()], dtype=object).reshape(shift.shape)
        out_zero = zero / by
    else:
        scale, zero, bits, out_bits = _parameters(
            node, rank, "scale", "zero point", "input bit width", "output bit width"
        )
        dropped = bits - out_bits
        if any(v.denominator != 1 for v in dropped.ravel()):
            raise Refuse("bit widths that are not whole")
        by = np.array([Fraction(2) ** int(n) for n in dropped.ravel()], dtype=object).reshape(dropped.shape)
        low, high = none
        out_scale, out_zero = scale, zero
    if any(v <= 0 for v in scale.ravel()):
        raise Refuse("a scale of 0 or below; expected positive")
    # The executor rounds x / scale first: nothing where x is on that grid, a rounding of its own elsewhere.
    on_grid = whole(compress(tensor.scale / scale)) and whole(compress(tensor.offset / scale + zero))
    if tensor.raw or tensor.clamped or not on_grid:
        zeros = scalar(0)
        inner = Quantizer(scale, zero, zeros, none[0], none[1], Mode.ROUND, scale, zero)
        read = quantized(node.builder, tensor, inner, f"{node.name}_grid")
    else:
        read = tensor
    q = Quantizer(
        compress(scale * by), compress(zero / by), scalar(0), low, high, _mode(node, "FLOOR"), out_scale, out_zero
    )
    return quantized(node.builder, read, q, node.name)


def bit_shift(node: Node) -> Known:
    """BitShift of whole numbers by a constant: RIGHT is a floor (arithmetic), LEFT a product."""
    tensor = node.tensor(0)
    bits = as_integers(node.constant(1, "shift"))
    factors = np.array([Fraction(1 << int(n)) for n in bits.reshape(-1)] + [None], dtype=object)[:-1]
    factors = factors.reshape(bits.shape or (1,))
    if not (whole(tensor.scale) and whole(tensor.offset)):
        raise Refuse("shifts numbers that are not whole; round them first")
    if node.text("direction", "") == "LEFT":
        return tensor.affine(factors, scalar(0))
    return quantized(node.builder, tensor.affine(np.asarray(1 / factors), scalar(0)), unit(mode=Mode.FLOOR), node.name)


def rounding(node: Node) -> Known:
    """Round, Floor and Ceil to whole numbers."""
    modes = {"Round": Mode.ROUND, "Floor": Mode.FLOOR, "Ceil": Mode.CEIL}
    return quantized(node.builder, _read(node), unit(mode=modes[node.op_type]), node.name)


def _by_axis(node: Node, array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """A parameter of QuantizeLinear or DequantizeLinear, shaped to broadcast over the tensor."""
    if array.size == 1:
        return array.reshape((1,) * len(shape))
    if array.ndim != 1 or int(node.attributes.get("block_size", 0)):
        raise Refuse(f"parameters of shape {array.shape} (blocks); expected one, or one along an axis")
    axis = node.axis(int(node.attributes.get("axis", 1)), len(shape))
    if array.size != shape[axis]:
        raise Refuse(f"{array.size} parameters along axis {axis} of {shape}")
    return array.reshape((-1,) + (1,) * (len(shape) - axis - 1))


def _zero_point(node: Node, default: Any) -> NDArray[Any]:
    if node.given(2):
        return node.constant(2, "zero point").array
    number = int(node.attributes.get("output_dtype", 0)) or default
    if number not in _INTEGERS:
        raise Refuse(f"element type {number}; expected an integer of 8, 16 or 32 bits")
    return np.zeros((), dtype=_INTEGERS[number])


def quantize_linear(node: Node) -> Known:
    """QuantizeLinear: saturate(round(x / scale) + zero point), half to even."""
    found = node.inputs[0]
    zero = _zero_point(node, 2)
    if zero.dtype.kind not in "iu":
        raise Refuse(f"quantizes to {zero.dtype}; expected integers")
    limits = np.iinfo(str(zero.dtype))
    shape = found.array.shape if isinstance(found, Const) else _shape(node)
    scale = _by_axis(node, node.constant(1, "scale").array, shape)
    zero = _by_axis(node, zero, shape)
    if (scale <= 0).any():
        raise Refuse(f"scale {float(scale.min()):g}; expected positive (a dead layer: check the observer)")
    if isinstance(found, Const):
        if np.isnan(found.array).any():
            raise Refuse("its constant input holds NaN")
        levels = np.clip(np.rint(found.array / scale) + zero, limits.min, limits.max)
        return Const(levels.astype(zero.dtype))
    one, nothing = scalar(1), scalar(0)
    low, high = scalar(int(limits.min)), scalar(int(limits.max))
    q = Quantizer(exact(scale), nothing, exact(zero), low, high, Mode.ROUND, one, nothing)
    return quantized(node.builder, _read(node), q, node.name)


def dequantize_linear(node: Node) -> Known:
    """DequantizeLinear: (x - zero point) * scale."""
    found = node.inputs[0]
    shape = found.array.shape if isinstance(found, Const) else node.tensor(0).shape
    scale = _by_axis(node, node.constant(1, "scale").array, shape)
    zero = _by_axis(node, node.constant(2, "zero point").array if node.given(2) else np.zeros((), np.int64), shape)
    if isinstance(found, Const):
        if found.array.dtype.kind not in "iu":
            raise Refuse(f"dequantizes constants of {found.array.dtype}; expected integers")
        q = found.array.astype(np.int64) - zero.astype(np.int64)
        value = (q.astype(np.float32) * scale).astype(np.float32)
        return Const(value, Grid(q, aligned(exact(scale), q.ndim)))
    s, z = exact(scale), exact(zero)
    return node.tensor(0).affine(s, compress(-s * z))


def cast(node: Node) -> Known:
    """Cast: nothing for numbers that the type holds (``elements`` checks that); refused where it would truncate."""
    number = int(node.attributes["to"])
    if number not in _INTEGERS:
        raise Refuse(f"casts to element type {number}; expected floats or integers of 8 to 64 bits")
    dtype = np.dtype(_INTEGERS[number])
    found = node.inputs[0]
    if isinstance(found, Const):
        with np.errstate(all="ignore"):
            array = found.array.astype(dtype)
        same = dtype.kind == "f" and np.array_equal(array, found.array)
        return Const(array, found.grid if same else None)
    tensor = node.tensor(0)
    if dtype.kind != "f" and tensor.raw:
        raise Refuse(
            f"casts the input {tensor.name!r} to {dtype}, which truncates real numbers; quantize the input or declare "
            "its type"
        )
    return tensor


def as_integers(const: Const) -> NDArray[np.int64]:
    """A constant of whole numbers as int64."""
    if not (const.array == np.rint(const.array)).all():
        raise Refuse(f"expected whole numbers, found {const.array.reshape(-1)[:4].tolist()}")
    return const.array.astype(np.int64)
