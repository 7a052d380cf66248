"""Bootstrapping from Apache Kafka: dead seeds, unknown names, and no broker at all."""

from __future__ import annotations

import time

import pytest

import aiokq
from aiokq import errors
from tests.peers.ports import free_ports

pytestmark = pytest.mark.kafka


async def test_dead_and_unknown_seeds_before_a_good_one(apache, topic):
    """A bad seed does not delay the use of another (kafka4net's cases 26 and 30)."""
    [dead] = free_ports(1)
    seeds = f"no-such-host.invalid:9092,127.0.0.1:{dead},{apache.bootstrap_servers}"
    started = time.monotonic()
    async with aiokq.Cluster(seeds) as cluster:
        assert time.monotonic() - started < 5
        async with cluster.producer() as producer:
            assert (await producer.send(topic, b"v")).offset == 0
        assert cluster.health()


async def test_unknown_names_alone_fail_in_time_and_are_named(apache):
    """The error gives each address with its reason within the limit (kafka4net's case 25)."""
    started = time.monotonic()
    with pytest.raises(errors.BootstrapFailed, match=r"no-such-host\.invalid") as failure:
        async with aiokq.Cluster("no-such-host.invalid:9092", bootstrap_timeout_ms=3000):
            pass
    assert time.monotonic() - started < 5
    assert "9092" in str(failure.value)


async def test_the_controllers_port_is_not_a_broker(apache):
    """A port that speaks Kafka but serves no clients gives an error with a reason."""
    address = f"127.0.0.1:{apache.controller_ports[1]}"
    with pytest.raises(errors.KafkaError) as failure:
        async with aiokq.Producer(address, bootstrap_timeout_ms=2000) as producer:
            await producer.send("t", b"v")
    assert address in str(failure.value)
