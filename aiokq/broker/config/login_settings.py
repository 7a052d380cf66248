"""Adds the settings that `EmbeddedCluster(users=, authenticate=, ssl_context=)` needs.

Tests: ``tests/unit/broker/config/test_login_settings.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aiokq.broker.config.listeners import sasl_listeners, tls_listeners
from aiokq.broker.config.settings import broker_settings, setting_name
from aiokq.core.errors import ConfigError
from aiokq.core.jaas import PLAIN, jaas_text

__all__ = ["with_logins", "with_tls"]

_SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_MECHANISMS: Final = "sasl.enabled.mechanisms"
_JAAS: Final = "plain.sasl.jaas.config"
_LISTENER: Final = "listener.name."
_OF_NAMES: Final = "ssl.principal.mapping.rules"


def with_logins(
    settings: Mapping[str, object] | None, users: Mapping[str, str] | None, *, own_check: bool
) -> Mapping[str, object]:
    """Return `settings`, with added settings that enable the SASL mechanisms for logins.

    If the settings name the mechanisms of a listener, the listener keeps them. If not, it gets
    SCRAM and PLAIN for `users`, and PLAIN and OAUTHBEARER for the caller's own check. If the
    settings have no listeners, the only listener is SASL_PLAINTEXT.

    Args:
        users: passwords by name; None for no users.
        own_check: whether the caller gave a function that checks passwords and tokens.

    Raises:
        ConfigError: a setting is wrong, or no listener has SASL.
    """
    if settings is not None and not isinstance(settings, Mapping):
        broker_settings(settings)  # raises ConfigError
    given = _with_listener(settings, "SASL_PLAINTEXT")
    names = _names(given)
    listeners = sasl_listeners(broker_settings(given))
    if not listeners:
        raise ConfigError(
            "users and authenticate need a listener with SASL: remove listeners from the settings, "
            "or write for example SASL_PLAINTEXT://127.0.0.1:0"
        )
    mechanisms = [
        *(_SCRAM if users is not None else ()),
        "PLAIN",
        *(("OAUTHBEARER",) if own_check else ()),
    ]
    for name in listeners:
        prefix = f"listener.name.{name.lower()}."
        if not names & {_MECHANISMS, prefix + _MECHANISMS}:
            given[prefix + _MECHANISMS] = ",".join(mechanisms)
        if users is not None and prefix + _JAAS not in names:
            options = {f"user_{user}": password for user, password in users.items()}
            given[prefix + _JAAS] = jaas_text(PLAIN, options)
    return given


def with_tls(settings: Mapping[str, object] | None, *, has_logins: bool) -> Mapping[str, object]:
    """Return `settings`, with a listener for the context that the caller gave.

    If the settings have no listeners, the only listener is SSL, or SASL_SSL for logins.

    Raises:
        ConfigError: a setting is wrong, no listener has TLS, or a setting that the context replaces
            is given, too.
    """
    if settings is not None and not isinstance(settings, Mapping):
        broker_settings(settings)  # raises ConfigError
    given = _with_listener(settings, "SASL_SSL" if has_logins else "SSL")
    for name in sorted(_names(given)):
        base = name.removeprefix(_LISTENER)
        base = base if base == name else base.partition(".")[2]
        if base.startswith("ssl.") and base != _OF_NAMES:
            raise ConfigError(f"ssl_context and {name} exclude each other: remove one of them")
    if not tls_listeners(broker_settings(given)):
        raise ConfigError(
            "ssl_context needs a listener with TLS: remove listeners from the settings, or write "
            "for example SSL://127.0.0.1:0"
        )
    return given


def _with_listener(settings: Mapping[str, object] | None, listener: str) -> dict[str, object]:
    """Return `settings`, with `listener` on 127.0.0.1 if they have no listeners."""
    given: dict[str, object] = dict(settings or {})
    names = _names(given)
    if "listeners" not in names:
        given["listeners"] = f"{listener}://127.0.0.1:0"
        if not names & {"inter.broker.listener.name", "security.inter.broker.protocol"}:
            given["inter.broker.listener.name"] = listener
    return given


def _names(given: Mapping[str, object]) -> set[str]:
    return {setting_name(name) for name in given if isinstance(name, str)}
