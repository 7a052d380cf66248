"""OffsetCommit and OffsetFetch: requests in each version, and both formats of the response."""

from __future__ import annotations

from uuid import UUID

import pytest

from aiokq import wire
from aiokq.cluster.group_offsets import (
    FetchedOffsets,
    commit_errors,
    commit_request,
    fetch_request,
    fetched_offsets,
)
from aiokq.core.errors import UnknownTopicOrPartition, UnsupportedVersion
from aiokq.core.types import GroupMetadata, OffsetAndMetadata, TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
ID = UUID(int=7)


def test_a_commit_by_a_non_member_has_no_generation() -> None:
    """The coordinator accepts such a commit only if the group is empty."""
    request = commit_request("g", {A0: OffsetAndMetadata(3, "m", 2), B0: OffsetAndMetadata(4)})
    assert (request.member_id, request.generation_id_or_member_epoch) == ("", -1)
    (a, b) = request.topics
    assert (a.partitions[0].committed_leader_epoch, b.partitions[0].committed_leader_epoch) == (
        2,
        -1,
    )
    member = GroupMetadata("g", 5, "m", "i")
    request = commit_request("g", {A0: OffsetAndMetadata(3)}, member=member, topic_ids={A0: ID})
    assert (request.member_id, request.generation_id_or_member_epoch) == ("m", 5)
    assert (request.group_instance_id, request.topics[0].topic_id) == ("i", ID)


def test_a_partition_missing_from_the_response_was_not_committed() -> None:
    response = wire.OffsetCommitResponse(
        topics=[
            wire.OffsetCommitResponseTopic(
                topic_id=ID, partitions=[wire.OffsetCommitResponsePartition(partition_index=0)]
            )
        ]
    )
    errors = commit_errors(response, [A0, A1], names={ID: "a"})
    assert errors[A0] is None
    assert isinstance(errors[A1], UnknownTopicOrPartition)


@pytest.mark.parametrize("version", range(1, 11))
def test_an_offset_fetch_can_be_sent_in_every_version(version: int) -> None:
    """A field that a version lacks must not be set."""
    request = fetch_request(
        version, {"g": [A0, A1, B0]}, require_stable=True, topic_ids={"a": ID, "b": ID}
    )
    wire.encode(request, version)
    if version >= 2:
        wire.encode(fetch_request(version, {"g": None}, require_stable=False), version)
    else:
        with pytest.raises(UnsupportedVersion):
            fetch_request(version, {"g": None}, require_stable=False)


def test_both_response_formats_give_the_same_offsets() -> None:
    """Before version 8 a response contains one group; since version 8, several."""
    old = wire.OffsetFetchResponse(
        topics=[
            wire.OffsetFetchResponseTopic(
                name="a",
                partitions=[
                    wire.OffsetFetchResponsePartition(partition_index=0, committed_offset=3),
                    wire.OffsetFetchResponsePartition(partition_index=1, committed_offset=-1),
                ],
            )
        ]
    )
    new = wire.OffsetFetchResponse(
        groups=[
            wire.OffsetFetchResponseGroup(
                group_id="g",
                topics=[
                    wire.OffsetFetchResponseTopics(
                        name="a",
                        partitions=[
                            wire.OffsetFetchResponsePartitions(
                                partition_index=0, committed_offset=3, metadata=""
                            ),
                            wire.OffsetFetchResponsePartitions(
                                partition_index=1, committed_offset=-1, metadata=""
                            ),
                        ],
                    )
                ],
            ),
            wire.OffsetFetchResponseGroup(group_id="h", error_code=16),
        ]
    )
    expected = FetchedOffsets({A0: OffsetAndMetadata(3), A1: None})
    assert fetched_offsets(old, ["g"]) == {"g": expected}
    found = fetched_offsets(new, ["g", "h", "left out"])
    assert found["g"] == expected
    assert getattr(found["h"].error, "code", None) == 16
    assert "left out" not in found
