"""`aiokq offsets`: first and end offsets of partitions, and offsets by time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from aiokq.cli.admin_command import AdminCall, admin_command
from aiokq.cli.options import ReadCommitted, TopicNames, once
from aiokq.cli.output import Json, Output, error_json
from aiokq.cli.time_format import parse_time, time_text

if TYPE_CHECKING:
    from aiokq.admin.client import Admin
    from aiokq.admin.offsets import OffsetListing
    from aiokq.admin.results import Results
    from aiokq.cluster.offsets import IsolationLevel, OffsetSpec
    from aiokq.core.types import TopicPartition

__all__ = ["offsets"]


@admin_command
def offsets(
    call: AdminCall,
    topics: TopicNames,
    at: Annotated[
        list[str] | None,
        typer.Option(
            "--at",
            metavar="TIME",
            help="Show the first record at or after this time: 2026-01-31T12:00:00Z, @MS for "
            "milliseconds since 1970, or PT1H for an hour ago. Repeatable.",
        ),
    ] = None,
    committed: ReadCommitted = False,
) -> None:
    """Show the first and the end offset of each partition of topics, and offsets by time.

    TIME is 2026-01-31T12:00:00Z (local time without the Z), @MS for milliseconds since 1970, or
    PT1H for an hour ago.
    """
    times = {text: parse_time(text, call.session.now_ms()) for text in at or []}
    level: IsolationLevel = "read_committed" if committed else "read_uncommitted"
    call.run(lambda admin: _Listing(admin, call.out, once(topics), times, level).print())


class _Listing:
    """One run of `aiokq offsets`."""

    def __init__(
        self,
        admin: Admin,
        out: Output,
        topics: list[str],
        times: dict[str, int],
        isolation_level: IsolationLevel,
    ) -> None:
        self._admin = admin
        self._out = out
        self._topics = topics
        self._times = times
        self._isolation_level: IsolationLevel = isolation_level

    async def print(self) -> None:
        """Request the offsets and print them."""
        partitions = await self._partitions()
        earliest = await self._list(partitions, "earliest")
        latest = await self._list(partitions, "latest")
        by_time = [await self._list(partitions, at) for at in self._times.values()]
        for tp in partitions:
            error = next((r[tp].error for r in (earliest, latest, *by_time) if r[tp].error), None)
            if error is not None:
                self._out.problem(str(tp), error)
        if self._out.as_json:
            self._print_json(partitions, earliest, latest, by_time)
        else:
            self._print_table(partitions, earliest, latest, by_time)

    async def _partitions(self) -> list[TopicPartition]:
        from aiokq.core.types import TopicPartition

        described = await self._admin.describe_topics(self._topics)
        for name, error in described.errors.items():
            self._out.problem(name, error)
        return [
            TopicPartition(name, p.partition)
            for name in self._topics
            for p in described[name].partitions
        ]

    async def _list(
        self, partitions: list[TopicPartition], spec: OffsetSpec
    ) -> Results[TopicPartition, OffsetListing]:
        return await self._admin.list_offsets(
            dict.fromkeys(partitions, spec), isolation_level=self._isolation_level
        )

    def _print_json(
        self,
        partitions: list[TopicPartition],
        earliest: Results[TopicPartition, OffsetListing],
        latest: Results[TopicPartition, OffsetListing],
        by_time: list[Results[TopicPartition, OffsetListing]],
    ) -> None:
        documents: list[Json] = []
        for tp in partitions:
            times: list[Json] = [
                {
                    "at_ms": at_ms,
                    "offset": _offset(found[tp]),
                    "timestamp_ms": None if _offset(found[tp]) is None else found[tp].timestamp_ms,
                    "error": error_json(found[tp].error),
                }
                for at_ms, found in zip(self._times.values(), by_time, strict=True)
            ]
            documents.append(
                {
                    "topic": tp.topic,
                    "partition": tp.partition,
                    "earliest": _offset(earliest[tp]),
                    "latest": _offset(latest[tp]),
                    "times": times,
                    "error": error_json(earliest[tp].error or latest[tp].error),
                }
            )
        self._out.document(documents)

    def _print_table(
        self,
        partitions: list[TopicPartition],
        earliest: Results[TopicPartition, OffsetListing],
        latest: Results[TopicPartition, OffsetListing],
        by_time: list[Results[TopicPartition, OffsetListing]],
    ) -> None:
        columns = ["topic", "partition", "earliest", "latest"]
        for text in self._times:
            columns += [f"at {text}", "its time"]
        rows: list[list[object]] = []
        for tp in partitions:
            row: list[object] = [*tp, _offset(earliest[tp]), _offset(latest[tp])]
            for found in by_time:
                offset = _offset(found[tp])
                row += [offset, None if offset is None else time_text(found[tp].timestamp_ms)]
            rows.append(row)
        self._out.table(columns, rows)


def _offset(listing: OffsetListing) -> int | None:
    """Return the offset; None after an error, or if no record is at or after the time."""
    return None if listing.error is not None or listing.offset < 0 else listing.offset
