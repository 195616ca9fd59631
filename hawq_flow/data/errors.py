"""What is refused about data, and in which words: where, what was found, what was expected, the fix."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray


class DataError(ValueError):
    """Data that cannot be used. The message says where, what was found, what was expected, and the fix."""


class AbsentDataError(DataError):
    """Data that this machine lacks and that are shipped with nothing: a reason to skip what needs them."""


def count(items: Sequence[object], one: str, many: str = "") -> str:
    """Return "1 class" or "3 classes"."""
    return f"{len(items)} {one if len(items) == 1 else many or one + 's'}"


def some(items: Iterable[str], limit: int = 5) -> str:
    """Join at most ``limit`` items, and say how many were left out."""
    every = list(items)
    return ", ".join(every[:limit]) + (f" and {len(every) - limit} more" if len(every) > limit else "")


def refuse_repeated(names: Sequence[str], what: str) -> None:
    """Refuse names that stand more than once; ``what`` opens the message (``file:a.csv: column``)."""
    repeated = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if repeated:
        raise DataError(
            f"{what} {some(map(repr, repeated))} named more than once; expected each once; rename or drop it"
        )


def refuse_not_finite(source: str, features: Sequence[str], x: NDArray[np.float64], where: str = "") -> None:
    """Refuse NaN and infinities in ``x``, float64 (n, ...), by column, with their number and first row."""
    finite = np.isfinite(x)
    if finite.all():
        return
    flat, finite = x.reshape(len(x), -1), finite.reshape(len(x), -1)
    found = []
    for column in np.flatnonzero(~finite.all(axis=0)).tolist():
        nan, infinite = int(np.isnan(flat[:, column]).sum()), int(np.isinf(flat[:, column]).sum())
        kinds = " and ".join(f"{n} {kind}" for n, kind in ((nan, "NaN or missing"), (infinite, "infinite")) if n)
        name = repr(features[column]) if len(features) else f"element {column}"
        found.append(f"{name} has {kinds}, the first in row {int(np.argmin(finite[:, column]))}")
    rows = int((~finite.all(axis=1)).sum())
    raise DataError(
        f"{source}: {rows} of {len(x)} rows{where} (counted from 0) hold values that are no finite numbers: "
        f"column {some(found)}; expected finite numbers; drop or fill those rows, or leave the column out of "
        "`features`"
    )


def refuse_unknown(source: str, wanted: Sequence[str], columns: Sequence[str], option: str) -> None:
    """Refuse names that are no columns, with the nearest name that is."""
    for name in wanted:
        if name not in columns:
            near = difflib.get_close_matches(name, columns, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise DataError(
                f"{source}: no column {name!r}, which `{option}` names; {hint}expected one of the "
                f"{len(columns)} columns {some(map(repr, columns), 20)}"
            )
