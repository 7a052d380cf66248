"""Consume, transform and produce, exactly once: `python examples/processing.py`."""

from __future__ import annotations

import asyncio

import aiokq

ORDERS = 1_000


async def main() -> None:
    async with (
        aiokq.EmbeddedCluster() as kafka,
        aiokq.Cluster(kafka.bootstrap_servers) as cluster,
    ):
        async with cluster.producer() as producer:
            orders = [(b"customer-%d" % (number % 50), b"%d" % number) for number in range(ORDERS)]
            await (await producer.send_many("orders", orders))

        stop = asyncio.Event()

        async def with_tax(record: aiokq.Record) -> aiokq.Outgoing:
            # It may run more than once for a record; its results are written exactly once.
            assert record.value is not None
            if int(record.value) == ORDERS - 1:
                stop.set()
            return aiokq.Outgoing("invoices", b"%.2f" % (int(record.value) * 1.2), key=record.key)

        report = await cluster.process(
            ["orders"], with_tax, group_id="billing", concurrency=8, order_by="key", stop=stop
        )
        print(f"processed: {report.records} in {report.commits} transactions")

        seen = 0
        async with cluster.consumer(
            "invoices", auto_offset_reset="earliest", isolation_level="read_committed"
        ) as consumer:
            while records := await consumer.getmany(timeout=1.0):
                seen += sum(map(len, records.values()))
        print(f"invoices: {seen}")


if __name__ == "__main__":
    asyncio.run(main())
