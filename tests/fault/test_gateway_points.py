"""The acceptance points of the gateway that hold for both engines, each with its number.

The list of 50 points describes what operators of Bruce and Dory rely on. `reports` are tested in
other modules.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import stat
import struct
import threading
import time
from pathlib import Path

import pytest

import aiokq
from aiokq.errors import ConfigError
from aiokq.fastpath.gateway import REASONS
from aiokq.gateway import Gateway, GatewaySettings
from aiokq.gateway.accounting import Discard
from tests.fault import gateway_support
from tests.fault.gateway_support import (
    LIMIT,
    Rig,
    balanced,
    both_engines,
    configuration,
    directory,
    discarded,
    engine,  # noqa: F401
    gateway_process,
    message,
    now_ms,
    records_of,
    rig,
    values_of,
)
from tests.gateway_messages import EXAMPLES
from tests.peers.broker_process import broker_process

KEEP = {"retention_ms": "-1"}
"""The examples are of 2023, and a topic with a retention of days would delete them."""

TRANSPORTS = ("unix_datagram", "unix_stream", "tcp")


pytestmark = both_engines


@pytest.mark.parametrize("kind", TRANSPORTS)
async def test_point_01_the_examples_arrive_with_topic_key_and_value(kind: str):
    async with rig(topics={"other": 1}) as r:
        for topic in ("t", "web.log"):
            await r.create(topic, **KEEP)
        await r.create("orders", 3, **KEEP)
        await r.send(*(bytes.fromhex(example[0]) for example in EXAMPLES), kind=kind)
        await r.settled(3)
        (one,) = await r.records("t")
        assert (one.key, one.value, one.timestamp_ms) == (None, b"hi", 1_700_000_000_000)
        (two,) = await r.records("orders")
        assert (two.partition, two.key, two.value) == (0, b"u7", b'{"n":1}')
        (three,) = await r.records("web.log")
        assert (three.key, three.value, list(three.headers)) == (None, b"", [])


@pytest.mark.parametrize("kind", ["unix_datagram", "unix_stream"])
async def test_point_04_mode_stale_file_and_removal_of_a_socket(kind: str):
    with directory() as path:
        file = path / "socket"
        form = socket.SOCK_DGRAM if kind == "unix_datagram" else socket.SOCK_STREAM
        with socket.socket(socket.AF_UNIX, form) as dead:
            dead.bind(str(file))
        values = {
            "inputs": [{"type": kind, "path": str(file), "mode": "0222"}],
            "delivery": {"shutdown_max_delay_ms": 0},
        }
        settings = configuration(path, values)
        async with Gateway(settings) as gateway:
            assert stat.S_IMODE(os.stat(file).st_mode) == 0o222
            r = Rig(None, None, gateway, path)  # type: ignore[arg-type]
            await r.send(message("orders", b"v"), kind=kind)
            await r.until(lambda: gateway.snapshot().total.received == 1)
            with pytest.raises(ConfigError, match="another process, perhaps a gateway, listens"):
                async with Gateway(settings):
                    pass
            assert file.exists()
        assert not file.exists()


async def test_point_05_a_discard_has_the_range_of_client_timestamps():
    values = {"rate_limit": {"interval_ms": 60_000, "max_messages": 1}}
    async with rig(values) as r:
        await r.send(message("orders", b"v"))
        await r.settled(1)
        await r.send(*(message("orders", b"v", timestamp_ms=stamp) for stamp in (7000, 5000, 9000)))
        await r.settled(4)
        (counts,) = r.gateway.pool.counts(topics=True).topics.values()
        assert (counts.earliest_ms, counts.latest_ms) == (5000, 9000)


async def test_point_05_a_discard_of_the_engine_has_the_range_of_client_timestamps():
    async with rig() as r:
        await r.create("compacted", cleanup_policy="compact")
        noted: list[Discard] = []
        r.gateway.accounting.on_discard.append(noted.append)
        stamps = [now_ms() - n for n in (30, 10, 20)]
        await r.send(*(message("compacted", b"v", timestamp_ms=stamp) for stamp in stamps))
        await r.settled(3)
        assert {REASONS[one.reason] for one in noted} == {"error_ack"}
        assert min(one.earliest_ms for one in noted) == min(stamps)
        assert max(one.latest_ms for one in noted) == max(stamps)


GOOD = message("orders", b"value", b"key")


def changed(at: int, data: bytes) -> bytes:
    """Return a valid message with other bytes at a position."""
    return GOOD[:at] + data + GOOD[at + len(data) :]


MALFORMED = {
    "07 empty": b"",
    "07 two bytes": b"\0\x02",
    "08 flags": changed(8, b"\0\1"),
    "08 empty topic": changed(10, b"\0\0"),
    "08 negative topic": changed(10, b"\xff\xff"),
    "08 negative key": changed(26, struct.pack(">i", -1)),
    "08 negative value": changed(33, struct.pack(">i", -1)),
    "08 negative size": changed(0, struct.pack(">i", -1)),
    "08 trailing byte": changed(0, struct.pack(">i", len(GOOD) + 1)) + b"x",
    "08 trailing byte that the size leaves out": GOOD + b"x",
}
"""Everything else is valid, and the topic exists."""


def test_only_one_field_of_each_malformed_message_is_wrong():
    assert struct.unpack_from(">i3s", GOOD, 26) == (3, b"key")
    assert struct.unpack_from(">i5s", GOOD, 33) == (5, b"value")
    for name, data in MALFORMED.items():
        if name.startswith("08") and "size" not in name:
            assert struct.unpack_from(">i", data) == (len(data),), name


@pytest.mark.parametrize("name", MALFORMED)
async def test_points_07_and_08_malformed_messages(name: str):
    async with rig() as r:
        await r.send(MALFORMED[name])
        assert discarded(await r.settled(1)) == {"malformed": 1}
        await r.send(message("orders", b"next"))
        await r.settled(2)
        assert values_of(await r.records("orders")) == [b"next"]


async def test_point_09_other_api_keys_and_versions_have_their_own_counters():
    async with rig() as r:
        good = message("orders", b"v")
        await r.send(good[:4] + b"\x01\x02" + good[6:], good[:6] + b"\0\1" + good[8:])
        assert discarded(await r.settled(2)) == {
            "unsupported_api_key": 1,
            "unsupported_version": 1,
        }


async def test_point_10_the_limit_of_datagrams():
    async with rig() as r:
        overhead = len(message("orders", b""))
        await r.send(
            message("orders", bytes(70_000 - overhead)), message("orders", bytes(65_536 - overhead))
        )
        snapshot = await r.settled(2)
        assert discarded(snapshot) == {"malformed": 1}
        assert values_of(await r.records("orders")) == [bytes(65_536 - overhead)]


async def test_point_11_a_datagram_limit_that_the_system_cannot_carry():
    with directory() as path:
        one = {"type": "unix_datagram", "path": f"{path}/d", "max_message_bytes": "16 MiB"}
        settings = configuration(path, {"inputs": [one]})
        with pytest.raises(ConfigError, match="datagrams of 16777216 bytes"):
            async with Gateway(settings):
                pass
        assert not (path / "d").exists()


@pytest.mark.parametrize("kind", ["unix_stream", "tcp"])
async def test_point_12_streams_are_put_together_and_taken_apart(kind: str):
    async with rig() as r:
        slow = message("orders", b"slow")
        opened = r.socket(kind)
        for n in range(len(slow)):
            opened.sendall(slow[n : n + 1])
            await asyncio.sleep(0.001)
        many = b"".join(message("orders", b"%d" % n) for n in range(1000))
        await asyncio.to_thread(opened.sendall, many)
        await r.settled(1001)
        expected = [b"slow", *(b"%d" % n for n in range(1000))]
        assert values_of(await r.records("orders")) == expected


@pytest.mark.parametrize("kind", ["unix_stream", "tcp"])
@pytest.mark.parametrize("size", [3, -1, 2**31 - 1, 2 * 1024 * 1024 + 5])
async def test_point_13_a_valid_message_and_an_impossible_size_in_one_write(kind: str, size: int):
    async with rig() as r:
        opened = r.socket(kind)
        opened.sendall(message("orders", b"first") + struct.pack(">i", size))
        assert await asyncio.to_thread(opened.recv, 1) == b""  # closed by the gateway
        snapshot = await r.settled(2)
        assert discarded(snapshot) == {"malformed": 1}
        await r.send(message("orders", b"second"), kind=kind)
        await r.settled(3)
        assert values_of(await r.records("orders")) == [b"first", b"second"]


@pytest.mark.parametrize("kind", ["unix_stream", "tcp"])
async def test_point_14_a_malformed_body_leaves_the_connection_open(kind: str):
    async with rig() as r:
        opened = r.socket(kind)
        opened.sendall(MALFORMED["08 flags"])
        opened.sendall(message("orders", b"next"))
        assert discarded(await r.settled(2)) == {"malformed": 1}
        assert values_of(await r.records("orders")) == [b"next"]


@pytest.mark.parametrize("kind", ["unix_stream", "tcp"])
async def test_point_15_half_a_message_is_an_unclean_disconnect(kind: str):
    async with rig() as r:
        half = message("orders", b"value")[:20]
        await r.send(half, kind=kind)
        assert discarded(await r.settled(1)) == {"unclean_disconnect": 1}
        (sample,) = r.gateway.pool.samples()
        assert sample.data == half
        (one,) = (one for one in r.gateway.inputs if one.type == kind)
        assert one.counts().unclean_disconnects == 1


async def test_point_16_tcp_listens_on_loopback_only():
    async with rig() as r:
        (one,) = (one for one in r.gateway.inputs if one.type == "tcp")
        assert one.socket.socket.getsockname()[0] == "127.0.0.1"
    with pytest.raises(ConfigError, match="must be a loopback address"):
        configuration(Path("/tmp"), {"inputs": [{"type": "tcp", "port": 1, "host": "0.0.0.0"}]})


@pytest.mark.parametrize(
    ("partitions", "key", "expected"),
    [(3, -1, 0), (4, 0x80000000, 0), (4, 0x7FFFFFFF, 3), (4, 0xFFFFFFFF, 3), (4, 5, 1)],
)
async def test_point_17_partition_keys_are_unsigned(partitions: int, key: int, expected: int):
    async with rig(topics={"orders": partitions}) as r:
        await r.send(message("orders", b"v", b"k", partition_key=key))
        await r.settled(1)
        assert [record.partition for record in await r.records("orders")] == [expected]


@pytest.mark.parametrize("kind", TRANSPORTS)
async def test_point_21_ten_thousand_messages_stay_in_order(kind: str):
    async with rig() as r:
        expected = [b"%d" % n for n in range(10_000)]
        await r.send(*(message("orders", value) for value in expected), kind=kind)
        await r.settled(10_000)
        assert values_of(await r.records("orders")) == expected


@pytest.mark.parametrize("limit", [{"messages": 5}, {"bytes": 500}], ids=["count", "bytes"])
async def test_point_22_a_number_of_messages_or_bytes_completes_a_batch(limit: dict[str, int]):
    async with rig({"batching": limit}) as r:
        await r.send(*[message("orders", bytes(100))] * 4)
        await r.until(lambda: r.gateway.snapshot().total.received == 4)
        await asyncio.sleep(0.3)
        assert r.gateway.snapshot().total.in_flight == 4
        await r.send(message("orders", bytes(100)))
        await r.settled(5)


async def test_point_22_the_age_of_a_message_completes_a_batch():
    async with rig({"batching": {"time_ms": 400}}) as r:
        began = time.monotonic()
        await r.send(message("orders", b"v"))
        await r.settled(1)
        assert time.monotonic() - began > 0.35


async def test_point_22_without_batching_a_message_is_sent_at_once():
    """A topic of its own; the others wait for 100 messages."""
    values = {"batching": {"messages": 100}, "topics": {"orders": {"batching": {"mode": "off"}}}}
    async with rig(values, topics={"orders": 1, "others": 1}) as r:
        await r.send(message("others", b"v"))
        for n in range(1, 6):
            await r.send(message("orders", b"v"))
            await r.until(lambda n=n: r.gateway.snapshot().total.acked == n)
        assert r.gateway.snapshot().total.in_flight == 1
        assert [count for _, count in await batches_of(r, "orders")] == [1] * 5


async def test_point_22_what_reaches_no_limit_waits():
    async with rig({"batching": {"messages": 100}}) as r:
        await r.send(message("orders", b"v"))
        await r.until(lambda: r.gateway.snapshot().total.received == 1)
        await asyncio.sleep(0.5)
        assert r.gateway.snapshot().total.in_flight == 1
    assert r.gateway.snapshot().total.acked == 1  # the shutdown has delivered it


async def test_point_23_a_future_timestamp_pins_no_batch_and_an_ancient_one_sends_it():
    async with rig({"batching": {"time_ms": 400}}) as r:
        await r.send(message("orders", b"future", timestamp_ms=now_ms() + 600_000))
        await r.settled(1)
    async with rig({"batching": {"time_ms": 60_000}}) as r:
        await r.send(message("orders", b"new"), message("orders", b"ancient", timestamp_ms=12345))
        await r.settled(2)


async def batches_of(r: Rig, topic: str) -> list[tuple[int, int]]:
    """Return codec and number of records of each batch in partition 0."""
    from aiokq.wire import FetchPartition, FetchRequest, FetchTopic

    async with aiokq.Cluster(r.kafka.bootstrap_servers) as cluster:
        info = (await cluster.refresh(topic)).topics[topic]
        response = await cluster.request(
            FetchRequest(
                max_wait_ms=0,
                min_bytes=0,
                topics=[
                    FetchTopic(
                        topic=topic,
                        topic_id=info.topic_id,
                        partitions=[
                            FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=2**24)
                        ],
                    )
                ],
            ),
            node=(topic, 0),
        )
    data = bytes(response.responses[0].partitions[0].records or b"")
    found = []
    at = 0
    while at < len(data):
        (count,) = struct.unpack_from(">i", data, at + 57)
        found.append((data[at + 22] & 7, count))
        at += 12 + struct.unpack_from(">i", data, at + 8)[0]
    return found


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_point_26_compression_by_topic_with_minimum_size_and_ratio(codec: str):
    compression = {"type": codec, "min_bytes": 1000, "max_ratio": 0.75}
    values = {
        "batching": {"mode": "off"},
        "topics": {
            "text": {"batching": {"mode": "per_topic", "messages": 10}, "compression": compression},
            "short": {"compression": compression},
            "noise": {"compression": compression},
        },
    }
    number = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}[codec]
    async with rig(values, topics={"text": 1, "short": 1, "noise": 1, "plain": 1}) as r:
        noise = random.Random(1).randbytes(5000)
        await r.send(
            *[message("text", b"text" * 100)] * 10,
            message("short", b"x" * 100),
            message("noise", noise),
            message("plain", b"text" * 1000),
        )
        await r.settled(13)
        found = {name: await batches_of(r, name) for name in ("text", "short", "noise", "plain")}
        assert found == {
            "text": [(number, 10)],
            "short": [(0, 1)],
            "noise": [(0, 1)],
            "plain": [(0, 1)],
        }
        assert values_of(await r.records("text")) == [b"text" * 100] * 10
        assert values_of(await r.records("noise")) == [noise]


async def test_point_27_a_set_is_limited_before_compression():
    """100 messages that would be one small batch; the limit is `batch_size` of the producers."""
    kafka: dict[str, object] = {"bootstrap_servers": "127.0.0.1:1"}
    delivery = {}
    if gateway_support.default_engine == "producer":
        kafka["batch_size"] = 10_000
    else:
        delivery["message_max_bytes"] = 10_000
    values = {
        "kafka": kafka,
        "delivery": delivery,
        "compression": {"type": "zstd"},
        "batching": {"messages": 100},
    }
    async with rig(values) as r:
        sent = [b"%03d" % n * 300 for n in range(100)]
        await r.send(*(message("orders", value) for value in sent))
        await r.settled(100)
        for codec, count in await batches_of(r, "orders"):
            assert codec == 4
            assert count * 900 <= 10_000
        assert values_of(await r.records("orders")) == sent


@pytest.mark.parametrize("codec", ["none", "zstd"])
async def test_point_27_no_batch_is_larger_than_the_topic_allows(codec: str):
    """Batches that the broker finds too large are split; no message is lost."""
    values = {"compression": {"type": codec}, "batching": {"time_ms": 100}}
    async with rig(values) as r:
        await r.create("small", max_message_bytes="10000")
        sent = [random.Random(n).randbytes(900) for n in range(100)]
        await r.send(*(message("small", value) for value in sent))
        snapshot = await r.settled(100)
        assert snapshot.total.acked == 100
        assert values_of(await r.records("small")) == sent


@pytest.mark.parametrize("kind", TRANSPORTS)
async def test_point_28_an_overlong_message_is_discarded_and_the_next_delivered(kind: str):
    values = {"topics": {"orders": {"max_message_bytes": 100}}}
    async with rig(values) as r:
        opened = r.socket(kind)
        for value in (b"a" * 100, b"b" * 101, b"c"):
            opened.sendall(message("orders", value))
        assert discarded(await r.settled(3)) == {"too_long": 1}
        assert values_of(await r.records("orders")) == [b"a" * 100, b"c"]


@pytest.mark.parametrize("kind", TRANSPORTS)
async def test_point_29_a_full_pool_discards_exactly_and_recovers(kind: str):
    async with rig({"pool": {"max_bytes": "64 KiB"}}) as r:
        await r.send(message("orders", b"first"), kind=kind)
        await r.settled(1)
        r.gateway.engine.suspend()
        await r.send(*[message("orders", bytes(50))] * 2000, kind=kind)
        await r.until(lambda: r.gateway.pool.counts().received == 2001)
        snapshot = r.gateway.snapshot()
        balanced(snapshot)
        lost = discarded(snapshot)["no_memory"]
        assert 0 < lost < 2000
        assert snapshot.total.in_flight == 2000 - lost
        assert r.gateway.pool.counts().used_bytes <= 64 * 1024
        r.gateway.engine.resume()
        await r.settled(2001)
        await r.send(message("orders", b"again"), kind=kind)
        snapshot = await r.settled(2002)
        assert discarded(snapshot) == {"no_memory": lost}
        assert len(await r.records("orders")) == 2002 - lost


@pytest.mark.parametrize("kind", TRANSPORTS)
async def test_point_29_an_input_that_blocks_loses_nothing(kind: str):
    """While the pool is full, messages wait in the socket, and then the sender waits."""
    with directory() as path:
        place = {"port": 0} if kind == "tcp" else {"path": f"{path}/in"}
        one = {"type": kind, **place, "when_full": "block"}
        values = {"pool": {"max_bytes": "64 KiB"}, "inputs": [one]}
        async with aiokq.EmbeddedCluster() as kafka, aiokq.Admin(kafka.bootstrap_servers) as admin:
            await admin.create_topics([aiokq.NewTopic("orders", 1)])
            settings = GatewaySettings.of(
                configuration(path, values), bootstrap_servers=kafka.bootstrap_servers
            )
            async with Gateway(settings) as gateway:
                r = Rig(kafka, admin, gateway, path)
                await r.send(message("orders", b"first"), kind=kind)
                await r.settled(1)
                gateway.engine.suspend()
                data = message("orders", bytes(1000))
                sending = asyncio.create_task(r.send(*[data] * 2000, kind=kind))
                # A topic may have seven eighths of the pool.
                await r.until(lambda: gateway.pool.counts().used_bytes > 50_000)
                await asyncio.sleep(0.2)
                counts = gateway.pool.counts()
                assert counts.received < 70
                assert counts.used_bytes <= 64 * 1024
                gateway.engine.resume()
                await sending
                snapshot = await r.settled(2001)
                assert snapshot.total.acked == 2001
                assert gateway.inputs[0].counts().blocked_ms > 0


async def test_point_30_a_rate_limit_of_five_discards_three_of_eight():
    values = {"rate_limit": {"interval_ms": 1500, "max_messages": 5}}
    async with rig(values) as r:
        # One write, which is read at once: on a busy machine 8 writes may take a whole window.
        data = b"".join(message("orders", b"%d" % n) for n in range(8))
        await r.send(data, kind="unix_stream")
        snapshot = await r.settled(8)
        assert snapshot.total.acked == 5
        assert discarded(snapshot) == {"rate_limit": 3}
        assert snapshot.topics["orders"].document()["discarded"] == {"rate_limit": 3}
        await asyncio.sleep(1.6)
        await r.send(message("orders", b"next window"))
        await r.settled(9)
        values_seen = values_of(await r.records("orders"))
        assert values_seen == [b"0", b"1", b"2", b"3", b"4", b"next window"]


async def test_point_31_messages_of_a_topic_that_does_not_exist_are_discarded():
    async with rig() as r:
        await r.send(
            message("nowhere", b"v"),
            message("no such/name", b"v"),
            message(b"\xff\xfe", b"v"),
            message("orders", b"v"),
        )
        snapshot = await r.settled(4)
        assert discarded(snapshot) == {"bad_topic": 3}
        assert snapshot.total.acked == 1
        assert set(snapshot.topics) == {"orders"}


@pytest.mark.parametrize("way", ["metadata", "create_topics"])
async def test_point_31_topics_are_created_on_request(way: str):
    delivery: dict[str, object] = {"autocreate": True, "autocreate_with": way}
    if way == "create_topics":
        delivery |= {"autocreate_partitions": 3, "autocreate_replication_factor": 1}
    async with rig({"delivery": delivery}) as r:
        await r.send(*(message("created", b"%d" % n, partition_key=1) for n in range(10)))
        snapshot = await r.settled(10)
        assert snapshot.total.acked == 10
        info = await r.admin.describe_topics(["created"])
        partitions = len(next(iter(info.values())).partitions)
        assert partitions == (3 if way == "create_topics" else 1)
        assert len(await r.records("created")) == 10


async def test_point_33_messages_of_a_deleted_topic_are_discarded_as_of_a_bad_topic():
    async with rig(topics={"orders": 1, "doomed": 1}) as r:
        await r.send(message("doomed", b"1"), message("orders", b"1"))
        await r.settled(2)
        await r.admin.delete_topics(["doomed"])
        await r.send(message("doomed", b"2"), message("orders", b"2"))
        snapshot = await r.settled(4)
        assert discarded(snapshot) == {"bad_topic": 1}
        assert snapshot.topics["doomed"].received == 2
        await r.create("doomed")
        await r.send(message("doomed", b"3"))
        snapshot = await r.settled(5)
        assert values_of(await r.records("doomed")) == [b"3"]
        assert snapshot.topics["doomed"].received == 3


async def test_point_38_messages_wait_for_a_kafka_that_is_not_there():
    with directory() as path:
        data = path / "data"
        async with aiokq.EmbeddedCluster(data_dir=data) as kafka:
            servers = kafka.bootstrap_servers
            async with aiokq.Admin(servers) as admin:
                await admin.create_topics([aiokq.NewTopic("orders", 1)])
        settings = GatewaySettings.of(configuration(path), bootstrap_servers=servers)
        async with Gateway(settings) as gateway:
            r = Rig(None, None, gateway, path)  # type: ignore[arg-type]
            for kind in TRANSPORTS:
                await r.send(*(message("orders", b"%d" % n) for n in range(100)), kind=kind)
            await r.until(lambda: gateway.snapshot().total.received == 300)
            assert gateway.snapshot().total.in_flight == 300
            port = int(servers.rpartition(":")[2])
            async with aiokq.EmbeddedCluster(data_dir=data, port=port):
                snapshot = await r.settled(300)
                assert snapshot.total.acked == 300
                assert len(await records_of(servers, "orders")) == 300


async def test_point_42_sigterm_delivers_half_full_batches_and_ends_with_0():
    async with aiokq.EmbeddedCluster() as kafka:
        async with aiokq.Admin(kafka.bootstrap_servers) as admin:
            await admin.create_topics([aiokq.NewTopic("orders", 1)])
        await ended_by_sigterm(kafka.bootstrap_servers)


async def ended_by_sigterm(servers: str) -> None:
    """Let a gateway process end that holds half of a batch, and check the topic `orders`."""
    with directory() as path:
        file = path / "gateway.toml"
        file.write_text(
            f'''
            [kafka]
            bootstrap_servers = "{servers}"
            [[inputs]]
            type = "unix_datagram"
            path = "{path}/datagram"
            [delivery]
            engine = "{gateway_support.default_engine}"
            [batching]
            messages = 1000
            '''
        )
        async with gateway_process("--config", str(file)) as process:
            await process.started()
            assert process.ready["engine"] == gateway_support.default_engine
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.connect(f"{path}/datagram")
                for n in range(10):
                    await asyncio.to_thread(sender.send, message("orders", b"%d" % n))
            process.signal(signal.SIGTERM)
            assert await process.ended() == 0
            assert "received=10 acked=10" in await process.errors()
        assert not (path / "datagram").exists()
        found = await records_of(servers, "orders")
        assert values_of(found) == [b"%d" % n for n in range(10)]


async def test_point_43_sigterm_with_a_hung_broker_ends_within_the_budget():
    """Without a budget, messages would wait until the broker goes on."""
    with directory() as path, broker_process(path / "data") as broker:
        assert broker.process is not None
        servers = broker.bootstrap_servers
        async with aiokq.Admin(servers) as admin:
            await admin.create_topics([aiokq.NewTopic("orders", 1)])
        file = path / "gateway.toml"
        file.write_text(
            f'''
            [kafka]
            bootstrap_servers = "{servers}"
            [[inputs]]
            type = "unix_datagram"
            path = "{path}/datagram"
            [http]
            port = 0
            [delivery]
            engine = "{gateway_support.default_engine}"
            shutdown_max_delay_ms = 1000
            [batching]
            mode = "off"
            '''
        )
        async with gateway_process("--config", str(file)) as process:
            await process.started()
            url = process.ready["http"] + "/accounting/json"
            sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            sender.connect(f"{path}/datagram")

            async def sent(count: int, **expected: int) -> None:
                for _ in range(count):
                    await asyncio.to_thread(sender.send, message("orders", b"v"))
                async with asyncio.timeout(LIMIT):
                    while True:
                        found = json.loads((await fetch(url))[1])
                        if {name: found[name] for name in expected} == expected:
                            return

            with sender:
                await sent(1, acked=1)
                broker.process.send_signal(signal.SIGSTOP)
                try:
                    await sent(100, received=101, in_flight=100)
                    process.signal(signal.SIGTERM)
                    assert await process.ended() == 0
                finally:
                    broker.process.send_signal(signal.SIGCONT)
            assert "received=101 acked=1 discarded=100 " in await process.errors()


async def test_point_43_what_was_not_delivered_within_the_budget_is_discarded():
    """A broker that accepts connections and never answers."""
    with directory() as path, socket.socket() as hung:
        hung.bind(("127.0.0.1", 0))
        hung.listen(10)
        servers = f"127.0.0.1:{hung.getsockname()[1]}"
        values = {"delivery": {"shutdown_max_delay_ms": 1000}}
        settings = GatewaySettings.of(configuration(path, values), bootstrap_servers=servers)
        async with Gateway(settings) as gateway:
            r = Rig(None, None, gateway, path)  # type: ignore[arg-type]
            await r.send(*[message("orders", b"v")] * 500)
            await r.until(lambda: gateway.snapshot().total.received == 500)
            began = time.monotonic()
            snapshot = await asyncio.wait_for(gateway.close(), LIMIT)
            assert time.monotonic() - began > 0.9
        assert discarded(snapshot) == {"shutdown": 500}
        balanced(snapshot)


async def test_point_43_messages_in_flight_are_discarded_at_the_end_of_the_budget():
    values = {"delivery": {"shutdown_max_delay_ms": 1000}}
    async with rig(values) as r:
        await r.send(message("orders", b"v"))
        await r.settled(1)
        await r.kafka.close()
        await r.send(*[message("orders", b"v")] * 100)
        await r.until(lambda: r.gateway.snapshot().total.received == 101)
        await asyncio.sleep(0.2)
        snapshot = await asyncio.wait_for(r.gateway.close(), LIMIT)
        assert discarded(snapshot) == {"shutdown": 100}
        balanced(snapshot)


async def test_point_45_reports_are_json_with_any_bytes_in_topics():
    async with rig({"http": {"port": 0}}) as r:
        names = [b'quote"', b"new\nline", b"\xff\x00", b"\\", "\u00fc".encode(), b"<b>&"]
        await r.send(*(message(name, name) for name in names))
        await r.settled(len(names))
        assert r.gateway.http is not None
        for path in ("/accounting/json", "/readyz", "/healthz"):
            status, body = await fetch(r.gateway.http.where + path)
            assert status == 200
            json.loads(body)


async def fetch(
    url: str, method: str = "GET", headers: dict[str, str] | None = None
) -> tuple[int, str]:
    import aiohttp

    async with (
        aiohttp.ClientSession() as session,
        session.request(method, url, headers=headers) as response,
    ):
        return response.status, await response.text()


async def test_point_47_received_is_acked_discarded_and_in_flight_at_any_moment():
    """Senders of good, bad and unknown messages over three transports, and 1,000 snapshots."""
    values = {
        "pool": {"max_bytes": "256 KiB"},
        "topics": {"limited": {"rate_limit": {"interval_ms": 100, "max_messages": 50}}},
    }
    async with rig(values, topics={"orders": 3, "limited": 1}) as r:
        mixed = [
            message("orders", bytes(100), partition_key=1),
            message("limited", b"x"),
            message("nowhere", b"x"),
            MALFORMED["08 flags"],
            message("orders", bytes(2000)),
        ]
        before = r.gateway.snapshot().total
        sending = asyncio.gather(*(r.send(*mixed * 400, kind=kind) for kind in TRANSPORTS))
        while not sending.done():
            snapshot = r.gateway.snapshot()
            balanced(snapshot)
            total = snapshot.total
            assert total.received >= before.received
            assert total.acked >= before.acked
            assert sum(total.discarded) >= sum(before.discarded)
            before = total
            await asyncio.sleep(0.001)
        await sending
        snapshot = await r.settled(6000)
        found = len(await r.records("orders")) + len(await r.records("limited"))
        assert found == snapshot.total.acked


async def test_point_49_a_storm_of_requests_does_not_stall_the_intake(
    monkeypatch: pytest.MonkeyPatch,
):
    """Messages are received by threads: here requests occupy the event loop until all are sent."""
    async with rig({"http": {"port": 0}}) as r:
        assert r.gateway.http is not None
        began, sent = threading.Event(), threading.Event()
        queues = r.gateway.reports.queues

        def busy() -> object:
            began.set()
            assert sent.wait(LIMIT), "the sender waits for the event loop"
            return queues()

        monkeypatch.setattr(r.gateway.reports, "queues", busy)
        senders = [r.socket(kind) for kind in TRANSPORTS]

        def send() -> None:
            assert began.wait(LIMIT)
            for n in range(1000):
                for opened in senders:
                    opened.sendall(message("orders", b"%d" % n))
            sent.set()

        sending = asyncio.create_task(asyncio.to_thread(send))
        url = r.gateway.http.where
        answers = await asyncio.gather(*[fetch(url + "/queues/json") for _ in range(20)])
        assert {status for status, _ in answers} == {200}
        await sending
        snapshot = await r.settled(3000)
        assert snapshot.total.acked == 3000


async def test_point_50_unknown_paths_are_404():
    async with rig({"http": {"port": 0}}) as r:
        assert r.gateway.http is not None
        assert (await fetch(r.gateway.http.where + "/nope"))[0] == 404
        assert (await fetch(r.gateway.http.where + "/nope", "POST"))[0] == 404
