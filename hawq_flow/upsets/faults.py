"""What a flip changes where it strikes: the integers of one value, for many flips of a stratum and all rows at once.

Most flips change one channel of a value (axis 0), and the Requantize behind it changes the same channel alone, so both
are computed on that channel: ``part`` (flips, rows, *space). A scale or a table shared by all channels changes
everything: ``part`` (flips, rows, *shape).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hawq_flow.network import Conv, Dense, IntegerNetwork, Lookup, Requantize, patches
from hawq_flow.numeric import IntArray
from hawq_flow.upsets.registers import Registers, address, ends, flip, rescale, wrap
from hawq_flow.upsets.sites import Stratum, stored_type

Values = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Change:
    """A value with each of some flips: ``part`` int64 (flips, rows, ...), of ``channels`` (flips,) or whole (None)."""

    name: str
    part: IntArray
    channels: IntArray | None

    def healthy(self, values: Values) -> NDArray[Any]:
        """What ``part`` would be without the flips."""
        whole = values[self.name]
        return whole[None] if self.channels is None else np.moveaxis(whole[:, self.channels], 1, 0)

    def full(self, values: Values, flips: IntArray, rows: IntArray) -> NDArray[Any]:
        """The whole value, for pairs (flip, row): (pairs, *shape)."""
        if self.channels is None:
            return self.part[flips, rows].astype(values[self.name].dtype)
        result = values[self.name][rows]
        result[np.arange(len(rows)), self.channels[flips]] = self.part[flips, rows]
        return result


@dataclass
class Faults:
    """Flips of a network, on rows whose healthy values are known.

    ``values``: the healthy integers by name, (rows, *shape), of the dtypes of ``registers.carriers``.
    """

    network: IntegerNetwork
    registers: Registers
    values: Values
    following: Mapping[str, Requantize]
    """By value, the Requantize that alone reads it."""
    _kept: dict[tuple[str, str], NDArray[Any]] = field(default_factory=dict)

    def change(self, stratum: Stratum, elements: IntArray) -> Change:
        """The value that the flips of ``stratum`` change, for flat indices ``elements`` (flips,) of its words."""
        op: Any = self.network.op(stratum.op)
        match stratum.kind:
            case "weight" | "bias":
                found = self._product(op, stratum, elements)
            case "multiplier" | "shift" | "offset":
                found = self._rescale(op, stratum, elements)
            case "table":
                found = self._table(op, stratum, elements)
            case _:
                found = self._register(stratum, elements)
        following = self.following.get(found.name)
        if following is None or found.channels is None:
            return found
        return Change(following.name, self._rescaled(following, found.part, found.channels, {}), found.channels)

    def _column(self, name: str, channels: IntArray) -> IntArray:
        """Healthy integers of channels, int64 (flips, rows, *space)."""
        return np.moveaxis(self.values[name][:, channels], 1, 0).astype(np.int64)

    def _product(self, op: Dense | Conv, stratum: Stratum, elements: IntArray) -> Change:
        array = op.weight if stratum.kind == "weight" else op.bias
        change = _difference(array, stratum.bit, elements)
        channels, *where = np.unravel_index(elements, array.shape)
        rank = len(self.network.values[op.name].shape)
        change = _spread(change, rank)
        if where:
            change = change * self._seen(op, channels, where)
        return Change(op.name, self._accumulated(op, self._sums(op, channels) + change, channels), channels)

    def _seen(self, op: Dense | Conv, channels: IntArray, where: list[IntArray]) -> IntArray:
        """What a weight meets: int64 (flips, rows, *space) at ``where`` of the weight's axes behind the first."""
        if isinstance(op, Dense):
            return self._column(op.input, where[0])
        key = (op.name, "seen")
        if key not in self._kept:
            self._kept[key] = patches(self.values[op.input], op.kernel, op.stride, op.padding)
        group = channels // (op.weight.shape[0] // op.groups)
        inputs = group * op.weight.shape[1] + where[0]
        return np.moveaxis(self._kept[key][(slice(None), inputs, *where[1:])], 1, 0).astype(np.int64)

    def _sums(self, op: Dense | Conv, channels: IntArray) -> IntArray:
        """Healthy sums before the accumulator's overflow (those after it are the same modulo its width)."""
        if op.name not in self.registers.sums:
            return self._column(op.name, channels)
        key = (op.name, "sums")
        if key not in self._kept:
            self._kept[key] = self.registers.sums[op.name](self.values[op.input])
        return np.moveaxis(self._kept[key][:, channels], 1, 0).astype(np.int64)

    def _accumulated(self, op: Dense | Conv, sums: IntArray, channels: IntArray) -> IntArray:
        rank = sums.ndim - 1
        if op.name in self.registers.sums:
            type = self.registers.sum_types[op.name]
            held = wrap(sums, *(_at(end, channels, rank) for end in ends(type, rank)))
            assert op.accumulator is not None
            low, high = op.accumulator.low(rank), op.accumulator.high(rank)
            return np.asarray(np.clip(held, _at(low, channels, rank), _at(high, channels, rank)))
        return wrap(sums, *self._ends(op.name, channels, rank))

    def _ends(self, name: str, channels: IntArray, rank: int) -> tuple[IntArray, IntArray]:
        low, high = self.registers.low[name], self.registers.high[name]
        return _at(low, channels, rank), _at(high, channels, rank)

    def _rescale(self, op: Requantize, stratum: Stratum, elements: IntArray) -> Change:
        shape = self.network.values[op.name].shape
        array: IntArray = getattr(op, stratum.kind)
        if array.shape == (shape[0],) + (1,) * (len(shape) - 1):
            flipped = array.reshape(-1)[elements] + _difference(array, stratum.bit, elements)
            part = self._rescaled(
                op, self._column(op.input, elements), elements, {stratum.kind: _spread(flipped, len(shape))}
            )
            return Change(op.name, part, elements)
        each = np.repeat(array.reshape(1, -1), len(elements), axis=0)
        each[np.arange(len(elements)), elements] += _difference(array, stratum.bit, elements)
        each = each.reshape((len(elements), 1) + (1,) * (len(shape) - array.ndim) + array.shape)
        constants = {name: getattr(op, name) for name in ("multiplier", "shift", "offset")} | {stratum.kind: each}
        x = self.values[op.input][None].astype(np.int64)
        low, high = (np.asarray(end) for end in (op.type.low(len(shape)), op.type.high(len(shape))))
        part = rescale(x, **constants, rounding=op.rounding, low=low, high=high, overflow=op.overflow)
        return Change(op.name, np.broadcast_to(part, (len(elements), *part.shape[1:])), None)

    def _rescaled(self, op: Requantize, x: IntArray, channels: IntArray, replaced: Mapping[str, IntArray]) -> IntArray:
        """A Requantize on one channel a flip, x (flips, rows, *space), some of its constants replaced."""
        shape, rank = self.network.values[op.name].shape, x.ndim - 1
        constants: dict[str, IntArray] = dict(replaced)
        for name in ("multiplier", "shift", "offset"):
            if name not in constants:
                array: IntArray = getattr(op, name)
                constants[name] = array if array.ndim == 0 else np.broadcast_to(array, shape)[channels][:, None]
        low, high = _at(op.type.low(rank), channels, rank), _at(op.type.high(rank), channels, rank)
        return rescale(x, **constants, rounding=op.rounding, low=low, high=high, overflow=op.overflow)

    def _table(self, op: Lookup, stratum: Stratum, elements: IntArray) -> Change:
        low, high = self.registers.low[op.name], self.registers.high[op.name]
        axes = len(self.network.values[op.name].shape) + 1
        flipped = op.table[elements] + _difference(op.table, stratum.bit, elements)
        read = address(op, self.values[op.input])[None] == _spread(elements, axes)
        held = wrap(_spread(flipped, axes), low, high)
        return Change(op.name, np.where(read, held, self.values[op.name][None].astype(np.int64)), None)

    def _register(self, stratum: Stratum, elements: IntArray) -> Change:
        name = stratum.op
        shape = self.network.values[name].shape
        channels, position = np.divmod(elements, int(np.prod(shape[1:])))
        part = self._column(name, channels)
        flat = part.reshape(*part.shape[:2], -1)
        low, high = (end.reshape(-1, 1) for end in self._ends(name, channels, 1))
        at = (np.arange(len(elements)), slice(None), position)
        flat[at] = flip(flat[at], stratum.bit, low, high)
        return Change(name, flat.reshape(part.shape), channels)


def _difference(array: IntArray, bit: int, elements: IntArray) -> IntArray:
    """What a flip of ``bit`` adds to the words ``elements`` of a stored array: +-2^bit, int64 (flips,)."""
    words = array.reshape(-1)[elements]
    low, high = ends(stored_type(array), 1)
    return flip(words, bit, low, high) - words


def _spread(each: IntArray, axes: int) -> IntArray:
    """(flips,) -> (flips, 1, ...) with ``axes`` ones: the value's rank for a channel's part, one more for a whole's."""
    return each.reshape((-1,) + (1,) * axes)


def _at(end: IntArray, channels: IntArray, rank: int) -> IntArray:
    """An end of a type, of channels where it has one each: a scalar, or (flips, 1, ...) over (flips, rows, *space)."""
    return end if end.ndim == 0 else end.reshape(-1)[channels].reshape((-1,) + (1,) * rank)
