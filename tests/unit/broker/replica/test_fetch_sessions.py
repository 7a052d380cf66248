"""aiokq.broker.replica.fetch_sessions: KIP-227's ids, epochs, incremental responses, eviction."""

from __future__ import annotations

import random
import uuid

from aiokq.broker.replica import fetch_sessions
from aiokq.broker.replica.fetch_sessions import FetchSessionCache
from aiokq.connection.turn import at_once
from aiokq.wire.fetch import (
    FetchPartition,
    FetchPartitionData,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)

ID = uuid.UUID(int=7)


class ManualClock:
    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now

    def timestamp_ms(self):
        return int(self.now * 1000)


def make_cache(slots=10, clock=None):
    return FetchSessionCache(slots, clock=clock or ManualClock(), rng=random.Random(1))


def fetch(*partitions, session=0, epoch=-1, forget=(), ids=False):
    topics = []
    for name, index, offset in partitions:
        topic = FetchTopic(topic_id=ID) if ids else FetchTopic(topic=name)
        topic.partitions = [
            FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=100)
        ]
        topics.append(topic)
    forgotten = [ForgottenTopic(topic=name, partitions=[index]) for name, index in forget]
    return FetchRequest(
        topics=topics, session_id=session, session_epoch=epoch, forgotten_topics_data=forgotten
    )


def answer(context, **by_topic):
    """Finish with (high_watermark, records, error) per topic; (0, b"", 0) by default."""
    results = []
    for target in context.targets:
        high_watermark, records, error = by_topic.get(target.topic, (0, b"", 0))
        results.append(
            (
                target,
                FetchPartitionData(
                    partition_index=target.partition,
                    error_code=error,
                    high_watermark=-1 if error else high_watermark,
                    log_start_offset=0,
                    records=records,
                ),
            )
        )
    session_id, told = at_once(context.finish(results))
    return session_id, [target.topic for target, _ in told]


def open_session(cache, *partitions, **by_topic):
    session_id, _ = answer(cache.open(fetch(*partitions, epoch=0), 12), **by_topic)
    return session_id


def test_epoch_minus_one_has_no_session():
    """Old clients and those that refuse sessions get every partition every time."""
    cache = make_cache()
    context = cache.open(fetch(("a", 0, 5)), 12)
    assert answer(context) == (0, ["a"])
    assert len(cache) == 0


def test_an_incremental_answer_carries_only_what_is_new():
    """With sessions thousands of idle partitions cost nothing."""
    cache = make_cache()
    session = open_session(cache, ("a", 0, 0), ("b", 0, 0))
    assert session > 0
    context = cache.open(fetch(session=session, epoch=1), 12)
    assert answer(context) == (session, [])
    context = cache.open(fetch(session=session, epoch=2), 12)
    assert answer(context, b=(3, b"", 0)) == (session, ["b"])
    context = cache.open(fetch(session=session, epoch=3), 12)
    assert answer(context, b=(3, b"", 0)) == (session, [])
    context = cache.open(fetch(session=session, epoch=4), 12)
    assert answer(context, a=(0, b"xx", 0), b=(3, b"", 0)) == (session, ["a"])


def test_partitions_that_gave_records_are_served_last_the_next_time():
    """One busy partition must not starve those after it."""
    cache = make_cache()
    session = open_session(cache, ("a", 0, 0), ("b", 0, 0), ("c", 0, 0))
    answer(cache.open(fetch(session=session, epoch=1), 12), a=(0, b"xx", 0))
    context = cache.open(fetch(session=session, epoch=2), 12)
    assert [target.topic for target in context.targets] == ["b", "c", "a"]


def test_a_recovered_partition_is_news_even_with_the_watermark_it_had():
    """An error resets the stored offsets, otherwise the client would not be sent the recovery."""
    cache = make_cache()
    session = open_session(cache, ("a", 0, 0), a=(7, b"", 0))
    context = cache.open(fetch(session=session, epoch=1), 12)
    assert answer(context, a=(7, b"", 6)) == (session, ["a"])
    context = cache.open(fetch(session=session, epoch=2), 12)
    assert answer(context, a=(7, b"", 0)) == (session, ["a"])


def test_a_request_changes_adds_and_forgets_partitions_of_its_session():
    """The client changes its positions by naming only the changed partitions."""
    cache = make_cache()
    session = open_session(cache, ("a", 0, 0), ("b", 0, 0))
    context = cache.open(
        fetch(("a", 0, 9), ("c", 0, 4), session=session, epoch=1, forget=[("b", 0)]), 12
    )
    assert [(t.topic, t.fetch_offset) for t in context.targets] == [("a", 9), ("c", 4)]


def test_unknown_session_is_70_and_wrong_epoch_71():
    """The client then starts again with a full request."""
    cache = make_cache()
    assert cache.open(fetch(session=1234, epoch=5), 12).error_code == 70
    session = open_session(cache, ("a", 0, 0))
    assert cache.open(fetch(session=session, epoch=2), 12).error_code == 71
    assert cache.open(fetch(session=session, epoch=1), 12).error_code == 0
    assert cache.open(fetch(session=session, epoch=1), 12).error_code == 71


def test_switching_between_names_and_ids_within_a_session_is_106():
    """Version 13 names topics by id: the session's keys would not match."""
    cache = make_cache()
    session = open_session(cache, ("a", 0, 0))
    assert cache.open(fetch(session=session, epoch=1), 13).error_code == 106


def test_sessions_by_topic_id_work_and_are_keyed_by_it():
    """From version 13 on the name is empty."""
    cache = make_cache()
    session, _ = answer(cache.open(fetch(("", 0, 0), epoch=0, ids=True), 13))
    context = cache.open(fetch(("", 0, 4), session=session, epoch=1, ids=True), 13)
    assert [(t.topic_id, t.fetch_offset) for t in context.targets] == [(ID, 4)]


def test_a_full_request_ends_the_session_it_names():
    """Epoch 0 begins another, epoch -1 closes."""
    cache = make_cache()
    session = open_session(cache, ("a", 0, 0))
    cache.open(fetch(session=session, epoch=-1), 12)
    assert cache.open(fetch(session=session, epoch=1), 12).error_code == 70


def test_a_session_that_lost_its_last_partition_ends():
    """There is nothing left to fetch incrementally."""
    cache = make_cache()
    session = open_session(cache, ("a", 0, 0))
    context = cache.open(fetch(session=session, epoch=1, forget=[("a", 0)]), 12)
    assert answer(context) == (0, [])
    assert len(cache) == 0


def test_a_full_cache_refuses_sessions_until_one_is_stale():
    """A client without a session is slower, but still served."""
    clock = ManualClock()
    cache = make_cache(1, clock)
    first = open_session(cache, ("a", 0, 0))
    assert open_session(cache, ("b", 0, 0)) == 0
    clock.now = 121.0
    assert open_session(cache, ("b", 0, 0)) > 0
    assert cache.open(fetch(session=first, epoch=1), 12).error_code == 70


def test_a_larger_session_drives_out_a_smaller_one_that_is_old_enough():
    """A session is worth as much as the partitions that it leaves out."""
    clock = ManualClock()
    cache = make_cache(1, clock)
    small = open_session(cache, ("a", 0, 0))
    clock.now = 119.0
    cache.open(fetch(session=small, epoch=1), 12)
    assert open_session(cache, ("b", 0, 0), ("c", 0, 0)) == 0
    clock.now = 125.0
    assert open_session(cache, ("b", 0, 0)) == 0
    assert open_session(cache, ("b", 0, 0), ("c", 0, 0)) > 0


def test_the_epoch_wraps_to_one():
    """Epoch 0 means a new session, so it is left out."""
    cache = make_cache()
    session_id = open_session(cache, ("a", 0, 0))
    context = cache.open(fetch(session=session_id, epoch=1), 12)
    context.session.epoch = 2**31 - 1
    cache.open(fetch(session=session_id, epoch=2**31 - 1), 12)
    assert context.session.epoch == 1


def test_a_session_has_a_largest_size(monkeypatch):
    """A larger one is not created, and one that would grow beyond the size ends."""
    monkeypatch.setattr(fetch_sessions, "MAX_SESSION_TARGETS", 2)
    cache = make_cache()
    a, b, c = ("a", 0, 0), ("b", 0, 0), ("c", 0, 0)
    assert open_session(cache, a, b, c) == 0
    session = open_session(cache, a, b)
    assert session
    same = cache.open(fetch(a, session=session, epoch=1), 12)
    assert (same.error_code, len(same.targets)) == (0, 2)
    assert cache.open(fetch(c, session=session, epoch=2), 12).error_code == 70
    assert len(cache) == 0


def test_all_sessions_together_have_a_largest_size(monkeypatch):
    """Without room a session is refused, until others may be evicted."""
    monkeypatch.setattr(fetch_sessions, "MAX_TARGETS", 3)
    clock = ManualClock()
    cache = make_cache(clock=clock)
    a, b = ("a", 0, 0), ("b", 0, 0)
    first, second = open_session(cache, a, b), open_session(cache, a)
    assert first
    assert second
    assert open_session(cache, a) == 0
    assert cache.open(fetch(b, session=second, epoch=1), 12).error_code == 70
    assert len(cache) == 1
    clock.now += 121
    assert open_session(cache, a, b)
    assert len(cache) == 1
