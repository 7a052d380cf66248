"""ConsumerLifecycle: creates, starts and closes the parts of a consumer.

It also decides which calls of the public class are allowed in the consumer's state.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

from aiokq.cluster.engine import ClusterEngine
from aiokq.cluster.loop_binding import LoopBinding
from aiokq.consumer.cluster_queries import ClusterQueries
from aiokq.consumer.consumer_coordinator import ConsumerCoordinator
from aiokq.consumer.fetch_pipeline import FetchPipeline
from aiokq.core.errors import Closed, copy_error
from aiokq.core.supervisor import Supervisor, shielded

if TYPE_CHECKING:
    from aiokq.consumer.health import ConsumerHealth
    from aiokq.consumer.subscription import Subscription
    from aiokq.consumer.values import ConsumerValues
    from aiokq.core.environment import Environment

__all__ = ["CLOSE_WITHIN", "ConsumerLifecycle"]

CLOSE_TIMEOUT: Final = 5.0
"""Seconds in which a consumer's tasks must end after their cancellation."""

CLOSE_WITHIN: Final = 30.0
"""The default timeout of `Consumer.close` in seconds, as in Java."""


class ConsumerLifecycle:
    """The parts of one consumer, from its constructor to the end of `close()`.

    Args:
        engine: the engine of the Cluster that the consumer shares; None to create and own one.

    Attributes:
        binding: the event loop that the consumer was started on.
        engine: the connections and the metadata.
        group: membership, commits and acknowledgements; None without a `group_id`.
        pipeline: the parts that fetch and deliver records.
        queries: requests about topics and offsets.
        started: whether the tasks were started.
    """

    def __init__(
        self,
        settings: ConsumerValues,
        subscription: Subscription,
        engine: ClusterEngine | None,
        environment: Environment | None,
    ) -> None:
        self._settings = settings
        self._subscription = subscription
        self._owns_engine = engine is None
        self.engine = engine or ClusterEngine(settings, environment)
        self.binding = LoopBinding("this Consumer")
        self._supervisor = Supervisor(
            f"consumer {settings.client_id}",
            on_failure=self._on_internal_failure,
            on_cancelled=self._on_cancelled,
        )
        self.group: ConsumerCoordinator | None = None
        if settings.group_id is not None:
            self.group = ConsumerCoordinator(settings, self.engine, subscription, self._supervisor)
        self.pipeline = FetchPipeline(
            settings,
            self.engine,
            subscription,
            self._supervisor,
            self.binding,
            None if self.group is None else self.group.stored,
            None if self.group is None else self.group.acks,
        )
        self.queries = ClusterQueries(settings, self.engine)
        self.started = False
        self._failure: Closed | None = None
        self._closing: asyncio.Future[None] | None = None
        self._leaving = False

    @property
    def closed(self) -> bool:
        """Whether `close()` was called."""
        return self._closing is not None

    @property
    def open(self) -> bool:
        """Whether the consumer was started, and not closed."""
        return self.started and not self.closed

    async def start(self) -> None:
        """Implement `Consumer.start`."""
        self.binding.bind()
        if self.closed:
            raise self.pipeline.closed_error()
        if self.started:
            return
        if not self._owns_engine:
            self.engine.bind()
        try:
            if self._owns_engine:
                await self.engine.start()
            # This call raises an error if the consumer was closed meanwhile.
            await self._supervisor.start()
            self.started = True
            if self.group is None:
                self.pipeline.start()
            else:
                self.group.start(self.pipeline)
            if not self._subscription.empty:
                discovery = self.pipeline.discovery
                discovery.follow()
                await discovery.settled(self._settings.bootstrap_timeout_ms / 1000)
        except BaseException:
            await self.close(CLOSE_WITHIN)
            raise

    async def close(self, timeout: float) -> None:
        """Implement `Consumer.close`.

        Args:
            timeout: seconds to finish records, commit and leave the group.
        """
        if self.binding.forked:
            return
        self.binding.check_bound()
        if self._closing is not None:
            await asyncio.shield(self._closing)
            return
        self._closing = asyncio.get_running_loop().create_future()
        # exc_info() is also set if close() is called in a `finally` block while an exception
        # propagates.
        normal = sys.exc_info()[0] is None
        steps = self._shut_down(self._closing, timeout, normal, asyncio.current_task())
        await shielded(steps, name="close consumer")

    async def _shut_down(
        self,
        closing: asyncio.Future[None],
        timeout: float,
        normal: bool,
        by: asyncio.Task[Any] | None,
    ) -> None:
        # All parts are closed, even if closing one of them fails.
        async with AsyncExitStack() as stack:
            stack.callback(closing.set_result, None)
            if self._owns_engine:
                stack.push_async_callback(self.engine.close)
            stack.push_async_callback(self._supervisor.close, CLOSE_TIMEOUT)
            stack.push_async_callback(self.pipeline.close)
            stack.callback(self.queries.close)
            self.pipeline.sources.close()
            if self.group is not None and self.started:
                stack.push_async_callback(self.group.disconnect)
                if self._failure is None:
                    # `group.close` calls on_revoked, which may still use the consumer to commit.
                    self._leaving = True
                    stack.callback(setattr, self, "_leaving", False)
                    await self.group.close(timeout, normal=normal, by=by)

    def check_open(self) -> None:
        """Check that the consumer can be used.

        Raises:
            Closed: the consumer was not started, or was closed, or has failed.
            WrongLoop: the consumer was started on another loop, or in another process.
        """
        self.binding.check()
        if not self.started and not self.closed:
            raise Closed("this Consumer is still being started: wait until start() returns")
        if not self.started or (self._closing is not None and not self._leaving):
            raise self.pipeline.closed_error()
        if self._failure is not None:
            raise copy_error(self._failure)

    def check_declaring(self) -> None:
        """Check like `check_open`, but allow calls before the start, which take effect later."""
        self.binding.check_bound()
        if self.started:
            self.check_open()
        elif self.closed:
            raise self.pipeline.closed_error()

    def health(self) -> ConsumerHealth:
        works = self.open and self._failure is None
        group = None
        if self.group is not None and self.started:
            group = self.group.health()
        return self.pipeline.health(works=works, group=group)

    def _on_cancelled(self) -> None:
        self._on_internal_failure(
            Closed("the tasks of the consumer were cancelled: is the event loop being shut down?")
        )

    def _on_internal_failure(self, error: BaseException) -> None:
        if isinstance(error, Closed):
            failure = error  # the cluster was closed, or the tasks were cancelled
        else:
            failure = Closed(f"the consumer failed: {error!r}")
            failure.__cause__ = error
        self._failure = failure
        self.pipeline.fail(failure)
