"""Arguments and results of calls about configs: resources, entries and changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import IntEnum
from typing import TypeAlias

from aiokq.cluster.metadata import frozen_map
from aiokq.core.config_text import config_text
from aiokq.core.errors import KafkaError
from aiokq.core.frozen import frozen

__all__ = [
    "AlterOperation",
    "ChangeLike",
    "ConfigChange",
    "ConfigDescription",
    "ConfigEntry",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigsAltered",
    "ResourceLike",
]


class ConfigResourceType(IntEnum):
    """Types of resources that have configs; the numbers are the protocol's."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32

    @classmethod
    def _missing_(cls, value: object) -> ConfigResourceType:
        return cls.UNKNOWN


class ConfigSource(IntEnum):
    """Sources of a config value; the numbers are the protocol's.

    For topics and brokers, sources 1 to 5 are in order from the most to the least specific.
    """

    UNKNOWN = 0
    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8

    @classmethod
    def _missing_(cls, value: object) -> ConfigSource:
        return cls.UNKNOWN


OWN_SOURCE = {
    ConfigResourceType.TOPIC: ConfigSource.TOPIC_CONFIG,
    ConfigResourceType.BROKER: ConfigSource.DYNAMIC_BROKER_CONFIG,
    ConfigResourceType.BROKER_LOGGER: ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
    ConfigResourceType.CLIENT_METRICS: ConfigSource.CLIENT_METRICS_CONFIG,
    ConfigResourceType.GROUP: ConfigSource.GROUP_CONFIG,
}
"""For each resource type, the source of values that were set on the resource itself."""


@frozen
class ConfigResource:
    """A resource with configs, such as a topic by name or a broker by id ("" for all brokers)."""

    type: ConfigResourceType
    name: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "type", ConfigResourceType(self.type))

    def __str__(self) -> str:
        return f"{self.type.name.lower()} {self.name!r}"


ResourceLike: TypeAlias = ConfigResource | str
"""A resource; a plain string is the topic of that name."""


@frozen
class ConfigSynonym:
    """One of the values set for a config, or its default; the most specific value applies."""

    name: str
    value: str | None
    source: ConfigSource


@frozen
class ConfigEntry:
    """A config; ``value`` is None if the config is sensitive or not set."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool = False
    sensitive: bool = False
    synonyms: tuple[ConfigSynonym, ...] = ()
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        """Whether the value is the default, because no value is set at any level."""
        return self.source is ConfigSource.DEFAULT_CONFIG


@frozen
class ConfigDescription:
    """The configs of one resource, by name."""

    resource: ConfigResource
    entries: Mapping[str, ConfigEntry] = field(default_factory=frozen_map)
    error: KafkaError | None = None


@frozen
class ConfigsAltered:
    """The result of changing the configs of one resource."""

    resource: ConfigResource
    error: KafkaError | None = None


class AlterOperation(IntEnum):
    """Operations on a config; the numbers are the protocol's. APPEND and SUBTRACT are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@frozen
class ConfigChange:
    """A change of one config; created by the class methods."""

    operation: AlterOperation
    value: str | None = None

    @classmethod
    def set(cls, value: str | int | float | bool) -> ConfigChange:
        """Set the config to a value."""
        return cls(AlterOperation.SET, config_text(value))

    @classmethod
    def delete(cls) -> ConfigChange:
        """Delete the value set on the resource; then the next less specific value applies."""
        return cls(AlterOperation.DELETE)

    @classmethod
    def append(cls, value: str) -> ConfigChange:
        """Append values to a list; `value` may contain several, comma separated."""
        return cls(AlterOperation.APPEND, value)

    @classmethod
    def subtract(cls, value: str) -> ConfigChange:
        """Remove values from a list; `value` may contain several, comma separated."""
        return cls(AlterOperation.SUBTRACT, value)


ChangeLike: TypeAlias = ConfigChange | str | int | float | bool | None
"""A change; a plain value sets the config, None deletes it."""


def as_resource(resource: ResourceLike) -> ConfigResource:
    """Return `resource` as a ConfigResource.

    Raises:
        TypeError: `resource` is neither a ConfigResource nor a string.
    """
    if isinstance(resource, ConfigResource):
        return resource
    if not isinstance(resource, str):
        raise TypeError(
            "a resource with configs must be a topic name or a ConfigResource, as in "
            f"ConfigResource(ConfigResourceType.BROKER, '1'), not {resource!r}"
        )
    return ConfigResource(ConfigResourceType.TOPIC, resource)
