"""Each write of the metadata log and its snapshots fails once, or the disk fails from then on.

A write fails after some of its bytes. What was acknowledged is there after a kill and after a power
cut, and the log goes on.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import random

import pytest

from aiokq.broker.metadata.log import metadata_batches
from aiokq.broker.metadata.log.cluster_metadata_log import ClusterMetadataLog, LogLimits
from aiokq.core.errors import KafkaStorage
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.metadata.metadata_logs import (
    DIRECTORY,
    config,
    memory,
    opened,
    read,
    topic,
)

ERRORS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO}

WRITTEN = (0, 1, 61, 1 << 20)
"""Bytes that a failing write leaves: none, one, the header of a batch, and all."""

LIMITS = LogLimits(closing_bytes=1)


class Story:
    """The use of a log by two starts: appends of each kind, snapshots, and a clean stop.

    Attributes:
        asked: the topics that were to be created.
        acknowledged: those of which the log said that they are.
    """

    def __init__(self, files: MemoryFiles) -> None:
        self.files = files
        self.asked: set[str] = set()
        self.acknowledged: set[str] = set()

    def append(self, log: ClusterMetadataLog, *numbers: int, configs: int = 0) -> None:
        names = {f"t{number}" for number in numbers}
        self.asked |= names
        settings = [config(number) for number in range(configs)]
        log.append(*settings, *(record for number in numbers for record in topic(number)))
        self.acknowledged |= names

    def snapshot(self, log: ClusterMetadataLog) -> None:
        """Write a snapshot; if it fails, the log must go on as if nobody had asked for it."""
        try:
            log.snapshot()
        except OSError:
            assert not [name for name in self.files.listdir(DIRECTORY) if name.endswith(".part")]

    def run(self) -> None:
        for start in range(2):
            with contextlib.suppress(OSError, KafkaStorage):
                self.start(10 * start)

    def start(self, first: int) -> None:
        log = opened(self.files, clean=False, limits=LIMITS)
        is_clean = False
        try:
            self.append(log, first)
            self.append(log, first + 1, configs=3)  # several batches
            self.snapshot(log)
            self.append(log, first + 2)
            self.snapshot(log)  # removes the segment before the first one
            self.append(log, first + 3, first + 4)
            is_clean = True
        finally:
            log.close(is_clean)


def damaged(number: int, error: int, written: int, *, stays: bool) -> tuple[Story, bool]:
    """Tell the story with a failure of one of its writes; return it, and whether it had so many.

    Args:
        stays: let all later writes fail, too.
    """
    files = memory()
    calls = itertools.count()

    def matches(_: str) -> bool:
        return next(calls) >= number

    fault = files.fail(
        "pwritev", error, matches=matches, times=None if stays else 1, written=written
    )
    story = Story(files)
    story.run()
    files.heal()
    return story, next(calls) > number if stays else fault.times == 0


@pytest.mark.parametrize("stays", [False, True])
@pytest.mark.parametrize("written", WRITTEN)
@pytest.mark.parametrize("error", ERRORS)
def test_a_write_that_fails_at_any_append_or_snapshot_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, error: str, written: int, stays: bool
) -> None:
    """Only the append that failed may be there or not."""
    monkeypatch.setattr(metadata_batches, "MAX_BATCH_BYTES", 1024)
    for number in itertools.count():
        story, failed = damaged(number, ERRORS[error], written, stays=stays)
        if not failed:
            break
        for cut in (False, True):
            files = story.files.copy()
            if cut:
                files.power_cut(random.Random(number))
            check_goes_on(files, story)
    assert number > 20


def check_goes_on(files: MemoryFiles, story: Story) -> None:
    log = opened(files)
    found = set(log.image.topics)
    assert story.acknowledged <= found <= story.asked
    log.append(*topic(99))
    log.snapshot()
    files.power_cut()
    assert set(read(files).image.topics) == {*found, "t99"}
