"""Report files as lines and tables, so that a parser asks for columns by their titles and never counts characters.

Two forms of table occur. A *box* is drawn with rules ``+---+---+`` and bars; titles may take several lines and a title
may span several columns (``Latency (cycles)`` over ``min`` and ``max``): a column's title is every text above it, from
the top down, joined by blanks. A *dashed* table has titles, a line of dashes under each, and rows. Whatever is cut in
the middle of a table has no closing rule, and is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

from hawq_flow.report.schema import ReportError

_RULE = re.compile(r"^\+(-+\+)+$")
_MAX_BYTES = 256 << 20


@dataclass(frozen=True)
class Text:
    """Lines of a report, or of a part of one: ``first`` is the number of its first line in the file, from 1."""

    name: str
    lines: tuple[str, ...]
    first: int = 1

    def error(self, index: int, found: str, expected: str, kind: type[ReportError] = ReportError) -> ReportError:
        """An error about line ``index`` (from 0, of this text), to be raised."""
        number = self.first + max(0, min(index, len(self.lines) - 1))
        return kind(f"{self.name}, line {number}: found {found}; expected {expected}")

    def fail(self, index: int, found: str, expected: str) -> NoReturn:
        """Raises :meth:`error`."""
        raise self.error(index, found, expected)

    def cut(self, expected: str) -> NoReturn:
        """``ReportError`` because the text ends before ``expected``."""
        self.fail(self.last, f"the end of the text after {quoted(self.lines[self.last])}", expected)

    @cached_property
    def last(self) -> int:
        """Index of the last line that is not blank."""
        return max((i for i, line in enumerate(self.lines) if line.strip()), default=0)

    def part(self, start: int, stop: int) -> Text:
        """Lines ``start`` to ``stop`` (exclusive), which keep their numbers."""
        return Text(self.name, self.lines[start:stop], self.first + start)

    def find(self, pattern: str, start: int = 0, stop: int | None = None) -> int | None:
        """Index of the first line that matches a regular expression from its beginning (after blanks), or None."""
        compiled = re.compile(pattern)
        for index in range(start, len(self.lines) if stop is None else min(stop, len(self.lines))):
            if compiled.match(self.lines[index].strip()):
                return index
        return None

    def need(self, pattern: str, expected: str, start: int = 0, stop: int | None = None) -> int:
        """As :meth:`find`; ``ReportError`` if there is none."""
        index = self.find(pattern, start, stop)
        if index is None:
            if stop is None:
                self.cut(expected)
            self.fail(stop - 1, f"no such line from line {self.first + start} to here", expected)
        return index


def quoted(line: str) -> str:
    """A line as an error message shows it: in quotes, shortened."""
    line = line.strip()
    return repr(line if len(line) <= 60 else line[:57] + "...")


def load(path: str | Path) -> Text:
    """The text of a file.

    Raises
    ------
    ReportError
        If there is no such file, or it is empty, binary, or larger than any report (256 MiB).
    """
    path = Path(path)
    if not path.is_file():
        raise ReportError(f"{path}: found no such file; expected a report")
    size = path.stat().st_size
    if size > _MAX_BYTES:
        raise ReportError(f"{path}: found {size} bytes; expected a report, of {_MAX_BYTES} bytes at most")
    data = path.read_bytes()
    if not data.strip():
        raise ReportError(f"{path}, line 1: found an empty file; expected a report")
    if b"\0" in data:
        line = data[: data.index(b"\0")].count(b"\n") + 1
        raise ReportError(
            f"{path}, line {line}: found a byte 0: the file is binary (or UTF-16); expected a report's text"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")  # names of hosts and users in an old locale: every byte is some character
    return Text(str(path), tuple(line.rstrip("\r") for line in text.split("\n")))


@dataclass(frozen=True)
class TableRow:
    """One row of a table: index of its line in the text, and its cells, which keep their leading blanks."""

    index: int
    cells: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """A table: titles by column, the rows of the head as they stand, the rows of the body; lines [start, stop)."""

    text: Text
    titles: tuple[str, ...]
    head: tuple[TableRow, ...]
    rows: tuple[TableRow, ...]
    start: int
    stop: int

    def has(self, *titles: str) -> bool:
        """Whether there is a column of each of these titles."""
        return all(title in self.titles for title in titles)

    def column(self, *titles: str) -> int:
        """Number of the column that has one of these titles; ``ReportError`` if none has."""
        for title in titles:
            if title in self.titles:
                return self.titles.index(title)
        found = f"columns {', '.join(map(repr, self.titles))}"
        raise self.text.error(self.start + 1, found, f"a column {titles[0]!r}")

    def row(self, *names: str) -> TableRow | None:
        """The first row whose first cell is one of these names."""
        return next((row for row in self.rows if row.cells[0].strip() in names), None)

    def need_row(self, *names: str) -> TableRow:
        """As :meth:`row`; ``ReportError`` if there is none."""
        row = self.row(*names)
        if row is None:
            self.text.fail(self.stop - 1, "the end of the table", f"a row {names[0]!r} in it")
        return row


def box(text: Text, start: int, stop: int | None = None) -> Table | None:
    """The first box table that begins in lines [start, stop), or None.

    Raises
    ------
    ReportError
        If the table is cut: no closing rule, a rule of another width, or a row with another number of cells.
    """
    end = len(text.lines) if stop is None else stop
    index = next((i for i in range(start, end) if text.lines[i].strip().startswith("+-")), None)
    return None if index is None else _box_at(text, index, end)


def boxes(text: Text, start: int, stop: int | None = None) -> Iterator[Table]:
    """Every box table of lines [start, stop), in order."""
    while (table := box(text, start, stop)) is not None:
        yield table
        start = table.stop


def _box_at(text: Text, start: int, end: int) -> Table:
    rule = text.lines[start].strip()
    if not _RULE.match(rule):
        text.fail(start, quoted(rule), "a whole rule +---+ of a table")
    _no_tabs(text, start, end)
    head: list[tuple[int, str]] = []
    index = start + 1
    while index < end and not _RULE.match(line := text.lines[index].strip()):
        if not _is_row(line) and not (line.startswith("+") and line.endswith("+") and len(line) == len(rule)):
            text.fail(index, quoted(line) if line else "a blank line", "the rule that ends the titles of the table")
        head.append((index, line))
        index += 1
    if index >= end:
        text.fail(end - 1, "the end of the text", "the rule that ends the titles of the table")
    leaf = next((line for _, line in reversed(head) if _is_row(line)), rule.replace("+", "|"))
    bars = [i for i, char in enumerate(leaf) if char == "|"]
    columns = list(pairwise(bars))
    rows: list[TableRow] = []
    closed = index
    while index < end:
        line = text.lines[index].strip()
        if line.startswith("+-"):
            if not _RULE.match(line) or len(line) != len(text.lines[closed].strip()):
                text.fail(index, quoted(line), f"a rule as wide as the table ({len(rule)} characters)")
            closed = index
        elif line.startswith("|"):
            rows.append(TableRow(index, _cells(text, index, line, columns)))
        else:
            break
        index += 1
    if closed != index - 1:
        text.fail(index - 1, quoted(text.lines[index - 1]), "a rule that closes the table: it is cut here")
    titles = tuple(_title(head, left, right) for left, right in columns)
    heads = tuple(TableRow(i, tuple(line.strip("|").split("|"))) for i, line in head if _is_row(line))
    return Table(text, titles, heads, tuple(rows), start, index)


def _no_tabs(text: Text, start: int, end: int) -> None:
    """``ReportError`` if a line of the table has a tab: no tool writes one, and columns are told by their place."""
    for index in range(start, end):
        line = text.lines[index].strip()
        if not line.startswith(("|", "+")):
            return
        if "\t" in line:
            text.fail(index, f"a tab in {quoted(line)}", "blanks, as the tool wrote them: take the report's own file")


def _is_row(line: str) -> bool:
    return len(line) > 1 and line[0] == "|" and line[-1] == "|"


def _cells(text: Text, index: int, line: str, columns: Sequence[tuple[int, int]]) -> tuple[str, ...]:
    """Cells by the columns' bars, as a cell may hold a bar; by bars alone where a row is not as wide as the table."""
    if not _is_row(line):
        text.fail(index, quoted(line), "a row that ends with '|': it is cut here")
    if len(line) > columns[-1][1] and all(line[left] == line[right] == "|" for left, right in columns):
        return tuple(line[left + 1 : right].rstrip() for left, right in columns)
    cells = line[1:-1].split("|")
    if len(cells) != len(columns):
        text.fail(index, f"a row of {len(cells)} cells", f"{len(columns)}, as the table has columns")
    return tuple(cell.rstrip() for cell in cells)


def _title(head: Sequence[tuple[int, str]], left: int, right: int) -> str:
    """Every text above a column: of each line of the head the piece, between bars or pluses, that covers its middle."""
    middle = (left + right) // 2
    words: list[str] = []
    for _, line in head:
        begin = max(line.rfind("|", 0, middle), line.rfind("+", 0, middle)) + 1
        ends = [i for i in (line.find("|", middle), line.find("+", middle)) if i >= 0]
        piece = line[begin : min(ends, default=len(line))].strip(" -")
        words += piece.split()
    return " ".join(words)


def dashed(text: Text, start: int, titles: str) -> tuple[list[str], list[tuple[int, str]]]:
    """A table with dashes under its titles: the titles, and its rows up to a blank line, with their line numbers.

    ``titles`` is a regular expression for the beginning of the line of titles; it is looked for from line ``start``.
    """
    index = text.need(titles, f"a line of titles like {titles!r}", start)
    if index + 1 >= len(text.lines) or not re.fullmatch(r"[-\s]*-[-\s]*", text.lines[index + 1]):
        text.fail(index + 1, quoted(text.lines[min(index + 1, text.last)]), "dashes under the titles")
    rows: list[tuple[int, str]] = []
    for number in range(index + 2, len(text.lines)):
        if not text.lines[number].strip():
            break
        rows.append((number, text.lines[number]))
    return re.split(r"\s{2,}", text.lines[index].strip()), rows


def must_not_end_in_a_table(text: Text) -> None:
    """``ReportError`` if the last line belongs to a table that nothing closes."""
    line = text.lines[text.last].strip()
    if line.startswith("|") or (line.startswith("+-") and not _RULE.match(line)):
        text.fail(text.last, quoted(line), "a rule that closes the table: the file is cut here")
