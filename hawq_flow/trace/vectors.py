"""Images of signals, row after row, with an index: format ``hawq_flow.vectors`` version 1, as in a handed-over bundle.

Decimal files (``.txt``) hold one row a line. In words (``.hex``, ``.bin``) a row takes ``ceil(elements /
elements_per_word)`` lines, its last word filled with zeros; an entry without ``elements_per_word`` has one row a word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hawq_flow import images
from hawq_flow.numeric import IntArray
from hawq_flow.store import write_json
from hawq_flow.trace.tracing import Signal, TraceError

FORMAT, VERSION = "hawq_flow.vectors", 1
INDEX = "index.json"
FORMS = {"hex": "hex", "bin": "bin", "txt": "decimal"}
"""Forms of images by the ending of their files."""
WIDEST_WORD = 4096
"""Bits of a word up to which a row stands in one, where nobody says how many elements a word has."""
CHUNK = 1 << 16
"""Integers turned into text at once."""
ORDER = (
    "row after row; the elements of a row in C order, channels first; in words elements_per_word elements stand side "
    "by side, element 0 in the lowest bits, two's complement, the last word of a row filled with zeros"
)


def per_word(signal: Signal, asked: int | None) -> int:
    """Elements in a word: as asked for (at most a row), else a row of at most ``WIDEST_WORD`` bits, else 1."""
    if asked is not None:
        if asked < 1:
            raise TraceError(f"words of {asked} elements; expected 1 or more")
        return min(asked, signal.elements)
    return signal.elements if signal.elements * signal.bits <= WIDEST_WORD else 1


def write(
    folder: Path,
    network: str,
    signals: Mapping[str, Signal],
    arrays: Mapping[str, IntArray],
    forms: Sequence[str],
    elements_per_word: int | None = None,
) -> None:
    """Write signals (n, elements) in the given forms, by their endings, and ``index.json`` into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    entries = []
    for name, rows in arrays.items():
        signal = signals[name]
        for ending in forms:
            packed = per_word(signal, elements_per_word)
            with (folder / f"{name}.{ending}").open("w") as stream:
                step = max(1, CHUNK // signal.elements)
                for start in range(0, len(rows), step):
                    stream.write(_text(np.asarray(rows[start : start + step]), signal, ending, packed))
            entry: dict[str, Any] = {
                "file": f"{name}.{ending}",
                "form": FORMS[ending],
                "rows": len(rows),
                "values": [
                    {
                        "value": name,
                        "shape": list(signal.shape),
                        "elements": signal.elements,
                        "bits": signal.bits,
                        "signed": signal.signed,
                    }
                ],
            }
            entries.append(entry if ending == "txt" else {**entry, "elements_per_word": packed})
    write_json(
        folder / INDEX, {"format": FORMAT, "version": VERSION, "network": network, "order": ORDER, "files": entries}
    )


def _text(rows: IntArray, signal: Signal, ending: str, packed: int) -> str:
    if ending == "txt":
        return images.decimal(rows)
    filled = -(-signal.elements // packed) * packed
    padded = np.zeros((len(rows), filled), dtype=np.int64)
    padded[:, : signal.elements] = rows
    return images.words(padded.reshape(-1, packed), signal.bits, signal.signed, ending, signal.name)


def read(text: str, signal: Signal, form: str, packed: int, where: str) -> IntArray:
    """Rows of one signal from the text of a file: int64 (n, elements).

    Raises
    ------
    ImageError, TraceError
        Naming file and line, if it holds no such rows.
    """
    if form == "decimal":
        return images.read_decimal(text, signal.elements, where)
    found = images.read_words(text, packed, signal.bits, signal.signed, form, where)
    words = -(-signal.elements // packed)
    if len(found) % words:
        raise TraceError(
            f"{where}: {len(found)} words; expected a multiple of {words}, a row of {signal.name}: {signal.elements} "
            f"elements, {packed} to a word"
        )
    return found.reshape(-1, words * packed)[:, : signal.elements]
