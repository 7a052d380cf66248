"""Each Apache Kafka 4 opens a directory that aiokq made with its default levels, and gives it back.

`test_rounds` has more rounds, with the newest release.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import aiokq
from aiokq.broker.metadata.log.metadata_reader import MetadataState
from tests.interop.apache import rounds
from tests.interop.apache.directories import Rows, commit, committed, complaints, read
from tests.interop.apache.rounds import DYNAMIC, STATIC, Node, Turn, differences, facts
from tests.peers.apache_kafka import why_earlier_is_absent
from tests.peers.other_clients import PATIENCE

pytestmark = [pytest.mark.kafka, pytest.mark.build_independent]

TURNS = (Turn("aiokq", 1), Turn("kafka", 1), Turn("aiokq", 2))

HARMLESS = ("Expected partition shared-",)
"""A complaint of Apache Kafka about partitions added to a topic."""


@contextmanager
def running(node: Node, make: str, end: signal.Signals) -> Iterator[str]:
    """Run one of the brokers on the directory; give its address."""
    broker = node.aiokq()
    if make == "aiokq":
        broker.start()
    else:
        node.start_node(1)
    try:
        yield node.bootstrap_servers
    finally:
        if make == "kafka":
            node.stop_node(1, end)
        else:
            assert broker.stop(end) == (0 if end == signal.SIGTERM else -end)


def transactional(turn: Turn) -> bytes:
    return b"in a transaction of " + turn.topic.encode()


async def transact(bootstrap: str, turn: Turn) -> None:
    """Commit a transaction with the offset of a group, then abort one."""
    async with aiokq.Producer(bootstrap, transactional_id="ledger") as producer:
        async with producer.transaction() as transaction:
            await producer.send("shared", transactional(turn), partition=0)
            await transaction.send_offsets({("shared", 0): turn.number}, "sent")
        await producer.begin_transaction()
        await producer.send("shared", b"aborted", partition=0)
        await producer.abort_transaction()


def new_values(turn: Turn) -> set[bytes]:
    """Return the values of the records that a turn adds to the shared topic."""
    written = {b"%s %d" % (turn.topic.encode(), partition) for partition in range(turn.number)}
    return {*written, transactional(turn)}


async def consume(bootstrap: str, wanted: set[bytes], group_id: str | None = None) -> None:
    """Read what is committed of the shared topic, from the beginning or where a group was."""
    group: Any = {"group_id": group_id, "group_protocol": "consumer"} if group_id else {}
    async with (
        asyncio.timeout(PATIENCE),
        aiokq.Consumer(
            "shared",
            bootstrap_servers=bootstrap,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            **group,
        ) as consumer,
    ):
        found = [bytes((await anext(consumer)).value) for _ in wanted]
        if group:
            await consumer.commit()
    assert sorted(found) == sorted(wanted)


def check(bootstrap: str, number: int, before: Rows) -> None:
    """Check that everything of the first turns is there."""
    assert read(bootstrap, rounds.counts(bootstrap)) == before
    values = set[bytes]().union(*map(new_values, TURNS[:number]))
    asyncio.run(consume(bootstrap, values))
    assert committed(bootstrap, "workers", "shared", 1) == [number]
    assert committed(bootstrap, "sent", "shared", 1) == [number]


@pytest.mark.parametrize(
    ("release", "voters", "end"),
    [("4.0.0", STATIC, signal.SIGTERM), ("4.1.1", DYNAMIC, signal.SIGKILL)],
)
def test_a_directory_goes_to_an_earlier_release_and_back(
    release: str, voters: str, end: signal.Signals, tmp_path: Path
) -> None:
    """Topics, settings, groups, records and transactions are made and found on both sides."""
    reason = why_earlier_is_absent(release)
    if reason is not None:
        pytest.skip(f"APACHE KAFKA {release} IS NOT TESTED: {reason}")
    node = Node(tmp_path, voters, release=release)
    old: MetadataState | None = None
    rows: Rows = {}
    try:
        for turn in TURNS:
            with running(node, turn.make, end) as bootstrap:
                if rows:
                    check(bootstrap, turn.number - 1, rows)
                expected = asyncio.run(rounds.change(bootstrap, turn))
                asyncio.run(rounds.write(bootstrap, turn))
                asyncio.run(transact(bootstrap, turn))
                asyncio.run(consume(bootstrap, new_values(turn), "members"))
                commit(bootstrap, "workers", "shared", {0: turn.number})
                rows = read(bootstrap, rounds.counts(bootstrap))
            new = rounds.state(node.data)
            assert new.image.features == rounds.MADE
            if old is not None:
                assert differences(facts(old), facts(new)) == expected
            old = new
            assert node.strays() == []
    finally:
        node.stop()
    assert complaints(node, *HARMLESS) == []
