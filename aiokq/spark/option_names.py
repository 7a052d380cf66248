"""Names of options of the source, the sink and the client; misspelt names are refused.

Source and sink share one list: each also accepts the options of the other, and ignores them.
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
    "ledgerTopic",
    # Spark's own options, which Spark passes to the sink as well.
    "checkpointLocation",
    "queryName",
    "asyncProgressTrackingEnabled",
    "asyncProgressTrackingCheckpointIntervalMs",
)
KAFKA: Final = "kafka."
_BY_LOWER: Final = {name.lower(): name for name in (*READ, *WRITE)}
NOT_OURS: Final[Mapping[str, str]] = {
    "path": "topics are not paths: leave out the argument of load() and save(), and name topics "
    "with the option 'subscribe' (to write: 'topic')",
    "bootstrap.servers": "use 'kafka.bootstrap.servers'",
    "topics": "use 'subscribe'",
}


def check_names(options: Mapping[str, str]) -> None:
    """Check that every option is an option of the source or of the sink.

    Raises:
        ConfigError: an option is known neither to the source nor to the sink.
    """
    for name in options:
        lower = name.lower()
        if lower in _BY_LOWER or lower.startswith((KAFKA, "_")):
            continue
        if lower in NOT_OURS:
            raise ConfigError(f"option {name!r}: {NOT_OURS[lower]}")
        raise ConfigError.unknown(f"there is no option {name!r}", name, _BY_LOWER.values())


def kafka_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the ``kafka.*`` options by Kafka's names: lower case, without the prefix."""
    return {
        name.lower().removeprefix(KAFKA): value
        for name, value in options.items()
        if name.lower().startswith(KAFKA)
    }
