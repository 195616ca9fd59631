"""What is no dump of a network: refused, with the file and the line, and what was expected."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trace_networks import inputs, mixed, plant, refused, write_all

from hawq_flow import store, trace
from hawq_flow.network import IntegerNetwork
from hawq_flow.trace import TraceError


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


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda a: {"other": a["x"]}, "d.npz: other: no signal 'other'; the network has x, edge, conv.sum"),
        (lambda a: {"fc": a["fc"][:, :4]}, "d.npz: fc has shape (11, 4); expected (n, 5)"),
        (lambda a: {"fc": a["fc"] + 0.5}, "is no integer that float64 holds exactly in 64 bits; dump the integers"),
        (lambda a: {"fc": a["fc"].astype(str)}, "d.npz: fc: row 0, element [0]: "),
        (lambda a: {"fc": a["fc"].astype(np.uint64) | np.uint64(1 << 63)}, "is no integer that uint64 holds"),
        (lambda a: {"fc": np.float32(a["fc"]) + np.float32(1 << 24)}, "is no integer that float32 holds exactly"),
        (
            lambda a: {"fc": np.concatenate([a["fc"], a["fc"]])},
            "fc has a row 21; the inputs have 11 rows",
        ),
        (lambda a: {"fc": a["fc"][:0]}, "d.npz: holds no integers of any signal; expected a dump: .npz, .csv"),
        (lambda a: {"fc": np.int64(1)}, "d.npz: fc has shape (); expected (n, 5)"),
    ],
)
def test_arrays_that_are_no_dump(
    network: IntegerNetwork, tmp_path: Path, change: Callable[[dict[str, Any]], dict[str, Any]], said: str
) -> None:
    arrays = trace.compute(network, inputs(network, 11))
    store.save_arrays(tmp_path / "d.npz", change(arrays))
    refused(network, tmp_path / "d.npz", said)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("0,other,0,1", "d.csv, line 4: no signal 'other'"),
        ("0,fc,5,1", "d.csv, line 4: row 0, element 5 of fc; expected a row from 0 and an element from 0 to 4"),
        ("0,fc,-1,1", "d.csv, line 4: row 0, element -1 of fc; expected a row from 0 and an element from 0 to 4"),
        ("-1,fc,0,1", "d.csv, line 4: row -1, element 0 of fc; expected a row from 0"),
        ("0,fc,0,1.5", "d.csv, line 4: value 1.5 is no integer of 64 bits"),
        ("0,fc,0,x", "d.csv, line 4: value x is no integer of 64 bits"),
        ("0,fc,0,", "d.csv, line 4: value nan is no integer of 64 bits"),
        ("0,fc,0,99999999999999999999", "d.csv, line 4: value 99999999999999999999 is no integer of 64 bits"),
        ("0,fc,1,1", "d.csv, line 4: row 0, element 1 of fc stands there a second time; give it once"),
        ("0,,1,1", "d.csv, line 4: no signal is named"),
        ("11,fc,1,1", "d.csv: fc has a row 11; the inputs have 11 rows"),
    ],
)
def test_lines_that_are_no_dump(network: IntegerNetwork, tmp_path: Path, line: str, said: str) -> None:
    (tmp_path / "d.csv").write_text(f"row,signal,element,value\n0,fc,1,1\n0,fc,2,3\n{line}\n")
    refused(network, tmp_path / "d.csv", said)


def test_tables_that_are_no_dump(network: IntegerNetwork, tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("row,signal,value\n0,fc,1\n")
    refused(network, tmp_path / "d.csv", "columns row, signal, value; expected row, signal, element, value")
    (tmp_path / "d.csv").write_text("row,signal,element,value\n\n0,fc,0,1\n")
    refused(network, tmp_path / "d.csv", "d.csv, line 2: row nan is no integer of 64 bits")
    for name, kind in (("d.parquet", "a table"), ("d.npz", "NPZ")):
        (tmp_path / name).write_bytes(b"nothing")
        refused(network, tmp_path / name, f"{name}: not readable as {kind}")
    np.save(tmp_path / "d.npy", np.zeros(3))
    (tmp_path / "d.npy").rename(tmp_path / "d.npz")
    refused(network, tmp_path / "d.npz", "d.npz: not readable as NPZ")
    (tmp_path / "d.xyz").write_text("")
    refused(network, tmp_path / "d.xyz", "d.xyz: ends in '.xyz'; expected .npz, .csv, .parquet, .hex, .bin, .txt, or")
    refused(network, tmp_path / "none", "none: no such file or folder; give a dump")
    (tmp_path / "empty").mkdir()
    refused(network, tmp_path / "empty", "empty: no dump in it; expected index.json, trace.npz, or images")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("xx", "fc.hex, line 3: 'xx' has digits without a value; expected hex digits"),
        ("zz", "fc.hex, line 3: 'zz' has digits without a value"),
        ("g0", "fc.hex, line 3: 'g0' is not a word of hex digits"),
        ("ffffff", "fc.hex, line 3: 'ffffff' has 24 bits; expected at most 21, 3 elements of 7 bits"),
        ("@5 0", "fc.hex, line 3: '@5' is not the address of the next word, 2"),
        ("0 0", "fc.hex: 13 words; expected a multiple of 2, a row of fc: 5 elements, 3 to a word"),
        ("0 0 0", "fc.hex: 7 rows; index.json says 6"),
    ],
)
def test_images_that_are_no_dump(network: IntegerNetwork, dump: Path, line: str, said: str) -> None:
    path = dump / "vectors" / "fc.hex"
    lines = path.read_text().splitlines()
    lines[2] = line
    path.write_text("\n".join(lines) + "\n")
    refused(network, dump / "vectors", said)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"values": [{"value": "fc", "shape": [5], "bits": 8, "signed": True}]}, "fc has bits 8; the network's has 7"),
        ({"values": [{"value": "fc", "shape": [4], "bits": 7, "signed": True}]}, "fc has shape [4]; the network's has"),
        (
            {"values": [{"value": "fc", "shape": [5], "bits": 7, "signed": False}]},
            "fc has signed False; the network's has True",
        ),
        ({"values": [{"value": "other"}]}, "no signal 'other'"),
        ({"values": [{}]}, "an entry without 'value'; write the dump again"),
        ({"form": "octal"}, "form 'octal' of 1 values, 3 to a word; not ours"),
        ({"file": "gone.hex"}, "gone.hex: missing; index.json lists it. Take its entry out to leave it out"),
        ({"rows": 5}, "fc.hex: 6 rows; index.json says 5"),
    ],
)
def test_indexes_that_belong_to_something_else(
    network: IntegerNetwork, dump: Path, change: dict[str, Any], said: str
) -> None:
    path = dump / "vectors" / "index.json"
    index = json.loads(path.read_text())
    place = next(i for i, entry in enumerate(index["files"]) if entry["file"] == "fc.hex")
    index["files"][place] |= change
    path.write_text(json.dumps(index))
    refused(network, dump / "vectors", said)
    if "bits 8" in said:
        index["network"] = "f" * 64
        path.write_text(json.dumps(index))
        refused(network, dump / "vectors", f"{said}. The index was made of another network, {'f' * 16}")


def test_inputs_that_a_dump_lacks(network: IntegerNetwork, tmp_path: Path) -> None:
    arrays = trace.compute(network, inputs(network, 3))
    store.save_arrays(tmp_path / "d.npz", {"fc": arrays["fc"]})
    with pytest.raises(
        TraceError, match="does not hold input 'x' whole, row by row from 0; give the inputs with --data"
    ):
        trace.compare(network, None, tmp_path / "d.npz")
    (tmp_path / "d.csv").write_text("row,signal,element,value\n0,x,0,1\n")
    with pytest.raises(TraceError, match="does not hold input 'x' whole"):
        trace.compare(network, None, tmp_path / "d.csv")


def test_forms_of_one_folder_that_disagree(network: IntegerNetwork, dump: Path) -> None:
    plant(dump, "csv", trace.signals(network)["fc"], 0, 0, 3)
    (dump / "elements.parquet").unlink()
    refused(network, dump, f"{dump / 'elements.csv'}: fc, row 0, element 0 (flat) is 3, in {dump / 'trace.npz'} ")
