"""A program that copies "in" to "out": `python -m tests.fault.process_member SERVERS`.

It ends on SIGTERM, and starts `process()` again after an error, as a service is restarted.
"""

from __future__ import annotations

import asyncio
import sys

import aiokq


def copy(record: aiokq.Record) -> aiokq.Outgoing:
    return aiokq.Outgoing("out", record.value, record.key)


async def main(servers: str) -> None:
    while True:
        try:
            async with aiokq.Cluster(servers, bootstrap_timeout_ms=60_000) as cluster:
                await cluster.process(
                    "in",
                    copy,
                    group_id="copiers",
                    max_records=1_000,
                    transaction_timeout_ms=5_000,
                    consumer_settings={"session_timeout_ms": 6_000, "heartbeat_interval_ms": 500},
                )
                return
        except aiokq.KafkaError as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
