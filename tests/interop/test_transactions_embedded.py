"""The tests of aiokq's transactional producer on Apache Kafka, on the embedded broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import aiokq
from tests.interop.apache.test_transactions import (
    LEVELS,
    set_level,
    test_a_level_that_changes_while_the_producer_runs,
    test_a_newer_producer_fences_the_older_one,
    test_committed_and_aborted_transactions,
    test_consume_and_produce_with_both_group_protocols,
    test_lost_answers_of_each_request,
)

__all__ = [
    "test_a_level_that_changes_while_the_producer_runs",
    "test_a_newer_producer_fences_the_older_one",
    "test_committed_and_aborted_transactions",
    "test_consume_and_produce_with_both_group_protocols",
    "test_lost_answers_of_each_request",
]

pytestmark = pytest.mark.timeout(200)


@pytest.fixture(scope="module")
def cluster() -> Iterator[aiokq.EmbeddedCluster]:
    with aiokq.EmbeddedCluster() as running:
        yield running


@pytest.fixture(params=LEVELS)
async def apache(
    cluster: aiokq.EmbeddedCluster, request: pytest.FixtureRequest
) -> aiokq.EmbeddedCluster:
    """The embedded broker with one level of `transaction.version`."""
    level: Any = request.param
    await set_level(cluster, level)  # type: ignore[arg-type]
    return cluster
