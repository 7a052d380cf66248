"""aiokq.broker.replica.admission: checks of a producer's batch by topic, time and replica state."""

from __future__ import annotations

import pytest

from aiokq.broker.replica.admission import Preparation, admit, admit_own
from aiokq.core.errors import (
    InvalidTopic,
    KafkaStorage,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    RecordTooLarge,
)
from aiokq.records.header import TIMESTAMP_TYPE_MASK, read_header
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.log.samples import NOW_MS, ATopic, batch, config, open_partition, replica_of

ALL, LEADER, NONE = -1, 1, 0


def partition(*, replicas: tuple[int, ...] = (0,), **settings: object):
    return replica_of(open_partition(MemoryFiles(), **settings), replicas=replicas)


@pytest.mark.parametrize("acks", [ALL, LEADER, NONE])
def test_a_batch_that_the_topic_stores_as_it_came_needs_no_preparation(acks: int) -> None:
    assert admit(partition(), read_header(batch()), acks, NOW_MS) is None


@pytest.mark.parametrize(
    ("settings", "value", "expected"),
    [
        ({"cleanup_policy": ("compact",)}, b"v", Preparation.ON_THE_LOOP),
        ({"cleanup_policy": ("compact",)}, b"v" * 20_000, Preparation.OFF_THE_LOOP),
        ({"message_timestamp_type": "LogAppendTime"}, b"v", Preparation.ON_THE_LOOP),
        ({"message_timestamp_before_max_ms": 5}, b"v", Preparation.ON_THE_LOOP),
        ({"compression_type": "gzip"}, b"v", Preparation.ON_THE_LOOP),
        ({"compression_type": "gzip"}, b"v" * 40_000, Preparation.OFF_THE_LOOP),
    ],
)
def test_what_a_topic_asks_of_records_is_prepared(settings, value, expected) -> None:
    assert admit(partition(**settings), read_header(batch(value)), ALL, NOW_MS) is expected


def test_a_batch_from_the_future_and_one_with_the_brokers_time_are_looked_into() -> None:
    hour = 3_600_000
    at, header = partition(), read_header(batch(timestamp_ms=NOW_MS + hour))
    assert admit(at, header, ALL, NOW_MS) is None
    assert admit(at, header, ALL, NOW_MS - 1) is Preparation.ON_THE_LOOP
    stamped = header._replace(attributes=TIMESTAMP_TYPE_MASK)
    assert admit(at, stamped, ALL, NOW_MS) is Preparation.ON_THE_LOOP


def test_a_batch_larger_than_max_message_bytes_is_refused_by_its_header() -> None:
    """As in Kafka, it is rejected before the checksum of its megabytes is computed."""
    data = batch(b"x" * 100)
    fits, small = (partition(max_message_bytes=len(data) - n) for n in (0, 1))
    assert admit(fits, read_header(data), ALL, NOW_MS) is None
    with pytest.raises(RecordTooLarge, match=rf"max\.message\.bytes {len(data) - 1}"):
        admit(small, read_header(data), ALL, NOW_MS)
    admit_own(fits, read_header(data), fits.leader_epoch)
    with pytest.raises(RecordTooLarge, match=rf"max\.message\.bytes {len(data) - 1}"):
        admit_own(small, read_header(data), small.leader_epoch)


def test_acks_all_needs_the_least_number_of_in_sync_replicas() -> None:
    """min.insync.replicas of them, but no more than there are replicas."""
    at = partition(replicas=(0, 1, 2), min_insync_replicas=2)
    header = read_header(batch())
    at.change_isr((0,))
    assert admit(at, header, LEADER, NOW_MS) is None
    with pytest.raises(NotEnoughReplicas, match="in-sync replicas: 1, needed: 2"):
        admit(at, header, ALL, NOW_MS)
    at.change_isr((0, 1))
    assert admit(at, header, ALL, NOW_MS) is None
    alone = partition(min_insync_replicas=2)
    assert alone.min_isr == 1
    assert admit(alone, header, ALL, NOW_MS) is None


def test_a_follower_refuses_as_not_the_leader_however_few_replicas_are_in_sync() -> None:
    """A stale producer got NOT_ENOUGH_REPLICAS, for which it does not refresh its metadata."""
    at = partition(replicas=(0, 1, 2), min_insync_replicas=2)
    at.follow(at.log, 1, at.leader_epoch + 1)
    at.change_isr((1,))
    with pytest.raises(NotLeaderOrFollower, match="orders-0 is led by node 1"):
        admit(at, read_header(batch()), ALL, NOW_MS)


def test_the_brokers_own_batch_needs_its_leadership_and_enough_in_sync_replicas() -> None:
    """A batch of an earlier leadership is refused even if the node leads the partition again."""
    at = partition(replicas=(0, 1, 2), min_insync_replicas=2)
    header, epoch = read_header(batch()), at.leader_epoch
    admit_own(at, header, epoch)
    at.change_isr((0,))
    with pytest.raises(NotEnoughReplicas, match="in-sync replicas: 1, needed: 2"):
        admit_own(at, header, epoch)
    log = at.log
    at.follow(log, 1, epoch + 1)
    with pytest.raises(NotLeaderOrFollower, match="orders-0 is led by node 1"):
        admit_own(at, header, epoch)
    at.bring_online(log, 0, epoch + 2)
    with pytest.raises(NotLeaderOrFollower, match=f"leader epoch {epoch} of orders-0 has ended"):
        admit_own(at, header, epoch)
    at.change_isr((0, 1))
    admit_own(at, header, epoch + 2)


def test_internal_topics_are_written_by_the_broker_and_kafkas_admin_client() -> None:
    at = partition()
    at.topic = ATopic("__consumer_offsets", config(), is_internal=True)
    with pytest.raises(InvalidTopic, match="topic __consumer_offsets is internal"):
        admit(at, read_header(batch()), ALL, NOW_MS)
    assert admit(at, read_header(batch()), ALL, NOW_MS, by_admin=True) is None


@pytest.mark.parametrize("error", [KafkaStorage("gone"), NotLeaderOrFollower("recovering")])
def test_a_partition_without_a_log_says_why(error) -> None:
    at = partition()
    at.take_offline(error)
    with pytest.raises(type(error), match=error.message):
        admit(at, read_header(batch()), ALL, NOW_MS)
