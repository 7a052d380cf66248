"""Checks the settings that turn on access control.

Tests: ``tests/unit/broker/config/test_authorizer_settings.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from aiokq.core.errors import ConfigError

if TYPE_CHECKING:
    from aiokq.broker.config.setting import SettingValue

__all__ = [
    "AUTHORIZER",
    "OF_THE_AUTHORIZER",
    "STANDARD_AUTHORIZER",
    "check_authorizer",
    "super_users",
]

AUTHORIZER: Final = "authorizer.class.name"
STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
"""The only value of `AUTHORIZER`, besides an empty one."""

OF_THE_AUTHORIZER: Final = ("super.users", "allow.everyone.if.no.acl.found")
"""The settings that only the authorizer reads. Kafka itself does not declare them."""


def super_users(text: str) -> tuple[str, ...]:
    """Return the principals in `super.users`, which are separated by semicolons.

    Raises:
        ConfigError: a principal has no type.
    """
    found = tuple(part.strip() for part in text.split(";") if part.strip())
    for principal in found:
        kind, colon, name = principal.partition(":")
        if not (kind and colon and name):
            raise ConfigError(
                f"super.users: {principal!r} must have a type, such as User:{name or kind}; "
                "several principals are separated by semicolons"
            )
    return found


def check_authorizer(values: Mapping[str, SettingValue]) -> list[str]:
    """Check the access control settings that a user gave.

    Returns:
        The given settings that have no effect, because there is no authorizer.

    Raises:
        ConfigError: the authorizer is not `STANDARD_AUTHORIZER`, or a super user has no type.
    """
    authorizer = str(values.get(AUTHORIZER, "")).strip()
    super_users(str(values.get("super.users", "")))
    if not authorizer:
        return [name for name in OF_THE_AUTHORIZER if name in values]
    if authorizer != STANDARD_AUTHORIZER:
        raise ConfigError(
            f"{AUTHORIZER}={authorizer}: this broker cannot load Java classes, and has only "
            f"{STANDARD_AUTHORIZER}"
        )
    return []
