"""One transaction, with a kill, a power cut, a full disk or a lost reply at each of its points.

The points are the writes of the transaction, in order. The client repeats each request until it is
answered, as producers do. In the end the transaction is committed whole, once, or aborted whole,
and nothing is open.
"""

from __future__ import annotations

import asyncio

import pytest

from aiokq import wire
from tests.sim.harness.files import MemoryFile
from tests.unit.broker.coordinator.transaction.test_power_cuts import seen
from tests.unit.broker.coordinator.transaction.test_time_and_restart import (
    loaded,
    opened,
    shard_of,
)
from tests.unit.broker.group_transactions import fetched, join, pend, ready
from tests.unit.broker.harness import until
from tests.unit.broker.transactional_client import TransactionalClient

POINTS = (
    ("begin logged", "__transaction_state-0"),
    ("first append", "t-0"),
    ("second partition logged", "__transaction_state-0"),
    ("second append", "t-1"),
    ("partition of the offsets logged", "__transaction_state-0"),
    ("offsets appended", "__consumer_offsets-0"),
    ("prepare logged", "__transaction_state-0"),
    ("marker of the offsets", "__consumer_offsets-0"),
    ("first marker", "t-0"),
    ("second marker", "t-1"),
    ("complete logged", "__transaction_state-0"),
)
"""The writes of a transaction, each with its log. EndTxn is answered before the first marker."""

NAMES = [name for name, _ in POINTS]
PREPARED = NAMES.index("prepare logged")
RETRIED = {5, 6, 7, 14, 15, 16, 19, 20, 27, 51, 56}
GAVE_UP = {45, 47, 48, 49, 90, 120}
VERSIONS = pytest.mark.parametrize("version", [0, 2])


class Writes:
    """The writes to logs, counted; the program stops after one of them, or before it."""

    def __init__(self, monkeypatch, broker, stop_at=None, how="kill") -> None:
        self.logs: list[str] = []
        self.stopped = asyncio.Event()
        write = MemoryFile.pwritev

        def counted(file, buffers, position):
            directory, name = file.path.split("/")[-2:]
            if not name.endswith(".log") or directory.startswith("__cluster"):
                return write(file, buffers, position)
            at = len(self.logs)
            self.logs.append(directory)
            if at == stop_at and how == "full disk":
                raise OSError(28, "No space left on device", file.path)
            done = write(file, buffers, position)
            if at == stop_at:
                self.stopped.set()
                broker.files.crash() if how == "kill" else broker.files.power_cut()
            return done

        monkeypatch.setattr(MemoryFile, "pwritev", counted)


async def produced(client, partition):
    """Produce the only record of a partition; a repetition has the same sequence."""
    if client.version < 2:
        code = await client.add("t", partition)
        if code:
            return code
    return (await client.send("t", partition=partition, sequence=0, value=b"v")).error_code


async def offsets_committed(client):
    """Commit the offset of the group."""
    code = await join(client, "g") if client.version < 2 else 0
    return code or await pend(client, "g", 0, 7)


def steps(client):
    """The requests of the transaction."""
    return (
        lambda: produced(client, 0),
        lambda: produced(client, 1),
        lambda: offsets_committed(client),
        lambda: client.end(),
    )


async def prepared_world(version, **settings):
    broker = await opened(**settings)
    await broker.create("t", 2)
    await ready(broker)
    client = TransactionalClient(broker, version=version)
    assert await client.initialize() == 0
    return broker, client


async def answered(step, writes):
    """Return the answer to a request; None if the program stopped before."""
    request = asyncio.ensure_future(step())
    stopped = asyncio.ensure_future(writes.stopped.wait())
    await asyncio.wait([request, stopped], return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if writes.stopped.is_set():
        request.cancel()
        await asyncio.wait([request])
        return None
    return request.result()


async def patient(step):
    """Repeat a request until its answer is final."""
    async with asyncio.timeout(20):
        while (code := await step()) in RETRIED:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    return code


async def finish(client, left):
    """Send the rest of the transaction; return whether it was committed."""
    broker = client.broker
    await loaded(broker)
    recovery = broker.node._transaction_recovery
    await until(lambda: not recovery._pending)
    for step in left:
        code = await patient(step)
        if code in GAVE_UP:
            assert await patient(TransactionalClient(broker).initialize) == 0
            return False
        assert code == 0, code
    return True


async def check(client, committed):
    """Check that the transaction is there once and whole, or not at all."""
    broker = client.broker
    await until(lambda: all(m.state.is_idle for m in shard_of(broker).transactions.values()))
    for partition in (0, 1):
        log = broker.node.topics.partition("t", partition).log
        assert log.last_stable_offset == log.log_end_offset
        assert await seen(broker, partition) == ([b"v"] if committed else [])
    offset = (0, 7) if committed else (0, -1)
    assert await fetched(broker, "g", 0, stable=True) == {0: offset}


@VERSIONS
async def test_the_points_are_the_writes_of_a_transaction(version, monkeypatch):
    """In this order: a marker is written only after the decision is logged, for example."""
    broker, client = await prepared_world(version)
    writes = Writes(monkeypatch, broker)
    for step in steps(client):
        assert await step() == 0
    assert writes.logs == [log for _, log in POINTS]
    await check(client, True)
    await broker.__aexit__()


@VERSIONS
@pytest.mark.parametrize("how", ["kill", "power cut"])
@pytest.mark.parametrize("point", NAMES)
async def test_a_kill_at_each_point_leaves_a_whole_transaction(point, how, version, monkeypatch):
    """A power cut takes what was not synced; each acknowledgement waits for its sync here."""
    settings = {"log_flush_interval_messages": 1} if how == "power cut" else {}
    broker, client = await prepared_world(version, **settings)
    writes = Writes(monkeypatch, broker, NAMES.index(point), how)
    left = list(steps(client))
    before = client.producer
    while left and await answered(left[0], writes) == 0:
        left.pop(0)
    if left:
        client.producer_id, client.epoch = before  # an answer that came after the kill is lost
    async with asyncio.timeout(20):
        await writes.stopped.wait()  # with a sync of each write, EndTxn is answered before the last
    client.broker = again = await opened(broker.files, **settings)
    again.clock.now_ms = broker.clock.now_ms + 1000
    ended = not left
    committed = await finish(client, left)
    if how == "kill" or ended:
        assert committed
    await check(client, committed)
    await again.__aexit__()


@VERSIONS
@pytest.mark.parametrize("how", ["kill", "power cut"])
async def test_a_kill_after_endtxn_was_answered_leaves_no_marker_out(how, version, monkeypatch):
    """The client knows that its transaction is committed, and sends nothing more."""
    settings = {"log_flush_interval_messages": 1} if how == "power cut" else {}
    broker, client = await prepared_world(version, **settings)
    writes = Writes(monkeypatch, broker)
    *before, _ = steps(client)
    for step in before:
        assert await step() == 0
    answer = await broker.ask(
        wire.EndTxnRequest(
            transactional_id=client.transactional_id,
            producer_id=client.producer_id,
            producer_epoch=client.epoch,
            committed=True,
        ),
        5 if version >= 2 else 4,
    )
    assert answer.error_code == 0
    assert writes.logs == [log for _, log in POINTS[: PREPARED + 1]], "no marker yet"
    broker.files.crash() if how == "kill" else broker.files.power_cut()
    client.broker = again = await opened(broker.files, **settings)
    again.clock.now_ms = broker.clock.now_ms + 1000
    assert await finish(client, [])
    await check(client, True)
    await again.__aexit__()


@VERSIONS
@pytest.mark.parametrize("point", NAMES)
async def test_a_full_disk_at_each_point_decides_nothing_by_halves(point, version, monkeypatch):
    """The broker is started again when there is space; the transaction goes on."""
    broker, client = await prepared_world(version)
    writes = Writes(monkeypatch, broker, NAMES.index(point), "full disk")
    left = list(steps(client))
    while left:
        code = await left[0]()
        if code:
            break
        left.pop(0)
    if NAMES.index(point) <= PREPARED:
        assert code in RETRIED, code
        assert NAMES.index(point) >= len(writes.logs) - 1
    else:
        assert not left  # the decision was logged before, and the markers follow
    await asyncio.sleep(0)
    broker.files.crash()
    client.broker = again = await opened(broker.files)
    assert await finish(client, left)
    await check(client, True)
    await again.__aexit__()


@VERSIONS
@pytest.mark.parametrize("lost", range(4), ids=["produce", "second produce", "offsets", "end"])
async def test_a_lost_reply_at_each_request_changes_nothing(lost, version):
    """The repeated request is answered like the first, and nothing is written twice."""
    broker, client = await prepared_world(version)
    before = client.producer
    for number, step in enumerate(steps(client)):
        assert await step() == 0
        if number == lost:
            if number == 3:
                client.producer_id, client.epoch = before
            assert await step() == 0
    await check(client, True)
    await broker.__aexit__()
