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
        linger_ms: time that a batch waits for more records, in milliseconds.
        request_timeout_ms: timeout of a Produce request, in milliseconds.
        delivery_timeout_ms: longest time from the acceptance of a record to its delivery or
            failure, in milliseconds.
        max_block_ms: longest time that a call waits for buffer memory, in milliseconds. Records
            wait for an unknown topic for at most this time and at most delivery_timeout_ms.
        buffered_bytes: bytes of `buffer_memory` in use by records that are neither delivered nor
            failed.
        waiting_for_room: number of calls that wait for memory in `buffer_memory`.
        missing_topics: topics that do not exist, according to the brokers, although records wait
            for them.
        held_up: the partitions whose records could not be delivered so far, each with the reason:
            the error that blocks the partition, or the error of the last attempt.
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
