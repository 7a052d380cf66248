"""Typer parameters made from models: names, types, defaults, and what the command is given."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

import pytest
import typer
from typer.testing import CliRunner

from aiokq.cli.app import app
from aiokq.cli.model_options import Given, with_models
from aiokq.cli.record_options import PrintOptions, ProduceOptions, ReadOptions
from aiokq.cli.reset_options import ResetOptions
from aiokq.core.options import argument, flag, option, options
from aiokq.spark.exporting.columns import ExportColumns
from aiokq.spark.loading.options import LoadOptions

MODELS = [ExportColumns, LoadOptions, ResetOptions, PrintOptions, ProduceOptions, ReadOptions]


@dataclass(frozen=True)
class Painting:
    """A model with each kind of field."""

    colours: tuple[str, ...] = field(metadata=argument("COLOUR", help="Colours."))
    width: int | None = field(
        default=None, metadata=option("--width", "-w", help="Width.", minimum=1)
    )
    canvas: str | Path = field(default="linen", metadata=option("--canvas", help="Canvas."))
    layers: frozenset[int] = field(default=frozenset(), metadata=option("--layer", help="A layer."))
    finish: Literal["matt", "gloss"] = field(
        default="matt", metadata=option("--finish", help="Finish.")
    )
    signed: bool = field(default=True, metadata=option("--signed/--unsigned", help="Signed."))
    frame: tuple[str, ...] = field(
        default=(), metadata=option("--frame", help="Frame.", typed=str, before="width")
    )
    sold: bool = False


def run(*words: str) -> tuple[Any, dict[str, Any]]:
    """Run a command on the model; the result and what the command was given."""
    seen: dict[str, Any] = {}

    @with_models
    def command(given: Given[Painting], verbose: bool = False) -> None:
        seen.update(built=given.build(frame=("oak",)), raw=given["frame"], verbose=verbose)

    typed = typer.Typer()
    typed.command()(command)
    return CliRunner().invoke(typed, list(words)), seen


def test_values_have_the_types_of_the_fields_and_repeated_values_stand_once() -> None:
    """A list could be changed inside the frozen model, and duplicates would be processed twice."""
    result, seen = run("red", "blue", "red", "--layer", "2", "--layer", "2", "-w", "3", "--verbose")
    assert result.exit_code == 0, result.output
    assert seen["verbose"] is True
    assert seen["built"] == Painting(
        colours=("red", "blue"), width=3, layers=frozenset({2}), frame=("oak",)
    )


def test_a_field_that_the_command_converts_is_given_as_typed() -> None:
    """The model cannot convert it: a start time, for example, needs the current time."""
    _, seen = run("red", "--frame", "a,b")
    assert seen["raw"] == "a,b"
    _, seen = run("red")
    assert seen["raw"] is None


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ((), "COLOUR"),
        (("red", "-w", "0"), "-w"),
        (("red", "--finish", "rough"), "gloss"),
        (("red", "--sold"), "--sold"),
    ],
)
def test_what_the_field_does_not_take_is_wrong_usage(
    words: tuple[str, ...], complaint: str
) -> None:
    """This includes a field that is no option."""
    result, seen = run(*words)
    assert (result.exit_code, seen) == (2, {})
    assert complaint in result.output


def test_help_lists_an_option_before_the_one_that_it_names() -> None:
    """The order of the fields may be a public API that the help must not depend on."""
    assert [each.name for each, _ in options(Painting)][:3] == ["colours", "frame", "width"]
    assert (flag(Painting, "width"), flag(Painting, "colours")) == ("--width", "COLOUR")
    assert flag(Painting, "sold") is None


@pytest.mark.parametrize("model", MODELS)
def test_a_default_of_the_command_line_is_that_of_the_model(model: type[Any]) -> None:
    """With two defaults the command and the API would behave differently."""

    def command(given: Any) -> None: ...

    command.__annotations__["given"] = Given[model]  # type: ignore[valid-type]
    parameters = inspect.signature(with_models(command)).parameters
    by_name = {each.name: each for each in fields(model)}
    for own, given in options(model):
        default = parameters[own.name].default
        if given.default is not None:
            assert default == given.default
        elif default is None or default is inspect.Parameter.empty:
            assert by_name[own.name].default in (None, (), frozenset(), MISSING)
        else:
            assert default == own.default
        assert get_args(parameters[own.name].annotation)


def test_the_options_of_models_are_those_of_the_commands() -> None:
    """A command that is not made from its model would keep options that the model lost."""
    root: Any = typer.main.get_command(app)
    commands = {
        ("spark", "load"): (LoadOptions,),
        ("spark", "export"): (ExportColumns,),
        ("produce",): (ProduceOptions,),
        ("consume",): (ReadOptions, PrintOptions),
        ("groups", "reset"): (ResetOptions,),
        ("groups", "rewind"): (ResetOptions,),
    }
    for words, models in commands.items():
        command = root
        for word in words:
            command = command.commands[word]
        names = {parameter.name for parameter in command.params}
        assert names >= {own.name for model in models for own, _ in options(model)}
