"""Bit plans and the cost of a plan: which integer widths a network uses, and what they cost.

A :class:`BitPlan` maps every network input to the width of its integers and every layer to a :class:`LayerBits`:
the width of its weights and the width of its *output* activation. It is a value: hashable, comparable, storable.

Bit operations (BOPs), the cost of the co-design literature (Baskin et al., "UNIQ", arXiv:1804.10969, in the
form used for jet tagging, arXiv:2304.06745): a layer with ``m`` outputs, each a dot product of ``n`` terms,
evaluated at ``k`` positions (1 for a dense layer), with weights of ``b_w`` bits, inputs of ``b_a`` bits and a
fraction ``p`` of zero weights costs::

    BOPs = k * n * m * ((1 - p) * b_a * b_w + b_a + b_w + log2 n)

``b_a`` is the width of what *enters* the layer, that is of its producer's output. :func:`bops` is the only place
where this formula stands. Per-channel widths enter by their mean, which is exact: the sum over output channels
``o`` and inputs ``i`` of ``b_w[o] * b_a[i]`` equals ``n * m * mean(b_w) * mean(b_a)``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hawq_flow.document import exact_keys, listed, table, version

Bits = int | tuple[int, ...]
"""A width in bits: one for the whole tensor, or one for each (output) channel."""

MIN_BITS = 1
MAX_BITS = 24
PLAN_VERSION = 1


def _check_bits(bits: object, where: str) -> Bits:
    """Return ``bits`` as an int or a tuple of ints in MIN_BITS..MAX_BITS, or raise ``ValueError`` naming ``where``."""
    values = tuple(bits) if isinstance(bits, (tuple, list)) else (bits,)
    if not values:
        raise ValueError(f"{where}: an empty list of widths; give one integer, or one integer per channel")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int) or not MIN_BITS <= value <= MAX_BITS:
            raise ValueError(f"{where}: width {value!r}; expected an integer from {MIN_BITS} to {MAX_BITS}")
    return values if isinstance(bits, (tuple, list)) else values[0]


def mean_bits(bits: Bits) -> float:
    """Mean width in bits over channels."""
    return float(bits) if isinstance(bits, int) else sum(bits) / len(bits)


def max_bits(bits: Bits) -> int:
    """Largest width in bits over channels."""
    return bits if isinstance(bits, int) else max(bits)


@dataclass(frozen=True)
class LayerShape:
    """What the cost of a layer depends on, beside its widths.

    Attributes
    ----------
    name:
        The layer's name in the float model (``fc1``).
    fan_in:
        ``n``, the terms of one dot product: in_features, or (C_in / groups) * k_h * k_w.
    outputs:
        ``m``, the output features or channels.
    source:
        The layer or network input whose width the integers entering this layer have: its producer, or, behind a sum,
        a concatenation, a pool or a table, the last layer before that.
    positions:
        ``k``, the output positions of a convolution; 1 for a dense layer.
    joined:
        The layers with whose output this one's is added or concatenated, when the result takes their width; none for
        most.
    """

    name: str
    fan_in: int
    outputs: int
    source: str
    positions: int = 1
    joined: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for field in ("fan_in", "outputs", "positions"):
            if getattr(self, field) < 1:
                raise ValueError(f"layer {self.name!r}: {field} is {getattr(self, field)}; expected at least 1")

    @property
    def weights(self) -> int:
        """Number of weights, biases excluded."""
        return self.fan_in * self.outputs


def widths_read(shapes: Sequence[LayerShape]) -> set[str]:
    """Layers and inputs whose width enters another layer, or joins one that does: all but the network's outputs."""
    read = {shape.source for shape in shapes}
    while more := {shape.name for shape in shapes if read.intersection(shape.joined)} - read:
        read |= more
    return read


@dataclass(frozen=True)
class LayerBits:
    """Widths of one layer: its weights and its output activation, each one int or a tuple, one per output channel."""

    weight: Bits
    activation: Bits

    def __post_init__(self) -> None:
        object.__setattr__(self, "weight", _check_bits(self.weight, "weight"))
        object.__setattr__(self, "activation", _check_bits(self.activation, "activation"))


@dataclass(frozen=True)
class BitPlan:
    """The widths of a whole network, in layer order. Construct with :meth:`of`; store with :meth:`to_json`."""

    inputs: tuple[tuple[str, Bits], ...]
    layers: tuple[tuple[str, LayerBits], ...]

    def __post_init__(self) -> None:
        for kind, pairs in (("input", self.inputs), ("layer", self.layers)):
            names = [name for name, _ in pairs]
            if not names:
                raise ValueError(f"bit plan: no {kind} named; expected at least one")
            repeated = sorted({name for name in names if names.count(name) > 1})
            if repeated:
                raise ValueError(f"bit plan: {kind} {', '.join(repeated)} named twice; name each once")
        checked = tuple((name, _check_bits(bits, f"bit plan, input {name!r}")) for name, bits in self.inputs)
        object.__setattr__(self, "inputs", checked)

    @classmethod
    def of(cls, inputs: Mapping[str, Bits], layers: Mapping[str, LayerBits]) -> BitPlan:
        """Build a plan from two mappings."""
        return cls(tuple(inputs.items()), tuple(layers.items()))

    @classmethod
    def homogeneous(
        cls, shapes: Sequence[LayerShape], weight: int, activation: int, *, input_bits: int = 16, output_bits: int = 16
    ) -> BitPlan:
        """The plan with one weight and one activation width throughout.

        ``input_bits`` is the width of every network input; ``output_bits`` that of layers no other layer reads
        (the logits: their width enters no dot product, so no BOPs, but decides ties in the argmax).
        """
        layer_names = {shape.name for shape in shapes}
        read = widths_read(shapes)
        inputs = {shape.source: input_bits for shape in shapes if shape.source not in layer_names}
        layers = {shape.name: LayerBits(weight, activation if shape.name in read else output_bits) for shape in shapes}
        return cls.of(inputs, layers)

    def input_bits(self, name: str) -> Bits:
        """Width of network input ``name``; ``KeyError`` when there is none."""
        return dict(self.inputs)[name]

    def __getitem__(self, layer: str) -> LayerBits:
        for name, bits in self.layers:
            if name == layer:
                return bits
        raise KeyError(f"bit plan: no layer {layer!r}; it has {', '.join(name for name, _ in self.layers)}")

    def source_bits(self, name: str) -> Bits:
        """Width of the value called ``name``: a network input's, or a layer's output activation's."""
        for input_name, bits in self.inputs:
            if input_name == name:
                return bits
        return self[name].activation

    def check(self, shapes: Sequence[LayerShape]) -> None:
        """Raise ``ValueError`` listing both sides unless the plan names exactly the layers and inputs of ``shapes``,
        with per-channel tuples as long as the layers have outputs."""
        layers = {shape.name: shape for shape in shapes}
        inputs = {shape.source for shape in shapes if shape.source not in layers}
        for kind, planned, found in (
            ("layers", {n for n, _ in self.layers}, set(layers)),
            ("inputs", {n for n, _ in self.inputs}, inputs),
        ):
            if planned != found:
                raise ValueError(
                    f"bit plan does not fit the model: the plan's {kind} are {listed(planned)}; the model's are "
                    f"{listed(found)}; only in the plan: {listed(planned - found)}; only in the model: "
                    f"{listed(found - planned)}. Name every layer and input of the model once."
                )
        for name, bits in self.layers:
            for field in ("weight", "activation"):
                value = getattr(bits, field)
                if isinstance(value, tuple) and len(value) != layers[name].outputs:
                    raise ValueError(
                        f"bit plan, layer {name!r}: {len(value)} {field} widths; expected one, or one for "
                        f"each of its {layers[name].outputs} output channels"
                    )

    def to_dict(self) -> dict[str, Any]:
        """The stable JSON form, version 1: version, inputs {name: bits}, layers {name: {weight, activation}}."""

        def plain(bits: Bits) -> int | list[int]:
            return bits if isinstance(bits, int) else list(bits)

        return {
            "version": PLAN_VERSION,
            "inputs": {name: plain(bits) for name, bits in self.inputs},
            "layers": {
                name: {"weight": plain(bits.weight), "activation": plain(bits.activation)} for name, bits in self.layers
            },
        }

    def to_json(self) -> str:
        """:meth:`to_dict` as indented JSON text with a final newline."""
        return json.dumps(self.to_dict(), indent=2) + "\n"

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> BitPlan:
        """Read :meth:`to_dict`'s form back; ``ValueError`` on an unknown version or key."""
        exact_keys(data, {"version", "inputs", "layers"}, "plan")
        version(data["version"], PLAN_VERSION, "plan", "Write the plan again")
        for kind in ("inputs", "layers"):
            table(data[kind], f"plan: {kind}")
        layers = {}
        for name, entry in data["layers"].items():
            exact_keys(entry, {"weight", "activation"}, f"plan, layer {name!r}")
            layers[name] = LayerBits(
                _check_bits(entry["weight"], f"plan, layer {name!r}, weight"),
                _check_bits(entry["activation"], f"plan, layer {name!r}, activation"),
            )
        return cls.of(
            {name: _check_bits(bits, f"plan, input {name!r}") for name, bits in data["inputs"].items()}, layers
        )

    @classmethod
    def from_json(cls, text: str) -> BitPlan:
        """Read :meth:`to_json`'s text back."""
        return cls.from_dict(json.loads(text))


def layer_bops(shape: LayerShape, weight: float, source: float, *, zero_fraction: float = 0.0) -> float:
    """BOPs of one layer: ``weight`` and ``source`` are the mean widths in bits of its weights and of its input."""
    if not 0.0 <= zero_fraction <= 1.0:
        raise ValueError(f"layer {shape.name!r}: zero_fraction {zero_fraction}; expected 0 to 1")
    n = shape.fan_in
    return (
        shape.positions * n * shape.outputs * ((1.0 - zero_fraction) * source * weight + source + weight + math.log2(n))
    )


def bops(plan: BitPlan, shapes: Sequence[LayerShape], zero_fraction: Mapping[str, float] | None = None) -> float:
    """Bit operations of one inference under ``plan``.

    Parameters
    ----------
    zero_fraction:
        Fraction of weights that are zero, by layer (sparse BOPs); None counts every weight, the headline figure.
    """
    plan.check(shapes)
    zeros = zero_fraction or {}
    names = {shape.name for shape in shapes}
    if not names.issuperset(zeros):
        raise ValueError(f"bops: zero_fraction names {listed(set(zeros) - names)}; the layers are {listed(names)}")
    return sum(
        layer_bops(
            shape,
            mean_bits(plan[shape.name].weight),
            mean_bits(plan.source_bits(shape.source)),
            zero_fraction=zeros.get(shape.name, 0.0),
        )
        for shape in shapes
    )


def weight_bits(plan: BitPlan, shapes: Sequence[LayerShape]) -> int:
    """Bits that hold all the weights (biases excluded)."""
    plan.check(shapes)
    total = 0
    for shape in shapes:
        bits = plan[shape.name].weight
        total += shape.weights * bits if isinstance(bits, int) else shape.fan_in * sum(bits)
    return total


def mean_weight_bits(plan: BitPlan, shapes: Sequence[LayerShape]) -> float:
    """Mean width in bits of a weight, over all weights."""
    return weight_bits(plan, shapes) / sum(shape.weights for shape in shapes)
