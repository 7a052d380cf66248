"""A FIFO, socket, device or directory in place of a file: the start names the path in the way."""

from __future__ import annotations

import asyncio
import logging
import shutil
from pathlib import Path

import pytest

import aiokq
from aiokq.broker.log.file_names import CLEAN_SHUTDOWN, CLUSTER_METADATA
from aiokq.core.errors import KafkaError
from tests.peers.special_files import KINDS, make

NOT_NEEDED = {Path("aiokq-node.json"), Path("bootstrap.checkpoint")}
"""Files that the node can do without: it starts, and does not read what is there instead."""


async def serve(directory: Path, *, sent: int = 0) -> None:
    settings = {"metadata.log.max.record.bytes.between.snapshots": 1} if sent else None
    async with aiokq.EmbeddedCluster(data_dir=directory, settings=settings) as kafka:
        for number in range(sent):
            await asyncio.wait_for(send(kafka.bootstrap_servers, number), 10)


async def send(bootstrap_servers: str, number: int) -> None:
    async with aiokq.Producer(bootstrap_servers, enable_idempotence=True) as producer:
        await producer.send("t", b"%d" % number, partition=0)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory that was stopped twice, with a snapshot of the metadata."""
    made = tmp_path_factory.mktemp("special") / "data"
    for _ in range(2):
        asyncio.run(serve(made, sent=2))
    assert list((made / CLUSTER_METADATA).glob("*.checkpoint"))
    return made


def unread(directory: Path, *, clean: bool) -> set[Path]:
    """Return the files that a start need not read: replaced, older, or not needed."""
    metadata = directory / CLUSTER_METADATA
    newest = max(metadata.glob("*.checkpoint"))
    found = {path for path in metadata.iterdir() if path.name < newest.name[:20]}
    found |= {path for path in metadata.glob("*.checkpoint") if path != newest}
    for one in (metadata, directory / "t-0"):
        snapshots = sorted(one.glob("*.snapshot"))
        found |= set(snapshots[:-1] if clean else snapshots)  # a recovery writes them again
    return {path.relative_to(directory) for path in found} | NOT_NEEDED


@pytest.mark.timeout(120)
@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_start_names_the_path_that_is_in_the_way(
    directory: Path, tmp_path: Path, kind: str, *, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It neither hangs, nor reads from a device."""
    caplog.set_level(logging.ERROR, "aiokq.broker")
    optional = unread(directory, clean=clean)
    paths = [path.relative_to(directory) for path in sorted(directory.rglob("*"))]
    assert len(paths) > 25
    for path in paths:
        if (kind == "directory" and (directory / path).is_dir()) or (
            path.name == CLEAN_SHUTDOWN and not clean
        ):
            continue
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(directory, copy)
        if not clean:
            (copy / CLEAN_SHUTDOWN).unlink()
        special = make(copy / path, kind)
        caplog.clear()
        said = ""
        try:
            asyncio.run(asyncio.wait_for(serve(copy), 10))
        except KafkaError as error:  # otherwise the broker tells in its log
            said = str(error)
        assert path in optional or str(special) in said + caplog.text, path
