"""Points 2, 3 and 6 of the gateway: Dory's programs write to it.

Where Dory's sources are missing, a C program with the options of `to_dory` and aiokq_gateway.h
stand for them.
"""

from __future__ import annotations

import asyncio
import shutil

import pytest

from tests.fault.gateway_support import (
    Rig,
    both_engines,
    discarded,
    engine,  # noqa: F401
    now_ms,
    rig,
    values_of,
)
from tests.gateway_messages import vectors
from tests.peers import dory

pytestmark = [
    pytest.mark.timeout(900),  # building `to_dory` takes minutes
    pytest.mark.skipif(
        shutil.which("gcc") is None, reason="POINTS 2, 3 AND 6 ARE NOT TESTED: no gcc"
    ),
]

OPTION = {
    "unix_datagram": "--socket-path",
    "unix_stream": "--stream-socket-path",
    "tcp": "--port",
}


@pytest.fixture(scope="module")
def to_dory(tmp_path_factory: pytest.TempPathFactory) -> dory.ToDory:
    return dory.to_dory(tmp_path_factory.mktemp("to_dory"))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> dory.Library:
    return dory.library(tmp_path_factory.mktemp("library"))


def where(r: Rig, kind: str) -> tuple[str, str]:
    """The options with which `to_dory` finds an input."""
    (one,) = (one for one in r.gateway.inputs if one.type == kind)
    return OPTION[kind], one.where.rpartition(":")[2] if kind == "tcp" else one.where


def test_the_programs_are_dory_s_own() -> None:
    """The run says so if they are not."""
    if not dory.DIRECTORY:
        pytest.skip(dory.ABSENT)


@both_engines
@pytest.mark.parametrize("kind", OPTION)
async def test_point_02_to_dory_writes_over_each_transport(kind: str, to_dory: dory.ToDory) -> None:
    """Values, keys, partition keys and many messages in order."""
    async with rig(topics={"orders": 4}) as r:
        place = where(r, kind)
        await asyncio.to_thread(
            to_dory.run,
            *(*place, "--topic", "orders", "--key", "u7", "--value", "one"),
            *("--partition-key", "4294967294"),
        )
        await asyncio.to_thread(
            to_dory.run,
            *(*place, "--topic", "orders", "--value", "v", "--partition-key", "3"),
            *("--count", "500", "--seq", "--pad", "5"),
        )
        await r.settled(501)
        records = await r.records("orders")
        (one,) = (record for record in records if record.key is not None)
        assert (one.partition, one.key, one.value) == (2, b"u7", b"one")
        assert abs(one.timestamp_ms - now_ms()) < 60_000
        others = [record for record in records if record.key is None]
        assert {record.partition for record in others} == {3}
        assert values_of(others) == [b"%05d v" % number for number in range(1, 501)]


@both_engines
async def test_point_03_the_client_library_in_c(library: dory.Library) -> None:
    """The golden vectors to the byte, and a message to a gateway."""
    for expected, topic, key, value, timestamp_ms, partition_key in vectors():
        assert library.encode(topic, key, value, timestamp_ms, partition_key) == expected
    async with rig(topics={"orders": 4}) as r:
        path = where(r, "unix_datagram")[1]
        for partition_key, value in ((None, b"any"), (-1, b"last")):
            message = library.encode(b"orders", b"k", value, now_ms(), partition_key)
            await asyncio.to_thread(library.send, path, message)
        await r.settled(2)
        records = await r.records("orders")
        assert sorted(value or b"" for value in values_of(records)) == [b"any", b"last"]
        (last,) = (record for record in records if record.value == b"last")
        assert (last.partition, last.key) == (3, b"k")


@both_engines
@pytest.mark.parametrize("kind", OPTION)
async def test_point_06_a_bad_message_is_malformed_and_harms_nobody(
    kind: str, to_dory: dory.ToDory
) -> None:
    """Its size is too small by one, so that on a stream one byte is left over."""
    async with rig(topics={"orders": 1}) as r:
        place = where(r, kind)
        bad = (*place, "--topic", "orders", "--value", "bad", "--bad")
        await asyncio.to_thread(to_dory.run, *bad)
        await r.until(lambda: r.gateway.snapshot().total.received >= 1)
        good = (*place, "--topic", "orders", "--value", "good")
        await asyncio.to_thread(to_dory.run, *good)
        # On a stream, the byte that is left over is the beginning of a message that never comes.
        count = 2 if kind == "unix_datagram" else 3
        snapshot = await r.settled(count)
        expected = {"malformed": 1}
        if kind != "unix_datagram":
            expected["unclean_disconnect"] = 1
        assert {name: n for name, n in discarded(snapshot).items() if n} == expected
        assert values_of(await r.records("orders")) == [b"good"]
