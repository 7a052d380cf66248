"""The error texts of a gateway's configuration: file, line, and the nearest known option.

Tests: tests/unit/gateway/test_settings.py.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from aiokq.gateway.settings_tables import TABLES, TOPIC_TABLES, InputSettings, TopicSettings
from aiokq.gateway.sizes import Path as OptionPath

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

__all__ = ["Places", "error_texts", "table_name"]


class Places:
    """Formats places in the file for errors."""

    def __init__(self, source: str, lines: Mapping[OptionPath, int]) -> None:
        self._source = source
        self._lines = lines

    def of(self, path: OptionPath) -> str:
        """Return "FILE:LINE: " for an option, or for the nearest table that has a line.

        "FILE: " if none has a line; "" if the settings are not from a file.
        """
        if not self._source:
            return ""
        for end in range(len(path), 0, -1):
            line = self._lines.get(path[:end]) or self._lines.get((*path[:end], 0))
            if line is not None:
                return f"{self._source}:{line}: "
        return f"{self._source}: "


def error_texts(error: ValidationError, place: Places, root: type[BaseModel]) -> Iterable[str]:
    """Yield one text per error, but none for the errors of a union branch that cannot be meant.

    That is a branch for tables if the value is no table, or another branch if the value is a table.

    Args:
        root: the model of the whole file.
    """
    for one in error.errors(include_url=False):
        if any(isinstance(one["input"], dict) is unlikely for unlikely in _unlikely(one["loc"])):
            continue
        path = tuple(step for step in one["loc"] if step not in _BRANCHES)
        where = place.of(path)
        table = table_name(path[:-1])
        name = path[-1] if path else ""
        if one["type"] == "extra_forbidden":
            near = _nearest(str(name), _options(path[:-1], root))
            what = f"{table} has no option" if table else "there is no table or option"
            yield f"{where}{what} {str(name)!r}{near}"
        elif one["type"] == "missing":
            yield f"{place.of(path[:-1])}{table} needs the option {str(name)!r}"
        elif one["type"] == "value_error" and _model_at(path, root) is not None:
            text = _message(one["msg"])
            named = re.search("`([a-z_]+)`", text)
            where = where if named is None else place.of((*path, named[1]))
            yield f"{where}{table_name(path)} {text}"
        else:
            yield f"{where}{table + ' ' if table else ''}`{name}`: {_message(one['msg'])}"


_BRANCHES: Final = frozenset({"str", "int", "RateLimitSettings", "literal['unlimited']"})
"""Elements of pydantic's error locations that name a branch of a union, not an option."""


def _unlikely(path: Sequence[str | int]) -> Iterable[bool]:
    """Yield, for each union branch in `path`, whether the branch accepts no table."""
    for step in path:
        if step == "literal['unlimited']":
            yield True
        elif step == "RateLimitSettings":
            yield False


def _message(text: str) -> str:
    text = text.removeprefix("Value error, ")
    return text[:1].lower() + text[1:]


def table_name(path: Sequence[str | int]) -> str:
    """Return the name of a table in the file, such as [topics.orders] or [[inputs]] #2."""
    if not path:
        return ""
    if isinstance(path[-1], int):
        return f"[[{'.'.join(map(str, path[:-1]))}]] #{path[-1] + 1}"
    return f"[{'.'.join(map(str, path))}]"


def _model_at(path: Sequence[str | int], root: type[BaseModel]) -> type[BaseModel] | None:
    """Return the model of the table at `path`; None if there is no such table."""
    if not path:
        return root
    model, rest = TABLES.get(str(path[0])), path[1:]
    if model is TopicSettings:
        if len(rest) < 2:
            return model
        model, rest = TOPIC_TABLES.get(str(rest[1])), rest[2:]
    elif model is InputSettings:
        rest = rest[1:]
    return None if rest else model


def _options(path: Sequence[str | int], root: type[BaseModel]) -> Iterable[str]:
    model = _model_at(path, root)
    return () if model is None else model.model_fields


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name.lower().replace("-", "_").replace(".", "_"), [*known], 1)
    return f": did you mean {near[0]!r}?" if near else ""
