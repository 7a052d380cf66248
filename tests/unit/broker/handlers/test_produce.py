"""Produce: the order of the checks, the errors, and the stored batches."""

from __future__ import annotations

import struct
import uuid

import pytest

from aiokq.connection.request_context import CloseConnection
from aiokq.fastpath import crc32c
from aiokq.records import compression
from aiokq.records.header import iter_headers, read_header
from aiokq.records.legacy import encode_message_set
from aiokq.records.record import RawRecord, encode_batch
from tests.unit.broker.harness import NOW_MS, Broker, batch, offsets, watch_offload


def with_crc(data: bytes) -> bytes:
    """Return the batch with its checksum recomputed."""
    return data[:17] + struct.pack(">I", crc32c(data[21:])) + data[21:]


def patched(data: bytes, position: int, layout: str, value: int) -> bytes:
    size = struct.calcsize(layout)
    return with_crc(data[:position] + struct.pack(layout, value) + data[position + size :])


@pytest.mark.parametrize("version", range(3, 13))
async def test_every_version_appends_and_answers_with_the_offset(version):
    """Fields differ between versions; the offset is in all of them."""
    async with Broker() as broker:
        await broker.create("t")
        for expected in (0, 3):
            result = await broker.produce("t", batch(3), version=version)
            assert (result.error_code, result.base_offset) == (0, expected)
            assert result.log_append_time_ms == -1
        if version >= 5:
            assert result.log_start_offset == 0


async def test_version_13_names_the_topic_by_id():
    """An unknown or stale id gets UNKNOWN_TOPIC_ID: the topic was deleted or recreated."""
    async with Broker() as broker:
        topic_id = await broker.create("t")
        result = await broker.produce(topic_id, batch(), version=13)
        assert (result.error_code, result.base_offset) == (0, 0)
        result = await broker.produce(uuid.UUID(int=5), batch(), version=13)
        assert (result.error_code, result.base_offset) == (100, -1)


@pytest.mark.parametrize("version", range(3))
async def test_old_versions_are_refused_in_the_body(version):
    """librdkafka needs them to be advertised, so the connection must stay open."""
    message_set = encode_message_set([RawRecord(0, NOW_MS, b"k", b"v")], 0, 0)
    async with Broker() as broker:
        await broker.create("t")
        result = await broker.produce("t", message_set, version=version)
        assert (result.error_code, result.base_offset) == (35, -1)


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("codec", [0, 1, 2, 3])
async def test_legacy_stores_old_formats_as_the_new_one(version, codec):
    """For clients from before 2017 if `legacy` is set; their codec is kept."""
    magic = 1 if version == 2 else 0
    message_set = encode_message_set(
        [RawRecord(n, NOW_MS, b"k", b"v%d" % n) for n in range(3)], magic, codec
    )
    async with Broker(legacy=True) as broker:
        await broker.create("t")
        result = await broker.produce("t", message_set, version=version)
        assert (result.error_code, result.base_offset) == (0, 0)
        stored = await broker.fetch_one("t", 0, 0)
        assert offsets(stored.records) == [0, 1, 2]
        header = read_header(stored.records)
        assert (header.magic, header.codec) == (2, codec)


@pytest.mark.parametrize("acks", [0, 1, -1])
async def test_each_kind_of_acknowledgement_appends(acks):
    """acks=0 has no response."""
    async with Broker() as broker:
        await broker.create("t")
        result = await broker.produce("t", batch(2), acks=acks)
        assert (result is None) == (acks == 0)
        assert broker.node.topics.partition("t", 0).log.log_end_offset == 2


async def test_a_refusal_with_acks_0_closes_the_connection():
    """There is no response that could have the error; the client then refreshes its metadata."""
    async with Broker() as broker:
        with pytest.raises(CloseConnection):
            await broker.produce("absent", batch(), acks=0)


async def test_acks_other_than_0_1_and_all_are_21():
    """Nothing is appended."""
    async with Broker() as broker:
        await broker.create("t")
        result = await broker.produce("t", batch(), acks=2)
        assert result.error_code == 21
        assert broker.node.topics.partition("t", 0).log.log_end_offset == 0


async def test_a_topic_or_partition_that_does_not_exist_is_3():
    """Only a Metadata request creates topics."""
    async with Broker() as broker:
        await broker.create("t")
        assert (await broker.produce("absent", batch())).error_code == 3
        assert (await broker.produce("t", batch(), partition=1)).error_code == 3
        assert (await broker.produce("t", batch(), partition=-1)).error_code == 3


@pytest.mark.parametrize("data", [b"", None, batch() + batch()])
async def test_anything_but_one_batch_per_partition_is_87(data):
    """From version 3 on; two batches would need two offsets in the response."""
    async with Broker() as broker:
        await broker.create("t")
        assert (await broker.produce("t", data)).error_code == 87


async def test_a_batch_of_an_old_format_is_87_from_version_3_on():
    """The version determines the format of the records."""
    message_set = encode_message_set([RawRecord(0, NOW_MS, b"k", b"v")], 1, 0)
    async with Broker() as broker:
        await broker.create("t")
        assert (await broker.produce("t", message_set)).error_code == 87


async def test_zstd_needs_version_7():
    """UNSUPPORTED_COMPRESSION_TYPE, because consumers of that age could not decode it."""
    async with Broker() as broker:
        await broker.create("t")
        data = batch(codec=compression.ZSTD)
        assert (await broker.produce("t", data, version=6)).error_code == 76
        assert (await broker.produce("t", data, version=7)).error_code == 0


async def test_a_batch_above_the_topics_limit_is_10():
    """The topic's max.message.bytes limits the compressed size."""
    async with Broker() as broker:
        await broker.create("t", max_message_bytes=200)
        assert (await broker.produce("t", batch(value=b"x" * 200))).error_code == 10
        assert (await broker.produce("t", batch())).error_code == 0


async def test_a_changed_byte_is_2():
    """The CRC-32C covers everything after it."""
    async with Broker() as broker:
        await broker.create("t")
        data = bytearray(batch())
        data[-1] ^= 1
        result = await broker.produce("t", bytes(data))
        assert result.error_code == 2
        assert broker.node.topics.partition("t", 0).log.log_end_offset == 0


@pytest.mark.parametrize(
    "data",
    [
        patched(batch(), 0, ">q", 5),  # base offset
        patched(batch(), 57, ">i", 0),  # count
        patched(batch(2), 57, ">i", 1),  # count and last offset delta disagree
        batch(attributes=0x20),  # control
        batch(producer_id=1, producer_epoch=0, base_sequence=-1),
    ],
    ids=["base offset", "no records", "wrong count", "control", "no sequence"],
)
async def test_a_header_that_no_producer_writes_is_87(data):
    """If it were accepted, offsets could repeat or the end of a transaction be forged."""
    async with Broker() as broker:
        await broker.create("t")
        assert (await broker.produce("t", data)).error_code == 87
        assert broker.node.topics.partition("t", 0).log.log_end_offset == 0


async def test_records_without_a_key_are_refused_one_by_one_on_compacted_topics():
    """From version 8 on the response lists them."""
    records = [RawRecord(0, NOW_MS, b"k", b"v"), RawRecord(1, NOW_MS, None, b"v")]
    data = encode_batch(records, crc32c=crc32c)
    async with Broker() as broker:
        await broker.create("t", cleanup_policy="compact")
        result = await broker.produce("t", data, version=8)
        assert result.error_code == 87
        assert [record.batch_index for record in result.record_errors] == [1]
        assert result.error_message
        assert (await broker.produce("t", batch())).error_code == 0


async def test_timestamps_too_far_ahead_are_32_with_their_records():
    """One record from next year would keep a segment from ever expiring."""
    records = [RawRecord(0, NOW_MS, b"k", b"v"), RawRecord(1, NOW_MS + 7_200_000, b"k", b"v")]
    async with Broker() as broker:
        await broker.create("t")
        result = await broker.produce("t", encode_batch(records, crc32c=crc32c), version=8)
        assert result.error_code == 32
        assert [record.batch_index for record in result.record_errors] == [1]


async def test_a_producer_may_not_claim_log_append_time():
    """Only the broker sets it."""
    async with Broker() as broker:
        await broker.create("t")
        assert (await broker.produce("t", batch(timestamp_type=1))).error_code == 32


async def test_log_append_time_stamps_the_batch_and_says_when():
    """Attribute bit, largest timestamp and CRC are rewritten."""
    async with Broker() as broker:
        await broker.create("t", message_timestamp_type="LogAppendTime")
        broker.clock.now_ms = NOW_MS + 5000
        result = await broker.produce("t", batch(2))
        assert (result.error_code, result.log_append_time_ms) == (0, NOW_MS + 5000)
        stored = (await broker.fetch_one("t", 0, 0)).records
        header = read_header(stored)
        assert (header.timestamp_type, header.max_timestamp_ms) == (1, NOW_MS + 5000)
        assert crc32c(bytes(stored)[21:]) == header.crc


async def test_idempotent_batches_are_taken_once_each():
    """A retry gets its first offset, a gap OUT_OF_ORDER_SEQUENCE_NUMBER.

    An older epoch gets INVALID_PRODUCER_EPOCH.
    """
    async with Broker() as broker:
        await broker.create("t")

        async def send(sequence, count=1, epoch=0):
            data = batch(count, producer_id=9, producer_epoch=epoch, base_sequence=sequence)
            result = await broker.produce("t", data)
            return result.error_code, result.base_offset

        assert await send(0, 2) == (0, 0)
        assert await send(2) == (0, 2)
        assert await send(0, 2) == (0, 0)
        assert await send(2) == (0, 2)
        assert (await send(4))[0] == 45
        assert await send(3) == (0, 3)
        assert (await send(1, epoch=1))[0] == 45
        assert await send(0, epoch=1) == (0, 4)
        assert (await send(4, epoch=0))[0] == 47
        for sequence in range(1, 6):
            assert (await send(sequence, epoch=1))[0] == 0
        assert (await send(0, epoch=1))[0] == 45  # only the last five batches are remembered
        assert broker.node.topics.partition("t", 0).log.log_end_offset == 10


async def test_a_producer_that_is_not_known_may_begin_anywhere():
    """Its state may have expired; current brokers never send UNKNOWN_PRODUCER_ID."""
    async with Broker() as broker:
        await broker.create("t")
        data = batch(producer_id=9, producer_epoch=3, base_sequence=77)
        assert (await broker.produce("t", data)).error_code == 0


async def test_clients_may_not_write_to_internal_topics():
    """Kafka's own admin client is the exception, by convention."""
    async with Broker() as broker:
        await broker.create("__consumer_offsets")
        assert (await broker.produce("__consumer_offsets", batch())).error_code == 17
        result = await broker.produce("__consumer_offsets", batch(), client_id="__admin_client")
        assert result.error_code == 0


async def test_more_in_sync_replicas_than_there_are_replicas_cannot_be_needed():
    """As in Kafka, one replica satisfies min.insync.replicas=2 on a topic with one replica."""
    async with Broker() as broker:
        await broker.create("t", min_insync_replicas=2)
        assert (await broker.produce("t", batch())).error_code == 0


@pytest.mark.parametrize("wanted", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
@pytest.mark.parametrize("size", [10, 200_000])
async def test_a_topic_may_want_another_codec_than_the_producers(wanted, size):
    """compression.type differs from producer; large batches are converted off the loop."""
    async with Broker() as broker:
        await broker.create("t", compression_type=wanted)
        data = batch(2, value=b"x" * size, codec=compression.GZIP if size < 100 else 0)
        assert (await broker.produce("t", data)).error_code == 0
        stored = (await broker.fetch_one("t", 0, 0)).records
        [header] = iter_headers(stored)
        assert header.codec == (0 if wanted == "uncompressed" else compression.codec_id(wanted))
        assert crc32c(bytes(stored)[21:]) == header.crc
        assert offsets(stored) == [0, 1]


@pytest.mark.parametrize("size", [10, 200_000])
async def test_another_codec_and_log_append_time_go_together(size):
    """A batch that is converted off the loop is stamped once, by the append."""
    async with Broker() as broker:
        await broker.create("t", compression_type="lz4", message_timestamp_type="LogAppendTime")
        result = await broker.produce("t", batch(2, value=b"x" * size))
        assert (result.error_code, result.log_append_time_ms) == (0, NOW_MS)
        header = read_header((await broker.fetch_one("t", 0, 0)).records)
        assert (header.codec, header.timestamp_type) == (compression.LZ4, 1)


async def test_one_refused_partition_leaves_the_others_alone():
    """Each partition has its own result."""
    from aiokq import wire

    async with Broker() as broker:
        await broker.create("t", 2)
        request = wire.ProduceRequest(
            acks=1,
            timeout_ms=1,
            topic_data=[
                wire.TopicProduceData(
                    name="t",
                    partition_data=[
                        wire.PartitionProduceData(index=index, records=batch())
                        for index in (0, 7, 1)
                    ],
                )
            ],
        )
        response = await broker.ask(request, 9)
        [topic] = response.responses
        assert [(p.index, p.error_code) for p in topic.partition_responses] == [
            (0, 0),
            (7, 3),
            (1, 0),
        ]


async def test_a_full_disk_is_56_and_loses_nothing_acknowledged():
    """KAFKA_STORAGE_ERROR; earlier records are still served."""
    async with Broker() as broker:
        await broker.create("t")
        assert (await broker.produce("t", batch())).error_code == 0
        broker.files.fail("pwritev", 28, matches=lambda path: path.endswith(".log"))
        for _ in range(2):
            assert (await broker.produce("t", batch())).error_code == 56
        files = broker.files
    files.heal()
    async with Broker(files) as broker:
        assert offsets((await broker.fetch_one("t", 0, 0)).records) == [0]
        assert (await broker.produce("t", batch())).base_offset == 1


@pytest.mark.parametrize("version", range(6))
async def test_init_producer_id_never_gives_one_twice(version):
    """This holds after a restart, because blocks are durable before they are used."""
    from aiokq import wire

    async with Broker() as broker:
        request = wire.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        ids = [(await broker.ask(request, version)).producer_id for _ in range(3)]
        files = broker.files
    async with Broker(files) as broker:
        ids += [(await broker.ask(request, version)).producer_id for _ in range(3)]
    assert len(set(ids)) == 6
    assert min(ids) >= 0


async def test_an_old_producer_id_comes_with_its_epoch():
    """As in Kafka only one of them is INVALID_REQUEST; without a transaction both are ignored."""
    from aiokq import wire

    async with Broker() as broker:
        for producer_id, epoch, code in ((5, -1, 42), (-1, 3, 42), (5, 3, 0)):
            request = wire.InitProducerIdRequest(
                transactional_id=None,
                transaction_timeout_ms=0,
                producer_id=producer_id,
                producer_epoch=epoch,
            )
            response = await broker.ask(request, 4)
            assert response.error_code == code
            assert response.producer_epoch == (-1 if code else 0)


async def test_producer_ids_that_cannot_be_reserved_are_56():
    """An id that is not durable could be issued twice; the next start may issue ids again."""
    from aiokq import wire

    async with Broker() as broker:
        broker.files.fail("sync", 5, matches=lambda path: "metadata" in path)
        request = wire.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        assert (await broker.ask(request, 4)).error_code == 56
        broker.files.heal()
        assert (await broker.ask(request, 4)).error_code == 56
        files = broker.files
    async with Broker(files) as broker:
        answer = await broker.ask(request, 4)
        assert (answer.error_code, answer.producer_id) == (0, 1000)


@pytest.mark.parametrize(
    ("sent", "codec", "left"), [(0, "gzip", True), (0, "lz4", False), (4, "lz4", True)]
)
async def test_what_takes_a_millisecond_to_recompress_leaves_the_loop(sent, codec, left):
    """gzip is by far the slowest codec, and a small compressed batch may be large uncompressed."""
    async with Broker() as broker:
        await broker.create("t", compression_type=codec)
        moved = watch_offload(broker)
        assert (await broker.produce("t", batch(40, value=bytes(1000), codec=sent))).error_code == 0
        assert bool(moved) is left
        [header] = iter_headers((await broker.fetch_one("t", 0, 0)).records)
        assert header.codec == {"gzip": 1, "lz4": 3}[codec]


@pytest.mark.parametrize(("count", "codec", "left"), [(1000, 0, True), (1, 0, False), (1, 4, True)])
async def test_a_walk_through_many_records_leaves_the_loop(count, codec, left):
    """Regression: a batch of a megabyte for a compacted topic delayed every client for a second."""
    async with Broker() as broker:
        await broker.create("t", cleanup_policy="compact")
        moved = watch_offload(broker)
        data = batch(count, value=bytes(20), codec=codec)
        assert (await broker.produce("t", data)).error_code == 0
        assert bool(moved) is left
        keyless = batch(count, key=None, value=bytes(20), codec=codec)
        result = await broker.produce("t", keyless)
        assert (result.error_code, len(result.record_errors)) == (87, count)
        assert (await broker.fetch_one("t", 0, 0)).high_watermark == count


@pytest.mark.parametrize(("version", "code"), [(9, 3), (13, 100)])
async def test_a_topic_deleted_while_its_batch_is_looked_through_is_unknown(version, code):
    """KAFKA_STORAGE_ERROR would be a false alarm about the disk."""
    async with Broker() as broker:
        topic_id = await broker.create("t", compression_type="gzip")

        async def delete():
            await broker.node.metadata.delete_topic(broker.node.topics.get("t"))

        meanwhile(broker, delete)
        named = topic_id if version >= 13 else "t"
        result = await broker.produce(named, batch(80, value=bytes(1000)), version=version)
        assert result.error_code == code


async def test_settings_changed_while_a_batch_is_looked_through_hold_for_it():
    """Otherwise a record without a key could get into a compacted topic."""
    async with Broker() as broker:
        await broker.create("t", compression_type="gzip")

        async def compact():
            await broker.node.metadata.alter_topic_configs(
                broker.node.topics.get("t"), lambda _: {"cleanup.policy": "compact"}
            )

        meanwhile(broker, compact)
        result = await broker.produce("t", batch(80, key=None, value=bytes(1000)))
        assert result.error_code == 87


async def test_a_full_disk_is_named_to_the_client_and_logged_once(caplog):
    """The client's error names the cause, and the broker's log is not flooded."""
    async with Broker() as broker:
        await broker.create("t")
        broker.files.fail("pwritev", 28, times=50, matches=lambda path: path.endswith(".log"))
        for _ in range(50):
            result = await broker.produce("t", batch())
            assert result.error_code == 56
            assert "No space left on device" in result.error_message
        assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1


def meanwhile(broker, happens) -> None:
    """Run `happens` while the next batch is in the executor."""
    offload = broker.node.environment.offload
    inline = offload.run

    async def run(fn, *args):
        offload.run = inline
        result = await inline(fn, *args)
        await happens()
        return result

    offload.run = run
