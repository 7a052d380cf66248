"""Adapters: convert output of Apache Kafka's tools and calls of confluent-kafka to operations."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from aiokq.testing.history import (
    Assign,
    Copy,
    EndTransaction,
    Isolation,
    Offset,
    Offsets,
    Operation,
    Outcome,
    Poll,
    Polled,
    Send,
)

__all__ = [
    "ConfluentMessage",
    "confluent_delivery",
    "confluent_end",
    "confluent_poll",
    "transactional_message_copier",
    "verifiable_consumer",
    "verifiable_producer",
]


def _events(lines: Iterable[str]) -> Iterator[Mapping[str, object]]:
    """Yield the JSON objects in a tool's output; skip the log lines between them."""
    for line in lines:
        if line.startswith("{"):
            try:
                event = json.loads(line)
            except ValueError:  # the tool was killed while it wrote the line
                continue
            if isinstance(event, dict):
                yield event


def _nanoseconds(event: Mapping[str, object]) -> int:
    return int(str(event.get("timestamp", 0))) * 1_000_000


def verifiable_producer(lines: Iterable[str], process: str) -> Iterator[Operation]:
    """Yield the sends in the output of kafka-verifiable-producer.

    A failed send has an unknown outcome, because the exception may be a timeout. The tool does not
    report when a record was sent; `start` and `end` are both the time of the outcome. Run the tool
    with `--value-prefix`, so that the values of several producers differ.
    """
    for event in _events(lines):
        time = _nanoseconds(event)
        if event.get("name") == "producer_send_success":
            yield Send(
                process,
                str(event["topic"]),
                str(event["value"]),
                Outcome.OK,
                int(str(event["partition"])),
                int(str(event["offset"])),
                None,
                time,
                time,
            )
        elif event.get("name") == "producer_send_error":
            yield Send(
                process,
                str(event["topic"]),
                str(event["value"]),
                Outcome.UNKNOWN,
                start=time,
                end=time,
            )


def verifiable_consumer(
    lines: Iterable[str],
    process: str,
    group: str,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> Iterator[Operation]:
    """Yield the polls, assignments and commits in the output of kafka-verifiable-consumer.

    Args:
        lines: the output of the tool with `--verbose`.
        process: name of the consumer.
        group: the tool's `--group-id`.
        isolation: the consumer's `isolation.level`; the tool's default is read_uncommitted.
    """
    for event in _events(lines):
        time = _nanoseconds(event)
        name = event.get("name")
        if name == "record_data":
            record = Polled(
                str(event["topic"]),
                int(str(event["partition"])),
                int(str(event["offset"])),
                str(event["value"]),
            )
            yield Poll(process, (record,), isolation, group, None, time, time)
        elif name == "partitions_assigned":
            yield Assign(process, tuple(_partitions(event)), time, time)
        elif name == "offsets_committed":
            outcome = Outcome.OK if event.get("success") else Outcome.UNKNOWN
            yield Offsets(process, group, tuple(_offsets(event)), outcome, None, time, time)


def _partitions(event: Mapping[str, object]) -> Iterator[tuple[str, int]]:
    listed = event.get("partitions")
    for each in listed if isinstance(listed, list) else ():
        yield each["topic"], each["partition"]


def _offsets(event: Mapping[str, object]) -> Iterator[Offset]:
    listed = event.get("offsets")
    for each in listed if isinstance(listed, list) else ():
        yield Offset(each["topic"], each["partition"], each["offset"])


def transactional_message_copier(
    lines: Iterable[str], input_topic: str, output_topic: str
) -> Iterator[Operation]:
    """Yield a `Copy` for Java's TransactionalMessageCopier, if its output reports progress.

    The tool reports numbers of records, but not the records. Therefore `check` compares what
    consumers read from both topics.
    """
    if any("totalProcessed" in event for event in _events(lines)):
        yield Copy(input_topic, output_topic)


class ConfluentMessage(Protocol):
    """The methods of confluent_kafka.Message that the adapters call."""

    def topic(self) -> str | None: ...
    def partition(self) -> int | None: ...
    def offset(self) -> int | None: ...
    def value(self) -> str | bytes | None: ...


def confluent_delivery(
    error: object,
    message: ConfluentMessage,
    *,
    process: str,
    txn: str | None = None,
    start: float = 0,
    end: float = 0,
) -> Send:
    """Return the send that a delivery callback of confluent-kafka reports.

    With an error, the outcome is unknown, because the record may have been in flight. A record that
    `produce()` refused gets no callback, and need not be recorded.

    Args:
        error, message: the arguments of the callback.
        process: name of the producer.
        txn: name of the transaction of the record; None outside of a transaction.
        start: time at which `produce()` was called.
        end: time at which the callback was called.
    """
    value = _text(message.value())
    if error is not None:
        return Send(
            process, message.topic() or "", value, Outcome.UNKNOWN, txn=txn, start=start, end=end
        )
    return Send(
        process,
        message.topic() or "",
        value,
        Outcome.OK,
        message.partition(),
        message.offset(),
        txn,
        start,
        end,
    )


def confluent_poll(
    messages: Iterable[ConfluentMessage],
    *,
    process: str,
    group: str | None = None,
    isolation: Isolation = Isolation.READ_COMMITTED,
    txn: str | None = None,
    start: float = 0,
    end: float = 0,
) -> Poll:
    """Return the poll for messages that `Consumer.consume` returned; no message may be an error."""
    records = tuple(
        Polled(
            message.topic() or "",
            message.partition() or 0,
            message.offset() or 0,
            _text(message.value()),
        )
        for message in messages
    )
    return Poll(process, records, isolation, group, txn, start, end)


def confluent_end(
    error: BaseException | None,
    *,
    process: str,
    txn: str,
    commit: bool,
    start: float = 0,
    end: float = 0,
) -> EndTransaction:
    """Return the operation for a call of `commit_transaction` or `abort_transaction`.

    Without an exception, the outcome is OK. If a commit raised a KafkaException whose error has
    `txn_requires_abort()`, the outcome is FAILED. After any other exception, it is UNKNOWN.
    """
    outcome = Outcome.OK
    if error is not None:
        cause = error.args[0] if error.args else None
        requires_abort = getattr(cause, "txn_requires_abort", None)
        refused = commit and callable(requires_abort) and bool(requires_abort())
        outcome = Outcome.FAILED if refused else Outcome.UNKNOWN
    return EndTransaction(process, txn, commit, outcome, start, end)


def _text(value: str | bytes | None) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else value.decode(errors="backslashreplace")
