"""The metadata says in which log directory each replica is, soon after the node knows."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from aiokq import wire
from aiokq.broker.config.settings import broker_settings
from aiokq.broker.metadata.controller.controller import Controller
from aiokq.broker.metadata.directory_assignment import DirectoryAssignment
from aiokq.broker.metadata.image.features import DIRECTORY_ASSIGNMENT, METADATA_VERSION
from aiokq.broker.metadata.image.image import MetadataImage
from aiokq.broker.metadata.log.bootstrap_checkpoint import write_bootstrap_checkpoint
from aiokq.core.background import BackgroundWork
from aiokq.core.counters import BrokerCounters
from aiokq.core.errors import Closed, KafkaStorage
from aiokq.core.supervisor import Supervisor
from aiokq.fastpath import crc32c
from aiokq.wire.cluster_metadata_records import FeatureLevelRecord, PartitionRecord, TopicRecord
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.harness import Broker, batch, offsets, until
from tests.unit.broker.metadata.metadata_logs import read

A, B = "/a", "/b"
TOPIC = uuid.UUID(int=77)
HERE, THERE = uuid.UUID(int=501), uuid.UUID(int=502)


class Changes:
    """Keeps what it is asked to record; waits for `gate`, and raises the given errors first."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.recorded: list[dict[tuple[uuid.UUID, int], uuid.UUID]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def assign_directories(self, places) -> None:
        await self.gate.wait()
        if self.errors:
            raise self.errors.pop(0)
        self.recorded.append(dict(places))


@pytest.fixture
async def supervisor():
    made = Supervisor("test")
    await made.start()
    yield made
    await made.close()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make retries immediate."""
    monkeypatch.setattr("aiokq.core.background.FIRST_PAUSE", 0.001)
    monkeypatch.setattr("aiokq.core.background.LONGEST_PAUSE", 0.001)


def assignment(changes: Changes, supervisor: Supervisor) -> DirectoryAssignment:
    background = BackgroundWork(BrokerCounters(), asyncio.get_running_loop().time)
    return DirectoryAssignment(changes, supervisor, background)


async def test_places_are_recorded_together(supervisor: Supervisor) -> None:
    """A topic of many partitions is one append; the last place of a replica counts."""
    changes = Changes()
    made = assignment(changes, supervisor)
    for index in range(5):
        made.placed(TOPIC, index, HERE)
    made.placed(TOPIC, 4, THERE)
    await until(lambda: changes.recorded)
    [places] = changes.recorded
    assert places == {**{(TOPIC, index): HERE for index in range(4)}, (TOPIC, 4): THERE}


async def test_what_comes_during_a_record_is_recorded_after_it(supervisor: Supervisor) -> None:
    """Nothing is forgotten."""
    changes = Changes()
    changes.gate.clear()
    made = assignment(changes, supervisor)
    made.placed(TOPIC, 0, HERE)
    await asyncio.sleep(0)
    made.placed(TOPIC, 1, HERE)
    changes.gate.set()
    await until(lambda: len(changes.recorded) == 2)
    made.placed(TOPIC, 2, HERE)  # the task has ended
    await until(lambda: len(changes.recorded) == 3)
    assert [list(one) for one in changes.recorded] == [[(TOPIC, n)] for n in range(3)]


async def test_after_a_failure_it_is_tried_again(supervisor: Supervisor) -> None:
    """A newer place of a replica replaces the one that could not be recorded."""
    changes = Changes(KafkaStorage("no descriptors"), KafkaStorage("no descriptors"))
    changes.gate.clear()
    made = assignment(changes, supervisor)
    made.placed(TOPIC, 0, HERE)
    made.placed(TOPIC, 1, HERE)
    await asyncio.sleep(0)
    made.placed(TOPIC, 1, THERE)
    changes.gate.set()
    await until(lambda: changes.recorded)
    assert changes.recorded == [{(TOPIC, 0): HERE, (TOPIC, 1): THERE}]


async def test_a_node_that_stops_records_nothing_more(supervisor: Supervisor) -> None:
    """The next start finds the logs, and tells it again."""
    changes = Changes(Closed("stopping"))
    made = assignment(changes, supervisor)
    made.placed(TOPIC, 0, HERE)
    await until(lambda: not changes.errors)
    await supervisor.close()
    made.placed(TOPIC, 1, HERE)
    await asyncio.sleep(0)
    assert changes.recorded == []


def places(files: MemoryFiles, node: Broker) -> list[str]:
    """Return the path of the directory of each partition of topic t, according to the log."""
    state = read_at(files, A)
    paths = {one.directory_id: one.path for one in node.node.storage.directories.all}
    return [paths[one.directories[0]] for one in state.topics["t"].partitions]


def read_at(files: MemoryFiles, path: str):
    from aiokq.broker.metadata.log.metadata_reader import MetadataReader
    from aiokq.fastpath import crc32c

    return MetadataReader(files, f"{path}/__cluster_metadata-0", crc32c).read().image


async def test_new_partitions_of_several_directories_are_told_where_they_are() -> None:
    """With one directory their first record says it, and nothing is appended afterwards."""
    async with Broker(directories=(A, B)) as broker:
        await broker.create("t", 4)
        image = broker.node.storage.metadata.image
        await until(
            lambda: all(one.directories[0].int > 100 for one in image.topics["t"].partitions)
        )
        assert places(broker.files, broker) == [A, B, A, B]
        files = broker.files
    async with Broker(files, directories=(A, B)) as broker:
        end = broker.node.storage.metadata.end_offset
        for _ in range(20):
            await asyncio.sleep(0)
        assert broker.node.storage.metadata.end_offset == end
    async with Broker() as broker:
        await broker.create("t", 4)
        end = broker.node.storage.metadata.end_offset
        [directory] = broker.node.storage.directories.all
        for _ in range(20):
            await asyncio.sleep(0)
        assert broker.node.storage.metadata.end_offset == end
    partitions = read(broker.files).image.topics["t"].partitions
    assert {one.directories for one in partitions} == {(directory.directory_id,)}


async def test_a_log_that_was_moved_to_another_directory_is_told() -> None:
    """An operator may move a partition while the node is stopped."""
    async with Broker(directories=(A, B)) as broker:
        await broker.create("t", 2)
        await broker.produce("t", batch(3), partition=1)
        files = broker.files
    files.rename(f"{B}/t-1", f"{A}/t-1")
    async with Broker(files, directories=(A, B)) as broker:
        assert offsets((await broker.fetch_one("t", 1, 0)).records) == [0, 1, 2]
        await until(lambda: places(files, broker) == [A, A])


async def without_directories() -> MemoryFiles:
    """Return a directory whose metadata.version, 3.7-IV1, records no log directories."""
    files = MemoryFiles()
    files.mkdirs("/data")
    level = FeatureLevelRecord(name=METADATA_VERSION, feature_level=DIRECTORY_ASSIGNMENT - 1)
    write_bootstrap_checkpoint(files, "/data", [level], timestamp_ms=0, crc32c=crc32c)
    async with Broker(files) as broker:
        await broker.create("t", 3)
        image = broker.node.storage.metadata.image
        assert not any(one.directories for one in image.topics["t"].partitions)
    return files


async def are_recorded(broker: Broker) -> None:
    """Wait until the metadata names the directory of each partition."""
    image = broker.node.storage.metadata.image
    [directory] = broker.node.storage.directories.all
    place = (directory.directory_id,)
    await until(lambda: all(one.directories == place for one in image.topics["t"].partitions))


async def test_a_raised_metadata_version_lets_all_places_be_recorded() -> None:
    """Regression: partitions from before the upgrade never got their directories."""
    files = await without_directories()
    async with Broker(files) as broker:
        update = wire.FeatureUpdateKey(feature=METADATA_VERSION, max_version_level=25)
        answer = await broker.ask(wire.UpdateFeaturesRequest(feature_updates=[update]), 2)
        assert answer.error_code == 0
        await are_recorded(broker)


async def test_a_start_after_an_upgrade_records_all_places() -> None:
    """Apache Kafka has raised the level, or the node was killed after it did."""
    files = await without_directories()
    async with Broker(files) as broker:
        level = FeatureLevelRecord(name=METADATA_VERSION, feature_level=25)
        broker.node.storage.metadata.append(level)
    async with Broker(files) as broker:
        await are_recorded(broker)
        end = broker.node.storage.metadata.end_offset
        for _ in range(20):
            await asyncio.sleep(0)
        assert broker.node.storage.metadata.end_offset == end


def test_the_directories_of_other_replicas_stay_unknown() -> None:
    """As in Kafka, a replica on another node is recorded as not yet migrated."""
    image = MetadataImage()
    image.replay(FeatureLevelRecord(name=METADATA_VERSION, feature_level=25))
    image.replay(TopicRecord(name="t", topic_id=TOPIC))
    image.replay(
        PartitionRecord(partition_id=0, topic_id=TOPIC, replicas=[5, 0], isr=[0], leader=0)
    )
    controller = Controller(broker_settings({}), 0, lambda: uuid.UUID(int=9))
    [record] = controller.assign_directories(image, {(TOPIC, 0): HERE}).records
    assert record.directories == [uuid.UUID(int=0), HERE]
