"""`aiokq log` and its commands `dump` and `verify`.

These two commands print and check the files of log directories of aiokq and of Apache Kafka. The
directories may be in use; nothing is written to them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from aiokq.cli.error_text import one_line
from aiokq.cli.help_text import examples
from aiokq.cli.options import AsJson
from aiokq.cli.output import Json, Output
from aiokq.cli.records import json_bytes

if TYPE_CHECKING:
    from aiokq.broker.inspection.contents import Entry, Value
    from aiokq.broker.inspection.findings import Finding
    from aiokq.broker.inspection.places import LogFile
    from aiokq.broker.inspection.verifying import CheckedPartition, Report

__all__ = ["log"]

KINDS: Final = (
    "log",
    "index",
    "timeindex",
    "txnindex",
    "snapshot",
    "epochs",
    "checkpoint",
    "partition.metadata",
    "meta.properties",
    "metadata",
    "metadata-snapshot",
    "quorum-state",
    "leftover",
)

log = typer.Typer(
    name="log",
    help="Print the files of log directories, and check them.",
    no_args_is_help=True,
)

AtPath = Annotated[
    Path,
    typer.Argument(
        metavar="PATH",
        help="A log directory, a partition's directory in it, or (to dump) one file.",
        exists=True,
        show_default=False,
    ),
]


@log.command(
    epilog=examples(
        "aiokq log dump kafka-data/orders-0",
        "aiokq log dump kafka-data/orders-0/00000000000000000000.log --records",
        "aiokq log dump kafka-data --only epochs --only checkpoint --json | jq .",
        "aiokq log dump kafka-data/__cluster_metadata-0 --records",
        "aiokq log dump kafka-data/__transaction_state-0 --records",
    )
)
def dump(
    path: AtPath,
    records: Annotated[
        bool, typer.Option("--records", "-r", help="Also show the records of each batch.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="KIND",
            help=f"Only files of this kind; repeatable. KIND is {', '.join(KINDS)}.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the files of a log: batches, index entries, producers, epochs, checkpoints, metadata.

    The output uses the terms of `kafka-dump-log`. In text, bytes that are not UTF-8 are printed as
    \\xNN; --json prints an object per entry, with such bytes as {"base64": "..."}. Records of the
    metadata log, its snapshots and __transaction_state are decoded, as by the options
    --cluster-metadata-decoder and --transaction-log-decoder of `kafka-dump-log`.

    The exit code is 1 if something cannot be read, or if a batch has a wrong checksum.
    """
    from aiokq.broker.inspection.contents import contents
    from aiokq.broker.inspection.places import files_at
    from aiokq.core.files import OsFiles
    from aiokq.fastpath import crc32c

    unknown = [kind for kind in only or () if kind not in KINDS]
    if unknown:
        raise typer.BadParameter(f"--only {unknown[0]}: must be one of {', '.join(KINDS)}")
    out = Output(as_json=as_json)
    files = OsFiles()
    found = False
    for file in files_at(files, _text(path)):
        if only and file.kind not in only:
            continue
        found = True
        if not as_json:
            out.line(f"Dumping {file.path}")
        try:
            for entry in contents(files, file, crc32c, records=records):
                _show(out, file, entry)
        except FileNotFoundError:
            out.note(f"{file.path}: the broker has removed the file meanwhile")
        except OSError as error:
            out.trouble(f"{file.path}: {error.strerror or error}")
    if not found:
        out.trouble(f"{path}: has no file of a log{' of that kind' if only else ''}")
    raise typer.Exit(out.exit_code)


def _show(out: Output, file: LogFile, entry: Entry) -> None:
    if out.as_json:
        line: dict[str, Json] = {"file": file.path, "kind": file.kind}
        for name, value in entry.items():
            line[name] = json_bytes(value) if isinstance(value, bytes) else value
        out.json_line(line)
    else:
        prefix = "| " if "key_size" in entry else ""
        out.line(prefix + " ".join(f"{_camel(k)}: {_plain(v)}" for k, v in entry.items()))
    if "error" in entry:
        position = f":{_plain(entry['position'])}" if "position" in entry else ""
        out.trouble(f"{file.path}{position}: {_plain(entry['error'])}")
    elif entry.get("is_valid") is False:
        out.trouble(f"{file.path}:{_plain(entry['position'])}: wrong checksum")


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(part.capitalize() for part in others)


def _plain(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, dict):
        return one_line(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    if isinstance(value, list):
        return one_line(f"[{','.join(value)}]")
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
    return one_line(text)


@log.command(
    epilog=examples(
        "aiokq log verify kafka-data",
        "aiokq log verify /disk1/kafka /disk2/kafka",
        "aiokq log verify kafka-data/orders-0 --records --json",
    )
)
def verify(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR...",
            help="Log directories of one node, or a partition's directory in one.",
            exists=True,
            show_default=False,
        ),
    ],
    records: Annotated[
        bool, typer.Option("--records", "-r", help="Also read every record; takes much longer.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check every batch of log directories, and that the other files agree with the batches.

    The other files are indexes, epochs, checkpoints, aborted transactions and producer state. An
    `error` means that a record or metadata is damaged or missing, that a record would be read
    wrongly, that a retried record would be written twice, or that a broker does not start. Any
    other fault is a `warning`; a broker repairs most of them at its next start. After a kill, or
    while the broker runs, a half-written end of the newest segment is a warning.

    Exit code 1 if there are errors.
    """
    from aiokq.broker.inspection.places import partitions_at
    from aiokq.broker.inspection.verifying import verify as verify_path
    from aiokq.broker.log.file_names import META_PROPERTIES
    from aiokq.core.files import OsFiles
    from aiokq.fastpath import crc32c

    for path in paths:
        if not path.is_dir():
            raise typer.BadParameter(
                f"{path}: not a directory; give a log directory, or a partition's directory in it"
            )
    out = Output(as_json=as_json)
    files = OsFiles()
    for path in paths:
        if not partitions_at(files, _text(path)) and not (path / META_PROPERTIES).exists():
            out.trouble(f"{path}: neither a log directory nor a partition's directory")
            raise typer.Exit(out.exit_code)

    def checked(partition: CheckedPartition) -> None:
        if not as_json:
            for finding in partition.findings:
                _complain(out, finding)

    reports = []
    for path in paths:
        beside = [_text(other) for other in paths if other != path]
        report = verify_path(
            files, _text(path), crc32c=crc32c, beside=beside, deep=records, checked=checked
        )
        reports.append(report)
        if not as_json:
            _show_report(out, report)
        if not report.sound:
            out.exit_code = 1
    if as_json:
        out.document([_report(report) for report in reports])
    raise typer.Exit(out.exit_code)


def _show_report(out: Output, report: Report) -> None:
    listed = {id(one) for partition in report.partitions for one in partition.findings}
    for finding in report.findings:
        if id(finding) not in listed:
            _complain(out, finding)
    _summary(out, report)


def _complain(out: Output, finding: Finding) -> None:
    position = "" if finding.position is None else f":{finding.position}"
    out.line(f"{finding.severity.value}: {finding.path}{position}: {finding.message}")


def _summary(out: Output, report: Report) -> None:
    rows = []
    for one in report.partitions:
        errors = sum(finding.severity.value == "error" for finding in one.findings)
        warnings = len(one.findings) - errors
        state = ", ".join(
            f"{count} {word}{'s' if count > 1 else ''}"
            for count, word in ((errors, "error"), (warnings, "warning"))
            if count
        )
        name = str(one.partition) if one.partition is not None else Path(one.path).name
        row = [name, one.start, one.end, len(one.segments), one.batches, one.size, state or "sound"]
        rows.append(row)
    out.table(["partition", "start", "end", "segments", "batches", "bytes", "state"], rows)
    stopped = "shut down cleanly" if report.clean else "in use, or not shut down cleanly"
    verdict = "sound" if report.sound else "NOT SOUND"
    out.line(
        f"{report.path}: {verdict}; {len(report.partitions)} partitions,"
        f" {sum(one.size for one in report.partitions)} bytes, {stopped}"
    )


def _report(report: Report) -> Json:
    return {
        "path": report.path,
        "sound": report.sound,
        "clean": report.clean,
        "partitions": [
            {
                "path": one.path,
                "topic": None if one.partition is None else one.partition.topic,
                "partition": None if one.partition is None else one.partition.partition,
                "start": one.start,
                "end": one.end,
                "segments": len(one.segments),
                "batches": one.batches,
                "bytes": one.size,
            }
            for one in report.partitions
        ],
        "findings": [
            {
                "severity": finding.severity.value,
                "path": finding.path,
                "position": finding.position,
                "message": finding.message,
            }
            for finding in report.findings
        ],
    }


def _text(path: Path) -> str:
    text = str(path)
    return text if text == "/" else text.rstrip("/")
