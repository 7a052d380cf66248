"""Files that are not regular files, made where one belongs."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

KINDS = ("FIFO", "socket", "device", "directory")


def make(path: Path, kind: str) -> Path:
    """Put a special file of this kind at a path, in place of what is there; return the path."""
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "socket":
        here = os.getcwd()
        os.chdir(path.parent)  # the path of a socket has at most 107 bytes
        try:
            with socket.socket(socket.AF_UNIX) as listening:
                listening.bind(path.name)
        finally:
            os.chdir(here)
    elif kind == "device":  # a device itself can only be made by root
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    return path
