"""Data sources, splitting, standardization, and the text of every error."""

from __future__ import annotations

import hashlib
import http.server
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hawq_flow import data
from hawq_flow.data import DataError, Part, Split, Standardization, load, split_rows
from hawq_flow.data import openml as openml_module

JETS = Path(__file__).resolve().parents[1] / "experiments" / "jets"


def _rows(n: int = 30, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 2)), np.array(["cat", "dog", "ant"])[np.arange(n) % 3]


def _write_csv(path: Path, header: str, rows: list[str]) -> None:
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")


def _write_small(folder: Path, kind: str, x: np.ndarray, y: np.ndarray) -> str:
    """Write columns a, b and kind; return the source's name."""
    path = folder / f"small{kind}"
    if kind == ".csv":
        _write_csv(path, "a,b,kind", [f"{float(p)!r},{float(q)!r},{c}" for (p, q), c in zip(x, y, strict=True)])
    elif kind == ".parquet":
        pq.write_table(pa.table({"a": x[:, 0], "b": x[:, 1], "kind": pa.array(list(y))}), path)
    else:
        np.savez(path, a=x[:, 0], b=x[:, 1], kind=y)
    return f"file:small{kind}"


def _everything(split: Split) -> np.ndarray:
    """All rows with their classes, in an order that does not depend on the split."""
    parts = (split.train, split.val, split.test)
    rows = np.concatenate([np.column_stack([part.x.reshape(len(part), -1), part.y]) for part in parts])
    return rows[np.lexsort(rows.T)]


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [".csv", ".parquet", ".npz"])
def test_file_is_read_exactly(tmp_path: Path, kind: str) -> None:
    x, y = _rows()
    split = load(_write_small(tmp_path, kind, x, y), root=tmp_path, label="kind")
    assert split.features == ("a", "b")
    assert split.classes == ("ant", "cat", "dog")
    assert (len(split.train), len(split.val), len(split.test)) == (21, 3, 6)
    expected = np.column_stack([x, np.searchsorted(split.classes, y)])
    assert np.array_equal(_everything(split), expected[np.lexsort(expected.T)])


def test_the_same_content_has_the_same_digest_whatever_the_format(tmp_path: Path) -> None:
    x, y = _rows()
    splits = [
        load(_write_small(tmp_path, kind, x, y), root=tmp_path, label="kind") for kind in (".csv", ".parquet", ".npz")
    ]
    assert len({split.digest for split in splits}) == 1
    x[4, 1] = np.nextafter(x[4, 1], 9)
    assert load(_write_small(tmp_path, ".csv", x, y), root=tmp_path, label="kind").digest != splits[0].digest


def test_digest_depends_on_names_seed_and_order_but_not_on_the_sign_of_zero(tmp_path: Path) -> None:
    x, y = _rows()
    x[3] = 0.0
    source = _write_small(tmp_path, ".npz", x, y)
    first = load(source, root=tmp_path, label="kind")
    assert load(source, root=tmp_path, label="kind").digest == first.digest
    assert load(source, root=tmp_path, label="kind", seed=1).digest != first.digest
    assert load(source, root=tmp_path, label="kind", features=["b", "a"]).digest != first.digest
    x[3] = -0.0
    assert load(_write_small(tmp_path, ".npz", x, y), root=tmp_path, label="kind").digest == first.digest


def test_features_are_chosen_in_the_order_given(tmp_path: Path) -> None:
    x, y = _rows()
    split = load(_write_small(tmp_path, ".csv", x, y), root=tmp_path, label="kind", features=["b"])
    assert split.features == ("b",)
    assert set(split.train.x[:, 0]) <= set(x[:, 1])


def test_spaces_around_labels_make_no_class(tmp_path: Path) -> None:
    _write_csv(tmp_path / "s.csv", "a, b,y", [f"{i}, {i % 3}.5,{('u', ' u', 'v')[i % 3]}" for i in range(12)])
    split = load("file:s.csv", root=tmp_path, label="y")
    assert split.classes == ("u", "v")
    assert split.features == ("a", "b")


def test_integer_labels_are_sorted_as_numbers(tmp_path: Path) -> None:
    _write_csv(tmp_path / "n.csv", "a,y", [f"{i},{(2, 10, 9)[i % 3]}" for i in range(12)])
    assert load("file:n.csv", root=tmp_path, label="y").classes == ("2", "9", "10")
    np.savez(tmp_path / "n.npz", a=np.arange(12.0), y=np.array([2.0, 10.0, 9.0])[np.arange(12) % 3])
    assert load("file:n.npz", root=tmp_path, label="y").classes == ("2", "9", "10")


def test_images_in_npz_share_one_scale(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 255, size=(20, 1, 3, 2), dtype=np.uint8)
    x[:, 0, 0, 0] = 0
    np.savez(tmp_path / "i.npz", x=x, y=np.arange(20) % 2)
    split = load("file:i.npz", root=tmp_path, label="y")
    assert split.train.x.shape[1:] == (1, 3, 2)
    assert split.features[:2] == ("x[0,0,0]", "x[0,0,1]")
    fitted = split.standardization()
    assert fitted.mean.shape == ()
    assert fitted.apply(split.train.x).std() == pytest.approx(1)


def test_shape_cuts_but_never_transposes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    last, grey = rng.random((20, 8, 6, 3)), rng.random((20, 8, 6, 1))
    np.savez(tmp_path / "i.npz", x=last, grey=grey, y=np.arange(20) % 2)
    with pytest.raises(
        DataError,
        match=r"`shape` \[3, 8, 6\] for examples of shape \[8, 6, 3\], the same sizes in another order; .*never "
        r"transposes, .*transpose the array to \(n, channels, height, width\) instead",
    ):
        load("file:i.npz", root=tmp_path, label="y", features=["x"], shape=[3, 8, 6])
    assert load("file:i.npz", root=tmp_path, label="y", features=["x"], shape=[8, 6, 3]).shape == (8, 6, 3)
    assert load("file:i.npz", root=tmp_path, label="y", features=["x"], shape=[6, 24]).shape == (6, 24)
    one = load("file:i.npz", root=tmp_path, label="y", features=["grey"], shape=[1, 8, 6])  # nothing else moves
    plain = load("file:i.npz", root=tmp_path, label="y", features=["grey"])
    np.testing.assert_array_equal(one.train.x[:, 0], plain.train.x[..., 0])


def test_dictionary_labels_booleans_and_decimals_in_parquet(tmp_path: Path) -> None:
    table = pa.table(
        {
            "a": pa.array(np.arange(12) % 5 > 2),
            "b": pa.array([f"{i}.5" for i in range(12)]).cast(pa.decimal128(5, 1)),
            "y": pa.array(["u", "v"] * 6).dictionary_encode(),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    split = load("file:t.parquet", root=tmp_path, label="y")
    assert split.classes == ("u", "v")
    assert _everything(split)[:, :2].sum() == 4 + sum(i + 0.5 for i in range(12))


Writer = Callable[[Path], None]


def _csv(header: str, rows: list[str]) -> Writer:
    return lambda folder: _write_csv(folder / "d.csv", header, rows)


def _npz(**arrays: Any) -> Writer:
    return lambda folder: np.savez(folder / "d.npz", **arrays)


GOOD = [f"{i},{i * i},{'uv'[i % 2]}" for i in range(10)]


@pytest.mark.parametrize(
    ("write", "options", "expected"),
    [
        (
            _csv("a,b,y", [*GOOD, "nan,1,u", ",2,v"]),
            {},
            r"2 of 12 rows .* column 'a' has 2 NaN or missing, the first in row 10",
        ),
        (_csv("a,b,y", [*GOOD, "1,-inf,u"]), {}, r"column 'b' has 1 infinite, the first in row 10; .* drop or fill"),
        (
            _csv("a,b,y", [*GOOD, "1,two,u"]),
            {},
            r"column 'b' holds 'two' in row 10 .* expected numbers; leave the column",
        ),
        (_csv("a,b,y", [*GOOD, "1,2"]), {}, r"rows cannot be read: .*Expected 3 columns, got 2.* every row"),
        (_csv("a,b,y", [*GOOD, "1,2,u,4"]), {}, r"Expected 3 columns, got 4"),
        (_csv("a,b,y", [*GOOD, "1,2,"]), {}, r"label column 'y' is empty in 1 of 11 rows, the first is row 10"),
        (_csv("a,b,y", [*GOOD, "1,2,w"]), {}, r"1 class with too few rows .*: 'w' \(1\); expected at least 3 rows"),
        (_csv("a,b,y", [r.replace("v", "u") for r in GOOD]), {}, r"holds only 'u'; expected at least two classes"),
        (_csv("a,a,y", GOOD), {}, r"column 'a' named more than once"),
        (_csv(",b,y", GOOD), {}, r"column 0 \(counted from 0\) has no name; expected .* index=False"),
        (_csv("a,b,y", []), {}, r"no rows; expected"),
        (_csv("a;b;y", []), {}, r"header is one column 'a;b;y'; expected columns separated by commas"),
        (
            _csv("a,b,y", [f"7,{r.split(',', 1)[1]}" for r in GOOD]),
            {},
            r"1 constant column in the 6 .*: 'a' \(always 7.0\)",
        ),
        (_csv("a,b,y", GOOD), {"features": ["a", "bb"]}, r"no column 'bb', which `features` names; did you mean 'b'\?"),
        (_csv("a,b,y", GOOD), {"features": ["a", "a"]}, r"feature 'a' named more than once"),
        (_csv("a,b,y", GOOD), {"features": ["a", "y"]}, r"column 'y' is both feature and label"),
        (_csv("a,b,y", GOOD), {"features": []}, r"no feature column; expected at least one"),
        (_csv("a,b,y", GOOD), {"features": "ab"}, r"`features` is the text 'ab'; expected a list"),
        (
            _csv("a,b,y", GOOD),
            {"label": "labl"},
            r"no column 'labl', which `label` names; expected one of the 3 columns",
        ),
        (_csv("a,b,y", GOOD), {"label": None}, r"no label column named; expected `label` .* 'a', 'b', 'y'"),
        (_csv("a,b,y", GOOD), {"val_fraction": 1.0}, r"val_fraction is 1.0; expected 0 <= val_fraction < 1"),
        (_csv("a,b,y", GOOD), {"test_fraction": -0.1}, r"test_fraction is -0.1; expected"),
        (_csv("a,b,y", GOOD), {"test_fraction": 0.0}, r"test_fraction is 0; expected more than 0"),
        (_csv("a,b,y", GOOD), {"test_fraction": float("nan")}, r"test_fraction is nan; expected"),
        (_csv("a,b,y", GOOD), {"val_fraction": 0.5, "test_fraction": 0.5}, r"leave no training rows; expected a sum"),
        (_csv("a,b,y", GOOD), {"seed": -1}, r"seed is -1; expected a non-negative integer"),
        (
            _npz(a=np.arange(9.0), y=np.arange(10) % 2),
            {},
            r"arrays have lengths \{'a': 9, 'y': 10\}; expected one length",
        ),
        (_npz(a=np.arange(8), b=np.ones((8, 2)), y=np.arange(8) % 2), {}, r"'b' has shape \(8, 2\) and is one of 2"),
        (_npz(a=np.arange(8), y=np.eye(8)), {}, r"label array 'y' has shape \(8, 8\); expected \(n,\).* argmax"),
        (_npz(a=np.array(list("abcd")), y=np.arange(4) % 2), {}, r"array 'a' is of type <U1; expected numbers"),
        (_npz(a=np.arange(4), y=np.array([0, 1, 0.5, np.nan])), {}, r"label column 'y' holds 0.5 in row 2"),
        (_npz(a=np.arange(4), y=np.array([1j] * 4)), {}, r"label column 'y' is of type complex128; expected strings"),
        (_npz(a=np.array([{}, {}], dtype=object), y=np.arange(2)), {}, r"cannot be read: .* no Python objects"),
        (_npz(a=np.zeros(0), y=np.zeros(0, int)), {}, r"no rows; expected"),
        (_npz(a=np.float64(1), y=np.arange(2)), {}, r"arrays have lengths \{'a': None"),
    ],
)
def test_errors_say_where_what_and_the_fix(
    tmp_path: Path, write: Writer, options: dict[str, Any], expected: str
) -> None:
    write(tmp_path)
    (name,) = (path.name for path in tmp_path.iterdir())
    with pytest.raises(DataError, match=f"^file:{name}: .*{expected}") as caught:
        load(f"file:{name}", root=tmp_path, **{"label": "y", **options})
    assert "expected" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("d.csv", b"", "the file is empty"),
        ("d.csv", b"\n\n", "the file is empty; expected a header line"),
        ("d.txt", b"a", r"d.txt ends in '.txt'; expected one of .csv, .parquet, .npz"),
        ("d.parquet", b"not parquet", r"cannot be read: .*; expected a Parquet file"),
        ("d.npz", b"not a zip", r"cannot be read: .*; expected an NPZ file"),
    ],
)
def test_files_that_are_not_what_their_name_says(tmp_path: Path, name: str, content: bytes, expected: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=expected):
        load(f"file:{name}", root=tmp_path, label="y")


def test_a_single_array_under_the_name_of_an_npz_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "d.npz").open("wb") as stream:
        np.save(stream, np.arange(3))
    with pytest.raises(DataError, match="holds a single array; expected an NPZ file with named arrays"):
        load("file:d.npz", root=tmp_path, label="y")


def test_missing_labels_and_text_columns_in_parquet(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1.0, 2.0], "y": ["u", None]}), tmp_path / "d.parquet")
    with pytest.raises(DataError, match=r"label column 'y' is missing in 1 of 2 rows, the first is row 1"):
        load("file:d.parquet", root=tmp_path, label="y")
    pq.write_table(pa.table({"a": ["1", "x"], "b": ["1", "2"], "y": ["u", "v"]}), tmp_path / "d.parquet")
    with pytest.raises(DataError, match=r"column 'a' holds 'x' in row 1"):
        load("file:d.parquet", root=tmp_path, label="y")
    with pytest.raises(
        DataError, match=r"column 'b' is of type string; expected numbers; store it as a numeric column"
    ):
        load("file:d.parquet", root=tmp_path, label="y", features=["b"])


def test_missing_file_names_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "jets_all.csv").write_text("a", encoding="utf-8")
    with pytest.raises(DataError, match=r"file:jet_all.csv: no file .*; did you mean 'jets_all.csv'\?"):
        load("file:jet_all.csv", root=tmp_path, label="y")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("jet", r"unknown data source 'jet'; did you mean 'jets'\? expected 'jets', 'openml:NUMBER'"),
        ("file:", r"unknown data source 'file:'; did you mean 'file'\?"),
        ("openml:jets", r"openml:jets: 'jets' is no OpenML number"),
        ("xyzzy", r"unknown data source 'xyzzy'; expected"),
    ],
)
def test_unknown_sources(source: str, expected: str) -> None:
    with pytest.raises(DataError, match=expected):
        load(source)


# --- splitting -------------------------------------------------------------------------------------------------------


@given(
    counts=st.lists(st.integers(3, 40), min_size=2, max_size=5),
    val=st.sampled_from([0.0, 0.05, 0.1, 0.3, 0.45]),
    test=st.sampled_from([0.01, 0.2, 0.5]),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=100, deadline=None)
def test_split_is_a_stratified_partition(counts: list[int], val: float, test: float, seed: int) -> None:
    y = np.repeat(np.arange(len(counts)), counts)
    parts = split_rows(y, [str(c) for c in range(len(counts))], val, test, seed)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(y)))
    for rows, fraction in zip(parts[1:], (val, test), strict=True):
        per_class = np.bincount(y[rows], minlength=len(counts))
        assert (per_class >= (fraction > 0)).all()
        # At most half a row from the fraction, but for the floor of one row and training's last one.
        assert (np.abs(per_class - fraction * np.array(counts)) <= 1 + 0.5 * (fraction >= 0.45)).all()
    assert np.bincount(y[parts[0]], minlength=len(counts)).min() >= 1
    for again, once in zip(split_rows(y, [str(c) for c in range(len(counts))], val, test, seed), parts, strict=True):
        assert np.array_equal(again, once)


def test_split_is_pinned() -> None:
    """A recorded split: it must never change, or results of different versions could not be compared."""
    y = np.arange(20) % 2
    train, val, test = split_rows(y, ["a", "b"], 0.1, 0.2, 7)
    assert (train.tolist(), val.tolist(), test.tolist()) == PINNED


PINNED = ([17, 19, 1, 15, 0, 16, 10, 9, 5, 2, 8, 14, 18, 7], [4, 13], [12, 3, 11, 6])


def test_rows_sorted_by_class_come_out_mixed() -> None:
    y = np.repeat([0, 1], 500)
    for rows in split_rows(y, ["a", "b"], 0.1, 0.2, 0):
        half = y[rows[: len(rows) // 2]].mean()
        assert 0.3 < half < 0.7


def test_split_refuses_classes_that_training_never_sees() -> None:
    x = np.arange(6.0).reshape(3, 2)
    with pytest.raises(DataError, match=r"mine: 1 class in the test part without a training row: 'b'; .* add rows"):
        Split(Part(x, [0, 0, 0]), Part(x, [0, 0, 0]), Part(x, [0, 1, 0]), ("p", "q"), ("a", "b"), "mine")
    with pytest.raises(DataError, match=r"labels of the val part run from 0 to 2; expected 0 to 1"):
        Split(Part(x, [0, 1, 0]), Part(x, [0, 2, 0]), Part(x, [0, 1, 0]), ("p", "q"), ("a", "b"), "mine")


def test_split_refuses_wrong_column_counts_and_values() -> None:
    good = Part(np.arange(6.0).reshape(3, 2), [0, 1, 0])
    with pytest.raises(DataError, match=r"examples have shapes .*'test': \(3,\).*; expected one shape with 2 values"):
        Split(good, good, Part(np.ones((2, 3)), [0, 1]), ("p", "q"), ("a", "b"), "mine")
    bad = Part(np.array([[1.0, np.nan], [np.inf, np.nan]]), [0, 1])
    with pytest.raises(
        DataError, match=r"2 of 2 rows of the val part .*: column 'p' has 1 infinite, .* row 1, 'q' has 2 NaN"
    ):
        Split(good, bad, good, ("p", "q"), ("a", "b"), "mine")
    with pytest.raises(DataError, match=r"y is of type float64; expected integers"):
        Part(np.ones((2, 2)), np.array([0.5, 1.0]))
    with pytest.raises(DataError, match=r"x has shape \(2,\) and y has shape \(2,\); expected \(n, ...\)"):
        Part(np.ones(2), [0, 1])


def test_parts_cannot_be_written_to() -> None:
    x = np.arange(6.0).reshape(3, 2)
    part = Part(x, [0, 1, 0])
    with pytest.raises(ValueError, match="read-only"):
        part.x[0, 0] = 5
    x[0, 0] = 9
    assert part.x[0, 0] == 0


# --- standardization -------------------------------------------------------------------------------------------------


def test_standardization_is_fitted_on_train_only(tmp_path: Path) -> None:
    x, y = _rows(60)
    split = load(_write_small(tmp_path, ".npz", x, y), root=tmp_path, label="kind")
    fitted = split.standardization()
    assert np.array_equal(fitted.mean, split.train.x.mean(axis=0))
    assert np.array_equal(fitted.std, split.train.x.std(axis=0))
    out = fitted.apply(split.train.x)
    assert out.dtype == np.float64
    assert out.mean(axis=0) == pytest.approx([0, 0], abs=1e-12)
    assert out.std(axis=0) == pytest.approx([1, 1])
    assert fitted.apply(split.test.x).std(axis=0) != pytest.approx([1, 1], abs=1e-6)


def test_a_column_constant_in_training_is_refused_even_when_others_vary() -> None:
    x = np.array([[1.0, 0.1], [2.0, 0.1], [3.0, 0.1]])
    with pytest.raises(DataError, match=r"1 constant column in the 3 training rows: 'q' \(always 0.1\); .* `features`"):
        Standardization.fit(x, ("p", "q"))
    with pytest.raises(DataError, match=r"'everything' \(always 1.0\)"):
        Standardization.fit(np.ones((3, 2)), ("p", "q"), scale="shared")
    with pytest.raises(DataError, match="no training example"):
        Standardization.fit(np.ones((0, 2)))


@given(st.lists(st.tuples(st.floats(-1e300, 1e300), st.floats(1e-300, 1e300)), min_size=1, max_size=8))
def test_standardization_survives_json(pairs: list[tuple[float, float]]) -> None:
    mean, std = np.array(pairs).T
    one = Standardization(mean, std)
    other = Standardization.from_dict(json.loads(json.dumps(one.to_dict())))
    assert other == one
    assert hash(other) == hash(one)


def test_standardization_refuses_what_is_none() -> None:
    with pytest.raises(DataError, match=r"std \[0.0\]; expected finite means and finite standard deviations above 0"):
        Standardization(np.zeros(1), np.zeros(1))
    with pytest.raises(DataError, match=r"mean has shape \(2,\) and std \(1,\); expected equal shapes"):
        Standardization(np.zeros(2), np.ones(1))
    with pytest.raises(DataError, match=r"keys \['mean'\]; expected \['mean', 'std'\]"):
        Standardization.from_dict({"mean": [0.0]})
    with pytest.raises(DataError, match=r"examples of shape \(3,\); expected \(2,\)"):
        Standardization(np.zeros(2), np.ones(2)).apply(np.ones((5, 3)))


# --- digits and jets -------------------------------------------------------------------------------------------------


def test_digits() -> None:
    split = load("digits")
    assert split.train.x.shape == (1259, 64)
    assert (len(split.val), len(split.test)) == (179, 359)
    assert split.features[8] == "pixel_1_0"
    assert split.classes == tuple("0123456789")
    assert split.standardization().mean.shape == ()
    with pytest.raises(DataError, match="digits: `features` or `label` given; expected neither"):
        load("digits", label="digit")


def test_jets() -> None:
    split = load("jets", root=JETS)
    assert split.classes == ("g", "q", "t", "w", "z")
    assert len(split.features) == 16
    assert (len(split.train), len(split.val), len(split.test)) == (42_000, 6_000, 12_000)
    for part in (split.train, split.val, split.test):
        assert len(set(np.bincount(part.y).tolist())) == 1
    masses = [np.median(split.train.x[split.train.y == c, 14]) for c in range(5)]
    assert masses[3] == pytest.approx(80, abs=2)
    assert masses[4] == pytest.approx(90, abs=2)
    assert masses[2] == pytest.approx(165, abs=6)


def test_jets_that_are_absent_or_damaged(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"jets: no file .*jets.parquet; .*experiments/jets/simulate.py"):
        load("jets", root=tmp_path)
    pq.write_table(pa.table({"a": [1.0]}), tmp_path / "jets.parquet")
    (tmp_path / "jets.json").write_text('{"sha256": "00"}', encoding="utf-8")
    with pytest.raises(DataError, match=r"has SHA-256 \w{64}; expected 00, which jets.json records; restore both"):
        load("jets", root=tmp_path)


def test_data_imports_no_torch() -> None:
    code = "import sys, hawq_flow.data; sys.exit('torch' in sys.modules or 'sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- OpenML: a server on this machine stands in for it ---------------------------------------------------------------


ARFF = (
    "% comment\n@RELATION 'jets'\n\n@ATTRIBUTE a REAL\n@attribute 'b c' numeric\n@ATTRIBUTE class {'u','v w'}\n@DATA\n"
    + "\n".join(f"{i}.25,{-i},{('u', chr(39) + 'v w' + chr(39))[i % 2]}" for i in range(20))
)


class _OpenML:
    """Answers with what ``files`` holds, by path; counts requests."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.requests: list[str] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.requests.append(self.path)
                body = outer.files.get(self.path)
                self.send_response(412 if body is None else 200)
                self.send_header("Content-Length", str(len(body or b"")))
                self.end_headers()
                self.wfile.write(body or b"")

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.base = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def serve(self, body: str = ARFF, **changes: str) -> None:
        about = {
            "id": "42468",
            "format": "ARFF",
            "url": f"{self.base}/file.arff",
            "default_target_attribute": "class",
            "md5_checksum": hashlib.md5(body.encode(), usedforsecurity=False).hexdigest(),
            **changes,
        }
        self.files = {"/42468": json.dumps({"data_set_description": about}).encode(), "/file.arff": body.encode()}

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def openml(monkeypatch: pytest.MonkeyPatch) -> Iterator[_OpenML]:
    server = _OpenML()
    server.serve()
    monkeypatch.setattr(openml_module, "OPENML_URL", server.base + "/{number}")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    yield server
    server.close()


def test_openml_is_downloaded_once_and_then_read_offline(openml: _OpenML, tmp_path: Path) -> None:
    first = load("openml:42468", cache=tmp_path)
    assert first.features == ("a", "b c")
    assert first.classes == ("u", "v w")
    assert len(first.train) == 14
    assert openml.requests == ["/42468", "/file.arff"]
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["42468.arff", "description.json"]
    openml.files = {}
    assert load("openml:42468", cache=tmp_path).digest == first.digest
    assert len(openml.requests) == 2


def test_openml_uses_the_cache_folder_of_the_user(
    openml: _OpenML, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    load("openml:42468")
    assert (tmp_path / "hawq_flow" / "openml" / "42468" / "42468.arff").is_file()
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data.cache_folder() == Path.home() / ".cache" / "hawq_flow"


def test_openml_refuses_a_wrong_checksum_and_keeps_nothing(openml: _OpenML, tmp_path: Path) -> None:
    openml.serve(md5_checksum="0" * 32)
    with pytest.raises(DataError, match=r"has MD5 \w{32} \(\d+ bytes\); expected 0{32}, .* try again"):
        load("openml:42468", cache=tmp_path)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["description.json"]


def test_openml_refuses_a_damaged_cache(openml: _OpenML, tmp_path: Path) -> None:
    load("openml:42468", cache=tmp_path)
    (tmp_path / "openml" / "42468" / "42468.arff").write_text(ARFF + "\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"42468.arff has MD5 \w{32}; expected \w{32}, .*; delete it and run again"):
        load("openml:42468", cache=tmp_path)


def test_openml_offline_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = _OpenML()
    server.close()
    monkeypatch.setattr(openml_module, "OPENML_URL", server.base + "/{number}")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(
        DataError, match=r"cannot download .*Expected a network, or a copy .*'jets' ships with the project"
    ):
        load("openml:42468", cache=tmp_path)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("body", "changes", "expected"),
    [
        (ARFF, {"format": "Sparse_ARFF"}, r"its format is 'Sparse_ARFF'; expected 'ARFF' \(dense\)"),
        (ARFF, {"url": "file:///etc/hosts"}, r"the address 'file:///etc/hosts' is not http"),
        (ARFF.replace("@DATA", "DATA"), {}, r"42468.arff has no @DATA line"),
        (ARFF.replace("'b c' numeric", "'b c'"), {}, r"line 5 of 42468.arff is .*; expected @ATTRIBUTE name type"),
        (ARFF + "\n1,x,u", {}, r"column 'b c' holds 'x' in row 20"),
        (ARFF + "\n1,?,u", {}, r"column 'b c' has 1 NaN or missing, the first in row 20"),
    ],
)
def test_openml_files_that_cannot_be_used(
    openml: _OpenML, tmp_path: Path, body: str, changes: dict[str, str], expected: str
) -> None:
    openml.serve(body, **changes)
    with pytest.raises(DataError, match=expected):
        load("openml:42468", cache=tmp_path)


def test_openml_unknown_number_and_nonsense(openml: _OpenML, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"/1 answered 412 .*; expected a data set of that number"):
        load("openml:1", cache=tmp_path)
    openml.files["/42468"] = b"<html>"
    with pytest.raises(
        DataError, match=r"is not a description of a data set \(JSONDecodeError.*delete it and run again"
    ):
        load("openml:42468", cache=tmp_path)


def test_text_that_is_not_utf8_and_labels_that_are_no_names_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("a,kind\n1,\xe9\n".encode("utf-16"))
    with pytest.raises(DataError, match=r"a\.csv is not UTF-8 .*save it as UTF-8 text"):
        load("file:a.csv", root=tmp_path, label="kind")
    table = pa.table({"a": [1.0, 2.0], "kind": [[1], [2]]})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"label column 'kind' is of type list.*expected strings or integers"):
        load("file:a.parquet", root=tmp_path, label="kind")


def test_a_newline_in_quotes_belongs_to_its_value(tmp_path: Path) -> None:
    rows = "".join(f'{i % 7},{i % 5},"class\n{i % 2}"\n' for i in range(200_000))
    (tmp_path / "a.csv").write_text("a,b,kind\n" + rows)
    split = load("file:a.csv", root=tmp_path, label="kind")
    assert split.classes == ("class\n0", "class\n1")
