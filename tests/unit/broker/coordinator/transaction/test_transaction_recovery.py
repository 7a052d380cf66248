"""Open transactions after a power cut: each file may have lost its end, or none may have."""

from __future__ import annotations

import pytest

from aiokq.broker.coordinator.transaction.lost_transactions import Found, Verdict, compare
from aiokq.broker.coordinator.transaction.states import TransactionState
from aiokq.broker.coordinator.transaction.transaction_metadata import (
    LAST_EPOCH,
    TransactionMetadata,
)
from aiokq.broker.log.producer_state import ProducerEntry
from aiokq.core.types import TopicPartition
from tests.unit.broker.coordinator.transaction.test_requests import VERSIONS, initialized
from tests.unit.broker.coordinator.transaction.test_time_and_restart import (
    exhaust,
    loaded,
    opened,
    shard_of,
)
from tests.unit.broker.harness import until
from tests.unit.broker.transactional_client import TransactionalClient, read_committed, world

S, V = TransactionState, Verdict
TP = TopicPartition("t", 0)


def metadata(state, epoch, version, *, partitions=(), producer_id=7, updated_ms=1000, previous=7):
    return TransactionMetadata(
        "x", producer_id, epoch, 60_000, state, frozenset(partitions), 900, updated_ms, version,
        previous,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (None, V.UNKNOWN),
        # the same transaction
        (metadata(S.ONGOING, 3, 2, partitions=[TP]), V.ONGOING),
        (metadata(S.ONGOING, 3, 0, partitions=[TP]), V.ONGOING),
        (metadata(S.ONGOING, 3, 2, partitions=[TopicPartition("t", 1)]), V.INCOMPLETE),
        (metadata(S.PREPARE_COMMIT, 4, 2, partitions=[TP]), V.ONGOING),
        (metadata(S.PREPARE_ABORT, 3, 0, partitions=[TP]), V.ONGOING),
        (metadata(S.PREPARE_COMMIT, 4, 2), V.OUTDATED),
        # it was completed, and the marker is lost
        (metadata(S.COMPLETE_COMMIT, 4, 2), V.COMMITTED),
        (metadata(S.COMPLETE_ABORT, 4, 2), V.ABORTED),
        (metadata(S.COMPLETE_COMMIT, 3, 0), V.COMMITTED),
        (metadata(S.COMPLETE_ABORT, 3, 0), V.ABORTED),
        # one before it was completed, and its own begin is lost
        (metadata(S.COMPLETE_COMMIT, 3, 2), V.UNKNOWN),
        (metadata(S.EMPTY, 3, 0), V.UNKNOWN),
        (metadata(S.ONGOING, 2, 2, partitions=[TP]), V.UNKNOWN),
        (metadata(S.PREPARE_COMMIT, 3, 2, partitions=[TP]), V.UNKNOWN),
        # a later one was
        (metadata(S.ONGOING, 4, 2, partitions=[TP]), V.OUTDATED),
        (metadata(S.COMPLETE_COMMIT, 5, 2), V.OUTDATED),
        (metadata(S.COMPLETE_COMMIT, 4, 0), V.OUTDATED),
        (metadata(S.EMPTY, 4, 2), V.OUTDATED),
        # the producer id was changed
        (metadata(S.COMPLETE_COMMIT, 0, 2, producer_id=8), V.OUTDATED),
    ],
)
def test_the_verdict_on_a_transaction_of_epoch_3(found, verdict):
    assert compare(entry(3), TP, known(found)) is verdict


def entry(epoch, marked_ms=-1):
    entry = ProducerEntry(7, epoch)
    entry.last_marker_ms = marked_ms
    entry.transaction_first_offset = 0
    return entry


def known(metadata, ended=None):
    return None if metadata is None else Found(metadata, 5, ended)


@pytest.mark.parametrize(
    ("began_ms", "ended_ms", "marked_ms", "ended", "verdict"),
    [
        (900, 1000, -1, None, V.COMMITTED),
        (900, 1000, 899, {TP}, V.COMMITTED),
        (900, 1000, 900, {TP}, V.COMMITTED),  # the marker of the transaction before
        (900, 1000, 901, {TP}, V.UNKNOWN),  # its marker is there: the open one is the next
        (900, 1000, 1000, None, V.UNKNOWN),
        (900, 900, 900, {TP}, V.UNKNOWN),
        (900, 1000, -1, {TopicPartition("t", 1)}, V.UNKNOWN),  # it had other partitions
    ],
)
def test_up_to_version_1_a_marker_tells_two_transactions_of_one_epoch_apart(
    began_ms, ended_ms, marked_ms, ended, verdict
):
    """To commit the wrong one would show records that were never committed."""
    found = metadata(S.COMPLETE_COMMIT, 3, 0, updated_ms=ended_ms)._replace(started_ms=began_ms)
    ended = None if ended is None else frozenset(ended)
    assert compare(entry(3, marked_ms), TP, known(found, ended)) is verdict


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (metadata(S.COMPLETE_COMMIT, 0, 2, producer_id=8), V.COMMITTED),
        (metadata(S.COMPLETE_ABORT, 0, 2, producer_id=8), V.ABORTED),
        (metadata(S.EMPTY, 0, 2, producer_id=8), V.OUTDATED),
        (metadata(S.COMPLETE_COMMIT, LAST_EPOCH + 1, 2), V.COMMITTED),
    ],
)
def test_the_verdict_on_a_transaction_of_the_last_epoch(found, verdict):
    """Its end changed the producer id."""
    assert compare(entry(LAST_EPOCH), TP, known(found)) is verdict


class Disk:
    """The logs of a killed broker, whose ends can be cut off."""

    def __init__(self, broker):
        self.files = broker.files

    @staticmethod
    def path(topic, partition=0):
        return f"/data/{topic}-{partition}/{0:020d}.log"

    def size(self, topic, partition=0):
        return self.files.stat_size(self.path(topic, partition))

    def cut(self, size, topic, partition=0):
        """Lose the end of a log, as a power cut does."""
        path = self.path(topic, partition)
        self.files.write_atomic(path, self.files.read_bytes(path)[:size])


async def restarted(broker):
    again = await opened(broker.files)
    await loaded(again)
    return again


def verdicts(broker):
    return dict(broker.node.counters.transactions_recovered)


async def begun(version, partitions=1, **settings):
    broker = await opened(**settings)
    await broker.create("t", partitions)
    client = await initialized(broker, version=version)
    return broker, client, Disk(broker)


STATE = "__transaction_state"


@VERSIONS
async def test_after_a_kill_nothing_is_lost_and_the_transaction_goes_on(version):
    broker, client, _ = await begun(version)
    await client.wrote("t")
    broker.files.crash()
    again = client.broker = await restarted(broker)
    assert verdicts(again) == {"ongoing": 1}
    assert (await client.send("t")).error_code == 0
    assert await client.end() == 0
    assert await read_committed(again, "t") == ([0, 1, 2], [])
    await again.__aexit__()


@pytest.mark.parametrize("committed", [True, False])
@VERSIONS
async def test_a_lost_marker_is_written_again(version, committed):
    """The coordinator has completed the transaction: its producer knows the outcome."""
    broker, client, disk = await begun(version)
    await client.wrote("t", 2)
    size = disk.size("t")
    assert await client.end(committed) == 0
    broker.files.crash()
    disk.cut(size, "t")
    again = client.broker = await restarted(broker)
    aborted = [] if committed else [(client.producer_id, 0)]
    assert await read_committed(again, "t") == ([0, 1, 2], aborted)
    assert verdicts(again) == {"committed" if committed else "aborted": 1}
    await client.wrote("t")
    assert await client.end() == 0
    await again.__aexit__()


@VERSIONS
async def test_a_transaction_whose_begin_is_lost_is_aborted_and_fenced(version):
    """Its producer must not commit the rest of it as a whole transaction."""
    broker, client, disk = await begun(version, 2)
    size = disk.size(STATE)
    await client.wrote("t", partition=0)
    await client.wrote("t", partition=1)
    broker.files.crash()
    disk.cut(size, STATE)
    again = client.broker = await restarted(broker)
    await until(lambda: shard_of(again).transactions["t"].state.is_idle)
    for partition in (0, 1):
        aborted = [(client.producer_id, 0)]
        assert await read_committed(again, "t", partition) == ([0, 1], aborted)
        assert (await client.send("t", partition=partition)).error_code == 47
    assert sum(verdicts(again).values()) == 2
    # It is one transaction, although it was open in two partitions.
    assert dict(again.node.counters.transactions_ended) == {"recovery": 1}
    assert await client.end() in (48, 90)
    new = await initialized(again, version=version)
    await new.wrote("t")
    assert await new.end() == 0
    await again.__aexit__()


@VERSIONS
async def test_a_transaction_after_a_committed_one_is_not_taken_for_it(version):
    """Regression story: up to version 1 both have one epoch. Committing it would show records that
    its producer never committed."""
    broker, client, disk = await begun(version)
    await client.wrote("t")
    assert await client.end() == 0
    size = disk.size(STATE)
    await client.wrote("t")
    broker.files.crash()
    disk.cut(size, STATE)
    again = client.broker = await restarted(broker)
    await until(lambda: shard_of(again).transactions["t"].state.is_idle)
    assert await read_committed(again, "t") == ([0, 1, 2, 3], [(client.producer_id, 2)])
    assert verdicts(again) == {"unknown": 1}
    await again.__aexit__()


@VERSIONS
async def test_a_partition_that_the_coordinator_lost_is_added_again(version):
    """Otherwise the commit would write no marker to it: a torn and hanging transaction."""
    broker, client, disk = await begun(version, 2)
    await client.wrote("t", partition=0)
    size = disk.size(STATE)
    await client.wrote("t", partition=1)
    broker.files.crash()
    disk.cut(size, STATE)
    again = client.broker = await restarted(broker)
    assert verdicts(again) == {"ongoing": 1, "incomplete": 1}
    assert await client.end() == 0
    for partition in (0, 1):
        assert await read_committed(again, "t", partition) == ([0, 1], [])
    await again.__aexit__()


@VERSIONS
async def test_a_transactional_id_that_is_lost_altogether(version):
    """Its transaction is aborted; the producer gets INVALID_PRODUCER_ID_MAPPING and ends."""
    broker, client, disk = await begun(version)
    await client.wrote("t")
    broker.files.crash()
    disk.cut(0, STATE)
    again = client.broker = await restarted(broker)
    assert await read_committed(again, "t") == ([0, 1], [(client.producer_id, 0)])
    assert verdicts(again) == {"unknown": 1}
    assert (await client.send("t")).error_code in (48, 49)
    await again.__aexit__()


async def test_an_epoch_that_the_coordinator_lost_is_not_given_out_again():
    """A new producer with it would be refused by the partition, or mixed up with the old one."""
    broker, client, disk = await begun(2)
    size = disk.size(STATE)
    for _ in range(3):
        await client.wrote("t")
        assert await client.end() == 0
    await client.wrote("t")
    lost = client.epoch
    broker.files.crash()
    disk.cut(size, STATE)
    again = client.broker = await restarted(broker)
    await until(lambda: shard_of(again).transactions["t"].state.is_idle)
    assert verdicts(again) == {"unknown": 1}
    new = await initialized(again)
    assert new.epoch > lost
    await new.wrote("t")
    assert await new.end() == 0
    await again.__aexit__()


@pytest.mark.parametrize("is_open", [True, False])
async def test_an_epoch_of_a_finished_transaction_is_restored(is_open):
    """Its producer goes on where the coordinator still had an earlier epoch without a transaction.

    An open transaction of the earlier epoch has ended: only the end is lost.
    """
    broker, client, disk = await begun(2)
    if is_open:
        await client.wrote("t")
    size = disk.size(STATE)
    for _ in range(2):
        await client.wrote("t")
        assert await client.end() == 0
    broker.files.crash()
    disk.cut(size, STATE)
    again = client.broker = await restarted(broker)
    await until(lambda: not again.node._transaction_recovery._pending)
    assert verdicts(again) == {}
    if is_open:
        assert (await client.send("t")).error_code == 47
        client = await initialized(again)
    await client.wrote("t")
    assert await client.end() == 0
    log = again.node.topics.partition("t", 0).log
    assert log.last_stable_offset == log.log_end_offset
    await again.__aexit__()


async def test_the_marker_of_the_last_epoch_is_written_again():
    broker, client, disk = await begun(2)
    await exhaust(broker, client)
    await client.wrote("t")
    size = disk.size("t")
    assert await client.end() == 0
    broker.files.crash()
    disk.cut(size, "t")
    again = client.broker = await restarted(broker)
    assert await read_committed(again, "t") == ([0, 1], [])
    [entry] = list(again.node.topics.partition("t", 0).log.producers)
    assert entry.producer_epoch == LAST_EPOCH + 1
    await again.__aexit__()


async def test_until_it_is_compared_its_producer_is_asked_to_retry():
    """A batch that went past the coordinator would belong to no transaction."""
    broker, client, _ = await begun(2)
    await client.wrote("t")
    broker.files.crash()
    again = client.broker = await restarted(broker)
    recovery = again.node._transaction_recovery
    work = []

    def spawn(coroutine, name):
        work.append(coroutine)

    recovery._spawn = spawn
    recovery.elected(again.node.topics.partition("t", 0))
    assert (await client.send("t")).error_code == 19
    assert await read_committed(again, "t") == ([], [])
    [comparison] = work
    await comparison
    assert (await client.send("t")).error_code == 0
    assert await client.end() == 0
    await again.__aexit__()


async def test_what_the_coordinator_cannot_tell_yet_is_compared_later():
    """Its shard is being loaded; to abort the transaction would lose it."""
    broker, client, _ = await begun(2)
    await client.wrote("t")
    broker.files.crash()
    again = client.broker = await restarted(broker)
    coordinator = again.node.transaction_coordinator
    state, data = (again.node.topics.partition(name, 0) for name in (STATE, "t"))
    coordinator.resigned(state)
    coordinator.elected(state)  # begins to load
    again.node._transaction_recovery.elected(data)
    assert data.log.producers.unverified
    await until(lambda: not data.log.producers.unverified)
    assert verdicts(again) == {"ongoing": 2}
    assert await client.end() == 0
    await again.__aexit__()


async def test_after_a_clean_stop_nothing_is_compared():
    broker, client, _ = await begun(2)
    await client.wrote("t")
    await broker.__aexit__()
    async with world(broker.files) as again:
        await loaded(again)
        client.broker = again
        assert verdicts(again) == {}
        assert await client.end() == 0


async def test_pending_offsets_of_a_lost_transaction_are_dropped():
    """The partition is one of `__consumer_offsets`: the group gets the marker, too."""
    from aiokq import wire

    broker, client, disk = await begun(2)
    assert (await broker.ask(wire.FindCoordinatorRequest(key="g"), 0)).error_code == 0
    size = disk.size(STATE)
    response = await broker.ask(
        wire.TxnOffsetCommitRequest(
            transactional_id="t",
            group_id="g",
            producer_id=client.producer_id,
            producer_epoch=client.epoch,
            topics=[
                wire.TxnOffsetCommitRequestTopic(
                    name="t",
                    partitions=[
                        wire.TxnOffsetCommitRequestPartition(
                            partition_index=0, committed_offset=5, committed_metadata=""
                        )
                    ],
                )
            ],
        ),
        5,
    )
    assert response.topics[0].partitions[0].error_code == 0
    broker.files.crash()
    disk.cut(size, STATE)
    again = await restarted(broker)
    await until(again.node.group_coordinator.active_shards)
    await until(lambda: shard_of(again).transactions["t"].state.is_idle)
    assert verdicts(again) == {"unknown": 1}
    fetched = await again.ask(
        wire.OffsetFetchRequest(
            groups=[wire.OffsetFetchRequestGroup(group_id="g", topics=None)], require_stable=True
        ),
        9,
    )
    assert fetched.groups[0].error_code == 0
    assert fetched.groups[0].topics == []
    assert TransactionalClient(again).version == 2
    await again.__aexit__()
