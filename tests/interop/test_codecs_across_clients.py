"""Each client reads what aiokq wrote, and aiokq reads what each client wrote.

With every codec, on aiokq's broker and on Apache Kafka; keys, values, nulls, headers and timestamps
must be equal.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import aiokq
from aiokq.records.compression import CODEC_NAMES
from aiokq.records.header import iter_headers
from tests.peers.apache_kafka import run_tool, why_absent
from tests.peers.broker_process import broker_process
from tests.peers.other_clients import CLIENTS, Content, content

# kafka-python itself reads its schemas with a deprecated function.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TIME = time.time_ns() // 1_000_000 - 60_000
"""Recent, because retention deletes records of years ago half a minute after a broker starts."""

RECORDS = [
    Content(b"key", b"value", (), TIME),
    Content(None, b"no key", (), TIME + 1),
    Content(b"tombstone", None, (), TIME + 2),
    Content(None, None, (), TIME + 3),
    Content(b"", b"", (), TIME - 1000),
    Content(b"k", b"v", (("h", b"1"), ("h", b"2"), ("empty", b""), ("null", None)), TIME + 5),
    Content("schlüssel".encode(), bytes(range(256)), (("größe", "ü".encode()),), TIME + 6),
    Content(b"large", b"compresses well " * 20_000, (), TIME + 7),
    Content(b"zeros", bytes(70_000), (("large", bytes(5000)),), TIME + 8),
    *(Content(b"k%d" % n, b"value %d" % n, (("n", b"%d" % n),), TIME + n) for n in range(400)),
]

REFUSED = {
    "aiokafka": lambda r: r.key is None and r.value is None,
    "kafka-python": lambda r: (r.key is None and r.value is None) or ("null", None) in r.headers,
}
"""Kinds of records that a client's producer cannot send."""


class Broker(NamedTuple):
    """A broker's address and the directory of its log."""

    name: str
    bootstrap_servers: str
    logs: Path

    def codecs(self, topic: str) -> set[str]:
        """Return the codecs of the batches in the log."""
        return {
            CODEC_NAMES[header.codec]
            for path in (self.logs / f"{topic}-0").glob("*.log")
            for header in iter_headers(path.read_bytes())
        }


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with broker_process(tmp_path_factory.mktemp("broker"), "--profile", "dev") as running:
        yield Broker("own", running.bootstrap_servers, running.data_dir)


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> Broker:
    if request.param == "own":
        return request.getfixturevalue("own")
    apache = request.getfixturevalue("apache")
    return Broker("apache", apache.bootstrap_servers, apache.directory / "node-1")


NEEDS_JAVA = [
    pytest.mark.kafka,
    pytest.mark.skipif(why_absent() is not None, reason=str(why_absent())),
]
BROKERS = ["own", pytest.param("apache", marks=[pytest.mark.kafka, pytest.mark.full])]


def pairs() -> list[object]:
    """Each broker with each client; Java with Java is in the full run only."""
    marks = {
        ("own", "java"): NEEDS_JAVA,
        ("apache", "java"): [*NEEDS_JAVA, pytest.mark.full],
    }
    return [
        pytest.param(
            where, name, marks=marks.get((where, name), pytest.mark.kafka if where != "own" else ())
        )
        for where in ("own", "apache")
        for name in CLIENTS
    ]


@pytest.mark.parametrize(("broker", "name"), pairs(), indirect=["broker"])
def test_each_make_reads_what_aiokq_wrote(broker: Broker, name: str) -> None:
    """Their checksums, codecs and decoders accept aiokq's batches."""
    topics = {f"to-{name}-{codec}": codec for codec in CODECS}

    async def write() -> None:
        for topic, codec in topics.items():
            async with aiokq.Producer(
                broker.bootstrap_servers, compression_type=codec, batch_size=500_000
            ) as producer:
                await (
                    await producer.send_many(
                        topic, [(r.key, r.value, r.headers, r.timestamp_ms) for r in RECORDS],
                        partition=0,
                    )
                )  # fmt: skip

    asyncio.run(write())
    for topic, codec in topics.items():
        assert broker.codecs(topic) == {codec}
    _, read = CLIENTS[name]
    found = read(broker.bootstrap_servers, list(topics), len(RECORDS))
    assert set(found) == set(topics)
    for topic in topics:
        assert found[topic] == RECORDS, topic


@pytest.mark.parametrize(("broker", "name"), pairs(), indirect=["broker"])
def test_aiokq_reads_what_each_make_wrote(broker: Broker, name: str) -> None:
    """aiokq reads their framing of each codec (xerial snappy, lz4 frames, zstd), CRC checked."""
    topics = {f"from-{name}-{codec}": codec for codec in CODECS}
    refused = REFUSED.get(name, lambda record: False)
    written = [record for record in RECORDS if not refused(record)]
    write, _ = CLIENTS[name]
    write(broker.bootstrap_servers, topics, written)
    for topic, codec in topics.items():
        # A client may send a batch uncompressed if compression would make it larger.
        assert broker.codecs(topic) - {"none"} == {codec} - {"none"}

    async def read() -> dict[str, list[Content]]:
        found: dict[str, list[Content]] = {topic: [] for topic in topics}
        async with aiokq.Consumer(
            *topics, bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
        ) as consumer:
            for _ in range(len(written) * len(topics)):
                record = await asyncio.wait_for(consumer.getone(), 20)
                assert record.offset == len(found[record.topic])
                found[record.topic].append(content(record))
        return found

    found = asyncio.run(read())
    for topic in topics:
        assert found[topic] == written, topic


@pytest.mark.kafka
@pytest.mark.skipif(why_absent() is not None, reason=str(why_absent()))
@pytest.mark.parametrize("broker", BROKERS, indirect=True)
def test_the_console_consumer_reads_every_codec_of_one_log(broker: Broker) -> None:
    """Batches of five codecs follow one another in one partition."""
    topic = "console"

    async def write() -> None:
        for codec in CODECS:
            async with aiokq.Producer(broker.bootstrap_servers, compression_type=codec) as producer:
                records = [(b"key", f"{codec} {n} {'x' * 50}".encode()) for n in range(20)]
                await (await producer.send_many(topic, records, partition=0))

    asyncio.run(write())
    assert broker.codecs(topic) == set(CODECS)
    done = run_tool(
        "consumer.ConsoleConsumer", "--bootstrap-server", broker.bootstrap_servers,
        "--topic", topic, "--partition", "0", "--offset", "earliest",
        "--max-messages", "100", "--timeout-ms", "20000", "--formatter-property", "print.key=true",
    )  # fmt: skip
    expected = [f"key\t{codec} {n} {'x' * 50}" for codec in CODECS for n in range(20)]
    assert done.stdout.splitlines() == expected, done.stderr
