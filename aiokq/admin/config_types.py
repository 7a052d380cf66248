"""What is said about configs: resources, entries, changes. No requests."""

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
    """What has configs; the values are the protocol's."""

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
    """Where a value comes from, the most specific first; the values are the protocol's."""

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
"""The source of the values that were set for a resource itself."""


@frozen
class ConfigResource:
    """Something that has configs: a topic by name, a broker by id as text ("" for all brokers)."""

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
    """A value that would hold if more specific ones were not set."""

    name: str
    value: str | None
    source: ConfigSource


@frozen
class ConfigEntry:
    """One config; ``value`` is None where it is sensitive or not set."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool = False
    sensitive: bool = False
    synonyms: tuple[ConfigSynonym, ...] = ()
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        """Whether nobody set it anywhere."""
        return self.source is ConfigSource.DEFAULT_CONFIG


@frozen
class ConfigDescription:
    """The configs of one resource, by name."""

    resource: ConfigResource
    entries: Mapping[str, ConfigEntry] = field(default_factory=frozen_map)
    error: KafkaError | None = None


@frozen
class ConfigsAltered:
    """Outcome of changing one resource."""

    resource: ConfigResource
    error: KafkaError | None = None


class AlterOperation(IntEnum):
    """What to do with a config; the values are the protocol's. The last two are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@frozen
class ConfigChange:
    """One change; made by its class methods."""

    operation: AlterOperation
    value: str | None = None

    @classmethod
    def set(cls, value: str | int | float | bool) -> ConfigChange:
        """Give it this value."""
        return cls(AlterOperation.SET, config_text(value))

    @classmethod
    def delete(cls) -> ConfigChange:
        """Back to what holds without it."""
        return cls(AlterOperation.DELETE)

    @classmethod
    def append(cls, value: str) -> ConfigChange:
        """Add to a list; comma separated for several."""
        return cls(AlterOperation.APPEND, value)

    @classmethod
    def subtract(cls, value: str) -> ConfigChange:
        """Take out of a list; comma separated for several."""
        return cls(AlterOperation.SUBTRACT, value)


ChangeLike: TypeAlias = ConfigChange | str | int | float | bool | None
"""A change; a plain value sets, None deletes."""


def as_resource(resource: ResourceLike) -> ConfigResource:
    """The resource that is meant.

    Raises:
        TypeError: it is none.
    """
    if isinstance(resource, ConfigResource):
        return resource
    if not isinstance(resource, str):
        raise TypeError(
            "what has configs is a topic's name, or a ConfigResource as ConfigResource.broker(1),"
            f" not {resource!r}"
        )
    return ConfigResource(ConfigResourceType.TOPIC, resource)
