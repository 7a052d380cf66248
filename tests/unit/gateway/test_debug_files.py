"""Message debug files: which messages they get, and when debugging ends by itself."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from aiokq.gateway.reports.debug_files import MOST_TOPICS, DebugFiles
from aiokq.gateway.reports.scribe import Scribe
from tests.unit.gateway.report_support import NOW, Desk, message


class Debug:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.now = 100.0
        self.scribe = Scribe()
        self.changes = 0
        self.files = DebugFiles(
            str(path),
            self.scribe,
            time_limit=60,
            byte_limit=1000,
            now=lambda: self.now,
            now_ms=lambda: NOW,
        )
        self.files.on_change = self._changed
        self.desk = Desk()
        self.topic = self.desk.topic("orders")

    def _changed(self) -> None:
        self.changes += 1

    def taken(self, count: int = 2) -> Any:
        self.desk.feed(
            *(message("orders", b"v%d" % n, key=b"k", timestamp_ms=n) for n in range(count))
        )
        return self.desk.take(self.topic)

    async def text(self, name: str) -> str:
        await self.scribe.flush()
        path = self.path / name
        return path.read_text() if path.exists() else ""


@pytest.fixture
async def debug(tmp_path: Path) -> Any:
    made = Debug(tmp_path / "debug")
    yield made
    await made.scribe.close()


async def test_each_file_gets_its_messages(debug: Debug):
    taken = debug.taken()
    debug.files.received("orders", taken, range(2))
    assert await debug.text("msg_receive") == ""  # no topic is chosen
    assert debug.files.add("orders")
    debug.files.received("orders", taken, range(2))
    debug.files.sent("orders", taken, [1])
    debug.files.acked("orders", taken, [0])
    debug.files.acked("other", taken, [0])
    first = "ts: 0 topic: 6[orders] key: 4[aw==] value: 4[djA=]\n"
    second = "ts: 1 topic: 6[orders] key: 4[aw==] value: 4[djE=]\n"
    assert await debug.text("msg_receive") == first + second
    assert await debug.text("msg_send") == second
    assert await debug.text("msg_got_ack") == first


async def test_topics_are_chosen_by_name_or_all_together(debug: Debug):
    files = debug.files
    assert files.add("a")
    assert not files.add("a")
    assert not files.remove("b")
    assert files.traces("a")
    assert not files.traces("b")
    assert files.remove("a")
    files.add_all()
    assert files.traces("b")
    assert not files.add("a")
    assert not files.remove("a")
    files.remove_all()
    assert not files.traces("b")
    assert debug.changes == 4
    for n in range(MOST_TOPICS):
        assert files.add(f"t{n}")
    assert not files.add("one more")


async def test_debugging_ends_after_its_time(debug: Debug):
    debug.files.add_all()
    debug.now += 59
    debug.files.expire()
    assert debug.files.topics is None
    debug.now += 1
    debug.files.received("orders", debug.taken(), range(2))
    assert debug.files.topics == frozenset()
    assert await debug.text("msg_receive") == ""


async def test_debugging_ends_after_its_bytes(debug: Debug):
    debug.files.add_all()
    taken = debug.taken(12)
    for _ in range(4):
        debug.files.received("orders", taken, range(taken.count))
    text = await debug.text("msg_receive")
    assert 900 < len(text) <= 1000
    assert text.endswith("]\n")
    debug.files.sent("orders", taken, range(taken.count))
    assert debug.files.topics == frozenset()
    debug.files.add("orders")  # the bytes are counted from zero again
    debug.files.sent("orders", taken, range(2))
    assert (await debug.text("msg_send")).count("\n") == 2


async def test_debugging_is_not_ended_by_messages_of_the_one_before(debug: Debug):
    """Regression: those that still waited for the Scribe used up the bytes of the next one."""
    debug.files.add_all()
    taken = debug.taken(12)
    written = threading.Event()
    assert debug.scribe.submit(written.wait, 0)
    for _ in range(4):
        debug.files.received("orders", taken, range(taken.count))
    debug.files.remove_all()
    debug.files.add("orders")
    written.set()
    assert 900 < len(await debug.text("msg_receive")) <= 1000
    debug.files.sent("orders", taken, range(2))
    assert debug.files.topics == {"orders"}
    assert (await debug.text("msg_send")).count("\n") == 2


async def test_truncating_empties_the_files_and_begins_the_limit_anew(debug: Debug):
    debug.files.add_all()
    taken = debug.taken(15)
    for _ in range(3):
        debug.files.received("orders", taken, range(15))
        await debug.scribe.flush()
        debug.files.truncate()
        assert await debug.text("msg_receive") == ""
        debug.files.expire()
    assert debug.files.topics is None


async def test_without_a_directory_nothing_is_written(tmp_path: Path):
    scribe = Scribe()
    files = DebugFiles(
        None, scribe, time_limit=1, byte_limit=1, now=lambda: 0.0, now_ms=lambda: NOW
    )
    files.add_all()
    desk = Desk()
    topic = desk.topic("t")
    desk.feed(message("t"))
    files.received("t", desk.take(topic), [0])
    await scribe.close()
