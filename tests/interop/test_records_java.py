"""Batches and message sets encoded by aiokq, read by Apache Kafka's own classes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from aiokq.fastpath import crc32c
from aiokq.records.compression import CODEC_NAMES
from aiokq.records.legacy import downconvert, encode_message_set, upconvert
from aiokq.records.record import RawRecord, encode_batch
from tests.peers.apache_kafka import java_command, why_absent
from tests.unit.records.samples import RECORDS

REASON = why_absent()
pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(REASON is not None, reason=str(REASON)),
]

READER = Path(__file__).parent / "kafka" / "ReadRecords.java"


def line(record: RawRecord, magic: int) -> str:
    def text(content: bytes | None) -> str:
        return "null" if content is None else content.hex()

    headers = record.headers if magic == 2 else []
    time = record.timestamp_ms if magic else -1
    parts = [str(record.offset), str(time), text(record.key), text(record.value)]
    return " ".join([*parts, *(f"{name}={text(value)}" for name, value in headers)])


def test_java_reads_every_magic_and_codec(tmp_path: Path) -> None:
    """Java is the reader that matters most."""
    expected: dict[str, list[str]] = {}
    for codec, name in enumerate(CODEC_NAMES):
        batch = encode_batch(RECORDS, crc32c=crc32c, codec=codec)
        written = {f"v2-{name}": (batch, 2)}
        if name != "zstd":
            for magic in (0, 1):
                data = encode_message_set(RECORDS, magic, codec)
                written[f"v{magic}-{name}"] = (data, magic)
                written[f"v2-from-v{magic}-{name}"] = (upconvert(data, crc32c=crc32c), magic)
                written[f"v{magic}-from-v2-{name}"] = (downconvert(batch, magic), magic)
        for file, (data, magic) in written.items():
            (tmp_path / file).write_bytes(data)
            expected[file] = [line(record, magic) for record in RECORDS]
    command = java_command(str(READER), *(str(tmp_path / file) for file in expected))
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = {}
    for row in done.stdout.splitlines():
        if row.startswith("file "):
            found[row[5:]] = current = []
        else:
            current.append(row)
    assert found == expected


def test_java_reads_every_level(tmp_path: Path) -> None:
    """Levels change the compressed stream, which Java's decoders must still accept."""
    levels = {1: (-1, 1, 9), 3: (1, 9, 17), 4: (-131072, 1, 22)}
    files = []
    for codec, chosen in levels.items():
        for level in chosen:
            path = tmp_path / f"{codec}-{level}"
            path.write_bytes(encode_batch(RECORDS, crc32c=crc32c, codec=codec, level=level))
            files.append(str(path))
    command = java_command(str(READER), *files)
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = [row for row in done.stdout.splitlines() if not row.startswith("file ")]
    assert rows == [line(record, 2) for record in RECORDS] * len(files)
