"""ProducerEngine: how much it takes of each topic, and what the producers are told."""

from __future__ import annotations

from typing import Any

from aiokq.fastpath.gateway import Pool
from aiokq.gateway import GatewaySettings
from aiokq.gateway.accounting import Accounting
from aiokq.gateway.engine import TopicState
from aiokq.gateway.producer_engine import (
    LEAST_PIECE,
    PIECE,
    ProducerEngine,
    _compression,
    _producer_options,
)

BUDGET = 4 * 1024 * 1024
"""The budget of an engine whose pool has 8 MiB."""


def engine(room_again: list[TopicState] | None = None) -> ProducerEngine:
    told: list[TopicState] = [] if room_again is None else room_again
    cluster: Any = None
    made = ProducerEngine(
        cluster,
        GatewaySettings.checked({"pool": {"max_bytes": "8 MiB"}}),
        Accounting(Pool(1)),
        spawn=lambda coro, name: coro.close(),
        now_ms=lambda: 0,
        on_room=told.append,
        on_gone=lambda topic: None,
    )
    assert made._budget == BUDGET
    return made


class Held:
    """A Taken of so many bytes."""

    count = 1

    def __init__(self, charge: int) -> None:
        self.charge = charge

    def batches(self, messages: int, size: int) -> list[int]:
        return [1]


def topic(name: str = "orders") -> TopicState:
    return TopicState(name, GatewaySettings().of_topic(name))


def fill(made: ProducerEngine, one: TopicState) -> int:
    """Give the engine messages of a topic while it takes them; return their bytes."""
    taken: Any
    total = 0
    while room := made.room(one):
        taken = Held(min(room, LEAST_PIECE))
        made.accept(one, taken)
        total += taken.charge
    return total


async def test_a_stuck_topic_gets_at_most_half_of_the_budget() -> None:
    """The other half is left for topics that are delivered."""
    made = engine()
    assert BUDGET // 2 - LEAST_PIECE <= fill(made, topic("stuck")) <= BUDGET // 2
    assert made.room(topic("next")) == PIECE


async def test_many_stuck_topics_leave_room_for_each_other_topic() -> None:
    """The more topics are stuck, the less each of them gets."""
    made = engine()
    for n in range(20):
        fill(made, topic(f"stuck-{n}"))
    assert made._bytes <= BUDGET + BUDGET // 2
    assert made.room(topic("healthy")) >= LEAST_PIECE


async def test_a_topic_without_room_is_told_when_there_is_room_again() -> None:
    """In the order in which they were refused, until one takes the room."""
    told: list[TopicState] = []
    made = engine(told)
    stuck, other = topic("stuck"), topic("other")
    fill(made, stuck)
    fill(made, other)
    assert list(made._refused) == [stuck, other]
    made._released(made._lanes[stuck], BUDGET // 4)
    assert told == [stuck, other]
    assert not made._refused


def test_the_engine_sets_what_it_relies_on_and_keeps_the_settings_of_the_file() -> None:
    """Settings of the cluster are given to the Cluster, not to the producers."""
    settings = GatewaySettings.checked(
        {
            "kafka": {"bootstrap_servers": "h:1", "acks": "all", "batch_size": 5000},
            "inputs": [{"type": "unix_stream", "path": "/s", "max_message_bytes": "4 MiB"}],
        }
    )
    options = _producer_options(settings)
    assert "bootstrap_servers" not in options
    assert (options["batch_size"], options["linger_ms"]) == (5000, 0)
    assert options["max_request_size"] > 4 * 1024 * 1024
    assert options["partitioner_ignore_keys"] is True


def test_a_compression_becomes_settings_of_its_producer() -> None:
    """Without a codec there is nothing to set."""
    settings = GatewaySettings.checked(
        {"compression": {"type": "zstd", "level": 5, "min_bytes": 100, "max_ratio": 0.8}}
    )
    assert _compression(settings.compression) == {
        "compression_type": "zstd",
        "compression_zstd_level": 5,
        "compression_min_bytes": 100,
        "compression_max_ratio": 0.8,
    }
    assert _compression(GatewaySettings().compression) == {"compression_type": "none"}
