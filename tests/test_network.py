"""The integer network: intervals are sound and tight, files come back equal, everything wrong is refused by name."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from core_strategies import extreme_inputs, networks
from hypothesis import given, settings
from hypothesis import strategies as st

from hawq_flow.interpret import reference
from hawq_flow.network import (
    LIMIT,
    OPS,
    Dense,
    InputSpec,
    IntegerNetwork,
    NetworkError,
    OutputSpec,
    Requantize,
    Reshape,
    forward,
    verify,
)
from hawq_flow.numeric import IntType, Overflow, Rounding

U4, S4 = IntType(4, signed=False), IntType(4, signed=True)


def dense(name: str = "d", source: str = "x", weight: object = ((1, -2, 3), (0, 4, -5)), **options: object) -> Dense:
    array = np.array(weight)
    return Dense(name, source, array, options.pop("bias", np.arange(len(array))), **options)  # type: ignore[arg-type]


def requantize(name: str = "q", source: str = "d", **options: object) -> Requantize:
    fields: dict = {"multiplier": np.array(3), "shift": np.array(2), "offset": np.array(0), "type": S4, **options}
    return Requantize(name, source, **fields)


def network(*ops: object, shape: tuple[int, ...] = (3,), type: IntType = U4, output: str = "") -> IntegerNetwork:
    name = output or (ops[-1].name if ops else "x")  # type: ignore[attr-defined]
    return IntegerNetwork((InputSpec("x", shape, type),), tuple(ops), (OutputSpec(name),))  # type: ignore[arg-type]


def small() -> IntegerNetwork:
    """One of everything, every field away from its default."""
    return IntegerNetwork(
        (
            InputSpec(
                "x",
                (3, 2),
                IntType((4, 5, 3), signed=True),
                np.array(0.25),
                np.array([[1], [2], [3]]),
                np.array([[0.5], [1.5], [2.5]]),
                np.array(2.0),
            ),
        ),
        (
            Reshape("flat", "x", (6,), "fc"),
            Dense(
                "d",
                "flat",
                np.arange(-6, 6).reshape(2, 6),
                np.array([3, -4]),
                IntType(9, signed=True),
                Overflow.WRAP,
                "fc",
            ),
            Requantize(
                "q",
                "d",
                np.array([3, 5]),
                np.array([2, 4]),
                np.array([1, -1]),
                IntType((4, 5), signed=False),
                Rounding.FLOOR,
                Overflow.WRAP,
                "fc",
            ),
        ),
        (OutputSpec("q", np.array([0.5, 0.25]), np.array([1, 2])),),
        (("classes", "a,b"), ("title", "t")),
    )


# ---------------------------------------------------------------------------------------------------- intervals, types


@given(networks(), st.integers(0, 99))
@settings(max_examples=250, deadline=None, derandomize=True)
def test_every_value_lies_in_its_interval_and_type(net: IntegerNetwork, seed: int) -> None:
    values = verify(net, float32_constants=False)
    found = reference(net, extreme_inputs(net, seed))
    assert list(found) == list(values)
    for name, array in found.items():
        value = values[name]
        assert array.shape[1:] == value.shape == value.low.shape == value.high.shape
        assert (value.low <= array).all(), name
        assert (array <= value.high).all(), name
        assert value.type.contains(array, len(value.shape)), name
        assert value.magnitude == max(abs(int(value.low.min())), abs(int(value.high.max())))
        assert value.magnitude <= value.bound


@given(networks(max_layers=1), st.integers(0, 99))
@settings(max_examples=150, deadline=None, derandomize=True)
def test_the_ends_of_a_dense_layers_interval_are_attained(net: IntegerNetwork, seed: int) -> None:
    """Without a declared accumulator: on inputs that are free, interval arithmetic of a dot product is exact."""
    op = next(op for op in net.ops if isinstance(op, Dense))
    plain = net.replace_op(dataclasses.replace(op, accumulator=None))
    spec, values = plain.inputs[0], plain.values
    rank = len(spec.shape)
    low = np.broadcast_to(spec.type.low(rank), spec.shape).reshape(-1)
    high = np.broadcast_to(spec.type.high(rank), spec.shape).reshape(-1)
    for ends, expected in (
        (np.where(op.weight > 0, high, low), values[op.name].high),
        (np.where(op.weight > 0, low, high), values[op.name].low),
    ):
        found = reference(plain, ends.reshape(-1, *spec.shape))[op.name]
        assert np.diag(found).tolist() == expected.tolist()
    assert values[op.name].type == IntType.holding(int(values[op.name].low.min()), int(values[op.name].high.max()))


@given(networks(), st.integers(0, 99))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_bounds_cover_partial_sums_in_any_order(net: IntegerNetwork, seed: int) -> None:
    rng = np.random.default_rng(seed)
    found = reference(net, extreme_inputs(net, seed, rows=8))
    for op in net.ops:
        bound, x = net.values[op.name].bound, found[op.inputs[0]]
        if isinstance(op, Dense):
            terms = np.concatenate(
                [x[:, None, :] * op.weight, np.broadcast_to(op.bias[:, None], (len(x), len(op.bias), 1))], axis=2
            )
            order = rng.permutation(terms.shape[2])
            assert int(np.abs(np.cumsum(terms[:, :, order], axis=2)).max()) <= bound
            assert int(np.abs(np.maximum(terms, 0).sum(axis=2)).max()) <= bound
        elif isinstance(op, Requantize):
            for row in x[:6]:
                for a, m, s in np.nditer([row, op.multiplier, op.shift]):
                    assert abs(int(a) * int(m)) + (1 << int(s)) <= bound


@pytest.mark.parametrize("overflow", Overflow)
@pytest.mark.parametrize("rounding", Rounding)
def test_requantize_intervals_by_enumeration(rounding: Rounding, overflow: Overflow) -> None:
    """Every end of every interval of a small accumulator: exact for SATURATE, and for WRAP while it does not wrap."""
    for bits in (2, 3, 5):
        for m, s, z in [(1, 0, 0), (3, 1, 0), (-3, 2, 1), (5, 3, -2), (7, 1, 4), (0, 0, 3), (-1, 1, 0)]:
            op = requantize(
                source="x",
                multiplier=np.array(m),
                shift=np.array(s),
                offset=np.array(z),
                type=IntType(bits, True),
                rounding=rounding,
                overflow=overflow,
            )
            net = network(op, shape=(1,), type=S4)
            value = net.values["q"]
            found = reference(net, np.arange(-8, 8)[:, None])["q"]
            assert value.type == op.type
            free = forward(dataclasses.replace(op, type=IntType(30, True)), [np.arange(-8, 8)[:, None]])
            if overflow is Overflow.SATURATE or op.type.contains(free):
                assert (int(value.low[0]), int(value.high[0])) == (int(found.min()), int(found.max()))
            else:
                assert (int(value.low[0]), int(value.high[0])) == op.type.range


def test_intervals_are_elementwise() -> None:
    net = network(dense(), requantize(type=IntType((3, 6), signed=True)), type=IntType((2, 3, 4), signed=False))
    values = net.values
    assert values["x"].high.tolist() == [3, 7, 15]
    assert values["d"].low.tolist() == [-14, 1 - 75]
    assert values["d"].high.tolist() == [3 + 45, 1 + 28]
    assert values["d"].type == IntType(8, signed=True)
    assert values["d"].bound == max(3 + 14 + 45, 28 + 75 + 1)
    assert values["q"].low.tolist() == [-4, -32]
    assert values["q"].high.tolist() == [3, 22]


def test_wrapped_values_of_very_wide_types_stay_in_their_interval() -> None:
    """Nothing is cut on the way to an interval: 2^61 and more fits uint62."""
    op = requantize(source="d", multiplier=np.array(1), shift=np.array(0), type=IntType(62, signed=False))
    for overflow in Overflow:
        net = network(
            dense(weight=[[2]], bias=np.array([0])),
            dataclasses.replace(op, overflow=overflow),
            shape=(1,),
            type=IntType(60, signed=False),
        )
        top = 2 * (2**60 - 1)
        assert reference(net, [[2**60 - 1]])["q"].tolist() == [[top]]
        assert net.values["q"].high.tolist() == [top]
    wide = network(dense(weight=[[3]], bias=np.array([0])), op, shape=(1,), type=IntType(60, signed=False))
    assert wide.values["q"].high.tolist() == [3 * (2**60 - 1)]


def test_declared_accumulators_cut_the_interval_but_not_the_bound() -> None:
    free = network(dense())
    for overflow in Overflow:
        net = network(dense(accumulator=IntType(5, signed=True), overflow=overflow))
        assert net.values["d"].type == IntType(5, signed=True)
        assert net.values["d"].low.tolist() == [-16, -16]
        assert net.values["d"].high.tolist() == [15, 15]
        assert net.values["d"].bound == free.values["d"].bound
    wrapped = network(dense(accumulator=IntType(20, signed=False), overflow=Overflow.WRAP))
    assert wrapped.values["d"].bound == (1 << 20) - 1  # -1 wraps to it
    wide = network(dense(accumulator=IntType(20, signed=True), overflow=Overflow.WRAP))
    assert wide.values["d"].low.tolist() == free.values["d"].low.tolist()


def test_reshape_keeps_every_element_and_widens_the_type_to_one() -> None:
    net = network(Reshape("r", "x", (3, 2)), shape=(2, 3), type=IntType((2, 5), signed=True))
    value = net.values["r"]
    assert value.type == IntType(5, signed=True)
    assert value.low.tolist() == [[-2, -2], [-2, -16], [-16, -16]]
    assert network(Reshape("r", "x", (3,)), shape=(3, 1), type=IntType((4, 4, 4), True)).values["r"].type == S4


# --------------------------------------------------------------------------------------------------------- the meaning


@given(networks(), st.integers(0, 99))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_forward_is_the_definition_in_python_integers(net: IntegerNetwork, seed: int) -> None:
    """The oracle's oracle's oracle: the same network evaluated element by element with unbounded integers."""
    x = extreme_inputs(net, seed, rows=2)
    found = reference(net, x)
    env: dict[str, list] = {"x": [row.reshape(-1).tolist() for row in x]}

    def into(value: int, type: IntType, channel: int, overflow: Overflow) -> int:
        low, high = (int(b[channel] if b.ndim else b) for b in (type.low(), type.high()))
        if overflow is Overflow.SATURATE:
            return min(max(value, low), high)
        return (value - low) % (high - low + 1) + low

    for op in net.ops:
        rows = env[op.inputs[0]]
        if isinstance(op, Reshape):
            env[op.name] = rows
        elif isinstance(op, Dense):
            w, b = op.weight.tolist(), op.bias.tolist()
            env[op.name] = []
            for row in rows:
                sums = [sum(p * q for p, q in zip(w[o], row, strict=True)) + b[o] for o in range(len(w))]
                if op.accumulator is not None:
                    sums = [into(v, op.accumulator, o, op.overflow) for o, v in enumerate(sums)]
                env[op.name].append(sums)
        else:
            n = len(rows[0])
            m, s, z = (np.broadcast_to(a, (n,)).tolist() for a in (op.multiplier, op.shift, op.offset))
            env[op.name] = []
            for row in rows:
                out = []
                for c, a in enumerate(row):
                    v = Fraction(a * m[c], 2 ** s[c])
                    if op.rounding is Rounding.HALF_UP:
                        v += Fraction(1, 2)
                    whole = round(v) if op.rounding is Rounding.HALF_EVEN else v.numerator // v.denominator
                    out.append(into(whole + z[c], op.type, c, op.overflow))
                env[op.name].append(out)
    for name, rows in env.items():
        assert found[name].reshape(len(x), -1).tolist() == rows, name


def test_input_integers_are_standardized_then_quantized_once() -> None:
    spec = InputSpec("x", (2,), S4, np.array(0.5), np.array(1), np.array([1.0, 2.0]), np.array([2.0, 4.0]))
    raw = np.array([[1.0, 2.0], [2.0, 4.0], [1e9, -1e9], [4.0, 9.0]])
    assert spec.standardize(raw)[3].tolist() == [1.5, 1.75]
    assert spec.integers(raw).tolist() == [[1, 1], [2, 2], [7, -8], [4, 5]]  # 3.5 rounds to 4: half to even
    with pytest.raises(NetworkError, match=r"input 'x': data of shape \(4,\); expected \(n, 2\)"):
        spec.integers(np.zeros(4))
    with pytest.raises(ValueError, match="1 of 2 values are NaN"):
        spec.integers([[np.nan, 1.0]])


# ---------------------------------------------------------------------------------------------- storing and the digest


@given(networks())
@settings(max_examples=40, deadline=None, derandomize=True)
def test_save_and_load_give_an_equal_network(net: IntegerNetwork) -> None:
    with tempfile.TemporaryDirectory() as folder:
        net.save(folder)
        again = IntegerNetwork.load(folder)
    assert again == net
    assert hash(again) == hash(net)
    x = extreme_inputs(net, rows=4)
    for name, array in reference(net, x).items():
        np.testing.assert_array_equal(reference(again, x)[name], array)


def test_equal_networks_are_equal_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        small().save(tmp_path / name)
    for file in ("network.json", "network.npz"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    loaded = IntegerNetwork.load(tmp_path / "a")
    loaded.save(tmp_path / "c")
    assert (tmp_path / "c" / "network.npz").read_bytes() == (tmp_path / "a" / "network.npz").read_bytes()
    assert loaded.metadata == (("classes", "a,b"), ("title", "t"))
    for mine, theirs in zip((*small().inputs, *small().ops), (*loaded.inputs, *loaded.ops), strict=True):
        for field in dataclasses.fields(mine):
            one, other = getattr(mine, field.name), getattr(theirs, field.name)
            assert type(one) is type(other)
            if isinstance(one, np.ndarray):
                assert one.dtype == other.dtype
                np.testing.assert_array_equal(one, other)
            else:
                assert one == other


OTHER = {
    "name": "other",
    "input": "flat2",
    "to": (2, 3),
    "layer": "other",
    "accumulator": IntType(10, signed=True),
    "overflow": Overflow.SATURATE,
    "rounding": Rounding.HALF_UP,
    "type": IntType(7, signed=True),
    "shape": (3, 3),
}
"""A different value for every field that is not an array."""


def field_changes() -> list[tuple[str, int, str]]:
    net = small()
    return [
        (part, i, field.name)
        for part in ("inputs", "ops", "outputs")
        for i, item in enumerate(getattr(net, part))
        for field in dataclasses.fields(item)
    ]


@pytest.mark.parametrize(("part", "index", "field"), field_changes())
def test_the_digest_sees_every_single_field(part: str, index: int, field: str) -> None:
    net = small()
    items = list(getattr(net, part))
    old = getattr(items[index], field)
    candidates = [OTHER[field]] if not isinstance(old, np.ndarray) else []
    if isinstance(old, np.ndarray):
        for position in range(old.size):  # every single element
            changed = old.copy()
            changed.reshape(-1)[position] += 1
            candidates.append(changed)
    for new in candidates:
        changed_item = dataclasses.replace(items[index], **{field: new})
        other = dataclasses.replace(net, **{part: (*items[:index], changed_item, *items[index + 1 :])})
        assert other.digest != net.digest
        assert other != net


def test_the_digest_sees_order_narrowness_shape_and_metadata() -> None:
    net = small()
    assert net == small()
    assert net != "a network"
    assert dataclasses.replace(net, metadata=()) != net
    assert dataclasses.replace(net, metadata=(("title", "t"), ("classes", "a,b"))) == net
    assert dataclasses.replace(net, ops=net.ops[::-1]) != net
    narrow = network(requantize(source="x", type=IntType(4, True, True)))
    assert narrow != network(requantize(source="x", type=IntType(4, True)))
    # A scalar and one entry per channel are different files, even where they mean the same.
    assert network(requantize(source="x")) != network(requantize(source="x", multiplier=np.array([3, 3, 3])))


def test_a_network_does_not_change_with_the_arrays_it_was_made_of() -> None:
    weight = np.ones((1, 3), dtype=np.int64)
    net = network(Dense("d", "x", weight, np.zeros(1, dtype=np.int64)))
    before = net.digest
    weight[:] = 5
    assert net.ops[0].weight.tolist() == [[1, 1, 1]]  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="read-only"):
        net.ops[0].weight[:] = 3  # type: ignore[union-attr,index]
    assert dataclasses.replace(net).digest == before
    with pytest.raises(dataclasses.FrozenInstanceError):
        net.ops = ()  # type: ignore[misc]


def test_replace_op() -> None:
    net = small()
    op = net.op("d")
    assert isinstance(op, Dense)
    other = net.replace_op(dataclasses.replace(op, bias=op.bias + 1))
    assert other.op("d").bias.tolist() == [4, -3]  # type: ignore[union-attr]
    assert [o.name for o in other.ops] == [o.name for o in net.ops]
    with pytest.raises(KeyError, match="no op 'nope'; the network has flat, d, q"):
        net.replace_op(dataclasses.replace(op, name="nope"))


# ------------------------------------------------------------------------------------------------------- damaged files


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    small().save(tmp_path)
    return tmp_path


def edit(folder: Path, change: object) -> None:
    document = json.loads((folder / "network.json").read_text())
    change(document)  # type: ignore[operator]
    (folder / "network.json").write_text(json.dumps(document))


@pytest.mark.parametrize("file", ["network.json", "network.npz"])
def test_missing_files_are_named(saved: Path, file: str) -> None:
    (saved / file).unlink()
    with pytest.raises(NetworkError, match=f"{file}: missing; a saved network is network.json and network.npz"):
        IntegerNetwork.load(saved)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda d: d.update(format="x"), "not a saved IntegerNetwork"),
        (lambda d: d.update(version=2), "version 2; this hawq_flow reads version 1"),
        (lambda d: d.update(digest="0" * 64), "content has digest .* the file says 0000"),
        (lambda d: d.pop("digest"), "the file says None"),
        (lambda d: d["ops"][1].update(kind="Conv9"), "missing, unknown or not valid"),
        (lambda d: d["ops"][1].pop("kind"), "missing, unknown or not valid"),
        (lambda d: d["ops"][1].pop("weight"), "missing, unknown or not valid"),
        (lambda d: d["ops"][1].update(colour=3), "missing, unknown or not valid"),
        (lambda d: d["ops"][1].update(weight={"array": "nope"}), "missing, unknown or not valid"),
        (lambda d: d["ops"][2].update(rounding="up"), "'up' is not a valid Rounding"),
        (lambda d: d["ops"][2].update(overflow="up"), "'up' is not a valid Overflow"),
        (lambda d: d["ops"][2]["type"]["type"].update(bits=99), "width 99"),
        (lambda d: d["ops"][2]["type"]["type"].pop("bits"), "missing, unknown or not valid"),
        (lambda d: d["inputs"][0].update(shape=["a"]), "missing, unknown or not valid"),
        (lambda d: d["ops"][1].update(layer="fc2"), "do not belong together or were edited"),
        (lambda d: d["ops"].pop(), "do not belong together or were edited"),
        (lambda d: d.pop("outputs"), "missing, unknown or not valid"),
        (lambda d: d.update(metadata=["a"]), "missing, unknown or not valid"),
        (lambda d: d["metadata"].update(title="u"), "do not belong together or were edited"),
        (lambda d: d.update(ops=3), "missing, unknown or not valid"),
        (lambda d: d.update(ops=["x"]), "missing, unknown or not valid"),
    ],
)
def test_edited_documents_are_refused(saved: Path, change: object, text: str) -> None:
    edit(saved, change)
    with pytest.raises(NetworkError, match=text):
        IntegerNetwork.load(saved)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[]", b"3", b"null"])
def test_files_that_are_no_documents_are_refused(saved: Path, content: bytes) -> None:
    (saved / "network.json").write_bytes(content)
    with pytest.raises(NetworkError, match=r"not readable as a saved network|not a saved IntegerNetwork"):
        IntegerNetwork.load(saved)


def test_arrays_of_another_network_are_refused(saved: Path, tmp_path: Path) -> None:
    net = small()
    op = net.op("d")
    assert isinstance(op, Dense)
    net.replace_op(dataclasses.replace(op, bias=op.bias + 1)).save(tmp_path / "other")
    (saved / "network.npz").write_bytes((tmp_path / "other" / "network.npz").read_bytes())
    with pytest.raises(NetworkError, match="the two files do not belong together or were edited"):
        IntegerNetwork.load(saved)


@pytest.mark.parametrize("file", ["network.json", "network.npz"])
def test_no_damaged_byte_goes_unnoticed(saved: Path, file: str) -> None:
    """Flip bits all over a file, and cut it short: an equal network (padding, dates) or a NetworkError."""
    net, path = small(), saved / file
    content = path.read_bytes()
    noticed = 0
    damaged = [content[:cut] for cut in range(0, len(content), 197)]
    for position in range(0, len(content), 13 if file.endswith("npz") else 4):
        for mask in (0x01, 0xFF) if position % 2 else (0x40, 0x04):
            damaged.append(content[:position] + bytes([content[position] ^ mask]) + content[position + 1 :])
    for bad in damaged:
        path.write_bytes(bad)
        try:
            assert IntegerNetwork.load(saved) == net
        except NetworkError:
            noticed += 1
    assert noticed > len(damaged) // 2


def test_floats_in_the_array_file_are_not_cut_to_integers(saved: Path) -> None:
    with np.load(saved / "network.npz") as stored:
        arrays = {name: stored[name] for name in stored.files}
    arrays["op.d.weight"] = arrays["op.d.weight"] + 0.5
    np.savez(saved / "network.npz", **arrays)
    with pytest.raises(NetworkError, match="integers expected, found an array of float64; round explicitly"):
        IntegerNetwork.load(saved)


# ----------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("name", ["", "1a", "a-b", "a.b", "é", "a b", "a\n"])
def test_names_that_are_no_identifiers_are_refused(name: str) -> None:
    with pytest.raises(NetworkError, match="a name must be letters, digits and underscores"):
        verify(network(dense(name)))


def test_unknown_repeated_and_late_names_are_refused() -> None:
    with pytest.raises(NetworkError, match="value 'd' is defined twice; names are unique"):
        verify(network(dense(), dense()))
    with pytest.raises(NetworkError, match="value 'x' is defined twice"):
        verify(network(dense("x")))
    with pytest.raises(NetworkError, match="d: operand 'y' is not defined before it; defined so far: x"):
        verify(network(dense(source="y")))
    with pytest.raises(NetworkError, match="q: operand 'd' is not defined before it"):
        verify(network(requantize(), dense()))
    with pytest.raises(NetworkError, match="output 'nope' names no value; the network defines x, d"):
        verify(network(dense(), output="nope"))


def test_networks_without_ends_are_refused() -> None:
    with pytest.raises(NetworkError, match="network with 0 inputs and 1 outputs; expected at least one each"):
        verify(IntegerNetwork((), (), (OutputSpec("x"),)))
    with pytest.raises(NetworkError, match="network with 1 inputs and 0 outputs"):
        verify(IntegerNetwork((InputSpec("x", (3,), U4),), (), ()))


def test_ops_outside_the_union_are_refused() -> None:
    class Strange(Dense):
        pass

    strange = Strange("d", "x", np.ones((1, 3), int), np.zeros(1, int))
    with pytest.raises(NetworkError, match=rf"'d': Strange is not an op of this IR; it has {', '.join(OPS)}"):
        verify(network(strange))


def test_shapes_are_checked_by_every_op() -> None:
    with pytest.raises(
        NetworkError, match=r"d: input 'x' has shape \(4\), expected \(3,\) for a weight of shape \(2, 3\)"
    ):
        verify(network(dense(), shape=(4,)))
    with pytest.raises(NetworkError, match=r"d: input 'x' has shape \(3, 1\).*insert a Reshape"):
        verify(network(dense(), shape=(3, 1)))
    with pytest.raises(NetworkError, match=r"r: cannot reshape \(3\) to \(2, 2\); the number of elements"):
        verify(network(Reshape("r", "x", (2, 2))))
    with pytest.raises(NetworkError, match="r: cannot reshape"):
        verify(network(Reshape("r", "x", (-3, -1))))
    with pytest.raises(NetworkError, match=r"expected \(outputs, features\) and \(outputs,\), neither empty"):
        Dense("d", "x", np.ones(3, int), np.zeros(3, int))
    with pytest.raises(NetworkError, match=r"d: weight of shape \(2, 3\) with bias of shape \(3,\)"):
        Dense("d", "x", np.ones((2, 3), int), np.zeros(3, int))
    with pytest.raises(NetworkError, match="neither empty"):
        Dense("d", "x", np.ones((0, 3), int), np.zeros(0, int))


@pytest.mark.parametrize("field", ["multiplier", "shift", "offset"])
def test_requantize_constants_must_broadcast(field: str) -> None:
    for bad in (np.ones(3, int), np.ones((2, 2), int), np.ones(0, int), np.ones((1, 1, 2), int)):
        with pytest.raises(
            NetworkError, match=rf"q: {field} of shape .* does not broadcast over a value of shape \(2\)"
        ):
            verify(network(dense(), requantize(**{field: bad})))


def test_channel_widths_must_fit_the_value() -> None:
    bad = IntType((3, 4, 5), signed=True)
    with pytest.raises(NetworkError, match=r"q: type int\[3,4,5\] has 3 channel widths for a value of shape \(2\)"):
        verify(network(dense(), requantize(type=bad)))
    with pytest.raises(NetworkError, match=r"d: type int\[3,4,5\] has 3 channel widths"):
        verify(network(dense(accumulator=bad)))
    with pytest.raises(NetworkError, match=r"x: type int\[3,4,5\] has 3 channel widths for a value of shape \(2, 3\)"):
        verify(network(shape=(2, 3), type=bad))


@pytest.mark.parametrize("shift", [-1, 62])
def test_shifts_outside_the_range_are_refused(shift: int) -> None:
    with pytest.raises(NetworkError, match=f"q: shifts from {shift} to {shift}; expected 0 to 61"):
        requantize(shift=np.array(shift))


def test_wrapping_into_narrow_types_is_refused_by_both_ops() -> None:
    narrow = IntType(4, signed=True, narrow=True)
    with pytest.raises(NetworkError, match="q: wraps into int4n; a narrow type has no modulus"):
        requantize(type=narrow, overflow=Overflow.WRAP)
    with pytest.raises(NetworkError, match="d: wraps into int4n; a narrow type has no modulus"):
        dense(accumulator=narrow, overflow=Overflow.WRAP)


def test_floats_are_refused_where_integers_belong() -> None:
    with pytest.raises(NetworkError, match="integers expected, found an array of float64; round explicitly"):
        dense(weight=[[1.0, 2.0, 3.0]])
    with pytest.raises(NetworkError, match="integers expected, found an array of float64"):
        requantize(multiplier=np.array(0.5))
    with pytest.raises(NetworkError, match="integers expected"):
        InputSpec("x", (3,), U4, zero_point=np.array(0.5))


@pytest.mark.parametrize("field", ["scale", "std"])
@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf])
def test_scales_of_inputs_must_be_positive(field: str, value: float) -> None:
    with pytest.raises(NetworkError, match=f"input 'x': {field} must be positive and finite; found"):
        InputSpec("x", (3,), U4, **{field: np.array(value)})


def test_annotations_must_broadcast() -> None:
    for field in ("scale", "zero_point", "mean", "std"):
        with pytest.raises(NetworkError, match=f"input 'x': {field} of shape"):
            InputSpec("x", (3,), U4, **{field: np.ones(2, int)})
    with pytest.raises(NetworkError, match=r"output 'd': scale of shape \(3,\) does not broadcast"):
        verify(IntegerNetwork((InputSpec("x", (3,), U4),), (dense(),), (OutputSpec("d", np.ones(3)),)))


# ------------------------------------------------------------------------------------------------------------ overflow


def test_no_partial_sum_may_reach_2_to_the_62() -> None:
    weight = np.array([[1 << 30, -(1 << 30)]])
    wide = IntType(31, signed=False)
    verify(network(dense(weight=weight), shape=(2,), type=wide), float32_constants=False)  # bound just below 2^62
    bigger = np.array([[1 << 30, -(1 << 30), 4]])
    with pytest.raises(
        NetworkError, match=r"d: a partial sum may reach \d+ \(2\^62 or more\), beyond the 2\^62.*narrow"
    ):
        verify(network(dense(weight=bigger), shape=(3,), type=wide))
    # The sum itself is small: its terms are not.
    with pytest.raises(NetworkError, match="a partial sum may reach"):
        verify(network(dense(weight=[[1 << 61, -(1 << 61)]]), shape=(2,), type=U4))


def test_sums_that_no_type_holds_are_refused() -> None:
    """Signed sums end at 62 bits; unsigned ones may use all of them."""
    for weight, bias in (([[1]], -(1 << 61) - 1), ([[(1 << 32) + 1024, -1]], 1 << 60)):
        net = network(dense(weight=weight, bias=np.array([bias])), shape=(len(weight[0]),), type=IntType(29, True))
        with pytest.raises(NetworkError, match=r"d: sums from .* need a signed type of 63 bits; the widest has 62"):
            verify(net, float32_constants=False)
    net = network(dense(weight=[[1]], bias=np.array([1 << 61])), shape=(1,), type=IntType(29, True))
    assert verify(net, float32_constants=False)["d"].type == IntType(62, signed=False)


def test_no_product_may_reach_2_to_the_62() -> None:
    def net(multiplier: int, shift: int = 0, offset: int = 0) -> IntegerNetwork:
        fields = {"multiplier": np.array(multiplier), "shift": np.array(shift), "offset": np.array(offset)}
        return network(requantize(source="x", **fields), shape=(1,), type=IntType(40, signed=False))

    assert net((1 << 22) - 1, 30).values["q"].bound < LIMIT
    for bad in (net(1 << 23), net(-(1 << 23)), net((1 << 22) - 1, 42), net(1, 0, 1 << 62), net(1, 0, -(1 << 62))):
        with pytest.raises(NetworkError, match=r"q: the product with the multiplier may reach .* beyond the 2\^62"):
            verify(bad)


def test_constants_must_fit_float32_unless_asked_otherwise() -> None:
    ok, bad = (1 << 24) - 1, (1 << 24) + 1
    verify(network(dense(bias=np.array([ok, bad - 1])), requantize(multiplier=np.array([ok, ok << 3]))))
    for op, text in (
        (dense(bias=np.array([0, bad])), rf"d: bias\[1\] = {bad} has 25 significant bits"),
        (dense(weight=[[0, 0, 0], [0, bad, 0]]), rf"d: weight\[1, 1\] = {bad} has 25 significant bits"),
        (requantize(source="x", multiplier=np.array(bad)), rf"q: multiplier\[\] = {bad} has 25"),
        (requantize(source="x", offset=np.array(-bad)), rf"q: offset\[\] = -{bad} has 25"),
    ):
        net = network(op)
        with pytest.raises(NetworkError, match=text + ".*a float32 initializer holds 24"):
            verify(net)
        assert verify(net, float32_constants=False) is net.values
