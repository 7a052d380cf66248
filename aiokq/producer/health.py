"""ProducerHealth: the state of a producer at one moment."""

from __future__ import annotations

from collections.abc import Mapping

from aiokq.core.frozen import frozen
from aiokq.core.types import TopicPartition

__all__ = ["ProducerHealth"]


@frozen
class ProducerHealth:
    """The state of a producer at one moment.

    Attributes:
        ok: whether the producer is open and has not failed with a bug, and none of its records
            waits for a missing topic or is held up.
        linger_ms: how long a batch waits for more records.
        request_timeout_ms: how long a Produce request may wait for its response.
        delivery_timeout_ms: the most time from the acceptance of a record to its delivery or
            failure.
        max_block_ms: how long a call waits for buffer memory, and how long records wait for an
            unknown topic.
        buffered_bytes: memory of the records that are neither delivered nor failed.
        waiting_for_room: number of calls that wait for memory in `buffer_memory`.
        missing_topics: topics that records wait for and that do not exist, according to the
            brokers.
        held_up: partitions whose records could not be delivered so far, with the reason: what
            blocks the partition, or the error of the last attempt.
    """

    ok: bool
    linger_ms: float
    request_timeout_ms: int
    delivery_timeout_ms: int
    max_block_ms: int
    buffered_bytes: int
    waiting_for_room: int
    missing_topics: frozenset[str]
    held_up: Mapping[TopicPartition, str]
