"""Golden log directories that version 0.1.0 of aiokq wrote: unpack them, and read them.

Version 0.1.0 kept its metadata in `aiokq-metadata.log`. Later versions migrate such directories at
their first start, so nothing can write them any more: the archives are fixed, and were written by
the program `tests/golden/directories/generate.py` of commit ca83c27b.

Each golden directory is a pair of files: `NAME.tar.xz` with the log directories of one stopped
node, and `NAME.json` with what must be found in them. All were written under `/tmp/aiokq-golden`,
because a node with several log directories records their paths. A broker that was killed was ended
by SIGKILL.

- `plain`: filled, then stopped cleanly. Topics: `orders` (configs; records in every codec, with
  keys and headers; records deleted before an offset), `table` (compacted), `grown` (1 partition,
  then 3), `altered` (configs changed and removed), `rolled` (several segments), `empty`, `again`
  (deleted and created again), and `gone`, which was deleted. Groups: `classic` and `modern` (one
  member of each protocol, which left), `manual` (commits with metadata and a leader epoch), and
  `deleted`. Group configs of `modern` and of `absent`, which is no group.
- `plain-handed-over`: `plain` after `aiokq log hand-over`, which added `bootstrap.checkpoint`.
- `snapshot`: what `EmbeddedCluster.snapshot` wrote of a running broker that was filled in the same
  way. Its metadata log is compacted.
- `two`: two log directories `a` and `b`, with partitions of most topics in both; stopped cleanly.
- `two-behind`: `two` after a start with `a` alone, in which a topic was created and changed. The
  metadata log in `b` is a prefix of the one in `a`.
- `two-apart`: `two-behind` after a start with `b` alone, in which the topic `only-b` was created.
  Each copy of the metadata log has appends that the other lacks; `a` has more.
- `two-missing`: `a` of `two-behind`. The metadata log knows `b`, and the partitions in `b` are
  offline.
- `two-forgotten`: `two-missing` after `aiokq log forget-missing`. The next start creates the
  partitions that were in `b` again, empty, with leader epochs that were never used.
- `killed`: filled and killed; then started again, which counted an unclean start, and killed while
  records were written, topics were created, and `modern` had a member.
- `killed-torn`: `killed` with half a line appended to the metadata log, and the beginning of a
  batch appended to the log of `orders-0`, as a power cut may leave them.
- `kafka-killed`: formatted by Apache Kafka 4.2 with `controller.quorum.voters` (`kraft.version` 0),
  filled, given a SCRAM credential, a quota and the dynamic setting `message.max.bytes` of its
  broker, and killed; then changed by aiokq and stopped cleanly.
- `kafka`: the same directory without the changes by aiokq: started again by Apache Kafka, changed,
  and stopped cleanly; then changed by aiokq and stopped cleanly.
- `kafka-twice`: `kafka`, changed by Apache Kafka again, then by aiokq, each stopped cleanly.
  Apache Kafka set the logs of aiokq's topic `here` aside, and aiokq took them back; of `empty-3`,
  which both created, the one by aiokq is still set aside.
- `kafka-standalone`: formatted by Apache Kafka 4.2 with `--standalone` (`kraft.version` 1), filled
  and stopped cleanly; then changed by aiokq and stopped cleanly.

Every `__cluster_metadata-0` that Apache Kafka wrote has several snapshots of the metadata.

The JSON has these keys:

- `log_dirs`: the log directories of the node, in the order of `log.dirs`.
- `clean`: by log directory, whether it has a clean shutdown marker.
- `metadata`: by log directory, what its `aiokq-metadata.log` contains, as `metadata` returns it.
- `next_producer_id`: a producer id that is issued by a broker on the directories is not lower.
- `batches`: by partition, the batches of its log after the start of a broker, as `batches` returns
  them.
- `served`: what a broker on the directories serves, as `served` returns it.

They were written together with the archives, by version 0.1.0, with one exception. Version 0.1.0
copied the dynamic setting `message.max.bytes` of the broker into the configs of each topic that had
no `max.message.bytes`. Kafka's metadata log has the setting itself, so these topics have no such
config in `kafka`, `kafka-killed` and `kafka-twice`; `inherited` has its value.
"""

from __future__ import annotations

import asyncio
import json
import posixpath
import tarfile
import time
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import aiokq
from aiokq import wire
from aiokq.admin.config_types import OWN_SOURCE, ConfigResource, ConfigResourceType
from aiokq.admin.topics import TopicDescription
from aiokq.broker.log.file_names import CLEAN_SHUTDOWN, parse_partition_directory
from aiokq.broker.metadata.earlier.private_file import PRIVATE_FILE, read_private_file
from aiokq.records.header import iter_headers
from tests.sim.harness.files import MemoryFiles

HERE = Path(__file__).parent

NAMES = (
    *("plain", "plain-handed-over", "snapshot"),
    *("two", "two-behind", "two-apart", "two-missing", "two-forgotten"),
    *("killed", "killed-torn"),
    *("kafka", "kafka-killed", "kafka-twice", "kafka-standalone"),
)

SETTINGS = {
    "log.retention.ms": "-1",
    "log.cleaner.enable": "false",
    "offsets.retention.minutes": "2147483647",
    "log.initial.task.delay.ms": "3600000",
}
"""Broker settings that keep a broker from deleting or compacting the records of past years."""

ARGUMENTS = tuple(part for item in SETTINGS.items() for part in ("--set", "=".join(item)))
"""The same settings as arguments of `aiokq broker`."""

WRITTEN_AT = "/tmp/aiokq-golden"
"""The path of the log directories when they were written."""

PATIENCE = 30.0
"""Seconds until a partition that is not served is an error."""

PREALLOCATED = {".index": 4096, ".timeindex": 4092}
"""By kind of index, the bytes that `load` keeps of a file that Apache Kafka preallocated."""

Json = dict[str, Any]


def expected(name: str) -> Json:
    """Return what must be found in a golden directory."""
    found: Json = json.loads((HERE / f"{name}.json").read_text())
    return found


def unpack(name: str, target: Path) -> list[Path]:
    """Unpack the log directories of a golden directory; return their paths."""
    with tarfile.open(HERE / f"{name}.tar.xz") as archive:
        # The parameter `filter` is missing before Python 3.11.4; Debian 12 has 3.11.2.
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, path: member)
        archive.extractall(target)
    return [target / one for one in expected(name)["log_dirs"]]


def load(name: str, files: MemoryFiles) -> list[str]:
    """Write the log directories to a disk in memory, durably; return their paths.

    Apache Kafka preallocates 10 MB for each index of a segment. Only one page of each is kept.
    """
    files.mkdirs(WRITTEN_AT)
    files.sync_dir(posixpath.dirname(WRITTEN_AT))
    with tarfile.open(HERE / f"{name}.tar.xz") as archive:
        for member in archive:
            path = f"{WRITTEN_AT}/{member.name}"
            file = archive.extractfile(member)
            if file is None:
                files.mkdirs(path)
                files.sync_dir(path)
                continue
            data = file.read()
            kept = PREALLOCATED.get(posixpath.splitext(path)[1], len(data))
            assert not data[kept:].strip(b"\0")
            files.write_atomic(path, data[:kept])
    return [f"{WRITTEN_AT}/{one}" for one in expected(name)["log_dirs"]]


def more_directories(paths: Iterable[Path]) -> list[str]:
    """Return the arguments of `aiokq broker` for all log directories but the first."""
    _, *others = paths
    return [part for path in others for part in ("--data-dir", str(path))]


def is_clean(path: Path) -> bool:
    """Return whether a log directory has a clean shutdown marker."""
    return (path / CLEAN_SHUTDOWN).exists()


def metadata(path: Path, name: str = PRIVATE_FILE) -> Json:
    """Return the content of the private metadata file in a log directory, by its name.

    `size` and `valid` are its bytes, and those before a torn end; `records` counts its records by
    type.
    """
    file = path / name
    data = file.read_bytes()
    found, valid = read_private_file(data, str(file))
    assert found is not None
    lines = data[:valid].decode().splitlines()[1:]
    records = Counter(one["type"] for line in lines for one in _records_of(line))
    return {
        "size": len(data),
        "valid": valid,
        "records": dict(sorted(records.items())),
        "appends": found.appends,
        "next_producer_id": found.next_producer_id,
        "unclean_starts": found.unclean_starts,
        "directories": dict(found.directories),
        "kafka": None if found.kafka is None else list(found.kafka),
        "kafka_topic_ids": list(found.kafka_topic_ids),
        "topics": {
            name: {
                "topic_id": str(topic.topic_id),
                "partitions": topic.partitions,
                "configs": dict(topic.configs),
                "elsewhere": list(topic.elsewhere),
                "kafka_epochs": list(topic.kafka_epochs),
            }
            for name, topic in sorted(found.topics.items())
        },
        "groups": {name: dict(configs) for name, configs in sorted(found.groups.items())},
        "cluster": dict(found.settings),
    }


def _records_of(line: str) -> list[Json]:
    found = json.loads(line[9:])  # after the checksum
    return found if isinstance(found, list) else [found]


def batches(paths: Iterable[Path]) -> dict[str, list[list[int]]]:
    """Return the batches of each partition's log: first offset, next offset, leader epoch,
    attributes, and producer id, epoch and base sequence.

    The log of `__consumer_offsets` is left out: a coordinator may write to it at any time.
    """
    found = {
        directory.name: [
            [
                *(header.base_offset, header.next_offset, header.leader_epoch, header.attributes),
                *(header.producer_id, header.producer_epoch, header.base_sequence),
            ]
            for log in sorted(directory.glob("*.log"))
            for header in iter_headers(log.read_bytes())
        ]
        for path in paths
        for directory in path.iterdir()
        if (partition := parse_partition_directory(directory.name)) is not None
        and not partition.topic.startswith("__")
    }
    return dict(sorted(found.items()))


async def next_producer_id(bootstrap: str) -> int:
    """Return a producer id that the broker issues."""
    async with aiokq.Cluster(bootstrap) as cluster:
        answer = await cluster.request(
            wire.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        )
    assert answer.error_code == 0
    return answer.producer_id


async def served(bootstrap: str, offline: Collection[str] = ()) -> Json:
    """Return what a node serves: ids, topics with their records, groups with their offsets.

    Offline partitions have no records. If one of `__consumer_offsets` is offline, the groups are
    None, because they cannot be listed.

    Args:
        offline: names of the partitions that the node does not serve; all others are awaited.
    """
    groups_known = not any(name.startswith("__consumer_offsets-") for name in offline)
    async with aiokq.Admin(bootstrap) as admin:
        cluster = await admin.describe_cluster()
        described = await _described(admin, offline)
        return {
            "cluster_id": cluster.cluster_id,
            "node_ids": [broker.node_id for broker in cluster.brokers],
            "topics": {
                topic.name: await _topic(admin, bootstrap, topic, offline) for topic in described
            },
            "groups": await _groups(admin) if groups_known else None,
            "group_configs": await _group_configs(admin),
        }


async def _described(admin: aiokq.Admin, offline: Collection[str]) -> list[TopicDescription]:
    """Return all topics, once all partitions but the offline ones have a leader."""
    deadline = time.monotonic() + PATIENCE
    while True:
        topics = (await admin.describe_topics(raise_errors=True)).values()
        leaderless = {
            f"{topic.name}-{one.partition}"
            for topic in topics
            for one in topic.partitions
            if one.leader < 0
        }
        if leaderless == set(offline):
            return sorted(topics, key=lambda topic: topic.name)
        assert time.monotonic() < deadline, f"without a leader: {leaderless}"
        await asyncio.sleep(0.05)


async def _topic(
    admin: aiokq.Admin, bootstrap: str, topic: TopicDescription, offline: Collection[str]
) -> Json:
    return {
        "topic_id": str(topic.topic_id),
        "configs": await _own_configs(admin, ConfigResource(ConfigResourceType.TOPIC, topic.name)),
        "partitions": [
            {
                "leader": one.leader,
                "leader_epoch": one.leader_epoch,
                "replicas": list(one.replicas),
                "offline": list(one.offline),
                **(
                    {}
                    if topic.internal or f"{topic.name}-{one.partition}" in offline
                    else await _records(admin, bootstrap, topic.name, one.partition)
                ),
            }
            for one in topic.partitions
        ],
    }


async def _own_configs(admin: aiokq.Admin, resource: ConfigResource) -> dict[str, str | None]:
    """Return the configs that were set on a resource itself."""
    described = await admin.describe_configs(resource, raise_errors=True)
    entries = described[resource].entries.values()
    return {
        entry.name: entry.value
        for entry in sorted(entries, key=lambda entry: entry.name)
        if entry.source is OWN_SOURCE[resource.type]
    }


async def _records(admin: aiokq.Admin, bootstrap: str, topic: str, index: int) -> Json:
    """Return the offsets of a partition, and its records: offset, timestamp, leader epoch, key,
    value and headers.
    """
    place = aiokq.TopicPartition(topic, index)
    start = (await admin.list_offsets({place: "earliest"}, raise_errors=True))[place]
    end = (await admin.list_offsets({place: "latest"}, raise_errors=True))[place]
    records: list[list[object]] = []
    async with aiokq.Consumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([place])
        while await consumer.position(place) < end.offset:
            for record in (await consumer.getmany(timeout=1)).get(place, ()):
                records.append(
                    [
                        *(record.offset, record.timestamp_ms, record.leader_epoch),
                        *(_text(record.key), _text(record.value)),
                        [[name, _text(value)] for name, value in record.headers],
                    ]
                )
    return {"start": start.offset, "end": end.offset, "records": records}


def _text(data: bytes | None) -> str | None:
    return None if data is None else bytes(data).decode()


async def _groups(admin: aiokq.Admin) -> Json:
    """Return the groups, with the offset, leader epoch and metadata of each commit."""
    groups: Json = {}
    for listing in (await admin.list_groups(raise_errors=True)).values():
        group_id = listing.group_id
        found = await admin.list_group_offsets(group_id, raise_errors=True)
        groups[group_id] = {
            "type": listing.type,
            "protocol_type": listing.protocol_type,
            "offsets": {
                f"{place.topic}-{place.partition}": [one.offset, one.leader_epoch, one.metadata]
                for place, one in sorted(found[group_id].offsets.items())
                if one is not None
            },
        }
    return groups


async def _group_configs(admin: aiokq.Admin) -> Json:
    resources = await admin.list_config_resources([ConfigResourceType.GROUP])
    return {
        resource.name: await _own_configs(admin, resource)
        for resource in sorted(resources, key=lambda resource: resource.name)
    }
