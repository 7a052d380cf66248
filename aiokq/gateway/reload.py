"""Compares two configurations, and finds the changes that a running gateway has to make.

Tests: tests/fault/test_gateway_reload.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from aiokq.errors import ConfigError

if TYPE_CHECKING:
    from aiokq.gateway.inputs import OpenInput
    from aiokq.gateway.settings import GatewaySettings
    from aiokq.gateway.settings_tables import InputSettings

__all__ = [
    "RESTART",
    "InputChanges",
    "changes",
    "input_changes",
    "largest_limit",
    "needs_other_engine",
]

RESTART: Final = frozenset({"pool", "spool", "discards", "debug"})
"""The tables that only a restart can change."""


def changes(old: GatewaySettings, new: GatewaySettings) -> list[str]:
    """Return the names of the tables and options that differ.

    Raises:
        ConfigError: a table has changed that needs a restart, or the new file has no bootstrap
            address or no input.
    """
    changed: list[str] = []
    for name in type(old).model_fields:
        before, after = getattr(old, name), getattr(new, name)
        if before == after:
            continue
        if name == "delivery":
            changed += [
                f"delivery.{option}"
                for option in type(before).model_fields
                if getattr(before, option) != getattr(after, option)
            ]
        else:
            changed.append(name)
    fixed = [name for name in changed if name in RESTART]
    if (old.dead_letters is None) != (new.dead_letters is None):
        fixed.append("dead_letters")  # the pool's queue of refused messages cannot change
    if fixed:
        raise ConfigError(
            f"{', '.join(fixed)}: changed in the file, and only a restart can change it; nothing "
            "was changed"
        )
    if not new.kafka.get("bootstrap_servers"):
        raise ConfigError("no cluster is named: set `bootstrap_servers` in [kafka]")
    if not new.inputs:
        raise ConfigError("the file has no [[inputs]]")
    return changed


def needs_other_engine(old: GatewaySettings, new: GatewaySettings, largest: int) -> bool:
    """Return whether the change needs a new engine.

    Args:
        largest: the `largest_limit` of the settings that the engine in use was made with.
    """
    return (
        old.kafka != new.kafka
        or old.delivery.engine != new.delivery.engine
        or largest < largest_limit(new)  # max_request_size of a producer is fixed
    )


def largest_limit(settings: GatewaySettings) -> int:
    """Return the size of the largest message that an input allows."""
    return max(one.limit for one in settings.inputs)


class InputChange(NamedTuple):
    """An input and other options for it, at the same address."""

    input: OpenInput
    old: InputSettings
    new: InputSettings

    @property
    def keeps_connections(self) -> bool:
        """Whether the input's connections stay open: only if its allowed users are the same."""
        return self.old.allowed_users == self.new.allowed_users


class InputChanges(NamedTuple):
    """The changes of the inputs.

    Attributes:
        kept: inputs whose options are the same.
        changed: inputs with other options.
        removed: inputs that are no longer in the file.
        added: options of new inputs.
    """

    kept: Sequence[OpenInput]
    changed: Sequence[InputChange]
    removed: Sequence[OpenInput]
    added: Sequence[InputSettings]


def input_changes(inputs: Sequence[OpenInput], new: Sequence[InputSettings]) -> InputChanges:
    """Compare the open inputs with those of a new file, by type and address.

    Raises:
        ConfigError: an input has another type at the same path, where the old one still listens.
    """
    left = list(inputs)
    kept: list[OpenInput] = []
    changed: list[InputChange] = []
    added: list[InputSettings] = []
    for settings in new:
        address = (settings.type, settings.where)
        for one in left:
            if (one.type, one.socket.settings.where) == address:
                left.remove(one)
                if one.socket.settings == settings:
                    kept.append(one)
                else:
                    changed.append(InputChange(one, one.socket.settings, settings))
                break
        else:
            added.append(settings)
    paths = {one.socket.settings.path for one in left} - {None}
    for settings in added:
        if settings.path in paths:
            raise ConfigError(
                f"input {settings.path}: its type has changed in the file, and only a restart can "
                "change it; nothing was changed"
            )
    return InputChanges(kept, changed, left, added)
