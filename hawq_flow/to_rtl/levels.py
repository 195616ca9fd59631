"""The order in which a netlist's items are evaluated, and how many registers stand before every net.

Items are the nodes of a :class:`~hawq_flow.to_rtl.netlist.Netlist` in order, then its multiplier blocks. An item's
level is one more than the highest of what drives its inputs; registers count as items like any other, so a feedback
loop has no level and is an error. Items that no output depends on are left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hawq_flow.to_rtl.cells import UNKNOWN, Kind, NetlistError

if TYPE_CHECKING:
    from hawq_flow.to_rtl.netlist import Netlist

CONSTANT = -1
"""Stage of a net that is the same in every clock cycle."""


@dataclass(frozen=True, eq=False)
class Order:
    """What :func:`levelled` found.

    Attributes
    ----------
    levels:
        Indices of the items of each level, in order of evaluation.
    live:
        (items,) whether an output depends on it.
    stage:
        (nets,) registers between the inputs and the net; ``CONSTANT`` where no input is before it.
    latency:
        Registers between inputs and outputs; 0 where every output is constant and there is none.
    """

    levels: tuple[NDArray[np.intp], ...]
    live: NDArray[np.bool_]
    stage: NDArray[np.int32]
    latency: int


def levelled(netlist: Netlist) -> Order:
    """Levels and stages; ``NetlistError`` names a loop, an undefined input, or paths of unequally many registers."""
    nodes = len(netlist.kind)
    edges = _Edges(netlist)
    live = _live(netlist, edges)
    _defined(netlist, live)
    levels = _levels(netlist, edges, live)
    stage = np.full(netlist.nets, CONSTANT, dtype=np.int32)
    for nets in netlist.inputs.values():
        stage[nets] = 0
    registers = (netlist.kind == Kind.FLIP_FLOP).astype(np.int32)
    for level in levels:
        items = level[level < nodes]
        before = np.where(netlist.used[items], stage[netlist.pins[items]], CONSTANT)
        latest = before.max(axis=1, initial=CONSTANT)
        early = (before != latest[:, None]) & (before != CONSTANT)
        for row, column in np.argwhere(early)[:1]:
            raise _uneven(netlist, int(items[row]), before[row, column], latest[row])
        stage[netlist.output[items]] = np.where(latest == CONSTANT, CONSTANT, latest + registers[items])
        for item in level[level >= nodes]:
            dsp = netlist.dsps[item - nodes]
            found = {int(s) + n for nets, n in dsp.ways for s in stage[list(nets)] if s != CONSTANT}
            if len(found) > 1:
                raise NetlistError(f"netlist {netlist.name}: {sorted(found)} registers on the ways into {dsp.name}")
            stage[list(dsp.outputs + dsp.cascade)] = found.pop() if found else CONSTANT
    ends = {int(s) for nets in netlist.outputs.values() for s in stage[nets] if s != CONSTANT}
    if len(ends) > 1:
        raise NetlistError(
            f"netlist {netlist.name}: outputs come after {' and '.join(map(str, sorted(ends)))} registers; "
            "expected one latency for all"
        )
    return Order(levels, live, stage, ends.pop() if ends else 0)


def cone(netlist: Netlist, outputs: Sequence[int] | NDArray[np.int32], cut: Sequence[int]) -> Netlist | None:
    """The logic between the nets ``cut`` and ``outputs`` as a netlist of ports ``word`` and ``y``.

    None where the outputs depend on something else than the cut and constants. Without multiplier blocks.
    """
    stop = set(cut)
    driver = netlist.driver
    found: dict[int, None] = {}
    waiting = [int(net) for net in outputs]
    while waiting:
        net = waiting.pop()
        if net <= UNKNOWN or net in stop:
            continue
        item = driver.get(net)
        if item is None:
            return None
        if item not in found:
            found[item] = None
            waiting += netlist.pins[item, : netlist.arity[item]].tolist()
    kept = np.array(sorted(found), dtype=np.intp)
    # Nets are numbered anew, so that what is evaluated is no larger than what is there.
    ends = [netlist.pins[kept].ravel(), netlist.output[kept], np.array(cut), np.array(outputs), np.arange(UNKNOWN + 1)]
    used = np.unique(np.concatenate(ends).astype(np.int32))

    def renumbered(nets: NDArray[np.int32] | Sequence[int]) -> NDArray[np.int32]:
        return np.searchsorted(used, np.asarray(nets, dtype=np.int32)).astype(np.int32)

    # Registers are wires here: that all paths have equally many is known of the whole.
    kinds = np.where(netlist.kind[kept] == Kind.FLIP_FLOP, Kind.BUFFER, netlist.kind[kept]).astype(np.int8)
    return dataclasses.replace(
        netlist,
        nets=len(used),
        kind=kinds,
        pins=renumbered(netlist.pins[kept]),
        arity=netlist.arity[kept],
        table=netlist.table[kept],
        output=renumbered(netlist.output[kept]),
        cell=netlist.cell[kept],
        inputs={"word": renumbered(cut)},
        outputs={"y": renumbered(outputs)},
    )


class _Edges:
    """Nets into and out of items, flat: item ``i`` reads ``read[start[i]:start[i + 1]]``."""

    def __init__(self, netlist: Netlist) -> None:
        blocks = [np.array(dsp.reads, dtype=np.int32) for dsp in netlist.dsps]
        self.read = np.concatenate([netlist.pins[netlist.used], *blocks])
        counts = np.concatenate([netlist.arity.astype(np.intp), [len(b) for b in blocks]]).astype(np.intp)
        self.start = np.concatenate([[0], np.cumsum(counts)])
        self.reader = np.repeat(np.arange(len(counts)), counts)
        self.driver = np.full(netlist.nets, -1, dtype=np.intp)
        self.driver[netlist.output] = np.arange(len(netlist.kind))
        for i, dsp in enumerate(netlist.dsps):
            self.driver[list(dsp.outputs + dsp.cascade)] = len(netlist.kind) + i
        driven = len(np.unique(netlist.output)) + len({n for d in netlist.dsps for n in d.outputs + d.cascade})
        if (
            driven != len(netlist.output) + sum(len(d.outputs + d.cascade) for d in netlist.dsps)
            or (self.driver[: UNKNOWN + 1] >= 0).any()
        ):
            raise NetlistError(f"netlist {netlist.name}: a net is driven twice, or a constant is driven")

    def reads(self, items: NDArray[np.intp]) -> NDArray[np.int32]:
        """Nets that ``items`` read, one after the other."""
        return self.read[_ranges(self.start[items], self.start[items + 1])]


def _ranges(start: NDArray[np.intp], stop: NDArray[np.intp]) -> NDArray[np.intp]:
    """``concatenate([arange(a, b) for a, b in zip(start, stop)])``."""
    counts = stop - start
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.asarray(np.arange(total) + np.repeat(start - (ends - counts), counts), dtype=np.intp)


def _live(netlist: Netlist, edges: _Edges) -> NDArray[np.bool_]:
    live = np.zeros(len(edges.start) - 1, dtype=bool)
    nets = np.concatenate([np.zeros(0, np.int32), *netlist.outputs.values()])
    while len(nets):
        items = np.unique(edges.driver[nets])
        items = items[items >= 0]
        items = items[~live[items]]
        live[items] = True
        nets = edges.reads(items)
    return live


def _defined(netlist: Netlist, live: NDArray[np.bool_]) -> None:
    """``NetlistError`` where an output depends on x; an input of a node that its table does not look at may be x."""
    for nets in netlist.outputs.values():
        if (nets == UNKNOWN).any():
            raise NetlistError(f"netlist {netlist.name}: an output bit is undefined (x)")
    for item, pin in np.argwhere((netlist.pins == UNKNOWN) & netlist.used & live[: len(netlist.kind), None]):
        table, arity = int(netlist.table[item]), int(netlist.arity[item])
        if any((table >> i & 1) != (table >> (i ^ (1 << pin)) & 1) for i in range(1 << arity)):
            raise NetlistError(f"netlist {netlist.name}: {_name(netlist, int(item))} reads an undefined net (x)")
    for i, dsp in enumerate(netlist.dsps):
        if live[len(netlist.kind) + i] and UNKNOWN in dsp.reads:
            raise NetlistError(f"netlist {netlist.name}: {dsp.name} reads an undefined net (x)")


def _levels(netlist: Netlist, edges: _Edges, live: NDArray[np.bool_]) -> tuple[NDArray[np.intp], ...]:
    nodes = len(netlist.kind)
    sources = edges.driver[edges.read]
    known = np.zeros(netlist.nets, dtype=bool)
    known[: UNKNOWN + 1] = True
    for nets in netlist.inputs.values():
        known[nets] = True
    floating = np.flatnonzero((sources < 0) & ~known[edges.read] & live[edges.reader])
    if floating.size:
        raise NetlistError(
            f"netlist {netlist.name}: {_name(netlist, int(edges.reader[floating[0]]))} reads a net that nothing drives"
        )
    inner = (sources >= 0) & live[edges.reader]
    waiting = np.bincount(edges.reader[inner], minlength=len(live))
    by_source = np.argsort(sources[inner], kind="stable")
    readers = edges.reader[inner][by_source]
    bounds = np.searchsorted(sources[inner][by_source], np.arange(len(live) + 1))
    ready = np.flatnonzero(live & (waiting == 0))
    levels: list[NDArray[np.intp]] = []
    while len(ready):
        levels.append(ready)
        following, counts = np.unique(readers[_ranges(bounds[ready], bounds[ready + 1])], return_counts=True)
        waiting[following] -= counts
        ready = following[waiting[following] == 0]
    stuck = np.flatnonzero(live & (waiting > 0))
    if stuck.size:
        raise NetlistError(
            f"netlist {netlist.name}: {_name(netlist, int(stuck[0]))} is in or behind a loop; expected a pipeline, "
            f"which has none ({nodes} nodes, {stuck.size} without an order)"
        )
    return tuple(levels)


def _name(netlist: Netlist, item: int) -> str:
    nodes = len(netlist.kind)
    cell = int(netlist.cell[item]) if item < nodes else netlist.dsps[item - nodes].cell
    return f"cell {netlist.cells[cell]} ({netlist.types[cell]})"


def _uneven(netlist: Netlist, item: int, fewer: int, more: int) -> NetlistError:
    return NetlistError(
        f"netlist {netlist.name}: {_name(netlist, item)} meets signals behind {fewer} and {more} registers; "
        "expected equal numbers on every path, or a value of one row would meet another row's"
    )
