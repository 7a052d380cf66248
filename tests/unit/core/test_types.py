"""Small value classes."""

from __future__ import annotations

import dataclasses

import pytest

from aiokq.core.types import GroupMetadata, OffsetAndMetadata, TopicPartition


def test_a_plain_tuple_is_a_topic_partition():
    """Users write tuples, and lookups must find them."""
    assert {TopicPartition("orders", 1): 5}[("orders", 1)] == 5
    assert str(TopicPartition("orders", 1)) == "orders-1"


def test_values_are_frozen():
    """Values are used as keys and shared between tasks."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        OffsetAndMetadata(5).offset = 6  # type: ignore[misc]
    assert OffsetAndMetadata(5) == OffsetAndMetadata(5, "", None)
    assert hash(GroupMetadata("g")) == hash(GroupMetadata("g", -1, "", None))
