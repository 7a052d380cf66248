"""Snapshots of a running broker's data, and clusters that start from one."""

from __future__ import annotations

import asyncio
import errno
import itertools
import json

import pytest

from aiokq.broker.embedded import EmbeddedCluster
from aiokq.broker.log import file_names
from aiokq.broker.metadata.log.metadata_reader import MetadataReader
from aiokq.broker.snapshot import ATTEMPTS, restore_snapshot, take_snapshot
from aiokq.core.errors import ConfigError, KafkaStorage
from aiokq.core.offload import InlineOffload
from aiokq.fastpath import crc32c
from aiokq.producer.producer import Producer
from tests.sim.harness.files import MemoryFiles
from tests.sim.harness.simulation import Simulation, run
from tests.unit.broker.coordinator.group.test_group_coordinator import GroupBroker
from tests.unit.broker.harness import NOW_MS, Broker, batch, offsets


class At(Broker):
    """Start a node on the copy."""

    def __init__(self, files: MemoryFiles, path: str = "/copy", **settings: object) -> None:
        super().__init__(files, **settings)
        self.node._data_dirs = (path,)


async def filled(broker: Broker) -> None:
    """Two topics; one has three segments, of which the first is deleted."""
    await broker.create("t", 2)
    for _ in range(3):
        await broker.produce("t", batch(2))
        broker.node.topics.partition("t", 0).log.roll(NOW_MS)
    await broker.produce("t", batch(1))
    broker.node.topics.partition("t", 0).log.delete_records(2)
    await broker.create("u", retention_ms=5)
    await broker.produce("u", batch(1))


async def test_a_broker_on_the_copy_has_everything_and_scans_nothing(caplog):
    """The copy has records, log start, topics, settings, ids and a clean shutdown's marker."""
    async with Broker() as broker:
        await filled(broker)
        ids = {topic.name: topic.topic_id for topic in broker.node.topics}
        cluster_id = broker.node.cluster_id
        await take_snapshot(broker.node, "/copy")
        # Kafka takes the copy for unclean if the epoch is not that of the registration.
        marker = json.loads(broker.files.read_bytes("/copy/.kafka_cleanshutdown"))
        epoch = broker.node.storage.metadata.image.brokers[0].broker_epoch
        assert marker["brokerEpoch"] == epoch
        await broker.produce("u", batch(1))  # not in the copy
        async with At(broker.files) as copy:
            assert {topic.name: topic.topic_id for topic in copy.node.topics} == ids
            assert copy.node.cluster_id == cluster_id
            assert copy.node.topics.get("u").config.retention_ms == 5
            data = await copy.fetch_one("t", 0, 2)
            assert (data.log_start_offset, offsets(data.records)) == (2, [2, 3, 4, 5, 6])
            assert offsets((await copy.fetch_one("u", 0, 0)).records) == [0]
            assert copy.node.topics.partition("t", 0).leader_epoch == 0
            assert (await copy.produce("u", batch(1))).base_offset == 1
        assert offsets((await broker.fetch_one("u", 0, 0)).records) == [0, 1]
    assert "recover" not in caplog.text


async def test_no_file_is_shared_with_the_copy():
    """A bad block in a file of the broker must not damage the backup."""
    async with Broker() as broker:
        await filled(broker)
        await take_snapshot(broker.node, "/copy")
        inode = broker.files._file
        for base in (2, 4, 6):
            for suffix in (file_names.LOG, file_names.INDEX, file_names.TIME_INDEX):
                path = f"t-0/{base:020d}{suffix}"
                assert inode(f"/data/{path}") is not inode(f"/copy/{path}")
        assert not [
            n for n in broker.files.listdir("/copy/t-0") if n.endswith(file_names.TEMPORARY)
        ]


async def test_a_segment_that_is_the_newest_again_is_not_written_in_the_copy():
    """After a power cut that loses the newest segment, the broker appends to a finished one."""
    async with Broker() as broker:
        await filled(broker)
        await take_snapshot(broker.node, "/copy")
    files = broker.files
    files.remove(f"/data/t-0/{6:020d}.log")
    files.remove("/data/.kafka_cleanshutdown")
    async with Broker(files) as again:
        assert again.node.topics.partition("t", 0).log.log_end_offset == 6
        assert (await again.produce("t", batch(9))).base_offset == 6
        async with At(files) as copy:
            assert offsets((await copy.fetch_one("t", 0, 2)).records) == [2, 3, 4, 5, 6]


async def test_a_file_system_without_links_gets_copies():
    """For example a target on another disk, or on a FAT file system."""
    async with Broker() as broker:
        await filled(broker)
        broker.files.fail("link", errno.EXDEV, times=None)
        await take_snapshot(broker.node, "/copy")
        broker.files.heal()
        async with At(broker.files) as copy:
            assert offsets((await copy.fetch_one("t", 0, 2)).records) == [2, 3, 4, 5, 6]


async def test_groups_and_producers_are_in_it():
    """Committed offsets and producer state are in the copy."""
    known = {"producer_id": 0, "producer_epoch": 0}
    async with GroupBroker() as broker:
        await broker.create("t")
        await broker.find()
        await broker.produce("t", batch(2, base_sequence=0, **known))
        assert await broker.commit(2, generation_id_or_member_epoch=-1) == 0
        await take_snapshot(broker.node, "/copy")
        copy = GroupBroker(broker.files)
        copy.node._data_dirs = ("/copy",)
        async with copy:
            repeated = await copy.produce("t", batch(2, base_sequence=0, **known))
            assert (repeated.error_code, repeated.base_offset) == (0, 0)
            assert copy.node.topics.partition("t", 0).log.log_end_offset == 2
            while await copy.committed() == 14:  # noqa: ASYNC110 - loading has no event
                await asyncio.sleep(0)
            assert await copy.committed() == {("t", 0): 2}


@pytest.mark.parametrize("empty", [True, False])
async def test_producers_of_deleted_segments_are_known_after_a_kill_on_the_copy(empty: bool):
    """Regression: the copy had only the snapshot of the log end, which recovery removes."""
    sent = batch(1, producer_id=0, producer_epoch=0, base_sequence=0)
    async with Broker() as broker:
        await broker.create("t")
        assert (await broker.produce("t", sent)).base_offset == 0
        log = broker.node.topics.partition("t", 0).log
        log.roll(NOW_MS)
        if not empty:
            await broker.produce("t", batch(1))
        log.delete_records(1)
        log.purge()
        await take_snapshot(broker.node, "/copy")
    files = broker.files
    files.remove(f"/copy/{file_names.CLEAN_SHUTDOWN}")
    async with At(files) as copy:
        again = await copy.produce("t", sent)
        assert (again.error_code, again.base_offset) == (0, 0)
        assert copy.node.topics.partition("t", 0).log.log_start_offset == 1


async def test_what_is_compacted_is_known_to_be():
    """Otherwise the cleaner of the copy starts at the first record of each log."""
    async with Broker() as broker:
        await filled(broker)
        [directory] = broker.node.storage.directories.all
        t, u = (broker.node.topics.partition(name, 0).name for name in "tu")
        directory.checkpoints.cleaned_offsets.note(t, 4)
        await take_snapshot(broker.node, "/copy")
        async with At(broker.files) as copy:
            [directory] = copy.node.storage.directories.all
            cleaned = directory.checkpoints.cleaned_offsets
            assert (cleaned.get(t), cleaned.get(u)) == (4, None)


async def test_all_partitions_are_of_one_moment():
    """A committed offset beyond the log end offset would reset the consumer."""

    class Busy(InlineOffload):
        """Let other tasks run at each step in the executor."""

        async def run(self, fn, *args):
            await asyncio.sleep(0)
            result = await super().run(fn, *args)
            await asyncio.sleep(0)
            return result

    async with Broker() as broker:
        await broker.create("a")
        await broker.create("b")
        object.__setattr__(broker.node.environment, "offload", Busy())
        stop = asyncio.Event()

        async def write() -> None:
            while not stop.is_set():  # always `a` before `b`
                await broker.produce("a", batch())
                await broker.produce("b", batch())
                await asyncio.sleep(0)

        writing = asyncio.ensure_future(write())
        await asyncio.sleep(0)
        for number in range(5):
            await take_snapshot(broker.node, f"/copy{number}")
        stop.set()
        await writing
        for number in range(5):
            async with At(broker.files, f"/copy{number}") as copy:
                a, b = (copy.node.topics.partition(t, 0).log.log_end_offset for t in "ab")
                assert a - 1 <= b <= a
                assert offsets((await copy.fetch_one("a", 0, 0)).records) == list(range(a))


async def test_segments_deleted_meanwhile_are_no_hole():
    """A segment that retention deletes during the copy restarts the snapshot."""
    async with Broker() as broker:
        await filled(broker)
        log = broker.node.topics.partition("t", 0).log
        link = broker.files.link
        calls = []

        def delete_first(source: str, path: str) -> None:
            calls.append(source)
            if len(calls) == 1:
                log.delete_records(4)
            link(source, path)

        broker.files.link = delete_first
        await take_snapshot(broker.node, "/copy")
        broker.files.link = link
        async with At(broker.files) as copy:
            data = await copy.fetch_one("t", 0, 4)
            assert (data.log_start_offset, offsets(data.records)) == (4, [4, 5, 6])


async def test_one_that_cannot_be_had_whole_is_not_there_at_all():
    """A partial snapshot could be mistaken for a complete one."""
    async with Broker() as broker:
        await filled(broker)
        fault = broker.files.fail("link", errno.ENOENT, times=None)
        with pytest.raises(KafkaStorage, match=f"during each of {ATTEMPTS} attempts"):
            await take_snapshot(broker.node, "/copy")
        broker.files.heal()
        assert fault
        broker.files.fail("pwritev", errno.ENOSPC, matches=lambda path: path.startswith("/copy"))
        with pytest.raises(KafkaStorage, match="No space left"):
            await take_snapshot(broker.node, "/copy")
        assert [name for name in broker.files.listdir("/") if "copy" in name] == []
        await take_snapshot(broker.node, "/copy")
        with pytest.raises(ConfigError, match="/copy exists and is not an empty directory"):
            await take_snapshot(broker.node, "/copy")


async def test_a_power_cut_after_it_leaves_it_whole():
    """A snapshot must survive a power cut right after it was taken."""
    files = MemoryFiles()
    broker = Broker(files)
    async with broker:
        await filled(broker)
        await take_snapshot(broker.node, "/copy")
        files.power_cut()
        async with At(files) as copy:
            assert offsets((await copy.fetch_one("t", 0, 2)).records) == [2, 3, 4, 5, 6]
            assert offsets((await copy.fetch_one("u", 0, 0)).records) == [0]
        broker.node._storage = None  # as if its machine were gone


@pytest.mark.parametrize("end", ["crash", "power_cut"])
async def test_a_copy_that_was_interrupted_is_not_served_as_if_it_were_all(end: str):
    """Regression: the marker of a clean shutdown was copied first.

    Topics whose partitions had not been copied yet were then recreated empty without a warning.
    """
    files = MemoryFiles()
    async with Broker(files) as broker:
        await filled(broker)
        await take_snapshot(broker.node, "/copy")
    files.sync_dir("/")
    served = 0
    for at in range(1, 100):
        opened = itertools.count(1)
        files.fail("open", errno.EIO, matches=lambda path, at=at, n=opened: next(n) == at)
        try:
            restore_snapshot(files, "/copy", f"/data{at}")
        except OSError:
            files.heal()
        else:
            break
        getattr(files, end)()
        metadata = MetadataReader(files, f"/data{at}/{file_names.CLUSTER_METADATA}", crc32c)
        knows_topics = metadata.exists()
        copy = At(files, f"/data{at}")
        try:
            await copy.node.open()
        except KafkaStorage:
            assert knows_topics  # a part of the metadata log refuses the start
        else:
            if knows_topics:  # otherwise the start reports that it uses the topics it finds
                assert offsets((await copy.fetch_one("t", 0, 2)).records) == [2, 3, 4, 5, 6]
                served += 1
            await copy.node.close()
    assert at > 20
    assert served > 3


async def test_markers_that_declare_data_complete_are_copied_last():
    """A copy that was interrupted has no topics to create empty (*Non-obvious* 34)."""
    files = MemoryFiles()
    async with Broker(files) as broker:
        await filled(broker)
        await take_snapshot(broker.node, "/copy")
    opened: list[str] = []
    files.fail("open", errno.EIO, matches=lambda path: opened.append(path), times=None)
    restore_snapshot(files, "/copy", "/data2")
    copied = [path.removeprefix("/data2/") for path in opened if path.startswith("/data2/")]
    copied = [path for path in copied if path != file_names.LOCK]
    log = f"{file_names.CLUSTER_METADATA}/"
    partitions = [at for at, path in enumerate(copied) if "/" in path and log not in path]
    metadata = [at for at, path in enumerate(copied) if log in path]
    assert len(partitions) > 5
    assert max(partitions) < min(metadata)
    assert copied[-1] == file_names.CLEAN_SHUTDOWN
    assert max(metadata) < len(copied) - 1


async def test_what_is_no_snapshot_is_refused_before_anything_is_made():
    """A wrong path must not start an empty cluster."""
    files = MemoryFiles()
    files.mkdirs("/somewhere")
    with pytest.raises(ConfigError, match="neither a snapshot nor"):
        restore_snapshot(files, "/somewhere", "/data")
    assert not files.exists("/data")
    async with Broker(files):
        with pytest.raises(ConfigError, match="in use by a broker"):
            restore_snapshot(files, "/data", "/other")


async def snapshot_of_a_broker() -> MemoryFiles:
    files = MemoryFiles()
    async with Broker(files) as broker:
        await broker.create("t")
        await broker.produce("t", batch(2))
        await take_snapshot(broker.node, "/copy")
    return files


def refused(files: MemoryFiles, kind: type[Exception], text: str, source: str = "/copy") -> None:
    """Check that the snapshot is refused before anything is copied."""
    with pytest.raises(kind, match=text):
        restore_snapshot(files, source, "/restored")
    assert not files.exists("/restored")


async def test_one_without_its_metadata_is_refused_by_what_is_missing():
    """Regression: the topics started without their settings, or with voters "unknown"."""
    metadata = f"/copy/{file_names.CLUSTER_METADATA}"
    for name in ("", "quorum-state", ".checkpoint"):
        files = await snapshot_of_a_broker()
        [path] = [one for one in files.listdir(metadata) if one.endswith(name)] if name else [""]
        files.remove_tree(f"{metadata}/{path}".rstrip("/"))
        missing = "quorum-state is missing" if name == "quorum-state" else "neither a log nor"
        refused(files, ConfigError, f"/copy is incomplete: .*{missing}.*copy it again")


async def test_one_whose_metadata_is_cut_off_at_any_byte_is_refused():
    metadata = f"/copy/{file_names.CLUSTER_METADATA}"
    files = await snapshot_of_a_broker()
    [name] = [one for one in files.listdir(metadata) if one.endswith(".checkpoint")]
    path = f"{metadata}/{name}"
    whole = files.read_bytes(path)
    for size in range(len(whole)):
        files.write_atomic(path, whole[:size])
        refused(files, KafkaStorage, f"missing or damaged: .*{name}.*Copy it again")


async def test_a_stopped_broker_whose_metadata_log_is_cut_off_is_refused():
    """After a kill, the same log has a torn tail, which is cut."""
    files = MemoryFiles()
    async with Broker(files) as broker:
        await broker.create("t")
    path = f"/data/{file_names.CLUSTER_METADATA}/{0:020d}.log"
    files.write_atomic(path, files.read_bytes(path)[:-1])
    refused(files, ConfigError, f"stopped cleanly, but {path} ends inside a batch", "/data")
    files.remove(f"/data/{file_names.CLEAN_SHUTDOWN}")
    restore_snapshot(files, "/data", "/restored")
    async with At(files, "/restored") as copy:
        assert copy.node.topics.get("t")


def test_a_cluster_begins_with_a_snapshot_any_number_of_times():
    """Tests restore prepared data instead of producing it each time."""

    async def main(world: Simulation) -> None:
        environment = world.environment()
        async with EmbeddedCluster(environment=environment) as kafka:
            async with Producer(kafka.bootstrap_servers, _environment=environment) as producer:
                await producer.send("seeded", b"one")
            await kafka.snapshot("/seed")
        for _ in range(3):
            async with (
                EmbeddedCluster(restore_from="/seed", environment=environment) as kafka,
                Producer(kafka.bootstrap_servers, _environment=environment) as producer,
            ):
                assert (await producer.send("seeded", b"two")).offset == 1
        async with EmbeddedCluster(
            data_dir="/kept", restore_from="/seed", environment=environment
        ) as kafka:
            assert kafka.node.topics.partition("seeded", 0).log.log_end_offset == 1
        with pytest.raises(ConfigError, match="/kept exists and is not an empty directory"):
            async with EmbeddedCluster(
                data_dir="/kept", restore_from="/seed", environment=environment
            ):
                pass

    run(1, main)
