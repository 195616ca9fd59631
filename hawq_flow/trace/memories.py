"""Constants of a network as memory images: weights, biases, multipliers, shifts, offsets, tables; whole and tiled.

An image holds the integers of one constant in C order, ``elements_per_word`` to a word (``images``: element 0 in the
lowest bits), the last word filled with zeros. Every constant has the narrowest word that holds it.

A MAC array of ``rows`` x ``columns`` takes a weight matrix ``W`` (outputs, terms) in blocks: a row of the array is an
output, a column a term of the sum. For ``Dense`` the terms are the inputs; for ``Conv`` they are channel, then kernel
position (C order of ``weight[output]``), and each group has a matrix of its own. Zeros fill blocks that reach beyond
the matrix. Tiles stand in this order::

    for group, for block of outputs, for block of terms:    one tile
        for row of the tile:                                one word, column 0 in the lowest bits
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hawq_flow import document, images
from hawq_flow.network import Conv, Dense, IntegerNetwork, Lookup, Op, Pad, Requantize, Shape
from hawq_flow.numeric import IntArray
from hawq_flow.store import write_json
from hawq_flow.trace.tracing import Signal, TraceError, word

FORMAT, VERSION = "hawq_flow.constants", 1
INDEX = "index.json"
ORDER = (
    "integers in C order over the axes, elements_per_word to a word, element 0 in the lowest bits, two's complement; "
    "the last word filled with zeros. Tiles: for group, for block of outputs, for block of terms; a word is a row of a "
    "tile (one output), its columns are terms, zeros beyond the matrix"
)
ROLES = ("weight", "bias", "multiplier", "shift", "offset", "table", "value")
"""Roles of constants."""
KERNEL = {1: ("kernel",), 2: ("kernel row", "kernel column")}


@dataclass(frozen=True, eq=False)
class Constant:
    """One constant of an op.

    Attributes
    ----------
    op, layer, kind, role:
        Whose it is: the op, the source model's layer, what the op is; ``weight``, ``bias``, ``multiplier``,
        ``shift``, ``offset``, ``table`` or ``value`` (what a Pad puts around).
    values:
        int64, in the network's own shape; () for one number that all elements share.
    axes:
        What each axis of ``values`` counts.
    bits, signed:
        The narrowest word that holds every one of them.
    groups:
        Of a weight; 1 elsewhere.
    start:
        Of a table: the integer that its first entry stands for; None elsewhere.
    """

    op: str
    layer: str
    kind: str
    role: str
    values: IntArray
    axes: tuple[str, ...]
    bits: int
    signed: bool
    groups: int = 1
    start: int | None = None

    @property
    def name(self) -> str:
        """``OP.ROLE``: what its files are called."""
        return f"{self.op}.{self.role}"


def constants(network: IntegerNetwork) -> tuple[Constant, ...]:
    """Every constant of a network, in the order of its ops."""
    return tuple(constant for op in network.ops for constant in _of(op, network))


def as_signals(network: IntegerNetwork) -> dict[str, Signal]:
    """Every constant by name as a signal of one row that is always the same: its range is itself."""
    result = {}
    for c in constants(network):
        kind = f"{'int' if c.signed else 'uint'}{c.bits}"
        facts = (c.op, c.kind, c.layer, c.role, (), c.values.shape, c.values, c.values, c.bits, c.signed, kind)
        result[c.name] = Signal(c.name, *facts)
    return result


def _of(op: Op, network: IntegerNetwork) -> list[Constant]:
    def one(role: str, values: Any, axes: Sequence[str], **more: Any) -> Constant:
        array = np.asarray(values, dtype=np.int64)
        bits, signed = word(int(array.min()), int(array.max()))
        return Constant(op.name, op.layer, op.kind, role, array, tuple(axes), bits, signed, **more)

    match op:
        case Dense():
            return [one("weight", op.weight, ("output", "input")), one("bias", op.bias, ("output",))]
        case Conv():
            axes = ("output", "channel of the group", *KERNEL[len(op.kernel)])
            return [one("weight", op.weight, axes, groups=op.groups), one("bias", op.bias, ("output",))]
        case Requantize():
            rank = len(network.values[op.name].shape)
            return [
                one(role, array, _axes(array.shape, rank))
                for role, array in (("multiplier", op.multiplier), ("shift", op.shift), ("offset", op.offset))
            ]
        case Lookup():
            return [one("table", op.table, ("entry",), start=op.start)]
        case Pad():
            return [one("value", op.value, ())]
    return []


def _axes(shape: Shape, rank: int) -> tuple[str, ...]:
    """What the axes of an array count that broadcasts over a value (channels, *space) of ``rank`` axes."""
    names = ("channel", *{0: (), 1: ("position",), 2: ("row", "column")}.get(rank - 1, ()))
    names = names if len(names) == rank else ("channel", *(f"axis {i}" for i in range(1, rank)))
    return names[rank - len(shape) :]


def tiles(weight: IntArray, rows: int, columns: int, groups: int = 1) -> IntArray:
    """A weight in the tiles of a MAC array.

    Parameters
    ----------
    weight:
        int64 (outputs, ...): the other axes, flattened in C order, are the terms.
    rows, columns:
        Of the array; 1 or more.

    Returns
    -------
    int64 (groups, blocks of outputs, blocks of terms, rows, columns), zeros where a block reaches beyond the matrix.
    """
    if rows < 1 or columns < 1:
        raise TraceError(f"tiles of {rows}x{columns}; expected 1 or more rows and columns of the MAC array")
    matrix = weight.reshape(groups, weight.shape[0] // groups, -1)
    down, across = -(-matrix.shape[1] // rows), -(-matrix.shape[2] // columns)
    padded = np.zeros((groups, down * rows, across * columns), dtype=np.int64)
    padded[:, : matrix.shape[1], : matrix.shape[2]] = matrix
    return np.ascontiguousarray(padded.reshape(groups, down, rows, across, columns).transpose(0, 1, 3, 2, 4))


def untiled(tiled: IntArray, shape: Shape) -> IntArray:
    """The weight of ``shape`` that :func:`tiles` cut: (groups, blocks, blocks, rows, columns) -> ``shape``.

    Raises
    ------
    TraceError
        If the tiles are not those of such a weight, or hold something else than zeros beyond it.
    """
    groups, down, across, rows, columns = tiled.shape
    outputs, terms = shape[0] // groups, int(np.prod(shape[1:]))
    if (down, across) != (-(-outputs // rows), -(-terms // columns)):
        raise TraceError(
            f"{down}x{across} tiles of {rows}x{columns} in {groups} groups; a weight of shape {shape} has "
            f"{-(-outputs // rows)}x{-(-terms // columns)}"
        )
    matrix = tiled.transpose(0, 1, 3, 2, 4).reshape(groups, down * rows, across * columns)
    if matrix[:, outputs:].any() or matrix[:, :, terms:].any():
        raise TraceError(f"tiles of a weight of shape {shape} hold integers beyond it; expected zeros there")
    return np.ascontiguousarray(matrix[:, :outputs, :terms]).reshape(shape)


def write_images(
    network: IntegerNetwork,
    folder: Path | str,
    tile: tuple[int, int] | None = None,
    *,
    elements_per_word: int = 1,
    forms: Sequence[str] = ("hex", "bin"),
) -> Path:
    """Write every constant as memory images and ``index.json`` into a new folder, which is absent or whole.

    Parameters
    ----------
    folder:
        To be made; it must not exist.
    tile:
        (rows, columns) of a MAC array: weights are written in its tiles too, as ``OP.weight.tiles.FORM``.
    elements_per_word:
        Integers in a word of the whole images; a word of a tile holds ``columns``.
    forms:
        ``hex`` for ``$readmemh``, ``bin`` for ``$readmemb``.

    Returns
    -------
    The folder.

    Raises
    ------
    TraceError
        If the folder exists, or sizes are not positive.
    """
    folder = Path(folder)
    if folder.exists():
        raise TraceError(f"{folder}: exists; images are written whole, into a new folder. Remove it or choose another")
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}.work.", dir=folder.parent))
    try:
        fill_images(network, work, tile, elements_per_word=elements_per_word, forms=forms)
        os.chmod(work, 0o755)
        os.rename(work, folder)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    return folder


def fill_images(
    network: IntegerNetwork,
    folder: Path,
    tile: tuple[int, int] | None = None,
    *,
    elements_per_word: int = 1,
    forms: Sequence[str] = ("hex", "bin"),
) -> None:
    """:func:`write_images` into an existing, empty folder of an artifact in the making."""
    if elements_per_word < 1:
        raise TraceError(f"words of {elements_per_word} elements; expected 1 or more")
    entries: list[dict[str, Any]] = []
    for constant in constants(network):
        flat = constant.values.reshape(-1)
        filled = np.zeros(-(-flat.size // elements_per_word) * elements_per_word, dtype=np.int64)
        filled[: flat.size] = flat
        entry: dict[str, Any] = {
            "constant": constant.name,
            "op": constant.op,
            "layer": constant.layer,
            "kind": constant.kind,
            "role": constant.role,
            "shape": list(constant.values.shape),
            "axes": list(constant.axes),
            "bits": constant.bits,
            "signed": constant.signed,
        }
        if constant.start is not None:
            entry["start"] = constant.start
        _write(folder, constant, filled.reshape(-1, elements_per_word), forms, constant.name, entry, entries)
        if tile is not None and constant.role == "weight":
            cut = tiles(constant.values, *tile, groups=constant.groups)
            entry = {**entry, "tile": list(tile), "tiles": list(cut.shape[:3])}
            _write(folder, constant, cut.reshape(-1, tile[1]), forms, f"{constant.name}.tiles", entry, entries)
    index = {"format": FORMAT, "version": VERSION, "network": network.digest, "order": ORDER, "files": entries}
    write_json(folder / INDEX, index)


def _write(
    folder: Path,
    constant: Constant,
    rows: IntArray,
    forms: Sequence[str],
    stem: str,
    entry: dict[str, Any],
    entries: list[dict[str, Any]],
) -> None:
    for form in forms:
        (folder / f"{stem}.{form}").write_text(images.words(rows, constant.bits, constant.signed, form, stem))
        entries.append(
            {
                "file": f"{stem}.{form}",
                "form": form,
                **entry,
                "elements_per_word": rows.shape[1],
                "words": len(rows),
            }
        )


def read_images(folder: Path | str) -> dict[str, IntArray]:
    """What the files of :func:`write_images` hold, by file: int64 of the constant's shape, tiles put together.

    Raises
    ------
    TraceError
        If a file is missing, its index is of another format, or it has another number of words.
    ImageError
        Naming file and line of what is no word.
    """
    folder = Path(folder)
    index = read_index(folder / INDEX, FORMAT, VERSION)
    return {entry["file"]: read_image(folder, entry) for entry in index["files"]}


def read_image(folder: Path, entry: Mapping[str, Any]) -> IntArray:
    """One file of an index: int64 of the constant's shape, tiles put together; errors as :func:`read_images`."""
    path = folder / entry["file"]
    if not path.is_file():
        raise TraceError(f"{path}: missing; {INDEX} lists it. Take its entry out to leave it out")
    per_word, shape = entry["elements_per_word"], tuple(entry["shape"])
    found = images.read_words(path.read_text(), per_word, entry["bits"], entry["signed"], entry["form"], str(path))
    if len(found) != entry["words"]:
        raise TraceError(f"{path}: {len(found)} words; {INDEX} says {entry['words']}")
    if "tile" in entry:
        try:
            return untiled(found.reshape(*entry["tiles"], *entry["tile"]), shape)
        except ValueError as error:
            raise TraceError(f"{path}: {error}") from error
    return found.reshape(-1)[: int(np.prod(shape))].reshape(shape)


def read_index(path: Path, format: str | tuple[str, ...], version: int) -> dict[str, Any]:
    """An index of ours: JSON with ``format`` (or one of them), ``version`` and ``files``; else ``TraceError``."""
    formats = (format,) if isinstance(format, str) else format
    try:
        index = json.loads(path.read_text())
        document.table(index, str(path))
        if index.get("format") not in formats or not isinstance(index.get("files"), list):
            expected = " or ".join(map(repr, formats))
            raise ValueError(f"{path}: format {index.get('format')!r}; expected {expected} with a list of files")
        document.version(index.get("version"), version, str(path), "Write it again with this hawq_flow")
    except OSError as error:
        raise TraceError(f"{path}: not readable ({error.strerror})") from error
    except json.JSONDecodeError as error:
        raise TraceError(f"{path}, line {error.lineno}: not JSON ({error.msg})") from error
    except ValueError as error:
        raise TraceError(str(error)) from error
    return dict(index)
