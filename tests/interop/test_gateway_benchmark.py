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
    section = suite._memory(program, 1_000, silent)
    assert [row[:3] for row in section.rows] == [
        [name, *messages]
        for name in ("UNIX datagram", "UNIX stream", "TCP")
        for messages in (("100", "1,000"), ("1,024", "200"))
    ]
    assert all(len(row) == len(section.columns) for row in section.rows)


def test_senders_under_load(program: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in (("REPORTED", 20), ("RATE", 500), ("CROWD", 100)):
        monkeypatch.setattr(suite, name, value)
    section = suite._senders(program, tmp_path, 1.0, 1, silent)
    expected = []
    for name in ("UNIX datagram", "UNIX stream", "TCP"):
        for size in ("100", "1,024"):
            expected.append([name, size, "blocking", "gateway"])
            if name == "UNIX datagram":
                expected.append([name, size, "blocking", "bare loop"])
    expected += [
        ["UNIX datagram", "100", "not blocking", reader] for reader in ("gateway", "bare loop")
    ]
    assert [row[:4] for row in section.rows] == expected
    assert all(len(row) == len(section.columns) for row in section.rows)


def test_delivery_latency() -> None:
    rows = suite._delivery(10, 1, silent).rows
    assert [row[0] for row in rows] == [
        "a Producer, acknowledged",
        "the gateway, acknowledged",
        "a Producer, at the consumer",
        "the gateway, at the consumer",
    ]
