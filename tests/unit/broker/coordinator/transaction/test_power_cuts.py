"""Random transactions, then a power cut that takes a random part of what was not synced.

Invariants after the restart: no transaction hangs, nothing of an aborted one is read as committed,
and with a sync before each acknowledgement, what was committed is read whole.
"""

from __future__ import annotations

import asyncio
import os
import random

import pytest

from aiokq.core.errors import ConcurrentTransactions
from aiokq.records.header import iter_headers
from aiokq.records.record import iter_records
from tests.unit.broker.coordinator.transaction.test_time_and_restart import (
    loaded,
    opened,
    shard_of,
)
from tests.unit.broker.harness import until
from tests.unit.broker.transactional_client import TransactionalClient

PARTITIONS = 3
LONG_RUN = int(os.environ.get("AIOKQ_TRANSACTION_SEEDS", "500"))
IDS = ("a", "b")


class Ledger:
    """What the producers were told, by the value that marks the records of a transaction."""

    def __init__(self) -> None:
        self.committed: dict[bytes, set[int]] = {}
        self.aborted: set[bytes] = set()


async def work(broker, source, version, ledger, tag):
    """Run random transactions; the last one of each id may stay open."""
    for name in IDS:
        client = TransactionalClient(broker, name, version=version)
        assert await patiently(client.initialize) == 0
        for number in range(source.randint(1, 4)):
            broker.clock.now_ms += source.choice((0, 1, 50))
            value = f"{tag}-{name}-{number}".encode()
            partitions = set()
            for _ in range(source.randint(1, 4)):
                partition = source.randrange(PARTITIONS)
                if version < 2:
                    assert await patiently(client.add, "t", partition) == 0
                assert await patiently(sent, client, partition, value) == 0
                partitions.add(partition)
            end = source.random()
            if end < 0.5:
                assert await client.end() == 0
                ledger.committed[value] = partitions
            elif end < 0.75:
                assert await client.end(committed=False) == 0
                ledger.aborted.add(value)
            else:
                if number:
                    break
                assert await client.end(committed=False) == 0
                ledger.aborted.add(value)


async def sent(client, partition, value):
    return (await client.send("t", partition=partition, value=value)).error_code


async def patiently(request, *args):
    """Repeat a request while the markers of the transaction before are being written."""
    while (code := await request(*args)) == ConcurrentTransactions.code:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    return code


async def seen(broker, partition):
    """Return the values that a reader of committed records gets."""
    data = await broker.fetch_one("t", partition, 0, isolation_level=1)
    assert data.error_code == 0
    view, position, values, aborting = memoryview(data.records or b""), 0, [], set()
    starts = sorted(
        (each.first_offset, each.producer_id) for each in data.aborted_transactions or ()
    )
    for header in iter_headers(view):
        while starts and starts[0][0] <= header.last_offset:
            aborting.add(starts.pop(0)[1])
        if header.is_control:
            aborting.discard(header.producer_id)
        elif header.producer_id not in aborting:
            values += [bytes(each.value) for each in iter_records(view[position:], header)]
        position += header.size
    return values


async def settled(broker):
    """End all transactions that may go on, as new producers do."""
    await loaded(broker)
    recovery = broker.node._transaction_recovery
    await until(lambda: not recovery._pending)
    for name in IDS:
        assert await patiently(TransactionalClient(broker, name).initialize) == 0
    await until(lambda: all(m.state.is_idle for m in shard_of(broker).transactions.values()))


@pytest.mark.parametrize("synced", [True, False])
@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("seed", range(5))
async def test_after_power_cuts_no_transaction_hangs_or_is_torn(seed, version, synced):
    await through_power_cuts(seed, version, synced)


@pytest.mark.torture
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("synced", [True, False])
@pytest.mark.parametrize("version", [0, 2])
async def test_the_same_for_many_seeds(version, synced):
    seeds = random.Random(LONG_RUN)
    for _ in range(LONG_RUN):
        seed = seeds.randrange(2**32)
        try:
            await through_power_cuts(seed, version, synced)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


async def through_power_cuts(seed, version, synced):
    source = random.Random(f"{seed}/{version}/{synced}")
    settings = {"log_flush_interval_messages": 1} if synced else {}
    broker = await opened(**settings)
    await broker.create("t", PARTITIONS)
    ledger = Ledger()
    for life in range(3):
        await work(broker, source, version, ledger, life)
        broker.files.power_cut(source)
        now_ms = broker.clock.now_ms
        broker = await opened(broker.files, **settings)
        broker.clock.now_ms = now_ms + 1000
        if broker.node.topics.get("t") is None:  # its creation was not synced, nor acknowledged so
            assert not synced
            return
        if broker.node.topics.get("__transaction_state") is not None:
            await settled(broker)
        values = []
        for partition in range(PARTITIONS):
            log = broker.node.topics.partition("t", partition).log
            assert log.last_stable_offset == log.log_end_offset
            found = await seen(broker, partition)
            values.append(found)
            assert not ledger.aborted.intersection(found)
            assert set(found) <= set(ledger.committed)
        if synced:
            for value, partitions in ledger.committed.items():
                assert {n for n in range(PARTITIONS) if value in values[n]} == partitions
        else:  # what this cut took is not expected after the next one
            for value in list(ledger.committed):
                if not any(value in found for found in values):
                    del ledger.committed[value]
    await broker.__aexit__()
