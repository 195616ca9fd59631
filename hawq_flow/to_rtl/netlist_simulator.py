"""Netlists run on rows of integers: a module, or a chain of them, its interface held against the module first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from hawq_flow.numeric import IntArray
from hawq_flow.to_rtl.cells import NetlistError
from hawq_flow.to_rtl.design import Module, Port
from hawq_flow.to_rtl.evaluator import Words, integers, planes, unpacked
from hawq_flow.to_rtl.netlist import Netlist

BLOCK_ROWS = 2048
"""Rows evaluated at once: the nets of a layer stay near the cache."""
VALID_IN, VALID_OUT = "valid_in", "valid_out"
"""Ports of a whole design's top: every row enters valid, and must leave so."""


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
    for start in range(0, total, BLOCK_ROWS):
        stop = min(start + BLOCK_ROWS, total)
        words = {port.name: pack(arrays[port.name][start:stop], port, module.name) for port in module.inputs}
        out = netlist.evaluator.run(words, -(-(stop - start) // 64))
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


def pack(values: IntArray, port: Port, where: str) -> Words:
    """(width, words) of bits, one row of the values a bit; ``NetlistError`` where a value does not fit the port."""
    if values.shape[1] != port.elements:
        raise NetlistError(
            f"module {where}: port {port.name} ({port.value}) given {values.shape[1]} elements a row; "
            f"expected {port.elements}"
        )
    low, high = port.range
    wrong = np.argwhere((values < low) | (values > high))
    for row, element in wrong[:1]:
        raise NetlistError(
            f"module {where}: port {port.name} ({port.value}) row {row} element {element} is {values[row, element]}; "
            f"expected {low} to {high}"
        )
    return planes(values.T, np.arange(port.bits)).reshape(port.width, -(-len(values) // 64))


def unpack(words: Words, port: Port, rows: int) -> IntArray:
    """(rows, elements) int64 of a port's bits."""
    bits = unpacked(words, rows).reshape(port.elements, port.bits, rows)
    return integers(bits, port.signed).T.copy()


def _rows(name: str, value: ArrayLike) -> IntArray:
    array = np.asarray(value)
    if array.ndim < 1 or array.dtype.kind not in "iub":
        raise NetlistError(f"value {name!r}: {array.dtype} of shape {array.shape}; expected integers (n, ...)")
    return array.astype(np.int64).reshape(len(array), -1)
