"""Names of options: of the source, of the sink, of the client; a slip of the pen is told.

Those of both are known in one place, so that an option of the one given to the other is no slip.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aiokq.errors import ConfigError

__all__ = ["check_names", "kafka_options"]

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
        raise ConfigError.unknown(f"there is no option {name!r}", name, _BY_LOWER.values())


def kafka_options(options: Mapping[str, str]) -> dict[str, str]:
    """The ``kafka.*`` ones, by Kafka's names."""
    return {
        name.lower().removeprefix(KAFKA): value
        for name, value in options.items()
        if name.lower().startswith(KAFKA)
    }
