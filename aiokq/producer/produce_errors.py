"""The outcome of a batch for each error code of a Produce response."""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from aiokq.core.codes import BY_CODE
from aiokq.core.errors import BrokerError, KafkaError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["OUTCOMES", "Outcome", "outcome_of", "outcome_of_code"]


class Outcome(Enum):
    """The outcome of an attempt to send a batch."""

    DELIVERED = "the batch is in the log, from this or an earlier attempt"
    RETRY = "retry: send the same bytes to the same leader after a pause"
    MOVED = "not the leader: request metadata, then send the same bytes again"
    TOO_LARGE = "too large for the topic: split it if it has more than one record"
    OUT_OF_ORDER = "an earlier sequence is missing"
    FENCED = "the broker has a newer epoch of this producer id: a new id is needed"
    FORGOTTEN = "the broker has no state for this producer id: sequences restart at 0"
    BAD_RECORDS = "some records were refused: fail these records, and send the others again"
    FAILED = "refused; a retry would fail"


OUTCOMES: Final[Mapping[int, Outcome]] = MappingProxyType(
    {
        0: Outcome.DELIVERED,
        2: Outcome.RETRY,  # CORRUPT_MESSAGE: damaged in transit
        3: Outcome.MOVED,  # UNKNOWN_TOPIC_OR_PARTITION: perhaps the broker's metadata is old
        5: Outcome.MOVED,  # LEADER_NOT_AVAILABLE
        6: Outcome.MOVED,  # NOT_LEADER_OR_FOLLOWER
        7: Outcome.RETRY,  # REQUEST_TIMED_OUT: appended, not yet replicated
        10: Outcome.TOO_LARGE,  # MESSAGE_TOO_LARGE
        13: Outcome.MOVED,  # NETWORK_EXCEPTION
        18: Outcome.TOO_LARGE,  # RECORD_LIST_TOO_LARGE: more than segment.bytes
        19: Outcome.RETRY,  # NOT_ENOUGH_REPLICAS
        20: Outcome.RETRY,  # NOT_ENOUGH_REPLICAS_AFTER_APPEND
        32: Outcome.BAD_RECORDS,  # INVALID_TIMESTAMP
        45: Outcome.OUT_OF_ORDER,  # OUT_OF_ORDER_SEQUENCE_NUMBER
        46: Outcome.DELIVERED,  # DUPLICATE_SEQUENCE_NUMBER: the first copy counts
        47: Outcome.FENCED,  # INVALID_PRODUCER_EPOCH
        56: Outcome.MOVED,  # KAFKA_STORAGE_ERROR: an I/O error on the leader's disk
        59: Outcome.FORGOTTEN,  # UNKNOWN_PRODUCER_ID
        87: Outcome.BAD_RECORDS,  # INVALID_RECORD
        89: Outcome.RETRY,  # THROTTLING_QUOTA_EXCEEDED
        90: Outcome.FENCED,  # PRODUCER_FENCED
        100: Outcome.MOVED,  # UNKNOWN_TOPIC_ID: recreated topic, or old metadata
        103: Outcome.MOVED,  # INCONSISTENT_TOPIC_ID
    }
)
"""The outcomes of the codes that need special treatment.

`outcome_of_code` derives the outcome of each other code from its row in codes.py.

Source: Kafka `clients/producer/internals/Sender.java` (completeBatch, canRetry), KIP-360, KIP-467.
"""


def outcome_of_code(code: int) -> Outcome:
    """Return the outcome for an error code; FAILED if the code is unknown."""
    outcome = OUTCOMES.get(code)
    if outcome is not None:
        return outcome
    row = BY_CODE.get(code)
    if row is None or not row.retriable:
        return Outcome.FAILED
    return Outcome.MOVED if row.refresh_metadata else Outcome.RETRY


def outcome_of(error: KafkaError) -> Outcome:
    """Return the outcome of a batch for an error of the batch or of its whole request."""
    if isinstance(error, BrokerError):
        # A RequestTimeout is an error of the broker or a timeout of the client. RETRY is right for
        # both: after its own timeout, the client has closed the connection, and therefore requests
        # new metadata.
        return outcome_of_code(error.code)
    if not error.retriable:
        return Outcome.FAILED
    return Outcome.MOVED if error.refresh_metadata else Outcome.RETRY


DEFINITIVE: Final = frozenset({2, 3, 5, 10, 13, 18, 19, 32, 45, 47, 59, 87, 89, 90, 100, 103})
"""Error codes after which the attempt certainly wrote nothing.

Codes whose outcome is FAILED are not listed. After them, too, the attempt wrote nothing, unless
`may_have_been_written` is True, which it is for UNKNOWN_SERVER_ERROR.
NOT_LEADER_OR_FOLLOWER is not in the set: a leader that resigns while it waits for the replicas
returns this error after the append.
"""


def means_not_written(error: KafkaError) -> bool:
    """Return whether the attempt that ended with this error certainly wrote nothing."""
    if isinstance(error, BrokerError) and not error.may_have_been_written:
        return error.code in DEFINITIVE or outcome_of_code(error.code) is Outcome.FAILED
    return not error.may_have_been_written
