"""Check: whether the log has the rows that were acknowledged, read back from it."""

from __future__ import annotations

from dataclasses import dataclass

from aiokq import Cluster, TopicPartition
from aiokq.spark.exporting.journal import Acknowledged, Destination, checksum

__all__ = ["Checked", "check"]


@dataclass(frozen=True)
class Checked:
    """What the log has.

    Attributes:
        rows: records at offsets that were acknowledged.
        intact: whether these have the keys and values that the rows had; None if some are missing.
        others: records that came since the export began and are not its: of other producers, or
            of a run that was killed before it could note them.
    """

    rows: int
    intact: bool | None
    others: int


async def check(cluster: Cluster, destination: Destination, acknowledged: Acknowledged) -> Checked:
    """Read what came to the topic since the export began.

    Raises:
        KafkaError: it cannot be read.
    """
    rows = total = others = 0
    topic = destination.topic
    partitions = {*destination.starts, *acknowledged.offsets}
    places = [TopicPartition(topic, partition) for partition in sorted(partitions)]
    async with cluster.admin() as admin:
        first = await admin.list_offsets(dict.fromkeys(places, "earliest"), raise_errors=True)
        last = await admin.list_offsets(dict.fromkeys(places, "latest"), raise_errors=True)
    for place in places:
        # Retention and DeleteRecords may have moved the beginning.
        start = max(destination.starts.get(place.partition, 0), first[place].offset)
        ranges = iter(_merged(acknowledged.offsets.get(place.partition, [])))
        low, high = next(ranges, (-1, -1))
        async for batch in cluster.read(place, start, last[place].offset):
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
    """In the order of the log: that of the rows is another where a batch was tried again."""
    return [(first, last) for first, last in sorted(ranges)]
