"""The part of a topic that a partition and the admission of batches use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from aiokq.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    import uuid

    from aiokq.broker.log.config import LogConfig
    from aiokq.broker.log.header_rules import HeaderRules

__all__ = ["ProduceLimits", "ServedTopic"]


class ProduceLimits(NamedTuple):
    """The settings of a topic that apply to producers' batches, computed when settings change.

    Attributes:
        is_internal: whether only the broker and admin clients may write to the topic.
        max_bytes: ``max.message.bytes``.
        rules: the conditions under which the header of a batch is enough to accept it.
    """

    is_internal: bool
    max_bytes: int
    rules: HeaderRules

    @classmethod
    def of(cls, config: LogConfig, *, is_internal: bool) -> ProduceLimits:
        return cls(is_internal, config.max_message_bytes, config.header_rules)


class ServedTopic(Protocol):
    """The part of a topic that its partitions use."""

    @property
    def name(self) -> str: ...
    @property
    def topic_id(self) -> uuid.UUID: ...
    @property
    def config(self) -> LogConfig: ...
    @property
    def limits(self) -> ProduceLimits: ...
    @property
    def is_internal(self) -> bool: ...
