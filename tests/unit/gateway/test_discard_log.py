"""The discard log: its lines, and which messages get one."""

from __future__ import annotations

import asyncio
import re
import threading
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from aiokq.errors import ConfigError
from aiokq.fastpath.gateway import BAD_TOPIC, ERROR_ACK, SHUTDOWN
from aiokq.gateway import Gateway
from aiokq.gateway.refused import refused_options
from aiokq.gateway.reports.discard_log import DiscardLog
from aiokq.gateway.reports.log_file import LogFile
from aiokq.gateway.reports.log_lines import log_line
from aiokq.gateway.reports.scribe import Scribe
from aiokq.gateway.settings import GatewaySettings
from aiokq.gateway.sizes import largest_log_line
from tests.unit.gateway.report_support import EVERYTHING, NOW, Desk, message

LINE = re.compile(
    rb"now: (\d+) ts: (-?\d+) event: (DISC|DUP) info: (\S+) "
    rb"topic: (\d+)\[(.*)\] key: (\d+)\[([A-Za-z0-9+/=]*)\] msg: (\d+)\[([A-Za-z0-9+/=]*)\]\n"
)


def decoded(line: bytes) -> tuple[int, str, str, str, bytes, bytes]:
    found = LINE.fullmatch(line)
    assert found is not None, line
    for length, text in ((5, 6), (7, 8), (9, 10)):
        assert int(found[length]) == len(found[text])
    return (
        int(found[2]),
        found[3].decode(),
        found[4].decode(),
        found[6].decode(),
        b64decode(found[8]),
        b64decode(found[10]),
    )


class Log:
    """A desk whose discards are logged."""

    def __init__(self, path: Path, *, prefix: int = 10, queue: int = 1 << 20) -> None:
        self.desk = Desk(
            16 * 1024, refused_bytes=1 << 20, refused_reasons=EVERYTHING, sample_bytes=16
        )
        self.scribe = Scribe(queue)
        self.file = LogFile(
            path, max_file_bytes=1 << 20, max_archive_bytes=1 << 20, now_ms=lambda: NOW
        )
        self.log = DiscardLog(self.file, self.scribe, max_prefix_bytes=prefix, now_ms=lambda: NOW)
        accounting = self.desk.accounting
        accounting.keeps_messages = True
        accounting.on_refused.append(self.log.refused)
        accounting.on_discard.append(self.log.discarded)
        accounting.on_duplicates.append(self.log.duplicates)

    async def lines(self) -> list[tuple[int, str, str, str, bytes, bytes]]:
        self.desk.accounting.drain()
        await self.scribe.flush()
        if not self.file.path.exists():
            return []
        return [decoded(line) for line in self.file.path.read_bytes().splitlines(keepends=True)]


async def test_a_gateway_waits_for_its_log_files_until_the_end_of_its_shutdown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Regression: it waited five seconds for a log that takes no lines."""
    given: list[float] = []
    close = Scribe.close

    async def noted(scribe: Scribe, *seconds: float) -> None:
        given.extend(seconds)
        await close(scribe, *seconds)

    monkeypatch.setattr(Scribe, "close", noted)
    settings = GatewaySettings.checked(
        {
            "kafka": {"bootstrap_servers": "127.0.0.1:1"},
            "inputs": [{"type": "tcp", "port": 0}],
            "delivery": {"shutdown_max_delay_ms": 1000},
        }
    )
    async with Gateway(settings):
        pass
    assert len(given) == 1
    assert given[0] <= 1


async def test_the_wait_for_a_log_that_takes_no_lines_ends(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("aiokq.gateway.reports.scribe.LEAST_CLOSE_SECONDS", 0.1)
    scribe, written = Scribe(), threading.Event()
    taken = threading.Event()
    scribe.submit(taken.wait, 1)  # type: ignore[arg-type]
    scribe.submit(written.set, 1)
    await scribe.close(-1.0)
    assert not written.is_set()
    taken.set()
    await asyncio.to_thread(written.wait)


@pytest.fixture
async def log(tmp_path: Path) -> Any:
    made = Log(tmp_path / "discards")
    yield made
    await made.scribe.close()


async def test_point_48_lines_decode_for_every_reason_of_the_core(log: Log):
    desk = log.desk
    desk.topic("long", max_message_bytes=20)
    desk.topic("limited", rate_interval_ms=1000, rate_max_messages=0)
    malformed = message("orders") + b"x"
    malformed = (len(malformed) + 1).to_bytes(4, "big") + malformed[4:] + b"x"
    key, version = bytearray(message("orders")), bytearray(message("orders"))
    key[4:6], version[6:8] = b"\xff\xfe", b"\x00\x09"
    desk.feed(
        malformed,
        bytes(key),
        bytes(version),
        message("long", b"v" * 30, key=b"k" * 12, timestamp_ms=5),
        message("limited", b"v", timestamp_ms=-6),
        message("no such/topic", b"v", timestamp_ms=7),
        message("unknown", bytes(17 * 1024), timestamp_ms=8),
    )
    assert await log.lines() == [
        (NOW, "DISC", "MALFORMED", "", b"", malformed[:10]),
        (NOW, "DISC", "API_KEY(-2)", "", b"", bytes(key[:10])),
        (NOW, "DISC", "VERSION(9)", "", b"", bytes(version[:10])),
        (5, "DISC", "LONG_MSG", "long", b"k" * 10, b"v" * 10),
        (-6, "DISC", "RATE_LIMIT", "limited", b"", b"v"),
        (7, "DISC", "BAD_TOPIC", "no such/topic", b"", b"v"),
        (8, "DISC", "NO_MEM", "unknown", b"", bytes(10)),
    ]
    total = desk.accounting.in_all()
    assert (total.received, total.in_flight, sum(total.discarded)) == (7, 0, 7)


async def test_discards_and_duplicates_of_the_engine_have_lines(log: Log):
    desk = log.desk
    topic = desk.topic("orders")
    desk.feed(*(message("orders", b"%d" % n, timestamp_ms=n) for n in range(3)))
    taken = desk.take(topic)
    desk.accounting.possible_duplicates(topic, taken, [1])
    desk.accounting.discarded(topic, taken, [0, 2], ERROR_ACK, 0)
    desk.accounting.discarded(topic, taken, [1], SHUTDOWN, taken.charge)
    assert await log.lines() == [
        (1, "DUP", "NONE", "orders", b"", b"1"),
        (0, "DISC", "KAFKA_ERROR_ACK", "orders", b"", b"0"),
        (2, "DISC", "KAFKA_ERROR_ACK", "orders", b"", b"2"),
        (1, "DISC", "SERVER_SHUTDOWN", "orders", b"", b"1"),
    ]


async def test_messages_of_topics_that_do_not_exist_have_lines(log: Log):
    log.desk.feed(message("nowhere", b"1"), message("nowhere", b"2"))
    assert log.desk.accounting.discard_unresolved("nowhere", BAD_TOPIC) == 2
    assert [line[2:] for line in await log.lines()] == [
        ("BAD_TOPIC", "nowhere", b"", b"1"),
        ("BAD_TOPIC", "nowhere", b"", b"2"),
    ]
    assert log.desk.pool.counts().used_bytes == 0


async def test_what_does_not_fit_is_dropped_and_counted(tmp_path: Path):
    log = Log(tmp_path / "discards", queue=1000)
    try:
        for _ in range(200):
            log.desk.feed(*[message("bad topic", bytes(500))] * 10)
            log.desk.accounting.drain()
        written = len(await log.lines())
        assert written + log.log.dropped == 2000
        assert log.file.written == written
    finally:
        await log.scribe.close()


@pytest.mark.parametrize("prefix", [0, 1, 2, 3, 100])
def test_no_line_is_longer_than_the_limit_that_the_settings_check(prefix: int):
    for topic in (b"\\" * 32767, b"\xff" * 32767, b"\n" * 32767):
        line = log_line(
            2**63, -(2**63), "DISC", "TOPIC_AUTOCREATE_FAIL", topic, b"k" * prefix, b"v" * prefix
        )
        assert len(line) <= largest_log_line(prefix)
        assert line.count(b"\n") == 1


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"log_path": "/l", "log_max_file_bytes": "100 KiB"}, "two lines may need"),
        ({"log_path": "/l", "log_max_prefix_bytes": "1 GiB", "log_max_file_bytes": "1 MiB"}, "two"),
        (
            {"log_path": "/l", "log_max_archive_bytes": "1 MiB", "log_max_file_bytes": "2 MiB"},
            "must be 0 or at least log_max_file_bytes",
        ),
        ({"log_path": "relative"}, "must be absolute"),
        ({"report_interval_s": 0}, "report_interval_s"),
        ({"log_max_files": 3}, "no option 'log_max_files': did you mean"),
    ],
)
def test_sizes_that_contradict_each_other_are_refused(options: dict[str, Any], text: str):
    with pytest.raises(ConfigError, match=text):
        GatewaySettings.checked({"discards": options, "inputs": [{"type": "tcp", "port": 0}]})


def test_the_defaults_allow_a_log():
    """Dory's own defaults do not pass its check of these sizes."""
    options = {"log_path": "/var/log/discards"}
    GatewaySettings.checked({"discards": options, "inputs": [{"type": "tcp", "port": 0}]})


def test_a_flood_of_bad_messages_costs_the_loop_a_limited_time():
    """The log gets 2,000 messages in a second, shortened; all are counted."""
    settings = GatewaySettings.checked(
        {"discards": {"log_path": "/var/log/x", "log_max_prefix_bytes": 100}}
    )
    desk = Desk(1 << 20, **refused_options(settings))
    bad = message("orders", bytes(500))
    bad = bad[:8] + b"\1" + bad[9:]
    desk.feed(*[bad] * 10_000)
    refused = desk.pool.refused()
    assert (len(refused), len(refused[0].value)) == (2000, 100)
    assert desk.pool.counts().refused_lost == 8000
    assert sum(desk.pool.counts().discarded) == 10_000
    desk.move(1)
    desk.feed(*[bad] * 10)
    assert len(desk.pool.refused()) == 10


def test_messages_for_dead_letters_are_whole():
    """A dead letter is the message, not a line about it; `max_per_s` limits their number."""
    letters = {"dead_letters": {"topic": "dead"}}
    log = {"discards": {"log_path": "/var/log/x", "log_max_prefix_bytes": 1}}
    assert refused_options(GatewaySettings()) == {}
    for values in (letters, {**letters, **log}):
        desk = Desk(1 << 24, **refused_options(GatewaySettings.checked(values)))
        desk.topic("orders", max_message_bytes=10)
        desk.feed(*[message("orders", bytes(500))] * 5000)
        refused = desk.pool.refused()
        assert (len(refused), len(refused[-1].value)) == (5000, 500)
    bad = message("orders", bytes(500))
    desk.feed(bad[:8] + b"\1" + bad[9:])
    (one,) = desk.pool.refused()
    assert len(one.value) == 16  # enough for API key and version


def test_the_rate_of_dead_letters_does_not_limit_the_log():
    """Regression: beyond `max_per_s`, messages were only counted."""
    values = {
        "dead_letters": {"topic": "dead", "max_per_s": 3, "reasons": ["error_ack"]},
        "discards": {"log_path": "/var/log/x", "log_max_prefix_bytes": 100},
    }
    desk = Desk(1 << 20, **refused_options(GatewaySettings.checked(values)))
    desk.pool.limit_whole(3)
    desk.topic("orders", max_message_bytes=10)
    desk.feed(*[message("orders", bytes(500))] * 3000)
    refused = desk.pool.refused()
    assert [len(one.value) for one in refused] == [500] * 3 + [100] * 2000
    assert [one.charge > 0 for one in refused] == [True] * 3 + [False] * 2000
    assert desk.pool.counts().refused_lost == 997
