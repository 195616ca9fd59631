"""A netlist's nodes evaluated bit-parallel: 64 rows a word, every node of one level and arity at once.

A table ``t`` of ``a`` inputs is folded input by input, ``t[i] = t[2i] ^ ((t[2i] ^ t[2i+1]) & x)``: ``2^a - 1``
multiplexers a node for 64 rows; what sums are made of is written down. Registers are transparent, which is right
because :mod:`levels` has shown that all paths cross equally many: see :mod:`netlist`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hawq_flow.numeric import IntArray
from hawq_flow.to_rtl.cells import ONE
from hawq_flow.to_rtl.dsp48 import Dsp, wrapped

if TYPE_CHECKING:
    from hawq_flow.to_rtl.netlist import Netlist

Words = NDArray[np.uint64]
"""64 rows of one bit each, the first row lowest."""
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_Function = Callable[..., Words]
_FAST: dict[tuple[int, int], _Function] = {
    (1, 0b10): lambda a: a,
    (1, 0b01): lambda a: ~a,
    (2, 0b0110): lambda a, b: a ^ b,
    (2, 0b1001): lambda a, b: ~(a ^ b),
    (2, 0b1000): lambda a, b: a & b,
    (2, 0b1110): lambda a, b: a | b,
    (3, 0b11001010): lambda a, b, s: a ^ ((a ^ b) & s),
    (3, 0b10010110): lambda a, b, c: a ^ b ^ c,
    (3, 0b01101001): lambda a, b, c: ~(a ^ b ^ c),
    (3, 0b11101000): lambda a, b, c: a ^ ((a ^ b) & (a ^ c)),
    (3, 0b10110010): lambda a, b, c: a ^ (~(a ^ b) & (a ^ c)),
}
"""Functions of sums and multiplexers by (inputs, table), in fewer operations than their tables take."""


def planes(values: IntArray, places: IntArray) -> Words:
    """Bits ``places`` of integers (..., n) as (..., places, words); rows beyond n are 0."""
    rows = values.shape[-1]
    bits = np.zeros((*values.shape[:-1], len(places), -(-rows // 64) * 64), dtype=bool)
    bits[..., :rows] = (values[..., None, :] >> places[:, None]) & 1
    return np.packbits(bits, axis=-1, bitorder="little").view("<u8").astype(np.uint64)


def unpacked(words: Words, rows: int) -> NDArray[np.uint8]:
    """(..., rows) bits of (..., words)."""
    as_bytes = np.ascontiguousarray(words.astype("<u8")).view(np.uint8)
    return np.unpackbits(as_bytes, axis=-1, bitorder="little")[..., :rows]


def integers(bits: NDArray[np.uint8], signed: bool) -> IntArray:
    """Bits on the last axis but one, lowest first, as int64."""
    count = bits.shape[-2]
    weights = np.int64(1) << np.arange(count, dtype=np.int64)
    if signed:
        weights[-1] = -weights[-1]
    return np.asarray(np.einsum("...br,b->...r", bits, weights, dtype=np.int64))


class Evaluator:
    """A netlist prepared for :meth:`run`: nodes grouped by level and arity, tables as masks."""

    def __init__(self, netlist: Netlist) -> None:
        self.netlist = netlist
        nodes = len(netlist.kind)
        self.steps: list[tuple[_Function | Words, NDArray[np.int32], NDArray[np.int32]] | Dsp] = []
        for level in netlist.order.levels:
            items = level[level < nodes]
            arity = netlist.arity[items]
            for count in np.unique(arity):
                group = items[arity == count]
                tables = netlist.table[group]
                for (inputs, table), function in _FAST.items():
                    if inputs == count and (same := tables == table).any():
                        self.steps.append((function, netlist.pins[group[same], :count].T, netlist.output[group[same]]))
                        group, tables = group[~same], tables[~same]
                if not len(group):
                    continue
                spread = (netlist.table[group][:, None] >> np.arange(1 << count, dtype=np.uint64)) & np.uint64(1)
                self.steps.append((spread * _ALL, netlist.pins[group, :count].T, netlist.output[group]))
            self.steps += [netlist.dsps[item - nodes] for item in level[level >= nodes]]

    def run(self, inputs: Mapping[str, Words], words: int) -> dict[str, Words]:
        """Output ports' bits (width, words) from input ports' bits."""
        nets = np.zeros((self.netlist.nets, words), dtype=np.uint64)
        nets[ONE] = _ALL
        for name, where in self.netlist.inputs.items():
            nets[where] = inputs[name]
        for step in self.steps:
            if isinstance(step, Dsp):
                _multiply(step, nets)
                continue
            function, pins, output = step
            if callable(function):
                nets[output] = function(*(nets[pin] for pin in pins))
                continue
            table = function[:, :, None]
            for pin in pins:
                low = table[:, 0::2]
                table = low ^ ((low ^ table[:, 1::2]) & nets[pin][:, None, :])
            nets[output] = table[:, 0]
        return {name: nets[where] for name, where in self.netlist.outputs.items()}


def _multiply(dsp: Dsp, nets: Words) -> None:
    """One multiplier block on all rows: its operands as integers, its result as bits."""
    rows = nets.shape[1] * 64

    def operand(which: tuple[int, ...]) -> IntArray:
        return integers(unpacked(nets[list(which)], rows), signed=True) if which else np.zeros(rows, dtype=np.int64)

    a, b, c, d = (operand(which) for which in (dsp.a, dsp.b, dsp.c, dsp.d))
    b = np.where(operand((dsp.reset_m,)) != 0, 0, b)
    p = np.where(operand((dsp.reset_p,)) != 0, 0, dsp.evaluate(a, b, wrapped(c, 48), d))
    packed = planes(p, np.arange(48))
    nets[list(dsp.outputs)] = packed
    if dsp.cascade:
        nets[list(dsp.cascade)] = packed[: len(dsp.cascade)]
