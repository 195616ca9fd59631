"""Dumps written and read back in every form, planted differences found at their place, and what is no dump."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from core_strategies import extreme_inputs, graphs
from graph_strategies import expressible_graphs
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from trace_networks import ROWS, inputs, mixed, plant, refused, write_all

from hawq_flow import images, store, trace
from hawq_flow.network import Conv, InputSpec, IntegerNetwork, Multiply, OutputSpec, Subtract
from hawq_flow.numeric import IntType
from hawq_flow.store import StoreError
from hawq_flow.to_hls import HlsConfig, design
from hawq_flow.to_qonnx import NotExact
from hawq_flow.trace import TraceError, reading, tracing


@pytest.fixture(scope="module")
def network() -> IntegerNetwork:
    return mixed()


@pytest.fixture(scope="module")
def made(network: IntegerNetwork, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_all(network, tmp_path_factory.mktemp("trace") / "all")


@pytest.fixture
def dump(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "dump")
    return tmp_path / "dump"


FORMS = ("trace.npz", "elements.csv", "elements.parquet", "vectors")


def test_the_folder_holds_what_it_says(network: IntegerNetwork, made: Path) -> None:
    index = json.loads((made / "trace.json").read_text())
    assert {key: index[key] for key in ("format", "version", "network", "rows", "rows_dumped", "outputs")} == {
        "format": "hawq_flow.trace",
        "version": 1,
        "network": network.digest,
        "rows": 11,
        "rows_dumped": ROWS,
        "outputs": ["head_requant"],
    }
    names = list(trace.signals(network))
    assert [entry["signal"] for entry in index["signals"]] == names
    expected = trace.values(network, inputs(network, 11))
    for entry in index["signals"]:
        assert entry == json.loads(json.dumps({**expected[entry["signal"]].to_dict(), **_lists(entry)}))
    for table in (pd.read_csv(made / "values.csv"), pd.read_parquet(made / "values.parquet")):
        assert table["signal"].tolist() == names
        for column in ("elements", "least", "most", "saturated", "exact", "rounded_up", "rounded_down", "ties"):
            want = [entry[column] for entry in index["signals"]]
            assert [None if pd.isna(value) else int(value) for value in table[column]] == want
    found = trace.read_images(made / "constants")
    assert {name.split(".")[0] for name in found} == {constant.op for constant in trace.constants(network)}
    store.open_artifact(made)


def _lists(entry: Any) -> dict[str, Any]:
    return {"shape": entry["shape"], "operands": entry["operands"]}


def test_every_form_holds_the_first_rows(network: IntegerNetwork, made: Path) -> None:
    expected = trace.compute(network, inputs(network, 11)[:ROWS])
    for form in FORMS:
        found = trace.read(network, made / form)
        assert list(found) == list(expected)
        for name, entry in found.items():
            assert (entry.rows == np.arange(ROWS)).all()
            assert entry.given is None
            assert (entry.values == expected[name].reshape(ROWS, -1)).all(), (form, name)
    for ending in ("hex", "bin", "txt"):
        found = trace.read(network, made / "vectors" / f"conv.sum.{ending}")
        assert (found["conv.sum"].values == expected["conv.sum"].reshape(ROWS, -1)).all()
    table = pd.read_parquet(made / "elements.parquet")
    assert table.columns.tolist() == ["row", "signal", "element", "index", "value"]
    conv = table[table["signal"] == "conv"].reset_index(drop=True)
    place = 7 + expected["conv"][0].size * 2
    index = tuple(int(i) for i in conv.loc[place, "index"].split())
    assert index == tuple(int(i) for i in np.unravel_index(7, expected["conv"].shape[1:]))
    assert conv.loc[place, ["row", "element", "value"]].tolist() == [2, 7, expected["conv"][2][index]]


def test_words_of_an_image(network: IntegerNetwork, made: Path) -> None:
    """Three elements a word, a row filled up with zeros; the index says so."""
    entry = next(e for e in json.loads((made / "vectors/index.json").read_text())["files"] if e["file"] == "fc.hex")
    assert entry == {
        "file": "fc.hex",
        "form": "hex",
        "rows": ROWS,
        "values": [{"value": "fc", "shape": [5], "elements": 5, "bits": 7, "signed": True}],
        "elements_per_word": 3,
    }
    lines = (made / "vectors" / "fc.hex").read_text().split()
    assert len(lines) == 2 * ROWS
    row = trace.compute(network, inputs(network, 11)[:1])["fc"][0].tolist()
    assert [int(line, 16) for line in lines[:2]] == [
        sum((value % 128) << (7 * i) for i, value in enumerate(row[:3])),
        sum((value % 128) << (7 * i) for i, value in enumerate(row[3:])),
    ]


def test_the_width_of_words_by_default(
    network: IntegerNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace.vectors, "WIDEST_WORD", 100)
    trace.write(network, inputs(network, 3), tmp_path / "t", trace.Options(("bin",)))
    listed = json.loads((tmp_path / "t/vectors/index.json").read_text())["files"]
    packed = {entry["values"][0]["value"]: entry["elements_per_word"] for entry in listed}
    signals = trace.signals(network)
    assert packed == {n: s.elements if s.elements * s.bits <= 100 else 1 for n, s in signals.items()}
    assert set(packed.values()) >= {1, 3, 5}


def test_the_same_bytes_when_made_twice_and_reused(network: IntegerNetwork, made: Path, tmp_path: Path) -> None:
    x = inputs(network, 11)
    artifact = trace.write(network, x, tmp_path / "t", trace.Options(trace.FORMS, ROWS, 3, (2, 3)))
    for name in artifact.manifest["files"]:
        assert (tmp_path / "t" / name).read_bytes() == (made / name).read_bytes(), name
    before = os.stat(tmp_path / "t").st_ino
    trace.write(network, x, tmp_path / "t", trace.Options(trace.FORMS, ROWS, 3, (2, 3)))
    assert os.stat(tmp_path / "t").st_ino == before
    trace.write(network, x, tmp_path / "t", trace.Options(("npz",)))
    assert sorted(path.name for path in (tmp_path / "t").iterdir()) == [
        "constants",
        "manifest.json",
        "trace.json",
        "trace.npz",
        "values.csv",
        "values.md",
        "values.parquet",
    ]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine").write_text("")
    with pytest.raises(StoreError, match=r"other: holds files but no manifest\.json"):
        trace.write(network, x, tmp_path / "other")


def test_block_by_block(network: IntegerNetwork, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four rows a block: the same files, and differences at their rows."""
    x = inputs(network, 11)
    elements = sum(signal.elements for signal in trace.signals(network).values())
    monkeypatch.setattr(tracing, "BLOCK_BYTES", 8 * elements * 4)
    assert [part for part, _ in trace.blocks(network, x)] == [slice(0, 4), slice(4, 8), slice(8, 11)]
    trace.write(network, x, tmp_path / "t", trace.Options(trace.FORMS, ROWS, 3, (2, 3)))
    for path in sorted(made.rglob("*")):
        if path.is_file():
            assert path.read_bytes() == (tmp_path / "t" / path.relative_to(made)).read_bytes(), path.name
    arrays = trace.compute(network, x)
    arrays["fc"][[5, 6, 10], [4, 0, 1]] += 1
    store.save_arrays(tmp_path / "d.npz", {"fc": arrays["fc"]})
    found = trace.compare(network, x, tmp_path / "d.npz")
    assert found.first is not None
    assert (found.first.row, found.first.element, found.compared[0].differ) == (5, (4,), 3)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"forms": ("npz", "xls")}, "forms xls; expected some of npz, csv, parquet, hex, bin, txt"),
        ({"rows": 0}, "rows 0; expected 1 or more"),
        ({"elements_per_word": 0}, "elements_per_word 0; expected 1 or more"),
        ({"tile": (0, 4)}, "rows of a tile 0; expected 1 or more"),
        ({"tile": (4, 0)}, "columns of a tile 0; expected 1 or more"),
    ],
)
def test_options_that_make_no_sense(options: Any, said: str) -> None:
    with pytest.raises(TraceError, match=re.escape(said)):
        trace.Options(**options)


# ---------------------------------------------------------------------------------------------------------- comparison


def test_what_was_written_compares_equal(network: IntegerNetwork, made: Path) -> None:
    x = inputs(network, 11)
    for path in (made, *(made / form for form in FORMS)):
        found = trace.compare(network, x, path)
        assert found.equal
        assert found.first is None
        shown = [entry.signal.name for entry in found.compared if entry.of == 11]
        assert shown == list(trace.signals(network))
        constants = [entry.signal.name for entry in found.compared if entry.of == 1]
        assert constants == ([constant.name for constant in trace.constants(network)] if path == made else [])
        elements = sum(s.elements for s in trace.signals(network).values()) * ROWS
        elements += sum(constant.values.size for constant in trace.constants(network) if path == made)
        assert found.elements == elements
        assert "| x | x | Input | input | 6 of 11 | 240 of 440 | 0 |  |" in found.markdown()
    assert trace.compare(network, None, made).rows == ROWS  # with the inputs of the dump itself
    assert "Compared in part, as the table says: no signal." in trace.compare(network, None, made).markdown()


def test_constants_are_compared(network: IntegerNetwork, dump: Path, tmp_path: Path) -> None:
    """A weight in a memory image, whole or in tiles, in an array or in a table: found by its index, without inputs."""
    folder = dump / "constants"
    text = trace.compare(network, None, folder).markdown()
    assert text.startswith("Equal: 327 elements of 0 signals and 22 constants.")
    weight = next(constant for constant in trace.constants(network) if constant.name == "conv.weight")
    right = int(weight.values[2, 0, 1, 2])
    wrong = weight.values.copy()
    wrong[2, 0, 1, 2] = right - 1 if right > 0 else right + 1
    got = f"got {wrong[2, 0, 1, 2]}, expected {right}"
    said = f"conv.weight (weight of op conv, Conv), row 0, element [2, 0, 1, 2]: {got}"
    for name, array in (
        ("conv.weight.hex", wrong.reshape(-1, 3)),  # three elements a word, as the trace was asked for
        ("conv.weight.tiles.bin", trace.tiles(wrong, 2, 3, 2).reshape(-1, 3)),
    ):
        before = (folder / name).read_text()
        (folder / name).write_text(images.words(array, 4, True, name[-3:]))
        found = trace.compare(network, None, folder / name)
        assert str(found.first) == said
        assert (found.rows, found.compared[0].differ) == (0, 1)
        assert "edge.value" in found.left_out
        with pytest.raises(TraceError, match=r"conv\.weight, row 0, element 17 \(flat\) is .*; give one of them"):
            trace.compare(network, None, folder)
        (folder / name).write_text(before)
    (tmp_path / "conv.weight.hex").write_text(images.words(wrong.reshape(-1, 1), 4, True, "hex"))  # no index
    store.save_arrays(tmp_path / "d.npz", {"conv.weight": wrong, "edge.value": np.asarray(2)})
    index = 2 * 6 + 5
    (tmp_path / "d.csv").write_text(f"row,signal,element,value\n0,conv.weight,{index},{wrong.ravel()[index]}\n")
    for name in ("conv.weight.hex", "d.npz", "d.csv"):
        assert str(trace.compare(network, None, tmp_path / name).first) == said
    refused(
        network, tmp_path / "d.csv", "conv.weight has a row 1; a constant has one row, 0", lines="1,conv.weight,0,3"
    )
    store.save_arrays(tmp_path / "d.npz", {"conv.weight": wrong[:3]})
    refused(network, tmp_path / "d.npz", "conv.weight has shape (3, 1, 2, 3); expected (4, 1, 2, 3) or (24)")
    index_file = folder / "index.json"
    listed = json.loads(index_file.read_text())
    listed["files"][2]["bits"] = 5
    index_file.write_text(json.dumps(listed))
    refused(network, folder, "conv.weight.hex: conv.weight has bits 5; the network's has 4")


def test_a_changed_weight_explains_what_follows(network: IntegerNetwork, dump: Path) -> None:
    """Everything of another network: the first difference is the weight, not one of the many sums behind it."""
    conv = network.op("conv")
    assert isinstance(conv, Conv)
    weight = conv.weight.copy()
    weight[1, 0, 0, 0] += 1 if weight[1, 0, 0, 0] < 7 else -1
    other = network.replace_op(dataclasses.replace(conv, weight=weight))
    x = inputs(network, 11)
    store.save_arrays(
        dump.parent / "d.npz", {**trace.compute(other, x), **{c.name: c.values for c in trace.constants(other)}}
    )
    found = trace.compare(network, x, dump.parent / "d.npz")
    assert found.first is not None
    assert (found.first.signal.name, found.first.element) == ("conv.weight", (1, 0, 0, 0))
    differ = {entry.signal.name: entry.differ for entry in found.compared if entry.differ}
    assert list(differ)[:3] == ["conv.weight", "conv.sum", "conv"]
    assert differ["conv.weight"] == 1
    assert differ["conv.sum"] > 100


def test_several_inputs(tmp_path: Path) -> None:
    ops = (Subtract("d", "a", "b"), Multiply("m", "d", "a"))
    specs = (InputSpec("a", (3,), IntType(4, True)), InputSpec("b", (1,), IntType(3, False)))
    network = IntegerNetwork(specs, ops, (OutputSpec("m"), OutputSpec("d")))
    rng = np.random.default_rng(0)
    x = {"a": rng.integers(-8, 8, (5, 3)), "b": rng.integers(0, 8, (5, 1))}
    trace.write(network, x, tmp_path / "t", trace.Options(("hex", "csv")))
    found = trace.compare(network, None, tmp_path / "t")
    assert found.equal
    assert [entry.signal.name for entry in found.compared] == ["a", "b", "d", "m"]
    computed = trace.compute(network, x)
    assert (computed["m"] == (x["a"] - x["b"]) * x["a"]).all()
    (tmp_path / "t/vectors/b.hex").unlink()
    refused(network, tmp_path / "t", "b.hex: missing; index.json lists it", x)


@given(network=graphs(max_steps=4), seed=st.integers(0, 99), form=st.sampled_from(trace.FORMS), data=st.data())
@settings(max_examples=20)
def test_a_planted_difference_is_found_where_it_is(
    tmp_path_factory: pytest.TempPathFactory, network: IntegerNetwork, seed: int, form: str, data: st.DataObject
) -> None:
    x = extreme_inputs(network, seed, rows=2)
    folder = tmp_path_factory.mktemp("t") / "t"
    word = data.draw(st.one_of(st.none(), st.integers(1, 4)))
    trace.write(network, x, folder, trace.Options((form,), 5, word))
    computed = trace.compute(network, x[:5])
    name = data.draw(st.sampled_from(list(computed)))
    row, element = data.draw(st.integers(0, 4)), data.draw(st.integers(0, computed[name][0].size - 1))
    signal = trace.signals(network)[name]
    index = tuple(int(i) for i in np.unravel_index(element, signal.shape))
    expected = int(computed[name][(row, *index)])
    low, high = images.limits(signal.bits, signal.signed)
    wrong = low if expected == high else expected + 1
    plant(folder, form, signal, row, element, wrong)
    found = trace.compare(network, x, folder)
    first = found.first
    assert first is not None
    assert (first.signal.name, first.row, first.element, first.got, first.expected) == (
        name,
        row,
        index,
        wrong,
        expected,
    )
    assert [entry.signal.name for entry in found.compared if entry.differ] == [name]
    assert sum(entry.differ for entry in found.compared) == 1


def test_the_first_difference_is_in_the_order_of_computation(network: IntegerNetwork, tmp_path: Path) -> None:
    x = inputs(network, 4)
    arrays = trace.compute(network, x)
    for name, place in (
        ("head", (0, 1)),
        ("conv_requant.product", (2, 1, 0, 1)),
        ("conv_requant.product", (3, 0, 0, 0)),
    ):
        arrays[name][place] += 1
    backwards = {name: arrays[name] for name in reversed(list(arrays))}
    store.save_arrays(tmp_path / "d.npz", backwards)
    found = trace.compare(network, x, tmp_path / "d.npz")
    assert not found.equal
    expected = int(trace.compute(network, x)["conv_requant.product"][2, 1, 0, 1])
    assert str(found.first) == (
        "conv_requant.product (product of op conv_requant, Requantize), row 2, element [1, 0, 1]: "
        f"got {expected + 1}, expected {expected}"
    )
    assert {entry.signal.name: entry.differ for entry in found.compared if entry.differ} == {
        "conv_requant.product": 2,
        "head": 1,
    }
    text = found.markdown()
    assert text.startswith("**3 of ")
    assert (
        f"| conv_requant.product | conv_requant | Requantize | product | 4 | 240 | 2 | row 2, [1, 0, 1]: {expected + 1}"
        in text
    )


def test_parts_of_a_dump(network: IntegerNetwork, tmp_path: Path) -> None:
    x = inputs(network, 9)
    arrays = trace.compute(network, x)
    store.save_arrays(tmp_path / "d.npz", {"fc": arrays["fc"][:4], "conv": arrays["conv"].reshape(9, -1)})
    found = trace.compare(network, x, tmp_path / "d.npz")
    assert found.equal
    assert [(e.signal.name, e.rows, e.elements) for e in found.compared] == [("conv", 9, 9 * 60), ("fc", 4, 20)]
    assert "fc.sum" in found.left_out
    text = found.markdown()
    assert "Not compared, for the dump lacks them: x, edge, conv.sum, conv_requant.product," in text
    assert "Compared in part, as the table says: fc." in text
    rows = [(8, "fc", 2), (3, "fc", 0), (3, "fc", 4)]
    lines = [f"{row},{name},{element},{arrays[name][row, element]}" for row, name, element in rows]
    (tmp_path / "d.csv").write_text("\n".join(["row,signal,element,value", *lines, ""]))
    found = trace.compare(network, x, tmp_path / "d.csv")
    assert [(e.rows, e.elements, e.differ) for e in found.compared] == [(2, 3, 0)]
    lines[2] = f"3,fc,4,{arrays['fc'][3, 4] - 5}"
    (tmp_path / "d.csv").write_text("\n".join(["row,signal,element,value", *lines, ""]))
    found = trace.compare(network, x, tmp_path / "d.csv")
    assert found.first is not None
    assert (found.first.row, found.first.element) == (3, (4,))


def test_images_without_an_index(network: IntegerNetwork, tmp_path: Path) -> None:
    x = inputs(network, 3)
    rows = trace.compute(network, x)["fc"]
    one = tmp_path / "one"
    one.mkdir()
    for per_word, name in ((5, "fc.hex"), (1, "fc.bin")):
        text = images.words(rows.reshape(-1, per_word), 7, True, name[-3:])
        (one / name).write_text("// by hand\n@0\n" + text)
        assert trace.compare(network, x, one / name).equal
    (one / "fc.txt").write_text(images.decimal(rows))
    assert trace.compare(network, x, one).equal
    (one / "fc.txt").write_text(images.decimal(rows + 1))
    with pytest.raises(
        TraceError,
        match=re.escape(f"{one / 'fc.txt'}: fc, row 0, element 0 (flat) is {rows[0, 0] + 1}, in {one / 'fc.bin'}"),
    ):
        trace.compare(network, x, one)
    padded = np.pad(rows, ((0, 0), (0, 1))).reshape(-1, 3)
    (tmp_path / "fc.hex").write_text(images.words(padded, 7, True, "hex"))
    with pytest.raises(
        TraceError,
        match=re.escape(
            "words of 6 hex digits; expected 9 (a row of 5 elements of 7 bits) or 2 (an element); say how many "
            "elements a word has (--word)"
        ),
    ):
        trace.compare(network, x, tmp_path / "fc.hex")
    assert trace.compare(network, x, tmp_path / "fc.hex", elements_per_word=3).equal


def test_a_single_file_of_a_folder_goes_by_its_index(network: IntegerNetwork, dump: Path) -> None:
    found = trace.compare(network, inputs(network, 11), dump / "vectors" / "fc.hex")  # three elements a word
    assert found.equal
    assert [entry.signal.name for entry in found.compared] == ["fc"]
    (dump / "vectors" / "side.x.hex").write_text("")
    with pytest.raises(TraceError, match=re.escape("no signal 'side.x'; the network has x, edge, conv.sum")):
        trace.read(network, dump / "vectors" / "side.x.hex")


def test_vectors_of_a_bundle_are_a_dump(network: IntegerNetwork, tmp_path: Path) -> None:
    """Several values in one decimal file, a row of a value a word: the index says all that."""
    x = inputs(network, 3)
    arrays = trace.compute(network, x)
    signals = trace.signals(network)
    both = np.concatenate([arrays["fc"], arrays["side"]], axis=1)
    (tmp_path / "both.txt").write_text(images.decimal(both))
    (tmp_path / "layers").mkdir()
    (tmp_path / "layers/head.hex").write_text(images.words(arrays["head"], signals["head"].bits, True, "hex"))

    def value(name: str) -> dict[str, Any]:
        s = signals[name]
        return {"value": name, "shape": list(s.shape), "elements": s.elements, "bits": s.bits, "signed": s.signed}

    files = [
        {"file": "both.txt", "form": "decimal", "rows": 3, "values": [value("fc"), value("side")]},
        {"file": "layers/head.hex", "form": "hex", "rows": 3, "values": [value("head")]},
    ]
    index = {"format": "hawq_flow.vectors", "version": 1, "network": "0" * 64, "files": files}
    (tmp_path / "index.json").write_text(json.dumps(index))
    found = trace.compare(network, x, tmp_path)
    assert found.equal
    assert [entry.signal.name for entry in found.compared] == ["fc", "side", "head"]
    assert f"Made of another network, 0000000000000000, as {tmp_path / 'index.json'} says." in found.markdown()


# -------------------------------------------------------------------------------------------------- order of elements


def test_channels_last(network: IntegerNetwork, tmp_path: Path) -> None:
    x = inputs(network, 3)
    arrays = trace.compute(network, x)
    orders = reading.channels_last(network)
    last = {}
    for name, array in arrays.items():
        moved = np.moveaxis(array, 1, -1) if array.ndim > 2 else array
        if name.split(".")[0] in ("flat", "scaled"):  # flattened from (4, 2, 3), channels last
            moved = np.moveaxis(array.reshape(3, 4, 2, 3), 1, -1).reshape(3, -1)
        last[name] = np.ascontiguousarray(moved)
        assert (moved.reshape(3, -1) == array.reshape(3, -1)[:, orders[name]]).all(), name
    store.save_arrays(tmp_path / "d.npz", last)
    assert trace.compare(network, x, tmp_path / "d.npz", order="channels_last").equal
    store.save_arrays(tmp_path / "flat.npz", {name: array.reshape(3, -1) for name, array in last.items()})
    assert trace.compare(network, x, tmp_path / "flat.npz", order="channels_last").equal
    assert not trace.compare(network, x, tmp_path / "flat.npz").equal
    last["conv"][1, 0, 2, 3] += 1
    store.save_arrays(tmp_path / "d.npz", last)
    found = trace.compare(network, x, tmp_path / "d.npz", order="channels_last")
    assert found.first is not None
    assert (found.first.row, found.first.element) == (1, (3, 0, 2))
    with pytest.raises(TraceError, match=re.escape("x has shape (3, 4, 5, 2); expected (n, 2, 4, 5) or (n, 40)")):
        trace.read(network, tmp_path / "d.npz")
    lines = ["row,signal,element,value"]
    lines += [f"1,conv,{i},{value}" for i, value in enumerate(last["conv"][1].ravel().tolist()) if i % 2]
    (tmp_path / "d.csv").write_text("\n".join(lines) + "\n")
    found = trace.compare(network, x, tmp_path / "d.csv", order="channels_last")
    assert (found.first.element if found.first else None) == (3, 0, 2)
    with pytest.raises(TraceError, match="order 'last'; expected one of channels_first, channels_last"):
        trace.read(network, tmp_path / "d.csv", order="last")


@given(network=expressible_graphs(hls=True))
@settings(max_examples=40)
def test_channels_last_is_the_order_of_hls_projects(network: IntegerNetwork) -> None:
    """What to_hls lays out, value by value, wherever a Reshape flattened or a layer read."""
    try:
        plan = design(network, HlsConfig())
    except NotExact:
        assume(False)
    orders = reading.channels_last(network)
    for name, placed in plan.values.items():
        assert (orders[name] == placed.layout.indices).all(), name


def test_files_of_one_folder_that_say_more_together(network: IntegerNetwork, tmp_path: Path) -> None:
    """As a bundle's outputs (all rows) and its layers (the first rows); and halves of a signal."""
    x = inputs(network, 5)
    rows = trace.compute(network, x)["fc"]
    (tmp_path / "fc.bin").write_text(images.words(rows[:2], 7, True, "bin"))
    (tmp_path / "fc.txt").write_text(images.decimal(rows))
    found = trace.compare(network, x, tmp_path)
    assert [(entry.rows, entry.elements, entry.source) for entry in found.compared] == [
        (5, 25, str(tmp_path / "fc.txt"))
    ]
    both = tmp_path / "both"
    both.mkdir()
    for name, elements in (("elements.csv", (0, 2, 4)), ("elements.parquet", (1, 2, 3))):
        given = [(row, "fc", i, rows[row, i]) for row in (1, 3) for i in elements]
        table = pd.DataFrame(given, columns=list(reading.COLUMNS))
        table.to_csv(both / name, index=False) if name.endswith("csv") else table.to_parquet(both / name)
    found = trace.compare(network, x, both)
    assert found.equal
    assert [(entry.rows, entry.elements) for entry in found.compared] == [(2, 10)]
