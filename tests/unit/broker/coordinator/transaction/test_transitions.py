"""Metrics and log lines of ended transactions and fenced producers."""

from __future__ import annotations

import asyncio
import logging

from prometheus_client import CollectorRegistry, generate_latest

from aiokq import metrics
from tests.sim.harness.simulation import Simulation, run
from tests.unit.broker.coordinator.transaction.test_requests import VERSIONS, initialized
from tests.unit.broker.coordinator.transaction.test_time_and_restart import timed
from tests.unit.broker.transactional_client import TransactionalClient, world


def ended(broker):
    return dict(broker.node.counters.transactions_ended)


@VERSIONS
async def test_each_transaction_is_counted_once_by_what_ended_it(version):
    """Repeated ends, and aborts without a transaction, are not ends of a transaction."""
    async with world() as broker:
        await broker.create("t", 2)
        client = await initialized(broker, version=version)
        for committed in (True, False, True):
            await client.wrote("t")
            await client.wrote("t", partition=1)
            before = client.producer
            assert await client.end(committed) == 0
            after = client.producer
            client.producer_id, client.epoch = before
            assert await client.end(committed) == 0
            assert client.producer == after
        await client.end(committed=False)  # there is no transaction
        assert ended(broker) == {"commit": 2, "abort": 1}
        assert broker.node.counters.producers_fenced == 0


async def test_an_end_that_is_not_written_is_not_counted():
    """The transaction is still open, although the shard had decided."""
    async with world(directories=["/data", "/other"]) as broker:
        await broker.create("t")
        client = await initialized(broker)
        await client.wrote("t")
        broker.files.fail(
            "pwritev", 28, matches=lambda path: "__transaction_state" in path, times=1
        )
        assert await client.end() != 0
        assert ended(broker) == {}


@VERSIONS
async def test_a_fenced_producer_is_counted_and_logged(version, caplog):
    """A producer that initializes itself again fences nobody, but ends its transaction."""
    caplog.set_level(logging.INFO, "aiokq.broker.coordinator")
    async with world() as broker:
        await broker.create("t")
        counters = broker.node.counters
        old = await initialized(broker, version=version)
        assert counters.producers_fenced == 0  # it is the first of its id
        assert await old.initialize(named=True) == 0
        assert (counters.producers_fenced, ended(broker)) == (0, {})
        await old.wrote("t")
        assert not [line for line in caplog.messages if "fenced" in line or "aborted" in line]
        await initialized(broker, version=version)
        assert (counters.producers_fenced, ended(broker)) == (1, {"init_producer_id": 1})
        place = f"transactional_id=t producer_id={old.producer_id}"
        assert [line for line in caplog.messages if place in line] == [
            f"transaction is aborted by InitProducerId: {place} epoch={old.epoch}",
            f"producer is fenced by a new one: {place} epoch={old.epoch + 1}",
        ]
        again = await initialized(broker, version=version)  # without an open transaction
        await again.wrote("t")
        assert await again.initialize(named=True) == 0
        assert (counters.producers_fenced, ended(broker)) == (2, {"init_producer_id": 2})


@VERSIONS
def test_a_timeout_is_counted_and_logged(version, caplog):
    """At the deadline of the transaction, not when its producer notices."""
    caplog.set_level(logging.INFO, "aiokq.broker.coordinator")

    async def main(simulation: Simulation) -> None:
        async with timed() as broker:
            await broker.create("t")
            client = TransactionalClient(broker, version=version)
            assert await client.initialize(timeout_ms=5000) == 0
            await client.wrote("t")
            await asyncio.sleep(4.9)
            assert ended(broker) == {}
            await asyncio.sleep(0.2)
            assert ended(broker) == {"timeout": 1}
            assert await client.initialize(named=True) == 0
            assert (ended(broker), broker.node.counters.producers_fenced) == ({"timeout": 1}, 0)
            assert any(
                line.startswith("transaction timed out and is aborted: transactional_id=t ")
                for line in caplog.messages
            )

    run(1, main)


@VERSIONS
async def test_failed_verifications_are_counted_by_error(version):
    """An operator sees that batches of fenced producers still arrive, or that partitions are not
    added."""
    async with world() as broker:
        await broker.create("t", 2)
        counters = broker.node.counters
        old = await initialized(broker, version=version)
        await old.wrote("t")
        assert dict(counters.transaction_verifications_failed) == {}
        new = TransactionalClient(broker, version=version)
        assert await new.initialize() == 0
        assert (await old.send("t", partition=1)).error_code == 47
        assert dict(counters.transaction_verifications_failed) == {"PRODUCER_FENCED": 1}
        if version == 0:
            assert (await new.send("t")).error_code == 120
            assert counters.transaction_verifications_failed["TRANSACTION_ABORTABLE"] == 1


async def test_prometheus_sees_open_and_ended_transactions():
    """Labels have few values: states and causes, no transactional ids."""
    async with world() as broker:
        await broker.create("t")
        committed, opened = await initialized(broker), await initialized(broker, "other")
        await committed.wrote("t")
        assert await committed.end() == 0
        await opened.wrote("t")
        registry = CollectorRegistry()
        collector = metrics.register(registry, broker=broker.node)
        try:
            found = generate_latest(registry).decode().splitlines()
        finally:
            registry.unregister(collector)
        name = broker.node.counters.name
        assert [
            line
            for line in found
            if "aiokq_broker_trans" in line or "aiokq_broker_producers_fenced" in line
            if not line.startswith("#")
        ] == [
            f'aiokq_broker_transactional_ids{{broker="{name}",state="CompleteCommit"}} 1.0',
            f'aiokq_broker_transactional_ids{{broker="{name}",state="Ongoing"}} 1.0',
            f'aiokq_broker_transactions_ended_total{{broker="{name}",cause="commit"}} 1.0',
            f'aiokq_broker_producers_fenced_total{{broker="{name}"}} 0.0',
        ]


def test_the_reference_lists_every_cause():
    """The help text of the metric is the only place where an operator finds them."""
    from aiokq.broker.coordinator.transaction.transitions import Cause
    from aiokq.core.counters import METRICS

    [metric] = [each for each in METRICS if each.name == "aiokq_broker_transactions_ended_total"]
    assert not [each.value for each in Cause if each.value not in metric.help]
