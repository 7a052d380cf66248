"""`aiokq produce` and `aiokq consume`: lines in, records out."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated

import typer

from aiokq.cli.options import AsJson, BootstrapServers, ConfigFile, run, settings_of
from aiokq.cli.output import bytes_fields, print_json
from aiokq.consumer.consumer import Consumer
from aiokq.consumer.settings import ConsumerSettings
from aiokq.core.errors import ConfigError
from aiokq.core.types import TopicPartition
from aiokq.fastpath import Record
from aiokq.producer.producer import Producer
from aiokq.producer.settings import ProducerSettings

__all__ = ["consume", "produce"]

CHUNK_BYTES = 1024 * 1024
"""Lines read from standard input at a time."""


def produce(
    topic: str,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
    partition: Annotated[int | None, typer.Option(help="Default: by the key.")] = None,
    key_separator: Annotated[
        str | None, typer.Option(help="What is before it in a line is the key.")
    ] = None,
    compression_type: Annotated[str | None, typer.Option("--compression-type", "-z")] = None,
    acks: Annotated[str | None, typer.Option(help="0, 1 or all.")] = None,
    json: AsJson = False,
) -> None:
    """Produce each line of standard input as a record; ends when all are acknowledged."""

    async def main() -> None:
        settings = settings_of(
            ProducerSettings,
            bootstrap_servers,
            config,
            compression_type=compression_type,
            acks=acks,
        )
        count = 0
        async with Producer(settings=settings) as producer:
            while lines := await asyncio.to_thread(sys.stdin.buffer.readlines, CHUNK_BYTES):
                records = [_split(line.rstrip(b"\r\n"), key_separator) for line in lines]
                deliveries = await producer.send_many(topic, records, partition=partition)
                count += len(await deliveries)
        if json:
            print_json({"topic": topic, "records": count})
        else:
            typer.echo(f"{count} record(s) acknowledged", err=True)

    run(main())


def _split(line: bytes, separator: str | None) -> tuple[bytes | None, bytes]:
    if separator is None:
        return None, line
    key, found, value = line.partition(separator.encode())
    if not found:
        raise ConfigError(f"no {separator!r} in the line {line[:80]!r}")
    return key, value


def consume(
    topic: str,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
    partition: Annotated[int | None, typer.Option(help="Only this one; default: all.")] = None,
    offset: Annotated[
        str, typer.Option(help="earliest, latest, or with --partition a number.")
    ] = "latest",
    max_records: Annotated[int | None, typer.Option("--max-records", "-n")] = None,
    exit_at_end: Annotated[
        bool, typer.Option("--exit-at-end", "-e", help="Stop where the topic ended at the start.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Print the values of records, or whole records as JSON, one a line, until interrupted."""

    async def main() -> None:
        reset = offset if offset in ("earliest", "latest") else "none"
        if reset == "none" and (partition is None or not offset.isdecimal()):
            raise ConfigError("--offset is earliest, latest, or with --partition a number")
        settings = settings_of(ConsumerSettings, bootstrap_servers, config, auto_offset_reset=reset)
        async with Consumer(settings=settings) as consumer:
            numbers = (
                await consumer.partitions_for_topic(topic) if partition is None else {partition}
            )
            partitions = [TopicPartition(topic, number) for number in sorted(numbers)]
            consumer.assign(partitions)
            if reset == "none":
                consumer.seek(partitions[0], int(offset))
            left = None
            if exit_at_end:
                ends = await consumer.end_offsets(partitions)
                left = {tp for tp in partitions if await consumer.position(tp) < ends[tp]}
            printed = 0
            while left != set() and (max_records is None or printed < max_records):
                limit = None if max_records is None else max_records - printed
                for tp, batch in (await consumer.getmany(timeout=0.5, max_records=limit)).items():
                    for record in batch:
                        if left is None or record.offset < ends[tp]:
                            _print(record, json)
                            printed += 1
                    if left is not None and await consumer.position(tp) >= ends[tp]:
                        left.discard(tp)
                sys.stdout.flush()

    run(main())


def _print(record: Record, json: bool) -> None:
    if not json:
        sys.stdout.buffer.write((record.value or b"") + b"\n")
        return
    print_json(
        {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp_ms": record.timestamp_ms,
            **bytes_fields("key", record.key),
            **bytes_fields("value", record.value),
            "headers": [{"name": n, **bytes_fields("value", v)} for n, v in record.headers],
        }
    )
