"""Writing and syncing of local files so that they survive a power failure.

In an object store, a closed file is durable without these functions.
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["sync_directory", "sync_file", "write_atomically"]


def write_atomically(path: Path, text: str) -> None:
    """Write a file atomically: after a power failure it has either the old or the new text."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    with open(unfinished, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Sync a directory, so that the names in it survive a power failure."""
    sync_file(path)


def sync_file(path: Path) -> None:
    """Sync the contents of a file; its directory entry needs `sync_directory`."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
