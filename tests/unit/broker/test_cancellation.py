"""A node whose start, change or stop is cancelled at any await leaves nothing half done.

Uses real files, because descriptors might leak, and an executor that, like a thread, finishes its
work although its waiter was cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import os
import random
import shutil
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path

import pytest

from aiokq.broker.metadata.controller.topic_layout import TopicSpec
from aiokq.broker.node import BrokerNode
from aiokq.core.environment import Environment
from aiokq.core.files import OsFiles
from tests.unit.broker.harness import Broker, NoNetwork, batch, offsets

DESCRIPTORS = "/dev/fd"

pytestmark = pytest.mark.skipif(not os.path.isdir(DESCRIPTORS), reason="cannot count descriptors")


class LateOffload:
    """An executor that does its work in a later loop iteration, even if the waiter is cancelled."""

    async def run(self, fn, *args):
        loop = asyncio.get_running_loop()
        answer = loop.create_future()

        def work() -> None:
            try:
                result = fn(*args)
            except BaseException as error:
                if not answer.done():
                    answer.set_exception(error)
            else:
                if not answer.done():
                    answer.set_result(result)

        loop.call_soon(loop.call_soon, work)
        return await answer

    async def run_sized(self, size, threshold, fn, *args):
        return fn(*args) if size < threshold else await self.run(fn, *args)

    def close(self) -> None:
        pass


_runs = itertools.count()


class Life(Broker):
    """One run of a node on a directory of the machine; each run gives topics other ids."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        chance = random.Random(next(_runs))
        self.node = BrokerNode(
            self.node.settings,
            Environment(self.clock, chance, NoNetwork(), OsFiles(), LateOffload()),
            data_dir=str(path),
        )


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def descriptors() -> int:
    gc.collect()  # a caught exception keeps the locals of its frames alive
    return len(os.listdir(DESCRIPTORS))


async def produced(life: Broker, topic: str = "t") -> None:
    for partition in range(3):
        for _ in range(2):
            answer = await life.produce(topic, batch(5), partition=partition)
            assert answer.error_code == 0


async def check(path: Path, records: int = 10) -> None:
    """Check that a node opens the directory, has all acknowledged records and stops cleanly."""
    async with Life(path) as life:
        for partition in range(3):
            data = await life.fetch_one("t", partition, 0)
            assert offsets(data.records) == [*range(records)]
    assert (path / ".kafka_cleanshutdown").exists()


@pytest.fixture(scope="module", autouse=True)
def frozen() -> None:
    """Let the many garbage collections of these tests examine only what these tests make."""
    gc.collect()
    gc.freeze()


@pytest.fixture
async def killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory after a kill: three partitions of ten records, none synced."""
    for sync in ("fsync", "fdatasync"):  # no power is cut here, and others use the disk too
        monkeypatch.setattr(os, sync, lambda descriptor: None)
    path = tmp_path / "killed"
    async with Life(tmp_path / "made") as life:
        await life.create("t", 3)
        await produced(life)
        shutil.copytree(tmp_path / "made", path)
    return path


async def cancelled_everywhere(
    begin: Callable[[Path], Awaitable[tuple[Life, Coroutine[object, object, object]]]],
    after: Callable[[Life, Path, bool], Awaitable[None]],
    killed: Path,
    tmp_path: Path,
) -> None:
    """Cancel what ``begin`` returns after every number of loop iterations; no task may be left."""
    for count in itertools.count():
        path = tmp_path / str(count)
        shutil.copytree(killed, path)
        before = descriptors()
        life, work = await begin(path)
        task = asyncio.get_running_loop().create_task(work)
        await turns(count)
        done = task.done()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await after(life, path, done)
        await turns(5)
        assert asyncio.all_tasks() == {asyncio.current_task()}, count
        del life, work, task
        assert descriptors() == before, f"cancelled after {count} turns"
        shutil.rmtree(path)
        if done:
            assert count > 3
            return


async def test_a_start_is_cancelled_anywhere(killed: Path, tmp_path: Path) -> None:
    """With a time limit on the start, locks, files and flushers of a half start would leak."""

    async def begin(path: Path) -> tuple[Life, Coroutine[object, object, object]]:
        life = Life(path)
        return life, life.node.open()

    async def after(life: Life, path: Path, done: bool) -> None:
        await life.node.close()
        await check(path)

    await cancelled_everywhere(begin, after, killed, tmp_path)


async def test_a_stop_is_cancelled_anywhere(killed: Path, tmp_path: Path) -> None:
    """The caller gives up waiting, but the logs must still be closed cleanly."""

    async def begin(path: Path) -> tuple[Life, Coroutine[object, object, object]]:
        life = Life(path)
        await life.node.open()
        await life.create("u", 2, flush_messages=1)
        return life, life.node.close()

    async def after(life: Life, path: Path, done: bool) -> None:
        await life.node.close()
        assert (path / ".kafka_cleanshutdown").exists()
        await check(path)

    await cancelled_everywhere(begin, after, killed, tmp_path)


async def test_a_flush_is_cancelled_anywhere_by_the_stop(killed: Path, tmp_path: Path) -> None:
    """The stop cancels the flusher during a sync, while a producer waits for it."""

    async def begin(path: Path) -> tuple[Life, Coroutine[object, object, object]]:
        life = Life(path)
        await life.node.open()
        await life.create("u", flush_messages=1)

        async def produce() -> None:
            answer = await life.produce("u", batch(5))
            assert answer.error_code in (0, 56)

        return life, produce()

    async def after(life: Life, path: Path, done: bool) -> None:
        await life.node.close()
        assert (path / ".kafka_cleanshutdown").exists()
        await check(path)

    await cancelled_everywhere(begin, after, killed, tmp_path)


@pytest.mark.parametrize("change", ["create", "delete", "grow", "alter", "reset"])
async def test_a_change_is_cancelled_anywhere(killed: Path, tmp_path: Path, change: str) -> None:
    """The change is complete or not begun, in memory and on disk, so no half topic exists."""

    async def begin(path: Path) -> tuple[Life, Coroutine[object, object, object]]:
        life = Life(path)
        await life.node.open()
        topics, metadata = life.node.topics, life.node.metadata
        await life.create("u", 2)
        topic = topics.get("u")
        assert topic is not None
        work: dict[str, Callable[[], Coroutine[object, object, object]]] = {
            "create": lambda: metadata.create_topic(TopicSpec("v", 3)),
            "delete": lambda: metadata.delete_topic(topic),
            "grow": lambda: metadata.create_partitions(topic, 5),
            "alter": lambda: metadata.alter_topic_configs(topic, lambda _: {"retention.ms": "5"}),
            "reset": life.node.reset,
        }
        return life, work[change]()

    def seen(life: Life) -> dict[str, tuple[int, dict[str, str]]]:
        return {
            topic.name: (len(topic.partitions), dict(topic.configs)) for topic in life.node.topics
        }

    async def after(life: Life, path: Path, done: bool) -> None:
        known = seen(life)
        before = {"t": (3, {}), "u": (2, {})}
        changed = {
            "create": before | {"v": (3, {})},
            "delete": {"t": (3, {})},
            "grow": before | {"u": (5, {})},
            "alter": before | {"u": (2, {"retention.ms": "5"})},
            "reset": {},
        }[change]
        assert known in (before, changed)
        await life.node.close()
        async with Life(path) as again:
            assert seen(again) == known
            there = {name for name in os.listdir(path) if (path / name).is_dir()}
            assert there == {
                "__cluster_metadata-0",
                *(
                    f"{name}-{index}"
                    for name, (count, _) in known.items()
                    for index in range(count)
                ),
            }

    await cancelled_everywhere(begin, after, killed, tmp_path)
