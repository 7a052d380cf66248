"""Adoption of a metadata log whose quorum had other voters: the new log, the old one, and kills."""

from __future__ import annotations

import contextlib
import errno
import random

import pytest

from aiokq.broker.metadata.log.metadata_reader import MetadataState
from aiokq.broker.metadata.log.quorum_state import (
    QuorumState,
    read_quorum_state,
    write_quorum_state,
)
from aiokq.broker.metadata.log.sole_voter import check_sole_voter
from aiokq.broker.metadata.stopped_broker.adoption import Adoption, adopt
from aiokq.core.errors import ConfigError, KafkaError, KafkaStorage
from aiokq.core.types import TopicPartition
from aiokq.fastpath import crc32c
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.metadata.metadata_logs import DIRECTORY, NODE, memory, opened, read, topic
from tests.unit.broker.metadata.quorum_logs import (
    DIR_OF_NODE,
    EPOCH,
    SEGMENT,
    data_directory,
    kill_after,
    quorum_of_three,
)

KEPT = f"{DIRECTORY}.before-adoption-stray"
NEVER = 10**9


def run(
    files: MemoryFiles, *, execute: bool = True, unclean: bool = False, path: str = "/data"
) -> Adoption:
    return adopt(
        files,
        path,
        execute=execute,
        unclean=unclean,
        random=random.Random(1),
        timestamp_ms=9,
        crc32c=crc32c,
    )


def is_only_voter(files: MemoryFiles) -> bool:
    try:
        check_sole_voter(
            read(files),
            read_quorum_state(files, DIRECTORY),
            directory=DIRECTORY,
            node_id=NODE,
            directory_id=DIR_OF_NODE,
        )
    except KafkaStorage:
        return False
    return True


def content(files: MemoryFiles, directory: str) -> dict[str, bytes]:
    return {name: files.read_bytes(f"{directory}/{name}") for name in files.listdir(directory)}


def partitions(state: MetadataState) -> list[tuple[tuple[int, ...], tuple[int, ...], int, int]]:
    return [
        (one.replicas, one.isr, one.leader, one.leader_epoch)
        for one in state.image.topics["t"].partitions
    ]


@pytest.mark.parametrize("kraft_version", [0, 1])
def test_the_node_leads_what_it_has_in_sync_and_the_rest_is_offline(kraft_version: int) -> None:
    """The replicas of other partitions stay known: their records are on those nodes."""
    files = quorum_of_three(kraft_version)
    before = read(files)
    result = run(files)
    files.power_cut()
    state = read(files)
    assert is_only_voter(files)
    assert partitions(state) == [
        ((3,), (3,), 3, 8),
        ((1, 2), (1, 2), -1, 8),
        ((3, 1), (1,), -1, 8),
        ((3,), (3,), 3, 7),  # it was alone before
        ((3,), (3,), 3, 8),
        ((3,), (3,), 3, 8),
        ((1, 3), (), -1, 7),  # it had no leader before
        ((3,), (3,), 3, 8),
    ]
    assert result == Adoption(
        node_id=3,
        voters=(1, 2, 3),
        end_offset=before.end_offset + 1,
        epoch=EPOCH + 1,
        kept=KEPT,
        led=5,
        elsewhere=(TopicPartition("t", 1),),
        behind=(TopicPartition("t", 2), TopicPartition("t", 6)),
        unregistered=(1, 2),
    )
    first, *_, moved = state.image.topics["t"].partitions
    assert (first.directories, first.partition_epoch) == ((DIR_OF_NODE,), 21)
    assert (moved.adding, moved.elr, moved.last_known_elr) == ((), (), ())
    assert (list(state.image.brokers), list(state.image.controllers)) == ([3], [3])
    assert state.image.brokers[3].fenced
    assert state.image.next_producer_id == 5000
    assert (state.kraft_version, state.end_offset) == (kraft_version, result.end_offset)


@pytest.mark.parametrize("kraft_version", [0, 1])
def test_the_broker_continues_the_new_log(kraft_version: int) -> None:
    """The epoch is one in which no node of the old quorum can have seen this node lead."""
    files = quorum_of_three(kraft_version)
    end = run(files).end_offset
    log = opened(files)
    assert (log.epoch, log.start_offset, log.end_offset) == (EPOCH + 2, end, end + 1)
    log.append(*topic(9))
    log.close()
    state = read(files)
    assert set(state.image.topics) == {"t", "t9"}
    assert state.epoch == EPOCH + 2
    assert is_only_voter(files)


def test_the_voter_keeps_its_endpoint() -> None:
    """Kafka would find its controller there; a node that was no voter gets Kafka's usual one."""
    files = quorum_of_three(1)
    run(files)
    voters = read(files).voters
    assert voters is not None
    assert [(one.voter_id, one.voter_directory_id) for one in voters.voters] == [(3, DIR_OF_NODE)]
    assert [(one.name, one.host) for one in voters.voters[0].endpoints] == [("C", "node3")]
    files = quorum_of_three(1, members=(1, 2))
    assert run(files).voters == (1, 2)
    voters = read(files).voters
    assert voters is not None
    assert [(one.name, one.port) for one in voters.voters[0].endpoints] == [("CONTROLLER", 9093)]


@pytest.mark.parametrize("kraft_version", [0, 1])
def test_the_old_log_is_kept(kraft_version: int) -> None:
    """A user can put it back: it has every byte, the torn tail too."""
    files = quorum_of_three(kraft_version)
    files.write_atomic(SEGMENT, files.read_bytes(SEGMENT) + b"torn")
    old = content(files, DIRECTORY)
    run(files)
    files.power_cut()
    assert content(files, KEPT) == old
    assert {name for name in files.listdir(DIRECTORY) if not name.endswith(".checkpoint")} == {
        "quorum-state",
        "partition.metadata",
    }
    quorum = read_quorum_state(files, DIRECTORY)
    assert quorum == QuorumState(
        EPOCH + 1, voters=() if kraft_version else (NODE,), data_version=kraft_version
    )


def test_unclean_leadership_is_only_by_request() -> None:
    """Records that were acknowledged may be missing, which Kafka notes as recovering."""
    files = quorum_of_three(0)
    result = run(files, unclean=True)
    state = read(files)
    assert (result.led, len(result.behind), len(result.elsewhere)) == (7, 2, 1)
    assert partitions(state)[2] == ((3,), (3,), 3, 8)
    states = [one.leader_recovery_state for one in state.image.topics["t"].partitions]
    assert states == [0, 0, 1, 0, 0, 0, 1, 0]


def test_a_dry_run_changes_nothing() -> None:
    """It tells the same."""
    files = quorum_of_three(1)
    old = content(files, DIRECTORY)
    planned = run(files, execute=False)
    assert planned.kept == ""
    assert content(files, DIRECTORY) == old
    assert not files.exists(KEPT)
    done = run(files)
    assert (planned.led, planned.behind, planned.end_offset) == (
        done.led,
        done.behind,
        done.end_offset,
    )


# --- refusals


@pytest.mark.parametrize("kraft_version", [0, 1])
def test_the_only_voter_is_refused(kraft_version: int) -> None:
    """Also after an adoption, whose result must not change."""
    files = quorum_of_three(kraft_version, members=(3,))
    old = content(files, DIRECTORY)
    with pytest.raises(ConfigError, match="the only voter"):
        run(files)
    assert content(files, DIRECTORY) == old
    files = quorum_of_three(kraft_version)
    run(files)
    old = content(files, DIRECTORY)
    with pytest.raises(ConfigError, match="there is nothing to adopt"):
        run(files)
    assert content(files, DIRECTORY) == old


def test_the_same_node_in_another_directory_is_another_voter() -> None:
    """The directory may be a new disk, so the log is not one that this voter has written."""
    files = quorum_of_three(1, members=(3,))
    meta = files.read_bytes("/data/meta.properties").decode()
    lines = [line for line in meta.splitlines() if not line.startswith("directory.id")]
    files.write_atomic("/data/meta.properties", "\n".join(lines).encode())
    assert run(files).voters == (3,)
    assert b"directory.id" in files.read_bytes("/data/meta.properties")


def test_a_directory_in_use_is_refused() -> None:
    """A running broker would overwrite the new log."""
    files = quorum_of_three(0)
    lock = files.lock("/data/.lock")
    with pytest.raises(KafkaStorage, match="in use"):
        run(files)
    lock.release()
    assert run(files).led == 5


def test_other_directories_are_refused() -> None:
    """Each message says what is missing."""
    files = memory()
    with pytest.raises(ConfigError, match=r"has no meta\.properties"):
        run(files)
    files = data_directory()
    with pytest.raises(ConfigError, match="has no metadata log"):
        run(files)
    files = quorum_of_three(1)
    files.remove(SEGMENT)  # formatted for three voters, and never started
    with pytest.raises(ConfigError, match="has no metadata yet"):
        run(files)


def test_a_damaged_log_is_refused() -> None:
    """The image would lack records. Nothing is changed."""
    files = quorum_of_three(0)
    data = bytearray(files.read_bytes(SEGMENT))
    data[80] ^= 1  # the first batch
    files.write_atomic(SEGMENT, data)
    old = content(files, DIRECTORY)
    with pytest.raises(KafkaStorage, match="damaged at byte 0"):
        run(files)
    assert content(files, DIRECTORY) == old
    files = quorum_of_three(0)
    files.write_atomic(f"{DIRECTORY}/quorum-state", b"{")
    with pytest.raises(KafkaStorage, match="quorum-state cannot be read"):
        run(files)
    assert not files.exists(KEPT)


def test_a_full_disk_changes_nothing() -> None:
    """The copy of the old log needs space."""
    files = quorum_of_three(0)
    old = content(files, DIRECTORY)
    files.capacity = files.used() + 200
    with pytest.raises(KafkaStorage, match="cannot be used"):
        run(files)
    assert content(files, DIRECTORY) == old
    assert sorted(files.listdir("/data")) == [".lock", "__cluster_metadata-0", "meta.properties"]


# --- kills


def number_of_operations(kraft_version: int) -> int:
    files = quorum_of_three(kraft_version)
    calls = kill_after(files, NEVER)
    run(files)
    return calls[0]


@pytest.mark.parametrize("kraft_version", [0, 1])
@pytest.mark.parametrize("end", ["kill", "power cut", "power cut, names in any order"])
def test_a_kill_at_any_operation_leaves_the_old_quorum_or_the_new(
    kraft_version: int, end: str
) -> None:
    """A directory that the broker accepts is adopted as a whole; any other is adopted again."""
    files = quorum_of_three(kraft_version)
    old = content(files, DIRECTORY)
    run(files)
    adopted = list(read(files).image.records())
    outcomes = set()
    count = number_of_operations(kraft_version)
    assert count > 20
    for number in range(count):
        files = quorum_of_three(kraft_version)
        kill_after(files, number)
        with contextlib.suppress(KafkaError, OSError):
            run(files)
        files.heal()
        if end == "kill":
            files.crash()
        else:
            files.power_cut(random.Random(number), ordered=end == "power cut")
        done = is_only_voter(files)
        outcomes.add(done)
        if not done:
            assert run(files).kept == KEPT
            assert is_only_voter(files)
        assert list(read(files).image.records()) == adopted
        assert content(files, KEPT) == old
        log = opened(files)
        log.append(*topic(9))
        files.power_cut(random.Random(number))
        assert set(read(files).image.topics) == {"t", "t9"}
        assert content(files, KEPT) == old
        strays = [name for name in files.listdir("/data") if name.endswith("-stray")]
        assert strays == [KEPT.rpartition("/")[2]]
    assert outcomes == {False, True}


def test_a_log_that_grew_after_a_kill_is_copied_again() -> None:
    """Apache Kafka may have run in between, and the first copy is of an older log."""
    files = quorum_of_three(0)
    kill_after(files, number_of_operations(0))
    files.fail("pwritev", errno.EIO, matches=lambda path: ".checkpoint" in path)
    with pytest.raises(KafkaStorage):
        run(files)
    files.heal()
    assert files.exists(KEPT)
    write_quorum_state(files, DIRECTORY, QuorumState(9, 1, voters=(1, 2, 3)))
    files.write_atomic(SEGMENT, files.read_bytes(SEGMENT) + b"more")
    old = content(files, DIRECTORY)
    result = run(files)
    assert result.kept == f"{DIRECTORY}.before-adoption-2-stray"
    assert result.epoch == 10
    assert content(files, result.kept) == old
