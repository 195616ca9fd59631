"""Logic depth and relative delay of a netlist: the longest paths between registers, ports counted as registers.

*Levels* counts cells on a path as vendor reports do: a LUT, an inverter or a wide multiplexer is one, every carry
primitive that a path enters is one. *Delay* adds constants a kind of cell, of the size of 7 Series' slowest commercial
grade as Yosys' cell library gives them, and one constant a routed net. Nothing is placed, so the delay ranks designs
and is no prediction of a clock; it is called relative wherever it is printed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hawq_flow.to_rtl.cells import Kind
from hawq_flow.to_rtl.netlist import Netlist

ROUTE_NS = 0.45
"""A net through the routing; a guess, the same for all."""
LUT_NS = 0.12
CARRY_ENTRY_NS = 0.40
"""S, DI or CYINIT to the carry out of a bit."""
CARRY_BIT_NS = 0.03
"""Carry in to carry out of one bit."""
CARRY_SUM_NS = 0.22
"""Carry in, or S, to a bit's sum."""
MUXF_NS = 0.22
CLOCK_TO_Q_NS = 0.30
SETUP_NS = 0.05
DSP_NS = 2.8
"""Through a multiplier block without registers; with one inside, half of it on either side."""
_CELL_NS = {
    Kind.LUT: LUT_NS,
    Kind.INVERTER: LUT_NS,
    Kind.MUXF: MUXF_NS,
    Kind.BUFFER: 0.0,
    Kind.CARRY_SUM: CARRY_SUM_NS,
    Kind.CARRY_OUT: CARRY_ENTRY_NS,
    Kind.CARRY_IN: 0.0,
    Kind.FLIP_FLOP: SETUP_NS,
}


@dataclass(frozen=True)
class Depth:
    """Longest paths between registers or ports: ``levels`` of cells, ``luts`` (on its own path), ``ns``."""

    levels: int
    luts: int
    ns: float


def depth(netlist: Netlist) -> Depth:
    """The three longest paths of a netlist; errors as :func:`hawq_flow.to_rtl.levels.levelled`."""
    nodes = len(netlist.kind)
    cell_of = np.full(netlist.nets, -1, dtype=np.int64)
    cell_of[netlist.output] = netlist.cell
    from_carry = np.zeros(netlist.nets, dtype=bool)
    from_carry[netlist.output] = netlist.kind == Kind.CARRY_OUT
    cell_ns = np.array([_CELL_NS[kind] for kind in Kind])
    levels = np.zeros(netlist.nets, dtype=np.int64)
    luts = np.zeros(netlist.nets, dtype=np.int64)
    ns = np.full(netlist.nets, CLOCK_TO_Q_NS)
    longest_levels, longest_luts, longest_ns = 0, 0, 0.0
    for level in netlist.order.levels:
        items = level[level < nodes]
        if len(items):
            kind, pins, output = netlist.kind[items], netlist.pins[items], netlist.output[items]
            used = netlist.used[items]
            register = kind == Kind.FLIP_FLOP
            is_carry = (kind == Kind.CARRY_OUT) | (kind == Kind.CARRY_SUM)
            chained = is_carry[:, None] & (np.arange(pins.shape[1]) == 1) & from_carry[pins]
            step = (cell_of[pins] != netlist.cell[items][:, None]) & ~register[:, None]
            step &= (kind != Kind.BUFFER)[:, None]
            is_lut = (kind == Kind.LUT) | (kind == Kind.INVERTER)
            cost = np.where(chained, 0.0, ROUTE_NS) + np.where(
                chained & (kind == Kind.CARRY_OUT)[:, None], CARRY_BIT_NS, cell_ns[kind][:, None]
            )
            reached = np.where(used, levels[pins] + step, 0).max(axis=1)
            reached_luts = np.where(used, luts[pins], 0).max(axis=1) + is_lut
            reached_ns = np.where(used, ns[pins] + cost, 0.0).max(axis=1)
            longest_levels = max(longest_levels, int(reached.max()))
            longest_luts = max(longest_luts, int(reached_luts.max()))
            longest_ns = max(longest_ns, float(reached_ns.max()))
            levels[output] = np.where(register, 0, reached)
            luts[output] = np.where(register, 0, reached_luts)
            ns[output] = np.where(register, CLOCK_TO_Q_NS, reached_ns)
        for item in level[level >= nodes]:
            dsp = netlist.dsps[item - nodes]
            reads = dsp.reads
            into, before = int(levels[reads].max()), float(ns[reads].max()) + ROUTE_NS
            registered = max(registers for _, registers in dsp.ways) > 0
            out = list(dsp.outputs + dsp.cascade)
            longest_levels = max(longest_levels, into + 1)
            longest_ns = max(longest_ns, before + (DSP_NS / 2 if registered else DSP_NS))
            levels[out] = 1 if registered else into + 1
            luts[out] = 0 if registered else int(luts[reads].max())
            ns[out] = CLOCK_TO_Q_NS + DSP_NS / 2 if registered else before + DSP_NS
    return Depth(longest_levels, longest_luts, round(longest_ns, 3))
