"""The gateway with its engine `producer` in front of Apache Kafka, one node."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

import aiokq
from aiokq.gateway import Gateway
from tests.fault.gateway_support import (
    Rig,
    configuration,
    directory,
    discarded,
    message,
    now_ms,
    records_of,
    values_of,
)
from tests.peers.apache_kafka import ApacheKafka

pytestmark = pytest.mark.kafka

MANY = 10_000
HOUR_MS = 3_600_000


@asynccontextmanager
async def gateway(
    apache: ApacheKafka, values: Mapping[str, Any] | None = None
) -> AsyncIterator[Rig]:
    with directory() as path:
        kafka = {"bootstrap_servers": apache.bootstrap_servers}
        async with (
            aiokq.Admin(apache.bootstrap_servers) as admin,
            Gateway(configuration(path, {"kafka": kafka, **(values or {})})) as made,
        ):
            r = Rig(None, admin, made, path)  # type: ignore[arg-type]
            try:
                yield r
            finally:
                r.close()


@pytest.mark.parametrize("kind", ["unix_datagram", "unix_stream", "tcp"])
async def test_points_01_17_and_21_on_apache_kafka(
    apache: ApacheKafka, topic: str, kind: str
) -> None:
    """Keys, values, partitions and order."""
    async with gateway(apache, {"compression": {"type": "zstd"}}) as r:
        await r.create(topic, 3)
        sent = [
            message(topic, b"%d" % n, b"k%d" % n if n % 2 else b"", partition_key=n - 1)
            for n in range(MANY)
        ]
        await r.send(*sent, kind=kind)
        snapshot = await r.settled(MANY)
        assert snapshot.total.acked == MANY
    records = await records_of(apache.bootstrap_servers, topic)
    for partition in range(3):
        numbers = [n for n in range(MANY) if ((n - 1) & 0xFFFFFFFF) % 3 == partition]
        found = [(one.key, one.value) for one in records if one.partition == partition]
        assert found == [(b"k%d" % n if n % 2 else None, b"%d" % n) for n in numbers]


POISON: dict[str, tuple[Mapping[str, str], bytes, bytes, str]] = {
    "too large": ({"max_message_bytes": "20000"}, bytes(30_000), b"k", "too_long"),
    "without a key": ({"cleanup_policy": "compact"}, b"poison", b"", "error_ack"),
}


@pytest.mark.parametrize("limits", [True, False], ids=["limits known", "limits unknown"])
@pytest.mark.parametrize("kind", POISON)
async def test_one_poisoned_message_costs_no_other_message(
    apache: ApacheKafka, topic: str, kind: str, limits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Apache Kafka names the record that it refuses (KIP-467)."""
    configs, value, key, reason = POISON[kind]
    async with gateway(apache) as r:
        if not limits:
            _without_limits(r, monkeypatch)
        await r.create(topic, **configs)
        good = [b"%d" % n for n in range(MANY)]
        messages = [message(topic, one, b"key") for one in good]
        messages[MANY // 2 : MANY // 2] = [message(topic, value, key)]
        await r.send(*messages)
        snapshot = await r.settled(MANY + 1)
        assert discarded(snapshot) == {reason: 1}
    assert values_of(await records_of(apache.bootstrap_servers, topic)) == good


@pytest.mark.parametrize("limits", [True, False], ids=["limits known", "limits unknown"])
@pytest.mark.parametrize("off_by", [-2 * HOUR_MS, 2 * HOUR_MS])
async def test_a_timestamp_that_the_topic_refuses_becomes_a_header(
    apache: ApacheKafka, topic: str, off_by: int, limits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others of its batch are delivered in order."""
    async with gateway(apache, {"batching": {"time_ms": 50}}) as r:
        if not limits:
            _without_limits(r, monkeypatch)
        await r.create(
            topic,
            message_timestamp_before_max_ms=str(HOUR_MS),
            message_timestamp_after_max_ms=str(HOUR_MS),
        )
        stamp = now_ms() + off_by
        messages = [message(topic, b"%d" % n) for n in range(MANY)]
        messages[MANY // 2 : MANY // 2] = [message(topic, b"poison", timestamp_ms=stamp)]
        await r.send(*messages)
        snapshot = await r.settled(MANY + 1)
        assert snapshot.total.acked == MANY + 1
    records = await records_of(apache.bootstrap_servers, topic)
    (poisoned,) = (record for record in records if record.value == b"poison")
    assert list(poisoned.headers) == [("aiokq.timestamp", b"%d" % stamp)]
    others = [record.value for record in records if record.value != b"poison"]
    assert others == [b"%d" % n for n in range(MANY)]


def _without_limits(r: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(topics: object) -> bool:
        return False

    monkeypatch.setattr(r.gateway.router, "_learn_limits", refused)


async def test_points_31_and_33_topics_that_do_not_exist_are_created_or_not(
    apache: ApacheKafka, topic: str
) -> None:
    """Although the broker creates topics on request, only `autocreate` does."""
    async with gateway(apache) as r:
        await r.send(message(topic, b"1"))
        assert discarded(await r.settled(1)) == {"bad_topic": 1}
        await r.create(topic)
        await r.send(message(topic, b"2"))
        await r.settled(2)
        await r.admin.delete_topics([topic])
        await r.send(message(topic, b"3"))
        assert discarded(await r.settled(3)) == {"bad_topic": 2}
    created = f"{topic}-created"
    for way in ("metadata", "create_topics"):
        delivery = {"autocreate": True, "autocreate_with": way}
        async with gateway(apache, {"delivery": delivery}) as r:
            await r.send(*(message(f"{created}-{way}", b"%d" % n) for n in range(10)))
            snapshot = await r.settled(10)
            assert snapshot.total.acked == 10


async def test_points_26_and_28_to_30_on_apache_kafka(apache: ApacheKafka, topic: str) -> None:
    """Codecs that the broker reads, limits of size and rate."""
    values = {
        "rate_limit": {"interval_ms": 60_000, "max_messages": 5},
        "limits": {"max_message_bytes": 1000},
        "topics": {
            f"{topic}-{codec}": {"compression": {"type": codec}}
            for codec in ("gzip", "snappy", "lz4", "zstd")
        },
    }
    async with gateway(apache, values) as r:
        for name in r.gateway.settings.topics:
            await r.create(name)
            await r.send(message(name, bytes(2000)))
            await r.send(*(message(name, b"text" * 100 + b"%d" % n) for n in range(8)))
        snapshot = await r.settled(36)
        assert discarded(snapshot) == {"too_long": 4, "rate_limit": 12}
    for name in values["topics"]:
        found = values_of(await records_of(apache.bootstrap_servers, name))
        assert found == [b"text" * 100 + b"%d" % n for n in range(5)]
