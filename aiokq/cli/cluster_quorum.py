"""`aiokq cluster quorum`: describe the voters and observers of the metadata log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.cli.admin_command import AdminCall, admin_command
from aiokq.cli.output import Json, Output
from aiokq.cli.time_format import time_text

if TYPE_CHECKING:
    from aiokq.admin.client import Admin
    from aiokq.admin.quorum import QuorumInfo, QuorumReplicaState

__all__ = ["quorum"]


@admin_command
def quorum(call: AdminCall) -> None:
    """Describe the controllers and the state of each replica of the metadata log (KRaft).

    Voters elect the leader among themselves. Observers, usually brokers, replicate the log.
    """
    call.run(lambda admin: _describe(admin, call.out))


async def _describe(admin: Admin, out: Output) -> None:
    found = await admin.describe_metadata_quorum()
    replicas = [(_role(found, voter), voter) for voter in found.voters]
    replicas += [("observer", observer) for observer in found.observers]
    if out.as_json:
        out.document(
            {
                "leader_id": found.leader_id,
                "leader_epoch": found.leader_epoch,
                "high_watermark": found.high_watermark,
                "replicas": [_replica_json(found, role, replica) for role, replica in replicas],
            }
        )
        return
    leader = found.leader_id if found.leader_id >= 0 else "none"
    out.line(f"leader {leader}, epoch {found.leader_epoch}, high watermark {found.high_watermark}")
    out.table(
        ("node", "role", "end", "lag", "last fetch", "caught up", "directory", "endpoints"),
        [
            (
                replica.replica_id,
                role,
                None if replica.log_end_offset < 0 else replica.log_end_offset,
                _lag(found, replica),
                _time(replica.last_fetch_timestamp_ms),
                _time(replica.last_caught_up_timestamp_ms),
                _directory(replica),
                " ".join(_endpoints(found, replica)) or None,
            )
            for role, replica in replicas
        ],
    )


def _replica_json(found: QuorumInfo, role: str, replica: QuorumReplicaState) -> Json:
    return {
        "node_id": replica.replica_id,
        "role": role,
        "directory_id": _directory(replica),
        "log_end_offset": replica.log_end_offset,
        "lag": _lag(found, replica),
        "last_fetch_timestamp_ms": replica.last_fetch_timestamp_ms,
        "last_caught_up_timestamp_ms": replica.last_caught_up_timestamp_ms,
        "endpoints": _endpoints(found, replica) if role != "observer" else [],
    }


def _role(found: QuorumInfo, voter: QuorumReplicaState) -> str:
    return "leader" if voter.replica_id == found.leader_id else "follower"


def _lag(found: QuorumInfo, replica: QuorumReplicaState) -> int | None:
    """Return the number of offsets by which a replica is behind the leader.

    Returns None if the log end offset of the replica or of the leader is unknown.
    """
    ends = [v.log_end_offset for v in found.voters if v.replica_id == found.leader_id]
    if not ends or ends[0] < 0 or replica.log_end_offset < 0:
        return None
    return max(0, ends[0] - replica.log_end_offset)


def _endpoints(found: QuorumInfo, replica: QuorumReplicaState) -> list[str]:
    node = found.nodes.get(replica.replica_id)
    return [f"{e.listener}://{e.host}:{e.port}" for e in node.endpoints] if node else []


def _directory(replica: QuorumReplicaState) -> str | None:
    """Return the directory id of a replica in the form of `meta.properties`; None if unknown."""
    from aiokq.broker.log.uuid_text import format_uuid

    found = replica.replica_directory_id
    return None if found is None else format_uuid(found)


def _time(timestamp_ms: int | None) -> str | None:
    return None if timestamp_ms is None else time_text(timestamp_ms)
