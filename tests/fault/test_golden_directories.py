"""The golden log directories: a broker migrates each of them, and serves what was written to it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest

import aiokq
from aiokq.admin.config_types import OWN_SOURCE, ConfigResource, ConfigResourceType
from aiokq.broker.log.file_names import CLUSTER_METADATA
from aiokq.broker.metadata.earlier.private_file import MIGRATED, MIGRATED_LINE, PRIVATE_FILE
from aiokq.broker.metadata.log.metadata_reader import MetadataReader
from aiokq.core.files import OsFiles
from aiokq.fastpath import crc32c
from aiokq.wire.cluster_metadata_records import ProducerIdsRecord
from aiokq.wire.registration_records import RegisterBrokerRecord, RegisterControllerRecord
from tests.golden.directories import contents
from tests.golden.directories.contents import Json
from tests.peers.broker_process import broker_process

SERVED_TWICE = ("plain", "two-missing", "killed", "kafka-twice")
"""The directories whose records are also read after the second start, which takes seconds."""

OF_A_START = (RegisterBrokerRecord, RegisterControllerRecord, ProducerIdsRecord)
"""The records that each start or use of a broker replaces."""


def as_json(found: Json) -> Json:
    """Return values as they are read from JSON, for example enumerations as text."""
    read: Json = json.loads(json.dumps(found))
    return read


def offline(expected: Json) -> set[str]:
    """Return the partitions that are expected to be offline."""
    return {
        f"{name}-{index}"
        for name, topic in expected["served"]["topics"].items()
        for index, partition in enumerate(topic["partitions"])
        if partition["leader"] < 0
    }


def image(path: Path) -> list[str]:
    """Return the records of a directory's metadata, except those that each start replaces."""
    reader = MetadataReader(OsFiles(), str(path / CLUSTER_METADATA), crc32c)
    records = reader.read().image.records()
    return sorted(repr(record) for record in records if not isinstance(record, OF_A_START))


def serve(paths: Sequence[Path], expected: Json) -> None:
    """Check what a broker on the directories serves; then stop it cleanly."""
    arguments = (*contents.ARGUMENTS, *contents.more_directories(paths))
    with broker_process(paths[0], *arguments) as broker:
        bootstrap = broker.bootstrap_servers
        found = asyncio.run(contents.served(bootstrap, offline(expected)))
        assert as_json(found) == expected["served"]
        assert contents.batches(paths) == expected["batches"]
        assert asyncio.run(contents.next_producer_id(bootstrap)) >= expected["next_producer_id"]
        assert broker.stop() == 0


@pytest.mark.parametrize("name", contents.NAMES)
def test_everything_in_a_golden_directory_is_served(name: str, tmp_path: Path) -> None:
    """Topics with ids, settings, records and epochs; groups with commits; producer ids.

    The first start moves the metadata to Kafka's log, and the second finds it there.
    """
    expected = contents.expected(name)
    paths = contents.unpack(name, tmp_path)
    assert {path.name: contents.is_clean(path) for path in paths} == expected["clean"]
    assert {path.name: contents.metadata(path) for path in paths} == expected["metadata"]
    before = {path: (path / PRIVATE_FILE).read_bytes() for path in paths}

    serve(paths, expected)
    for path, content in before.items():
        assert (path / f"{PRIVATE_FILE}{MIGRATED}").read_bytes() == content
        assert (path / PRIVATE_FILE).read_bytes() == MIGRATED_LINE
        assert (path / CLUSTER_METADATA).exists() is (path == paths[0])
    migrated = image(paths[0])

    with broker_process(paths[0], *contents.ARGUMENTS, *contents.more_directories(paths)) as broker:
        if name in SERVED_TWICE:
            found = asyncio.run(contents.served(broker.bootstrap_servers, offline(expected)))
            assert as_json(found) == expected["served"]
        assert broker.stop() == 0
    assert image(paths[0]) == migrated
    for path, content in before.items():
        assert (path / f"{PRIVATE_FILE}{MIGRATED}").read_bytes() == content


@pytest.mark.parametrize("name", ["kafka", "kafka-killed", "kafka-twice"])
def test_topics_inherit_the_dynamic_settings_of_the_broker(name: str, tmp_path: Path) -> None:
    """Version 0.1.0 copied them into the topics."""
    expected = contents.expected(name)
    [path] = contents.unpack(name, tmp_path)
    with broker_process(path, *contents.ARGUMENTS) as broker:
        found = asyncio.run(inherited(broker.bootstrap_servers, expected["inherited"]))
    own = {name: topic["configs"] for name, topic in expected["served"]["topics"].items()}
    assert found == {name: expected["inherited"] | configs for name, configs in own.items()}


async def inherited(bootstrap: str, names: Collection[str]) -> dict[str, dict[str, str | None]]:
    """Return the effective values of some configs of each topic, and those of its own."""
    async with aiokq.Admin(bootstrap) as admin:
        topics = await admin.list_topics(internal=True)
        resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in topics]
        described = await admin.describe_configs(resources, raise_errors=True)
    return {
        resource.name: {
            entry.name: entry.value
            for entry in described[resource].entries.values()
            if entry.name in names or entry.source is OWN_SOURCE[resource.type]
        }
        for resource in resources
    }


async def test_a_cluster_restored_from_the_golden_snapshot_serves_it(tmp_path: Path) -> None:
    """`restore_from` copies the snapshot, so its files stay as they are."""
    [path] = contents.unpack("snapshot", tmp_path)
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    async with aiokq.EmbeddedCluster(
        restore_from=path, profile="kafka", settings=contents.SETTINGS
    ) as cluster:
        found = await contents.served(cluster.bootstrap_servers)
        assert as_json(found) == contents.expected("snapshot")["served"]
    after = {file: file.read_bytes() for file in before}
    assert after == before
