"""The event loop of a process, and objects that must not leave it."""

from __future__ import annotations

import asyncio
import os
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pytest

from aiokq import Cluster, ClusterSettings
from aiokq.errors import BootstrapFailed, BufferFull
from aiokq.spark import blocking_calls, producer_pool, worker
from aiokq.spark.worker import WorkerClient, loop_thread


def test_a_process_has_one_loop() -> None:
    """Consecutive tasks of a worker share it and its connections."""
    assert loop_thread() is loop_thread()


def test_a_forked_process_makes_its_own() -> None:
    """Spark forks workers from a daemon, and threads do not survive a fork."""
    before = loop_thread()
    assert before.run(asyncio.sleep(0, "here")) == "here"
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            after = loop_thread()
            answer = after.run(asyncio.sleep(0, "there"), 5)
            os.write(writing, b"own" if after is not before and answer == "there" else b"shared")
        finally:
            os._exit(0)
    os.waitpid(child, 0)

    assert os.read(reading, 10) == b"own"
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize(
    "lock",
    [
        lambda: worker._this_process._lock,
        lambda: blocking_calls._these_threads._lock,
        lambda: producer_pool._of_this_process().lock,
    ],
    ids=["worker", "calls", "producers"],
)
def test_a_lock_that_a_thread_held_does_not_stop_a_forked_process(
    lock: Callable[[], threading.Lock],
) -> None:
    """Regression: the child does not have the thread, and waited for it forever."""
    with lock():
        child = os.fork()
        if child == 0:
            os._exit(0 if lock().acquire(timeout=1) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_what_runs_too_long_is_cancelled() -> None:
    """The caller continues, and no task is left on the loop."""
    ended: list[bool] = []

    async def long() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    with pytest.raises(TimeoutError):
        loop_thread().run(long(), 0.01)
    loop_thread().run(asyncio.sleep(0))
    assert ended == [True]


def test_the_loops_own_thread_is_told_to_await() -> None:
    """A wait on the loop's own thread would never end."""

    async def wrong() -> None:
        loop_thread().run(asyncio.sleep(0))

    with pytest.raises(RuntimeError, match="await the coroutine"):
        loop_thread().run(wrong(), 5)


def test_clients_and_loops_refuse_to_be_sent_to_workers() -> None:
    """The error says what to do instead; "cannot pickle _thread.lock" does not."""
    client = WorkerClient(Cluster("host:9092"), loop_thread())

    with pytest.raises(TypeError, match="worker_client"):
        pickle.dumps(client)
    with pytest.raises(TypeError, match="loop_thread"):
        pickle.dumps(loop_thread())


def test_equal_settings_are_one_client() -> None:
    """The order of settings does not matter."""
    assert worker._key({"a": "1", "b": "2"}) == worker._key({"b": "2", "a": "1"})


def test_another_password_is_another_client() -> None:
    """Regression: another user with the same address and name got connections of the first."""
    one, other, same = (
        ClusterSettings(
            bootstrap_servers="host:9092",
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_plain_username="user",
            sasl_plain_password=password,
        )
        for password in ("right", "wrong", "right")
    )
    assert worker._key(one) != worker._key(other)
    assert worker._key(one) == worker._key(same)


def test_a_cluster_that_was_closed_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: a handler that closed its cluster made all later batches fail."""

    async def started(settings: ClusterSettings) -> Cluster:
        return Cluster(settings=settings)

    monkeypatch.setattr(worker, "_started", started)
    monkeypatch.setattr(worker._this_process(), "clients", {})
    first = worker.worker_client({"bootstrap.servers": "host:9092"})
    assert worker.worker_client({"bootstrap.servers": "host:9092"}) is first
    first.run(first.cluster.close())

    again = worker.worker_client({"bootstrap.servers": "host:9092"})

    assert not again.cluster.closed
    assert worker.worker_client({"bootstrap.servers": "host:9092"}) is again


def test_a_cluster_that_is_away_holds_up_nobody_who_asks_for_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Regression: all handlers waited a minute for a broker that only one of them used."""
    asked = threading.Event()
    back = asyncio.Event()

    async def started(settings: ClusterSettings) -> Cluster:
        if settings.bootstrap_servers == ("away:9092",):
            asked.set()
            await back.wait()
        return Cluster(settings=settings)

    monkeypatch.setattr(worker, "_started", started)
    monkeypatch.setattr(worker._this_process(), "clients", {})
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(worker.worker_client, {"bootstrap.servers": "away:9092"})
        assert asked.wait(20)
        other = threads.submit(worker.worker_client, {"bootstrap.servers": "host:9092"})
        try:
            assert not other.result(20).cluster.closed
            assert not waiting.done()
        finally:
            loop_thread().call(back.set)
        waiting.result(20)


def test_a_coroutine_on_the_loop_does_not_wait_for_a_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread that creates the client needs the loop: both would wait forever."""
    asked = threading.Event()
    back = asyncio.Event()
    settings = {"bootstrap.servers": "host:9092"}

    async def started(given: ClusterSettings) -> Cluster:
        asked.set()
        await back.wait()
        return Cluster(settings=given)

    async def handler() -> worker.WorkerClient:
        return worker.worker_client(settings)

    monkeypatch.setattr(worker, "_started", started)
    monkeypatch.setattr(worker._this_process(), "clients", {})
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(worker.worker_client, settings)
        assert asked.wait(20)
        try:
            with pytest.raises(RuntimeError, match="Cluster"):
                loop_thread().run(handler(), 20)
        finally:
            loop_thread().call(back.set)
        made = waiting.result(20)
    assert loop_thread().run(handler(), 20) is made


def test_a_cluster_that_is_away_is_told_by_the_names_of_options(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Users of kafka.bootstrap.servers do not know bootstrap_servers."""

    async def away(_: ClusterSettings) -> Cluster:
        raise BootstrapFailed([("host:9092", "refused")])

    monkeypatch.setattr(worker, "_started", away)
    with pytest.raises(BootstrapFailed) as error:
        worker.worker_client({"bootstrap.servers": "host:9092"})

    assert "host:9092: refused" in str(error.value)
    assert "Check kafka.bootstrap.servers" in str(error.value)
    assert "kafka.security.protocol" in str(error.value)


def test_a_call_that_fails_is_told_by_the_names_of_options(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Errors name settings or options, whichever the client was made of."""

    async def started(_: ClusterSettings) -> Cluster:
        return cast("Cluster", None)

    async def full() -> None:
        raise BufferFull("no free space in buffer_memory", topic_partition="buffer_memory")

    monkeypatch.setattr(worker, "_started", started)
    monkeypatch.setattr(worker._this_process(), "clients", {})
    of_options = worker.worker_client({"bootstrap.servers": "host:9092"})
    of_settings = worker.worker_client(ClusterSettings(bootstrap_servers="host:9092"))

    with pytest.raises(BufferFull) as error:
        of_options.run(full())
    assert (
        str(error.value) == "no free space in kafka.buffer.memory (topic_partition=buffer_memory)"
    )
    with pytest.raises(BufferFull, match="no free space in buffer_memory"):
        of_settings.run(full())
