"""An element's logic compared with the ops behind its sum, for every integer that the sum can be."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hawq_flow.network import IntegerNetwork, Lookup, Op, Requantize, Reshape
from hawq_flow.numeric import IntArray, Overflow, requantize
from hawq_flow.to_rtl.cells import ONE
from hawq_flow.to_rtl.design import Port
from hawq_flow.to_rtl.evaluator import integers, planes, unpacked
from hawq_flow.to_rtl.netlist import Netlist
from hawq_flow.to_rtl.words import CONSTANT, Word

_BLOCK_BITS = 18
_BLOCK = 1 << _BLOCK_BITS
_ONES = np.uint64(0xFFFFFFFFFFFFFFFF)


def first_wrong(
    network: IntegerNetwork,
    port: Port,
    element: int,
    logic: Netlist,
    word: Word,
    times: int,
    factor: int,
    bias: int,
    ends: tuple[int, int],
    rest: Sequence[Op],
    tick: Callable[[], None],
) -> int | None:
    """The first sum for which an element's logic is wrong.

    ``word = times * s + c``, the sum is ``factor * s + bias``, and s runs through all integers between ``ends``;
    ``tick`` is called a block of them and may raise.
    """
    monotone = _monotone(rest)
    place = np.flatnonzero(logic.inputs["word"] > ONE)  # a word's constant bits are constants of the logic as well
    evaluator = dataclasses.replace(logic, inputs={"word": logic.inputs["word"][place]}).evaluator
    constant = word.form.get(CONSTANT, 0)
    start = ends[0]
    while start <= ends[1]:
        tick()
        # Blocks end where the word's lower bits begin anew: then their planes are always the same.
        size = _BLOCK - (start * times + constant) % _BLOCK if times == 1 else _BLOCK
        s = np.arange(start, min(start + size, ends[1] + 1), dtype=np.int64)
        start += len(s)
        out = evaluator.run({"word": _count(s * times + constant, place)}, -(-len(s) // 64))["y"]
        sums = s * factor + bias
        first, last = (_rest(network, rest, element, sums[[i]]) for i in (0, -1))
        whole = len(s) // 64  # words of 64 rows; the rest of the last one means nothing
        if monotone and first[0] == last[0]:
            same = planes(first, np.arange(port.bits)) & np.uint64(1)
            wrong = bool((out[:, :whole] != same * _ONES).any())
            wanted = np.broadcast_to(first, s.shape)
        else:
            wanted = _rest(network, rest, element, sums)
            wrong = True
        if wrong or len(s) % 64:
            different = np.flatnonzero(integers(unpacked(out, len(s)), port.signed) != wanted)
            if different.size:
                return int(sums[different[0]])
    return None


def _rest(network: IntegerNetwork, rest: Sequence[Op], element: int, sums: IntArray) -> IntArray:
    """The element-wise ops on integers of one element of the value (its flat index is the same in all of them)."""
    result = sums
    for op in rest:
        if isinstance(op, Lookup):
            result = op.table[result - op.start]
        elif isinstance(op, Requantize):
            shape = network.values[op.name].shape
            m, s, z = (int(np.broadcast_to(a, shape).ravel()[element]) for a in (op.multiplier, op.shift, op.offset))
            bits = op.type.bits
            if not isinstance(bits, int):
                bits = bits[int(np.unravel_index(element, shape)[0])]
            kind = dataclasses.replace(op.type, bits=bits)
            result = requantize(result, m, s, z, op.rounding, kind, op.overflow, rank=0)
    return result


def _monotone(rest: Sequence[Op]) -> bool:
    """Whether equal results at two ends mean equal results between them."""
    return all(
        isinstance(op, Reshape) or (isinstance(op, Requantize) and op.overflow is Overflow.SATURATE) for op in rest
    )


@lru_cache(maxsize=1)
def _counting() -> NDArray[np.uint64]:
    """Planes of the integers 0 to 2^18 - 1."""
    return planes(np.arange(_BLOCK, dtype=np.int64), np.arange(_BLOCK_BITS))


def _count(values: IntArray, place: IntArray) -> NDArray[np.uint64]:
    """Planes of ``values``: of a whole block of consecutive integers without looking at each."""
    if len(values) < _BLOCK or values[0] % _BLOCK or values[-1] - values[0] != _BLOCK - 1:
        return planes(values, place)
    upper = np.where((values[0] >> place) & 1, _ONES, np.uint64(0))[:, None]
    return np.where((place < _BLOCK_BITS)[:, None], _counting()[np.minimum(place, _BLOCK_BITS - 1)], upper)
