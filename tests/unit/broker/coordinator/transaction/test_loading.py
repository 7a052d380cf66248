"""The load of a transaction log gives the state that its records give one after the other."""

from __future__ import annotations

import random

import pytest

from aiokq.broker.coordinator.shard import NO_PRODUCER
from aiokq.broker.coordinator.timers import Timers
from aiokq.broker.coordinator.transaction.deadlines import ShardLimits
from aiokq.broker.coordinator.transaction.record_types import (
    decode_metadata,
    decode_record,
    encode_record,
    metadata_of,
    record_of,
    tombstone,
)
from aiokq.broker.coordinator.transaction.shard import TransactionShard
from aiokq.broker.coordinator.transaction.transaction_metadata import TransactionMetadata
from aiokq.broker.coordinator.transaction.transitions import Transitions
from aiokq.core.counters import BrokerCounters
from aiokq.core.errors import ProtocolError
from aiokq.core.types import TopicPartition
from aiokq.wire.codec import decode_prefixed, encode_prefixed
from aiokq.wire.transaction_records import TransactionLogKey, TransactionLogValue

NOW_MS = 1_700_000_000_000


def new_shard():
    return TransactionShard(
        Timers(),
        3,
        limits=ShardLimits(1000, 1000),
        version=lambda: 2,
        prepared=lambda _: None,
        transitions=Transitions(BrokerCounters()),
    )


def history(rng):
    """Yield the records of some ids, as the shard of a coordinator writes them."""
    current: dict[str, TransactionMetadata] = {}
    for step in range(200):
        now_ms = NOW_MS + step
        name = f"id-{rng.randrange(8)}"
        one = current.get(name)
        if one is None:
            one = TransactionMetadata.new(name, 1000 + step, 60_000, now_ms)
            one = one.epoch_bumped(60_000, None, now_ms)
        elif one.state.is_prepared:
            one = one.completed(now_ms)
        elif one.state.is_idle and rng.random() < 0.2:
            del current[name]
            yield tombstone(name), rng.randrange(3)
            continue
        elif one.state.is_idle or rng.random() < 0.5:
            added = {TopicPartition(rng.choice("ab"), n) for n in range(rng.randrange(1, 3))}
            one = one.partitions_added(added, rng.randrange(3), now_ms)
        else:
            one = one.prepared(
                committed=rng.random() < 0.5,
                client_version=one.client_version,
                next_producer_id=rng.choice([-1, -1, 9000 + step]),
                now_ms=now_ms,
            )
        current[name] = one
        yield record_of(one), rng.randrange(3)


def state(shard):
    ended = {name: shard.ended_partitions(name) for name in shard.transactions}
    return shard.transactions, shard._ids, ended, shard._end_offset


@pytest.mark.parametrize("seed", range(30))
def test_a_load_gives_the_same_state_as_the_records_one_after_the_other(seed):
    """It must not decode most of them: 100,000 ids have to be loaded within seconds."""
    one, other = new_shard(), new_shard()
    load = one.load(lambda offset, error: pytest.fail(str(error)))
    prepared: dict[str, frozenset[TopicPartition]] = {}
    for offset, (record, version) in enumerate(history(random.Random(seed)), 5):
        key, value = encode_record(record, version)
        load.add(offset, key, value, NO_PRODUCER)
        decoded = decode_record(key, value)
        name = decoded.key
        before = other.transactions.get(name)
        if before is not None and before.state.is_prepared:
            prepared[name] = before.partitions
        other.replay(decoded, offset=offset)
    assert len(one.transactions) == 0
    for _ in load.finish():
        pass
    transactions, ids, ended, end_offset = state(one)
    assert transactions == other.transactions
    assert ids == other._ids
    assert one._previous_ids == other._previous_ids
    assert end_offset == other._end_offset == 205
    assert ended == {name: prepared.get(name) for name in other.transactions}
    assert prepared


@pytest.mark.parametrize("seed", range(20))
def test_records_are_encoded_as_by_the_codec(seed):
    """Kafka reads them: of both versions, with each tagged field, and topics of long names."""
    for record, version in history(random.Random(seed)):
        if record.value is not None:
            partitions = {tp._replace(topic=tp.topic * 200) for tp in record.value.partitions}
            record = record_of(record.value._replace(partitions=frozenset(partitions)))
        key, value = encode_record(record, version)
        assert key == encode_prefixed(TransactionLogKey(transactional_id=record.key), 0)
        if value is not None:
            decoded = decode_prefixed(TransactionLogValue, value)
            assert value == encode_prefixed(decoded, min(version, 1))
            again = metadata_of(record.key, decoded)
            kept = record.value._replace(last_epoch=-1)
            if version == 0:  # without tagged fields
                kept = kept._replace(client_version=0, previous_producer_id=-1, next_producer_id=-1)
            assert again == kept


@pytest.mark.parametrize("seed", range(20))
def test_values_are_decoded_as_by_the_codec(seed):
    """Of both versions, with each tagged field, damaged ones as well."""
    rng = random.Random(seed)
    for record, version in history(rng):
        _, value = encode_record(record, version)
        if value is None:
            continue
        if rng.random() < 0.5:
            position = rng.randrange(len(value))
            changed = rng.choice([0, 1, 2, 8, 127, 255])
            value = value[:position] + bytes([changed]) + value[position + 1 :]
            value = rng.choice([value, value, value[:position], value + b"\0"])
        try:
            expected = decode_record(b"\0\0\0\2id", value).value
        except ProtocolError:
            with pytest.raises(ProtocolError):
                decode_metadata("id", value)
        else:
            assert decode_metadata("id", value) == expected


def test_unreadable_records_are_reported_and_the_one_before_counts():
    """One of an unknown type is ignored. Neither keeps the other ids from being loaded."""
    one = TransactionMetadata.new("id", 7, 60_000, NOW_MS).epoch_bumped(60_000, None, NOW_MS)
    key, value = encode_record(record_of(one), 2)
    unreadable = []
    shard = new_shard()
    load = shard.load(lambda offset, error: unreadable.append(offset))
    load.add(0, key, value, NO_PRODUCER)
    load.add(1, key, value[:20], NO_PRODUCER)  # cut
    load.add(2, key, value[:16] + b"\x09" + value[17:], NO_PRODUCER)  # an unknown state
    load.add(3, key, b"\0\x07" + value[2:16] + b"\x09" + value[17:], NO_PRODUCER)
    load.add(4, None, value, NO_PRODUCER)
    load.add(5, b"\0\x05" + key[2:], value, NO_PRODUCER)  # an unknown type
    for _ in load.finish():
        pass
    assert unreadable == [1, 2, 3, 4]
    assert shard.transactions == {"id": one}
