"""The equality of a plan's representations on a whole test set, in blocks of rows that fit into memory.

Each block is compared by :func:`hawq_flow.equality.certify` and counted by :mod:`hawq_flow.coverage`; certificates and
counts of the blocks add up to those of the whole set.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hawq_flow import coverage, equality, interpret
from hawq_flow.equality import Backend, Result
from hawq_flow.network import InputSpec, IntegerNetwork
from hawq_flow.numeric import IntArray

BLOCK_BYTES = 1 << 27
"""Bytes that the values of one block of rows may take in int64, in one representation."""

Backends = Mapping[str, Backend]
Rows = Mapping[str, IntArray]
"""Input integers (n, *shape) by name."""


def drawn(network: IntegerNetwork, rows: int) -> dict[str, IntArray]:
    """Inputs drawn to reach what data may not: ends, ties, borders; by name, the same for the same network.

    In turn: over the whole type; its two ends mixed; small integers, whose sums are small and often ties; and a few
    large ones on zeros, whose windows reach over borders.
    """
    rng = np.random.default_rng(int(network.digest[:16], 16))
    return {spec.name: _drawn(spec, rows, rng) for spec in network.inputs}


def _drawn(spec: InputSpec, rows: int, rng: np.random.Generator) -> IntArray:
    low, high = spec.type.range
    result = np.empty((rows, *spec.shape), dtype=np.int64)
    for row in range(rows):
        match row % 4:
            case 0:
                result[row] = rng.integers(low, high, spec.shape, endpoint=True)
            case 1:
                result[row] = np.where(rng.random(spec.shape) < rng.random(), low, high)
            case 2:
                result[row] = np.clip(rng.integers(-3, 4, spec.shape), low, high)
            case _:
                few = rng.random(spec.shape) < 0.1
                result[row] = np.where(few, rng.integers(low, high, spec.shape, endpoint=True), 0)
    rank = len(spec.shape)
    return np.clip(result, spec.type.low(rank), spec.type.high(rank))


def block_rows(network: IntegerNetwork, limit: int = BLOCK_BYTES) -> int:
    """Rows whose values, all of the network's, take at most ``limit`` bytes in int64; at least 1."""
    return max(1, limit // (8 * sum(math.prod(value.shape) for value in network.values.values())))


def prove(
    network: IntegerNetwork,
    x: Rows,
    backends: Callable[[slice], Backends],
    whole: Backends,
    *,
    rows: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[dict[str, Any], dict[str, coverage.Coverage]]:
    """Compare every representation with the interpreter on all rows.

    Parameters
    ----------
    network:
        The integer network.
    x:
        Its input integers, n >= 1 rows.
    backends:
        From a slice of the rows to the backends of those rows.
    whole:
        Backends that are run once on all rows (starting a C simulation is dear) and give outputs only.
    rows:
        Rows a block; by default as :func:`block_rows`.
    progress:
        Called after every block with (rows done, rows).

    Returns
    -------
    The certificate, as :func:`hawq_flow.equality.certify` gives it for all rows, and the counts by value.
    """
    step = rows or block_rows(network)
    finished = {name: backend.run(x) for name, backend in whole.items()}
    certificates: list[dict[str, Any]] = []
    counts: list[dict[str, coverage.Coverage]] = []
    total = len(next(iter(x.values())))
    for start in range(0, max(total, 1), step):  # no rows: one empty block, which certify refuses
        part = slice(start, min(start + step, total))
        given = {**backends(part), **{name: _part(finished[name], part, whole[name]) for name in whole}}
        inputs = {name: array[part] for name, array in x.items()}
        traced = interpret.trace(network, inputs)
        certificates.append(equality.certify(network, inputs, given, expected=traced))
        counts.append(coverage.count(network, traced))
        if len(counts) > 1:
            counts = [coverage.merge(counts)]
        if progress is not None:
            progress(part.stop, total)
    return merge(certificates, list(network.values)), counts[0]


def _part(result: Result, part: slice, backend: Backend) -> Backend:
    """A finished result's rows as a backend of those rows."""
    values = {name: array[part] for name, array in result.values.items()}  # type: ignore[index]
    return Backend(lambda x: Result(values, result.method), backend.localize)


def merge(certificates: Sequence[Mapping[str, Any]], order: Sequence[str]) -> dict[str, Any]:
    """Certificates of consecutive blocks of rows as that of all rows.

    Counts add up. ``first_mismatch`` is in the first layer by ``order`` (the network's values) that differs in any
    block, in its first row, counted from the first block's. ``method`` names every method that a block used.
    """
    place = {name: i for i, name in enumerate(order)}
    samples = 0
    totals: dict[str, dict[str, Any]] = {}
    methods: dict[str, list[str]] = {}
    found: dict[str, list[dict[str, Any]]] = {}
    for certificate in certificates:
        for name, entry in certificate["backends"].items():
            total = totals.setdefault(name, {"mismatches": 0, "elements": 0})
            total["mismatches"] += entry["mismatches"]
            total["elements"] += entry["elements"]
            if entry["method"] not in methods.setdefault(name, []):
                methods[name].append(entry["method"])
            first = entry["first_mismatch"]
            found.setdefault(name, []).extend([] if first is None else [{**first, "row": first["row"] + samples}])
        samples += certificate["samples"]
    backends = {
        name: {
            **total,
            "method": "; ".join(methods[name]),
            "first_mismatch": min(found[name], key=lambda m: (place[m["layer"]], m["row"]), default=None),
        }
        for name, total in totals.items()
    }
    return {"samples": samples, "backends": backends}
