"""Local files that outlive a power cut: for what a load or an export has told as done.

Object stores are not its affair: there a file that was closed is durable.
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["sync_directory", "sync_file", "write_atomically"]


def write_atomically(path: Path, text: str) -> None:
    """A file that is there whole or not at all, also after a power cut."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    with open(unfinished, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Names in it outlive a power cut."""
    sync_file(path)


def sync_file(path: Path) -> None:
    """What is in it outlives a power cut; not so its name."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
