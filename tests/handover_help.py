"""What the tests of the testbenches share: files, and faults planted in them."""

from __future__ import annotations

import shutil
from pathlib import Path

ROWS = 40


def files(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def change(path: Path, old: str, new: str) -> None:
    """Replace one text of a file, which must be there once."""
    text = path.read_text()
    assert text.count(old) == 1, (path.name, old, text.count(old))
    path.write_text(text.replace(old, new))


def change_row(path: Path, row: int, element: int, value: str) -> None:
    """One element of a file with blanks between elements."""
    rows = [line.split(" ") for line in path.read_text().splitlines()]
    rows[row][element] = value
    path.write_text("".join(" ".join(line) + "\n" for line in rows))


def tools_only(folder: Path, *programs: str) -> Path:
    """A folder for PATH with these programs and what coreutils the scripts use."""
    folder.mkdir()
    for name in (*programs, "basename", "cat", "dirname", "mktemp", "nproc", "rm", "mkdir"):
        found = shutil.which(name)
        assert found is not None, name
        (folder / name).symlink_to(found)
    return folder
