"""Reads small, untrusted XML documents, with the line of each element.

Document type declarations, and with them custom entities, are refused. Deep and large documents are
refused, too. Tests: tests/unit/gateway/test_import_xml.py.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection
from pathlib import Path
from typing import Final
from xml.parsers import expat

from aiokq.errors import ConfigError

__all__ = ["Element", "read_document"]

MOST_BYTES: Final = 4 * 1024 * 1024
MOST_DEPTH: Final = 16
MOST_ELEMENTS: Final = 100_000


class Element:
    """An element of a document.

    Attributes:
        path: the names of the enclosing elements and of this element, separated by slashes.
        line: the line of the element in the file.
    """

    __slots__ = ("attributes", "children", "file", "line", "name", "path")

    def __init__(
        self, file: str, name: str, path: str, line: int, attributes: dict[str, str]
    ) -> None:
        self.file = file
        self.name = name
        self.path = path
        self.line = line
        self.attributes = attributes
        self.children: list[Element] = []

    def error(self, text: str) -> ConfigError:
        """Return an error that names the file, the line and the element."""
        return ConfigError(f"{self.file}:{self.line}: <{self.path}>: {text}")

    def sections(self, known: Collection[str]) -> dict[str, Element]:
        """Return the child elements, by name.

        Raises:
            ConfigError: an element is not one of `known`, or occurs twice.
        """
        found: dict[str, Element] = {}
        for child in self.children:
            if child.name not in known:
                near = difflib.get_close_matches(child.name, [*known], 1)
                hint = f": did you mean <{near[0]}>?" if near else ""
                raise child.error(f"there is no such element in <{self.name}>{hint}")
            if child.name in found:
                first = found[child.name].line
                raise child.error(f"the element occurs twice; it is in line {first}, too")
            found[child.name] = child
        return found

    def items(self, name: str) -> list[Element]:
        """Return the child elements.

        Raises:
            ConfigError: an element has another name than `name`, or has child elements.
        """
        for child in self.children:
            if child.name != name:
                raise child.error(f"<{self.name}> contains <{name}> only")
            child.leaf()
        return self.children

    def leaf(self) -> Element:
        """Return this element.

        Raises:
            ConfigError: the element has child elements.
        """
        if self.children:
            raise self.children[0].error(f"<{self.name}> contains no elements")
        return self

    def text(self, attribute: str, default: str | None = None) -> str:
        """Return an attribute without the white space around it.

        Raises:
            ConfigError: the attribute is missing, and there is no default.
        """
        value = self.attributes.get(attribute, default)
        if value is None:
            raise self.error(f"the attribute `{attribute}` is missing")
        return value.strip()


def read_document(file: Path) -> Element:
    """Return the root of the document in a file.

    Raises:
        ConfigError: the file cannot be read, is not XML, or is too large or too deep. The message
            names the file and the line.
    """
    try:
        with file.open("rb") as opened:
            data = opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from error
    if len(data) > MOST_BYTES:
        raise ConfigError(f"{file}: the file has more than {MOST_BYTES} bytes")
    reader = _Reader(str(file))
    try:
        reader.parser.Parse(data, True)
    except ConfigError:  # raised by a handler; a ConfigError is also a ValueError
        raise
    except expat.ExpatError as error:
        text = expat.errors.messages[error.code]
        raise ConfigError(f"{file}:{error.lineno}: the file is not XML: {text}") from error
    except (LookupError, ValueError) as error:  # raised by the codec that the file names
        raise ConfigError(f"{file}: the file cannot be decoded: {error}") from error
    assert reader.root is not None  # a document without an element is an ExpatError
    return reader.root


class _Reader:
    """Builds elements from the events of a parser."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._open: list[Element] = []
        self._count = 0
        self.root: Element | None = None
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text
        self.parser.StartDoctypeDeclHandler = self._doctype

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        line = self.parser.CurrentLineNumber
        self._count += 1
        if len(self._open) >= MOST_DEPTH:
            raise ConfigError(f"{self._file}:{line}: <{name}>: the elements are nested too deeply")
        if self._count > MOST_ELEMENTS:
            raise ConfigError(f"{self._file}:{line}: <{name}>: the file has too many elements")
        path = f"{self._open[-1].path}/{name}" if self._open else name
        element = Element(self._file, name, path, line, attributes)
        if self._open:
            self._open[-1].children.append(element)
        else:
            self.root = element
        self._open.append(element)

    def _end(self, name: str) -> None:
        self._open.pop()

    def _text(self, text: str) -> None:
        if text.strip():
            line = self.parser.CurrentLineNumber
            where = self._open[-1].path
            raise ConfigError(
                f"{self._file}:{line}: <{where}>: text is not expected here; values are attributes"
            )

    def _doctype(self, name: str, *rest: object) -> None:
        line = self.parser.CurrentLineNumber
        raise ConfigError(
            f"{self._file}:{line}: <!DOCTYPE {name}>: document types and entities are refused"
        )
