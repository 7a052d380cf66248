"""Incremental changes of the settings of a topic, a group or a broker (KIP-339)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from aiokq.broker.config.settings import SETTINGS, BrokerSettings
from aiokq.broker.metadata.configs.topic_configs import TOPIC_CONFIGS, config_text, log_config
from aiokq.core.errors import InvalidConfiguration, InvalidRequest

__all__ = ["DELETE", "SET", "changed_broker_configs", "changed_configs"]

SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
SUBTRACT: Final = 3

_WORDS: Final = {APPEND: "APPEND", SUBTRACT: "SUBTRACT"}


def changed_configs(
    configs: Mapping[str, str],
    changes: Sequence[tuple[str, int, str | None]],
    settings: BrokerSettings,
) -> dict[str, str]:
    """Return the settings of a topic or group after changes.

    APPEND and SUBTRACT begin with the present list or, if the list is not set, with its default.

    Args:
        configs: the settings before the changes.
        changes: name, operation and value of each change.

    Raises:
        InvalidRequest: a setting is changed twice, a value is missing, or an operation is unknown.
        InvalidConfiguration: APPEND or SUBTRACT for a setting that is unknown or not a list.
    """

    def list_of(name: str) -> str | None:
        row = TOPIC_CONFIGS.get(name)
        if row is None or row.kind != "list":
            return None
        return config_text(log_config(configs, settings), name)

    return _changed(configs, changes, list_of)


def changed_broker_configs(
    configs: Mapping[str, str], changes: Sequence[tuple[str, int, str | None]]
) -> dict[str, str]:
    """Return the dynamic settings of one broker or of all brokers after changes.

    See `changed_configs`.

    If a list has no dynamic value, APPEND and SUBTRACT begin with its default, not with its static
    value, as in Kafka.
    """

    def list_of(name: str) -> str | None:
        row = SETTINGS.get(name)
        if row is None or row.kind != "list":
            return None
        return configs.get(name, str(row.default or ""))

    return _changed(configs, changes, list_of)


def _changed(
    configs: Mapping[str, str],
    changes: Sequence[tuple[str, int, str | None]],
    list_of: Callable[[str], str | None],
) -> dict[str, str]:
    """Return `configs` after `changes`; `list_of` returns None for a setting that is not a list."""
    names = set()
    for name, _, _ in changes:
        if name in names:
            raise InvalidRequest(f"setting {name} is changed twice")
        names.add(name)
    changed = dict(configs)
    for name, operation, value in changes:
        if operation == DELETE:
            changed.pop(name, None)
            continue
        if value is None:
            raise InvalidRequest(f"setting {name} has no value")
        if operation == SET:
            changed[name] = value
        elif operation in (APPEND, SUBTRACT):
            present = list_of(name)
            if present is None:
                raise InvalidConfiguration(
                    f"Can't {_WORDS[operation]} to key {name} because its type is not LIST."
                )
            changed[name] = ",".join(_change(present.split(","), value.split(","), operation))
        else:
            raise InvalidRequest(f"unknown operation {operation} on setting {name}")
    return changed


def _change(present: Sequence[str], items: Sequence[str], operation: int) -> list[str]:
    items = [item.strip() for item in items]
    if operation == SUBTRACT:
        return [item for item in present if item and item not in items]
    return list(dict.fromkeys(item for item in (*present, *items) if item))
