"""SentOffsets: commits offsets of a group as part of the current transaction.

Records and offsets both add partitions to a transaction. If a producer adds partitions while other
partitions are being added, Apache Kafka refuses one of the requests with a retriable error. The
retry takes longer than waiting for the records. Offsets are therefore sent after the records that
were accepted before them. There is one exception: from `transaction.version` 2 on, commits of
`process()` send offsets and records together until a broker has refused records or offsets.

Source: KIP-447, Kafka ``TransactionManager.java``, TxnOffsetCommitHandler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from aiokq.core.errors import Closed, KafkaError, RequestTimeout
from aiokq.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokq.core.types import GroupMetadata, OffsetAndMetadata, TopicPartition
    from aiokq.producer.transactions.epochs import Epochs
    from aiokq.producer.transactions.transaction_requests import TransactionRequests
    from aiokq.producer.transactions.transaction_state import TransactionState

__all__ = ["GroupOffsets", "SentOffsets"]


class GroupOffsets(NamedTuple):
    """Offsets to commit, and the member of the group that commits them."""

    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    member: GroupMetadata


class SentOffsets:
    """Sends offsets of groups as part of transactions.

    `len()` returns the number of calls of `begin` that have no result yet.

    Attributes:
        may_overlap: whether a commit may send its offsets while records are in flight; False once
            an attempt to send records or offsets has failed.

    Args:
        max_block: seconds that one call of `begin` may take: the wait for the records that were
            accepted before, and the requests.
        refused: called with an API and its error; processes the error, and returns the error for
            the caller of `begin`.
        spawn: starts a task that belongs to the producer.
    """

    def __init__(
        self,
        state: TransactionState,
        epochs: Epochs,
        requests: TransactionRequests,
        max_block: float,
        refused: Callable[[str, KafkaError], KafkaError],
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
    ) -> None:
        self._state = state
        self._epochs = epochs
        self._requests = requests
        self._max_block = max_block
        self._refused = refused
        self._spawn = spawn
        self.may_overlap = True
        self._on_their_way: set[asyncio.Future[KafkaError | None]] = set()

    def __len__(self) -> int:
        return len(self._on_their_way)

    def begin(self, offsets: GroupOffsets) -> asyncio.Future[KafkaError | None]:
        """Start a task that sends offsets once the records accepted so far are delivered.

        Returns:
            A future whose result is None if the offsets were accepted, or else an error.

        Raises:
            Closed: the producer was closed.
        """
        sent: asyncio.Future[KafkaError | None] = asyncio.get_running_loop().create_future()
        task = self._spawn(self._send_later(offsets, sent), "offsets of a transaction")
        self._on_their_way.add(sent)

        def ended(task: asyncio.Task[None]) -> None:
            self._on_their_way.discard(sent)
            self._state.advanced()
            if sent.done():
                return
            if task.cancelled():  # a task that is cancelled before its first step sets no result
                sent.set_result(Closed("the producer was closed"))
            else:
                failed = Closed(f"the producer failed: {task.exception()!r}")
                failed.__cause__ = task.exception()
                sent.set_result(failed)

        task.add_done_callback(ended)
        return sent

    async def answered(self) -> None:
        """Wait until each call of `begin` so far has a result."""
        if self._on_their_way:
            await asyncio.wait(self._on_their_way)

    async def _send_later(
        self, offsets: GroupOffsets, sent: asyncio.Future[KafkaError | None]
    ) -> None:
        deadline = asyncio.get_running_loop().time() + self._max_block
        try:
            refusal = await self._delivered(deadline)
        except KafkaError as error:
            refusal = self._refused("TxnOffsetCommit", error)
        sent.set_result(refusal or await self.send(offsets, deadline))

    async def send(self, offsets: GroupOffsets, deadline: float) -> KafkaError | None:
        """Send offsets of a group as part of the current transaction.

        Args:
            deadline: the loop's time at which the requests must be answered.

        Returns:
            None if the offsets were accepted, or else an error.
        """
        state, epochs = self._state, self._epochs
        now = asyncio.get_running_loop().time
        try:
            if not state.bumps_epochs:
                await self._requests.add_offsets(
                    epochs.producer,
                    offsets.member.group_id,
                    timeout=deadline - now(),
                    on_lost=epochs.lose_addition,
                )
            state.started = True
            attempts = await self._requests.commit_offsets(
                epochs.producer,
                offsets.offsets,
                offsets.member,
                adds=state.bumps_epochs,
                timeout=deadline - now(),
                on_lost=epochs.lose_addition,
            )
        except KafkaError as error:
            return self._refused("TxnOffsetCommit", error)
        self.may_overlap = self.may_overlap and attempts == 1
        return None

    async def _delivered(self, deadline: float) -> KafkaError | None:
        """Flush the records of the transaction so far.

        Returns:
            The error with which offsets are refused now; None if they can be sent.

        Raises:
            RequestTimeout: the records were not delivered by the deadline.
        """
        try:
            async with asyncio.timeout_at(deadline):
                await self._state.delivery.flush()
        except TimeoutError:
            raise RequestTimeout(
                "the records before the offsets were not acknowledged within max_block_ms"
            ) from None
        return self._state.refusal
