"""Subscriptions by expression, resolved by the broker."""

from __future__ import annotations

import sys

import pytest

from aiokq.broker.coordinator.re2_expressions import compile_re2
from aiokq.core.errors import InvalidRegularExpression
from aiokq.wire.consumer_group_records import ConsumerGroupRegularExpressionKey
from tests.unit.broker.coordinator.group.consumer.consumer_harness import World


def regex_records(world: World) -> list[tuple[str, list[str] | None]]:
    """Return the expressions in the last call's records, with their topics or None."""
    return [
        (
            record.key.regular_expression,
            None if record.value is None else record.value.topics,
        )
        for record in world.written
        if isinstance(record.key, ConsumerGroupRegularExpressionKey)
    ]


def test_a_member_gets_the_topics_that_match_its_whole_name() -> None:
    """As in Kafka, `order` does not match `orders`."""
    world = World(orders=1, order=1, reorder=1)
    joined = world.join("a", regex="order|order-.*")
    assert world.assigned(joined) == {"order": {0}}
    assert regex_records(world) == [("order|order-.*", ["order"])]


def test_a_new_topic_that_matches_is_assigned_at_the_next_heartbeat() -> None:
    """This is why applications subscribe by expressions."""
    world = World(orders=1)
    world.join("a", regex="o.*")
    world.topics.create("others", 2)
    assert world.assigned(world.beat("a", 1)) == {"orders": {0}, "others": {0, 1}}
    assert regex_records(world) == [("o.*", ["orders", "others"])]
    world.topics.create("unrelated", 1)
    world.beat("a", 2)
    assert world.written == []


def test_a_deleted_topic_leaves_the_expression() -> None:
    """If it is recreated, it matches with another id."""
    world = World(orders=1, others=1)
    world.join("a", regex="o.*")
    world.topics.delete("others")
    world.beat("a", 1)
    assert regex_records(world) == [("o.*", ["orders"])]
    assert world.beat("a", 1, {"orders": [0]}).member_epoch == 2


def test_names_and_expression_add_up() -> None:
    """In Kafka's protocol a member may have both."""
    world = World(orders=1, audits=1, metrics=1)
    joined = world.join("a", "audits", regex="o.*")
    assert world.assigned(joined) == {"orders": {0}, "audits": {0}}
    assert world.group.is_subscribed_to("orders")
    assert world.group.is_subscribed_to("audits")


def test_an_expression_that_others_have_is_not_resolved_again() -> None:
    """A thousand members may share one expression."""
    world = World(orders=2)
    world.join("a", regex="o.*")
    joined = world.join("b", regex="o.*")
    assert regex_records(world) == []
    assert joined.member_epoch == 2
    world.leave("a")
    assert regex_records(world) == [], "b still has it"
    world.leave("b")
    assert regex_records(world) == [("o.*", None)]
    assert not world.group.is_subscribed_to("orders")


def test_a_changed_expression_replaces_the_old_one() -> None:
    """A new version of the program has another expression."""
    world = World(orders=1, audits=1)
    world.join("a", regex="o.*")
    told = world.beat("a", 1, regex="a.*")
    assert sorted(regex_records(world)) == [("a.*", ["audits"]), ("o.*", None)]
    assert world.assigned(told) == {}
    assert world.assigned(world.beat("a", 1, {})) == {"audits": {0}}


def test_an_empty_expression_ends_the_subscription() -> None:
    """The member subscribes by names instead."""
    world = World(orders=1, audits=1)
    world.join("a", regex="o.*")
    world.beat("a", 1, topics=["audits"], regex="")
    assert regex_records(world) == [("o.*", None)]
    assert world.assigned(world.beat("a", 1, {})) == {"audits": {0}}


def test_a_bad_expression_is_refused_and_changes_nothing() -> None:
    """The error is INVALID_REGULAR_EXPRESSION, and the group is unchanged."""
    world = World(orders=1)
    world.join("a", "orders")
    with pytest.raises(InvalidRegularExpression, match=r"`\(` is not a valid regular expression"):
        world.join("b", regex="(")
    assert set(world.group.image.members) == {"a"}
    assert world.group.image.epoch == 1
    with pytest.raises(InvalidRegularExpression):
        world.beat("a", 1, regex="(")
    assert world.group.image.members["a"].topic_regex == ""


def test_resolved_topics_survive_where_expressions_cannot_be_compiled() -> None:
    """The new coordinator has no google-re2 and uses the topics resolved before."""
    world = World(orders=1)
    world.join("a", regex="o.*")
    world._compile_regex = no_engine
    world.reload()
    assert world.beat("a", 1).assignment is None
    assert world.written == []
    with pytest.raises(InvalidRegularExpression):
        world.join("b", regex="x.*")


def no_engine(regex: str):
    raise InvalidRegularExpression("google-re2 is not installed")


def test_a_member_whose_expression_was_never_resolved_is_served() -> None:
    """Kafka resolves expressions after the join, so its log may end in between."""
    world = World(orders=1)
    world.join("a", "orders", regex="o.*")
    world.log = [(key, value) for key, value in world.log if int.from_bytes(key[:2], "big") != 16]
    world.reload()
    world.beat("a", 1)
    assert regex_records(world) == [("o.*", ["orders"])]


def test_without_google_re2_the_refusal_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """This happens with a broker from a plain `pip install aiokq`."""
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(InvalidRegularExpression, match="pip install google-re2"):
        compile_re2("o.*")


def test_re2_matches_whole_names_and_refuses_what_is_no_expression() -> None:
    """Uses the real engine where it is installed."""
    pytest.importorskip("re2")
    match = compile_re2("order[s]?|bär")
    assert [bool(match(name)) for name in ("order", "orders", "reorders", "bär", "")] == [
        True,
        True,
        False,
        True,
        False,
    ]
    with pytest.raises(InvalidRegularExpression, match=r"`a\(` is not a valid .*: missing \)"):
        compile_re2("a(")
    with pytest.raises(InvalidRegularExpression):
        compile_re2(r"(a)\1")
