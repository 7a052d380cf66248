"""Messages of an engine: their memory, and their columns by the rules of the topic."""

from __future__ import annotations

from aiokq.fastpath.gateway import Pool, Taken
from aiokq.gateway import GatewaySettings
from aiokq.gateway.client import encode
from aiokq.gateway.engine import TopicState
from aiokq.gateway.load import LOAD_BYTES, Load, record_columns

NOW = 1_700_000_000_000


def messages(*timestamps: int) -> Taken:
    pool = Pool(1 << 20)
    pool.set_clock(1000, NOW)
    slot = pool.register(b"orders")
    for timestamp in timestamps:
        pool.feed(encode("orders", b"v", timestamp_ms=timestamp))
    taken = pool.take(slot)
    assert taken is not None
    return taken


def topic() -> TopicState:
    one = TopicState("orders", GatewaySettings().of_topic("orders"))
    one.earliest_ms, one.latest_ms = 1000, 10
    return one


def times(taken: Taken, now_ms: int | None, one: TopicState) -> list[int]:
    columns = record_columns(one, taken, partitions=3, usable=None, now_ms=now_ms)
    return [columns.record(n)[3] for n in range(taken.count)]


def test_timestamps_outside_the_limits_of_the_topic_are_replaced() -> None:
    """By the time of arrival; without limits they stay, and on demand all are replaced."""
    given = (NOW - 1001, NOW - 1000, NOW, NOW + 10, NOW + 11)
    taken = messages(*given)
    one = topic()
    assert times(taken, NOW, one) == [NOW, NOW - 1000, NOW, NOW + 10, NOW]
    one.earliest_ms = one.latest_ms = None
    assert times(taken, NOW, one) == list(given)
    assert times(taken, None, one) == [NOW] * 5


def test_the_memory_is_released_with_the_last_outcome() -> None:
    """The messages share a block of memory."""
    taken = messages(NOW, NOW, NOW)
    load = Load(taken)
    assert [load.settle(1), load.settle(0), load.settle(2)] == [0, 0, taken.charge + LOAD_BYTES]
