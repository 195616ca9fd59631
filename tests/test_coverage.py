"""What compared inputs exercised: every count by hand, blocks that add up, and outputs that prove nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hawq_flow import coverage, interpret
from hawq_flow.network import Dense, InputSpec, IntegerNetwork, OutputSpec, Requantize
from hawq_flow.numeric import IntType, Rounding


def network(
    weight: Any = ((1, 0), (0, 1)),
    *,
    out: IntType | None = None,
    multiplier: int = 1,
    shift: int = 1,
    offset: int = 0,
    rounding: Rounding = Rounding.HALF_EVEN,
) -> IntegerNetwork:
    """Two inputs of 4 bits, a dense layer, a requantization: by default half of each input, 3 bits signed."""
    w = np.array(weight)
    ops = (
        Dense("fc", "x", w, np.zeros(len(w), dtype=np.int64)),
        Requantize(
            "out",
            "fc",
            np.array(multiplier),
            np.array(shift),
            np.array(offset),
            out or IntType(3, signed=True),
            rounding,
        ),
    )
    return IntegerNetwork((InputSpec("x", (2,), IntType(4, signed=True)),), ops, (OutputSpec("out"),))


def counted(net: IntegerNetwork, x: Any) -> dict[str, coverage.Coverage]:
    return coverage.count(net, interpret.trace(net, np.array(x)))


def test_counts_by_hand() -> None:
    # x / 2, half to even, into -4..3: 7 -> 3.5 (tie) -> 4 saturates; -8 -> -4 (an end); 1 -> 0.5 (tie) -> 0; 4 -> 2.
    found = counted(network(), [[7, -8], [1, 4], [7, 4]])
    assert {name: entry.to_dict() for name, entry in found.items()}["out"] == {
        "elements": 6,
        "distinct": 4,
        "least": -4,
        "most": 3,
        "width": 2,
        "varying": 2,
        "ends": 3,  # 3, -4, 3
        "ties": 3,  # 7, 1, 7
        "saturated": 2,  # the two 7
        "rectified": 0,
    }
    assert list(found) == ["x", "fc", "out"]
    assert (found["x"].ties, found["x"].ends, found["x"].distinct) == (0, 3, 4)


def test_a_relus_zeros_are_not_saturation() -> None:
    found = counted(network(out=IntType(2, signed=False)), [[-8, 7], [-1, 2]])["out"]
    # -4 and 4 leave 0..3; -0.5 rounds to 0 and 1 stays.
    assert (found.saturated, found.rectified, found.ties) == (1, 1, 2)
    shifted = counted(network(out=IntType(2, signed=False), offset=1), [[-8, 7], [-1, 2]])["out"]
    assert (shifted.saturated, shifted.rectified) == (2, 0)  # with a zero point the low end is saturation too


def test_without_a_shift_there_are_no_ties() -> None:
    assert counted(network(shift=0), [[1, 3]])["out"].ties == 0


def test_ties_of_negative_products() -> None:
    assert counted(network(multiplier=-3, shift=2), [[2, -2], [4, 6]])["out"].ties == 3  # -6, 6, -12, -18 over 4


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_blocks_add_up(cut: int) -> None:
    net = network()
    x = np.random.default_rng(0).integers(-8, 8, (4, 2))
    whole = counted(net, x)
    merged = coverage.merge([counted(net, x[:cut]), counted(net, x[cut:])])
    for name, entry in whole.items():
        assert merged[name].to_dict() == entry.to_dict()
        assert (merged[name].seen == entry.seen).all()


def test_distinct_integers_are_counted_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coverage, "DISTINCT", 3)
    net = network()
    found = coverage.merge([counted(net, [[-8, 1], [3, 7]]), counted(net, [[5, 6]])])
    assert found["x"].distinct == 3
    assert "| x | 6 | 3+ | -8 | 7 |" in coverage.markdown({name: entry.to_dict() for name, entry in found.items()})


def test_few_and_many_values_are_counted_alike() -> None:
    far = np.array([0, 5, 5, 1 << 40])  # too far apart for a bitmap
    assert coverage._distinct(far).tolist() == [0, 5, 1 << 40]
    assert coverage._distinct(np.array([4, -2, 4])).tolist() == [-2, 4]


def _problems(net: IntegerNetwork, x: Any) -> list[str]:
    return coverage.problems(["out"], {name: entry.to_dict() for name, entry in counted(net, x).items()})


def test_outputs_that_prove_nothing_are_named() -> None:
    good = [[7, -8], [1, 4], [3, 2]]
    assert _problems(network(), good) == []
    (constant,) = _problems(network(((0, 0), (0, 0))), good)
    assert constant.startswith("output 'out': none of its 2 elements varies over 3 rows; expected outputs that depend")
    # Different constants in different elements are constant all the same.
    assert len(_problems(network(((0, 0), (1, 0))), [[2, 1], [2, 5]])) == 1
    (saturated,) = _problems(network(multiplier=100), [[7, -8], [-1, 4], [3, 2]])
    assert saturated.startswith("output 'out': 100% of 6 elements are saturated; expected at most 90%. Widen")
    # Half of the elements saturated is still a proof.
    assert _problems(network(multiplier=4), [[7, 1], [-8, 1], [0, 0]]) == []
