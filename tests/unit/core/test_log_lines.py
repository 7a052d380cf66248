"""aiokq.core.log_lines: failing log handlers do not affect the caller, and lines are limited."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aiokq.core.log_lines import (
    BURST,
    EVERY,
    TEXT_BURST,
    LineLimit,
    OneLine,
    TextLimit,
    log_line,
)
from tests.sim.harness.simulation import run

pytestmark = pytest.mark.build_independent

logger = logging.getLogger("aiokq.test_log_lines")


class Raising(logging.Handler):
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    def emit(self, record: logging.LogRecord) -> None:
        raise self.error


@pytest.fixture
def raising(request: pytest.FixtureRequest) -> Iterator[BaseException]:
    handler = Raising(request.param)
    logger.addHandler(handler)
    yield request.param
    logger.removeHandler(handler)


@pytest.mark.parametrize("raising", [ValueError("x"), asyncio.CancelledError()], indirect=True)
def test_an_error_of_a_handler_goes_to_the_loops_exception_handler(raising: BaseException) -> None:
    """The caller is in the middle of a state change that must not be interrupted."""
    told = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(context["exception"]))
        log_line(logger, logging.WARNING, "text")

    asyncio.run(main())
    assert told == [raising]


@pytest.mark.parametrize("raising", [ValueError("x")], indirect=True)
def test_without_a_loop_an_error_of_a_handler_is_printed(
    raising: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    """Log lines may be written in any thread."""
    log_line(logger, logging.WARNING, "text")
    assert "ValueError: x" in capsys.readouterr().err


@pytest.mark.parametrize("raising", [KeyboardInterrupt(), SystemExit()], indirect=True)
def test_exceptions_that_end_the_program_are_raised(raising: BaseException) -> None:
    """Only subclasses of Exception are handled."""
    with pytest.raises(type(raising)):
        log_line(logger, logging.WARNING, "text")


def test_a_log_record_has_the_callers_file_and_line(caplog: pytest.LogCaptureFixture) -> None:
    log_line(logger, logging.WARNING, "a=%d", 1)
    [record] = caplog.records
    assert (record.getMessage(), Path(record.pathname).name) == ("a=1", Path(__file__).name)


def test_a_message_is_one_line_whatever_a_client_calls_its_group() -> None:
    """The lines of a traceback stay; they are no text of a client alone."""
    name = "g\n2026-01-01 ERROR forged\r\x1b[2J\u2028\udc80 ä"
    try:
        raise ValueError("bug")
    except ValueError as error:
        exc_info = (type(error), error, error.__traceback__)
    record = logging.LogRecord("aiokq", logging.WARNING, "f", 1, "group=%s", (name,), exc_info)
    first, *rest = OneLine("%(levelname)s %(message)s").format(record).splitlines()
    assert first == ("WARNING group=g\\n2026-01-01 ERROR forged\\r\\x1b[2J\\u2028\\udc80 ä")
    assert rest[0].startswith("Traceback")


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]


def test_the_first_of_each_minute_are_written_and_the_others_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A minute starts with its first line, and no timer is left when nothing is logged."""

    async def body(world: Any) -> None:
        limit = LineLimit(logger, logging.WARNING, "others=%d")
        for minute in range(2):
            for n in range(10):
                limit.write("thing=%d", n)
            assert lines(caplog) == [f"thing={n}" for n in range(BURST)]
            await asyncio.sleep(EVERY + 1)
            assert lines(caplog)[BURST:] == ["others=6"], minute
            caplog.clear()
        limit.write("thing=%d", 1)
        limit.end()
        limit.end()
        await asyncio.sleep(2 * EVERY)
        assert lines(caplog) == ["thing=1"], "nobody was left out"

    run(1, body)


def test_closing_logs_the_number_of_omitted_lines(caplog: pytest.LogCaptureFixture) -> None:
    """A producer that is closed gives up all its records at once."""

    async def body(world: Any) -> None:
        limit = LineLimit(logger, logging.WARNING, "others=%d")
        for n in range(BURST + 1):
            limit.write("thing=%d", n)
        limit.end()
        assert lines(caplog)[BURST:] == ["others=1"]

    run(1, body)


class Limited:
    """A logger with a TextLimit and a clock that tests set."""

    def __init__(self, level: int) -> None:
        self.now = 0.0
        self.lines: list[str] = []
        self.logger = logging.Logger("aiokq.test_log_lines.limited", level)
        self.logger.addFilter(TextLimit(lambda: self.now))
        handler = logging.Handler()
        handler.emit = lambda record: self.lines.append(record.getMessage())  # type: ignore[method-assign]
        self.logger.addHandler(handler)


def test_lines_of_one_text_are_limited_and_those_left_out_are_counted() -> None:
    log = Limited(logging.INFO)
    for number in range(TEXT_BURST + 30):
        log.logger.warning("group is empty: group=%s", number)
    assert len(log.lines) == TEXT_BURST
    log.logger.info("member joins: group=%s", "g")
    assert log.lines[-1] == "member joins: group=g"
    log.now = 1.5
    log.logger.warning("group is empty: group=%s", "g")
    assert log.lines[-1] == "group is empty: group=g left_out=30"
    log.logger.warning("group is empty: group=%s", "h")
    assert len(log.lines) == TEXT_BURST + 2
    log.now = 10_000.0
    for _ in range(2 * TEXT_BURST):
        log.logger.warning("group is empty: group=%s", "g")
    assert len(log.lines) == 2 * TEXT_BURST + 2
    assert log.lines[TEXT_BURST + 2].endswith("group=g left_out=1")


def test_at_debug_no_line_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    limit = TextLimit(lambda: 0.0)
    logger.addFilter(limit)
    try:
        with caplog.at_level(logging.DEBUG, logger.name):
            for number in range(2 * TEXT_BURST):
                logger.info("member joins: member=%d", number)
        assert len(caplog.messages) == 2 * TEXT_BURST
    finally:
        logger.removeFilter(limit)
