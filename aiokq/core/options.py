"""The options of a command, as fields of a model: a frozen dataclass whose fields have metadata.

A field defines the keyword argument of the API, its type and default, its flag and its help text.
`aiokq.cli.model_options` creates Typer's parameters from a model, and tools/generate_docs.py
creates docs/reference/commands.md. Models are dataclasses and not pydantic models, because
`aiokq --help` imports all of them, and importing pydantic takes 100 ms.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from aiokq.core.named_tuple import NamedTuple

__all__ = ["Option", "argument", "flag", "option", "options"]

_KEY: Final = "aiokq.option"


class Option(NamedTuple):
    """The form of a model's field on the command line."""

    flags: tuple[str, ...]
    """The flags as the user types them; empty for a positional argument."""
    help: str
    metavar: str | None
    panel: str | None
    """Heading under which the help lists the option."""
    minimum: float | None
    maximum: float | None
    """Largest magnitude of a number; the help does not show it."""
    show_default: bool
    typed: Any
    """Type on the command line if the command converts the value, else None."""
    default: Any
    """Default on the command line; None for the field's default."""
    before: str | None
    """Field before which the help lists the option; None to list it in the order of the fields."""


def option(
    *flags: str,
    help: str,
    metavar: str | None = None,
    panel: str | None = None,
    minimum: float | None = None,
    maximum: float | None = None,
    show_default: bool = True,
    typed: Any = None,
    default: Any = None,
    before: str | None = None,
) -> Mapping[str, Option]:
    """Return the metadata of a field that is an option; see `Option`."""
    return {
        _KEY: Option(
            flags, help, metavar, panel, minimum, maximum, show_default, typed, default, before
        )
    }


def argument(metavar: str, *, help: str, typed: Any = None) -> Mapping[str, Option]:
    """Return the metadata of a field that is a positional argument."""
    return {_KEY: Option((), help, metavar, None, None, None, False, typed, None, None)}


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
    """Return the first flag or the metavar of a field; None if it is not on the command line."""
    for field, found in options(model):
        if field.name == name:
            return found.flags[0] if found.flags else found.metavar
    return None
