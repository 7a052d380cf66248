"""The rule that protects a metadata quorum: only a node that is its only voter appends.

If this node appended to the log of a quorum with other voters, the other voters would later elect a
leader among themselves, and the quorum would have two histories.

Source: KIP-595, KIP-853. Tests: ``tests/unit/broker/metadata/log/test_sole_voter.py``.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from aiokq.broker.log.uuid_text import format_uuid
from aiokq.core.errors import KafkaStorage

if TYPE_CHECKING:
    from aiokq.broker.metadata.log.metadata_reader import MetadataState
    from aiokq.broker.metadata.log.quorum_state import QuorumState

__all__ = ["check_sole_voter", "no_voter", "voter_ids"]


def voter_ids(state: MetadataState, quorum: QuorumState | None) -> set[int]:
    """Return the ids of the voters of the quorum that wrote a metadata log, as far as known.

    With ``kraft.version`` 1 the voters are in the log. With ``kraft.version`` 0 they are in the
    configuration of the nodes, and their ids are in the last ``LeaderChangeMessage`` and in
    ``quorum-state``.

    Args:
        quorum: the content of ``quorum-state``; None if the file is missing.
    """
    if state.voters is not None:
        return {one.voter_id for one in state.voters.voters}
    ids = set(state.leader_voters or ())
    if quorum is not None:
        ids.update(quorum.voters)
        ids.update(one for one in (quorum.leader_id, quorum.voted_id) if one is not None)
    return ids


def no_voter(path: str) -> KafkaStorage:
    """Return the error for a log directory whose node waits to be added to a quorum.

    Such a node must not begin a quorum of its own, because two quorums would then have the same
    cluster id.
    """
    return KafkaStorage(
        f"{path} names no voter: it was formatted for a node that is added to the quorum of other "
        "nodes (--no-initial-controllers), and a node of aiokq is the only voter of its own "
        "quorum. Start Apache Kafka with it or, for a new cluster of this node alone, remove it "
        "and run aiokq storage format --standalone; nothing was changed"
    )


def check_sole_voter(
    state: MetadataState,
    quorum: QuorumState | None,
    *,
    directory: str,
    node_id: int,
    directory_id: uuid.UUID,
) -> None:
    """Check that this node is the only voter of the quorum that wrote a metadata log.

    The check succeeds for a directory without a log and without ``quorum-state``. It fails for a
    directory that has no log but a ``quorum-state`` without voters: the node waits to be added to a
    quorum. Such a file is written by ``aiokq storage format --no-initial-controllers``, and by
    Kafka when it first starts in a directory that was formatted in this way.

    With ``kraft.version`` 1 the directory id of the voter must be ``directory_id``. A log that has
    records is refused if its voters are unknown.

    Args:
        quorum: the content of ``quorum-state``; None if the file is missing.
        directory: path of ``__cluster_metadata-0``.
        node_id, directory_id: ids of this node and of its metadata log directory.

    Raises:
        KafkaStorage: there are other voters, the voters are unknown, or the log belongs to another
            node or directory; the message says what to do.
    """
    if state.voters is not None:
        voters = [(one.voter_id, one.voter_directory_id) for one in state.voters.voters]
        if voters == [(node_id, directory_id)]:
            return
        named = ", ".join(f"{voter} (directory.id {format_uuid(id_)})" for voter, id_ in voters)
        own = f"{node_id} (directory.id {format_uuid(directory_id)})"
    else:
        ids = voter_ids(state, quorum)
        is_empty = not state.end_offset and not ids
        if is_empty and quorum is not None:
            raise no_voter(directory.rpartition("/")[0])
        if is_empty or (ids == {node_id} and not state.kraft_version):
            return
        if not ids and quorum is None:
            raise KafkaStorage(
                f"{directory} is incomplete: it has no quorum-state, and its log does not say "
                "which nodes are the voters. If the directory is a copy, it was cut off: copy it "
                "again. If the file is lost, run aiokq storage adopt, which makes a log of this "
                "node alone and keeps the old one; nothing was changed"
            )
        named, own = ", ".join(map(str, sorted(ids))) or "unknown", str(node_id)
    raise KafkaStorage(
        f"{directory} belongs to a quorum with the voters {named}, and this node is "
        f"{own}: aiokq continues only a log whose only voter it is, because the other voters would "
        "not know its records. Start Apache Kafka with it, or run aiokq storage adopt, which makes "
        "a log of this node alone from it and keeps the old one; nothing was changed"
    )
