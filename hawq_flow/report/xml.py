"""XML as a tree whose elements know their lines, so that an error can say where. No entities, no document types."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

from hawq_flow.report.text import Text


@dataclass
class Element:
    """One element: its tag, line (index), text, children and attributes."""

    text: Text
    tag: str
    index: int
    value: str = ""
    children: list[Element] = field(default_factory=list)
    attributes: dict[str, str] = field(default_factory=dict)

    def find(self, path: str) -> Element | None:
        """The first element at ``A/B/C`` below this one, or None."""
        element: Element | None = self
        for tag in path.split("/"):
            element = next((child for child in element.children if child.tag == tag), None) if element else None
        return element

    def all(self, path: str) -> Iterator[Element]:
        """Every element at ``A/B/C`` below this one."""
        tag, _, rest = path.partition("/")
        for child in self.children:
            if child.tag == tag:
                if rest:
                    yield from child.all(rest)
                else:
                    yield child

    def need(self, path: str) -> Element:
        """As :meth:`find`; ``ReportError`` if there is none."""
        element = self.find(path)
        if element is None:
            self.text.fail(self.index, f"an element <{self.tag}> without {path}", f"<{path}> in it")
        return element


def parse_xml(text: Text) -> Element:
    """The root element.

    Raises
    ------
    ReportError
        If the XML is cut or malformed (with the line), or declares a document type (no report does).
    """
    roots: list[Element] = []
    stack: list[Element] = []
    parser = expat.ParserCreate()

    def start(tag: str, attributes: dict[str, str]) -> None:
        element = Element(text, tag, parser.CurrentLineNumber - 1, attributes=attributes)
        (stack[-1].children if stack else roots).append(element)
        stack.append(element)

    def data(piece: str) -> None:
        if stack:
            stack[-1].value += piece

    def doctype(name: str, *_: object) -> None:
        text.fail(parser.CurrentLineNumber - 1, f"a document type {name}", "a report's XML, which has none")

    parser.buffer_text = True
    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _tag: stack.pop()
    parser.CharacterDataHandler = data
    parser.StartDoctypeDeclHandler = doctype
    try:
        parser.Parse("\n".join(text.lines), True)
    except expat.ExpatError as error:
        text.fail(error.lineno - 1, f"XML that is cut or malformed ({expat.ErrorString(error.code)})", "whole XML")
    return roots[0]
