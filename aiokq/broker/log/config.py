"""The values of a topic's settings, with types and defaults."""

from __future__ import annotations

import functools
from typing import Final

from aiokq.broker.log.header_rules import HeaderRules
from aiokq.core.named_tuple import NamedTuple
from aiokq.records.header import LOG_OVERHEAD

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1


class _Settings(NamedTuple):
    """The topic settings that a log uses, with Kafka's defaults; `LogConfig` adds the methods."""

    cleanup_policy: tuple[str, ...] = ("delete",)
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    delete_retention_ms: int = 86_400_000
    file_delete_delay_ms: int = 60_000
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    index_interval_bytes: int = 4096
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    max_compaction_lag_ms: int = LONG_MAX
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    segment_bytes: int = 1_073_741_824
    segment_index_bytes: int = 10_485_760
    segment_jitter_ms: int = 0
    segment_ms: int = 604_800_000
    unclean_leader_election_enable: bool = False


class LogConfig(_Settings):
    """Kafka's topic settings by name, with ``_`` instead of ``.``; the defaults are Kafka's.

    Ranges and meanings are in ``aiokq.broker.metadata.configs.topic_configs``.
    """

    @property
    def compacted(self) -> bool:
        """Whether ``cleanup.policy`` includes ``compact``."""
        return "compact" in self.cleanup_policy

    @property
    def only_compacted(self) -> bool:
        """Whether ``cleanup.policy`` is ``compact`` without ``delete``."""
        return self.compacted and "delete" not in self.cleanup_policy

    @property
    def log_append_time(self) -> bool:
        """Whether the broker's time replaces the timestamps of records."""
        return self.message_timestamp_type == "LogAppendTime"

    @functools.cached_property
    def header_rules(self) -> HeaderRules:
        """The conditions under which the header is enough to accept a batch unchanged."""
        keeps_batches = (
            self.compression_type == "producer"
            and self.message_timestamp_type == "CreateTime"
            and self.message_timestamp_before_max_ms == LONG_MAX
            and not self.compacted
        )
        return HeaderRules(
            keeps_batches,
            self.message_timestamp_after_max_ms,
            self.max_message_bytes - LOG_OVERHEAD,
        )
