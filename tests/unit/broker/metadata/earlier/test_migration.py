"""Migration of directories of version 0.1.0: each kind in small, crashed at each file operation."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from aiokq.broker.metadata.controller.registration import may_be_written_by_kafka
from aiokq.broker.metadata.earlier.private_file import MIGRATED, MIGRATED_LINE, PRIVATE_FILE
from aiokq.broker.metadata.image.features import new_levels
from aiokq.broker.metadata.image.records import TOPIC_CONFIG, config_records, partition_record
from aiokq.broker.metadata.log import metadata_batches
from aiokq.broker.metadata.log.metadata_reader import MetadataReader
from aiokq.core.errors import KafkaStorage
from aiokq.fastpath import crc32c
from aiokq.records.header import iter_headers
from aiokq.wire.cluster_metadata_records import (
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from aiokq.wire.struct import Message
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.metadata.old_directories import (
    HEADER,
    IDS,
    LOG,
    NODE,
    A,
    B,
    Old,
    deleted,
    describe,
    disk,
    group,
    image,
    known_directories,
    line,
    private,
    producer_ids,
    start_and_stop,
    started,
    taken_over,
    topic,
    topic_id,
    unclean_start,
    write_log,
)
from tests.unit.broker.metadata.quorum_logs import (
    batches,
    leader_change,
    left_before_each,
)
from tests.unit.broker.metadata.quorum_logs import (
    records as records_of_three,
)

RETENTION = {"retention.ms": "1000"}


def expected(*topics: dict[str, Any], groups: Any = None, producers: int = 0) -> dict[str, Any]:
    return {
        "topics": {f"t{one['id']}": one for one in topics},
        "groups": groups or {},
        "next_producer_id": producers,
    }


def served(
    number: int, *partitions: tuple[Any, ...], configs: dict[str, str] | None = None
) -> dict[str, Any]:
    return {"id": number, "configs": configs or {}, "partitions": list(partitions)}


PLAIN = (
    topic(1, 2, configs=RETENTION),
    topic(2),
    producer_ids(1000),
    [topic(3), topic(3, 2)],
    deleted(2),
    group("g", **{"consumer.session.timeout.ms": "50000"}),
    group("gone", **{"consumer.session.timeout.ms": "50000"}),
    group("gone"),
    producer_ids(2000),
)
TWO = (known_directories(A, B), topic(1, 2), topic(2))

KINDS: dict[str, tuple[Old, Sequence[str], dict[str, Any]]] = {
    "plain": (
        Old({A: private(*PLAIN)}, {A: {"1-0": 0, "1-1": 4, "3-0": 0}}),
        (A,),
        expected(
            served(1, (NODE, 0, A), (NODE, 4, A), configs=RETENTION),
            served(3, (NODE, 0, A), (NODE, 0, None)),
            groups={"g": {"consumer.session.timeout.ms": "50000"}},
            producers=2000,
        ),
    ),
    "never used": (Old({A: private()}), (A,), expected()),
    "snapshot": (
        Old({A: private([{"type": "appends", "appends": 9}, topic(1)])}, {A: {"1-0": 2}}),
        (A,),
        expected(served(1, (NODE, 2, A))),
    ),
    "killed": (
        Old(
            {A: private(topic(1, 2), unclean_start(3), topic(2)) + line("torn")[:-9]},
            {A: {"1-0": 0, "1-1": 7}},
            clean=False,
        ),
        (A,),
        expected(served(1, (NODE, 4, A), (NODE, 8, A)), served(2, (NODE, 4, None))),
    ),
    "two": (
        Old(dict.fromkeys((A, B), private(*TWO)), {A: {"1-0": 0}, B: {"1-1": 0, "2-0": 1}}),
        (A, B),
        expected(served(1, (NODE, 0, A), (NODE, 0, B)), served(2, (NODE, 1, B))),
    ),
    "two, one behind": (
        Old(
            {A: private(*TWO, deleted(2), topic(3)), B: private(*TWO, producer_ids(500))},
            {A: {"1-0": 0, "3-0": 0}, B: {"1-1": 0, "2-0": 1}},
        ),
        (A, B),
        expected(served(1, (NODE, 0, A), (NODE, 0, B)), served(3, (NODE, 0, A)), producers=500),
    ),
    "two, the other is longer": (
        Old(
            {A: private(*TWO, topic(3)), B: private(*TWO, deleted(2), topic(4), topic(4, 2))},
            {A: {"1-0": 0, "3-0": 0}, B: {"1-1": 0, "4-0": 0}},
        ),
        (A, B),
        expected(served(1, (NODE, 0, A), (NODE, 0, B)), served(4, (NODE, 0, B), (NODE, 0, None))),
    ),
    "two, one damaged": (
        Old(
            {A: b"x" + private(*TWO, topic(3)), B: private(*TWO)},
            {A: {"1-0": 0}, B: {"1-1": 0, "2-0": 1}},
        ),
        (A, B),
        expected(served(1, (NODE, 0, A), (NODE, 0, B)), served(2, (NODE, 1, B))),
    ),
    "one is missing": (
        Old({A: private(*TWO)}, {A: {"1-0": 0}}),
        (A,),
        expected(served(1, (NODE, 0, A), (NODE, 0, B)), served(2, (NODE, 0, B))),
    ),
}


def kafkas(files: MemoryFiles, *, dynamic: bool = False) -> int:
    """Write the metadata log that a sole voter leaves; return its end offset.

    It has the topics t1 (two settings, one of them unknown here), t2 and t3.
    """
    configs = {**RETENTION, "unknown.to.aiokq": "1"}
    with started(files, dynamic=dynamic) as log:
        for number in (1, 2, 3):
            log.append(*new_topic(number, configs if number == 1 else {}))
        return log.end_offset


def new_topic(number: int, configs: dict[str, str] | None = None) -> list[Message]:
    return [
        TopicRecord(name=f"t{number}", topic_id=topic_id(number)),
        *config_records(TOPIC_CONFIG, f"t{number}", {}, configs or {}),
        partition(number, 0),
    ]


def partition(number: int, index: int) -> PartitionRecord:
    return partition_record(topic_id(number), index, NODE, directory=IDS[A], leader_epoch=5)


CHANGES = (
    topic(1, 3, configs={"cleanup.policy": "compact"}, kafka_epochs=[5]),
    topic(3, kafka_epochs=[5]),
    topic(4),
    producer_ids(7000),
)
"""What aiokq's file has after a takeover and changes: t1 altered and grown, t2 deleted, t4 new."""


def beside_kafka(*, used_since: bool = False, dynamic: bool = False) -> MemoryFiles:
    """Return a disk with Kafka's metadata log, and a private file with later changes."""
    files = disk(Old({A: b""}))
    files.remove(f"{A}/{PRIVATE_FILE}")
    end = kafkas(files, dynamic=dynamic)
    if used_since:
        with started(files) as log:
            log.append(RemoveTopicRecord(topic_id=topic_id(3)), *new_topic(5))
            log.append(*config_records(TOPIC_CONFIG, "t1", {}, {"segment.ms": "7"}))
        write_log(files, A, "5-0", 5)
    logs = {"1-0": 5, "1-1": 0, "1-2": 0, "3-0": 5, "4-0": 0}
    Old({A: private(taken_over(end, 1, 2, 3), *CHANGES)}, {A: logs}).write(files)
    return files


AFTER_OURS = expected(
    served(
        1,
        *((NODE, 5, A), (NODE, 0, A), (NODE, 0, A)),
        configs={"cleanup.policy": "compact", "unknown.to.aiokq": "1"},
    ),
    served(3, (NODE, 5, A)),
    served(4, (NODE, 0, A)),
    producers=7000,
)
AFTER_KAFKAS = expected(
    served(1, (NODE, 5, A), configs={**RETENTION, "unknown.to.aiokq": "1", "segment.ms": "7"}),
    served(2, (NODE, 5, A)),
    served(5, (NODE, 5, A)),
    served(4, (NODE, 0, A)),
    producers=7000,
)

WORLDS: dict[str, tuple[Callable[[], MemoryFiles], Sequence[str], dict[str, Any]]] = {
    **{
        name: (functools.partial(disk, old), paths, wanted)
        for name, (old, paths, wanted) in KINDS.items()
    },
    "kafka": (beside_kafka, (A,), AFTER_OURS),
    "kafka, voters in the log": (
        functools.partial(beside_kafka, dynamic=True),
        (A,),
        AFTER_OURS,
    ),
    "kafka, used since": (functools.partial(beside_kafka, used_since=True), (A,), AFTER_KAFKAS),
}


def logs(files: MemoryFiles, paths: Sequence[str]) -> list[bytes]:
    """Return the logs of all partitions, those set aside included."""
    found = [
        data
        for path in paths
        for name, data in files.contents(path).items()
        if name.endswith(".log") and "/t" in name
    ]
    return sorted(found)


def without_epochs(described: dict[str, Any]) -> dict[str, Any]:
    topics = {
        name: {**one, "partitions": [(leader, *rest) for leader, _, *rest in one["partitions"]]}
        for name, one in described["topics"].items()
    }
    return {**described, "topics": topics}


def epochs(described: dict[str, Any]) -> dict[str, list[int]]:
    return {
        name: [epoch for _, epoch, *_ in one["partitions"]]
        for name, one in described["topics"].items()
    }


def check_files(files: MemoryFiles, paths: Sequence[str], before: MemoryFiles) -> None:
    for path in paths:
        old = f"{path}/{PRIVATE_FILE}"
        assert files.read_bytes(old) == MIGRATED_LINE
        assert files.read_bytes(old + MIGRATED) == before.read_bytes(old)
    assert logs(files, paths) == logs(before, paths)


@pytest.mark.parametrize("name", WORLDS)
def test_a_migration_keeps_everything_and_happens_once(name: str) -> None:
    """Topics with ids, settings, directories and epochs; settings of groups; producer ids."""
    make, paths, wanted = WORLDS[name]
    files, before = make(), make()
    start_and_stop(files, paths)
    assert describe(image(files)) == wanted
    check_files(files, paths, before)
    incarnation = image(files).brokers[NODE].incarnation_id
    assert may_be_written_by_kafka(incarnation) == name.startswith("kafka")
    assert image(files).features.items() >= new_levels().items()
    start_and_stop(files, paths, seed=1)
    assert describe(image(files)) == wanted
    check_files(files, paths, before)
    assert not [one for one in files.listdir(A) if one.endswith("-delete")]


@pytest.mark.build_independent
@pytest.mark.parametrize(
    "end", ["kill", pytest.param("power cut", marks=pytest.mark.torture), "torn power cut"]
)
@pytest.mark.parametrize("name", WORLDS)
def test_a_migration_may_end_at_each_file_operation(name: str, end: str) -> None:
    """The next start finishes it: nothing is lost, and nothing is there twice."""
    make, paths, wanted = WORLDS[name]
    before = make()
    left = left_before_each(files := make(), lambda: start_and_stop(files, paths))
    assert len(left) > 20
    seen: set[frozenset[tuple[str, bytes]]] = set()
    for number, files in enumerate(left):
        if end != "kill":
            files.power_cut(random.Random(number) if end == "torn power cut" else None)
        content = frozenset(files.contents("/").items())
        if content in seen:
            continue  # the last operation, such as a read, made no difference to the next start
        seen.add(content)
        start_and_stop(files, paths, seed=1)
        found = describe(image(files))
        assert without_epochs(found) == without_epochs(wanted), number
        for topic_name, least in epochs(wanted).items():
            for was, now in zip(least, epochs(found)[topic_name], strict=True):
                assert was <= now <= was + 2, (number, topic_name)
        check_files(files, paths, before)


@pytest.mark.parametrize("dynamic", [False, True])
def test_the_quorum_of_a_new_log_is_the_one_that_is_configured(dynamic: bool) -> None:
    """With bootstrap servers only, Apache Kafka looks for the voters in the log."""
    files = disk(KINDS["plain"][0])
    with started(files, dynamic=dynamic):
        pass
    state = MetadataReader(files, LOG, crc32c).read()
    assert state.kraft_version == int(dynamic)
    ids = [one.voter_directory_id for one in state.voters.voters] if state.voters else []
    assert ids == ([IDS[A]] if dynamic else [])
    with started(files, dynamic=dynamic, seed=1) as log:
        assert describe(log.image) == KINDS["plain"][2]


def test_differences_of_several_batches_are_appended_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A power cut may keep only the first batches of an append, which change nothing then."""
    monkeypatch.setattr(metadata_batches, "MAX_BATCH_BYTES", 512)
    segment = f"{LOG}/{0:020d}.log"
    files = beside_kafka()
    before = files.read_bytes(segment)
    start_and_stop(files)
    after = files.read_bytes(segment)
    ends = list(itertools.accumulate(header.size for header in iter_headers(memoryview(after))))
    cuts = [end for end in ends if len(before) < end]
    assert len(cuts) > 3
    for cut in cuts:
        files = beside_kafka()
        files.write_atomic(segment, after[:cut])
        for seed in (1, 2):
            start_and_stop(files, seed=seed)
            assert without_epochs(describe(image(files))) == without_epochs(AFTER_OURS), cut


def test_a_copy_that_was_left_behind_changes_nothing() -> None:
    """Its directory was missing at the migration; a deleted topic does not come back."""
    old, _, _ = KINDS["two, one behind"]
    files, before = disk(old), disk(old)
    start_and_stop(files, (A,))
    with started(files, (A,)) as log:
        log.append(RemoveTopicRecord(topic_id=topic_id(3)))
    start_and_stop(files, (A, B), seed=1)
    found = describe(image(files))
    assert list(found["topics"]) == ["t1"]
    assert found["next_producer_id"] == 500
    check_files(files, (A, B), before)


@pytest.mark.parametrize("kraft_version", [0, 1])
def test_a_log_with_other_voters_is_refused(kraft_version: int) -> None:
    """Nothing is changed, and the file of the earlier version stays."""
    files = disk(Old({A: private(*PLAIN)}))
    files.mkdirs(LOG)
    files.write_atomic(f"{LOG}/{0:020d}.log", batches([leader_change(1, 2)], [records_of_three()]))
    before = files.contents(A)
    with pytest.raises(KafkaStorage, match=r"voters 1, 2, .*aiokq storage adopt"):
        start_and_stop(files)
    after = files.contents(A)
    for name in ("/.kafka_cleanshutdown", "/.lock"):
        before.pop(A + name, None)
        after.pop(A + name, None)
    assert after == before


@pytest.mark.parametrize("paths", [(A,), (A, B)])
def test_a_damaged_file_refuses_the_start_and_is_not_changed(paths: Sequence[str]) -> None:
    """A wrong bit anywhere before the last line; the other copy has no topics."""
    sound = private(topic(1, configs=RETENTION), producer_ids(5), topic(2))
    last = sound.rindex(b"\n", 0, -1) + 1
    for position in range(last - 1):
        damaged = bytearray(sound)
        damaged[position] ^= 1 << position % 8
        copies = {A: bytes(damaged), B: private()}
        files = disk(Old({path: copies[path] for path in paths}, {A: {"1-0": 0, "2-0": 0}}))
        with pytest.raises(KafkaStorage, match=rf"{A}/{PRIVATE_FILE} is corrupt at byte"):
            start_and_stop(files, paths)
        assert files.read_bytes(f"{A}/{PRIVATE_FILE}") == damaged
        assert not files.exists(LOG)


def test_a_damaged_last_line_is_kept_with_the_file(caplog: pytest.LogCaptureFixture) -> None:
    """A power cut may leave it; whatever it is, the renamed file still has its bytes."""
    sound = private(topic(1), topic(2))
    for position in range(sound.rindex(b"\n", 0, -1) + 1, len(sound)):
        damaged = bytearray(sound)
        damaged[position] ^= 1 << position % 8
        files = disk(Old({A: bytes(damaged)}, {A: {"1-0": 0}}))
        start_and_stop(files)
        assert list(describe(image(files))["topics"]) == ["t1"], position
        assert files.read_bytes(f"{A}/{PRIVATE_FILE}{MIGRATED}") == damaged
        is_incomplete = position == len(sound) - 1  # the line has no end
        assert ("an acknowledged change" in caplog.text) is not is_incomplete
        caplog.clear()


def test_a_damaged_line_of_this_version_does_not_refuse_the_start() -> None:
    """The metadata is in the log."""
    files = disk(KINDS["plain"][0])
    start_and_stop(files)
    wanted = describe(image(files))
    kept = files.read_bytes(f"{A}/{PRIVATE_FILE}{MIGRATED}")
    for position in range(len(MIGRATED_LINE)):
        files.corrupt(f"{A}/{PRIVATE_FILE}", position, 1 << position % 8)
        start_and_stop(files)
        assert files.read_bytes(f"{A}/{PRIVATE_FILE}") == MIGRATED_LINE
    assert describe(image(files)) == wanted
    assert files.read_bytes(f"{A}/{PRIVATE_FILE}{MIGRATED}") == kept


def test_records_of_a_newer_version_in_the_file_are_refused() -> None:
    files = disk(Old({A: private({"type": "new"})}))
    with pytest.raises(KafkaStorage, match="line 2: the type of the record is unknown"):
        start_and_stop(files)


def test_the_line_that_stays_is_refused_by_the_earlier_version() -> None:
    """Version 0.1.0 expects its own header in a first line with a correct checksum."""
    first, _, rest = MIGRATED_LINE.partition(b"\n")
    assert rest == b""
    assert line(first[9:].decode()) == MIGRATED_LINE
    text = first[9:].decode()
    assert text != HEADER
    assert text.startswith(HEADER[:-1])
    assert "__cluster_metadata-0" in text
