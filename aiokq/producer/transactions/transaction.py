"""Transaction: one transaction of a producer, as an async context manager."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from aiokq.core.errors import KafkaError, TransactionAborted
from aiokq.core.types import GroupMetadata, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
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
    """How a transaction ended."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"
    """Nobody answered whether the transaction was committed: see `CommitOutcomeUnknown`."""


class OffsetSource(Protocol):
    """A consumer whose offsets can be part of a transaction."""

    def offsets_for_transaction(
        self,
    ) -> tuple[Mapping[TopicPartition, OffsetAndMetadata], GroupMetadata]:
        """Return the offsets that `commit()` would commit, and the member that owns them.

        Raises:
            ConfigError: the consumer commits automatically, has no group, or is read in several
                streams without ``ack_mode="explicit"``.
            CommitFailed: partitions with records that were handed over are lost, or the consumer is
                outside its group.
        """
        ...


class Transaction:
    """One transaction; `Producer.transaction` returns it.

    ::

        async with producer.transaction() as txn:
            await producer.send("totals", value)
            await txn.send_offsets(consumer)

    The regular end of the block commits. An exception in the block, or its cancellation, aborts. A
    block that calls `commit_transaction()` or `abort_transaction()` itself ends with that.
    """

    __slots__ = ("_check_open", "_transactions", "ended_by_call", "has_begun", "outcome_now")

    def __init__(self, transactions: Transactions, check_open: Callable[[], None]) -> None:
        self._transactions = transactions
        self._check_open = check_open
        self.has_begun = False
        self.ended_by_call = False
        """Whether the program ended it by `commit_transaction` or `abort_transaction`."""
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

        Args:
            offsets: a consumer, whose offsets are those that its `commit()` would commit: after the
                record that was handed over last, or with explicit acknowledgement up to the first
                record that is not acknowledged. Or offsets by partition, as `Consumer.commit`
                takes them.
            group_metadata: `Consumer.group_metadata`, or the id of a group without members; only
                with offsets by partition.

        Raises:
            ConfigError: the consumer commits automatically, has no group, or is read in several
                streams without ``ack_mode="explicit"``.
            CommitFailed: the consumer has lost partitions whose records it handed over, or is
                outside its group: abort the transaction.
            TransactionAborted: the transaction can only be aborted; the cause says why, for example
                RequestTimeout if the offsets were not accepted within max_block_ms. It also can
                only be aborted if this call is cancelled.
            ProducerFenced, BrokerError: the producer cannot go on, see
                `Producer.commit_transaction`.
            CommitOutcomeUnknown: the transaction was committed before, and nobody answered.
            Closed: the producer was closed.
        """
        self._check_open()
        await self._transactions.send_offsets(self, offsets, group_metadata)

    async def outcome(self) -> TransactionOutcome:
        """Return how the transaction ended; wait while it is being ended.

        Raises:
            ConfigError: the transaction is still open, or has not begun.
            WrongLoop: another event loop than the producer's, or a forked process.
        """
        return await self._transactions.outcome(self)


def forbid_commit(transaction: Transaction, cause: KafkaError) -> None:
    """Let a transaction only be aborted from now on, also if its commit was called.

    A commit that the coordinator may have carried out already goes on.
    """
    transaction._transactions.forbid_commit(transaction, cause)


async def commit_with_offsets(
    transaction: Transaction,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    member: GroupMetadata,
) -> None:
    """Commit a transaction together with offsets, which travel while its records are delivered.

    If the call is cancelled, the commit goes on.

    Raises:
        TransactionAborted: the records or the offsets were refused; nothing was committed.
        others: see `Producer.commit_transaction`.
    """
    await transaction._transactions.commit_with_offsets(transaction, offsets, member)
