"""The parts of a bundle that stand alone: archive, fixed-point standardization, the contract's page, licences."""

from __future__ import annotations

import io
import json
import re
import tarfile
from pathlib import Path

import numpy as np
import pytest
from handover_networks import contents, jets_like
from hypothesis import given
from hypothesis import strategies as st

from hawq_flow import interpret
from hawq_flow.handover import archive, contract, licences
from hawq_flow.handover.contents import Contents, HandoverError
from hawq_flow.handover.fixed_point import ERROR, fixed_point
from hawq_flow.network import InputSpec
from hawq_flow.numeric import IntType

# -------------------------------------------------------------------------------------------------------------- archive


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "from" / "jets"
    (made / "deep").mkdir(parents=True)
    (made / "a.txt").write_text("a\n")
    (made / "deep" / "b.sh").write_text("b\n")
    (made / "deep" / "b.sh").chmod(0o755)
    archive.write_sums(made)
    return made


def test_an_archive_unpacks_to_what_was_packed_and_is_the_same_bytes_twice(folder: Path, tmp_path: Path) -> None:
    for name in ("1.tar.gz", "2.tar.gz"):
        archive.pack(folder, tmp_path / name)
    assert (tmp_path / "1.tar.gz").read_bytes() == (tmp_path / "2.tar.gz").read_bytes()
    out = archive.unpack(tmp_path / "1.tar.gz", tmp_path / "to")
    assert out == tmp_path / "to" / "jets"
    assert archive.check_sums(out) == 2
    assert (out / "deep" / "b.sh").stat().st_mode & 0o111
    assert not (out / "a.txt").stat().st_mode & 0o111


def test_what_is_missing_changed_or_added_is_named(folder: Path) -> None:
    (folder / "a.txt").write_text("A\n")
    with pytest.raises(HandoverError, match=r"changed since the bundle was made: a\.txt"):
        archive.check_sums(folder)
    (folder / "a.txt").unlink()
    with pytest.raises(HandoverError, match=r"missing: a\.txt; unpack the archive again"):
        archive.check_sums(folder)
    (folder / "a.txt").write_text("a\n")
    (folder / "deep" / "new.h").write_text("")
    with pytest.raises(HandoverError, match=r"not in MANIFEST\.sha256: deep/new\.h"):
        archive.check_sums(folder)
    (folder / archive.SUMS).write_text("zz\n")
    with pytest.raises(HandoverError, match=r"MANIFEST\.sha256, line 1: 'zz'; expected a checksum, two blanks and"):
        archive.check_sums(folder)
    (folder / archive.SUMS).unlink()
    with pytest.raises(HandoverError, match=r"no MANIFEST\.sha256; not a handover bundle"):
        archive.check_sums(folder)


def _tar(path: Path, *entries: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for entry, content in entries:
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return path


def test_archives_of_others_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(HandoverError, match=r"none\.tar\.gz: no such file; give a bundle's archive"):
        archive.unpack(tmp_path / "none.tar.gz", out)
    (tmp_path / "text.tar.gz").write_text("not an archive")
    with pytest.raises(HandoverError, match=r"not readable as a tar\.gz archive"):
        archive.unpack(tmp_path / "text.tar.gz", out)
    up = _tar(tmp_path / "up.tar.gz", (tarfile.TarInfo("jets/../../evil"), b"x"))
    with pytest.raises(HandoverError, match=r"expected plain files below one folder; found jets/\.\./\.\./evil"):
        archive.unpack(up, out)
    link = tarfile.TarInfo("jets/link")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    with pytest.raises(HandoverError, match="found jets/link below jets"):
        archive.unpack(_tar(tmp_path / "link.tar.gz", (link, b"")), out)
    two = _tar(tmp_path / "two.tar.gz", (tarfile.TarInfo("a/x"), b"x"), (tarfile.TarInfo("b/x"), b"x"))
    with pytest.raises(HandoverError, match="below a, b"):
        archive.unpack(two, out)
    assert not out.exists()


def test_a_cut_archive_is_refused(folder: Path, tmp_path: Path) -> None:
    archive.pack(folder, tmp_path / "whole.tar.gz")
    whole = (tmp_path / "whole.tar.gz").read_bytes()
    for size in (0, 10, len(whole) // 2, len(whole) - 1):
        (tmp_path / "cut.tar.gz").write_bytes(whole[:size])
        with pytest.raises(HandoverError, match="not readable"):
            archive.unpack(tmp_path / "cut.tar.gz", tmp_path / f"out{size}")


# ---------------------------------------------------------------------------------------------------------- fixed point


@given(st.data())
def test_fixed_point_is_the_hosts_but_near_the_middle_between_two_integers(data: st.DataObject) -> None:
    elements = data.draw(st.integers(1, 4))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    type_ = IntType(data.draw(st.integers(2, 16)), data.draw(st.booleans()))
    spec = InputSpec(
        "x",
        (elements,),
        type_,
        np.asarray(np.exp2(rng.uniform(-12, 3))),
        np.asarray(int(rng.integers(*type_.range)) if data.draw(st.booleans()) else 0),
        rng.normal(0, 10.0 ** rng.integers(-3, 4), elements),
        np.exp2(rng.uniform(-8, 8, elements)),
    )
    constants = fixed_point(spec)
    assert constants is not None
    low, high = type_.range
    # Over the whole range of the integers and beyond it, where both must clip.
    wanted = rng.uniform(low - 4, high + 4, (400, elements))
    raw = (wanted - spec.zero_point) * spec.scale * spec.std + spec.mean
    host, firmware = spec.integers(raw), constants.integers(raw)
    exact = spec.standardize(raw) / spec.scale + spec.zero_point
    differ = host != firmware
    assert np.abs(host - firmware).max() <= 1
    assert (np.abs(np.abs(exact - np.floor(exact)) - 0.5)[differ] <= ERROR).all()
    products = constants.raw_integers(raw) * constants.multiplier
    assert max(abs(int(products.min())), abs(int(products.max()))) < 1 << (constants.product_bits - 1)
    huge = np.full((1, elements), 1e30)
    assert np.array_equal(constants.integers(huge), np.full((1, elements), high))
    assert np.array_equal(constants.integers(-huge), np.full((1, elements), low))


def test_an_input_too_wide_for_62_bits_has_no_fixed_point_form() -> None:
    assert fixed_point(InputSpec("x", (1,), IntType(30, True))) is None


# ------------------------------------------------------------------------------------------------------------- contract


def test_the_contracts_example_is_the_networks() -> None:
    given = contents(jets_like())
    document = contract.contract(given)
    json.dumps(document, allow_nan=False)
    network, example = given.network, document["example"]
    (spec,) = network.inputs
    found = example["inputs"]["x"]
    assert found["integers"] == given.rows["x"][0].tolist()
    assert spec.integers(np.array([found["raw"]])).tolist() == [found["integers"]]
    word = sum((v % (1 << 8)) << (8 * i) for i, v in enumerate(found["integers"]))
    assert int(found["word"], 16) == word
    (name,) = example["outputs"]
    out = example["outputs"][name]
    assert out["integers"] == given.outputs[name][0].tolist()
    assert out["real"] == [0.25 * v for v in out["integers"]]
    assert out["class"] == ["background", "signal"][int(np.argmax(out["integers"]))]
    measured = document["inputs"][0]["fixed_point"]["measured"]
    assert measured["elements"] == given.rows["x"].size
    assert measured["largest"] <= 1


def test_the_page_says_what_the_document_says() -> None:
    given = contents(jets_like())
    document = contract.contract(given)
    page = contract.page(given, document)
    assert "| 0 (pt) | " in page
    assert f"The largest is that of **{document['example']['outputs']['head_requant']['class']}**" in page
    assert document["example"]["inputs"]["x"]["word"] in page
    assert "4 elements, shape (4,), int8: two's complement, 8 bits, -128 to 127." in page
    assert re.search(r"On the vectors of this bundle \d+ of 160 elements differ", page)


def test_contents_refuse_what_does_not_belong_together() -> None:
    network = jets_like()
    with pytest.raises(HandoverError, match=r"name 'a/b'; expected a letter, then letters, digits"):
        contents(network, name="a/b")
    with pytest.raises(HandoverError, match="no rows; vectors that compare nothing prove nothing"):
        contents(network, rows=0)
    with pytest.raises(HandoverError, match="layer_rows 0; expected 1 or more"):
        contents(network, layer_rows=0)
    assert contents(network, layer_rows=7).layers == 7
    assert contents(network, layer_rows=1000).layers == 60
    assert isinstance(contents(network), Contents)


def test_rows_are_drawn_behind_the_first_of_the_data_and_reach_every_end_of_the_first_sums() -> None:
    given = contents(jets_like(), rows=200, drawn=30)
    assert given.count == 200 + 30 + 6
    assert given.parts == [
        {"rows": [0, 128], "of": "data", "first": 0},
        {"rows": [128, 164], "of": "drawn"},
        {"rows": [164, 236], "of": "data", "first": 128},
    ]
    x = given.vectors["x"]
    assert np.array_equal(np.concatenate([x[:128], x[164:]]), given.rows["x"])
    value = given.network.values["fc"]
    sums = interpret.trace(given.network, x[158:164])["fc"]
    assert np.array_equal(sums[:3].diagonal(), value.high)
    assert np.array_equal(sums[3:].diagonal(), value.low)
    assert given.covered["head_requant"]["elements"] == 2 * 236
    alone = contents(jets_like(), drawn=0)
    assert alone.count == 40
    assert alone.parts == [{"rows": [0, 40], "of": "data", "first": 0}]


# ------------------------------------------------------------------------------------------------------------- licences


def test_headers_say_whose_files_are(tmp_path: Path) -> None:
    types = tmp_path / "hls" / "vitis" / "project" / "firmware" / "ap_types"
    types.mkdir(parents=True)
    (types / "free.h").write_text("// Licensed under the Apache License, Version 2.0\n")
    (types / "theirs.h").write_text("// confidential and proprietary information of somebody\n")
    (types / "silent.h").write_text("#pragma once\n")
    licences.write(tmp_path)
    text = (tmp_path / "LICENSES" / "README.md").read_text()
    assert "* `hls/vitis/project/firmware/ap_types/theirs.h`" in text
    assert "1 files of these folders state no licence" in text
    assert "free.h" not in text
    for name in ("Apache-2.0.txt", "hls4ml.txt"):
        assert "Apache License" in (tmp_path / "LICENSES" / name).read_text()


def test_without_an_hls_project_nothing_of_hls4ml_is_mentioned(tmp_path: Path) -> None:
    licences.write(tmp_path)
    assert sorted(path.name for path in (tmp_path / "LICENSES").iterdir()) == ["Apache-2.0.txt", "README.md"]
    assert "hls4ml" not in (tmp_path / "LICENSES" / "README.md").read_text()
