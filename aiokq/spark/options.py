"""Options of the source, with the names, defaults, refusals and words of Spark's Kafka connector.

Pure: what they mean for a cluster is planned elsewhere, and what the ``kafka.*`` ones mean for a
client is in security.py. The sink's options are in this module too, so that a name of the one given
to the other is told from a slip of the pen.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, TypeVar

from aiokq import TopicPartition
from aiokq.errors import ConfigError
from aiokq.spark.offsets import (
    EARLIEST,
    LATEST,
    PartitionOffsets,
    parse_partition_offsets,
    parse_partition_timestamps,
    parse_partitions,
    partitions_text,
)
from aiokq.spark.schema import default_columns, parse_columns

__all__ = [
    "Assign",
    "ByOffset",
    "ByTime",
    "ByTimeEach",
    "IsolationLevel",
    "Limit",
    "Pattern",
    "ReadOptions",
    "Strategy",
    "Subscribe",
    "check_names",
    "kafka_options",
]

logger = logging.getLogger("aiokq.spark")

T = TypeVar("T")

IsolationLevel: TypeAlias = Literal["read_uncommitted", "read_committed"]

READ: Final = (
    "assign",
    "subscribe",
    "subscribePattern",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "endingOffsets",
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "includeHeaders",
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "maxTasks",
    "columns",
    "commitGroup",
    "pushdown",
)
WRITE: Final = (
    "topic",
    "includeHeaders",
    "exactlyOnce",
    # Spark's own, which it hands to the sink as well.
    "checkpointLocation",
    "queryName",
    "asyncProgressTrackingEnabled",
    "asyncProgressTrackingCheckpointIntervalMs",
)
KAFKA: Final = "kafka."
_BY_LOWER: Final = {name.lower(): name for name in (*READ, *WRITE)}
NOT_OURS: Final[Mapping[str, str]] = {
    "path": "topics are not paths: leave the argument of load() and save() out, and name topics by "
    "the option 'subscribe' (to write: 'topic')",
    "bootstrap.servers": "it is called 'kafka.bootstrap.servers'",
    "topics": "it is called 'subscribe'",
}

STRATEGIES: Final = ("subscribe", "subscribePattern", "assign")
_STRATEGY_NAMES: Final = ", ".join(name.lower() for name in STRATEGIES)
DEFAULT_POLL_TIMEOUT_MS: Final = 120_000
"""Spark's ``spark.network.timeout``."""

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
"""``kafka.*`` options that a reader refuses, in the order they are looked for."""


@dataclass(frozen=True)
class Assign:
    """Exactly these partitions."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True)
class Subscribe:
    """All partitions of these topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True)
class Pattern:
    """All topics whose whole names match; Kafka's own are left out."""

    pattern: str


Strategy: TypeAlias = Assign | Subscribe | Pattern


@dataclass(frozen=True)
class ByOffset:
    """Offsets for each partition, -2 and -1 for the ends of the log; or one end for all."""

    offsets: PartitionOffsets | Literal[-2, -1]


@dataclass(frozen=True)
class ByTime:
    """The first record at or after a time, of all partitions; milliseconds since the epoch."""

    timestamp_ms: int


@dataclass(frozen=True)
class ByTimeEach:
    """The same, with a time for each partition."""

    timestamps_ms: PartitionOffsets


Limit: TypeAlias = ByOffset | ByTime | ByTimeEach


def check_names(options: Mapping[str, str]) -> None:
    """No option is misspelt.

    Raises:
        ConfigError: an option that neither the source nor the sink has.
    """
    for name in options:
        lower = name.lower()
        if lower in _BY_LOWER or lower.startswith((KAFKA, "_")):
            continue
        if lower in NOT_OURS:
            raise ConfigError(f"option {name!r}: {NOT_OURS[lower]}")
        near = difflib.get_close_matches(lower, _BY_LOWER, n=1)
        hint = f"; did you mean {_BY_LOWER[near[0]]!r}?" if near else ""
        raise ConfigError(f"there is no option {name!r}{hint}")


def kafka_options(options: Mapping[str, str]) -> dict[str, str]:
    """The ``kafka.*`` ones, by Kafka's names."""
    return {
        name.lower().removeprefix(KAFKA): value
        for name, value in options.items()
        if name.lower().startswith(KAFKA)
    }


@dataclass(frozen=True)
class ReadOptions:
    """What a read was asked for; made by `parse`.

    Attributes:
        strategy: which partitions.
        starting: where to begin; of a stream, only the first time.
        ending: where to end; of a batch.
        no_match_latest: begin at the end of a partition that has nothing as young as asked for.
        kafka: for the client, by Kafka's names.
        max_trigger_delay: seconds.
        max_tasks: at most so many tasks; None for the default.
        commit_group: the group to commit a stream's progress for, so that lag tools see it.
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
    kafka: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
        """Check the options, and take them.

        Args:
            options: as Spark gives them; names in any case.
            streaming: of a stream; some options are the one's or the other's.

        Raises:
            ConfigError: an option is missing, unknown, of the wrong form, or contradicts another.
        """
        check_names(options)
        given = {name.lower(): value for name, value in options.items()}
        if streaming:
            if "endingoffsets" in given:
                raise ConfigError("ending offset not valid in streaming queries")
            if "endingoffsetsbytimestamp" in given:
                raise ConfigError("ending timestamp not valid in streaming queries")
            if "endingtimestamp" in given:
                logger.warning("endingTimestamp option ignored in streaming queries")
        starting = _limit(given, "starting", LATEST if streaming else EARLIEST)
        ending = _limit(given, "ending", LATEST)
        if not streaming:
            _check_batch_limits(starting, ending)
        strategy = _strategy(given)
        kafka = kafka_options(options)
        parsed = cls(
            strategy=strategy,
            starting=starting,
            ending=ending,
            no_match_latest=_no_match_latest(given),
            fail_on_data_loss=_flag(given, "failOnDataLoss", True),
            min_partitions=_positive(given, "minPartitions", "minPartitions must be positive"),
            max_records_per_partition=_positive(
                given, "maxRecordsPerPartition", "maxrecordsperpartition must be positive"
            ),
            max_offsets_per_trigger=_positive(given, "maxOffsetsPerTrigger"),
            min_offsets_per_trigger=_positive(given, "minOffsetsPerTrigger"),
            max_trigger_delay=_duration(given, "maxTriggerDelay", "15m"),
            include_headers=_flag(given, "includeHeaders", False),
            group_id_prefix=given.get("groupidprefix"),
            poll_timeout_ms=_positive(given, "kafkaConsumer.pollTimeoutMs")
            or DEFAULT_POLL_TIMEOUT_MS,
            fetch_offset_num_retries=_number(given, "fetchOffset.numRetries", 3),
            fetch_offset_retry_interval_ms=_number(given, "fetchOffset.retryIntervalMs", 1000),
            max_tasks=_positive(given, "maxTasks"),
            columns=parse_columns(given["columns"]) if "columns" in given else None,
            commit_group=_commit_group(given, streaming),
            pushdown=_flag(given, "pushdown", False),
            kafka=kafka,
        )
        _check_kafka(kafka)
        low, high = parsed.min_offsets_per_trigger, parsed.max_offsets_per_trigger
        if low is not None and high is not None and low > high:
            raise ConfigError(
                f"The value of minOffsetPerTrigger({low}) is higher than the "
                f"maxOffsetsPerTrigger({high})."
            )
        if not streaming:
            for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"):
                if name.lower() in given:
                    logger.warning("%s option ignored in batch queries", name)
        if parsed.group_id_prefix is not None or "group.id" in kafka:
            logger.warning(
                "groupIdPrefix and kafka.group.id have no effect: aiokq reads without a group; "
                "commitGroup commits a stream's progress for one"
            )
        return parsed

    @property
    def isolation_level(self) -> IsolationLevel:
        """``kafka.isolation.level``."""
        level = self.kafka.get("isolation.level", "read_uncommitted").lower()
        return "read_committed" if level == "read_committed" else "read_uncommitted"

    @property
    def all_columns(self) -> tuple[str, ...]:
        """The columns of the frame, where the user gives no schema."""
        return self.columns or default_columns(self.include_headers)


def frame_columns(options: Mapping[str, str]) -> tuple[str, ...]:
    """The columns that a read with these options has; looks at nothing else.

    Spark asks for the schema before it says whether this is a batch or a stream.

    Raises:
        ConfigError: ``columns`` or ``includeHeaders`` is of the wrong form.
    """
    given = {name.lower(): value for name, value in options.items()}
    if "columns" in given:
        return parse_columns(given["columns"])
    return default_columns(_flag(given, "includeHeaders", False))


# -- single options


def _strategy(given: Mapping[str, str]) -> Strategy:
    chosen = [name for name in STRATEGIES if name.lower() in given]
    if len(chosen) != 1:
        word = "Only one" if chosen else "One"
        must = "can be" if chosen else "must be"
        raise ConfigError(
            f"{word} of the following options {must} specified for Kafka source: "
            f"{_STRATEGY_NAMES}. See the docs for more details."
        )
    value = given[chosen[0].lower()]
    match chosen[0]:
        case "assign":
            if not value.strip().startswith("{"):
                raise ConfigError(
                    "No topicpartitions to assign as specified value for option 'assign' is "
                    f"'{value}'"
                )
            return Assign(parse_partitions(value))
        case "subscribe":
            topics = [topic.strip() for topic in value.split(",") if topic.strip()]
            if not topics:
                raise ConfigError(
                    "No topics to subscribe to as specified value for option 'subscribe' is "
                    f"'{value}'"
                )
            return Subscribe(tuple(dict.fromkeys(topics)))
        case _:
            if not value.strip():
                raise ConfigError(
                    "Pattern to subscribe is empty as specified value for option "
                    f"'subscribePattern' is '{value}'"
                )
            try:
                re.compile(value.strip())
            except re.error as error:
                raise ConfigError(
                    f"option subscribePattern: {value!r} is no regular expression: {error}"
                ) from error
            return Pattern(value.strip())


def _limit(given: Mapping[str, str], which: str, default: Literal[-2, -1]) -> Limit:
    """Where to start or to end; of several options for it the first in Spark's order counts."""
    if (text := given.get(f"{which}timestamp")) is not None:
        try:
            return ByTime(int(text.strip()))
        except ValueError:
            raise ConfigError(f"Expected a single long value, got {text.strip()}") from None
    if (text := given.get(f"{which}offsetsbytimestamp")) is not None:
        return ByTimeEach(parse_partition_timestamps(text.strip()))
    text = given.get(f"{which}offsets")
    if text is None:
        return ByOffset(default)
    match text.strip().lower():
        case "latest":
            return ByOffset(LATEST)
        case "earliest":
            return ByOffset(EARLIEST)
        case _:
            return ByOffset(parse_partition_offsets(text.strip()))


def _check_batch_limits(starting: Limit, ending: Limit) -> None:
    if isinstance(starting, ByOffset):
        if starting.offsets == LATEST:
            raise ConfigError("starting offset can't be latest for batch queries on Kafka")
        if isinstance(starting.offsets, dict):
            for tp, offset in starting.offsets.items():
                if offset == LATEST:
                    raise ConfigError(
                        f"startingOffsets for {tp} can't be latest for batch queries on Kafka"
                    )
    if isinstance(ending, ByOffset):
        if ending.offsets == EARLIEST:
            raise ConfigError("ending offset can't be earliest for batch queries on Kafka")
        if isinstance(ending.offsets, dict):
            for tp, offset in ending.offsets.items():
                if offset == EARLIEST:
                    raise ConfigError(
                        f"ending offset for {tp} can't be earliest for batch queries on Kafka"
                    )
    match starting, ending:
        case ByOffset(dict() as first), ByOffset(dict() as last):
            _check_order(first, last, "offset")
        case ByTimeEach(first), ByTimeEach(last):
            _check_order(first, last, "timestamp")


def _check_order(first: PartitionOffsets, last: PartitionOffsets, kind: str) -> None:
    if first.keys() != last.keys():
        raise ConfigError(
            "The specified start offset and end offset should have the same topic-partitions.\n"
            f"Topic-partitions for start offset: {partitions_text(first)}, topic-partitions for "
            f"end offset: {partitions_text(last)}."
        )
    for tp, start in first.items():
        # The ends of the log are negative, and compare with nothing.
        if start > last[tp] >= 0 <= start:
            raise ConfigError(
                f"The specified start {kind} {start} is greater than the end {kind} {last[tp]} "
                f"for topic {tp.topic} partition {tp.partition}."
            )


def _no_match_latest(given: Mapping[str, str]) -> bool:
    value = given.get("startingoffsetsbytimestampstrategy", "error")
    if value.lower() not in {"error", "latest"}:
        raise ConfigError(
            f"option startingOffsetsByTimestampStrategy: No value found for '{value.upper()}' "
            "(it is error or latest)"
        )
    return value.lower() == "latest"


def _commit_group(given: Mapping[str, str], streaming: bool) -> str | None:
    group = given.get("commitgroup")
    if group is None:
        return None
    if not group.strip():
        raise ConfigError("option commitGroup: it is empty; give the name of a group")
    if not streaming:
        raise ConfigError("option commitGroup: batch queries commit nothing; it is for streams")
    return group.strip()


def _check_kafka(kafka: Mapping[str, str]) -> None:
    for name, refusal in REFUSED.items():
        if name in kafka:
            raise ConfigError(refusal)
    if "bootstrap.servers" not in kafka:
        raise ConfigError(
            "Option 'kafka.bootstrap.servers' must be specified for configuring Kafka consumer"
        )
    _positive(
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


def _flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    value = given.get(name.lower())
    if value is None:
        return default
    if value.strip().lower() not in {"true", "false"}:
        raise ConfigError(f'option {name}: For input string: "{value}" (it is true or false)')
    return value.strip().lower() == "true"


def _number(given: Mapping[str, str], name: str, default: int) -> int:
    value = _parsed(given, name, int)
    return default if value is None else value


def _positive(given: Mapping[str, str], name: str, refusal: str | None = None) -> int | None:
    value = _parsed(given, name, int)
    if value is not None and value <= 0:
        raise ConfigError(refusal or f"{name} must be positive")
    return value


def _parsed(given: Mapping[str, str], name: str, kind: Callable[[str], T]) -> T | None:
    text = given.get(name.lower())
    if text is None:
        return None
    try:
        return kind(text.strip())
    except ValueError:
        raise ConfigError(f'option {name}: For input string: "{text}" (it is a number)') from None


_UNITS: Final = {
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}


def _duration(given: Mapping[str, str], name: str, default: str) -> float:
    """Seconds; "15m" and the like, a number alone is milliseconds.

    Source: Spark `JavaUtils.timeStringAs`.
    """
    text = given.get(name.lower(), default).strip().lower()
    found = re.fullmatch(r"(-?[0-9]+)([a-z]+)?", text)
    if found is None or found[2] not in {None, *_UNITS}:
        raise ConfigError(
            f"option {name}: Time must be specified as seconds (s), milliseconds (ms), "
            f"microseconds (us), minutes (m or min), hour (h), or day (d). E.g. 50s, 100ms, or "
            f"250us. Got {text!r}"
        )
    return int(found[1]) * _UNITS[found[2] or "ms"]
