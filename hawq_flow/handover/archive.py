"""A folder as one archive, the same bytes every time; and an archive as a folder, whoever made it."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import tempfile
import zlib
from pathlib import Path

from hawq_flow.handover.contents import HandoverError
from hawq_flow.store import checksums, file_digest, write_atomic

SUMS = "MANIFEST.sha256"
SUFFIX = ".tar.gz"
_MOST = 4 << 30
"""Bytes an archive may unpack to; beyond, it is not one of ours."""


def files(folder: Path) -> list[Path]:
    """Every file of a folder tree, by path."""
    return sorted((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.as_posix())


def write_sums(folder: Path) -> None:
    """``MANIFEST.sha256``: the checksum of every other file, as ``sha256sum`` writes and checks it."""
    (folder / SUMS).write_text(checksums(folder, SUMS))


def check_sums(folder: Path) -> int:
    """How many files were checked against ``MANIFEST.sha256``.

    Raises
    ------
    HandoverError
        Naming files that are missing, changed, or not in the manifest.
    """
    path = folder / SUMS
    if not path.is_file():
        raise HandoverError(f"{folder}: no {SUMS}; not a handover bundle, or one that is cut short")
    expected: dict[str, str] = {}
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        digest, between, name = line[:64], line[64:66], line[66:]
        if between != "  " or not name or name in expected:
            raise HandoverError(f"{path}, line {number}: {line[:80]!r}; expected a checksum, two blanks and a file")
        expected[name] = digest
    found = {file.relative_to(folder).as_posix(): file for file in files(folder) if file != path}
    if missing := sorted(set(expected) - set(found)):
        raise HandoverError(f"{folder}: missing: {', '.join(missing[:5])}; unpack the archive again")
    if more := sorted(set(found) - set(expected)):
        raise HandoverError(f"{folder}: not in {SUMS}: {', '.join(more[:5])}; work on a copy, or unpack again")
    changed = [name for name, digest in expected.items() if file_digest(found[name]) != digest]
    if changed:
        raise HandoverError(f"{folder}: changed since the bundle was made: {', '.join(changed[:5])}")
    return len(expected)


def pack(folder: Path, archive: Path) -> None:
    """Write ``folder`` as a tar.gz that unpacks to one folder of its name; no dates, owners or machine in it."""
    content = io.BytesIO()
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=content, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for path in files(folder):
            entry = tarfile.TarInfo(f"{folder.name}/{path.relative_to(folder).as_posix()}")
            entry.size = path.stat().st_size
            entry.mode = 0o755 if os.access(path, os.X_OK) else 0o644
            with path.open("rb") as file:
                tar.addfile(entry, file)
    write_atomic(archive, content.getvalue())


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack an archive under ``folder``; the one folder that it holds.

    Raises
    ------
    HandoverError
        If the file is no such archive, or holds anything but plain files below one folder.
    """
    try:
        # All of it is read before any is believed: a cut end, or a wrong checksum, is at the end.
        with tempfile.TemporaryFile() as whole, gzip.open(archive) as zipped:
            while block := zipped.read(1 << 20):
                if whole.write(block) and whole.tell() > _MOST:
                    raise HandoverError(f"{archive}: unpacks to more than {_MOST >> 30} GiB; not a handover bundle")
            whole.seek(0)
            with tarfile.open(fileobj=whole, mode="r:") as tar:
                tops = _tops(archive, tar.getmembers())
                tar.extractall(folder, filter="data")
    except FileNotFoundError as error:
        raise HandoverError(f"{archive}: no such file; give a bundle's archive or its unpacked folder") from error
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise HandoverError(f"{archive}: not readable as a tar.gz archive ({error}); copy it again") from error
    return folder / next(iter(tops))


def _tops(archive: Path, members: list[tarfile.TarInfo]) -> set[str]:
    """The one folder that plain files are below."""
    tops = {member.name.split("/")[0] for member in members}
    odd = [member.name for member in members if not (member.isfile() or member.isdir())]
    outside = [m.name for m in members if m.name.startswith("/") or ".." in m.name.split("/")]
    if len(tops) != 1 or odd or outside:
        raise HandoverError(
            f"{archive}: expected plain files below one folder; found {', '.join([*odd, *outside][:3]) or 'files'} "
            f"below {', '.join(sorted(tops)[:5]) or 'none'}"
        )
    return tops
