"""`check` condemns nothing in histories of a correct log, and finds what is planted in them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokq.testing import (
    AnomalyKind,
    Assign,
    EndTransaction,
    Final,
    Isolation,
    LastStable,
    ObservedOffsets,
    Offset,
    Offsets,
    Operation,
    Outcome,
    Poll,
    Polled,
    Send,
    check,
    from_json,
    to_json,
)
from tests.unit.testing.correct_log import correct_history

History: TypeAlias = "list[Operation]"
Plant: TypeAlias = "Callable[[History], History]"
LATE = 1_000_000
REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "histories.md"
PLANTS: list[tuple[AnomalyKind, Plant]] = []


def plants(kind: AnomalyKind) -> Callable[[Plant], Plant]:
    def add(plant: Plant) -> Plant:
        PLANTS.append((kind, plant))
        return plant

    return add


def plain_sends(history: History) -> list[Send]:
    """The first three records of p0 in b-0, which follow each other."""
    sends = [each for each in history if isinstance(each, Send)]
    return [each for each in sends if (each.process, each.topic, each.partition) == ("p0", "b", 0)][
        :3
    ]


def without(history: History, topic: str, value: str, *, reader: str | None = None) -> History:
    """The history without a record in the polls, of all readers or of one."""
    changed: History = []
    for each in history:
        if isinstance(each, Poll) and reader in (None, each.process):
            kept = tuple(r for r in each.records if (r.topic, r.value) != (topic, value))
            if kept:
                changed.append(each._replace(records=kept))
        else:
            changed.append(each)
    return changed


def replaced(history: History, old: Operation, new: Operation) -> History:
    return [new if each is old else each for each in history]


def end_of(history: History, topic: str, partition: int) -> Final:
    return next(
        each
        for each in history
        if isinstance(each, Final) and (each.topic, each.partition) == (topic, partition)
    )


def late_poll(process: str, *records: Polled, txn: str | None = None) -> Poll:
    return Poll(process, records, Isolation.READ_COMMITTED, None, txn, LATE, LATE + 1)


def of_transaction(history: History, txn: str) -> list[Send]:
    return [each for each in history if isinstance(each, Send) and each.txn == txn]


def ending(history: History, txn: str) -> EndTransaction:
    return next(each for each in history if isinstance(each, EndTransaction) and each.txn == txn)


def polled(send: Send) -> Polled:
    assert send.partition is not None
    assert send.offset is not None
    return Polled(send.topic, send.partition, send.offset, send.value)


@plants(AnomalyKind.LOST_WRITE)
def lose_a_record(history: History) -> History:
    return without(history, "b", plain_sends(history)[1].value)


@plants(AnomalyKind.LOST_WRITE)
def lose_a_record_for_read_committed(history: History) -> History:
    value = plain_sends(history)[1].value
    return without(without(history, "b", value, reader="c0"), "b", value, reader="c1")


@plants(AnomalyKind.UNSEEN)
def lose_the_last_record(history: History) -> History:
    end = end_of(history, "b", 0).end_offset
    return [*history, Send("p9", "b", "last", Outcome.OK, 0, end, None, LATE, LATE + 1)]


@plants(AnomalyKind.UNSEEN)
def lose_a_record_of_unknown_place(history: History) -> History:
    return [*history, Send("p9", "b", "last", Outcome.OK, None, None, None, LATE, LATE + 1)]


@plants(AnomalyKind.DUPLICATE)
def append_a_record_again(history: History) -> History:
    record = polled(plain_sends(history)[0])
    end = end_of(history, "b", 0).end_offset
    return [*history, late_poll("c0", record._replace(offset=end))]


@plants(AnomalyKind.INCONSISTENT_OFFSETS)
def give_an_offset_another_value(history: History) -> History:
    record = polled(plain_sends(history)[1])
    return [*history, late_poll("c9", record._replace(value="other"))]


@plants(AnomalyKind.INCONSISTENT_OFFSETS)
def acknowledge_with_another_offset(history: History) -> History:
    send = plain_sends(history)[2]
    moved = send._replace(process="p8", offset=(send.offset or 0) + 10_000)
    return replaced(history, send, moved)


@plants(AnomalyKind.ABORTED_READ)
def abort_a_visible_transaction(history: History) -> History:
    end = ending(history, "p1.1")
    return replaced(history, end, end._replace(commit=False))


@plants(AnomalyKind.ABORTED_READ)
def refuse_the_commit_of_a_visible_transaction(history: History) -> History:
    end = ending(history, "p1.1")
    return replaced(history, end, end._replace(outcome=Outcome.FAILED))


@plants(AnomalyKind.ABORTED_READ)
def fail_a_visible_send(history: History) -> History:
    send = plain_sends(history)[1]
    return replaced(
        history, send, send._replace(outcome=Outcome.FAILED, partition=None, offset=None)
    )


@plants(AnomalyKind.CIRCULAR_FLOW)
def read_in_a_circle(history: History) -> History:
    first, second = (of_transaction(history, txn)[0] for txn in ("p1.1", "p1.2"))
    return [
        *history,
        late_poll("x", polled(first), txn="p1.2"),
        late_poll("y", polled(second), txn="p1.1"),
    ]


@plants(AnomalyKind.TORN_TRANSACTION)
def tear_a_transaction(history: History) -> History:
    return without(history, "b", of_transaction(history, "p1.1")[1].value)


@plants(AnomalyKind.TORN_TRANSACTION)
def tear_a_transaction_of_unknown_outcome(history: History) -> History:
    torn = without(history, "b", of_transaction(history, "p1.1")[1].value)
    end = ending(torn, "p1.1")
    return replaced(torn, end, end._replace(outcome=Outcome.UNKNOWN))


@plants(AnomalyKind.PRECOMMITTED_READ)
def commit_after_the_read(history: History) -> History:
    end = ending(history, "p1.1")
    return replaced(history, end, end._replace(start=LATE, end=LATE + 1))


@plants(AnomalyKind.NONMONOTONIC_POLL)
def poll_again(history: History) -> History:
    return [*history, late_poll("c0", polled(plain_sends(history)[1]))]


@plants(AnomalyKind.SKIPPING_POLL)
def skip_a_record(history: History) -> History:
    return without(history, "b", plain_sends(history)[1].value, reader="c0")


@plants(AnomalyKind.NONMONOTONIC_SEND)
def send_in_the_other_order(history: History) -> History:
    first, second = plain_sends(history)[:2]
    changed = replaced(history, first, first._replace(start=second.start))
    return replaced(changed, second, second._replace(start=first.start))


@plants(AnomalyKind.OFFSETS_APART)
def keep_the_offsets_of_an_aborted_transaction(history: History) -> History:
    offsets = (Offset("b", 0, 3),)
    return [
        *history,
        Offsets("p1", "other", offsets, Outcome.OK, "p1.3", 1, 2),
        ObservedOffsets("other", offsets, LATE, LATE + 1),
    ]


@plants(AnomalyKind.OFFSETS_APART)
def lose_the_offsets_of_a_committed_transaction(history: History) -> History:
    return [
        *history,
        Offsets("p1", "other", (Offset("b", 0, 3),), Outcome.OK, "p1.1", 1, 2),
        ObservedOffsets("other", (Offset("b", 0, -1),), LATE, LATE + 1),
    ]


@plants(AnomalyKind.OFFSETS_APART)
def go_back_to_earlier_offsets(history: History) -> History:
    ends = ending(history, "p1.1").end
    start = ending(history, "p1.2").start
    return [
        *history,
        Offsets("p1", "other", (Offset("b", 0, 1),), Outcome.OK, "p1.1", 1, 2),
        Offsets("p1", "other", (Offset("b", 0, 3),), Outcome.OK, "p1.2", ends + 0.5, start),
        ObservedOffsets("other", (Offset("b", 0, 1),), LATE, LATE + 1),
    ]


def a_copy(history: History) -> Polled:
    polls = [each for each in history if isinstance(each, Poll)]
    return next(r for each in polls for r in each.records if r.topic == "out")


@plants(AnomalyKind.COPY)
def copy_twice(history: History) -> History:
    copy = a_copy(history)
    end = end_of(history, "out", copy.partition).end_offset
    return [*history, late_poll("c0", copy._replace(offset=end))]


@plants(AnomalyKind.COPY)
def copy_an_input_never(history: History) -> History:
    value = a_copy(history).value
    return [
        each
        for each in without(history, "out", value)
        if not (isinstance(each, Send) and (each.topic, each.value) == ("out", value))
    ]


@plants(AnomalyKind.PAST_LAST_STABLE)
def read_past_the_last_stable_offset(history: History) -> History:
    offset = plain_sends(history)[2].offset
    ahead = [*history, LastStable("b", 0, offset or 0, LATE, LATE + 1)]
    assert offset
    return ahead


@plants(AnomalyKind.HANGING_TRANSACTION)
def hang(history: History) -> History:
    end = end_of(history, "b", 0)
    return replaced(history, end, end._replace(last_stable_offset=end.end_offset - 1))


def written(txn: str, value: str, partition: int, offset: int) -> Send:
    return Send("p1", "z", value, Outcome.OK, partition, offset, txn, LATE + offset, LATE + offset)


@plants(AnomalyKind.WRITE_CYCLE)
def write_in_a_circle(history: History) -> History:
    return [
        *history,
        written("p1.1", "z1", 0, 0),
        written("p1.2", "z2", 0, 1),
        written("p1.2", "z3", 1, 0),
        written("p1.1", "z4", 1, 1),
    ]


@plants(AnomalyKind.SEND_SKIP)
def write_between(history: History) -> History:
    return [
        *history,
        written("p1.1", "z1", 0, 0),
        written("p1.2", "z2", 0, 1),
        written("p1.1", "z3", 0, 2),
    ]


@plants(AnomalyKind.CIRCULAR_WRITE_FLOW)
def write_and_read_in_a_circle(history: History) -> History:
    later = of_transaction(history, "p1.2")[0]
    return [
        *history,
        written("p1.1", "z1", 0, 0),
        written("p1.2", "z2", 0, 1),
        late_poll("x", polled(later), txn="p1.1"),
    ]


@plants(AnomalyKind.REBALANCE_SKIP)
def skip_across_a_rebalance(history: History) -> History:
    first, _, third = plain_sends(history)
    return [
        *history,
        late_poll("x", polled(first)),
        Assign("x", (("b", 0),), LATE, LATE),
        late_poll("x", polled(third)),
    ]


@plants(AnomalyKind.UNSET_OFFSETS)
def observe_offsets_that_nobody_committed(history: History) -> History:
    return [
        *history,
        Offsets("p1", "other", (Offset("b", 0, 3),), Outcome.OK, None, 1, 2),
        ObservedOffsets("other", (Offset("b", 0, 4),), LATE, LATE + 1),
    ]


@plants(AnomalyKind.OFFSETS_APART)
def observe_offsets_that_nobody_committed_of_all_committers(history: History) -> History:
    observed = ObservedOffsets("other", (Offset("b", 0, 4),), LATE, LATE + 1, all_commits=True)
    return [*history, observed]


@plants(AnomalyKind.COPY)
def copy_what_was_aborted(history: History) -> History:
    aborted = Send("p1", "a", "void", Outcome.OK, None, None, "p1.3", 1, 2)
    end = end_of(history, "out", 0).end_offset
    return [*history, aborted, late_poll("c0", Polled("out", 0, end, "void"))]


@plants(AnomalyKind.UNSENT)
def read_what_nobody_sent(history: History) -> History:
    end = end_of(history, "b", 0).end_offset
    return [*history, late_poll("c0", Polled("b", 0, end, "from elsewhere"))]


def test_every_kind_is_planted() -> None:
    """A kind without a plant would be a rule without a test."""
    assert {kind for kind, _ in PLANTS} == {*AnomalyKind}


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 1 << 32), st.integers(0, 200))
def test_a_correct_log_condemns_nothing(seed: int, steps: int) -> None:
    """A checker that condemns a correct Kafka is worthless."""
    report = check(correct_history(seed, steps))
    assert report.ok, report
    assert AnomalyKind.UNSENT not in report.by_kind()


@pytest.mark.parametrize(
    ("kind", "plant"), PLANTS, ids=[f"{kind}-{plant.__name__}" for kind, plant in PLANTS]
)
@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1 << 32))
def test_a_planted_anomaly_is_found_and_no_other(
    kind: AnomalyKind, plant: Plant, seed: int
) -> None:
    """The class tells the reader where to look, so a wrong one misleads."""
    report = check(plant(correct_history(seed)))
    assert kind in report.by_kind(), report
    assert {each.kind for each in report.condemned} == ({kind} if kind.condemned else set()), report


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1 << 32), st.sampled_from(PLANTS))
def test_the_report_survives_the_file_format(seed: int, planted: tuple[AnomalyKind, Plant]) -> None:
    """A history that was written down says the same as in memory."""
    history = planted[1](correct_history(seed))
    again = [from_json(to_json(each)) for each in history]
    assert again == history
    assert check(again) == check(history)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1 << 32))
def test_every_anomaly_names_its_operations(seed: int) -> None:
    """A report without the operations is only a rumour; each can be drawn."""
    history = correct_history(seed)
    for _, plant in PLANTS:
        report = check(plant(history))
        ElementTree.fromstring(report.svg())
        for anomaly in report.anomalies:
            assert anomaly.operations, anomaly
            assert anomaly.message


def test_the_reference_has_the_definitions() -> None:
    """Users read the reference, and the report shows the definitions."""
    lines = [
        f"| `{kind}` | {'condemned' if kind.condemned else 'reported'} | {kind.definition} | "
        f"{kind.why} |"
        for kind in AnomalyKind
    ]
    assert [line for line in REFERENCE.read_text().splitlines() if line in lines] == lines
