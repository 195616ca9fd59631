"""Signals by the plain definition of each op, statistics by counting, constants as images, whole and tiled."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import shutil
import subprocess
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from core_strategies import extreme_inputs, graphs
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_networks import inputs, mixed

from hawq_flow import images, interpret, trace
from hawq_flow.images import ImageError
from hawq_flow.network import Conv, Dense, InputSpec, IntegerNetwork, Lookup, NetworkError, OutputSpec, Requantize
from hawq_flow.network import forward as defined
from hawq_flow.numeric import IntType, Overflow, Rounding
from hawq_flow.trace import TraceError, tracing


def by_definition(network: IntegerNetwork, x: Any) -> dict[str, Any]:
    """Every signal from the reference's values: sums by the plain op without bias, the rest in unbounded integers."""
    values = interpret.reference(network, x)
    result: dict[str, Any] = {spec.name: values[spec.name] for spec in network.inputs}
    for op in network.ops:
        operand = values[op.inputs[0]]
        if isinstance(op, Dense | Conv):
            bare = dataclasses.replace(op, bias=np.zeros_like(op.bias), accumulator=None)
            result[f"{op.name}.sum"] = defined(bare, [operand])
            if op.accumulator is not None:
                result[f"{op.name}.accumulator"] = defined(dataclasses.replace(op, accumulator=None), [operand])
        elif isinstance(op, Requantize):
            multiplier, shift, offset = (
                np.broadcast_to(array, operand.shape[1:]) for array in (op.multiplier, op.shift, op.offset)
            )
            product = operand.astype(object) * multiplier.astype(object)
            result[f"{op.name}.product"] = product
            rounded = np.empty(product.shape, dtype=object)
            for index in np.ndindex(product.shape):
                exact = Fraction(product[index], 1 << int(shift[index[1:]]))
                match op.rounding:
                    case Rounding.HALF_EVEN:
                        whole = round(exact)
                    case Rounding.FLOOR:
                        whole = math.floor(exact)
                    case Rounding.HALF_UP:
                        whole = math.floor(exact + Fraction(1, 2))
                rounded[index] = whole + int(offset[index[1:]])
            result[f"{op.name}.rounded"] = rounded
        elif isinstance(op, Lookup):
            result[f"{op.name}.address"] = operand - op.start
        result[op.name] = values[op.name]
    return result


def check(network: IntegerNetwork, x: Any) -> None:
    expected, got, proven = by_definition(network, x), trace.compute(network, x), trace.signals(network)
    assert list(got) == list(expected) == list(proven)
    for name, array in got.items():
        assert array.dtype == np.int64
        assert (array == expected[name]).all(), name
        signal = proven[name]
        assert signal.shape == array.shape[1:]
        assert ((array >= signal.low) & (array <= signal.high)).all(), name
        low, high = images.limits(signal.bits, signal.signed)
        assert low <= int(signal.low.min()), name
        assert int(signal.high.max()) <= high, name
        for operand in signal.operands:
            assert operand in list(proven)[: list(proven).index(name)]


@given(network=graphs(max_steps=5), seed=st.integers(0, 99))
@settings(max_examples=25)
def test_every_step_is_what_the_op_means(network: IntegerNetwork, seed: int) -> None:
    check(network, extreme_inputs(network, seed, rows=2))


def test_a_network_with_everything() -> None:
    network = mixed()
    check(network, inputs(network, 30))
    found = trace.signals(network)
    assert [name for name, signal in found.items() if signal.role not in ("input", "output")] == [
        "conv.sum",
        "conv_requant.product",
        "conv_requant.rounded",
        "scaled.product",
        "scaled.rounded",
        "fc.sum",
        "fc.accumulator",
        "side.sum",
        "side.accumulator",
        "small.product",
        "small.rounded",
        "tanh.address",
        "head.sum",
        "head_requant.product",
        "head_requant.rounded",
    ]
    assert found["fc"].operands == ("fc.accumulator",)
    assert found["fc.accumulator"].operands == ("fc.sum",)
    assert found["fc.sum"].operands == ("scaled",)
    assert found["both"].operands == ("fc", "side")
    assert (found["conv_requant"].type, found["conv_requant"].bits) == ("uint[3,4,5,3]", 5)
    assert found["conv.sum"].layer == "features.0"


def test_a_sum_by_hand() -> None:
    weight = np.array([[1, -2, 3], [0, 5, -1]])
    ops = (
        Dense("d", "x", weight, np.array([10, -100]), IntType(5, True)),
        Requantize("q", "d", np.asarray(3), np.asarray(2), np.asarray(-1), IntType(3, False)),
    )
    network = IntegerNetwork((InputSpec("x", (3,), IntType(4, True)),), ops, (OutputSpec("q"),))
    got = trace.compute(network, np.array([[1, 2, 3]]))
    assert {name: array.tolist() for name, array in got.items()} == {
        "x": [[1, 2, 3]],
        "d.sum": [[6, 7]],
        "d.accumulator": [[16, -93]],
        "d": [[15, -16]],
        "q.product": [[45, -48]],
        "q.rounded": [[10, -13]],  # 11.25 -> 11, -12 -> -12, then the offset
        "q": [[7, 0]],
    }


def test_a_product_as_wide_as_int64_carries() -> None:
    type_ = IntType(40, True)
    op = Requantize("q", "x", np.asarray((1 << 22) - 1), np.asarray(40), np.asarray(0), IntType(8, True))
    network = IntegerNetwork((InputSpec("x", (1,), type_),), (op,), (OutputSpec("q"),))
    signal = trace.signals(network)["q.product"]
    assert (signal.type, signal.bits) == ("int62", 62)
    rows = np.array([[type_.range[0]], [type_.range[1]]])
    check(network, rows)
    text = images.words(trace.compute(network, rows)["q.product"], 62, True, "hex")
    assert images.read_words(text, 1, 62, True, "hex", "t")[0, 0] == type_.range[0] * ((1 << 22) - 1)


def test_scales_are_those_the_network_tells_and_no_others() -> None:
    found = trace.signals(mixed())
    known = {
        name: (float(s.scale.scale), int(s.scale.zero_point), s.scale.source) for name, s in found.items() if s.scale
    }
    assert known == {
        "x": (0.125, 2, "input x"),
        "edge": (0.125, 2, "input x, through edge"),
        "small": (0.25, 0, "table tanh"),
        "tanh": (0.01, 0, "table tanh"),
        "head_requant": (0.5, 1, "output head_requant"),
    }


# ---------------------------------------------------------------------------------------------------------- statistics


def test_statistics_are_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    network = mixed()
    x = inputs(network, 41)
    whole = trace.values(network, x)
    elements = sum(signal.elements for signal in trace.signals(network).values())
    monkeypatch.setattr(tracing, "BLOCK_BYTES", 8 * elements * 7)  # seven rows a block
    assert len(list(trace.blocks(network, x))) == 6
    blocked = trace.values(network, x)
    expected = by_definition(network, x)
    for name, found in blocked.items():
        assert found.to_dict() == whole[name].to_dict()
        array = np.asarray(expected[name], dtype=object)
        assert found.elements == array.size
        assert (found.least == array.min(axis=0)).all()
        assert (found.most == array.max(axis=0)).all()
        assert found.zeros == sum(value == 0 for value in array.ravel())
    for name, mode in (("conv_requant", "half_even"), ("scaled", "half_up"), ("small", "floor")):
        op = network.op(name)
        assert isinstance(op, Requantize)
        rounded, cut = whole[f"{name}.rounded"].rounded, whole[name]
        assert rounded is not None
        products = np.asarray(expected[f"{name}.product"], dtype=object)
        shift = np.broadcast_to(op.shift, products.shape[1:])
        fractions = [Fraction(products[index], 1 << int(shift[index[1:]])) for index in np.ndindex(products.shape)]
        results = [int(r) - int(op.offset) for r in np.asarray(expected[f"{name}.rounded"]).ravel()]
        pairs = list(zip(fractions, results, strict=True))
        assert rounded.mode == mode
        assert rounded.exact == sum(f == r for f, r in pairs)
        assert rounded.up == sum(r > f for f, r in pairs)
        assert rounded.down == sum(r < f for f, r in pairs)
        assert rounded.ties == sum(f.denominator == 2 for f in fractions)
        assert rounded.exact + rounded.up + rounded.down == len(pairs)
        low, high = op.type.low(products.ndim - 1), op.type.high(products.ndim - 1)
        array = np.asarray(expected[f"{name}.rounded"]).astype(np.int64)
        below, above = int((array < low).sum()), int((array > high).sum())
        rectifier = name != "small"
        assert (cut.overflow, cut.saturated, cut.rectified) == (
            "saturate",
            above + (0 if rectifier else below),
            below if rectifier else 0,
        )
    assert sum(1 for found in whole.values() if found.rounded and found.rounded.ties) >= 3
    for name, overflow in (("fc", "saturate"), ("side", "wrap")):
        op, cut = network.op(name), whole[name]
        assert isinstance(op, Dense)
        assert op.accumulator is not None
        array = expected[f"{name}.accumulator"]
        beyond = int(((array < op.accumulator.low()) | (array > op.accumulator.high())).sum())
        assert beyond > 0
        assert (cut.overflow, cut.saturated, cut.rectified) == (overflow, beyond, 0)
    assert whole["conv"].saturated is None
    assert whole["head_requant"].overflow == "wrap"
    assert whole["head_requant"].saturated


def test_the_table_of_statistics(tmp_path: Path) -> None:
    network = mixed()
    found = trace.values(network, inputs(network, 9))
    table = trace.frame(found)
    assert list(table["signal"]) == list(trace.signals(network))
    row = table.set_index("signal").loc["conv_requant.rounded"]
    assert (row["op"], row["kind"], row["role"], row["operands"]) == (
        "conv_requant",
        "Requantize",
        "rounded",
        "conv_requant.product",
    )
    assert row["exact"] + row["rounded_up"] + row["rounded_down"] == row["elements"]
    assert row["scale_from"] == "unknown"
    assert table.set_index("signal").loc["x", "scale"] == "0.125"
    assert table["saturated"].isna().sum() == len(table) - 6
    text = trace.markdown(found)
    assert "| conv_requant.rounded | int" in text
    assert text.count("\n") == len(table) + 2


def test_no_rows_are_refused() -> None:
    network = mixed()
    with pytest.raises(NetworkError, match="trace: 0 rows of inputs; give at least one"):
        trace.values(network, np.zeros((0, 2, 4, 5), dtype=np.int64))
    with pytest.raises(NetworkError, match=re.escape("input 'x': array of shape (1, 3); expected (n, 2, 4, 5)")):
        trace.values(network, np.zeros((1, 3), dtype=np.int64))


# ----------------------------------------------------------------------------------------------------------- constants


def test_constants_are_the_networks() -> None:
    network = mixed()
    found = {constant.name: constant for constant in trace.constants(network)}
    assert list(found)[:6] == [
        "edge.value",
        "conv.weight",
        "conv.bias",
        "conv_requant.multiplier",
        "conv_requant.shift",
        "conv_requant.offset",
    ]
    conv, table = network.op("conv"), network.op("tanh")
    assert isinstance(conv, Conv)
    assert isinstance(table, Lookup)
    weight = found["conv.weight"]
    assert weight.axes == ("output", "channel of the group", "kernel row", "kernel column")
    assert (weight.values == conv.weight).all()
    assert (weight.bits, weight.signed, weight.groups, weight.layer) == (4, True, 2, "features.0")
    assert found["conv_requant.multiplier"].axes == ("channel", "row", "column")
    assert (found["conv_requant.multiplier"].bits, found["conv_requant.multiplier"].signed) == (3, False)
    assert found["conv_requant.shift"].axes == ()
    assert (found["tanh.table"].start, found["tanh.table"].values.tolist()) == (-7, table.table.tolist())
    for constant in found.values():
        low, high = images.limits(constant.bits, constant.signed)
        assert low <= constant.values.min()
        assert constant.values.max() <= high
        if constant.bits > 1:
            low, high = images.limits(constant.bits - 1, constant.signed)
            assert constant.values.min() < low or constant.values.max() > high


@given(data=st.data())
@settings(max_examples=60)
def test_tiles_put_together_are_the_weight(data: st.DataObject) -> None:
    groups = data.draw(st.integers(1, 3))
    kernel = data.draw(st.sampled_from([(), (2, 3)]))
    shape = (groups * data.draw(st.integers(1, 7)), data.draw(st.integers(1, 5)), *kernel)
    rows, columns = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 6))
    weight = np.arange(1, 1 + int(np.prod(shape))).reshape(shape)
    tiled = trace.tiles(weight, rows, columns, groups)
    assert (trace.untiled(tiled, shape) == weight).all()
    outputs = shape[0] // groups
    matrix = weight.reshape(shape[0], -1)
    for (g, i, j, r, c), value in np.ndenumerate(tiled):
        output, term = i * rows + r, j * columns + c
        inside = output < outputs and term < matrix.shape[1]
        assert value == (matrix[g * outputs + output, term] if inside else 0)


def test_tiles_that_are_none() -> None:
    tiled = trace.tiles(np.ones((3, 3), dtype=np.int64), 2, 2)
    with pytest.raises(TraceError, match=re.escape("2x2 tiles of 2x2 in 1 groups; a weight of shape (5, 3) has 3x2")):
        trace.untiled(tiled, (5, 3))
    for beyond in ((0, 1, 0, 1, 0), (0, 0, 1, 0, 1)):  # a fourth output, a fourth term
        wrong = tiled.copy()
        wrong[beyond] = 1
        with pytest.raises(TraceError, match="hold integers beyond it; expected zeros there"):
            trace.untiled(wrong, (3, 3))
    with pytest.raises(TraceError, match="tiles of 0x2; expected 1 or more rows and columns"):
        trace.tiles(np.ones((3, 3), dtype=np.int64), 0, 2)


@given(network=graphs(max_steps=4), per_word=st.integers(1, 5), rows=st.integers(1, 4), columns=st.integers(1, 4))
@settings(max_examples=15)
def test_images_of_constants_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, network: IntegerNetwork, per_word: int, rows: int, columns: int
) -> None:
    folder = tmp_path_factory.mktemp("images") / "constants"
    trace.write_images(network, folder, (rows, columns), elements_per_word=per_word)
    found = trace.read_images(folder)
    expected = {}
    for constant in trace.constants(network):
        for form in ("hex", "bin"):
            expected[f"{constant.name}.{form}"] = constant.values
            if constant.role == "weight":
                expected[f"{constant.name}.tiles.{form}"] = constant.values
    assert sorted(found) == sorted(expected) == sorted(p.name for p in folder.iterdir() if p.name != "index.json")
    for name, array in found.items():
        assert array.shape == expected[name].shape
        assert (array == expected[name]).all()


def test_images_are_whole_and_the_same_when_made_twice(tmp_path: Path) -> None:
    network = mixed()
    one, two = (trace.write_images(network, tmp_path / name, (2, 3)) for name in ("one", "two"))
    for path in sorted(one.iterdir()):
        assert path.read_bytes() == (two / path.name).read_bytes()
    assert (one.stat().st_mode & 0o777) == 0o755
    with pytest.raises(TraceError, match="exists; images are written whole, into a new folder"):
        trace.write_images(network, one)
    with pytest.raises(TraceError, match="tiles of 0x1"):
        trace.write_images(network, tmp_path / "three", (0, 1))
    with pytest.raises(TraceError, match="words of 0 elements; expected 1 or more"):
        trace.write_images(network, tmp_path / "three", elements_per_word=0)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["one", "two"]


def test_an_image_by_hand(tmp_path: Path) -> None:
    ops = (Dense("d", "x", np.array([[1, -2, 3], [0, 3, -1]]), np.array([10, -100])),)
    network = IntegerNetwork((InputSpec("x", (3,), IntType(4, True)),), ops, (OutputSpec("d"),))
    folder = trace.write_images(network, tmp_path / "i", (2, 2), elements_per_word=4)
    assert (folder / "d.weight.bin").read_text() == "000011110001\n000000111011\n"
    assert (folder / "d.weight.tiles.bin").read_text() == "110001\n011000\n000011\n000111\n"
    assert (folder / "d.bias.hex").read_text() == "00009c0a\n"
    index = json.loads((folder / "index.json").read_text())
    assert (index["format"], index["version"], index["network"]) == ("hawq_flow.constants", 1, network.digest)
    assert index["files"][2] == {
        "file": "d.weight.tiles.hex",
        "form": "hex",
        "constant": "d.weight",
        "op": "d",
        "layer": "",
        "kind": "Dense",
        "role": "weight",
        "shape": [2, 3],
        "axes": ["output", "input"],
        "bits": 3,
        "signed": True,
        "tile": [2, 2],
        "tiles": [1, 1, 2],
        "elements_per_word": 2,
        "words": 4,
    }


def test_images_that_were_changed(tmp_path: Path) -> None:
    folder = trace.write_images(mixed(), tmp_path / "i")
    weight = folder / "fc.weight.hex"
    text = weight.read_text()
    weight.write_text(text[2:])
    with pytest.raises(TraceError, match=re.escape(f"{weight}: 119 words; index.json says 120")):
        trace.read_images(folder)
    weight.write_text("x\n" + text[2:])
    with pytest.raises(ImageError, match=re.escape(f"{weight}, line 1: 'x' has digits without a value")):
        trace.read_images(folder)
    weight.unlink()
    with pytest.raises(TraceError, match=re.escape(f"{weight}: missing; index.json lists it")):
        trace.read_images(folder)
    index = folder / "index.json"
    for content, said in (
        ("{", "index.json, line 1: not JSON"),
        ("[]", "index.json: found []; expected a table of names"),
        ('{"format": "x"}', "index.json: format 'x'; expected 'hawq_flow.constants' with a list of files"),
        ('{"format": "hawq_flow.constants", "version": 2, "files": []}', "version 2; this hawq_flow reads version 1"),
    ):
        index.write_text(content)
        with pytest.raises(TraceError, match=re.escape(said)):
            trace.read_images(folder)
    index.unlink()
    with pytest.raises(TraceError, match=re.escape("index.json: not readable")):
        trace.read_images(folder)


BENCH = """module bench;
    reg signed [BITS-1:0] plain [0:WORDS-1];
    reg signed [BITS-1:0] binary [0:WORDS-1];
    reg [COLUMNS*BITS-1:0] tiled [0:TILES-1];
    reg signed [BITS-1:0] one;
    integer i, j;
    initial begin
        $readmemh("NAME.hex", plain);
        $readmemb("NAME.bin", binary);
        $readmemh("NAME.tiles.hex", tiled);
        for (i = 0; i < WORDS; i = i + 1) $display("%0d %0d", plain[i], binary[i]);
        for (i = 0; i < TILES; i = i + 1)
            for (j = 0; j < COLUMNS; j = j + 1) begin
                one = tiled[i][j*BITS +: BITS];
                $display("%0d", one);
            end
    end
endmodule
"""


needs_icarus = pytest.mark.skipif(
    not (shutil.which("iverilog") and shutil.which("vvp")), reason="needs iverilog and vvp on PATH"
)


def icarus(folder: Path) -> str:
    """What ``bench.v`` prints; neither compiler nor run may warn."""
    for command in (["iverilog", "-g2005", "-Wall", "-o", "bench", "bench.v"], ["vvp", "bench"]):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        assert "warning" not in (done.stdout + done.stderr).lower()
    return done.stdout


@needs_icarus
def test_icarus_reads_the_images(tmp_path: Path) -> None:
    network = mixed()
    folder = trace.write_images(network, tmp_path / "i", (3, 4))
    constant = next(found for found in trace.constants(network) if found.name == "fc.weight")
    tiled = trace.tiles(constant.values, 3, 4)
    text = BENCH.replace("NAME", "fc.weight").replace("COLUMNS", "4").replace("BITS", str(constant.bits))
    text = text.replace("WORDS", str(constant.values.size)).replace("TILES", str(tiled.size // 4))
    (folder / "bench.v").write_text(text)
    printed = [int(number) for number in icarus(folder).split()]
    size = constant.values.size
    assert printed[: 2 * size : 2] == printed[1 : 2 * size : 2] == constant.values.ravel().tolist()
    assert printed[2 * size :] == tiled.ravel().tolist()


@needs_icarus
def test_what_icarus_dumps_is_read(tmp_path: Path) -> None:
    """A design that adds 1 to one element of one row, dumped by $writememh with its comments."""
    network = mixed()
    x = inputs(network, 4)
    signal = trace.signals(network)["fc"]
    trace.write(network, x, tmp_path / "t", trace.Options(("hex",), elements_per_word=1))
    bench = """module bench;
        reg signed [6:0] fc [0:19];
        initial begin
            $readmemh("t/vectors/fc.hex", fc);
            fc[13] = fc[13] + 1;
            $writememh("fc.hex", fc);
        end
    endmodule
    """
    (tmp_path / "bench.v").write_text(bench)
    icarus(tmp_path)
    assert "//" in (tmp_path / "fc.hex").read_text()
    assert (signal.bits, signal.elements) == (7, 5)
    found = trace.compare(network, x, tmp_path / "fc.hex")
    assert found.first is not None
    assert (found.first.row, found.first.element, found.compared[0].differ) == (2, (3,), 1)
    expected = trace.compute(network, x)["fc"][2, 3]
    assert found.first.expected == expected
    assert found.first.got == (expected + 1 if expected < 63 else -64)


def test_a_sum_too_wide_for_a_word_is_refused() -> None:
    wide = Dense("d", "x", np.array([[3 << 29, -(3 << 29)]]), np.array([0]), IntType(40, True), Overflow.SATURATE)
    network = IntegerNetwork((InputSpec("x", (2,), IntType(31, True)),), (wide,), (OutputSpec("d"),))
    network.values  # noqa: B018  the network itself is sound
    with pytest.raises(NetworkError, match=r"d: sums from .* need a signed type of 63 bits; the widest has 62"):
        trace.signals(network)
