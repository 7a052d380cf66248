"""foreachBatch for coroutine functions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING, Any, TypeAlias

from aiokq import Cluster
from aiokq.errors import ConfigError, WrongLoop
from aiokq.spark.worker import loop_thread, worker_client

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["BatchHandler", "ClientBatchHandler", "foreach_batch", "foreach_batch_with_client"]

BatchHandler: TypeAlias = "Callable[[DataFrame, int], Awaitable[None]]"
"""Coroutine function that is called with the rows and the number of each batch."""
ClientBatchHandler: TypeAlias = "Callable[[DataFrame, int, Cluster], Awaitable[None]]"
"""Coroutine function that is called with the rows and the number of each batch, and a cluster."""


def foreach_batch(
    handler: BatchHandler, *, loop: asyncio.AbstractEventLoop | None = None
) -> Callable[[DataFrame, int], None]:
    """Return a function for `DataStreamWriter.foreachBatch` that runs a coroutine function.

    Example: ``frame.writeStream.foreachBatch(foreach_batch(handler)).start()``. All batches are
    handled on one event loop, so the handler can keep a client or a connection for later batches.
    The batch is done when the handler returns; an exception of the handler ends the query. After a
    restart, Spark repeats a batch that was not done. The handler uses Spark by awaiting
    ``bridge.collect(...)`` and other functions of `bridge`.

    Args:
        loop: event loop of the handler. The loop must keep running until the query ends. The
            argument cannot be used with Spark Connect, which calls the handler in a process of the
            server. Default: a loop in a thread of its own, in the process that calls the handler.
    """
    return _OnLoop(handler, loop)


def foreach_batch_with_client(
    handler: ClientBatchHandler, settings: Mapping[str, str]
) -> Callable[[DataFrame, int], None]:
    """Return a function as `foreach_batch` does, for a handler with a `Cluster` as third argument.

    The cluster is created in the process that calls the handler; with Spark Connect this is a
    process of the server. All batches share the cluster with callers of `worker_client` that pass
    the same settings. The handler should not close the cluster.

    Args:
        settings: settings of the cluster by Kafka's names, such as ``{"bootstrap.servers":
            "host:9092"}``.

    Raises:
        ConfigError: there is no ``bootstrap.servers``.
    """
    if not settings.get("bootstrap.servers"):
        raise ConfigError('a client needs settings, at least {"bootstrap.servers": "host:port"}')
    return _OnLoop(_WithClient(handler, dict(settings)), None)


class _WithClient:
    def __init__(self, handler: ClientBatchHandler, settings: dict[str, str]) -> None:
        self._handler = handler
        self._settings = settings

    def cluster(self) -> Cluster:
        """Return the cluster; called outside the loop, because the first call waits for brokers."""
        return worker_client(self._settings).cluster

    async def run(self, frame: DataFrame, batch: int, cluster: Cluster) -> None:
        await self._handler(frame, batch, cluster)


class _OnLoop:
    """Callable for Spark that runs the handler on an event loop until the handler has ended."""

    def __init__(
        self, handler: BatchHandler | _WithClient, loop: asyncio.AbstractEventLoop | None
    ) -> None:
        self._handler = handler
        self._loop = loop

    def __call__(self, frame: DataFrame, batch: int) -> None:
        running = self._submit(self._coroutine(frame, batch))
        try:
            running.result()
        except CancelledError:
            raise RuntimeError(
                f"the handler of batch {batch} was cancelled: the batch is not complete"
            ) from None
        except SystemExit as error:
            # Spark would wait forever for a response from a thread that exits.
            raise RuntimeError(
                f"the handler of batch {batch} ended by SystemExit({error.code!r}): the batch is "
                "not complete"
            ) from error
        except BaseException:
            running.cancel()
            raise

    def _coroutine(self, frame: DataFrame, batch: int) -> Coroutine[Any, Any, None]:
        if isinstance(self._handler, _WithClient):
            return self._handler.run(frame, batch, self._handler.cluster())
        return _awaited(self._handler, frame, batch)

    def _submit(self, coroutine: Coroutine[Any, Any, None]) -> Future[None]:
        if self._loop is None:
            return loop_thread().submit(coroutine)
        try:
            if not self._loop.is_running():
                raise RuntimeError("the loop is not running")
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError as error:
            coroutine.close()
            raise WrongLoop(
                "the event loop given to foreach_batch(loop=...) has ended before the query: stop "
                "the query first, or leave `loop` out"
            ) from error

    def __getstate__(self) -> dict[str, object]:
        if self._loop is not None:
            raise WrongLoop(
                "foreach_batch(loop=...) cannot be sent to another process, where Spark Connect "
                "calls it: leave `loop` out, and the handler gets a loop there"
            )
        return dict(self.__dict__)


async def _awaited(handler: BatchHandler, frame: DataFrame, batch: int) -> None:
    await handler(frame, batch)
