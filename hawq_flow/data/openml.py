"""Data sets published on openml.org: downloaded once, checked against the published MD5, kept, read as ARFF.

OpenML describes data set N in JSON at ``api/v1/json/data/N``: the format and address of its file, the MD5 of that file,
and the default label. Description and file are kept in the cache folder, complete or not at all, and the file's MD5 is
checked again at every reading.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from hawq_flow.data.errors import DataError
from hawq_flow.data.files import Table, choose_columns, read_delimited

OPENML_URL = "https://www.openml.org/api/v1/json/data/{number}"
"""Where OpenML describes a data set: format, address, default label and MD5 of the file."""

_DOWNLOAD_TIMEOUT_S = 60.0
_CHUNK_BYTES = 1 << 20


def cache_folder() -> Path:
    """Return where downloads are kept by default: ``hawq_flow`` in the user's cache folder (XDG_CACHE_HOME)."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base else Path.home() / ".cache") / "hawq_flow"


def _fetch(source: str, url: str, path: Path, md5: str | None, folder: Path) -> None:
    """Download ``url`` to ``path``: complete and with the right MD5, or not at all."""
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise DataError(f"{source}: the address {url!r} is not http(s); expected one that is; report it to OpenML")
    folder.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=path.name + ".", suffix=".partial", dir=folder)
    partial = Path(name)
    digest = hashlib.md5(usedforsecurity=False)
    try:
        with os.fdopen(handle, "wb") as out, urllib.request.urlopen(url, timeout=_DOWNLOAD_TIMEOUT_S) as answer:
            while chunk := answer.read(_CHUNK_BYTES):
                digest.update(chunk)
                out.write(chunk)
        if md5 is not None and digest.hexdigest() != md5.lower():
            raise DataError(
                f"{source}: {url} has MD5 {digest.hexdigest()} ({partial.stat().st_size} bytes); expected {md5}, which "
                "OpenML publishes; the download was cut short or the file has changed: try again"
            )
        partial.replace(path)
    except urllib.error.HTTPError as error:
        raise DataError(
            f"{source}: {url} answered {error.code} {error.reason}; expected a data set of that number; look its "
            "number up on openml.org"
        ) from error
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", None) or error
        raise DataError(
            f"{source}: cannot download {url}: {reason}. Expected a network, or a copy downloaded before in {folder}. "
            "Either run once with a network, or copy that folder from a machine that did, or choose another source: "
            "'jets' ships with the project and needs no network (other jets, other accuracies)"
        ) from error
    finally:
        partial.unlink(missing_ok=True)


def _md5(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


_ATTRIBUTE = re.compile(
    r"""@attribute\s+(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"|([^\s'"]\S*))\s+\S""", re.IGNORECASE
)


def _arff_header(source: str, path: Path) -> tuple[list[str], int]:
    """Return the column names of an ARFF file and its number of lines up to and including ``@DATA``."""
    columns: list[str] = []
    with path.open(encoding="utf-8") as stream:
        for number, line in enumerate(stream, start=1):
            text = line.strip()
            if text.lower().startswith("@data"):
                return columns, number
            if text.lower().startswith("@attribute"):
                match = _ATTRIBUTE.match(text)
                if match is None:
                    raise DataError(
                        f"{source}: line {number} of {path.name} is {text!r}; expected @ATTRIBUTE name type"
                    )
                columns.append(next(group for group in match.groups() if group is not None))
    raise DataError(f"{source}: {path.name} has no @DATA line; expected an ARFF file; delete it and download again")


def openml(source: str, number: str, features: Sequence[str] | None, label: str | None, cache: Path) -> Table:
    """Return data set ``number`` of OpenML, from the cache or downloaded into it.

    Raises
    ------
    DataError
        If there is neither a network nor a cached copy (with what to do), or the file is not the published one.
    """
    if not number.isdigit():
        raise DataError(f"{source}: {number!r} is no OpenML number; expected for example 'openml:42468'")
    folder = cache / "openml" / number
    note = folder / "description.json"
    if not note.is_file():
        _fetch(source, OPENML_URL.format(number=number), note, None, folder)
    try:
        about = json.loads(note.read_text(encoding="utf-8"))["data_set_description"]
        kind, url, md5 = about["format"], about["url"], about["md5_checksum"]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{source}: {note} is not a description of a data set ({type(error).__name__}: {error}); expected JSON "
            "with format, url and md5_checksum; delete it and run again"
        ) from error
    if kind.lower() != "arff":
        raise DataError(f"{source}: its format is {kind!r}; expected 'ARFF' (dense); download it and use 'file:NAME'")
    path = folder / f"{number}.arff"
    if not path.is_file():
        _fetch(source, url, path, md5, folder)
    elif _md5(path) != md5.lower():
        raise DataError(
            f"{source}: {path} has MD5 {_md5(path)}; expected {md5}, which OpenML publishes; delete it and run again "
            "with a network"
        )
    columns, lines = _arff_header(source, path)
    chosen, label = choose_columns(source, columns, features, label or about.get("default_target_attribute"))
    return read_delimited(source, path, columns, chosen, label, lines, "'", "\\")
