"""Free memory that the system has touched before a measurement needs it.

A virtual machine returns free memory to its host within seconds, and the first touch of it then
costs ten times as much as writing to it: the first measurement would pay for all.
"""

from __future__ import annotations

import mmap
from typing import Final

_SPARE: Final = 256 << 20
"""The system does not hand out first what was given back last: of 32 MB touched alone, the page
cache gets nothing once it has grown by a GB, and a broker that writes takes three times the CPU."""


def touch(size: int) -> None:
    """Make the system hold about `size` bytes of free memory that need not come from a host."""
    if hasattr(mmap, "MAP_POPULATE"):
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
        mmap.mmap(-1, size + _SPARE, flags=flags).close()
