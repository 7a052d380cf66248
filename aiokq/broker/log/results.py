"""Owns what a log answers: the result of an append, and of a read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from aiokq.core.files import FileRange

if TYPE_CHECKING:
    from aiokq.broker.log.transaction_index import AbortedTransaction


class AppendResult(NamedTuple):
    """What became of an append.

    Attributes:
        base_offset: of its first record; of the original's if it was a duplicate.
        log_append_time_ms: the time stamped on the records; -1 with CreateTime.
        duplicate: the same batch was appended before, nothing was written.
    """

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool = False


class LogRead(NamedTuple):
    """Whole batches of the log, as ranges of its files.

    Attributes:
        fragments: to be sent in order; the first batch holds the offset asked for or a later one.
        size: bytes in all of them.
        aborted_transactions: whose records a reader of committed ones leaves out, if it asked.
    """

    fragments: list[FileRange]
    size: int
    aborted_transactions: Sequence[AbortedTransaction] = ()
