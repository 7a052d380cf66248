"""Models of the options of `aiokq produce` and `aiokq consume` (aiokq.core.options)."""

from __future__ import annotations

from dataclasses import dataclass, field

from aiokq.cli.start_positions import Start
from aiokq.core import limits
from aiokq.core.options import argument, option

__all__ = ["PrintOptions", "ProduceOptions", "ReadOptions"]


@dataclass(frozen=True)
class ProduceOptions:
    """Options of `aiokq produce`: the conversion of lines to records, and the topic."""

    topic: str = field(metadata=argument("TOPIC", help="Name of the topic."))
    key_separator: str | None = field(
        default=None,
        metadata=option(
            "--key-separator",
            "-K",
            metavar="TEXT",
            help="Text between key and value in a line ('\\t' for a tab). "
            "Default: lines have no key.",
            show_default=False,
        ),
    )
    headers: tuple[tuple[str, bytes], ...] = field(
        default=(),
        metadata=option(
            "--header",
            "-H",
            metavar="NAME=VALUE",
            help="A header of every record; repeatable.",
            typed=list[str],
        ),
    )
    partition: int | None = field(
        default=None,
        metadata=option(
            "--partition",
            "-p",
            minimum=0,
            maximum=limits.INT32_MAX,
            metavar="N",
            help="Partition of all records. Default: by key, or evenly without a key.",
            show_default=False,
        ),
    )
    compression_type: str | None = field(
        default=None,
        metadata=option(
            "--compression-type",
            "-z",
            metavar="CODEC",
            help="none, gzip, snappy, lz4 or zstd. Default: none.",
            show_default=False,
        ),
    )
    null_marker: str | None = field(
        default=None,
        metadata=option(
            "--null-marker",
            metavar="TEXT",
            help="A key or value equal to this text becomes null; a null value deletes its key "
            "in a compacted topic.",
            show_default=False,
        ),
    )
    offsets: bool = field(
        default=False,
        metadata=option("--offsets", help="Print topic-partition@offset of each record."),
    )
    as_json: bool = field(
        default=False,
        metadata=option("--json", help="Print the summary, and offsets, as JSON lines."),
    )


@dataclass(frozen=True)
class ReadOptions:
    """Options of `aiokq consume` that select the records to print, and the end of the command."""

    topics: tuple[str, ...] = field(metadata=argument("TOPIC", help="Names of topics."))
    start: Start = field(
        default="beginning",
        metadata=option(
            "--from",
            "-f",
            metavar="START",
            help="Where to start: beginning, end, an offset, -N for the last N offsets of each "
            "partition, or a time: 2026-01-31T12:00:00Z, @MS for milliseconds since 1970, or PT1H "
            "for an hour ago.",
            typed=str,
        ),
    )
    partitions: frozenset[int] = field(
        default=frozenset(),
        metadata=option(
            "--partition",
            "-p",
            minimum=0,
            maximum=limits.INT32_MAX,
            metavar="N",
            help="Only this partition; repeatable.",
        ),
    )
    """Numbers of the partitions to read, only with a single topic; empty for all partitions."""
    group: str | None = field(
        default=None,
        metadata=option(
            "--group",
            "-g",
            metavar="ID",
            help="Join this group: share its partitions, continue at its committed offsets, and "
            "commit printed records.",
            show_default=False,
        ),
    )
    limit: int | None = field(
        default=None,
        metadata=option(
            "--max-messages",
            "-n",
            minimum=1,
            maximum=limits.INT64_MAX,
            metavar="N",
            help="End after N records.",
        ),
    )
    follow: bool = field(
        default=True,
        metadata=option(
            "--follow/--until-end",
            help="Wait for more records, or stop at the end that each partition has when the "
            "command starts.",
        ),
    )


@dataclass(frozen=True)
class PrintOptions:
    """Options of `aiokq consume`: the parts of a record that are printed besides its value.

    The help of an option names the output formats to which the option applies: text, raw or both.
    """

    keys: bool = field(
        default=False, metadata=option("--keys", "-k", help="Print keys (text, raw).")
    )
    headers: bool = field(default=False, metadata=option("--headers", help="Print headers (text)."))
    timestamps: bool = field(
        default=False, metadata=option("--timestamps", help="Print timestamps, in UTC (text).")
    )
    offsets: bool = field(
        default=False,
        metadata=option("--offsets", help="Print topic, partition and offset (text)."),
    )
    separator: str = field(
        default="\t",
        metadata=option(
            "--separator",
            metavar="TEXT",
            help="Text between the printed parts of a record (text, raw). Default: a tab.",
            show_default=False,
        ),
    )
