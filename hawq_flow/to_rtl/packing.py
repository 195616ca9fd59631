"""Integers to and from the bits of buses: ports side by side, each as :mod:`hawq_flow.images` has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hawq_flow import images
from hawq_flow.images import Bits
from hawq_flow.numeric import IntArray
from hawq_flow.to_rtl.design import Port


def pack(ports: Sequence[Port], values: Mapping[str, IntArray]) -> Bits:
    """Bits of all ports side by side, the first port's lowest: values by name, (n, elements) -> (n, bits) of 0 and 1.

    Raises
    ------
    ValueError
        If a value does not fit its port.
    """
    columns = (images.to_bits(values[port.value], port.bits, port.signed, port.value) for port in ports)
    return np.concatenate(list(columns), axis=1)


def unpack(ports: Sequence[Port], bits: Bits) -> dict[str, IntArray]:
    """What :func:`pack` packed: (n, bits) of 0 and 1 -> values by name, int64 (n, elements)."""
    ends = np.cumsum([port.width for port in ports])[:-1]
    parts = zip(ports, np.split(bits, ends, axis=1), strict=True)
    return {port.value: images.from_bits(some, port.bits, port.signed) for port, some in parts}
