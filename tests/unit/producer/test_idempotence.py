"""Sequence numbers and epochs, sans-IO."""

from __future__ import annotations

import pytest

from aiokq.producer.idempotence import (
    MAX_EPOCH,
    IdState,
    IllegalMove,
    Numbering,
    ProducerId,
    ProducerIdentity,
    Sequences,
    Stamp,
    advance,
)


def identity(epoch: int = 0) -> ProducerIdentity:
    known = ProducerIdentity()
    known.requested()
    known.issued(1000, epoch)
    return known


def test_an_id_is_requested_before_it_is_issued() -> None:
    """The table of allowed transitions is enforced."""
    unknown = ProducerIdentity()
    assert unknown.current is None
    with pytest.raises(IllegalMove):
        unknown.issued(1, 0)
    unknown.requested()
    with pytest.raises(IllegalMove):
        unknown.requested()
    unknown.refused()
    assert unknown.state is IdState.ABSENT


def test_a_bump_is_ours_to_make_until_epochs_are_used_up() -> None:
    """KIP-360: the client bumps the epoch; after 32767 it needs a new producer id."""
    known = identity(MAX_EPOCH - 1)
    assert known.bump()
    assert known.current == ProducerId(1000, MAX_EPOCH)
    assert not known.bump()
    assert known.current is None
    assert known.state is IdState.ABSENT


def test_discarding_an_id_that_was_replaced_already_changes_nothing() -> None:
    """Two partitions learn one after the other that the id is fenced."""
    known = identity()
    known.discard(999)
    assert known.current == ProducerId(1000, 0)
    known.discard(1000)
    assert known.current is None
    known.discard(1000)


def test_sequences_follow_one_another_and_wrap() -> None:
    """After 2**31 - 1 comes 0."""
    sequences = Sequences(identity())
    assert sequences.stamp(10) == Stamp(1000, 0, 0)
    assert sequences.stamp(5) == Stamp(1000, 0, 10)
    assert sequences.stamp(1) == Stamp(1000, 0, 15)
    assert advance(2**31 - 1, 1) == 0
    assert advance(2**31 - 3, 5) == 2


def test_nothing_is_numbered_without_an_id() -> None:
    """The id has to be requested first."""
    sequences = Sequences(ProducerIdentity())
    assert not sequences.identified
    with pytest.raises(IllegalMove):
        sequences.stamp(1)


def test_one_batch_at_a_time_until_the_broker_knows_the_epoch() -> None:
    """A broker without state for the producer accepts any first sequence."""
    sequences = Sequences(identity())
    stamp = sequences.stamp(3)
    assert sequences.fresh
    sequences.acknowledged(stamp, 3)
    assert not sequences.fresh
    assert sequences.is_next(Stamp(1000, 0, 3))
    assert not sequences.is_next(Stamp(1000, 0, 4))


def test_a_gap_ends_in_a_new_epoch_from_zero() -> None:
    """A broker never accepts sequences after a missing one."""
    known = identity()
    sequences = Sequences(known)
    sequences.acknowledged(sequences.stamp(3), 3)
    sequences.stamp(2)
    sequences.break_off()
    with pytest.raises(IllegalMove):
        sequences.stamp(1)
    assert not sequences.mend()
    sequences.renumber()
    assert known.current == ProducerId(1000, 1)
    assert sequences.stamp(1) == Stamp(1000, 1, 0)
    assert sequences.state is Numbering.FRESH


def test_a_gap_that_turns_out_to_be_none_costs_no_epoch() -> None:
    """The batch that had failed was written nevertheless."""
    known = identity()
    sequences = Sequences(known)
    stamp = sequences.stamp(3)
    sequences.break_off()
    sequences.acknowledged(stamp, 3)
    assert sequences.mend()
    assert known.current == ProducerId(1000, 0)
    assert sequences.stamp(1) == Stamp(1000, 0, 3)


def test_a_fenced_id_is_given_up_whatever_the_numbers() -> None:
    """INVALID_PRODUCER_EPOCH: another producer uses the id."""
    known = identity()
    sequences = Sequences(known)
    sequences.acknowledged(sequences.stamp(1), 1)
    sequences.break_off(fenced=True)
    assert not sequences.mend()
    sequences.renumber()
    assert known.current is None


def test_a_partition_in_order_stays_in_its_epoch_while_another_is_bumped() -> None:
    """Brokers keep an epoch per partition, so the other partitions need not be bumped."""
    known = identity()
    one, other = Sequences(known), Sequences(known)
    one.acknowledged(one.stamp(1), 1)
    other.acknowledged(other.stamp(1), 1)
    one.break_off()
    one.renumber()
    assert one.stamp(1) == Stamp(1000, 1, 0)
    assert other.stamp(1) == Stamp(1000, 0, 1)
    other.break_off()
    other.renumber()
    assert other.stamp(1) == Stamp(1000, 2, 0)


def test_an_answer_of_an_old_epoch_moves_nothing() -> None:
    """It arrives after the sequences restarted."""
    sequences = Sequences(identity())
    old = sequences.stamp(4)
    sequences.break_off()
    sequences.renumber()
    sequences.stamp(1)
    sequences.acknowledged(old, 4)
    assert sequences.fresh
