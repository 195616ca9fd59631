"""A netlist evaluated on rows of integers, bit-parallel: 64 rows a word, every node of one level and arity at once.

A table ``t`` of ``a`` inputs is folded input by input, ``t[i] = t[2i] ^ ((t[2i] ^ t[2i+1]) & x)``: ``2^a - 1``
multiplexers a node for 64 rows; what sums are made of is written down. Registers are transparent, which is right
because :mod:`levels` has shown that all paths cross equally many: see :mod:`netlist`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hawq_flow.numeric import IntArray
from hawq_flow.to_rtl.cells import ONE, NetlistError
from hawq_flow.to_rtl.design import Module, Port
from hawq_flow.to_rtl.dsp48 import Dsp, wrapped
from hawq_flow.to_rtl.netlist import Netlist

BLOCK_ROWS = 2048
"""Rows evaluated at once: the nets of a layer stay near the cache."""
VALID_IN, VALID_OUT = "valid_in", "valid_out"
"""Ports of a whole design's top: every row enters valid, and must leave so."""
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_Words = NDArray[np.uint64]
_Function = Callable[..., _Words]
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


def simulate_netlist(stages: Sequence[tuple[Module, Netlist]], values: Mapping[str, ArrayLike]) -> dict[str, IntArray]:
    """Run a chain of synthesized modules, as their ports' values connect them.

    Parameters
    ----------
    stages:
        Modules with their netlists, in order.
    values:
        Integers of the values that no module puts out (the network's inputs), by name, each (n, *shape).

    Returns
    -------
    Every value that a module puts out, by name: (n, elements) int64, elements channels first.

    Raises
    ------
    NetlistError
        If a module's netlist has another latency than the module says, a port is missing or of another width, a value
        is not there or does not fit its port, or a module is only a part of its ops (``unrolled``).
    """
    known = {name: _rows(name, value) for name, value in values.items()}
    found: dict[str, IntArray] = {}
    count = max((len(array) for array in known.values()), default=0)
    for module, netlist in stages:
        if module.unrolled is not None:
            raise NetlistError(
                f"module {module.name} is {module.unrolled}; only modules that compute their ops wholly are simulated"
            )
        given: dict[str, IntArray] = {}
        for port in module.inputs:
            if port.value not in known and port.name != VALID_IN:
                raise NetlistError(
                    f"module {module.name}: value {port.value!r} is missing; give it, or its module first"
                )
            given[port.name] = known[port.value] if port.value in known else np.ones((count, 1), dtype=np.int64)
        result = simulate_module(module, netlist, given)
        for port in module.outputs:
            if port.name == VALID_OUT:
                if not result[port.name].all():
                    raise NetlistError(f"module {module.name}: {VALID_OUT} is 0 for rows that entered with {VALID_IN}")
            else:
                known[port.value] = found[port.value] = result[port.name]
    return found


def simulate_module(module: Module, netlist: Netlist, inputs: Mapping[str, ArrayLike]) -> dict[str, IntArray]:
    """Outputs by port, (n, elements) int64, for inputs by port, (n, elements); errors as :func:`simulate_netlist`."""
    check_interface(module, netlist)
    arrays = {port.name: _rows(port.name, inputs[port.name]) for port in module.inputs}
    rows = {len(array) for array in arrays.values()}
    if len(rows) > 1:
        raise NetlistError(f"module {module.name}: inputs of {sorted(rows)} rows; expected equal numbers")
    total = rows.pop() if rows else 1
    result = {port.name: np.empty((total, port.elements), dtype=np.int64) for port in module.outputs}
    evaluator = Evaluator(netlist)
    for start in range(0, total, BLOCK_ROWS):
        stop = min(start + BLOCK_ROWS, total)
        words = {port.name: pack(arrays[port.name][start:stop], port, module.name) for port in module.inputs}
        out = evaluator.run(words, -(-(stop - start) // 64))
        for port in module.outputs:
            result[port.name][start:stop] = unpack(out[port.name], port, stop - start)
    return result


def check_interface(module: Module, netlist: Netlist) -> None:
    """``NetlistError`` unless the netlist's ports and latency are the module's."""
    for ports, nets in ((module.inputs, netlist.inputs), (module.outputs, netlist.outputs)):
        expected = {port.name: port.width for port in ports}
        found = {name: len(bits) for name, bits in nets.items()}
        if any(found.get(name) != width for name, width in expected.items()) or set(nets) - set(expected):
            raise NetlistError(
                f"module {module.name}: the netlist has ports {found}, expected {expected} (bits by name)"
            )
    if netlist.latency != module.latency and any((netlist.order.stage[n] >= 0).any() for n in netlist.outputs.values()):
        raise NetlistError(
            f"module {module.name}: {netlist.latency} registers between inputs and outputs of the netlist; the module "
            f"says a latency of {module.latency}"
        )


def pack(values: IntArray, port: Port, where: str) -> _Words:
    """(width, words) of bits, one row of the values a bit; ``NetlistError`` where a value does not fit the port."""
    if values.shape[1] != port.elements:
        raise NetlistError(
            f"module {where}: port {port.name} ({port.value}) given {values.shape[1]} elements a row; "
            f"expected {port.elements}"
        )
    low = -(1 << (port.bits - 1)) if port.signed else 0
    high = low + (1 << port.bits) - 1
    wrong = np.argwhere((values < low) | (values > high))
    for row, element in wrong[:1]:
        raise NetlistError(
            f"module {where}: port {port.name} ({port.value}) row {row} element {element} is {values[row, element]}; "
            f"expected {low} to {high}"
        )
    words = -(-len(values) // 64)
    planes = np.zeros((port.elements, port.bits, words * 64), dtype=bool)
    planes[:, :, : len(values)] = (values.T[:, None, :] >> np.arange(port.bits)[None, :, None]) & 1
    return np.packbits(planes, axis=-1, bitorder="little").view("<u8").astype(np.uint64).reshape(port.width, words)


def unpack(words: _Words, port: Port, rows: int) -> IntArray:
    """(rows, elements) int64 of a port's bits."""
    bits = unpacked(words, rows).reshape(port.elements, port.bits, rows)
    return integers(bits, port.signed).T.copy()


def planes(values: IntArray, places: IntArray) -> _Words:
    """Bits ``places`` of integers (n,) as (places, words); rows beyond n repeat nothing: they are 0."""
    bits = np.zeros((len(places), -(-len(values) // 64) * 64), dtype=bool)
    bits[:, : len(values)] = (values[None] >> places[:, None]) & 1
    return np.packbits(bits, axis=-1, bitorder="little").view("<u8").astype(np.uint64)


def unpacked(words: _Words, rows: int) -> NDArray[np.uint8]:
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
        self.steps: list[tuple[_Function | _Words, NDArray[np.int32], NDArray[np.int32]] | Dsp] = []
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

    def run(self, inputs: Mapping[str, _Words], words: int) -> dict[str, _Words]:
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


def _multiply(dsp: Dsp, nets: _Words) -> None:
    """One multiplier block on all rows: its operands as integers, its result as bits."""
    rows = nets.shape[1] * 64

    def operand(which: tuple[int, ...]) -> IntArray:
        return integers(unpacked(nets[list(which)], rows), signed=True) if which else np.zeros(rows, dtype=np.int64)

    a, b, c, d = (operand(which) for which in (dsp.a, dsp.b, dsp.c, dsp.d))
    b = np.where(operand((dsp.reset_m,)) != 0, 0, b)
    p = np.where(operand((dsp.reset_p,)) != 0, 0, dsp.evaluate(a, b, wrapped(c, 48), d))
    bits = ((p[None] >> np.arange(48)[:, None]) & 1).astype(np.uint8)
    packed = np.packbits(bits, axis=-1, bitorder="little").view("<u8").astype(np.uint64)
    nets[list(dsp.outputs)] = packed
    if dsp.cascade:
        nets[list(dsp.cascade)] = packed[: len(dsp.cascade)]


def _rows(name: str, value: ArrayLike) -> IntArray:
    array = np.asarray(value)
    if array.ndim < 1 or array.dtype.kind not in "iub":
        raise NetlistError(f"value {name!r}: {array.dtype} of shape {array.shape}; expected integers (n, ...)")
    return array.astype(np.int64).reshape(len(array), -1)
