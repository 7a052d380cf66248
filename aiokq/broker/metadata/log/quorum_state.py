"""``quorum-state``: the file with a node's epoch, vote and leader in the metadata quorum.

In a quorum of several voters, a node makes the file durable before it votes or leads in a new
epoch. Otherwise, after a power cut, it could vote or lead again in that epoch. A sole voter need
not sync the file; see `log_opening.write_epoch`.

Source: Kafka ``FileQuorumStateStore.java``, ``ElectionState.java``, ``QuorumStateData.json``.
Tests: ``tests/unit/broker/metadata/log/test_quorum_state.py``.
"""

from __future__ import annotations

import json
import uuid
from typing import Final

from aiokq.broker.log.config import INT_MAX
from aiokq.broker.log.uuid_text import format_uuid, parse_uuid
from aiokq.core.errors import CorruptRecord, KafkaStorage
from aiokq.core.files import Files
from aiokq.core.frozen import frozen
from aiokq.wire.fields import ZERO_UUID

__all__ = [
    "QUORUM_STATE",
    "QuorumState",
    "decode_quorum_state",
    "encode_quorum_state",
    "overwrite_quorum_state",
    "read_quorum_state",
    "write_quorum_state",
]

QUORUM_STATE: Final = "quorum-state"

PADDED_BYTES: Final = 256
"""Size to which the file is padded with spaces, so that it can be overwritten in place.

The padded file is smaller than a sector, which a disk writes completely or not at all. JSON ignores
the spaces.
"""

NOBODY: Final = -1
"""The node id that the file has if there is no leader, or if the node has not voted."""


@frozen
class QuorumState:
    """The content of ``quorum-state``.

    Attributes:
        epoch: the newest epoch that the node knows of.
        leader_id: leader of that epoch; None if unknown.
        voted_id: the node for which this node voted in that epoch; None if it did not vote.
        voted_directory_id: id of that node's metadata log directory; None if unknown, and in files
            of version 0.
        voters: ids of the voters; empty in files of version 1, whose voters are in the log.
        data_version: version of the file: 0 with ``kraft.version`` 0, 1 with ``kraft.version`` 1.
    """

    epoch: int
    leader_id: int | None = None
    voted_id: int | None = None
    voted_directory_id: uuid.UUID | None = None
    voters: tuple[int, ...] = ()
    data_version: int = 0


def encode_quorum_state(state: QuorumState) -> bytes:
    """Return the content of the file, as Kafka writes it.

    Raises:
        ValueError: the state has an unknown version.
    """
    values: dict[str, object] = {
        "leaderId": NOBODY if state.leader_id is None else state.leader_id,
        "leaderEpoch": state.epoch,
        "votedId": NOBODY if state.voted_id is None else state.voted_id,
    }
    if state.data_version == 0:
        values = {"clusterId": "", **values, "appliedOffset": 0}
        values["currentVoters"] = [{"voterId": voter} for voter in state.voters]
    elif state.data_version == 1:
        values["votedDirectoryId"] = format_uuid(state.voted_directory_id or ZERO_UUID)
    else:
        raise ValueError(f"version {state.data_version} of quorum-state")
    values["data_version"] = state.data_version
    return json.dumps(values, separators=(",", ":")).encode()


def decode_quorum_state(data: bytes) -> QuorumState:
    """Parse the content of ``quorum-state``.

    Raises:
        CorruptRecord: the content is not a state, or has an unknown version.
    """
    try:
        values = json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise CorruptRecord(f"not a JSON object: {str(error)[:100]}") from error
    if not isinstance(values, dict):
        raise CorruptRecord("not a JSON object")
    version = _number(values, "data_version", 0, INT_MAX)
    if version > 1:
        raise CorruptRecord(f"unknown data_version {version}, written by a newer Kafka")
    leader = _number(values, "leaderId", NOBODY, INT_MAX)
    voted = _number(values, "votedId", NOBODY, INT_MAX)
    return QuorumState(
        epoch=_number(values, "leaderEpoch", 0, INT_MAX),
        leader_id=None if leader == NOBODY else leader,
        voted_id=None if voted == NOBODY else voted,
        voted_directory_id=_directory(values) if version == 1 and voted != NOBODY else None,
        voters=_voters(values) if version == 0 else (),
        data_version=version,
    )


def _number(values: dict[str, object], name: str, least: int, most: int) -> int:
    value = values.get(name)
    if type(value) is not int or not least <= value <= most:  # a bool is an int
        raise CorruptRecord(f"{name} is not a number from {least} to {most}")
    return value


def _directory(values: dict[str, object]) -> uuid.UUID | None:
    text = values.get("votedDirectoryId")
    try:
        if not isinstance(text, str):
            raise ValueError("no text")
        found = parse_uuid(text)
    except ValueError as error:
        raise CorruptRecord("votedDirectoryId is not an id") from error
    return None if found == ZERO_UUID else found


def _voters(values: dict[str, object]) -> tuple[int, ...]:
    voters = values.get("currentVoters")
    if not isinstance(voters, list) or not all(isinstance(voter, dict) for voter in voters):
        raise CorruptRecord("currentVoters is not a list of voters")
    return tuple(_number(voter, "voterId", 0, INT_MAX) for voter in voters)


def read_quorum_state(files: Files, directory: str) -> QuorumState | None:
    """Read the file; return None if it is missing.

    Args:
        directory: path of ``__cluster_metadata-0``.

    Raises:
        KafkaStorage: the content is invalid; the message says what to do.
        OSError: the disk failed.
    """
    path = f"{directory}/{QUORUM_STATE}"
    try:
        data = files.read_bytes(path)
    except FileNotFoundError:
        return None
    try:
        return decode_quorum_state(data)
    except CorruptRecord as error:
        raise KafkaStorage(
            f"{path} cannot be read ({error.message}): if this node is the only voter of its "
            "quorum, move the file away, and the epoch is taken from the log; otherwise restore "
            "the file, because a node without it can vote twice in an epoch"
        ) from error


def write_quorum_state(files: Files, directory: str, state: QuorumState) -> None:
    """Replace the file; the new state is durable when the call returns.

    Raises:
        OSError: the disk failed; the file has the old or the new state.
    """
    files.private().write_atomic(f"{directory}/{QUORUM_STATE}", encode_quorum_state(state))


def overwrite_quorum_state(
    files: Files, directory: str, state: QuorumState, *, in_place: bool
) -> None:
    """Write the state, padded to ``PADDED_BYTES``, over the present file or as a new file.

    A file that is overwritten in place is not synced: after a power cut it has the old or the new
    state.

    Args:
        in_place: whether a file of ``PADDED_BYTES`` may be overwritten. If the file is replaced
            instead, the new state and the names of all files in the directory are durable on
            return.

    Raises:
        OSError: the disk failed.
    """
    path = f"{directory}/{QUORUM_STATE}"
    data = encode_quorum_state(state).ljust(PADDED_BYTES)
    if in_place and len(data) == PADDED_BYTES == files.stat_size(path):
        file = files.open(path)
        try:
            file.pwritev([data], 0)
        except OSError:  # a part may have been written
            pass
        else:
            return
        finally:
            file.close()
    files.write_atomic(path, data)
