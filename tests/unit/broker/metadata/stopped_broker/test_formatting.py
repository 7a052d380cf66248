"""Formatted log directories: as Kafka formats them, and complete after any kill."""

from __future__ import annotations

import errno
import itertools
import json
import random
import struct
from pathlib import Path
from typing import Any

import pytest

from aiokq.broker.log.meta_properties import decode_meta_properties
from aiokq.broker.log.uuid_text import format_uuid, parse_uuid
from aiokq.broker.metadata.controller.registration import bootstrap_records
from aiokq.broker.metadata.image.features import new_levels
from aiokq.broker.metadata.image.image import MetadataImage
from aiokq.broker.metadata.log.bootstrap_checkpoint import read_bootstrap_checkpoint
from aiokq.broker.metadata.log.metadata_reader import MetadataReader
from aiokq.broker.metadata.log.quorum_state import QuorumState, read_quorum_state
from aiokq.broker.metadata.log.snapshot_file import SnapshotReader
from aiokq.broker.metadata.log.sole_voter import check_sole_voter
from aiokq.broker.metadata.stopped_broker.formatting import (
    FormatOptions,
    Formatted,
    format_directories,
    format_levels,
    random_uuid,
)
from aiokq.core.errors import ConfigError, KafkaError, KafkaStorage
from aiokq.fastpath import crc32c
from aiokq.wire.cluster_metadata_records import FeatureLevelRecord
from aiokq.wire.quorum_records import VotersRecordEndpoint
from tests.sim.harness.files import MemoryFiles

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
NODE = 5
CONTROLLER = VotersRecordEndpoint(name="CONTROLLER", host="localhost", port=9093)
NOW = 1_700_000_000_000
VOTERS = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"

GOLDEN: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[4] / "golden" / "format" / "formats.json").read_text()
)
WRITTEN = [name for name, case in GOLDEN.items() if "files" in case]
REFUSED = [name for name, case in GOLDEN.items() if "refused" in case]

OPERATIONS = ("mkdirs", "open", "pwritev", "sync", "chmod", "rename", "sync_dir", "write_atomic")


def options_of(**changes: Any) -> FormatOptions:
    arguments: dict[str, Any] = {
        "node_id": NODE,
        "cluster_id": CLUSTER,
        "directories": ("/logs/b", "/logs/a"),
    }
    return FormatOptions(**{**arguments, **changes})


def as_kafka_had(case: dict[str, Any]) -> FormatOptions:
    given = case["options"]
    apart = given.get("metadata_directory")
    return options_of(
        metadata_directory=f"/logs/{apart}" if apart else None,
        standalone=CONTROLLER if given.get("standalone") else None,
        release=given.get("release"),
        features=given.get("features", {}),
        scram=tuple(given.get("scram", ())),
    )


def formatted(
    files: MemoryFiles, options: FormatOptions, *, timestamp_ms: int = NOW, seed: int = 0
) -> Formatted:
    return format_directories(
        files, options, random=random.Random(seed), timestamp_ms=timestamp_ms, crc32c=crc32c
    )


def without_times(data: bytes) -> bytes:
    """Return batches without timestamps and checksums, which differ between two runs."""
    out, position = bytearray(data), 0
    while position < len(data):
        for start, end in ((17, 21), (27, 43)):
            out[position + start : position + end] = bytes(end - start)
        position += 12 + struct.unpack_from(">i", data, position + 8)[0]
    return bytes(out)


# --- Kafka's directories


@pytest.mark.parametrize("name", WRITTEN)
def test_directories_are_those_of_kafka(name: str) -> None:
    """The same options give the same files, with the same bytes but for times and random ids."""
    case = GOLDEN[name]
    files = MemoryFiles()
    root = MemoryFiles()
    root.mkdirs("/k/__cluster_metadata-0")
    timestamp = NOW
    for path, file in case["files"].items():
        if path.endswith(VOTERS):
            root.write_atomic(f"/k/{VOTERS}", bytes.fromhex(file["hex"]))
            with SnapshotReader(root, f"/k/{VOTERS}", 0, crc32c) as reader:
                timestamp = reader.last_contained_ms
    formatted(files, as_kafka_had(case), timestamp_ms=timestamp)

    found = set()
    for directory in files.listdir("/logs"):
        for name_ in files.listdir(f"/logs/{directory}"):
            path = f"{directory}/{name_}"
            inner = files.listdir(f"/logs/{path}") if files.is_dir(f"/logs/{path}") else None
            found |= {path} if inner is None else {f"{path}/{one}" for one in inner}
    assert found == set(case["files"])

    ids = {}
    for path, file in case["files"].items():
        directory, _, rest = path.partition("/")
        ours, theirs = files.read_bytes(f"/logs/{path}"), bytes.fromhex(file["hex"])
        if rest == "meta.properties":
            ids[directory] = [decode_meta_properties(one, path) for one in (ours, theirs)]
            own, kafka = ids[directory]
            assert own._replace(directory_id=kafka.directory_id) == kafka
    assert len({own.directory_id for own, _ in ids.values()}) == len(ids)
    for path, file in case["files"].items():
        directory, _, rest = path.partition("/")
        ours, theirs = files.read_bytes(f"/logs/{path}"), bytes.fromhex(file["hex"])
        if rest == "meta.properties":
            continue
        own, kafka = ids[directory]
        assert own.directory_id is not None
        assert kafka.directory_id is not None
        if rest == VOTERS:
            old, new = (parse_uuid(one).bytes for one in (own.directory_id, kafka.directory_id))
            assert ours.count(old) == theirs.count(new) == 1
            ours = ours.replace(old, new)
        assert without_times(ours) == without_times(theirs)
        assert f"{files._file(f'/logs/{path}').mode:o}" == file["mode"]


@pytest.mark.parametrize("name", REFUSED)
def test_what_kafka_refuses_is_refused(name: str) -> None:
    """Before anything is written, and without a secret in the message."""
    files = MemoryFiles()
    with pytest.raises(ConfigError) as caught:
        formatted(files, as_kafka_had(GOLDEN[name]))
    assert files.listdir("/") == []
    for part in ("YCE", "alice-secret", "b,c"):
        assert part not in str(caught.value)


# --- aiokq's own defaults


def test_defaults_are_the_features_that_work_here() -> None:
    """Any Kafka 4 opens the directory, and nothing is promised that is not kept."""
    files = MemoryFiles()
    done = formatted(files, options_of())
    assert done.formatted == ("/logs/b", "/logs/a")
    assert {name: level for name, level in done.levels.items() if level} == new_levels()
    records = read_bootstrap_checkpoint(files, "/logs/a", crc32c)
    assert records == bootstrap_records(MetadataImage(), None, min_insync_replicas=1)[1:-2]


def test_each_release_gets_what_it_supports() -> None:
    """`--release-version` alone must never ask for what its level does not have."""
    for release, on in {"3.9": 0, "4.0-IV0": 1, "4.0-IV2": 3, "4.0": 3, "4.2": 3}.items():
        levels = format_levels(release, {}, dynamic=False)
        assert sum(level > 0 for level in levels.values()) == 1 + on
    assert format_levels("4.2", {}, dynamic=True)["kraft.version"] == 1


def test_the_only_voter_of_a_standalone_directory_is_this_node() -> None:
    """The next start appends only if the voters name this node and its metadata directory."""
    files = MemoryFiles()
    formatted(files, options_of(standalone=CONTROLLER))
    state = MetadataReader(files, "/logs/b/__cluster_metadata-0", crc32c).read()
    properties = decode_meta_properties(files.read_bytes("/logs/b/meta.properties"), "")
    assert state.kraft_version == 1
    assert state.voters is not None
    assert state.voters.voters[0].endpoints == [CONTROLLER]
    assert properties.directory_id is not None
    check_sole_voter(
        state,
        None,
        directory="/logs/b/__cluster_metadata-0",
        node_id=NODE,
        directory_id=parse_uuid(properties.directory_id),
    )


def test_two_spellings_of_a_directory_are_one() -> None:
    """Otherwise it would be formatted twice, with two ids, the voter being the first."""
    files = MemoryFiles()
    options = options_of(directories=("/logs/a/", "/logs/a"), metadata_directory="/logs//a")
    assert formatted(files, options).formatted == ("/logs//a",)


# --- refusals of directories


def test_a_formatted_directory_is_refused() -> None:
    """A mistaken format would otherwise pass for a success."""
    files = MemoryFiles()
    formatted(files, options_of(directories=("/logs/a",)))
    with pytest.raises(ConfigError, match=r"/logs/a is already formatted: use --ignore-formatted"):
        formatted(files, options_of())
    assert not files.exists("/logs/b")


def test_formatted_directories_are_kept_on_request() -> None:
    """A new disk is added to a node so: only its directory gets an id."""
    files = MemoryFiles()
    formatted(files, options_of(directories=("/logs/a",)))
    before = {name: files.read_bytes(f"/logs/a/{name}") for name in files.listdir("/logs/a")}
    done = formatted(files, options_of(ignore_formatted=True), seed=1)
    assert (done.formatted, done.kept) == (("/logs/b",), ("/logs/a",))
    assert {n: files.read_bytes(f"/logs/a/{n}") for n in files.listdir("/logs/a")} == before
    done = formatted(files, options_of(ignore_formatted=True))
    assert (done.formatted, done.kept) == ((), ("/logs/b", "/logs/a"))


@pytest.mark.parametrize("ignore_formatted", [False, True])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cluster_id": "other"}, f"belongs to cluster {CLUSTER}, not other"),
        ({"node_id": 6}, "belongs to node 5, not 6"),
    ],
)
def test_a_directory_of_another_node_or_cluster_is_refused(
    changes: dict[str, Any], message: str, ignore_formatted: bool
) -> None:
    """A node would serve the records of another cluster under its own name."""
    files = MemoryFiles()
    formatted(files, options_of(directories=("/logs/a",)))
    with pytest.raises(ConfigError, match=message):
        formatted(files, options_of(ignore_formatted=ignore_formatted, **changes))
    assert not files.exists("/logs/b")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"node_id": -1}, "negative"),
        ({"cluster_id": ""}, "cluster id is empty"),
        ({"directories": ()}, "no log directory"),
    ],
)
def test_invalid_options_are_refused(changes: dict[str, Any], message: str) -> None:
    """Each with the setting that is to be changed."""
    with pytest.raises(ConfigError, match=message):
        formatted(MemoryFiles(), options_of(**changes))


# --- kills


KINDS: dict[str, dict[str, Any]] = {
    "static": {},
    "standalone": {"standalone": CONTROLLER},
    "waiting": {"without_voters": True},
}


def assert_complete(files: MemoryFiles, kind: str) -> None:
    ids = []
    for directory in ("/logs/b", "/logs/a"):
        properties = decode_meta_properties(files.read_bytes(f"{directory}/meta.properties"), "")
        assert (properties.cluster_id, properties.node_id) == (CLUSTER, NODE)
        ids.append(properties.directory_id)
        records = read_bootstrap_checkpoint(files, directory, crc32c)
        assert records is not None
        assert records[0] == FeatureLevelRecord(name="metadata.version", feature_level=25)
    assert ids[0] != ids[1]
    reader = MetadataReader(files, "/logs/b/__cluster_metadata-0", crc32c)
    assert read_quorum_state(files, reader.directory) == (
        QuorumState(epoch=0) if kind == "waiting" else None
    )
    assert reader.exists() == (kind == "standalone")
    if reader.exists():
        voters = reader.read().voters
        assert voters is not None
        assert [format_uuid(one.voter_directory_id) for one in voters.voters] == ids[:1]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("power", [False, True])
def test_a_format_cut_short_at_any_operation_is_completed_by_the_next(
    operation: str, kind: str, power: bool
) -> None:
    """Until the last file of a directory is written, the directory does not count as formatted."""
    options = options_of(**KINDS[kind])
    retry = options_of(**KINDS[kind], ignore_formatted=True)
    for number in itertools.count():
        files = MemoryFiles()
        files.mkdirs("/logs")
        files.sync_dir("/")
        calls = itertools.count()
        files.fail(operation, errno.EIO, matches=lambda _: next(calls) == number)  # noqa: B023
        failed = False
        try:
            formatted(files, options)
        except KafkaStorage:
            failed = True
        files.heal()
        if failed:
            files.power_cut(random.Random(number)) if power else files.crash()
            formatted(files, retry, seed=1)
        files.power_cut()
        assert_complete(files, kind)
        if not failed:
            assert number > 0 or (operation == "chmod" and kind != "standalone")
            return


@pytest.mark.parametrize("second", KINDS)
@pytest.mark.parametrize("first", KINDS)
def test_nothing_of_a_format_cut_short_stays_in_one_for_another_quorum(
    first: str, second: str
) -> None:
    """Kafka would take the directory for one of a dynamic quorum with another voter."""
    files = MemoryFiles()
    files.fail("write_atomic", matches=lambda path: path.endswith("meta.properties"))
    with pytest.raises(KafkaStorage):
        formatted(files, options_of(**KINDS[first]))
    assert files.exists(f"/logs/b/{VOTERS}") == (first == "standalone")
    formatted(files, options_of(**KINDS[second]))
    assert_complete(files, second)


def test_a_damaged_file_is_named() -> None:
    """It is not replaced: it may be the file of a directory with records."""
    files = MemoryFiles()
    formatted(files, options_of())
    files.write_atomic("/logs/a/meta.properties", b"version=1\n")
    with pytest.raises(ConfigError, match=r"/logs/a/meta\.properties lacks"):
        formatted(files, options_of(ignore_formatted=True))


def test_a_path_that_is_a_file_is_refused() -> None:
    """A typed error, not one of the system."""
    files = MemoryFiles()
    files.mkdirs("/logs")
    files.write_atomic("/logs/a", b"")
    with pytest.raises(KafkaError, match="/logs/a"):
        formatted(files, options_of())


def test_random_ids_are_valid_arguments() -> None:
    """An id that began with a dash would be taken for an option."""
    source = random.Random(3)
    for text in (random_uuid(source) for _ in range(500)):
        assert len(text) == 22
        assert not text.startswith("-")
        assert parse_uuid(text).int >= 100


def test_the_passwords_of_users_are_not_shown() -> None:
    """Errors and debuggers show options."""
    options = options_of(scram=("SCRAM-SHA-512=[name=admin,password=hidden]",))
    assert "hidden" not in repr(options)
    assert CLUSTER in repr(options)
