"""Output of Java's tools and calls of confluent-kafka, as operations."""

from __future__ import annotations

from aiokq.testing import (
    Assign,
    Copy,
    EndTransaction,
    Isolation,
    Offset,
    Offsets,
    Outcome,
    Poll,
    Polled,
    Send,
    confluent_delivery,
    confluent_end,
    confluent_poll,
    transactional_message_copier,
    verifiable_consumer,
    verifiable_producer,
)

RECORD = '"key":null,"value":"0.1","topic":"t","partition":0,"offset":5}'
PRODUCER = [
    '{"timestamp":1000,"name":"startup_complete"}',
    "[2026-01-01] WARN a line of the log",
    f'{{"timestamp":1001,"name":"producer_send_success",{RECORD}',
    '{"timestamp":1002,"name":"producer_send_error","key":null,"value":"0.2","topic":"t",'
    '"exception":"class org.apache.kafka.common.errors.TimeoutException","message":"Expiring"}',
    '{"timestamp":1003,"name":"tool_data","sent":2,"acked":1,"target_throughput":-1}',
    '{"timestamp":1004,"na',
]

CONSUMER = [
    '{"timestamp":1000,"name":"partitions_assigned","partitions":[{"topic":"t","partition":0}]}',
    f'{{"timestamp":1001,"name":"record_data",{RECORD}',
    '{"timestamp":1002,"name":"records_consumed","count":1,"partitions":[]}',
    '{"timestamp":1003,"name":"offsets_committed","success":true,'
    '"offsets":[{"topic":"t","partition":0,"offset":6}]}',
    '{"timestamp":1004,"name":"offsets_committed","offsets":[],"success":false}',
]

COPIER = [
    '{"transactionalId":"copier-1","stage":"ProcessLoop","totalProcessed":500,"remaining":0}',
]


def test_failures_of_the_verifiable_producer_are_unknown_outcomes() -> None:
    """An exception may be a timeout: the record can still be in the log."""
    assert list(verifiable_producer(PRODUCER, "java")) == [
        Send("java", "t", "0.1", Outcome.OK, 0, 5, None, 1001_000_000, 1001_000_000),
        Send("java", "t", "0.2", Outcome.UNKNOWN, None, None, None, 1002_000_000, 1002_000_000),
    ]


def test_the_verifiable_consumer_says_what_it_read_and_was_assigned() -> None:
    """Without its assignments, a rebalance would look like a skip."""
    at = [n * 1_000_000 for n in range(1000, 1005)]
    level = Isolation.READ_UNCOMMITTED
    assert list(verifiable_consumer(CONSUMER, "java", "g")) == [
        Assign("java", (("t", 0),), at[0], at[0]),
        Poll("java", (Polled("t", 0, 5, "0.1"),), level, "g", None, at[1], at[1]),
        Offsets("java", "g", (Offset("t", 0, 6),), Outcome.OK, None, at[3], at[3]),
        Offsets("java", "g", (), Outcome.UNKNOWN, None, at[4], at[4]),
    ]


def test_a_copier_that_reported_something_has_a_duty() -> None:
    """A copier that never started must not condemn the topics."""
    assert list(transactional_message_copier(COPIER, "in", "out")) == [Copy("in", "out")]
    assert list(transactional_message_copier(["no status"], "in", "out")) == []


class Message:
    """As confluent_kafka.Message."""

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 1

    def offset(self) -> int:
        return 5

    def value(self) -> bytes:
        return b"v\xff"


def test_a_failed_delivery_of_confluent_is_an_unknown_outcome() -> None:
    """librdkafka reports records in flight as failed when they time out."""
    failed = confluent_delivery(object(), Message(), process="p", start=1, end=2)
    assert failed == Send("p", "t", "v\\xff", Outcome.UNKNOWN, start=1, end=2)
    delivered = confluent_delivery(None, Message(), process="p", txn="x", start=1, end=2)
    assert delivered == Send("p", "t", "v\\xff", Outcome.OK, 1, 5, "x", 1, 2)


def test_polls_of_confluent_keep_their_order() -> None:
    """The order is what the checker looks at."""
    poll = confluent_poll([Message(), Message()], process="c", group="g", start=1, end=2)
    record = Polled("t", 1, 5, "v\\xff")
    assert poll == Poll("c", (record, record), Isolation.READ_COMMITTED, "g", None, 1, 2)


class MustAbort:
    """As confluent_kafka.KafkaError."""

    def txn_requires_abort(self) -> bool:
        return True


def test_only_a_refused_commit_of_confluent_has_failed() -> None:
    """A commit that timed out may have been carried out."""
    assert confluent_end(None, process="p", txn="x", commit=True) == EndTransaction(
        "p", "x", True, Outcome.OK
    )
    refused = confluent_end(RuntimeError(MustAbort()), process="p", txn="x", commit=True)
    assert refused.outcome is Outcome.FAILED
    unknown = confluent_end(TimeoutError(), process="p", txn="x", commit=True)
    assert unknown.outcome is Outcome.UNKNOWN
    abort = confluent_end(RuntimeError(MustAbort()), process="p", txn="x", commit=False)
    assert abort.outcome is Outcome.UNKNOWN
