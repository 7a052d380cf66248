"""CPU time of a transaction in the broker's own code: `python -m benchmarks.micro.transactions`.

There is no socket and no disk: frames go directly to the dispatcher, logs are ephemeral files. A
transaction writes 25 records of 100 bytes to each of four partitions and commits. Rows: all
partitions in one Produce request, as aiokq sends them, and one request per partition, as librdkafka
does. Microseconds per transaction, with its markers.

`--against DIR` also measures the package in another directory (a checkout with its compiled core),
interleaved, and shows the difference. `--profile` prints where the time goes.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gc
import json
import pstats
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from aiokq import wire
from aiokq.fastpath import crc32c
from aiokq.records.header import TRANSACTIONAL_MASK
from aiokq.records.record import RawRecord, encode_batch
from benchmarks.micro.groups import PROCESSES, Bench, frame, in_process

TRANSACTIONS: Final = 500
ROUNDS: Final = 5
PARTITIONS: Final = 4
RECORDS: Final = 25
ID: Final = "bench"


class Transactions:
    """The transactions of one producer."""

    def __init__(self, bench: Bench, producer_id: int, producer_epoch: int) -> None:
        self._bench = bench
        self._producer_id = producer_id
        self._epoch = producer_epoch

    @classmethod
    async def begin(cls, bench: Bench) -> Transactions:
        await bench.ask(wire.FindCoordinatorRequest(coordinator_keys=[ID], key_type=1), 4)
        request = wire.InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000)
        given = await bench.ask(request, 5)
        assert given.error_code == 0, given
        return cls(bench, given.producer_id, given.producer_epoch)

    def frames(self, count: int, *, together: bool) -> list[list[bytes]]:
        """Return the requests of the next transactions.

        Args:
            together: whether one Produce request has the batches of all partitions.
        """
        made = [self._frames(self._epoch + number, together) for number in range(count)]
        self._epoch += count
        return made

    def _frames(self, epoch: int, together: bool) -> list[bytes]:
        batch = encode_batch(
            (RawRecord(at, 1_000_000, b"key-%06d" % at, b"v" * 100) for at in range(RECORDS)),
            crc32c=crc32c,
            producer_id=self._producer_id,
            producer_epoch=epoch,
            base_sequence=0,
            attributes=TRANSACTIONAL_MASK,
        )
        every = [
            wire.PartitionProduceData(index=index, records=batch) for index in range(PARTITIONS)
        ]
        requests = [
            wire.ProduceRequest(
                transactional_id=ID,
                acks=-1,
                timeout_ms=30_000,
                topic_data=[wire.TopicProduceData(name="t", partition_data=data)],
            )
            for data in ([every] if together else [[one] for one in every])
        ]
        end = wire.EndTxnRequest(
            transactional_id=ID,
            producer_id=self._producer_id,
            producer_epoch=epoch,
            committed=True,
        )
        return [*(frame(each, 12) for each in requests), frame(end, 5)]

    async def run(self, transactions: list[list[bytes]]) -> float:
        """Return the CPU microseconds per transaction."""
        send = self._bench.send
        answer: Any = None
        started = time.process_time()
        for requests in transactions:
            for request in requests:
                answer = await send(request)
            await asyncio.sleep(0)  # the response of EndTxn is sent,
            await asyncio.sleep(0)  # and the markers are written
        spent = (time.process_time() - started) / len(transactions) * 1e6
        data = b"".join(bytes(part) for part in answer)[4:]
        ended = wire.decode_response(wire.EndTxnResponse, data, 5)[1]
        assert ended.error_code == 0, ended
        return spent


async def measure(profile: cProfile.Profile | None = None) -> dict[str, float]:
    """Return CPU microseconds by row, the least of the rounds."""
    costs: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as directory:
        async with Bench(directory) as bench:
            transactions = await Transactions.begin(bench)
            gc.disable()
            for _ in range(ROUNDS):
                for name, together in (("one Produce request", True), ("one a partition", False)):
                    frames = transactions.frames(TRANSACTIONS, together=together)
                    gc.collect()
                    if profile is not None and together:
                        profile.enable()
                    costs.setdefault(name, []).append(await transactions.run(frames))
                    if profile is not None:
                        profile.disable()
    return {name: min(spent) for name, spent in costs.items()}


def compare(other: Path) -> None:
    """Measure both packages in turn, and print the medians."""
    mine = Path(__file__).resolve().parents[2]
    runs = [
        (in_process(other, Path(__file__)), in_process(mine, Path(__file__)))
        for _ in range(PROCESSES)
    ]
    for name in runs[0][0]:
        before, after = (statistics.median(run[side][name] for run in runs) for side in (0, 1))
        print(f"{name:22} {before:7.1f} {after:7.1f} us  {after / before - 1:+.1%}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--against", type=Path, help="a directory with another aiokq")
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    if given.against is not None:
        compare(given.against.resolve())
    elif given.profile:
        taken = cProfile.Profile()
        asyncio.run(measure(taken))
        pstats.Stats(taken).sort_stats("tottime").print_stats(45)
    else:
        rows = asyncio.run(measure())
        if given.json:
            print(json.dumps(rows))
        else:
            for row, spent in rows.items():
                print(f"{row:22} {spent:7.1f} us")
