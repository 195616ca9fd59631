"""The campaign: flips drawn, struck, carried through the rest of the network, and counted.

The flips of a stratum and the rows of a block make pairs. Pairs that a flip leaves as they were are dropped at once;
the others travel as rows of one batch through the ops that depend on what changed, and are dropped as soon as every
value that is still to be read equals the healthy one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hawq_flow import interpret
from hawq_flow.network import IntegerNetwork, Requantize
from hawq_flow.numeric import IntArray
from hawq_flow.upsets.faults import Faults
from hawq_flow.upsets.registers import Registers
from hawq_flow.upsets.result import StratumResult, Upsets
from hawq_flow.upsets.sites import Stratum, UpsetError, needed, strata

Measure = Literal["accuracy", "agreement", "exact"]
Progress = Callable[[int, int], None]

EXHAUSTIVE = 100_000
"""Sites up to which every one is tried unless told otherwise."""
SAMPLES = 200
"""Flips tried of each stratum of larger networks unless told otherwise."""
HEALTHY_BYTES = 1 << 28
"""Most memory for the healthy values of a block of rows."""
PART_ELEMENTS = 1 << 20
"""Integers of one value, over flips and rows, that are computed together where the flips strike."""
BATCH_BYTES = 1 << 20
"""Size aimed at for the widest value of a batch of pairs: about a second-level cache."""


def run(
    network: IntegerNetwork,
    x: ArrayLike | Mapping[str, ArrayLike],
    labels: ArrayLike | None = None,
    *,
    kinds: Sequence[str] | None = None,
    layers: Sequence[str] | None = None,
    samples: int | Literal["all"] | None = None,
    rows: int | None = None,
    seed: int = 0,
    measure: Measure | None = None,
    output: str | None = None,
    progress: Progress | None = None,
) -> Upsets:
    """Flip bits of a network one at a time and measure what each costs.

    Parameters
    ----------
    x:
        Integer inputs (n, *input shape), or a mapping with several inputs.
    labels:
        Class of each row, (n,).
    kinds, layers:
        Words to flip, see :func:`hawq_flow.upsets.strata`; None: all.
    samples:
        Flips tried of each stratum (bit of a kind of an op), drawn without replacement; strata that have no more are
        tried whole. ``"all"``: every flip; None: every flip of a network of up to ``EXHAUSTIVE`` sites, else
        ``SAMPLES``.
    rows:
        Rows used, drawn without replacement; None: all.
    seed:
        Of both draws.
    measure:
        What a row is worth. ``"accuracy"`` (default where there are labels): 1 if the largest element of the output
        (the first of equal ones) is the label's; an output of one element says class 1 when it is above its zero point.
        ``"agreement"`` (default without labels): 1 if that class is the healthy network's. ``"exact"``: 1 if all
        outputs equal the healthy ones.
    output:
        The output that decides, where there are several; default: the first.
    progress:
        Called with (flips of rows done, of all).

    Raises
    ------
    UpsetError
        For words, labels, rows or an output that are not there.
    NetworkError
        For inputs that are none of the network's.
    """
    found = strata(network, kinds, layers)
    inputs = interpret.check_inputs(network, x)
    total = len(next(iter(inputs.values())))
    classes = None if labels is None else _labels(labels, total)
    measure = measure or ("agreement" if labels is None else "accuracy")
    if total == 0:
        raise UpsetError("no rows; expected at least one input to measure upsets with")
    if measure == "accuracy" and classes is None:
        raise UpsetError("measure 'accuracy' without labels; give labels, or measure 'agreement' with the healthy one")
    if rows is not None and rows < 1:
        raise UpsetError(f"rows: {rows}; expected 1 or more")
    if samples is None:
        samples = "all" if sum(stratum.sites for stratum in found) <= EXHAUSTIVE else SAMPLES
    if samples != "all" and samples < 2:
        raise UpsetError(f"samples: {samples}; expected 2 or more: the spread of one flip is not known")
    names = [spec.name for spec in network.outputs]
    deciding = output if output is not None else names[0]
    if deciding not in names:
        raise UpsetError(f"no output {deciding!r}; the network has {', '.join(names)}")
    if rows is not None and rows < total:
        chosen = np.sort(np.random.default_rng(seed).choice(total, rows, replace=False))
        inputs = {name: array[chosen] for name, array in inputs.items()}
        classes = None if classes is None else classes[chosen]
        total = rows
    most = None if samples == "all" else samples
    campaign = _Campaign(network, deciding, measure)
    drawn = [(stratum, stratum.draw(network, most, seed)) for stratum in found]
    return campaign.run(drawn, inputs, classes, total, seed, progress)


def outputs(
    network: IntegerNetwork, x: ArrayLike | Mapping[str, ArrayLike], stratum: Stratum, elements: ArrayLike
) -> dict[str, IntArray]:
    """What the network puts out with each of some flips: int64 (flips, rows, *shape), by output.

    ``elements``: flat indices (flips,) of the words of ``stratum`` whose bit flips, of those it has.
    """
    chosen = np.asarray(elements, dtype=np.int64)
    if not np.isin(chosen, stratum.elements(network)).all():
        raise UpsetError(
            f"{stratum.op}: elements {chosen.tolist()} of its {stratum.kind}; expected some of its {stratum.words} "
            f"words that have a bit {stratum.bit}"
        )
    campaign = _Campaign(network, network.outputs[0].name, "exact")
    values = campaign.healthy(interpret.check_inputs(network, x))
    result = {name: np.repeat(values[name][None].astype(np.int64), len(chosen), axis=0) for name in campaign.outputs}
    faults = Faults(network, campaign.registers, values, campaign.following)
    for flips, rows, found in campaign.struck(faults, stratum, chosen):
        for name, array in found.items():
            result[name][flips, rows] = array
    return result


def _labels(labels: ArrayLike, rows: int) -> IntArray:
    array = np.asarray(labels)
    if array.shape != (rows,) or array.dtype.kind not in "iu":
        raise UpsetError(
            f"labels of {array.dtype} and shape {array.shape} for {rows} rows; expected a class number for each"
        )
    return array.astype(np.int64)


class _Campaign:
    def __init__(self, network: IntegerNetwork, deciding: str, measure: Measure) -> None:
        self.network, self.deciding, self.measure = network, deciding, measure
        self.registers = Registers(network)
        self.ops = needed(network)
        self.outputs = {output.name for output in network.outputs}
        self.last_use = {name: i for i, op in enumerate(self.ops) for name in op.inputs}
        self.place = {op.name: i for i, op in enumerate(self.ops)}
        self.threshold = next(
            np.asarray(spec.zero_point).reshape(-1)[0] for spec in network.outputs if spec.name == deciding
        )
        readers: dict[str, list[Any]] = {}
        for op in self.ops:
            for name in set(op.inputs):
                readers.setdefault(name, []).append(op)
        self.following = {
            name: found[0]
            for name, found in readers.items()
            if name not in self.outputs and len(found) == 1 and isinstance(found[0], Requantize)
        }
        self.widest = 8 * max(int(np.prod(value.shape)) for value in network.values.values())

    def run(
        self,
        drawn: Sequence[tuple[Stratum, IntArray]],
        inputs: Mapping[str, IntArray],
        labels: IntArray | None,
        total: int,
        seed: int,
        progress: Progress | None,
    ) -> Upsets:
        """Every stratum on every block of rows."""
        counts = [_Counts(len(elements), total) for _, elements in drawn]
        size = 8 * sum(int(np.prod(value.shape)) for value in self.network.values.values())
        block = max(1, HEALTHY_BYTES // size)
        done, work = 0, total * sum(len(elements) for _, elements in drawn)
        right = np.zeros(total, dtype=np.bool_)
        for start in range(0, total, block):
            rows = slice(start, min(start + block, total))
            values = self.healthy({name: array[rows] for name, array in inputs.items()})
            faults = Faults(self.network, self.registers, values, self.following)
            wanted = self._decisions(values[self.deciding]) if labels is None else labels[rows]
            right[rows] = True if self.measure == "exact" else self._decisions(values[self.deciding]) == wanted
            for (stratum, elements), count in zip(drawn, counts, strict=True):
                for flips, at, found in self.struck(faults, stratum, elements):
                    self._count(values, found, flips, at, start, wanted, right, count)
                done += len(elements) * (rows.stop - rows.start)
                if progress is not None:
                    progress(done, work)
        results = tuple(
            StratumResult(stratum, elements, count.loss, count.changed, count.most, count.by_row)
            for (stratum, elements), count in zip(drawn, counts, strict=True)
        )
        return Upsets(self.network.digest, self.measure, float(right.mean()), total, seed, results)

    def healthy(self, inputs: Mapping[str, IntArray]) -> dict[str, NDArray[Any]]:
        """Every value without a flip, in the dtypes that values travel in."""
        traced = interpret.trace(self.network, inputs)
        return {name: array.astype(self.registers.carriers[name]) for name, array in traced.items()}

    def _decisions(self, out: NDArray[Any]) -> IntArray:
        flat = out.reshape(len(out), -1)
        if flat.shape[1] == 1:
            return np.asarray(flat[:, 0] > self.threshold, dtype=np.int64)
        return np.asarray(flat.argmax(axis=1))

    def struck(
        self, faults: Faults, stratum: Stratum, elements: IntArray
    ) -> Iterator[tuple[IntArray, IntArray, dict[str, NDArray[Any]]]]:
        """Pairs of which an output differs, in batches: which flips, which rows, and the outputs that differ in any."""
        rows = len(faults.values[stratum.op])
        shape = self.network.values[stratum.op].shape
        whole = stratum.kind in ("table", "multiplier", "shift", "offset")
        some = max(1, PART_ELEMENTS // (rows * int(np.prod(shape if whole else shape[1:]))))
        pairs = max(1, BATCH_BYTES // self.widest)
        for start in range(0, len(elements), some):
            change = faults.change(stratum, elements[start : start + some])
            differs = (change.part != change.healthy(faults.values)).reshape(*change.part.shape[:2], -1).any(axis=2)
            flips, at = np.nonzero(differs)
            for first in range(0, len(flips), pairs):
                f, r = flips[first : first + pairs], at[first : first + pairs]
                kept, found = self.carry(faults.values, change.name, change.full(faults.values, f, r), r)
                if len(kept):
                    yield f[kept] + start, r[kept], found

    def carry(
        self, healthy: Mapping[str, NDArray[Any]], name: str, value: NDArray[Any], rows: IntArray
    ) -> tuple[IntArray, dict[str, NDArray[Any]]]:
        """Take a changed value to the outputs.

        Parameters
        ----------
        name, value:
            The value that is changed, (pairs, *shape), and differs from the healthy one in every pair.
        rows:
            The row of each pair, (pairs,).

        Returns
        -------
        The pairs of which some output differs, ascending, and for these the outputs that differ in any, (kept, *shape).
        """
        alive = np.arange(len(rows))
        changed = {name: value}
        differs = {name: np.ones(len(rows), dtype=np.bool_)}
        for i in range(self.place[name] + 1, len(self.ops)):
            op = self.ops[i]
            if not any(operand in changed for operand in op.inputs):
                continue
            operands = [
                changed[operand] if operand in changed else healthy[operand][rows[alive]] for operand in op.inputs
            ]
            y = self.registers.steps[op.name](*operands)
            for operand in set(op.inputs):
                if operand in changed and self.last_use[operand] == i and operand not in self.outputs:
                    del changed[operand], differs[operand]
            different = (y != healthy[op.name][rows[alive]]).reshape(len(y), -1).any(axis=1)
            if different.any():
                changed[op.name], differs[op.name] = y, different
            if not changed:
                return alive[:0], {}
            keep = np.logical_or.reduce(list(differs.values()))
            if not keep.all():
                alive = alive[keep]
                changed = {key: array[keep] for key, array in changed.items()}
                differs = {key: mask[keep] for key, mask in differs.items()}
        return alive, changed

    def _count(
        self,
        healthy: Mapping[str, NDArray[Any]],
        outputs: Mapping[str, NDArray[Any]],
        flips: IntArray,
        rows: IntArray,
        start: int,
        wanted: IntArray,
        right: NDArray[np.bool_],
        count: _Counts,
    ) -> None:
        lost = right[start + rows].astype(np.int64)
        if self.measure != "exact":
            decided = healthy[self.deciding][rows] if self.deciding not in outputs else outputs[self.deciding]
            lost -= self._decisions(decided) == wanted[rows]
        if self.deciding in outputs:
            moved = np.abs(outputs[self.deciding].astype(np.int64) - healthy[self.deciding][rows].astype(np.int64))
            np.maximum.at(count.most, flips, moved.reshape(len(rows), -1).max(axis=1))
        np.add.at(count.changed, flips, 1)
        np.add.at(count.loss, (flips, (start + rows) % 2), lost)
        np.add.at(count.by_row, start + rows, lost)


class _Counts:
    """Of a stratum: by flip, rows lost (in even and in odd rows), rows changed, largest change; by row, flips lost."""

    def __init__(self, flips: int, rows: int) -> None:
        self.loss = np.zeros((flips, 2), dtype=np.int64)
        self.changed = np.zeros(flips, dtype=np.int64)
        self.most = np.zeros(flips, dtype=np.int64)
        self.by_row = np.zeros(rows, dtype=np.int64)
