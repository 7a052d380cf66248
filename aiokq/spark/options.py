"""Options of the source; options of Spark's Kafka connector keep their names and defaults.

This module does no I/O. security.py translates the ``kafka.*`` options to settings of the client.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from aiokq.errors import ConfigError
from aiokq.spark.limits import ByOffset, Limit, check_batch_limits, parse_limit
from aiokq.spark.offsets import EARLIEST, LATEST
from aiokq.spark.option_names import check_names, kafka_options
from aiokq.spark.option_values import duration, flag, number, positive
from aiokq.spark.schema import default_columns, parse_columns
from aiokq.spark.strategy import Strategy, parse_strategy

__all__ = ["CONSUMER_OPTIONS", "IsolationLevel", "ReadOptions", "frame_columns"]

logger = logging.getLogger("aiokq.spark")

IsolationLevel: TypeAlias = Literal["read_uncommitted", "read_committed"]

DEFAULT_POLL_TIMEOUT_MS: Final = 120_000
"""Default of Spark's ``spark.network.timeout``, in milliseconds."""

CONSUMER_OPTIONS: Final = frozenset({"group.id", "isolation.level", "max.partition.fetch.bytes"})
"""Consumer options (``kafka.*``) for which `warn_of_unused` logs no warning."""

AUTO_OFFSET_RESET: Final = """
Kafka option 'auto.offset.reset' is not supported.
Instead set the source option 'startingoffsets' to 'earliest' or 'latest'
to specify where to start. Structured Streaming manages which offsets are consumed
internally, rather than relying on the kafkaConsumer to do it. This will ensure that no
data is missed when new topics/partitions are dynamically subscribed. Note that
'startingoffsets' only applies when a new Streaming query is started, and
that resuming will always pick up from where the query left off. See the docs for more
details.
"""
REFUSED: Final[Mapping[str, str]] = {
    "auto.offset.reset": AUTO_OFFSET_RESET,
    "key.deserializer": "Kafka option 'key.deserializer' is not supported as keys are deserialized "
    "as byte arrays with ByteArrayDeserializer. Use DataFrame operations to explicitly deserialize "
    "the keys.",
    "value.deserializer": "Kafka option 'value.deserializer' is not supported as values are "
    "deserialized as byte arrays with ByteArrayDeserializer. Use DataFrame operations to "
    "explicitly deserialize the values.",
    "enable.auto.commit": "Kafka option 'enable.auto.commit' is not supported",
    "interceptor.classes": "Kafka option 'interceptor.classes' is not supported",
}
"""``kafka.*`` options that a reader refuses, in the order in which they are checked."""


@dataclass(frozen=True)
class ReadOptions:
    """Options of a read; made by `parse`.

    Attributes:
        strategy: the partitions to read.
        starting: start of the read; for a stream, the start of its first run.
        ending: end of the read; only for batch queries.
        no_match_latest: whether to start at the end of partitions that have no record at or after
            the start timestamp; if False, such a partition is an error.
        kafka: settings of the client, by Kafka's names.
        max_trigger_delay: the option ``maxTriggerDelay`` in seconds.
        max_tasks: maximum number of tasks; None for the default.
        commit_group: consumer group for which a stream commits its offsets.
    """

    strategy: Strategy
    starting: Limit
    ending: Limit = field(default_factory=lambda: ByOffset(LATEST))
    no_match_latest: bool = False
    fail_on_data_loss: bool = True
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay: float = 900.0
    include_headers: bool = False
    group_id_prefix: str | None = None
    poll_timeout_ms: int = DEFAULT_POLL_TIMEOUT_MS
    fetch_offset_num_retries: int = 3
    fetch_offset_retry_interval_ms: int = 1000
    max_tasks: int | None = None
    columns: tuple[str, ...] | None = None
    commit_group: str | None = None
    pushdown: bool = False
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
        """Return the checked options.

        Args:
            options: as Spark passes them; names in any case.
            streaming: whether the query is a stream; some options are only for streams, or only for
                batch queries.

        Raises:
            ConfigError: an option is missing, unknown, malformed or refused, or contradicts
                another option.
        """
        check_names(options)
        given = {name.lower(): value for name, value in options.items()}
        if streaming:
            _check_stream(given)
        starting = parse_limit(given, "starting", LATEST if streaming else EARLIEST)
        ending = parse_limit(given, "ending", LATEST)
        if not streaming:
            check_batch_limits(starting, ending)
        strategy = parse_strategy(given)
        kafka = kafka_options(options)
        parsed = cls(
            strategy=strategy,
            starting=starting,
            ending=ending,
            no_match_latest=_no_match_latest(given),
            fail_on_data_loss=flag(given, "failOnDataLoss", True),
            min_partitions=positive(given, "minPartitions", "minPartitions must be positive"),
            max_records_per_partition=positive(
                given, "maxRecordsPerPartition", "maxrecordsperpartition must be positive"
            ),
            max_offsets_per_trigger=positive(given, "maxOffsetsPerTrigger"),
            min_offsets_per_trigger=positive(given, "minOffsetsPerTrigger"),
            max_trigger_delay=duration(given, "maxTriggerDelay", "15m"),
            include_headers=flag(given, "includeHeaders", False),
            group_id_prefix=given.get("groupidprefix"),
            poll_timeout_ms=positive(given, "kafkaConsumer.pollTimeoutMs")
            or DEFAULT_POLL_TIMEOUT_MS,
            fetch_offset_num_retries=number(given, "fetchOffset.numRetries", 3),
            fetch_offset_retry_interval_ms=number(given, "fetchOffset.retryIntervalMs", 1000),
            max_tasks=positive(given, "maxTasks"),
            columns=parse_columns(given["columns"]) if "columns" in given else None,
            commit_group=_commit_group(given, streaming),
            pushdown=flag(given, "pushdown", False),
            kafka=kafka,
        )
        _check_kafka(kafka)
        parsed._check_trigger_limits()
        if not streaming:
            for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"):
                if name.lower() in given:
                    logger.warning("%s option ignored in batch queries", name)
        if parsed.group_id_prefix is not None or "group.id" in kafka:
            logger.warning(
                "groupIdPrefix and kafka.group.id have no effect: aiokq reads without a group; "
                "the option commitGroup commits a stream's progress for a group"
            )
        return parsed

    def _check_trigger_limits(self) -> None:
        low, high = self.min_offsets_per_trigger, self.max_offsets_per_trigger
        if low is not None and high is not None and low > high:
            raise ConfigError(
                f"The value of minOffsetPerTrigger({low}) is higher than the "
                f"maxOffsetsPerTrigger({high})."
            )

    @property
    def isolation_level(self) -> IsolationLevel:
        """The option ``kafka.isolation.level``."""
        level = self.kafka.get("isolation.level", "read_uncommitted").lower()
        return "read_committed" if level == "read_committed" else "read_uncommitted"

    @property
    def all_columns(self) -> tuple[str, ...]:
        """The columns of the frame if the user gives no schema."""
        return self.columns or default_columns(self.include_headers)


def frame_columns(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns that ``columns`` and ``includeHeaders`` select; check no other option.

    Spark requests the schema before the source can know whether the query is a batch or a stream.

    Raises:
        ConfigError: ``columns`` or ``includeHeaders`` is malformed.
    """
    given = {name.lower(): value for name, value in options.items()}
    if "columns" in given:
        return parse_columns(given["columns"])
    return default_columns(flag(given, "includeHeaders", False))


def _check_stream(given: Mapping[str, str]) -> None:
    if "endingoffsets" in given:
        raise ConfigError("option endingOffsets: ending offset not valid in streaming queries")
    if "endingoffsetsbytimestamp" in given:
        raise ConfigError(
            "option endingOffsetsByTimestamp: ending timestamp not valid in streaming queries"
        )
    if "endingtimestamp" in given:
        logger.warning("endingTimestamp option ignored in streaming queries")


def _no_match_latest(given: Mapping[str, str]) -> bool:
    value = given.get("startingoffsetsbytimestampstrategy", "error")
    if value.lower() not in {"error", "latest"}:
        raise ConfigError(
            f"option startingOffsetsByTimestampStrategy: No value found for '{value.upper()}' "
            "(expected error or latest)"
        )
    return value.lower() == "latest"


def _commit_group(given: Mapping[str, str], streaming: bool) -> str | None:
    group = given.get("commitgroup")
    if group is None:
        return None
    if not group.strip():
        raise ConfigError("option commitGroup: the value is empty; give the name of a group")
    if not streaming:
        raise ConfigError(
            "option commitGroup: batch queries commit nothing; the option is for streams"
        )
    return group.strip()


def _check_kafka(kafka: Mapping[str, str]) -> None:
    for name, refusal in REFUSED.items():
        if name in kafka:
            raise ConfigError(refusal)
    if "bootstrap.servers" not in kafka:
        raise ConfigError(
            "Option 'kafka.bootstrap.servers' must be specified for configuring Kafka consumer"
        )
    positive(
        kafka,
        "max.partition.fetch.bytes",
        "option kafka.max.partition.fetch.bytes must be positive",
    )
    level = kafka.get("isolation.level", "read_uncommitted")
    if level.lower() not in {"read_committed", "read_uncommitted"}:
        raise ConfigError(
            f"option kafka.isolation.level: {level!r} is neither 'read_uncommitted' nor "
            "'read_committed'"
        )
