"""The engine `bruce` with a pool and the accounting of a gateway, but without inputs and router."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from typing import Any

from aiokq import Cluster
from aiokq.core.supervisor import Supervisor
from aiokq.fastpath.gateway import Pool
from aiokq.gateway.accounting import Accounting
from aiokq.gateway.bruce.dispatcher import DispatcherOptions
from aiokq.gateway.bruce.engine import BruceEngine
from aiokq.gateway.bruce.error_tables import ERROR_TABLES
from aiokq.gateway.bruce.options import BruceOptions
from aiokq.gateway.bruce.packing import RequestLimits
from aiokq.gateway.engine import TopicState
from aiokq.gateway.settings_tables import CompressionSettings
from tests.unit.gateway.bruce.messages import rules
from tests.unit.gateway.bruce.messages import wire as message


class BruceWorld:
    """A gateway without inputs and router: a pool, the accounting and the engine.

    Args:
        timestamp_ms: the wall clock.
        engine: BruceOptions, and `table`, `data`, `set_bytes` and `attempts` of the dispatchers.
    """

    def __init__(self, cluster: Cluster, timestamp_ms: Callable[[], int], **engine: Any) -> None:
        self.cluster = cluster
        self.loop = asyncio.get_running_loop()
        self.timestamp_ms = timestamp_ms
        self.pool = Pool(1 << 24)
        self.accounting = Accounting(self.pool)
        self.topics: dict[str, TopicState] = {}
        self.gone: list[str] = []
        self.supervisor = Supervisor("gateway")
        table = ERROR_TABLES[engine.pop("table", "modern")]
        limits = RequestLimits(engine.pop("data", 1 << 20), engine.pop("set_bytes", 1_000_000))
        initial = engine.get("pause_initial", 5.0)
        self.options = BruceOptions(
            DispatcherOptions(table, engine.pop("attempts", 5), limits, initial / 50), **engine
        )
        self.engine = self.new_engine()

    def new_engine(self) -> BruceEngine:
        """Return an engine with the options of this world; it is not started."""
        return BruceEngine(
            self.cluster,
            self.options,
            self.accounting,
            spawn=lambda coro, name: self.supervisor.spawn(coro, name=name),
            guarded=partial(self.supervisor.guarded, name="engine"),
            now_ms=self.timestamp_ms,
            on_room=self.pump,
            on_gone=lambda topic: self.gone.append(topic.name),
            random=Random(1),
        )

    def topic(self, name: str, *, compression: str = "none", **batching: Any) -> TopicState:
        topic = self.topics.get(name)
        if topic is None:
            topic = self.topics[name] = TopicState(name, rules(**batching))
            compressed = {"compression": CompressionSettings(type=compression)}
            topic.rules = topic.rules.model_copy(update=compressed)
            limits = {
                f"batch_{kind}": batching[given]
                for kind, given in (("ms", "time_ms"), ("messages", "messages"), ("bytes", "bytes"))
                if given in batching and batching.get("mode", "per_topic") == "per_topic"
            }
            topic.slot = self.pool.register(name.encode(), **limits)
            self.accounting.registered(topic)
        return topic

    def send(self, topic: str, *values: bytes, key: int | None = None) -> None:
        """Receive messages, and pass what is due to the engine."""
        state = self.topic(topic)
        for value in values:
            self.feed(topic, value, key=key)
        self.pump(state)

    def feed(
        self, topic: str, value: bytes, *, key: int | None = None, key_bytes: bytes = b""
    ) -> None:
        """Receive a message; `key` makes it a PartitionKey message."""
        self.topic(topic)
        stamp = self.timestamp_ms()
        self.pool.set_clock(int(self.loop.time() * 1000), stamp)
        self.pool.feed(message(topic, value, partition_key=key, key=key_bytes, timestamp_ms=stamp))

    def pump(self, topic: TopicState) -> None:
        self.pool.due()
        while self.engine.room(topic):
            taken = self.pool.take(topic.slot)
            if taken is None:
                return
            self.engine.accept(topic, taken)

    async def drained(self) -> None:
        await self.engine.drain()
        self.balance()

    def balance(self) -> None:
        """Check that the numbers agree, and that no memory is lost."""
        total = self.accounting.in_all()
        known = total.acked + sum(total.discarded)
        assert total.received == known + total.in_flight
        held = sum(sum(each) for each in self.engine.held().values())
        assert total.in_flight == held
        if not held:
            assert self.pool.counts().used_bytes == 0

    def totals(self) -> tuple[int, dict[str, int], int]:
        """Return the numbers of acknowledged, discarded and possibly doubled messages."""
        total = self.accounting.in_all()
        return total.acked, total.document()["discarded"], total.possible_duplicates  # type: ignore[return-value]


FAST = {"pause_initial": 0.2, "min_pause": 0.1, "restart_delay": 1.0}


@asynccontextmanager
async def engine(servers: str, *topics: str, **options: Any) -> AsyncIterator[BruceWorld]:
    async with asyncio.timeout(60), Cluster(servers, reconnect_backoff_ms=50) as cluster:
        await cluster.refresh(*topics)
        world = BruceWorld(cluster, lambda: time.time_ns() // 1_000_000, **{**FAST, **options})
        async with world.supervisor:
            await world.engine.start()
            yield world
            await world.drained()
            await world.engine.close()
        assert world.supervisor.failed is None
