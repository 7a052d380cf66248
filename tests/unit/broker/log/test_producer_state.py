"""Sequences and epochs of idempotent producers, by Kafka's rules."""

from __future__ import annotations

import pytest

from aiokq.broker.log.producer_snapshot import decode_snapshot, encode_snapshot
from aiokq.broker.log.producer_state import Origin, ProducerState
from aiokq.core.errors import (
    CorruptRecord,
    InvalidProducerEpoch,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from aiokq.fastpath import crc32c
from aiokq.records.control import ControlType, EndTransactionMarker
from aiokq.records.header import CONTROL_MASK, TRANSACTIONAL_MASK, BatchHeader

LAST = 2**31 - 1


def header(
    sequence: int,
    count: int = 1,
    *,
    producer_id: int = 7,
    epoch: int = 0,
    offset: int = 0,
    attributes: int = 0,
) -> BatchHeader:
    return BatchHeader(
        offset, 100, 0, 2, 0, attributes, count - 1, 0, 1000, producer_id, epoch, sequence, count
    )


def add(state: ProducerState, *headers: BatchHeader, origin: Origin = Origin.CLIENT) -> None:
    for item in headers:
        assert state.check([item], origin) is None
        state.update(item, 0)


def test_sequences_follow_each_other() -> None:
    """A gap means that a batch before it is lost or still on its way."""
    state = ProducerState()
    add(state, header(0, 3), header(3), header(4, 2))
    for wrong in (5, 7, 0):
        with pytest.raises(OutOfOrderSequence):
            state.check([header(wrong)], Origin.CLIENT)
    add(state, header(6))


def test_sequences_wrap_from_the_largest_to_zero() -> None:
    """After 2**31 records a producer continues with sequence 0."""
    state = ProducerState()
    add(state, header(LAST - 2, 3))
    add(state, header(0))
    state = ProducerState()
    add(state, header(LAST - 1, 4))  # wraps inside the batch, whose last sequence is 1
    entry = state.get(7)
    assert entry is not None
    assert entry.last_sequence == 1
    assert entry.batches[0].first_sequence == LAST - 1
    again = header(LAST - 1, 4)
    assert state.check([again], Origin.CLIENT) is not None
    add(state, header(2))


def test_an_unknown_producer_may_begin_anywhere() -> None:
    """Its records, and with them its state, may have been deleted."""
    state = ProducerState()
    add(state, header(500))


def test_a_new_epoch_begins_at_zero() -> None:
    """After bumping its epoch a producer starts at sequence 0; otherwise records are lost."""
    state = ProducerState()
    add(state, header(0), header(1))
    with pytest.raises(OutOfOrderSequence, match="begins epoch 1"):
        state.check([header(2, epoch=1)], Origin.CLIENT)
    add(state, header(0, epoch=1))
    with pytest.raises(InvalidProducerEpoch):
        state.check([header(2)], Origin.CLIENT)
    entry = state.get(7)
    assert entry is not None
    assert len(entry.batches) == 1


def test_duplicates_are_the_last_five_of_the_same_epoch() -> None:
    """A client has at most five requests in flight."""
    state = ProducerState()
    sent = [header(2 * index, 2, offset=10 + 2 * index) for index in range(6)]
    add(state, *sent)
    for item in sent[1:]:
        found = state.check([item], Origin.CLIENT)
        assert found is not None
        assert (found.first_offset, found.last_offset) == (item.base_offset, item.last_offset)
    with pytest.raises(OutOfOrderSequence):
        state.check([sent[0]], Origin.CLIENT)
    with pytest.raises(OutOfOrderSequence):  # the first sequence with another length is no retry
        state.check([header(10, 1)], Origin.CLIENT)


def test_several_batches_of_one_append_are_checked_in_turn() -> None:
    """The second batch follows the first, which is not in the state yet."""
    state = ProducerState()
    assert state.check([header(0, 2), header(2)], Origin.CLIENT) is None
    with pytest.raises(OutOfOrderSequence):
        ProducerState().check([header(0, 2), header(3)], Origin.CLIENT)
    assert state.check([header(-1, producer_id=-1)], Origin.CLIENT) is None


def test_who_appends_decides_what_is_checked() -> None:
    """A follower accepts what its leader accepted; a coordinator has epochs but no sequences."""
    state = ProducerState()
    add(state, header(0, epoch=1))
    assert state.check([header(50, epoch=0)], Origin.REPLICATION) is None
    assert state.check([header(50, epoch=1)], Origin.COORDINATOR) is None
    with pytest.raises(InvalidProducerEpoch):
        state.check([header(50, epoch=0)], Origin.COORDINATOR)


def test_transactions_are_open_until_their_marker_is_below_the_high_watermark() -> None:
    """The last stable offset is the first offset of the oldest open transaction."""
    state = ProducerState()
    txn = TRANSACTIONAL_MASK
    add(state, header(0, offset=5, attributes=txn), header(1, offset=6, attributes=txn))
    add(state, header(0, offset=7, producer_id=8, attributes=txn))
    assert state.first_unstable_offset(8) == 5
    end = header(-1, offset=8, attributes=txn | CONTROL_MASK)
    assert state.end_transaction(end, EndTransactionMarker(ControlType.COMMIT, 3), 0) is None
    assert state.first_unstable_offset(8) == 5  # its marker is not committed yet
    assert state.first_unstable_offset(9) == 7
    end = header(-1, producer_id=8, offset=9, attributes=txn | CONTROL_MASK)
    aborted = state.end_transaction(end, EndTransactionMarker(ControlType.ABORT, 3), 0)
    assert aborted == (8, 7, 9, 10)
    assert state.first_unstable_offset(10) is None
    assert state.end_transaction(end, EndTransactionMarker(ControlType.ABORT, 3), 0) is None


def test_completed_transactions_are_forgotten_where_nobody_reads() -> None:
    """Only those are kept whose markers are not below the high watermark."""
    state = ProducerState()
    kept = []
    for number in range(1_000):
        first = 2 * number
        add(state, header(number, offset=first, attributes=TRANSACTIONAL_MASK))
        end = header(-1, offset=first + 1, attributes=TRANSACTIONAL_MASK | CONTROL_MASK)
        state.end_transaction(end, EndTransactionMarker(ControlType.COMMIT, 3), 0)
        state.limit_completed(min(first, 1_000))
        kept.append(len(state._completed))
    assert max(kept[:500]) <= 64
    assert kept[-1] <= 600  # those from offset 1,000 on, and some
    assert state.first_unstable_offset(1_000) == 1_000
    assert state.first_unstable_offset(2_000) is None


def test_markers_of_a_replaced_coordinator_are_fenced() -> None:
    """Two coordinators that both believe they lead could end each other's transactions."""
    state = ProducerState()
    end = header(-1, offset=1, epoch=2, attributes=TRANSACTIONAL_MASK | CONTROL_MASK)
    marker = EndTransactionMarker(ControlType.COMMIT, 3)
    state.check_marker(end, marker)
    state.end_transaction(end, marker, 0)
    state.check_marker(end, marker)
    with pytest.raises(TransactionCoordinatorFenced):
        state.check_marker(end, EndTransactionMarker(ControlType.COMMIT, 2))
    with pytest.raises(InvalidProducerEpoch):
        state.check_marker(end._replace(producer_epoch=1), marker)


def test_snapshots_keep_all_that_is_remembered() -> None:
    """A retry is detected after a restart as it would be before."""
    state = ProducerState()
    add(state, *[header(index, offset=index) for index in range(7)])
    add(state, header(0, producer_id=9, epoch=4, offset=9, attributes=TRANSACTIONAL_MASK))
    marker = EndTransactionMarker(ControlType.COMMIT, 6)
    state.end_transaction(header(-1, producer_id=11, epoch=2, offset=10), marker, 0)
    data = encode_snapshot(state, crc32c)
    entries = {entry.producer_id: entry for entry in decode_snapshot(data, crc32c, 55)}
    assert set(entries) == {7, 9, 11}
    for producer_id, entry in entries.items():
        before = state.get(producer_id)
        assert before is not None
        assert entry.batches == before.batches
        assert entry.producer_epoch == before.producer_epoch
        assert entry.coordinator_epoch == before.coordinator_epoch
        assert entry.transaction_first_offset == before.transaction_first_offset
        assert entry.last_seen_ms == 55
    for damaged in (data[:9], data[:-1], b"\x00\x02" + data[2:], data[:20] + b"\xff" + data[21:]):
        with pytest.raises(CorruptRecord):
            decode_snapshot(damaged, crc32c, 0)
