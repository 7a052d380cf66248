"""`Delivery`: the Cluster, engine and dead letters of a gateway, which a reload may replace.

Tests: tests/fault/test_gateway_reload.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final

from aiokq import Cluster, ClusterSettings
from aiokq.errors import ConfigError
from aiokq.gateway.dead_letters import DeadLetters
from aiokq.gateway.producer_engine import ProducerEngine
from aiokq.gateway.reload import largest_limit

if TYPE_CHECKING:
    from aiokq.gateway.accounting import Accounting
    from aiokq.gateway.engine import Engine, Guard, TopicState
    from aiokq.gateway.settings import GatewaySettings
    from aiokq.metrics import HasClientCounters

__all__ = ["CHECK_SECONDS", "Delivery", "new_cluster"]

CHECK_SECONDS: Final = 0.02
"""Seconds between two checks whether all messages are delivered."""


class Delivery:
    """Delivers the messages that were taken from the pool. Context: loop.

    Args:
        accounting: gets the outcome of each message.
        spawn: starts a task that belongs to the gateway.
        guarded: wraps a callback of the loop, so that its exceptions end the gateway.
        on_room: called with a topic for which the engine has room again.
        on_gone: called with a topic that no longer exists.
        on_switched: called when `switching` has ended, even if the old engine stays.

    Attributes:
        cluster: the Cluster of the engine; it need not have metadata.
        clients: `cluster` and the clients before it, whose counters `/metrics` has.
        engine: the engine. The gateway starts the first one, and `switch` each later one.
        largest: size of the largest message that the engine and the dead letters were made for.
        dead_letters: writes messages that cannot be delivered to the dead letter topic.
        switching: whether the engine is being replaced; no messages are passed to it meanwhile.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        accounting: Accounting,
        *,
        cluster: Cluster,
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
        guarded: Guard,
        on_room: Callable[[TopicState], None],
        on_gone: Callable[[TopicState], None],
        on_switched: Callable[[], None],
    ) -> None:
        self._accounting = accounting
        self._spawn = spawn
        self._guarded = guarded
        self._on_room = on_room
        self._on_gone = on_gone
        self._on_switched = on_switched
        self.switching = False
        self.cluster = cluster
        self.clients: Sequence[HasClientCounters] = (cluster,)
        self.largest = largest_limit(settings)
        self._use_letters(settings)
        self.engine: Engine = self._new_engine(settings, cluster)

    def configure(self, settings: GatewaySettings) -> None:
        """Apply the options that do not need a new engine."""
        self.dead_letters.configure(settings)
        if settings.delivery.engine == "bruce":
            from aiokq.gateway.bruce.engine import BruceEngine
            from aiokq.gateway.bruce.options import BruceOptions

            if isinstance(self.engine, BruceEngine):
                self.engine.configure(BruceOptions.of(settings))
        elif isinstance(self.engine, ProducerEngine):
            self.engine.configure(settings)
        self.engine.reconfigure()

    async def switch(
        self, before: GatewaySettings, settings: GatewaySettings, accepting: Callable[[], bool]
    ) -> None:
        """Replace the engine, and the Cluster if [kafka] has changed.

        Only [kafka] and [delivery] of `settings` are used. `configure` applies the other tables
        when the inputs are changed, too. If the inputs cannot be changed, the old ones stay, so
        the engine takes the largest message of both.

        Args:
            accepting: returns whether the gateway still accepts messages; False if it is closing.

        Raises:
            ConfigError: the settings are wrong, or messages in flight are not delivered in time.
                The old engine stays in use.
        """
        old_cluster, old_engine, old_letters = self.cluster, self.engine, self.dead_letters
        cluster = old_cluster
        used = before.model_copy(
            update={
                "kafka": settings.kafka,
                "delivery": settings.delivery,
                "inputs": (*before.inputs, *settings.inputs),
            }
        )
        async with contextlib.AsyncExitStack() as undo:
            if settings.kafka != before.kafka:
                cluster = new_cluster(settings)
                undo.push_async_callback(cluster.close)
                await cluster.start()
            engine = self._new_engine(used, cluster)
            undo.push_async_callback(engine.close)
            await engine.start()
            self.switching = True
            undo.callback(self._end_switch)
            seconds = settings.delivery.shutdown_max_delay_ms / 1000
            undo.callback(old_letters.resume)
            old_letters.suspend()
            if type(engine) is type(old_engine):
                # Messages that are not in flight go to the new brokers: the old ones may refuse a
                # password that the reload replaces.
                undo.callback(old_engine.resume)
                old_engine.suspend()
                delivered = await self._landed(seconds, accepting, old_engine)
                if delivered:
                    engine.adopt(old_engine)
            else:
                delivered = await self._delivered(seconds, accepting)
            if not delivered:
                raise ConfigError(
                    f"[kafka] or the engine has changed, and messages that are under way were not "
                    f"delivered within {seconds:g} s; nothing was changed"
                )
            undo.pop_all()
        self.cluster, self.engine = cluster, engine
        if cluster is not old_cluster:
            self.clients = (*self.clients, cluster)
        self.largest = largest_limit(used)
        self._use_letters(used)
        self.dead_letters.adopt(old_letters)
        self._end_switch()
        await old_letters.close(0.0)
        await old_engine.close()
        if cluster is not old_cluster:
            await old_cluster.close()
            self._keep_counts(old_cluster)

    async def close(self) -> None:
        """End the engine; messages without an outcome are discarded, with reason shutdown."""
        await self.engine.close()

    async def _landed(self, seconds: float, accepting: Callable[[], bool], engine: Engine) -> bool:
        """Wait until a suspended engine and the dead letters are sending nothing.

        Return False if the time is up, or if the gateway is closing.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while self.dead_letters.sending or engine.sending:
            if loop.time() >= deadline or not accepting():
                return False
            await asyncio.sleep(CHECK_SECONDS)
        return True

    async def _delivered(self, seconds: float, accepting: Callable[[], bool]) -> bool:
        """Wait until the engine holds no messages, and no dead letters are being sent.

        Return False if the time is up, or if the gateway is closing.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        engine = self.engine
        while self.dead_letters.sending or engine.held():
            if loop.time() >= deadline or not accepting():
                return False
            if not engine.held():  # `drain` would return at once
                await asyncio.sleep(CHECK_SECONDS)
                continue
            drained = self._spawn(engine.drain(), "drain")
            await asyncio.wait([drained], timeout=CHECK_SECONDS)
            drained.cancel()
        return True

    def _keep_counts(self, old: Cluster) -> None:
        """Add the counts of a closed cluster to those of the same client id."""
        others = [one for one in self.clients if one is not old]
        for one in others:
            if isinstance(one, _EndedClient) and one.counters.name == old.counters.name:
                old.counters.moved(one.counters)
                self.clients = others
                return
        self.clients = (_EndedClient(old), *others)

    def _end_switch(self) -> None:
        """Pass messages to the engine again."""
        self.switching = False
        self.engine.reconfigure()
        self._on_switched()

    def _use_letters(self, settings: GatewaySettings) -> None:
        self.dead_letters = DeadLetters(
            self.cluster, settings, self._accounting, spawn=self._spawn, now_ms=_now_ms
        )
        self._accounting.dead_letters = self.dead_letters

    def _new_engine(self, settings: GatewaySettings, cluster: Cluster) -> Engine:
        if settings.delivery.engine == "bruce":
            from aiokq.gateway.bruce.engine import BruceEngine
            from aiokq.gateway.bruce.options import BruceOptions

            return BruceEngine(
                cluster,
                BruceOptions.of(settings),
                self._accounting,
                spawn=self._spawn,
                guarded=self._guarded,
                now_ms=_now_ms,
                on_room=self._on_room,
                on_gone=self._on_gone,
            )
        return ProducerEngine(
            cluster,
            settings,
            self._accounting,
            spawn=self._spawn,
            now_ms=_now_ms,
            on_room=self._on_room,
            on_gone=self._on_gone,
        )


class _EndedClient:
    """The counts of the closed clusters with one client id, without their gauges."""

    def __init__(self, cluster: Cluster) -> None:
        self.counters = cluster.counters.moved()


def new_cluster(settings: GatewaySettings) -> Cluster:
    """Return the Cluster of a gateway; it is not started."""
    shared = {
        name: value
        for name, value in settings.kafka.items()
        if name in ClusterSettings.model_fields
    }
    defaults = {"client_id": "aiokq-gateway"}
    # Kafka need not be reachable, and only the router creates topics.
    fixed = {"bootstrap_timeout_ms": 0, "allow_auto_create_topics": False}
    return Cluster(**{**defaults, **shared, **fixed})


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
