"""A synthesized module held against its text, on drawn rows: synthesis ends well also with a wrong netlist.

Yosys' packing of DSP48E1 takes what begins with the lowest bit of a block's result for that result, and leaves bits
undriven that a register holds twice. (``circuit`` and ``generate`` write what it gets right; this finds what they may
have missed.) And it does not see that the disk was full when it wrote the file that ABC reads: half of it is a smaller
network.
"""

from __future__ import annotations

import re

import numpy as np

from hawq_flow.to_rtl.cells import NetlistError
from hawq_flow.to_rtl.design import Module
from hawq_flow.to_rtl.drawing import drawn
from hawq_flow.to_rtl.netlist import Netlist
from hawq_flow.to_rtl.netlist_simulator import simulate_module
from hawq_flow.to_rtl.packing import pack, unpack
from hawq_flow.to_rtl.reader import Column, ReadError, read, run

ROWS = 512
"""Rows tried, half of them uniform: a lost addend or bit differs on nearly all of those."""
FEWEST_ROWS = 64
VALUES = 1 << 25
"""Integers of 8 bytes held at once, one a line of the text and row: beyond, there are fewer rows."""


def check_text(module: Module, netlist: Netlist) -> None:
    """``NetlistError`` where the netlist differs from the text on drawn rows; text that is not generated is passed.

    Rows are within the ranges of the network's values. Beyond them a sum of the text wraps in its own width, and one
    inside a block does not.
    """
    low, high = np.array([pair for ranges in module.input_ranges for pair in ranges], dtype=np.int64).reshape(-1, 2).T
    ends = np.cumsum([port.elements for port in module.inputs])[:-1]
    count = max(FEWEST_ROWS, min(ROWS, VALUES // (module.text.count("\n") + 1)))
    parts_of_rows = np.split(drawn(low, high, count), ends, axis=1)
    given = {port.name: rows for port, rows in zip(module.inputs, parts_of_rows, strict=True)}
    late = {name: np.concatenate([rows, np.repeat(rows[-1:], module.latency, 0)]) for name, rows in given.items()}
    try:
        parts = re.split(r"(?<=\bendmodule\b)", module.text)
        texts = [read(part) for part in parts if re.search(r"\bmodule\b", part)]
        columns = {
            port.name: Column(port.width, rows=pack([port], {port.value: late[port.name]})) for port in module.inputs
        }
        found = run({text.name: text for text in texts}, module.name, columns)
    except ReadError:
        return
    bits = np.concatenate([found[port.name].matrix() for port in module.outputs], axis=1)
    expected = unpack(module.outputs, bits[module.latency :])
    got = simulate_module(module, netlist, given)
    for port in module.outputs:
        wanted = expected[port.value]
        for row, element in np.argwhere(got[port.name] != wanted)[:1]:
            why = (
                "Yosys has put a product wrongly into a multiplier block; go without blocks: dsp = false in "
                "[rtl.synthesis], hawq-flow rtl without --dsp-threshold"
                if netlist.dsps
                else "Yosys has made something else of it, as it does when its temporary files find no room"
            )
            raise NetlistError(
                f"module {module.name}: {port.value}[{element}] of the netlist is {got[port.name][row, element]}, of "
                f"the text {wanted[row, element]}: {why}"
            )
