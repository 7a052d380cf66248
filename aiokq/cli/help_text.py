"""Layout of help texts: paragraphs that fill the line, and examples at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typer.core import TyperGroup

__all__ = ["examples", "flowing"]


def examples(*commands: str) -> str:
    """Return an epilog with one command per line."""
    lines = (command.replace("[", r"\[") for command in commands)
    return "\n".join(("Examples:", *(f"[bold]$[/bold] {line}" for line in lines)))


def flowing(command: TyperGroup) -> None:
    """Join the lines of each paragraph of the help texts, so that Typer wraps them at full width.

    Help texts are docstrings, whose lines end at 100 columns.
    """
    if command.help:
        paragraphs = command.help.split("\n\n")
        command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    for child in getattr(command, "commands", {}).values():
        flowing(child)
