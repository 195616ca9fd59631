"""The synthesized netlist itself, read from Yosys' JSON: simulated by ``netlist_simulator``, timed by ``timing``.

Every cell becomes nodes of at most six inputs (``cells``), or a multiplier block (``dsp48``). Registers are transparent
nodes: what leaves the module for the rows that enter it. That is the module's function if and only if every path from
an input to an output crosses the same number of registers, and that number is the latency; ``levels`` counts it on
every path, and unequal counts, or a loop, are errors.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hawq_flow.to_rtl.cells import IGNORED, ONE, SEQUENTIAL, UNKNOWN, ZERO, Cell, NetlistError, Node, nodes_of
from hawq_flow.to_rtl.dsp48 import DSP_TYPES, Dsp, cascaded, dsp_of
from hawq_flow.to_rtl.evaluator import Evaluator
from hawq_flow.to_rtl.levels import Order, levelled

__all__ = ["Netlist", "NetlistError", "Order", "Reader", "parsed", "read_netlist"]

CLOCK = "clk"
"""Name of a clocked module's clock port."""
_PINS = 6


@dataclass(frozen=True, eq=False)
class Netlist:
    """A flat module of primitives.

    Attributes
    ----------
    name:
        The module's name.
    nets:
        Number of nets; 0, 1 and 2 are the constants 0, 1 and x.
    kind, table, output, cell:
        By node, (n,): :class:`Kind`, truth table (uint64), output net, and the index of its cell.
    pins:
        (n, 6) input nets, filled up with net 0; ``arity`` (n,) says how many count.
    cells, types:
        Names and types of the cells.
    dsps:
        Multiplier blocks.
    inputs, outputs:
        Nets of the data ports by name, lowest bit first; clocks left out.
    """

    name: str
    nets: int
    kind: NDArray[np.int8]
    pins: NDArray[np.int32]
    arity: NDArray[np.int8]
    table: NDArray[np.uint64]
    output: NDArray[np.int32]
    cell: NDArray[np.int32]
    cells: tuple[str, ...]
    types: tuple[str, ...]
    dsps: tuple[Dsp, ...]
    inputs: Mapping[str, NDArray[np.int32]]
    outputs: Mapping[str, NDArray[np.int32]]

    @cached_property
    def order(self) -> Order:
        """Levels of what outputs depend on, and registers before every net; see :func:`levelled` for errors."""
        return levelled(self)

    @cached_property
    def used(self) -> NDArray[np.bool_]:
        """(n, 6) which pins of each node count."""
        return np.asarray(np.arange(_PINS)[None] < self.arity[:, None])

    @cached_property
    def evaluator(self) -> Evaluator:
        """The netlist prepared for evaluation."""
        return Evaluator(self)

    @cached_property
    def driver(self) -> dict[int, int]:
        """The node that drives each net; multiplier blocks left out."""
        return {net: node for node, net in enumerate(self.output.tolist())}

    @property
    def latency(self) -> int:
        """Registers on every path from an input to an output; ``NetlistError`` where paths differ."""
        return self.order.latency


def read_netlist(source: Path | str | bytes | Mapping[str, Any], name: str) -> Netlist:
    """Module ``name`` of a file, text or parsed JSON, Yosys' ``write_json`` after mapping to Xilinx primitives.

    Raises
    ------
    NetlistError
        If the JSON is not a netlist, the module is not in it, or a cell is none that :mod:`cells` knows.
    """
    return Reader(name, parsed(source, name), nodes_of).netlist()


def parsed(source: Path | str | bytes | Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The JSON of one module; ``NetlistError`` where there is none."""
    if isinstance(source, Path):
        source = source.read_bytes()
    try:
        data = source if isinstance(source, Mapping) else json.loads(source)
        modules = data["modules"]
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise NetlistError(
            f"netlist of module {name!r}: not the JSON that Yosys writes ({type(error).__name__}: {error})"
        ) from error
    if name not in modules:
        raise NetlistError(f"netlist: no module {name!r}; the file has {', '.join(modules) or 'none'}")
    found: Mapping[str, Any] = modules[name]
    if not isinstance(found, Mapping) or not {"ports", "cells"} <= set(found):
        raise NetlistError(f"netlist of module {name!r}: no ports or no cells; not the JSON that Yosys writes")
    return found


class Reader:
    """Collects the nodes of a module; nets are numbered from 3 as they are met: ``number`` by Yosys' bit."""

    def __init__(
        self, name: str, module: Mapping[str, Any], nodes: Callable[[Cell, Callable[[], int]], list[Node]]
    ) -> None:
        self.name, self.module, self.nodes_of = name, module, nodes
        self.number: dict[Any, int] = {"0": ZERO, "1": ONE, "x": UNKNOWN, "z": UNKNOWN}
        self.count = 3

    def fresh(self) -> int:
        """A new net."""
        self.count += 1
        return self.count - 1

    def nets(self, bits: Iterable[Any]) -> list[int]:
        """Numbers of Yosys' bits."""
        for bit in (bits := list(bits)):
            if bit not in self.number:
                self.number[bit] = self.fresh()
        return [self.number[bit] for bit in bits]

    def netlist(self) -> Netlist:
        """The module; ``NetlistError`` for cells, clocks or ports that are not as expected."""
        cells = [
            Cell(
                name, raw["type"], {pin: self.nets(bits) for pin, bits in raw["connections"].items()}, raw["parameters"]
            )
            for name, raw in self.module["cells"].items()
            if raw["type"] not in IGNORED
        ]
        nodes: list[Node] = []
        owner: list[int] = []
        dsps: list[Dsp] = []
        clocks: set[int] = set()
        for index, cell in enumerate(cells):
            if cell.type in DSP_TYPES:
                dsps.append(dsp_of(cell, index, self.fresh))
                clocks.add(cell.pin("CLK"))
                made = cascaded(cell, self.fresh)
            else:
                if cell.type in SEQUENTIAL:
                    clocks.add(cell.pin(SEQUENTIAL[cell.type]))
                made = self.nodes_of(cell, self.fresh)
            nodes += made
            owner += [index] * len(made)
        clocks -= {ZERO}
        if len(clocks) > 1:
            raise NetlistError(f"netlist {self.name}: {len(clocks)} clocks; expected one")
        ports: dict[str, dict[str, NDArray[np.int32]]] = {"input": {}, "output": {}}
        for name, port in self.module["ports"].items():
            nets = np.array(self.nets(port["bits"]), dtype=np.int32)
            if port["direction"] not in ports:
                raise NetlistError(f"netlist {self.name}: port {name} is {port['direction']}; expected input or output")
            if name != CLOCK:
                ports[port["direction"]][name] = nets
            elif clocks - {int(nets[0])}:
                raise NetlistError(f"netlist {self.name}: registers are not clocked by the port {CLOCK}")
        pins = np.zeros((len(nodes), _PINS), dtype=np.int32)
        for row, node in zip(pins, nodes, strict=True):
            row[: len(node.inputs)] = node.inputs
        return Netlist(
            name=self.name,
            nets=self.count,
            kind=np.array([node.kind for node in nodes], dtype=np.int8),
            pins=pins,
            arity=np.array([len(node.inputs) for node in nodes], dtype=np.int8),
            table=np.array([node.table for node in nodes], dtype=np.uint64),
            output=np.array([node.output for node in nodes], dtype=np.int32),
            cell=np.array(owner, dtype=np.int32),
            cells=tuple(cell.name for cell in cells),
            types=tuple(cell.type for cell in cells),
            dsps=tuple(dsps),
            inputs=ports["input"],
            outputs=ports["output"],
        )
