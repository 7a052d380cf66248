"""Reference counts of watched topics, and known topics that are no longer used."""

from __future__ import annotations

from aiokq.cluster.watched_topics import WatchedTopics


def test_watching_is_counted():
    """Two producers use a topic; one of them is closed."""
    interest = WatchedTopics()
    assert interest.watch(["a", "b", "a"]) == {"a", "b"}
    assert interest.watch(["a"]) == set()
    interest.unwatch(["a", "a", "b"])
    assert interest.topics == {"a"}
    interest.unwatch(["a", "a", "never watched"])
    assert interest.topics == frozenset()


def test_watching_all_topics_is_counted_too():
    """Two consumers subscribe by pattern."""
    interest = WatchedTopics()
    assert interest.watch_all()
    assert not interest.watch_all()
    interest.unwatch_all()
    assert interest.everything
    interest.unwatch_all()
    interest.unwatch_all()
    assert not interest.everything


def test_idle_topics_are_neither_watched_nor_used():
    """A topic that was used once must not stay in memory for ever."""
    interest = WatchedTopics()
    interest.watch(["watched"])
    interest.used("recent", 100.0)
    interest.used("old", 1.0)
    known = ["watched", "recent", "old", "never used"]
    assert interest.idle(known, 110.0, 60.0) == {"old", "never used"}
    interest.watch_all()
    assert interest.idle(known, 1_000.0, 60.0) == frozenset()
