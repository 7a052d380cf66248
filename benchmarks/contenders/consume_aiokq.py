"""aiokq consuming: `async for` records, batches, and columns to Arrow."""

from __future__ import annotations

import asyncio

import uvloop

import aiokq
from benchmarks.contenders.measure import Load, arguments, measured


async def run(load: Load) -> None:
    async with aiokq.Consumer(
        load.topic,
        bootstrap_servers=load.bootstrap,
        auto_offset_reset="earliest",
        **load.security,
    ) as consumer:
        size = 0
        seen = 0
        if load.shape == "records":
            async for _ in consumer:
                seen = 1
                break
            with measured(load.records):
                async for record in consumer:
                    size += len(record.value)  # type: ignore[arg-type]
                    seen += 1
                    if seen >= load.records:
                        break
            return
        batches = consumer.batches()
        seen = len(await anext(batches))
        with measured(load.records - seen):
            if load.shape == "batches":
                async for batch in batches:
                    for record in batch:
                        size += len(record.value)  # type: ignore[arg-type]
                    seen += len(batch)
                    if seen >= load.records:
                        break
            else:
                async for batch in batches:
                    table = batch.to_arrow()
                    size += table.nbytes
                    seen += table.num_rows
                    if seen >= load.records:
                        break


if __name__ == "__main__":
    load = arguments()
    if load.shape == "arrow":
        # Imported here, because the import takes 0.3 s, which must not be measured.
        import pyarrow  # type: ignore[import-untyped]  # noqa: F401
    (uvloop.run if load.loop == "uvloop" else asyncio.run)(run(load))
