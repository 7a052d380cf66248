"""Records of `__transaction_state` and markers in a dump, and their check."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from aiokq import Admin, EmbeddedCluster, Producer
from aiokq.broker.inspection.contents import contents
from aiokq.broker.inspection.places import files_at
from aiokq.broker.inspection.transaction_records import transaction_entry
from aiokq.broker.inspection.verifying import verify
from aiokq.core.files import OsFiles
from aiokq.fastpath import crc32c
from aiokq.records.record import RawRecord, encode_batch
from aiokq.wire.codec import encode_prefixed
from aiokq.wire.transaction_records import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)

KEY = encode_prefixed(TransactionLogKey(transactional_id="x"), 0)


def shown(value: bytes | None, key: bytes | None = KEY) -> dict[str, str]:
    """Return key and payload as text, as Kafka prints them."""
    entry = transaction_entry(RawRecord(7, 0, key, value))
    return {
        name: one if isinstance(one, str) else json.dumps(one, separators=(",", ":"))
        for name, one in entry.items()
    }


def test_records_as_kafka_prints_them() -> None:
    """Fields of version 1 that have their default are left out; a tombstone is <DELETE>."""
    value = TransactionLogValue(
        producer_id=7,
        producer_epoch=2,
        transaction_timeout_ms=60_000,
        transaction_status=1,
        transaction_partitions=[PartitionsSchema(topic="t", partition_ids=[0, 2])],
        transaction_last_update_timestamp_ms=12,
        transaction_start_timestamp_ms=11,
    )
    text = (
        '"producerId":7,"producerEpoch":2,"transactionTimeoutMs":60000,"transactionStatus":1,'
        '"transactionPartitions":[{"topic":"t","partitionIds":[0,2]}],'
        '"transactionLastUpdateTimestampMs":12,"transactionStartTimestampMs":11'
    )
    key = '{"type":"0","data":{"transactionalId":"x"}}'
    assert shown(encode_prefixed(value, 0)) == {
        "key": key,
        "payload": '{"version":"0","data":{' + text + "}}",
    }
    value.client_transaction_version = 2
    assert '"clientTransactionVersion":2' in shown(encode_prefixed(value, 1))["payload"]
    assert shown(None) == {"key": key, "payload": "<DELETE>"}


def test_what_is_no_record_is_named_by_its_offset() -> None:
    """The other records of the batch are shown."""
    assert "offset 7" in shown(b"\0", KEY)["error"]
    assert "unknown record type 5" in shown(None, b"\0\5ab")["error"]
    assert "too short" in shown(None, None)["error"]


async def filled(directory: Path) -> None:
    """A committed and an aborted transaction, and an open one of a producer that was killed."""
    async with EmbeddedCluster(data_dir=directory) as kafka:
        await kafka.create_topic("t", 1)
        servers = kafka.bootstrap_servers
        async with Producer(servers, transactional_id="x") as producer:
            async with producer.transaction():
                await producer.send("t", b"v")
            await producer.begin_transaction()
            await producer.send("t", b"not")
            await producer.abort_transaction()
            await producer.begin_transaction()
            await producer.send("t", b"open")
            async with Admin(servers) as admin:
                found = (await admin.describe_transactions("x", raise_errors=True))["x"]
                assert str(found.state) == "Ongoing"
            await kafka.close()
            await producer.close(timeout=0.1)  # it cannot abort


async def test_the_transactions_of_a_directory_are_shown_and_sound(tmp_path: Path) -> None:
    """The dump answers what the coordinator knew; the open transaction is in the snapshot."""
    await filled(tmp_path)
    states, markers, opened, aborted = [], [], [], []
    for file in files_at(OsFiles(), str(tmp_path)):
        for entry in contents(OsFiles(), file, crc32c, records=True):
            assert "error" not in entry
            if file.has_transactions and isinstance(payload := entry.get("payload"), dict):
                states.append(payload["data"]["transactionStatus"])
            if "end_txn_marker" in entry:
                markers.append((entry["end_txn_marker"], entry["coordinator_epoch"]))
            if "/t-0/" in file.path and file.kind == "snapshot":
                opened.append(entry["current_txn_first_offset"])
            if file.kind == "txnindex":
                aborted.append((entry["first_offset"], entry["last_offset"]))
    assert states[0] == 0
    assert states[-1] == 1
    assert {1, 2, 3, 4, 5} <= set(states)
    assert markers == [("COMMIT", 0), ("ABORT", 0)]
    assert opened == [4]
    assert aborted == [(2, 3)]
    checked = verify(OsFiles(), str(tmp_path), crc32c=crc32c, deep=True)
    assert [one for one in checked.findings if one.severity.value == "error"] == []


def test_a_transaction_record_that_cannot_be_read_is_damage(tmp_path: Path) -> None:
    """The coordinator would load the log without it."""
    asyncio.run(filled(tmp_path))
    [path] = [path for path in tmp_path.glob("__transaction_state-*/*.log") if path.stat().st_size]
    entries = [
        entry
        for file in files_at(OsFiles(), str(path))
        for entry in contents(OsFiles(), file, crc32c)
    ]
    end = int(str(entries[-1]["last_offset"])) + 1
    broken = [RawRecord(end, 0, KEY, b"\0\1broken")]
    path.write_bytes(path.read_bytes() + encode_batch(broken, crc32c=crc32c, leader_epoch=0))

    def reports(*, deep: bool) -> list[str]:
        findings = verify(OsFiles(), str(path.parent), crc32c=crc32c, deep=deep).partitions
        return [
            one.message
            for partition in findings
            for one in partition.findings
            if f"record at offset {end}" in one.message
        ]

    assert len(reports(deep=True)) == 1
    assert reports(deep=False) == []
