"""One event loop, and one client per cluster, in each process; created on first use.

Spark forks its workers from a daemon, and a worker runs tasks of many queries. The tasks run in the
main thread of the worker; the event loop runs in another thread. Loop and clients are created after
the fork, because a child process cannot use the loop and clients of its parent.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from typing import Any, Final, NoReturn, TypeVar

from pydantic import SecretStr

from aiokq import Cluster, ClusterSettings
from aiokq.errors import KafkaError
from aiokq.spark.per_process import PerProcess
from aiokq.spark.security import cluster_settings, named_as_options

__all__ = ["LoopThread", "WorkerClient", "loop_thread", "worker_client"]

T = TypeVar("T")

CLOSE_TIMEOUT: Final = 2.0
"""Timeout in seconds for closing all clients at the end of the process."""


class LoopThread:
    """An event loop in a daemon thread, for blocking code."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = _new_event_loop()
        self._thread = threading.Thread(target=self._run, name="aiokq loop", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        while True:
            try:
                self.loop.run_forever()
            except (SystemExit, KeyboardInterrupt):
                # A coroutine raised the exception, and the caller of that coroutine receives it;
                # the loop keeps running for all other coroutines.
                continue
            return

    @property
    def is_current(self) -> bool:
        """Whether the calling thread runs the loop; waiting for the loop there would deadlock."""
        return threading.current_thread() is self._thread

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the loop; cancelling the future cancels the coroutine.

        Raises:
            RuntimeError: called in the thread of the loop, or in a forked process.
        """
        if os.getpid() != self.pid or self.is_current:
            coroutine.close()
            raise RuntimeError(
                "this loop belongs to another process: call loop_thread() after the fork"
                if os.getpid() != self.pid
                else "this is the thread of the event loop: await the coroutine"
            )
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def run(self, coroutine: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Run a coroutine on the loop and wait for its result.

        Args:
            timeout: seconds after which the coroutine is cancelled; None waits without limit.

        Raises:
            TimeoutError: the timeout has passed.
            RuntimeError: see `submit`.
        """
        future = self.submit(coroutine)
        try:
            return future.result(timeout)
        except BaseException:
            future.cancel()
            raise

    def call(self, function: Callable[[], object]) -> None:
        """Schedule a call of a function on the loop; may be called in any thread."""
        self.loop.call_soon_threadsafe(function)

    def __reduce__(self) -> NoReturn:
        raise TypeError("an event loop cannot be sent to another process: call loop_thread() there")


def _new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop of uvloop, or of asyncio if uvloop is not installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class WorkerClient:
    """Access for blocking code to a Cluster that runs on the loop thread of this process.

    Example: ``client.run(client.cluster.refresh("orders"))``. A WorkerClient cannot be sent to a
    Spark worker; code in a worker calls `worker_client`.

    Args:
        options: the options from which the cluster was created, if any, for error messages.

    Attributes:
        cluster: the cluster, which must be used on the loop only, through `run` and `submit`.
    """

    def __init__(
        self, cluster: Cluster, thread: LoopThread, options: Mapping[str, str] | None = None
    ) -> None:
        self.cluster = cluster
        self.thread = thread
        self._options = options

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the loop; see `LoopThread.submit`."""
        return self.thread.submit(coroutine)

    def run(self, coroutine: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Run a coroutine on the loop and wait for its result.

        Args:
            timeout: seconds after which the coroutine is cancelled; None waits without limit.

        Raises:
            TimeoutError: the timeout has passed.
            RuntimeError: see `LoopThread.submit`.
        """
        if self._options is None:
            return self.thread.run(coroutine, timeout)
        with named_as_options(self._options):
            return self.thread.run(coroutine, timeout)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a client cannot be sent to another process: send its settings, and call "
            "aiokq.spark.worker_client(settings) there"
        )


class _Process:
    """The loop and the clients of this process."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lock = threading.Lock()
        self.thread = LoopThread()
        self.clients: dict[object, WorkerClient] = {}
        self.making: defaultdict[object, threading.Lock] = defaultdict(threading.Lock)
        atexit.register(self.close)

    def close(self) -> None:
        """Close the clients at the end of the process, so that brokers see orderly disconnects."""
        if os.getpid() != self.pid:
            return
        clients = [client.cluster for client in self.clients.values()]
        self.clients.clear()
        if clients:
            try:
                self.thread.run(_close_all(clients), CLOSE_TIMEOUT)
            except (TimeoutError, KafkaError):
                # The process ends, and the system closes the sockets.
                return


async def _close_all(clusters: list[Cluster]) -> None:
    for cluster in clusters:
        await cluster.close()


_this_process = PerProcess(_Process)


def loop_thread() -> LoopThread:
    """Return the loop thread of this process."""
    return _this_process().thread


def worker_client(settings: ClusterSettings | Mapping[str, str]) -> WorkerClient:
    """Return the client of this process for a cluster; created on the first call, then shared.

    The client is kept until the process ends or its cluster is closed. After the cluster is closed,
    the next call creates a new client.

    Args:
        settings: settings of the cluster, or ``kafka.*`` options by Kafka's names, such as
            ``{"bootstrap.servers": "host:9092"}``.

    Raises:
        BootstrapFailed: no bootstrap address answered; the message has the reason for each address.
        ConfigError: a setting is unknown, or out of range.
        RuntimeError: called in the thread of the loop while there is no client with an open
            cluster.
    """
    process = _this_process()
    key = _key(settings)
    if process.thread.is_current:
        client = process.clients.get(key)
        if client is None or client.cluster.closed:
            raise RuntimeError(
                "this is the thread of the event loop, which cannot wait for a new client: call "
                "worker_client() earlier in another thread, or use `async with "
                "aiokq.Cluster(...)` here"
            )
        return client
    with process.lock:
        making = process.making[key]
    # Each cluster has its own lock, so that an unreachable cluster does not delay clients of other
    # clusters.
    with making:
        client = process.clients.get(key)
        if client is None or client.cluster.closed:
            client = process.clients[key] = _client(process.thread, settings)
        return client


def _client(thread: LoopThread, settings: ClusterSettings | Mapping[str, str]) -> WorkerClient:
    if isinstance(settings, ClusterSettings):
        return WorkerClient(thread.run(_started(settings)), thread)
    options = dict(settings)
    with named_as_options(options):
        return WorkerClient(thread.run(_started(cluster_settings(options))), thread, options)


def _key(settings: ClusterSettings | Mapping[str, str]) -> object:
    if isinstance(settings, ClusterSettings):
        return tuple(sorted((name, _text(getattr(settings, name))) for name in settings.explicit))
    return tuple(sorted(settings.items()))


def _text(value: object) -> str:
    """Return the `repr` of a value; for a SecretStr, the `repr` of its secret.

    The `repr` of a SecretStr itself hides the secret, so different secrets would look the same.
    """
    return repr(value.get_secret_value() if isinstance(value, SecretStr) else value)


async def _started(settings: ClusterSettings) -> Cluster:
    cluster = Cluster(settings=settings)
    await cluster.start()
    return cluster
