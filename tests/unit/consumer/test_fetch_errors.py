"""The table of actions for fetch errors."""

from __future__ import annotations

from aiokq.consumer.fetch_errors import FETCH_ACTIONS, FetchAction, fetch_action
from aiokq.core.codes import ERROR_CODES
from aiokq.core.errors import InvalidRequest

# The codes that Kafka's FetchResponse.java lists, and others that brokers were seen to send.
FETCH_CODES = (-1, 1, 2, 3, 5, 6, 8, 9, 10, 29, 35, 43, 56, 72, 74, 75, 76, 78, 87, 100, 103, 109)


def test_every_fetch_error_code_has_an_action() -> None:
    """A code that is not in the table causes only a pause."""
    assert set(FETCH_CODES) <= set(FETCH_ACTIONS)


def test_other_codes_are_raised_unless_they_are_retriable() -> None:
    """There must be no hot loop, and no partition that stops for good without an error."""
    assert fetch_action(9999) is FetchAction.REFRESH
    assert fetch_action(InvalidRequest.code) is FetchAction.RAISE
    for row in ERROR_CODES:
        if row.code and row.code not in FETCH_ACTIONS:
            expected = FetchAction.REFRESH if row.retriable else FetchAction.RAISE
            assert fetch_action(row.code) is expected, row.name


def test_errors_of_stale_metadata_refresh_it() -> None:
    """Kafka marks those codes; the fetch must not be retried only against the same broker."""
    for row in ERROR_CODES:
        if row.refresh_metadata and row.code in FETCH_ACTIONS:
            assert fetch_action(row.code) in (FetchAction.REFRESH, FetchAction.RETRY), row.name
