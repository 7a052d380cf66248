"""Owns the hash that ties a built core to its sources: an edit must never run stale code.

setup.py runs this file by path, before the package can be imported, so it imports nothing of it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

SOURCES = ("_core.py", "_compiled.pxd", "_native.pxd", "_native.h", "_cleaner.h")


def source_hash(package: Path) -> str:
    """SHA-256 over the core's sources; "" where they are not all installed."""
    digest = hashlib.sha256()
    for name in SOURCES:
        try:
            text = (package / name).read_bytes()
        except FileNotFoundError:
            return ""
        digest.update(f"{name} {len(text)}\n".encode())
        digest.update(text)
    return digest.hexdigest()
