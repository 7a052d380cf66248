"""The reasons for which messages are discarded, and the values that both cores return.

Tests: tests/unit/fastpath/test_gateway_pool.py, test_gateway_intake.py.
"""

from __future__ import annotations

import operator
from typing import Final, NamedTuple

__all__ = [
    "API_KEY",
    "API_VERSION",
    "ATTEMPT_LIMIT",
    "AUTOCREATE_FAILED",
    "BAD_TOPIC",
    "ERROR_ACK",
    "IntakeCounts",
    "MALFORMED",
    "Message",
    "NEVER",
    "NOT_ALLOWED",
    "NO_MEMORY",
    "NO_PARTITION",
    "PoolCounts",
    "RATE_LIMIT",
    "REASONS",
    "Refused",
    "SHUTDOWN",
    "SPOOL_DAMAGED",
    "SPOOL_ERROR",
    "SPOOL_FULL",
    "SPOOL_HEADER_BYTES",
    "SPOOL_VERSION",
    "Sample",
    "SpoolCounts",
    "SpoolFrame",
    "SpoolProgress",
    "TOO_LONG",
    "TRANSPORTS",
    "TopicCounts",
    "UNCLEAN_DISCONNECT",
]

NAME_BYTES: Final = 1280
"""Upper bound of the bytes of the pool that an unregistered topic uses, without its messages."""

LEAST_NAMES: Final = 16

LONGEST_TOPIC: Final = 32767
"""Largest number of bytes of a topic in a message."""

REASONS: Final = (
    "malformed",
    "unsupported_api_key",
    "unsupported_version",
    "unclean_disconnect",
    "not_allowed",
    "too_long",
    "rate_limit",
    "no_memory",
    "bad_topic",
    "no_partition",
    "error_ack",
    "attempt_limit",
    "autocreate_failed",
    "shutdown",
    "spool_full",
    "spool_error",
    "spool_damaged",
)
"""The names of all reasons; a reason is an index of this tuple.

The core itself discards messages for the first nine reasons. Inputs with a spool also discard
messages for SPOOL_FULL and SPOOL_ERROR. SPOOL_DAMAGED is for stored messages that cannot be read
again. The other reasons are outcomes of a delivery.
"""

(
    MALFORMED,
    API_KEY,
    API_VERSION,
    UNCLEAN_DISCONNECT,
    NOT_ALLOWED,
    TOO_LONG,
    RATE_LIMIT,
    NO_MEMORY,
    BAD_TOPIC,
    NO_PARTITION,
    ERROR_ACK,
    ATTEMPT_LIMIT,
    AUTOCREATE_FAILED,
    SHUTDOWN,
    SPOOL_FULL,
    SPOOL_ERROR,
    SPOOL_DAMAGED,
) = range(17)

TRANSPORTS: Final = ("unix_datagram", "unix_stream", "tcp", "fed")
"""The transports by which messages arrive; `fed` is for messages of `Pool.feed`."""

SAMPLES: Final = 25
"""Number of samples that are kept for each reason and transport."""

NEVER: Final = (1 << 63) - 1
"""The smallest timestamp if there are no messages; the largest timestamp is then -NEVER."""


class TopicCounts(NamedTuple):
    """Counts of the messages of one topic since the pool first knew the topic.

    Attributes:
        received: messages received, including replayed messages.
        held, held_bytes: messages that were not taken, and their charge.
        too_long, rate_limit, no_memory: messages that the core refused.
        earliest_ms, latest_ms: smallest and largest timestamp of refused messages since the last
            `Pool.counts(new_window=True)`; NEVER and -NEVER if there are none.
        queued: messages in `too_long` that the core has not counted as discarded, because the
            caller of `refused()` decides their outcome.
    """

    topic: bytes
    received: int
    held: int
    held_bytes: int
    too_long: int
    rate_limit: int
    no_memory: int
    earliest_ms: int
    latest_ms: int
    queued: int = 0


class PoolCounts(NamedTuple):
    """One snapshot of a pool.

    `received` is the number of discarded, held and released messages.

    Attributes:
        received, received_bytes: all received messages, including malformed messages, and their
            bytes on the wire.
        replayed: messages that were fed with `replayed=True`, counted in `received`, too.
        held: received messages that are neither released nor discarded, including the charged
            messages in the queue of `refused()`.
        taken: messages of `held` that were taken, including those taken by `refused()`.
        used_bytes: bytes of the pool in use; `partial_bytes` of them belong to incomplete messages
            of streams.
        unresolved: messages of `held` whose topics are not registered.
        names: unregistered topics of which messages are held.
        refused_lost: messages for the queue of `refused()` that the queue did not take, because of
            a lack of room or memory, or because of a limit of their rate.
        discarded: messages that the core discarded, by reason.
        versions: messages of unsupported versions of the format, by version.
        topics: counts of topics by slot, if they were requested: of each registered topic, and of
            each other topic of which messages were discarded.
    """

    received: int
    received_bytes: int
    replayed: int
    held: int
    taken: int
    used_bytes: int
    partial_bytes: int
    unresolved: int
    names: int
    refused_lost: int
    discarded: tuple[int, ...]
    versions: dict[int, int]
    topics: dict[int, TopicCounts]


def check_limits(*limits: int) -> None:
    """Raise ValueError if a limit of a slot is out of range."""
    for limit in limits:
        if not -1 <= operator.index(limit) < 1 << 62:
            raise ValueError(f"limit {limit}: must be from -1 to 2**62")


def most_names(wanted: int, max_bytes: int) -> int:
    """Return the maximum number of unregistered topics in a pool.

    Their names use at most half of the pool. Otherwise, a program that invents topic names would
    use the memory of all other programs.
    """
    return min(wanted, max(max_bytes // (2 * NAME_BYTES), LEAST_NAMES))


class IntakeCounts(NamedTuple):
    """One snapshot of an input.

    Attributes:
        received, received_bytes: messages received, and their bytes on the wire.
        malformed, api_key, api_version, unclean_disconnects, not_allowed, no_memory: messages that
            this input discarded.
        connections: open connections.
        accepted, refused: connections accepted, and connections refused because the user is not
            allowed, or because of a lack of memory.
        idle_closed, partial_closed: connections closed because they were idle, or because a message
            was incomplete, for too long.
        displaced: idle connections that were closed because other connections waited for their
            places.
        blocked_ms: milliseconds in which the input waited for room in the pool, or for the spool.
        running: whether the thread runs.
        error: errno of the error that ended the thread, or that showed `start()` or `change()`
            that the descriptor is not a socket; 0 if there is none. Other errors of `start()`
            are only raised.
    """

    received: int
    received_bytes: int
    malformed: int
    api_key: int
    api_version: int
    unclean_disconnects: int
    not_allowed: int
    no_memory: int
    connections: int
    accepted: int
    refused: int
    idle_closed: int
    partial_closed: int
    displaced: int
    blocked_ms: int
    running: bool
    error: int


class Sample(NamedTuple):
    """The beginning of a message that was discarded.

    Attributes:
        data: first bytes of the message; for TOO_LONG the topic, a space and the first bytes of the
            value; for BAD_TOPIC the topic.
    """

    reason: int
    transport: int
    arrival_ms: int
    data: bytes


class Message(NamedTuple):
    """One message of a Taken.

    Attributes:
        partition_key: as an unsigned number; None for AnyPartition.
        sequence: number of the message in the order of arrival, or the number that `feed` gave to
            the message.
    """

    key: bytes
    value: bytes
    timestamp_ms: int
    arrival_ms: int
    partition_key: int | None
    sequence: int


class Refused(NamedTuple):
    """A message that the core did not accept, for a log of discards or a dead-letter topic.

    Attributes:
        topic, key: empty if the message could not be read.
        value: the value; all bytes of a message that could not be read.
        sequence: the number that `feed` gave to the message; -1 if it gave none.
        charge: 0 if the pool has counted the message as discarded. Else the message is whole, the
            caller decides its outcome, and this is the number of bytes for `Pool.release()`.
    """

    reason: int
    transport: int
    topic: bytes
    key: bytes
    value: bytes
    timestamp_ms: int
    arrival_ms: int
    partition_key: int | None
    sequence: int = -1
    charge: int = 0


SPOOL_VERSION: Final = 1
"""Version of the spool's files that is written and read."""

SPOOL_HEADER_BYTES: Final = 32
"""Size of the header of a segment, after which its frames begin."""


class SpoolFrame(NamedTuple):
    """The position of a frame's messages in the searched data.

    Attributes:
        begin, end: positions of the messages.
        sequence: number of the first message.
        messages: number of messages.
    """

    begin: int
    end: int
    sequence: int
    messages: int
    arrival_ms: int


class SpoolProgress(NamedTuple):
    """The segments to which messages were appended.

    Attributes:
        sealed: the segments that were finished since the last call: base sequence, size, and the
            sequence after the last message.
        base, end: base sequence and size of the current segment; base is -1 if there is none.
        sequence: the sequence after the last message.
    """

    sealed: tuple[tuple[int, int, int], ...]
    base: int
    end: int
    sequence: int


class SpoolCounts(NamedTuple):
    """One snapshot of a spool's writer.

    Attributes:
        appended, appended_bytes: messages that were accepted, and their bytes.
        sequence: the sequence after the last message.
        stored_bytes: size of the segments.
        failures: times that data could not be made durable.
        error: errno of the last write or sync, if it failed.
    """

    appended: int
    appended_bytes: int
    sequence: int
    stored_bytes: int
    failures: int
    error: int


def check_intake_options(
    max_message_bytes: int,
    when_full: str,
    max_connections: int,
    idle_ms: int,
    partial_ms: int,
    idle_when_full_ms: int,
) -> None:
    """Raise ValueError for an option of an input that is out of range."""
    if when_full not in ("discard", "block"):
        raise ValueError(f"when_full {when_full!r}: discard or block")
    if not 0 < max_message_bytes < 1 << 31 or max_connections < 1:
        raise ValueError("max_message_bytes and max_connections are at least 1")
    if min(idle_ms, partial_ms, idle_when_full_ms) < 0:
        raise ValueError("idle_ms, partial_ms and idle_when_full_ms are not negative")
