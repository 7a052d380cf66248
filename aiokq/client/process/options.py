"""The options of `process()`, checked, and its report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from aiokq.core import limits
from aiokq.core.errors import ConfigError
from aiokq.core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Guarantee", "OrderBy", "ProcessOptions", "ProcessReport"]

Guarantee = Literal["exactly_once", "at_least_once"]
"""Whether each record's results are written exactly once, or possibly again after a failure."""

OrderBy = Literal["partition", "key"]
"""Whether the records of each partition, or of each key, are handled one after the other."""

GUARANTEES: Final = ("exactly_once", "at_least_once")
ORDERS: Final = ("partition", "key")

HANDLER_SHARE: Final = 0.8
"""The fraction of the transaction timeout that handlers may take; the rest is for the commit."""


@frozen
class ProcessOptions:
    """The options of one call; see `Cluster.process`."""

    guarantee: Guarantee
    batch: bool
    concurrency: int
    order_by: OrderBy
    transaction_timeout_ms: int
    commit_interval_ms: int
    max_records: int
    retries: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    dead_letter_topic: str | None

    def check(self) -> None:
        """Check the options.

        Raises:
            ConfigError: an option is out of range, or conflicts with another.
            TypeError: a number is not an int.
        """
        for name, value, known in (
            ("guarantee", self.guarantee, GUARANTEES),
            ("order_by", self.order_by, ORDERS),
        ):
            if value not in known:
                raise ConfigError(f"{name} must be one of {', '.join(known)}, not {value!r}")
        for name, number, least in (
            ("concurrency", self.concurrency, 1),
            ("transaction_timeout_ms", self.transaction_timeout_ms, 1),
            ("commit_interval_ms", self.commit_interval_ms, 0),
            ("max_records", self.max_records, 1),
            ("retries", self.retries, 0),
            ("retry_backoff_ms", self.retry_backoff_ms, 0),
            ("retry_backoff_max_ms", self.retry_backoff_max_ms, 0),
        ):
            limits.count(number, name, least, error=ConfigError)
        if self.batch and self.concurrency > 1 and self.order_by == "key":
            raise ConfigError("batches hold records of many keys: order_by='key' needs batch=False")
        if (
            self.guarantee == "exactly_once"
            and self.commit_interval_ms >= self.transaction_timeout_ms * HANDLER_SHARE
        ):
            raise ConfigError(
                f"commit_interval_ms={self.commit_interval_ms} leaves no time for the commit: it "
                f"must be less than {HANDLER_SHARE:.0%} of transaction_timeout_ms="
                f"{self.transaction_timeout_ms}"
            )


@frozen
class ProcessReport:
    """The report of one call of `process()`.

    Attributes:
        records: records whose results or dead letters are committed.
        outputs: results and dead letters of these records.
        commits: transactions, or commits of offsets with at_least_once.
        aborts: number of times that the results since the last commit were aborted; their records
            are then read again.
        dead_letters: records that were sent to the dead-letter topic.
    """

    records: int
    outputs: int
    commits: int
    aborts: int
    dead_letters: int


def topics_of(topics: Sequence[str] | str) -> tuple[str, ...]:
    """Return the topics to read.

    Raises:
        ConfigError: `topics` is empty.
    """
    found = (topics,) if isinstance(topics, str) else tuple(topics)
    if not found:
        raise ConfigError("process() needs at least one topic to read")
    return found
