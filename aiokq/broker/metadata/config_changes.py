"""Incremental changes of the settings of a topic or group (KIP-339)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from aiokq.broker.config.settings import BrokerSettings
from aiokq.broker.metadata.topic_configs import TOPIC_CONFIGS, config_text, log_config
from aiokq.core.errors import InvalidConfiguration, InvalidRequest

__all__ = ["DELETE", "SET", "changed_configs"]

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
    """Return `configs` after `changes`, each a tuple of name, operation and value.

    APPEND and SUBTRACT change a list; if the list is not set, they change its default.

    Raises:
        InvalidRequest: a setting is changed twice, a value is missing, or an operation is unknown.
        InvalidConfiguration: APPEND or SUBTRACT for a setting that is unknown or not a list.
    """
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
            row = TOPIC_CONFIGS.get(name)
            if row is None or row.kind != "list":
                raise InvalidConfiguration(
                    f"Can't {_WORDS[operation]} to key {name} because its type is not LIST."
                )
            present = config_text(log_config(configs, settings), name).split(",")
            changed[name] = ",".join(_change(present, value.split(","), operation))
        else:
            raise InvalidRequest(f"unknown operation {operation} on setting {name}")
    return changed


def _change(present: Sequence[str], items: Sequence[str], operation: int) -> list[str]:
    items = [item.strip() for item in items]
    if operation == SUBTRACT:
        return [item for item in present if item and item not in items]
    return list(dict.fromkeys(item for item in (*present, *items) if item))
