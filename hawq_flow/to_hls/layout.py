"""The order of a value's elements in the firmware: channels last, where the network's is channels first.

hls4ml computes convolutions and pools channels last: a value (C, H, W) of the network is an array (H, W, C) there. A
value that was flattened keeps that order (nothing is moved), and whoever reads it must know: a dense layer behind has
its weights' columns permuted, a port says so. A :class:`Layout` is that order, written down so that a reader without
this package can apply it: the network's elements, cut into consecutive ``pieces``, each reshaped (C order) to ``shape``
and transposed by ``axes``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hawq_flow.network import Shape
from hawq_flow.numeric import IntArray


@dataclass(frozen=True)
class Layout:
    """The firmware's order of a value's elements: pieces of (shape, axes), see the module's docstring."""

    pieces: tuple[tuple[Shape, tuple[int, ...]], ...]

    @classmethod
    def of(cls, shape: Shape) -> Layout:
        """Channels last for a value of the network with two axes or more; the network's own order below."""
        return cls(((shape, (*range(1, len(shape)), 0) if shape else ()),))

    @classmethod
    def joined(cls, parts: Iterable[Layout]) -> Layout:
        """Values one behind the other."""
        return cls(tuple(piece for part in parts for piece in part.pieces))

    @classmethod
    def read(cls, document: Sequence[dict[str, Any]]) -> Layout:
        """From :attr:`document`."""
        return cls(tuple((tuple(piece["shape"]), tuple(piece["axes"])) for piece in document))

    @property
    def document(self) -> list[dict[str, list[int]]]:
        """For the manifest."""
        return [{"shape": list(shape), "axes": list(axes)} for shape, axes in self.pieces]

    @cached_property
    def indices(self) -> IntArray:
        """(elements,): the firmware's element k is the network's element ``indices[k]`` (C order)."""
        result, start = [], 0
        for shape, axes in self.pieces:
            size = int(np.prod(shape))
            result.append(np.arange(start, start + size).reshape(shape).transpose(axes).ravel())
            start += size
        indices = np.concatenate(result).astype(np.int64)
        indices.flags.writeable = False
        return indices

    @property
    def same(self) -> bool:
        """Whether the firmware's order is the network's."""
        return bool((self.indices == np.arange(self.indices.size)).all())

    def equals(self, other: Layout) -> bool:
        """Whether both order the same number of elements in the same way."""
        return bool(np.array_equal(self.indices, other.indices))

    def to_firmware(self, array: NDArray[Any]) -> NDArray[Any]:
        """(n, *shape) in the network's order -> (n, elements) in the firmware's."""
        return array.reshape(len(array), -1)[:, self.indices]

    def to_network(self, rows: NDArray[Any]) -> NDArray[Any]:
        """(n, elements) in the firmware's order -> (n, elements) in the network's."""
        result = np.empty_like(rows)
        result[:, self.indices] = rows
        return result

    def words(self, shape: Shape) -> str:
        """The order of a port in a sentence, for a value that has ``shape`` in the network."""
        if self.same:
            return f"C order of {shape}, batch excluded" + (", as in the network" if len(shape) > 1 else "")
        text = []
        for piece, axes in self.pieces:
            moved = tuple(piece[axis] for axis in axes)
            text.append(f"C order of {moved}: the network's {piece} transposed by {axes}")
        where = "channels last, batch excluded: " if len(text) == 1 else "piece by piece: "
        return where + "; then ".join(text)
