"""The interpreter: what an IntegerNetwork means, exact in int64 and fast. Every back end is compared with it.

Integers travel in the narrowest float the proof allows: a dot product whose every partial sum stays below 2^24
is exact in float32 BLAS, below 2^53 in float64, and only beyond that is it computed in int64 (``Value.bound``
tells which; no data is consulted). A requantization multiplies by the float ``m * 2^-c``, which is exact because
the product ``a * m`` has at most 53 significant bits and a power of two moves only the exponent; ``rint`` then
rounds half to even. Rows are processed in blocks that stay in the cache.

Modules: ``layout`` (how a block of values lies in memory), ``products`` (Dense and Conv), ``steps`` (every op).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hawq_flow.interpret.products import Step
from hawq_flow.interpret.steps import step
from hawq_flow.network import IntegerNetwork, NetworkError, Op, forward
from hawq_flow.numeric import IntArray

BLOCK_BYTES = 1 << 19
"""Size aimed at for the widest value of a block of rows: about half a second-level cache."""
FEW_ROWS, FEW_BYTES = 16, 1 << 22
"""Rows that matrix products and small images want together, and how large the widest value may be for their sake."""


def run(network: IntegerNetwork, x: ArrayLike | Mapping[str, ArrayLike]) -> IntArray:
    """Evaluate a network with one output.

    Parameters
    ----------
    x:
        Integers of shape (n, *input shape), any integer dtype (or floats that are whole numbers); with several
        inputs, a mapping from input name to such an array.

    Returns
    -------
    int64 array of shape (n, *output shape).

    Raises
    ------
    NetworkError
        If a value is outside its input's type or not whole, or a shape is wrong, or the network has several outputs.
    """
    if len(network.outputs) != 1:
        raise NetworkError(f"run: the network has {len(network.outputs)} outputs; use outputs()")
    return outputs(network, x)[network.outputs[0].name]


def outputs(network: IntegerNetwork, x: ArrayLike | Mapping[str, ArrayLike]) -> dict[str, IntArray]:
    """Evaluate and return the outputs by name, each int64 of shape (n, *shape), and nothing else."""
    return _evaluate(network, x, tuple(output.name for output in network.outputs))


def trace(network: IntegerNetwork, x: ArrayLike | Mapping[str, ArrayLike]) -> dict[str, IntArray]:
    """Evaluate and return every value by name, inputs included, each int64 of shape (n, *shape)."""
    return _evaluate(network, x, tuple(network.values))


def reference(network: IntegerNetwork, x: ArrayLike | Mapping[str, ArrayLike]) -> dict[str, IntArray]:
    """:func:`trace` by the plain int64 definition of each op (``network.forward``): the oracle's oracle, for tests."""
    env = check_inputs(network, x)
    for op in network.ops:
        env[op.name] = forward(op, [env[name] for name in op.inputs])
    return env


def check_inputs(network: IntegerNetwork, x: ArrayLike | Mapping[str, ArrayLike]) -> dict[str, IntArray]:
    """Inputs by name as int64, or ``NetworkError`` when one is missing, misshapen, not whole or out of range."""
    given = x if isinstance(x, Mapping) else {network.inputs[0].name: x}
    expected = [spec.name for spec in network.inputs]
    if sorted(given) != sorted(expected):
        raise NetworkError(f"inputs given: {', '.join(map(str, given))}; the network's are {', '.join(expected)}")
    result: dict[str, IntArray] = {}
    for spec in network.inputs:
        array = np.asarray(given[spec.name])
        if array.ndim != len(spec.shape) + 1 or array.shape[1:] != spec.shape:
            raise NetworkError(
                f"input {spec.name!r}: array of shape {array.shape}; expected (n, {', '.join(map(str, spec.shape))})"
            )
        if array.dtype.kind == "f":
            if not (np.isfinite(array).all() and (array == np.rint(array)).all()):
                raise NetworkError(
                    f"input {spec.name!r}: not whole numbers; quantize real data with its InputSpec.integers first"
                )
        elif array.dtype.kind not in "iu":
            raise NetworkError(f"input {spec.name!r}: dtype {array.dtype}; expected integers")
        if not spec.type.contains(array, len(spec.shape)):
            raise NetworkError(
                f"input {spec.name!r}: values from {array.min()} to {array.max()} leave its type {spec.type} "
                f"({spec.type.range[0]} to {spec.type.range[1]})"
            )
        result[spec.name] = array.astype(np.int64)
    lengths = {len(array) for array in result.values()}
    if len(lengths) != 1:
        raise NetworkError(f"inputs of different lengths: {sorted(lengths)}; give the same number of rows for each")
    return result


def block_rows(network: IntegerNetwork) -> int:
    """Rows evaluated together: as many as keep the widest value in the cache, else a few within bounds, else one."""
    widest = 8 * max(int(np.prod(value.shape)) for value in network.values.values())
    return max(BLOCK_BYTES // widest, min(FEW_ROWS, FEW_BYTES // widest), 1)


def _evaluate(
    network: IntegerNetwork, x: ArrayLike | Mapping[str, ArrayLike], wanted: tuple[str, ...]
) -> dict[str, IntArray]:
    inputs = check_inputs(network, x)
    steps = _compile(network)
    last_use = {name: i for i, (op, _) in enumerate(steps) for name in op.inputs}
    values = network.values
    rows = len(next(iter(inputs.values())))
    block = block_rows(network)
    result = {name: np.empty((rows, *values[name].shape), dtype=np.int64) for name in wanted}
    for start in range(0, rows, block):
        stop = min(start + block, rows)
        env: dict[str, NDArray[Any]] = {name: array[start:stop] for name, array in inputs.items()}
        for name in wanted:
            if name in env:
                result[name][start:stop] = env[name]
        for i, (op, compute) in enumerate(steps):
            env[op.name] = compute(*(env[name] for name in op.inputs))
            if op.name in result:
                result[op.name][start:stop] = env[op.name]
            for name in op.inputs:
                if last_use[name] == i:
                    env.pop(name, None)
    return result


@lru_cache(maxsize=8)
def _compile(network: IntegerNetwork) -> list[tuple[Op, Step]]:
    """Each op with the function that computes it; a few networks are kept, for a network is evaluated in many calls."""
    values = network.values
    return [(op, step(op, values)) for op in network.ops]
