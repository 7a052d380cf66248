"""`aiokq storage adopt`: make a node of a quorum of several nodes the only voter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from aiokq.cli.options import AsJson, MetadataDirectory
from aiokq.cli.output import Json, Output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiokq.broker.metadata.stopped_broker.adoption import Adoption
    from aiokq.core.types import TopicPartition

__all__ = ["adopt"]


def adopt(
    directory: MetadataDirectory,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")
    ] = False,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean",
            help="Also lead partitions whose replica here was not in sync; acknowledged records "
            "may be missing in them.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make a stopped node of Apache Kafka the only voter of its metadata quorum.

    A broker of aiokq appends only to a metadata log whose only voter is its own node. If the quorum
    of several nodes is lost or given up, this command copies its log to a log with one voter. The
    old log is kept in a directory beside the new log. Ids, topics, settings, users, ACLs and quotas
    stay.

    The node becomes the leader and the only replica of each partition whose replica here is in
    sync. Without --unclean, all other partitions are offline. Stop the other nodes for good,
    because they would use the old log.
    """
    import random

    from aiokq.broker.metadata.stopped_broker.adoption import adopt as adopt_log
    from aiokq.core.clock import SystemClock
    from aiokq.core.files import OsFiles
    from aiokq.fastpath import crc32c

    out = Output(as_json=as_json)
    done = adopt_log(
        OsFiles(),
        str(directory.absolute()),
        execute=not dry_run,
        unclean=unclean,
        random=random.SystemRandom(),
        timestamp_ms=SystemClock().timestamp_ms(),
        crc32c=crc32c,
    )
    if as_json:
        out.document(
            {
                "node_id": done.node_id,
                "voters_before": list(done.voters),
                "end_offset": done.end_offset,
                "epoch": done.epoch,
                "old_log": done.kept or None,
                "leads": done.led,
                "on_other_nodes": _json(done.elsewhere),
                "not_in_sync": _json(done.behind),
                "unregistered": list(done.unregistered),
                "executed": not dry_run,
            }
        )
        return
    _show(out, done, unclean=unclean)
    if dry_run:
        out.line("dry run, nothing was changed")
    else:
        out.line(f"the old log is in {done.kept}")


def _show(out: Output, done: Adoption, *, unclean: bool) -> None:
    before = ", ".join(map(str, done.voters)) or "unknown"
    out.line(f"node {done.node_id} is the only voter; the voters were {before}")
    if done.unregistered:
        out.line(f"registrations dropped: {', '.join(map(str, done.unregistered))}")
    out.line(f"partitions that this node leads: {done.led}")
    if done.elsewhere:
        out.line(f"offline, because only other nodes have them: {len(done.elsewhere)}")
        _table(out, done.elsewhere)
    if done.behind and unclean:
        out.line(f"led although the replica was not in sync: {len(done.behind)}")
        _table(out, done.behind)
    elif done.behind:
        out.line(f"offline, because the replica here was not in sync: {len(done.behind)}")
        _table(out, done.behind)


def _table(out: Output, partitions: Sequence[TopicPartition]) -> None:
    by_topic: dict[str, list[int]] = {}
    for one in partitions:
        by_topic.setdefault(one.topic, []).append(one.partition)
    out.table(
        ("topic", "partitions"),
        [(topic, ",".join(map(str, numbers))) for topic, numbers in by_topic.items()],
    )


def _json(partitions: Sequence[TopicPartition]) -> Json:
    return [{"topic": one.topic, "partition": one.partition} for one in partitions]
