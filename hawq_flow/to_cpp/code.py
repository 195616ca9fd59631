"""Statements, loops around them, and elements of arrays, as lines of C++."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Union

from hawq_flow.network import Shape
from hawq_flow.to_cpp.words import dims

Node = Union[str, "Block"]
"""A statement on one line, or a block of several."""


@dataclass(frozen=True)
class Block:
    """A head (``for``, ``if``) and what stands in it; in braces unless that is one statement."""

    head: str
    body: tuple[Node, ...]


def loop(variable: str, count: int, *body: Node) -> Block:
    """A loop from 0."""
    return Block(f"for (int {variable} = 0; {variable} < {count}; {variable}++)", body)


def loops(ranges: Iterable[tuple[str, int]], *body: Node) -> tuple[Node, ...]:
    """Loops one in the other, the first outermost; the body itself when there is none."""
    for variable, count in reversed(list(ranges)):
        body = (loop(variable, count, *body),)
    return body


def over(shape: Shape, *body: Node) -> tuple[Node, ...]:
    """Loops over every element of a value, by :func:`variables`."""
    shape = dims(shape)
    return loops(zip(variables(len(shape)), shape, strict=True), *body)


def variables(rank: int) -> list[str]:
    """Loop variables over the axes of a value: ``i``; ``c, i``; ``c, i, j``; and on."""
    if rank == 1:
        return ["i"]
    return [*"cijklmn", *(f"i{axis}" for axis in range(7, rank))][:rank]


def at(name: str, indices: Iterable[str | int]) -> str:
    """An element: ``name[c][i + 1]``."""
    return name + "".join(f"[{index}]" for index in indices)


def element(name: str, shape: Shape, within: Shape) -> str:
    """The element of a value that broadcasts over one of shape ``within``, where the loops over that one stand."""
    shape, within = dims(shape), dims(within)
    return at(name, [v if n == m else 0 for v, n, m in zip(variables(len(within)), shape, within, strict=True)])


def render(nodes: Sequence[Node], indent: str = "") -> list[str]:
    """The lines of statements."""
    lines: list[str] = []
    for node in nodes:
        if isinstance(node, str):
            lines.append(indent + node)
        elif len(node.body) == 1:
            lines += [indent + node.head, *render(node.body, indent + "    ")]
        else:
            lines += [f"{indent}{node.head} {{", *render(node.body, indent + "    "), indent + "}"]
    return lines
