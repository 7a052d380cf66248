"""Options of a command as the fields of a model, a frozen dataclass with metadata.

A field gives the keyword of the API, its type and default, the flag and the help text. From a model
`aiokq.cli.model_options` makes Typer's parameters, and tools/generate_docs.py makes
docs/reference/commands.md. Models are dataclasses and not pydantic models, because `aiokq --help`
imports all of them, and importing pydantic takes 100 ms.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from aiokq.core.named_tuple import NamedTuple

__all__ = ["Option", "argument", "flag", "option", "options"]

_KEY: Final = "aiokq.option"


class Option(NamedTuple):
    """A field of a model on the command line."""

    flags: tuple[str, ...]
    """The flags as the user types them; empty for a positional argument."""
    help: str
    metavar: str | None
    panel: str | None
    """Heading under which the help lists the option."""
    minimum: float | None
    show_default: bool
    typed: Any
    """Type on the command line, if the command converts the value; None: the type of the field."""
    default: Any
    """Default on the command line, if it is written differently; None: the default of the field."""
    before: str | None
    """Field of the model before which the help lists the option; None: in the order of fields."""


def option(
    *flags: str,
    help: str,
    metavar: str | None = None,
    panel: str | None = None,
    minimum: float | None = None,
    show_default: bool = True,
    typed: Any = None,
    default: Any = None,
    before: str | None = None,
) -> Mapping[str, Option]:
    """Return the metadata of a field that is an option; see `Option`."""
    return {
        _KEY: Option(flags, help, metavar, panel, minimum, show_default, typed, default, before)
    }


def argument(metavar: str, *, help: str, typed: Any = None) -> Mapping[str, Option]:
    """Return the metadata of a field that is a positional argument."""
    return {_KEY: Option((), help, metavar, None, None, False, typed, None, None)}


def options(model: type[Any]) -> list[tuple[dataclasses.Field[Any], Option]]:
    """Return the fields of `model` that are on the command line, in the order of the help."""
    found: list[tuple[dataclasses.Field[Any], Option]] = []
    for field in dataclasses.fields(model):
        if (given := field.metadata.get(_KEY)) is not None:
            names = [other.name for other, _ in found]
            place = names.index(given.before) if given.before else len(names)
            found.insert(place, (field, given))
    return found


def flag(model: type[Any], name: str) -> str | None:
    """Return the flag or metavar of the field `name`; None if it is not on the command line."""
    for field, found in options(model):
        if field.name == name:
            return found.flags[0] if found.flags else found.metavar
    return None
