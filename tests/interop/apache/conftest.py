"""A node of Apache Kafka for the tests that change its `transaction.version`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.peers.apache_kafka import ApacheKafka, apache_kafka, why_absent


@pytest.fixture(scope="session")
def transactional_node() -> Iterator[ApacheKafka]:
    """One node for all tests that set the level of `transaction.version`."""
    reason = why_absent()
    if reason is not None:
        pytest.skip(f"APACHE KAFKA IS NOT TESTED: {reason}")
    # Kafka looks every 10 s for transactions that took too long, unless told otherwise.
    looks = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": "500"}
    with apache_kafka(1, **looks) as running:
        yield running
