"""LineResults: the outcome of each line of `aiokq produce`, counted and printed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aiokq.cli.error_text import explain
from aiokq.core.errors import KafkaError

if TYPE_CHECKING:
    from aiokq.cli.output import Output
    from aiokq.fastpath.produce import RecordMetadata

__all__ = ["LineResults"]

COMPLAINTS: Final = 10
"""Maximum number of messages that show failed lines; further failures are only counted."""


@dataclass
class _Failures:
    """Failures with the same reason, with no other failure between them.

    Lines between them may have been delivered.
    """

    reason: str
    first: int
    last: int
    count: int = 1

    def __str__(self) -> str:
        if self.count == 1:
            where = f"line {self.first}"
        elif self.count == self.last - self.first + 1:
            where = f"lines {self.first} to {self.last}"
        else:
            where = f"{self.count} lines from {self.first} to {self.last}"
        return f"{where}: {self.reason}"


class LineResults:
    """Counts and prints the outcomes of lines; successive equal failures are printed once.

    Attributes:
        out: prints offsets, failures and the summary.
        delivered: number of acknowledged records.
        failed: number of lines that were not delivered.
        interrupted: false if all input was read and every record has an outcome.
        seconds: duration of the sending; None if the sending did not begin, for example because
            the topic does not exist.
    """

    def __init__(self, topic: str, out: Output, *, show_offsets: bool) -> None:
        self.out = out
        self.delivered = 0
        self.failed = 0
        self.interrupted = True
        self._topic = topic
        self._show_offsets = show_offsets
        self._bytes = 0
        self.seconds: float | None = None
        self._failures: _Failures | None = None
        self._complaints = 0
        self._untold = 0

    def deliver(self, metadata: RecordMetadata, size: int) -> None:
        """Count an acknowledged record, and print its offset if offsets are to be printed.

        Args:
            size: number of bytes in key and value.
        """
        self.delivered += 1
        self._bytes += size
        if not self._show_offsets:
            return
        if self.out.as_json:
            self.out.json_line(
                {
                    "topic": metadata.topic,
                    "partition": metadata.partition,
                    "offset": metadata.offset,
                    "timestamp_ms": metadata.timestamp_ms,
                }
            )
        else:
            self.out.line(f"{metadata.topic}-{metadata.partition}@{metadata.offset}")

    def fail(self, number: int, error: BaseException) -> None:
        """Count a line that was not delivered; `number` is the line number, from 1."""
        self.failed += 1
        if isinstance(error, KafkaError):
            reason = explain(error)
        else:
            reason = str(error) if isinstance(error, ValueError) else repr(error)
        if self._failures is not None and self._failures.reason == reason:
            self._failures.last = number
            self._failures.count += 1
        else:
            self.complain()
            self._failures = _Failures(reason, number, number)

    def complain(self) -> None:
        """Print the failures that were not printed yet.

        After `COMPLAINTS` printed messages, the failures are only counted.
        """
        failures, self._failures = self._failures, None
        if failures is None:
            return
        if self._complaints == COMPLAINTS:
            self._untold += failures.count
            return
        self._complaints += 1
        self.out.note(f"aiokq: {failures}")

    def print_summary(self) -> None:
        """Print the remaining failures and, if sending began, how many records were delivered."""
        self.complain()
        if self.seconds is None:
            return
        if self._untold:
            self.out.note(f"aiokq: and {self._untold} more lines failed")
        if self.out.as_json:
            self.out.json_line(
                {
                    "topic": self._topic,
                    "delivered": self.delivered,
                    "failed": self.failed,
                    "bytes": self._bytes,
                    "seconds": round(self.seconds, 3),
                    "interrupted": self.interrupted,
                }
            )
        else:
            failed = f", {self.failed} failed" if self.failed else ""
            plural = "" if self.delivered == 1 else "s"
            self.out.line(
                f"{self.delivered} record{plural} ({self._bytes} bytes) delivered to "
                f"{self._topic} in {self.seconds:.2f} s{failed}"
            )
        self.out.flush()
