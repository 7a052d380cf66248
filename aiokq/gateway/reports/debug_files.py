"""`DebugFiles`: three files with the taken, sent and acked messages of chosen topics.

Debugging ends after a time or a number of bytes, so that it cannot fill the disk if nobody ends it.
Tests: tests/unit/gateway/test_debug_files.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aiokq.gateway.reports.log_file import LogFile
from aiokq.gateway.texts import base64_text, bracketed

if TYPE_CHECKING:
    from aiokq.fastpath.gateway import Message, Taken
    from aiokq.gateway.reports.scribe import Scribe

__all__ = ["DebugFiles"]

logger = logging.getLogger("aiokq.gateway")

NAMES: Final = ("msg_receive", "msg_send", "msg_got_ack")
MOST_TOPICS: Final = 1000
MESSAGE_BYTES: Final = 256


class _Written:
    """What was written since debugging began; changed in the Scribe's thread.

    Each debugging has its own object, because messages of the last one may still wait for the
    Scribe when the next one begins.
    """

    __slots__ = ("is_full", "nbytes")

    def __init__(self) -> None:
        self.nbytes = 0
        self.is_full = False


class DebugFiles:
    """Writes messages of chosen topics. All methods are called on the loop.

    Args:
        directory: directory of the files; without it (None), nothing is written.
        time_limit: debugging ends this many seconds after the last choice of topics.
        byte_limit: debugging ends before the three files together get more than this many bytes.
        now: returns monotonic seconds.

    Attributes:
        topics: the chosen topics; None for all topics.
        dropped: number of lines for which the Scribe had no room.
        on_change: called after the chosen topics have changed.
    """

    def __init__(
        self,
        directory: str | None,
        scribe: Scribe,
        *,
        time_limit: float,
        byte_limit: int,
        now: Callable[[], float],
        now_ms: Callable[[], int],
    ) -> None:
        self.directory = directory
        self._scribe = scribe
        self._time_limit = time_limit
        self._byte_limit = byte_limit
        self._now = now
        self._since = 0.0
        self._written = _Written()
        self.topics: frozenset[str] | None = frozenset()
        self.dropped = 0
        self.on_change: Callable[[], None] = lambda: None
        self._files = (
            ()
            if directory is None
            else tuple(
                LogFile(
                    Path(directory, name),
                    max_file_bytes=2**62,
                    max_archive_bytes=2**62,
                    now_ms=now_ms,
                )
                for name in NAMES
            )
        )

    # ------------------------------------------------------------ which topics

    def traces(self, topic: str) -> bool:
        """Return whether the messages of a topic are written."""
        return self.topics is None or topic in self.topics

    def add(self, topic: str) -> bool:
        """Choose a topic; return False if it is chosen already, or if there are too many."""
        if self.topics is None or topic in self.topics or len(self.topics) >= MOST_TOPICS:
            return False
        self._choose(self.topics | {topic})
        return True

    def remove(self, topic: str) -> bool:
        """Stop writing a topic; return False if it was not chosen by its name."""
        if self.topics is None or topic not in self.topics:
            return False
        self._choose(self.topics - {topic})
        return True

    def add_all(self) -> None:
        self._choose(None)

    def remove_all(self) -> None:
        self._choose(frozenset())

    def truncate(self) -> None:
        """Empty the files, and count their bytes from zero again."""
        self._scribe.submit(partial(self._truncate, self._written), 0)

    def expire(self) -> None:
        """End debugging if the time or the bytes are used up."""
        if not self.topics and self.topics is not None:
            return
        is_full = self._written.is_full
        if is_full or self._now() - self._since >= self._time_limit:
            what = "max_bytes" if is_full else "time_limit_s"
            logger.warning("message debugging has ended: limit=%s", what)
            self.remove_all()

    def _choose(self, topics: frozenset[str] | None) -> None:
        if self.topics == frozenset():
            self._written = _Written()
        self._since = self._now()
        self.topics = topics
        logger.info(
            "message debugging: topics=%s",
            "all" if topics is None else ",".join(sorted(topics)) or "none",
        )
        self.on_change()

    # ------------------------------------------------------------ messages

    def received(self, topic: str, taken: Taken, rows: Sequence[int]) -> None:
        """Write messages that were taken from the pool."""
        self._write(0, topic, taken, rows)

    def sent(self, topic: str, taken: Taken, rows: Sequence[int]) -> None:
        """Write messages that were passed to a producer, or sent to a broker."""
        self._write(1, topic, taken, rows)

    def acked(self, topic: str, taken: Taken, rows: Sequence[int]) -> None:
        """Write messages that Kafka acknowledged."""
        self._write(2, topic, taken, rows)

    def _write(self, which: int, topic: str, taken: Taken, rows: Sequence[int]) -> None:
        self.expire()
        if not self.traces(topic) or not self._files:
            return
        file, name, written = self._files[which], bracketed(topic), self._written

        def write() -> None:
            lines = (_line(name, taken.message(row)) for row in rows)
            file.append(self._within_limit(written, lines))

        if not self._scribe.submit(write, taken.size + MESSAGE_BYTES * taken.count):
            self.dropped += len(rows)

    # ------------------------------------------------------------ in the Scribe's thread

    def _within_limit(self, written: _Written, lines: Iterator[bytes]) -> Iterator[bytes]:
        for line in lines:
            if written.is_full or written.nbytes + len(line) > self._byte_limit:
                written.is_full = True
                return
            written.nbytes += len(line)
            yield line

    def _truncate(self, written: _Written) -> None:
        written.nbytes = 0
        for file in self._files:
            file.truncate()


def _line(topic: str, one: Message) -> bytes:
    return (
        f"ts: {one.timestamp_ms} topic: {topic} key: {bracketed(base64_text(one.key))} "
        f"value: {bracketed(base64_text(one.value))}\n"
    ).encode()
