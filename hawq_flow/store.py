"""Artifacts on disk: absent or complete, and each with a manifest of what made it.

An artifact is a folder of files with a ``manifest.json``. Its *key* is a SHA-256 over everything the result depends
on: the stage's configuration, the digests of the artifacts it read, the versions of the packages it used, and the
source of the modules that computed it. A stage whose folder carries the expected key, with every file unchanged, is
skipped. Files are first written into a folder beside, flushed to the disk, and renamed into place in one step, so a
killed process leaves either the old artifact, or none, or the new one: never half of one. Two processes that want the
same artifact take turns by a lock, and the second finds it made.

Manifests hold no dates and no paths, so the same inputs give the same bytes.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import enum
import fcntl
import glob
import hashlib
import importlib.metadata
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

MANIFEST = "manifest.json"
FORMAT_VERSION = 1
_PACKAGE = Path(__file__).parent


class StoreError(RuntimeError):
    """An artifact that is missing, damaged or not an artifact; the text says which and what to do."""


@dataclass(frozen=True)
class Artifact:
    """A complete artifact: its folder and its manifest."""

    path: Path
    manifest: Mapping[str, Any]

    @property
    def digest(self) -> str:
        """SHA-256 over the artifact's files: what artifacts made from it depend on."""
        return canonical_digest(self.manifest["files"])

    def file(self, name: str) -> Path:
        """Path of one file; ``StoreError`` when the artifact has none of that name."""
        if name not in self.manifest["files"]:
            raise StoreError(f"{self.path}: no file {name!r}; it holds {', '.join(self.manifest['files'])}")
        return self.path / name

    def json(self, name: str) -> Any:
        """One JSON file, parsed."""
        return json.loads(self.file(name).read_text())


def canonical_digest(value: Any) -> str:
    """SHA-256 (hex) of ``value`` as canonical JSON (sorted keys, dataclasses and enums by their contents)."""
    return hashlib.sha256(json.dumps(plain(value), sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def plain(value: Any) -> Any:
    """``value`` as plain JSON types: dataclasses become mappings, tuples lists, enums their value."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Path):
        return value.as_posix()
    return value


def file_digest(path: Path) -> str:
    """SHA-256 (hex) of a file's bytes."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def checksums(folder: Path, without: str) -> str:
    """Digests of every file of a folder tree but ``without``, by path, as ``sha256sum`` writes and checks them."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / without)
    return "".join(f"{file_digest(path)}  {path.relative_to(folder).as_posix()}\n" for path in files)


@lru_cache(maxsize=64)
def code_digest(module: str) -> str:
    """SHA-256 over the source of ``hawq_flow.<module>`` and of every hawq_flow module it imports, directly or not."""
    sources: dict[str, bytes] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        path = _PACKAGE.joinpath(*name.split("."))
        files = sorted(path.glob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
        # Importing a.b runs a/__init__.py first. (The package's own only holds its version.)
        files += [folder / "__init__.py" for folder in path.parents if _PACKAGE in folder.parents]
        for file in files:
            label = file.relative_to(_PACKAGE).as_posix()
            if label in sources:
                continue
            sources[label] = file.read_bytes()
            waiting += [name for name in _imports(ast.parse(sources[label])) if name]
    return canonical_digest({label: hashlib.sha256(text).hexdigest() for label, text in sources.items()})


def _imports(tree: ast.AST) -> list[str]:
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "hawq_flow":
            base = node.module.split(".")[1:]
            # ``from hawq_flow import x`` names modules; ``from hawq_flow.x import y`` names what is in one.
            names += [".".join(base)] if base else [a.name for a in node.names if _is_module(a.name)]
        elif isinstance(node, ast.Import):
            names += [a.name.split(".", 1)[1] for a in node.names if a.name.startswith("hawq_flow.")]
    return names


def _is_module(name: str) -> bool:
    return (_PACKAGE / f"{name}.py").is_file() or (_PACKAGE / name / "__init__.py").is_file()


def versions(*packages: str) -> dict[str, str]:
    """Installed versions of packages, for a manifest."""
    return {name: _version(name) for name in packages}


@lru_cache(maxsize=64)
def _version(package: str) -> str:
    return importlib.metadata.version(package)  # reads and parses a file each time


def write_atomic(path: Path, content: bytes | str) -> None:
    """Write one file beside its place, flush it to the disk, and rename it in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as indented JSON with a final newline; NaN and infinities are refused."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(plain(value), indent=2, allow_nan=False) + "\n")


def save_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """An NPZ file of named arrays; equal arrays give equal bytes."""
    np.savez(path, allow_pickle=False, **dict(arrays))


def load_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of :func:`save_arrays`."""
    with np.load(path, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def open_artifact(path: Path, *, check: bool = True) -> Artifact:
    """Read an artifact's manifest and check every file against it.

    Raises
    ------
    StoreError
        When the folder or its manifest is missing or unreadable, or a file is missing or changed.
    """
    manifest_path = path / MANIFEST
    if not manifest_path.is_file():
        raise StoreError(f"{path}: no {MANIFEST}; not a hawq_flow artifact, or one whose making was interrupted")
    try:
        manifest = json.loads(manifest_path.read_text())
        expected = dict(manifest["files"])
        if not isinstance(manifest["stage"], str) or not isinstance(manifest["depends"], dict):
            raise TypeError("'stage' or 'depends' is of the wrong type")
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError) as error:
        raise StoreError(f"{manifest_path}: unreadable ({error}); delete the folder and run the stage again") from error
    if manifest.get("format") != FORMAT_VERSION:
        raise StoreError(f"{manifest_path}: format {manifest.get('format')!r}; this hawq_flow reads {FORMAT_VERSION}")
    if check:
        for name, digest in expected.items():
            file = path / name
            if not file.is_file():
                raise StoreError(f"{path}: file {name!r} of its manifest is missing; delete the folder and run again")
            if file_digest(file) != digest:
                raise StoreError(f"{file}: changed since it was made; delete the folder and run the stage again")
    return Artifact(path, manifest)


def make(
    path: Path,
    stage: str,
    depends: Mapping[str, Any],
    build: Callable[[Path], None],
    *,
    on_reuse: Callable[[], None] | None = None,
) -> Artifact:
    """The artifact at ``path``: the one there if its key matches and its files are whole, else a new one.

    Parameters
    ----------
    stage:
        The stage's name, part of the key.
    depends:
        Everything the result depends on, JSON-like; stored in the manifest as it is.
    build:
        Called with an empty folder to fill; what it writes becomes the artifact.
    on_reuse:
        Called instead of ``build`` when the artifact is already there.
    """
    depends = plain(depends)
    key = canonical_digest({"stage": stage, "depends": depends, "format": FORMAT_VERSION})
    found = _found(path, key)
    if found is None:
        with locked(path):
            for left in path.parent.glob(f".{glob.escape(path.name)}.work.*"):
                shutil.rmtree(left)  # what a killed process left
            found = _found(path, key)  # another process may have made it while this one waited
            if found is None:
                return _build(path, {"format": FORMAT_VERSION, "stage": stage, "key": key, "depends": depends}, build)
    if on_reuse is not None:
        on_reuse()
    return found


def _found(path: Path, key: str) -> Artifact | None:
    """The artifact at ``path`` if it is whole and carries ``key``."""
    if (path / MANIFEST).is_file():
        try:
            found = open_artifact(path)
        except StoreError:
            return None  # damaged: to be made again, over it
        return found if found.manifest.get("key") == key else None
    if path.is_file() or (path.is_dir() and any(path.iterdir())):
        # Artifacts appear whole, so this is nobody's interrupted making: it is something else, and not ours to delete.
        raise StoreError(
            f"{path}: holds files but no {MANIFEST}; not a hawq_flow artifact. Delete it, or move it away, or choose "
            "another folder"
        )
    return None


@contextlib.contextmanager
def locked(path: Path, *, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the lock of ``path`` (which need not exist); the system releases it however this process ends.

    ``waiting`` is called when another process holds it, before waiting for it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with (path.parent / f".{path.name}.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting is not None:
                waiting()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(path: Path, manifest: dict[str, Any], build: Callable[[Path], None]) -> Artifact:
    work = Path(tempfile.mkdtemp(prefix=f".{path.name}.work.", dir=path.parent))
    try:
        build(work)
        files = sorted(f for f in work.rglob("*") if f.is_file())
        if work / MANIFEST in files:
            raise StoreError(
                f"stage {manifest['stage']} wrote a file named {MANIFEST}; that name is the store's: choose another"
            )
        manifest = {**manifest, "files": {f.relative_to(work).as_posix(): file_digest(f) for f in files}}
        write_json(work / MANIFEST, manifest)
        for file in [*files, work / MANIFEST]:
            _flush(file)
        os.chmod(work, 0o755)
        _replace(work, path)
    finally:
        for left in path.parent.glob(f".{glob.escape(path.name)}.work.*"):
            shutil.rmtree(left)
    return Artifact(path, manifest)


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _replace(new: Path, path: Path) -> None:
    """Put folder ``new`` at ``path``; an older one is first set aside, where the lock's next holder would clear it."""
    if path.exists():
        os.rename(path, Path(tempfile.mkdtemp(prefix=f".{path.name}.work.", dir=path.parent)) / "old")
    os.rename(new, path)
