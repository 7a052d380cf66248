"""Publishing of metadata changes, and retries after failures of the disk or the process."""

from __future__ import annotations

import asyncio
import errno

import pytest

from aiokq import wire
from aiokq.broker.metadata.publisher.pace import PARTITIONS_PER_TURN
from aiokq.core.errors import KafkaStorage
from tests.unit.broker.harness import Broker, batch, offsets, until


def new_log(name: str):
    """Return a predicate for the first segment file of a partition."""
    return lambda path: path == f"/data/{name}/00000000000000000000.log"


async def create(broker: Broker, topic: str, partitions: int = 1) -> wire.CreatableTopicResult:
    request = wire.CreateTopicsRequest(
        topics=[wire.CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1)]
    )
    [result] = (await broker.ask(request, 7)).topics
    return result


async def grow(broker: Broker, topic: str, count: int) -> wire.CreatePartitionsTopicResult:
    request = wire.CreatePartitionsRequest(
        topics=[wire.CreatePartitionsTopic(name=topic, count=count, assignments=None)],
        timeout_ms=1000,
    )
    [result] = (await broker.ask(request, 3)).results
    return result


async def leaders(broker: Broker, topic: str) -> list[tuple[int, int]]:
    """Return error code and leader of each partition, as clients see them."""
    request = wire.MetadataRequest(topics=[wire.MetadataRequestTopic(name=topic)])
    [found] = (await broker.ask(request, 9)).topics
    return [(one.error_code, one.leader_id) for one in found.partitions]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make retries immediate."""
    monkeypatch.setattr("aiokq.core.background.FIRST_PAUSE", 0.001)
    monkeypatch.setattr("aiokq.core.background.LONGEST_PAUSE", 0.001)


async def test_a_partition_without_descriptors_is_offline_and_opened_later(impatient: None):
    """As in Kafka, the topic stays; regression: it was removed after others could have seen it."""
    async with Broker() as broker:
        broker.files.fail("open", errno.EMFILE, matches=new_log("t-1"), times=None)
        result = await create(broker, "t", 3)
        assert result.error_code == 56
        assert "Too many open files" in result.error_message
        assert await leaders(broker, "t") == [(0, 0), (5, -1), (0, 0)]
        refused = await broker.produce("t", batch(), partition=1)
        assert refused.error_code == 56
        assert "Too many open files" in refused.error_message
        assert (await broker.produce("t", batch(2), partition=2)).base_offset == 0
        assert (await create(broker, "t", 3)).error_code == 36

        heard = []
        broker.node.topics.listeners.append(heard.append)
        broker.files.heal()
        partition = broker.node.topics.partition("t", 1)
        await until(lambda: partition.is_online)
        assert heard == [broker.node.topics.get("t")]
        assert await leaders(broker, "t") == [(0, 0)] * 3
        assert (await broker.produce("t", batch(), partition=1)).base_offset == 0
        assert offsets((await broker.fetch_one("t", 1, 0)).records) == [0]


async def test_coordinators_lead_a_partition_that_is_opened_later(impatient: None):
    """Listeners are notified when it is opened, not only at its creation."""
    elected = []

    class Listener:
        def elected(self, partition):
            elected.append(str(partition.name))

        def resigned(self, partition): ...

    async with Broker() as broker:
        broker.node.leadership_listeners.append(Listener())
        broker.files.fail("open", errno.EMFILE, matches=new_log("t-0"), times=None)
        await create(broker, "t", 2)
        assert elected == ["t-1"]
        broker.files.heal()
        await until(lambda: len(elected) == 2)
        assert elected == ["t-1", "t-0"]


async def test_a_directory_fails_while_a_topic_is_created():
    """The partitions that are open already are not found by requests yet.

    Regression: those in the failed directory stayed online for clients, metrics and coordinators.
    """
    resigned: list[int] = []

    class Listener:
        def elected(self, partition):
            if partition.index == PARTITIONS_PER_TURN - 1:
                error = OSError(errno.EIO, "Input/output error")
                broker.node.log_directories[0].disk.refused(None, "append failed", error)

        def resigned(self, partition):
            resigned.append(partition.index)

    async with Broker(directories=["/a", "/b"]) as broker:
        broker.node.leadership_listeners.append(Listener())
        count = PARTITIONS_PER_TURN + 8
        assert (await create(broker, "t", count)).error_code == 0
        failed = [*range(0, PARTITIONS_PER_TURN, 2)]
        assert resigned == failed
        expected = [(5, -1) if index in failed else (0, 0) for index in range(count)]
        assert await leaders(broker, "t") == expected
        assert offline_partitions(broker) == len(failed)
        assert (await broker.produce("t", batch(), partition=0)).error_code == 56
        assert (await broker.produce("t", batch(), partition=1)).base_offset == 0


async def test_fetches_wait_for_a_partition_that_has_another_listener(impatient: None):
    """Regression: a listener added before the partition was led kept fetches from waking."""
    async with Broker() as broker:
        broker.files.fail("open", errno.EMFILE, matches=new_log("t-0"))
        await create(broker, "t")
        partition = broker.node.topics.partition("t", 0)
        heard: list[int] = []
        partition.high_watermark_listeners.append(heard.append)
        await until(lambda: partition.is_online)
        fetch = asyncio.ensure_future(broker.fetch_one("t", 0, 0, max_wait_ms=600_000))
        await until(lambda: len(broker.node.purgatory))
        assert (await broker.produce("t", batch(2))).base_offset == 0
        async with asyncio.timeout(30):
            assert offsets((await fetch).records) == [0, 1]
        assert len(heard) == 1


async def test_an_added_partition_that_cannot_be_opened_is_offline(impatient: None):
    """Existing partitions are still served, and the topic has the requested partition count."""
    async with Broker() as broker:
        await broker.create("t", 1)
        broker.files.fail("open", errno.EMFILE, matches=new_log("t-1"), times=None)
        assert (await grow(broker, "t", 3)).error_code == 56
        assert await leaders(broker, "t") == [(0, 0), (5, -1), (0, 0)]
        assert (await grow(broker, "t", 3)).error_code == 37
        broker.files.heal()
        await until(lambda: broker.node.topics.partition("t", 1).is_online)


async def test_a_topic_is_deleted_while_a_log_of_it_waits_to_be_opened(impatient: None):
    """A log opened after the deletion would belong to no topic, and still exist after a restart."""
    async with Broker() as broker:
        broker.files.fail("open", errno.EMFILE, matches=new_log("t-0"), times=None)
        await create(broker, "t", 2)
        partition = broker.node.topics.partition("t", 0)
        await broker.node.metadata.delete_topic(broker.node.topics.get("t"))
        broker.files.heal()
        await broker.create("t", 1)
        assert broker.node.topics.partition("t", 0) is not partition
        await asyncio.sleep(0.01)  # longer than the pause before a retry
        assert not partition.is_online
        assert [str(log.topic_partition) for log in broker.node.storage.directories.logs()] == [
            "t-0"
        ]
    async with Broker(broker.files) as again:
        assert await leaders(again, "t") == [(0, 0)]


async def test_what_a_stop_leaves_unopened_the_next_start_opens():
    """The metadata has the partition."""
    async with Broker() as broker:
        broker.files.fail("open", errno.EMFILE, matches=new_log("t-0"), times=None)
        await create(broker, "t", 2)
        await broker.produce("t", batch(3), partition=1)
    broker.files.heal()
    async with Broker(broker.files) as again:
        assert await leaders(again, "t") == [(0, 0), (0, 0)]
        assert (await again.produce("t", batch(), partition=0)).base_offset == 0
        assert offsets((await again.fetch_one("t", 1, 0)).records) == [0, 1, 2]


async def test_settings_that_change_meanwhile_are_those_of_the_log(impatient: None):
    """The configs changed while the partition had no log to which they could be applied."""
    async with Broker() as broker:
        broker.files.fail("open", errno.EMFILE, matches=new_log("t-0"), times=None)
        await create(broker, "t")
        topic = broker.node.topics.get("t")
        await broker.node.metadata.alter_topic_configs(topic, lambda _: {"retention.ms": "5"})
        broker.files.heal()
        await until(lambda: topic.partitions[0].is_online)
        assert topic.partitions[0].log.config.retention_ms == 5


async def test_topics_are_gone_for_requests_before_their_logs_are():
    """A directory that cannot be renamed is logged, and the topic is gone all the same."""
    async with Broker() as broker:
        await broker.create("t", 2)
        broker.files.fail("rename", errno.EIO, matches=lambda path: "t-0" in path)
        with pytest.raises(KafkaStorage):
            await broker.node.metadata.delete_topic(broker.node.topics.get("t"))
        assert broker.node.topics.get("t") is None


class Nth:
    """Matches the nth and all later file operations on paths of one partition."""

    def __init__(self, nth: int, name: str = "t-0") -> None:
        self.left = nth
        self.name = name

    def __call__(self, path: str) -> bool:
        if f"/{self.name}" in path:
            self.left -= 1
            return self.left < 0
        return False


def no_descriptors(broker: Broker, operation: str, nth: int = 0, name: str = "t-0") -> None:
    broker.files.fail(operation, errno.EMFILE, matches=Nth(nth, name), times=None)


def offline_partitions(broker: Broker) -> int:
    return broker.node.counters.offline_partitions.read()


@pytest.mark.parametrize(
    ("operation", "nth"),
    [
        ("mkdirs", 0),
        *(("listdir", n) for n in range(4)),
        *(("open", n) for n in range(2)),
        ("rename", 0),
    ],
)
async def test_a_creation_that_fails_at_any_file_operation_is_repeated(
    impatient: None, operation: str, nth: int
):
    """Files that the failed attempt left must not stop the next attempt."""
    async with Broker() as broker:
        no_descriptors(broker, operation, nth)
        result = await create(broker, "t", 2)
        assert result.error_code == 56
        assert await leaders(broker, "t") == [(5, -1), (0, 0)]
        assert offline_partitions(broker) == 1
        assert (await broker.produce("t", batch())).error_code == 56
        assert (await broker.fetch_one("t", 0, 0)).error_code == 56
        broker.files.heal()
        await until(lambda: broker.node.topics.partition("t", 0).is_online)
        assert offline_partitions(broker) == 0
        assert (await broker.produce("t", batch(3))).base_offset == 0
    async with Broker(broker.files) as again:
        assert offsets((await again.fetch_one("t", 0, 0)).records) == [0, 1, 2]


@pytest.mark.parametrize(
    ("operation", "nth"),
    [("mkdirs", 0), *(("listdir", n) for n in range(4)), ("open", 0), ("read_bytes", 0)],
)
async def test_a_log_that_cannot_be_opened_at_a_start_is_opened_later(
    impatient: None, operation: str, nth: int
):
    """Regression: it was offline until the next start, although a descriptor was free by then."""
    async with Broker() as before:
        await before.create("t", 2)
        await before.produce("t", batch(3))
    broker = Broker(before.files)
    no_descriptors(broker, operation, nth)
    async with broker:
        assert await leaders(broker, "t") == [(5, -1), (0, 0)]
        assert (await broker.produce("t", batch())).error_code == 56
        broker.files.heal()
        await until(lambda: broker.node.topics.partition("t", 0).is_online)
        assert (await broker.produce("t", batch())).base_offset == 3
        assert offsets((await broker.fetch_one("t", 0, 0)).records) == [0, 1, 2, 3]


@pytest.mark.parametrize("operation", ["mkdirs", "listdir", "open"])
async def test_a_log_that_cannot_be_recovered_at_a_start_is_recovered_later(
    impatient: None, operation: str
):
    """The retry recovers the log after a kill and begins a new leader epoch, as a start does."""
    before = Broker()
    await before.node.open()
    await before.create("t", 2)
    await before.produce("t", batch(3))
    before.files.crash()
    broker = Broker(before.files)
    no_descriptors(broker, operation)
    async with broker:
        assert (await leaders(broker, "t"))[0] == (5, -1)
        broker.files.heal()
        partition = broker.node.topics.partition("t", 0)
        await until(lambda: partition.is_online)
        assert partition.leader_epoch == broker.node.topics.partition("t", 1).leader_epoch == 1
        assert (await broker.produce("t", batch())).base_offset == partition.log.log_end_offset - 1


async def test_requests_for_an_offline_partition_create_no_files(impatient: None):
    """A file created by a request would be in another directory than the retry may choose."""
    async with Broker() as broker:
        no_descriptors(broker, "mkdirs")
        await create(broker, "t")
        await broker.produce("t", batch())
        await broker.fetch_one("t", 0, 0)
        request = wire.DeleteRecordsRequest(
            topics=[
                wire.DeleteRecordsTopic(
                    name="t",
                    partitions=[wire.DeleteRecordsPartition(partition_index=0, offset=0)],
                )
            ],
            timeout_ms=1000,
        )
        [topic] = (await broker.ask(request, 2)).topics
        assert [one.error_code for one in topic.partitions] == [56]
        assert "t-0" not in broker.files.listdir("/data")


async def test_settings_change_while_a_partition_is_offline(impatient: None):
    """The change succeeds, and the log has the configs when it is opened."""
    async with Broker() as broker:
        no_descriptors(broker, "mkdirs")
        await create(broker, "t")
        topic = broker.node.topics.get("t")
        await broker.node.metadata.alter_topic_configs(topic, lambda _: {"retention.ms": "7"})
        await broker.node.metadata.alter_topic_configs(topic, lambda _: {"retention.ms": "8"})
        broker.files.heal()
        await until(lambda: topic.partitions[0].is_online)
        assert topic.partitions[0].log.config.retention_ms == 8


async def test_a_topic_grows_while_a_partition_is_offline(impatient: None):
    """The new partitions are online at once, the offline one when its log can be opened."""
    async with Broker() as broker:
        no_descriptors(broker, "mkdirs")
        await create(broker, "t")
        assert (await grow(broker, "t", 3)).error_code == 0
        assert await leaders(broker, "t") == [(5, -1), (0, 0), (0, 0)]
        broker.files.heal()
        await until(lambda: broker.node.topics.partition("t", 0).is_online)


async def test_a_directory_that_fails_ends_the_retries_in_it(impatient: None):
    """The directory and all of its partitions are offline until the broker restarts."""
    async with Broker() as before:
        await before.create("t", 2)
    broker = Broker(before.files)
    no_descriptors(broker, "mkdirs")
    async with broker:
        opening = broker.node.storage.publisher._opening
        assert list(opening._refused) == [broker.node.topics.partition("t", 0)]
        [directory] = broker.node.storage.directories.all
        directory.disk.refused(None, "append failed", OSError(errno.EIO, "Input/output error"))
        await until(lambda: not opening._retrying)
        assert opening._refused == {}
        assert await leaders(broker, "t") == [(5, -1)] * 2


async def test_a_node_closes_while_a_log_is_opened_again():
    """Closing the node ends the pause before the next attempt."""
    async with Broker() as broker:
        no_descriptors(broker, "mkdirs")
        await create(broker, "t")
        async with asyncio.timeout(30):
            await broker.node.close()
    broker.files.heal()
    async with Broker(broker.files) as again:
        assert await leaders(again, "t") == [(0, 0)]


async def test_a_refused_deletion_is_repeated(impatient: None):
    """Regression: the directory of a deleted topic stayed until the next start."""
    async with Broker() as broker:
        await broker.create("t", 2)
        no_descriptors(broker, "rename")
        with pytest.raises(KafkaStorage, match="Too many open files"):
            await broker.node.metadata.delete_topic(broker.node.topics.get("t"))
        assert broker.node.topics.get("t") is None
        assert "t-0" in broker.files.listdir("/data")
        broker.files.heal()
        await until(lambda: "t-0" not in broker.files.listdir("/data"))
        await until(lambda: not broker.node.storage.publisher._deletion.is_retrying)


async def test_a_deletion_that_is_not_durable_is_synced_again(impatient: None):
    """Regression: without a free descriptor the sync failed, and a power cut restored the files."""
    async with Broker() as broker:
        await broker.create("t")
        fault = broker.files.fail("sync_dir", errno.EMFILE, times=3)
        with pytest.raises(KafkaStorage):
            await broker.node.metadata.delete_topic(broker.node.topics.get("t"))
        await until(lambda: not broker.node.storage.publisher._deletion.is_retrying)
        assert fault.times == 0


async def test_a_topic_is_created_again_while_its_deletion_is_repeated(impatient: None):
    """The retry must not delete the log of the new topic of this name."""
    async with Broker(log_segment_delete_delay_ms=1) as broker:
        await broker.create("t")
        await broker.produce("t", batch(3))
        no_descriptors(broker, "rename")
        with pytest.raises(KafkaStorage):
            await broker.node.metadata.delete_topic(broker.node.topics.get("t"))
        broker.files.heal()
        await broker.create("t")
        assert (await broker.produce("t", batch())).base_offset == 0
        await until(lambda: not broker.node.storage.publisher._deletion.is_retrying)
        assert offsets((await broker.fetch_one("t", 0, 0)).records) == [0]
        assert not [name for name in broker.files.listdir("/data") if name.endswith("-stray")]
        await until(lambda: not any("-delete" in name for name in broker.files.listdir("/data")))


async def test_a_creation_that_a_crash_interrupts_is_finished_by_the_next_start(monkeypatch):
    """Its records are durable, but its logs were not created yet."""
    broker = Broker()
    await broker.node.open()
    with monkeypatch.context() as patch:

        async def crash(delta):
            broker.files.crash()
            raise KafkaStorage("the process ends here")

        patch.setattr(broker.node.storage.publisher, "publish", crash)
        assert (await create(broker, "t", 2)).error_code == 56
    async with Broker(broker.files) as again:
        assert await leaders(again, "t") == [(0, 0), (0, 0)]
        assert (await again.produce("t", batch())).base_offset == 0


async def test_a_deletion_that_a_crash_interrupts_is_finished_by_the_next_start(monkeypatch):
    """The topic's directories are renamed, so that a new topic of its name begins empty."""
    broker = Broker()
    await broker.node.open()
    await broker.create("t", 2)
    await broker.produce("t", batch(3))
    with monkeypatch.context() as patch:

        async def crash(delta):
            broker.files.crash()
            raise KafkaStorage("the process ends here")

        patch.setattr(broker.node.storage.publisher, "publish", crash)
        with pytest.raises(KafkaStorage):
            await broker.node.metadata.delete_topic(broker.node.topics.get("t"))
    async with Broker(broker.files) as again:
        assert again.node.topics.get("t") is None
        assert not {"t-0", "t-1"} & set(again.files.listdir("/data"))
        await again.create("t")
        assert (await again.produce("t", batch())).base_offset == 0
