"""`aiokq log repair`: cut a damaged metadata log where its damage begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from aiokq.cli.options import AsJson, MetadataDirectory
from aiokq.cli.output import Json, Output

if TYPE_CHECKING:
    from aiokq.broker.metadata.stopped_broker.cut_records import LostRecord
    from aiokq.broker.metadata.stopped_broker.log_repair import Repair

__all__ = ["repair"]

SHOWN: Final = 20
"""Maximum number of lost records that are listed, unless --json is given."""

UNSURE: Final = " (its batch is damaged)"


def repair(
    directory: MetadataDirectory,
    execute: Annotated[
        bool,
        typer.Option(
            "--execute", "--yes", "-y", help="Do it; without this option only show the damage."
        ),
    ] = False,
    others_lost: Annotated[
        bool,
        typer.Option(
            "--others-lost",
            help="Repair the log of a quorum with other voters, too, all of which are lost.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Repair the metadata log of a stopped broker that does not start because the log is damaged.

    The log is cut where its damage begins. The records after the cut are lost. The command lists
    these records, including records of damaged batches that can be decoded. A damaged snapshot is
    set aside if the log has its records, and a wrong leader epoch of a batch is corrected. Nothing
    is deleted: the removed bytes stay in files with .corrupt- in their names.

    If you have a copy of the damaged file, restore that copy instead. The exit code is 1 if nothing
    can be kept.
    """
    from aiokq.broker.metadata.stopped_broker.log_repair import repair_log
    from aiokq.core.files import OsFiles
    from aiokq.fastpath import crc32c

    out = Output(as_json=as_json)
    done = repair_log(
        OsFiles(),
        str(directory.absolute()),
        execute=execute,
        others_lost=others_lost,
        crc32c=crc32c,
    )
    if as_json:
        out.document(_json(done, execute=execute))
    elif not done.path:
        out.line(f"the metadata log is sound up to its end at offset {done.end_offset}")
    else:
        _show(out, done, execute=execute)


def _show(out: Output, done: Repair, *, execute: bool) -> None:
    out.line(f"damaged: {done.path} at byte {done.position}: {done.reason}")
    if done.loses:
        out.line(f"lost: the records from offset {done.end_offset} on")
        if done.lost:
            out.table(("offset", "record"), [_row(one) for one in done.lost[:SHOWN]])
        if len(done.lost) > SHOWN:
            out.line(f"and {len(done.lost) - SHOWN} more, which --json lists")
    elif done.corrected and not done.set_aside:
        out.line("no record is lost")
    else:
        out.line("no record is lost: a snapshot or the log has them")
    for one in done.corrected:
        out.line(
            f"corrected: the leader epoch of the batch at offset {one.offset} is {one.new}, "
            f"not {one.old}"
        )
    for name in done.set_aside:
        out.line(f"set aside: {name}")
    out.line(f"left: {done.topics} topics, up to offset {done.end_offset}")
    for path in done.kept:
        out.line(f"removed bytes: {path}")
    out.line("repaired" if execute else "nothing was changed: add --execute to repair the log")


def _row(one: LostRecord) -> tuple[int | str, str]:
    from aiokq.broker.inspection.metadata_records import record_text

    last = one.last_offset
    offset = one.offset if one.offset == last else f"{one.offset}-{'?' if last is None else last}"
    text = "unreadable" if one.record is None else record_text(one.record)
    return offset, text if one.is_sound or one.record is None else text + UNSURE


def _json(done: Repair, *, execute: bool) -> Json:
    from aiokq.broker.inspection.metadata_records import record_data, record_type

    return {
        "damaged": None
        if not done.path
        else {
            "file": done.path,
            "position": done.position,
            "offset": done.offset,
            "reason": done.reason,
        },
        "end_offset": done.end_offset,
        "topics": done.topics,
        "loses_records": done.loses,
        "lost": [
            {
                "offset": one.offset,
                "last_offset": one.last_offset,
                "batch_is_sound": one.is_sound,
                "type": None if one.record is None else record_type(one.record),
                "data": None if one.record is None else record_data(one.record),
            }
            for one in done.lost
        ],
        "corrected_epochs": [
            {
                "file": one.path,
                "position": one.position,
                "offset": one.offset,
                "old": one.old,
                "new": one.new,
            }
            for one in done.corrected
        ],
        "set_aside": list(done.set_aside),
        "removed_bytes": list(done.kept),
        "executed": execute,
    }
