"""Apache Kafka's DumpLogSegments reads a log directory of ours without complaint."""

from __future__ import annotations

import random
import re
import time
from pathlib import Path

import pytest

from aiokq.broker.log.directory import LogDirectory
from aiokq.broker.log.meta_properties import random_id
from aiokq.core.files import OsFiles
from aiokq.fastpath import crc32c
from tests.peers.apache_kafka import run_tool, why_absent
from tests.unit.broker.log.samples import NOW_MS, TP, append, batch, config

REASON = why_absent()
pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(REASON is not None, reason=str(REASON)),
]

BATCHES = 400


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed directory: several segments, all codecs, three epochs, an idempotent producer."""
    path = tmp_path_factory.mktemp("log")
    source = random.Random(7)
    opened = LogDirectory.open(
        OsFiles(), str(path), crc32c=crc32c, random=source, now=time.monotonic
    )
    log = opened.open_partition(
        TP,
        random_id(source),
        config(segment_bytes=16_384, index_interval_bytes=512),
        now_ms=NOW_MS,
    )
    sequence = 0
    for index in range(BATCHES):
        data = batch(
            *[b"value %d" % index] * (1 + index % 5),
            timestamp_ms=NOW_MS + index * 7 - index % 3 * 20,
            step_ms=3,
            codec=index % 5,
            producer_id=77,
            producer_epoch=0,
            base_sequence=sequence,
        )
        append(log, data, leader_epoch=index // 150)
        sequence += 1 + index % 5
    assert len(log.segments) > 2
    opened.close()
    return path / "orders-0"


def dump(*arguments: str) -> str:
    done = run_tool("kafka.tools.DumpLogSegments", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def named(directory: Path, *suffixes: str) -> str:
    return ",".join(str(p) for p in sorted(directory.iterdir()) if p.suffix in suffixes)


def test_every_record_is_read_and_every_index_entry_fits(directory: Path) -> None:
    """An entry that points elsewhere makes Kafka's consumers miss records, in silence."""
    files = named(directory, ".log", ".index", ".timeindex")
    out = dump("--deep-iteration", "--print-data-log", "--files", files)
    assert "isvalid: false" not in out
    for complaint in ("Mismatches", "mismatch", "Found timestamp", "out of order", "consecutive"):
        assert complaint not in out
    offsets = [int(found) for found in re.findall(r"^\| offset: (\d+) ", out, re.MULTILINE)]
    assert offsets == list(range(sum(1 + index % 5 for index in range(BATCHES))))
    codecs = set(re.findall(r"compresscodec: (\w+)", out))
    assert codecs == {"none", "gzip", "snappy", "lz4", "zstd"}
    assert set(re.findall(r"partitionLeaderEpoch: (\d+)", out)) == {"0", "1", "2"}


def test_the_indexes_pass_the_sanity_check(directory: Path) -> None:
    """Kafka rebuilds an index that does not, which takes minutes for a large directory."""
    files = named(directory, ".index", ".timeindex")
    out = dump("--index-sanity-check", "--files", files)
    assert out.count("passed sanity check") == len(files.split(","))


def test_the_producer_snapshot_is_read(directory: Path) -> None:
    """Kafka takes the last entry of a producer: the newest batch must come last."""
    newest = named(directory, ".snapshot").split(",")[-1]
    out = dump("--files", newest)
    entries = re.findall(r"producerId: 77 .* lastSequence: (\d+) ", out)
    assert len(entries) == 5
    assert entries == sorted(entries, key=int)
    assert int(entries[-1]) == sum(1 + index % 5 for index in range(BATCHES)) - 1
