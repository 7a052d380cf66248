"""A short run of each part of the benchmark suite `gateway`. Needs gcc."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.gateways import compiled_load
from benchmarks.suites import gateway as suite


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled_load(tmp_path_factory.mktemp("load"))


def silent(_: str) -> None:
    pass


def test_rates_have_a_row_per_input(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "LOADS", suite.LOADS[:1] + suite.LOADS[7:8])
    section = suite._throughput(program, 400, 1, silent)
    assert [row[0] for row in section.rows] == [
        "confluent-kafka to the mock cluster",
        "UNIX datagram",
        "TCP, 64 KiB per send",
    ]
    assert all(len(row) == len(section.columns) for row in section.rows)


def test_memory_of_held_messages(program: Path) -> None:
    [row] = suite._memory(program, 1_000, silent).rows
    assert row[1] == "1,000"
    assert row[2].endswith(" MB")


def test_senders_under_load(program: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in (("REPORTED", 20), ("RATE", 500), ("CROWD", 100)):
        monkeypatch.setattr(suite, name, value)
    section = suite._senders(program, tmp_path, 1.5, 1, silent)
    assert [row[:2] for row in section.rows] == [
        [reader, sender]
        for sender in ("blocking", "not blocking")
        for reader in ("gateway", "bare loop")
    ]


def test_delivery_latency() -> None:
    rows = suite._delivery(10, 1, silent).rows
    assert [row[0] for row in rows] == [
        "a Producer, acknowledged",
        "the gateway, acknowledged",
        "a Producer, at the consumer",
        "the gateway, at the consumer",
    ]
