"""A broker that has imported its lazily loaded modules imports nothing more for any request."""

from __future__ import annotations

import asyncio
import json
import math
import re
import socket
import struct
import time
from pathlib import Path

import aiokq
from aiokq import wire
from aiokq.broker.handlers import APIS
from aiokq.core.types import TopicPartition
from aiokq.wire.catalog import api as request_class
from tests.peers.limited_broker import LimitedBroker, limited_broker
from tests.peers.raw_member import RawClassicMember, RawConsumerMember

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

OFTEN = {
    "legacy": "true",
    "log.segment.bytes": 1024 * 1024,
    "log.cleaner.backoff.ms": 100,
    "log.cleaner.min.cleanable.ratio": 0,
    "log.retention.check.interval.ms": 100,
    "log.flush.offset.checkpoint.interval.ms": 100,
    "log.flush.start.offset.checkpoint.interval.ms": 100,
    "replica.high.watermark.checkpoint.interval.ms": 100,
    "offsets.topic.num.partitions": 2,
    "offsets.retention.check.interval.ms": 100,
    "group.initial.rebalance.delay.ms": 0,
}
"""Settings with which all periodic work runs every second."""


async def test_a_warm_broker_imports_nothing_any_more(tmp_path: Path) -> None:
    """A module that is imported on demand cannot be read if no descriptor is free."""
    with limited_broker(tmp_path, "embedded", "asyncio", None, **OFTEN) as broker:
        deadline = time.monotonic() + 60
        while json.loads(broker.ask("awaited")):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        broker.ask("mark")
        await asyncio.to_thread(send_every_request, broker)
        await asyncio.to_thread(send_nonsense, broker)
        await use_topics(broker.bootstrap_servers, tmp_path)
        await use_groups(broker.bootstrap_servers)
        assert await asyncio.to_thread(broker.ask, f"snapshot {tmp_path / 'snapshot'}") == "taken"
        assert json.loads(broker.ask("imported")) == []


def send_every_request(broker: LimitedBroker) -> None:
    """Send each API in each version, without content, to load every codec and handler."""
    for api in APIS.values():
        message = request_class(api.key)()
        if isinstance(message, wire.ProduceRequest):
            message.acks = 1
        for version in range(api.oldest(legacy=True), api.max_version + 1):
            with socket.create_connection(broker.address, 10) as sock:
                parts = wire.encode_request(
                    message, version=version, correlation_id=1, client_id="t"
                )
                sock.sendall(b"".join(bytes(part) for part in parts))
                sock.settimeout(10)
                size = sock.recv(4)
                assert len(size) in (0, 4), (api.name, version)


def send_nonsense(broker: LimitedBroker) -> None:
    """Send bytes that are not Kafka; the broker logs and closes the connection."""
    for data in (b"GET / HTTP/1.1\r\n\r\n", struct.pack(">ihhih", 10, 3, 9, 1, 30000)):
        with socket.create_connection(broker.address, 10) as sock:
            sock.settimeout(10)
            sock.sendall(data)
            assert sock.recv(1) == b""


def size_of(segment: Path) -> float:
    """Return the size of a file; infinite for a moment in which the cleaner exchanges the file."""
    try:
        return segment.stat().st_size
    except FileNotFoundError:
        return math.inf


async def use_topics(servers: str, directory: Path) -> None:
    """Use all codecs both ways, compaction, deletion, and the calls of administrators."""
    partition = TopicPartition("topic-none", 0)
    async with aiokq.Admin(servers) as admin:
        for codec in (*CODECS, "producer"):
            configs = {"compression.type": "uncompressed" if codec == "none" else codec}
            await admin.create_topics(f"topic-{codec}", num_partitions=2, configs=configs,
                                      raise_errors=True)  # fmt: skip
        await admin.create_topics(
            "compacted",
            num_partitions=1,
            configs={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0},
            raise_errors=True,
        )
        for codec in CODECS:
            async with aiokq.Producer(
                servers, compression_type=codec, batch_size=300_000
            ) as producer:
                for topic in (*(f"topic-{other}" for other in CODECS), "topic-producer"):
                    await producer.send(topic, b"value" * 100, key=b"key", partition=0)
                for _ in range(6):
                    await producer.send("compacted", bytes(290_000), key=codec.encode())
        async with aiokq.Producer(servers) as producer:
            for _ in range(8):
                await producer.send("compacted", bytes(290_000), key=b"key")
        async with aiokq.Consumer(
            "topic-producer", bootstrap_servers=servers, auto_offset_reset="earliest"
        ) as consumer:
            for _ in CODECS:
                await consumer.getone()
        await admin.describe_topics()
        await admin.describe_cluster()
        await admin.describe_configs(
            ["topic-none", aiokq.ConfigResource(aiokq.ConfigResourceType.BROKER, "0")],
            include_synonyms=True,
            include_documentation=True,
        )
        await admin.alter_configs({"topic-none": {"retention.ms": "1"}}, raise_errors=True)
        await admin.list_offsets({partition: "earliest"})
        await admin.list_offsets({partition: 1})
        await admin.describe_log_dirs()
        await admin.create_partitions({"topic-gzip": 3})
        await admin.delete_records({TopicPartition("topic-lz4", 0): 1})
        async with asyncio.timeout(60):  # until the cleaner has run
            while size_of(directory / "data" / "compacted-0" / f"{0:020}.log") > 1_000_000:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            while (await admin.list_offsets({partition: "earliest"}))[partition].offset == 0:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        await admin.delete_topics("topic-zstd", raise_errors=True)


async def use_groups(servers: str) -> None:
    """Use both protocols, subscriptions by pattern, and the group calls of administrators."""
    for protocol in ("classic", "consumer"):
        async with aiokq.Consumer(
            bootstrap_servers=servers,
            group_id=f"group-{protocol}",
            group_protocol=protocol,
            auto_offset_reset="earliest",
        ) as consumer:
            consumer.subscribe(pattern=re.compile("topic-(gzip|producer)"))
            await consumer.getone()
            await consumer.commit()
    async with (
        RawClassicMember(servers, "raw-classic", "topic-producer") as classic,
        RawConsumerMember(servers, "raw-consumer", "topic-producer") as modern,
    ):
        assert classic.member_id == modern.member_id == ""
    async with aiokq.Admin(servers) as admin:
        names = list(await admin.list_groups())
        await admin.describe_groups(names)
        for name in names:
            await admin.list_group_offsets(name)
            await admin.delete_group_offsets(name, [TopicPartition("topic-gzip", 0)])
        await admin.delete_groups(names)
