"""Convolutional networks with everything known to be delicate in hls4ml, side by side on one non-square input."""

from __future__ import annotations

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
    Op,
    OutputSpec,
    Pad,
    Requantize,
    Reshape,
    SumPool,
    Upsample,
)
from hawq_flow.numeric import IntType, Rounding

U1, U4, U6, S5, S8 = IntType(1, False), IntType(4, False), IntType(6, False), IntType(5, True), IntType(8, True)
N6 = IntType(6, True, True)


def requantize(
    name: str,
    operand: str,
    multiplier: Any,
    shift: Any,
    offset: Any,
    type: IntType,
    rounding: Rounding = Rounding.HALF_EVEN,
    rank: int = 3,
) -> Requantize:
    """A Requantize whose lists are one entry a channel."""
    arrays = [np.asarray(v, dtype=np.int64) for v in (multiplier, shift, offset)]
    shaped = [a.reshape((-1, *[1] * (rank - 1))) if a.ndim == 1 else a for a in arrays]
    return Requantize(name, operand, shaped[0], shaped[1], shaped[2], type, rounding)


def _ends(ops: list[Op], *also: str) -> tuple[OutputSpec, ...]:
    """Whatever nobody reads, and these."""
    read = {name for op in ops for name in op.inputs}
    return tuple(OutputSpec(op.name) for op in ops if op.name not in read or op.name in also)


def planes(*parts: str) -> IntegerNetwork:
    """Two-dimensional layers on a (3, 5, 7) input of 8 signed bits; ``parts`` as named below, none: all."""
    rng = np.random.default_rng(3)
    chosen: dict[str, list[Op]] = {}

    def weights(*shape: int, reach: int = 7) -> Any:
        return rng.integers(-reach, reach + 1, shape)

    # The common stem: per-channel multipliers; its value is read many times.
    stem: list[Op] = [
        Conv("stem", "x", weights(4, 3, 3, 3), np.array([5, -300, 7, 0]), (1, 1), (1, 0, 0, 1)),
        requantize("stem_act", "stem", [3, 5, 1, 7], [9, 10, 7, 10], 0, U6),
        requantize("signed", "stem", [3, -5, 1, 7], [10, 11, 8, 11], 0, S8),
    ]
    chosen["strided"] = [
        Conv("strided", "stem_act", weights(3, 4, 3, 2), weights(3), (2, 3), (0, 1, 2, 0)),
        requantize("strided_act", "strided", 5, 10, [3, -4, 0], S8, Rounding.HALF_UP),
        Conv("one_row", "strided_act", weights(2, 3, 1, 2), weights(2), (2, 1), (0, 1, 0, 0)),
        Conv("one_column", "strided_act", weights(2, 3, 2, 1), weights(2), (1, 2), (0, 0, 1, 0)),
    ]
    chosen["pointwise"] = [
        Conv("pointwise", "stem_act", weights(2, 4, 1, 1, reach=2), np.zeros(2, int), (1, 1), (0, 0, 0, 0)),
        requantize("pointwise_act", "pointwise", 1, 3, 0, N6, Rounding.FLOOR),
        Conv("pointwise_strided", "stem_act", weights(5, 4, 1, 1), weights(5), (2, 2), (0, 0, 0, 0)),
    ]
    chosen["depthwise"] = [
        Conv("depthwise", "signed", weights(4, 1, 3, 3), weights(4), (1, 1), (1, 1, 1, 1), groups=4),
        requantize("depthwise_act", "depthwise", [3, 5, 1, 7], [9, 10, 7, 10], 5, U6),
        Conv("depthwise_odd", "stem_act", weights(4, 1, 2, 3), weights(4), (2, 1), (0, 2, 1, 0), groups=4),
        Conv("depthwise_point", "depthwise_act", weights(4, 1, 1, 1), weights(4), (2, 3), (0, 0, 0, 0), groups=4),
    ]
    chosen["narrow"] = [  # weights of one bit, of -2..1, all zero; a declared accumulator
        Conv("ones", "stem_act", rng.integers(0, 2, (2, 4, 2, 2)), np.zeros(2, int), (1, 1), (0, 0, 0, 0)),
        Conv("minus", "signed", -rng.integers(0, 2, (2, 4, 2, 2)), np.array([1, 2]), (1, 1), (0, 0, 0, 0)),
        Conv("twos", "signed", rng.integers(-2, 2, (2, 4, 2, 2)), np.array([0, -1]), (1, 1), (0, 0, 0, 0)),
        Conv("none", "signed", np.zeros((2, 4, 2, 2), int), np.array([3, -9]), (1, 1), (0, 0, 0, 0)),
        Conv("cut", "signed", weights(2, 4, 3, 3), weights(2), (1, 1), (0, 0, 0, 0), accumulator=IntType(10, True)),
        requantize("cut_act", "cut", 1, 3, 0, S8),
    ]
    chosen["max"] = [
        MaxPool("max_plain", "stem_act", (2, 2), (2, 2), (0, 0, 0, 0)),
        MaxPool("max_ragged", "signed", (2, 3), (2, 3), (0, 0, 0, 0)),
        MaxPool("max_padded", "stem_act", (2, 3), (2, 3), (1, 0, 0, 2)),
        MaxPool("max_padded_signed", "signed", (3, 2), (3, 2), (1, 1, 0, 0)),
        requantize("max_act", "max_padded_signed", 5, 5, 0, S5),
    ]
    chosen["overlapping"] = [  # not on streams
        MaxPool("overlap", "stem_act", (3, 3), (2, 2), (1, 1, 1, 1)),
        MaxPool("overlap_signed", "signed", (3, 2), (1, 1), (1, 0, 2, 1)),
    ]
    chosen["sum"] = [
        SumPool("sum_global", "signed", (4, 6), (1, 1), (0, 0, 0, 0)),
        requantize("average", "sum_global", 21, 9, 0, S8),
        SumPool("sum_padded", "stem_act", (2, 3), (2, 2), (1, 0, 0, 1)),
        requantize("sum_act", "sum_padded", 43, 8, [1, 2, 3, 4], U6, Rounding.HALF_UP),
    ]
    chosen["residual"] = [
        Conv("branch", "stem_act", weights(4, 4, 3, 3), weights(4), (1, 1), (1, 1, 1, 1)),
        requantize("branch_act", "branch", [3, 5, 1, 7], [9, 10, 7, 10], 0, S8),
        requantize("skip", "stem_act", 3, 1, 0, S8),
        Add("two", ("branch_act", "skip")),
        requantize("two_act", "two", 1, 1, 0, U6),
        Add("three", ("two_act", "signed", "branch_act")),
        Add("twice", ("two_act", "two_act")),
        requantize("twice_cast", "twice", 1, 0, 0, U6),
    ]
    chosen["concat"] = [
        requantize("left", "stem", 1, 9, 0, U4),
        requantize("right", "stem", 1, 6, 0, S8),
        Concat("both", ("left", "right")),
        Concat("many", ("right", "left", "stem_act")),
        Conv("behind", "both", weights(2, 8, 2, 2), weights(2), (1, 1), (0, 0, 0, 0)),
        Concat("rows", ("left", "right"), 1),
        Concat("columns", ("left", "right"), 2),
    ]
    chosen["resize"] = [
        Upsample("up", "stem_act", (2, 3)),
        Conv("up_conv", "up", weights(2, 4, 2, 2), weights(2), (2, 2), (0, 0, 0, 0)),
        Pad("zeros", "signed", (1, 2, 0, 3)),
        Pad("fives", "signed", (1, 0, 2, 1), -5),
        requantize("offset", "stem", 1, 6, 11, S8),
        Pad("elevens", "offset", (1, 1, 1, 1), 11),
        Conv("asymmetric", "elevens", weights(2, 4, 3, 3), weights(2), (1, 1), (0, 0, 0, 0)),
    ]
    chosen["lookup"] = [
        Lookup("table", "signed", rng.integers(-200, 200, 256), -128, "random"),
        requantize("small", "stem", 1, 9, 0, S5),
        Lookup("short", "small", np.arange(32)[::-1] ** 2, -16, "square"),
        Lookup("unsigned", "stem_act", rng.integers(0, 2, 64), 0, "bit"),
    ]
    chosen["elements"] = [  # a multiplier and an offset for each element
        Requantize("each", "stem", rng.integers(1, 9, (4, 4, 6)), np.int64(9), rng.integers(-9, 9, (4, 4, 6)), S8),  # type: ignore[arg-type]
        requantize("up_factor", "stem_act", 4, 0, 0, S8),
        requantize("cast", "signed", 1, 0, 0, S5),
        requantize("cast_offset", "signed", 1, 0, [1, 2, 3, 4], S5),
        requantize("same", "stem_act", 1, 0, 0, U6),
        Upsample("same_up", "same", (1, 1)),
    ]
    chosen["flat"] = [
        MaxPool("flat_pool", "stem_act", (2, 2), (2, 2), (0, 0, 0, 0)),
        Reshape("flat", "flat_pool", (24,)),
        Dense("fc", "flat", weights(3, 24), weights(3)),
        Requantize("flat_act", "flat", rng.integers(1, 9, 24), np.int64(3), rng.integers(-9, 9, 24), S8),  # type: ignore[arg-type]
        Lookup("flat_table", "flat_act", rng.integers(-200, 200, 256), -128),
        Dense("fc_too", "flat_table", weights(2, 24), weights(2)),
        requantize("fc_act", "fc", 3, 7, [1, 2, 3], S8, rank=1),
        Concat("flat_both", ("fc_act", "flat_act")),
        Dense("fc_both", "flat_both", weights(2, 27), weights(2)),
        Dense("grow", "fc_act", weights(30, 3), weights(30)),
        requantize("grow_act", "grow", 1, 5, 0, U6, rank=1),
        Reshape("map", "grow_act", (2, 3, 5)),
        Conv("decoder", "map", weights(3, 2, 2, 2), weights(3), (1, 1), (1, 0, 1, 1)),
    ]
    ops = stem + [op for name, group in chosen.items() if not parts or name in parts for op in group]
    spec = InputSpec("x", (3, 5, 7), S8)
    return IntegerNetwork((spec,), tuple(ops), _ends(ops, "stem_act", "flat_act"))


def shared_sums() -> IntegerNetwork:
    """Dense sums that hls4ml's merging rules would tear apart: read twice, cast, reshaped, added to each other."""
    rng = np.random.default_rng(5)
    ops: list[Op] = []

    def dense(name: str, operand: str = "x", features: int = 5, *, bias: bool = True) -> str:
        values = rng.integers(-50, 51, 6) if bias else np.zeros(6, int)
        ops.append(Dense(name, operand, rng.integers(-7, 8, (6, features)), values))
        return name

    def act(name: str, operand: str, multiplier: int, shift: int, offset: int, type: IntType, rank: int = 1) -> str:
        ops.append(requantize(name, operand, multiplier, shift, offset, type, rank=rank))
        return name

    # No bias: cast, offset, scaled, and read by another Dense; an offset alone.
    dense("plain", bias=False)
    act("plain_cast", "plain", 1, 0, 0, S8)
    act("plain_offset", "plain", 1, 0, 3, S8)
    act("plain_scaled", "plain", 3, 5, 0, U6)
    dense("behind", "plain", 6)
    act("lone_offset", dense("lone", "plain_cast", 6, bias=False), 1, 0, 5, U6)
    # Reshaped to what it was or to more axes, then cast.
    ops.append(Reshape("same_shape", dense("flat"), (6,)))
    act("same_shape_cast", "same_shape", 1, 0, 0, S8)
    act("same_shape_scaled", "same_shape", 3, 5, 0, U6)
    ops.append(Reshape("map", dense("grown"), (2, 3)))
    act("map_cast", "map", 1, 0, 0, U6, rank=2)
    # A sum of sums, of which one bias is zero.
    dense("next", dense("middle", dense("begin", "plain_cast", 6), 6, bias=False), 6)
    # Added: each other, itself, both read besides, reshaped, through a cast that changes nothing.
    dense("left")
    dense("right", bias=False)
    ops.append(Add("three", ("left", "right", "left")))
    ops.append(Add("twice", ("right", "right")))
    act("left_cast", "left", 1, 0, 0, S8)
    for name in ("first", "second"):
        ops.append(Reshape(f"{name}_map", dense(name), (2, 3)))
        bits = IntType(ops[-2].derive([IntegerNetwork((_FIVE,), (), (OutputSpec("x"),)).values["x"]]).type.bits, True)
        act(f"{name}_same", f"{name}_map", 1, 0, 0, bits, rank=2)
    ops.append(Add("maps", ("first_map", "second_map")))
    ops.append(Add("casts", ("first_same", "second_same")))
    return IntegerNetwork((_FIVE,), tuple(ops), _ends(ops, "plain", "left"))


_FIVE = InputSpec("x", (5,), S8)

PARTS = (
    "strided",
    "pointwise",
    "depthwise",
    "narrow",
    "max",
    "overlapping",
    "sum",
    "residual",
    "concat",
    "resize",
    "lookup",
    "elements",
    "flat",
)


def lines(stream: bool = False) -> IntegerNetwork:
    """One-dimensional layers on an (3, 11) input; ``stream``: without what streams cannot do."""
    rng = np.random.default_rng(4)

    def weights(*shape: int, reach: int = 7) -> Any:
        return rng.integers(-reach, reach + 1, shape)

    ops: list[Op] = [
        Conv("stem", "x", weights(4, 3, 3), np.array([5, -300, 7, 0]), (1,), (1, 0)),
        requantize("act", "stem", [3, 5, 1, 7], [9, 10, 7, 10], 0, U6, rank=2),
        requantize("signed", "stem", [3, -5, 1, 7], [10, 11, 8, 11], -3, S8, rank=2),
        requantize("signed_too", "stem", 1, 6, 7, S8, rank=2),
        Conv("strided", "act", weights(3, 4, 4), weights(3), (3,), (2, 1)),
        Conv("pointwise", "act", weights(2, 4, 1), weights(2), (1,), (0, 0)),
        Conv("pointwise_strided", "signed", weights(2, 4, 1), weights(2), (3,), (0, 0)),
        Conv("depthwise", "signed", weights(4, 1, 3), weights(4), (2,), (1, 1), groups=4),
        Conv("whole", "signed", weights(2, 4, 10), weights(2), (1,), (0, 0)),
        Conv("point_of_one", "whole", weights(3, 2, 1), weights(3), (2,), (0, 0)),
        MaxPool("max", "act", (2,), (2,), (0, 0)),
        MaxPool("max_padded", "act", (3,), (3,), (2, 1)),
        MaxPool("max_signed", "signed_too", (3,), (3,), (1, 1)),
        SumPool("sum", "signed_too", (10,), (1,), (0, 0)),
        SumPool("sum_windows", "signed_too", (3,), (2,), (1, 0)),
        Upsample("up", "max", (3,)),
        Pad("pad", "signed_too", (2, 1)),
        Pad("pad_three", "signed_too", (0, 2), 3),
        requantize("skip", "act", 1, 0, 0, S8, rank=2),
        Add("add", ("skip", "signed")),
        Concat("concat", ("act", "signed")),
        Concat("longer", ("skip", "signed_too"), 1),
        Lookup("table", "signed", rng.integers(-200, 200, 256), -128),
        Reshape("flat", "table", (40,)),
        Dense("fc", "flat", weights(3, 40), weights(3)),
    ]
    if not stream:
        ops.append(MaxPool("overlap", "act", (3,), (2,), (1, 1)))
        ops.append(MaxPool("overlap_signed", "signed", (3,), (1,), (0, 2)))
    return IntegerNetwork((InputSpec("x", (3, 11), S8),), tuple(ops), _ends(ops, "whole"))


STREAM_GROUPS = (
    ("strided", "pointwise", "depthwise", "residual"),
    ("narrow", "max", "sum"),
    ("concat", "resize", "lookup", "elements", "flat"),
)
"""The parts that streams can do, so that no value has more than seven readers in a group."""
