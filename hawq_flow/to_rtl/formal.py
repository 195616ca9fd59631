"""Proof that a design is its integer network for ALL inputs: two claims a module, each proved, refuted or unfinished.

*RTL = network.* The RTL is read as words (``word_level``). A module's ops are a prefix that is affine over the integers
(``Dense``, ``Conv``, sums, shapes) and a rest that works element by element (``Requantize``, ``Lookup``). For each
output element the expected affine form is looked for among the words that integer algebra has shown to be linear
(``words``); the element's logic must depend on the bits of such a word alone; and for every integer that the word can
be, that logic is evaluated and compared with the rest of the ops. Together: equality for all inputs within their
ranges, at any number of input bits. A module of few input bits (:data:`EXHAUSTIVE_BITS`) of any other ops is evaluated
on all its inputs.

*Netlist = RTL.* Both as Boolean networks, registers as wires (equally many on all paths, which ``levels`` has counted),
compared for all inputs by ABC's combinational equivalence checking (``equivalence``).

Refuted means that a row of input integers was found for which the interpreter gives something else; the row is given.
"""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hawq_flow.network import (
    Add,
    Concat,
    Conv,
    Dense,
    IntegerNetwork,
    Lookup,
    Op,
    Pad,
    ReduceSum,
    Requantize,
    Reshape,
    Subtract,
    SumPool,
    Upsample,
    forward,
)
from hawq_flow.numeric import IntArray, Overflow, requantize
from hawq_flow.to_rtl.cells import ONE
from hawq_flow.to_rtl.claims import Claim, Proof, Verdict
from hawq_flow.to_rtl.design import Module, Rtl
from hawq_flow.to_rtl.equivalence import equivalent
from hawq_flow.to_rtl.levels import cone
from hawq_flow.to_rtl.netlist import Netlist
from hawq_flow.to_rtl.netlist_simulator import Evaluator, check_interface, integers, planes, simulate_module, unpacked
from hawq_flow.to_rtl.synthesize import OpenSynthesis
from hawq_flow.to_rtl.word_level import WORD_LEVEL_STEPS, Design, read_design
from hawq_flow.to_rtl.words import CONSTANT, Form, Word, Words
from hawq_flow.to_rtl.yosys import find_yosys

EXHAUSTIVE_BITS = 20
"""Modules of at most so many input bits are evaluated on all inputs."""
SEARCH_ROWS = 8192
"""Rows tried for a counterexample before anything is proved."""
__all__ = ["EXHAUSTIVE_BITS", "Claim", "Proof", "Verdict", "design_of", "prove"]

_BLOCK_BITS = 18
_BLOCK = 1 << _BLOCK_BITS
_ONES = np.uint64(0xFFFFFFFFFFFFFFFF)
_MATRIX_LIMIT = 1 << 24
_AFFINE = (Dense, Conv, Reshape, Pad, SumPool, Upsample, Concat, Add, Subtract, ReduceSum)


def prove(
    network: IntegerNetwork,
    rtl: Rtl,
    *,
    synthesis: OpenSynthesis | None = None,
    time_limit_s: float = 600.0,
    memory_limit_gb: float = 8.0,
    progress: Callable[[str], None] | None = None,
) -> Proof:
    """Prove every module of a design equal to the network's ops, and its netlist, where one is given, equal to it.

    Parameters
    ----------
    synthesis:
        Netlists to prove as well (of this same ``rtl``); None: the RTL alone.
    time_limit_s:
        For each claim; what does not end in it is "not finished".
    progress:
        Called with one line a claim.

    Raises
    ------
    MissingTool
        If there is no Yosys.
    NetlistError
        If a module is not a pipeline of the latency that it says, or holds a cell that is not known.
    ValueError
        If the design is another network's.
    """
    if rtl.network != network.digest:
        raise ValueError(
            f"prove: the design is of network {rtl.network[:12]}, the network given is {network.digest[:12]}"
        )
    claims: list[Claim] = []
    netlists = {m.module.name: m for m in synthesis.modules} if synthesis is not None else {}
    for module in rtl.modules:
        if module.unrolled is not None:
            outputs = sum(port.elements for port in module.outputs)
            why = f"it is {module.unrolled}, which is no function of the network's values"
            claims.append(Claim(module.name, "RTL = network", Verdict.UNFINISHED, "", why, 0, outputs, 0.0))
            continue
        design = design_of(module, time_limit_s, memory_limit_gb)
        task = _Task(network, module, design, time_limit_s)
        claims.append(task.rtl_claim())
        if progress is not None:
            progress(f"{module.name}: RTL = network {claims[-1].verdict.value}")
        found = netlists.get(module.name)
        if found is not None:
            claims.append(task.netlist_claim(found.netlist if found.figures else None, found.reason, memory_limit_gb))
            if progress is not None:
                progress(f"{module.name}: netlist = RTL {claims[-1].verdict.value}")
    return Proof(rtl.network, tuple(claims))


def design_of(module: Module, time_limit_s: float = 600.0, memory_limit_gb: float = 8.0) -> Design:
    """A module's text as Yosys' front end reads it; its ports and latency are checked. Errors as :func:`prove`."""
    with tempfile.TemporaryDirectory(prefix="hawq-flow-prove-") as name:
        folder = Path(name)
        (folder / "module.v").write_text(module.text)
        script = ["read_verilog module.v", f"hierarchy -check -top {module.name}", *WORD_LEVEL_STEPS]
        run = find_yosys().run(
            "\n".join([*script, f"select {module.name}", "write_json -selected words.json"]) + "\n",
            folder,
            time_limit_s=time_limit_s,
            memory_limit_gb=memory_limit_gb,
        )
        run.require(f"reading module {module.name}")
        design = read_design((folder / "words.json").read_bytes(), module.name)
    check_interface(module, design.netlist)
    return design


class _OutOfTime(Exception):
    """The claim's time is up."""


class _Refuted(Exception):
    """What ``_Task._compare`` found."""

    def __init__(self, said: str, example: dict[str, list[int]]) -> None:
        super().__init__(said)
        self.said, self.example = said, example


class _Task:
    """One module: its ops, its design, and the clock."""

    def __init__(self, network: IntegerNetwork, module: Module, design: Design, limit_s: float) -> None:
        self.network, self.module, self.design, self.limit = network, module, design, limit_s
        by_name = {op.name: op for op in network.ops}
        self.ops: list[Op] = [by_name[name] for name in module.ops]
        self.inputs = [port.value for port in module.inputs]
        self.values = [network.values[name] for name in self.inputs]
        self.low = np.concatenate([value.low.ravel() for value in self.values])
        self.high = np.concatenate([value.high.ravel() for value in self.values])
        self.outputs = sum(port.elements for port in module.outputs)
        self.deadline = 0.0

    def rtl_claim(self) -> Claim:
        started = time.monotonic()
        self.deadline = started + self.limit
        claim = "RTL = network"

        def made(
            verdict: Verdict, method: str, reason: str, proved: int, example: dict[str, list[int]] | None = None
        ) -> Claim:
            seconds = round(time.monotonic() - started, 3)
            return Claim(self.module.name, claim, verdict, method, reason, proved, self.outputs, seconds, example)

        found = self.search(self.design.netlist)
        if found is not None:
            return made(Verdict.REFUTED, "evaluation", found[0], 0, found[1])
        bits = sum(int(high - low).bit_length() for low, high in zip(self.low, self.high, strict=True))
        try:
            split = self._split()
            if split is not None:
                return made(*self._by_words(*split))
            if bits <= EXHAUSTIVE_BITS:
                found = self._compare(self.design.netlist, self._all_rows())
                if found is not None:
                    return made(Verdict.REFUTED, "all inputs", found[0], 0, found[1])
                return made(Verdict.PROVED, "all inputs", "", self.outputs)
        except _Refuted as refuted:
            return made(Verdict.REFUTED, "linear words, all their integers", refuted.said, 0, refuted.example)
        except _OutOfTime:
            return made(Verdict.UNFINISHED, "", f"the time limit of {self.limit:.0f} s", 0)
        kinds = ", ".join(dict.fromkeys(op.kind for op in self.ops))
        why = f"no method for {kinds} of {bits} input bits (all inputs: up to {EXHAUSTIVE_BITS}); no difference found"
        return made(Verdict.UNFINISHED, "", why, 0)

    def netlist_claim(self, netlist: Netlist | None, reason: str, memory_limit_gb: float) -> Claim:
        started = time.monotonic()
        verdict, method, example, proved = Verdict.UNFINISHED, "", None, 0
        if netlist is not None:
            check_interface(self.module, netlist)
            found = self.search(netlist)
            if found is not None:
                verdict, method, reason, example = Verdict.REFUTED, "evaluation", found[0], found[1]
            else:
                method = "equivalence checking (ABC)"
                answer = equivalent(
                    netlist, self.design.netlist, time_limit_s=self.limit, memory_limit_gb=memory_limit_gb
                )
                reason = answer.reason
                if answer.equal:
                    verdict, proved = Verdict.PROVED, self.outputs
                elif answer.pattern is not None:
                    rows = self._row_of(answer.pattern)
                    found = self._compare(netlist, rows) if self._within(rows) else None
                    if found is not None:
                        verdict, reason, example = Verdict.REFUTED, found[0], found[1]
                    else:
                        reason = "they differ, at an input that the network's ranges exclude"
        seconds = round(time.monotonic() - started, 3)
        return Claim(self.module.name, "netlist = RTL", verdict, method, reason, proved, self.outputs, seconds, example)

    # Rows of inputs

    def search(self, netlist: Netlist) -> tuple[str, dict[str, list[int]]] | None:
        """A row on which a netlist differs from the ops, among corners and random rows."""
        random = np.random.default_rng(0)
        rows = random.integers(self.low, self.high + 1, (SEARCH_ROWS, len(self.low)))
        rows[0], rows[1] = self.low, self.high
        # Corners, and rows of which few elements are not at an end or 0: sums at their extremes.
        quarter = SEARCH_ROWS // 4
        rows[2:quarter] = np.where(random.random((quarter - 2, len(self.low))) < 0.5, self.low, self.high)
        still = np.clip(0, self.low, self.high)
        some = random.random((quarter, len(self.low))) < random.random((quarter, 1))
        rows[quarter : 2 * quarter] = np.where(some, rows[quarter : 2 * quarter], still)
        return self._compare(netlist, rows)

    def _compare(self, netlist: Netlist, rows: IntArray) -> tuple[str, dict[str, list[int]]] | None:
        expected = self._meaning(rows)
        for start in range(0, len(rows), 1 << 16):
            self._tick()
            part = rows[start : start + (1 << 16)]
            got = simulate_module(self.module, netlist, self._by_port(part))
            for port in self.module.outputs:
                wanted = expected[port.value][start : start + len(part)]
                for row, element in np.argwhere(got[port.name] != wanted)[:1]:
                    said = (
                        f"{port.value}[{element}] is {got[port.name][row, element]}, the network gives "
                        f"{wanted[row, element]}"
                    )
                    given = self._by_value(part[row : row + 1])
                    return said, {name: array[0].ravel().tolist() for name, array in given.items()}
        return None

    def _meaning(self, rows: IntArray) -> dict[str, IntArray]:
        """The ops on rows by the plain definition: output values by name, (n, elements)."""
        env = self._by_value(rows)
        for op in self.ops:
            env[op.name] = forward(op, [env[name] for name in op.inputs])
        return {port.value: env[port.value].reshape(len(rows), -1) for port in self.module.outputs}

    def _by_value(self, rows: IntArray) -> dict[str, IntArray]:
        ends = np.cumsum([int(np.prod(value.shape)) for value in self.values])[:-1]
        parts = np.split(rows, ends, axis=1)
        return {
            name: part.reshape(len(rows), *value.shape)
            for name, value, part in zip(self.inputs, self.values, parts, strict=True)
        }

    def _by_port(self, rows: IntArray) -> dict[str, IntArray]:
        given = self._by_value(rows)
        return {port.name: given[port.value].reshape(len(rows), -1) for port in self.module.inputs}

    def _all_rows(self) -> IntArray:
        axes = [np.arange(a, b + 1) for a, b in zip(self.low, self.high, strict=True)]
        return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes)).astype(np.int64)

    def _row_of(self, pattern: dict[str, int]) -> IntArray:
        """One row from bits by name (``port[i]``)."""
        parts = []
        for port in self.module.inputs:
            bits = np.array([pattern.get(f"{port.name}[{i}]", 0) for i in range(port.width)], dtype=np.uint8)
            parts.append(integers(bits.reshape(port.elements, port.bits, 1), port.signed)[:, 0])
        return np.concatenate(parts)[None]

    def _within(self, rows: IntArray) -> bool:
        return bool(((rows >= self.low) & (rows <= self.high)).all())

    def _tick(self) -> None:
        if self.deadline and time.monotonic() > self.deadline:
            raise _OutOfTime

    # The algebraic way

    def _split(self) -> tuple[list[Op], list[Op]] | None:
        """The affine ops and the element-wise ones behind them; None where the module is not of that form."""
        affine: list[Op] = []
        rest = list(self.ops)
        while rest and isinstance(rest[0], _AFFINE) and getattr(rest[0], "accumulator", None) is None:
            affine.append(rest.pop(0))
        last = affine[-1].name if affine else self.inputs[0]
        for op in rest:
            if not isinstance(op, Requantize | Lookup | Reshape) or op.input != last:
                return None
            last = op.name
        if [port.value for port in self.module.outputs] != [last]:
            return None
        size = self.outputs * (len(self.low) + 1)
        return (affine, rest) if size <= _MATRIX_LIMIT else None

    def _by_words(self, affine: Sequence[Op], rest: Sequence[Op]) -> tuple[Verdict, str, str, int]:
        """Every output element by a linear word and all its integers."""
        method = "linear words, all their integers"
        unit = np.vstack([np.zeros((1, len(self.low)), dtype=np.int64), np.eye(len(self.low), dtype=np.int64)])
        env = self._by_value(unit)
        result = env[self.inputs[0]]
        for op in affine:
            result = env[op.name] = forward(op, [env[name] for name in op.inputs])
        sums = result.reshape(len(unit), -1)
        rows = (sums[1:] - sums[0]).T
        fixed = self.low == self.high
        bias = sums[0] + rows[:, fixed] @ self.low[fixed]
        rows = np.where(fixed, 0, rows)
        words = Words(self.module, self.design, self.low, self.high)
        known: dict[tuple[tuple[int, int], ...], list[tuple[Word, int]]] = {}
        for word in words.words:
            direction, factor = _direction(word.form)
            known.setdefault(direction, []).append((word, factor))
        nets = self.design.netlist.outputs[self.module.outputs[0].name]
        port = self.module.outputs[0]
        proved, reasons = 0, []
        for element in range(port.elements):
            self._tick()
            bits = nets[element * port.bits : (element + 1) * port.bits]
            form = {i: int(c) for i, c in enumerate(rows[element]) if c}
            why = self._element(element, bits, form, int(bias[element]), rest, known, words)
            if why:
                reasons.append(f"{port.value}[{element}]: {why}")
            else:
                proved += 1
        if not reasons:
            return Verdict.PROVED, method, "", proved
        more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        return Verdict.UNFINISHED, method, reasons[0] + more, proved

    def _element(
        self,
        element: int,
        bits: NDArray[np.int32],
        form: Form,
        bias: int,
        rest: Sequence[Op],
        known: dict[tuple[tuple[int, int], ...], list[tuple[Word, int]]],
        words: Words,
    ) -> str:
        """'' where one output element is proved, else why not."""
        direction, factor = _direction(form)
        candidates = known.get(direction, []) if direction else [(Word((), 0, {CONSTANT: 0}, 0, 0), 1)]
        least, most = words.range(dict(direction))
        seen_cone = False
        for word, times in reversed(candidates):
            logic = cone(self.design.netlist, bits, word.bits)
            if logic is None:
                continue
            seen_cone = True
            wrong = self._all_integers(element, logic, word, times, factor, bias, (least, most), rest)
            if wrong is None:
                return ""
            row = self._row_of_sum(form, wrong - bias)
            found = None if row is None else self._compare(self.design.netlist, row)
            if found is not None:
                raise _Refuted(*found)
            return (
                f"where its sum is {wrong}, its logic gives something else than the network; no input was found for it"
            )
        return (
            "its logic reads more than the word that holds its sum"
            if candidates and not seen_cone
            else "no word of the RTL was shown to be its sum"
        )

    def _row_of_sum(self, form: Form, target: int) -> IntArray | None:
        """A row of inputs whose form is ``target``: from the least up, large factors first; None if that fails."""
        row = self.low.copy()
        for element, factor in form.items():
            if factor < 0:
                row[element] = self.high[element]
        left = target - sum(factor * int(row[element]) for element, factor in form.items())
        for element, factor in sorted(form.items(), key=lambda item: -abs(item[1])):
            steps = min(left // abs(factor), int(self.high[element] - self.low[element]))
            row[element] += steps if factor > 0 else -steps
            left -= steps * abs(factor)
        return row[None] if left == 0 else None

    def _all_integers(
        self,
        element: int,
        logic: Netlist,
        word: Word,
        times: int,
        factor: int,
        bias: int,
        ends: tuple[int, int],
        rest: Sequence[Op],
    ) -> int | None:
        """The first sum for which an element's logic is wrong.

        ``word = times * s + c``, the sum is ``factor * s + bias``,
        and s runs through all integers between ``ends``."""
        port = self.module.outputs[0]
        monotone = _monotone(rest)
        place = np.flatnonzero(logic.inputs["word"] > ONE)  # a word's constant bits are constants of the logic as well
        evaluator = Evaluator(dataclasses.replace(logic, inputs={"word": logic.inputs["word"][place]}))
        constant = word.form.get(CONSTANT, 0)
        start = ends[0]
        while start <= ends[1]:
            self._tick()
            # Blocks end where the word's lower bits begin anew: then their planes are always the same.
            size = _BLOCK - (start * times + constant) % _BLOCK if times == 1 else _BLOCK
            s = np.arange(start, min(start + size, ends[1] + 1), dtype=np.int64)
            start += len(s)
            out = evaluator.run({"word": _count(s * times + constant, place)}, -(-len(s) // 64))["y"]
            sums = s * factor + bias
            first, last = (self._rest(rest, element, sums[[i]]) for i in (0, -1))
            whole = len(s) // 64  # words of 64 rows; the rest of the last one means nothing
            if monotone and first[0] == last[0]:
                same = planes(first, np.arange(port.bits)) & np.uint64(1)
                wrong = bool((out[:, :whole] != same * _ONES).any())
                wanted = np.broadcast_to(first, s.shape)
            else:
                wanted = self._rest(rest, element, sums)
                wrong = True
            if wrong or len(s) % 64:
                different = np.flatnonzero(integers(unpacked(out, len(s)), port.signed) != wanted)
                if different.size:
                    return int(sums[different[0]])
        return None

    def _rest(self, rest: Sequence[Op], element: int, sums: IntArray) -> IntArray:
        """The element-wise ops on integers of one element of the value (its flat index is the same in all of them)."""
        result = sums
        for op in rest:
            if isinstance(op, Lookup):
                result = op.table[result - op.start]
            elif isinstance(op, Requantize):
                shape = self.network.values[op.name].shape
                m, s, z = (
                    int(np.broadcast_to(a, shape).ravel()[element]) for a in (op.multiplier, op.shift, op.offset)
                )
                bits = op.type.bits
                if not isinstance(bits, int):
                    bits = bits[int(np.unravel_index(element, shape)[0])]
                kind = dataclasses.replace(op.type, bits=bits)
                result = requantize(result, m, s, z, op.rounding, kind, op.overflow, rank=0)
        return result


def _direction(form: Form) -> tuple[tuple[tuple[int, int], ...], int]:
    """A form without its constant as a primitive one (first factor positive) times an integer."""
    factors = sorted((element, factor) for element, factor in form.items() if element != CONSTANT and factor)
    if not factors:
        return (), 1
    common = int(np.gcd.reduce([abs(factor) for _, factor in factors]))
    common = -common if factors[0][1] < 0 else common
    return tuple((element, factor // common) for element, factor in factors), common


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
