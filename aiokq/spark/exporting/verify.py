"""Verification of an export: reads the topic back and compares it with the journal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from aiokq import Cluster, TopicPartition
from aiokq.spark.checksums import checksum
from aiokq.spark.exporting.journal import Acknowledged, Destination

__all__ = ["Checked", "check"]


@dataclass(frozen=True)
class Checked:
    """Result of reading the topic back.

    Attributes:
        rows: number of records at acknowledged offsets.
        intact: whether these records have the keys and values of the rows; None if a record is
            missing.
        others: number of records that were appended since the export began and that are not in the
            journal, such as records of other producers.
    """

    rows: int
    intact: bool | None
    others: int


async def check(
    cluster: Cluster,
    destination: Destination,
    acknowledged: Acknowledged,
    *,
    committed: bool = False,
) -> Checked:
    """Compare the acknowledged rows with the records in the topic since the start of the export.

    Args:
        committed: whether the rows were written in transactions; then records of aborted
            transactions are not read.

    Raises:
        KafkaError: the topic cannot be read.
    """
    rows = total = others = 0
    level: Final = "read_committed" if committed else "read_uncommitted"
    topic = destination.topic
    partitions = {*destination.starts, *acknowledged.offsets}
    places = [TopicPartition(topic, partition) for partition in sorted(partitions)]
    async with cluster.admin() as admin:
        first = await admin.list_offsets(dict.fromkeys(places, "earliest"), raise_errors=True)
        last = await admin.list_offsets(dict.fromkeys(places, "latest"), raise_errors=True)
    for place in places:
        # Retention and DeleteRecords may have moved the log start offset.
        start = max(destination.starts.get(place.partition, 0), first[place].offset)
        ranges = iter(_merged(acknowledged.offsets.get(place.partition, [])))
        low, high = next(ranges, (-1, -1))
        async for batch in cluster.read(place, start, last[place].offset, isolation_level=level):
            for record in batch:
                while high < record.offset and high >= 0:
                    low, high = next(ranges, (-1, -1))
                if low <= record.offset <= high:
                    rows += 1
                    total += checksum(record.key, record.value)
                else:
                    others += 1
    intact = total == acknowledged.checksum if rows == acknowledged.rows else None
    return Checked(rows, intact, others)


def _merged(ranges: list[list[int]]) -> list[tuple[int, int]]:
    """Return the ranges in the order of the log."""
    return [(first, last) for first, last in sorted(ranges)]
