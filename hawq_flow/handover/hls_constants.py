"""What a C++ project of hls4ml has compiled in, beside what the network says it must be: constants and types.

Every array of ``firmware/weights`` belongs to one layer and one role (weight, bias, scale, table), read from the calls
in the top function. Its golden values come from the network, through :func:`to_hls.design`; the project's text only
says in which order they stand: that of the design, or with the outputs first (hls4ml's Resource strategy). Each element
gets a name in the network's own indices, so that a changed one can be told to whoever knows the network and not hls4ml.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hawq_flow.network import Conv, Dense, IntegerNetwork, Op, SumPool
from hawq_flow.numeric import IntArray
from hawq_flow.to_hls import Design, HlsConfig, Layout, ProjectError, design

ROLES = {"w": "weight", "b": "bias", "s": "scale", "table": "table"}
"""The names hls4ml gives to arrays begin so, and end with a number."""
_ARRAY = re.compile(r"^(\w+) (\w+)\[(\d+)\] = \{([^}]*)\};", re.MULTILINE)
_CALL = re.compile(r"^\s*nnet::.*\((.*)\); // (\S+)$", re.MULTILINE)
_TYPEDEF = re.compile(r"^\s*typedef (.+) (\w+);$", re.MULTILINE)
_STRUCT = re.compile(r"^struct (\w+)(.*?)^\};$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Constants:
    """One array of the project.

    Attributes
    ----------
    name, type, header:
        The array, its element type (a typedef), and its file below ``firmware``.
    values:
        (n,), what it must hold, in its own order; exact, for they are dyadic.
    places:
        What each element is in the network: ``"fc1 weight: output 3, input 7"``.
    """

    name: str
    type: str
    header: str
    values: NDArray[np.float64]
    places: tuple[str, ...]

    @property
    def lines(self) -> list[str]:
        """Array, element, value and place of every element, as text."""
        return [
            f"{self.name} {i} {number(value)} {place}"
            for i, (value, place) in enumerate(zip(self.values.tolist(), self.places, strict=True))
        ]


def number(value: float) -> str:
    """A dyadic number as decimal text that reads back as itself."""
    return str(int(value)) if value == int(value) else repr(value)


def constants(project: Path, network: IntegerNetwork, manifest: Mapping[str, Any]) -> list[Constants]:
    """Every array that a project has compiled in, with the network's values.

    Raises
    ------
    ProjectError
        Naming the array and the element, if the project holds something else than the network, an array that no layer
        uses, or lacks one.
    """
    plan = design(network, HlsConfig(**manifest["config"], project=manifest["top"]))
    layers, owners = {layer.name: layer for layer in plan.layers}, _owners(network, plan)
    firmware = project / "firmware"
    users = _users((firmware / f"{manifest['top']}.cpp").read_text())
    headers = re.findall(r'^#include "(weights/\w+\.h)"', (firmware / "parameters.h").read_text(), re.MULTILINE)
    result = []
    for header in headers:
        found = _ARRAY.findall((firmware / header).read_text())
        if len(found) != 1:
            raise ProjectError(f"{header}: {len(found)} arrays; hls4ml 1.3.0 writes one: make the project again")
        kind, name, size, text = found[0]
        role = ROLES.get(name.rstrip("0123456789"), "")
        layer = layers.get(users.get(name, ""))
        if layer is None or role not in layer.constants:
            raise ProjectError(
                f"{header}: no layer of the network has {name} as its {role or 'constants'}; found the users {users}"
            )
        values = np.array(text.replace(",", " ").split(), dtype=np.float64)
        if values.size != int(size):
            raise ProjectError(f"{header}: {values.size} values; it declares {size}")
        strategy = manifest["layers"][layer.name]["strategy"]
        order = _order(header, values, layer.constants[role], strategy)
        places = _places(network, plan, owners[layer.name], role, layer.constants[role].shape, layer.name)
        expected = layer.constants[role].ravel()[order]
        result.append(Constants(name, kind, header, expected, tuple(places[i] for i in order)))
    missing = set(users) - {array.name for array in result}
    if missing:
        raise ProjectError(f"{', '.join(sorted(missing))}: used by a layer, but parameters.h includes no such array")
    return result


def _users(text: str) -> dict[str, str]:
    """Which layer reads which array: from the top function's calls and the names that hls4ml writes behind them."""
    array = re.compile(rf"(?:{'|'.join(ROLES)})\d+\Z")
    return {
        name: layer for arguments, layer in _CALL.findall(text) for name in arguments.split(", ") if array.match(name)
    }


def _owners(network: IntegerNetwork, plan: Design) -> dict[str, Op]:
    """The op that each layer was made for: ops make theirs in order, and a value's carrier is the last one made."""
    at = {layer.name: i for i, layer in enumerate(plan.layers)}
    ends = [(at[plan.values[op.name].carrier], op) for op in network.ops]
    return {
        layer.name: next(op for end, op in ends if end >= at[layer.name]) for layer in plan.layers if layer.constants
    }


def _order(header: str, found: NDArray[np.float64], expected: NDArray[np.float64], strategy: str) -> IntArray:
    """(n,): the array's element k is the design's element ``order[k]``; an error if no order explains what is found."""
    indices = np.arange(expected.size).reshape(expected.shape)
    orders = [indices.ravel(), np.moveaxis(indices, -1, 0).ravel()]
    if strategy == "Resource":
        orders.reverse()  # where both fit, this one is meant
    flat = expected.ravel()
    if found.shape != flat.shape:
        raise ProjectError(f"{header}: {found.size} values; the network has {flat.size}: make the project again")
    for order in orders:
        if (found == flat[order]).all():
            return np.asarray(order, dtype=np.int64)
    best = min(orders, key=lambda order: int((found != flat[order]).sum()))
    k = int(np.flatnonzero(found != flat[best])[0])
    raise ProjectError(
        f"{header}: element {k} is {number(float(found[k]))}, the network's is {number(float(flat[best][k]))}: the "
        "project was changed after it was written; make it again"
    )


def _places(network: IntegerNetwork, plan: Design, op: Op, role: str, shape: tuple[int, ...], layer: str) -> list[str]:
    """What the elements of a design's constant are in the network, in the design's order."""
    value = network.values[op.name]
    layout, size = plan.values[op.name].layout, int(np.prod(shape))
    head = f"{op.name} {'multiplier' if role == 'scale' else role}"
    if role == "table":
        bits = int(math.log2(size))
        signed = bool(network.values[op.inputs[0]].low.min() < 0)
        return [f"{head}: input {i - size if signed and i >= size >> 1 else i}" for i in range(1 << bits)]
    if role == "weight":
        source = plan.values[op.inputs[0]].layout
        return [f"{head}: {_weight(op, index, layout, source)}" for index in np.ndindex(shape)]
    if f"{layer}" != plan.values[op.name].carrier:
        head += f" ({layer})"
    channels = value.shape[0] if value.shape else 1
    if size == channels and len(value.shape) > 1:
        return [f"{head}: channel {i}" for i in range(size)]
    if size == layout.indices.size:
        return [f"{head}: {_element(value.shape, int(i))}" for i in layout.indices]
    return [f"{head}: element {i} of {layer}" for i in range(size)]


def _weight(op: Op, index: Sequence[int], layout: Layout, source: Layout) -> str:
    if isinstance(op, Dense):
        return f"output {layout.indices[index[1]]}, input {source.indices[index[0]]}"
    assert isinstance(op, Conv | SumPool)
    *kernel, channel, output = index
    at = f"kernel ({', '.join(map(str, kernel))})"
    if isinstance(op, SumPool) or op.groups > 1:
        return f"channel {output}, {at}"
    return f"output {output}, input {channel}, {at}"


def _element(shape: tuple[int, ...], element: int) -> str:
    """An element of the network's value by its index."""
    if len(shape) < 2:
        return f"element {element}"
    return f"element ({', '.join(str(int(i)) for i in np.unravel_index(element, shape))})"


def typedefs(project: Path) -> dict[str, str]:
    """Every type that ``firmware/defines.h`` names, written out in one form: ``ap_fixed<16,16>``, no blanks."""
    text = (project / "firmware" / "defines.h").read_text()
    return {name: canonical(kind) for kind, name in _TYPEDEF.findall(text)}


def members(project: Path) -> dict[str, str]:
    """Every type that a struct of ``firmware/parameters.h`` names, ``config2::accum_t``, written out likewise."""
    named, structs = typedefs(project), dict(_STRUCT.findall((project / "firmware" / "parameters.h").read_text()))
    return {
        f"{struct}::{name}": named.get(kind, canonical(kind))
        for struct, body in structs.items()
        for kind, name in _TYPEDEF.findall(body)
        if kind not in structs
    }


def layer_includes(project: Path) -> list[str]:
    """The headers of hls4ml that ``firmware/parameters.h`` includes."""
    text = (project / "firmware" / "parameters.h").read_text()
    return re.findall(r'^#include "(nnet_utils/\w+\.h)"', text, re.MULTILINE)


def canonical(kind: str) -> str:
    """A C++ type without blanks, products of sizes worked out, and modes left out where they are the default."""
    kind = re.sub(r"\s+", "", kind)
    kind = re.sub(r"\b\d+(?:\*\d+)+", lambda product: str(math.prod(map(int, product[0].split("*")))), kind)
    return re.sub(r",A[PC]_TRN,A[PC]_WRAP(?:,0)?>", ">", kind)
