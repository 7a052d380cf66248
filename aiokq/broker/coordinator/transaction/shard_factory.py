"""Factory of the transaction coordinator's shards."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from aiokq.broker.coordinator.transaction.deadlines import ShardLimits
from aiokq.broker.coordinator.transaction.record_types import encode_record
from aiokq.broker.coordinator.transaction.shard import TransactionShard
from aiokq.broker.coordinator.transaction.transitions import Transitions

if TYPE_CHECKING:
    from aiokq.broker.config.settings import BrokerSettings
    from aiokq.broker.coordinator.record import CoordinatorRecord
    from aiokq.broker.coordinator.timers import Timers
    from aiokq.broker.coordinator.transaction.shard import PreparedTransaction
    from aiokq.core.counters import BrokerCounters

__all__ = ["TransactionShardFactory"]


class TransactionShardFactory:
    """The `ShardFactory` of transactions.

    Args:
        version: returns the finalized level of ``transaction.version``.
        prepared: called with each transaction whose markers are to be written.
        counters: metrics, in which ended transactions and fenced producers are counted.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        version: Callable[[], int],
        prepared: Callable[[PreparedTransaction], None],
        counters: BrokerCounters,
    ) -> None:
        self._limits = ShardLimits(
            settings.transactional_id_expiration_ms,
            settings.transaction_remove_expired_transaction_cleanup_interval_ms,
        )
        self._version = version
        self._prepared = prepared
        self._transitions = Transitions(counters)

    def new_shard(self, timers: Timers, leader_epoch: int) -> TransactionShard:
        """Return an empty shard, with the leader epoch as its coordinator epoch."""
        return TransactionShard(
            timers,
            leader_epoch,
            limits=self._limits,
            version=self._version,
            prepared=self._prepared,
            transitions=self._transitions,
        )

    def encode(self, record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
        """Return key and value, in the version for the finalized ``transaction.version``."""
        return encode_record(record, self._version())
