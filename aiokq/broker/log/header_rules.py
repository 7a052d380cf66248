"""The conditions under which a producer's batch is accepted without reading its records.

Source: Kafka ``LogValidator.java``, which reads the records of every batch instead.
Tests: ``tests/unit/broker/log/test_validation.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.core.named_tuple import NamedTuple
from aiokq.records.header import TIMESTAMP_TYPE_MASK

if TYPE_CHECKING:
    from aiokq.records.header import BatchHeader

__all__ = ["HeaderRules"]


class HeaderRules(NamedTuple):
    """The conditions of one topic; see ``LogConfig.header_rules``.

    Attributes:
        keeps_batches: whether the topic's settings let the broker store each batch without reading
            or changing its records.
        after_max_ms: how far the largest timestamp may be ahead of the broker's time.
        max_length: largest value of the header's ``length``, from ``max.message.bytes``.
    """

    keeps_batches: bool
    after_max_ms: int
    max_length: int

    def suffice_for(self, header: BatchHeader, now_ms: int) -> bool:
        """Whether the header is enough to accept the batch and store it unchanged.

        If the result is False, the callers check the settings one by one.
        """
        # Hot path, measured by benchmarks/micro/produce.py. The size is checked here to save a call
        # of check_size.
        keeps_batches, after_max_ms, max_length = self
        return (
            keeps_batches
            and header.length <= max_length
            and not header.attributes & TIMESTAMP_TYPE_MASK
            and header.max_timestamp_ms <= now_ms + after_max_ms
        )
