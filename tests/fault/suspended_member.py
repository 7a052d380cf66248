"""A program that copies "in" to "out": `python -m tests.fault.suspended_member SERVERS [VALUE]`.

Its handler takes a moment for each record. At the record with this value it blocks the event loop
for longer than the handlers of a transaction may take.
"""

from __future__ import annotations

import asyncio
import sys
import time

import aiokq

TRANSACTION_TIMEOUT_MS = 2_000


async def main(servers: str, blocking: bytes | None) -> None:
    async def copy(record: aiokq.Record) -> aiokq.Outgoing:
        await asyncio.sleep(0.01)
        if record.value == blocking:
            time.sleep(TRANSACTION_TIMEOUT_MS / 1000)  # noqa: ASYNC251
        return aiokq.Outgoing("out", record.value, record.key)

    async with aiokq.Cluster(servers) as cluster:
        report = await cluster.process(
            "in",
            copy,
            group_id="copiers",
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            commit_interval_ms=500,
        )
    print(f"aborts={report.aborts}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2].encode() if sys.argv[2:] else None))
