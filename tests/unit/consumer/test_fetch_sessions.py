"""The client's side of fetch sessions, without a network."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from aiokq.consumer.fetch_sessions import Ask, FetchSession, fetch_topics, forgotten_topics
from aiokq.core.types import TopicPartition

A = TopicPartition("a", 0)
B = TopicPartition("b", 1)
ID = uuid.UUID(int=1)


def ask(offset: int = 0, *, topic_id: uuid.UUID = ID, generation: int = 0) -> Ask:
    state: Any = None
    return Ask(offset, 3, 2, 1000, topic_id, generation, state)


def opened(*partitions: TopicPartition) -> FetchSession:
    session = FetchSession()
    for tp in partitions:
        session.want(tp, ask())
    session.next(by_ids=True, sessions=True)
    session.accept(77)
    return session


def test_the_first_request_is_full_and_opens_a_session() -> None:
    """Id 0 and epoch 0 request a new session."""
    session = FetchSession()
    session.want(A, ask(5))
    plan = session.next(by_ids=True, sessions=True)
    assert (plan.session_id, plan.epoch, plan.full) == (0, 0, True)
    assert plan.asks == [(A, ask(5))]


def test_later_requests_contain_only_changes() -> None:
    """Those are new, changed and dropped partitions."""
    session = opened(A, B)
    assert session.next(by_ids=True, sessions=True)[3:] == ([], [])
    session.accept(77)
    c = TopicPartition("c", 0)
    session.want(A, ask(9))
    session.drop(B)
    session.want(c, ask())
    plan = session.next(by_ids=True, sessions=True)
    assert (plan.session_id, plan.epoch) == (77, 2)
    assert [tp for tp, _ in plan.asks] == [A, c]
    assert plan.forgotten == [(B, ID)]


def test_a_partition_dropped_and_added_again_is_not_sent() -> None:
    """For the broker nothing has changed."""
    session = opened(A, B)
    session.drop(A)
    session.want(A, ask())
    assert session.next(by_ids=True, sessions=True)[3:] == ([], [])


def test_a_partition_never_sent_is_not_in_the_forgotten_topics() -> None:
    """The partition was assigned and revoked between two requests."""
    session = opened(A)
    session.want(B, ask())
    session.drop(B)
    assert session.next(by_ids=True, sessions=True)[3:] == ([], [])


def test_the_partition_changed_last_is_sent_last() -> None:
    """A partition whose records were just received must not come first again."""
    session = FetchSession()
    session.want(A, ask())
    session.want(B, ask())
    session.want(A, ask(10))
    plan = session.next(by_ids=True, sessions=True)
    assert [tp for tp, _ in plan.asks] == [B, A]


def test_a_newer_generation_applies_although_nothing_is_sent() -> None:
    """seek() to the same offset invalidates the response in flight but needs no request."""
    session = opened(A)
    session.want(A, ask(generation=1))
    plan = session.next(by_ids=True, sessions=True)
    assert plan.asks == []
    assert session.sent[A].generation == 1


def test_the_id_of_a_recreated_topic_replaces_the_old_one() -> None:
    """The broker identifies partitions by topic id."""
    session = opened(A)
    other = uuid.UUID(int=2)
    session.want(A, ask(topic_id=other))
    plan = session.next(by_ids=True, sessions=True)
    assert plan.forgotten == [(A, ID)]
    assert plan.asks[0][1].topic_id == other


def test_after_an_unknown_session_or_a_bad_epoch_a_new_session_is_requested() -> None:
    """After 70 the session id is useless; after 71 and 106 it lets the broker free the session."""
    session = opened(A)
    session.next(by_ids=True, sessions=True)
    session.reject(70)
    plan = session.next(by_ids=True, sessions=True)
    assert (plan.session_id, plan.epoch, plan.full, len(plan.asks)) == (0, 0, True, 1)
    session.accept(78)
    for code in (71, 106):
        session.next(by_ids=True, sessions=True)
        session.reject(code)
        plan = session.next(by_ids=True, sessions=True)
        assert (plan.session_id, plan.epoch, plan.full) == (78, 0, True)
        session.accept(78)


def test_without_a_response_a_new_session_is_requested() -> None:
    """It is unknown whether the broker received the request."""
    session = opened(A)
    session.want(A, ask(9))
    session.next(by_ids=True, sessions=True)
    session.lost()
    plan = session.next(by_ids=True, sessions=True)
    assert (plan.session_id, plan.epoch, plan.asks) == (77, 0, [(A, ask(9))])


def test_if_the_broker_gives_the_session_up_a_full_request_follows() -> None:
    """The response has session id 0."""
    session = opened(A)
    session.next(by_ids=True, sessions=True)
    session.accept(0)
    plan = session.next(by_ids=True, sessions=True)
    assert (plan.session_id, plan.epoch, plan.full) == (0, 0, True)


def test_names_and_ids_do_not_mix_in_a_session() -> None:
    """The broker returns FETCH_SESSION_TOPIC_ID_ERROR (106) if a session switches between them."""
    session = opened(A)
    plan = session.next(by_ids=False, sessions=True)
    assert (plan.session_id, plan.epoch, plan.full) == (77, 0, True)


def test_old_brokers_have_no_sessions() -> None:
    """Before version 7 every request is full."""
    session = FetchSession()
    session.want(A, ask())
    for _ in range(2):
        plan = session.next(by_ids=False, sessions=False)
        assert (plan.session_id, plan.epoch, plan.full) == (0, -1, True)


def test_epochs_wrap_to_one() -> None:
    """Epoch 0 would open another session."""
    session = opened(A)
    session._epoch = 2**31 - 1
    session.next(by_ids=True, sessions=True)
    session.accept(77)
    assert session.next(by_ids=True, sessions=True).epoch == 1


def test_closing_names_the_session_once() -> None:
    """Without a session no request is sent."""
    session = opened(A)
    plan = session.close()
    assert plan is not None
    assert (plan.session_id, plan.epoch, plan.asks) == (77, -1, [])
    assert session.close() is None
    assert FetchSession().close() is None


@pytest.mark.parametrize("epochs", [True, False])
def test_partitions_are_grouped_by_topic(epochs: bool) -> None:
    """In the order of their first partition."""
    c = TopicPartition("a", 4)
    topics = fetch_topics([(A, ask(1)), (B, ask(2)), (c, ask(3))], epochs=epochs)
    assert [(t.topic, [p.partition for p in t.partitions]) for t in topics] == [
        ("a", [0, 4]),
        ("b", [1]),
    ]
    assert topics[0].partitions[0].last_fetched_epoch == (2 if epochs else -1)
    forgotten = forgotten_topics([(A, ID), (c, ID), (A, uuid.UUID(int=2))])
    assert [(t.topic_id, t.partitions) for t in forgotten] == [
        (ID, [0, 4]),
        (uuid.UUID(int=2), [0]),
    ]
