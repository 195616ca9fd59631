"""What a netlist takes of a device, counted from its cells.

*Raw* LUTs are the cells LUT1 to LUT6 and INV. That under-reports an adder: a carry chain's bit sits in the site of one
LUT and takes it up, also where its S pin comes straight from a signal or from a LUT that feeds other chains as well.
*Packed* LUTs are sites:

* one for each carry bit in use (a bit whose sum, or whose carry, some output depends on), and
* one for each LUT or INV that shares no carry bit's site. It does share one if it drives the S pin of a carry bit in
  use (it is the LUT of that site, and its output can leave the slice as well); or if everything that it drives is DI
  pins of carry bits in use, and at each of them it and the LUT at S have at most 5 inputs between them, so that both
  fit into one dual-output LUT. (An S pin without a LUT counts as one input: the route through the site.)

Vendors also put two unrelated small LUTs into one dual-output LUT; nothing of that is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hawq_flow.to_rtl.cells import SEQUENTIAL, Kind
from hawq_flow.to_rtl.netlist import Netlist
from hawq_flow.to_rtl.timing import depth

_PAIR_INPUTS = 5


@dataclass(frozen=True)
class Figures:
    """Counts of one netlist.

    Attributes
    ----------
    lut, lut_packed:
        Look-up tables, raw and packed; see the module.
    lut_inputs:
        Cells LUT1 to LUT6, inverters counted as LUT1.
    carry_bits, carry4, carry8:
        Carry bits in use, CARRY4 cells, and CARRY8 blocks that the same chains fill on UltraScale.
    muxf:
        MUXF7, MUXF8 and MUXF9.
    ff, dsp:
        Flip-flops and multiplier blocks.
    levels, lut_levels, relative_ns:
        Longest paths: see :class:`hawq_flow.to_rtl.timing.Depth`.
    """

    lut: int
    lut_packed: int
    lut_inputs: tuple[int, ...]
    carry_bits: int
    carry4: int
    carry8: int
    muxf: int
    ff: int
    dsp: int
    levels: int
    lut_levels: int
    relative_ns: float


def figures_of(netlist: Netlist) -> Figures:
    """Count a netlist; errors as :func:`hawq_flow.to_rtl.levels.levelled`."""
    types = Counter(netlist.types)
    inputs = tuple(types[f"LUT{i}"] + (types["INV"] if i == 1 else 0) for i in range(1, 7))
    bits, packed = _sites(netlist)
    longest = depth(netlist)
    return Figures(
        lut=sum(inputs),
        lut_packed=packed,
        lut_inputs=inputs,
        carry_bits=bits,
        carry4=types["CARRY4"],
        carry8=_carry8(netlist),
        muxf=sum(types[f"MUXF{i}"] for i in (7, 8, 9)),
        ff=sum(types[name] for name in SEQUENTIAL),
        dsp=len(netlist.dsps),
        levels=longest.levels,
        lut_levels=longest.luts,
        relative_ns=longest.ns,
    )


def combined(parts: Sequence[tuple[Figures, int]], ff: int = 0) -> Figures:
    """Figures times how often each is there, and ``ff`` flip-flops more; of depths and delays the largest."""

    def total(pick: Callable[[Figures], int]) -> int:
        return sum(pick(figures) * count for figures, count in parts)

    return Figures(
        lut=total(lambda f: f.lut),
        lut_packed=total(lambda f: f.lut_packed),
        lut_inputs=tuple(sum(f.lut_inputs[i] * count for f, count in parts) for i in range(6)),
        carry_bits=total(lambda f: f.carry_bits),
        carry4=total(lambda f: f.carry4),
        carry8=total(lambda f: f.carry8),
        muxf=total(lambda f: f.muxf),
        ff=total(lambda f: f.ff) + ff,
        dsp=total(lambda f: f.dsp),
        levels=max((f.levels for f, _ in parts), default=0),
        lut_levels=max((f.lut_levels for f, _ in parts), default=0),
        relative_ns=max((f.relative_ns for f, _ in parts), default=0.0),
    )


def _carry_sites(netlist: Netlist) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """By carry bit in use: the nets of its S pin and of its DI pin (net 0, a constant, where the DI is not read)."""
    live = netlist.order.live[: len(netlist.kind)]
    total, out = netlist.kind == Kind.CARRY_SUM, netlist.kind == Kind.CARRY_OUT
    # The nodes of a bit are its sum, if that is connected, and then its carry: nodes up to a carry are one bit.
    bit = np.cumsum(out) - out
    count = int(out.sum())
    select, data = np.full(count, -1, dtype=np.int32), np.zeros(count, dtype=np.int32)
    select[bit[total & live]] = netlist.pins[total & live, 0]
    select[bit[out & live]] = netlist.pins[out & live, 2]
    data[bit[out & live]] = netlist.pins[out & live, 0]
    used = select >= 0
    return select[used], data[used]


def _sites(netlist: Netlist) -> tuple[int, int]:
    """Carry bits in use, and packed LUTs."""
    select, data = _carry_sites(netlist)
    is_lut = ((netlist.kind == Kind.LUT) | (netlist.kind == Kind.INVERTER)) & netlist.order.live[: len(netlist.kind)]
    luts = np.flatnonzero(is_lut)
    free = luts[~np.isin(netlist.output[luts], select)]
    lut_at = np.full(netlist.nets, -1, dtype=np.int64)
    lut_at[netlist.output[luts]] = luts
    readers = _fan_out(netlist)
    at_data = np.bincount(data, minlength=netlist.nets)
    driven = netlist.output[free]
    candidates = free[(at_data[driven] > 0) & (at_data[driven] == readers[driven])]
    sites: dict[int, list[int]] = {int(net): [] for net in netlist.output[candidates]}
    for s, d in zip(select.tolist(), data.tolist(), strict=True):
        if d in sites:
            sites[d].append(s)
    shared = sum(
        all(len(_inputs(netlist, int(lut)) | _site_inputs(netlist, lut_at, s)) <= _PAIR_INPUTS for s in where)
        for lut, where in zip(candidates, sites.values(), strict=True)
    )
    return len(select), len(select) + len(free) - shared


def _inputs(netlist: Netlist, node: int) -> set[int]:
    return set(netlist.pins[node, : netlist.arity[node]].tolist())


def _site_inputs(netlist: Netlist, lut_at: NDArray[np.int64], select: int) -> set[int]:
    node = int(lut_at[select])
    return {select} if node < 0 else _inputs(netlist, node)


def _fan_out(netlist: Netlist) -> NDArray[np.intp]:
    """By net, how many pins of live nodes, of multiplier blocks and of output ports read it."""
    live = netlist.order.live[: len(netlist.kind)]
    used = netlist.used & live[:, None]
    blocks = [np.array(dsp.reads, dtype=np.int32) for dsp in netlist.dsps]
    return np.bincount(np.concatenate([netlist.pins[used], *blocks, *netlist.outputs.values()]), minlength=netlist.nets)


def _carry8(netlist: Netlist) -> int:
    """Each chain of n CARRY4 fills (n + 1) // 2 CARRY8."""
    out = np.flatnonzero(netlist.kind == Kind.CARRY_OUT)
    driver = np.full(netlist.nets, -1, dtype=np.int64)
    driver[netlist.output[out]] = netlist.cell[out]
    cells, first = np.unique(netlist.cell[out], return_index=True)
    before = driver[netlist.pins[out[first], 1]]  # the cell whose carry enters this one's lowest bit
    place = {int(cell): i for i, cell in enumerate(cells)}
    following = {place[int(b)]: i for i, b in enumerate(before) if b >= 0}
    total = 0
    for i in range(len(cells)):
        if before[i] < 0 or following[place[int(before[i])]] != i:
            length = 1
            while i in following:
                i, length = following[i], length + 1
            total += (length + 1) // 2
    return total
