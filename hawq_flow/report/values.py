"""What stands in a cell of a report: counts, durations, dates and the spellings of a part."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation

_ABSENT = frozenset({"", "-", "--", "---", "?", "na", "n/a", "none", "undef", "unspecified", "unspecified*", "inf"})
_UNITS = {"ps": "0.001", "ns": "1", "us": "1000", "ms": "1000000", "s": "1000000000", "sec": "1000000000"}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DATE = re.compile(
    r"(?:[a-z]{3},?\s+)?([a-z]{3})\s+(\d{1,2})\s+(\d{1,2}):(\d\d):(\d\d)(?:\s+([ap]m))?(?:\s+[a-z+][\w+:-]*)?\s+(\d{4})\.?",
    re.ASCII,
)


def number(cell: str) -> float | None:
    """A figure: ``"12"``, ``"175.5"``, ``"6 (9%)"``, ``"1,303,680"``; None where the tool prints none.

    Nothing is printed as ``-``, ``?``, ``undef``, ``NA`` and the like. Whole numbers come back as int. A lone comma may
    separate thousands or, by a tool run in a locale that has one, decimals: it is refused.

    Raises
    ------
    ValueError
        For any other text.
    """
    text = re.sub(r"\s*\([^()]*\)\s*$", "", cell.strip()).strip()
    if text.lower() in _ABSENT:
        return None
    if not re.fullmatch(r"[-+]?(\d{1,3}(,\d{3}){2,}|\d+(\.\d+)?)", text, re.ASCII):
        raise ValueError(f"{cell.strip()!r} is no number")
    value = Decimal(text.replace(",", ""))
    real = _finite(float(value))
    return real if "." in text else int(value)


def _finite(value: float) -> float:
    """``value``; ``ValueError`` if the figure was beyond what a float holds."""
    if not math.isfinite(value):
        raise ValueError("a figure beyond any that a tool prints")
    return value


def count(cell: str) -> float | None:
    """As :func:`number`, of what cannot be below 0 (sites, half tiles, W); ``ValueError`` if it is."""
    value = number(cell)
    if value is not None and value < 0:
        raise ValueError(f"{cell.strip()!r} is below 0")
    return value


def whole(cell: str) -> int | None:
    """As :func:`count`, of cycles: a whole number or None; ``ValueError`` for a fraction."""
    value = count(cell)
    if value is not None and value != int(value):
        raise ValueError(f"{cell.strip()!r} is no whole number")
    return None if value is None else int(value)


def nanoseconds(cell: str) -> float | None:
    """As :func:`slack`, of what cannot be below 0 (latencies, periods); ``ValueError`` if it is."""
    value = slack(cell)
    if value is not None and value < 0:
        raise ValueError(f"{cell.strip()!r} is below 0")
    return value


def slack(cell: str) -> float | None:
    """A duration in ns: ``"5.220 us"``, ``"5.00"`` (in ns), ``"2.463e+05"``; None for ``"?"``, ``ValueError`` else.

    Durations alone come with an exponent, in the form that C prints: a count that was rounded is none.
    """
    text = cell.strip()
    if text.lower() in _ABSENT:
        return None
    match = re.fullmatch(r"([-+]?\d+(?:\.\d+)?(?:e[-+]\d{2,})?)\s*([a-z]*)", text, re.ASCII)
    unit = _UNITS.get(match[2] or "ns") if match else None
    try:
        if match is None or unit is None:
            raise InvalidOperation
        return _finite(float(Decimal(match[1]) * Decimal(unit)))
    except ArithmeticError:
        raise ValueError(f"{text!r} is no duration in ps, ns, us, ms or s") from None


def iso_date(text: str) -> str | None:
    """``"Wed Feb 24 13:15:48 CST 2021"`` -> ``"2021-02-24T13:15:48"``: local time as printed, whatever its zone.

    The names of time zones are ambiguous (CST), so they are left out. None if the text is no such date.
    """
    match = _DATE.fullmatch(" ".join(text.lower().split()))
    if match is None or match[1] not in _MONTHS:
        return None
    hour = int(match[3])
    if match[6]:
        hour = hour % 12 + (12 if match[6] == "pm" else 0)
    try:
        stamp = datetime(int(match[7]), _MONTHS.index(match[1]) + 1, int(match[2]), hour, int(match[4]), int(match[5]))
    except ValueError:
        return None
    return stamp.isoformat()


@dataclass(frozen=True)
class Part:
    """A device as tools name it, with what the spelling left out as None.

    ``str(part)`` is the full spelling (``xcvu9p-flgb2104-2-i``). Vivado prints the same as ``xcvu9pflgb2104-2``,
    ``xcvu9p-flgb2104`` with the speed elsewhere, or without the ``xc`` (``7z020clg400-1``).
    """

    die: str
    package: str | None = None
    speed: str | None = None
    grade: str | None = None

    def __str__(self) -> str:
        return "-".join(piece for piece in (self.die, self.package, self.speed, self.grade) if piece)

    @classmethod
    def parse(cls, text: str) -> Part:
        """The part of any spelling; ``ValueError`` for a text that cannot be one."""
        pieces = text.strip().split("-")
        head = pieces[0].lower()
        if not re.fullmatch(r"[a-z0-9]*\d\w*", head, re.ASCII):
            raise ValueError(f"{text.strip()!r} names no device")
        if not re.match(r"x[caq]", head):
            head = "xc" + head
        if len(pieces) > 1 and re.fullmatch(r"[a-zA-Z]{2,5}\d{2,4}", pieces[1], re.ASCII):
            die, rest = head, pieces[2:]
            package: str | None = pieces[1].lower()
        else:
            # Packages of 7 series parts have three letters, of Spartan-7 and of all later families four.
            letters = 3 if re.match(r"x[caq]7[akvz]", head) else 4
            match = re.fullmatch(rf"(.+?)([a-z]{{{letters}}}\d{{3,4}})", head)
            die, package = (match[1], match[2]) if match else (head, None)
            rest = pieces[1:]
        speed = rest[0].upper() if rest and re.match(r"\d", rest[0]) else None
        grade = "-".join(rest[1:] if speed else rest)
        return cls(die, package, speed, grade[:1].lower() + grade[1:] if grade else None)

    def merged(self, other: Part) -> Part | None:
        """Both together, each giving what the other leaves out; None if they disagree."""
        for mine, theirs in zip(self._pieces(), other._pieces(), strict=True):
            if mine is not None and theirs is not None and mine != theirs:
                return None
        return Part(self.die, self.package or other.package, self.speed or other.speed, self.grade or other.grade)

    def _pieces(self) -> tuple[str | None, ...]:
        return self.die, self.package, self.speed, self.grade


def same_part(found: str, expected: str) -> bool:
    """Whether two spellings can mean one part: what both say is the same, whatever one of them leaves out.

    Vivado leaves out the temperature grade, or has the speed elsewhere. What is there is compared exactly: a ``-2`` is
    no ``-2L``, nor ``-2-i`` a ``-2-e``. Texts that name no device are the same where they are alike, up to case.
    """
    try:
        return Part.parse(found).merged(Part.parse(expected)) is not None
    except ValueError:
        return found.strip().lower() == expected.strip().lower()
