"""The settings in a DescribeConfigs response: value, type and source of each (KIP-226, KIP-569).

The tables of settings are in `config.settings`, `topic_configs` and `group_configs`.

Source: Kafka ``ConfigHelper.scala``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from aiokq.broker.config.authorizer_settings import OF_THE_AUTHORIZER
from aiokq.broker.config.dynamic_settings import DynamicSettings, base_name, is_dynamic
from aiokq.broker.config.security_settings import prefixed_setting
from aiokq.broker.config.setting import PASSWORD, Setting, SettingValue, java_text
from aiokq.broker.config.settings import PER_LISTENER, SETTINGS
from aiokq.broker.metadata.configs.group_configs import GROUP_CONFIGS, GroupConfigs
from aiokq.broker.metadata.configs.loggers import logger_levels
from aiokq.broker.metadata.configs.topic_configs import TOPIC_CONFIGS, config_text, log_config
from aiokq.core.errors import InvalidRequest
from aiokq.core.named_tuple import NamedTuple
from aiokq.core.utf8 import response_text

if TYPE_CHECKING:
    from aiokq.broker.config.settings import BrokerSettings
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
    "cluster_config_entries",
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

# Where the value of a setting comes from; the numbers are those of Kafka's ConfigSource.
DYNAMIC_TOPIC_CONFIG: Final = 1
DYNAMIC_BROKER_CONFIG: Final = 2
DYNAMIC_DEFAULT_BROKER_CONFIG: Final = 3
STATIC_BROKER_CONFIG: Final = 4
DEFAULT_CONFIG: Final = 5
DYNAMIC_BROKER_LOGGER_CONFIG: Final = 6
DYNAMIC_GROUP_CONFIG: Final = 8

Synonym: TypeAlias = tuple[str, str | None, int]
"""Name, value and source of a setting that can determine the value of the described setting."""

UNKNOWN_TYPE: Final = 0
_TYPES: Final = {
    "boolean": 1,
    "string": 2,
    "int": 3,
    "short": 4,
    "long": 5,
    "double": 6,
    "list": 7,
    "password": 9,
}

_OF_ONE_VALUE: Final = tuple(row.server for row in TOPIC_CONFIGS.values() if len(row.server) > 1)
"""Tuples of broker settings that set the same value in different units, by priority."""


class ConfigEntry(NamedTuple):
    """One setting of a resource.

    Attributes:
        source: Kafka's code of the source of the value.
        synonyms: the settings that can determine the value, by priority; the first one determines
            it.
        type: Kafka's code of the type of the value.
        is_sensitive: whether the value may be a secret, and is therefore None.
    """

    name: str
    value: str | None
    source: int
    read_only: bool
    synonyms: list[Synonym]
    type: int
    documentation: str | None
    is_sensitive: bool = False


class ConfiguredServers(Protocol):
    """The listeners of a node."""

    def listening(self) -> Sequence[object]: ...
    def all_advertised(self) -> Sequence[object]: ...
    @property
    def protocol_map(self) -> str: ...


class ConfiguredNode(Protocol):
    """The parts of a node from which its settings are read."""

    @property
    def dynamic_settings(self) -> DynamicSettings: ...
    @property
    def node_id(self) -> int: ...
    @property
    def servers(self) -> ConfiguredServers: ...
    @property
    def log_directories(self) -> Sequence[LogDirectory]: ...


def topic_config_entries(
    configs: Mapping[str, str], settings: DynamicSettings
) -> Iterator[ConfigEntry]:
    """Yield all settings of a topic whose own settings are `configs`."""
    config = log_config(configs, settings.current)
    for name, row in TOPIC_CONFIGS.items():
        synonyms: list[Synonym] = []
        if name in configs:
            synonyms.append((name, config_text(config, name), DYNAMIC_TOPIC_CONFIG))
        if row.server:
            synonyms += _server_synonyms(row.server[0], row.server, settings)
        yield _entry(name, config_text(config, name), row, synonyms)


def _server_synonyms(name: str, names: Sequence[str], settings: DynamicSettings) -> list[Synonym]:
    """Return the broker's settings that can determine the value of `name`, in order of priority.

    Clients assume that the first entry has the unit of `name`. Entries with other names, such as
    `log.retention.hours`, may have other units. Therefore, as in Kafka, the entries before the
    first entry named `name` are left out. The result is empty if no entry is named `name`.
    """
    found: list[Synonym] = []
    for dynamic, source in (
        (settings.own, DYNAMIC_BROKER_CONFIG),
        (settings.cluster, DYNAMIC_DEFAULT_BROKER_CONFIG),
    ):
        found += [(each, dynamic[each], source) for each in names if each in dynamic]
    for each in names:
        if each in settings.static.explicit:
            found.append((each, _text(settings.static.value_of(each)), STATIC_BROKER_CONFIG))
    for each in names:
        default = _text(SETTINGS[each].default) if each in SETTINGS else None
        if default is not None:
            found.append((each, default, DEFAULT_CONFIG))
    while found and found[0][0] != name:
        del found[0]
    return found


def group_config_entries(group_id: str, configs: GroupConfigs) -> Iterator[ConfigEntry]:
    """Yield all settings of a group. The group need not exist."""
    given = configs.given(group_id)
    for name in GROUP_CONFIGS:
        value = str(configs.value(group_id, name))
        source = DYNAMIC_GROUP_CONFIG if name in given else DEFAULT_CONFIG
        yield _entry(name, value, GROUP_CONFIGS[name].setting, [(name, value, source)])


def broker_config_entries(node: ConfiguredNode) -> Iterator[ConfigEntry]:
    """Yield the settings that have an effect on a node, and all stored dynamic settings.

    The settings that only the authorizer reads are left out if nobody has given them, as in Kafka.
    """
    settings = node.dynamic_settings
    facts = {fact.name: (fact, value) for fact, value in _facts(node)}
    for fact, value in facts.values():
        synonyms: list[Synonym] = [(fact.name, value, STATIC_BROKER_CONFIG)]
        yield _entry(fact.name, value, fact, synonyms, read_only=True)
    shown = set(facts)
    stored = {**settings.stored_cluster, **settings.stored_own}
    for row, value_in_effect in settings.current.rows():
        name = row.name
        if name in OF_THE_AUTHORIZER:
            if name in settings.static.explicit and name not in stored:
                yield _untyped_entry(name, STATIC_BROKER_CONFIG)
        elif name not in shown and (row.has_effect or name in stored):
            shown.add(name)
            names = next((names for names in _OF_ONE_VALUE if name in names), (name,))
            synonyms = _server_synonyms(name, names, settings)
            yield _entry(
                name, _text(value_in_effect), row, synonyms, read_only=not is_dynamic(name)
            )
    for name, text in stored.items():
        if name not in shown:
            source = DYNAMIC_DEFAULT_BROKER_CONFIG
            if name in settings.stored_own:
                source = DYNAMIC_BROKER_CONFIG
            yield _stored_entry(name, text, source)
    yield from _listener_entries(settings, stored)


def _listener_entries(settings: DynamicSettings, stored: Collection[str]) -> Iterator[ConfigEntry]:
    """Yield the settings that are given for one listener at the start of the node.

    Args:
        stored: the dynamic settings; a setting among them is left out.
    """
    for listener, base, value in _of_listeners(settings.static):
        name = f"listener.name.{listener.lower()}.{base}"
        if name in stored:
            continue
        row = SETTINGS[prefixed_setting(base) or base]
        if _is_untyped(name, row):
            yield _untyped_entry(name, STATIC_BROKER_CONFIG)
            continue
        synonyms: list[Synonym] = [(name, _text(value), STATIC_BROKER_CONFIG)]
        synonyms += [
            synonym
            for synonym in _server_synonyms(row.name, (row.name,), settings)
            if synonym[2] in (STATIC_BROKER_CONFIG, DEFAULT_CONFIG)
        ]
        yield _entry(name, _text(value), row, synonyms, read_only=not is_dynamic(name))


def _of_listeners(static: BrokerSettings) -> Iterator[tuple[str, str, SettingValue]]:
    """Yield listener, name and value of the settings that are given for one listener."""
    for listener, values in static.listener_settings.items():
        for base, value in values.items():
            yield listener, base, value
    for base, field in PER_LISTENER.items():
        for listener, limit in getattr(static, field):
            yield listener, base, limit


def _is_untyped(name: str, row: Setting) -> bool:
    """Whether Kafka does not know the type of a setting, unless the setting is of aiokq's own.

    Args:
        name: the name with all prefixes.
        row: the setting without prefixes.
    """
    from aiokq.broker.config.kafka_settings import is_of_kafka, kafka_type

    return kafka_type(name) is None and (row.name in OF_THE_AUTHORIZER or is_of_kafka(row.name))


def _untyped_entry(name: str, source: int) -> ConfigEntry:
    """Return a setting whose type Kafka does not know; its value might be a secret."""
    synonyms: list[Synonym] = [(name, None, source)]
    read_only = not is_dynamic(name)
    return ConfigEntry(name, None, source, read_only, synonyms, UNKNOWN_TYPE, None, True)


def cluster_config_entries(settings: DynamicSettings) -> Iterator[ConfigEntry]:
    """Yield the dynamic settings that apply to all brokers."""
    for name, text in settings.stored_cluster.items():
        yield _stored_entry(name, text, DYNAMIC_DEFAULT_BROKER_CONFIG)


def _stored_entry(name: str, text: str, source: int) -> ConfigEntry:
    """Return a dynamic setting as it is stored, even if it has no effect on this broker."""
    row = SETTINGS.get(base_name(name))
    if row is not None and row.has_effect and not _is_untyped(name, row):
        kind, is_sensitive, doc = row.kind, row.kind == PASSWORD, row.doc
    else:
        from aiokq.broker.config.kafka_settings import is_sensitive as may_be_secret
        from aiokq.broker.config.kafka_settings import kafka_type

        kind, is_sensitive, doc = kafka_type(name) or "", may_be_secret(name), None
    value = None if is_sensitive else response_text(text)
    return ConfigEntry(
        name,
        value,
        source,
        not is_dynamic(name),
        [(name, value, source)],
        _TYPES.get(kind, UNKNOWN_TYPE),
        doc,
        is_sensitive,
    )


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
    is_sensitive = row.kind == PASSWORD
    if is_sensitive:
        value, synonyms = None, [(each, None, origin) for each, _, origin in synonyms]
    kind = _TYPES[row.kind]
    return ConfigEntry(name, value, source, read_only, synonyms, kind, row.doc, is_sensitive)


def check_broker_name(name: str, node_id: int) -> None:
    """Check that the name of a resource of type BROKER is the id of this node.

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
    if isinstance(value, float):
        return java_text(value)
    return None if value is None else response_text(str(value))
