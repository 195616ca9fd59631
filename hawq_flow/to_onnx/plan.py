"""What carries every value, what every op computes in, and the dialect: all read off the intervals, before any node.

A value travels in a *container*. Inputs,
outputs of the graph, rescaled values and table entries have the narrowest that holds their type; sums are int32 where
the bound on every intermediate stays below 2^31, else int64; what only moves integers keeps its operand's container.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hawq_flow.network import (
    Add,
    Concat,
    Conv,
    Dense,
    InputSpec,
    IntegerNetwork,
    Lookup,
    MaxPool,
    Multiply,
    Op,
    Pad,
    ReduceMax,
    ReduceSum,
    Requantize,
    Reshape,
    Subtract,
    SumPool,
    Upsample,
    Value,
)
from hawq_flow.numeric import IntType, Rounding, significant_bits
from hawq_flow.to_onnx.containers import Dtype, accumulator, container
from hawq_flow.to_onnx.products import LayerPlan, plan_layer
from hawq_flow.to_qonnx import NotExact, RequantizePlan, check, plan_requantize


class Dialect(enum.StrEnum):
    """In which arithmetic a rescale is written: float32, float64, or integers alone."""

    FLOAT32 = "float32"
    FLOAT64 = "float64"
    INTEGER = "integer"


MANTISSA = {Dialect.FLOAT32: 24, Dialect.FLOAT64: 53}
"""Bits of a numerator that a float carries exactly. (int64 carries all that ``network.verify`` lets pass.)"""
OPSETS = {Dialect.FLOAT32: 21, Dialect.FLOAT64: 21, Dialect.INTEGER: 28}
"""ONNX's operator set: QuantizeLinear has 16-bit outputs from 21 on, BitShift signed integers from 28 on."""


@dataclass(frozen=True)
class OpPlan:
    """What the nodes of one op are made from.

    Attributes
    ----------
    op, value:
        The op and what is derived of its result.
    operands, sources:
        What is derived of its operands, and the containers that they come in.
    target:
        The container of the result.
    dialect:
        The arithmetic of rescales; ``INTEGER`` allows no float anywhere.
    layer:
        For a Dense, Conv or SumPool, how it multiplies.
    requantize:
        For a Requantize, how to_qonnx plans it.
    form:
        For a Lookup, another function that writes its nodes; None: a Gather of its table.
    """

    op: Op
    value: Value
    operands: tuple[Value, ...]
    sources: tuple[Dtype, ...]
    target: Dtype
    dialect: Dialect
    layer: LayerPlan | None = None
    requantize: RequantizePlan | None = None
    form: Callable[..., Any] | None = None


@dataclass(frozen=True)
class Plan:
    """The plan of a network.

    Attributes
    ----------
    dialect:
        The arithmetic of rescales.
    bits:
        By Requantize that multiplies, as :func:`rescale_bits` says.
    inputs, ops:
        By name: a specification with its container, and the plan of an op.
    """

    dialect: Dialect
    bits: Mapping[str, int]
    inputs: Mapping[str, tuple[InputSpec, Dtype]]
    ops: Mapping[str, OpPlan]

    @property
    def opset(self) -> int:
        """The version of ONNX's operator set."""
        return OPSETS[self.dialect]

    def container(self, name: str) -> Dtype:
        """What the value ``name`` travels in."""
        return self.inputs[name][1] if name in self.inputs else self.ops[name].target


def rescale_bits(network: IntegerNetwork) -> dict[str, int]:
    """By Requantize that multiplies, the bits of the largest numerator that decides a result, whatever the data.

    A rescale computes ``round(x m 2^-c) + z`` and saturates. With ``m = n 2^k`` (k <= c) a float of p bits holds the
    product exactly while ``|x n| <= 2^p``. Numerators that saturate need not be exact: where ``|x m| 2^-c`` reaches
    ``e = max(|high - z|, |low - z|)`` the result is an end of the type, and it is that in the float, too, because
    its roundings are monotone and e itself is a float. So ``min(|x n|, e 2^(c-k))`` has to fit, with the half
    that HALF_UP adds, the offset added to what was rounded, and m. (Where ``|x n| 2^(k-c)`` is at most 1/4, that half
    needs no bits: every float puts their sum between 0 and 1, and floors it to 0.) All other nodes are integers, or are
    written in floats only where their own bound allows it.
    """
    values = network.values
    return {
        op.name: _numerator_bits(op, values[op.input])
        for op in network.ops
        if isinstance(op, Requantize) and not plan_requantize(op, values).identity
    }


def _numerator_bits(op: Requantize, x: Value) -> int:
    rank = len(x.shape)
    m = np.abs(op.multiplier)
    power = np.minimum(np.where(m == 0, 1, m & -m), np.int64(1) << op.shift)
    unit = (np.int64(1) << op.shift) // power
    reach = np.maximum(np.abs(x.low), np.abs(x.high)) * (m // power)
    edge = np.maximum(np.abs(op.type.low(rank) - op.offset), np.abs(op.type.high(rank) - op.offset))
    largest = np.minimum(reach, np.minimum(edge, reach // unit + 1) * unit)  # the inner one only keeps it in int64
    if op.rounding is Rounding.HALF_UP:
        halved = np.where(unit > 1, largest + unit // 2, 2 * largest + 1)
        largest = np.where((unit > 1) & (reach <= unit // 4), largest, halved)
    after = int((largest // unit + np.abs(op.offset)).max()) + 1
    return max(int(largest.max()).bit_length(), after.bit_length(), int(significant_bits(m).max()))


def choose(network: IntegerNetwork) -> Dialect:
    """The first of float32, float64 and integer in which every rescale is proven exact."""
    worst = max(rescale_bits(network).values(), default=0)
    return next((dialect for dialect, bits in MANTISSA.items() if worst <= bits), Dialect.INTEGER)


def require(network: IntegerNetwork, dialect: Dialect) -> dict[str, int]:
    """:func:`rescale_bits`, or ``NotExact`` that names every rescale which ``dialect`` could round wrongly."""
    bits = rescale_bits(network)
    limit = MANTISSA.get(dialect, 64)
    beyond = [f"{name} needs {needed} bits" for name, needed in bits.items() if needed > limit]
    if beyond:
        raise NotExact(
            f"dialect {dialect.value!r} holds numerators of {limit} bits, and {', '.join(beyond)}. Use dialect "
            f"{choose(network).value!r}, or multipliers or sums of fewer bits"
        )
    return bits


def plan_network(
    network: IntegerNetwork, dialect: Dialect, forms: Mapping[str, Callable[..., Any]] | None = None
) -> Plan:
    """The plan of a network in a dialect.

    Parameters
    ----------
    forms:
        By Lookup, a function that writes its nodes in place of a Gather: called as ``form(nodes, plan, x)``.

    Raises
    ------
    NotExact
        If a rescale or a layer's sums cannot be exact in the dialect, or ``to_qonnx.check`` refuses the network.
    ValueError
        If ``forms`` names what is no Lookup.
    """
    values = check(network)
    bits = require(network, dialect)
    forms = forms or {}
    tables = [op.name for op in network.ops if isinstance(op, Lookup)]
    unknown = [name for name in forms if name not in tables]
    if unknown:
        raise ValueError(f"forms of {', '.join(unknown)}; the network's lookups are {', '.join(tables) or 'none'}")
    if forms and dialect is Dialect.INTEGER:
        raise NotExact(
            f"other forms of {', '.join(forms)} in dialect 'integer', which promises integers alone; use another "
            "dialect, or the tables themselves"
        )
    outputs = {spec.name for spec in network.outputs}
    inputs = {spec.name: (spec, container(*spec.type.range)) for spec in network.inputs}
    carried = {name: dtype for name, (_, dtype) in inputs.items()}
    ops: dict[str, OpPlan] = {}
    for op in network.ops:
        sources = tuple(carried[name] for name in op.inputs)
        value = values[op.name]
        target = _narrowest(value.type) if op.name in outputs else _target(op, value, sources)
        ops[op.name] = OpPlan(
            op,
            value,
            tuple(values[name] for name in op.inputs),
            sources,
            target,
            dialect,
            plan_layer(op, values[op.input], value, floats=dialect is not Dialect.INTEGER)
            if isinstance(op, Dense | Conv | SumPool)
            else None,
            plan_requantize(op, values) if isinstance(op, Requantize) else None,
            forms.get(op.name),
        )
        carried[op.name] = target
    return Plan(dialect, bits, inputs, ops)


def _narrowest(type: IntType) -> Dtype:
    return container(*type.range)


def _target(op: Op, value: Value, sources: tuple[Dtype, ...]) -> Dtype:
    match op:
        case Dense() | Conv() | SumPool() | Add() | Subtract() | Multiply() | ReduceSum():
            return accumulator(value.bound)
        case Requantize():
            return _narrowest(op.type)
        case Lookup():
            return container(int(op.table.min()), int(op.table.max()))
        case Concat():
            return sources[0] if len(set(sources)) == 1 else _narrowest(value.type)
        case Reshape() | Pad() | MaxPool() | Upsample() | ReduceMax():
            return sources[0]
