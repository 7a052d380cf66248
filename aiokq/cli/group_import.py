"""`aiokq groups import-zookeeper`: import offsets from ZooKeeper, or from a dump."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aiokq.cli.admin_command import AdminCall, admin_command
from aiokq.cli.options import NOT_DONE, DryRun, Execute, executing
from aiokq.cli.output import Json, Output, error_json

if TYPE_CHECKING:
    from aiokq.admin.client import Admin
    from aiokq.admin.group_import import GroupOffsetImported
    from aiokq.admin.results import Results
    from aiokq.admin.zookeeper import ZooKeeperOffsets
    from aiokq.core.types import TopicPartition

__all__ = ["import_zookeeper"]


@admin_command
def import_zookeeper(
    call: AdminCall,
    dump: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DUMP]", help="A file with a dump; - for standard input.", show_default=False
        ),
    ] = None,
    zookeeper: Annotated[
        str | None,
        typer.Option(
            "--zookeeper",
            metavar="HOST:PORT,...[/CHROOT]",
            help="Read a live ZooKeeper instead (needs the extra: pip install aiokq\\[zookeeper]).",
        ),
    ] = None,
    group_ids: Annotated[
        list[str] | None,
        typer.Option("--group", metavar="GROUP", help="Only this group; repeatable."),
    ] = None,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Replace offsets that a group has committed in Kafka."),
    ] = False,
    clip: Annotated[
        bool,
        typer.Option(
            "--clip",
            help="Replace an offset outside the log by the log's start or end; without --clip, "
            "such an offset is an error.",
        ),
    ] = False,
    dry_run: DryRun = False,
    execute: Execute = False,
) -> None:
    """Commit to Kafka the offsets that consumers of Kafka 0.8 to 1.1 kept in ZooKeeper.

    DUMP is a text file as written by kafka.tools.ExportZkOffsets, with a line for each node:
    /consumers/GROUP/offsets/TOPIC/PARTITION, a tab or a colon, and the offset. DUMP can also be a
    JSON file to which zk-shell copied a tree. Nodes with other paths are ignored.
    """
    if (dump is None) == (zookeeper is None):
        raise typer.BadParameter("no source is given: give either a DUMP or --zookeeper")
    out = call.out
    doing = executing(dry_run=dry_run, execute=execute)
    found = _read(dump, zookeeper, group_ids)
    for problem in found.problems:
        out.trouble(problem)
    for group_id in group_ids or []:
        if group_id not in found.groups:
            out.trouble(f"{group_id}: no offsets of this group were found")

    async def run(admin: Admin) -> None:
        results = await admin.import_group_offsets(
            found.groups, overwrite=overwrite, clip=clip, dry_run=not doing
        )
        _print(out, results, done=doing)

    if found.groups:
        call.run(run)
    elif out.as_json:
        out.document([])
    else:
        out.note(f"no consumer offsets found ({found.others} other nodes)")


def _read(dump: Path | None, zookeeper: str | None, groups: list[str] | None) -> ZooKeeperOffsets:
    from aiokq.admin.zookeeper import read_dump, read_zookeeper

    if zookeeper is not None:
        return read_zookeeper(zookeeper, groups=groups)
    assert dump is not None
    text = sys.stdin.read() if str(dump) == "-" else dump.read_text("utf-8", "replace")
    found = read_dump(text)
    return found if groups is None else found.only(groups)


def _print(
    out: Output,
    results: Results[tuple[str, TopicPartition], GroupOffsetImported],
    *,
    done: bool,
) -> None:
    for (group_id, tp), error in results.errors.items():
        out.problem(f"{group_id}: {tp}", error)
    if out.as_json:
        documents: list[Json] = [
            {
                "group": group_id,
                "topic": tp.topic,
                "partition": tp.partition,
                "given": each.given,
                "previous": each.previous,
                "offset": each.offset,
                "kept": each.kept,
                "clipped": each.clipped,
                "committed": done and each.error is None and not each.kept,
                "error": error_json(each.error),
            }
            for (group_id, tp), each in results.items()
        ]
        out.document(documents)
        return
    out.table(
        ("group", "topic", "partition", "given", "previous", "offset", "outcome"),
        [
            (
                group_id,
                *tp,
                each.given,
                each.previous,
                each.offset,
                _outcome(each, done=done),
            )
            for (group_id, tp), each in results.items()
        ],
    )
    if not done:
        out.note(NOT_DONE)


def _outcome(each: GroupOffsetImported, *, done: bool) -> str:
    if each.error is not None:
        return "failed" if done else "would fail"
    if each.kept:
        return "kept"
    imported = "clipped" if each.clipped else "imported"
    return imported if done else f"would be {imported}"
