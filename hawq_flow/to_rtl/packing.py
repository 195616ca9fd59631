"""Integers to and from the bits of buses: element 0 in the lowest bits, two's complement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from hawq_flow.numeric import IntArray
from hawq_flow.to_rtl.design import Port

Bits = NDArray[np.uint8]


def pack(ports: Sequence[Port], values: Mapping[str, IntArray]) -> Bits:
    """Bits of all ports side by side, the first port's lowest: values by name, (n, elements) -> (n, bits) of 0 and 1.

    Raises
    ------
    ValueError
        If a value does not fit its port.
    """
    columns = []
    for port in ports:
        rows = values[port.value]
        low = -(1 << (port.bits - 1)) if port.signed else 0
        high = (1 << (port.bits - port.signed)) - 1
        if rows.size and (int(rows.min()) < low or int(rows.max()) > high):
            raise ValueError(
                f"{port.value}: values from {rows.min()} to {rows.max()}; its port {port.name} holds {low} to {high}"
            )
        columns.append(((rows[:, :, None] >> np.arange(port.bits)) & 1).astype(np.uint8).reshape(len(rows), port.width))
    return np.concatenate(columns, axis=1)


def unpack(ports: Sequence[Port], bits: Bits) -> dict[str, IntArray]:
    """What :func:`pack` packed: (n, bits) of 0 and 1 -> values by name, int64 (n, elements)."""
    result, start = {}, 0
    for port in ports:
        some = bits[:, start : start + port.width].reshape(len(bits), port.elements, port.bits)
        weight = np.int64(1) << np.arange(port.bits, dtype=np.int64)
        if port.signed:
            weight[-1] = -weight[-1]
        result[port.value] = some @ weight
        start += port.width
    return result
