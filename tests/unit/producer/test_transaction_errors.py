"""The kinds of errors of a transactional producer, row by row against Java's handlers."""

from __future__ import annotations

from typing import Final

import pytest

from aiokq.core.codes import BY_CODE
from aiokq.core.errors import (
    CommitOutcomeUnknown,
    ConnectionLost,
    GroupAuthorization,
    ProducerFenced,
    ProtocolError,
    RequestTimeout,
    UnsupportedVersion,
    error_for,
)
from aiokq.producer.transactions import refusals, transaction_requests
from aiokq.producer.transactions.error_kinds import (
    ERROR_KINDS,
    ErrorKind,
    kind_of,
    kind_of_code,
    may_be_carried_out,
)
from aiokq.wire import AddPartitionsToTxnResponse
from aiokq.wire.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnTopicResult,
)

RETRIABLE: Final = frozenset(code for code, row in BY_CODE.items() if row.retriable)
"""The subclasses of RetriableException; tests/interop/kafka/test_error_table.py compares them."""

FIND: Final = {15, 16}  # COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR
FENCED: Final = {47, 90}  # INVALID_PRODUCER_EPOCH, PRODUCER_FENCED

JAVA: Final[dict[str, list[tuple[frozenset[int] | set[int], str]]]] = {
    "InitProducerId": [
        (FIND, "find"),
        (RETRIABLE, "reenqueue"),
        ({53, 31}, "abortable"),  # TRANSACTIONAL_ID_ and CLUSTER_AUTHORIZATION_FAILED
        (FENCED, "fatal"),
        ({120}, "abortable"),  # TRANSACTION_ABORTABLE
    ],
    "AddPartitionsToTxn": [
        (FIND, "find"),
        (RETRIABLE, "reenqueue"),
        (FENCED, "fatal"),
        ({53, 48, 49}, "fatal"),  # and INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING
        ({29, 55, 59, 120}, "abortable"),
        (frozenset(BY_CODE), "abortable"),  # hasPartitionErrors
    ],
    "AddOffsetsToTxn": [
        (FIND, "find"),
        (RETRIABLE, "reenqueue"),
        ({59}, "abortable"),  # UNKNOWN_PRODUCER_ID
        (FENCED, "fatal"),
        ({53, 48, 49}, "fatal"),
        ({30, 120}, "abortable"),  # GROUP_AUTHORIZATION_FAILED
    ],
    "TxnOffsetCommit": [
        ({15, 16, 7}, "find"),  # and REQUEST_TIMED_OUT
        (RETRIABLE, "reenqueue"),
        ({30}, "abortable"),
        ({82, 120}, "abortable"),  # FENCED_INSTANCE_ID
        ({25, 22}, "abortable"),  # UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION
        (FENCED, "fatal"),
        ({53, 43}, "fatal"),  # UNSUPPORTED_FOR_MESSAGE_FORMAT
    ],
    "EndTxn": [
        (FIND, "find"),
        (RETRIABLE, "reenqueue"),
        (FENCED, "fatal"),
        ({53, 48, 49}, "fatal"),
        ({59}, "abortable"),
        ({120}, "abortable"),
    ],
    "FindCoordinator": [
        (RETRIABLE, "reenqueue"),
        ({53}, "fatal"),
        ({30, 120}, "abortable"),
    ],
    "Produce": [
        ({31, 53, 90, 35, 49}, "fatal"),  # maybeTransitionToErrorState
        (frozenset(BY_CODE), "abortable"),
    ],
}
"""The branches of each handler of Kafka 4.2's TransactionManager.java, in order; else fatal."""

MEANING: Final = {
    ErrorKind.RETRY: "reenqueue",
    ErrorKind.FIND: "find",
    ErrorKind.ABORT: "abortable",
    ErrorKind.FINISHED: "fatal",
    ErrorKind.INVALID: "fatal",
}


@pytest.mark.parametrize("api", JAVA)
def test_each_error_code_means_what_javas_handler_makes_of_it(api: str) -> None:
    """A producer that goes on after a fatal error repeats or loses records."""
    for code, row in BY_CODE.items():
        if code == 0:
            continue
        expected = next((said for codes, said in JAVA[api] if code in codes), "fatal")
        assert MEANING[kind_of_code(api, code)] == expected, f"{api} {row.name}"


def test_the_table_has_the_apis_of_a_transactional_producer() -> None:
    """An API that is missing would have no rule for its errors."""
    assert set(ERROR_KINDS) == set(JAVA)


def test_an_unknown_code_is_fatal_but_for_requests_that_only_concern_the_transaction() -> None:
    """A newer broker may send codes that this client does not know."""
    assert kind_of_code("EndTxn", 9999) is ErrorKind.FINISHED
    assert kind_of_code("AddPartitionsToTxn", 9999) is ErrorKind.ABORT
    assert kind_of_code("Produce", 9999) is ErrorKind.ABORT


def test_errors_without_a_code_have_a_kind() -> None:
    """A lost connection is repeated at the coordinator, which may have moved."""
    assert kind_of("EndTxn", ConnectionLost("gone")) is ErrorKind.FIND
    assert kind_of("EndTxn", RequestTimeout("late")) is ErrorKind.RETRY
    assert kind_of("TxnOffsetCommit", RequestTimeout("late")) is ErrorKind.FIND
    assert kind_of("EndTxn", UnsupportedVersion("old")) is ErrorKind.INVALID
    assert kind_of("EndTxn", ProtocolError("nonsense")) is ErrorKind.FINISHED
    assert kind_of("Produce", ConnectionLost("gone")) is ErrorKind.ABORT


def test_an_error_of_the_lookup_counts_as_one_of_the_lookup() -> None:
    """The permission for a group is missing: only the transaction ends, as in Java."""
    refused = GroupAuthorization("no", api="FindCoordinator")
    assert kind_of("EndTxn", refused) is ErrorKind.ABORT
    assert kind_of("EndTxn", GroupAuthorization("no", api="EndTxn")) is ErrorKind.FINISHED


def test_an_error_of_the_connection_has_the_kind_of_the_request() -> None:
    """Its API is not in the table: a failed authentication ended in a KeyError."""
    failed = error_for(58, api="SaslAuthenticate")
    assert kind_of("EndTxn", failed) is ErrorKind.FINISHED
    assert kind_of("TxnOffsetCommit", failed) is ErrorKind.FINISHED


def test_an_answer_tells_whether_the_request_may_have_been_carried_out() -> None:
    """A commit with such an answer may be in the log: its outcome is not known yet."""
    assert {code for code in BY_CODE if code and may_be_carried_out(code)} == {
        -1,
        7,
        14,
        15,
        16,
        20,
    }
    assert may_be_carried_out(9999)


@pytest.mark.parametrize(
    ("codes", "counts"),
    [
        ((0, 0), None),
        ((3, 55), 3),
        ((55, 51, 55), 51),
        ((55, 29, 3), 29),
        ((47, 29), 47),
        ((55,), 55),
    ],
)
def test_the_error_of_partitions_is_the_one_that_refused_them(
    codes: tuple[int, ...], counts: int | None
) -> None:
    """Regression: the answer "not attempted" for the other partitions aborted, but 3 is retried."""
    results = [
        AddPartitionsToTxnPartitionResult(partition_index=n, partition_error_code=code)
        for n, code in enumerate(codes)
    ]
    topic = AddPartitionsToTxnTopicResult(name="t", results_by_partition=results)
    answer = AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[topic])
    error = transaction_requests._error_of_partitions(answer)
    assert (error and error.code) == counts


def test_each_error_names_the_next_step() -> None:
    """Whoever reads it in a log must know whether to repeat, to begin again or to start anew."""
    cause = error_for(90, api="EndTxn")
    fenced = refusals.finished(cause, "tx")
    assert isinstance(fenced, ProducerFenced)
    assert "create a new producer, and read the committed offsets" in str(fenced)
    for code in (47, 48, 49):  # as 90: the next step of a program is the same
        assert isinstance(refusals.finished(error_for(code, api="EndTxn"), "tx"), ProducerFenced)
    invalid = refusals.finished(error_for(53), "tx")
    assert any("create a new producer" in note for note in invalid.__notes__)
    for code in (31, 42, 50, 53):
        [note] = refusals.not_started(error_for(code, api="InitProducerId")).__notes__
        assert ("transaction.max.timeout.ms" if code == 50 else "create another producer") in note
    unknown = refusals.unknown(cause)
    assert isinstance(unknown, CommitOutcomeUnknown)
    assert "commit it again, or close this producer" in str(unknown)
    assert "begin another one" in str(refusals.aborted(cause))
    assert refusals.aborted(cause).__cause__ is cause
    assert "abort it again" in str(refusals.not_aborted_yet(cause))
    assert "producer.transaction()" in str(refusals.outside())
