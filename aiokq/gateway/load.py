"""`Load`: the messages that an engine has taken together, and their conversion to columns.

Tests: tests/unit/gateway/test_load.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aiokq import RecordColumns

if TYPE_CHECKING:
    from aiokq.fastpath.gateway import Taken
    from aiokq.gateway.engine import TopicState

__all__ = ["LOAD_BYTES", "Load", "record_columns"]

LOAD_BYTES: Final = 6 * 1024
"""Bytes of the pool that a `Load` is charged beside its messages.

This is the memory of the objects that the engine and its client create for it, as measured with
loads of few messages. The engine charges it, and it is released with the last message.
"""


class Load:
    """The messages of one `accept`, and the number of those without an outcome.

    Attributes:
        taken: the messages.
    """

    __slots__ = ("_left", "taken")

    def __init__(self, taken: Taken) -> None:
        self.taken = taken
        self._left = taken.count

    def settle(self, count: int) -> int:
        """Count `count` outcomes; return the bytes of pool memory to release.

        The memory of a `Taken` is freed as a whole, so only the last outcome releases memory.
        """
        self._left -= count
        return 0 if self._left else self.taken.charge + LOAD_BYTES


def record_columns(
    topic: TopicState,
    taken: Taken,
    *,
    partitions: int,
    usable: bytes | None,
    now_ms: int | None,
) -> RecordColumns:
    """Convert messages to columns by the rules of their topic.

    Args:
        partitions: number of partitions of the topic; 0 if it is unknown.
        usable: a byte per partition; see `Taken.columns`.
        now_ms: the current time, for the limits of the topic on timestamps. None replaces all
            timestamps by the times of arrival.
    """
    limits: dict[str, Any] = {}
    if now_ms is None:
        limits = {"earliest_ms": 1, "latest_ms": 0}  # no timestamp is within these limits
    else:
        if topic.earliest_ms is not None:
            limits["earliest_ms"] = max(0, now_ms - topic.earliest_ms)
        if topic.latest_ms is not None:
            limits["latest_ms"] = now_ms + topic.latest_ms
    columns = taken.columns(
        partitions=partitions,
        usable=usable,
        null_keys=topic.rules.empty_key_null,
        null_values=topic.rules.empty_value_null,
        **limits,
    )
    return RecordColumns(taken.count, **columns)
