"""aiokq.broker.replica.purgatory: fetches wake for bytes, changes and deadlines only."""

from __future__ import annotations

import asyncio

from aiokq.broker.replica.purgatory import FetchPurgatory, Watch
from aiokq.connection.request_context import RequestContext
from aiokq.core.types import TopicPartition

A = TopicPartition("a", 0)
B = TopicPartition("b", 0)


def client():
    return RequestContext(1, "127.0.0.1:5000", "127.0.0.1", "PLAINTEXT")


async def waiting(purgatory, *args, connection=None):
    task = asyncio.create_task(purgatory.wait(connection or client(), *args))
    await asyncio.sleep(0)
    return task


async def test_a_fetch_wakes_when_enough_bytes_came_from_all_its_partitions():
    """min_bytes counts over the whole request, not per partition."""
    purgatory = FetchPurgatory()
    task = await waiting(purgatory, 100, {A: 1000, B: 1000}, 60.0)
    purgatory.appended(A, 60)
    await asyncio.sleep(0)
    assert not task.done()
    purgatory.appended(B, 40)
    assert await task is True
    assert len(purgatory) == 0


async def test_a_partition_contributes_no_more_than_the_fetch_takes_from_it():
    """A partition above its own limit cannot make up for the others."""
    purgatory = FetchPurgatory()
    task = await waiting(purgatory, 100, {A: 50, B: 1000}, 60.0)
    purgatory.appended(A, 1_000_000)
    await asyncio.sleep(0)
    assert not task.done()
    purgatory.appended(B, 50)
    assert await task is True


async def test_appends_elsewhere_do_not_wake():
    """Appends to other partitions must not cost a waiting fetch anything."""
    purgatory = FetchPurgatory()
    task = await waiting(purgatory, 1, {A: 10}, 60.0)
    purgatory.appended(B, 10)
    await asyncio.sleep(0)
    assert not task.done()
    purgatory.wake(A)
    assert await task is True


async def test_the_deadline_ends_the_wait_without_bytes():
    """A consumer gets its empty response in time."""
    purgatory = FetchPurgatory()
    assert await purgatory.wait(client(), 1, {A: 10}, 0.001) is False
    assert len(purgatory) == 0


async def test_a_fetch_whose_client_left_is_forgotten():
    """Cancelled waits must leave nothing in the watch lists."""
    purgatory = FetchPurgatory()
    task = await waiting(purgatory, 1, {A: 10}, 60.0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert len(purgatory) == 0
    purgatory.appended(A, 10)


async def test_closing_answers_everybody_and_lets_nobody_wait_again():
    """A broker that stops must not hold fetches for their whole max_wait."""
    purgatory = FetchPurgatory()
    task = await waiting(purgatory, 1, {A: 10}, 60.0)
    purgatory.close()
    assert await task is False
    assert await purgatory.wait(client(), 1, {A: 10}, 60.0) is False


async def test_several_fetches_of_one_partition_wake_together():
    """Many consumers may tail one partition."""
    purgatory = FetchPurgatory()
    tasks = [await waiting(purgatory, 10, {A: 100}, 60.0) for _ in range(3)]
    purgatory.appended(A, 10)
    assert await asyncio.gather(*tasks) == [True, True, True]


async def test_a_fetch_ends_when_its_client_is_gone():
    """A pending request continues without its client, so a long poll would wait needlessly."""
    purgatory = FetchPurgatory()
    connection = client()
    task = await waiting(purgatory, 1, {A: 10}, 60.0, connection=connection)
    connection.disconnected()
    assert await task is False
    assert purgatory._by_connection == {}


async def test_a_connection_that_polls_for_ever_is_remembered_once():
    """There is one disconnect callback per connection, not one per poll."""
    purgatory = FetchPurgatory()
    connection = client()
    for _ in range(5):
        task = await waiting(purgatory, 1, {A: 10}, 60.0, connection=connection)
        purgatory.appended(A, 10)
        assert await task is True
    assert len(connection._disconnect_callbacks) == 1


async def test_connections_of_several_listeners_may_have_the_same_number():
    """Each server counts its own connections; the purgatory belongs to the whole node."""
    purgatory = FetchPurgatory()
    first, second = client(), client()
    tasks = [
        await waiting(purgatory, 1, {A: 10}, 60.0, connection=each) for each in (first, second)
    ]
    first.disconnected()
    assert await tasks[0] is False
    assert not tasks[1].done()
    second.disconnected()
    assert await tasks[1] is False
    assert purgatory._by_connection == {}


async def test_bytes_between_the_read_and_the_wait_count():
    """A long fetch watches each partition from its read on, and waits only after the last."""
    purgatory, watch = FetchPurgatory(), Watch()
    purgatory.add(watch, A, 1000)
    purgatory.appended(A, 60)
    purgatory.add(watch, B, 1000)
    purgatory.appended(B, 30)
    task = asyncio.create_task(purgatory.wait_on(client(), watch, 100, 60.0))
    await asyncio.sleep(0)
    assert not task.done()
    purgatory.appended(B, 10)
    assert await task is True
    assert await purgatory.wait_on(client(), watch, 100, 60.0) is True, "they count on"
    purgatory.end(watch)
    assert purgatory._watchers == {}


async def test_a_change_between_the_read_and_the_wait_ends_the_wait():
    purgatory, watch = FetchPurgatory(), Watch()
    purgatory.add(watch, A, 1000)
    purgatory.wake(A)
    assert await purgatory.wait_on(client(), watch, 100, 60.0) is True
    purgatory.end(watch)
    purgatory.close()
    watch = Watch()
    purgatory.add(watch, A, 1000)
    assert await purgatory.wait_on(client(), watch, 100, 60.0) is False
    purgatory.end(watch)
    assert len(purgatory) == 0
