"""UnjournaledRows: rows in the log that a killed run had sent but not noted in its journal.

A row is recognized by key, value, headers and, if the row has them, timestamp and partition. Only
records with the producer id of the killed run count, because other producers may have written equal
records.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Final, NamedTuple, TypeAlias

from aiokq import Cluster, TopicPartition
from aiokq.errors import KafkaError
from aiokq.spark.exporting.records import Row

__all__ = ["UnjournaledRows", "Place", "producer_of"]

CREATE_TIME: Final = 0
"""Timestamp type of records whose timestamp was set by the producer, not by the broker."""

ASKED_FOR: Final = 5.0
"""Timeout in seconds for the fetch of a record in `producer_of`."""

Headers: TypeAlias = Iterable[tuple[str, bytes | None]]


class Place(NamedTuple):
    """Partition and offset of a row."""

    partition: int
    offset: int


async def producer_of(cluster: Cluster, topic: str, place: Place) -> int:
    """Return the producer id of a record; -1 if the record has none or cannot be read."""
    try:
        found = await cluster.fetch(
            TopicPartition(topic, place.partition),
            place.offset,
            1,
            max_wait_ms=0,
            timeout=ASKED_FOR,
        )
    except KafkaError:
        return -1
    return next((id_ for end, id_ in found.producer_ids() if end > place.offset), -1)


class UnjournaledRows:
    """The records that `find` has read from the log, and that `take` has not removed yet."""

    def __init__(self) -> None:
        # For each digest of a record, a map of partition to timestamps and offsets.
        self._places: dict[bytes, dict[int, deque[tuple[int | None, int]]]] = {}
        self._left = 0

    @classmethod
    async def find(
        cls,
        cluster: Cluster,
        topic: str,
        producer_id: int,
        starts: Mapping[int, int],
    ) -> UnjournaledRows:
        """Read the records that a producer wrote to a topic.

        Args:
            starts: first offset to read, by partition; reading ends at the current end of each log.

        Raises:
            KafkaError: the topic cannot be read.
        """
        arrived = cls()
        for partition, start in sorted(starts.items()):
            place = TopicPartition(topic, partition)
            # Retention may have moved the log start offset.
            beginning = await cluster.offsets(place, "earliest")
            first = start if beginning is None else max(start, beginning.offset)
            async for batch in cluster.read(place, first):
                if producer_id not in (id_ for _, id_ in batch.producer_ids()):
                    continue
                ends = iter(batch.producer_ids())
                end, id_ = next(ends)
                for record in batch:
                    while record.offset >= end:
                        end, id_ = next(ends)
                    if id_ == producer_id:
                        timed = record.timestamp_type == CREATE_TIME
                        time = record.timestamp_ms if timed else None
                        at = Place(partition, record.offset)
                        arrived.add(record.key, record.value, record.headers, time, at)
        return arrived

    def __len__(self) -> int:
        return self._left

    def add(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        time: int | None,
        place: Place,
    ) -> None:
        """Add a record; the records of a partition must be added in the order of their offsets.

        Args:
            time: timestamp in milliseconds; None if the broker set it.
        """
        name = _digest(key, value, headers)
        there = self._places.setdefault(name, defaultdict(deque))
        there[place.partition].append((time, place.offset))
        self._left += 1

    def take(self, row: Row) -> Place | None:
        """Remove a record equal to the row, and return its place; None if there is no record."""
        if not self._left:
            return None
        key, value, headers, time = row.record
        places = self._places.get(_digest(key, value, headers or ()), {})
        for partition in places if row.partition is None else (row.partition,):
            there = places.get(partition, deque())
            for number, (at, offset) in enumerate(there):
                # The timestamps are compared only if the row has a timestamp and the broker kept
                # it. A row without a timestamp matches any time: it was sent with the time of
                # its run.
                if time is None or at is None or at == time:
                    del there[number]
                    self._left -= 1
                    return Place(partition, offset)
        return None


def _digest(key: bytes | None, value: bytes | None, headers: Headers) -> bytes:
    found = blake2b(digest_size=16)
    parts = [key, value]
    for name, header in headers:
        parts += [name.encode(), header]
    for part in parts:
        found.update(b"-" if part is None else b"%d:" % len(part))
        found.update(part or b"")
    return found.digest()
