"""Equality in blocks of rows is equality on all rows: same certificate, same counts, mismatches where they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from hawq_flow import coverage, equality, interpret, prove
from hawq_flow.equality import Backend, EqualityError, Result
from hawq_flow.network import Add, Dense, InputSpec, IntegerNetwork, OutputSpec, Requantize
from hawq_flow.numeric import IntArray, IntType


@pytest.fixture
def network() -> IntegerNetwork:
    rng = np.random.default_rng(3)
    return IntegerNetwork(
        (InputSpec("x", (3,), IntType(6, signed=True)),),
        (
            Dense("fc", "x", rng.integers(-7, 8, (4, 3)), rng.integers(-9, 9, 4)),
            Requantize("out", "fc", np.array(5), np.array(6), np.array(0), IntType(4, signed=True)),
        ),
        (OutputSpec("out"),),
    )


X = np.random.default_rng(0).integers(-32, 32, (23, 3))


def changed(values: Mapping[str, IntArray], where: Mapping[str, int], start: int) -> dict[str, IntArray]:
    """A copy of the values with 1 added at the given rows of the whole set."""
    result = {name: array.copy() for name, array in values.items()}
    for name, row in where.items():
        if start <= row < start + len(result[name]):
            result[name][row - start, 1] += 1
    return result


@pytest.mark.parametrize("rows", [1, 5, 23, 100])
@pytest.mark.parametrize("wrong", [{}, {"out": 3}, {"out": 3, "fc": 20}, {"fc": 22}])
def test_blocks_give_the_certificate_of_the_whole(network: IntegerNetwork, rows: int, wrong: dict[str, int]) -> None:
    def backends(part: slice) -> dict[str, Backend]:
        values = changed(interpret.trace(network, X[part]), wrong, part.start)
        return {
            "planted": equality.trace_backend(values, "by hand"),
            "interpreter": equality.reference_backend(network),
        }

    seen: list[tuple[int, int]] = []
    certificate, counts = prove.prove(
        network, {"x": X}, backends, {}, rows=rows, progress=lambda done, total: seen.append((done, total))
    )
    assert certificate == equality.certify(network, X, backends(slice(0, len(X))))
    assert certificate["samples"] == 23
    assert equality.equal(certificate) == (not wrong)
    whole = coverage.count(network, interpret.trace(network, X))
    assert {n: c.to_dict() for n, c in counts.items()} == {n: c.to_dict() for n, c in whole.items()}
    assert seen[-1] == (23, 23)
    assert len(seen) == -(-23 // rows)


def test_dear_backends_run_once_and_are_localized_in_their_block(network: IntegerNetwork) -> None:
    runs: list[int] = []
    localized: list[Any] = []

    def run(x: Any) -> Result:
        runs.append(len(x["x"]))
        return Result(changed({"out": interpret.run(network, x)}, {"out": 12}, 0), "simulated")

    def localize(x: Any) -> Result:
        localized.append(x)
        return Result(changed(interpret.trace(network, next(iter(x.values()))), {"fc": 0, "out": 0}, 0), "simulated")

    certificate, _ = prove.prove(network, {"x": X}, lambda part: {}, {"csim": Backend(run, localize)}, rows=5)
    assert runs == [23]
    assert len(localized) == 1
    assert (localized[0]["x"] == X[12:13]).all()
    entry = certificate["backends"]["csim"]
    assert (entry["mismatches"], entry["elements"], entry["method"]) == (1, 92, "simulated")
    assert (entry["first_mismatch"]["layer"], entry["first_mismatch"]["row"]) == ("fc", 12)


def test_methods_that_differ_between_blocks_are_all_named(network: IntegerNetwork) -> None:
    def backends(part: slice) -> dict[str, Backend]:
        values = interpret.trace(network, X[part])
        return {"qat": equality.trace_backend(values, "first; way" if part.start < 10 else "second")}

    certificate, _ = prove.prove(network, {"x": X}, backends, {}, rows=5)
    assert certificate["backends"]["qat"]["method"] == "first; way; second"


def test_no_rows_prove_nothing(network: IntegerNetwork) -> None:
    reference = {"interpreter": equality.reference_backend(network)}
    with pytest.raises(EqualityError, match="certify: 0 samples; equality on nothing proves nothing"):
        prove.prove(network, {"x": X[:0]}, lambda part: reference, {})


def test_blocks_fit_the_memory_they_are_given(network: IntegerNetwork) -> None:
    assert prove.block_rows(network, 8 * 11 * 7) == 7  # 3 + 4 + 4 elements a row
    assert prove.block_rows(network, 10) == 1


def test_drawn_inputs_reach_ends_ties_and_zeros(network: IntegerNetwork) -> None:
    x = prove.drawn(network, 400)["x"]
    assert x.shape == (400, 3)
    assert (x.min(), x.max()) == (-32, 31)
    assert np.array_equal(x, prove.drawn(network, 400)["x"]), "the same for the same network"
    assert (np.abs(x[2::4]) <= 3).all()
    assert set(np.unique(x[1::4])) == {-32, 31}
    assert (x[3::4] == 0).mean() > 0.8
    counts = coverage.count(network, interpret.trace(network, x))["out"]
    assert counts.ties > 0
    assert counts.saturated > 0
    assert prove.drawn(network, 0)["x"].shape == (0, 3)
    per_channel = IntegerNetwork((InputSpec("x", (3,), IntType((2, 6, 4), signed=True)),), network.ops, network.outputs)
    assert per_channel.inputs[0].type.contains(prove.drawn(per_channel, 100)["x"])


def test_several_inputs() -> None:
    network = IntegerNetwork(
        (InputSpec("x", (3,), IntType(4, signed=True)), InputSpec("y", (3,), IntType(5, signed=False))),
        (Add("sum", ("x", "y")),),
        (OutputSpec("sum"),),
    )
    x = prove.drawn(network, 11)
    assert {name: array.shape for name, array in x.items()} == {"x": (11, 3), "y": (11, 3)}
    certificate, _ = prove.prove(
        network, x, lambda part: {"interpreter": equality.reference_backend(network)}, {}, rows=4
    )
    assert (certificate["samples"], certificate["backends"]["interpreter"]["mismatches"]) == (11, 0)
