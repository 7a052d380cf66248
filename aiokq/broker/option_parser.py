"""The parser of `aiokq broker` for command lines that `options.read_options` does not read.

This parser prints the help and explains errors.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

from aiokq.broker.options import OPTIONS, Options

__all__ = ["parse_options"]

PROGRAM: Final = "aiokq broker"


def parse_options(arguments: Sequence[str], complain: Callable[[str], int]) -> Options:
    """Return the values of a command line.

    Args:
        complain: reports an error in the arguments, and returns the exit code.

    Raises:
        SystemExit: the arguments have an error, or `--help` is among them.
    """
    parser = _Parser(complain)
    for option in OPTIONS:
        if not option.has_value:
            parser.add_argument(
                option.flag, dest=option.field, action="store_true", help=option.help
            )
            continue
        parser.add_argument(
            option.flag,
            dest=option.field,
            help=option.help,
            metavar=option.metavar,
            type=_explained(option.convert),
            choices=option.choices or None,
            action="append" if option.repeated else "store",
        )
    found: dict[str, Any] = {
        field: tuple(value) if isinstance(value, list) else value
        for field, value in vars(parser.parse_args(arguments)).items()
        if value is not None
    }
    return Options(**found)


class _Parser(argparse.ArgumentParser):
    """An argument parser that reports errors in one line, without the usage."""

    def __init__(self, complain: Callable[[str], int]) -> None:
        super().__init__(
            prog=PROGRAM,
            description=(
                "Run an embedded Kafka broker as a process; any Kafka client works with it."
            ),
            formatter_class=_formatter,
        )
        self._complain = complain

    def error(self, message: str) -> NoReturn:
        # Users of kafka-server-start may pass a properties file and --override NAME=VALUE.
        if "--override" in message:
            message += ": use --set NAME=VALUE"
        elif message.endswith(".properties"):
            message += ": use --config FILE"
        sys.exit(self._complain(f"{message} (see {self.prog} --help)"))


def _formatter(prog: str) -> argparse.HelpFormatter:
    """Return a formatter as wide as the terminal, without the slow import of `shutil`."""
    try:
        columns = int(os.environ.get("COLUMNS", 0)) or os.get_terminal_size().columns
    except (OSError, ValueError):
        columns = 80
    return argparse.HelpFormatter(prog, width=columns - 2)


def _explained(convert: Callable[[str], object]) -> Callable[[str], object]:
    """Return `convert` with its ValueError turned into an error whose text the parser shows."""

    def converted(text: str) -> object:
        try:
            return convert(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return converted
