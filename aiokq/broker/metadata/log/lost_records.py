"""``aiokq-lost-metadata``: says that acknowledged records may be missing at the log's end.

``aiokq log repair`` cuts damaged records off, and so does a start if the damage is in the last
batch. A log that is older than the clean shutdown markers, for example because it was restored from
a copy, lacks the newest records. An adopted log may end before the log of its former leader. In all
these cases, producer ids and leader epochs in the logs of partitions may be newer than the
metadata. A start that finds this file appends records with higher producer ids and leader epochs
(`start.lost_records`). The file is durable before records are cut off, and is removed after this
append.

The file is in the log directory that has the metadata log. Apache Kafka ignores it.

Tests: ``tests/unit/broker/metadata/start/test_lost_records.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aiokq.core.files import Files

__all__ = ["LOST_METADATA", "forget_lost_records", "may_lack_records", "note_lost_records"]

LOST_METADATA: Final = "aiokq-lost-metadata"

_TEXT: Final = (
    b"The metadata log was cut. The next start of aiokq appends records for what may be lost, and "
    b"removes this file.\n"
)


def note_lost_records(files: Files, path: str) -> None:
    """Write ``aiokq-lost-metadata`` into a log directory, durably.

    Raises:
        OSError: the disk failed.
    """
    files.write_atomic(f"{path}/{LOST_METADATA}", _TEXT)


def may_lack_records(files: Files, path: str) -> bool:
    """Whether the metadata log in a log directory may lack acknowledged records.

    Raises:
        OSError: the disk failed.
    """
    return files.exists(f"{path}/{LOST_METADATA}")


def forget_lost_records(files: Files, path: str) -> None:
    """Remove ``aiokq-lost-metadata`` from a log directory.

    If a power cut restores the file, the next start appends higher ids and epochs again.

    Raises:
        OSError: the disk failed.
    """
    files.remove(f"{path}/{LOST_METADATA}")
