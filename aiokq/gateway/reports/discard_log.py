"""`DiscardLog`: writes a line for each message that is discarded or may be written twice.

The lines are those of Bruce and Dory:
`now: N ts: N event: DISC info: TEXT topic: LEN[TEXT] key: LEN[BASE64] msg: LEN[BASE64]`.
Tests: tests/unit/gateway/test_discard_log.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from aiokq.fastpath.gateway import (
    API_KEY,
    API_VERSION,
    ATTEMPT_LIMIT,
    AUTOCREATE_FAILED,
    BAD_TOPIC,
    ERROR_ACK,
    MALFORMED,
    NO_MEMORY,
    NO_PARTITION,
    NOT_ALLOWED,
    RATE_LIMIT,
    REASONS,
    SHUTDOWN,
    SPOOL_ERROR,
    SPOOL_FULL,
    TOO_LONG,
    TRANSPORTS,
    UNCLEAN_DISCONNECT,
)
from aiokq.gateway.reports.log_lines import log_line

if TYPE_CHECKING:
    from aiokq.fastpath.gateway import Refused, Taken
    from aiokq.gateway.accounting import Discard
    from aiokq.gateway.reports.log_file import LogFile
    from aiokq.gateway.reports.scribe import Scribe

__all__ = ["DiscardLog"]

INFO: Final[Mapping[int, str]] = {
    MALFORMED: "MALFORMED",
    NOT_ALLOWED: "NOT_ALLOWED",
    TOO_LONG: "LONG_MSG",
    RATE_LIMIT: "RATE_LIMIT",
    NO_MEMORY: "NO_MEM",
    BAD_TOPIC: "BAD_TOPIC",
    NO_PARTITION: "NO_AVAILABLE_PARTITIONS",
    ERROR_ACK: "KAFKA_ERROR_ACK",
    ATTEMPT_LIMIT: "DELIVERY_ATTEMPT_LIMIT",
    AUTOCREATE_FAILED: "TOPIC_AUTOCREATE_FAIL",
    SHUTDOWN: "SERVER_SHUTDOWN",
    SPOOL_FULL: "SPOOL_FULL",
    SPOOL_ERROR: "SPOOL_ERROR",
}
"""Texts of the reasons. NOT_ALLOWED, SPOOL_FULL and SPOOL_ERROR do not exist in Bruce and Dory."""

UNREADABLE: Final = frozenset({MALFORMED, API_KEY, API_VERSION, UNCLEAN_DISCONNECT, NOT_ALLOWED})
"""Reasons of messages of which only the bytes are known."""

TCP: Final = TRANSPORTS.index("tcp")
MESSAGE_BYTES: Final = 256
"""Size of a message in the queue of the Scribe, in addition to its key and value."""


class DiscardLog:
    """Writes the log in the thread of a Scribe. The methods for messages are called on the loop.

    Args:
        max_prefix_bytes: number of bytes of each key and value that are written.

    Attributes:
        dropped: number of messages for which the Scribe had no room.
    """

    def __init__(
        self, file: LogFile, scribe: Scribe, *, max_prefix_bytes: int, now_ms: Callable[[], int]
    ) -> None:
        self.file = file
        self._scribe = scribe
        self._prefix = max_prefix_bytes
        self._now_ms = now_ms
        self.dropped = 0

    def refused(self, messages: Sequence[Refused]) -> None:
        """Log messages that the pool or the spool did not take."""
        now = self._now_ms()
        size = sum(len(one.key) + len(one.value) + MESSAGE_BYTES for one in messages)
        self._submit(lambda: self._refused_lines(messages, now), len(messages), size)

    def discarded(self, note: Discard) -> None:
        """Log messages that were discarded after they were taken from the pool."""
        if note.taken is not None:
            self._taken("DISC", INFO.get(note.reason, "BUG"), note.topic, note.taken, note.rows)

    def duplicates(self, topic: str, taken: Taken, rows: Sequence[int]) -> None:
        """Log messages that may be written twice."""
        self._taken("DUP", "NONE", topic, taken, rows)

    def _taken(self, event: str, info: str, topic: str, taken: Taken, rows: Sequence[int]) -> None:
        now = self._now_ms()

        def lines() -> Iterator[bytes]:
            for row in rows:
                one = taken.message(row)
                key, value = one.key[: self._prefix], one.value[: self._prefix]
                yield log_line(now, one.timestamp_ms, event, info, topic.encode(), key, value)

        # The job keeps all messages of `taken` in memory, even if `rows` are few.
        self._submit(lines, len(rows), taken.size + MESSAGE_BYTES * taken.count)

    def _refused_lines(self, messages: Sequence[Refused], now: int) -> Iterator[bytes]:
        for one in messages:
            value = one.value[: self._prefix]
            if one.reason in UNREADABLE:
                yield log_line(now, now, "DISC", _info(one), b"", b"", value)
                continue
            key = one.key[: self._prefix]
            yield log_line(now, one.timestamp_ms, "DISC", _info(one), one.topic, key, value)

    def _submit(self, lines: Callable[[], Iterator[bytes]], messages: int, size: int) -> None:
        if not self._scribe.submit(lambda: self.file.append(lines()), size):
            self.dropped += messages


def _info(one: Refused) -> str:
    if one.reason == UNCLEAN_DISCONNECT:
        return "UNCLEAN_T" if one.transport == TCP else "UNCLEAN_U"
    if one.reason == API_KEY:
        return f"API_KEY({int.from_bytes(one.value[4:6], 'big', signed=True)})"
    if one.reason == API_VERSION:
        return f"VERSION({int.from_bytes(one.value[6:8], 'big', signed=True)})"
    return INFO.get(one.reason) or REASONS[one.reason].upper()
