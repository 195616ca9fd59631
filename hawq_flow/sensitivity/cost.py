"""What measuring a piecewise linear network costs, before it is done: operations, and memory.

Operations are floating-point ones, two for each multiplication of a layer, one for each element of another value. One
column of the factor ``F`` costs a backward pass and every layer's ``|G|^2``
(:mod:`hawq_flow.sensitivity.gradients`).

Memory is that of the values of a chunk of samples, kept through its backward pass, plus, for each column sent at once,
the adjoints alive at the worst step and that step's work.
"""

from __future__ import annotations

from dataclasses import dataclass

from hawq_flow.sensitivity.gradients import LayerForm
from hawq_flow.sensitivity.program import Program, Weights

MEMORY = 1 << 30
"""Bytes that one chunk may take, so that a process stays under 2 GB with torch itself and the data."""
CHUNK_ELEMENTS = 1 << 19
"""Elements of the widest adjoint of a chunk: 2 MiB of float32, about a core's cache."""


@dataclass(frozen=True)
class Chunk:
    """How many samples, and how many columns of the factor, are taken at once; ``bytes`` is what that takes."""

    samples: int
    columns: int
    bytes: int


def forms(program: Program, weights: Weights) -> dict[str, LayerForm]:
    """Every layer's form, in order."""
    return {
        step.operation.layer: LayerForm.of(
            step.operation, tuple(weights.weight[step.operation.layer].shape), program.shapes[step.output]
        )
        for step in program.steps
        if step.operation.layer
    }


def operations(program: Program, layers: dict[str, LayerForm], columns: int, *, to_input: bool) -> tuple[float, float]:
    """(forward, backward) floating-point operations of one sample, backward for ``columns`` adjoints."""
    forward = backward = 0.0
    for step in program.steps:
        size = program.size(step.output)
        if not step.operation.layer:
            forward += size
            backward += columns * size
            continue
        form = layers[step.operation.layer]
        passing = 2.0 * form.weights * form.positions
        forward += passing
        backward += 2.0 * min(form.multiplications(columns))
        if to_input or step.inputs[0] != 0:
            backward += columns * passing
    return forward, backward


def elements(
    program: Program,
    layers: dict[str, LayerForm],
    columns: int,
    *,
    to_input: bool,
    gradients: bool = False,
    each: bool = False,
) -> tuple[int, int]:
    """(for each column, on top) elements of one sample at the worst moment of the backward pass."""
    values = sum(program.size(value) for value in range(len(program.shapes)))
    live: dict[int, int] = {program.output: program.size(program.output)}
    worst = live[program.output] * 2  # the factor is made in float64
    extra = 0
    for step in reversed(program.steps):
        if step.output not in live:
            continue
        size = program.size(step.output)
        work = 2 * size  # squares
        if step.operation.layer:
            more, once = layers[step.operation.layer].elements(columns, gradients=gradients, each=each)
            work, extra = work + more, max(extra, once)
        worst = max(worst, sum(live.values()) + work)
        wanted = [value for value in step.inputs if value != 0 or to_input]
        sources = sum(program.size(value) for value in wanted)
        # The step's own copies, of its output and of its input, beside the adjoints it makes.
        worst = max(worst, sum(live.values()) + size + 2 * sources)
        del live[step.output]
        for value in wanted:
            live[value] = program.size(value)
    return worst, values + extra


def chunk(
    program: Program,
    layers: dict[str, LayerForm],
    columns: int,
    itemsize: int,
    *,
    to_input: bool,
    gradients: bool = False,
    each: bool = False,
    memory: int | None = None,
    width: int | None = None,
) -> Chunk:
    """The chunk to take: it fits the cache if it can, and ``memory`` bytes unless one sample and one column do not.

    Parameters
    ----------
    columns:
        All columns to send.
    itemsize:
        Bytes of an element.
    to_input, gradients, each:
        Whether the input's adjoint is wanted, every weight's own squares, every column's own squares.
    memory, width:
        Instead of :data:`MEMORY` and :data:`CHUNK_ELEMENTS`.
    """
    memory = MEMORY if memory is None else memory
    fixed = itemsize * sum(form.weights for form in layers.values())
    room = max(0, memory - fixed) // itemsize

    def needed(at_once: int) -> int:
        """Elements of one sample; the last columns, fewer, may need more, as the way to squares depends on them."""
        found = 0
        for count in {at_once, columns % at_once} - {0}:
            column, base = elements(program, layers, count, to_input=to_input, gradients=gradients, each=each)
            found = max(found, base + count * column)
        return found

    at_once = columns
    while at_once > 1 and needed(at_once) > room:
        at_once = max(1, min(at_once - 1, at_once * room // needed(at_once)))
    widest = max(program.size(value) for value in range(len(program.shapes)))
    cached = (CHUNK_ELEMENTS if width is None else width) // (at_once * widest)
    samples = max(1, min(cached, room // needed(at_once)))
    return Chunk(samples, at_once, fixed + itemsize * samples * needed(at_once))
