"""A consumer's subscription, without a cluster."""

from __future__ import annotations

import re

import pytest

from aiokq.consumer.subscription import Mode, Subscription, checked_partition, checked_topic
from aiokq.core.errors import ConfigError, InvalidTopic
from aiokq.core.types import TopicFilter, TopicPartition


def subscribed(*topics, pattern=None) -> Subscription:
    subscription = Subscription()
    subscription.subscribe(topics or None, pattern)
    return subscription


def test_topic_names_are_not_patterns() -> None:
    """A dot in a name is not a wildcard."""
    subscription = subscribed("a.b", "c")
    assert subscription.names == {"a.b", "c"}
    assert subscription.wants("a.b", internal=False)
    assert not subscription.wants("axb", internal=False)
    assert subscribed("__consumer_offsets").wants("__consumer_offsets", internal=True)


def test_a_single_string_is_one_topic() -> None:
    """subscribe("abc") is not three topics."""
    subscription = Subscription()
    subscription.subscribe("abc", None)
    assert subscription.names == {"abc"}


def test_patterns_match_whole_names_and_leave_internal_topics_out() -> None:
    for pattern in (r"log.*", re.compile(r"log.*")):
        subscription = subscribed(pattern=pattern)
        assert subscription.wants("logs", internal=False)
        assert not subscription.wants("my-logs", internal=False)
        assert not subscription.wants("logs", internal=True)


def test_a_filter_excludes() -> None:
    """Like a whitelist and a blacklist."""
    subscription = subscribed(TopicFilter("a.*", "ab"))
    assert [n for n in ("a", "ab", "abc", "b") if subscription.wants(n, internal=False)] == [
        "a",
        "abc",
    ]


def test_mixed_and_empty_subscriptions_are_refused() -> None:
    """Ambiguous subscriptions are refused."""
    for topics, pattern in (
        ((), None),
        (("a", TopicFilter("b")), None),
        (("a",), "b"),
        ((TopicFilter("a"), TopicFilter("b")), None),
    ):
        with pytest.raises(ConfigError):
            Subscription().subscribe(topics, pattern)
    with pytest.raises(TypeError):
        Subscription().subscribe([1], None)  # type: ignore[list-item]
    with pytest.raises(ConfigError, match="regular expression"):
        subscribed(pattern="(")


def test_a_refused_subscription_keeps_the_old_one() -> None:
    """An error must not end a working subscription."""
    subscription = subscribed("a")
    with pytest.raises(ConfigError):
        subscription.subscribe([], None)
    assert subscription.wants("a", internal=False)


def test_subscribing_and_assigning_exclude_each_other() -> None:
    """unsubscribe() ends either one."""
    subscription = subscribed("a")
    with pytest.raises(ConfigError, match="unsubscribe"):
        subscription.assign([])
    subscription.clear()
    assert subscription.mode is Mode.NOTHING
    subscription.assign([])
    with pytest.raises(ConfigError, match="unsubscribe"):
        subscription.subscribe(["a"], None)


@pytest.mark.parametrize("name", ["localhost:9092", "10.0.0.1:9092", "[::1]:9092", "kafka.eu:1"])
def test_an_address_is_told_from_a_topic(name: str) -> None:
    """Users may pass an address where a topic is expected."""
    with pytest.raises(ConfigError, match=r"bootstrap_servers="):
        checked_topic(name)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "x" * 250, "a*"])
def test_invalid_topic_names_are_refused(name: str) -> None:
    """For a regular expression the error names the fix."""
    with pytest.raises(InvalidTopic, match="pattern"):
        checked_topic(name)


def test_tuples_are_partitions() -> None:
    """Any tuple type is accepted."""
    assert checked_partition(("a", 1)) == TopicPartition("a", 1)
    assert isinstance(checked_partition(("a", 1)), TopicPartition)
    for wrong in ("a", ("a",), ("a", "1"), ("a", True), ["a", 1]):
        with pytest.raises(TypeError):
            checked_partition(wrong)  # type: ignore[arg-type]
    for number in (-1, 2**31):
        with pytest.raises(ValueError, match=f"{number}: must be from 0 to"):
            checked_partition(("a", number))


def test_a_compiled_expression_is_accepted_as_a_pattern():
    """subscribe(re.compile(...)) is natural to write."""
    subscription = Subscription()
    subscription.subscribe(re.compile("orders-.*"), None)
    assert subscription.wants("orders-eu", internal=False)
    assert not subscription.wants("clicks", internal=False)
    with pytest.raises(ConfigError, match="two patterns"):
        subscription.subscribe(re.compile("a"), "b")
