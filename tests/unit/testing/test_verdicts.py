"""Verdicts of `check` on short histories, each written out: what is condemned, what is refused."""

from __future__ import annotations

import pytest

from aiokq.testing import (
    AnomalyKind,
    Copy,
    EndTransaction,
    Final,
    HistoryError,
    Isolation,
    ObservedOffsets,
    Offset,
    Offsets,
    Operation,
    Outcome,
    Poll,
    Polled,
    Seek,
    Send,
    check,
)


def sent(
    value: str,
    offset: int | None,
    txn: str | None = None,
    topic: str = "in",
    outcome: Outcome = Outcome.OK,
) -> Send:
    partition = None if offset is None else 0
    return Send("p", topic, value, outcome, partition, offset, txn, 0, 1)


def ended(txn: str, *, commit: bool, outcome: Outcome = Outcome.OK) -> EndTransaction:
    return EndTransaction("p", txn, commit, outcome, 2, 3)


def read(
    *records: tuple[int, str],
    topic: str = "in",
    process: str = "c",
    isolation: Isolation = Isolation.READ_COMMITTED,
) -> Poll:
    polled = tuple(Polled(topic, 0, offset, value) for offset, value in records)
    return Poll(process, polled, isolation, None, None, 4, 5)


def ends(topic: str, end: int, start: int = 0) -> Final:
    return Final(topic, 0, start, end, end, 8, 9)


def kinds(*history: Operation) -> list[AnomalyKind]:
    return [each.kind for each in check(history).anomalies]


COPIER = Copy("in", "out")


def test_a_copy_of_an_aborted_input_is_condemned() -> None:
    """The copier read what no read_committed consumer may read."""
    history = [COPIER, sent("a", 0, "x"), ended("x", commit=False), read((0, "a"), topic="out")]
    assert kinds(*history) == [AnomalyKind.COPY]


def test_a_copy_of_an_input_of_unknown_outcome_is_not_condemned() -> None:
    """The transaction may have been committed."""
    history = [COPIER, sent("a", 0, "x"), ended("x", commit=True, outcome=Outcome.UNKNOWN)]
    assert kinds(*history, read((0, "a"), topic="out")) == []


def test_an_output_without_an_input_is_condemned_when_the_input_was_read_to_its_end() -> None:
    """It is no copy of anything; before the end, the input may just not be read yet."""
    history = [COPIER, sent("a", 0), read((0, "a")), read((0, "a"), (1, "z"), topic="out")]
    assert kinds(*history) == []
    assert kinds(*history, ends("in", 1)) == [AnomalyKind.COPY]


def test_an_output_whose_input_retention_removed_is_not_condemned() -> None:
    """Nobody can read the input any more."""
    history = [COPIER, sent("b", 1), read((1, "b")), read((0, "a"), (1, "b"), topic="out")]
    assert kinds(*history, ends("in", 2, start=1)) == []


def test_an_input_of_which_a_partition_was_not_read_to_its_end_condemns_no_output() -> None:
    """The missing input may be in that partition."""
    other = Send("p", "in", "b", Outcome.OK, 1, 0)
    history = [COPIER, sent("a", 0), other, read((0, "a")), read((0, "z"), topic="out")]
    found = kinds(*history, ends("in", 1))
    assert found == []


def test_a_doubled_output_that_is_no_input_is_a_duplicate() -> None:
    """The rule about copies covers copies of inputs only."""
    history = [COPIER, sent("a", 0), read((0, "a"))]
    assert kinds(*history, read((0, "z"), (1, "z"), topic="out")) == [AnomalyKind.DUPLICATE]
    assert kinds(*history, read((0, "a"), (1, "a"), topic="out")) == [AnomalyKind.COPY]


def test_two_committed_copies_are_condemned_although_nobody_read_both() -> None:
    """Both are in the output, wherever its readers have stopped."""
    history = [COPIER, sent("a", 0), read((0, "a"))]
    history += [sent("a", 0, "x", "out"), ended("x", commit=True)]
    history += [sent("a", 2, "y", "out"), read((0, "a"), topic="out")]
    assert kinds(*history) == []
    assert kinds(*history, ended("y", commit=True, outcome=Outcome.UNKNOWN)) == []
    assert kinds(*history, ended("y", commit=False)) == []
    assert kinds(*history, ended("y", commit=True)) == [AnomalyKind.COPY]


def test_an_observed_offset_that_no_commit_set_is_condemned_if_all_commits_are_recorded() -> None:
    """Otherwise it is reported: a killed recorder does not write down its last commit."""
    commit = Offsets("p", "g", (Offset("in", 0, 5),), Outcome.OK, None, 0, 1)
    observed = ObservedOffsets("g", (Offset("in", 0, 77),), start=10, end=11)
    assert kinds(commit, observed) == [AnomalyKind.UNSET_OFFSETS]
    assert not AnomalyKind.UNSET_OFFSETS.condemned
    assert kinds(commit, observed._replace(all_commits=True)) == [AnomalyKind.OFFSETS_APART]
    assert kinds(observed._replace(all_commits=True)) == [AnomalyKind.OFFSETS_APART]
    assert kinds(observed) == []  # nothing of the group is recorded


def test_a_record_lost_before_the_first_offset_of_a_reader_is_lost() -> None:
    """A consumer read past it, and the partition was read from its start to its end."""
    history = [sent("a", 0), sent("b", 1), read((1, "b"))]
    assert kinds(*history, ends("in", 2)) == [AnomalyKind.LOST_WRITE]
    assert kinds(*history, ends("in", 2, start=1)) == []
    assert kinds(sent("a", 0), ends("in", 1)) == [AnomalyKind.UNSEEN]


def test_a_record_of_unknown_place_is_unseen_only_if_it_can_be_nowhere() -> None:
    """Its partition was read from its start to its end; all partitions, if its own is not known."""
    nowhere = sent("a", None)
    second = nowhere._replace(partition=1)
    first_ends, second_ends = ends("in", 0), ends("in", 0)._replace(partition=1)
    assert kinds(second, first_ends) == []
    assert kinds(second, first_ends, second_ends) == [AnomalyKind.UNSEEN]
    assert kinds(second, ends("in", 4, start=4)._replace(partition=1)) == []  # removed, perhaps
    assert kinds(nowhere) == []
    assert kinds(nowhere, first_ends) == [AnomalyKind.UNSEEN]
    other = sent("b", 0)._replace(partition=1)
    polled = Poll("c", (Polled("in", 1, 0, "b"),), Isolation.READ_COMMITTED, None, None, 4, 5)
    assert kinds(nowhere, other, polled, first_ends) == []
    both = (first_ends, second_ends._replace(last_stable_offset=1, end_offset=1))
    assert kinds(nowhere, other, polled, *both) == [AnomalyKind.UNSEEN]


def test_a_record_lost_behind_a_known_position_is_lost_without_the_end() -> None:
    """Only a consumer that says where it began has read past a record before its first."""
    history = [sent("a", 0), sent("b", 1)]
    assert kinds(*history, read((1, "b"))) == []
    assert kinds(*history, Seek("c", "in", 0, 0), read((1, "b"))) == [AnomalyKind.LOST_WRITE]
    assert kinds(*history, Seek("c", "in", 0, 1), read((1, "b"))) == []


def test_a_consumer_that_skips_after_a_seek_is_condemned() -> None:
    """It said where it went on."""
    history = [sent("a", 0), sent("b", 1), read((0, "a"), (1, "b")), Seek("d", "in", 0, 0)]
    assert kinds(*history, read((1, "b"), process="d")) == [AnomalyKind.SKIPPING_POLL]


def test_isolation_levels_that_read_two_values_at_an_offset_are_condemned() -> None:
    """An offset has one record, whoever reads it."""
    history = [read((0, "a")), read((0, "b"), isolation=Isolation.READ_UNCOMMITTED)]
    assert kinds(*history) == [AnomalyKind.INCONSISTENT_OFFSETS]


@pytest.mark.parametrize("txn", [None, "x"])
def test_values_that_are_not_unique_are_refused(txn: str | None) -> None:
    """Every rule rests on values that identify records."""
    history = [sent("a", 0, txn), sent("a", 1), ended("x", commit=True)]
    with pytest.raises(HistoryError, match=r"in: 'a' was sent 2 times"):
        check(history)


def test_a_value_that_is_sent_again_after_an_abort_is_accepted() -> None:
    """Programs repeat a transaction that was aborted, or whose outcome they do not know."""
    history = [sent("a", 0, "x"), ended("x", commit=False), sent("a", 2), read((2, "a"))]
    assert kinds(*history) == []
    repeated = [sent("a", None, outcome=Outcome.UNKNOWN), sent("a", 1), read((0, "a"), (1, "a"))]
    assert kinds(*repeated) == []
    assert kinds(*repeated, read((2, "a"))) == [AnomalyKind.DUPLICATE]


def test_a_copier_that_copies_twice_is_condemned_and_its_history_not_refused() -> None:
    """A history that shows the anomaly must not be turned away for it."""
    copies = [sent("a", 0, "y", "out"), sent("a", 2, "z", "out")]
    committed = [ended("y", commit=True), ended("z", commit=True)]
    history = [COPIER, sent("a", 0), read((0, "a")), *copies, *committed]
    assert kinds(*history, read((0, "a"), (2, "a"), topic="out")) == [AnomalyKind.COPY]
