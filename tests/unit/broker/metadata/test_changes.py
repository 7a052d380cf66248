"""A metadata change is decided, made durable, published and answered, in this order."""

from __future__ import annotations

import asyncio
import errno
import uuid
from types import SimpleNamespace

import pytest

from aiokq.broker.metadata.controller.topic_layout import TopicSpec
from aiokq.core.errors import Closed, KafkaStorage, TopicExists, UnknownTopicOrPartition
from aiokq.wire.registration_records import RegisterBrokerRecord
from tests.unit.broker.harness import until
from tests.unit.broker.metadata.metadata_logs import DIRECTORY, memory, opened, read
from tests.unit.broker.metadata.world import changes_on

SEGMENT = f"{DIRECTORY}/{0:020d}.log"


class HeldPublisher:
    """A publisher that waits until its gate is open."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.end_offsets: list[int] = []
        self.ended = 0
        self.gate = asyncio.Event()
        self.failure: KafkaStorage | None = None

    async def publish(self, delta):
        self.begun += [topic.name for topic in delta.topics]
        self.end_offsets.append(delta.end_offset)
        await self.gate.wait()
        self.ended += 1
        return self.failure


class World:
    def __init__(self) -> None:
        self.files = memory()
        self.log = opened(self.files)
        self.publisher = HeldPublisher()
        self.changes = changes_on(self.log, self.publisher)

    def create(self, name: str) -> asyncio.Future:
        return asyncio.ensure_future(self.changes.create_topic(TopicSpec(name)))

    def topic(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(name=name, topic_id=self.log.image.topics[name].topic_id)


@pytest.fixture
async def world() -> World:
    return World()


async def test_a_change_is_durable_before_it_is_published_and_answered_after(world: World):
    """An earlier response would let the client's next request miss its topic."""
    created = world.create("t")
    await until(lambda: world.publisher.begun)
    assert "t" in read(world.files).image.topics
    assert not created.done()
    world.publisher.gate.set()
    assert (await created).name == "t"


async def test_changes_are_published_in_the_order_of_their_records(world: World):
    """The creation of a topic must be published before a change of its configs."""
    created = [world.create(name) for name in "abc"]
    await until(lambda: len(world.log.image.topics) == 3)
    assert world.publisher.begun == ["a"]
    world.publisher.gate.set()
    await asyncio.gather(*created)
    assert world.publisher.begun == ["a", "b", "c"]


async def test_a_published_change_has_the_end_offset_of_its_append(world: World):
    """Features and their epoch come from the same append, although the log may be ahead."""
    first = world.create("a")
    await until(lambda: world.publisher.begun)
    end_offset = world.log.end_offset
    second = world.create("b")
    await until(lambda: world.log.end_offset > end_offset)
    world.publisher.gate.set()
    await asyncio.gather(first, second)
    assert world.publisher.end_offsets == [end_offset, world.log.end_offset]


async def test_decisions_do_not_wait_for_what_is_published(world: World):
    """Otherwise a producer would wait for its id until thousands of logs are open."""
    world.log.append(RegisterBrokerRecord(broker_id=world.log.node_id))
    created = world.create("t")
    await until(lambda: world.publisher.begun)
    assert await world.changes.allocate_producer_ids() == range(1000)
    world.publisher.gate.set()
    await created


async def test_a_change_that_changes_nothing_is_answered_when_those_before_it_are(world: World):
    """A client that repeats a change of another client expects to see that change."""
    created = world.create("t")
    await until(lambda: world.publisher.begun)
    size = len(world.files.read_bytes(SEGMENT))
    same = asyncio.ensure_future(
        world.changes.alter_topic_configs(world.topic("t"), lambda configs: configs)
    )
    for _ in range(5):
        await asyncio.sleep(0)
    assert not same.done()
    world.publisher.gate.set()
    await asyncio.gather(created, same)
    assert len(world.files.read_bytes(SEGMENT)) == size
    assert world.publisher.begun == ["t"]


async def test_what_cannot_be_recorded_is_not_published(world: World):
    """Otherwise clients could see a topic that is gone after a restart."""
    world.files.fail("pwritev", errno.EIO)
    with pytest.raises(KafkaStorage):
        await world.changes.create_topic(TopicSpec("t"))
    assert world.publisher.begun == []
    assert not world.log.image.topics
    world.files.crash()
    world.log = opened(world.files)
    assert not world.log.image.topics
    world.publisher.gate.set()
    await changes_on(world.log, world.publisher).create_topic(TopicSpec("t"))
    assert "t" in read(world.files).image.topics


async def test_after_a_failed_sync_nothing_is_recorded_until_the_next_start(world: World):
    """The records are in the file, and may be durable: repeated, they would be there twice."""
    world.files.fail("sync", errno.EIO)
    world.publisher.gate.set()
    for _ in range(2):
        with pytest.raises(KafkaStorage):
            await world.changes.create_topic(TopicSpec("t"))
    assert world.publisher.begun == []
    assert not world.log.image.topics
    world.files.crash()
    again = changes_on(opened(world.files), world.publisher)
    with pytest.raises(TopicExists):
        await again.create_topic(TopicSpec("t"))


async def test_what_cannot_be_published_is_told_and_stays(world: World):
    """As in Kafka, a committed change is not rolled back."""
    world.publisher.failure = KafkaStorage("no descriptors")
    world.publisher.gate.set()
    with pytest.raises(KafkaStorage, match="no descriptors"):
        await world.changes.create_topic(TopicSpec("t"))
    assert "t" in world.log.image.topics


async def test_a_publisher_with_a_bug_holds_up_nothing(world: World, monkeypatch):
    """Otherwise all later changes would wait until the broker restarts."""

    async def broken(delta):
        raise RuntimeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(world.publisher, "publish", broken)
        with pytest.raises(RuntimeError):
            await world.changes.create_topic(TopicSpec("t"))
    world.publisher.gate.set()
    await world.changes.create_topic(TopicSpec("u"))


async def test_a_change_goes_on_when_whoever_asked_has_left(world: World):
    """Cancelling the request must not leave half of the change."""
    created = world.create("t")
    await until(lambda: world.publisher.begun)
    created.cancel()
    later = world.create("u")
    await until(lambda: "u" in world.log.image.topics)
    world.publisher.gate.set()
    await later
    with pytest.raises(asyncio.CancelledError):
        await created
    assert world.publisher.begun == ["t", "u"]


async def test_the_refusal_of_a_change_whose_caller_is_cancelled_is_not_logged(
    world: World, caplog: pytest.LogCaptureFixture
):
    """A client that disconnects while its topic exists already is no error of the node."""
    created = world.create("t")
    await until(lambda: world.publisher.begun)
    refused, late = world.create("t"), world.create("late")
    await until(lambda: "late" in world.log.image.topics)
    closing = asyncio.ensure_future(world.changes.close())
    await until(lambda: world.changes.is_closed)
    stopped = world.create("stopped")
    await asyncio.sleep(0)
    for caller in (refused, late, stopped):
        caller.cancel()
    world.publisher.failure = KafkaStorage("no descriptors")
    world.publisher.gate.set()
    causes = []
    for caller in (refused, late, stopped):
        with pytest.raises(asyncio.CancelledError) as caught:
            await caller
        causes.append(type(caught.value.__cause__))
    assert causes == [TopicExists, KafkaStorage, Closed]
    with pytest.raises(KafkaStorage):
        await created
    await closing
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_bug_in_a_change_whose_caller_is_cancelled_is_logged(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    """Nobody else would report it."""

    async def broken(delta):
        await world.publisher.gate.wait()
        raise RuntimeError("a bug")

    monkeypatch.setattr(world.publisher, "publish", broken)
    created = world.create("t")
    await until(lambda: "t" in world.log.image.topics)
    created.cancel()
    world.publisher.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await created
    assert "failed while being cancelled: task=create t" in caplog.text


async def test_a_stop_waits_for_what_is_recorded_and_refuses_the_rest(world: World):
    """Otherwise logs would be opened while others are closed."""
    created = world.create("t")
    await until(lambda: world.publisher.begun)
    closing = asyncio.ensure_future(world.changes.close())
    await until(lambda: world.changes.is_closed)
    with pytest.raises(Closed):
        await world.changes.create_topic(TopicSpec("late"))
    assert not closing.done()
    world.publisher.gate.set()
    await asyncio.gather(created, closing)


async def test_while_a_snapshot_is_taken_nothing_changes(world: World):
    """A change would put topics into the snapshot's metadata of whose records it has no copy."""
    created = world.create("t")
    await until(lambda: world.publisher.begun)
    world.publisher.gate.set()
    async with world.changes.unchanged():
        assert world.publisher.ended == 1
        later = world.create("u")
        for _ in range(5):
            await asyncio.sleep(0)
        assert "u" not in world.log.image.topics
    await asyncio.gather(created, later)


async def test_a_topic_that_somebody_deleted_meanwhile_is_unknown(world: World):
    """The topic is identified by its id, because a new one may have the same name."""
    world.publisher.gate.set()
    await world.changes.create_topic(TopicSpec("t"))
    old = world.topic("t")
    await world.changes.delete_topic(old)
    await world.changes.create_topic(TopicSpec("t"))
    for work in (
        world.changes.delete_topic(old),
        world.changes.create_partitions(old, 5),
        world.changes.alter_topic_configs(old, lambda _: {}),
    ):
        with pytest.raises(UnknownTopicOrPartition):
            await work
    assert isinstance(world.topic("t").topic_id, uuid.UUID)


async def test_of_two_creations_of_one_name_the_second_is_refused(world: World):
    """It is refused when the first is published: a client that is told that the topic exists
    expects to find it."""
    first, second = world.create("t"), world.create("t")
    await until(lambda: world.publisher.begun)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not second.done()
    world.publisher.gate.set()
    await first
    with pytest.raises(TopicExists):
        await second


async def test_a_topic_is_deleted_while_its_creation_is_published(world: World):
    """The deletion is published after the creation, and both requests succeed."""
    created = world.create("t")
    await until(lambda: world.publisher.begun)
    deleted = asyncio.ensure_future(world.changes.delete_topic(world.topic("t")))
    await until(lambda: "t" not in world.log.image.topics)
    assert not deleted.done()
    world.publisher.gate.set()
    await asyncio.gather(created, deleted)
    assert world.publisher.ended == 2


async def test_settings_of_a_topic_that_is_being_deleted_are_refused(world: World):
    """The image no longer has the topic, although its logs are not deleted yet."""
    world.publisher.gate.set()
    await world.changes.create_topic(TopicSpec("t"))
    topic = world.topic("t")
    world.publisher.gate.clear()
    deleted = asyncio.ensure_future(world.changes.delete_topic(topic))
    await until(lambda: "t" not in world.log.image.topics)
    altered = asyncio.ensure_future(
        world.changes.alter_topic_configs(topic, lambda _: {"retention.ms": "1"})
    )
    for _ in range(5):
        await asyncio.sleep(0)
    assert not altered.done()  # until the deletion is published, requests still see the topic
    world.publisher.gate.set()
    await deleted
    with pytest.raises(UnknownTopicOrPartition):
        await altered
