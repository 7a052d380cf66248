"""What all client commands share: where the cluster is, settings, errors as one line.

Exit codes: 1 the command failed, 2 bad arguments or settings, 130 interrupted.
"""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from aiokq.core.errors import ConfigError, KafkaError
from aiokq.core.settings import Settings

__all__ = ["AsJson", "BootstrapServers", "ConfigFile", "run", "settings_of"]

T = TypeVar("T")
S = TypeVar("S", bound=Settings)

DEFAULT_BOOTSTRAP_SERVERS = "127.0.0.1:9092"

BootstrapServers = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-servers",
        "-b",
        envvar="KAFKA_BOOTSTRAP_SERVERS",
        metavar="HOST:PORT,...",
        help=f"The cluster; default {DEFAULT_BOOTSTRAP_SERVERS}.",
    ),
]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="A properties file of client settings.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def settings_of(
    kind: type[S], bootstrap_servers: str | None, config: Path | None, **values: object
) -> S:
    """Settings of a command: the file's, with what the command line says on top.

    Raises:
        ConfigError: a setting that does not exist or is out of range.
    """
    given = {name: value for name, value in values.items() if value is not None}
    if bootstrap_servers is not None:
        given["bootstrap_servers"] = bootstrap_servers
    if config is None:
        given.setdefault("bootstrap_servers", DEFAULT_BOOTSTRAP_SERVERS)
        return kind(**given)
    settings = kind.from_properties(config, **given)
    if "bootstrap_servers" in settings.explicit:
        return settings
    return settings.with_overrides(bootstrap_servers=DEFAULT_BOOTSTRAP_SERVERS)


def run(main: Coroutine[object, object, T]) -> T:
    """Run a command to its end; a failure is one line on stderr and an exit code."""
    warnings.showwarning = _show_warning
    logging.getLogger("aiokq").setLevel(logging.ERROR)  # what fails is said once, at the end
    try:
        return asyncio.run(main)
    except ConfigError as error:
        code, message = 2, error.message
    except KafkaError as error:
        code, message = 1, str(error)
    except BrokenPipeError:
        raise typer.Exit(0) from None  # `| head` has seen enough
    except OSError as error:
        code, message = 1, str(error)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    typer.echo(f"aiokq: {' '.join(message.split())}", err=True)
    raise typer.Exit(code)


def _show_warning(message: object, *_: object, **__: object) -> None:
    typer.echo(f"aiokq: warning: {message}", err=True)
