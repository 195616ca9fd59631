"""The allocation problem: what may be chosen, what it costs, and the normal form that both solvers read.

The maths. Every choice of a width is a *slot* ``t`` with allowed widths ``D_t``; layers of a tied group share one slot,
and an activation tied to a weight (``a = w + k``) is that weight's slot with an offset. The objective and every budget
then are sums over slots and over pairs of slots::

    minimize    sum_t f_t(d_t)
    subject to  constant + sum_t u_t(d_t) + sum_{s<t} p_st(d_s, d_t) <= limit      for each budget

where the pairs come from layers: a layer costs by its weights' width and by the width of its *input*, that is of its
producer's output. Slots are numbered in plan order (inputs, then each layer's weights and output), so that a
lexicographic comparison of slots is one of plans.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hawq_flow.plan import (
    MAX_BITS,
    MIN_BITS,
    BitPlan,
    LayerBits,
    LayerShape,
    bops,
    layer_bops,
    mean_weight_bits,
    weight_bits,
    widths_read,
)

FloatArray = NDArray[np.float64]
Widths = int | Sequence[int]
"""Allowed widths in bits: one (fixed), or several to choose from."""
CostTable = Mapping[str, Mapping[tuple[int, int], float]]
"""A budget's cost by layer: {layer: {(weight width, width of the layer's input): cost}}."""

BUILT_IN_BUDGETS = ("bops", "weight_bits", "mean_bits")
LIMIT_TOLERANCE = 1e-9
"""Relative excess over a limit that still counts as rounding of float sums (BOPs contain n * m * log2 n)."""


@dataclass(frozen=True)
class Term:
    """One tensor's share of the objective: ``trace / size * errors[bits]`` (HAWQ-v2's omega, arXiv:1911.03852).

    Attributes
    ----------
    size:
        Elements of the tensor: weights of a layer, or elements of an activation per sample.
    trace:
        Hessian trace of the loss in the tensor, >= 0 (per sample for an activation).
    errors:
        Squared quantization error ``||Q_b(t) - t||^2`` by width ``b`` (for an activation, its mean over samples), >= 0.
    """

    size: int
    trace: float
    errors: Mapping[int, float]

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"term: size {self.size}; expected at least 1")
        if not (math.isfinite(self.trace) and self.trace >= 0):
            raise ValueError(
                f"term: trace {self.trace!r}; expected finite and >= 0 (a negative one would reward "
                f"errors: take max(trace, 0), or measure again at a minimum of the loss)"
            )
        for bits, error in self.errors.items():
            if not (math.isfinite(error) and error >= 0):
                raise ValueError(f"term: error {error!r} at {bits} bits; expected finite and >= 0")

    def cost(self, bits: int) -> float:
        """The loss this tensor is expected to add at ``bits``, up to a factor of 1/2."""
        return self.trace / self.size * self.errors[bits]


@dataclass(frozen=True)
class Terms:
    """The objective: a :class:`Term` for the weights of every layer, and for activations by name (input or layer).

    Every layer needs one, and every activation whose width is free; an activation that is fixed or tied may have one.
    """

    weights: Mapping[str, Term]
    activations: Mapping[str, Term] = field(default_factory=dict)


@dataclass(frozen=True)
class AsWeight:
    """An activation as wide as a layer's weights plus ``offset`` bits: its own layer's, or those of ``layer``."""

    offset: int = 0
    layer: str | None = None


@dataclass(frozen=True)
class Choices:
    """What may be chosen.

    Attributes
    ----------
    weights:
        Allowed widths of every layer's weights; one width is a fixed layer.
    activations:
        Allowed widths of every network input and every layer's output, or :class:`AsWeight`.
    weight_groups, activation_groups:
        Groups of names that must share one width, taken from the widths allowed to all members.
    """

    weights: Mapping[str, Widths]
    activations: Mapping[str, Widths | AsWeight]
    weight_groups: Sequence[Sequence[str]] = ()
    activation_groups: Sequence[Sequence[str]] = ()

    @classmethod
    def uniform(
        cls,
        shapes: Sequence[LayerShape],
        weights: Widths,
        activations: Widths | AsWeight,
        *,
        input_bits: Widths | AsWeight = 16,
        output_bits: Widths | AsWeight = 16,
    ) -> Choices:
        """The same choices for every layer; ``input_bits`` for inputs, ``output_bits`` for layers nobody reads."""
        layers = [shape.name for shape in shapes]
        read = widths_read(shapes)
        return cls(
            dict.fromkeys(layers, weights),
            {name: input_bits for name in dict.fromkeys(s.source for s in shapes) if name not in layers}
            | {name: activations if name in read else output_bits for name in layers},
        )

    def fix(self, weights: Mapping[str, int] | None = None, activations: Mapping[str, int] | None = None) -> Choices:
        """These choices with some weights' or activations' widths fixed."""
        return replace(
            self, weights={**self.weights, **(weights or {})}, activations={**self.activations, **(activations or {})}
        )


@dataclass(frozen=True)
class Place:
    """Where a tensor's width stands: slot ``slot``'s width plus ``offset``."""

    slot: int
    offset: int = 0


@dataclass(frozen=True)
class Budget:
    """One budget in normal form. Costs are multiples of ``unit`` above ``constant``; ``integral`` says they are
    integers.

    ``unary[t][i]`` is the cost of slot ``t``'s ``i``-th width, ``pairs[s, t][i, j]`` that of two slots' (s < t); all
    are >= 0, because each layer's smallest cost is moved into ``constant``. A user's cost is the total over ``scale``.
    """

    name: str
    limit: float
    constant: float
    unit: float
    integral: bool
    unary: tuple[FloatArray, ...]
    pairs: Mapping[tuple[int, int], FloatArray]
    scale: float = 1.0

    @property
    def reduced_limit(self) -> float:
        """The limit on the reduced costs: an integer when they are, infinite when there is none."""
        if math.isinf(self.limit):
            return math.inf
        room = (self.limit * (1 + LIMIT_TOLERANCE) * self.scale - self.constant) / self.unit
        return float(math.floor(room)) if self.integral else room

    def reduced(self, choice: Sequence[int]) -> float:
        """Reduced cost of one width index for each slot."""
        return float(
            sum(costs[choice[t]] for t, costs in enumerate(self.unary))
            + sum(costs[choice[s], choice[t]] for (s, t), costs in self.pairs.items())
        )

    def total(self, reduced: float) -> float:
        """The cost, in the user's units, of a reduced cost."""
        return (self.constant + self.unit * reduced) / self.scale


@dataclass(frozen=True)
class Problem:
    """The whole normal form: see the module's docstring. Build with :func:`build`."""

    shapes: tuple[LayerShape, ...]
    terms: Terms
    widths: tuple[tuple[int, ...], ...]
    labels: tuple[str, ...]
    weight_places: Mapping[str, Place]
    activation_places: Mapping[str, Place]
    objective: tuple[FloatArray, ...]
    budgets: tuple[Budget, ...]
    tables: Mapping[str, CostTable]
    zero_fraction: Mapping[str, float]

    def bits(self, place: Place, choice: Sequence[int]) -> int:
        """The width at ``place`` when ``choice`` gives every slot's index."""
        return self.widths[place.slot][choice[place.slot]] + place.offset

    def value(self, choice: Sequence[int]) -> float:
        """The objective of ``choice``, summed exactly, so that the order of slots does not show in the last digit."""
        return math.fsum(costs[choice[t]] for t, costs in enumerate(self.objective))

    def plan(self, choice: Sequence[int]) -> BitPlan:
        """The bit plan of ``choice``."""
        layers = {shape.name for shape in self.shapes}
        activations = {name: self.bits(place, choice) for name, place in self.activation_places.items()}
        return BitPlan.of(
            {name: bits for name, bits in activations.items() if name not in layers},
            {
                name: LayerBits(self.bits(place, choice), activations[name])
                for name, place in self.weight_places.items()
            },
        )

    def used(self, budget: str, plan: BitPlan) -> float:
        """What ``plan`` uses of the budget called ``budget``."""
        if budget == "bops":
            return bops(plan, self.shapes, self.zero_fraction)
        if budget == "weight_bits":
            return float(weight_bits(plan, self.shapes))
        if budget == "mean_bits":
            return mean_weight_bits(plan, self.shapes)
        return used(plan, self.shapes, self.tables[budget])


def used(plan: BitPlan, shapes: Sequence[LayerShape], table: CostTable) -> float:
    """What a plan of one width a tensor uses by a table of costs {layer: {(weight width, input width): cost}}."""
    return math.fsum(table[s.name][_width(plan[s.name].weight), _width(plan.source_bits(s.source))] for s in shapes)


def _width(bits: Any) -> int:
    assert isinstance(bits, int)
    return bits


def _widths(widths: Widths, where: str) -> tuple[int, ...]:
    values = (widths,) if isinstance(widths, int) else tuple(widths)
    for value in values:
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not MIN_BITS <= value <= MAX_BITS:
            raise ValueError(f"{where}: width {value!r}; expected integers from {MIN_BITS} to {MAX_BITS}")
    if not values:
        raise ValueError(f"{where}: no width is allowed; give at least one")
    return tuple(sorted({int(value) for value in values}))


def _same_names(found: Iterable[str], expected: Iterable[str], what: str) -> None:
    missing, unknown = sorted(set(expected) - set(found)), sorted(set(found) - set(expected))
    if missing or unknown:
        raise ValueError(
            f"allocation: {what}: missing {', '.join(missing) or 'none'}; unknown "
            f"{', '.join(unknown) or 'none'}; name each exactly once"
        )


class _Slots:
    """Gathers slots in plan order."""

    def __init__(self, shapes: Sequence[LayerShape], choices: Choices) -> None:
        layers = [shape.name for shape in shapes]
        inputs = [name for name in dict.fromkeys(shape.source for shape in shapes) if name not in layers]
        _same_names(choices.weights, layers, "widths of weights (one entry a layer)")
        _same_names(
            choices.activations, [*inputs, *layers], "widths of activations (one entry a network input and a layer)"
        )
        self.widths: list[tuple[int, ...]] = []
        self.labels: list[str] = []
        self.weights: dict[str, Place] = {}
        self.activations: dict[str, Place] = {}
        self._choices = choices
        self._groups = {
            "weight": _groups(choices.weight_groups, layers, "weight"),
            "activation": _groups(choices.activation_groups, [*inputs, *layers], "activation"),
        }
        for name in inputs:
            self._activation(name)
        for name in layers:
            self._weight(name)
            self._activation(name)
        # Ties open slots ahead of their turn; names keep the plan's order.
        self.weights = {name: self.weights[name] for name in layers}
        self.activations = {name: self.activations[name] for name in (*inputs, *layers)}

    def _weight(self, name: str) -> Place:
        if name not in self.weights:
            members = self._groups["weight"].get(name, (name,))
            place = self._open([(member, self._choices.weights[member]) for member in members], "weights")
            self.weights.update(dict.fromkeys(members, place))
        return self.weights[name]

    def _activation(self, name: str) -> Place:
        if name in self.activations:
            return self.activations[name]
        choice = self._choices.activations[name]
        if isinstance(choice, AsWeight):
            layer = choice.layer or name
            if layer not in self._choices.weights:
                raise ValueError(
                    f"allocation: activation {name!r} is tied to the weights of {layer!r}, which is no "
                    f"layer; expected one of {', '.join(self._choices.weights)}"
                )
            if name in self._groups["activation"]:
                raise ValueError(
                    f"allocation: activation {name!r} is both tied to weights and in an activation group; choose one"
                )
            weight = self._weight(layer)
            place = Place(weight.slot, weight.offset + choice.offset)
            _widths(
                [width + place.offset for width in self.widths[place.slot]],
                f"allocation: activation {name!r}, tied to the weights of {layer!r} {choice.offset:+d}",
            )
            self.activations[name] = place
            return place
        members = self._groups["activation"].get(name, (name,))
        allowed: list[tuple[str, Widths]] = []
        for member in members:
            widths = self._choices.activations[member]
            if isinstance(widths, AsWeight):
                raise ValueError(
                    f"allocation: activation {member!r} is both tied to weights and in an activation group; choose one"
                )
            allowed.append((member, widths))
        self.activations.update(dict.fromkeys(members, self._open(allowed, "activation")))
        return self.activations[name]

    def _open(self, members: Sequence[tuple[str, Widths]], kind: str) -> Place:
        sets = [_widths(widths, f"allocation: {kind} of {name!r}") for name, widths in members]
        common = sorted(set(sets[0]).intersection(*sets[1:]))
        names = "+".join(name for name, _ in members)
        if not common:
            raise ValueError(f"allocation: the tied {kind} of {names} have no width in common; allow them at least one")
        self.widths.append(tuple(common))
        self.labels.append(f"{kind} of {names}")
        return Place(len(self.widths) - 1)


def _groups(groups: Sequence[Sequence[str]], known: Sequence[str], kind: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for group in groups:
        if isinstance(group, str):
            raise ValueError(f"allocation: {kind} group {group!r} is a string; expected a sequence of names")
        for name in group:
            if name not in known:
                raise ValueError(f"allocation: {kind} group names {name!r}; expected one of {', '.join(known)}")
            if name in found:
                raise ValueError(f"allocation: {name!r} stands in two {kind} groups; merge them")
            found[name] = tuple(group)
    return found


def build(
    shapes: Sequence[LayerShape],
    terms: Terms,
    choices: Choices,
    budgets: Mapping[str, float],
    tables: Mapping[str, CostTable] | None = None,
    zero_fraction: Mapping[str, float] | None = None,
) -> Problem:
    """Bring an allocation problem into normal form; see :func:`hawq_flow.allocate.allocate` for the arguments.

    Raises
    ------
    ValueError
        On names that do not fit the layers, missing terms, errors or table entries, unknown budgets or limits <= 0.
    """
    shapes, tables, zeros = tuple(shapes), dict(tables or {}), dict(zero_fraction or {})
    names = [shape.name for shape in shapes]
    if not shapes or len(set(names)) != len(names):
        raise ValueError(f"allocation: layers {', '.join(names) or 'none'}; expected at least one, each named once")
    slots = _Slots(shapes, choices)
    _same_names(terms.weights, names, "terms of weights")
    if unknown := sorted(set(terms.activations) - set(slots.activations)):
        raise ValueError(
            f"allocation: terms of activations name {', '.join(unknown)}; expected some of "
            f"{', '.join(slots.activations)}"
        )
    objective = [np.zeros(len(widths)) for widths in slots.widths]
    for name, place in slots.weights.items():
        objective[place.slot] += _costs(
            terms.weights[name], slots.widths[place.slot], place.offset, f"weights of {name!r}"
        )
    for name, place in slots.activations.items():
        if name in terms.activations:
            objective[place.slot] += _costs(
                terms.activations[name], slots.widths[place.slot], place.offset, f"activation {name!r}"
            )
        elif len(slots.widths[place.slot]) > 1 and not isinstance(choices.activations[name], AsWeight):
            raise ValueError(
                f"allocation: activation {name!r} may choose among {len(slots.widths[place.slot])} "
                f"widths but has no term, so nothing would keep it from the narrowest; give its term, or "
                f"fix or tie its width"
            )
    if clash := sorted(set(tables) & set(BUILT_IN_BUDGETS)):
        raise ValueError(f"allocation: tables named {', '.join(clash)}, which are built in; name them otherwise")
    normal = []
    for name, limit in budgets.items():
        if name not in BUILT_IN_BUDGETS and name not in tables:
            raise ValueError(
                f"allocation: unknown budget {name!r}; expected one of "
                f"{', '.join([*BUILT_IN_BUDGETS, *tables])} (give others' costs in tables)"
            )
        if not limit > 0:
            raise ValueError(f"allocation: budget {name!r} has limit {limit!r}; expected a positive number")
        normal.append(_budget(name, float(limit), shapes, slots, tables, zeros))
    return Problem(
        shapes,
        terms,
        tuple(slots.widths),
        tuple(slots.labels),
        slots.weights,
        slots.activations,
        tuple(objective),
        tuple(normal),
        tables,
        zeros,
    )


def _costs(term: Term, widths: tuple[int, ...], offset: int, where: str) -> FloatArray:
    if missing := [width + offset for width in widths if width + offset not in term.errors]:
        raise ValueError(
            f"allocation: {where}: no quantization error for {', '.join(map(str, missing))} bits, which "
            f"may be chosen; it has those for {', '.join(map(str, sorted(term.errors)))}"
        )
    return np.array([term.cost(width + offset) for width in widths])


def _budget(
    name: str,
    limit: float,
    shapes: Sequence[LayerShape],
    slots: _Slots,
    tables: Mapping[str, CostTable],
    zeros: Mapping[str, float],
) -> Budget:
    """Tabulate one budget over slots, each layer's smallest cost moved to the constant, integers recognized."""
    constant, scale = 0.0, 1.0
    if name == "mean_bits":
        scale = float(sum(shape.weights for shape in shapes))
    layer_tables: list[tuple[Place, Place, FloatArray]] = []
    for shape in shapes:
        weight, source = slots.weights[shape.name], slots.activations[shape.source]
        costs = np.array(
            [
                [
                    _cost(name, shape, w + weight.offset, a + source.offset, tables, zeros)
                    for w in slots.widths[weight.slot]
                ]
                for a in slots.widths[source.slot]
            ]
        )
        if weight.slot == source.slot:  # only equal indices can occur together
            costs = np.diagonal(costs).copy()
        constant += float(costs.min())
        layer_tables.append((weight, source, costs - costs.min()))
    flat = np.concatenate([costs.ravel() for _, _, costs in layer_tables])
    rounded = np.rint(flat)
    # Differences within a layer of BOPs or bits are integers; their float forms carry the rounding of n * m * log2 n.
    integral = bool((np.abs(flat - rounded) <= 1e-6).all()) and float(rounded.sum()) < 2.0**52
    divisor = int(np.gcd.reduce(rounded.astype(np.int64))) if integral else 1
    unit = float(divisor or 1)
    unary = [np.zeros(len(widths)) for widths in slots.widths]
    pairs: dict[tuple[int, int], FloatArray] = {}
    for weight, source, costs in layer_tables:
        table = (np.rint(costs) if integral else costs) / unit
        if table.ndim == 1:
            unary[weight.slot] += table
        elif np.ptp(table, axis=1).max() == 0:  # no choice of weights, or none that shows
            unary[source.slot] += table[:, 0]
        elif np.ptp(table, axis=0).max() == 0:
            unary[weight.slot] += table[0]
        else:
            key = (min(weight.slot, source.slot), max(weight.slot, source.slot))
            pairs[key] = pairs.get(key, 0.0) + (table if source.slot < weight.slot else table.T)
    return Budget(name, limit, constant, unit, integral, tuple(unary), pairs, scale)


def _cost(
    name: str, shape: LayerShape, weight: int, source: int, tables: Mapping[str, CostTable], zeros: Mapping[str, float]
) -> float:
    if name == "bops":
        return layer_bops(shape, weight, source, zero_fraction=zeros.get(shape.name, 0.0))
    if name in BUILT_IN_BUDGETS:
        return float(shape.weights * weight)
    entry = tables[name].get(shape.name, {}).get((weight, source))
    if entry is None or not math.isfinite(entry):
        raise ValueError(
            f"allocation: table {name!r}, layer {shape.name!r}: cost {entry!r} for a weight of {weight} "
            f"and an input of {source} bits, which may be chosen together; expected a finite number"
        )
    return float(entry)
