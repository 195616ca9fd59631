"""Strict JSON documents: what every ``from_dict`` checks before it believes a file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def listed(names: Iterable[object]) -> str:
    """Names in order, or ``none``."""
    return ", ".join(sorted(map(str, names))) or "none"


def table(data: object, where: str) -> None:
    """``ValueError`` unless ``data`` is a mapping."""
    if not isinstance(data, Mapping):
        raise ValueError(f"{where}: found {data!r}; expected a table of names")


def exact_keys(data: object, expected: set[str], where: str) -> None:
    """``ValueError`` unless ``data`` is a mapping with exactly the keys ``expected``."""
    table(data, where)
    assert isinstance(data, Mapping)
    if set(data) != expected:
        raise ValueError(
            f"{where}: unknown keys {listed(set(data) - expected)}, missing keys {listed(expected - set(data))}; "
            f"expected exactly {listed(expected)}"
        )


def version(found: object, expected: int, where: str, fix: str) -> None:
    """``ValueError`` unless a document's version is the one this package reads; ``fix`` says how to renew it."""
    if found != expected:
        raise ValueError(f"{where}: version {found!r}; this hawq_flow reads version {expected}. {fix}")
