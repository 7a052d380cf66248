"""Transaction: one transaction of a producer, as an async context manager."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from aiokq.core.errors import KafkaError, TransactionAborted
from aiokq.core.types import GroupMetadata, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from aiokq.producer.transactions.transaction_end import Ending
    from aiokq.producer.transactions.transactions import Transactions

P = TypeVar("P", bound=tuple[str, int])

__all__ = [
    "OffsetSource",
    "Transaction",
    "TransactionOutcome",
    "commit_with_offsets",
    "forbid_commit",
]


class TransactionOutcome(Enum):
    """The outcomes of a transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"
    """A commit was sent, but not answered: see `CommitOutcomeUnknown`."""


class OffsetSource(Protocol):
    """A consumer whose offsets can be part of a transaction."""

    def offsets_for_transaction(
        self,
    ) -> tuple[Mapping[TopicPartition, OffsetAndMetadata], GroupMetadata]:
        """Return the offsets that `commit()` would commit, and the group member that commits.

        Raises:
            ConfigError: the consumer commits automatically, has no group, or is read in several
                streams without ``ack_mode="explicit"``.
            CommitFailed: the consumer has lost partitions whose records it has returned, or is
                outside its group.
        """
        ...


class Transaction:
    """One transaction; `Producer.transaction` returns it.

    ::

        async with producer.transaction() as txn:
            await producer.send("totals", value)
            await txn.send_offsets(consumer)

    The transaction is committed when the block ends normally, and aborted when the block raises an
    exception or is cancelled. If the block calls `commit_transaction()` or `abort_transaction()`
    itself, the end of the block does nothing more.
    """

    __slots__ = ("_check_open", "_transactions", "ended_by_call", "has_begun", "outcome_now")

    def __init__(self, transactions: Transactions, check_open: Callable[[], None]) -> None:
        self._transactions = transactions
        self._check_open = check_open
        self.has_begun = False
        self.ended_by_call = False
        """Whether `commit_transaction` or `abort_transaction` was called for the transaction."""
        self.outcome_now: TransactionOutcome | None = None

    async def __aenter__(self) -> Self:
        self._check_open()
        await self._transactions.begin(self)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.ended_by_call:
            return
        if error is None:
            if self.outcome_now is not None:
                raise TransactionAborted("the producer was closed before the transaction ended")
            await self._transactions.end(self, committed=True)
            return
        if self.outcome_now is not None:
            return
        try:
            await self._transactions.end(self, committed=False)
        except Exception as failure:  # noqa: BLE001 - the error of the block is raised
            error.add_note(f"the transaction could not be aborted: {failure!r}")

    def __repr__(self) -> str:
        state = "open" if self.outcome_now is None else self.outcome_now.value
        return f"<Transaction {self._transactions.transactional_id!r} {state}>"

    async def send_offsets(
        self,
        offsets: OffsetSource | Mapping[P, int | OffsetAndMetadata],
        group_metadata: GroupMetadata | str | None = None,
        /,
    ) -> None:
        """Commit the offsets of a group as part of the transaction.

        The offsets are sent once the records that were accepted before the call are delivered;
        these records do not linger. If the call is cancelled, the transaction can only be aborted.

        Args:
            offsets: a consumer, or offsets by partition as `Consumer.commit` takes them. With a
                consumer, the offsets are those that its `commit()` would commit: per partition, the
                offset after the last returned record, or with explicit acknowledgement, the offset
                of the first record that is not acknowledged.
            group_metadata: the result of `Consumer.group_metadata()`, or the id of a group without
                members. Required with offsets by partition; not allowed with a consumer.

        Raises:
            ConfigError: the transaction is not open; or the consumer commits automatically, has no
                group, or is read in several streams without ``ack_mode="explicit"``; or an offset
                is out of range.
            TypeError: an argument is missing, or has the wrong type.
            CommitFailed: the consumer has lost partitions whose records it has returned, or is
                outside its group: abort the transaction.
            TransactionAborted: the transaction can only be aborted. The reason is the error's
                ``__cause__``, for example RequestTimeout if the records before the call were not
                delivered, or the offsets not accepted, within max_block_ms.
            ProducerFenced, BrokerError: the producer can only be closed, see
                `Producer.commit_transaction`.
            CommitOutcomeUnknown: a commit of the transaction was sent before, and not answered.
            Closed: the producer was closed.
            WrongLoop: the call was made outside of the producer's event loop, or after a fork.
        """
        self._check_open()
        await self._transactions.send_offsets(self, offsets, group_metadata)

    async def outcome(self) -> TransactionOutcome:
        """Return the outcome of the transaction; wait while it is being ended.

        Raises:
            ConfigError: the transaction is still open, or has not begun.
            WrongLoop: the call was made outside of the producer's event loop, or after a fork.
        """
        return await self._transactions.outcome(self)


def forbid_commit(transaction: Transaction, cause: KafkaError) -> None:
    """Make a commit of the transaction fail from now on, even if the commit has begun.

    If the coordinator may have carried out the commit already, the commit continues.
    """
    transaction._transactions.forbid_commit(transaction, cause)


def commit_with_offsets(
    transaction: Transaction,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    member: GroupMetadata,
) -> Ending:
    """Begin to send offsets as part of a transaction, and to commit it.

    The offsets are sent while the records of the transaction are delivered, or afterwards, see
    `SentOffsets`.

    Returns:
        The end of the transaction. Awaiting it raises the errors of `Producer.commit_transaction`,
        for example TransactionAborted if the records or the offsets were refused. If the wait is
        cancelled, the commit continues.

    Raises:
        TransactionAborted: the transaction can only be aborted.
        others: see `Transaction.send_offsets`.
    """
    return transaction._transactions.commit_with_offsets(transaction, offsets, member)
