"""Creates the errors with which batches fail for good."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.core.errors import KafkaError, RequestTimeout, copy_error
from aiokq.producer.produce_errors import means_not_written

if TYPE_CHECKING:
    from aiokq.fastpath.produce import QueuedBatch

__all__ = ["final_error", "timed_out"]

NO_SUCH_TOPIC = (3, 100)
"""UNKNOWN_TOPIC_OR_PARTITION and UNKNOWN_TOPIC_ID.

A batch that expires after one of these errors fails with that error instead of a timeout, because
that error names the cause.
"""


def final_error(queued: QueuedBatch, error: KafkaError) -> KafkaError:
    """Return a copy of `error` with the batch's partition, attempts and `may_have_been_written`.

    The API remains that of the refused request: InitProducerId, for example, precedes Produce.
    """
    own = copy_error(error)
    own.add_context(
        topic_partition=queued.queue.topic_partition,
        api=error.api or "Produce",
        attempt=queued.attempts or None,
    )
    own.may_have_been_written = queued.uncertain or (
        queued.attempts > 0 and not means_not_written(error)
    )
    return own


def timed_out(cause: KafkaError | None, delivery_timeout: float, *, led: bool) -> KafkaError:
    """Return the error of a batch that was not acknowledged within the delivery timeout.

    Args:
        cause: the batch's last error, or else the error that blocks its partition; None if there
            is neither.
        delivery_timeout: `delivery_timeout_ms` in seconds.
        led: whether the partition has a leader.
    """
    milliseconds = int(delivery_timeout * 1000)
    if cause is not None and getattr(cause, "code", 0) in NO_SUCH_TOPIC:
        gone = copy_error(cause)
        gone.args = (f"{cause.message} The error lasted for delivery_timeout_ms={milliseconds}.",)
        return gone
    if cause is None:
        reason = "no broker answered" if led else "the partition has no leader"
    else:
        reason = f"the last error was {cause}"
    error = RequestTimeout(
        f"not delivered within delivery_timeout_ms={milliseconds}: {reason}", origin="client"
    )
    error.__cause__ = cause
    return error
