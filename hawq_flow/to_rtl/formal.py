"""Proof that a design is its integer network for ALL inputs: claims that are each proved, refuted or unfinished.

Two a module, and one about the top.

*RTL = network.* The RTL is read as words (``word_level``). A module's ops are a prefix that is affine over the integers
(``Dense``, ``Conv``, sums, shapes) and a rest that works element by element (``Requantize``, ``Lookup``). For each
output element the expected affine form is looked for among the words that integer algebra has shown to be linear
(``words``); the element's logic must depend on the bits of such a word alone; and for every integer that the word can
be, that logic is evaluated and compared with the rest of the ops. Together: equality for all inputs within their
ranges, at any number of input bits. A module of few input bits (:data:`EXHAUSTIVE_BITS`) of any other ops is evaluated
on all its inputs.

*Netlist = RTL.* Both as Boolean networks, registers as wires (equally many on all paths, which ``levels`` has counted),
compared for all inputs by ABC's combinational equivalence checking (``equivalence``).

*Top = network.* The top's text is read back and traced (``wiring``): every module is there once and gets the values
that its ports name, all in one cycle, and the network's outputs leave in the cycle that the design says. With the
modules' claims that is the network, module after module.

Refuted means that a row of input integers was found for which the interpreter gives something else; the row is given.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from hawq_flow import tools
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
    Value,
    forward,
)
from hawq_flow.numeric import IntArray
from hawq_flow.to_rtl.all_integers import first_wrong
from hawq_flow.to_rtl.claims import Claim, Proof, Verdict
from hawq_flow.to_rtl.design import Module, Rtl
from hawq_flow.to_rtl.drawing import drawn
from hawq_flow.to_rtl.equivalence import equivalent
from hawq_flow.to_rtl.levels import cone
from hawq_flow.to_rtl.netlist import Netlist
from hawq_flow.to_rtl.netlist_simulator import check_interface, simulate_module
from hawq_flow.to_rtl.packing import unpack
from hawq_flow.to_rtl.synthesize import ModuleSynthesis, OpenSynthesis
from hawq_flow.to_rtl.wiring import WiringError, check_top
from hawq_flow.to_rtl.word_level import WORD_LEVEL_STEPS, Design, read_design
from hawq_flow.to_rtl.words import CONSTANT, Form, Word, Words
from hawq_flow.to_rtl.yosys import NETLIST, SOURCE, Unfinished, find_yosys, room

EXHAUSTIVE_BITS = 20
"""Modules of at most so many input bits are evaluated on all inputs."""
SEARCH_ROWS = 8192
"""Rows tried for a counterexample before anything is proved."""
__all__ = ["EXHAUSTIVE_BITS", "Claim", "Proof", "Verdict", "design_of", "prove"]

_MATRIX_LIMIT = 1 << 24
_BY_WORDS = "linear words, all their integers"
_NO_WORD = Word((), 0, {CONSTANT: 0}, 0, 0)
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
        If the design is another network's, or the netlists are another design's.
    """
    if rtl.network != network.digest:
        raise ValueError(
            f"prove: the design is of network {rtl.network[:12]}, the network given is {network.digest[:12]}"
        )
    if synthesis is not None and synthesis.rtl != rtl:
        raise ValueError("prove: the netlists are of another design than the one given; synthesize that one")
    claims: list[Claim] = []

    def add(claim: Claim) -> None:
        claims.append(claim)
        if progress is not None:
            progress(f"{claim.module}: {claim.claim} {claim.verdict.value}")

    netlists = {m.module.name: m for m in synthesis.modules} if synthesis is not None else {}
    for module in rtl.modules:
        task = _Task(network, module, time_limit_s, memory_limit_gb)
        add(task.claim("RTL = network", task.rtl))
        if synthesis is not None and not synthesis.config.flatten:
            add(task.claim("netlist = RTL", partial(task.netlist, netlists.get(module.name))))
    outputs = sum(port.elements for port in rtl.outputs)
    if synthesis is not None and synthesis.config.flatten:
        why = "synthesized as one module, and netlists are proved module by module: synthesize without flatten"
        add(Claim(rtl.top, "netlist = RTL", Verdict.UNFINISHED, "", why, 0, outputs, 0.0))
    started, verdict, why = time.monotonic(), Verdict.PROVED, ""
    try:
        check_top(network, rtl)
    except WiringError as error:
        verdict, why = Verdict.UNFINISHED, str(error)
    seconds = round(time.monotonic() - started, 3)
    proved = outputs if verdict is Verdict.PROVED else 0
    add(Claim(rtl.top, "top = network", verdict, "wires and cycles", why, proved, outputs, seconds))
    return Proof(rtl.network, tuple(claims))


def design_of(module: Module, time_limit_s: float = 600.0, memory_limit_gb: float = 8.0) -> Design:
    """A module's text as Yosys' front end reads it; its ports and latency are checked.

    Errors as :func:`prove`, and ``ToolError`` where Yosys does not read it within the limits.
    """
    script = [f"read_verilog {SOURCE}", f"hierarchy -check -top {module.name}", *WORD_LEVEL_STEPS]
    script += [f"select {module.name}", f"write_json -selected {NETLIST}", ""]
    try:
        found = find_yosys().module(
            module.text,
            module.name,
            "\n".join(script),
            time_limit_s=time_limit_s,
            memory_limit_gb=memory_limit_gb,
        )
    except Unfinished as error:
        raise tools.ToolError(f"reading module {module.name}: {error}") from error
    design = read_design({"modules": {module.name: found.json}}, module.name)
    check_interface(module, design.netlist)
    return design


class _OutOfTime(Exception):
    """The claim's time is up."""


class _Refuted(Exception):
    """What ``_Task._compare`` found, and how."""

    def __init__(self, method: str, said: str, example: dict[str, list[int]]) -> None:
        super().__init__(said)
        self.method, self.said, self.example = method, said, example


class _Unfinished(Exception):
    """Why a claim has no answer."""


class _Task:
    """One module: its ops, its design, and the clock."""

    def __init__(self, network: IntegerNetwork, module: Module, limit_s: float, memory_limit_gb: float) -> None:
        self.network, self.module, self.limit, self.memory = network, module, limit_s, memory_limit_gb
        self.inputs = [port.value for port in module.inputs]
        self.outputs = sum(port.elements for port in module.outputs)
        self.ops: list[Op] = []
        self.deadline = 0.0

    @cached_property
    def design(self) -> Design:
        """What Yosys reads."""
        try:
            return design_of(self.module, max(self.deadline - time.monotonic(), 1e-3), self.memory)
        except tools.ToolError as error:
            raise _Unfinished(str(error)) from error

    def claim(self, name: str, work: Callable[[], tuple[Verdict, str, str, int]]) -> Claim:
        """``work`` done within the time: verdict, method, reason and the outputs proved."""
        started = time.monotonic()
        self.deadline = started + self.limit
        example = None
        try:
            if self.module.unrolled is not None:
                raise _Unfinished(f"it is {self.module.unrolled}, which is no function of the network's values")
            self.ops = self._ops()
            with room():
                verdict, method, reason, proved = work()
        except _Refuted as found:
            verdict, method, reason, proved = Verdict.REFUTED, found.method, found.said, 0
            example = found.example
        except (_Unfinished, Unfinished) as why:
            verdict, method, reason, proved = Verdict.UNFINISHED, "", str(why), 0
        except _OutOfTime:
            verdict, method, reason, proved = Verdict.UNFINISHED, "", f"the time limit of {self.limit:g} s", 0
        seconds = round(time.monotonic() - started, 3)
        return Claim(self.module.name, name, verdict, method, reason, proved, self.outputs, seconds, example)

    def rtl(self) -> tuple[Verdict, str, str, int]:
        """The module's text computes the ops."""
        self.search(self.design.netlist)
        bits = sum(int(high - low).bit_length() for low, high in zip(self.low, self.high, strict=True))
        split = self._split()
        if split is not None:
            return self._by_words(*split)
        if bits <= EXHAUSTIVE_BITS:
            self._compare(self.design.netlist, self._all_rows(), "all inputs")
            return Verdict.PROVED, "all inputs", "", self.outputs
        kinds = ", ".join(dict.fromkeys(op.kind for op in self.ops))
        raise _Unfinished(
            f"no method for {kinds} of {bits} input bits (all inputs: up to {EXHAUSTIVE_BITS}); no difference found"
        )

    def netlist(self, found: ModuleSynthesis | None) -> tuple[Verdict, str, str, int]:
        """The netlist computes what the text does."""
        if found is None:
            raise _Unfinished("no netlist of it was given")
        if found.figures is None:
            raise _Unfinished(found.reason)
        check_interface(self.module, found.netlist)
        self.search(found.netlist)
        method = "equivalence checking (ABC)"
        design = self.design
        self._tick()
        left = self.deadline - time.monotonic()
        answer = equivalent(found.netlist, design.netlist, time_limit_s=left, memory_limit_gb=self.memory)
        if answer.equal:
            return Verdict.PROVED, method, "", self.outputs
        reason = answer.reason
        if answer.pattern is not None:
            rows = self._row_of(answer.pattern)
            if ((rows >= self.low) & (rows <= self.high)).all():
                self._compare(found.netlist, rows, method)
            reason = "they differ, at an input that the network's ranges exclude"
        return Verdict.UNFINISHED, method, reason, 0

    # The ops

    def _ops(self) -> list[Op]:
        """The network's ops of the module; ``_Unfinished`` unless they lead from its inputs to its outputs."""
        by_name = {op.name: op for op in self.network.ops}
        known = set(self.inputs)
        for name in self.module.ops:
            if name not in by_name or not known.issuperset(by_name[name].inputs):
                raise _Unfinished(f"its op {name} is none of the network, or its operands are not in the module")
            known.add(name)
        for port in (*self.module.inputs, *self.module.outputs):
            shape = self.network.values[port.value].shape if port.value in self.network.values else None
            if shape is None or port.value not in known or port.elements != np.prod(shape):
                raise _Unfinished(f"its port {port.name} is not the value {port.value} of the network, or of its ops")
        return [by_name[name] for name in self.module.ops]

    @cached_property
    def values(self) -> list[Value]:
        """What enters."""
        return [self.network.values[name] for name in self.inputs]

    @cached_property
    def low(self) -> IntArray:
        """The least of each input element."""
        return np.concatenate([value.low.ravel() for value in self.values])

    @cached_property
    def high(self) -> IntArray:
        """The greatest of each input element."""
        return np.concatenate([value.high.ravel() for value in self.values])

    # Rows of inputs

    def search(self, netlist: Netlist) -> None:
        """``_Refuted`` with a row on which a netlist differs from the ops, among corners and random rows."""
        self._compare(netlist, drawn(self.low, self.high, SEARCH_ROWS), "evaluation")

    def _compare(self, netlist: Netlist, rows: IntArray, method: str) -> None:
        """``_Refuted`` with the first of the rows on which a netlist differs from the ops."""
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
                    raise _Refuted(method, said, {name: array[0].ravel().tolist() for name, array in given.items()})

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
        free = np.flatnonzero(self.low < self.high)  # few, as their bits are: numpy has no more than 64 axes
        sizes = (self.high - self.low + 1)[free].tolist()
        rows = np.tile(self.low, (math.prod(sizes), 1))
        rows[:, free] += np.indices(sizes).reshape(len(free), len(rows)).T
        return rows

    def _row_of(self, pattern: dict[str, int]) -> IntArray:
        """One row from bits by name (``port[i]``)."""
        ports = self.module.inputs
        bits = [pattern.get(f"{port.name}[{i}]", 0) for port in ports for i in range(port.width)]
        return np.concatenate(list(unpack(ports, np.array([bits], dtype=np.uint8)).values()), axis=1)

    def _tick(self) -> None:
        if time.monotonic() > self.deadline:
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
        method = _BY_WORDS
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
        # No word at all comes first: the logic may be the same for every sum.
        candidates = [*(known.get(direction, []) if direction else []), (_NO_WORD, 1)]
        least, most = words.range(dict(direction))
        port = self.module.outputs[0]
        for word, times in reversed(candidates):
            logic = cone(self.design.netlist, bits, word.bits)
            if logic is None:
                continue
            wrong = first_wrong(
                self.network, port, element, logic, word, times, factor, bias, (least, most), rest, self._tick
            )
            if wrong is None:
                return ""
            row = self._row_of_sum(form, wrong - bias)
            if row is not None:
                self._compare(self.design.netlist, row, _BY_WORDS)
            return (
                f"where its sum is {wrong}, its logic gives something else than the network; no input was found for it"
            )
        return (
            "its logic reads more than the word that holds its sum"
            if len(candidates) > 1
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


def _direction(form: Form) -> tuple[tuple[tuple[int, int], ...], int]:
    """A form without its constant as a primitive one (first factor positive) times an integer."""
    factors = sorted((element, factor) for element, factor in form.items() if element != CONSTANT and factor)
    if not factors:
        return (), 1
    common = int(np.gcd.reduce([abs(factor) for _, factor in factors]))
    common = -common if factors[0][1] < 0 else common
    return tuple((element, factor // common) for element, factor in factors), common
