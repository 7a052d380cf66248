"""The settings and listeners of `aiokq broker`, from its options and its properties file.

Tests: ``tests/unit/broker/test_process_settings.py``, ``tests/fault/test_broker_process.py``.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from aiokq.broker.config.listeners import (
    HOST,
    LOCALHOST,
    Advertise,
    Listeners,
    configured_listeners,
    is_wildcard,
)
from aiokq.broker.config.setting import shortened
from aiokq.broker.config.settings import (
    BrokerSettings,
    broker_settings,
    log_directories,
    setting_name,
)
from aiokq.core.errors import ConfigError
from aiokq.core.named_tuple import NamedTuple
from aiokq.core.numbers import PORT_MAX, parse_number

if TYPE_CHECKING:
    from aiokq.broker.options import Options

__all__ = ["Choice", "choose_settings", "listeners_of"]


class Choice(NamedTuple):
    """The settings, and why their profile was chosen; the reason is None if --profile is given."""

    settings: BrokerSettings
    reason: str | None


def choose_settings(options: Options) -> Choice:
    """Return the settings that the options and the properties file give.

    The profile is `--profile`, or the result of `_default_profile`.

    Raises:
        ConfigError: a setting is unknown or its value is refused, a value of `--set` has no `=`, or
            the file is not UTF-8.
        OSError: the file cannot be read.
    """
    given: dict[str, object] = {}
    if options.config is not None:
        given.update(_properties(options.config))
    for assignment in options.assignments:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise ConfigError(f"--set takes NAME=VALUE, not {assignment!r}")
        # --set takes precedence over --config, even if one of them writes the name with `_`.
        plain = setting_name(name)
        given = {other: text for other, text in given.items() if setting_name(other) != plain}
        given[name] = value
    if options.profile is not None:
        return Choice(broker_settings(given, profile=options.profile), None)
    settings = broker_settings(given, profile="kafka")
    profile, reason = _default_profile(options, options.data_dirs or log_directories(settings))
    if profile != settings.profile:
        settings = broker_settings(given, profile=profile)
    return Choice(settings, reason)


def _properties(path: str) -> dict[str, str]:
    """Return the names and values in a properties file.

    Raises:
        ConfigError: the file is not UTF-8.
        OSError: the file cannot be read.
    """
    from aiokq.core.properties import parse_properties

    with open(path, "rb") as file:
        data = file.read()
    try:
        return parse_properties(data.decode())
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"{path} is not UTF-8: byte 0x{data[error.start]:02x} in line {line}; save the file as "
            "UTF-8, or write the character as \\uXXXX"
        ) from None


def _default_profile(options: Options, directories: Sequence[str]) -> tuple[str, str]:
    """Return the profile to use if --profile is not given, and the reason for it."""
    if options.config is not None:
        return "kafka", "--config is given"
    if not directories:
        return "dev", "nothing is kept"
    if any(os.path.exists(os.path.join(path, "meta.properties")) for path in directories):
        return "kafka", "the data directory is not new"
    if sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty():
        return "dev", "the broker runs at a terminal with a new data directory"
    return "kafka", "the broker does not run at a terminal"


def listeners_of(settings: BrokerSettings, options: Options) -> Listeners:
    """Return the listeners that settings and flags describe.

    Raises:
        ConfigError: a setting or flag is malformed or contradictory, requires TLS or SASL of a kind
            that this broker does not have, or would advertise a wildcard address.
    """
    host = None if options.host is None else _without_brackets(options.host)
    if host is not None and host.lower() == LOCALHOST:
        host = "127.0.0.1"  # localhost may also mean ::1, where port 0 would give another port
    advertises = options.advertise is not None or settings.advertised_listeners is not None
    if host is not None and is_wildcard(host) and not advertises:
        raise ConfigError(
            f"--host {host or 'of all addresses'} needs --advertise HOST[:PORT], an address that "
            "clients can connect to"
        )
    return configured_listeners(
        settings, host=host, port=options.port, advertise=_advertise(options.advertise)
    )


def _advertise(text: str | None) -> Advertise:
    """Parse `--advertise HOST[:PORT]`.

    Raises:
        ConfigError: `text` is malformed, or has a wildcard address.
    """
    if text is None:
        return Advertise()
    name, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        name, port = text, ""
    if ":" in name and not name.startswith("["):
        raise ConfigError(
            f"--advertise {shortened(text)}: an IPv6 address must be in brackets, for example "
            "[::1]:9092"
        )
    name = _without_brackets(name)
    if name and is_wildcard(name):
        raise ConfigError(f"--advertise {name}: clients cannot connect to a wildcard address")
    try:
        number = parse_number(port, PORT_MAX) if port else None
    except ValueError:
        number = 0
    if not name or not re.fullmatch(HOST, name) or number == 0:
        raise ConfigError(f"--advertise takes HOST[:PORT], not {shortened(repr(text))}")
    return Advertise(name, number)


def _without_brackets(host: str) -> str:
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host
