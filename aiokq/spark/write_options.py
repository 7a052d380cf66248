"""Options and columns of the sink: refusals and words are those of Spark's Kafka connector."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from aiokq.errors import ConfigError
from aiokq.spark.option_names import check_names, kafka_options
from aiokq.spark.security import cluster_settings, producer_settings

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["WriteColumns", "WriteOptions"]

REFUSED: Final[Mapping[str, str]] = {
    "key.serializer": "Kafka option 'key.serializer' is not supported as keys are serialized with "
    "ByteArraySerializer.",
    "value.serializer": "Kafka option 'value.serializer' is not supported as value are serialized "
    "with ByteArraySerializer.",
}
EXACTLY_ONCE: Final = (
    "option exactlyOnce: it comes with transactions, which are not supported yet; without it each "
    "row is written at least once, as by Spark's own connector"
)
TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "topic": ("string",),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
}
"""The columns that are written, in the order they are checked in.

Source: Spark `KafkaWriter.validateQuery`. ``timestamp`` is not its, up to 4.2.
"""


@dataclass(frozen=True)
class WriteOptions:
    """What a write was asked for; made by `parse`.

    Attributes:
        topic: of all rows; None if each row has its own.
        kafka: for the client, by Kafka's names.
    """

    topic: str | None = None
    kafka: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> WriteOptions:
        """Check the options, and take them.

        Args:
            options: as Spark gives them; names in any case.

        Raises:
            ConfigError: an option is missing, unknown, refused or of the wrong form.
        """
        check_names(options)
        given = {name.lower(): value for name, value in options.items()}
        exactly_once = given.get("exactlyonce", "false").strip().lower()
        if exactly_once not in {"true", "false"}:
            raise ConfigError(
                f'option exactlyOnce: For input string: "{exactly_once}" (it is true or false)'
            )
        if exactly_once == "true":
            raise ConfigError(EXACTLY_ONCE)
        kafka = kafka_options(options)
        for name, refusal in REFUSED.items():
            if name in kafka:
                raise ConfigError(refusal)
        if "bootstrap.servers" not in kafka:
            raise ConfigError(
                "Option 'kafka.bootstrap.servers' must be specified for configuring Kafka producer"
            )
        # In the driver, so that a slip of the pen does not first fail four tasks.
        cluster_settings(kafka)
        producer_settings(kafka)
        return cls(given.get("topic"), kafka)


@dataclass(frozen=True)
class WriteColumns:
    """Where in a row the parts of a record are; -1 for those that rows do not have.

    Attributes:
        topic: -1 where the option names the topic: it wins.
    """

    value: int
    key: int = -1
    topic: int = -1
    headers: int = -1
    partition: int = -1
    timestamp: int = -1

    @classmethod
    def of(cls, schema: StructType, topic: str | None) -> WriteColumns:
        """The columns of a frame; those with other names are not written.

        Args:
            schema: of the frame.
            topic: the option.

        Raises:
            ConfigError: no value, no topic anywhere, or a column of a wrong type.
        """
        places: dict[str, int] = {}
        for at, column in enumerate(schema.fields):
            if column.name in TYPES:
                places.setdefault(column.name, at)
        if topic is not None:
            places.pop("topic", None)
        elif "topic" not in places:
            raise ConfigError(
                "topic option required when no 'topic' attribute is present. Use the topic option "
                "for setting a topic."
            )
        for name, types in TYPES.items():
            if name not in places:
                if name == "value":
                    raise ConfigError("Required attribute 'value' not found")
                continue
            kind = schema.fields[places[name]].dataType.simpleString()
            if kind.lower() not in types:
                raise ConfigError(
                    f"{name} attribute unsupported type {kind}. {name} must be a(n) "
                    f"{' or '.join(types)}"
                )
        return cls(**places)
