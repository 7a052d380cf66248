"""Settings as clients are shown them: value, type, and where it comes from (KIP-226, KIP-524).

Owns no setting; the tables are `settings`, `topic_configs` and `group_configs`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from aiokq.broker.group_configs import GROUP_CONFIGS, GroupConfigs
from aiokq.broker.settings import SETTINGS, BrokerSettings, Setting, SettingValue
from aiokq.broker.topic_configs import TOPIC_CONFIGS, config_text, log_config
from aiokq.core.errors import InvalidRequest

__all__ = [
    "BROKER",
    "GROUP",
    "TOPIC",
    "ConfigEntry",
    "broker_config_entries",
    "check_broker_name",
    "group_config_entries",
    "topic_config_entries",
]

# Types of resources
TOPIC: Final = 2
BROKER: Final = 4
GROUP: Final = 32

# Where a value comes from
DYNAMIC_TOPIC_CONFIG: Final = 1
STATIC_BROKER_CONFIG: Final = 4
DEFAULT_CONFIG: Final = 5
DYNAMIC_GROUP_CONFIG: Final = 8

_TYPES: Final = {
    "boolean": 1,
    "string": 2,
    "int": 3,
    "short": 4,
    "long": 5,
    "double": 6,
    "list": 7,
}


class ConfigEntry(NamedTuple):
    """One setting of a resource.

    Attributes:
        source: Kafka's number of where the value comes from.
        synonyms: name, value and source of everything that would give it, the value's own first.
        type: Kafka's number of its type.
    """

    name: str
    value: str | None
    source: int
    read_only: bool
    synonyms: list[tuple[str, str | None, int]]
    type: int
    documentation: str


def topic_config_entries(
    configs: Mapping[str, str], settings: BrokerSettings
) -> Iterator[ConfigEntry]:
    """All settings of a topic that was given these."""
    config = log_config(configs, settings)
    for name, row in TOPIC_CONFIGS.items():
        synonyms: list[tuple[str, str | None, int]] = []
        if name in configs:
            synonyms.append((name, config_text(config, name), DYNAMIC_TOPIC_CONFIG))
        for server_name in row.server:
            if server_name in settings.explicit:
                value = _text(settings.value_of(server_name))
                synonyms.append((server_name, value, STATIC_BROKER_CONFIG))
        for server_name in row.server:
            default = _text(SETTINGS[server_name].default)
            if default is not None:
                synonyms.append((server_name, default, DEFAULT_CONFIG))
        source = synonyms[0][2] if synonyms else DEFAULT_CONFIG
        yield ConfigEntry(
            name, config_text(config, name), source, False, synonyms, _TYPES[row.kind], row.doc
        )


def group_config_entries(
    group_id: str, configs: GroupConfigs, settings: BrokerSettings
) -> Iterator[ConfigEntry]:
    """All settings of a group, which need not exist."""
    given = configs.given(group_id)
    for name, row in GROUP_CONFIGS.items():
        server = _broker_entry(
            SETTINGS[row.server],
            settings.value_of(row.server),
            explicit=row.server in settings.explicit,
        )
        synonyms, source = server.synonyms, server.source
        if name in given:
            synonyms, source = (
                [(name, given[name], DYNAMIC_GROUP_CONFIG), *synonyms],
                DYNAMIC_GROUP_CONFIG,
            )
        value = str(configs.value(group_id, name))
        yield ConfigEntry(name, value, source, False, synonyms, _TYPES["int"], row.doc)


def broker_config_entries(node_id: int, settings: BrokerSettings) -> Iterator[ConfigEntry]:
    """All settings of a node; they are read when it starts, so all are read-only."""
    own_id = str(node_id)
    yield ConfigEntry(
        "node.id",
        own_id,
        STATIC_BROKER_CONFIG,
        True,
        [("node.id", own_id, STATIC_BROKER_CONFIG)],
        _TYPES["int"],
        "The id of this node.",
    )
    for row, value in settings.rows():
        yield _broker_entry(row, value, explicit=row.name in settings.explicit)


def _broker_entry(row: Setting, value: SettingValue, *, explicit: bool) -> ConfigEntry:
    synonyms: list[tuple[str, str | None, int]] = []
    if explicit:
        synonyms.append((row.name, _text(value), STATIC_BROKER_CONFIG))
    default = _text(row.default)
    if default is not None:
        synonyms.append((row.name, default, DEFAULT_CONFIG))
    source = STATIC_BROKER_CONFIG if explicit else DEFAULT_CONFIG
    return ConfigEntry(row.name, _text(value), source, True, synonyms, _TYPES[row.kind], row.doc)


def check_broker_name(name: str, node_id: int) -> bool:
    """Whether a resource name is this node's; False for "", the default of all brokers.

    Raises:
        InvalidRequest: another node's, or no number.
    """
    if name == "":
        return False
    if name != str(node_id):
        raise InvalidRequest(f"this is broker {node_id}, not {name!r}: ask that one")
    return True


def _text(value: SettingValue) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return None if value is None else str(value)
