"""The limit on repeated log lines of a gateway."""

from __future__ import annotations

import logging

import pytest

from aiokq.cli.gateway_logs import EVERY, MOST, RepeatedLines, gateway_logs


def line(created: float, text: str = "topic is bad: topic=%s") -> logging.LogRecord:
    record = logging.LogRecord("aiokq.gateway", logging.WARNING, "f", 1, text, ("t",), None)
    record.created = created
    return record


def test_lines_that_a_program_can_cause_are_limited_and_counted():
    """A program that makes up topics would otherwise fill the disk with logs."""
    limit = RepeatedLines()
    passed = [limit.filter(line(1000.0 + n / 100)) for n in range(500)]
    assert passed == [True] * MOST + [False] * (500 - MOST)
    assert limit.filter(line(1001.0, "other text"))
    later = line(1000.0 + EVERY)
    assert limit.filter(later)
    assert later.getMessage().endswith(f"(and {500 - MOST} similar lines in the last minute)")


def test_different_texts_cost_no_memory():
    """Texts are templates of the code; but other libraries may log with values in them."""
    limit = RepeatedLines()
    for n in range(5000):
        assert limit.filter(line(1000.0, f"text {n}"))
    assert len(limit._seen) <= 1000


@pytest.mark.parametrize("level", [logging.CRITICAL, logging.WARNING, logging.DEBUG])
def test_verbose_logs_no_less(level: int):
    """`aiokq gateway` logs changes of state, and `aiokq -v gateway` does, too."""
    logger, own = logging.getLogger("aiokq"), logging.getLogger("aiokq.gateway")
    before = logger.level
    logger.setLevel(level)
    try:
        with gateway_logs():
            assert logger.level == min(level, logging.WARNING)
            assert own.level == min(level, logging.INFO)
        assert (logger.level, own.level) == (level, logging.NOTSET)
    finally:
        logger.setLevel(before)
