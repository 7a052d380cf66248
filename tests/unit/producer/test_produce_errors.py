"""The table of outcomes of a batch for each error code."""

from __future__ import annotations

import pytest

from aiokq.core.codes import ERROR_CODES
from aiokq.core.errors import (
    BufferFull,
    ConnectionLost,
    NotLeaderOrFollower,
    ProtocolError,
    RequestTimeout,
    UnknownServer,
    error_for,
)
from aiokq.producer.produce_errors import Outcome, means_not_written, outcome_of, outcome_of_code


@pytest.mark.parametrize("row", ERROR_CODES, ids=lambda row: row.name)
def test_every_code_has_an_outcome_that_agrees_with_kafka(row: object) -> None:
    """Codes that Kafka calls retriable are retried; the special codes have their own meaning."""
    from aiokq.core.codes import ErrorCode

    assert isinstance(row, ErrorCode)
    outcome = outcome_of_code(row.code)
    special = {10, 18, 32, 45, 46, 47, 59, 87, 90}
    if row.code in special:
        assert outcome not in (Outcome.RETRY, Outcome.MOVED, Outcome.FAILED)
    elif row.retriable:
        assert outcome is (Outcome.MOVED if row.refresh_metadata else Outcome.RETRY)
    else:
        assert outcome is Outcome.FAILED


def test_an_unknown_code_fails_the_batch() -> None:
    """Regression: a code that no version defines ended the sender."""
    assert outcome_of_code(30_000) is Outcome.FAILED
    assert outcome_of(error_for(30_000)) is Outcome.FAILED


def test_a_lost_connection_and_a_timeout_are_tried_again() -> None:
    """The batch may have been written: only a retry tells."""
    assert outcome_of(ConnectionLost("gone")) is Outcome.MOVED
    assert outcome_of(RequestTimeout("late")) is Outcome.RETRY
    assert not means_not_written(ConnectionLost("gone"))
    assert not means_not_written(RequestTimeout("late"))
    assert means_not_written(ConnectionLost("not sent", may_have_been_written=False))


def test_only_what_is_certain_counts_as_not_written() -> None:
    """A leader that resigns after the append answers NOT_LEADER_OR_FOLLOWER."""
    assert not means_not_written(NotLeaderOrFollower())
    assert not means_not_written(UnknownServer())
    assert not means_not_written(error_for(30_000))
    assert not means_not_written(error_for(20))
    for code in (2, 3, 10, 19, 29, 45, 87):
        assert means_not_written(error_for(code)), code


def test_errors_that_are_no_broker_s_are_judged_by_what_they_say() -> None:
    """A request that cannot be encoded fails; retriable errors are retried."""
    assert outcome_of(ProtocolError("cannot be encoded")) is Outcome.FAILED
    assert outcome_of(BufferFull()) is Outcome.RETRY
