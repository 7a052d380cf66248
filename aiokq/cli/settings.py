"""Settings of clients: from options, else from the file of --config, else from the environment."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import TypeVar

import typer

from aiokq.admin.settings import AdminSettings
from aiokq.cluster.settings import ClusterSettings
from aiokq.consumer.settings import ConsumerSettings
from aiokq.core.config_providers import resolve_variables
from aiokq.core.errors import ConfigError, ConfigWarning
from aiokq.core.properties import parse_properties
from aiokq.core.settings import JAVA_ONLY, unknown_setting
from aiokq.producer.settings import ProducerSettings

__all__ = ["client_settings", "own_settings"]

S = TypeVar("S", bound=ClusterSettings)

CLIENTS = (ClusterSettings, AdminSettings, ProducerSettings, ConsumerSettings)


def client_settings(
    kind: type[S], bootstrap_servers: str | None, config: Path | None, **options: object
) -> S:
    """Return the settings of one client.

    All commands may use the same file. In the file, settings of other kinds of clients are ignored,
    settings that only Java's clients have cause a warning, and unknown names are refused.

    Args:
        bootstrap_servers: the servers given on the command line; None if none were given.
        config: a Java property file.
        options: settings with precedence over file and environment; None counts as not given.

    Raises:
        ConfigError: the file cannot be read, a name is unknown, a value is refused.
        typer.BadParameter: no bootstrap servers were given anywhere.
    """
    values: dict[str, object] = {} if config is None else _from_file(kind, config)
    values |= {name: value for name, value in options.items() if value is not None}
    if bootstrap_servers is not None:
        values["bootstrap_servers"] = bootstrap_servers
    settings = kind.from_env("KAFKA_", environ=os.environ, **values)
    if not settings.bootstrap_servers:
        raise typer.BadParameter(
            "no cluster is named: give -b HOST:PORT, or set KAFKA_BOOTSTRAP_SERVERS, or "
            "bootstrap.servers in the file of --config"
        )
    return settings


def own_settings(settings: S) -> S:
    """Return the settings of a client that are not settings of its cluster.

    The returned settings are not validated, because a setting may depend on a setting of the
    cluster, such as ``request_timeout_ms``. The cluster validates the settings when it creates the
    client.
    """
    shared = ClusterSettings.model_fields.keys()
    own = {name: getattr(settings, name) for name in settings.explicit if name not in shared}
    return type(settings).model_construct(**own)


def _from_file(kind: type[ClusterSettings], path: Path) -> dict[str, object]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = str(error.strerror) if isinstance(error, OSError) else "it is not UTF-8 text"
        if "=" in str(path):
            reason += "; a config of a topic or a group is given as --set NAME=VALUE"
        raise ConfigError(f"cannot read --config {path}: {reason}") from None
    try:
        given = resolve_variables(parse_properties(text))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}") from None
    known = {name for client in CLIENTS for name in client.model_fields}
    found: dict[str, object] = {}
    for java_name, value in given.items():
        name = java_name.replace(".", "_")
        if name in kind.model_fields:
            found[name] = value
        elif name in known:
            continue
        elif java_name in JAVA_ONLY:
            warnings.warn(
                f"{path}: {java_name} is ignored: {JAVA_ONLY[java_name]}",
                ConfigWarning,
                stacklevel=2,
            )
        else:
            names = (each.replace("_", ".") for each in known)
            raise ConfigError(f"{path}: {unknown_setting(java_name, names)}")
    return found
