"""Reader and writer of Java's property files.

Used for the client's `from_properties`, the broker's `--config` and Kafka's `meta.properties`. A
broker imports this module at its start, so this module must not import modules that load slowly.
Source: java.util.Properties.load.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

# Compiled at the first use, because a broker that starts on a new directory reads no properties.
_KEY = r"(?s)((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*"
_ESCAPE = r"(?s)\\(u[0-9a-fA-F]{4}|.)"
_NAMED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """Return the values by name, in the order of the file; a repeated name has its last value."""
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        key = re.match(_KEY, line)
        assert key is not None  # every part of the pattern may be empty
        found[_unescape(key[1])] = _unescape(line[key.end() :])
    return found


def format_properties(values: Mapping[str, str], *, comment: str = "") -> str:
    """Return the text of a property file that parse_properties() can read."""
    head = "".join(f"# {line}\n" for line in comment.splitlines())
    return head + "".join(
        f"{_escape(name, ' =:')}={_escape(value, '')}\n" for name, value in values.items()
    )


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    continued = False
    for raw in re.split(r"\r\n|\r|\n", text):
        line = raw.lstrip(" \t\f")
        if not continued and (not line or line[0] in "#!"):
            continue
        ends_open = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        body = line[:-1] if ends_open else line
        if continued:
            lines[-1] += body
        else:
            lines.append(body)
        continued = ends_open
    return lines


def _unescape(text: str) -> str:
    return re.sub(
        _ESCAPE,
        lambda found: (
            chr(int(found[1][1:], 16)) if len(found[1]) > 1 else _NAMED.get(found[1], found[1])
        ),
        text,
    )


def _escape(text: str, special: str) -> str:
    out = []
    for index, char in enumerate(text):
        named = next((name for name, value in _NAMED.items() if value == char), None)
        if named is not None:
            out.append("\\" + named)
        elif char == "\\" or char in special or (index == 0 and char in " #!"):
            out.append("\\" + char)
        elif ord(char) < 32 or ord(char) == 127:
            out.append(f"\\u{ord(char):04x}")
        else:
            out.append(char)
    return "".join(out)
