"""aiokq.broker.coordinator.runtime, tested with a coordinator of counters instead of groups."""

from __future__ import annotations

import asyncio
import errno

import pytest

from aiokq.broker.coordinator.key_hash import partition_by_hash
from aiokq.broker.coordinator.outcome import Outcome
from aiokq.broker.coordinator.shard import TransactionalProducer
from aiokq.broker.coordinator.shard_context import RETRY_SECONDS
from aiokq.broker.coordinator.shard_load import RECORDS_PER_TURN
from aiokq.broker.coordinator.shard_log import ShardLog
from aiokq.core.background import FAIL_ON_BUGS
from aiokq.core.errors import (
    BrokerError,
    CoordinatorNotAvailable,
    CorruptRecord,
    NotCoordinator,
    NotLeaderOrFollower,
    UnknownServer,
)
from aiokq.records.control import ControlType, EndTransactionMarker
from tests.sim.harness.simulation import Simulation, run
from tests.unit.broker.coordinator.counter import (
    COMMIT_TIMEOUT,
    TOPIC,
    CounterBroker,
    CounterShard,
    code,
    record,
)
from tests.unit.broker.log.test_flusher import slow

COMMIT = EndTransactionMarker(ControlType.COMMIT, 5)


async def end_transaction(broker, partition, producer, marker):
    """Write a marker of version 0 and wait for its commit."""
    await broker.runtime.append_marker(partition, producer, marker, 0).committed()


ABORT = EndTransactionMarker(ControlType.ABORT, 5)


@pytest.mark.parametrize(
    ("key", "partition"),
    # Utils.abs("...".hashCode()) % 50 in Java
    [("g", 3), ("billing", 9), ("", 0), ("größe", 7), ("👍", 14), ("polygenelubricants", 0)],
)
def test_the_partition_of_a_key_is_javas(key, partition):
    """Groups stay valid when a directory changes brokers; the last key hashes to -2^31."""
    assert partition_by_hash(key, 50) == partition


# --- Loading and failover


async def test_the_topic_is_created_by_the_first_question():
    """It has the instance's spec, with no more replicas than there are brokers."""
    async with CounterBroker(partitions=3) as broker:
        assert await code(broker.add("a")) == 16
        assert await broker.runtime.locate("a") == 0
        topic = broker.node.topics.get(TOPIC)
        assert (len(topic.partitions), topic.replication_factor) == (3, 1)
        assert topic.configs["cleanup.policy"] == "compact"
        assert await broker.add("a") == 1
        assert [len(shard) for shard in broker.instance.shards] == [0, 1, 0]


@pytest.mark.parametrize(
    "error",
    [OSError(errno.EMFILE, "Too many open files"), ImportError("cannot open shared object")],
)
async def test_a_coordinator_that_cannot_import_its_shards_is_not_available(error, monkeypatch):
    """Without descriptors FindCoordinator was reported as a bug, and its connection closed."""
    async with CounterBroker() as broker:
        factory, failures = broker.instance.shard_factory, [error]

        def fails_once():
            if failures:
                raise failures.pop()
            return factory()

        monkeypatch.setattr(broker.instance, "shard_factory", fails_once)
        with pytest.raises(CoordinatorNotAvailable, match="cannot be imported"):
            await broker.runtime.locate("a")
        assert broker.node.counters.background_failures == {"load counters": 1}
        assert await broker.runtime.locate("a") == 0
        assert await broker.add("a") == 1


async def test_a_topic_of_which_one_partition_is_offline_serves_the_others():
    """Its creation ends with KAFKA_STORAGE_ERROR, but the topic exists."""
    async with CounterBroker(partitions=2) as broker:
        by_partition = {partition_by_hash(name, 2): name for name in "ab"}
        broker.files.fail("mkdirs", errno.EMFILE, matches=lambda path: f"{TOPIC}-1" in path)
        assert await broker.runtime.locate(by_partition[0]) == 0
        with pytest.raises(CoordinatorNotAvailable, match=f"partition 1 of {TOPIC} is offline"):
            await broker.runtime.locate(by_partition[1])
        assert await broker.add(by_partition[0]) == 1


async def test_what_was_answered_is_there_after_a_kill():
    """The next process loads it from the log, under a later leader epoch."""
    killed = CounterBroker()
    await killed.__aenter__()
    await killed.runtime.locate("a")
    assert [await killed.add("a") for _ in range(3)] == [1, 2, 3]
    assert killed.shard.leader_epoch == 0
    await killed.runtime.close()
    killed.files.crash()
    async with CounterBroker(killed.files) as broker:
        assert await code(broker.add("a")) == 14
        await broker.loaded()
        assert broker.value("a") == 3
        assert broker.shard.leader_epoch == broker.partition().leader_epoch == 1
        assert broker.shard.life == ["loaded"]
    killed.node.group_coordinator.stop()
    with pytest.raises(BrokerError):
        await killed.node.close()  # another node uses its files now


async def test_a_shard_is_loaded_anew_by_whoever_is_elected():
    """Another node may have written since, so the shard of an earlier leadership is not reused."""
    async with CounterBroker() as broker:
        await broker.runtime.locate("a")
        await broker.add("a", 7)
        first = broker.shard
        broker.resign()
        assert await code(broker.add("a")) == 16
        assert first.life == ["loaded", "unloaded"]
        broker.elect()
        assert await code(broker.add("a")) == 14
        await broker.loaded()
        assert broker.shard is not first
        assert broker.value("a") == 7


async def test_an_election_in_the_same_epoch_changes_nothing_and_a_later_one_replaces_the_shard():
    """A leader may be notified twice; a later epoch means that another node led in between."""
    async with CounterBroker() as broker:
        await broker.runtime.locate("a")
        await broker.add("a")
        first = broker.shard
        broker.runtime.elected(broker.partition())
        assert await broker.add("a") == 2
        broker.elect()
        assert first.life == ["loaded", "unloaded"]
        await broker.loaded()
        assert await broker.add("a") == 3


async def test_a_load_that_outlives_its_leadership_serves_nobody():
    """No request reaches the shard that it loads."""
    async with CounterBroker() as broker:
        await broker.runtime.locate("a")
        for _ in range(5 * RECORDS_PER_TURN):
            await broker.add("a")
        broker.elect()
        await asyncio.sleep(0)
        loading = broker.shard
        broker.elect()
        await broker.loaded()
        assert broker.value("a") == 5 * RECORDS_PER_TURN
        for _ in range(50):
            await asyncio.sleep(0)
        assert loading.life == []


def test_a_load_that_fails_begins_again_from_the_start(monkeypatch):
    """The next load uses an empty shard, because half of the log may be in the first one."""
    replay, failures = ShardLog.replay, [OSError(errno.EMFILE, "Too many open files")]

    async def fails_once(self, shard):
        if failures:
            shard.values["a"] = 999
            raise failures.pop()
        return await replay(self, shard)

    async def main(world: Simulation) -> None:
        async with CounterBroker() as broker:
            await broker.runtime.locate("a")
            await broker.add("a", 7)
            monkeypatch.setattr(ShardLog, "replay", fails_once)
            broker.elect()
            await asyncio.sleep(0.5)
            assert await code(broker.add("a")) == 15
            await asyncio.sleep(1)
            assert broker.value("a") == 7

    run(1, main)


async def test_a_damaged_log_is_not_tried_again(monkeypatch):
    """COORDINATOR_NOT_AVAILABLE until the node restarts."""

    async def damaged(self, shard):
        raise CorruptRecord("bad")

    async with CounterBroker() as broker:
        await broker.runtime.locate("a")
        await broker.add("a")
        monkeypatch.setattr(ShardLog, "replay", damaged)
        broker.elect()
        for _ in range(5):
            await asyncio.sleep(0)
        assert await code(broker.add("a")) == 15
        with pytest.raises(BrokerError) as refused:
            await broker.runtime.locate("a")
        assert refused.value.code == 15


async def test_a_deleted_topic_unloads_all_shards():
    """A new topic of the same name begins empty."""
    async with CounterBroker(partitions=2) as broker:
        await broker.runtime.locate("a")
        await broker.add("a")
        shards = list(broker.instance.shards)
        await broker.node.metadata.delete_topic(broker.node.topics.get(TOPIC))
        assert [shard.life for shard in shards] == [["loaded", "unloaded"]] * 2
        assert await code(broker.add("a")) == 16
        await broker.runtime.locate("a")
        assert await broker.add("a") == 1


async def test_a_write_whose_partition_is_deleted_before_the_commit_fails_as_not_coordinator():
    """As in Kafka, where the shard's unload fails all writes that wait for their commit."""
    broker = CounterBroker(log_flush_interval_messages=1)
    disk = slow(broker, 0)
    async with broker:
        await broker.runtime.locate("a")
        await broker.add("a")
        disk.stands_still = True
        waiting = asyncio.ensure_future(code(broker.add("a")))
        for _ in range(20):
            await asyncio.sleep(0)
        disk.stands_still = False
        [sync] = disk.waiting
        await broker.node.metadata.delete_topic(broker.node.topics.get(TOPIC))
        error = await waiting
        sync.set_result(None)
        assert error == 16


async def test_a_directory_that_fails_is_resigned():
    """Waiting requests fail at once, and later ones get the error of an offline partition."""
    async with CounterBroker(directories=["/data", "/more"]) as broker:
        await broker.runtime.locate("a")
        waiting = asyncio.ensure_future(
            code(broker.runtime.write("a", lambda shard, _: shard.reach("a", 5)))
        )
        await asyncio.sleep(0)
        directory = broker.partition().log.directory.rpartition("/")[0]
        broker.files.fail("pwritev", matches=lambda path: path.startswith(directory), written=10)
        assert await code(broker.add("a")) == 16
        assert await waiting == 16
        assert await code(broker.add("a")) == 15
        assert broker.shard.life == ["loaded", "unloaded"]


# --- Writes


async def test_an_operation_that_refuses_writes_nothing():
    """The operation's error is the response."""
    async with CounterBroker() as broker:
        await broker.runtime.locate("a")
        assert await code(broker.add("a", -1)) == 42
        assert broker.partition().log.log_end_offset == 0


async def test_a_failed_append_leaves_the_shard_as_it_was():
    """The same request succeeds when the log accepts records again."""
    async with CounterBroker() as broker:
        await broker.runtime.locate("a")
        await broker.add("a")
        await broker.limit_batches(1)
        told = []

        def add(shard, instant):
            outcome = shard.add("a", 1)
            outcome.on_written = told.append
            return outcome

        assert await code(broker.runtime.write("a", add)) == -1
        assert [error.code for error in told] == [-1]
        assert broker.value("a") == 1
        await broker.limit_batches(10_000)
        assert await code(broker.runtime.write("a", add)) == 0
        assert told[1:] == [None]
        assert broker.value("a") == 2


async def test_a_disk_that_refuses_an_append_ends_the_leadership():
    """NOT_COORDINATOR, then COORDINATOR_NOT_AVAILABLE; a restart with free disk space recovers."""
    async with CounterBroker() as broker:
        broker.node._fail = lambda error: None
        await broker.runtime.locate("a")
        await broker.add("a")
        broker.files.fail("pwritev", errno.ENOSPC, times=None)
        assert await code(broker.add("a")) == 16
        assert await code(broker.add("a")) == 15
        files = broker.files
    files.heal()
    async with CounterBroker(files) as broker:
        await broker.loaded()
        assert await broker.add("a") == 2


async def test_records_that_cannot_be_encoded_are_a_failed_append():
    """UNKNOWN_SERVER_ERROR, and nothing is written."""
    async with CounterBroker() as broker:
        await broker.runtime.locate("a")
        with pytest.raises(UnknownServer):
            await broker.runtime.write(
                "a", lambda shard, _: Outcome([record("a" * 40_000, 1)], response=1)
            )
        assert broker.partition().log.log_end_offset == 0


async def test_a_write_whose_leadership_ends_between_the_decision_and_the_append_never_lands():
    """The node resigns and is elected again while the operation runs, so its result is outdated."""
    async with CounterBroker() as broker:
        await broker.runtime.locate("a")
        await broker.add("a", 5)
        end = broker.partition().log.log_end_offset
        told = []

        def decide(shard: CounterShard, instant):
            outcome = shard.add("a", 1)
            outcome.on_written = told.append
            broker.resign()
            broker.elect()
            return outcome

        assert await code(broker.runtime.write("a", decide)) == 16
        assert [error.code for error in told] == [16]
        assert broker.partition().log.log_end_offset == end
        await broker.loaded()
        assert broker.value("a") == 5
        assert await broker.add("a") == 6


@pytest.mark.parametrize("records", [0, 1])
def test_a_write_whose_operation_resigns_fails_and_leaves_no_timer(records):
    """There is no new epoch, as when the partition is deleted, and possibly no record to append."""

    async def main(world: Simulation) -> None:
        async with CounterBroker() as broker:
            await broker.runtime.locate("a")
            end = broker.partition().log.log_end_offset

            def decide(shard: CounterShard, instant):
                shard.reset_later("a", 10, instant)
                broker.runtime.resigned(broker.partition())
                return shard.add("a", 1) if records else Outcome(response=1)

            assert await code(broker.runtime.write("a", decide)) == 16
            await asyncio.sleep(20)
            assert broker.shard.life == ["loaded", "unloaded"]
            assert broker.partition().log.log_end_offset == end

    run(1, main)


async def test_a_write_that_belongs_to_work_of_an_earlier_leadership_never_lands():
    """Work that awaits markers or a verification names the epoch in which it began."""
    async with CounterBroker() as broker:
        await broker.runtime.locate("a")
        await broker.add("a", 5)
        epoch = broker.runtime.leader_epoch("a")
        assert await broker.add("a", leader_epoch=epoch) == 6
        broker.resign()
        assert await code(broker.add("a", leader_epoch=epoch)) == 16
        broker.elect()
        assert await code(broker.add("a", leader_epoch=epoch)) == 14
        await broker.loaded()
        end = broker.partition().log.log_end_offset
        assert await code(broker.add("a", leader_epoch=epoch)) == 16
        assert broker.partition().log.log_end_offset == end
        assert await broker.add("a", leader_epoch=broker.runtime.leader_epoch("a")) == 7


async def test_an_append_is_refused_before_the_coordinator_hears_of_the_election():
    """The partition knows its new epoch before the coordinator does."""
    async with CounterBroker() as broker:
        await broker.runtime.locate("a")
        await broker.add("a", 5)
        end = broker.partition().log.log_end_offset
        broker.partition().leader_epoch += 1
        assert await code(broker.add("a")) == 16
        assert broker.partition().log.log_end_offset == end
        assert broker.value("a") == 5


async def test_a_partition_that_another_node_leads_is_coordinated_there():
    """A client that asks here is told so, and FindCoordinator names the other node."""
    async with CounterBroker() as broker:
        assert await broker.runtime.locate("a") == broker.node.node_id
        broker.resign()
        assert await broker.runtime.locate("a") == broker.node.node_id + 1
        assert await code(broker.add("a")) == 16


async def test_a_write_is_answered_when_it_is_committed():
    """An earlier response could be contradicted by a power cut."""
    broker = CounterBroker(topic_configs={"flush.messages": "1"})
    disk = slow(broker, seconds=0)
    async with broker:
        await broker.runtime.locate("a")
        disk.stands_still = True
        adding = asyncio.ensure_future(broker.add("a"))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not adding.done()
        assert broker.value("a") == 1  # later operations see the uncommitted value
        disk.stands_still = False
        disk.waiting[0].set_result(None)
        assert await adding == 1


async def test_a_write_without_enough_in_sync_replicas_appends_nothing():
    """COORDINATOR_NOT_AVAILABLE, which clients retry.

    The records were appended and replayed, and the request waited for ever.
    """
    async with CounterBroker(topic_configs={"min.insync.replicas": "2"}) as broker:
        await broker.runtime.locate("a")
        await broker.add("a", 5)
        partition = broker.partition()
        partition.change_replicas((0, 7), (0,))
        end = partition.log.log_end_offset
        assert await code(broker.add("a")) == 15
        assert await code(end_transaction(broker, 0, PRODUCER, COMMIT)) == 15
        assert (partition.log.log_end_offset, broker.value("a")) == (end, 5)
        partition.change_isr((0, 7))
        adding = asyncio.ensure_future(broker.add("a"))
        await asyncio.sleep(0)
        partition.replica_fetched(7, end + 1)
        assert await adding == 6


@pytest.mark.parametrize("marker", [False, True])
def test_a_write_that_is_not_committed_in_time_fails_and_its_records_stay(marker):
    """COORDINATOR_NOT_AVAILABLE after offsets.commit.timeout.ms, as in Kafka; it waited for ever.

    The records may be committed later.
    """

    async def main(world: Simulation) -> None:
        async with CounterBroker() as broker:
            await broker.runtime.locate("a")
            partition = broker.partition()
            partition.change_replicas((0, 7), (0, 7))
            began = asyncio.get_running_loop().time()
            waiting = end_transaction(broker, 0, PRODUCER, COMMIT) if marker else broker.add("a")
            assert await code(waiting) == 15
            assert asyncio.get_running_loop().time() - began == COMMIT_TIMEOUT
            assert (partition.log.log_end_offset, partition.high_watermark) == (1, 0)
            partition.replica_fetched(7, 1)
            assert broker.value("a") == (None if marker else 1)
            partition.change_isr((0,))
            assert await broker.add("b") == 1

    run(1, main)


def test_the_time_for_a_commit_does_not_include_the_leaders_own_flush():
    """As in Kafka, where an append flushes before it returns."""

    async def main(world: Simulation) -> None:
        broker = CounterBroker(topic_configs={"flush.messages": "1"})
        disk = slow(broker, seconds=0)
        async with broker:
            await broker.runtime.locate("a")
            broker.partition().change_replicas((0, 7), (0, 7))
            disk.stands_still = True
            adding = asyncio.ensure_future(broker.add("a"))
            await asyncio.sleep(10 * COMMIT_TIMEOUT)
            assert not adding.done()
            disk.stands_still = False
            disk.waiting[0].set_result(None)
            await asyncio.sleep(COMMIT_TIMEOUT / 2)
            broker.partition().replica_fetched(7, 1)
            assert await adding == 1

    run(1, main)


async def test_a_write_that_is_not_committed_when_the_leadership_ends_has_failed():
    """The new leader may not have the record."""
    broker = CounterBroker(topic_configs={"flush.messages": "1"})
    disk = slow(broker, seconds=0)
    async with broker:
        await broker.runtime.locate("a")
        disk.stands_still = True
        adding = asyncio.ensure_future(code(broker.add("a")))
        for _ in range(20):
            await asyncio.sleep(0)
        broker.resign()
        disk.stands_still = False
        disk.waiting[0].set_result(None)
        assert await adding == 16


async def test_a_write_of_an_earlier_leadership_is_not_answered_as_committed():
    """The write was answered although another leader had replaced its records.

    `write_all` awaits the shards in turn, so a leadership may end, and another begin, before its
    turn comes.
    """
    async with CounterBroker() as broker:
        await broker.runtime.locate("a")
        [context] = broker.runtime._contexts.values()
        outcome, end = context.write(lambda shard, _: shard.add("a", 1))
        broker.resign()
        broker.elect()
        assert broker.partition().high_watermark >= end
        assert not context.log.is_committed(end)
        with pytest.raises(NotLeaderOrFollower, match="leader epoch 0 of"):
            await context.log.committed(end)
        assert await code(context.answer(outcome, end)) == 16


async def test_answers_that_a_shard_leaves_open_end_with_its_leadership():
    """A request waits for its counter, which no later leadership would answer."""
    async with CounterBroker() as broker:
        await broker.runtime.locate("a")
        reached, open_ = (
            asyncio.ensure_future(
                broker.runtime.write("a", lambda shard, _, n=n: shard.reach("a", n))
            )
            for n in (2, 5)
        )
        await asyncio.sleep(0)
        await broker.add("a", 3)
        assert await reached == 3
        broker.resign()
        with pytest.raises(NotCoordinator):
            await open_


async def test_a_request_that_is_cancelled_leaves_nothing_behind():
    """The shard may still complete the request."""
    async with CounterBroker() as broker:
        await broker.runtime.locate("a")
        waiting = asyncio.ensure_future(
            broker.runtime.write("a", lambda shard, _: shard.reach("a", 2))
        )
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert await broker.add("a", 2) == 2
        [context] = broker.runtime._contexts.values()
        assert context._answers == set()


async def test_a_closed_coordinator_answers_15():
    """COORDINATOR_NOT_AVAILABLE makes clients look for another coordinator."""
    async with CounterBroker() as broker:
        await broker.runtime.locate("a")
        await broker.add("a")
        broker.runtime.stop()
        assert await code(broker.add("a")) == 15
        assert await code(broker.runtime.locate("a")) == 15
        with pytest.raises(BrokerError) as refused:
            broker.runtime.read_all(lambda shard: [len(shard)])
        assert refused.value.code == 15
        broker.runtime.elected(broker.partition())
        assert await code(broker.add("a")) == 15


# --- All shards


async def test_all_shards_are_written_and_read():
    """The results are by partition."""
    async with CounterBroker(partitions=3) as broker:
        await broker.runtime.locate("a")
        for name in "abcd":
            await broker.add(name)
        assert sorted(broker.runtime.read_all(lambda shard: list(shard.values))) == list("abcd")
        answers = await broker.runtime.write_all(lambda shard, _: shard.remove_all())
        assert set(answers) == {0, 1, 2}
        assert sum(answers.values()) == 4
        assert broker.runtime.read_all(lambda shard: list(shard.values)) == []


async def test_a_write_to_all_shards_leaves_out_what_is_not_loaded_and_tells_what_failed():
    """A shard that cannot write does not stop the others."""
    async with CounterBroker(partitions=3) as broker:
        await broker.runtime.locate("a")
        for name in "abc":
            await broker.add(name)
        by_partition = {partition_by_hash(name, 3): name for name in "abc"}
        assert len(by_partition) == 3
        broker.resign(0)
        broker.partition(1).leader_epoch += 1
        answers = await broker.runtime.write_all(lambda shard, _: shard.remove_all())
        assert set(answers) == {1, 2}
        assert (answers[1].code, answers[2]) == (16, 1)
        assert broker.runtime.read_all(lambda shard: [len(shard)]) == [1, 0]


async def test_a_write_need_not_have_a_response():
    """The write is complete when it returns."""
    async with CounterBroker(partitions=2) as broker:
        await broker.runtime.locate("a")
        set_to = lambda value: lambda shard, _: Outcome([record("a", value)])  # noqa: E731
        assert await broker.runtime.write("a", set_to(3)) is None
        assert broker.value("a") == 3
        assert await broker.runtime.write_all(set_to(4)) == {0: None, 1: None}
        assert broker.value("a") == 4


async def test_background_work_ends_with_the_coordinator():
    """Such work is the sending of markers."""
    async with CounterBroker() as broker:
        ended = []

        async def work() -> None:
            try:
                await asyncio.sleep(1000)
            finally:
                ended.append(True)

        broker.runtime.spawn(work(), name="work")
        await asyncio.sleep(0)
        await broker.runtime.close()
        assert ended == [True]


# --- Transactions


PRODUCER = TransactionalProducer(7, 3)


@pytest.mark.parametrize(("marker", "value"), [(COMMIT, 5), (ABORT, 1)])
@pytest.mark.parametrize("loaded_between", [False, True])
async def test_records_of_a_transaction_count_by_its_marker(marker, value, loaded_between):
    """Also if the shard is loaded between the records and the marker, or after the marker."""
    async with CounterBroker() as broker:
        await broker.runtime.locate("a")
        await broker.add("a")
        assert await broker.add("a", 4, producer=PRODUCER) == 5
        assert broker.value("a") == 1
        if loaded_between:
            broker.elect()
            await broker.loaded("b")
            assert broker.value("a") == 1
        await end_transaction(broker, 0, PRODUCER, marker)
        assert (broker.value("a"), broker.shard.pending) == (value, {})
        log = broker.partition().log
        assert log.last_stable_offset == log.log_end_offset
        broker.elect()
        await broker.loaded("b")
        assert (broker.value("a"), broker.shard.pending) == (value, {})


async def test_an_open_transaction_holds_the_last_stable_offset():
    """In the log the records have the producer's id."""
    async with CounterBroker() as broker:
        await broker.runtime.locate("a")
        await broker.add("a")
        await broker.add("a", producer=PRODUCER)
        assert broker.partition().log.last_stable_offset == 1


async def test_markers_and_records_of_an_older_epoch_are_refused():
    """INVALID_PRODUCER_EPOCH for the producer, TRANSACTION_COORDINATOR_FENCED for the coordinator.

    The transaction stays open.
    """
    async with CounterBroker() as broker:
        await broker.runtime.locate("a")
        await broker.add("a", producer=PRODUCER)
        zombie = TransactionalProducer(7, 2)
        assert await code(broker.add("a", producer=zombie)) == 47
        assert await code(end_transaction(broker, 0, zombie, COMMIT)) == 47
        await end_transaction(broker, 0, PRODUCER, COMMIT)
        assert broker.value("a") == 1
        await broker.add("a", 8, producer=PRODUCER)
        fenced = EndTransactionMarker(ControlType.COMMIT, 4)
        assert await code(end_transaction(broker, 0, PRODUCER, fenced)) == 52
        assert broker.value("a") == 1
        assert list(broker.shard.pending) == [7]


async def test_a_marker_is_refused_where_the_partition_is_not_led():
    """It gets the same errors as any write, and nothing is appended."""
    async with CounterBroker() as broker:
        await broker.runtime.locate("a")
        await broker.add("a", producer=PRODUCER)
        end = broker.partition().log.log_end_offset
        assert await code(end_transaction(broker, 1, PRODUCER, COMMIT)) == 16
        broker.resign()
        assert await code(end_transaction(broker, 0, PRODUCER, COMMIT)) == 16
        broker.elect()
        assert await code(end_transaction(broker, 0, PRODUCER, COMMIT)) == 14
        assert broker.partition().log.log_end_offset == end
        await broker.loaded("b")
        await end_transaction(broker, 0, PRODUCER, COMMIT)
        assert broker.value("a") == 1


# --- Timers


def test_a_timer_writes_by_the_loops_clock():
    """Its records are appended and replayed like those of a request."""

    async def main(world: Simulation) -> None:
        async with CounterBroker() as broker:
            await broker.runtime.locate("a")
            await broker.add("a", 5)
            await broker.runtime.write("a", lambda shard, now: shard.reset_later("a", 10, now))
            await asyncio.sleep(9.9)
            assert broker.value("a") == 5
            await asyncio.sleep(0.2)
            assert broker.value("a") == 0

    run(1, main)


def test_a_timer_whose_records_cannot_be_written_runs_again():
    """It is retried until the log accepts the records."""

    async def main(world: Simulation) -> None:
        async with CounterBroker() as broker:
            await broker.runtime.locate("a")
            await broker.add("a", 5)
            await broker.runtime.write("a", lambda shard, now: shard.reset_later("a", 10, now))
            await broker.limit_batches(1)
            await asyncio.sleep(10.1 + RETRY_SECONDS)
            assert broker.value("a") == 5
            await broker.limit_batches(10_000)
            await asyncio.sleep(RETRY_SECONDS)
            assert broker.value("a") == 0
            assert broker.shard.life == ["loaded", *["expired a"] * 3]

    run(1, main)


@pytest.mark.parametrize("elected", [False, True])
def test_no_timer_of_an_earlier_leadership_runs(elected):
    """Neither a due timer runs nor one that waits for its retry."""

    async def main(world: Simulation) -> None:
        async with CounterBroker() as broker:
            await broker.runtime.locate("a")
            await broker.add("a", 5)
            for name, seconds in (("a", 10), ("b", 1)):
                await broker.runtime.write(
                    "a", lambda shard, now, n=name, s=seconds: shard.reset_later(n, s, now)
                )
            await broker.limit_batches(1)
            await asyncio.sleep(1.1)
            await broker.limit_batches(10_000)
            first = broker.shard
            assert first.life == ["loaded", "expired b"]
            broker.resign()
            if elected:
                broker.elect()
            await asyncio.sleep(20)
            assert first.life == ["loaded", "expired b", "unloaded"]
            if elected:
                assert broker.value("a") == 5
                assert broker.shard.life == ["loaded"]

    run(1, main)


def test_a_bug_in_one_timer_does_not_stop_the_others(monkeypatch):
    """Each shard has timers of many entries."""
    monkeypatch.delenv(FAIL_ON_BUGS)

    async def main(world: Simulation) -> None:
        async with CounterBroker() as broker:
            await broker.runtime.locate("a")
            await broker.add("a", 5)

            def set_timers(shard, instant):
                shard._timers.schedule("bug", instant.now + 1, lambda _: 1 / 0)
                return shard.reset_later("a", 1, instant)

            await broker.runtime.write("a", set_timers)
            await asyncio.sleep(1.1)
            assert broker.value("a") == 0
            assert broker.node.counters.background_failures == {"timers of counters": 1}

    run(1, main)
