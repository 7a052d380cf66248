"""A broker killed with 100,000 transactional ids loads them within five seconds of its start."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from aiokq import wire
from tests.peers.broker_process import BrokerProcess
from tests.peers.exact_requests import ExactRequests

IDS = 100_000
AT_ONCE = 500
"""Requests that are sent before their responses are read."""
LONGEST_LOAD_S = 5.0
LOADING = 14
"""COORDINATOR_LOAD_IN_PROGRESS."""
LOOKED_AT = range(1, IDS, IDS // 200)
"""Numbers of ids in each partition of the log."""


def named(number: int) -> str:
    return f"service-{number}"


def initialization(number: int) -> wire.InitProducerIdRequest:
    return wire.InitProducerIdRequest(transactional_id=named(number), transaction_timeout_ms=60_000)


async def fill(servers: str) -> dict[int, int]:
    """Initialize all ids; return the producer ids of those that are looked at later."""
    found: dict[int, int] = {}
    async with ExactRequests(servers) as exact:
        await exact.init_producer_id(named(0))
        for start in range(0, IDS, AT_ONCE):
            numbers = range(start, start + AT_ONCE)
            answers = await exact.ask_all([initialization(number) for number in numbers], 5)
            for number, answer in zip(numbers, answers, strict=True):
                assert not answer.error_code, answer
                found[number] = answer.producer_id
    return {number: found[number] for number in LOOKED_AT}


async def loaded(servers: str, producer_ids: dict[int, int]) -> Counter[int]:
    """Ask until each id has its producer id again; return how often each code was answered."""
    codes = Counter[int]()
    left = list(producer_ids)
    async with ExactRequests(servers) as exact:
        while left:
            answers = await exact.ask_all([initialization(number) for number in left], 5)
            codes.update(answer.error_code for answer in answers)
            for number, answer in zip(left, answers, strict=True):
                if not answer.error_code:
                    assert (answer.producer_id, answer.producer_epoch) == (producer_ids[number], 1)
            left = [n for n, answer in zip(left, answers, strict=True) if answer.error_code]
            await asyncio.sleep(0.05)
    return codes


@pytest.mark.torture
@pytest.mark.timeout(600)
@pytest.mark.parametrize("partitions", [1, 50])
def test_ids_are_loaded_after_a_kill_and_14_is_answered_meanwhile(
    partitions: int, tmp_path: Path
) -> None:
    """Meanwhile clients are answered, so that none runs into a timeout or asks another broker."""
    process = BrokerProcess(tmp_path, "--set", f"transaction.state.log.num.partitions={partitions}")
    process.start()
    try:
        producer_ids = asyncio.run(fill(process.bootstrap_servers))
        process.stop(signal.SIGKILL)
        began = time.monotonic()
        process.start()
        codes = asyncio.run(loaded(process.bootstrap_servers, producer_ids))
        seconds = time.monotonic() - began
    finally:
        process.stop()
    print(f"{IDS} ids of {partitions} partitions loaded in {seconds:.2f} s, answers {dict(codes)}")
    assert seconds < LONGEST_LOAD_S
    assert set(codes) <= {0, LOADING}
    # With many partitions, all may be loaded before the first answer.
    assert partitions > 1 or codes[LOADING]
