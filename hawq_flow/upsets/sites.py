"""Where a bit can flip: every bit of every word of a network, in strata of one bit of one kind of one op."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hawq_flow.network import (
    Add,
    Conv,
    Dense,
    IntegerNetwork,
    Lookup,
    Multiply,
    Op,
    ReduceSum,
    Requantize,
    Subtract,
    SumPool,
)
from hawq_flow.numeric import IntArray, IntType

MEMORY = ("weight", "bias", "multiplier", "shift", "offset", "table")
"""Kinds of words that are constants in memory: fields of ops."""
REGISTERS = ("accumulator", "activation")
"""Kinds of words that hold a value of one inference."""
KINDS = (*MEMORY, *REGISTERS)
_SUMS = (Dense, Conv, SumPool, ReduceSum, Add, Subtract, Multiply)
_RESULTS = (Requantize, Lookup)


class UpsetError(ValueError):
    """A question about upsets that cannot be answered; the text says where, what was found, what was expected."""


@dataclass(frozen=True)
class Stratum:
    """One bit of one kind of one op: ``sites`` words have it.

    Attributes
    ----------
    op, layer:
        The op, and the layer of the source model that it belongs to (the op's own name where it says none).
    kind, bit:
        One of ``KINDS``; 0 is the least significant bit.
    words, bits:
        Words of the whole array or value, and the width of the widest.
    sites:
        Words that have this bit: all of them, but where a value's channels differ in width.
    """

    op: str
    layer: str
    kind: str
    bit: int
    words: int
    bits: int
    sites: int

    @property
    def memory(self) -> bool:
        """Whether the words are constants in memory (else registers)."""
        return self.kind in MEMORY

    def elements(self, network: IntegerNetwork) -> IntArray:
        """Flat indices of the words that have this bit, int64 (sites,), ascending."""
        if self.memory:
            return np.arange(self.words, dtype=np.int64)
        value = network.values[self.op]
        return np.flatnonzero(np.broadcast_to(element_bits(value.type, value.shape), value.shape) > self.bit)

    def draw(self, network: IntegerNetwork, most: int | None, seed: int) -> IntArray:
        """``most`` of the words (all, when None or fewer), without replacement, by chance, ascending.

        What is drawn depends on the seed and on the stratum, not on what else is asked for.
        """
        every = self.elements(network)
        if most is None or most >= len(every):
            return every
        rng = np.random.default_rng([seed, zlib.crc32(f"{self.op}:{self.kind}:{self.bit}".encode())])
        return every[np.sort(rng.choice(len(every), most, replace=False))]


def strata(
    network: IntegerNetwork, kinds: Sequence[str] | None = None, layers: Sequence[str] | None = None
) -> tuple[Stratum, ...]:
    """Every stratum, in the order of ops, kinds and bits; ops that no output depends on take no hardware.

    Parameters
    ----------
    kinds, layers:
        Only these (layers as ops name them, or names of ops); None: all.

    Raises
    ------
    UpsetError
        For a kind or a layer that is not there, or when nothing is left.
    """
    for kind in kinds or ():
        if kind not in KINDS:
            raise UpsetError(f"kind {kind!r}: no such words; expected some of {', '.join(KINDS)}")
    ops = needed(network)
    names = list(dict.fromkeys(name for op in ops for name in (op.layer or op.name, op.name)))
    for layer in layers or ():
        if layer not in names:
            raise UpsetError(f"no layer {layer!r}; the network has {', '.join(names)}")
    found: list[Stratum] = []
    for op in ops:
        if layers and op.name not in layers and op.layer not in layers:
            continue
        for kind in KINDS if kinds is None else [kind for kind in KINDS if kind in kinds]:
            found += _of(network, op, kind)
    if not found:
        raise UpsetError(
            f"no words of kind {', '.join(kinds or KINDS)} in {', '.join(layers) if layers else 'the network'}; "
            f"nothing can flip. Kinds are {', '.join(KINDS)}"
        )
    return tuple(found)


def _of(network: IntegerNetwork, op: Op, kind: str) -> list[Stratum]:
    layer = op.layer or op.name
    if kind in MEMORY:
        array = getattr(op, kind, None)
        if array is None or (kind != "table" and not array.any()):
            return []
        words, bits = array.size, stored_type(array).max_bits
        return [Stratum(op.name, layer, kind, bit, words, bits, words) for bit in range(bits)]
    if not isinstance(op, _SUMS if kind == "accumulator" else _RESULTS):
        return []
    value = network.values[op.name]
    widths = np.broadcast_to(element_bits(value.type, value.shape), value.shape)
    bits = value.type.max_bits
    return [Stratum(op.name, layer, kind, bit, widths.size, bits, int((widths > bit).sum())) for bit in range(bits)]


def stored_type(array: NDArray[np.int64]) -> IntType:
    """The narrowest type that holds all words of a constant array."""
    return IntType.holding(int(array.min()), int(array.max()))


def element_bits(type: IntType, shape: tuple[int, ...]) -> IntArray:
    """Width of each element, int64, broadcastable over a value of ``shape``."""
    widths = np.array(type.widths, dtype=np.int64)
    return widths.reshape(()) if isinstance(type.bits, int) else widths.reshape((-1,) + (1,) * (len(shape) - 1))


def needed(network: IntegerNetwork) -> tuple[Op, ...]:
    """The ops that an output depends on, in order."""
    wanted = {output.name for output in network.outputs}
    kept: list[Op] = []
    for op in reversed(network.ops):
        if op.name in wanted:
            kept.append(op)
            wanted.update(op.inputs)
    return tuple(reversed(kept))
