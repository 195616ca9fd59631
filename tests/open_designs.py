"""Small networks, their designs and their syntheses, made once for the tests of the open road."""

from __future__ import annotations

import dataclasses
import hashlib
from functools import lru_cache

import numpy as np
import pytest

from hawq_flow.network import Add, Dense, InputSpec, IntegerNetwork, MaxPool, OutputSpec, Requantize
from hawq_flow.numeric import IntArray, IntType, Rounding
from hawq_flow.to_rtl.config import RtlConfig
from hawq_flow.to_rtl.design import Module, Port, Rtl
from hawq_flow.to_rtl.generate import generate
from hawq_flow.to_rtl.synthesize import OpenSynthesis, RtlSynthesisConfig, synthesize
from hawq_flow.to_rtl.yosys import MissingTool, find_yosys

try:
    find_yosys()
    _MISSING = ""
except MissingTool as error:
    _MISSING = str(error)
needs_yosys = pytest.mark.skipif(bool(_MISSING), reason=_MISSING)
CSD = RtlConfig(optimizer="csd")


def scalar(value: int) -> IntArray:
    return np.array(value, dtype=np.int64)


@lru_cache
def two_layers() -> IntegerNetwork:
    """Dense 6-5-3 on 5 signed bits, one channel without weights, all roundings of ties met."""
    rng = np.random.default_rng(4)
    first = rng.integers(-7, 8, (5, 6))
    first[2] = 0
    ops = (
        Dense("fc1", "x", first, rng.integers(-40, 40, 5)),
        Requantize("act1", "fc1", np.array([3, 5, 1, 9, 7]), np.array([4, 5, 2, 6, 0]), scalar(0), IntType(4, False)),
        Dense("fc2", "act1", rng.integers(-7, 8, (3, 5)), rng.integers(-40, 40, 3)),
        Requantize("act2", "fc2", scalar(11), scalar(4), scalar(2), IntType(6, True, True), Rounding.HALF_UP),
    )
    return IntegerNetwork((InputSpec("x", (6,), IntType(5, True)),), ops, (OutputSpec("act2"),))


@lru_cache
def pooled() -> IntegerNetwork:
    """What no affine prefix explains: a maximum of two sums, of few bits."""
    ops = (
        Add("sum", ("x", "y")),
        MaxPool("pool", "sum", (2,), (2,), (0, 0)),
    )
    inputs = (InputSpec("x", (1, 4), IntType(2, True)), InputSpec("y", (1, 4), IntType(2, False)))
    return IntegerNetwork(inputs, ops, (OutputSpec("pool"),))


@lru_cache
def design() -> Rtl:
    return generate(two_layers(), CSD)


@lru_cache
def synthesis() -> OpenSynthesis:
    return synthesize(design(), RtlSynthesisConfig(workers=2))


def rows(network: IntegerNetwork, count: int, seed: int = 0) -> IntArray:
    """Random integers over the whole range of a network's only input."""
    value = network.values[network.inputs[0].name]
    return np.random.default_rng(seed).integers(value.low, value.high + 1, (count, *value.shape))


def module(text: str, inputs: list[Port], outputs: list[Port], latency: int, ops: tuple[str, ...] = ()) -> Module:
    """A module written by hand; its name is "m"."""
    return Module("m", text, tuple(inputs), tuple(outputs), latency, ops, hashlib.sha256(text.encode()).hexdigest())


def rtl_of(*modules: Module, network: str = "") -> Rtl:
    """A design of modules written by hand, without a top."""
    return Rtl(network, "top", None, modules, modules[0].inputs, modules[-1].outputs, 0, 0)


def changed(rtl: Rtl, number: int, old: str, new: str) -> Rtl:
    """A design with a fault planted in one module's text."""
    before = rtl.modules[number]
    assert old in before.text
    text = before.text.replace(old, new, 1)
    after = dataclasses.replace(before, text=text, digest=hashlib.sha256(text.encode()).hexdigest())
    return dataclasses.replace(rtl, modules=(*rtl.modules[:number], after, *rtl.modules[number + 1 :]))
