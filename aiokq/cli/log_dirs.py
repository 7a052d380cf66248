"""`aiokq log-dirs`: describe the log directories of the brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from aiokq.cli.options import AsJson, BootstrapServers, ConfigFile, at_most
from aiokq.cli.output import Json, Output, error_json
from aiokq.cli.session import Session
from aiokq.core import limits

if TYPE_CHECKING:
    from aiokq.admin.client import Admin
    from aiokq.admin.log_dirs import BrokerLogDirs, LogDirDescription

__all__ = ["log_dirs"]


def log_dirs(
    ctx: typer.Context,
    brokers: Annotated[
        list[int] | None,
        typer.Option(
            "--broker",
            metavar="NODE_ID",
            min=0,
            callback=at_most(limits.INT32_MAX),
            help="Only this broker; may be repeated.",
        ),
    ] = None,
    partitions: Annotated[
        bool, typer.Option("--partitions", help="List the partitions in each directory.")
    ] = False,
    as_json: AsJson = False,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
) -> None:
    """Describe the log directories of the brokers: partitions, sizes and failures."""
    session: Session = ctx.obj
    out = Output(as_json=as_json)
    admin = session.admin(bootstrap_servers, config)
    session.run(_describe(admin, out, brokers or None, partitions=partitions))


async def _describe(
    admin: Admin, out: Output, brokers: list[int] | None, *, partitions: bool
) -> None:
    async with admin:
        found = await admin.describe_log_dirs(brokers, raise_errors=True)
    if out.as_json:
        out.document([_broker_json(broker) for broker in found.values()])
        return
    directories = [(b.node_id, d) for b in found.values() for d in b.log_dirs]
    if partitions:
        out.table(
            ("broker", "directory", "topic", "partition", "bytes", "lag"),
            [
                (node_id, directory.path, tp.topic, tp.partition, log.size_bytes, log.offset_lag)
                for node_id, directory in directories
                for tp, log in sorted(directory.replicas.items())
            ],
        )
    else:
        out.table(
            ("broker", "directory", "partitions", "bytes", "free", "state"),
            [
                (
                    node_id,
                    directory.path,
                    len(directory.replicas),
                    directory.size_bytes,
                    directory.usable_bytes,
                    "online" if directory.error is None else "offline",
                )
                for node_id, directory in directories
            ],
        )


def _broker_json(broker: BrokerLogDirs) -> Json:
    return {
        "node_id": broker.node_id,
        "log_dirs": [_directory_json(directory) for directory in broker.log_dirs],
    }


def _directory_json(directory: LogDirDescription) -> Json:
    return {
        "path": directory.path,
        "error": None if directory.error is None else error_json(directory.error),
        "total_bytes": directory.total_bytes,
        "usable_bytes": directory.usable_bytes,
        "partitions": [
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "size_bytes": log.size_bytes,
                "offset_lag": log.offset_lag,
                "is_future": log.is_future,
            }
            for tp, log in sorted(directory.replicas.items())
        ],
    }
