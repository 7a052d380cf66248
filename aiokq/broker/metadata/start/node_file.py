"""``aiokq-node.json``: the paths of the node's log directories, for messages about missing ones.

The file is in the log directory that has the metadata log. It is not synced, because the node works
without it: if the file is missing or damaged, the messages have directory ids in place of paths.
Everything that must not be lost is in the metadata log.

Tests: ``tests/unit/broker/metadata/start/test_node_file.py``.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aiokq.core.files import Files

__all__ = ["read_node_file", "write_node_file"]

NODE_FILE: Final = "aiokq-node.json"
_VERSION: Final = 1


def read_node_file(files: Files, directory: str) -> dict[uuid.UUID, str]:
    """Return the path of each log directory, by directory.id, from the file in `directory`.

    The result is empty if there is no file, or the file cannot be read.
    """
    try:
        values = json.loads(files.read_bytes(f"{directory}/{NODE_FILE}"))
        if values["version"] != _VERSION:
            return {}
        return {uuid.UUID(name): str(path) for name, path in values["paths"].items()}
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return {}


def write_node_file(files: Files, directory: str, paths: Mapping[uuid.UUID, str]) -> None:
    """Write the path of each log directory to the file, without waiting for the disk.

    An existing file is replaced.

    Args:
        directory: the log directory that gets the file.
        paths: the path of each log directory of the node, by directory.id.

    Raises:
        OSError: the disk failed.
    """
    values = {"version": _VERSION, "paths": {str(name): path for name, path in paths.items()}}
    path = f"{directory}/{NODE_FILE}"
    file = files.open(f"{path}.tmp", create=True)
    try:
        file.truncate(0)
        file.pwritev([json.dumps(values).encode()], 0)
    finally:
        file.close()
    files.rename(f"{path}.tmp", path)
