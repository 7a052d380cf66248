"""A log directory through shutdowns and crashes of all kinds: what may be lost, and what must not.

A kill loses nothing that was acknowledged. A power cut loses only data written since the last clean
shutdown. The directory can be opened whatever is on the disk.
"""

from __future__ import annotations

import random

import pytest

from aiokq.broker.log.directory import LogDirectory
from aiokq.broker.log.partition_log import PartitionLog
from aiokq.core.types import TopicPartition
from aiokq.fastpath import crc32c
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.log.samples import NOW_MS, append, batch, config, replica_of, values

PARTITIONS = (TopicPartition("a", 0), TopicPartition("b", 0))
SETTINGS = config(segment_bytes=400, index_interval_bytes=100)


class Story:
    """One directory, and the records that its logs must hold.

    Attributes:
        acknowledged: the value at each offset of each partition.
        durable: for each partition, the offset before which a power cut must lose nothing.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.files = MemoryFiles()
        self.acknowledged: dict[TopicPartition, dict[int, bytes]] = {tp: {} for tp in PARTITIONS}
        self.durable = dict.fromkeys(PARTITIONS, 0)
        self.starts = dict.fromkeys(PARTITIONS, 0)
        self.count = 0
        self.open()

    def open(self) -> None:
        self.directory = LogDirectory.open(
            self.files, "/data", crc32c=crc32c, random=self.random, now=lambda: 0.0, node_id=0
        )
        self.directory.begin()
        self.logs: dict[TopicPartition, PartitionLog] = {tp: self._log(tp) for tp in PARTITIONS}

    def _log(self, tp: TopicPartition) -> PartitionLog:
        log = self.directory.open_partition(tp, None, SETTINGS, now_ms=NOW_MS)
        replica_of(log)
        return log

    def append(self, tp: TopicPartition) -> None:
        self.count += 1
        value = b"%d" % self.count * self.random.randint(1, 40)
        result = append(self.logs[tp], batch(value), leader_epoch=0)
        assert result.base_offset >= self.starts[tp]
        assert result.base_offset not in self.acknowledged[tp]
        self.acknowledged[tp][result.base_offset] = value

    def delete_records(self, tp: TopicPartition) -> None:
        log = self.logs[tp]
        self.starts[tp] = log.delete_records(
            self.random.randint(log.log_start_offset, log.log_end_offset)
        )
        self.directory.write_log_starts()

    def make_anew(self, tp: TopicPartition) -> None:
        self.directory.delete_partition(tp)
        self.directory.sync_names()
        if self.random.random() < 0.5:
            self.directory.purge()
        self.acknowledged[tp], self.durable[tp], self.starts[tp] = {}, 0, 0
        self.logs[tp] = self._log(tp)

    def stop_clean(self) -> None:
        self.directory.close()
        self.durable = {tp: log.log_end_offset for tp, log in self.logs.items()}

    def kill(self) -> None:
        self.files.crash()
        self.open()
        self.check()

    def restart(self) -> None:
        self.stop_clean()
        self.kill()

    def power_cut_after_clean_stop(self) -> None:
        self.stop_clean()
        self.files.power_cut(self.random)
        self.open()
        self.check()

    def power_cut(self) -> None:
        self.files.power_cut(self.random)
        self.open()
        for tp, log in self.logs.items():
            expected, found = self.acknowledged[tp], self.found(tp)
            assert found.items() <= expected.items()
            promised = range(log.log_start_offset, self.durable[tp])
            assert {offset for offset in expected if offset in promised} <= found.keys()
            assert list(found) == list(range(log.log_start_offset, log.log_end_offset))
            self.acknowledged[tp], self.starts[tp] = found, log.log_start_offset
        self.check()

    def found(self, tp: TopicPartition) -> dict[int, bytes]:
        log = self.logs[tp]
        return dict(values(log, log.log_start_offset))  # type: ignore[arg-type]

    def check(self) -> None:
        for tp, log in self.logs.items():
            start = self.starts[tp]
            expected = {o: value for o, value in self.acknowledged[tp].items() if o >= start}
            assert log.log_start_offset == start
            assert self.found(tp) == expected
            self.acknowledged[tp] = expected


@pytest.mark.parametrize("seed", range(60))
def test_no_shutdown_or_crash_loses_guaranteed_records(seed: int) -> None:
    """Random shutdowns and crashes; in between, topics are deleted and recreated."""
    story = Story(seed)
    steps = story.random.randint(5, 25)
    for _ in range(steps):
        tp = story.random.choice(PARTITIONS)
        for _ in range(story.random.randint(0, 12)):
            story.append(tp)
        step = story.random.choices(
            ("kill", "restart", "power_cut_after_clean_stop", "power_cut", "delete", "anew"),
            (4, 2, 2, 2, 2, 2),
        )[0]
        if step == "delete":
            story.delete_records(tp)
        elif step == "anew":
            story.make_anew(tp)
        else:
            getattr(story, step)()
