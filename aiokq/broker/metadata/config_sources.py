"""The settings in a DescribeConfigs response: value, type and source of each (KIP-226, KIP-569).

The tables of settings are in `config.settings`, `topic_configs` and `group_configs`.

Source: Kafka ``ConfigHelper.scala``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from aiokq.broker.config.setting import Setting, SettingValue
from aiokq.broker.config.settings import SETTINGS, BrokerSettings
from aiokq.broker.metadata.group_configs import GROUP_CONFIGS, GroupConfigs
from aiokq.broker.metadata.loggers import logger_levels
from aiokq.broker.metadata.topic_configs import TOPIC_CONFIGS, config_text, log_config
from aiokq.core.errors import InvalidRequest
from aiokq.core.named_tuple import NamedTuple
from aiokq.core.utf8 import response_text

if TYPE_CHECKING:
    from aiokq.broker.log.directory import LogDirectory

__all__ = [
    "BROKER",
    "BROKER_LOGGER",
    "CLIENT_METRICS",
    "GROUP",
    "TOPIC",
    "ConfigEntry",
    "broker_config_entries",
    "check_broker_name",
    "group_config_entries",
    "logger_entries",
    "topic_config_entries",
]

# types of resources
TOPIC: Final = 2
BROKER: Final = 4
BROKER_LOGGER: Final = 8
CLIENT_METRICS: Final = 16
GROUP: Final = 32

# sources of a value
DYNAMIC_TOPIC_CONFIG: Final = 1
STATIC_BROKER_CONFIG: Final = 4
DEFAULT_CONFIG: Final = 5
DYNAMIC_BROKER_LOGGER_CONFIG: Final = 6
DYNAMIC_GROUP_CONFIG: Final = 8

Synonym: TypeAlias = tuple[str, str | None, int]
"""Name, value and source of a setting from which a setting can take its value."""

UNKNOWN_TYPE: Final = 0
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
        source: Kafka's code of the source of the value.
        synonyms: the settings that can determine the value, by priority; the first one determines
            it.
        type: Kafka's code of the type of the value.
    """

    name: str
    value: str | None
    source: int
    read_only: bool
    synonyms: list[Synonym]
    type: int
    documentation: str | None


class ConfiguredServers(Protocol):
    """The listeners of a node."""

    def listening(self) -> Sequence[object]: ...
    def all_advertised(self) -> Sequence[object]: ...
    @property
    def protocol_map(self) -> str: ...


class ConfiguredNode(Protocol):
    """The parts of a node from which its settings are read."""

    @property
    def settings(self) -> BrokerSettings: ...
    @property
    def node_id(self) -> int: ...
    @property
    def servers(self) -> ConfiguredServers: ...
    @property
    def log_directories(self) -> Sequence[LogDirectory]: ...


def topic_config_entries(
    configs: Mapping[str, str], settings: BrokerSettings
) -> Iterator[ConfigEntry]:
    """Yield all settings of a topic whose own settings are `configs`."""
    config = log_config(configs, settings)
    for name, row in TOPIC_CONFIGS.items():
        synonyms: list[Synonym] = []
        if name in configs:
            synonyms.append((name, config_text(config, name), DYNAMIC_TOPIC_CONFIG))
        synonyms += _server_synonyms(row.server, settings)
        yield _entry(name, config_text(config, name), row, synonyms)


def _server_synonyms(names: Sequence[str], settings: BrokerSettings) -> list[Synonym]:
    """Return the broker's settings that a topic's setting defaults to, in order of priority.

    Clients read all values in the unit of the topic's setting, which is also the unit of the first
    of `names`. As in Kafka, a setting in another unit (`log.retention.hours`) is therefore omitted
    if it would come first.
    """
    found: list[Synonym] = []
    for name in names:
        if name in settings.explicit:
            found.append((name, _text(settings.value_of(name)), STATIC_BROKER_CONFIG))
    for name in names:
        default = _text(SETTINGS[name].default)
        if default is not None:
            found.append((name, default, DEFAULT_CONFIG))
    while found and found[0][0] != names[0]:
        del found[0]
    return found


def group_config_entries(group_id: str, configs: GroupConfigs) -> Iterator[ConfigEntry]:
    """Yield all settings of a group, which need not exist."""
    given = configs.given(group_id)
    for name in GROUP_CONFIGS:
        value = str(configs.value(group_id, name))
        source = DYNAMIC_GROUP_CONFIG if name in given else DEFAULT_CONFIG
        yield _entry(name, value, GROUP_CONFIGS[name].setting, [(name, value, source)])


def broker_config_entries(node: ConfiguredNode) -> Iterator[ConfigEntry]:
    """Yield the settings of a node that have an effect; all are read-only while the node runs."""
    settings = node.settings
    facts = {fact.name: (fact, value) for fact, value in _facts(node)}
    for fact, value in facts.values():
        synonyms: list[Synonym] = [(fact.name, value, STATIC_BROKER_CONFIG)]
        yield _entry(fact.name, value, fact, synonyms, read_only=True)
    for row, set_to in settings.rows():
        if row.has_effect and row.name not in facts:
            synonyms = _server_synonyms((row.name,), settings)
            yield _entry(row.name, _text(set_to), row, synonyms, read_only=True)


def _facts(node: ConfiguredNode) -> Iterator[tuple[Setting, str]]:
    """Yield the settings whose values are read from the running node, with these values."""

    def fact(name: str, kind: str, doc: str) -> Setting:
        return Setting(name, "", kind, None, doc)

    own_id = str(node.node_id)
    yield fact("node.id", "int", "The id of this node."), own_id
    yield fact("broker.id", "int", "The id of this node, under its older name."), own_id
    yield fact("process.roles", "list", "The roles of this node."), "broker,controller"
    yield (
        fact("listeners", "list", "The addresses that this node listens on."),
        ",".join(map(str, node.servers.listening())),
    )
    yield (
        fact("advertised.listeners", "list", "The addresses that clients connect to."),
        ",".join(map(str, node.servers.all_advertised())),
    )
    yield (
        fact("listener.security.protocol.map", "string", "The security protocol of each listener."),
        node.servers.protocol_map,
    )
    paths = ",".join(directory.path for directory in node.log_directories)
    yield SETTINGS["log.dirs"], response_text(paths)


def logger_entries() -> Iterator[ConfigEntry]:
    """Yield the levels of this process's loggers."""
    for name, level in logger_levels().items():
        yield ConfigEntry(name, level, DYNAMIC_BROKER_LOGGER_CONFIG, False, [], UNKNOWN_TYPE, None)


def _entry(
    name: str,
    value: str | None,
    row: Setting,
    synonyms: list[Synonym],
    *,
    read_only: bool = False,
) -> ConfigEntry:
    source = synonyms[0][2] if synonyms else DEFAULT_CONFIG
    return ConfigEntry(name, value, source, read_only, synonyms, _TYPES[row.kind], row.doc)


def check_broker_name(name: str, node_id: int) -> None:
    """Check that the name of a broker resource is the id of this node.

    Raises:
        InvalidRequest: the name is the id of another node, or not a number.
    """
    try:
        number = int(name)
    except ValueError:
        raise InvalidRequest(f"Broker id must be an integer, but it is: {name}") from None
    if number != node_id:
        raise InvalidRequest(f"Unexpected broker id, expected {node_id}, but received {name}")


def _text(value: SettingValue) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):  # in Java's notation
        return repr(value).replace("e+", "E").replace("e", "E")
    return None if value is None else response_text(str(value))
