"""Artifacts on disk: absent or complete, whatever happens while they are made; remade when anything changed."""

from __future__ import annotations

import enum
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hawq_flow import store
from hawq_flow.store import MANIFEST, Artifact, StoreError, canonical_digest, code_digest, make, open_artifact, plain


def filler(content: str = "hello", name: str = "a.txt") -> Callable[[Path], None]:
    def build(folder: Path) -> None:
        (folder / name).write_text(content)
        (folder / "sub").mkdir()
        (folder / "sub" / "b.bin").write_bytes(bytes(range(256)))

    return build


def forbidden(folder: Path) -> None:
    raise AssertionError("built again")


def beside(folder: Path) -> list[str]:
    """Names in a folder, locks left out: a lock file stays, empty."""
    return sorted(p.name for p in folder.iterdir() if not p.name.endswith(".lock"))


def tree(path: Path) -> dict[str, bytes]:
    return {f.relative_to(path).as_posix(): f.read_bytes() for f in sorted(path.rglob("*")) if f.is_file()}


# ---------------------------------------------------------------------------------------------------- making, skipping


def test_make_writes_files_and_a_manifest(tmp_path: Path) -> None:
    artifact = make(tmp_path / "runs" / "one", "data", {"seed": 3}, filler())
    assert set(tree(artifact.path)) == {"a.txt", "sub/b.bin", MANIFEST}
    manifest = artifact.manifest
    assert manifest["stage"] == "data"
    assert manifest["depends"] == {"seed": 3}
    assert set(manifest["files"]) == {"a.txt", "sub/b.bin"}
    assert artifact.file("a.txt").read_text() == "hello"
    assert open_artifact(artifact.path) == artifact
    assert beside(artifact.path.parent) == ["one"]  # nothing beside it
    with pytest.raises(StoreError, match=r"no file 'c'; it holds a\.txt, sub/b\.bin"):
        artifact.file("c")


def test_an_artifact_is_reused_while_nothing_changes(tmp_path: Path) -> None:
    reused: list[int] = []
    first = make(tmp_path / "a", "s", {"x": 1, "y": (2, 3)}, filler())
    again = make(tmp_path / "a", "s", {"y": [2, 3], "x": 1}, forbidden, on_reuse=lambda: reused.append(1))
    assert again.manifest == first.manifest
    assert reused == [1]


@pytest.mark.parametrize(
    ("stage", "depends"),
    [("t", {"x": 1}), ("s", {"x": 2}), ("s", {"x": 1, "y": None}), ("s", {}), ("s", {"x": 1.5}), ("s", {"x": "1"})],
)
def test_a_changed_key_makes_it_again(tmp_path: Path, stage: str, depends: dict[str, Any]) -> None:
    make(tmp_path / "a", "s", {"x": 1}, filler("old", "old.txt"))
    new = make(tmp_path / "a", stage, depends, filler("new"), on_reuse=lambda: pytest.fail("reused"))
    assert set(tree(new.path)) == {"a.txt", "sub/b.bin", MANIFEST}
    assert beside(tmp_path) == ["a"]


def test_a_new_format_makes_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "a", "s", {}, filler("old"))
    monkeypatch.setattr(store, "FORMAT_VERSION", 99)
    with pytest.raises(StoreError, match="format 1; this hawq_flow reads 99"):
        open_artifact(tmp_path / "a")
    assert make(tmp_path / "a", "s", {}, filler("new")).file("a.txt").read_text() == "new"


def test_made_twice_the_bytes_are_the_same(tmp_path: Path) -> None:
    def build(folder: Path) -> None:
        filler()(folder)
        store.save_arrays(folder / "arrays.npz", {"x": np.arange(5), "y": np.eye(2)})
        store.write_json(folder / "z.json", {"b": 1, "a": [1.5, None]})

    for name in ("a", "b"):
        make(tmp_path / name, "s", {"x": 1}, build)
    assert tree(tmp_path / "a") == tree(tmp_path / "b")
    assert open_artifact(tmp_path / "a").digest == open_artifact(tmp_path / "b").digest


def test_the_digest_follows_contents_and_names(tmp_path: Path) -> None:
    digests = {
        make(tmp_path / str(i), "s", {}, build).digest
        for i, build in enumerate((filler(), filler("hellp"), filler(name="c.txt")))
    }
    assert len(digests) == 3
    assert make(tmp_path / "3", "other", {"y": 1}, filler()).digest in digests  # of the files, not of their key


# ----------------------------------------------------------------------------------------------------------- damage


def damage_missing(path: Path) -> None:
    (path / "a.txt").unlink()


def damage_changed(path: Path) -> None:
    (path / "sub" / "b.bin").write_bytes(bytes(range(255)) + b"\x00")


def damage_manifest(path: Path) -> None:
    (path / MANIFEST).write_text("{")


def damage_no_manifest(path: Path) -> None:
    (path / MANIFEST).unlink()


DAMAGES = {
    damage_missing: "file 'a.txt' of its manifest is missing; delete the folder and run again",
    damage_changed: r"b\.bin: changed since it was made; delete the folder and run the stage again",
    damage_manifest: r"manifest\.json: unreadable .*delete the folder and run the stage again",
    damage_no_manifest: r"no manifest\.json; not a hawq_flow artifact, or one whose making was interrupted",
}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda d: d.__name__)
def test_damage_is_named(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    path = make(tmp_path / "a", "s", {}, filler()).path
    damage(path)
    with pytest.raises(StoreError, match=DAMAGES[damage]):
        open_artifact(path)


@pytest.mark.parametrize("damage", [damage_missing, damage_changed, damage_manifest], ids=lambda d: d.__name__)
def test_a_damaged_artifact_is_made_again(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    before = tree(make(tmp_path / "a", "s", {}, filler()).path)
    damage(tmp_path / "a")
    make(tmp_path / "a", "s", {}, filler(), on_reuse=lambda: pytest.fail("reused"))
    assert tree(tmp_path / "a") == before


@pytest.mark.parametrize("text", ["[]", "3", "null", '"files"', '{"format": 1}', '{"format": 1, "files": 3}', "\xff"])
def test_manifests_that_are_none_are_refused(tmp_path: Path, text: str) -> None:
    path = make(tmp_path / "a", "s", {}, filler()).path
    (path / MANIFEST).write_bytes(text.encode("latin-1"))
    with pytest.raises(StoreError, match="unreadable"):
        open_artifact(path)


def test_unchecked_opening_reads_the_manifest_only(tmp_path: Path) -> None:
    path = make(tmp_path / "a", "s", {}, filler()).path
    damage_changed(path)
    assert open_artifact(path, check=False).manifest["stage"] == "s"


def test_a_folder_that_is_no_artifact_is_not_deleted(tmp_path: Path) -> None:
    """A path typed wrongly must not cost anyone their files: making is atomic, so such a folder is not ours."""
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.tex").write_text("years of work")
    with pytest.raises(
        StoreError, match=r"thesis: holds files but no manifest\.json; not a hawq_flow artifact.*move it"
    ):
        make(tmp_path / "thesis", "s", {}, filler())
    assert (tmp_path / "thesis" / "chapter1.tex").read_text() == "years of work"
    assert beside(tmp_path) == ["thesis"]
    (tmp_path / "empty").mkdir()
    assert make(tmp_path / "empty", "s", {}, filler()).file("a.txt").is_file()


def test_builders_do_not_write_the_manifest(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"stage s wrote a file named manifest\.json; that name is the store's"):
        make(tmp_path / "a", "s", {}, filler(name=MANIFEST))
    assert beside(tmp_path) == []


# ------------------------------------------------------------------------------------------------------ interruptions


class Halt(BaseException):
    """Stands for whatever stops a process between two system calls."""


STEPS = ["build", "file_digest", "write_json", "_flush", "chmod", "rename", "second rename"]


@pytest.mark.parametrize("old", [False, True], ids=["new", "over an old one"])
@pytest.mark.parametrize("step", STEPS)
def test_interrupted_anywhere_it_is_the_old_one_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, old: bool
) -> None:
    path = tmp_path / "a"
    before: dict[str, bytes] = {}
    if old:
        before = tree(make(path, "s", {"v": 1}, filler("old")).path)
    calls = 0

    def halt(*arguments: Any, **options: Any) -> None:
        raise Halt

    def build(folder: Path) -> None:
        filler("new")(folder)
        if step == "build":
            raise Halt

    with monkeypatch.context() as patch:
        if step in ("file_digest", "write_json", "_flush"):
            patch.setattr(store, step, halt)
        elif step in ("chmod", "rename"):
            patch.setattr(store.os, step, halt)
        elif step == "second rename":
            real = os.rename

            def rename(source: Any, target: Any) -> None:
                nonlocal calls
                calls += 1
                if calls == 2:
                    raise Halt
                real(source, target)

            patch.setattr(store.os, "rename", rename)
        if step == "second rename" and not old:
            make(path, "s", {"v": 2}, build)  # there is one rename only
        else:
            with pytest.raises(Halt):
                make(path, "s", {"v": 2}, build)
    if path.exists():
        found = tree(path)
        assert open_artifact(path).manifest["depends"] == {"v": 2 if step == "second rename" and not old else 1}
        assert found == before or not old
    else:
        assert not old or step == "second rename"
    assert make(path, "s", {"v": 2}, filler("new")).file("a.txt").read_text() == "new"


KILLED = """
import os, signal, sys
from pathlib import Path
from hawq_flow import store

def build(folder):
    for i in range(3):
        (folder / f"{i}.bin").write_bytes(bytes(200_000))
        if sys.argv[2] == f"build {i}":
            os.kill(os.getpid(), signal.SIGKILL)

def killer(name, count):
    real, calls = getattr(store, name), 0
    def wrapped(*arguments, **options):
        nonlocal calls
        calls += 1
        if calls == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **options)
    setattr(store, name, wrapped)

step, _, count = sys.argv[2].partition(" ")
if step != "build":
    killer(step, int(count))
store.make(Path(sys.argv[1]), "s", {"v": 2}, build)
"""


@pytest.mark.parametrize("old", [False, True], ids=["new", "over an old one"])
def test_a_killed_process_leaves_no_half_artifact(tmp_path: Path, old: bool) -> None:
    """SIGKILL, which nothing can catch, at every step: what is at the path is whole, or is not there."""
    for i, step in enumerate(
        ("build 0", "build 2", "file_digest 2", "write_json 1", "_flush 1", "_flush 4", "_replace 1")
    ):
        folder = tmp_path / str(i)
        path = folder / "a"
        before = tree(make(path, "s", {"v": 1}, filler("old")).path) if old else {}
        done = subprocess.run([sys.executable, "-c", KILLED, str(path), step], timeout=60, check=False)
        assert done.returncode == -signal.SIGKILL, step
        assert (tree(path) if path.exists() else {}) == before, step
        if old:
            assert open_artifact(path).manifest["depends"] == {"v": 1}
        made = make(path, "s", {"v": 2}, filler("new"))
        assert made.file("a.txt").read_text() == "new"
        assert beside(folder) == ["a"]  # what the killed process left is cleared


def test_a_build_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def build(folder: Path) -> None:
        filler()(folder)
        raise ValueError("no data")

    with pytest.raises(ValueError, match="no data"):
        make(tmp_path / "a", "s", {}, build)
    assert beside(tmp_path) == []


def test_write_atomic_replaces_whole_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "deep" / "f.txt"
    store.write_atomic(path, "one")
    assert path.read_bytes() == b"one"
    store.write_atomic(path, b"\x00\x01")
    assert path.read_bytes() == b"\x00\x01"

    def halt(*arguments: Any) -> None:
        raise Halt

    for step in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(store.os, step, halt)
            with pytest.raises(Halt):
                store.write_atomic(path, "three")
        assert path.read_bytes() == b"\x00\x01"
        assert [p.name for p in path.parent.iterdir()] == ["f.txt"]


# ------------------------------------------------------------------------------------------------------------ digests


class Colour(enum.Enum):
    RED = "red"


@dataclass(frozen=True)
class Section:
    width: int
    colour: Colour
    parts: tuple[int, ...] = ()


def test_plain_values() -> None:
    value = {1: Section(3, Colour.RED, (1, 2)), "p": Path("a/b"), "n": np.float64(0.5), "i": np.int32(4), "b": True}
    assert plain(value) == {
        "1": {"width": 3, "colour": "red", "parts": [1, 2]},
        "p": "a/b",
        "n": 0.5,
        "i": 4,
        "b": True,
    }


def test_digests_depend_on_values_not_on_order_or_containers() -> None:
    assert canonical_digest({"a": 1, "b": [1, 2]}) == canonical_digest({"b": (1, 2), "a": 1})
    assert canonical_digest(Section(3, Colour.RED)) == canonical_digest({"width": 3, "colour": "red", "parts": []})
    different = [1, 1.5, "1", True, None, [1], {"a": 1}, {"a": 2}, {"b": 1}, "é"]
    assert len({canonical_digest(value) for value in different}) == len(different)
    with pytest.raises(TypeError, match="not JSON serializable"):
        canonical_digest({"a": object()})


def test_json_files_refuse_nan(tmp_path: Path) -> None:
    store.write_json(tmp_path / "a" / "b.json", {"x": Colour.RED})
    assert (tmp_path / "a" / "b.json").read_text() == '{\n  "x": "red"\n}\n'
    with pytest.raises(ValueError, match="not JSON compliant"):
        store.write_json(tmp_path / "c.json", {"x": float("nan")})


def test_arrays_come_back(tmp_path: Path) -> None:
    arrays = {"x": np.arange(4, dtype=np.int16), "y": np.eye(2)}
    store.save_arrays(tmp_path / "a.npz", arrays)
    back = store.load_arrays(tmp_path / "a.npz")
    assert set(back) == set(arrays)
    assert all((back[k] == v).all() and back[k].dtype == v.dtype for k, v in arrays.items())


def test_versions_are_the_installed_ones() -> None:
    assert store.versions("numpy") == {"numpy": np.__version__}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    files = {
        "__init__.py": "",
        "alone.py": "x = 1",
        "top.py": "from hawq_flow.middle import f",
        "middle.py": "import numpy\ndef f():\n    from hawq_flow import bottom\n",
        "bottom.py": "import hawq_flow.pack.part",
        "pack/__init__.py": "y = 2",
        "pack/part.py": "z = 3",
        "pack/other.py": "w = 4",
        "cycle_a.py": "from hawq_flow.cycle_b import x",
        "cycle_b.py": "from hawq_flow.cycle_a import y",
    }
    for name, text in files.items():
        path = tmp_path / "hawq_flow" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    monkeypatch.setattr(store, "_PACKAGE", tmp_path / "hawq_flow")
    code_digest.cache_clear()
    yield tmp_path / "hawq_flow"
    code_digest.cache_clear()


@pytest.mark.parametrize(
    ("module", "changes", "others"),
    [
        ("top", ["top", "middle", "bottom", "pack/part", "pack/__init__"], ["alone", "pack/other", "cycle_a"]),
        ("pack", ["pack/__init__", "pack/part", "pack/other"], ["top", "bottom"]),
        ("pack.part", ["pack/part", "pack/__init__"], ["pack/other"]),
        ("cycle_a", ["cycle_a", "cycle_b"], ["alone"]),
        ("alone", ["alone"], ["top", "pack/part"]),
    ],
)
def test_code_digests_follow_imports(package: Path, module: str, changes: list[str], others: list[str]) -> None:
    before = code_digest(module)
    for name in (*changes, *others):
        path = package / f"{name}.py"
        text = path.read_text()
        path.write_text(text + "\n# changed\n")
        code_digest.cache_clear()
        assert (code_digest(module) != before) == (name in changes), name
        path.write_text(text)
        code_digest.cache_clear()
    assert code_digest(module) == before


def test_code_digests_of_the_real_package() -> None:
    assert code_digest("numeric") != code_digest("network")
    assert code_digest("lower") == code_digest("lower")


def test_artifacts_are_values(tmp_path: Path) -> None:
    assert Artifact(tmp_path, {"files": {}}) == Artifact(tmp_path, {"files": {}})


def test_what_a_killed_build_left_is_cleared_by_the_next(tmp_path: Path) -> None:
    left = tmp_path / ".a.work.dead"
    left.mkdir()
    (left / "half.txt").write_text("half")
    make(tmp_path / "a", "s", {}, filler())
    assert beside(tmp_path) == ["a"]


def test_two_processes_make_one_artifact_once(tmp_path: Path) -> None:
    script = (
        "import sys, time\nfrom pathlib import Path\nfrom hawq_flow import store\n"
        "def build(folder):\n    print('built', flush=True)\n    time.sleep(1.0)\n    (folder / 'f').write_text('x')\n"
        "store.make(Path(sys.argv[1]), 's', {}, build)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "a")]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [run.communicate(timeout=60)[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0]
    assert sorted(outputs) == ["", "built\n"]
    assert open_artifact(tmp_path / "a").file("f").read_text() == "x"
