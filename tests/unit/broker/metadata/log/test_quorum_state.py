"""The ``quorum-state`` file: Kafka's bytes, hostile content, and crashes while it is written."""

from __future__ import annotations

import json
import random
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokq.broker.metadata.log.quorum_state import (
    QuorumState,
    decode_quorum_state,
    encode_quorum_state,
    read_quorum_state,
    write_quorum_state,
)
from aiokq.core.errors import CorruptRecord, KafkaStorage
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.log.test_cleaner_crash import Crash, MortalFiles
from tests.unit.broker.metadata.quorum_samples import FIRST, GOLDEN, SECOND

STATES = {
    "unknown-v0": QuorumState(4, voters=(1,)),
    "unknown-v1": QuorumState(4, data_version=1),
    "leader-v0": QuorumState(7, leader_id=1, voters=(1, 2, 3)),
    "leader-v1": QuorumState(7, leader_id=1, data_version=1),
    "voted-v0": QuorumState(2**31 - 1, voted_id=2, voters=(1, 2, 3)),
    "voted-v1": QuorumState(2**31 - 1, voted_id=2, voted_directory_id=SECOND, data_version=1),
    "undirected-v0": QuorumState(3, voted_id=2, voters=(1, 2, 3)),
    "undirected-v1": QuorumState(3, voted_id=2, data_version=1),
    "both-v0": QuorumState(9, leader_id=3, voted_id=3),
    "both-v1": QuorumState(9, leader_id=3, voted_id=3, voted_directory_id=FIRST, data_version=1),
}
VALID = {
    "leaderId": 1, "leaderEpoch": 1, "votedId": 1,
    "votedDirectoryId": "AAAAAAAAAAAAAAAAAAAAAA", "data_version": 1,
}  # fmt: skip
OLDER = {
    "clusterId": "", "leaderId": 1, "leaderEpoch": 1, "votedId": -1, "appliedOffset": 0,
    "currentVoters": [{"voterId": 1}], "data_version": 0,
}  # fmt: skip

numbers = st.integers(0, 2**31 - 1)


@st.composite
def states(draw: st.DrawFn) -> QuorumState:
    version = draw(st.integers(0, 1))
    voted = draw(st.none() | numbers)
    directory = None
    if version == 1 and voted is not None:
        directory = draw(st.none() | st.uuids().filter(lambda one: one.int != 0))
    voters = draw(st.lists(numbers, max_size=4)) if version == 0 else ()
    return QuorumState(
        draw(numbers), draw(st.none() | numbers), voted, directory, tuple(voters), version
    )


@pytest.mark.parametrize("name", STATES)
def test_the_bytes_are_kafkas(name: str) -> None:
    """Kafka reads the file at its next start."""
    data = (GOLDEN / f"quorum-state-{name}.json").read_bytes()
    assert encode_quorum_state(STATES[name]) == data
    assert decode_quorum_state(data) == STATES[name]


def test_each_golden_file_is_compared() -> None:
    """A file without a sample would not be compared."""
    assert len(list(GOLDEN.glob("quorum-state-*"))) == len(STATES)


@given(states())
def test_what_is_written_is_read(state: QuorumState) -> None:
    """Whatever the ids, epochs and voters are."""
    files = MemoryFiles()
    files.mkdirs("/m")
    assert read_quorum_state(files, "/m") is None
    write_quorum_state(files, "/m", state)
    assert read_quorum_state(files, "/m") == state


@pytest.mark.parametrize("name", STATES)
def test_a_cut_or_flipped_file_is_another_state_or_refused(name: str) -> None:
    """The file has no checksum; its bytes may mean another state, but never raise another error."""
    data = encode_quorum_state(STATES[name])
    for position in range(len(data)):
        with pytest.raises(CorruptRecord):
            decode_quorum_state(data[:position])
        for mask in (1, 4, 0x80, 0xFF):
            changed = data[:position] + bytes([data[position] ^ mask]) + data[position + 1 :]
            try:
                assert isinstance(decode_quorum_state(changed), QuorumState)
            except CorruptRecord:
                pass


def changed(values: dict[str, object], **others: object) -> bytes:
    return json.dumps({**values, **others}).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe{}",
        b"[" * 100_000,
        b"9" * 10_000,
        b"null",
        b"[]",
        b"{}",
        changed(VALID).replace(b'"leaderEpoch": 1', b'"leaderEpoch": ' + b"9" * 5000),
        changed(VALID).replace(b'"leaderEpoch": 1', b'"leaderEpoch": NaN'),
        changed(VALID, data_version=2),
        changed(VALID, data_version=-1),
        changed(VALID, data_version=True),
        changed(VALID, data_version="1"),
        changed(VALID, leaderId=-2),
        changed(VALID, leaderId=2**31),
        changed(VALID, leaderId=1.0),
        changed(VALID, leaderEpoch=-1),
        changed(VALID, leaderEpoch=False),
        changed(VALID, votedId=None),
        changed(VALID, votedDirectoryId=None),
        changed(VALID, votedDirectoryId="short"),
        changed(VALID, votedDirectoryId="größe"),
        changed(OLDER, currentVoters=None),
        changed(OLDER, currentVoters=[1]),
        changed(OLDER, currentVoters=[{}]),
        changed(OLDER, currentVoters=[{"voterId": -1}]),
    ],
    ids=lambda data: data[:60].decode("ascii", "replace"),
)
def test_hostile_content_names_the_file_and_what_to_do(data: bytes) -> None:
    """A guessed epoch or vote could let two nodes lead in the same epoch."""
    files = MemoryFiles()
    files.mkdirs("/m")
    files.write_atomic("/m/quorum-state", data)
    with pytest.raises(KafkaStorage, match=r"/m/quorum-state .* move the file away"):
        read_quorum_state(files, "/m")


def test_an_unknown_version_is_not_written() -> None:
    """Such a file could not be read back."""
    with pytest.raises(ValueError, match="version 2"):
        encode_quorum_state(QuorumState(1, data_version=2))


@pytest.mark.parametrize("end", ["kill", "power", "pages"])
def test_a_crash_leaves_the_old_or_the_new_state(end: str) -> None:
    """A vote may be forgotten only as long as nobody was told of it."""
    old = QuorumState(1, leader_id=1, data_version=1)
    new = QuorumState(2, voted_id=1, voted_directory_id=uuid.UUID(int=5), data_version=1)
    for ends_at in range(50):
        files = MortalFiles()
        files.mkdirs("/m")
        write_quorum_state(files, "/m", old)
        files.sync_dir("/")
        files.ends_at, files.done = ends_at, 0
        finished = True
        try:
            write_quorum_state(files, "/m", new)
        except Crash:
            finished = False
        files.ends_at = None
        if end == "kill":
            files.crash()
        else:
            files.power_cut(random.Random(ends_at) if end == "pages" else None)
        found = read_quorum_state(files, "/m")
        assert found in ((new,) if finished else (old, new))
        write_quorum_state(files, "/m", new)
        assert read_quorum_state(files, "/m") == new
        if finished:
            break
    assert ends_at > 3
