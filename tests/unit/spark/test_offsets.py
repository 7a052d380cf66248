"""Offsets: their JSON, what is embedded in it, and the split of a limit."""

from __future__ import annotations

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokq import TopicPartition
from aiokq.errors import ConfigError
from aiokq.spark.offsets import SourceOffset, parse_partition_offsets, prorated

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def test_equal_offsets_have_equal_text_whatever_order_they_came_in() -> None:
    """Spark compares texts: another order of keys made it run empty batches without end."""
    one = SourceOffset({T1: 2, U0: 3, T0: 1, TopicPartition("t", 10): 4})
    other = SourceOffset({TopicPartition("t", 10): 4, T0: 1, U0: 3, T1: 2})

    assert json.dumps(one.to_map()) == json.dumps(other.to_map())
    assert json.dumps(one.to_map()) == '{"t": {"0": 1, "1": 2, "10": 4}, "u": {"0": 3}}'


def test_offsets_of_the_jvm_connector_are_read() -> None:
    """Queries continue from its checkpoints, which have no topic ids and no start of the query."""
    offset = SourceOffset.parse(json.loads('{"t":{"1":5,"0":7}}'))

    assert offset == SourceOffset({T0: 7, T1: 5})


@given(
    st.dictionaries(
        st.builds(
            TopicPartition,
            st.text(min_size=1).filter(lambda t: "__aiokq" not in t),
            st.integers(0, 99),
        ),
        st.integers(0, 2**63 - 1),
    ),
    st.dictionaries(st.sampled_from(["t", "u"]), st.uuids()),
)
def test_an_offset_comes_back_as_it_was(
    positions: dict[TopicPartition, int], ids: dict[str, UUID]
) -> None:
    """They are stored in JSON, whose numbers have 64 bits with a sign."""
    offset = SourceOffset(positions, positions, ids)

    text = json.dumps(offset.to_map())

    assert SourceOffset.parse(json.loads(text)) == offset
    assert all(
        -(2**63) <= number < 2**63
        for numbers in json.loads(text).values()
        for number in numbers.values()
    )


def test_what_is_embedded_looks_like_topics_and_is_none() -> None:
    """Other readers of the checkpoint can still read it as a map of topics to offsets."""
    map_ = SourceOffset({T0: 5}, {T0: 2}, {"t": UUID(int=1 << 127 | 7)}).to_map()

    assert map_ == {
        "t": {"0": 5},
        "__aiokq_initial__.t": {"0": 2},
        "__aiokq_topic_id__.t": {"0": -(2**63), "1": 7},
    }


@pytest.mark.parametrize("text", ["{}", '{"t":{}}'])
def test_an_empty_offset_is_one(text: str) -> None:
    """It comes from a pattern that matches no topic yet."""
    assert SourceOffset.parse(json.loads(text)).positions == {}


@pytest.mark.parametrize("text", ['{"t":5}', '{"t":{"x":1}}', '{"t":[1]}'])
def test_an_offset_of_another_source_is_refused(text: str) -> None:
    """For example in the checkpoint of a file source."""
    with pytest.raises(ConfigError, match="checkpoint"):
        SourceOffset.parse(json.loads(text))


@pytest.mark.parametrize("text", ["5", "{", '{"t":{"0":1.5}}', '{"t":{"0":true}}', '{"t":{"a":1}}'])
def test_offsets_that_are_none_are_refused(text: str) -> None:
    """The message shows the expected form and the given text."""
    with pytest.raises(ConfigError, match=r"Expected e\.g\."):
        parse_partition_offsets(text)


def test_a_limit_is_shared_out_by_backlog() -> None:
    """A partition with nine tenths of the backlog gets nine tenths of the batch."""
    limited = prorated(100, {T0: 0, T1: 0}, {T0: 900, T1: 100})

    assert limited == {T0: 90, T1: 10}


def test_a_small_partition_is_not_starved() -> None:
    """A share below one becomes one; otherwise it would wait for the large partition to end."""
    assert prorated(10, {T0: 0, T1: 0}, {T0: 1_000_000, T1: 1}) == {T0: 9, T1: 1}


def test_a_limit_above_the_backlog_changes_nothing() -> None:
    """Partitions without a start keep their ends."""
    assert prorated(10, {T0: 1}, {T0: 3, T1: 7}) == {T0: 3, T1: 7}
    assert prorated(10, {T0: 3}, {T0: 3}) == {T0: 3}


@given(
    st.integers(1, 10_000),
    st.lists(st.tuples(st.integers(0, 10**12), st.integers(0, 10**12)), min_size=1, max_size=20),
)
def test_a_limit_is_kept_and_each_backlog_moves(limit: int, sizes: list[tuple[int, int]]) -> None:
    """No partition goes beyond its end or stands still; the excess is one offset each at most."""
    start = {TopicPartition("t", n): first for n, (first, _) in enumerate(sizes)}
    end = {TopicPartition("t", n): first + size for n, (first, size) in enumerate(sizes)}

    limited = prorated(limit, start, end)

    assert all(start[tp] <= limited[tp] <= end[tp] for tp in end)
    assert all(limited[tp] > start[tp] for tp in end if end[tp] > start[tp] and limit >= len(end))
    assert sum(limited[tp] - start[tp] for tp in end) <= limit + len(end)
