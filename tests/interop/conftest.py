"""Shared by the interop tests: one node of Apache Kafka, and a visible notice if it is missing."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterator

import pytest

from tests.peers.apache_kafka import ApacheKafka, apache_kafka, why_absent

_numbers = itertools.count()


JAVA_SECONDS = 300.0
"""Time limit of a test with Apache Kafka or Java that sets none: on a busy machine, each start of
Java may take many seconds, and some tests have a dozen.
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("kafka") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(JAVA_SECONDS))


@pytest.fixture(scope="session")
def apache() -> Iterator[ApacheKafka]:
    """One node of Apache Kafka for all tests of the run; it auto-creates topics."""
    reason = why_absent()
    if reason is not None:
        pytest.skip(f"APACHE KAFKA IS NOT TESTED: {reason}")
    # Topic descriptions come in pages of 20 partitions instead of 2000, and compaction runs every
    # 200 ms instead of every 15 s.
    properties = {"max_request_partition_size_limit": "20", "log_cleaner_backoff_ms": "200"}
    with apache_kafka(1, **properties) as cluster:
        yield cluster


@pytest.fixture(scope="module", autouse=True)
def leaks_blame_their_file() -> Iterator[None]:
    """Finalizes what a file's tests left open while pytest still reports warnings for that file."""
    yield
    gc.collect()


@pytest.fixture
def topic() -> str:
    """A topic name that no other test uses."""
    return f"t{next(_numbers)}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reason = why_absent()
    if reason is not None:
        terminalreporter.write_line(f"APACHE KAFKA WAS NOT TESTED: {reason}", red=True, bold=True)
