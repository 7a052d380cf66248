"""Options and columns of the sink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from aiokq.errors import ConfigError
from aiokq.spark.ledger_topic import LEDGER_TOPIC
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
    "transactional.id": "option kafka.transactional.id: a job cannot set the transactional id, "
    "because tasks that run at the same time would fence each other; leave the option out",
}
NO_QUERY: Final = (
    "option exactlyOnce: a batch write has no query id and no batch number, by which a repeated "
    "task could find what an earlier attempt has committed: use writeStream, which with "
    "trigger(availableNow=True) ends by itself, or leave the option out"
)
TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "topic": ("string",),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
}
"""The columns that are written, with their types, in the order in which they are checked.

Source: Spark `KafkaWriter.validateQuery`, which up to 4.2 has no ``timestamp``.
"""


@dataclass(frozen=True)
class WriteOptions:
    """Options of a write; made by `parse`.

    Attributes:
        topic: topic of all rows; None if each row has its own topic.
        kafka: settings of the client, by Kafka's names.
        ledger: topic of the ledger; None without the option ``exactlyOnce``.
    """

    topic: str | None = None
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    ledger: str | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool) -> WriteOptions:
        """Return the checked options.

        Args:
            options: as Spark passes them; names in any case.
            streaming: whether a stream is written; `exactlyOnce` is only for streams.

        Raises:
            ConfigError: an option is missing, unknown, refused or malformed.
        """
        check_names(options)
        given = {name.lower(): value for name, value in options.items()}
        exactly_once = given.get("exactlyonce", "false").strip().lower()
        if exactly_once not in {"true", "false"}:
            raise ConfigError(
                f'option exactlyOnce: For input string: "{exactly_once}" (expected true or false)'
            )
        ledger = None
        if exactly_once == "true":
            if not streaming:
                raise ConfigError(NO_QUERY)
            ledger = given.get("ledgertopic", LEDGER_TOPIC)
            if not ledger or ledger == given.get("topic"):
                raise ConfigError("option ledgerTopic: it must name a topic of its own")
        kafka = kafka_options(options)
        for name in kafka:
            # The client also accepts the names of its own settings, such as transactional_id.
            if (refusal := REFUSED.get(name.replace("_", "."))) is not None:
                raise ConfigError(refusal)
        if "bootstrap.servers" not in kafka:
            raise ConfigError(
                "Option 'kafka.bootstrap.servers' must be specified for configuring Kafka producer"
            )
        # The settings are checked here, in the driver. Otherwise a misspelt option would end the
        # query only after four attempts of a task.
        cluster_settings(kafka)
        transactional = {} if ledger is None else {"transactional.id": "of each task"}
        producer_settings({**kafka, **transactional})
        return cls(given.get("topic"), kafka, ledger)


@dataclass(frozen=True)
class WriteColumns:
    """Column numbers of the parts of a record; -1 for parts that rows do not have.

    Attributes:
        topic: -1 if the option ``topic`` is set, because the option takes precedence.
    """

    value: int
    key: int = -1
    topic: int = -1
    headers: int = -1
    partition: int = -1
    timestamp: int = -1

    @classmethod
    def of(cls, schema: StructType, topic: str | None) -> WriteColumns:
        """Return the columns of a frame; columns whose names are not in `TYPES` are not written.

        Args:
            schema: schema of the frame.
            topic: value of the option ``topic``.

        Raises:
            ConfigError: the frame has no column ``value``, no topic is given, or a column has an
                unsupported type.
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
