"""What `checked.py` condemns: without it, the ends of the kill tests would prove nothing."""

from __future__ import annotations

import pytest

from tests.spark.checked import acknowledged, assert_copied, assert_read, assert_written
from tests.spark.logs import places
from tests.spark.topics import Topics


def test_a_copy_that_lacks_a_record_or_has_one_twice_is_condemned(
    topics: Topics, topic: str
) -> None:
    """The copy is complete in between."""
    target = f"{topic}-copy"
    topics.create(topic, 2)
    topics.create(target, 2)
    sends = topics.recorded_fill(topic, 20, 2)
    values = [send.value.encode() for send in sends]
    topics.send(target, values[:-1])
    with pytest.raises(AssertionError, match=f"'1:19' of {topic} has no copy"):
        assert_copied(topics, topic, target, sends)
    topics.send(target, values[-1:])
    assert_copied(topics, topic, target, sends)
    topics.send(target, values[7:8], 1)
    with pytest.raises(AssertionError, match=f"'0:7' of {topic} has copies"):
        assert_copied(topics, topic, target, sends)


def test_a_sink_that_lacks_a_row_or_has_one_twice_is_condemned(topics: Topics, topic: str) -> None:
    topics.create(topic, 2)
    sends = topics.recorded_fill(topic, 20, 2)
    rows = places(topics, topic)
    assert_read(topics, topic, sends, rows)
    with pytest.raises(AssertionError, match="lost-write"):
        assert_read(topics, topic, sends, rows[:5] + rows[6:])
    with pytest.raises(AssertionError, match="unseen"):
        assert_read(topics, topic, sends, rows[:-1])
    with pytest.raises(AssertionError, match="nonmonotonic-poll"):
        assert_read(topics, topic, sends, [*rows, rows[3]])
    assert_read(topics, topic, sends, [row for row in rows if row[1] >= 4], start=4)


def test_an_export_that_lacks_a_row_or_has_one_twice_is_condemned(
    topics: Topics, topic: str
) -> None:
    """At least once, only the row that lacks."""
    topics.create(topic)
    rows = [f"{n}" for n in range(20)]
    sends = list(acknowledged(topic, rows))
    topics.send(topic, [row.encode() for row in rows[:-1]])
    for at_least_once in (False, True):
        with pytest.raises(AssertionError, match=r"'19' was acknowledged .*; it was never read"):
            assert_written(topics, topic, sends, at_least_once=at_least_once)
    topics.send(topic, [b"19"])
    assert_written(topics, topic, sends)
    topics.send(topic, [b"4"])
    with pytest.raises(AssertionError, match="'4' is at"):
        assert_written(topics, topic, sends)
    assert_written(topics, topic, sends, at_least_once=True)
