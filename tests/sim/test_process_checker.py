"""The checker that judges each world of `process()` when its test has ended."""

from __future__ import annotations

import asyncio

import pytest

from aiokq.producer.producer import Producer
from tests.sim.process_world import ProcessWorld, simulate
from tests.sim.test_whole_system import SERVERS


def test_the_checker_condemns_a_second_copy() -> None:
    """Otherwise the check at the end of each of these worlds would prove nothing."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(1)
        await world.produce("in", range(10), 1)
        program = world.program()
        await asyncio.sleep(5)
        await program.end()
        await world.produce("out", [7], 1)

    with pytest.raises(AssertionError, match="'7' of in has copies at out-0@"):
        simulate(body)


def test_the_checker_condemns_a_transaction_that_hangs() -> None:
    """Its partition cannot be read to its end."""

    async def body(world: ProcessWorld) -> None:
        await world.topics(1)
        environment = world.world.environment("10.0.0.9")
        producer = Producer(
            SERVERS, transactional_id="t", transaction_timeout_ms=900_000, _environment=environment
        )
        await producer.start()
        await producer.begin_transaction()
        await producer.send("out", b"1")
        world.world.kill("10.0.0.9")
        await producer.close(0)

    with pytest.raises(AssertionError, match="hanging-transaction"):
        simulate(body)
