"""Which metadata logs a node may continue: those whose only voter it is."""

from __future__ import annotations

import uuid

import pytest

from aiokq.broker.metadata.log.metadata_reader import MetadataState
from aiokq.broker.metadata.log.quorum_state import QuorumState
from aiokq.broker.metadata.log.sole_voter import check_sole_voter
from aiokq.core.errors import KafkaStorage
from aiokq.wire.quorum_records import VotersRecord, VotersRecordVoter

OWN = uuid.UUID(int=1001)
OTHER = uuid.UUID(int=1002)


def state(
    *voters: tuple[int, uuid.UUID],
    kraft_version: int = 0,
    leader: tuple[int, ...] | None = None,
    end_offset: int = 0,
) -> MetadataState:
    made = MetadataState()
    made.end_offset = end_offset
    made.kraft_version = kraft_version
    made.leader_voters = leader
    if voters:
        made.voters = VotersRecord(
            voters=[
                VotersRecordVoter(voter_id=node, voter_directory_id=directory)
                for node, directory in voters
            ]
        )
    return made


def check(found: MetadataState, quorum: QuorumState | None = None) -> None:
    check_sole_voter(
        found, quorum, directory="/data/__cluster_metadata-0", node_id=1, directory_id=OWN
    )


@pytest.mark.parametrize(
    ("found", "quorum"),
    [
        (state(), None),
        (state(leader=(1,)), None),
        (state(leader=(1,)), QuorumState(4, 1, voters=(1,))),
        (state(), QuorumState(4, None, voters=(1,))),
        (state((1, OWN), kraft_version=1, leader=(1,)), QuorumState(4, 1, data_version=1)),
    ],
)
def test_the_only_voter_may_append(found: MetadataState, quorum: QuorumState | None) -> None:
    """A new directory has no voter yet."""
    check(found, quorum)


@pytest.mark.parametrize("data_version", [0, 1])
def test_a_node_that_waits_to_be_added_begins_no_quorum(data_version: int) -> None:
    """Regression: it became the only voter of a second cluster with the same cluster id."""
    with pytest.raises(KafkaStorage, match=r"/data names no voter.*nothing was changed"):
        check(state(), QuorumState(0, data_version=data_version))


@pytest.mark.parametrize(
    ("found", "quorum", "named"),
    [
        (state(leader=(1, 2, 3)), None, "voters 1, 2, 3"),
        (state(leader=(1,)), QuorumState(4, 1, voters=(1, 2)), "voters 1, 2"),
        (state(leader=(2,)), None, "voters 2"),
        (state((1, OWN), (2, OTHER), kraft_version=1), None, "voters 1 .*, 2 "),
        (state((1, OTHER), kraft_version=1), None, r"voters 1 \(directory.id"),
        (state(end_offset=9), None, "is incomplete: it has no quorum-state.*copy it again"),
        (state(end_offset=9), QuorumState(4, 2, data_version=1), "voters 2"),
        (state(end_offset=9), QuorumState(4, None, 2, data_version=1), "voters 2"),
        (state(kraft_version=1, leader=(1,), end_offset=9), None, "voters 1"),
    ],
)
def test_any_other_quorum_is_refused(
    found: MetadataState, quorum: QuorumState | None, named: str
) -> None:
    """The others would elect a leader among themselves: two histories of one quorum."""
    with pytest.raises(KafkaStorage, match=named) as refused:
        check(found, quorum)
    assert "aiokq storage adopt" in refused.value.message
    assert "nothing was changed" in refused.value.message
