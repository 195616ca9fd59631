"""What an import gives: the network, how the file's numbers become its integers and back, and what was noted."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import ArrayLike

from hawq_flow.from_onnx.affine import Rationals, full
from hawq_flow.from_onnx.refusals import Snap
from hawq_flow.network import IntegerNetwork
from hawq_flow.numeric import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class ImportedInput:
    """How an input of the file (``source``, ``shape`` without batch) is laid out in the network's input ``name``.

    ``order[i]`` is the file's element (flat) at place i of the network's input (flat).
    """

    name: str
    source: str
    shape: tuple[int, ...]
    order: IntArray


@dataclass(frozen=True, eq=False)
class ImportedOutput:
    """How an output of the file (``source``, ``shape`` without batch) is read from the network's value ``name``.

    Element e of the file (flat) is ``scale * (integer[order[e]] - zero_point) + offset``, exactly; scale, zero point
    and offset broadcast over the network's value. ``left`` names the function left in float after it, if any, and
    ``tensor`` the file's tensor that is meant: the output itself, or what that function reads.
    """

    source: str
    tensor: str
    name: str
    shape: tuple[int, ...]
    order: IntArray
    scale: Rationals
    offset: Rationals
    zero_point: IntArray
    left: str


@dataclass(frozen=True, eq=False)
class Imported:
    """An imported model.

    Attributes
    ----------
    network:
        The integer network; its metadata name the source, its sha256 and its producer.
    inputs, outputs:
        The file's inputs and outputs in terms of the network's.
    snaps:
        Every scale that was changed within the accepted bound; empty when all is exact.
    notes:
        What a reader should know: parts left in float, orders, offsets.
    original:
        The model as it was read.
    """

    network: IntegerNetwork
    inputs: tuple[ImportedInput, ...]
    outputs: tuple[ImportedOutput, ...]
    snaps: tuple[Snap, ...]
    notes: tuple[str, ...]
    original: onnx.ModelProto

    def integers(self, raw: ArrayLike | Mapping[str, ArrayLike]) -> dict[str, IntArray]:
        """The network's integers for raw rows in the file's order.

        Parameters
        ----------
        raw:
            Real numbers (n, *the file's shape), by input name of the file when there are several.

        Returns
        -------
        By input name of the network: int64 (n, *its shape).
        """
        given = raw if isinstance(raw, Mapping) else {self.inputs[0].source: raw}
        result = {}
        for entry in self.inputs:
            if entry.source not in given:
                raise ValueError(f"input {entry.source!r} is missing; given: {', '.join(map(str, given))}")
            array = np.asarray(given[entry.source])
            if array.shape[1:] != entry.shape:
                raise ValueError(f"input {entry.source!r}: rows of shape {array.shape[1:]}; expected {entry.shape}")
            spec = next(spec for spec in self.network.inputs if spec.name == entry.name)
            laid = array.reshape(len(array), -1)[:, entry.order].reshape(len(array), *spec.shape)
            result[entry.name] = spec.integers(laid)
        return result

    def rows(self, integers: Mapping[str, IntArray]) -> dict[str, FloatArray]:
        """The raw rows, in the file's order, that the integers stand for: the inverse of :meth:`integers`, float64."""
        result = {}
        for entry in self.inputs:
            spec = next(spec for spec in self.network.inputs if spec.name == entry.name)
            array = np.asarray(integers[entry.name])
            real = (spec.scale * (array - spec.zero_point)) * spec.std + spec.mean
            flat = np.empty((len(array), entry.order.size))
            flat[:, entry.order] = real.reshape(len(array), -1)
            result[entry.source] = flat.reshape(len(array), *entry.shape)
        return result

    def real(self, values: Mapping[str, IntArray] | IntArray) -> dict[str, FloatArray]:
        """The real numbers, in the file's order and by its names, of the network's output integers (float64).

        ``values`` is what ``interpret.run`` gives for one output, or ``interpret.trace`` for any number.
        """
        given = values if isinstance(values, Mapping) else {self.outputs[0].name: values}
        result = {}
        for entry in self.outputs:
            array = np.asarray(given[entry.name])
            rank = array.ndim - 1
            parts = [
                np.array([float(v) for v in part.ravel()]).reshape(part.shape) for part in (entry.scale, entry.offset)
            ]
            real = parts[0] * (array - entry.zero_point) + parts[1]
            assert real.ndim == rank + 1
            flat = real.reshape(len(array), -1)[:, entry.order]
            result[entry.source] = flat.reshape(len(array), *entry.shape)
        return result

    def units(self, entry: ImportedOutput) -> tuple[Rationals, Rationals]:
        """(scale, offset with the zero point in it) of every element of an output, flat, in the file's order."""
        value = self.network.values[entry.name]
        whole = full(entry.scale, value.shape), full(entry.offset, value.shape)
        zero = np.broadcast_to(entry.zero_point, value.shape).reshape(-1)[entry.order]
        scale, offset = (part.reshape(-1)[entry.order] for part in whole)
        return scale, offset - scale * zero


ORIGIN = "origin"
"""Key of the network's metadata under which :func:`origin` travels with it into every export and project."""


def origin(network: IntegerNetwork, inputs: Sequence[ImportedInput], outputs: Sequence[ImportedOutput]) -> str:
    """Where the file's inputs and outputs are in the network, as JSON: what its integers need beside scales.

    ::

        {"inputs": [{"name", "source", "shape", "order"}],
         "outputs": [{"name", "source", "shape", "order", "scale", "offset", "left"}], "note": str}

    ``shape`` is the file's. ``order`` says how elements go from the file's input into the network's, and from the
    network's output into the file's: null where they keep their order, ``{"transpose": axes}``, else
    ``{"places": [...]}`` (element i is the other's ``places[i]``, flat). ``offset`` is to be added to
    ``scale * (integer - zero_point)``; both broadcast over the network's value. ``left`` is the function of the file
    that follows its integers and was left out.
    """

    def numbers(rationals: Rationals) -> Any:
        return np.array([float(value) for value in rationals.ravel()]).reshape(rationals.shape).tolist()

    return json.dumps(
        {
            "inputs": [
                {
                    "name": entry.name,
                    "source": entry.source,
                    "shape": list(entry.shape),
                    "order": _order(entry.order, entry.shape),
                }
                for entry in inputs
            ],
            "outputs": [
                {
                    "name": entry.name,
                    "source": entry.source,
                    "shape": list(entry.shape),
                    "order": _order(entry.order, network.values[entry.name].shape),
                    "scale": numbers(entry.scale),
                    "offset": numbers(entry.offset),
                    "left": entry.left,
                }
                for entry in outputs
            ],
            "note": (
                "real output = scale * (integer - zero_point) + offset, before the function named by 'left'. order "
                "makes the network's input of the file's and the file's output of the network's, batch excluded: "
                "{'transpose': axes} is numpy.transpose(x, axes), {'places': p} is x.ravel()[p], null keeps the order."
            ),
        }
    )


def _order(places: IntArray, shape: tuple[int, ...]) -> dict[str, list[int]] | None:
    """How ``places`` takes elements out of an array of that shape: not at all, as a transpose, or place by place."""
    natural = np.arange(places.size)
    if np.array_equal(places, natural):
        return None
    if places.size == int(np.prod(shape)) and len(shape) <= 4:
        for axes in itertools.permutations(range(len(shape))):
            if np.array_equal(natural.reshape(shape).transpose(axes).ravel(), places):
                return {"transpose": list(axes)}
    return {"places": places.tolist()}
