"""Quantizers of activations: exact levels over the proven interval, and the Requantize that has them.

A quantizer of a file is ``level = clip(R(x / scale + inner) + outer, low, high)`` and its output is
``out_scale * (level - out_zero)``. With ``x = s a + o`` (``tensors``) this is a staircase of the integer a, which
``fitting`` carries; a pending ReLU or clip only moves the ends. What becomes of a quantizer of the input itself is the
network's ``InputSpec``; of a tabulated function, a ``Lookup``.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hawq_flow.from_onnx.affine import Rationals, aligned, compress, exact, floats, full, integers, whole
from hawq_flow.from_onnx.building import Builder, InputDraft
from hawq_flow.from_onnx.clamping import clipped, type_of, uniform
from hawq_flow.from_onnx.fitting import CONSTANT_BITS, Fit, change, fit_all, many, snapped
from hawq_flow.from_onnx.levels import Mode, Target, round_exactly
from hawq_flow.from_onnx.refusals import Refuse, Snap
from hawq_flow.from_onnx.tensors import NO_HIGH, NO_LOW, Tabulated, Tensor, fresh, scalar
from hawq_flow.network import MAX_TABLE, Lookup, Requantize
from hawq_flow.numeric import IntArray, IntType, Rounding, shift_round, significant_bits

_TRIAL = Fraction(1, 1 << 20)
"""Relative error with which a refusal says what snapping would change."""


@dataclass(frozen=True)
class Quantizer:
    """A node's quantizer, all exact and of the tensor's rank; ``low`` and ``high`` hold infinities where unbounded."""

    scale: Rationals
    inner: Rationals
    outer: Rationals
    low: Rationals
    high: Rationals
    mode: Mode
    out_scale: Rationals
    out_zero: Rationals

    def levels_of(self, x: Rationals) -> Rationals:
        """``R(x / scale + inner) + outer`` of exact numbers; infinities stay."""
        parts = np.broadcast_arrays(x, self.scale, self.inner, self.outer)
        flat = [
            Fraction(round_exactly(v / s + i, self.mode)) + o if isinstance(v, Fraction) else v
            for v, s, i, o in zip(*(part.ravel() for part in parts), strict=True)
        ]
        return compress(np.array([*flat, None], dtype=object)[:-1].reshape(parts[0].shape))

    def bounds(self, tensor: Tensor) -> tuple[Rationals, Rationals]:
        """Lowest and highest level of a tensor with a pending clamp."""
        ends = [np.minimum(np.maximum(self.levels_of(end), self.low), self.high) for end in (tensor.low, tensor.high)]
        return compress(ends[0]), compress(ends[1])


def quantized(builder: Builder, tensor: Tensor | Tabulated, q: Quantizer, name: str) -> Tensor:
    """The tensor after a quantizer; ``Refuse`` with what would change when no integer rescale has its levels."""
    if isinstance(tensor, Tabulated):
        return _looked_up(builder, tensor, q, name)
    if any(v <= 0 for v in q.scale.ravel()):
        raise Refuse(f"scale {float(min(q.scale.ravel())):g}; expected positive (a dead layer: check the observer)")
    if tensor.raw:
        return _declared(builder, tensor, q, name)
    tensor = builder.positive(tensor, name)
    low, high = q.bounds(tensor)
    slope, intercept = tensor.scale / q.scale, tensor.offset / q.scale + q.inner
    rank = len(tensor.shape)
    parts = (slope, intercept, q.inner, q.outer, low, high)
    arrays = [builder.spread(tensor, compress(aligned(part, rank))) for part in parts]
    shape = np.broadcast_shapes(*(part.shape for part in arrays))
    first, last = builder.interval(tensor.name, shape)
    targets, inner = _targets(arrays, shape, first, last, q.mode)
    fused = _fused(builder, tensor, targets, _bounds(arrays[4:], targets, shape))
    if fused is not None:
        return _output(builder, tensor, tensor.name, q, fused)
    outcome = fit_all(targets, inner, builder.snap)
    if isinstance(outcome, list):
        table = _as_table(builder, tensor, targets, name)
        if table is None:
            raise Refuse(_unfit(targets, inner, outcome, first.size))
        return _output(builder, tensor, table, q, np.zeros((), np.int64))
    fits, changed = outcome
    if changed:
        record(builder, name, [change(fits[i], targets[i]) for i in changed])
    rescaled = _emit(builder, tensor, fits, shape, _bounds(arrays[4:], targets, shape), name)
    return _output(builder, *rescaled[:1], rescaled[1], q, rescaled[2])


def _fused(
    builder: Builder, tensor: Tensor, targets: list[Target], bounds: tuple[IntArray, IntArray]
) -> IntArray | None:
    """A quantizer that only shifts and clips another's levels, put into that Requantize; what was subtracted, or None.

    That one's own clip must not bind, so that only the second is left.
    """
    op = builder.own(tensor)
    if not isinstance(op, Requantize) or any(t.slope != 1 or t.intercept.denominator != 1 for t in targets):
        return None
    free = dataclasses.replace(op, type=IntType(62, signed=True)).derive([builder.values[op.input]])
    value = builder.values[op.name]
    if not (np.array_equal(free.low, value.low) and np.array_equal(free.high, value.high)):
        return None
    low, high = bounds
    type, moved = type_of(low, high)
    if type is None:
        return None
    moved = moved if moved.any() else np.zeros((), np.int64)
    shift = np.array([int(t.intercept) + t.outer for t in targets], dtype=np.int64).reshape(low.shape)
    offset = uniform(np.asarray(op.offset + shift - moved, dtype=np.int64))
    builder.replace(dataclasses.replace(op, type=type, offset=offset))
    return moved


def record(builder: Builder, name: str, changes: list[Any]) -> None:
    """Note a snap, over its channels."""
    builder.snaps.append(
        Snap(
            name,
            max(c.scale_error for c in changes),
            max(c.bias_error for c in changes),
            sum(c.integers for c in changes),
            sum(c.of for c in changes),
            max(c.levels for c in changes),
        )
    )


def _targets(
    arrays: list[Rationals], shape: tuple[int, ...], first: IntArray, last: IntArray, mode: Mode
) -> tuple[list[Target], list[int]]:
    flat = [full(part, shape).ravel() for part in arrays]
    targets, inner = [], []
    for m, b, z, outer, low, high, a, e in zip(*flat, first.ravel().tolist(), last.ravel().tolist(), strict=True):
        least, most = (int(v) if isinstance(v, Fraction) else None for v in (low, high))
        targets.append(Target(m, b, mode, int(outer), least, most, a, e))
        inner.append(int(z) if z.denominator == 1 else 0)
    return targets, inner


def _bounds(ends: list[Rationals], targets: list[Target], shape: tuple[int, ...]) -> tuple[IntArray, IntArray]:
    """The clip of every group as int64; where nothing clips, the level the interval reaches."""
    low, high = (full(end, shape).ravel() for end in ends)
    least = [int(v) if isinstance(v, Fraction) else t.level(t.first) for v, t in zip(low, targets, strict=True)]
    most = [int(v) if isinstance(v, Fraction) else t.level(t.last) for v, t in zip(high, targets, strict=True)]
    parts = [np.array(part, dtype=np.int64).reshape(shape) for part in (least, most)]
    return parts[0], parts[1]


def _emit(
    builder: Builder,
    tensor: Tensor,
    fits: list[Fit],
    shape: tuple[int, ...],
    bounds: tuple[IntArray, IntArray],
    name: str,
) -> tuple[Tensor, str, IntArray]:
    """The ops of a rescale: (the tensor it reads, the value it makes, what was subtracted of the levels)."""

    def column(field: str) -> IntArray:
        return np.array([getattr(found, field) for found in fits], dtype=np.int64).reshape(shape)

    fine, bias, extra = column("fine"), column("bias"), column("extra")
    places = builder.positions(tensor)
    if fine.any():
        # One step serves channels with a fine bias and those without.
        source = builder.step(f"{name}_bias", tensor.name, uniform(1 << fine), uniform(extra + (bias << fine)))
    else:
        tensor = builder.shifted(tensor, bias, f"{name}_bias")
        source = tensor.name
    source = builder.step(f"{name}_factor", source, uniform(column("factor")), 0)
    low, high = bounds
    multiplier, shift, offset = uniform(column("multiplier")), uniform(column("shift")), column("offset")
    rounding = fits[0].rounding
    moved = np.zeros((), np.int64)
    type, clip = type_of(low, high)
    if type is None:  # a range of no type: hold more, then clip
        value = builder.values[source]
        wide = [_rescaled(end, column, shape, rounding) for end in (value.low, value.high)]
        type = IntType.holding(min(int(end.min()) for end in wide), max(int(end.max()) for end in wide))
    elif clip.any():
        moved = uniform(clip)
        offset = offset - clip
    if not (fine.any() or (multiplier != 1).any() or shift.any() or offset.any()):
        rounding = Rounding.HALF_EVEN  # nothing is rounded
    own = builder.name(name)
    made = builder.add(Requantize(own, source, multiplier, shift, uniform(offset), type, rounding))
    if not clip.size:
        made, moved = clipped(builder, name, made, uniform(low), uniform(high))
    return dataclasses.replace(tensor, name=made, index=places), made, moved


def _rescaled(end: IntArray, column: Any, shape: tuple[int, ...], rounding: Rounding) -> Any:
    return shift_round(end * column("multiplier"), column("shift"), rounding) + column("offset")


def _output(builder: Builder, tensor: Tensor, made: str, q: Quantizer, moved: IntArray) -> Tensor:
    """The quantizer's output over the value ``made``, whose integers are the levels less ``moved``."""
    rank = len(tensor.shape)
    places = builder.positions(tensor)
    shift: Rationals = exact(moved)
    if moved.size > 1:  # from the IR's shape to the model's
        whole = full(shift, builder.values[made].shape).reshape(-1)
        shift = compress(whole[places.reshape(-1)].reshape(places.shape))
    shift = aligned(shift.reshape(-1) if shift.size == 1 else shift, rank)
    return fresh(made, places, q.out_scale, compress(q.out_scale * (shift - q.out_zero)))


def _as_table(builder: Builder, tensor: Tensor, targets: list[Target], name: str) -> str | None:
    """A quantizer that no rescale carries (a rounding that is not even across zero), written down."""
    target = targets[0]
    same = {dataclasses.replace(t, first=0, last=0) for t in targets}
    if len(same) > 1:
        return None
    value = builder.value(tensor)
    first, last = int(value.low.min()), int(value.high.max())
    if last - first >= MAX_TABLE:
        return None
    table = dataclasses.replace(target, first=first, last=last).table
    if int(significant_bits(table).max()) > CONSTANT_BITS:
        return None
    return builder.add(Lookup(builder.name(name), tensor.name, table, first, f"rounding {target.mode.value}"))


def _unfit(targets: list[Target], inner: list[int], missing: list[int], groups: int) -> str:
    """Why, and what a snap would change."""
    changes = []
    for i in missing:
        found = snapped(targets[i], Rounding.HALF_EVEN, inner[i], _TRIAL)
        if found is not None:
            changes.append(change(found, targets[i]))
    count = f"{len(missing)} or more" if len(missing) == 1 and many(targets) else str(len(missing))
    where = f"{count} of its {groups} channels have" if groups > 1 else "it has"
    text = (
        f"{where} a scale that no integer multiplier of {CONSTANT_BITS} bits and shift reproduces over all integers "
        f"that reach it ({targets[missing[0]].first} to {targets[missing[0]].last})"
    )
    if not changes:
        return f"{text}; its accumulators are too wide. Use fewer bits"
    differ, of = sum(c.integers for c in changes), sum(c.of for c in changes)
    return (
        f"{text}; the nearest would map {differ} of {of} integers to another level, by "
        f"{max(c.levels for c in changes)} at most, with a relative change of the scale of "
        f"{max(c.scale_error for c in changes):.1e} and of the bias by {max(c.bias_error for c in changes):.2g} "
        "accumulator units. Accept that with snap"
    )


def _declared(builder: Builder, tensor: Tensor, q: Quantizer, name: str) -> Tensor:
    """A quantizer of the real-valued input: the network's input type."""
    if q.mode not in (Mode.ROUND,):
        raise Refuse(
            f"quantizes the input {tensor.name!r} with rounding {q.mode.value}; an input is rounded half to even. "
            "Declare the input's own type, and this becomes a rescale"
        )
    if any(v <= 0 for v in tensor.scale.ravel()):
        raise Refuse(f"the input {tensor.name!r} is multiplied by 0 or a negative number before it is quantized")
    low, high = q.bounds(tensor)
    if not all(isinstance(v, Fraction) for end in (low, high) for v in end.ravel()):
        raise Refuse(f"rounds the input {tensor.name!r} without bounds; declare the input's type")
    shift = q.inner + q.outer
    if not whole(compress(shift)):
        raise Refuse(f"the zero point of the input's quantizer is {shift.ravel()[0]}; expected a whole number")
    least, most = (integers(compress(end)) for end in (low, high))
    type, moved = type_of(*np.broadcast_arrays(least, most))
    if type is None or not type.uniform:
        raise Refuse(
            f"clips the input to {least.ravel()[0]}..{most.ravel()[0]}, the range of no integer type; declare the "
            "input's type"
        )
    if any(v.denominator == 1 and v % 2 for v in q.inner.ravel()):
        builder.notes.append(f"{name}: at ties of the input, the zero point is added after rounding, not before")
    file_shape = tuple(int(n) for n in _file_shape(builder, tensor))
    size = int(np.prod(file_shape))
    flat = tensor.index.reshape(-1)
    if not np.array_equal(np.sort(flat), np.arange(size)):
        raise Refuse(f"quantizes a part of the input {tensor.name!r}; expected all of it. Declare the input's type")

    def in_file(array: Rationals) -> NDArray[Any]:
        if array.size == 1:
            return array.reshape((1,) * len(file_shape))
        result = np.empty(size, dtype=object)
        result[flat] = full(array, tensor.shape).reshape(-1)
        return compress(result.reshape(file_shape))

    # real = k raw + o, quantized with s: (raw - mean) / std with std = 1 / k, mean = -o / k.
    zero = in_file(compress(exact(np.broadcast_to(moved, np.shape(moved))) if moved.ndim == 0 else exact(moved)))
    zero_point = integers(compress(in_file(compress(shift)) - zero))
    k, o = in_file(tensor.scale), in_file(tensor.offset)
    made = builder.name(tensor.name)
    builder.inputs[made] = InputDraft(
        made,
        tensor.name,
        file_shape,
        type,
        floats(in_file(q.scale)),
        zero_point,
        floats(np.asarray(-o / k, dtype=object)),
        floats(np.asarray(1 / k, dtype=object)),
    )
    rank = len(tensor.shape)
    back = aligned(exact(moved).reshape(-1) if moved.size == 1 else exact(moved), rank)
    return fresh(made, tensor.index, q.out_scale, compress(q.out_scale * (back - q.out_zero)))


def _file_shape(builder: Builder, tensor: Tensor) -> tuple[int, ...]:
    return builder.raw_shapes[tensor.name]


def _looked_up(builder: Builder, tensor: Tabulated, q: Quantizer, name: str) -> Tensor:
    """A quantizer of a tabulated function: a table of levels, the function in float64, the rounding exact."""
    parts = [q.scale, q.inner, q.outer, q.low, q.high]
    if any(part.size != 1 for part in parts):
        raise Refuse(f"quantizes a table of {tensor.function} with a scale for each channel; expected one")
    scale, inner, outer, low, high = (part.reshape(-1)[0] for part in parts)
    levels = []
    for value in tensor.table:
        if math.isnan(value):
            raise Refuse(f"quantizes a {tensor.function} that gives NaN for some integers")
        if math.isinf(value):
            end = high if value > 0 else low
            if not isinstance(end, Fraction):
                raise Refuse(f"rounds a {tensor.function} that is infinite for some integers; clip it, or its input")
            levels.append(int(end))
            continue
        level = round_exactly(Fraction(float(value)) / scale + inner, q.mode) + int(outer)
        levels.append(int(min(max(level, low if low != -math.inf else level), high if high != math.inf else level)))
    before = tensor.before
    made = builder.add(
        Lookup(builder.name(name), before.name, np.array(levels, np.int64), tensor.start, tensor.function)
    )
    return fresh(made, builder.positions(before), q.out_scale, compress(-q.out_scale * q.out_zero))


def unit(scale: Fraction = Fraction(1), mode: Mode = Mode.ROUND) -> Quantizer:
    """Rounding to multiples of ``scale`` without bounds: ONNX's Round, Floor and Ceil."""
    one, zero = scalar(scale), scalar(0)
    return Quantizer(one, zero, zero, NO_LOW, NO_HIGH, mode, one, zero)
