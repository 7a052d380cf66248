"""The golden log directories: a broker serves what was written to each of them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

import aiokq
from tests.golden.directories import contents
from tests.golden.directories.contents import Json
from tests.peers.broker_process import broker_process


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


@pytest.mark.parametrize("name", contents.NAMES)
def test_everything_in_a_golden_directory_is_served(name: str, tmp_path: Path) -> None:
    """Topics with ids, settings, records and epochs; groups with commits; producer ids."""
    expected = contents.expected(name)
    paths = contents.unpack(name, tmp_path)
    assert {path.name: contents.is_clean(path) for path in paths} == expected["clean"]
    assert {path.name: contents.metadata(path) for path in paths} == expected["metadata"]
    arguments = (*contents.ARGUMENTS, *contents.more_directories(paths))
    with broker_process(paths[0], *arguments) as broker:
        bootstrap = broker.bootstrap_servers
        found = asyncio.run(contents.served(bootstrap, offline(expected)))
        assert as_json(found) == expected["served"]
        assert contents.batches(paths) == expected["batches"]
        assert asyncio.run(contents.next_producer_id(bootstrap)) >= expected["next_producer_id"]
        assert broker.stop() == 0


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
