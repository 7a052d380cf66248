"""DataLoss, the error for lost records, and Losses, which raises it or logs a warning instead."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final
from uuid import UUID

from aiokq import TopicPartition
from aiokq.errors import ConfigError, KafkaError
from aiokq.spark.offsets import partitions_text

__all__ = ["DataLoss", "Losses"]

logger = logging.getLogger("aiokq.spark")

LOST: Final = (
    "Some data may have been lost because they are not available in Kafka any more;\n"
    "either the data was aged out by Kafka or the topic may have been deleted before all the data "
    "in the\ntopic was processed."
)
REMEDY: Final = (
    "If you don't want your streaming query to fail on such cases, set the source option "
    "failOnDataLoss to false."
)


class DataLoss(KafkaError):
    """Records may be missing from the query's input, and ``failOnDataLoss`` is true.

    Attributes:
        reason: name of the kind of loss, such as ``START_OFFSET_RESET``; Spark's name if Spark also
            reports this kind.
    """

    def __init__(self, message: str, *, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class Losses:
    """Reporter of losses: it raises an error if `fail` is true, and otherwise logs a warning.

    Args:
        fail: the option ``failOnDataLoss``.

    Source: Spark ``kafka-error-conditions.json``, ``KAFKA_DATA_LOSS``.
    """

    def __init__(self, fail: bool) -> None:
        self.fail = fail

    def start_reset(self, tp: TopicPartition, start: int, log_start: int) -> None:
        self._report(
            "START_OFFSET_RESET",
            f"Starting offset for {tp} was {start} but consumer reset to {log_start}.",
        )

    def changed(self, tp: TopicPartition, start: int, end: int) -> None:
        self._report(
            "PARTITION_OFFSET_CHANGED",
            f"Partition {tp} offset was changed from {start} to {end}.\n"
            "This could be either 1) a user error that the start offset is set beyond available "
            "offset when starting query, or 2) the kafka topic-partition is deleted and "
            "re-created.",
        )

    def topic_recreated(self, topic: str, before: UUID, now: UUID) -> None:
        self._report(
            "TOPIC_RECREATED",
            f"Topic {topic} was deleted and created again: its id was {before}, and is now {now}.",
        )

    def deleted(self, partitions: Iterable[TopicPartition]) -> None:
        self._report(
            "PARTITIONS_DELETED", f"Partitions {partitions_text(partitions)} have been deleted."
        )

    def no_initial_offset(self, partitions: Iterable[TopicPartition]) -> None:
        self._report(
            "INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS",
            f"Cannot find initial offsets for partitions {partitions_text(partitions)}. "
            "They may have been deleted.",
        )

    def added_late(self, tp: TopicPartition, start: int) -> None:
        self._report(
            "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO",
            f"Added partition {tp} starts from {start} instead of 0.",
        )

    def unreadable(self, tp: TopicPartition, start: int, end: int) -> None:
        self._report(
            "COULD_NOT_READ_OFFSET_RANGE",
            f"Could not read records in offset [{start}, {end}) for topic partition {tp}.",
        )

    def beginning_unknown(self, partitions: Iterable[TopicPartition]) -> None:
        """Report that the offsets at which the first batch begins are unknown.

        Another connector planned the batch, and only that connector knows them.
        """
        self._report(
            "INITIAL_OFFSET_UNKNOWN",
            "The first batch was planned by another connector, and only that connector knows "
            f"where the batch began reading partitions {partitions_text(partitions)}.\nLet the "
            "query finish this batch with the connector that planned it, or begin with a new "
            "checkpoint.",
        )

    def beyond_the_end(self, tp: TopicPartition, start: int, end: int) -> None:
        """Report a starting offset beyond the end of the log.

        Raises:
            ConfigError: ``failOnDataLoss`` is true; otherwise a warning is logged.
        """
        what = f"option startingOffsets: {tp} ends at {end}, before {start}"
        if self.fail:
            raise ConfigError(f"{what}; with failOnDataLoss=false the query begins at the end")
        logger.warning("reason=START_OFFSET_BEYOND_END failOnDataLoss=false %s", what)

    def _report(self, reason: str, what: str) -> None:
        if self.fail:
            raise DataLoss(
                f"[KAFKA_DATA_LOSS.{reason}] {LOST}\n{REMEDY}\nReason:\n{what}", reason=reason
            )
        logger.warning("reason=%s failOnDataLoss=false %s", reason, what.replace("\n", " "))
