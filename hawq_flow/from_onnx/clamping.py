"""Pending clamps made integers: a ReLU or a clip as a type that saturates, where its bounds are on the grid.

A range that is a type's (0..2^b - 1 and the signed ones) is one saturating Requantize, or no op at all where the
quantizer before it takes the type; a range of another place is one with the integers shifted; any other range takes two
steps, the upper bound first. What the integers were shifted by goes into the tensor's offset.
"""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from hawq_flow.from_onnx.affine import Rationals, aligned, compress, divisor, exact, full, only, whole
from hawq_flow.from_onnx.building import Builder
from hawq_flow.from_onnx.refusals import Refuse, Snap
from hawq_flow.from_onnx.tensors import Tensor, fresh
from hawq_flow.network import Conv, Dense, Requantize
from hawq_flow.numeric import IntArray, IntType, Overflow


def range_type(low: IntArray, high: IntArray) -> IntType:
    """The narrowest type that holds the integers; narrow when its range is then exactly theirs."""
    least, most = int(low.min()), int(high.max())
    type = IntType.holding(least, most)
    if type.signed and type.max_bits > 1 and least == -most:
        return dataclasses.replace(type, narrow=True)
    return type


def type_of(low: IntArray, high: IntArray) -> tuple[IntType | None, IntArray]:
    """A type whose range is [low, high] less a shift, and that shift; (None, empty) when there is none."""
    least, most = low.reshape(-1), high.reshape(-1)
    if (least == least[0]).all() and (most == most[0]).all():
        wanted = range_type(least[:1], most[:1])
        if wanted.range == (least[0], most[0]):
            return wanted, np.zeros((), np.int64)
    width = most - least
    if (width == width[0]).all() and width[0] > 0:
        bits = int(width[0]).bit_length()
        if int(width[0]) == (1 << bits) - 1:
            return IntType(bits, signed=False), low
        if int(width[0]) == (1 << bits) - 2:
            return IntType(bits, signed=True, narrow=True), np.asarray(low + (int(width[0]) >> 1))
    if low.ndim and low.size == low.shape[0] and low.size > 1:  # one width for each channel
        types = [range_type(least[i : i + 1], most[i : i + 1]) for i in range(low.size)]
        whole = all(t.range == (a, b) for t, a, b in zip(types, least, most, strict=True))
        if whole and len({(t.signed, t.narrow) for t in types}) == 1:
            bits_each = tuple(t.max_bits for t in types)
            return IntType(bits_each, types[0].signed, types[0].narrow), np.zeros((), np.int64)
    return None, np.zeros(0, np.int64)


def uniform(array: IntArray) -> IntArray:
    """A scalar where all entries agree, else the array."""
    return array.reshape(-1)[:1].reshape(()) if (array == array.reshape(-1)[0]).all() else array


def clipped(builder: Builder, name: str, source: str, low: IntArray, high: IntArray) -> tuple[str, IntArray]:
    """``clip(x, low, high)`` of a value; low and high broadcast over it.

    Returns
    -------
    The value, and ``shift``: what it holds is the clipped integer less ``shift``.
    """
    value = builder.values[source]
    zero = np.zeros((), np.int64)
    below, above = bool((value.low < low).any()), bool((value.high > high).any())
    if not below and not above:
        return source, zero

    def saturating(step: str, source: str, offset: IntArray, type: IntType) -> str:
        one = np.ones((), np.int64)
        return builder.add(Requantize(builder.name(f"{name}{step}"), source, one, zero, offset, type))

    # A range wholly outside of the interval is one integer: its end next to the interval.
    floor = np.minimum(np.maximum(low, value.low.min()), high)
    ceiling = np.maximum(np.minimum(high, value.high.max()), low)
    if low.size == 1 and high.size == 1:
        wanted = range_type(np.asarray(low if below else floor), np.asarray(high if above else ceiling))
        if (not below or wanted.range[0] == low.min()) and (not above or wanted.range[1] == high.max()):
            return saturating("", source, zero, wanted), zero
    shift = zero
    if above:  # the upper bound becomes the type's largest integer
        bits = int((high - value.low).max()).bit_length() + 1
        type = IntType(min(62, bits), signed=True)
        shift = np.asarray(high - type.range[1], dtype=np.int64)
        source = saturating("_high", source, -shift, type)
    if below:  # the lower bound becomes 0
        width = int((ceiling - low).max())
        source = saturating("_low", source, np.asarray(shift - low), IntType.holding(0, width))
        shift = np.asarray(low, dtype=np.int64)
    return source, shift


def retyped(builder: Builder, tensor: Tensor) -> Tensor:
    """A pending clip of a quantizer's own result as a narrower type of that quantizer, where it is one."""
    op = builder.own(tensor)
    if not isinstance(op, Requantize) or not tensor.clamped or op.overflow is not Overflow.SATURATE:
        return tensor
    parts = [only(part) for part in (tensor.scale, tensor.offset)]
    scale, offset = parts
    if scale is None or offset is None or scale <= 0 or tensor.low.size * tensor.high.size > 1 or not op.type.uniform:
        return tensor
    ends = [part.reshape(-1)[0] for part in (tensor.low, tensor.high)]
    low, high = ((end - offset) / scale for end in ends)
    least, most = max(low, Fraction(op.type.range[0])), min(high, Fraction(op.type.range[1]))
    if least.denominator != 1 or most.denominator != 1 or least > most:
        return tensor
    type, moved = type_of(np.array(int(least)), np.array(int(most)))
    if type is None:
        return tensor
    places = builder.positions(tensor)
    builder.replace(dataclasses.replace(op, type=type, offset=op.offset - moved))
    back = tensor.scale * int(moved.reshape(-1)[0]) if moved.any() else tensor.scale * 0
    return fresh(tensor.name, places, tensor.scale, compress(tensor.offset + back))


def materialized(builder: Builder, tensor: Tensor, name: str, what: str) -> Tensor:
    """The tensor with its pending clamp applied to the integers; scale >= 0 afterwards.

    ``Refuse`` where a bound that binds (a ReLU's zero) is not on the grid of the integers, unless a snap is accepted.
    """
    if tensor.raw:
        raise Refuse(
            f"{what} reads the input {tensor.name!r}, which no quantizer makes integers. Declare its type, for example "
            f"--input '{tensor.name}=ap_fixed<16,6>', or inputs={{{tensor.name!r}: 'ap_fixed<16,6>'}} in Python"
        )
    if not tensor.clamped:
        return tensor
    tensor = builder.positive(tensor, name)
    first, last = builder.interval(tensor.name, builder.spread(tensor, tensor.scale).shape)
    scale, offset, low, high = (
        builder.spread(tensor, part) for part in (tensor.scale, tensor.offset, tensor.low, tensor.high)
    )
    # A constant channel (scale 0) has no clip pending: `Tensor.clamp` put it into the offset.
    scale = divisor(scale)
    ends = [(end - offset) / scale for end in (low, high)]
    shape = np.broadcast_shapes(*(end.shape for end in ends))
    first, last = builder.interval(tensor.name, shape)
    binds = [full(ends[0], shape) > first, full(ends[1], shape) < last]
    bound = [full(end, shape) for end in ends]
    off = [
        v
        for end, does in zip(bound, binds, strict=True)
        for v, d in zip(end.ravel(), does.ravel(), strict=True)
        if d and v.denominator != 1
    ]
    if off:
        error = max(abs(v - round(v)) for v in off)
        if builder.snap is None:
            raise Refuse(
                f"{what} needs integers, but a ReLU or clip before it binds between two of them, {float(error):.2g} "
                f"accumulator units off ({len(off)} bounds): {_culprit(offset, scale)}, or accept rounding it with snap"
            )
        builder.snaps.append(Snap(name, 0.0, float(error), len(off), int((last - first + 1).sum()), 1))
        tensor, bound = _rounded_bias(builder, tensor, bound, binds)
    least, most = (
        np.array(
            [round(v) if d else e for v, d, e in zip(end.ravel(), does.ravel(), edge.ravel(), strict=True)],
            dtype=np.int64,
        ).reshape(shape)
        for end, does, edge in zip(bound, binds, (first, last), strict=True)
    )
    # A clip wholly outside of a channel's interval binds at one end only, where the other end lies beyond the edge.
    least, most = (
        np.minimum(least, np.where(binds[1], most, least)),
        np.maximum(most, np.where(binds[0], least, most)),
    )
    plain = dataclasses.replace(tensor, low=_none(tensor, -1), high=_none(tensor, 1))
    if not (binds[0].any() or binds[1].any()):
        return plain
    # A ReLU whose zero is another integer in each channel: the bias first, then every channel's zero is 0.
    moved = np.zeros(shape, np.int64)
    free = isinstance(builder.own(plain), Dense | Conv)
    if binds[0].any() and least.any() and (free or (least != least.reshape(-1)[0]).any()):
        moved = np.where(binds[0], least, 0)
        if (moved == moved.reshape(-1)[0]).all() and not _is_type(least, most):
            moved = moved.reshape(-1)[:1].reshape((1,) * len(shape))
        plain = builder.shifted(plain, np.asarray(-moved), f"{name}_bias")
        least, most = least - moved, most - moved
    made, shift = clipped(builder, name, plain.name, uniform(least), uniform(most))
    plain = builder.moved(plain, made)
    total = exact(np.broadcast_to(moved + shift, np.broadcast_shapes(moved.shape, np.shape(shift))))
    if total.size > 1:
        places = builder.positions(plain)
        total = compress(full(total, builder.value(plain).shape).reshape(-1)[places.reshape(-1)].reshape(places.shape))
    back = aligned(total.reshape(-1) if total.size == 1 else total, len(tensor.shape))
    return fresh(plain.name, plain.index, tensor.scale, compress(tensor.offset + tensor.scale * back))


def _culprit(offset: Rationals, scale: Rationals) -> str:
    """What is off the grid where a clip binds between two integers, and the fix."""
    if whole(compress(np.asarray(offset / scale, dtype=object))):
        return "the clip's bound is not on the grid of the integers it clips. Quantize after the clip, move the bound"
    return "the bias is not on the grid of its sums. Quantize after the ReLU, quantize the bias"


def _is_type(least: IntArray, most: IntArray) -> bool:
    return type_of(least, most)[0] is not None


def _none(tensor: Tensor, sign: int) -> Rationals:
    return np.array([sign * math.inf], dtype=object).reshape((1,) * len(tensor.shape))


def _rounded_bias(
    builder: Builder, tensor: Tensor, bound: list[Rationals], binds: list[NDArray[np.bool_]]
) -> tuple[Tensor, list[Rationals]]:
    """The tensor with its offset moved to the nearest multiple of its scale, and the bounds as whole numbers."""
    units = tensor.offset / divisor(tensor.scale)
    rounded = np.array([Fraction(round(v)) for v in units.ravel()], dtype=object).reshape(units.shape)
    ends = [
        np.array(
            [Fraction(round(v)) if d else v for v, d in zip(end.ravel(), does.ravel(), strict=True)] + [None],
            dtype=object,
        )[:-1].reshape(end.shape)
        for end, does in zip(bound, binds, strict=True)
    ]
    offset = np.where(tensor.scale == 0, tensor.offset, rounded * tensor.scale)
    return dataclasses.replace(tensor, offset=compress(offset)), ends
