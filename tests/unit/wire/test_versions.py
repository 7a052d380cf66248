"""The choice of the version in which a message is sent, by its content."""

from __future__ import annotations

import uuid

import pytest

from aiokq import wire
from aiokq.wire import FieldNotSupported
from aiokq.wire.versions import newest_version

TOPIC_ID = uuid.UUID(int=7)


def newest(message: wire.Message) -> int:
    return newest_version(message, message.MIN_VERSION, message.MAX_VERSION)


def test_a_message_of_defaults_takes_the_newest() -> None:
    """It uses no field that some version lacks."""
    assert newest(wire.MetadataRequest()) == wire.MetadataRequest.MAX_VERSION
    assert newest_version(wire.MetadataRequest(), 0, 5) == 5


def test_what_ended_with_a_version_goes_no_further() -> None:
    """Topic names end with Fetch 12 and DeleteTopics 5; without names nothing would be fetched."""
    by_name = wire.FetchRequest(topics=[wire.FetchTopic(topic="t")])
    assert newest(by_name) == 12
    assert newest(wire.DeleteTopicsRequest(topic_names=["t"])) == 5


def test_of_two_names_for_one_thing_the_newer_counts() -> None:
    """With name and id set either may be dropped, so the version decides."""
    both = wire.FetchRequest(topics=[wire.FetchTopic(topic="t", topic_id=TOPIC_ID)])
    assert newest(both) == wire.FetchRequest.MAX_VERSION
    assert newest_version(both, 0, 11) == 11


def test_null_counts_as_a_value() -> None:
    """Null means all topics from Metadata 1 on; version 0 cannot encode it."""
    everything = wire.MetadataRequest(topics=None)
    assert newest(everything) == wire.MetadataRequest.MAX_VERSION
    with pytest.raises(FieldNotSupported, match="topics"):
        newest_version(everything, 0, 0)


def test_unknown_tags_need_a_flexible_version() -> None:
    """Versions before KIP-482 cannot carry them."""
    tagged = wire.FindCoordinatorRequest(unknown_tags={99: b"x"})
    with pytest.raises(FieldNotSupported, match="unknown_tags"):
        newest_version(tagged, 0, 2)


def test_every_version_that_is_chosen_can_be_encoded() -> None:
    """Nested fields are considered as well."""
    request = wire.ListOffsetsRequest(
        topics=[
            wire.ListOffsetsTopic(
                name="t", partitions=[wire.ListOffsetsPartition(current_leader_epoch=3)]
            )
        ],
        isolation_level=1,
    )
    assert newest_version(request, 0, 11) == 11
    wire.encode(request, newest_version(request, 0, 4))
    with pytest.raises(FieldNotSupported, match="isolation_level"):
        newest_version(request, 0, 1)
    both = wire.FindCoordinatorRequest(key="a", coordinator_keys=["b"])
    with pytest.raises(FieldNotSupported, match=r"coordinator_keys.*key \(versions 0 to 3\)"):
        newest(both)
