"""Which ops share a module: stages, with a register after each.

A stage is what has adders, comparisons or tables, together with the rescales and tables that alone read it. What is
only wires (reshape, pad, upsample, concatenation) goes to the op that alone reads it, if there is one, so that moving
integers costs no clock cycle.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hawq_flow.network import (
    Concat,
    Conv,
    Dense,
    IntegerNetwork,
    Lookup,
    MaxPool,
    NetworkError,
    Op,
    Pad,
    ReduceMax,
    ReduceSum,
    Requantize,
    Reshape,
    SumPool,
    Upsample,
    Value,
    patches,
)
from hawq_flow.numeric import IntType
from hawq_flow.to_rtl.config import NotSynthesizable, RtlConfig

WIRES = (Reshape, Pad, Upsample, Concat)
TAILS = (Requantize, Lookup)


@dataclass(frozen=True)
class Stage:
    """Ops of one module in the network's order; the last one's value leaves it.

    ``inputs`` are the values that enter, in the order in which they are first read.
    """

    ops: tuple[Op, ...]
    inputs: tuple[str, ...]

    @property
    def output(self) -> str:
        """The value that leaves."""
        return self.ops[-1].name


def readers(network: IntegerNetwork) -> dict[str, list[str]]:
    """For every value who reads it: ops by name (once an operand), and '' for each output."""
    result: dict[str, list[str]] = {name: [] for name in network.values}
    for op in network.ops:
        for operand in op.inputs:
            result[operand].append(op.name)
    for output in network.outputs:
        result[output.name].append("")
    return result


def stages(network: IntegerNetwork) -> list[Stage]:
    """The modules of a network, in an order in which they can compute; ops that nothing reads are left out."""
    read = readers(network)
    alive: set[str] = {output.name for output in network.outputs}
    for op in reversed(network.ops):
        if op.name in alive:
            alive.update(op.inputs)
    live = {name: [r for r in who if r == "" or r in alive] for name, who in read.items()}
    ops = [op for op in network.ops if op.name in alive]
    group: dict[str, int] = {}  # op -> number of its group
    members: dict[int, list[Op]] = {}
    for number, op in enumerate(ops):
        joined = [source for source in op.inputs if source in group and set(live[source]) == {op.name}]
        # Wires go forward to their reader; a tail stays with what makes its operand.
        taken = [s for s in joined if isinstance(members[group[s]][-1], WIRES) and _only_wires(members[group[s]])]
        if isinstance(op, TAILS) and joined and not taken:
            target = group[joined[0]]
        else:
            target = number
            members[target] = []
            for source in dict.fromkeys(taken):
                members[target] += members.pop(group[source])
        members[target].append(op)
        for member in members[target]:
            group[member.name] = target
    order = {op.name: number for number, op in enumerate(ops)}
    result = []
    for members_ in sorted(members.values(), key=lambda some: order[some[-1].name]):
        some = sorted(members_, key=lambda op: order[op.name])
        inside = {op.name for op in some}
        inputs = dict.fromkeys(operand for op in some for operand in op.inputs if operand not in inside)
        result.append(Stage(tuple(some), tuple(inputs)))
    return result


def _only_wires(ops: list[Op]) -> bool:
    return all(isinstance(op, WIRES) for op in ops)


def work(network: IntegerNetwork, op: Op) -> int:
    """Non-zero products with constants that an op has in all positions; without weights: elements that it reads."""
    size = int(np.prod(network.values[op.name].shape))
    match op:
        case Dense():
            return int(np.count_nonzero(op.weight))
        case Conv():
            return int(np.count_nonzero(op.weight)) * (size // int(op.weight.shape[0]))
        case MaxPool() | SumPool():
            return size * int(np.prod(op.kernel))
        case Reshape() | Pad() | Upsample() | Concat():
            return 0
    return sum(int(np.prod(network.values[operand].shape)) for operand in op.inputs)


def unrolled(network: IntegerNetwork, stage: Stage, config: RtlConfig) -> bool:
    """Whether a stage computes all its positions at once: where there is one only, or they are few enough.

    Raises
    ------
    NotSynthesizable
        If one module had more products than ``config.max_adders``.
    """
    for op in stage.ops:
        weights = int(np.count_nonzero(op.weight)) if isinstance(op, Dense | Conv) else 0
        if weights > config.max_adders:
            raise NotSynthesizable(
                f"{op.name}: {weights} non-zero products with constants; one module may have {config.max_adders}. "
                "Prune the layer, or raise max_adders"
            )
    if positions(network, stage) == 1:
        return True
    return all(work(network, op) <= config.max_products for op in stage.ops)


def positions(network: IntegerNetwork, stage: Stage) -> int:
    """Positions in space of what a stage gives: 1 for a vector."""
    return int(np.prod(network.values[stage.output].shape[1:]))


def one_position(network: IntegerNetwork, stage: Stage) -> tuple[tuple[Op, ...], dict[str, Value]]:
    """A stage cut down to one position: its ops (wires before them left out), and every value they read and give.

    A convolution or a pool reads one patch, (channels, *kernel), in which a maximum's padding is the channel's least;
    anything else reads (channels, 1, ...). Each element read has the union of its ranges over all positions, so that
    the one circuit serves them all.

    Raises
    ------
    NotSynthesizable
        If a rescale's constants are not the same in all positions, or the unions lead out of a table or of 62 bits.
    """
    ops: list[Op] = []
    values: dict[str, Value] = {}
    for op in stage.ops:
        if isinstance(op, WIRES):
            continue
        for operand in op.inputs:
            if operand not in values:
                values[operand] = _patch(op, network.values[operand])
        if isinstance(op, Conv | MaxPool | SumPool):
            rank = len(op.kernel)
            op = replace(op, stride=(1,) * rank, padding=(0,) * (2 * rank))
        elif isinstance(op, Requantize):
            op = _everywhere(op)
        ops.append(op)
        try:
            values[op.name] = op.derive([values[operand] for operand in op.inputs])
        except NetworkError as error:
            raise NotSynthesizable(
                f"one circuit for all positions of {stage.output}: {error}; or raise max_products to unroll it"
            ) from error
    return tuple(ops), values


def _patch(op: Op, x: Value) -> Value:
    low, high = x.low, x.high
    if isinstance(op, Conv | MaxPool | SumPool):
        space = tuple(range(1, low.ndim))
        fill = low.min(axis=space, keepdims=True) if isinstance(op, MaxPool) else np.zeros((1,) * low.ndim, np.int64)
        low, high = (patches((end - fill)[None], op.kernel, op.stride, op.padding)[0] for end in (low, high))
        axes = tuple(range(1 + len(op.kernel), low.ndim))
        low, high = low.min(axis=axes) + fill, high.max(axis=axes) + fill
    else:
        kept = op.axis if isinstance(op, ReduceMax | ReduceSum) else 0
        axes = tuple(axis for axis in range(1, low.ndim) if axis != kept)
        low, high = low.min(axis=axes, keepdims=True), high.max(axis=axes, keepdims=True)
    return Value(low.shape, low, high, IntType.holding(int(low.min()), int(high.max())), x.bound)


def _everywhere(op: Requantize) -> Requantize:
    """The rescale with constants of shape () or (channels, 1, ...)."""
    constants = {}
    for name in ("multiplier", "shift", "offset"):
        array = getattr(op, name)
        space = tuple(range(1, array.ndim))
        first = array[(slice(None), *(slice(0, 1) for _ in space))] if array.ndim else array
        if not (array == first).all():
            raise NotSynthesizable(
                f"{op.name}: its {name} differs between positions, so one position's circuit does not serve the "
                "others; give one for each channel, or raise max_products to unroll the op"
            )
        constants[name] = first
    return replace(op, **constants)
