"""aiokq.broker.node and embedded: opening, closing, and running inside a simulation."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import os
import sys
from pathlib import Path

import pytest

from aiokq import wire
from aiokq.broker.config.listeners import Listeners, configured_listeners
from aiokq.broker.config.settings import broker_settings
from aiokq.broker.embedded import EmbeddedCluster
from aiokq.broker.log.batch_reading import read_batches
from aiokq.broker.log.producer_state import Origin
from aiokq.broker.metadata.controller.topic_layout import TopicSpec
from aiokq.broker.node import BrokerNode
from aiokq.core.errors import (
    Closed,
    ConfigError,
    InvalidConfiguration,
    KafkaStorage,
    TopicExists,
    UnknownTopicOrPartition,
)
from aiokq.core.offload import InlineOffload
from aiokq.records.header import iter_headers
from tests.sim.harness.files import MemoryFiles
from tests.sim.harness.simulation import Simulation, run
from tests.unit.broker.harness import NOW_MS, Broker, batch, offsets, until


async def exchange(world: Simulation, address: str, *requests):
    """Send (request, version) pairs over one simulated connection; return the responses."""
    host, port = address.rsplit(":", 1)
    received = bytearray()
    arrived = asyncio.Event()

    class Receiver(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            received.extend(data)
            arrived.set()

        def connection_lost(self, exc: Exception | None) -> None:
            arrived.set()

    network = world.network.at("10.0.0.9")
    [found] = await network.resolve(host, int(port))
    transport, _ = await network.connect(Receiver, found)
    answers = []
    for request, version in requests:
        parts = wire.encode_request(request, version=version, correlation_id=1, client_id="t")
        transport.write(b"".join(bytes(part) for part in parts))
        while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
            arrived.clear()
            await arrived.wait()
        size = int.from_bytes(received[:4], "big")
        frame = bytes(received[4 : 4 + size])
        del received[: 4 + size]
        answers.append(wire.decode_response(type(request).RESPONSE, frame, version)[1])
    transport.close()
    return answers


def test_the_embedded_cluster_runs_in_a_simulation_and_the_same_seed_gives_the_same_run():
    """The fault tests rely on virtual clock, simulated network and disk in memory."""

    async def main(world: Simulation):
        environment = world.environment("10.0.0.1")
        async with EmbeddedCluster(environment=environment) as kafka:
            # The node listens on the loopback address of its machine, so the client runs there too.
            await kafka.create_topic("t", 2)
            node = kafka.node
            return node.cluster_id, str(node.topics.get("t").topic_id), kafka.bootstrap_servers

    first = run(7, main)
    assert first.value == run(7, main).value
    assert first.value != run(8, main).value


def test_the_line_of_the_start_names_the_first_address_and_all_listeners(caplog):
    """Programs that read the log find the address by the key `address=`."""

    async def main(world: Simulation):
        settings = broker_settings(
            {
                "listeners": "PLAINTEXT://10.0.0.1:9092,INNER://10.0.0.1:9094",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INNER:PLAINTEXT",
            }
        )
        node = BrokerNode(
            settings,
            world.environment("10.0.0.1"),
            data_dir="/data",
            listeners=configured_listeners(settings),
        )
        await node.start()
        await node.close()

    with caplog.at_level("INFO", "aiokq.broker"):
        run(1, main)
    [line] = [text for text in caplog.messages if text.startswith("broker started:")]
    assert " address=10.0.0.1:9092 " in line
    assert " listeners=PLAINTEXT://10.0.0.1:9092,INNER://10.0.0.1:9094 " in line


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", []), ("here", []), ("10.0.0.1", ["10.0.0.1"]), ("there", ["there"]), ("", [""])],
)
def test_a_listener_is_open_to_others_by_the_address_that_it_is_bound_to(host, expected):
    """A host name says nothing about it; the broker warns of open listeners."""

    async def main(world: Simulation):
        world.network.name("here", "127.0.0.1")
        world.network.name("there", "10.0.0.1")
        node = BrokerNode(
            broker_settings(),
            world.environment("10.0.0.1"),
            data_dir="/data",
            listeners=Listeners.plaintext(host, 9092),
        )
        await node.start()
        found = [one.host for one in node.servers.open_to_others()]
        await node.close()
        return found

    assert run(1, main).value == expected


def test_a_node_serves_clients_of_another_simulated_machine():
    """Produce, then a fetch that waits, all in virtual time."""

    async def main(world: Simulation):
        environment = world.environment("10.0.0.1")
        node = BrokerNode(
            broker_settings(),
            environment,
            data_dir="/data",
            listeners=Listeners.plaintext("10.0.0.1", 9092),
        )
        await node.start()
        topics = [wire.MetadataRequestTopic(name="t")]
        produce = wire.ProduceRequest(
            acks=-1,
            timeout_ms=1000,
            topic_data=[
                wire.TopicProduceData(
                    name="t",
                    partition_data=[
                        wire.PartitionProduceData(
                            index=0, records=batch(3, timestamp_ms=environment.clock.timestamp_ms())
                        )
                    ],
                )
            ],
        )
        asked = wire.FetchPartition(partition=0, fetch_offset=3, partition_max_bytes=1000)
        fetch = wire.FetchRequest(
            max_wait_ms=30_000,
            min_bytes=1,
            topics=[wire.FetchTopic(topic="t", partitions=[asked])],
        )
        answers = await exchange(
            world, "10.0.0.1:9092", (wire.MetadataRequest(topics=topics), 9), (produce, 9)
        )
        metadata, produced = answers
        started = environment.clock.monotonic()
        [empty] = await exchange(world, "10.0.0.1:9092", (fetch, 12))
        waited = environment.clock.monotonic() - started
        await node.close()
        return (
            metadata.topics[0].error_code,
            produced.responses[0].partition_responses[0].base_offset,
            offsets(empty.responses[0].partitions[0].records),
            30 <= waited < 31,
        )

    assert run(1, main).value == (0, 0, [], True)


async def test_a_closed_node_says_that_it_is_closed():
    """The alternative would be an AttributeError from deep inside."""
    broker = Broker()
    with pytest.raises(Closed):
        _ = broker.node.topics
    await broker.node.open()
    await broker.node.close()
    await broker.node.close()
    with pytest.raises(Closed):
        _ = broker.node.cluster_id


async def test_a_listener_that_fails_ends_the_node():
    """Regression: the node went on, with a listener that closed all connections."""

    async def fail() -> None:
        raise RuntimeError("a bug")

    async with EmbeddedCluster() as kafka:
        node = kafka.node
        [opened] = node.servers._opened
        opened.server.supervisor.spawn(fail(), name="fails")
        async with asyncio.timeout(10):
            with pytest.raises(RuntimeError, match="a bug"):
                await node.run_until(asyncio.Event())


async def test_a_clean_close_leaves_the_marker_and_an_unclean_one_bumps_the_epochs():
    """A kill may have lost records, which readers detect by the new epoch (KIP-320)."""
    async with Broker() as broker:
        await broker.create("t")
        await broker.create("empty")
        await broker.produce("t", batch())
        files = broker.files
    killed = Broker(files)
    await killed.node.open()
    assert killed.node.topics.partition("t", 0).leader_epoch == 0
    files.crash()
    async with Broker(files) as broker:
        assert broker.node.topics.partition("t", 0).leader_epoch == 1
        assert broker.node.topics.partition("empty", 0).leader_epoch == 1
        assert offsets((await broker.fetch_one("t", 0, 0)).records) == [0]


async def test_a_partition_that_lost_all_to_a_power_cut_begins_a_new_epoch():
    """A partition that lost all records and its epoch history needs a new epoch (KIP-320).

    In the same epoch a reader at offset 3 would continue with other records and miss three.
    """
    broker = Broker()
    await broker.node.open()
    await broker.create("t")
    for life in range(1, 4):
        await broker.produce("t", batch(3))
        assert broker.node.topics.partition("t", 0).leader_epoch == life - 1
        broker.files.power_cut()
        broker = Broker(broker.files)
        await broker.node.open()
        partition = broker.node.topics.partition("t", 0)
        assert partition.log.log_end_offset == 0
        assert partition.leader_epoch == life
        assert partition.end_offset_for_epoch(life - 1) == (life - 1, 0)
    await broker.create("new")
    assert broker.node.topics.partition("new", 0).leader_epoch == 0
    await broker.node.close()


def test_more_than_one_broker_is_refused_clearly():
    """Until brokers replicate, two brokers would be two clusters."""
    with pytest.raises(ConfigError, match="one broker"):
        EmbeddedCluster(brokers=3)


def test_settings_are_checked_when_the_cluster_is_made():
    """The error must not come from another thread when the cluster is entered."""
    with pytest.raises(ConfigError, match=r"num\.partitions"):
        EmbeddedCluster(settings={"num.partition": 1})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"port": "x"}, "port must be a number from 1 to 65535, or 0 for a free port, not 'x'"),
        ({"port": True}, "not True"),
        ({"port": -1}, "not -1"),
        ({"port": 65536}, "not 65536"),
        ({"port": 9092.0}, "not 9092.0"),
        ({"brokers": "1"}, "brokers must be 1, not '1'"),
        ({"brokers": {"num.partitions": 1}}, "pass broker settings as settings="),
        ({"settings": {"port": "1"}}, "port= of EmbeddedCluster"),
        ({"settings": {"log.cleaner.min.cleanable.ratio": float("nan")}}, "a finite number"),
        ({"data_dir": 5}, "data_dir must be the path of a directory"),
        ({"data_dir": b"x"}, "not b'x'"),
        ({"data_dir": ""}, "not ''"),
        ({"data_dir": "a\0b"}, "data_dir must be the path"),
        ({"data_dir": "a\ud800b"}, "data_dir must be the path"),
        ({"environment": 5}, "environment must be an Environment"),
        ({"settings": {"num.partitions": 1, "num_partitions": 2}}, "two spellings"),
        ({"restore_from": 5}, "restore_from must be the path of a directory"),
        ({"profile": ["dev"]}, "unknown profile ['dev']: must be one of kafka, dev"),
        (
            {"settings": "num.partitions=1"},
            "for example {'num.partitions': 4}, not 'num.partitions=1'",
        ),
        ({"num_partitions": 3}, "a broker setting: write settings={'num.partitions': 3}"),
        ({"num_partition": 3}, "pass broker settings as settings={...}: did you mean num.p"),
        ({"datadir": "x"}, "did you mean data_dir?"),
        ({"xyzzy": 1}, "unknown argument 'xyzzy'; pass broker settings as settings={...}"),
        ({"ssl_key_password": "hidden"}, "write settings={'ssl.key.password': ...}"),
        ({"settings": {1: 2}}, "the name of a broker setting must be a str, not 1"),
    ],
)
def test_misuse_is_a_config_error_that_names_the_argument(
    arguments: dict[str, object], words: str
) -> None:
    """Regression: entering the cluster raised a bare TypeError from deep inside."""
    with pytest.raises(ConfigError) as caught:
        EmbeddedCluster(**arguments)
    assert words in str(caught.value)


@pytest.mark.parametrize("below", ["a file", "no directory can be made", "read only"])
def test_a_data_dir_that_cannot_be_made_or_written_is_a_config_error(tmp_path: Path, below: str):
    """Regression: the error was KafkaStorage, as for a bad disk, and did not name the argument."""
    parent = tmp_path / "parent"
    if below == "a file":
        parent.write_text("")
    elif below == "read only":
        if os.geteuid() == 0:
            pytest.skip("root may write everywhere")
        parent.mkdir(mode=0o500)
    data_dir = "/proc/x" if below == "no directory can be made" else str(parent / "x")
    with pytest.raises(ConfigError, match=f"data_dir='{data_dir}': log directory .* directory"):
        EmbeddedCluster(data_dir=data_dir).__enter__()


def test_misuse_of_a_control_call_is_a_config_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: `snapshot(5)` wrote a directory `5`; others raised errors from deep inside."""
    monkeypatch.chdir(tmp_path)
    with EmbeddedCluster() as kafka:
        for path in (5, "", "a\0b", "a\ud800b", b"x", None):
            with pytest.raises(ConfigError, match=r"^path must be the path of a directory \(str"):
                kafka.run(kafka.snapshot(path))  # type: ignore[arg-type]
        for name in (None, [], 5):
            with pytest.raises(ConfigError, match=r"^name must be the name of a topic \(str\)"):
                kafka.run(kafka.delete_topic(name))  # type: ignore[arg-type]
            with pytest.raises(ConfigError, match=r"^name must be the name of a topic \(str\)"):
                kafka.run(kafka.create_topic(name))  # type: ignore[arg-type]
            with pytest.raises(ConfigError, match=r"^listener must be the name of a listener"):
                kafka.bootstrap_servers_of(name)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_that_is_not_running_says_so():
    """The usual mistake is to use it before `with`."""
    cluster = EmbeddedCluster()
    with pytest.raises(Closed, match="enter it"):
        _ = cluster.bootstrap_servers
    with pytest.raises(Closed, match="with"):
        cluster.run(cluster.create_topic("t"))


def test_control_calls_raise_the_brokers_own_errors():
    """Errors like TopicExists are the same as for a client."""

    async def main(world: Simulation):
        async with EmbeddedCluster(environment=world.environment("10.0.0.1")) as kafka:
            await kafka.create_topic("t", 2, configs={"retention.ms": "5"})
            numbers = {"retention.ms": 5, "min.cleanable.dirty.ratio": 0.25, "preallocate": False}
            await kafka.create_topic("numbers", configs=numbers)
            with pytest.raises(InvalidConfiguration, match="finite"):
                await kafka.create_topic("u", configs={"min.cleanable.dirty.ratio": "nan"})
            for configs in (["retention.ms"], {5: "x"}, {"retention.ms": object()}):
                with pytest.raises(TypeError, match="config"):
                    await kafka.create_topic("u", configs=configs)
            with pytest.raises(TopicExists):
                await kafka.create_topic("t")
            await kafka.delete_topic("t")
            with pytest.raises(UnknownTopicOrPartition):
                await kafka.delete_topic("t")
            with pytest.raises(ConfigError, match="already running"):
                await kafka.start()
        await kafka.close()

    run(1, main)


def test_the_data_outlives_the_cluster_only_where_a_directory_is_given():
    """Without a directory nothing is left; with one everything is there again."""

    async def main(world: Simulation):
        disk = world.disk("10.0.0.1")
        environment = world.environment("10.0.0.1")
        async with EmbeddedCluster(environment=environment) as kafka:
            await kafka.create_topic("t")
        assert not disk.exists("/aiokq-ephemeral")
        async with EmbeddedCluster(data_dir="/data", environment=environment) as kafka:
            await kafka.create_topic("t")
        async with EmbeddedCluster(data_dir="/data", environment=environment) as kafka:
            with pytest.raises(TopicExists):
                await kafka.create_topic("t")

    run(1, main)


async def test_others_are_heard_while_a_large_topic_is_deleted():
    """Regression: renaming and syncing a thousand directories blocked the loop for a second."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with Broker() as broker:
        await broker.create("t", 320)
        counting = asyncio.ensure_future(count())
        await broker.node.metadata.delete_topic(broker.node.topics.get("t"))
        counting.cancel()
        assert turns >= 10


async def test_files_of_what_was_deleted_are_removed_off_the_loop():
    """Regression: a thousand directories and a gigabyte delayed every client for half a second."""
    removed: set[str] = set()

    def deleted() -> set[str]:
        return {name for name in broker.files.listdir("/data") if name.endswith("-delete")}

    class Watched(InlineOffload):
        async def run(self, fn, *args):
            before = deleted() if broker.files.is_dir("/data") else set()
            result = await super().run(fn, *args)
            removed.update(before - deleted())
            return result

    broker = Broker(log_segment_delete_delay_ms=1)
    broker.node.environment = dataclasses.replace(broker.node.environment, offload=Watched())
    async with broker:
        await broker.create("t", 3)
        await broker.node.metadata.delete_topic(broker.node.topics.get("t"))
        await until(lambda: len(removed) == 3)


async def test_one_partition_that_cannot_be_removed_keeps_no_other():
    """A partition given up halfway would accept appends that nobody can read."""
    async with Broker() as broker:
        await broker.create("t", 3)
        broker.files.fail("rename", errno.EIO, matches=lambda path: "t-0" in path)
        with pytest.raises(KafkaStorage):
            await broker.node.metadata.delete_topic(broker.node.topics.get("t"))
        assert list(broker.node.storage.directories.all[0].logs) == []
    async with Broker(broker.files) as broker:
        assert len(broker.node.topics) == 0
        assert not broker.files.is_dir("/data/t-2")


async def test_a_disk_that_is_full_after_the_start_serves_what_it_holds_until_it_is_written():
    """Consumers can read, and unchanged checkpoints are not written.

    The first append takes the directory offline, and producers get the cause.
    """
    async with Broker() as broker:
        await broker.create("t")
        await broker.produce("t", batch(3))
        files = broker.files
    async with Broker(files) as broker:
        files.capacity = files.used()
        assert offsets((await broker.fetch_one("t", 0, 0)).records) == [0, 1, 2]
        result = await broker.produce("t", batch())
        assert result.error_code == 56
        assert "No space left on device" in result.error_message
        await asyncio.sleep(0)
        assert (await broker.fetch_one("t", 0, 0)).error_code == 56
    files.capacity = None
    async with Broker(files) as broker:
        assert (await broker.produce("t", batch())).base_offset == 3


async def test_after_a_clean_stop_a_full_disk_refuses_the_start():
    """As in Kafka: a start writes the new epoch of the metadata log before anything else."""
    async with Broker() as broker:
        await broker.create("t")
        await broker.produce("t", batch(3))
        files = broker.files
    files.capacity = files.used()
    with pytest.raises(KafkaStorage, match=r"No space left on device; free space"):
        await Broker(files).node.open()
    files.capacity = None
    async with Broker(files) as broker:
        assert offsets((await broker.fetch_one("t", 0, 0)).records) == [0, 1, 2]
        assert (await broker.produce("t", batch())).base_offset == 3


async def test_after_a_kill_a_full_disk_refuses_the_start_and_says_what_to_do():
    """The recovery after a kill has to write, and serving unchecked logs could serve damage."""
    async with Broker() as broker:
        await broker.create("t")
        await broker.produce("t", batch(3))
        files = broker.files
        files.capacity = files.used()
        with pytest.raises(KafkaStorage, match=r"No space left on device; free space"):
            await broker.node.close()
    killed = Broker(files)
    with pytest.raises(KafkaStorage, match=r"No space left on device; free space"):
        await killed.node.open()
    files.capacity = None
    async with Broker(files) as broker:
        assert offsets((await broker.fetch_one("t", 0, 0)).records) == [0, 1, 2]


async def test_who_coordinates_hears_of_partitions_as_they_come_and_go():
    """A group coordinator loads its partition when the node leads it, and unloads it afterwards."""
    heard = []

    class Coordinator:
        def elected(self, partition):
            heard.append(("elected", str(partition.name), partition.leader_epoch))
            encoded = batch(2, key=b"group")
            result = partition.append(
                memoryview(encoded),
                list(iter_headers(encoded)),
                now_ms=NOW_MS,
                origin=Origin.COORDINATOR,
            )
            assert partition.log.high_watermark == result.last_offset + 1

        def resigned(self, partition):
            heard.append(("resigned", str(partition.name), partition.leader_epoch))

    async with Broker() as broker:
        broker.node.leadership_listeners.append(Coordinator())
        await broker.create("__consumer_offsets", cleanup_policy="compact")
        partition = broker.node.topics.partition("__consumer_offsets", 0)
        log = partition.log
        replayed = read_batches(log.read(log.log_start_offset, sys.maxsize).fragments)
        assert [header.base_offset for header, _ in replayed] == [0]
        await broker.node.metadata.delete_topic(broker.node.topics.get("__consumer_offsets"))
    assert heard == [
        ("elected", "__consumer_offsets-0", 0),
        ("resigned", "__consumer_offsets-0", 0),
    ]


async def test_a_topic_that_is_being_made_is_finished_before_the_close():
    """Regression: logs opened during the close made the shutdown unclean.

    Some were even created when another process already owned the directory.
    """
    async with Broker() as broker:
        creating = asyncio.ensure_future(broker.node.metadata.create_topic(TopicSpec("t", 960)))
        for _ in range(4):
            await asyncio.sleep(0)
        assert not creating.done()
        changes = broker.node.metadata
        closing = asyncio.ensure_future(broker.node.close())
        await until(lambda: changes.is_closed)
        late = asyncio.ensure_future(changes.create_topic(TopicSpec("late")))
        await closing
        assert creating.done()
        assert broker.files.exists("/data/.kafka_cleanshutdown")
        with pytest.raises(Closed):
            await late
    async with Broker(broker.files) as broker:
        assert [topic.name for topic in broker.node.topics] == ["t"]
        assert len(broker.node.topics.get("t").partitions) == 960


async def test_a_cancelled_open_gives_the_directory_back():
    """With a time limit on the start, the next start would find the directory in use."""
    files = MemoryFiles()

    class Slow(InlineOffload):
        async def run(self, fn, *args):
            result = fn(*args)
            await asyncio.sleep(0)
            return result

    for turns in range(1, 6):
        broker = Broker(files)
        broker.node.environment = dataclasses.replace(broker.node.environment, offload=Slow())
        opening = asyncio.ensure_future(broker.node.open())
        for _ in range(turns):
            await asyncio.sleep(0)
        opening.cancel()
        try:
            await opening
        except asyncio.CancelledError:
            pass
        else:
            await broker.node.close()
    async with Broker(files):
        pass


async def test_a_cancelled_close_still_closes_the_logs():
    """Cancelled while it waits for clients, it would leave logs unclean and the lock held."""

    class Servers:
        async def close(self) -> None:
            await asyncio.Event().wait()

    broker = Broker()
    await broker.node.open()
    await broker.create("t")
    broker.node.servers = Servers()
    closing = asyncio.ensure_future(broker.node.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert broker.files.exists("/data/.kafka_cleanshutdown")
    async with Broker(broker.files):
        pass


def test_with_raises_what_went_wrong_on_its_thread(tmp_path, monkeypatch):
    """Regression: `with` printed a traceback and ended normally, unlike `async with`."""

    async def close(node: BrokerNode) -> None:
        await close_node(node)
        raise KafkaStorage("not closed clean")

    close_node = BrokerNode.close
    monkeypatch.setattr(BrokerNode, "close", close)
    with (
        pytest.raises(KafkaStorage, match="not closed clean"),
        EmbeddedCluster(data_dir=tmp_path / "data"),
    ):
        pass


async def test_bootstrap_servers_without_a_listener_for_controllers_are_refused():
    """Otherwise the new log would silently not name its voters."""
    files = MemoryFiles()
    broker = Broker(files, controller_quorum_bootstrap_servers="localhost:9093")
    with pytest.raises(ConfigError, match="no listener for controllers"):
        await broker.node.open()
    assert not files.exists("/data/meta.properties")
    with pytest.raises(ConfigError, match=r"controller\.listener\.names"):
        EmbeddedCluster(settings={"controller.quorum.bootstrap.servers": "localhost:9093"})
