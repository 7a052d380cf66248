"""aiokq.core.background: retries and logging for failures that no caller waits for."""

from __future__ import annotations

import logging

import pytest

from aiokq.core.background import FAIL_ON_BUGS, BackgroundWork
from aiokq.core.counters import BrokerCounters
from aiokq.core.errors import KafkaStorage


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_pauses_double_up_to_a_minute_and_are_reset_by_a_success() -> None:
    """Each task has its own pauses, also when several have the same name."""
    work = BackgroundWork(BrokerCounters(), Clock())
    first, second = work.task("load"), work.task("load")
    error = KafkaStorage("refused")
    assert [first.failed(error) for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert second.failed(error) == 1
    first.succeeded()
    assert first.failed(error) == 1
    assert second.failed(error) == 2


def test_each_failure_is_counted_and_few_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A task fails every second for an hour."""
    counters, clock = BrokerCounters(), Clock()
    work = BackgroundWork(counters, clock)
    with caplog.at_level(logging.WARNING):
        for _ in range(3600):
            work.task("a").failed(OSError(24, "Too many open files"))
            clock.now += 1
    assert counters.background_failures == {"a": 3600}
    assert 60 < len(caplog.records) < 70
    assert "times=1" in caplog.messages[0]
    assert all(record.exc_info is None for record in caplog.records)


def test_a_bug_is_logged_as_an_error_with_its_traceback(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner continues, unless bugs are fatal, as in tests."""
    monkeypatch.delenv(FAIL_ON_BUGS)
    fatal: list[BaseException] = []
    work = BackgroundWork(BrokerCounters(), Clock(), fatal=fatal.append)
    assert work.task("a").failed(KeyError("x")) == 1
    assert caplog.records[0].levelno == logging.ERROR
    assert caplog.records[0].exc_info is not None
    assert fatal == []


def test_in_a_test_a_bug_ends_its_owner_and_an_expected_error_does_not() -> None:
    """Otherwise a test would not fail where a task with a bug is retried."""
    fatal: list[BaseException] = []
    work = BackgroundWork(BrokerCounters(), Clock(), fatal=fatal.append)
    for expected in (KafkaStorage("x"), OSError(24, "y"), MemoryError()):
        work.task("a").failed(expected)
    bug = KeyError("x")
    with pytest.raises(KeyError):
        work.task("a").failed(bug)
    assert fatal == [bug]
