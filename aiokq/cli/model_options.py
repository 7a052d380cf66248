"""Typer parameters made from models of options (aiokq.core.options)."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final, Generic, TypeVar

import typer

from aiokq.cli.options import at_most
from aiokq.core.options import Option, options

__all__ = ["Given", "with_models"]

M = TypeVar("M")

KEYWORD: Final = inspect.Parameter.KEYWORD_ONLY
COLLECTIONS: Final = (tuple, frozenset)
"""Types of fields that become repeatable options."""


class Given(Generic[M]):
    """Values given on the command line for the fields of a model.

    ``Given[Model]`` is the annotation of a command's parameter; see `with_models`. The values of a
    repeatable option are a collection of the field's type, without duplicates. If `Option.typed` is
    set for the option, its values are the list that Typer returns, or None.
    """

    def __init__(self, model: type[M], values: dict[str, Any]) -> None:
        self._model = model
        self._values = values

    def __getitem__(self, field: str) -> Any:
        return self._values[field]

    def build(self, **values: object) -> M:
        """Return the model. `values` replace given values, and set fields that have no option."""
        return self._model(**(self._values | values))


def with_models(command: Callable[..., None]) -> Callable[..., None]:
    """Return `command` with the options of a model in place of each parameter of type `Given`."""
    parameters: list[inspect.Parameter] = []
    given: dict[str, _Model[Any]] = {}
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        if typing.get_origin(parameter.annotation) is Given:
            model = given[parameter.name] = _Model(typing.get_args(parameter.annotation)[0])
            parameters += model.parameters
        else:
            parameters.append(parameter.replace(kind=KEYWORD))

    def run(*positional: object, **values: Any) -> None:
        for name, model in given.items():
            values[name] = model.take(values)
        command(*positional, **values)

    functools.update_wrapper(run, command)
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


class _Model(Generic[M]):
    """A model and Typer's parameters for its fields."""

    def __init__(self, model: type[M]) -> None:
        self._model = model
        self.parameters: list[inspect.Parameter] = []
        self._collections: dict[str, type[Any]] = {}
        hints = typing.get_type_hints(model)
        for field, option in options(model):
            hint = hints[field.name]
            self.parameters.append(_parameter(field, option, hint))
            if option.typed is None and typing.get_origin(hint) in COLLECTIONS:
                self._collections[field.name] = typing.get_origin(hint)

    def take(self, values: dict[str, Any]) -> Given[M]:
        """Remove the values of the model's fields from `values` and return them."""
        taken = {each.name: values.pop(each.name) for each in self.parameters}
        for name, collection in self._collections.items():
            taken[name] = collection(dict.fromkeys(taken[name] or ()))
        return Given(self._model, taken)


def _parameter(field: dataclasses.Field[Any], option: Option, hint: object) -> inspect.Parameter:
    kind = _typed(hint) if option.typed is None else option.typed
    info: Any
    if option.flags:
        info = typer.Option(
            *option.flags,
            metavar=option.metavar,
            help=option.help,
            min=option.minimum,
            callback=None if option.maximum is None else at_most(option.maximum),
            rich_help_panel=option.panel,
            show_default=option.show_default,
        )
    else:
        info = typer.Argument(metavar=option.metavar, help=option.help, show_default=False)
    default = _default(field) if option.default is None else option.default
    if default is None:
        kind |= None
    return inspect.Parameter(field.name, KEYWORD, default=default, annotation=Annotated[kind, info])


def _default(field: dataclasses.Field[Any]) -> Any:
    """Return the default of a field's option.

    The default is None for a collection, and `Parameter.empty` for a required field.
    """
    if field.default_factory is not dataclasses.MISSING or isinstance(field.default, COLLECTIONS):
        return None
    if field.default is dataclasses.MISSING:
        return inspect.Parameter.empty
    return field.default


def _typed(hint: Any) -> Any:
    """Return the type to which Typer converts the values of a field of type `hint`."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        branches = [each for each in typing.get_args(hint) if each not in (types.NoneType, Path)]
        return _typed(branches[0]) if branches else Path
    if typing.get_origin(hint) in COLLECTIONS:
        return list[typing.get_args(hint)[0]]  # type: ignore[misc]
    return hint
