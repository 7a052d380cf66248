"""`aiokq log` beside Apache Kafka: both tools print the same, and Kafka's files are sound."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from aiokq.broker.inspection.contents import contents
from aiokq.broker.inspection.places import files_at
from aiokq.broker.inspection.verifying import verify
from aiokq.core.files import OsFiles
from aiokq.fastpath import crc32c
from tests.interop.test_log_directory import directory, dump, named
from tests.peers.apache_kafka import apache_kafka, why_absent
from tests.unit.broker.inspection.test_transaction_records import filled

REASON = why_absent()
pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(REASON is not None, reason=str(REASON)),
]

__all__ = ["directory"]  # a fixture

KAFKAS = {
    "base_offset": "baseOffset",
    "last_offset": "lastOffset",
    "count": "count",
    "base_sequence": "baseSequence",
    "last_sequence": "lastSequence",
    "producer_id": "producerId",
    "partition_leader_epoch": "partitionLeaderEpoch",
    "position": "position",
    "size": "size",
    "magic": "magic",
    "crc": "crc",
}


def test_batches_are_shown_as_kafkas_tool_shows_them(directory: Path) -> None:
    """A difference in output must be a difference in the log."""
    out = dump("--files", named(directory, ".log"))
    theirs = [
        tuple(re.search(rf"\b{word}: (-?\d+)", line)[1] for word in KAFKAS.values())
        for line in out.splitlines()
        if line.startswith("baseOffset:")
    ]
    ours = [
        tuple(str(entry[name]) for name in KAFKAS)
        for file in files_at(OsFiles(), str(directory))
        if file.kind == "log"
        for entry in contents(OsFiles(), file, crc32c)
    ]
    assert len(ours) > 100
    assert ours == theirs


def test_a_directory_that_apache_kafka_writes_is_sound() -> None:
    """Damage reported in sound directories would make the tool useless."""
    from confluent_kafka import Producer

    with apache_kafka(log_segment_bytes="1048576", log_index_interval_bytes="1000") as kafka:
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 1})
        for number in range(3000):
            producer.produce("t", b"x" * 1000, key=b"%d" % (number % 7))
            producer.poll(0)
        assert producer.flush(60) == 0
        [node] = kafka.ports
        [root] = {path.parent for path in kafka.directory.rglob("meta.properties")}
        running = verify(OsFiles(), str(root), crc32c=crc32c, deep=False)
        assert [one for one in running.findings if one.severity.value == "error"] == []
        kafka.stop_node(node)
        stopped = verify(OsFiles(), str(root), crc32c=crc32c, deep=True)
        assert stopped.clean
        assert [one for one in stopped.findings if one.severity.value == "error"] == []
        [partition] = [one for one in stopped.partitions if str(one.partition) == "t-0"]
        assert (partition.end, len(partition.segments) > 2) == (3000, True)
        assert [one.message for one in partition.findings] == []


async def test_transactions_are_shown_as_kafkas_decoder_shows_them(tmp_path: Path) -> None:
    """Keys and values of `__transaction_state`, and markers with their coordinator epoch."""
    await filled(tmp_path)
    found = [file for file in files_at(OsFiles(), str(tmp_path)) if file.kind == "log"]
    states = [file for file in found if file.has_transactions]
    records = [file for file in found if "/t-0/" in file.path]
    out = dump("--transaction-log-decoder", "--files", ",".join(file.path for file in states))
    out += dump("--print-data-log", "--files", ",".join(file.path for file in records))
    theirs = [
        word + line.partition(word)[2]
        for line in out.splitlines()
        for word in (" key: {", " endTxnMarker: ")
        if word in line
    ]
    logs = states + records
    ours = []
    for file in logs:
        for entry in contents(OsFiles(), file, crc32c, records=True):
            if "end_txn_marker" in entry:
                marker, epoch = entry["end_txn_marker"], entry["coordinator_epoch"]
                ours.append(f" endTxnMarker: {marker} coordinatorEpoch: {epoch}")
            elif file.has_transactions and "key" in entry:
                key, payload = (
                    json.dumps(entry[name], separators=(",", ":")) for name in ("key", "payload")
                )
                ours.append(f" key: {key} payload: {payload}")
    assert len(ours) > 8
    assert ours == theirs
