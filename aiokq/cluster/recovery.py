"""`RecoveryMonitor`, a task that watches failed partitions and brokers until they recover.

While a partition is in recovery, the task requests its topic's metadata from any broker, and then
from the leader itself. The recovery ends when the leader confirms its leadership, or when another
request about the partition succeeds. Each broker that is down and in the metadata gets metadata
requests until it answers. While nothing has failed, the task sleeps.

Source: kafka4net's PartitionRecoveryMonitor.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any

from aiokq.cluster.reducer import ClusterState
from aiokq.cluster.reducer_inputs import Input, LeaderVerified, MetadataReceived, NodeReached
from aiokq.cluster.values import ClusterValues
from aiokq.connection.backoff import Backoff
from aiokq.core.errors import Closed, KafkaError
from aiokq.core.types import TopicPartition

__all__ = ["RecoveryMonitor"]

logger = logging.getLogger("aiokq.cluster")


class RecoveryMonitor:
    """Checks failed partitions and brokers, and applies the results to the state of the cluster.

    Args:
        state: returns the current state.
        apply: applies an input of the reducer.
        refresh: requests metadata of topics.
        ask_node: requests metadata of topics from one node.
        spawn: starts a task.
    """

    def __init__(
        self,
        settings: ClusterValues,
        *,
        state: Callable[[], ClusterState],
        apply: Callable[[Input], None],
        refresh: Callable[[frozenset[str]], Awaitable[None]],
        ask_node: Callable[[int, frozenset[str]], Awaitable[MetadataReceived]],
        spawn: Callable[[Coroutine[Any, Any, None], str], object],
        random: random.Random,
    ) -> None:
        self._state = state
        self._apply = apply
        self._refresh = refresh
        self._ask_node = ask_node
        self._spawn = spawn
        self._limit = settings.request_timeout
        self._pause = settings.retry_backoff_ms / 1000
        self._backoff = Backoff(self._pause, settings.retry_backoff_max_ms / 1000, random)
        self._wake = asyncio.Event()
        self._asking: set[int] = set()

    def wake(self) -> None:
        """End the current pause, because the failed partitions or brokers have changed."""
        self._wake.set()

    async def run(self) -> None:
        """Check failed partitions and brokers until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            self._backoff.reset()
            while self._has_failures():
                await self._look_after()
                # A new failure shortens the pause, but not below the shortest backoff. Otherwise a
                # partition that fails with every request would turn this task into a busy loop.
                await asyncio.sleep(self._pause)
                rest = self._backoff.next() - self._pause
                if rest > 0 and self._has_failures():
                    await self._sleep_unless_woken(rest)

    def _has_failures(self) -> bool:
        state = self._state()
        return bool(state.failed or state.down & state.metadata.brokers.keys())

    async def _sleep_unless_woken(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()
        self._backoff.reset()

    async def _look_after(self) -> None:
        topics = frozenset(tp.topic for tp in self._state().failed)
        if topics:
            try:
                async with asyncio.timeout(self._limit):
                    await self._refresh(topics)
            except Closed:
                return  # the engine is closing: its supervisor starts no more tasks
            except (KafkaError, TimeoutError) as error:
                # The metadata loop has logged the reason; the leaders may still answer.
                logger.debug("metadata not refreshed, recovery continues without: error=%s", error)
        state = self._state()
        work: dict[int, set[TopicPartition]] = {
            node_id: set() for node_id in state.down & state.metadata.brokers.keys()
        }
        for tp in state.failed:
            leader = state.metadata.leader(tp)
            if leader in state.metadata.brokers:
                work.setdefault(leader, set()).add(tp)
        for node_id, partitions in work.items():
            # Each node has its own task, which is not awaited, because a silent node must not delay
            # other nodes.
            if node_id not in self._asking:
                self._asking.add(node_id)
                self._spawn(self._verify(node_id, partitions), f"verify node {node_id}")

    async def _verify(self, node_id: int, partitions: set[TopicPartition]) -> None:
        try:
            async with asyncio.timeout(self._limit):
                answer = await self._ask_node(node_id, frozenset(tp.topic for tp in partitions))
        except (KafkaError, TimeoutError) as error:
            logger.debug("node still does not respond: node=%d error=%s", node_id, error)
            return
        finally:
            self._asking.discard(node_id)
        self._apply(NodeReached(node_id))
        # A restarted broker may lack topics at first. The topics in its response are used, but the
        # topics that it lacks are not removed.
        known = tuple(topic for topic in answer.topics if not topic.error_code)
        brokers = tuple(self._state().metadata.brokers.values())
        self._apply(replace(answer, topics=known, brokers=brokers, complete=False))
        claimed = {
            TopicPartition(topic.name, info.partition): info.leader_epoch
            for topic in known
            for info in topic.partitions.values()
            if info.leader == node_id
        }
        verified = {tp: claimed[tp] for tp in sorted(partitions & claimed.keys())}
        if verified:
            self._apply(LeaderVerified(node_id, verified))
