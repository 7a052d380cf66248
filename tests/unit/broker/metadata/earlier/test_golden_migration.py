"""The first start on each golden directory, ended at each file operation: the next start finishes.

The disk is copied before each operation of a start, up to the moment at which clients are served.
Each copy becomes what a kill or a power cut leaves at that operation, and a node starts on it.
"""

from __future__ import annotations

import asyncio
import copy
import random
import re
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import pytest

from aiokq import wire
from aiokq.broker.log.file_names import CLUSTER_METADATA
from aiokq.broker.metadata.earlier.private_file import MIGRATED, MIGRATED_LINE, PRIVATE_FILE
from aiokq.broker.metadata.image.image import MetadataImage
from aiokq.core.errors import CoordinatorLoadInProgress
from aiokq.wire.cluster_metadata_records import PartitionRecord
from aiokq.wire.registration_records import RegisterBrokerRecord, RegisterControllerRecord
from tests.golden.directories import contents
from tests.golden.directories.contents import Json
from tests.sim.harness.files import MemoryFiles
from tests.sim.harness.loop import SimLoop
from tests.unit.broker.harness import Broker
from tests.unit.broker.metadata.old_directories import image

T = TypeVar("T")

OPERATIONS = (
    *("open", "mkdirs", "remove", "remove_tree", "rename", "link", "truncate", "pwritev", "chmod"),
    *("sync", "sync_dir"),
)
"""The operations that change a disk; `write_atomic` consists of some of them."""

REGISTRATIONS = (RegisterBrokerRecord, RegisterControllerRecord)

RAISED = 2
"""The most by which a start that is ended and repeated may raise the leader epoch of a partition.

Each of the two starts may be unclean.
"""

SET_ASIDE = re.compile(r"\.[0-9a-f]{32}(?=-stray/)")
"""What a node adds to the name of a log that it sets aside: a random id."""

KEPT = re.compile(r"(\.corrupt-\d+)-\d+$")
"""The name of a copy of damaged bytes, with the number that is added if the name exists."""


class Outcome(NamedTuple):
    """What a node serves, and what it leaves when it is stopped.

    Attributes:
        groups: the groups with their commits, as in the JSON of a golden directory; None if the
            groups cannot be listed.
        offsets: first offset, high watermark and log end of each partition that is online.
        records: the records of the metadata without registrations, leader epochs and partition
            epochs.
        epochs: leader epoch of each partition.
        logs: the files with records of partitions, and those with damaged records.
        files: of each log directory, the file of the earlier version and its copy.
        temporary: the names of files that a finished start has no use for.
    """

    groups: Json | None
    offsets: dict[str, tuple[int, int, int]]
    records: list[str]
    epochs: dict[str, int]
    logs: dict[str, bytes]
    files: list[tuple[bytes, bytes]]
    temporary: list[str]


def in_virtual_time(main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=SimLoop) as runner:
        return runner.run(main)


# --- what a node serves and leaves


async def outcome(files: MemoryFiles, paths: Sequence[str], *, seed: int = 1) -> Outcome:
    """Start a node on the directories, ask it, and stop it cleanly."""
    async with Broker(files, directories=paths, seed=seed, **contents.SETTINGS) as broker:
        groups = await listed(broker)
        offsets = {
            f"{topic.name}-{one.index}": (
                *(one.log.log_start_offset, one.log.high_watermark, one.log.log_end_offset),
            )
            for topic in broker.node.topics
            for one in topic.partitions
            if one.is_online
        }
    found = image(files, f"{paths[0]}/{CLUSTER_METADATA}")
    left = files.contents(contents.WRITTEN_AT)
    return Outcome(
        groups,
        offsets,
        sorted(records(found)),
        {
            f"{topic.name}-{index}": one.leader_epoch
            for topic in found.topics.values()
            for index, one in enumerate(topic.partitions)
        },
        logs(left),
        [
            (left[f"{path}/{PRIVATE_FILE}"], left[f"{path}/{PRIVATE_FILE}{MIGRATED}"])
            for path in paths
        ],
        [name for name in left if name.endswith((".tmp", ".part")) or "-delete/" in name],
    )


async def listed(broker: Broker) -> Json | None:
    answer = await broker.ask(wire.ListGroupsRequest(), 5)
    while answer.error_code == CoordinatorLoadInProgress.code:
        await asyncio.sleep(0.001)
        answer = await broker.ask(wire.ListGroupsRequest(), 5)
    if answer.error_code:
        return None
    return {one.group_id: await commits(broker, one) for one in answer.groups}


async def commits(broker: Broker, listing: wire.ListedGroup) -> Json:
    asked = wire.OffsetFetchRequestGroup(group_id=listing.group_id, topics=None)
    [found] = (await broker.ask(wire.OffsetFetchRequest(groups=[asked]), 9)).groups
    assert found.error_code == 0
    return {
        "type": listing.group_type.capitalize(),
        "protocol_type": listing.protocol_type,
        "offsets": {
            f"{topic.name}-{one.partition_index}": [
                one.committed_offset,
                None if one.committed_leader_epoch < 0 else one.committed_leader_epoch,
                one.metadata,
            ]
            for topic in found.topics
            for one in topic.partitions
        },
    }


def records(found: MetadataImage) -> Iterable[str]:
    for record in found.records():
        if isinstance(record, PartitionRecord):
            record = copy.copy(record)
            record.leader_epoch = record.partition_epoch = 0
        if not isinstance(record, REGISTRATIONS):
            yield repr(record)


def logs(left: dict[str, bytes]) -> dict[str, bytes]:
    """Return the logs of partitions, and of each damaged log the best copy of the damaged bytes.

    A copy whose writing was ended is shorter or has zeros, and is kept beside the next one.
    """
    found: dict[str, bytes] = {}
    for name, data in left.items():
        if ".log" not in name or f"/{CLUSTER_METADATA}/" in name or f"/{PRIVATE_FILE}" in name:
            continue
        name = KEPT.sub(r"\1", SET_ASIDE.sub("", name))
        found[name] = max(found.get(name, b""), data, key=not_zero)
    return found


def not_zero(data: bytes) -> int:
    return len(data) - data.count(0)


# --- what the end of a start leaves

End = Callable[[MemoryFiles, int], None]


def kill(files: MemoryFiles, number: int) -> None:
    """Leave everything that was written."""


def power_cut(files: MemoryFiles, number: int) -> None:
    """Leave what was synced."""
    files.power_cut()


def torn_power_cut(files: MemoryFiles, number: int) -> None:
    """Leave what was synced, and a random part of the rest."""
    files.power_cut(random.Random(number))


def left_by(
    first: MemoryFiles, paths: Sequence[str], end: End, *, step: int = 1
) -> list[MemoryFiles]:
    """Return the disks that the ends of a first start may leave; equal ones are returned once.

    Args:
        step: end the start at one of so many operations.
    """
    files = first.copy()
    found: dict[frozenset[tuple[str, bytes]], MemoryFiles] = {}
    count = 0

    def note(_: str) -> bool:
        nonlocal count
        count += 1
        if count % step == 0:
            left = files.copy()
            end(left, count)
            found.setdefault(frozenset(left.contents(contents.WRITTEN_AT).items()), left)
        return False  # the operation does not fail

    for operation in OPERATIONS:
        files.fail(operation, matches=note, times=None)
    in_virtual_time(Broker(files, directories=paths, **contents.SETTINGS).node.open())
    step = 1
    note("clients would be served now")
    return list(found.values())


def check_ends(name: str, end: End, *, step: int = 1) -> None:
    first = MemoryFiles()
    paths = contents.load(name, first)
    wanted = in_virtual_time(outcome(first.copy(), paths))
    check_undisturbed(wanted, name, [first.read_bytes(f"{path}/{PRIVATE_FILE}") for path in paths])
    for number, files in enumerate(left_by(first, paths, end, step=step)):
        found = in_virtual_time(outcome(files, paths, seed=2))
        assert found._replace(epochs=wanted.epochs) == wanted, number
        for partition, epoch in found.epochs.items():
            least = wanted.epochs[partition]
            assert least <= epoch <= least + RAISED, (number, partition)


def check_undisturbed(found: Outcome, name: str, private: list[bytes]) -> None:
    """Check that a start that is not disturbed keeps what the directory has."""
    served = contents.expected(name)["served"]
    assert found.groups == served["groups"]
    for topic, described in served["topics"].items():
        for index, one in enumerate(described["partitions"]):
            if "end" in one:
                assert found.offsets[f"{topic}-{index}"] == (one["start"], one["end"], one["end"])
            if one["leader"] >= 0:
                assert found.epochs[f"{topic}-{index}"] == one["leader_epoch"]
    assert found.files == [(MIGRATED_LINE, content) for content in private]
    assert found.temporary == []


@pytest.mark.parametrize("end", [kill, power_cut])
@pytest.mark.parametrize("name", contents.NAMES)
def test_a_first_start_may_end_at_each_file_operation(name: str, end: End) -> None:
    """Topics, settings, records, offsets, groups and files are as if it had not ended there."""
    check_ends(name, end)


@pytest.mark.parametrize("name", contents.NAMES)
def test_a_power_cut_may_leave_any_part_of_what_was_not_synced(name: str) -> None:
    """At one of five file operations; the long run has all of them."""
    check_ends(name, torn_power_cut, step=5)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("name", contents.NAMES)
def test_the_same_at_each_operation_for_many_seeds(name: str, seed: int) -> None:
    check_ends(name, lambda files, number: files.power_cut(random.Random(f"{seed}/{number}")))
