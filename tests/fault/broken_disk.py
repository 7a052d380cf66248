"""`aiokq broker` on disks that fail on command; test_disk_faults runs this module as a program.

The file named by the environment variable `BROKEN_DISK` has one line per fault,
`<operation> <path part> <what>`, and is read again before each operation. `<what>` is an errno,
which the operation raises (a write raises it after writing half of its data); `held`, which blocks
the operation while the line is in the file; or `counted`, which has no effect. `held` and
`counted` append a line to the file of the same name plus `.done`. Tests damage files themselves.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from aiokq.broker.process import main
from aiokq.core.files import OsFile, OsFiles

CONTROL = os.environ["BROKEN_DISK"]


def faults() -> list[tuple[str, str, str]]:
    try:
        with open(CONTROL, encoding="utf-8") as file:
            return [tuple(line.split()) for line in file if line.strip()]  # type: ignore[misc]
    except FileNotFoundError:
        return []


def fault(operation: str, path: str) -> OSError | None:
    for kind, part, what in faults():
        if kind == operation and part in path:
            if what not in ("held", "counted"):
                return OSError(int(what), os.strerror(int(what)), path)
            with open(f"{CONTROL}.done", "a", encoding="utf-8") as done:
                done.write(f"{operation} {path}\n")
            while what == "held" and (kind, part, what) in faults():
                time.sleep(0.01)
            return None
    return None


pwritev = OsFile.pwritev
sync = OsFile.sync


def broken_pwritev(self: OsFile, buffers: Sequence[Any], position: int) -> int:
    error = fault("write", self.path)
    if error is not None:
        data = b"".join(bytes(buffer) for buffer in buffers)
        pwritev(self, [data[: len(data) // 2]], position)
        raise error
    return pwritev(self, buffers, position)


def broken_sync(self: OsFile) -> None:
    error = fault("sync", self.path)
    if error is not None:
        raise error
    sync(self)


def breaking(operation: str, method: Callable[..., Any]) -> Callable[..., Any]:
    def broken(self: OsFiles, path: Any, *arguments: Any, **options: Any) -> Any:
        error = fault(operation, os.fspath(path))
        if error is not None:
            raise error
        return method(self, path, *arguments, **options)

    return broken


OsFile.pwritev = broken_pwritev  # type: ignore[method-assign]
OsFile.sync = broken_sync  # type: ignore[method-assign]
for name, kind in (("write_atomic", "write"), ("mkdirs", "mkdirs"), ("rename", "rename")):
    setattr(OsFiles, name, breaking(kind, getattr(OsFiles, name)))

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
