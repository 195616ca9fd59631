"""A synthesized module with multiplier blocks held against its text: Yosys' packing of DSP48E1 can be wrong.

Its pass takes what begins with the lowest bit of a block's result for that result, and leaves bits undriven that a
register holds twice. ``circuit`` and ``generate`` write what it gets right; this finds what they may have missed.
"""

from __future__ import annotations

import re

import numpy as np

from hawq_flow.to_rtl.cells import NetlistError
from hawq_flow.to_rtl.design import Module
from hawq_flow.to_rtl.netlist import Netlist
from hawq_flow.to_rtl.netlist_simulator import simulate_module
from hawq_flow.to_rtl.packing import pack, unpack
from hawq_flow.to_rtl.reader import Column, ReadError, read, run

ROWS = 256
"""Rows of random integers: a lost addend or bit differs on nearly all of them."""


def check_products(module: Module, netlist: Netlist) -> None:
    """``NetlistError`` where the netlist differs from the text on random rows; text that is not generated is passed."""
    random = np.random.default_rng(0)
    given = {}
    for port in module.inputs:
        low = -(1 << (port.bits - 1)) if port.signed else 0
        given[port.name] = random.integers(low, low + (1 << port.bits), (ROWS, port.elements))
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
            raise NetlistError(
                f"module {module.name}: {port.value}[{element}] of the netlist is {got[port.name][row, element]}, of "
                f"the text {wanted[row, element]}: Yosys has put a product wrongly into a multiplier block; synthesize "
                "with dsp=False"
            )
