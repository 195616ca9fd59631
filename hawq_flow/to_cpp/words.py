"""C++ types that hold proven ranges, integers as text, and names that are free in C++."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from hawq_flow.network import Shape, Value
from hawq_flow.numeric import IntArray, IntType

WIDTH = 110
"""Columns that a line of constants may take."""
_KEYWORDS = frozenset(
    """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class
    co_await co_return co_yield compl concept const const_cast consteval constexpr constinit continue decltype
    default delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline
    int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public
    register reinterpret_cast requires return short signed sizeof static static_assert static_cast struct switch
    template this thread_local throw true try typedef typeid typename union unsigned using virtual void volatile
    wchar_t while xor xor_eq
    """.split()  # noqa: SIM905 - a table of words
)
"""Words of C++ up to C++20 (ISO/IEC 14882:2020, 5.11)."""
_MACROS = frozenset({"errno", "i386", "linux", "main", "std", "stderr", "stdin", "stdout", "unix"})
"""Names that compilers or standard headers may have defined in front of ours."""


class CppError(ValueError):
    """A network or a name that cannot become C++, or a program that does not do what it should; says what and why."""


def storage(low: int, high: int) -> str:
    """The narrowest of ``int8_t`` to ``int64_t`` that holds every integer from ``low`` to ``high``.

    >>> storage(-128, 127), storage(0, 255)
    ('int8_t', 'int16_t')
    """
    for bits in (8, 16, 32):
        if -(1 << (bits - 1)) <= low and high < 1 << (bits - 1):
            return f"int{bits}_t"
    return "int64_t"


def stored(type: IntType) -> str:
    """The C++ type that holds a value of ``type``, all its channels: ``int16_t`` at least.

    Values of 8 bits would need no more than ``int8_t``; but processors multiply and add in pairs of 16 bits, and a
    compiler that finds them so makes a Dense twice as fast.
    """
    return storage(min(type.range[0], -(1 << 15)), type.range[1])


def word(value: Value, operands: Iterable[Value], constants: Iterable[IntArray] = ()) -> str:
    """``int32_t`` where it holds every intermediate of an op and whatever goes into it, else ``int64_t``.

    ``value.bound`` is the proof; types and constants count too, for what an operand is stored in, or a limit that no
    value reaches, is written down as well.
    """
    ends = [-value.bound, value.bound]
    for type in (value.type, *(x.type for x in operands)):
        ends += type.range
    for array in constants:
        ends += [int(array.min()), int(array.max())]
    return "int64_t" if storage(min(ends), max(ends)) == "int64_t" else "int32_t"


def cast(to: str, expression: str) -> str:
    """``expression`` as ``to``, said aloud."""
    return f"static_cast<{to}>({expression})"


def array(name: str, values: IntArray) -> list[str]:
    """Lines that define a constant array in the narrowest type: ``const int8_t NAME[2][3] = {...};``.

    What fits stands in one line; else the first axis is taken apart, each entry with its index as a comment.
    """
    type = storage(int(values.min()), int(values.max()))
    dims = "".join(f"[{n}]" for n in values.shape)
    head = f"const {type} {name}{dims} = "
    text = _one_line(values, WIDTH - len(head) - 1)
    if text:
        return [f"{head}{text};"]
    return [f"{head}{{", *_apart(values, "    ", ""), "};"]


def _one_line(values: IntArray, width: int) -> str:
    """The constants on one line, or '' where that takes more than ``width`` columns."""
    if values.size * 3 > width + 2:  # a digit, a comma and a blank each, at least
        return ""
    text = str(values.tolist()).replace("[", "{").replace("]", "}")
    return text if len(text) <= width else ""


def _apart(values: IntArray, indent: str, label: str) -> list[str]:
    if values.ndim == 1:
        return [indent + line for line in wrapped([f"{n}," for n in values.tolist()], WIDTH - len(indent))]
    lines: list[str] = []
    for i, part in enumerate(values):
        text = _one_line(part, WIDTH - len(indent) - 1)
        comment = f"  // {label}{i}"
        if text:
            lines.append(f"{indent}{text},{comment}")
        else:
            inner = _apart(part, indent + "    ", f"{label}{i}, ")
            lines += [f"{indent}{{{comment}", *inner, f"{indent}}},"]
    return lines


def wrapped(parts: Sequence[str], width: int) -> list[str]:
    """Texts side by side, with blanks between, on lines of at most ``width`` columns where they fit at all."""
    lines: list[list[str]] = [[]]
    length = -1
    for part in parts:
        if length + 1 + len(part) > width and lines[-1]:
            lines.append([])
            length = -1
        lines[-1].append(part)
        length += 1 + len(part)
    return [" ".join(line) for line in lines]


def dims(shape: Shape) -> Shape:
    """A shape as C++ arrays have it: a value without axes is an array of one."""
    return shape or (1,)


def brackets(shape: Shape) -> str:
    """``[3][4]`` for a value of shape (3, 4)."""
    return "".join(f"[{n}]" for n in dims(shape))


def comment(text: str) -> str:
    """Text from outside as a part of one line of comment or string: printable ASCII, no escapes, no trigraphs."""
    plain = "".join(c if " " <= c <= "~" and c not in '\\"' else "_" for c in text)
    return plain.replace("??", "__")


def names(values: Iterable[str], reserved: Iterable[str]) -> dict[str, str]:
    """A C++ identifier for each name: itself, or a like one where it is a word of C++, reserved, or may be a macro.

    Names of capitals alone are taken for macros; those that begin with an underscore or hold two are the compiler's.
    """
    result: dict[str, str] = {}
    values = list(values)
    used = set(reserved) | _KEYWORDS | _MACROS | set(values)
    for name in values:
        free = name
        if not usable(name) or name in set(reserved):
            base = re.sub("_+", "_", name).strip("_")
            base = base if base[:1].isalpha() else f"of{base and '_'}{base}"
            free, count = f"{base}_value", 1
            while free in used:
                count += 1
                free = f"{base}_value{count}"
            used.add(free)
        result[name] = free
    return result


def usable(name: str) -> bool:
    """Whether a name may stand in C++ as it is: an identifier that no header and no compiler lays claim to."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) or "__" in name:
        return False
    macro = len(name) > 1 and name.upper() == name
    return not macro and not re.fullmatch(r"\w+_t", name) and name not in _KEYWORDS | _MACROS
